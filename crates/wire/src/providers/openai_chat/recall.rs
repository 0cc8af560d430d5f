//! Chat's chunks: a call is an entry of a delta, known by its name in its first piece.
//!
//! One chunk may hold a piece of a withheld call, a piece of another call, a text, and the end. So a chunk may be
//! shown in part and withheld in part.

use std::collections::BTreeSet;

use crate::json::{self, Json};
use crate::recall_tool::{
    body_edit::rewrite_members,
    client_indices::MAX_INDICES,
    is_recall,
    splice_state::{EndReason, EventHandling, SpliceState, VisiblePart},
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

impl ChatSplice {
    pub(crate) fn handle_event(&mut self, chunk: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
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

    /// Prepares for the next answer.
    pub(crate) fn go_on(&mut self) {
        self.shown.clear();
        self.newest = None;
        if self.seam == TextBoundary::Within {
            self.seam = TextBoundary::Before;
        }
    }

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
