//! The two ends of the road, played: a provider that follows a script, and the gateway's binary before it.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener},
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use super::{
    super::harness::{Bench, text},
    http::{End, Message, PATIENCE, Wire},
};

/// What a provider does with a request.
pub(super) enum Step {
    /// It sends these bytes.
    Send(Vec<u8>),
    /// It waits until it is told to go on.
    Wait(Receiver<()>),
    /// It waits until the other end hangs up, and says so.
    Watch(Sender<()>),
    /// It hangs up.
    Hang,
}

/// A provider that follows a script.
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    scripts: Sender<Vec<Step>>,
    seen: Mutex<Receiver<Message>>,
}

impl Provider {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (scripts, played) = mpsc::channel::<Vec<Step>>();
        let (tell, seen) = mpsc::channel();
        let played = Arc::new(Mutex::new(played));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (played, tell) = (Arc::clone(&played), tell.clone());
                thread::spawn(move || converse(Wire::over(stream.expect("a connection")), &played, &tell));
            }
        });
        Self { address, scripts, seen: Mutex::new(seen) }
    }

    /// Does this with the next request.
    pub(super) fn plays(&self, steps: Vec<Step>) {
        self.scripts.send(steps).expect("somebody plays");
    }

    /// Answers the next request with these bytes.
    pub(super) fn answers(&self, bytes: impl Into<Vec<u8>>) {
        self.plays(vec![Step::Send(bytes.into())]);
    }

    /// The next request that came.
    pub(super) fn saw(&self) -> Message {
        self.seen.lock().expect("no panic").recv_timeout(PATIENCE).expect("a request")
    }

    /// Whether no request came beside those that were looked at.
    pub(super) fn saw_nothing(&self) -> bool {
        self.seen.lock().expect("no panic").try_recv().is_err()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn converse(mut wire: Wire, scripts: &Mutex<Receiver<Vec<Step>>>, tell: &Sender<Message>) {
    while let Some(request) = wire.request() {
        if request.end == End::Broken || tell.send(request).is_err() {
            return;
        }
        let script = scripts.lock().expect("no panic").recv_timeout(PATIENCE).expect("a script");
        for step in script {
            match step {
                Step::Send(bytes) => {
                    if wire.try_send(&bytes).is_err() {
                        return;
                    }
                }
                Step::Wait(go) => drop(go.recv_timeout(PATIENCE)),
                Step::Watch(tell) => {
                    wire.is_closed();
                    let _ = tell.send(());
                    return;
                }
                Step::Hang => return,
            }
        }
    }
}

/// The gateway's binary at work.
pub(super) struct Gateway {
    pub(super) bench: Bench,
    pub(super) address: SocketAddr,
    pub(super) child: Child,
}

impl Gateway {
    /// In `mode` before `provider`.
    pub(super) fn before(provider: &Provider, mode: &str) -> Self {
        Self::with(provider, &["--mode", mode], "")
    }

    /// Before `provider`, with these flags and what a file says beside.
    pub(super) fn with(provider: &Provider, flags: &[&str], file: &str) -> Self {
        let url = provider.url();
        Self::alone(&[&["--openai-upstream", &url, "--anthropic-upstream", &url], flags].concat(), file)
    }

    /// With these flags and what a file says.
    pub(super) fn alone(flags: &[&str], file: &str) -> Self {
        let bench = Bench::new();
        let config = bench.write("gateway.toml", file);
        let log = File::create(bench.path("log")).expect("a writable folder");
        let mut command = bench.command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--config", text(&config)]);
        command.args(flags).envs([("ANNA_TOKEN", "t-anna"), ("PROVIDER_KEY", "sk-configured")]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            panic!("no address in {line:?}; it said: {}", read(&bench));
        };
        Self { bench, address, child }
    }

    /// What it logged so far.
    pub(super) fn log(&self) -> String {
        read(&self.bench)
    }

    /// Sends a request and reads the answer.
    pub(super) fn ask(&self, request: &str) -> Message {
        let mut wire = Wire::to(self.address);
        wire.send(addressed(request, self.address).as_bytes());
        if request.starts_with("HEAD") { wire.bare_answer() } else { wire.answer() }
    }

    /// Tells it to stop.
    pub(super) fn terminate(&self) {
        let id = self.child.id().to_string();
        let told = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(told.expect("kill runs").success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(bench: &Bench) -> String {
    let mut log = String::new();
    let mut file = File::open(bench.path("log")).expect("a log");
    file.read_to_string(&mut log).expect("UTF-8");
    log
}

/// A request whose `HOST` is `address`.
pub(super) fn addressed(request: &str, address: SocketAddr) -> String {
    request.replace("HOST", &address.to_string())
}

/// A request with a body.
pub(super) fn post(path: &str, headers: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: HOST\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A request without one.
pub(super) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n{headers}\r\n")
}

/// An answer with a body.
pub(super) fn ok(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}
