//! `setup`: writes hooks, the MCP server and the gateway into an agent's settings, and takes them out again.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, ValueEnum};
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    store_lookup::DatabaseLocation,
};
use crate::setup::{
    AgentHome, FileChange, PlannedSetup, PlannedUndo, SetupAgent, SetupPart, SetupValues, parts_of, values_of,
};

#[derive(ClapArgs)]
#[command(after_help = "\
  epitome setup                                         which agents are here, and what each would gain
  epitome setup claude-code --dry-run                   what would change in which file
  epitome setup claude-code                             hooks and the MCP server
  epitome setup codex --gateway --mcp                   requests through a gateway, and the server
  epitome setup claude-code --undo                      every file as it was, byte for byte

What you chose yourself is never replaced, and every other byte of a file stays.")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct SetupArgs {
    /// Agent to set up.
    agent: Option<SetupAgent>,

    /// Let requests go through a gateway at this address.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "http://127.0.0.1:8787", requires = "agent")]
    gateway: Option<String>,

    /// Write hooks, or the plugin that does what hooks do.
    #[arg(long, requires = "agent")]
    hooks: bool,

    /// Write the MCP server.
    #[arg(long, requires = "agent")]
    mcp: bool,

    /// Show what would change, and change nothing.
    #[arg(long, requires = "agent")]
    dry_run: bool,

    /// Take everything out again.
    #[arg(long, requires = "agent", conflicts_with_all = ["gateway", "hooks", "mcp"])]
    undo: bool,
}

/// Address that is written if none is given.
const DEFAULT_GATEWAY: &str = "http://127.0.0.1:8787";

pub(crate) fn run(args: &SetupArgs, location: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    let home = AgentHome::of_user()?;
    let state = location.data_folder()?.join("setup");
    let Some(agent) = args.agent else { return overview(&home, &state, out) };
    if args.undo {
        return undo(agent, &home, &state, args.dry_run, out);
    }
    let known = values_of(agent, &state)?;
    let known_gateway = known.as_ref().map_or(DEFAULT_GATEWAY, |known| known.gateway.as_str());
    let gateway = args.gateway.as_deref().unwrap_or(known_gateway).trim_end_matches('/');
    if !gateway.starts_with("http://") && !gateway.starts_with("https://") {
        bail!("`{gateway}` is no address: write it as http://127.0.0.1:8787");
    }
    let values = SetupValues {
        program: program()?,
        gateway: gateway.to_owned(),
        // What this command line leaves open stays as it was set up.
        database: location
            .named()
            .map(absolute)
            .transpose()?
            .or_else(|| known.as_ref().and_then(|known| known.database.clone())),
    };
    let plan = PlannedSetup::new(agent, &wanted(args, agent), values, &home, &state)?;
    let mut report = SetupReport { out, agent, dry_run: args.dry_run };
    if plan.changes().is_empty() {
        return report.nothing("is set up so already");
    }
    report.changes(&plan.changes())?;
    if !args.dry_run {
        let folder = plan.write(&state)?;
        report.done(&format!("what was there before is in {}", folder.display()))?;
        report.done(&format!("undo: epitome setup {} --undo", agent.name()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Parts that were asked for; without any, all that need no running gateway.
fn wanted(args: &SetupArgs, agent: SetupAgent) -> Vec<SetupPart> {
    let asked = [
        (SetupPart::Gateway, args.gateway.is_some()),
        (SetupPart::Hooks, args.hooks),
        (SetupPart::Mcp, args.mcp),
    ];
    if asked.iter().any(|(_, is_asked)| *is_asked) {
        return asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(part, _)| part).collect();
    }
    agent.parts().iter().map(|(part, _)| *part).filter(|part| *part != SetupPart::Gateway).collect()
}

/// This program, as an agent starts it.
fn program() -> anyhow::Result<String> {
    let path = env::current_exe().context("cannot tell where this program is")?;
    Ok(path.to_string_lossy().into_owned())
}

fn absolute(path: &Path) -> anyhow::Result<String> {
    let path: PathBuf =
        std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn undo(
    agent: SetupAgent,
    home: &AgentHome,
    state: &Path,
    dry_run: bool,
    out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let mut report = SetupReport { out, agent, dry_run };
    let Some(plan) = PlannedUndo::new(agent, home, state)? else {
        return report.nothing("was not set up by epitome");
    };
    report.changes(&plan.changes())?;
    if dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let done = plan.write(state)?;
    for path in &done.restored {
        report.done(&format!("{} is as it was", path.display()))?;
    }
    for path in &done.cleaned {
        report
            .done(&format!("{} was changed since: only what is epitome's was taken out", path.display()))?;
    }
    if let Some(backups) = &done.backups {
        report.done(&format!("the files as they were before are in {}", backups.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what is done to an agent's files.
struct SetupReport {
    out: CliOutput,
    agent: SetupAgent,
    dry_run: bool,
}

impl SetupReport {
    fn nothing(mut self, words: &str) -> anyhow::Result<ExitCode> {
        if self.out.is_json() {
            self.out.object(&json!({"agent": self.agent.name(), "changed": []}))?;
        } else {
            self.out.line(format_args!("{} {words}", self.agent.title()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn changes(&mut self, changes: &[FileChange<'_>]) -> anyhow::Result<()> {
        if self.out.is_json() {
            let listed: Vec<_> =
                changes.iter().map(|change| json!({"file": change.path, "diff": change.diff})).collect();
            return self
                .out
                .object(&json!({"agent": self.agent.name(), "dry_run": self.dry_run, "changed": listed}));
        }
        for change in changes {
            self.out.line(format_args!("{NAME}{}{NAME:#}", change.path.display()))?;
            for line in change.diff.lines() {
                match line.as_bytes().first() {
                    Some(b'+') => self.out.line(format_args!("{BOLD}{line}{BOLD:#}"))?,
                    Some(b'-') => self.out.line(format_args!("{NOTE}{line}{NOTE:#}"))?,
                    _ => self.out.line(format_args!("{DIM}{line}{DIM:#}"))?,
                }
            }
        }
        if self.dry_run {
            self.out.line(format_args!("{DIM}nothing was changed: this was a dry run{DIM:#}"))?;
        }
        Ok(())
    }

    fn done(&mut self, words: &str) -> anyhow::Result<()> {
        if self.out.is_json() { Ok(()) } else { self.out.line(format_args!("{DIM}{words}{DIM:#}")) }
    }
}

/// Which agents are here, and what each has and would gain.
fn overview(home: &AgentHome, state: &Path, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    for agent in SetupAgent::value_variants() {
        let is_found = agent.is_found(home);
        let has = parts_of(*agent, state)?;
        if out.is_json() {
            let parts: Vec<_> = agent
                .parts()
                .iter()
                .map(|(part, gain)| json!({"part": part, "gain": gain, "set_up": has.contains(part)}))
                .collect();
            out.object(&json!({"agent": agent.name(), "found": is_found, "parts": parts}))?;
            continue;
        }
        let found = if is_found { "found" } else { "not found" };
        out.line(format_args!("{BOLD}{}{BOLD:#} {DIM}({}, {found}){DIM:#}", agent.title(), agent.name()))?;
        for (part, gain) in agent.parts() {
            let state = if has.contains(part) { "set up" } else { "" };
            out.line(format_args!("  {NAME}{:<10}{NAME:#}{state:<7} {gain}", part.name()))?;
        }
    }
    if !out.is_json() {
        out.line(format_args!("{DIM}see what would change: epitome setup AGENT --dry-run{DIM:#}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
