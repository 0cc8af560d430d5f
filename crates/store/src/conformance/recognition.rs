//! Recognising what was seen before, each principal for itself; and threads that are made with their first events.

use epitome_core::{
    Event, Fact, Seq, ThreadId,
    event::{Compaction, CompactionTrigger, Summary, Timestamp},
};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{
        append, at, ending, events, exchange, in_session, item, open, opens, root, session, thread, user,
    },
};
use crate::{
    NewThread, StoreError, ThreadStart,
    records::{
        CommitRecord, HeadPromotion, NewExchange, NewSession, SearchQuery, ThreadCommit, ThreadOpening,
    },
};

checks! {
    a_session_its_thread_and_its_events_are_made_in_one_commit,
    a_session_that_is_begun_at_two_moments_is_made_once,
    commits_that_are_made_together_are_each_there_or_refused,
    of_an_opening_that_is_refused_nothing_is_left,
    a_session_goes_on_with_the_thread_it_is_told_to,
    a_lookup_gives_the_newest_first_and_only_a_few,
    the_last_event_of_an_answer_is_found_and_not_what_followed_it,
    a_history_is_recognised_after_its_clients_own_compaction,
    digests_are_those_of_the_view,
}

fn a_session_its_thread_and_its_events_are_made_in_one_commit(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn a_session_that_is_begun_at_two_moments_is_made_once(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
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

fn commits_that_are_made_together_are_each_there_or_refused(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn of_an_opening_that_is_refused_nothing_is_left(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn a_session_goes_on_with_the_thread_it_is_told_to(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn a_lookup_gives_the_newest_first_and_only_a_few(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn the_last_event_of_an_answer_is_found_and_not_what_followed_it(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn a_history_is_recognised_after_its_clients_own_compaction(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn digests_are_those_of_the_view(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "t");
    append(&*store, main, events(Seq(1), "iuagrp"));
    let start = ThreadStart::Fork { of: main, at: Seq(4) };
    let fork = in_session(&*store, "t", "fork", start);
    append(&*store, fork, events(Seq(5), "ua"));
    for (from, limit) in [(0, 99), (3, 99), (2, 3), (6, 1), (7, 9), (1, 0)] {
        let read = store.read(fork, Seq(from), limit).unwrap();
        let expected: Vec<_> =
            read.into_iter().map(|event| (event.id.seq, event.event.normal, event.link.normal)).collect();
        assert_eq!(store.digests(fork, Seq(from), limit).unwrap(), expected, "from {from}");
    }
    assert!(matches!(store.digests(thread("none"), Seq(1), 1), Err(StoreError::UnknownThread(_))));
}
