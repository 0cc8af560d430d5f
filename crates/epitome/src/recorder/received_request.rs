//! A request that was read, until it is recorded at its place.
//!
//! Other writers may come first, in this process or another. So a request is [placed](ReceivedRequest::place), its caller tries
//! to write it there, and the [result](ReceivedRequest::accept) tells if it is to be placed once more.

use std::sync::MutexGuard;

use epitome_core::{Digest, ThreadId};
use epitome_store::StoreError;
use epitome_wire::{caller::Caller, incoming::IncomingRequest};

use super::{
    RecordError, RequestArrival, TrafficRecorder,
    placement::{RequestPlace, RequestPlacer},
};

/// Number of attempts at placing a request when other writers come first.
pub(crate) const MAX_PLACE_ATTEMPTS: usize = 8;

/// A request that was read and is to be recorded.
pub(crate) struct ReceivedRequest<'r, 'a> {
    pub(crate) arrival: &'r RequestArrival<'a>,
    pub(crate) seen: IncomingRequest<'a>,
    pub(crate) caller: Caller,
    recorder: &'r TrafficRecorder,
    attempts: usize,
    /// The thread that the last place opens, and its normalised chain after the request.
    opens: Option<(ThreadId, Digest)>,
    /// A place at which somebody else has recorded the same request, to be tried next.
    recorded: Option<RequestPlace>,
    /// True if the last place was such a one.
    is_recorded: bool,
    /// Requests of one session are placed one after another.
    _turn: Option<MutexGuard<'r, ()>>,
}

impl<'r, 'a> ReceivedRequest<'r, 'a> {
    /// Reads a request, and waits until no related one is being placed.
    pub(super) fn read(
        recorder: &'r TrafficRecorder,
        arrival: &'r RequestArrival<'a>,
    ) -> Result<Self, RecordError> {
        let mut seen = IncomingRequest::read(arrival.format, arrival.body, &recorder.memo)?;
        let mut caller = Caller::of(arrival.header, &seen);
        caller.purpose = arrival.purpose.unwrap_or(caller.purpose);
        // A title and the first turn of a session come together. Requests without an id that begin alike wait for each
        // other, too: each must see the result of the one before.
        let begins = seen.units().first().map(|unit| unit.digest.to_string());
        let session = caller.session.as_deref().or(begins.as_deref()).unwrap_or_default();
        let turn = recorder.known.lock_session(arrival.principal, session);
        recorder.write_down(&recorder.known.marks(arrival.principal, &caller, &seen))?;
        recorder.resolve(arrival.principal, &mut seen)?;
        Ok(Self {
            arrival,
            seen,
            caller,
            recorder,
            attempts: 0,
            opens: None,
            recorded: None,
            is_recorded: false,
            _turn: turn,
        })
    }

    /// Finds the place of the request.
    pub(crate) fn place(&mut self) -> Result<RequestPlace, RecordError> {
        if let Some(place) = self.recorded.take() {
            self.is_recorded = true;
            return Ok(place);
        }
        self.is_recorded = false;
        loop {
            let place = RequestPlacer::new(self.recorder, self.arrival, &self.seen, &self.caller).place()?;
            // Unwritten requests are not found in the store, so they are written and the search repeated.
            let mark = self.recorder.known.mark_of(place.session);
            if self.attempts < MAX_PLACE_ATTEMPTS && self.recorder.write_down(&[mark])? > 0 {
                self.attempts += 1;
                continue;
            }
            self.opens = place.opens.is_some().then_some((place.thread, place.link));
            return Ok(place);
        }
    }

    /// Takes the result of writing the request at its last place: `None`, there or here, if it is to be placed again.
    pub(crate) fn accept<T>(
        &mut self,
        written: Result<Option<T>, RecordError>,
    ) -> Result<Option<T>, RecordError> {
        let may_try_again = self.attempts < MAX_PLACE_ATTEMPTS;
        match written {
            Ok(Some(written)) => Ok(Some(written)),
            // That place was only a guess.
            Ok(None) | Err(_) if self.is_recorded => Ok(None),
            Ok(None) if may_try_again => {
                self.attempts += 1;
                Ok(None)
            }
            Ok(None) => Err(RecordError::Busy),
            Err(RecordError::Store(StoreError::Conflict { thread, .. })) if may_try_again => {
                self.recorder.known.forget(thread);
                self.attempts += 1;
                // The thread to be made exists already: this request was seen before, by this gateway or another.
                if let Some((thread, link)) = self.opens {
                    self.recorded = self.recorder.seen_before(thread, link)?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
