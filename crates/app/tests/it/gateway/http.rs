//! Just enough of HTTP/1.1 to see every byte of it.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long a test waits before it gives up: a bound on a broken run, never a measure.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A message as it came over the wire.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The request line or the status line.
    pub(super) line: String,
    /// The headers, as they were written.
    pub(super) headers: Vec<(String, String)>,
    /// The body, without the marks of its chunks.
    pub(super) body: Vec<u8>,
    /// How the body ended.
    pub(super) end: End,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// After the length that was told.
    Length,
    /// With its last chunk.
    Chunks,
    /// It did not: the connection broke.
    Broken,
}

impl Message {
    /// The values of a header.
    pub(super) fn header(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The status of an answer.
    pub(super) fn status(&self) -> u16 {
        let status = self.line.split(' ').nth(1).expect("a status line");
        status.parse().expect("a status")
    }

    /// The body as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The same without what belongs to one connection only. Headers of one name stand together: between those of different
    /// names the order means nothing (RFC 9110, 5.3).
    pub(super) fn end_to_end(mut self) -> Self {
        const OF_CONNECTION: [&str; 5] = ["host", "connection", "keep-alive", "transfer-encoding", "te"];
        self.headers.retain(|(name, _)| !OF_CONNECTION.contains(&name.to_ascii_lowercase().as_str()));
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        self.headers.sort_by_key(|(name, _)| names.iter().position(|first| name.eq_ignore_ascii_case(first)));
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {:#?}", self.line, self.headers)?;
        write!(f, "{} ({:?})", self.text(), self.end)
    }
}

/// A connection that messages are read from.
pub(super) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(super) fn to(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("somebody listens"))
    }

    pub(super) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, read: Vec::new() }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        // Whoever does not take all of it has said why.
        let _ = self.try_send(bytes);
    }

    pub(super) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads until `marker` has come; what came before and with it.
    pub(super) fn until(&mut self, marker: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read.windows(marker.len()).position(|window| window == marker) {
                return Some(self.read.drain(..at + marker.len()).collect());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Whether the other end has closed the connection, after what was not read yet.
    pub(super) fn is_closed(&mut self) -> bool {
        while self.more() {}
        true
    }

    /// A request, or nothing if the other end hung up.
    pub(super) fn request(&mut self) -> Option<Message> {
        let (line, headers) = self.head()?;
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("expect")) {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let (body, end) = self.body(&headers);
        Some(Message { line, headers, body, end })
    }

    /// An answer to a request with a body or without.
    pub(super) fn answer(&mut self) -> Message {
        self.answer_if_any().expect("an answer")
    }

    /// An answer as far as it comes, if its head does.
    pub(super) fn answer_if_any(&mut self) -> Option<Message> {
        let (line, headers) = self.head()?;
        let (body, end) = self.body(&headers);
        Some(Message { line, headers, body, end })
    }

    /// An answer that has no body, whatever its headers say.
    pub(super) fn bare_answer(&mut self) -> Message {
        let (line, headers) = self.head().expect("an answer");
        Message { line, headers, body: Vec::new(), end: End::Length }
    }

    fn head(&mut self) -> Option<(String, Vec<(String, String)>)> {
        let head = String::from_utf8(self.until(b"\r\n\r\n")?).expect("heads are text");
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next().expect("a first line").to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_owned(), value.trim().to_owned())
        };
        Some((line, lines.map(header).collect()))
    }

    fn body(&mut self, headers: &[(String, String)]) -> (Vec<u8>, End) {
        let value = |key: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        if value("transfer-encoding").is_some() {
            return self.chunks();
        }
        let length = value("content-length").map_or(0, |(_, length)| length.parse().expect("a length"));
        while self.read.len() < length {
            if !self.more() {
                return (std::mem::take(&mut self.read), End::Broken);
            }
        }
        (self.read.drain(..length).collect(), End::Length)
    }

    fn chunks(&mut self) -> (Vec<u8>, End) {
        let mut body = Vec::new();
        loop {
            let Some(chunk) = self.chunk() else { return (body, End::Broken) };
            if chunk.is_empty() {
                return (body, End::Chunks);
            }
            body.extend(chunk);
        }
    }

    /// The next chunk; an empty one is the last.
    pub(super) fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = String::from_utf8(self.until(b"\r\n")?).expect("sizes are text");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        while self.read.len() < size + 2 {
            if !self.more() {
                return None;
            }
        }
        let chunk = self.read.drain(..size).collect();
        self.read.drain(..2);
        Some(chunk)
    }

    fn more(&mut self) -> bool {
        let mut some = [0; 16 << 10];
        match self.stream.read(&mut some) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend_from_slice(&some[..count]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came in time: {error}"),
        }
    }
}

/// Bytes in chunks of `size`.
pub(super) fn chunked(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(size) {
        out.extend(format!("{:x}\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
    }
    out.extend(b"0\r\n\r\n");
    out
}
