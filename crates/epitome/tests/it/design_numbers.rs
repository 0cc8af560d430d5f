//! The numbers of the design documents, seen in live sessions: a model whose tokens are counted exactly, an agent that
//! works on, and the call at which a policy does what its document says. The table in `docs/conformance.md` is made here.

use std::{
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use epitome::{
    core::{
        Tokens,
        event::Timestamp,
        policy::Policy,
        profile::Profiles,
        tokens::{O200kCounter, TokenCounter},
    },
    session::{Session, SessionBuilder, ToolOutput},
    summarise::{Summarize, SummaryFuture, SummaryRequest},
    wire::Format,
};
use serde_json::{Value, json};

/// A model whose tokens are counted exactly, so that no margin is kept free.
const EXACT_MODEL: &str = r#"
[[model]]
name = "exact"
wire = "openai-chat"
tokenizer = "o200k"
"#;

/// What is known of it where it matters when it gets worse: prices, a cache, and the first row of the design's table.
const DEGRADING: &str = r#"
price = { input = 5.0, output = 25.0, cache_read = 0.1, cache_write = 1.25 }
cache = { written = "automatic", lifetimes = [300] }

[model.degradation]
source = "the design's table"
onset = [0.65, 0.75]
recommended_max = [0.60, 0.70]
"#;

/// An agent's work.
#[derive(Clone, Copy)]
struct AgentScript {
    /// Window of its model.
    window: u64,
    /// Further facts about it.
    model: &'static str,
    /// Most calls.
    calls: usize,
    /// The user speaks before every so many calls.
    user_every: usize,
    /// Tokens of each output, about.
    output: usize,
    /// Tokens of what the agent says with each call, about.
    said: usize,
    /// Tool of a call.
    tool: fn(usize) -> &'static str,
    /// Text of the change that is looked for.
    until: &'static str,
}

const USUAL: AgentScript = AgentScript {
    window: 200_000,
    model: "",
    calls: 200,
    user_every: usize::MAX,
    output: 1_500,
    said: 5,
    tool: |_| "read_file",
    until: "",
};

/// The calls up to the first that changed what was sent.
struct FirstChange {
    /// Its number, from 1.
    call: usize,
    /// Tokens of the call before it.
    before: u64,
    /// Its own.
    after: u64,
    /// Its messages.
    messages: Vec<Value>,
}

fn session(policy: &Policy, script: &AgentScript) -> SessionBuilder {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let mut profiles = Profiles::builtin();
    let AgentScript { window, model, .. } = script;
    profiles.with_overrides(&format!("{EXACT_MODEL}window = {window}\n{model}")).unwrap();
    Session::builder(Format::OpenaiChat, "exact")
        .policy(policy)
        .profiles(profiles)
        .system("Count.")
        .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
}

/// An answer that calls a tool, with the usage that the provider would report.
fn answer(call: usize, usage: Tokens, script: &AgentScript) -> String {
    let said = format!("Counting part {call}.{}", " It has some more lines.".repeat(script.said / 6));
    let arguments = json!({"path": format!("part-{call}.txt")}).to_string();
    let made = json!({"id": format!("call_{call}"), "type": "function",
        "function": {"name": (script.tool)(call), "arguments": arguments}});
    let message = json!({"role": "assistant", "content": said, "tool_calls": [made]});
    json!({"id": format!("answer_{call}"), "model": "exact", "choices": [{"index": 0, "message": message}],
        "usage": {"prompt_tokens": usage.0, "completion_tokens": 20, "total_tokens": usage.0 + 20}})
    .to_string()
}

fn tokens(text: &str) -> u64 {
    O200kCounter.count(text).0
}

/// Plays a script until a call changes what was sent, and holds its text.
async fn first_change(builder: SessionBuilder, script: &AgentScript) -> FirstChange {
    let session = builder.begin().await.unwrap();
    let mut before = 0;
    for call in 0..script.calls {
        if call == 0 || call % script.user_every == 0 {
            session.user(&format!("Count the files, request {call}.")).await.unwrap();
        }
        let request = session.next_request().await.unwrap();
        if request.cause.is_some() && request.body.contains(script.until) {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let messages = body["messages"].as_array().unwrap().clone();
            return FirstChange { call: call + 1, before, after: request.tokens.0, messages };
        }
        before = request.tokens.0;
        let answer = session.answered(&answer(call, request.tokens, script)).await.unwrap();
        let output = format!("line {call} of the file\n").repeat(script.output / 7);
        session.tool_results(&[ToolOutput::of(&answer.calls[0], output)]).await.unwrap();
    }
    panic!("nothing was changed in {} calls, up to {before} tokens", script.calls);
}

async fn under(policy: &str, script: AgentScript) -> FirstChange {
    let policy = Policy::named(policy).unwrap();
    first_change(session(policy, &script), &script).await
}

impl FirstChange {
    /// Contents of the messages of a role.
    fn contents(&self, role: &str) -> Vec<&str> {
        let of_role = self.messages.iter().filter(|message| message["role"] == role);
        of_role.map(|message| message["content"].as_str().unwrap_or_default()).collect()
    }

    /// The calls whose output is shown, whole or in part, by their numbers.
    fn shown_outputs(&self) -> Vec<usize> {
        let numbers = self
            .contents("tool")
            .into_iter()
            .filter_map(|output| output.strip_prefix("line ")?.split(' ').next()?.parse().ok());
        numbers.collect()
    }
}

/// A row of the table: a number, its place, and what a live session shows.
struct NumberRow {
    id: &'static str,
    number: &'static str,
    file: &'static str,
    text: &'static str,
    shown: String,
}

/// A limit of tokens is kept by the call before a change, and would have been exceeded by the next, which adds so many.
#[track_caller]
fn assert_reached(limit: u64, change: &FirstChange, growth: u64) {
    let before = change.before;
    assert!(before <= limit && before + growth > limit, "{limit}: call {} after {before}", change.call);
}

async fn blocks(rows: &mut Vec<NumberRow>) {
    let file = "core/src/policy/blocks.toml";
    let change = under("blocks", USUAL).await;
    assert_reached(156_400, &change, 1_600);
    rows.push(NumberRow {
        id: "S1.10",
        number: "`compact_at_pct` 0.90, `compact_budget_threshold_pct` 0.05",
        file,
        text: "compact_at_pct = 0.90",
        shown: format!(
            "call {}: {} tokens were sent, and 156 400 of 184 000 are the mark",
            change.call, change.before
        ),
    });
    let outputs = change.shown_outputs();
    let last = change.call - 1;
    let expect: Vec<usize> = (0..2).chain(last - 10..last).collect();
    assert_eq!(outputs, expect);
    rows.push(NumberRow {
        id: "S1.10",
        number: "`keep_first_turns` 2, `keep_recent_turns` 10",
        file,
        text: "keep_recent_turns = 10",
        shown: format!("call {}: outputs 1, 2 and {} to {} of {last} are shown", change.call, last - 9, last),
    });
    let cut: Vec<usize> = change
        .contents("tool")
        .iter()
        .filter(|text| text.contains("left out"))
        .map(|text| text.lines().filter(|line| line.starts_with("line ")).count())
        .collect();
    assert_eq!(cut, [50; 9], "all recent outputs but the newest, which the model is about to read");
    rows.push(NumberRow {
        id: "S1.10",
        number: "`tool_output_max_lines` 50",
        file,
        text: "tool_output_max_lines = 50",
        shown: format!("call {}: recent outputs have 50 lines of 214", change.call),
    });
    let note =
        change.contents("user").into_iter().find(|text| text.contains("turns in short")).unwrap().to_owned();
    assert!(tokens(&note) <= 2_000, "{}", tokens(&note));
    rows.push(NumberRow {
        id: "S1.10",
        number: "`max_summary_tokens` 2 000",
        file,
        text: "max_summary_tokens = 2_000",
        shown: format!("call {}: 90 turns in {} tokens", change.call, tokens(&note)),
    });
    let change = under("blocks", AgentScript { user_every: 12, ..USUAL }).await;
    let told = change.contents("user").iter().filter(|text| text.contains("turns in short")).count();
    assert_eq!(told, 3);
    rows.push(NumberRow {
        id: "S1.10",
        number: "`compaction_scope` 3 loops",
        file,
        text: "compaction_scope = { fixed_count = 3 }",
        shown: format!(
            "call {}: of {} earlier requests 3 are told turn by turn",
            change.call,
            (change.call - 1) / 12
        ),
    });
}

async fn lineage(rows: &mut Vec<NumberRow>) {
    let change = under("lineage", USUAL).await;
    assert_reached(180_000, &change, 1_600);
    rows.push(NumberRow {
        id: "S2.9",
        number: "20 000 tokens of the window in reserve",
        file: "core/src/policy/lineage.toml",
        text: "trigger = { reserve = 20_000 }",
        shown: format!(
            "call {}: {} tokens were sent, and 180 000 of 200 000 are the mark",
            change.call, change.before
        ),
    });
    let kept: u64 = change.shown_outputs().len() as u64 * 1_540;
    assert!((27_000..=30_000).contains(&kept), "{kept}");
    rows.push(NumberRow {
        id: "S2.10",
        number: "30 000 recent tokens kept",
        file: "core/src/policy/lineage.toml",
        text: "keep = { tokens = 30_000 }",
        shown: format!("call {}: {} tokens with the summary", change.call, change.after),
    });
}

async fn pivot(rows: &mut Vec<NumberRow>) {
    let file = "core/src/policy/pivot.toml";
    let change = under("pivot", USUAL).await;
    assert_reached(184_000, &change, 1_600);
    rows.push(NumberRow {
        id: "S3.3",
        number: "the window less an answer of at most 16 000",
        file: "core/src/budget.rs",
        text: "output: Tokens(16_000)",
        shown: format!("call {}: {} tokens were sent, and 184 000 are usable", change.call, change.before),
    });
    let tool = |call| if call == 3 { "skill" } else { "read_file" };
    let change = under("pivot", AgentScript { user_every: 1, tool, ..USUAL }).await;
    let outputs = change.shown_outputs();
    let last = change.call - 1;
    // Of the requests of the user the newest has no call yet.
    let (skill, recent) = (outputs[0], &outputs[1..]);
    assert_eq!((skill, recent.last()), (3, Some(&(last - 1))));
    let size = |outputs: usize| outputs as u64 * 1_498;
    assert!(size(recent.len() - 1) <= 40_000 && size(recent.len()) > 40_000, "{recent:?}");
    let pruned = size(last - outputs.len());
    assert!(pruned > 20_000 && pruned - size(1) <= 20_000, "{pruned}");
    rows.push(NumberRow {
        id: "S3.10",
        number: "40 000 tokens protected beside 2 user turns, more than 20 000 freed, `skill` spared",
        file,
        text: "more_than = 20_000",
        shown: format!(
            "call {}: {} of {last} outputs pruned, {} tokens; those of `skill` and of the newest {} stay",
            change.call,
            last - outputs.len(),
            pruned,
            recent.len(),
        ),
    });
}

/// A summariser that never answers.
#[derive(Debug)]
struct Silent;

impl Summarize for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn window(&self) -> Tokens {
        Tokens(200_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(std::future::pending())
    }
}

async fn tiered(rows: &mut Vec<NumberRow>) {
    let file = "core/src/policy/tiered.toml";
    let change = under("tiered", USUAL).await;
    assert_reached(101_200, &change, 1_600);
    assert!(change.after <= 82_800, "{}", change.after);
    rows.push(NumberRow {
        id: "S4.3",
        number: "trigger 55 %, target 45 % of the window less the answer",
        file: "core/src/profile/mod.rs",
        text: "trigger: Share::percent(55), target: Share::percent(45), force: Share::percent(85)",
        shown: format!(
            "call {}: {} tokens were sent, and 101 200 are the mark; {} after, of 82 800",
            change.call, change.before, change.after
        ),
    });
    // Nothing of it is an output, and a summary is not there in time.
    let script = AgentScript { output: 7, said: 1_500, ..USUAL };
    let policy = Policy::named("tiered").unwrap();
    let change = first_change(session(policy, &script).summariser(Silent), &script).await;
    assert_reached(156_400, &change, 1_700);
    rows.push(NumberRow {
        id: "S4.6",
        number: "force 85 % as a safety net",
        file: "core/src/profile/mod.rs",
        text: "force: Share::percent(85)",
        shown: format!(
            "call {}: {} tokens were sent while a summariser was silent, and 156 400 are the mark",
            change.call, change.before
        ),
    });
    let change = under("tiered", AgentScript { output: 3_000, ..USUAL }).await;
    let cut = tokens(change.contents("tool")[0]);
    assert!((1_000..1_040).contains(&cut), "{cut}");
    rows.push(NumberRow {
        id: "S4.8",
        number: "outputs over 2 000 tokens: 500 of the head, 500 of the tail",
        file,
        text: "tokens = { over = 2_000, head = 500, tail = 500 }",
        shown: format!("call {}: outputs of 3 000 tokens have {cut}", change.call),
    });
    let script = AgentScript { said: 1_300, until: "stands for an earlier part", ..USUAL };
    let change = under("tiered", script).await;
    let mut outputs = change.contents("tool");
    let current = outputs.pop().unwrap();
    assert_eq!(tokens(current), 1_498, "the current turn stays as it is");
    assert!(
        outputs.iter().all(|output| tokens(output) <= 540),
        "{:?}",
        outputs.iter().map(|text| tokens(text)).collect::<Vec<_>>()
    );
    let said = change.contents("assistant");
    let window: u64 = outputs.iter().chain(&said[..outputs.len()]).map(|text| tokens(text) + 30).sum();
    assert!((3..=5).contains(&outputs.len()) && window <= 8_000, "{} turns of {window}", outputs.len());
    rows.push(NumberRow {
        id: "S4.1",
        number: "a recent window of 3 to 5 turns and at most 8 000 tokens, its outputs cut to 500",
        file,
        text: "keep = { recent = { turns = 5, tokens = 8_000, output = 500 } }",
        shown: format!(
            "call {}: {} turns of {window} tokens beside the summary and the current turn",
            change.call,
            outputs.len()
        ),
    });
}

async fn degradation(rows: &mut Vec<NumberRow>) {
    for (window, output, mark) in [(200_000, 1_500, "140 000"), (1_000_000, 12_000, "700 000")] {
        let change = under("epitome", AgentScript { model: DEGRADING, window, output, ..USUAL }).await;
        assert_reached(window / 10 * 7, &change, output as u64 + 100);
        rows.push(NumberRow {
            id: "S4.3",
            number: if window == 200_000 {
                "onset 65 to 75 %, recommended at most 60 to 70 %, under the default policy"
            } else {
                "the same in a window of 1 000 000"
            },
            file: "core/src/policy/epitome.toml",
            text: "heeds_degradation = true",
            shown: format!(
                "call {}: {} tokens were sent, and {mark} are the mark",
                change.call, change.before
            ),
        });
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const HEADING: &str = "## Numbers\n";

/// With `EPITOME_SPECS=write` the table is written anew.
#[tokio::test(flavor = "multi_thread")]
async fn every_number_of_the_designs_is_seen_in_a_live_session() {
    let mut rows = Vec::new();
    blocks(&mut rows).await;
    lineage(&mut rows).await;
    pivot(&mut rows).await;
    tiered(&mut rows).await;
    degradation(&mut rows).await;
    let mut table =
        String::from("| number | requirement | in `crates/` | seen in a live session |\n|---|---|---|---|\n");
    for NumberRow { id, number, file, text, shown } in &rows {
        let source = fs::read_to_string(workspace().join("crates").join(file)).unwrap();
        assert!(source.contains(text), "{file} has no `{text}`");
        writeln!(table, "| {number} | {id} | `{file}`: `{text}` | {shown} |").unwrap();
    }
    let page = workspace().join("docs/conformance.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, section) = text.split_once(HEADING).expect("docs/conformance.md has a section of numbers");
    let (about, _) = section.split_once("| number").expect("it has a table");
    let expect = format!("{before}{HEADING}{about}{table}");
    if env::var("EPITOME_SPECS").is_ok_and(|value| value == "write") {
        fs::write(&page, expect).unwrap();
        return;
    }
    assert_eq!(text, expect, "docs/conformance.md has other numbers: EPITOME_SPECS=write writes these");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_made_where_their_configuration_says() {
    let mut calls = Vec::new();
    for share in ["0.30", "0.60", "0.90"] {
        let text = format!("base = \"blocks\"\n[[reduce]]\nreducer = \"blocks\"\ncompact_at_pct = {share}");
        let change = first_change(session(&Policy::read(&text).unwrap(), &USUAL), &USUAL).await;
        calls.push(change.call);
    }
    assert_eq!(calls, [31, 67, 103]);
}
