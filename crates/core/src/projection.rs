//! From a line of events to a context: everything that will be sent, before anything is left out.
//!
//! [`project`] stands on the newest compaction and takes the events one by one; [`Projection`] keeps the line
//! and its context together as both grow. The outcome is paired by construction; a provider's further demands
//! are checked when it is rendered.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    context::{Context, EventNaming, ExtendOutcome, Segment, SegmentBody, UnreadGap, is_rendered},
    event::{Compaction, Fact, InstructionKind, LoggedEvent},
    id::{EventId, Seq},
    lineage::CompactionStatus,
    meter::Meter,
    seq_set::{SeqRange, SeqSet},
    tokens::Tokens,
};

/// A line of events with the counts the log keeps of them.
///
/// It holds every event of the thread from some place on, but for gaps. Events before that place may be
/// missing if a compaction stands for them, and events in a gap because a note does; those that
/// [outlast notes](UnreadGap::outlasts_notes), and the instructions at the head of the thread, must be there in any
/// case. The notes' texts are known to a [`ModelView`](crate::model_view::ModelView) alone.
#[derive(Clone, Debug, Default)]
pub struct EventLine {
    events: Vec<CountedEvent>,
    /// In order and apart.
    gaps: Vec<UnreadGap>,
    /// Beginning of the line.
    from: Seq,
    /// Beginning of the conversation, after the instructions at the head of the thread, if it cannot be seen
    /// from the events because some are missing.
    begins: Option<Seq>,
}

#[derive(Clone, Debug)]
struct CountedEvent {
    event: Arc<LoggedEvent>,
    pieces: Option<Vec<Tokens>>,
}

impl EventLine {
    /// Events, oldest first, not yet counted.
    pub fn new(events: impl IntoIterator<Item = Arc<LoggedEvent>>) -> Self {
        let events = events.into_iter().map(|event| CountedEvent { event, pieces: None }).collect();
        Self { events, ..Self::default() }
    }

    /// A line that begins at an event, and holds from before it only events that outlast notes; `gaps` are in
    /// order and apart. Its conversation begins at `begins`.
    pub(crate) fn with_gaps(from: Seq, begins: Seq, gaps: Vec<UnreadGap>) -> Self {
        Self { events: Vec::new(), gaps, from, begins: Some(begins) }
    }

    /// Adds an event, unless it is in a gap and not needed there.
    pub(crate) fn push_outside_gaps(&mut self, event: Arc<LoggedEvent>, pieces: Option<Vec<Tokens>>) {
        if UnreadGap::outlasts_notes(&event) || self.gap_at(event.id.seq).is_none() {
            self.events.push(CountedEvent { event, pieces });
        }
    }

    /// Adds an event with the counts of its texts.
    pub fn push(&mut self, event: Arc<LoggedEvent>, pieces: Vec<Tokens>) {
        self.events.push(CountedEvent { event, pieces: Some(pieces) });
    }

    /// Adds an event whose texts are counted when it is shown.
    pub fn push_uncounted(&mut self, event: Arc<LoggedEvent>) {
        self.events.push(CountedEvent { event, pieces: None });
    }

    /// Takes one of the newest events away again.
    pub(crate) fn remove(&mut self, id: EventId) {
        if let Some(at) = self.events.iter().rposition(|entry| entry.event.id == id) {
            self.events.remove(at);
        }
    }

    /// The newest event.
    pub fn last(&self) -> Option<&Arc<LoggedEvent>> {
        self.events.last().map(|entry| &entry.event)
    }

    /// The events.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Arc<LoggedEvent>> {
        self.events.iter().map(|entry| &entry.event)
    }

    /// The events with the counts of their texts, where they were counted.
    pub fn events_with_counts(&self) -> impl Iterator<Item = (&Arc<LoggedEvent>, Option<&[Tokens]>)> {
        self.events.iter().map(|entry| (&entry.event, entry.pieces.as_deref()))
    }

    /// The same line, with missing or incomplete counts filled in by `meter`: contexts made of it count
    /// nothing again.
    pub fn count_missing(mut self, meter: &Meter) -> Self {
        for CountedEvent { event, pieces } in &mut self.events {
            *pieces = Some(match pieces.take() {
                Some(known) => meter.with_missing_counts(&event.event, known),
                None => meter.pieces(&event.event),
            });
        }
        self
    }

    /// The part of it through an event.
    pub(crate) fn through(&self, last: Seq) -> Self {
        let length = self.events.partition_point(|entry| entry.event.id.seq <= last);
        let events = self.events[..length].to_vec();
        Self { events, gaps: self.gaps.clone(), from: self.from, begins: self.begins }
    }

    /// The gaps, in order.
    pub fn gaps(&self) -> &[UnreadGap] {
        &self.gaps
    }

    fn gap_at(&self, seq: Seq) -> Option<&UnreadGap> {
        let before = self.gaps.partition_point(|gap| gap.events().first <= seq);
        self.gaps[..before].last().filter(|gap| seq <= gap.events().last)
    }

    /// The events that must be read before the line can be shown: the summary or note in their place no
    /// longer stands, because a compaction was adopted or undone.
    pub fn events_to_read(&self) -> SeqSet {
        let (kept, standing) = self.shown_from();
        let mut missing = SeqSet::run(kept.max(Seq::START.next()), self.from.previous());
        for gap in &self.gaps {
            let SeqRange { first, last } = gap.events();
            if last >= kept && !gap.holds(kept, standing) {
                missing.extend(&SeqSet::run(first, last));
            }
        }
        missing
    }

    /// The missing events that are described only by notes in a context.
    pub(crate) fn unread(&self, context: &Context) -> SeqSet {
        let (mut kept, standing) = self.shown_from();
        let is_summary = |segment: &Segment| matches!(segment.body(), SegmentBody::Summary(_));
        if standing.is_some() && !context.segments().iter().any(is_summary) {
            // If even the summary is part of a note, its contents are described nowhere else.
            kept = Seq::START;
        }
        let mut unread = SeqSet::run(kept.max(Seq::START.next()), self.from.previous());
        for gap in self.gaps.iter().map(UnreadGap::events).filter(|gap| gap.last >= kept) {
            unread.extend(&SeqSet::run(gap.first, gap.last));
        }
        unread
    }

    /// Beginning of the shown part, the prefix aside, and the compaction that is stood on.
    pub(crate) fn shown_from(&self) -> (Seq, Option<Seq>) {
        match self.pivot() {
            Some((pivot, compaction)) => (self.kept_from(pivot, compaction), Some(pivot.event.id.seq)),
            None => (Seq::START, None),
        }
    }

    /// Beginning of the events that a compaction keeps. The instructions at the head of the thread are shown
    /// before its summary, whatever place the compaction names.
    fn kept_from(&self, pivot: &CountedEvent, compaction: &Compaction) -> Seq {
        let at = pivot.event.id.seq;
        compaction.kept_from(at).max(self.conversation_start()).min(at)
    }

    /// Fills in missing events: all events of each gap in `read`, and those before the line, are now there.
    pub(crate) fn fill(&mut self, read: &SeqSet, events: Vec<(Arc<LoggedEvent>, Vec<Tokens>)>) {
        self.gaps.retain(|gap| !read.contains(gap.events().first));
        if let Some(first) = read.first().filter(|first| *first < self.from) {
            self.from = first;
        }
        let known: HashSet<EventId> = self.events.iter().map(|entry| entry.event.id).collect();
        for (event, pieces) in events {
            if !known.contains(&event.id) {
                self.push_outside_gaps(event, Some(pieces));
            }
        }
        // A compaction made in a rehearsal has the number of the event before it, and comes after it.
        self.events.sort_by_key(|entry| entry.event.id.seq);
    }

    /// Forgets the events in these gaps and those that are no longer shown; `begins` remembers where the
    /// conversation begins.
    pub(crate) fn forget(&mut self, gaps: Vec<UnreadGap>) {
        let (kept, _) = self.shown_from();
        self.begins = Some(self.conversation_start());
        let begins = self.begins.unwrap_or_default();
        // A gap from before the compaction remains one, should that be undone: its events are missing.
        self.gaps.retain(|gap| gap.events().last < kept);
        self.gaps.extend(gaps);
        self.from = self.from.max(kept);
        let (from, line) = (self.from, std::mem::take(&mut self.events));
        for CountedEvent { event, pieces } in line {
            let seq = event.id.seq;
            let leads = seq < begins && matches!(event.event.fact, Fact::Instructed { .. });
            if leads || seq >= from || UnreadGap::outlasts_notes(&event) {
                self.push_outside_gaps(event, pieces);
            }
        }
    }

    /// Beginning of the conversation: after the instructions that stand before everything else.
    pub(crate) fn conversation_start(&self) -> Seq {
        after_leading(self.events(), self.begins)
    }

    /// The newest compaction that holds. The last word about a compaction decides, so that the first one met on the way
    /// back is the one that counts.
    fn pivot(&self) -> Option<(&CountedEvent, &Compaction)> {
        let mut words: HashMap<Seq, CompactionStatus> = HashMap::new();
        for entry in self.events.iter().rev() {
            match &entry.event.event.fact {
                Fact::CompactionReverted { compaction } => {
                    words.entry(*compaction).or_insert(CompactionStatus::Undone);
                }
                Fact::CompactionRestored { compaction } => {
                    words.entry(*compaction).or_insert(CompactionStatus::Holds);
                }
                Fact::Compacted(compaction)
                    if words.get(&entry.event.id.seq).is_none_or(|word| *word == CompactionStatus::Holds) =>
                {
                    return Some((entry, compaction));
                }
                _ => {}
            }
        }
        None
    }
}

/// Makes the context that shows everything from the newest compaction on.
pub fn project(line: &EventLine, meter: Arc<Meter>, names: EventNaming) -> Context {
    let mut context = Context::new(meter, names);
    let pivot = line.pivot();
    let shown = match pivot {
        Some((pivot, compaction)) => stand_on(&mut context, line, pivot, compaction),
        None => &line.events,
    };
    let (kept, _) = line.shown_from();
    let mut gaps = line.gaps.iter().filter(|gap| gap.events().first >= kept).peekable();
    for entry in shown {
        // Of the events in a gap, only those are there that belong nowhere.
        while let Some(gap) = gaps.next_if(|gap| gap.events().first <= entry.event.id.seq) {
            context.skip_gap(gap);
        }
        if pivot.is_none_or(|(pivot, _)| pivot.event.id != entry.event.id) {
            context.grow(&entry.event, entry.pieces.as_deref());
        }
    }
    gaps.for_each(|gap| context.skip_gap(gap));
    context
}

/// Shows the instructions from before a compaction that still hold, and its summary; returns the events that
/// come after.
fn stand_on<'a>(
    context: &mut Context,
    line: &'a EventLine,
    pivot: &CountedEvent,
    compaction: &Compaction,
) -> &'a [CountedEvent] {
    let at = pivot.event.id.seq;
    let kept = line.kept_from(pivot, compaction);
    let (before, shown) =
        line.events.split_at(line.events.partition_point(|entry| entry.event.id.seq < kept));
    let place = after_leading(before.iter().map(|entry| &entry.event), line.begins);
    for entry in before {
        let Fact::Instructed { what, .. } = &entry.event.event.fact else { continue };
        let holds = match what {
            InstructionKind::Message | InstructionKind::Project => entry.event.id.seq < place,
            InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools => true,
        };
        if holds {
            context.grow(&entry.event, entry.pieces.as_deref());
        }
    }
    let mut covered = SeqSet::run(place, kept.previous());
    covered.insert(at);
    context.adopt_compaction(&pivot.event, pivot.pieces.as_deref(), place, covered);
    shown
}

/// Beginning of the span that a summary stands for: after the instructions that stand before everything else.
/// If the beginning of the conversation is known, they stand before that.
fn after_leading<'e>(events: impl IntoIterator<Item = &'e Arc<LoggedEvent>>, begins: Option<Seq>) -> Seq {
    let mut leading = Seq::START;
    for event in events {
        if begins.is_some_and(|begins| begins <= event.id.seq) {
            break;
        }
        match &event.event.fact {
            Fact::Instructed { .. } => leading = event.id.seq,
            _ if is_rendered(event) => break,
            _ => {}
        }
    }
    leading.next()
}

/// A line and the context that shows it, growing together.
#[derive(Clone, Debug)]
pub struct Projection {
    line: EventLine,
    context: Context,
}

impl Projection {
    /// An empty projection.
    pub fn new(meter: Arc<Meter>, names: EventNaming) -> Self {
        Self { line: EventLine::default(), context: Context::new(meter, names) }
    }

    /// Takes the next event with the counts of its texts. The cost is that of the event; only a compaction,
    /// its undoing or its return costs as much as everything shown from there on. An event that it holds
    /// already is passed over.
    pub fn push(&mut self, event: Arc<LoggedEvent>, pieces: Vec<Tokens>) {
        if self.line.last().is_some_and(|last| last.id == event.id) {
            return;
        }
        match self.context.extend(&event, Some(&pieces)) {
            ExtendOutcome::Known => {}
            ExtendOutcome::Grown => self.line.push(event, pieces),
            ExtendOutcome::Moved => {
                self.line.push(event, pieces);
                self.context = project(&self.line, Arc::clone(self.context.meter()), self.context.names());
            }
        }
    }

    /// The context that shows everything.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The events.
    pub fn line(&self) -> &EventLine {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::{context, meter, read, show};

    #[test]
    fn the_newest_compaction_that_was_not_undone_is_stood_on() {
        let log = "
user: One.
assistant: Yes.
compacted through 2: First summary.
user: Two.
assistant: Yes.
compacted through 5 keep 4: Second summary.
user: Three.
revert 6
";
        insta::assert_snapshot!(show(&context(log)), @r"
        summary     1-3     summary       2  First summary.
        user        4       verbatim      1  Two.
        answer      5       verbatim      1  Yes.
        user        7       verbatim      1  Three.
        left out    6       by pivot, 0 tokens
        total 5
        ");
        insta::assert_snapshot!(show(&context(&format!("{log}user: Four.\nrestore 6\n"))), @r"
        summary     1-3, 6  summary       2  Second summary.
        user        4       verbatim      1  Two.
        answer      5       verbatim      1  Yes.
        user        7       verbatim      1  Three.
        user        9       verbatim      1  Four.
        total 6
        ");
        let undone_again = format!("{log}restore 6\nrevert 6\n");
        assert_eq!(show(&context(&undone_again)), show(&context(log)));
    }

    #[test]
    fn a_word_about_no_compaction_or_about_a_later_one_means_nothing() {
        let plain = "user: One.\nassistant: Yes.\ncompacted through 2: Summary.\nuser: Two.\n";
        for nonsense in ["revert 4", "restore 4", "revert 9", "restore 1"] {
            assert_eq!(show(&context(&format!("{plain}{nonsense}\n"))), show(&context(plain)), "{nonsense}");
        }
        for early in ["revert 3", "restore 3"] {
            let log = format!("user: One.\n{early}\ncompacted through 2: Summary.\nuser: Two.\n");
            let context = context(&log);
            assert!(show(&context).starts_with("summary     1-3"), "{early}\n{}", show(&context));
        }
    }

    #[test]
    fn a_compaction_with_nonsense_for_places_still_shows_everything_after_it() {
        let log = "
system: Rules.
user: One.
assistant:
  call#a bash {}
compacted through 99 keep 77: Summary.
result a: too late
user: Two.
";
        insta::assert_snapshot!(show(&context(log)), @r"
        prefix      1       verbatim      1  Rules.
        summary     2-4     summary       1  Summary.
        user        6       verbatim      1  Two.
        left out    5       by stray, 2 tokens
        total 3
        ");
    }

    #[test]
    fn a_line_that_begins_at_the_pivot_gives_the_same_as_the_whole() {
        let log = "
system: Rules.
project: Tabs.
user: One.
assistant: Yes.
user: Two.
compacted through 4 keep 5: Summary.
user: Three.
";
        let events = read(log);
        let (leading, from_pivot) = (events[..2].iter(), events[4..].iter());
        let line = EventLine::new(leading.chain(from_pivot).cloned());
        assert_eq!(show(&project(&line, meter(), EventNaming::Messages)), show(&context(log)));
    }
}
