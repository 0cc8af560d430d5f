//! The rules by name: the requirement, the formats it applies to, and the remedy when a request is written.

use super::ViolationKind;
use crate::format::Format;

/// A requirement that providers make of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegalityRule {
    /// Stable name, used in logs and reports.
    pub id: &'static str,
    /// The formats whose providers demand it.
    pub formats: &'static [Format],
    /// The requirement in a sentence.
    pub sentence: &'static str,
    /// Remedy applied where a request is written.
    pub remedy: RuleRemedy,
}

/// Remedy for a broken rule that does not guess what the request's author meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleRemedy {
    /// The fault is repaired by completing, reordering or leaving out: no content is lost that a provider would have
    /// read.
    Mended,
    /// The fault is reported: only the author of the request knows what was meant.
    Named,
}

const ALL: &[Format] = &Format::ALL;
const WITH_IDS: &[Format] = &[Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic];
const WITH_OBJECTS: &[Format] = &[Format::Anthropic, Format::Gemini];
const WITH_SIGNATURES: &[Format] = &[Format::OpenaiChat, Format::Gemini];
const OPENAI: &[Format] = &[Format::OpenaiChat, Format::OpenaiResponses];
const CHAT: &[Format] = &[Format::OpenaiChat];
const WITH_MESSAGES: &[Format] = &[Format::OpenaiChat, Format::Anthropic, Format::Gemini];
const WITH_COMPACTIONS: &[Format] = &[Format::OpenaiResponses, Format::Anthropic];
const RESPONSES: &[Format] = &[Format::OpenaiResponses];
const ANTHROPIC: &[Format] = &[Format::Anthropic];

const fn mended(id: &'static str, formats: &'static [Format], sentence: &'static str) -> LegalityRule {
    LegalityRule { id, formats, sentence, remedy: RuleRemedy::Mended }
}

const fn named(id: &'static str, formats: &'static [Format], sentence: &'static str) -> LegalityRule {
    LegalityRule { id, formats, sentence, remedy: RuleRemedy::Named }
}

/// Every rule that is checked.
pub const LEGALITY_RULES: [LegalityRule; 38] = [
    named("readable", ALL, "A request is a JSON object."),
    mended("has-messages", ALL, "There is at least one message."),
    named("history-is-list", ALL, "The history is a list of messages."),
    mended("first-is-user", ALL, "Where the model demands it, the user speaks first."),
    mended("last-is-user", ALL, "Where the model demands it, the assistant does not speak last."),
    mended("roles-alternate", WITH_OBJECTS, "Where the model demands it, no role follows itself."),
    mended("message-says-something", WITH_MESSAGES, "A message says something."),
    mended("text-not-empty", ANTHROPIC, "A text is not empty."),
    named("message-is-object", ALL, "A message, a part and a call are objects."),
    named("role-present", WITH_IDS, "A message says its role."),
    named("role-known", ALL, "A role is one that the provider knows."),
    mended("content-not-null", CHAT, "A message that is no answer has content."),
    named("content-present", RESPONSES, "A message has content, and a result has an output."),
    named("content-type", ALL, "Content is a text or a list of parts."),
    named("part-has-type", ALL, "A part of content says its type."),
    named("text-is-string", ALL, "A part of type text has a text."),
    named("item-has-type", RESPONSES, "An item has a type, or a role."),
    named("call-has-id", WITH_IDS, "A call has an id."),
    named("call-has-name", ALL, "A call names its tool."),
    named("calls-are-list", CHAT, "The calls of an answer are a list."),
    mended("arguments-are-text", OPENAI, "Arguments are a string."),
    named("input-is-object", WITH_OBJECTS, "The input of a call is an object."),
    mended("call-id-unique", WITH_IDS, "No two calls that may be open together share an id."),
    mended("call-answered", ALL, "Every call is answered where the format wants it."),
    mended("result-answers-call", ALL, "Every result answers an open call."),
    mended("result-kind", RESPONSES, "A result is of the kind that its call takes."),
    mended("results-first", ANTHROPIC, "Results stand first in their message."),
    mended("thinking-sealed", ANTHROPIC, "Thinking has its signature."),
    mended("thinking-not-last", ANTHROPIC, "An answer does not end with thinking."),
    mended("prefill-not-space", ANTHROPIC, "An answer that is to be continued does not end in white space."),
    mended("reasoning-followed", RESPONSES, "Reasoning is followed by the item it led to."),
    mended("compaction-first", ANTHROPIC, "A signed compaction is the first thing."),
    mended("compaction-unchanged", WITH_COMPACTIONS, "A provider's own compaction comes back byte for byte."),
    mended(
        "thinking-unchanged",
        WITH_OBJECTS,
        "Thinking comes back byte for byte, with all that stood before it.",
    ),
    mended("thinking-kept", ANTHROPIC, "Thinking of an open tool loop stays."),
    mended(
        "reasoning-kept",
        OPENAI,
        "Reasoning stays with what it led to, where its provider wants it back.",
    ),
    mended("breakpoints", ANTHROPIC, "There are at most four cache marks."),
    mended(
        "call-signed",
        WITH_SIGNATURES,
        "Where the model demands it, the first call of a turn has its signature.",
    ),
];

impl ViolationKind {
    /// The rule that is broken.
    pub fn rule(&self) -> &'static LegalityRule {
        let id = match self {
            Self::Unreadable(_) => "readable",
            Self::NoMessages => "has-messages",
            Self::HistoryType(_) => "history-is-list",
            Self::FirstIsNotUser => "first-is-user",
            Self::LastIsAssistant => "last-is-user",
            Self::RoleRepeats => "roles-alternate",
            Self::EmptyMessage => "message-says-something",
            Self::EmptyText => "text-not-empty",
            Self::NotAnObject(_) => "message-is-object",
            Self::RoleMissing => "role-present",
            Self::RoleUnknown(_) => "role-known",
            Self::ContentNull => "content-not-null",
            Self::ContentMissing => "content-present",
            Self::ContentType(_) => "content-type",
            Self::PartWithoutType => "part-has-type",
            Self::TextMissing => "text-is-string",
            Self::ItemWithoutType => "item-has-type",
            Self::CallWithoutId => "call-has-id",
            Self::CallWithoutName => "call-has-name",
            Self::CallsType(_) => "calls-are-list",
            Self::ArgumentsType(_) => "arguments-are-text",
            Self::InputType(_) => "input-is-object",
            Self::DuplicateCall(_) => "call-id-unique",
            Self::CallUnanswered(_) => "call-answered",
            Self::AnswersNothing(_) => "result-answers-call",
            Self::WrongKind(_) => "result-kind",
            Self::ResultNotFirst => "results-first",
            Self::ThinkingUnsealed => "thinking-sealed",
            Self::EndsInThinking => "thinking-not-last",
            Self::EndsInSpace => "prefill-not-space",
            Self::ReasoningAlone => "reasoning-followed",
            Self::CompactionNotFirst => "compaction-first",
            Self::CompactionAltered => "compaction-unchanged",
            Self::ThinkingAltered | Self::ThinkingAfterChange => "thinking-unchanged",
            Self::ThinkingDropped => "thinking-kept",
            Self::ReasoningParted | Self::ReasoningMissing => "reasoning-kept",
            Self::TooManyBreakpoints(_) => "breakpoints",
            Self::CallUnsigned(_) => "call-signed",
        };
        LEGALITY_RULES.iter().find(|rule| rule.id == id).expect("every rule that is named is in the table")
    }
}
