//! Models that summarise: their settings, questions and answers.
//!
//! A [`Summarize`] only drafts: the gate decides whether its draft is admitted. [`Remote`] asks a model over
//! HTTP in any of the three formats, with retries; anything else may implement the trait. [`draft`] makes
//! questions of a span, as many as the summariser's own window needs. No summariser ever has tools, and none
//! speaks as the session's persona.

mod choose;
mod chunk;
mod cut;
mod error;
mod http;
pub mod key;
mod material;
pub mod prompt;
pub mod retry;
#[cfg(test)]
mod testing;

use std::{fmt::Debug, future::Future, pin::Pin};

use epitome_core::{Tokens, event::Usage};

pub use self::{
    choose::{Apart, Warm, Way, cheaper},
    chunk::{Drafted, Task, draft},
    error::{Hope, SummarizeError, Waited},
    http::{BuildError, Builder, LARGEST, LARGEST_ERROR, Reading, Remote, Timeouts, limit_name},
    key::Key,
    prompt::Instructions,
    retry::Retries,
};
pub use epitome_core::verify::Finish;

/// A writer of summaries.
///
/// An implementor calls no tools, writes no key or other secret into a draft or an error, and returns the
/// model's answer unchanged: rejecting a wrong text is the gate's task. The future is dropped in the middle
/// of a question when its result is no longer needed.
///
/// ```
/// use epitome::{
///     core::Tokens,
///     summarise::{Draft, Finish, Summarize, SummaryRequest, Summarizing},
/// };
///
/// /// Says how long the question was.
/// #[derive(Debug)]
/// struct Counting;
///
/// impl Summarize for Counting {
///     fn name(&self) -> &str {
///         "counting"
///     }
///     fn window(&self) -> Tokens {
///         Tokens(100_000)
///     }
///     fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> Summarizing<'a> {
///         Box::pin(async move {
///             let text = format!("## Current Task\n- Read {} letters.", request.user.len());
///             Ok(Draft { text, finish: Finish::Complete, usage: None, model: None })
///         })
///     }
/// }
/// ```
pub trait Summarize: Debug + Send + Sync {
    /// Name in audit rows and for the breaker: model and host, no secrets.
    fn name(&self) -> &str;

    /// Size of its context window, including its answer.
    fn window(&self) -> Tokens;

    /// Scope in which its failures count.
    fn scope(&self) -> Scope {
        Scope::Everywhere
    }

    /// Asks it one question.
    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> Summarizing<'a>;
}

/// Scope of a summariser's failures: it rests there for a while after several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all sessions that share its name.
    Everywhere,
    /// Only in the session that asked it, because it is asked with that session's own key.
    Session,
}

/// A summary that is being written.
pub type Summarizing<'a> = Pin<Box<dyn Future<Output = Result<Draft, SummarizeError>> + Send + 'a>>;

/// One question to a summariser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    /// System prompt.
    pub system: String,
    /// Material, followed by the task.
    pub user: String,
    /// Largest size of the answer.
    pub limit: Tokens,
    /// The session's own request with one instruction appended. If present, it is sent as it is, in place of
    /// the rest.
    pub warm: Option<String>,
}

/// Answer of a summariser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Text of the answer.
    pub text: String,
    /// Ending of the answer.
    pub finish: Finish,
    /// Usage, if it was counted.
    pub usage: Option<Usage>,
    /// Model that wrote it, as its server names it.
    pub model: Option<String>,
}
