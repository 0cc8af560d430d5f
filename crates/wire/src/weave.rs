//! A client's history with a policy's decisions made in it: the client's own units, and our messages in place of
//! others.
//!
//! A [`Plan`] is the list of parts to send for a history. It holds for every later request of the same history as
//! long as no more decisions are made: new units are sent as they come. So a plan is made once an epoch, and every
//! request of that epoch can be written again from it.

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

/// The parts to send for a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Parts sent in place of the first units.
    pub pieces: Vec<Piece>,
    /// First unit from which on all are sent as they come.
    pub onward: usize,
}

/// A piece of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Piece {
    /// The client's units `from..to`.
    Units {
        /// The first unit.
        from: usize,
        /// The end of the range, one past the last unit.
        to: usize,
    },
    /// The JSON of one message, or item.
    Own(String),
}

impl Plan {
    /// Returns true if everything is sent as it comes.
    pub fn is_plain(&self) -> bool {
        self.pieces.is_empty() && self.onward == 0
    }

    /// The parts sent for a history of `units` units; `None` if that ends before the decisions do.
    pub fn through(&self, units: usize) -> Option<impl Iterator<Item = &Piece>> {
        (self.onward <= units).then(|| self.pieces.iter())
    }

    /// Returns true if the parts it sends for `units` units begin with all parts that `before` sent for `sent` units.
    pub fn extends(&self, units: usize, before: &Self, sent: usize) -> bool {
        let mut now = self.flat(units);
        before.flat(sent).all(|was| now.next() == Some(was))
    }

    /// Every unit and every message of ours by itself, in order.
    fn flat(&self, units: usize) -> impl Iterator<Item = Flat<'_>> {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Units { from, to } => Either::Units(*from..*to),
            Piece::Own(text) => Either::Own(Some(text)),
        });
        pieces.chain((self.onward..units).map(Flat::Unit))
    }

    /// The units that are sent as they come, of the first `units`.
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

/// Two iterators as one type.
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

/// Origin of events that a client does not have, or has in another form: calls that a gateway answered, and their
/// results.
pub const HIDDEN: &str = "epitome:hidden";

/// Returns true if a client does not have an event, or has it in another form.
pub fn is_hidden(event: &Event) -> bool {
    event.origin.as_deref() == Some(HIDDEN)
}

/// Returns true if an event is an item that is left out of composed requests, though the client sends it: reasoning
/// without an id, a seal or words.
pub fn is_unsendable(event: &Event) -> bool {
    // The fact nearly always shows that there is more to it, so that hardly any item is parsed for this.
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

/// Division of a thread's events into the units of a client's history.
#[derive(Clone, Copy, Debug)]
pub struct History<'h> {
    /// The last event of each unit, oldest first: a unit has the events after the unit before it. Units with the same end
    /// belong together.
    pub ends: &'h [Seq],
    /// The first event that is to be sent though the client has not sent it.
    pub unsent: Option<Seq>,
}

/// Makes the plan for a history that a context shows.
pub fn plan(
    format: Format,
    context: &Context,
    options: &RenderOptions,
    history: History<'_>,
) -> Result<Plan, RenderError> {
    let rendered = render::unmarked(format, context, options)?;
    Ok(Weaving::new(context, history).plan(&rendered))
}

/// Makes a plan with every message written anew in the form that the provider accepts, whatever the client sends.
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
    /// Events that the client does not have, or has in another form, or that are not sent: units with such are
    /// written anew.
    hidden: SeqSet,
    /// The events that are shown, each with its bytes; not those beside the history.
    shown: BTreeMap<Seq, &'c str>,
    /// Events that decisions concern.
    touched: SeqSet,
    /// Events that are not shown.
    left_out: SeqSet,
    /// Events that the client's own summary stands for, and the event that carries it.
    summary: Option<(&'c SeqSet, Seq)>,
}

/// A message of the history to send.
struct Message<'t> {
    /// Units of which it shows something.
    units: BTreeSet<usize>,
    /// True if it is the same as the client's.
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

    /// Reads a message of the history; `None` if it is not part of it.
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
        // Events after the last unit are sent with the tail of the request.
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

    /// Returns true if the client does not have all of a unit, or has parts that are not sent.
    fn hides(&self, unit: usize) -> bool {
        let before = unit.checked_sub(1).map_or(Seq::START, |before| self.ends[before]);
        overlaps(&self.hidden, before.next(), self.ends[unit])
    }

    /// Returns true if a decision concerns a unit. Between its items there may be events that are not part of it,
    /// such as a compaction.
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

    /// Adds a unit as it comes, with those that belong to it; each only once.
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

/// Makes a message of ours. A log keeps each message as it first came, with the cache mark of the newest one: such
/// marks are not repeated, since there may be more of them than a provider takes.
fn own(text: &str) -> Piece {
    Piece::Own(unmarked(text).into_owned())
}

fn overlaps(set: &SeqSet, first: Seq, last: Seq) -> bool {
    set.runs().iter().any(|run| run.first <= last && first <= run.last)
}

/// Finds the units that are written anew: those of messages that differ from the client's, and those that share a
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

/// JSON without cache marks.
pub fn unmarked(json: &str) -> Cow<'_, str> {
    marks::stripped(json)
}

/// Returns true if a request asks its provider's cache to keep a prefix. Texts inside it do not count.
pub fn is_marked(format: Format, body: &str) -> bool {
    let named = [marks::CACHE_CONTROL, marks::BREAKPOINT].into_iter().any(|key| is_member(body, key));
    named
        && Json::parse(body, "a request").is_ok_and(|request| render::count_breakpoints(format, &request) > 0)
}

/// Returns true if an object in a JSON text has a member of this name: inside a string, the quotes would be escaped.
fn is_member(json: &str, key: &str) -> bool {
    json.match_indices(key).any(|(at, _)| {
        let (before, after) = (&json[..at], &json[at + key.len()..]);
        let is_name = before.ends_with('"') && !before.ends_with("\\\"");
        is_name && after.strip_prefix('"').is_some_and(|after| after.trim_start().starts_with(':'))
    })
}

/// Returns true if two forms of an item are the same to a model: cache marks and notation do not count.
pub fn says_the_same(format: Format, one: &str, other: &str) -> bool {
    let normal = |raw: &str| {
        let json = Json::parse(raw, "an item").ok()?;
        request::read_item(format, &json).normal
    };
    let plain = unmarked(one) == unmarked(other);
    plain || normal(one).is_some_and(|one| normal(other) == Some(one))
}

/// Places the cache marks of a request where they pay. `summary` is the text of the summary that it stands on.
pub fn marked(format: Format, body: String, breakpoints: Breakpoints, summary: Option<&str>) -> String {
    render::mark(format, body, breakpoints, summary)
}
