//! What a gateway has recorded, read back from its database while it goes on.

use std::{path::Path, sync::Arc};

use epitome::{
    core::{Fact, Seq, ThreadId},
    session::verify_call,
    store::{
        Store, StoreLocation, StoreOptions, open_store,
        records::{CallRow, ExchangeRow, SessionRow, ThreadRow},
    },
};

use super::{super::harness::Bench, played::eventually};

/// A database, to be read.
pub(super) struct Recorded {
    store: Arc<dyn Store>,
}

impl Recorded {
    /// What is in the database of `bench`.
    pub(super) fn on(bench: &Bench) -> Self {
        Self::at(&bench.path("log.db"))
    }

    /// What is in the database at `path`.
    pub(super) fn at(path: &Path) -> Self {
        Self {
            store: open_store(&StoreLocation::named(path).expect("a path"), StoreOptions::default())
                .expect("a database"),
        }
    }

    /// All sessions.
    pub(super) fn sessions(&self) -> Vec<SessionRow> {
        self.store.sessions().expect("readable")
    }

    /// The only session.
    #[track_caller]
    pub(super) fn session(&self) -> SessionRow {
        let mut sessions = self.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:#?}");
        sessions.remove(0)
    }

    /// All threads of all sessions.
    pub(super) fn threads(&self) -> Vec<ThreadRow> {
        let threads = |session: SessionRow| self.store.threads(session.id).expect("readable");
        self.sessions().into_iter().flat_map(threads).collect()
    }

    /// All exchanges, as they ended.
    pub(super) fn exchanges(&self) -> Vec<ExchangeRow> {
        let of =
            |session: SessionRow| self.store.exchanges(session.id, 0, usize::MAX >> 1).expect("readable");
        let mut all: Vec<_> = self.sessions().into_iter().flat_map(of).collect();
        all.sort_by_key(|row| row.number);
        all
    }

    /// How all exchanges ended, once there are `count`: those that break are recorded after their clients are gone.
    #[track_caller]
    pub(super) fn endings(&self, count: usize) -> Vec<String> {
        eventually("so many exchanges are recorded", || self.exchanges().len() >= count);
        self.exchanges().into_iter().map(|row| row.exchange.ending).collect()
    }

    /// What was said in a thread, and what broke off in it, in order.
    pub(super) fn story(&self, thread: ThreadId) -> Vec<String> {
        let events = self.store.read(thread, Seq(1), usize::MAX >> 1).expect("readable");
        let told = events.iter().filter_map(|logged| match &logged.event.fact {
            Fact::UserSaid { .. } | Fact::AssistantSaid { .. } | Fact::ToolReturned { .. } => {
                Some(logged.event.fact.text())
            }
            Fact::Carried { kind } if kind == "answer_cut" => Some(format!("({kind})")),
            _ => None,
        });
        told.collect()
    }

    /// The facts of a thread, in order.
    pub(super) fn facts(&self, thread: ThreadId) -> Vec<Fact> {
        let events = self.store.read(thread, Seq(1), usize::MAX >> 1).expect("readable");
        events.into_iter().map(|logged| logged.event.fact).collect()
    }

    /// All that is kept of a thread, word for word.
    pub(super) fn raw(&self, thread: ThreadId) -> String {
        let events = self.store.read(thread, Seq(1), usize::MAX >> 1).expect("readable");
        let lines: Vec<&str> = events.iter().map(|logged| &*logged.event.raw.json).collect();
        lines.join("\n")
    }

    /// How many summaries were ordered.
    pub(super) fn orders(&self) -> usize {
        self.store.jobs(None).expect("readable").len()
    }

    /// All calls of all threads, once each.
    pub(super) fn calls(&self) -> Vec<CallRow> {
        let of = |thread: ThreadRow| {
            let calls = self.store.calls(thread.id, 0, usize::MAX >> 1).expect("readable");
            calls.into_iter().filter(move |row| row.thread == thread.id)
        };
        self.threads().into_iter().flat_map(of).collect()
    }

    /// Every call has come to an end and can be written again; and nothing is wrong with the database.
    #[track_caller]
    pub(super) fn check_calls(&self) {
        eventually("every call has an end", || self.calls().iter().all(|row| !row.outcomes.is_empty()));
        self.check_written();
    }

    /// Every call can be written again, however it ended; and nothing is wrong with the database.
    #[track_caller]
    pub(super) fn check_written(&self) {
        for row in self.calls() {
            let again = verify_call(&*self.store, row.thread, row.number).expect("it can be written again");
            assert!(again.is_same(), "call {} of {}", row.number, row.thread);
        }
        self.check_health();
    }

    /// Nothing is wrong with the database.
    #[track_caller]
    pub(super) fn check_health(&self) {
        let report = self.store.doctor().expect("readable");
        assert!(report.is_healthy(), "{:#?}", report.problems().collect::<Vec<_>>());
    }
}
