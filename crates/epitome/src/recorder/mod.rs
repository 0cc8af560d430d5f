//! Recording what passes between an agent and its provider: each request finds its place in the log by its client's ids
//! and by its own history, each answer follows it.
//!
//! Nothing here changes a byte of what passes. All of it blocks on the store: callers in async code give it a thread.

mod ending;
mod finishing;
mod known;
mod own_compaction;
pub(crate) mod place;
mod spawned;
mod unwritten;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use epitome_core::{Digest, Event, Noted, Seq, SessionId, ThreadId, event::Time, id::ModelName};
use epitome_store::{
    Head, Sqlite, Start, StoreError,
    records::{Commit, Opens, Record},
};
use epitome_wire::{
    Format, WireError,
    caller::{Caller, Client, Purpose},
    seen::{Memo, Seen},
};

use crate::{
    compose::{Live, Lives, RelayedThread, Told},
    import::title_of,
    session::{SessionError, arriving::Writing},
};

pub use self::finishing::{Finish, Unfinished};
use self::{
    known::Known,
    place::{Line, Place, Placing},
    unwritten::{Mark, Unwritten},
};

/// How many messages are remembered by their bytes: some hundred long sessions, a few megabytes.
const REMEMBERED: usize = 65_536;

/// How many items a request may name instead of holding them.
const NAMED: usize = 1_024;

/// How many letters a model gets back beside the results of other calls.
const GIVEN_BACK: usize = 8_000;

/// How often a request is placed anew because somebody else wrote first.
pub(crate) const TRIES: usize = 8;

/// Records requests and answers.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<Sqlite>,
    pub(crate) memo: Memo,
    known: Arc<Known>,
    /// The threads whose requests are composed.
    pub(crate) lives: Arc<Lives>,
}

/// A request that has come.
pub struct Arrival<'a> {
    /// Whose it is. Nobody's requests ever continue somebody else's sessions.
    pub principal: &'a str,
    /// The provider's format.
    pub format: Format,
    /// The body, not compressed.
    pub body: &'a str,
    /// The same bytes where they may be kept instead of a copy, because they hold on to no more memory than they are long.
    pub shared: Option<&'a Bytes>,
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
    /// The number of its call, if it was relayed as it came.
    pub relayed: Option<u64>,
    /// The thread that the call was made in, as it is remembered.
    pub(crate) live: Option<Arc<Live>>,
    /// The first event that the client does not have though its provider was told of it.
    pub(crate) unsent: Option<Seq>,
    /// Whether its provider keeps the answer.
    pub(crate) keeps_answer: bool,
    /// Whose it is.
    principal: String,
    pub(crate) format: Format,
    at: Time,
    bytes: u64,
    /// The normalised chain after the request.
    pub(crate) link: Digest,
    instructions: Digest,
    key: Option<String>,
    line: Line,
    /// The request itself, where it is written with its answer.
    unwritten: Option<Arc<Unwritten>>,
    unwritten_bytes: usize,
}

impl Ticket {
    /// How much of the request is still to be written.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }
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
        Self { store, memo: Memo::new(REMEMBERED), known: Arc::default(), lives: Arc::default() }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Sqlite> {
        &self.store
    }

    /// Records a request: finds the thread it continues, or makes one, and appends what is new in it.
    pub fn arrive(&self, arrival: &Arrival<'_>) -> Result<Ticket, RecordError> {
        self.arrive_by(arrival, &mut |seen, caller, place| {
            self.relay(arrival, seen, caller, place, Writing::Now).map(Some)
        })
    }

    /// The same, but what is new is written when it is [finished](Self::finish), together with its answer, unless somebody
    /// [wants it before](Self::write_down_before). Other requests to this recorder are placed as if it were written.
    pub fn expect(&self, arrival: &Arrival<'_>) -> Result<Ticket, RecordError> {
        self.arrive_by(arrival, &mut |seen, caller, place| {
            self.relay(arrival, seen, caller, place, Writing::MayWait).map(Some)
        })
    }

    /// A request of somebody's went on that was not recorded: what their provider's cache holds of it nobody knows here.
    pub fn passed_unread(&self, principal: &str, at: Time) {
        self.lives.clients.passed_unread(principal, at);
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
        // Requests of one session find their places one after another: a title and the first turn come together. So do those
        // without an id that begin alike: each must see what became of the one before.
        let begins = seen.units().first().map(|unit| unit.digest.to_string());
        let session = caller.session.as_deref().or(begins.as_deref()).unwrap_or_default();
        let _turn = self.known.turn_of(arrival.principal, session);
        self.write_down(&self.known.marks(arrival.principal, &caller, &seen))?;
        self.resolve(arrival.principal, &mut seen)?;
        let mut tries = 0;
        loop {
            let place = Placing::new(self, arrival, &seen, &caller).place()?;
            // What was not written was not seen.
            if tries < TRIES && self.write_down(&[self.known.mark_of(place.session)])? > 0 {
                tries += 1;
                continue;
            }
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

    /// Has the requests written that came before a time and still wait for their answers. Does not wait for the store.
    pub fn write_down_before(&self, time: Time) {
        for unwritten in self.known.unwritten_before(time) {
            let Ok(Some(leaving)) = unwritten.try_leave() else { continue };
            let known = Arc::clone(&self.known);
            self.store.commit_then(leaving.commit.clone(), move |written| match written {
                Ok(_) => known.is_written(&unwritten),
                // Its answer tells of what is wrong, or finds another place.
                Err(_) => leaving.stays(),
            });
        }
    }

    /// Writes the requests down that have one of these marks; gives how many there were.
    fn write_down(&self, marks: &[Mark]) -> Result<usize, StoreError> {
        let unwritten = self.known.unwritten(marks);
        for unwritten in &unwritten {
            if !unwritten.write(&self.store)? {
                self.lives.forget(unwritten.thread);
            }
            self.known.is_written(unwritten);
            self.known.forget(unwritten.thread);
        }
        Ok(unwritten.len())
    }

    /// Writes a request down that was left to its answer. `false` if somebody else has gone on with its thread.
    pub(crate) fn write_now(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        let Some(unwritten) = &ticket.unwritten else { return Ok(true) };
        let is_down = unwritten.write(&self.store)?;
        self.known.is_written(unwritten);
        if !is_down {
            self.lives.forget(ticket.thread);
        }
        Ok(is_down)
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
        let thread = match self.store.thread(thread) {
            Ok(thread) => thread,
            // Its session is elsewhere, and so is it.
            Err(StoreError::UnknownThread(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
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

    /// Records a request that goes on as it came, with a call that tells how it can be written again: at once, or with its
    /// answer if that may be.
    pub(crate) fn relay(
        &self,
        arrival: &Arrival<'_>,
        seen: &Seen<'_>,
        caller: &Caller,
        place: Place,
        writing: Writing,
    ) -> Result<Ticket, RecordError> {
        self.lives.clients.relayed(arrival.principal, seen, arrival.at);
        let is_fork = matches!(&place.opens, Some(opens) if matches!(opens.thread.start, Start::Fork { .. }));
        if is_fork || (place.new.is_empty() && place.opens.is_none()) {
            // What a fork shares is read as soon as it is there. What is asked again is in the log.
            let mut ticket = self.take(arrival, seen, caller, place)?;
            ticket.relayed = self.relay_again(arrival, seen, ticket.thread)?;
            return Ok(ticket);
        }
        let thread = place.thread;
        let mut relayed = self.relayed_thread(thread, place.opens.as_ref())?;
        let (mut call, mut left) = (None, None);
        let taken = self.take_by(arrival, seen, caller, place, &mut |mut commit| {
            if let Some(relayed) = &mut relayed {
                let told = audited(thread, relayed.tell(&self.store, arrival, seen, &commit))?;
                let (number, records) = told.unzip();
                call = number;
                commit.records.extend(records.into_iter().flatten());
            }
            let head = Seq(commit.after.0 + commit.events.len() as u64);
            match writing {
                Writing::Now => drop(self.store.commit(commit).map_err(|error| as_conflict(error, thread))?),
                Writing::MayWait => left = Some(commit),
            }
            Ok(Some((head, None)))
        })?;
        let mut ticket = taken.ok_or(RecordError::Busy)?;
        ticket.relayed = call;
        if let Some(relayed) = relayed.filter(|_| call.is_some()) {
            self.lives.relays(thread, relayed);
        }
        if let Some(commit) = left {
            self.leave_unwritten(&mut ticket, commit, (arrival, caller, seen));
        }
        Ok(ticket)
    }

    /// Tells of a request that is in the log and goes on once more; gives the number of its call.
    fn relay_again(
        &self,
        arrival: &Arrival<'_>,
        seen: &Seen<'_>,
        thread: ThreadId,
    ) -> Result<Option<u64>, RecordError> {
        let mut tries = 0;
        loop {
            let Some(mut relayed) = self.relayed_thread(thread, None)? else { return Ok(None) };
            // Calls are told in order: one that repeats an earlier request is told where the thread ends by now.
            let mut commit = Commit::new(thread, relayed.head(), Vec::new(), Vec::new());
            let told = audited(thread, relayed.tell(&self.store, arrival, seen, &commit))?;
            let Some((call, records)) = told else { return Ok(None) };
            commit.records = records;
            match self.store.commit(commit) {
                Ok(_) => {
                    self.lives.relays(thread, relayed);
                    return Ok(Some(call));
                }
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                Err(error) => return Err(as_conflict(error, thread).into()),
            }
        }
    }

    /// What a request to be relayed goes on from.
    fn relayed_thread(
        &self,
        thread: ThreadId,
        opens: Option<&Opens>,
    ) -> Result<Option<RelayedThread>, StoreError> {
        audited(thread, self.lives.relayed(&self.store, thread, opens))
    }

    /// A request is to be written with its answer.
    pub(crate) fn leave_unwritten(
        &self,
        ticket: &mut Ticket,
        commit: Commit,
        (arrival, caller, seen): (&Arrival<'_>, &Caller, &Seen<'_>),
    ) {
        let mut marks = self.known.marks(arrival.principal, caller, seen);
        marks.push(self.known.mark_of(ticket.session));
        ticket.unwritten_bytes = commit.events.iter().map(|event| event.raw.json.len()).sum();
        let unwritten = Arc::new(Unwritten::new(commit, arrival.at, marks));
        self.known.leaves_unwritten(&unwritten);
        ticket.unwritten = Some(unwritten);
    }

    /// As [`take`](Self::take), where somebody else writes: they say where the thread ends then, and which call that is.
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
        let goes_on = !events.is_empty() || opens.is_some();
        let events = events.into_iter().map(Noted::from).collect();
        let Some((head, call)) = write(Commit { thread, after, events, records, opens })? else {
            return Ok(None);
        };
        if goes_on {
            self.known.forget(thread);
        }
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
            relayed: None,
            live: None,
            unsent: None,
            keeps_answer: seen.keeps_answer(),
            principal: arrival.principal.to_owned(),
            format: arrival.format,
            at: arrival.at,
            bytes: arrival.body.len() as u64,
            link,
            instructions: seen.instructions(),
            key,
            line,
            unwritten: None,
            unwritten_bytes: 0,
        };
        self.known.asked(&ticket);
        Ok(Some(ticket))
    }

    /// Whether a model answered somebody so, as far as that is fresh in mind.
    pub(crate) fn was_answered(&self, principal: &str, said: Digest) -> bool {
        self.known.thread_answered_with(principal, said).is_some()
    }

    /// The request is placed once more: this ticket waits for nothing.
    pub(crate) fn leaves(&self, ticket: &Ticket) {
        self.known.answered((ticket.thread, ticket.head));
    }

    /// The request's thread ends elsewhere now, because something was decided for it.
    pub(crate) fn moved(&self, ticket: &mut Ticket, head: Seq, call: Option<u64>) {
        self.leaves(ticket);
        ticket.head = head;
        ticket.call = call.or(ticket.call);
        self.known.asked(ticket);
    }
}

/// What was found out to tell of a call. A record that cannot be read, written by another version, stops no request: its call
/// is not told.
fn audited<T>(thread: ThreadId, told: Result<T, SessionError>) -> Result<Option<T>, StoreError> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(SessionError::Store(error)) => Err(error),
        Err(error) => {
            tracing::warn!(target: "epitome::record", %thread, %error, "a request is recorded without its call");
            Ok(None)
        }
    }
}

/// Whoever was first: the request is placed again.
pub(crate) fn as_conflict(error: StoreError, thread: ThreadId) -> StoreError {
    match error {
        conflict @ StoreError::Conflict { .. } => conflict,
        error if error.is_conflict() => StoreError::Conflict { thread, after: Seq::START, head: Head::START },
        error => error,
    }
}

/// An event at the time it came, unless it has a time.
fn at(event: Event, time: Time) -> Event {
    if event.time.is_some() { event } else { event.at(Some(time)) }
}
