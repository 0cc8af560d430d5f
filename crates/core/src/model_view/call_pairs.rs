//! Pairs of calls and results, which must be read together.
//!
//! Either of a pair alone would be taken for something else: a call for an open one, a result for a stray. So
//! both are read or neither is. If neither is, no event that is read stands between them, so that one gap has
//! both: two gaps might not share their fate, as when a compaction begins inside of one of them.

use std::collections::{HashMap, HashSet};

use crate::{
    context::OpenCalls,
    event::{ContentPart, Fact, LoggedEvent},
    id::Seq,
};

/// Results by the calls they belong to.
#[derive(Default)]
pub(super) struct CallPairs {
    partners: HashMap<Seq, Vec<Seq>>,
    /// Events with results that no call asked for.
    stray: Vec<Seq>,
    open: OpenCalls,
}

impl CallPairs {
    pub(super) fn of<'l>(events: impl Iterator<Item = &'l LoggedEvent>) -> Self {
        let mut pairs = Self::default();
        for event in events {
            let seq = event.id.seq;
            if let Fact::AssistantSaid { parts, .. } = &event.event.fact {
                for (index, part) in parts.iter().enumerate() {
                    if let ContentPart::ToolCall(call) = part {
                        pairs.open.open(&call.id, seq, index);
                    }
                }
            }
            for result in event.event.fact.results() {
                match pairs.open.close(&result.call) {
                    Some((call, _)) => pairs.join(call, seq),
                    None => pairs.stray.push(seq),
                }
            }
        }
        pairs
    }

    fn join(&mut self, call: Seq, result: Seq) {
        self.partners.entry(call).or_default().push(result);
        self.partners.entry(result).or_default().push(call);
    }

    /// The events that are only half of a pair so far: a result may still come for an open call, and if the
    /// shown part begins earlier, a call for a stray result.
    pub(super) fn unpaired_events(&self) -> impl Iterator<Item = Seq> {
        self.open.events().chain(self.stray.iter().copied())
    }

    /// The first event that this one belongs to.
    pub(super) fn since(&self, seq: Seq) -> Seq {
        self.partners_of(seq).fold(seq, Seq::min)
    }

    fn until(&self, seq: Seq) -> Seq {
        self.partners_of(seq).fold(seq, Seq::max)
    }

    fn partners_of(&self, seq: Seq) -> impl Iterator<Item = Seq> {
        self.partners.get(&seq).into_iter().flatten().copied()
    }

    /// Adds the result of every call that is read, and the call of every result.
    pub(super) fn add_partners(&self, read: &mut HashSet<Seq>) {
        let mut next: Vec<Seq> = read.iter().copied().collect();
        while let Some(seq) = next.pop() {
            next.extend(self.partners_of(seq).filter(|partner| read.insert(*partner)));
        }
    }

    /// The events of pairs that cannot be in one gap. `line` holds, in order, an event that might be in a
    /// gap, or `None` for something that parts gaps. The returned events part gaps too, and this is taken
    /// into account: the caller need not ask again.
    pub(super) fn inseparable_events(&self, line: impl IntoIterator<Item = Option<Seq>>) -> Vec<Seq> {
        let mut spans = OpenSpans::default();
        for place in line {
            match place {
                None => spans.part(),
                Some(seq) if self.partners.contains_key(&seq) => {
                    spans.take(seq, self.since(seq), self.until(seq));
                }
                Some(_) => {}
            }
        }
        spans.parted
    }
}

/// Spans from calls to results that are not over yet, each within the one before it.
#[derive(Default)]
struct OpenSpans {
    open: Vec<PairSpan>,
    /// The events of the open spans, in order: the newest of them are those of the innermost.
    events: Vec<Seq>,
    /// The events of the spans that are over and were parted.
    parted: Vec<Seq>,
}

/// From the first to the last event of pairs that cross each other.
struct PairSpan {
    first: Seq,
    last: Seq,
    /// Index of its first event.
    events: usize,
    is_parted: bool,
}

impl OpenSpans {
    /// Parts gaps here. The effect on the outer spans is applied when the inner one is over.
    fn part(&mut self) {
        if let Some(inner) = self.open.last_mut() {
            inner.is_parted = true;
        }
    }

    /// Takes the next event, which belongs to others from `since` to `until`.
    fn take(&mut self, seq: Seq, since: Seq, until: Seq) {
        let mut span = PairSpan { first: seq, last: until, events: self.events.len(), is_parted: false };
        // It goes on with the span that began with its call. Those that began since then are not over: they cross it.
        while span.first > since
            && let Some(inner) = self.open.pop()
        {
            span = inner.joined(&span);
        }
        self.events.push(seq);
        self.open.push(span);
        self.close(seq);
    }

    /// Ends the spans that are over.
    fn close(&mut self, at: Seq) {
        while self.open.last().is_some_and(|inner| inner.last <= at)
            && let Some(span) = self.open.pop()
        {
            let events = self.events.drain(span.events..);
            if span.is_parted {
                self.parted.extend(events);
                // Its own events are read then, and stand within the next one.
                self.part();
            }
        }
    }
}

impl PairSpan {
    fn joined(self, later: &Self) -> Self {
        let (last, is_parted) = (self.last.max(later.last), self.is_parted || later.is_parted);
        Self { last, is_parted, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A letter is a call where it stands first, and then its results; a bar parts gaps.
    fn pairs(line: &str) -> CallPairs {
        let mut pairs = CallPairs::default();
        for (at, letter) in line.char_indices().filter(|(_, letter)| *letter != '|') {
            if let Some(call) = line.find(letter).filter(|call| *call < at) {
                pairs.join(place(call), place(at));
            }
        }
        pairs
    }

    fn place(at: usize) -> Seq {
        Seq(at as u64)
    }

    fn parted(line: &str) -> BTreeSet<Seq> {
        let places = line.char_indices().map(|(at, letter)| (letter != '|').then_some(place(at)));
        pairs(line).inseparable_events(places).into_iter().collect()
    }

    /// Checks a line, with the events that must be read in capitals.
    fn check(line: &str, expect: &str) {
        let parted = parted(line);
        let shown = line.char_indices().map(|(at, letter)| {
            if parted.contains(&place(at)) { letter.to_ascii_uppercase() } else { letter }
        });
        assert_eq!(shown.collect::<String>(), expect);
    }

    #[test]
    fn a_pair_is_read_that_something_parts() {
        check("|aa|bcbc|dd|", "|aa|bcbc|dd|");
        check("aa|b|bcc", "aa|B|Bcc");
        check("a|", "a|");
    }

    #[test]
    fn what_is_read_parts_what_is_around_it_and_what_crosses_it() {
        check("abb|a", "Abb|A");
        check("ab|ba", "AB|BA");
        check("a|bab", "A|BAB");
        check("abab|", "abab|");
    }

    #[test]
    fn pairs_that_cross_one_another_are_read_as_one() {
        check("a|bacbdcdee", "A|BACBDCDee");
        check("eeabacbdc|d", "eeABACBDC|D");
    }

    #[test]
    fn a_call_is_read_with_all_of_its_results() {
        check("abab|a", "ABAB|A");
        check("aaa|", "aaa|");
    }

    /// The same, step by step: every pair is read that has between it an event that is read, or parts gaps.
    fn step_by_step(line: &str) -> BTreeSet<Seq> {
        let pairs = pairs(line);
        let bars = line.char_indices().filter(|(_, letter)| *letter == '|').map(|(at, _)| place(at));
        let mut parting: HashSet<Seq> = bars.clone().collect();
        loop {
            let known = parting.len();
            let is_parted = |seq: &&Seq| parting.iter().any(|at| *seq < at && *at < pairs.until(**seq));
            let found: Vec<Seq> = pairs.partners.keys().filter(is_parted).copied().collect();
            parting.extend(found);
            pairs.add_partners(&mut parting);
            if parting.len() == known {
                let bars: BTreeSet<Seq> = bars.collect();
                return parting.into_iter().filter(|seq| !bars.contains(seq)).collect();
            }
        }
    }

    proptest! {
        #[test]
        fn one_walk_finds_what_is_found_step_by_step(line in "[a-f|]{0,16}") {
            prop_assert_eq!(parted(&line), step_by_step(&line), "{}", line);
        }
    }
}
