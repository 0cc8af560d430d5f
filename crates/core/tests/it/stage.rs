//! Plays a log to a view, which may add events of its own in between: what comes after them takes the numbers that are
//! free, and references inside the log follow.

use std::sync::Arc;

use epitome_core::{
    Fact, Seq,
    context::{Context, EventNaming, SegmentBody},
    event::{InstructionKind, LoggedEvent, Pin},
    meter::Meter,
    model_view::ModelView,
};

use crate::notation::logged;

/// A view and what was played to it.
pub(crate) struct Stage {
    pub(crate) view: ModelView,
    meter: Arc<Meter>,
    /// The number each event of the log has here, by the number it has there.
    numbers: Vec<Seq>,
}

impl Stage {
    /// Where nothing has happened yet.
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        let view = ModelView::new(Arc::clone(&meter), EventNaming::Messages);
        Self { view, meter, numbers: vec![Seq::START] }
    }

    /// The next event of the log happens.
    pub(crate) fn play(&mut self, event: &LoggedEvent) {
        let head = self.view.line().last().map_or(Seq::START, |last| last.id.seq).next();
        self.numbers.push(head);
        let mut fact = event.event.fact.clone();
        self.renumber(&mut fact, head);
        let event = logged(head.0, fact);
        let pieces = self.meter.pieces(&event.event);
        self.view.push(event, pieces);
    }

    fn renumber(&self, fact: &mut Fact, head: Seq) {
        let here = |seq: &mut Seq| {
            *seq = usize::try_from(seq.0).ok().and_then(|at| self.numbers.get(at)).copied().unwrap_or(head);
        };
        match fact {
            Fact::Compacted(compaction) => {
                here(&mut compaction.through);
                compaction.first_kept.iter_mut().for_each(here);
            }
            Fact::CompactionReverted { compaction } | Fact::CompactionRestored { compaction } => {
                here(compaction);
            }
            Fact::Pinned { pin: Pin::Event(seq) } | Fact::Unpinned { pin: Pin::Event(seq) } => here(seq),
            Fact::Injected { beside, .. } => beside.iter_mut().for_each(here),
            _ => {}
        }
    }
}

/// What a request says, message by message, and within messages part by part: what a cache compares.
pub(crate) fn said(context: &Context) -> Vec<String> {
    let mut said = Vec::new();
    for segment in context.segments() {
        if let SegmentBody::Prefix(event) = segment.body() {
            // Which of several equal system prompts it is, nobody sees; and settings are no part of what is cached.
            if !matches!(event.event.fact, Fact::Instructed { what: InstructionKind::Settings, .. }) {
                said.push(format!("{:?}", event.event.fact));
            }
            continue;
        }
        let shown = segment.shown().map(|parts| format!("{parts:?}"));
        said.push(format!("{:?} {:?} {shown:?}", segment.key(), segment.body()));
    }
    said
}
