//! `last`: the newest session of any agent, found without an id and without an import.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    agent_folders::{self, SessionSearchArgs},
    output::{BOLD, CliOutput, DIM, NAME},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
It looks into the folders of Claude Code, Codex, OpenCode and pi: first for a session that worked in the current folder, then \
for any. Other commands take @last for the same session:

  epitome last --project ~/src/parser --since 2h
  epitome resume @last
  epitome compact @last --budget 50k")]
pub(crate) struct LastArgs {
    #[command(flatten)]
    search: SessionSearchArgs,
}

pub(crate) fn run(args: &LastArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let found = agent_folders::find(&args.search)?;
    let found = found.ok_or_else(|| agent_folders::nothing_found(&args.search))?;
    let changed = agent_folders::timestamp(found.changed);
    if out.is_json() {
        out.object(&json!({
            "agent": found.agent.name(),
            "file": found.path,
            "session": found.key,
            "directory": found.directory,
            "changed": text_format::rfc3339(changed),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory =
        found.directory.as_ref().map_or_else(String::new, |path| format!(" in {}", path.display()));
    out.line(format_args!(
        "{BOLD}{}{BOLD:#}{directory}, last changed {}",
        found.agent.title(),
        text_format::minute(changed)
    ))?;
    let session = found.key.as_ref().map_or_else(String::new, |key| format!(" ({key})"));
    out.line(format_args!("{NAME}{}{NAME:#}{session}", found.path.display()))?;
    out.line(format_args!("{DIM}epitome resume makes it smaller and goes on{DIM:#}"))?;
    Ok(ExitCode::SUCCESS)
}
