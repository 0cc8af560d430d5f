//! What became of a draft, item by item, in numbers and examples: for the audit, and for whoever asks why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parsed_draft::DraftItem;
use crate::{
    id::Seq,
    summary::{SummaryItem, SummarySection, one_line},
};

/// How many examples of a kind are told; all are counted.
const EXAMPLES: usize = 40;

/// What became of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftReport {
    /// How many items the draft had in the sections that are a model's.
    pub items: u64,
    /// Items of the draft that are in the summary now.
    pub admitted: BTreeMap<SummarySection, u64>,
    /// How many only said what the summary says already.
    pub repeated: u64,
    /// How many were dropped because the agent said no such thing.
    pub unfounded: u64,
    /// How many were dropped because the session says or shows otherwise later on.
    pub refuted: u64,
    /// How many were dropped for looking like a key or a password.
    pub secrets: u64,
    /// Examples of what was dropped, and why. What looks like a secret is not among them.
    pub dropped: Vec<DroppedItem>,
    /// What a model once said and the span speaks against: counted from now on and no longer told.
    pub retired: Vec<DroppedItem>,
    /// Lines of the draft that are not a model's to write, belong to no section, or are code.
    pub unread: u64,
}

/// An item that a model wrote, now or once, and that is not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedItem {
    /// Where it was.
    pub section: SummarySection,
    /// What it said, its beginning.
    pub text: String,
    /// The event that speaks against it; nothing if the agent never said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Seq>,
}

impl DraftReport {
    pub(super) fn drop(&mut self, item: &DraftItem, by: Option<Seq>) {
        match by {
            Some(_) => self.refuted += 1,
            None => self.unfounded += 1,
        }
        if self.dropped.len() < EXAMPLES {
            let number = item.chosen.filter(|_| item.text.is_empty()).map(|number| number.to_string());
            let text = number.unwrap_or_else(|| one_line(&item.text, 160));
            self.dropped.push(DroppedItem { section: item.section, text, by });
        }
    }

    pub(super) fn retire(&mut self, item: &SummaryItem, by: Seq) {
        self.retired.push(DroppedItem { section: item.section, text: item.text.clone(), by: Some(by) });
    }
}
