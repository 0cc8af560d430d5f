//! The gate: a model's draft becomes a summary, or is turned away.
//!
//! Nothing that must be kept depends on the draft. The built-in summary of the span is the ground, with the items of the
//! summary before carried in it by identity; of the draft only sentences are added that the agent itself said and nothing
//! has refuted since, in the recorded words and with their events. So a model that forgets loses nothing, one that invents adds
//! nothing, and one that obeys what it was to summarise gains no authority: task, orders, constraints and next steps are
//! told by code.

mod draft_format;
mod draft_report;
mod item_filter;
mod parsed_draft;
mod reasoning;
mod secrets;
pub(crate) use self::secrets::{holds_secret, without_keys};
mod claim_support;
mod numbered_sentences;
mod text_words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    claim_support::SpanSpeech,
    item_filter::ItemFilter,
    parsed_draft::{ParsedDraft, read},
    reasoning::without_reasoning,
};
pub use self::{
    draft_format::format_instructions,
    draft_report::{DraftReport, DroppedItem},
    numbered_sentences::{NumberedSentences, SentenceNumber, offered_sentences, with_sentence_texts},
};
use crate::{
    event::LoggedEvent,
    meter::Meter,
    summary::{SectionCaps, StructuredSummary, SummaryFocus, one_line, summarise_for},
    tokens::Tokens,
};

/// Makes a summary of a draft, or says why it is none.
///
/// What comes out is the built-in summary of the span on top of the one before, with the sentences of the draft that the
/// span bears. It is a function of its arguments alone.
///
/// ```
/// use std::sync::Arc;
/// use epitome_core::{
///     meter::{Meter, TokenOverhead}, summary::SectionCaps, tokens::{EstimateCounter, Tokens},
///     draft_gate::{DraftFinish, DraftError, DraftSource, verify},
/// };
///
/// let meter = Meter::new(Arc::new(EstimateCounter), TokenOverhead::default());
/// let (caps, replaces, limit) = (SectionCaps::default(), Tokens(9_000), Tokens(900));
/// let source = DraftSource { span: &[], previous: None, caps: &caps, replaces, limit, focus: None };
/// let refused = verify(" ", DraftFinish::Complete, &source, &meter);
/// assert_eq!(refused, Err(DraftError::Empty));
/// ```
pub fn verify(
    draft: &str,
    finish: DraftFinish,
    source: &DraftSource<'_>,
    meter: &Meter,
) -> Result<VerifiedSummary, DraftError> {
    let draft = readable(draft, finish, source, meter)?;
    let ground = summarise_for(source.focus, source.span, source.previous, source.caps);
    let speech = SpanSpeech::of(source.span, &ground);
    let mut gate = ItemFilter::new(&ground, &speech);
    gate.report =
        DraftReport { items: draft.items.len() as u64, unread: draft.unread, ..DraftReport::default() };
    gate.retire(&ground);
    draft.items.iter().for_each(|item| gate.decide(item));
    let DraftReport { items, repeated, secrets, ref admitted, .. } = gate.report;
    if items > secrets && repeated == 0 && admitted.is_empty() {
        return Err(DraftError::NothingTrue { items });
    }
    let ItemFilter { ledger, report, .. } = gate;
    let brief = StructuredSummary { focus: ground.focus.clone(), ..ledger.into_summary(source.caps) };
    Ok(VerifiedSummary { brief, report })
}

/// What a draft is checked against.
#[derive(Clone, Copy, Debug)]
pub struct DraftSource<'a> {
    /// The events it tells of, oldest first.
    pub span: &'a [Arc<LoggedEvent>],
    /// The summary of what came before them.
    pub previous: Option<&'a StructuredSummary>,
    /// How many items are shown.
    pub caps: &'a SectionCaps,
    /// What the context costs that the summary takes the place of.
    pub replaces: Tokens,
    /// How long the draft may be, before anything is carried.
    pub limit: Tokens,
    /// What the summary should attend to.
    pub focus: Option<&'a SummaryFocus>,
}

/// A summary that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedSummary {
    /// The summary.
    pub brief: StructuredSummary,
    /// What became of the draft.
    pub report: DraftReport,
}

/// How a model ended its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftFinish {
    /// It said all it had to say.
    Complete,
    /// It was stopped by a limit.
    CutOff,
    /// It refused.
    Refused,
    /// It called a tool.
    CalledTool,
    /// Nobody said.
    #[default]
    Unknown,
}

/// Why a draft is no summary.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DraftError {
    /// Nothing was written.
    #[error("the summary is refused: the model wrote nothing. Ask again, or use another model")]
    Empty,
    /// It ends in the middle.
    #[error("the summary is refused: it ends in the middle. Allow a longer answer, or ask for a shorter one")]
    CutOff,
    /// The model did not want to.
    #[error("the summary is refused: the model declined to write one. Use another model")]
    Refusal,
    /// The model wanted something done.
    #[error("the summary is refused: the model called a tool instead of summarising. Use another model")]
    ToolCall,
    /// Every section says that there is nothing to say.
    #[error("the summary is refused: every section of it is empty, and the span is not. Use another model")]
    AllNone,
    /// It only thought.
    #[error("the summary is refused: the model reasoned and then said nothing. Allow a longer answer")]
    ReasoningOnly,
    /// It is no smaller than what it stands for.
    #[error(
        "the summary is refused: it has {draft} tokens and stands for {replaces}. Ask for a shorter one, or wait until \
         there is more to summarise"
    )]
    Larger {
        /// The draft's size.
        draft: Tokens,
        /// The size of what it stands for.
        replaces: Tokens,
    },
    /// It is longer than it may be.
    #[error("the summary is refused: it has {draft} tokens and may have {limit}. Ask for a shorter one")]
    OverTarget {
        /// The draft's size.
        draft: Tokens,
        /// What was allowed.
        limit: Tokens,
    },
    /// No section was found in it: the model went on with the conversation, or wrote in another form.
    #[error("the summary is refused: it has none of the sections (it begins “{begins}”). Use another model")]
    Unparsable {
        /// How it begins.
        begins: String,
    },
    /// Nothing it says was said by the agent and still holds.
    #[error("the summary is refused: the agent said none of its {items} items. Use another model")]
    NothingTrue {
        /// How many items there were.
        items: u64,
    },
}

/// The draft, if it can be one: complete, of sections, and short enough.
fn readable(
    draft: &str,
    finish: DraftFinish,
    source: &DraftSource<'_>,
    meter: &Meter,
) -> Result<ParsedDraft, DraftError> {
    match finish {
        DraftFinish::Refused => return Err(DraftError::Refusal),
        DraftFinish::CalledTool => return Err(DraftError::ToolCall),
        DraftFinish::CutOff => return Err(DraftError::CutOff),
        DraftFinish::Complete | DraftFinish::Unknown => {}
    }
    let text = without_reasoning(draft)?;
    let draft = read(text);
    // What shows no title of a section is none; what shows one is taken at its word, because a session may well be about
    // error pages and tool calls.
    if draft.titles == 0 && draft.items.is_empty() {
        let begins = if holds_secret(text) { "(withheld)".to_owned() } else { one_line(text, 80) };
        return Err(DraftError::Unparsable { begins });
    }
    let tokens = meter.text(text);
    if tokens >= source.replaces {
        return Err(DraftError::Larger { draft: tokens, replaces: source.replaces });
    }
    if tokens > source.limit {
        return Err(DraftError::OverTarget { draft: tokens, limit: source.limit });
    }
    let said_something = source.span.iter().any(|event| event.event.fact.is_message());
    if draft.items.is_empty() && draft.unread == 0 && said_something {
        return Err(DraftError::AllNone);
    }
    Ok(draft)
}
