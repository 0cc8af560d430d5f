//! Plans and their steps, as agents write them down.

use serde_json::value::RawValue;

use super::{
    TodoItem, TodoState, ToolEffect,
    arguments::{CallArguments, fields, text},
    call_output::CallOutput,
    cut,
};

/// The most steps of one plan.
const MOST: usize = 256;

/// The longest step.
const LONGEST: usize = 512;

/// A whole plan.
pub(super) fn plan_effect(arguments: &CallArguments<'_>) -> Option<ToolEffect> {
    let list = arguments.elements(&["todos", "plan", "tasklist", "tasks", "steps", "items", "todolist"]);
    let steps: Vec<TodoItem> = if list.is_empty() {
        checklist(&arguments.long(&["todos", "plan", "todolist", "content"]).unwrap_or_default())
    } else {
        list.into_iter().filter_map(step).collect()
    };
    (!steps.is_empty()).then_some(ToolEffect::Planned { steps })
}

/// One step of a plan that is kept step by step, or all of them where they are listed.
pub(super) fn step_effects(
    arguments: &CallArguments<'_>,
    outcome: Option<&CallOutput<'_>>,
) -> Vec<ToolEffect> {
    let said = outcome.map(|outcome| outcome.body.as_ref()).unwrap_or_default();
    let text = arguments.short(&["subject", "title", "content"]).map(|text| cut(text.trim(), LONGEST));
    let state = arguments.short(&["status", "state"]).and_then(|word| state(&word));
    let id = || said.strip_prefix("Task #")?.split_once(' ').map(|(id, _)| cut(id, LONGEST));
    let id = arguments.short(&["taskid", "id"]).or_else(id);
    if text.is_none() && state.is_none() {
        // What was listed stands as `#1 [completed] what is to be done`.
        return said.lines().filter_map(listed).take(MOST).collect();
    }
    let state = state.or(text.is_some().then_some(TodoState::Open));
    vec![ToolEffect::Stepped { id, text, state }]
}

fn step(json: &RawValue) -> Option<TodoItem> {
    const NAMES: [&str; 7] = ["content", "step", "title", "description", "text", "task", "subject"];
    if let Some(text) = text(json) {
        return todo(&text, TodoState::Open);
    }
    let fields = fields(json);
    let first = |names: &[&str]| names.iter().find_map(|name| text(fields.get(*name)?));
    let is_done =
        ["done", "completed"].iter().any(|name| fields.get(*name).is_some_and(|json| json.get() == "true"));
    let told = first(&["status", "state"]).and_then(|word| state(&word));
    let state = told.unwrap_or(if is_done { TodoState::Done } else { TodoState::Open });
    todo(&first(&NAMES)?, state)
}

fn todo(text: &str, state: TodoState) -> Option<TodoItem> {
    let text = text.trim();
    (!text.is_empty()).then(|| TodoItem { text: cut(text, LONGEST), state })
}

/// A list with boxes: `- [x] done`.
fn checklist(text: &str) -> Vec<TodoItem> {
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
fn listed(line: &str) -> Option<ToolEffect> {
    let (id, rest) = line.trim_start().strip_prefix('#')?.split_once(" [")?;
    let (word, text) = rest.split_once(']')?;
    let TodoItem { text, state } = todo(text, state(word)?)?;
    Some(ToolEffect::Stepped { id: Some(cut(id, LONGEST)), text: Some(text), state: Some(state) })
}

fn state(word: &str) -> Option<TodoState> {
    match word.trim().replace('-', "_").as_str() {
        "pending" | "open" | "todo" | "not_started" => Some(TodoState::Open),
        "in_progress" | "active" | "doing" | "started" => Some(TodoState::Active),
        "completed" | "complete" | "done" | "finished" => Some(TodoState::Done),
        "cancelled" | "canceled" | "deleted" | "dropped" | "skipped" => Some(TodoState::Dropped),
        _ => None,
    }
}
