//! A provider's answer, whole or streamed, with what an agent's loop asks of it: what was said, which tools are called,
//! why it ended.
//!
//! The events are those of [`Format::decode_response`] and [`StreamDecoder`]: their raw form is what a client would send
//! back, or holds it, and rendering cuts it to that. All else is read off them, so that whoever streams for itself asks
//! [`Answered::of`] at the end and gets the same.

use epitome_core::{
    Event, Fact, Part,
    event::{ToolCall, Usage},
    id::ModelName,
};

use crate::{
    error::WireError,
    format::Format,
    json::Json,
    stream::{Ending, StreamDecoder},
};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What to append: the answer, then what it used.
    pub events: Vec<Event>,
    /// The model that answered, if it says.
    pub model: Option<ModelName>,
    /// Why it ended, if it says.
    pub finish: Option<Finish>,
    /// Whether all of it came.
    pub ending: Ending,
    /// The tools it calls, in order.
    pub calls: Vec<ToolCall>,
    /// What it used, if it says.
    pub usage: Option<Usage>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model had said what it wanted, or a stop sequence came.
    Stop,
    /// The model waits for its tools.
    Calls,
    /// The output limit was reached: the answer is cut off.
    Length,
    /// The context window was reached: the answer is cut off.
    Window,
    /// The model refused, or a filter stopped it.
    Refused,
    /// Something else, in the provider's word.
    Other(String),
}

impl Format {
    /// Reads a whole response that was not streamed.
    ///
    /// ```
    /// use epitome_wire::{Finish, Format};
    ///
    /// let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}"#;
    /// let answered = Format::OpenaiChat.answer(body)?;
    /// assert_eq!(answered.text(), "Hello.");
    /// assert_eq!(answered.finish, Some(Finish::Stop));
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn answer(self, body: &str) -> Result<Answered, WireError> {
        Answered::of(self, self.decode_response(body)?, Ending::Complete)
    }

    /// Reads a recorded stream. One that broke off gives what came, and says so in its ending.
    pub fn answer_stream(self, bytes: &[u8]) -> Result<Answered, WireError> {
        let mut stream = StreamDecoder::new(self);
        stream.push(bytes);
        let streamed = stream.finish()?;
        Answered::of(self, streamed.events, streamed.ending)
    }
}

impl Answered {
    /// What the events of one response say.
    ///
    /// Whatever the provider said in place of an answer is an error.
    pub fn of(format: Format, events: Vec<Event>, ending: Ending) -> Result<Self, WireError> {
        const WHAT: &str = "an answer";
        if let Ending::Failed(said) = ending {
            return Err(WireError::NoAnswer { what: WHAT, said });
        }
        let is_answer =
            |event: &Event| matches!(event.fact, Fact::AssistantSaid { .. } | Fact::UsageReported { .. });
        if !events.iter().any(is_answer) {
            return Err(WireError::NothingSaid { what: WHAT });
        }
        let model = events.iter().find_map(|event| match &event.fact {
            Fact::AssistantSaid { model, .. } | Fact::UsageReported { model, .. } => model.clone(),
            _ => None,
        });
        let usage = events.iter().rev().find_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(*usage),
            _ => None,
        });
        let calls: Vec<ToolCall> = events.iter().flat_map(|event| event.fact.calls()).cloned().collect();
        let finish = events.iter().find_map(|event| finish(format, event));
        // Responses only says that it is complete.
        let finish = match finish {
            Some(Finish::Stop) if format == Format::OpenaiResponses && !calls.is_empty() => {
                Some(Finish::Calls)
            }
            finish => finish,
        };
        Ok(Self { events, model, finish, ending, calls, usage })
    }

    /// The text of the answer, pieces joined; reasoning, refusals and calls are none.
    pub fn text(&self) -> String {
        let answers = self.events.iter().filter(|event| matches!(event.fact, Fact::AssistantSaid { .. }));
        let texts = answers.flat_map(|event| event.fact.parts()).filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// What an event's raw form says of why its answer ended.
fn finish(format: Format, event: &Event) -> Option<Finish> {
    let raw = Json::parse(&event.raw.json, "a response").ok()?;
    match format {
        Format::OpenaiChat => raw.array_at("choices").first()?.text_at("finish_reason").map(chat),
        Format::OpenaiResponses if matches!(event.fact, Fact::AssistantSaid { .. }) => None,
        Format::OpenaiResponses => match raw.text_at("status")? {
            "completed" => Some(Finish::Stop),
            status => {
                let details = raw.get("incomplete_details");
                let reason = details.and_then(|details| details.text_at("reason"));
                Some(chat(reason.unwrap_or(status)))
            }
        },
        Format::Anthropic => raw.text_at("stop_reason").map(|reason| match reason {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::Calls,
            "max_tokens" => Finish::Length,
            "model_context_window_exceeded" => Finish::Window,
            "refusal" => Finish::Refused,
            other => Finish::Other(other.to_owned()),
        }),
    }
}

/// OpenAI's words, and those of servers which speak like it.
fn chat(reason: &str) -> Finish {
    match reason {
        "stop" | "eos" => Finish::Stop,
        "tool_calls" | "function_call" => Finish::Calls,
        "length" | "max_tokens" | "max_output_tokens" => Finish::Length,
        "model_length" | "model_context_window_exceeded" => Finish::Window,
        "content_filter" | "refusal" => Finish::Refused,
        other => Finish::Other(other.to_owned()),
    }
}
