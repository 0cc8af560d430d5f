//! Shared part of a session: the sums over the past that its forks share with threads of other sessions.
//!
//! The past of a fork never changes, so each fork has one derived row: the owner of the event it starts at,
//! and the sums over that owner's events up to there. The sums before them are in the owner's own row, and so
//! on. A list of sessions then reads a row a fork, however long the shared past is. Only tokens are added up
//! at that time, in one pass over each owner's counts, because counts may be made later than the fork.

use std::collections::{BTreeMap, HashMap};

use epitome_core::{EventId, Fact, Seq, SessionId, ThreadId, Tokens, event::Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    sqlite_error::SqliteError,
    thread_view, turn_rows,
};
use crate::records::SessionRow;

const COLUMNS: &str = "events, messages, turns, loops, tool_calls, compactions, first_time, last_time";

/// Sums over a beginning of a thread's own events.
#[derive(Clone, Copy, Default)]
struct ThreadSums {
    events: u64,
    messages: u64,
    turns: u64,
    loops: u64,
    tool_calls: u64,
    compactions: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

/// The beginning of a thread that a fork shares.
#[derive(Clone, Copy)]
struct SharedPrefix {
    owner: ThreadId,
    until: Seq,
    sums: ThreadSums,
}

/// Derives the row of a fork. Its parent must have been derived before.
pub(super) fn derive(connection: &Connection, fork: ThreadId) -> Result<(), SqliteError> {
    let segments = thread_view::owned_event_ranges(connection, fork, Seq::START)?;
    let Some(source) = segments.iter().rev().find(|segment| segment.thread != fork) else { return Ok(()) };
    let sums = if thread_view::head(connection, source.thread)?.seq == source.until {
        whole(connection, source.thread)?
    } else {
        beginning(connection, source.thread, source.after, source.until)?
    };
    connection
        .prepare_cached(&format!(
            "INSERT INTO shared_totals (thread, owner, until, {COLUMNS})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
        ))?
        .execute(params![
            fork.blob(),
            source.thread.blob(),
            signed(source.until.0),
            signed(sums.events),
            signed(sums.messages),
            signed(sums.turns),
            signed(sums.loops),
            signed(sums.tool_calls),
            signed(sums.compactions),
            sums.first.map(|time| time.0),
            sums.last.map(|time| time.0),
        ])?;
    Ok(())
}

/// The sums over all of a thread's own events.
fn whole(connection: &Connection, thread: ThreadId) -> Result<ThreadSums, SqliteError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM totals WHERE thread = ?1"))?;
    Ok(statement.query_row([thread.blob()], |row| sums(row, 0)).optional()?.unwrap_or_default())
}

/// The sums over a thread's own events up to `until`, from the nearest place before it where they are known.
fn beginning(
    connection: &Connection,
    thread: ThreadId,
    base: Seq,
    until: Seq,
) -> Result<ThreadSums, SqliteError> {
    let known = connection
        .prepare_cached(&format!(
            "SELECT until, {COLUMNS} FROM shared_totals WHERE owner = ?1 AND until <= ?2
             ORDER BY until DESC LIMIT 1"
        ))?
        .query_row(params![thread.blob(), signed(until.0)], |row| {
            Ok((Seq(unsigned(row.get(0)?)), sums(row, 1)?))
        })
        .optional()?;
    let (after, mut sums) = known.unwrap_or((base, ThreadSums::default()));
    let range = params![thread.blob(), signed(after.next().0), signed(until.0)];
    let mut statement = connection
        .prepare_cached("SELECT time, fact, seq FROM events WHERE thread = ?1 AND seq BETWEEN ?2 AND ?3")?;
    let mut rows = statement.query(range)?;
    while let Some(row) = rows.next()? {
        let id = EventId { thread, seq: codec::seq(row, 2)? };
        let fact: Fact = serde_json::from_str(&row.get::<_, String>(1)?)
            .map_err(|error| SqliteError::unreadable(id, error))?;
        sums.add(&fact, row.get::<_, Option<i64>>(0)?.map(Timestamp));
    }
    let (turns, newest): (i64, Option<i64>) = connection
        .prepare_cached(
            "SELECT count(*), max(loop_index) FROM turn_rows WHERE thread = ?1 AND seq BETWEEN ?2 AND ?3",
        )?
        .query_row(range, |row| Ok((row.get(0)?, row.get(1)?)))?;
    sums.turns += unsigned(turns);
    if let Some(newest) = newest {
        // Loops are numbered without a gap.
        let before = turn_rows::last(connection, thread, after)?;
        sums.loops +=
            before.map_or(unsigned(newest) + 1, |turn| unsigned(newest).saturating_sub(turn.loop_index));
    }
    Ok(sums)
}

impl ThreadSums {
    fn add(&mut self, fact: &Fact, time: Option<Timestamp>) {
        self.events += 1;
        self.messages += u64::from(fact.is_message());
        self.tool_calls += fact.calls().count() as u64;
        self.compactions += u64::from(matches!(fact, Fact::Compacted(_)));
        self.first = earliest(self.first, time);
        self.last = self.last.max(time);
    }
}

/// Adds to each session the part that its threads share with threads of other sessions, each event once.
pub(super) fn add(
    connection: &Connection,
    tokenizer: Option<&str>,
    sessions: &mut [SessionRow],
) -> Result<(), SqliteError> {
    let mut beginnings = SharedPrefixCache::default();
    let mut wanted: BTreeMap<ThreadId, BTreeMap<Seq, Vec<usize>>> = BTreeMap::new();
    for (at, session) in sessions.iter_mut().enumerate() {
        for beginning in beginnings.seen_by(connection, session.id)? {
            let SharedPrefix { owner, until, sums } = beginning;
            session.events += sums.events;
            session.messages += sums.messages;
            session.turns += sums.turns;
            session.loops += sums.loops;
            session.tool_calls += sums.tool_calls;
            session.compactions += sums.compactions;
            session.first = earliest(session.first, sums.first);
            session.last = session.last.max(sums.last);
            wanted.entry(owner).or_default().entry(until).or_default().push(at);
        }
    }
    let Some(tokenizer) = tokenizer else { return Ok(()) };
    for (owner, places) in wanted {
        let mut tokens = Tokens(0);
        let mut after = Seq::START;
        for (until, users) in places {
            tokens += counted(connection, tokenizer, owner, (after, until))?;
            after = until;
            for at in users {
                sessions[at].tokens = sessions[at].tokens.map(|own| own + tokens);
            }
        }
    }
    Ok(())
}

/// The tokens of a thread's own events after one place and up to another.
fn counted(
    connection: &Connection,
    tokenizer: &str,
    thread: ThreadId,
    (after, until): (Seq, Seq),
) -> Result<Tokens, SqliteError> {
    let sum: i64 = connection
        .prepare_cached(
            "SELECT coalesce(sum(tokens), 0) FROM counts
             WHERE thread = ?1 AND tokenizer = ?2 AND seq > ?3 AND seq <= ?4",
        )?
        .query_row(params![thread.blob(), tokenizer, signed(after.0), signed(until.0)], |row| row.get(0))?;
    Ok(Tokens(unsigned(sum)))
}

/// The rows of forks, each read once.
#[derive(Default)]
struct SharedPrefixCache {
    known: HashMap<ThreadId, Option<(SessionId, SharedPrefix)>>,
}

impl SharedPrefixCache {
    /// Parts that the threads of a session share with threads of others: of each such thread the longest
    /// beginning.
    fn seen_by(
        &mut self,
        connection: &Connection,
        session: SessionId,
    ) -> Result<Vec<SharedPrefix>, SqliteError> {
        let mut statement =
            connection.prepare_cached("SELECT id FROM threads WHERE session = ?1 AND parent IS NOT NULL")?;
        let mut rows = statement.query([session.blob()])?;
        let mut longest: BTreeMap<ThreadId, SharedPrefix> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let mut at = codec::thread(row, 0)?;
            while let Some((owners, beginning)) = self.of(connection, at)? {
                at = beginning.owner;
                if owners != session {
                    let seen = longest.entry(at).or_insert(beginning);
                    if seen.until < beginning.until {
                        *seen = beginning;
                    }
                }
            }
        }
        Ok(longest.into_values().collect())
    }

    /// The beginning that a fork starts from, and its owner.
    fn of(
        &mut self,
        connection: &Connection,
        fork: ThreadId,
    ) -> Result<Option<(SessionId, SharedPrefix)>, SqliteError> {
        if let Some(known) = self.known.get(&fork) {
            return Ok(*known);
        }
        let mut statement = connection.prepare_cached(&format!(
            "SELECT threads.session, owner, until, {COLUMNS} FROM shared_totals
             JOIN threads ON threads.id = owner WHERE shared_totals.thread = ?1"
        ))?;
        let mut rows = statement.query([fork.blob()])?;
        let found = match rows.next()? {
            Some(row) => {
                let (owner, until) = (codec::thread(row, 1)?, codec::seq(row, 2)?);
                Some((codec::session(row, 0)?, SharedPrefix { owner, until, sums: sums(row, 3)? }))
            }
            None => None,
        };
        self.known.insert(fork, found);
        Ok(found)
    }
}

fn sums(row: &Row<'_>, from: usize) -> rusqlite::Result<ThreadSums> {
    let number = |column: usize| row.get(from + column).map(unsigned);
    let time = |column: usize| row.get::<_, Option<i64>>(from + column).map(|time| time.map(Timestamp));
    Ok(ThreadSums {
        events: number(0)?,
        messages: number(1)?,
        turns: number(2)?,
        loops: number(3)?,
        tool_calls: number(4)?,
        compactions: number(5)?,
        first: time(6)?,
        last: time(7)?,
    })
}

/// `None` is later than any time.
fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
