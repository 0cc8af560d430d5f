//! Cache of the threads under observation: the newest, as many as a bound on their size allows.

use std::collections::VecDeque;

use epitome_core::{ThreadId, Tokens};

/// Most threads that are kept, however small they are.
const THREADS: usize = 512;

/// Values by thread, the newest last.
#[derive(Debug)]
pub(crate) struct ThreadLru<T> {
    entries: VecDeque<LruEntry<T>>,
    weight: Tokens,
    /// Largest total weight.
    most: Tokens,
}

#[derive(Debug)]
struct LruEntry<T> {
    thread: ThreadId,
    weight: Tokens,
    value: T,
}

impl<T> ThreadLru<T> {
    /// An empty cache that never holds more than `most`.
    pub(crate) fn new(most: Tokens) -> Self {
        Self { entries: VecDeque::new(), weight: Tokens(0), most }
    }

    /// Takes out the value of a thread.
    pub(crate) fn take(&mut self, thread: ThreadId) -> Option<T> {
        let at = self.entries.iter().rposition(|entry| entry.thread == thread)?;
        let entry = self.entries.remove(at)?;
        self.weight = self.weight.less(entry.weight);
        Some(entry.value)
    }

    /// The value of a thread, which becomes the newest.
    pub(crate) fn get(&mut self, thread: ThreadId) -> Option<&T> {
        let at = self.entries.iter().rposition(|entry| entry.thread == thread)?;
        let entry = self.entries.remove(at)?;
        self.entries.push_back(entry);
        self.entries.back().map(|entry| &entry.value)
    }

    /// Keeps the value of a thread in place of an older one, and evicts the oldest values beyond the bound.
    /// The newest stays, whatever its size.
    pub(crate) fn put(&mut self, thread: ThreadId, value: T, weight: Tokens) {
        drop(self.take(thread));
        self.entries.push_back(LruEntry { thread, weight, value });
        self.weight += weight;
        while self.entries.len() > 1 && (self.weight > self.most || self.entries.len() > THREADS) {
            if let Some(oldest) = self.entries.pop_front() {
                self.weight = self.weight.less(oldest.weight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Tokens = Tokens(8_000);

    fn thread(number: usize) -> ThreadId {
        ThreadId::derived(&["kept", &number.to_string()])
    }

    #[test]
    fn the_oldest_go_when_it_is_too_much() {
        let mut kept = ThreadLru::new(MOST);
        for number in 0..5 {
            kept.put(thread(number), number, Tokens(MOST.0 / 4));
        }
        assert_eq!(kept.take(thread(0)), None);
        assert_eq!(kept.take(thread(1)), Some(1));
        assert_eq!(kept.take(thread(1)), None);
        kept.put(thread(9), 9, MOST);
        assert_eq!(kept.entries.len(), 1);
        assert_eq!((kept.take(thread(9)), kept.weight), (Some(9), Tokens(0)));
    }

    #[test]
    fn small_ones_are_counted_too() {
        let mut kept = ThreadLru::new(MOST);
        for number in 0..(THREADS + 3) {
            kept.put(thread(number), number, Tokens(1));
            kept.put(thread(number), number, Tokens(1));
        }
        assert_eq!((kept.entries.len(), kept.weight), (THREADS, Tokens(THREADS as u64)));
    }
}
