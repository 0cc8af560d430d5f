//! The two ends of the road, played: a provider that follows a script, and the gateway's binary before it.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use super::{
    super::harness::{Bench, text},
    http::{End, Message, PATIENCE, Wire},
};

/// What a gateway's environment holds, and nobody may ever see.
pub(super) const SECRETS: [(&str, &str); 3] =
    [("ANNA_TOKEN", "t-anna"), ("BOB_TOKEN", "t-bob"), ("PROVIDER_KEY", "sk-configured")];

/// The modes in which everything is recorded.
pub(super) const RECORDING: [&str; 2] = ["record", "compact"];

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
        if request.end == End::Broken {
            return;
        }
        // Whoever hears of the request may play the next script at once: this one's is taken first, if it is there.
        let ready = scripts.try_lock().ok().and_then(|scripts| scripts.try_recv().ok());
        if tell.send(request).is_err() {
            return;
        }
        let next = || scripts.lock().expect("no panic").recv_timeout(PATIENCE).expect("a script");
        let script = ready.unwrap_or_else(next);
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

/// A provider that knows by itself what to answer, and whom any number of clients may ask at a time.
pub(super) struct Parrot {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Parrot {
    /// Answers a request with the pieces that `answer` gives for it, with a moment between them.
    pub(super) fn new(answer: impl Fn(&Message) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, counted) = (Arc::clone(&answer), Arc::clone(&counted));
                thread::spawn(move || {
                    let mut wire = Wire::over(stream.expect("a connection"));
                    while let Some(request) = wire.request().filter(|request| request.end != End::Broken) {
                        counted.fetch_add(1, Ordering::Relaxed);
                        for piece in answer(&request) {
                            if wire.try_send(&piece).is_err() {
                                return;
                            }
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// How many requests have come.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The gateway's binary at work.
pub(super) struct Gateway {
    pub(super) bench: Arc<Bench>,
    pub(super) address: SocketAddr,
    pub(super) child: Child,
    log: PathBuf,
    config: PathBuf,
}

/// How a gateway is started.
pub(super) struct Setup<'a> {
    /// Where its database is. Several may share it.
    pub(super) bench: &'a Arc<Bench>,
    /// How it logs.
    pub(super) log: &'a str,
    /// Its flags.
    pub(super) flags: &'a [&'a str],
    /// What its file says.
    pub(super) file: &'a str,
    /// What its environment says beside the tokens and the key.
    pub(super) environment: &'a [(&'a str, &'a str)],
}

impl Gateway {
    /// In `mode` before `provider`.
    pub(super) fn before(provider: &Provider, mode: &str) -> Self {
        Self::with(provider, &["--mode", mode], "")
    }

    /// Before `provider`, with these flags and what a file says beside.
    pub(super) fn with(provider: &Provider, flags: &[&str], file: &str) -> Self {
        Self::on(&Arc::new(Bench::new()), &provider.url(), flags, file)
    }

    /// On the database of `bench`, before whoever is at `url`.
    pub(super) fn on(bench: &Arc<Bench>, url: &str, flags: &[&str], file: &str) -> Self {
        let flags = [&["--openai-upstream", url, "--anthropic-upstream", url], flags].concat();
        Self::start(&Setup { bench, log: "json", flags: &flags, file, environment: &[] })
    }

    /// With these flags and what a file says.
    pub(super) fn alone(flags: &[&str], file: &str) -> Self {
        let bench = Arc::new(Bench::new());
        Self::start(&Setup { bench: &bench, log: "json", flags, file, environment: &[] })
    }

    /// As it is told.
    pub(super) fn start(setup: &Setup<'_>) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let bench = Arc::clone(setup.bench);
        let config = bench.write(&format!("gateway-{number}.toml"), setup.file);
        let log = bench.path(&format!("log-{number}"));
        let mut command = bench.command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", setup.log, "--config", text(&config)]);
        command.args(setup.flags).envs(SECRETS).envs(setup.environment.iter().copied());
        let errors = File::create(&log).expect("a writable folder");
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the binary runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            panic!("no address in {line:?}; it said: {}", fs::read_to_string(log).expect("UTF-8"));
        };
        Self { bench, address, child, log, config }
    }

    /// What it logged so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("UTF-8")
    }

    /// Sends a request and reads the answer.
    pub(super) fn ask(&self, request: &str) -> Message {
        self.ask_bytes(addressed(request, self.address).as_bytes(), request.starts_with("HEAD"))
    }

    fn ask_bytes(&self, request: &[u8], is_bare: bool) -> Message {
        let mut wire = Wire::to(self.address);
        wire.send(request);
        if is_bare { wire.bare_answer() } else { wire.answer() }
    }

    /// Sends a request whose body is no text.
    pub(super) fn ask_with(&self, path: &str, headers: &str, body: &[u8]) -> Message {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: HOST\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        self.ask_bytes(&[addressed(&head, self.address).as_bytes(), body].concat(), false)
    }

    /// What it counts.
    pub(super) fn metrics(&self) -> String {
        self.ask(&get("/metrics", "")).text()
    }

    /// Tells it to stop.
    pub(super) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Has it read another configuration.
    pub(super) fn reload(&self, file: &str) {
        fs::write(&self.config, file).expect("a writable folder");
        self.signal("-HUP");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let told = std::process::Command::new("kill").args([name, &id]).status();
        assert!(told.expect("kill runs").success());
    }
}

/// Waits until something holds that nobody tells of: it follows soon, but nobody says when.
#[track_caller]
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let step = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / step.as_millis() {
        if holds() {
            return;
        }
        thread::sleep(step);
    }
    panic!("this never came to hold: {what}");
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
