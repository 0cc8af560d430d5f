//! Jobs: one worker at a time has one, whoever dies; what ended is never lost and is adopted at most once.

use epitome_core::{
    Seq,
    event::{CompactionTrigger, Timestamp},
};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{
        append, attempt, commit, events, in_session, job, queue, ready, root, state, summary, try_commit,
    },
};
use crate::{
    StoreError, ThreadStart,
    records::{
        AttemptFilter, CommitRecord, CompactionSummary, JobId, JobState, NewJob, RetryDecision,
        SummarySource, ThreadCommit,
    },
};

checks! {
    a_job_goes_from_queued_to_adopted,
    what_was_given_up_or_cancelled_is_nobodys,
    a_worker_whose_time_ran_out_is_not_heard_once_another_has_its_job,
    a_fork_has_no_part_in_its_parents_jobs,
    a_summary_that_no_job_wrote_is_kept_with_its_compaction,
}

fn a_job_goes_from_queued_to_adopted(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uaua"));
    let new = NewJob {
        first: Seq(2),
        first_kept: Some(Seq(3)),
        base: Some(Seq(1)),
        trigger: CompactionTrigger::Manual,
        focus: Some("tests".into()),
        detail: "[1]".into(),
        created: Timestamp(-4),
        ..job(&*store, id, "key", Seq(2))
    };
    // The marker is written with the job.
    store
        .commit(ThreadCommit::new(
            id,
            Seq(4),
            events(Seq(5), "q"),
            vec![CommitRecord::Job(NewJob { marker: Seq(5), ..new.clone() })],
        ))
        .unwrap();
    let new = NewJob { marker: Seq(5), ..new };
    let queued = store.running_job(id).unwrap().unwrap();
    assert_eq!((&queued.job, &queued.state, queued.attempts), (&new, &JobState::Queued, 0));
    assert_eq!(store.jobs(Some(id)).unwrap(), [queued]);

    let claimed = store.claim_job("ann", Timestamp(10), Timestamp(20), None).unwrap().unwrap();
    let running = |until| JobState::Running { worker: "ann".into(), until: Timestamp(until) };
    assert_eq!((&claimed.job, &claimed.state, claimed.attempts), (&new, &running(20), 1));
    assert_eq!(store.claim_job("bob", Timestamp(19), Timestamp(30), None).unwrap(), None);
    assert!(store.heartbeat(new.id, "ann", Timestamp(19), Timestamp(29)).unwrap());
    assert!(!store.heartbeat(new.id, "bob", Timestamp(19), Timestamp(99)).unwrap());
    assert_eq!(state(&*store, new.id), running(29));
    assert_eq!(store.running_job(id).unwrap().map(|job| job.attempts), Some(1));

    assert!(
        store.fail_job(new.id, "ann", attempt(Some("429")), RetryDecision::RetryAt(Timestamp(50))).unwrap()
    );
    let failed = store.job(new.id).unwrap();
    assert_eq!((&failed.state, failed.not_before), (&JobState::Queued, Some(Timestamp(50))));
    assert_eq!(failed.error.as_deref(), Some("429"));
    assert_eq!(store.claim_job("bob", Timestamp(49), Timestamp(60), Some(id)).unwrap(), None);
    assert_eq!(
        store.claim_job("bob", Timestamp(50), Timestamp(60), Some(id)).unwrap().map(|job| job.attempts),
        Some(2)
    );
    assert!(!store.finish_job(new.id, "ann", summary("ann"), attempt(None)).unwrap());
    assert_eq!(store.ready_job(id).unwrap(), None);

    assert!(store.finish_job(new.id, "bob", summary("bob"), attempt(None)).unwrap());
    let (row, made) = store.ready_job(id).unwrap().unwrap();
    assert_eq!((&row.state, row.summary, row.error), (&JobState::Ready, Some(made.number), None));
    assert_eq!(
        (made.thread, made.first, made.through, made.source),
        (id, Seq(2), Seq(2), SummarySource::Job(new.id))
    );
    assert_eq!(made.summary, summary("bob"));
    assert_eq!(store.summaries(id).unwrap(), [made]);
    assert_eq!(store.running_job(id).unwrap(), None);

    let adopted = CommitRecord::Adopted { job: new.id, compaction: Seq(6) };
    let compaction = ThreadCommit::new(id, Seq(5), events(Seq(6), "c"), vec![adopted.clone()]);
    store.commit(compaction).unwrap();
    assert_eq!(state(&*store, new.id), JobState::Adopted { compaction: Seq(6) });
    assert_eq!(store.ready_job(id).unwrap(), None);
    let again = ThreadCommit::new(id, Seq(6), vec![], vec![adopted]);
    assert!(matches!(store.commit(again), Err(StoreError::JobNotReady(job)) if job == new.id));

    let attempts = store.attempts(AttemptFilter::Job(new.id), None, 9).unwrap();
    let seen: Vec<_> = attempts.iter().map(|row| (row.worker.as_str(), row.attempt.clone())).collect();
    assert_eq!(seen, [("bob", attempt(None)), ("ann", attempt(Some("429")))]);
    assert_eq!(store.attempts(AttemptFilter::All, Some("model"), 1).unwrap(), attempts[..1]);
    assert_eq!(store.attempts(AttemptFilter::All, Some("another"), 9).unwrap(), []);
    assert_eq!(store.attempts(AttemptFilter::Thread(id), Some("model"), 9).unwrap(), attempts);
    let other = root(&*store, "other");
    assert_eq!(store.attempts(AttemptFilter::Thread(other), None, 9).unwrap(), []);
    assert!(store.doctor().unwrap().is_healthy());
}

fn what_was_given_up_or_cancelled_is_nobodys(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uac"));
    let [failed, waiting, running, done] = ["failed", "waiting", "running", "done"].map(|key| {
        let job = queue(&*store, id, key, Seq(2));
        if key != "waiting" {
            store.claim_job(key, Timestamp(0), Timestamp(9), None).unwrap();
        }
        job
    });
    // The oldest was queued first, so `running` and `done` had `waiting` and `running` before them.
    assert_eq!(state(&*store, waiting), JobState::Running { worker: "running".into(), until: Timestamp(9) });
    assert_eq!(state(&*store, running), JobState::Running { worker: "done".into(), until: Timestamp(9) });
    assert!(store.fail_job(failed, "failed", attempt(Some("no")), RetryDecision::GiveUp).unwrap());
    assert!(store.finish_job(waiting, "running", summary("a"), attempt(None)).unwrap());
    for job in [failed, waiting, running, done] {
        commit(&*store, id, vec![CommitRecord::CancelJob { job, reason: "overtaken".into() }]);
    }
    // What had failed stays failed; all else is cancelled, also what was ready or had a worker.
    let states = [failed, waiting, running, done].map(|job| {
        let row = store.job(job).unwrap();
        (row.state, row.error.unwrap())
    });
    let cancelled = || (JobState::Cancelled, "overtaken".to_owned());
    assert_eq!(states, [(JobState::Failed, "no".to_owned()), cancelled(), cancelled(), cancelled()]);
    assert!(!store.heartbeat(running, "done", Timestamp(1), Timestamp(99)).unwrap());
    assert!(!store.finish_job(running, "done", summary("a"), attempt(None)).unwrap());
    assert!(
        !store.fail_job(running, "done", attempt(Some("x")), RetryDecision::RetryAt(Timestamp(0))).unwrap()
    );
    assert!(!store.finish_job(JobId::derived(&["?"]), "done", summary("a"), attempt(None)).unwrap());
    assert_eq!((store.running_job(id).unwrap(), store.ready_job(id).unwrap()), (None, None));
    assert_eq!(store.claim_job("late", Timestamp(99), Timestamp(100), None).unwrap(), None);
    assert_eq!(
        store.attempts(AttemptFilter::All, None, 9).unwrap().len(),
        2,
        "what was refused left no attempt"
    );
    assert!(matches!(store.job(JobId::derived(&["?"])), Err(StoreError::UnknownJob(_))));
}

fn a_worker_whose_time_ran_out_is_not_heard_once_another_has_its_job(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    let job = queue(&*store, id, "key", Seq(2));
    store.claim_job("ann", Timestamp(0), Timestamp(10), None).unwrap().unwrap();
    assert!(!store.heartbeat(job, "ann", Timestamp(10), Timestamp(20)).unwrap());
    assert_eq!(
        store.claim_job("bob", Timestamp(10), Timestamp(20), None).unwrap().map(|job| job.attempts),
        Some(2)
    );
    assert!(!store.finish_job(job, "ann", summary("ann"), attempt(None)).unwrap());
    assert!(!store.fail_job(job, "ann", attempt(Some("late")), RetryDecision::GiveUp).unwrap());
    // Nobody took it from this one, so it may be late.
    assert!(store.finish_job(job, "bob", summary("bob"), attempt(None)).unwrap());
    let authors: Vec<_> = store.summaries(id).unwrap().into_iter().map(|row| row.summary.author).collect();
    assert_eq!(authors, ["bob"]);
}

fn a_fork_has_no_part_in_its_parents_jobs(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uac"));
    let job = ready(&*store, id, "key", Seq(2));
    queue(&*store, id, "next", Seq(3));
    let fork = in_session(&*store, "t", "fork", ThreadStart::Fork { of: id, at: Seq(3) });
    assert_eq!((store.ready_job(fork).unwrap(), store.running_job(fork).unwrap()), (None, None));
    assert_eq!((store.jobs(Some(fork)).unwrap(), store.summaries(fork).unwrap()), (vec![], vec![]));
    assert_eq!(store.claim_job("w", Timestamp(0), Timestamp(1), Some(fork)).unwrap(), None);
    append(&*store, fork, events(Seq(4), "c"));
    let records = vec![CommitRecord::Adopted { job, compaction: Seq(4) }];
    let error = store.commit(ThreadCommit::new(fork, Seq(4), vec![], records)).unwrap_err();
    assert!(matches!(error, StoreError::Misplaced { .. }), "{error}");
    // The same span may be summarised for each.
    let own = queue(&*store, fork, "key", Seq(2));
    assert_eq!(store.running_job(fork).unwrap().map(|row| row.job.id), Some(own));
    assert_ne!(own, job);
    // Only a compaction of the thread can be what was adopted.
    let records = vec![CommitRecord::Adopted { job, compaction: Seq(2) }];
    let error = store.commit(ThreadCommit::new(id, Seq(3), vec![], records)).unwrap_err();
    assert!(error.to_string().contains("event 2 is no compaction of it"), "{error}");
}

fn a_summary_that_no_job_wrote_is_kept_with_its_compaction(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uaua"));
    let made = |compaction, first, through| {
        let summary = summary("built-in");
        CommitRecord::Summary(CompactionSummary { compaction, first, through, summary })
    };
    let compacted = vec![made(Seq(5), Seq(1), Seq(3))];
    store.commit(ThreadCommit::new(id, Seq(4), events(Seq(5), "c"), compacted)).unwrap();
    let rows = store.summaries(id).unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.thread, row.first, row.through), (id, Seq(1), Seq(3)));
    assert_eq!((row.source, &row.summary), (SummarySource::Compaction(Seq(5)), &summary("built-in")));
    assert_eq!(store.jobs(Some(id)).unwrap(), []);
    for (wrong, why) in [
        (made(Seq(5), Seq(1), Seq(3)), "has one already"),
        (made(Seq(4), Seq(1), Seq(3)), "is no compaction"),
        (made(Seq(6), Seq(1), Seq(3)), "is no compaction"),
    ] {
        let refused = try_commit(&*store, id, vec![wrong]).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    append(&*store, id, events(Seq(6), "c"));
    for (wrong, why) in [
        (made(Seq(6), Seq(1), Seq(7)), "its last event is event 7"),
        (made(Seq(6), Seq(4), Seq(3)), "its first event is event 4"),
    ] {
        let refused = try_commit(&*store, id, vec![wrong]).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // One of a job stands beside it.
    ready(&*store, id, "key", Seq(2));
    assert_eq!(store.summaries(id).unwrap().len(), 2);
    assert!(store.doctor().unwrap().is_healthy());
}
