//! Folders in which agents keep their sessions: where they are, and the newest session in them.
//!
//! A session is found by the folder it worked in and by its time, without an id and without an import. goose keeps sessions
//! in a database that is not read here.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use epitome::{
    core::event::Timestamp, import::find_files, store::opencode, wire::transcripts::ResumableAgent,
};
use etcetera::BaseStrategy;
use serde_json::Value;

use super::text_format;
use crate::units;

/// Number of bytes at the beginning of a transcript in which its folder is looked for.
const HEAD: u64 = 512 * 1024;

/// Options that find a session without its id.
#[derive(Args, Clone, Default)]
pub(crate) struct SessionSearchArgs {
    /// Find the newest session that worked in this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,

    /// Find only sessions that went on since: `2h`, `30m`, or a time such as 2026-01-05.
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(crate) since: Option<Timestamp>,
}

fn parse_since(text: &str) -> Result<Timestamp, String> {
    let ago = |time: Duration| {
        let Timestamp(now) = text_format::now();
        Timestamp(now.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    };
    units::time(text).map(ago).or_else(|_| text_format::parse_time(text)).map_err(|_| {
        format!(
            "`{}` is no time: write it as 30m, 2h, 2026-01-05 or 2026-01-05T10:12",
            units::printable(text)
        )
    })
}

/// A session in an agent's own folder.
#[derive(Clone, Debug)]
pub(crate) struct FoundSession {
    pub(crate) agent: ResumableAgent,
    /// The transcript, or a database of many sessions.
    pub(crate) path: PathBuf,
    /// Id that the agent gives it, where the database holds many.
    pub(crate) key: Option<String>,
    /// Folder in which the agent worked, if the transcript says so.
    pub(crate) directory: Option<PathBuf>,
    /// Time of the last change.
    pub(crate) changed: SystemTime,
}

/// Folder of an agent's data, as the agent itself finds it.
pub(crate) fn root(agent: ResumableAgent) -> anyhow::Result<PathBuf> {
    let named = |variable: &str| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || etcetera::home_dir().context("cannot find your home directory: set HOME");
    let data = || Ok::<_, anyhow::Error>(data_folder()?.0);
    Ok(match agent {
        ResumableAgent::ClaudeCode => match named("CLAUDE_CONFIG_DIR") {
            Some(path) => path,
            None => home()?.join(".claude"),
        },
        ResumableAgent::Codex => match named("CODEX_HOME") {
            Some(path) => path,
            None => home()?.join(".codex"),
        },
        ResumableAgent::Pi => match named("PI_CODING_AGENT_DIR") {
            Some(path) => path,
            None => home()?.join(".pi/agent"),
        },
        ResumableAgent::Opencode => data()?.join("opencode"),
        ResumableAgent::Goose => data()?.join("goose"),
    })
}

/// The user's folder of data, and Epitome's own folder in it.
pub(crate) fn data_folder() -> anyhow::Result<(PathBuf, PathBuf)> {
    let strategy = etcetera::choose_base_strategy().context("cannot find your home directory: set HOME")?;
    let data = strategy.data_dir();
    let own = data.join("epitome");
    Ok((data, own))
}

/// Finds the newest session. Without a folder it is that of the current folder, or of any folder if none worked here.
pub(crate) fn find(search: &SessionSearchArgs) -> anyhow::Result<Option<FoundSession>> {
    let candidates = candidates(search.since);
    let place = match &search.project {
        Some(project) => fs::canonicalize(project)
            .with_context(|| format!("cannot find the folder {}", project.display()))?,
        None => env::current_dir().context("cannot find the current folder")?,
    };
    if let Some(found) = candidates.iter().find_map(|candidate| in_folder(candidate, Some(&place))) {
        return Ok(Some(found));
    }
    let anywhere = || candidates.iter().find_map(|candidate| in_folder(candidate, None));
    Ok(search.project.is_none().then(anywhere).flatten())
}

/// The error for a search that found nothing.
pub(crate) fn nothing_found(search: &SessionSearchArgs) -> anyhow::Error {
    let place = search.project.as_ref().map_or_else(String::new, |place| format!(" in {}", place.display()));
    let time = if search.since.is_some() { " since then" } else { "" };
    anyhow!(
        "no session of Claude Code, Codex, OpenCode or pi was found{place}{time}: name a transcript, or a session that was \
         imported"
    )
}

/// Files that may be sessions, the newest first.
fn candidates(since: Option<Timestamp>) -> Vec<FoundSession> {
    let mut found = Vec::new();
    for agent in ResumableAgent::ALL {
        let Ok(root) = root(agent) else { continue };
        let (files, _) = match agent {
            ResumableAgent::ClaudeCode => find_files(&root.join("projects")),
            ResumableAgent::Codex | ResumableAgent::Pi => find_files(&root.join("sessions")),
            ResumableAgent::Opencode => find_files(&root.join("opencode.db")),
            ResumableAgent::Goose => continue,
        };
        found.extend(files.into_iter().filter(|path| is_session(path)).filter_map(|path| {
            let changed = fs::metadata(&path).and_then(|file| file.modified()).ok()?;
            Some(FoundSession { agent, path, key: None, directory: None, changed })
        }));
    }
    found.retain(|candidate| since.is_none_or(|since| timestamp(candidate.changed) >= since));
    found.sort_by(|one, other| (other.changed, &other.path).cmp(&(one.changed, &one.path)));
    found
}

/// Returns false for files of subagents, and for what is no transcript.
fn is_session(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_subagent =
        name.starts_with("agent-") || path.components().any(|part| part.as_os_str() == "subagents");
    let is_kind = [".jsonl", ".jsonl.zst", ".db"].iter().any(|end| name.ends_with(end));
    is_kind && !is_subagent
}

/// The session of a candidate that worked in a folder, or in any.
fn in_folder(candidate: &FoundSession, folder: Option<&Path>) -> Option<FoundSession> {
    if candidate.agent == ResumableAgent::Opencode {
        return newest_opencode(candidate, folder);
    }
    let head = head(&candidate.path)?;
    if head.is_subagent {
        return None;
    }
    let is_there =
        folder.is_none_or(|folder| head.directory.as_deref().is_some_and(|found| is_same(found, folder)));
    is_there.then(|| FoundSession { directory: head.directory, ..candidate.clone() })
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| one == other)
}

/// Beginning of a transcript.
struct TranscriptHead {
    directory: Option<PathBuf>,
    is_subagent: bool,
}

/// Reads the first lines of a file that holds a conversation.
fn head(path: &Path) -> Option<TranscriptHead> {
    let file = fs::File::open(path).ok()?;
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "zst") {
        Box::new(ruzstd::decoding::StreamingDecoder::new(file).ok()?)
    } else {
        Box::new(file)
    };
    let lines = BufReader::new(reader.take(HEAD)).lines().map_while(Result::ok);
    let mut head = TranscriptHead { directory: None, is_subagent: false };
    let mut is_begun = false;
    for line in lines {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        is_begun = true;
        let payload = line.get("payload").unwrap_or(&line);
        head.is_subagent |=
            payload.pointer("/source/subagent").is_some() || payload.get("parent_thread_id").is_some();
        if let Some(directory) = payload.get("cwd").and_then(Value::as_str) {
            head.directory = Some(PathBuf::from(directory));
            break;
        }
    }
    is_begun.then_some(head)
}

/// The newest session of OpenCode's database that worked in a folder and that no other session started.
fn newest_opencode(candidate: &FoundSession, folder: Option<&Path>) -> Option<FoundSession> {
    let exports = opencode::opencode_exports(&candidate.path).ok()?;
    let sessions = exports.iter().filter_map(|export| {
        let info = serde_json::from_str::<Value>(export).ok()?.get_mut("info")?.take();
        let directory = info["directory"].as_str().map(PathBuf::from);
        let is_there =
            folder.is_none_or(|folder| directory.as_deref().is_some_and(|found| is_same(found, folder)));
        let is_main = !info["parentID"].is_string();
        let updated = info["time"]["updated"].as_i64().unwrap_or_default();
        let key = info["id"].as_str().map(str::to_owned);
        (is_there && is_main).then_some((updated, key, directory))
    });
    let (_, key, directory) = sessions.max_by_key(|(updated, _, _)| *updated)?;
    Some(FoundSession { key, directory, ..candidate.clone() })
}

impl FoundSession {
    /// The transcript as the agent would export it.
    pub(crate) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let Some(key) = &self.key else {
            return fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()));
        };
        let is_it = |export: &String| {
            serde_json::from_str::<Value>(export).is_ok_and(|value| value["info"]["id"] == key.as_str())
        };
        let found = opencode::opencode_exports(&self.path)?.into_iter().find(is_it);
        Ok(found.with_context(|| format!("the session {key} is gone"))?.into_bytes())
    }
}

/// Folder in which a transcript's agent worked, if the transcript says so.
pub(crate) fn directory_of(path: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let document = serde_json::from_slice::<Value>(bytes).ok();
    let exported = document.and_then(|value| value["info"]["directory"].as_str().map(PathBuf::from));
    exported.or_else(|| head(path)?.directory)
}

/// A time of a file.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
