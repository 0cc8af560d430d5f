//! Structured summaries: what stands for a span of a session, as typed items that name the events they came from.
//!
//! A [`Brief`] is made without a model, or checked against the span if a model wrote it. Because items are data, code
//! carries them from summary to summary: nothing that must be kept depends on what a model chooses to repeat.

pub mod tools;

use serde::{Deserialize, Serialize};

use crate::seq_set::SeqSet;

/// A structured summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brief {
    /// The items, by section and within a section oldest first.
    pub items: Vec<Item>,
    /// What is no longer told item by item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<FoldedItems>,
}

/// One thing a summary says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Where it belongs.
    pub section: Section,
    /// What it says, in one line.
    pub text: String,
    /// What it is about, by which a later item of the same section replaces it: a path, a command, the words of an
    /// error. An item without one is replaced by nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The events it came from.
    pub sources: SeqSet,
}

/// Items of a section that are only counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldedItems {
    /// The section.
    pub section: Section,
    /// How many.
    pub count: u64,
    /// The events they came from, by which they can be found again.
    pub sources: SeqSet,
}

/// A section of a summary, in the order they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// What somebody pinned.
    Pins,
    /// What the user wants of the whole session.
    SessionIntent,
    /// What the user forbade, demanded or prefers.
    Constraints,
    /// What is being done, and how far it is.
    CurrentTask,
    /// Files that were changed, and where.
    FilesModified,
    /// Files that were read.
    FilesRead,
    /// Commands that were run, and how they ended.
    Commands,
    /// What was decided, and why.
    KeyDecisions,
    /// What was tried and did not work, and what did.
    FailedApproaches,
    /// Errors, in their exact words.
    Errors,
    /// What is left to do.
    NextSteps,
}
