//! Constant facts of a provider: one value each, which the directory of the provider fills in.

use epitome_core::{event::RawDialect, profile::ProviderRule};

use crate::{
    endpoint::Endpoint,
    request::{BodyLabels, RequestKeys},
};

/// Constant facts of a provider.
#[derive(Debug)]
pub(crate) struct ProviderFacts {
    /// Name of the format.
    pub(crate) name: &'static str,
    /// Dialect of its raw JSON.
    pub(crate) dialect: RawDialect,
    /// Title of the format, for people.
    pub(crate) title: &'static str,
    /// Name of the provider in telemetry, by the conventions of OpenTelemetry.
    pub(crate) vendor: &'static str,
    /// Model that stands in for a session's own where that is unknown.
    pub(crate) usual_model: &'static str,
    /// Names of its bodies in error messages.
    pub(crate) labels: BodyLabels,

    /// Address of its calls, and the headers they need.
    pub(crate) endpoint: Endpoint,
    /// Names of the versions of the provider's interface.
    pub(crate) versions: &'static [&'static str],
    /// Headers that only clients of the provider send.
    pub(crate) client_headers: &'static [&'static str],
    /// True if model and form of the answer stand in the path of a call.
    pub(crate) has_target: bool,

    /// Names of a request's members.
    pub(crate) keys: RequestKeys,
    /// The member of a message that holds its blocks, or calls, in the place of a finding.
    pub(crate) block_member: &'static str,
    /// True if a history may be only a text.
    pub(crate) takes_bare_history: bool,
    /// True if system messages of other formats go into the system prompt.
    pub(crate) leads_into_system: bool,
    /// The setting that every request must have: the output limit.
    pub(crate) required_limit: Option<&'static str>,
    /// A setting by which a request continues content that only the provider has.
    pub(crate) remote_history: Option<&'static str>,
    /// Rules that the provider applies to all of its models.
    pub(crate) rules: &'static [ProviderRule],

    /// Facts about its answers.
    pub(crate) answer: AnswerFacts,
    /// Facts about its prompt cache.
    pub(crate) cache: CacheFacts,
}

/// Constant facts about a provider's answers.
#[derive(Debug)]
pub(crate) struct AnswerFacts {
    /// Name of the member of a response that holds its id.
    pub(crate) id_key: &'static str,
    /// Name of the member of a response that holds its model.
    pub(crate) model_key: &'static str,
    /// True if an answer is a run of items, and not one message.
    pub(crate) is_items: bool,
    /// True if the reason an answer ended tells whether the model waits for its tools.
    pub(crate) finish_tells_calls: bool,
}

/// Constant facts about a provider's prompt cache.
#[derive(Debug)]
pub(crate) struct CacheFacts {
    /// The member that marks a place for the cache; `None` if the provider takes no marks.
    pub(crate) mark_key: Option<&'static str>,
    /// True if the provider caches only at marks, and so needs one on the newest block.
    pub(crate) only_at_marks: bool,
    /// True if messages may grow at their end, so that blocks are compared with their role alone.
    pub(crate) messages_grow: bool,
    /// Letter by which digests of its blocks differ from those of other formats.
    pub(crate) digest_letter: u8,
}
