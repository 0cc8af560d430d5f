//! Erasing a session leaves nothing of it in the files, and everything that others share; backups are whole.

use epitome_core::{EventId, Seq, event::Timestamp};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, assert_healthy, events, in_session, picture, root, seen, session, user},
};
use crate::{StoreError, ThreadStart, records::LedgerEntry};

checks! {
    what_a_fork_elsewhere_shares_becomes_its_own,
    an_erased_thread_can_be_made_again_beside_its_forks,
    two_forks_of_one_session_go_on_sharing_what_they_shared,
}

fn what_a_fork_elsewhere_shares_becomes_its_own(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "gone");
    append(&*store, main, events(Seq(1), "uafrfr"));
    let side = in_session(&*store, "gone", "side", ThreadStart::Fork { of: main, at: Seq(5) });
    append(&*store, side, events(Seq(6), "ruaua"));
    let heir = in_session(&*store, "heir", "heir", ThreadStart::Fork { of: side, at: Seq(7) });
    append(&*store, heir, vec![user("own")]);
    let aside = in_session(&*store, "gone", "aside", ThreadStart::Fork { of: heir, at: Seq(8) });
    let child = in_session(&*store, "child", "child", ThreadStart::Fork { of: aside, at: Seq(6) });
    let entry = LedgerEntry {
        id: "1".into(),
        channel: "mail".into(),
        time: Timestamp(1),
        author: "ann".into(),
        text: "stays".into(),
        raw: "{}".into(),
    };
    store.ledger_add(&entry, &[EventId { thread: main, seq: Seq(2) }]).unwrap();
    let before = [heir, child].map(|id| (seen(&*store, id), store.turns(id).unwrap().len()));

    let erased = store.erase(session("gone"), Timestamp(1)).unwrap();
    // Of `main` five events are shared, of `side` two; `aside` had none of its own.
    assert_eq!((erased.threads, erased.events, erased.shared), (3, 4, 7));
    assert_eq!([heir, child].map(|id| (seen(&*store, id), store.turns(id).unwrap().len())), before);
    let threads = store.threads(session("heir")).unwrap();
    assert_eq!(
        threads.iter().map(|row| (row.id, row.start.clone())).collect::<Vec<_>>(),
        [(heir, ThreadStart::Root)]
    );
    assert_eq!(store.thread(child).unwrap().start, ThreadStart::Fork { of: heir, at: Seq(6) });
    assert_eq!(store.ledger_turns("mail", "1").unwrap(), [EventId { thread: heir, seq: Seq(2) }]);
    assert!(store.session(session("gone")).is_err());
    assert!(matches!(store.head(side), Err(StoreError::UnknownThread(_))));
    assert_healthy(&*store);
}

fn an_erased_thread_can_be_made_again_beside_its_forks(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "gone");
    append(&*store, main, events(Seq(1), "uaua"));
    let heir = in_session(&*store, "heir", "heir", ThreadStart::Fork { of: main, at: Seq(2) });
    let before = seen(&*store, heir);
    store.erase(session("gone"), Timestamp(1)).unwrap();
    root(&*store, "gone");
    store.append(main, Seq::START, events(Seq(1), "uaua")).unwrap();
    assert_eq!(store.session(session("gone")).unwrap().events, 4);
    assert_eq!(store.threads(session("heir")).unwrap().len(), 1);
    assert_eq!(seen(&*store, heir), before);
    assert_healthy(&*store);
}

fn two_forks_of_one_session_go_on_sharing_what_they_shared(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "gone");
    append(&*store, main, events(Seq(1), "uauaua"));
    append(&*store, main, vec![picture(&[5; 3000])]);
    let older = in_session(&*store, "heir", "older", ThreadStart::Fork { of: main, at: Seq(3) });
    let younger = in_session(&*store, "heir", "younger", ThreadStart::Fork { of: main, at: Seq(7) });
    let before = [older, younger].map(|id| seen(&*store, id));
    let erased = store.erase(session("gone"), Timestamp(1)).unwrap();
    assert_eq!((erased.events, erased.shared, erased.media), (0, 7, 0));
    assert_eq!([older, younger].map(|id| seen(&*store, id)), before);
    assert_eq!(store.thread(younger).unwrap().start, ThreadStart::Fork { of: older, at: Seq(3) });
    assert_eq!(store.session(session("heir")).unwrap().events, 7);
    assert_healthy(&*store);
}
