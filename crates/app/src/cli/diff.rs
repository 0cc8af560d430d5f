//! `diff`: differences between the model's views at two turns, or under two policies.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::{
    compact::headline,
    core::{
        Seq,
        context::{Body, Context, Segment},
    },
};
use serde_json::{Value, json};

use super::{
    context::{segment_json, view},
    open::Store,
    output::{BOLD, DIM, NOTE, Output},
    text,
    view::ViewArgs,
};

#[derive(ClapArgs)]
pub(crate) struct Args {
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
enum Change<'a> {
    Same,
    Added(&'a Segment),
    Gone(&'a Segment),
    Changed(&'a Segment, &'a Segment),
}

pub(crate) fn run(args: &Args, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let (_, before) = view(&args.source, args.from.as_deref(), &args.view, store)?;
    let (_, after) = match &args.against {
        Some(policy) => {
            let other = ViewArgs { policy: Some(policy.clone()), ..args.view.clone() };
            view(&args.source, args.from.as_deref(), &other, store)?
        }
        None => view(&args.source, args.to.as_deref(), &args.view, store)?,
    };
    let changes = changes(&before.context, &after.context);
    let same = changes.iter().filter(|change| matches!(change, Change::Same)).count();
    if out.is_json() {
        for change in &changes {
            let (what, before, after) = match change {
                Change::Same => continue,
                Change::Added(segment) => ("added", None, Some(segment)),
                Change::Gone(segment) => ("gone", Some(segment), None),
                Change::Changed(before, after) => ("changed", Some(before), Some(after)),
            };
            let side =
                |segment: Option<&&Segment>| segment.map_or(Value::Null, |segment| segment_json(segment));
            out.object(&json!({ "change": what, "before": side(before), "after": side(after) }))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!(
        "{BOLD}{} → {} tokens{BOLD:#} {DIM}· {} the same{DIM:#}",
        text::tokens(before.context.tokens()),
        text::tokens(after.context.tokens()),
        text::count(same as u64, "segment"),
    ))?;
    for change in &changes {
        match change {
            Change::Same => {}
            Change::Added(segment) => out.line(format_args!("+ {}", line(segment)))?,
            Change::Gone(segment) => out.line(format_args!("{DIM}- {}{DIM:#}", line(segment)))?,
            Change::Changed(before, after) => out.line(format_args!(
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
    let words = text::one_line(&headline(segment), text::width().saturating_sub(30));
    format!("turn {:<4} {:>6}  {words}", segment.turn() + 1, text::tokens(segment.tokens()))
}

fn changes<'a>(before: &'a Context, after: &'a Context) -> Vec<Change<'a>> {
    let mut old: BTreeMap<_, &Segment> =
        before.segments().iter().map(|segment| (key(segment), segment)).collect();
    let mut changes: Vec<Change<'a>> = after
        .segments()
        .iter()
        .map(|segment| match old.remove(&key(segment)) {
            None => Change::Added(segment),
            Some(was) if shows_the_same(was, segment) => Change::Same,
            Some(was) => Change::Changed(was, segment),
        })
        .collect();
    changes.extend(old.into_values().map(Change::Gone));
    changes
}

/// Returns true if two segments show the same text, even if they come from different events.
fn shows_the_same(one: &Segment, other: &Segment) -> bool {
    let said = match (one.body(), other.body()) {
        (Body::Prefix(one), Body::Prefix(other))
        | (Body::Instruction(one), Body::Instruction(other))
        | (Body::Summary(one), Body::Summary(other)) => one.event.fact == other.event.fact,
        (Body::Carried(one), Body::Carried(other)) => one.event.raw.json == other.event.raw.json,
        (Body::Note(one), Body::Note(other)) => one.text == other.text,
        (Body::User { .. }, Body::User { .. }) => one.shown() == other.shown(),
        (one, other) => one == other,
    };
    said && one.fidelity() == other.fidelity()
}

/// The event and the part of it that a segment shows.
fn key(segment: &Segment) -> (Option<Seq>, usize) {
    let part = match segment.body() {
        Body::Answer { part, .. } | Body::Exchange { part, .. } => part + 1,
        Body::Prefix(_)
        | Body::Instruction(_)
        | Body::User { .. }
        | Body::Carried(_)
        | Body::Summary(_)
        | Body::Note(_) => 0,
    };
    (segment.stands_for().first(), part)
}

#[cfg(test)]
mod tests {
    use epitome::{
        compact,
        core::{
            context::{Edit, Fidelity, Names},
            meter::{Meter, Overhead},
            profile::Tokenizer,
        },
        wire::Format,
    };

    use super::*;

    fn context(system: &str) -> Context {
        let request =
            json!({"system": system, "messages": [{"role": "user", "content": "one two three four five"}]});
        let events = Format::Anthropic.decode_request(&request.to_string()).expect("a request");
        let meter = Meter::new(Tokenizer::O200k.counter(), Overhead::default());
        compact::context(&compact::line(events), meter, Names::Messages)
    }

    fn changed(before: &Context, after: &Context) -> usize {
        assert_eq!(before.tokens(), after.tokens(), "counts tell nothing here");
        changes(before, after).iter().filter(|change| !matches!(change, Change::Same)).count()
    }

    #[test]
    fn a_change_of_equal_size_is_a_change() {
        assert_eq!(changed(&context("Say yes."), &context("Say yes.")), 0);
        assert_eq!(changed(&context("Say yes."), &context("Ask yes.")), 1);
        let stub = |words: &str| {
            context("Say yes.").edit("test", |_, segment| {
                if segment.is_user() { Edit::line(words.to_owned(), Fidelity::Stub) } else { Edit::Keep }
            })
        };
        assert_eq!(changed(&stub("gone"), &stub("gone")), 0);
        assert_eq!(changed(&stub("gone"), &stub("left")), 1);
    }
}
