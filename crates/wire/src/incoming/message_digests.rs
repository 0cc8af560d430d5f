//! Digests by which a message is recognised: its role and its pieces, each with a digest.
//!
//! Pieces rather than the message, because a client may split a message to put a note between, and join it again in
//! its next call. Beyond the differences that [the normalised form](crate::normal_digest) ignores, these do not count:
//! - an answer's reasoning, and every other member that is neither text, refusal, sound nor call: most clients
//!   keep only those. Of a text only the text counts, of a call its id, name, namespace and arguments;
//! - whitespace around a text, and texts that hold nothing else;
//! - empty arguments written as `""`, `{}` or not at all, and a result's explicit statement that it is no error;
//! - a Responses item's id and status, whoever made it;
//! - notes in users' messages (see [`moving_notes`]).

use epitome_core::{Digest, event::CallForm};

use super::{UnitSpeaker, moving_notes, piece_properties::is_kind};
use crate::{
    format::Format,
    json::{Json, JsonValue},
    normal_digest,
};

/// Digests that a message is recognised by.
pub(crate) struct MessageDigests {
    /// As a whole, standing alone; `None` if it has no content.
    pub(crate) digest: Option<Digest>,
    /// By its pieces, if it may be joined with its neighbours.
    pub(crate) joins: Option<Vec<DigestPiece>>,
    /// True if a client put one of its moving notes into it.
    pub(crate) noted: bool,
    /// Extent of the answer it belongs to.
    pub(crate) run: AnswerRun,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DigestPiece {
    /// A piece that stands by itself.
    Whole(Digest),
    /// A text that goes on in the next piece, if that is one too.
    Running(Box<str>),
}

/// Extent of an answer in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerRun {
    /// One message, or item.
    #[default]
    Message,
    /// All contents of the model that follow each other.
    Contents,
}

/// The digest of a message from its pieces.
fn whole(dialect: &str, role: &str, pieces: &[DigestPiece]) -> Digest {
    let mut out = Vec::new();
    normal_digest::text(&mut out, b"recognised");
    normal_digest::text(&mut out, dialect.as_bytes());
    normal_digest::text(&mut out, role.as_bytes());
    let mut running = String::new();
    for piece in pieces {
        match piece {
            DigestPiece::Running(text) => running.push_str(text),
            DigestPiece::Whole(digest) => {
                end_text(&mut running, &mut out);
                out.extend(digest.0);
            }
        }
    }
    end_text(&mut running, &mut out);
    Digest::of(&out)
}

/// Ends a text that went on over several pieces.
fn end_text(running: &mut String, out: &mut Vec<u8>) {
    let text = std::mem::take(running);
    let text = text.trim();
    if !text.is_empty() {
        out.extend(written(|out| tagged(out, "text", text)).0);
    }
}

/// Properties of an item that its provider knows.
pub(crate) struct MessageShape {
    /// True if it is a message, with a role and content.
    pub(crate) is_message: bool,
    /// Role of its author, if the item has another name for it.
    pub(crate) role: Option<&'static str>,
    /// Collects the pieces of an answer.
    pub(crate) answer: fn(&mut DigestCollector, &Json<'_>),
    /// Collects the pieces of a user's message.
    pub(crate) asked: fn(&mut DigestCollector, &Json<'_>),
    /// Members of a message that say nothing.
    pub(crate) unsaid: &'static [&'static str],
    /// True if it may be joined with its neighbours.
    pub(crate) may_join: bool,
    /// Extent of the answer it belongs to.
    pub(crate) run: AnswerRun,
}

/// The digest of a message in which a client describes its surroundings before users speak, the same for any content.
pub(super) fn preamble_digest(format: Format) -> Digest {
    whole(format.dialect().name(), "setup", &[])
}

/// The digest of joined messages, from the pieces of them all.
pub(super) fn joined(format: Format, speaker: UnitSpeaker, pieces: &[DigestPiece]) -> Digest {
    let role = if speaker == UnitSpeaker::Model { "assistant" } else { "user" };
    whole(format.dialect().name(), role, pieces)
}

/// Returns true if a Responses item need not be sent back: reasoning, or a note about other items.
fn is_silent(item: &Json<'_>) -> bool {
    ["reasoning", "item_reference", "compaction_trigger"].into_iter().any(|kind| is_kind(item, kind))
}

/// Digest of an item that is not a message.
fn other(dialect: &str, item: &Json<'_>) -> Digest {
    let kind = item.text_at("type").unwrap_or_default();
    let text = |key: &str| item.text_at(key);
    let call = match (kind, text("call_id"), text("name")) {
        ("function_call", Some(id), Some(name)) => {
            Some(call(id, name, text("namespace"), CallForm::Function, item.get("arguments")))
        }
        ("custom_tool_call", Some(id), Some(name)) => {
            Some(call(id, name, text("namespace"), CallForm::Custom, item.get("input")))
        }
        _ => None,
    };
    let piece = call.unwrap_or_else(|| written(|out| any_item(out, item)));
    whole(dialect, "", &[DigestPiece::Whole(piece)])
}

fn any_item(out: &mut Vec<u8>, item: &Json<'_>) {
    // One kind of result names its call by its own id.
    let named = item.text_at("call_id").is_none() && is_kind(item, "local_shell_call_output");
    let keep = |key: &str, value: &Json<'_>| match key {
        "id" => named,
        "status" | "cache_control" | "internal_chat_message_metadata_passthrough" => false,
        "output" => !normal_digest::is_empty(value, "input_text"),
        _ => !value.is_null(),
    };
    let write = |out: &mut Vec<u8>, key: &str, value: &Json<'_>| match key {
        "output" => normal_digest::content(out, value, "input_text"),
        "arguments" => normal_digest::arguments(out, value),
        _ => normal_digest::plain(out, value),
    };
    normal_digest::object(out, item, keep, write);
}

/// Collects the pieces of a message.
#[derive(Default)]
pub(crate) struct DigestCollector {
    found: Vec<DigestPiece>,
    noted: bool,
}

impl DigestCollector {
    /// Digests of an item of a history, or of an answer.
    pub(crate) fn digests_of(dialect: &str, item: &Json<'_>, shape: &MessageShape) -> MessageDigests {
        if !shape.is_message {
            let digest = if is_silent(item) { None } else { Some(other(dialect, item)) };
            return MessageDigests { digest, joins: None, noted: false, run: AnswerRun::Message };
        }
        let role = shape.role.or(item.text_at("role")).unwrap_or_default();
        let mut pieces = Self::default();
        match role {
            "assistant" => (shape.answer)(&mut pieces, item),
            "user" => {
                pieces.beside(item, shape.unsaid);
                (shape.asked)(&mut pieces, item);
            }
            _ => {
                pieces.beside(item, shape.unsaid);
                pieces.content(item.get("content"), Self::told);
            }
        }
        let Self { found, noted } = pieces;
        let is_blank =
            |piece: &DigestPiece| matches!(piece, DigestPiece::Running(text) if text.trim().is_empty());
        let says_nothing = found.iter().all(is_blank) && (role == "assistant" || noted);
        let digest = (!says_nothing).then(|| whole(dialect, role, &found));
        MessageDigests {
            digest,
            joins: (shape.may_join && !says_nothing).then_some(found),
            noted,
            run: shape.run,
        }
    }

    /// Collects the pieces of an answer that is a list of blocks.
    pub(crate) fn block_answer(&mut self, message: &Json<'_>) {
        self.content(message.get("content"), Self::answered);
    }

    /// Collects the pieces of a user's message that is a list of blocks.
    pub(crate) fn block_question(&mut self, message: &Json<'_>) {
        self.content(message.get("content"), Self::asked);
    }

    /// Collects a text that may go on in the next piece.
    pub(crate) fn running_text(&mut self, text: &str) {
        self.found.push(DigestPiece::Running(text.into()));
    }

    /// Collects a user's text.
    pub(crate) fn user_text(&mut self, text: &str) {
        let plain = moving_notes::without_notes(text);
        self.noted |= plain.at_an_end;
        self.text(plain.rest.as_deref().unwrap_or(text));
    }

    /// Collects a call that is known by its function's name.
    pub(crate) fn named_call(&mut self, name: &str, given: Option<&Json<'_>>) {
        self.found.push(DigestPiece::Whole(call("", name, None, CallForm::Function, given)));
    }

    /// Collects a result that is known by its function's name.
    pub(crate) fn named_result(&mut self, name: &str, response: Option<&Json<'_>>) {
        self.push(|out| {
            tagged(out, "result", name);
            if let Some(response) = response {
                normal_digest::plain(out, response);
            }
        });
    }

    /// Collects a part by its members, without some of them.
    pub(crate) fn part(&mut self, part: &Json<'_>, unsaid: &[&str]) {
        let keep = |key: &str, value: &Json<'_>| !value.is_null() && !unsaid.contains(&key);
        self.push(|out| {
            normal_digest::object(out, part, keep, |out, _, value| normal_digest::plain(out, value));
        });
    }

    /// Collects the pieces of a content: a string is one text.
    fn content(&mut self, content: Option<&Json<'_>>, block: fn(&mut Self, &Json<'_>)) {
        let Some(content) = content.filter(|content| !content.is_null()) else { return };
        match &content.value {
            JsonValue::String(_) => block(self, content),
            JsonValue::Array(blocks) => blocks.iter().for_each(|each| block(self, each)),
            _ => self.push(|out| normal_digest::plain(out, content)),
        }
    }

    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.found.push(DigestPiece::Whole(written(write)));
    }

    fn text(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.push(|out| tagged(out, "text", text));
        }
    }

    /// Collects a block of a user's message.
    fn asked(&mut self, block: &Json<'_>) {
        let Some(text) = text_of(block) else { return self.other_block(block) };
        self.user_text(text);
    }

    /// Collects a block of any other author's message.
    fn told(&mut self, block: &Json<'_>) {
        match text_of(block) {
            Some(text) => self.text(text),
            None => self.other_block(block),
        }
    }

    /// Collects a block of an answer.
    fn answered(&mut self, block: &Json<'_>) {
        match block.text_at("type") {
            Some("thinking" | "redacted_thinking") => {}
            Some("refusal") => self.refusal(block.text_at("refusal").unwrap_or_default()),
            Some("tool_use") => match (block.text_at("id"), block.text_at("name")) {
                (Some(id), Some(name)) => {
                    self.found.push(DigestPiece::Whole(call(
                        id,
                        name,
                        None,
                        CallForm::Function,
                        block.get("input"),
                    )));
                }
                _ => self.other_block(block),
            },
            _ => self.told(block),
        }
    }

    fn refusal(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(|out| tagged(out, "refusal", text));
        }
    }

    fn other_block(&mut self, block: &Json<'_>) {
        self.push(|out| match block.text_at("type") {
            Some("tool_result") => result(out, block),
            _ => normal_digest::block(out, block),
        });
    }

    /// Collects a Chat answer, which keeps its calls beside its content.
    pub(crate) fn chat_answer(&mut self, message: &Json<'_>) {
        self.content(message.get("content"), Self::answered);
        self.refusal(message.text_at("refusal").unwrap_or_default());
        if let Some(audio) = message.get("audio").filter(|audio| !audio.is_null()) {
            self.push(|out| match audio.text_at("id") {
                Some(id) => tagged(out, "audio", id),
                None => normal_digest::plain(out, audio),
            });
        }
        for one in message.array_at("tool_calls") {
            self.found.push(DigestPiece::Whole(chat_call(one)));
        }
        if let Some(called) = message.get("function_call").filter(|called| !called.is_null()) {
            let name = called.text_at("name").unwrap_or_default();
            self.found.push(DigestPiece::Whole(call(
                name,
                name,
                None,
                CallForm::Function,
                called.get("arguments"),
            )));
        }
    }

    /// Collects the members beside the content of a message that is not an answer.
    fn beside(&mut self, message: &Json<'_>, unsaid: &[&str]) {
        let keep = |key: &str, value: &Json<'_>| match key {
            "role" | "content" | "cache_control" => false,
            key => !value.is_null() && !unsaid.contains(&key),
        };
        if message.members().iter().any(|(key, value)| keep(key, value)) {
            self.push(|out| {
                normal_digest::object(out, message, keep, |out, _, value| normal_digest::plain(out, value));
            });
        }
    }
}

/// The text of a block, or of a member that serves as one.
fn text_of<'b>(block: &'b Json<'_>) -> Option<&'b str> {
    match block.text_at("type") {
        Some("text" | "input_text" | "output_text") => block.text_at("text"),
        _ => block.as_text(),
    }
}

fn result(out: &mut Vec<u8>, block: &Json<'_>) {
    let keep = |key: &str, value: &Json<'_>| match key {
        "cache_control" => false,
        "is_error" => matches!(value.value, JsonValue::Bool(true)),
        "content" => !normal_digest::is_empty(value, "text"),
        _ => true,
    };
    let write = |out: &mut Vec<u8>, key: &str, value: &Json<'_>| match key {
        "content" => normal_digest::content(out, value, "text"),
        _ => normal_digest::plain(out, value),
    };
    normal_digest::object(out, block, keep, write);
}

fn chat_call(one: &Json<'_>) -> Digest {
    let id = one.text_at("id").unwrap_or_default();
    let named = |key: &str| one.get(key).and_then(|called| Some((called, called.text_at("name")?)));
    match (named("function"), named("custom")) {
        (Some((called, name)), _) => call(id, name, None, CallForm::Function, called.get("arguments")),
        (_, Some((called, name))) => call(id, name, None, CallForm::Custom, called.get("input")),
        (None, None) => written(|out| normal_digest::plain(out, one)),
    }
}

fn call(id: &str, name: &str, namespace: Option<&str>, form: CallForm, given: Option<&Json<'_>>) -> Digest {
    written(|out| {
        let form = match form {
            CallForm::Function => "function",
            CallForm::Custom => "custom",
        };
        for text in [form, id, name, namespace.unwrap_or_default()] {
            normal_digest::text(out, text.as_bytes());
        }
        let said = given.filter(|given| given.as_text().is_none_or(|text| !text.trim().is_empty()));
        match (said.filter(|said| !said.is_null()), form) {
            (Some(said), "custom") => normal_digest::plain(out, said),
            (Some(said), _) => match said.as_text().map(|text| Json::parse(text, "a call's arguments")) {
                Some(Ok(parsed)) => normal_digest::plain(out, &parsed),
                _ => normal_digest::plain(out, said),
            },
            (None, _) => out.extend(b"{}"),
        }
    })
}

fn tagged(out: &mut Vec<u8>, tag: &str, text: &str) {
    out.extend(tag.as_bytes());
    normal_digest::text(out, text.as_bytes());
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Digest {
    let mut out = Vec::new();
    write(&mut out);
    Digest::of(&out)
}
