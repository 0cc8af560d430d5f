//! The beginning of a long history, recognised as one: a history is sent again with every call and only grows, so all
//! of it up to somewhere near its end is recognised by one hash of its bytes, and is not split, looked up or chained
//! again.
//!
//! A few sampled bytes of the list select the beginning to try; all of its bytes then confirm it.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use epitome_core::{ChainLink, Digest};
use highway::{HighwayHash, HighwayHasher};

use super::{
    HistoryItem, HistoryUnit,
    memo::{GenerationMap, MemoKey, MemoWeight, MessageMemo, PieceKind},
    memo_lookup::ITEMS_PER_RUN,
    piece_properties::PieceProperties,
    split::SlicedList,
};
use crate::format::Format;

/// Shortest beginning that is remembered; a shorter one is read as quickly.
const MIN_PREFIX_BYTES: usize = 1 << 14;

/// Number of bytes sampled at each position.
const SAMPLE: usize = 64;

/// Divisor of the memo's bound: a single beginning may weigh at most this fraction of it, so that one session does not
/// push out all others.
const SHARE: usize = 4;

/// The beginning of a history: consecutive items, all of them known.
pub(super) struct MemoPrefix {
    /// Key of its bytes, from the bracket of the list to the end of the last item.
    key: MemoKey,
    /// Key of its last few bytes.
    ending: MemoKey,
    /// Byte range of each item, counted from the bracket.
    places: Vec<Range<usize>>,
    /// Properties of each item.
    known: Vec<Arc<PieceProperties>>,
    /// Its units, each with the normalised chain after it.
    chain: Vec<(Digest, Digest)>,
}

impl MemoPrefix {
    pub(super) fn places(&self) -> &[Range<usize>] {
        &self.places
    }

    pub(super) fn known(&self) -> &[Arc<PieceProperties>] {
        &self.known
    }

    fn end(&self) -> usize {
        self.places.last().map_or(0, |last| last.end)
    }
}

impl MemoWeight for Arc<MemoPrefix> {
    fn weight(&self) -> usize {
        self.known.iter().map(|known| known.weight()).sum()
    }
}

impl fmt::Debug for MemoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beginning").field("items", &self.known.len()).finish_non_exhaustive()
    }
}

/// A list that was found to have a known beginning.
#[derive(Clone)]
pub(super) struct MatchedPrefix {
    pub(super) beginning: Arc<MemoPrefix>,
    /// Hash state after its bytes, to continue from.
    hash: HighwayHasher,
}

impl fmt::Debug for MatchedPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The hash state contains the secret.
        self.beginning.fmt(f)
    }
}

/// Beginnings seen so far, by sampled bytes.
#[derive(Debug, Default)]
pub(super) struct PrefixMemo(Mutex<GenerationMap<Arc<MemoPrefix>>>);

impl MessageMemo {
    /// Finds the longest known beginning of the list at the start of `text`.
    pub(super) fn known_beginning(&self, format: Format, text: &str) -> Option<MatchedPrefix> {
        let samples = self.samples(format, text.as_bytes());
        samples.into_iter().rev().find_map(|sample| {
            let found = {
                let mut seen = self.beginnings.0.lock().unwrap_or_else(PoisonError::into_inner);
                seen.find(&sample, self.most)
            };
            let beginning = found?;
            let bytes = text.as_bytes().get(..beginning.end())?;
            // Two beginnings that differ only late have the same samples; most of those differ at the end, too.
            if self.ending(format, bytes) != beginning.ending {
                return None;
            }
            let mut hash = self.hasher();
            hash.append(bytes);
            let key = MemoKey::new(format, PieceKind::Beginning, hash.clone().finalize128());
            (key == beginning.key).then_some(MatchedPrefix { beginning, hash })
        })
    }

    /// Remembers the beginning of the list at the start of `text`, if more of it is known by now than is remembered.
    pub(super) fn remember_beginning(
        &self,
        format: Format,
        (text, start): (&str, usize),
        list: &SlicedList<'_>,
        items: &[HistoryItem<'_>],
        units: (&[HistoryUnit], &[Range<usize>]),
    ) {
        let known = list.begun.as_ref().map_or(0, |begun| begun.beginning.known.len());
        let mut weight = list.begun.as_ref().map_or(0, |begun| begun.beginning.weight());
        // New items may be sent in another form in the next call, since marks move.
        let seen = items.iter().skip(known).take_while(|item| {
            weight += item.known.weight();
            item.event.is_none() && weight <= self.most / SHARE
        });
        let count = (known + seen.count()) / ITEMS_PER_RUN * ITEMS_PER_RUN;
        let Some(items) = items.get(..count).filter(|_| count > known) else { return };
        let place = |item: &HistoryItem<'_>| {
            item.slice.start - start..item.slice.start - start + item.slice.raw.len()
        };
        let Some(bytes) = items.last().and_then(|last| text.as_bytes().get(..place(last).end)) else {
            return;
        };
        // Only the character after a number shows that it has ended.
        let ends_by_itself = matches!(bytes.last(), Some(b'}' | b']' | b'"'));
        let Some(sample) = self.samples(format, bytes).pop().filter(|_| ends_by_itself) else { return };
        let (mut hash, from) = match &list.begun {
            Some(begun) => (begun.hash.clone(), begun.beginning.end()),
            None => (self.hasher(), 0),
        };
        hash.append(bytes.get(from..).unwrap_or_default());
        let (units, spans) = units;
        let within = spans.iter().take_while(|span| span.end <= count).count();
        let units = units.get(..within).unwrap_or_default();
        let links = chain(units, list.begun.as_ref()).into_iter().skip(1);
        let beginning = MemoPrefix {
            key: MemoKey::new(format, PieceKind::Beginning, hash.finalize128()),
            ending: self.ending(format, bytes),
            places: items.iter().map(place).collect(),
            known: items.iter().map(|item| Arc::clone(&item.known)).collect(),
            chain: units.iter().map(|unit| unit.digest).zip(links).collect(),
        };
        let mut seen = self.beginnings.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.keep(sample, Arc::new(beginning), self.most);
    }

    /// Keys by which a beginning is found, the shortest first: for its length, a few bytes from before the end of
    /// certain lengths up to its own, and from before all shorter ones.
    fn samples(&self, format: Format, bytes: &[u8]) -> Vec<MemoKey> {
        let mut hash = self.hasher();
        let mut samples = Vec::new();
        let (mut length, mut octave) = (MIN_PREFIX_BYTES, MIN_PREFIX_BYTES);
        while let Some(sample) = bytes.get(length - SAMPLE..length) {
            hash.append(sample);
            samples.push(MemoKey::new(format, PieceKind::Beginning, hash.clone().finalize128()));
            if length >= 2 * octave {
                octave *= 2;
            }
            length += octave / 4;
        }
        samples
    }

    /// The same for its end alone.
    fn ending(&self, format: Format, bytes: &[u8]) -> MemoKey {
        let ending = bytes.get(bytes.len().saturating_sub(SAMPLE)..).unwrap_or_default();
        MemoKey::new(format, PieceKind::Beginning, self.hasher().hash128(ending))
    }
}

/// The normalised chain after each number of units, known as far as the beginning reaches and computed from there.
pub(super) fn chain(units: &[HistoryUnit], begun: Option<&MatchedPrefix>) -> Vec<Digest> {
    let known = begun.map_or(&[][..], |begun| &begun.beginning.chain);
    let mut link = ChainLink::ROOT.normal;
    let mut links = Vec::with_capacity(units.len() + 1);
    links.push(link);
    let known = units.iter().zip(known).take_while(|(unit, (digest, _))| unit.digest == *digest);
    links.extend(known.map(|(_, (_, after))| *after));
    link = links.last().copied().unwrap_or(link);
    for unit in units.iter().skip(links.len() - 1) {
        link = ChainLink::advance_normal(link, unit.digest);
        links.push(link);
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::IncomingRequest;

    fn items(count: usize) -> Vec<String> {
        (0..count).map(|at| format!(r#"{{"role":"user","content":"{at} {}"}}"#, "x".repeat(700))).collect()
    }

    fn body(items: &[String], between: &str) -> String {
        format!(r#"{{"messages":[{}],"tools":[]}}"#, items.join(between))
    }

    /// Number of items recognised by the beginning of a history before it is read; the result must equal that of an
    /// empty memo.
    fn see(memo: &MessageMemo, body: &str) -> usize {
        let seen = IncomingRequest::read(Format::Anthropic, body, memo).unwrap();
        let alone = IncomingRequest::read(Format::Anthropic, body, &MessageMemo::default()).unwrap();
        assert_eq!((seen.units(), seen.chain()), (alone.units(), alone.chain()), "{body}");
        assert_eq!(seen.raw(usize::MAX), alone.raw(usize::MAX));
        let list = seen.members[0].list.as_ref().unwrap();
        list.begun.as_ref().map_or(0, |begun| begun.beginning.known.len())
    }

    #[test]
    fn a_history_that_grows_is_known_by_how_it_begins() {
        let memo = MessageMemo::default();
        let known: Vec<usize> = [40, 42, 44, 46, 48, 50, 52, 54, 66, 68, 70]
            .map(|count| see(&memo, &body(&items(count), ",")))
            .into();
        // Items seen once are known in the next call, and as a beginning in the one after it.
        assert_eq!(known, [0, 0, 32, 32, 32, 32, 48, 48, 48, 48, 64]);
    }

    #[test]
    fn another_beginning_is_none() {
        let memo = MessageMemo::default();
        let whole = items(60);
        for expect in [0, 0, 48] {
            assert_eq!(see(&memo, &body(&whole, ",")), expect);
        }
        for at in [0, 20, 47] {
            let mut changed = whole.clone();
            // As long as before, with a change so small that no sample covers it.
            changed[at] = changed[at].replace("xx\"}", "xy\"}");
            assert_eq!(see(&memo, &body(&changed, ",")), 0, "{at}");
            assert_eq!(see(&memo, &body(&whole, ",")), 48, "{at}");
        }
        let mut changed = whole.clone();
        changed[48] = changed[0].clone();
        assert_eq!(see(&memo, &body(&changed, ",")), 48);
        assert_eq!(see(&memo, &body(&whole[..50], ",")), 48);
        // The beginning up to the last change.
        assert_eq!(see(&memo, &body(&whole[..40], ",")), 32);
        let elsewhere = body(&whole, ",");
        assert!(memo.known_beginning(Format::OpenaiChat, &elsewhere[12..]).is_none());
        assert!(memo.known_beginning(Format::Anthropic, &elsewhere[12..]).is_some());
        assert_eq!(see(&memo, &body(&whole, " ,")), 0);
    }

    #[test]
    fn a_number_may_go_on_after_a_beginning() {
        let memo = MessageMemo::default();
        let mut numbered = items(32);
        numbered[31] = "1".to_owned();
        for _ in 0..3 {
            assert_eq!(see(&memo, &body(&numbered, ",")), 0);
        }
        numbered[31] = "12".to_owned();
        assert_eq!(see(&memo, &body(&numbered, ",")), 0);
    }

    #[test]
    fn short_histories_are_read() {
        let memo = MessageMemo::default();
        for _ in 0..4 {
            assert_eq!(see(&memo, &body(&items(20), ",")), 0);
        }
    }

    #[test]
    fn sessions_with_one_long_instruction_are_told_apart() {
        let memo = MessageMemo::default();
        let mut sessions = ["one", "other"].map(|name| {
            let mut items = items(40);
            items[0] = format!(r#"{{"role":"system","content":"{}"}}"#, "x".repeat(50_000));
            for item in &mut items[1..] {
                *item = item.replace("user", name);
            }
            items
        });
        for round in 0..4 {
            for session in &mut sessions {
                let known = see(&memo, &body(session, ","));
                assert_eq!(known, if round < 2 { 0 } else { 32 }, "{round}");
                session.push(r#"{"role":"user","content":"go on"}"#.to_owned());
            }
        }
    }

    #[test]
    fn however_long_histories_are_only_so_much_is_remembered() {
        let memo = MessageMemo::new(1_000);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let many = vec![format!(r#"{{"role":"user","content":"{name}{}"}}"#, "x".repeat(200)); 3_000];
            let known = [(); 3].map(|()| see(&memo, &body(&many, ",")));
            assert_eq!(known, [0, 0, 112]);
            let seen = memo.beginnings.0.lock().unwrap();
            let weight: usize = seen.remembered().map(MemoWeight::weight).sum();
            assert!((112..=1_250).contains(&weight), "{weight}");
        }
    }
}
