//! Gemini's events: a call is a whole part, known by its function's name.
//!
//! One event may hold the withheld call, another call, a text, and the end. So an event may be shown in part and
//! withheld in part.

use super::kind;
use crate::{
    format::Format,
    json::{self, Json},
    recall_tool::{
        body_edit::rewrite_members,
        is_recall,
        splice_state::{AnswerSplice, EndReason, EventHandling, SpliceState, VisiblePart},
        sse_frames,
        stream::error,
        unstreamed::{AnswerCalls, both, kept_elements, taken},
    },
};

/// State of a Gemini stream.
#[derive(Debug, Default)]
pub(super) struct GeminiSplice {
    /// Id of the first answer, as it is written: for the client all events are of one answer.
    id: Option<String>,
    /// Number of parts so far.
    parts: u64,
}

impl AnswerSplice for GeminiSplice {
    fn handle_event(&mut self, chunk: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return EventHandling::passed();
        }
        let mut edits: Vec<(&Json<'_>, String)> = Vec::new();
        match (chunk.get("responseId"), &self.id) {
            (Some(id), Some(known)) if tally.is_continued && known != id.raw => {
                edits.push((id, known.clone()));
            }
            (Some(id), None) => self.id = Some(id.raw.to_owned()),
            _ => {}
        }
        if tally.is_withheld() {
            return EventHandling::held(chunk.raw);
        }
        let Some(candidate) = first_candidate(chunk) else { return EventHandling::edited(chunk, &edits) };
        let parts = candidate.get("content").and_then(|content| content.get("parts"));
        let (shown, held) = self.sorted(parts, tally);
        let finish = candidate.get("finishReason").filter(|finish| !finish.is_null());
        let reason = finish.and_then(Json::as_text).map(reason);
        let is_end_held = reason.is_some_and(|reason| tally.end_answer(reason));
        if held.is_empty() && !is_end_held {
            return EventHandling::edited(chunk, &edits);
        }
        let list = |parts: &[&str]| json::list(parts.iter().map(|part| (*part).to_owned()));
        let kept = match parts {
            Some(parts) => json::replace_members(chunk, &[(parts, &list(&held))]),
            None => chunk.raw.to_owned(),
        };
        if shown.is_empty() && (finish.is_none() || is_end_held) {
            return EventHandling { shown: VisiblePart::Not, held: Some(kept) };
        }
        edits.extend(parts.map(|parts| (parts, list(&shown))));
        if !is_end_held {
            // Its end is shown, so what is held is only the calls.
            return EventHandling { held: Some(kept), ..EventHandling::edited(chunk, &edits) };
        }
        let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
        let text = json::replace_members(chunk, &edits);
        EventHandling { shown: VisiblePart::As(without_finish(&text)), held: Some(kept) }
    }

    fn go_on(&mut self) {
        self.parts = 0;
    }

    fn fail(&mut self, message: &str) -> Vec<u8> {
        sse_frames::event(None, &error(Format::Gemini, message))
    }
}

impl GeminiSplice {
    /// Sorts the parts of an event into shown and withheld ones.
    fn sorted<'j>(
        &mut self,
        parts: Option<&'j Json<'_>>,
        tally: &mut SpliceState,
    ) -> (Vec<&'j str>, Vec<&'j str>) {
        let (mut shown, mut held) = (Vec::new(), Vec::new());
        for part in parts.and_then(Json::as_array).unwrap_or_default() {
            let place = self.parts;
            self.parts = self.parts.saturating_add(1);
            if tally.withholds_calls() && is_recall_part(part) {
                tally.hide(place);
                held.push(part.raw);
            } else {
                tally.has_others |= is_call(part);
                shown.push(part.raw);
            }
        }
        (shown, held)
    }
}

/// An event without the reason its answer ended and without the usage, which belong to the withheld end.
fn without_finish(chunk: &str) -> String {
    let Ok(chunk) = Json::parse(chunk, "a streamed event") else { return chunk.to_owned() };
    rewrite_members(&chunk, |key, value| match (key, value.as_array()) {
        ("candidates", Some(candidates)) => Some(json::list(candidates.iter().map(|candidate| {
            rewrite_members(candidate, |key, value| {
                (!matches!(key, "finishReason" | "finishMessage")).then(|| value.raw.to_owned())
            })
        }))),
        _ => Some(value.raw.to_owned()),
    })
}

/// The candidate that is the answer.
fn first_candidate<'j>(answer: &'j Json<'_>) -> Option<&'j Json<'j>> {
    answer.array_at("candidates").iter().find(|candidate| candidate.count_at("index") == 0)
}

fn is_call(part: &Json<'_>) -> bool {
    kind(part) == "functionCall"
}

fn is_recall_part(part: &Json<'_>) -> bool {
    let name = part.get("functionCall").and_then(|call| call.text_at("name"));
    name.is_some_and(|name| is_recall(name, None))
}

fn reason(finish_reason: &str) -> EndReason {
    match finish_reason {
        "STOP" | "FINISH_REASON_UNSPECIFIED" => EndReason::Done,
        _ => EndReason::Other,
    }
}

/// Returns true if a whole answer can be read for calls.
pub(super) fn is_answer(answer: &Json<'_>) -> bool {
    first_candidate(answer).is_some_and(|candidate| candidate.get("content").is_some())
}

/// The calls of a whole answer.
pub(super) fn calls(answer: &Json<'_>) -> AnswerCalls {
    let candidate = first_candidate(answer);
    let parts = candidate.and_then(|candidate| candidate.get("content"));
    let parts = parts.map(|content| content.array_at("parts")).unwrap_or_default();
    let finish = candidate.and_then(|candidate| candidate.text_at("finishReason"));
    AnswerCalls {
        ours: parts.iter().any(is_recall_part),
        others: parts.iter().any(|part| is_call(part) && !is_recall_part(part)),
        reason: finish.map_or(EndReason::Done, reason),
    }
}

/// A whole answer without calls of the tool.
pub(super) fn without_recalls(answer: &Json<'_>) -> String {
    let Some(parts) = answer_parts(answer) else { return answer.raw.to_owned() };
    json::replace_members(answer, &[(parts, &kept_elements(parts, is_recall_part))])
}

/// Edits that put the parts of one answer before those of the next.
pub(super) fn joined_answers<'j>(first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)> {
    let parts = answer_parts(last).zip(answer_parts(first)).map(|(old, new)| (old, both(new, old)));
    taken("responseId", first, last).into_iter().chain(parts).collect()
}

fn answer_parts<'j>(answer: &'j Json<'_>) -> Option<&'j Json<'j>> {
    first_candidate(answer)?.get("content")?.get("parts")
}
