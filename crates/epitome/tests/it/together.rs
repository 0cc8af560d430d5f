//! One session, opened by several at once, or again and again: nothing is lost, nothing is done twice, and nobody can tell
//! from a request that it was so. And a session that does not get smaller, whatever is done.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use epitome::{
    core::{ContentPart, Event, Fact, Seq, Tokens, event::Timestamp, policy::Policy},
    session::{LifecycleEvent, RefusalKind, Session, SessionError, SummaryWorkers},
    store::{
        StoreLocation, StoreOptions, open_store,
        records::{CommitRecord, JobRow, JobState, ThreadCommit},
    },
    summarise::{Summarize, SummaryFuture, SummaryRequest},
};
use tempfile::TempDir;

use crate::agent::{
    CEILING, CONSTRAINT, Hands, TASK, answer, builder, count, good, log, output, summaries_only, turn_of,
};

/// A summariser that counts how often it is asked, and takes its time.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicUsize>);

impl Summarize for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(good())
        })
    }
}

/// Another process's worth of a session: its own connection to the file, its own view, its own worker.
async fn opened(file: &Path, first: &Session, hands: &Hands, summariser: Counted) -> Session {
    let session = builder(hands).file(file).policy(&summaries_only()).summariser(summariser);
    session.resume(first.id()).await.unwrap()
}

fn adopted(jobs: &[JobRow]) -> Vec<Seq> {
    let compaction = |row: &JobRow| match row.state {
        JobState::Adopted { compaction } => Some(compaction),
        _ => None,
    };
    jobs.iter().filter_map(compaction).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_who_append_and_ask_at_once_lose_nothing_and_adopt_nothing_twice() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("log.db");
    let (hands, summariser) = (Hands::default(), Counted::default());
    let first = builder(&hands).file(&file).policy(&summaries_only()).summariser(summariser.clone());
    let first = first.begin().await.unwrap();
    first.user(TASK).await.unwrap();
    let second = opened(&file, &first, &hands, summariser.clone()).await;
    let play = |session: Session, who: usize| async move {
        let mut calls = Vec::new();
        for turn in (0..40).map(|turn| 2 * turn + who) {
            let request = patiently(|| session.next_request()).await;
            assert!(request.body.contains(CONSTRAINT) && request.tokens <= CEILING);
            calls.push((request.call, request.hash));
            let said = answered(turn);
            patiently(|| session.answered(&said)).await;
            let words = format!("{} said by {who} in turn {turn}", output(turn));
            patiently(|| session.user(&words)).await;
            // However busy the machine is, a summary that was ordered is ready before the window is full.
            while is_any_in_work(&patiently(|| session.jobs()).await) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        calls
    };
    let (ones, others) =
        tokio::join!(tokio::spawn(play(first.clone(), 0)), tokio::spawn(play(second.clone(), 1)),);
    let asked: Vec<(u64, _)> = ones.unwrap().into_iter().chain(others.unwrap()).collect();
    let log = log(&**first.store(), &first);
    for turn in 0..80 {
        let said = format!("said by {} in turn {turn}", turn % 2);
        let times = log.iter().filter(|logged| {
            matches!(logged.event.fact, Fact::UserSaid { .. }) && logged.event.fact.text().ends_with(&said)
        });
        assert_eq!(times.count(), 1, "{said}");
    }
    assert_eq!(count(&log, "assistant_said"), 80);
    // Every call has a number of its own, and is under it what it was when it was made.
    let numbers: BTreeSet<u64> = asked.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..80).collect());
    for (number, hash) in asked {
        let replayed = first.replay(number).await.unwrap();
        assert_eq!(replayed.row.call.hash, hash, "call {number}");
        assert_eq!(replayed.row.outcomes.len(), 1, "call {number}");
    }
    let jobs = first.jobs().await.unwrap();
    let compactions = adopted(&jobs);
    assert!(!compactions.is_empty(), "{jobs:#?}");
    assert_eq!(compactions.iter().collect::<BTreeSet<_>>().len(), compactions.len());
    assert!(summariser.0.load(Ordering::SeqCst) <= jobs.len(), "no job was worked on twice");
    let report = first.store().doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

/// Whether a summary is still to be made.
fn is_any_in_work(jobs: &[JobRow]) -> bool {
    jobs.iter().any(|row| matches!(row.state, JobState::Queued | JobState::Running { .. }))
}

/// What a model says that calls no tools.
fn answered(turn: usize) -> String {
    serde_json::json!({"id": format!("answer-{turn}"), "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": format!("Part {turn} is counted.")}}]})
    .to_string()
}

/// Does what may find that others are faster.
async fn patiently<T, F: Future<Output = Result<T, SessionError>>>(mut work: impl FnMut() -> F) -> T {
    loop {
        match work().await {
            Ok(done) => return done,
            Err(SessionError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_workers_one_writes_the_summary() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("log.db");
    let (hands, summariser) = (Hands::default(), Counted::default());
    let first = builder(&hands).file(&file).policy(&summaries_only()).workers(SummaryWorkers::Elsewhere);
    let first = first.summariser(summariser.clone()).begin().await.unwrap();
    first.user(TASK).await.unwrap();
    let mut turn = 0;
    while first.jobs().await.unwrap().is_empty() {
        turn_of(&first, turn, &output(turn)).await;
        turn += 1;
    }
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(opened(&file, &first, &hands, summariser.clone()).await);
    }
    while first.jobs().await.unwrap()[0].state != JobState::Ready {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let requests = workers.iter().map(|session| {
        let session = session.clone();
        tokio::spawn(async move { session.next_request().await.unwrap() })
    });
    for request in requests.collect::<Vec<_>>() {
        assert!(request.await.unwrap().body.contains("no longer shown here"));
    }
    assert_eq!(summariser.0.load(Ordering::SeqCst), 1);
    assert_eq!(first.store().summaries(first.thread()).unwrap().len(), 1);
    assert_eq!(count(&log(&**first.store(), &first), "compacted"), 1);
    assert_eq!(adopted(&first.jobs().await.unwrap()).len(), 1);
    for call in first.calls().await.unwrap() {
        first.replay(call.number).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_reopened_at_every_step_sends_what_one_that_is_not_sends() {
    for (policy, turns) in [(summaries_only(), 45), (Policy::named("epitome").unwrap().clone(), 45)] {
        let folder = TempDir::new().unwrap();
        let hands = Hands::default();
        let template = folder.path().join("template.db");
        let begun = builder(&hands).file(&template).policy(&policy).summariser(Counted::default());
        let begun = begun.workers(SummaryWorkers::Elsewhere).begin().await.unwrap();
        begun.user(TASK).await.unwrap();
        let id = begun.id();
        drop(begun);
        let mut runs = Vec::new();
        for reopened in [false, true] {
            let file = folder.path().join(format!("{reopened}.db"));
            std::fs::copy(&template, &file).unwrap();
            let open = || async {
                let session = builder(&hands).file(&file).policy(&policy).summariser(Counted::default());
                session.resume(id).await.unwrap()
            };
            let mut session = open().await;
            let mut requests = Vec::new();
            for turn in 0..turns {
                hands.set(turn);
                while session
                    .jobs()
                    .await
                    .unwrap()
                    .iter()
                    .any(|row| matches!(row.state, JobState::Queued | JobState::Running { .. }))
                {
                    // Whoever worked on it may have been closed.
                    hands.forward(1_000);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                hands.set(turn);
                if reopened {
                    session = open().await;
                }
                let request = session.next_request().await.unwrap();
                requests.push((request.body, request.epoch, request.cause));
                if reopened {
                    session = open().await;
                }
                let answered = session.answered(&answer(turn)).await.unwrap();
                if reopened {
                    session = open().await;
                }
                let returned = epitome::session::ToolOutput::of(&answered.calls[0], output(turn));
                session.tool_results(&[returned]).await.unwrap();
            }
            let compactions = count(&log(&**session.store(), &session), "compacted");
            assert!(compactions >= 3, "{compactions}");
            runs.push(requests);
        }
        let reopened = runs.pop().unwrap();
        for (call, (found, expected)) in reopened.iter().zip(&runs[0]).enumerate() {
            assert_eq!(found, expected, "{}, call {call}", policy.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_is_full_again_at_once_is_no_longer_summarised_by_a_model_and_says_so() {
    let hands = Hands::default();
    let summariser = Counted::default();
    let session =
        builder(&hands).policy(&summaries_only()).summariser(summariser.clone()).begin().await.unwrap();
    let mut told = session.events();
    session.user(TASK).await.unwrap();
    for turn in 0..60 {
        hands.set(turn);
        // Every result is half a window.
        let request = turn_of(&session, turn, &format!("line {turn} of the file\n").repeat(330)).await;
        assert!(request.tokens <= CEILING && request.body.contains(CONSTRAINT), "call {turn}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let happened: Vec<LifecycleEvent> = std::iter::from_fn(|| told.try_recv().ok()).collect();
    let thrashing =
        happened.iter().filter(|happened| matches!(happened, LifecycleEvent::Thrashing { .. })).count();
    assert!(thrashing >= 1, "{happened:#?}");
    // No model is asked for what would not last; the built-in summariser says what goes, so that nothing ends in a bare note.
    let asked = summariser.0.load(Ordering::SeqCst);
    assert!(asked <= 20, "{asked} summaries in 60 calls");
    for call in session.calls().await.unwrap() {
        session.replay(call.number).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_read_is_given_up_and_not_tried_for_ever() {
    let hands = Hands::default();
    let summariser = Counted::default();
    let elsewhere = builder(&hands).policy(&summaries_only()).workers(SummaryWorkers::Elsewhere);
    let session = elsewhere.summariser(summariser.clone()).begin().await.unwrap();
    session.user(TASK).await.unwrap();
    let mut turn = 0;
    while session.jobs().await.unwrap().is_empty() {
        turn_of(&session, turn, &output(turn)).await;
        turn += 1;
    }
    // Somebody else's job: of a version that writes what this one does not know.
    let store = Arc::clone(session.store());
    let known = session.jobs().await.unwrap()[0].clone();
    let head = store.head(session.thread()).unwrap().seq;
    let cancel = CommitRecord::CancelJob { job: known.job.id, reason: "for the test".to_owned() };
    let mut newer = known.job.clone();
    newer.id = epitome::core::id::JobId::derived(&["newer"]);
    newer.key = "newer".to_owned();
    newer.detail = r#"{"of":"a later version"}"#.to_owned();
    let records = vec![cancel, CommitRecord::Job(newer)];
    store.commit(ThreadCommit::new(session.thread(), head, Vec::new(), records)).unwrap();
    let worker = builder(&hands).store(store).policy(&summaries_only()).summariser(summariser.clone());
    let worker = worker.resume(session.id()).await.unwrap();
    for _ in 0..400 {
        if worker.jobs().await.unwrap()[1].state == JobState::Failed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let job = &worker.jobs().await.unwrap()[1];
    assert_eq!(job.state, JobState::Failed, "{job:?}");
    assert_eq!(summariser.0.load(Ordering::SeqCst), 0);
    assert!(job.error.as_deref().unwrap_or_default().contains("cannot be read"), "{job:?}");
    // The session goes on, and has another made.
    for turn in turn..turn + 8 {
        let request = turn_of(&worker, turn, &output(turn)).await;
        assert!(request.tokens <= CEILING);
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert!(!adopted(&worker.jobs().await.unwrap()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_model_counted_or_refused_is_nothing_to_this_one() {
    let hands = Hands::default();
    let session = builder(&hands).begin().await.unwrap();
    session.user(TASK).await.unwrap();
    let (_, whole) = session.size().await.unwrap();
    for turn in 0..4 {
        turn_of(&session, turn, &output(turn)).await;
    }
    session.next_request().await.unwrap();
    let refusal = r#"{"error":{"message":"This model's maximum context length is 1000 tokens.","code":"context_length_exceeded"}}"#;
    assert_eq!(session.refused(400, refusal.as_bytes()).await.unwrap(), RefusalKind::TooLong);
    let (_, smaller) = session.size().await.unwrap();
    assert!(smaller <= Tokens(1_000), "{smaller}");
    session
        .switch_model(epitome::wire::Format::OpenaiChat, "another model", Some(Tokens(8_000)))
        .await
        .unwrap();
    let (_, again) = session.size().await.unwrap();
    assert_eq!(again, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_append_is_in_the_next_request() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("log.db");
    let hands = Hands::default();
    let session = builder(&hands).file(&file).begin().await.unwrap();
    session.user(TASK).await.unwrap();
    let other = open_store(&StoreLocation::named(&file).unwrap(), StoreOptions::default()).unwrap();
    let head = other.head(session.thread()).unwrap().seq;
    let parts = vec![ContentPart::text("And count the empty ones too.")];
    let said = Event::from_fact(Fact::UserSaid { parts }, Some(Timestamp(1)));
    other.append(session.thread(), head, vec![said]).unwrap();
    let request = session.next_request().await.unwrap();
    assert!(request.body.contains("And count the empty ones too."));
}
