//! The gate: a model's draft becomes a summary, or is turned away.
//!
//! Nothing that must be kept depends on the draft. The built-in summary of the span is the ground, with the items of the
//! summary before carried in it by identity; of the draft only sentences are added that the agent itself said and nothing
//! has refuted since, each with the events that bear it. So a model that forgets loses nothing, one that invents adds
//! nothing, and one that obeys what it was to summarise gains no authority: task, orders, constraints and next steps are
//! told by code.

mod admit;
mod draft;
mod form;
mod reasoning;
mod report;
mod secrets;
pub(crate) use self::secrets::{holds_secret, without_keys};
mod sentences;
mod support;
mod words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    admit::Gate,
    draft::{Draft, read},
    reasoning::without_reasoning,
    sentences::numbered,
    support::Speech,
};
pub use self::{
    form::form,
    report::{Dropped, Report},
    sentences::{NumberedSentences, SentenceNumber, offered, with_words},
};
use crate::{
    event::Logged,
    meter::Meter,
    summary::{Brief, Caps, Focus, one_line, summarise_for},
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
///     meter::{Meter, Overhead}, summary::Caps, tokens::{Estimate, Tokens},
///     verify::{Finish, Rejected, Source, verify},
/// };
///
/// let meter = Meter::new(Arc::new(Estimate), Overhead::default());
/// let (caps, replaces, limit) = (Caps::default(), Tokens(9_000), Tokens(900));
/// let source = Source { span: &[], previous: None, caps: &caps, replaces, limit, focus: None };
/// let refused = verify(" ", Finish::Complete, &source, &meter);
/// assert_eq!(refused, Err(Rejected::Empty));
/// ```
pub fn verify(draft: &str, finish: Finish, source: &Source<'_>, meter: &Meter) -> Result<Verified, Rejected> {
    let draft = readable(draft, finish, source, meter)?;
    let ground = summarise_for(source.focus, source.span, source.previous, source.caps);
    let speech = Speech::of(source.span, &ground);
    let chooses = draft.items.iter().any(|item| item.chosen.is_some());
    let sentences = if chooses { numbered(source.span) } else { NumberedSentences::new() };
    let mut gate = Gate::new(&ground, &speech, &sentences);
    gate.report = Report { items: draft.items.len() as u64, unread: draft.unread, ..Report::default() };
    gate.retire(&ground);
    draft.items.iter().for_each(|item| gate.decide(item));
    let Report { items, repeated, secrets, ref admitted, .. } = gate.report;
    if items > secrets && repeated == 0 && admitted.is_empty() {
        return Err(Rejected::NothingTrue { items });
    }
    let Gate { ledger, report, .. } = gate;
    let brief = Brief { focus: ground.focus.clone(), ..ledger.settle(source.caps) };
    Ok(Verified { brief, report })
}

/// What a draft is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The events it tells of, oldest first.
    pub span: &'a [Arc<Logged>],
    /// The summary of what came before them.
    pub previous: Option<&'a Brief>,
    /// How many items are shown.
    pub caps: &'a Caps,
    /// What the context costs that the summary takes the place of.
    pub replaces: Tokens,
    /// How long the draft may be, before anything is carried.
    pub limit: Tokens,
    /// What the summary should attend to.
    pub focus: Option<&'a Focus>,
}

/// A summary that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The summary.
    pub brief: Brief,
    /// What became of the draft.
    pub report: Report,
}

/// How a model ended its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
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
pub enum Rejected {
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
fn readable(draft: &str, finish: Finish, source: &Source<'_>, meter: &Meter) -> Result<Draft, Rejected> {
    match finish {
        Finish::Refused => return Err(Rejected::Refusal),
        Finish::CalledTool => return Err(Rejected::ToolCall),
        Finish::CutOff => return Err(Rejected::CutOff),
        Finish::Complete | Finish::Unknown => {}
    }
    let text = without_reasoning(draft)?;
    let draft = read(text);
    // What shows no title of a section is none; what shows one is taken at its word, because a session may well be about
    // error pages and tool calls.
    if draft.titles == 0 && draft.items.is_empty() {
        let begins = if holds_secret(text) { "(withheld)".to_owned() } else { one_line(text, 80) };
        return Err(Rejected::Unparsable { begins });
    }
    let tokens = meter.text(text);
    if tokens >= source.replaces {
        return Err(Rejected::Larger { draft: tokens, replaces: source.replaces });
    }
    if tokens > source.limit {
        return Err(Rejected::OverTarget { draft: tokens, limit: source.limit });
    }
    let said_something = source.span.iter().any(|event| event.event.fact.is_message());
    if draft.items.is_empty() && draft.unread == 0 && said_something {
        return Err(Rejected::AllNone);
    }
    Ok(draft)
}
