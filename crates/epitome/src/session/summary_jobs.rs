//! Summaries that a model writes in the background, as a call sees them: the job that orders one, and the one that is ready.

use epitome_core::{
    Event, Fact, Tokens,
    budget::Budget,
    event::{Compaction, CompactionTrigger, Timestamp},
    id::JobId,
    model_view::SummaryStatus,
    summary::{
        StructuredSummary, SummaryFocus,
        compaction::{CompactionError, CompactionSettings, CompactionSpan, FinishedSummary},
    },
};
use epitome_store::{
    Store,
    records::{CommitRecord, JobRow, NewJob, SummaryRow, ThreadCommit},
};
use serde::{Deserialize, Serialize};

use super::{
    circuit_breaker,
    engine::{BUILT_IN_NAME, SessionEngine, SummariserConfig},
    error::SessionError,
    state::SessionState,
};
use crate::summarise::prompt::PROMPT_VERSION;

/// A summary that is ready to be adopted.
#[derive(Clone, Debug)]
pub(crate) struct ReadySummary {
    pub(crate) job: JobId,
    /// Name of its summariser.
    pub(crate) by: String,
    pub(crate) finished: FinishedSummary,
}

/// Progress of the summary that a model writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SummaryProgress {
    /// No model writes one: none is set up, or its failures have become too many.
    #[default]
    BuiltIn,
    /// One can be ordered.
    Possible,
    /// One is being written.
    Running,
    /// One is ready.
    Ready,
    /// Compactions have come too close to each other.
    Thrashing,
}

/// Data stored with a job beside its span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDetail {
    /// Tokens of the span as it was shown.
    pub(crate) covered: Tokens,
    /// Limit on the length of the summary.
    pub(crate) limit: Tokens,
    /// Call whose request may be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<u64>,
    /// Settings of its draft.
    pub(crate) drafting: CompactionSettings,
}

impl ReadySummary {
    /// The compaction that puts it in force, or the reason it does not pay.
    pub(crate) fn compaction(&self, state: &SessionState) -> Result<Compaction, CompactionError> {
        let caps = state.setup.calls.policy.summary.unwrap_or_default().caps;
        let length = state.drafting(&state.budget()).length;
        let finished = self.finished.clone().with_pins(state.view().line(), &caps);
        finished.into_compaction(state.view().context(), length)
    }
}

impl SummaryProgress {
    /// The status by which a policy decides.
    pub(super) fn status<'a>(
        self,
        maker: Option<&'a SummariserConfig>,
        ready: Option<&'a FinishedSummary>,
    ) -> SummaryStatus<'a> {
        match (self, maker, ready) {
            (Self::Thrashing, ..) => SummaryStatus::Thrashing,
            (Self::Ready, _, Some(finished)) => SummaryStatus::Ready(finished),
            (Self::Running, Some(maker), _) => SummaryStatus::Running(maker.kind()),
            (Self::Possible, Some(maker), _) => SummaryStatus::Possible(maker.kind()),
            (Self::BuiltIn | Self::Ready | Self::Running | Self::Possible, ..) => SummaryStatus::BuiltIn,
        }
    }
}

/// Progress of the session's summary.
pub(super) fn progress(
    engine: &SessionEngine,
    state: &SessionState,
    is_ready: bool,
    now: Timestamp,
) -> Result<SummaryProgress, SessionError> {
    if state.thrash.delays_compaction(state.last.map_or(0, |(number, _)| number + 1)) {
        return Ok(SummaryProgress::Thrashing);
    }
    if is_ready {
        return Ok(SummaryProgress::Ready);
    }
    let Some(maker) = &engine.maker else { return Ok(SummaryProgress::BuiltIn) };
    if engine.store.running_job(engine.thread)?.is_some() {
        return Ok(SummaryProgress::Running);
    }
    if circuit_breaker::is_open(&*engine.store, &*maker.summariser, engine.thread, now)? {
        return Ok(SummaryProgress::BuiltIn);
    }
    Ok(SummaryProgress::Possible)
}

/// The ready summary that fits the state, if there is one. A ready one that does not fit is cancelled.
pub(super) fn ready(
    engine: &SessionEngine,
    state: &SessionState,
) -> Result<Option<ReadySummary>, SessionError> {
    if !state.may_have_jobs {
        return Ok(None);
    }
    let Some((job, summary)) = engine.store.ready_job(engine.thread)? else { return Ok(None) };
    match fits(&*engine.store, state, &job, &summary)? {
        Ok(finished) => Ok(Some(ReadySummary { job: job.job.id, by: summary.summary.author, finished })),
        Err(why) => {
            let cancel = CommitRecord::CancelJob { job: job.job.id, reason: why.to_owned() };
            let after = engine.store.head(engine.thread)?.seq;
            engine.store.commit(ThreadCommit::new(engine.thread, after, Vec::new(), vec![cancel]))?;
            Ok(None)
        }
    }
}

/// The marker and the job by which a span is summarised; `None` if that span was tried before. A person who asks
/// for it again, because it was undone or cancelled, gets it again.
pub(super) fn order(
    engine: &SessionEngine,
    state: &SessionState,
    budget: &Budget,
    trigger: CompactionTrigger,
    focus: Option<String>,
    call: Option<u64>,
    now: Timestamp,
) -> Result<Option<(Event, NewJob)>, SessionError> {
    let drafting = state.drafting(budget);
    let attended = focus.as_deref().and_then(SummaryFocus::new);
    let (context, line) = (state.view().context(), state.view().line());
    let Ok(cutting) = drafting.cut(attended.as_ref(), context, line) else { return Ok(None) };
    let drafting = CompactionSettings { caps: cutting.caps, ..drafting };
    let mut job = new_job(engine, state, &cutting, drafting, trigger, focus.clone(), call, now)?;
    let known = engine.store.jobs(Some(engine.thread))?;
    let is_known = |key: &str| known.iter().any(|known| known.job.key == key);
    if is_known(&job.key) {
        if trigger != CompactionTrigger::Manual {
            return Ok(None);
        }
        let mut times = (2_u64..).map(|time| format!("time {time}: {}", job.key));
        job.key = times.find(|key| !is_known(key)).unwrap_or_default();
        job.id = JobId::derived(&[&engine.thread.to_string(), &job.key]);
    }
    let marker = Event::from_fact(Fact::CompactionRequested { trigger, focus }, Some(now));
    Ok(Some((marker, job)))
}

#[expect(clippy::too_many_arguments, reason = "a job is all of this, and is made in one place")]
fn new_job(
    engine: &SessionEngine,
    state: &SessionState,
    cutting: &CompactionSpan,
    drafting: CompactionSettings,
    trigger: CompactionTrigger,
    focus: Option<String>,
    call: Option<u64>,
    now: Timestamp,
) -> Result<NewJob, SessionError> {
    let through = cutting.first_kept.previous();
    let by = engine.maker.as_ref().map_or(BUILT_IN_NAME, |maker| maker.summariser_for(trigger).name());
    let base = cutting.standing.map_or_else(|| "none".to_owned(), |base| base.to_string());
    let focused = focus.as_deref().unwrap_or_default();
    let key = format!("{}-{through} on {base} by {by}, prompt {}: {focused}", cutting.first, *PROMPT_VERSION);
    let thread = engine.thread.to_string();
    let page = engine.store.read(engine.thread, through, 1)?;
    let link = page.first().map_or(state.head.link.raw, |logged| logged.link.raw);
    let detail =
        JobDetail { covered: cutting.covered, limit: drafting.length.of(cutting.covered), call, drafting };
    Ok(NewJob {
        id: JobId::derived(&[&thread, &key]),
        thread: engine.thread,
        key,
        marker: state.head.seq.next(),
        first: cutting.first,
        through,
        first_kept: Some(cutting.first_kept),
        base: cutting.standing,
        link,
        trigger,
        focus,
        detail: serde_json::to_string(&detail).expect("numbers"),
        created: now,
    })
}

/// The summary of a job in the form in which it would be adopted now, or the reason it cannot be.
fn fits(
    store: &dyn Store,
    state: &SessionState,
    job: &JobRow,
    summary: &SummaryRow,
) -> Result<Result<FinishedSummary, &'static str>, SessionError> {
    let standing = state.view().context().standing();
    if standing != job.job.base {
        return Ok(Err("another compaction was adopted or undone since"));
    }
    let page = store.read(job.job.thread, job.job.through, 1)?;
    if page.first().map(|logged| logged.link.raw) != Some(job.job.link) {
        return Ok(Err("the history before it is not what it was"));
    }
    let Ok(brief) = serde_json::from_str::<StructuredSummary>(&summary.summary.brief) else {
        return Ok(Err("its items cannot be read"));
    };
    let first_kept = job.job.first_kept.unwrap_or(job.job.through.next());
    Ok(Ok(FinishedSummary { first: job.job.first, first_kept, brief, trigger: job.job.trigger }))
}
