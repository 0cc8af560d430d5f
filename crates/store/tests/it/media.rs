//! Media are stored once and come back byte for byte.

use epitome_core::Digest;

use crate::support::{Place, append, picture, root};

#[test]
fn a_picture_in_many_messages_is_stored_once() {
    let place = Place::new();
    let store = place.open();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let id = root(&*store, "t");
    append(&*store, id, (0..10).map(|_| picture(&bytes)).collect());
    let raw = place.raw();
    let stored: (i64, i64, i64) = raw
        .query_row(
            "SELECT (SELECT count(*) FROM media), (SELECT count(*) FROM media_uses), (SELECT max(length(raw)) FROM events)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!((stored.0, stored.1), (1, 10));
    assert!(stored.2 < 300, "{stored:?}");
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn a_changed_or_missing_medium_is_named() {
    let check = |sql: &str| {
        let place = Place::new();
        let store = place.open();
        let id = root(&*store, "t");
        let bytes = vec![9; 5000];
        append(&*store, id, vec![picture(&bytes)]);
        drop(store);
        let raw = place.raw();
        raw.execute_batch("DROP TRIGGER media_are_never_changed; DROP TRIGGER media_are_never_deleted;")
            .unwrap();
        raw.pragma_update(None, "foreign_keys", false).unwrap();
        raw.execute_batch(sql).unwrap();
        let report = place.open().doctor().unwrap();
        let hash = Digest::of(&bytes).to_string();
        assert!(report.problems().any(|problem| problem.contains(&hash)), "{report:#?}");
        assert!(report.problems().any(|problem| problem.contains(&format!("{id}:1"))), "{report:#?}");
    };
    check("UPDATE media SET bytes = zeroblob(length(bytes))");
    check("DELETE FROM media");
}
