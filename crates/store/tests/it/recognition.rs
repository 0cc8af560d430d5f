//! Recognising what was seen before, each principal for itself; and threads that are made with their first events.

use epitome_core::{Event, Seq, ThreadId};
use epitome_store::{
    ThreadStart,
    records::{CommitRecord, ThreadCommit},
};
use proptest::prelude::*;

use crate::support::{Place, commit, ending, events, exchange, item, open, opens, thread};

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

const PRINCIPALS: [&str; 3] = ["", "ann", "bob"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whoever says the same under the same names finds their own, and everything that a lookup gives is theirs.
    #[test]
    fn no_lookup_gives_another_principals_rows(
        sessions in prop::collection::vec((0..3_usize, 0..3_usize, prop::collection::vec(0..2_u8, 1..4), any::<bool>()), 1..12),
    ) {
        let place = Place::new();
        let store = place.open();
        let mut made: Vec<(usize, usize, Vec<Event>)> = Vec::new();
        for (number, (principal, key, words, fork)) in sessions.iter().enumerate() {
            let name = number.to_string();
            // Some go on from a session of their own, so that views share events.
            let parent = made.iter().rposition(|(owner, ..)| owner == principal).filter(|_| *fork);
            let start = parent.map_or(ThreadStart::Root, |parent| ThreadStart::Fork {
                of: thread(&parent.to_string()),
                at: Seq(made[parent].2.len() as u64),
            });
            let mut opens = opens(PRINCIPALS[*principal], &name, start);
            opens.thread.key = Some(format!("key {key}"));
            if let Some(session) = &mut opens.session {
                session.key.clone_from(&opens.thread.key);
            }
            let said: Vec<Event> = words.iter().map(|word| item(&format!("resp_{word}"), &format!("msg_{word}"))).collect();
            store.commit(ThreadCommit::opening(opens, said.clone(), vec![])).unwrap();
            let before = parent.map_or(vec![], |parent| made[parent].2.clone());
            made.push((*principal, *key, [before, said].concat()));
        }
        let theirs = |id: ThreadId| store.session(store.thread(id).unwrap().session).unwrap().principal;
        for (principal, key, view) in &made {
            for asking in PRINCIPALS {
                let found = store.histories_of_principal(asking, ending(view)).unwrap();
                let called = store.threads_by_key(asking, &format!("key {key}")).unwrap();
                let session = store.session_by_key(asking, &format!("key {key}")).unwrap();
                if let Some(session) = session {
                    prop_assert_eq!(store.session(session).unwrap().principal, asking);
                }
                let named = view.last().and_then(|event| event.origin.clone()).unwrap();
                let item = store.item_of(asking, &named).unwrap();
                let answer = store.answer_of(asking, &named.replace("msg", "resp").into()).unwrap();
                let threads = found.iter().map(|id| id.thread).chain(called.iter().map(|row| row.id));
                for id in threads.chain(item.map(|id| id.thread)).chain(answer.map(|id| id.thread)) {
                    prop_assert_eq!(theirs(id), asking);
                }
                if asking == PRINCIPALS[*principal] {
                    prop_assert!(!found.is_empty() && !called.is_empty() && item.is_some() && answer.is_some());
                    prop_assert!(session.is_some());
                }
            }
        }
        let report = store.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    }
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
