//! Windows: a read that leaves out what it need not touch.

use epitome_core::{LoggedEvent, Seq, seq_set::SeqSet};
use epitome_store::ThreadStart;

use crate::support::{Place, append, events, in_session, root};

fn set(runs: &[(u64, u64)]) -> SeqSet {
    let runs: Vec<SeqSet> = runs.iter().map(|(first, last)| SeqSet::run(Seq(*first), Seq(*last))).collect();
    SeqSet::union(&runs)
}

fn places(read: &[LoggedEvent]) -> String {
    let one: Vec<SeqSet> = read.iter().map(|event| SeqSet::one(event.id.seq)).collect();
    assert!(read.is_sorted_by(|one, next| one.id.seq < next.id.seq), "oldest first, each once");
    SeqSet::union(&one).to_string()
}

#[test]
fn a_window_leaves_out_what_it_is_told_to_but_for_some_kinds() {
    let place = Place::new();
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

#[test]
fn the_counts_of_some_events_are_those_of_all() {
    let place = Place::new();
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

/// What is left out cannot even be read any more.
#[test]
fn the_rows_of_what_is_left_out_are_not_touched() {
    let place = Place::new();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "iuarpuaruaruar"));
    let raw = place.raw();
    raw.execute_batch("DROP TRIGGER events_are_never_changed").unwrap();
    raw.execute("UPDATE events SET fact = 'nonsense' WHERE seq BETWEEN 6 AND 12", []).unwrap();
    assert!(store.read(main, Seq(1), usize::MAX).is_err());
    let read = store.read_window(main, Seq(1), &set(&[(2, 4), (6, 12)]), &["pinned"]).unwrap();
    assert_eq!(places(&read), "1, 5, 13-14");
}
