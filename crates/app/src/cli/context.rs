//! `context`: the model's view by region; `explain`: how it came about.

use std::{process::ExitCode, sync::Arc};

use clap::Args as ClapArgs;
use epitome::{
    compact::{CompactedRequest, headline, tiers},
    core::{
        context::{Segment, Tier},
        meter::Meter,
    },
    recorded_calls::{self, RecordedCall},
};
use serde_json::{Value, json};

use super::{
    compact::{compact, uncompacted_size},
    compaction_report::{self, bar},
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    request_source::{RequestSource, RequestSpec, ViewArgs},
    store_lookup::DatabaseLocation,
    structured_summary, text_format,
};

#[derive(ClapArgs)]
pub(crate) struct ContextArgs {
    /// Session or file to show.
    #[arg(value_name = "SESSION|FILE")]
    source: String,

    /// Show what the model saw when it made this turn: its number, or its id. By default, what it would see
    /// now.
    #[arg(long, value_name = "TURN")]
    at: Option<String>,

    #[command(flatten)]
    view: ViewArgs,

    /// List every segment.
    #[arg(long)]
    segments: bool,
}

/// Reads the source and makes the view it asks for.
pub(crate) fn make_view(
    source: &str,
    at: Option<&str>,
    view: &ViewArgs,
    store: &DatabaseLocation,
) -> anyhow::Result<(RequestSpec, CompactedRequest)> {
    let mut chosen = view.resolve(RequestSource::find(source, at, store)?)?;
    let compacted = compact(&mut chosen)?;
    Ok((chosen, compacted))
}

pub(crate) fn run(
    args: &ContextArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    if args.view.is_structured() {
        let source = RequestSource::find(&args.source, args.at.as_deref(), store)?;
        return structured_summary::run(&args.source, source, &args.view, None, out);
    }
    let (chosen, compacted) = make_view(&args.source, args.at.as_deref(), &args.view, store)?;
    let tiers = tiers(&compacted.context);
    let around = compacted.context.tokens().less(tiers.values().copied().sum());
    let reported = last_reported(&chosen, compacted.context.meter());
    if out.is_json() {
        let segments: Vec<Value> = compacted.context.segments().iter().map(segment_json).collect();
        out.object(&json!({
            "source": args.source,
            "budget": compacted.report.budget,
            "margin": compacted.report.margin,
            "tokens": compacted.context.tokens(),
            "counter": compacted.report.counter,
            "reported": reported.as_ref().map(|call| json!({
                "time": call.at.and_then(text_format::rfc3339),
                "model": call.model,
                "input": call.usage.map(|usage| usage.input()),
                "estimated": call.counted,
            })),
            "regions": tiers
                .iter()
                .map(|(tier, tokens)| json!({"region": tier, "tokens": tokens}))
                .chain([json!({"region": "wrapping", "tokens": around})])
                .collect::<Vec<_>>(),
            "segments": segments,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&chosen.title, text_format::width())))?;
    let budget = compacted.report.budget;
    let named = tiers.iter().map(|(tier, tokens)| (name(*tier), *tokens));
    for (name, tokens) in named.chain([("wrapping", around)]) {
        let share = tokens.0 * 100 / budget.0.max(1);
        out.line(format_args!(
            "{name:>14}  {} {:>6} {share:>3} %",
            bar(tokens, budget),
            text_format::tokens(tokens)
        ))?;
    }
    let total = compacted.context.tokens();
    out.line(format_args!(
        "{BOLD}{:>14}{BOLD:#}  {} {:>6} of {} tokens",
        "all",
        bar(total, budget),
        text_format::tokens(total),
        text_format::tokens(budget)
    ))?;
    out.line(format_args!("{:>14}  {DIM}{}{DIM:#}", "margin", compacted.report.margin))?;
    if let Some((call, usage)) = reported.as_ref().and_then(|call| Some((call, call.usage?))) {
        out.line(format_args!(
            "{:>14}  {DIM}{} tokens as its provider counted it, {} by our count{DIM:#}",
            "last call",
            text_format::tokens(usage.input()),
            text_format::tokens(call.counted)
        ))?;
    }
    if args.segments {
        out.line("")?;
        for segment in compacted.context.segments() {
            out.line(segment_line(segment))?;
        }
    }
    for note in &chosen.notes {
        out.line(format_args!("{NOTE}note:{NOTE:#} {note}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The last call whose usage its provider reported, as the transcript or the log records it.
fn last_reported(chosen: &RequestSpec, meter: &Arc<Meter>) -> Option<RecordedCall> {
    let calls = recorded_calls::counted(&chosen.plan.line, meter);
    calls.into_iter().rev().find(|call| call.usage.is_some())
}

#[derive(ClapArgs)]
pub(crate) struct ExplainArgs {
    /// Session or file to explain.
    #[arg(value_name = "SESSION|FILE")]
    source: String,

    /// Explain what the model saw when it made this turn: its number, or its id. By default, what it would
    /// see now.
    #[arg(long, value_name = "TURN")]
    at: Option<String>,

    #[command(flatten)]
    view: ViewArgs,
}

pub(crate) fn explain(
    args: &ExplainArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (chosen, compacted) = make_view(&args.source, args.at.as_deref(), &args.view, store)?;
    let report = &compacted.report;
    if out.is_json() {
        let mut value = serde_json::to_value(report)?;
        value["before"] = serde_json::to_value(uncompacted_size(&chosen, report)?)?;
        out.object(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    compaction_report::steps(&mut out, report, uncompacted_size(&chosen, report)?, &chosen)?;
    if report.steps.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    out.line("")?;
    for eviction in &report.evictions {
        let shown = eviction
            .shown_as
            .map_or_else(|| "left out".to_owned(), |fidelity| format!("{fidelity:?}").to_lowercase());
        let tool = eviction.tool.as_deref().unwrap_or_default();
        let span = if eviction.events == 1 {
            format!("event {}", eviction.first)
        } else {
            format!("events {} to {}", eviction.first, eviction.last)
        };
        out.line(format_args!(
            "{span:>20}  {shown:<9} {NAME}{tool}{NAME:#} {DIM}by {} · {}{DIM:#}",
            eviction.by.replace('_', " "),
            eviction.handle
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn name(tier: Tier) -> &'static str {
    match tier {
        Tier::Prefix => "instructions",
        Tier::Summaries => "summaries",
        Tier::Dialogue => "dialogue",
        Tier::Reasoning => "reasoning",
        Tier::ToolResults => "tool results",
        Tier::Media => "media",
    }
}

fn segment_line(segment: &Segment) -> String {
    let fidelity = format!("{:?}", segment.fidelity()).to_lowercase();
    format!(
        "{:>6} {:<12} {fidelity:<9} {:>6}  {}",
        segment.turn() + 1,
        name(segment.tier()),
        text_format::tokens(segment.tokens()),
        text_format::one_line(&headline(segment), text_format::width().saturating_sub(40)),
    )
}

/// A segment, for programs.
pub(crate) fn segment_json(segment: &Segment) -> Value {
    json!({
        "turn": segment.turn() + 1,
        "region": segment.tier(),
        "fidelity": segment.fidelity(),
        "tokens": segment.tokens(),
        "events": segment.stands_for(),
        "touched_by": segment.last_author(),
        "says": text_format::one_line(&headline(segment), 200),
    })
}
