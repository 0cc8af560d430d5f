//! What a recorder remembers between requests. All of it is a shortcut: forgotten, it is read from the store again, but for
//! which requests are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use epitome_core::{
    Digest, Seq, SessionId, ThreadId,
    event::{Summary, Time},
    id::AnswerId,
};
use epitome_store::Head;
use epitome_wire::{caller::Caller, seen::Seen};

use super::{
    Ticket,
    own_compaction::mark,
    place::Line,
    unwritten::{self, Mark, Shelf, Unwritten},
};

/// How many threads' ends are remembered, in each of two generations.
const THREADS: usize = 4_096;

/// How many of the clients' own summaries wait for a history that begins with them.
const SUMMARIES: usize = 64;

/// The longest that is kept; no client goes on with a longer one.
const SUMMARY: usize = 1 << 20;

/// How many sessions are known by what was said in them, and how much of it.
const SAID: usize = 256;
const WORDS: usize = 32;

/// How many letters of a session must be told again.
const TOLD: usize = 12;

/// Sessions whose requests may be placed at the same time.
const STRIPES: usize = 64;

/// What is remembered.
#[derive(Debug)]
pub(super) struct Known {
    turns: Vec<Mutex<()>>,
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Ends of threads by whose they are and the history they hold; the newer generation and the older.
    young: HashMap<Past, Standing>,
    old: HashMap<Past, Standing>,
    /// Which of them is a thread's: it has one end.
    ends: HashMap<ThreadId, Past>,
    heads: HashMap<SessionId, ThreadId>,
    /// Requests without an answer yet, by the event they wait after.
    under_way: HashMap<(ThreadId, Seq), usize>,
    unwritten: Shelf,
    summaries: VecDeque<OwnSummary>,
    /// The thread that was answered so last, by whose it is and what the answer says.
    answered: HashMap<Past, ThreadId>,
    /// What the last answer of a thread was called by its provider.
    answers: HashMap<ThreadId, AnswerId>,
    /// What users said, the session they spoke in last at the end.
    said: VecDeque<Said>,
}

/// A history, and whose it is.
type Past = (String, Digest);

#[derive(Clone, Debug)]
struct Said {
    principal: String,
    session: SessionId,
    words: VecDeque<String>,
}

/// Where a thread stands.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) session: SessionId,
    pub(super) thread: ThreadId,
    pub(super) head: Seq,
    pub(super) key: Option<String>,
    /// What stood beside and before the history of its last request.
    pub(super) instructions: Digest,
    pub(super) line: Line,
}

/// A summary that a client had made of its own session.
#[derive(Clone, Debug)]
pub(super) struct OwnSummary {
    pub(super) principal: String,
    pub(super) session: SessionId,
    pub(super) summary: Summary,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            turns: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            inner: Mutex::default(),
        }
    }
}

impl Known {
    /// Waits until no other request of the session is being placed.
    pub(super) fn turn_of(&self, principal: &str, session: &str) -> Option<MutexGuard<'_, ()>> {
        let stripe = self.hasher.hash_one((principal, session)) % STRIPES as u64;
        let turn = self.turns.get(usize::try_from(stripe).ok()?)?;
        Some(turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The thread that ends with this history.
    pub(super) fn standing(&self, principal: &str, history: Digest) -> Option<Standing> {
        let mut inner = self.inner();
        let key = (principal.to_owned(), history);
        if let Some(found) = inner.young.get(&key) {
            return Some(found.clone());
        }
        let found = inner.old.remove(&key)?;
        inner.keep(key, found.clone());
        Some(found)
    }

    /// A request waits for its answer.
    pub(super) fn asked(&self, ticket: &Ticket) {
        *self.inner().under_way.entry((ticket.thread, ticket.head)).or_default() += 1;
    }

    /// A request waits no longer at this place.
    pub(super) fn answered(&self, place: (ThreadId, Seq)) {
        let mut inner = self.inner();
        if let Some(count) = inner.under_way.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                inner.under_way.remove(&place);
            }
        }
    }

    /// Whether a request waits for its answer there.
    pub(super) fn is_under_way(&self, thread: ThreadId, head: Seq) -> bool {
        self.inner().under_way.contains_key(&(thread, head))
    }

    /// A thread ends here, after a request and its answer.
    pub(super) fn stands(&self, ticket: &Ticket, thread: ThreadId, head: Head) {
        let standing = Standing {
            session: ticket.session,
            thread,
            head: head.seq,
            key: ticket.key.clone(),
            instructions: ticket.instructions,
            line: ticket.line,
        };
        self.inner().keep((ticket.principal.clone(), head.link.normal), standing);
    }

    /// A thread goes on, or what is remembered of it may be wrong.
    pub(super) fn forget(&self, thread: ThreadId) {
        let mut inner = self.inner();
        if let Some(past) = inner.ends.remove(&thread) {
            inner.young.remove(&past);
            inner.old.remove(&past);
        }
    }

    /// By what a request may belong together with others.
    pub(super) fn marks(&self, principal: &str, caller: &Caller, seen: &Seen<'_>) -> Vec<Mark> {
        unwritten::marks(&self.hasher, principal, caller, seen)
    }

    /// The mark of all requests of a session.
    pub(super) fn mark_of(&self, session: SessionId) -> Mark {
        unwritten::mark_of(&self.hasher, session)
    }

    /// A request is to be written with its answer.
    pub(super) fn leaves_unwritten(&self, unwritten: &Arc<Unwritten>) {
        self.inner().unwritten.put(unwritten);
    }

    /// A request is written, or was tried to be: it is no longer anybody's business but its answer's.
    pub(super) fn is_written(&self, unwritten: &Arc<Unwritten>) {
        self.inner().unwritten.take(unwritten);
    }

    /// Requests that came before a time and are not written.
    pub(super) fn unwritten_before(&self, time: Time) -> Vec<Arc<Unwritten>> {
        self.inner().unwritten.before(time)
    }

    /// Requests with one of these marks that are not written.
    pub(super) fn unwritten(&self, marks: &[Mark]) -> Vec<Arc<Unwritten>> {
        self.inner().unwritten.with(marks)
    }

    /// The thread that a session goes on with, if this process saw it last.
    pub(super) fn head_of(&self, session: SessionId) -> Option<ThreadId> {
        self.inner().heads.get(&session).copied()
    }

    /// A session goes on with a thread.
    pub(super) fn goes_on_with(&self, session: SessionId, thread: ThreadId) {
        let mut inner = self.inner();
        if inner.heads.len() >= 2 * THREADS {
            inner.heads.clear();
        }
        inner.heads.insert(session, thread);
    }

    /// Whether a thread's last answer was called like this too: some servers call all of theirs the same.
    pub(super) fn is_called_again(&self, thread: ThreadId, answer: &AnswerId) -> bool {
        let mut inner = self.inner();
        if inner.answers.len() >= 2 * THREADS {
            inner.answers.clear();
        }
        inner.answers.insert(thread, answer.clone()).as_ref() == Some(answer)
    }

    /// A thread was answered, and the answer ends like this.
    pub(super) fn answered_with(&self, ticket: &Ticket, newest: Digest, thread: ThreadId) {
        let mut inner = self.inner();
        if inner.answered.len() >= 2 * THREADS {
            inner.answered.clear();
        }
        inner.answered.insert((ticket.principal.clone(), newest), thread);
    }

    /// The thread of a principal that was answered so last.
    pub(super) fn thread_answered_with(&self, principal: &str, newest: Digest) -> Option<ThreadId> {
        self.inner().answered.get(&(principal.to_owned(), newest)).copied()
    }

    /// A client had its session summarised.
    pub(super) fn compacting(&self, ticket: &Ticket, summary: Summary) {
        if mark(&summary).len() > SUMMARY {
            return;
        }
        let mut inner = self.inner();
        if inner.summaries.len() == SUMMARIES {
            inner.summaries.pop_front();
        }
        let principal = ticket.principal.clone();
        inner.summaries.push_back(OwnSummary { principal, session: ticket.session, summary });
    }

    /// The summaries of a principal that wait, newest first.
    pub(super) fn summaries(&self, principal: &str) -> Vec<OwnSummary> {
        let inner = self.inner();
        inner.summaries.iter().rev().filter(|summary| summary.principal == principal).cloned().collect()
    }

    /// A user said something in a session.
    pub(super) fn said(&self, principal: &str, session: SessionId, words: String) {
        let mut inner = self.inner();
        let before = inner.said.iter().position(|said| said.session == session);
        let mut said = before.and_then(|at| inner.said.remove(at)).unwrap_or_else(|| Said {
            principal: principal.to_owned(),
            session,
            words: VecDeque::new(),
        });
        if !said.words.contains(&words) {
            said.words.push_back(words);
        }
        if said.words.len() > WORDS {
            // The first words stay: a summary of the beginning tells them.
            said.words.remove(1);
        }
        if inner.said.len() == SAID {
            inner.said.pop_front();
        }
        inner.said.push_back(said);
    }

    /// The session of which most is told again in `text`; of several the newest. A word or two is not enough.
    pub(super) fn told_in(&self, principal: &str, text: &str) -> Option<SessionId> {
        // Searching takes its time: nobody waits for it.
        let said: Vec<Said> = {
            let inner = self.inner();
            inner.said.iter().filter(|said| said.principal == principal).cloned().collect()
        };
        let told = |said: &Said| {
            let words = said.words.iter().filter(|words| text.contains(words.as_str()));
            words.map(|words| words.chars().count()).sum::<usize>()
        };
        let most = said.iter().map(|said| (told(said), said.session)).max_by_key(|(letters, _)| *letters)?;
        (most.0 >= TOLD).then_some(most.1)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&mut self, past: Past, standing: Standing) {
        if self.young.len() >= THREADS {
            let young = std::mem::take(&mut self.young);
            for (past, standing) in std::mem::replace(&mut self.old, young) {
                if self.ends.get(&standing.thread) == Some(&past) {
                    self.ends.remove(&standing.thread);
                }
            }
        }
        if let Some(before) = self.ends.insert(standing.thread, past.clone())
            && before != past
        {
            self.young.remove(&before);
            self.old.remove(&before);
        }
        self.young.insert(past, standing);
    }
}
