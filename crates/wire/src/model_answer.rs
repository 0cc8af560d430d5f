//! A provider's answer, whole or streamed, in the form that an agent's loop needs: its text, the tools it calls and
//! the reason it ended.
//!
//! The events are those of [`Format::decode_response`] and [`StreamDecoder`]: their raw form is, or holds, the JSON
//! that a client would send back, and rendering cuts it to that. Everything else is read from the events, so that a
//! program with a streaming loop of its own calls [`ModelAnswer::of`] at the end and gets the same result.

use epitome_core::{
    ContentPart, Event, Fact,
    event::{ToolCall, Usage},
    id::ModelName,
};

use crate::{
    error::WireError,
    format::Format,
    json::Json,
    stream::{StreamDecoder, StreamEnding},
};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAnswer {
    /// Events to append: the answer, then its usage.
    pub events: Vec<Event>,
    /// Model that answered, if the provider names it.
    pub model: Option<ModelName>,
    /// Reason the answer ended, if the provider gives one.
    pub finish: Option<FinishReason>,
    /// Reports whether the answer is complete or broke off.
    pub ending: StreamEnding,
    /// Calls the answer makes, in order.
    pub calls: Vec<ToolCall>,
    /// Tokens used, if the provider reports them.
    pub usage: Option<Usage>,
}

/// Reason an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model finished its answer, or a stop sequence came.
    Stop,
    /// The model waits for its tools.
    Calls,
    /// The output limit was reached: the answer is cut off.
    Length,
    /// The context window was reached: the answer is cut off.
    Window,
    /// The model refused, or a filter stopped it.
    Refused,
    /// Any other reason, in the provider's word.
    Other(String),
}

impl Format {
    /// Reads a whole response that was not streamed.
    ///
    /// ```
    /// use epitome_wire::{FinishReason, Format};
    ///
    /// let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}"#;
    /// let answered = Format::OpenaiChat.read_answer(body)?;
    /// assert_eq!(answered.text(), "Hello.");
    /// assert_eq!(answered.finish, Some(FinishReason::Stop));
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn read_answer(self, body: &str) -> Result<ModelAnswer, WireError> {
        ModelAnswer::of(self, self.decode_response(body)?, StreamEnding::Complete)
    }

    /// Reads a recorded stream. A stream that broke off gives the part that came, and its ending says so.
    pub fn read_answer_stream(self, bytes: &[u8]) -> Result<ModelAnswer, WireError> {
        let mut stream = StreamDecoder::new(self);
        stream.push(bytes);
        let streamed = stream.finish()?;
        ModelAnswer::of(self, streamed.events, streamed.ending)
    }
}

impl ModelAnswer {
    /// Reads an answer from the events of one response.
    ///
    /// An error of the provider in place of an answer is returned as an error.
    pub fn of(format: Format, events: Vec<Event>, ending: StreamEnding) -> Result<Self, WireError> {
        const WHAT: &str = "an answer";
        if let StreamEnding::Failed(said) = ending {
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
        // Some providers report only that the answer is complete, so calls in it are what tells `Calls` from `Stop`.
        let finish = match finish {
            Some(FinishReason::Stop) if !format.facts().answer.finish_tells_calls && !calls.is_empty() => {
                Some(FinishReason::Calls)
            }
            finish => finish,
        };
        Ok(Self { events, model, finish, ending, calls, usage })
    }

    /// Returns the text of the answer, its pieces joined. Reasoning, refusals and calls are not part of it.
    pub fn text(&self) -> String {
        let answers = self.events.iter().filter(|event| matches!(event.fact, Fact::AssistantSaid { .. }));
        let texts = answers.flat_map(|event| event.fact.parts()).filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// Reads the reason the answer ended from an event's raw form.
fn finish(format: Format, event: &Event) -> Option<FinishReason> {
    let raw = Json::parse(&event.raw.json, "a response").ok()?;
    format.provider().finish(&raw, &event.fact)
}
