//! A request as it is seen from beside the road: not read whole, but far enough to know whose history it continues.
//!
//! A history is a list of [`Unit`]s, each with the digest it is recognised by. What clients change by themselves changes
//! no digest: beyond what [the normalised form](crate::normal) ignores, an answer's reasoning (some clients send it back
//! and some do not), and notes that a client moves from place to place. Units that were seen before cost a hash of their
//! bytes, and nothing else of them is read.

use epitome_core::{
    Digest, Event,
    id::{AnswerId, ModelName},
};

use crate::{error::WireError, format::Format, request};

/// A request, seen.
#[derive(Debug)]
pub struct Seen<'a> {
    format: Format,
    body: &'a str,
    units: Vec<Unit>,
    events: Vec<Event>,
}

/// A message of a history, or several that make one: what is recognised as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What it is recognised by.
    pub digest: Digest,
    /// Who says it.
    pub speaker: Speaker,
}

/// Who says a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Speaker {
    /// The user, or what the client says in their name.
    User,
    /// The model.
    Model,
    /// Tools.
    Tools,
    /// The system or developer, in the middle of a history.
    System,
    /// Something else.
    Other,
}

/// What the history of a request follows, where the request does not hold it whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing: the whole history is here.
    Nothing,
    /// An earlier response (`previous_response_id`).
    Response(AnswerId),
    /// A conversation that the provider keeps.
    Conversation(String),
}

/// Digests of messages that were seen before, by their bytes. Shared by all requests of a process; bounded.
#[derive(Debug, Default)]
pub struct Memo {}

impl Memo {
    /// Remembers about so many messages.
    pub fn new(messages: usize) -> Self {
        let _ = messages;
        Self {}
    }
}

impl<'a> Seen<'a> {
    /// Looks at a request.
    pub fn read(format: Format, body: &'a str, memo: &Memo) -> Result<Self, WireError> {
        let _ = memo;
        let events = request::decode(format, body)?;
        Ok(Self { format, body, units: Vec::new(), events })
    }

    /// Whose format it is in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The bytes.
    pub fn body(&self) -> &'a str {
        self.body
    }

    /// The model it asks.
    pub fn model(&self) -> Option<ModelName> {
        self.events.first().and_then(request::requested_model)
    }

    /// Whether it wants its answer streamed.
    pub fn streams(&self) -> bool {
        false
    }

    /// What its history follows.
    pub fn follows(&self) -> Follows {
        Follows::Nothing
    }

    /// The ids of items it names instead of holding them (`item_reference`).
    pub fn references(&self) -> &[String] {
        &[]
    }

    /// Its history after the leading instructions, oldest first.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// A digest of what stands beside and before the history: settings, system prompt, tools, leading instructions. It says
    /// whether they are as they were.
    pub fn instructions(&self) -> Digest {
        Digest::of(&[])
    }

    /// What stands beside and before the history, as events. They have no normalised digest: a changed system prompt
    /// does not make another history.
    pub fn opening(&self) -> Vec<Event> {
        self.events.clone()
    }

    /// The units from `from` on, as events with the bytes they came with. The last event of each unit has the unit's digest,
    /// all others none.
    pub fn events(&self, from: usize) -> Vec<Event> {
        let _ = from;
        Vec::new()
    }

    /// The unit that repeats `summary`, a text that a model wrote as the client's own compaction: the history up to it
    /// stands for what was compacted.
    pub fn repeats(&self, summary: &str) -> Option<usize> {
        let _ = summary;
        None
    }
}

/// The events of an answer, as [`Format::decode_response`] or a [`StreamDecoder`](crate::StreamDecoder) gave them, with the
/// digests by which [`Seen`] knows them again when a client sends them back.
pub fn recognisable(format: Format, answer: Vec<Event>) -> Vec<Event> {
    let _ = format;
    answer
}
