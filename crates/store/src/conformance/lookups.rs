//! Lookups by names that clients give, by answers, and of what was compacted by a client itself.

use epitome_core::{
    Event, Fact, Seq,
    event::{Compaction, CompactionTrigger, Summary, Timestamp},
};

use super::{
    ConformanceCheck, DatabaseFactory, checks, expect_error,
    samples::{append, commit, ending, events, exchange, in_session, open, opens, session, thread, user},
};
use crate::{
    NewThread, StoreError, ThreadStart,
    records::{CommitRecord, ExchangeRow, NewExchange, NewFork, NewSession, SessionName, ThreadCommit},
};

checks! {
    a_session_is_found_by_the_name_its_client_gave_it,
    an_answer_counts_before_what_came_after_it_in_every_fork,
    the_last_compaction_of_a_client_is_found_in_every_fork,
    exchanges_come_back_as_they_were_told,
    a_session_never_changes_hands,
}

fn a_session_is_found_by_the_name_its_client_gave_it(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    for (name, principal, created) in [("old", "ann", 1), ("new", "ann", 2), ("foreign", "bob", 3)] {
        let new = NewSession {
            key: Some("agent 1".into()),
            created: Some(Timestamp(created)),
            principal: principal.into(),
            ..NewSession::with_title(session(name), name)
        };
        store.create_session(&new).unwrap();
    }
    assert_eq!(store.session_by_key("ann", "agent 1").unwrap(), Some(session("new")));
    assert_eq!(store.session_by_key("bob", "agent 1").unwrap(), Some(session("foreign")));
    assert_eq!(store.session_by_key("", "agent 1").unwrap(), None);
    assert_eq!(store.session_by_key("ann", "agent 2").unwrap(), None);
    let expected = SessionName { key: Some("agent 1".into()), title: "old".into(), head: None };
    assert_eq!(store.session_name(session("old")).unwrap(), expected);
    let main = in_session(&*store, "old", "main", ThreadStart::Root);
    assert_eq!(store.session_name(session("old")).unwrap(), SessionName { head: Some(main), ..expected });
    expect_error(&store.session_name(session("none")), |error| {
        matches!(error, StoreError::UnknownSession { .. })
    });
}

fn an_answer_counts_before_what_came_after_it_in_every_fork(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = open(&*store, "", "t", events(Seq(1), "ua"));
    assert!(!store.has_answer_before(main, Seq(9)).unwrap());
    let cut = NewExchange { ending: "cut".into(), ..exchange(Seq(1)) };
    commit(&*store, main, vec![CommitRecord::Exchange(cut)]);
    assert!(!store.has_answer_before(main, Seq(9)).unwrap(), "it was not complete");
    commit(&*store, main, vec![CommitRecord::Exchange(exchange(Seq(2)))]);
    append(&*store, main, events(Seq(3), "ua"));
    assert!(!store.has_answer_before(main, Seq(2)).unwrap());
    assert!(store.has_answer_before(main, Seq(3)).unwrap());
    let early = in_session(&*store, "t", "early", ThreadStart::Fork { of: main, at: Seq(1) });
    let late = in_session(&*store, "t", "late", ThreadStart::Fork { of: main, at: Seq(2) });
    assert!(!store.has_answer_before(early, Seq(9)).unwrap());
    assert!(store.has_answer_before(late, Seq(9)).unwrap());
}

fn the_last_compaction_of_a_client_is_found_in_every_fork(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = open(&*store, "", "t", vec![user("a"), user("b")]);
    let fact = |through: u64| {
        Fact::Compacted(Compaction {
            summary: Summary::Text("a, b".into()),
            through: Seq(through),
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        })
    };
    let instead = [user("in short: a, b")];
    let own = Event { normal: Some(ending(&instead)), ..Event::from_fact(fact(2), None) };
    // The one after it is ours: the client's history goes on.
    append(&*store, id, vec![own, user("c"), Event::from_fact(fact(4), None), user("d")]);
    let found = |id, through: u64| store.last_client_compaction(id, Seq(through)).unwrap();
    assert_eq!((found(id, 2), found(id, 3), found(id, 9)), (None, Some(Seq(3)), Some(Seq(3))));
    let before = in_session(&*store, "t", "before", ThreadStart::Fork { of: id, at: Seq(2) });
    let after = in_session(&*store, "t", "after", ThreadStart::Fork { of: id, at: Seq(4) });
    assert_eq!((found(before, 9), found(after, 9)), (None, Some(Seq(3))));
}

fn exchanges_come_back_as_they_were_told(databases: &DatabaseFactory<'_>) {
    let place = databases();
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
    let fork = in_session(&*store, "t", "fork", ThreadStart::Fork { of: main, at: Seq(2) });
    commit(&*store, main, vec![CommitRecord::Exchange(bare.clone())]);
    open(&*store, "", "other", events(Seq(1), "ua"));
    commit(&*store, thread("other"), vec![CommitRecord::Exchange(bare.clone())]);
    commit(&*store, fork, vec![CommitRecord::Exchange(exchange(Seq(2)))]);
    let rows = store.exchanges(session("t"), 0, 9).unwrap();
    let [first, second] = &*rows else { panic!("{rows:?}") };
    assert_eq!(*first, ExchangeRow { number: first.number, thread: main, exchange: bare });
    assert_eq!(*second, ExchangeRow { number: second.number, thread: fork, exchange: exchange(Seq(2)) });
    assert!(first.number < second.number);
    assert_eq!(store.exchanges(session("t"), second.number, 9).unwrap(), rows[1..]);
    assert_eq!(store.exchanges(session("t"), 0, 1).unwrap(), rows[..1]);
    expect_error(&store.exchanges(session("none"), 0, 1), |error| {
        matches!(error, StoreError::UnknownSession { .. })
    });
}

fn a_session_never_changes_hands(databases: &DatabaseFactory<'_>) {
    let place = databases();
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
}
