//! What is derived may be put off. Nobody who asks the store for it notices.

use std::sync::Arc;

use epitome_core::Seq;
use epitome_store::{Store, StoreLocation, records::SearchQuery};

use crate::support::{Place, append, events, root, thread};

/// How many rows the file has of what is derived, for somebody who reads it without the store.
fn turns_in_the_file(place: &Place) -> i64 {
    place.raw().query_row("SELECT count(*) FROM turn_rows", [], |row| row.get(0)).unwrap()
}

fn filled(place: &Place) -> Arc<dyn Store> {
    let store = place.open_late();
    append(&*store, root(&*store, "t"), events(Seq(1), "uaua"));
    assert_eq!(turns_in_the_file(place), 0, "it is put off");
    store
}

type Ask = fn(&dyn Store) -> usize;

#[test]
fn whoever_asks_for_what_was_put_off_has_it() {
    let ask: [(&str, Ask); 4] = [
        ("turns", |store| store.turns(thread("t")).unwrap().len()),
        ("sums", |store| usize::try_from(store.sessions().unwrap()[0].turns).unwrap()),
        ("counts", |store| store.event_counts(thread("t"), Seq(1), 2).unwrap().len()),
        ("words", |store| store.search(&SearchQuery::everything("question")).unwrap().len()),
    ];
    for (what, ask) in ask {
        let place = Place::new();
        assert_eq!(ask(&*filled(&place)), 2, "{what}");
        let place = Place::new();
        let writing = filled(&place);
        assert_eq!(ask(&*place.open()), 2, "{what}, in another process");
        append(&*writing, thread("t"), events(Seq(5), "ua"));
        assert_eq!(place.open().turns(thread("t")).unwrap().len(), 3);
        assert!(writing.doctor().unwrap().is_healthy());
    }
}

#[test]
fn what_a_kill_left_to_derive_is_derived_by_the_next() {
    let place = Place::new();
    let store = filled(&place);
    // As a kill leaves it.
    let copy = Place::new();
    store.backup(&StoreLocation::named(copy.path()).unwrap(), &mut |_| ()).unwrap();
    assert_eq!(turns_in_the_file(&copy), 0);
    let copied = copy.open_late();
    append(&*copied, thread("t"), events(Seq(5), "ua"));
    assert!(copied.doctor().unwrap().is_healthy());
    assert_eq!(turns_in_the_file(&copy), 3);
}

#[test]
fn a_store_that_is_closed_has_nothing_left_to_derive() {
    let place = Place::new();
    drop(filled(&place));
    assert_eq!(turns_in_the_file(&place), 2);
}
