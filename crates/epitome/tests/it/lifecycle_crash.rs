//! A process that is killed while a summary is made, at whatever step: whoever opens the session next ends what was begun,
//! and no model ever sees that anything happened.
//!
//! The test runs itself again as an agent that stops at a step, and kills it there. No step needs a hook in the library:
//! a summariser, the callbacks and the clock are where a session lets others in, and each may as well never come back.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use epitome::{
    core::{Digest, Event, Seq, SessionId, Tokens},
    session::{LifecycleEvent, Session, SessionBuilder, SummaryWorkers, ToolOutput, verify_call},
    store::{
        StoreLocation, StoreOptions, open_store,
        records::{CallRow, JobRow, JobState},
    },
    summarise::{Summarize, SummaryFuture, SummaryRequest},
};
use tempfile::TempDir;

use crate::agent::{self, CONSTRAINT, Hands, TASK, answer, count, good, last_call, log, output, roomy};

/// With room between the target and the limit, so that each summary is ordered and ready before it is needed.
fn builder(hands: &Hands) -> SessionBuilder {
    agent::builder(hands).policy(&roomy())
}

/// Enough for three compactions.
const TURNS: usize = 36;

/// Where a process stops to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Marker and job are written, and nobody has the job.
    Ordered,
    /// A worker has it.
    Claimed,
    /// The summariser was asked.
    Asked,
    /// Its draft is there, and the gate has not seen it.
    Drafted,
    /// The gate has let it through, and nothing of it is stored.
    Passed,
    /// It is ready.
    Stored,
    /// The request that adopts it is being made.
    Requesting,
    /// It is adopted: the request is made, and not yet answered.
    Adopted,
    /// The request is answered.
    Answered,
    /// Its tool has returned.
    Returned,
}

const STEPS: [Step; 10] = [
    Step::Ordered,
    Step::Claimed,
    Step::Asked,
    Step::Drafted,
    Step::Passed,
    Step::Stored,
    Step::Requesting,
    Step::Adopted,
    Step::Answered,
    Step::Returned,
];

#[test]
fn a_kill_at_any_step_of_the_first_summary_leaves_no_trace_in_any_request() {
    killed_at(&STEPS, 1);
}

#[test]
fn a_kill_at_any_step_of_a_summary_that_builds_on_another_leaves_no_trace_either() {
    killed_at(&STEPS, 2);
}

#[test]
fn a_job_whose_workers_are_killed_again_and_again_is_left_to_the_built_in_summariser() {
    let (folder, id) = begun();
    for _ in 0..3 {
        kill(folder.path(), id, Step::Asked, 1);
    }
    run(folder.path(), id);
    let after = Told::of(folder.path(), id);
    let first = &after.jobs[0];
    assert!(matches!(first.state, JobState::Adopted { .. }), "{first:?}");
    assert_eq!(first.attempts, 4);
    let authors = authors(folder.path(), id);
    assert_eq!(authors[..2], ["built-in", "faithful"], "whoever comes next is asked as ever");
}

fn killed_at(steps: &[Step], job: usize) {
    let (template, id) = begun();
    let undisturbed = copy(&template);
    run(undisturbed.path(), id);
    let expected = Told::of(undisturbed.path(), id);
    assert!(adopted(&expected.jobs).count() >= 3, "{:#?}", expected.jobs);
    for &step in steps {
        let folder = copy(&template);
        kill(folder.path(), id, step, job);
        Told::of(folder.path(), id);
        run(folder.path(), id);
        Told::of(folder.path(), id).is_as(&expected, step);
    }
}

/// What a store tells about a run.
struct Told {
    events: Vec<Event>,
    calls: Vec<CallRow>,
    jobs: Vec<JobRow>,
}

impl Told {
    /// Reads it, and looks whether the store is sound and every call comes out as it was sent.
    fn of(folder: &Path, id: SessionId) -> Self {
        let store =
            open_store(&StoreLocation::named(folder.join("log.db")).unwrap(), StoreOptions::default())
                .unwrap();
        let report = store.doctor().unwrap();
        assert!(report.is_healthy(), "{report:#?}");
        let thread = store.session(id).unwrap().head.unwrap();
        let calls = store.calls(thread, 0, usize::MAX).unwrap();
        for call in &calls {
            verify_call(&*store, thread, call.number).unwrap();
        }
        let read = store.read(thread, Seq(1), usize::MAX).unwrap();
        let jobs = store.jobs(Some(thread)).unwrap();
        let compactions: BTreeSet<Seq> = adopted(&jobs).collect();
        assert_eq!(compactions.len(), adopted(&jobs).count(), "no compaction is of two jobs");
        for at in compactions {
            let event = read.iter().find(|logged| logged.id.seq == at).unwrap();
            assert_eq!(event.event.fact.kind(), "compacted");
        }
        Self { events: read.into_iter().map(|logged| logged.event).collect(), calls, jobs }
    }

    fn is_as(&self, expected: &Self, step: Step) {
        for (at, (event, expected)) in self.events.iter().zip(&expected.events).enumerate() {
            assert_eq!(event, expected, "{step:?}: event {}", at + 1);
        }
        assert_eq!(self.events.len(), expected.events.len(), "{step:?}: events");
        // Whoever died before the answer came asks again, with the same bytes.
        let mut sent: Vec<_> = self.calls.iter().map(bytes).collect();
        sent.dedup();
        assert!(self.calls.len() <= expected.calls.len() + 1, "{step:?}: calls");
        assert_eq!(sent, expected.calls.iter().map(bytes).collect::<Vec<_>>(), "{step:?}: requests");
        let ends = |told: &Self| {
            let end = |row: &JobRow| (row.job.key.clone(), row.job.marker, row.state.clone());
            told.jobs.iter().map(end).collect::<Vec<_>>()
        };
        assert_eq!(ends(self), ends(expected), "{step:?}: jobs");
    }
}

/// The compactions that jobs became.
fn adopted(jobs: &[JobRow]) -> impl Iterator<Item = Seq> {
    jobs.iter().filter_map(|row| match row.state {
        JobState::Adopted { compaction } => Some(compaction),
        _ => None,
    })
}

/// What of a call a model can notice.
fn bytes(row: &CallRow) -> (Digest, u64) {
    (row.call.hash, row.call.epoch)
}

fn authors(folder: &Path, id: SessionId) -> Vec<String> {
    let store =
        open_store(&StoreLocation::named(folder.join("log.db")).unwrap(), StoreOptions::default()).unwrap();
    let thread = store.session(id).unwrap().head.unwrap();
    store.summaries(thread).unwrap().into_iter().map(|row| row.summary.author).collect()
}

/// A session that was begun and closed. Every run goes on with a copy of it, so that even ids are the same.
fn begun() -> (TempDir, SessionId) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("log.db");
    let id = runtime().block_on(async {
        let hands = Hands::default();
        let session = builder(&hands).file(&file).begin().await.unwrap();
        session.user(TASK).await.unwrap();
        session.id()
    });
    (folder, id)
}

fn copy(template: &TempDir) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in fs::read_dir(template.path()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    folder
}

/// Lets an agent come to a step of its so manieth summary, and kills it there.
fn kill(folder: &Path, id: SessionId, step: Step, job: usize) {
    let mut child = spawn(folder, id, &format!("{step:?}/{job}"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == STOPPED), "it never came to {step:?} of summary {job}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Lets an agent go on to the end.
fn run(folder: &Path, id: SessionId) {
    let mut child = spawn(folder, id, "nowhere/0");
    let said: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{said:#?}");
}

fn spawn(folder: &Path, id: SessionId, stop: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle_crash::play_until_killed", "--ignored", "--nocapture"])
        .env("EPITOME_TEST_STORE", folder.join("log.db"))
        .env("EPITOME_TEST_SESSION", id.to_string())
        .env("EPITOME_TEST_STOP", stop)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

const STOPPED: &str = "here it stops";

#[test]
#[ignore = "only as another process of the tests above"]
fn play_until_killed() {
    let variable = |name| std::env::var(name).ok();
    let (Some(file), Some(id), Some(stop)) =
        (variable("EPITOME_TEST_STORE"), variable("EPITOME_TEST_SESSION"), variable("EPITOME_TEST_STOP"))
    else {
        return;
    };
    let (name, job) = stop.split_once('/').unwrap();
    let trap = Arc::new(Trap {
        step: STEPS.into_iter().find(|known| format!("{known:?}") == name),
        job: job.parse().unwrap(),
        ..Trap::default()
    });
    runtime().block_on(play(Path::new(&file), id.parse().unwrap(), &trap));
}

/// One thread for all tasks: between two of its own steps the agent is alone.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Where the process stops.
#[derive(Debug, Default)]
struct Trap {
    step: Option<Step>,
    job: usize,
    begun: AtomicUsize,
    /// Whoever looks at the clock now stops.
    at_clock: AtomicBool,
}

impl Trap {
    /// Comes to a step of the so manieth summary.
    fn come_to(&self, step: Step, job: usize) {
        if self.step == Some(step) && self.job == job {
            stop();
        }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// Says so, and waits to be killed.
fn stop() -> ! {
    println!("\n{STOPPED}");
    loop {
        std::thread::park();
    }
}

/// A summariser that may never come back.
#[derive(Debug)]
struct Faithful(Arc<Trap>);

impl Summarize for Faithful {
    fn name(&self) -> &'static str {
        "faithful"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        let trap = &self.0;
        let drafted = Drafted(trap);
        Box::pin(async move {
            let _drafted = drafted;
            trap.come_to(Step::Asked, trap.begun());
            Ok(good())
        })
    }
}

/// Is dropped when the draft has been handed over.
struct Drafted<'t>(&'t Trap);

impl Drop for Drafted<'_> {
    fn drop(&mut self) {
        let trap = self.0;
        trap.come_to(Step::Drafted, trap.begun());
        // The gate does not ask for the time; whoever stores what it let through does.
        if trap.step == Some(Step::Passed) && trap.job == trap.begun() {
            trap.at_clock.store(true, Ordering::SeqCst);
        }
    }
}

/// Plays from wherever the log ends to the end.
async fn play(file: &Path, id: SessionId, trap: &Arc<Trap>) {
    let hands = Hands::default();
    let mut turn = ask_again(file, id, &hands).await;
    let session = open(file, id, &hands, trap).await;
    while turn < TURNS {
        hands.set(turn);
        let adopted = summarised(&session, &hands).await;
        hands.set(turn);
        if trap.step == Some(Step::Requesting) && adopted == Some(trap.job) {
            trap.at_clock.store(true, Ordering::SeqCst);
        }
        session.next_request().await.unwrap();
        ordered(&session, trap);
        end(&session, turn, adopted.map(|job| (trap.as_ref(), job))).await;
        turn += 1;
    }
    summarised(&session, &hands).await;
    hands.set(turn);
    let request = session.next_request().await.unwrap();
    assert!(request.body.contains(CONSTRAINT));
}

/// Ends the turn that whoever died was in, if they were in one: nobody knows whether their request was ever sent. Nobody
/// summarises meanwhile, so that it is the same request. Gives the turn that comes next.
async fn ask_again(file: &Path, id: SessionId, hands: &Hands) -> usize {
    let session =
        builder(hands).file(file).workers(SummaryWorkers::Elsewhere).summariser(Faithful(Arc::default()));
    let session = session.resume(id).await.unwrap();
    let known = log(&**session.store(), &session);
    let (answered, returned) = (count(&known, "assistant_said"), count(&known, "tool_returned"));
    hands.set(returned);
    if returned < answered {
        session.tool_results(&[ToolOutput::of(&last_call(&known), output(returned))]).await.unwrap();
        return answered;
    }
    if session.calls().await.unwrap().last().is_none_or(|call| !call.outcomes.is_empty()) {
        return answered;
    }
    session.next_request().await.unwrap();
    end(&session, answered, None).await;
    answered + 1
}

/// Answers a request, and lets the tool return.
async fn end(session: &Session, turn: usize, adopted: Option<(&Trap, usize)>) {
    let come_to = |step| adopted.iter().for_each(|(trap, job)| trap.come_to(step, *job));
    come_to(Step::Adopted);
    let answered = session.answered(&answer(turn)).await.unwrap();
    come_to(Step::Answered);
    session.tool_results(&[ToolOutput::of(&answered.calls[0], output(turn))]).await.unwrap();
    come_to(Step::Returned);
}

async fn open(file: &Path, id: SessionId, hands: &Hands, trap: &Arc<Trap>) -> Session {
    let (clock, before, after) = (Arc::clone(trap), Arc::clone(trap), Arc::clone(trap));
    let time = hands.clone();
    let opened = builder(hands)
        .file(file)
        .clock(move || {
            if clock.at_clock.load(Ordering::SeqCst) {
                stop();
            }
            time.read()
        })
        .before_compaction(move |happened| {
            // What the built-in summariser does at once is no job.
            let LifecycleEvent::Started { job: Some(_), .. } = happened else { return };
            let begun = before.begun.fetch_add(1, Ordering::SeqCst) + 1;
            before.come_to(Step::Claimed, begun);
        })
        .after_compaction(move |happened| {
            if matches!(happened, LifecycleEvent::Ended { job: Some(_), .. }) {
                after.come_to(Step::Stored, after.begun());
            }
        })
        .summariser(Faithful(Arc::clone(trap)))
        .resume(id)
        .await;
    opened.unwrap()
}

/// Waits until nothing is being summarised, so that every run adopts with the same request. Gives which job is ready.
async fn summarised(session: &Session, hands: &Hands) -> Option<usize> {
    loop {
        let jobs = session.jobs().await.unwrap();
        let is_open = |row: &JobRow| matches!(row.state, JobState::Queued | JobState::Running { .. });
        if !jobs.iter().any(is_open) {
            return jobs.iter().position(|row| row.state == JobState::Ready).map(|at| at + 1);
        }
        // What a dead worker has claimed is free after a while.
        hands.forward(1_000);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stops when a job was just written. Nobody can have claimed it, as nobody else has run since.
fn ordered(session: &Session, trap: &Trap) {
    let jobs = session.store().jobs(Some(session.thread())).unwrap();
    let newest = jobs.last().filter(|row| row.state == JobState::Queued);
    if newest.is_some() {
        trap.come_to(Step::Ordered, jobs.len());
    }
}
