//! Full-text search over both ledgers, the agents' and the outside one.
//!
//! A person types words, not a query language: every word is quoted before SQLite sees it, so that no input
//! is an error.

use std::collections::HashMap;

use epitome_core::{EventId, Seq, ThreadId, event::Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{codec, sessions, sqlite_error::SqliteError, thread_view};
use crate::records::{
    HitLocation, SearchFilter, SearchHit, SearchQuery, SearchScope, SessionFilter, SnippetPart,
};

/// Around a match in a snippet. Private-use characters: no text contains them by accident.
const MATCH_START: char = '\u{F5A1E}';
const MATCH_END: char = '\u{F5A1F}';

/// Number of words in a snippet.
const SNIPPET_WORDS: u32 = 24;

/// The best hits, best first.
pub(super) fn search(connection: &Connection, search: &SearchQuery) -> Result<Vec<SearchHit>, SqliteError> {
    let Some(query) = query(&search.words) else { return Ok(Vec::new()) };
    let place = SearchArea::of(connection, &search.scope)?;
    // Two steps, because a snippet is made for every row that is looked at, and a hit outside the scope needs none.
    let mut best =
        connection.prepare_cached("SELECT rowid, rank FROM search WHERE search MATCH ?1 ORDER BY rank")?;
    let mut rows = best.query([&query])?;
    let mut hits = Vec::new();
    let mut skipped = 0;
    while hits.len() < search.limit {
        let Some(row) = rows.next()? else { break };
        let (id, rank): (i64, f64) = (row.get(0)?, row.get(1)?);
        if let Some((found, time)) = place.find(connection, id)?
            && is_wanted(connection, &search.filter, &found, time)?
        {
            if skipped < search.filter.skip {
                skipped += 1;
                continue;
            }
            hits.push(SearchHit { found, time, score: -rank, snippet: snippet(connection, &query, id)? });
        }
    }
    Ok(hits)
}

/// Returns true if a hit is one of the filter's.
fn is_wanted(
    connection: &Connection,
    filter: &SearchFilter,
    found: &HitLocation,
    time: Option<Timestamp>,
) -> Result<bool, SqliteError> {
    let SearchFilter { sessions: owners, since, kind, skip: _ } = filter;
    if since.is_some_and(|since| time.is_none_or(|time| time < since)) {
        return Ok(false);
    }
    match found {
        _ if *owners == SessionFilter::default() && kind.is_none() => Ok(true),
        HitLocation::Ledger { .. } => Ok(false),
        HitLocation::Event { session, kind: of, .. } => {
            Ok(kind.as_ref().is_none_or(|kind| kind == of) && sessions::is_of(connection, *session, owners)?)
        }
    }
}

/// The words in SQLite's query language, or `None` if there are none to search for.
fn query(words: &str) -> Option<String> {
    let mut terms: Vec<String> = Vec::new();
    let mut add = |text: &str, star: &str| {
        if text.chars().any(char::is_alphanumeric) {
            let text = text.replace('\0', " ").replace('"', "\"\"");
            terms.push(format!("\"{text}\"{star}"));
        }
    };
    // Between an odd and an even quote is a phrase; an unclosed one goes to the end.
    for (index, piece) in words.split('"').enumerate() {
        if index % 2 == 1 {
            add(piece, "");
            continue;
        }
        for word in piece.split_whitespace() {
            match word.strip_suffix('*') {
                Some(prefix) => add(prefix, "*"),
                None => add(word, ""),
            }
        }
    }
    (!terms.is_empty()).then(|| terms.join(" "))
}

fn snippet(connection: &Connection, query: &str, id: i64) -> Result<Vec<SnippetPart>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT snippet(search, 0, ?3, ?4, '…', ?5) FROM search WHERE search MATCH ?1 AND rowid = ?2",
    )?;
    let values = params![query, id, MATCH_START.to_string(), MATCH_END.to_string(), SNIPPET_WORDS];
    let text: Option<String> = statement.query_row(values, |row| row.get(0)).optional()?.flatten();
    Ok(excerpts(&text.unwrap_or_default()))
}

fn excerpts(text: &str) -> Vec<SnippetPart> {
    let mut excerpts = Vec::new();
    for (index, piece) in text.split([MATCH_START, MATCH_END]).enumerate() {
        if !piece.is_empty() {
            let piece = piece.to_owned();
            excerpts.push(if index % 2 == 1 { SnippetPart::Match(piece) } else { SnippetPart::Plain(piece) });
        }
    }
    excerpts
}

/// Place in which a hit counts.
enum SearchArea {
    Everywhere,
    Events,
    /// By owner: the shown part of a thread always begins where its own events do.
    Views(HashMap<ThreadId, Seq>),
    Ledger,
}

impl SearchArea {
    fn of(connection: &Connection, scope: &SearchScope) -> Result<Self, SqliteError> {
        Ok(match scope {
            SearchScope::Everything => Self::Everywhere,
            SearchScope::Sessions => Self::Events,
            SearchScope::Session(session) => {
                let threads = sessions::threads(connection, *session)?;
                Self::views(connection, threads.into_iter().map(|thread| thread.id))?
            }
            SearchScope::Thread(thread) => Self::views(connection, [*thread])?,
            SearchScope::Ledger => Self::Ledger,
        })
    }

    fn views(
        connection: &Connection,
        threads: impl IntoIterator<Item = ThreadId>,
    ) -> Result<Self, SqliteError> {
        let mut shown: HashMap<ThreadId, Seq> = HashMap::new();
        for thread in threads {
            for segment in thread_view::owned_event_ranges(connection, thread, Seq::START)? {
                let until = shown.entry(segment.thread).or_default();
                *until = segment.until.max(*until);
            }
        }
        Ok(Self::Views(shown))
    }

    /// Source of an index row, if it is in this place. Ledger entries have negative numbers.
    fn find(
        &self,
        connection: &Connection,
        id: i64,
    ) -> Result<Option<(HitLocation, Option<Timestamp>)>, SqliteError> {
        match (id < 0, self) {
            (true, Self::Everywhere | Self::Ledger) => ledger_entry(connection, id),
            (true, Self::Events | Self::Views(_)) | (false, Self::Ledger) => Ok(None),
            (false, Self::Everywhere | Self::Events) => event(connection, id),
            (false, Self::Views(shown)) => Ok(event(connection, id)?.filter(|(found, _)| match found {
                HitLocation::Event { id, .. } => shown.get(&id.thread).is_some_and(|until| id.seq <= *until),
                HitLocation::Ledger { .. } => false,
            })),
        }
    }
}

fn event(connection: &Connection, id: i64) -> Result<Option<(HitLocation, Option<Timestamp>)>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT events.thread, events.seq, threads.session, events.kind, events.time
         FROM events JOIN threads ON threads.id = events.thread
         WHERE events.id = ?1",
    )?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(found_event).transpose()
}

fn found_event(row: &Row<'_>) -> Result<(HitLocation, Option<Timestamp>), SqliteError> {
    let id = EventId { thread: codec::thread(row, 0)?, seq: codec::seq(row, 1)? };
    let found = HitLocation::Event { id, session: codec::session(row, 2)?, kind: row.get(3)? };
    Ok((found, row.get::<_, Option<i64>>(4)?.map(Timestamp)))
}

fn ledger_entry(
    connection: &Connection,
    number: i64,
) -> Result<Option<(HitLocation, Option<Timestamp>)>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT channel, id, time FROM ledger WHERE number = ?1")?;
    let found = statement.query_row([number], |row| {
        Ok((HitLocation::Ledger { channel: row.get(0)?, id: row.get(1)? }, Some(Timestamp(row.get(2)?))))
    });
    Ok(found.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_whatever_they_are() {
        let check =
            |words: &str, expect: Option<&str>| assert_eq!(query(words).as_deref(), expect, "{words}");
        check("two words", Some(r#""two" "words""#));
        check(r#"say "two words" twice"#, Some(r#""say" "two words" "twice""#));
        check("pre* NOT (a OR b)", Some(r#""pre"* "NOT" "(a" "OR" "b)""#));
        check(r#"un"closed phrase"#, Some(r#""un" "closed phrase""#));
        check("src/main.rs text:x", Some(r#""src/main.rs" "text:x""#));
        check("* \"\" !! ", None);
    }
}
