//! Numbers of a file's events in the log.
//!
//! A file numbers its events without gaps. In the log, events of ours may stand between them, which shift
//! every later one by their number. They are found again by their position, and only events that the file
//! itself does not have count: an exported log contains its own compactions.

use epitome_core::{
    Event, Fact, LoggedEvent, Seq,
    event::{Compaction, Pin, RawDialect},
};

/// Mapping from the numbers of a file's events to those in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileSeqMap {
    /// For some events of the file, in order, the shift of the events behind them.
    steps: Vec<(Seq, u64)>,
}

impl FileSeqMap {
    /// Number of a file's event in the log.
    pub(super) fn of(&self, seq: Seq) -> Seq {
        let step = self.steps.iter().rev().find(|(after, _)| *after < seq);
        Seq(seq.0.saturating_add(step.map_or(0, |(_, moved)| *moved)))
    }

    /// The mapping for a thread that shares the file's events up to `shared` with its parent and has `events`
    /// of its own behind it. In the log these begin behind `base`, and `ours` stand between them.
    pub(super) fn continued(self, shared: Seq, base: Seq, ours: &[LoggedEvent], events: &[Event]) -> Self {
        let mut numbering = self;
        numbering.steps.retain(|(after, _)| *after < shared);
        let before = base.0.saturating_sub(shared.0);
        numbering.steps.push((shared, before));
        let mut between = 0;
        for own in ours {
            // Number of the file's events before it.
            let place = own.id.seq.0.saturating_sub(base.0 + between + 1);
            let there = usize::try_from(place).ok().and_then(|place| events.get(place));
            if there.is_some_and(|event| numbering.is_same(event, &own.event)) {
                continue;
            }
            between += 1;
            numbering.steps.push((Seq(shared.0 + place), before + between));
        }
        numbering
    }

    /// Returns true if an event of the file is one of ours.
    fn is_same(&self, event: &Event, own: &Event) -> bool {
        event.raw.dialect == own.raw.dialect && self.renumbered(event.clone()).fact == own.fact
    }

    /// An event of the file with its references renumbered for the log.
    pub(super) fn renumbered(&self, mut event: Event) -> Event {
        let fact = match event.fact.clone() {
            Fact::Compacted(compaction) => Fact::Compacted(Compaction {
                through: self.of(compaction.through),
                first_kept: compaction.first_kept.map(|first| self.of(first)),
                ..compaction
            }),
            Fact::CompactionReverted { compaction } => {
                Fact::CompactionReverted { compaction: self.of(compaction) }
            }
            Fact::CompactionRestored { compaction } => {
                Fact::CompactionRestored { compaction: self.of(compaction) }
            }
            Fact::Pinned { pin: Pin::Event(seq) } => Fact::Pinned { pin: Pin::Event(self.of(seq)) },
            Fact::Unpinned { pin: Pin::Event(seq) } => Fact::Unpinned { pin: Pin::Event(self.of(seq)) },
            Fact::Injected { hook, beside, parts } => {
                Fact::Injected { hook, beside: beside.map(|seq| self.of(seq)), parts }
            }
            Fact::Pinned { .. }
            | Fact::Unpinned { .. }
            | Fact::Instructed { .. }
            | Fact::UserSaid { .. }
            | Fact::AssistantSaid { .. }
            | Fact::ToolReturned { .. }
            | Fact::CompactionRequested { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. }
            | Fact::Carried { .. } => return event,
        };
        if fact != event.fact {
            // The fact of an event of ours is its own raw form.
            if event.raw.dialect == RawDialect::Epitome {
                return Event { time: event.time, origin: event.origin, ..Event::from_fact(fact, None) };
            }
            event.fact = fact;
        }
        event
    }
}
