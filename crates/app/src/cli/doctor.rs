//! `doctor`: checks that the database is sound.

use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::{
    output::{BOLD, CliOutput, DIM, NOTE},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "Checking changes nothing. The exit code is 1 if there is a problem.")]
pub(crate) struct DoctorArgs {
    /// First rebuild all derived data: turns, counts and search index.
    #[arg(long)]
    rebuild: bool,
}

pub(crate) fn run(
    args: &DoctorArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    if args.rebuild {
        store.rebuild()?;
    }
    let report = store.doctor()?;
    let code = if report.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if out.is_json() {
        let mut value = serde_json::to_value(&report)?;
        value["healthy"] = report.is_healthy().into();
        out.object(&value)?;
        return Ok(code);
    }
    for check in &report.checks {
        let mark = if check.problems.is_empty() { "ok     " } else { "PROBLEM" };
        out.line(format_args!("{BOLD}{mark}{BOLD:#}  {:24} {DIM}{}{DIM:#}", check.name, check.covered))?;
        for problem in &check.problems {
            out.line(format_args!("           {NOTE}{problem}{NOTE:#}"))?;
        }
    }
    let problems = report.problems().count();
    if problems == 0 {
        out.line(format_args!("{BOLD}{} is healthy.{BOLD:#}", store.location()))?;
    } else {
        out.line(format_args!(
            "{BOLD}{} in {}.{BOLD:#} If only derived tables are affected: epitome doctor --rebuild. \
             If the log is: restore a backup.",
            text_format::count(problems as u64, "problem"),
            store.location()
        ))?;
    }
    Ok(code)
}
