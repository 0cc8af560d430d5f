//! Models that summarise: who they are, what they are asked and what comes back.
//!
//! A [`Summarize`] drafts, and decides nothing: whether its words are admitted is the gate's business. [`Remote`] asks a
//! model over HTTP in any of the three formats, with retries; anything else may implement the trait. [`draft`] makes the
//! questions out of a span, as many as the summariser's own window needs. No summariser ever has tools, and none speaks
//! as the session's persona.

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

/// Somebody who writes summaries.
///
/// An implementor asks no tools of anybody, writes nothing of a key or any other secret into a draft or an error, and
/// gives back what it was told in the model's own words: text that is wrong is for the gate to reject. It is dropped in
/// the middle of a question when nobody waits any more.
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
    /// What audit rows and the breaker know it by: model and host, no secrets.
    fn name(&self) -> &str;

    /// How much it may be asked with, its answer included.
    fn window(&self) -> Tokens;

    /// Where its failures count.
    fn scope(&self) -> Scope {
        Scope::Everywhere
    }

    /// Asks it once.
    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> Summarizing<'a>;
}

/// Where a summariser's failures count: there it is left alone for a while after some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all sessions that share its name.
    Everywhere,
    /// In the session that had it asked, because it is asked with that session's own key.
    Session,
}

/// A summary that is being written.
pub type Summarizing<'a> = Pin<Box<dyn Future<Output = Result<Draft, SummarizeError>> + Send + 'a>>;

/// One question to a summariser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    /// Who it is to be.
    pub system: String,
    /// The material, and what to make of it.
    pub user: String,
    /// How long its answer may be.
    pub limit: Tokens,
    /// The session's own request with one instruction appended, if that is what is asked: it is sent as it is, in place
    /// of the rest.
    pub warm: Option<String>,
}

/// What a summariser wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its words.
    pub text: String,
    /// How it ended.
    pub finish: Finish,
    /// What it used, if anybody counted.
    pub usage: Option<Usage>,
    /// The model that wrote it, as its server names it.
    pub model: Option<String>,
}
