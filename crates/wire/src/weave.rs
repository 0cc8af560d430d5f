//! A client's history with decisions made in it: its own units where nobody touched them, words of ours where somebody did.
//!
//! A [`Plan`] says what is sent of a history. It holds for every later request of the same history as long as nothing more
//! is decided: what is new goes out as it comes. So a plan is made once an epoch, and whoever keeps it can write every
//! request of that epoch again.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use epitome_core::{
    Event, Fact, Logged, Part, Seq,
    context::{self, Body, Context, Fidelity},
    event::Dialect,
    seq_set::SeqSet,
};
use serde::{Deserialize, Serialize};

use crate::{
    format::Format,
    json::Json,
    marks,
    openai_responses::is_empty_reasoning,
    render::{self, Breakpoints, RenderError, RenderOptions, Rendered},
    request,
};

/// What is sent of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is sent in place of the first units.
    pub pieces: Vec<Piece>,
    /// The first unit from which on all go out as they come.
    pub onward: usize,
}

/// A piece of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Piece {
    /// The client's units `from..to`.
    Units {
        /// The first.
        from: usize,
        /// The one after the last.
        to: usize,
    },
    /// The JSON of one message, or item.
    Own(String),
}

impl Plan {
    /// Whether everything goes out as it comes.
    pub fn is_plain(&self) -> bool {
        self.pieces.is_empty() && self.onward == 0
    }

    /// What is sent of a history of so many units; `None` if that ends before what was decided.
    pub fn through(&self, units: usize) -> Option<impl Iterator<Item = &Piece>> {
        (self.onward <= units).then(|| self.pieces.iter())
    }

    /// Whether what it sends of `units` goes on from what `before` sent of `sent`: nothing of that is sent otherwise.
    pub fn extends(&self, units: usize, before: &Self, sent: usize) -> bool {
        let mut now = self.flat(units);
        before.flat(sent).all(|was| now.next() == Some(was))
    }

    /// Every unit and every word of ours by itself, in order.
    fn flat(&self, units: usize) -> impl Iterator<Item = Flat<'_>> {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Units { from, to } => Either::Units(*from..*to),
            Piece::Own(text) => Either::Own(Some(text)),
        });
        pieces.chain((self.onward..units).map(Flat::Unit))
    }

    /// The units that go out as they come, of so many.
    pub fn kept(&self, units: usize) -> impl Iterator<Item = usize> {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Units { from, to } => *from..*to,
            Piece::Own(_) => 0..0,
        });
        pieces.chain(self.onward..units)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flat<'p> {
    Unit(usize),
    Own(&'p str),
}

/// A piece, one after another.
enum Either<'p> {
    Units(Range<usize>),
    Own(Option<&'p str>),
}

impl<'p> Iterator for Either<'p> {
    type Item = Flat<'p>;
    fn next(&mut self) -> Option<Flat<'p>> {
        match self {
            Self::Units(units) => units.next().map(Flat::Unit),
            Self::Own(text) => text.take().map(Flat::Own),
        }
    }
}

/// What the origin of events says that a client does not have, or not like this: calls that were answered on the way, and
/// their results.
pub const HIDDEN: &str = "epitome:hidden";

/// Whether a client does not have an event, or not like this.
pub fn is_hidden(event: &Event) -> bool {
    event.origin.as_deref() == Some(HIDDEN)
}

/// Whether an event is an item that no composed request holds, though the client sends it: reasoning without an id, a seal or
/// words.
pub fn is_unsendable(event: &Event) -> bool {
    // The fact says nearly always that there is more to it, so that hardly any item is read for this.
    let is_blank = match &event.fact {
        Fact::AssistantSaid { parts, .. } => match parts.as_slice() {
            [Part::Reasoning { text, .. }] => text.trim().is_empty(),
            _ => false,
        },
        _ => false,
    };
    is_blank
        && event.raw.dialect == Dialect::OpenaiResponses
        && Json::parse(&event.raw.json, "an item").is_ok_and(|item| is_empty_reasoning(&item))
}

/// What a history consists of.
#[derive(Clone, Copy, Debug)]
pub struct History<'h> {
    /// The last event of each unit, oldest first: a unit has the events after the unit before it. Units with the same end
    /// belong together.
    pub ends: &'h [Seq],
    /// The first event that the client has not sent, though it is to be sent.
    pub unsent: Option<Seq>,
}

/// What is to be sent of a history that a context shows.
pub fn plan(
    format: Format,
    context: &Context,
    options: &RenderOptions,
    history: History<'_>,
) -> Result<Plan, RenderError> {
    let rendered = render::unmarked(format, context, options)?;
    Ok(Weaving::new(context, history).plan(&rendered))
}

/// The same, with every message written afresh: as the provider takes it, whatever the client sends.
pub fn rewritten(
    format: Format,
    context: &Context,
    options: &RenderOptions,
    history: History<'_>,
) -> Result<Plan, RenderError> {
    let rendered = render::unmarked(format, context, options)?;
    let weaving = Weaving::new(context, history);
    let messages = rendered.messages.iter();
    let said = messages
        .filter_map(|message| weaving.message(&message.events, &rendered.body[message.bytes.clone()]));
    Ok(Plan { pieces: said.map(|message| own(message.text)).collect(), onward: history.ends.len() })
}

struct Weaving<'c> {
    ends: &'c [Seq],
    unsent: Option<Seq>,
    /// What the client does not have, or not like this, and what it sends in vain: units with such are written afresh.
    hidden: SeqSet,
    /// The events that are shown, each with its bytes; not those beside the history.
    shown: BTreeMap<Seq, &'c str>,
    /// What was decided about.
    touched: SeqSet,
    /// What is shown nowhere.
    left_out: SeqSet,
    /// What the client's own summary stands for, and the event that carries it.
    summary: Option<(&'c SeqSet, Seq)>,
}

/// A message of the history that is to be sent.
struct Message<'t> {
    /// The units it shows something of.
    units: BTreeSet<usize>,
    /// Whether it says what the client says.
    is_kept: bool,
    text: &'t str,
}

impl<'c> Weaving<'c> {
    fn new(context: &'c Context, History { ends, unsent }: History<'c>) -> Self {
        let left_out = SeqSet::union(context.elided().iter().map(|elision| &elision.events));
        let (shown, touched) = (BTreeMap::new(), SeqSet::default());
        let hidden = SeqSet::default();
        let mut weaving = Self { ends, unsent, hidden, shown, touched, left_out, summary: None };
        for segment in context.segments() {
            match segment.body() {
                Body::Prefix(event) if event.event.normal.is_none() => {}
                Body::Summary(event) if event.event.normal.is_some() => {
                    weaving.summary = Some((segment.stands_for(), event.id.seq));
                }
                _ if segment.fidelity() == Fidelity::Verbatim => {}
                _ => weaving.touched.extend(segment.stands_for()),
            }
        }
        for message in context.messages() {
            let mut show = |event: &'c Logged| {
                if is_hidden(&event.event) || is_unsendable(&event.event) {
                    weaving.hidden.insert(event.id.seq);
                }
                weaving.shown.insert(event.id.seq, &event.event.raw.json);
            };
            match &message {
                context::Message::Instruction { segment, event } => {
                    if !segment.is_prefix() || event.event.normal.is_some() {
                        show(event);
                    }
                }
                context::Message::User { event, .. } | context::Message::Carried { event, .. } => show(event),
                context::Message::Answer(answer) => {
                    answer.fragments.iter().for_each(|fragment| show(fragment.event));
                }
                context::Message::Returned(returned) => {
                    if let Some(event) = returned.event {
                        show(event);
                    }
                    for outcome in &returned.outcomes {
                        if let context::Shown::Returned { event, .. } = outcome.shown {
                            show(event);
                        }
                    }
                }
                context::Message::Summary { .. } | context::Message::Note { .. } => {}
            }
        }
        weaving
    }

    fn plan(&self, rendered: &Rendered) -> Plan {
        let messages: Vec<Message<'_>> = rendered
            .messages
            .iter()
            .filter_map(|message| self.message(&message.events, &rendered.body[message.bytes.clone()]))
            .collect();
        let ours = ours(&messages);
        let mut pieces: Vec<Piece> = Vec::new();
        for message in &messages {
            if message.units.is_empty() || !message.units.is_disjoint(&ours) {
                pieces.push(own(message.text));
                continue;
            }
            for unit in &message.units {
                self.show(*unit, &mut pieces);
            }
        }
        let mut onward = self.ends.len();
        if let Some(Piece::Units { from, to }) = pieces.last()
            && *to == onward
        {
            onward = *from;
            pieces.pop();
        }
        Plan { pieces, onward }
    }

    /// A message of the history; `None` if it stands beside it.
    fn message<'t>(&self, events: &SeqSet, text: &'t str) -> Option<Message<'t>> {
        if let Some((stood_for, seq)) = self.summary
            && stood_for.first().is_some_and(|first| events.contains(first))
        {
            return Some(Message { units: BTreeSet::from([self.unit(seq)?]), is_kept: true, text });
        }
        let runs = events.runs().iter();
        let shown: Vec<(Seq, &str)> = runs
            .flat_map(|run| self.shown.range(run.first..=run.last))
            .map(|(seq, raw)| (*seq, *raw))
            .collect();
        let touched = events.runs().iter().any(|run| overlaps(&self.touched, run.first, run.last));
        // What comes after the last unit goes out with what stands behind the history.
        let units: BTreeSet<usize> = shown.iter().filter_map(|(seq, _)| self.unit(*seq)).collect();
        if shown.iter().any(|(seq, _)| self.unsent.is_some_and(|unsent| *seq >= unsent)) {
            return Some(Message { units, is_kept: false, text });
        }
        if units.is_empty() && !touched && !events.is_empty() {
            return None;
        }
        let hides = units.iter().any(|unit| self.hides(*unit));
        let same = !hides && matches!(shown[..], [(_, raw)] if raw == text);
        let is_kept = same || !(hides || touched || units.iter().any(|unit| self.is_touched(*unit)));
        Some(Message { units, is_kept, text })
    }

    /// Whether the client does not have all of a unit, or has more of it than is sent.
    fn hides(&self, unit: usize) -> bool {
        let before = unit.checked_sub(1).map_or(Seq::START, |before| self.ends[before]);
        overlaps(&self.hidden, before.next(), self.ends[unit])
    }

    /// Whether anything was decided about a unit. Between its items may stand what is none, such as a compaction.
    fn is_touched(&self, unit: usize) -> bool {
        let before = unit.checked_sub(1).map_or(Seq::START, |before| self.ends[before]);
        let (first, last) = (before.next(), self.ends[unit]);
        first <= last
            && (self.shown.range(first..=last).any(|(seq, _)| self.touched.contains(*seq))
                || overlaps(&self.left_out, first, last))
    }

    /// The first of the units that an event belongs to.
    fn unit(&self, seq: Seq) -> Option<usize> {
        let unit = self.ends.partition_point(|end| *end < seq);
        (unit < self.ends.len()).then_some(unit)
    }

    /// Sends a unit as it comes, with those that belong to it; once.
    fn show(&self, unit: usize, pieces: &mut Vec<Piece>) {
        let end = self.ends[unit];
        let next = self.ends.partition_point(|other| *other <= end);
        match pieces.last_mut() {
            Some(Piece::Units { from, to }) if (*from..*to).contains(&unit) => {}
            Some(Piece::Units { to, .. }) if *to == unit => *to = next,
            _ => pieces.push(Piece::Units { from: unit, to: next }),
        }
    }
}

/// A message of ours. A log keeps each message as it first came, marked as the newest one: such marks are not ours to repeat,
/// and there may be more of them than a provider takes.
fn own(text: &str) -> Piece {
    Piece::Own(unmarked(text).into_owned())
}

fn overlaps(set: &SeqSet, first: Seq, last: Seq) -> bool {
    set.runs().iter().any(|run| run.first <= last && first <= run.last)
}

/// The units that are written afresh: those of messages that do not say what the client says, and those that share a
/// message with such.
fn ours(messages: &[Message<'_>]) -> BTreeSet<usize> {
    let mut ours: BTreeSet<usize> = BTreeSet::new();
    for message in messages.iter().filter(|message| !message.is_kept) {
        ours.extend(&message.units);
    }
    loop {
        let known = ours.len();
        for message in messages {
            if !message.units.is_disjoint(&ours) {
                ours.extend(&message.units);
            }
        }
        if ours.len() == known {
            return ours;
        }
    }
}

/// JSON without what asks a provider's cache to keep what it has read.
pub fn unmarked(json: &str) -> Cow<'_, str> {
    marks::stripped(json)
}

/// Whether a request itself asks its provider's cache to keep what it has read. What is said in it does not count.
pub fn is_marked(format: Format, body: &str) -> bool {
    let named = [marks::CACHE_CONTROL, marks::BREAKPOINT].into_iter().any(|key| is_member(body, key));
    named
        && Json::parse(body, "a request").is_ok_and(|request| render::count_breakpoints(format, &request) > 0)
}

/// Whether some object in a JSON text has a member of this name: in what is said, the quotes would be escaped.
fn is_member(json: &str, key: &str) -> bool {
    json.match_indices(key).any(|(at, _)| {
        let (before, after) = (&json[..at], &json[at + key.len()..]);
        let is_name = before.ends_with('"') && !before.ends_with("\\\"");
        is_name && after.strip_prefix('"').is_some_and(|after| after.trim_start().starts_with(':'))
    })
}

/// Whether two forms of an item say the same to a model: cache marks, and how a text is written down, are nothing to it.
pub fn says_the_same(format: Format, one: &str, other: &str) -> bool {
    let normal = |raw: &str| {
        let json = Json::parse(raw, "an item").ok()?;
        request::read_item(format, &json).normal
    };
    let plain = unmarked(one) == unmarked(other);
    plain || normal(one).is_some_and(|one| normal(other) == Some(one))
}

/// A request with its cache marks placed where they pay. `summary` is what the summary says that it stands on.
pub fn marked(format: Format, body: String, breakpoints: Breakpoints, summary: Option<&str>) -> String {
    render::mark(format, body, breakpoints, summary)
}
