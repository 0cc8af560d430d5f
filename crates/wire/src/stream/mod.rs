//! Streamed answers, assembled into the JSON that the same answer would have had in one piece, then read as that.
//!
//! A stream that breaks off still gives the part that came, and reports it as cut. The bytes kept are bounded by a
//! limit, so that a server that never stops talking cannot fill the memory.

pub(crate) mod growing_json;

use std::fmt;

use epitome_core::Event;

use crate::{error::WireError, format::Format, json::Json, response, sse::SsePayloads};

/// Takes a streamed answer chunk by chunk.
///
/// ```
/// use epitome_wire::{StreamEnding, Format, StreamDecoder};
///
/// let mut stream = StreamDecoder::new(Format::OpenaiChat);
/// stream.push(b"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hel");
/// stream.push(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
/// let streamed = stream.finish()?;
/// assert_eq!(streamed.ending, StreamEnding::Complete);
/// assert_eq!(streamed.events[0].fact.text(), "hello");
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct StreamDecoder {
    format: Format,
    payloads: SsePayloads,
    assembly: Box<dyn AnswerAssembly>,
    kept: usize,
    limit: usize,
    ending: StreamEnding,
    over: bool,
    damaged: bool,
    overflowed: bool,
}

/// Result of reading a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamedAnswer {
    /// Answer as far as it came, then its usage.
    pub events: Vec<Event>,
    /// Way it ended.
    pub ending: StreamEnding,
}

/// Way a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnding {
    /// The provider finished the answer.
    Complete,
    /// The stream broke off, or part of it could not be read.
    Cut,
    /// The provider reported an error, in these words.
    Failed(String),
}

impl StreamDecoder {
    /// Default limit on the bytes of an answer that are kept.
    pub const DEFAULT_LIMIT: usize = 64 << 20;

    /// Waits for an answer in `format`.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            payloads: SsePayloads::default(),
            assembly: format.provider().assembly(),
            kept: 0,
            limit: Self::DEFAULT_LIMIT,
            ending: StreamEnding::Cut,
            over: false,
            damaged: false,
            overflowed: false,
        }
    }

    /// The same decoder, which keeps at most about `bytes` of an answer.
    pub fn with_limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Takes the next bytes; they may be cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        // Small steps, so that one huge chunk cannot pass the limit either.
        for step in bytes.chunks(64 << 10) {
            if self.overflowed {
                return;
            }
            self.walk(|payloads, see| payloads.push(step, see));
        }
    }

    /// Number of bytes kept so far.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Returns true if the provider has reported that the answer is complete or failed. Later events change nothing.
    /// A stream may also end without such a report.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reads the answer as far as it came.
    pub fn finish(mut self) -> Result<StreamedAnswer, WireError> {
        if !self.overflowed {
            self.walk(SsePayloads::finish);
        }
        if self.overflowed {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        let events = match self.assembly.assembled().map(|json| response::decode(self.format, &json)) {
            None | Some(Err(WireError::NoAnswer { .. })) => Vec::new(),
            Some(decoded) => decoded?,
        };
        let ending = match self.ending {
            StreamEnding::Complete if self.damaged => StreamEnding::Cut,
            ending => ending,
        };
        Ok(StreamedAnswer { events, ending })
    }

    fn walk(&mut self, feed: impl FnOnce(&mut SsePayloads, &mut dyn FnMut(&str))) {
        let Self { payloads, assembly, kept, ending, over, damaged, .. } = self;
        feed(payloads, &mut |payload| {
            let Some(taken) = take(&mut **assembly, payload) else {
                *damaged = true;
                return;
            };
            *kept = kept.saturating_add(taken.kept);
            *over |= taken.over;
            match taken.ending {
                // An error stays an error, whatever follows it.
                Some(new) if !matches!(ending, StreamEnding::Failed(_)) => *ending = new,
                _ => {}
            }
        });
        self.overflowed = self.kept.saturating_add(self.payloads.held()) > self.limit;
    }
}

/// Effect of one payload.
#[derive(Debug, Default)]
pub(crate) struct PayloadEffect {
    /// Number of bytes more that are kept.
    pub(crate) kept: usize,
    /// State of the stream after it, if the payload changes it.
    pub(crate) ending: Option<StreamEnding>,
    /// True if no more of the answer can follow.
    pub(crate) over: bool,
}

impl PayloadEffect {
    pub(crate) fn kept(kept: usize) -> Self {
        Self { kept, ..Self::default() }
    }

    pub(crate) fn ending(ending: StreamEnding) -> Self {
        Self::default().with_final_ending(ending)
    }

    /// Marks the last event of the stream.
    pub(crate) fn with_final_ending(self, ending: StreamEnding) -> Self {
        Self { ending: Some(ending), over: true, ..self }
    }

    /// Sets the ending, though more events may follow.
    pub(crate) fn with_ending(self, ending: StreamEnding) -> Self {
        Self { ending: Some(ending), ..self }
    }
}

/// A streamed answer so far.
pub(crate) trait AnswerAssembly: fmt::Debug + Send + Sync {
    /// Takes the next event.
    fn take(&mut self, event: &Json<'_>) -> PayloadEffect;

    /// Returns true if `[DONE]` ends the stream; servers of other formats send it by mistake.
    fn ends_with_done(&self) -> bool {
        false
    }

    /// The response in one piece; `None` if none was ever begun.
    fn assembled(self: Box<Self>) -> Option<String>;
}

/// Takes a payload and returns its effect; `None` if it is not JSON, so that the answer lacks it.
fn take(assembly: &mut dyn AnswerAssembly, payload: &str) -> Option<PayloadEffect> {
    match payload.trim() {
        "[DONE]" if assembly.ends_with_done() => return Some(PayloadEffect::ending(StreamEnding::Complete)),
        "[DONE]" | "" => return Some(PayloadEffect::default()),
        _ => {}
    }
    let event = Json::parse(payload, "a streamed event").ok()?;
    Some(assembly.take(&event))
}
