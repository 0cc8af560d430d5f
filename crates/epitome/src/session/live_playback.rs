//! A recorded session, made again as a live one: by the engine of sessions, with a log of its own and limits that are learnt from
//! call to call.
//!
//! A [simulation](crate::simulate) makes the same requests without a log. What both come to at the same window can be compared.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use epitome_core::{
    Event, Fact, SessionId, ThreadId, Tokens,
    event::{Timestamp, Usage},
    id::{AnswerId, ModelName},
    policy::Policy,
    profile::{Profiles, Tokenizer},
};
use epitome_store::{NewThread, Store, StoreOptions, ThreadStart, records::NewSession, temporary_store};
use epitome_wire::{Format, ModelAnswer, StreamEnding};

use super::{
    builder::SessionExtras,
    engine::{SessionClock, SessionEngine, SessionRequest},
    error::SessionError,
    lifecycle::LifecycleListeners,
    setup::SessionSetup,
};

/// Settings of the session that a recorded one is made again as.
#[derive(Clone, Copy, Debug)]
pub struct LivePlayback<'p> {
    /// Format of the requests.
    pub format: Format,
    /// Model that is asked.
    pub model: &'p str,
    /// Size of its window, input and output together; `None` for the profile's.
    pub window: Option<Tokens>,
    /// Policy of the session.
    pub policy: &'p Policy,
    /// Known models.
    pub profiles: &'p Profiles,
}

/// A session that was made again.
#[derive(Debug)]
pub struct PlayedThread {
    /// Its store.
    pub store: Arc<dyn Store>,
    /// Its thread.
    pub thread: ThreadId,
    /// Number of calls that could not be made, because their essential content did not fit.
    pub refused: u64,
}

impl LivePlayback<'_> {
    /// Makes the session again: each recorded answer is taken for the answer to the session's own request, with the usage that
    /// `answer` gives for it.
    pub fn play<'e>(
        &self,
        events: impl IntoIterator<Item = &'e Event>,
        mut answer: impl FnMut(&SessionRequest, Timestamp, &Event) -> Usage,
    ) -> Result<PlayedThread, SessionError> {
        let clock = Arc::new(AtomicI64::new(0));
        let engine = self.open(&clock)?;
        let (mut said, mut refused) = (Vec::new(), 0);
        let (mut answering, mut has_history): (Option<AnswerId>, bool) = (None, false);
        for event in events {
            if let Some(Timestamp(now)) = event.time {
                clock.store(now, Ordering::Relaxed);
            }
            let Fact::AssistantSaid { answer: id, .. } = &event.fact else {
                // What the recorded calls used is not what these use.
                if !matches!(event.fact, Fact::UsageReported { .. }) {
                    has_history |= !matches!(event.fact, Fact::Instructed { .. } | Fact::ModelChanged { .. });
                    said.push(event.clone());
                }
                continue;
            };
            let goes_on = id.is_some() && *id == answering;
            answering.clone_from(id);
            if goes_on || !has_history {
                said.push(event.clone());
                continue;
            }
            engine.append(&said)?;
            said.clear();
            match engine.next_request(&SessionExtras::none()) {
                Ok(request) => {
                    let usage = answer(&request, engine.now(), event);
                    engine.answered(&self.answer(event, usage))?;
                }
                Err(SessionError::Request(_)) => {
                    refused += 1;
                    said.push(event.clone());
                }
                Err(error) => return Err(error),
            }
        }
        engine.append(&said)?;
        Ok(PlayedThread { store: Arc::clone(&engine.store), thread: engine.thread, refused })
    }

    fn open(&self, clock: &Arc<AtomicI64>) -> Result<SessionEngine, SessionError> {
        let counter = Some(Tokenizer::O200k.counter());
        let store = temporary_store(StoreOptions { counter, ..StoreOptions::default() })?;
        let session = SessionId::new(uuid::Uuid::now_v7());
        let thread = ThreadId::new(uuid::Uuid::now_v7());
        store.create_session(&NewSession {
            id: session,
            key: None,
            title: "played again".to_owned(),
            source: "playback".to_owned(),
            created: None,
            principal: String::new(),
        })?;
        let (name, key, start) = ("main".to_owned(), None, ThreadStart::Root);
        store.open(&NewThread { id: thread, session, name, key, start })?;
        let Self { format, model, window, policy, profiles, .. } = *self;
        let setup = SessionSetup::new(format, model, window, policy, profiles);
        let time = Arc::clone(clock);
        let clock = SessionClock(Arc::new(move || Timestamp(time.load(Ordering::Relaxed))));
        let listeners = LifecycleListeners::new(None, None);
        SessionEngine::open(store, (session, thread), Arc::new(setup), Arc::default(), None, listeners, clock)
    }

    fn answer(&self, event: &Event, usage: Usage) -> ModelAnswer {
        let model = Some(ModelName(self.model.to_owned()));
        let answer = match &event.fact {
            Fact::AssistantSaid { answer, .. } => answer.clone(),
            _ => None,
        };
        let reported =
            Event::from_fact(Fact::UsageReported { answer, model: model.clone(), usage }, event.time);
        ModelAnswer {
            events: vec![event.clone(), reported],
            model,
            finish: None,
            ending: StreamEnding::Complete,
            calls: event.fact.calls().cloned().collect(),
            usage: Some(usage),
        }
    }
}
