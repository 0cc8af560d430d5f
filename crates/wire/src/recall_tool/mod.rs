//! A tool that a gateway offers and answers itself: it brings back parts of a session that the model no longer sees.
//!
//! [`offer`] puts its definition into a request. A [`RecallSplice`] lets the answer pass and withholds calls of the tool;
//! if an answer calls no other tool, the next request gives the model the results, and the answer to that is spliced
//! onto the first, so that the client sees one answer and no call. `client_view` reads the events that the client will
//! send back. This module neither sends nor stores.

pub(crate) mod body_edit;
pub(crate) mod client_indices;
mod client_view;
mod offer;
mod splice;
pub(crate) mod splice_state;
pub(crate) mod sse_frames;
pub(crate) mod stream;
pub(crate) mod unstreamed;

use epitome_core::event::{CallForm, ToolCall};

use crate::json::Json;

pub use self::{
    body_edit::BodyEdit,
    client_view::client_events,
    offer::offer,
    splice::{RecallCalls, RecallSplice, SpliceVerdict},
};

/// Name of the tool.
pub const RECALL_TOOL: &str = "epitome_recall";

/// Arguments of a call of the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecallArguments {
    /// A handle, as stubs and summaries write it.
    pub handle: Option<String>,
    /// Words to search for, if no handle is known.
    pub query: Option<String>,
}

/// Reads the arguments of a call of the tool; `None` for other calls. A model that gets the arguments wrong asks for
/// nothing.
pub fn is_recall_call(call: &ToolCall) -> Option<RecallArguments> {
    if !is_recall(&call.name.0, call.namespace.as_deref()) || call.form != CallForm::Function {
        return None;
    }
    let arguments = Json::parse(&call.arguments, "a call's arguments").ok();
    let said = |key: &str| {
        let text = arguments.as_ref()?.text_at(key)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    Some(RecallArguments { handle: said("handle"), query: said("query") })
}

/// Returns true if a tool is ours, by its name.
pub(crate) fn is_recall(name: &str, namespace: Option<&str>) -> bool {
    name == RECALL_TOOL && namespace.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_asks_by_handle_or_by_words() {
        let check = |name: &str, arguments: &str, expect: Option<(Option<&str>, Option<&str>)>| {
            let asked = is_recall_call(&ToolCall::function("c", name, arguments));
            let found = asked.as_ref().map(|asked| (asked.handle.as_deref(), asked.query.as_deref()));
            assert_eq!(found, expect, "{name} {arguments}");
        };
        check(
            RECALL_TOOL,
            r#"{"handle":" recall 1a2b3c4d:12-14 "}"#,
            Some((Some("recall 1a2b3c4d:12-14"), None)),
        );
        check(RECALL_TOOL, r#"{"query":"port","handle":""}"#, Some((None, Some("port"))));
        check(RECALL_TOOL, "not json", Some((None, None)));
        check(RECALL_TOOL, "[]", Some((None, None)));
        check("recall", r#"{"handle":"x"}"#, None);
        let elsewhere =
            ToolCall { namespace: Some("n".into()), ..ToolCall::function("c", RECALL_TOOL, "{}") };
        assert_eq!(is_recall_call(&elsewhere), None);
    }
}
