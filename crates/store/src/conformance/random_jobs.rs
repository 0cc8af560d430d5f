//! Jobs, with workers that come, go and die at random.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use epitome_core::{Seq, ThreadId, event::Timestamp};
use proptest::prelude::*;

use super::{
    ConformanceCheck, DatabaseFactory, TestDatabase, checks,
    samples::{append, attempt, commit, events, queue, root, summary},
};
use crate::{
    Store, StoreError,
    records::{AttemptFilter, CommitRecord, JobId, JobState, RetryDecision, ThreadCommit},
};

checks! {
    a_job_is_held_by_one_worker_adopted_at_most_once_and_never_lost,
}

/// Something that workers, the session or time do. Workers are 0 and 1.
#[derive(Clone, Debug)]
enum JobStep {
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

fn steps() -> impl Strategy<Value = Vec<JobStep>> {
    let worker = || 0..2_usize;
    let step = prop_oneof![
        3 => Just(JobStep::Queue),
        3 => (1..15_i64).prop_map(JobStep::Wait),
        5 => worker().prop_map(JobStep::Claim),
        2 => worker().prop_map(JobStep::Beat),
        3 => worker().prop_map(JobStep::Finish),
        2 => (worker(), prop::option::of(0..20_i64)).prop_map(|(worker, retry)| JobStep::Fail(worker, retry)),
        1 => worker().prop_map(JobStep::Crash),
        2 => Just(JobStep::Adopt),
        1 => any::<prop::sample::Index>().prop_map(JobStep::Cancel),
    ];
    prop::collection::vec(step, 1..60)
}

const LEASE: i64 = 10;

/// A store with workers, and what must be true of its jobs.
struct JobYard {
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

impl JobYard {
    fn new(place: &TestDatabase) -> Self {
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

    fn step(&mut self, step: &JobStep) {
        match step {
            JobStep::Queue => {
                let key = self.jobs.len().to_string();
                let id = queue(&*self.stores[0], self.thread, &key, Seq(2));
                self.jobs.insert(id, JobState::Queued);
            }
            JobStep::Wait(time) => self.now += time,
            JobStep::Claim(worker) => self.claim(*worker),
            JobStep::Beat(worker) => self.beat(*worker),
            JobStep::Finish(worker) | JobStep::Fail(worker, _) => self.end(*worker, step),
            JobStep::Crash(worker) => {
                self.workers[*worker] = (format!("{worker} after {}", self.now), BTreeSet::new());
            }
            JobStep::Adopt => self.adopt(),
            JobStep::Cancel(which) => {
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
    fn end(&mut self, worker: usize, step: &JobStep) {
        let (name, held) = (self.workers[worker].0.clone(), std::mem::take(&mut self.workers[worker].1));
        for job in held {
            let store = &self.stores[worker];
            let (heard, state) = match step {
                JobStep::Fail(_, Some(retry)) => {
                    let at = Timestamp(self.now + retry);
                    (
                        store.fail_job(job, &name, attempt(Some("no")), RetryDecision::RetryAt(at)),
                        JobState::Queued,
                    )
                }
                JobStep::Fail(_, None) => {
                    (store.fail_job(job, &name, attempt(Some("no")), RetryDecision::GiveUp), JobState::Failed)
                }
                _ => (store.finish_job(job, &name, summary(&name), attempt(None)), JobState::Ready),
            };
            let heard = heard.unwrap();
            assert_eq!(heard, self.mine(worker, job));
            if heard {
                self.attempts += 1;
                self.summaries += usize::from(state == JobState::Ready);
                if let JobStep::Fail(_, Some(retry)) = step {
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

fn a_job_is_held_by_one_worker_adopted_at_most_once_and_never_lost(databases: &DatabaseFactory<'_>) {
    proptest!(ProptestConfig::with_cases(64), |(steps in steps())| {
        let place = databases();
        let mut yard = JobYard::new(&place);
        for step in &steps {
            yard.step(step);
            yard.check();
        }
        // Whatever happened, a worker that stays alive brings every open job to its end.
        yard.now += 1000;
        while yard.jobs.keys().any(|job| yard.claimable(*job)) {
            yard.step(&JobStep::Claim(0));
            yard.step(&JobStep::Finish(0));
        }
        yard.check();
        let open = |state: &JobState| matches!(state, JobState::Queued | JobState::Running { .. });
        prop_assert!(!yard.jobs.values().any(open));
        let report = yard.stores[0].doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    });
}
