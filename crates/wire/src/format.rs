//! The provider formats by name, and the operations on each.

use std::{fmt, str::FromStr};

use epitome_core::{Event, context::Context, cost::Prompt, event::RawDialect};
use serde::{Deserialize, Serialize};

use crate::{
    anthropic::provider::AnthropicMessages,
    encode::{self, EncodeError, EncodeMode, EncodedRequest},
    error::WireError,
    gemini::provider::GeminiContent,
    openai_chat::provider::ChatCompletions,
    openai_responses::provider::OpenaiResponses,
    prompt_blocks::{self, PromptMemo},
    providers::{WireProvider, facts::ProviderFacts},
    render::{self, RenderError, RenderOptions, RenderedRequest},
    request, response,
};

/// A provider's wire format.
///
/// ```
/// use epitome_wire::{EncodeMode, Format};
///
/// let request = r#"{"model":"m", "messages":[{"role":"user", "content":"hi"}], "temperature":1.0}"#;
/// let events = Format::OpenaiChat.decode_request(request)?;
/// let encoded = Format::OpenaiChat.encode(&events, EncodeMode::AsRecorded)?;
/// assert_eq!(encoded.body, request);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Format {
    /// OpenAI Chat Completions.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::OpenaiChat, Self::OpenaiResponses, Self::Anthropic, Self::Gemini];

    /// Dialect of the format's raw JSON.
    pub fn dialect(self) -> RawDialect {
        self.facts().dialect.clone()
    }

    /// The format whose raw JSON has this dialect.
    pub fn of_dialect(dialect: &RawDialect) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.facts().dialect == *dialect)
    }

    /// Everything that is known of the format's provider.
    pub(crate) fn provider(self) -> &'static dyn WireProvider {
        match self {
            Self::OpenaiChat => &ChatCompletions,
            Self::OpenaiResponses => &OpenaiResponses,
            Self::Anthropic => &AnthropicMessages,
            Self::Gemini => &GeminiContent,
        }
    }

    /// Constant facts of the format's provider.
    pub(crate) fn facts(self) -> &'static ProviderFacts {
        self.provider().facts()
    }

    /// Reads a whole request: its settings, system prompt and tools, then an event for each message or item.
    ///
    /// The raw form of the settings is the request with `null` in place of every value that became an event of
    /// its own, so that [`encode`](Self::encode) can fill them in again.
    pub fn decode_request(self, json: &str) -> Result<Vec<Event>, WireError> {
        request::decode(self, json)
    }

    /// Reads a whole response that was not streamed: the answer, then what it used.
    pub fn decode_response(self, json: &str) -> Result<Vec<Event>, WireError> {
        response::decode(self, json)
    }

    /// Writes a request from `events`. See [`EncodeMode`] for what is added or left out.
    pub fn encode<'a>(
        self,
        events: impl IntoIterator<Item = &'a Event>,
        completion: EncodeMode,
    ) -> Result<EncodedRequest, EncodeError> {
        encode::encode(self, events, completion)
    }

    /// Writes a request from `context`, in the order its provider accepts. Unchanged messages keep the bytes they
    /// came with. [`check`](crate::legality::check) finds no fault in the result, and [`recount`](render::recount)
    /// never finds more tokens than [`Context::tokens`].
    ///
    /// ```
    /// use epitome_core::context::Context;
    /// use epitome_wire::{Format, legality::check, render::{RenderOptions, RenderedRequest, recount}};
    ///
    /// fn sendable(context: &Context) -> Result<RenderedRequest, Box<dyn std::error::Error>> {
    ///     let options = RenderOptions::of(Format::Anthropic);
    ///     let rendered = Format::Anthropic.render(context, &options)?;
    ///     assert!(check(Format::Anthropic, &rendered.body, &options.rules).is_empty());
    ///     assert!(recount(Format::Anthropic, &rendered.body, context.meter())? <= context.tokens());
    ///     Ok(rendered)
    /// }
    /// ```
    pub fn render(self, context: &Context, options: &RenderOptions) -> Result<RenderedRequest, RenderError> {
        render::render(self, context, options)
    }

    /// Splits a rendered request into blocks, as the provider's cache sees it. The blocks' sizes add up to
    /// [`recount`](render::recount) of the whole; blocks that `memo` has met before are not counted again.
    pub fn prompt(self, body: &str, memo: &mut PromptMemo) -> Result<Prompt, WireError> {
        prompt_blocks::prompt(self, body, memo)
    }

    /// Name of the format.
    pub fn name(self) -> &'static str {
        self.facts().name
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no wire format: expected openai-chat, openai-responses, anthropic or gemini")]
pub struct UnknownFormatError(pub String);

impl FromStr for Format {
    type Err = UnknownFormatError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormatError(name.to_owned()))
    }
}

impl From<Format> for String {
    fn from(format: Format) -> Self {
        format.name().to_owned()
    }
}

impl TryFrom<String> for Format {
    type Error = UnknownFormatError;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_reads_back_under_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
            assert_eq!(Format::of_dialect(&format.dialect()), Some(format));
        }
        assert!("bedrock".parse::<Format>().unwrap_err().to_string().contains("expected openai-chat"));
    }
}
