//! Places of a session: the units that a request shows or leaves out.
//!
//! They are the places of a complete request, so that content which no request ever shows, such as a result
//! without a call, does not count as a source. Reasoning is no place: providers drop it, so the session
//! cannot have relied on it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use epitome::core::{
    ContentPart, Fact, Seq, Tokens,
    client_text::is_user_speaking,
    context::{Context, EventNaming, Segment, SegmentBody, SegmentContent, VisibleOutcome},
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    tokens::TokenCounter,
};
use serde_json::Value;

/// Identity of a place: an event, and within it 0 for the whole, or 1 and on for its parts or results.
pub(super) type TextPlaceId = (Seq, usize);

/// Author of the text at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextAuthor {
    /// The user.
    User,
    /// A tool, or a client in the user's name.
    Result,
    /// The model, in the answer to a call.
    Model {
        /// Number of the call.
        call: u64,
    },
    /// Instructions, hooks, and everything else.
    Other,
}

/// A place with its text.
#[derive(Clone, Debug)]
pub(super) struct TextPlace {
    pub(super) seq: Seq,
    pub(super) voice: TextAuthor,
    /// First call whose request can show it.
    pub(super) from: u64,
    pub(super) texts: Vec<String>,
}

/// All places of a session, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct TextPlaces {
    list: Vec<TextPlace>,
    numbers: HashMap<TextPlaceId, u32>,
    calls: CallPositions,
}

/// Positions of events among the calls.
#[derive(Clone, Debug, Default)]
struct CallPositions {
    /// First call whose request can show an event.
    from: HashMap<Seq, u64>,
    /// Events of answers without a call.
    unasked: HashSet<Seq>,
    count: u64,
}

impl TextPlaces {
    /// Places of a line, with the request that shows all of it.
    pub(super) fn of(line: &EventLine, context: &Context) -> Self {
        let mut places = Self { calls: CallPositions::of(line, context), ..Self::default() };
        for segment in context.segments() {
            sights(segment, &mut |spot, voice, sight| places.add(spot, voice, &sight));
        }
        places
    }

    fn add(&mut self, spot: TextPlaceId, voice: TextAuthor, sight: &TextPlaceView<'_>) {
        let from = self.calls.from.get(&spot.0).copied().unwrap_or_default();
        let voice = match voice {
            TextAuthor::Model { .. } if self.calls.unasked.contains(&spot.0) => TextAuthor::Other,
            TextAuthor::Model { .. } => TextAuthor::Model { call: from.saturating_sub(1) },
            other => other,
        };
        let mut texts = Vec::new();
        sight.visit(&mut |text| texts.push(text.to_owned()));
        if let Ok(number) = u32::try_from(self.list.len()) {
            self.numbers.entry(spot).or_insert(number);
            self.list.push(TextPlace { seq: spot.0, voice, from, texts });
        }
    }

    /// Number of a place.
    pub(super) fn number(&self, spot: TextPlaceId) -> Option<u32> {
        self.numbers.get(&spot).copied()
    }

    /// Place with a number.
    pub(super) fn get(&self, number: u32) -> &TextPlace {
        &self.list[number as usize]
    }

    /// The places with their numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &TextPlace)> {
        (0..).zip(&self.list)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of calls in the session.
    pub(super) fn calls(&self) -> u64 {
        self.calls.count
    }

    /// First call whose request can show an event.
    pub(super) fn from(&self, event: Seq) -> Option<u64> {
        self.calls.from.get(&event).copied()
    }

    /// Drops the texts, which are only needed to find the facts.
    pub(super) fn forget_texts(&mut self) {
        self.list.iter_mut().for_each(|place| place.texts = Vec::new());
    }
}

/// A line without its compactions, and the request that shows all of it.
pub(super) fn whole(line: &EventLine) -> (EventLine, Context) {
    let events = line.events().filter(|event| {
        !matches!(
            event.event.fact,
            Fact::Compacted(_) | Fact::CompactionReverted { .. } | Fact::CompactionRestored { .. }
        )
    });
    let line = EventLine::new(events.cloned());
    let meter = Meter::new(Arc::new(ZeroCounter), TokenOverhead::default());
    let context = project(&line, Arc::new(meter), EventNaming::Messages);
    (line, context)
}

impl CallPositions {
    /// Counts calls as a rehearsal does: one for each answer, except one that opens a session.
    fn of(line: &EventLine, context: &Context) -> Self {
        let begins = context.segments().get(context.prefix_len()).map(|segment| segment.key().seq);
        let mut calls = Self::default();
        let mut answering = None;
        for event in line.events() {
            let seq = event.id.seq;
            if let Fact::AssistantSaid { answer, .. } = &event.event.fact {
                let goes_on = answer.is_some() && *answer == answering;
                if !goes_on && begins.is_some_and(|begins| begins < seq) {
                    calls.count += 1;
                } else if calls.count == 0 {
                    calls.unasked.insert(seq);
                }
                answering.clone_from(answer);
            }
            calls.from.insert(seq, calls.count);
        }
        calls
    }
}

/// View of a place in a segment.
pub(super) enum TextPlaceView<'s> {
    /// Original parts.
    AsSent(&'s [ContentPart]),
    /// Original content of an unknown kind.
    Raw(&'s str),
    /// Parts that replace the original.
    Replaced(&'s [ContentPart]),
}

impl TextPlaceView<'_> {
    /// Calls `see` with every text, as the model reads it.
    pub(super) fn visit(&self, see: &mut impl FnMut(&str)) {
        match self {
            Self::AsSent(parts) | Self::Replaced(parts) => parts.iter().for_each(|part| visit(part, see)),
            Self::Raw(json) => see(json),
        }
    }
}

/// Calls `see` for every place that a segment shows something of. Summaries and notes are no places.
pub(super) fn sights<'s>(
    segment: &'s Segment,
    see: &mut impl FnMut(TextPlaceId, TextAuthor, TextPlaceView<'s>),
) {
    let model = TextAuthor::Model { call: 0 };
    match segment.body() {
        SegmentBody::Prefix(event) | SegmentBody::Instruction(event) => {
            see((event.id.seq, 0), TextAuthor::Other, TextPlaceView::AsSent(event.event.fact.parts()));
        }
        SegmentBody::Carried(event) => {
            see((event.id.seq, 0), TextAuthor::Other, TextPlaceView::Raw(&event.event.raw.json));
        }
        SegmentBody::User { event, content } => {
            let voice = match &event.event.fact {
                Fact::Injected { .. } => TextAuthor::Other,
                // A notification or a command's output counts as a result, because the user did not write it.
                Fact::UserSaid { .. } if !is_user_speaking(&event.event.fact) => TextAuthor::Result,
                _ => TextAuthor::User,
            };
            see((event.id.seq, 0), voice, sight(content, event.event.fact.parts()));
        }
        SegmentBody::Answer { event, part } => {
            if let Some(said) = event.event.fact.parts().get(*part)
                && !matches!(said, ContentPart::Reasoning { .. })
            {
                see((event.id.seq, part + 1), model, TextPlaceView::AsSent(std::slice::from_ref(said)));
            }
        }
        SegmentBody::Exchange { event, part, outcome } => {
            if let Some(call) = event.event.fact.parts().get(*part) {
                see((event.id.seq, part + 1), model, TextPlaceView::AsSent(std::slice::from_ref(call)));
            }
            if let VisibleOutcome::Returned { event, index, content } = outcome
                && let Some(result) = event.event.fact.results().get(*index)
            {
                see((event.id.seq, index + 1), TextAuthor::Result, sight(content, &result.parts));
            }
        }
        SegmentBody::Summary(_) | SegmentBody::Note(_) => {}
    }
}

fn sight<'s>(content: &'s SegmentContent, sent: &'s [ContentPart]) -> TextPlaceView<'s> {
    match content {
        SegmentContent::AsSent => TextPlaceView::AsSent(sent),
        SegmentContent::Replaced(parts) => TextPlaceView::Replaced(parts),
    }
}

/// Calls `see` with every text of a part. A call's arguments are shown as the tool reads them: escapes would
/// hide where a word begins, and the arguments' names are the tool's and not the model's.
fn visit(part: &ContentPart, see: &mut impl FnMut(&str)) {
    match part {
        ContentPart::Text { text } | ContentPart::Refusal { text } => see(text),
        ContentPart::ToolCall(call) => match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments @ (Value::Object(_) | Value::Array(_))) => leaves(&arguments, see),
            _ => see(&call.arguments),
        },
        ContentPart::Opaque { json, .. } => see(json),
        ContentPart::Reasoning { .. } | ContentPart::Media(_) => {}
    }
}

/// The reader of the JSON limits the depth.
fn leaves(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Number(number) => see(&number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| leaves(value, see)),
        Value::Object(fields) => fields.values().for_each(|value| leaves(value, see)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A counter that counts nothing, for projections whose size does not matter.
struct ZeroCounter;

impl TokenCounter for ZeroCounter {
    fn name(&self) -> &'static str {
        "uncounted"
    }

    fn count(&self, _: &str) -> Tokens {
        Tokens(0)
    }
}
