//! The gateway's own copy of an answer, read while the answer itself is passed on.

use bytes::Bytes;
use epitome::{
    core::{Event, Fact},
    recorder::Ending,
    wire::{self, Format, StreamDecoder},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    expand::{Coding, ExpandError, Expander, expand},
    passage::Said,
};

/// Most bytes of an answer that are kept.
const LARGEST: usize = StreamDecoder::DEFAULT_LIMIT;

/// A copy of an answer, as far as it has come.
#[derive(Debug)]
pub(super) struct AnswerCopy {
    format: Format,
    coding: Coding,
    reading: Reading,
}

/// Way in which the copy is read.
enum Reading {
    /// Piece by piece, for streams.
    Flowing(Box<Flow>),
    /// At the end, when all of it has come. The pieces are shared with the answer that is passed on.
    Kept { kind: Kind, pieces: Vec<Bytes>, size: usize },
    /// Not at all, because the provider refused the request: the body is no answer.
    Refused,
    /// Not at all, because it cannot be read.
    Damaged,
}

/// A stream that is read as it comes.
struct Flow {
    expander: Expander,
    decoder: StreamDecoder,
}

/// Kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A stream of events.
    Stream,
    /// One piece of JSON.
    Whole,
}

/// The result of reading a copy.
#[derive(Debug)]
pub(super) struct Read {
    /// The answer as far as it came, and its usage.
    pub(super) events: Vec<Event>,
    /// Ending of the answer, as far as the answer itself shows it.
    pub(super) ending: Ending,
    /// True if all of it could be read.
    pub(super) is_readable: bool,
}

impl Read {
    /// Facts that the answer states about itself.
    pub(super) fn said(&self) -> Said {
        let mut said = Said::default();
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
        let coding = Coding::of(headers);
        let kind = if is_streamed(headers) { Kind::Stream } else { Kind::Whole };
        let reading = match kind {
            _ if !status.is_success() => Reading::Refused,
            Kind::Stream if coding.flows() => Reading::Flowing(Box::new(Flow {
                expander: Expander::new(coding, LARGEST),
                decoder: StreamDecoder::new(format),
            })),
            kind => Reading::Kept { kind, pieces: Vec::new(), size: 0 },
        };
        Self { format, coding, reading }
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &Bytes) {
        match &mut self.reading {
            // Bytes that are not compressed are read without being copied.
            Reading::Flowing(flow) if self.coding == Coding::Identity => flow.decoder.push(bytes),
            Reading::Flowing(flow) => match flow.expander.push(bytes) {
                Ok(expanded) => flow.decoder.push(&expanded),
                Err(_) => self.reading = Reading::Damaged,
            },
            Reading::Kept { pieces, size, .. } => {
                *size += bytes.len();
                pieces.push(bytes.clone());
                if *size > LARGEST {
                    self.reading = Reading::Damaged;
                }
            }
            Reading::Refused | Reading::Damaged => {}
        }
    }

    /// Returns true if the answer is complete, though more bytes may follow.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.reading, Reading::Flowing(flow) if flow.decoder.is_over())
    }

    /// Number of bytes to read when the answer is complete, as far as that is known before.
    pub(super) fn expected_work(&self) -> usize {
        match &self.reading {
            Reading::Flowing(flow) => flow.decoder.kept(),
            Reading::Kept { size, .. } if self.coding == Coding::Identity => *size,
            // The expanded size of compressed bytes is unknown.
            Reading::Kept { .. } => usize::MAX,
            Reading::Refused | Reading::Damaged => 0,
        }
    }

    /// Reads the copied bytes. This may take its time.
    pub(super) fn read(self) -> Read {
        let unreadable = || Read { events: Vec::new(), ending: Ending::Cut, is_readable: false };
        match self.reading {
            Reading::Flowing(flow) => streamed(flow.decoder),
            Reading::Kept { kind, pieces, .. } => {
                let Ok(bytes) = expanded(self.coding, pieces) else { return unreadable() };
                match kind {
                    Kind::Stream => {
                        let mut decoder = StreamDecoder::new(self.format);
                        decoder.push(&bytes);
                        streamed(decoder)
                    }
                    Kind::Whole => whole(self.format, &bytes),
                }
            }
            Reading::Refused => Read { events: Vec::new(), ending: Ending::Refused, is_readable: true },
            Reading::Damaged => unreadable(),
        }
    }
}

/// Returns true if the answer under these headers is a stream of events.
pub(super) fn is_streamed(headers: &HeaderMap) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.get(..KIND.len()).is_some_and(|start| start.eq_ignore_ascii_case(KIND))
}

fn expanded(coding: Coding, mut pieces: Vec<Bytes>) -> Result<Bytes, ExpandError> {
    let joined = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
    if coding == Coding::Identity { Ok(joined) } else { expand(coding, &joined, LARGEST).map(Bytes::from) }
}

fn streamed(decoder: StreamDecoder) -> Read {
    let Ok(streamed) = decoder.finish() else {
        return Read { events: Vec::new(), ending: Ending::Cut, is_readable: false };
    };
    let ending = match streamed.ending {
        wire::Ending::Complete => Ending::Complete,
        wire::Ending::Cut => Ending::Cut,
        wire::Ending::Failed(_) => Ending::Refused,
    };
    Read { events: streamed.events, ending, is_readable: true }
}

fn whole(format: Format, bytes: &[u8]) -> Read {
    let decoded = str::from_utf8(bytes).ok().map(|json| format.decode_response(json));
    match decoded {
        Some(Ok(events)) => Read { events, ending: Ending::Complete, is_readable: true },
        Some(Err(wire::WireError::NoAnswer { .. })) => {
            Read { events: Vec::new(), ending: Ending::Refused, is_readable: true }
        }
        Some(Err(_)) | None => Read { events: Vec::new(), ending: Ending::Cut, is_readable: false },
    }
}

impl std::fmt::Debug for Reading {
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
    fn check(mut copy: AnswerCopy, pieces: &[&[u8]], text: &str, ending: &str) -> Read {
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
        let said = read.said();
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
