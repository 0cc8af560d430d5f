//! Streamed answers, assembled into the JSON that the same answer would have had in one piece, then read as that.
//!
//! A stream that breaks off still gives what came, and says so. What was kept is bounded by a limit: a server that
//! never stops talking cannot fill the memory.

mod anthropic;
mod built;
mod openai_chat;
mod openai_responses;

use epitome_core::Event;

use crate::{error::WireError, format::Format, json::Json, response, sse::Payloads};

/// Takes a streamed answer chunk by chunk.
///
/// ```
/// use epitome_wire::{Ending, Format, StreamDecoder};
///
/// let mut stream = StreamDecoder::new(Format::OpenaiChat);
/// stream.push(b"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hel");
/// stream.push(b"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
/// let streamed = stream.finish()?;
/// assert_eq!(streamed.ending, Ending::Complete);
/// assert_eq!(streamed.events[0].fact.text(), "hello");
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct StreamDecoder {
    format: Format,
    payloads: Payloads,
    assembly: Assembly,
    kept: usize,
    limit: usize,
    ending: Ending,
    over: bool,
    damaged: bool,
    overflowed: bool,
}

/// What a stream gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streamed {
    /// The answer as far as it came, then what it used.
    pub events: Vec<Event>,
    /// How it ended.
    pub ending: Ending,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The provider finished what it had to say.
    Complete,
    /// The stream broke off, or part of it could not be read.
    Cut,
    /// The provider reported an error, in these words.
    Failed(String),
}

impl StreamDecoder {
    /// How many bytes of an answer are kept unless told otherwise.
    pub const DEFAULT_LIMIT: usize = 64 << 20;

    /// Waits for an answer in `format`.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            payloads: Payloads::default(),
            assembly: Assembly::new(format),
            kept: 0,
            limit: Self::DEFAULT_LIMIT,
            ending: Ending::Cut,
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

    /// How many bytes are kept of what came.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether the provider has said its last word: that the answer is complete, or that it failed. Whatever still comes
    /// changes nothing. A stream may also just end.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reads what came.
    pub fn finish(mut self) -> Result<Streamed, WireError> {
        if !self.overflowed {
            self.walk(Payloads::finish);
        }
        if self.overflowed {
            return Err(WireError::TooLarge { limit: self.limit });
        }
        let events = match self.assembly.assembled().map(|json| response::decode(self.format, &json)) {
            None | Some(Err(WireError::NoAnswer { .. })) => Vec::new(),
            Some(decoded) => decoded?,
        };
        let ending = match self.ending {
            Ending::Complete if self.damaged => Ending::Cut,
            ending => ending,
        };
        Ok(Streamed { events, ending })
    }

    fn walk(&mut self, feed: impl FnOnce(&mut Payloads, &mut dyn FnMut(&str))) {
        let Self { payloads, assembly, kept, ending, over, damaged, .. } = self;
        feed(payloads, &mut |payload| {
            let Some(taken) = take(assembly, payload) else {
                *damaged = true;
                return;
            };
            *kept = kept.saturating_add(taken.kept);
            *over |= taken.over;
            match taken.ending {
                // An error stays an error, whatever follows it.
                Some(new) if !matches!(ending, Ending::Failed(_)) => *ending = new,
                _ => {}
            }
        });
        self.overflowed = self.kept.saturating_add(self.payloads.held()) > self.limit;
    }
}

/// What one payload did.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// How many bytes more are kept.
    pub(crate) kept: usize,
    /// How the stream stands now, if the payload says.
    ending: Option<Ending>,
    /// Whether nothing of the answer can follow it.
    pub(crate) over: bool,
}

impl Taken {
    fn kept(kept: usize) -> Self {
        Self { kept, ..Self::default() }
    }

    fn ending(ending: Ending) -> Self {
        Self::default().and(ending)
    }

    /// The last word.
    fn and(self, ending: Ending) -> Self {
        Self { ending: Some(ending), over: true, ..self }
    }

    /// As good as the last word, but more may follow.
    fn but(self, ending: Ending) -> Self {
        Self { ending: Some(ending), ..self }
    }
}

/// The answer so far.
#[derive(Debug)]
pub(crate) enum Assembly {
    Chat(openai_chat::Chat),
    Responses(openai_responses::Responses),
    Anthropic(anthropic::Anthropic),
}

impl Assembly {
    /// Nothing yet.
    pub(crate) fn new(format: Format) -> Self {
        match format {
            Format::OpenaiChat => Self::Chat(openai_chat::Chat::default()),
            Format::OpenaiResponses => Self::Responses(openai_responses::Responses::default()),
            Format::Anthropic => Self::Anthropic(anthropic::Anthropic::default()),
        }
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &Json<'_>) -> Taken {
        match self {
            Self::Chat(chat) => chat.take(event),
            Self::Responses(responses) => responses.take(event),
            Self::Anthropic(anthropic) => anthropic.take(event),
        }
    }

    /// The response in one piece; `None` if none was ever begun.
    pub(crate) fn assembled(self) -> Option<String> {
        match self {
            Self::Chat(chat) => chat.assembled(),
            Self::Responses(responses) => responses.assembled(),
            Self::Anthropic(anthropic) => anthropic.assembled(),
        }
    }
}

/// What a payload did; `None` if it is no JSON, so that the answer lacks it.
fn take(assembly: &mut Assembly, payload: &str) -> Option<Taken> {
    match (payload.trim(), &*assembly) {
        ("[DONE]", Assembly::Chat(_)) => return Some(Taken::ending(Ending::Complete)),
        ("[DONE]" | "", _) => return Some(Taken::default()),
        _ => {}
    }
    let event = Json::parse(payload, "a streamed event").ok()?;
    Some(assembly.take(&event))
}
