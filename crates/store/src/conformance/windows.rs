//! Windows: a read that leaves out what it need not touch.

use epitome_core::{Seq, seq_set::SeqSet};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, events, in_session, places, root, set},
};
use crate::ThreadStart;

checks! {
    a_window_leaves_out_what_it_is_told_to_but_for_some_kinds,
    the_counts_of_some_events_are_those_of_all,
}

fn a_window_leaves_out_what_it_is_told_to_but_for_some_kinds(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "iuarpuaruaruar"));
    let fork = in_session(&*store, "s", "fork", ThreadStart::Fork { of: main, at: Seq(9) });
    append(&*store, fork, events(Seq(10), "uarpua"));
    let kinds = ["instructed", "pinned"];
    let window = |thread, from, without: &[(u64, u64)], kinds: &[&str]| {
        places(&store.read_window(thread, Seq(from), &set(without), kinds).unwrap())
    };
    assert_eq!(window(main, 1, &[], &[]), "1-14");
    assert_eq!(window(main, 1, &[(1, 6), (8, 12)], &[]), "7, 13-14");
    assert_eq!(window(main, 3, &[(4, 12)], &kinds), "1, 3, 5, 13-14");
    assert_eq!(window(fork, 8, &[(11, 14)], &kinds), "1, 5, 8-10, 13, 15");
    assert_eq!(window(fork, 1, &[(0, u64::MAX)], &kinds), "1, 5, 13");
    assert_eq!(window(fork, 99, &[], &[]), "");
}

fn the_counts_of_some_events_are_those_of_all(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "iuarpuaruaruar"));
    let fork = in_session(&*store, "s", "fork", ThreadStart::Fork { of: main, at: Seq(9) });
    append(&*store, fork, events(Seq(10), "uarpua"));
    let all = store.text_counts(fork, Seq(1), usize::MAX).unwrap();
    let wanted = set(&[(2, 3), (8, 11), (14, 99)]);
    let expected: Vec<_> = all.into_iter().filter(|(id, _)| wanted.contains(id.seq)).collect();
    assert!(expected.len() > 4);
    assert_eq!(store.text_counts_of(fork, &wanted).unwrap(), expected);
    assert_eq!(store.text_counts_of(fork, &SeqSet::default()).unwrap(), []);
}
