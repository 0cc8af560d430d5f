//! Bad conditions: each gives an error that says what is wrong and what to do, and loses nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use epitome_core::{EventId, Seq, event::Timestamp};
use epitome_store::{
    Store, StoreError, StoreOptions,
    records::{CommitRecord, JobId, NewCall, ThreadCommit},
};

use crate::support::{
    Place, append, call, commit, counting, events, exchange, open_at, policy, raw, ready, root, session,
    thread, user,
};

/// Opens, and gives the words of the error with the path left out.
fn refusal(path: &Path) -> String {
    let error = open_at(path, StoreOptions::default()).expect_err("it cannot be opened");
    error.to_string().replace(&path.display().to_string(), "PATH")
}

#[test]
fn an_empty_file_is_a_new_store() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn many_may_make_the_same_new_store_at_once() {
    for _ in 0..10 {
        let place = Place::new();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let place = &place;
                scope.spawn(move || {
                    let store = place.open();
                    append(&*store, root(&*store, &writer.to_string()), events(Seq(1), "ua"));
                });
            }
        });
        let store = place.open();
        assert_eq!(store.sessions().unwrap().len(), 8);
        assert!(store.doctor().unwrap().is_healthy());
    }
}

#[cfg(unix)]
#[test]
fn the_files_are_private_from_the_first_byte() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let directory = place.directory.path().join("made/for it");
    let path = directory.join("epitome.db");
    let store = open_at(&path, StoreOptions::default()).unwrap();
    append(&*store, root(&*store, "t"), events(Seq(1), "ua"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let mut files: Vec<String> = Vec::new();
    for file in fs::read_dir(&directory).unwrap() {
        let file = file.unwrap();
        assert_eq!(mode(&file.path()), 0o600, "{:?}", file.path());
        files.push(file.file_name().into_string().unwrap());
    }
    files.sort();
    assert_eq!(files, ["epitome.db", "epitome.db-shm", "epitome.db-wal"]);
}

#[test]
fn something_else_under_the_name_is_refused_and_left_alone() {
    let place = Place::new();
    let text = "Dear diary, this is certainly no database. ".repeat(20);
    fs::write(place.path(), &text).unwrap();
    assert_eq!(refusal(&place.path()), "PATH is not a database: its header is not that of SQLite");
    fs::write(place.path(), "SQLite format 3\0and no more").unwrap();
    assert_eq!(refusal(&place.path()), "PATH is not a database: it was cut off inside its header");
    fs::write(place.path(), &text).unwrap();
    refusal(&place.path());
    assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
    let directory = place.directory.path().join("directory");
    fs::create_dir(&directory).unwrap();
    assert!(open_at(&directory, StoreOptions::default()).is_err());
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let place = Place::new();
    raw(&place.path()).execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
    let before = fs::read(place.path()).unwrap();
    assert_eq!(
        refusal(&place.path()),
        "PATH is a database of another program, not an Epitome store; give another path"
    );
    assert_eq!(fs::read(place.path()).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    let connection = place.raw();
    connection.pragma_update(None, "user_version", 10).unwrap();
    drop(connection);
    let before = fs::read(place.path()).unwrap();
    assert_eq!(
        refusal(&place.path()),
        "PATH has schema version 10, this Epitome knows up to 9; nothing was touched; upgrade Epitome"
    );
    assert_eq!(fs::read(place.path()).unwrap(), before);
}

/// The scripts of the schema's versions, and the rows that each of them added to what was there.
const VERSIONS: [(&str, &str); 8] = [
    (include_str!("../../src/sqlite/migrations/0001_log.sql"), include_str!("old/0001.sql")),
    (include_str!("../../src/sqlite/migrations/0002_compaction.sql"), include_str!("old/0002.sql")),
    (include_str!("../../src/sqlite/migrations/0003_gateway.sql"), include_str!("old/0003.sql")),
    (include_str!("../../src/sqlite/migrations/0004_scripts.sql"), include_str!("old/0004.sql")),
    (include_str!("../../src/sqlite/migrations/0005_indexes.sql"), ""),
    (include_str!("../../src/sqlite/migrations/0006_inserts.sql"), ""),
    (include_str!("../../src/sqlite/migrations/0007_search.sql"), REFUSAL_IN_WORDS),
    (include_str!("../../src/sqlite/migrations/0008_refusals.sql"), ""),
];

/// An outcome as versions before the eighth recorded a refusal.
const REFUSAL_IN_WORDS: &str = "INSERT INTO call_outcomes (call, error)
    SELECT max(id), 'too long for the provider, which takes 4096' FROM model_calls;";

/// Makes a store as an earlier version of the schema was, with what such versions wrote into it.
fn of_version(version: usize, path: &Path) {
    let connection = raw(path);
    connection.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    for (schema, rows) in &VERSIONS[..version] {
        connection.execute_batch(schema).unwrap();
        connection.execute_batch(rows).unwrap();
    }
    connection.pragma_update(None, "application_id", 0x4550_4954).unwrap();
    connection.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
}

#[test]
fn a_store_of_the_first_version_is_brought_up_to_date() {
    let place = Place::new();
    of_version(1, &place.path());
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    assert_eq!(finding(&*store, "schema"), ("version 9".to_owned(), vec![]));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    let row = store.find_session("Why does the upload fail?").unwrap();
    let id = row.head.unwrap();
    assert_eq!((row.events, row.turns, row.tool_calls), (5, 2, 1));
    assert_eq!(store.read(id, Seq(1), 9).unwrap().len(), 5);
    let fork = store.find_session("tried").unwrap().head.unwrap();
    assert_eq!(store.head(fork).unwrap().seq, Seq(4));
    // What the new version adds is empty, and works in the old forks too.
    for id in [id, fork] {
        assert_eq!((store.calls(id, 0, 9).unwrap(), store.last_call(id).unwrap()), (vec![], None));
        assert_eq!((store.jobs(Some(id)).unwrap(), store.ready_job(id).unwrap()), (vec![], None));
        let head = store.head(id).unwrap().seq;
        commit(&*store, id, vec![CommitRecord::Content(policy()), CommitRecord::Call(call(head))]);
        ready(&*store, id, "key", Seq(2));
        assert_eq!(store.last_call(id).unwrap().map(|call| (call.thread, call.number)), Some((id, 0)));
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    // Once is enough.
    drop(store);
    assert_eq!(open_at(&place.path(), StoreOptions::default()).unwrap().jobs(None).unwrap().len(), 2);
}

#[test]
fn a_store_of_the_second_version_is_brought_up_to_date() {
    let place = Place::new();
    of_version(2, &place.path());
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    assert_eq!(finding(&*store, "schema"), ("version 9".to_owned(), vec![]));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    let row = store.find_session("Why does the upload fail?").unwrap();
    let id = row.head.unwrap();
    assert_eq!(store.last_call(id).unwrap().map(|call| (call.number, call.outcomes.len())), Some((0, 1)));
    assert_eq!(
        store.ready_job(id).unwrap().map(|(_, summary)| summary.summary.text),
        Some("in short".into())
    );
    // What was recorded before there were principals is everybody's, and found as such.
    let fork = store.find_session("tried").unwrap().head.unwrap();
    for id in [id, fork] {
        let thread = store.thread(id).unwrap();
        assert_eq!(store.session(thread.session).unwrap().principal, "");
        assert_eq!((thread.key, store.exchanges(thread.session, 0, 9).unwrap()), (None, vec![]));
    }
    let last = store.head(id).unwrap();
    let found = EventId { thread: id, seq: last.seq };
    assert_eq!(store.histories_of_principal("", last.link.normal).unwrap(), [found]);
    assert_eq!(store.histories_of_principal("ann", last.link.normal).unwrap(), []);
    commit(&*store, id, vec![CommitRecord::Exchange(exchange(last.seq)), CommitRecord::Head]);
    assert_eq!(store.exchanges(row.id, 0, 9).unwrap().len(), 1);
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn a_store_of_the_third_version_is_brought_up_to_date() {
    let place = Place::new();
    of_version(3, &place.path());
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    assert_eq!(finding(&*store, "schema"), ("version 9".to_owned(), vec![]));
    let row = store.find_session("Why does the upload fail?").unwrap();
    let id = row.head.unwrap();
    assert_eq!(store.exchanges(row.id, 0, 9).unwrap().len(), 1);
    assert_eq!(store.last_call(id).unwrap().map(|call| call.call.script), Some(None));
    assert_eq!(store.rewrite_records(id).unwrap(), []);
    let head = store.head(id).unwrap().seq;
    let woven = NewCall { script: Some("{}".into()), ..call(head) };
    commit(&*store, id, vec![CommitRecord::Piece(policy()), CommitRecord::Call(woven)]);
    assert_eq!(store.rewrite_records(id).unwrap(), [(1, policy().hash, "{}".to_owned())]);
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn stores_whose_indexes_were_others_are_brought_up_to_date() {
    for version in [4, 5, 6] {
        let place = Place::new();
        of_version(version, &place.path());
        let store = open_at(&place.path(), StoreOptions::default()).unwrap();
        assert_eq!(finding(&*store, "schema"), ("version 9".to_owned(), vec![]));
        let row = store.find_session("Why does the upload fail?").unwrap();
        let id = row.head.unwrap();
        let scripts: Vec<u64> =
            store.rewrite_records(id).unwrap().into_iter().map(|(number, ..)| number).collect();
        assert_eq!(scripts, [1]);
        // What was found by indexes that are gone is found without them.
        for kind in ["user_said", "instructed", "compacted"] {
            let found = store.events_of_kinds(id, &[kind]).unwrap();
            let all = store.read(id, Seq(1), 99).unwrap();
            let expect: Vec<_> = all.into_iter().filter(|event| event.event.fact.kind() == kind).collect();
            assert_eq!(found, expect, "{kind}");
        }
        let report = store.doctor().unwrap();
        assert!(report.is_healthy(), "{report:#?}");
        store.erase(row.id, Timestamp(1)).unwrap();
        let report = store.doctor().unwrap();
        assert!(report.is_healthy(), "{report:#?}");
    }
}

#[test]
fn a_refusal_of_the_seventh_version_is_read_as_it_was_written() {
    let place = Place::new();
    of_version(7, &place.path());
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    assert_eq!(finding(&*store, "schema"), ("version 9".to_owned(), vec![]));
    let id = store.find_session("Why does the upload fail?").unwrap().head.unwrap();
    let outcome = store.last_call(id).unwrap().unwrap().outcomes.pop().unwrap();
    let words = "too long for the provider, which takes 4096";
    assert_eq!((outcome.error.as_deref(), outcome.refusal), (Some(words), None));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn many_may_bring_a_store_up_to_date_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        of_version(1, &place.path());
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| assert_eq!(place.open().sessions().unwrap().len(), 2));
            }
        });
        assert_eq!(finding(&*place.open(), "schema"), ("version 9".to_owned(), vec![]));
    }
}

#[test]
fn a_store_of_an_older_version_in_a_read_only_place_says_what_it_needs() {
    let place = Place::new();
    of_version(1, &place.path());
    let Some(_guard) = read_only(place.directory.path()) else {
        eprintln!("skipped: neither permissions nor a read-only mount keep this user from writing");
        return;
    };
    assert_eq!(
        refusal(&place.path()),
        "bringing the store up to date: PATH cannot be written; \
         check the permissions of the file and of its directory"
    );
}

#[test]
fn a_truncated_file_is_an_error_in_words() {
    let place = filled();
    let length = fs::metadata(place.path()).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(place.path()).unwrap();
    file.set_len(length / 2 / 4096 * 4096).unwrap();
    drop(file);
    let outcome = open_at(&place.path(), StoreOptions::default())
        .and_then(|store| store.read(thread("t"), Seq(1), usize::MAX).map(drop));
    let error = outcome.expect_err("half of it is missing");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
}

#[test]
fn a_damaged_page_is_found_and_named() {
    let place = filled();
    let page = {
        let connection = place.raw();
        // The last leaf of the table of events.
        connection
            .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'events'", [], |row| {
                row.get::<_, u32>(0)
            })
            .unwrap()
    };
    let mut file = fs::OpenOptions::new().read(true).write(true).open(place.path()).unwrap();
    file.seek(SeekFrom::Start(u64::from(page - 1) * 4096)).unwrap();
    file.write_all(&[0xAB; 4096]).unwrap();
    drop(file);
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    let error = store.read(thread("t"), Seq(1), usize::MAX).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("run `epitome doctor`"), "{error}");
    let report = store.doctor().unwrap();
    let check = report.checks.iter().find(|check| check.name == "file").unwrap();
    assert!(!check.problems.is_empty(), "{report:#?}");
    assert!(!report.problems().any(|problem| problem.contains("epitome doctor")), "{report:#?}");
}

#[test]
fn a_damaged_index_does_not_touch_the_log_and_is_rebuilt() {
    let place = filled();
    place.raw().execute_batch("UPDATE turn_rows SET last = last + 1; DELETE FROM totals; UPDATE search_data SET block = x'00' WHERE id > 10;").unwrap();
    let store = place.open();
    let failing = |store: &dyn Store| -> Vec<String> {
        let report = store.doctor().unwrap();
        report.checks.into_iter().filter(|check| !check.problems.is_empty()).map(|check| check.name).collect()
    };
    assert_eq!(failing(&*store), ["file", "turns", "totals", "search index"]);
    store.rebuild().unwrap();
    assert_eq!(failing(&*store), [""; 0]);
}

/// What the doctor says of one thing: how much it covered, and what is wrong.
fn finding(store: &dyn Store, name: &str) -> (String, Vec<String>) {
    let check = store.doctor().unwrap().checks.into_iter().find(|check| check.name == name).unwrap();
    (check.covered, check.problems)
}

#[test]
fn a_changed_schema_is_found_and_what_can_be_is_made_again() {
    let place = filled();
    place
        .raw()
        .execute_batch(
            "DROP TRIGGER events_are_never_deleted; DROP INDEX ledger_by_time; DROP VIEW turns;
             CREATE TABLE mine (x); DROP TABLE labels; CREATE TABLE labels (session, label);",
        )
        .unwrap();
    let store = place.open();
    let (version, problems) = finding(&*store, "schema");
    assert_eq!(version, "version 9");
    insta::assert_snapshot!(problems.join("\n"), @"
    the index `ledger_by_time` is missing; rebuild it
    the trigger `events_are_never_deleted` is missing; rebuild it
    the view `turns` is missing; rebuild it
    the table `labels` is not as this version makes it; restore a backup
    the table `mine` is not of this program; drop it
    ");
    store.rebuild().unwrap();
    assert_eq!(finding(&*store, "schema").1, problems[3..]);
    assert!(place.raw().execute_batch("DELETE FROM events").is_err());
}

#[test]
fn a_wrong_sum_of_tokens_is_one_problem() {
    let place = filled();
    drop(place.open());
    let store = place.open();
    store.count_missing().unwrap();
    place.raw().execute_batch("UPDATE token_totals SET tokens = tokens + 1").unwrap();
    assert_eq!(
        finding(&*store, "totals").1,
        ["1 sums of tokens are not the sum of the counts; rebuild them"]
    );
}

#[test]
fn the_doctor_shows_the_audit_and_misses_its_lines() {
    let place = filled();
    let store = place.open();
    assert_eq!(finding(&*store, "audit"), ("0 erasures".to_owned(), vec![]));
    for time in [0, 1_763_000_000_000] {
        root(&*store, "gone");
        store.erase(session("gone"), Timestamp(time)).unwrap();
    }
    assert_eq!(finding(&*store, "audit"), ("2 erasures, last 2025-11-13T02:13:20Z".to_owned(), vec![]));
    place
        .raw()
        .execute_batch("DROP TRIGGER audit_is_never_deleted; DELETE FROM audit WHERE number = 1")
        .unwrap();
    assert_eq!(finding(&*store, "audit").1, ["1 lines of the audit are missing"]);
}

#[test]
fn no_space_changes_nothing_and_says_so() {
    let place = Place::new();
    let options = StoreOptions { size_limit: Some(200 * 4096), ..StoreOptions::default() };
    let store = open_at(&place.path(), options).unwrap();
    fill_up(&*store, &place.path());
    drop(store);
    // With more room it goes on.
    let store = place.open();
    append(&*store, thread("t"), vec![user("there is room again")]);
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn a_full_disk_changes_nothing_and_says_so() {
    let place = Place::new();
    let Some(_mounted) = Mounted::new(place.directory.path(), &["-t", "tmpfs", "-o", "size=1m", "none"])
    else {
        eprintln!("skipped: mounting a small disk needs root");
        return;
    };
    let store = open_at(&place.path(), StoreOptions::default()).unwrap();
    fill_up(&*store, &place.path());
    assert!(store.doctor().unwrap().is_healthy());
}

/// Appends until there is no space; everything acknowledged, and nothing else, is there.
fn fill_up(store: &dyn Store, path: &Path) {
    let id = root(store, "t");
    let mut acknowledged = 0;
    let error = loop {
        let events =
            (0..3).map(|number| user(&format!("{acknowledged} {number} {}", "x ".repeat(4000)))).collect();
        match store.append(id, Seq(acknowledged), events) {
            Ok(head) => acknowledged = head.seq.0,
            Err(error) => break error,
        }
    };
    assert!(acknowledged > 3);
    assert_eq!(
        error.to_string(),
        format!(
            "appending to the log: no space left for {}; nothing was changed; free some space and try again",
            path.display()
        )
    );
    assert_eq!(store.read(id, Seq(1), usize::MAX).unwrap().len() as u64, acknowledged);
    assert_eq!(store.head(id).unwrap().seq, Seq(acknowledged));
}

#[test]
fn a_store_in_a_read_only_place_can_be_looked_at() {
    let place = filled();
    let before = {
        let store = place.open();
        assert!(!store.is_read_only());
        (store.sessions().unwrap(), store.read(thread("t"), Seq(1), usize::MAX).unwrap())
    };
    // Its name has letters that mean something in an address.
    let odd = place.directory.path().join("what? 100% #1.db");
    fs::copy(place.path(), &odd).unwrap();
    // The last events of this one are in its write-ahead log only, and there is nothing to read that with.
    let unfinished = place.directory.path().join("unfinished.db");
    let store = place.open();
    append(&*store, thread("t"), vec![user("newest")]);
    fs::copy(place.path(), &unfinished).unwrap();
    fs::copy(place.directory.path().join("epitome.db-wal"), place.directory.path().join("unfinished.db-wal"))
        .unwrap();
    drop(store);
    let Some(_guard) = read_only(place.directory.path()) else {
        eprintln!("skipped: neither permissions nor a read-only mount keep this user from writing");
        return;
    };
    let store = open_at(&odd, counting()).unwrap();
    assert!(store.is_read_only());
    assert_eq!((store.sessions().unwrap(), store.read(thread("t"), Seq(1), usize::MAX).unwrap()), before);
    assert!(store.doctor().unwrap().is_healthy());
    let words = ": PATH cannot be written; check the permissions of the file and of its directory";
    let head = store.head(thread("t")).unwrap().seq;
    let nothing = ThreadCommit::new(thread("t"), head, vec![], vec![]);
    for (doing, error) in [
        ("appending to the log", store.append(thread("t"), head, events(head.next(), "u")).unwrap_err()),
        ("erasing a session", store.erase(session("t"), Timestamp(0)).unwrap_err()),
        ("claiming a job", store.claim_job("w", Timestamp(0), Timestamp(1), None).unwrap_err()),
        (
            "keeping a job",
            store.heartbeat(JobId::derived(&["j"]), "w", Timestamp(0), Timestamp(1)).unwrap_err(),
        ),
        ("committing", store.commit(nothing).unwrap_err()),
        ("rebuilding", store.rebuild().map(drop).unwrap_err()),
    ] {
        assert_eq!(error.to_string().replace(&odd.display().to_string(), "PATH"), format!("{doing}{words}"));
    }
    assert_eq!(refusal(&unfinished), format!("opening the store{words}"));
}

#[test]
fn a_read_only_place_says_so() {
    let place = filled();
    fs::write(place.directory.path().join("empty.db"), "").unwrap();
    let Some(_guard) = read_only(place.directory.path()) else {
        eprintln!("skipped: neither permissions nor a read-only mount keep this user from writing");
        return;
    };
    let expect = ": PATH cannot be written; check the permissions of the file and of its directory";
    assert_eq!(refusal(&place.directory.path().join("empty.db")), format!("opening the store{expect}"));
    let new = place.directory.path().join("new.db");
    assert_eq!(refusal(&new), format!("making the store{expect}"));
    let deep = place.directory.path().join("deep/new.db");
    assert_eq!(refusal(&deep), format!("making the directory of{expect}"));
}

#[test]
fn a_store_locked_by_another_process_says_so_and_recovers() {
    let place = Place::new();
    let options = StoreOptions { busy_timeout: Duration::from_millis(150), ..StoreOptions::default() };
    let store = open_at(&place.path(), options.clone()).unwrap();
    let id = root(&*store, "t");
    let mut holder = Holder::lock(&place.path());
    let error = store.append(id, Seq(0), events(Seq(1), "u")).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "appending to the log: {} is locked by another process, waited 0.1 s; wait for it to finish, or stop it",
            place.path().display()
        )
    );
    // Reading goes on meanwhile, and opening too.
    assert_eq!(store.head(id).unwrap().seq, Seq(0));
    open_at(&place.path(), options).unwrap();
    holder.release();
    append(&*store, id, events(Seq(1), "u"));
    assert!(store.doctor().unwrap().is_healthy());
}

/// A store with a few hundred events, closed.
fn filled() -> Place {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(
        &*store,
        id,
        (0..300).map(|number| user(&format!("event {number} {}", "text ".repeat(60)))).collect(),
    );
    append(&*store, id, events(Seq(301), "uaruarkua"));
    drop(store);
    place
}

/// Keeps everybody from writing to a directory: by permissions, or for root by a read-only mount.
fn read_only(directory: &Path) -> Option<Guard> {
    let writable = || {
        fs::write(directory.join("probe"), "").and_then(|()| fs::remove_file(directory.join("probe"))).is_ok()
    };
    let mut permissions = fs::metadata(directory).expect("a directory").permissions();
    let before = permissions.clone();
    permissions.set_readonly(true);
    fs::set_permissions(directory, permissions).expect("its owner may");
    if !writable() {
        return Some(Guard::Permissions(directory.to_owned(), before));
    }
    fs::set_permissions(directory, before).expect("its owner may");
    let text = directory.to_str().expect("a plain name");
    let mounted = Mounted::new(directory, &["--bind", text])?;
    let status = Command::new("mount").args(["-o", "remount,ro,bind", text]).status().ok()?;
    (status.success() && !writable()).then_some(Guard::Mounted(mounted))
}

enum Guard {
    Permissions(PathBuf, fs::Permissions),
    Mounted(#[expect(dead_code, reason = "it is held for its end")] Mounted),
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Self::Permissions(path, before) = self {
            fs::set_permissions(path, before.clone()).expect("its owner may");
        }
    }
}

struct Mounted(PathBuf);

impl Mounted {
    fn new(directory: &Path, what: &[&str]) -> Option<Self> {
        let status = Command::new("mount").args(what).arg(directory).stderr(Stdio::null()).status().ok()?;
        status.success().then(|| Self(directory.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: connections may still be open when a test fails.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Another process that holds the lock.
struct Holder {
    child: Child,
    /// Kept open: whatever else it prints must not be an error to it.
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn lock(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "conditions::hold_the_lock", "--ignored", "--nocapture"])
            .env("EPITOME_TEST_STORE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test runs again");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let locked = output.by_ref().lines().map_while(Result::ok).any(|line| line.contains("locked"));
        assert!(locked);
        Self { child, output }
    }

    fn release(&mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its last words");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "only as another process of a test above"]
fn hold_the_lock() {
    let Some(path) = std::env::var_os("EPITOME_TEST_STORE") else { return };
    let connection = raw(Path::new(&path));
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    writeln!(std::io::stdout(), "locked").unwrap();
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).unwrap();
}
