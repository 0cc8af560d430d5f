//! Runs the examples of policies in `specs/policy-*.md`: a session with its calls marked, a policy with numbers small
//! enough to follow, and what comes of each call.
//!
//! What makes a page more than an illustration: its policy must run the same reducers at the same times as the built-in
//! one, and what is said to be the same epoch is compared, request with request.

use std::{fmt::Write as _, fs, path::PathBuf};

use epitome_core::{
    Fact,
    budget::{Budget, WindowReserves},
    cost::CacheTerms,
    event::{Compaction, Timestamp},
    id::ModelName,
    model_view::{NextCall, PreparationReport},
    pipeline::{Reducer, ReductionStep},
    policy::{Policy, StepTiming},
    profile::{CacheRules, Profile, Profiles},
    tokens::Tokens,
};

use crate::{
    notation::{meter, read, show},
    specs::{blocks, specs},
    stage::{Stage, said},
};

/// The file of a built-in policy, as a page shows it.
pub(crate) fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/policy").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What comes of each call of a session under a policy.
pub(crate) fn calls(log: &str, toml: &str) -> String {
    let (policy, profile) = example(toml);
    let reserves = WindowReserves { output: Tokens(0), ..WindowReserves::default() };
    let budget = policy.budget(Budget::for_profile(&profile, reserves));
    let terms = CacheTerms::new(&profile.cache, &profile.prices);
    let script = Script::of(log);
    let mut out = String::new();
    let mut stage = Stage::new(meter());
    let (mut played, mut sent) = (0, Vec::new());
    for (number, mark) in (1..).zip(&script.marks) {
        let events = read(&script.log);
        for event in &events[played..mark.after] {
            stage.play(event);
        }
        played = mark.after;
        let moment = NextCall {
            now: Some(mark.at),
            model: mark.model.as_ref(),
            terms: Some(&terms),
            ..NextCall::default()
        };
        match stage.view.prepare(&policy, &budget, &moment) {
            Ok(prepared) => {
                let now = said(stage.view.context());
                assert!(
                    prepared.cause.is_some() || now.starts_with(&sent),
                    "call {number} changes what was sent and opens no epoch:\n{log}"
                );
                sent = now;
                stage.view.sent(Some(mark.at));
                describe(&mut out, number, mark, &stage, &prepared);
            }
            Err(refusal) => {
                let _ = writeln!(out, "call {number} at {}: refused: {refusal}", clock(mark.at));
            }
        }
    }
    assert!(!script.marks.is_empty(), "an example of a policy makes calls");
    out
}

/// A page's policy, and a model with a window of the given size, whose cache lives for five minutes and costs what
/// Anthropic's does.
fn example(toml: &str) -> (Policy, Profile) {
    let mut ceiling = None;
    let mut file = String::new();
    for line in toml.lines() {
        match line.strip_prefix("ceiling = ") {
            Some(number) => ceiling = Some(number),
            None => file.extend([line, "\n"]),
        }
    }
    let policy = Policy::read(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    let ceiling = ceiling.expect("an example says how much a request may hold");
    let mut profiles = Profiles::builtin();
    let price = "price = { input = 5, output = 25, cache_read = 0.1, cache_write = 1.25 }";
    let model = format!("[[model]]\nname = \"test\"\nwire = \"anthropic\"\nwindow = {ceiling}\n{price}\n");
    profiles.with_overrides(&model).unwrap_or_else(|error| panic!("{error}"));
    let mut profile = profiles.find("test").expect("it was just added").clone();
    profile.cache = CacheRules { lifetimes: Some(vec![300]), ..CacheRules::default() };
    (policy, profile)
}

/// A log, and where in it calls are made.
struct Script {
    log: String,
    marks: Vec<Mark>,
}

/// A call: `-- call`, `-- call at 00:05`, `-- call at 00:05 to another-model`.
struct Mark {
    /// How many events have happened.
    after: usize,
    at: Timestamp,
    model: Option<ModelName>,
}

impl Script {
    fn of(text: &str) -> Self {
        let mut script = Self { log: String::new(), marks: Vec::new() };
        let (mut at, mut model) = (Timestamp(0), Some(ModelName("a-model".into())));
        for line in text.lines() {
            let Some(said) = line.strip_prefix("-- call") else {
                script.log.extend([line, "\n"]);
                continue;
            };
            let mut words = said.split_whitespace();
            while let (Some(word), Some(value)) = (words.next(), words.next()) {
                match word {
                    "at" => at = time(value),
                    "to" => model = Some(ModelName(value.into())),
                    other => panic!("a call is not made `{other}` something"),
                }
            }
            let after = read(&script.log).len();
            script.marks.push(Mark { after, at, model: model.clone() });
        }
        script
    }
}

/// `01:30` is an hour and a half after the beginning.
fn time(text: &str) -> Timestamp {
    let (hours, minutes) = text.split_once(':').expect("a time is written 00:05");
    let number = |digits: &str| digits.parse::<i64>().expect("a time is written 00:05");
    Timestamp((number(hours) * 60 + number(minutes)) * 60_000)
}

fn clock(Timestamp(time): Timestamp) -> String {
    let minutes = time / 60_000;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn describe(out: &mut String, number: u64, mark: &Mark, stage: &Stage, prepared: &PreparationReport) {
    let PreparationReport { cause, plan, steps, shortfall, compaction, .. } = prepared;
    let context = stage.view.context();
    let _ = write!(out, "call {number} at {}: {} tokens, ", clock(mark.at), context.tokens());
    let _ = match cause {
        Some(cause) => writeln!(out, "epoch {}: {cause}", stage.view.epoch().number),
        None => writeln!(out, "epoch {}", stage.view.epoch().number),
    };
    if let Some(plan) = plan {
        let _ = writeln!(out, "  plan: {plan}");
    }
    let did = |step: &&ReductionStep| step.replaced + step.removed > 0;
    for ReductionStep { reducer, before, after, replaced, removed, .. } in steps.iter().filter(did) {
        let _ = writeln!(
            out,
            "  step {reducer}: {before} to {after} tokens, {replaced} replaced, {removed} removed"
        );
    }
    if let Some(shortfall) = shortfall {
        let _ = writeln!(out, "  short: {shortfall}");
    }
    if let Some(Fact::Compacted(compaction)) = compaction.as_ref().map(|made| &made.event.fact) {
        describe_compaction(out, compaction);
    }
    if compaction.is_some() || steps.iter().any(|step| did(&step)) {
        for line in show(context).lines().filter(|line| !line.starts_with("total ")) {
            let _ = writeln!(out, "  {line}");
        }
    }
}

/// What was summarised and what the summary says, but for the sections that are empty.
fn describe_compaction(out: &mut String, compaction: &Compaction) {
    let Compaction { summary, through, first_kept, tokens_before, tokens_after, .. } = compaction;
    let tokens = |tokens: Option<Tokens>| tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
    let kept = first_kept.map_or_else(String::new, |kept| format!(", kept from {kept}"));
    let (before, after) = (tokens(*tokens_before), tokens(*tokens_after));
    let _ = writeln!(out, "  compacted through {through}{kept}: {before} to {after} tokens");
    let sections = summary.text().split("\n\n").map(str::trim_end);
    for section in sections.filter(|section| !section.ends_with("\n(none)")) {
        for line in section.lines() {
            let _ = writeln!(out, "    {line}");
        }
    }
}

#[test]
fn every_policy_has_a_page_that_runs_it_with_its_own_reducers() {
    let shape = |policy: &Policy| -> Vec<(StepTiming, &'static str)> {
        policy.reduce.iter().map(|step| (step.when, step.reducer.name())).collect()
    };
    for policy in Policy::builtin() {
        let page = specs().join(format!("policy-{}.md", policy.name));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let blocks = blocks(&text);
        let count = |language: &str| blocks.iter().filter(|block| block.language == language).count();
        assert_eq!(count(&format!("toml {}.toml", policy.name)), 1, "{} shows its file", page.display());
        assert!(count("calls") > 0, "{} has no example", page.display());
        for block in blocks.iter().filter(|block| block.language == "toml") {
            let (example, _) = example(block.text);
            assert!(block.text.contains(&format!("base = \"{}\"", policy.name)), "{}", block.text);
            assert_eq!(shape(&example), shape(policy), "{} runs something else", page.display());
            assert_eq!(example.summary.is_some(), policy.summary.is_some(), "{}", page.display());
        }
    }
}
