//! Keys that stand in a request's body: what a provider is to show to the tool servers it calls. They pass, and are not
//! recorded.

use crate::json::{self, Json};

/// What stands in a key's place.
const BLANK: &str = "\"[not recorded]\"";

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

fn of_tool<'t>(tool: &'t Json<'_>) -> Vec<&'t Json<'t>> {
    let mut keys: Vec<&Json<'_>> = tool.get("authorization").into_iter().collect();
    keys.extend(tool.get("headers").into_iter().flat_map(Json::members).map(|(_, value)| value));
    keys
}

fn blanked(whole: &Json<'_>, keys: &[&Json<'_>]) -> Option<String> {
    let keys: Vec<(&Json<'_>, &str)> =
        keys.iter().filter(|key| !key.is_null()).map(|key| (*key, BLANK)).collect();
    (!keys.is_empty()).then(|| json::replaced(whole, &keys))
}
