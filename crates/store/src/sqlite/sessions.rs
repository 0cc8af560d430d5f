//! Sessions: named, listed, labelled and forked by people.

use std::collections::BTreeMap;

use epitome_core::{SessionId, ThreadId, Tokens, event::Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};

use super::{
    append,
    codec::{self, AsBlob, unsigned},
    shared_sums,
    sqlite_error::SqliteError,
    thread_view,
    writer::WriteTx,
};
use crate::{
    error::{SessionCandidate, StoreError},
    log::{NewThread, ThreadStart},
    records::{CreateOutcome, NewFork, NewSession, SessionFilter, SessionName, SessionRow, ThreadRow},
    thread_head::ThreadHead,
};

/// Names of a session and the thread it goes on with.
pub(super) fn name(connection: &Connection, session: SessionId) -> Result<SessionName, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT key, title, head_thread FROM sessions WHERE id = ?1")?;
    let mut rows = statement.query([session.blob()])?;
    let Some(row) = rows.next()? else {
        let asked = session.to_string();
        return Err(StoreError::UnknownSession { asked, nearest: Vec::new() }.into());
    };
    let has_head = row.get_ref(2)? != ValueRef::Null;
    let head = has_head.then(|| codec::thread(row, 2)).transpose()?;
    Ok(SessionName { key: row.get(0)?, title: row.get(1)?, head })
}

/// Makes a session; empty fields of an existing one are filled in.
pub(super) fn create(tx: &WriteTx<'_>, session: &NewSession) -> Result<CreateOutcome, SqliteError> {
    let values = params![
        session.id.blob(),
        session.title,
        session.key,
        session.source,
        session.created.map(|time| time.0),
        session.principal,
    ];
    let known = principal(tx.connection, session.id)?;
    if known.as_ref().is_some_and(|known| *known != session.principal) {
        return Err(StoreError::OtherPrincipal(session.id).into());
    }
    tx.connection
        .prepare_cached(
            "INSERT INTO sessions (id, title, key, source, created, principal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET
                title = CASE title WHEN '' THEN excluded.title ELSE title END,
                source = CASE source WHEN '' THEN excluded.source ELSE source END,
                key = coalesce(key, excluded.key), created = coalesce(created, excluded.created)",
        )?
        .execute(values)?;
    Ok(if known.is_some() { CreateOutcome::Already } else { CreateOutcome::New })
}

/// The session that a principal's client calls `key` and that has the same name as `id`, wherever it is placed.
pub(super) fn session_named(
    connection: &Connection,
    principal: &str,
    key: &str,
    id: SessionId,
) -> Result<Option<SessionId>, SqliteError> {
    // The index alone answers this, however many sessions have the key.
    let mut statement = connection
        .prepare_cached("SELECT id FROM sessions WHERE key = ?1 AND substr(id, 7) = substr(?2, 7)")?;
    let mut rows = statement.query(params![key, id.blob()])?;
    while let Some(row) = rows.next()? {
        let known = codec::session(row, 0)?;
        if self::principal(connection, known)?.as_deref() == Some(principal) {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// Principal of a session, if there is one.
pub(super) fn principal(connection: &Connection, session: SessionId) -> Result<Option<String>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT principal FROM sessions WHERE id = ?1")?;
    Ok(statement.query_row([session.blob()], |row| row.get(0)).optional()?)
}

/// The session of a thread, and its principal.
pub(super) fn owner(connection: &Connection, thread: ThreadId) -> Result<(SessionId, String), SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT sessions.id, principal FROM threads CROSS JOIN sessions ON sessions.id = threads.session
         WHERE threads.id = ?1",
    )?;
    let mut rows = statement.query([thread.blob()])?;
    let row = rows.next()?.ok_or(StoreError::UnknownThread(thread))?;
    Ok((codec::session(row, 0)?, row.get(1)?))
}

/// Refuses a session that is not there.
pub(super) fn expect_session(connection: &Connection, session: SessionId) -> Result<(), SqliteError> {
    principal(connection, session)?.map(drop).ok_or_else(|| unknown(session))
}

/// Forks a thread into a session of its own.
pub(super) fn fork(tx: &mut WriteTx<'_>, fork: &NewFork) -> Result<ThreadHead, SqliteError> {
    create(tx, &fork.session)?;
    let thread = NewThread {
        id: fork.thread,
        session: fork.session.id,
        name: fork.name.clone(),
        key: None,
        start: ThreadStart::Fork { of: fork.of, at: fork.at },
    };
    append::open(tx, &thread)?;
    set_head(tx, fork.session.id, fork.thread)?;
    thread_view::head(tx.connection, fork.thread)
}

/// Names a session.
pub(super) fn set_title(tx: &WriteTx<'_>, session: SessionId, title: &str) -> Result<(), SqliteError> {
    let changed = tx
        .connection
        .prepare_cached("UPDATE sessions SET title = ?2 WHERE id = ?1")?
        .execute(params![session.blob(), title])?;
    if changed == 0 { Err(unknown(session)) } else { Ok(()) }
}

/// Labels a session.
pub(super) fn add_label(
    tx: &WriteTx<'_>,
    session: SessionId,
    label: &str,
) -> Result<CreateOutcome, SqliteError> {
    expect_session(tx.connection, session)?;
    let added = tx
        .connection
        .prepare_cached("INSERT INTO labels (session, label) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![session.blob(), label])?;
    Ok(if added == 0 { CreateOutcome::Already } else { CreateOutcome::New })
}

/// Takes a label off.
pub(super) fn remove_label(tx: &WriteTx<'_>, session: SessionId, label: &str) -> Result<(), SqliteError> {
    expect_session(tx.connection, session)?;
    tx.connection
        .prepare_cached("DELETE FROM labels WHERE session = ?1 AND label = ?2")?
        .execute(params![session.blob(), label])?;
    Ok(())
}

/// Chooses the thread a session goes on with.
pub(super) fn set_head(tx: &WriteTx<'_>, session: SessionId, thread: ThreadId) -> Result<(), SqliteError> {
    expect_session(tx.connection, session)?;
    let known = thread_view::thread(tx.connection, thread)?.ok_or(StoreError::UnknownThread(thread))?;
    if known.session != session {
        return Err(StoreError::ThreadOfOtherSession { thread, session }.into());
    }
    set_head_of_session(tx, thread)
}

/// Lets the session of a thread go on with it.
pub(super) fn set_head_of_session(tx: &WriteTx<'_>, thread: ThreadId) -> Result<(), SqliteError> {
    tx.connection
        .prepare_cached(
            "UPDATE sessions SET head_thread = ?1
             WHERE id = (SELECT session FROM threads WHERE id = ?1) AND head_thread IS NOT ?1",
        )?
        .execute([thread.blob()])?;
    Ok(())
}

/// The threads of a session, in the order they were made.
pub(super) fn threads(connection: &Connection, session: SessionId) -> Result<Vec<ThreadRow>, SqliteError> {
    expect_session(connection, session)?;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM threads WHERE session = ?1 ORDER BY number",
        thread_view::THREAD_COLUMNS
    ))?;
    let mut rows = statement.query([session.blob()])?;
    let mut threads = Vec::new();
    while let Some(row) = rows.next()? {
        threads.push(thread_view::thread_row(connection, thread_view::new_thread_from_row(row)?)?);
    }
    Ok(threads)
}

/// All sessions, the most recently active first.
pub(super) fn rows(connection: &Connection, tokenizer: Option<&str>) -> Result<Vec<SessionRow>, SqliteError> {
    select(connection, tokenizer, None)
}

/// The most recently active sessions of a filter.
pub(super) fn latest(
    connection: &Connection,
    tokenizer: Option<&str>,
    filter: &SessionFilter,
    limit: usize,
) -> Result<Vec<SessionRow>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT sessions.id
         FROM sessions
         LEFT JOIN threads ON threads.session = sessions.id
         LEFT JOIN totals ON totals.thread = threads.id
         WHERE (?1 IS NULL OR principal = ?1)
            AND (?2 IS NULL OR EXISTS (SELECT 1 FROM labels WHERE session = sessions.id AND label = ?2))
         GROUP BY sessions.id ORDER BY coalesce(max(last_time), created) DESC, sessions.id LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![filter.principal, filter.label, limit])?;
    let mut sessions = Vec::new();
    while let Some(found) = rows.next()? {
        sessions.push(row(connection, tokenizer, codec::session(found, 0)?)?);
    }
    Ok(sessions)
}

/// Returns true if a session is one of a filter's.
pub(super) fn is_of(
    connection: &Connection,
    session: SessionId,
    filter: &SessionFilter,
) -> Result<bool, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT (?2 IS NULL OR principal = ?2)
            AND (?3 IS NULL OR EXISTS (SELECT 1 FROM labels WHERE session = ?1 AND label = ?3))
         FROM sessions WHERE id = ?1",
    )?;
    let values = params![session.blob(), filter.principal, filter.label];
    Ok(statement.query_row(values, |row| row.get(0)).optional()?.unwrap_or(false))
}

/// The threads that a name abbreviates. The id's own text is compared, because only it knows its forms.
pub(super) fn abbreviated_threads(
    connection: &Connection,
    name: &str,
) -> Result<Vec<ThreadRow>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT id FROM threads ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut meant = Vec::new();
    while let Some(row) = rows.next()? {
        let thread = codec::thread(row, 0)?;
        if thread.matches_abbreviation(name) {
            meant.push(thread);
        }
    }
    if meant.iter().any(|thread| thread.short() == name) {
        meant.retain(|thread| thread.short() == name);
    }
    let known = |thread| {
        let made = thread_view::thread(connection, thread)?.ok_or(StoreError::UnknownThread(thread))?;
        thread_view::thread_row(connection, made)
    };
    meant.into_iter().map(known).collect()
}

/// One session.
pub(super) fn row(
    connection: &Connection,
    tokenizer: Option<&str>,
    session: SessionId,
) -> Result<SessionRow, SqliteError> {
    select(connection, tokenizer, Some(session))?.pop().ok_or_else(|| unknown(session))
}

fn unknown(session: SessionId) -> SqliteError {
    StoreError::UnknownSession { asked: session.to_string(), nearest: Vec::new() }.into()
}

fn select(
    connection: &Connection,
    tokenizer: Option<&str>,
    only: Option<SessionId>,
) -> Result<Vec<SessionRow>, SqliteError> {
    let only = only.map(|session| session.blob());
    let mut labels = labels(connection, only)?;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT sessions.id, title, sessions.key, source, created, head_thread, count(threads.id), sum(totals.events),
            sum(messages), sum(turns), sum(loops), sum(tool_calls), sum(compactions), sum(token_totals.tokens),
            min(first_time), max(last_time), principal
         FROM sessions
         LEFT JOIN threads ON threads.session = sessions.id
         LEFT JOIN totals ON totals.thread = threads.id
         LEFT JOIN token_totals ON token_totals.thread = threads.id AND tokenizer = ?1
         {} GROUP BY sessions.id ORDER BY coalesce(max(last_time), created) DESC, sessions.id",
        if only.is_some() { "WHERE sessions.id = ?2" } else { "WHERE ?2 IS NULL" }
    ))?;
    let mut rows = statement.query(params![tokenizer, only])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        let mut session = session_row(row)?;
        session.tokens = tokenizer.map(|_| session.tokens.unwrap_or_default());
        session.labels = labels.remove(&session.id).unwrap_or_default();
        sessions.push(session);
    }
    shared_sums::add(connection, tokenizer, &mut sessions)?;
    Ok(sessions)
}

fn session_row(row: &Row<'_>) -> Result<SessionRow, SqliteError> {
    let sum = |column: usize| -> Result<u64, SqliteError> {
        Ok(unsigned(row.get::<_, Option<i64>>(column)?.unwrap_or(0)))
    };
    let time = |column: usize| -> Result<Option<Timestamp>, SqliteError> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
    };
    Ok(SessionRow {
        id: codec::session(row, 0)?,
        title: row.get(1)?,
        key: row.get(2)?,
        source: row.get(3)?,
        principal: row.get(16)?,
        created: time(4)?,
        head: row.get::<_, Option<[u8; 16]>>(5)?.map(|bytes| ThreadId::new(uuid::Uuid::from_bytes(bytes))),
        labels: Vec::new(),
        threads: sum(6)?,
        events: sum(7)?,
        messages: sum(8)?,
        turns: sum(9)?,
        loops: sum(10)?,
        tool_calls: sum(11)?,
        compactions: sum(12)?,
        tokens: row.get::<_, Option<i64>>(13)?.map(|tokens| Tokens(unsigned(tokens))),
        first: time(14)?,
        last: time(15)?,
    })
}

fn labels(
    connection: &Connection,
    only: Option<[u8; 16]>,
) -> Result<BTreeMap<SessionId, Vec<String>>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT session, label FROM labels WHERE ?1 IS NULL OR session = ?1 ORDER BY label",
    )?;
    let mut rows = statement.query([only])?;
    let mut labels: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        labels.entry(codec::session(row, 0)?).or_default().push(row.get(1)?);
    }
    Ok(labels)
}

/// The session that `text` means. The surest reading that fits exactly one session wins.
pub(super) fn find(connection: &Connection, text: &str) -> Result<SessionId, SqliteError> {
    let asked = text.trim();
    let known = names(connection)?;
    let folded = asked.to_lowercase();
    let readings: [&dyn Fn(&NamedCandidate) -> bool; 6] = [
        &|name| name.id == folded,
        &|name| name.candidate.id.matches_abbreviation(asked),
        &|name| name.candidate.title == asked,
        &|name| name.key.as_deref() == Some(asked),
        &|name| name.folded.starts_with(&folded),
        &|name| name.folded.contains(&folded),
    ];
    let mut ambiguous = None;
    for reading in readings {
        if asked.is_empty() {
            break;
        }
        let mut meant: Vec<SessionCandidate> =
            known.iter().filter(|name| reading(name)).map(|name| name.candidate.clone()).collect();
        match meant.len() {
            0 => {}
            1 => return Ok(meant.remove(0).id),
            _ => ambiguous = ambiguous.or(Some(meant)),
        }
    }
    let asked = asked.to_owned();
    Err(match ambiguous {
        Some(candidates) => StoreError::AmbiguousSession { asked, candidates },
        None => StoreError::UnknownSession { nearest: nearest(&known, &folded), asked },
    }
    .into())
}

struct NamedCandidate {
    candidate: SessionCandidate,
    id: String,
    key: Option<String>,
    folded: String,
}

fn names(connection: &Connection) -> Result<Vec<NamedCandidate>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT id, title, key FROM sessions ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let id = codec::session(row, 0)?;
        let title: String = row.get(1)?;
        let folded = title.to_lowercase();
        names.push(NamedCandidate {
            candidate: SessionCandidate { id, title },
            id: id.to_string(),
            key: row.get(2)?,
            folded,
        });
    }
    Ok(names)
}

/// The sessions nearest to the requested name, by edit distance: to a title, to as many words of one as the
/// request has, or to the beginning of an id or key of the same length.
fn nearest(known: &[NamedCandidate], asked: &str) -> Vec<SessionCandidate> {
    const MAX_SHOWN_CANDIDATES: usize = 3;
    let asked = clip(asked);
    let mut scored: Vec<(f64, &NamedCandidate)> =
        known.iter().filter_map(|name| Some((name.likeness(&asked)?, name))).collect();
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    scored.into_iter().take(MAX_SHOWN_CANDIDATES).map(|(_, name)| name.candidate.clone()).collect()
}

impl NamedCandidate {
    /// Similarity of the text to this name, as a typo, if it is similar at all. Parts are many, so a part
    /// must be more alike than a whole title to be no coincidence.
    fn likeness(&self, asked: &str) -> Option<f64> {
        const WHOLE_TITLE_SIMILARITY: f64 = 0.4;
        const PART_TITLE_SIMILARITY: f64 = 0.65;
        let alike = |text: &str, least: f64| {
            Some(strsim::normalized_damerau_levenshtein(asked, text)).filter(|score| *score >= least)
        };
        let title = clip(&self.folded);
        let words: Vec<&str> = title.split_whitespace().collect();
        let asked_words = asked.split_whitespace().count().max(1);
        let runs = words.windows(asked_words).filter_map(|run| alike(&run.join(" "), PART_TITLE_SIMILARITY));
        let length = asked.chars().count();
        let beginning = |text: &str| text.to_lowercase().chars().take(length).collect::<String>();
        let names = [Some(self.id.as_str()), self.key.as_deref()].into_iter().flatten();
        let beginnings = names.filter_map(|name| alike(&beginning(name), PART_TITLE_SIMILARITY));
        runs.chain(beginnings).chain(alike(&title, WHOLE_TITLE_SIMILARITY)).max_by(f64::total_cmp)
    }
}

/// Cuts a title that is as long as a whole message: a name that is typed is not that long.
fn clip(text: &str) -> String {
    const MAX_COMPARED_CHARS: usize = 80;
    text.chars().take(MAX_COMPARED_CHARS).collect()
}
