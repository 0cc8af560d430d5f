//! `hook`: called by agents, which `epitome setup` tells to.

use std::{
    fs::{self, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    process::ExitCode,
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::{output::CliOutput, store_lookup::DatabaseLocation, text_format};
use crate::{
    hooks::{self, HookCall, MAX_INPUT_BYTES, watch},
    setup::SetupAgent,
};

#[derive(ClapArgs)]
#[command(after_help = "\
It reads what the agent says on standard input and answers on standard output, in the agent's shape. If anything goes wrong it \
says nothing, ends with 0, and writes a line into hook.log beside the database.")]
pub(crate) struct HookArgs {
    /// Agent that calls.
    agent: SetupAgent,

    /// Event, as the agent names it.
    event: String,

    /// Say nothing if the answer takes longer than so many milliseconds. By default 140 before a call, and 8000 around a
    /// compaction, which takes longer anyway.
    #[arg(long, value_name = "MS")]
    deadline: Option<u64>,
}

/// Size at which the log begins anew.
const MAX_LOG_BYTES: u64 = 1 << 20;

pub(crate) fn run(args: &HookArgs, location: &DatabaseLocation, mut out: CliOutput) -> ExitCode {
    let data = location.data_folder();
    let failed = |error: &anyhow::Error| {
        if let Ok(data) = &data {
            // There is nobody to tell that telling failed.
            let _ = log(data, &format!("{} {}: {error:#}", args.agent.name(), args.event));
        }
    };
    match answered(args, location) {
        // An agent that went away needs no answer.
        Ok(said) if !said.is_empty() => drop(out.line(&said)),
        Ok(_) => {}
        Err(error) => failed(&error),
    }
    let watching = location.data_folder().and_then(|data| watch::ensure_running(&data, location.named()));
    if let Err(error) = watching {
        failed(&error);
    }
    ExitCode::SUCCESS
}

/// The answer, if it comes in time. What is still being recorded then is left to the watching process.
fn answered(args: &HookArgs, location: &DatabaseLocation) -> anyhow::Result<String> {
    let data = location.data_folder()?;
    let is_before_call = matches!(args.event.as_str(), "PreToolUse" | "UserPromptSubmit");
    let deadline = Duration::from_millis(args.deadline.unwrap_or(if is_before_call { 140 } else { 8_000 }));
    let (send, receive) = mpsc::channel();
    let (agent, event, folder) = (args.agent, args.event.clone(), data);
    let opening = location.clone();
    thread::spawn(move || {
        let made = input().and_then(|input| {
            let store = opening.open()?;
            let call = HookCall { agent, event: &event, input: &input, data: &folder };
            hooks::answer(&call, &store)
        });
        // Nobody listens any more after the deadline.
        let _ = send.send(made);
    });
    match receive.recv_timeout(deadline) {
        Ok(made) => made,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(anyhow::anyhow!("no answer within {} ms", deadline.as_millis()))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(anyhow::anyhow!("the answer was not finished")),
    }
}

/// What the agent says. It is read while the deadline runs, because an agent may keep its end open.
fn input() -> anyhow::Result<String> {
    let mut input = String::new();
    // One more than may be shows that it is too long.
    let most = MAX_INPUT_BYTES as u64 + 1;
    std::io::stdin().lock().take(most).read_to_string(&mut input).context("cannot read standard input")?;
    Ok(input)
}

/// Writes a line into the log. It names no content of a session.
fn log(data: &Path, line: &str) -> anyhow::Result<()> {
    fs::create_dir_all(data)?;
    let path = data.join("hook.log");
    if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        fs::remove_file(&path)?;
    }
    let time = text_format::rfc3339(text_format::now()).unwrap_or_default();
    let line = line.replace(['\n', '\r'], " ");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    Ok(writeln!(file, "{time} {line}")?)
}
