//! Calls: numbered through forks, written with their events or not at all, and the same when they are read.

use epitome_core::Seq;
use epitome_store::{ThreadStart, records::CommitRecord, temporary_store};

use crate::support::{
    Place, append, commit, counting, events, in_session, make_call, policy, ready, root, thread,
};

#[test]
fn a_temporary_store_is_gone_when_it_is_dropped() {
    let store = temporary_store(counting()).unwrap();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    make_call(&*store, id);
    assert!(store.doctor().unwrap().is_healthy());
    let directory = std::path::PathBuf::from(store.location().to_string()).parent().unwrap().to_owned();
    assert!(directory.exists());
    drop(store);
    assert!(!directory.exists());
}

#[test]
fn what_is_wrong_with_a_record_is_named() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uac"));
    make_call(&*store, id);
    make_call(&*store, id);
    in_session(&*store, "t", "fork", ThreadStart::Fork { of: id, at: Seq(3) });
    ready(&*store, id, "one", Seq(3));
    ready(&*store, id, "two", Seq(3));
    let adopted = store.jobs(None).unwrap()[0].job.id;
    commit(&*store, id, vec![CommitRecord::Adopted { job: adopted, compaction: Seq(3) }]);
    assert!(store.doctor().unwrap().is_healthy());
    let ids = [adopted, store.jobs(None).unwrap()[1].job.id];
    let raw = place.raw();
    let triggers: Vec<String> = raw
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for trigger in triggers {
        raw.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    raw.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
         UPDATE contents SET text = 'other';
         UPDATE model_calls SET number = 2, head = 7, hash = x'00', steps = '[' WHERE number = 1;
         UPDATE jobs SET compaction = 1 WHERE state = 'adopted';
         UPDATE jobs SET through = 8, detail = '' WHERE state = 'ready';
         UPDATE summaries SET brief = '{' WHERE number = 1;",
    )
    .unwrap();
    let report = store.doctor().unwrap();
    let problems: Vec<String> = report
        .checks
        .iter()
        .filter(|check| ["contents", "calls", "jobs", "summaries"].contains(&check.name.as_str()))
        .flat_map(|check| check.problems.clone())
        .collect();
    let names = [
        (thread("t").to_string(), "MAIN"),
        (thread("fork").to_string(), "FORK"),
        (ids[0].to_string(), "ADOPTED"),
        (ids[1].to_string(), "READY"),
        (policy().hash.to_string(), "POLICY"),
    ];
    let text = names.iter().fold(problems.join("\n"), |text, (id, name)| text.replace(id, name));
    insta::assert_snapshot!(text, @"
    the content POLICY was changed: its text has another hash
    call 2 of thread MAIN stands where call 1 should
    call 2 of thread MAIN saw event 7, which is not one of 3 to 3
    call 2 of thread MAIN has no hash
    call 2 of thread MAIN has a list of steps that is not JSON
    thread FORK shares call 1 of MAIN, which is missing
    the job ADOPTED was adopted as event 1, which is no compaction
    the job READY covers event 8 of the thread MAIN, which is missing
    the job READY has a detail that is not JSON
    summary 1 has a brief that is not JSON
    summary 2 does not cover what its job does
    ");
}
