//! Where the database is, and the threads and turns that people name on the command line.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use epitome::{
    core::{Logged, Seq, ThreadId, tokens::O200k},
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

/// A thread of `session`: the one named, by name, by its short form or by the start of its id, else the one the session stands at.
pub(crate) fn thread(store: &Sqlite, session: &SessionRow, name: Option<&str>) -> anyhow::Result<ThreadRow> {
    let mut threads = store.threads(session.id)?;
    let Some(name) = name else {
        let head = session.head.or_else(|| threads.first().map(|thread| thread.id));
        let found = threads.into_iter().find(|thread| Some(thread.id) == head);
        return found.with_context(|| format!("the session {} has no threads yet", session.id));
    };
    let meant = |thread: &ThreadRow| thread.name == name || thread.id.is_meant_by(name);
    let mut found: Vec<usize> = (0..threads.len()).filter(|index| meant(&threads[*index])).collect();
    let listed = |threads: &mut dyn Iterator<Item = &ThreadRow>| {
        threads
            .map(|thread| format!("{} ({})", thread.name, thread.id.short()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(threads.swap_remove(only)),
        (Some(last), false) => {
            found.push(last);
            let candidates = listed(&mut found.iter().map(|index| &threads[*index]));
            bail!("`{name}` could mean {} threads of the session {}: {candidates}", found.len(), session.id)
        }
        (None, _) => {
            let all = listed(&mut threads.iter());
            bail!("the session {} has no thread `{name}`; it has: {all}", session.id)
        }
    }
}

/// A turn of `thread`'s chain, and its number: named by its number (from 1), by its id, or by the handle of any event
/// in it, as stubs write it.
pub(crate) fn turn<'a>(
    thread: ThreadId,
    turns: &'a [TurnRow],
    name: &str,
) -> anyhow::Result<(usize, &'a TurnRow)> {
    let index = if let Ok(number) = name.parse::<usize>() {
        number.checked_sub(1).filter(|index| *index < turns.len())
    } else {
        let (owner, seq) = handle(name).with_context(|| {
            format!("`{name}` names no turn: give its number from `epitome show`, its id, or a handle")
        })?;
        // A fork shows events of its parents under their numbers: its own name says which view is meant.
        let is_here = |row: &TurnRow| thread.is_meant_by(owner) || row.turn.id.thread.is_meant_by(owner);
        let named = turns.iter().position(|row| row.turn.id.seq == seq && is_here(row));
        let holds = |row: &TurnRow| (row.turn.first..=row.turn.last).contains(&seq) && is_here(row);
        named.or_else(|| turns.iter().position(holds))
    };
    match index {
        Some(index) => Ok((index + 1, &turns[index])),
        None if turns.is_empty() => bail!("the thread has no turns yet"),
        None => bail!("there is no turn `{name}`: the thread has turns 1 to {}", turns.len()),
    }
}

/// `THREAD:NUMBER`, whatever form the thread is in; of several events the first.
fn handle(name: &str) -> Option<(&str, Seq)> {
    let (thread, events) = name.trim_start_matches("recall ").split_once(':')?;
    let first = events.split_once('-').map_or(events, |(first, _)| first);
    Some((thread, Seq(first.parse().ok()?)))
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
