//! Jobs: one worker at a time has one, whoever dies; what ended is never lost and is adopted at most once.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use epitome_core::{Seq, event::Timestamp};
use epitome_store::records::{AttemptFilter, JobState};
use tempfile::TempDir;

use crate::support::{Place, append, attempt, counting, events, open_at, queue, ready, root, summary};

#[test]
fn the_database_refuses_to_change_what_a_job_does_or_to_turn_it_back() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uac"));
    ready(&*store, id, "key", Seq(2));
    queue(&*store, id, "queued", Seq(2));
    let raw = place.raw();
    for column in
        ["id", "thread", "key", "marker", "first", "through", "first_kept", "base", "link", "detail"]
    {
        let error =
            raw.execute_batch(&format!("UPDATE jobs SET {column} = {column}")).unwrap_err().to_string();
        assert!(error.contains("never changed"), "{column}: {error}");
    }
    for (from, to) in [
        ("ready", "queued"),
        ("ready", "running"),
        ("ready", "failed"),
        ("queued", "ready"),
        ("queued", "adopted"),
        ("queued", "failed"),
    ] {
        let sql = format!("UPDATE jobs SET state = '{to}' WHERE state = '{from}'");
        let error = raw.execute_batch(&sql).unwrap_err().to_string();
        assert!(error.contains("never goes"), "{from} to {to}: {error}");
    }
    assert!(raw.execute_batch("DELETE FROM jobs").unwrap_err().to_string().contains("never deleted"));
}

/// Time for which a worker has a job.
const LEASE: i64 = 10;

/// This test again, as a worker of its own.
fn worker(path: &Path, name: &str, what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "jobs::work_as_told", "--ignored", "--nocapture"])
        .env("EPITOME_TEST_STORE", path)
        .env("EPITOME_TEST_WORKER", name)
        .env("EPITOME_TEST_WORK", what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "only as another process of a test here"]
fn work_as_told() {
    let variable = |name| std::env::var(name).ok();
    let (Some(path), Some(name), Some(what)) =
        (variable("EPITOME_TEST_STORE"), variable("EPITOME_TEST_WORKER"), variable("EPITOME_TEST_WORK"))
    else {
        return;
    };
    let store = open_at(Path::new(&path), counting()).unwrap();
    let now = Timestamp(what.split(' ').nth(1).map_or(0, |now| now.parse().unwrap()));
    let until = Timestamp(now.0 + LEASE);
    let say = |words: &str| writeln!(std::io::stdout(), "{words}").unwrap();
    say("ready");
    let mut start = String::new();
    std::io::stdin().read_line(&mut start).unwrap();
    while let Some(row) = store.claim_job(&name, now, until, None).unwrap() {
        say(&format!("claimed {}", row.job.key));
        match what.split(' ').next() {
            Some("hold") => std::thread::sleep(std::time::Duration::from_mins(1)),
            _ => assert!(store.finish_job(row.job.id, &name, summary(&name), attempt(None)).unwrap()),
        }
        say(&format!("finished {}", row.job.key));
    }
}

/// Waits for a line of a worker.
fn line(output: &mut impl BufRead, start: &str) -> String {
    let found = output.lines().map_while(Result::ok).find(|line| line.contains(start));
    found.expect("it says so")
}

#[test]
fn of_several_processes_one_gets_each_job() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    for number in 0..60 {
        queue(&*store, id, &number.to_string(), Seq(2));
    }
    let mut children: Vec<_> = ["a", "b", "c"]
        .map(|name| worker(&place.path(), name, "finish"))
        .into_iter()
        .map(|mut child| {
            let mut output = BufReader::new(child.stdout.take().unwrap());
            line(&mut output, "ready");
            (child, output)
        })
        .collect();
    for (child, _) in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut finished = Vec::new();
    for (mut child, mut output) in children {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        finished.extend(text.lines().filter_map(|line| line.strip_prefix("finished ")?.parse::<u64>().ok()));
    }
    finished.sort_unstable();
    assert_eq!(finished, (0..60).collect::<Vec<_>>());
    assert!(store.jobs(None).unwrap().iter().all(|row| row.state == JobState::Ready && row.attempts == 1));
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn a_job_whose_worker_is_killed_is_done_by_another() {
    const ROUNDS: i64 = 12;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("epitome.db");
    let store = open_at(&path, counting()).unwrap();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    for round in 0..ROUNDS {
        let job = queue(&*store, id, &round.to_string(), Seq(2));
        let now = round * 100;
        let mut dying = worker(&path, "dying", &format!("hold {now}"));
        let mut output = BufReader::new(dying.stdout.take().unwrap());
        dying.stdin.take().unwrap().write_all(b"go\n").unwrap();
        line(&mut output, "claimed");
        dying.kill().unwrap();
        dying.wait().unwrap();
        // It is the dead one's until its time runs out, and then whoever's comes first.
        assert_eq!(
            store.claim_job("heir", Timestamp(now + LEASE - 1), Timestamp(now + 99), None).unwrap(),
            None
        );
        let claimed =
            store.claim_job("heir", Timestamp(now + LEASE), Timestamp(now + 99), None).unwrap().unwrap();
        assert_eq!((claimed.job.id, claimed.attempts), (job, 2));
        assert!(store.finish_job(job, "heir", summary("heir"), attempt(None)).unwrap());
    }
    // Killed while they finish one job after the other: each is ready with its summary, or as it was.
    for number in 0..200 {
        queue(&*store, id, &format!("more {number}"), Seq(2));
    }
    let mut now = ROUNDS * 100;
    while store.running_job(id).unwrap().is_some() {
        now += 100;
        let mut child = worker(&path, &format!("worker {now}"), &format!("finish {now}"));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        // At least one is done before the kill, so that this ends.
        line(&mut output, "finished");
        std::thread::sleep(std::time::Duration::from_millis(u64::try_from(now).unwrap() % 7));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let rows = store.jobs(None).unwrap();
    assert!(rows.iter().all(|row| row.state == JobState::Ready && row.summary.is_some()));
    assert_eq!(store.summaries(id).unwrap().len(), rows.len());
    assert_eq!(store.attempts(AttemptFilter::All, None, usize::MAX).unwrap().len(), rows.len());
    assert!(store.doctor().unwrap().is_healthy());
}
