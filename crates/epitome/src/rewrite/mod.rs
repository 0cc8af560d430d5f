//! Requests on their way through a gateway, made to fit: the client's own bytes, with old parts taken out and a
//! summary in their place.
//!
//! A client that does not support compaction sends its whole history with every call. Here each call is placed in the
//! log, and the request that goes on to the provider is the client's with the decisions of a policy made in it.
//! Untouched messages leave with the bytes the client sent.

mod client_cache;
mod client_call;
mod client_examples;
mod compact_command;
mod early_release;
mod fork_inheritance;
mod fork_places;
mod incremental_hash;
mod own_summary;
mod recall_answers;
mod reconstruct;
mod relayed_threads;
mod repeated_request;
mod request_count;
mod request_rewrite;
mod rewrite_body;
mod rewrite_decision;
mod rewrite_record;
mod thread_cache;
mod unit_events;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use epitome_core::{
    ThreadId, Tokens, event::CompactionTrigger, inject::Hooks, policy::Policy, profile::Profiles,
};
use epitome_wire::summary_prompt::SummaryAnswerForm;
use tokio::sync::broadcast::Receiver;

pub use self::{
    client_cache::{ClientCache, UnknownCacheReason},
    own_summary::summarise_instead,
    recall_answers::{RecallAnswerForm, recall},
    repeated_request::compose_smaller,
    request_count::RequestCount,
    request_rewrite::{RequestRewrite, compose},
    rewrite_decision::RewriteDecision,
};
pub(crate) use self::{
    fork_inheritance::ForkInheritance,
    recall_answers::{as_client_saw, recall_results},
    reconstruct::RewriteRecords,
    relayed_threads::RelayedThread,
    rewrite_record::RewriteRecord,
    thread_cache::{CachedThread, ThreadCache},
};
use crate::{
    recorder::PendingRecord,
    session::{LifecycleEvent, OverflowCheck, WarmRequestMode, lifecycle::LifecycleListeners},
    summarise::{Summarize, SummaryInstructions},
};

/// Settings for composing requests.
#[derive(Debug)]
pub struct RewriteSettings {
    /// Policy by which they are made smaller.
    pub policy: Policy,
    /// Profiles of models.
    pub profiles: Arc<Profiles>,
    /// Size of a model's window, in place of its profile's.
    pub window: Option<Tokens>,
    /// Number of sessions in a million that are left as they are, for comparison.
    pub holdout: u32,
    /// Command with which a user has the session compacted, such as `/compact`; `None` if there is none.
    pub command: Option<String>,
    /// True if the model of a new session is offered a tool by which it gets back parts that were left out. A session
    /// keeps the choice it began with: its provider's cache, and thinking that is bound to the request, contain the
    /// tools.
    pub recall: bool,
    /// True if requests for a compaction item are answered with our summary even if their provider may have such items.
    pub own_items: bool,
    /// True if a request may be written together with its answer if it only grows, or is the first of its thread: a
    /// kill before that loses both. All other decisions for a request are written before it leaves.
    pub with_answers: bool,
    /// Source of lifecycle events about summaries.
    pub heard: LifecycleHub,
    /// Functions of sessions beside making requests smaller.
    pub functions: Arc<SessionFunctions>,
}

/// Functions of a gateway's sessions beside making requests smaller. By default there are none.
#[derive(Debug, Default)]
pub struct SessionFunctions {
    /// Summariser for summaries that a user asks for; by default that of all others.
    pub careful: Option<Arc<dyn Summarize>>,
    /// Focus of every summary, and lines for a model that summarises.
    pub instructions: SummaryInstructions,
    /// Time without a request after which a model summarises, so that the summary is there when the cache has gone
    /// cold.
    pub idle: Option<Duration>,
    /// Folder with the memory files: a folder in it for each session, named by its id.
    pub memory: Option<PathBuf>,
    /// Hooks that add content beside each message of the user.
    pub hooks: Arc<Hooks>,
    /// Check of each answer's usage.
    pub overflow_check: OverflowCheck,
}

/// Lifecycle events about the summaries of all sessions.
#[derive(Clone, Debug)]
pub struct LifecycleHub {
    listeners: LifecycleListeners,
}

impl Default for LifecycleHub {
    fn default() -> Self {
        Self { listeners: LifecycleListeners::new(None, None) }
    }
}

impl LifecycleHub {
    /// Listens from now on. A listener that is too slow misses the oldest events.
    pub fn listen(&self) -> Receiver<LifecycleEvent> {
        self.listeners.subscribe()
    }
}

/// The model that writes the summaries of a session.
#[derive(Clone, Debug)]
pub struct SessionSummariser {
    /// The summariser itself.
    pub summarise: Arc<dyn Summarize>,
    /// The model, for its prices.
    pub model: String,
    /// Reports whether the session's own request may be continued instead of sending the material to another model.
    pub warm: WarmRequestMode,
}

/// Instructions for a request that its sender gives outside its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOverrides {
    /// Size of the window in tokens, for this request.
    pub window: Option<Tokens>,
    /// Compacts now with this focus (which may be empty), and sends nothing to the provider.
    pub compact: Option<String>,
}

/// A request that was recorded, and its disposition.
#[derive(Debug)]
pub struct RewriteOutcome {
    /// Its record, to be [finished](crate::recorder::TrafficRecorder::finish).
    pub ticket: PendingRecord,
    /// Disposition of the request.
    pub way: RequestDisposition,
}

/// Disposition of a request.
#[derive(Clone, Debug)]
pub enum RequestDisposition {
    /// It goes on to the provider in this form.
    Forward(RewrittenRequest),
    /// It does not go on: the client gets a text, as if the model had said it.
    Answer {
        /// The text.
        words: String,
        /// The compaction that took effect with it: its trigger, and the name of its summariser.
        compaction: Option<(CompactionTrigger, String)>,
    },
    /// It does not go on: the client asked for a summary of its session, and gets ours.
    Summary(SessionSummaryAnswer),
}

/// Our summary of a session, for a client that asked for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummaryAnswer {
    /// The summary.
    pub text: String,
    /// Form in which the client reads it.
    pub form: SummaryAnswerForm,
}

/// A request in the form in which it goes on.
#[derive(Clone, Debug)]
pub struct RewrittenRequest {
    /// Its body, in order.
    pub cuts: Vec<BodySlice>,
    /// Report on the changes.
    pub done: RewriteReport,
    /// True if its model is offered a tool by which it gets back parts that were left out, unless the client has one
    /// of that name.
    pub recall: bool,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodySlice {
    /// These bytes of the client's body.
    Client(Range<usize>),
    /// Text of ours.
    Own(String),
}

impl BodySlice {
    /// Its text, given the client's `body`.
    pub fn text<'t>(&'t self, body: &'t str) -> &'t str {
        match self {
            Self::Client(range) => body.get(range.clone()).unwrap_or_default(),
            Self::Own(text) => text,
        }
    }
}

/// Report on the changes made to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteReport {
    /// Thread and number of its call in the audit; `None` if it has none.
    pub call: Option<(ThreadId, u64)>,
    /// Epoch: as long as it is the same, each request of a thread extends the one before.
    pub epoch: u64,
    /// Cause of a new epoch; `None` if the request only grew.
    pub cause: Option<String>,
    /// Tokens that the client sent, by our count.
    pub before: Tokens,
    /// Tokens that go on.
    pub after: Tokens,
    /// Tokens of the client's request that a cache would have held if all its requests had gone on as they came.
    pub cache: ClientCache,
    /// The compaction that was adopted with it: its trigger, and the name of its summariser.
    pub compaction: Option<(CompactionTrigger, String)>,
    /// Reports whether a policy was in charge, or the reason it was not.
    pub left: RewriteStatus,
}

impl RewriteReport {
    /// For a request that goes on as it came.
    fn nothing(left: RewriteStatus) -> Self {
        let none = Tokens(0);
        Self {
            call: None,
            epoch: 0,
            cause: None,
            before: none,
            after: none,
            cache: ClientCache::AsUsed,
            compaction: None,
            left,
        }
    }
}

/// Reports whether a policy was in charge of a request, or the reason it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RewriteStatus {
    /// A policy was in charge.
    Composed,
    /// No policy: the session is one of those that are left as they are, for comparison.
    HeldOut,
    /// No policy: the client has its provider manage the context.
    Managed,
    /// No policy: only the provider has the history.
    Remote,
    /// No policy: the request is not part of the conversation, but asks for a title for it.
    Aside,
    /// No policy: it is the client's own summary of the conversation, and its provider's window holds it whole.
    OwnSummary,
    /// No policy: no request could be made that the provider would accept.
    Unfit,
    /// No policy: the client's request itself has a fault that its provider would refuse, and only the client can
    /// repair it.
    Illegal,
    /// No policy: it left as it came before it was counted, and then turned out to be longer than estimated.
    Ahead,
}

impl RewriteStatus {
    /// Name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composed => "composed",
            Self::HeldOut => "held-out",
            Self::Managed => "managed",
            Self::Remote => "remote",
            Self::Aside => "aside",
            Self::OwnSummary => "own-summary",
            Self::Unfit => "unfit",
            Self::Illegal => "illegal",
            Self::Ahead => "ahead",
        }
    }
}
