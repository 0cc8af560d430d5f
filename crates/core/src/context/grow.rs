//! Growing a context, event by event.
//!
//! The context carries the state that pairing needs: the calls that are still open, the answer of which the
//! last event was a fragment, and the end of the prefix. So appending a turn costs that turn, however long
//! the history is, and a result finds its call even if the context was reduced in between.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    context::{
        Context, Fidelity, Segment, SegmentBody, SegmentContent, SegmentKey, UNANSWERED_TEXT, VisibleOutcome,
        less, open_calls::OpenCalls, standing_index::StandingIndex, turn_count::TurnCount,
    },
    event::{Compaction, ContentPart, Fact, InstructionKind, LoggedEvent, Pin, Summary},
    id::{AnswerId, Seq},
    meter::EventCosts,
    seq_set::SeqSet,
    tokens::Tokens,
};

/// Outcome of extending a context with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ExtendOutcome {
    /// It is part of the context now.
    Grown,
    /// The context already holds it, or a later one; nothing was done.
    Known,
    /// A compaction was adopted, undone or brought back: the part that is shown begins elsewhere. Nothing was
    /// done; project again.
    Moved,
}

/// State of the past that a context needs for growing.
#[derive(Clone, Debug, Default)]
pub(super) struct GrowthState {
    open: OpenCalls,
    pub(super) turns: TurnCount,
    /// True once a message was seen: the prefix ends there.
    pub(super) begun: bool,
    /// Number of segments in the prefix.
    pub(super) prefix: usize,
    /// Settings, tools and system prompt: whether each is among the prefix, which they lead in this order.
    standing: [bool; 3],
    pub(super) pins: BTreeSet<Seq>,
    /// The newest event it has seen.
    pub(super) head: Seq,
    /// The standing context that it holds.
    pub(super) blocks: StandingIndex,
}

impl Context {
    /// Appends the next event. `pieces` are the log's counts of the event's texts, in the order
    /// [`Event::visit_counted`](crate::Event::visit_counted) shows them; without them, or if they are not as
    /// many, the texts are counted here.
    ///
    /// The cost is that of the event. A result goes to its call, wherever that stands.
    pub fn extend(&mut self, event: &Arc<LoggedEvent>, pieces: Option<&[Tokens]>) -> ExtendOutcome {
        let moves = matches!(
            event.event.fact,
            Fact::Compacted(_) | Fact::CompactionReverted { .. } | Fact::CompactionRestored { .. }
        );
        // A compaction that a rehearsal made has the number of the event before it.
        if event.id.seq < self.growth.head || (event.id.seq == self.growth.head && !moves) {
            return ExtendOutcome::Known;
        }
        if moves {
            return ExtendOutcome::Moved;
        }
        self.grow(event, pieces);
        ExtendOutcome::Grown
    }

    /// Takes an event; a compaction is one that is not, or no longer, stood on.
    pub(crate) fn grow(&mut self, event: &Arc<LoggedEvent>, pieces: Option<&[Tokens]>) {
        let seq = event.id.seq;
        self.growth.head = self.growth.head.max(seq);
        let costs = self.meter.costs(&event.event, pieces);
        match &event.event.fact {
            Fact::Instructed { what, .. } => match standing_rank(*what) {
                Some(rank) => self.stand(rank, event, &costs),
                None => self.instruct(event, &costs),
            },
            Fact::UserSaid { parts } => {
                // As `Move::of` counts it.
                if parts.is_empty() {
                    self.growth.begun = true;
                } else {
                    self.ask();
                }
                self.user(event, costs, Fidelity::Verbatim);
            }
            Fact::Injected { .. } => {
                self.ask();
                self.user(event, costs, Fidelity::Injected);
            }
            Fact::AssistantSaid { answer, parts, .. } => {
                self.growth.begun = true;
                self.answer(event, answer.as_ref(), parts, &costs);
            }
            Fact::ToolReturned { parts, .. } => {
                self.growth.begun = true;
                self.outcomes(event, &costs);
                if !parts.is_empty() {
                    self.user(event, costs, Fidelity::Verbatim);
                }
            }
            Fact::Carried { .. } if is_rendered(event) => {
                self.growth.begun = true;
                let fixed = costs.whole + self.meter.overhead().message;
                self.push(seq, SeqSet::one(seq), SegmentBody::Carried(Arc::clone(event)), fixed);
            }
            Fact::Compacted(_) => {
                self.growth.begun = true;
                self.elide(&SeqSet::one(seq), "pivot", Tokens(0));
            }
            Fact::Pinned { pin: Pin::Event(pinned) } => {
                self.growth.pins.insert(*pinned);
            }
            Fact::Unpinned { pin: Pin::Event(pinned) } => {
                self.growth.pins.remove(pinned);
            }
            Fact::Pinned { pin: Pin::Text(_) }
            | Fact::Unpinned { pin: Pin::Text(_) }
            | Fact::CompactionRequested { .. }
            | Fact::CompactionReverted { .. }
            | Fact::CompactionRestored { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. }
            | Fact::Carried { .. } => {}
        }
    }

    /// Stands on a compaction: its summary, for `events`, comes after the prefix and before the events that
    /// are kept, which begin at `place` or later.
    pub(crate) fn adopt_compaction(
        &mut self,
        compaction: &Arc<LoggedEvent>,
        pieces: Option<&[Tokens]>,
        place: Seq,
        events: SeqSet,
    ) {
        let wrapping = self.meter.overhead().around_summary();
        let fixed = self.meter.costs(&compaction.event, pieces).whole + wrapping;
        self.growth.begun = true;
        self.growth.head = self.growth.head.max(compaction.id.seq);
        self.standing = Some(compaction.id.seq);
        self.growth.blocks.answered = true;
        self.push(place, events, SegmentBody::Summary(Arc::clone(compaction)), fixed);
        let carried = match &compaction.event.fact {
            Fact::Compacted(Compaction { summary: Summary::Structured { brief, .. }, .. }) => {
                (!brief.standing.is_empty()).then(|| self.remember_standing(brief.standing.clone()))
            }
            _ => None,
        };
        if let Some(summary) = self.segments.last_mut() {
            summary.fidelity = Fidelity::Summary;
            summary.standing = carried;
        }
        self.growth.turns.newest = 1;
    }

    /// Settings, tools and system prompt hold until the next of their kind: the newest is shown, the older
    /// ones are part of the events it stands for.
    fn stand(&mut self, rank: usize, event: &Arc<LoggedEvent>, costs: &EventCosts) {
        let tools = if rank == TOOLS { event.event.fact.parts().len() } else { 0 };
        let overhead = self.meter.overhead();
        let fixed = costs.whole + overhead.message + overhead.around_tools(tools);
        let index = self.growth.standing[..rank].iter().filter(|stands| **stands).count();
        // Settings of the request as a whole, such as its model or its limits, are no part of the prefix that
        // a cache holds.
        self.disturbed |=
            rank > SETTINGS && self.sent > Seq::START && !self.says_the_same(rank, index, event);
        if self.growth.standing[rank] {
            let segment = &mut self.segments[index];
            self.total = less(self.total, segment.tokens()) + fixed;
            segment.events.insert(event.id.seq);
            segment.body = SegmentBody::Prefix(Arc::clone(event));
            segment.fixed = fixed;
        } else {
            self.growth.standing[rank] = true;
            self.push(event.id.seq, SeqSet::one(event.id.seq), SegmentBody::Prefix(Arc::clone(event)), fixed);
            self.segments[index..].rotate_right(1);
            self.segments[index].turn = 0;
            self.growth.prefix += 1;
        }
    }

    /// Returns true if the segment at `index` says the same as an event that takes its place.
    fn says_the_same(&self, rank: usize, index: usize, event: &LoggedEvent) -> bool {
        self.growth.standing[rank]
            && matches!(&self.segments[index].body, SegmentBody::Prefix(old) if old.event.fact == event.event.fact)
    }

    fn instruct(&mut self, event: &Arc<LoggedEvent>, costs: &EventCosts) {
        let seq = event.id.seq;
        let fixed = costs.whole + self.meter.overhead().message;
        if self.growth.begun {
            self.ask();
            self.push(seq, SeqSet::one(seq), SegmentBody::Instruction(Arc::clone(event)), fixed);
            let standing = self.standing_of(event);
            if let Some(instruction) = self.segments.last_mut() {
                instruction.standing = standing;
            }
        } else {
            self.push(seq, SeqSet::one(seq), SegmentBody::Prefix(Arc::clone(event)), fixed);
            self.growth.prefix += 1;
        }
    }

    /// A new question belongs to the next turn.
    fn ask(&mut self) {
        self.growth.begun = true;
        self.growth.turns.ask();
    }

    fn user(&mut self, event: &Arc<LoggedEvent>, costs: EventCosts, fidelity: Fidelity) {
        let EventCosts { parts: counts, beside_parts, beside, .. } = costs;
        let beside = beside_parts.into_iter().sum::<Tokens>() + beside;
        let (seq, fixed) = (event.id.seq, self.meter.overhead().message + beside);
        let body = SegmentBody::User { event: Arc::clone(event), content: SegmentContent::AsSent };
        self.push(seq, SeqSet::one(seq), body, fixed);
        // Text that a hook adds is the program's own, which decides itself how long it holds.
        let standing = if fidelity == Fidelity::Injected { None } else { self.standing_of(event) };
        if let Some(user) = self.segments.last_mut() {
            user.fidelity = fidelity;
            user.standing = standing;
            user.content = counts.iter().copied().sum();
            user.counts = counts;
            self.total += user.content;
        }
    }

    fn answer(
        &mut self,
        event: &Arc<LoggedEvent>,
        answer: Option<&AnswerId>,
        parts: &[ContentPart],
        costs: &EventCosts,
    ) {
        let seq = event.id.seq;
        self.growth.turns.answer(answer);
        self.growth.blocks.answered = true;
        let overhead = *self.meter.overhead();
        let stand_in = self.meter.text(UNANSWERED_TEXT);
        let counts = costs.parts.iter().zip(&costs.beside_parts).map(|(part, beside)| *part + *beside);
        for (part, (shown, tokens)) in parts.iter().zip(counts).enumerate() {
            let event = Arc::clone(event);
            if let ContentPart::ToolCall(call) = shown {
                self.growth.open.open(&call.id, seq, part);
                let wrapping = overhead.call + overhead.call + overhead.message + overhead.message;
                let body = SegmentBody::Exchange { event, part, outcome: VisibleOutcome::Unanswered };
                self.push(seq, SeqSet::one(seq), body, tokens + wrapping + stand_in);
            } else {
                self.push(
                    seq,
                    SeqSet::one(seq),
                    SegmentBody::Answer { event, part },
                    tokens + overhead.message,
                );
            }
        }
        if parts.is_empty() {
            self.elide(&SeqSet::one(seq), "empty", Tokens(0));
        }
    }

    /// Gives each result to its call. Results that no open call asked for are history and never shown.
    fn outcomes(&mut self, event: &Arc<LoggedEvent>, costs: &EventCosts) {
        let seq = event.id.seq;
        let results = event.event.fact.results();
        for (index, (result, counts)) in results.iter().zip(&costs.results).enumerate() {
            match self.growth.open.close(&result.call) {
                Some(site) => self.answer_call(site, event, index, costs),
                None => self.elide(&SeqSet::one(seq), "stray", counts.iter().copied().sum()),
            }
        }
        if results.is_empty() && event.event.fact.parts().is_empty() {
            self.elide(&SeqSet::one(seq), "empty", Tokens(0));
        }
    }

    fn answer_call(
        &mut self,
        (at, part): (Seq, usize),
        event: &Arc<LoggedEvent>,
        index: usize,
        costs: &EventCosts,
    ) {
        let seq = event.id.seq;
        let counts = costs.results.get(index).cloned().unwrap_or_default();
        let beside = costs.beside_results.get(index).copied().unwrap_or_default();
        let content: Tokens = counts.iter().copied().sum();
        let stand_in = self.meter.text(UNANSWERED_TEXT);
        let found = self.find(SegmentKey::of_part(at, part));
        self.disturbed |= at <= self.sent;
        match found.map(|found| &mut self.segments[found]) {
            Some(Segment {
                body: SegmentBody::Exchange { outcome, .. },
                events,
                fixed,
                counts: shown,
                content: sum,
                ..
            }) if matches!(outcome, VisibleOutcome::Unanswered) => {
                *outcome = VisibleOutcome::Returned {
                    event: Arc::clone(event),
                    index,
                    content: SegmentContent::AsSent,
                };
                events.insert(seq);
                *fixed = less(*fixed, stand_in) + beside;
                *shown = counts;
                *sum = content;
                self.total = less(self.total, stand_in) + content + beside;
            }
            // The call was folded in the meantime: the segment in its place stands for its result too.
            Some(segment) if segment.stands_for().contains(at) => segment.include_event(seq),
            _ => self.elide(&SeqSet::one(seq), "late", content),
        }
    }

    /// The segment at a place, or the last before it.
    fn find(&self, key: SegmentKey) -> Option<usize> {
        let prefix = self.growth.prefix;
        let after = self.segments[prefix..].partition_point(|segment| segment.key <= key);
        after.checked_sub(1).map(|index| prefix + index)
    }

    fn push(&mut self, place: Seq, events: SeqSet, body: SegmentBody, fixed: Tokens) {
        self.total += fixed;
        self.segments.push(Segment {
            key: SegmentKey::of(place, &body),
            events,
            turn: self.growth.turns.newest,
            body,
            fixed,
            counts: Vec::new(),
            content: Tokens(0),
            sent: Vec::new(),
            fidelity: Fidelity::Verbatim,
            touched: None,
            standing: None,
        });
    }
}

/// Returns true if an event is ever sent to a provider.
pub(crate) fn is_rendered(event: &LoggedEvent) -> bool {
    match &event.event.fact {
        Fact::Instructed { .. }
        | Fact::UserSaid { .. }
        | Fact::AssistantSaid { .. }
        | Fact::ToolReturned { .. }
        | Fact::Compacted(_)
        | Fact::Injected { .. } => true,
        // Only events that a client would send back are part of a history.
        Fact::Carried { .. } => event.event.normal.is_some(),
        Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. }
        | Fact::Pinned { .. }
        | Fact::Unpinned { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. } => false,
    }
}

const SETTINGS: usize = 0;
const TOOLS: usize = 1;

/// Place in the prefix of an instruction that holds until the next of its kind.
fn standing_rank(what: InstructionKind) -> Option<usize> {
    match what {
        InstructionKind::Settings => Some(SETTINGS),
        InstructionKind::Tools => Some(TOOLS),
        InstructionKind::System => Some(2),
        InstructionKind::Message | InstructionKind::Project => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        context::{Context, EventNaming, ExtendOutcome, FoldedTotals, SegmentEdit},
        notation::{context, meter, read, show},
        tokens::Tokens,
    };

    const CALLS: &str = "
user: Go.
assistant:
  call#a bash {}
user: Wait.
assistant: Waiting.
";

    fn late(mut reduced: Context) -> String {
        let events = read(&format!("{CALLS}result a: at last"));
        let last = events.last().unwrap();
        assert_eq!(reduced.extend(last, None), ExtendOutcome::Grown);
        assert_eq!(reduced.extend(last, None), ExtendOutcome::Known);
        assert_eq!(reduced.find_inconsistency(), None);
        show(&reduced)
    }

    #[test]
    fn a_late_result_finds_its_call() {
        insta::assert_snapshot!(late(context(CALLS)), @r"
        user        1       verbatim      1  Go.
        exchange    2, 5    verbatim      4  bash {} -> at last
        user        3       verbatim      1  Wait.
        answer      4       verbatim      1  Waiting.
        total 7
        ");
    }

    #[test]
    fn a_late_result_of_a_folded_call_belongs_to_the_note() {
        let folded = context(CALLS)
            .fold("test", std::slice::from_ref(&(1..3)), |_: &FoldedTotals| "[gone]".to_owned());
        insta::assert_snapshot!(late(folded), @r"
        user        1       verbatim      1  Go.
        note        2-3, 5  summary       1 by test  [gone]
        answer      4       verbatim      1  Waiting.
        total 3
        ");
    }

    #[test]
    fn a_late_result_of_a_call_that_was_left_out_is_left_out() {
        let dropped = context(CALLS)
            .edit("test", |index, _| if index == 1 { SegmentEdit::Drop } else { SegmentEdit::Keep });
        insta::assert_snapshot!(late(dropped), @r"
        user        1       verbatim      1  Go.
        user        3       verbatim      1  Wait.
        answer      4       verbatim      1  Waiting.
        left out    2       by test, 8 tokens
        left out    5       by late, 2 tokens
        total 3
        ");
    }

    #[test]
    fn counts_of_the_log_are_taken_and_wrong_ones_are_not() {
        let events = read("user: one two three");
        let tokens = |pieces: Option<&[Tokens]>| {
            let mut context = Context::new(meter(), EventNaming::Messages);
            assert_eq!(context.extend(&events[0], pieces), ExtendOutcome::Grown);
            context.tokens()
        };
        assert_eq!(tokens(Some(&[Tokens(7)])), Tokens(7));
        assert_eq!(tokens(Some(&[Tokens(7), Tokens(7)])), Tokens(3));
        assert_eq!(tokens(Some(&[])), Tokens(3));
        assert_eq!(tokens(None), Tokens(3));
    }

    #[test]
    fn what_only_the_provider_can_read_is_not_free() {
        assert_eq!(context("assistant: one two\n  sealed: 400\n").tokens(), Tokens(102));
    }

    #[test]
    fn a_pin_guards_until_it_is_taken_away() {
        let pinned = |log: &str| {
            let context = context(log);
            context.segments().iter().map(|segment| context.is_pinned(segment)).collect::<Vec<_>>()
        };
        assert_eq!(pinned("user: One.\nuser: Two.\npin 1\npin 2\nunpin 1\n"), [false, true]);
        assert_eq!(pinned("user: One.\npin 1\nunpin 1\npin 1\n"), [true]);
        assert_eq!(pinned("user: One.\nunpin 1\nunpin: words\npin 1\n"), [true]);
    }

    #[test]
    fn a_compaction_moves_the_context_and_changes_nothing_by_itself() {
        let events = read("user: Go.\ncompacted through 1: Gone.\n");
        let mut context = context("user: Go.");
        let before = show(&context);
        assert_eq!(context.extend(&events[1], None), ExtendOutcome::Moved);
        assert_eq!(show(&context), before);
    }
}
