//! Models that summarise: their settings, questions and answers.
//!
//! A [`Summarize`] only drafts: the gate decides whether its draft is admitted. [`RemoteSummariser`] asks a model over
//! HTTP in any of the three formats, with retries; anything else may implement the trait. [`draft`] makes
//! questions of a span, as many as the summariser's own window needs. No summariser ever has tools, and none
//! speaks as the session's persona.

pub mod api_key;
mod chunked_draft;
mod error;
mod http;
pub mod prompt;
mod request_mode;
pub mod retry;
mod shorten;
mod span_entries;
#[cfg(test)]
mod test_support;

use std::{fmt::Debug, future::Future, pin::Pin};

use epitome_core::{Tokens, event::Usage};

pub use self::{
    api_key::ApiKey,
    chunked_draft::{DraftTask, DraftingResult, draft},
    error::{RetryProspect, SummarizeError, TimeoutStep},
    http::{
        MAX_ANSWER_BYTES, MAX_ERROR_BYTES, RemoteSummariser, RemoteSummariserBuilder, ServerAnswerReader,
        ServerTimeouts, SummariserBuildError, limit_name,
    },
    prompt::SummaryInstructions,
    request_mode::{SeparateRequest, SummaryRequestMode, WarmRequest, cheaper},
    retry::RetryLimits,
};
pub use epitome_core::draft_gate::DraftFinish;

/// A writer of summaries.
///
/// An implementor calls no tools, writes no key or other secret into a draft or an error, and returns the
/// model's answer unchanged: rejecting a wrong text is the gate's task. The future is dropped in the middle
/// of a question when its result is no longer needed.
///
/// ```
/// use epitome::{ModelDraft, Summarize, SummaryFuture, SummaryRequest, Tokens, summarise::DraftFinish};
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
///     fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
///         Box::pin(async move {
///             let text = format!("## Current Task\n- Read {} letters.", request.user.len());
///             Ok(ModelDraft { text, finish: DraftFinish::Complete, usage: None, model: None })
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
    fn scope(&self) -> SummariserScope {
        SummariserScope::Everywhere
    }

    /// Asks it one question.
    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a>;
}

/// One that is shared is asked as it is.
impl<S: Summarize + ?Sized> Summarize for std::sync::Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn window(&self) -> Tokens {
        (**self).window()
    }

    fn scope(&self) -> SummariserScope {
        (**self).scope()
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        (**self).summarize(request)
    }
}

/// Scope of a summariser's failures: it rests there for a while after several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummariserScope {
    /// In all sessions that share its name.
    Everywhere,
    /// Only in the session that asked it, because it is asked with that session's own key.
    Session,
}

/// A summary that is being written.
pub type SummaryFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelDraft, SummarizeError>> + Send + 'a>>;

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
pub struct ModelDraft {
    /// Text of the answer.
    pub text: String,
    /// Ending of the answer.
    pub finish: DraftFinish,
    /// Usage, if it was counted.
    pub usage: Option<Usage>,
    /// Model that wrote it, as its server names it.
    pub model: Option<String>,
}
