//! The background compactor: claims jobs, has them summarised, checks the drafts, and leaves them ready.
//!
//! A job is claimed for a time and the claim renewed while the work goes on; a worker that dies loses the claim and
//! another takes over. No session is changed here: a ready summary waits until the next request adopts it.

use std::{
    error::Error,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use epitome_core::{
    Fact, LoggedEvent, Seq, ThreadId, Tokens,
    context::EventNaming,
    draft_gate::{self, DraftSource, offered_sentences},
    event::Timestamp,
    meter::Meter,
    seq_set::SeqSet,
    summary::{self, StructuredSummary, SummaryFocus, compaction::carried_summary},
};
use epitome_store::{
    Store,
    records::{JobAttempt, JobRow, NewSummary, RetryDecision},
};
use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument;

use super::{
    circuit_breaker,
    engine::{BUILT_IN_NAME, SessionEngine, SummariserConfig, WarmRequestMode},
    error::SessionError,
    lifecycle::{AttemptFault, LifecycleEvent, NextStep},
    summary_jobs::JobDetail,
    thread_reading::read_span,
};
use crate::{
    rewrite::RewriteRecord,
    summarise::{
        self, DraftTask, DraftingResult, SeparateRequest, SummarizeError, SummaryInstructions,
        SummaryRequestMode, prompt,
    },
};

/// Time for which a job is claimed, in milliseconds.
const LEASE: i64 = 30_000;

/// Interval at which a claim is renewed: often enough that two renewals may fail.
const HEARTBEAT: Duration = Duration::from_secs(8);

/// Time to wait for work that was not announced: another process's, or a retry.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time to wait for a summariser.
const DEADLINE: Duration = Duration::from_mins(15);

/// Number of claims after which a job without a result is given up.
const CLAIMS: u64 = circuit_breaker::FAILURES_TO_OPEN as u64 + 3;

/// Time a job rests after a failure, in milliseconds, twice as long after each further one.
const BACK_OFF: i64 = 2_000;

/// Works off the jobs of a session until the session is gone.
pub(super) async fn run(engine: Weak<SessionEngine>, wake: Arc<Notify>) {
    let worker = worker();
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let done = work_one(&strong, &worker).await;
        drop(strong);
        match done {
            Ok(WorkOutcome::One) => {}
            Ok(WorkOutcome::Nothing) => {
                // Waiting too long only means that another process's job is found later.
                let _ = tokio::time::timeout(POLL_INTERVAL, wake.notified()).await;
            }
            Err(error) => {
                tracing::warn!(target: "epitome::compaction", %error, "looking for work");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// A name that no other worker has.
pub(crate) fn worker() -> String {
    format!("{}-{}", std::process::id(), uuid::Uuid::now_v7())
}

/// Reports whether there was a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// A job was worked on, with any result.
    One,
    /// There was none.
    Nothing,
}

/// Claims a job of the session's thread, if there is one, and works on it.
pub(crate) async fn work_one(engine: &Arc<SessionEngine>, worker: &str) -> Result<WorkOutcome, SessionError> {
    let thread = engine.thread;
    let claimed = {
        let (engine, worker) = (Arc::clone(engine), worker.to_owned());
        blocking(move || {
            // Looking costs less than writing.
            if engine.store.running_job(thread)?.is_none() {
                return Ok(None);
            }
            let now = engine.now();
            Ok(engine.store.claim_job(&worker, now, Timestamp(now.0 + LEASE), Some(thread))?)
        })
        .await?
    };
    let Some(job) = claimed else { return Ok(WorkOutcome::Nothing) };
    let span =
        tracing::info_span!(target: "epitome::compaction", "compaction", job = %job.job.id, thread = %thread);
    let started = engine.now();
    if let Err(error) = work(engine, worker, job.clone()).instrument(span).await {
        // The job is not left as it is in any case: it would be claimed again for ever.
        let next = if job.attempts >= CLAIMS { NextStep::Nothing } else { NextStep::Retry };
        let (engine, worker) = (Arc::clone(engine), worker.to_owned());
        blocking(move || give_up(&engine, &worker, &job, error.to_string(), started, next)).await?;
    }
    Ok(WorkOutcome::One)
}

/// Material of a job.
struct JobMaterial {
    /// Events that the summary will stand for, and every pin.
    span: Vec<Arc<LoggedEvent>>,
    /// Events that a draft may speak of: the same, or all that a continued request showed.
    shown: Vec<Arc<LoggedEvent>>,
    previous: Option<StructuredSummary>,
    detail: JobDetail,
    focus: Option<SummaryFocus>,
    meter: Arc<Meter>,
    /// The request to continue, if that is cheaper.
    warm: Option<String>,
}

async fn work(engine: &Arc<SessionEngine>, worker: &str, row: JobRow) -> Result<(), SessionError> {
    let started = engine.now();
    let material = {
        let (engine, row) = (Arc::clone(engine), row.clone());
        blocking(move || material(&engine, &row)).await
    };
    let material = match material {
        Ok(material) => Arc::new(material),
        Err(error @ SessionError::Record { .. }) => {
            let (engine, worker) = (Arc::clone(engine), worker.to_owned());
            let (error, next) = (error.to_string(), NextStep::Nothing);
            return blocking(move || give_up(&engine, &worker, &row, error, started, next)).await;
        }
        Err(error) => return Err(error),
    };
    let maker = maker_for(engine, &row, started)?;
    let by =
        maker.as_ref().map_or(BUILT_IN_NAME, |maker| maker.summariser_for(row.job.trigger).name()).to_owned();
    engine.listeners.report(
        engine.session,
        LifecycleEvent::Started {
            thread: row.job.thread,
            job: Some(row.job.id),
            trigger: row.job.trigger,
            by: by.clone(),
            first: row.job.first,
            through: row.job.through,
            tokens_before: material.detail.covered,
        },
    );
    let drafted = match &maker {
        Some(maker) => drafted(engine, worker, &row, maker, &material).await,
        None => Ok(None),
    };
    let (engine, worker) = (Arc::clone(engine), worker.to_owned());
    blocking(move || finish(&engine, &worker, &row, &material, drafted, by, started)).await
}

/// The model to ask; `None` if it should not be asked now, or there is none.
fn maker_for(
    engine: &SessionEngine,
    row: &JobRow,
    now: Timestamp,
) -> Result<Option<SummariserConfig>, SessionError> {
    let Some(maker) = &engine.maker else { return Ok(None) };
    // A job that failed too often is not tried for ever, even if the failures were not its summariser's.
    let worn = row.attempts > circuit_breaker::FAILURES_TO_OPEN as u64;
    Ok((!worn && !rests(engine, row, maker, now)?).then(|| maker.clone()))
}

fn rests(
    engine: &SessionEngine,
    row: &JobRow,
    maker: &SummariserConfig,
    now: Timestamp,
) -> Result<bool, SessionError> {
    let summariser = maker.summariser_for(row.job.trigger);
    Ok(circuit_breaker::is_open(&*engine.store, &**summariser, row.job.thread, now)?)
}

async fn drafted(
    engine: &Arc<SessionEngine>,
    worker: &str,
    row: &JobRow,
    maker: &SummariserConfig,
    material: &Arc<JobMaterial>,
) -> Result<Option<DraftingResult>, DraftFailure> {
    let instructions = maker.instructions_for(row);
    let task = DraftTask {
        span: &material.span,
        previous: material.previous.as_ref(),
        instructions: &instructions,
        limit: material.detail.limit,
        meter: &material.meter,
        warm: material.warm.clone(),
    };
    let summariser = maker.summariser_for(row.job.trigger);
    let draft = caught(summarise::draft(summariser.as_ref(), &task));
    let mut draft = pin!(tokio::time::timeout(DEADLINE, draft));
    loop {
        tokio::select! {
            done = &mut draft => return match done {
                Ok(Ok(Ok(drafted))) => Ok(Some(drafted)),
                Ok(Ok(Err(error))) => Err(DraftFailure::of(&error)),
                Ok(Err(panicked)) => Err(DraftFailure::other(AttemptFault::NoDraft, panicked)),
                Err(_) => {
                    let why = format!("nothing came within {} minutes", DEADLINE.as_secs() / 60);
                    Err(DraftFailure::other(AttemptFault::NoDraft, why))
                }
            },
            () = tokio::time::sleep(HEARTBEAT) => {
                let (engine, worker, job) = (Arc::clone(engine), worker.to_owned(), row.job.id);
                let mine = blocking(move || {
                    let now = engine.now();
                    Ok(engine.store.heartbeat(job, &worker, now, Timestamp(now.0 + LEASE))?)
                })
                .await;
                if let Ok(false) = mine {
                    return Err(DraftFailure::Lost);
                }
            }
        }
    }
}

/// Reason there is no draft.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DraftFailure {
    /// Another worker has the job now, or may have it, and decides its result.
    Lost,
    /// The summariser failed.
    Summariser {
        fault: AttemptFault,
        why: String,
        /// Time for which it asks to be left alone.
        rest: Option<Duration>,
    },
}

impl DraftFailure {
    fn of(error: &SummarizeError) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            why = format!("{why}: {source}");
            cause = source.source();
        }
        Self::Summariser { fault: AttemptFault::NoDraft, why, rest: error.retry_after() }
    }

    fn other(fault: AttemptFault, why: String) -> Self {
        Self::Summariser { fault, why, rest: None }
    }
}

/// Runs another author's code and turns a panic into an error, so that the worker goes on.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err("the summariser panicked: its author has to see to that".to_owned())),
    })
    .await
}

impl SummariserConfig {
    /// Focus of a job's summary.
    fn instructions_for(&self, row: &JobRow) -> SummaryInstructions {
        let focus = row.job.focus.clone().or_else(|| self.instructions.focus.clone());
        SummaryInstructions { focus, ..self.instructions.clone() }
    }
}

/// Checks a draft and leaves it ready, or records the reason it is not.
fn finish(
    engine: &SessionEngine,
    worker: &str,
    row: &JobRow,
    material: &JobMaterial,
    drafted: Result<Option<DraftingResult>, DraftFailure>,
    by: String,
    started: Timestamp,
) -> Result<(), SessionError> {
    let attempt = FinishedAttempt { engine, worker, row, by, started };
    match drafted {
        Ok(Some(drafted)) => {
            let used = json!({ "asks": drafted.asks, "usage": drafted.usage });
            match check(&drafted, material) {
                Ok((brief, report)) => attempt.leave_ready(material, &brief, &report, &used),
                Err(error) => attempt.fail(DraftFailure::other(AttemptFault::Rejected, error), &used),
            }
        }
        Ok(None) => {
            let caps = &material.detail.drafting.caps;
            let focus = material.focus.as_ref();
            let brief = summary::summarise_for(focus, &material.span, material.previous.as_ref(), caps);
            attempt.leave_ready(material, &brief, &json!({}), &json!({}))
        }
        Err(failed) => attempt.fail(failed, &json!({})),
    }
}

/// An attempt at a job that came to an end.
struct FinishedAttempt<'a> {
    engine: &'a SessionEngine,
    worker: &'a str,
    row: &'a JobRow,
    by: String,
    started: Timestamp,
}

impl FinishedAttempt<'_> {
    /// The record of it. `used` is what the model reported.
    fn record(&self, error: Option<String>, used: &serde_json::Value) -> JobAttempt {
        JobAttempt {
            summariser: self.by.clone(),
            started: self.started,
            ended: self.engine.now(),
            error,
            detail: Some(used.to_string()),
        }
    }

    /// Leaves a summary ready to be adopted.
    fn leave_ready(
        self,
        material: &JobMaterial,
        brief: &StructuredSummary,
        report: &serde_json::Value,
        used: &serde_json::Value,
    ) -> Result<(), SessionError> {
        let Self { engine, row, .. } = self;
        let covered = SeqSet::run(row.job.first, row.job.through);
        let names = EventNaming::Thread(row.job.thread);
        let text = brief.render(&covered, material.detail.limit, &material.meter, names);
        let tokens_after = material.meter.text(&text);
        let summary = NewSummary {
            author: self.by.clone(),
            prompt_version: prompt::PROMPT_VERSION.clone(),
            text,
            brief: serde_json::to_string(brief).expect("items hold only strings and numbers"),
            report: report.to_string(),
            created: engine.now(),
        };
        if engine.store.finish_job(row.job.id, self.worker, summary, self.record(None, used))? {
            let event = LifecycleEvent::Ended {
                thread: row.job.thread,
                job: Some(row.job.id),
                by: self.by,
                tokens_before: material.detail.covered,
                tokens_after,
            };
            engine.listeners.report(engine.session, event);
        }
        Ok(())
    }

    /// Records a failure, and when the job is tried again.
    fn fail(self, failed: DraftFailure, used: &serde_json::Value) -> Result<(), SessionError> {
        let Self { engine, row, .. } = self;
        let DraftFailure::Summariser { fault, why, rest } = failed else {
            tracing::info!(target: "epitome::compaction", "the job was taken over");
            return Ok(());
        };
        let now = engine.now();
        let back_off = BACK_OFF << (row.attempts.saturating_sub(1)).min(8);
        let asked_for = rest.and_then(|rest| i64::try_from(rest.as_millis()).ok()).unwrap_or(0);
        let said = self.record(Some(why.clone()), used);
        let retry = RetryDecision::RetryAt(Timestamp(now.0.saturating_add(back_off.max(asked_for))));
        let mine = engine.store.fail_job(row.job.id, self.worker, said, retry)?;
        let open = engine.maker.as_ref().map_or(Ok(false), |maker| rests(engine, row, maker, now))?;
        let is_worn = row.attempts >= circuit_breaker::FAILURES_TO_OPEN as u64;
        let next = if open || is_worn { NextStep::BuiltIn } else { NextStep::Retry };
        if mine {
            let (thread, job) = (row.job.thread, row.job.id);
            let event = LifecycleEvent::Failed { thread, job, by: self.by, fault, error: why, next };
            engine.listeners.report(engine.session, event);
        }
        Ok(())
    }
}

/// Ends a job that can never be done: another version wrote it, or it is damaged.
fn give_up(
    engine: &SessionEngine,
    worker: &str,
    row: &JobRow,
    error: String,
    started: Timestamp,
    next: NextStep,
) -> Result<(), SessionError> {
    let by = engine.maker.as_ref().map_or(BUILT_IN_NAME, |maker| maker.summariser.name()).to_owned();
    let (ended, said) = (engine.now(), Some(error.clone()));
    // The summariser was not asked, and its breaker must not count this.
    let attempt = JobAttempt { summariser: "nobody".to_owned(), started, ended, error: said, detail: None };
    let then = match next {
        NextStep::Retry | NextStep::BuiltIn => {
            RetryDecision::RetryAt(Timestamp(ended.0.saturating_add(BACK_OFF)))
        }
        NextStep::Nothing => RetryDecision::GiveUp,
    };
    if engine.store.fail_job(row.job.id, worker, attempt, then)? {
        let (thread, job) = (row.job.thread, row.job.id);
        let fault = AttemptFault::Unasked;
        engine
            .listeners
            .report(engine.session, LifecycleEvent::Failed { thread, job, by, fault, error, next });
    }
    Ok(())
}

/// Lets a draft through the gate.
fn check(
    drafted: &DraftingResult,
    material: &JobMaterial,
) -> Result<(StructuredSummary, serde_json::Value), String> {
    let source = DraftSource {
        span: &material.shown,
        previous: material.previous.as_ref(),
        caps: &material.detail.drafting.caps,
        replaces: material.detail.covered,
        limit: material.detail.limit,
        focus: material.focus.as_ref(),
    };
    let verified = draft_gate::verify(&drafted.text, drafted.finish, &source, &material.meter)
        .map_err(|rejected| rejected.to_string())?;
    let report = serde_json::to_value(&verified.report).unwrap_or_default();
    Ok((verified.brief, report))
}

/// Reads the material of a job from the log.
fn material(engine: &SessionEngine, row: &JobRow) -> Result<JobMaterial, SessionError> {
    let job = &row.job;
    let detail: JobDetail = serde_json::from_str(&job.detail).map_err(|source| SessionError::Record {
        what: "job",
        call: job.marker.0,
        source,
    })?;
    let base = job.base.map(|seq| event_at(&*engine.store, job.thread, seq)).transpose()?.flatten();
    let (after, previous) = base.as_ref().and_then(carried_summary).unzip();
    let after = after.unwrap_or(Seq::START);
    let mut span = told(&*engine.store, job.thread, after.next(), job.through)?;
    let pins = engine.store.events_of_kinds(job.thread, &["pinned", "unpinned"])?;
    let pins = pins.into_iter().filter(|pin| pin.id.seq > job.through && pin.id.seq <= job.marker);
    span.extend(pins.map(Arc::new));
    // The lock is not held while a request is rendered again: the next request must not wait for that.
    let setup = Arc::clone(&engine.state()?.setup);
    let continued = continued_request(engine, row, &detail, &setup, after, previous.as_ref());
    let (shown, warm) = match continued {
        Some(ContinuedRequest { shown, request }) => (shown, Some(request)),
        None => (span.clone(), None),
    };
    let focus = job.focus.as_deref().and_then(SummaryFocus::new);
    Ok(JobMaterial { span, shown, previous, detail, focus, meter: Arc::clone(&setup.meter), warm })
}

/// The session's own request with a question appended.
struct ContinuedRequest {
    /// Events in it since the summary before.
    shown: Vec<Arc<LoggedEvent>>,
    request: String,
}

/// The session's own request, to be continued, if that is cheaper than sending the span to another model.
fn continued_request(
    engine: &SessionEngine,
    row: &JobRow,
    detail: &JobDetail,
    setup: &super::setup::SessionSetup,
    after: Seq,
    previous: Option<&StructuredSummary>,
) -> Option<ContinuedRequest> {
    let maker = engine.maker.as_ref().filter(|maker| maker.warm == WarmRequestMode::IfCheaper)?;
    let call = detail.call?;
    let terms = setup.calls.terms.as_ref()?;
    let replayed = super::call_replay::replay_call(&*engine.store, row.job.thread, call).ok()?;
    if replayed.row.call.script.as_deref().is_some_and(|script| !RewriteRecord::is_whole(script)) {
        return None;
    }
    let held = replayed.row.call.estimated;
    let output = detail.limit;
    let shown = told(&*engine.store, row.job.thread, after.next(), row.job.marker).ok()?;
    // A list of sentences that is short compared with the request it is appended to.
    let room = Tokens(held.0 / 16);
    let instructions = maker.instructions_for(row);
    let instruction = prompt::appended_instruction(
        previous,
        &instructions,
        output,
        &offered_sentences(&shown),
        room,
        &setup.meter,
    );
    let input = held + setup.meter.text(&instruction);
    let warm = summarise::WarmRequest { terms, held, input, output };
    let apart = SeparateRequest { terms: &maker.terms, input: detail.covered, asks: 1, output };
    if summarise::cheaper(&warm, &apart) == SummaryRequestMode::Apart {
        return None;
    }
    let request = replayed.format.append_instruction(&replayed.rendered.body, &instruction, output).ok()?;
    Some(ContinuedRequest { shown, request })
}

/// The events between two places. A summary carries its earlier content on by itself.
fn told(
    store: &dyn Store,
    thread: ThreadId,
    from: Seq,
    through: Seq,
) -> Result<Vec<Arc<LoggedEvent>>, SessionError> {
    let mut span = read_span(store, thread, from, through)?;
    span.retain(|logged| !matches!(logged.event.fact, Fact::Compacted(_)));
    Ok(span.into_iter().map(Arc::new).collect())
}

fn event_at(store: &dyn Store, thread: ThreadId, seq: Seq) -> Result<Option<LoggedEvent>, SessionError> {
    Ok(store.read(thread, seq, 1)?.into_iter().next())
}

/// Runs blocking work on a thread of its own, so that other tasks do not wait for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SessionError::Interrupted)?
}
