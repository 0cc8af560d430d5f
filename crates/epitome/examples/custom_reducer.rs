//! A reducer of your own: test runs that passed are shown by their last line, as soon as room is wanted.
//!
//! ```sh
//! cargo run -p epitome --example custom_reducer
//! ```
//!
//! A reducer looks at segments and says what to show in their place. It cannot part a call from its result or lose an
//! event: what it takes away stays in the log, and the line it leaves says where. It runs before those of the policy,
//! at the same times, and what it decided is recorded, so that past requests can be made again without it.

use std::error::Error;

use epitome::{
    ContentPart, Format, Reducer, Session, SessionBuilder, Tokens, ToolOutput,
    core::{
        budget::Budget,
        context::{Context, Fidelity, Segment, SegmentEdit, Tier},
        pipeline::{ReducerOutput, ReducerState},
    },
};

/// Shows the last line of test runs that passed.
#[derive(Debug)]
struct PassedTests;

impl Reducer for PassedTests {
    fn name(&self) -> &'static str {
        "passed_tests"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let (newest, names) = (context.last_turn(), context.names());
        let context = context.edit(self.name(), |_, segment| match verdict(segment) {
            Some(verdict) if segment.turn() < newest => {
                let all = names.handles(segment.stands_for());
                SegmentEdit::line(format!("{verdict}\n[all of it: {all}]"), Fidelity::Cut)
            }
            _ => SegmentEdit::Keep,
        });
        ReducerOutput { context, state }
    }
}

/// The last line of a test run that passed; nothing if it is something else, or was shortened before.
fn verdict(segment: &Segment) -> Option<String> {
    segment.call().filter(|call| call.arguments.contains("cargo test") && !segment.is_error())?;
    let Some([ContentPart::Text { text }]) = segment.shown() else { return None };
    let last = text.trim_end().lines().next_back()?;
    (segment.fidelity() == Fidelity::Verbatim && last.contains("0 failed")).then(|| last.to_owned())
}

/// A session with the reducer.
fn careful(model: &str, window: Tokens) -> SessionBuilder {
    Session::builder(Format::OpenaiChat, model).window(window).reducer(PassedTests)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", play().await?);
    Ok(())
}

/// Plays a few turns, and gives the last request.
pub(crate) async fn play() -> Result<String, Box<dyn Error>> {
    let session = careful("some-model", Tokens(8_000)).begin().await?;
    session.user("Make the tests pass.").await?;
    for turn in 0..8 {
        session.next_request().await?;
        let answer = session.answered(&answered(turn)).await?;
        let passed = format!("{}test result: ok. 100 passed; 0 failed\n", "test a::b ... ok\n".repeat(100));
        session.tool_results(&[ToolOutput::of(&answer.calls[0], passed)]).await?;
    }
    Ok(session.next_request().await?.body)
}

/// What a model might answer.
fn answered(turn: usize) -> String {
    let arguments = r#"{\"command\":\"cargo test\"}"#;
    let function = format!(r#"{{"name":"run","arguments":"{arguments}"}}"#);
    let call = format!(r#"{{"id":"call_{turn}","type":"function","function":{function}}}"#);
    let message = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#);
    format!(
        r#"{{"id":"a{turn}","choices":[{{"index":0,"message":{message},"finish_reason":"tool_calls"}}]}}"#
    )
}
