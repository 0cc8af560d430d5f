//! The view of a session: the context that the model sees, call after call.
//!
//! A view holds a context in which every decision stays as it was made: between two epochs a request only
//! grows at its end. [`ModelView::prepare`] makes the context ready for the next call under a policy,
//! [`ModelView::sent`] marks it as sent and returns the decisions, to be recorded; [`ModelView::restore`] makes the
//! same view again from the log and those records.

mod call_pairs;
mod decide;
mod epoch;
mod prepare;
mod read_cutoff;
mod read_window;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::{
    epoch::{Epoch, EpochCause},
    prepare::{NextCall, PreparationReport, SummaryOrder, SummaryOrigin, SummaryStatus, TargetShortfall},
    read_cutoff::ReadCutoff,
    read_window::ReadWindow,
};
use crate::{
    context::{Context, EventNaming, ExtendOutcome, RecordedChange},
    cost_planner::CallHistory,
    event::{Compaction, Event, Fact, InstructionKind, LoggedEvent, Timestamp},
    id::{EventId, ModelName, Seq, ThreadId},
    meter::Meter,
    pipeline::ReducerState,
    projection::{EventLine, project},
    seq_set::SeqSet,
    tokens::Tokens,
};

/// The model's view of a session, call after call.
#[derive(Clone, Debug)]
pub struct ModelView {
    line: EventLine,
    context: Context,
    passes: Vec<EditRecord>,
    state: ReducerState,
    epoch: Epoch,
    last: Option<SentRecord>,
    /// Change of the sent content since the last request.
    disturbed: Option<EpochCause>,
    pending: Option<PendingContext>,
    /// Decisions of the thread that this one was forked from about the shared part, until they are recorded
    /// here too.
    carried: Vec<RecordedChange>,
    /// Owner of the compactions that are made, if this is a rehearsal.
    rehearsal: Option<ThreadId>,
    /// The events without which no summary can be made.
    needed: SeqSet,
}

/// Decisions before a call: a record beside the log, appended once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditRecord {
    /// The newest event of the call.
    pub head: Seq,
    /// The epoch it opened, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The decisions, in order.
    pub edits: Vec<RecordedChange>,
    /// Memory of the reducers.
    pub state: ReducerState,
    /// Events that need not be read from then on, if they have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<ReadCutoff>,
}

/// State of a view at its last call: a record beside the log, of which the newest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentRecord {
    /// The newest event of it.
    pub head: Seq,
    /// Its size.
    pub tokens: Tokens,
    /// Time of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Model that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The size at which acting was last thought about.
    pub considered: Tokens,
    /// Past of the session.
    pub history: CallHistory,
}

/// Origin of a fork whose parent had gone on itself: the provider's cache holds the parent's last request,
/// and the shared part of it should be shown in the same words.
#[derive(Clone, Debug)]
pub struct ForkOrigin {
    /// The other thread's last call, as far as both share it. How large that is is counted anew.
    pub sent: SentRecord,
    /// The parent's decisions about the shared part.
    pub edits: Vec<RecordedChange>,
}

/// Context that was prepared and not yet sent.
#[derive(Clone, Debug)]
struct PendingContext {
    /// Decided before the context moved to another pivot.
    edits: Vec<RecordedChange>,
    epoch: Option<Epoch>,
    state: ReducerState,
    /// The context as it would have been sent without the epoch, if there is one.
    before: Option<Context>,
    model: Option<ModelName>,
    considered: Tokens,
    /// The compaction that was made for this.
    compacted: Option<EventId>,
    /// True if a pause has emptied the cache.
    paused: bool,
}

impl ModelView {
    /// A view of an empty session.
    pub fn new(meter: Arc<Meter>, names: EventNaming) -> Self {
        Self {
            line: EventLine::default(),
            context: Context::new(meter, names),
            passes: Vec::new(),
            state: ReducerState::default(),
            epoch: Epoch::FIRST,
            last: None,
            disturbed: None,
            pending: None,
            carried: Vec::new(),
            rehearsal: None,
            needed: SeqSet::default(),
        }
    }

    /// Of a session that is played again. The compactions made for it are not in its log: they take no number there, so
    /// that every other event keeps its own.
    pub fn for_replay(meter: Arc<Meter>, names: EventNaming) -> Self {
        Self { rehearsal: Some(ThreadId::derived(&["rehearsal"])), ..Self::new(meter, names) }
    }

    /// Restores a session's view: `line` holds its events, `passes` the decisions before its calls, `last`
    /// the state at the last of them. It shows the content that the view showed at that call, and everything
    /// since, and goes on as the old view would have. Decisions after the end of the line are left out, as in
    /// a fork.
    pub fn restore(
        line: &EventLine,
        passes: Vec<EditRecord>,
        last: Option<SentRecord>,
        meter: Arc<Meter>,
        names: EventNaming,
    ) -> Self {
        Self::new(meter, names).restored(line, passes, last)
    }

    /// Of a fork in which no call was made yet, of a thread that has gone on.
    pub fn restore_fork(
        line: &EventLine,
        passes: Vec<EditRecord>,
        origin: ForkOrigin,
        meter: Arc<Meter>,
        names: EventNaming,
    ) -> Self {
        let ForkOrigin { sent, edits } = origin;
        let mut view = Self { carried: edits, ..Self::new(meter, names) };
        let through = line.through(sent.head);
        view = view.restored(&through, passes, Some(sent));
        let tokens = view.context.tokens();
        if let Some(last) = &mut view.last {
            last.tokens = tokens;
            last.considered = last.considered.min(tokens);
        }
        view.go_on(line);
        view
    }

    fn restored(mut self, line: &EventLine, passes: Vec<EditRecord>, last: Option<SentRecord>) -> Self {
        let view = &mut self;
        let end = line.last().map_or(Seq::START, |last| last.id.seq);
        view.passes = passes.into_iter().filter(|pass| pass.head <= end).collect();
        let last = last.filter(|last| last.head <= end);
        let decided = view.passes.iter().map(|pass| pass.head).max();
        // Everything through the last call is shown at once, and only later events in their original form.
        let sent = last.as_ref().map(|last| last.head).max(decided).unwrap_or(Seq::START);
        view.line = line.through(sent);
        view.rebuild();
        view.remember(last, decided);
        view.go_on(line);
        self
    }

    /// Takes the events of a line that are not yet known.
    fn go_on(&mut self, line: &EventLine) {
        let known = self.line.last().map_or(Seq::START, |last| last.id.seq);
        for (event, pieces) in line.events_with_counts().filter(|(event, _)| event.id.seq > known) {
            self.take(Arc::clone(event), pieces.map(<[Tokens]>::to_vec));
        }
    }

    /// Remembers the last call, and where it left the epochs and the reducers.
    fn remember(&mut self, last: Option<SentRecord>, decided: Option<Seq>) {
        let tokens = self.context.tokens();
        self.last = last.or_else(|| {
            Some(SentRecord {
                head: decided?,
                tokens,
                at: None,
                model: None,
                considered: Tokens(0),
                history: CallHistory::default(),
            })
        });
        if let Some(last) = &self.last {
            self.context.mark_sent_through(last.head);
        }
        self.state = self.passes.last().map(|pass| pass.state.clone()).unwrap_or_default();
        let epoch = self.passes.iter().rev().find_map(|pass| pass.epoch.clone());
        self.epoch = epoch.unwrap_or(Epoch::FIRST);
    }

    /// Takes the next event, with the counts of its texts. The cost is that of the event; only a compaction,
    /// its undoing or its return costs as much as everything shown from there on.
    pub fn push(&mut self, event: Arc<LoggedEvent>, pieces: Vec<Tokens>) {
        self.take(event, Some(pieces));
    }

    fn take(&mut self, event: Arc<LoggedEvent>, pieces: Option<Vec<Tokens>>) {
        if self.line.last().is_some_and(|last| last.id == event.id) {
            return;
        }
        // A hook's addition goes along with the prepared context; any other continuation means that it was
        // not sent.
        if !matches!(event.event.fact, Fact::Injected { .. }) {
            self.abandon();
        }
        self.needed = SeqSet::default();
        let cause = match &event.event.fact {
            Fact::CompactionReverted { .. } | Fact::CompactionRestored { .. } => EpochCause::Undone,
            Fact::Compacted(compaction) if compaction.trigger.is_requested() => EpochCause::Asked,
            Fact::Instructed { what: InstructionKind::Tools, .. } => EpochCause::Tools,
            _ => EpochCause::Client,
        };
        let extended = self.context.extend(&event, pieces.as_deref());
        if extended == ExtendOutcome::Known {
            return;
        }
        match pieces {
            Some(pieces) => self.line.push(event, pieces),
            None => self.line.push_uncounted(event),
        }
        if extended == ExtendOutcome::Moved {
            self.rebuild();
        }
        if self.last.is_some() {
            self.disturb(extended, cause);
        }
    }

    /// Notes a change of the sent content. Only the newest move counts: earlier ones need not have been read
    /// when the session is reopened, which must come to the same cause.
    fn disturb(&mut self, extended: ExtendOutcome, cause: EpochCause) {
        if extended == ExtendOutcome::Moved {
            self.disturbed = Some(cause);
        } else if self.context.is_disturbed() {
            self.disturbed.get_or_insert(cause);
        }
    }

    /// Appends a compaction of our own as an event of this thread.
    fn compact(&mut self, compaction: Compaction, at: Option<Timestamp>) -> Option<Arc<LoggedEvent>> {
        let last = self.line.last()?;
        let id = match (self.rehearsal, self.context.names()) {
            (Some(thread), _) => EventId { thread, seq: last.id.seq },
            (None, EventNaming::Thread(thread) | EventNaming::Hidden(thread)) => {
                EventId { thread, seq: last.id.seq.next() }
            }
            (None, EventNaming::Messages | EventNaming::MessagesAfter(_)) => {
                EventId { thread: last.id.thread, seq: last.id.seq.next() }
            }
        };
        let event = Event::from_fact(Fact::Compacted(compaction), at);
        let link = last.link.next(&event, &event.fact_json());
        let pieces = self.context.meter().pieces(&event);
        let logged = Arc::new(LoggedEvent { id, event, link });
        self.line.push(Arc::clone(&logged), pieces);
        Some(logged)
    }

    /// Projects everything again and repeats the recorded decisions.
    fn rebuild(&mut self) {
        let (meter, names) = (Arc::clone(self.context.meter()), self.context.names());
        let sent = self.last.as_ref().map_or(Seq::START, |last| last.head);
        let mut context = project(&self.line, meter, names);
        for pass in &self.passes {
            context = context.redo(&pass.edits);
        }
        context = context.redo(&self.carried);
        context.mark_sent_through(sent);
        self.context = context;
    }

    /// The context, to be changed and put back.
    fn take_context(&mut self) -> Context {
        let nothing = Context::new(Arc::clone(self.context.meter()), self.context.names());
        std::mem::replace(&mut self.context, nothing)
    }

    /// Context that would be sent now. After [`prepare`](Self::prepare), the one to be sent.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sets if the model can ask for content that requests leave out: only then are they to name it. Earlier
    /// names stay as they were sent.
    pub fn show_names_if(&mut self, can_ask: bool) {
        let names = self.context.names().shown_if(can_ask);
        self.context.set_names(names);
    }

    /// The thread's events.
    pub fn line(&self) -> &EventLine {
        &self.line
    }

    /// The epoch of the last call.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// State at the last call; `None` if there was none.
    pub fn last(&self) -> Option<&SentRecord> {
        self.last.as_ref()
    }

    /// Decisions before each call that had any.
    pub fn passes(&self) -> &[EditRecord] {
        &self.passes
    }

    /// Lets `settle` change the prepared context, given the one without a new epoch. It is called only if
    /// there is a new epoch: otherwise no sent content has changed.
    pub fn adjust_prepared<E>(
        &mut self,
        settle: impl FnOnce(Context, &Context) -> Result<Context, E>,
    ) -> Result<(), E> {
        let Some(before) = self.pending.as_mut().and_then(|pending| pending.before.take()) else {
            return Ok(());
        };
        let context = self.take_context();
        match settle(context, &before) {
            Ok(settled) => {
                self.context = settled;
                Ok(())
            }
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Declares that the prepared context will not extend the sent one, whatever the context says: opens an
    /// epoch, unless there is one.
    pub fn reset(&mut self, cause: EpochCause) {
        let next = self.epoch.next(cause);
        if let Some(pending) = &mut self.pending {
            pending.epoch.get_or_insert(next);
        }
    }

    /// Marks the prepared context as sent. Returns the decisions, if there are any: append them beside the
    /// log.
    pub fn sent(&mut self, at: Option<Timestamp>) -> Option<&EditRecord> {
        let pending = self.pending.take()?;
        // From here on they are decided here.
        let mut edits = std::mem::take(&mut self.carried);
        edits.extend(pending.edits);
        edits.extend(self.context.recorded());
        self.context.mark_sent();
        self.disturbed = None;
        let tokens = self.context.tokens();
        let before = self.last.take();
        let mut history = before.as_ref().map_or_else(CallHistory::default, |last| last.history);
        history.calls += 1;
        history.growth += tokens.less(before.as_ref().map_or(Tokens(0), |last| last.tokens));
        history.pauses += u64::from(pending.paused);
        self.last = Some(SentRecord {
            head: self.context.sent(),
            tokens,
            at,
            model: pending.model.or_else(|| before.and_then(|last| last.model)),
            considered: pending.considered,
            history,
        });
        let changed = pending.state != self.state;
        self.state = pending.state;
        if let Some(epoch) = &pending.epoch {
            self.epoch = epoch.clone();
        }
        if edits.is_empty() && pending.epoch.is_none() && !changed {
            return None;
        }
        let floor = self.changed_floor(&edits);
        let pass = EditRecord {
            head: self.context.sent(),
            epoch: pending.epoch,
            edits,
            state: self.state.clone(),
            floor,
        };
        self.passes.push(pass);
        self.passes.last()
    }

    /// Events that need not be read from now on, if they differ from the last record.
    fn changed_floor(&self, edits: &[RecordedChange]) -> Option<ReadCutoff> {
        let known = self.passes.iter().rev().find_map(|pass| pass.floor.as_ref());
        if known.is_some_and(|known| known.is_of(&self.line))
            && !edits.iter().any(|record| record.change.is_fold())
        {
            return None;
        }
        ReadCutoff::of(&self.line, &self.context).filter(|floor| Some(floor) != known)
    }

    /// Forgets the events that only notes or a summary stand for: memory then follows the shown part, not the
    /// whole thread. Only for callers that can give them back when they [are needed](Self::needs_more).
    pub fn forget(&mut self) {
        if self.pending.is_none()
            && let Some(floor) = ReadCutoff::of(&self.line, &self.context)
        {
            self.line.forget(floor.gaps);
        }
    }

    /// The events that must be read and [given back](Self::supply_events) before the next request is sent, though they were
    /// not needed before: a compaction was adopted or undone that no longer stands for them, or a summary is to be made
    /// of them. Until then they are shown as notes, and no summary is made.
    pub fn needs_more(&self) -> Option<SeqSet> {
        let missing = if self.needed.is_empty() { self.line.events_to_read() } else { self.needed.clone() };
        Some(missing).filter(|missing| !missing.is_empty())
    }

    /// The same for a summary that is made outside of [`prepare`](Self::prepare):
    /// [`cut`](crate::summary::compaction::CompactionSettings::cut) and
    /// [`draft`](crate::summary::compaction::CompactionSettings::draft) require all events that are described only by
    /// notes.
    pub fn needs_all(&mut self) -> Option<SeqSet> {
        self.needed = self.line.unread(&self.context);
        self.needs_more()
    }

    /// Takes the events that it [needed](Self::needs_more), all of them, each with the counts of its texts. A
    /// prepared context is abandoned.
    pub fn supply_events(&mut self, events: Vec<(Arc<LoggedEvent>, Vec<Tokens>)>) {
        let needed = self.needs_more();
        self.abandon();
        if let Some(needed) = needed {
            self.line.fill(&needed, events);
            self.needed = SeqSet::default();
            self.rebuild();
        }
    }

    /// Abandons the prepared context: everything is as it was before.
    pub fn abandon(&mut self) {
        if let Some(pending) = self.pending.take() {
            if let Some(compaction) = pending.compacted {
                self.line.remove(compaction);
            }
            self.rebuild();
        }
    }
}
