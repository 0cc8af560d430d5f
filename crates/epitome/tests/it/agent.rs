//! An agent that follows a script: what it is answered, and what its tools say, depends only on how far the log is. So
//! two runs of it differ in nothing but what is done to them.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use epitome::{
    core::{
        Fact, LoggedEvent, Seq, Tokens,
        event::{ContentPart, Timestamp, ToolCall},
        policy::Policy,
    },
    session::{Session, SessionBuilder, SessionRequest, ToolOutput},
    store::Store,
    summarise::{DraftFinish, ModelDraft},
    wire::Format,
};
use serde_json::json;

/// What the model's window holds.
pub(crate) const WINDOW: Tokens = Tokens(8_000);

/// What a request may hold of that, by our count.
pub(crate) const CEILING: Tokens = Tokens(6_000);

/// What the user wants, and what must never be lost.
pub(crate) const TASK: &str = "Count the lines of every part. Never write any file below vendor/.";

/// What stands in the summary of every run as the user's own words.
pub(crate) const CONSTRAINT: &str = "Never write any file below vendor/.";

/// A clock that stands until it is set.
#[derive(Clone, Debug)]
pub(crate) struct Hands(Arc<AtomicI64>);

impl Default for Hands {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000)))
    }
}

impl Hands {
    /// A minute a turn: longer than a worker may be silent.
    pub(crate) fn set(&self, turn: usize) {
        self.0.store(1_000_000 + i64::try_from(turn).unwrap() * 60_000, Ordering::SeqCst);
    }

    pub(crate) fn forward(&self, milliseconds: i64) {
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }

    pub(crate) fn read(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A session with a small window, by this clock.
pub(crate) fn builder(hands: &Hands) -> SessionBuilder {
    let hands = hands.clone();
    Session::builder(Format::OpenaiChat, "a model nobody knows")
        .window(WINDOW)
        .system("Count.")
        .clock(move || hands.read())
}

/// The default, but in a small window it goes as far down as in a large one.
pub(crate) fn roomy() -> Policy {
    Policy::read(
        r#"
        name = "roomy"
        about = "The default with more room after a reset."
        base = "epitome"
        limits = { cold = 0.46, target = 0.46, trigger = 0.85, force = 0.95 }
        "#,
    )
    .unwrap()
}

/// Only summaries: when one is wanted depends on nothing but the size.
pub(crate) fn summaries_only() -> Policy {
    Policy::read(
        r#"
        name = "summaries"
        about = "Summaries and nothing else."
        reduce = []
        limits = { target = 0.40, trigger = 0.60, force = 0.95 }
        summary = { keep = { tokens = 1_500 }, length = { scaled = { percent = 15, least = 500, most = 900 } } }
        "#,
    )
    .unwrap()
}

/// What the model answers in a turn: it looks at the next part.
pub(crate) fn answer(turn: usize) -> String {
    let path = format!("{{\"path\":\"parts/part-{turn}.txt\"}}");
    json!({"id": format!("answer-{turn}"), "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": format!("Counting part {turn}."), "tool_calls": [
            {"id": format!("call-{turn}"), "type": "function",
             "function": {"name": "read_file", "arguments": path}}]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}})
    .to_string()
}

/// What the tool says in a turn.
pub(crate) fn output(turn: usize) -> String {
    format!("line {turn} of the file\n").repeat(60)
}

/// One turn of the loop, in which the tool says this.
pub(crate) async fn turn_of(session: &Session, turn: usize, text: &str) -> SessionRequest {
    let request = session.next_request().await.unwrap();
    let answered = session.answered(&answer(turn)).await.unwrap();
    session.tool_results(&[ToolOutput::of(&answered.calls[0], text)]).await.unwrap();
    request
}

/// A draft that the span bears out.
pub(crate) fn good() -> ModelDraft {
    let text = "## Session Intent\n- Count the lines of every part.\n\n## Current Task\n- Counting goes on.\n\n\
                ## Next Steps\n- Count the rest.\n";
    ModelDraft { text: text.to_owned(), finish: DraftFinish::Complete, usage: None, model: None }
}

/// Everything that happened, shown or not.
pub(crate) fn log(store: &dyn Store, session: &Session) -> Vec<LoggedEvent> {
    store.read(session.thread(), Seq(1), usize::MAX).unwrap()
}

/// How many events of a log are of a kind.
pub(crate) fn count(log: &[LoggedEvent], kind: &str) -> usize {
    log.iter().filter(|logged| logged.event.fact.kind() == kind).count()
}

/// The summaries of a log, oldest first.
pub(crate) fn summaries(log: &[LoggedEvent]) -> Vec<&str> {
    let facts = log.iter().map(|logged| &logged.event.fact);
    facts
        .filter_map(|fact| match fact {
            Fact::Compacted(compaction) => Some(compaction.summary.text()),
            _ => None,
        })
        .collect()
}

/// The call that was made last.
pub(crate) fn last_call(log: &[LoggedEvent]) -> ToolCall {
    let parts = log.iter().rev().find_map(|logged| match &logged.event.fact {
        Fact::AssistantSaid { parts, .. } => Some(parts),
        _ => None,
    });
    let call = parts.into_iter().flatten().find_map(|part| match part {
        ContentPart::ToolCall(call) => Some(call.clone()),
        _ => None,
    });
    call.unwrap()
}
