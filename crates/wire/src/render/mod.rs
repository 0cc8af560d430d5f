//! Writes a context as a request.
//!
//! Untouched messages leave with the bytes they came with; of an edited message only the edited blocks are written
//! anew. Notes and summaries are sent in the user's name, never as system messages: they hold words the user did not
//! write, and must not be trusted more than the messages they stand for. A summary may also be told as the model's
//! own answer.
//!
//! The context pays for everything that a request needs beyond its content: a stand-in is part of its call's cost,
//! the words around a summary are part of the summary's, and messages added before or after the history are part of
//! [`Overhead::request`](epitome_core::meter::Overhead). So [`recount`] never finds more than [`Context::tokens`], in
//! any format and after any edits.

mod breakpoints;
mod lines;
mod recount;
mod thinking;

use std::ops::Range;

pub(crate) use self::breakpoints::{MOST as MOST_BREAKPOINTS, count as count_breakpoints};
pub(crate) use self::recount::{frame, message_cost, part_cost, tool_cost};
pub use self::{
    breakpoints::Breakpoints,
    recount::recount,
    thinking::{BoundThinking, SETTLE_THINKING, Settled, settle_thinking},
};
use crate::{
    error::WireError,
    format::Format,
    legality::Rules,
    write::{self, Manner, skeleton},
};
use epitome_core::{
    Seq, Tokens,
    context::{Context, Message},
    event::{Fact, Instruction},
    id::ModelName,
    policy::Shape,
    seq_set::SeqSet,
};
use serde::{Deserialize, Serialize};

/// Settings of a rendered request that its context does not contain. They can be stored, and a context rendered again
/// with the stored options has the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderOptions {
    /// Model to ask, instead of the one in the context's settings.
    pub model: Option<ModelName>,
    /// Output limit, used if the format requires one and the context's settings have none. Without it, an Anthropic
    /// request may lack its `max_tokens`.
    pub answer: Option<Tokens>,
    /// Rules of the model's provider.
    pub rules: Rules,
    /// Positions of cache marks.
    pub breakpoints: Breakpoints,
    /// Form in which the summary is sent.
    pub summary: Shape,
}

impl RenderOptions {
    /// Options that a format's own provider requires for every model.
    pub fn of(format: Format) -> Self {
        Self {
            model: None,
            answer: None,
            rules: Rules::of(format),
            breakpoints: Breakpoints::AsSent,
            summary: Shape::Message,
        }
    }
}

/// A rendered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The JSON of the whole request.
    pub body: String,
    /// Every message or item of its history, in order.
    pub messages: Vec<RenderedMessage>,
}

/// A message of a rendered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedMessage {
    /// Byte range of its JSON in the body.
    pub bytes: Range<usize>,
    /// Events it stands for; empty for a message that only completes the request.
    pub events: SeqSet,
}

/// Reason a context could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// An event's raw form is not valid JSON.
    #[error(
        "rendering a request: the raw form of event {event} cannot be read; the log it comes from is damaged"
    )]
    Raw {
        /// The event.
        event: Seq,
        /// Error in reading it.
        source: WireError,
    },
    /// The provider keeps the history or a part of it.
    #[error(
        "rendering a request: its `{setting}` continues a history that only the provider has; send the request as it \
         came, or have the client send its whole history"
    )]
    RemoteHistory {
        /// Setting by which it does.
        setting: &'static str,
    },
}

/// Settings by which a request continues a history on the provider's side.
const REMOTE: [&str; 2] = ["previous_response_id", "conversation"];

pub(crate) fn render(
    format: Format,
    context: &Context,
    options: &RenderOptions,
) -> Result<Rendered, RenderError> {
    let rendered = unmarked(format, context, options)?;
    let summary = context.summary().and_then(|event| match &event.event.fact {
        Fact::Compacted(compaction) => Some(compaction.summary.text()),
        _ => None,
    });
    Ok(breakpoints::apply(format, rendered, options.breakpoints, summary))
}

/// Sets the cache marks of a request.
pub(crate) fn mark(format: Format, body: String, breakpoints: Breakpoints, summary: Option<&str>) -> String {
    breakpoints::apply(format, Rendered { body, messages: Vec::new() }, breakpoints, summary).body
}

/// Renders a request with the cache marks that its messages came with.
pub(crate) fn unmarked(
    format: Format,
    context: &Context,
    options: &RenderOptions,
) -> Result<Rendered, RenderError> {
    let messages: Vec<Message<'_>> = context.messages().collect();
    let table = lines::Table::of(format, &messages, context)?;
    let manner = Manner { rules: Some(&options.rules), meter: Some(context.meter()) };
    let mut head = skeleton::Head {
        settings: None,
        system: Vec::new(),
        tools: None,
        model: options.model.as_ref().map(|model| &*model.0),
        answer: options.answer,
    };
    for entry in messages.iter().filter_map(|message| table.standing(message)) {
        match &entry.event.fact {
            Fact::Instructed { what: Instruction::Settings, .. } => {
                head.settings = Some(entry).filter(|entry| entry.own.is_some());
            }
            Fact::Instructed { what: Instruction::Tools, .. } => head.tools = Some(entry),
            _ => head.system.push(entry),
        }
    }
    if let Some(setting) = REMOTE.into_iter().find(|setting| head.has(setting)) {
        return Err(RenderError::RemoteHistory { setting });
    }
    let leading = table.leading(&messages, &head);
    head.system.extend(leading.iter().copied());
    let lines = table.lines(&messages, leading.len(), options.summary);
    let mut history = write::history(format, &lines, manner);
    if history.messages.is_empty() {
        history.messages.push(write::words(format, write::OPENING));
    }
    let written = skeleton::fill(format, &head, history, manner);
    let placed = |(bytes, events): (Range<usize>, Vec<usize>)| RenderedMessage {
        bytes,
        events: table.origins(&events),
    };
    let messages_written = written.messages.into_iter().map(placed).collect();
    Ok(Rendered { body: written.body, messages: messages_written })
}
