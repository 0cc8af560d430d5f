//! A hostile world: each kind of attack with the bound that holds it, in memory or in number, and a gateway that serves on.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    http::{End, Message, Wire, chunked},
    model::{Client, Ends, Says},
    played::{Gateway, Parrot, Provider, RECORDING, Step, addressed, eventually, get, ok, post},
    recorded::Recorded,
    talk::{STREAM, Talk, last, one, piece, said},
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

/// The most memory that a gateway has had, in MiB.
fn peak(gateway: &Gateway) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes / 1024
}

/// Whatever was tried before, the gateway serves and records.
#[track_caller]
fn check_serves(gateway: &Gateway, provider: &Provider) {
    provider.answers(said("still here"));
    let mut talk = Talk::nameless();
    assert_eq!(talk.goes_on(gateway, "are you there?"), "still here");
    provider.saw();
    let recorded = Recorded::on(&gateway.bench);
    let is_there = |story: Vec<String>| story == ["are you there?", "still here"];
    assert!(recorded.threads().iter().any(|thread| is_there(recorded.story(thread.id))));
}

/// 200 MiB of blanks, as brotli writes them.
const BROTLI: &str = "cfffff7ff82540e2b14020f7fe9ffffffff04b00c4610180eefd3fffffffe1970088c32200ddfb7ffeffffc32f0110\
                      870500baf7fffcffff875f02200e0b0074effff9ffff0fbf04401c1600e8defff3ffff1f7e0980382c00d0bdffe7ff\
                      ff3ffc1200715800a07bffcfffff7ff82500e2b00040f7fe9ffffffff04b00c4610180eefd3fffffffe1970088c302\
                      00ddfb7ffeffffc32f0110870500baf7fff9ffff875f02200e0b0074efff00";

/// A few bytes that stand for 200 MiB, in each coding.
fn bombs() -> [(&'static str, Vec<u8>); 3] {
    const BLOCK: usize = 128 << 10;
    let blanks = vec![b' '; BLOCK];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..(200 << 20) / BLOCK {
        gzip.write_all(&blanks).expect("a vector takes all");
    }
    let digits = BROTLI.as_bytes().chunks(2).map(|two| str::from_utf8(two).expect("digits"));
    let brotli = digits.map(|two| u8::from_str_radix(two, 16).expect("a byte")).collect();
    // A frame of blocks that are one blank, repeated: type 1, and the last is marked.
    let mut zstandard = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    let blocks = (200 << 20) / BLOCK;
    for number in 1..=blocks {
        let head = (BLOCK << 3) | (1 << 1) | usize::from(number == blocks);
        zstandard.extend(&head.to_le_bytes()[..3]);
        zstandard.push(b' ');
    }
    [("gzip", gzip.finish().expect("a vector takes all")), ("br", brotli), ("zstd", zstandard)]
}

#[test]
fn bombs_are_let_go_of_as_soon_as_they_are_over_the_limit() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::with(&provider, &["--mode", mode], "[limits]\nbody = \"8MiB\"\n");
        for (count, (coding, bomb)) in bombs().into_iter().enumerate() {
            provider.answers(ok("", "{}"));
            let coded = format!("Content-Encoding: {coding}\r\n");
            assert_eq!(gateway.ask_with("/v1/messages", &coded, &bomb).status(), 200, "{coding}");
            assert_eq!(provider.saw().body, bomb, "{coding}: it passes as it came");
            let counted = |reason: &str, count: usize| {
                gateway
                    .metrics()
                    .contains(&format!("epitome_unrecorded_total{{reason=\"{reason}\"}} {count}\n"))
            };
            eventually("it is counted", || counted("too_large", count + 1));
            for (number, kind) in ["application/json", "text/event-stream"].into_iter().enumerate() {
                let length = bomb.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{coded}Content-Length: {length}\r\n\r\n"
                );
                provider.answers([head.as_bytes(), &bomb].concat());
                let mut talk = Talk::nameless();
                talk.says(&format!("{coding} {kind}"));
                assert_eq!(talk.asks(&gateway).answer().body, bomb, "{coding} {kind}");
                provider.saw();
                eventually("it is counted", || counted("unreadable_answer", 2 * count + number + 1));
            }
        }
        // Answers are expanded up to 64 MiB; six of 200 MiB would be more than a gigabyte.
        assert!(peak(&gateway) < 512, "{mode}: {} MiB", peak(&gateway));
        check_serves(&gateway, &provider);
    }
}

#[test]
fn a_line_of_twenty_megabytes_passes_is_recorded_and_costs_a_few_times_its_size() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        let before = peak(&gateway);
        let long = "all of it in one line ".repeat((20 << 20) / 22);
        // In a request, in an answer that is one piece, and in one line of a stream.
        let mut talk = Talk::nameless();
        provider.answers(said(&long));
        assert_eq!(talk.goes_on(&gateway, &long).len(), long.len());
        provider.saw();
        let mut talk = Talk::nameless().streamed();
        provider.answers([STREAM.as_bytes().to_vec(), piece(&long), last()].concat());
        assert_eq!(talk.goes_on(&gateway, "stream it").len(), long.len());
        provider.saw();
        // No line at all: it never ends, and is let go of.
        let endless = "data: ".to_owned() + &"x".repeat(80 << 20);
        provider.answers([STREAM.as_bytes(), &one(&endless), b"0\r\n\r\n"].concat());
        talk.says("and without an end?");
        let answer = talk.asks(&gateway).answer();
        assert_eq!((answer.body.len(), answer.end), (endless.len(), End::Chunks));
        provider.saw();
        eventually("it is counted", || {
            gateway.metrics().contains("epitome_unrecorded_total{reason=\"unreadable_answer\"} 1\n")
        });
        assert!(peak(&gateway) - before < 1024, "{mode}: {} MiB", peak(&gateway));
        check_serves(&gateway, &provider);
    }
}

#[test]
fn thousands_of_calls_in_one_answer_are_recorded_with_their_results() {
    const CALLS: usize = 3_000;
    let names: Vec<String> = (0..CALLS).map(|number| format!("tool_{number}")).collect();
    let calls: Vec<(&str, Value)> = names.iter().map(|name| (name.as_str(), json!({ "a": 1 }))).collect();
    for mode in RECORDING {
        for (format, is_streamed) in
            [(Format::OpenaiChat, true), (Format::OpenaiResponses, false), (Format::Anthropic, true)]
        {
            let provider = Provider::new();
            let gateway = Gateway::before(&provider, mode);
            let mut client = Client::new(format, is_streamed);
            client.says("call them all");
            let says = Says { id: "many", text: "gladly", calls: &calls, ends: Ends::Well };
            provider.answers(says.sent(format, is_streamed));
            let answer = gateway.ask(&client.request());
            assert_eq!(answer.status(), 200);
            client.heard(&answer);
            provider.saw();
            for name in &names {
                client.returns(&format!("many_{name}"), "done");
            }
            let says = Says { id: "end", text: "that was it", calls: &[], ends: Ends::Well };
            provider.answers(says.sent(format, is_streamed));
            assert_eq!(gateway.ask(&client.request()).status(), 200);
            let sent = provider.saw().text();
            assert!(names.iter().all(|name| sent.contains(&format!("many_{name}\""))), "{format} {mode}");
            let recorded = Recorded::on(&gateway.bench);
            assert_eq!(recorded.endings(2), ["complete", "complete"], "{format} {mode}");
            assert_eq!(recorded.sessions().len(), 1);
            recorded.check_health();
            assert!(peak(&gateway) < 512, "{format} {mode}: {} MiB", peak(&gateway));
        }
    }
}

#[test]
fn of_many_requests_at_a_time_no_more_reach_the_provider_than_are_set_up_for() {
    const CLIENTS: usize = 200;
    const PLACES: usize = 20;
    for mode in RECORDING {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (busy, largest) = (Arc::clone(&now), Arc::clone(&most));
        let provider = Parrot::new(move |_| {
            largest.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            busy.fetch_sub(1, Ordering::SeqCst);
            vec![said("yes").into_bytes()]
        });
        let bench = Arc::new(super::super::harness::Bench::new());
        let limits = format!("[limits]\nrequests = {PLACES}\n");
        let gateway = Gateway::on(&bench, &provider.url(), &["--mode", mode], &limits);
        let statuses: Vec<u16> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let gateway = &gateway;
                    scope.spawn(move || {
                        let mut talk = Talk::nameless();
                        talk.says(&number.to_string());
                        talk.asks(gateway).answer().status()
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("an answer")).collect()
        });
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), provider.asked());
        assert!(most.load(Ordering::SeqCst) <= PLACES, "{}", most.load(Ordering::SeqCst));
        assert!(peak(&gateway) < 512, "{} MiB", peak(&gateway));
        let mut talk = Talk::nameless();
        assert_eq!(talk.goes_on(&gateway, "are you there?"), "yes");
    }
}

#[test]
fn a_provider_that_tells_two_lengths_is_not_believed() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let hidden = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden";
    provider.plays(vec![
        Step::Send(
            format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}{hidden}").into(),
        ),
        Step::Hang,
    ]);
    let answer = gateway.ask(&post("/v1/messages", "", BODY));
    assert_eq!((answer.status(), answer.header("x-epitome-error")), (502, vec!["broken"]), "{answer:?}");
    provider.saw();
    // What is left over on a connection is nobody's answer.
    provider.answers(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{{}}{hidden}"));
    assert_eq!(gateway.ask(&post("/v1/messages", "", BODY)).text(), "{}");
    provider.saw();
    check_serves(&gateway, &provider);
}

#[test]
fn what_follows_a_request_in_disguise_is_no_request() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let hidden = "DELETE /v1/files/f HTTP/1.1\r\nHost: HOST\r\n\r\n";
    for lengths in [
        "Content-Length: 0\r\nContent-Length: 44\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: 0x10\r\n",
    ] {
        let request = format!("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\n{lengths}\r\n0\r\n\r\n{hidden}");
        let mut wire = Wire::over(TcpStream::connect(gateway.address).expect("somebody listens"));
        wire.send(addressed(&request, gateway.address).as_bytes());
        let is_taken = wire.answer_if_any().is_some_and(|answer| answer.status() == 200);
        assert!(!is_taken, "{lengths}");
    }
    assert!(provider.saw_nothing());
    check_serves(&gateway, &provider);
}

#[test]
fn no_page_and_no_foreign_name_sees_the_gateways_own_pages() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    for path in ["/", "/healthz", "/readyz", "/metrics", "/epitome/savings"] {
        for request in [
            get(path, "").replace("Host: HOST", "Host: evil.example"),
            get(path, "").replace("Host: HOST", "Host: localhost.evil.example"),
            get(path, "Host: evil.example\r\n"),
            get(path, "Origin: https://evil.example\r\n"),
            get(path, "Origin: null\r\n"),
            get(&format!("http://evil.example{path}"), "").replace("Host: HOST", "Host: evil.example"),
        ] {
            let answer = gateway.ask(&request);
            assert!([400, 403].contains(&answer.status()), "{request} {answer:?}");
            assert!(!answer.text().contains("is here") && !answer.text().contains("epitome_"), "{answer:?}");
        }
        assert_eq!(gateway.ask(&get(path, "")).status(), 200, "{path}");
    }
    // With tokens, whoever looks after the gateway needs none to see whether it is well, and one for all else.
    let shut = Gateway::with(&provider, &[], "[[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n");
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 401), ("/epitome/savings", 401)]
    {
        let request =
            get(path, "Origin: https://evil.example\r\n").replace("Host: HOST", "Host: gateway.corp");
        assert_eq!(shut.ask(&request).status(), status, "{path}");
    }
    for target in ["evil.example:443", "127.0.0.1:1", "/v1/models"] {
        let answer = gateway.ask(&format!("CONNECT {target} HTTP/1.1\r\nHost: HOST\r\n\r\n"));
        assert!([400, 404].contains(&answer.status()), "{target} {answer:?}");
    }
    assert!(provider.saw_nothing());
}

#[test]
fn an_answer_without_end_is_relayed_in_bounded_memory_and_ends_with_its_client() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        let (tell, gone) = mpsc::channel();
        // More than is ever kept of an answer.
        let pieces: Vec<u8> = (0..24).flat_map(|_| piece(&"word ".repeat(800_000))).collect();
        provider.plays(vec![Step::Send(STREAM.into()), Step::Send(pieces.clone()), Step::Watch(tell)]);
        let mut talk = Talk::nameless().streamed();
        talk.says("go on for ever");
        let mut wire = talk.asks(&gateway);
        wire.until(b"\r\n\r\n").expect("a head");
        let mut taken = 0;
        while taken < pieces.len() * 9 / 10 {
            taken += wire.chunk().expect("it goes on").len();
        }
        drop(wire);
        // The provider sees the end either while it watches or in the middle of its last piece.
        let _ = gone.recv();
        eventually("it is counted", || {
            gateway.metrics().contains("epitome_unrecorded_total{reason=\"unreadable_answer\"} 1\n")
        });
        assert!(peak(&gateway) < 768, "{mode}: {} MiB", peak(&gateway));
        provider.saw();
        check_serves(&gateway, &provider);
    }
}

#[test]
fn a_body_that_drips_in_is_not_waited_for_however_steadily_it_comes() {
    let provider = Provider::new();
    let limits = "[limits]\nclient = \"1m\"\nupload = \"300ms\"\n";
    let gateway = Gateway::with(&provider, &["--allow-override"], limits);
    for mode in ["off", "record", "compact"] {
        for framing in ["Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"] {
            let head = format!(
                "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nx-epitome-mode: {mode}\r\n{framing}\r\n"
            );
            let stream = TcpStream::connect(gateway.address).expect("somebody listens");
            let mut drips = stream.try_clone().expect("a second hand");
            drips.write_all(addressed(&head, gateway.address).as_bytes()).expect("it is taken");
            let bytes: &[u8] = if framing.starts_with('T') { b"1\r\nx\r\n" } else { b"x" };
            let dripping = thread::spawn(move || {
                while drips.write_all(bytes).is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let answer: Message = Wire::over(stream).answer();
            let told = (answer.status(), answer.header("x-epitome-error"));
            assert_eq!(told, (408, vec!["too_slow"]), "{mode} {framing}");
            dripping.join().expect("the connection is closed");
        }
    }
    // What comes in time passes.
    provider.answers(ok("", "{}"));
    let whole = [
        "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n".as_bytes(),
        &chunked(BODY.as_bytes(), 9),
    ]
    .concat();
    let whole = String::from_utf8(whole).expect("text");
    assert_eq!(gateway.ask(&whole).status(), 200);
}
