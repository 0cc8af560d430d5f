//! A session's own request with one more instruction, with which a summary is requested while the cache is warm.
//!
//! A provider's cache is valid as far as a request begins like the one before. So nothing in the request is written
//! anew: the instruction is added at the end of the history, and of the settings only those change that are not part
//! of the cached prefix. The answer comes in one piece and has its own limit. OpenAI is told to call no tool, which
//! costs nothing there; Anthropic is not, since its cache drops the messages when `tool_choice` changes, and its
//! thinking settings are not touched either.

use epitome_core::Tokens;

use crate::{
    cache_marks::end,
    error::WireError,
    format::Format,
    json::{Json, quote},
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
        if let Some(setting) = self.provider().appending_barrier(&request) {
            return Err(WireError::CannotAppend { setting });
        }
        let mut body = AppendedRequest { request: &request, edits: Vec::new(), added: Vec::new() };
        body.history(self, instruction);
        body.settings(self, limit);
        Ok(body.written())
    }
}

/// Returns true if a setting asks for an answer other than text.
pub(crate) fn shapes_answer(value: Option<&Json<'_>>) -> bool {
    value.and_then(|value| value.text_at("type")).is_some_and(|kind| kind != "text")
}

/// Returns true if a member is a list with elements.
pub(crate) fn has_elements(request: &Json<'_>, key: &str) -> bool {
    request.get(key).is_some_and(|list| !matches!(list.raw, "null" | "[]"))
}

/// A request while it is written.
pub(crate) struct AppendedRequest<'r, 'a> {
    pub(crate) request: &'r Json<'a>,
    /// Byte ranges and the text to put in their place.
    edits: Vec<(std::ops::Range<usize>, String)>,
    /// Members to add at the end.
    added: Vec<(&'static str, String)>,
}

impl AppendedRequest<'_, '_> {
    fn history(&mut self, format: Format, instruction: &str) {
        let key = RequestKeys::of(format).history;
        let provider = format.provider();
        let said = provider.user_text(&quote(instruction));
        let Some(history) = self.request.get(key) else { return self.added.push((key, format!("[{said}]"))) };
        if history.as_array().is_none() {
            let list = match history.as_text() {
                Some(_) if provider.facts().takes_bare_history => {
                    format!("[{},{said}]", bare_item(history.raw))
                }
                _ => format!("[{said}]"),
            };
            return self.edits.push((history.start..end(history), list));
        }
        provider.append_message(self, history, instruction);
    }

    fn settings(&mut self, format: Format, limit: Tokens) {
        self.replace("stream", "false");
        // The setting is only accepted with a stream.
        self.replace("stream_options", "null");
        format.provider().append_settings(self, limit);
    }

    /// Gives a setting another value, if the request has it.
    pub(crate) fn replace(&mut self, key: &'static str, value: &str) {
        if self.request.get(key).is_some_and(|value| !value.is_null()) {
            self.set(key, value.to_owned());
        }
    }

    /// Sets a setting.
    pub(crate) fn set(&mut self, key: &'static str, value: String) {
        match self.request.get(key) {
            Some(old) => self.edits.push((old.start..end(old), value)),
            None => self.added.push((key, value)),
        }
    }

    /// Puts a text in the place of a value.
    pub(crate) fn put_in_place(&mut self, value: &Json<'_>, text: String) {
        self.edits.push((value.start..end(value), text));
    }

    /// Puts elements at the end of a list.
    pub(crate) fn append(&mut self, list: &Json<'_>, elements: impl Iterator<Item = String>) {
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
