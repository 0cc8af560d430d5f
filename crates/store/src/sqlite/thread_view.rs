//! Reading a thread's view: its own events, and before them those it shares with the threads it was forked
//! from.

use std::collections::HashSet;

use epitome_core::{
    ChainLink, Digest, EventId, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    lineage::CompactionStatus,
    seq_set::{SeqRange, SeqSet},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    codec::{self, AsBlob, EVENT_COLUMNS, EventRow, signed, unsigned},
    sqlite_error::SqliteError,
};
use crate::{
    error::StoreError,
    log::{NewThread, ThreadStart},
    records::ThreadRow,
    thread_head::ThreadHead,
};

/// The part of a view that one thread owns.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedEventRange {
    /// The owner.
    pub(super) thread: ThreadId,
    /// It begins after this place.
    pub(super) after: Seq,
    /// It ends with this place, or where the thread does.
    pub(super) until: Seq,
}

/// The segments of a thread's view that hold anything from `from` on, oldest first.
pub(super) fn owned_event_ranges(
    connection: &Connection,
    thread: ThreadId,
    from: Seq,
) -> Result<Vec<OwnedEventRange>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT number, parent, base_seq FROM threads WHERE id = ?1")?;
    let mut segments = Vec::new();
    let mut at = thread;
    let mut until = Seq(u64::MAX);
    let mut youngest = i64::MAX;
    loop {
        let row = statement
            .query_row([at.blob()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((number, parent, base)) = row else { return Err(missing_thread(thread, at)) };
        if number >= youngest {
            return Err(SqliteError::Damaged(format!(
                "thread {at} is older than the thread it was forked from"
            )));
        }
        youngest = number;
        let after = Seq(unsigned(base));
        if after < until {
            segments.push(OwnedEventRange { thread: at, after, until });
        }
        until = until.min(after);
        match parent {
            Some(parent) if from <= until && until > Seq::START => {
                at = ThreadId::new(uuid::Uuid::from_bytes(parent));
            }
            _ => break,
        }
    }
    segments.reverse();
    Ok(segments)
}

/// Error for a missing row of the thread `at`, met on the way up from `thread`.
pub(super) fn missing_thread(thread: ThreadId, at: ThreadId) -> SqliteError {
    if thread == at {
        SqliteError::Store(StoreError::UnknownThread(thread))
    } else {
        SqliteError::Damaged(format!("the thread {at}, which {thread} was forked from, is missing"))
    }
}

/// Shows the events of a view at `from..=until` to `see`, oldest first, at most `limit`.
pub(super) fn visit_events(
    connection: &Connection,
    thread: ThreadId,
    (from, until): (Seq, Seq),
    limit: usize,
    see: &mut dyn FnMut(EventRow) -> Result<(), SqliteError>,
) -> Result<(), SqliteError> {
    let mut left = limit;
    for segment in owned_event_ranges(connection, thread, from)? {
        let first = from.max(segment.after.next());
        let last = until.min(segment.until);
        if left == 0 || first > last {
            continue;
        }
        left -= visit_own_events(connection, segment.thread, (first, last), left, see)?;
    }
    Ok(())
}

/// Shows a thread's own events at `from..=until` to `see`, oldest first, at most `limit`; gives how many.
pub(super) fn visit_own_events(
    connection: &Connection,
    thread: ThreadId,
    (from, until): (Seq, Seq),
    limit: usize,
    see: &mut dyn FnMut(EventRow) -> Result<(), SqliteError>,
) -> Result<usize, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {EVENT_COLUMNS} FROM events WHERE thread = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![thread.blob(), signed(from.0), signed(until.0), limit])?;
    let mut shown = 0;
    while let Some(row) = rows.next()? {
        see(codec::stored(connection, row)?)?;
        shown += 1;
    }
    Ok(shown)
}

/// The events of a view from `from` on.
pub(super) fn events(
    connection: &Connection,
    thread: ThreadId,
    from: Seq,
    limit: usize,
) -> Result<Vec<LoggedEvent>, SqliteError> {
    let mut events = Vec::new();
    visit_events(connection, thread, (from, Seq(u64::MAX)), limit, &mut |stored| {
        events.push(stored.logged);
        Ok(())
    })?;
    Ok(events)
}

/// The events of a view from `from` on that are not among `without`, and those of one of `kinds` wherever they are. The
/// rows of the others are not touched.
pub(super) fn window(
    connection: &Connection,
    thread: ThreadId,
    from: Seq,
    without: &SeqSet,
    kinds: &[&str],
) -> Result<Vec<LoggedEvent>, SqliteError> {
    const END: Seq = Seq(i64::MAX.unsigned_abs());
    let mut read = events_of_kinds(connection, thread, kinds)?;
    let wanted = SeqSet::run(from, END).without(&without.before(END));
    for run in wanted.runs() {
        visit_events(connection, thread, (run.first, run.last), usize::MAX, &mut |stored| {
            read.push(stored.logged);
            Ok(())
        })?;
    }
    read.sort_by_key(|event| event.id.seq);
    read.dedup_by_key(|event| event.id);
    Ok(read)
}

/// The counts of each text of these events of a view.
pub(super) fn text_counts_of(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    events: &SeqSet,
) -> Result<Vec<(EventId, Vec<Tokens>)>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, pieces FROM counts WHERE thread = ?1 AND tokenizer = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq",
    )?;
    let mut found = Vec::new();
    let Some(first) = events.first() else { return Ok(found) };
    for segment in owned_event_ranges(connection, thread, first)? {
        let own = |run: &SeqRange| (run.first.max(segment.after.next()), run.last.min(segment.until));
        for (first, last) in events.runs().iter().map(own).filter(|(first, last)| first <= last) {
            let range = params![segment.thread.blob(), tokenizer, signed(first.0), signed(last.0)];
            let mut rows = statement.query(range)?;
            while let Some(row) = rows.next()? {
                let id = EventId { thread: segment.thread, seq: codec::seq(row, 0)? };
                found.push((id, codec::pieces(&row.get::<_, Vec<u8>>(1)?)?));
            }
        }
    }
    Ok(found)
}

/// Condition of the partial indexes; SQLite uses them only where a statement has exactly this text.
pub(super) const INDEXED_KINDS_CONDITION: &str =
    "kind <> 'user_said' AND kind <> 'assistant_said' AND kind <> 'tool_returned'
    AND kind <> 'usage_reported' AND kind <> 'carried'";

/// Returns true if events of a kind are so many that they are found by their places.
fn is_frequent(kind: &str) -> bool {
    ["user_said", "assistant_said", "tool_returned", "usage_reported", "carried"].contains(&kind)
}

/// The events of a view that are of one of `kinds`.
pub(super) fn events_of_kinds(
    connection: &Connection,
    thread: ThreadId,
    kinds: &[&str],
) -> Result<Vec<LoggedEvent>, SqliteError> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events WHERE thread = ?1 AND kind = ?2 AND seq BETWEEN ?3 AND ?4"
    );
    let mut by_kind =
        connection.prepare_cached(&format!("{sql} AND {INDEXED_KINDS_CONDITION} ORDER BY seq"))?;
    let mut by_place = connection.prepare_cached(&format!("{sql} ORDER BY seq"))?;
    let mut found = Vec::new();
    for segment in owned_event_ranges(connection, thread, Seq::START)? {
        for kind in kinds {
            let statement = if is_frequent(kind) { &mut by_place } else { &mut by_kind };
            let (first, last) = (signed(segment.after.next().0), signed(segment.until.0));
            let mut rows = statement.query(params![segment.thread.blob(), kind, first, last])?;
            while let Some(row) = rows.next()? {
                found.push(codec::stored(connection, row)?.logged);
            }
        }
    }
    found.sort_by_key(|event| event.id.seq);
    found.dedup_by_key(|event| event.id.seq);
    Ok(found)
}

/// One event.
pub(super) fn event(connection: &Connection, id: EventId) -> Result<LoggedEvent, SqliteError> {
    let mut found = None;
    visit_own_events(connection, id.thread, (id.seq, id.seq), 1, &mut |stored| {
        found = Some(stored.logged);
        Ok(())
    })?;
    found.ok_or(SqliteError::Store(StoreError::UnknownEvent(id)))
}

/// The newest compaction in force in a view: the last word about a compaction decides, and words before the
/// compaction are not about it.
pub(super) fn compaction_in_force(
    connection: &Connection,
    thread: ThreadId,
) -> Result<Option<LoggedEvent>, SqliteError> {
    let mut undone: HashSet<Seq> = HashSet::new();
    for (compaction, standing, at) in compaction_decisions(connection, thread)? {
        match standing {
            CompactionStatus::Undone if compaction < at => undone.insert(compaction),
            CompactionStatus::Undone => false,
            CompactionStatus::Holds => undone.remove(&compaction),
        };
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT seq FROM events WHERE thread = ?1 AND kind = 'compacted' AND seq BETWEEN ?2 AND ?3 AND {INDEXED_KINDS_CONDITION}
         ORDER BY seq DESC",
    ))?;
    for segment in owned_event_ranges(connection, thread, Seq::START)?.into_iter().rev() {
        let first = signed(segment.after.next().0);
        let mut rows = statement.query(params![segment.thread.blob(), first, signed(segment.until.0)])?;
        while let Some(row) = rows.next()? {
            let seq = codec::seq(row, 0)?;
            if !undone.contains(&seq) {
                return event(connection, EventId { thread: segment.thread, seq }).map(Some);
            }
        }
    }
    Ok(None)
}

/// A view's words about its compactions, oldest first: the compaction, its standing from there on, and the
/// place of the word.
pub(super) fn compaction_decisions(
    connection: &Connection,
    thread: ThreadId,
) -> Result<Vec<(Seq, CompactionStatus, Seq)>, SqliteError> {
    let events = events_of_kinds(connection, thread, &["compaction_reverted", "compaction_restored"])?;
    let words = events.iter().filter_map(|event| match event.event.fact {
        Fact::CompactionReverted { compaction } => Some((compaction, CompactionStatus::Undone, event.id.seq)),
        Fact::CompactionRestored { compaction } => Some((compaction, CompactionStatus::Holds, event.id.seq)),
        _ => None,
    });
    Ok(words.collect())
}

/// The counts of a view's events from `from` on.
pub(super) fn counts(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    from: Seq,
    limit: usize,
) -> Result<Vec<(EventId, Tokens)>, SqliteError> {
    counted(connection, "tokens", tokenizer, thread, (from, limit), |row| Ok(Tokens(unsigned(row.get(2)?))))
}

/// The same, for each text of an event apart.
pub(super) fn text_counts(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    from: Seq,
    limit: usize,
) -> Result<Vec<(EventId, Vec<Tokens>)>, SqliteError> {
    counted(connection, "pieces", tokenizer, thread, (from, limit), |row| {
        codec::pieces(&row.get::<_, Vec<u8>>(2)?)
    })
}

fn counted<T>(
    connection: &Connection,
    column: &'static str,
    tokenizer: &str,
    thread: ThreadId,
    (from, limit): (Seq, usize),
    value: impl Fn(&Row<'_>) -> Result<T, SqliteError>,
) -> Result<Vec<(EventId, T)>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT thread, seq, {column} FROM counts WHERE thread = ?1 AND tokenizer = ?2 AND seq BETWEEN ?3 AND ?4
         ORDER BY seq LIMIT ?5",
    ))?;
    let mut found = Vec::new();
    for segment in owned_event_ranges(connection, thread, from)? {
        let first = signed(from.max(segment.after.next()).0);
        let left = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
        let range = params![segment.thread.blob(), tokenizer, first, signed(segment.until.0), left];
        let mut rows = statement.query(range)?;
        while let Some(row) = rows.next()? {
            let id = EventId { thread: segment.thread, seq: codec::seq(row, 1)? };
            found.push((id, value(row)?));
        }
    }
    Ok(found)
}

/// End of a thread.
pub(super) fn head(connection: &Connection, thread: ThreadId) -> Result<ThreadHead, SqliteError> {
    let last = connection
        .prepare_cached(
            "SELECT seq, raw_link, normal_link FROM events WHERE thread = ?1 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row([thread.blob()], head_row)
        .optional()?;
    last.map_or_else(|| own_start(connection, thread), Ok)
}

/// Beginning of a thread's own events.
pub(super) fn own_start(connection: &Connection, thread: ThreadId) -> Result<ThreadHead, SqliteError> {
    connection
        .prepare_cached("SELECT base_seq, base_raw_link, base_normal_link FROM threads WHERE id = ?1")?
        .query_row([thread.blob()], head_row)
        .optional()?
        .ok_or(SqliteError::Store(StoreError::UnknownThread(thread)))
}

fn head_row(row: &Row<'_>) -> rusqlite::Result<ThreadHead> {
    let link = ChainLink { raw: Digest(row.get(1)?), normal: Digest(row.get(2)?) };
    Ok(ThreadHead { seq: Seq(unsigned(row.get(0)?)), link })
}

/// The head of a thread as it was at `at`, wherever in its ancestry that event is.
pub(super) fn head_at(connection: &Connection, of: ThreadId, at: Seq) -> Result<ThreadHead, SqliteError> {
    let head = head(connection, of)?;
    if at > head.seq {
        return Err(SqliteError::Store(StoreError::ForkBeyondHead { of, at, head: head.seq }));
    }
    if at == Seq::START {
        return Ok(ThreadHead::START);
    }
    let owner = owned_event_ranges(connection, of, at)?
        .into_iter()
        .find(|segment| segment.after < at && at <= segment.until);
    let owner = owner.ok_or_else(|| SqliteError::Damaged(format!("the view of {of} has no event {at}")))?;
    let links = connection
        .prepare_cached("SELECT raw_link, normal_link FROM events WHERE thread = ?1 AND seq = ?2")?
        .query_row(params![owner.thread.blob(), signed(at.0)], |row| {
            Ok(ChainLink { raw: Digest(row.get(0)?), normal: Digest(row.get(1)?) })
        })
        .optional()?;
    let link = links.ok_or_else(|| SqliteError::Damaged(format!("the view of {of} has no event {at}")))?;
    Ok(ThreadHead { seq: at, link })
}

/// The columns that [`thread_row`] reads.
pub(super) const THREAD_COLUMNS: &str =
    "id, session, name, start, parent, base_seq, by_thread, by_seq, by_call, key";

/// Creation of a thread, from a row of [`THREAD_COLUMNS`].
pub(super) fn new_thread_from_row(row: &Row<'_>) -> Result<NewThread, SqliteError> {
    let start = match row.get::<_, String>(3)?.as_str() {
        "fork" => ThreadStart::Fork { of: codec::thread(row, 4)?, at: codec::seq(row, 5)? },
        "spawned" => ThreadStart::Spawned {
            by: codec::event_id(row, 6)?,
            call: row.get::<_, Option<String>>(8)?.map(Into::into),
        },
        _ => ThreadStart::Root,
    };
    Ok(NewThread {
        id: codec::thread(row, 0)?,
        session: codec::session(row, 1)?,
        name: row.get(2)?,
        key: row.get(9)?,
        start,
    })
}

/// The thread with this id, if there is one.
pub(super) fn thread(connection: &Connection, id: ThreadId) -> Result<Option<NewThread>, SqliteError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {THREAD_COLUMNS} FROM threads WHERE id = ?1"))?;
    let mut rows = statement.query([id.blob()])?;
    rows.next()?.map(new_thread_from_row).transpose()
}

/// A thread with its head.
pub(super) fn thread_row(connection: &Connection, made: NewThread) -> Result<ThreadRow, SqliteError> {
    let NewThread { id, session, name, key, start } = made;
    Ok(ThreadRow { id, session, name, key, start, head: head(connection, id)? })
}
