//! What providers demand of a request, checked on its bytes.
//!
//! The checks know nothing of how a request was made, so that they can be held against whoever makes one. They say what
//! a provider would refuse, each case with its place; what they do not know they leave alone. No text makes them panic.

mod against;
mod anthropic;
mod openai_chat;
mod openai_responses;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

pub use epitome_core::profile::Rule;

use crate::{error::WireError, format::Format, json::Json, request::Keys};

pub use self::against::check_against;

/// The rules that a model has. Those that every request of a format must keep are checked whether they are here or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(BTreeSet<Rule>);

impl Rules {
    /// What the provider of a format demands for any of its models.
    pub fn of(format: Format) -> Self {
        match format {
            Format::OpenaiChat | Format::OpenaiResponses => Self::default(),
            Format::Anthropic => {
                Self::from_iter([Rule::RolesAlternate, Rule::FirstIsUser, Rule::ThinkingStaysInOpenLoop])
            }
        }
    }

    /// The same and one more.
    pub fn with(mut self, rule: Rule) -> Self {
        self.0.insert(rule);
        self
    }

    /// The same but for one.
    pub fn without(mut self, rule: Rule) -> Self {
        self.0.remove(&rule);
        self
    }

    /// All of them.
    pub fn as_set(&self) -> &BTreeSet<Rule> {
        &self.0
    }

    /// Whether a rule is among them.
    pub fn has(&self, rule: Rule) -> bool {
        self.0.contains(&rule)
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// Something a provider would refuse, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The message or item, counted from 0; `None` for what is about the whole request.
    pub message: Option<usize>,
    /// The content block in it.
    pub block: Option<usize>,
    /// What is wrong.
    pub breach: Breach,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// It is no JSON object that could be a request.
    Unreadable(String),
    /// There is no message in it.
    NoMessages,
    /// The first message is not the user's.
    FirstIsNotUser,
    /// The last message is the assistant's.
    LastIsAssistant,
    /// Two messages of one role follow each other.
    RoleRepeats,
    /// A message says nothing.
    EmptyMessage,
    /// A text says nothing.
    EmptyText,
    /// A call has no id, so that nothing can answer it.
    CallWithoutId,
    /// A call has the id of another.
    DuplicateCall(String),
    /// A call is not answered where it must be.
    CallUnanswered(String),
    /// A result answers no call, or one that was answered before.
    AnswersNothing(String),
    /// A result is not of the kind that its call takes.
    WrongKind(String),
    /// A result stands after something else in its message.
    ResultNotFirst,
    /// Thinking lacks what its provider knows it by.
    ThinkingUnsealed,
    /// An answer ends with thinking.
    EndsInThinking,
    /// The request ends with an answer that ends in white space.
    EndsInSpace,
    /// Reasoning without the item it led to.
    ReasoningAlone,
    /// A signed compaction is not the first thing in the request.
    CompactionNotFirst,
    /// Thinking that was not sent like this before.
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
}

impl fmt::Display for Breach {
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
            Self::ThinkingAltered => write!(f, "the thinking is not as it was"),
            Self::ThinkingAfterChange => write!(f, "something before the thinking has changed"),
            Self::ThinkingDropped => write!(f, "the thinking of the open tool loop is gone"),
            Self::ReasoningParted => write!(f, "the reasoning is followed by something else than before"),
            Self::ReasoningMissing => write!(f, "the answer called tools, and its reasoning is not there"),
            Self::TooManyBreakpoints(count) => write!(f, "there are {count} cache marks, and 4 are taken"),
            Self::CallUnsigned(id) => write!(f, "the call {id:?} lacks its signature"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message, self.block) {
            (Some(message), Some(block)) => write!(f, "message {message}, block {block}: {}", self.breach),
            (Some(message), None) => write!(f, "message {message}: {}", self.breach),
            (None, _) => write!(f, "request: {}", self.breach),
        }
    }
}

/// Everything that a provider would refuse about a request; nothing if it is legal.
///
/// ```
/// use epitome_wire::{Format, legality::{Rules, check}};
///
/// let request = r#"{"messages":[{"role":"assistant","content":"hi"}]}"#;
/// let found = check(Format::Anthropic, request, &Rules::of(Format::Anthropic));
/// assert_eq!(found[0].to_string(), "message 0: the first message is not the user's");
/// assert!(check(Format::OpenaiChat, request, &Rules::of(Format::OpenaiChat)).is_empty());
/// ```
pub fn check(format: Format, body: &str, rules: &Rules) -> Vec<Violation> {
    let request = match read(body) {
        Ok(request) => request,
        Err(error) => return vec![unreadable(&error)],
    };
    let mut found = Findings::default();
    let messages = history(format, &request);
    if messages.is_empty() && !is_elsewhere(&request) && !is_bare(format, &request) {
        found.add(None, None, Breach::NoMessages);
    }
    match format {
        Format::OpenaiChat => openai_chat::check(messages, rules, &mut found),
        Format::OpenaiResponses => openai_responses::check(&request, messages, rules, &mut found),
        Format::Anthropic => anthropic::check(&request, messages, rules, &mut found),
    }
    found.0
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, message: impl Into<Option<usize>>, block: impl Into<Option<usize>>, breach: Breach) {
        self.0.push(Violation { message: message.into(), block: block.into(), breach });
    }
}

fn read(body: &str) -> Result<Json<'_>, WireError> {
    Json::parse(body, "a request")?.require_object("a request")
}

fn unreadable(error: &WireError) -> Violation {
    Violation { message: None, block: None, breach: Breach::Unreadable(error.to_string()) }
}

fn history<'j>(format: Format, request: &'j Json<'_>) -> &'j [Json<'j>] {
    request.array_at(Keys::of(format).history)
}

/// Whether the provider has a history of its own that this one continues.
fn is_elsewhere(request: &Json<'_>) -> bool {
    let says = |key: &str| request.get(key).is_some_and(|value| !value.is_null());
    says("previous_response_id") || says("conversation")
}

/// Whether the history is only a text.
fn is_bare(format: Format, request: &Json<'_>) -> bool {
    format == Format::OpenaiResponses && request.text_at(Keys::of(format).history).is_some()
}

/// Checks who speaks first and last: the place and the role of each message that is nobody else's.
fn ends<'m>(
    mut speakers: impl DoubleEndedIterator<Item = (usize, &'m str)>,
    rules: &Rules,
    found: &mut Findings,
) {
    let first = speakers.next();
    let last = speakers.next_back().or(first);
    if let Some((index, "assistant")) = first
        && rules.has(Rule::FirstIsUser)
    {
        found.add(index, None, Breach::FirstIsNotUser);
    }
    if let Some((index, "assistant")) = last
        && rules.has(Rule::PrefillRefused)
    {
        found.add(index, None, Breach::LastIsAssistant);
    }
}
