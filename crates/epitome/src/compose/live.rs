//! What is held of the threads whose requests are composed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use epitome_core::{
    SessionId, ThreadId, Tokens,
    cost::Terms,
    event::{Time, Usage},
    profile::{CacheRules, Prices, Profiles},
};
use epitome_store::{Sqlite, StoreError};
use epitome_wire::Format;
use tokio::runtime::Handle;

use super::{Composing, Summariser, weaving::Loom};
use crate::{
    observe::kept::Kept,
    session::{
        SessionError, Warm,
        compactor::{Worked, work_one, worker},
        desk::{Clock, Desk, Maker},
        inbox::Appended,
        setup::Setup,
    },
    summarise::{Instructions, Summarize, Summarizing, SummaryRequest},
};

/// A thread whose requests are composed.
#[derive(Debug)]
pub(crate) struct Live {
    pub(super) desk: Arc<Desk>,
    setup: Arc<Setup>,
    loom: Mutex<Loom>,
    /// Who summarises with the newest request's means.
    newest: Option<Arc<Newest>>,
    recall: bool,
}

impl Live {
    /// Of a thread that is made with its first call.
    pub(super) fn fresh(
        store: &Arc<Sqlite>,
        place: (SessionId, ThreadId),
        setup: Arc<Setup>,
        composing: &Composing,
        summariser: Option<&Summariser>,
    ) -> Self {
        let (maker, newest) = maker(&setup, composing, summariser);
        let heard = composing.heard.listeners.clone();
        let desk = Desk::fresh(Arc::clone(store), place, Arc::clone(&setup), maker, heard, clock());
        Self { desk: Arc::new(desk), setup, loom: Mutex::default(), newest, recall: composing.recall }
    }

    /// Of a thread that is there.
    pub(super) fn open(
        store: &Arc<Sqlite>,
        place: (SessionId, ThreadId),
        setup: Arc<Setup>,
        composing: &Composing,
        summariser: Option<&Summariser>,
    ) -> Result<Self, SessionError> {
        let (maker, newest) = maker(&setup, composing, summariser);
        let heard = composing.heard.listeners.clone();
        let loom = Loom::restore(store, place.1)?;
        let (hooks, of) = (Arc::default(), Arc::clone(&setup));
        let desk = Desk::open(Arc::clone(store), place, of, hooks, maker, heard, clock())?;
        Ok(Self { desk: Arc::new(desk), setup, loom: Mutex::new(loom), newest, recall: composing.recall })
    }

    pub(super) fn loom(&self) -> MutexGuard<'_, Loom> {
        // Whoever panicked while holding it let go of the whole thread.
        self.loom.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its calls are made with this.
    pub(super) fn is_set_up(&self, setup: &Arc<Setup>) -> bool {
        self.desk.state().is_ok_and(|state| Arc::ptr_eq(&state.setup, setup))
    }

    /// What its calls are made with.
    pub(super) fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup)
    }

    /// Whether its model is offered a tool by which it gets back what was left out.
    pub(super) fn offers_recall(&self) -> bool {
        self.recall
    }

    /// How many letters there is room for in the next request, by and large; `None` if nobody knows a limit.
    pub(super) fn room(&self) -> Result<Option<usize>, StoreError> {
        let state = match self.desk.state() {
            Ok(state) => state,
            Err(SessionError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let ceiling = state.budget().ceiling();
        let room = ceiling.less(state.view.context().tokens());
        Ok((ceiling != Tokens::MAX).then(|| usize::try_from(room.0.saturating_mul(3)).unwrap_or(usize::MAX)))
    }

    /// The newest request came with these means.
    pub(super) fn summarise_with(&self, summariser: Option<&Summariser>) {
        if let (Some(newest), Some(summariser)) = (&self.newest, summariser) {
            newest.is_now(Arc::clone(&summariser.summarise));
        }
    }

    /// A call was answered, and the provider counted this.
    pub(crate) fn counted(&self, call: u64, usage: &Usage) {
        self.desk.inbox.counted(call, usage);
    }

    /// Something was appended to the thread.
    pub(crate) fn appended(&self, appended: Appended) {
        self.desk.inbox.appended(appended);
    }

    /// Works on a summary that is due, in the background, if there is a runtime to do that in.
    pub(super) fn work(&self) {
        if self.desk.maker.is_none() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let desk = Arc::clone(&self.desk);
        runtime.spawn(async move {
            let worker = worker();
            // Whatever goes wrong is told to those who listen, and tried again with a later call.
            while let Ok(Worked::One) = work_one(&desk, &worker).await {}
        });
    }
}

/// The threads whose requests are composed, as many as are kept.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    kept: Mutex<Kept<Arc<Live>>>,
    setups: Mutex<Setups>,
}

/// How requests are made, by format, model, window and the most that is answered.
type Setups = HashMap<(Format, String, Option<Tokens>, Option<Tokens>), Arc<Setup>>;

/// How many models anybody asks.
const MODELS: usize = 256;

impl Lives {
    pub(crate) fn get(&self, thread: ThreadId) -> Option<Arc<Live>> {
        self.kept().get(thread).cloned()
    }

    pub(super) fn put(&self, thread: ThreadId, live: &Arc<Live>) {
        // A token is about four bytes.
        let weight = Tokens(live.loom().weight() as u64 / 4 + 1_000);
        self.kept().put(thread, Arc::clone(live), weight);
    }

    pub(super) fn forget(&self, thread: ThreadId) {
        drop(self.kept().take(thread));
    }

    /// How requests of a model are made.
    pub(super) fn setup(
        &self,
        format: Format,
        model: &str,
        window: Option<Tokens>,
        answer: Option<Tokens>,
        composing: &Composing,
    ) -> Arc<Setup> {
        let mut setups = self.setups.lock().unwrap_or_else(PoisonError::into_inner);
        if setups.len() >= MODELS {
            setups.clear();
        }
        let make = || {
            let setup = Setup::new(format, model, window, &composing.policy, &composing.profiles, Tokens(0));
            Arc::new(match answer {
                Some(answer) => setup.answered_with(window, answer),
                None => setup,
            })
        };
        let setup = setups.entry((format, model.to_owned(), window, answer)).or_insert_with(make);
        Arc::clone(setup)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<Arc<Live>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clock() -> Clock {
    Clock(Arc::new(|| Time(jiff::Timestamp::now().as_millisecond())))
}

/// Who makes the summaries of a thread.
fn maker(
    setup: &Setup,
    composing: &Composing,
    summariser: Option<&Summariser>,
) -> (Option<Maker>, Option<Arc<Newest>>) {
    let Some(summariser) = summariser else { return (None, None) };
    let prices = prices(&composing.profiles, &summariser.model);
    let newest = Arc::new(Newest::new(Arc::clone(&summariser.summarise)));
    let terms = match (&summariser.warm, &setup.terms) {
        (Warm::IfCheaper, Some(terms)) => terms.clone(),
        _ => Terms::new(&CacheRules::default(), &prices),
    };
    let maker = Maker {
        summariser: Arc::clone(&newest) as Arc<dyn Summarize>,
        careful: None,
        prices,
        terms,
        warm: summariser.warm,
        instructions: Instructions::default(),
    };
    (Some(maker), Some(newest))
}

fn prices(profiles: &Profiles, model: &str) -> Prices {
    profiles.find(model).map(|profile| profile.prices).unwrap_or_default()
}

/// A summariser that goes by whatever the newest request came with.
#[derive(Debug)]
struct Newest {
    name: String,
    now: Mutex<Arc<dyn Summarize>>,
}

impl Newest {
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

impl Summarize for Newest {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> Tokens {
        self.now().window()
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> Summarizing<'a> {
        let now = self.now();
        Box::pin(async move { now.summarize(request).await })
    }
}
