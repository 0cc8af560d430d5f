//! What became of a draft, item by item, in numbers and examples: for the audit, and for whoever asks why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::summary::Section;

/// How many examples of a kind are told; all are counted.
const EXAMPLES: usize = 40;

/// What became of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    /// How many items the draft had.
    pub items: u64,
    /// Items of the draft that are in the summary now.
    pub admitted: BTreeMap<Section, u64>,
    /// How many only said what the summary says already.
    pub repeated: u64,
    /// How many were dropped for naming a path, an id or a number that is nowhere in the span.
    pub invented: u64,
    /// How many were dropped because nothing in the span stands behind them: constraints in nobody's words, errors
    /// nobody saw, changes nobody made.
    pub unfounded: u64,
    /// How many were dropped for looking like a key or a password.
    pub secrets: u64,
    /// Examples of what was dropped, and why. What looks like a secret is not among them.
    pub dropped: Vec<Dropped>,
    /// Must-keep items that the draft did not have and code put in.
    pub restored: BTreeMap<Section, u64>,
    /// Items that the draft says no longer hold, which are counted from now on and no longer told.
    pub superseded: Vec<Superseded>,
    /// Items that the draft wanted superseded, and that stay.
    pub kept: Vec<Kept>,
    /// Calls that nothing came back from.
    pub pending: u64,
    /// Sections that say something.
    pub filled: Vec<Section>,
    /// Lines of the draft that belong to no section, or are code.
    pub unread: u64,
    /// Items made by code, from the span's own words, that look like they hold a key or a password: the extractor takes
    /// words as they are.
    pub secrets_in_source: u64,
}

/// An item of a draft that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Where the draft had it.
    pub section: Section,
    /// What it said, its beginning.
    pub text: String,
    /// What it named that is nowhere in the span; nothing if it was dropped for having no words behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
}

/// An item that no longer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Superseded {
    /// Where it was.
    pub section: Section,
    /// What it said.
    pub text: String,
    /// Why it no longer holds.
    pub reason: String,
}

/// An item that a draft wanted superseded, and that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// What the draft called it.
    pub id: String,
    /// Why it stays.
    pub why: WhyKept,
}

/// Why an item stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyKept {
    /// There is no such item.
    Unknown,
    /// No reason was given, or one that names what is nowhere in the span.
    NoReason,
    /// Only the user's words, or what a tool did, can take it back.
    NotTheModels,
    /// The span itself speaks of it again.
    StillSpokenOf,
}

impl Report {
    pub(super) fn admit(&mut self, section: Section) {
        *self.admitted.entry(section).or_default() += 1;
    }

    pub(super) fn drop(&mut self, section: Section, text: &str, named: Option<String>) {
        match named {
            Some(_) => self.invented += 1,
            None => self.unfounded += 1,
        }
        if self.dropped.len() < EXAMPLES {
            let text = crate::summary::one_line(text, 160);
            self.dropped.push(Dropped { section, text, named });
        }
    }

    pub(super) fn keep(&mut self, id: &str, why: WhyKept) {
        if self.kept.len() < EXAMPLES {
            self.kept.push(Kept { id: id.to_owned(), why });
        }
    }

    pub(super) fn supersede(&mut self, superseded: Superseded) {
        self.superseded.push(superseded);
    }
}
