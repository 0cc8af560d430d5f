//! Events, to Anthropic messages.
//!
//! A message is drafted as a list of blocks, each of which knows where it came from. A draft that is still exactly
//! the blocks of one event leaves with that event's bytes; so legality costs only the messages it touches.

use std::{borrow::Cow, collections::HashMap};

use epitome_core::{
    Fact, Part,
    event::{CallForm, ToolCall, ToolResult},
};

use super::{
    Completion, Entry, Group, OPENING, STAND_IN, Written, answer_of, grouped,
    outcomes::Outcomes,
    portable::{Piece, Portable, Source},
};
use crate::{
    anthropic::block,
    json::{self, Json, quoted},
    normal,
};

/// Writes the history.
pub(super) fn write(entries: &[Entry<'_>], completion: Completion) -> Vec<Written> {
    let drafts = match completion {
        Completion::AsRecorded => recorded(entries),
        Completion::Legal => legal(entries),
    };
    drafts.into_iter().map(Draft::written).collect()
}

/// A message in the making.
struct Draft<'e, 'a> {
    role: Cow<'e, str>,
    blocks: Vec<Block<'e>>,
    /// The events it stands for, in order.
    from: Vec<&'e Entry<'a>>,
}

/// A content block.
#[derive(Clone)]
struct Block<'e> {
    json: Cow<'e, str>,
    kind: Kind,
    /// Its event, and its place among that event's blocks.
    source: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Result,
    BlankText,
    Compaction,
    Other,
}

/// Every event a message of its own, but for the fragments and results of an answer that has a name.
fn recorded<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<Draft<'e, 'a>> {
    let mut drafts = Vec::new();
    for group in grouped(entries) {
        match group {
            Group::Answer { fragments, results } => {
                let named = answer_of(&fragments).is_some();
                drafts.extend(Draft::joined(&fragments));
                if named {
                    drafts.extend(Draft::joined(&results));
                } else {
                    drafts.extend(results.into_iter().filter_map(Draft::of));
                }
            }
            Group::Other(entry) => drafts.extend(Draft::of(entry)),
        }
    }
    drafts
}

fn legal<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<Draft<'e, 'a>> {
    let mut drafts = answered(entries);
    for draft in &mut drafts {
        draft.blocks.retain(|block| block.kind != Kind::BlankText);
    }
    drafts.retain(|draft| !draft.blocks.is_empty() || draft.role.is_empty());
    let mut merged: Vec<Draft<'e, 'a>> = Vec::new();
    for draft in drafts {
        match merged.last_mut() {
            Some(last) if last.role == draft.role && matches!(&*draft.role, "user" | "assistant") => {
                last.absorb(draft);
            }
            _ => merged.push(draft),
        }
    }
    for draft in &mut merged {
        // Stable: results keep their order, and so does the rest.
        draft.blocks.sort_by_key(|block| block.kind != Kind::Result);
    }
    let opens_with_answer = |draft: &Draft<'_, '_>| {
        // A signed compaction stands for what came before it, and must come first itself.
        draft.role == "assistant" && draft.blocks.first().is_none_or(|block| block.kind != Kind::Compaction)
    };
    if merged.first().is_some_and(opens_with_answer) {
        merged.insert(0, Draft::made("user", text_block(OPENING)));
    }
    merged
}

/// Every answer followed directly by the results of its calls; nothing answers what was not asked.
fn answered<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<Draft<'e, 'a>> {
    let outcomes = Outcomes::of(entries);
    let results_of: HashMap<usize, (&'e Entry<'a>, Vec<Block<'e>>)> =
        entries.iter().filter_map(|entry| Some((entry.index, (entry, result_blocks(entry)?)))).collect();
    let mut drafts = Vec::new();
    for group in grouped(entries) {
        match group {
            Group::Answer { fragments, results } => {
                drafts.extend(Draft::joined(&fragments));
                let mut returned: Draft<'e, 'a> =
                    Draft { role: "user".into(), blocks: Vec::new(), from: Vec::new() };
                for (index, ordinal) in outcomes.returned(&fragments) {
                    if let Some((entry, blocks)) = results_of.get(&index) {
                        returned.absorb(Draft {
                            role: "user".into(),
                            blocks: blocks.get(ordinal).cloned().into_iter().collect(),
                            from: vec![entry],
                        });
                    }
                }
                for entry in &fragments {
                    let calls = outcomes.unanswered(&[entry]);
                    returned.blocks.extend(calls.into_iter().map(|call| stand_in(call, entry)));
                }
                drafts.push(returned);
                drafts.extend(results.into_iter().filter_map(Draft::beside_results));
            }
            Group::Other(entry) if matches!(entry.event.fact, Fact::ToolReturned { .. }) => {
                drafts.extend(Draft::beside_results(entry));
            }
            Group::Other(entry) => drafts.extend(Draft::of(entry)),
        }
    }
    drafts
}

impl<'e, 'a> Draft<'e, 'a> {
    /// The message an event is, or `None` if it says nothing that can be said here.
    fn of(entry: &'e Entry<'a>) -> Option<Self> {
        let (role, blocks) = match &entry.own {
            Some(own) => (own.text_at("role").unwrap_or_default(), own_blocks(entry.index, own)),
            None => (role(&entry.event.fact), foreign_blocks(entry)),
        };
        let says_nothing = entry.own.is_none() && blocks.is_empty();
        (!says_nothing).then(|| Self { role: role.into(), blocks, from: vec![entry] })
    }

    /// Several events as one message.
    fn joined(entries: &[&'e Entry<'a>]) -> Option<Self> {
        let mut drafts = entries.iter().filter_map(|entry| Self::of(entry));
        let mut first = drafts.next()?;
        drafts.for_each(|draft| first.absorb(draft));
        Some(first)
    }

    /// What a message with results says beside them.
    fn beside_results(entry: &'e Entry<'a>) -> Option<Self> {
        let mut draft = Self::of(entry)?;
        draft.blocks.retain(|block| block.kind != Kind::Result);
        (!draft.blocks.is_empty()).then_some(draft)
    }

    /// A message that no event says.
    fn made(role: &'static str, block: Block<'e>) -> Self {
        Self { role: role.into(), blocks: vec![block], from: Vec::new() }
    }

    fn absorb(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        for entry in other.from {
            if self.from.last().is_none_or(|last| last.index != entry.index) {
                self.from.push(entry);
            }
        }
    }

    fn written(self) -> Written {
        let events = self.from.iter().map(|entry| entry.index).collect();
        let json = match self.from.as_slice() {
            [Entry { index, own: Some(own), .. }] => self.own_json(*index, own),
            _ => message(&self.role, &self.list()),
        };
        Written { json, events }
    }

    /// The message of a single event: its own bytes as far as they still hold.
    fn own_json(&self, index: usize, own: &Json<'_>) -> String {
        let whole = own_blocks(index, own);
        let untouched = whole.len() == self.blocks.len()
            && whole.iter().zip(&self.blocks).all(|(one, other)| one.source == other.source);
        match (untouched, own.get("content")) {
            (true, Some(content)) if normal::is_anthropic_answer(own) => message(&self.role, content.raw),
            (true, _) => own.raw.to_owned(),
            (false, Some(content)) if !normal::is_anthropic_answer(own) => {
                json::replaced(own, &[(content, &self.list())])
            }
            (false, _) => message(&self.role, &self.list()),
        }
    }

    fn list(&self) -> String {
        let blocks: Vec<&str> = self.blocks.iter().map(|block| &*block.json).collect();
        format!("[{}]", blocks.join(","))
    }
}

fn message(role: &str, content: &str) -> String {
    format!(r#"{{"role":{},"content":{content}}}"#, quoted(role))
}

/// The blocks of a message in this format.
fn own_blocks<'e>(index: usize, own: &'e Json<'_>) -> Vec<Block<'e>> {
    let Some(content) = own.get("content").filter(|content| !content.is_null()) else { return Vec::new() };
    if let Some(text) = content.as_text() {
        let json = format!(r#"{{"type":"text","text":{}}}"#, content.raw).into();
        return vec![Block { json, kind: text_kind(text), source: Some((index, 0)) }];
    }
    let blocks = content.as_array().unwrap_or_else(|| std::slice::from_ref(content));
    let block = |(place, block): (usize, &'e Json<'_>)| Block {
        json: block.raw.into(),
        kind: kind(block),
        source: Some((index, place)),
    };
    blocks.iter().enumerate().map(block).collect()
}

fn kind(json: &Json<'_>) -> Kind {
    match json.text_at("type") {
        Some("text") => json.text_at("text").map_or(Kind::Other, text_kind),
        Some("tool_result") if block::result(json).is_some() => Kind::Result,
        Some("compaction") => Kind::Compaction,
        _ => Kind::Other,
    }
}

fn text_kind(text: &str) -> Kind {
    if text.trim().is_empty() { Kind::BlankText } else { Kind::Other }
}

/// The blocks of an event's results, in order; `None` if it carries none.
fn result_blocks<'e>(entry: &'e Entry<'_>) -> Option<Vec<Block<'e>>> {
    if entry.event.fact.results().is_empty() {
        return None;
    }
    let blocks = match &entry.own {
        Some(own) => own_blocks(entry.index, own),
        None => foreign_blocks(entry),
    };
    Some(blocks.into_iter().filter(|block| block.kind == Kind::Result).collect())
}

fn stand_in(call: &ToolCall, entry: &Entry<'_>) -> Block<'static> {
    let id = if entry.own.is_some() { call.id.0.clone() } else { call_id(&call.id.0) };
    let (id, said) = (quoted(&id), quoted(STAND_IN));
    let json = format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{said},"is_error":true}}"#);
    Block { json: json.into(), kind: Kind::Result, source: None }
}

fn text_block(text: &str) -> Block<'static> {
    let json = format!(r#"{{"type":"text","text":{}}}"#, quoted(text));
    Block { json: json.into(), kind: text_kind(text), source: None }
}

fn role(fact: &Fact) -> &'static str {
    if matches!(fact, Fact::AssistantSaid { .. }) { "assistant" } else { "user" }
}

/// The blocks of an event that came in another format: results first, then what was said.
fn foreign_blocks<'e>(entry: &'e Entry<'_>) -> Vec<Block<'e>> {
    let portable = Portable::of(entry.event);
    let results = entry.event.fact.results().iter().map(|result| foreign_result(&portable, result));
    let said = portable.pieces().iter().map(foreign_block).collect::<Vec<_>>();
    results.chain(said.into_iter().filter(|block| block.kind != Kind::BlankText)).collect()
}

fn foreign_result(portable: &Portable<'_>, result: &ToolResult) -> Block<'static> {
    let text_only = result.parts.iter().all(|part| matches!(part, Part::Text { .. }));
    let content = if text_only {
        quoted(&portable.plain(&result.parts))
    } else {
        let blocks = portable.said(&result.parts);
        let blocks = blocks.iter().map(foreign_block).filter(|block| block.kind != Kind::BlankText);
        format!("[{}]", blocks.map(|block| block.json.into_owned()).collect::<Vec<_>>().join(","))
    };
    let error = if result.error { r#","is_error":true"# } else { "" };
    let id = quoted(&call_id(&result.call.0));
    let json = format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{content}{error}}}"#);
    Block { json: json.into(), kind: Kind::Result, source: None }
}

fn foreign_block(piece: &Piece<'_>) -> Block<'static> {
    let json = match piece {
        Piece::Call(call) => {
            let id = quoted(&call_id(&call.id.0));
            format!(
                r#"{{"type":"tool_use","id":{id},"name":{},"input":{}}}"#,
                quoted(&call.name.0),
                input(call)
            )
        }
        Piece::Medium { mime, source } => match medium(mime, source) {
            Some(json) => json,
            None => return text_block(&piece.note()),
        },
        Piece::Text(_) | Piece::Refusal(_) => return text_block(&piece.note()),
    };
    Block { json: json.into(), kind: Kind::Other, source: None }
}

fn medium(mime: &str, source: &Source<'_>) -> Option<String> {
    let kind = match mime {
        "application/pdf" => "document",
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/*" => "image",
        _ => return None,
    };
    let source = match source {
        Source::Base64(data) => {
            format!(r#"{{"type":"base64","media_type":{},"data":{}}}"#, quoted(mime), quoted(data))
        }
        Source::Url(url) => format!(r#"{{"type":"url","url":{}}}"#, quoted(url)),
    };
    Some(format!(r#"{{"type":"{kind}","source":{source}}}"#))
}

/// Here arguments are an object. Text that is none becomes the only member of one.
fn input(call: &ToolCall) -> String {
    let parsed = Json::parse(&call.arguments, "a call's arguments");
    match (call.form, parsed) {
        (CallForm::Function, Ok(json)) if json.is_object() => json.raw.to_owned(),
        (CallForm::Function, _) if call.arguments.trim().is_empty() => "{}".to_owned(),
        (CallForm::Function, _) => format!(r#"{{"arguments":{}}}"#, quoted(&call.arguments)),
        (CallForm::Custom, _) => format!(r#"{{"input":{}}}"#, quoted(&call.arguments)),
    }
}

/// Here ids are letters, digits, `_` and `-`; what else others use becomes `_`.
fn call_id(id: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    if id.is_empty() { "_".to_owned() } else { id.chars().map(safe).collect() }
}
