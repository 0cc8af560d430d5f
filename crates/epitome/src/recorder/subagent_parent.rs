//! Search for the call that started a subagent.

use epitome_core::{EventId, Fact, LoggedEvent, Seq, id::CallId};
use epitome_store::{Store, StoreError, ThreadStart, records::ThreadRow};

/// Number of the parent's last events that are searched.
const SEARCHED_PARENT_EVENTS: u64 = 64;

/// Number of the subagent's first letters that must be in the call.
const MATCHED_PROMPT_CHARS: usize = 80;

/// Origin of a subagent of `parent`, whose first words are `words`: the newest call whose arguments contain them, or
/// the only call that waits for its result.
pub(super) fn start(
    store: &dyn Store,
    parent: &ThreadRow,
    words: Option<&str>,
) -> Result<ThreadStart, StoreError> {
    let from = Seq(parent.head.seq.0.saturating_sub(SEARCHED_PARENT_EVENTS) + 1);
    let events =
        store.read(parent.id, from, usize::try_from(SEARCHED_PARENT_EVENTS).unwrap_or(usize::MAX))?;
    let (by, call) = caller(&events, words).unzip();
    // The answer that made the call may not be recorded yet.
    let by = by.or_else(|| events.last().map(|logged| logged.id));
    Ok(ThreadStart::Spawned { by, call })
}

fn caller(events: &[LoggedEvent], words: Option<&str>) -> Option<(EventId, CallId)> {
    let mut open: Vec<(EventId, CallId, &str)> = Vec::new();
    for logged in events {
        if let Fact::ToolReturned { results, .. } = &logged.event.fact {
            open.retain(|(_, call, _)| results.iter().all(|result| result.call != *call));
        }
        open.extend(
            logged.event.fact.calls().map(|call| (logged.id, call.id.clone(), call.arguments.as_str())),
        );
    }
    let said = words.map(beginning).filter(|words| !words.is_empty());
    let holds = |arguments: &str| said.as_ref().is_some_and(|said| beginning_in(arguments, said));
    let named = open.iter().rev().find(|(_, _, arguments)| holds(arguments));
    let only = (open.len() == 1).then(|| open.first()).flatten();
    named.or(only).map(|(by, call, _)| (*by, call.clone()))
}

/// The first letters and digits, which no quoting changes.
fn beginning(words: &str) -> String {
    words.chars().filter(|letter| letter.is_alphanumeric()).take(MATCHED_PROMPT_CHARS).collect()
}

fn beginning_in(arguments: &str, said: &str) -> bool {
    // Escapes such as `\n` leave a letter behind, so the arguments are parsed.
    let plain = serde_json::from_str::<serde_json::Value>(arguments).ok();
    let mut letters = String::new();
    match &plain {
        Some(value) => gather(value, &mut letters),
        None => letters.extend(arguments.chars().filter(|letter| letter.is_alphanumeric())),
    }
    letters.contains(said)
}

fn gather(value: &serde_json::Value, letters: &mut String) {
    match value {
        serde_json::Value::String(text) => {
            letters.extend(text.chars().filter(|letter| letter.is_alphanumeric()));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| gather(value, letters)),
        serde_json::Value::Object(members) => members.values().for_each(|value| gather(value, letters)),
        _ => {}
    }
}
