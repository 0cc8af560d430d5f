//! Too much of anything: it is bounded, it is said so, and the gateway goes on serving.

use std::{io::Write, net::TcpStream, sync::mpsc};

use flate2::{Compression, write::GzEncoder};

use super::{
    http::{End, Wire},
    played::{Gateway, Provider, RECORDING, Step, addressed, eventually, ok},
    recorded::Recorded,
    talk::{Talk, said},
};

/// A few bytes that stand for very many.
fn bomb(megabytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..megabytes * 1024 {
        encoder.write_all(&[b' '; 1 << 10]).expect("a vector takes all");
    }
    encoder.finish().expect("a vector takes all")
}

/// Whatever was tried before, the gateway serves and records.
#[track_caller]
fn check_serves(gateway: &Gateway, provider: &Provider) {
    provider.answers(said("still here"));
    let mut talk = Talk::nameless();
    assert_eq!(talk.goes_on(gateway, "are you there?"), "still here");
    let recorded = Recorded::on(&gateway.bench);
    let is_there = |story: Vec<String>| story == ["are you there?", "still here"];
    assert!(recorded.threads().iter().any(|thread| is_there(recorded.story(thread.id))));
}

fn counts(gateway: &Gateway, reason: &str, count: usize) -> bool {
    gateway.metrics().contains(&format!("epitome_unrecorded_total{{reason=\"{reason}\"}} {count}\n"))
}

#[test]
fn a_request_that_expands_without_end_is_not_expanded() {
    for mode in RECORDING {
        let bomb = bomb(8);
        let provider = Provider::new();
        let file = "[limits]\nbody = \"1MiB\"\n";
        let open = Gateway::with(&provider, &["--mode", mode], file);
        for coding in ["gzip", "GZIP", "gzip, gzip", "deflate", "br", "zstd", "unheard-of"] {
            provider.answers(ok("", "{}"));
            let answer = open.ask_with("/v1/messages", &format!("Content-Encoding: {coding}\r\n"), &bomb);
            assert_eq!(answer.status(), 200, "{coding}");
            assert_eq!(provider.saw().body, bomb, "{coding}");
        }
        eventually("it is counted", || {
            counts(&open, "too_large", 2) && counts(&open, "unreadable_request", 5)
        });
        check_serves(&open, &provider);

        let provider = Provider::new();
        let shut = Gateway::with(&provider, &["--fail-closed", "--mode", mode], file);
        let answer = shut.ask_with("/v1/messages", "Content-Encoding: gzip\r\n", &bomb);
        assert_eq!(
            (answer.status(), answer.header("x-epitome-error")),
            (413, vec!["unrecorded"]),
            "{answer:?}"
        );
        assert!(answer.text().contains("when it is decompressed"), "{answer:?}");
        assert!(provider.saw_nothing());
        check_serves(&shut, &provider);
    }
}

#[test]
fn an_answer_that_expands_without_end_passes_and_is_not_expanded() {
    for mode in RECORDING {
        let bomb = bomb(80);
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        for (number, kind) in ["application/json", "text/event-stream"].into_iter().enumerate() {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            provider.answers([head.as_bytes(), &bomb].concat());
            let mut talk = Talk::nameless();
            talk.says(kind);
            let answer = talk.asks(&gateway).answer();
            assert_eq!((answer.body == bomb, answer.end), (true, End::Length), "{kind}");
            eventually("it is counted", || counts(&gateway, "unreadable_answer", number + 1));
        }
        check_serves(&gateway, &provider);
    }
}

#[test]
fn what_is_nested_without_end_passes_and_is_not_read() {
    const DEEP: usize = 200_000;
    let provider = Provider::new();
    // The model has to be read to know where to go.
    let models = format!(
        "[[upstream]]\nname = \"a\"\nurl = \"{0}\"\nmodels = [\"a*\"]\n[[upstream]]\nname = \"b\"\nurl = \"{0}\"\n",
        provider.url()
    );
    for gateway in [
        Gateway::before(&provider, "observe"),
        Gateway::before(&provider, "compact"),
        Gateway::alone(&[], &models),
    ] {
        let deep = format!("{}1{}", "[".repeat(DEEP), "]".repeat(DEEP));
        let keys = format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP));
        let mut count = 0;
        for nested in [&deep, &keys] {
            for body in [
                nested.clone(),
                format!("{{\"model\":\"m\",\"messages\":{nested}}}"),
                format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":{nested}}}]}}"),
                format!("{{\"model\":\"m\",\"messages\":[],\"tools\":{nested}}}"),
            ] {
                provider.answers(ok("", "{}"));
                let answer = gateway.ask_with("/v1/messages", "", body.as_bytes());
                assert_eq!(answer.status(), 200);
                provider.saw();
                count += 1;
            }
        }
        eventually("it is counted", || counts(&gateway, "unreadable_request", count));
        // A tool call's arguments are a text, and what is in them is nobody's business.
        for answer in [
            format!("{{\"id\":\"c\",\"model\":\"m\",\"choices\":{deep}}}"),
            format!(
                "{{\"id\":\"c\",\"choices\":[{{\"message\":{{\"role\":\"assistant\",\"content\":{keys}}}}}]}}"
            ),
        ] {
            provider.answers(ok("", &answer));
            let mut talk = Talk::nameless();
            talk.says("deep");
            assert_eq!(talk.asks(&gateway).answer().text(), answer);
            provider.saw();
        }
        eventually("it is counted", || counts(&gateway, "unreadable_answer", 2));
        check_serves(&gateway, &provider);
        provider.saw();
    }
}

#[test]
fn those_who_never_finish_their_heads_keep_nobody_waiting() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway =
            Gateway::with(&provider, &["--mode", mode], "[limits]\nclient = \"2s\"\nrequests = 2\n");
        let mut slow: Vec<Wire> = (0..100)
            .map(|_| {
                let mut wire = Wire::over(TcpStream::connect(gateway.address).expect("somebody listens"));
                wire.send(
                    addressed("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nX-Slow: ", gateway.address)
                        .as_bytes(),
                );
                wire
            })
            .collect();
        check_serves(&gateway, &provider);
        assert!(slow.iter_mut().all(Wire::is_closed));
        check_serves(&gateway, &provider);
    }
}

#[test]
fn more_at_a_time_than_is_set_up_for_is_told_to_come_back() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::with(&provider, &["--mode", mode], "[limits]\nrequests = 3\n");
        let mut talk = Talk::nameless();
        talk.says("wait");
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let (go, wait) = mpsc::channel();
            provider.plays(vec![Step::Wait(wait), Step::Send(said("at last").into())]);
            waiting.push((talk.asks(&gateway), go));
            provider.saw();
        }
        for _ in 0..20 {
            let refused = talk.asks(&gateway).answer();
            assert_eq!((refused.status(), refused.header("retry-after")), (503, vec!["1"]));
        }
        assert!(provider.saw_nothing());
        for (mut wire, go) in waiting {
            go.send(()).expect("the provider waits");
            assert_eq!(wire.answer().status(), 200);
        }
        check_serves(&gateway, &provider);
    }
}
