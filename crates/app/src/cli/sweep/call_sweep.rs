//! `sweep --policy`: every call of every session, repeated under policies as if live.

use std::{path::PathBuf, process::ExitCode};

use epitome::{core::policy::Policy, import::find_files};
use epitome_measure::sweep::{CallSweepTallies, CallSweepTally, sweep_calls};

use super::{
    super::{
        output::{BOLD, CliOutput, DIM, NOTE},
        parallel::for_all,
        policies, text_format,
    },
    SweepArgs,
};

pub(super) fn run(args: &SweepArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let policies = chosen(&args.policy)?;
    let files: Vec<PathBuf> = args.paths.iter().flat_map(|path| find_files(path).0).collect();
    let mut all = CallSweepTallies::new();
    let mut unread = Vec::new();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for_all(
        &files,
        name,
        |path| sweep_calls(path, &policies, &args.budget),
        |path, swept| {
            match swept {
                Ok(tallies) => {
                    for (key, tally) in tallies {
                        *all.entry(key).or_default() += tally;
                    }
                }
                Err(error) => unread.push(format!("{}: {error}", path.display())),
            }
            Ok(())
        },
    )?;
    let violations = all.values().map(CallSweepTally::total).sum::<u64>() + unread.len() as u64;
    if out.is_json() {
        let rows: Vec<serde_json::Value> = all
            .iter()
            .map(|((policy, budget), tally)| {
                let mut row = serde_json::to_value(tally).unwrap_or_default();
                row["policy"] = policies[*policy].name.clone().into();
                row["budget"] = (*budget).into();
                row
            })
            .collect();
        out.object(&serde_json::json!({"swept": rows, "not_read": unread, "violations": violations}))?;
    } else {
        tell(&all, &policies, &unread, violations, &mut out)?;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Policy>> {
    if names.iter().any(|name| name == "all") {
        return Ok(Policy::builtin().to_vec());
    }
    names.iter().map(|name| policies::find(name)).collect()
}

fn tell(
    all: &CallSweepTallies,
    policies: &[Policy],
    unread: &[String],
    violations: u64,
    out: &mut CliOutput,
) -> anyhow::Result<()> {
    out.line(format_args!(
        "{BOLD}{:<10} {:>7} {:>8} {:>8} {:>8} {:>7} {:>10}{BOLD:#}  epochs by cause",
        "policy", "budget", "calls", "refused", "epochs", "resets", "violations"
    ))?;
    for ((policy, budget), tally) in all {
        let causes: Vec<String> =
            tally.epochs.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let epochs: u64 = tally.epochs.values().sum();
        out.line(format_args!(
            "{:<10} {:>7} {:>8} {:>8} {:>8} {:>7} {:>10}  {DIM}{}{DIM:#}",
            policies[*policy].name,
            text_format::short(*budget),
            tally.calls,
            tally.refusals,
            epochs,
            tally.resets,
            tally.total(),
            causes.join(", ")
        ))?;
    }
    let mut sum = CallSweepTally::default();
    for tally in all.values() {
        sum += tally.clone();
    }
    out.line("")?;
    out.line(format_args!("{:>9}  requests rendered and checked", sum.calls))?;
    out.line(format_args!("{:>9}  refused: what must be sent does not fit", sum.refusals))?;
    out.line(format_args!("{:>9}  resets in one epoch at most", sum.resets_in_an_epoch))?;
    for (what, count) in sum.violations() {
        out.line(format_args!("{DIM}{count:>9}  {what}{DIM:#}"))?;
    }
    out.line(format_args!("{DIM}{:>9}  files not read{DIM:#}", unread.len()))?;
    out.line(format_args!("{BOLD}{violations:>9}  violations{BOLD:#}"))?;
    for example in sum.examples.iter().chain(unread).take(10) {
        out.line(format_args!("  {NOTE}{example}{NOTE:#}"))?;
    }
    Ok(())
}
