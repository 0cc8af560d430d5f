//! `models`: the known facts about each model, and their sources.

use std::{path::PathBuf, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::core::profile::{ModelWindow, Profile};

use super::{
    output::{BOLD, CliOutput, DIM},
    text_format,
};
use crate::config::session_settings::read_profiles;

#[derive(ClapArgs)]
#[command(
    after_help = "A file of profiles in TOML adds models or overrides single fields: --profiles FILE, or EPITOME_PROFILES."
)]
pub(crate) struct ModelsArgs {
    /// Show only this model, in full.
    model: Option<String>,

    /// File of model profiles that add to the built-in ones or override them.
    #[arg(long, value_name = "FILE", env = "EPITOME_PROFILES", hide_env_values = true)]
    profiles: Option<PathBuf>,
}

pub(crate) fn run(args: &ModelsArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let profiles = read_profiles(args.profiles.as_deref())?;
    if let Some(model) = &args.model {
        let profile = profiles.find(model)?;
        if out.is_json() {
            out.object(profile)?;
        } else {
            one(profile, &mut out)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if out.is_json() {
        for profile in profiles.iter() {
            out.object(profile)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = text_format::table(
        &["model", "provider", "window", "output", "tokens", "compact at", "down to"],
        &[2, 3, 5, 6],
    );
    for profile in profiles.iter() {
        let mark = if profile.unverified.is_empty() { "" } else { " *" };
        table.add_row([
            format!("{}{mark}", profile.name),
            profile.provider.clone(),
            window(profile),
            profile.output_limit.map(text_format::tokens).unwrap_or_default(),
            format!("{:?}", profile.tokenizer).to_lowercase(),
            profile.thresholds.trigger.to_string(),
            profile.thresholds.target.to_string(),
        ]);
    }
    out.line(table)?;
    out.line(format_args!(
        "{DIM}* not all of it was found in the provider's own documents\n\
         epitome models MODEL shows everything known of one, and what of it is unverified{DIM:#}"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn window(profile: &Profile) -> String {
    match profile.window {
        ModelWindow::Of(tokens) => text_format::tokens(tokens),
        ModelWindow::Unlimited => "unlimited".to_owned(),
        ModelWindow::Unknown => "unknown".to_owned(),
    }
}

/// Shows a profile in full: its fields as they are, absent ones left out.
fn one(profile: &Profile, out: &mut CliOutput) -> anyhow::Result<()> {
    out.line(format_args!("{BOLD}{}{BOLD:#}", profile.name))?;
    let value = serde_json::to_value(profile)?;
    for (key, value) in value.as_object().into_iter().flatten() {
        if key == "name" || value.is_null() {
            continue;
        }
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.line(format_args!("{:>14}  {}", key.replace('_', " "), shown))?;
    }
    Ok(())
}
