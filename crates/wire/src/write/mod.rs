//! Writes a history in a provider's format: the one way to do it, for a log and for a context.
//!
//! The caller describes the history in [`Line`]s, in an order that every provider accepts: an answer, then the
//! results of its calls, then the next message. The three writers do not know logs and contexts. Content that came in
//! the target format keeps its bytes, block by block; everything else is written anew.

pub(crate) mod anthropic;
mod ids;
mod mended;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
mod portable;
pub(crate) mod skeleton;

use std::{cell::OnceCell, collections::BTreeMap};

use epitome_core::{
    Digest, Event, Fact, Part,
    context::UNANSWERED,
    event::{Instruction, ToolCall},
    meter::Meter,
};

use crate::{
    error::WireError,
    format::Format,
    json::Json,
    legality::{Rule, Rules},
};

/// Manner in which a history is written.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'m> {
    /// The provider's rules; without them, the history is written as it was recorded.
    pub(crate) rules: Option<&'m Rules>,
    /// Meter of the written content: with it, no note costs more than the part it stands for.
    pub(crate) meter: Option<&'m Meter>,
}

impl Manner<'_> {
    fn is_legal(self) -> bool {
        self.rules.is_some()
    }

    fn demands(self, rule: Rule) -> bool {
        self.rules.is_some_and(|rules| rules.has(rule))
    }
}

/// An event to be written, with its raw JSON if that is in the format it is written in.
pub(crate) struct Entry<'a> {
    /// Its index among the events of this history; a later event has a higher one.
    pub(crate) index: usize,
    pub(crate) event: &'a Event,
    pub(crate) own: Option<Json<'a>>,
    /// Base64 of its media, by the hash of its content: searched for once, however many parts there are.
    inline: OnceCell<BTreeMap<Digest, String>>,
    /// Indices of an Anthropic message's blocks that are results.
    results: OnceCell<Vec<usize>>,
}

impl<'a> Entry<'a> {
    fn new(index: usize, event: &'a Event, own: Option<Json<'a>>) -> Self {
        Self { index, event, own, inline: OnceCell::new(), results: OnceCell::new() }
    }

    pub(crate) fn read(format: Format, index: usize, event: &'a Event) -> Result<Self, WireError> {
        if event.raw.dialect != format.dialect() {
            return Ok(Self::new(index, event, None));
        }
        let own = Json::parse(&event.raw.json, "an event's raw form")?;
        // A compaction's raw form may be a record of the agent's rather than a message.
        let fits = match (&event.fact, format) {
            (Fact::Compacted(_) | Fact::Injected { .. }, Format::OpenaiResponses) => own.is_object(),
            (Fact::Compacted(_) | Fact::Injected { .. }, _) => own.text_at("role").is_some(),
            _ => true,
        };
        Ok(Self::new(index, event, fits.then_some(own)))
    }

    pub(crate) fn is_foreign_instruction(&self) -> bool {
        self.own.is_none() && matches!(self.event.fact, Fact::Instructed { what: Instruction::Message, .. })
    }

    fn parts(&self) -> &'a [Part] {
        self.event.fact.parts()
    }

    fn is_carried(&self) -> bool {
        matches!(self.event.fact, Fact::Carried { .. })
    }
}

/// A piece of the history to write.
pub(crate) enum Line<'e, 'a> {
    /// Events as they were recorded, results included, as one message if the format can.
    Whole(Vec<&'e Entry<'a>>),
    /// Content of an event without its results.
    Said(&'e Entry<'a>, Shown<'a>),
    /// One answer.
    Answer(Vec<Fragment<'e, 'a>>),
    /// Results of the calls of the answer before it, each once.
    Returned(Vec<Outcome<'e, 'a>>),
    /// Words that are not an event's content in this form, by some speaker; `origin` is their event, if any.
    Words { by: Speaker, text: &'a str, origin: Option<usize> },
}

/// Content that is shown of an event.
#[derive(Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// Its own content.
    AsSent,
    /// These parts instead of its own.
    Replaced(&'a [Part]),
}

/// The shown part of one event of an answer.
pub(crate) struct Fragment<'e, 'a> {
    pub(crate) entry: &'e Entry<'a>,
    /// Indices of the shown parts; `None` if all are.
    pub(crate) places: Option<Vec<usize>>,
    /// True if the part or event directly before it is left out.
    pub(crate) parted_before: bool,
    /// True if a part or event after it in the same answer is left out.
    pub(crate) parted_after: bool,
}

impl<'e, 'a> Fragment<'e, 'a> {
    /// All of an event, with nothing left out around it.
    pub(crate) fn whole(entry: &'e Entry<'a>) -> Self {
        Self { entry, places: None, parted_before: false, parted_after: false }
    }

    /// The parts it shows, with their indices.
    fn shown(&self) -> impl Iterator<Item = (usize, &'a Part)> {
        let parts = self.entry.parts().iter().enumerate();
        parts.filter(|(place, _)| self.shows(*place))
    }

    fn shows(&self, place: usize) -> bool {
        self.places.as_ref().is_none_or(|places| places.binary_search(&place).is_ok())
    }
}

/// A call and the shown content of its result.
pub(crate) struct Outcome<'e, 'a> {
    /// The call; `None` if only the provider knows it.
    pub(crate) site: Option<Site<'e, 'a>>,
    /// The result; `None` if there is none.
    pub(crate) result: Option<Returned<'e, 'a>>,
}

/// The event and index of a call.
#[derive(Clone, Copy)]
pub(crate) struct Site<'e, 'a> {
    pub(crate) entry: &'e Entry<'a>,
    pub(crate) place: usize,
    pub(crate) call: &'a ToolCall,
}

/// One result of an event.
#[derive(Clone, Copy)]
pub(crate) struct Returned<'e, 'a> {
    pub(crate) entry: &'e Entry<'a>,
    pub(crate) ordinal: usize,
    pub(crate) shown: Shown<'a>,
}

/// A message, written.
pub(crate) struct Written {
    pub(crate) json: String,
    /// Indices of its entries.
    pub(crate) events: Vec<usize>,
    pub(crate) speaker: Speaker,
}

/// Author of a message, for the order of roles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The user, or a tool.
    User,
    Assistant,
    /// An author outside the order of roles: of a system message, or an unknown one.
    Other,
}

/// A history, written.
pub(crate) struct History {
    pub(crate) messages: Vec<Written>,
    pub(crate) layout: Layout,
}

/// Form of a history in its request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As a list of messages.
    List,
    /// As its only message's bare text.
    Bare,
}

/// Writes a history.
pub(crate) fn history(format: Format, lines: &[Line<'_, '_>], manner: Manner<'_>) -> History {
    let (mut messages, layout) = match format {
        Format::OpenaiChat => (openai_chat::write(lines, manner), Layout::List),
        Format::OpenaiResponses => openai_responses::write(lines, manner),
        Format::Anthropic => (anthropic::write(lines, manner), Layout::List),
    };
    frame(format, &mut messages, manner);
    History { messages, layout }
}

/// User message put before a history that does not begin with the user.
pub(crate) const OPENING: &str = "(continued)";

/// User message put after a history that ends with the model where it may not, and after a summary that is told as an
/// answer.
pub(crate) const CONTINUE: &str = "Continue.";

/// User message before a summary that is told as an answer.
pub(crate) const QUESTION: &str = "What has been done so far?";

/// Adds messages that the provider requires at either end.
fn frame(format: Format, messages: &mut Vec<Written>, manner: Manner<'_>) {
    let speakers = || messages.iter().enumerate().filter(|(_, message)| message.speaker != Speaker::Other);
    let is_answer = |(_, message): &(usize, &Written)| message.speaker == Speaker::Assistant;
    let first = speakers().next().filter(is_answer).filter(|_| manner.demands(Rule::FirstIsUser));
    // An answer that ends in white space is refused as one to continue, even if it begins with a signed summary.
    let has_ended = |message: &Written| {
        format == Format::Anthropic && manner.is_legal() && anthropic::is_answer_ended(&message.json)
    };
    let last = speakers()
        .next_back()
        .filter(|last| (is_answer(last) && manner.demands(Rule::PrefillRefused)) || has_ended(last.1));
    let (first, is_last) = (first.map(|(index, _)| index), last.is_some());
    if is_last {
        messages.push(words(format, CONTINUE));
    }
    if let Some(first) = first {
        messages.insert(first, words(format, OPENING));
    }
}

/// A message in the user's name without an event.
pub(crate) fn words(format: Format, text: &str) -> Written {
    let json = match format {
        Format::OpenaiChat => openai_chat::words(text),
        Format::OpenaiResponses => openai_responses::words(text),
        Format::Anthropic => anthropic::words(text),
    };
    Written { json, events: Vec::new(), speaker: Speaker::User }
}

/// Returns true if a value is a short word that the wrapping of a message pays for: a role, a name, an id.
fn is_short(value: &Json<'_>) -> bool {
    const LONGEST: usize = 80;
    value.as_text().is_some_and(|text| text.len() <= LONGEST && !text.contains(char::is_whitespace))
}

/// Result for a call that has none.
const STAND_IN: &str = UNANSWERED;
