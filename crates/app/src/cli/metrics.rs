//! `metrics`: measures the compaction of a session against its targets.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome_measure::metrics::metrics;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput},
    session_args::ThreadArgs,
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
Five figures, measured from the log and from the recorded calls: how much smaller summaries are, how much came out of the \
provider's cache, how often the agent could simply go on, whether failed approaches are kept, and whether every section \
is there. What a session says nothing about is not guessed.

  epitome metrics SESSION
  epitome metrics SESSION --json | jq '.rows[] | select(.met != \"yes\")'")]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    named: ThreadArgs,
}

pub(crate) fn run(
    args: &MetricsArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (session, thread) = args.named.find(&*store)?;
    let measured = metrics(&*store, thread.id)?;
    let rows = measured.rows();
    if out.is_json() {
        out.object(
            &json!({ "session": session.id, "thread": thread.id, "rows": rows, "metrics": measured }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&session.title, text_format::width())))?;
    let mut table = text_format::table(&["figure", "value", "target", "met", "made of"], &[]);
    for row in &rows {
        let cells =
            [row.name, &row.value, row.target, &row.met.to_string(), &text_format::one_line(&row.detail, 90)];
        table.add_row(cells);
    }
    out.line(table)?;
    Ok(ExitCode::SUCCESS)
}
