//! A session: append events, ask for the next request, and it stays inside the window.
//!
//! [`Session`] is a handle that is cheap to clone and can be sent between tasks. Everything appended is written to
//! the log before the call returns; the next request for the model comes from [`Session::next_request`], which never
//! waits for a model. Summaries are made in the background, and swapped in between two requests.

mod answer;
pub(crate) mod answer_reader;
mod answer_stream;
pub(crate) mod background_compactor;
pub(crate) mod builder;
mod built_in_record;
pub(crate) mod call_input;
pub mod call_replay;
mod circuit_breaker;
pub(crate) mod engine;
mod error;
mod handover;
pub(crate) mod lifecycle;
#[doc(hidden)]
pub mod live_playback;
pub(crate) mod manual_compaction;
pub(crate) mod next_call;
pub(crate) mod pending_updates;
mod post_compaction;
mod request_json;
pub(crate) mod setup;
pub(crate) mod state;
mod summary_jobs;
mod thrash_detector;
pub(crate) mod thread_reading;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use epitome_core::{
    Event, LoggedEvent, Seq, SessionId, ThreadId, Tokens,
    budget::Budget,
    event::{CompactionTrigger, Pin, ToolCall},
    id::JobId,
    policy::Policy,
    profile::Profiles,
};
use epitome_store::{
    Store,
    records::{CallRow, JobRow, JobState, NewFork, NewSession, SearchHit, SearchQuery, SearchScope},
};
use epitome_wire::{
    Format,
    message_builder::{ToolResultInput, ToolResultStatus},
    overflow::detect_overflow,
};
use tokio::sync::{
    Notify,
    broadcast::{Receiver, error::RecvError},
};

pub use self::{
    answer::AssistantAnswer,
    answer_stream::AnswerStream,
    background_compactor::WorkOutcome,
    builder::{AutoContinue, CompactTool, SessionBuilder, SummaryWorkers},
    call_replay::{ReplayedCall, replay_call, verify_call},
    engine::{BUILT_IN_NAME, SessionRequest, WarmRequestMode},
    error::SessionError,
    lifecycle::{AttemptFault, LifecycleCallback, LifecycleEvent, NextStep},
    request_json::RequestJson,
    setup::OverflowCheck,
};
use self::{
    answer_reader::AnswerReader,
    background_compactor::{blocking, work_one},
    builder::SessionExtras,
    built_in_record::ThreadBeginning,
    engine::SessionEngine,
    manual_compaction::{PinChange, change_pin},
    setup::{ObservedLimits, SessionSetup},
};
use crate::{
    lineage::{self, ForkMode},
    memory_files::FileWriteOutcome,
};

/// A session of an agent.
#[derive(Clone, Debug)]
pub struct Session {
    engine: Arc<SessionEngine>,
    /// Wakes the compactor when there is work.
    wake: Arc<Notify>,
    shared: Arc<SessionConfig>,
}

#[derive(Debug)]
struct SessionConfig {
    extras: SessionExtras,
    profiles: Arc<Profiles>,
    policy: Policy,
    overflow_check: OverflowCheck,
}

/// A tool's result for a call.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// The call.
    pub call: ToolCall,
    /// Text of the result.
    pub text: String,
    /// Outcome of the call.
    pub ended: ToolResultStatus,
}

impl ToolOutput {
    /// The result of a call, from a tool's output or its error.
    pub fn new(call: &ToolCall, done: Result<impl Into<String>, impl std::fmt::Display>) -> Self {
        match done {
            Ok(text) => Self::of(call, text),
            Err(error) => Self::failed(call, error.to_string()),
        }
    }

    /// The result of a tool that succeeded.
    pub fn of(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { call: call.clone(), text: text.into(), ended: ToolResultStatus::Well }
    }

    /// The result of a tool that failed.
    pub fn failed(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { call: call.clone(), text: text.into(), ended: ToolResultStatus::Badly }
    }
}

/// Kind of a provider's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It was too long: ask for the next request and send that.
    TooLong,
    /// For another reason: the same request may be sent again later.
    Otherwise,
}

/// An event that was recalled.
#[derive(Clone, Debug)]
pub struct RecalledEvent {
    /// The event, whole.
    pub event: LoggedEvent,
}

impl Session {
    /// Builder for a session with this model, in this format. Everything else has a default.
    pub fn builder(format: Format, model: &str) -> SessionBuilder {
        SessionBuilder::new(format, model)
    }

    fn new(
        engine: Arc<SessionEngine>,
        wake: Arc<Notify>,
        extras: SessionExtras,
        profiles: Arc<Profiles>,
        policy: Policy,
        overflow_check: OverflowCheck,
    ) -> Self {
        let shared = SessionConfig { extras, profiles, policy, overflow_check };
        Self { engine, wake, shared: Arc::new(shared) }
    }

    /// Id by which it is opened again.
    pub fn id(&self) -> SessionId {
        self.engine.session
    }

    /// The thread it appends to.
    pub fn thread(&self) -> ThreadId {
        self.engine.thread
    }

    /// Store in which it is kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }

    async fn on_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SessionEngine) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let engine = Arc::clone(&self.engine);
        blocking(move || work(&engine)).await
    }

    fn format(engine: &SessionEngine) -> Result<Format, SessionError> {
        Ok(engine.state()?.setup.calls.format)
    }
}

/// Appending events.
impl Session {
    /// Appends events as they are, decoded by [`epitome_wire`] or made by hand.
    pub async fn append(&self, events: Vec<Event>) -> Result<Seq, SessionError> {
        self.on_engine(move |engine| Ok(engine.append(&events)?.seq)).await
    }

    /// Appends a user's message.
    pub async fn user(&self, text: &str) -> Result<Seq, SessionError> {
        let text = text.to_owned();
        self.on_engine(move |engine| {
            let said = Self::format(engine)?.say_user(&text).at(Some(engine.now()));
            Ok(engine.append(&[said])?.seq)
        })
        .await
    }

    /// Appends tool results: all results of one answer together.
    pub async fn tool_results(&self, outputs: &[ToolOutput]) -> Result<Seq, SessionError> {
        let outputs = outputs.to_vec();
        self.on_engine(move |engine| {
            let said: Vec<ToolResultInput<'_>> = outputs
                .iter()
                .map(|output| ToolResultInput { call: &output.call, text: &output.text, ended: output.ended })
                .collect();
            let now = Some(engine.now());
            let events = Self::format(engine)?.say_results(&said);
            let events: Vec<Event> = events.into_iter().map(|event| event.at(now)).collect();
            Ok(engine.append(&events)?.seq)
        })
        .await
    }

    /// Makes the next request: within the window, legal, and an extension of the last one unless there was reason to
    /// change earlier parts. It never waits for a model.
    pub async fn next_request(&self) -> Result<SessionRequest, SessionError> {
        let (asked, extras) = (Instant::now(), self.shared.extras.clone());
        let mut request = self.on_engine(move |engine| engine.next_request(&extras)).await?;
        self.wake.notify_one();
        self.watch_idle();
        request.made_in = asked.elapsed();
        Ok(request)
    }

    /// Appends the model's answer: `body` is the provider's response, whole, as JSON or as the recorded stream. For a
    /// stream that is read while it arrives, see [`answer_stream`](Self::answer_stream).
    ///
    /// A stream that ends in its middle is [`SessionError::AnswerCut`]. What came of it is in the log, but not in the
    /// history: the next request is the same once more.
    pub async fn answered(&self, body: &str) -> Result<AssistantAnswer, SessionError> {
        let mut stream = self.answer_stream().await?;
        stream.push(body);
        stream.finish().await
    }

    /// Begins the model's answer to the last request, for a program that has it piece by piece.
    pub async fn answer_stream(&self) -> Result<AnswerStream, SessionError> {
        let format = self.on_engine(Self::format).await?;
        Ok(AnswerStream::new(self.clone(), format))
    }

    /// Appends an answer as far as it was read.
    async fn take_answer(&self, reader: AnswerReader) -> Result<AssistantAnswer, SessionError> {
        let tool = self.shared.extras.compact_tool;
        let (answer, asked) = self.on_engine(move |engine| answer::take(engine, reader, tool)).await?;
        if asked.is_some() {
            self.wake.notify_one();
        }
        Ok(answer)
    }

    /// Notes a provider's error. If it says that the request was too long, the next request will be smaller, without
    /// asking any model.
    pub async fn refused(&self, status: u16, body: &[u8]) -> Result<RefusalKind, SessionError> {
        let body = body.to_vec();
        self.on_engine(move |engine| {
            let format = Self::format(engine)?;
            let Some(overflow) = detect_overflow(format, status, &body) else {
                engine.failed(&format!("the provider answered {status}"))?;
                return Ok(RefusalKind::Otherwise);
            };
            engine.overflowed(overflow)?;
            Ok(RefusalKind::TooLong)
        })
        .await
    }

    /// Notes that the request failed: no connection, no answer.
    pub async fn failed(&self, why: &str) -> Result<(), SessionError> {
        let why = why.to_owned();
        self.on_engine(move |engine| engine.failed(&why)).await
    }

    /// Changes to another model. If the content shown is too large for it, it is compacted first, with the old one.
    ///
    /// `window` is that of the new model, if it has no profile. The call waits for the summary, if there is to be
    /// one.
    pub async fn switch_model(
        &self,
        format: Format,
        model: &str,
        window: Option<Tokens>,
    ) -> Result<(), SessionError> {
        let SessionConfig { profiles, policy, .. } = &*self.shared;
        let setup = SessionSetup::new(format, model, window, policy, profiles)
            .with_overflow_check(self.shared.overflow_check);
        let setup = self.on_engine(move |engine| Ok(setup.with_recorded_counts(&*engine.store))).await?;
        let setup = Arc::new(setup);
        let budget = setup.budget(ObservedLimits::default(), self.engine.hooks.reserve());
        let trigger = budget.trigger();
        let is_smaller =
            self.on_engine(move |engine| Ok(engine.state()?.view().context().tokens() > trigger)).await?;
        if is_smaller {
            match self.compact_for(CompactionTrigger::ModelSwitch, None, Some(budget)).await {
                // Content that cannot be compacted is left to the reducers.
                Ok(_) | Err(SessionError::Nothing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.on_engine(move |engine| engine.switch(setup)).await
    }
}

/// Compactions.
impl Session {
    /// Compacts now with a focus, if given, and waits for the summary. Returns the compaction's place.
    pub async fn compact(&self, focus: Option<&str>) -> Result<Seq, SessionError> {
        self.compact_for(CompactionTrigger::Manual, focus, None).await
    }

    /// Writes the memory files now. They are written with the first request after each compaction anyway; a failure
    /// then is reported to [listeners](Self::listen) only, because an agent need not stop for its notes. `None` if
    /// there is nothing to write: no compaction is in force, or no folder was given.
    pub async fn write_memory_files(&self) -> Result<Option<FileWriteOutcome>, SessionError> {
        let Some(folder) = self.shared.extras.memory.clone() else { return Ok(None) };
        self.on_engine(move |engine| post_compaction::write_notes(engine, &folder)).await
    }

    async fn compact_for(
        &self,
        trigger: CompactionTrigger,
        focus: Option<&str>,
        budget: Option<Budget>,
    ) -> Result<Seq, SessionError> {
        let place = self.make_compaction(trigger, focus, budget).await?;
        // The compaction stands even if the notes fail; listeners are told.
        let _told = self.write_memory_files().await;
        Ok(place)
    }

    async fn make_compaction(
        &self,
        trigger: CompactionTrigger,
        focus: Option<&str>,
        budget: Option<Budget>,
    ) -> Result<Seq, SessionError> {
        if self.engine.maker.is_none() && !self.on_engine(manual_compaction::is_under_way).await? {
            let focus = focus.map(str::to_owned);
            let made = move |engine: &SessionEngine| {
                manual_compaction::compact_built_in(engine, trigger, focus.as_deref(), budget.as_ref())
            };
            return self.on_engine(made).await;
        }
        let job = self.order(trigger, focus, budget).await?;
        let worker = background_compactor::worker();
        loop {
            let row = self.on_engine(move |engine| Ok(engine.store.job(job)?)).await?;
            match row.state {
                JobState::Queued | JobState::Running { .. } => {
                    if work_one(&self.engine, &worker).await? == WorkOutcome::Nothing {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
                JobState::Ready => {
                    return self.on_engine(move |engine| manual_compaction::adopt(engine, job)).await;
                }
                JobState::Adopted { compaction } => return Ok(compaction),
                JobState::Failed | JobState::Cancelled => {
                    return Err(SessionError::Lineage(row.error.unwrap_or_default()));
                }
            }
        }
    }

    /// Starts a summary in the background; the next request adopts it as soon as it is ready. Returns the job, or the
    /// one that is under way already.
    pub async fn compact_in_background(&self, focus: Option<&str>) -> Result<JobId, SessionError> {
        let job = self.order(CompactionTrigger::Manual, focus, None).await?;
        self.wake.notify_one();
        Ok(job)
    }

    /// Works on a job of the session that is due, if there is one, with the summariser this session was opened with:
    /// for programs that make the summaries of sessions whose [`SummaryWorkers`] are elsewhere, and after a crash.
    pub async fn work(&self) -> Result<WorkOutcome, SessionError> {
        work_one(&self.engine, &background_compactor::worker()).await
    }

    async fn order(
        &self,
        trigger: CompactionTrigger,
        focus: Option<&str>,
        budget: Option<Budget>,
    ) -> Result<JobId, SessionError> {
        let focus = focus.map(str::to_owned);
        self.on_engine(move |engine| {
            manual_compaction::order(engine, trigger, focus.as_deref(), budget.as_ref())
        })
        .await
    }

    /// Undoes the compaction in force: contexts are made as if it had not been. Returns its place.
    pub async fn undo(&self) -> Result<Seq, SessionError> {
        self.on_engine(|engine| manual_compaction::undo_or_redo(engine, manual_compaction::UndoOrRedo::Undo))
            .await
    }

    /// Brings back the compaction that was undone last. Returns its place.
    pub async fn redo(&self) -> Result<Seq, SessionError> {
        self.on_engine(|engine| manual_compaction::undo_or_redo(engine, manual_compaction::UndoOrRedo::Redo))
            .await
    }

    /// Pins words, or an event: no compaction loses it.
    pub async fn pin(&self, pin: Pin) -> Result<Seq, SessionError> {
        self.on_engine(move |engine| change_pin(engine, &pin, PinChange::Add)).await
    }

    /// Takes a pin away.
    pub async fn unpin(&self, pin: Pin) -> Result<Seq, SessionError> {
        self.on_engine(move |engine| change_pin(engine, &pin, PinChange::Remove)).await
    }

    /// Forks a new session that shares this one's history up to `at`, with the summary of it or in full.
    pub async fn fork(&self, at: Seq, mode: ForkMode, title: &str) -> Result<Self, SessionError> {
        let title = title.to_owned();
        self.branch(at, title, move |engine, state| {
            let (line, drafting) =
                (manual_compaction::whole_thread(engine, state)?, state.drafting(&state.budget()));
            let events = lineage::fork(&line, at, mode, &manual_compaction::drafter(state, &drafting));
            let first = lineage::first_uncovered(&lineage::line_until(&line, at));
            Ok(ThreadBeginning { events, first, author: BUILT_IN_NAME.to_owned() })
        })
        .await
    }

    /// Starts a new session that takes over with a goal: it gets a summary of this one, and shows nothing else of it.
    pub async fn hand_over(&self, goal: &str) -> Result<Self, SessionError> {
        let head = self.on_engine(|engine| Ok(engine.store.head(engine.thread)?.seq)).await?;
        let (brief, author) = handover::brief_of_all(&self.engine, goal, head).await?.unzip();
        let goal = goal.to_owned();
        let title = goal.clone();
        self.branch(head, title, move |engine, state| {
            let said = state.setup.calls.format.say_user(&goal).at(Some(engine.now()));
            // Messages added while a model summarised are not handed over: the new thread begins where the call was
            // made.
            let (line, drafting) =
                (manual_compaction::whole_thread(engine, state)?, state.drafting(&state.budget()));
            let line = lineage::line_until(&line, head);
            let first = lineage::first_uncovered(&line);
            let events = lineage::handoff(&line, said, brief, &manual_compaction::drafter(state, &drafting));
            Ok(ThreadBeginning { events, first, author: author.unwrap_or_else(|| BUILT_IN_NAME.to_owned()) })
        })
        .await
    }

    async fn branch(
        &self,
        at: Seq,
        title: String,
        begin: impl FnOnce(&SessionEngine, &state::SessionState) -> Result<ThreadBeginning, SessionError>
        + Send
        + 'static,
    ) -> Result<Self, SessionError> {
        let engine = self
            .on_engine(move |engine| {
                let mut state = engine.state()?;
                state.catch_up(&*engine.store, engine.thread)?;
                let beginning = begin(engine, &state)?;
                let session = SessionId::new(uuid::Uuid::now_v7());
                let thread = ThreadId::new(uuid::Uuid::now_v7());
                let now = engine.now();
                let parent = engine.store.session(engine.session)?;
                let new = NewSession {
                    id: session,
                    key: None,
                    title,
                    source: parent.source,
                    created: Some(now),
                    principal: parent.principal,
                };
                let fork = NewFork { of: engine.thread, at, session: new, thread, name: "main".to_owned() };
                let head = engine.store.fork(&fork)?;
                engine.store.commit(beginning.commit(thread, head.seq, now))?;
                engine.branch((session, thread), Arc::clone(&state.setup), Arc::clone(&engine.hooks))
            })
            .await?;
        let engine = Arc::new(engine);
        let wake = Arc::new(Notify::new());
        if self.shared.extras.workers == SummaryWorkers::Here {
            tokio::spawn(background_compactor::run(Arc::downgrade(&engine), Arc::clone(&wake)));
        }
        Ok(Self { engine, wake, shared: Arc::clone(&self.shared) })
    }

    /// Starts a summary if no event arrives for a while.
    fn watch_idle(&self) {
        let Some(after) = self.shared.extras.idle else { return };
        let (engine, wake) = (Arc::downgrade(&self.engine), Arc::clone(&self.wake));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let Some(engine) = engine.upgrade() else { return };
            let ordered = blocking(move || manual_compaction::order_if_idle(&engine, after)).await;
            match ordered {
                Ok(true) => wake.notify_one(),
                Ok(false) => {}
                Err(error) => tracing::warn!(target: "epitome::compaction", %error, "an idle session"),
            }
        });
    }
}

/// Looking back.
impl Session {
    /// Events about summaries, as they happen.
    pub fn events(&self) -> Receiver<LifecycleEvent> {
        self.engine.listeners.subscribe()
    }

    /// Calls `listener` with events about summaries, as they happen, on a task of its own. One that is too slow
    /// misses the oldest, and never holds up the session.
    pub fn listen(&self, mut listener: impl FnMut(LifecycleEvent) + Send + 'static) {
        let mut events = self.events();
        tokio::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(happened) => listener(happened),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    /// The events that a handle stands for, whole, as stubs and summaries write it: `recall 1b2c3d4e:57`. Requests
    /// have handles only if the model can use them: give it a tool with the name
    /// [`RECALL_TOOL`](epitome_wire::recall_tool::RECALL_TOOL), and answer its calls with this.
    pub async fn recall(&self, handle: &str) -> Result<Vec<RecalledEvent>, SessionError> {
        let handle = handle.to_owned();
        self.on_engine(move |engine| call_replay::recall(&*engine.store, engine.thread, &handle)).await
    }

    /// Searches all events of the session, shown or not.
    pub async fn search(&self, words: &str) -> Result<Vec<SearchHit>, SessionError> {
        let search =
            SearchQuery { scope: SearchScope::Thread(self.thread()), ..SearchQuery::everything(words) };
        self.on_engine(move |engine| Ok(engine.store.search(&search)?)).await
    }

    /// The calls of the session, with the decisions for each and its outcome.
    pub async fn calls(&self) -> Result<Vec<CallRow>, SessionError> {
        self.on_engine(|engine| Ok(engine.store.calls(engine.thread, 0, usize::MAX)?)).await
    }

    /// The jobs of the session.
    pub async fn jobs(&self) -> Result<Vec<JobRow>, SessionError> {
        self.on_engine(|engine| Ok(engine.store.jobs(Some(engine.thread))?)).await
    }

    /// Renders a past call again and checks that it is, byte for byte, the request that was sent.
    pub async fn replay(&self, call: u64) -> Result<ReplayedCall, SessionError> {
        self.on_engine(move |engine| verify_call(&*engine.store, engine.thread, call)).await
    }

    /// The size of the request that would be sent now, and the largest allowed size.
    pub async fn size(&self) -> Result<(Tokens, Tokens), SessionError> {
        self.on_engine(|engine| {
            let mut state = engine.state()?;
            state.catch_up(&*engine.store, engine.thread)?;
            Ok((state.view().context().tokens(), state.budget().ceiling()))
        })
        .await
    }
}
