//! New threads: sessions that begin, forks, subagents, and requests of clients beside a conversation.
//!
//! A thread's name follows from its content, so that two gateways that see one request make one thread; only a
//! request beside a conversation is a new thread each time. Its place is that of its session, and a session's is the
//! time it began: rows written at one time stand together in every index, and old pages are left alone.

use epitome_core::{Digest, EventId, Seq, SessionId, ThreadId};
use epitome_store::{
    NewThread, StoreError, ThreadStart,
    records::{HeadPromotion, NewSession, ThreadOpening, ThreadRow},
};
use epitome_wire::caller::{Caller, SessionIdSource};
use uuid::Uuid;

use super::{RequestPlace, RequestPlacer, ThreadKind, history_match::HistoryMatch, is_aside};
use crate::{
    import::title_of,
    recorder::{PlacementKind, subagent_parent},
};

/// Threads known under the ids of a client.
#[derive(Default)]
struct ClientThreads {
    session: Option<SessionId>,
    /// The newest thread of the conversation.
    main: Option<ThreadRow>,
}

impl RequestPlacer<'_, '_> {
    /// A fork from inside a thread: in its session if the client says it is the same, else in one of its own.
    pub(super) fn fork(
        &self,
        found: &HistoryMatch,
        name: &str,
        head: HeadPromotion,
    ) -> Result<RequestPlace, StoreError> {
        let own = self.recorder.store.session_name(found.thread.session)?;
        let stays =
            self.caller.session.is_none() || own.key == self.caller.session || self.caller.parent.is_some();
        let opening = self.changed_opening(found.thread.id, found.event.seq)?;
        let (session, made) = if stays {
            (found.thread.session, None)
        } else {
            let id = self.session_id(Some(self.end()))?;
            (id, Some(self.new_session(id, &own.title)))
        };
        let key = if is_aside(name) { None } else { self.key().map(str::to_owned) };
        let place = format!("{}:{}", found.event.thread, found.event.seq);
        let id = self.thread_id(session, name, &place, key.as_deref());
        let start = ThreadStart::Fork { of: found.thread.id, at: found.event.seq };
        let line = ThreadKind::named(name, &start);
        let thread = NewThread { id, session, name: name.to_owned(), start, key: key.clone() };
        Ok(RequestPlace {
            session,
            thread: id,
            after: found.event.seq,
            link: self.end(),
            new: opening.into_iter().chain(self.seen.events(found.units)).collect(),
            opens: Some(ThreadOpening { session: made, thread, head }),
            placed: PlacementKind::Forked,
            key,
            line,
        })
    }

    /// A new session, or a new thread of one that is known by its id.
    pub(super) fn begin(&self) -> Result<RequestPlace, StoreError> {
        let family = self.family()?;
        if self.is_subagent() {
            let words = self.seen.events(0).iter().find_map(title_of);
            let start = match &family.main {
                Some(parent) => subagent_parent::start(&*self.recorder.store, parent, words.as_deref())?,
                None => ThreadStart::Spawned { by: None, call: None },
            };
            return self.open(family.session, &self.agent_name(), start);
        }
        match (family.session, family.main) {
            (Some(_), Some(_)) => match self.past()? {
                // Another gateway has written this very history since it was looked for.
                Some(found) if self.is_ours(&found.thread) => {
                    self.from(self.waiting(&found)?.as_ref().unwrap_or(&found))
                }
                // The user named the session, so the request belongs to it.
                _ if self.caller.naming == SessionIdSource::User => {
                    self.open(family.session, "main", ThreadStart::Root)
                }
                // The id is taken by another history: some clients give it twice.
                _ => Ok(self.open_in(self.session_id(Some(self.end()))?, "main", ThreadStart::Root)),
            },
            // A session of which only a title or a summary is known so far, or nothing at all.
            (session, None) | (session @ None, Some(_)) => self.open(session, "main", ThreadStart::Root),
        }
    }

    pub(super) fn agent_name(&self) -> String {
        format!("agent {}", self.caller.thread.as_deref().unwrap_or("of a call"))
    }

    /// A request beside the conversation: a thread of its own, in the session if that is known.
    pub(super) fn place_beside(&self, name: &str) -> Result<RequestPlace, StoreError> {
        let family = self.family()?;
        let by = family.main.map(|main| EventId { thread: main.id, seq: main.head.seq });
        let by = by.filter(|by| by.seq > Seq::START);
        let session = family.session.or_else(|| self.told());
        self.open(session, name, ThreadStart::Spawned { by, call: None })
    }

    /// Finds the threads known by the ids of the client.
    fn family(&self) -> Result<ClientThreads, StoreError> {
        let store = &self.recorder.store;
        let ids = [self.caller.parent.as_deref(), self.key(), self.caller.session.as_deref()];
        for id in ids.into_iter().flatten() {
            let main = self.threads_by_key(id)?.into_iter().next();
            if let Some(main) = main {
                return Ok(ClientThreads { session: Some(main.session), main: Some(main) });
            }
        }
        let named = self.caller.session.as_deref();
        let session = named.map(|key| store.session_by_key(self.principal, key)).transpose()?.flatten();
        Ok(ClientThreads { session, main: None })
    }

    /// The session whose messages a request without an id repeats.
    fn told(&self) -> Option<SessionId> {
        if self.key().is_some() {
            return None;
        }
        let mut text = String::new();
        for event in self.seen.opening().iter().chain(&self.seen.events(0)) {
            text.push_str(&event.fact.text());
        }
        self.recorder.known.session_quoted_in(self.principal, &text)
    }

    pub(super) fn open(
        &self,
        session: Option<SessionId>,
        name: &str,
        start: ThreadStart,
    ) -> Result<RequestPlace, StoreError> {
        let session = session.map_or_else(|| self.session_id(None), Ok)?;
        Ok(self.open_in(session, name, start))
    }

    pub(super) fn open_in(&self, session: SessionId, name: &str, start: ThreadStart) -> RequestPlace {
        let mut new = self.seen.opening();
        new.extend(self.seen.events(0));
        let title = if is_aside(name) { None } else { new.iter().find_map(title_of) };
        let key = if is_aside(name) { None } else { self.key().map(str::to_owned) };
        let id = self.thread_id(session, name, "", key.as_deref());
        let (line, is_root) = (ThreadKind::named(name, &start), start == ThreadStart::Root);
        let thread = NewThread { id, session, name: name.to_owned(), start, key: key.clone() };
        let made = self.new_session(session, title.as_deref().unwrap_or_default());
        let head = if is_root { HeadPromotion::Yes } else { HeadPromotion::No };
        RequestPlace {
            session,
            thread: id,
            after: Seq::START,
            link: self.end(),
            new,
            opens: Some(ThreadOpening { session: Some(made), thread, head }),
            placed: if is_root { PlacementKind::Began } else { PlacementKind::Joined },
            key,
            line,
        }
    }

    fn thread_id(&self, session: SessionId, name: &str, place: &str, key: Option<&str>) -> ThreadId {
        let once = if is_aside(name) { Uuid::now_v7().to_string() } else { String::new() };
        let end = self.end().to_string();
        let names = [&*session.name().to_string(), name, place, &end, key.unwrap_or_default(), &once];
        ThreadId::derived(&names).beside(session.uuid())
    }

    /// Id of a new session. The same client and id always give the same session, whenever it was made; without an id
    /// every session is new. If two gateways make one at once, the store refuses the second, which is placed again.
    fn session_id(&self, history: Option<Digest>) -> Result<SessionId, StoreError> {
        let Caller { client, session, thread, .. } = self.caller;
        let Some(key) = session.as_deref().or(thread.as_deref()) else {
            return Ok(SessionId::new(Uuid::now_v7()));
        };
        let history = history.map_or_else(String::new, |digest| digest.to_string());
        let id = SessionId::derived(&["gateway", self.principal, client.name(), key, &history]);
        let Some(key) = session else { return Ok(id) };
        let known = self.recorder.store.session_named(self.principal, key, id)?;
        Ok(known.unwrap_or_else(|| id.with_time(self.at)))
    }

    fn new_session(&self, id: SessionId, title: &str) -> NewSession {
        NewSession {
            id,
            key: self.caller.session.clone(),
            title: title.to_owned(),
            source: self.caller.client.name().to_owned(),
            created: Some(self.at),
            principal: self.principal.to_owned(),
        }
    }
}
