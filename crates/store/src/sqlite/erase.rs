//! Erasing a session, on a person's order: the one place that lifts the triggers, inside its own transaction.
//!
//! What forks in other sessions share with the session stays, and moves to the session that inherits it. The rest
//! goes from the tables, and then from the files: freed pages are zeroed, the file is rewritten and the write-ahead
//! log emptied.

use std::collections::HashMap;

use epitome_core::{Seq, SessionId, ThreadId, event::Time};
use rusqlite::{Connection, TransactionBehavior, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    derived::{self, Derivations},
    fault::Fault,
    read, sessions,
};
use crate::{
    log::Head,
    records::{Erased, Scrubbed},
};

/// Erases a session and scrubs the files.
pub(super) fn erase(
    connection: &mut Connection,
    derivations: &mut Derivations,
    session: SessionId,
    now: Time,
) -> Result<Erased, Fault> {
    derivations.forget();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut erased = remove(&transaction, session, now)?;
    transaction.commit()?;
    erased.scrubbed = scrub(connection)?;
    Ok(erased)
}

/// Rewrites the file without what was deleted, and empties the write-ahead log.
pub(super) fn scrub(connection: &Connection) -> Result<Scrubbed, Fault> {
    connection.execute_batch("VACUUM")?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(if busy == 0 { Scrubbed::Gone } else { Scrubbed::Waiting })
}

/// A thread, and what others need of it.
struct Line {
    id: ThreadId,
    session: SessionId,
    parent: Option<ThreadId>,
    base: Seq,
}

/// What outside sessions need of a thread.
#[derive(Clone, Copy)]
struct Shared {
    through: Seq,
    heir: SessionId,
}

fn remove(connection: &Connection, session: SessionId, now: Time) -> Result<Erased, Fault> {
    sessions::row(connection, None, session)?;
    let lines = lines(connection)?;
    let shared = shared(&lines, session);
    let triggers = lift_triggers(connection)?;
    connection.execute("UPDATE sessions SET head_thread = NULL WHERE id = ?1", [session.blob()])?;
    let mut erased = Erased { threads: 0, events: 0, media: 0, shared: 0, scrubbed: Scrubbed::Waiting };
    for line in lines.iter().filter(|line| line.session == session) {
        if let Some(shared) = shared.get(&line.id) {
            rehome(connection, line, *shared, &mut erased)?;
        } else {
            erased.events += remove_events(connection, line.id, line.base)?;
            connection.execute("DELETE FROM threads WHERE id = ?1", [line.id.blob()])?;
            erased.threads += 1;
        }
    }
    connection.execute("DELETE FROM labels WHERE session = ?1", [session.blob()])?;
    connection.execute("DELETE FROM sessions WHERE id = ?1", [session.blob()])?;
    erased.media = connection.execute(
        "DELETE FROM media WHERE NOT EXISTS (SELECT 1 FROM media_uses WHERE media_uses.hash = media.hash)",
        [],
    )? as u64;
    let what = format!(
        "erased session {session}: {} threads, {} events, {} media; {} events kept for forks in other sessions",
        erased.threads, erased.events, erased.media, erased.shared
    );
    connection.execute("INSERT INTO audit (time, what) VALUES (?1, ?2)", params![now.0, what])?;
    for trigger in triggers {
        connection.execute_batch(&trigger)?;
    }
    Ok(erased)
}

/// All threads, the youngest first: a fork comes before what it was forked from.
fn lines(connection: &Connection) -> Result<Vec<Line>, Fault> {
    let mut statement =
        connection.prepare("SELECT id, session, parent, base_seq FROM threads ORDER BY number DESC")?;
    let mut rows = statement.query([])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        let parent = match row.get_ref(2)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(codec::thread(row, 2)?),
        };
        let base = Seq(unsigned(row.get(3)?));
        lines.push(Line { id: codec::thread(row, 0)?, session: codec::session(row, 1)?, parent, base });
    }
    Ok(lines)
}

/// What threads outside `session` share with threads inside, through any number of forks.
fn shared(lines: &[Line], session: SessionId) -> HashMap<ThreadId, Shared> {
    let mut shared: HashMap<ThreadId, Shared> = HashMap::new();
    for line in lines {
        let Some(parent) = line.parent else { continue };
        let needed = if line.session == session {
            match shared.get(&line.id) {
                Some(own) => Shared { through: own.through.min(line.base), heir: own.heir },
                None => continue,
            }
        } else {
            Shared { through: line.base, heir: line.session }
        };
        // The oldest fork inherits: it comes last here.
        let through = shared.get(&parent).map_or(needed.through, |known| known.through.max(needed.through));
        shared.insert(parent, Shared { through, heir: needed.heir });
    }
    shared
}

/// Takes the triggers away and gives the statements that bring them back.
fn lift_triggers(connection: &Connection) -> Result<Vec<String>, Fault> {
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name")?;
    let triggers: Vec<(String, String)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (name, _) in &triggers {
        connection.execute_batch(&format!("DROP TRIGGER \"{}\"", name.replace('"', "\"\"")))?;
    }
    Ok(triggers.into_iter().map(|(_, sql)| sql).collect())
}

/// Keeps the shared beginning of a thread, in the session that inherits it.
fn rehome(connection: &Connection, line: &Line, shared: Shared, erased: &mut Erased) -> Result<(), Fault> {
    if let Some(parent) = line.parent.filter(|_| shared.through < line.base) {
        // Only something before its own beginning is shared, and the rest of its parent goes too.
        rebase(connection, line.id, read::head_at(connection, parent, shared.through)?)?;
    }
    let through = shared.through.max(line.base);
    unindex(connection, line.id, line.base)?;
    erased.events += remove_rows(connection, line.id, through)?;
    let kept =
        connection.query_row("SELECT count(*) FROM events WHERE thread = ?1", [line.id.blob()], |row| {
            row.get::<_, i64>(0)
        })?;
    erased.shared += unsigned(kept);
    connection.execute(
        "UPDATE threads SET session = ?2 WHERE id = ?1",
        params![line.id.blob(), shared.heir.blob()],
    )?;
    derived::derive_thread(connection, line.id)
}

/// Lets a thread without events of its own begin earlier.
fn rebase(connection: &Connection, thread: ThreadId, base: Head) -> Result<(), Fault> {
    connection.execute(
        "UPDATE threads SET base_seq = ?2, base_raw_link = ?3, base_normal_link = ?4 WHERE id = ?1",
        params![thread.blob(), signed(base.seq.0), base.link.raw.0, base.link.normal.0],
    )?;
    Ok(())
}

fn remove_events(connection: &Connection, thread: ThreadId, after: Seq) -> Result<u64, Fault> {
    unindex(connection, thread, after)?;
    remove_rows(connection, thread, after)
}

/// Takes a thread's events after `after` out of the search index, which needs to be told their text.
fn unindex(connection: &Connection, thread: ThreadId, after: Seq) -> Result<(), Fault> {
    connection.execute(
        "INSERT INTO search (search, rowid, text)
         SELECT 'delete', id, fact_text(fact) FROM events
         WHERE thread = ?1 AND seq > ?2 AND fact_text(fact) <> ''",
        params![thread.blob(), signed(after.0)],
    )?;
    Ok(())
}

/// Deletes a thread's events after `after`, their counts and links, and everything derived of the thread.
fn remove_rows(connection: &Connection, thread: ThreadId, after: Seq) -> Result<u64, Fault> {
    for sql in [
        "DELETE FROM media_uses WHERE event IN (SELECT id FROM events WHERE thread = ?1 AND seq > ?2)",
        "DELETE FROM ledger_links WHERE thread = ?1 AND seq > ?2",
        "DELETE FROM counts WHERE thread = ?1 AND seq > ?2",
        "DELETE FROM turn_rows WHERE thread = ?1 AND ?2 >= 0",
        "DELETE FROM totals WHERE thread = ?1 AND ?2 >= 0",
        "DELETE FROM token_totals WHERE thread = ?1 AND ?2 >= 0",
    ] {
        connection.execute(sql, params![thread.blob(), signed(after.0)])?;
    }
    let removed = connection.execute(
        "DELETE FROM events WHERE thread = ?1 AND seq > ?2",
        params![thread.blob(), signed(after.0)],
    )?;
    Ok(removed as u64)
}
