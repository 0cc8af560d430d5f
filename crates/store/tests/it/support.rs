//! Stores to try things on, and events written as letters.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use epitome_core::{
    ContentPart, Event, Fact, Seq, SessionId, ThreadId, TokenCounter, Tokens,
    event::{
        Compaction, CompactionTrigger, InstructionKind, Pin, Summary, Timestamp, ToolCall, ToolResult, Usage,
    },
};
use epitome_store::{
    NewThread, Store, StoreError, StoreLocation, StoreOptions, ThreadHead, ThreadStart, open_store,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// A store in a directory of its own.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    /// In memory-backed files where there are such: the disk is not what most tests are about.
    pub(crate) fn new() -> Self {
        let builder = tempfile::Builder::new();
        let directory = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
        Self { directory: directory.expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("epitome.db")
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        open_at(&self.path(), counting()).expect("the store opens")
    }

    /// The same, but what is derived is put off for as long as nobody asks for it.
    pub(crate) fn open_late(&self) -> Arc<dyn Store> {
        open_at(&self.path(), late()).expect("the store opens")
    }

    /// A connection of somebody else.
    pub(crate) fn raw(&self) -> Connection {
        raw(&self.path())
    }
}

/// Opens the store in a file.
pub(crate) fn open_at(path: &Path, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    open_store(&StoreLocation::named(path)?, options)
}

pub(crate) fn raw(path: &Path) -> Connection {
    Connection::open(path).expect("the file opens")
}

/// A counter whose numbers one can check in one's head: four bytes a token.
pub(crate) struct Quarters;

impl TokenCounter for Quarters {
    fn name(&self) -> &'static str {
        "quarters"
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens((text.len() as u64).div_ceil(4))
    }
}

pub(crate) fn counting() -> StoreOptions {
    StoreOptions { counter: Some(Arc::new(Quarters)), ..StoreOptions::default() }
}

pub(crate) fn late() -> StoreOptions {
    StoreOptions { lag: Duration::from_hours(1), ..counting() }
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::derived(&[name])
}

pub(crate) fn thread(name: &str) -> ThreadId {
    ThreadId::derived(&[name])
}

/// Opens the thread `name` of the session `name`.
pub(crate) fn root(store: &dyn Store, name: &str) -> ThreadId {
    in_session(store, name, name, ThreadStart::Root)
}

pub(crate) fn in_session(store: &dyn Store, session_name: &str, name: &str, start: ThreadStart) -> ThreadId {
    let new = NewThread {
        id: thread(name),
        session: session(session_name),
        name: name.to_owned(),
        key: None,
        start,
    };
    store.open(&new).expect("the thread can be made");
    new.id
}

pub(crate) fn append(store: &dyn Store, thread: ThreadId, events: Vec<Event>) -> ThreadHead {
    let head = store.head(thread).expect("the thread exists");
    store.append(thread, head.seq, events).expect("nobody else appends")
}

pub(crate) fn user(text: &str) -> Event {
    Event::native(
        "test",
        format!("{{\"user\":{text:?}}}"),
        Fact::UserSaid { parts: vec![ContentPart::text(text)] },
    )
}

/// A letter an event: `u`ser, `i`nstruction, `a`nswer without id, `f` and `F` fragments of two answers, `r`esult,
/// usa`g`e, `c`ompaction of everything so far, `k` compaction that keeps the last event, `m`odel changed, `p`in,
/// `x` carried, in`j`ected, compaction re`q`uested, u`n`pinned. `v` reverts and `w` restores a compaction one and two
/// events before, `V` and `W` one three and four events before; `L` reverts what only comes next. The first stands at
/// `first`.
pub(crate) fn events(first: Seq, script: &str) -> Vec<Event> {
    (first.0..).zip(script.chars()).map(|(place, letter)| event(Seq(place), letter)).collect()
}

fn event(seq: Seq, letter: char) -> Event {
    let call = || ContentPart::ToolCall(ToolCall::function("c", "tool", format!("{{\"at\":{seq}}}")));
    let said = |answer: Option<&str>, parts| Fact::AssistantSaid {
        answer: answer.map(Into::into),
        model: None,
        parts,
    };
    let compacted = |through: Seq, first_kept: Option<Seq>| {
        Fact::Compacted(Compaction {
            summary: Summary::Text(format!("summary at {seq}")),
            through,
            first_kept,
            tokens_before: Some(Tokens(seq.0 * 10)),
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        })
    };
    let fact = match letter {
        'u' => Fact::UserSaid { parts: vec![ContentPart::text(format!("question {seq}"))] },
        'i' => Fact::Instructed { what: InstructionKind::System, parts: vec![ContentPart::text("be brief")] },
        'a' => Fact::AssistantSaid {
            answer: None,
            model: Some("named".into()),
            parts: vec![ContentPart::text("yes")],
        },
        'f' => said(Some("m"), vec![call()]),
        'F' => said(Some("n"), vec![call(), call()]),
        'r' => Fact::ToolReturned {
            results: vec![ToolResult {
                call: "c".into(),
                name: None,
                parts: vec![ContentPart::text("done")],
                error: false,
            }],
            parts: vec![],
        },
        'g' => Fact::UsageReported {
            answer: Some("m".into()),
            model: None,
            usage: Usage { output: Tokens(seq.0), ..Usage::default() },
        },
        'c' => compacted(seq.previous(), None),
        'k' => compacted(Seq(seq.0.saturating_sub(2)), Some(seq.previous())),
        'm' => Fact::ModelChanged { model: format!("model {seq}").into() },
        'p' => Fact::Pinned { pin: Pin::Text("remember".into()) },
        'x' => Fact::Carried { kind: "note".into() },
        'v' => Fact::CompactionReverted { compaction: seq.previous() },
        'V' => Fact::CompactionReverted { compaction: Seq(seq.0.saturating_sub(3)) },
        'w' => Fact::CompactionRestored { compaction: Seq(seq.0.saturating_sub(2)) },
        'W' => Fact::CompactionRestored { compaction: Seq(seq.0.saturating_sub(4)) },
        'L' => Fact::CompactionReverted { compaction: seq.next() },
        'n' => Fact::Unpinned { pin: Pin::Text("remember".into()) },
        'j' => Fact::Injected { hook: "clock".into(), beside: None, parts: vec![ContentPart::text("noon")] },
        'q' => Fact::CompactionRequested { trigger: CompactionTrigger::Agent, focus: Some("tests".into()) },
        other => panic!("no event is written {other}"),
    };
    let time = Some(Timestamp(i64::try_from(seq.0).expect("small") * 1000));
    if fact.is_message() {
        Event::native("test", format!("{{\"{letter}\":{seq}}}"), fact).at(time)
    } else {
        Event::from_fact(fact, time)
    }
}
