//! A recorder's memory between requests. All of it is a cache that can be read from the store again, except for the
//! requests that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use epitome_core::{
    Digest, Seq, SessionId, ThreadId,
    event::{Summary, Timestamp},
    id::AnswerId,
};
use epitome_store::ThreadHead;
use epitome_wire::{caller::Caller, incoming::IncomingRequest};

use super::{
    PendingRecord,
    client_compaction::mark,
    deferred_commit::{self, DeferredCommit, DeferredCommits, RelationMark},
    placement::ThreadKind,
};

/// Number of threads whose ends are remembered, in each of two generations.
const THREADS_PER_GENERATION: usize = 4_096;

/// Number of clients' own summaries that wait for a history that begins with them.
const SUMMARIES: usize = 64;

/// Longest summary that is kept; no client goes on with a longer one.
const MAX_SUMMARY_BYTES: usize = 1 << 20;

/// Number of sessions known by their users' words, and of texts kept for each.
const MAX_SESSIONS_WITH_TEXTS: usize = 256;
const MAX_TEXTS_PER_SESSION: usize = 32;

/// Number of letters of a session that a text must repeat.
const MIN_REPEATED_CHARS: usize = 12;

/// Number of locks for sessions: requests under different ones may be placed at the same time.
const STRIPES: usize = 64;

/// A recorder's memory.
#[derive(Debug)]
pub(super) struct RecorderCache {
    turns: Vec<Mutex<()>>,
    hasher: RandomState,
    inner: Mutex<RecorderCacheState>,
}

#[derive(Debug, Default)]
struct RecorderCacheState {
    /// Ends of threads by principal and history; the newer generation and the older.
    young: HashMap<HistoryKey, ThreadEnd>,
    old: HashMap<HistoryKey, ThreadEnd>,
    /// Entry of each thread in those maps: it has one end.
    ends: HashMap<ThreadId, HistoryKey>,
    heads: HashMap<SessionId, ThreadId>,
    /// Requests without an answer yet, by the event they wait after.
    under_way: HashMap<(ThreadId, Seq), usize>,
    unwritten: DeferredCommits,
    summaries: VecDeque<ClientSummary>,
    /// The thread that was last given an answer, by the principal and the answer's digest.
    answered: HashMap<HistoryKey, ThreadId>,
    /// The provider's id for the last answer of a thread.
    answers: HashMap<ThreadId, AnswerId>,
    /// Users' words, the most recent session at the end.
    said: VecDeque<SessionUserTexts>,
}

/// A history, and its principal.
type HistoryKey = (String, Digest);

#[derive(Clone, Debug)]
struct SessionUserTexts {
    principal: String,
    session: SessionId,
    words: VecDeque<String>,
}

/// End of a thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadEnd {
    pub(super) session: SessionId,
    pub(super) thread: ThreadId,
    pub(super) head: Seq,
    pub(super) key: Option<String>,
    /// Digest of the instructions of its last request.
    pub(super) instructions: Digest,
    pub(super) line: ThreadKind,
}

/// A summary that a client had made of its own session.
#[derive(Clone, Debug)]
pub(super) struct ClientSummary {
    pub(super) principal: String,
    pub(super) session: SessionId,
    pub(super) summary: Summary,
}

impl Default for RecorderCache {
    fn default() -> Self {
        Self {
            turns: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            inner: Mutex::default(),
        }
    }
}

impl RecorderCache {
    /// Waits until no other request of the session is being placed.
    pub(super) fn lock_session(&self, principal: &str, session: &str) -> Option<MutexGuard<'_, ()>> {
        let stripe = self.hasher.hash_one((principal, session)) % STRIPES as u64;
        let turn = self.turns.get(usize::try_from(stripe).ok()?)?;
        Some(turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The thread that ends with this history.
    pub(super) fn thread_end(&self, principal: &str, history: Digest) -> Option<ThreadEnd> {
        let mut inner = self.inner();
        let key = (principal.to_owned(), history);
        if let Some(found) = inner.young.get(&key) {
            return Some(found.clone());
        }
        let found = inner.old.remove(&key)?;
        inner.keep(key, found.clone());
        Some(found)
    }

    /// Notes that a request waits for its answer.
    pub(super) fn note_waiting(&self, ticket: &PendingRecord) {
        *self.inner().under_way.entry((ticket.thread, ticket.head)).or_default() += 1;
    }

    /// Notes that a request at this place waits no longer.
    pub(super) fn note_answered(&self, place: (ThreadId, Seq)) {
        let mut inner = self.inner();
        if let Some(count) = inner.under_way.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                inner.under_way.remove(&place);
            }
        }
    }

    /// Returns true if a request waits for its answer at this place.
    pub(super) fn is_under_way(&self, thread: ThreadId, head: Seq) -> bool {
        self.inner().under_way.contains_key(&(thread, head))
    }

    /// Notes that a thread ends here, after a request and its answer.
    pub(super) fn note_thread_end(&self, ticket: &PendingRecord, thread: ThreadId, head: ThreadHead) {
        let standing = ThreadEnd {
            session: ticket.session,
            thread,
            head: head.seq,
            key: ticket.key.clone(),
            instructions: ticket.instructions,
            line: ticket.line,
        };
        self.inner().keep((ticket.principal.clone(), head.link.normal), standing);
    }

    /// Forgets a thread's end, because the thread goes on or the entry may be wrong.
    pub(super) fn forget(&self, thread: ThreadId) {
        let mut inner = self.inner();
        if let Some(past) = inner.ends.remove(&thread) {
            inner.young.remove(&past);
            inner.old.remove(&past);
        }
    }

    /// Marks by which a request may be related to others.
    pub(super) fn marks(
        &self,
        principal: &str,
        caller: &Caller,
        seen: &IncomingRequest<'_>,
    ) -> Vec<RelationMark> {
        deferred_commit::marks(&self.hasher, principal, caller, seen)
    }

    /// The mark of all requests of a session.
    pub(super) fn mark_of(&self, session: SessionId) -> RelationMark {
        deferred_commit::mark_of(&self.hasher, session)
    }

    /// Notes a request that is to be written with its answer.
    pub(super) fn note_deferred(&self, unwritten: &Arc<DeferredCommit>) {
        self.inner().unwritten.put(unwritten);
    }

    /// Forgets a request that is written, or was attempted: only its answer is concerned with it now.
    pub(super) fn forget_deferred(&self, unwritten: &Arc<DeferredCommit>) {
        self.inner().unwritten.take(unwritten);
    }

    /// Requests that came before a time and are not written.
    pub(super) fn unwritten_before(&self, time: Timestamp) -> Vec<Arc<DeferredCommit>> {
        self.inner().unwritten.arrived_before(time)
    }

    /// Requests with one of these marks that are not written.
    pub(super) fn unwritten(&self, marks: &[RelationMark]) -> Vec<Arc<DeferredCommit>> {
        self.inner().unwritten.with_marks(marks)
    }

    /// The newest thread of a session, if this process saw it last.
    pub(super) fn head_of(&self, session: SessionId) -> Option<ThreadId> {
        self.inner().heads.get(&session).copied()
    }

    /// Notes the newest thread of a session.
    pub(super) fn note_head(&self, session: SessionId, thread: ThreadId) {
        let mut inner = self.inner();
        if inner.heads.len() >= 2 * THREADS_PER_GENERATION {
            inner.heads.clear();
        }
        inner.heads.insert(session, thread);
    }

    /// Returns true if a thread's last answer had the same id: some servers give all of theirs the same.
    pub(super) fn repeats_answer_id(&self, thread: ThreadId, answer: &AnswerId) -> bool {
        let mut inner = self.inner();
        if inner.answers.len() >= 2 * THREADS_PER_GENERATION {
            inner.answers.clear();
        }
        inner.answers.insert(thread, answer.clone()).as_ref() == Some(answer)
    }

    /// Notes the answer of a thread, by its last digest.
    pub(super) fn note_answer(&self, ticket: &PendingRecord, newest: Digest, thread: ThreadId) {
        let mut inner = self.inner();
        if inner.answered.len() >= 2 * THREADS_PER_GENERATION {
            inner.answered.clear();
        }
        inner.answered.insert((ticket.principal.clone(), newest), thread);
    }

    /// The thread of a principal that was last given this answer.
    pub(super) fn thread_answered_with(&self, principal: &str, newest: Digest) -> Option<ThreadId> {
        self.inner().answered.get(&(principal.to_owned(), newest)).copied()
    }

    /// Notes that a client had its session summarised.
    pub(super) fn note_client_summary(&self, ticket: &PendingRecord, summary: Summary) {
        if mark(&summary).len() > MAX_SUMMARY_BYTES {
            return;
        }
        let mut inner = self.inner();
        if inner.summaries.len() == SUMMARIES {
            inner.summaries.pop_front();
        }
        let principal = ticket.principal.clone();
        inner.summaries.push_back(ClientSummary { principal, session: ticket.session, summary });
    }

    /// The waiting summaries of a principal, newest first.
    pub(super) fn summaries(&self, principal: &str) -> Vec<ClientSummary> {
        let inner = self.inner();
        inner.summaries.iter().rev().filter(|summary| summary.principal == principal).cloned().collect()
    }

    /// Notes a user's message in a session.
    pub(super) fn note_user_text(&self, principal: &str, session: SessionId, words: String) {
        let mut inner = self.inner();
        let before = inner.said.iter().position(|said| said.session == session);
        let mut said = before.and_then(|at| inner.said.remove(at)).unwrap_or_else(|| SessionUserTexts {
            principal: principal.to_owned(),
            session,
            words: VecDeque::new(),
        });
        if !said.words.contains(&words) {
            said.words.push_back(words);
        }
        if said.words.len() > MAX_TEXTS_PER_SESSION {
            // The first messages stay: a summary repeats the beginning.
            said.words.remove(1);
        }
        if inner.said.len() == MAX_SESSIONS_WITH_TEXTS {
            inner.said.pop_front();
        }
        inner.said.push_back(said);
    }

    /// The session of which `text` repeats most; of several the newest. A word or two is not enough.
    pub(super) fn session_quoted_in(&self, principal: &str, text: &str) -> Option<SessionId> {
        // The search takes time, so it runs on a copy, outside the lock.
        let said: Vec<SessionUserTexts> = {
            let inner = self.inner();
            inner.said.iter().filter(|said| said.principal == principal).cloned().collect()
        };
        let told = |said: &SessionUserTexts| {
            let words = said.words.iter().filter(|words| text.contains(words.as_str()));
            words.map(|words| words.chars().count()).sum::<usize>()
        };
        let most = said.iter().map(|said| (told(said), said.session)).max_by_key(|(letters, _)| *letters)?;
        (most.0 >= MIN_REPEATED_CHARS).then_some(most.1)
    }

    fn inner(&self) -> MutexGuard<'_, RecorderCacheState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecorderCacheState {
    fn keep(&mut self, past: HistoryKey, standing: ThreadEnd) {
        if self.young.len() >= THREADS_PER_GENERATION {
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
