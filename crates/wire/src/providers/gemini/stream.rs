//! Gemini's stream: every event is a response by itself, with the parts that are new.

use std::collections::BTreeMap;

use crate::{
    json::Json,
    response,
    stream::{
        AnswerAssembly, PayloadEffect, StreamEnding,
        growing_json::{GrowingJson, GrowingObject},
    },
};

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct GeminiAssembly {
    envelope: GrowingObject,
    candidates: BTreeMap<u64, StreamedCandidate>,
}

#[derive(Debug, Default)]
struct StreamedCandidate {
    members: GrowingObject,
    /// Members of its content other than the parts.
    content: GrowingObject,
    parts: Vec<StreamedPart>,
}

#[derive(Debug)]
struct StreamedPart {
    built: GrowingJson,
    /// Kind of its text, if the next piece may go on with it.
    text: Option<TextKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Answer,
    Thought,
}

impl AnswerAssembly for GeminiAssembly {
    fn take(&mut self, chunk: &Json<'_>) -> PayloadEffect {
        if let Some(said) = response::error_text(chunk) {
            return PayloadEffect::ending(StreamEnding::Failed(said));
        }
        let mut kept = 0;
        for (key, value) in chunk.members() {
            if key == "candidates" {
                for candidate in value.as_array().unwrap_or_default() {
                    kept += self.candidates.entry(candidate.count_at("index")).or_default().take(candidate);
                }
            } else {
                let is_known = self.envelope.get(key).is_some();
                self.envelope.set(key, value.into());
                kept += if is_known { 0 } else { key.len() + value.raw.len() };
            }
        }
        let is_blocked = chunk.get("promptFeedback").is_some_and(|said| said.get("blockReason").is_some());
        let is_finished = is_blocked || self.candidates.values().any(StreamedCandidate::is_finished);
        let effect = PayloadEffect::kept(kept);
        // Usage stands in every event, and finally in the last one.
        match (is_finished, chunk.get("usageMetadata").is_some()) {
            (true, true) => effect.with_final_ending(StreamEnding::Complete),
            (true, false) => effect.with_ending(StreamEnding::Complete),
            (false, _) => effect,
        }
    }

    fn assembled(mut self: Box<Self>) -> Option<String> {
        if self.envelope.is_empty() && self.candidates.is_empty() {
            return None;
        }
        if !self.candidates.is_empty() {
            let candidates = self.candidates.into_iter().map(|(index, candidate)| candidate.built(index));
            self.envelope.set("candidates", GrowingJson::List(candidates.collect()));
        }
        Some(GrowingJson::Object(self.envelope).json())
    }
}

impl StreamedCandidate {
    fn take(&mut self, candidate: &Json<'_>) -> usize {
        let mut kept = 0;
        for (key, value) in candidate.members() {
            match &**key {
                "index" => {}
                "content" => kept += self.content(value),
                key => {
                    self.members.set(key, value.into());
                    kept += value.raw.len();
                }
            }
        }
        kept
    }

    fn content(&mut self, content: &Json<'_>) -> usize {
        let mut kept = 0;
        for (key, value) in content.members() {
            match (&**key, value.as_array()) {
                ("parts", Some(parts)) => kept += parts.iter().map(|part| self.part(part)).sum::<usize>(),
                (key, _) => self.content.set(key, value.into()),
            }
        }
        kept
    }

    /// Adds a part. A text goes on with the one before, unless one of them has a signature: it seals just that part.
    fn part(&mut self, part: &Json<'_>) -> usize {
        let text = text_kind(part);
        if let (Some(kind), Some(piece)) = (text, part.text_at("text"))
            && let Some(last) = self.parts.last_mut().filter(|last| last.text == Some(kind))
            && let Some(members) = last.built.members()
        {
            members.at("text").append(piece);
            return piece.len();
        }
        self.parts.push(StreamedPart { built: part.into(), text });
        part.raw.len()
    }

    fn is_finished(&self) -> bool {
        self.members.get("finishReason").is_some_and(|reason| !reason.is_null())
    }

    fn built(mut self, index: u64) -> GrowingJson {
        if self.content.get("role").is_none() {
            self.content.set("role", GrowingJson::text("model"));
        }
        if !self.parts.is_empty() {
            let parts = self.parts.into_iter().map(|part| part.built).collect();
            self.content.set("parts", GrowingJson::List(parts));
        }
        let mut candidate = GrowingObject::default();
        candidate.set("content", GrowingJson::Object(self.content));
        candidate.take_all(self.members);
        candidate.set("index", GrowingJson::Fixed(index.to_string()));
        GrowingJson::Object(candidate)
    }
}

/// Kind of a part that is a text and nothing else.
fn text_kind(part: &Json<'_>) -> Option<TextKind> {
    part.text_at("text")?;
    let mut kind = TextKind::Answer;
    for (key, value) in part.members() {
        match (&**key, value.raw) {
            ("text", _) | ("thought", "false") => {}
            ("thought", "true") => kind = TextKind::Thought,
            _ => return None,
        }
    }
    Some(kind)
}

/// Joins the pieces of an answer that came as a list into one response; `None` if it is no such list.
pub(crate) fn joined(body: &Json<'_>) -> Option<String> {
    let pieces = body.as_array()?;
    if let Some(failed) = pieces.iter().find(|piece| response::error_text(piece).is_some()) {
        return Some(failed.raw.to_owned());
    }
    let mut assembly = Box::<GeminiAssembly>::default();
    for piece in pieces {
        assembly.take(piece);
    }
    assembly.assembled()
}
