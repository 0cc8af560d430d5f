//! A streamed answer on its way: each event is passed, changed, or withheld.

use super::{
    splice::{MAX_ANSWER_BYTES, MAX_WITHHELD_BYTES, RecallCalls, SpliceVerdict},
    splice_state::{AnswerEnd, AnswerSplice, EndReason, EventHandling, SpliceState, VisiblePart},
    sse_frames::{self, SsePiece, SseSplitter},
};
use crate::{
    endpoint::ErrorDetails,
    format::Format,
    json::Json,
    stream::{AnswerAssembly, PayloadEffect},
};

/// A streamed answer on its way.
#[derive(Debug)]
pub(crate) struct StreamSplice {
    format: Format,
    /// `None` if bytes pass unread.
    frames: Option<SseSplitter>,
    watch: Box<dyn AnswerSplice>,
    tally: SpliceState,
    /// The answer as the provider gives it.
    assembly: Box<dyn AnswerAssembly>,
    kept: usize,
    /// Events that were withheld.
    held: Vec<u8>,
    withheld_limit: usize,
    kept_limit: usize,
    is_over: bool,
    /// True if the client has the last event that came.
    is_passed: bool,
    /// True if the client has only part of it.
    is_torn: bool,
}

impl StreamSplice {
    pub(crate) fn new(format: Format) -> Self {
        let watch = format.provider().splice();
        Self {
            format,
            frames: Some(SseSplitter::default()),
            watch,
            tally: SpliceState::default(),
            assembly: format.provider().assembly(),
            kept: 0,
            held: Vec::new(),
            withheld_limit: MAX_WITHHELD_BYTES,
            kept_limit: MAX_ANSWER_BYTES,
            is_over: false,
            is_passed: true,
            is_torn: false,
        }
    }

    pub(crate) fn limit(&mut self, withheld: usize, kept: usize) {
        self.withheld_limit = withheld;
        self.kept_limit = kept;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn push(&mut self, bytes: &[u8], seen: &mut Vec<u8>) {
        // Small steps, so that one huge chunk cannot exceed the limit either.
        for step in bytes.chunks(64 << 10) {
            let Some(mut frames) = self.frames.take() else {
                seen.extend_from_slice(step);
                continue;
            };
            frames.push(step, &mut |piece| match piece {
                SsePiece::Event(event) => self.event(event, seen),
                SsePiece::Tail(tail) => {
                    if self.is_passed {
                        seen.extend_from_slice(tail);
                    }
                }
            });
            if frames.held() > self.kept_limit {
                self.release(seen);
                seen.extend(frames.rest());
                self.is_torn = true;
            } else {
                self.frames = Some(frames);
            }
        }
    }

    pub(crate) fn end(&mut self, seen: &mut Vec<u8>) -> SpliceVerdict {
        let rest = self.frames.as_mut().map(SseSplitter::rest).unwrap_or_default();
        if !rest.is_empty() {
            self.last(&rest, seen);
        }
        if !self.tally.withholds_calls() {
            return SpliceVerdict::Exposed;
        }
        if !self.tally.hides_any() {
            let is_continued = self.tally.is_continued;
            return if is_continued {
                SpliceVerdict::Continued { answer: self.answer() }
            } else {
                SpliceVerdict::Passed
            };
        }
        let recalls = RecallCalls::of(self.format, self.answer().unwrap_or_default());
        match self.tally.end {
            AnswerEnd::Withheld if recalls.calls.is_empty() => {
                // The calls cannot be read, so nobody can answer them.
                self.release(seen);
                SpliceVerdict::Exposed
            }
            AnswerEnd::Withheld => {
                self.watch.remember(&recalls.answer);
                SpliceVerdict::Recall(recalls)
            }
            AnswerEnd::Well => SpliceVerdict::Mixed(recalls),
            AnswerEnd::NotYet | AnswerEnd::Otherwise => SpliceVerdict::LeftOut(recalls),
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.tally.go_on();
        self.watch.go_on();
        self.frames = Some(SseSplitter::default());
        self.assembly = self.format.provider().assembly();
        self.kept = 0;
        self.held.clear();
        self.is_over = false;
        self.is_passed = true;
    }

    pub(crate) fn fail(&mut self, message: &str) -> Vec<u8> {
        self.frames = Some(SseSplitter::default());
        let error = self.watch.fail(message);
        let gap: &[u8] = if self.is_torn { b"\n\n" } else { b"" };
        [gap, &error].concat()
    }

    /// The answer so far, as if it had not been streamed.
    fn answer(&mut self) -> Option<String> {
        std::mem::replace(&mut self.assembly, self.format.provider().assembly()).assembled()
    }

    /// Handles an event.
    fn event(&mut self, bytes: &[u8], seen: &mut Vec<u8>) {
        let Some(payload) = sse_frames::payload(bytes) else {
            // A comment keeps the connection open: it passes even while events are withheld.
            return self.pass(bytes, seen);
        };
        let event = Json::parse(&payload, "a streamed event").ok();
        if let Some(event) = &event {
            let taken = if self.tally.withholds_calls() {
                self.assembly.take(event)
            } else {
                PayloadEffect::default()
            };
            self.kept = self.kept.saturating_add(taken.kept);
            self.is_over |= taken.over;
        }
        self.is_over |= is_done(&payload);
        self.told(bytes, &payload, event.as_ref(), seen);
        if self.tally.withholds_calls()
            && (self.held.len() > self.withheld_limit || self.kept > self.kept_limit)
        {
            self.release(seen);
        }
    }

    /// Passes, changes or withholds an event.
    fn told(&mut self, bytes: &[u8], payload: &str, event: Option<&Json<'_>>, seen: &mut Vec<u8>) {
        let fate = match event {
            Some(event) => self.watch.handle_event(event, &mut self.tally),
            None if is_done(payload) => self.done(payload),
            None => EventHandling::passed(),
        };
        if let Some(held) = fate.held {
            self.held.extend(sse_frames::with_payload(bytes, &held));
        }
        match fate.shown {
            VisiblePart::AsItIs => self.pass(bytes, seen),
            VisiblePart::As(payload) => self.pass(&sse_frames::with_payload(bytes, &payload), seen),
            VisiblePart::Not => self.is_passed = false,
        }
    }

    /// Handles the event that ends a stream in some formats.
    fn done(&mut self, payload: &str) -> EventHandling {
        let is_end = self.watch.ends_with_done() && self.tally.is_open();
        if self.tally.is_withheld() || (is_end && self.tally.end_answer(EndReason::Done)) {
            return EventHandling::held(payload);
        }
        EventHandling::passed()
    }

    fn pass(&mut self, bytes: &[u8], seen: &mut Vec<u8>) {
        seen.extend_from_slice(bytes);
        self.is_passed = true;
    }

    /// Handles trailing bytes that no empty line ended: some servers leave out the last one.
    fn last(&mut self, rest: &[u8], seen: &mut Vec<u8>) {
        let is_whole = sse_frames::payload(rest)
            .is_none_or(|payload| is_done(&payload) || Json::parse(&payload, "a streamed event").is_ok());
        if !self.tally.places.are_moved() {
            self.is_torn = true;
            return if is_whole { self.event(rest, seen) } else { seen.extend_from_slice(rest) };
        }
        // Half an event can be neither read nor changed; whole ones are ended, as others may follow.
        if is_whole {
            self.event(&[rest, b"\n\n"].concat(), seen);
        }
    }

    /// Gives the client everything that was withheld, and withholds nothing more.
    fn release(&mut self, seen: &mut Vec<u8>) {
        self.tally.stop_withholding();
        self.assembly = self.format.provider().assembly();
        let held = std::mem::take(&mut self.held);
        let mut events: Vec<Vec<u8>> = Vec::new();
        SseSplitter::default().push(&held, &mut |piece| match piece {
            SsePiece::Event(event) | SsePiece::Tail(event) => events.push(event.to_vec()),
        });
        for event in events {
            match sse_frames::payload(&event) {
                Some(payload) => {
                    let read = Json::parse(&payload, "a streamed event").ok();
                    self.told(&event, &payload, read.as_ref(), seen);
                }
                None => self.pass(&event, seen),
            }
        }
    }
}

fn is_done(payload: &str) -> bool {
    payload.trim() == "[DONE]"
}

/// Writes a provider's error in place of an answer.
pub(crate) fn error(format: Format, message: &str) -> String {
    format.error_body(&ErrorDetails { status: 500, code: None, message })
}
