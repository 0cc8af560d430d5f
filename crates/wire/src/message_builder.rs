//! Plain words to events: messages of a library's caller, in the form a client of the session's provider would send.
//!
//! Everything is written as JSON first and then read by the same code that reads a request, so that an event made
//! here and one decoded from an equal request have the same bytes, the same digest and the same parts. Roles are
//! taken as given here: a user's words stay the user's, even if they look like text that an agent sends by itself.

use epitome_core::{Event, Fact, event::ToolCall};

use crate::{
    error::WireError,
    format::Format,
    json::{Json, quote},
    request::{self, RequestKeys},
};

/// A piece of a user's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserContent<'a> {
    /// Text.
    Text(&'a str),
    /// An image, by its bytes.
    Image {
        /// Its kind, such as `image/png`.
        mime: &'a str,
        /// The file.
        bytes: &'a [u8],
    },
    /// An image that the provider fetches.
    ImageUrl(&'a str),
}

/// Outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolResultStatus {
    /// It succeeded.
    Well,
    /// It failed, and its text describes the failure.
    Badly,
}

/// Result of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolResultInput<'a> {
    /// The call it answers.
    pub call: &'a ToolCall,
    /// Text of the result.
    pub text: &'a str,
    /// Outcome of the call.
    pub ended: ToolResultStatus,
}

impl Format {
    /// A user's message.
    ///
    /// ```
    /// use epitome_wire::Format;
    ///
    /// let said = Format::Anthropic.say_user("hi");
    /// let sent = Format::Anthropic.decode_request(r#"{"messages":[{"role":"user","content":"hi"}]}"#)?;
    /// assert_eq!(sent[1], said);
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn say_user(self, text: &str) -> Event {
        self.read(&self.provider().user_text(&quote(text)))
    }

    /// A user's message of several pieces, in their order.
    pub fn say_parts(self, pieces: &[UserContent<'_>]) -> Event {
        self.read(&self.provider().user_pieces(pieces))
    }

    /// The system prompt: in its own member where the format has one, else as a first message.
    pub fn say_system(self, text: &str) -> Event {
        let provider = self.provider();
        let literal = provider.system_literal(text);
        match provider.facts().keys.system {
            Some(_) => request::system_event(self, &made(&literal)),
            None => self.read(&literal),
        }
    }

    /// The tools, as the provider's list of definitions.
    pub fn say_tools(self, json: &str) -> Result<Event, WireError> {
        const WHAT: &str = "a list of tools";
        let tools = Json::parse(json, WHAT)?;
        match tools.as_array() {
            Some([]) => Err(WireError::NotAList { what: WHAT, found: "an empty one" }),
            Some(list) => match list.iter().find(|tool| !tool.is_object()) {
                Some(other) => {
                    Err(WireError::NotAnObject { what: "a tool's definition", found: other.kind() })
                }
                None => Ok(request::tools_event(self, &tools)),
            },
            None => Err(WireError::NotAList { what: WHAT, found: tools.kind() }),
        }
    }

    /// Request settings other than system prompt, tools and history: model, limits, sampling, as an object.
    ///
    /// Newer settings replace older ones entirely. A system prompt or tools from before them stay in force only if
    /// the settings keep their place with a `null`, such as `{"model":"m","tools":null}`: a client that stops sending
    /// its tools wants none. So add settings first, or with these places.
    pub fn say_settings(self, json: &str) -> Result<Event, WireError> {
        const WHAT: &str = "a session's settings";
        let settings = Json::parse(json, WHAT)?.require_object(WHAT)?;
        let keys = RequestKeys::of(self);
        for key in [Some(keys.history), keys.system, Some(keys.tools)].into_iter().flatten() {
            if settings.get(key).is_some_and(|value| !value.is_null()) {
                return Err(WireError::NotASetting { key });
            }
        }
        Ok(request::settings(self, settings.raw))
    }

    /// Result of one tool call.
    ///
    /// In the OpenAI formats no field reports that a tool failed; the event records it all the same. Answers to calls
    /// of tools that OpenAI defines (`shell`, `apply_patch`, `computer`) have forms of their own: read those with
    /// [`openai_responses::item`](crate::openai_responses::item).
    pub fn say_result(self, call: &ToolCall, text: &str, ended: ToolResultStatus) -> Event {
        let result = ToolResultInput { call, text, ended };
        let messages = self.provider().result_messages(std::slice::from_ref(&result));
        let message = messages.first().expect("one result makes one message");
        self.returned(message, ended)
    }

    /// Results of the calls of one answer: one message where the format wants them together, else one for each.
    pub fn say_results(self, results: &[ToolResultInput<'_>]) -> Vec<Event> {
        if results.is_empty() {
            return Vec::new();
        }
        let messages = self.provider().result_messages(results);
        let is_each = messages.len() == results.len();
        let ended = |index: usize| results.get(index).filter(|_| is_each).map(|result| result.ended);
        let read = |(index, message): (usize, &String)| match ended(index) {
            Some(ended) => self.returned(message, ended),
            None => self.read(message),
        };
        messages.iter().enumerate().map(read).collect()
    }

    fn returned(self, json: &str, ended: ToolResultStatus) -> Event {
        let mut event = self.read(json);
        if let Fact::ToolReturned { results, .. } = &mut event.fact {
            for result in results {
                result.error |= ended == ToolResultStatus::Badly;
            }
        }
        event
    }

    /// Reads a message of the format as a request's reader does.
    fn read(self, message: &str) -> Event {
        self.provider().read_item(&made(message))
    }
}

/// Parses JSON that this file has written.
fn made(json: &str) -> Json<'_> {
    Json::parse(json, "what was said").expect("it is written from quoted strings, a few levels deep")
}
