//! Where a request belongs: the thread whose history it continues, a fork where it parts from one, or a new session.
//!
//! A client's id and the history itself are read together. An id alone mixes up subagents, titles and summaries, and some
//! ids are given twice; a history alone cannot tell two runs of one prompt apart.

use epitome_core::{Digest, Event, EventId, Fact, Link, Seq, SessionId, ThreadId, event::Time};
use epitome_store::{
    EventLog, NewThread, Start, StoreError,
    records::{BecomesHead, NewSession, Opens, ThreadRow},
};
use epitome_wire::{
    caller::{Caller, Client, Purpose},
    seen::{Follows, Seen, Speaker},
};
use uuid::Uuid;

use super::{
    Arrival, Placed, Recorder,
    known::{OwnSummary, Standing},
    own_compaction, spawned,
};
use crate::import::title_of;

/// How far back from its end a history is compared link by link.
const STEPS: usize = 64;

/// No answer has more events than that.
const ANSWER: u64 = 64;

/// Threads that no turn continues.
const ASIDE: [&str; 2] = ["title", "compaction"];

/// What is said of a request that names a past which was never recorded.
const UNRESOLVED: &str = "unresolved_past";

/// Where a request is written, and what is written.
pub(super) struct Place {
    pub(super) session: SessionId,
    pub(super) thread: ThreadId,
    pub(super) after: Seq,
    /// The normalised chain after the request.
    pub(super) link: Digest,
    pub(super) new: Vec<Event>,
    pub(super) opens: Option<Opens>,
    pub(super) placed: Placed,
    pub(super) key: Option<String>,
}

/// Finds the place of one request.
pub(super) struct Placing<'r, 'b> {
    recorder: &'r Recorder,
    principal: &'r str,
    at: Time,
    seen: &'r Seen<'b>,
    caller: &'r Caller,
    /// The normalised chain after so many units.
    links: Vec<Digest>,
}

/// A place in the log that holds the beginning of the history.
struct Match {
    /// How many units of it.
    units: usize,
    event: EventId,
    thread: ThreadRow,
}

impl<'r, 'b> Placing<'r, 'b> {
    pub(super) fn new(
        recorder: &'r Recorder,
        arrival: &'r Arrival<'_>,
        seen: &'r Seen<'b>,
        caller: &'r Caller,
    ) -> Self {
        let mut links = Vec::with_capacity(seen.units().len() + 1);
        links.push(Link::ROOT.normal);
        let mut link = Link::ROOT.normal;
        for unit in seen.units() {
            link = Link::normal_after(link, unit.digest);
            links.push(link);
        }
        Self { recorder, principal: arrival.principal, at: arrival.at, seen, caller, links }
    }

    pub(super) fn place(&self) -> Result<Place, StoreError> {
        match self.seen.follows() {
            Follows::Nothing => {}
            Follows::Response(answer) => {
                let found = self.recorder.store.answer_of(self.principal, &answer)?;
                return self.after(found);
            }
            Follows::Conversation(id) => return self.in_conversation(&id),
        }
        match self.caller.purpose {
            Purpose::Turn => self.turn(),
            Purpose::Title => self.aside("title"),
            Purpose::Compaction => match self.longest(&|found| self.is_past(found))? {
                Some(found) => self.fork(&found, "compaction", BecomesHead::No),
                None => self.aside("compaction"),
            },
        }
    }

    /// The next turn of a conversation.
    fn turn(&self) -> Result<Place, StoreError> {
        if let Some((standing, units)) = self.standing() {
            return self.onward(&standing, units);
        }
        let ours = match self.key() {
            Some(_) => self.longest(&|found| self.is_ours(&found.thread) && self.is_past(found))?,
            None => None,
        };
        let found = match ours {
            Some(found) => Some(found),
            None => self.longest(&|found| self.is_past(found))?,
        };
        let units = found.as_ref().map_or(0, |found| found.units);
        if units < self.seen.units().len()
            && let Some(place) = self.after_own_compaction(units)?
        {
            return Ok(place);
        }
        match found {
            Some(found) if self.is_ours(&found.thread) || self.key().is_none() => {
                self.from(self.waiting(&found)?.as_ref().unwrap_or(&found))
            }
            // The same past under another id: the client forked it.
            Some(found) => self.fork(&found, "main", BecomesHead::Yes),
            None => self.begin(),
        }
    }

    /// A thread that ends where this history goes on, where the one that was found has gone on like it already: two runs of
    /// one prompt whose answers were the same.
    fn waiting(&self, found: &Match) -> Result<Option<Match>, StoreError> {
        let is_end = |found: &Match| found.thread.head.link.normal == self.links[found.units];
        if found.units < self.seen.units().len() || is_end(found) {
            return Ok(None);
        }
        let nearest = found.units.saturating_sub(STEPS).max(1);
        for units in (nearest..found.units).rev() {
            let fits = |found: &Match| is_end(found) && self.is_ours(&found.thread) && self.is_past(found);
            if let Some(waiting) = self.known_to(units, &fits)? {
                return Ok(Some(waiting));
            }
        }
        Ok(None)
    }

    /// Whether what was found is this request's past: an id says so, or an answer in it does. The same first words are
    /// only that, unless no answer to them was ever recorded, and this asks for one or brings it along.
    fn is_past(&self, found: &Match) -> bool {
        if ASIDE.contains(&found.thread.name.as_str()) {
            return false;
        }
        if self.key().is_some() && self.is_ours(&found.thread) {
            return true;
        }
        let answered = self.seen.units()[..found.units].iter().any(|unit| unit.speaker == Speaker::Model);
        if answered {
            return true;
        }
        let goes_on = self.seen.units().get(found.units).is_none_or(|unit| unit.speaker == Speaker::Model);
        let waits = found.thread.head.link.normal == self.links[found.units];
        self.key().is_none()
            && found.thread.key.is_none()
            && goes_on
            && waits
            && !self.recorder.known.is_under_way(found.thread.id, found.thread.head.seq)
    }

    /// The client's id of the thread.
    fn key(&self) -> Option<&str> {
        self.caller.thread.as_deref().or(self.caller.session.as_deref())
    }

    fn is_ours(&self, thread: &ThreadRow) -> bool {
        thread.key.as_deref() == self.key()
    }

    /// The thread that ends where this history goes on, if that is fresh in mind.
    fn standing(&self) -> Option<(Standing, usize)> {
        let last = self.seen.units().len();
        // The whole history, known to its end, is a retry or a question asked again: not the usual way. And every history
        // begins where a thread stands in which nothing was said.
        (last.saturating_sub(STEPS).max(1)..last).rev().find_map(|units| {
            let standing = self.recorder.known.standing(self.principal, self.links[units])?;
            (standing.key.as_deref() == self.key()).then_some((standing, units))
        })
    }

    /// The usual way: a thread goes on at its end.
    fn onward(&self, standing: &Standing, units: usize) -> Result<Place, StoreError> {
        let opening = if standing.instructions == self.seen.instructions() {
            Vec::new()
        } else {
            self.changed_opening(standing.thread)?
        };
        let new = opening.into_iter().chain(self.seen.events(units)).collect();
        Ok(Place {
            session: standing.session,
            thread: standing.thread,
            after: standing.head,
            link: self.end(),
            new,
            opens: None,
            placed: Placed::Continued,
            key: self.key().map(str::to_owned),
        })
    }

    fn end(&self) -> Digest {
        self.links.last().copied().unwrap_or(Link::ROOT.normal)
    }

    /// The longest part of the history that is known and that `fits`.
    fn longest(&self, fits: &dyn Fn(&Match) -> bool) -> Result<Option<Match>, StoreError> {
        let last = self.seen.units().len();
        let near = last.saturating_sub(STEPS);
        for units in (near.max(1)..=last).rev() {
            if let Some(found) = self.known_to(units, fits)? {
                return Ok(Some(found));
            }
        }
        // What is known of a history is known from its beginning: far from its end, halving finds where it stops.
        let (mut known, mut unknown) = (None, near);
        let mut lower = 1;
        while lower < unknown {
            let middle = lower.midpoint(unknown);
            match self.known_to(middle, fits)? {
                Some(found) => {
                    lower = middle + 1;
                    known = Some(found);
                }
                None => unknown = middle,
            }
        }
        Ok(known)
    }

    fn known_to(&self, units: usize, fits: &dyn Fn(&Match) -> bool) -> Result<Option<Match>, StoreError> {
        let store = &self.recorder.store;
        let mut best: Option<Match> = None;
        for event in store.recognise_for(self.principal, self.links[units])? {
            let found = Match { units, event, thread: store.thread(event.thread)? };
            if !fits(&found) {
                continue;
            }
            // Under the same id before under none, at a thread's end before inside one, newest first.
            let rank = |found: &Match| {
                (self.is_ours(&found.thread), found.thread.head.link.normal == self.links[units])
            };
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        Ok(best)
    }

    /// On from a place in a thread: at its end, or in a fork.
    fn from(&self, found: &Match) -> Result<Place, StoreError> {
        let is_end = found.thread.head.link.normal == self.links[found.units];
        if found.units == self.seen.units().len() {
            // Nothing new is said: the same again. Who has an answer already gets another one beside it.
            let after = if is_end { found.thread.head.seq } else { found.event.seq };
            let placed = if is_end { Placed::Retried } else { Placed::Forked };
            return Ok(self.at(&found.thread, after, Vec::new(), placed));
        }
        if !is_end {
            return self.fork(found, &found.thread.name, BecomesHead::Yes);
        }
        let opening = self.changed_opening(found.thread.id)?;
        let new = opening.into_iter().chain(self.seen.events(found.units)).collect();
        Ok(self.at(&found.thread, found.thread.head.seq, new, Placed::Continued))
    }

    fn at(&self, thread: &ThreadRow, after: Seq, new: Vec<Event>, placed: Placed) -> Place {
        Place {
            session: thread.session,
            thread: thread.id,
            after,
            link: self.end(),
            new,
            opens: None,
            placed,
            key: thread.key.clone(),
        }
    }

    /// A fork from inside a thread: in its session if the client says it is the same, else in one of its own.
    fn fork(&self, found: &Match, name: &str, head: BecomesHead) -> Result<Place, StoreError> {
        let store = &self.recorder.store;
        let own = store.session(found.thread.session)?;
        let stays = self.caller.session.is_none() || own.key == self.caller.session;
        let rest = self.seen.events(found.units);
        let opening = self.changed_opening(found.thread.id)?;
        let (session, made) = if stays {
            (found.thread.session, None)
        } else {
            let id = self.session_id(Some(self.end()));
            (id, Some(self.new_session(id, &own.title)))
        };
        let place = format!("{}:{}", found.event.thread, found.event.seq);
        let id = ThreadId::derived(&[&session.to_string(), name, &place, &self.end().to_string()]);
        let key = if name == "compaction" { None } else { self.key().map(str::to_owned) };
        let start = Start::Fork { of: found.thread.id, at: found.event.seq };
        let thread = NewThread { id, session, name: name.to_owned(), start, key: key.clone() };
        Ok(Place {
            session,
            thread: id,
            after: found.event.seq,
            link: self.end(),
            new: opening.into_iter().chain(rest).collect(),
            opens: Some(Opens { session: made, thread, head }),
            placed: Placed::Forked,
            key,
        })
    }

    /// A new session, or a new thread of one that is known by its id.
    fn begin(&self) -> Result<Place, StoreError> {
        let family = self.family()?;
        let is_subagent = self.caller.parent.is_some()
            || (self.caller.client == Client::ClaudeCode && self.caller.thread.is_some());
        if is_subagent {
            let parent = family.iter().find(|thread| !ASIDE.contains(&thread.name.as_str()));
            let words = self.seen.events(0).iter().find_map(title_of);
            let start = match parent {
                Some(parent) => spawned::start(&self.recorder.store, parent, words.as_deref())?,
                None => Start::Spawned { by: None, call: None },
            };
            let name = format!("agent {}", self.caller.thread.as_deref().unwrap_or_default());
            return Ok(self.open(family.first().map(|thread| thread.session), name.trim(), start));
        }
        // A session of which only a title or a summary is known so far.
        let waiting =
            family.first().filter(|_| family.iter().all(|thread| ASIDE.contains(&thread.name.as_str())));
        match waiting {
            Some(aside) => Ok(self.open(Some(aside.session), "main", Start::Root)),
            None if family.is_empty() => Ok(self.open(None, "main", Start::Root)),
            // The id is taken by another history: some clients give it twice.
            None => Ok(self.open_in(self.session_id(Some(self.end())), "main", Start::Root)),
        }
    }

    /// The threads that are known by the ids of the client.
    fn family(&self) -> Result<Vec<ThreadRow>, StoreError> {
        let store = &self.recorder.store;
        let ids = [self.caller.parent.as_deref(), self.caller.session.as_deref()];
        for id in ids.into_iter().flatten() {
            let known = store.threads_by_key(self.principal, id)?;
            if !known.is_empty() {
                return Ok(known);
            }
        }
        Ok(Vec::new())
    }

    /// A request beside the conversation: a thread of its own, in the session if that is known.
    fn aside(&self, name: &str) -> Result<Place, StoreError> {
        let family = self.family()?;
        let start = match family.iter().find(|thread| !ASIDE.contains(&thread.name.as_str())) {
            Some(main) => {
                let by = EventId { thread: main.id, seq: main.head.seq };
                Start::Spawned { by: (by.seq > Seq::START).then_some(by), call: None }
            }
            None => Start::Spawned { by: None, call: None },
        };
        let session = family.first().map(|thread| thread.session).or_else(|| self.told());
        Ok(self.open(session, name, start))
    }

    /// The session that a request without an id tells of.
    fn told(&self) -> Option<SessionId> {
        if self.key().is_some() {
            return None;
        }
        let mut text = String::new();
        for event in self.seen.opening().iter().chain(&self.seen.events(0)) {
            text.push_str(&event.fact.text());
        }
        self.recorder.known.told_in(self.principal, &text)
    }

    fn open(&self, session: Option<SessionId>, name: &str, start: Start) -> Place {
        self.open_in(session.unwrap_or_else(|| self.session_id(None)), name, start)
    }

    fn open_in(&self, session: SessionId, name: &str, start: Start) -> Place {
        let aside = ASIDE.contains(&name);
        let mut new = self.seen.opening();
        new.extend(self.seen.events(0));
        let title = if aside { None } else { new.iter().find_map(title_of) };
        // A title that is asked for again is another thread; a turn that two gateways see at once is the same.
        let once = if aside { Uuid::now_v7().to_string() } else { String::new() };
        let id = ThreadId::derived(&[&session.to_string(), name, &self.end().to_string(), &once]);
        let is_root = start == Start::Root;
        let key = if aside { self.caller.session.clone() } else { self.key().map(str::to_owned) };
        let thread = NewThread { id, session, name: name.to_owned(), start, key: key.clone() };
        let made = self.new_session(session, title.as_deref().unwrap_or_default());
        let head = if is_root { BecomesHead::Yes } else { BecomesHead::No };
        Place {
            session,
            thread: id,
            after: Seq::START,
            link: self.end(),
            new,
            opens: Some(Opens { session: Some(made), thread, head }),
            placed: if is_root { Placed::Began } else { Placed::Joined },
            key,
        }
    }

    /// The same client and id always give the same session, so that two gateways agree; without an id every one is new.
    fn session_id(&self, history: Option<Digest>) -> SessionId {
        let Some(key) = self.caller.session.as_deref().or(self.caller.thread.as_deref()) else {
            return SessionId::new(Uuid::now_v7());
        };
        let history = history.map_or_else(String::new, |digest| digest.to_string());
        SessionId::derived(&["gateway", self.principal, self.caller.client.name(), key, &history])
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

    /// What stands beside and before the history and is not as `thread` has it.
    fn changed_opening(&self, thread: ThreadId) -> Result<Vec<Event>, StoreError> {
        let known = self.recorder.store.of_kinds(thread, &["instructed"])?;
        let is_known = |event: &Event| {
            let Fact::Instructed { what, .. } = &event.fact else { return false };
            let same = known.iter().rev().find(
                |logged| matches!(&logged.event.fact, Fact::Instructed { what: other, .. } if other == what),
            );
            same.is_some_and(|logged| logged.event.raw.json == event.raw.json)
        };
        Ok(self.seen.opening().into_iter().filter(|event| !is_known(event)).collect())
    }

    /// After an answer that the request names.
    fn after(&self, found: Option<EventId>) -> Result<Place, StoreError> {
        let Some(event) = found else {
            let mut place = self.open(None, "main", Start::Root);
            place.new.push(Event::own(Fact::Carried { kind: UNRESOLVED.to_owned() }, Some(self.at)));
            return Ok(place);
        };
        let thread = self.recorder.store.thread(event.thread)?;
        self.after_event(event, thread)
    }

    fn after_event(&self, event: EventId, thread: ThreadRow) -> Result<Place, StoreError> {
        let link = self.recorder.store.event(event)?.link.normal;
        let rest = self.seen.events(0);
        let end = self.seen.units().iter().fold(link, |link, unit| Link::normal_after(link, unit.digest));
        let place = if thread.head.link.normal == link {
            let opening = self.changed_opening(thread.id)?;
            let new = opening.into_iter().chain(rest).collect();
            self.at(&thread, thread.head.seq, new, Placed::Continued)
        } else {
            let name = thread.name.clone();
            self.fork(&Match { units: 0, event, thread }, &name, BecomesHead::Yes)?
        };
        Ok(Place { link: end, ..place })
    }

    /// In a conversation that the provider keeps: its request holds only what is new.
    fn in_conversation(&self, id: &str) -> Result<Place, StoreError> {
        let store = &self.recorder.store;
        let known = store.threads_by_key(self.principal, id)?;
        match known.into_iter().next() {
            Some(thread) if thread.head.seq > Seq::START => {
                let new: Vec<Event> =
                    self.changed_opening(thread.id)?.into_iter().chain(self.seen.events(0)).collect();
                let link = thread.head.link.normal;
                let end =
                    self.seen.units().iter().fold(link, |link, unit| Link::normal_after(link, unit.digest));
                let place = self.at(&thread, thread.head.seq, new, Placed::Continued);
                Ok(Place { link: end, ..place })
            }
            _ => {
                let session = SessionId::derived(&["conversation", self.principal, id]);
                let mut place = self.open_in(session, "main", Start::Root);
                place.key = Some(id.to_owned());
                if let Some(opens) = &mut place.opens {
                    opens.thread.key = Some(id.to_owned());
                }
                Ok(place)
            }
        }
    }

    /// The continuation of a session that its client compacted, if the history says so beyond the first `known` units.
    fn after_own_compaction(&self, known: usize) -> Result<Option<Place>, StoreError> {
        let fresh = self.recorder.known.summaries(self.principal);
        // What this process does not remember it may have recorded.
        let recorded = if known == 0 && fresh.is_empty() { self.recorded_summaries()? } else { Vec::new() };
        for own in fresh.into_iter().chain(recorded) {
            let Some(at) = self.seen.repeats(own_compaction::mark(&own.summary)) else { continue };
            if at < known {
                continue;
            }
            let Some(thread) = self.main_of(own.session)? else { continue };
            let store = &self.recorder.store;
            let goes_on =
                own_compaction::continuation(store, &thread, self.seen, &self.links, at, own.summary)?;
            let mut new = vec![goes_on.event];
            new.extend(self.changed_opening(thread.id)?);
            new.extend(self.seen.events(goes_on.from));
            let place = self.at(&thread, thread.head.seq, new, Placed::Compacted);
            return Ok(Some(place));
        }
        Ok(None)
    }

    /// The newest summaries that were recorded for sessions with this id.
    fn recorded_summaries(&self) -> Result<Vec<OwnSummary>, StoreError> {
        let store = &self.recorder.store;
        let mut summaries = Vec::new();
        let mut sessions: Vec<SessionId> = self.family()?.into_iter().map(|thread| thread.session).collect();
        sessions.dedup();
        for session in sessions {
            let threads = store.threads(session)?;
            for thread in threads.iter().rev().filter(|thread| thread.name == "compaction").take(2) {
                let from = Seq(thread.head.seq.0.saturating_sub(ANSWER) + 1);
                let events = store.read(thread.id, from, usize::try_from(ANSWER).unwrap_or(usize::MAX))?;
                let events: Vec<Event> = events.into_iter().map(|logged| logged.event).collect();
                let principal = self.principal.to_owned();
                summaries.extend(own_compaction::summary_in(&events).map(|summary| OwnSummary {
                    principal,
                    session,
                    summary,
                }));
            }
        }
        Ok(summaries)
    }

    /// The thread of a session that this request may continue.
    fn main_of(&self, session: SessionId) -> Result<Option<ThreadRow>, StoreError> {
        let store = &self.recorder.store;
        if let Some(key) = self.key() {
            let mut ours = store.threads_by_key(self.principal, key)?;
            ours.retain(|thread| !ASIDE.contains(&thread.name.as_str()));
            // A summary that was asked for without an id may stand anywhere; whoever goes on with it knows better.
            let at = ours.iter().position(|thread| thread.session == session).unwrap_or(0);
            return Ok((at < ours.len()).then(|| ours.swap_remove(at)));
        }
        let head = store.session(session)?.head.map(|head| store.thread(head)).transpose()?;
        Ok(head.filter(|thread| !ASIDE.contains(&thread.name.as_str())))
    }
}
