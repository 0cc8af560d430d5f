//! Where the database is, and the threads and turns that people name on the command line.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use epitome::{
    core::{EventId, Logged, Seq, ThreadId, tokens::O200k},
    store::{
        EventLog, Options, Sqlite,
        records::{SessionRow, ThreadRow, TurnRow},
    },
};
use etcetera::BaseStrategy;

/// How many events are read at a time.
const PAGE: usize = 1024;

/// The database of this run, not yet opened.
pub(crate) struct Store {
    path: Option<PathBuf>,
}

impl Store {
    /// A database at `path`, or in the user's data directory.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path: path.filter(|path| !path.as_os_str().is_empty()) }
    }

    /// Opens the database, and makes it if there is none.
    pub(crate) fn open(&self) -> anyhow::Result<Sqlite> {
        let options = Options { counter: Some(Arc::new(O200k)), ..Options::default() };
        Ok(Sqlite::open(&self.path()?, options)?)
    }

    /// Opens the database if there is one.
    pub(crate) fn open_if_exists(&self) -> anyhow::Result<Option<Sqlite>> {
        if self.path()?.exists() { self.open().map(Some) } else { Ok(None) }
    }

    /// Opens the database; there must be one.
    pub(crate) fn open_existing(&self) -> anyhow::Result<Sqlite> {
        let Some(store) = self.open_if_exists()? else {
            bail!(
                "there is no database at {}: import a session first (epitome import FILE), or name another (--db)",
                self.path()?.display()
            );
        };
        Ok(store)
    }

    /// Where the database is.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.path {
            return Ok(path.clone());
        }
        let strategy = etcetera::choose_base_strategy()
            .context("cannot find your home directory: name a database with --db or EPITOME_DB")?;
        Ok(strategy.data_dir().join("epitome").join("epitome.db"))
    }
}

/// A thread of `session`: the one named, by name or by the start of its id, else the one the session stands at.
pub(crate) fn thread(store: &Sqlite, session: &SessionRow, name: Option<&str>) -> anyhow::Result<ThreadRow> {
    let mut threads = store.threads(session.id)?;
    let Some(name) = name else {
        let head = session.head.or_else(|| threads.first().map(|thread| thread.id));
        let found = threads.into_iter().find(|thread| Some(thread.id) == head);
        return found.with_context(|| format!("the session {} has no threads yet", session.id));
    };
    let matches = |thread: &ThreadRow| thread.name == name || thread.id.to_string().starts_with(name);
    match threads.iter().filter(|thread| matches(thread)).count() {
        1 => Ok(threads.swap_remove(threads.iter().position(matches).expect("just counted"))),
        0 => {
            let names: Vec<_> = threads.iter().map(|thread| thread.name.as_str()).collect();
            bail!("the session {} has no thread `{name}`; it has: {}", session.id, names.join(", "))
        }
        many => bail!("`{name}` could mean {many} threads of the session {}; give its id", session.id),
    }
}

/// A turn of a chain, and its number: named by its number (from 1) or by its id.
pub(crate) fn turn<'a>(turns: &'a [TurnRow], name: &str) -> anyhow::Result<(usize, &'a TurnRow)> {
    let index = if let Ok(number) = name.parse::<usize>() {
        number.checked_sub(1).filter(|index| *index < turns.len())
    } else {
        let id: EventId = name.parse().with_context(|| {
            format!("`{name}` names no turn: give its number from `epitome show`, or its id")
        })?;
        turns.iter().position(|row| row.turn.id == id)
    };
    match index {
        Some(index) => Ok((index + 1, &turns[index])),
        None if turns.is_empty() => bail!("the thread has no turns yet"),
        None => bail!("there is no turn `{name}`: the thread has turns 1 to {}", turns.len()),
    }
}

/// All events of a thread's view up to and with `last`.
pub(crate) fn events(store: &Sqlite, thread: ThreadId, last: Option<Seq>) -> anyhow::Result<Vec<Logged>> {
    let mut events: Vec<Logged> = Vec::new();
    loop {
        let from = events.last().map_or(Seq(1), |logged| logged.id.seq.next());
        let page = store.read(thread, from, PAGE)?;
        let full = page.len() == PAGE;
        events.extend(page);
        let beyond = last.is_some_and(|last| events.last().is_some_and(|logged| logged.id.seq >= last));
        if !full || beyond {
            break;
        }
    }
    events.retain(|logged| last.is_none_or(|last| logged.id.seq <= last));
    Ok(events)
}
