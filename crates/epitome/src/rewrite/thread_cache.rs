//! Cached state of the threads whose requests are composed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use epitome_core::{
    SessionId, ThreadId, Tokens,
    cost::CacheTerms,
    event::{Timestamp, Usage},
    policy::Policy,
    profile::{CacheRules, Profiles, TokenPrices},
    summary::SummaryFocus,
};
use epitome_store::{Store, StoreError, records::ThreadOpening};
use epitome_wire::Format;
use tokio::runtime::Handle;

use super::{
    LifecycleHub, RewriteSettings, SessionFunctions, SessionSummariser,
    client_cache::ClientPrefixes,
    fork_inheritance::ForkInheritance,
    relayed_threads::{RelayedThread, RelayedThreadCache},
    rewrite_body::RewriteState,
};
use crate::{
    recorder::PendingRecord,
    session::{
        SessionError, WarmRequestMode,
        background_compactor::{WorkOutcome, blocking, work_one, worker},
        builder::with_replaced_hooks,
        engine::{SessionClock, SessionEngine, SummariserConfig},
        manual_compaction,
        pending_updates::AppendedEvents,
        setup::{RequestLimit, SessionSetup},
    },
    summarise::{SummariserScope, Summarize, SummaryFuture, SummaryRequest},
    thread_lru::ThreadLru,
};

/// Cached state of a thread whose requests are composed.
#[derive(Debug)]
pub(crate) struct CachedThread {
    pub(super) engine: Arc<SessionEngine>,
    setup: Arc<SessionSetup>,
    rewrite_state: Mutex<RewriteState>,
    /// Summariser with the newest request's model and key.
    newest: Option<Arc<ClientModelSummariser>>,
    functions: Arc<SessionFunctions>,
    /// True while a task waits for a pause.
    watches_idle: Arc<AtomicBool>,
}

/// Means by which threads are opened for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadAccess<'r> {
    pub(super) store: &'r Arc<dyn Store>,
    pub(super) composing: &'r RewriteSettings,
    pub(super) summariser: Option<&'r SessionSummariser>,
    /// Receives what happens to their summaries.
    pub(super) heard: &'r LifecycleHub,
}

impl CachedThread {
    /// For a thread that is made with its first call.
    pub(super) fn fresh(
        access: ThreadAccess<'_>,
        place: (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
    ) -> Self {
        let (maker, newest) = access.maker(&setup);
        let (store, heard) = (Arc::clone(access.store), access.heard.listeners.clone());
        let engine = SessionEngine::fresh(store, place, Arc::clone(&setup), maker, heard, clock());
        Self::of(access, engine, setup, Mutex::default(), newest)
    }

    fn of(
        access: ThreadAccess<'_>,
        mut engine: SessionEngine,
        setup: Arc<SessionSetup>,
        rewrite_state: Mutex<RewriteState>,
        newest: Option<Arc<ClientModelSummariser>>,
    ) -> Self {
        let functions = Arc::clone(&access.composing.functions);
        engine.hooks = Arc::clone(&functions.hooks);
        engine.focus = functions.instructions.focus.as_deref().and_then(SummaryFocus::new);
        engine.memory = functions.memory.as_ref().map(|folder| folder.join(engine.session.to_string()));
        Self {
            engine: Arc::new(engine),
            setup,
            rewrite_state,
            newest,
            functions,
            watches_idle: Arc::default(),
        }
    }

    /// For an existing thread. One in which no call was made yet takes over the state of the thread it was forked from.
    pub(super) fn open(
        access: ThreadAccess<'_>,
        place: (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
        inherited: Option<&ForkInheritance>,
    ) -> Result<Self, SessionError> {
        let (maker, newest) = access.maker(&setup);
        let (store, heard) = (Arc::clone(access.store), access.heard.listeners.clone());
        let mut rewrite_state = RewriteState::restore(&*store, place.1)?;
        let (hooks, of) = (Arc::default(), Arc::clone(&setup));
        let engine = SessionEngine::open(store, place, of, hooks, maker, heard, clock())?;
        if let Some(inherited) = inherited {
            engine.inherit(inherited)?;
            rewrite_state.inherits(inherited);
        }
        Ok(Self::of(access, engine, setup, Mutex::new(rewrite_state), newest))
    }

    /// The same thread, with no notes written for its model.
    pub(super) fn without_memory(mut self) -> Self {
        if let Some(engine) = Arc::get_mut(&mut self.engine) {
            engine.memory = None;
        }
        self
    }

    /// State of its requests. A panic while it was locked makes it invalid, so it is read again.
    pub(super) fn rewrite_state(&self) -> Result<MutexGuard<'_, RewriteState>, SessionError> {
        match self.rewrite_state.lock() {
            Ok(rewrite_state) => Ok(rewrite_state),
            Err(poisoned) => {
                let mut rewrite_state = poisoned.into_inner();
                *rewrite_state = RewriteState::restore(&*self.engine.store, self.engine.thread)?;
                self.rewrite_state.clear_poison();
                Ok(rewrite_state)
            }
        }
    }

    /// Drops the state and reads it again: a request that was rewritten in vain leaves it wrong.
    pub(super) fn reload(&self) -> Result<(), SessionError> {
        *self.rewrite_state()? = RewriteState::restore(&*self.engine.store, self.engine.thread)?;
        Ok(())
    }

    /// Returns true if its calls are made with `setup`, and its functions are those of `composing`.
    pub(super) fn is_set_up(&self, setup: &SessionSetup, composing: &RewriteSettings) -> bool {
        self.setup.is_like(setup) && Arc::ptr_eq(&self.functions, &composing.functions)
    }

    /// Sets the next request's own limit.
    pub(super) fn is_limited(&self, limit: RequestLimit) -> Result<(), SessionError> {
        self.engine.state()?.limit = Some(limit);
        Ok(())
    }

    /// Setup of its calls.
    pub(crate) fn setup(&self) -> Arc<SessionSetup> {
        Arc::clone(&self.setup)
    }

    /// Approximate number of letters that the next request has room for; `None` if no limit is known.
    pub(super) fn remaining_chars(&self) -> Result<Option<usize>, StoreError> {
        let state = match self.engine.state() {
            Ok(state) => state,
            Err(SessionError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let ceiling = state.budget().ceiling();
        let room = ceiling.less(state.view().context().tokens());
        Ok((ceiling != Tokens::MAX).then(|| usize::try_from(room.0.saturating_mul(3)).unwrap_or(usize::MAX)))
    }

    /// Sets the summariser that the newest request came with.
    pub(super) fn summarise_with(&self, summariser: Option<&SessionSummariser>) {
        if let (Some(newest), Some(summariser)) = (&self.newest, summariser) {
            newest.is_now(Arc::clone(&summariser.summarise));
        }
    }

    /// Notes the provider's count for an answered call.
    pub(crate) fn counted(&self, call: u64, usage: &Usage) {
        self.engine.inbox.counted(call, usage);
    }

    /// Notes that events were appended to the thread.
    pub(crate) fn appended(&self, appended: AppendedEvents) {
        self.engine.inbox.appended(appended);
    }

    /// Works on a summary that is due, in the background, if there is a runtime for it.
    pub(super) fn work(&self) {
        if self.engine.maker.is_none() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(work_off(Arc::clone(&self.engine)));
        if let Some(after) = self.functions.idle
            && !self.watches_idle.swap(true, Ordering::AcqRel)
        {
            runtime.spawn(watch_idle(Arc::downgrade(&self.engine), Arc::clone(&self.watches_idle), after));
        }
    }
}

/// Works on the summaries that are due. Failures are reported to listeners, and retried with a later call.
async fn work_off(engine: Arc<SessionEngine>) {
    let worker = worker();
    while let Ok(WorkOutcome::One) = work_one(&engine, &worker).await {}
}

/// Waits until a thread has had no call for some time, and then orders a summary, if there is enough to summarise.
async fn watch_idle(engine: Weak<SessionEngine>, watches: Arc<AtomicBool>, after: Duration) {
    let last_call = || Some(engine.upgrade()?.state().ok()?.last_call());
    let mut before = last_call();
    loop {
        tokio::time::sleep(after).await;
        let now = last_call();
        if now == before {
            break;
        }
        before = now;
    }
    // A call from here on is watched anew.
    watches.store(false, Ordering::Release);
    let Some(engine) = engine.upgrade() else { return };
    let asked = Arc::clone(&engine);
    match blocking(move || manual_compaction::order_if_idle(&asked, after)).await {
        Ok(true) => work_off(engine).await,
        Ok(false) => {}
        Err(error) => tracing::warn!(target: "epitome::compaction", %error, "an idle session"),
    }
}

/// Cache of the threads whose requests are composed, bounded.
#[derive(Debug)]
pub(crate) struct ThreadCache {
    kept: Mutex<ThreadLru<Arc<CachedThread>>>,
    setups: Mutex<SetupsByModel>,
    /// Recent requests of clients.
    pub(crate) clients: ClientPrefixes,
    /// Threads whose newest requests were relayed as they came.
    relayed: RelayedThreadCache,
}

/// Setups by format and model, one for each policy in use there.
type SetupsByModel = HashMap<(Format, String), Vec<CachedSetup>>;

/// A setup with its policy, and the time at which it was made.
type CachedSetup = (Policy, Arc<SessionSetup>, Instant);

/// Time for which a setup is used. After it the accuracy of counts is read again, from the sessions there are by then.
const SETUP_LIFETIME: Duration = Duration::from_mins(10);

/// Number of models for which setups are kept.
const MODELS: usize = 256;

/// Number of policies kept for each model.
const POLICIES: usize = 64;

/// Total weight of the cache: the last bodies of some hundred large sessions, which are the largest part of it.
const MAX_CACHE_WEIGHT: Tokens = Tokens(24_000_000);

impl Default for ThreadCache {
    fn default() -> Self {
        Self {
            kept: Mutex::new(ThreadLru::new(MAX_CACHE_WEIGHT)),
            setups: Mutex::default(),
            clients: ClientPrefixes::default(),
            relayed: RelayedThreadCache::default(),
        }
    }
}

impl ThreadCache {
    pub(crate) fn get(&self, thread: ThreadId) -> Option<Arc<CachedThread>> {
        self.kept().get(thread).cloned()
    }

    /// State of a request's thread: as others have left it since, or as the ticket holds it.
    pub(super) fn of(&self, ticket: &PendingRecord) -> Option<Arc<CachedThread>> {
        self.get(ticket.thread).or_else(|| ticket.cached.clone())
    }

    pub(super) fn put(&self, thread: ThreadId, cached: &Arc<CachedThread>) {
        // A token is about four bytes.
        let weight = Tokens(
            cached.rewrite_state().map_or(0, |rewrite_state| rewrite_state.weight()) as u64 / 4 + 1_000,
        );
        self.kept().put(thread, Arc::clone(cached), weight);
        drop(self.relayed.take(thread));
    }

    pub(crate) fn forget(&self, thread: ThreadId) {
        drop(self.kept().take(thread));
        drop(self.relayed.take(thread));
    }

    /// State of a thread from which a request to be relayed continues, or a new one if the request opens it.
    pub(crate) fn relayed(
        &self,
        store: &dyn Store,
        thread: ThreadId,
        opens: Option<&ThreadOpening>,
    ) -> Result<RelayedThread, SessionError> {
        match (opens, self.relayed.take(thread)) {
            (Some(_), _) => Ok(RelayedThread::fresh()),
            (None, Some(relayed)) => Ok(relayed),
            (None, None) => RelayedThread::read(store, thread),
        }
    }

    /// Notes that the newest request of a thread was relayed: the next one to be composed reads the thread again.
    pub(crate) fn note_relayed(&self, thread: ThreadId, relayed: RelayedThread) {
        drop(self.kept().take(thread));
        self.relayed.put(thread, relayed);
    }

    /// Notes that events were appended to a thread whose newest request was relayed.
    pub(crate) fn appended(&self, thread: ThreadId, appended: AppendedEvents) {
        self.relayed.appended(thread, appended);
    }

    /// Setup for requests to a model.
    pub(super) fn setup(
        &self,
        store: &dyn Store,
        format: Format,
        model: &str,
        composing: &RewriteSettings,
    ) -> Arc<SessionSetup> {
        let key = (format, model.to_owned());
        // A policy or profile may be changed under its name while the gateway runs: its content counts, not its name.
        let policy = with_replaced_hooks(composing.policy.clone(), &composing.functions.hooks);
        let check = composing.functions.overflow_check;
        let profile = composing.profiles.find(model).ok();
        let is_asked = |(known, setup, _): &CachedSetup| {
            *known == policy && setup.overflow_check == check && setup.profile.as_ref() == profile
        };
        if let Some(known) = self.setups().get(&key)
            && let Some((_, setup, made)) = known.iter().find(|one| is_asked(one))
            && made.elapsed() < SETUP_LIFETIME
        {
            return Arc::clone(setup);
        }
        let setup = SessionSetup::new(format, model, None, &policy, &composing.profiles);
        let setup = Arc::new(setup.with_overflow_check(check).with_recorded_counts(store));
        let mut setups = self.setups();
        if setups.len() >= MODELS {
            setups.clear();
        }
        let known = setups.entry(key).or_default();
        known.retain(|one| !is_asked(one));
        if known.len() >= POLICIES {
            known.clear();
        }
        known.push((policy, Arc::clone(&setup), Instant::now()));
        setup
    }

    fn setups(&self) -> MutexGuard<'_, SetupsByModel> {
        self.setups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, ThreadLru<Arc<CachedThread>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clock() -> SessionClock {
    SessionClock(Arc::new(|| Timestamp(jiff::Timestamp::now().as_millisecond())))
}

impl ThreadAccess<'_> {
    /// Summariser settings of a thread.
    fn maker(self, setup: &SessionSetup) -> (Option<SummariserConfig>, Option<Arc<ClientModelSummariser>>) {
        let Some(summariser) = self.summariser else { return (None, None) };
        let prices = prices(&self.composing.profiles, &summariser.model);
        let newest = Arc::new(ClientModelSummariser::new(Arc::clone(&summariser.summarise)));
        let terms = match (&summariser.warm, &setup.calls.terms) {
            (WarmRequestMode::IfCheaper, Some(terms)) => terms.clone(),
            _ => CacheTerms::new(&CacheRules::default(), &prices),
        };
        let maker = SummariserConfig {
            summariser: Arc::clone(&newest) as Arc<dyn Summarize>,
            careful: self.composing.functions.careful.clone(),
            prices,
            terms,
            warm: summariser.warm,
            instructions: self.composing.functions.instructions.clone(),
        };
        (Some(maker), Some(newest))
    }
}

fn prices(profiles: &Profiles, model: &str) -> TokenPrices {
    profiles.find(model).map(|profile| profile.prices).unwrap_or_default()
}

/// A summariser that uses the model and key of the newest request.
#[derive(Debug)]
struct ClientModelSummariser {
    name: String,
    now: Mutex<Arc<dyn Summarize>>,
}

impl ClientModelSummariser {
    fn new(now: Arc<dyn Summarize>) -> Self {
        Self { name: now.name().to_owned(), now: Mutex::new(now) }
    }

    fn is_now(&self, now: Arc<dyn Summarize>) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn now(&self) -> Arc<dyn Summarize> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Summarize for ClientModelSummariser {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> Tokens {
        self.now().window()
    }

    fn scope(&self) -> SummariserScope {
        self.now().scope()
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        let now = self.now();
        Box::pin(async move { now.summarize(request).await })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use epitome_core::{
        Seq, TokenCounter,
        meter::{Meter, TokenOverhead},
        policy::Policy,
    };
    use epitome_store::{StoreOptions, temporary_store};

    use super::{super::*, *};
    use crate::recorder::{EndedExchange, ExchangeOutcome, FinishOutcome, RequestArrival, TrafficRecorder};

    const FORMAT: Format = Format::OpenaiChat;

    /// A counter of words that also counts how often each text was counted.
    #[derive(Default)]
    struct Asked(Mutex<HashMap<String, u64>>);

    impl TokenCounter for Asked {
        fn name(&self) -> &'static str {
            "asked"
        }

        fn count(&self, text: &str) -> Tokens {
            *self.0.lock().unwrap().entry(text.to_owned()).or_default() += 1;
            Tokens(text.split_whitespace().count() as u64)
        }
    }

    /// A recorder whose store uses the same counter as its sessions.
    fn recorder(composing: &RewriteSettings, asked: &Arc<Asked>) -> TrafficRecorder {
        let counter = Some(Arc::clone(asked) as _);
        let store = temporary_store(StoreOptions { counter, ..StoreOptions::default() }).unwrap();
        let recorder = TrafficRecorder::new(store);
        let usual = SessionSetup::new(FORMAT, "m", None, &composing.policy, &composing.profiles);
        let meter = Arc::new(Meter::new(Arc::clone(asked) as _, TokenOverhead::default()));
        let setup = Arc::new(SessionSetup { meter, ..usual });
        let setups = vec![(composing.policy.clone(), setup, Instant::now())];
        recorder.threads.setups.lock().unwrap().insert((FORMAT, "m".to_owned()), setups);
        recorder
    }

    fn answer(recorder: &TrafficRecorder, ticket: PendingRecord, text: &str) {
        let answer = format!(
            r#"{{"id": "{text}", "object": "chat.completion", "created": 1, "model": "m", "choices": [{{"index": 0,
                "finish_reason": "stop", "message": {{"role": "assistant", "content": "{text}"}}}}]}}"#
        );
        let end = EndedExchange {
            answer: FORMAT.decode_response(&answer).unwrap(),
            ending: ExchangeOutcome::Complete,
            status: Some(200),
            bytes: 10,
            first_byte: None,
            took: Duration::ZERO,
            at: Timestamp(2),
            observed: None,
            told: None,
        };
        let finish = recorder.begin_finish(ticket, end).wait();
        assert!(matches!(finish, Ok(FinishOutcome::Done)));
    }

    fn composing(profiles: Profiles) -> RewriteSettings {
        RewriteSettings {
            policy: Policy::named("epitome").unwrap().clone(),
            profiles: Arc::new(profiles),
            window: None,
            holdout: 0,
            command: None,
            recall: false,
            own_items: false,
            with_answers: true,
            heard: LifecycleHub::default(),
            functions: Arc::default(),
        }
    }

    #[test]
    fn a_changed_profile_is_used_at_once() {
        let (cache, store) = (ThreadCache::default(), temporary_store(StoreOptions::default()).unwrap());
        let window = |tokens: u64| {
            let mut profiles = Profiles::builtin();
            let profile = format!("[[model]]\nname = \"m\"\nwire = \"openai-chat\"\nwindow = {tokens}");
            profiles.with_overrides(&profile).unwrap();
            cache.setup(&*store, FORMAT, "m", &composing(profiles))
        };
        let (before, same, after) = (window(50_000), window(50_000), window(20_000));
        assert!(Arc::ptr_eq(&before, &same));
        assert!(after.limit < before.limit, "{:?} {:?}", after.limit, before.limit);
    }

    #[test]
    fn what_is_said_in_exchanges_that_are_written_with_their_answers_is_counted_once() {
        let composing = composing(Profiles::builtin());
        let asked = Arc::new(Asked::default());
        let recorder = recorder(&composing, &asked);
        let message = |role: &str, text: &str| format!(r#"{{"role": "{role}", "content": "{text}"}}"#);
        let mut messages = vec![message("system", "Be brief.")];
        let mut thread = None;
        for turn in 0..3 {
            messages.push(message("user", &format!("Question number {turn}?")));
            let body = format!(r#"{{"model": "m", "messages": [{}]}}"#, messages.join(", "));
            let header = |name: &str| (name == "x-epitome-session").then_some("one");
            let arrival = RequestArrival {
                principal: "",
                format: FORMAT,
                body: &body,
                shared: None,
                header: &header,
                at: Timestamp(1),
                purpose: None,
            };
            let composed = compose(&recorder, &arrival, &composing, &RequestOverrides::default()).unwrap();
            assert!(composed.ticket.unwritten_bytes() > 0, "turn {turn}: it waits for its answer");
            assert_eq!(*thread.get_or_insert(composed.ticket.thread), composed.ticket.thread);
            let said = format!("Answer number {turn}.");
            answer(&recorder, composed.ticket, &said);
            messages.push(message("assistant", &said));
        }
        let mut texts = 0;
        for logged in recorder.store().read(thread.unwrap(), Seq(1), 100).unwrap() {
            logged.event.visit_counted(&mut |text| {
                texts += 1;
                assert_eq!(asked.0.lock().unwrap().get(text), Some(&1), "{text}");
            });
        }
        assert_eq!(texts, 7);
    }
}
