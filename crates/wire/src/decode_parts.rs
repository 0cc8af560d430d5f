//! Helpers that the three readers share: from a block to a part, and from a value to an event.

use epitome_core::{
    ContentPart, Digest, Event, Fact,
    event::{RawDialect, RawJson},
};

use crate::json::Json;

/// An event whose raw form is exactly `json`.
pub(crate) fn event(dialect: RawDialect, json: &Json<'_>, fact: Fact, normal: Option<Digest>) -> Event {
    let origin = json.text_at("id").map(str::to_owned);
    Event { time: None, origin, fact, raw: RawJson { dialect, json: json.raw.into() }, normal }
}

/// A block kept as it is, under its provider's name for it.
pub(crate) fn opaque_part(json: &Json<'_>, otherwise: &str) -> ContentPart {
    let name = json.text_at("type").unwrap_or(otherwise).to_owned();
    ContentPart::Opaque { name, json: json.raw.to_owned() }
}

/// An item that is not a message this crate understands, named after its type or role.
pub(crate) fn carried_fact(json: &Json<'_>, otherwise: &str) -> Fact {
    let kind = json.text_at("type").or_else(|| json.text_at("role")).unwrap_or(otherwise);
    Fact::Carried { kind: kind.to_owned() }
}

/// Reads the parts of a string or a list of blocks, in order. A string is one part; absent content has none.
pub(crate) fn parts(
    content: Option<&Json<'_>>,
    block: impl Fn(&Json<'_>) -> ContentPart,
) -> Vec<ContentPart> {
    let Some(content) = content.filter(|content| !content.is_null()) else { return Vec::new() };
    match (content.as_text(), content.as_array()) {
        (Some(""), _) => Vec::new(),
        (Some(text), _) => vec![ContentPart::text(text)],
        (_, Some(blocks)) => blocks.iter().map(block).collect(),
        _ => vec![opaque_part(content, "content")],
    }
}

/// Counts the parts that [`parts`] makes of the same content.
pub(crate) fn count(content: Option<&Json<'_>>) -> usize {
    let Some(content) = content.filter(|content| !content.is_null()) else { return 0 };
    match (content.as_text(), content.as_array()) {
        (Some(""), _) => 0,
        (_, Some(blocks)) => blocks.len(),
        _ => 1,
    }
}

/// A tool definition under its name.
pub(crate) fn tool_part(tool: &Json<'_>) -> ContentPart {
    match tool.text_at("name") {
        Some(name) => ContentPart::Opaque { name: name.to_owned(), json: tool.raw.to_owned() },
        None => opaque_part(tool, "tool"),
    }
}
