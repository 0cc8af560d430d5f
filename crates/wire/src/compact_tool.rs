//! The tool with which an agent requests a compaction itself.
//!
//! A model knows best when a piece of work is done and its details are no longer needed. The call is one like any
//! other: the program that runs the loop answers it at once, and the compaction happens at the next request.

use epitome_core::event::ToolCall;
use serde_json::Value;

use crate::{
    format::Format,
    json::{Json, quote},
};

/// Name of the tool.
pub const COMPACT_TOOL: &str = "compact";

/// Description of the tool, as the model reads it.
const DESCRIPTION: &str = "Shortens this conversation: everything but its newest part is replaced by a summary of it. Call \
                           it when a piece of work is finished and its details are no longer needed, before something new \
                           is begun. Nothing is lost for good, and constraints, open tasks and changed files stay listed.";

/// Description of its only argument, as the model reads it.
const FOCUS: &str =
    "What the summary should keep in detail. Leave it out if nothing matters more than the rest.";

impl Format {
    /// The tool's definition, as an element of a request's `tools`.
    ///
    /// ```
    /// use epitome_wire::Format;
    ///
    /// let tools = serde_json::json!([Format::OpenaiChat.compact_tool()]);
    /// assert!(Format::OpenaiChat.say_tools(&tools.to_string()).is_ok());
    /// ```
    pub fn compact_tool(self) -> Value {
        let (name, description) = (quote(COMPACT_TOOL), quote(DESCRIPTION));
        let focus = format!(r#"{{"type":"string","description":{}}}"#, quote(FOCUS));
        let schema = format!(
            r#"{{"type":"object","properties":{{"focus":{focus}}},"required":[],"additionalProperties":false}}"#
        );
        let said = format!(r#""name":{name},"description":{description}"#);
        let tool = self.provider().own_tool(&said, &schema);
        serde_json::from_str(&tool).expect("its pieces are JSON")
    }
}

/// Reads a call of the `compact` tool: `None` for any other call, `Some(None)` if it names nothing for the summary to
/// focus on.
///
/// A model that gets the arguments wrong has still requested a compaction.
pub fn is_compact_call(call: &ToolCall) -> Option<Option<String>> {
    if call.name.0 != COMPACT_TOOL || call.namespace.is_some() {
        return None;
    }
    let focus = Json::parse(&call.arguments, "a call's arguments").ok();
    let focus = focus.as_ref().and_then(|arguments| arguments.text_at("focus")).map(str::trim);
    Some(focus.filter(|focus| !focus.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools;

    #[test]
    fn the_tool_is_the_same_in_every_format() {
        for format in Format::ALL {
            let own = format.compact_tool().to_string();
            let event = format.say_tools(&format!("[{own}]")).unwrap();
            assert!(matches!(&event.fact.parts()[0],
                epitome_core::ContentPart::Opaque { name, .. } if name == COMPACT_TOOL));
            for other in Format::ALL {
                let translated = tools::translated(&own, other);
                let expect =
                    format!("[{}]", other.compact_tool().to_string().replace(r#","strict":false"#, ""));
                assert_eq!(other.provider().tool_list(&translated), expect);
            }
        }
    }

    #[test]
    fn a_call_asks_with_a_focus_or_without() {
        let check = |name: &str, arguments: &str, expect: Option<Option<&str>>| {
            let found = is_compact_call(&ToolCall::function("c", name, arguments));
            assert_eq!(found.as_ref().map(Option::as_deref), expect, "{name} {arguments}");
        };
        check("compact", r#"{"focus":" the parser\n"}"#, Some(Some("the parser")));
        check("compact", "{}", Some(None));
        check("compact", "", Some(None));
        check("compact", "not json", Some(None));
        check("compact", r#"{"focus":"  "}"#, Some(None));
        check("compact", r#"{"focus":7}"#, Some(None));
        check("compact", r#"["focus"]"#, Some(None));
        check("compacted", "{}", None);
        let elsewhere =
            ToolCall { namespace: Some("git".into()), ..ToolCall::function("c", "compact", "{}") };
        assert_eq!(is_compact_call(&elsewhere), None);
    }
}
