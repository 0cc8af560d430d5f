//! `sweep`: every session at many budgets in every format, or call by call under every policy; each request
//! is checked.

mod call_sweep;

use std::{path::PathBuf, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::{import::find_files, wire::Format};
use epitome_measure::sweep::{SMALLEST_BUDGET, SweepTally, sweep_budgets};

use super::{
    output::{BOLD, CliOutput, DIM, NOTE},
    parallel::for_all,
    text_format,
};
use crate::units::parse_tokens;

#[derive(ClapArgs)]
#[command(after_help = "The exit code is 1 if any request breaks a rule. Needs no database.")]
pub(crate) struct SweepArgs {
    /// Transcripts, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Repeat every call of every session under these policies, as if live: names, or `all`.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,

    /// With --policy: largest size of a request in tokens.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8k,60k,100k", value_parser = parse_tokens)]
    budget: Vec<u64>,
}

pub(crate) fn run(args: &SweepArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if !args.policy.is_empty() {
        return call_sweep::run(args, out);
    }
    let mut files = Vec::new();
    let mut all = SweepTally::default();
    for path in &args.paths {
        let (found, unread) = find_files(path);
        files.extend(found);
        for error in unread {
            all.unread(|| error.to_string());
        }
    }
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for_all(
        &files,
        name,
        |path| sweep_budgets(path),
        |_, tally| {
            all += tally;
            Ok(())
        },
    )?;
    let violations = all.violations();
    if out.is_json() {
        let mut value = serde_json::to_value(&all)?;
        value["violations"] = violations.into();
        out.object(&value)?;
    } else {
        tell(&all, &mut out)?;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(all: &SweepTally, out: &mut CliOutput) -> anyhow::Result<()> {
    out.line(format_args!(
        "{} with {} at budgets from {} tokens up to all of it, in {} formats",
        text_format::count(all.sessions, "session"),
        text_format::count(all.threads, "thread"),
        text_format::short(SMALLEST_BUDGET),
        Format::ALL.len()
    ))?;
    for (what, count) in [
        ("requests rendered and checked", all.renders),
        ("of them for the session's own model", all.by_their_models),
        (
            "refused: instructions, newest message and open calls do not fit",
            all.refusals - all.refusals_without_need,
        ),
    ] {
        out.line(format_args!("{count:>9}  {what}"))?;
    }
    for (what, count) in [
        ("refused without need", all.refusals_without_need),
        ("illegal for their provider", all.illegal),
        ("over the budget by a full recount", all.over_budget),
        ("other bytes the second time", all.not_deterministic),
        ("contexts that leave events unaccounted for", all.events_unaccounted),
        ("not rendered", all.failed),
        ("files not read", all.not_read),
    ] {
        out.line(format_args!("{DIM}{count:>9}  {what}{DIM:#}"))?;
    }
    out.line(format_args!("{BOLD}{:>9}  violations{BOLD:#}", all.violations()))?;
    for example in &all.examples {
        out.line(format_args!("  {NOTE}{example}{NOTE:#}"))?;
    }
    Ok(())
}
