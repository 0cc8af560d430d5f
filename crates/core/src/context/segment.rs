//! Segments: the pieces a context is made of.
//!
//! A segment knows its events, its tokens, its fidelity and its last editor. A call and its outcome are one
//! segment, so no edit can part them.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    context::EditAuthor,
    event::{Compaction, ContentPart, Fact, LoggedEvent, ToolCall},
    id::Seq,
    meter::Meter,
    seq_set::SeqSet,
    standing_context::StandingContext,
    tokens::Tokens,
};

/// A piece of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position in the thread: no segment after it has an earlier key.
    pub(super) key: SegmentKey,
    /// The events it stands for. A note keeps its own; here are those that came after it was written.
    pub(super) events: SeqSet,
    pub(super) turn: u64,
    pub(super) body: SegmentBody,
    /// Tokens of its wrapping and of everything that no edit replaces.
    pub(super) fixed: Tokens,
    /// Tokens of each part that an edit may replace.
    pub(super) counts: Vec<Tokens>,
    /// The sum of these counts, kept so that it is not computed again.
    pub(super) content: Tokens,
    /// Tokens of each original part, once something else is shown.
    pub(super) sent: Vec<Tokens>,
    pub(super) fidelity: Fidelity,
    pub(super) touched: Option<EditAuthor>,
    /// The standing context that it holds; a note keeps its own.
    pub(super) standing: Option<Arc<StandingContext>>,
}

/// Position of a segment: by its event, and within an event by its part. No two segments share one, and a
/// note has that of the first segment it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentKey {
    /// The event.
    pub seq: Seq,
    /// The place within it: 0 a summary, 1 the whole event, 2 and on the parts of an answer.
    pub part: usize,
}

/// Content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentBody {
    /// System prompt, tools, project instructions at the head of the context: never modified.
    Prefix(Arc<LoggedEvent>),
    /// A system message inside the conversation.
    Instruction(Arc<LoggedEvent>),
    /// A user's message, a text from beside tool results, or an injected text.
    User {
        /// The event.
        event: Arc<LoggedEvent>,
        /// Content that is shown of it.
        content: SegmentContent,
    },
    /// One part of an answer that is not a call: text, reasoning, refusal, something opaque.
    Answer {
        /// The event.
        event: Arc<LoggedEvent>,
        /// Index among the event's parts.
        part: usize,
    },
    /// A call with its outcome.
    Exchange {
        /// The event that made the call.
        event: Arc<LoggedEvent>,
        /// Index of the call among the event's parts.
        part: usize,
        /// Outcome as it is shown.
        outcome: VisibleOutcome,
    },
    /// Something unknown that goes along.
    Carried(Arc<LoggedEvent>),
    /// The summary of the compaction the context stands on.
    Summary(Arc<LoggedEvent>),
    /// A line about events that are not shown. It goes out as a user message.
    Note(ContextNote),
}

/// Content that is shown of something that was sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentContent {
    /// All of it, as it came.
    AsSent,
    /// This instead.
    Replaced(Vec<ContentPart>),
}

/// The part of a call's outcome that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleOutcome {
    /// The tool returned.
    Returned {
        /// The event that carries the result.
        event: Arc<LoggedEvent>,
        /// Index among the event's results.
        index: usize,
        /// Content that is shown of it.
        content: SegmentContent,
    },
    /// A missing result; [`UNANSWERED_TEXT`] says so.
    Unanswered,
}

/// The line that stands for a result that never came: always the same, so that a request stays the same.
pub const UNANSWERED_TEXT: &str = "[no result: the call was interrupted]";

/// A line that stands for segments that are no longer shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextNote {
    /// Text of the note.
    pub text: String,
    /// Contents that it stands for.
    pub folded: FoldedTotals,
}

/// Contents that a note stands for, in numbers; notes that are folded again add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldedTotals {
    /// The events.
    pub events: SeqSet,
    /// The turns of which something is folded: from the first to before the end.
    pub turns: Range<u64>,
    /// The compactions whose summaries are among it.
    #[serde(default, skip_serializing_if = "SeqSet::is_empty")]
    pub summaries: SeqSet,
    /// Number of the events that were described only by those summaries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub summarised: u64,
    /// Messages from users among it.
    pub user_messages: u64,
    /// Calls, by tool.
    pub calls: BTreeMap<String, u64>,
    /// Tokens of its original form as it was sent, regardless of later replacements.
    pub tokens: Tokens,
    /// The standing context among it, which the note carries.
    #[serde(default, skip_serializing_if = "StandingContext::is_empty")]
    pub standing: StandingContext,
}

/// Faithfulness of a segment to its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// Everything, as it was.
    Verbatim,
    /// Its beginning and its end, or all of it but its media.
    Cut,
    /// A path or a command to get it again.
    Reference,
    /// A line that describes the content it replaces.
    Stub,
    /// The text of a summary or a note about it.
    Summary,
    /// Added by a hook.
    Injected,
}

/// Budget category of a segment. Every segment is of exactly one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Instructions at the head of the context, which no reducer touches.
    Prefix,
    /// Summaries and notes.
    Summaries,
    /// Messages of users and of the model.
    Dialogue,
    /// The model's reasoning.
    Reasoning,
    /// Calls with their results.
    ToolResults,
    /// Messages from users that carry media. A cap on media is about the media alone, and also about those in tool
    /// results.
    Media,
}

impl Segment {
    /// The events it stands for.
    pub fn stands_for(&self) -> &SeqSet {
        match &self.body {
            SegmentBody::Note(note) => &note.folded.events,
            _ => &self.events,
        }
    }

    /// Takes in an event that came late.
    pub(super) fn include_event(&mut self, late: Seq) {
        self.events.insert(late);
        if let SegmentBody::Note(note) = &mut self.body {
            note.folded.events.insert(late);
        }
    }

    /// Returns true if a note stands for an event that was not yet known when the note was written.
    pub(crate) fn came_late(&self, event: Seq) -> bool {
        matches!(self.body, SegmentBody::Note(_)) && self.events.contains(event)
    }

    /// The turn it belongs to, counted from 0 where the context begins.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Content that it shows.
    pub fn body(&self) -> &SegmentBody {
        &self.body
    }

    /// Tokens, its wrapping included.
    pub fn tokens(&self) -> Tokens {
        self.fixed + self.content
    }

    /// Tokens of the original form of everything that it stands for.
    pub(super) fn represented_tokens(&self) -> Tokens {
        match &self.body {
            SegmentBody::Note(note) => note.folded.tokens,
            _ => self.fixed + self.original_tokens(),
        }
    }

    /// Tokens of the parts that an edit may replace.
    pub fn content_tokens(&self) -> Tokens {
        self.content
    }

    /// Faithfulness to its events.
    pub fn fidelity(&self) -> Fidelity {
        self.fidelity
    }

    /// Author of the last change.
    pub fn last_author(&self) -> Option<&str> {
        self.touched.as_deref()
    }

    /// Position in the thread.
    pub fn key(&self) -> SegmentKey {
        self.key
    }

    /// Returns true if it belongs to the prefix that is never modified.
    pub fn is_prefix(&self) -> bool {
        matches!(self.body, SegmentBody::Prefix(_))
    }

    /// Returns true if it is covered by a summary of everything before an event.
    pub(crate) fn is_before(&self, first_kept: Seq) -> bool {
        matches!(self.body, SegmentBody::Summary(_))
            || self.stands_for().first().is_some_and(|first| first < first_kept)
    }

    /// Returns true if it is a user's message.
    pub fn is_user(&self) -> bool {
        match &self.body {
            SegmentBody::User { event, .. } => matches!(event.event.fact, Fact::UserSaid { .. }),
            _ => false,
        }
    }

    /// The hook that added it, and the message it was added beside, if one did.
    pub fn injection(&self) -> Option<(&str, Option<Seq>)> {
        match &self.body {
            SegmentBody::User { event, .. } => match &event.event.fact {
                Fact::Injected { hook, beside, .. } => Some((hook, *beside)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns true if it is a piece of an answer: a text, or a call with its outcome.
    pub fn is_answer(&self) -> bool {
        matches!(self.body, SegmentBody::Answer { .. } | SegmentBody::Exchange { .. })
    }

    /// Budget category that it counts against.
    pub fn tier(&self) -> Tier {
        match &self.body {
            SegmentBody::Prefix(_) => Tier::Prefix,
            SegmentBody::Note(_) | SegmentBody::Summary(_) => Tier::Summaries,
            SegmentBody::Exchange { .. } => Tier::ToolResults,
            SegmentBody::Answer { event, part } => match event.event.fact.parts().get(*part) {
                Some(ContentPart::Reasoning { .. }) => Tier::Reasoning,
                _ => Tier::Dialogue,
            },
            SegmentBody::User { .. } if self.has_media() => Tier::Media,
            SegmentBody::User { .. } | SegmentBody::Instruction(_) | SegmentBody::Carried(_) => {
                Tier::Dialogue
            }
        }
    }

    /// The call, if it is an exchange.
    pub fn call(&self) -> Option<&ToolCall> {
        let SegmentBody::Exchange { event, part, .. } = &self.body else { return None };
        match event.event.fact.parts().get(*part) {
            Some(ContentPart::ToolCall(call)) => Some(call),
            _ => None,
        }
    }

    /// Returns true if it is an exchange whose tool returned and reported an error.
    pub fn is_error(&self) -> bool {
        let SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, index, .. }, .. } = &self.body
        else {
            return false;
        };
        event.event.fact.results().get(*index).is_some_and(|result| result.error)
    }

    /// The parts it shows that an edit may replace: a user's, or those of a returned result.
    pub fn shown(&self) -> Option<&[ContentPart]> {
        match &self.body {
            SegmentBody::User { content: SegmentContent::Replaced(parts), .. }
            | SegmentBody::Exchange {
                outcome: VisibleOutcome::Returned { content: SegmentContent::Replaced(parts), .. },
                ..
            } => Some(parts),
            SegmentBody::User { event, content: SegmentContent::AsSent } => Some(event.event.fact.parts()),
            SegmentBody::Exchange {
                outcome: VisibleOutcome::Returned { event, index, content: SegmentContent::AsSent },
                ..
            } => event.event.fact.results().get(*index).map(|result| result.parts.as_slice()),
            SegmentBody::Exchange { outcome: VisibleOutcome::Unanswered, .. }
            | SegmentBody::Prefix(_)
            | SegmentBody::Instruction(_)
            | SegmentBody::Answer { .. }
            | SegmentBody::Carried(_)
            | SegmentBody::Summary(_)
            | SegmentBody::Note(_) => None,
        }
    }

    /// The same parts, each with its cost.
    pub fn parts_with_tokens(&self) -> impl Iterator<Item = (&ContentPart, Tokens)> {
        self.shown().unwrap_or_default().iter().zip(self.counts.iter().copied())
    }

    /// The parts as they were sent, regardless of later replacements, each with its cost.
    pub fn original(&self) -> impl Iterator<Item = (&ContentPart, Tokens)> {
        let parts = match &self.body {
            SegmentBody::User { event, .. } => event.event.fact.parts(),
            SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, index, .. }, .. } => {
                event.event.fact.results().get(*index).map_or(&[][..], |result| &result.parts)
            }
            _ => &[],
        };
        parts.iter().zip(self.sent_counts().iter().copied())
    }

    /// Original tokens of the parts that an edit may replace.
    pub fn original_tokens(&self) -> Tokens {
        self.sent_counts().iter().copied().sum()
    }

    fn sent_counts(&self) -> &[Tokens] {
        match &self.body {
            SegmentBody::User { content: SegmentContent::Replaced(_), .. }
            | SegmentBody::Exchange {
                outcome: VisibleOutcome::Returned { content: SegmentContent::Replaced(_), .. },
                ..
            } => &self.sent,
            _ => &self.counts,
        }
    }

    /// The event that holds the original of the content that [`shown`](Self::shown) gives.
    pub fn source(&self) -> Option<Seq> {
        match &self.body {
            SegmentBody::User { event, .. }
            | SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, .. }, .. } => {
                Some(event.id.seq)
            }
            _ => None,
        }
    }

    /// Returns true if the parts an edit may replace hold media.
    pub fn has_media(&self) -> bool {
        self.shown().is_some_and(|parts| parts.iter().any(|part| matches!(part, ContentPart::Media(_))))
    }

    /// Tokens of the media among the parts an edit may replace.
    pub(crate) fn media_tokens(&self) -> Tokens {
        let media = self.parts_with_tokens().filter(|(part, _)| matches!(part, ContentPart::Media(_)));
        media.map(|(_, tokens)| tokens).sum()
    }

    /// The compaction, if it is the summary of one.
    pub fn compaction(&self) -> Option<&Compaction> {
        match &self.body {
            SegmentBody::Summary(event) => match &event.event.fact {
                Fact::Compacted(compaction) => Some(compaction),
                _ => None,
            },
            _ => None,
        }
    }

    /// Replaces the shown parts. Content that cannot be replaced, or would not get smaller, stays as it is.
    pub(super) fn replace(
        &mut self,
        parts: &[ContentPart],
        fidelity: Fidelity,
        meter: &Meter,
    ) -> ReplaceOutcome {
        if self.shown().is_none() {
            return ReplaceOutcome::Refused;
        }
        let counts = self.counts_of(parts, meter);
        if counts.iter().copied().sum::<Tokens>() >= self.content {
            return ReplaceOutcome::Refused;
        }
        self.put(parts.to_vec(), counts, fidelity)
    }

    /// Replaces the shown parts as decided earlier.
    pub(super) fn replay_replacement(
        &mut self,
        parts: &[ContentPart],
        fidelity: Fidelity,
        meter: &Meter,
    ) -> ReplaceOutcome {
        if self.shown().is_none() {
            return ReplaceOutcome::Refused;
        }
        let counts = self.counts_of(parts, meter);
        self.put(parts.to_vec(), counts, fidelity)
    }

    fn put(&mut self, parts: Vec<ContentPart>, counts: Vec<Tokens>, fidelity: Fidelity) -> ReplaceOutcome {
        let (SegmentBody::User { content: shown, .. }
        | SegmentBody::Exchange { outcome: VisibleOutcome::Returned { content: shown, .. }, .. }) =
            &mut self.body
        else {
            return ReplaceOutcome::Refused;
        };
        let before = std::mem::replace(shown, SegmentContent::Replaced(parts));
        let replaced = std::mem::replace(&mut self.counts, counts);
        if before == SegmentContent::AsSent {
            self.sent = replaced;
        }
        self.content = self.counts.iter().copied().sum();
        self.fidelity = fidelity;
        ReplaceOutcome::Made
    }

    /// Tokens of new parts. A part that stood in the same place before keeps its count; only new words are
    /// counted.
    fn counts_of(&self, parts: &[ContentPart], meter: &Meter) -> Vec<Tokens> {
        let before: Vec<(&ContentPart, Tokens)> = self.parts_with_tokens().collect();
        let count = |(index, part): (usize, &ContentPart)| match before.get(index) {
            Some((old, tokens)) if *old == part => *tokens,
            _ => meter.part(part),
        };
        parts.iter().enumerate().map(count).collect()
    }
}

impl SegmentKey {
    /// The key of the content that `body` shows of the event `seq`.
    pub(super) fn of(seq: Seq, body: &SegmentBody) -> Self {
        let part = match body {
            SegmentBody::Summary(_) => 0,
            SegmentBody::Answer { part, .. } | SegmentBody::Exchange { part, .. } => part + 2,
            SegmentBody::Prefix(_)
            | SegmentBody::Instruction(_)
            | SegmentBody::User { .. }
            | SegmentBody::Carried(_)
            | SegmentBody::Note(_) => 1,
        };
        Self { seq, part }
    }

    /// The key of a part of an answer.
    pub(super) fn of_part(seq: Seq, part: usize) -> Self {
        Self { seq, part: part + 2 }
    }
}

/// Outcome of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplaceOutcome {
    Made,
    Refused,
}

impl FoldedTotals {
    /// Number of turns it holds something of. A summary is no turn.
    pub fn turn_count(&self) -> u64 {
        self.turns.end - self.turns.start
    }

    /// Number of messages it holds, other than those that were described only by a summary among it.
    pub fn messages(&self) -> u64 {
        self.events.count().saturating_sub(self.summarised).saturating_sub(self.summaries.count())
    }

    /// Adds the segment that follows.
    pub(crate) fn add(&mut self, segment: &Segment) {
        if let SegmentBody::Note(note) = &segment.body {
            return self.join(&note.folded);
        }
        self.events.extend(segment.stands_for());
        if let SegmentBody::Summary(compaction) = &segment.body {
            self.summaries.insert(compaction.id.seq);
            self.summarised += segment.events.count().saturating_sub(1);
        } else {
            self.span(segment.turn..segment.turn + 1);
        }
        self.user_messages += u64::from(segment.is_user());
        self.tokens += segment.represented_tokens();
        if let Some(standing) = &segment.standing {
            self.standing.add(standing);
        }
        if let Some(call) = segment.call() {
            *self.calls.entry(call.name.0.clone()).or_default() += 1;
        }
    }

    fn join(&mut self, other: &Self) {
        self.events.extend(&other.events);
        self.span(other.turns.clone());
        self.summaries.extend(&other.summaries);
        self.summarised += other.summarised;
        self.user_messages += other.user_messages;
        self.tokens += other.tokens;
        self.standing.add(&other.standing);
        for (tool, calls) in &other.calls {
            *self.calls.entry(tool.clone()).or_default() += calls;
        }
    }

    fn span(&mut self, turns: Range<u64>) {
        if turns.is_empty() {
            return;
        }
        self.turns = if self.turns.is_empty() {
            turns
        } else {
            self.turns.start.min(turns.start)..self.turns.end.max(turns.end)
        };
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
