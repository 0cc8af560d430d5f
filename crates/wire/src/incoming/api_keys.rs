//! Keys in a request's body that a provider passes on to the tool servers it calls. They are forwarded, and not
//! recorded.

use crate::json::{self, Json};

/// Placeholder for a key.
const KEY_PLACEHOLDER: &str = "\"[not recorded]\"";

/// The bytes of tool definitions without keys; `None` if there are none in them.
pub(super) fn blanked_tools(tools: &Json<'_>) -> Option<String> {
    let keys: Vec<&Json<'_>> = tools.as_array().unwrap_or_default().iter().flat_map(of_tool).collect();
    blanked(tools, &keys)
}

/// The bytes of settings without keys; `None` if there are none in them.
pub(super) fn blanked_settings(settings: &Json<'_>) -> Option<String> {
    let servers = settings.get("mcp_servers").and_then(Json::as_array).unwrap_or_default();
    let keys: Vec<&Json<'_>> =
        servers.iter().filter_map(|server| server.get("authorization_token")).collect();
    blanked(settings, &keys)
}

/// The bytes of a list of tool servers without keys; `None` if there are none in it.
pub(super) fn blanked_servers(servers: &Json<'_>) -> Option<String> {
    let listed = servers.as_array().unwrap_or_default();
    let keys: Vec<&Json<'_>> = listed.iter().filter_map(|server| server.get("authorization_token")).collect();
    blanked(servers, &keys)
}

fn of_tool<'t>(tool: &'t Json<'_>) -> Vec<&'t Json<'t>> {
    let mut keys: Vec<&Json<'_>> = tool.get("authorization").into_iter().collect();
    keys.extend(tool.get("headers").into_iter().flat_map(Json::members).map(|(_, value)| value));
    keys
}

fn blanked(whole: &Json<'_>, keys: &[&Json<'_>]) -> Option<String> {
    let keys: Vec<(&Json<'_>, &str)> =
        keys.iter().filter(|key| !key.is_null()).map(|key| (*key, KEY_PLACEHOLDER)).collect();
    (!keys.is_empty()).then(|| json::replace_members(whole, &keys))
}

#[cfg(test)]
mod tests {
    use crate::{
        format::Format,
        incoming::{IncomingRequest, MessageMemo},
    };

    #[test]
    fn keys_for_tool_servers_are_in_no_event_and_all_else_is() {
        let check = |format: Format, body: &str, kept: &str| {
            let memo = MessageMemo::default();
            let seen = IncomingRequest::read(format, body, &memo).unwrap();
            let events = seen.opening();
            let told: String = events.iter().map(|event| event.fact_json() + &event.raw.json).collect();
            assert!(!told.contains("canary"), "{told}");
            assert!(told.contains(kept) && told.contains("[not recorded]"), "{told}");
        };
        check(
            Format::OpenaiResponses,
            r#"{"model":"m","input":"hi","tools":[{"type":"mcp","server_label":"x","server_url":"https://y",
                "authorization":"canary-1","headers":{"X-Key":"canary-2"}},{"type":"function","name":"f"}]}"#,
            "https://y",
        );
        check(
            Format::Anthropic,
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],
                "mcp_servers":[{"type":"url","url":"https://y","authorization_token":"canary"}]}"#,
            "https://y",
        );
    }

    #[test]
    fn what_has_no_keys_keeps_its_bytes() {
        let body = r#"{"model":"m", "input":"hi", "tools":[ {"type":"function","name":"authorization"} ]}"#;
        let memo = MessageMemo::default();
        let events = IncomingRequest::read(Format::OpenaiResponses, body, &memo).unwrap().opening();
        let raw: Vec<&str> = events.iter().map(|event| &*event.raw.json).collect();
        let tools = r#"[ {"type":"function","name":"authorization"} ]"#;
        assert_eq!(raw, [r#"{"model":"m", "input":null, "tools":null}"#, tools]);
    }
}
