//! Calls: numbered through forks, written with their events or not at all, and the same when they are read.

use epitome_core::{
    Digest, EventId, Seq, ThreadId, Tokens,
    event::{Timestamp, Usage},
    profile::Money,
};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, call, commit, events, in_session, job, make_call, policy, root},
};
use crate::{
    Store, StoreError, ThreadStart,
    records::{
        CommitRecord, HashedText, JobId, NewCall, NewCallOutcome, NewJob, OutcomeRow, SizeRefusal,
        ThreadCommit,
    },
};

checks! {
    a_call_comes_back_as_it_was_made,
    a_fork_shares_the_calls_made_by_its_start_and_counts_on,
    nothing_of_a_refused_commit_is_written,
    of_many_callers_each_gets_a_number_of_its_own,
    what_providers_counted_is_found_by_model_once_a_thread,
}

/// The calls a thread sees: whose, and which number.
fn numbers(store: &dyn Store, thread: ThreadId) -> Vec<(ThreadId, u64)> {
    store.calls(thread, 0, usize::MAX).unwrap().into_iter().map(|call| (call.thread, call.number)).collect()
}

fn what_providers_counted_is_found_by_model_once_a_thread(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let made = |name: &str, model: Option<&str>, sizes: &[(u64, Option<u64>)]| {
        let id = root(&*store, name);
        append(&*store, id, events(Seq(1), "u"));
        for (number, (estimated, counted)) in (0..).zip(sizes) {
            let call =
                NewCall { model: model.map(Into::into), estimated: Tokens(*estimated), ..call(Seq(1)) };
            let outcome = NewCallOutcome {
                call: number,
                time: None,
                answer: None,
                usage: counted.map(|counted| Usage {
                    cache_read: Tokens(counted),
                    output: Tokens(9),
                    ..Usage::default()
                }),
                cost: None,
                error: None,
                refusal: None,
            };
            commit(
                &*store,
                id,
                vec![
                    CommitRecord::Content(policy()),
                    CommitRecord::Call(call),
                    CommitRecord::Outcome(outcome),
                ],
            );
        }
    };
    let counts = |model: &str, limit: usize| {
        let calls = store.counted_calls(&model.into(), limit).unwrap();
        calls.iter().map(|call| (call.estimated.0, call.counted.0)).collect::<Vec<_>>()
    };
    assert_eq!(counts("m", 9), []);
    made("one", Some("m"), &[(100, Some(110)), (200, Some(230)), (300, None)]);
    made("two", Some("m"), &[(50, Some(60))]);
    made("three", Some("other"), &[(70, Some(70)), (0, Some(80))]);
    made("four", None, &[(90, Some(90))]);
    made("five", Some("m"), &[(40, None)]);
    assert_eq!(counts("m", 9), [(50, 60), (200, 230)]);
    assert_eq!(counts("m", 1), [(50, 60)]);
    assert_eq!(counts("m", 0), []);
    assert_eq!(counts("other", 9), [(70, 70)]);
    assert_eq!(counts("none", 9), []);
}

fn a_call_comes_back_as_it_was_made(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uac"));
    let (policy, profile, rendering) =
        (policy(), HashedText::new("profile"), HashedText::new("{\"cache\":true}"));
    let made = NewCall {
        head: Seq(4),
        time: Some(Timestamp(-5)),
        model: Some("model".into()),
        profile: Some(profile.hash),
        rendering: rendering.hash,
        summary: Some(EventId { thread: id, seq: Seq(3) }),
        epoch: 7,
        cause: Some("a person asked".into()),
        pass: Some("{\"edits\":[]}".into()),
        sent: "[1,2]".into(),
        steps: "[{}]".into(),
        plan: Some("null".into()),
        estimated: Tokens(1234),
        ..call(Seq(4))
    };
    let usage = Usage { uncached: Tokens(1), cache_read: Tokens(2), output: Tokens(3), ..Usage::default() };
    let ended = NewCallOutcome {
        call: 0,
        time: Some(Timestamp(9)),
        answer: Some("msg".into()),
        usage: Some(usage),
        cost: Some(Money(1_500_000)),
        error: None,
        refusal: None,
    };
    let failed = NewCallOutcome {
        time: None,
        answer: None,
        usage: None,
        cost: None,
        error: Some("cut off".into()),
        refusal: Some(SizeRefusal { limit: Some(Tokens(4_096)), asked: None }),
        ..ended.clone()
    };
    // Contents may stand behind what names them.
    let committed = store
        .commit_numbered(ThreadCommit::new(
            id,
            Seq(3),
            events(Seq(4), "u"),
            vec![
                CommitRecord::Call(made.clone()),
                CommitRecord::Outcome(failed.clone()),
                CommitRecord::Content(policy.clone()),
                CommitRecord::Content(profile),
                CommitRecord::Content(rendering.clone()),
                CommitRecord::Content(rendering.clone()),
            ],
        ))
        .unwrap();
    assert_eq!((committed.head, committed.calls), (store.head(id).unwrap(), vec![0]));
    commit(&*store, id, vec![CommitRecord::Content(policy.clone()), CommitRecord::Outcome(ended.clone())]);
    let row = store.call(id, 0).unwrap();
    assert_eq!((row.thread, row.number, &row.call), (id, 0, &made));
    let outcome = |NewCallOutcome { time, answer, usage, cost, error, refusal, .. }| OutcomeRow {
        time,
        answer,
        usage,
        cost,
        error,
        refusal,
    };
    assert_eq!(row.outcomes, [outcome(failed), outcome(ended)]);
    assert_eq!(store.last_call(id).unwrap(), Some(row));
    assert_eq!(store.edit_records(id).unwrap(), [(0, Seq(4), "{\"edits\":[]}".to_owned())]);
    assert_eq!(store.content(rendering.hash).unwrap(), Some(rendering.text));
    assert_eq!(store.content(Digest::of(b"nothing")).unwrap(), None);
    assert!(matches!(store.call(id, 1), Err(StoreError::UnknownCall { number: 1, .. })));
    assert!(store.doctor().unwrap().is_healthy());
}

fn a_fork_shares_the_calls_made_by_its_start_and_counts_on(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "main");
    append(&*store, main, events(Seq(1), "u"));
    make_call(&*store, main);
    append(&*store, main, events(Seq(2), "auac"));
    make_call(&*store, main);
    let early = in_session(&*store, "s", "early", ThreadStart::Fork { of: main, at: Seq(4) });
    let late = in_session(&*store, "s", "late", ThreadStart::Fork { of: main, at: Seq(5) });
    let none = in_session(&*store, "s", "none", ThreadStart::Fork { of: main, at: Seq(0) });
    // The parent calls again where the fork starts; the fork was made before.
    make_call(&*store, main);
    assert_eq!(numbers(&*store, main), [(main, 0), (main, 1), (main, 2)]);
    assert_eq!(numbers(&*store, early), [(main, 0)]);
    assert_eq!(numbers(&*store, late), [(main, 0), (main, 1)]);
    assert_eq!((numbers(&*store, none), store.last_call(none).unwrap()), (vec![], None));
    assert_eq!((make_call(&*store, early), make_call(&*store, late), make_call(&*store, none)), (1, 2, 0));
    assert_eq!(store.last_call(early).unwrap().map(|call| (call.thread, call.number)), Some((early, 1)));
    let deep = in_session(&*store, "s", "deep", ThreadStart::Fork { of: late, at: Seq(5) });
    assert_eq!(numbers(&*store, deep), [(main, 0), (main, 1), (late, 2)]);
    assert_eq!(store.calls(deep, 1, 1).unwrap()[0].number, 1);
    // What is reported of a shared call, whoever reports it, is seen by all who share it.
    let outcome = NewCallOutcome {
        call: 1,
        time: None,
        answer: None,
        usage: None,
        cost: None,
        error: None,
        refusal: None,
    };
    commit(&*store, deep, vec![CommitRecord::Outcome(outcome)]);
    assert_eq!(store.call(main, 1).unwrap().outcomes.len(), 1);
    // A compaction keeps its id in every fork.
    let stands = EventId { thread: main, seq: Seq(5) };
    commit(&*store, deep, vec![CommitRecord::Call(NewCall { summary: Some(stands), ..call(Seq(5)) })]);
    assert_eq!(store.last_call(deep).unwrap().unwrap().call.summary, Some(stands));
    assert!(store.doctor().unwrap().is_healthy());
}

fn nothing_of_a_refused_commit_is_written(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let (id, other) = (root(&*store, "t"), root(&*store, "other"));
    append(&*store, id, events(Seq(1), "uac"));
    append(&*store, other, events(Seq(1), "uac"));
    make_call(&*store, id);
    let queued = job(&*store, id, "known", Seq(3));
    commit(&*store, id, vec![CommitRecord::Job(queued.clone())]);
    let state = |store: &dyn Store| {
        (store.head(id).unwrap(), store.calls(id, 0, 99).unwrap(), store.jobs(None).unwrap())
    };
    let before = state(&*store);
    let beyond = Seq(9);
    let unknown = Digest::of(b"unknown");
    let changed = HashedText { hash: unknown, text: "changed".into() };
    let elsewhere = EventId { thread: other, seq: Seq(3) };
    let outcome = NewCallOutcome {
        call: 2,
        time: None,
        answer: None,
        usage: None,
        cost: None,
        error: None,
        refusal: None,
    };
    let fresh = job(&*store, id, "fresh", Seq(3));
    for (record, words) in [
        (CommitRecord::Content(changed), "a text was given as the content"),
        (CommitRecord::Call(NewCall { rendering: unknown, ..call(Seq(3)) }), "there is no content"),
        (CommitRecord::Call(NewCall { profile: Some(unknown), ..call(Seq(3)) }), "there is no content"),
        (
            CommitRecord::Call(NewCall { sent: "{".into(), ..call(Seq(3)) }),
            "the sent part of a call is not JSON",
        ),
        (
            CommitRecord::Call(NewCall { pass: Some("a b".into()), ..call(Seq(3)) }),
            "the pass of a call is not JSON",
        ),
        (CommitRecord::Call(call(beyond)), "its head is event 9, which is not one of 3 to 4"),
        (CommitRecord::Call(call(Seq(2))), "its head is event 2, which is not one of 3 to 4"),
        (CommitRecord::Call(NewCall { summary: Some(elsewhere), ..call(Seq(3)) }), "which is not its own"),
        (CommitRecord::CallsSoFar(9), "calls, not 9: someone made one first"),
        (CommitRecord::Outcome(outcome), "shows no call 2"),
        (CommitRecord::Job(queued.clone()), "does that already; it is not made twice"),
        (CommitRecord::Job(NewJob { id: queued.id, ..fresh.clone() }), "does that already"),
        (CommitRecord::Job(NewJob { thread: other, ..fresh.clone() }), "it is for the thread"),
        (CommitRecord::Job(NewJob { link: unknown, ..fresh.clone() }), "it has another history"),
        (CommitRecord::Job(NewJob { through: beyond, ..fresh.clone() }), "its last event is event 9"),
        (CommitRecord::Job(NewJob { first: Seq(4), ..fresh.clone() }), "its first event is event 4"),
        (CommitRecord::Job(NewJob { detail: String::new(), ..fresh }), "the detail of a job is not JSON"),
        (CommitRecord::Adopted { job: queued.id, compaction: Seq(3) }, "is not ready"),
        (CommitRecord::Adopted { job: JobId::derived(&["?"]), compaction: Seq(3) }, "there is no job"),
        (CommitRecord::CancelJob { job: JobId::derived(&["?"]), reason: String::new() }, "there is no job"),
    ] {
        // It is the last of several: what stands before it is good.
        let cancel = CommitRecord::CancelJob { job: queued.id, reason: "not needed".into() };
        let records = vec![
            CommitRecord::Content(HashedText::new("new")),
            CommitRecord::Call(call(Seq(3))),
            cancel,
            record,
        ];
        let commit = ThreadCommit::new(id, Seq(3), events(Seq(4), "u"), records);
        let error = store.commit(commit).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(state(&*store), before, "{words}");
        assert_eq!(store.content(HashedText::new("new").hash).unwrap(), None, "{words}");
    }
    // An empty commit checks the head as any other does.
    for after in [Seq(2), Seq(4)] {
        let error = store.commit(ThreadCommit::new(id, after, vec![], vec![])).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { head, .. } if head == before.0), "{error}");
    }
    let head = store.commit(ThreadCommit::new(id, Seq(3), vec![], vec![])).unwrap();
    assert_eq!(head, before.0);
    // What was refused leaves no trace in what is derived either.
    store.append(id, Seq(3), events(Seq(4), "ua")).unwrap();
    assert!(store.doctor().unwrap().is_healthy());
}

fn of_many_callers_each_gets_a_number_of_its_own(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let second = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "u"));
    make_call(&*store, id);
    let mut given: Vec<u64> = std::thread::scope(|scope| {
        let callers: Vec<_> = [&store, &second, &store, &second]
            .into_iter()
            .map(|store| scope.spawn(move || (0..10).map(|_| make_call(&**store, id)).collect::<Vec<_>>()))
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    given.sort_unstable();
    assert_eq!(given, (1..=40).collect::<Vec<_>>());
}
