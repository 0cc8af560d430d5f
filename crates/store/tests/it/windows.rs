//! Windows: a read that leaves out what it need not touch.

use epitome_core::Seq;

use crate::support::{Place, append, events, places, root, set};

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
