//! A plain request to a model, with a system prompt and one user message, and the text of its answer.
//!
//! A summariser needs no history and no tools: one system prompt, one user message, one text back. The answer is read
//! by the same decoder as any response, so that an odd server is understood here exactly as it is in a session.

pub use epitome_core::draft_gate::DraftFinish;
use epitome_core::{ContentPart, Event, Fact, Tokens, event::Usage};

use crate::{
    error::WireError,
    format::Format,
    json::Json,
    model_answer::{self, ModelAnswer},
    response,
    stream::StreamEnding,
};

/// A request to a model that has no tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainRequest<'a> {
    /// The model, as its provider names it.
    pub model: &'a str,
    /// System prompt.
    pub system: &'a str,
    /// User message.
    pub user: &'a str,
    /// Limit on the length of the answer.
    pub limit: Tokens,
    /// Name of that limit in a Chat request.
    pub limit_name: OutputLimitName,
}

/// Name of the output limit in a Chat request. The other two formats have one name for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputLimitName {
    /// `max_tokens`: OpenAI calls it deprecated, and every server that speaks the format understands it. Some ignore the
    /// newer name, and a limit that is ignored is worse than one that is refused.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: the only one that OpenAI's reasoning models take.
    MaxCompletionTokens,
}

/// A model's answer to an [`PlainRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainReply {
    /// Text of the answer; that of a refusal, if there is no other.
    pub text: String,
    /// Way the answer ended.
    pub finish: DraftFinish,
    /// Tokens used, if the server reports them.
    pub usage: Option<Usage>,
    /// The model that answered, as the server names it.
    pub model: Option<String>,
    /// Kind of content the answer consists of.
    pub content: ReplyContent,
}

/// Kind of content an answer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyContent {
    /// Text.
    Said,
    /// Reasoning with no text after it.
    ReasoningOnly,
    /// No readable content.
    Nothing,
}

impl Format {
    /// Writes the request for `ask`: no tools, not streamed, and not stored by the provider.
    ///
    /// ```
    /// use epitome_core::Tokens;
    /// use epitome_wire::{Format, plain_request::{PlainRequest, OutputLimitName}};
    ///
    /// let limit_name = OutputLimitName::MaxTokens;
    /// let request = PlainRequest { model: "m", system: "Be brief.", user: "Hi", limit: Tokens(9), limit_name };
    /// assert_eq!(
    ///     Format::Anthropic.write_plain_request(&request),
    ///     r#"{"model":"m","max_tokens":9,"system":"Be brief.","messages":[{"role":"user","content":"Hi"}]}"#
    /// );
    /// ```
    pub fn write_plain_request(self, ask: &PlainRequest<'_>) -> String {
        self.provider().plain_request(ask)
    }

    /// Reads the answer to [`write_plain_request`](Self::write_plain_request): a whole response body.
    ///
    /// ```
    /// use epitome_wire::{Format, plain_request::DraftFinish};
    ///
    /// let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"length"}]}"#;
    /// let reply = Format::OpenaiChat.read_plain_reply(body)?;
    /// assert_eq!((reply.text.as_str(), reply.finish), ("Hello", DraftFinish::CutOff));
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn read_plain_reply(self, body: &str) -> Result<PlainReply, WireError> {
        const WHAT: &str = "a model's answer";
        let response = Json::parse(body, WHAT)?.require_object(WHAT)?;
        // An answer that failed halfway may have text too, but it is not an answer.
        if let Some(said) = response::error_text(&response) {
            return Err(WireError::NoAnswer { what: WHAT, said });
        }
        if !self.provider().is_response(&response) {
            return Err(WireError::NothingSaid { what: WHAT });
        }
        let events = response::decode(self, body)?;
        let (text, content) = words(parts(&events));
        // A model may end before its first word. That is an answer too, with empty text.
        let answered = ModelAnswer::of(self, events, StreamEnding::Complete).ok();
        let finish = answered.as_ref().map_or(DraftFinish::Unknown, ended);
        let usage = answered.as_ref().and_then(|answered| answered.usage);
        let model = response.text_at(self.facts().answer.model_key).map(str::to_owned);
        Ok(PlainReply { text, finish, usage, model, content })
    }
}

/// All parts of the answer.
fn parts(events: &[Event]) -> impl Iterator<Item = &ContentPart> {
    let answers = events.iter().filter(|event| matches!(event.fact, Fact::AssistantSaid { .. }));
    answers.flat_map(|event| event.fact.parts())
}

/// Determines how the answer ended, from its content first and then from the server's reason.
fn ended(answered: &ModelAnswer) -> DraftFinish {
    let mut refused = false;
    for part in parts(&answered.events) {
        match part {
            ContentPart::ToolCall(_) => return DraftFinish::CalledTool,
            // A call that this version cannot read as one is still a call.
            ContentPart::Opaque { name, .. } if name.contains("tool") || name.ends_with("_call") => {
                return DraftFinish::CalledTool;
            }
            ContentPart::Refusal { .. } => refused = true,
            ContentPart::Text { .. }
            | ContentPart::Reasoning { .. }
            | ContentPart::Media(_)
            | ContentPart::Opaque { .. } => {}
        }
    }
    match &answered.finish {
        _ if refused => DraftFinish::Refused,
        Some(model_answer::FinishReason::Stop) => DraftFinish::Complete,
        Some(model_answer::FinishReason::Calls) => DraftFinish::CalledTool,
        Some(model_answer::FinishReason::Length | model_answer::FinishReason::Window) => DraftFinish::CutOff,
        Some(model_answer::FinishReason::Refused) => DraftFinish::Refused,
        Some(model_answer::FinishReason::Other(_)) | None => DraftFinish::Unknown,
    }
}

/// Returns the text of an answer, and the kind of content it consists of.
fn words<'p>(parts: impl Iterator<Item = &'p ContentPart>) -> (String, ReplyContent) {
    let (mut text, mut refusal, mut reasoned) = (String::new(), String::new(), false);
    for part in parts {
        match part {
            ContentPart::Text { text: said } => text.push_str(said),
            ContentPart::Refusal { text: said } => refusal.push_str(said),
            ContentPart::Reasoning { .. } => reasoned = true,
            ContentPart::ToolCall(_) | ContentPart::Media(_) | ContentPart::Opaque { .. } => {}
        }
    }
    if text.trim().is_empty() {
        text = refusal;
    }
    let content = if is_only_thought(&text) {
        ReplyContent::ReasoningOnly
    } else if !text.trim().is_empty() {
        ReplyContent::Said
    } else if reasoned {
        ReplyContent::ReasoningOnly
    } else {
        ReplyContent::Nothing
    };
    (text, content)
}

/// Returns true if the text is reasoning only: servers that do not know a model's template leave its reasoning in the
/// text.
fn is_only_thought(text: &str) -> bool {
    let Some(thought) = text.trim().strip_prefix("<think>") else { return false };
    thought.rsplit_once("</think>").is_none_or(|(_, after)| after.trim().is_empty())
}
