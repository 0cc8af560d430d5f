//! One request: placed, rewritten and recorded, in one commit.

use std::sync::Arc;

use epitome_core::{
    Event, Fact, Seq, ThreadId, Tokens,
    event::{Compaction, CompactionTrigger},
    id::ModelName,
};
use epitome_store::{StoreError, ThreadStart, records::ThreadCommit};
use epitome_wire::{caller::RequestPurpose, incoming::RequestFrame, summary_prompt::SummaryAnswerForm};

use super::{
    BodySlice, ForkInheritance, RequestDisposition, RequestOverrides, RewriteOutcome, RewriteReport,
    RewriteSettings, RewriteStatus, RewrittenRequest, SessionSummariser,
    client_cache::{PrefixLookup, RequestPrefixes},
    client_call::rewrite_request,
    client_examples, compact_command, early_release, fork_places, own_summary,
    rewrite_body::RewriteInput,
    rewrite_decision::{CallTarget, DispositionPlan, RewriteDecision},
    thread_cache::{CachedThread, ThreadAccess},
};
use crate::{
    compact::CompactError,
    recorder::{
        PendingRecord, PlacementKind, ReceivedRequest, RecordError, RequestArrival, TrafficRecorder,
        as_conflict, placement::RequestPlace,
    },
    session::{
        SessionError,
        call_input::{CallInput, LimitTrust, WriteTiming},
        engine::{BUILT_IN_NAME, SessionEngine},
        manual_compaction,
    },
};

/// Records a request as [`TrafficRecorder::record`] does, and decides how it goes on. Summaries are made by code alone.
pub fn compose(
    recorder: &TrafficRecorder,
    arrival: &RequestArrival<'_>,
    composing: &RewriteSettings,
    wishes: &RequestOverrides,
) -> Result<RewriteOutcome, RecordError> {
    let mut rewrite = RequestRewrite::begin(recorder, arrival, composing, wishes)?;
    loop {
        let decision = rewrite.decide()?;
        if let Some(outcome) = rewrite.carry_out(decision)? {
            return Ok(outcome);
        }
    }
}

/// One request while it is rewritten: it is [decided](Self::decide) how it goes on, and that is [done](Self::carry_out) and
/// recorded; once more if another writer came first.
pub struct RequestRewrite<'r, 'b> {
    pub(super) recorder: &'r TrafficRecorder,
    pub(super) composing: &'r RewriteSettings,
    pub(super) wishes: &'r RequestOverrides,
    pub(super) request: ReceivedRequest<'r, 'b>,
    /// Beginnings of the client's history, by which its earlier requests are found.
    beginnings: RequestPrefixes,
    summariser: Option<SessionSummariser>,
    /// True once composing has failed for good.
    pub(super) is_unfit: bool,
    /// True once there was no room for its examples.
    pub(super) is_cramped: bool,
    /// True if it was sent as it came before it was counted.
    pub(super) has_left: bool,
}

/// A request that was recorded, and its disposition.
type RecordedDisposition = (PendingRecord, RequestDisposition);

impl<'r, 'b> RequestRewrite<'r, 'b> {
    /// Reads a request that is to be rewritten.
    pub fn begin(
        recorder: &'r TrafficRecorder,
        arrival: &'r RequestArrival<'b>,
        composing: &'r RewriteSettings,
        wishes: &'r RequestOverrides,
    ) -> Result<Self, RecordError> {
        let request = recorder.receive(arrival)?;
        let beginnings = recorder.threads.clients.beginnings(arrival.principal, &request.seen);
        Ok(Self {
            recorder,
            composing,
            wishes,
            request,
            beginnings,
            summariser: None,
            is_unfit: false,
            is_cramped: false,
            has_left: false,
        })
    }

    /// Model that the request asks.
    pub fn model(&self) -> Option<ModelName> {
        self.request.seen.model()
    }

    /// Sets the model that writes the session's summaries in the background. It is set anew with every request, because a
    /// summariser may hold something that only the newest request has, such as a key.
    pub fn set_summariser(&mut self, summariser: Option<SessionSummariser>) {
        self.summariser = summariser;
    }

    /// Notes that the request was sent as it came. Whatever the later count shows, it has left: if the call would have been a
    /// different one, that is recorded as a call that never left.
    pub fn note_left(&mut self) {
        self.has_left = true;
    }

    /// Finds the place of the request, and decides how it goes on from there.
    pub fn decide(&mut self) -> Result<RewriteDecision<'b>, RecordError> {
        loop {
            let place = self.request.place()?;
            let decided = RewriteDecision::at(self, place).map_err(RecordError::from).map(Some);
            if let Some(decision) = self.request.accept(decided)? {
                return Ok(decision);
            }
        }
    }

    /// Records the request as decided. `None` if it is to be decided again.
    pub fn carry_out(
        &mut self,
        decision: RewriteDecision<'b>,
    ) -> Result<Option<RewriteOutcome>, RecordError> {
        let RewriteDecision { place, plan, .. } = decision;
        let recorded = match plan {
            DispositionPlan::Relay(status) => self.pass(place, status).map(Some),
            DispositionPlan::Compact(target, focus) => self.compact(place, &target, &focus).map(Some),
            DispositionPlan::Summarise(summary, form) => self.summarise(place, *summary, form).map(Some),
            DispositionPlan::Fork(target, frame) => self.fork(place, &target, frame),
            DispositionPlan::Compose(target, frame) => self.compose(place, target, frame),
        };
        let Some((mut ticket, mut way)) = self.request.accept(recorded)? else { return Ok(None) };
        let arrival = self.request.arrival;
        // A request that goes on as it came is noted at the point where it is recorded.
        if let RequestDisposition::Forward(outgoing) = &way
            && outgoing.done.left == RewriteStatus::Composed
        {
            let is_whole = outgoing.done.before == outgoing.done.after;
            self.recorder.threads.clients.note_sent(&self.beginnings, arrival.at, is_whole);
        }
        if self.has_left && !early_release::is_unchanged(&way, arrival.body) {
            self.recorder.note_call_not_sent(&mut ticket, arrival.at)?;
            way = as_it_came(arrival.body, RewriteStatus::Ahead);
        }
        Ok(Some(RewriteOutcome { ticket, way }))
    }

    /// Composes the request from its thread's cached state, and records it with its call.
    fn compose(
        &mut self,
        place: RequestPlace,
        target: CallTarget,
        frame: RequestFrame<'b>,
    ) -> Result<Option<RecordedDisposition>, RecordError> {
        let CallTarget { setup, limit, injection } = target;
        let (session, thread) = (place.session, place.thread);
        let cached = match (&place.opens, self.recorder.threads.get(thread)) {
            (Some(_), _) => Arc::new(CachedThread::fresh(self.access(), (session, thread), setup)),
            (None, Some(cached)) if cached.is_set_up(&setup, self.composing) => cached,
            (None, _) => match CachedThread::open(self.access(), (session, thread), setup, None) {
                Ok(cached) => Arc::new(cached),
                Err(error) => return self.give_up(thread, error),
            },
        };
        if let Err(error) = cached.is_limited(limit) {
            return self.give_up(thread, error);
        }
        let unanswered = self.unanswered(&place);
        match self.find_cramped(&cached, &place.new, place.after, unanswered) {
            Ok(false) => {}
            Ok(true) => return Ok(None),
            Err(error) => return self.give_up(thread, error),
        }
        if !self.is_cramped {
            let (store, seen) = (&**self.recorder.store(), &self.request.seen);
            match fork_places::with_examples(store, &cached, &place, seen) {
                Ok(None) => {}
                Ok(Some(place)) => {
                    let target = CallTarget { setup: cached.setup(), limit, injection };
                    return self.fork(place, &target, frame);
                }
                Err(error) => return self.give_up(thread, error),
            }
        }
        cached.summarise_with(self.summariser.as_ref());
        let (commit, placed) = self.recorder.commit_at_place(&self.request, place);
        let ThreadCommit { after, events, records, opens, .. } = commit;
        let writing = if self.composing.with_answers { WriteTiming::MayWait } else { WriteTiming::Now };
        let taught = LimitTrust::Doubted;
        let arriving =
            CallInput { events, records, opens, taught, writing, unanswered, ..CallInput::default() };
        match rewrite_request(&cached, (after, arriving), self.input(frame)) {
            Ok(Some((made, outgoing))) => {
                let mut ticket = self.recorder.note_written(placed, made.head, Some(made.call));
                self.keep(&mut ticket, &cached, made.unwritten);
                Ok(Some((ticket, RequestDisposition::Forward(outgoing))))
            }
            Ok(None) => self.give_up(thread, SessionError::Busy),
            Err(error) => self.give_up(thread, error),
        }
    }

    /// Keeps what the next request of the thread goes on from.
    fn keep(&self, ticket: &mut PendingRecord, cached: &Arc<CachedThread>, unwritten: Option<ThreadCommit>) {
        self.recorder.threads.put(ticket.thread, cached);
        ticket.cached = Some(Arc::clone(cached));
        if let Some(commit) = unwritten {
            self.recorder.leave_unwritten(ticket, commit, &self.request);
        }
        cached.work();
    }

    pub(super) fn input(&self, frame: RequestFrame<'b>) -> RewriteInput<'_, 'b> {
        let ReceivedRequest { arrival, seen, caller, .. } = &self.request;
        let is_turn = caller.purpose == RequestPurpose::Turn;
        // A request for a summary that gives no tools may go to an endpoint that accepts none, and wants none called.
        let takes_tools = is_turn || seen.has_tools();
        let recall = self.composing.recall && is_turn;
        let caches = &self.recorder.threads.clients;
        let client = Some(PrefixLookup { caches, beginnings: &self.beginnings, at: arrival.at });
        RewriteInput { recall, takes_tools, client, ..RewriteInput::new(seen, frame, arrival.shared) }
    }

    /// Records the request, which goes on as it came, unless it is a command to the gateway.
    fn pass(
        &self,
        place: RequestPlace,
        left: RewriteStatus,
    ) -> Result<(PendingRecord, RequestDisposition), RecordError> {
        if self.command().is_some() {
            let ticket = self.recorder.write_at_place(&self.request, place)?;
            return Ok((ticket, answer(compact_command::refusal_text(left))));
        }
        let ticket = self.recorder.relay(&self.request, place, WriteTiming::Now)?;
        Ok((ticket, self.as_it_came(left)))
    }

    /// Records a client's own request for a summary, which is answered with ours.
    fn summarise(
        &self,
        place: RequestPlace,
        summary: Compaction,
        form: SummaryAnswerForm,
    ) -> Result<RecordedDisposition, RecordError> {
        let mut ticket = self.recorder.relay(&self.request, place, WriteTiming::Now)?;
        let answered =
            own_summary::answer(self.recorder, &mut ticket, self.request.arrival, (summary, form))?;
        Ok((ticket, RequestDisposition::Summary(answered)))
    }

    /// The request as it came. If it is illegal, the header and the log name the fault and its place.
    fn as_it_came(&self, left: RewriteStatus) -> RequestDisposition {
        let ReceivedRequest { arrival, seen, .. } = &self.request;
        let way = as_it_came(arrival.body, left);
        match (way, seen.first_violation().filter(|_| left == RewriteStatus::Illegal)) {
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
        &mut self,
        thread: ThreadId,
        error: SessionError,
    ) -> Result<Option<(PendingRecord, RequestDisposition)>, RecordError> {
        self.recorder.threads.forget(thread);
        match error {
            SessionError::Request(CompactError::Refused(_)) if !self.is_cramped => {
                self.is_cramped = true;
                Ok(None)
            }
            SessionError::Store(error) if error.is_conflict() => {
                Err(RecordError::Store(as_conflict(error, thread)))
            }
            SessionError::Store(error) => Err(error.into()),
            error => {
                tracing::warn!(target: "epitome::compose", %thread, %error, "a request goes on as it came");
                self.is_unfit = true;
                Ok(None)
            }
        }
    }

    pub(super) fn access(&self) -> ThreadAccess<'_> {
        let (store, composing) = (self.recorder.store(), self.composing);
        ThreadAccess { store, composing, summariser: self.summariser.as_ref(), heard: &composing.heard }
    }

    /// Writes a request that differs from its thread's history: the fork is made first, and shows the shared part.
    fn fork(
        &mut self,
        place: RequestPlace,
        target: &CallTarget,
        frame: RequestFrame<'b>,
    ) -> Result<Option<RecordedDisposition>, RecordError> {
        let place_of = (place.session, place.thread);
        let mut place = fork_places::after_its_call(&**self.recorder.store(), place)?;
        let inherited = self.inherited(&place)?;
        let compaction = inherited.as_ref().and_then(|inherited| inherited.compaction.clone());
        place.new.splice(0..0, compaction);
        let unanswered = self.unanswered(&place);
        let (new, after, was_cramped) = (place.new.clone(), place.after, self.is_cramped);
        let mut ticket = self.recorder.write_at_place(&self.request, place)?;
        let setup = Arc::clone(&target.setup);
        let opened = CachedThread::open(self.access(), place_of, setup, inherited.as_ref());
        let woven = opened.map(Arc::new).and_then(|cached| {
            cached.is_limited(target.limit)?;
            if self.find_cramped(&cached, &new, after, unanswered)? {
                return Ok((None, cached));
            }
            let arriving = CallInput { taught: LimitTrust::Doubted, unanswered, ..CallInput::default() };
            Ok((rewrite_request(&cached, (ticket.head, arriving), self.input(frame))?, cached))
        });
        let error = match woven {
            Ok((Some((made, outgoing)), cached)) => {
                self.recorder.move_to_head(&mut ticket, made.head, Some(made.call));
                self.keep(&mut ticket, &cached, None);
                return Ok(Some((ticket, RequestDisposition::Forward(outgoing))));
            }
            Ok((None, _)) => SessionError::Busy,
            Err(error) => error,
        };
        // Placed again, it would find its own first attempt.
        self.recorder.give_up(&ticket);
        if self.is_cramped && !was_cramped {
            return Ok(None);
        }
        self.give_up(ticket.thread, error)
    }

    /// Returns true if a thread's examples leave too little room for the new question. Then it is placed again,
    /// without them.
    fn find_cramped(
        &mut self,
        cached: &CachedThread,
        new: &[Event],
        after: Seq,
        unanswered: Option<Seq>,
    ) -> Result<bool, SessionError> {
        if self.is_cramped {
            return Ok(false);
        }
        let answered = unanswered.map_or(0, |first| first.0.saturating_sub(after.next().0));
        let asked = new.iter().skip(usize::try_from(answered).unwrap_or(usize::MAX));
        let state = cached.engine.state()?;
        let context = state.view().context();
        if !client_examples::are_in(context) {
            return Ok(false);
        }
        let asked: Tokens = asked.map(|event| state.setup.meter.event(event, None)).sum();
        self.is_cramped = client_examples::instructions_exceed_room(context, asked, state.budget().ceiling());
        Ok(self.is_cramped)
    }

    /// The first event of a request after the newest answer that was given here. Clients put more than a prompt there, with
    /// answers between that no model gave. `None` for a thread that is seen for the first time: it is unknown which of its
    /// answers were given by a model.
    pub(super) fn unanswered(&self, place: &RequestPlace) -> Option<Seq> {
        if matches!(place.placed, PlacementKind::Began | PlacementKind::Joined) {
            return None;
        }
        let was_given = |event: &Event| {
            matches!(event.fact, Fact::AssistantSaid { .. })
                && event
                    .normal
                    .is_some_and(|said| self.recorder.has_recent_answer(self.request.arrival.principal, said))
        };
        let answered = place.new.iter().rposition(was_given).map_or(0, |at| at as u64 + 1);
        Some(Seq(place.after.next().0 + answered))
    }

    /// The state a fork takes from its parent.
    fn inherited(&self, place: &RequestPlace) -> Result<Option<ForkInheritance>, StoreError> {
        let Some(ThreadStart::Fork { of, at }) = place.opens.as_ref().map(|opens| &opens.thread.start) else {
            return Ok(None);
        };
        let new = place.new.iter().filter(|event| event.normal.is_some()).count();
        let shared = self.request.seen.units().len().saturating_sub(new);
        ForkInheritance::read(&**self.recorder.store(), *of, *at, shared, &place.new)
    }

    /// Focus of a requested compaction; `None` if none is requested.
    pub(super) fn command(&self) -> Option<String> {
        let ReceivedRequest { arrival, seen, caller, .. } = &self.request;
        compact_command::requested_focus(self.composing, self.wishes, arrival, caller, seen)
    }

    /// Compacts now, or starts it, and tells the client.
    fn compact(
        &self,
        place: RequestPlace,
        CallTarget { setup, limit, .. }: &CallTarget,
        focus: &str,
    ) -> Result<(PendingRecord, RequestDisposition), RecordError> {
        let place_of = (place.session, place.thread);
        let known = if place.opens.is_none() { self.recorder.threads.get(place.thread) } else { None };
        let mut ticket = self.recorder.write_at_place(&self.request, place)?;
        let cached = match known.filter(|cached| cached.is_set_up(setup, self.composing)) {
            Some(cached) => Ok(cached),
            None => CachedThread::open(self.access(), place_of, Arc::clone(setup), None).map(Arc::new),
        };
        let focus = Some(focus).filter(|focus| !focus.is_empty());
        let done = cached.and_then(|cached| {
            cached.summarise_with(self.summariser.as_ref());
            cached.is_limited(*limit)?;
            let told = compact_session(&cached.engine, focus)?;
            let head = cached.engine.state()?.head();
            self.recorder.threads.put(ticket.thread, &cached);
            cached.work();
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

/// Compacts a session at once, or orders the summary from its model. Returns the answer for the client.
fn compact_session(engine: &SessionEngine, focus: Option<&str>) -> Result<RequestDisposition, SessionError> {
    let trigger = CompactionTrigger::Manual;
    if engine.maker.is_some() {
        manual_compaction::order(engine, trigger, focus, None)?;
        let words = "A summary is being written; it takes effect with the next message after it is ready.";
        return Ok(answer(words.to_owned()));
    }
    let before = engine.state()?.view().context().tokens();
    manual_compaction::compact_built_in(engine, trigger, focus, None)?;
    let after = engine.state()?.view().context().tokens();
    let words = format!(
        "Compacted: {before} tokens became {after}. Nothing is lost: the whole session is on record."
    );
    Ok(RequestDisposition::Answer { words, compaction: Some((trigger, BUILT_IN_NAME.to_owned())) })
}

fn answer(words: String) -> RequestDisposition {
    RequestDisposition::Answer { words, compaction: None }
}

fn as_it_came(body: &str, left: RewriteStatus) -> RequestDisposition {
    let cuts = vec![BodySlice::Client(0..body.len())];
    RequestDisposition::Forward(RewrittenRequest { cuts, done: RewriteReport::nothing(left), recall: false })
}
