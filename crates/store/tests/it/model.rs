//! The plainest definition of a log, with which a store is compared.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use epitome_core::{Event, EventId, LoggedEvent, Seq, ThreadId};
use epitome_store::{NewThread, StoreError, ThreadHead, ThreadStart};

/// A log in memory.
#[derive(Debug, Default)]
pub(crate) struct ModelLog {
    threads: RwLock<HashMap<ThreadId, ModelThread>>,
}

#[derive(Debug)]
struct ModelThread {
    made: NewThread,
    /// The head at the fork point; the thread's own events come after it.
    base: ThreadHead,
    own: Vec<LoggedEvent>,
}

impl ModelLog {
    /// An empty log.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// All events of a thread.
    pub(crate) fn all(&self, thread: ThreadId) -> Vec<LoggedEvent> {
        self.read(thread, Seq::START, usize::MAX).expect("known")
    }

    pub(crate) fn open(&self, thread: &NewThread) -> Result<(), StoreError> {
        let mut threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = threads.get(&thread.id) {
            let same = known.made == *thread;
            return if same { Ok(()) } else { Err(StoreError::ThreadDiffers(thread.id)) };
        }
        let base = match &thread.start {
            ThreadStart::Root | ThreadStart::Spawned { .. } => ThreadHead::START,
            ThreadStart::Fork { of, at } => fork_point(&threads, *of, *at)?,
        };
        threads.insert(thread.id, ModelThread { made: thread.clone(), base, own: Vec::new() });
        Ok(())
    }

    pub(crate) fn append(
        &self,
        thread: ThreadId,
        after: Seq,
        events: Vec<Event>,
    ) -> Result<ThreadHead, StoreError> {
        let mut threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        let known = threads.get_mut(&thread).ok_or(StoreError::UnknownThread(thread))?;
        let mut head = known.head();
        if head.seq != after {
            return Err(StoreError::Conflict { thread, after, head });
        }
        for event in events {
            let link = head.link.next(&event, &event.fact_json());
            head = ThreadHead { seq: head.seq.next(), link };
            known.own.push(LoggedEvent { id: EventId { thread, seq: head.seq }, event, link });
        }
        Ok(head)
    }

    pub(crate) fn read(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let threads = self.threads.read().unwrap_or_else(PoisonError::into_inner);
        let mut line = threads.get(&thread).ok_or(StoreError::UnknownThread(thread))?;
        let mut until = line.head().seq;
        let mut slices = Vec::new();
        loop {
            slices.push(line.between(from, until));
            until = until.min(line.base.seq);
            match line.made.start {
                ThreadStart::Fork { of, .. } if from <= until && until > Seq::START => {
                    line = threads.get(&of).ok_or(StoreError::UnknownThread(of))?;
                }
                _ => break,
            }
        }
        Ok(slices.into_iter().rev().flatten().take(limit).cloned().collect())
    }

    pub(crate) fn head(&self, thread: ThreadId) -> Result<ThreadHead, StoreError> {
        let threads = self.threads.read().unwrap_or_else(PoisonError::into_inner);
        threads.get(&thread).map(ModelThread::head).ok_or(StoreError::UnknownThread(thread))
    }
}

impl ModelThread {
    fn head(&self) -> ThreadHead {
        self.own.last().map_or(self.base, |last| ThreadHead { seq: last.id.seq, link: last.link })
    }

    /// Its own events at `from..=until`.
    fn between(&self, from: Seq, until: Seq) -> &[LoggedEvent] {
        let start = self.own.partition_point(|event| event.id.seq < from);
        let end = self.own.partition_point(|event| event.id.seq <= until);
        self.own.get(start..end).unwrap_or_default()
    }
}

/// The head of `of` as it was at `at`, wherever in its ancestry that event is.
fn fork_point(
    threads: &HashMap<ThreadId, ModelThread>,
    of: ThreadId,
    at: Seq,
) -> Result<ThreadHead, StoreError> {
    let mut line = threads.get(&of).ok_or(StoreError::UnknownThread(of))?;
    let head = line.head().seq;
    if at > head {
        return Err(StoreError::ForkBeyondHead { of, at, head });
    }
    loop {
        if let [event] = line.between(at, at) {
            return Ok(ThreadHead { seq: at, link: event.link });
        }
        if at == line.base.seq {
            return Ok(line.base);
        }
        match line.made.start {
            ThreadStart::Fork { of, .. } => line = threads.get(&of).ok_or(StoreError::UnknownThread(of))?,
            ThreadStart::Root | ThreadStart::Spawned { .. } => return Ok(ThreadHead::START),
        }
    }
}
