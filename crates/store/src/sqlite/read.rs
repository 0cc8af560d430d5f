//! Reading a thread's view: its own events, and before them those it shares with the threads it was forked
//! from.

use std::collections::HashSet;

use epitome_core::{
    Digest, EventId, Fact, Link, Logged, Seq, ThreadId, Tokens,
    lineage::Standing,
    seq_set::{Run, SeqSet},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    codec::{self, AsBlob, EVENT_COLUMNS, Stored, signed, unsigned},
    fault::Fault,
};
use crate::{
    error::StoreError,
    log::{Head, NewThread, Start},
    records::ThreadRow,
};

/// The part of a view that one thread owns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The owner.
    pub(super) thread: ThreadId,
    /// It begins after this place.
    pub(super) after: Seq,
    /// It ends with this place, or where the thread does.
    pub(super) until: Seq,
}

/// The segments of a thread's view that hold anything from `from` on, oldest first.
pub(super) fn segments(connection: &Connection, thread: ThreadId, from: Seq) -> Result<Vec<Segment>, Fault> {
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
        let Some((number, parent, base)) = row else { return Err(missing(thread, at)) };
        if number >= youngest {
            return Err(Fault::Damaged(format!("thread {at} is older than the thread it was forked from")));
        }
        youngest = number;
        let after = Seq(unsigned(base));
        if after < until {
            segments.push(Segment { thread: at, after, until });
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
pub(super) fn missing(thread: ThreadId, at: ThreadId) -> Fault {
    if thread == at {
        Fault::Store(StoreError::UnknownThread(thread))
    } else {
        Fault::Damaged(format!("the thread {at}, which {thread} was forked from, is missing"))
    }
}

/// Shows the events of a view at `from..=until` to `see`, oldest first, at most `limit`.
pub(super) fn each(
    connection: &Connection,
    thread: ThreadId,
    (from, until): (Seq, Seq),
    limit: usize,
    see: &mut dyn FnMut(Stored) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = limit;
    for segment in segments(connection, thread, from)? {
        let first = from.max(segment.after.next());
        let last = until.min(segment.until);
        if left == 0 || first > last {
            continue;
        }
        left -= each_own(connection, segment.thread, (first, last), left, see)?;
    }
    Ok(())
}

/// Shows a thread's own events at `from..=until` to `see`, oldest first, at most `limit`; gives how many.
pub(super) fn each_own(
    connection: &Connection,
    thread: ThreadId,
    (from, until): (Seq, Seq),
    limit: usize,
    see: &mut dyn FnMut(Stored) -> Result<(), Fault>,
) -> Result<usize, Fault> {
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
) -> Result<Vec<Logged>, Fault> {
    let mut events = Vec::new();
    each(connection, thread, (from, Seq(u64::MAX)), limit, &mut |stored| {
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
) -> Result<Vec<Logged>, Fault> {
    const END: Seq = Seq(i64::MAX.unsigned_abs());
    let mut read = of_kinds(connection, thread, kinds)?;
    let wanted = SeqSet::run(from, END).without(&without.before(END));
    for run in wanted.runs() {
        each(connection, thread, (run.first, run.last), usize::MAX, &mut |stored| {
            read.push(stored.logged);
            Ok(())
        })?;
    }
    read.sort_by_key(|event| event.id.seq);
    read.dedup_by_key(|event| event.id);
    Ok(read)
}

/// The counts of each text of these events of a view.
pub(super) fn pieces_of(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    events: &SeqSet,
) -> Result<Vec<(EventId, Vec<Tokens>)>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, pieces FROM counts WHERE thread = ?1 AND tokenizer = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq",
    )?;
    let mut found = Vec::new();
    let Some(first) = events.first() else { return Ok(found) };
    for segment in segments(connection, thread, first)? {
        let own = |run: &Run| (run.first.max(segment.after.next()), run.last.min(segment.until));
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
pub(super) const INDEXED: &str =
    "kind <> 'user_said' AND kind <> 'assistant_said' AND kind <> 'tool_returned'
    AND kind <> 'usage_reported' AND kind <> 'carried'";

/// Returns true if events of a kind are so many that they are found by their places.
fn is_frequent(kind: &str) -> bool {
    ["user_said", "assistant_said", "tool_returned", "usage_reported", "carried"].contains(&kind)
}

/// The events of a view that are of one of `kinds`.
pub(super) fn of_kinds(
    connection: &Connection,
    thread: ThreadId,
    kinds: &[&str],
) -> Result<Vec<Logged>, Fault> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events WHERE thread = ?1 AND kind = ?2 AND seq BETWEEN ?3 AND ?4"
    );
    let mut by_kind = connection.prepare_cached(&format!("{sql} AND {INDEXED} ORDER BY seq"))?;
    let mut by_place = connection.prepare_cached(&format!("{sql} ORDER BY seq"))?;
    let mut found = Vec::new();
    for segment in segments(connection, thread, Seq::START)? {
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
pub(super) fn event(connection: &Connection, id: EventId) -> Result<Logged, Fault> {
    let mut found = None;
    each_own(connection, id.thread, (id.seq, id.seq), 1, &mut |stored| {
        found = Some(stored.logged);
        Ok(())
    })?;
    found.ok_or(Fault::Store(StoreError::UnknownEvent(id)))
}

/// The newest compaction in force in a view: the last word about a compaction decides, and words before the
/// compaction are not about it.
pub(super) fn pivot(connection: &Connection, thread: ThreadId) -> Result<Option<Logged>, Fault> {
    let mut undone: HashSet<Seq> = HashSet::new();
    for (compaction, standing, at) in words(connection, thread)? {
        match standing {
            Standing::Undone if compaction < at => undone.insert(compaction),
            Standing::Undone => false,
            Standing::Holds => undone.remove(&compaction),
        };
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT seq FROM events WHERE thread = ?1 AND kind = 'compacted' AND seq BETWEEN ?2 AND ?3 AND {INDEXED}
         ORDER BY seq DESC",
    ))?;
    for segment in segments(connection, thread, Seq::START)?.into_iter().rev() {
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
pub(super) fn words(connection: &Connection, thread: ThreadId) -> Result<Vec<(Seq, Standing, Seq)>, Fault> {
    let events = of_kinds(connection, thread, &["compaction_reverted", "compaction_restored"])?;
    let words = events.iter().filter_map(|event| match event.event.fact {
        Fact::CompactionReverted { compaction } => Some((compaction, Standing::Undone, event.id.seq)),
        Fact::CompactionRestored { compaction } => Some((compaction, Standing::Holds, event.id.seq)),
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
) -> Result<Vec<(EventId, Tokens)>, Fault> {
    counted(connection, "tokens", tokenizer, thread, (from, limit), |row| Ok(Tokens(unsigned(row.get(2)?))))
}

/// The same, for each text of an event apart.
pub(super) fn pieces(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    from: Seq,
    limit: usize,
) -> Result<Vec<(EventId, Vec<Tokens>)>, Fault> {
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
    value: impl Fn(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<(EventId, T)>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT thread, seq, {column} FROM counts WHERE thread = ?1 AND tokenizer = ?2 AND seq BETWEEN ?3 AND ?4
         ORDER BY seq LIMIT ?5",
    ))?;
    let mut found = Vec::new();
    for segment in segments(connection, thread, from)? {
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
pub(super) fn head(connection: &Connection, thread: ThreadId) -> Result<Head, Fault> {
    let last = connection
        .prepare_cached(
            "SELECT seq, raw_link, normal_link FROM events WHERE thread = ?1 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row([thread.blob()], head_row)
        .optional()?;
    last.map_or_else(|| base(connection, thread), Ok)
}

/// Beginning of a thread's own events.
pub(super) fn base(connection: &Connection, thread: ThreadId) -> Result<Head, Fault> {
    connection
        .prepare_cached("SELECT base_seq, base_raw_link, base_normal_link FROM threads WHERE id = ?1")?
        .query_row([thread.blob()], head_row)
        .optional()?
        .ok_or(Fault::Store(StoreError::UnknownThread(thread)))
}

fn head_row(row: &Row<'_>) -> rusqlite::Result<Head> {
    let link = Link { raw: Digest(row.get(1)?), normal: Digest(row.get(2)?) };
    Ok(Head { seq: Seq(unsigned(row.get(0)?)), link })
}

/// The head of a thread as it was at `at`, wherever in its ancestry that event is.
pub(super) fn head_at(connection: &Connection, of: ThreadId, at: Seq) -> Result<Head, Fault> {
    let head = head(connection, of)?;
    if at > head.seq {
        return Err(Fault::Store(StoreError::ForkBeyondHead { of, at, head: head.seq }));
    }
    if at == Seq::START {
        return Ok(Head::START);
    }
    let owner =
        segments(connection, of, at)?.into_iter().find(|segment| segment.after < at && at <= segment.until);
    let owner = owner.ok_or_else(|| Fault::Damaged(format!("the view of {of} has no event {at}")))?;
    let links = connection
        .prepare_cached("SELECT raw_link, normal_link FROM events WHERE thread = ?1 AND seq = ?2")?
        .query_row(params![owner.thread.blob(), signed(at.0)], |row| {
            Ok(Link { raw: Digest(row.get(0)?), normal: Digest(row.get(1)?) })
        })
        .optional()?;
    let link = links.ok_or_else(|| Fault::Damaged(format!("the view of {of} has no event {at}")))?;
    Ok(Head { seq: at, link })
}

/// The columns that [`thread_row`] reads.
pub(super) const THREAD_COLUMNS: &str =
    "id, session, name, start, parent, base_seq, by_thread, by_seq, by_call, key";

/// Creation of a thread, from a row of [`THREAD_COLUMNS`].
pub(super) fn made(row: &Row<'_>) -> Result<NewThread, Fault> {
    let start = match row.get::<_, String>(3)?.as_str() {
        "fork" => Start::Fork { of: codec::thread(row, 4)?, at: codec::seq(row, 5)? },
        "spawned" => Start::Spawned {
            by: codec::event_id(row, 6)?,
            call: row.get::<_, Option<String>>(8)?.map(Into::into),
        },
        _ => Start::Root,
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
pub(super) fn thread(connection: &Connection, id: ThreadId) -> Result<Option<NewThread>, Fault> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {THREAD_COLUMNS} FROM threads WHERE id = ?1"))?;
    let mut rows = statement.query([id.blob()])?;
    rows.next()?.map(made).transpose()
}

/// A thread with its head.
pub(super) fn thread_row(connection: &Connection, made: NewThread) -> Result<ThreadRow, Fault> {
    let NewThread { id, session, name, key, start } = made;
    Ok(ThreadRow { id, session, name, key, start, head: head(connection, id)? })
}
