//! Reads a whole response into events: the answer, then its usage.
//!
//! Other members of a response (the stop reason, the server) are kept as the raw form of the usage report, with
//! `null` in place of the answer. No client sends that back. The time of an answer is set by the program that
//! receives it: `created` is the clock of a provider, which may be wrong, or 0.

use epitome_core::{
    Event, Fact,
    event::{RawJson, Usage},
    id::{AnswerId, ModelName},
};

use crate::{
    anthropic,
    error::WireError,
    format::Format,
    json::{self, Json},
    normal_digest::ChatMessageSource,
    openai_chat, openai_responses,
};

/// Reads a response.
pub(crate) fn decode(format: Format, json: &str) -> Result<Vec<Event>, WireError> {
    let what = match format {
        Format::OpenaiChat => "a Chat response",
        Format::OpenaiResponses => "a Responses response",
        Format::Anthropic => "an Anthropic response",
    };
    let response = Json::parse(json, what)?.require_object(what)?;
    let envelope = ResponseEnvelope {
        format,
        answer: response.text_at("id").map(Into::into),
        model: response.text_at("model").map(Into::into),
    };
    let events = match format {
        Format::OpenaiChat => envelope.chat(&response),
        Format::OpenaiResponses => envelope.responses(&response),
        Format::Anthropic => envelope.anthropic(&response),
    };
    if events.iter().any(|event| event.normal.is_some()) {
        return Ok(events);
    }
    match error_text(&response) {
        Some(said) => Err(WireError::NoAnswer { what, said }),
        None => Ok(events),
    }
}

/// Text of a provider's error, in its own words.
pub(crate) fn error_text(value: &Json<'_>) -> Option<String> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let said = error.text_at("message").or_else(|| error.as_text()).or_else(|| value.text_at("message"));
    Some(said.unwrap_or(error.raw).to_owned())
}

/// Properties that all events of one response share.
struct ResponseEnvelope {
    format: Format,
    answer: Option<AnswerId>,
    model: Option<ModelName>,
}

impl ResponseEnvelope {
    fn anthropic(&self, response: &Json<'_>) -> Vec<Event> {
        let message = anthropic::read_message(response);
        if !matches!(message.fact, Fact::AssistantSaid { .. }) {
            return vec![self.beside("response", response.raw)];
        }
        let usage = response.get("usage").filter(|usage| usage.is_object());
        let report = usage.map(|usage| self.used(anthropic::read_usage(usage), usage.raw));
        std::iter::once(message).chain(report).collect()
    }

    /// The first choice is the answer; others were never sent back, and are only kept.
    fn chat(&self, response: &Json<'_>) -> Vec<Event> {
        let choices = response.array_at("choices");
        let message = |choice: &Json<'_>| {
            choice
                .get("message")
                .map(|message| openai_chat::read_message(message, ChatMessageSource::InResponse))
        };
        let mut events: Vec<Event> = Vec::new();
        for choice in choices {
            match message(choice) {
                Some(message) if events.is_empty() => events.push(self.signed(message)),
                _ => events.push(self.beside("choice", choice.raw)),
            }
        }
        let first = choices.first().and_then(|choice| choice.get("message"));
        let shown = match (response.get("choices"), first) {
            (Some(all), Some(first)) => vec![(
                all,
                match choices {
                    [only] => format!("[{}]", json::replace_members(only, &[(first, "null")])),
                    _ => "null".to_owned(),
                },
            )],
            _ => Vec::new(),
        };
        let shown: Vec<_> = shown.iter().map(|(value, text)| (*value, text.as_str())).collect();
        let usage = response.get("usage").filter(|usage| usage.is_object()).map(openai_chat::read_usage);
        events.push(self.closing(usage, &json::replace_members(response, &shown)));
        events
    }

    fn responses(&self, response: &Json<'_>) -> Vec<Event> {
        let items = response.array_at("output").iter().map(openai_responses::read_item);
        let mut events: Vec<Event> = items.map(|item| self.signed(item)).collect();
        // A response repeats parts of its request: they are known from there, and large.
        let blank = ["output", "instructions", "tools"].into_iter().filter_map(|key| response.get(key));
        let blank: Vec<_> = blank.map(|value| (value, "null")).collect();
        let usage = response.get("usage").filter(|usage| usage.is_object()).map(openai_responses::read_usage);
        events.push(self.closing(usage, &json::replace_members(response, &blank)));
        events
    }

    /// The same event, as a fragment of this answer.
    fn signed(&self, mut event: Event) -> Event {
        if let Fact::AssistantSaid { answer, model, .. } = &mut event.fact {
            answer.clone_from(&self.answer);
            model.clone_from(&self.model);
        }
        event
    }

    fn closing(&self, usage: Option<Usage>, envelope: &str) -> Event {
        match usage {
            Some(usage) => self.used(usage, envelope),
            None => self.beside("response", envelope),
        }
    }

    fn used(&self, usage: Usage, raw: &str) -> Event {
        let fact = Fact::UsageReported { answer: self.answer.clone(), model: self.model.clone(), usage };
        self.silent(fact, raw)
    }

    fn beside(&self, kind: &str, raw: &str) -> Event {
        self.silent(Fact::Carried { kind: kind.to_owned() }, raw)
    }

    /// An event that no client sends back.
    fn silent(&self, fact: Fact, raw: &str) -> Event {
        let raw = RawJson { dialect: self.format.dialect(), json: raw.into() };
        Event { time: None, origin: None, fact, raw, normal: None }
    }
}
