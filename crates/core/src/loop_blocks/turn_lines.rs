//! The default strategy: a line for each turn, with the numbers of its events.
//!
//! However many turns there are, all of them are summarised within the limit. Lines that are too long are
//! shortened, all to the same length; when that is not enough, neighbours are joined into lines that stand
//! for several turns. Lines of an earlier note are taken over unchanged: the events that they stand for need
//! not be read again, and old turns get ever shorter as new ones arrive.

use std::{fmt, iter, ops::Range};

use crate::{
    context::{ContextNote, FoldedTotals, Segment, SegmentBody},
    id::Seq,
    loop_blocks::{
        BlockConfig, BlockMessage, BlockStrategy, LoopRecord,
        loop_chain::{last_turn, turns},
        turn_summary::turn_summary,
    },
    reducers::stub_text::{StubWriter, calls, count, shorten_to},
    seq_set::SeqSet,
    tokens::Tokens,
    turn::{CompactedSection, TurnRange},
};

/// Summarises a loop in a line for each turn. It has no settings of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnLines;

impl BlockStrategy for TurnLines {
    fn name(&self) -> &'static str {
        "turn_lines"
    }

    fn keep_compacted(
        &self,
        record: &LoopRecord<'_>,
        range: TurnRange,
        config: &BlockConfig,
    ) -> Option<CompactedSection<BlockMessage>> {
        let places = record.places_of(range);
        let whole = record.folded(places.clone()).tokens;
        let mut messages = Vec::new();
        let mut place = places.start;
        for run in record.runs(range, config) {
            messages.extend((place..run.start).map(BlockMessage::Original));
            place = run.end;
            match note(record, run.clone(), config.max_summary_tokens, whole) {
                Some(text) => messages.push(BlockMessage::Note { of: run, text }),
                None => messages.extend(run.map(BlockMessage::Original)),
            }
        }
        messages.extend((place..places.end).map(BlockMessage::Original));
        let told = |message: &BlockMessage| match message {
            BlockMessage::Note { .. } => true,
            BlockMessage::Original(at) => matches!(record.segments()[*at].body(), SegmentBody::Note(_)),
            BlockMessage::Shortened { .. } => false,
        };
        messages.iter().any(told).then_some(CompactedSection { range, messages })
    }
}

/// A note for a run of segments. `None` if they stay: a run that is a note already, or whose note would not
/// be smaller.
fn note(record: &LoopRecord<'_>, run: Range<usize>, limit: Tokens, whole: Tokens) -> Option<String> {
    let segments = &record.segments()[run.clone()];
    if let [only] = segments
        && matches!(only.body(), SegmentBody::Note(_))
    {
        return None;
    }
    let folded = record.folded(run);
    // A run's share of the limit follows its original cost, which no folding changes. A note that is not much
    // smaller than its turns is not worth reading instead of them.
    let part = u128::from(limit.0) * u128::from(folded.tokens.0) / u128::from(whole.0.max(1));
    let told = |segment: &Segment| match segment.body() {
        SegmentBody::Note(note) => note.folded.tokens,
        _ => segment.tokens(),
    };
    let half = Tokens(segments.iter().map(told).sum::<Tokens>().0 / 2);
    let limit = Tokens(u64::try_from(part).unwrap_or(limit.0)).min(half);
    let scribe = StubWriter::of(record.context());
    let cost = |text: &str| {
        let context = record.context();
        let (wrapping, words) = context.note_cost(&context.note_text(text, &folded));
        wrapping + words
    };
    let lines = lines(segments);
    let header = header(&scribe, &lines, &folded);
    let text = fitting(&header, &lines, limit, cost).unwrap_or_else(|| scribe.note(&folded));
    let before: Tokens = segments.iter().map(Segment::tokens).sum();
    (cost(&text) < before).then_some(text)
}

/// `[12 turns in short, 45210 tokens in full; recall 1b2c3d4e:5-88, or a line by its numbers]`
fn header(scribe: &StubWriter, lines: &[NoteLine], folded: &FoldedTotals) -> String {
    let turns = count(lines.iter().map(|line| line.turns).sum(), "turn", "turns");
    let told = format!("{turns} in short, {} tokens in full", folded.tokens);
    if scribe.names.are_shown() {
        format!("[{told}; {}, or a line by its numbers]", scribe.names.handles(&folded.events))
    } else {
        format!("[{told}]")
    }
}

/// Content of some segments, a line for each turn, in order. A note's part of a turn and the part that still
/// stands become one line.
fn lines(segments: &[Segment]) -> Vec<NoteLine> {
    let turns = turns(segments);
    let mut lines: Vec<NoteLine> = Vec::new();
    let mut told = None;
    for places in (0..turns.turn_count()).filter_map(|turn| turns.turn_msg_range(turn)) {
        let group = &segments[places];
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let mut new = of_turn(group).into_iter();
        if told.is_some_and(|told| told >= first.turn())
            && let Some(before) = lines.last_mut()
            && let Some(rest) = new.next()
        {
            before.go_on(&rest);
        }
        lines.extend(new);
        told = Some(last_turn(last));
    }
    lines
}

fn of_turn(segments: &[Segment]) -> Vec<NoteLine> {
    if let [segment] = segments
        && let SegmentBody::Note(note) = segment.body()
    {
        return of_note(note);
    }
    let events = SeqSet::union(segments.iter().map(Segment::stands_for));
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Vec::new() };
    vec![NoteLine { first, last, turns: 1, text: shorten_to(&turn_summary(segments), LADDER[0]) }]
}

/// The lines of an earlier note; a note that has none is one.
fn of_note(note: &ContextNote) -> Vec<NoteLine> {
    let lines: Option<Vec<NoteLine>> = note.words().lines().skip(1).map(NoteLine::read).collect();
    if let Some(lines) = lines.filter(|lines| !lines.is_empty()) {
        return lines;
    }
    let (Some(first), Some(last)) = (note.folded.events.first(), note.folded.events.last()) else {
        return Vec::new();
    };
    let called = &note.folded.calls;
    let text = if called.is_empty() { String::new() } else { format!("calls: {}", calls(called)) };
    vec![NoteLine { first, last, turns: note.folded.turn_count().max(1), text }]
}

/// A line of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NoteLine {
    first: Seq,
    last: Seq,
    /// Number of turns it stands for.
    turns: u64,
    text: String,
}

/// `5-9: said: Done`, `5-30 (4 turns): calls: bash ×9`
impl fmt::Display for NoteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        if self.last > self.first {
            write!(f, "-{}", self.last)?;
        }
        if self.turns != 1 {
            write!(f, " ({} turns)", self.turns)?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl NoteLine {
    /// Reads a line as it is written.
    fn read(line: &str) -> Option<Self> {
        let (head, text) = line.split_once(": ").unwrap_or((line, ""));
        let (events, turns) = match head.split_once(" (") {
            Some((events, turns)) => (events, turns.strip_suffix(" turns)")?.parse().ok()?),
            None => (head, 1),
        };
        let (first, last) = events.split_once('-').unwrap_or((events, events));
        let (first, last) = (Seq(first.parse().ok()?), Seq(last.parse().ok()?));
        (first <= last).then(|| Self { first, last, turns, text: text.to_owned() })
    }

    /// Adds a line that begins within the last turn of this one.
    fn go_on(&mut self, rest: &Self) {
        self.first = self.first.min(rest.first);
        self.last = self.last.max(rest.last);
        self.turns = (self.turns + rest.turns).saturating_sub(1);
        let both = [self.text.as_str(), rest.text.as_str()];
        let both: Vec<&str> = both.into_iter().filter(|text| !text.is_empty()).collect();
        self.text = shorten_to(&both.join("; "), LADDER[0]);
    }

    /// One line for several, of at most so many letters.
    fn join(lines: &[Self], letters: usize) -> Option<Self> {
        let first = lines.iter().map(|line| line.first).min()?;
        let last = lines.iter().map(|line| line.last).max()?;
        let turns = lines.iter().map(|line| line.turns).fold(0, u64::saturating_add);
        let each = (letters / lines.len()).max(LEAST);
        let texts =
            lines.iter().filter(|line| !line.text.is_empty()).map(|line| shorten_to(&line.text, each));
        // Text that would be cut off need not be put together.
        let texts: Vec<String> = texts.take(letters.div_ceil(LEAST)).collect();
        Some(Self { first, last, turns, text: shorten_to(&texts.join(" | "), letters) })
    }
}

/// Lengths that a line for a single turn may have, in letters, tried from the longest.
const LADDER: [usize; 6] = [480, 320, 200, 120, 80, 48];

/// Longest line that stands for several turns, in letters.
const JOINED: usize = 96;

/// Least text for a turn in a joined line.
const LEAST: usize = 16;

/// Assumed largest number of bytes in a token: text beyond that many bytes for each allowed token need not be
/// put together and counted.
const LONGEST_TOKEN: u64 = 16;

/// The lines under their header, as telling as the limit allows; `None` if it is too small for any words.
fn fitting(header: &str, lines: &[NoteLine], limit: Tokens, cost: impl Fn(&str) -> Tokens) -> Option<String> {
    let apart = LADDER.into_iter().map(|letters| (1, letters));
    let doubled = iter::successors(Some(2_usize), |join| join.checked_mul(2));
    let joined = doubled.take_while(|join| *join < lines.len().saturating_mul(2)).map(|join| (join, JOINED));
    let one = [JOINED / 2, JOINED / 4].map(|letters| (lines.len().max(1), letters));
    let most = limit.0.saturating_mul(LONGEST_TOKEN);
    apart.chain(joined).chain(one).find_map(|(join, letters)| {
        let mut text = header.to_owned();
        for line in lines.chunks(join).filter_map(|lines| NoteLine::join(lines, letters)) {
            if text.len() as u64 > most {
                return None;
            }
            text.push('\n');
            text.push_str(&line.to_string());
        }
        (cost(&text) <= limit).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        notation::meter,
        tokens::{EstimateCounter, TokenCounter},
    };

    fn line(first: u64, last: u64, turns: u64, text: &str) -> NoteLine {
        NoteLine { first: Seq(first), last: Seq(last), turns, text: text.to_owned() }
    }

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        let check = |line: NoteLine, expect: &str| {
            assert_eq!(line.to_string(), expect);
            assert_eq!(NoteLine::read(expect), Some(line));
        };
        check(line(5, 9, 1, "said: Done (3 turns): 4-5"), "5-9: said: Done (3 turns): 4-5");
        check(line(5, 5, 1, ""), "5");
        check(line(5, 30, 4, "calls: bash ×9"), "5-30 (4 turns): calls: bash ×9");
        check(line(5, 30, 4, ""), "5-30 (4 turns)");
        for other in ["", "words", "9-5: x", "5-9 (x turns): y", "5-9 (3 turns", "-1: a", "[2 turns: gone]"] {
            assert_eq!(NoteLine::read(other), None, "{other}");
        }
    }

    fn told(turns: u64, words: usize, limit: u64) -> Option<String> {
        let text = vec!["word"; words].join(" ");
        let lines: Vec<NoteLine> = (1..=turns).map(|turn| line(2 * turn, 2 * turn + 1, 1, &text)).collect();
        fitting("[header]", &lines, Tokens(limit), |text| meter().text(text))
    }

    #[test]
    fn lines_are_shortened_evenly_then_joined_and_in_the_end_one() {
        insta::assert_snapshot!(told(3, 20, 1_000).unwrap(), @r"
        [header]
        2-3: word word word word word word word word word word word word word word word word word word word word
        4-5: word word word word word word word word word word word word word word word word word word word word
        6-7: word word word word word word word word word word word word word word word word word word word word
        ");
        insta::assert_snapshot!(told(3, 20, 40).unwrap(), @r"
        [header]
        2-3: word word word word word word word word word wor…
        4-5: word word word word word word word word word wor…
        6-7: word word word word word word word word word wor…
        ");
        insta::assert_snapshot!(told(8, 20, 60).unwrap(), @r"
        [header]
        2-9 (4 turns): word word word word word… | word word word word word… | word word word word word… | word word wo…
        10-17 (4 turns): word word word word word… | word word word word word… | word word word word word… | word word wo…
        ");
        insta::assert_snapshot!(told(9, 20, 30).unwrap(), @r"
        [header]
        2-19 (9 turns): word word word w… | word word word w… | word word word w… | word word word w… | word word word w…
        ");
        insta::assert_snapshot!(told(9, 20, 12).unwrap(), @r"
        [header]
        2-19 (9 turns): word word word w… | word…
        ");
        assert_eq!(told(9, 20, 3), None);
    }

    proptest! {
        /// Whatever the number of turns and the limit: every turn is in a line, in order, and the limit is
        /// kept.
        #[test]
        fn every_turn_is_told_within_the_limit(
            texts in prop::collection::vec("[a-zé |:()0-9-]{0,300}", 1..80),
            limit in 40..4_000u64,
        ) {
            let lines: Vec<NoteLine> =
                (0..).zip(&texts).map(|(turn, text)| line(10 * turn + 1, 10 * turn + 9, 1, &shorten_to(text, 480))).collect();
            let text = fitting("[header]", &lines, Tokens(limit), |text| EstimateCounter.count(text));
            let text = text.expect("forty tokens are enough for a header and a line of numbers");
            prop_assert!(EstimateCounter.count(&text) <= Tokens(limit));
            let told: Vec<NoteLine> = text.lines().skip(1).map(|line| NoteLine::read(line).unwrap()).collect();
            prop_assert_eq!(told.iter().map(|line| line.turns).sum::<u64>(), texts.len() as u64);
            let mut turn = 0;
            for line in &told {
                prop_assert_eq!(line.first, Seq(10 * turn + 1));
                turn += line.turns;
                prop_assert_eq!(line.last, Seq(10 * (turn - 1) + 9));
            }
            // A second compaction loses no turn either.
            let again = fitting("[header]", &told, Tokens(limit / 2 + 20), |text| EstimateCounter.count(text)).unwrap();
            let again = again.lines().skip(1).map(|line| NoteLine::read(line).unwrap().turns).sum::<u64>();
            prop_assert_eq!(again, texts.len() as u64);
        }
    }
}
