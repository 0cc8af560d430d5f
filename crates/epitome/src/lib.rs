//! Keeps an LLM agent inside its context window, and inside its provider's prompt cache, without losing what happened.
//!
//! ```
//! use epitome::{AssistantAnswer, Format, RefusalKind, Session, Tokens, ToolCall, ToolOutput};
//! use serde_json::json;
//!
//! /// Answers a question: asks the model until it calls no more tools.
//! async fn answer(session: &Session, question: &str) -> Result<String, Box<dyn std::error::Error>> {
//!     session.user(question).await?;
//!     loop {
//!         let request = session.next_request().await?; // fits the window; never waits for a model
//!         let (status, body) = post(request.body).await?;
//!         if status != 200 {
//!             // A request that the provider finds too long is made again, smaller.
//!             if session.refused(status, body.as_bytes()).await? == RefusalKind::TooLong {
//!                 continue;
//!             }
//!             return Err(format!("the provider answered {status}: {body}").into());
//!         }
//!         let answer: AssistantAnswer = session.answered(&body).await?;
//!         if answer.is_final() {
//!             return Ok(answer.text);
//!         }
//!         let outputs = answer.calls.iter().map(|call| ToolOutput::new(call, run_tool(call)));
//!         session.tool_results(&outputs.collect::<Vec<_>>()).await?;
//!     }
//! }
//!
//! /// Posts a request to the provider. Your HTTP client stands here: this model first calls a tool, then answers.
//! async fn post(body: String) -> std::io::Result<(u16, String)> {
//!     let message = if body.contains("in 9.1 s") {
//!         r#"{"role":"assistant","content":"The linker is slow."}"#
//!     } else {
//!         r#"{"role":"assistant","content":null,"tool_calls":[
//!             {"id":"call_1","type":"function","function":{"name":"time_build","arguments":"{}"}}]}"#
//!     };
//!     Ok((200, format!(r#"{{"id":"1","choices":[{{"index":0,"message":{message}}}]}}"#)))
//! }
//!
//! /// Runs a tool. An error is a result too: the model reads it.
//! fn run_tool(call: &ToolCall) -> Result<String, String> {
//!     match call.name.0.as_str() {
//!         "time_build" => Ok("compiled in 2.4 s, linked in 9.1 s".to_owned()),
//!         other => Err(format!("there is no tool called {other}")),
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let folder = tempfile::tempdir()?;
//!     let session = Session::builder(Format::OpenaiChat, "gpt-5.1")
//!         .file(folder.path().join("agent.db")) // the log; it can be resumed from there
//!         .window(Tokens(60_000)) // by default the model's own
//!         .system("You are a careful engineer.")
//!         .tools(json!([{"type": "function", "function": {"name": "time_build", "parameters": {"type": "object"}}}]))
//!         .begin()
//!         .await?;
//!     assert_eq!(answer(&session, "Why is the build slow?").await?, "The linker is slow.");
//!     Ok(())
//! }
//! ```
//!
//! That is all an agent has to do. Old messages are summarised in the background and the summary is swapped in between two
//! requests; every request is legal for its provider and extends the last one wherever that is possible; and nothing is lost:
//! what a request no longer shows is in the log, which only grows.
//!
//! Most of what a program needs is here at the root:
//!
//! - *A session:* [`Session`] and [`SessionBuilder`]; [`SessionRequest`] goes out, [`AssistantAnswer`] comes back,
//!   [`ToolOutput`] answers its calls, and [`LifecycleEvent`] tells what happened in the background. A response that is
//!   streamed is handed over as it arrives, through [`Session::answer_stream`].
//! - *Behaviour:* [`Policy`] says when and how to act, [`Profiles`] what is known about models. A [`Reducer`] or a [`Hook`] of
//!   your own works beside those of the policy.
//! - *Summaries by a model:* [`RemoteSummariser`] asks one over HTTP, anything else implements [`Summarize`]. Without
//!   either they are made by code alone.
//! - *Without a session:* [`compact_request`] makes a single request fit.
//! - *The log:* a [`Store`] keeps the [`Event`]s of all sessions, in a file that [`open_store`] opens; [`import`] reads transcripts of other agents into it.
//!
//! The rest is in the modules and in the crates below, which are here under their own names: [`core`] for events and what is
//! derived from them, [`store`] for the log, [`wire`] for provider formats.
//!
//! The feature `bpe`, on by default, counts tokens of OpenAI's models exactly. Without it a program is smaller by that vocabulary, and
//! these counts are estimates like those for all other models.

mod call_preparer;
#[doc(hidden)]
pub mod call_settings;
pub mod compact;
pub mod import;
pub mod lineage;
pub mod memory_files;
pub mod session;
pub mod structured_session;
pub mod summarise;

// The command line, the gateway and measurement are built on these; their names may change with any release.
#[doc(hidden)]
pub mod holdout;
#[doc(hidden)]
pub mod observe;
#[doc(hidden)]
pub mod queries;
#[doc(hidden)]
pub mod recorded_calls;
#[doc(hidden)]
pub mod recorder;
#[doc(hidden)]
pub mod request_plan;
#[doc(hidden)]
pub mod rewrite;
#[doc(hidden)]
pub mod simulate;
mod simulated_job;
mod thread_lru;
#[doc(hidden)]
pub mod token_margin;

pub use epitome_core as core;
pub use epitome_store as store;
pub use epitome_wire as wire;

#[doc(inline)]
pub use self::{
    compact::{CompactedRequest, CompactionReport},
    lineage::ForkMode,
    request_plan::{RequestError, compact_request, compact_request_by},
    session::{
        AssistantAnswer, LifecycleEvent, RefusalKind, Session, SessionBuilder, SessionError, SessionRequest,
        ToolOutput, WarmRequestMode,
    },
    summarise::{
        ApiKey, ModelDraft, RemoteSummariser, Summarize, SummarizeError, SummaryFuture, SummaryRequest,
    },
};
#[doc(inline)]
pub use epitome_core::{
    ContentPart, Event, Fact, Seq, SessionId, ThreadId, Tokens,
    event::{Pin, ToolCall, Usage},
    inject::Hook,
    pipeline::Reducer,
    policy::Policy,
    profile::Profiles,
};
#[doc(inline)]
pub use epitome_store::{Store, StoreError, StoreLocation, StoreOptions, open_store};
#[doc(inline)]
pub use epitome_wire::{FinishReason, Format};

/// The README, whose Rust code is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
