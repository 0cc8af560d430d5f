//! A memo of the properties of pieces of requests, looked up by their bytes alone.
//!
//! A history is sent again with every call, so nearly all of it was seen before. Entries live in two generations:
//! those that are not asked for while the newer one fills are forgotten with the older.
//!
//! If someone could make two texts with one key, one of them would be taken for the other. Keys never leave the
//! process, so they need not be digests that others could compute: they are HighwayHash under a secret, a
//! pseudorandom function three to ten times as fast as BLAKE3. Without the secret no one can tell which texts would
//! collide, and by chance none do: keys have 128 bits.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use highway::{HighwayHash, HighwayHasher};

use super::{piece_properties::PieceProperties, prefix_memo::PrefixMemo};
use crate::format::Format;

/// Properties of the pieces that a key stands for: of one, or of every item of a run.
pub(super) type MemoEntry = Arc<[Arc<PieceProperties>]>;

/// Digests of messages that were seen before, by their bytes. Shared by all requests of a process; bounded.
#[derive(Debug)]
pub struct MessageMemo {
    generations: Mutex<GenerationMap<MemoEntry>>,
    pub(super) beginnings: PrefixMemo,
    secret: MemoSecret,
    /// Largest weight of the newer generation.
    pub(super) most: usize,
}

/// Kind of a piece, part of its key: the same bytes may have several meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PieceKind {
    /// An item of the history.
    Item,
    /// Consecutive items of the history.
    Run,
    /// The beginning of a history.
    Beginning,
    /// A history that is only a string.
    Bare,
    /// The system prompt.
    System,
    /// The tool definitions.
    Tools,
    /// A setting.
    Setting,
}

/// Key of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemoKey {
    format: Format,
    place: PieceKind,
    bytes: [u64; 2],
}

impl MemoKey {
    pub(super) fn new(format: Format, place: PieceKind, bytes: [u64; 2]) -> Self {
        Self { format, place, bytes }
    }
}

/// Secret for the keys; every memo has its own.
struct MemoSecret([u64; 4]);

impl MemoSecret {
    fn random() -> Self {
        // The system's randomness, by way of the standard library's own keyed hash.
        let random = RandomState::new();
        Self([0_u64, 1, 2, 3].map(|part| random.hash_one(part)))
    }
}

impl fmt::Debug for MemoSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Entries by key, in two generations. Entries that were not asked for while the newer one filled are dropped with
/// the older one.
#[derive(Debug)]
pub(super) struct GenerationMap<T> {
    newer: HashMap<MemoKey, T>,
    older: HashMap<MemoKey, T>,
    /// Weight of the newer generation.
    weight: usize,
}

/// Weight of an entry against the bound of a memo.
pub(super) trait MemoWeight: Clone {
    /// The weight, in messages.
    fn weight(&self) -> usize;
}

impl MemoWeight for MemoEntry {
    fn weight(&self) -> usize {
        self.iter().map(|known| known.weight()).sum()
    }
}

impl<T> Default for GenerationMap<T> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), weight: 0 }
    }
}

impl MessageMemo {
    /// Makes a memo for about `messages` messages.
    pub fn new(messages: usize) -> Self {
        let most = messages.div_ceil(2).max(1);
        Self {
            generations: Mutex::default(),
            beginnings: PrefixMemo::default(),
            secret: MemoSecret::random(),
            most,
        }
    }

    /// Key of a piece in this memo.
    pub(super) fn key(&self, format: Format, place: PieceKind, raw: &str) -> MemoKey {
        MemoKey::new(format, place, self.hasher().hash128(raw.as_bytes()))
    }

    /// Hasher for the keys.
    pub(super) fn hasher(&self) -> HighwayHasher {
        HighwayHasher::new(highway::Key(self.secret.0))
    }

    /// Properties of each of `keys`, if known.
    pub(super) fn find(&self, keys: &[MemoKey]) -> Vec<Option<MemoEntry>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| generations.find(key, self.most)).collect()
    }

    /// Remembers pieces that were not known.
    pub(super) fn keep(&self, fresh: Vec<(MemoKey, MemoEntry)>) {
        if fresh.is_empty() {
            return;
        }
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, known) in fresh {
            generations.keep(key, known, self.most);
        }
    }
}

impl Default for MessageMemo {
    /// Remembers the histories of about a hundred long sessions, in some fifteen megabytes.
    fn default() -> Self {
        Self::new(1 << 15)
    }
}

#[cfg(test)]
impl<T> GenerationMap<T> {
    pub(super) fn remembered(&self) -> impl Iterator<Item = &T> {
        self.newer.values().chain(self.older.values())
    }
}

impl<T: MemoWeight> GenerationMap<T> {
    pub(super) fn find(&mut self, key: &MemoKey, most: usize) -> Option<T> {
        if let Some(known) = self.newer.get(key) {
            return Some(known.clone());
        }
        let known = self.older.remove(key)?;
        self.keep(*key, known.clone(), most);
        Some(known)
    }

    /// Remembers an entry, in place of a different one under the same key.
    pub(super) fn keep(&mut self, key: MemoKey, known: T, most: usize) {
        if self.weight >= most {
            self.older = mem::take(&mut self.newer);
            self.weight = 0;
        }
        self.weight += known.weight();
        if let Some(before) = self.newer.insert(key, known) {
            self.weight -= before.weight();
        }
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::Digest;

    use super::*;

    fn key(memo: &MessageMemo, name: &str) -> MemoKey {
        memo.key(Format::Anthropic, PieceKind::Item, name)
    }

    fn kept(count: usize) -> MemoEntry {
        (0..count).map(|_| Arc::new(PieceProperties::setting(Digest::of(b"")))).collect()
    }

    fn knows(memo: &MessageMemo, name: &str) -> bool {
        memo.find(&[key(memo, name)])[0].is_some()
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_is_forgotten() {
        let memo = MessageMemo::new(20);
        let see = |name: &str| memo.keep(vec![(key(&memo, name), kept(1))]);
        see("kept");
        for round in 0..10 {
            assert!(knows(&memo, "kept"), "{round}");
            for number in 0..7 {
                see(&format!("{round} {number}"));
            }
        }
        assert!(!knows(&memo, "0 0"));
        assert!(knows(&memo, "9 6"));
        let generations = memo.generations.lock().unwrap();
        assert!(generations.newer.len() + generations.older.len() <= 22);
    }

    #[test]
    fn a_run_counts_as_much_as_its_items() {
        let memo = MessageMemo::new(64);
        for number in 0..100 {
            memo.keep(vec![(key(&memo, &number.to_string()), kept(16))]);
            let generations = memo.generations.lock().unwrap();
            assert!(generations.newer.len() + generations.older.len() <= 4, "{number}");
        }
        assert!(knows(&memo, "99") && knows(&memo, "98") && !knows(&memo, "95"));
    }

    #[test]
    fn the_same_bytes_elsewhere_are_something_else() {
        let memo = MessageMemo::default();
        memo.keep(vec![(key(&memo, "x"), kept(1))]);
        let elsewhere = [
            memo.key(Format::OpenaiChat, PieceKind::Item, "x"),
            memo.key(Format::Anthropic, PieceKind::System, "x"),
            memo.key(Format::Anthropic, PieceKind::Run, "x"),
            memo.key(Format::Anthropic, PieceKind::Item, "y"),
        ];
        assert!(memo.find(&elsewhere).iter().all(Option::is_none));
    }

    #[test]
    fn the_same_bytes_have_another_key_in_another_memory() {
        let (one, other) = (MessageMemo::default(), MessageMemo::default());
        assert_eq!(key(&one, "x"), key(&one, "x"));
        assert_ne!(key(&one, "x"), key(&other, "x"));
        assert!(!format!("{one:?}").contains(&one.secret.0[0].to_string()));
    }
}
