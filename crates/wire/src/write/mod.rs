//! Writes a history in a provider's format: the one way to do it, for a log and for a context.
//!
//! The caller describes the history in [`HistoryLine`]s, in an order that every provider accepts: an answer, then the
//! results of its calls, then the next message. The three writers do not know logs and contexts. Content that came in
//! the target format keeps its bytes, block by block; everything else is written anew.

pub(crate) mod call_ids;
pub(crate) mod edited_content;
pub(crate) mod portable;
pub(crate) mod request_envelope;

use std::{cell::OnceCell, collections::BTreeMap};

use epitome_core::{
    ContentPart, Digest, Event, Fact,
    context::UNANSWERED_TEXT,
    event::{InstructionKind, ToolCall},
    meter::Meter,
};

use crate::{
    error::WireError,
    format::Format,
    json::Json,
    legality::{ProviderRule, ProviderRules},
};

/// Manner in which a history is written.
#[derive(Clone, Copy)]
pub(crate) struct WriteOptions<'m> {
    /// The provider's rules; without them, the history is written as it was recorded.
    pub(crate) rules: Option<&'m ProviderRules>,
    /// Meter of the written content: with it, no note costs more than the part it stands for.
    pub(crate) meter: Option<&'m Meter>,
}

impl WriteOptions<'_> {
    pub(crate) fn is_legal(self) -> bool {
        self.rules.is_some()
    }

    pub(crate) fn demands(self, rule: ProviderRule) -> bool {
        self.rules.is_some_and(|rules| rules.has(rule))
    }
}

/// An event to be written, with its raw JSON if that is in the format it is written in.
pub(crate) struct SourceEvent<'a> {
    /// Its index among the events of this history; a later event has a higher one.
    pub(crate) index: usize,
    pub(crate) event: &'a Event,
    pub(crate) own: Option<Json<'a>>,
    /// Base64 of its media, by the hash of its content: searched for once, however many parts there are.
    pub(crate) inline: OnceCell<BTreeMap<Digest, String>>,
    /// Indices of an Anthropic message's blocks that are results.
    pub(crate) results: OnceCell<Vec<usize>>,
}

impl<'a> SourceEvent<'a> {
    fn new(index: usize, event: &'a Event, own: Option<Json<'a>>) -> Self {
        Self { index, event, own, inline: OnceCell::new(), results: OnceCell::new() }
    }

    pub(crate) fn read(format: Format, index: usize, event: &'a Event) -> Result<Self, WireError> {
        if event.raw.dialect != format.dialect() {
            return Ok(Self::new(index, event, None));
        }
        let own = Json::parse(&event.raw.json, "an event's raw form")?;
        // A compaction's raw form may be a record of the agent's rather than a message.
        let fits = match &event.fact {
            Fact::Compacted(_) | Fact::Injected { .. } => format.provider().is_message(&own),
            _ => true,
        };
        Ok(Self::new(index, event, fits.then_some(own)))
    }

    pub(crate) fn is_foreign_instruction(&self) -> bool {
        self.own.is_none()
            && matches!(self.event.fact, Fact::Instructed { what: InstructionKind::Message, .. })
    }

    pub(crate) fn parts(&self) -> &'a [ContentPart] {
        self.event.fact.parts()
    }

    pub(crate) fn is_carried(&self) -> bool {
        matches!(self.event.fact, Fact::Carried { .. })
    }
}

/// A piece of the history to write.
pub(crate) enum HistoryLine<'e, 'a> {
    /// Events as they were recorded, results included, as one message if the format can.
    Whole(Vec<&'e SourceEvent<'a>>),
    /// Content of an event without its results.
    Said(&'e SourceEvent<'a>, ShownContent<'a>),
    /// One answer.
    Answer(Vec<ShownFragment<'e, 'a>>),
    /// Results of the calls of the answer before it, each once.
    Returned(Vec<ShownOutcome<'e, 'a>>),
    /// Words that are not an event's content in this form, by some speaker; `origin` is their event, if any.
    Words { by: AlternatingRole, text: &'a str, origin: Option<usize> },
}

/// Content that is shown of an event.
#[derive(Clone, Copy)]
pub(crate) enum ShownContent<'a> {
    /// Its own content.
    AsSent,
    /// These parts instead of its own.
    Replaced(&'a [ContentPart]),
}

/// The shown part of one event of an answer.
pub(crate) struct ShownFragment<'e, 'a> {
    pub(crate) entry: &'e SourceEvent<'a>,
    /// Indices of the shown parts; `None` if all are.
    pub(crate) places: Option<Vec<usize>>,
    /// True if the part or event directly before it is left out.
    pub(crate) parted_before: bool,
    /// True if a part or event after it in the same answer is left out.
    pub(crate) parted_after: bool,
}

impl<'e, 'a> ShownFragment<'e, 'a> {
    /// All of an event, with nothing left out around it.
    pub(crate) fn whole(entry: &'e SourceEvent<'a>) -> Self {
        Self { entry, places: None, parted_before: false, parted_after: false }
    }

    /// The parts it shows, with their indices.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (usize, &'a ContentPart)> {
        let parts = self.entry.parts().iter().enumerate();
        parts.filter(|(place, _)| self.shows(*place))
    }

    pub(crate) fn shows(&self, place: usize) -> bool {
        self.places.as_ref().is_none_or(|places| places.binary_search(&place).is_ok())
    }
}

/// A call and the shown content of its result.
pub(crate) struct ShownOutcome<'e, 'a> {
    /// The call; `None` if only the provider knows it.
    pub(crate) site: Option<CallPosition<'e, 'a>>,
    /// The result; `None` if there is none.
    pub(crate) result: Option<ShownCallResult<'e, 'a>>,
}

/// The event and index of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallPosition<'e, 'a> {
    pub(crate) entry: &'e SourceEvent<'a>,
    pub(crate) place: usize,
    pub(crate) call: &'a ToolCall,
}

/// One result of an event.
#[derive(Clone, Copy)]
pub(crate) struct ShownCallResult<'e, 'a> {
    pub(crate) entry: &'e SourceEvent<'a>,
    pub(crate) ordinal: usize,
    pub(crate) shown: ShownContent<'a>,
}

/// A message, written.
pub(crate) struct WrittenMessage {
    pub(crate) json: String,
    /// Indices of its entries.
    pub(crate) events: Vec<usize>,
    pub(crate) speaker: AlternatingRole,
}

/// Author of a message, for the order of roles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlternatingRole {
    /// The user, or a tool.
    User,
    Assistant,
    /// An author outside the order of roles: of a system message, or an unknown one.
    Other,
}

/// A history, written.
pub(crate) struct WrittenHistory {
    pub(crate) messages: Vec<WrittenMessage>,
    pub(crate) layout: HistoryLayout,
}

/// Form of a history in its request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryLayout {
    /// As a list of messages.
    List,
    /// As its only message's bare text.
    Bare,
}

/// Writes a history.
pub(crate) fn history(
    format: Format,
    lines: &[HistoryLine<'_, '_>],
    manner: WriteOptions<'_>,
) -> WrittenHistory {
    let (mut messages, layout) = format.provider().write_history(lines, manner);
    frame(format, &mut messages, manner);
    WrittenHistory { messages, layout }
}

/// User message put before a history that does not begin with the user.
pub(crate) const OPENING_MESSAGE: &str = "(continued)";

/// User message put after a history that ends with the model where it may not, and after a summary that is told as an
/// answer.
pub(crate) const CONTINUE_MESSAGE: &str = "Continue.";

/// User message before a summary that is told as an answer.
pub(crate) const SUMMARY_QUESTION: &str = "What has been done so far?";

/// Adds messages that the provider requires at either end.
fn frame(format: Format, messages: &mut Vec<WrittenMessage>, manner: WriteOptions<'_>) {
    let speakers =
        || messages.iter().enumerate().filter(|(_, message)| message.speaker != AlternatingRole::Other);
    let is_answer = |(_, message): &(usize, &WrittenMessage)| message.speaker == AlternatingRole::Assistant;
    let first = speakers().next().filter(is_answer).filter(|_| manner.demands(ProviderRule::FirstIsUser));
    // An answer that ends in white space is refused as one to continue, even if it begins with a signed summary.
    let has_ended =
        |message: &WrittenMessage| manner.is_legal() && format.provider().must_go_on(&message.json);
    let last = speakers().next_back().filter(|last| {
        (is_answer(last) && manner.demands(ProviderRule::PrefillRefused)) || has_ended(last.1)
    });
    let (first, is_last) = (first.map(|(index, _)| index), last.is_some());
    if is_last {
        messages.push(words(format, CONTINUE_MESSAGE));
    }
    if let Some(first) = first {
        messages.insert(first, words(format, OPENING_MESSAGE));
    }
}

/// A message in the user's name without an event.
pub(crate) fn words(format: Format, text: &str) -> WrittenMessage {
    let json = format.provider().user_words(text);
    WrittenMessage { json, events: Vec::new(), speaker: AlternatingRole::User }
}

/// Returns true if a value is a short word that the wrapping of a message pays for: a role, a name, an id.
pub(crate) fn is_short(value: &Json<'_>) -> bool {
    const MAX_SHORT_BYTES: usize = 80;
    value.as_text().is_some_and(|text| text.len() <= MAX_SHORT_BYTES && !text.contains(char::is_whitespace))
}

/// Result for a call that has none.
pub(crate) const STAND_IN_RESULT: &str = UNANSWERED_TEXT;
