//! Undo, redo, forks and handoffs: the events to append so that a thread stands as its user wants it.
//!
//! These functions neither write nor read a log. They take a line and return events; the caller appends these
//! after the log's head or after what a fork shares. Because undoing is an event like any other, it can be
//! undone in turn, in every fork separately.

mod summary_leaks;

use std::sync::Arc;

use epitome_core::{
    Event, Fact, LoggedEvent, Seq,
    context::{Context, EventNaming, SegmentBody},
    event::{Compaction, CompactionTrigger, Pin, Summary},
    lineage::CompactionStatus,
    meter::Meter,
    projection::{EventLine, project},
    summary::{
        PinError, StructuredSummary, check_pin,
        compaction::{CompactionSettings, CompactionSpan, FinishedSummary, VerbatimTail},
        summarise,
    },
};
use thiserror::Error;

use self::summary_leaks::remove_leaks;

/// A compaction of a line, with its state at the line's end.
#[derive(Clone, Copy, Debug)]
pub struct StandingCompaction<'l> {
    /// The event.
    pub compaction: &'l Arc<LoggedEvent>,
    /// State after the last event about it.
    pub standing: CompactionStatus,
    /// The last event about it: the compaction itself if no other followed.
    pub since: Seq,
}

/// The compactions of a line, oldest first. Contexts build on the newest one in force.
pub fn compactions(line: &EventLine) -> Vec<StandingCompaction<'_>> {
    let mut found: Vec<StandingCompaction<'_>> = Vec::new();
    for event in line.events() {
        let (about, standing) = match &event.event.fact {
            Fact::Compacted(_) => {
                let since = event.id.seq;
                found.push(StandingCompaction {
                    compaction: event,
                    standing: CompactionStatus::Holds,
                    since,
                });
                continue;
            }
            Fact::CompactionReverted { compaction } => (*compaction, CompactionStatus::Undone),
            Fact::CompactionRestored { compaction } => (*compaction, CompactionStatus::Holds),
            _ => continue,
        };
        let known = found.binary_search_by_key(&about, |stood| stood.compaction.id.seq);
        if let Ok(at) = known
            && found[at].standing != standing
        {
            found[at] = StandingCompaction { standing, since: event.id.seq, ..found[at] };
        }
    }
    found
}

/// Reason why nothing can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UndoError {
    /// No compaction is in force.
    #[error("nothing to undo: no compaction is in force")]
    NoneHolds,
    /// There is no such compaction.
    #[error("cannot undo {0}: no compaction of this thread is there")]
    NoCompaction(Seq),
    /// It is undone already.
    #[error("cannot undo the compaction at {compaction}: it was undone at {at}")]
    Undone {
        /// The compaction.
        compaction: Seq,
        /// Event that undid it.
        at: Seq,
    },
}

/// Undoes the compaction in force: the events that it covered are shown again, or the compaction before it
/// comes into force.
pub fn undo(line: &EventLine) -> Result<Event, UndoError> {
    let compactions = compactions(line);
    let pivot = compactions.iter().rfind(|stood| stood.standing == CompactionStatus::Holds);
    Ok(revert(pivot.ok_or(UndoError::NoneHolds)?.compaction.id.seq))
}

/// Undoes a certain compaction, even one that a newer one covers; that shows once the newer one is undone
/// too.
pub fn undo_of(line: &EventLine, compaction: Seq) -> Result<Event, UndoError> {
    match find(line, compaction) {
        None => Err(UndoError::NoCompaction(compaction)),
        Some(StandingCompaction { standing: CompactionStatus::Undone, since: at, .. }) => {
            Err(UndoError::Undone { compaction, at })
        }
        Some(_) => Ok(revert(compaction)),
    }
}

/// Reason why nothing can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RedoError {
    /// No compaction is undone.
    #[error("nothing to redo: no compaction is undone")]
    NoneUndone,
    /// A newer compaction covers the one that was undone.
    #[error(
        "nothing to redo: the compaction at {undone} would stay hidden behind the newer one at {by}. Undo that one first"
    )]
    Covered {
        /// The compaction that was undone last.
        undone: Seq,
        /// The newest compaction in force.
        by: Seq,
    },
    /// There is no such compaction.
    #[error("cannot restore {0}: no compaction of this thread is there")]
    NoCompaction(Seq),
    /// It is in force.
    #[error("cannot restore the compaction at {0}: it is not undone")]
    Holds(Seq),
}

/// Restores the compaction that was undone last, so that undoing twice and redoing twice leads back to the
/// start.
///
/// A compaction that is older than the one in force is passed over: contexts build on the newer one, so
/// restoring the older one would have no effect. So a compaction made after an undo replaces the one that was
/// undone.
pub fn redo(line: &EventLine) -> Result<Event, RedoError> {
    let compactions = compactions(line);
    let undone = || compactions.iter().filter(|stood| stood.standing == CompactionStatus::Undone);
    let pivot = compactions.iter().rfind(|stood| stood.standing == CompactionStatus::Holds);
    let pivot = pivot.map(|stood| stood.compaction.id.seq);
    let last = undone().max_by_key(|stood| stood.since).ok_or(RedoError::NoneUndone)?;
    let shows = |stood: &&StandingCompaction<'_>| pivot.is_none_or(|pivot| pivot < stood.compaction.id.seq);
    match (undone().filter(shows).max_by_key(|stood| stood.since), pivot) {
        (Some(stood), _) => Ok(restore(stood.compaction.id.seq)),
        (None, Some(by)) => Err(RedoError::Covered { undone: last.compaction.id.seq, by }),
        (None, None) => Err(RedoError::NoneUndone),
    }
}

/// Restores a certain compaction, even one that a newer one covers.
pub fn redo_of(line: &EventLine, compaction: Seq) -> Result<Event, RedoError> {
    match find(line, compaction) {
        None => Err(RedoError::NoCompaction(compaction)),
        Some(StandingCompaction { standing: CompactionStatus::Holds, .. }) => {
            Err(RedoError::Holds(compaction))
        }
        Some(_) => Ok(restore(compaction)),
    }
}

fn find(line: &EventLine, compaction: Seq) -> Option<StandingCompaction<'_>> {
    compactions(line).into_iter().find(|stood| stood.compaction.id.seq == compaction)
}

fn revert(compaction: Seq) -> Event {
    Event::from_fact(Fact::CompactionReverted { compaction }, None)
}

fn restore(compaction: Seq) -> Event {
    Event::from_fact(Fact::CompactionRestored { compaction }, None)
}

/// The pins of a line, in order. The line must hold every event that pins or unpins.
pub fn pins(line: &EventLine) -> Vec<Pin> {
    let mut pins: Vec<Pin> = Vec::new();
    for event in line.events() {
        match &event.event.fact {
            Fact::Pinned { pin } if !pins.contains(pin) => pins.push(pin.clone()),
            Fact::Unpinned { pin } => pins.retain(|known| known != pin),
            _ => {}
        }
    }
    pins
}

/// Pins words or an event.
pub fn pin(line: &EventLine, pin: Pin) -> Result<Event, PinError> {
    let head = line.last().map_or(Seq::START, |last| last.id.seq);
    if let Pin::Event(event) = pin
        && !(Seq::START < event && event <= head)
    {
        return Err(PinError::NoSuchEvent { event, head });
    }
    check_pin(&pins(line), &pin)?;
    Ok(Event::from_fact(Fact::Pinned { pin }, None))
}

/// The pin does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot unpin this: it is not pinned")]
pub struct NotPinnedError;

/// Removes a pin.
pub fn unpin(line: &EventLine, pin: Pin) -> Result<Event, NotPinnedError> {
    if pins(line).contains(&pin) {
        Ok(Event::from_fact(Fact::Unpinned { pin }, None))
    } else {
        Err(NotPinnedError)
    }
}

/// Beginning of a forked thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkMode {
    /// With a summary if a later compaction of its parent covers the fork's place, of what had happened by then; as its
    /// parent stood there otherwise.
    #[default]
    SummaryIfCompacted,
    /// With a summary of what had happened by the fork, at any place: cheap.
    WithSummary,
    /// With everything word for word, including what was summarised before the fork: complete.
    InFull,
}

/// Settings for drafting summaries of a new thread.
#[derive(Clone, Copy, Debug)]
pub struct ForkDraftSettings<'d> {
    /// Rules for what is kept, and how long a summary may be.
    pub drafting: &'d CompactionSettings,
    /// Meter of the new thread.
    pub meter: &'d Arc<Meter>,
    /// Names by which the new thread refers to the summarised events.
    pub names: EventNaming,
}

/// Events to append to a thread that is forked from `parent` after its event `at`, after the shared ones.
/// Often there are none: the fork builds on its parent's compaction.
///
/// `parent` must hold every event of the parent thread, including those after `at`: a later summary may know
/// more than the fork should, and these events show it. A summary that would save nothing is left out, and no other is
/// made where the fork stands on one and nothing old has come since.
pub fn fork(parent: &EventLine, at: Seq, mode: ForkMode, by: &ForkDraftSettings<'_>) -> Vec<Event> {
    let shared = line_until(parent, at);
    match mode {
        ForkMode::InFull => {
            let held =
                compactions(&shared).into_iter().filter(|stood| stood.standing == CompactionStatus::Holds);
            held.map(|stood| revert(stood.compaction.id.seq)).collect()
        }
        ForkMode::SummaryIfCompacted | ForkMode::WithSummary => {
            let later = later_compaction(parent, at);
            if later.is_none() && mode == ForkMode::SummaryIfCompacted {
                return Vec::new();
            }
            by.summary_at_fork(parent, &shared, at, later).into_iter().collect()
        }
    }
}

/// Events to append to a thread that is forked at the head of `line` to go on with `goal`, a user's message:
/// everything so far becomes a summary, and nothing is kept beside it. `brief` is that summary, if a model
/// has made one of [`CompactionSpan::of_everything`]; otherwise the built-in summariser makes it.
///
/// If the summary would be no smaller than the events it covers, everything stays and only the goal is
/// appended.
pub fn handoff(
    line: &EventLine,
    goal: Event,
    brief: Option<StructuredSummary>,
    by: &ForkDraftSettings<'_>,
) -> Vec<Event> {
    by.summary_of_all(line, brief).into_iter().chain([goal]).collect()
}

impl ForkDraftSettings<'_> {
    fn project(&self, line: &EventLine) -> Context {
        project(line, Arc::clone(self.meter), self.names)
    }

    /// Summary of what a fork shares. `later` is the compaction of the parent that covers the fork's place, if there is one.
    fn summary_at_fork(
        &self,
        parent: &EventLine,
        shared: &EventLine,
        at: Seq,
        later: Option<&LoggedEvent>,
    ) -> Option<Event> {
        let context = self.project(shared);
        let Some(cutting) = self.cut_at_fork(&context, shared, later.is_some()) else {
            // A single turn can be summarised as a whole, unless its end is still to be answered.
            let is_answered = context
                .segments()
                .last()
                .is_some_and(|last| matches!(last.body(), SegmentBody::Answer { .. }));
            let is_single = later.is_none() && context.summary().is_none() && is_answered;
            return if is_single { self.summary_of_all(shared, None) } else { None };
        };
        let mut brief = summarise(&cutting.events, cutting.previous.as_ref(), &cutting.caps);
        if let Some(later) = later.and_then(brief_of) {
            let before = remove_leaks(later.before(cutting.first_kept), parent, at);
            brief = brief.merged_with(&before, &cutting.caps);
        }
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, CompactionTrigger::Manual);
        let finished = FinishedSummary { first, first_kept, brief, trigger };
        let compaction = finished.into_compaction(&context, self.drafting.length).ok()?;
        Some(Event::from_fact(Fact::Compacted(compaction), None))
    }

    /// Cut of what a fork shares. Where no compaction covers the fork's place and everything would be kept, only the newest
    /// turn is.
    fn cut_at_fork(&self, context: &Context, shared: &EventLine, is_covered: bool) -> Option<CompactionSpan> {
        let usual = self.drafting.cut(None, context, shared).ok();
        if usual.is_some() || is_covered || context.summary().is_some() {
            return usual;
        }
        let short = CompactionSettings { keep: VerbatimTail::Turns(1), ..*self.drafting };
        short.cut(None, context, shared).ok()
    }

    /// The compaction of a whole line, with nothing kept beside it; `None` if nothing would be gained.
    pub(crate) fn summary_of_all(&self, line: &EventLine, brief: Option<StructuredSummary>) -> Option<Event> {
        let context = self.project(line);
        let cutting = CompactionSpan::of_everything(&context, line, self.drafting)?;
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, CompactionTrigger::Manual);
        let caps = &cutting.caps;
        let built_in = || summarise(&cutting.events, cutting.previous.as_ref(), caps);
        let brief = brief.unwrap_or_else(built_in);
        let finished = FinishedSummary { first, first_kept, brief, trigger }.with_pins(line, caps);
        let mut compaction = finished.into_compaction(&context, self.drafting.length).ok()?;
        compaction.first_kept = None;
        Some(Event::from_fact(Fact::Compacted(compaction), None))
    }
}

/// The nearest compaction after an event that is in force.
fn later_compaction(line: &EventLine, at: Seq) -> Option<&LoggedEvent> {
    let mut later = compactions(line).into_iter().filter(|stood| at < stood.compaction.id.seq);
    let nearest = later.find(|stood| stood.standing == CompactionStatus::Holds)?;
    Some(&**nearest.compaction)
}

/// The first event that a compaction of everything in a line covers: after the newest one in force, what that one kept.
pub fn first_uncovered(line: &EventLine) -> Seq {
    let first = line.events().next().map_or(Seq::START, |event| event.id.seq);
    let standing =
        compactions(line).into_iter().rev().find(|stood| stood.standing == CompactionStatus::Holds);
    standing.map_or(first, |stood| match &stood.compaction.event.fact {
        Fact::Compacted(compaction) => compaction.kept_from(stood.compaction.id.seq),
        _ => first,
    })
}

fn brief_of(compaction: &LoggedEvent) -> Option<&StructuredSummary> {
    match &compaction.event.fact {
        Fact::Compacted(Compaction { summary: Summary::Structured { brief, .. }, .. }) => Some(brief),
        _ => None,
    }
}

/// Part of a line that a fork after `at` shares.
pub fn line_until(line: &EventLine, at: Seq) -> EventLine {
    let mut shared = EventLine::default();
    for (event, pieces) in line.events_with_counts().take_while(|(event, _)| event.id.seq <= at) {
        match pieces {
            Some(pieces) => shared.push(Arc::clone(event), pieces.to_vec()),
            None => shared.push_uncounted(Arc::clone(event)),
        }
    }
    shared
}
