//! From a line of events to a context: everything that will be sent, before anything is left out.
//!
//! [`project`] stands on the newest compaction and takes the events one by one; [`Projection`] keeps the line and its
//! context together as both grow. What comes out pairs by construction; what a provider demands beyond that is checked
//! when it is rendered.

use std::{collections::HashSet, sync::Arc};

use crate::{
    context::{Context, Extended, Names, is_rendered},
    event::{Compaction, Fact, Instruction, Logged},
    id::Seq,
    meter::Meter,
    seq_set::SeqSet,
    tokens::Tokens,
};

/// A line of events with the counts the log keeps of them.
///
/// It holds every event of the thread from some place on. What is before that place need not be there if a compaction
/// stands for it; the instructions that hold, and those at the head of the thread, must be there in any case.
#[derive(Clone, Debug, Default)]
pub struct Line {
    events: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    event: Arc<Logged>,
    pieces: Option<Vec<Tokens>>,
}

impl Line {
    /// Events, oldest first, not yet counted.
    pub fn new(events: impl IntoIterator<Item = Arc<Logged>>) -> Self {
        Self { events: events.into_iter().map(|event| Entry { event, pieces: None }).collect() }
    }

    /// Adds an event with the counts of its texts.
    pub fn push(&mut self, event: Arc<Logged>, pieces: Vec<Tokens>) {
        self.events.push(Entry { event, pieces: Some(pieces) });
    }

    /// The events.
    pub fn events(&self) -> impl Iterator<Item = &Arc<Logged>> {
        self.events.iter().map(|entry| &entry.event)
    }

    /// The newest compaction that was not reverted.
    fn pivot(&self) -> Option<(&Entry, &Compaction)> {
        let mut reverted = HashSet::new();
        for entry in self.events.iter().rev() {
            match &entry.event.event.fact {
                Fact::CompactionReverted { compaction } => {
                    reverted.insert(*compaction);
                }
                Fact::Compacted(compaction) if !reverted.contains(&entry.event.id.seq) => {
                    return Some((entry, compaction));
                }
                _ => {}
            }
        }
        None
    }
}

/// Makes the context that shows everything from the newest compaction on.
pub fn project(line: &Line, meter: Arc<Meter>, names: Names) -> Context {
    let mut context = Context::new(meter, names);
    let pivot = line.pivot();
    let shown = match pivot {
        Some((pivot, compaction)) => stand_on(&mut context, line, pivot, compaction),
        None => &line.events,
    };
    for entry in shown {
        if pivot.is_none_or(|(pivot, _)| pivot.event.id != entry.event.id) {
            context.grow(&entry.event, entry.pieces.as_deref());
        }
    }
    context
}

/// Shows the instructions from before a compaction that still hold, and its summary; gives back what comes after.
fn stand_on<'a>(
    context: &mut Context,
    line: &'a Line,
    pivot: &Entry,
    compaction: &Compaction,
) -> &'a [Entry] {
    let at = pivot.event.id.seq;
    // What is kept from before the compaction begins at its first kept event, if that is before it.
    let kept = compaction.first_kept.filter(|first| *first < at).unwrap_or(at);
    let (before, shown) =
        line.events.split_at(line.events.partition_point(|entry| entry.event.id.seq < kept));
    let mut leading = Seq::START;
    let mut begun = false;
    for entry in before {
        let Fact::Instructed { what, .. } = &entry.event.event.fact else {
            begun |= is_rendered(&entry.event);
            continue;
        };
        match what {
            Instruction::Message | Instruction::Project if begun => {}
            Instruction::Message | Instruction::Project => {
                leading = entry.event.id.seq;
                context.grow(&entry.event, entry.pieces.as_deref());
            }
            Instruction::Settings | Instruction::System | Instruction::Tools => {
                context.grow(&entry.event, entry.pieces.as_deref());
            }
        }
    }
    let mut covered = SeqSet::run(leading.next(), kept.previous());
    covered.insert(at);
    context.stand_on(&pivot.event, covered, pivot.pieces.as_deref());
    shown
}

/// A line and the context that shows it, growing together.
#[derive(Clone, Debug)]
pub struct Projection {
    line: Line,
    context: Context,
}

impl Projection {
    /// Of nothing yet.
    pub fn new(meter: Arc<Meter>, names: Names) -> Self {
        Self { line: Line::default(), context: Context::new(meter, names) }
    }

    /// Takes the next event with the counts of its texts. It costs the event; only a compaction, or the undoing of one,
    /// costs what is shown from there on. An event that it holds already is passed over.
    pub fn push(&mut self, event: Arc<Logged>, pieces: Vec<Tokens>) {
        match self.context.extend(&event, Some(&pieces)) {
            Extended::Known => {}
            Extended::Grown => self.line.push(event, pieces),
            Extended::Moved => {
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
    pub fn line(&self) -> &Line {
        &self.line
    }
}
