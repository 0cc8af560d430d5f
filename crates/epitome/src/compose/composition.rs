//! One request: placed, woven and recorded, in one commit.

use std::{cell::Cell, sync::Arc};

use epitome_core::{
    Event, Fact, Seq, SessionId, ThreadId, Tokens, budget::Budget, context::Names, event::Trigger,
    project::project,
};
use epitome_store::{
    NewThread, Sqlite, Start, StoreError,
    records::{BecomesHead, CallRow, Commit, Opens},
};
use epitome_wire::{
    caller::{Caller, Purpose},
    overflow::Overflow,
    seen::{Follows, Frame, Seen},
};

use super::{
    Composed, Composing, Cut, Done, Inheritance, Left, Outgoing, Summariser, Summarisers, Way, Wishes,
    ahead::{self, LeavesAhead, goes_on_whole},
    client_cache::{ClientRequest, KnownCache},
    command,
    examples::{self, ExampleRoom},
    live::Live,
    weaving::Request,
};
use crate::{
    compact::{self, CompactError},
    holdout::Arm,
    recorder::{
        Arrival, Placed, RecordError, Recorder, Ticket, as_conflict,
        place::{Line, Place},
    },
    session::{
        SessionError,
        arriving::{Arriving, Taught, Writing},
        desk::{BUILT_IN, Made},
        orders,
        setup::{Learned, Limit, Setup},
    },
};

impl Recorder {
    /// Records a request as [`arrive`](Self::arrive) does, and decides how it goes on. Does not wait for a model.
    ///
    /// `summarisers` selects the model that writes the session's summaries in the background; if it returns `None`,
    /// the built-in summariser does. It is called anew with every request, because a summariser may hold something
    /// that only the newest request has, such as a key.
    pub fn compose(
        &self,
        arrival: &Arrival<'_>,
        composing: &Composing,
        wishes: &Wishes,
        summarisers: &Summarisers<'_>,
    ) -> Result<Composed, RecordError> {
        self.compose_by(arrival, composing, wishes, summarisers, &LeavesAhead::never())
    }

    /// The same for a caller that cannot wait: `leaves` is called, once at most and before the request is counted and
    /// recorded, if it is certain to go on as it came. Then it has left, whatever the later count shows: if the call
    /// would have been a different one, that is recorded as a call that never left.
    pub fn compose_ahead(
        &self,
        arrival: &Arrival<'_>,
        composing: &Composing,
        wishes: &Wishes,
        summarisers: &Summarisers<'_>,
        leaves: &dyn Fn(),
    ) -> Result<Composed, RecordError> {
        self.compose_by(arrival, composing, wishes, summarisers, &LeavesAhead::told(leaves))
    }

    fn compose_by(
        &self,
        arrival: &Arrival<'_>,
        composing: &Composing,
        wishes: &Wishes,
        summarisers: &Summarisers<'_>,
        ahead: &LeavesAhead<'_>,
    ) -> Result<Composed, RecordError> {
        let (unfit, cramped) = (Cell::new(false), Cell::new(false));
        let mut way = None;
        let clients = &self.lives.clients;
        let mut ticket = self.arrive_by(arrival, &mut |seen, caller, place| {
            let beginnings = clients.beginnings(arrival.principal, seen);
            let summariser = seen.model().and_then(|model| summarisers(&model.0));
            let composition = Composition {
                recorder: self,
                arrival,
                composing,
                wishes,
                summariser: summariser.as_ref(),
                seen,
                caller,
                client: ClientRequest { caches: clients, beginnings: &beginnings, at: arrival.at },
                unfit: &unfit,
                cramped: &cramped,
                ahead,
            };
            let taken = composition.take(place)?;
            // A request that goes on as it came is noted at the point where it is recorded.
            if let Some((_, Way::Forward(outgoing))) = &taken
                && outgoing.done.left == Left::Composed
            {
                clients.sent(&beginnings, arrival.at, outgoing.done.before == outgoing.done.after);
            }
            Ok(taken.map(|(ticket, taken)| {
                way = Some(taken);
                ticket
            }))
        })?;
        let mut way = way.unwrap_or_else(|| as_it_came(arrival.body, Left::Unfit));
        if ahead.has_left() && !ahead::is_as_it_came(&way, arrival.body) {
            self.never_left(&mut ticket, arrival.at)?;
            way = as_it_came(arrival.body, Left::Ahead);
        }
        Ok(Composed { ticket, way })
    }

    /// Makes a composed request smaller after its provider refused it as too long. `None` if that is impossible.
    pub fn compose_smaller(
        &self,
        ticket: &mut Ticket,
        arrival: &Arrival<'_>,
        composing: &Composing,
        refused: Overflow,
    ) -> Result<Option<Outgoing>, RecordError> {
        let mut seen = Seen::read(arrival.format, arrival.body, &self.memo)?;
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
        let request = Request {
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
        self.once_more(ticket, made)
    }

    /// Composes a request that was sent as it came, and that its provider refused as too long. It is a client's own
    /// summary, or a first request that left before it was counted.
    fn compose_relayed(
        &self,
        ticket: &mut Ticket,
        (seen, frame): (&Seen<'_>, Frame<'_>),
        (arrival, composing): (&Arrival<'_>, &Composing),
        refused: Overflow,
    ) -> Result<Option<Outgoing>, RecordError> {
        let Some(model) = seen.model() else { return Ok(None) };
        let setup = self.lives.setup(seen.format(), &model.0, composing);
        let window = composing.window.into_iter().chain(refused.limit).min();
        let limit = setup.limit_of(window, seen.answer_limit().map(Tokens));
        let place = (ticket.session, ticket.thread);
        let made = Live::open(self.store(), place, setup, composing, None).and_then(|live| {
            live.is_limited(limit)?;
            let request = Request {
                seen,
                shared: arrival.shared,
                frame,
                unsent: None,
                recall: false,
                takes_tools: seen.has_tools(),
                below: None,
                client: None,
            };
            Ok((weave_request(&live, (ticket.head, Arriving::default()), request)?, live))
        });
        let made = made.map(|(made, live)| {
            ticket.live = Some(Arc::new(live));
            made
        });
        self.once_more(ticket, made)
    }

    /// Marks a ticket as one whose call was made again, or could not be, after the first request had left.
    pub(super) fn once_more(
        &self,
        ticket: &mut Ticket,
        made: Result<Option<(Made, Outgoing)>, SessionError>,
    ) -> Result<Option<Outgoing>, RecordError> {
        if let Ok(Some((made, outgoing))) = made {
            self.moved(ticket, made.head, Some(made.call));
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
struct Composition<'r, 'a, 'b> {
    recorder: &'r Recorder,
    arrival: &'r Arrival<'a>,
    composing: &'r Composing,
    wishes: &'r Wishes,
    summariser: Option<&'r Summariser>,
    seen: &'r Seen<'b>,
    caller: &'r Caller,
    client: ClientRequest<'r>,
    /// True once composing has failed for good.
    unfit: &'r Cell<bool>,
    /// True once there was no room for its examples.
    cramped: &'r Cell<bool>,
    /// Callback for a request that leaves before it is counted.
    ahead: &'r LeavesAhead<'r>,
}

impl<'b> Composition<'_, '_, 'b> {
    /// Records the request at its place, and decides how it goes on. `None` if it is to be placed again.
    fn take(&self, place: Place) -> Result<Option<(Ticket, Way)>, RecordError> {
        let frame = match (self.left(&place), self.seen.frame()) {
            (Left::Composed, Some(frame)) => frame,
            (Left::Composed, None) => return self.pass(place, Left::Unfit).map(Some),
            (left, _) => return self.pass(place, left).map(Some),
        };
        let Some((setup, limit)) = self.setup() else { return self.pass(place, Left::Unfit).map(Some) };
        let mut place = self.beside_its_answer(place)?;
        let leaves = place.placed == Placed::Began
            && !self.cramped.get()
            && self.command().is_none()
            && goes_on_whole(self.seen, &frame, self.composing, &setup, limit);
        // From here on the work grows with the new events, and all of a first request is new.
        if leaves {
            self.ahead.leave();
        } else if self.cramped.get() {
            place = self.without_examples(place)?;
        } else if place.placed == Placed::Began {
            let room = example_room(&setup, &setup.budget_within(limit, Learned::default()));
            if room.is_exceeded(&place.new) {
                let asked = examples::asked(&place.new, &setup.meter);
                examples::instruct(&mut place.new, ExampleRoom { asked, ..room });
            }
        }
        if let Some(focus) = self.command() {
            return self.compact(place, (&setup, limit), &focus).map(Some);
        }
        let is_fork = matches!(&place.opens, Some(opens) if matches!(opens.thread.start, Start::Fork { .. }));
        if is_fork {
            return self.fork(place, (&setup, limit), frame);
        }
        let is_other_first = place.opens.is_some() && place.placed != Placed::Began;
        if is_other_first && goes_on_whole(self.seen, &frame, self.composing, &setup, limit) {
            self.ahead.leave();
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
        let writing = if self.composing.with_answers { Writing::MayWait } else { Writing::Now };
        let taken = self.recorder.take_by(self.arrival, self.seen, self.caller, place, &mut |commit| {
            let Commit { after, events, records, opens, .. } = commit;
            let Some(frame) = frame.take() else { return Ok(None) };
            let taught = Taught::Doubted;
            let arriving =
                Arriving { events, records, opens, taught, writing, unanswered, ..Arriving::default() };
            match weave_request(&live, (after, arriving), self.request(frame)) {
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
        })?;
        match (taken, outgoing) {
            (Some(mut ticket), Some(outgoing)) => {
                self.recorder.lives.put(thread, &live);
                ticket.live = Some(Arc::clone(&live));
                if let Some(commit) = unwritten {
                    self.recorder.leave_unwritten(
                        &mut ticket,
                        commit,
                        (self.arrival, self.caller, self.seen),
                    );
                }
                live.work();
                Ok(Some((ticket, Way::Forward(outgoing))))
            }
            _ => self.give_up(thread, failed.unwrap_or(SessionError::Busy)),
        }
    }

    fn request(&self, frame: Frame<'b>) -> Request<'_, 'b> {
        let is_turn = self.caller.purpose == Purpose::Turn;
        // A request for a summary that gives no tools may go to an endpoint that accepts none, and wants none called.
        let takes_tools = is_turn || self.seen.has_tools();
        let recall = self.composing.recall && is_turn;
        Request {
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
    fn left(&self, place: &Place) -> Left {
        if self.caller.purpose == Purpose::Title {
            Left::Aside
        } else if self.seen.follows() != Follows::Nothing {
            Left::Remote
        } else if self.seen.is_managed() {
            Left::Managed
        } else if Arm::of(place.session, self.composing.holdout) == Arm::HeldOut {
            Left::HeldOut
        } else if self.unfit.get() {
            Left::Unfit
        } else if self.caller.purpose == Purpose::Compaction && self.fits_its_provider() {
            Left::OwnSummary
        } else if self.seen.illegal().is_some() {
            Left::Illegal
        } else {
            Left::Composed
        }
    }

    /// The setup for the request, and its own limit. A client's own summary has its provider's window: a smaller one
    /// that a user set is for the conversation.
    fn setup(&self) -> Option<(Arc<Setup>, Limit)> {
        let model = self.seen.model()?;
        let answer = self.seen.answer_limit().map(Tokens);
        let setup = self.recorder.lives.setup(self.seen.format(), &model.0, self.composing);
        let is_known = setup.profile.is_some() && self.caller.purpose == Purpose::Compaction;
        let window = self.wishes.window.or(self.composing.window).filter(|_| !is_known);
        let limit = setup.limit_of(window, answer);
        Some((setup, limit))
    }

    /// Returns true if the provider's window holds the request as the client sent it.
    fn fits_its_provider(&self) -> bool {
        let Some((setup, limit)) = self.setup() else { return true };
        let ceiling = setup.budget_within(limit, Learned::default()).ceiling();
        // No token is shorter than a byte.
        if self.seen.body().len() as u64 <= ceiling.0 {
            return true;
        }
        let line = compact::line(self.seen.opening().into_iter().chain(self.seen.events(0)));
        project(&line, Arc::clone(&setup.meter), Names::Messages).tokens() <= ceiling
    }

    /// Records the request, which goes on as it came, unless it is a command to the gateway.
    fn pass(&self, place: Place, left: Left) -> Result<(Ticket, Way), RecordError> {
        let (arrival, seen, caller) = (self.arrival, self.seen, self.caller);
        if self.command().is_some() {
            let ticket = self.recorder.take(arrival, seen, caller, place)?;
            return Ok((ticket, answer(command::not_compacted(left))));
        }
        let ticket = self.recorder.relay(arrival, seen, caller, place, Writing::Now)?;
        Ok((ticket, self.as_it_came(left)))
    }

    /// The request as it came. If it is illegal, the header and the log name the fault and its place.
    fn as_it_came(&self, left: Left) -> Way {
        let way = as_it_came(self.arrival.body, left);
        match (way, self.seen.illegal().filter(|_| left == Left::Illegal)) {
            (Way::Forward(mut outgoing), Some((place, rule))) => {
                tracing::warn!(
                    target: "epitome::compose", %place, rule, "a request that its provider would refuse goes on as it came"
                );
                outgoing.done.cause = Some(format!("{rule} at {place}"));
                Way::Forward(outgoing)
            }
            (way, _) => way,
        }
    }

    /// Gives up composing: the request is placed again, and goes on as it came. The memory of its thread may be
    /// wrong, so it is dropped. If the request was too large, it is tried once more with its examples as ordinary
    /// history.
    fn give_up(&self, thread: ThreadId, error: SessionError) -> Result<Option<(Ticket, Way)>, RecordError> {
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

    fn fresh(&self, place: (SessionId, ThreadId), setup: Arc<Setup>) -> Live {
        Live::fresh(self.recorder.store(), place, setup, self.composing, self.summariser)
    }

    fn open(&self, place: (SessionId, ThreadId), setup: Arc<Setup>) -> Result<Arc<Live>, SessionError> {
        Live::open(self.recorder.store(), place, setup, self.composing, self.summariser).map(Arc::new)
    }

    /// Writes a request that differs from its thread's history: the fork is made first, and shows the shared part.
    fn fork(
        &self,
        place: Place,
        (setup, limit): (&Arc<Setup>, Limit),
        frame: Frame<'b>,
    ) -> Result<Option<(Ticket, Way)>, RecordError> {
        let place_of = (place.session, place.thread);
        let mut place = self.after_its_call(place)?;
        let inherited = self.inherited(&place)?;
        let compaction = inherited.as_ref().and_then(|inherited| inherited.compaction.clone());
        place.new.splice(0..0, compaction);
        let unanswered = self.unanswered(&place);
        let (new, after, was_cramped) = (place.new.clone(), place.after, self.cramped.get());
        let mut ticket = self.recorder.take(self.arrival, self.seen, self.caller, place)?;
        let (store, composing, summariser) = (self.recorder.store(), self.composing, self.summariser);
        let opened =
            Live::open_fork(store, place_of, Arc::clone(setup), composing, summariser, inherited.as_ref());
        let woven = opened.map(Arc::new).and_then(|live| {
            live.is_limited(limit)?;
            if self.is_cramped(&live, &new, after, unanswered)? {
                return Ok((None, live));
            }
            let arriving = Arriving { taught: Taught::Doubted, unanswered, ..Arriving::default() };
            Ok((weave_request(&live, (ticket.head, arriving), self.request(frame))?, live))
        });
        let error = match woven {
            Ok((Some((made, outgoing)), live)) => {
                self.recorder.moved(&mut ticket, made.head, Some(made.call));
                self.recorder.lives.put(ticket.thread, &live);
                live.work();
                ticket.live = Some(live);
                return Ok(Some((ticket, Way::Forward(outgoing))));
            }
            Ok((None, _)) => SessionError::Busy,
            Err(error) => error,
        };
        // Placed again, it would find its own first attempt.
        self.recorder.leaves(&ticket);
        if self.cramped.get() && !was_cramped {
            return Ok(None);
        }
        self.give_up(ticket.thread, error)
    }

    /// Returns true if a thread's examples leave too little room for the new question. Then it is placed again,
    /// without them.
    fn is_cramped(
        &self,
        live: &Live,
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
        if !examples::are_in(context) {
            return Ok(false);
        }
        let asked: Tokens = asked.map(|event| state.setup.meter.event(event, None)).sum();
        self.cramped.set(examples::leave_no_room(context, asked, state.budget().ceiling()));
        Ok(self.cramped.get())
    }

    /// The same history in a fork in which its examples are not instructions. The beginning of a session is not a
    /// fork, and has not been written yet.
    fn without_examples(&self, place: Place) -> Result<Place, StoreError> {
        let store = self.recorder.store();
        let of = match &place.opens {
            Some(Opens { thread: NewThread { start: Start::Fork { of, .. }, .. }, .. }) => *of,
            Some(_) => return Ok(place),
            None => place.thread,
        };
        let Some(at) = examples::before_examples(store, of)? else { return Ok(place) };
        let name = store.thread(of)?.name;
        Ok(told_again(place, (of, at), (name, "without examples"), self.seen.events(0)))
    }

    /// The same history in a fork in which its examples are instructions, if it has any and a limit now demands a
    /// compaction for the first time. Before that they need no protection, and a compaction that someone requests may
    /// summarise them.
    fn with_examples(&self, live: &Live, place: &Place) -> Result<Option<Place>, SessionError> {
        if self.cramped.get() || place.opens.is_some() || place.placed != Placed::Continued {
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
        if thread.start != Start::Root {
            return Ok(None);
        }
        let (setup, seen_first) = (live.setup(), examples::first_seen(store, place.thread)?);
        let room = example_room(&setup, &budget);
        let room = ExampleRoom { asked: new, ..room };
        let mut new = self.seen.events(0);
        let ends = new.iter().enumerate().filter(|(_, event)| event.normal.is_some());
        let first = ends.take(seen_first).last().map_or(0, |(at, _)| at + 1);
        let Some(at) = examples::opening(store, place.thread)? else { return Ok(None) };
        if !examples::instruct(&mut new[..first], room) {
            return Ok(None);
        }
        let place = Place { new: Vec::new(), opens: None, key: place.key.clone(), ..*place };
        Ok(Some(told_again(place, (thread.id, at), (thread.name, "with examples"), new)))
    }

    /// The first event of a request after the newest answer that was given here. Clients put more than a prompt there, with
    /// answers between that no model gave. `None` for a thread that is seen for the first time: it is unknown which of its
    /// answers were given by a model.
    fn unanswered(&self, place: &Place) -> Option<Seq> {
        if matches!(place.placed, Placed::Began | Placed::Joined) {
            return None;
        }
        let was_given = |event: &Event| {
            matches!(event.fact, Fact::AssistantSaid { .. })
                && event.normal.is_some_and(|said| self.recorder.was_answered(self.arrival.principal, said))
        };
        let answered = place.new.iter().rposition(was_given).map_or(0, |at| at as u64 + 1);
        Some(Seq(place.after.next().0 + answered))
    }

    /// Moves the fork point of a fork that begins with another answer to after the decisions made for the question, so
    /// that the fork keeps them.
    fn after_its_call(&self, mut place: Place) -> Result<Place, StoreError> {
        if let Some(opens) = &mut place.opens
            && let Start::Fork { of, at } = &mut opens.thread.start
        {
            *at = decided(self.recorder.store(), *of, *at)?;
            place.after = *at;
        }
        Ok(place)
    }

    /// The state a fork takes from its parent.
    fn inherited(&self, place: &Place) -> Result<Option<Inheritance>, StoreError> {
        let Some(Start::Fork { of, at }) = place.opens.as_ref().map(|opens| &opens.thread.start) else {
            return Ok(None);
        };
        let new = place.new.iter().filter(|event| event.normal.is_some()).count();
        let shared = self.seen.units().len().saturating_sub(new);
        Inheritance::read(self.recorder.store(), *of, *at, shared, &place.new)
    }

    /// Moves a request that already has an answer to a fork, which holds the question and the decisions made for it,
    /// so that its new answer stands beside the old one. A fork that waits for its answer still is the same question,
    /// asked again.
    fn beside_its_answer(&self, place: Place) -> Result<Place, StoreError> {
        if place.placed != Placed::Forked || place.opens.is_some() {
            return Ok(place);
        }
        let store = self.recorder.store();
        let of = store.thread(place.thread)?;
        let at = decided(store, place.thread, place.after)?;
        let mut time = 0_u64;
        loop {
            time += 1;
            let told = [of.id.to_string(), at.to_string(), "again".to_owned(), time.to_string()];
            let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.id.uuid());
            match store.thread(id) {
                Ok(known) if known.head.link.normal == place.link => {
                    return Ok(Place { thread: id, after: known.head.seq, placed: Placed::Retried, ..place });
                }
                Ok(_) => {}
                Err(StoreError::UnknownThread(_)) => {
                    let start = Start::Fork { of: of.id, at };
                    let key = place.key.clone();
                    let thread = NewThread { id, session: place.session, name: of.name, start, key };
                    let head = match place.line {
                        Line::Main => BecomesHead::Yes,
                        Line::Side => BecomesHead::No,
                    };
                    let opens = Some(Opens { session: None, thread, head });
                    return Ok(Place { thread: id, after: at, opens, ..place });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Focus of a requested compaction; `None` if none is requested.
    fn command(&self) -> Option<String> {
        command::focus(self.composing, self.wishes, self.arrival, self.caller, self.seen)
    }

    /// Compacts now, or starts it, and tells the client.
    fn compact(
        &self,
        place: Place,
        (setup, limit): (&Arc<Setup>, Limit),
        focus: &str,
    ) -> Result<(Ticket, Way), RecordError> {
        let place_of = (place.session, place.thread);
        let known = if place.opens.is_none() { self.recorder.lives.get(place.thread) } else { None };
        let mut ticket = self.recorder.take(self.arrival, self.seen, self.caller, place)?;
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
                orders::order(desk, Trigger::Manual, focus, None)?;
                let words = "A summary is being written; it takes effect with the next message after it is ready.";
                answer(words.to_owned())
            } else {
                let before = desk.state()?.view.context().tokens();
                orders::compact_built_in(desk, Trigger::Manual, focus, None)?;
                let after = desk.state()?.view.context().tokens();
                Way::Answer {
                    words: format!(
                        "Compacted: {before} tokens became {after}. Nothing is lost: the whole session is on record."
                    ),
                    compaction: Some((Trigger::Manual, BUILT_IN.to_owned())),
                }
            };
            let head = desk.state()?.head();
            self.recorder.lives.put(ticket.thread, &live);
            live.work();
            Ok((told, head))
        });
        match done {
            Ok((told, head)) => {
                self.recorder.moved(&mut ticket, head, None);
                Ok((ticket, told))
            }
            Err(SessionError::Store(error)) => {
                self.recorder.leaves(&ticket);
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
    place: Place,
    (of, at): (ThreadId, Seq),
    (name, kind): (String, &str),
    new: Vec<Event>,
) -> Place {
    let told = [of.to_string(), at.to_string(), kind.to_owned(), place.link.to_string()];
    let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.uuid());
    let start = Start::Fork { of, at };
    let thread = NewThread { id, session: place.session, name, start, key: place.key.clone() };
    let head = if place.line == Line::Main { BecomesHead::Yes } else { BecomesHead::No };
    let opens = Some(Opens { session: None, thread, head });
    Place { thread: id, after: at, new, opens, placed: Placed::Forked, ..place }
}

/// Room for examples within a budget.
fn example_room<'s>(setup: &'s Setup, budget: &Budget) -> ExampleRoom<'s> {
    let (ceiling, force, asked) = (budget.ceiling(), budget.force(), Tokens(0));
    ExampleRoom { ceiling, force, asked, meter: &setup.meter }
}

/// Place of a question, including all decisions made for it before it was answered.
fn decided(store: &Sqlite, thread: ThreadId, after: Seq) -> Result<Seq, StoreError> {
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

fn answer(words: String) -> Way {
    Way::Answer { words, compaction: None }
}

fn as_it_came(body: &str, left: Left) -> Way {
    let cuts = vec![Cut::Client(0..body.len())];
    Way::Forward(Outgoing { cuts, done: Done::nothing(left), recall: false })
}

/// Makes the next request of a thread from its client's. `None` if the log has another history, or if it would be too
/// large.
pub(super) fn weave_request(
    live: &Live,
    (after, mut arriving): (Seq, Arriving),
    request: Request<'_, '_>,
) -> Result<Option<(Made, Outgoing)>, SessionError> {
    let mut loom = live.loom()?;
    arriving.recall = loom.recall_offer(&request);
    let mut request = request;
    let mut woven = None;
    let mut is_other = false;
    let (mut is_warm, mut is_unread, mut lifetime) = (false, false, None);
    let store = &live.desk.store;
    let made = live.desk.take_over(after, arriving, &mut |state, setup, prepared, whole| {
        is_warm = state.is_warm(live.desk.now());
        is_unread = state.cache.is_unread();
        lifetime = state.cache_lifetime();
        if request.below.is_some_and(|tried| state.view.context().tokens() >= tried) {
            is_other = true;
            return Err(SessionError::Busy);
        }
        request.recall = state.offers_recall();
        let Some(made) = loom.weave(store, state, setup, prepared, &request, (after, whole))? else {
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
        let known = KnownCache {
            full,
            after: made.tokens,
            of_session: loom.last_sent().filter(|_| is_warm),
            is_asked: loom.asks_for_cache(),
            is_unread,
        };
        loom.client = held.cache(held.tokens(&request.frame, full), known);
    }
    let cache = loom.client;
    loom.sent(request, script, grown);
    let done = Done {
        call: Some((live.desk.thread, made.call)),
        epoch: made.epoch,
        cause: made.cause.as_ref().map(ToString::to_string),
        before: full,
        after: made.tokens,
        cache,
        compaction: made.compaction.clone(),
        left: Left::Composed,
    };
    Ok(Some((made, Outgoing { cuts, done, recall })))
}

/// The same request, after its provider refused it.
fn smaller(
    live: &Live,
    request: Request<'_, '_>,
    (call, refused): (u64, Overflow),
) -> Result<Option<(Made, Outgoing)>, SessionError> {
    let tried = live.desk.overflowed_at(call, refused)?;
    let head = live.desk.state()?.head();
    weave_request(live, (head, Arriving::default()), Request { below: Some(tried), ..request })
}
