//! The gateway's own copy of an answer, read while the answer itself is passed on.

use bytes::Bytes;
use epitome::{
    core::{Event, Fact},
    recorder::ExchangeOutcome,
    wire::{self, Format, StreamDecoder},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    decompress::{BodyDecompressor, ContentCoding, DecompressError, expand},
    request_scope::AnswerFacts,
};

/// Most bytes of an answer that are kept.
const MAX_COPY_BYTES: usize = StreamDecoder::DEFAULT_LIMIT;

/// A copy of an answer, as far as it has come.
#[derive(Debug)]
pub(super) struct AnswerCopy {
    format: Format,
    coding: ContentCoding,
    reading: AnswerCopyState,
}

/// Way in which the copy is read.
enum AnswerCopyState {
    /// Piece by piece, for streams.
    Flowing(Box<StreamCopy>),
    /// At the end, when all of it has come. The pieces are shared with the answer that is passed on.
    Kept { kind: CopiedBodyKind, pieces: Vec<Bytes>, size: usize },
    /// Not at all, because the provider refused the request: the body is no answer.
    Refused,
    /// Not at all, because it cannot be read.
    Damaged,
}

/// A stream that is read as it comes.
struct StreamCopy {
    expander: BodyDecompressor,
    decoder: StreamDecoder,
}

/// Kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiedBodyKind {
    /// A stream of events.
    Stream,
    /// One piece of JSON.
    Whole,
}

/// The result of reading a copy.
#[derive(Debug)]
pub(super) struct CopiedAnswer {
    /// The answer as far as it came, and its usage.
    pub(super) events: Vec<Event>,
    /// Ending of the answer, as far as the answer itself shows it.
    pub(super) ending: ExchangeOutcome,
    /// True if all of it could be read.
    pub(super) is_readable: bool,
}

impl CopiedAnswer {
    /// Facts that the answer states about itself.
    pub(super) fn facts(&self) -> AnswerFacts {
        let mut said = AnswerFacts::default();
        for event in &self.events {
            match &event.fact {
                Fact::AssistantSaid { answer, model, .. } => {
                    said.answer = said.answer.or_else(|| answer.clone());
                    said.model = said.model.or_else(|| model.clone());
                }
                Fact::UsageReported { answer, model, usage } => {
                    said.answer = said.answer.or_else(|| answer.clone());
                    said.model = said.model.or_else(|| model.clone());
                    said.usage = Some(*usage);
                }
                _ => {}
            }
        }
        said
    }
}

impl AnswerCopy {
    /// Prepares to copy the answer under this head.
    pub(super) fn new(format: Format, status: StatusCode, headers: &HeaderMap) -> Self {
        let coding = ContentCoding::of(headers);
        let kind = if is_streamed(headers) { CopiedBodyKind::Stream } else { CopiedBodyKind::Whole };
        let reading = match kind {
            _ if !status.is_success() => AnswerCopyState::Refused,
            CopiedBodyKind::Stream if coding.flows() => AnswerCopyState::Flowing(Box::new(StreamCopy {
                expander: BodyDecompressor::new(coding, MAX_COPY_BYTES),
                decoder: StreamDecoder::new(format),
            })),
            kind => AnswerCopyState::Kept { kind, pieces: Vec::new(), size: 0 },
        };
        Self { format, coding, reading }
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &Bytes) {
        match &mut self.reading {
            // Bytes that are not compressed are read without being copied.
            AnswerCopyState::Flowing(flow) if self.coding == ContentCoding::Identity => {
                flow.decoder.push(bytes);
            }
            AnswerCopyState::Flowing(flow) => match flow.expander.push(bytes) {
                Ok(expanded) => flow.decoder.push(&expanded),
                Err(_) => self.reading = AnswerCopyState::Damaged,
            },
            AnswerCopyState::Kept { pieces, size, .. } => {
                *size += bytes.len();
                pieces.push(bytes.clone());
                if *size > MAX_COPY_BYTES {
                    self.reading = AnswerCopyState::Damaged;
                }
            }
            AnswerCopyState::Refused | AnswerCopyState::Damaged => {}
        }
    }

    /// Returns true if the answer is complete, though more bytes may follow.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.reading, AnswerCopyState::Flowing(flow) if flow.decoder.is_over())
    }

    /// Number of bytes to read when the answer is complete, as far as that is known before.
    pub(super) fn expected_work(&self) -> usize {
        match &self.reading {
            AnswerCopyState::Flowing(flow) => flow.decoder.kept(),
            AnswerCopyState::Kept { size, .. } if self.coding == ContentCoding::Identity => *size,
            // The expanded size of compressed bytes is unknown.
            AnswerCopyState::Kept { .. } => usize::MAX,
            AnswerCopyState::Refused | AnswerCopyState::Damaged => 0,
        }
    }

    /// Reads the copied bytes. This may take its time.
    pub(super) fn read(self) -> CopiedAnswer {
        let unreadable =
            || CopiedAnswer { events: Vec::new(), ending: ExchangeOutcome::Cut, is_readable: false };
        match self.reading {
            AnswerCopyState::Flowing(flow) => streamed(flow.decoder),
            AnswerCopyState::Kept { kind, pieces, .. } => {
                let Ok(bytes) = expanded(self.coding, pieces) else { return unreadable() };
                match kind {
                    CopiedBodyKind::Stream => {
                        let mut decoder = StreamDecoder::new(self.format);
                        decoder.push(&bytes);
                        streamed(decoder)
                    }
                    CopiedBodyKind::Whole => whole(self.format, &bytes),
                }
            }
            AnswerCopyState::Refused => {
                CopiedAnswer { events: Vec::new(), ending: ExchangeOutcome::Refused, is_readable: true }
            }
            AnswerCopyState::Damaged => unreadable(),
        }
    }
}

/// Returns true if the answer under these headers is a stream of events.
pub(super) fn is_streamed(headers: &HeaderMap) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.get(..KIND.len()).is_some_and(|start| start.eq_ignore_ascii_case(KIND))
}

fn expanded(coding: ContentCoding, mut pieces: Vec<Bytes>) -> Result<Bytes, DecompressError> {
    let joined = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
    if coding == ContentCoding::Identity {
        Ok(joined)
    } else {
        expand(coding, &joined, MAX_COPY_BYTES).map(Bytes::from)
    }
}

fn streamed(decoder: StreamDecoder) -> CopiedAnswer {
    let Ok(streamed) = decoder.finish() else {
        return CopiedAnswer { events: Vec::new(), ending: ExchangeOutcome::Cut, is_readable: false };
    };
    let ending = match streamed.ending {
        wire::StreamEnding::Complete => ExchangeOutcome::Complete,
        wire::StreamEnding::Cut => ExchangeOutcome::Cut,
        wire::StreamEnding::Failed(_) => ExchangeOutcome::Refused,
    };
    CopiedAnswer { events: streamed.events, ending, is_readable: true }
}

fn whole(format: Format, bytes: &[u8]) -> CopiedAnswer {
    let decoded = str::from_utf8(bytes).ok().map(|json| format.decode_response(json));
    match decoded {
        Some(Ok(events)) => CopiedAnswer { events, ending: ExchangeOutcome::Complete, is_readable: true },
        Some(Err(wire::WireError::NoAnswer { .. })) => {
            CopiedAnswer { events: Vec::new(), ending: ExchangeOutcome::Refused, is_readable: true }
        }
        Some(Err(_)) | None => {
            CopiedAnswer { events: Vec::new(), ending: ExchangeOutcome::Cut, is_readable: false }
        }
    }
}

impl std::fmt::Debug for AnswerCopyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flowing(_) => "Flowing",
            Self::Kept { .. } => "Kept",
            Self::Refused => "Refused",
            Self::Damaged => "Damaged",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const STREAM: &str = "text/event-stream; charset=utf-8";
    const ANSWER: &str = r#"{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},
        "finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    const EVENTS: [&str; 3] = [
        "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    ];

    fn copy(status: u16, headers: &[(&'static str, &'static str)]) -> AnswerCopy {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        AnswerCopy::new(Format::OpenaiChat, StatusCode::from_u16(status).expect("a status"), &map)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("a vector takes all");
        encoder.finish().expect("a vector takes all")
    }

    #[track_caller]
    fn check(mut copy: AnswerCopy, pieces: &[&[u8]], text: &str, ending: &str) -> CopiedAnswer {
        for piece in pieces {
            copy.take(&Bytes::copy_from_slice(piece));
        }
        let read = copy.read();
        let said: String = read.events.iter().map(|event| event.fact.text()).collect();
        assert_eq!((said.as_str(), read.ending.name()), (text, ending));
        read
    }

    #[test]
    fn an_answer_is_read_as_it_came_compressed_or_not() {
        let (head, tail) = ANSWER.split_at(40);
        check(copy(200, &[]), &[head.as_bytes(), tail.as_bytes()], "hi", "complete");
        check(copy(200, &[("content-encoding", "gzip")]), &[&gzip(ANSWER)], "hi", "complete");
        let events = EVENTS.map(str::as_bytes);
        check(copy(200, &[("content-type", STREAM)]), &events, "hi", "complete");
        let packed = gzip(&EVENTS.concat());
        let headers = [("content-type", STREAM), ("content-encoding", "gzip")];
        let read = check(copy(200, &headers), &packed.chunks(9).collect::<Vec<_>>(), "hi", "complete");
        let said = read.facts();
        assert_eq!(said.answer, Some("c".into()));
        assert_eq!(said.model, Some("m".into()));
        assert!(said.usage.is_some());
    }

    #[test]
    fn an_answer_is_over_with_its_last_word_and_not_before() {
        let mut copy = copy(200, &[("content-type", STREAM)]);
        let over = EVENTS.map(|event| {
            copy.take(&Bytes::from_static(event.as_bytes()));
            copy.is_over()
        });
        assert_eq!(over, [false, false, true]);
    }

    #[test]
    fn what_is_no_answer_says_how_it_ended() {
        let broken = EVENTS[0].replace("\"stop\"", "null");
        check(copy(200, &[("content-type", STREAM)]), &[broken.as_bytes()], "hi", "cut");
        check(copy(400, &[]), &[ANSWER.as_bytes()], "", "refused");
        check(copy(302, &[]), &[], "", "refused");
        check(copy(200, &[]), &[br#"{"error":{"message":"no"}}"#], "", "refused");
        let read = check(copy(200, &[]), &[b"<html>"], "", "cut");
        assert!(!read.is_readable);
        let read = check(copy(200, &[("content-encoding", "br")]), &[&[0xff; 40]], "", "cut");
        assert!(!read.is_readable);
    }
}
