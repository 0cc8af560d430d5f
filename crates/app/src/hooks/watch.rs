//! Reading transcripts as they grow: one process for all agents, started by whichever hook finds none.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use epitome::{
    import::{find_files, import_file},
    store::Store,
    wire::transcripts::TranscriptLimits,
};

use crate::setup::{AgentHome, SetupAgent};

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time without a change after which the process ends.
const IDLE: Duration = Duration::from_mins(30);

/// Age up to which a file is read when the process starts: older ones are for `epitome import`.
const RECENT: Duration = Duration::from_hours(1);

/// File whose lock says that a process watches.
const LOCK_FILE: &str = "watch.lock";

/// The right to watch; held by one process.
pub(crate) struct WatchLock(
    #[expect(dead_code, reason = "the lock is held as long as the file is open")] File,
);

impl WatchLock {
    /// Takes it; `None` if another process has it.
    pub(crate) fn take(data: &Path) -> anyhow::Result<Option<Self>> {
        fs::create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
        let path = data.join(LOCK_FILE);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }
}

/// Starts a watching process unless one runs. It outlives the hook.
pub(crate) fn ensure_running(data: &Path, database: Option<&Path>) -> anyhow::Result<()> {
    match WatchLock::take(data)? {
        None => return Ok(()),
        // The new process takes it.
        Some(lock) => drop(lock),
    }
    let mut command = Command::new(std::env::current_exe().context("cannot tell where this program is")?);
    if let Some(database) = database {
        command.arg("--db").arg(database);
    }
    command.args(["import", "--watch"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    command.spawn().context("cannot start the watching process")?;
    Ok(())
}

/// Folders in which agents write their transcripts. OpenCode keeps a database: its plugin hands sessions over.
pub(crate) fn transcript_folders(home: &AgentHome) -> Vec<PathBuf> {
    vec![
        home.folder(SetupAgent::ClaudeCode).join("projects"),
        home.folder(SetupAgent::Codex).join("sessions"),
        home.folder(SetupAgent::Pi).join("sessions"),
    ]
}

/// Reads what grows, until nothing has grown for long. `report` is told of every file that was read.
pub(crate) fn watch(
    store: &dyn Store,
    folders: &[PathBuf],
    mut report: impl FnMut(&Path, Result<u64, String>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut known: HashMap<PathBuf, (u64, SystemTime)> = HashMap::new();
    let start = SystemTime::now().checked_sub(RECENT).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut last_change = Instant::now();
    while last_change.elapsed() < IDLE {
        for path in folders.iter().filter(|folder| folder.exists()).flat_map(|folder| find_files(folder).0) {
            let Ok(found) = fs::metadata(&path) else { continue };
            let state = (found.len(), found.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            let is_new = match known.insert(path.clone(), state) {
                Some(before) => before != state,
                None => state.1 >= start,
            };
            if is_new {
                last_change = Instant::now();
                let read = import_file(store, &path, &TranscriptLimits::default());
                let appended = read.map(|file| file.sessions.iter().map(|session| session.appended).sum());
                report(&path, appended.map_err(|error| error.to_string()))?;
            }
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}
