//! `diff`: what the model saw at one turn and no longer, or only, at another.

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
    /// Its id, the start or the last eight digits of it, or its title.
    session: String,

    /// The first turn: its number, or its id.
    from: String,

    /// The second turn; by default, what the model would see now.
    to: Option<String>,

    #[command(flatten)]
    view: ViewArgs,
}

/// What became of a segment between two contexts.
enum Change<'a> {
    Same,
    Added(&'a Segment),
    Gone(&'a Segment),
    Changed(&'a Segment, &'a Segment),
}

pub(crate) fn run(args: &Args, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let (_, before) = view(&args.session, Some(&args.from), &args.view, store)?;
    let (_, after) = view(&args.session, args.to.as_deref(), &args.view, store)?;
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
            Some(was) if was.fidelity() == segment.fidelity() && was.tokens() == segment.tokens() => {
                Change::Same
            }
            Some(was) => Change::Changed(was, segment),
        })
        .collect();
    changes.extend(old.into_values().map(Change::Gone));
    changes
}

/// What a segment is about: the event and the part of it that it shows.
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
