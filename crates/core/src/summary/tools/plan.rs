//! Plans and their steps, as agents write them down.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;

use super::{Deed, Todo, TodoState, arguments::Arguments, cut, outcome::Outcome};

/// The most steps of one plan.
const MOST: usize = 256;

/// The longest step.
const LONGEST: usize = 512;

/// A whole plan.
pub(super) fn planned(arguments: &Arguments<'_>) -> Vec<Deed> {
    let names = ["todos", "plan", "tasklist", "tasks", "steps", "items", "todolist"];
    let list = names.iter().find_map(|name| {
        serde_json::from_str::<Vec<&RawValue>>(arguments.raw(name)?).ok().filter(|list| !list.is_empty())
    });
    let steps: Vec<Todo> = match list {
        Some(list) => list.into_iter().filter_map(step).take(MOST).collect(),
        None => checklist(&arguments.long(&["todos", "plan", "todolist", "markdown"]).unwrap_or_default()),
    };
    if steps.is_empty() { Vec::new() } else { vec![Deed::Planned { steps }] }
}

/// One step of a plan that is kept step by step, or all of them where they are listed.
pub(super) fn stepped(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let said = outcome.map(|outcome| outcome.body.as_ref()).unwrap_or_default();
    let text = arguments.short(&["subject", "title", "content"]).map(|text| cut(text.trim(), LONGEST));
    let state = arguments.short(&["status", "state"]).and_then(|word| state(&word));
    let id = arguments.short(&["taskid", "id"]).or_else(|| number(said.strip_prefix("Task #")?));
    if text.is_none() && state.is_none() {
        // What was listed stands as `#1 [completed] what is to be done`.
        return said.lines().filter_map(listed).take(MOST).collect();
    }
    let state = state.or(text.is_some().then_some(TodoState::Open));
    vec![Deed::Stepped { id, text, state }]
}

fn step(json: &RawValue) -> Option<Todo> {
    if let Ok(text) = serde_json::from_str::<String>(json.get()) {
        return todo(&text, TodoState::Open);
    }
    let object: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json.get()).ok()?;
    let text = |names: &[&str]| {
        names.iter().find_map(|name| serde_json::from_str::<String>(object.get(*name)?.get()).ok())
    };
    let done = object.get("done").or_else(|| object.get("completed"));
    let done = done.is_some_and(|json| json.get() == "true").then_some(TodoState::Done);
    let state = text(&["status", "state"]).and_then(|word| state(&word)).or(done);
    todo(
        &text(&["content", "step", "title", "description", "text", "task", "subject"])?,
        state.unwrap_or(TodoState::Open),
    )
}

fn todo(text: &str, state: TodoState) -> Option<Todo> {
    let text = text.trim();
    (!text.is_empty()).then(|| Todo { text: cut(text, LONGEST), state })
}

/// A list with boxes: `- [x] done`.
fn checklist(text: &str) -> Vec<Todo> {
    let steps = text.lines().filter_map(|line| {
        let line = line
            .trim_start_matches(|letter: char| letter.is_whitespace() || "-*0123456789.".contains(letter));
        let (mark, text) = line.strip_prefix('[')?.split_once(']')?;
        let state = match mark.trim() {
            "" => TodoState::Open,
            "x" | "X" => TodoState::Done,
            "-" => TodoState::Dropped,
            _ => TodoState::Active,
        };
        todo(text, state)
    });
    steps.take(MOST).collect()
}

/// A step as it is listed, by its number: whatever is said of it later names the number alone.
fn listed(line: &str) -> Option<Deed> {
    let (id, rest) = line.trim_start().strip_prefix('#')?.split_once(" [")?;
    let (word, text) = rest.split_once(']')?;
    let Todo { text, state } = todo(text, state(word)?)?;
    Some(Deed::Stepped { id: number(id), text: Some(text), state: Some(state) })
}

fn number(text: &str) -> Option<String> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).take(12).collect();
    (!digits.is_empty()).then_some(digits)
}

fn state(word: &str) -> Option<TodoState> {
    match word.trim() {
        "pending" | "open" | "todo" | "not_started" | "not-started" => Some(TodoState::Open),
        "in_progress" | "in-progress" | "active" | "doing" | "started" => Some(TodoState::Active),
        "completed" | "complete" | "done" | "finished" => Some(TodoState::Done),
        "cancelled" | "canceled" | "deleted" | "dropped" | "skipped" | "abandoned" => {
            Some(TodoState::Dropped)
        }
        _ => None,
    }
}
