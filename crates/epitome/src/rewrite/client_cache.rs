//! The cache that clients would have had, if their requests had gone on as they came.
//!
//! A provider's cache knows no sessions: any prefix that a client sent a moment ago is read again, wherever its
//! requests were placed here. So the prefix that would have been read is looked up among everything that a principal
//! sent to a model, by the digests of a request's units, one after another. Digests ignore changes that clients make
//! by themselves, so more counts as read than a provider would read: savings are understated rather than overstated.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use epitome_core::{Tokens, event::Timestamp};
use epitome_wire::incoming::{IncomingRequest, RequestFrame};

/// Number of request beginnings that are remembered: a few hundred sessions of a thousand messages, in about 12 MB.
const MAX_PREFIXES: usize = 1 << 18;

/// Number of principals remembered for requests that were passed on unread.
const PRINCIPALS: usize = 4_096;

/// Amount of a client's request that a cache would have held, had all of its requests gone on as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCache {
    /// This many tokens, from its beginning.
    Held(Tokens),
    /// As much as the provider reports for the request itself: no part was left out of it, nor of the one it extends.
    #[default]
    AsUsed,
    /// None: the client does not ask its provider for a cache, although the provider requires that.
    Unasked,
    /// Unknown, for this reason.
    Unknown(UnknownCacheReason),
}

/// Reason it is unknown how much a cache would have held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownCacheReason {
    /// The client may have sent the beginning before this process started or in a request that was passed on unread,
    /// or so much was sent since that it is forgotten.
    Unseen,
    /// By the provider's reports the client's cache is not read when it could be.
    Unread,
}

impl UnknownCacheReason {
    /// Name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Unread => "unread",
        }
    }

    /// The reason in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unseen => "what the client had sent before was not seen, or was forgotten",
            Self::Unread => "by the provider's reports the client's cache is not read when it could be",
        }
    }
}

/// Recent requests of clients, by their beginnings.
#[derive(Debug)]
pub(crate) struct ClientPrefixes {
    hashing: RandomState,
    inner: Mutex<ClientPrefixTable>,
}

#[derive(Debug, Default)]
struct ClientPrefixTable {
    /// Beginnings by a hash of the units, the principal and the model.
    beginnings: HashMap<u64, PrefixTimes>,
    most: usize,
    /// Time of the first request.
    first: Option<Timestamp>,
    /// Time at which a beginning was forgotten that a cache may still have held.
    forgot: Option<Timestamp>,
    /// Time of the last request that was passed on unread, by a hash of its principal.
    unread: HashMap<u64, Timestamp>,
}

/// Times at which a beginning was sent last.
#[derive(Clone, Copy, Debug)]
struct PrefixTimes {
    sent: Timestamp,
    /// As part of a request with no part left out.
    whole: Option<Timestamp>,
}

/// A request by its beginnings: one for the parts around its history, and one after each unit of that.
#[derive(Debug)]
pub(crate) struct RequestPrefixes {
    /// A hash of its principal.
    principal: u64,
    links: Vec<u64>,
}

/// The longest beginning of a request that a cache would have held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPrefix {
    /// Number of its units; `None` if not even the parts around the history were sent.
    pub(crate) units: Option<usize>,
    /// True if it went on as it came, so that the provider's cache held it, too.
    pub(crate) is_whole: bool,
    /// True if everything that was sent is remembered for as long as a cache lives.
    pub(crate) is_certain: bool,
    /// True if a request was passed on unread since: a cache may have held more.
    pub(crate) is_outdated: bool,
}

impl Default for ClientPrefixes {
    fn default() -> Self {
        Self::of_at_most(MAX_PREFIXES)
    }
}

impl ClientPrefixes {
    fn of_at_most(most: usize) -> Self {
        let inner = ClientPrefixTable { most, ..ClientPrefixTable::default() };
        Self { hashing: RandomState::new(), inner: Mutex::new(inner) }
    }

    /// The beginnings of a principal's request.
    pub(crate) fn beginnings(&self, principal: &str, seen: &IncomingRequest<'_>) -> RequestPrefixes {
        let model = seen.model();
        let around = (principal, model.as_ref().map(|model| model.0.as_str()), seen.instructions());
        let mut link = self.hashing.hash_one(around);
        let mut links = Vec::with_capacity(seen.units().len() + 1);
        links.push(link);
        for unit in seen.units() {
            link = self.hashing.hash_one((link, unit.digest));
            links.push(link);
        }
        RequestPrefixes { principal: self.hashing.hash_one(principal), links }
    }

    /// Notes that a client's request was relayed as it came. Until someone asks how much a cache would have held,
    /// nothing is remembered: a gateway that only records has no use for it.
    pub(crate) fn note_relayed(&self, principal: &str, seen: &IncomingRequest<'_>, now: Timestamp) {
        if self.inner().first.is_some() {
            self.note_sent(&self.beginnings(principal, seen), now, true);
        }
    }

    /// Notes that a request was passed on unread: from now on it is unknown how much the principal's provider cache
    /// holds, until it has expired, or until the same beginnings are sent again.
    pub(crate) fn note_unread(&self, principal: &str, now: Timestamp) {
        let principal = self.hashing.hash_one(principal);
        let mut inner = self.inner();
        if inner.unread.len() >= PRINCIPALS && !inner.unread.contains_key(&principal) {
            // Too many principals: treated as if the process had just started, for everyone.
            inner.unread.clear();
            inner.forgot = inner.forgot.max(Some(now));
        }
        let known = inner.unread.entry(principal).or_insert(now);
        *known = (*known).max(now);
    }

    /// Finds the longest beginning that a cache would have held whose entries live for `lifetime` seconds, or for
    /// ever.
    pub(crate) fn find(
        &self,
        request: &RequestPrefixes,
        now: Timestamp,
        lifetime: Option<u64>,
    ) -> HeldPrefix {
        let mut inner = self.inner();
        let since = lifetime.map_or(i64::MIN, |lifetime| {
            now.0.saturating_sub(i64::try_from(lifetime).unwrap_or(i64::MAX).saturating_mul(1_000))
        });
        let first = *inner.first.get_or_insert(now);
        let is_certain = first.0 <= since && inner.forgot.is_none_or(|forgot| forgot.0 < since);
        let unread = inner.unread.get(&request.principal).filter(|unread| unread.0 >= since);
        let is_certain = is_certain && unread.is_none();
        let alive = |link: &u64| inner.beginnings.get(link).filter(|known| known.sent.0 >= since);
        let mut longest_first = request.links.iter().enumerate().rev();
        let held = longest_first.find_map(|(units, link)| Some((units, *alive(link)?)));
        let is_whole = held.is_some_and(|(_, known)| known.whole.is_some_and(|whole| whole.0 >= since));
        let is_outdated = held.zip(unread).is_some_and(|((_, known), unread)| known.sent <= *unread);
        HeldPrefix { units: held.map(|(units, _)| units), is_whole, is_certain, is_outdated }
    }

    /// Notes that a client sent a request, which went on as it came if `is_whole`.
    pub(crate) fn note_sent(&self, request: &RequestPrefixes, now: Timestamp, is_whole: bool) {
        let mut inner = self.inner();
        for link in &request.links {
            let known = inner.beginnings.entry(*link).or_insert(PrefixTimes { sent: now, whole: None });
            known.sent = known.sent.max(now);
            if is_whole {
                known.whole = known.whole.max(Some(now));
            }
        }
        if inner.beginnings.len() > inner.most {
            inner.forget(now);
        }
    }

    fn inner(&self) -> MutexGuard<'_, ClientPrefixTable> {
        // No operation under the lock can leave it half done, so a poisoned one is still valid.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientPrefixTable {
    /// Forgets the older half. Entries of the same moment are kept or dropped together.
    fn forget(&mut self, now: Timestamp) {
        let mut times: Vec<i64> = self.beginnings.values().map(|known| known.sent.0).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.beginnings.retain(|_, known| known.sent.0 > median);
        self.forgot = Some(now);
    }
}

/// A client's request, to be looked up among all that it sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixLookup<'c> {
    pub(crate) caches: &'c ClientPrefixes,
    pub(crate) beginnings: &'c RequestPrefixes,
    pub(crate) at: Timestamp,
}

/// Facts about a request's cache apart from the client's earlier requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestCacheFacts {
    /// Tokens that the request would cost as it came.
    pub(crate) full: Tokens,
    /// Tokens of it that go on.
    pub(crate) after: Tokens,
    /// Units and tokens that its session knows to have sent before, if a cache may still hold them.
    pub(crate) of_session: Option<(usize, Tokens)>,
    /// True if the client asks for a cache, or its provider does not require it.
    pub(crate) is_asked: bool,
    /// True if the provider reports that little is read.
    pub(crate) is_unread: bool,
}

impl HeldPrefix {
    /// Amount that the client's cache would have held, if the beginning measures `held`.
    pub(crate) fn cache(self, held: Tokens, known: RequestCacheFacts) -> ClientCache {
        let RequestCacheFacts { full, after, of_session, is_asked, is_unread } = known;
        let is_whole = full == after;
        match self.units {
            _ if !is_asked => ClientCache::Unasked,
            Some(_) if is_whole && self.is_whole => ClientCache::AsUsed,
            None if is_whole => ClientCache::AsUsed,
            _ if is_unread => ClientCache::Unknown(UnknownCacheReason::Unread),
            Some(_) if self.is_outdated => ClientCache::Unknown(UnknownCacheReason::Unseen),
            Some(units) => match of_session {
                // The request extends its session's last one, which was counted exactly.
                Some((sent, counted)) if sent == units => ClientCache::Held(counted.min(full)),
                _ => ClientCache::Held(held),
            },
            None if self.is_certain => ClientCache::Held(Tokens(0)),
            None => of_session.map_or(ClientCache::Unknown(UnknownCacheReason::Unseen), |(_, sent)| {
                ClientCache::Held(sent.min(full))
            }),
        }
    }

    /// Estimates the tokens of a held beginning, by its share of the bytes of a request that costs `full`.
    pub(crate) fn tokens(&self, frame: &RequestFrame<'_>, full: Tokens) -> Tokens {
        let Some(units) = self.units else { return Tokens(0) };
        let (body, start, end) = (frame.head().len() + frame.tail().len(), frame.start(), frame.end());
        let whole = body + end.saturating_sub(start);
        let history = units
            .checked_sub(1)
            .and_then(|last| frame.units.get(last))
            .map_or(0, |unit| unit.end.saturating_sub(start));
        let held = u128::from(full.0) * (body + history) as u128 / (whole as u128).max(1);
        Tokens(u64::try_from(held).unwrap_or(u64::MAX)).min(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Option<u64> = Some(300);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    /// A request with one unit for each letter.
    fn request(caches: &ClientPrefixes, says: &str) -> RequestPrefixes {
        let mut link = 0;
        let links = says.chars().map(|letter| {
            link = caches.hashing.hash_one((link, letter));
            link
        });
        let links = std::iter::once(0).chain(links).collect();
        RequestPrefixes { principal: caches.hashing.hash_one(""), links }
    }

    fn units(caches: &ClientPrefixes, says: &str, now: i64) -> Option<usize> {
        caches.find(&request(caches, says), at(now), LIFETIME).units
    }

    #[test]
    fn a_beginning_is_held_as_long_as_it_is_sent_again_wherever_it_was_placed() {
        let caches = ClientPrefixes::default();
        assert_eq!(units(&caches, "abc", 0), None);
        caches.note_sent(&request(&caches, "abc"), at(0), false);
        caches.note_sent(&request(&caches, "abx"), at(200), true);
        assert_eq!(units(&caches, "abcd", 300), Some(3));
        assert_eq!(units(&caches, "abcd", 301), Some(2));
        assert_eq!(units(&caches, "b", 301), Some(0));
        assert_eq!(units(&caches, "abcd", 501), None);
        let is_whole = |says: &str| caches.find(&request(&caches, says), at(300), LIFETIME).is_whole;
        assert_eq!((is_whole("abcd"), is_whole("abxy"), is_whole("aby")), (false, true, true));
    }

    #[test]
    fn what_may_have_been_sent_before_anybody_looked_is_not_certain() {
        let caches = ClientPrefixes::default();
        let certain =
            |caches: &ClientPrefixes, now| caches.find(&request(caches, "a"), at(now), LIFETIME).is_certain;
        assert!(!certain(&caches, 0) && !certain(&caches, 299) && certain(&caches, 300));
    }

    #[test]
    fn what_passed_unread_may_have_gone_further_than_is_known() {
        let caches = ClientPrefixes::default();
        let find = |says: &str, now: i64| caches.find(&request(&caches, says), at(now), LIFETIME);
        caches.note_sent(&request(&caches, "ab"), at(0), false);
        assert!(!find("abcd", 10).is_outdated);
        caches.note_unread("somebody else", at(20));
        assert!(!find("abcd", 30).is_outdated);
        caches.note_unread("", at(20));
        let held = find("abcd", 30);
        assert_eq!((held.units, held.is_outdated), (Some(2), true));
        let known = RequestCacheFacts {
            full: Tokens(100),
            after: Tokens(50),
            of_session: None,
            is_asked: true,
            is_unread: false,
        };
        assert_eq!(held.cache(Tokens(40), known), ClientCache::Unknown(UnknownCacheReason::Unseen));
        // A request sent again is known again, and so is everything once the cache has forgotten the unread requests.
        caches.note_sent(&request(&caches, "abcd"), at(40), false);
        assert!(!find("abcde", 50).is_outdated);
        assert!(!find("x", 319).is_certain && find("x", 321).is_certain);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for_and_that_is_known() {
        let caches = ClientPrefixes::of_at_most(100);
        let certain = |now| caches.find(&request(&caches, ""), at(now), LIFETIME).is_certain;
        assert!(!certain(0));
        for number in 0..1_000_u32 {
            let letter = char::from_u32(0x4e00 + number).unwrap_or('x');
            caches.note_sent(&request(&caches, &letter.to_string()), at(1_000 + i64::from(number)), false);
            assert!(caches.inner().beginnings.len() <= 100);
        }
        assert_eq!((certain(2_000), certain(2_400)), (false, true));
    }
}
