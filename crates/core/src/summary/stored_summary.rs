//! Summaries as they stand in logs, those of earlier versions too.

use serde::Deserialize;

use super::{
    FoldedItems, FoldedRequest, IndexEntry, StructuredSummary, SummaryItem, Trail, TrailEntry, TrailKind,
};
use crate::{id::Seq, seq_set::SeqSet, standing_context::StandingContext};

/// A summary as it was written down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSummary {
    items: Vec<SummaryItem>,
    #[serde(default)]
    folded: Vec<FoldedItems>,
    #[serde(default)]
    trail: Trail,
    #[serde(default)]
    carried_trail: Trail,
    #[serde(default)]
    index: Vec<IndexEntry>,
    #[serde(default)]
    standing: StandingContext,
    #[serde(default)]
    focus: Option<String>,
    /// What users said, where there was no trail yet.
    #[serde(default)]
    voice: StoredQuotes,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredQuotes {
    said: Vec<StoredQuote>,
    #[serde(default)]
    untold: SeqSet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredQuote {
    at: Seq,
    text: String,
    /// `beginning` if there was more.
    extent: String,
    /// `client` if a client wrote it.
    #[serde(default)]
    hand: String,
}

impl From<StoredSummary> for StructuredSummary {
    fn from(stored: StoredSummary) -> Self {
        let StoredSummary { items, folded, trail, carried_trail, index, standing, focus, voice } = stored;
        let trail = if trail.is_empty() { voice.into_trail() } else { trail };
        Self { items, folded, trail, carried_trail, index, standing, focus }
    }
}

impl StoredQuotes {
    fn into_trail(self) -> Trail {
        let untold = self.untold.first().zip(self.untold.last()).map(|(first, last)| {
            let requests = self.untold.count();
            let folded = FoldedRequest { last, requests, ..FoldedRequest::default() };
            TrailEntry { at: first, what: TrailKind::Request(folded) }
        });
        let said = self.said.into_iter().map(|StoredQuote { at, mut text, extent, hand }| {
            if extent == "beginning" {
                text.push('…');
            }
            let what = if hand == "client" { TrailKind::Client { text } } else { TrailKind::User { text } };
            TrailEntry { at, what }
        });
        let mut entries: Vec<TrailEntry> = untold.into_iter().chain(said).collect();
        entries.sort_by_key(|entry| entry.at);
        Trail { entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_an_earlier_version_is_read_with_what_users_said_as_its_trail() {
        let json = r#"{"items":[],"voice":{"said":[{"at":1,"text":"Add a cache.","extent":"whole"},
            {"at":9,"text":"<a>","extent":"beginning","hand":"client"}],"untold":[[3,5]]}}"#;
        let brief: StructuredSummary = serde_json::from_str(json).unwrap();
        let told: Vec<(Seq, &TrailKind)> =
            brief.trail.entries.iter().map(|entry| (entry.at, &entry.what)).collect();
        let untold = FoldedRequest { last: Seq(5), requests: 3, ..FoldedRequest::default() };
        assert_eq!(
            told,
            [
                (Seq(1), &TrailKind::User { text: "Add a cache.".to_owned() }),
                (Seq(3), &TrailKind::Request(untold)),
                (Seq(9), &TrailKind::Client { text: "<a>…".to_owned() }),
            ]
        );
        let written = serde_json::to_string(&brief).unwrap();
        assert_eq!(serde_json::from_str::<StructuredSummary>(&written).unwrap(), brief);
        assert!(serde_json::from_str::<StructuredSummary>(r#"{"items":[],"unknown":1}"#).is_err());
    }
}
