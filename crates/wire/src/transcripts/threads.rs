//! The threads of a session while its file is read.
//!
//! Readers meet events in the order of the file and only ever add at the end of a thread: that alone makes them
//! prefix-stable. A [`ThreadPosition`] is the point after a record; the next record continues there if no other has, and forks
//! there otherwise.

use std::collections::HashMap;

use epitome_core::{Event, Seq, SessionId, ThreadId, id::CallId};

use super::{
    TranscriptFormat, TranscriptSession, TranscriptThread, TranscriptThreadStart,
    assemble::{MAIN_THREAD_NAME, session_id, thread_id},
};

/// The threads so far. There is always a main one, and it is the first.
#[derive(Debug)]
pub(crate) struct ThreadTree {
    session: SessionId,
    list: Vec<TranscriptThread>,
    /// For each thread, its position among the forks.
    forks: Vec<ForkNode>,
    /// Number of times each name was requested.
    names: HashMap<String, u64>,
}

/// A thread of a [`ThreadTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadIndex(usize);

/// Position of a thread among the forks.
#[derive(Clone, Copy, Debug)]
struct ForkNode {
    /// The thread it forks from.
    parent: Option<ThreadIndex>,
    /// A thread further up, or itself: a shortcut, so that no chain of forks is long to climb.
    jump: ThreadIndex,
    depth: usize,
}

/// After an event of a thread, or before its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadPosition {
    /// The thread that owns the event.
    pub(crate) thread: ThreadIndex,
    /// The event; [`Seq::START`] before the first.
    pub(crate) seq: Seq,
}

impl ThreadPosition {
    /// The place of the event that comes next on the same thread.
    pub(crate) fn next(self) -> Self {
        Self { thread: self.thread, seq: self.seq.next() }
    }
}

impl ForkNode {
    fn root(index: ThreadIndex) -> Self {
        Self { parent: None, jump: index, depth: 0 }
    }
}

/// Id of a session's main thread, the same for every file of the session.
pub(crate) fn main_thread(session: SessionId) -> ThreadId {
    thread_id(session, MAIN_THREAD_NAME)
}

/// The id and key of a session: the agent's own name for it, or its file's name if it has none.
pub(crate) fn session_identity(
    format: TranscriptFormat,
    own: Option<&str>,
    file: &str,
) -> (SessionId, String) {
    let key = own.filter(|own| !own.is_empty()).unwrap_or(file);
    (session_id(format, key), key.to_owned())
}

impl ThreadTree {
    /// The main thread.
    pub(crate) const MAIN: ThreadIndex = ThreadIndex(0);

    /// The threads of a session whose main one comes from `start`.
    pub(crate) fn new(session: SessionId, start: TranscriptThreadStart) -> Self {
        let main = TranscriptThread {
            id: main_thread(session),
            name: MAIN_THREAD_NAME.to_owned(),
            start,
            events: Vec::new(),
        };
        Self { session, list: vec![main], forks: vec![ForkNode::root(Self::MAIN)], names: HashMap::new() }
    }

    /// The id of a thread.
    pub(crate) fn id(&self, thread: ThreadIndex) -> ThreadId {
        self.list[thread.0].id
    }

    /// The place at the end of a thread.
    pub(crate) fn end(&self, thread: ThreadIndex) -> ThreadPosition {
        self.owner(ThreadPosition { thread, seq: self.last(thread) })
    }

    /// Number of the last event in a thread's view, its own or shared.
    pub(crate) fn last(&self, thread: ThreadIndex) -> Seq {
        Seq(self.shared(thread).0 + self.list[thread.0].events.len() as u64)
    }

    /// Adds an event at the end of a thread.
    pub(crate) fn push(&mut self, thread: ThreadIndex, event: Event) -> ThreadPosition {
        self.list[thread.0].events.push(event);
        self.end(thread)
    }

    /// Adds an event after `place`: on the same thread if the place is its end, else on a fork with the name that
    /// `name` returns.
    pub(crate) fn push_after(
        &mut self,
        place: ThreadPosition,
        event: Event,
        name: impl FnOnce() -> String,
    ) -> ThreadPosition {
        let thread = if self.end(place.thread) == place { place.thread } else { self.fork(place, name()) };
        self.push(thread, event)
    }

    /// Starts a thread that shares everything up to `place`. If there is nothing to share it is a root.
    pub(crate) fn fork(&mut self, place: ThreadPosition, name: String) -> ThreadIndex {
        let at = self.owner(place);
        if at.seq == Seq::START {
            self.add("fork", name, TranscriptThreadStart::Root, None)
        } else {
            self.add(
                "fork",
                name,
                TranscriptThreadStart::Fork { of: self.id(at.thread), at: at.seq },
                Some(at.thread),
            )
        }
    }

    /// Starts a thread that a tool call started.
    pub(crate) fn spawn(&mut self, name: String, by: Option<ThreadId>, call: Option<CallId>) -> ThreadIndex {
        self.add("spawned", name, TranscriptThreadStart::Spawned { by, call }, None)
    }

    /// Records the call that started a thread, once that is known.
    pub(crate) fn started_by(&mut self, thread: ThreadIndex, by: ThreadId, call: &CallId) {
        if let TranscriptThreadStart::Spawned { by: known, call: known_call @ None } =
            &mut self.list[thread.0].start
        {
            *known = Some(by);
            *known_call = Some(call.clone());
        }
    }

    /// Returns true if the event at `place` is in the view of `thread`.
    pub(crate) fn has_in_view(&self, thread: ThreadIndex, place: ThreadPosition) -> bool {
        let place = self.owner(place);
        if thread == place.thread {
            return place.seq <= self.last(thread);
        }
        // The path from the place's thread to this one leaves it where the first fork on the path begins.
        let fork = self.ancestor(thread, self.forks[place.thread.0].depth + 1);
        self.forks[fork.0].parent == Some(place.thread) && place.seq <= self.shared(fork)
    }

    /// Returns true if any thread has an event.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.iter().all(|thread| thread.events.is_empty())
    }

    /// The session, standing at `head`.
    pub(crate) fn into_session(
        self,
        key: String,
        title: Option<String>,
        head: ThreadIndex,
    ) -> TranscriptSession {
        let head = self.id(head);
        TranscriptSession { id: self.session, key, title, folder: None, threads: self.list, head }
    }

    fn add(
        &mut self,
        kind: &str,
        name: String,
        start: TranscriptThreadStart,
        parent: Option<ThreadIndex>,
    ) -> ThreadIndex {
        // Agents name branches after records, and a file may give two records one name.
        let asked = self.names.entry(name.clone()).or_default();
        *asked += 1;
        let name = if *asked == 1 { name } else { format!("{name} ({asked})") };
        let id = ThreadId::derived(&[&self.session.to_string(), kind, &name]);
        self.list.push(TranscriptThread { id, name, start, events: Vec::new() });
        let index = ThreadIndex(self.forks.len());
        self.forks.push(parent.map_or(ForkNode::root(index), |parent| self.below(parent)));
        index
    }

    /// A fork of `parent`. If the two jumps above it are equally long, it gets one over both of them.
    fn below(&self, parent: ThreadIndex) -> ForkNode {
        let at = |index: ThreadIndex| self.forks[index.0];
        let (first, second) = (at(parent).jump, at(at(parent).jump).jump);
        let even = at(parent).depth - at(first).depth == at(first).depth - at(second).depth;
        ForkNode {
            parent: Some(parent),
            jump: if even { second } else { parent },
            depth: at(parent).depth + 1,
        }
    }

    /// The thread that `thread` comes from at some depth; itself if it is no deeper.
    fn ancestor(&self, mut thread: ThreadIndex, depth: usize) -> ThreadIndex {
        while let ForkNode { parent: Some(parent), jump, depth: at } = self.forks[thread.0]
            && at > depth
        {
            thread = if self.forks[jump.0].depth >= depth { jump } else { parent };
        }
        thread
    }

    /// Number of the last event that a thread shares with its parent.
    fn shared(&self, thread: ThreadIndex) -> Seq {
        match self.list[thread.0].start {
            TranscriptThreadStart::Fork { at, .. } => at,
            TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => Seq::START,
        }
    }

    /// The same place, on the thread that owns its event.
    fn owner(&self, mut place: ThreadPosition) -> ThreadPosition {
        while let Some(parent) = self.forks[place.thread.0].parent
            && place.seq <= self.shared(place.thread)
        {
            place.thread = parent;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::Fact;

    use super::*;

    fn event() -> Event {
        Event::from_fact(Fact::ModelChanged { model: "m".into() }, None)
    }

    /// Main with three events, a fork after the first with one, and a fork of that fork at the same place.
    fn forked() -> (ThreadTree, ThreadPosition, ThreadPosition, ThreadPosition) {
        let mut threads = ThreadTree::new(SessionId::derived(&["s"]), TranscriptThreadStart::Root);
        let first = threads.push(ThreadTree::MAIN, event());
        threads.push(ThreadTree::MAIN, event());
        let main = threads.push(ThreadTree::MAIN, event());
        let fork = threads.push_after(first, event(), || "a".to_owned());
        let empty = threads.fork(first, "a".to_owned());
        let other = threads.push_after(threads.end(empty), event(), || "b".to_owned());
        (threads, main, fork, other)
    }

    #[test]
    fn a_place_that_someone_continued_forks() {
        let (threads, main, fork, other) = forked();
        assert_eq!((main.seq, fork.seq, other.seq), (Seq(3), Seq(2), Seq(2)));
        let session = threads.into_session("k".to_owned(), None, fork.thread);
        let names: Vec<_> = session.threads.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, ["main", "a", "a (2)", "b"]);
        for thread in &session.threads[1..] {
            assert_eq!(thread.start, TranscriptThreadStart::Fork { of: main_thread(session.id), at: Seq(1) });
        }
        assert_eq!(session.head, session.threads[1].id);
    }

    #[test]
    fn a_thread_sees_what_it_shares_and_no_more() {
        let (threads, main, fork, other) = forked();
        let first = ThreadPosition { thread: ThreadTree::MAIN, seq: Seq(1) };
        assert!(threads.has_in_view(fork.thread, first) && threads.has_in_view(fork.thread, fork));
        assert!(!threads.has_in_view(fork.thread, main) && !threads.has_in_view(fork.thread, other));
        assert!(!threads.has_in_view(ThreadTree::MAIN, main.next()));
    }

    #[test]
    fn a_long_chain_of_forks_is_seen_through() {
        let mut threads = ThreadTree::new(SessionId::derived(&["s"]), TranscriptThreadStart::Root);
        let mut chain = vec![threads.push(ThreadTree::MAIN, event())];
        for _ in 0..100 {
            let before = *chain.last().expect("it begins with one");
            threads.push(before.thread, event());
            chain.push(threads.push_after(before, event(), || "next".to_owned()));
        }
        let side = threads.push_after(chain[40], event(), || "side".to_owned());
        for (index, place) in chain.iter().enumerate() {
            assert!(threads.has_in_view(chain[100].thread, *place), "{index}");
            assert!(!threads.has_in_view(place.thread, side), "{index}");
            assert_eq!(threads.has_in_view(side.thread, *place), index <= 40, "{index}");
            // What the thread went on with after the fork is its own.
            assert!(!threads.has_in_view(chain[100].thread, place.next()), "{index}");
        }
    }

    #[test]
    fn a_fork_of_nothing_is_a_root() {
        let mut threads = ThreadTree::new(SessionId::derived(&["s"]), TranscriptThreadStart::Root);
        threads.push(ThreadTree::MAIN, event());
        let before = ThreadPosition { thread: ThreadTree::MAIN, seq: Seq::START };
        let place = threads.push_after(before, event(), || "again".to_owned());
        assert_eq!(place, ThreadPosition { thread: ThreadIndex(1), seq: Seq(1) });
        assert_eq!(threads.list[1].start, TranscriptThreadStart::Root);
    }
}
