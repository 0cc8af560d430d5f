//! One request: placed, rewritten and recorded, in one commit.

use std::{cell::Cell, sync::Arc};

use epitome_core::{
    Event, Fact, Seq, SessionId, ThreadId, Tokens, budget::Budget, context::EventNaming,
    event::CompactionTrigger, projection::project,
};
use epitome_store::{
    NewThread, Store, StoreError, ThreadStart,
    records::{CallRow, HeadPromotion, ThreadCommit, ThreadOpening},
};
use epitome_wire::{
    caller::{Caller, RequestPurpose},
    incoming::{IncomingRequest, PriorHistory, RequestFrame},
    overflow::ContextOverflow,
};

use super::{
    BodySlice, ForkInheritance, RequestDisposition, RequestOverrides, RewriteOutcome, RewriteReport,
    RewriteSettings, RewriteStatus, RewrittenRequest, SessionSummariser, SummariserLookup,
    client_cache::{PrefixLookup, RequestCacheFacts},
    client_examples::{self, ExampleBudget},
    compact_command,
    early_release::{self, EarlyRelease, fits_unchanged},
    rewrite_body::RewriteInput,
    thread_cache::CachedThread,
};
use crate::{
    compact::{self, CompactError},
    holdout::HoldoutGroup,
    recorder::{
        PendingRecord, PlacementKind, RecordError, RequestArrival, TrafficRecorder, as_conflict,
        placement::{RequestPlace, ThreadKind},
    },
    session::{
        SessionError,
        call_input::{CallInput, LimitTrust, WriteTiming},
        engine::{BUILT_IN_NAME, PreparedCall},
        manual_compaction,
        setup::{ObservedLimits, RequestLimit, SessionSetup},
    },
};

impl TrafficRecorder {
    /// Records a request as [`record`](Self::record) does, and decides how it goes on. Does not wait for a model.
    ///
    /// `summarisers` selects the model that writes the session's summaries in the background; if it returns `None`,
    /// the built-in summariser does. It is called anew with every request, because a summariser may hold something
    /// that only the newest request has, such as a key.
    pub fn rewrite(
        &self,
        arrival: &RequestArrival<'_>,
        composing: &RewriteSettings,
        wishes: &RequestOverrides,
        summarisers: &SummariserLookup<'_>,
    ) -> Result<RewriteOutcome, RecordError> {
        self.compose_by(arrival, composing, wishes, summarisers, &EarlyRelease::never())
    }

    /// The same for a caller that cannot wait: `leaves` is called, once at most and before the request is counted and
    /// recorded, if it is certain to go on as it came. Then it has left, whatever the later count shows: if the call
    /// would have been a different one, that is recorded as a call that never left.
    pub fn rewrite_early(
        &self,
        arrival: &RequestArrival<'_>,
        composing: &RewriteSettings,
        wishes: &RequestOverrides,
        summarisers: &SummariserLookup<'_>,
        leaves: &dyn Fn(),
    ) -> Result<RewriteOutcome, RecordError> {
        self.compose_by(arrival, composing, wishes, summarisers, &EarlyRelease::on_release(leaves))
    }

    fn compose_by(
        &self,
        arrival: &RequestArrival<'_>,
        composing: &RewriteSettings,
        wishes: &RequestOverrides,
        summarisers: &SummariserLookup<'_>,
        ahead: &EarlyRelease<'_>,
    ) -> Result<RewriteOutcome, RecordError> {
        let (unfit, cramped) = (Cell::new(false), Cell::new(false));
        let mut way = None;
        let clients = &self.lives.clients;
        let mut ticket = self.record_with(arrival, &mut |seen, caller, place| {
            let beginnings = clients.beginnings(arrival.principal, seen);
            let summariser = seen.model().and_then(|model| summarisers(&model.0));
            let composition = RequestRewrite {
                recorder: self,
                arrival,
                composing,
                wishes,
                summariser: summariser.as_ref(),
                seen,
                caller,
                client: PrefixLookup { caches: clients, beginnings: &beginnings, at: arrival.at },
                unfit: &unfit,
                cramped: &cramped,
                ahead,
            };
            let taken = composition.take(place)?;
            // A request that goes on as it came is noted at the point where it is recorded.
            if let Some((_, RequestDisposition::Forward(outgoing))) = &taken
                && outgoing.done.left == RewriteStatus::Composed
            {
                clients.note_sent(&beginnings, arrival.at, outgoing.done.before == outgoing.done.after);
            }
            Ok(taken.map(|(ticket, taken)| {
                way = Some(taken);
                ticket
            }))
        })?;
        let mut way = way.unwrap_or_else(|| as_it_came(arrival.body, RewriteStatus::Unfit));
        if ahead.has_left() && !early_release::is_unchanged(&way, arrival.body) {
            self.note_call_not_sent(&mut ticket, arrival.at)?;
            way = as_it_came(arrival.body, RewriteStatus::Ahead);
        }
        Ok(RewriteOutcome { ticket, way })
    }

    /// Makes a composed request smaller after its provider refused it as too long. `None` if that is impossible.
    pub fn rewrite_smaller(
        &self,
        ticket: &mut PendingRecord,
        arrival: &RequestArrival<'_>,
        composing: &RewriteSettings,
        refused: ContextOverflow,
    ) -> Result<Option<RewrittenRequest>, RecordError> {
        let mut seen = IncomingRequest::read(arrival.format, arrival.body, &self.memo)?;
        self.resolve(arrival.principal, &mut seen)?;
        let Some(frame) = seen.frame() else { return Ok(None) };
        if !self.write_now(ticket)? {
            return Ok(None);
        }
        if ticket.call.is_none() {
            return self.compose_relayed(ticket, (&seen, frame), (arrival, composing), refused);
        }
        let (Some(call), Some(live)) = (ticket.call, self.lives.of(ticket)) else { return Ok(None) };
        let unsent = ticket.unsent;
        let request = RewriteInput {
            seen: &seen,
            shared: arrival.shared,
            frame,
            unsent,
            recall: false,
            takes_tools: true,
            below: None,
            client: None,
        };
        let made = smaller(&live, request, (call, refused));
        live.work();
        self.mark_replaced(ticket, made)
    }

    /// Composes a request that was sent as it came, and that its provider refused as too long. It is a client's own
    /// summary, or a first request that left before it was counted.
    fn compose_relayed(
        &self,
        ticket: &mut PendingRecord,
        (seen, frame): (&IncomingRequest<'_>, RequestFrame<'_>),
        (arrival, composing): (&RequestArrival<'_>, &RewriteSettings),
        refused: ContextOverflow,
    ) -> Result<Option<RewrittenRequest>, RecordError> {
        let Some(model) = seen.model() else { return Ok(None) };
        let setup = self.lives.setup(seen.format(), &model.0, composing);
        let window = composing.window.into_iter().chain(refused.limit).min();
        let limit = setup.limit_of(window, seen.answer_limit().map(Tokens));
        let place = (ticket.session, ticket.thread);
        let made = CachedThread::open(self.store(), place, setup, composing, None).and_then(|live| {
            live.is_limited(limit)?;
            let request = RewriteInput {
                seen,
                shared: arrival.shared,
                frame,
                unsent: None,
                recall: false,
                takes_tools: seen.has_tools(),
                below: None,
                client: None,
            };
            Ok((rewrite_request(&live, (ticket.head, CallInput::default()), request)?, live))
        });
        let made = made.map(|(made, live)| {
            ticket.live = Some(Arc::new(live));
            made
        });
        self.mark_replaced(ticket, made)
    }

    /// Marks a ticket as one whose call was made again, or could not be, after the first request had left.
    pub(super) fn mark_replaced(
        &self,
        ticket: &mut PendingRecord,
        made: Result<Option<(PreparedCall, RewrittenRequest)>, SessionError>,
    ) -> Result<Option<RewrittenRequest>, RecordError> {
        if let Ok(Some((made, outgoing))) = made {
            self.move_to_head(ticket, made.head, Some(made.call));
            return Ok(Some(outgoing));
        }
        // The memory of a request that was rewritten in vain is wrong.
        self.lives.forget(ticket.thread);
        match made {
            Err(SessionError::Store(error)) if !error.is_conflict() => Err(error.into()),
            _ => Ok(None),
        }
    }
}

/// One request while it is composed.
struct RequestRewrite<'r, 'a, 'b> {
    recorder: &'r TrafficRecorder,
    arrival: &'r RequestArrival<'a>,
    composing: &'r RewriteSettings,
    wishes: &'r RequestOverrides,
    summariser: Option<&'r SessionSummariser>,
    seen: &'r IncomingRequest<'b>,
    caller: &'r Caller,
    client: PrefixLookup<'r>,
    /// True once composing has failed for good.
    unfit: &'r Cell<bool>,
    /// True once there was no room for its examples.
    cramped: &'r Cell<bool>,
    /// Callback for a request that leaves before it is counted.
    ahead: &'r EarlyRelease<'r>,
}

impl<'b> RequestRewrite<'_, '_, 'b> {
    /// Records the request at its place, and decides how it goes on. `None` if it is to be placed again.
    fn take(&self, place: RequestPlace) -> Result<Option<(PendingRecord, RequestDisposition)>, RecordError> {
        let frame = match (self.left(&place), self.seen.frame()) {
            (RewriteStatus::Composed, Some(frame)) => frame,
            (RewriteStatus::Composed, None) => return self.pass(place, RewriteStatus::Unfit).map(Some),
            (left, _) => return self.pass(place, left).map(Some),
        };
        let Some((setup, limit)) = self.setup() else {
            return self.pass(place, RewriteStatus::Unfit).map(Some);
        };
        let mut place = self.beside_its_answer(place)?;
        let leaves = place.placed == PlacementKind::Began
            && !self.cramped.get()
            && self.command().is_none()
            && fits_unchanged(self.seen, &frame, self.composing, &setup, limit);
        // From here on the work grows with the new events, and all of a first request is new.
        if leaves {
            self.ahead.release();
        } else if self.cramped.get() {
            place = self.without_examples(place)?;
        } else if place.placed == PlacementKind::Began {
            let room = example_room(&setup, &setup.budget_within(limit, ObservedLimits::default()));
            if room.is_exceeded(&place.new) {
                let asked = client_examples::question_tokens(&place.new, &setup.meter);
                client_examples::convert_to_instructions(&mut place.new, ExampleBudget { asked, ..room });
            }
        }
        if let Some(focus) = self.command() {
            return self.compact(place, (&setup, limit), &focus).map(Some);
        }
        let is_fork =
            matches!(&place.opens, Some(opens) if matches!(opens.thread.start, ThreadStart::Fork { .. }));
        if is_fork {
            return self.fork(place, (&setup, limit), frame);
        }
        let is_other_first = place.opens.is_some() && place.placed != PlacementKind::Began;
        if is_other_first && fits_unchanged(self.seen, &frame, self.composing, &setup, limit) {
            self.ahead.release();
        }
        let (session, thread) = (place.session, place.thread);
        let live = match (&place.opens, self.recorder.lives.get(thread)) {
            (Some(_), _) => Arc::new(self.fresh((session, thread), setup)),
            (None, Some(live)) if live.is_set_up(&setup) => live,
            (None, _) => match self.open((session, thread), setup) {
                Ok(live) => live,
                Err(error) => return self.give_up(thread, error),
            },
        };
        if let Err(error) = live.is_limited(limit) {
            return self.give_up(thread, error);
        }
        let unanswered = self.unanswered(&place);
        match self.is_cramped(&live, &place.new, place.after, unanswered) {
            Ok(false) => {}
            Ok(true) => return Ok(None),
            Err(error) => return self.give_up(thread, error),
        }
        match self.with_examples(&live, &place) {
            Ok(None) => {}
            Ok(Some(place)) => return self.fork(place, (&live.setup(), limit), frame),
            Err(error) => return self.give_up(thread, error),
        }
        live.summarise_with(self.summariser);
        let mut outgoing = None;
        let mut unwritten = None;
        let mut frame = Some(frame);
        let mut failed = None;
        let writing = if self.composing.with_answers { WriteTiming::MayWait } else { WriteTiming::Now };
        let taken = self.recorder.write_at_place_with(
            self.arrival,
            self.seen,
            self.caller,
            place,
            &mut |commit| {
                let ThreadCommit { after, events, records, opens, .. } = commit;
                let Some(frame) = frame.take() else { return Ok(None) };
                let taught = LimitTrust::Doubted;
                let arriving =
                    CallInput { events, records, opens, taught, writing, unanswered, ..CallInput::default() };
                match rewrite_request(&live, (after, arriving), self.request(frame)) {
                    Ok(Some((made, way))) => {
                        outgoing = Some(way);
                        unwritten = made.unwritten;
                        Ok(Some((made.head, Some(made.call))))
                    }
                    Ok(None) => Ok(None),
                    Err(error) => {
                        failed = Some(error);
                        Ok(None)
                    }
                }
            },
        )?;
        match (taken, outgoing) {
            (Some(mut ticket), Some(outgoing)) => {
                self.keep(&mut ticket, &live, unwritten);
                Ok(Some((ticket, RequestDisposition::Forward(outgoing))))
            }
            _ => self.give_up(thread, failed.unwrap_or(SessionError::Busy)),
        }
    }

    /// Keeps what the next request of the thread goes on from.
    fn keep(&self, ticket: &mut PendingRecord, live: &Arc<CachedThread>, unwritten: Option<ThreadCommit>) {
        self.recorder.lives.put(ticket.thread, live);
        ticket.live = Some(Arc::clone(live));
        if let Some(commit) = unwritten {
            self.recorder.leave_unwritten(ticket, commit, (self.arrival, self.caller, self.seen));
        }
        live.work();
    }

    fn request(&self, frame: RequestFrame<'b>) -> RewriteInput<'_, 'b> {
        let is_turn = self.caller.purpose == RequestPurpose::Turn;
        // A request for a summary that gives no tools may go to an endpoint that accepts none, and wants none called.
        let takes_tools = is_turn || self.seen.has_tools();
        let recall = self.composing.recall && is_turn;
        RewriteInput {
            seen: self.seen,
            shared: self.arrival.shared,
            frame,
            unsent: None,
            recall,
            takes_tools,
            below: None,
            client: Some(self.client),
        }
    }

    /// Reports whether a policy is to be in charge of the request, or the reason it is not.
    fn left(&self, place: &RequestPlace) -> RewriteStatus {
        if self.caller.purpose == RequestPurpose::Title {
            RewriteStatus::Aside
        } else if self.seen.follows() != PriorHistory::Nothing {
            RewriteStatus::Remote
        } else if self.seen.manages_context() {
            RewriteStatus::Managed
        } else if HoldoutGroup::of(place.session, self.composing.holdout) == HoldoutGroup::HeldOut {
            RewriteStatus::HeldOut
        } else if self.unfit.get() {
            RewriteStatus::Unfit
        } else if self.caller.purpose == RequestPurpose::Compaction && self.fits_its_provider() {
            RewriteStatus::OwnSummary
        } else if self.seen.first_violation().is_some() {
            RewriteStatus::Illegal
        } else {
            RewriteStatus::Composed
        }
    }

    /// The setup for the request, and its own limit. A client's own summary has its provider's window: a smaller one
    /// that a user set is for the conversation.
    fn setup(&self) -> Option<(Arc<SessionSetup>, RequestLimit)> {
        let model = self.seen.model()?;
        let answer = self.seen.answer_limit().map(Tokens);
        let setup = self.recorder.lives.setup(self.seen.format(), &model.0, self.composing);
        let is_known = setup.profile.is_some() && self.caller.purpose == RequestPurpose::Compaction;
        let window = self.wishes.window.or(self.composing.window).filter(|_| !is_known);
        let limit = setup.limit_of(window, answer);
        Some((setup, limit))
    }

    /// Returns true if the provider's window holds the request as the client sent it.
    fn fits_its_provider(&self) -> bool {
        let Some((setup, limit)) = self.setup() else { return true };
        let ceiling = setup.budget_within(limit, ObservedLimits::default()).ceiling();
        // No token is shorter than a byte.
        if self.seen.body().len() as u64 <= ceiling.0 {
            return true;
        }
        let line = compact::line(self.seen.opening().into_iter().chain(self.seen.events(0)));
        project(&line, Arc::clone(&setup.meter), EventNaming::Messages).tokens() <= ceiling
    }

    /// Records the request, which goes on as it came, unless it is a command to the gateway.
    fn pass(
        &self,
        place: RequestPlace,
        left: RewriteStatus,
    ) -> Result<(PendingRecord, RequestDisposition), RecordError> {
        let (arrival, seen, caller) = (self.arrival, self.seen, self.caller);
        if self.command().is_some() {
            let ticket = self.recorder.write_at_place(arrival, seen, caller, place)?;
            return Ok((ticket, answer(compact_command::refusal_text(left))));
        }
        let ticket = self.recorder.relay(arrival, seen, caller, place, WriteTiming::Now)?;
        Ok((ticket, self.as_it_came(left)))
    }

    /// The request as it came. If it is illegal, the header and the log name the fault and its place.
    fn as_it_came(&self, left: RewriteStatus) -> RequestDisposition {
        let way = as_it_came(self.arrival.body, left);
        match (way, self.seen.first_violation().filter(|_| left == RewriteStatus::Illegal)) {
            (RequestDisposition::Forward(mut outgoing), Some((place, rule))) => {
                tracing::warn!(
                    target: "epitome::compose", %place, rule, "a request that its provider would refuse goes on as it came"
                );
                outgoing.done.cause = Some(format!("{rule} at {place}"));
                RequestDisposition::Forward(outgoing)
            }
            (way, _) => way,
        }
    }

    /// Gives up composing: the request is placed again, and goes on as it came. The memory of its thread may be
    /// wrong, so it is dropped. If the request was too large, it is tried once more with its examples as ordinary
    /// history.
    fn give_up(
        &self,
        thread: ThreadId,
        error: SessionError,
    ) -> Result<Option<(PendingRecord, RequestDisposition)>, RecordError> {
        self.recorder.lives.forget(thread);
        match error {
            SessionError::Request(CompactError::Refused(_)) if !self.cramped.replace(true) => Ok(None),
            SessionError::Store(error) if error.is_conflict() => {
                Err(RecordError::Store(as_conflict(error, thread)))
            }
            SessionError::Store(error) => Err(error.into()),
            error => {
                tracing::warn!(target: "epitome::compose", %thread, %error, "a request goes on as it came");
                self.unfit.set(true);
                Ok(None)
            }
        }
    }

    fn fresh(&self, place: (SessionId, ThreadId), setup: Arc<SessionSetup>) -> CachedThread {
        CachedThread::fresh(self.recorder.store(), place, setup, self.composing, self.summariser)
    }

    fn open(
        &self,
        place: (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
    ) -> Result<Arc<CachedThread>, SessionError> {
        CachedThread::open(self.recorder.store(), place, setup, self.composing, self.summariser).map(Arc::new)
    }

    /// Writes a request that differs from its thread's history: the fork is made first, and shows the shared part.
    fn fork(
        &self,
        place: RequestPlace,
        (setup, limit): (&Arc<SessionSetup>, RequestLimit),
        frame: RequestFrame<'b>,
    ) -> Result<Option<(PendingRecord, RequestDisposition)>, RecordError> {
        let place_of = (place.session, place.thread);
        let mut place = self.after_its_call(place)?;
        let inherited = self.inherited(&place)?;
        let compaction = inherited.as_ref().and_then(|inherited| inherited.compaction.clone());
        place.new.splice(0..0, compaction);
        let unanswered = self.unanswered(&place);
        let (new, after, was_cramped) = (place.new.clone(), place.after, self.cramped.get());
        let mut ticket = self.recorder.write_at_place(self.arrival, self.seen, self.caller, place)?;
        let (store, composing, summariser) = (self.recorder.store(), self.composing, self.summariser);
        let opened = CachedThread::open_fork(
            store,
            place_of,
            Arc::clone(setup),
            composing,
            summariser,
            inherited.as_ref(),
        );
        let woven = opened.map(Arc::new).and_then(|live| {
            live.is_limited(limit)?;
            if self.is_cramped(&live, &new, after, unanswered)? {
                return Ok((None, live));
            }
            let arriving = CallInput { taught: LimitTrust::Doubted, unanswered, ..CallInput::default() };
            Ok((rewrite_request(&live, (ticket.head, arriving), self.request(frame))?, live))
        });
        let error = match woven {
            Ok((Some((made, outgoing)), live)) => {
                self.recorder.move_to_head(&mut ticket, made.head, Some(made.call));
                self.recorder.lives.put(ticket.thread, &live);
                live.work();
                ticket.live = Some(live);
                return Ok(Some((ticket, RequestDisposition::Forward(outgoing))));
            }
            Ok((None, _)) => SessionError::Busy,
            Err(error) => error,
        };
        // Placed again, it would find its own first attempt.
        self.recorder.give_up(&ticket);
        if self.cramped.get() && !was_cramped {
            return Ok(None);
        }
        self.give_up(ticket.thread, error)
    }

    /// Returns true if a thread's examples leave too little room for the new question. Then it is placed again,
    /// without them.
    fn is_cramped(
        &self,
        live: &CachedThread,
        new: &[Event],
        after: Seq,
        unanswered: Option<Seq>,
    ) -> Result<bool, SessionError> {
        if self.cramped.get() {
            return Ok(false);
        }
        let answered = unanswered.map_or(0, |first| first.0.saturating_sub(after.next().0));
        let asked = new.iter().skip(usize::try_from(answered).unwrap_or(usize::MAX));
        let state = live.desk.state()?;
        let context = state.view.context();
        if !client_examples::are_in(context) {
            return Ok(false);
        }
        let asked: Tokens = asked.map(|event| state.setup.meter.event(event, None)).sum();
        self.cramped.set(client_examples::instructions_exceed_room(context, asked, state.budget().ceiling()));
        Ok(self.cramped.get())
    }

    /// The same history in a fork in which its examples are not instructions. The beginning of a session is not a
    /// fork, and has not been written yet.
    fn without_examples(&self, place: RequestPlace) -> Result<RequestPlace, StoreError> {
        let store = self.recorder.store();
        let of = match &place.opens {
            Some(ThreadOpening { thread: NewThread { start: ThreadStart::Fork { of, .. }, .. }, .. }) => *of,
            Some(_) => return Ok(place),
            None => place.thread,
        };
        let Some(at) = client_examples::before_examples(&**store, of)? else { return Ok(place) };
        let name = store.thread(of)?.name;
        Ok(told_again(place, (of, at), (name, "without examples"), self.seen.events(0)))
    }

    /// The same history in a fork in which its examples are instructions, if it has any and a limit now demands a
    /// compaction for the first time. Before that they need no protection, and a compaction that someone requests may
    /// summarise them.
    fn with_examples(
        &self,
        live: &CachedThread,
        place: &RequestPlace,
    ) -> Result<Option<RequestPlace>, SessionError> {
        if self.cramped.get() || place.opens.is_some() || place.placed != PlacementKind::Continued {
            return Ok(None);
        }
        let (budget, new) = {
            let state = live.desk.state()?;
            let (context, budget) = (state.view.context(), state.budget());
            // No token is shorter than a byte: nearly always nothing need be counted.
            let bytes = Tokens(place.new.iter().map(|event| event.raw.json.len() as u64).sum());
            if context.summary().is_some() || context.tokens() + bytes <= budget.force() {
                return Ok(None);
            }
            let new: Tokens = place.new.iter().map(|event| state.setup.meter.event(event, None)).sum();
            if context.tokens() + new <= budget.force() {
                return Ok(None);
            }
            (budget, new)
        };
        let store = self.recorder.store();
        let thread = store.thread(place.thread)?;
        if thread.start != ThreadStart::Root {
            return Ok(None);
        }
        let (setup, seen_first) = (live.setup(), client_examples::first_seen(&**store, place.thread)?);
        let room = example_room(&setup, &budget);
        let room = ExampleBudget { asked: new, ..room };
        let mut new = self.seen.events(0);
        let ends = new.iter().enumerate().filter(|(_, event)| event.normal.is_some());
        let first = ends.take(seen_first).last().map_or(0, |(at, _)| at + 1);
        let Some(at) = client_examples::last_opening_event(&**store, place.thread)? else { return Ok(None) };
        if !client_examples::convert_to_instructions(&mut new[..first], room) {
            return Ok(None);
        }
        let place = RequestPlace { new: Vec::new(), opens: None, key: place.key.clone(), ..*place };
        Ok(Some(told_again(place, (thread.id, at), (thread.name, "with examples"), new)))
    }

    /// The first event of a request after the newest answer that was given here. Clients put more than a prompt there, with
    /// answers between that no model gave. `None` for a thread that is seen for the first time: it is unknown which of its
    /// answers were given by a model.
    fn unanswered(&self, place: &RequestPlace) -> Option<Seq> {
        if matches!(place.placed, PlacementKind::Began | PlacementKind::Joined) {
            return None;
        }
        let was_given = |event: &Event| {
            matches!(event.fact, Fact::AssistantSaid { .. })
                && event
                    .normal
                    .is_some_and(|said| self.recorder.has_recent_answer(self.arrival.principal, said))
        };
        let answered = place.new.iter().rposition(was_given).map_or(0, |at| at as u64 + 1);
        Some(Seq(place.after.next().0 + answered))
    }

    /// Moves the fork point of a fork that begins with another answer to after the decisions made for the question, so
    /// that the fork keeps them.
    fn after_its_call(&self, mut place: RequestPlace) -> Result<RequestPlace, StoreError> {
        if let Some(opens) = &mut place.opens
            && let ThreadStart::Fork { of, at } = &mut opens.thread.start
        {
            *at = decided(&**self.recorder.store(), *of, *at)?;
            place.after = *at;
        }
        Ok(place)
    }

    /// The state a fork takes from its parent.
    fn inherited(&self, place: &RequestPlace) -> Result<Option<ForkInheritance>, StoreError> {
        let Some(ThreadStart::Fork { of, at }) = place.opens.as_ref().map(|opens| &opens.thread.start) else {
            return Ok(None);
        };
        let new = place.new.iter().filter(|event| event.normal.is_some()).count();
        let shared = self.seen.units().len().saturating_sub(new);
        ForkInheritance::read(&**self.recorder.store(), *of, *at, shared, &place.new)
    }

    /// Moves a request that already has an answer to a fork, which holds the question and the decisions made for it,
    /// so that its new answer stands beside the old one. A fork that waits for its answer still is the same question,
    /// asked again.
    fn beside_its_answer(&self, place: RequestPlace) -> Result<RequestPlace, StoreError> {
        if place.placed != PlacementKind::Forked || place.opens.is_some() {
            return Ok(place);
        }
        let store = self.recorder.store();
        let of = store.thread(place.thread)?;
        let at = decided(&**store, place.thread, place.after)?;
        let mut time = 0_u64;
        loop {
            time += 1;
            let told = [of.id.to_string(), at.to_string(), "again".to_owned(), time.to_string()];
            let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.id.uuid());
            match store.thread(id) {
                Ok(known) if known.head.link.normal == place.link => {
                    return Ok(RequestPlace {
                        thread: id,
                        after: known.head.seq,
                        placed: PlacementKind::Retried,
                        ..place
                    });
                }
                Ok(_) => {}
                Err(StoreError::UnknownThread(_)) => {
                    let start = ThreadStart::Fork { of: of.id, at };
                    let key = place.key.clone();
                    let thread = NewThread { id, session: place.session, name: of.name, start, key };
                    let head = match place.line {
                        ThreadKind::Main => HeadPromotion::Yes,
                        ThreadKind::Side => HeadPromotion::No,
                    };
                    let opens = Some(ThreadOpening { session: None, thread, head });
                    return Ok(RequestPlace { thread: id, after: at, opens, ..place });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Focus of a requested compaction; `None` if none is requested.
    fn command(&self) -> Option<String> {
        compact_command::requested_focus(self.composing, self.wishes, self.arrival, self.caller, self.seen)
    }

    /// Compacts now, or starts it, and tells the client.
    fn compact(
        &self,
        place: RequestPlace,
        (setup, limit): (&Arc<SessionSetup>, RequestLimit),
        focus: &str,
    ) -> Result<(PendingRecord, RequestDisposition), RecordError> {
        let place_of = (place.session, place.thread);
        let known = if place.opens.is_none() { self.recorder.lives.get(place.thread) } else { None };
        let mut ticket = self.recorder.write_at_place(self.arrival, self.seen, self.caller, place)?;
        let live = match known.filter(|live| live.is_set_up(setup)) {
            Some(live) => Ok(live),
            None => self.open(place_of, Arc::clone(setup)),
        };
        let focus = Some(focus).filter(|focus| !focus.is_empty());
        let done = live.and_then(|live| {
            live.summarise_with(self.summariser);
            live.is_limited(limit)?;
            let desk = &live.desk;
            let told = if desk.maker.is_some() {
                manual_compaction::order(desk, CompactionTrigger::Manual, focus, None)?;
                let words = "A summary is being written; it takes effect with the next message after it is ready.";
                answer(words.to_owned())
            } else {
                let before = desk.state()?.view.context().tokens();
                manual_compaction::compact_built_in(desk, CompactionTrigger::Manual, focus, None)?;
                let after = desk.state()?.view.context().tokens();
                RequestDisposition::Answer {
                    words: format!(
                        "Compacted: {before} tokens became {after}. Nothing is lost: the whole session is on record."
                    ),
                    compaction: Some((CompactionTrigger::Manual, BUILT_IN_NAME.to_owned())),
                }
            };
            let head = desk.state()?.head();
            self.recorder.lives.put(ticket.thread, &live);
            live.work();
            Ok((told, head))
        });
        match done {
            Ok((told, head)) => {
                self.recorder.move_to_head(&mut ticket, head, None);
                Ok((ticket, told))
            }
            Err(SessionError::Store(error)) => {
                self.recorder.give_up(&ticket);
                Err(error.into())
            }
            Err(SessionError::Nothing(_)) => {
                Ok((ticket, answer("There is nothing old enough to compact yet.".to_owned())))
            }
            Err(error) => Ok((ticket, answer(format!("Nothing was compacted: {error}")))),
        }
    }
}

/// The place of a history that is repeated from a thread's opening on, in a fork of this kind.
fn told_again(
    place: RequestPlace,
    (of, at): (ThreadId, Seq),
    (name, kind): (String, &str),
    new: Vec<Event>,
) -> RequestPlace {
    let told = [of.to_string(), at.to_string(), kind.to_owned(), place.link.to_string()];
    let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.uuid());
    let start = ThreadStart::Fork { of, at };
    let thread = NewThread { id, session: place.session, name, start, key: place.key.clone() };
    let head = if place.line == ThreadKind::Main { HeadPromotion::Yes } else { HeadPromotion::No };
    let opens = Some(ThreadOpening { session: None, thread, head });
    RequestPlace { thread: id, after: at, new, opens, placed: PlacementKind::Forked, ..place }
}

/// Room for examples within a budget.
fn example_room<'s>(setup: &'s SessionSetup, budget: &Budget) -> ExampleBudget<'s> {
    let (ceiling, force, asked) = (budget.ceiling(), budget.force(), Tokens(0));
    ExampleBudget { ceiling, force, asked, meter: &setup.meter }
}

/// Place of a question, including all decisions made for it before it was answered.
fn decided(store: &dyn Store, thread: ThreadId, after: Seq) -> Result<Seq, StoreError> {
    let mut from = after.next();
    let answered = loop {
        let page = store.digests(thread, from, 64)?;
        match (page.iter().find(|(_, digest, _)| digest.is_some()), page.last()) {
            (Some((seq, ..)), _) => break *seq,
            (None, Some((last, ..))) => from = last.next(),
            (None, None) => break Seq(u64::MAX),
        }
    };
    let mut row = store.last_call(thread)?;
    while let Some(CallRow { number, call, .. }) = row {
        if call.head < after {
            break;
        }
        if call.head < answered {
            return Ok(call.head);
        }
        row = number.checked_sub(1).map(|before| store.call(thread, before)).transpose()?;
    }
    Ok(after)
}

fn answer(words: String) -> RequestDisposition {
    RequestDisposition::Answer { words, compaction: None }
}

fn as_it_came(body: &str, left: RewriteStatus) -> RequestDisposition {
    let cuts = vec![BodySlice::Client(0..body.len())];
    RequestDisposition::Forward(RewrittenRequest { cuts, done: RewriteReport::nothing(left), recall: false })
}

/// Makes the next request of a thread from its client's. `None` if the log has another history, or if it would be too
/// large.
pub(super) fn rewrite_request(
    live: &CachedThread,
    (after, mut arriving): (Seq, CallInput),
    request: RewriteInput<'_, '_>,
) -> Result<Option<(PreparedCall, RewrittenRequest)>, SessionError> {
    let mut loom = live.rewrite_state()?;
    arriving.recall = loom.recall_offer(&request);
    let mut request = request;
    let mut woven = None;
    let mut is_other = false;
    let (mut is_warm, mut is_unread, mut lifetime) = (false, false, None);
    let store = &live.desk.store;
    let made = live.desk.prepare_client_call(after, arriving, &mut |state, setup, prepared, whole| {
        is_warm = state.is_warm(live.desk.now());
        is_unread = state.cache.is_unread();
        lifetime = state.cache_lifetime();
        if request.below.is_some_and(|tried| state.view.context().tokens() >= tried) {
            is_other = true;
            return Err(SessionError::Busy);
        }
        request.recall = state.offers_recall();
        let Some(made) = loom.write_body(&**store, state, setup, prepared, &request, (after, whole))? else {
            is_other = true;
            return Err(SessionError::Busy);
        };
        let (cuts, script, full, grown) = (made.cuts, made.script, made.full, made.grown);
        woven = Some((cuts, script, full, grown));
        Ok(made.written)
    });
    let made = match made {
        Ok(made) => made,
        Err(_) if is_other => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some((cuts, script, full, grown)) = woven else { return Ok(None) };
    let recall = request.recall;
    if let Some(client) = request.client {
        let held = client.caches.find(client.beginnings, client.at, lifetime);
        let known = RequestCacheFacts {
            full,
            after: made.tokens,
            of_session: loom.last_sent().filter(|_| is_warm),
            is_asked: loom.asks_for_cache(),
            is_unread,
        };
        loom.client = held.cache(held.tokens(&request.frame, full), known);
    }
    let cache = loom.client;
    loom.note_sent(request, script, grown);
    let done = RewriteReport {
        call: Some((live.desk.thread, made.call)),
        epoch: made.epoch,
        cause: made.cause.as_ref().map(ToString::to_string),
        before: full,
        after: made.tokens,
        cache,
        compaction: made.compaction.clone(),
        left: RewriteStatus::Composed,
    };
    Ok(Some((made, RewrittenRequest { cuts, done, recall })))
}

/// The same request, after its provider refused it.
fn smaller(
    live: &CachedThread,
    request: RewriteInput<'_, '_>,
    (call, refused): (u64, ContextOverflow),
) -> Result<Option<(PreparedCall, RewrittenRequest)>, SessionError> {
    let tried = live.desk.note_overflow(call, refused)?;
    let head = live.desk.state()?.head();
    rewrite_request(live, (head, CallInput::default()), RewriteInput { below: Some(tried), ..request })
}
