//! `compact`: the main command. It makes a request of messages that fits, with a report of what was done, or
//! adds a compaction turn.
//!
//! A file can only be made to fit. For a session both make sense: with a size or an output, a request is
//! written and the log stays unchanged; without them, the session itself is compacted.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use epitome::{
    compact::{CompactedRequest, CompactionReport, EvictedContent, RequestSize, size},
    core::{
        Fact,
        context::{Segment, SegmentBody},
        event::Summary,
        policy::Policy,
        summary::SummaryFocus,
    },
    simulate::SimulationResult,
    wire::render::SETTLE_THINKING,
};
use serde_json::json;

use super::{
    compact_session::{self, CompactSessionArgs},
    compaction_report,
    output::{CliOutput, DIM, NAME, NOTE},
    request_source::{self, PolicySimulation, RequestSource, RequestSpec, ViewArgs},
    store_lookup::DatabaseLocation,
    structured_summary, text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
A FILE is a transcript of any agent, a file of messages, or a whole request. Out comes a request that fits the budget and \
that the provider accepts. It needs no configuration, no database and no key:

  epitome compact session.jsonl --budget 50k --out smaller.json
  epitome compact request.json --model gpt-5.1 --budget 45% | curl …

What is old becomes a summary that tells what happened in order, as the default policy would have it; the newest messages stay \
word for word. --focus says what the summary should tell first; --policy fit cuts and leaves out instead, without a summary; \
--format structured writes a summary by sections and no request:

  epitome compact session.jsonl --budget 12k --focus \"the failing upload test\" --out smaller.json
  epitome compact session.jsonl --format structured --out summary.md

A SESSION of the store is compacted itself: a summary is appended to its log, and stands for its past from the next \
request on. --policy says what is kept and how long the summary may be; `epitome undo` takes it back:

  epitome compact SESSION
  epitome compact SESSION --keep-turns 3 --focus \"the failing upload test\"
  epitome compact SESSION --summariser http://127.0.0.1:8080/v1 --summariser-model small
  epitome compact SESSION --summariser https://api.openai.com/v1 --summariser-model gpt-5-mini --key-env OPENAI_API_KEY
  epitome compact SESSION --background              then: epitome jobs SESSION --work

With --budget, --out or --format a SESSION is treated as a FILE is: a request comes out, and its log stays as it is.

What a provider would refuse about a FILE is mended where that needs no guessing: empty parts go, calls and results are \
paired, null becomes an empty text. The rest (an unknown role, a call without an id, content of a wrong type …) is named \
with its place, nothing is written, and the exit code is 3; --force writes the request all the same.

Exit codes: 0 the request is ready, 1 it could not be made, 2 the command line is wrong, 3 its provider would refuse it.")]
pub(crate) struct CompactArgs {
    /// File or session to compact.
    #[arg(value_name = "FILE|SESSION")]
    source: String,

    #[command(flatten)]
    view: ViewArgs,

    /// File to write; by default the request goes to standard output if that is no terminal.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write the request even if its provider would refuse it; the exit code is still 3.
    #[arg(long)]
    force: bool,

    /// Topic that the summary should focus on: messages about it, and others of the same requests, get room
    /// before the rest. The summary still contains only what was said and done.
    #[arg(long, value_name = "TEXT", value_parser = parse_focus)]
    focus: Option<SummaryFocus>,

    #[command(flatten)]
    turn: CompactSessionArgs,
}

fn parse_focus(text: &str) -> Result<SummaryFocus, String> {
    SummaryFocus::new(text).ok_or_else(|| "there is no word in it".to_owned())
}

/// Exit code for a request that its provider would refuse.
const EXIT_ILLEGAL_REQUEST: u8 = 3;

pub(crate) fn run(
    args: &CompactArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let is_file = request_source::is_file(&args.source)?;
    let request = [
        ("--budget", args.view.budget.is_some()),
        ("--out", args.out.is_some()),
        ("--format", args.view.format.is_some()),
    ];
    let request = request.iter().find(|(_, is_said)| *is_said).map(|(name, _)| *name);
    match (is_file, request, args.turn.first_given_flag()) {
        (true, _, Some(said)) => bail!(
            "{said} is for a compaction turn, and a file has no log to append one to: import it first (epitome import \
             {}), then compact the session",
            args.source
        ),
        (false, Some(request), Some(said)) => bail!(
            "{request} asks for a request and {said} for a compaction turn: say one of them; nothing was done"
        ),
        (false, None, _) => {
            return compact_session::run(
                &args.source,
                &args.turn,
                args.focus.as_ref(),
                &args.view,
                store,
                out,
            );
        }
        (true, _, None) | (false, Some(_), None) => {}
    }
    let source = RequestSource::find(&args.source, None, store)?;
    if args.view.is_structured() {
        if args.focus.is_some() || args.view.policy.is_some() {
            bail!("--format structured tells every section as it is: it takes no --focus and no --policy");
        }
        return structured_summary::run(&args.source, source, &args.view, args.out.as_deref(), out);
    }
    let mut chosen = args.view.with_default_policy(&Policy::builtin()[0].name).resolve(source)?;
    if args.focus.is_some() && chosen.policy.as_ref().is_none_or(|policy| policy.summary.is_none()) {
        let policy = chosen.policy.as_ref().map_or(request_source::FIT_POLICY, |policy| policy.name.as_str());
        bail!(
            "--focus says what a summary should attend to, and the policy {policy} makes none; nothing was done"
        );
    }
    chosen.focus.clone_from(&args.focus);
    let mut compacted = compact(&mut chosen)?;
    if is_file {
        judge(&args.source, &mut chosen, &mut compacted.report);
    }
    let illegal = &compacted.report.illegal;
    let code = if illegal.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_ILLEGAL_REQUEST) };
    for found in illegal {
        anstream::eprintln!("{NOTE}refused:{NOTE:#} {found}");
    }
    let is_withheld = !illegal.is_empty() && !args.force;
    if is_withheld {
        let count = text_format::count(illegal.len() as u64, "place");
        anstream::eprintln!(
            "{NOTE}note:{NOTE:#} the provider would refuse this request in {count}, so nothing was written; mend it, or say --force"
        );
        if out.is_json() {
            let before = uncompacted_size(&chosen, &compacted.report)?;
            out.object(&report_json(&compacted.report, before, &chosen, args))?;
        }
        return Ok(code);
    }
    let whole = || uncompacted_size(&chosen, &compacted.report);
    if let Some(path) = &args.out {
        fs::write(path, compacted.rendered.body.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if out.is_json() {
        out.object(&report_json(&compacted.report, whole()?, &chosen, args))?;
    } else if args.out.is_some() || out.is_terminal() {
        compaction_report::print_outcome(&mut out, &compacted, whole()?, &chosen)?;
        match &args.out {
            Some(path) => out.line(format_args!("\nWritten to {NAME}{}{NAME:#}.", path.display()))?,
            None => out.line("\nNothing was written: --out FILE writes the request, and so does a pipe.")?,
        }
        out.line(format_args!("{DIM}Each step: {}{DIM:#}", explain_command(args, &chosen)))?;
    } else {
        for note in &chosen.notes {
            anstream::eprintln!("{NOTE}note:{NOTE:#} {note}");
        }
        out.bytes(compacted.rendered.body.as_bytes())?;
        out.bytes(b"\n")?;
    }
    Ok(code)
}

/// Command that explains step by step what was done.
fn explain_command(args: &CompactArgs, chosen: &RequestSpec) -> String {
    let mut command = format!("epitome explain {}", args.source);
    if let Some(budget) = args.view.budget {
        command = format!("{command} --budget {budget}");
    }
    if let Some(model) = &args.view.model {
        command = format!("{command} --model {model}");
    }
    let named = args.view.policy.as_deref().filter(|name| *name != request_source::FIT_POLICY);
    match named.or(chosen.policy.as_ref().map(|policy| policy.name.as_str())) {
        Some(policy) => format!("{command} --policy {policy}"),
        None => command,
    }
}

/// Reports what the provider would refuse about a file that is a whole request in the output format.
fn judge(path: &str, chosen: &mut RequestSpec, report: &mut CompactionReport) {
    let Ok(request) = fs::read_to_string(path) else { return };
    let format = chosen.plan.format;
    let is_request = serde_json::from_str::<serde_json::Value>(&request)
        .is_ok_and(|value| value.get(format.history_key()).is_some());
    let is_translated = chosen.plan.line.events().any(|event| event.event.raw.dialect != format.dialect());
    if !is_request || is_translated {
        return;
    }
    report.record_violations(format, &request, &chosen.plan.options.rules);
    chosen.notes.extend(report.mended.iter().map(|mended| format!("mended: {mended}")));
}

/// Makes the request. Notes are added if it relies on a summary that the agent itself made, or if a tool loop
/// had to be retold in words.
pub(crate) fn compact(chosen: &mut RequestSpec) -> anyhow::Result<CompactedRequest> {
    let whole = chosen.plan.context(chosen.names);
    if let Some(summary) = whole.segments().iter().find(|segment| segment.compaction().is_some()) {
        chosen.notes.push(format!(
            "the session was compacted before: a summary stands for {} of its events",
            summary.stands_for().count()
        ));
    }
    let compacted = match &chosen.policy {
        None => chosen.plan.compact(whole, chosen.budget.clone(), chosen.margin)?,
        Some(policy) => {
            let rehearsed = {
                let focus = chosen.focus.as_ref();
                chosen.plan.simulate(policy, chosen.names, &chosen.budget, chosen.margin, focus)?
            };
            let SimulationResult { compacted, calls, refused, passes, made_anew } = rehearsed;
            chosen.rehearsed = Some(PolicySimulation { calls, refused, passes, made_anew });
            compacted
        }
    };
    if let Some(focus) = &chosen.focus {
        chosen.is_focus_applied = compacted.context.segments().iter().any(attends);
        chosen.notes.push(compact_session::focus_sentence(focus, chosen.is_focus_applied));
    }
    let told = |eviction: &&EvictedContent| eviction.by == SETTLE_THINKING && eviction.shown_as.is_some();
    if let Some(told) = compacted.report.evictions.iter().find(told) {
        chosen.notes.push(format!(
            "the tool loop that is going on is told again in words ({} events): its thinking is bound to what had to \
             change",
            told.events
        ));
    }
    Ok(compacted)
}

/// Returns true if a segment is a summary that found something about the focus.
fn attends(segment: &Segment) -> bool {
    let SegmentBody::Summary(event) = segment.body() else { return false };
    let Fact::Compacted(compaction) = &event.event.fact else { return false };
    matches!(&compaction.summary, Summary::Structured { brief, .. } if brief.focus.is_some())
}

/// Size of the request with nothing left out.
pub(crate) fn uncompacted_size(
    chosen: &RequestSpec,
    report: &CompactionReport,
) -> anyhow::Result<RequestSize> {
    if report.steps.is_empty() && report.before == report.after.tokens {
        return Ok(report.after);
    }
    let whole = chosen.plan.context(chosen.names);
    Ok(size(&whole, chosen.plan.format, &chosen.plan.options)?)
}

fn report_json(
    report: &CompactionReport,
    before: RequestSize,
    chosen: &RequestSpec,
    args: &CompactArgs,
) -> serde_json::Value {
    json!({
        "source": args.source,
        "format": chosen.plan.format.to_string(),
        "model": chosen.plan.profile.as_ref().map(|profile| &profile.name),
        "counter": report.counter,
        "budget": report.budget,
        "target": report.target,
        "margin": report.margin,
        "tokens_before": before.tokens,
        "tokens_after": report.after.tokens,
        "messages_before": before.messages,
        "messages_after": report.after.messages,
        "bytes_before": before.bytes,
        "bytes_after": report.after.bytes,
        "steps": report.steps,
        "evictions": report.evictions,
        "illegal": report.illegal,
        "mended": report.mended,
        "notes": chosen.notes,
        "focus": args.focus.as_ref().map(SummaryFocus::text),
        "focus_applied": args.focus.as_ref().map(|_| chosen.is_focus_applied),
        "policy": chosen.policy.as_ref().map(|policy| &policy.name),
        "passes": chosen.rehearsed.as_ref().map(|rehearsed| &rehearsed.passes),
        "out": args.out,
    })
}
