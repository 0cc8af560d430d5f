//! A client's history with a policy's decisions made in it: the client's own units, and our messages in place of
//! others.
//!
//! A [`RewritePlan`] is the list of parts to send for a history. It holds for every later request of the same history as
//! long as no more decisions are made: new units are sent as they come. So a plan is made once an epoch, and every
//! request of that epoch can be written again from it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use epitome_core::{
    ContentPart, Event, Fact, LoggedEvent, Seq,
    context::{self, Context, Fidelity, SegmentBody},
    seq_set::SeqSet,
};
use serde::{Deserialize, Serialize};

use crate::{
    cache_marks,
    format::Format,
    json::Json,
    render::{self, CacheBreakpoints, RenderError, RenderOptions, RenderedRequest},
    request,
};

/// The parts to send for a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewritePlan {
    /// Parts sent in place of the first units.
    pub pieces: Vec<RewritePiece>,
    /// First unit from which on all are sent as they come.
    pub onward: usize,
}

/// A piece of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RewritePiece {
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

impl RewritePlan {
    /// Returns true if everything is sent as it comes.
    pub fn is_plain(&self) -> bool {
        self.pieces.is_empty() && self.onward == 0
    }

    /// The parts sent for a history of `units` units; `None` if that ends before the decisions do.
    pub fn parts_for(&self, units: usize) -> Option<impl Iterator<Item = &RewritePiece>> {
        (self.onward <= units).then(|| self.pieces.iter())
    }

    /// Returns true if the parts it sends for `units` units begin with all parts that `before` sent for `sent` units.
    pub fn extends(&self, units: usize, before: &Self, sent: usize) -> bool {
        let mut now = self.flat(units);
        before.flat(sent).all(|was| now.next() == Some(was))
    }

    /// Every unit and every message of ours by itself, in order.
    fn flat(&self, units: usize) -> impl Iterator<Item = RewriteElement<'_>> {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            RewritePiece::Units { from, to } => RewriteElements::Units(*from..*to),
            RewritePiece::Own(text) => RewriteElements::Own(Some(text)),
        });
        pieces.chain((self.onward..units).map(RewriteElement::Unit))
    }

    /// The units that are sent as they come, of the first `units`.
    pub fn kept_units(&self, units: usize) -> impl Iterator<Item = usize> {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            RewritePiece::Units { from, to } => *from..*to,
            RewritePiece::Own(_) => 0..0,
        });
        pieces.chain(self.onward..units)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RewriteElement<'p> {
    Unit(usize),
    Own(&'p str),
}

/// Two iterators as one type.
enum RewriteElements<'p> {
    Units(Range<usize>),
    Own(Option<&'p str>),
}

impl<'p> Iterator for RewriteElements<'p> {
    type Item = RewriteElement<'p>;
    fn next(&mut self) -> Option<RewriteElement<'p>> {
        match self {
            Self::Units(units) => units.next().map(RewriteElement::Unit),
            Self::Own(text) => text.take().map(RewriteElement::Own),
        }
    }
}

/// Origin of events that a client does not have, or has in another form: calls that a gateway answered, and their
/// results.
pub const HIDDEN_ORIGIN: &str = "epitome:hidden";

/// Returns true if a client does not have an event, or has it in another form.
pub fn is_hidden(event: &Event) -> bool {
    event.origin.as_deref() == Some(HIDDEN_ORIGIN)
}

/// Returns true if an event is content that a hook added, of which a client knows nothing.
pub fn is_added(event: &Event) -> bool {
    event.normal.is_none() && matches!(event.fact, Fact::Injected { .. })
}

/// Returns true if an event is an item that is left out of composed requests, though the client sends it: reasoning
/// without an id, a seal or words.
pub fn is_unsendable(event: &Event) -> bool {
    // The fact nearly always shows that there is more to it, so that hardly any item is parsed for this.
    let is_blank = match &event.fact {
        Fact::AssistantSaid { parts, .. } => match parts.as_slice() {
            [ContentPart::Reasoning { text, .. }] => text.trim().is_empty(),
            _ => false,
        },
        _ => false,
    };
    is_blank
        && Format::of_dialect(&event.raw.dialect).is_some_and(|format| {
            Json::parse(&event.raw.json, "an item").is_ok_and(|item| format.provider().is_unsendable(&item))
        })
}

/// Division of a thread's events into the units of a client's history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryUnits<'h> {
    /// The last event of each unit, oldest first: a unit has the events after the unit before it. Units with the same end
    /// belong together.
    pub ends: &'h [Seq],
    /// The first event that is to be sent though the client has not sent it.
    pub unsent: Option<Seq>,
}

/// Makes the plan for a history that a context shows.
pub fn plan_rewrite(
    format: Format,
    context: &Context,
    options: &RenderOptions,
    history: HistoryUnits<'_>,
) -> Result<RewritePlan, RenderError> {
    let rendered = render::unmarked(format, context, options)?;
    Ok(RewritePlanner::new(context, history).plan(&rendered))
}

/// Makes a plan with every message written anew in the form that the provider accepts, whatever the client sends.
pub fn plan_full_rewrite(
    format: Format,
    context: &Context,
    options: &RenderOptions,
    history: HistoryUnits<'_>,
) -> Result<RewritePlan, RenderError> {
    let rendered = render::unmarked(format, context, options)?;
    let weaving = RewritePlanner::new(context, history);
    let messages = rendered.messages.iter();
    let said = messages
        .filter_map(|message| weaving.message(&message.events, &rendered.body[message.bytes.clone()]));
    Ok(RewritePlan { pieces: said.map(|message| own(message.text)).collect(), onward: history.ends.len() })
}

struct RewritePlanner<'c> {
    ends: &'c [Seq],
    unsent: Option<Seq>,
    /// Events that the client does not have, or has in another form, or that are not sent: units with such are
    /// written anew.
    hidden: SeqSet,
    /// Events that hooks added: they stand beside the message before them, and belong to no unit.
    added: SeqSet,
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
struct RewrittenMessage<'t> {
    /// Units of which it shows something.
    units: BTreeSet<usize>,
    /// True if it is the same as the client's.
    is_kept: bool,
    text: &'t str,
}

impl<'c> RewritePlanner<'c> {
    fn new(context: &'c Context, HistoryUnits { ends, unsent }: HistoryUnits<'c>) -> Self {
        let left_out = SeqSet::union(context.elided().iter().map(|elision| &elision.events));
        let (shown, touched) = (BTreeMap::new(), SeqSet::default());
        let (hidden, added) = (SeqSet::default(), SeqSet::default());
        let mut weaving = Self { ends, unsent, hidden, added, shown, touched, left_out, summary: None };
        for segment in context.segments() {
            match segment.body() {
                SegmentBody::Prefix(event) if event.event.normal.is_none() => {}
                SegmentBody::Summary(event) if event.event.normal.is_some() => {
                    weaving.summary = Some((segment.stands_for(), event.id.seq));
                }
                _ if segment.fidelity() == Fidelity::Verbatim || segment.injection().is_some() => {}
                _ => weaving.touched.extend(segment.stands_for()),
            }
        }
        for message in context.messages() {
            let mut show = |event: &'c LoggedEvent| {
                if is_hidden(&event.event) || is_unsendable(&event.event) {
                    weaving.hidden.insert(event.id.seq);
                }
                if is_added(&event.event) {
                    weaving.added.insert(event.id.seq);
                }
                weaving.shown.insert(event.id.seq, &event.event.raw.json);
            };
            match &message {
                context::ContextMessage::Instruction { segment, event } => {
                    if !segment.is_prefix() || event.event.normal.is_some() {
                        show(event);
                    }
                }
                context::ContextMessage::User { event, .. }
                | context::ContextMessage::Carried { event, .. } => show(event),
                context::ContextMessage::Answer(answer) => {
                    answer.fragments.iter().for_each(|fragment| show(fragment.event));
                }
                context::ContextMessage::Returned(returned) => {
                    if let Some(event) = returned.event {
                        show(event);
                    }
                    for outcome in &returned.outcomes {
                        if let context::VisibleOutcome::Returned { event, .. } = outcome.shown {
                            show(event);
                        }
                    }
                }
                context::ContextMessage::Summary { .. } | context::ContextMessage::Note { .. } => {}
            }
        }
        weaving
    }

    fn plan(&self, rendered: &RenderedRequest) -> RewritePlan {
        let messages: Vec<RewrittenMessage<'_>> = rendered
            .messages
            .iter()
            .filter_map(|message| self.message(&message.events, &rendered.body[message.bytes.clone()]))
            .collect();
        let ours = ours(&messages);
        let mut pieces: Vec<RewritePiece> = Vec::new();
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
        if let Some(RewritePiece::Units { from, to }) = pieces.last()
            && *to == onward
        {
            onward = *from;
            pieces.pop();
        }
        RewritePlan { pieces, onward }
    }

    /// Reads a message of the history; `None` if it is not part of it.
    fn message<'t>(&self, events: &SeqSet, text: &'t str) -> Option<RewrittenMessage<'t>> {
        if let Some((stood_for, seq)) = self.summary
            && stood_for.first().is_some_and(|first| events.contains(first))
        {
            return Some(RewrittenMessage { units: BTreeSet::from([self.unit(seq)?]), is_kept: true, text });
        }
        let runs = events.runs().iter();
        let shown: Vec<(Seq, &str)> = runs
            .flat_map(|run| self.shown.range(run.first..=run.last))
            .map(|(seq, raw)| (*seq, *raw))
            .collect();
        let touched = events.runs().iter().any(|run| overlaps(&self.touched, run.first, run.last));
        // Events after the last unit are sent with the tail of the request.
        let of_client = shown.iter().filter(|(seq, _)| !self.added.contains(*seq));
        let units: BTreeSet<usize> = of_client.filter_map(|(seq, _)| self.unit(*seq)).collect();
        if shown.iter().any(|(seq, _)| self.added.contains(*seq)) {
            return Some(RewrittenMessage { units, is_kept: false, text });
        }
        if shown.iter().any(|(seq, _)| self.unsent.is_some_and(|unsent| *seq >= unsent)) {
            return Some(RewrittenMessage { units, is_kept: false, text });
        }
        if units.is_empty() && !touched && !events.is_empty() {
            return None;
        }
        let hides = units.iter().any(|unit| self.hides(*unit));
        let same = !hides && matches!(shown[..], [(_, raw)] if raw == text);
        let is_kept = same || !(hides || touched || units.iter().any(|unit| self.is_touched(*unit)));
        Some(RewrittenMessage { units, is_kept, text })
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
    fn show(&self, unit: usize, pieces: &mut Vec<RewritePiece>) {
        let end = self.ends[unit];
        let next = self.ends.partition_point(|other| *other <= end);
        match pieces.last_mut() {
            Some(RewritePiece::Units { from, to }) if (*from..*to).contains(&unit) => {}
            Some(RewritePiece::Units { to, .. }) if *to == unit => *to = next,
            _ => pieces.push(RewritePiece::Units { from: unit, to: next }),
        }
    }
}

/// Makes a message of ours. A log keeps each message as it first came, with the cache mark of the newest one: such
/// marks are not repeated, since there may be more of them than a provider takes.
fn own(text: &str) -> RewritePiece {
    RewritePiece::Own(without_cache_marks(text).into_owned())
}

fn overlaps(set: &SeqSet, first: Seq, last: Seq) -> bool {
    set.runs().iter().any(|run| run.first <= last && first <= run.last)
}

/// Finds the units that are written anew: those of messages that differ from the client's, and those that share a
/// message with such.
fn ours(messages: &[RewrittenMessage<'_>]) -> BTreeSet<usize> {
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
pub fn without_cache_marks(json: &str) -> Cow<'_, str> {
    cache_marks::strip_marks(json)
}

/// Returns true if a request asks its provider's cache to keep a prefix. Texts inside it do not count.
pub fn has_cache_marks(format: Format, body: &str) -> bool {
    let named =
        [cache_marks::CACHE_CONTROL, cache_marks::BREAKPOINT].into_iter().any(|key| is_member(body, key));
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
pub fn is_same_content(format: Format, one: &str, other: &str) -> bool {
    let normal = |raw: &str| {
        let json = Json::parse(raw, "an item").ok()?;
        request::read_item(format, &json).normal
    };
    let plain = without_cache_marks(one) == without_cache_marks(other);
    plain || normal(one).is_some_and(|one| normal(other) == Some(one))
}

/// Places the cache marks of a request where they pay. `summary` is the text of the summary that it stands on.
pub fn place_cache_marks(
    format: Format,
    body: String,
    breakpoints: CacheBreakpoints,
    summary: Option<&str>,
) -> String {
    render::mark(format, body, breakpoints, summary)
}
