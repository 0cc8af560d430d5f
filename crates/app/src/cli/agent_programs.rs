//! Programs of the agents: how each resumes a session, and how those with a database of their own import, export and
//! remove one.

use std::{
    fs,
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};
use epitome::wire::transcripts::ResumableAgent;
use serde_json::Value;

use super::{agent_folders, resumed_sessions};

/// The command that goes on with a session, program first.
pub(crate) fn resume_command(agent: ResumableAgent, id: &str) -> Vec<String> {
    let words: &[&str] = match agent {
        ResumableAgent::ClaudeCode => &["claude", "--resume", id],
        ResumableAgent::Codex => &["codex", "resume", id],
        ResumableAgent::Opencode => &["opencode", "--session", id],
        ResumableAgent::Pi => &["pi", "--session", id],
        ResumableAgent::Goose => &["goose", "session", "--resume", "--session-id", id],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns true if the agent imports sessions into a database instead of reading a file.
pub(crate) fn imports(agent: ResumableAgent) -> bool {
    matches!(agent, ResumableAgent::Opencode | ResumableAgent::Goose)
}

/// Has the agent import an export, and returns the session's id.
pub(crate) fn import(
    agent: ResumableAgent,
    file: &Path,
    key: Option<&str>,
    directory: &Path,
) -> anyhow::Result<String> {
    let file = file.to_str().context("the path of the export is not UTF-8")?;
    let words: &[&str] = match agent {
        ResumableAgent::Goose => &["session", "import", file],
        _ => &["import", file],
    };
    let said = output(agent, words, directory)?;
    match key {
        Some(key) => Ok(key.to_owned()),
        None => goose_id(&said)
            .with_context(|| format!("goose gave no id of the session it imported; it said: {said}")),
    }
}

/// The id in what goose says: the day and a number, `20261119_1`.
fn goose_id(said: &str) -> Option<String> {
    let words = said.split(|letter: char| !letter.is_ascii_digit() && letter != '_');
    let is_id = |word: &&str| {
        word.split_once('_').is_some_and(|(day, number)| {
            day.len() == 8
                && !number.is_empty()
                && !number.contains('_')
                && day.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    words.rev().find(is_id).map(str::to_owned)
}

/// The messages of a session as the agent exports them, in bytes that only change if the session does.
pub(crate) fn exported_messages(
    agent: ResumableAgent,
    id: &str,
    directory: &Path,
) -> anyhow::Result<Vec<u8>> {
    let words: &[&str] = match agent {
        ResumableAgent::Goose => &["session", "export", "--session-id", id, "--format", "json"],
        _ => &["export", id],
    };
    let said = output(agent, words, directory)?;
    let from = said.find('{').unwrap_or_default();
    let export: Value = serde_json::from_str(&said[from..])
        .with_context(|| format!("what {} exported is not JSON", agent.title()))?;
    let messages = export.get("messages").or_else(|| export.get("conversation"));
    Ok(messages.context("the export has no messages")?.to_string().into_bytes())
}

/// Has the agent remove a session. goose asks the user first.
pub(crate) fn remove(agent: ResumableAgent, id: &str, directory: &Path) -> anyhow::Result<()> {
    let command = removal_command(agent, id);
    let status = started(agent, &command[1..], directory)?;
    if !status.success() {
        bail!("{} did not remove the session; run this in a terminal: {}", agent.title(), command.join(" "));
    }
    Ok(())
}

/// The command that removes an imported session, program first.
pub(crate) fn removal_command(agent: ResumableAgent, id: &str) -> Vec<&str> {
    match agent {
        ResumableAgent::Goose => vec![program(agent), "session", "remove", "--session-id", id],
        _ => vec![program(agent), "session", "delete", id],
    }
}

/// Runs a command of the agent in the user's terminal, to its end.
pub(crate) fn started(
    agent: ResumableAgent,
    words: &[impl AsRef<str>],
    directory: &Path,
) -> anyhow::Result<ExitStatus> {
    let mut command = Command::new(program(agent));
    command.args(words.iter().map(AsRef::as_ref)).current_dir(directory);
    command.status().with_context(|| not_found(agent))
}

/// Runs a command of the agent that asks nothing, and returns what it says. It says it to a file: OpenCode ends before all
/// of an export has left through a pipe.
fn output(agent: ResumableAgent, words: &[&str], directory: &Path) -> anyhow::Result<String> {
    let said = agent_folders::data_folder()?.1.join(format!("said-{}", std::process::id()));
    let cannot = || format!("cannot write {}", said.display());
    let file = resumed_sessions::new_file(&said).with_context(cannot)?;
    let mut command = Command::new(program(agent));
    command.args(words).current_dir(directory).stdin(Stdio::null()).stdout(file);
    let output = command.output().with_context(|| not_found(agent));
    let text = fs::read(&said).with_context(cannot);
    fs::remove_file(&said).with_context(cannot)?;
    let (output, text) = (output?, text?);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`{} {}` failed: {}", program(agent), words.join(" "), error.trim());
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn program(agent: ResumableAgent) -> &'static str {
    match agent {
        ResumableAgent::ClaudeCode => "claude",
        ResumableAgent::Codex => "codex",
        ResumableAgent::Opencode => "opencode",
        ResumableAgent::Pi => "pi",
        ResumableAgent::Goose => "goose",
    }
}

fn not_found(agent: ResumableAgent) -> String {
    format!("cannot run `{}`: install {}, or put it on the PATH", program(agent), agent.title())
}
