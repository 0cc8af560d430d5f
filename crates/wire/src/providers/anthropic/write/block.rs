//! Content blocks: those that came in this format keep their bytes, the others are written from their content.

use std::borrow::Cow;

use epitome_core::{
    ContentPart, Fact,
    event::{CallForm, ToolCall},
};

use crate::write::{
    CallPosition, STAND_IN_RESULT, ShownCallResult, ShownContent, ShownFragment, SourceEvent, WriteOptions,
    call_ids::{WrittenCallIds, shortened},
    edited_content::{edited_blocks, own_blocks},
    portable::{MediumSource, PortableEvent, PortablePiece},
};
use crate::{
    anthropic::block as read,
    json::{self, Json, quote},
};

/// A content block.
#[derive(Clone)]
pub(crate) struct AnthropicBlock<'e> {
    pub(crate) json: Cow<'e, str>,
    pub(crate) kind: AnthropicBlockKind,
    /// Its event, and its index among that event's blocks, if these are still its bytes.
    pub(crate) source: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnthropicBlockKind {
    Result,
    BlankText,
    Compaction,
    Thinking,
    /// A block that its provider would refuse in any place: a call or a result without an id, thinking without its
    /// seal.
    Broken,
    Other,
}

/// Writes blocks.
#[derive(Clone, Copy)]
pub(crate) struct AnthropicWriter<'e, 'p> {
    pub(crate) ids: &'p WrittenCallIds,
    pub(crate) manner: WriteOptions<'e>,
}

impl<'e> AnthropicWriter<'e, '_> {
    /// The blocks of a message in this format.
    pub(crate) fn own_blocks(self, entry: &'e SourceEvent<'e>, own: &'e Json<'e>) -> Vec<AnthropicBlock<'e>> {
        let Some(content) = own.get("content").filter(|content| !content.is_null()) else {
            return Vec::new();
        };
        if let Some(said) = content.as_text() {
            let json = text_json(content.raw).into();
            return vec![AnthropicBlock { json, kind: text_kind(said), source: Some((entry.index, 0)) }];
        }
        let role = own.text_at("role").unwrap_or_default();
        let blocks = content.as_array().unwrap_or_else(|| std::slice::from_ref(content));
        let block = |(place, block): (usize, &'e Json<'e>)| {
            let id = self.ids.changed(entry, place).map(quote);
            let renamed = block.get("id").zip(id.as_deref());
            // A history that is written as it was recorded keeps its faults.
            let mended = broken_input(block).filter(|_| self.manner.is_legal()).zip(Some("{}"));
            let edits: Vec<_> = renamed.into_iter().chain(mended).collect();
            let (json, source) = if edits.is_empty() {
                (block.raw.into(), Some((entry.index, place)))
            } else {
                (json::replace_members(block, &edits).into(), None)
            };
            AnthropicBlock { json, kind: kind(role, block), source }
        };
        blocks.iter().enumerate().map(block).collect()
    }

    /// Writes the content of an event that came in another format: results first.
    pub(crate) fn foreign(self, entry: &'e SourceEvent<'e>) -> Vec<AnthropicBlock<'e>> {
        let portable = PortableEvent::of(entry, self.manner.meter);
        let results = entry.event.fact.results().iter();
        let results = results
            .map(|result| written_result(&portable, &call_id(&result.call.0), &result.parts, result.error));
        let pieces = portable.pieces();
        let said = pieces.iter().filter_map(|piece| self.written(entry, piece));
        results.chain(said.filter(|block| block.kind != AnthropicBlockKind::BlankText)).collect()
    }

    /// Writes some parts of an answer in words of our own.
    pub(crate) fn foreign_parts(self, fragment: &ShownFragment<'e, 'e>) -> Vec<AnthropicBlock<'e>> {
        let portable = PortableEvent::of(fragment.entry, self.manner.meter);
        let pieces = portable.said_at(fragment.shown());
        let blocks = pieces.iter().filter_map(|piece| self.written(fragment.entry, piece));
        blocks.filter(|block| block.kind != AnthropicBlockKind::BlankText).collect()
    }

    /// Writes parts in place of an event's content other than results. `own` are its blocks.
    pub(crate) fn replaced(
        self,
        entry: &'e SourceEvent<'e>,
        own: &[AnthropicBlock<'e>],
        shown: &[ContentPart],
    ) -> Vec<AnthropicBlock<'e>> {
        let portable = PortableEvent::of(entry, self.manner.meter);
        let raw: Vec<Cow<'_, str>> = own.iter().map(|block| block.json.clone()).collect();
        let is_own = entry.own.is_some();
        let fresh = |part: &ContentPart| {
            let pieces = portable.pieces_of(std::slice::from_ref(part));
            pieces.first().and_then(|piece| self.written(entry, piece)).map(|block| block.json.into_owned())
        };
        let blocks = edited_blocks(if is_own { &raw } else { &[] }, entry.parts(), shown, fresh);
        let block = |json: String| {
            let kind =
                Json::parse(&json, "a block").map_or(AnthropicBlockKind::Other, |block| kind("user", &block));
            AnthropicBlock { json: json.into(), kind, source: None }
        };
        blocks.into_iter().map(block).collect()
    }

    /// A result, under the id its call is written with.
    pub(crate) fn result(
        self,
        returned: &ShownCallResult<'e, 'e>,
        site: Option<&CallPosition<'e, 'e>>,
    ) -> Option<AnthropicBlock<'e>> {
        let entry = returned.entry;
        let result = entry.event.fact.results().get(returned.ordinal)?;
        let own = entry.own.as_ref().and_then(|own| {
            let blocks = own.array_at("content");
            let places = entry.results.get_or_init(|| {
                let results = blocks.iter().enumerate().filter(|(_, block)| read::is_result(block));
                results.map(|(place, _)| place).collect()
            });
            let place = *places.get(returned.ordinal)?;
            Some((place, blocks.get(place)?))
        });
        let id = site.map_or(&*result.call.0, |site| self.ids.of_site(site));
        let Some((place, block)) = own else {
            let id = if site.is_some() { id.to_owned() } else { call_id(id) };
            let portable = PortableEvent::of(entry, self.manner.meter);
            let parts = match returned.shown {
                ShownContent::AsSent => &result.parts,
                ShownContent::Replaced(parts) => parts,
            };
            return Some(written_result(&portable, &id, parts, result.error));
        };
        let content = block.get("content");
        let new = match returned.shown {
            ShownContent::AsSent => content.and_then(without_blanks),
            ShownContent::Replaced(parts) => {
                let portable = PortableEvent::of(entry, self.manner.meter);
                let raw = own_blocks(content, text_json);
                let fresh = |part: &ContentPart| {
                    let pieces = portable.pieces_of(std::slice::from_ref(part));
                    pieces.first().and_then(fresh_block).map(|block| block.json.into_owned())
                };
                let mut blocks = edited_blocks(&raw, &result.parts, parts, fresh);
                blocks.retain(|block| !is_blank(block));
                Some(format!("[{}]", blocks.join(",")))
            }
        };
        let renamed = block.get("tool_use_id").filter(|named| named.as_text() != Some(id));
        if new.is_none() && renamed.is_none() {
            let source = Some((entry.index, place));
            return Some(AnthropicBlock { json: block.raw.into(), kind: AnthropicBlockKind::Result, source });
        }
        let id = quote(id);
        let edits = content.zip(new.as_deref()).into_iter().chain(renamed.map(|named| (named, &*id)));
        let json = json::replace_members(block, &edits.collect::<Vec<_>>());
        Some(AnthropicBlock { json: json.into(), kind: AnthropicBlockKind::Result, source: None })
    }

    /// Writes the stand-in for a call that has no result.
    pub(crate) fn stand_in(self, site: &CallPosition<'e, 'e>) -> AnthropicBlock<'e> {
        let (id, said) = (quote(self.ids.of_site(site)), quote(STAND_IN_RESULT));
        let json = format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{said},"is_error":true}}"#);
        AnthropicBlock { json: json.into(), kind: AnthropicBlockKind::Result, source: None }
    }

    fn written(self, entry: &SourceEvent<'_>, piece: &PortablePiece<'_>) -> Option<AnthropicBlock<'e>> {
        let PortablePiece::Call(call, place) = piece else { return fresh_block(piece) };
        let id = self.ids.changed(entry, *place).unwrap_or(&call.id.0);
        let (id, name) = (quote(id), quote(&call.name.0));
        let json = format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{}}}"#, input(call));
        Some(AnthropicBlock { json: json.into(), kind: AnthropicBlockKind::Other, source: None })
    }
}

/// Input of a call whose model wrote something other than an object: its provider would refuse it.
fn broken_input<'j>(block: &'j Json<'j>) -> Option<&'j Json<'j>> {
    let is_call = block.text_at("type") == Some("tool_use");
    block.get("input").filter(|input| is_call && !input.is_object())
}

/// Number of a message's blocks.
pub(crate) fn count(own: &Json<'_>) -> usize {
    let content = own.get("content").filter(|content| !content.is_null());
    content.map_or(0, |content| content.as_array().map_or(1, <[_]>::len))
}

/// A text block.
pub(crate) fn text(text: &str) -> AnthropicBlock<'static> {
    AnthropicBlock { json: text_json(&quote(text)).into(), kind: text_kind(text), source: None }
}

/// Role of the author of a fact.
pub(crate) fn role(fact: &Fact) -> &'static str {
    if matches!(fact, Fact::AssistantSaid { .. }) { "assistant" } else { "user" }
}

/// Makes an id valid here: ids are letters, digits, `_` and `-`; other characters become `_`.
pub(crate) fn call_id(id: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let id: String = shortened(id, 56).chars().map(safe).collect();
    if id.is_empty() { "_".to_owned() } else { id }
}

/// The list of blocks without its empty texts, if it holds any.
pub(crate) fn without_blanks(content: &Json<'_>) -> Option<String> {
    let blocks = content.as_array()?;
    let is_blank = |block: &&Json<'_>| kind("", block) == AnthropicBlockKind::BlankText;
    let kept: Vec<&str> = blocks.iter().filter(|block| !is_blank(block)).map(|block| block.raw).collect();
    (kept.len() < blocks.len()).then(|| format!("[{}]", kept.join(",")))
}

fn is_blank(block: &str) -> bool {
    Json::parse(block, "a block").is_ok_and(|block| kind("", &block) == AnthropicBlockKind::BlankText)
}

fn kind(role: &str, json: &Json<'_>) -> AnthropicBlockKind {
    let has = |key: &str| json.text_at(key).is_some();
    match json.text_at("type") {
        Some("text") => json.text_at("text").map_or(AnthropicBlockKind::Broken, text_kind),
        Some("tool_result") if role == "user" && read::is_result(json) => AnthropicBlockKind::Result,
        Some("tool_use") if role == "assistant" && has("id") && has("name") => AnthropicBlockKind::Other,
        Some("thinking") if has("thinking") && has("signature") => AnthropicBlockKind::Thinking,
        Some("redacted_thinking") if has("data") => AnthropicBlockKind::Thinking,
        Some("compaction") => AnthropicBlockKind::Compaction,
        Some("tool_use" | "tool_result" | "thinking" | "redacted_thinking") | None => {
            AnthropicBlockKind::Broken
        }
        Some(_) => AnthropicBlockKind::Other,
    }
}

fn text_kind(text: &str) -> AnthropicBlockKind {
    if text.trim().is_empty() { AnthropicBlockKind::BlankText } else { AnthropicBlockKind::Other }
}

fn text_json(literal: &str) -> String {
    format!(r#"{{"type":"text","text":{literal}}}"#)
}

fn written_result(
    portable: &PortableEvent<'_>,
    id: &str,
    parts: &[ContentPart],
    error: bool,
) -> AnthropicBlock<'static> {
    let pieces = portable.pieces_of(parts);
    let content = match pieces.as_slice() {
        [] => quote(""),
        [PortablePiece::Text(text)] => quote(text),
        several => {
            let blocks = several
                .iter()
                .filter_map(fresh_block)
                .filter(|block| block.kind != AnthropicBlockKind::BlankText);
            format!("[{}]", blocks.map(|block| block.json.into_owned()).collect::<Vec<_>>().join(","))
        }
    };
    let error = if error { r#","is_error":true"# } else { "" };
    let id = quote(id);
    let json = format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{content}{error}}}"#);
    AnthropicBlock { json: json.into(), kind: AnthropicBlockKind::Result, source: None }
}

/// Writes a piece that is not a call.
fn fresh_block(piece: &PortablePiece<'_>) -> Option<AnthropicBlock<'static>> {
    if let PortablePiece::Medium { mime, source, .. } = piece
        && let Some(json) = medium(mime, source)
    {
        return Some(AnthropicBlock { json: json.into(), kind: AnthropicBlockKind::Other, source: None });
    }
    piece.note().map(text)
}

fn medium(mime: &str, source: &MediumSource<'_>) -> Option<String> {
    let kind = match mime {
        "application/pdf" => "document",
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/*" => "image",
        _ => return None,
    };
    let source = match source {
        MediumSource::Base64(data) => {
            format!(r#"{{"type":"base64","media_type":{},"data":{}}}"#, quote(mime), quote(data))
        }
        MediumSource::Url(url) => format!(r#"{{"type":"url","url":{}}}"#, quote(url)),
    };
    Some(format!(r#"{{"type":"{kind}","source":{source}}}"#))
}

/// Writes arguments as an object. Other text becomes the only member of one.
fn input(call: &ToolCall) -> String {
    let parsed = Json::parse(&call.arguments, "a call's arguments");
    match (call.form, parsed) {
        (CallForm::Function, Ok(json)) if json.is_object() => json.raw.to_owned(),
        (CallForm::Function, _) if call.arguments.trim().is_empty() => "{}".to_owned(),
        (CallForm::Function, _) => format!(r#"{{"arguments":{}}}"#, quote(&call.arguments)),
        (CallForm::Custom, _) => format!(r#"{{"input":{}}}"#, quote(&call.arguments)),
    }
}
