//! Property tests, named after the invariants they are about.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use epitome_core::{
    Event, EventId, Fact, LoggedEvent, Seq, ThreadId, TokenCounter, Tokens, turn::TurnBuilder,
};
use epitome_store::{NewThread, Store, StoreError, ThreadStart};
use proptest::prelude::*;
use rusqlite::types::Value;

use crate::{
    model::ModelLog,
    support::{Place, Quarters, events, session, thread},
};

/// A few events, in the letters of [`events`].
const SHORT: &str = "[uiafFrgckmpxvVwWLjqn]{1,6}";

/// A step in the life of a log.
#[derive(Clone, Debug)]
enum Step {
    /// Appends to one of the threads.
    Append { to: prop::sample::Index, script: String },
    /// Forks one of the threads somewhere, into one of two sessions.
    Fork { of: prop::sample::Index, at: prop::sample::Index, session: bool },
    /// Closes the store and opens it again, so that nothing is remembered.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (index(), SHORT).prop_map(|(to, script)| Step::Append { to, script }),
        2 => (index(), index(), any::<bool>()).prop_map(|(of, at, session)| Step::Fork { of, at, session }),
        1 => Just(Step::Reopen),
    ]
}

fn life() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..25)
}

/// Lives the steps on a SQLite file, a model of a log beside it. Gives all threads.
fn live(place: &Place, memory: &ModelLog, steps: &[Step]) -> (Arc<dyn Store>, Vec<ThreadId>) {
    live_in(Place::open, place, memory, steps)
}

fn live_in(
    open: fn(&Place) -> Arc<dyn Store>,
    place: &Place,
    memory: &ModelLog,
    steps: &[Step],
) -> (Arc<dyn Store>, Vec<ThreadId>) {
    let mut store = open(place);
    let first = NewThread {
        id: thread("0"),
        session: session("a"),
        name: "0".into(),
        key: None,
        start: ThreadStart::Root,
    };
    let mut threads = vec![first.id];
    memory.open(&first).expect("new");
    store.open(&first).expect("new");
    for step in steps {
        match step {
            Step::Reopen => {
                drop(store);
                store = open(place);
            }
            Step::Append { to, script } => {
                let to = threads[to.index(threads.len())];
                let head = memory.head(to).expect("known");
                let batch = events(head.seq.next(), script);
                let expected = memory.append(to, head.seq, batch.clone()).expect("at the head");
                assert_eq!(store.append(to, head.seq, batch).expect("at the head"), expected);
            }
            Step::Fork { of, at, session: inside } => {
                let of = threads[of.index(threads.len())];
                let head = memory.head(of).expect("known").seq.0;
                let at = Seq(at.index(usize::try_from(head).expect("small") + 1) as u64);
                let name = threads.len().to_string();
                let new = NewThread {
                    id: thread(&name),
                    session: session(if *inside { "a" } else { "b" }),
                    name,
                    key: None,
                    start: ThreadStart::Fork { of, at },
                };
                memory.open(&new).expect("new");
                store.open(&new).expect("new");
                threads.push(new.id);
            }
        }
    }
    (store, threads)
}

fn all(log: &dyn Store, thread: ThreadId) -> Vec<LoggedEvent> {
    log.read(thread, Seq::START, usize::MAX).expect("known")
}

/// Everything derived, as rows of values.
pub(crate) fn derived(place: &Place) -> Vec<Vec<Vec<Value>>> {
    let connection = place.raw();
    connection
        .execute_batch("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, search, instance)")
        .expect("words of the index");
    ["turn_rows", "totals", "shared_totals", "counts", "token_totals", "words"]
        .map(|table| {
            let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).expect("a table");
            let columns = statement.column_count();
            let mut rows: Vec<Vec<Value>> = statement
                .query_map([], |row| (0..columns).map(|column| row.get(column)).collect())
                .expect("rows")
                .collect::<Result<_, _>>()
                .expect("values");
            rows.sort_by_key(|row| format!("{row:?}"));
            rows
        })
        .to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_fork_is_a_copy_of_the_prefix(steps in life()) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, threads) = live(&place, &memory, &steps);
        for thread in &threads {
            let events = all(&*store, *thread);
            prop_assert_eq!(&events, &memory.all(*thread));
            if let ThreadStart::Fork { of, at } = store.thread(*thread).unwrap().start {
                let shared = usize::try_from(at.0).unwrap();
                prop_assert_eq!(&events[..shared], &all(&*store, of)[..shared]);
            }
        }
    }

    #[test]
    fn turns_of_a_view_are_those_derived_from_its_events(steps in life()) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, threads) = live(&place, &memory, &steps);
        let mut followed: HashSet<EventId> = HashSet::new();
        let views: Vec<_> = threads.iter().map(|thread| TurnBuilder::of(&memory.all(*thread))).collect();
        followed.extend(views.iter().flatten().filter_map(|turn| turn.parent));
        for (thread, expected) in threads.iter().zip(&views) {
            let rows = store.turns(*thread).unwrap();
            let turns: Vec<_> = rows.iter().map(|row| row.turn.clone()).collect();
            prop_assert_eq!(&turns, expected);
            for row in &rows {
                prop_assert_eq!(row.has_children, followed.contains(&row.turn.id));
            }
            let newest = expected.iter().rev().find(|turn| turn.is_compaction() && !reverted(&memory, *thread, turn.id.seq));
            prop_assert_eq!(store.compaction_in_force(*thread).unwrap().map(|event| event.id), newest.map(|turn| turn.id));
        }
    }

    #[test]
    fn a_traversal_visits_every_turn_once(steps in life()) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, threads) = live(&place, &memory, &steps);
        for thread in threads {
            let rows = store.turns(thread).unwrap();
            let Some(last) = rows.last() else { continue };
            let history = store.history(last.turn.id).unwrap();
            let mut at = None;
            for (row, seen) in rows.iter().zip(&history) {
                prop_assert_eq!(row.turn.id, seen.turn.id);
                prop_assert_eq!(row.turn.parent, at);
                at = Some(row.turn.id);
            }
            prop_assert_eq!(history.len(), rows.len());
            for row in rows.iter().filter(|row| row.turn.is_compaction()) {
                let turns: Vec<_> = rows.iter().map(|row| row.turn.clone()).collect();
                let covered = epitome_core::lineage::covered_by(&turns, row.turn.id).unwrap();
                prop_assert_eq!(store.covered_turns(row.turn.id).unwrap(), covered);
            }
        }
    }

    #[test]
    fn dropping_and_rebuilding_every_derived_table_changes_nothing(steps in life()) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, _) = live(&place, &memory, &steps);
        let before = derived(&place);
        let report = store.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
        prop_assert_eq!(&derived(&place), &before, "the doctor changes nothing");
        store.rebuild().unwrap();
        prop_assert_eq!(&derived(&place), &before);
        place.raw().execute_batch(
            "DELETE FROM turn_rows; DELETE FROM totals; DELETE FROM shared_totals; DELETE FROM counts; DELETE FROM token_totals;",
        ).unwrap();
        store.rebuild().unwrap();
        prop_assert_eq!(&derived(&place), &before);
    }

    #[test]
    fn what_is_derived_late_is_the_same_for_whoever_asks(steps in life(), is_asked in any::<bool>()) {
        let (place, late) = (Place::new(), Place::new());
        let (store, threads) = live(&place, &ModelLog::new(), &steps);
        let (lagging, _) = live_in(Place::open_late, &late, &ModelLog::new(), &steps);
        if is_asked {
            for thread in threads {
                prop_assert_eq!(lagging.turns(thread).unwrap(), store.turns(thread).unwrap());
            }
            prop_assert_eq!(lagging.sessions().unwrap(), store.sessions().unwrap());
        } else {
            // Another process, which puts nothing off.
            prop_assert!(late.open().doctor().unwrap().is_healthy());
        }
        drop(lagging);
        prop_assert_eq!(derived(&late), derived(&place));
    }

    #[test]
    fn a_session_counts_every_event_its_threads_show_once(steps in life()) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, threads) = live(&place, &memory, &steps);
        for row in store.sessions().unwrap() {
            prop_assert_eq!(&store.session(row.id).unwrap(), &row);
            let mut shown = HashMap::new();
            let mut turns = HashSet::new();
            let mut loops = 0;
            for thread in threads.iter().filter(|thread| store.thread(**thread).unwrap().session == row.id) {
                let view = memory.all(*thread);
                let seen = TurnBuilder::of(&view);
                loops = seen.last().map_or(0, |turn| turn.loop_index + 1);
                turns.extend(seen.into_iter().map(|turn| turn.id));
                shown.extend(view.into_iter().map(|logged| (logged.id, logged.event)));
            }
            let sum = |of: &dyn Fn(&Event) -> u64| shown.values().map(of).sum::<u64>();
            prop_assert_eq!(row.events, shown.len() as u64);
            prop_assert_eq!(row.turns, turns.len() as u64);
            prop_assert_eq!(row.messages, sum(&|event| u64::from(event.fact.is_message())));
            prop_assert_eq!(row.tool_calls, sum(&|event| event.fact.calls().count() as u64));
            prop_assert_eq!(row.compactions, sum(&|event| u64::from(matches!(event.fact, Fact::Compacted(_)))));
            prop_assert_eq!(row.tokens, Some(Tokens(sum(&|event| tokens(event)))));
            prop_assert_eq!(row.first, shown.values().filter_map(|event| event.time).min());
            prop_assert_eq!(row.last, shown.values().filter_map(|event| event.time).max());
            if row.threads == 1 {
                prop_assert_eq!(row.loops, loops);
            }
        }
    }

    #[test]
    fn the_raw_chain_detects_any_changed_byte(
        steps in life(),
        row in any::<prop::sample::Index>(),
        column in prop::sample::select(vec!["fact", "raw", "origin", "dialect", "time", "normal_digest", "raw_link", "kind", "seq"]),
        byte in any::<prop::sample::Index>(),
        bit in 0..7_u8,
    ) {
        let (place, memory) = (Place::new(), ModelLog::new());
        let (store, _) = live(&place, &memory, &steps);
        drop(store);
        let Some(place_changed) = flip(&place, row, column, byte, bit) else { return Ok(()) };
        let report = place.open().doctor().unwrap();
        let named = report.problems().any(|problem| problem.contains(&place_changed));
        prop_assert!(named, "{} of {} was changed: {:#?}", column, place_changed, report);
    }

    #[test]
    fn append_only_under_interleaved_writers(scripts in prop::collection::vec(prop::collection::vec(SHORT, 1..12), 2..5)) {
        let place = Place::new();
        let first = place.open();
        let second = place.open();
        let new = NewThread { id: thread("t"), session: session("s"), name: "t".into(), key: None, start: ThreadStart::Root };
        first.open(&new).unwrap();
        second.open(&new).unwrap();
        let total: usize = scripts.iter().flatten().map(String::len).sum();
        std::thread::scope(|scope| {
            for (index, scripts) in scripts.iter().enumerate() {
                let store = if index % 2 == 0 { &first } else { &second };
                scope.spawn(move || {
                    let mut seen: Vec<LoggedEvent> = Vec::new();
                    for script in scripts {
                        push(&**store, new.id, script);
                        // What was once read is read for ever.
                        let now = all(&**store, new.id);
                        assert_eq!(now[..seen.len()], seen);
                        seen = now;
                    }
                });
            }
        });
        let events = all(&*first, new.id);
        prop_assert_eq!(events.len(), total);
        prop_assert!(events.iter().zip(1..).all(|(event, place)| event.id.seq == Seq(place)));
        prop_assert_eq!(&events, &all(&*second, new.id));
        let report = second.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    }
}

fn tokens(event: &Event) -> u64 {
    let mut tokens = 0;
    event.visit_counted(&mut |text| tokens += Quarters.count(text).0);
    tokens
}

fn push(store: &dyn Store, thread: ThreadId, script: &str) {
    let mut after = Seq::START;
    loop {
        match store.append(thread, after, events(after.next(), script)) {
            Ok(_) => return,
            Err(StoreError::Conflict { head, .. }) => after = head.seq,
            Err(error) => panic!("{error}"),
        }
    }
}

fn reverted(memory: &ModelLog, thread: ThreadId, compaction: Seq) -> bool {
    let events = memory.all(thread);
    let after = events.iter().rev().take_while(|event| event.id.seq > compaction);
    let last_word = after.filter_map(|event| match event.event.fact {
        Fact::CompactionReverted { compaction } => Some((compaction, true)),
        Fact::CompactionRestored { compaction } => Some((compaction, false)),
        _ => None,
    });
    last_word.into_iter().find(|(about, _)| *about == compaction).is_some_and(|(_, undone)| undone)
}

/// Changes one bit of one column of one event, behind the store's back; gives where, if anything changed.
fn flip(
    place: &Place,
    row: prop::sample::Index,
    column: &str,
    byte: prop::sample::Index,
    bit: u8,
) -> Option<String> {
    let connection = place.raw();
    let rows: Vec<(i64, String, i64)> = connection
        .prepare(
            "SELECT events.id, uuid, seq FROM events JOIN threads ON threads.id = thread ORDER BY events.id",
        )
        .and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        })
        .expect("events");
    if rows.is_empty() {
        return None;
    }
    let (id, uuid, seq) = &rows[row.index(rows.len())];
    connection.execute_batch("DROP TRIGGER events_are_never_changed").expect("no trigger any more");
    let select = format!("SELECT {column} FROM events WHERE id = ?1");
    let value: Value = connection.query_row(&select, [id], |row| row.get(0)).expect("a value");
    let flipped = |mut bytes: Vec<u8>| {
        let at = byte.index(bytes.len());
        bytes[at] ^= 1 << bit;
        bytes
    };
    let changed = match value {
        Value::Integer(number) => Value::Integer(number ^ (1 << bit)),
        Value::Blob(bytes) => Value::Blob(flipped(bytes)),
        Value::Text(text) if !text.is_empty() => {
            Value::Text(String::from_utf8(flipped(text.into_bytes())).ok()?)
        }
        Value::Null | Value::Text(_) | Value::Real(_) => return None,
    };
    // Another event may stand where a changed place would put this one; then the database refuses by itself.
    connection.execute(&format!("UPDATE events SET {column} = ?2 WHERE id = ?1"), (id, changed)).ok()?;
    // A changed place shows where the event is now missing, or at the one that follows.
    Some(if column == "seq" { uuid.clone() } else { format!("{uuid}:{seq}") })
}
