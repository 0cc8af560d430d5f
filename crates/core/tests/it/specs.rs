//! Runs the pages in `specs/`: each is a manual page of a reducer, or of the whole, and a test at once.
//!
//! A page holds examples: a block `log`, a block `toml` with the budget and the reducers, a block `context` with what
//! comes out; or, of a policy, a block `calls`. `EPITOME_SPECS=write` writes what does come out into the pages, for a person to read before it is kept.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use epitome_core::{
    budget::Budget,
    context::Tier,
    fit::{FittedContext, fit},
    pipeline::{Reducer, ReducerState, ReductionCause, ReductionStep},
    reducers::{AnyReducer, default_reducers, pipeline},
    tokens::Tokens,
};
use serde::Deserialize;

use crate::{
    notation::{context, show},
    specs_policies,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    ceiling: u64,
    target: Option<u64>,
    #[serde(default)]
    caps: BTreeMap<Tier, u64>,
    /// The reducers to run; without any, those of the default policy.
    #[serde(default)]
    reduce: Vec<AnyReducer>,
}

#[test]
fn every_page_says_what_happens() {
    let mut wrong = String::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let found = rewrite(&text);
        if found == text {
            continue;
        }
        if std::env::var("EPITOME_SPECS").as_deref() == Ok("write") {
            fs::write(&page, found).unwrap();
        } else {
            let _ = writeln!(wrong, "{}\n{}", page.display(), difference(&text, &found));
        }
    }
    assert!(wrong.is_empty(), "these pages say something else than what happens:\n{wrong}");
}

#[test]
fn every_reducer_has_a_page_that_runs_it() {
    for reducer in AnyReducer::all() {
        let page = specs().join(format!("{}.md", reducer.name()));
        let text = fs::read_to_string(&page).unwrap_or_default();
        let runs = blocks(&text).iter().any(|block| {
            block.language == "toml"
                && settings(block.text).reduce.iter().any(|run| run.name() == reducer.name())
        });
        assert!(runs, "{} is missing, or has no example that runs its reducer", page.display());
    }
}

pub(crate) fn specs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

fn pages() -> Vec<PathBuf> {
    let files = fs::read_dir(specs()).expect("there are specs");
    let mut pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(pages.len() > 10, "the pages are gone");
    pages
}

/// A fenced block of a page.
pub(crate) struct Block<'p> {
    pub(crate) language: &'p str,
    pub(crate) text: &'p str,
    /// Where the text is in its page.
    start: usize,
}

/// The fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(open) = page[at..].find("\n```") {
        let language_start = at + open + 4;
        let language_end = language_start + page[language_start..].find('\n').expect("a fence ends its line");
        let start = language_end + 1;
        let length = if page[start..].starts_with("```") {
            0
        } else {
            page[start..].find("\n```").expect("a fence is closed") + 1
        };
        let language = &page[language_start..language_end];
        blocks.push(Block { language, text: &page[start..start + length], start });
        at = start + length + 3;
    }
    blocks
}

/// The page with every block as it comes out: `context`, `calls`, and the files it shows.
fn rewrite(page: &str) -> String {
    let mut out = String::new();
    let mut copied = 0;
    let (mut log, mut toml) = (None, None);
    for block in blocks(page) {
        let found = match block.language {
            "log" => {
                log = Some(block.text);
                continue;
            }
            "toml" => {
                toml = Some(block.text);
                continue;
            }
            "context" => match (log.expect("a log comes before a context"), toml.take()) {
                (log, Some(toml)) => reduce(log, toml),
                (log, None) => show(&context(log)),
            },
            "calls" => {
                let toml = toml.take().expect("a policy comes before its calls");
                specs_policies::calls(log.expect("a log comes before its calls"), toml)
            }
            other => match other.strip_prefix("toml ") {
                Some(file) => specs_policies::file(file),
                None => continue,
            },
        };
        out.push_str(&page[copied..block.start]);
        out.push_str(&found);
        copied = block.start + block.text.len();
    }
    out.push_str(&page[copied..]);
    out
}

fn settings(toml: &str) -> Settings {
    toml::from_str(toml).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

fn reduce(log: &str, toml: &str) -> String {
    let settings = settings(toml);
    let mut budget = Budget::new(Tokens(settings.ceiling));
    if let Some(target) = settings.target {
        budget = budget.with_target(Tokens(target));
    }
    for (tier, cap) in settings.caps {
        budget = budget.with_cap(tier, Tokens(cap));
    }
    let reducers = if settings.reduce.is_empty() { default_reducers() } else { settings.reduce };
    match fit(context(log), &budget, &pipeline(reducers), ReducerState::default()) {
        Ok(FittedContext { context, steps, .. }) => {
            let mut out = show(&context);
            for step in &steps {
                let _ = writeln!(out, "{}", describe(step));
            }
            out
        }
        Err(refusal) => format!("refused: {refusal}\n"),
    }
}

fn describe(step: &ReductionStep) -> String {
    let ReductionStep { reducer, cause, before, after, replaced, removed } = step;
    let why = match cause {
        ReductionCause::Target(over) => format!("{over} over the target"),
        ReductionCause::Cap(tier, over) => format!("{tier:?} {over} over its cap"),
        ReductionCause::Unsendable(count) => format!("{count} would be refused"),
    };
    format!("step {reducer}: {why}; {before} to {after} tokens, {replaced} replaced, {removed} removed")
}

/// The lines that differ, as a person would look for them.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(one, other)| one == other).count();
    let rest = expected[same..].iter().rev().zip(found[same..].iter().rev());
    let same_after = rest.take_while(|(one, other)| one == other).count();
    let mut out = format!("  from line {}:\n", same + 1);
    for line in &expected[same..expected.len() - same_after] {
        let _ = writeln!(out, "  - {line}");
    }
    for line in &found[same..found.len() - same_after] {
        let _ = writeln!(out, "  + {line}");
    }
    out
}
