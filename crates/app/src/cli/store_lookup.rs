//! Opening of the database, and lookup of the threads and turns named on the command line.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use epitome::{
    core::{Seq, ThreadId, tokens::O200kCounter},
    store::{
        Store, StoreLocation, StoreOptions, open_existing_store, open_store,
        records::{SessionRow, ThreadRow, TurnRow},
    },
};
use etcetera::BaseStrategy;

pub(crate) use epitome::queries::events;

use crate::config::session_settings::{ConfigPath, SessionSettings};

/// The database of this run, not yet opened.
#[derive(Clone)]
pub(crate) struct DatabaseLocation {
    path: Option<PathBuf>,
    config: ConfigPath,
}

impl DatabaseLocation {
    /// A database at `path`, or where the configuration says, or in the user's data directory.
    pub(crate) fn new(path: Option<PathBuf>, config: ConfigPath) -> Self {
        Self { path: path.filter(|path| !path.as_os_str().is_empty()), config }
    }

    /// The database that was named on the command line or in the environment.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the configuration says of sessions.
    pub(crate) fn session_settings(&self) -> anyhow::Result<SessionSettings> {
        self.config.session_settings()
    }

    /// Opens the database, creating it if there is none.
    pub(crate) fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        self.open_with(StoreOptions::default())
    }

    /// Opens it with other options. The token counter is always the same.
    pub(crate) fn open_with(&self, mut options: StoreOptions) -> anyhow::Result<Arc<dyn Store>> {
        options.counter = Some(Arc::new(O200kCounter));
        Ok(open_store(&self.location()?, options)?)
    }

    /// Opens the database if there is one.
    pub(crate) fn open_if_exists(&self) -> anyhow::Result<Option<Arc<dyn Store>>> {
        let options = StoreOptions { counter: Some(Arc::new(O200kCounter)), ..StoreOptions::default() };
        Ok(open_existing_store(&self.location()?, options)?)
    }

    /// Opens the database, which must exist.
    pub(crate) fn open_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        let Some(store) = self.open_if_exists()? else {
            bail!(
                "there is no database at {}: import a session first (epitome import FILE), or name another (--db)",
                self.location()?
            );
        };
        Ok(store)
    }

    /// Folder for what is kept beside the database.
    pub(crate) fn data_folder(&self) -> anyhow::Result<PathBuf> {
        Ok(self.location()?.folder().to_owned())
    }

    /// Location of the database.
    pub(crate) fn location(&self) -> anyhow::Result<StoreLocation> {
        if let Some(path) = &self.path {
            return Ok(StoreLocation::named(path)?);
        }
        if let Some(path) = self.config.database()? {
            return Ok(StoreLocation::named(path)?);
        }
        let strategy = etcetera::choose_base_strategy()
            .context("cannot find your home directory: name a database with --db or EPITOME_DB")?;
        Ok(StoreLocation::named(strategy.data_dir().join("epitome").join("epitome.db"))?)
    }
}
/// Finds a thread of `session`: the one named, by name, by its short form or by the start of its id, else the
/// session's current thread.
pub(crate) fn thread(
    store: &dyn Store,
    session: &SessionRow,
    name: Option<&str>,
) -> anyhow::Result<ThreadRow> {
    let threads = store.threads(session.id)?;
    if let Some(name) = name {
        return named(threads, name).with_context(|| format!("looking in the session {}", session.id));
    }
    let head = session.head.or_else(|| threads.first().map(|thread| thread.id));
    let found = threads.into_iter().find(|thread| Some(thread.id) == head);
    found.with_context(|| format!("the session {} has no threads yet", session.id))
}

fn named(threads: Vec<ThreadRow>, name: &str) -> anyhow::Result<ThreadRow> {
    let all = listed(&threads);
    let meant = |thread: &ThreadRow| thread.name == name || thread.id.matches_abbreviation(name);
    let mut found: Vec<ThreadRow> = threads.into_iter().filter(meant).collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            found.push(last);
            bail!("`{name}` could mean {} threads: {}", found.len(), listed(&found))
        }
        (None, _) => bail!("there is no thread `{name}`; there are: {all}"),
    }
}

/// Lists threads by the names that a user may give.
fn listed(threads: &[ThreadRow]) -> String {
    let names = threads.iter().map(|thread| format!("{} ({})", thread.name, thread.id.short()));
    names.collect::<Vec<_>>().join(", ")
}

/// Finds a turn of `thread`'s chain, and its number: named by its number (from 1), by its id, or by the
/// handle of any event in it, as stubs write it.
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
        // A fork numbers its parents' events as they do, so the thread's name alone says which view is meant.
        let is_here = |row: &TurnRow| {
            thread.matches_abbreviation(owner) || row.turn.id.thread.matches_abbreviation(owner)
        };
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

/// Reads `THREAD:NUMBER`, with the thread in any form; the first of several events.
pub(crate) fn handle(name: &str) -> Option<(&str, Seq)> {
    let (thread, events) = name.trim_start_matches("recall ").split_once(':')?;
    let first = events.split_once('-').map_or(events, |(first, _)| first);
    Some((thread, Seq(first.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use epitome::{
        core::{ChainLink, SessionId},
        store::{ThreadHead, ThreadStart},
    };

    use super::*;

    fn row(name: &str, id: &str) -> ThreadRow {
        let head = ThreadHead { seq: Seq::START, link: ChainLink::ROOT };
        let session = SessionId::derived(&["test"]);
        ThreadRow {
            id: id.parse().expect("an id"),
            session,
            name: name.into(),
            key: None,
            start: ThreadStart::Root,
            head,
        }
    }

    #[test]
    fn a_thread_is_named_in_any_of_its_forms_and_of_several_all_are_listed() {
        let threads = || {
            vec![
                row("main", "0199a1b2-c3d4-7000-8000-111122223333"),
                row("helper", "0199a1b2-c3d5-7000-8000-111144445555"),
            ]
        };
        for name in ["helper", "44445555", "0199a1b2-c3d5", "0199a1b2-c3d5-7000-8000-111144445555"] {
            assert_eq!(named(threads(), name).expect(name).name, "helper");
        }
        let said = |name: &str| named(threads(), name).expect_err(name).to_string();
        assert_eq!(said("0199a1b2"), "`0199a1b2` could mean 2 threads: main (22223333), helper (44445555)");
        assert_eq!(said("x"), "there is no thread `x`; there are: main (22223333), helper (44445555)");
    }

    #[test]
    fn a_handle_is_read_with_or_without_its_verb() {
        for (text, expect) in [
            ("recall 1b2c3d4e:57", Some(("1b2c3d4e", Seq(57)))),
            ("1b2c3d4e:5-88", Some(("1b2c3d4e", Seq(5)))),
            ("1b2c3d4e", None),
            ("1b2c3d4e:x", None),
        ] {
            assert_eq!(handle(text), expect, "{text}");
        }
    }
}
