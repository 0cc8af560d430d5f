//! What failed before, and how it ended: for whoever is about to try it again.
//!
//! The log is searched for the places, and only what stands around them is read: an answer must not take longer in a
//! session that has grown. Only what a tool marks as a failure is one.

use std::collections::{BTreeMap, BTreeSet};

use epitome_core::{
    LoggedEvent, Seq, SessionId, ThreadId,
    event::{Timestamp, ToolCall, ToolResult},
    pairing::{CallOutcome, Exchange, pair},
    summary::{
        call_subject,
        tools::{ToolEffect, effects, failure},
    },
};
use epitome_store::{
    Store, StoreError,
    records::{HitLocation, SearchFilter, SearchQuery, SearchScope, SessionFilter},
};

use super::excerpt;

/// What an attempt is sought by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureSubject<'q> {
    /// Words of its error.
    Error(&'q str),
    /// A file that it was about.
    Path(&'q str),
}

/// Something that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Session in which it was tried last.
    pub session: SessionId,
    /// Handle of the call and its result.
    pub handle: String,
    /// Time of the result.
    pub time: Option<Timestamp>,
    /// What was tried: a command, or a tool and its target.
    pub tried: String,
    /// How it failed, in its own words.
    pub words: String,
    /// How often.
    pub times: u64,
    /// How it ended.
    pub outcome: AttemptOutcome,
}

/// How attempts ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The same worked later.
    Worked {
        /// Handle of the call that worked and its result.
        handle: String,
        /// Files that were changed in between, oldest first.
        changed: Vec<String>,
    },
    /// Nothing of its kind has worked since.
    Open,
}

/// Most hits that are looked at, most threads that are read, and most events of each.
const MAX_HITS: usize = 60;
const MAX_THREADS: usize = 6;
const MAX_EVENTS: usize = 1_500;

/// Number of events before the first hit that are read, so that a result has its call.
const EVENTS_BEFORE: u64 = 4;

/// Longest words of an error.
const MAX_ERROR_CHARS: usize = 400;

/// Finds earlier attempts, the newest first. `thread` limits them to what one thread shows.
pub fn failed_attempts(
    store: &dyn Store,
    subject: FailureSubject<'_>,
    sessions: &SessionFilter,
    thread: Option<ThreadId>,
    limit: usize,
) -> Result<Vec<FailedAttempt>, StoreError> {
    let scope = thread.map_or(SearchScope::Sessions, SearchScope::Thread);
    let mut places: BTreeMap<ThreadId, BTreeSet<Seq>> = BTreeMap::new();
    let mut owners: BTreeMap<ThreadId, SessionId> = BTreeMap::new();
    for words in subject.queries() {
        let kind = matches!(subject, FailureSubject::Error(_)).then(|| "tool_returned".to_owned());
        let filter = SearchFilter { sessions: sessions.clone(), kind, ..SearchFilter::default() };
        let query = SearchQuery { words, scope: scope.clone(), limit: MAX_HITS, filter };
        for hit in store.search(&query)? {
            if let HitLocation::Event { id, session, .. } = hit.found {
                places.entry(id.thread).or_default().insert(id.seq);
                owners.insert(id.thread, session);
            }
        }
        if !places.is_empty() {
            break;
        }
    }
    let mut found = Vec::new();
    for (place, seqs) in places.iter().rev().take(MAX_THREADS) {
        // A fork's past stands in its parents; whoever asks about a thread reads that thread.
        let (read, owner) = (thread.unwrap_or(*place), owners[place]);
        let (Some(first), Some(_)) = (seqs.first(), seqs.last()) else { continue };
        let from = Seq(first.0.saturating_sub(EVENTS_BEFORE).max(1));
        let events = store.read(read, from, MAX_EVENTS)?;
        found.extend(attempts_in(&events, read, owner, subject));
    }
    found.sort_by_key(|attempt| std::cmp::Reverse(attempt.time));
    found.truncate(limit);
    Ok(found)
}

impl FailureSubject<'_> {
    /// Searches, the narrowest first.
    fn queries(&self) -> Vec<String> {
        match self {
            Self::Error(text) => {
                let words = error_words(text);
                let quoted = quoted_words(text);
                let mut few = if quoted.is_empty() { words.clone() } else { quoted };
                few.sort_by_key(|word| std::cmp::Reverse(word.len()));
                few.truncate(3);
                vec![words.join(" "), few.join(" ")]
            }
            Self::Path(path) => vec![format!("\"{}\"", file_name(path))],
        }
    }

    fn is_of(&self, call: &ToolCall, done: &[ToolEffect], words: &str) -> bool {
        match self {
            Self::Error(asked) => {
                let words = words.to_lowercase();
                let is_there = |word: &String| words.contains(&word.to_lowercase());
                let asked_words = error_words(asked);
                let same = asked_words.iter().filter(|word| is_there(word)).count();
                // What stands in quotes is what the error is about; the words around it may be put otherwise.
                same * 3 >= asked_words.len() * 2 && quoted_words(asked).iter().all(is_there)
            }
            Self::Path(path) => {
                let paths = done.iter().filter_map(ToolEffect::path);
                paths.into_iter().any(|known| is_same_path(known, path))
                    || done.iter().any(|effect| match effect {
                        ToolEffect::Ran { command, .. } => command.contains(file_name(path)),
                        _ => false,
                    })
                    || call.arguments.contains(path)
            }
        }
    }
}

/// Words of an error that are the same each time: no figures, no addresses.
fn error_words(text: &str) -> Vec<String> {
    const MOST: usize = 8;
    let mut words: Vec<String> = Vec::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let is_word = word.chars().count() >= 3 && !word.chars().any(|letter| letter.is_ascii_digit());
        if is_word && !words.iter().any(|known| known == word) && words.len() < MOST {
            words.push(word.to_owned());
        }
    }
    words
}

/// Words of an error in quotes: what it is about.
fn quoted_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for mark in ['`', '\'', '"'] {
        let pieces: Vec<&str> = text.split(mark).collect();
        // Without an end a mark is an apostrophe.
        if pieces.len() % 2 == 1 {
            words.extend(pieces.into_iter().skip(1).step_by(2).flat_map(error_words));
        }
    }
    words
}

fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Whether two paths name one file, where one of them may be relative.
fn is_same_path(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim_start_matches("./"), other.trim_start_matches("./"));
    let ends = |long: &str, short: &str| long == short || long.ends_with(&format!("/{short}"));
    ends(one, other) || ends(other, one)
}

/// One exchange, read once.
struct ReadExchange<'e> {
    exchange: &'e Exchange<'e>,
    result_at: Seq,
    result: &'e ToolResult,
    done: Vec<ToolEffect>,
    subject: String,
}

fn attempts_in(
    events: &[LoggedEvent],
    thread: ThreadId,
    session: SessionId,
    subject: FailureSubject<'_>,
) -> Vec<FailedAttempt> {
    let paired = pair(events.iter().map(|logged| (logged.id.seq, &logged.event.fact)));
    let read: Vec<ReadExchange<'_>> = paired.exchanges.iter().filter_map(read_exchange).collect();
    let mut attempts: Vec<(usize, FailedAttempt)> = Vec::new();
    for (index, tried) in read.iter().enumerate() {
        let Some(failed) = failure(tried.exchange.call, tried.result) else { continue };
        if !subject.is_of(tried.exchange.call, &tried.done, &failed.words) {
            continue;
        }
        let known = attempts.iter_mut().find(|(_, attempt)| attempt.tried == tried.subject);
        let times = known.as_ref().map_or(0, |(_, attempt)| attempt.times) + 1;
        let time = events
            .iter()
            .find(|logged| logged.id.seq == tried.result_at)
            .and_then(|logged| logged.event.time);
        let attempt = FailedAttempt {
            session,
            handle: handle(thread, tried),
            time,
            tried: tried.subject.clone(),
            words: excerpt(&failed.words, MAX_ERROR_CHARS),
            times,
            outcome: AttemptOutcome::Open,
        };
        match known {
            Some(known) => *known = (index, attempt),
            None => attempts.push((index, attempt)),
        }
    }
    for (index, attempt) in &mut attempts {
        attempt.outcome = outcome_after(&read, *index, thread);
    }
    attempts.into_iter().map(|(_, attempt)| attempt).collect()
}

fn read_exchange<'e>(exchange: &'e Exchange<'e>) -> Option<ReadExchange<'e>> {
    let CallOutcome::Returned { at, result } = exchange.outcome else { return None };
    let done = effects(exchange.call, Some(result));
    let subject = call_subject(exchange.call, &done);
    Some(ReadExchange { exchange, result_at: at, result, done, subject })
}

/// What became of a failure: whether the same worked later, and what was changed before it did.
fn outcome_after(read: &[ReadExchange<'_>], failed: usize, thread: ThreadId) -> AttemptOutcome {
    let mut changed: Vec<String> = Vec::new();
    for later in &read[failed + 1..] {
        let worked = failure(later.exchange.call, later.result).is_none();
        if worked && later.subject == read[failed].subject {
            return AttemptOutcome::Worked { handle: handle(thread, later), changed };
        }
        let paths = later.done.iter().filter_map(|effect| match effect {
            ToolEffect::Changed { path, .. } if worked => Some(path.clone()),
            _ => None,
        });
        for path in paths {
            if !changed.contains(&path) {
                changed.push(path);
            }
        }
    }
    AttemptOutcome::Open
}

fn handle(thread: ThreadId, read: &ReadExchange<'_>) -> String {
    let (call, result) = (read.exchange.at, read.result_at);
    if call == result {
        format!("{}:{call}", thread.short())
    } else {
        format!("{}:{call}-{result}", thread.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_error_are_those_that_stay() {
        assert_eq!(
            error_words("error[E0425]: cannot find value `foo_bar` in this scope at 0x7ffe line 33"),
            ["error", "cannot", "find", "value", "foo_bar", "this", "scope", "line"]
        );
        assert_eq!(error_words("12 34"), Vec::<String>::new());
        assert_eq!(quoted_words("cannot find `a_value` in \"this\" crate's scope"), ["a_value", "this"]);
    }

    #[test]
    fn a_path_may_be_relative() {
        for (one, other, same) in [
            ("/src/app/main.rs", "app/main.rs", true),
            ("./main.rs", "/src/main.rs", true),
            ("/src/main.rs", "/src/main.rs", true),
            ("domain.rs", "main.rs", false),
        ] {
            assert_eq!(is_same_path(one, other), same, "{one} {other}");
        }
    }
}
