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

/// A method that no check calls is promised by nobody.
#[test]
fn the_suite_calls_every_method_of_every_trait() {
    let source = |folder: &str, file: &str| {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut text = std::fs::read_to_string(root.join(file)).unwrap();
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            text += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
        }
        text
    };
    let (traits, suite) = (source("traits", "log.rs"), source("conformance", "conformance.rs"));
    let methods: Vec<&str> = traits
        .lines()
        .filter_map(|line| line.strip_prefix("    fn ")?.split_once('(').map(|(name, _)| name))
        .collect();
    assert!(methods.len() > 60, "methods are found: {methods:?}");
    let untried: Vec<_> = methods.iter().filter(|name| !suite.contains(&format!(".{name}("))).collect();
    assert!(untried.is_empty(), "no check calls {untried:?}");
}
