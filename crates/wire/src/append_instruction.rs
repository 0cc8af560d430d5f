//! A session's own request with one more instruction, with which a summary is requested while the cache is warm.
//!
//! A provider's cache is valid as far as a request begins like the one before. So nothing in the request is written
//! anew: the instruction is added at the end of the history, and of the settings only those change that are not part
//! of the cached prefix. The answer comes in one piece and has its own limit. OpenAI is told to call no tool, which
//! costs nothing there; Anthropic is not, since its cache drops the messages when `tool_choice` changes, and its
//! thinking settings are not touched either.

use std::collections::{HashMap, HashSet};

use epitome_core::{Tokens, context::UNANSWERED_TEXT};

use crate::{
    cache_marks::end,
    error::WireError,
    format::Format,
    json::{self, Json, quote},
    openai_responses::{self, CLIENT_CALL_KINDS},
    request::{RequestKeys, bare_item},
};

impl Format {
    /// Adds an instruction in the user's name to the end of a request that was sent, or could have been, and limits
    /// the answer to `limit` besides thinking.
    ///
    /// Unanswered calls are answered first, each with the usual stand-in. The limit is set where the request has one
    /// already, or where the format has only one name for it: a Chat server accepts one of two.
    ///
    /// A request is refused if its answer must be something other than text, or if only the provider has its history.
    ///
    /// ```
    /// use epitome_core::Tokens;
    /// use epitome_wire::Format;
    ///
    /// let request = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"stream":true}"#;
    /// assert_eq!(
    ///     Format::Anthropic.append_instruction(request, "Sum up.", Tokens(500))?,
    ///     r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},"#.to_owned()
    ///         + r#"{"type":"text","text":"Sum up."}]}],"max_tokens":500,"stream":false}"#,
    /// );
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn append_instruction(
        self,
        request: &str,
        instruction: &str,
        limit: Tokens,
    ) -> Result<String, WireError> {
        const WHAT: &str = "a request, to append to it";
        let request = Json::parse(request, WHAT)?.require_object(WHAT)?;
        if let Some(setting) = binding(self, &request) {
            return Err(WireError::CannotAppend { setting });
        }
        let mut body = AppendedRequest { request: &request, edits: Vec::new(), added: Vec::new() };
        body.history(self, instruction);
        body.settings(self, limit);
        Ok(body.written())
    }
}

/// The setting that prevents a request from being asked for a text.
fn binding(format: Format, request: &Json<'_>) -> Option<&'static str> {
    let says = |key: &str| request.get(key).is_some_and(|value| !value.is_null());
    let shapes = |value: Option<&Json<'_>>| {
        value.and_then(|value| value.text_at("type")).is_some_and(|kind| kind != "text")
    };
    let inside = |outer: &str, inner: &str| request.get(outer).and_then(|value| value.get(inner));
    let forces = |choice: &Json<'_>| matches!(choice.text_at("type"), Some("any" | "tool"));
    let found = match format {
        Format::OpenaiChat => vec![("response_format", shapes(request.get("response_format")))],
        Format::OpenaiResponses => vec![
            ("text.format", shapes(inside("text", "format"))),
            ("previous_response_id", says("previous_response_id")),
            ("conversation", says("conversation")),
        ],
        Format::Anthropic => vec![
            ("output_format", says("output_format")),
            ("output_config.format", shapes(inside("output_config", "format"))),
            // Another choice would lose the messages in the cache.
            ("tool_choice", request.get("tool_choice").is_some_and(forces)),
        ],
    };
    found.into_iter().find(|(_, binds)| *binds).map(|(setting, _)| setting)
}

/// A request while it is written.
struct AppendedRequest<'r, 'a> {
    request: &'r Json<'a>,
    /// Byte ranges and the text to put in their place.
    edits: Vec<(std::ops::Range<usize>, String)>,
    /// Members to add at the end.
    added: Vec<(&'static str, String)>,
}

impl AppendedRequest<'_, '_> {
    fn history(&mut self, format: Format, instruction: &str) {
        let key = RequestKeys::of(format).history;
        let said = format.say_user(instruction).raw.json.to_string();
        let Some(history) = self.request.get(key) else { return self.added.push((key, format!("[{said}]"))) };
        let Some(messages) = history.as_array() else {
            let list = match history.as_text() {
                Some(_) if format == Format::OpenaiResponses => {
                    format!("[{},{said}]", bare_item(history.raw))
                }
                _ => format!("[{said}]"),
            };
            return self.edits.push((history.start..end(history), list));
        };
        if format == Format::Anthropic {
            return self.anthropic(history, messages, instruction);
        }
        let open = match format {
            Format::OpenaiResponses => open_items(messages),
            Format::OpenaiChat | Format::Anthropic => open_chat(messages),
        };
        self.append(history, open.into_iter().chain([said]));
    }

    /// Appends to Anthropic messages. Roles alternate here, and results come first in the message that answers.
    fn anthropic(&mut self, history: &Json<'_>, messages: &[Json<'_>], instruction: &str) {
        let text = |literal: &str| format!(r#"{{"type":"text","text":{literal}}}"#);
        let instruction = text(&quote(instruction));
        let last = messages.last().filter(|last| last.text_at("role") == Some("user"));
        let answered = last.map(|last| last.array_at("content")).unwrap_or_default();
        let asked =
            if last.is_some() { messages.len().checked_sub(2) } else { messages.len().checked_sub(1) };
        let asked = asked.and_then(|index| messages.get(index));
        let is = |block: &Json<'_>, kind: &str| block.text_at("type") == Some(kind);
        let open = asked.filter(|asked| asked.text_at("role") == Some("assistant")).into_iter();
        let open = open.flat_map(|asked| asked.array_at("content")).filter(|block| is(block, "tool_use"));
        let results = answered.iter().filter(|block| is(block, "tool_result"));
        let returned: HashSet<&str> = results.filter_map(|block| block.text_at("tool_use_id")).collect();
        let open = open.filter_map(|call| call.text_at("id")).filter(|id| !returned.contains(id));
        let results: Vec<String> = open.map(stand_in).collect();
        // A result after other blocks would be refused, as this request would have been without it.
        let is_text = last.is_some_and(|last| last.text_at("content").is_some());
        let fits = !is_text && answered.iter().all(|block| is(block, "tool_result"));
        let blocks = results.into_iter().filter(|_| fits).chain([instruction]);
        match last.and_then(|last| last.get("content")) {
            Some(content) if content.as_array().is_some() => self.append(content, blocks),
            Some(content) if content.as_text().is_some_and(|text| !text.is_empty()) => {
                let said = json::list([text(content.raw)].into_iter().chain(blocks));
                self.edits.push((content.start..end(content), said));
            }
            _ => {
                let message = format!(r#"{{"role":"user","content":{}}}"#, json::list(blocks));
                self.append(history, [message].into_iter());
            }
        }
    }

    fn settings(&mut self, format: Format, limit: Tokens) {
        let says = |key: &str| self.request.get(key).is_some_and(|value| !value.is_null());
        let has_some =
            |key: &str| self.request.get(key).is_some_and(|list| !matches!(list.raw, "null" | "[]"));
        let mut edits: Vec<(&'static str, String)> = Vec::new();
        let mut replaced = |key: &'static str, value: &str| {
            if says(key) {
                edits.push((key, value.to_owned()));
            }
        };
        replaced("stream", "false");
        // The setting is only accepted with a stream.
        replaced("stream_options", "null");
        match format {
            Format::OpenaiChat => {
                replaced("n", "1");
                replaced("max_completion_tokens", &limit.to_string());
                replaced("max_tokens", &limit.to_string());
                edits.extend(has_some("tools").then(|| ("tool_choice", quote("none"))));
                edits.extend(has_some("functions").then(|| ("function_call", quote("none"))));
            }
            Format::OpenaiResponses => {
                replaced("background", "false");
                edits.push(("max_output_tokens", limit.to_string()));
                edits.extend(has_some("tools").then(|| ("tool_choice", quote("none"))));
            }
            Format::Anthropic => {
                // This asks for a compaction in place of an answer.
                replaced("compaction", "null");
                // Thinking counts against the limit, and a budget above the limit would be refused.
                let thinking =
                    self.request.get("thinking").map_or(0, |thinking| thinking.count_at("budget_tokens"));
                edits.push(("max_tokens", (limit + Tokens(thinking)).to_string()));
            }
        }
        for (key, value) in edits {
            match self.request.get(key) {
                Some(old) => self.edits.push((old.start..end(old), value)),
                None => self.added.push((key, value)),
            }
        }
    }

    /// Puts elements at the end of a list.
    fn append(&mut self, list: &Json<'_>, elements: impl Iterator<Item = String>) {
        let newest = list.as_array().and_then(<[_]>::last);
        let at = newest.map_or(list.start + 1, end);
        let elements: Vec<String> = elements.collect();
        let comma = if newest.is_some() { "," } else { "" };
        self.edits.push((at..at, format!("{comma}{}", elements.join(","))));
    }

    fn written(mut self) -> String {
        self.edits.sort_by_key(|(bytes, _)| bytes.start);
        let raw = self.request.raw;
        let mut out = String::with_capacity(raw.len() + 1024);
        let mut from = 0;
        for (bytes, text) in &self.edits {
            out.push_str(raw.get(from..bytes.start).unwrap_or_default());
            out.push_str(text);
            from = bytes.end;
        }
        // Everything but the closing brace.
        out.push_str(raw.get(from..raw.len() - 1).unwrap_or_default());
        for (index, (key, value)) in self.added.iter().enumerate() {
            if index > 0 || !self.request.members().is_empty() {
                out.push(',');
            }
            out.push_str(&quote(key));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// The stand-in for an Anthropic call without a result.
fn stand_in(id: &str) -> String {
    let (id, said) = (quote(id), quote(UNANSWERED_TEXT));
    format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{said},"is_error":true}}"#)
}

/// Stand-ins for the calls of the last Chat answer that have no results.
fn open_chat(messages: &[Json<'_>]) -> Vec<String> {
    let role = |message: &Json<'_>, role: &str| message.text_at("role") == Some(role);
    let results =
        messages.iter().rev().take_while(|message| role(message, "tool") || role(message, "function"));
    let results: Vec<&Json<'_>> = results.collect();
    let asked = messages.len().checked_sub(results.len() + 1).and_then(|index| messages.get(index));
    let Some(asked) = asked.filter(|asked| role(asked, "assistant")) else { return Vec::new() };
    let said = quote(UNANSWERED_TEXT);
    let returned: HashSet<&str> =
        results.iter().filter_map(|result| result.text_at("tool_call_id")).collect();
    let calls = asked.array_at("tool_calls").iter().filter_map(|call| call.text_at("id"));
    let calls = calls.filter(|id| !returned.contains(id));
    let answer = |id: &str| format!(r#"{{"role":"tool","tool_call_id":{},"content":{said}}}"#, quote(id));
    let mut answers: Vec<String> = calls.map(answer).collect();
    let named = asked.get("function_call").and_then(|called| called.text_at("name"));
    let named = named.filter(|name| !results.iter().any(|result| result.text_at("name") == Some(*name)));
    answers.extend(
        named.map(|name| format!(r#"{{"role":"function","name":{},"content":{said}}}"#, quote(name))),
    );
    answers
}

/// Stand-ins for the calls among Responses items that have no results.
fn open_items(items: &[Json<'_>]) -> Vec<String> {
    let is_compaction =
        |item: &Json<'_>| matches!(item.text_at("type"), Some("compaction" | "compaction_summary"));
    let begin = items.iter().rposition(is_compaction).map_or(0, |newest| newest + 1);
    let mut open: HashMap<&str, (usize, &'static str)> = HashMap::new();
    for (index, item) in items.iter().enumerate().skip(begin) {
        let kind = item.text_at("type").unwrap_or("message");
        if let Some((call, _)) = CLIENT_CALL_KINDS.iter().find(|(call, _)| *call == kind) {
            open.extend(item.text_at("call_id").map(|id| (id, (index, *call))));
        } else if CLIENT_CALL_KINDS.iter().any(|(_, output)| *output == kind) {
            // One kind of output names its call by `id`.
            let id = item.text_at("call_id").or_else(|| item.text_at("id"));
            id.map(|id| open.remove(id));
        }
    }
    let mut open: Vec<(usize, &str, &str)> =
        open.into_iter().map(|(id, (index, call))| (index, call, id)).collect();
    open.sort_unstable();
    open.into_iter().map(|(_, call, id)| openai_responses::write::stand_in(call, id)).collect()
}
