//! `backup`: a copy of the database while it is in use.

use std::{path::PathBuf, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::store::StoreLocation;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{output::CliOutput, store_lookup::DatabaseLocation, text_format};

#[derive(ClapArgs)]
pub(crate) struct BackupArgs {
    /// File to create. An existing file is not overwritten.
    file: PathBuf,
}

pub(crate) fn run(
    args: &BackupArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let style = ProgressStyle::with_template("{bar:30} {percent}% · {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(0).with_style(style);
    store.backup(&StoreLocation::named(&args.file)?, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    })?;
    bar.finish_and_clear();
    let bytes = std::fs::metadata(&args.file)?.len();
    if out.is_json() {
        out.object(&json!({ "file": args.file, "bytes": bytes }))?;
    } else {
        out.line(format_args!("{}: {} bytes", args.file.display(), text_format::short(bytes)))?;
    }
    Ok(ExitCode::SUCCESS)
}
