//! `policies`: the policies and their numbers.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use epitome::core::policy::{Policy, StepTiming};

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
A policy of your own is a file in the same form, alone or over a built-in one:

  epitome policies epitome > mine.toml        (edit it)
  epitome policies mine.toml                  (is it right?)
  epitome compact session.jsonl --budget 60k --policy mine.toml")]
pub(crate) struct PoliciesArgs {
    /// Show only this policy, in full: a name, or a file.
    policy: Option<String>,
}

pub(crate) fn run(args: &PoliciesArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.policy {
        let policy = find(name)?;
        if out.is_json() {
            out.object(&policy)?;
        } else if let Ok(file) = Policy::file(name) {
            out.bytes(file.as_bytes())?;
        } else {
            out.line(format_args!("{name} is right: {NAME}{}{NAME:#}", policy.name))?;
            describe(&policy, &mut out)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for (index, policy) in Policy::builtin().iter().enumerate() {
        if out.is_json() {
            out.object(policy)?;
            continue;
        }
        let default = if index == 0 { ", the default" } else { "" };
        out.line(format_args!("{BOLD}{}{BOLD:#}{DIM}{default}{DIM:#}", policy.name))?;
        describe(policy, &mut out)?;
        out.line("")?;
    }
    if !out.is_json() {
        out.line(format_args!("{DIM}epitome policies NAME prints its file, to read or to change{DIM:#}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(policy: &Policy, out: &mut CliOutput) -> anyhow::Result<()> {
    for line in text_format::wrapped(&policy.about, text_format::width().saturating_sub(2).min(96)) {
        out.line(format_args!("  {line}"))?;
    }
    for (when, words) in [
        (StepTiming::OnArrival, "before it is first sent"),
        (StepTiming::EveryCall, "before every call"),
        (StepTiming::AtEpoch, "when it acts"),
        (StepTiming::AfterSummary, "after a summary"),
    ] {
        let steps = policy.reduce.iter().filter(|step| step.when == when);
        let names: Vec<String> = steps.map(|step| step.name().replace('_', " ")).collect();
        if !names.is_empty() {
            out.line(format_args!("  {DIM}{words}:{DIM:#} {}", names.join(", ")))?;
        }
    }
    let summary = if policy.summary.is_some() { "what they leave too large" } else { "never" };
    out.line(format_args!("  {DIM}summarised:{DIM:#} {summary}"))
}

/// Finds a policy by its name or in a file.
pub(crate) fn find(name: &str) -> anyhow::Result<Policy> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|extension| extension == "toml") || path.is_file();
    if !is_file || Policy::named(name).is_ok() {
        return Ok(Policy::named(name)?.clone());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the policy {name}"))?;
    Policy::read(&text).with_context(|| format!("in the policy {name}"))
}
