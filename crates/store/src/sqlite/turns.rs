//! Turns as a thread sees them, read from the derived rows.
//!
//! A row belongs to the thread that owns the turn's first assistant event. A fork inside a turn shares its
//! beginning and goes on differently, so the last turn before each fork point is completed from the view's own
//! events; all others are read as they are.

use epitome_core::{
    EventId, Fact, Seq, SessionId, ThreadId, Tokens,
    event::Timestamp,
    turn::{Turn, TurnBuilder},
};
use rusqlite::{Connection, Row, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    sqlite_error::SqliteError,
    thread_view::{self, OwnedEventRange},
};
use crate::{error::StoreError, records::TurnRow};

const COLUMNS: &str = "seq, parent_thread, parent_seq, loop_index, first, last, time, tool_calls, through_thread, \
     through_seq, kept_thread, kept_seq, answer, model, usage, asked, turn_type, \
     EXISTS (SELECT 1 FROM turn_rows AS child WHERE child.parent_thread = turn_rows.thread \
        AND child.parent_seq = turn_rows.seq)";

/// The turns of a view, oldest first.
pub(super) fn turns(
    connection: &Connection,
    tokenizer: Option<&str>,
    thread: ThreadId,
) -> Result<Vec<TurnRow>, SqliteError> {
    let segments = thread_view::owned_event_ranges(connection, thread, Seq::START)?;
    let mut rows = Vec::new();
    let mut boundaries = Vec::new();
    for segment in &segments {
        load(connection, segment, &mut rows)?;
        if let Some(last) = rows.len().checked_sub(1) {
            boundaries.push(last);
        }
    }
    // No thread was forked from the end of the newest segment, unless it has no turn of its own.
    if rows.last().is_some_and(|row| row.turn.id.thread == thread) {
        boundaries.pop();
    }
    boundaries.dedup();
    for at in boundaries {
        complete(connection, thread, &mut rows, at)?;
    }
    mark_words(connection, thread, &mut rows)?;
    if let Some(tokenizer) = tokenizer {
        add_tokens(connection, tokenizer, thread, &mut rows)?;
    }
    Ok(rows)
}

/// The chain of parents of a turn, the turn itself last.
pub(super) fn history(
    connection: &Connection,
    tokenizer: Option<&str>,
    turn: EventId,
) -> Result<Vec<TurnRow>, SqliteError> {
    if thread_view::thread(connection, turn.thread)?.is_none() {
        return Err(StoreError::UnknownTurn(turn).into());
    }
    let mut rows = turns(connection, tokenizer, turn.thread)?;
    match rows.iter().position(|row| row.turn.id == turn) {
        Some(at) => rows.truncate(at + 1),
        None => return Err(StoreError::UnknownTurn(turn).into()),
    }
    Ok(rows)
}

/// Reads the rows of one segment.
fn load(
    connection: &Connection,
    segment: &OwnedEventRange,
    turns: &mut Vec<TurnRow>,
) -> Result<(), SqliteError> {
    let start = turns.len();
    let session = thread_view::thread(connection, segment.thread)?
        .ok_or_else(|| SqliteError::Damaged(format!("thread {} is missing", segment.thread)))?
        .session;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM turn_rows WHERE thread = ?1 AND seq <= ?2 ORDER BY seq"
    ))?;
    let mut rows = statement.query(params![segment.thread.blob(), signed(segment.until.0)])?;
    while let Some(row) = rows.next()? {
        turns.push(turn_row(connection, segment.thread, session, row)?);
    }
    assign_answers(connection, segment, &mut turns[start..])
}

fn turn_row(
    connection: &Connection,
    thread: ThreadId,
    session: SessionId,
    row: &Row<'_>,
) -> Result<TurnRow, SqliteError> {
    let id = EventId { thread, seq: codec::seq(row, 0)? };
    let damaged = |error: serde_json::Error| SqliteError::Damaged(format!("the row of turn {id}: {error}"));
    let usage: Option<String> = row.get(14)?;
    let compaction = match row.get::<_, String>(16)?.as_str() {
        "compaction" => match thread_view::event(connection, id)?.event.fact {
            Fact::Compacted(compaction) => Some(compaction),
            _ => return Err(SqliteError::Damaged(format!("turn {id} is no compaction in the log"))),
        },
        _ => None,
    };
    let turn = Turn {
        id,
        parent: codec::event_id(row, 1)?,
        loop_index: unsigned(row.get(3)?),
        first: codec::seq(row, 4)?,
        last: codec::seq(row, 5)?,
        asked: serde_json::from_str(&row.get::<_, String>(15)?).map_err(damaged)?,
        answered: Vec::new(),
        returned: Vec::new(),
        answer: row.get::<_, Option<String>>(12)?.map(Into::into),
        model: row.get::<_, Option<String>>(13)?.map(Into::into),
        time: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        tool_calls: unsigned(row.get(7)?),
        usage: usage.as_deref().map(serde_json::from_str).transpose().map_err(damaged)?,
        compaction,
        reverted: None,
        suspended: Vec::new(),
    };
    Ok(TurnRow {
        turn,
        session,
        has_children: row.get(17)?,
        tokens: None,
        summarized_through: codec::event_id(row, 8)?,
        first_kept: codec::event_id(row, 10)?,
    })
}

/// Assigns answers and results: within a turn, from its id on, the assistant's messages are the answer and
/// the tools' messages its results.
fn assign_answers(
    connection: &Connection,
    segment: &OwnedEventRange,
    turns: &mut [TurnRow],
) -> Result<(), SqliteError> {
    for turn in turns.iter_mut().filter(|row| row.turn.is_compaction()) {
        turn.turn.answered.push(turn.turn.id);
    }
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM events WHERE thread = ?1 AND kind = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq",
    )?;
    for kind in ["assistant_said", "tool_returned"] {
        let mut at = 0;
        let range =
            params![segment.thread.blob(), kind, signed(segment.after.next().0), signed(segment.until.0)];
        let mut rows = statement.query(range)?;
        while let Some(row) = rows.next()? {
            let seq = codec::seq(row, 0)?;
            while turns.get(at).is_some_and(|row| row.turn.last < seq) {
                at += 1;
            }
            let Some(row) = turns.get_mut(at) else { break };
            if row.turn.id.seq <= seq {
                let id = EventId { thread: segment.thread, seq };
                match kind {
                    "assistant_said" => row.turn.answered.push(id),
                    _ => row.turn.returned.push(id),
                }
            }
        }
    }
    Ok(())
}

/// Completes the turn at `at` as the view of `thread` continues it: with everything up to the next turn.
fn complete(
    connection: &Connection,
    thread: ThreadId,
    rows: &mut [TurnRow],
    at: usize,
) -> Result<(), SqliteError> {
    let until = rows.get(at + 1).map_or(Seq(u64::MAX), |next| next.turn.first.previous());
    let Some(row) = rows.get_mut(at) else { return Ok(()) };
    if row.turn.is_compaction() {
        return Ok(());
    }
    let mut turns = TurnBuilder::default();
    thread_view::visit_events(connection, thread, (row.turn.first, until), usize::MAX, &mut |stored| {
        turns.push(&stored.logged);
        Ok(())
    })?;
    let seen = turns.finish().into_iter().find(|turn| turn.id == row.turn.id);
    let seen = seen.ok_or_else(|| SqliteError::Damaged(format!("turn {} is not in the log", row.turn.id)))?;
    row.turn.last = seen.last;
    row.turn.answered = seen.answered;
    row.turn.returned = seen.returned;
    row.turn.tool_calls = seen.tool_calls;
    row.turn.usage = seen.usage;
    Ok(())
}

/// Notes where compactions were undone and brought back in this view; another view of the same turn may
/// differ.
fn mark_words(connection: &Connection, thread: ThreadId, rows: &mut [TurnRow]) -> Result<(), SqliteError> {
    for (compaction, standing, at) in thread_view::compaction_decisions(connection, thread)? {
        if let Ok(index) = rows.binary_search_by_key(&compaction, |row| row.turn.id.seq) {
            rows[index].turn.apply_status(standing, at);
        }
    }
    Ok(())
}

/// Adds up the counts of each turn's events.
fn add_tokens(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    rows: &mut [TurnRow],
) -> Result<(), SqliteError> {
    for row in rows.iter_mut() {
        row.tokens = Some(Tokens(0));
    }
    let mut at = 0;
    for (id, tokens) in thread_view::counts(connection, tokenizer, thread, Seq::START, usize::MAX)? {
        while rows.get(at).is_some_and(|row| row.turn.last < id.seq) {
            at += 1;
        }
        if let Some(row) = rows.get_mut(at) {
            row.tokens = row.tokens.map(|sum| sum + tokens);
        }
    }
    Ok(())
}
