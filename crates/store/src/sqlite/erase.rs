//! Erasing a session, on a person's order: the one place that lifts the triggers, inside its own transaction.
//!
//! The part that forks in other sessions share with the session is first copied into their own lines, each
//! its own beginning and no more, at the places and with the links it always had, and the calls it shows with
//! their numbers (`reparent_shared`). Then everything of the session goes from the tables, its jobs, summaries and
//! exchanges too, and from the files: freed pages are zeroed, the file is rewritten and the write-ahead log
//! emptied.

use std::collections::HashSet;

use epitome_core::{SessionId, ThreadId, event::Timestamp};
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use super::{
    codec::{self, AsBlob},
    deferred_derivation::DerivationBacklog,
    derivation,
    reparent_shared::ForkReparenting,
    sessions,
    sqlite_error::SqliteError,
};
use crate::records::{ErasureReport, ScrubState};

/// Erases a session and scrubs the files.
pub(super) fn erase(
    connection: &mut Connection,
    backlog: &mut DerivationBacklog,
    session: SessionId,
    now: Timestamp,
) -> Result<ErasureReport, SqliteError> {
    backlog.forget();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Rows of events may be given again once the last of them are gone.
    backlog.catch_up(&transaction)?;
    set_search(&transaction, IndexDeletion::Secure)?;
    let mut erased = remove(&transaction, session, now)?;
    // Before it takes any command, the index writes its pending entries.
    set_search(&transaction, IndexDeletion::Quick)?;
    transaction.commit()?;
    erased.scrubbed = scrub_if_possible(connection)?;
    Ok(erased)
}

/// Treatment of entries that are deleted from the search index.
#[derive(Clone, Copy)]
enum IndexDeletion {
    /// It is removed from wherever it is.
    Secure,
    /// It is marked, and stays until its piece of the index is merged with others.
    Quick,
}

fn set_search(connection: &Connection, deletion: IndexDeletion) -> Result<(), SqliteError> {
    let secure = matches!(deletion, IndexDeletion::Secure);
    connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', ?1)", [secure])?;
    Ok(())
}

/// Scrubs, after something that is done already: a lack of room or a lock only puts it off.
pub(super) fn scrub_if_possible(connection: &Connection) -> Result<ScrubState, SqliteError> {
    match scrub(connection) {
        Err(SqliteError::Sql(error))
            if matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ) =>
        {
            Ok(ScrubState::Waiting)
        }
        other => other,
    }
}

/// Rewrites the file without deleted data, and empties the write-ahead log.
pub(super) fn scrub(connection: &Connection) -> Result<ScrubState, SqliteError> {
    connection.execute_batch("VACUUM")?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(if busy == 0 { ScrubState::Gone } else { ScrubState::Waiting })
}

/// Indexes from a content to the rows that name it: needed for no other purpose, so they exist only while a
/// session is erased.
const CREATE_REFERENCE_INDEXES: &str = "
    CREATE INDEX erasing_by_policy ON model_calls (policy);
    CREATE INDEX erasing_by_profile ON model_calls (profile) WHERE profile IS NOT NULL;
    CREATE INDEX erasing_by_rendering ON model_calls (rendering);
    CREATE INDEX erasing_by_script ON script_contents (hash);";
const DROP_REFERENCE_INDEXES: &str = "
    DROP INDEX erasing_by_policy;
    DROP INDEX erasing_by_profile;
    DROP INDEX erasing_by_rendering;
    DROP INDEX erasing_by_script;";

/// A thread and its place in the family.
struct FamilyThread {
    id: ThreadId,
    session: SessionId,
    parent: Option<ThreadId>,
}

fn remove(connection: &Connection, session: SessionId, now: Timestamp) -> Result<ErasureReport, SqliteError> {
    sessions::row(connection, None, session)?;
    let lines = lines(connection)?;
    let gone: HashSet<ThreadId> =
        lines.iter().filter(|line| line.session == session).map(|line| line.id).collect();
    let touched = touched(&lines, &gone);
    let triggers = lift_triggers(connection)?;
    for line in &touched {
        forget_derived(connection, line.id)?;
    }
    let mut adoption = ForkReparenting::new(&gone);
    for line in &touched {
        if line.parent.is_some_and(|parent| gone.contains(&parent)) {
            adoption.adopt(connection, line.id, line.session)?;
        }
    }
    let contents = contents_of(connection, &gone)?;
    connection.execute_batch(CREATE_REFERENCE_INDEXES)?;
    let mut erased = ErasureReport {
        threads: gone.len() as u64,
        events: 0,
        media: 0,
        shared: adoption.shared(),
        scrubbed: ScrubState::Waiting,
    };
    connection.execute("UPDATE sessions SET head_thread = NULL WHERE id = ?1", [session.blob()])?;
    // Forks before their parents, which they refer to.
    for line in lines.iter().rev().filter(|line| line.session == session) {
        erased.events += remove_thread(connection, line.id)?;
    }
    erased.events = erased.events.saturating_sub(erased.shared);
    forget_contents(connection, &contents)?;
    connection.execute_batch(DROP_REFERENCE_INDEXES)?;
    connection.execute("DELETE FROM labels WHERE session = ?1", [session.blob()])?;
    connection.execute("DELETE FROM sessions WHERE id = ?1", [session.blob()])?;
    for line in &touched {
        derivation::derive_thread(connection, line.id)?;
    }
    erased.media = connection.execute(
        "DELETE FROM media WHERE NOT EXISTS (SELECT 1 FROM media_uses WHERE media_uses.hash = media.hash)",
        [],
    )? as u64;
    let what = format!(
        "erased session {session}: {} threads, {} events, {} media; {} events live on in forks of other sessions",
        erased.threads, erased.events, erased.media, erased.shared
    );
    connection.execute("INSERT INTO audit (time, what) VALUES (?1, ?2)", params![now.0, what])?;
    for trigger in triggers {
        connection.execute_batch(&trigger)?;
    }
    Ok(erased)
}

/// All threads, the oldest first: a fork comes after its parent.
fn lines(connection: &Connection) -> Result<Vec<FamilyThread>, SqliteError> {
    let mut statement = connection.prepare("SELECT id, session, parent FROM threads ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        let parent = match row.get_ref(2)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(codec::thread(row, 2)?),
        };
        lines.push(FamilyThread { id: codec::thread(row, 0)?, session: codec::session(row, 1)?, parent });
    }
    Ok(lines)
}

/// The threads that stay and see anything of those that go, parents before their forks: their derived data
/// names the owners of the shared part.
fn touched<'l>(lines: &'l [FamilyThread], gone: &HashSet<ThreadId>) -> Vec<&'l FamilyThread> {
    let mut seeing = gone.clone();
    let mut touched = Vec::new();
    for line in lines {
        if !gone.contains(&line.id) && line.parent.is_some_and(|parent| seeing.contains(&parent)) {
            seeing.insert(line.id);
            touched.push(line);
        }
    }
    touched
}

/// Takes the triggers away and gives the statements that bring them back.
fn lift_triggers(connection: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name")?;
    let triggers: Vec<(String, String)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (name, _) in &triggers {
        connection.execute_batch(&format!("DROP TRIGGER \"{}\"", name.replace('"', "\"\"")))?;
    }
    Ok(triggers.into_iter().map(|(_, sql)| sql).collect())
}

/// The contents that calls of these threads name.
fn contents_of(
    connection: &Connection,
    threads: &HashSet<ThreadId>,
) -> Result<HashSet<[u8; 32]>, SqliteError> {
    let mut statement = connection.prepare(
        "SELECT policy FROM model_calls WHERE thread = ?1
         UNION SELECT rendering FROM model_calls WHERE thread = ?1
         UNION SELECT profile FROM model_calls WHERE thread = ?1 AND profile IS NOT NULL
         UNION SELECT hash FROM script_contents WHERE thread = ?1",
    )?;
    let mut contents = HashSet::new();
    for thread in threads {
        for hash in statement.query_map([thread.blob()], |row| row.get(0))? {
            contents.insert(hash?);
        }
    }
    Ok(contents)
}

/// Deletes those contents that no call names any more. One that no call has named yet is not among them.
fn forget_contents(connection: &Connection, contents: &HashSet<[u8; 32]>) -> Result<(), SqliteError> {
    let mut statement = connection.prepare(
        "DELETE FROM contents WHERE hash = ?1
            AND NOT EXISTS (SELECT 1 FROM model_calls WHERE policy = ?1)
            AND NOT EXISTS (SELECT 1 FROM model_calls WHERE rendering = ?1)
            AND NOT EXISTS (SELECT 1 FROM model_calls WHERE profile = ?1)
            AND NOT EXISTS (SELECT 1 FROM script_contents WHERE hash = ?1)",
    )?;
    for hash in contents {
        statement.execute([hash])?;
    }
    Ok(())
}

/// Deletes a thread with everything that is its own; gives how many events it had.
fn remove_thread(connection: &Connection, thread: ThreadId) -> Result<u64, SqliteError> {
    forget_derived(connection, thread)?;
    for sql in [
        "DELETE FROM exchanges WHERE thread = ?1",
        "DELETE FROM media_uses WHERE event IN (SELECT id FROM events WHERE thread = ?1)",
        "DELETE FROM ledger_links WHERE thread = ?1",
        "DELETE FROM counts WHERE thread = ?1",
        "DELETE FROM call_outcomes WHERE call IN (SELECT id FROM model_calls WHERE thread = ?1)",
        "DELETE FROM model_calls WHERE thread = ?1",
        "DELETE FROM script_contents WHERE thread = ?1",
        "DELETE FROM job_attempts WHERE job IN (SELECT id FROM jobs WHERE thread = ?1)",
        "DELETE FROM summaries WHERE thread = ?1",
        "DELETE FROM jobs WHERE thread = ?1",
    ] {
        connection.execute(sql, [thread.blob()])?;
    }
    let removed = connection.execute("DELETE FROM events WHERE thread = ?1", [thread.blob()])?;
    connection.execute("DELETE FROM threads WHERE id = ?1", [thread.blob()])?;
    Ok(removed as u64)
}

/// Drops the data that [`derivation::derive_thread`] makes of a thread. The search index must be given the texts
/// that it is to forget.
fn forget_derived(connection: &Connection, thread: ThreadId) -> Result<(), SqliteError> {
    for sql in [
        "INSERT INTO search (search, rowid, text)
         SELECT 'delete', id, fact_text(fact) FROM events WHERE thread = ?1 AND fact_text(fact) <> ''",
        "DELETE FROM turn_rows WHERE thread = ?1",
        "DELETE FROM totals WHERE thread = ?1",
        "DELETE FROM shared_totals WHERE thread = ?1",
        "DELETE FROM token_totals WHERE thread = ?1",
    ] {
        connection.execute(sql, [thread.blob()])?;
    }
    Ok(())
}
