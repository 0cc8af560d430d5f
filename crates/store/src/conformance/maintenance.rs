//! Care of a store as a whole: opened again, checked, rebuilt, copied, erased.

use epitome_core::{Seq, ThreadId, event::Timestamp};

use super::{
    ConformanceCheck, DatabaseFactory, checks, expect_error,
    samples::{
        all, append, assert_healthy, call, commit, events, exchange, picture, policy, ready, root, session,
        user,
    },
};
use crate::{
    Store, StoreError,
    records::{AttemptFilter, CommitRecord, NewCall, ScrubState, SearchQuery, ThreadCommit},
};

checks! {
    everything_is_there_when_a_store_is_opened_again,
    a_submitted_commit_is_made_in_its_turn_and_tells_its_outcome,
    records_of_rewriting_are_read_from_either_end,
    rebuilding_changes_nothing,
    a_copy_reads_as_the_store_did,
    an_erased_session_is_gone_and_others_are_as_they_were,
}

/// A thread with every kind of record.
fn filled(store: &dyn Store, name: &str) -> ThreadId {
    let id = root(store, name);
    append(store, id, events(Seq(1), "iuafrc"));
    append(store, id, vec![user(&format!("words of {name}")), picture(&[7; 3000])]);
    let call = NewCall { script: Some("{}".into()), pass: Some("[]".into()), ..call(Seq(8)) };
    let records = vec![
        CommitRecord::Content(policy()),
        CommitRecord::Call(call),
        CommitRecord::Exchange(exchange(Seq(8))),
    ];
    commit(store, id, records);
    ready(store, id, "key", Seq(6));
    store.set_title(session(name), &format!("title of {name}")).unwrap();
    id
}

/// Everything that a store shows of a thread, as text.
fn shown(store: &dyn Store, id: ThreadId, name: &str) -> Vec<String> {
    let search = SearchQuery::everything(format!("\"words of {name}\""));
    let hits = store.search(&search).unwrap();
    vec![
        format!("{:?}", all(store, id)),
        format!("{:?}", store.turns(id).unwrap()),
        format!("{:?}", store.text_counts(id, Seq(1), 99).unwrap()),
        format!("{:?}", store.session(session(name)).unwrap()),
        format!("{:?}", store.calls(id, 0, 9).unwrap()),
        format!("{:?}", store.exchanges(session(name), 0, 9).unwrap()),
        format!("{:?}", store.ready_job(id).unwrap().unwrap()),
        format!("{:?}", store.attempts(AttemptFilter::Thread(id), None, 9).unwrap()),
        format!("{:?}", hits.into_iter().map(|hit| hit.found).collect::<Vec<_>>()),
    ]
}

fn everything_is_there_when_a_store_is_opened_again(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open_late();
    let id = filled(&*store, "kept");
    let before = shown(&*store, id, "kept");
    assert_eq!(store.location(), place.location());
    assert!(!store.is_read_only());
    let beside = store.reopen().unwrap();
    assert_eq!(beside.location(), place.location());
    assert_eq!(shown(&*beside, id, "kept"), before);
    drop((store, beside));
    let again = place.open();
    assert_eq!(shown(&*again, id, "kept"), before);
    append(&*again, id, events(Seq(9), "ua"));
    assert_healthy(&*again);
}

fn a_submitted_commit_is_made_in_its_turn_and_tells_its_outcome(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    let commits =
        |number: u64| ThreadCommit::new(id, Seq(number), vec![user(&format!("event {number}"))], vec![]);
    let pending: Vec<_> = (0..20).map(|number| store.submit(commits(number))).collect();
    let late = store.submit(commits(7));
    // Dropped, it is made all the same.
    drop(store.submit(commits(20)));
    for (number, pending) in (1..).zip(pending) {
        assert_eq!(pending.wait().unwrap().head.seq, Seq(number));
    }
    let late = late.wait().unwrap_err();
    assert!(matches!(late, StoreError::Conflict { after: Seq(7), .. }), "{late}");
    assert!(late.is_conflict());
    // This one waits behind it.
    assert_eq!(store.commit(commits(21)).unwrap().seq, Seq(22));
    // What is wrong by itself is told at once.
    let odd = CommitRecord::Call(NewCall { sent: "{".into(), ..call(Seq(22)) });
    let refused = store.submit(ThreadCommit::new(id, Seq(22), vec![], vec![odd])).wait();
    expect_error(&refused, |error| matches!(error, StoreError::NotJson { .. }));
    assert_eq!(all(&*store, id).len(), 22);
}

fn records_of_rewriting_are_read_from_either_end(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "u"));
    let scripts = [Some("{\"n\":0}"), None, Some("{\"n\":2}"), Some("{\"n\":3}")];
    let made = |script: Option<&str>| {
        let sent = if script.is_none() { NewCall::RELAYED_SENT } else { "[]" };
        NewCall { script: script.map(Into::into), sent: sent.into(), ..call(Seq(1)) }
    };
    let calls = scripts.iter().map(|script| CommitRecord::Call(made(*script)));
    let records = std::iter::once(CommitRecord::Content(policy())).chain(calls).collect();
    assert_eq!(commit(&*store, id, records), [0, 1, 2, 3]);
    let record = |number: u64| (number, policy().hash, format!("{{\"n\":{number}}}"));
    assert_eq!(store.rewrite_records(id).unwrap(), [record(0), record(2), record(3)]);
    assert_eq!(store.rewrite_records_before(id, 3, 9).unwrap(), [record(2), record(0)]);
    assert_eq!(store.rewrite_records_before(id, 9, 1).unwrap(), [record(3)]);
    assert_eq!(store.last_composed_call(id).unwrap().map(|call| call.number), Some(3));
    commit(&*store, id, vec![CommitRecord::Call(made(None))]);
    assert_eq!(store.last_call(id).unwrap().map(|call| call.number), Some(4));
    assert_eq!(store.last_composed_call(id).unwrap().map(|call| call.number), Some(3));
    assert_eq!(store.last_composed_call(root(&*store, "other")).unwrap(), None);
}

fn rebuilding_changes_nothing(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = filled(&*store, "kept");
    let before = shown(&*store, id, "kept");
    assert_eq!(store.rebuild().unwrap(), ScrubState::Gone);
    assert_eq!(shown(&*store, id, "kept"), before);
    assert_eq!(store.scrub().unwrap(), ScrubState::Gone);
    assert_eq!(shown(&*store, id, "kept"), before);
    assert_eq!(store.audit().unwrap(), [], "neither is an action on sessions");
    assert_healthy(&*store);
}

fn a_copy_reads_as_the_store_did(databases: &DatabaseFactory<'_>) {
    let (place, other) = (databases(), databases());
    let store = place.open();
    let id = filled(&*store, "kept");
    let before = shown(&*store, id, "kept");
    let mut last = None;
    store.backup(other.location(), &mut |progress| last = Some(progress)).unwrap();
    assert!(last.is_some_and(|last| last.done == last.total && last.total > 0), "{last:?}");
    append(&*store, id, events(Seq(9), "ua"));
    let copy = other.open();
    assert_eq!(shown(&*copy, id, "kept"), before);
    assert_healthy(&*copy);
    assert!(store.backup(other.location(), &mut |_| ()).is_err(), "nothing is overwritten");
    assert_eq!(shown(&*copy, id, "kept"), before);
}

fn an_erased_session_is_gone_and_others_are_as_they_were(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let (gone, kept) = (filled(&*store, "gone"), filled(&*store, "kept"));
    let before = shown(&*store, kept, "kept");
    let erased = store.erase(session("gone"), Timestamp(77)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.shared), (1, 8, 0));
    assert_eq!(erased.media, 0, "the other session has the same picture");
    assert_eq!(erased.scrubbed, ScrubState::Gone);
    expect_error(&store.head(gone), |error| matches!(error, StoreError::UnknownThread(_)));
    expect_error(&store.session(session("gone")), |error| matches!(error, StoreError::UnknownSession { .. }));
    assert_eq!(store.search(&SearchQuery::everything("gone")).unwrap(), []);
    assert_eq!(store.jobs(None).unwrap().len(), 1);
    assert_eq!(store.attempts(AttemptFilter::All, None, 9).unwrap().len(), 1);
    assert_eq!(shown(&*store, kept, "kept"), before);
    let audit = store.audit().unwrap();
    assert_eq!((audit.len(), audit[0].time), (1, Timestamp(77)));
    assert_healthy(&*store);
    // Its name is free again.
    root(&*store, "gone");
    expect_error(&store.erase(session("none"), Timestamp(0)), |error| {
        matches!(error, StoreError::UnknownSession { .. })
    });
}
