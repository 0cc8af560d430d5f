//! Place of a request: the thread whose history it continues, a fork if it differs from one, or a new session.
//!
//! A client's id and the history itself are read together. An id alone mixes up subagents, titles and summaries, and
//! some ids are given twice; a history alone cannot tell two runs of one prompt apart.

mod compacted_history;
mod history_match;
mod moved_message;
mod named_past;
mod new_thread;
mod reworded_answer;

use std::{cell::RefCell, collections::BTreeMap};

use epitome_core::{ChainLink, Digest, Event, Fact, Seq, SessionId, ThreadId, event::Timestamp};
use epitome_store::{
    StoreError, ThreadStart,
    records::{HeadPromotion, ThreadOpening, ThreadRow},
};
use epitome_wire::{
    caller::{Caller, ClientProgram, RequestPurpose},
    incoming::{IncomingRequest, PriorHistory},
};

use self::history_match::HistoryMatch;
use super::{PlacementKind, RequestArrival, TrafficRecorder, recorder_cache::ThreadEnd};

/// Number of links near its end for which a history is compared one by one.
const STEPS: usize = 64;

/// Names of threads that no turn continues.
const SIDE_THREAD_NAMES: [&str; 2] = ["title", "compaction"];

/// Place at which a request is written, and its new events.
pub(crate) struct RequestPlace {
    pub(crate) session: SessionId,
    pub(crate) thread: ThreadId,
    pub(crate) after: Seq,
    /// The normalised chain after the request.
    pub(crate) link: Digest,
    pub(crate) new: Vec<Event>,
    pub(crate) opens: Option<ThreadOpening>,
    pub(crate) placed: PlacementKind,
    pub(crate) key: Option<String>,
    pub(crate) line: ThreadKind,
}

/// Kind of a thread: reports whether it becomes the session's newest when its client goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// The conversation, or a fork of it.
    Main,
    /// A subagent, a title, a summary.
    Side,
}

impl ThreadKind {
    /// Kind of a thread.
    pub(super) fn of(thread: &ThreadRow) -> Self {
        Self::named(&thread.name, &thread.start)
    }

    fn named(name: &str, start: &ThreadStart) -> Self {
        let side =
            matches!(start, ThreadStart::Spawned { .. }) || name.starts_with("agent ") || is_aside(name);
        if side { Self::Side } else { Self::Main }
    }
}

fn is_aside(name: &str) -> bool {
    SIDE_THREAD_NAMES.contains(&name)
}

/// Finds the place of one request.
pub(super) struct RequestPlacer<'r, 'b> {
    recorder: &'r TrafficRecorder,
    principal: &'r str,
    at: Timestamp,
    seen: &'r IncomingRequest<'b>,
    caller: &'r Caller,
    /// The normalised chain after each number of units.
    links: Vec<Digest>,
    /// Threads by the ids that were looked up.
    named: RefCell<BTreeMap<String, Vec<ThreadRow>>>,
}

impl<'r, 'b> RequestPlacer<'r, 'b> {
    pub(super) fn new(
        recorder: &'r TrafficRecorder,
        arrival: &'r RequestArrival<'_>,
        seen: &'r IncomingRequest<'b>,
        caller: &'r Caller,
    ) -> Self {
        let (links, named) = (seen.chain(), RefCell::default());
        Self { recorder, principal: arrival.principal, at: arrival.at, seen, caller, links, named }
    }

    /// The threads with a client's id, newest first. The same ids are looked up several times for one request.
    fn threads_by_key(&self, id: &str) -> Result<Vec<ThreadRow>, StoreError> {
        if let Some(threads) = self.named.borrow().get(id) {
            return Ok(threads.clone());
        }
        let threads = self.recorder.store.threads_by_key(self.principal, id)?;
        self.named.borrow_mut().insert(id.to_owned(), threads.clone());
        Ok(threads)
    }

    pub(super) fn place(&self) -> Result<RequestPlace, StoreError> {
        match (self.seen.follows(), self.caller.purpose) {
            (PriorHistory::Nothing, RequestPurpose::Turn) => self.turn(),
            (PriorHistory::Nothing, RequestPurpose::Compaction) => {
                match self.longest(&|found| self.is_past(found))? {
                    Some(found) => self.fork(&found, "compaction", HeadPromotion::No),
                    None => self.place_beside("compaction"),
                }
            }
            (_, RequestPurpose::Title) => self.place_beside("title"),
            (PriorHistory::Response(answer), RequestPurpose::Turn | RequestPurpose::Compaction) => {
                self.place_after_answer(self.recorder.store.answer_of(self.principal, &answer)?)
            }
            (PriorHistory::Conversation(id), RequestPurpose::Turn | RequestPurpose::Compaction) => {
                self.in_conversation(&id)
            }
        }
    }

    /// Places the next turn of a conversation.
    fn turn(&self) -> Result<RequestPlace, StoreError> {
        if let Some((standing, units)) = self.standing() {
            return self.onward(&standing, units);
        }
        let found = self.past()?;
        let parts = found.as_ref().is_none_or(|found| !self.is_end(found));
        let units = found.as_ref().map_or(0, |found| found.units);
        if parts
            && units < self.seen.units().len()
            && let Some(place) = self.after_own_compaction(units)?
        {
            return Ok(place);
        }
        match found {
            Some(found) if self.is_ours(&found.thread) || self.key().is_none() => {
                self.from(self.waiting(&found)?.as_ref().unwrap_or(&found))
            }
            // A subagent that was given its parent's past.
            Some(found) if self.is_subagent() => self.fork(&found, &self.agent_name(), HeadPromotion::No),
            // The same past under another id: the client forked it.
            Some(found) => self.fork(&found, "main", HeadPromotion::Yes),
            None => match self.find_reworded()? {
                Some(found) => self.fork(&found, &found.thread.name, HeadPromotion::Yes),
                None => match self.find_rearranged()? {
                    Some(found) => self.fork(&found, &found.thread.name, HeadPromotion::Yes),
                    None => self.begin(),
                },
            },
        }
    }

    /// The client's id of the thread.
    fn key(&self) -> Option<&str> {
        self.caller.thread.as_deref().or(self.caller.session.as_deref())
    }

    fn is_ours(&self, thread: &ThreadRow) -> bool {
        thread.key.as_deref() == self.key()
    }

    fn is_subagent(&self) -> bool {
        self.caller.parent.is_some()
            || (self.caller.client == ClientProgram::ClaudeCode && self.caller.thread.is_some())
    }

    /// The normalised chain after the whole request.
    fn end(&self) -> Digest {
        self.links.last().copied().unwrap_or(ChainLink::ROOT.normal)
    }

    /// Places a request at the end of a thread, the usual case.
    fn onward(&self, standing: &ThreadEnd, units: usize) -> Result<RequestPlace, StoreError> {
        let opening = if standing.instructions == self.seen.instructions() {
            Vec::new()
        } else {
            self.changed_opening(standing.thread, standing.head)?
        };
        Ok(RequestPlace {
            session: standing.session,
            thread: standing.thread,
            after: standing.head,
            link: self.end(),
            new: opening.into_iter().chain(self.seen.events(units)).collect(),
            opens: None,
            placed: PlacementKind::Continued,
            key: self.key().map(str::to_owned),
            line: standing.line,
        })
    }

    /// Places a request after a place in a thread: at its end, or in a fork.
    fn from(&self, found: &HistoryMatch) -> Result<RequestPlace, StoreError> {
        if found.units == self.seen.units().len() {
            // The request has no new message: it is repeated. If it has an answer already, the new one goes beside
            // that.
            let (after, placed) = if self.is_end(found) {
                (found.thread.head.seq, PlacementKind::Retried)
            } else {
                (found.event.seq, PlacementKind::Forked)
            };
            return Ok(self.at(&found.thread, after, Vec::new(), placed));
        }
        if !self.is_end(found) {
            return self.fork(found, &found.thread.name, HeadPromotion::Yes);
        }
        let opening = self.changed_opening(found.thread.id, found.thread.head.seq)?;
        let new = opening.into_iter().chain(self.seen.events(found.units)).collect();
        Ok(self.at(&found.thread, found.thread.head.seq, new, PlacementKind::Continued))
    }

    fn at(&self, thread: &ThreadRow, after: Seq, new: Vec<Event>, placed: PlacementKind) -> RequestPlace {
        RequestPlace {
            session: thread.session,
            thread: thread.id,
            after,
            link: self.end(),
            new,
            opens: None,
            placed,
            key: thread.key.clone(),
            line: ThreadKind::of(thread),
        }
    }

    /// Instructions that differ from those `thread` has through an event. Several messages may hold at a time, of the
    /// rest the newest counts.
    fn changed_opening(&self, thread: ThreadId, through: Seq) -> Result<Vec<Event>, StoreError> {
        use epitome_core::event::InstructionKind::{Message, Project, Settings, System, Tools};
        let mut known = self.recorder.store.events_of_kinds(thread, &["instructed"])?;
        known.retain(|logged| logged.id.seq <= through);
        let is_known = |event: &Event| {
            let Fact::Instructed { what, .. } = &event.fact else { return false };
            let mut same = known.iter().rev().filter(
                |logged| matches!(&logged.event.fact, Fact::Instructed { what: other, .. } if other == what),
            );
            match what {
                Message | Project => same.any(|logged| logged.event.raw.json == event.raw.json),
                Settings | System | Tools => {
                    same.next().is_some_and(|logged| logged.event.raw.json == event.raw.json)
                }
            }
        };
        let mut changed: Vec<Event> =
            self.seen.opening().into_iter().filter(|event| !is_known(event)).collect();
        let had_tools = known.iter().rev().find_map(|logged| match &logged.event.fact {
            Fact::Instructed { what: Tools, parts } => Some(!parts.is_empty()),
            _ => None,
        });
        // A request has no event for absent tools, but they change the beginning of what its provider's cache holds.
        if had_tools == Some(true) && !self.seen.has_tools() {
            changed.push(self.seen.dropped_tools());
        }
        Ok(changed)
    }
}
