//! Construction of a session: sensible defaults for everything but the model.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use epitome_core::{
    SessionId, ThreadId, Tokens,
    cost::CacheTerms,
    event::Timestamp,
    inject::{Hook, Hooks},
    pipeline::Reducer,
    policy::{Policy, PolicyStep, StepTiming},
    profile::{CacheRules, Profiles, TokenPrices, Tokenizer},
    reducers::{AnyReducer, DropInjected},
    summary::SummaryFocus,
};
use epitome_store::{
    NewThread, Store, StoreLocation, StoreOptions, ThreadStart, open_store, records::NewSession,
    temporary_store,
};
use epitome_wire::Format;
use tokio::sync::Notify;

use super::{
    Session,
    background_compactor::{self, blocking},
    engine::{SessionClock, SessionEngine, SummariserConfig, WarmRequestMode},
    error::SessionError,
    lifecycle::{LifecycleCallback, LifecycleEvent, LifecycleListeners},
    request_json::RequestJson,
    setup::{OverflowCheck, SessionSetup},
};
use crate::summarise::{Summarize, SummaryInstructions};

/// A session to be opened or begun.
///
/// ```no_run
/// # async fn example() -> Result<(), epitome::SessionError> {
/// use epitome::{Format, Session};
///
/// let session = Session::builder(Format::OpenaiChat, "gpt-5.1")
///     .file("agent.db")
///     .system("You are a careful engineer.")
///     .begin()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct SessionBuilder {
    format: Format,
    model: String,
    place: SessionStorage,
    policy: Policy,
    reducers: Vec<AnyReducer>,
    profiles: Profiles,
    window: Option<Tokens>,
    title: String,
    settings: Option<RequestJson>,
    opening: Vec<OpeningEvent>,
    hooks: Vec<Box<dyn Hook>>,
    summariser: Option<Arc<dyn Summarize>>,
    careful: Option<Arc<dyn Summarize>>,
    prices: Option<TokenPrices>,
    warm: WarmRequestMode,
    instructions: SummaryInstructions,
    before: Option<CallbackSlot>,
    after: Option<CallbackSlot>,
    clock: SessionClock,
    overflow_check: OverflowCheck,
    pub(super) extras: SessionExtras,
}

/// Functions of a session other than making requests.
#[derive(Clone, Debug)]
pub(crate) struct SessionExtras {
    pub(super) compact_tool: CompactTool,
    pub(super) auto_continue: AutoContinue,
    pub(super) idle: Option<Duration>,
    pub(super) memory: Option<PathBuf>,
    pub(super) workers: SummaryWorkers,
}

impl SessionExtras {
    /// No functions other than making requests.
    pub(super) fn none() -> Self {
        Self {
            compact_tool: CompactTool::Absent,
            auto_continue: AutoContinue::Off,
            idle: None,
            memory: None,
            workers: SummaryWorkers::Elsewhere,
        }
    }
}

/// Choice to give the agent a tool by which it asks for a compaction itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactTool {
    /// It has none.
    #[default]
    Absent,
    /// It has: calls of it are answered by the session.
    Offered,
}

/// Choice to add a message that lets the agent go on after an automatic compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoContinue {
    /// The message is added if the request would otherwise end without a question.
    #[default]
    On,
    /// The message is not added.
    Off,
}

/// Place where summaries are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummaryWorkers {
    /// A task of this session.
    #[default]
    Here,
    /// Another process that has the same store open.
    Elsewhere,
}

#[derive(Clone)]
struct CallbackSlot(LifecycleCallback);

impl std::fmt::Debug for CallbackSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}

#[derive(Debug)]
enum SessionStorage {
    Temporary,
    File(PathBuf),
    Store(Arc<dyn Store>),
}

#[derive(Debug)]
enum OpeningEvent {
    System(String),
    Tools(RequestJson),
}

impl SessionBuilder {
    pub(super) fn new(format: Format, model: &str) -> Self {
        Self {
            format,
            model: model.to_owned(),
            place: SessionStorage::Temporary,
            policy: Policy::builtin()[0].clone(),
            reducers: Vec::new(),
            profiles: Profiles::builtin(),
            window: None,
            title: String::new(),
            settings: None,
            opening: Vec::new(),
            hooks: Vec::new(),
            summariser: None,
            careful: None,
            prices: None,
            warm: WarmRequestMode::Never,
            instructions: SummaryInstructions::default(),
            before: None,
            after: None,
            clock: SessionClock(Arc::new(now)),
            overflow_check: OverflowCheck::default(),
            extras: SessionExtras {
                compact_tool: CompactTool::Absent,
                auto_continue: AutoContinue::On,
                idle: None,
                memory: None,
                workers: SummaryWorkers::Here,
            },
        }
    }

    /// Keeps the session in a database file, which is made if there is none. By default it is kept in a temporary one.
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.place = SessionStorage::File(path.as_ref().to_owned());
        self
    }

    /// Keeps the session in a store that is open already.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.place = SessionStorage::Store(store);
        self
    }

    /// Sets the policy by which the context is reduced; by default `epitome`.
    pub fn policy(mut self, policy: &Policy) -> Self {
        self.policy = policy.clone();
        self
    }

    /// Adds a reducer of your own, which runs at an epoch, before those of the policy: it knows your tools, and the
    /// parts it removes are missed least. Several run in the order in which they are added.
    pub fn reducer(mut self, reducer: impl Reducer + 'static) -> Self {
        self.reducers.push(AnyReducer::custom(reducer));
        self
    }

    /// Sets the profiles of models; by default those of the library.
    pub fn profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
    }

    /// Sets the size of the model's window in tokens, input and output together: for models without a profile, or to
    /// stay below the profile's. Without either nothing is compacted until the provider refuses a request as too
    /// long.
    pub fn window(mut self, window: Tokens) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the title of the session.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the system prompt of a new session.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.opening.push(OpeningEvent::System(text.into()));
        self
    }

    /// Sets the tools of a new session: a list of definitions, each an object as the provider takes it. Anything else
    /// is an error when the session begins.
    ///
    /// ```
    /// use epitome::{Format, Session};
    /// use serde_json::json;
    ///
    /// let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    /// let session = Session::builder(Format::Anthropic, "claude-sonnet-4-5")
    ///     .tools(json!([{"name": "read_file", "input_schema": parameters}]))
    ///     .settings(json!({"max_tokens": 8_000, "temperature": 0.2}));
    /// ```
    pub fn tools(mut self, tools: impl Into<RequestJson>) -> Self {
        self.opening.push(OpeningEvent::Tools(tools.into()));
        self
    }

    /// Sets other members of a new session's requests, as an object: temperature, output limit, metadata. Anything but
    /// an object, and a member that has a method of its own, is an error when the session begins.
    pub fn settings(mut self, settings: impl Into<RequestJson>) -> Self {
        self.settings = Some(settings.into());
        self
    }

    /// Adds content beside each of the user's messages.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Sets the summariser that works in the background; by default the built-in one, at once and without a model.
    pub fn summariser(mut self, summariser: impl Summarize + 'static) -> Self {
        self.summariser = Some(Arc::new(summariser));
        self
    }

    /// Sets the summariser for summaries that a person asks for, with a focus or to hand over: a better model, if the
    /// one for background work is a fast one. By default the same.
    pub fn careful_summariser(mut self, summariser: impl Summarize + 'static) -> Self {
        self.careful = Some(Arc::new(summariser));
        self
    }

    /// Sets the prices of the summariser's model, so that the planner can weigh it. Without them, its cost is
    /// unknown.
    pub fn summariser_prices(mut self, prices: TokenPrices) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Sets whether a summary may be requested by continuing the session's own request: only if the summariser is the
    /// session's own model at its own endpoint.
    pub fn warm(mut self, warm: WarmRequestMode) -> Self {
        self.warm = warm;
        self
    }

    /// Sets the focus of every summary, and lines from plugins for the summariser.
    pub fn instructions(mut self, instructions: SummaryInstructions) -> Self {
        self.instructions = instructions;
        self
    }

    /// Sets the place where summaries are made; by default a task of this session.
    pub fn workers(mut self, workers: SummaryWorkers) -> Self {
        self.extras.workers = workers;
        self
    }

    /// Offers the agent a tool, `compact`, by which it asks for a compaction itself. Its definition must be among the
    /// tools: [`Format::compact_tool`] is it.
    pub fn compact_tool(mut self, offered: CompactTool) -> Self {
        self.extras.compact_tool = offered;
        self
    }

    /// Sets whether a message lets the agent go on after an automatic compaction; by default it does.
    pub fn auto_continue(mut self, on: AutoContinue) -> Self {
        self.extras.auto_continue = on;
        self
    }

    /// Sets whether the session is compacted as soon as an answer reports more usage than the model's input takes; by
    /// default it is.
    pub fn overflow_check(mut self, check: OverflowCheck) -> Self {
        self.overflow_check = check;
        self
    }

    /// Has a summary made when nothing has happened for this long, so that it is there when the cache has gone cold.
    pub fn idle(mut self, after: Duration) -> Self {
        self.extras.idle = Some(after);
        self
    }

    /// Keeps files with the status and the decisions of the session in a folder, and refers to them by path.
    pub fn memory_files(mut self, folder: impl AsRef<Path>) -> Self {
        self.extras.memory = Some(folder.as_ref().to_owned());
        self
    }

    /// Sets a callback that is called before a compaction starts.
    pub fn before_compaction(mut self, callback: impl Fn(&LifecycleEvent) + Send + Sync + 'static) -> Self {
        self.before = Some(CallbackSlot(Arc::new(callback)));
        self
    }

    /// Sets a callback that is called after a summary was made and checked.
    pub fn after_compaction(mut self, callback: impl Fn(&LifecycleEvent) + Send + Sync + 'static) -> Self {
        self.after = Some(CallbackSlot(Arc::new(callback)));
        self
    }

    /// Sets the clock, for tests and replays; by default the system's.
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = SessionClock(Arc::new(clock));
        self
    }

    /// Begins a new session.
    pub async fn begin(mut self) -> Result<Session, SessionError> {
        let mut opening = Vec::new();
        // Settings come first: those that come later would take system prompt and tools away.
        if let Some(settings) = self.settings.take() {
            opening.push(self.format.say_settings(settings.as_str())?);
        }
        for piece in std::mem::take(&mut self.opening) {
            opening.push(match piece {
                OpeningEvent::System(text) => self.format.say_system(&text),
                OpeningEvent::Tools(tools) => self.format.say_tools(tools.as_str())?,
            });
        }
        let session = SessionId::new(uuid::Uuid::now_v7());
        let thread = ThreadId::new(uuid::Uuid::now_v7());
        let new = NewSession {
            id: session,
            key: None,
            title: self.title.clone(),
            source: "library".to_owned(),
            created: Some((self.clock.0)()),
            principal: String::new(),
        };
        let session = self
            .start(move |store| {
                store.create_session(&new)?;
                let start = NewThread {
                    id: thread,
                    session,
                    name: "main".to_owned(),
                    key: None,
                    start: ThreadStart::Root,
                };
                store.open(&start)?;
                Ok((session, thread))
            })
            .await?;
        session.append(opening).await?;
        Ok(session)
    }

    /// Opens an existing session at its newest thread.
    pub async fn resume(self, session: SessionId) -> Result<Session, SessionError> {
        self.start(move |store| {
            let row = store.session(session)?;
            let threads = store.threads(session)?;
            let head = row.head.or_else(|| threads.first().map(|thread| thread.id));
            let head = head
                .ok_or_else(|| SessionError::Lineage(format!("the session {session} has no threads yet")))?;
            Ok((session, head))
        })
        .await
    }

    /// Opens a thread of an existing session.
    pub async fn resume_thread(self, thread: ThreadId) -> Result<Session, SessionError> {
        self.start(move |store| Ok((store.thread(thread)?.session, thread))).await
    }

    async fn start(
        self,
        find: impl FnOnce(&dyn Store) -> Result<(SessionId, ThreadId), SessionError> + Send + 'static,
    ) -> Result<Session, SessionError> {
        let hooks = Hooks::new(self.hooks)?;
        let policy = with_replaced_hooks(with_reducers(self.policy, self.reducers), &hooks);
        let setup = SessionSetup::new(self.format, &self.model, self.window, &policy, &self.profiles)
            .with_overflow_check(self.overflow_check);
        let (prices, cache) = (self.prices.unwrap_or_default(), CacheRules::default());
        // The built-in summariser minds the focus too.
        let focus = self.instructions.focus.as_deref().and_then(SummaryFocus::new);
        let maker = self.summariser.map(|summariser| SummariserConfig {
            summariser,
            careful: self.careful,
            terms: CacheTerms::new(&cache, &prices),
            prices,
            warm: self.warm,
            instructions: self.instructions,
        });
        let listeners =
            LifecycleListeners::new(self.before.map(|slot| slot.0), self.after.map(|slot| slot.0));
        let (place, clock) = (self.place, self.clock);
        let engine = blocking(move || {
            let store = open(place)?;
            let place = find(&*store)?;
            let setup = setup.with_recorded_counts(&*store);
            let (setup, hooks) = (Arc::new(setup), Arc::new(hooks));
            let mut engine = SessionEngine::open(store, place, setup, hooks, maker, listeners, clock)?;
            engine.focus = focus;
            Ok(engine)
        })
        .await?;
        let (engine, wake) = (Arc::new(engine), Arc::new(Notify::new()));
        if self.extras.workers == SummaryWorkers::Here {
            tokio::spawn(background_compactor::run(Arc::downgrade(&engine), Arc::clone(&wake)));
        }
        let profiles = Arc::new(self.profiles);
        Ok(Session::new(engine, wake, self.extras, profiles, policy, self.overflow_check))
    }
}

/// A policy with further reducers, before those that it runs at an epoch itself.
fn with_reducers(mut policy: Policy, reducers: Vec<AnyReducer>) -> Policy {
    let first = policy.reduce.iter().position(|step| step.when == StepTiming::AtEpoch);
    let first = first.unwrap_or(policy.reduce.len());
    let steps = reducers.into_iter().map(|reducer| PolicyStep { when: StepTiming::AtEpoch, reducer });
    policy.reduce.splice(first..first, steps);
    policy
}

/// The policy under which the text of hooks leaves the requests with the next message, where they say so.
pub(crate) fn with_replaced_hooks(mut policy: Policy, hooks: &Hooks) -> Policy {
    let hooks = hooks.replaced();
    if !hooks.is_empty() {
        let reducer = AnyReducer::DropInjected(DropInjected { hooks });
        policy.reduce.push(PolicyStep { when: StepTiming::EveryCall, reducer });
    }
    policy
}

fn open(place: SessionStorage) -> Result<Arc<dyn Store>, SessionError> {
    let options = StoreOptions { counter: Some(Tokenizer::O200k.counter()), ..StoreOptions::default() };
    Ok(match place {
        SessionStorage::Store(store) => store,
        SessionStorage::File(path) => open_store(&StoreLocation::named(path)?, options)?,
        SessionStorage::Temporary => temporary_store(options)?,
    })
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
