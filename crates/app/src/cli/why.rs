//! `why`: did the agent forget, or was it compacted out?

use std::process::ExitCode;

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome_measure::text_fate::{MatchKind, why};

use super::{
    output::CliOutput, recall::strip_control_characters, session_args::ThreadArgs,
    store_lookup::DatabaseLocation,
};

#[derive(ClapArgs)]
#[command(after_help = "\
For each event that holds the text: which calls saw it word for word, from which on it was cut, stubbed, folded or \
summarised, by which rule, whether it is in what would be sent now, and the handle that brings it back. It is answered \
from the requests themselves, rendered again. The status is 1 if no event holds the text.

  epitome why SESSION \"connection refused\"
  epitome why SESSION \"never touch the lock file\" --json | jq .events")]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    named: ThreadArgs,

    /// Text to find, as it stands in the session.
    text: String,
}

pub(crate) fn run(args: &WhyArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if args.text.trim().is_empty() {
        bail!("say which text: this is empty");
    }
    let store = store.open_existing()?;
    let (_, thread) = args.named.find(&*store)?;
    let answer = why(&*store, thread.id, &args.text)?;
    if out.is_json() {
        out.object(&answer)?;
    } else {
        out.line(strip_control_characters(&answer.to_string()).trim_end())?;
    }
    Ok(if answer.matched == MatchKind::Nowhere { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
