//! `export`: writes a session in a provider's format, or the log itself.

use std::{fs, path::PathBuf, process::ExitCode, sync::LazyLock};

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum, builder::PossibleValue};
use epitome::{
    core::LoggedEvent,
    wire::{EncodeMode, Format},
};
use serde_json::json;

use super::{
    output::{CliOutput, DIM},
    request_source::FormatArg,
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
Messages that came in the format asked for leave with the bytes they came with; others are written afresh. \
The default is the log as it was, which a provider may refuse: interrupted calls have no result. --legal pairs every \
call and puts roles in order. What the log does not hold (often the model, the limits, the tools) is yours to add.")]
pub(crate) struct ExportArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Format to write.
    #[arg(long, value_enum)]
    format: ExportFormat,

    /// Complete the request where its provider would refuse it.
    #[arg(long)]
    legal: bool,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    thread: Option<String>,

    /// Export only up to the end of this turn: its number, or its id.
    #[arg(long, value_name = "TURN")]
    at: Option<String>,

    /// File to write; by default standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Request(FormatArg),
    Jsonl,
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ExportFormat>> = LazyLock::new(|| {
            let requests = FormatArg::value_variants().iter().map(|format| ExportFormat::Request(*format));
            requests.chain([ExportFormat::Jsonl]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Request(format) => {
                let help = format!("A request to {}", Format::from(*format).title());
                format.to_possible_value().map(|value| value.help(help))
            }
            Self::Jsonl => {
                let help = "Every event with its fact, its raw JSON and its hashes, one per line";
                Some(PossibleValue::new("jsonl").help(help))
            }
        }
    }
}

pub(crate) fn run(
    args: &ExportArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = store_lookup::thread(&*store, &session, args.thread.as_deref())?;
    let last = match &args.at {
        None => None,
        Some(turn) => Some(store_lookup::turn(thread.id, &store.turns(thread.id)?, turn)?.1.turn.last),
    };
    let events = store_lookup::events(&*store, thread.id, last)?;
    let bytes = match args.format {
        ExportFormat::Jsonl => lines(&events)?,
        ExportFormat::Request(format) => request(format.into(), &events, args.legal)?,
    };
    let Some(path) = &args.out else {
        out.bytes(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::write(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    if out.is_json() {
        out.object(&json!({ "file": path, "bytes": bytes.len(), "events": events.len() }))?;
    } else {
        out.line(format_args!(
            "{} {DIM}({}, {}){DIM:#}",
            path.display(),
            text_format::count(events.len() as u64, "event"),
            text_format::count(bytes.len() as u64, "byte"),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn request(format: Format, events: &[LoggedEvent], legal: bool) -> anyhow::Result<Vec<u8>> {
    let completion = if legal { EncodeMode::Legal } else { EncodeMode::AsRecorded };
    let mut body = format.encode(events.iter().map(|logged| &logged.event), completion)?.body.into_bytes();
    body.push(b'\n');
    Ok(body)
}

fn lines(events: &[LoggedEvent]) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for logged in events {
        let event = &logged.event;
        let line = json!({
            "id": logged.id,
            "kind": event.fact.kind(),
            "time": event.time.and_then(text_format::rfc3339),
            "origin": event.origin,
            "dialect": event.raw.dialect,
            "normal": event.normal,
            "raw_hash": logged.link.raw,
            "normal_hash": logged.link.normal,
            "fact": event.fact,
            // The raw JSON is written as a string, which alone keeps its exact bytes, line breaks included.
            "raw": &*event.raw.json,
        });
        serde_json::to_writer(&mut bytes, &line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
