//! Chat's chunks: a call is an entry of a delta, known by its name in its first piece.
//!
//! One chunk may hold a piece of a withheld call, a piece of another call, a text, and the end. So a chunk may be
//! shown in part and withheld in part.

use std::collections::BTreeSet;

use crate::recall_tool::{
    body_edit::rewrite_members,
    client_indices::MAX_INDICES,
    is_recall,
    splice_state::{AnswerSplice, EndReason, EventHandling, SpliceState, VisiblePart},
    sse_frames,
    stream::error,
    unstreamed::{AnswerCalls, both, kept_elements, taken},
};
use crate::{
    format::Format,
    json::{self, Json, JsonValue, quote},
};

/// State of a Chat stream.
#[derive(Debug, Default)]
pub(crate) struct ChatSplice {
    /// Id and time of the first answer, as they are written: for the client all chunks are of one answer.
    named: Vec<(&'static str, String)>,
    /// Calls that the client has, by the provider's indices.
    shown: BTreeSet<u64>,
    /// Index of the newest call: servers may skip indices.
    newest: Option<u64>,
    seam: TextBoundary,
}

/// Seam between the text of one answer and that of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextBoundary {
    /// No text stands before, or it ends in white space.
    #[default]
    Open,
    /// Text of the same answer.
    Within,
    /// The next text begins another answer.
    Before,
}

/// Returns true if a call is one of the recall tool.
pub(crate) fn is_recall_delta(call: &Json<'_>) -> bool {
    let name = call.get("function").and_then(|function| function.text_at("name"));
    name.is_some_and(|name| is_recall(name, None))
}

/// Meaning of a finish reason.
pub(crate) fn reason(finish_reason: &str) -> EndReason {
    match finish_reason {
        // Some servers report `stop` and call tools.
        "tool_calls" | "function_call" | "stop" | "eos" => EndReason::Done,
        _ => EndReason::Other,
    }
}

/// Separator between the texts of two answers that are one for the client, as it is written in a string.
pub(crate) const TEXT_SEPARATOR: &str = "\\n\\n";

impl AnswerSplice for ChatSplice {
    fn handle_event(&mut self, chunk: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        let edits = self.names(chunk, tally);
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return EventHandling::passed();
        }
        // Only the first choice is an answer that can be continued.
        let choice = chunk.array_at("choices").iter().find(|choice| choice.count_at("index") == 0);
        match choice {
            Some(choice) => self.choice(chunk, choice, edits, tally),
            None if tally.is_withheld() => EventHandling::held(chunk.raw),
            None => EventHandling::edited(chunk, &edits),
        }
    }

    fn go_on(&mut self) {
        self.shown.clear();
        self.newest = None;
        if self.seam == TextBoundary::Within {
            self.seam = TextBoundary::Before;
        }
    }

    fn ends_with_done(&self) -> bool {
        true
    }

    fn fail(&mut self, message: &str) -> Vec<u8> {
        sse_frames::event(None, &error(Format::OpenaiChat, message))
    }
}

impl ChatSplice {
    /// Changes that give a chunk the id of the first answer.
    fn names<'c>(&mut self, chunk: &'c Json<'c>, tally: &SpliceState) -> Vec<(&'c Json<'c>, String)> {
        let mut edits = Vec::new();
        for key in ["id", "created"] {
            let Some(value) = chunk.get(key) else { continue };
            let known = self.named.iter().find(|(name, _)| *name == key);
            match known {
                Some((_, known)) if tally.is_continued && known != value.raw => {
                    edits.push((value, known.clone()));
                }
                None if !tally.is_continued => self.named.push((key, value.raw.to_owned())),
                Some(_) | None => {}
            }
        }
        edits
    }

    fn choice<'c>(
        &mut self,
        chunk: &'c Json<'c>,
        choice: &'c Json<'c>,
        mut edits: Vec<(&'c Json<'c>, String)>,
        tally: &mut SpliceState,
    ) -> EventHandling {
        if tally.is_withheld() {
            return EventHandling::held(chunk.raw);
        }
        let delta = choice.get("delta").filter(|delta| delta.is_object());
        let calls = delta.map(|delta| self.calls(delta, tally)).unwrap_or_default();
        let is_said = |finish: &&Json<'_>| finish.as_text().is_some_and(|reason| !reason.is_empty());
        let finish = choice.get("finish_reason").filter(is_said);
        let is_end_held =
            finish.and_then(Json::as_text).is_some_and(|finish| tally.end_answer(reason(finish)));
        let held = (is_end_held || !calls.held.is_empty()).then(|| {
            let delta = delta.map(|delta| (delta, calls.left()));
            let finish = finish.filter(|_| !is_end_held).map(|finish| (finish, "null".to_owned()));
            replaced(chunk, delta.into_iter().chain(finish))
        });
        let remade = delta.map(|delta| (delta, self.delta(delta, &calls, tally)));
        let is_telling = remade.as_ref().is_some_and(|(_, remade)| remade.is_telling);
        let is_changed = remade.as_ref().is_some_and(|(_, remade)| remade.changes.is_some());
        let shows_end = finish.is_some() && !is_end_held;
        if (held.is_some() || is_changed) && !is_telling && !shows_end {
            return EventHandling { shown: VisiblePart::Not, held };
        }
        edits.extend(finish.filter(|_| is_end_held).map(|finish| (finish, "null".to_owned())));
        edits.extend(remade.and_then(|(delta, remade)| Some((delta, remade.changes?))));
        EventHandling { held, ..EventHandling::edited(chunk, &edits) }
    }

    /// Sorts the pieces of calls in a delta into shown and withheld ones.
    fn calls(&mut self, delta: &Json<'_>, tally: &mut SpliceState) -> DeltaCalls {
        let mut calls = DeltaCalls::default();
        for piece in delta.array_at("tool_calls") {
            let index = piece.get("index").filter(|index| index.as_count().is_some());
            let place = match (index.and_then(Json::as_count), self.newest) {
                (Some(place), _) => place,
                (None, Some(newest)) if piece.text_at("id").is_none() => newest,
                (None, Some(newest)) => newest.saturating_add(1),
                (None, None) => 0,
            };
            self.newest = Some(self.newest.unwrap_or(0).max(place));
            let is_new = !self.shown.contains(&place) && !tally.hides(place);
            if is_new && tally.withholds_calls() && is_recall_delta(piece) {
                tally.hide(place);
            } else if is_new {
                tally.has_others = true;
                if self.shown.len() < MAX_INDICES {
                    self.shown.insert(place);
                }
            }
            if tally.hides(place) {
                calls.held.push(piece.raw.to_owned());
                continue;
            }
            let given = tally.places.client_index(place);
            calls.shown.push(match index.filter(|_| given != place) {
                Some(index) => json::replace_members(piece, &[(index, &given.to_string())]),
                None => piece.raw.to_owned(),
            });
            calls.are_moved |= given != place;
        }
        tally.has_others |= delta.get("function_call").is_some_and(|call| !call.is_null());
        calls
    }

    /// Writes a delta as the client sees it.
    fn delta(&mut self, delta: &Json<'_>, calls: &DeltaCalls, tally: &SpliceState) -> ClientDelta {
        let text =
            delta.get("content").filter(|content| content.as_text().is_some_and(|text| !text.is_empty()));
        let gapped = text.and_then(|content| self.text(content));
        let repeats_role = tally.is_continued && delta.get("role").is_some();
        let is_changed = gapped.is_some() || repeats_role || calls.are_moved || !calls.held.is_empty();
        let mut is_telling = false;
        let changes = rewrite_members(delta, |key, value| {
            let written = match key {
                // Only the first answer sends it: some clients would concatenate the two words.
                "role" if tally.is_continued => return None,
                "tool_calls" if !calls.held.is_empty() || calls.are_moved => {
                    (!calls.shown.is_empty()).then(|| json::list(calls.shown.iter().cloned()))?
                }
                "content" => gapped.clone().unwrap_or_else(|| value.raw.to_owned()),
                _ => value.raw.to_owned(),
            };
            is_telling |= !value.is_null();
            Some(written)
        });
        ClientDelta { changes: is_changed.then_some(changes), is_telling }
    }

    /// Writes a piece of text, set apart if it begins an answer after another.
    fn text(&mut self, content: &Json<'_>) -> Option<String> {
        let text = content.as_text().unwrap_or_default();
        let is_apart = self.seam != TextBoundary::Before || text.starts_with(char::is_whitespace);
        self.seam =
            if text.ends_with(char::is_whitespace) { TextBoundary::Open } else { TextBoundary::Within };
        (!is_apart).then(|| format!("\"{TEXT_SEPARATOR}{}", content.raw.get(1..).unwrap_or("\"")))
    }
}

/// The pieces of calls in a delta.
#[derive(Debug, Default)]
struct DeltaCalls {
    shown: Vec<String>,
    held: Vec<String>,
    /// True if the shown ones have other indices for the client.
    are_moved: bool,
}

impl DeltaCalls {
    /// Writes the delta of the withheld pieces.
    fn left(&self) -> String {
        match self.held.as_slice() {
            [] => "{}".to_owned(),
            held => format!(r#"{{"tool_calls":{}}}"#, json::list(held.iter().cloned())),
        }
    }
}

fn replaced<'c>(chunk: &Json<'_>, edits: impl Iterator<Item = (&'c Json<'c>, String)>) -> String {
    let edits: Vec<_> = edits.collect();
    let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
    json::replace_members(chunk, &edits)
}

/// A delta as the client sees it.
struct ClientDelta {
    /// `None` if it is unchanged.
    changes: Option<String>,
    /// True if it has any content.
    is_telling: bool,
}

/// The first choice of a Chat answer.
pub(crate) fn first_choice<'j>(answer: &'j Json<'_>) -> Option<&'j Json<'j>> {
    answer.array_at("choices").iter().find(|choice| choice.count_at("index") == 0)
}

/// The calls of a whole answer.
pub(crate) fn calls(answer: &Json<'_>) -> AnswerCalls {
    let choice = first_choice(answer);
    let message = choice.and_then(|choice| choice.get("message"));
    let calls = message.map(|message| message.array_at("tool_calls")).unwrap_or_default();
    let called = message.and_then(|message| message.get("function_call"));
    let finish = choice.and_then(|choice| choice.text_at("finish_reason"));
    AnswerCalls {
        ours: calls.iter().any(is_recall_delta),
        others: called.is_some_and(|called| !called.is_null())
            || calls.iter().any(|call| !is_recall_delta(call)),
        reason: finish.map_or(EndReason::Done, reason),
    }
}

/// A whole answer without calls of the tool.
pub(crate) fn without_recalls(answer: &Json<'_>) -> String {
    let Some(message) = first_choice(answer).and_then(|choice| choice.get("message")) else {
        return answer.raw.to_owned();
    };
    let kept = rewrite_members(message, |key, value| match key {
        "tool_calls" => Some(kept_elements(value, is_recall_delta)).filter(|calls| calls != "[]"),
        _ => Some(value.raw.to_owned()),
    });
    json::replace_members(answer, &[(message, &kept)])
}

/// Edits that put the message of one answer before that of the next.
pub(crate) fn joined_answers<'j>(first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)> {
    let old = first_choice(last).and_then(|choice| choice.get("message"));
    let before = first_choice(first).and_then(|choice| choice.get("message"));
    let message = old.zip(before).map(|(old, before)| (old, merged(before, old)));
    let names = ["id", "created"].into_iter().filter_map(|key| taken(key, first, last));
    names.chain(message).collect()
}

/// Joins two Chat messages as a client would add up a stream: texts and lists are concatenated, and of other members
/// the last value counts.
fn merged(first: &Json<'_>, last: &Json<'_>) -> String {
    let said = |value: &&Json<'_>| !value.is_null();
    let older = first.members().iter().map(|(key, value)| {
        let value = match last.get(key).filter(said) {
            Some(newer) => follow(key, value, newer),
            None => value.raw.to_owned(),
        };
        (&**key, value)
    });
    let newer = last.members().iter().filter(|(key, _)| first.get(key).is_none());
    json::object(older.chain(newer.map(|(key, value)| (&**key, value.raw.to_owned()))))
}

fn follow(key: &str, first: &Json<'_>, last: &Json<'_>) -> String {
    match (&first.value, &last.value) {
        (JsonValue::String(one), JsonValue::String(other)) => match key {
            "content" | "reasoning_content" | "reasoning" | "refusal" => {
                let is_apart = one.is_empty()
                    || one.ends_with(char::is_whitespace)
                    || other.starts_with(char::is_whitespace);
                let is_text = key == "content" && !other.is_empty();
                let gap = if is_text && !is_apart { TEXT_SEPARATOR } else { "" };
                let one = first.raw.get(..first.raw.len() - 1).unwrap_or("\"");
                format!("{one}{gap}{}", last.raw.get(1..).unwrap_or("\""))
            }
            "role" => first.raw.to_owned(),
            _ => last.raw.to_owned(),
        },
        (JsonValue::Array(_), JsonValue::Array(_)) => both(first, last),
        (JsonValue::Array(_), JsonValue::String(_)) | (JsonValue::String(_), JsonValue::Array(_))
            if key == "content" =>
        {
            let parts = [first, last].into_iter().flat_map(parts);
            json::list(parts)
        }
        _ => last.raw.to_owned(),
    }
}

/// A Chat content as its parts.
fn parts(content: &Json<'_>) -> Vec<String> {
    match (content.as_text(), content.as_array()) {
        (Some(text), _) if !text.is_empty() => {
            vec![format!(r#"{{"type":"text","text":{}}}"#, quote(text))]
        }
        (_, Some(parts)) => parts.iter().map(|part| part.raw.to_owned()).collect(),
        _ => Vec::new(),
    }
}
