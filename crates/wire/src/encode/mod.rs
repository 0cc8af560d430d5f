//! Events, to a request.
//!
//! An event that came in the format it leaves in keeps its bytes. One that came in another format is written anew
//! from what it says: text, calls, results, and media where the format has a place for them. Reasoning is left out
//! there, since no provider accepts another's, and a block that only its provider understands becomes a short note,
//! so that the model knows that something stood there. Facts that no provider sees (usage, pins, markers, model
//! changes) become nothing.

mod anthropic;
mod openai_chat;
mod openai_responses;
mod outcomes;
mod portable;
mod skeleton;

use std::ops::Range;

use epitome_core::{Event, Fact, event::Instruction, id::AnswerId};

use crate::{error::WireError, format::Format, json::Json};

/// What a request may hold that no event says, and may lack that one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The history as it was recorded, whether a provider would take it or not.
    AsRecorded,
    /// What a provider would refuse is completed: every call is answered where the format wants it, with a fixed
    /// stand-in if need be, results that answer nothing are left out, and messages keep the format's order of roles.
    Legal,
}

/// A request, written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON of the whole request.
    pub body: String,
    /// Every message or item of its history, in order.
    pub messages: Vec<Placed>,
}

/// A message in a request, and the events it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where in the body its JSON is.
    pub bytes: Range<usize>,
    /// The events, by their place among those given; none for a message that only completes the request.
    pub events: Vec<usize>,
}

/// Why a request could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// An event's raw form is not the JSON it is said to be.
    #[error(
        "writing a request: the raw form of event {event} cannot be read; the log it comes from is damaged"
    )]
    Raw {
        /// The event, by its place among those given.
        event: usize,
        /// What is wrong with it.
        source: WireError,
    },
}

/// Writes a request.
pub(crate) fn encode<'a>(
    format: Format,
    events: impl IntoIterator<Item = &'a Event>,
    completion: Completion,
) -> Result<Encoded, EncodeError> {
    let events: Vec<&Event> = events.into_iter().collect();
    let latest = |wanted: Instruction| {
        let found = events.iter().enumerate().rev().find(|(_, event)| match &event.fact {
            Fact::Instructed { what, .. } => {
                *what == wanted && (wanted != Instruction::Settings || event.raw.dialect == format.dialect())
            }
            _ => false,
        });
        found.map(|(index, event)| Entry::read(format, index, event)).transpose()
    };
    let mut head = skeleton::Head {
        settings: latest(Instruction::Settings)?,
        system: latest(Instruction::System)?.into_iter().collect(),
        tools: latest(Instruction::Tools)?,
    };
    let entries = events.iter().enumerate().filter(|(_, event)| is_shown(format, event));
    let mut entries: Vec<Entry<'_>> =
        entries.map(|(index, event)| Entry::read(format, index, event)).collect::<Result<_, _>>()?;
    if format == Format::Anthropic && head.system.iter().all(|system| system.own.is_none()) {
        // Other formats' system messages come first in the history; here the system prompt stands apart.
        let leading = entries.iter().take_while(|entry| entry.is_foreign_instruction()).count();
        head.system.extend(entries.drain(..leading));
    }
    let history = match format {
        Format::OpenaiChat => History::list(openai_chat::write(&entries, completion)),
        Format::OpenaiResponses => openai_responses::write(&entries, completion, &head),
        Format::Anthropic => History::list(anthropic::write(&entries, completion)),
    };
    Ok(skeleton::fill(format, &head, history, completion))
}

/// An event to be written, with its raw JSON if that is in the format it is written in.
struct Entry<'a> {
    index: usize,
    event: &'a Event,
    own: Option<Json<'a>>,
}

impl<'a> Entry<'a> {
    fn read(format: Format, index: usize, event: &'a Event) -> Result<Self, EncodeError> {
        if event.raw.dialect != format.dialect() {
            return Ok(Self { index, event, own: None });
        }
        let own = Json::parse(&event.raw.json, "an event's raw form");
        let own = own.map_err(|source| EncodeError::Raw { event: index, source })?;
        // A compaction's raw form may be a record of the agent's rather than a message.
        let fits = match (&event.fact, format) {
            (Fact::Compacted(_) | Fact::Injected { .. }, Format::OpenaiResponses) => own.is_object(),
            (Fact::Compacted(_) | Fact::Injected { .. }, _) => own.text_at("role").is_some(),
            _ => true,
        };
        Ok(Self { index, event, own: fits.then_some(own) })
    }

    fn is_foreign_instruction(&self) -> bool {
        self.own.is_none() && matches!(self.event.fact, Fact::Instructed { what: Instruction::Message, .. })
    }

    fn is_answer(&self) -> bool {
        matches!(self.event.fact, Fact::AssistantSaid { .. })
    }
}

/// Whether an event is part of the history that a provider sees.
fn is_shown(format: Format, event: &Event) -> bool {
    match &event.fact {
        Fact::Instructed { what, .. } => match what {
            Instruction::Message | Instruction::Project => true,
            Instruction::Settings | Instruction::System | Instruction::Tools => false,
        },
        Fact::UserSaid { .. }
        | Fact::AssistantSaid { .. }
        | Fact::ToolReturned { .. }
        | Fact::Injected { .. }
        | Fact::Compacted(_) => true,
        // Only whoever wrote it knows what it is, and only what a client would send belongs in a request.
        Fact::Carried { .. } => event.normal.is_some() && event.raw.dialect == format.dialect(),
        Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. }
        | Fact::Pinned { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. } => false,
    }
}

/// A message, written.
struct Written {
    json: String,
    events: Vec<usize>,
}

/// A history, written.
struct History {
    messages: Vec<Written>,
    layout: Layout,
}

impl History {
    fn list(messages: Vec<Written>) -> Self {
        Self { messages, layout: Layout::List }
    }
}

/// How a history stands in its request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// As a list of messages.
    List,
    /// As its only message's bare text.
    Bare,
}

/// What a call that never returned is answered with: always the same words, so that the request stays the same.
const STAND_IN: &str = "No result: the call was interrupted before the tool returned.";

/// What stands before a history that does not begin with the user.
const OPENING: &str = "(The conversation goes on from here.)";

/// An answer and what its calls returned, or a message by itself.
enum Group<'e, 'a> {
    /// The fragments of one answer, and the messages with results that follow them.
    Answer { fragments: Vec<&'e Entry<'a>>, results: Vec<&'e Entry<'a>> },
    /// Anything else.
    Other(&'e Entry<'a>),
}

/// Gathers the fragments of each answer, also when results stand between them.
fn grouped<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<Group<'e, 'a>> {
    let mut groups: Vec<Group<'e, 'a>> = Vec::new();
    for entry in entries {
        match (&entry.event.fact, groups.last_mut()) {
            (Fact::AssistantSaid { answer: Some(_), .. }, Some(Group::Answer { fragments, .. }))
                if answer_of(fragments) == answer_of(&[entry]) =>
            {
                fragments.push(entry);
            }
            (Fact::AssistantSaid { .. }, _) => {
                groups.push(Group::Answer { fragments: vec![entry], results: Vec::new() });
            }
            (Fact::ToolReturned { .. }, Some(Group::Answer { results, .. })) => results.push(entry),
            _ => groups.push(Group::Other(entry)),
        }
    }
    groups
}

/// The id that an answer's fragments share.
fn answer_of<'a>(fragments: &[&Entry<'a>]) -> Option<&'a AnswerId> {
    match &fragments.first()?.event.fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}
