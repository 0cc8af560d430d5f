//! A focus: what somebody wants a summary to attend to, in their own words.
//!
//! It makes nothing up and adds nothing. It ranks: what holds its words, other calls on the files that do, and then what
//! belongs to the same requests get room before the rest, in the trail and in the index. Words are compared as they are
//! written, in any language; one that stands nearly everywhere tells nothing apart and counts little.

use std::collections::{BTreeMap, HashSet};

use super::{CallEffect, Trail, TrailCall, TrailEntry, TrailKind, sentences::one_line};
use crate::id::Seq;

/// How many letters of a focus are read.
const LENGTH: usize = 400;

/// A word of no more ASCII letters than this joins others more often than it names something.
const SHORT: usize = 3;

/// The most that a word counts: one in sixteen entries is rare enough to name something.
const RAREST: u32 = 4;

/// An entry is about a focus if it holds one part in so many of what all its words count.
const ENOUGH_PART: u32 = 4;

/// What somebody wants a summary to attend to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryFocus {
    text: String,
    words: Vec<String>,
}

impl SummaryFocus {
    /// Reads a focus; nothing, if there is no word in it.
    ///
    /// ```
    /// use epitome_core::summary::SummaryFocus;
    ///
    /// assert_eq!(SummaryFocus::new(" the\nparser ").unwrap().text(), "the parser");
    /// assert_eq!(SummaryFocus::new(" … "), None);
    /// ```
    pub fn new(text: &str) -> Option<Self> {
        let text = one_line(text, LENGTH);
        let trimmed = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let words: Vec<&str> = trimmed.filter(|word| !word.is_empty()).collect();
        let (joining, naming): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| is_joining(word));
        let mut words: Vec<String> =
            if naming.is_empty() { joining } else { naming }.into_iter().map(str::to_lowercase).collect();
        words.sort();
        words.dedup();
        (!words.is_empty()).then_some(Self { text, words })
    }

    /// The words as they were given, in one line.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// `the`, `für`, `of`; but not `CI` or `v2`.
fn is_joining(word: &str) -> bool {
    word.chars().count() <= SHORT && word.chars().all(char::is_lowercase)
}

/// How much something has to do with a focus, and how much more it is then worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FocusRelevance {
    /// Nothing that is known.
    #[default]
    Unrelated = 1,
    /// It belongs to a request for which something was said or done that is about it.
    SameRequest = 2,
    /// It holds its words, or is about a file that does.
    About = 4,
}

impl FocusRelevance {
    /// All of them, what gets room first at the beginning.
    pub(super) const MOST_RELEVANT_FIRST: [Self; 3] = [Self::About, Self::SameRequest, Self::Unrelated];
}

/// A trail and an index, ranked by a focus.
#[derive(Debug)]
pub(super) struct FocusRanking<'f> {
    pub(super) focus: &'f SummaryFocus,
    /// For each entry of the trail.
    pub(super) entries: Vec<FocusRelevance>,
    /// The most relevant entry of each event.
    events: BTreeMap<Seq, FocusRelevance>,
}

impl<'f> FocusRanking<'f> {
    /// Ranks a trail in which everything is still whole; nothing, if nothing in it is about the focus.
    pub(super) fn of(focus: &'f SummaryFocus, trail: &Trail) -> Option<Self> {
        let held: Vec<Vec<bool>> = trail.entries.iter().map(|entry| held(focus, entry)).collect();
        let counts = word_counts(&held, focus.words.len());
        let enough = counts.iter().sum::<u32>().div_ceil(ENOUGH_PART);
        let is_about = |held: &Vec<bool>| {
            let count: u32 =
                held.iter().zip(&counts).filter(|(held, _)| **held).map(|(_, count)| count).sum();
            count > 0 && count >= enough
        };
        let mut about: Vec<bool> = held.iter().map(is_about).collect();
        if !about.contains(&true) {
            return None;
        }
        let found = trail.entries.iter().zip(&about).filter(|(_, about)| **about);
        let files: HashSet<&str> = found.filter_map(|(entry, _)| file(entry)).collect();
        for (entry, about) in trail.entries.iter().zip(&mut about) {
            *about |= file(entry).is_some_and(|path| files.contains(path));
        }
        let entries = with_requests(trail, &about);
        let mut events = BTreeMap::new();
        for (entry, relevance) in trail.entries.iter().zip(&entries) {
            let most = events.entry(entry.at).or_default();
            *most = (*relevance).max(*most);
        }
        Some(Self { focus, entries, events })
    }

    /// How much an event has to do with it.
    pub(super) fn event(&self, at: Seq) -> FocusRelevance {
        self.events.get(&at).copied().unwrap_or_default()
    }

    /// Whether a name holds one of its words.
    pub(super) fn is_in(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.focus.words.iter().any(|word| holds(&name, word))
    }
}

/// Which words of a focus an entry holds.
fn held(focus: &SummaryFocus, entry: &TrailEntry) -> Vec<bool> {
    let mut held = vec![false; focus.words.len()];
    entry.visit_texts(&mut |text| {
        let text = text.to_lowercase();
        for (held, word) in held.iter_mut().zip(&focus.words) {
            *held = *held || holds(&text, word);
        }
    });
    held
}

/// Whether a text in small letters holds a word: within another one too, unless the word is so short that it stands in many.
fn holds(text: &str, word: &str) -> bool {
    if word.chars().count() > SHORT || !word.is_ascii() {
        return text.contains(word);
    }
    text.match_indices(word).any(|(at, found)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}

/// What each word counts: more, the fewer entries hold it, and nothing where none does.
fn word_counts(held: &[Vec<bool>], words: usize) -> Vec<u32> {
    let count = |word: usize| {
        let holding = held.iter().filter(|held| held[word]).count();
        held.len().checked_div(holding).map_or(0, |rarity| (rarity.max(1).ilog2() + 1).min(RAREST))
    };
    (0..words).map(count).collect()
}

/// The file that a call read or changed.
fn file(entry: &TrailEntry) -> Option<&str> {
    match &entry.what {
        TrailKind::Call(TrailCall { effect: CallEffect::Changed, subject, .. }) => Some(subject),
        // Which lines of it were read is told behind the path.
        TrailKind::Call(TrailCall { effect: CallEffect::Read, subject, .. }) => {
            let path = subject
                .rsplit_once(':')
                .filter(|(_, lines)| lines.bytes().all(|letter| letter.is_ascii_digit() || letter == b'-'));
            Some(path.map_or(subject, |(path, _)| path))
        }
        _ => None,
    }
}

/// What is about the focus, and what belongs to the same requests.
fn with_requests(trail: &Trail, about: &[bool]) -> Vec<FocusRelevance> {
    let begins = |entry: &TrailEntry| matches!(entry.what, TrailKind::User { .. } | TrailKind::Request(_));
    let mut relevance = Vec::with_capacity(about.len());
    let mut start = 0;
    while start < about.len() {
        let length =
            trail.entries[start + 1..].iter().position(begins).map_or(about.len() - start, |at| at + 1);
        let request = &about[start..start + length];
        let beside =
            if request.contains(&true) { FocusRelevance::SameRequest } else { FocusRelevance::Unrelated };
        relevance.extend(request.iter().map(|about| if *about { FocusRelevance::About } else { beside }));
        start += length;
    }
    relevance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{notation::read, pairing::pair, summary::reading_cache::ReadingCache};

    fn ranked(focus: &str, log: &str) -> Vec<(u64, FocusRelevance)> {
        let events = read(log);
        let paired = pair(events.iter().map(|event| (event.id.seq, &event.event.fact)));
        let trail = Trail::default().extended_with(&events, &paired, &mut ReadingCache::default());
        let focus = SummaryFocus::new(focus).expect("it has words");
        let Some(ranking) = FocusRanking::of(&focus, &trail) else { return Vec::new() };
        trail.entries.iter().zip(&ranking.entries).map(|(entry, found)| (entry.at.0, *found)).collect()
    }

    const LOG: &str = r#"
user: Make the parser faster.
assistant:
  call read_file {"path":"src/lexer.rs"}
  -> struct Lexer; // feeds the Parser
assistant:
  call bash {"command":"make"}
  -> ok
user: Now write the docs.
assistant:
  call read_file {"path":"README.md"}
  -> Nothing about it.
user: And tidy up.
assistant:
  call edit_file {"path":"src/lexer.rs","old_string":"x","new_string":"y"}
  -> done
"#;

    #[test]
    fn words_files_and_requests_are_about_a_focus() {
        use FocusRelevance::{About, SameRequest, Unrelated};
        let expect = [(1, About), (3, About), (5, SameRequest), (6, Unrelated), (8, Unrelated)];
        let ranked = ranked("the parser", LOG);
        assert_eq!(ranked[..5], expect);
        // The file was about it when it was read; the request that changed it is not, but for that.
        assert_eq!(ranked[5..], [(9, SameRequest), (11, About)]);
    }

    #[test]
    fn what_nothing_speaks_of_ranks_nothing() {
        assert_eq!(ranked("the database", LOG), []);
        assert_eq!(ranked("docs", "assistant: Hello.\n"), []);
    }

    #[test]
    fn short_words_count_where_there_are_no_others_or_they_are_names() {
        let words = |text: &str| SummaryFocus::new(text).map(|focus| focus.words);
        let check = |text: &str, expect: &[&str]| assert_eq!(words(text).unwrap(), expect, "{text}");
        check("the failing «upload» test, and the CI", &["ci", "failing", "test", "upload"]);
        check("to be or", &["be", "or", "to"]);
        check("src/db.rs src/db.rs", &["src/db.rs"]);
        check("パーサー", &["パーサー"]);
        check("der Übersetzer für v2", &["v2", "übersetzer"]);
        assert_eq!(words(" –\n"), None);
    }

    #[test]
    fn a_short_word_is_no_part_of_another() {
        assert!(holds("the db, and", "db") && holds("src/db.rs", "db") && !holds("feedback", "db"));
        assert!(holds("parsers", "parser") && holds("新しいパーサーを", "パーサー"));
    }

    #[test]
    fn a_word_that_stands_everywhere_makes_nothing_relevant_by_itself() {
        let call = |at: u64| {
            let word = if at == 7 { "tokenizer" } else { "session" };
            format!(
                "assistant: Some session {at}.\n  call bash {{\"command\":\"{word} {at}\"}}\n  -> session\n"
            )
        };
        let calls: Vec<String> = (0..40).map(call).collect();
        let ranked = ranked("session tokenizer", &calls.concat());
        let about = ranked.iter().filter(|(_, found)| *found == FocusRelevance::About).count();
        assert_eq!(about, 1, "{ranked:?}");
    }
}
