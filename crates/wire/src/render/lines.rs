//! Turns the messages of a context into lines.

use std::collections::BTreeMap;

use epitome_core::{
    Fact, Logged, Part, Seq,
    context::{self, Answer, Content, Context, Fragment as Shows, Message},
    event::{Compaction, Instruction},
    seq_set::SeqSet,
};

use epitome_core::policy::Shape;

use super::{RenderError, recount};
use crate::{
    format::Format,
    write::{
        CONTINUE, Entry, Fragment, Line, Outcome, QUESTION, Returned, Shown, Site, Speaker, skeleton::Head,
    },
};

/// Position of an event. A compaction that is not in the log, because it was made in a rehearsal, has the number of
/// the event before it.
type Place = (Seq, bool);

fn place(event: &Logged) -> Place {
    (event.id.seq, matches!(event.event.fact, Fact::Compacted(_)))
}

/// Every event that is shown, read once, in the order of the log.
pub(super) struct Table<'a> {
    format: Format,
    entries: Vec<Entry<'a>>,
    /// Index of each event's entry.
    places: BTreeMap<Place, usize>,
    /// The events of each entry and, after them, of each note and summary in their order.
    origins: Vec<SeqSet>,
    /// Events that are not shown.
    left_out: SeqSet,
}

impl<'a> Table<'a> {
    pub(super) fn of(
        format: Format,
        messages: &[Message<'a>],
        context: &'a Context,
    ) -> Result<Self, RenderError> {
        let mut events: BTreeMap<Place, &'a Logged> = BTreeMap::new();
        let mut stood_for: BTreeMap<Place, &SeqSet> = BTreeMap::new();
        let mut notes = Vec::new();
        for message in messages {
            let mut see = |event: &'a Logged| events.insert(place(event), event);
            match message {
                Message::Instruction { event, .. }
                | Message::User { event, .. }
                | Message::Carried { event, .. } => {
                    see(event);
                }
                Message::Answer(answer) => answer.fragments.iter().for_each(|fragment| {
                    see(fragment.event);
                }),
                Message::Returned(returned) => {
                    returned.event.map(|event| see(event));
                }
                Message::Summary { segment, event, .. } => {
                    see(event);
                    stood_for.insert(place(event), segment.stands_for());
                }
                Message::Note { note, .. } => notes.push(note.folded.events.clone()),
            }
        }
        let read = |(index, event): (usize, &&'a Logged)| {
            Entry::read(format, index, &event.event)
                .map_err(|source| RenderError::Raw { event: event.id.seq, source })
        };
        let entries = events.values().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let origin =
            |place: &Place| stood_for.get(place).map_or_else(|| SeqSet::one(place.0), |set| (*set).clone());
        let origins = events.keys().map(origin).chain(notes).collect();
        let places = events.keys().enumerate().map(|(index, place)| (*place, index)).collect();
        let left_out = SeqSet::union(context.elided().iter().map(|elision| &elision.events));
        let mut table = Self { format, entries, places, origins, left_out };
        table.doubt_summaries(messages, context);
        Ok(table)
    }

    /// Drops the raw form of a summary that costs more than was counted for it, so that the counted text is written.
    fn doubt_summaries(&mut self, messages: &[Message<'a>], context: &Context) {
        for message in messages {
            if let Message::Summary { segment, event, .. } = message
                && let Some(at) = self.places.get(&place(event))
                && let Some(entry) = self.entries.get_mut(*at)
                && let Some(own) = &entry.own
                && recount::message_cost(self.format, own, context.meter()) > segment.tokens()
            {
                entry.own = None;
            }
        }
    }

    /// The events of some entries and notes.
    pub(super) fn origins(&self, indices: &[usize]) -> SeqSet {
        SeqSet::union(indices.iter().filter_map(|index| self.origins.get(*index)))
    }

    fn entry(&self, event: &Logged) -> &Entry<'a> {
        let at = self.places.get(&place(event)).expect("every event of the messages was read");
        &self.entries[*at]
    }

    /// The entry of an instruction that stands beside the history.
    pub(super) fn standing(&self, message: &Message<'a>) -> Option<&Entry<'a>> {
        let Message::Instruction { event, .. } = message else { return None };
        stands_apart(&event.event.fact).then(|| self.entry(event))
    }

    /// System messages at the head of the history that came in another format: they go into the separate system
    /// prompt, if there is one.
    pub(super) fn leading(&self, messages: &[Message<'a>], head: &Head<'_, '_>) -> Vec<&Entry<'a>> {
        if self.format != Format::Anthropic || head.system.iter().any(|system| system.own.is_some()) {
            return Vec::new();
        }
        let said = messages.iter().filter(|message| self.standing(message).is_none());
        let instruction = |message: &Message<'a>| match message {
            Message::Instruction { segment, event } if segment.is_prefix() => {
                Some(self.entry(event)).filter(|entry| entry.is_foreign_instruction())
            }
            _ => None,
        };
        said.map_while(instruction).collect()
    }

    /// The lines of the history, without the first `leading` messages.
    pub(super) fn lines<'e>(
        &'e self,
        messages: &[Message<'a>],
        leading: usize,
        form: Shape,
    ) -> Vec<Line<'e, 'a>> {
        let mut lines = Vec::new();
        // Line in which the conversation goes on after a summary that is told as an answer.
        let mut told: Option<usize> = None;
        let mut notes = self.entries.len()..;
        // Line with the results of the newest answer: they all come before any words beside them.
        let mut results: Option<usize> = None;
        let said = messages.iter().filter(|message| self.standing(message).is_none());
        for message in said.skip(leading) {
            match message {
                Message::Instruction { event, .. } => {
                    lines.push(Line::Said(self.entry(event), Shown::AsSent));
                }
                Message::User { event, content, .. } => {
                    lines.push(Line::Said(self.entry(event), shown(content)));
                }
                Message::Answer(answer) => {
                    results = None;
                    lines.push(Line::Answer(self.fragments(answer)));
                }
                Message::Returned(returned) => {
                    let outcomes = returned.outcomes.iter().filter_map(|outcome| self.outcome(outcome));
                    if let Some(Line::Returned(earlier)) = results.and_then(|place| lines.get_mut(place)) {
                        earlier.extend(outcomes);
                    } else {
                        results = Some(lines.len());
                        lines.push(Line::Returned(outcomes.collect()));
                    }
                    if let (Some(event), Some((_, content))) = (returned.event, returned.beside) {
                        lines.push(Line::Said(self.entry(event), shown(content)));
                    }
                }
                Message::Carried { event, .. } => {
                    // Only its own provider knows what it is.
                    let entry = self.entry(event);
                    lines.extend(entry.own.is_some().then_some(Line::Said(entry, Shown::AsSent)));
                }
                Message::Summary { event, compaction, .. } => {
                    let entry = self.entry(event);
                    if form == Shape::QuestionAndAnswer && can_be_told(entry, compaction) {
                        told = Some(lines.len() + 2);
                        lines.extend(question_and_answer(entry, compaction));
                    } else {
                        let place = if self.must_come_first(entry) { 0 } else { lines.len() };
                        lines.insert(place, Line::Said(entry, Shown::AsSent));
                    }
                    results = None;
                }
                Message::Note { note, .. } => {
                    let origin = notes.next().unwrap_or(usize::MAX);
                    lines.push(Line::Words { by: Speaker::User, text: &note.text, origin: Some(origin) });
                }
            }
        }
        if let Some(next) = told
            && lines[next..].iter().find_map(speaker) != Some(Speaker::User)
        {
            lines.insert(next, Line::Words { by: Speaker::User, text: CONTINUE, origin: None });
        }
        lines
    }

    fn fragments<'e>(&'e self, answer: &Answer<'a>) -> Vec<Fragment<'e, 'a>> {
        let seqs: Vec<Seq> = answer.fragments.iter().map(|fragment| fragment.event.id.seq).collect();
        let fragment = |(index, fragment): (usize, &Shows<'a>)| {
            let seq = fragment.event.id.seq;
            // Only the event directly before the first fragment can belong to the same answer.
            let before = index.checked_sub(1).map_or(Seq(seq.0.saturating_sub(2)), |before| seqs[before]);
            let next = seqs.get(index + 1);
            let places = || fragment.parts.iter().map(|(place, _)| *place).collect();
            Fragment {
                entry: self.entry(fragment.event),
                places: (!fragment.is_whole()).then(places),
                parted_before: self.is_parted(before, seq),
                parted_after: next.is_some_and(|next| self.is_parted(seq, *next)),
            }
        };
        answer.fragments.iter().enumerate().map(fragment).collect()
    }

    /// Returns true if a summary is a signed block of the provider's.
    fn must_come_first(&self, entry: &Entry<'_>) -> bool {
        let blocks = entry.own.as_ref().map(|own| own.array_at("content")).unwrap_or_default();
        self.format == Format::Anthropic
            && blocks.first().is_some_and(|block| block.text_at("type") == Some("compaction"))
    }

    /// Returns true if an event between two events is left out.
    fn is_parted(&self, one: Seq, other: Seq) -> bool {
        (one.0 + 1..other.0).any(|seq| self.left_out.contains(Seq(seq)))
    }

    fn outcome<'e>(&'e self, outcome: &context::Outcome<'a>) -> Option<Outcome<'e, 'a>> {
        let site = Site { entry: self.entry(outcome.caller), place: outcome.part, call: outcome.call()? };
        let result = match outcome.shown {
            context::Shown::Returned { event, index, content } => {
                Some(Returned { entry: self.entry(event), ordinal: *index, shown: shown(content) })
            }
            context::Shown::Unanswered => None,
        };
        Some(Outcome { site: Some(site), result })
    }
}

fn stands_apart(fact: &Fact) -> bool {
    match fact {
        Fact::Instructed { what, .. } => {
            matches!(what, Instruction::Settings | Instruction::System | Instruction::Tools)
        }
        _ => false,
    }
}

/// Returns true if a summary consists of words, and is not in a form that only its provider can read.
fn can_be_told(entry: &Entry<'_>, compaction: &Compaction) -> bool {
    let is_message = entry.own.as_ref().is_none_or(|own| own.text_at("role") == Some("user"));
    is_message && !compaction.summary.text().trim().is_empty()
}

fn question_and_answer<'e, 'a>(entry: &Entry<'a>, compaction: &'a Compaction) -> [Line<'e, 'a>; 2] {
    let text = compaction.summary.text();
    [
        Line::Words { by: Speaker::User, text: QUESTION, origin: None },
        Line::Words { by: Speaker::Assistant, text, origin: Some(entry.index) },
    ]
}

/// Role of a line in the order of roles; `None` if it has none.
fn speaker(line: &Line<'_, '_>) -> Option<Speaker> {
    match line {
        Line::Words { by, .. } => Some(*by),
        Line::Answer(_) => Some(Speaker::Assistant),
        Line::Returned(_) => Some(Speaker::User),
        Line::Whole(_) => None,
        Line::Said(entry, shown) => {
            let role = entry.own.as_ref().map(|own| own.text_at("role"));
            match (&entry.event.fact, role) {
                (Fact::Instructed { what: Instruction::Message, .. }, _) => None,
                (_, Some(Some("assistant"))) => Some(Speaker::Assistant),
                (_, Some(Some("user")) | None) => says_something(entry, *shown).then_some(Speaker::User),
                (_, Some(_)) => None,
            }
        }
    }
}

/// Returns true if a message still has content: where a format forbids empty texts, an empty text is left out.
fn says_something(entry: &Entry<'_>, shown: Shown<'_>) -> bool {
    let parts = match shown {
        Shown::AsSent => entry.event.fact.parts(),
        Shown::Replaced(parts) => parts,
    };
    let is_blank = |part: &Part| matches!(part, Part::Text { text } if text.trim().is_empty());
    matches!(entry.event.fact, Fact::Compacted(_)) || !parts.iter().all(is_blank)
}

fn shown(content: &Content) -> Shown<'_> {
    match content {
        Content::AsSent => Shown::AsSent,
        Content::Replaced(parts) => Shown::Replaced(parts),
    }
}
