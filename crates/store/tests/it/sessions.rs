//! Sessions: made, named, found, listed, forked.

use epitome_core::Seq;
use epitome_store::ThreadStart;

use crate::support::{Place, append, events, in_session, root};

#[test]
fn a_thousand_sessions_are_listed_with_their_counts() {
    let place = Place::new();
    let store = place.open();
    std::thread::scope(|scope| {
        for part in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..125 {
                    let id = root(&**store, &format!("{part}-{number}"));
                    append(&**store, id, events(Seq(1), &"uafrfr".repeat(10)));
                }
            });
        }
    });
    let rows = store.sessions().unwrap();
    assert_eq!(rows.len(), 1000);
    assert!(rows.iter().all(|row| row.events == 60 && row.turns == 20));
}

#[test]
fn a_thousand_forks_of_a_long_session_count_what_they_share() {
    let place = Place::new();
    let store = place.open();
    let main = root(&*store, "main");
    append(&*store, main, events(Seq(1), &"uafrfr".repeat(1_000)));
    for number in 0..1_000 {
        let name = number.to_string();
        in_session(&*store, &name, &name, ThreadStart::Fork { of: main, at: Seq(4_001 + number) });
    }
    let rows = store.sessions().unwrap();
    let shown: u64 = rows.iter().map(|row| row.events).sum();
    assert_eq!((rows.len(), shown), (1_001, 6_000 + (4_001..=5_000).sum::<u64>()));
}
