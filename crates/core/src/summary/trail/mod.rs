//! The trail: what happened, in order, each thing in as many words as there is room for.
//!
//! It is copied from the events and never told in other words, so there is nothing in it to invent, and it works for any
//! tool and any language. Every entry stays until there is no room for even its shortest form; the oldest requests are
//! then folded into what was asked, what was done and what came of it. A trail is made at a reset and carried to the next
//! one, where it can only become shorter: what was left out is in the log.

mod cut;
mod entry_lengths;
mod fold;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use self::{
    cut::{CUT_MARK, visit_texts, whole_words, without_middle},
    write::without_tags,
};
use crate::{id::Seq, seq_set::SeqSet};

/// What happened in a span of a session, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trail {
    /// What happened.
    pub entries: Vec<TrailEntry>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrailEntry {
    /// The event in which it is found again: a message, the result of a call, or the first of a folded request.
    pub at: Seq,
    /// What happened.
    pub what: TrailKind,
}

/// What an entry tells of. Texts may have been cut in their middle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TrailKind {
    /// The user spoke.
    User {
        /// The words.
        text: String,
    },
    /// The client wrote something in the user's name.
    Client {
        /// The beginning of it.
        text: String,
    },
    /// The assistant spoke.
    Assistant {
        /// The words.
        text: String,
        /// Whether it then called tools or handed over to the user.
        part: AnswerPart,
    },
    /// A tool was called.
    Call(TrailCall),
    /// A request of the user from long ago, with everything that was done for it.
    Request(FoldedRequest),
}

/// Which part of the work an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerPart {
    /// Tools are called with it.
    Remark,
    /// Nothing is called: it reports to the user.
    Report,
}

/// A call of a tool and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrailCall {
    /// The tool.
    pub tool: String,
    /// What it was given, as JSON or as free text.
    pub arguments: String,
    /// What it did.
    pub effect: CallEffect,
    /// What it was about, by which a later call makes this one's output outdated: a path, or the call itself.
    pub subject: String,
    /// How it ended.
    pub ending: CallEnding,
    /// What it returned; empty if that is no longer told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How many lines it returned.
    #[serde(default)]
    pub lines: u64,
}

/// What a call did, as far as that says what its output is good for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEffect {
    /// It read a file: the output is the file's text.
    Read,
    /// It changed a file: the arguments hold the file's new text.
    Changed,
    /// Anything else.
    Other,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnding {
    /// It is not known to have failed.
    Returned,
    /// It failed, in these words.
    Failed(String),
    /// Nothing came back.
    Unanswered,
}

/// A request that is told as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldedRequest {
    /// The last event of it.
    pub last: Seq,
    /// How many requests these were: more than one, if even folded they were too many.
    pub requests: u64,
    /// The beginning of the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// How often each tool was called.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// Which files were changed, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The beginning of the last report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub concluded: String,
}

impl Trail {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The calls it tells of, with their events.
    pub(super) fn calls(&self) -> impl Iterator<Item = (Seq, &TrailCall)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            TrailKind::Call(call) => Some((entry.at, call)),
            _ => None,
        })
    }

    /// Shows every text in it to `see`.
    pub(super) fn visit_texts<'t>(&'t self, see: &mut impl FnMut(&'t str)) {
        self.entries.iter().for_each(|entry| entry.visit_texts(see));
    }

    /// The events it tells of: of a folded request all, if it says what was called.
    pub(super) fn events(&self) -> SeqSet {
        let told = self.entries.iter().map(|entry| match &entry.what {
            TrailKind::Request(request) if !request.calls.is_empty() => SeqSet::run(entry.at, request.last),
            _ => SeqSet::one(entry.at),
        });
        SeqSet::union(&told.collect::<Vec<_>>())
    }

    /// How long it is, about, as it is written.
    pub(super) fn letters(&self) -> usize {
        entry_lengths::letters(&self.entries)
    }

    /// What of it happened before an event. A folded request that goes on behind it is told without its end.
    pub(super) fn before(&self, seq: Seq) -> Self {
        let entries = self.entries.iter().filter(|entry| entry.at < seq).cloned().map(|mut entry| {
            if let TrailKind::Request(request) = &mut entry.what
                && request.last >= seq
            {
                *request = FoldedRequest {
                    last: seq.previous(),
                    asked: std::mem::take(&mut request.asked),
                    requests: 1,
                    ..FoldedRequest::default()
                };
            }
            entry
        });
        Self { entries: entries.collect() }
    }
}

impl TrailEntry {
    /// Shows every text in it to `see`.
    pub(super) fn visit_texts<'t>(&'t self, see: &mut impl FnMut(&'t str)) {
        match &self.what {
            TrailKind::User { text } | TrailKind::Client { text } | TrailKind::Assistant { text, .. } => {
                see(text);
            }
            TrailKind::Call(call) => {
                see(&call.arguments);
                see(&call.output);
            }
            TrailKind::Request(request) => {
                see(&request.asked);
                see(&request.concluded);
                request.changed.iter().for_each(|path| see(path));
            }
        }
    }
}
