//! Erasing a session leaves nothing of it in the files, and everything that others share; backups are whole.

use std::{collections::BTreeSet, path::Path};

use epitome_core::{EventId, Logged, Seq, event::Time};
use epitome_store::{
    EventLog, Memory, NewThread, Options, Sqlite, Start, StoreError,
    records::{LedgerEntry, LedgerFilter, Scrubbed, Search},
};
use proptest::prelude::*;

use crate::{
    media::picture,
    support::{Place, append, counting, events, in_session, root, session, thread, user},
};

const CANARY: &str = "zanzibarquokka";

/// Whether any file of the store holds the bytes, in any case.
fn holds(directory: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(directory).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap().to_ascii_lowercase();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

fn all(log: &dyn EventLog, id: epitome_core::ThreadId) -> Vec<Logged> {
    log.read(id, Seq(1), usize::MAX).unwrap()
}

#[test]
fn nothing_of_an_erased_session_is_left_in_the_files() {
    let place = Place::new();
    let store = place.open();
    let (gone, kept) = (root(&store, "gone"), root(&store, "kept"));
    let secret: Vec<u8> = CANARY.bytes().cycle().take(3000).collect();
    for number in 0..200 {
        append(&store, gone, vec![user(&format!("{CANARY} {number} {}", "filler ".repeat(50)))]);
        append(&store, kept, vec![user(&format!("ordinary words {number}"))]);
    }
    append(&store, gone, vec![picture(&secret), user(CANARY)]);
    append(&store, kept, vec![picture(&[5; 3000])]);
    store.set_title(session("gone"), CANARY).unwrap();
    store.add_label(session("gone"), CANARY).unwrap();
    let entry = LedgerEntry {
        id: "1".into(),
        channel: "mail".into(),
        time: Time(1),
        author: "ann".into(),
        text: "stays".into(),
        raw: "{}".into(),
    };
    let linked = [EventId { thread: gone, seq: Seq(1) }, EventId { thread: kept, seq: Seq(1) }];
    store.ledger_add(&entry, &linked).unwrap();
    assert!(holds(place.directory.path(), CANARY.as_bytes()));
    let before = all(&store, kept);

    let erased = store.erase(session("gone"), Time(77)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.media, erased.shared), (1, 202, 1, 0));
    assert_eq!(erased.scrubbed, Scrubbed::Gone);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
    assert_eq!(all(&store, kept), before);
    assert!(matches!(store.head(gone), Err(StoreError::UnknownThread(_))));
    assert_eq!(store.search(&Search::everywhere(CANARY)).unwrap(), []);
    assert_eq!(store.search(&Search::everywhere("ordinary 7")).unwrap().len(), 1);
    assert_eq!(store.ledger_turns("mail", "1").unwrap(), linked[1..]);
    assert_eq!(store.ledger(&LedgerFilter::default()).unwrap().len(), 1);
    let audit = store.audit().unwrap();
    assert_eq!((audit.len(), audit[0].time), (1, Time(77)));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    // The triggers are back, and the store goes on.
    assert!(place.raw().execute_batch("DELETE FROM events").is_err());
    append(&store, kept, events(Seq(202), "ua"));
    root(&store, "gone");
}

#[test]
fn what_forks_elsewhere_share_moves_to_the_session_that_inherits_it() {
    let place = Place::new();
    let store = place.open();
    let main = root(&store, "gone");
    append(&store, main, events(Seq(1), "uafrfr"));
    let side = in_session(&store, "gone", "side", Start::Fork { of: main, at: Seq(5) });
    append(&store, side, events(Seq(6), "ruaua"));
    let heir = in_session(&store, "heir", "heir", Start::Fork { of: side, at: Seq(7) });
    append(&store, heir, vec![user("own")]);
    in_session(&store, "gone", "aside", Start::Fork { of: heir, at: Seq(8) });
    let before = (all(&store, heir), store.turns(heir).unwrap().len());

    let erased = store.erase(session("gone"), Time(1)).unwrap();
    // Of `main` five events are shared, of `side` two; `aside` had none of its own.
    assert_eq!((erased.threads, erased.events, erased.shared), (1, 4, 7));
    assert_eq!((all(&store, heir), store.turns(heir).unwrap().len()), before);
    let threads: BTreeSet<String> =
        store.threads(session("heir")).unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(threads, ["gone", "heir", "side"].map(str::to_owned).into());
    assert!(store.session(session("gone")).is_err());
    assert_eq!(store.head(side).unwrap().seq, Seq(7));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn a_fork_of_less_than_its_parent_shares_keeps_no_more_than_that() {
    let place = Place::new();
    let store = place.open();
    let main = root(&store, "gone");
    append(&store, main, events(Seq(1), "uaua"));
    let side = in_session(&store, "gone", "side", Start::Fork { of: main, at: Seq(3) });
    append(&store, side, vec![user(CANARY)]);
    let heir = in_session(&store, "heir", "heir", Start::Fork { of: side, at: Seq(2) });
    let before = all(&store, heir);
    let erased = store.erase(session("gone"), Time(1)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.shared), (0, 3, 2));
    assert_eq!(all(&store, heir), before);
    assert_eq!(store.head(side).unwrap(), store.head(heir).unwrap());
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn erasing_one_session_changes_no_view_of_another(
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3_u8, "[uafFrgckmx]{1,5}"), 1..14),
    ) {
        let (place, memory) = (Place::new(), Memory::new());
        let store = place.open();
        let names = ["a", "b", "c"];
        let first = NewThread { id: thread("0"), session: session("a"), name: "0".into(), start: Start::Root };
        let mut threads = vec![first.clone()];
        store.open(&first).unwrap();
        memory.open(&first).unwrap();
        for (of, at, into, script) in &steps {
            let parent = threads[of.index(threads.len())].id;
            let head = memory.head(parent).unwrap().seq;
            let at = Seq(at.index(usize::try_from(head.0).unwrap() + 1) as u64);
            let name = threads.len().to_string();
            let new = NewThread {
                id: thread(&name), session: session(names[usize::from(*into)]), name,
                start: Start::Fork { of: parent, at },
            };
            for log in [&store as &dyn EventLog, &memory] {
                log.open(&new).unwrap();
                append(log, new.id, events(at.next(), script));
                append(log, parent, events(head.next(), script));
            }
            threads.push(new);
        }
        store.erase(session("a"), Time(0)).unwrap();
        for thread in threads.iter().filter(|thread| thread.session != session("a")) {
            prop_assert_eq!(all(&store, thread.id), all(&memory, thread.id));
            let turns: Vec<_> = store.turns(thread.id).unwrap().into_iter().map(|row| row.turn).collect();
            prop_assert_eq!(turns, epitome_core::turn::Turns::of(&all(&memory, thread.id)));
        }
        prop_assert!(store.session(session("a")).is_err());
        let report = store.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    }
}

#[test]
fn a_backup_is_whole_private_and_never_overwrites() {
    let place = Place::new();
    let store = place.open();
    let id = root(&store, "s");
    append(
        &store,
        id,
        (0..3000).map(|number| user(&format!("event {number} {}", "text ".repeat(40)))).collect(),
    );
    let to = place.directory.path().join("copy.db");
    let mut reports = Vec::new();
    // Appends meanwhile neither stop the copy nor get into it.
    store
        .backup(&to, &mut |progress| {
            append(&store, id, vec![user("later")]);
            reports.push(progress);
        })
        .unwrap();
    assert!(reports.len() > 2, "{reports:?}");
    assert!(reports.windows(2).all(|pair| pair[0].done < pair[1].done && pair[0].total == pair[1].total));
    assert_eq!(reports.last().map(|last| last.done), reports.last().map(|last| last.total));
    let copy = Sqlite::open(&to, counting()).unwrap();
    assert_eq!(all(&copy, id), all(&store, id)[..3000]);
    assert!(copy.doctor().unwrap().is_healthy());
    let error = store.backup(&to, &mut |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} exists already; it is not overwritten, give another path", to.display())
    );
    let nowhere = place.directory.path().join("no/such/place");
    assert!(matches!(store.backup(&nowhere, &mut |_| {}), Err(StoreError::Io { .. })));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn erased_bytes_wait_for_a_reader_of_old_pages() {
    let place = Place::new();
    let options = Options { busy_timeout: std::time::Duration::from_millis(50), ..Options::default() };
    let store = Sqlite::open(&place.path(), options).unwrap();
    let id = root(&store, "gone");
    append(&store, id, vec![user(CANARY)]);
    let reader = place.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    let erased = store.erase(session("gone"), Time(0)).unwrap();
    assert_eq!(erased.scrubbed, Scrubbed::Waiting);
    drop(reader);
    assert_eq!(store.scrub().unwrap(), Scrubbed::Gone);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
}
