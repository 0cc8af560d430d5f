//! Report of what was done to make a request, for people: in a few lines, and step by step.

use epitome::{
    compact::{CompactedRequest, CompactionReport, EvictedContent, RequestSize},
    core::{
        Fact, Seq, Tokens,
        context::{Context, EventNaming, Fidelity, Segment, SegmentBody, Tier},
        seq_set::SeqSet,
    },
};

use super::{
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    request_source::{PolicySimulation, RequestSpec},
    text_format,
};

/// Writes the outcome in a few lines.
pub(crate) fn print_outcome(
    out: &mut CliOutput,
    compacted: &CompactedRequest,
    before: RequestSize,
    chosen: &RequestSpec,
) -> anyhow::Result<()> {
    let CompactedRequest { context, report, .. } = compacted;
    sizes(out, report, before, chosen)?;
    let rows = rows(context, report, chosen);
    if rows.is_empty() {
        out.line("It fits as it is: nothing was changed.")?;
    }
    for (label, words) in rows {
        labelled(out, label, &words)?;
    }
    for note in &chosen.notes {
        labelled(out, "note", note)?;
    }
    Ok(())
}

/// Lists what was summarised, shortened and kept, and by which policy; empty if nothing was changed. A summary that the log held
/// before is no change.
fn rows(context: &Context, report: &CompactionReport, chosen: &RequestSpec) -> Vec<(&'static str, String)> {
    let shown = &context.segments()[context.prefix_len()..];
    let is_made = |segment: &&Segment| match segment.body() {
        SegmentBody::Summary(event) => {
            !chosen.plan.line.events().any(|logged| logged.event.fact == event.event.fact)
        }
        _ => false,
    };
    let summaries: Vec<&Segment> = shown.iter().filter(is_made).collect();
    let shortened = kinds(report);
    if summaries.is_empty() && shortened.is_empty() && report.steps.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for summary in summaries {
        rows.push((
            "summarised",
            format!(
                "{}, in {} tokens: what happened, in order, and where things stand",
                events(&covered(summary), context.names()),
                text_format::tokens(summary.tokens())
            ),
        ));
    }
    if !shortened.is_empty() {
        rows.push(("shortened", shortened.join(", ")));
    }
    rows.push(("kept whole", kept(context)));
    if let (Some(policy), Some(played)) = (&chosen.policy, &chosen.rehearsed) {
        rows.push(("by", format!("the policy {}, {}", policy.name, made(played))));
        if played.refused > 0 && !played.made_anew {
            let refused = text_format::count(played.refused, "call");
            rows.push(("note", format!("{refused} could not have been made: what must be sent did not fit")));
        }
    }
    rows
}

/// Describes how a policy made its next request.
fn made(played: &PolicySimulation) -> String {
    if played.made_anew {
        return "from the whole session at once: no cache holds anything of it, so it is filled but for room for a few \
                calls"
            .to_owned();
    }
    let summaries = played.passes.iter().filter(|pass| pass.summarised_through.is_some()).count() as u64;
    let summaries = match summaries {
        0 => "without a summary".to_owned(),
        1 => "with one summary on the way".to_owned(),
        many => format!("with {many} summaries on the way, each built on the one before"),
    };
    let calls = text_format::count(played.calls, "call");
    format!("as if it had run the session from its start: {calls}, {summaries}")
}

/// Describes the events that are sent as they came.
fn kept(context: &Context) -> String {
    let (prefix, shown) = context.segments().split_at(context.prefix_len());
    let is_whole = |segment: &&Segment| segment.fidelity() == Fidelity::Verbatim;
    let whole: Vec<&Segment> = shown.iter().filter(is_whole).collect();
    let events = SeqSet::union(whole.iter().map(|segment| segment.stands_for()));
    let tokens: Tokens = whole.iter().map(|segment| segment.tokens()).sum();
    let others = shown.iter().filter(|segment| !is_whole(segment));
    let last_other = others.filter_map(|segment| covered(segment).last()).max().unwrap_or(Seq::START);
    let the_last = if events.first().is_some_and(|first| first > last_other) { "the last " } else { "" };
    let count = text_format::count(events.count(), "message");
    let messages = format!("{the_last}{count} ({} tokens)", text_format::tokens(tokens));
    if prefix.is_empty() {
        return messages;
    }
    let prefix = text_format::tokens(context.tier_tokens(Tier::Prefix));
    format!("{messages}, and instructions and tools ({prefix} tokens)")
}

/// The events that a segment covers. A compaction made in a rehearsal shares the number of an event that it
/// does not cover.
fn covered(segment: &Segment) -> SeqSet {
    let through = match segment.body() {
        SegmentBody::Summary(event) => match &event.event.fact {
            Fact::Compacted(compaction) => Some(compaction.through),
            _ => None,
        },
        _ => None,
    };
    match segment.stands_for().first().zip(through) {
        Some((first, through)) => SeqSet::run(first, through),
        None => segment.stands_for().clone(),
    }
}

/// Describes events by the names under which people find them again: messages of a file by their numbers
/// there.
fn events(events: &SeqSet, names: EventNaming) -> String {
    match names {
        EventNaming::Messages | EventNaming::MessagesAfter(_) => names.handles(events),
        EventNaming::Thread(_) | EventNaming::Hidden(_) => format!("events {events}"),
    }
}

/// Writes a label and words after it, wrapped.
fn labelled(out: &mut CliOutput, label: &str, words: &str) -> anyhow::Result<()> {
    const LABEL: usize = 10;
    let lines = text_format::wrapped(words, text_format::width().saturating_sub(LABEL + 2).min(100));
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        out.line(format_args!("{NAME}{label:>LABEL$}{NAME:#}  {line}"))?;
    }
    Ok(())
}

/// Writes the kind and size of the messages, before and after, and the budget.
fn sizes(
    out: &mut CliOutput,
    report: &CompactionReport,
    before: RequestSize,
    chosen: &RequestSpec,
) -> anyhow::Result<()> {
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&chosen.title, text_format::width())))?;
    let plan = &chosen.plan;
    let model =
        plan.profile.as_ref().map_or_else(|| "no model named".to_owned(), |profile| profile.name.clone());
    out.line(format_args!("{DIM}{model} · {} · counted by {}{DIM:#}\n", plan.format, report.counter))?;
    let most = before.tokens.max(report.budget);
    let after = &report.after;
    for (what, tokens, messages) in
        [("before", before.tokens, before.messages), ("after", after.tokens, after.messages)]
    {
        out.line(format_args!(
            "{what:>10}  {} {BOLD}{:>6}{BOLD:#} tokens, {}",
            bar(tokens, most),
            text_format::tokens(tokens),
            text_format::count(messages as u64, "message"),
        ))?;
    }
    out.line(format_args!(
        "{:>10}  {} {:>6} tokens",
        "budget",
        bar(report.budget, most),
        text_format::tokens(report.budget)
    ))?;
    if report.margin.tokens > Tokens(0) {
        out.line(format_args!("{:>10}  {DIM}{}{DIM:#}", "margin", report.margin))?;
    }
    out.line("")
}

/// Writes the steps by which the request was made.
pub(crate) fn steps(
    out: &mut CliOutput,
    report: &CompactionReport,
    before: RequestSize,
    chosen: &RequestSpec,
) -> anyhow::Result<()> {
    sizes(out, report, before, chosen)?;
    match (&chosen.policy, &chosen.rehearsed) {
        (Some(policy), Some(rehearsed)) => passes(out, &policy.name, rehearsed, report)?,
        _ if report.steps.is_empty() => out.line("It fits as it is: nothing was touched.")?,
        _ => reductions(out, report)?,
    }
    for note in &chosen.notes {
        out.line(format_args!("{NOTE}note:{NOTE:#} {note}"))?;
    }
    Ok(())
}

/// Writes the steps of a policy.
fn passes(
    out: &mut CliOutput,
    policy: &str,
    rehearsed: &PolicySimulation,
    report: &CompactionReport,
) -> anyhow::Result<()> {
    let resets = rehearsed.passes.iter().filter(|pass| pass.cause.is_some()).count();
    let summaries = rehearsed.passes.iter().filter(|pass| pass.summarised_through.is_some()).count();
    out.line(format_args!(
        "{NAME}{policy}{NAME:#} over {}: {}, {}",
        text_format::count(rehearsed.calls, "call"),
        match resets {
            1 => "1 reset of the cache".to_owned(),
            resets => format!("{resets} resets of the cache"),
        },
        match summaries {
            1 => "1 summary".to_owned(),
            summaries => format!("{summaries} summaries"),
        },
    ))?;
    if rehearsed.refused > 0 {
        out.line(format_args!(
            "{} refused: what must be sent did not fit",
            text_format::count(rehearsed.refused, "call")
        ))?;
    }
    if rehearsed.passes.is_empty() {
        return out.line("It fits as it is: nothing was touched.");
    }
    let mut table = text_format::table(&["call", "why", "what was done", "tokens"], &[0, 3]);
    for pass in &rehearsed.passes {
        let mut done: Vec<String> = pass.steps.iter().map(|step| step.reducer.replace('_', " ")).collect();
        if let Some(through) = pass.summarised_through {
            done.insert(0, format!("summary through {through}"));
        }
        let cause = pass.cause.as_ref().map_or_else(|| "before it was sent".to_owned(), ToString::to_string);
        table.add_row([
            (pass.call + 1).to_string(),
            cause,
            done.join(", "),
            text_format::tokens(pass.tokens),
        ]);
    }
    out.line(table)?;
    if rehearsed.made_anew {
        out.line(format_args!(
            "{DIM}the next request is made from the whole session at once: no cache holds anything of it{DIM:#}"
        ))?;
    }
    if let Some(plan) = rehearsed.passes.iter().rev().find_map(|pass| pass.plan.as_ref()) {
        out.line(format_args!("{DIM}the planner, last: {plan}{DIM:#}"))?;
    }
    if let Some(shortfall) = rehearsed.passes.iter().rev().find_map(|pass| pass.shortfall.as_ref()) {
        out.line(format_args!("{NOTE}note:{NOTE:#} {shortfall}"))?;
    }
    promised(out, report)
}

/// Writes the trace: the effect of each reducer.
fn reductions(out: &mut CliOutput, report: &CompactionReport) -> anyhow::Result<()> {
    let mut table =
        text_format::table(&["what was done", "tokens", "saved", "changed", "left out"], &[1, 2, 3, 4]);
    for step in &report.steps {
        let saved = step.before.0.saturating_sub(step.after.0);
        if saved == 0 && step.replaced == 0 && step.removed == 0 {
            continue;
        }
        table.add_row([
            step.reducer.replace('_', " "),
            text_format::tokens(step.after),
            text_format::short(saved),
            text_format::short(step.replaced),
            text_format::short(step.removed),
        ]);
    }
    out.line(table)?;
    promised(out, report)
}

/// Numbers of the events that are not shown in full, by kind.
fn kinds(report: &CompactionReport) -> Vec<String> {
    let kinds = [
        (Fidelity::Cut, "cut to head and tail"),
        (Fidelity::Reference, "replaced by how to fetch it again"),
        (Fidelity::Stub, "replaced by a line"),
        (Fidelity::Summary, "gathered into a note"),
    ];
    let counted = kinds.iter().filter_map(|(kind, words)| {
        let count = report.evictions.iter().filter(|eviction| eviction.shown_as == Some(*kind)).count();
        (count > 0).then(|| format!("{count} {words}"))
    });
    let silent = without_a_line(report);
    let left_out =
        (silent > 0).then(|| format!("pieces of {} left out", text_format::count(silent, "event")));
    counted.chain(left_out).collect()
}

/// Writes these events with the handles that lead back to them.
fn promised(out: &mut CliOutput, report: &CompactionReport) -> anyhow::Result<()> {
    let counted = kinds(report);
    let silent = without_a_line(report);
    let promise = match (counted.len(), silent) {
        (0, _) => return Ok(()),
        (_, 0) => "every one of them says what was there and how to get it back",
        (1, _) => "what is left out has no line; epitome explain lists it",
        _ => {
            "what is left out has no line (epitome explain lists it); all else says what was there and how to get it \
             back"
        }
    };
    out.line(format_args!("\n{}", counted.join(" · ")))?;
    out.line(format_args!("{DIM}{promise}{DIM:#}"))
}

/// Number of events that a reducer left out or cut without a line that says so.
fn without_a_line(report: &CompactionReport) -> u64 {
    let by_a_step = |eviction: &&EvictedContent| report.steps.iter().any(|step| step.reducer == eviction.by);
    let silent = report.evictions.iter().filter(|eviction| eviction.shown_as.is_none()).filter(by_a_step);
    silent.map(|eviction| eviction.events).sum()
}

/// A bar of at most 32 columns.
pub(crate) fn bar(tokens: Tokens, most: Tokens) -> String {
    const WIDTH: u64 = 32;
    let filled = (tokens.0 * WIDTH).div_ceil(most.0.max(1)).min(WIDTH);
    let repeat = |piece: &str, times: u64| piece.repeat(usize::try_from(times).unwrap_or_default());
    format!("{}{DIM}{}{DIM:#}", repeat("█", filled), repeat("░", WIDTH - filled))
}
