//! Turns and compactions of a view.

use epitome_core::{EventId, Seq};

use super::{
    ConformanceCheck, DatabaseFactory, checks, expect_error,
    samples::{append, events, in_session, root},
};
use crate::{StoreError, StoreOptions, ThreadStart};

checks! {
    a_compaction_is_a_turn_that_covers_those_before_it,
    the_compaction_in_force_is_the_newest_that_is_not_undone,
    the_tokenizer_is_the_counters_or_the_first_that_counted,
}

fn a_compaction_is_a_turn_that_covers_those_before_it(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "uauacua"));
    let fork = in_session(&*store, "s", "fork", ThreadStart::Fork { of: main, at: Seq(5) });
    append(&*store, fork, events(Seq(6), "uac"));
    let ids = |rows: Vec<crate::records::TurnRow>| -> Vec<(bool, u64)> {
        rows.into_iter().map(|row| (row.turn.id.thread == main, row.turn.id.seq.0)).collect()
    };
    let at = |thread, seq: u64| EventId { thread, seq: Seq(seq) };
    let whole = [(true, 2), (true, 4), (true, 5), (true, 7)];
    assert_eq!(ids(store.turns(main).unwrap()), whole);
    assert_eq!(ids(store.history(at(main, 7)).unwrap()), whole);
    assert_eq!(ids(store.history(at(main, 4)).unwrap()), whole[..2]);
    assert_eq!(ids(store.turns(fork).unwrap()), [(true, 2), (true, 4), (true, 5), (false, 7), (false, 8)]);
    assert_eq!(ids(store.history(at(fork, 7)).unwrap()), ids(store.turns(fork).unwrap())[..4]);
    assert_eq!(store.covered_turns(at(main, 5)).unwrap(), [at(main, 2), at(main, 4)]);
    // The second one covers the first and what came after it.
    assert_eq!(store.covered_turns(at(fork, 8)).unwrap(), [at(main, 5), at(fork, 7)]);
    expect_error(&store.history(at(main, 1)), |error| matches!(error, StoreError::UnknownTurn(_)));
}

fn the_compaction_in_force_is_the_newest_that_is_not_undone(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    let in_force = |id| store.compaction_in_force(id).unwrap().map(|event| event.id.seq.0);
    append(&*store, main, events(Seq(1), "ua"));
    assert_eq!(in_force(main), None);
    append(&*store, main, events(Seq(3), "cuac"));
    assert_eq!(in_force(main), Some(6));
    // Undone, and brought back.
    append(&*store, main, events(Seq(7), "v"));
    assert_eq!(in_force(main), Some(3));
    append(&*store, main, events(Seq(8), "w"));
    assert_eq!(in_force(main), Some(6));
    let fork = in_session(&*store, "s", "fork", ThreadStart::Fork { of: main, at: Seq(7) });
    assert_eq!(in_force(fork), Some(3), "a fork sees what was undone at its start");
}

fn the_tokenizer_is_the_counters_or_the_first_that_counted(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let plain = place.open_with(StoreOptions::default());
    assert_eq!(plain.tokenizer(), None);
    drop(plain);
    assert_eq!(place.open().tokenizer(), Some("quarters"));
    assert_eq!(place.open_with(StoreOptions::default()).tokenizer(), Some("quarters"));
}
