//! A database in a file passes the suite that every store passes.

use epitome_store::{
    StoreLocation,
    conformance::{TestDatabase, check_log, check_store},
};

use crate::support::Place;

/// An empty database in a file of its own.
fn in_a_file() -> TestDatabase {
    let place = Place::new();
    let location = StoreLocation::named(place.path()).unwrap();
    TestDatabase::new(location, place.directory)
}

#[test]
fn sqlite_conforms() {
    check_store(&in_a_file);
}

#[test]
fn two_handles_on_one_file_conform_together() {
    let place = Place::new();
    let same = || TestDatabase::new(StoreLocation::named(place.path()).unwrap(), ());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| check_log(&same));
        }
    });
    let report = place.open().doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}
