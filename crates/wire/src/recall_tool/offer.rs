//! The tool's definition, put into a request.
//!
//! It stands before the client's tools: tools that the client later adds at the end, and a cache mark on the last
//! one, stay in place. A request that forbids its tools, or requires a certain one, still gets ours, since a cache is
//! lost when the tools change.

use super::{BodyEdit, RECALL_TOOL, body_edit::leading_whitespace};
use crate::{
    cache_marks::end,
    format::Format,
    json::{Json, JsonValue, quote},
    request::{self, RequestKeys},
};

/// Description of the tool, as the model reads it.
const DESCRIPTION: &str = "Brings back, word for word, an earlier part of this conversation that is no longer shown in \
                           full. Where something was shortened, a note or a summary in its place names a handle, such as \
                           `recall 1a2b3c4d:12-14`. Call this when details behind such a handle are needed; nothing else \
                           has to be read again. Call it by itself, not beside other tools.";

/// Description of its arguments, as the model reads it.
const HANDLE: &str = "The handle as it is written, such as `recall 1a2b3c4d:12-14`.";
const QUERY: &str = "Words to search the earlier parts for, if no handle is known.";

/// Returns the edit that puts the tool's definition into a request: the same bytes every time.
///
/// `None` if the tool must not be offered: the request has no tools and does not let the model choose to call one,
/// one of its tools has the same name, or its answer could not be continued (it is made in the background, kept in a
/// conversation at the provider, or one of several).
///
/// ```
/// use epitome_wire::{Format, recall_tool::offer};
///
/// let request = r#"{"model":"m","messages":[],"tools":[{"name":"bash","input_schema":{}}]}"#;
/// let offered = offer(Format::Anthropic, request).expect("it takes one more").apply(request);
/// assert!(offered.starts_with(r#"{"model":"m","messages":[],"tools":[{"name":"epitome_recall","#));
/// assert!(offered.ends_with(r#"}},{"name":"bash","input_schema":{}}]}"#));
/// assert_eq!(offer(Format::Anthropic, &offered), None);
/// ```
pub fn offer(format: Format, body: &str) -> Option<BodyEdit> {
    let what = request::request_name(format);
    let request = Json::parse(body, what).ok()?.require_object(what).ok()?;
    let provider = format.provider();
    if provider.cannot_continue(&request) {
        return None;
    }
    let (key, tool) = (RequestKeys::of(format).tools, definition(format));
    let (at, text) = match request.get(key) {
        Some(tools) => match &tools.value {
            JsonValue::Null if provider.leaves_tool_choice(&request) => {
                (tools.start..end(tools), format!("[{tool}]"))
            }
            JsonValue::Array(tools_given) => match tools_given.as_slice() {
                [_, ..] if tools_given.iter().any(is_named_so) => return None,
                [_, ..] => {
                    let (at, text) = provider.tool_insertion(tools_given, &tool)?;
                    (at..at, text)
                }
                [] if provider.leaves_tool_choice(&request) => (tools.start + 1..tools.start + 1, tool),
                [] => return None,
            },
            _ => return None,
        },
        None if provider.leaves_tool_choice(&request) => {
            let (at, comma) = match request.members().last() {
                Some((_, last)) => (end(last), ","),
                None => (request.start + 1, ""),
            };
            (at..at, format!("{comma}{}:[{tool}]", quote(key)))
        }
        None => return None,
    };
    Some(BodyEdit { at, text }.shifted(leading_whitespace(body)))
}

/// The definition, as an element of a request's tools.
fn definition(format: Format) -> String {
    let text = |said: &str| format!(r#"{{"type":"string","description":{}}}"#, quote(said));
    let schema = format!(
        r#"{{"type":"object","properties":{{"handle":{},"query":{}}},"required":[],"additionalProperties":false}}"#,
        text(HANDLE),
        text(QUERY)
    );
    let said = format!(r#""name":{},"description":{}"#, quote(RECALL_TOOL), quote(DESCRIPTION));
    format.provider().own_tool(&said, &schema)
}

/// Returns true if a tool, or one inside it, has our name.
fn is_named_so(tool: &Json<'_>) -> bool {
    let inner = tool.get("function").or_else(|| tool.get("custom")).unwrap_or(tool);
    inner.text_at("name") == Some(RECALL_TOOL)
        || tool.array_at("tools").iter().any(|inner| inner.text_at("name") == Some(RECALL_TOOL))
}
