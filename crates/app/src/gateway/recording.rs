//! The record of one exchange: its request as soon as it has come, its answer when it has ended.
//!
//! The recorder blocks, so it runs on threads of its own while bytes are passed on. A request is recorded
//! during the wait for its answer; an answer that ends sooner is recorded by the same thread, right after.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use epitome::{
    compose::{self, Done, Outgoing, Way, Wishes},
    core::{
        Fact,
        event::{Time, Usage},
    },
    observe::Observed,
    recorder::{Arrival, End, Ending, Finish, Placed, RecordError, Recorder, Ticket},
    store::Sqlite,
    wire::{Format, caller::Purpose, overflow::Overflow, recall::Recalls},
};
use http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    Gateway,
    admission::{API_KEY, TOKEN},
    config::{Mode, Unrecorded},
    copy::{AnswerCopy, Read},
    expand::{Coding, ExpandError, expand},
    intake,
    metrics::{Reason, composed::Call},
    passage::{Departure, Said},
    shelf::Shelf,
    summariser::Means,
    telemetry::{self, Place},
    treatment::PolicyInUse,
    unheard::Unheard,
    waiting::WaitingRequest,
};

/// Held by every task that must not be cut off when the gateway stops.
pub(super) type Alive = mpsc::Sender<()>;

/// A request that is to be recorded.
#[derive(Debug)]
pub(super) struct Request {
    /// Owner of the request.
    pub(super) principal: Arc<str>,
    /// Format of the request.
    pub(super) format: Format,
    /// Headers of the request.
    pub(super) headers: HeaderMap,
    /// Body of the request, as it came.
    pub(super) body: Bytes,
    /// Mode of the request: whether a policy is applied to it, computed beside it, or neither.
    pub(super) mode: Mode,
    /// Policy of the request.
    pub(super) policy: Arc<PolicyInUse>,
    /// Purpose of the request, if its path shows it.
    pub(super) purpose: Option<Purpose>,
    /// Options of the client for composing, from its headers.
    pub(super) wishes: Wishes,
    /// Access to the session's own model, for summaries.
    pub(super) means: Option<Arc<Means>>,
}

/// A request whose treatment is decided.
#[derive(Debug)]
pub(super) struct Composed {
    /// Treatment of the request.
    pub(super) way: Becomes,
    /// The client's body, not compressed, from which the request is composed.
    pub(super) body: Bytes,
}

/// Treatment of a request in mode `compact`.
#[derive(Debug)]
pub(super) enum Becomes {
    /// This was decided and recorded.
    Decided(Way),
    /// It is sent as it came, and counted and recorded meanwhile.
    Whole(oneshot::Receiver<Done>),
}

/// A composed request that its provider refused as too long.
#[derive(Debug)]
pub(super) struct Refused {
    /// The original request.
    pub(super) request: Arc<Request>,
    /// Its body, not compressed.
    pub(super) body: Bytes,
    /// Length limit that the provider states.
    pub(super) overflow: Overflow,
}

/// A composed request whose model asks back for what was left out.
#[derive(Debug)]
pub(super) struct AskedBack {
    /// The original request.
    pub(super) request: Arc<Request>,
    /// Its body, not compressed.
    pub(super) body: Bytes,
    /// Calls of the recall tool.
    pub(super) recalls: Recalls,
}

/// The request that goes on after a model asked back.
#[derive(Debug)]
pub(super) struct Recalled {
    /// The request.
    pub(super) outgoing: Outgoing,
    /// Usage of the answer that asked back.
    pub(super) usage: Option<Usage>,
}

/// Time after which a request is written without its answer, and interval at which that is checked.
const PATIENCE: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(500);

/// Writes down requests whose answers take long, for as long as the store exists.
pub(super) async fn look_after(shelf: Weak<Shelf>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let before = Time(now().0.saturating_sub(i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX)));
        tokio::task::spawn_blocking(move || shelf.recorder().write_down_before(before));
    }
}

/// Result of recording an exchange.
pub(super) type Recorded = Result<(), Reason>;

/// Result of recording a request, with the composed request if there is one.
pub(super) type Taken = Result<Option<Unheard<Composed>>, Reason>;

/// The record of an exchange.
#[derive(Debug)]
pub(super) struct Recording {
    desk: Arc<Desk>,
    /// Receives the result once the request is recorded.
    arrived: Option<oneshot::Receiver<Taken>>,
    /// Receives the counts of a request that was sent before they were known.
    counted: Option<oneshot::Receiver<Done>>,
}

#[derive(Debug)]
struct Desk {
    gateway: Arc<Gateway>,
    shelf: Arc<Shelf>,
    /// Owner of the exchange.
    principal: Arc<str>,
    stage: Mutex<Stage>,
    _alive: Alive,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stage {
    /// The request is being recorded, or composed again.
    Arriving,
    /// The request is recorded, or could not be; there is no answer yet.
    Arrived(Result<Box<Arrived>, Reason>),
    /// The answer ended while another thread was busy with the request. That thread records the answer.
    Leaving(Box<Departure>),
    /// The exchange is finished.
    Gone,
}

/// A request that is recorded.
#[derive(Debug)]
struct Arrived {
    ticket: Ticket,
    /// The recorder that holds the request.
    recorder: Arc<Recorder>,
    /// The request that the policy would have sent.
    observed: Option<Observed>,
    /// Number of recorded answers that asked back.
    asked_back: u64,
    /// Result of composing it, if it was sent before that was known.
    counted: Option<Done>,
}

impl Recording {
    /// Begins to record a request.
    pub(super) fn begin(gateway: &Arc<Gateway>, alive: Alive, request: Arc<Request>) -> Result<Self, Reason> {
        let shelf = gateway.shelf.as_ref().ok_or(Reason::Store)?;
        // Without this limit, requests that wait for a stuck store would fill the memory.
        let place = Arc::clone(&gateway.records).try_acquire_owned().map_err(|_| Reason::Store)?;
        let desk = Arc::new(Desk {
            gateway: Arc::clone(gateway),
            shelf: Arc::clone(shelf),
            principal: Arc::clone(&request.principal),
            stage: Mutex::new(Stage::Arriving),
            _alive: alive,
            _place: place,
        });
        let (tell, arrived) = oneshot::channel();
        let working = Arc::clone(&desk);
        gateway.runtime.spawn_blocking(move || working.arrive(&request, tell));
        Ok(Self { desk, arrived: Some(arrived), counted: None })
    }

    /// Waits until the request is recorded and composed, or until it is known to be sent as it came.
    pub(super) async fn arrived(&mut self) -> Result<Option<Composed>, Reason> {
        match self.arrived.take() {
            Some(arrived) => {
                arrived.await.unwrap_or(Err(Reason::Store)).map(|taken| taken.and_then(Unheard::take))
            }
            None => Ok(None),
        }
    }

    /// Notes that the request was sent as it came; `counted` receives its counts.
    pub(super) fn is_counted_by(&mut self, counted: oneshot::Receiver<Done>) {
        self.counted = Some(counted);
    }

    /// Takes the counts of a request that was sent before they were known, if they have arrived.
    pub(super) fn counted(&mut self) -> Option<Done> {
        let done = self.counted.as_mut()?.try_recv().ok()?;
        self.counted = None;
        Some(done)
    }

    /// Waits for the same counts. `None` if they never come, or were taken before.
    pub(super) async fn when_counted(&mut self) -> Option<Done> {
        self.counted.take()?.await.ok()
    }

    /// Composes the request again, smaller; `None` if that is impossible.
    pub(super) async fn smaller(&self, refused: Refused) -> Option<Outgoing> {
        self.anew(move |desk, arrived| desk.smaller(arrived, &refused)).await
    }

    /// Composes the request again, with what its model asked back for; `None` if that is impossible.
    pub(super) async fn recall(&self, asked: AskedBack) -> Option<Recalled> {
        self.anew(move |desk, arrived| desk.recall(arrived, &asked)).await
    }

    /// Runs `make` for a request that is recorded, on a thread that may block.
    async fn anew<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Desk, &mut Arrived) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let mut arrived = {
            let mut stage = self.desk.stage();
            match std::mem::replace(&mut *stage, Stage::Arriving) {
                Stage::Arrived(Ok(arrived)) => arrived,
                other => {
                    *stage = other;
                    return None;
                }
            }
        };
        let (tell, told) = oneshot::channel();
        let working = Arc::clone(&self.desk);
        self.desk.gateway.runtime.spawn_blocking(move || {
            let made = unless_it_panics(|| work(&working, &mut arrived)).flatten();
            working.hands_over(tell, arrived, made, |heard| heard);
        });
        told.await.ok().flatten().and_then(Unheard::take)
    }

    /// Records how the exchange ended.
    pub(super) fn depart(self, departure: Departure) {
        let departure = Box::new(departure);
        let mut stage = self.desk.stage();
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Arriving => *stage = Stage::Leaving(departure),
            Stage::Arrived(arrived) => {
                drop(stage);
                if is_soon_read(&arrived, &departure) {
                    return self.desk.depart(arrived, *departure);
                }
                let runtime = self.desk.gateway.runtime.clone();
                runtime.spawn_blocking(move || self.desk.depart(arrived, *departure));
            }
            // An exchange has one recording, which ends with this.
            Stage::Leaving(_) | Stage::Gone => {}
        }
    }
}

impl Desk {
    fn arrive(self: Arc<Self>, request: &Request, tell: oneshot::Sender<Taken>) {
        let recorder = self.shelf.recorder();
        let waiting = WaitingRequest::new(tell);
        let taken = unless_it_panics(|| self.record(&recorder, request, &waiting));
        let (ticket, composed) = match taken.unwrap_or_else(|| Err(self.missed(Reason::Store))) {
            Ok(taken) => taken,
            Err(reason) => {
                self.gateway.passes_unread(&self.principal);
                if let Some(tell) = waiting.waits() {
                    // The receiver may be gone, here and below.
                    let _ = tell.send(Err(reason));
                }
                return self.done_with(Err(reason));
            }
        };
        self.gateway.metrics.recorded(ticket.placed);
        let mut arrived =
            Box::new(Arrived { ticket, recorder, observed: None, asked_back: 0, counted: None });
        match (waiting.waits(), composed) {
            (Some(tell), Some(composed)) => self.hands_over(tell, arrived, Some(composed), Ok),
            (None, Some(Composed { way: Becomes::Decided(Way::Forward(outgoing)), .. })) => {
                let tell = waiting.has_left();
                arrived.counted = tell.as_ref().map(|_| outgoing.done.clone());
                // The receiver may ask at once for a smaller request, so the state is put back first.
                self.done_with(Ok(arrived));
                if let Some(tell) = tell {
                    let _ = tell.send(outgoing.done);
                }
            }
            (tell, _) => {
                // An observation is made after the reply, so that the request does not wait for it.
                if let Some(tell) = tell {
                    let _ = tell.send(Ok(None));
                }
                let store = arrived.recorder.store();
                arrived.observed = unless_it_panics(|| observe(store, request, &arrived.ticket)).flatten();
                self.done_with(Ok(arrived));
            }
        }
    }

    fn smaller(&self, arrived: &mut Arrived, refused: &Refused) -> Option<Outgoing> {
        let Refused { request, body, overflow } = refused;
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(str::from_utf8(body).ok()?, &header);
        let composing = &request.policy.composing;
        let composed = arrived.recorder.compose_smaller(&mut arrived.ticket, &arrival, composing, *overflow);
        composed.map_err(|error| self.failed(&error)).ok().flatten()
    }

    fn recall(&self, arrived: &mut Arrived, asked: &AskedBack) -> Option<Recalled> {
        let AskedBack { request, body, recalls } = asked;
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(str::from_utf8(body).ok()?, &header);
        let recalled = arrived.recorder.recall(&mut arrived.ticket, &arrival, recalls);
        let outgoing = recalled.map_err(|error| self.failed(&error)).ok().flatten()?;
        arrived.asked_back += 1;
        let answer = request.format.decode_response(&recalls.answer).unwrap_or_default();
        let usage = answer.iter().rev().find_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(*usage),
            _ => None,
        });
        Some(Recalled { outgoing, usage })
    }

    /// Hands the result to the task that waits for it. If no task waits any more, the request is recorded as
    /// one that never left.
    fn hands_over<T, H>(
        self: Arc<Self>,
        tell: oneshot::Sender<H>,
        mut arrived: Box<Arrived>,
        mut made: Option<T>,
        told: impl FnOnce(Option<Unheard<T>>) -> H,
    ) {
        if tell.is_closed() && made.take().is_some() {
            self.never_left(&arrived.recorder, &mut arrived.ticket);
        }
        // The receiver may ask for another request at once, so the state is put back first.
        Arc::clone(&self).done_with(Ok(arrived));
        let runtime = self.gateway.runtime.clone();
        let lost = move || drop(runtime.spawn_blocking(move || self.nobody_heard()));
        // The receiver may be gone by now.
        let _ = tell.send(told(made.map(|made| Unheard::new(made, lost))));
    }

    /// Handles a result whose receiver stopped waiting just as it was sent.
    fn nobody_heard(self: Arc<Self>) {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Arriving) {
            Stage::Arrived(Ok(mut arrived)) => {
                drop(stage);
                self.never_left(&arrived.recorder, &mut arrived.ticket);
                self.done_with(Ok(arrived));
            }
            other => *stage = other,
        }
    }

    /// Records that a composed request never left: the client's own request was sent instead, or none.
    fn never_left(&self, recorder: &Recorder, ticket: &mut Ticket) {
        if let Err(error) = recorder.never_left(ticket, now()) {
            self.failed(&error);
        }
    }

    /// Puts the request back when a thread has finished with it.
    fn done_with(self: Arc<Self>, arrived: Result<Box<Arrived>, Reason>) {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Leaving(departure) => {
                drop(stage);
                self.depart(arrived, *departure);
            }
            Stage::Arriving | Stage::Arrived(_) | Stage::Gone => *stage = Stage::Arrived(arrived),
        }
    }

    fn record(
        &self,
        recorder: &Recorder,
        request: &Request,
        waiting: &WaitingRequest,
    ) -> Result<(Ticket, Option<Composed>), Reason> {
        let plain = match Coding::of(&request.headers) {
            Coding::Identity => request.body.clone(),
            coding => {
                let expanded = expand(coding, &request.body, self.gateway.limits.body);
                expanded.map(Bytes::from).map_err(|error| match error {
                    ExpandError::TooLarge => self.missed(Reason::TooLarge),
                    ExpandError::Garbage => self.missed(Reason::UnreadableRequest),
                })?
            }
        };
        let Ok(body) = str::from_utf8(&plain) else { return Err(self.missed(Reason::UnreadableRequest)) };
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(body, &header);
        if request.mode != Mode::Compact {
            // A request that is only passed on may be written with its answer, because it does not wait for
            // the record.
            let ticket = match (request.mode, self.gateway.unrecorded) {
                (Mode::Record, Unrecorded::Forward) => recorder.expect(&arrival),
                _ => recorder.arrive(&arrival),
            };
            return Ok((ticket.map_err(|error| self.failed(&error))?, None));
        }
        let Gateway { summarisers, upstreams, .. } = &*self.gateway;
        let summariser =
            |model: &str| summarisers.of(upstreams, (request.format, model), request.means.as_ref());
        let (composing, wishes) = (&request.policy.composing, &request.wishes);
        let leaves = || waiting.goes_on_whole(&plain);
        let composed = recorder.compose_ahead(&arrival, composing, wishes, &summariser, &leaves);
        let compose::Composed { ticket, way } = composed.map_err(|error| self.failed(&error))?;
        Ok((ticket, Some(Composed { way: Becomes::Decided(way), body: plain })))
    }

    /// Records the end of an exchange. This does not wait for the store's writes.
    fn depart(self: Arc<Self>, arrived: Result<Box<Arrived>, Reason>, departure: Departure) {
        let Departure { passed, copy, how, mut composed, overflow, spliced, hidden, done } = departure;
        let (recorded, observed, asked_back) = match arrived {
            Ok(arrived) => {
                let Arrived { ticket, recorder, observed, asked_back, counted } = *arrived;
                composed = composed.or(counted);
                (Ok((ticket, recorder)), observed, asked_back)
            }
            Err(reason) => (Err(reason), None, 0),
        };
        let mut read = copy.map(AnswerCopy::read);
        let told = spliced.zip(read.as_mut()).and_then(|(spliced, read)| spliced.told(read));
        let ending = how.ending(passed.answered(), read.as_ref());
        if recorded.is_ok() && read.as_ref().is_some_and(|read| !read.is_readable) {
            self.missed(Reason::UnreadableAnswer);
        }
        let said = read.as_ref().map(Read::said).unwrap_or_default();
        let place = recorded
            .as_ref()
            .ok()
            .map(|(ticket, _)| Place { session: ticket.session, thread: ticket.thread });
        let model = recorded.as_ref().ok().and_then(|(ticket, _)| ticket.model.clone());
        // A refused request costs nothing, with or without a policy.
        if let (Ending::Complete, Some(observed)) = (ending, &observed) {
            self.gateway.metrics.observed(observed);
        }
        // An answer that asked back may be recorded even if its receiver has gone.
        let answer = read.filter(|_| asked_back <= hidden.answers).map(|read| read.events);
        let end = End {
            answer: answer.unwrap_or_default(),
            ending,
            status: passed.answered().map(|status| status.as_u16()),
            bytes: passed.bytes_out,
            first_byte: passed.first_byte,
            took: passed.took,
            at: now(),
            observed: observed.and_then(|observed| serde_json::to_string(&observed).ok()),
            told,
        };
        let (gateway, principal) = (Arc::clone(&self.gateway), Arc::clone(&self.principal));
        match recorded {
            Ok((ticket, writer)) => {
                let owner = Arc::clone(&writer);
                writer.finish_then(ticket, end, move |finish| {
                    let written = match finish {
                        Ok(Finish::Unsettled(unfinished)) => {
                            let runtime = self.gateway.runtime.clone();
                            runtime.spawn_blocking(move || self.departed(owner.settle(*unfinished), done));
                            return;
                        }
                        Ok(Finish::Done) => Ok(()),
                        Err(error) => Err(error),
                    };
                    // The writing thread must not drop the last reference to its own store. This task keeps
                    // the gateway alive.
                    drop(owner);
                    self.departed(written, done);
                });
            }
            // The receiver may be gone: the client may have disconnected.
            Err(reason) => drop(done.send(Err(reason))),
        }
        let used = said.usage;
        let said = Said { usage: used.map(|used| hidden.with(&used)), ..said };
        passed.tell(&gateway.metrics, ending, &said, place);
        if let (Some(done), Some(place)) = (&composed, place) {
            gateway.metrics.composed(&Call {
                principal: &principal,
                session: place.session,
                model: model.as_ref().map(|model| model.0.as_str()),
                done,
                usage: used.as_ref(),
                overflow: overflow.map(|overflow| overflow.after(ending)),
                recalls: hidden.recalls,
                hidden: hidden.usage,
            });
        }
    }

    fn departed(&self, recorded: Result<(), RecordError>, done: oneshot::Sender<Recorded>) {
        let recorded = recorded.map_err(|error| self.failed(&error));
        if recorded.is_ok() {
            self.gateway.health.works();
        }
        let _ = done.send(recorded);
    }

    fn failed(&self, error: &RecordError) -> Reason {
        let reason = if let RecordError::Unreadable(_) = error {
            Reason::UnreadableRequest
        } else {
            self.gateway.health.fails();
            Reason::Store
        };
        self.gateway.missed(reason, Some(error))
    }

    fn missed(&self, reason: Reason) -> Reason {
        self.gateway.missed(reason, None)
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
    /// Body of the request, not compressed, if it asks for a compaction.
    pub(super) fn asks_to_compact(&self, limit: usize) -> Option<Bytes> {
        let composing = &self.policy.composing;
        if self.wishes.compact.is_none() && composing.command.is_none() {
            return None;
        }
        let plain = match Coding::of(&self.headers) {
            Coding::Identity => self.body.clone(),
            coding => expand(coding, &self.body, limit).ok()?.into(),
        };
        let header = |name: &str| shown(&self.headers, name);
        let arrival = self.arrival(str::from_utf8(&plain).ok()?, &header);
        let is_told = composing.is_told_to_compact(&arrival, &self.wishes);
        is_told.then_some(plain)
    }

    /// Describes the request to the recorder: its body, not compressed, and its headers.
    fn arrival<'a>(&'a self, body: &'a str, header: &'a dyn Fn(&str) -> Option<&'a str>) -> Arrival<'a> {
        let Self { principal, format, purpose, .. } = self;
        let shared = Some(&self.body).filter(|body| intake::is_its_own(body));
        Arrival { principal, format: *format, body, shared, header, at: now(), purpose: *purpose }
    }
}

/// Runs `work` and returns its result unless it panics. Whatever goes wrong with a record, the answer is
/// passed on.
fn unless_it_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    // A panic releases all locks, and state that it left half done is read again from the store.
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Computes the request that the policy would have sent. A failure here has no consequences, because the
/// result is only compared.
fn observe(store: &Sqlite, request: &Request, ticket: &Ticket) -> Option<Observed> {
    // A request that is sent again has been observed already.
    if request.mode != Mode::Observe || ticket.purpose != Purpose::Turn || ticket.placed == Placed::Retried {
        return None;
    }
    let Ticket { thread, head, model, .. } = ticket;
    let policy = &request.policy;
    let seen = policy.observer.call(store, *thread, *head, model.as_ref(), request.format, now());
    match seen {
        Ok(observed) => Some(observed),
        Err(error) => {
            telemetry::unobserved(&error);
            None
        }
    }
}

/// Returns true if the remaining work takes less time than handing it to another thread.
fn is_soon_read(arrived: &Result<Box<Arrived>, Reason>, departure: &Departure) -> bool {
    /// Most bytes that are read on the spot; reading more takes longer than waking a thread.
    const BYTES: usize = 16 << 10;
    // Results of the recall tool are read from the store.
    let request = arrived.as_ref().map_or(0, |arrived| match departure.spliced {
        Some(_) => usize::MAX,
        None => arrived.ticket.unwritten_bytes(),
    });
    let answer = departure.copy.as_ref().map_or(0, AnswerCopy::expected_work);
    request.saturating_add(answer) <= BYTES
}

/// A header as the recorder may see it: headers with keys are withheld, so that no key reaches the store.
fn shown<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let is_secret =
        [header::AUTHORIZATION.as_str(), header::PROXY_AUTHORIZATION.as_str(), header::COOKIE.as_str()]
            .contains(&name)
            || name == TOKEN.as_str()
            || name == API_KEY.as_str();
    if is_secret { None } else { headers.get(name)?.to_str().ok() }
}

pub(super) fn now() -> Time {
    Time(jiff::Timestamp::now().as_millisecond())
}
