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

use crate::{error::WireError, format::Format, json::Json};

/// Reads a response.
pub(crate) fn decode(format: Format, json: &str) -> Result<Vec<Event>, WireError> {
    let provider = format.provider();
    let what = provider.facts().labels.response;
    let body = Json::parse(json, what)?;
    if let Some(joined) = provider.joined_response(&body) {
        return decode(format, &joined);
    }
    let response = body.require_object(what)?;
    let names = &provider.facts().answer;
    let [answer, model] = [names.id_key, names.model_key].map(|name| response.text_at(name));
    let envelope = ResponseEnvelope { format, answer: answer.map(Into::into), model: model.map(Into::into) };
    let events = provider.read_response(&envelope, &response);
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
pub(crate) struct ResponseEnvelope {
    format: Format,
    answer: Option<AnswerId>,
    model: Option<ModelName>,
}

impl ResponseEnvelope {
    /// The same event, as a fragment of this answer.
    pub(crate) fn signed(&self, mut event: Event) -> Event {
        if let Fact::AssistantSaid { answer, model, .. } = &mut event.fact {
            answer.clone_from(&self.answer);
            model.clone_from(&self.model);
        }
        event
    }

    pub(crate) fn closing(&self, usage: Option<Usage>, envelope: &str) -> Event {
        match usage {
            Some(usage) => self.used(usage, envelope),
            None => self.beside("response", envelope),
        }
    }

    pub(crate) fn used(&self, usage: Usage, raw: &str) -> Event {
        let fact = Fact::UsageReported { answer: self.answer.clone(), model: self.model.clone(), usage };
        self.silent(fact, raw)
    }

    pub(crate) fn beside(&self, kind: &str, raw: &str) -> Event {
        self.silent(Fact::Carried { kind: kind.to_owned() }, raw)
    }

    /// An event that no client sends back.
    pub(crate) fn silent(&self, fact: Fact, raw: &str) -> Event {
        let raw = RawJson { dialect: self.format.dialect(), json: raw.into() };
        Event { time: None, origin: None, fact, raw, normal: None }
    }
}
