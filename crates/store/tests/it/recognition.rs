//! Recognising what was seen before, each principal for itself; and threads that are made with their first events.

use epitome_core::Seq;
use epitome_store::{
    ThreadStart,
    records::{CommitRecord, ThreadCommit},
};

use crate::support::{Place, commit, events, exchange, open, opens};

#[test]
fn an_exchange_that_was_changed_is_named() {
    let place = Place::new();
    let store = place.open();
    let main = open(&*store, "", "t", events(Seq(1), "ua"));
    let told = [exchange(Seq(1)), exchange(Seq(2))].map(CommitRecord::Exchange);
    commit(&*store, main, told.into());
    place.raw().execute_batch(
        "DROP TRIGGER exchanges_are_never_changed; UPDATE exchanges SET head = 3, observed = '{' WHERE number = 2;",
    ).unwrap();
    let report = store.doctor().unwrap();
    let problems: Vec<&str> = report.problems().filter(|problem| problem.contains("exchange 2")).collect();
    assert_eq!(problems.len(), 2, "{report:#?}");
}

#[test]
fn the_database_refuses_another_principal_and_names_a_fork_that_shows_one() {
    let place = Place::new();
    let store = place.open();
    let hers = open(&*store, "ann", "t", events(Seq(1), "ua"));
    let own = opens("ann", "own", ThreadStart::Fork { of: hers, at: Seq(2) });
    store.commit(ThreadCommit::opening(own, vec![], vec![])).unwrap();
    let raw = place.raw();
    let error = raw.execute_batch("UPDATE sessions SET principal = 'bob'").unwrap_err().to_string();
    assert!(error.contains("never changed"), "{error}");
    raw.execute_batch(
        "DROP TRIGGER principals_are_never_changed; UPDATE sessions SET principal = 'bob' WHERE title = 'own'",
    )
    .unwrap();
    let report = store.doctor().unwrap();
    assert!(
        report.problems().any(|problem| problem.ends_with("which is another principal's")),
        "{report:#?}"
    );
}

#[test]
fn every_lookup_goes_by_an_index() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for (index, sql) in [
        ("events_by_history", "SELECT id FROM events WHERE normal_link = ?1 AND normal_digest IS NOT NULL"),
        ("events_by_item", "SELECT id FROM events WHERE origin = ?1 AND dialect = 'openai-responses'"),
        ("turns_by_answer", "SELECT seq FROM turn_rows WHERE answer = ?1"),
        ("threads_by_key", "SELECT id FROM threads WHERE key = ?1"),
        ("sessions_by_key", "SELECT id FROM sessions WHERE key = ?1 AND principal = ''"),
        ("exchanges_by_thread", "SELECT number FROM exchanges WHERE thread = ?1"),
    ] {
        let plan: String =
            raw.query_row(&format!("EXPLAIN QUERY PLAN {sql}"), ["x"], |row| row.get(3)).unwrap();
        assert!(plan.contains(index), "{plan}");
    }
}
