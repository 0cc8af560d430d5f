//! Sessions that are played to be measured, and transcripts that are imported for it.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use epitome::{
    core::{ThreadId, Tokens, event::Timestamp, policy::Policy},
    import::import_bytes,
    session::{Session, SessionBuilder, ToolOutput},
    store::{Store, StoreOptions, temporary_store},
    wire::{Format, transcripts::TranscriptLimits},
};
use serde_json::{Value, json};

/// A session of a model without a profile, and its clock, which moves on by a second whenever it is read.
pub(crate) fn builder(window: Tokens) -> (SessionBuilder, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let time = Arc::clone(&clock);
    let builder = Session::builder(Format::OpenaiChat, "a model nobody knows")
        .window(window)
        .clock(move || Timestamp(time.fetch_add(1_000, Ordering::Relaxed)));
    (builder, clock)
}

/// A policy of compactions alone, which keep two turns.
pub(crate) fn compactions_only() -> Policy {
    let policy = Policy::read(
        r#"
        name = "test"
        about = "Summaries only."
        [limits]
        target = 0.6
        trigger = 0.9
        [[reduce]]
        reducer = "evict_media"
        [summary]
        keep = { turns = 2 }
        length = { fixed = 700 }
        "#,
    );
    policy.unwrap()
}

/// A turn of a tool loop.
pub(crate) struct PlayedTurn {
    /// What the model says.
    pub(crate) said: String,
    /// The tool it calls.
    pub(crate) tool: &'static str,
    /// The arguments of the call.
    pub(crate) arguments: Value,
    /// Usage that the provider reports.
    pub(crate) usage: Value,
    /// The result of the call.
    pub(crate) result: PlayedResult,
}

/// The result of a played call.
pub(crate) enum PlayedResult {
    /// It went well, with this output.
    Output(String),
    /// It failed, with this output.
    Failure(String),
}

/// Plays turns, which are numbered in the whole session.
pub(crate) async fn play(session: &Session, turns: Range<usize>, played: impl Fn(usize) -> PlayedTurn) {
    for turn in turns {
        session.next_request().await.unwrap();
        let PlayedTurn { said, tool, arguments, usage, result } = played(turn);
        let call = json!({"id": format!("call-{turn}"), "type": "function",
            "function": {"name": tool, "arguments": arguments.to_string()}});
        let answer = json!({"id": format!("answer-{turn}"), "model": "m", "usage": usage,
            "choices": [{"index": 0, "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": said, "tool_calls": [call]}}]});
        let answer = session.answered(&answer.to_string()).await.unwrap();
        let call = &answer.calls[0];
        let output = match result {
            PlayedResult::Output(text) => ToolOutput::of(call, text),
            PlayedResult::Failure(text) => ToolOutput::failed(call, text),
        };
        session.tool_results(&[output]).await.unwrap();
    }
}

/// Imports a transcript into a store of its own: the store, and the thread of its first session.
pub(crate) fn imported(name: &str, transcript: &str) -> (Arc<dyn Store>, ThreadId) {
    let store = temporary_store(StoreOptions::default()).unwrap();
    let imported = import_bytes(&*store, name, transcript.as_bytes(), &TranscriptLimits::default()).unwrap();
    let thread = imported.sessions[0].row.head.unwrap();
    (store, thread)
}
