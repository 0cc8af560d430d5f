//! Responses' events: a call is an output item, known by its name when it is added, and repeated in the last event.

use crate::recall_tool::{
    body_edit::rewrite_members,
    is_recall,
    splice_state::{AnswerSplice, EndReason, EventHandling, SpliceState},
    sse_frames,
    stream::error,
    unstreamed::{AnswerCalls, both, without_elements},
};
use crate::{
    format::Format,
    json::{self, Json, quote},
    openai_responses::CLIENT_CALL_KINDS,
};

/// Largest beginning of a response that is kept, to be repeated if the response fails.
const MAX_BEGINNING_BYTES: usize = 1 << 20;

/// State of a Responses stream.
#[derive(Debug, Default)]
pub(crate) struct ResponsesSplice {
    /// Sequence number of the last event that the client has.
    number: Option<u64>,
    /// Items that the client has of the answers before.
    before: Vec<String>,
    /// The response object from its beginning.
    begun: Option<String>,
}

/// Returns true if an item is a call of the recall tool.
pub(crate) fn is_recall_item(item: &Json<'_>) -> bool {
    item.text_at("type") == Some("function_call")
        && item.text_at("name").is_some_and(|name| is_recall(name, item.text_at("namespace")))
}

/// Returns true if an item is a call that the client answers.
pub(crate) fn is_call(item: &Json<'_>) -> bool {
    let kind = item.text_at("type");
    let is_call =
        CLIENT_CALL_KINDS.iter().any(|(call, _)| kind == Some(*call)) && item.text_at("call_id").is_some();
    is_call || kind == Some("mcp_approval_request")
}

/// Meaning of a response's status.
pub(crate) fn reason(response: Option<&Json<'_>>) -> EndReason {
    match response.and_then(|response| response.text_at("status")) {
        Some("completed") | None => EndReason::Done,
        Some(_) => EndReason::Other,
    }
}

impl AnswerSplice for ResponsesSplice {
    fn handle_event(&mut self, event: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        let kind = event.text_at("type").unwrap_or_default();
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                if tally.is_continued {
                    return EventHandling::dropped();
                }
                let response =
                    event.get("response").filter(|response| response.raw.len() <= MAX_BEGINNING_BYTES);
                if self.begun.is_none() {
                    self.begun = response.map(|response| response.raw.to_owned());
                }
            }
            "response.output_item.added" | "response.output_item.done" => item(event, tally),
            "response.completed" | "response.done" | "response.incomplete" | "response.failed" => {
                return self.ending(kind, event, tally);
            }
            _ => {}
        }
        if event.get("output_index").and_then(Json::as_count).is_some_and(|place| tally.hides(place)) {
            return EventHandling::held(event.raw);
        }
        self.moved(event, Vec::new(), tally)
    }

    fn remember(&mut self, answer: &str) {
        if let Ok(answer) = Json::parse(answer, "an answer") {
            let shown = answer.array_at("output").iter().filter(|item| !is_recall_item(item));
            self.before.extend(shown.map(|item| item.raw.to_owned()));
        }
    }

    fn fail(&mut self, message: &str) -> Vec<u8> {
        let begun = self.begun.as_deref().and_then(|begun| Json::parse(begun, "a response").ok());
        let number = self.number.map(|number| number.saturating_add(1));
        let number_said = number.map(|number| format!(r#","sequence_number":{number}"#)).unwrap_or_default();
        self.number = number;
        let why = format!(r#"{{"code":"server_error","message":{}}}"#, quote(message));
        let Some(begun) = begun.filter(Json::is_object) else {
            return sse_frames::event(Some("error"), &error(Format::OpenaiResponses, message));
        };
        let kept = rewrite_members(&begun, |key, value| {
            (!matches!(key, "status" | "error")).then(|| value.raw.to_owned())
        });
        let comma = if kept == "{}" { "" } else { "," };
        let kept = kept.trim_start_matches('{');
        let payload = format!(
            r#"{{"type":"response.failed"{number_said},"response":{{"status":"failed","error":{why}{comma}{kept}}}"#
        );
        sse_frames::event(Some("response.failed"), &payload)
    }
}

impl ResponsesSplice {
    /// Rewrites the last event, which repeats the whole response.
    fn ending(&mut self, kind: &str, event: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        let response = event.get("response");
        let output = response.and_then(|response| response.get("output"));
        let items = output.and_then(Json::as_array).unwrap_or_default();
        for (place, item) in (0..).zip(items) {
            // Not every server announces an item first.
            if tally.withholds_calls() && is_recall_item(item) {
                tally.hide(place);
            } else if is_call(item) {
                tally.has_others = true;
            }
        }
        let reason = match kind {
            "response.completed" | "response.done" => reason(response),
            _ => EndReason::Other,
        };
        if tally.end_answer(reason) {
            return EventHandling::held(event.raw);
        }
        // Some servers do not repeat the output.
        let retold = output.filter(|_| !items.is_empty() && tally.places.are_moved());
        let retold = retold.map(|output| {
            let shown = items.iter().filter(|item| !(tally.withholds_calls() && is_recall_item(item)));
            let all = self.before.iter().cloned().chain(shown.map(|item| item.raw.to_owned()));
            (output, json::list(all))
        });
        self.moved(event, retold.into_iter().collect(), tally)
    }

    /// Moves an event to the index and sequence number that the client has for it.
    fn moved(
        &mut self,
        event: &Json<'_>,
        edits: Vec<(&Json<'_>, String)>,
        tally: &mut SpliceState,
    ) -> EventHandling {
        let mut edits = edits;
        let count = |key: &str| event.get(key).and_then(|value| Some((value, value.as_count()?)));
        if let Some((index, place)) = count("output_index") {
            let given = tally.places.client_index(place);
            edits.extend((given != place).then(|| (index, given.to_string())));
        }
        if let Some((member, number)) = count("sequence_number") {
            let next = self.number.filter(|_| tally.places.are_moved()).map(|last| last.saturating_add(1));
            let given = next.unwrap_or(number);
            edits.extend((given != number).then(|| (member, given.to_string())));
            self.number = Some(given);
        }
        EventHandling::edited(event, &edits)
    }
}

/// Notes the kind of an announced item.
fn item(event: &Json<'_>, tally: &mut SpliceState) {
    let Some(item) = event.get("item") else { return };
    if tally.withholds_calls() && is_recall_item(item) {
        tally.hide(event.count_at("output_index"));
    } else if is_call(item) {
        tally.has_others = true;
    }
}

/// The calls of a whole answer.
pub(crate) fn calls(answer: &Json<'_>) -> AnswerCalls {
    let items = answer.array_at("output");
    AnswerCalls {
        ours: items.iter().any(is_recall_item),
        others: items.iter().any(|item| is_call(item) && !is_recall_item(item)),
        reason: reason(Some(answer)),
    }
}

/// A whole answer without calls of the tool.
pub(crate) fn without_recalls(answer: &Json<'_>) -> String {
    without_elements(answer, "output", is_recall_item)
}

/// Edits that put the items of one answer before those of the next.
pub(crate) fn joined_answers<'j>(first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)> {
    let output = last.get("output").zip(first.get("output"));
    output.map(|(old, new)| (old, both(new, old))).into_iter().collect()
}
