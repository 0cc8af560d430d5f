//! Record of a client's request: with the log and the plan in force, everything needed to write it again.

use std::{borrow::Cow, collections::BTreeMap};

use epitome_core::{Digest, Seq, ThreadId, Tokens};
use epitome_store::{Store, StoreError, records::HashedText};
use epitome_wire::{history_rewrite::without_cache_marks, render::CacheBreakpoints};
use serde::{Deserialize, Serialize};

use crate::session::{SessionError, thread_reading::parse};

/// Longest text that is stored in the record itself.
const MAX_INLINE_BYTES: usize = 160;

/// Record of a client's request. An absent field has the value it had for the call before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewriteRecord {
    /// Number of units in its history.
    pub(crate) units: usize,
    /// Compaction by the client that the first units stand for, and the number of those units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lead: Option<(Seq, usize)>,
    /// Tokens that the whole request would cost.
    pub(crate) full: Tokens,
    /// Parts before the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Vec<EnvelopeChunk>>,
    /// Parts after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Vec<EnvelopeChunk>>,
    /// Separator between two items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) between: Option<String>,
    /// Units that came in another form than before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) forms: BTreeMap<usize, UnitEncoding>,
    /// Cache marks that were placed because the client asked for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marks: Option<CacheBreakpoints>,
    /// True if the model was offered a tool by which it gets back parts that were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recall: bool,
    /// True if it contained a key, which is not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blanked: bool,
}

impl RewriteRecord {
    /// Returns true if the model of a call with this record was offered the recall tool.
    pub(crate) fn offers_recall(script: &str) -> bool {
        serde_json::from_str::<Self>(script).is_ok_and(|script| script.recall)
    }

    /// Returns true if a call with this record can be made again: one with keys that were not recorded cannot.
    pub(crate) fn is_whole(script: &str) -> bool {
        serde_json::from_str::<Self>(script).is_ok_and(|script| !script.blanked)
    }
}

/// A piece of the parts around a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EnvelopeChunk {
    /// This text.
    Text(String),
    /// The content with this hash.
    Content(Digest),
}

impl EnvelopeChunk {
    /// A text as a chunk, and the content to store if it is kept as one.
    pub(crate) fn of(text: &str) -> (Self, Option<HashedText>) {
        if text.len() <= MAX_INLINE_BYTES {
            return (Self::Text(text.to_owned()), None);
        }
        let content = HashedText::new(text);
        (Self::Content(content.hash), Some(content))
    }

    /// Its text.
    pub(crate) fn text<'c>(&'c self, store: &dyn Store) -> Result<Cow<'c, str>, StoreError> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::Content(hash) => {
                store.content(*hash)?.map(Cow::Owned).ok_or(StoreError::UnknownContent(*hash))
            }
        }
    }
}

/// Form in which a client sends a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnitEncoding {
    /// As it is in the log.
    Logged,
    /// The same, without cache marks.
    Unmarked,
    /// In other words.
    Text(EnvelopeChunk),
}

impl UnitEncoding {
    /// Compares `sent` with `logged`, the log's form of the unit, if it has one.
    pub(crate) fn of(sent: &str, logged: Option<&str>) -> (Self, Option<HashedText>) {
        match logged {
            Some(logged) if logged == sent => (Self::Logged, None),
            Some(logged) if without_cache_marks(logged) == sent => (Self::Unmarked, None),
            _ => {
                let (chunk, content) = EnvelopeChunk::of(sent);
                (Self::Text(chunk), content)
            }
        }
    }

    /// The bytes that were sent; `None` if they depend on the log and it does not have them.
    pub(crate) fn sent<'f>(
        &'f self,
        store: &dyn Store,
        logged: Option<&'f str>,
    ) -> Result<Option<Cow<'f, str>>, StoreError> {
        Ok(match self {
            Self::Logged => logged.map(Cow::Borrowed),
            Self::Unmarked => logged.map(without_cache_marks),
            Self::Text(chunk) => Some(chunk.text(store)?),
        })
    }
}

/// Returns true if the records read so far replace everything in older ones.
fn is_all(newest_first: &[RewriteRecord]) -> bool {
    let Some((newest, oldest)) = newest_first.first().zip(newest_first.last()) else { return false };
    newest.lead != oldest.lead
        && newest_first.iter().any(|script| script.before.is_some())
        && newest_first.iter().any(|script| script.after.is_some())
        && newest_first.iter().any(|script| script.between.is_some())
}

/// The combined state of a thread's records.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergedRewriteRecord {
    pub(crate) last: RewriteRecord,
    pub(crate) before: Vec<EnvelopeChunk>,
    pub(crate) after: Vec<EnvelopeChunk>,
    pub(crate) between: String,
    pub(crate) forms: BTreeMap<usize, UnitEncoding>,
}

/// Number of records read at a time.
const PAGE: usize = 64;

impl MergedRewriteRecord {
    /// Combines the records of a thread, and returns the number and the rendering of the last. Of those before a
    /// compaction by the client only parts still in force are read.
    pub(crate) fn read(
        store: &dyn Store,
        thread: ThreadId,
    ) -> Result<(Self, Option<(u64, Digest)>), SessionError> {
        let mut newest_first: Vec<RewriteRecord> = Vec::new();
        let (mut last, mut before) = (None, u64::MAX);
        while !is_all(&newest_first) {
            let page = store.rewrite_records_before(thread, before, PAGE)?;
            let full = page.len() == PAGE;
            for (number, rendering, script) in page {
                newest_first.push(parse::<RewriteRecord>("script", number, &script)?);
                last.get_or_insert((number, rendering));
                before = number;
            }
            if !full {
                break;
            }
        }
        let mut taken = Self::default();
        for script in newest_first.into_iter().rev() {
            taken.take(script);
        }
        Ok((taken, last))
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, mut script: RewriteRecord) {
        if script.lead != self.last.lead {
            // A compaction by the client begins another history, in which the old units' forms do not count.
            self.forms.clear();
        }
        self.forms.append(&mut script.forms);
        if let Some(before) = script.before.take() {
            self.before = before;
        }
        if let Some(after) = script.after.take() {
            self.after = after;
        }
        if let Some(between) = script.between.take() {
            self.between = between;
        }
        self.last = script;
    }
}
