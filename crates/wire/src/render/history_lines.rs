//! Turns the messages of a context into lines.

use std::collections::BTreeMap;

use epitome_core::{
    ContentPart, Fact, LoggedEvent, Seq,
    context::{self, AnswerFragment as Shows, AnswerMessage, Context, ContextMessage, SegmentContent},
    event::{Compaction, InstructionKind},
    seq_set::SeqSet,
};

use epitome_core::policy::SummaryShape;

use super::{RenderError, recount};
use crate::{
    format::Format,
    write::{
        AlternatingRole, CONTINUE_MESSAGE, CallPosition, HistoryLine, SUMMARY_QUESTION, ShownCallResult,
        ShownContent, ShownFragment, ShownOutcome, SourceEvent, request_envelope::RequestHead,
    },
};

/// Position of an event. A compaction that is not in the log, because it was made in a rehearsal, has the number of
/// the event before it.
type LogPosition = (Seq, bool);

fn place(event: &LoggedEvent) -> LogPosition {
    (event.id.seq, matches!(event.event.fact, Fact::Compacted(_)))
}

/// Every event that is shown, read once, in the order of the log.
pub(super) struct SourceEventTable<'a> {
    format: Format,
    entries: Vec<SourceEvent<'a>>,
    /// Index of each event's entry.
    places: BTreeMap<LogPosition, usize>,
    /// The events of each entry and, after them, of each note and summary in their order.
    origins: Vec<SeqSet>,
    /// Events that are not shown.
    left_out: SeqSet,
}

impl<'a> SourceEventTable<'a> {
    pub(super) fn of(
        format: Format,
        messages: &[ContextMessage<'a>],
        context: &'a Context,
    ) -> Result<Self, RenderError> {
        let mut events: BTreeMap<LogPosition, &'a LoggedEvent> = BTreeMap::new();
        let mut stood_for: BTreeMap<LogPosition, &SeqSet> = BTreeMap::new();
        let mut notes = Vec::new();
        for message in messages {
            let mut see = |event: &'a LoggedEvent| events.insert(place(event), event);
            match message {
                ContextMessage::Instruction { event, .. }
                | ContextMessage::User { event, .. }
                | ContextMessage::Carried { event, .. } => {
                    see(event);
                }
                ContextMessage::Answer(answer) => answer.fragments.iter().for_each(|fragment| {
                    see(fragment.event);
                }),
                ContextMessage::Returned(returned) => {
                    returned.event.map(|event| see(event));
                }
                ContextMessage::Summary { segment, event, .. } => {
                    see(event);
                    stood_for.insert(place(event), segment.stands_for());
                }
                ContextMessage::Note { note, .. } => notes.push(note.folded.events.clone()),
            }
        }
        let read = |(index, event): (usize, &&'a LoggedEvent)| {
            SourceEvent::read(format, index, &event.event)
                .map_err(|source| RenderError::Raw { event: event.id.seq, source })
        };
        let entries = events.values().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let origin = |place: &LogPosition| {
            stood_for.get(place).map_or_else(|| SeqSet::one(place.0), |set| (*set).clone())
        };
        let origins = events.keys().map(origin).chain(notes).collect();
        let places = events.keys().enumerate().map(|(index, place)| (*place, index)).collect();
        let left_out = SeqSet::union(context.elided().iter().map(|elision| &elision.events));
        let mut table = Self { format, entries, places, origins, left_out };
        table.doubt_summaries(messages, context);
        Ok(table)
    }

    /// Drops the raw form of a summary that costs more than was counted for it, so that the counted text is written.
    fn doubt_summaries(&mut self, messages: &[ContextMessage<'a>], context: &Context) {
        for message in messages {
            if let ContextMessage::Summary { segment, event, .. } = message
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

    fn entry(&self, event: &LoggedEvent) -> &SourceEvent<'a> {
        let at = self.places.get(&place(event)).expect("every event of the messages was read");
        &self.entries[*at]
    }

    /// The entry of an instruction that stands beside the history.
    pub(super) fn side_instruction(&self, message: &ContextMessage<'a>) -> Option<&SourceEvent<'a>> {
        let ContextMessage::Instruction { event, .. } = message else { return None };
        stands_apart(&event.event.fact).then(|| self.entry(event))
    }

    /// System messages at the head of the history that came in another format: they go into the separate system
    /// prompt, if there is one.
    pub(super) fn leading_instructions(
        &self,
        messages: &[ContextMessage<'a>],
        head: &RequestHead<'_, '_>,
    ) -> Vec<&SourceEvent<'a>> {
        if !self.format.facts().leads_into_system || head.system.iter().any(|system| system.own.is_some()) {
            return Vec::new();
        }
        let said = messages.iter().filter(|message| self.side_instruction(message).is_none());
        let instruction = |message: &ContextMessage<'a>| match message {
            ContextMessage::Instruction { segment, event } if segment.is_prefix() => {
                Some(self.entry(event)).filter(|entry| entry.is_foreign_instruction())
            }
            _ => None,
        };
        said.map_while(instruction).collect()
    }

    /// The lines of the history, without the first `leading` messages.
    pub(super) fn lines<'e>(
        &'e self,
        messages: &[ContextMessage<'a>],
        leading: usize,
        form: SummaryShape,
    ) -> Vec<HistoryLine<'e, 'a>> {
        let mut lines = Vec::new();
        // Line in which the conversation goes on after a summary that is told as an answer.
        let mut told: Option<usize> = None;
        let mut notes = self.entries.len()..;
        // Line with the results of the newest answer: they all come before any words beside them.
        let mut results: Option<usize> = None;
        let said = messages.iter().filter(|message| self.side_instruction(message).is_none());
        for message in said.skip(leading) {
            match message {
                ContextMessage::Instruction { event, .. } => {
                    lines.push(HistoryLine::Said(self.entry(event), ShownContent::AsSent));
                }
                ContextMessage::User { event, content, .. } => {
                    lines.push(HistoryLine::Said(self.entry(event), shown(content)));
                }
                ContextMessage::Answer(answer) => {
                    results = None;
                    lines.push(HistoryLine::Answer(self.fragments(answer)));
                }
                ContextMessage::Returned(returned) => {
                    let outcomes = returned.outcomes.iter().filter_map(|outcome| self.outcome(outcome));
                    if let Some(HistoryLine::Returned(earlier)) =
                        results.and_then(|place| lines.get_mut(place))
                    {
                        earlier.extend(outcomes);
                    } else {
                        results = Some(lines.len());
                        lines.push(HistoryLine::Returned(outcomes.collect()));
                    }
                    if let (Some(event), Some((_, content))) = (returned.event, returned.beside) {
                        lines.push(HistoryLine::Said(self.entry(event), shown(content)));
                    }
                }
                ContextMessage::Carried { event, .. } => {
                    // Only its own provider knows what it is.
                    let entry = self.entry(event);
                    lines.extend(
                        entry.own.is_some().then_some(HistoryLine::Said(entry, ShownContent::AsSent)),
                    );
                }
                ContextMessage::Summary { event, compaction, .. } => {
                    let entry = self.entry(event);
                    if form == SummaryShape::QuestionAndAnswer && can_be_told(entry, compaction) {
                        told = Some(lines.len() + 2);
                        lines.extend(question_and_answer(entry, compaction));
                    } else {
                        let place = if self.must_come_first(entry) { 0 } else { lines.len() };
                        lines.insert(place, HistoryLine::Said(entry, ShownContent::AsSent));
                    }
                    results = None;
                }
                ContextMessage::Note { note, .. } => {
                    let origin = notes.next().unwrap_or(usize::MAX);
                    lines.push(HistoryLine::Words {
                        by: AlternatingRole::User,
                        text: &note.text,
                        origin: Some(origin),
                    });
                }
            }
        }
        if let Some(next) = told
            && lines[next..].iter().find_map(speaker) != Some(AlternatingRole::User)
        {
            lines.insert(
                next,
                HistoryLine::Words { by: AlternatingRole::User, text: CONTINUE_MESSAGE, origin: None },
            );
        }
        lines
    }

    fn fragments<'e>(&'e self, answer: &AnswerMessage<'a>) -> Vec<ShownFragment<'e, 'a>> {
        let seqs: Vec<Seq> = answer.fragments.iter().map(|fragment| fragment.event.id.seq).collect();
        let fragment = |(index, fragment): (usize, &Shows<'a>)| {
            let seq = fragment.event.id.seq;
            // Only the event directly before the first fragment can belong to the same answer.
            let before = index.checked_sub(1).map_or(Seq(seq.0.saturating_sub(2)), |before| seqs[before]);
            let next = seqs.get(index + 1);
            let places = || fragment.parts.iter().map(|(place, _)| *place).collect();
            ShownFragment {
                entry: self.entry(fragment.event),
                places: (!fragment.is_whole()).then(places),
                parted_before: self.is_parted(before, seq),
                parted_after: next.is_some_and(|next| self.is_parted(seq, *next)),
            }
        };
        answer.fragments.iter().enumerate().map(fragment).collect()
    }

    /// Returns true if a summary is a signed block of the provider's.
    fn must_come_first(&self, entry: &SourceEvent<'_>) -> bool {
        entry.own.as_ref().is_some_and(|own| self.format.provider().begins_with_compaction(own))
    }

    /// Returns true if an event between two events is left out.
    fn is_parted(&self, one: Seq, other: Seq) -> bool {
        (one.0 + 1..other.0).any(|seq| self.left_out.contains(Seq(seq)))
    }

    fn outcome<'e>(&'e self, outcome: &context::ShownCall<'a>) -> Option<ShownOutcome<'e, 'a>> {
        let site =
            CallPosition { entry: self.entry(outcome.caller), place: outcome.part, call: outcome.call()? };
        let result = match outcome.shown {
            context::VisibleOutcome::Returned { event, index, content } => {
                Some(ShownCallResult { entry: self.entry(event), ordinal: *index, shown: shown(content) })
            }
            context::VisibleOutcome::Unanswered => None,
        };
        Some(ShownOutcome { site: Some(site), result })
    }
}

fn stands_apart(fact: &Fact) -> bool {
    match fact {
        Fact::Instructed { what, .. } => {
            matches!(what, InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools)
        }
        _ => false,
    }
}

/// Returns true if a summary consists of words, and is not in a form that only its provider can read.
fn can_be_told(entry: &SourceEvent<'_>, compaction: &Compaction) -> bool {
    let is_message = entry.own.as_ref().is_none_or(|own| own.text_at("role") == Some("user"));
    is_message && !compaction.summary.text().trim().is_empty()
}

fn question_and_answer<'e, 'a>(
    entry: &SourceEvent<'a>,
    compaction: &'a Compaction,
) -> [HistoryLine<'e, 'a>; 2] {
    let text = compaction.summary.text();
    [
        HistoryLine::Words { by: AlternatingRole::User, text: SUMMARY_QUESTION, origin: None },
        HistoryLine::Words { by: AlternatingRole::Assistant, text, origin: Some(entry.index) },
    ]
}

/// Role of a line in the order of roles; `None` if it has none.
fn speaker(line: &HistoryLine<'_, '_>) -> Option<AlternatingRole> {
    match line {
        HistoryLine::Words { by, .. } => Some(*by),
        HistoryLine::Answer(_) => Some(AlternatingRole::Assistant),
        HistoryLine::Returned(_) => Some(AlternatingRole::User),
        HistoryLine::Whole(_) => None,
        HistoryLine::Said(entry, shown) => {
            let role = entry.own.as_ref().map(|own| own.text_at("role"));
            match (&entry.event.fact, role) {
                (Fact::Instructed { what: InstructionKind::Message, .. }, _) => None,
                (_, Some(Some("assistant"))) => Some(AlternatingRole::Assistant),
                (_, Some(Some("user")) | None) => {
                    says_something(entry, *shown).then_some(AlternatingRole::User)
                }
                (_, Some(_)) => None,
            }
        }
    }
}

/// Returns true if a message still has content: where a format forbids empty texts, an empty text is left out.
fn says_something(entry: &SourceEvent<'_>, shown: ShownContent<'_>) -> bool {
    let parts = match shown {
        ShownContent::AsSent => entry.event.fact.parts(),
        ShownContent::Replaced(parts) => parts,
    };
    let is_blank = |part: &ContentPart| matches!(part, ContentPart::Text { text } if text.trim().is_empty());
    matches!(entry.event.fact, Fact::Compacted(_)) || !parts.iter().all(is_blank)
}

fn shown(content: &SegmentContent) -> ShownContent<'_> {
    match content {
        SegmentContent::AsSent => ShownContent::AsSent,
        SegmentContent::Replaced(parts) => ShownContent::Replaced(parts),
    }
}
