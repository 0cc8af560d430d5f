//! Data derived from the log as it grows: turns, sums, token counts and the search index. The same function
//! makes them again from nothing, so that there is only one possible result.
//!
//! It is derived in the transaction of the append, or put off for a while (`behind`).

use std::{collections::HashMap, sync::Arc};

use epitome_core::{
    AnnotatedEvent, ChainLink, EventId, Fact, LoggedEvent, Seq, ThreadId, TokenCounter, Tokens,
    turn::TurnBuilder,
};
use rusqlite::{Connection, params};

use super::{
    codec::{self, AsBlob, EVENT_COLUMNS, signed},
    deferred_derivation, shared_sums,
    sqlite_error::SqliteError,
    thread_view, turn_rows,
};
use crate::thread_head::ThreadHead;

/// Number of threads whose derivations are remembered. Others are read back from their last turn.
const MAX_CACHED_DERIVATIONS: usize = 1024;

/// An event with the data derived from it alone.
#[derive(Clone)]
pub(super) struct DerivedEvent {
    /// Its row in the table of events.
    pub(super) row: i64,
    /// Its place.
    pub(super) id: EventId,
    /// Both chains, up to and with it.
    pub(super) link: ChainLink,
    /// The event.
    pub(super) event: AnnotatedEvent,
    /// Text that is searched.
    pub(super) text: Arc<str>,
    /// Its size, if it was counted.
    pub(super) pieces: Option<Vec<Tokens>>,
}

impl DerivedEvent {
    /// Derives the data that follows from an event alone.
    pub(super) fn new(
        (id, link): (EventId, ChainLink),
        event: AnnotatedEvent,
        counter: Option<&dyn TokenCounter>,
    ) -> Self {
        let pieces = counter.map(|counter| event.pieces(counter));
        Self { row: 0, id, link, text: event.fact.text().into(), event, pieces }
    }

    /// The same of one that is stored.
    pub(super) fn stored(row: i64, logged: LoggedEvent, counter: Option<&dyn TokenCounter>) -> Self {
        let LoggedEvent { id, event, link } = logged;
        Self { row, ..Self::new((id, link), event.into(), counter) }
    }
}

/// An event with the tokens of each of its texts.
pub(super) type EventTokenCounts = (EventId, Vec<Tokens>);

/// Progress of deriving the turns of some threads.
#[derive(Default)]
pub(super) struct TurnDerivations {
    known: HashMap<ThreadId, ThreadDerivation>,
    /// Texts, by the rows of their events, that are still to go into the search index. Many statements make
    /// the index write its pending entries to its tables, so it is filled after all others.
    unindexed: Vec<(i64, Arc<str>)>,
}

struct ThreadDerivation {
    /// Head up to which it is derived. If the thread's head differs, another process went on.
    head: ThreadHead,
    turns: TurnBuilder,
    /// The open turn, if it has a row already.
    written: Option<EventId>,
    /// The loop of the last turn.
    loop_index: Option<u64>,
}

/// Addition of an append to the sums of its thread.
#[derive(Default)]
struct SumsDelta {
    turns: u64,
    loops: u64,
}

impl TurnDerivations {
    /// Forgets everything: a transaction was lost.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.unindexed.clear();
    }

    /// Adds the pending texts to the search index in the order of their rows: for a row before the last one
    /// the index writes its pending entries to its tables first.
    pub(super) fn index(&mut self, connection: &Connection) -> Result<(), SqliteError> {
        self.unindexed.sort_unstable_by_key(|(row, _)| *row);
        for (row, text) in self.unindexed.drain(..) {
            index(connection, row, &text)?;
        }
        Ok(())
    }

    /// Derives everything from `items`, which were appended to `thread` after `before`, but for the search index, which is
    /// left to [`index`](Self::index).
    pub(super) fn derive(
        &mut self,
        connection: &Connection,
        thread: ThreadId,
        before: ThreadHead,
        items: &[Arc<DerivedEvent>],
        tokenizer: Option<&str>,
    ) -> Result<(), SqliteError> {
        let Some(last) = items.last() else { return Ok(()) };
        // Taken out while it is worked on: if anything fails, it is not there to mislead the next append.
        let known = self.known.remove(&thread).filter(|known| known.head == before);
        let mut state = match known {
            Some(state) => state,
            None if before == ThreadHead::START => ThreadDerivation::default(),
            None => ThreadDerivation::read_back(connection, thread, before)?,
        };
        let sums = state.extend(connection, thread, items)?;
        add_totals(connection, thread, items, &sums)?;
        add_counts(connection, thread, items, tokenizer)?;
        let texts = items.iter().filter(|item| !item.text.is_empty());
        self.unindexed.extend(texts.map(|item| (item.row, Arc::clone(&item.text))));
        state.head = ThreadHead { seq: last.id.seq, link: last.link };
        if self.known.len() >= MAX_CACHED_DERIVATIONS {
            self.known.clear();
        }
        self.known.insert(thread, state);
        Ok(())
    }

    /// Derives everything from all of a thread's own events, a bounded number at a time.
    fn derive_own(
        &mut self,
        connection: &Connection,
        thread: ThreadId,
        base: ThreadHead,
        counter: Option<&dyn TokenCounter>,
    ) -> Result<(), SqliteError> {
        const DERIVE_BATCH_EVENTS: usize = 256;
        const DERIVE_BATCH_BYTES: usize = 1 << 20;
        let tokenizer = counter.map(TokenCounter::name);
        let mut before = base;
        let mut items: Vec<Arc<DerivedEvent>> = Vec::new();
        let mut bytes = 0;
        thread_view::visit_own_events(
            connection,
            thread,
            (base.seq, Seq(u64::MAX)),
            usize::MAX,
            &mut |stored| {
                bytes += stored.fact.len();
                let head = ThreadHead { seq: stored.logged.id.seq, link: stored.logged.link };
                items.push(Arc::new(DerivedEvent::stored(stored.row, stored.logged, counter)));
                if items.len() >= DERIVE_BATCH_EVENTS || bytes >= DERIVE_BATCH_BYTES {
                    self.derive(connection, thread, before, &items, tokenizer)?;
                    self.index(connection)?;
                    (before, bytes) = (head, 0);
                    items.clear();
                }
                Ok(())
            },
        )?;
        self.derive(connection, thread, before, &items, tokenizer)?;
        self.index(connection)
    }
}

impl Default for ThreadDerivation {
    fn default() -> Self {
        Self { head: ThreadHead::START, turns: TurnBuilder::default(), written: None, loop_index: None }
    }
}

impl ThreadDerivation {
    /// The state at `head`, made from the thread's last turn on.
    fn read_back(connection: &Connection, thread: ThreadId, head: ThreadHead) -> Result<Self, SqliteError> {
        let last = turn_rows::last(connection, thread, Seq(u64::MAX))?;
        let (mut turns, from) = match &last {
            None => (TurnBuilder::default(), Seq(1)),
            Some(last) => match last.parent {
                None => (TurnBuilder::default(), last.first),
                Some(parent) => {
                    (turn_rows::resume_turns(connection, thread, parent, last.first)?, last.first)
                }
            },
        };
        thread_view::visit_events(connection, thread, (from, head.seq), usize::MAX, &mut |stored| {
            turns.push(&stored.logged);
            Ok(())
        })?;
        turns.take_done();
        let written = turns.open_turn().map(|turn| turn.id).filter(|id| id.thread == thread);
        Ok(Self { head, turns, written, loop_index: last.map(|last| last.loop_index) })
    }

    /// Takes the next events and writes the turns they make or change.
    fn extend(
        &mut self,
        connection: &Connection,
        thread: ThreadId,
        items: &[Arc<DerivedEvent>],
    ) -> Result<SumsDelta, SqliteError> {
        for item in items {
            self.turns.push_at(item.id, &item.event);
        }
        let mut sums = SumsDelta::default();
        let done = self.turns.take_done();
        let written = self.written.take();
        for turn in done.iter().chain(self.turns.open_turn()) {
            // A turn that began before the fork has its row there.
            if turn.id.thread == thread {
                if written == Some(turn.id) {
                    turn_rows::update(connection, turn)?;
                } else {
                    turn_rows::insert(connection, thread, turn)?;
                    sums.turns += 1;
                    sums.loops += u64::from(self.loop_index != Some(turn.loop_index));
                }
            }
            self.loop_index = Some(turn.loop_index);
        }
        self.written = self.turns.open_turn().map(|turn| turn.id).filter(|id| id.thread == thread);
        Ok(sums)
    }
}

/// Makes everything derived again, into tables that are empty. `counter` counts; without it no counts are made.
pub(super) fn derive_all(
    connection: &Connection,
    counter: Option<&dyn TokenCounter>,
) -> Result<(), SqliteError> {
    let mut derivations = TurnDerivations::default();
    for (thread, base) in thread_bases(connection)? {
        shared_sums::derive(connection, thread)?;
        derivations.derive_own(connection, thread, base, counter)?;
    }
    let mut ledger = connection.prepare("SELECT number, text FROM ledger ORDER BY number")?;
    let mut rows = ledger.query([])?;
    while let Some(row) = rows.next()? {
        index(connection, row.get(0)?, &row.get::<_, String>(1)?)?;
    }
    Ok(())
}

/// Makes the derived data of one thread again; its counts are kept.
pub(super) fn derive_thread(connection: &Connection, thread: ThreadId) -> Result<(), SqliteError> {
    let base = thread_view::own_start(connection, thread)?;
    shared_sums::derive(connection, thread)?;
    TurnDerivations::default().derive_own(connection, thread, base, None)?;
    connection.execute(
        "INSERT INTO token_totals SELECT thread, tokenizer, sum(tokens) FROM counts WHERE thread = ?1
         GROUP BY tokenizer",
        [thread.blob()],
    )?;
    Ok(())
}

/// Every thread with the head it starts from, parents before their forks.
pub(super) fn thread_bases(connection: &Connection) -> Result<Vec<(ThreadId, ThreadHead)>, SqliteError> {
    let mut statement = connection.prepare("SELECT id FROM threads ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut bases = Vec::new();
    while let Some(row) = rows.next()? {
        let thread = codec::thread(row, 0)?;
        bases.push((thread, thread_view::own_start(connection, thread)?));
    }
    Ok(bases)
}

/// Drops everything derived and makes it again.
pub(super) fn rebuild(
    connection: &Connection,
    counter: Option<&dyn TokenCounter>,
) -> Result<(), SqliteError> {
    connection.execute_batch(
        "DELETE FROM turn_rows; DELETE FROM totals; DELETE FROM shared_totals; DELETE FROM token_totals;
         INSERT INTO search (search) VALUES ('delete-all');",
    )?;
    deferred_derivation::record_all_derived(connection)?;
    if let Some(counter) = counter {
        connection.execute("DELETE FROM counts WHERE tokenizer = ?1", [counter.name()])?;
    }
    derive_all(connection, counter)?;
    // Counts by other tokenizers were not made again and are still there, so the sums come from the table.
    connection.execute_batch(
        "DELETE FROM token_totals;
         INSERT INTO token_totals SELECT thread, tokenizer, sum(tokens) FROM counts GROUP BY thread, tokenizer;",
    )?;
    Ok(())
}

/// Adds a text to the search index.
pub(super) fn index(connection: &Connection, row: i64, text: &str) -> Result<(), SqliteError> {
    if !text.is_empty() {
        connection
            .prepare_cached("INSERT INTO search (rowid, text) VALUES (?1, ?2)")?
            .execute(params![row, text])?;
    }
    Ok(())
}

fn add_totals(
    connection: &Connection,
    thread: ThreadId,
    items: &[Arc<DerivedEvent>],
    sums: &SumsDelta,
) -> Result<(), SqliteError> {
    let facts = || items.iter().map(|item| &item.event.fact);
    let times = || items.iter().filter_map(|item| item.event.time.map(|time| time.0));
    let messages = facts().filter(|fact| fact.is_message()).count() as u64;
    let calls = facts().map(|fact| fact.calls().count() as u64).sum();
    let compactions = facts().filter(|fact| matches!(fact, Fact::Compacted(_))).count() as u64;
    connection
        .prepare_cached(
            "INSERT INTO totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (thread) DO UPDATE SET
                events = events + excluded.events, messages = messages + excluded.messages,
                turns = turns + excluded.turns, loops = loops + excluded.loops,
                tool_calls = tool_calls + excluded.tool_calls, compactions = compactions + excluded.compactions,
                first_time = min(coalesce(first_time, excluded.first_time), coalesce(excluded.first_time, first_time)),
                last_time = max(coalesce(last_time, excluded.last_time), coalesce(excluded.last_time, last_time))",
        )?
        .execute(params![
            thread.blob(),
            signed(items.len() as u64),
            signed(messages),
            signed(sums.turns),
            signed(sums.loops),
            signed(calls),
            signed(compactions),
            times().min(),
            times().max(),
        ])?;
    Ok(())
}

/// Stores counts, and adds them to the thread's sum.
pub(super) fn add_counts(
    connection: &Connection,
    thread: ThreadId,
    items: &[Arc<DerivedEvent>],
    tokenizer: Option<&str>,
) -> Result<(), SqliteError> {
    let Some(tokenizer) = tokenizer else { return Ok(()) };
    let counted = items.iter().filter_map(|item| Some((item.id.seq, item.pieces.as_deref()?)));
    add_count_rows(connection, thread, counted, tokenizer)?;
    Ok(())
}

/// The same for bare numbers; a count that is there already stays. Gives how many were new.
pub(super) fn add_count_rows<'p>(
    connection: &Connection,
    thread: ThreadId,
    counted: impl Iterator<Item = (Seq, &'p [Tokens])>,
    tokenizer: &str,
) -> Result<u64, SqliteError> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO counts (thread, seq, tokenizer, tokens, pieces) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO NOTHING",
    )?;
    let mut sum = Tokens(0);
    let mut new = 0;
    for (seq, pieces) in counted {
        let tokens: Tokens = pieces.iter().copied().sum();
        let row =
            params![thread.blob(), signed(seq.0), tokenizer, signed(tokens.0), codec::pieces_blob(pieces)];
        if insert.execute(row)? > 0 {
            sum += tokens;
            new += 1;
        }
    }
    if new > 0 {
        connection
            .prepare_cached(
                "INSERT INTO token_totals VALUES (?1, ?2, ?3)
                 ON CONFLICT (thread, tokenizer) DO UPDATE SET tokens = tokens + excluded.tokens",
            )?
            .execute(params![thread.blob(), tokenizer, signed(sum.0)])?;
    }
    Ok(new)
}

/// The next events after row `after` that `counter` has not counted, counted now; and the last row looked at.
pub(super) fn count_missing_tokens(
    connection: &Connection,
    counter: &dyn TokenCounter,
    after: i64,
    limit: usize,
) -> Result<(Vec<EventTokenCounts>, i64), SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {EVENT_COLUMNS} FROM events WHERE id > ?1 AND NOT EXISTS (
            SELECT 1 FROM counts WHERE counts.thread = events.thread AND counts.seq = events.seq AND tokenizer = ?2)
         ORDER BY id LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![after, counter.name(), signed(limit as u64)])?;
    let mut fresh = Vec::new();
    let mut last = after;
    while let Some(row) = rows.next()? {
        let stored = codec::stored(connection, row)?;
        last = stored.row;
        fresh.push((stored.logged.id, stored.logged.event.count_by(|text| counter.count(text))));
    }
    Ok((fresh, last))
}
