//! Server-sent events with the bytes they came with: cut anywhere on their way in, whole on their way out.

use memchr::memchr2;

use crate::sse::field;

/// Splits a stream into events.
#[derive(Debug, Default)]
pub(crate) struct SseSplitter {
    /// The event that has begun.
    event: Vec<u8>,
    /// Start of its newest line.
    line: usize,
    /// True if a carriage return came last, so that a line feed now belongs to it.
    returned: bool,
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SsePiece<'b> {
    /// An event, to the end of its empty line.
    Event(&'b [u8]),
    /// A line feed that still belongs to the event before.
    Tail(&'b [u8]),
}

impl SseSplitter {
    /// Takes the next bytes and passes every completed piece to `see`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], see: &mut dyn FnMut(SsePiece<'_>)) {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.returned) && first == b'\n' {
                if self.event.is_empty() {
                    see(SsePiece::Tail(&bytes[..1]));
                } else {
                    self.event.push(first);
                    self.line = self.event.len();
                }
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.event.extend_from_slice(bytes);
                return;
            };
            let ending = match (bytes[end], bytes.get(end + 1)) {
                (b'\r', Some(b'\n')) => 2,
                (b'\r', None) => {
                    self.returned = true;
                    1
                }
                _ => 1,
            };
            let is_blank = end == 0 && self.line == self.event.len();
            let (taken, rest) = bytes.split_at(end + ending);
            self.event.extend_from_slice(taken);
            self.line = self.event.len();
            if is_blank {
                see(SsePiece::Event(&self.event));
                self.event.clear();
                self.line = 0;
            }
            bytes = rest;
        }
    }

    /// Takes the bytes of an event that was begun and not ended.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.line = 0;
        self.returned = false;
        std::mem::take(&mut self.event)
    }

    /// Number of bytes held.
    pub(crate) fn held(&self) -> usize {
        self.event.len()
    }
}

/// The payload of an event; `None` if it has none.
pub(crate) fn payload(event: &[u8]) -> Option<String> {
    let mut payload: Option<Vec<u8>> = None;
    for (line, _) in lines(event) {
        if let Some(("data", value)) = field(line) {
            match &mut payload {
                Some(payload) => {
                    payload.push(b'\n');
                    payload.extend_from_slice(value);
                }
                None => payload = Some(value.to_vec()),
            }
        }
    }
    payload.map(|payload| String::from_utf8_lossy(&payload).into_owned())
}

/// Writes the event with another payload.
pub(crate) fn with_payload(event: &[u8], payload: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.len() + 32);
    let mut is_written = false;
    for (line, ending) in lines(event) {
        if !matches!(field(line), Some(("data", _))) {
            out.extend_from_slice(line);
            out.extend_from_slice(ending);
        } else if !std::mem::replace(&mut is_written, true) {
            for part in payload.lines() {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(part.as_bytes());
                out.extend_from_slice(if ending.is_empty() { b"\n" } else { ending });
            }
        }
    }
    out
}

/// Writes an event of our own.
pub(crate) fn event(name: Option<&str>, payload: &str) -> Vec<u8> {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {payload}\n\n").into_bytes()
}

/// The lines of an event, each with its line ending.
fn lines(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let end = memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
        let ending = match bytes.get(end..end + 2) {
            Some(b"\r\n") => 2,
            _ => usize::from(end < bytes.len()),
        };
        let (line, rest) = bytes.split_at(end);
        let (ending, rest) = rest.split_at(ending);
        bytes = rest;
        Some((line, ending))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sse::SsePayloads;

    fn split(chunks: &[&[u8]]) -> (Vec<u8>, Vec<String>) {
        let (mut frames, mut passed, mut payloads) = (SseSplitter::default(), Vec::new(), Vec::new());
        for chunk in chunks {
            frames.push(chunk, &mut |piece| match piece {
                SsePiece::Event(event) => {
                    passed.extend_from_slice(event);
                    payloads.extend(payload(event));
                }
                SsePiece::Tail(tail) => passed.extend_from_slice(tail),
            });
        }
        let rest = frames.rest();
        payloads.extend(payload(&rest));
        passed.extend(rest);
        (passed, payloads)
    }

    proptest! {
        #[test]
        fn every_byte_passes_and_the_payloads_are_those_of_the_decoder(
            stream in "(data: [aé😀]{0,3}|:c|event: e|\r\n|\n|\r){0,30}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (passed, payloads) = split(&chunks);
            prop_assert_eq!(&passed, bytes);
            let (mut decoder, mut expect) = (SsePayloads::default(), Vec::new());
            let mut see = |payload: &str| expect.push(payload.to_owned());
            decoder.push(bytes, &mut see);
            decoder.finish(&mut see);
            prop_assert_eq!(payloads, expect);
        }
    }

    #[test]
    fn another_payload_leaves_the_rest_of_an_event_as_it_is() {
        let check = |event: &str, payload: &str, expect: &str| {
            assert_eq!(String::from_utf8(with_payload(event.as_bytes(), payload)).unwrap(), expect);
        };
        check("event: x\r\ndata:{}\r\nid: 7\r\n\r\n", "[1]", "event: x\r\ndata: [1]\r\nid: 7\r\n\r\n");
        check("data: {\ndata: }\n\n", "{\n\"a\":1}", "data: {\ndata: \"a\":1}\n\n");
        check("data: {}", "[]", "data: []\n");
    }
}
