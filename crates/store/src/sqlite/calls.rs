//! Calls of models. A thread's view of them is like its view of events: those it shares with the threads it
//! was forked from, then its own, numbered without a gap.

use std::collections::HashSet;

use epitome_core::{
    Digest, EventId, Seq, SessionId, ThreadId, Tokens,
    event::{Timestamp, Usage},
    id::ModelName,
    profile::Money,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    SqliteStore,
    codec::{self, AsBlob, signed, unsigned},
    commit::{check_within, misplaced_record},
    exchanges,
    sqlite_error::SqliteError,
    thread_view::{self, OwnedEventRange},
    writer::WriteTx,
};
use crate::{
    error::StoreError,
    pending_commit::PendingCommit,
    records::{
        CallRow, CountedCall, ExchangeRow, HashedText, NewCall, NewCallOutcome, OutcomeRow, SizeRefusal,
        ThreadCommit,
    },
    traits::CallStore,
};

/// Newest outcomes among which counted calls are looked for.
const OUTCOMES_LOOKED_AT: i64 = 2_000;

impl CallStore for SqliteStore {
    fn submit(&self, commit: ThreadCommit) -> PendingCommit {
        let (reporter, pending) = PendingCommit::new(self.location.clone());
        self.hand_over(commit, reporter);
        pending
    }

    fn content(&self, hash: Digest) -> Result<Option<String>, StoreError> {
        self.lend("reading a content", |connection| {
            let mut statement = connection.prepare_cached("SELECT text FROM contents WHERE hash = ?1")?;
            Ok(statement.query_row([hash.0], |row| row.get(0)).optional()?)
        })
    }

    fn calls(&self, thread: ThreadId, from: u64, limit: usize) -> Result<Vec<CallRow>, StoreError> {
        self.lend("reading calls", |connection| {
            let view = CallView::of(connection, thread)?;
            let mut calls = Vec::new();
            for stretch in &view.stretches {
                let numbers = (from.max(stretch.from), stretch.until);
                view.read(
                    connection,
                    stretch.thread,
                    numbers,
                    CallOrder::Oldest,
                    limit - calls.len(),
                    &mut calls,
                )?;
            }
            Ok(calls)
        })
    }

    fn counted_calls(&self, model: &ModelName, limit: usize) -> Result<Vec<CountedCall>, StoreError> {
        self.lend("reading counts", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT thread, estimated, usage FROM call_outcomes JOIN model_calls ON id = call
                 WHERE call_outcomes.number > (SELECT max(number) FROM call_outcomes) - ?2
                   AND model = ?1 AND usage IS NOT NULL AND estimated > 0
                 ORDER BY call_outcomes.number DESC",
            )?;
            let mut rows = statement.query(params![model.0, OUTCOMES_LOOKED_AT])?;
            let (mut threads, mut counted) = (HashSet::new(), Vec::new());
            while counted.len() < limit
                && let Some(row) = rows.next()?
            {
                if threads.insert(row.get::<_, Vec<u8>>(0)?) {
                    let usage = usage(&row.get::<_, String>(2)?)?;
                    let estimated = Tokens(unsigned(row.get(1)?));
                    counted.push(CountedCall { estimated, counted: usage.input() });
                }
            }
            Ok(counted)
        })
    }

    fn last_call(&self, thread: ThreadId) -> Result<Option<CallRow>, StoreError> {
        self.lend("reading calls", |connection| {
            let view = CallView::of(connection, thread)?;
            let mut calls = Vec::new();
            for stretch in view.stretches.iter().rev() {
                let numbers = (stretch.from, stretch.until);
                view.read(connection, stretch.thread, numbers, CallOrder::Newest, 1, &mut calls)?;
                if !calls.is_empty() {
                    break;
                }
            }
            Ok(calls.pop())
        })
    }

    fn last_composed_call(&self, thread: ThreadId) -> Result<Option<CallRow>, StoreError> {
        let number = self.lend("reading calls", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number FROM model_calls WHERE thread = ?1 AND number >= ?2 AND number < ?3 AND sent <> ?4
                 ORDER BY number DESC LIMIT 1",
            )?;
            for OwnedCallRange { thread, from, until } in owned_call_ranges(connection, thread)?.into_iter().rev() {
                let numbers = params![thread.blob(), signed(from), signed(until), NewCall::RELAYED_SENT];
                if let Some(number) = statement.query_row(numbers, |row| row.get(0)).optional()? {
                    return Ok(Some(unsigned(number)));
                }
            }
            Ok(None)
        })?;
        number.map(|number| self.call(thread, number)).transpose()
    }

    fn edit_records(&self, thread: ThreadId) -> Result<Vec<(u64, Seq, String)>, StoreError> {
        self.lend("reading calls", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, head, pass FROM model_calls
                 WHERE thread = ?1 AND number >= ?2 AND number < ?3 AND pass IS NOT NULL ORDER BY number",
            )?;
            let mut passes = Vec::new();
            for OwnedCallRange { thread, from, until } in owned_call_ranges(connection, thread)? {
                let mut rows = statement.query(params![thread.blob(), signed(from), signed(until)])?;
                while let Some(row) = rows.next()? {
                    passes.push((unsigned(row.get(0)?), codec::seq(row, 1)?, row.get(2)?));
                }
            }
            Ok(passes)
        })
    }

    fn rewrite_records_before(
        &self,
        thread: ThreadId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Digest, String)>, StoreError> {
        self.lend("reading calls", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, rendering, script FROM model_calls
                 WHERE thread = ?1 AND number >= ?2 AND number < ?3 AND script IS NOT NULL
                 ORDER BY number DESC LIMIT ?4",
            )?;
            let mut scripts = Vec::new();
            for OwnedCallRange { thread, from, until } in
                owned_call_ranges(connection, thread)?.into_iter().rev()
            {
                let left = signed((limit - scripts.len()) as u64);
                let numbers = params![thread.blob(), signed(from), signed(until.min(before)), left];
                let mut rows = statement.query(numbers)?;
                while let Some(row) = rows.next()? {
                    scripts.push((unsigned(row.get(0)?), Digest(row.get(1)?), row.get(2)?));
                }
            }
            Ok(scripts)
        })
    }

    fn exchanges(&self, session: SessionId, from: u64, limit: usize) -> Result<Vec<ExchangeRow>, StoreError> {
        self.lend("reading exchanges", |connection| exchanges::rows(connection, session, from, limit))
    }
}

/// The calls of a view that one thread owns: those numbered `from..until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnedCallRange {
    /// The owner.
    pub(super) thread: ThreadId,
    /// The first number.
    pub(super) from: u64,
    /// The number after the last; for the thread itself there is none.
    pub(super) until: u64,
}

/// The stretches of a thread's view, oldest first; the last is the thread's own.
pub(super) fn owned_call_ranges(
    connection: &Connection,
    thread: ThreadId,
) -> Result<Vec<OwnedCallRange>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT number, parent, base_calls FROM threads WHERE id = ?1")?;
    let mut stretches = Vec::new();
    let mut at = thread;
    let mut until = u64::MAX;
    let mut youngest = i64::MAX;
    loop {
        let row = statement
            .query_row([at.blob()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((number, parent, base)) = row else { return Err(thread_view::missing_thread(thread, at)) };
        if number >= youngest {
            return Err(SqliteError::Damaged(format!(
                "thread {at} is older than the thread it was forked from"
            )));
        }
        youngest = number;
        let from = unsigned(base);
        if from < until {
            stretches.push(OwnedCallRange { thread: at, from, until });
        }
        until = until.min(from);
        match parent {
            Some(parent) if until > 0 => at = ThreadId::new(uuid::Uuid::from_bytes(parent)),
            _ => break,
        }
    }
    stretches.reverse();
    Ok(stretches)
}

/// Number of calls of a thread's view that saw no event after `at`.
pub(super) fn count_calls_through(
    connection: &Connection,
    thread: ThreadId,
    at: Seq,
) -> Result<u64, SqliteError> {
    let mut ends = connection.prepare_cached(
        "SELECT max(number) FROM model_calls WHERE thread = ?1 AND number >= ?2 AND number < ?3",
    )?;
    let mut head =
        connection.prepare_cached("SELECT head FROM model_calls WHERE thread = ?1 AND number = ?2")?;
    for OwnedCallRange { thread, from, until } in owned_call_ranges(connection, thread)?.into_iter().rev() {
        let last: Option<i64> =
            ends.query_row(params![thread.blob(), signed(from), signed(until)], |row| row.get(0))?;
        let Some(last) = last else { continue };
        // Heads never go back: those that are not too late come first.
        let (mut low, mut high) = (from, unsigned(last) + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let seen = head.query_row(params![thread.blob(), signed(middle)], |row| row.get(0)).optional()?;
            if seen.is_some_and(|seen| unsigned(seen) <= at.0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low > from {
            return Ok(low);
        }
    }
    Ok(0)
}

/// Checks that a content matches its hash.
pub(super) fn check_hash(content: &HashedText) -> Result<(), StoreError> {
    let found = Digest::of(content.text.as_bytes());
    if found == content.hash { Ok(()) } else { Err(StoreError::ContentDiffers { hash: content.hash, found }) }
}

/// Stores a content, unless it is there.
pub(super) fn store_text(tx: &WriteTx<'_>, content: &HashedText) -> Result<(), SqliteError> {
    if !is_kept(tx, content.hash)? {
        tx.connection
            .prepare_cached("INSERT INTO contents (hash, text) VALUES (?1, ?2)")?
            .execute(params![content.hash.0, content.text])?;
    }
    Ok(())
}

/// Stores a content that the script of the next call names.
pub(super) fn store_piece(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    content: &HashedText,
) -> Result<(), SqliteError> {
    store_text(tx, content)?;
    let (call, _) = end_of_calls(tx.connection, thread)?;
    tx.connection
        .prepare_cached("INSERT OR IGNORE INTO script_contents (thread, hash, call) VALUES (?1, ?2, ?3)")?
        .execute(params![thread.blob(), content.hash.0, signed(call)])?;
    Ok(())
}

fn is_kept(tx: &WriteTx<'_>, hash: Digest) -> Result<bool, SqliteError> {
    Ok(tx.connection.prepare_cached("SELECT 1 FROM contents WHERE hash = ?1")?.exists([hash.0])?)
}

/// Refuses to go on unless so many calls were made in the thread's view.
pub(super) fn expect_call_count(tx: &WriteTx<'_>, thread: ThreadId, calls: u64) -> Result<(), SqliteError> {
    match end_of_calls(tx.connection, thread)? {
        (made, _) if made == calls => Ok(()),
        (made, _) => Err(StoreError::CallsConflict { thread, calls, made }.into()),
    }
}

/// Adds a call to a thread that ends at `end`; gives its number.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    end: Seq,
    call: &NewCall,
) -> Result<u64, SqliteError> {
    let (number, before) = end_of_calls(tx.connection, thread)?;
    check_within("call", thread, ("head", call.head), (before, end))?;
    if let Some(id) = call.summary {
        let owner = owner(&thread_view::owned_event_ranges(tx.connection, thread, Seq::START)?, id.seq);
        if owner != Some(id.thread) || id.seq > end {
            return Err(misplaced_record(
                "call",
                thread,
                format!("it stands on event {id}, which is not its own"),
            )
            .into());
        }
    }
    let inserted = tx
        .connection
        .prepare_cached(
            "INSERT INTO model_calls (thread, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy,
                profile, rendering, format, model, cause, pass, plan, steps, sent, script)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            thread.blob(),
            signed(number),
            signed(call.head.0),
            call.time.map(|time| time.0),
            signed(call.epoch),
            signed(call.estimated.0),
            signed(call.bytes),
            call.summary.map(|id| signed(id.seq.0)),
            call.hash.0,
            call.policy.0,
            call.profile.map(|profile| profile.0),
            call.rendering.0,
            call.format,
            call.model,
            call.cause,
            call.pass,
            call.plan,
            call.steps,
            call.sent,
            call.script,
        ]);
    match inserted {
        Ok(_) => Ok(number),
        Err(error) => Err(unkept(tx, call)?.unwrap_or_else(|| error.into())),
    }
}

/// Error of a refused call, if it names a content that is not there.
fn unkept(tx: &WriteTx<'_>, call: &NewCall) -> Result<Option<SqliteError>, SqliteError> {
    for hash in [Some(call.policy), call.profile, Some(call.rendering)].into_iter().flatten() {
        if !is_kept(tx, hash)? {
            return Ok(Some(StoreError::UnknownContent(hash).into()));
        }
    }
    Ok(None)
}

/// The number the next call of a thread gets, and the head of the last one of its view.
fn end_of_calls(connection: &Connection, thread: ThreadId) -> Result<(u64, Seq), SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT number, head FROM model_calls WHERE thread = ?1 AND number < ?2 ORDER BY number DESC LIMIT 1",
    )?;
    let mut last = |thread: ThreadId, until: u64| {
        let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let last = statement.query_row(params![thread.blob(), signed(until)], place).optional()?;
        Ok::<_, SqliteError>(last.map(|(number, head)| (unsigned(number) + 1, Seq(unsigned(head)))))
    };
    // Its own calls come last, and most threads have some.
    if let Some(last) = last(thread, u64::MAX)? {
        return Ok(last);
    }
    for OwnedCallRange { thread, until, .. } in owned_call_ranges(connection, thread)?.into_iter().rev() {
        if let Some(last) = last(thread, until)? {
            return Ok(last);
        }
    }
    Ok((0, Seq::START))
}

/// Adds a report about a call's end to the thread that owns the call.
pub(super) fn insert_outcome(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    outcome: &NewCallOutcome,
) -> Result<(), SqliteError> {
    let number = outcome.call;
    let unknown = || SqliteError::Store(StoreError::UnknownCall { thread, number });
    let mut statement =
        tx.connection.prepare_cached("SELECT id FROM model_calls WHERE thread = ?1 AND number = ?2")?;
    let mut find = |thread: ThreadId| {
        statement.query_row(params![thread.blob(), signed(number)], |row| row.get(0)).optional()
    };
    let mut call: Option<i64> = find(thread)?;
    if call.is_none() {
        let stretches = owned_call_ranges(tx.connection, thread)?;
        let owner = stretches.iter().find(|stretch| (stretch.from..stretch.until).contains(&number));
        call = find(owner.ok_or_else(unknown)?.thread)?;
    }
    let usage = outcome.usage.as_ref().map(numbers_json);
    let refusal = outcome.refusal.as_ref().map(numbers_json);
    tx.connection
        .prepare_cached(
            "INSERT INTO call_outcomes (call, time, cost, answer, usage, error, refusal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            call.ok_or_else(unknown)?,
            outcome.time.map(|time| time.0),
            outcome.cost.map(|cost| signed(cost.0)),
            outcome.answer.as_ref().map(|answer| &answer.0),
            usage,
            outcome.error,
            refusal,
        ])?;
    Ok(())
}

const COLUMNS: &str = "id, thread, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy, profile, \
    rendering, format, model, cause, pass, plan, steps, sent, script";

#[derive(Clone, Copy)]
enum CallOrder {
    Oldest,
    Newest,
}

/// Data for reading the calls that a thread sees.
struct CallView {
    stretches: Vec<OwnedCallRange>,
    segments: Vec<OwnedEventRange>,
}

impl CallView {
    fn of(connection: &Connection, thread: ThreadId) -> Result<Self, SqliteError> {
        let segments = thread_view::owned_event_ranges(connection, thread, Seq::START)?;
        Ok(Self { stretches: owned_call_ranges(connection, thread)?, segments })
    }

    /// Adds the calls of `owner` numbered `from..until`, at most `limit`.
    fn read(
        &self,
        connection: &Connection,
        owner: ThreadId,
        (from, until): (u64, u64),
        order: CallOrder,
        limit: usize,
        calls: &mut Vec<CallRow>,
    ) -> Result<(), SqliteError> {
        let order = match order {
            CallOrder::Oldest => "ASC",
            CallOrder::Newest => "DESC",
        };
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM model_calls WHERE thread = ?1 AND number >= ?2 AND number < ?3
             ORDER BY number {order} LIMIT ?4"
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![owner.blob(), signed(from), signed(until), limit])?;
        while let Some(row) = rows.next()? {
            calls.push(self.row(connection, row)?);
        }
        Ok(())
    }

    /// Decodes a row of [`COLUMNS`].
    fn row(&self, connection: &Connection, row: &Row<'_>) -> Result<CallRow, SqliteError> {
        let (thread, number) = (codec::thread(row, 1)?, unsigned(row.get(2)?));
        let summary = match row.get::<_, Option<i64>>(8)?.map(|seq| Seq(unsigned(seq))) {
            Some(seq) => {
                let owner = owner(&self.segments, seq);
                let damaged =
                    || SqliteError::Damaged(format!("call {number} of {thread} stands on no event {seq}"));
                Some(EventId { thread: owner.ok_or_else(damaged)?, seq })
            }
            None => None,
        };
        let call = NewCall {
            head: codec::seq(row, 3)?,
            time: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            model: row.get(14)?,
            format: row.get(13)?,
            policy: Digest(row.get(10)?),
            profile: row.get::<_, Option<[u8; 32]>>(11)?.map(Digest),
            rendering: Digest(row.get(12)?),
            summary,
            epoch: unsigned(row.get(5)?),
            cause: row.get(15)?,
            pass: row.get(16)?,
            sent: row.get(19)?,
            steps: row.get(18)?,
            plan: row.get(17)?,
            script: row.get(20)?,
            estimated: Tokens(unsigned(row.get(6)?)),
            hash: Digest(row.get(9)?),
            bytes: unsigned(row.get(7)?),
        };
        Ok(CallRow { thread, number, call, outcomes: outcomes(connection, row.get(0)?)? })
    }
}

fn outcomes(connection: &Connection, call: i64) -> Result<Vec<OutcomeRow>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT time, answer, usage, cost, error, refusal FROM call_outcomes WHERE call = ?1 ORDER BY number",
    )?;
    let mut rows = statement.query([call])?;
    let mut outcomes = Vec::new();
    while let Some(row) = rows.next()? {
        let usage = row.get::<_, Option<String>>(2)?.map(|json| usage(&json)).transpose()?;
        outcomes.push(OutcomeRow {
            time: row.get::<_, Option<i64>>(0)?.map(Timestamp),
            answer: row.get::<_, Option<String>>(1)?.map(Into::into),
            usage,
            cost: row.get::<_, Option<i64>>(3)?.map(|cost| Money(unsigned(cost))),
            error: row.get(4)?,
            refusal: row.get::<_, Option<String>>(5)?.map(|json| refusal(&json)).transpose()?,
        });
    }
    Ok(outcomes)
}

/// Reads back a usage.
fn usage(json: &str) -> Result<Usage, SqliteError> {
    serde_json::from_str(json)
        .map_err(|error| SqliteError::Damaged(format!("a usage cannot be read: {error}")))
}

/// Reads back the numbers of a refusal.
fn refusal(json: &str) -> Result<SizeRefusal, SqliteError> {
    serde_json::from_str(json)
        .map_err(|error| SqliteError::Damaged(format!("a refusal cannot be read: {error}")))
}

fn numbers_json(numbers: &impl serde::Serialize) -> String {
    serde_json::to_string(numbers).expect("numbers under fixed names are always JSON")
}

/// Owner of the event at `seq` of a view.
fn owner(segments: &[OwnedEventRange], seq: Seq) -> Option<ThreadId> {
    let segment = segments.iter().find(|segment| segment.after < seq && seq <= segment.until)?;
    Some(segment.thread)
}
