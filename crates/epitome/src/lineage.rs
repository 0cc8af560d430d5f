//! Going back, branching off and handing over: which events to append so that a thread stands as somebody wants it.
//!
//! Nothing here writes or reads a log. A line goes in, events come out; whoever has the log appends them, after its head
//! or after what a fork shares. Because undoing is an event like any other, it can be undone in turn, in every fork apart.

mod leaks;

use std::sync::Arc;

use epitome_core::{
    Event, Fact, Logged, Seq,
    context::{Context, Names},
    event::{Compaction, Pin, Summary, Trigger},
    lineage::Standing,
    meter::Meter,
    project::{Line, project},
    summary::{
        Brief, PinRefused, check_pin,
        compaction::{Cutting, Drafting, Finished},
        summarise,
    },
};
use thiserror::Error;

use self::leaks::without_leaks;

/// A compaction of a line, and how it stands at the line's end.
#[derive(Clone, Copy, Debug)]
pub struct Stood<'l> {
    /// The event.
    pub compaction: &'l Arc<Logged>,
    /// What the last word about it says.
    pub standing: Standing,
    /// Where that was said: where it was made, if nobody has said anything since.
    pub since: Seq,
}

/// The compactions of a line, oldest first. Of those that hold, the newest is what contexts stand on.
pub fn compactions(line: &Line) -> Vec<Stood<'_>> {
    let mut found: Vec<Stood<'_>> = Vec::new();
    for event in line.events() {
        let (about, standing) = match &event.event.fact {
            Fact::Compacted(_) => {
                let since = event.id.seq;
                found.push(Stood { compaction: event, standing: Standing::Holds, since });
                continue;
            }
            Fact::CompactionReverted { compaction } => (*compaction, Standing::Undone),
            Fact::CompactionRestored { compaction } => (*compaction, Standing::Holds),
            _ => continue,
        };
        let known = found.binary_search_by_key(&about, |stood| stood.compaction.id.seq);
        if let Ok(at) = known
            && found[at].standing != standing
        {
            found[at] = Stood { standing, since: event.id.seq, ..found[at] };
        }
    }
    found
}

/// Why nothing can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NothingToUndo {
    /// No compaction holds.
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
        /// Where it was undone.
        at: Seq,
    },
}

/// Undoes the compaction that contexts stand on: what it covered is shown again, or the compaction before it is stood on.
pub fn undo(line: &Line) -> Result<Event, NothingToUndo> {
    let compactions = compactions(line);
    let pivot = compactions.iter().rfind(|stood| stood.standing == Standing::Holds);
    Ok(revert(pivot.ok_or(NothingToUndo::NoneHolds)?.compaction.id.seq))
}

/// Undoes a certain compaction. One that a newer one covers may be undone too; it shows when that one is.
pub fn undo_of(line: &Line, compaction: Seq) -> Result<Event, NothingToUndo> {
    match find(line, compaction) {
        None => Err(NothingToUndo::NoCompaction(compaction)),
        Some(Stood { standing: Standing::Undone, since: at, .. }) => {
            Err(NothingToUndo::Undone { compaction, at })
        }
        Some(_) => Ok(revert(compaction)),
    }
}

/// Why nothing can be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NothingToRedo {
    /// No compaction is undone.
    #[error("nothing to redo: no compaction is undone")]
    NoneUndone,
    /// What was undone is covered by a newer compaction.
    #[error(
        "nothing to redo: the compaction at {undone} would stay hidden behind the newer one at {by}. Undo that one first"
    )]
    Covered {
        /// What was undone last.
        undone: Seq,
        /// The newest compaction that holds.
        by: Seq,
    },
    /// There is no such compaction.
    #[error("cannot restore {0}: no compaction of this thread is there")]
    NoCompaction(Seq),
    /// It holds.
    #[error("cannot restore the compaction at {0}: it is not undone")]
    Holds(Seq),
}

/// Brings back what was undone last, so that undoing twice and redoing twice leads back where it began.
///
/// A compaction that is older than one that holds is passed over: contexts stand on the newer one, and nothing would be
/// seen of it. So a compaction that is made after an undo takes the place of what was undone.
pub fn redo(line: &Line) -> Result<Event, NothingToRedo> {
    let compactions = compactions(line);
    let undone = || compactions.iter().filter(|stood| stood.standing == Standing::Undone);
    let pivot = compactions.iter().rfind(|stood| stood.standing == Standing::Holds);
    let pivot = pivot.map(|stood| stood.compaction.id.seq);
    let last = undone().max_by_key(|stood| stood.since).ok_or(NothingToRedo::NoneUndone)?;
    let shows = |stood: &&Stood<'_>| pivot.is_none_or(|pivot| pivot < stood.compaction.id.seq);
    match (undone().filter(shows).max_by_key(|stood| stood.since), pivot) {
        (Some(stood), _) => Ok(restore(stood.compaction.id.seq)),
        (None, Some(by)) => Err(NothingToRedo::Covered { undone: last.compaction.id.seq, by }),
        (None, None) => Err(NothingToRedo::NoneUndone),
    }
}

/// Brings back a certain compaction, also one that a newer one covers.
pub fn redo_of(line: &Line, compaction: Seq) -> Result<Event, NothingToRedo> {
    match find(line, compaction) {
        None => Err(NothingToRedo::NoCompaction(compaction)),
        Some(Stood { standing: Standing::Holds, .. }) => Err(NothingToRedo::Holds(compaction)),
        Some(_) => Ok(restore(compaction)),
    }
}

fn find(line: &Line, compaction: Seq) -> Option<Stood<'_>> {
    compactions(line).into_iter().find(|stood| stood.compaction.id.seq == compaction)
}

fn revert(compaction: Seq) -> Event {
    Event::own(Fact::CompactionReverted { compaction }, None)
}

fn restore(compaction: Seq) -> Event {
    Event::own(Fact::CompactionRestored { compaction }, None)
}

/// What is pinned, in the order it was. The line must hold every event that pins or lets go.
pub fn pins(line: &Line) -> Vec<Pin> {
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

/// Pins something.
pub fn pin(line: &Line, pin: Pin) -> Result<Event, PinRefused> {
    let head = line.last().map_or(Seq::START, |last| last.id.seq);
    if let Pin::Event(event) = pin
        && !(Seq::START < event && event <= head)
    {
        return Err(PinRefused::NoSuchEvent { event, head });
    }
    check_pin(&pins(line), &pin)?;
    Ok(Event::own(Fact::Pinned { pin }, None))
}

/// It is not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot unpin this: it is not pinned")]
pub struct NotPinned;

/// Takes a pin away.
pub fn unpin(line: &Line, pin: Pin) -> Result<Event, NotPinned> {
    if pins(line).contains(&pin) { Ok(Event::own(Fact::Unpinned { pin }, None)) } else { Err(NotPinned) }
}

/// How a thread begins that was forked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkMode {
    /// With a summary of what a compaction of its parent covers, as far as it had happened by then: cheap.
    #[default]
    WithSummary,
    /// With everything word for word, also what was summarised before the fork: complete.
    InFull,
}

/// How summaries are drafted for a new thread.
#[derive(Clone, Copy, Debug)]
pub struct Drafter<'d> {
    /// What is kept, and how long a summary may be.
    pub drafting: &'d Drafting,
    /// Who counts.
    pub meter: &'d Arc<Meter>,
    /// How the new thread names what its summary stands for.
    pub names: Names,
}

/// What a thread that is forked from `parent` after its event `at` gets appended after what it shares. Often that is
/// nothing: the fork stands on the compaction that its parent stood on.
///
/// `parent` must hold every event of the parent thread, those after `at` too: a summary that was made later knows more than
/// the fork may, and that is how it is found out. A summary that would save nothing is left away.
pub fn fork(parent: &Line, at: Seq, mode: ForkMode, by: &Drafter<'_>) -> Vec<Event> {
    let shared = until(parent, at);
    match mode {
        ForkMode::InFull => {
            let held = compactions(&shared).into_iter().filter(|stood| stood.standing == Standing::Holds);
            held.map(|stood| revert(stood.compaction.id.seq)).collect()
        }
        ForkMode::WithSummary => by.summary_at_fork(parent, &shared, at).into_iter().collect(),
    }
}

/// What a thread that is forked at the head of `line` gets appended to go on with `goal`, a user's message: everything so
/// far becomes a summary, and nothing is kept beside it. `brief` is that summary, if somebody has made one of
/// [`Cutting::whole`]; otherwise the built-in summariser does.
///
/// If the summary would be no smaller than what it stands for, everything stays and only the goal is appended.
pub fn handoff(line: &Line, goal: Event, brief: Option<Brief>, by: &Drafter<'_>) -> Vec<Event> {
    by.summary_of_all(line, brief).into_iter().chain([goal]).collect()
}

impl Drafter<'_> {
    fn project(&self, line: &Line) -> Context {
        project(line, Arc::clone(self.meter), self.names)
    }

    fn summary_at_fork(&self, parent: &Line, shared: &Line, at: Seq) -> Option<Event> {
        let compactions = compactions(parent);
        let mut later = compactions.iter().filter(|stood| at < stood.compaction.id.seq);
        let nearest = later.find(|stood| stood.standing == Standing::Holds)?;
        let context = self.project(shared);
        let cutting = self.drafting.cut(None, &context, shared).ok()?;
        let mut brief = summarise(&cutting.events, cutting.previous.as_ref(), &cutting.caps);
        if let Some(later) = brief_of(nearest.compaction) {
            let before = without_leaks(later.before(cutting.first_kept), parent, at);
            brief = brief.joined(&before, &cutting.caps);
        }
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, Trigger::Manual);
        let finished = Finished { first, first_kept, brief, trigger };
        let compaction = finished.compaction(&context, self.drafting.length).ok()?;
        Some(Event::own(Fact::Compacted(compaction), None))
    }

    fn summary_of_all(&self, line: &Line, brief: Option<Brief>) -> Option<Event> {
        let context = self.project(line);
        let cutting = Cutting::whole(&context, line, self.drafting)?;
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, Trigger::Manual);
        let caps = &cutting.caps;
        let built_in = || summarise(&cutting.events, cutting.previous.as_ref(), caps);
        let brief = brief.unwrap_or_else(built_in);
        let finished = Finished { first, first_kept, brief, trigger }.with_pins(line, caps);
        let mut compaction = finished.compaction(&context, self.drafting.length).ok()?;
        compaction.first_kept = None;
        Some(Event::own(Fact::Compacted(compaction), None))
    }
}

fn brief_of(compaction: &Logged) -> Option<&Brief> {
    match &compaction.event.fact {
        Fact::Compacted(Compaction { summary: Summary::Structured { brief, .. }, .. }) => Some(brief),
        _ => None,
    }
}

/// The part of a line that a fork after `at` shares.
pub fn until(line: &Line, at: Seq) -> Line {
    let mut shared = Line::default();
    for (event, pieces) in line.counted().take_while(|(event, _)| event.id.seq <= at) {
        match pieces {
            Some(pieces) => shared.push(Arc::clone(event), pieces.to_vec()),
            None => shared.push_uncounted(Arc::clone(event)),
        }
    }
    shared
}
