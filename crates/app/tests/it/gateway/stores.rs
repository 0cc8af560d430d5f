//! A store that fails: requests are forwarded and it is said that they were not recorded, or they are refused, as
//! configured; and when the store is well again, so is the gateway.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc},
};

use epitome::store::{StoreLocation, StoreOptions, open_store};
use rusqlite::Connection;

use super::{
    super::harness::{Bench, text},
    http::{End, Message},
    played::{Gateway, Provider, RECORDING, Step, eventually, get},
    recorded::Recorded,
    talk::{Talk, said, told},
};

/// A gateway that forwards what it cannot record goes on through the time in which `store` fails, and mends by itself.
fn check_open(gateway: &Gateway, provider: &Provider, store: &mut dyn Failing, says: &str) {
    let recorded = store.recorded();
    let mut talk = Talk::nameless();
    store.fails();
    provider.answers(said("first"));
    assert_eq!(talk.goes_on(gateway, &long("one")), "first");
    assert!(provider.saw().text().contains("one"));
    let missed = |metrics: &str| metrics.contains("epitome_unrecorded_total{reason=\"store\"}");
    eventually("what was missed is counted", || missed(&gateway.metrics()));
    let ready = gateway.ask(&get("/readyz", ""));
    assert_eq!((ready.status(), ready.text().contains("not recorded")), (503, true), "{}", ready.text());
    assert_eq!(gateway.ask(&get("/healthz", "")).status(), 200);
    let log = gateway.log();
    assert!(log.contains("\"not recorded\"") && log.contains(says), "{log}");
    assert!(recorded.sessions().is_empty());

    store.mends();
    // Whoever asks before sending anything is told so, too.
    eventually("it is ready again", || gateway.ask(&get("/readyz", "")).status() == 200);
    provider.answers(said("second"));
    assert_eq!(talk.goes_on(gateway, "two"), "second");
    assert_eq!(gateway.ask(&get("/readyz", "")).status(), 200);
    // The client told it again, so nothing is lost.
    let recorded = store.recorded();
    let thread = recorded.threads().remove(0).id;
    assert_eq!(recorded.story(thread), [&long("one"), "first", "two", "second"]);
    recorded.check_health();
}

/// A gateway that records everything refuses, in the time in which `store` fails, and nothing gets through.
fn check_closed(gateway: &Gateway, provider: &Provider, store: &mut dyn Failing) {
    let mut talk = Talk::nameless();
    talk.says(&long("one"));
    store.fails();
    check_refused(&talk.asks(gateway).answer());
    assert!(provider.saw_nothing());
    assert_eq!(gateway.ask(&get("/readyz", "")).status(), 503);
    store.mends();
    provider.answers(said("first"));
    let answer = talk.asks(gateway).answer();
    assert_eq!(told(&answer).as_deref(), Some("first"), "{answer:?}");
    let recorded = store.recorded();
    let thread = recorded.threads().remove(0).id;
    assert_eq!(recorded.story(thread), [&long("one"), "first"]);
    eventually("it is ready again", || gateway.ask(&get("/readyz", "")).status() == 200);
}

#[track_caller]
fn check_refused(answer: &Message) {
    assert_eq!((answer.status(), answer.header("x-epitome-error")), (503, vec!["unrecorded"]), "{answer:?}");
    assert!(answer.text().contains("could not record it"), "{answer:?}");
}

/// Words that need pages of their own.
fn long(words: &str) -> String {
    words.repeat(100_000)
}

/// A store that can be made to fail.
pub(super) trait Failing {
    fn fails(&mut self);
    fn mends(&mut self);
    fn recorded(&self) -> Recorded;
}

/// A store that another process holds for longer than anybody waits.
pub(super) struct Held {
    pub(super) bench: Arc<Bench>,
    pub(super) by: Option<Connection>,
}

impl Failing for Held {
    fn fails(&mut self) {
        let connection = Connection::open(self.bench.path("log.db")).expect("a database");
        connection.execute_batch("BEGIN EXCLUSIVE").expect("nobody else holds it");
        self.by = Some(connection);
    }

    fn mends(&mut self) {
        self.by = None;
    }

    fn recorded(&self) -> Recorded {
        Recorded::on(&self.bench)
    }
}

#[test]
fn a_store_that_another_process_holds_stops_nothing_that_need_not_be_recorded() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
        check_open(&gateway, &provider, &mut store, "is locked by another process");
        assert!(gateway.log().contains("recorded again"), "{}", gateway.log());
    }
}

#[test]
fn a_store_that_another_process_holds_stops_what_must_be_recorded() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::with(&provider, &["--fail-closed", "--mode", mode], "");
        let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
        check_closed(&gateway, &provider, &mut store);
    }
}

#[test]
fn a_compaction_that_is_asked_for_reaches_no_provider_while_the_store_fails() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "compact"], "[compact]\ncommand = \"/compact\"\n");
    let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
    store.fails();
    let mut talk = Talk::nameless();
    talk.says("/compact");
    let answer = talk.asks(&gateway).answer();
    let words = told(&answer).expect("an answer");
    assert!(words.contains("perhaps nothing was compacted"), "{answer:?}");
    assert_eq!(answer.header("x-epitome"), ["left=answered"]);
    talk.heard(&words);
    // What only mentions it is meant for the model.
    provider.answers(said("It makes things smaller."));
    talk.goes_on(&gateway, "What does /compact do?");
    assert!(provider.saw().text().contains("What does"));
    assert!(provider.saw_nothing());
    store.mends();
}

/// An answer that ends while `store` is held.
fn answered_while_held(gateway: &Gateway, provider: &Provider, talk: &Talk) -> Message {
    let (go, wait) = mpsc::channel();
    provider.plays(vec![Step::Wait(wait), Step::Send(said("first").into())]);
    let mut wire = talk.asks(gateway);
    provider.saw();
    let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
    eventually("the request is recorded", || !store.recorded().sessions().is_empty());
    store.fails();
    go.send(()).expect("the provider waits");
    let answer = wire.answer();
    let missed = "epitome_unrecorded_total{reason=\"store\"} 1\n";
    eventually("what was missed is counted", || gateway.metrics().contains(missed));
    store.mends();
    answer
}

#[test]
fn an_answer_that_need_not_be_recorded_is_told_and_its_session_goes_on() {
    for mode in RECORDING {
        for mut talk in [Talk::nameless(), Talk::called("s-1")] {
            let provider = Provider::new();
            let gateway = Gateway::before(&provider, mode);
            talk.says("one");
            let answer = answered_while_held(&gateway, &provider, &talk);
            talk.heard(&told(&answer).expect("a whole answer"));
            provider.answers(said("second"));
            talk.goes_on(&gateway, "two");
            let recorded = Recorded::on(&gateway.bench);
            let session = recorded.session();
            let thread = recorded.threads().remove(0).id;
            assert_eq!(
                (session.threads, recorded.story(thread).join(" ")),
                (1, "one first two second".into())
            );
        }
    }
}

#[test]
fn an_answer_that_must_be_recorded_and_is_not_breaks_off_before_its_end() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::with(&provider, &["--fail-closed", "--mode", mode], "");
        let mut talk = Talk::nameless();
        talk.says("one");
        let answer = answered_while_held(&gateway, &provider, &talk);
        assert_eq!(answer.end, End::Broken, "{answer:?}");
        provider.answers(said("second"));
        let again = talk.asks(&gateway).answer();
        assert_eq!(told(&again).as_deref(), Some("second"));
        let recorded = Recorded::on(&gateway.bench);
        let thread = recorded.threads().remove(0).id;
        assert_eq!((recorded.session().threads, recorded.story(thread).join(" ")), (1, "one second".into()));
    }
}

/// A store on a disk of its own, which something else fills up.
struct Crammed {
    disk: PathBuf,
}

impl Crammed {
    /// Only the superuser can make one.
    fn on(bench: &Bench) -> Option<Self> {
        let disk = bench.path("disk");
        fs::create_dir(&disk).expect("a writable folder");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none", text(&disk)]).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self { disk });
        }
        eprintln!("not tried: a full disk can only be made by the superuser");
        None
    }

    fn database(&self) -> PathBuf {
        self.disk.join("log.db")
    }

    fn ballast(&self) -> PathBuf {
        self.disk.join("ballast")
    }
}

impl Failing for Crammed {
    fn fails(&mut self) {
        let mut ballast = fs::File::create(self.ballast()).expect("there is room");
        let mut size = 1 << 20;
        while size > 0 {
            if ballast.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn mends(&mut self) {
        fs::remove_file(self.ballast()).expect("it is there");
    }

    fn recorded(&self) -> Recorded {
        Recorded::at(&self.database())
    }
}

impl Drop for Crammed {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.disk).status();
    }
}

#[test]
fn a_store_without_room_stops_nothing_that_need_not_be_recorded() {
    for mode in RECORDING {
        let bench = Arc::new(Bench::new());
        let Some(mut store) = Crammed::on(&bench) else { return };
        let provider = Provider::new();
        let gateway =
            Gateway::on(&bench, &provider.url(), &["--db", text(&store.database()), "--mode", mode], "");
        check_open(&gateway, &provider, &mut store, "no space left");
    }
}

#[test]
fn a_store_without_room_stops_what_must_be_recorded() {
    for mode in RECORDING {
        let bench = Arc::new(Bench::new());
        let Some(mut store) = Crammed::on(&bench) else { return };
        let provider = Provider::new();
        let path = store.database();
        let flags = ["--db", text(&path), "--fail-closed", "--mode", mode];
        let gateway = Gateway::on(&bench, &provider.url(), &flags, "");
        check_closed(&gateway, &provider, &mut store);
    }
}

/// A store whose file nobody may write. What is open stays open, so it is so before the gateway starts.
struct Sealed {
    path: PathBuf,
}

impl Sealed {
    fn on(bench: &Bench) -> Option<Self> {
        let path = bench.path("log.db");
        drop(
            open_store(&StoreLocation::named(&path).expect("a path"), StoreOptions::default())
                .expect("a new database"),
        );
        let sealed = Self { path };
        sealed.seal(0o444, "+i");
        if OpenOptions::new().write(true).open(&sealed.path).is_ok() {
            eprintln!("not tried: the superuser may write everything, and `chattr +i` does not work here");
            return None;
        }
        Some(sealed)
    }

    fn seal(&self, mode: u32, flag: &str) {
        let permit = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        if flag == "+i" {
            permit(&self.path).expect("it is ours");
        }
        // Whoever is not the superuser has no need of it.
        let _ = Command::new("chattr").arg(flag).arg(&self.path).output();
        if flag == "-i" {
            permit(&self.path).expect("it is ours");
        }
    }
}

impl Failing for Sealed {
    fn fails(&mut self) {}

    fn mends(&mut self) {
        self.seal(0o600, "-i");
    }

    fn recorded(&self) -> Recorded {
        Recorded::at(&self.path)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.seal(0o600, "-i");
    }
}

#[test]
fn a_store_that_nobody_may_write_stops_nothing_that_need_not_be_recorded() {
    for mode in RECORDING {
        let bench = Arc::new(Bench::new());
        let Some(mut store) = Sealed::on(&bench) else { return };
        let provider = Provider::new();
        let gateway = Gateway::on(&bench, &provider.url(), &["--mode", mode], "");
        check_open(&gateway, &provider, &mut store, "cannot be written");
    }
}

#[test]
fn a_store_that_nobody_may_write_stops_what_must_be_recorded() {
    for mode in RECORDING {
        let bench = Arc::new(Bench::new());
        let Some(mut store) = Sealed::on(&bench) else { return };
        let provider = Provider::new();
        let gateway = Gateway::on(&bench, &provider.url(), &["--fail-closed", "--mode", mode], "");
        check_closed(&gateway, &provider, &mut store);
    }
}
