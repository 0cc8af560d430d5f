//! The client's real use of its cache, as far as the provider's reports show it.
//!
//! A profile holds a cache's promises, which a client need not get: some clients do not use the cache, some
//! change their first message with every call, some have their entries live for an hour. The read tokens that
//! a provider reports show it.

use serde::{Deserialize, Serialize};

use crate::{event::Usage, tokens::Tokens};

/// Calls in a row after which a cache that was not read is no longer believed in. One or two may miss it by chance: an
/// entry was evicted, or two calls were made at once.
const UNREAD: u64 = 3;

/// The lifetime of entries that are charged as written for an hour, in seconds.
const HOUR: u64 = 3_600;

/// Observations from the calls of a session about the provider's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheObservations {
    /// The newest calls in a row that read less than half of the previous call's prompt.
    unread: u64,
    /// The longest pause, in seconds, after which more than half of it was still read.
    outlived: u64,
    /// True if the newest entries were written for an hour.
    is_hourly: bool,
}

/// A call that extends the one before it, and could read its prompt from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheableCall {
    /// Size of the previous call, by our count.
    pub sent: Tokens,
    /// Size of this call, by our count.
    pub size: Tokens,
    /// The time since the call before, in seconds.
    pub pause: u64,
    /// Lifetime of entries in seconds; `None` if unknown.
    pub lifetime: Option<u64>,
}

impl CacheObservations {
    /// Takes the provider's count of a call. `chance` is the part that it could have read; `None` if the
    /// prompt was changed on purpose.
    pub fn observe(&mut self, usage: &Usage, chance: Option<CacheableCall>) {
        if usage.cache_write > Tokens(0) {
            self.is_hourly = usage.cache_write_hour.0.saturating_mul(2) > usage.cache_write.0;
        }
        let Some(CacheableCall { sent, size, pause, lifetime }) = chance else { return };
        // A report of much less than was sent is about something else.
        if usage.input().0.saturating_mul(2) < size.0 {
            return;
        }
        if usage.cache_read.0.saturating_mul(2) > sent.0 {
            self.unread = 0;
            self.outlived = self.outlived.max(pause);
        } else if lifetime.is_none_or(|lifetime| pause <= self.lifetime(lifetime)) {
            self.unread = self.unread.saturating_add(1);
        }
    }

    /// Returns true if the cache's content is unknown, because it was not read when it could have been.
    pub fn is_unread(&self) -> bool {
        self.unread >= UNREAD
    }

    /// Lifetime in seconds that is requested for entries; `None` for the usual time.
    pub fn requested_lifetime(&self) -> Option<u64> {
        self.is_hourly.then_some(HOUR)
    }

    /// For how many seconds entries live that are said to live for `usual`.
    pub fn lifetime(&self, usual: u64) -> u64 {
        usual.max(self.requested_lifetime().unwrap_or_default()).max(self.outlived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(read: u64, written: u64, hour: u64) -> Usage {
        Usage {
            cache_read: Tokens(read),
            cache_write: Tokens(written),
            cache_write_hour: Tokens(hour),
            ..Usage::default()
        }
    }

    fn after(pause: u64) -> CacheableCall {
        CacheableCall { sent: Tokens(900), size: Tokens(1_000), pause, lifetime: Some(300) }
    }

    #[test]
    fn a_cache_that_three_calls_in_a_row_did_not_read_is_not_believed_in_until_one_does() {
        let mut cache = CacheObservations::default();
        for _ in 0..2 {
            cache.observe(&usage(0, 1_000, 0), Some(after(10)));
        }
        cache.observe(&usage(900, 100, 0), Some(after(10)));
        assert!(!cache.is_unread());
        for _ in 0..3 {
            assert!(!cache.is_unread());
            cache.observe(&usage(100, 900, 0), Some(after(10)));
        }
        assert!(cache.is_unread());
        cache.observe(&usage(900, 100, 0), Some(after(10)));
        assert!(!cache.is_unread());
    }

    #[test]
    fn a_pause_a_change_and_a_count_of_something_else_prove_nothing() {
        let mut cache = CacheObservations::default();
        for _ in 0..9 {
            cache.observe(&usage(0, 1_000, 0), Some(after(301)));
            cache.observe(&usage(0, 1_000, 0), None);
            cache.observe(&usage(0, 5, 0), Some(after(10)));
        }
        assert_eq!(cache, CacheObservations::default());
    }

    #[test]
    fn entries_live_as_long_as_they_were_written_for_or_were_seen_to() {
        let mut cache = CacheObservations::default();
        assert_eq!(cache.lifetime(300), 300);
        cache.observe(&usage(900, 100, 0), Some(after(700)));
        assert_eq!(cache.lifetime(300), 700);
        cache.observe(&usage(900, 100, 100), Some(after(10)));
        assert_eq!(cache.lifetime(300), 3_600);
        cache.observe(&usage(900, 100, 0), Some(after(10)));
        assert_eq!(cache.lifetime(300), 700);
    }
}
