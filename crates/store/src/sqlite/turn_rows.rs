//! The rows of turns: written as events arrive, and read back to go on from where a derivation stopped.

use epitome_core::{
    EventId, Fact, Seq, ThreadId,
    id::ModelName,
    turn::{Turn, TurnBuilder},
};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    sqlite_error::SqliteError,
    thread_view,
};

/// Values of a turn's row that are needed to go on from it.
pub(super) struct TurnStub {
    pub(super) id: EventId,
    pub(super) parent: Option<EventId>,
    pub(super) first: Seq,
    pub(super) loop_index: u64,
}

/// The last turn of a view whose id is at or before `until`.
pub(super) fn last(
    connection: &Connection,
    thread: ThreadId,
    until: Seq,
) -> Result<Option<TurnStub>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT thread, seq, parent_thread, parent_seq, first, loop_index FROM turn_rows
         WHERE thread = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1",
    )?;
    for segment in thread_view::owned_event_ranges(connection, thread, Seq::START)?.into_iter().rev() {
        let until = until.min(segment.until);
        let mut rows = statement.query(params![segment.thread.blob(), signed(until.0)])?;
        let Some(row) = rows.next()? else { continue };
        return Ok(Some(TurnStub {
            id: EventId { thread: segment.thread, seq: codec::seq(row, 1)? },
            parent: codec::event_id(row, 2)?,
            first: codec::seq(row, 4)?,
            loop_index: unsigned(row.get(5)?),
        }));
    }
    Ok(None)
}

/// A derivation that goes on at `first`, after the turn `id`.
pub(super) fn resume_turns(
    connection: &Connection,
    thread: ThreadId,
    id: EventId,
    first: Seq,
) -> Result<TurnBuilder, SqliteError> {
    let row = connection
        .prepare_cached("SELECT loop_index, model FROM turn_rows WHERE thread = ?1 AND seq = ?2")?
        .query_row(params![id.thread.blob(), signed(id.seq.0)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
        })
        .optional()?;
    let (loop_index, model) =
        row.ok_or_else(|| SqliteError::Damaged(format!("turn {id}, which others follow, is missing")))?;
    let model = match model_between(connection, thread, id.seq, first)? {
        Some(model) => Some(model),
        None => model.map(ModelName),
    };
    Ok(TurnBuilder::after(id, unsigned(loop_index), model))
}

/// The model that took over between two places of a view, both excluded.
fn model_between(
    connection: &Connection,
    thread: ThreadId,
    after: Seq,
    before: Seq,
) -> Result<Option<ModelName>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT seq FROM events WHERE thread = ?1 AND kind = 'model_changed' AND seq BETWEEN ?2 AND ?3
         AND {INDEXED} ORDER BY seq DESC LIMIT 1",
        INDEXED = thread_view::INDEXED_KINDS_CONDITION,
    ))?;
    for segment in thread_view::owned_event_ranges(connection, thread, after)?.into_iter().rev() {
        let (first, last) = (after.max(segment.after).next(), segment.until.min(before.previous()));
        let mut rows = statement.query(params![segment.thread.blob(), signed(first.0), signed(last.0)])?;
        if let Some(row) = rows.next()? {
            let id = EventId { thread: segment.thread, seq: codec::seq(row, 0)? };
            if let Fact::ModelChanged { model } = thread_view::event(connection, id)?.event.fact {
                return Ok(Some(model));
            }
        }
    }
    Ok(None)
}

/// Writes the row of a new turn.
pub(super) fn insert(connection: &Connection, thread: ThreadId, turn: &Turn) -> Result<(), SqliteError> {
    let asked: Vec<String> = turn.asked.iter().map(ToString::to_string).collect();
    let (through, kept) = match &turn.compaction {
        None => (None, None),
        Some(compaction) => (
            last(connection, thread, compaction.through.min(turn.id.seq.previous()))?.map(|turn| turn.id),
            match compaction.first_kept {
                Some(kept) if kept < turn.first => turn_around(connection, thread, turn.id.seq, kept)?,
                _ => None,
            },
        ),
    };
    connection
        .prepare_cached(
            "INSERT INTO turn_rows (thread, seq, parent_thread, parent_seq, turn_type, loop_index, first, last,
                time, tool_calls, through_thread, through_seq, kept_thread, kept_seq, answer, model, usage, asked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
        )?
        .execute(params![
            turn.id.thread.blob(),
            signed(turn.id.seq.0),
            turn.parent.map(|id| id.thread.blob()),
            turn.parent.map(|id| signed(id.seq.0)),
            if turn.is_compaction() { "compaction" } else { "normal" },
            signed(turn.loop_index),
            signed(turn.first.0),
            signed(turn.last.0),
            turn.time.map(|time| time.0),
            signed(turn.tool_calls),
            through.map(|id| id.thread.blob()),
            through.map(|id| signed(id.seq.0)),
            kept.map(|id| id.thread.blob()),
            kept.map(|id| signed(id.seq.0)),
            turn.answer.as_ref().map(|answer| &answer.0),
            turn.model.as_ref().map(|model| &model.0),
            usage(turn)?,
            serde_json::to_string(&asked).map_err(|error| SqliteError::Damaged(error.to_string()))?,
        ])?;
    Ok(())
}

/// The turn before `before` that the event at `place` belongs to: the last one that starts at or before it.
fn turn_around(
    connection: &Connection,
    thread: ThreadId,
    before: Seq,
    place: Seq,
) -> Result<Option<EventId>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM turn_rows WHERE thread = ?1 AND seq <= ?2 AND first <= ?3 ORDER BY seq DESC LIMIT 1",
    )?;
    for segment in thread_view::owned_event_ranges(connection, thread, Seq::START)?.into_iter().rev() {
        let until = before.previous().min(segment.until);
        let range = params![segment.thread.blob(), signed(until.0), signed(place.0)];
        let mut rows = statement.query(range)?;
        if let Some(row) = rows.next()? {
            return Ok(Some(EventId { thread: segment.thread, seq: codec::seq(row, 0)? }));
        }
    }
    Ok(None)
}

/// Only the end, the calls and the usage of a turn change while it is open.
pub(super) fn update(connection: &Connection, turn: &Turn) -> Result<(), SqliteError> {
    connection
        .prepare_cached(
            "UPDATE turn_rows SET last = ?3, tool_calls = ?4, usage = ?5 WHERE thread = ?1 AND seq = ?2",
        )?
        .execute(params![
            turn.id.thread.blob(),
            signed(turn.id.seq.0),
            signed(turn.last.0),
            signed(turn.tool_calls),
            usage(turn)?,
        ])?;
    Ok(())
}

fn usage(turn: &Turn) -> Result<Option<String>, SqliteError> {
    let usage = turn.usage.as_ref().map(serde_json::to_string).transpose();
    usage.map_err(|error| SqliteError::Damaged(error.to_string()))
}
