//! Writes events as a request.
//!
//! An event that came in the target format keeps its bytes. One that came in another format is written anew from its
//! content: text, calls, results, and media where the format has a place for them. Reasoning is left out there, since
//! no provider accepts another's, and a block that only its provider understands becomes a short note, so that the
//! model knows that something stood there. Facts that no provider sees (usage, pins, markers, model changes) are not
//! written.

mod history_lines;

use std::ops::Range;

use epitome_core::{Event, Fact, event::InstructionKind};

use crate::{
    error::WireError,
    format::Format,
    legality::ProviderRules,
    write::{self, HistoryLine, SourceEvent, WriteOptions, request_envelope},
};

/// Extent to which a history is changed to be acceptable to its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeMode {
    /// The history as it was recorded, even if a provider would refuse it.
    AsRecorded,
    /// The history, completed so that a provider accepts it: every call is answered where the format requires it,
    /// with a fixed stand-in if necessary, results that answer no call are left out, and messages keep the format's
    /// order of roles.
    Legal,
}

/// A written request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRequest {
    /// The JSON of the whole request.
    pub body: String,
    /// Every message or item of the history, in order.
    pub messages: Vec<EncodedMessage>,
}

/// A message in a request, and the events it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMessage {
    /// Byte range of its JSON in the body.
    pub bytes: Range<usize>,
    /// Indices of its events among those given; empty for a message that only completes the request.
    pub events: Vec<usize>,
}

/// Reason a request could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// An event's raw form is not valid JSON.
    #[error(
        "writing a request: the raw form of event {event} cannot be read; the log it comes from is damaged"
    )]
    Raw {
        /// Index of the event among those given.
        event: usize,
        /// Error in reading it.
        source: WireError,
    },
}

/// Writes a request.
pub(crate) fn encode<'a>(
    format: Format,
    events: impl IntoIterator<Item = &'a Event>,
    completion: EncodeMode,
) -> Result<EncodedRequest, EncodeError> {
    let events: Vec<&Event> = events.into_iter().collect();
    let read = |(index, event): (usize, &&'a Event)| {
        SourceEvent::read(format, index, event).map_err(|source| EncodeError::Raw { event: index, source })
    };
    let latest = |wanted: InstructionKind| {
        let found = events.iter().enumerate().rev().find(|(_, event)| match &event.fact {
            Fact::Instructed { what, .. } => {
                *what == wanted
                    && (wanted != InstructionKind::Settings || event.raw.dialect == format.dialect())
            }
            _ => false,
        });
        found.map(read).transpose()
    };
    let settings = latest(InstructionKind::Settings)?;
    let (system, tools) = (latest(InstructionKind::System)?, latest(InstructionKind::Tools)?);
    let shown = events.iter().enumerate().filter(|(_, event)| is_shown(format, event));
    let entries: Vec<SourceEvent<'_>> = shown.map(read).collect::<Result<_, _>>()?;
    let mut head = request_envelope::RequestHead {
        settings: settings.as_ref(),
        system: system.iter().collect(),
        tools: tools.as_ref(),
        model: None,
        answer: None,
    };
    let rest = lead(format, &entries, &mut head);
    let rules = ProviderRules::of(format);
    let manner = match completion {
        EncodeMode::AsRecorded => WriteOptions { rules: None, meter: None },
        EncodeMode::Legal => WriteOptions { rules: Some(&rules), meter: None },
    };
    let lines: Vec<HistoryLine<'_, '_>> = match completion {
        EncodeMode::AsRecorded => history_lines::recorded_lines(format, rest),
        EncodeMode::Legal => history_lines::legal_lines(format, rest, &head),
    };
    let written =
        request_envelope::write_request(format, &head, write::history(format, &lines, manner), manner);
    let placed = |(bytes, events)| EncodedMessage { bytes, events };
    Ok(EncodedRequest { body: written.body, messages: written.messages.into_iter().map(placed).collect() })
}

/// Writes system messages: those of other formats come first in the history, or go into the separate system prompt.
fn lead<'e, 'a>(
    format: Format,
    entries: &'e [SourceEvent<'a>],
    head: &mut request_envelope::RequestHead<'e, 'a>,
) -> &'e [SourceEvent<'a>] {
    if !format.facts().leads_into_system || head.system.iter().any(|system| system.own.is_some()) {
        return entries;
    }
    let (leading, rest) =
        entries.split_at(entries.iter().take_while(|entry| entry.is_foreign_instruction()).count());
    head.system.extend(leading);
    rest
}

/// Returns true if an event is part of the history that a provider sees.
fn is_shown(format: Format, event: &Event) -> bool {
    match &event.fact {
        Fact::Instructed { what, .. } => match what {
            InstructionKind::Message | InstructionKind::Project => true,
            InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools => false,
        },
        Fact::UserSaid { .. }
        | Fact::AssistantSaid { .. }
        | Fact::ToolReturned { .. }
        | Fact::Injected { .. }
        | Fact::Compacted(_) => true,
        // Only its own provider knows what it is, and only content that a client would send belongs in a request.
        Fact::Carried { .. } => event.normal.is_some() && event.raw.dialect == format.dialect(),
        Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. }
        | Fact::Pinned { .. }
        | Fact::Unpinned { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. } => false,
    }
}
