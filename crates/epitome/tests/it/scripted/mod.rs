//! A server that behaves as badly as a script says, and remembers what it was asked.
//!
//! It speaks just enough HTTP/1.1 to be misunderstood on purpose: a connection a question, closed after the answer. Each
//! connection takes the next behaviour of the script; when that has ended, every answer is a 410, so that a test that asks
//! too often fails with words.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::sleep,
};

/// What the server does with one question.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Status 200 and this body.
    Answer(String),
    /// This status, these headers and this body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// Says nothing for a while, then does something else.
    Delay(Duration, Box<Behaviour>),
    /// Sends the body of an answer a byte at a time, with a pause after each.
    Drip(String, Duration),
    /// Closes the connection without a word.
    Drop,
    /// Promises the whole body and sends the beginning of it.
    CutBody(String, usize),
    /// Sends this many bytes of JSON string.
    Huge(usize),
    /// Points somewhere else.
    Redirect(String),
    /// Repeats the headers it got in the words of an error, with this status.
    EchoHeaders(u16),
}

/// What the server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Method and path.
    pub(crate) line: String,
    /// Headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Seen {
    /// A header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Scripted {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

impl Scripted {
    /// Starts a server on a free port.
    pub(crate) async fn start(script: impl IntoIterator<Item = Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let script: Arc<Mutex<VecDeque<Behaviour>>> = Arc::new(Mutex::new(script.into_iter().collect()));
        let known = seen.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, known) = (script.clone(), known.clone());
                tokio::spawn(async move {
                    // A client that has gone away is part of many a test.
                    let _gone = serve(stream, &script, &known).await;
                });
            }
        });
        Self { address, seen, serving }
    }

    /// A base address, as a person would give it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// What it was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &Mutex<VecDeque<Behaviour>>,
    known: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    let seen = read(&mut stream).await?;
    let ended = || Behaviour::Status(410, Vec::new(), r#"{"error":"the script has ended"}"#.to_owned());
    let mut behaviour = script.lock().unwrap().pop_front().unwrap_or_else(ended);
    known.lock().unwrap().push(seen.clone());
    while let Behaviour::Delay(time, then) = behaviour {
        sleep(time).await;
        behaviour = *then;
    }
    match behaviour {
        Behaviour::Answer(body) => answer(&mut stream, 200, &[], body.len(), body.as_bytes()).await?,
        Behaviour::Status(status, headers, body) => {
            answer(&mut stream, status, &headers, body.len(), body.as_bytes()).await?;
        }
        Behaviour::Drip(body, pause) => {
            answer(&mut stream, 200, &[], body.len(), b"").await?;
            for byte in body.as_bytes() {
                stream.write_all(&[*byte]).await?;
                stream.flush().await?;
                sleep(pause).await;
            }
        }
        Behaviour::Drop => {}
        Behaviour::CutBody(body, length) => {
            answer(&mut stream, 200, &[], body.len(), &body.as_bytes()[..length]).await?;
        }
        Behaviour::Huge(bytes) => {
            answer(&mut stream, 200, &[], bytes, b"").await?;
            let piece = vec![b'x'; 1 << 16];
            for _ in 0..bytes.div_ceil(piece.len()) {
                stream.write_all(&piece).await?;
            }
        }
        Behaviour::Redirect(to) => answer(&mut stream, 307, &[("location", to)], 0, b"").await?,
        Behaviour::EchoHeaders(status) => {
            let message = format!("you sent {:?}", seen.headers);
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            answer(&mut stream, status, &[], body.len(), body.as_bytes()).await?;
        }
        Behaviour::Delay(..) => unreachable!("delays are over"),
    }
    stream.shutdown().await
}

async fn answer(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&'static str, String)],
    length: usize,
    body: &[u8],
) -> std::io::Result<()> {
    let mut head =
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\nconnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let _ = write!(head, "content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

/// Reads one request.
async fn read(stream: &mut TcpStream) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            break;
        }
    }
    Ok(Seen { line, headers, body: String::from_utf8_lossy(&body).into_owned() })
}
