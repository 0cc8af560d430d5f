//! Writing a history in a provider's format: the one way to do it, whether it comes from a log or from a context.
//!
//! Whoever wants a history written says what it consists of in [`Line`]s, in an order that every provider takes: an
//! answer, then what its calls gave back, then whatever came next. The three writers know nothing of logs and contexts.
//! What came in the format it leaves in keeps its bytes, block by block; everything else is written afresh from what it
//! says.

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

/// How a history is written.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'m> {
    /// What the provider demands; without, the history is written as it was recorded.
    pub(crate) rules: Option<&'m Rules>,
    /// Whoever counts what is written: with it, no note costs more than what it stands for.
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
    /// Its place among the events of this history; a later event has a higher one.
    pub(crate) index: usize,
    pub(crate) event: &'a Event,
    pub(crate) own: Option<Json<'a>>,
    /// The base64 of its media, by the hash of what it holds: looked for once, however many parts there are.
    inline: OnceCell<BTreeMap<Digest, String>>,
    /// Which blocks of an Anthropic message are results.
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

/// What is to be written, piece by piece.
pub(crate) enum Line<'e, 'a> {
    /// Events as they were recorded, results and all, as one message where the format can.
    Whole(Vec<&'e Entry<'a>>),
    /// What an event says, results aside.
    Said(&'e Entry<'a>, Shown<'a>),
    /// One answer.
    Answer(Vec<Fragment<'e, 'a>>),
    /// What the calls of the answer before it gave back, each once.
    Returned(Vec<Outcome<'e, 'a>>),
    /// Words that no event says in this form, in somebody's name; `origin` is where they come from, if from anywhere.
    Words { by: Speaker, text: &'a str, origin: Option<usize> },
}

/// What is shown of something that was sent before.
#[derive(Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// All of it.
    AsSent,
    /// These parts instead.
    Replaced(&'a [Part]),
}

/// What is shown of one event of an answer.
pub(crate) struct Fragment<'e, 'a> {
    pub(crate) entry: &'e Entry<'a>,
    /// The places of the shown parts; `None` if all are.
    pub(crate) places: Option<Vec<usize>>,
    /// Whether something that stood directly before it is left out.
    pub(crate) parted_before: bool,
    /// Whether something that followed it in the same answer is left out.
    pub(crate) parted_after: bool,
}

impl<'e, 'a> Fragment<'e, 'a> {
    /// All of an event, with nothing left out around it.
    pub(crate) fn whole(entry: &'e Entry<'a>) -> Self {
        Self { entry, places: None, parted_before: false, parted_after: false }
    }

    /// The parts it shows, with their places.
    fn shown(&self) -> impl Iterator<Item = (usize, &'a Part)> {
        let parts = self.entry.parts().iter().enumerate();
        parts.filter(|(place, _)| self.shows(*place))
    }

    fn shows(&self, place: usize) -> bool {
        self.places.as_ref().is_none_or(|places| places.binary_search(&place).is_ok())
    }
}

/// A call and what is shown of its outcome.
pub(crate) struct Outcome<'e, 'a> {
    /// The call; `None` if only the provider knows it.
    pub(crate) site: Option<Site<'e, 'a>>,
    /// The result; `None` if there is none.
    pub(crate) result: Option<Returned<'e, 'a>>,
}

/// Where a call was made.
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
    /// The entries it stands for.
    pub(crate) events: Vec<usize>,
    pub(crate) speaker: Speaker,
}

/// Whose message it is, as far as the order of roles goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The user, or a tool.
    User,
    Assistant,
    /// Nobody whose place a provider minds: a system message, an unknown one.
    Other,
}

/// A history, written.
pub(crate) struct History {
    pub(crate) messages: Vec<Written>,
    pub(crate) layout: Layout,
}

/// How a history stands in its request.
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

/// What stands before a history that does not begin with the user.
pub(crate) const OPENING: &str = "(continued)";

/// What follows a history that ends with the model, where it may not, and a summary that is told as an answer.
pub(crate) const CONTINUE: &str = "Continue.";

/// What a summary that is told as an answer answers.
pub(crate) const QUESTION: &str = "What has been done so far?";

/// Puts in what the provider demands at either end.
fn frame(format: Format, messages: &mut Vec<Written>, manner: Manner<'_>) {
    let speakers = || messages.iter().enumerate().filter(|(_, message)| message.speaker != Speaker::Other);
    let is_answer = |(_, message): &(usize, &Written)| message.speaker == Speaker::Assistant;
    let first = speakers().next().filter(is_answer).filter(|_| manner.demands(Rule::FirstIsUser));
    // Nobody continues an answer where white space has already ended it, also not one that a signed summary opens.
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

/// A message in the user's name that no event says.
pub(crate) fn words(format: Format, text: &str) -> Written {
    let json = match format {
        Format::OpenaiChat => openai_chat::words(text),
        Format::OpenaiResponses => openai_responses::words(text),
        Format::Anthropic => anthropic::words(text),
    };
    Written { json, events: Vec::new(), speaker: Speaker::User }
}

/// Whether a value is a word that the wrapping of a message pays for: a role, a name, an id.
fn is_short(value: &Json<'_>) -> bool {
    const LONGEST: usize = 80;
    value.as_text().is_some_and(|text| text.len() <= LONGEST && !text.contains(char::is_whitespace))
}

/// What a call that never returned is answered with.
const STAND_IN: &str = UNANSWERED;
