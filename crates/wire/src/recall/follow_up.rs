//! The request that gives a model what it asked for: the one that was sent, with the answer and its results at the end.

use super::{
    Edit,
    edit::{lead, remade},
};
use crate::{
    error::WireError,
    format::Format,
    json::{self, Json, Value},
    marks::end,
    normal::CHAT_ECHOED,
    request::{self, Keys, bare_item},
    say::SaidResult,
};

/// What follows an answer that called the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowUp {
    /// The change that makes the next request of the one that was sent.
    pub edit: Edit,
    /// The answer as a message or items of a history, with all its thinking.
    pub said: Vec<String>,
    /// The results as messages or items of a history. In Anthropic's format that is one message with a block for each; beside
    /// the results of other calls, only its blocks may be put in.
    pub returned: Vec<String>,
}

/// What to send after an answer that called the tool.
///
/// `sent` is the body that was sent, `answer` what came back, as in [`Recalls::answer`](super::Recalls), and each result
/// answers one of its calls. All else of the body stays as it is, so that a cache knows it again. Reasoning that a provider
/// neither keeps nor sealed is left out, as it would be refused.
///
/// Beside other calls, whose results only the client has, the pieces count and the change does not. Without results, the
/// pieces are those of any answer, such as the last of several that the client has as one.
///
/// ```
/// use epitome_core::event::ToolCall;
/// use epitome_wire::{Format, recall::follow_up, say::{Ended, SaidResult}};
///
/// let sent = r#"{"messages":[{"role":"user","content":"Which port?"}],"model":"m"}"#;
/// let answer = concat!(
///     r#"{"id":"a","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","#,
///     r#""type":"function","function":{"name":"epitome_recall","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
/// );
/// let call = ToolCall::function("c", "epitome_recall", "{}");
/// let result = SaidResult { call: &call, text: "8080", ended: Ended::Well };
/// let next = follow_up(Format::OpenaiChat, sent, answer, &[result])?.edit.apply(sent);
/// assert!(next.ends_with(r#"},{"role":"tool","tool_call_id":"c","content":"8080"}],"model":"m"}"#));
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn follow_up(
    format: Format,
    sent: &str,
    answer: &str,
    results: &[SaidResult<'_>],
) -> Result<FollowUp, WireError> {
    let what = request::what(format);
    let request = Json::parse(sent, what)?.require_object(what)?;
    let said = said(format, answer, keeps_reasoning(format, &request))?;
    let returned: Vec<String> =
        format.say_results(results).into_iter().map(|event| event.raw.json.to_string()).collect();
    let edit = appended(format, &request, &said, &returned)?.behind(lead(sent));
    Ok(FollowUp { edit, said, returned })
}

/// Whether a provider knows reasoning by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reasoning {
    Kept,
    /// Only if it was sealed.
    Sealed,
}

fn keeps_reasoning(format: Format, request: &Json<'_>) -> Reasoning {
    let store = request.get("store").map(|store| &store.value);
    match (format, store) {
        (Format::OpenaiResponses, Some(Value::Bool(false))) => Reasoning::Sealed,
        _ => Reasoning::Kept,
    }
}

/// An answer as a history holds it.
fn said(format: Format, answer: &str, reasoning: Reasoning) -> Result<Vec<String>, WireError> {
    let what = "an answer, to follow it up";
    let answer = Json::parse(answer, what)?.require_object(what)?;
    let choice = || answer.array_at("choices").iter().find(|choice| choice.count_at("index") == 0);
    let pieces: Vec<String> = match format {
        Format::Anthropic => {
            let blocks = blocks(answer.array_at("content"));
            let message = (!blocks.is_empty()).then(|| json::list(blocks.into_iter()));
            message
                .map(|blocks| format!(r#"{{"role":"assistant","content":{blocks}}}"#))
                .into_iter()
                .collect()
        }
        Format::OpenaiChat => {
            choice().and_then(|choice| choice.get("message")).map(echoed).into_iter().collect()
        }
        Format::OpenaiResponses => {
            let is_lost = |item: &&Json<'_>| {
                reasoning == Reasoning::Sealed
                    && item.text_at("type") == Some("reasoning")
                    && item.text_at("encrypted_content").is_none()
            };
            let items = answer.array_at("output").iter().filter(|item| !is_lost(item));
            items.map(|item| item.raw.to_owned()).collect()
        }
    };
    if pieces.is_empty() { Err(WireError::NothingSaid { what }) } else { Ok(pieces) }
}

/// A Chat answer as clients send it back.
fn echoed(message: &Json<'_>) -> String {
    remade(message, |key, value| match (key, value.get("id")) {
        ("audio", Some(id)) => Some(format!(r#"{{"id":{}}}"#, id.raw)),
        _ if !CHAT_ECHOED.contains(&key) => None,
        ("content", _) => Some(value.raw.to_owned()),
        _ => (!value.is_null()).then(|| value.raw.to_owned()),
    })
}

/// The blocks of an answer as the provider takes them back: none that is an empty text, and every input an object.
fn blocks(content: &[Json<'_>]) -> Vec<String> {
    let is = |block: &Json<'_>, kind: &str| block.text_at("type") == Some(kind);
    let is_blank = |block: &&Json<'_>| {
        is(block, "text") && block.text_at("text").is_none_or(|text| text.trim().is_empty())
    };
    let kept = content.iter().filter(|block| !is_blank(block));
    let block = |block: &Json<'_>| {
        let input = block.get("input").filter(|input| is(block, "tool_use") && !input.is_object());
        input.map_or_else(|| block.raw.to_owned(), |input| json::replaced(block, &[(input, "{}")]))
    };
    kept.map(block).collect()
}

/// The change that puts messages at the end of a history.
fn appended(
    format: Format,
    request: &Json<'_>,
    said: &[String],
    returned: &[String],
) -> Result<Edit, WireError> {
    let history = request.get(Keys::of(format).history);
    let pieces = [said, returned].concat().join(",");
    let messages = history.and_then(|history| Some((history, history.as_array()?)));
    Ok(match (messages, history) {
        (Some((history, [])), _) => Edit { at: history.start + 1..history.start + 1, text: pieces },
        (Some((_, [.., last])), _) => match continued(format, last, said) {
            Some(message) => {
                Edit { at: last.start..end(last), text: [&[message], returned].concat().join(",") }
            }
            None => Edit { at: end(last)..end(last), text: format!(",{pieces}") },
        },
        (None, Some(text)) if format == Format::OpenaiResponses && text.as_text().is_some() => {
            Edit { at: text.start..end(text), text: format!("[{},{pieces}]", bare_item(text.raw)) }
        }
        (None, history) => {
            let found = history.map_or("nothing", Json::kind);
            return Err(WireError::NotAList { what: "a history", found });
        }
    })
}

/// The message that an answer went on with, where roles alternate: the client had begun it.
fn continued(format: Format, last: &Json<'_>, said: &[String]) -> Option<String> {
    if format != Format::Anthropic || last.text_at("role") != Some("assistant") {
        return None;
    }
    let begun = last.get("content")?;
    let said = Json::parse(said.first()?, "an answer").ok()?;
    let begun_blocks = match (begun.as_text(), begun.as_array()) {
        (Some(_), _) => vec![format!(r#"{{"type":"text","text":{}}}"#, begun.raw)],
        (_, blocks) => blocks?.iter().map(|block| block.raw.to_owned()).collect(),
    };
    let new = said.array_at("content").iter().map(|block| block.raw.to_owned());
    Some(json::replaced(last, &[(begun, &json::list(begun_blocks.into_iter().chain(new)))]))
}
