//! Jobs: one worker at a time has one, whoever dies; what ended is never lost and is adopted at most once.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use epitome_core::{Seq, ThreadId, event::Timestamp};
use epitome_store::{
    Store, StoreError,
    records::{AttemptFilter, CommitRecord, JobId, JobState, RetryDecision, ThreadCommit},
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::{
    Place, append, attempt, commit, counting, events, open_at, queue, ready, root, summary,
};

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

/// What workers, the session and time do. Workers are 0 and 1.
#[derive(Clone, Debug)]
enum Step {
    Queue,
    Wait(i64),
    Claim(usize),
    Beat(usize),
    Finish(usize),
    Fail(usize, Option<i64>),
    /// The worker dies with all it held, and comes back under another name.
    Crash(usize),
    Adopt,
    Cancel(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = || 0..2_usize;
    let step = prop_oneof![
        3 => Just(Step::Queue),
        3 => (1..15_i64).prop_map(Step::Wait),
        5 => worker().prop_map(Step::Claim),
        2 => worker().prop_map(Step::Beat),
        3 => worker().prop_map(Step::Finish),
        2 => (worker(), prop::option::of(0..20_i64)).prop_map(|(worker, retry)| Step::Fail(worker, retry)),
        1 => worker().prop_map(Step::Crash),
        2 => Just(Step::Adopt),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..60)
}

const LEASE: i64 = 10;

/// A store with workers, and what must be true of its jobs.
struct Yard {
    /// Two handles, as two processes would have.
    stores: [Arc<dyn Store>; 2],
    thread: ThreadId,
    now: i64,
    jobs: BTreeMap<JobId, JobState>,
    not_before: BTreeMap<JobId, i64>,
    /// Each worker's name, and the jobs it believes to hold.
    workers: [(String, BTreeSet<JobId>); 2],
    summaries: usize,
    attempts: usize,
}

impl Yard {
    fn new(place: &Place) -> Self {
        let stores = [place.open(), place.open()];
        let thread = root(&*stores[0], "t");
        append(&*stores[0], thread, events(Seq(1), "uac"));
        let workers = ["0", "1"].map(|name| (name.to_owned(), BTreeSet::new()));
        Self {
            stores,
            thread,
            now: 0,
            jobs: BTreeMap::new(),
            not_before: BTreeMap::new(),
            workers,
            summaries: 0,
            attempts: 0,
        }
    }

    fn mine(&self, worker: usize, job: JobId) -> bool {
        matches!(&self.jobs[&job], JobState::Running { worker: holder, .. } if *holder == self.workers[worker].0)
    }

    fn claimable(&self, job: JobId) -> bool {
        match &self.jobs[&job] {
            JobState::Queued => self.not_before.get(&job).is_none_or(|time| *time <= self.now),
            JobState::Running { until, .. } => until.0 <= self.now,
            _ => false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Queue => {
                let key = self.jobs.len().to_string();
                let id = queue(&*self.stores[0], self.thread, &key, Seq(2));
                self.jobs.insert(id, JobState::Queued);
            }
            Step::Wait(time) => self.now += time,
            Step::Claim(worker) => self.claim(*worker),
            Step::Beat(worker) => self.beat(*worker),
            Step::Finish(worker) | Step::Fail(worker, _) => self.end(*worker, step),
            Step::Crash(worker) => {
                self.workers[*worker] = (format!("{worker} after {}", self.now), BTreeSet::new());
            }
            Step::Adopt => self.adopt(),
            Step::Cancel(which) => {
                let ids: Vec<JobId> = self.jobs.keys().copied().collect();
                let Some(job) = (!ids.is_empty()).then(|| ids[which.index(ids.len())]) else { return };
                commit(
                    &*self.stores[0],
                    self.thread,
                    vec![CommitRecord::CancelJob { job, reason: "x".into() }],
                );
                let state = self.jobs.get_mut(&job).unwrap();
                if matches!(state, JobState::Queued | JobState::Running { .. } | JobState::Ready) {
                    *state = JobState::Cancelled;
                }
            }
        }
    }

    fn claim(&mut self, worker: usize) {
        let name = self.workers[worker].0.clone();
        let until = Timestamp(self.now + LEASE);
        let row = self.stores[worker].claim_job(&name, Timestamp(self.now), until, None).unwrap();
        match row {
            Some(row) => {
                assert!(self.claimable(row.job.id), "{:?} was claimed", self.jobs[&row.job.id]);
                self.jobs.insert(row.job.id, JobState::Running { worker: name, until });
                self.not_before.remove(&row.job.id);
                self.workers[worker].1.insert(row.job.id);
            }
            None => assert!(!self.jobs.keys().any(|job| self.claimable(*job)), "a job was passed over"),
        }
    }

    fn beat(&mut self, worker: usize) {
        let (name, held) = self.workers[worker].clone();
        let until = Timestamp(self.now + LEASE);
        for job in held {
            let alive = self.stores[worker].heartbeat(job, &name, Timestamp(self.now), until).unwrap();
            assert_eq!(alive, self.mine(worker, job) && !self.claimable(job));
            if alive {
                self.jobs.insert(job, JobState::Running { worker: name.clone(), until });
            }
        }
    }

    /// Ends everything the worker believes to hold.
    fn end(&mut self, worker: usize, step: &Step) {
        let (name, held) = (self.workers[worker].0.clone(), std::mem::take(&mut self.workers[worker].1));
        for job in held {
            let store = &self.stores[worker];
            let (heard, state) = match step {
                Step::Fail(_, Some(retry)) => {
                    let at = Timestamp(self.now + retry);
                    (
                        store.fail_job(job, &name, attempt(Some("no")), RetryDecision::RetryAt(at)),
                        JobState::Queued,
                    )
                }
                Step::Fail(_, None) => {
                    (store.fail_job(job, &name, attempt(Some("no")), RetryDecision::GiveUp), JobState::Failed)
                }
                _ => (store.finish_job(job, &name, summary(&name), attempt(None)), JobState::Ready),
            };
            let heard = heard.unwrap();
            assert_eq!(heard, self.mine(worker, job));
            if heard {
                self.attempts += 1;
                self.summaries += usize::from(state == JobState::Ready);
                if let Step::Fail(_, Some(retry)) = step {
                    self.not_before.insert(job, self.now + retry);
                }
                self.jobs.insert(job, state);
            }
        }
    }

    /// Two sessions try to adopt the same job; one does.
    fn adopt(&mut self) {
        let Some((row, _)) = self.stores[0].ready_job(self.thread).unwrap() else {
            assert!(!self.jobs.values().any(|state| *state == JobState::Ready));
            return;
        };
        assert_eq!(self.jobs[&row.job.id], JobState::Ready);
        let head = self.stores[0].head(self.thread).unwrap().seq;
        let compaction = head.next();
        let adopted = [0, 1].map(|who| {
            let records = vec![CommitRecord::Adopted { job: row.job.id, compaction }];
            let events = events(compaction, "c");
            self.stores[who].commit(ThreadCommit::new(self.thread, head, events, records)).is_ok()
        });
        assert_eq!(adopted, [true, false]);
        // Whoever reads on and tries again finds that there is nothing left to adopt.
        let late = CommitRecord::Adopted { job: row.job.id, compaction };
        let again = ThreadCommit::new(self.thread, compaction, vec![], vec![late]);
        assert!(matches!(self.stores[1].commit(again), Err(StoreError::JobNotReady(_))));
        self.jobs.insert(row.job.id, JobState::Adopted { compaction });
    }

    fn check(&self) {
        let rows = self.stores[1].jobs(None).unwrap();
        assert_eq!(rows.len(), self.jobs.len(), "no job is lost");
        for row in &rows {
            assert_eq!(row.state, self.jobs[&row.job.id]);
            assert_eq!(
                row.not_before.map(|time| time.0),
                match row.state {
                    JobState::Queued => self.not_before.get(&row.job.id).copied(),
                    _ => None,
                }
            );
        }
        assert_eq!(self.stores[1].summaries(self.thread).unwrap().len(), self.summaries);
        assert_eq!(
            self.stores[1].attempts(AttemptFilter::All, None, usize::MAX).unwrap().len(),
            self.attempts
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_job_is_held_by_one_worker_adopted_at_most_once_and_never_lost(steps in steps()) {
        let place = Place::new();
        let mut yard = Yard::new(&place);
        for step in &steps {
            yard.step(step);
            yard.check();
        }
        // Whatever happened, a worker that stays alive brings every open job to its end.
        yard.now += 1000;
        while yard.jobs.keys().any(|job| yard.claimable(*job)) {
            yard.step(&Step::Claim(0));
            yard.step(&Step::Finish(0));
        }
        yard.check();
        let open = |state: &JobState| matches!(state, JobState::Queued | JobState::Running { .. });
        prop_assert!(!yard.jobs.values().any(open));
        let report = yard.stores[0].doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    }
}

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
