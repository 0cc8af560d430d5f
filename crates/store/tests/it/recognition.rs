//! Recognising what was seen before, each principal for itself; and threads that are made with their first events.

use std::time::Duration;

use epitome_core::{
    ChainLink, ContentPart, Digest, Event, EventId, Fact, Seq, ThreadId,
    event::{Compaction, CompactionTrigger, RawDialect, RawJson, Summary, Timestamp},
};
use epitome_store::{
    NewThread, Store, StoreError, StoreOptions, ThreadStart,
    records::{
        CommitRecord, ExchangeRow, HeadPromotion, NewExchange, NewFork, NewSession, SearchQuery,
        ThreadCommit, ThreadOpening,
    },
    temporary_store,
};
use proptest::prelude::*;

use crate::support::{Place, append, events, root, session, thread, user};

/// An exchange whose request ended with `head`.
pub(crate) fn exchange(head: Seq) -> NewExchange {
    NewExchange {
        head,
        time: Timestamp(5),
        client: "codex".into(),
        purpose: "turn".into(),
        format: "openai-responses".into(),
        model: Some("model".into()),
        status: Some(200),
        ending: "complete".into(),
        bytes_in: 400_000,
        bytes_out: 1200,
        first_byte: Some(Duration::from_millis(350)),
        took: Duration::from_millis(4200),
        observed: Some("{\"sent\":7}".into()),
        error: None,
    }
}

/// The session and the thread `name`, which its client calls by its name too.
fn opens(principal: &str, name: &str, start: ThreadStart) -> ThreadOpening {
    let new = NewSession { principal: principal.to_owned(), ..NewSession::with_title(session(name), name) };
    let made = NewThread {
        id: thread(name),
        session: session(name),
        name: "main".into(),
        key: Some(name.to_owned()),
        start,
    };
    ThreadOpening { session: Some(new), thread: made, head: HeadPromotion::Yes }
}

fn open(store: &dyn Store, principal: &str, name: &str, events: Vec<Event>) -> ThreadId {
    store.commit(ThreadCommit::opening(opens(principal, name, ThreadStart::Root), events, vec![])).unwrap();
    thread(name)
}

/// An answer's item in the Responses format.
fn item(answer: &str, id: &str) -> Event {
    let fact =
        Fact::AssistantSaid { answer: Some(answer.into()), model: None, parts: vec![ContentPart::text(id)] };
    let raw = RawJson { dialect: RawDialect::OpenaiResponses, json: format!("{{\"id\":{id:?}}}").into() };
    let normal = Some(Digest::of(id.as_bytes()));
    Event { time: None, origin: Some(id.to_owned()), fact, raw, normal }
}

fn at(thread: ThreadId, seq: u64) -> EventId {
    EventId { thread, seq: Seq(seq) }
}

/// The normalised link at the end of `events`.
fn ending(events: &[Event]) -> Digest {
    events.iter().fold(ChainLink::ROOT, |link, event| link.next(event, &event.fact_json())).normal
}

#[test]
fn a_session_its_thread_and_its_events_are_made_in_one_commit() {
    let place = Place::new();
    let store = place.open();
    let said = vec![user("one"), user("two")];
    let commit = ThreadCommit::opening(
        opens("ann", "t", ThreadStart::Root),
        said,
        vec![CommitRecord::Exchange(exchange(Seq(2)))],
    );
    assert_eq!((commit.thread, commit.after), (thread("t"), Seq::START));
    let head = store.commit(commit.clone()).unwrap();
    assert_eq!(store.head(thread("t")).unwrap(), head);
    let row = store.session(session("t")).unwrap();
    assert_eq!((row.principal.as_str(), row.title.as_str(), row.head), ("ann", "t", Some(thread("t"))));
    assert_eq!((row.events, row.threads), (2, 1));
    let made = store.thread(thread("t")).unwrap();
    assert_eq!((made.key.as_deref(), made.start, made.head), (Some("t"), ThreadStart::Root, head));
    // Who lost the race is told where the thread is.
    match store.commit(commit) {
        Err(StoreError::Conflict { head: there, .. }) => assert_eq!(there, head),
        other => panic!("{other:?}"),
    }
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn a_session_that_is_begun_at_two_moments_is_made_once() {
    let store = temporary_store(StoreOptions::default()).unwrap();
    let begin = |principal: &str, name: &str, key: Option<&str>, time: i64| {
        let mut opens = opens(principal, name, ThreadStart::Root);
        let id = session(name).with_time(Timestamp(time));
        (opens.thread.session, opens.thread.id) = (id, thread(name).beside(id.uuid()));
        let made = opens.session.iter_mut().next().unwrap();
        (made.id, made.key) = (id, key.map(str::to_owned));
        let commit = ThreadCommit::opening(opens, vec![user(principal)], vec![]);
        match store.commit(commit) {
            Ok(_) => Some(id),
            Err(StoreError::Conflict { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let first = begin("ann", "a", Some("k"), 1).unwrap();
    assert_eq!(begin("ann", "a", Some("k"), 2), None);
    assert_eq!(store.session_named("ann", "k", session("a")).unwrap(), Some(first));
    // Another principal, another name, another key, or none: that is somebody else.
    for (principal, name, key) in [("bob", "a", Some("k")), ("ann", "b", Some("k")), ("ann", "c", None)] {
        assert!(begin(principal, name, key, 3).is_some(), "{principal} {name} {key:?}");
    }
    assert_eq!(store.session_named("ann", "other", session("a")).unwrap(), None);
    assert_eq!(store.sessions().unwrap().len(), 4);
}

#[test]
fn commits_that_are_made_together_are_each_there_or_refused() {
    let place = Place::new();
    let store = place.open();
    let committed = std::thread::scope(|scope| {
        let commits: Vec<_> = (0..50)
            .map(|number| {
                let (store, name) = (&store, format!("t{}", number % 40));
                scope.spawn(move || {
                    let opens = opens("", &name, ThreadStart::Root);
                    store.commit(ThreadCommit::opening(opens, vec![user(&name)], vec![]))
                })
            })
            .collect();
        commits.into_iter().flat_map(|commit| commit.join().unwrap()).count()
    });
    assert_eq!(committed, 40, "of two commits that open a thread one is refused");
    let odd = NewExchange { observed: Some("{".into()), ..exchange(Seq(1)) };
    let refused = ThreadCommit::new(thread("t1"), Seq(1), vec![], vec![CommitRecord::Exchange(odd)]);
    assert!(matches!(store.commit(refused), Err(StoreError::NotJson { .. })));
    // Texts of a group go into the search index after its last job.
    for number in 0..40 {
        assert_eq!(
            store.search(&SearchQuery::everything(format!("t{number}"))).unwrap().len(),
            1,
            "{number}"
        );
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn of_an_opening_that_is_refused_nothing_is_left() {
    let place = Place::new();
    let store = place.open();
    let other = root(&*store, "other");
    append(&*store, other, events(Seq(1), "ua"));
    let whole = opens("", "t", ThreadStart::Root);
    let check = |commit: ThreadCommit, expect: &str| {
        let error = store.commit(commit).unwrap_err().to_string();
        let names =
            [(thread("t").to_string(), "T"), (other.to_string(), "OTHER"), (session("t").to_string(), "S")];
        let error = names.iter().fold(error, |text, (id, name)| text.replace(id, name));
        assert_eq!(error, expect);
        assert!(matches!(store.head(thread("t")), Err(StoreError::UnknownThread(_))));
        assert_eq!(store.sessions().unwrap().len(), 1);
    };
    let late = vec![CommitRecord::Exchange(exchange(Seq(2)))];
    check(
        ThreadCommit::opening(whole.clone(), vec![user("one")], late),
        "the exchange does not fit the thread T: its head is event 2, which is not one of 0 to 1",
    );
    let odd = NewExchange { observed: Some("{".into()), ..exchange(Seq(1)) };
    check(
        ThreadCommit::opening(whole.clone(), vec![user("one")], vec![CommitRecord::Exchange(odd)]),
        "the observation of an exchange is not JSON: EOF while parsing an object at line 1 column 1",
    );
    check(
        ThreadCommit { thread: other, ..ThreadCommit::opening(whole.clone(), vec![], vec![]) },
        "the opening does not fit the thread OTHER: it makes the thread T",
    );
    check(
        ThreadCommit { after: Seq(1), ..ThreadCommit::opening(whole.clone(), vec![], vec![]) },
        "the opening does not fit the thread T: it starts after event 0, and the commit goes on after 1",
    );
    let elsewhere = NewThread { session: session("t"), ..whole.thread.clone() };
    let made = NewSession::with_title(session("u"), "");
    let mixed = ThreadOpening { session: Some(made.clone()), thread: elsewhere, ..whole.clone() };
    check(
        ThreadCommit::opening(mixed, vec![], vec![]),
        &format!(
            "the opening does not fit the thread T: it makes the session {}, and the thread is of S",
            made.id
        ),
    );
    check(
        ThreadCommit::opening(ThreadOpening { session: None, ..whole.clone() }, vec![], vec![]),
        "no session is called `S`; `epitome sessions` lists them",
    );
    let beyond = NewThread { start: ThreadStart::Fork { of: other, at: Seq(9) }, ..whole.thread.clone() };
    check(
        ThreadCommit::opening(ThreadOpening { thread: beyond, ..whole }, vec![], vec![]),
        "cannot fork the thread OTHER at event 9: it ends at event 2",
    );
    // Nor in the search index, which is told last.
    assert_eq!(store.search(&SearchQuery::everything("one")).unwrap(), []);
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn a_session_goes_on_with_the_thread_it_is_told_to() {
    let place = Place::new();
    let store = place.open();
    let main = open(&*store, "", "t", events(Seq(1), "ua"));
    let head = || store.session(session("t")).unwrap().head;
    let side = |name: &str, head: HeadPromotion| {
        let start = ThreadStart::Fork { of: main, at: Seq(1) };
        let made = NewThread { session: session("t"), ..opens("", name, start).thread };
        let opens = ThreadOpening { session: None, thread: made, head };
        store.commit(ThreadCommit::opening(opens, vec![user(name)], vec![])).unwrap();
        thread(name)
    };
    let quiet = side("title", HeadPromotion::No);
    assert_eq!(head(), Some(main));
    let edited = side("edited", HeadPromotion::Yes);
    assert_eq!(head(), Some(edited));
    for back in [main, quiet] {
        let after = store.head(back).unwrap().seq;
        store.commit(ThreadCommit::new(back, after, vec![], vec![CommitRecord::Head])).unwrap();
        assert_eq!(head(), Some(back));
    }
    // A session never stands nowhere.
    let first = ThreadOpening { head: HeadPromotion::No, ..opens("", "alone", ThreadStart::Root) };
    store.commit(ThreadCommit::opening(first, vec![], vec![])).unwrap();
    assert_eq!(store.session(session("alone")).unwrap().head, Some(thread("alone")));
}

#[test]
fn a_lookup_gives_the_newest_first_and_only_a_few() {
    let place = Place::new();
    let store = place.open();
    let said = || vec![user("the same first prompt"), item("resp", "msg")];
    let names: Vec<String> = (0..40).map(|number| format!("run {number}")).collect();
    for name in &names {
        let mut opens = opens("", name, ThreadStart::Root);
        opens.thread.key = Some("batch".into());
        store.commit(ThreadCommit::opening(opens, said(), vec![])).unwrap();
    }
    let newest: Vec<ThreadId> = names.iter().rev().take(16).map(|name| thread(name)).collect();
    let recognised = store.histories_of_principal("", ending(&said())).unwrap();
    assert_eq!(recognised, newest.iter().map(|id| at(*id, 2)).collect::<Vec<_>>());
    let called = store.threads_by_key("", "batch").unwrap();
    assert_eq!(called.iter().map(|row| row.id).collect::<Vec<_>>(), newest);
    assert_eq!(store.answer_of("", &"resp".into()).unwrap(), Some(at(newest[0], 2)));
    assert_eq!(store.item_of("", "msg").unwrap(), Some(at(newest[0], 2)));
    assert_eq!(store.histories_ending_with(ending(&said())).unwrap().len(), 40);
}

#[test]
fn the_last_event_of_an_answer_is_found_and_not_what_followed_it() {
    let place = Place::new();
    let store = place.open();
    let id = open(
        &*store,
        "",
        "t",
        vec![user("hi"), item("one", "rs_1"), item("one", "msg_1"), item("one", "fc_1")],
    );
    append(&*store, id, events(Seq(5), "grr"));
    append(&*store, id, vec![item("two", "msg_2"), user("and")]);
    let answer = |name: &str| store.answer_of("", &name.into()).unwrap();
    assert_eq!((answer("one"), answer("two"), answer("three")), (Some(at(id, 4)), Some(at(id, 8)), None));
    let found = |name: &str| store.item_of("", name).unwrap();
    assert_eq!((found("rs_1"), found("msg_2"), found("msg_3")), (Some(at(id, 2)), Some(at(id, 8)), None));
    // The origin of something that is no item is not its id.
    append(&*store, id, vec![user("elsewhere").from_origin("msg_9")]);
    assert_eq!(found("msg_9"), None);
}

#[test]
fn a_history_is_recognised_after_its_clients_own_compaction() {
    let place = Place::new();
    let store = place.open();
    let id = open(&*store, "", "t", vec![user("a"), user("b")]);
    let instead = [user("in short: a, b")];
    let fact = Fact::Compacted(Compaction {
        summary: Summary::Text("a, b".into()),
        through: Seq(2),
        first_kept: None,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Unknown,
    });
    append(
        &*store,
        id,
        vec![Event { normal: Some(ending(&instead)), ..Event::from_fact(fact, None) }, user("c")],
    );
    let [summary] = instead;
    assert_eq!(
        store.histories_of_principal("", ending(std::slice::from_ref(&summary))).unwrap(),
        [at(id, 3)]
    );
    assert_eq!(store.histories_of_principal("", ending(&[summary, user("c")])).unwrap(), [at(id, 4)]);
    assert_eq!(store.histories_of_principal("", ending(&[user("a"), user("b"), user("c")])).unwrap(), []);
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn digests_are_those_of_the_view() {
    let place = Place::new();
    let store = place.open();
    let main = root(&*store, "t");
    append(&*store, main, events(Seq(1), "iuagrp"));
    let start = ThreadStart::Fork { of: main, at: Seq(4) };
    let fork = crate::support::in_session(&*store, "t", "fork", start);
    append(&*store, fork, events(Seq(5), "ua"));
    for (from, limit) in [(0, 99), (3, 99), (2, 3), (6, 1), (7, 9), (1, 0)] {
        let read = store.read(fork, Seq(from), limit).unwrap();
        let expected: Vec<_> =
            read.into_iter().map(|event| (event.id.seq, event.event.normal, event.link.normal)).collect();
        assert_eq!(store.digests(fork, Seq(from), limit).unwrap(), expected, "from {from}");
    }
    assert!(matches!(store.digests(thread("none"), Seq(1), 1), Err(StoreError::UnknownThread(_))));
}

#[test]
fn exchanges_come_back_as_they_were_told_a_sessions_together() {
    let place = Place::new();
    let store = place.open();
    let main = open(&*store, "", "t", events(Seq(1), "ua"));
    let bare = NewExchange {
        model: None,
        status: None,
        first_byte: None,
        observed: None,
        error: Some("not reached".into()),
        ending: "unreached".into(),
        ..exchange(Seq(1))
    };
    let fork = crate::support::in_session(&*store, "t", "fork", ThreadStart::Fork { of: main, at: Seq(2) });
    let tell = |id: ThreadId, told: &NewExchange| {
        let after = store.head(id).unwrap().seq;
        store
            .commit(ThreadCommit::new(id, after, vec![], vec![CommitRecord::Exchange(told.clone())]))
            .unwrap();
    };
    tell(main, &bare);
    open(&*store, "", "other", events(Seq(1), "ua"));
    tell(thread("other"), &bare);
    tell(fork, &exchange(Seq(2)));
    let rows = store.exchanges(session("t"), 0, 9).unwrap();
    assert_eq!(
        rows,
        [
            ExchangeRow { number: 1, thread: main, exchange: bare },
            ExchangeRow { number: 3, thread: fork, exchange: exchange(Seq(2)) },
        ]
    );
    assert_eq!(store.exchanges(session("t"), 2, 9).unwrap(), rows[1..]);
    assert_eq!(store.exchanges(session("t"), 0, 1).unwrap(), rows[..1]);
    assert!(matches!(store.exchanges(session("none"), 0, 1), Err(StoreError::UnknownSession { .. })));
    place.raw().execute_batch(
        "DROP TRIGGER exchanges_are_never_changed; UPDATE exchanges SET head = 3, observed = '{' WHERE number = 3;",
    ).unwrap();
    let report = store.doctor().unwrap();
    let problems: Vec<&str> = report.problems().filter(|problem| problem.contains("exchange 3")).collect();
    assert_eq!(problems.len(), 2, "{report:#?}");
}

#[test]
fn a_session_never_changes_hands_and_no_fork_shows_another_principals_past() {
    let place = Place::new();
    let store = place.open();
    let hers = open(&*store, "ann", "t", events(Seq(1), "ua"));
    let theirs = |error: StoreError, of: &str| match error {
        StoreError::OtherPrincipal(id) => assert_eq!(id, session(of)),
        other => panic!("{other}"),
    };
    for principal in ["", "bob"] {
        let again = opens(principal, "t", ThreadStart::Root);
        theirs(store.create_session(again.session.as_ref().unwrap()).unwrap_err(), "t");
        theirs(store.commit(ThreadCommit::opening(again, vec![user("x")], vec![])).unwrap_err(), "t");
        let name = format!("fork of {principal}");
        let start = ThreadStart::Fork { of: hers, at: Seq(2) };
        let fork = opens(principal, &name, start);
        theirs(store.commit(ThreadCommit::opening(fork.clone(), vec![], vec![])).unwrap_err(), &name);
        let whole = NewFork {
            of: hers,
            at: Seq(2),
            session: fork.session.clone().unwrap(),
            thread: fork.thread.id,
            name: "main".into(),
        };
        theirs(store.fork(&whole).unwrap_err(), &name);
        assert!(store.session(session(&name)).is_err());
        theirs(store.open(&NewThread { session: session(&name), ..fork.thread }).unwrap_err(), &name);
    }
    assert_eq!(store.session(session("t")).unwrap().principal, "ann");
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
