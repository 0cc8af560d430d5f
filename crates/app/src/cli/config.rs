//! `config`: the configuration that holds, every key that there is, and whether a file is right.

use std::{path::PathBuf, process::ExitCode};

use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    policies,
    store_lookup::DatabaseLocation,
    text_format,
};
use crate::config::{
    effective_config::{EffectiveValue, effective_values},
    flags::GatewayArgs,
    keys::{KEYS, KeyScope, schema},
    session_settings::ConfigPath,
};

#[derive(ClapArgs)]
#[command(after_help = "\
One file serves the gateway and the commands that act on sessions (compact SESSION, handoff, fork, jobs --work). It is \
named by --config or EPITOME_CONFIG; without either it is epitome/config.toml in your configuration directory.

  epitome config                              what holds, and where each value is from
  epitome config --check gateway.toml         is it right?
  epitome config --keys                       every key, with its default
  epitome config --schema > epitome.schema.json")]
pub(crate) struct ConfigArgs {
    /// Check a file: exit code 0 if it is right, 1 and the line that is wrong otherwise.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["schema", "keys"])]
    check: Option<PathBuf>,

    /// Print a JSON schema of the file, for editors.
    #[arg(long, conflicts_with = "keys")]
    schema: bool,

    /// List every key, with what it may be, its default and what it is for.
    #[arg(long)]
    keys: bool,
}

pub(crate) fn run(
    args: &ConfigArgs,
    config: &ConfigPath,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    if args.schema {
        out.bytes(format!("{:#}\n", schema()).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.keys {
        return list_keys(out);
    }
    let environment = |name: &str| std::env::var(name).ok();
    let file = args.check.as_deref().or(config.path());
    // Whatever is wrong in the file is said before any of it is shown.
    GatewayArgs::default().resolve(file, &environment, &policies::find)?;
    if let Some(path) = &args.check {
        if out.is_json() {
            out.object(&json!({ "file": path, "is_right": true }))?;
        } else {
            out.line(format_args!("{NAME}{}{NAME:#} is right", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut values = effective_values(file)?;
    if let Some(database) = store.named()
        && let Some(known) = values.iter_mut().find(|value| value.key == "db")
    {
        let from = if environment("EPITOME_DB").is_some_and(|named| database.as_os_str() == named.as_str()) {
            "EPITOME_DB"
        } else {
            "--db"
        };
        *known = EffectiveValue {
            value: format!("\"{}\"", database.display()),
            from: from.to_owned(),
            ..known.clone()
        };
    }
    if out.is_json() {
        for value in &values {
            out.object(value)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = text_format::table(&["key", "value", "from"], &[]);
    for EffectiveValue { key, value, from } in &values {
        let value = if value.is_empty() { "none" } else { value };
        table.add_row([key.clone(), text_format::one_line(value, 60), from.clone()]);
    }
    out.line(table)?;
    if file.is_none() {
        out.line(format_args!("\n{DIM}There is no configuration file: all of these are defaults.{DIM:#}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list_keys(mut out: CliOutput) -> anyhow::Result<ExitCode> {
    for key in KEYS {
        if out.is_json() {
            out.object(&json!({ "key": key.key, "kind": key.kind_name(), "default": key.default,
                "scope": key.scope, "about": key.about }))?;
            continue;
        }
        let default =
            if key.default.is_empty() { String::new() } else { format!("; {} by default", key.default) };
        let scope = match key.scope {
            KeyScope::Gateway => "gateway",
            KeyScope::All => "gateway and commands",
        };
        out.line(format_args!(
            "{BOLD}{}{BOLD:#}  {DIM}{}{default}; {scope}{DIM:#}",
            key.key,
            key.kind_name()
        ))?;
        for line in text_format::wrapped(key.about, text_format::width().saturating_sub(2).min(96)) {
            out.line(format_args!("  {line}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
