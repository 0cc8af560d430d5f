//! Structured summaries: what stands for a span of a session, as typed items that name the events they came from.
//!
//! A [`StructuredSummary`] is made without a model, or checked against the span if a model wrote it. Because items are data, code
//! carries them from summary to summary: nothing that must be kept depends on what a model chooses to repeat.

mod call_subjects;
pub mod compaction;
mod constraints;
mod extraction;
mod focus;
mod fork;
mod item_set;
mod marker_words;
mod name_index;
mod outdated_state;
mod pins;
mod reading_cache;
mod render;
mod requests;
mod result_values;
mod sentences;
mod stored_summary;
mod tool_activity;
pub mod tools;
mod trail;
mod user_quotes;

use serde::{Deserialize, Serialize};

use self::tools::FileChange;
pub use self::{
    call_subjects::subject as call_subject,
    extraction::{summarise, summarise_for},
    focus::SummaryFocus,
    item_set::{MAX_CONSTRAINTS, SectionCaps},
    name_index::{IndexEntry, IndexedName},
    pins::{MAX_PIN_CHARS, MAX_PINS, PinError, check_pin},
    trail::{AnswerPart, CallEffect, CallEnding, FoldedRequest, Trail, TrailCall, TrailEntry, TrailKind},
};
pub(crate) use self::{
    extraction::text,
    item_set::ItemSet,
    sentences::{SentenceForm, list_entry, one_line, sentences, split_sentences},
    tool_activity::TAKEN_BACK_NOTE,
};
use crate::{seq_set::SeqSet, standing_context::StandingContext};

/// A structured summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "stored_summary::StoredSummary")]
pub struct StructuredSummary {
    /// The items, by section and within a section oldest first.
    pub items: Vec<SummaryItem>,
    /// What is no longer told item by item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<FoldedItems>,
    /// What happened, in order.
    #[serde(skip_serializing_if = "Trail::is_empty")]
    pub trail: Trail,
    /// The trail that the next summary goes on from, where this one has room for less of it.
    #[serde(skip_serializing_if = "Trail::is_empty")]
    pub carried_trail: Trail,
    /// Which names stood where, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<IndexEntry>,
    /// The standing context of the span, carried byte for byte.
    #[serde(skip_serializing_if = "StandingContext::is_empty")]
    pub standing: StandingContext,
    /// What trail and index were made to attend to, if anything in them speaks of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// One thing a summary says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryItem {
    /// Where it belongs.
    pub section: SummarySection,
    /// What it says, in one line.
    pub text: String,
    /// What it is about, by which a later item of the same section replaces it: a path, a command, the words of an
    /// error. An item without one is replaced by nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The events it came from: the first and the newest, if they are many.
    pub sources: SeqSet,
    /// What the next summary must know to carry it on; nothing for an item that a model wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<ItemDetail>,
}

/// What is known of an item beside its words. Fields that earlier versions wrote beside these are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemDetail {
    /// Of a constraint: how much it was meant.
    Wish(ConstraintForce),
    /// Of a file: how it was changed.
    File {
        /// Each way once; empty if it was only read.
        how: Vec<FileChange>,
        /// The newest changes in a few words: the lines, and the first of the new ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        edits: Vec<String>,
    },
    /// Of a command: how it went.
    Command {
        /// How it ended the last time.
        exit: Option<i64>,
    },
    /// Of an error: where it came from and what became of it.
    Error {
        /// What failed: a command, or a tool and its target.
        of: String,
        /// How it failed, in its own words.
        #[serde(default)]
        words: String,
        /// How often it came.
        times: u64,
        /// What made it go away.
        resolved: Option<String>,
    },
    /// Of a failed approach: whether it is known what worked instead.
    Attempt(AttemptEnding),
    /// Of a next step: who wrote it down.
    Step(StepOrigin),
    /// Of the current task: what was done since it was asked for.
    Progress {
        /// How many tools were called.
        calls: u64,
        /// Which files were changed, the newest last.
        changed: Vec<String>,
    },
}

/// How much a wish was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintForce {
    /// It was taken back.
    Withdrawn,
    /// As a preference, or a plain request of how to work.
    Preference,
    /// As a rule.
    Rule,
}

/// Whether it is known what worked in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnding {
    /// Not yet.
    Open,
    /// It is.
    Known,
}

/// Who wrote a next step down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOrigin {
    /// A plan tool; its next plan replaces this one.
    Plan,
    /// A tool that keeps steps one by one; it says when this one is done.
    Tracked,
    /// Somebody in their own words.
    Words,
}

/// Items of a section that are only counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldedItems {
    /// The section.
    pub section: SummarySection,
    /// How many; 0 if that cannot be known, as after a fork inside what they tell of.
    pub count: u64,
    /// The events among which they can be found again.
    pub sources: SeqSet,
}

/// A section of a summary, in the order they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummarySection {
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

impl SummarySection {
    /// Every section, in order.
    pub const ALL: [Self; 11] = [
        Self::Pins,
        Self::SessionIntent,
        Self::Constraints,
        Self::CurrentTask,
        Self::FilesModified,
        Self::FilesRead,
        Self::Commands,
        Self::KeyDecisions,
        Self::FailedApproaches,
        Self::Errors,
        Self::NextSteps,
    ];

    /// Its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pins => "Pinned",
            Self::SessionIntent => "Session Intent",
            Self::Constraints => "Constraints",
            Self::CurrentTask => "Current Task",
            Self::FilesModified => "Files Modified",
            Self::FilesRead => "Files Read",
            Self::Commands => "Commands",
            Self::KeyDecisions => "Key Decisions",
            Self::FailedApproaches => "Failed Approaches",
            Self::Errors => "Errors Encountered",
            Self::NextSteps => "Next Steps",
        }
    }

    /// Whether it is one of those that every structured summary has, filled or not.
    pub const fn is_in_checklist(self) -> bool {
        !matches!(self, Self::Pins | Self::Constraints | Self::Commands)
    }

    /// Whether code carries its items from summary to summary, whatever a model writes.
    pub const fn must_keep(self) -> bool {
        matches!(
            self,
            Self::Pins | Self::Constraints | Self::FilesModified | Self::FailedApproaches | Self::Errors
        )
    }
}

impl SummaryItem {
    /// An item without a key, of which no more is known than its words.
    pub fn new(section: SummarySection, text: String, sources: SeqSet) -> Self {
        Self { section, text, key: None, sources, detail: None }
    }

    /// What makes it the same item in the next summary: its key, or its words.
    pub fn identity(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.text)
    }
}

impl StructuredSummary {
    /// The items of a section, oldest first.
    pub fn section(&self, section: SummarySection) -> impl DoubleEndedIterator<Item = &SummaryItem> {
        self.items.iter().filter(move |item| item.section == section)
    }
}
