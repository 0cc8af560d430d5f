//! The events of an export, each in its place.

use std::collections::HashMap;

use epitome_core::{ChainLink, Event, Seq, SessionId, ThreadId};

use super::{
    super::{
        TranscriptFile, TranscriptFormat, TranscriptSession, TranscriptThread, TranscriptThreadStart,
        TranscriptWarning,
        assemble::{MAIN_THREAD_NAME, thread_id},
    },
    ExportLine,
};

/// The threads so far, parents before their forks.
#[derive(Default)]
pub(super) struct ExportLog {
    threads: Vec<ExportedThread>,
    /// Each thread by the id it was exported under.
    known: HashMap<ThreadId, usize>,
    /// The thread and the event of the line before.
    before: Option<(usize, Seq)>,
    misplaced: OddityCount,
    changed: OddityCount,
    contradicted: OddityCount,
}

/// A thread, reconstructed from lines.
struct ExportedThread {
    id: ThreadId,
    /// The thread it goes on from, and the last event that it shares.
    parent: Option<(usize, Seq)>,
    /// First thread of its session.
    root: usize,
    /// Newest thread of its session, if it is the first.
    head: usize,
    events: Vec<Event>,
    /// The chains after each event, if its line has them.
    links: Vec<Option<ChainLink>>,
}

impl ExportedThread {
    fn shared(&self) -> Seq {
        self.parent.map_or(Seq::START, |(_, at)| at)
    }

    /// Index of an event among its own events, or the index it would have.
    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.0.checked_sub(self.shared().0)?.checked_sub(1)?).ok()
    }
}

/// Oddities that may concern many lines, each reported once.
#[derive(Default)]
struct OddityCount {
    count: u64,
    first: Option<u64>,
}

impl OddityCount {
    fn add(&mut self, line: u64) {
        self.count += 1;
        self.first.get_or_insert(line);
    }

    fn tell(&self, reading: &mut TranscriptFile, what: &str, why: &str) {
        if let Some(line) = self.first {
            let what = format!("{what}, {} from this line on: {why}", self.count);
            reading.warnings.push(TranscriptWarning::at(line, what));
        }
    }
}

impl ExportLog {
    /// Takes a line.
    pub(super) fn take(&mut self, line: ExportLine) {
        let Some(thread) = self.thread_of(&line) else { return self.misplaced.add(line.number) };
        let index = self.threads[thread].index(line.id.seq);
        match index {
            Some(index) if index == self.threads[thread].events.len() => {
                if !self.is_proved(thread, &line) {
                    self.changed.add(line.number);
                }
                let exported = &mut self.threads[thread];
                exported.events.push(line.event);
                exported.links.push(line.link);
            }
            // A file of several exports contains the events they share more than once.
            Some(index) if index < self.threads[thread].events.len() => {
                if self.threads[thread].events[index] != line.event {
                    self.contradicted.add(line.number);
                }
            }
            Some(_) | None => return self.misplaced.add(line.number),
        }
        // An export ends with the thread that it was made of.
        let root = self.threads[thread].root;
        self.threads[root].head = thread;
        self.before = Some((thread, line.id.seq));
    }

    /// The thread of a line. A new thread begins with the line, or forks from the line before it.
    fn thread_of(&mut self, line: &ExportLine) -> Option<usize> {
        if let Some(known) = self.known.get(&line.id.thread) {
            return Some(*known);
        }
        let index = self.threads.len();
        let parent = self.before.filter(|(_, seq)| seq.next() == line.id.seq);
        let (parent, root) = match (line.id.seq, parent) {
            (Seq(1), _) => (None, index),
            (_, Some((parent, at))) => (Some((parent, at)), self.threads[parent].root),
            (_, None) => return None,
        };
        let id = line.id.thread;
        self.threads.push(ExportedThread {
            id,
            parent,
            root,
            head: index,
            events: Vec::new(),
            links: Vec::new(),
        });
        self.known.insert(id, index);
        Some(index)
    }

    /// Returns true if the next line of a thread matches its hash. A line without a hash, or after one, is accepted.
    fn is_proved(&self, thread: usize, line: &ExportLine) -> bool {
        let exported = &self.threads[thread];
        let before = match (exported.links.last(), exported.parent) {
            (Some(after_last), _) => *after_last,
            (None, None) => Some(ChainLink::ROOT),
            (None, Some((parent, at))) => {
                let parent = &self.threads[parent];
                parent.index(at).and_then(|index| *parent.links.get(index)?)
            }
        };
        before
            .zip(line.link)
            .is_none_or(|(before, after)| before.next(&line.event, &line.event.fact_json()) == after)
    }

    /// Assembles the sessions, and reports the oddities.
    pub(super) fn finish(self, reading: &mut TranscriptFile) {
        self.misplaced.tell(
            reading,
            "events that do not follow from what stands before them were left out",
            "lines are missing; read the whole export, with a higher limit if lines were too long",
        );
        self.contradicted.tell(
            reading,
            "events that differ from what an earlier line says of them were left out",
            "read the exports one by one",
        );
        self.changed.tell(
            reading,
            "events that are not what their hashes say were read as they are",
            "they were changed after they were exported",
        );
        self.into_sessions(reading);
    }

    fn into_sessions(self, reading: &mut TranscriptFile) {
        let mut sessions: HashMap<usize, usize> = HashMap::new();
        let names: Vec<(ThreadId, String)> = self.threads.iter().map(|thread| self.name(thread)).collect();
        for (index, thread) in self.threads.into_iter().enumerate() {
            let at = *sessions.entry(thread.root).or_insert(reading.sessions.len());
            if at == reading.sessions.len() {
                let head = names[thread.head].0;
                let (id, key) = (session_of(thread.id), thread.id.to_string());
                reading.sessions.push(TranscriptSession {
                    id,
                    key,
                    title: None,
                    folder: None,
                    threads: Vec::new(),
                    head,
                });
            }
            let start = match thread.parent {
                None => TranscriptThreadStart::Root,
                Some((parent, at)) => TranscriptThreadStart::Fork { of: names[parent].0, at },
            };
            let (id, name) = names[index].clone();
            reading.sessions[at].threads.push(TranscriptThread { id, name, start, events: thread.events });
        }
    }

    /// The id and name of a thread. It cannot keep its own id, which may belong to a thread in the same log.
    fn name(&self, thread: &ExportedThread) -> (ThreadId, String) {
        let name = if thread.parent.is_none() { MAIN_THREAD_NAME.to_owned() } else { thread.id.to_string() };
        (thread_id(session_of(self.threads[thread.root].id), &name), name)
    }
}

fn session_of(root: ThreadId) -> SessionId {
    SessionId::derived(&[TranscriptFormat::Epitome.name(), &root.to_string()])
}
