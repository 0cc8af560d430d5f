//! What was read before: a span is summarised again with other caps or another end, and says the same.

use std::{collections::HashMap, rc::Rc};

use super::{
    TrailEntry,
    sentences::{Sentence, sentences},
};
use crate::id::Seq;

/// How many bytes of messages are remembered: read, they take some ten times as much.
const REMEMBERED: usize = 4 << 20;

/// The sentences of a thread's messages, and its calls.
#[derive(Debug, Default)]
pub(super) struct ReadingCache {
    read: HashMap<Seq, Rc<[Sentence]>>,
    bytes: usize,
    calls: HashMap<Seq, Rc<[TrailEntry]>>,
}

impl ReadingCache {
    /// The sentences of what an event says, which is always the same.
    pub(super) fn sentences(&mut self, at: Seq, text: &str) -> Rc<[Sentence]> {
        if let Some(read) = self.read.get(&at) {
            return Rc::clone(read);
        }
        let read: Rc<[Sentence]> = sentences(text).into();
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes <= REMEMBERED {
            self.read.insert(at, Rc::clone(&read));
        }
        read
    }

    /// What a trail tells of the calls that an event made. They are never parted from their results, so that they are the
    /// same in every span that holds them.
    pub(super) fn calls(&mut self, at: Seq, read: impl FnOnce() -> Vec<TrailEntry>) -> Rc<[TrailEntry]> {
        Rc::clone(self.calls.entry(at).or_insert_with(|| read().into()))
    }
}
