//! Recording what passes between an agent and its provider: each request finds its place in the log by its client's ids
//! and by its own history, each answer follows it.
//!
//! Nothing here changes a byte of what passes. All of it blocks on the store: callers in async code give it a thread.

mod ending;
mod known;
mod own_compaction;
pub(crate) mod place;
mod spawned;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use epitome_core::{Digest, Event, Seq, SessionId, ThreadId, event::Time, id::ModelName};
use epitome_store::{
    Sqlite, StoreError,
    records::{Commit, Record},
};
use epitome_wire::{
    Format, WireError,
    caller::{Caller, Client, Purpose},
    seen::{Memo, Seen},
};

use crate::{
    compose::{Lives, Told},
    import::title_of,
    session::setup::Setup,
};

use self::{
    known::Known,
    place::{Line, Place, Placing},
};

/// How many messages are remembered by their bytes: some hundred long sessions, a few megabytes.
const REMEMBERED: usize = 65_536;

/// How many items a request may name instead of holding them.
const NAMED: usize = 1_024;

/// How many letters a model gets back beside the results of other calls.
const GIVEN_BACK: usize = 8_000;

/// How often a request is placed anew because somebody else wrote first.
const TRIES: usize = 8;

/// Records requests and answers.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<Sqlite>,
    pub(crate) memo: Memo,
    known: Known,
    /// The threads whose requests are composed.
    pub(crate) lives: Lives,
}

/// A request that has come.
pub struct Arrival<'a> {
    /// Whose it is. Nobody's requests ever continue somebody else's sessions.
    pub principal: &'a str,
    /// The provider's format.
    pub format: Format,
    /// The body, not compressed.
    pub body: &'a str,
    /// Looks up a header by its lower-case name.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    /// When it came.
    pub at: Time,
    /// What it is for, where more than the request says so.
    pub purpose: Option<Purpose>,
}

/// A request that was recorded and waits for its answer.
#[derive(Debug)]
pub struct Ticket {
    /// Its session.
    pub session: SessionId,
    /// The thread it continues.
    pub thread: ThreadId,
    /// The last event of the request.
    pub head: Seq,
    /// How it was placed.
    pub placed: Placed,
    /// Who sent it.
    pub client: Client,
    /// What for.
    pub purpose: Purpose,
    /// The model it asks.
    pub model: Option<ModelName>,
    /// The number of its call, if it was composed.
    pub call: Option<u64>,
    /// What the call was made with.
    pub(crate) setup: Option<Arc<Setup>>,
    /// The first event that the client does not have though its provider was told of it.
    pub(crate) unsent: Option<Seq>,
    /// Whose it is.
    principal: String,
    format: Format,
    at: Time,
    bytes: u64,
    /// The normalised chain after the request.
    link: Digest,
    instructions: Digest,
    key: Option<String>,
    line: Line,
}

/// How a request was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placed {
    /// It begins a session.
    Began,
    /// It begins a thread of a session: a subagent, a title, a summary.
    Joined,
    /// It continues its thread.
    Continued,
    /// It continues its thread after the client compacted it.
    Compacted,
    /// It is the same request again, which had no answer yet.
    Retried,
    /// It parts from what its thread holds.
    Forked,
}

impl Placed {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Joined => "joined",
            Self::Continued => "continued",
            Self::Compacted => "compacted",
            Self::Retried => "retried",
            Self::Forked => "forked",
        }
    }
}

/// How a request ended.
#[derive(Debug)]
pub struct End {
    /// The answer as far as it came, and what it used.
    pub answer: Vec<Event>,
    /// How it ended.
    pub ending: Ending,
    /// The provider's status, if it gave one.
    pub status: Option<u16>,
    /// How many bytes were sent back.
    pub bytes: u64,
    /// How long the first byte took.
    pub first_byte: Option<Duration>,
    /// How long all took.
    pub took: Duration,
    /// When it ended.
    pub at: Time,
    /// What a policy would have sent, as JSON.
    pub observed: Option<String>,
    /// What the client was told, if that is not the answer itself.
    pub told: Option<Told>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The provider answered in full.
    Complete,
    /// The provider refused, in words or a status.
    Refused,
    /// The answer broke off.
    Cut,
    /// The client went away.
    Cancelled,
    /// The provider was not reached, or said nothing in time.
    Unreached,
}

impl Ending {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Refused => "refused",
            Self::Cut => "cut",
            Self::Cancelled => "cancelled",
            Self::Unreached => "unreached",
        }
    }
}

/// Why something could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The body is no request.
    #[error("the request cannot be read: {0}")]
    Unreadable(#[from] WireError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Others write to the same session all the time.
    #[error("others write to this session faster than a request can be placed in it; send it again")]
    Busy,
}

/// Takes a request where it belongs; `None` if it is to be placed again.
type Take<'t> = dyn FnMut(&Seen<'_>, &Caller, Place) -> Result<Option<Ticket>, RecordError> + 't;

/// Writes a request, and says where its thread ends then and which call it is; `None` if it cannot.
type Write<'w> = dyn FnMut(Commit) -> Result<Option<(Seq, Option<u64>)>, RecordError> + 'w;

impl Recorder {
    /// Records into `store`.
    pub fn new(store: Arc<Sqlite>) -> Self {
        Self { store, memo: Memo::new(REMEMBERED), known: Known::default(), lives: Lives::default() }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Sqlite> {
        &self.store
    }

    /// Records a request: finds the thread it continues, or makes one, and appends what is new in it.
    pub fn arrive(&self, arrival: &Arrival<'_>) -> Result<Ticket, RecordError> {
        self.arrive_by(arrival, &mut |seen, caller, place| self.take(arrival, seen, caller, place).map(Some))
    }

    /// Finds the place of a request and has it taken there; again, if somebody else wrote first or the taker wants so.
    pub(crate) fn arrive_by(
        &self,
        arrival: &Arrival<'_>,
        take: &mut Take<'_>,
    ) -> Result<Ticket, RecordError> {
        let mut seen = Seen::read(arrival.format, arrival.body, &self.memo)?;
        let mut caller = Caller::of(arrival.header, &seen);
        caller.purpose = arrival.purpose.unwrap_or(caller.purpose);
        self.resolve(arrival.principal, &mut seen)?;
        // Requests of one session find their places one after another: a title and the first turn come together. So do those
        // without an id that begin alike: each must see what became of the one before.
        let begins = seen.units().first().map(|unit| unit.digest.to_string());
        let session = caller.session.as_deref().or(begins.as_deref()).unwrap_or_default();
        let _turn = self.known.turn_of(arrival.principal, session);
        let mut tries = 0;
        loop {
            let place = Placing::new(self, arrival, &seen, &caller).place()?;
            let opened = place.opens.is_some().then_some((place.thread, place.link));
            match take(&seen, &caller, place) {
                Ok(None) if tries < TRIES => tries += 1,
                Ok(None) => return Err(RecordError::Busy),
                Err(RecordError::Store(StoreError::Conflict { thread, .. })) if tries < TRIES => {
                    self.known.forget(thread);
                    tries += 1;
                    // The thread that was to be made is there: this request was seen before, by this gateway or another.
                    if let Some((thread, link)) = opened
                        && let Some(place) = self.seen_before(thread, link)?
                        && let Ok(Some(ticket)) = take(&seen, &caller, place)
                    {
                        return Ok(ticket);
                    }
                }
                Ok(Some(ticket)) => return Ok(ticket),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills in items that the request only names, as many as a client would.
    pub(crate) fn resolve(&self, principal: &str, seen: &mut Seen<'_>) -> Result<(), StoreError> {
        let named: BTreeSet<String> = seen.references().iter().take(NAMED).cloned().collect();
        let mut known = BTreeMap::new();
        for id in named {
            if let Some(item) = self.store.item_of(principal, &id)? {
                known.insert(id, self.store.event(item)?.event);
            }
        }
        if !known.is_empty() {
            seen.resolve(&known);
        }
        Ok(())
    }

    /// The place in a thread at which a request with this history ends.
    fn seen_before(&self, thread: ThreadId, link: Digest) -> Result<Option<Place>, StoreError> {
        let thread = self.store.thread(thread)?;
        let digests = self.store.digests(thread.id, Seq(1), usize::MAX >> 1)?;
        let Some((seq, ..)) = digests.iter().rfind(|(.., after)| *after == link) else { return Ok(None) };
        let is_end = thread.head.link.normal == link;
        Ok(Some(Place {
            session: thread.session,
            thread: thread.id,
            after: if is_end { thread.head.seq } else { *seq },
            link,
            new: Vec::new(),
            opens: None,
            placed: if is_end { Placed::Retried } else { Placed::Forked },
            line: Line::of(&thread),
            key: thread.key,
        }))
    }

    /// Writes a request down where it belongs.
    pub(crate) fn take(
        &self,
        arrival: &Arrival<'_>,
        seen: &Seen<'_>,
        caller: &Caller,
        place: Place,
    ) -> Result<Ticket, RecordError> {
        let taken = self.take_by(arrival, seen, caller, place, &mut |commit| {
            // What is sent again is in the log.
            if commit.events.is_empty() && commit.opens.is_none() {
                return Ok(Some((commit.after, None)));
            }
            Ok(Some((self.store.commit(commit)?.seq, None)))
        })?;
        taken.ok_or(RecordError::Busy)
    }

    /// The same, where somebody else writes: they say where the thread ends then, and which call that is.
    pub(crate) fn take_by(
        &self,
        arrival: &Arrival<'_>,
        seen: &Seen<'_>,
        caller: &Caller,
        place: Place,
        write: &mut Write<'_>,
    ) -> Result<Option<Ticket>, RecordError> {
        let Place { session, thread, after, link, new, opens, placed, key, line } = place;
        let events: Vec<Event> = new.into_iter().map(|event| at(event, arrival.at)).collect();
        let words =
            (caller.purpose == Purpose::Turn).then(|| events.iter().rev().find_map(title_of)).flatten();
        let is_head = opens.is_some() || line != Line::Main || self.known.head_of(session) == Some(thread);
        let records = if is_head || events.is_empty() { Vec::new() } else { vec![Record::Head] };
        let Some((head, call)) = write(Commit { thread, after, events, records, opens })? else {
            return Ok(None);
        };
        if let Some(words) = words {
            self.known.said(arrival.principal, session, words.trim_end_matches('…').to_owned());
        }
        if line == Line::Main {
            self.known.goes_on_with(session, thread);
        }
        let ticket = Ticket {
            session,
            thread,
            head,
            placed,
            client: caller.client,
            purpose: caller.purpose,
            model: seen.model(),
            call,
            setup: None,
            unsent: None,
            principal: arrival.principal.to_owned(),
            format: arrival.format,
            at: arrival.at,
            bytes: arrival.body.len() as u64,
            link,
            instructions: seen.instructions(),
            key,
            line,
        };
        self.known.asked(&ticket);
        Ok(Some(ticket))
    }

    /// The request's thread ends elsewhere now, because something was decided for it.
    pub(crate) fn moved(&self, ticket: &mut Ticket, head: Seq, call: Option<u64>) {
        self.known.answered(ticket);
        ticket.head = head;
        ticket.call = call.or(ticket.call);
        self.known.asked(ticket);
    }

    /// Records how a request ended, and what was answered.
    #[expect(clippy::needless_pass_by_value, reason = "a request ends once")]
    pub fn finish(&self, ticket: Ticket, end: End) -> Result<(), RecordError> {
        let mut records = vec![Record::Exchange(ending::exchange(&ticket, &end))];
        records.extend(self.outcome(&ticket, &end).map(Record::Outcome));
        let calls = match (&end.told, end.ending) {
            (Some(Told::Without { calls, .. }), Ending::Complete) => calls.clone(),
            _ => Vec::new(),
        };
        let mut answer = ending::answer(&self.known, &ticket, end);
        answer.extend(self.results(ticket.thread, ticket.format, &calls, GIVEN_BACK));
        let summary = (ticket.purpose == Purpose::Compaction).then(|| own_compaction::summary_in(&answer));
        let mut commit = Commit::new(ticket.thread, ticket.head, answer, records);
        let done = loop {
            match self.store.commit(commit.clone()) {
                Ok(head) => break Ok((ticket.thread, head)),
                // Nothing was said meanwhile: somebody compacted, or pinned something.
                Err(StoreError::Conflict { head, .. })
                    if head.link.normal == ticket.link && head.seq > commit.after =>
                {
                    commit.after = head.seq;
                }
                // Somebody asked the same again, or the client went on without waiting: a line of its own.
                Err(StoreError::Conflict { .. }) => break self.beside(&ticket, &commit),
                Err(error) => break Err(error.into()),
            }
        };
        self.known.answered(&ticket);
        let (thread, head) = done?;
        if ticket.purpose == Purpose::Turn {
            self.known.stands(&ticket, thread, head);
        }
        if let Some(summary) = summary.flatten() {
            self.known.compacting(&ticket, summary);
        }
        Ok(())
    }
}

/// An event at the time it came, unless it has a time.
fn at(event: Event, time: Time) -> Event {
    if event.time.is_some() { event } else { event.at(Some(time)) }
}
