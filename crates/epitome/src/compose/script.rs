//! How a client's request was taken over: with the log and the plan in force, all that is needed to write it again.

use std::{borrow::Cow, collections::BTreeMap};

use epitome_core::{Digest, Seq, ThreadId, Tokens};
use epitome_store::{Sqlite, StoreError, records::Content};
use epitome_wire::{render::Breakpoints, weave::unmarked};
use serde::{Deserialize, Serialize};

use crate::session::{SessionError, reading::parse};

/// Texts up to this length stand in a script themselves.
const SHORT: usize = 160;

/// How a client's request was taken over. What is absent is as it was for the call before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// How many units its history had.
    pub(crate) units: usize,
    /// The compaction by the client that the first of them are, and how many that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lead: Option<(Seq, usize)>,
    /// What the whole of it would cost.
    pub(crate) full: Tokens,
    /// What stands before the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Vec<Chunk>>,
    /// What stands after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Vec<Chunk>>,
    /// What stands between two items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) between: Option<String>,
    /// Units that came in another form than before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) forms: BTreeMap<usize, Form>,
    /// Cache marks that were placed because the client asked for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marks: Option<Breakpoints>,
    /// Whether the model was offered a tool by which it gets back what was left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recall: bool,
    /// Whether something in it was a key, which is not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blanked: bool,
}

impl Script {
    /// Whether the model of a call that was woven like this was offered the recall tool.
    pub(crate) fn offers_recall(script: &str) -> bool {
        serde_json::from_str::<Self>(script).is_ok_and(|script| script.recall)
    }

    /// Whether a call that was woven like this can be asked once more: what was not recorded cannot.
    pub(crate) fn is_whole(script: &str) -> bool {
        serde_json::from_str::<Self>(script).is_ok_and(|script| !script.blanked)
    }
}

/// A piece of what stands around a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chunk {
    /// This text.
    Text(String),
    /// The content with this hash.
    Content(Digest),
}

impl Chunk {
    /// A text, as a chunk; the content if it is to be kept as one.
    pub(crate) fn of(text: &str) -> (Self, Option<Content>) {
        if text.len() <= SHORT {
            return (Self::Text(text.to_owned()), None);
        }
        let content = Content::new(text);
        (Self::Content(content.hash), Some(content))
    }

    /// Its text.
    pub(crate) fn text<'c>(&'c self, store: &Sqlite) -> Result<Cow<'c, str>, StoreError> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::Content(hash) => {
                store.content(*hash)?.map(Cow::Owned).ok_or(StoreError::UnknownContent(*hash))
            }
        }
    }
}

/// In which form a client sends a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// As the log has it.
    Logged,
    /// The same, without cache marks.
    Unmarked,
    /// In other words.
    Text(Chunk),
}

impl Form {
    /// The form in which `sent` is what the log has as `logged`, if it has it.
    pub(crate) fn of(sent: &str, logged: Option<&str>) -> (Self, Option<Content>) {
        match logged {
            Some(logged) if logged == sent => (Self::Logged, None),
            Some(logged) if unmarked(logged) == sent => (Self::Unmarked, None),
            _ => {
                let (chunk, content) = Chunk::of(sent);
                (Self::Text(chunk), content)
            }
        }
    }

    /// What was sent; `None` if the log would have to tell and cannot.
    pub(crate) fn sent<'f>(
        &'f self,
        store: &Sqlite,
        logged: Option<&'f str>,
    ) -> Result<Option<Cow<'f, str>>, StoreError> {
        Ok(match self {
            Self::Logged => logged.map(Cow::Borrowed),
            Self::Unmarked => logged.map(unmarked),
            Self::Text(chunk) => Some(chunk.text(store)?),
        })
    }
}

/// Whether nothing that older scripts say holds any more.
fn is_all(newest_first: &[Script]) -> bool {
    let Some((newest, oldest)) = newest_first.first().zip(newest_first.last()) else { return false };
    newest.lead != oldest.lead
        && newest_first.iter().any(|script| script.before.is_some())
        && newest_first.iter().any(|script| script.after.is_some())
        && newest_first.iter().any(|script| script.between.is_some())
}

/// What the scripts of a thread come to, one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) last: Script,
    pub(crate) before: Vec<Chunk>,
    pub(crate) after: Vec<Chunk>,
    pub(crate) between: String,
    pub(crate) forms: BTreeMap<usize, Form>,
}

/// How many scripts are read at a time.
const PAGE: usize = 64;

impl Taken {
    /// What the scripts of a thread come to, and the number and the rendering of the last. Of those before a compaction by the
    /// client only what still holds is read.
    pub(crate) fn read(
        store: &Sqlite,
        thread: ThreadId,
    ) -> Result<(Self, Option<(u64, Digest)>), SessionError> {
        let mut newest_first: Vec<Script> = Vec::new();
        let (mut last, mut before) = (None, u64::MAX);
        while !is_all(&newest_first) {
            let page = store.scripts_before(thread, before, PAGE)?;
            let full = page.len() == PAGE;
            for (number, rendering, script) in page {
                newest_first.push(parse::<Script>("script", number, &script)?);
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

    /// Takes the next script.
    pub(crate) fn take(&mut self, mut script: Script) {
        if script.lead != self.last.lead {
            // Another history: what the units of the old one looked like is nothing to it.
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
