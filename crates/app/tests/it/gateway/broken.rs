//! What breaks on the road, as the log tells it afterwards: what came is kept, how it ended is said, and the session goes
//! on.

use std::{net::TcpListener, sync::mpsc};

use super::{
    http::{End, PATIENCE},
    played::{Gateway, Provider, RECORDING, Step, eventually, post},
    recorded::Recorded,
    talk::{STREAM, Talk, one, piece, said},
};

fn begun(words: &str) -> Vec<u8> {
    [STREAM.as_bytes(), &piece(words)].concat()
}

#[test]
fn an_answer_that_breaks_off_is_recorded_as_cut_and_its_session_goes_on() {
    for mode in RECORDING {
        for mut talk in [Talk::called("s-1").streamed(), Talk::nameless().streamed()] {
            let provider = Provider::new();
            let gateway = Gateway::before(&provider, mode);
            let recorded = Recorded::on(&gateway.bench);
            provider.plays(vec![Step::Send(begun("half an ans")), Step::Hang]);
            talk.says("one");
            assert_eq!(talk.asks(&gateway).answer().end, End::Broken);
            assert_eq!(recorded.endings(1), ["cut"]);
            // The same again, byte for byte.
            provider.answers(said("whole"));
            assert_eq!(talk.asks(&gateway).answer().status(), 200);
            talk.heard("whole");
            // And this time the client keeps the half that it got.
            provider.plays(vec![Step::Send(begun("hal")), Step::Hang]);
            talk.says("two");
            assert_eq!(talk.asks(&gateway).answer().end, End::Broken);
            assert_eq!(recorded.endings(3), ["cut", "complete", "cut"]);
            talk.heard("hal");
            provider.answers(said("done"));
            talk.goes_on(&gateway, "three");
            assert_eq!(recorded.endings(4), ["cut", "complete", "cut", "complete"]);
            let session = recorded.session();
            assert_eq!(session.threads, 1, "{:#?}", recorded.threads());
            let thread = recorded.threads().remove(0).id;
            let expect = ["one", "(answer_cut)", "whole", "two", "(answer_cut)", "hal", "three", "done"];
            assert_eq!(recorded.story(thread), expect);
            assert!(recorded.raw(thread).contains("half an ans"), "{}", recorded.raw(thread));
        }
    }
}

/// What a provider does to a request, and what is recorded of it.
struct Fault {
    name: &'static str,
    steps: Vec<Step>,
    status: Option<u16>,
    ending: &'static str,
}

fn fault(name: &'static str, sent: impl Into<Vec<u8>>, status: Option<u16>, ending: &'static str) -> Fault {
    Fault { name, steps: vec![Step::Send(sent.into()), Step::Hang], status, ending }
}

fn faults() -> Vec<Fault> {
    // A provider that hangs up says so: otherwise the next request may be on its way to it already.
    const CLOSE: &str = "Connection: close\r\n";
    let json = |body: &str| format!("HTTP/1.1 200 OK\r\n{CLOSE}Content-Length: {}\r\n\r\n{body}", body.len());
    let head = STREAM.replacen("\r\n", &format!("\r\n{CLOSE}"), 1);
    let stream = |text: &str| [head.as_bytes(), &one(text), b"0\r\n\r\n"].concat();
    let status = |line: &str| {
        format!("HTTP/1.1 {line}\r\n{CLOSE}Location: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")
    };
    vec![
        fault("nothing", "", None, "cut"),
        fault("no HTTP", "SSH-2.0-OpenSSH_9\r\n\r\n", None, "cut"),
        fault("half a head", "HTTP/1.1 200 OK\r\nContent-", None, "cut"),
        fault("no JSON", json("<html>oops</html>"), Some(200), "cut"),
        fault("JSON that is no answer", json("[1,2]"), Some(200), "cut"),
        fault("no text", [json("....").as_bytes(), &[0xff]].concat(), Some(200), "cut"),
        fault("no events", stream("<html>oops</html>"), Some(200), "cut"),
        fault("events that are no JSON", stream("data: oops\n\ndata: {\n\n"), Some(200), "cut"),
        fault("an empty stream", stream("\n\n"), Some(200), "cut"),
        fault("a redirect", status("307 Temporary Redirect"), Some(307), "refused"),
        fault("an error", status("500 Internal Server Error"), Some(500), "refused"),
    ]
}

#[test]
fn whatever_a_provider_does_is_recorded_for_what_it_is_and_the_session_goes_on() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        let recorded = Recorded::on(&gateway.bench);
        let mut talk = Talk::called("s-1");
        talk.says("one");
        let mut expect = Vec::new();
        for fault in faults() {
            provider.plays(fault.steps);
            let answer = talk.asks(&gateway).answer();
            assert_eq!(answer.status(), fault.status.unwrap_or(502), "{}: {answer:?}", fault.name);
            expect.push(fault.ending);
            assert_eq!(recorded.endings(expect.len()), expect, "{}", fault.name);
            let row = recorded.exchanges().pop().expect("an exchange");
            assert_eq!(row.exchange.status, fault.status, "{}", fault.name);
        }
        provider.answers(said("done"));
        talk.asks(&gateway).answer();
        let thread = recorded.threads().remove(0).id;
        // A disk that is slow for longer than the gateway waits is no fault: the record follows.
        eventually("the answer is recorded", || recorded.story(thread) == ["one", "done"]);
        assert_eq!(recorded.session().threads, 1);
        recorded.check_health();
    }
}

#[test]
fn a_provider_that_is_not_there_or_says_nothing_is_recorded_as_unreached() {
    for mode in RECORDING {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
        let url = format!("http://{free}");
        let gateway = Gateway::alone(&["--openai-upstream", &url, "--mode", mode], "");
        let mut talk = Talk::called("s-1");
        talk.says("one");
        assert_eq!(talk.asks(&gateway).answer().status(), 502);
        let recorded = Recorded::on(&gateway.bench);
        assert_eq!(recorded.endings(1), ["unreached"]);

        let provider = Provider::new();
        let gateway =
            Gateway::with(&provider, &["--mode", mode], "[limits]\nanswer = \"100ms\"\npause = \"100ms\"\n");
        let recorded = Recorded::on(&gateway.bench);
        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Watch(tell)]);
        assert_eq!(talk.asks(&gateway).answer().status(), 504);
        gone.recv_timeout(PATIENCE).expect("the provider is told");
        assert_eq!(recorded.endings(1), ["unreached"]);
        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Send(begun("hal")), Step::Watch(tell)]);
        assert_eq!(talk.asks(&gateway).answer().end, End::Broken);
        gone.recv_timeout(PATIENCE).expect("the provider is told");
        assert_eq!(recorded.endings(2), ["unreached", "cut"]);
        assert_eq!(recorded.session().threads, 1);
    }
}

#[test]
fn a_client_that_goes_away_is_recorded_as_such_and_its_session_goes_on() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        let recorded = Recorded::on(&gateway.bench);
        let mut talk = Talk::called("s-1").streamed();
        talk.says("one");
        for (number, steps) in [vec![], vec![Step::Send(begun("half an ans"))]].into_iter().enumerate() {
            let is_begun = !steps.is_empty();
            let (tell, gone) = mpsc::channel();
            provider.plays(steps.into_iter().chain([Step::Watch(tell)]).collect());
            let mut client = talk.asks(&gateway);
            provider.saw();
            if is_begun {
                client.until(b"half an ans").expect("the first event");
            }
            drop(client);
            gone.recv_timeout(PATIENCE).expect("the provider is told");
            assert!(recorded.endings(number + 1).iter().all(|ending| ending == "cancelled"));
        }
        let thread = recorded.threads().remove(0).id;
        assert!(recorded.raw(thread).contains("half an ans"), "{}", recorded.raw(thread));
        provider.answers(said("done"));
        talk.asks(&gateway).answer();
        assert_eq!(recorded.story(thread), ["one", "(answer_cut)", "done"]);
        assert_eq!(recorded.session().threads, 1);
        // One before the provider had said anything, one after.
        let metrics = gateway.metrics();
        assert_eq!(metrics.matches("ending=\"cancelled\"} 1\n").count(), 2, "{metrics}");
    }
}

#[test]
fn a_request_without_a_history_is_nobodys_past() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        provider.answers("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let empty = post("/v1/chat/completions", "", "{\"model\":\"m\",\"messages\":[]}");
        assert_eq!(gateway.ask(&empty).status(), 400);
        let recorded = Recorded::on(&gateway.bench);
        assert_eq!(recorded.endings(1), ["refused"]);
        provider.answers(said("two"));
        let mut talk = Talk::nameless();
        talk.goes_on(&gateway, "one");
        let stories: Vec<_> = recorded.threads().iter().map(|thread| recorded.story(thread.id)).collect();
        assert_eq!((recorded.sessions().len(), stories.len()), (2, 2), "{stories:?}");
    }
}
