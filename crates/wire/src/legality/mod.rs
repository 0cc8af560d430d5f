//! Provider requirements on a request, checked on its bytes.
//!
//! The checks do not depend on the code that writes requests, so that they can test any writer. They report
//! everything that a provider would refuse, each finding with its place, and leave alone members and kinds that they
//! do not know. No text makes them panic.

mod compare_sent;
mod rules;
pub(crate) mod shape;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

pub use epitome_core::profile::ProviderRule;

use crate::{error::WireError, format::Format, json::Json, request::RequestKeys};

pub use self::{
    compare_sent::check_against,
    rules::{LEGALITY_RULES, LegalityRule, RuleRemedy},
};
pub(crate) use self::{
    compare_sent::{SealedCompaction, compare_compactions},
    shape::ShapeFaults,
};

/// Rules of a model. Those that every request of a format must keep are checked even if they are not in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderRules(BTreeSet<ProviderRule>);

impl ProviderRules {
    /// Rules that the provider of a format applies to all of its models.
    pub fn of(format: Format) -> Self {
        format.facts().rules.iter().copied().collect()
    }

    /// The same rules and one more.
    pub fn with(mut self, rule: ProviderRule) -> Self {
        self.0.insert(rule);
        self
    }

    /// The same rules except one.
    pub fn without(mut self, rule: ProviderRule) -> Self {
        self.0.remove(&rule);
        self
    }

    /// All rules of the set.
    pub fn as_set(&self) -> &BTreeSet<ProviderRule> {
        &self.0
    }

    /// Returns true if the set has a rule.
    pub fn has(&self, rule: ProviderRule) -> bool {
        self.0.contains(&rule)
    }
}

impl FromIterator<ProviderRule> for ProviderRules {
    fn from_iter<I: IntoIterator<Item = ProviderRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// A part of a request that a provider would refuse, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestViolation {
    /// Index of the message or item; `None` for a violation of the whole request.
    pub message: Option<usize>,
    /// Index of the content block in it.
    pub block: Option<usize>,
    /// The place in the request, as a JSON pointer.
    pub place: String,
    /// The violation.
    pub breach: ViolationKind,
}

/// Kinds of violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The body is not a JSON object that could be a request.
    Unreadable(String),
    /// The request has no messages.
    NoMessages,
    /// The first message is not the user's.
    FirstIsNotUser,
    /// The last message is the assistant's.
    LastIsAssistant,
    /// Two messages of one role follow each other.
    RoleRepeats,
    /// A message is empty.
    EmptyMessage,
    /// A text is empty.
    EmptyText,
    /// A call has no id, so that no result can answer it.
    CallWithoutId,
    /// A call has the id of another.
    DuplicateCall(String),
    /// A call is not answered where it must be.
    CallUnanswered(String),
    /// A result answers no call, or a call that was answered before.
    AnswersNothing(String),
    /// A result is not of the kind that its call requires.
    WrongKind(String),
    /// A result stands after something else in its message.
    ResultNotFirst,
    /// Thinking lacks the signature by which its provider recognises it.
    ThinkingUnsealed,
    /// An answer ends with thinking.
    EndsInThinking,
    /// The request ends with an answer that ends in white space.
    EndsInSpace,
    /// Reasoning without the item it led to.
    ReasoningAlone,
    /// A signed compaction is not the first thing in the request.
    CompactionNotFirst,
    /// A compaction that only its provider can read was altered.
    CompactionAltered,
    /// Thinking differs from the thinking that was sent before.
    ThinkingAltered,
    /// Thinking is kept, although something before it has changed.
    ThinkingAfterChange,
    /// Thinking of the open tool loop is gone.
    ThinkingDropped,
    /// Reasoning is followed by another item than before.
    ReasoningParted,
    /// An answer that called tools lacks its reasoning, which others have.
    ReasoningMissing,
    /// There are more cache marks than the provider takes.
    TooManyBreakpoints(usize),
    /// The first call of an answer in the current turn lacks its signature.
    CallUnsigned(String),
    /// The history is of this kind, not a list.
    HistoryType(&'static str),
    /// A message, part or call is of this kind, not an object.
    NotAnObject(&'static str),
    /// A message has no role.
    RoleMissing,
    /// A role is not one that the provider knows.
    RoleUnknown(String),
    /// Content is `null` or missing where it may not be.
    ContentNull,
    /// Content is missing, and no other member may stand in for it.
    ContentMissing,
    /// Content is of this kind, neither a text nor a list.
    ContentType(&'static str),
    /// A part of content has no type.
    PartWithoutType,
    /// A text part has no text.
    TextMissing,
    /// An item has no type.
    ItemWithoutType,
    /// A call has no tool name.
    CallWithoutName,
    /// The calls of an answer are of this kind, not a list.
    CallsType(&'static str),
    /// Arguments are of this kind, not a string.
    ArgumentsType(&'static str),
    /// The input of a call is of this kind, not an object.
    InputType(&'static str),
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "it cannot be read: {why}"),
            Self::NoMessages => write!(f, "there is no message"),
            Self::FirstIsNotUser => write!(f, "the first message is not the user's"),
            Self::LastIsAssistant => write!(f, "the last message is the assistant's"),
            Self::RoleRepeats => write!(f, "it has the same role as the message before"),
            Self::EmptyMessage => write!(f, "it says nothing"),
            Self::EmptyText => write!(f, "the text is empty"),
            Self::CallWithoutId => write!(f, "the call has no id"),
            Self::DuplicateCall(id) => write!(f, "there is another call {id:?}"),
            Self::CallUnanswered(id) => write!(f, "the call {id:?} is not answered"),
            Self::AnswersNothing(id) => write!(f, "no open call is {id:?}"),
            Self::WrongKind(id) => write!(f, "it is not the kind of result that the call {id:?} takes"),
            Self::ResultNotFirst => write!(f, "the result stands after something else"),
            Self::ThinkingUnsealed => write!(f, "the thinking lacks its signature"),
            Self::EndsInThinking => write!(f, "the answer ends with thinking"),
            Self::EndsInSpace => write!(f, "the answer that is to be continued ends in white space"),
            Self::ReasoningAlone => write!(f, "what the reasoning led to is not there"),
            Self::CompactionNotFirst => write!(f, "the compaction is not the first thing"),
            Self::CompactionAltered => write!(f, "the compaction is not as it was"),
            Self::ThinkingAltered => write!(f, "the thinking is not as it was"),
            Self::ThinkingAfterChange => write!(f, "something before the thinking has changed"),
            Self::ThinkingDropped => write!(f, "the thinking of the open tool loop is gone"),
            Self::ReasoningParted => write!(f, "the reasoning is followed by something else than before"),
            Self::ReasoningMissing => write!(f, "the answer called tools, and its reasoning is not there"),
            Self::TooManyBreakpoints(count) => write!(f, "there are {count} cache marks, and 4 are taken"),
            Self::CallUnsigned(id) => write!(f, "the call {id:?} lacks its signature"),
            Self::HistoryType(kind) => write!(f, "the history is {kind}, and must be a list"),
            Self::NotAnObject(kind) => write!(f, "it is {kind}, and must be an object"),
            Self::RoleMissing => write!(f, "it says no role"),
            Self::RoleUnknown(role) => write!(f, "the role {:?} is not known", shortened(role)),
            Self::ContentNull => write!(f, "its content is null or missing"),
            Self::ContentMissing => write!(f, "what it says is missing"),
            Self::ContentType(kind) => write!(f, "it is {kind}, and must be a text or a list"),
            Self::PartWithoutType => write!(f, "the part says no type"),
            Self::TextMissing => write!(f, "the part has no text"),
            Self::ItemWithoutType => write!(f, "the item says neither type nor role"),
            Self::CallWithoutName => write!(f, "the call names no tool"),
            Self::CallsType(kind) => write!(f, "the calls are {kind}, and must be a list"),
            Self::ArgumentsType(kind) => write!(f, "the arguments are {kind}, and must be a string"),
            Self::InputType(kind) => write!(f, "the input is {kind}, and must be an object"),
        }
    }
}

impl fmt::Display for RequestViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message, self.block) {
            (Some(message), Some(block)) => write!(f, "message {message}, block {block}: {}", self.breach),
            (Some(message), None) => write!(f, "message {message}: {}", self.breach),
            (None, _) => write!(f, "request: {}", self.breach),
        }
    }
}

/// Finds everything that a provider would refuse about a request; nothing if it is legal.
///
/// ```
/// use epitome_wire::{Format, legality::{ProviderRules, check}};
///
/// let request = r#"{"messages":[{"role":"assistant","content":"hi"}]}"#;
/// let found = check(Format::Anthropic, request, &ProviderRules::of(Format::Anthropic));
/// assert_eq!(found[0].to_string(), "message 0: the first message is not the user's");
/// assert!(check(Format::OpenaiChat, request, &ProviderRules::of(Format::OpenaiChat)).is_empty());
/// ```
pub fn check(format: Format, body: &str, rules: &ProviderRules) -> Vec<RequestViolation> {
    let request = match read(body) {
        Ok(request) => request,
        Err(error) => return vec![unreadable(&error)],
    };
    let mut found = ViolationList::of(format);
    let messages = history(format, &request);
    if messages.is_empty() && !is_elsewhere(&request) && !is_bare(format, &request) {
        found.add(None, None, ViolationKind::NoMessages);
    }
    format.provider().check(&request, messages, rules, &mut found);
    found.found
}

/// Finds everything that a provider would refuse about a request that another program wrote: the findings of
/// [`check`], and faults in the shape of each message by itself. This library keeps the messages of others as they
/// came, so that only their authors can answer for their shapes.
///
/// ```
/// use epitome_wire::{Format, legality::{RuleRemedy, ProviderRules, inspect}};
///
/// let request = r#"{"messages":[{"role":"user","content":"hi"},{"role":"narrator","content":"…"}]}"#;
/// let found = inspect(Format::OpenaiChat, request, &ProviderRules::of(Format::OpenaiChat));
/// assert_eq!((&*found[0].place, found[0].breach.rule().id), ("/messages/1/role", "role-known"));
/// assert_eq!(found[0].breach.rule().remedy, RuleRemedy::Named);
/// ```
pub fn inspect(format: Format, body: &str, rules: &ProviderRules) -> Vec<RequestViolation> {
    let Ok(request) = read(body) else { return check(format, body, rules) };
    let mut found = ViolationList::of(format);
    let key = RequestKeys::of(format).history;
    match request.get(key) {
        Some(history) if !history.is_null() && history.as_array().is_none() && !is_bare(format, &request) => {
            found.at(None, format!("/{key}"), ViolationKind::HistoryType(history.kind()));
        }
        _ => {}
    }
    for (index, message) in history(format, &request).iter().enumerate() {
        for (place, breach) in shape::check(format, message) {
            found.at(Some(index), format!("/{key}/{index}{place}"), breach);
        }
    }
    let mut rest = check(format, body, rules);
    rest.retain(|other| !found.found.iter().any(|shape| follows_from(other, shape)));
    found.found.extend(rest);
    found.found
}

/// Returns true if a finding only repeats a fault in a shape.
fn follows_from(other: &RequestViolation, shape: &RequestViolation) -> bool {
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_same = other.message == shape.message && other.breach.rule() == shape.breach.rule();
    match other.breach {
        ViolationKind::NoMessages => matches!(shape.breach, ViolationKind::HistoryType(_)),
        // Content that cannot be read seems to be empty.
        ViolationKind::EmptyMessage | ViolationKind::EmptyText => is_within(&shape.place, &other.place),
        _ => {
            is_same
                || is_within(&other.place, &shape.place)
                    && matches!(shape.breach, ViolationKind::NotAnObject(_))
        }
    }
}

/// Cuts a text that others wrote to its beginning, for a message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Violations found so far.
pub(crate) struct ViolationList {
    format: Format,
    found: Vec<RequestViolation>,
}

impl ViolationList {
    pub(crate) fn of(format: Format) -> Self {
        Self { format, found: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        message: impl Into<Option<usize>>,
        block: impl Into<Option<usize>>,
        breach: ViolationKind,
    ) {
        let (message, block) = (message.into(), block.into());
        let history = RequestKeys::of(self.format).history;
        let within = self.format.facts().block_member;
        let place = match (message, block) {
            (Some(message), Some(block)) => format!("/{history}/{message}/{within}/{block}"),
            (Some(message), None) => format!("/{history}/{message}"),
            (None, _) => String::new(),
        };
        self.found.push(RequestViolation { message, block, place, breach });
    }

    pub(crate) fn at(&mut self, message: Option<usize>, place: String, breach: ViolationKind) {
        self.found.push(RequestViolation { message, block: None, place, breach });
    }
}

fn read(body: &str) -> Result<Json<'_>, WireError> {
    Json::parse(body, "a request")?.require_object("a request")
}

fn unreadable(error: &WireError) -> RequestViolation {
    let breach = ViolationKind::Unreadable(error.to_string());
    RequestViolation { message: None, block: None, place: String::new(), breach }
}

fn history<'j>(format: Format, request: &'j Json<'_>) -> &'j [Json<'j>] {
    request.array_at(RequestKeys::of(format).history)
}

/// Returns true if the provider has a history of its own that this one continues.
pub(crate) fn is_elsewhere(request: &Json<'_>) -> bool {
    let says = |key: &str| request.get(key).is_some_and(|value| !value.is_null());
    says("previous_response_id") || says("conversation")
}

/// Returns true if the history is only a text.
fn is_bare(format: Format, request: &Json<'_>) -> bool {
    format.facts().takes_bare_history && request.text_at(RequestKeys::of(format).history).is_some()
}

/// Checks the roles of the first and the last message; `ends` are the place and role of each message that counts.
pub(crate) fn ends<'m>(
    mut speakers: impl DoubleEndedIterator<Item = (usize, &'m str)>,
    rules: &ProviderRules,
    found: &mut ViolationList,
) {
    let first = speakers.next();
    let last = speakers.next_back().or(first);
    if let Some((index, "assistant")) = first
        && rules.has(ProviderRule::FirstIsUser)
    {
        found.add(index, None, ViolationKind::FirstIsNotUser);
    }
    if let Some((index, "assistant")) = last
        && rules.has(ProviderRule::PrefillRefused)
    {
        found.add(index, None, ViolationKind::LastIsAssistant);
    }
}
