//! The log: threads are opened, appended to, read and forked. Several stores may try it on one database.

use std::sync::atomic::{AtomicU64, Ordering};

use epitome_core::{
    ChainLink, ContentPart, Digest, Event, Fact, LoggedEvent, Seq, SessionId, ThreadId,
    event::{RawDialect, RawJson, Timestamp},
};

use super::{ConformanceCheck, DatabaseFactory, checks, samples::odd_events};
use crate::{NewThread, StoreError, ThreadHead, ThreadStart, traits::EventLog};

checks! {
    an_empty_thread_is_at_the_start,
    events_come_back_as_they_were,
    links_are_those_of_the_core,
    a_stale_append_is_refused_and_changes_nothing,
    making_a_thread_again_is_no_error_but_making_another_is,
    reading_starts_and_stops_where_asked,
    a_fork_reads_as_a_copy_of_the_prefix,
    a_fork_beyond_the_end_is_refused,
    an_unknown_thread_is_an_error,
    a_spawned_thread_starts_with_nothing,
    of_many_writers_each_append_happens_once,
}

/// A number that no other call in this process gives, so that the suite can run twice on one log.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn new_thread(start: ThreadStart) -> NewThread {
    let number = format!("{}-{}", std::process::id(), fresh());
    NewThread {
        id: ThreadId::derived(&["conformance", &number]),
        session: SessionId::derived(&["conformance", &number]),
        name: format!("thread {number}"),
        key: None,
        start,
    }
}

fn open(log: &dyn EventLog, start: ThreadStart) -> ThreadId {
    let thread = new_thread(start);
    log.open(&thread).expect("a new thread can be made");
    thread.id
}

fn said(text: &str) -> Event {
    let json = format!("{{\"role\":\"user\",\"content\":\"{text}\"}}");
    let normal = Some(Digest::of(text.as_bytes()));
    let raw = RawJson { dialect: RawDialect::OpenaiChat, json: json.into() };
    Event {
        time: Some(Timestamp(7)),
        origin: None,
        fact: Fact::UserSaid { parts: vec![ContentPart::text(text)] },
        raw,
        normal,
    }
}

fn append(log: &dyn EventLog, thread: ThreadId, texts: &[&str]) -> ThreadHead {
    let head = log.head(thread).expect("the thread exists");
    log.append(thread, head.seq, texts.iter().map(|text| said(text)).collect()).expect("nobody else appends")
}

fn all(log: &dyn EventLog, thread: ThreadId) -> Vec<LoggedEvent> {
    log.read(thread, Seq::START, usize::MAX).expect("the thread exists")
}

fn an_empty_thread_is_at_the_start(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = open(log, ThreadStart::Root);
    assert_eq!(log.head(thread).expect("exists"), ThreadHead::START);
    assert_eq!(all(log, thread), []);
    assert_eq!(log.append(thread, Seq::START, Vec::new()).expect("nothing to refuse"), ThreadHead::START);
}

fn events_come_back_as_they_were(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = open(log, ThreadStart::Root);
    let (first, rest) = (vec![said("first")], odd_events());
    let head = log.append(thread, Seq::START, first.clone()).expect("empty thread");
    let head = log.append(thread, head.seq, rest.clone()).expect("at the head");
    let read: Vec<Event> = all(log, thread).into_iter().map(|logged| logged.event).collect();
    assert_eq!(read, [first, rest].concat());
    assert_eq!(log.head(thread).expect("exists"), head);
}

fn links_are_those_of_the_core(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = open(log, ThreadStart::Root);
    log.append(thread, Seq::START, odd_events()).expect("empty thread");
    let mut link = ChainLink::ROOT;
    for (place, logged) in (1..).zip(all(log, thread)) {
        link = link.next(&logged.event, &logged.event.fact_json());
        assert_eq!((logged.id.seq, logged.id.thread, logged.link), (Seq(place), thread, link));
    }
    assert_eq!(log.head(thread).expect("exists").link, link);
}

fn a_stale_append_is_refused_and_changes_nothing(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = open(log, ThreadStart::Root);
    let head = append(log, thread, &["a", "b"]);
    for stale in [Seq(0), Seq(1), Seq(3), Seq(u64::MAX)] {
        match log.append(thread, stale, vec![said("c"), said("d")]) {
            Err(StoreError::Conflict { head: at, after, .. }) => assert_eq!((at, after), (head, stale)),
            other => panic!("an append after {stale} gave {other:?}"),
        }
    }
    assert_eq!(all(log, thread).len(), 2);
}

fn making_a_thread_again_is_no_error_but_making_another_is(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = new_thread(ThreadStart::Root);
    log.open(&thread).expect("new");
    append(log, thread.id, &["a"]);
    log.open(&thread).expect("the same again");
    assert_eq!(all(log, thread.id).len(), 1);
    let fork = ThreadStart::Fork { of: thread.id, at: Seq(1) };
    for other in [
        NewThread { name: "another name".to_owned(), ..thread.clone() },
        NewThread { start: fork, ..thread.clone() },
        NewThread { start: ThreadStart::Spawned { by: None, call: None }, ..thread.clone() },
    ] {
        assert!(matches!(log.open(&other), Err(StoreError::ThreadDiffers(id)) if id == thread.id));
    }
}

fn reading_starts_and_stops_where_asked(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let root = open(log, ThreadStart::Root);
    append(log, root, &["1", "2", "3"]);
    let fork = open(log, ThreadStart::Fork { of: root, at: Seq(3) });
    append(log, fork, &["4", "5"]);
    let places = |from: u64, limit: usize| -> Vec<u64> {
        let events = log.read(fork, Seq(from), limit).expect("exists");
        events.iter().map(|event| event.id.seq.0).collect()
    };
    assert_eq!(places(0, 10), [1, 2, 3, 4, 5]);
    assert_eq!(places(2, 3), [2, 3, 4]);
    assert_eq!(places(4, usize::MAX), [4, 5]);
    assert_eq!(places(1, 0), [0; 0]);
    assert_eq!(places(6, 10), [0; 0]);
    assert_eq!(places(u64::MAX, 10), [0; 0]);
}

fn a_fork_reads_as_a_copy_of_the_prefix(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let root = open(log, ThreadStart::Root);
    append(log, root, &["1", "2", "3", "4"]);
    let child = open(log, ThreadStart::Fork { of: root, at: Seq(3) });
    append(log, child, &["4'", "5'"]);
    append(log, root, &["5"]);
    // Of the child's own part, of exactly its start, of its parent's part, and of an empty range.
    for at in [4, 3, 2, 0] {
        let copy = open(log, ThreadStart::Fork { of: child, at: Seq(at) });
        let prefix: Vec<LoggedEvent> =
            all(log, child).into_iter().take_while(|event| event.id.seq <= Seq(at)).collect();
        assert_eq!(all(log, copy), prefix);
        let link = prefix.last().map_or(ChainLink::ROOT, |event| event.link);
        assert_eq!(log.head(copy).expect("exists"), ThreadHead { seq: Seq(at), link });
        let before = all(log, child);
        let head = append(log, copy, &["own"]);
        assert_eq!(head.seq, Seq(at + 1));
        assert_eq!(head.link, link.next(&said("own"), &said("own").fact_json()));
        assert_eq!(all(log, child), before);
        assert_eq!(all(log, copy)[..prefix.len()], prefix);
    }
    let deep = (0..20).fold(child, |parent, _| open(log, ThreadStart::Fork { of: parent, at: Seq(5) }));
    assert_eq!(all(log, deep), all(log, child));
}

fn a_fork_beyond_the_end_is_refused(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let root = open(log, ThreadStart::Root);
    append(log, root, &["1"]);
    let beyond = new_thread(ThreadStart::Fork { of: root, at: Seq(2) });
    match log.open(&beyond) {
        Err(StoreError::ForkBeyondHead { of, at, head }) => {
            assert_eq!((of, at, head), (root, Seq(2), Seq(1)));
        }
        other => panic!("a fork beyond the end gave {other:?}"),
    }
    assert!(matches!(log.head(beyond.id), Err(StoreError::UnknownThread(_))));
}

fn an_unknown_thread_is_an_error(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let nobody = new_thread(ThreadStart::Root).id;
    let unknown = |error: Option<StoreError>| {
        assert!(matches!(error, Some(StoreError::UnknownThread(id)) if id == nobody));
    };
    unknown(log.head(nobody).err());
    unknown(log.read(nobody, Seq(1), 1).err());
    unknown(log.append(nobody, Seq(0), vec![said("a")]).err());
    unknown(log.open(&new_thread(ThreadStart::Fork { of: nobody, at: Seq(0) })).err());
}

fn a_spawned_thread_starts_with_nothing(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let root = open(log, ThreadStart::Root);
    append(log, root, &["1"]);
    let by = all(log, root).first().map(|event| event.id);
    let spawned = new_thread(ThreadStart::Spawned { by, call: Some("call_1".into()) });
    log.open(&spawned).expect("new");
    log.open(&spawned).expect("the same again");
    assert_eq!(all(log, spawned.id), []);
    assert_eq!(append(log, spawned.id, &["1"]).seq, Seq(1));
}

fn of_many_writers_each_append_happens_once(databases: &DatabaseFactory<'_>) {
    const WRITERS: usize = 4;
    const EACH: usize = 12;
    let place = databases();
    let store = place.open();
    let log: &dyn EventLog = &*store;
    let thread = open(log, ThreadStart::Root);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for turn in 0..EACH {
                    let text = format!("{writer}-{turn}");
                    let mut after = Seq::START;
                    loop {
                        match log.append(thread, after, vec![said(&text), said("and on")]) {
                            Ok(_) => break,
                            Err(StoreError::Conflict { head, .. }) => after = head.seq,
                            Err(error) => panic!("a writer failed: {error}"),
                        }
                    }
                }
            });
        }
    });
    let events = all(log, thread);
    let mut texts: Vec<String> = events.iter().step_by(2).map(|event| event.event.fact.text()).collect();
    assert!(events.iter().skip(1).step_by(2).all(|event| event.event.fact.text() == "and on"));
    texts.sort();
    let mut expected: Vec<String> =
        (0..WRITERS).flat_map(|writer| (0..EACH).map(move |turn| format!("{writer}-{turn}"))).collect();
    expected.sort();
    assert_eq!(texts, expected);
}
