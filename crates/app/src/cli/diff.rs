//! `diff`: differences between the model's views at two turns, or under two policies.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::{
    compact::headline,
    core::{
        Seq,
        context::{Context, Segment, SegmentBody},
    },
};
use serde_json::{Value, json};

use super::{
    context::{make_view, segment_json},
    output::{BOLD, CliOutput, DIM, NOTE},
    request_source::ViewArgs,
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
pub(crate) struct DiffArgs {
    /// Session or file to compare.
    #[arg(value_name = "SESSION|FILE")]
    source: String,

    /// First turn: its number, or its id. With --against, the turn at which the policies are compared; by
    /// default now.
    #[arg(required_unless_present = "against")]
    from: Option<String>,

    /// Second turn; by default, what the model would see now.
    to: Option<String>,

    #[command(flatten)]
    view: ViewArgs,

    /// Compare with what this policy would send at the same turn.
    #[arg(long, value_name = "POLICY", conflicts_with = "to")]
    against: Option<String>,
}

/// Change of a segment between two contexts.
enum SegmentChange<'a> {
    Same,
    Added(&'a Segment),
    Gone(&'a Segment),
    Changed(&'a Segment, &'a Segment),
}

pub(crate) fn run(args: &DiffArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let (_, before) = make_view(&args.source, args.from.as_deref(), &args.view, store)?;
    let (_, after) = match &args.against {
        Some(policy) => {
            let other = ViewArgs { policy: Some(policy.clone()), ..args.view.clone() };
            make_view(&args.source, args.from.as_deref(), &other, store)?
        }
        None => make_view(&args.source, args.to.as_deref(), &args.view, store)?,
    };
    let changes = changes(&before.context, &after.context);
    let same = changes.iter().filter(|change| matches!(change, SegmentChange::Same)).count();
    if out.is_json() {
        for change in &changes {
            let (what, before, after) = match change {
                SegmentChange::Same => continue,
                SegmentChange::Added(segment) => ("added", None, Some(segment)),
                SegmentChange::Gone(segment) => ("gone", Some(segment), None),
                SegmentChange::Changed(before, after) => ("changed", Some(before), Some(after)),
            };
            let side =
                |segment: Option<&&Segment>| segment.map_or(Value::Null, |segment| segment_json(segment));
            out.object(&json!({ "change": what, "before": side(before), "after": side(after) }))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!(
        "{BOLD}{} → {} tokens{BOLD:#} {DIM}· {} the same{DIM:#}",
        text_format::tokens(before.context.tokens()),
        text_format::tokens(after.context.tokens()),
        text_format::count(same as u64, "segment"),
    ))?;
    for change in &changes {
        match change {
            SegmentChange::Same => {}
            SegmentChange::Added(segment) => out.line(format_args!("+ {}", line(segment)))?,
            SegmentChange::Gone(segment) => out.line(format_args!("{DIM}- {}{DIM:#}", line(segment)))?,
            SegmentChange::Changed(before, after) => out.line(format_args!(
                "{NOTE}~ {:?} → {:?}{NOTE:#} {}",
                before.fidelity(),
                after.fidelity(),
                line(after)
            ))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(segment: &Segment) -> String {
    let words = text_format::one_line(&headline(segment), text_format::width().saturating_sub(30));
    format!("turn {:<4} {:>6}  {words}", segment.turn() + 1, text_format::tokens(segment.tokens()))
}

fn changes<'a>(before: &'a Context, after: &'a Context) -> Vec<SegmentChange<'a>> {
    let mut old: BTreeMap<_, &Segment> =
        before.segments().iter().map(|segment| (key(segment), segment)).collect();
    let mut changes: Vec<SegmentChange<'a>> = after
        .segments()
        .iter()
        .map(|segment| match old.remove(&key(segment)) {
            None => SegmentChange::Added(segment),
            Some(was) if shows_the_same(was, segment) => SegmentChange::Same,
            Some(was) => SegmentChange::Changed(was, segment),
        })
        .collect();
    changes.extend(old.into_values().map(SegmentChange::Gone));
    changes
}

/// Returns true if two segments show the same text, even if they come from different events.
fn shows_the_same(one: &Segment, other: &Segment) -> bool {
    let said = match (one.body(), other.body()) {
        (SegmentBody::Prefix(one), SegmentBody::Prefix(other))
        | (SegmentBody::Instruction(one), SegmentBody::Instruction(other))
        | (SegmentBody::Summary(one), SegmentBody::Summary(other)) => one.event.fact == other.event.fact,
        (SegmentBody::Carried(one), SegmentBody::Carried(other)) => {
            one.event.raw.json == other.event.raw.json
        }
        (SegmentBody::Note(one), SegmentBody::Note(other)) => one.text == other.text,
        (SegmentBody::User { .. }, SegmentBody::User { .. }) => one.shown() == other.shown(),
        (one, other) => one == other,
    };
    said && one.fidelity() == other.fidelity()
}

/// The event and the part of it that a segment shows.
fn key(segment: &Segment) -> (Option<Seq>, usize) {
    let part = match segment.body() {
        SegmentBody::Answer { part, .. } | SegmentBody::Exchange { part, .. } => part + 1,
        SegmentBody::Prefix(_)
        | SegmentBody::Instruction(_)
        | SegmentBody::User { .. }
        | SegmentBody::Carried(_)
        | SegmentBody::Summary(_)
        | SegmentBody::Note(_) => 0,
    };
    (segment.stands_for().first(), part)
}

#[cfg(test)]
mod tests {
    use epitome::{
        compact,
        core::{
            context::{EventNaming, Fidelity, SegmentEdit},
            meter::{Meter, TokenOverhead},
            profile::Tokenizer,
        },
        wire::Format,
    };

    use super::*;

    fn context(system: &str) -> Context {
        let request =
            json!({"system": system, "messages": [{"role": "user", "content": "one two three four five"}]});
        let events = Format::Anthropic.decode_request(&request.to_string()).expect("a request");
        let meter = Meter::new(Tokenizer::O200k.counter(), TokenOverhead::default());
        compact::context(&compact::line(events), meter, EventNaming::Messages)
    }

    fn changed(before: &Context, after: &Context) -> usize {
        assert_eq!(before.tokens(), after.tokens(), "counts tell nothing here");
        changes(before, after).iter().filter(|change| !matches!(change, SegmentChange::Same)).count()
    }

    #[test]
    fn a_change_of_equal_size_is_a_change() {
        assert_eq!(changed(&context("Say yes."), &context("Say yes.")), 0);
        assert_eq!(changed(&context("Say yes."), &context("Ask yes.")), 1);
        let stub = |words: &str| {
            context("Say yes.").edit("test", |_, segment| {
                if segment.is_user() {
                    SegmentEdit::line(words.to_owned(), Fidelity::Stub)
                } else {
                    SegmentEdit::Keep
                }
            })
        };
        assert_eq!(changed(&stub("gone"), &stub("gone")), 0);
        assert_eq!(changed(&stub("gone"), &stub("left")), 1);
    }
}
