//! The framing of requests, read from the bytes of a connection as they come in.
//!
//! A request that has both `Content-Length` and `Transfer-Encoding` is read as one request by servers that
//! believe the first header, and as another by those that believe the second: the body for one server is the
//! next request for the other. hyper believes the second and drops the first before our code sees it. So the
//! heads are also read here on their way to hyper, and [`FramingFaults`] reports requests whose framing is
//! ambiguous.
//!
//! This module does not decide where a request ends: hyper does, and ends the connection when it refuses a
//! request. Where the bytes can no longer be followed, the next request counts as faulty, because its head is
//! unknown.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A number that no request of a connection has.
const NO_REQUEST: u64 = u64::MAX;

/// The requests of a connection, numbered as they are answered, and the one with ambiguous framing. There is
/// at most one, because what follows it cannot be told from its body.
pub(super) struct FramingFaults {
    answered: AtomicU64,
    faulty: AtomicU64,
}

impl FramingFaults {
    /// Counts the request that is answered next, and returns true if its framing is ambiguous.
    pub(super) fn check_next_request(&self) -> bool {
        // One task reads the head and answers the request, in that order.
        self.answered.fetch_add(1, Ordering::Relaxed) == self.faulty.load(Ordering::Relaxed)
    }
}

/// A connection whose requests are inspected as they are read.
pub(super) struct FramedStream<Io> {
    io: Io,
    reader: HeadReader,
    faults: Arc<FramingFaults>,
}

impl<Io> FramedStream<Io> {
    /// Inspects the heads of requests, of which none is longer than `limit`.
    pub(super) fn new(io: Io, limit: usize) -> (Self, Arc<FramingFaults>) {
        let faults =
            Arc::new(FramingFaults { answered: AtomicU64::new(0), faulty: AtomicU64::new(NO_REQUEST) });
        (Self { io, reader: HeadReader::new(limit), faults: Arc::clone(&faults) }, faults)
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for FramedStream<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, into);
        if let Some(faulty) = into.filled().get(before..).and_then(|bytes| self.reader.read(bytes)) {
            self.faults.faulty.store(faulty, Ordering::Relaxed);
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for FramedStream<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}

/// Finds the heads of requests among the bytes of a connection.
struct HeadReader {
    position: ReadPosition,
    /// Beginning of a head that is not complete yet.
    head: Vec<u8>,
    limit: usize,
    /// Number of heads that are complete.
    heads: u64,
}

/// Position of the next byte in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPosition {
    Head,
    /// In a body, with so many bytes still to come.
    Body(u64),
    /// In the line with the size of a chunk; text behind its digits is ignored.
    ChunkSize {
        size: u64,
        is_read: bool,
    },
    /// In a chunk, with so many bytes still to come, including its line end.
    Chunk(u64),
    /// Behind the last chunk, in a line that is empty so far, or is not. As in hyper, only a line feed behind
    /// a carriage return ends it.
    Trailer {
        is_empty: bool,
        is_after_return: bool,
    },
    /// Unknown: the bytes can no longer be followed.
    Lost,
}

/// Way in which a head says where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadFraming {
    /// By its length in bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// By both, which is ambiguous.
    Both,
    /// In a way that hyper does not accept.
    Unclear,
}

impl HeadReader {
    fn new(limit: usize) -> Self {
        Self { position: ReadPosition::Head, head: Vec::new(), limit, heads: 0 }
    }

    /// Reads on. Returns the number of the request with ambiguous framing, if these bytes show one.
    fn read(&mut self, mut bytes: &[u8]) -> Option<u64> {
        while let Some((first, rest)) = bytes.split_first() {
            (self.position, bytes) = match self.position {
                // Empty lines before a request are ignored.
                ReadPosition::Head if self.head.is_empty() && matches!(first, b'\r' | b'\n') => {
                    (ReadPosition::Head, rest)
                }
                ReadPosition::Head => match self.head(bytes) {
                    (Some(HeadFraming::Length(0)), rest) => (ReadPosition::Head, rest),
                    (Some(HeadFraming::Length(length)), rest) => (ReadPosition::Body(length), rest),
                    (Some(HeadFraming::Chunked), rest) => (CHUNK, rest),
                    (Some(HeadFraming::Both | HeadFraming::Unclear), _) => {
                        self.position = ReadPosition::Lost;
                        return Some(self.heads - 1);
                    }
                    (None, rest) => (
                        if self.head.len() > self.limit { ReadPosition::Lost } else { ReadPosition::Head },
                        rest,
                    ),
                },
                ReadPosition::Body(left) => match skipped(bytes, left) {
                    (0, rest) => (ReadPosition::Head, rest),
                    (left, rest) => (ReadPosition::Body(left), rest),
                },
                ReadPosition::Chunk(left) => match skipped(bytes, left) {
                    (0, rest) => (CHUNK, rest),
                    (left, rest) => (ReadPosition::Chunk(left), rest),
                },
                ReadPosition::ChunkSize { size, is_read } => (after_size(*first, size, is_read), rest),
                ReadPosition::Trailer { is_empty, is_after_return } => match first {
                    b'\n' if is_empty && is_after_return => (ReadPosition::Head, rest),
                    b'\n' if is_after_return => (TRAILER, rest),
                    b'\r' => (ReadPosition::Trailer { is_empty, is_after_return: true }, rest),
                    _ => (ReadPosition::Trailer { is_empty: false, is_after_return: false }, rest),
                },
                ReadPosition::Lost => return None,
            };
            if self.position == ReadPosition::Lost {
                return Some(self.heads);
            }
        }
        None
    }

    /// Reads on in a head. Returns its framing once the head is complete, and the bytes that follow it.
    fn head<'b>(&mut self, bytes: &'b [u8]) -> (Option<HeadFraming>, &'b [u8]) {
        let known = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(self.limit.saturating_sub(known) + 1)]);
        let Some(end) = head_end(&self.head, known.saturating_sub(2)) else { return (None, &[]) };
        self.heads += 1;
        let framing = framing(&self.head[..end]);
        self.head.clear();
        (Some(framing), bytes.get(end - known..).unwrap_or_default())
    }
}

/// Beginning of the line with the size of a chunk.
const CHUNK: ReadPosition = ReadPosition::ChunkSize { size: 0, is_read: false };

/// Beginning of a line behind the last chunk.
const TRAILER: ReadPosition = ReadPosition::Trailer { is_empty: true, is_after_return: false };

/// Finds the end of a head, behind its first empty line, searching from `from` on.
fn head_end(head: &[u8], from: usize) -> Option<usize> {
    let mut ends = head.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'\n');
    ends.find_map(|(at, _)| match head.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn framing(head: &[u8]) -> HeadFraming {
    let (mut length, mut coding) = (None, None);
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = Some(value);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            coding = Some(value);
        }
    }
    match (length, coding) {
        (Some(_), Some(_)) => HeadFraming::Both,
        (None, Some(_)) => HeadFraming::Chunked,
        (None, None) => HeadFraming::Length(0),
        (Some(length), None) => {
            let length = str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            length.map_or(HeadFraming::Unclear, HeadFraming::Length)
        }
    }
}

/// Skips up to `left` bytes. Returns how many are still to come, and the bytes that follow.
fn skipped(bytes: &[u8], left: u64) -> (u64, &[u8]) {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (left - here as u64, &bytes[here..])
}

/// Position behind a byte of the line with the size of a chunk.
fn after_size(byte: u8, size: u64, is_read: bool) -> ReadPosition {
    match byte {
        b'\n' if size == 0 => TRAILER,
        // Each chunk is followed by a line end, which is not part of its size.
        b'\n' => ReadPosition::Chunk(size.saturating_add(2)),
        _ if is_read => ReadPosition::ChunkSize { size, is_read },
        byte => match char::from(byte).to_digit(16) {
            Some(digit) => size.checked_mul(16).map_or(ReadPosition::Lost, |size| ReadPosition::ChunkSize {
                size: size | u64::from(digit),
                is_read: false,
            }),
            None => ReadPosition::ChunkSize { size, is_read: true },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which request is found to have two lengths, however the bytes are cut.
    #[track_caller]
    fn check(bytes: &str, expect: Option<u64>) {
        for size in 1..=bytes.len() {
            let mut reader = HeadReader::new(1_000);
            let found: Vec<u64> =
                bytes.as_bytes().chunks(size).filter_map(|bytes| reader.read(bytes)).collect();
            assert_eq!(found, expect.into_iter().collect::<Vec<_>>(), "in pieces of {size}: {bytes}");
        }
    }

    const BOTH: &str =
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_request_with_a_length_and_chunks_is_found_wherever_it_stands() {
        check(BOTH, Some(0));
        check("POST / HTTP/1.1\nTRANSFER-ENCODING:chunked\ncontent-length: 5\n\n0\r\n\r\n", Some(0));
        for before in [
            "GET / HTTP/1.1\r\n\r\n",
            "\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1A;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nA: b\r\n\r\n",
        ] {
            check(&format!("{before}{BOTH}"), Some(1));
            check(&format!("{before}{before}{BOTH}"), Some(2));
            check(&format!("{before}{before}"), None);
        }
    }

    #[test]
    fn what_stands_in_a_body_is_no_head() {
        let length = BOTH.len();
        check(&format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{BOTH}"), None);
        check(
            &format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{BOTH}\r\n0\r\n\r\n"
            ),
            None,
        );
    }

    #[test]
    fn what_cannot_be_followed_makes_a_request_faulty() {
        check(&format!("POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n{BOTH}"), Some(0));
        check(&format!("POST / HTTP/1.1\r\nX: {}\r\n\r\n{BOTH}", "x".repeat(2_000)), Some(0));
        let huge = "f".repeat(30);
        check(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{huge}\r\n{BOTH}"), Some(1));
    }

    #[test]
    fn a_bare_line_feed_ends_no_line_of_a_trailer() {
        let hidden = "POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        check(&format!("{chunked}A: b\n\r\n{hidden}{BOTH}"), Some(1));
        check(&format!("{chunked}A: b\n\n{hidden}{BOTH}"), Some(1));
    }

    #[test]
    fn the_request_that_has_two_lengths_is_told_from_the_others() {
        let faults = FramingFaults { answered: AtomicU64::new(0), faulty: AtomicU64::new(1) };
        assert_eq!(
            [faults.check_next_request(), faults.check_next_request(), faults.check_next_request()],
            [false, true, false]
        );
    }
}
