//! A request on its way through a gateway, read only as far as it takes to recognise the history it continues.
//!
//! A history is a list of [`HistoryUnit`]s, each with the digest it is recognised by. Changes that clients make by
//! themselves do not change a digest: beyond the differences that the normalised form ignores, these are an answer's
//! reasoning (some clients send it back and some do not), notes that a client moves from place to place, and a
//! message about project and surroundings before the user's first words, which clients write anew with every start.
//! Units that were seen before cost a hash of their bytes, many together, and nothing else of them is read.
//!
//! Every message, or Responses item, is a unit, except those that clients need not send back: empty answers,
//! reasoning that is an item, references to items, a trigger of a compaction, messages that are only a moving note.
//! Those belong to the unit after them. In a history with such notes, consecutive messages of the same speaker are
//! one unit, since the client splits and joins them as its notes move.

mod api_keys;
mod client_prompts;
mod decode;
mod frame;
mod item_references;
mod memo;
mod memo_lookup;
mod message_digests;
mod moving_notes;
mod piece_properties;
mod prefix_memo;
mod read;
mod split;
mod summary_match;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use epitome_core::{
    Digest, Event,
    id::{AnswerId, ModelName},
};

pub(crate) use self::client_prompts::asks_for_summary;
pub(crate) use self::message_digests::{AnswerRun, DigestCollector, MessageDigests, MessageShape};
pub use self::{client_prompts::may_ask_for_summary, frame::RequestFrame, memo::MessageMemo};
use self::{
    memo::PieceKind,
    piece_properties::PieceProperties,
    split::{RequestMember, RequestSlice},
};
use crate::{
    caller::RequestPurpose,
    error::WireError,
    format::Format,
    json::{Json, JsonValue},
    request::{self, RequestKeys},
};

/// A request that was received, by its bytes and its units.
///
/// ```
/// use epitome_wire::{Format, incoming::{MessageMemo, IncomingRequest}};
///
/// let memo = MessageMemo::new(1_000);
/// let first = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#;
/// let first = IncomingRequest::read(Format::Anthropic, first, &memo)?;
/// let next = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello."}]}"#;
/// let next = IncomingRequest::read(Format::Anthropic, next, &memo)?;
/// assert!(next.units().starts_with(first.units()));
/// assert_eq!(next.instructions(), first.instructions());
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct IncomingRequest<'a> {
    format: Format,
    body: &'a str,
    members: Vec<RequestMember<'a>>,
    items: Vec<HistoryItem<'a>>,
    /// Number of items before the history: messages of the system or developer.
    opening: usize,
    units: Vec<HistoryUnit>,
    /// Items of each unit.
    spans: Vec<Range<usize>>,
    references: Vec<String>,
    instructions: Digest,
    /// Purpose that its system prompt shows.
    system_asks: Option<RequestPurpose>,
}

/// An item of a history.
#[derive(Debug)]
struct HistoryItem<'a> {
    slice: RequestSlice<'a>,
    /// Its properties.
    known: Arc<PieceProperties>,
    /// Its event, if it had to be read for them.
    event: Option<Box<Event>>,
}

/// A message of a history, or several that are recognised together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryUnit {
    /// Digest it is recognised by.
    pub digest: Digest,
    /// Its author.
    pub speaker: UnitSpeaker,
}

/// Author of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitSpeaker {
    /// The user, or the client in their name.
    User,
    /// The model.
    Model,
    /// Tools.
    Tools,
    /// The system or developer, in the middle of a history.
    System,
    /// Any other author.
    Other,
}

/// Place of the history before the request, if the request does not hold it whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriorHistory {
    /// None: the whole history is in the request.
    Nothing,
    /// An earlier response (`previous_response_id`).
    Response(AnswerId),
    /// A conversation that the provider keeps.
    Conversation(String),
}

impl<'a> IncomingRequest<'a> {
    /// Reads a request as far as needed.
    pub fn read(format: Format, body: &'a str, memo: &MessageMemo) -> Result<Self, WireError> {
        read::read(format, body, memo)
    }

    /// Format of the request.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The bytes.
    pub fn body(&self) -> &'a str {
        self.body
    }

    /// The model it asks.
    pub fn model(&self) -> Option<ModelName> {
        let model = self.setting("model")?;
        model.as_text().map(|model| self.format.provider().model_name(model).into())
    }

    /// Output limit in tokens, if it sets one.
    pub fn answer_limit(&self) -> Option<u64> {
        self.format.provider().answer_limit(&|name| self.setting(name)).filter(|limit| *limit > 0)
    }

    /// Returns true if it asks for a streamed answer.
    pub fn wants_stream(&self) -> bool {
        matches!(self.setting("stream").map(|stream| stream.value), Some(JsonValue::Bool(true)))
    }

    /// Returns true if its provider keeps the answer, so that it knows its items by their ids when they are sent
    /// back.
    pub fn keeps_answer(&self) -> bool {
        !matches!(self.setting("store").map(|store| store.value), Some(JsonValue::Bool(false)))
    }

    /// Place of the history that comes before the request's.
    pub fn follows(&self) -> PriorHistory {
        let said = |text: &str| !text.is_empty();
        if let Some(prior) = self.format.provider().prior_history(&|name| self.setting(name)) {
            return prior;
        }
        if let Some(response) = self.setting("previous_response_id")
            && let Some(id) = response.as_text().filter(|id| said(id))
        {
            return PriorHistory::Response(id.into());
        }
        let conversation = self.setting("conversation");
        let id = conversation.as_ref().and_then(|value| value.as_text().or_else(|| value.text_at("id")));
        id.filter(|id| said(id)).map_or(PriorHistory::Nothing, |id| PriorHistory::Conversation(id.to_owned()))
    }

    /// The first place of its history that its provider would refuse and only its author can repair, with the rule it
    /// breaks. Rules that depend on neighbouring messages are not checked.
    pub fn first_violation(&self) -> Option<(String, &'static str)> {
        let found = |(index, item): (usize, &HistoryItem<'_>)| {
            let (place, rule) = item.known.illegal.as_ref()?;
            Some((format!("/{}/{index}{place}", RequestKeys::of(self.format).history), *rule))
        };
        self.items.iter().enumerate().find_map(found)
    }

    /// The ids of items it names instead of holding them (`item_reference`).
    pub fn references(&self) -> &[String] {
        &self.references
    }

    /// Its history after the leading instructions, oldest first.
    pub fn units(&self) -> &[HistoryUnit] {
        &self.units
    }

    /// The normalised chain after each number of units, from none to all.
    pub fn chain(&self) -> Vec<Digest> {
        let history =
            self.member(RequestKeys::of(self.format).history).and_then(|member| member.list.as_ref());
        prefix_memo::chain(&self.units, history.and_then(|list| list.begun.as_ref()))
    }

    /// A digest of settings, system prompt, tools and leading instructions, by which a change in them is noticed.
    ///
    /// Settings that differ from call to call or mean nothing to the model are left out: the caller and its session,
    /// the way the answer is sent and its length, the place where a history is kept.
    pub fn instructions(&self) -> Digest {
        self.instructions
    }

    /// Settings, system prompt, tools and leading instructions as events. They have no normalised digest: a changed
    /// system prompt does not make another history.
    pub fn opening(&self) -> Vec<Event> {
        decode::opening(self)
    }

    /// The event that records that this request has no tools while its thread had some.
    pub fn dropped_tools(&self) -> Event {
        decode::dropped_tools(self.format)
    }

    /// The units from `from` on, as events with the bytes they came with. The last event of each unit has the unit's
    /// digest, all others none. Items after the last unit come at the end.
    pub fn events(&self, from: usize) -> Vec<Event> {
        decode::events(self, from)
    }

    /// The items up to the end of the first `units` units, with the bytes they came with, as a JSON array.
    pub fn raw(&self, units: usize) -> String {
        let last = units.checked_sub(1).and_then(|last| self.spans.get(last).or(self.spans.last()));
        let end = last.map_or(self.opening, |span| span.end);
        let items = self.items.get(self.opening..end).unwrap_or_default();
        let raw: Vec<&str> = items.iter().map(|item| item.slice.raw).collect();
        format!("[{}]", raw.join(","))
    }

    /// The request by its bytes; `None` if its history is not a list, or has no unit that can be recognised.
    pub fn frame(&self) -> Option<RequestFrame<'a>> {
        frame::frame(self)
    }

    /// The request by its bytes, with no units.
    pub fn unframed(&self) -> RequestFrame<'a> {
        frame::unframed(self)
    }

    /// Puts recorded events, by their ids, in the place of items that are only named.
    pub fn resolve(&mut self, events: &BTreeMap<String, Event>) {
        item_references::resolve(self, events);
    }

    /// Finds the unit that repeats `summary`, a text that a model wrote as the client's own compaction: the history
    /// up to it stands for the compacted part.
    pub fn find_summary(&self, summary: &str) -> Option<usize> {
        summary_match::find_summary(self, summary)
    }

    /// Returns true if the client has its provider keep the context small: clear tool results, or summarise. Clearing
    /// only thinking, as agents do by default, does not count.
    pub fn manages_context(&self) -> bool {
        let Some(managed) = self.setting("context_management") else { return false };
        let edits = managed.as_array().unwrap_or_else(|| managed.array_at("edits"));
        let keeps_small =
            |edit: &Json<'_>| edit.text_at("type").is_some_and(|kind| !kind.starts_with("clear_thinking"));
        edits.iter().any(keeps_small)
    }

    /// A setting; the last one if it repeats.
    pub(crate) fn setting(&self, key: &str) -> Option<Json<'a>> {
        // Every member was checked to be JSON when the request was read.
        self.member(key).and_then(|member| Json::parse(member.value.raw, "a setting").ok())
    }

    /// Returns true if the model is given any tools. The list is not parsed: it may be the largest part of a request.
    pub fn has_tools(&self) -> bool {
        let tools = self.member(RequestKeys::of(self.format).tools).map(|tools| tools.value.raw);
        let is_empty = |list: &str| list.trim_start_matches('[').trim_start().starts_with(']');
        tools.is_some_and(|tools| tools != "null" && !(tools.starts_with('[') && is_empty(tools)))
    }

    /// Purpose that its system prompt shows, if that is not the next turn.
    pub(crate) fn system_purpose(&self) -> Option<RequestPurpose> {
        let opening = self.items.iter().take(self.opening);
        self.system_asks.or_else(|| opening.into_iter().find_map(|item| item.known.asks))
    }

    /// Purpose that the newest message of its history shows, if that is not the next turn.
    pub(crate) fn last_purpose(&self) -> Option<RequestPurpose> {
        let items = self.items.iter().skip(self.opening).rev();
        let mut said = items.filter(|item| item.known.digest.is_some() || item.known.asks.is_some());
        said.next().and_then(|item| item.known.asks)
    }

    fn member(&self, key: &str) -> Option<&RequestMember<'a>> {
        self.members.iter().rev().find(|member| member.key == key)
    }
}

/// Adds to the events of an answer, as [`Format::decode_response`] or a [`StreamDecoder`](crate::StreamDecoder) gave
/// them, the digests by which [`IncomingRequest`] recognises them when a client sends them back.
pub fn with_unit_digests(format: Format, answer: Vec<Event>) -> Vec<Event> {
    let recognise = |mut event: Event| {
        if event.normal.is_some() {
            let raw = Json::parse(&event.raw.json, "an answer").ok();
            event.normal = raw.and_then(|raw| format.provider().message_digests(&raw, &event.fact).digest);
        }
        event
    };
    answer.into_iter().map(recognise).collect()
}

/// Reads an item.
fn read_item(format: Format, place: PieceKind, raw: &str) -> Result<(Event, PieceProperties), WireError> {
    let what = request::request_name(format);
    let json = Json::parse(raw, what)?;
    if place != PieceKind::Bare {
        let event = request::read_item(format, &json);
        let known = PieceProperties::item(format, &json, &event);
        return Ok((event, known));
    }
    // An input that is only a string is recognised as the message it stands for.
    let event = request::bare_input(&json, json.as_text().unwrap_or_default());
    let item = request::bare_item(raw);
    let known = PieceProperties::item(format, &Json::parse(&item, what)?, &event);
    Ok((event, known))
}
