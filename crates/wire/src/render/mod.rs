//! Writes a context as a request.
//!
//! Untouched messages leave with the bytes they came with; of an edited message only the edited blocks are written
//! anew. Notes and summaries are sent in the user's name, never as system messages: they hold words the user did not
//! write, and must not be trusted more than the messages they stand for. A summary may also be told as the model's
//! own answer.
//!
//! The context pays for everything that a request needs beyond its content: a stand-in is part of its call's cost,
//! the words around a summary are part of the summary's, and messages added before or after the history are part of
//! [`TokenOverhead::request`](epitome_core::meter::TokenOverhead). So [`recount`] never finds more than [`Context::tokens`], in
//! any format and after any edits.

pub(crate) mod breakpoints;
mod history_lines;
mod recount;
mod thinking;

use std::ops::Range;

pub(crate) use self::breakpoints::{MAX_BREAKPOINTS as MOST_BREAKPOINTS, count as count_breakpoints};
pub(crate) use self::recount::{message_cost, part_cost, request_overhead, tool_cost};
pub use self::{
    breakpoints::CacheBreakpoints,
    recount::recount,
    thinking::{BoundThinkingError, SETTLE_THINKING, SettledContext, settle_thinking},
};
use crate::{
    error::WireError,
    format::Format,
    legality::ProviderRules,
    write::{self, WriteOptions, request_envelope},
};
use epitome_core::{
    Seq, Tokens,
    context::{Context, ContextMessage},
    event::{Fact, InstructionKind},
    id::ModelName,
    policy::SummaryShape,
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
    pub rules: ProviderRules,
    /// Positions of cache marks.
    pub breakpoints: CacheBreakpoints,
    /// Form in which the summary is sent.
    pub summary: SummaryShape,
}

impl RenderOptions {
    /// Options that a format's own provider requires for every model.
    pub fn of(format: Format) -> Self {
        Self {
            model: None,
            answer: None,
            rules: ProviderRules::of(format),
            breakpoints: CacheBreakpoints::AsSent,
            summary: SummaryShape::Message,
        }
    }
}

/// A rendered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedRequest {
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
const REMOTE_HISTORY_SETTINGS: [&str; 2] = ["previous_response_id", "conversation"];

pub(crate) fn render(
    format: Format,
    context: &Context,
    options: &RenderOptions,
) -> Result<RenderedRequest, RenderError> {
    let rendered = unmarked(format, context, options)?;
    let summary = context.summary().and_then(|event| match &event.event.fact {
        Fact::Compacted(compaction) => Some(compaction.summary.text()),
        _ => None,
    });
    Ok(breakpoints::apply(format, rendered, options.breakpoints, summary))
}

/// Sets the cache marks of a request.
pub(crate) fn mark(
    format: Format,
    body: String,
    breakpoints: CacheBreakpoints,
    summary: Option<&str>,
) -> String {
    breakpoints::apply(format, RenderedRequest { body, messages: Vec::new() }, breakpoints, summary).body
}

/// Renders a request with the cache marks that its messages came with.
pub(crate) fn unmarked(
    format: Format,
    context: &Context,
    options: &RenderOptions,
) -> Result<RenderedRequest, RenderError> {
    let messages: Vec<ContextMessage<'_>> = context.messages().collect();
    let table = history_lines::SourceEventTable::of(format, &messages, context)?;
    let manner = WriteOptions { rules: Some(&options.rules), meter: Some(context.meter()) };
    let mut head = request_envelope::RequestHead {
        settings: None,
        system: Vec::new(),
        tools: None,
        model: options.model.as_ref().map(|model| &*model.0),
        answer: options.answer,
    };
    for entry in messages.iter().filter_map(|message| table.side_instruction(message)) {
        match &entry.event.fact {
            Fact::Instructed { what: InstructionKind::Settings, .. } => {
                head.settings = Some(entry).filter(|entry| entry.own.is_some());
            }
            Fact::Instructed { what: InstructionKind::Tools, .. } => head.tools = Some(entry),
            _ => head.system.push(entry),
        }
    }
    let mut remote = REMOTE_HISTORY_SETTINGS.into_iter().chain(format.facts().remote_history);
    if let Some(setting) = remote.find(|setting| head.has(setting)) {
        return Err(RenderError::RemoteHistory { setting });
    }
    let leading = table.leading_instructions(&messages, &head);
    head.system.extend(leading.iter().copied());
    let lines = table.lines(&messages, leading.len(), options.summary);
    let mut history = write::history(format, &lines, manner);
    if history.messages.is_empty() {
        history.messages.push(write::words(format, write::OPENING_MESSAGE));
    }
    let written = request_envelope::write_request(format, &head, history, manner);
    let placed = |(bytes, events): (Range<usize>, Vec<usize>)| RenderedMessage {
        bytes,
        events: table.origins(&events),
    };
    let messages_written = written.messages.into_iter().map(placed).collect();
    Ok(RenderedRequest { body: written.body, messages: messages_written })
}
