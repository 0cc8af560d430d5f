//! What breaks on the road, and what the other end is told of it.

use std::{net::TcpListener, sync::mpsc};

use super::{
    http::{End, PATIENCE, Wire},
    played::{Gateway, Provider, RECORDING, Step, addressed, eventually, ok, post},
};

const BODY: &str = "{\"model\":\"claude\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
const EVENT: &str = "data: {\"type\":\"ping\"}\n\n";

fn begun() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{EVENT}\r\n", EVENT.len()).into_bytes()
}

fn asked(gateway: &Gateway) -> Wire {
    let mut client = Wire::to(gateway.address);
    client.send(addressed(&post("/v1/messages", "", BODY), gateway.address).as_bytes());
    client
}

#[test]
fn a_provider_that_dies_in_the_middle_breaks_the_clients_stream_too() {
    let provider = Provider::new();
    for mode in ["off", "record", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        provider.plays(vec![Step::Send(begun()), Step::Hang]);
        let answer = asked(&gateway).answer();
        assert_eq!((answer.text().as_str(), answer.end), (EVENT, End::Broken), "{mode}");
        provider
            .plays(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a".into()), Step::Hang]);
        let answer = asked(&gateway).answer();
        assert_eq!((answer.text().as_str(), answer.end), ("{\"a", End::Broken), "{mode}");
    }
}

#[test]
fn a_client_that_goes_away_cancels_its_request() {
    let provider = Provider::new();
    for mode in ["off", "record", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        // In the middle of the answer, and before it.
        for steps in [vec![Step::Send(begun())], vec![]] {
            let is_begun = !steps.is_empty();
            let (tell, gone) = mpsc::channel();
            provider.plays(steps.into_iter().chain([Step::Watch(tell)]).collect());
            let mut client = asked(&gateway);
            provider.saw();
            if is_begun {
                client.until(EVENT.as_bytes()).expect("the first event");
            }
            drop(client);
            gone.recv_timeout(PATIENCE).expect("the provider is told");
        }
    }
}

#[test]
fn a_provider_that_is_not_there_is_said_to_be_unreached() {
    for mode in RECORDING {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
        let url = format!("http://{free}");
        let gateway =
            Gateway::alone(&["--openai-upstream", &url, "--anthropic-upstream", &url, "--mode", mode], "");
        let answer = gateway.ask(&post("/v1/messages", "", BODY));
        assert_eq!((answer.status(), answer.header("x-epitome-error")), (502, vec!["unreached"]));
        assert!(
            answer.text().starts_with("{\"type\":\"error\",\"error\":{\"type\":\"api_error\""),
            "{}",
            answer.text()
        );
        let answer = gateway.ask(&post("/v1/responses", "", BODY));
        assert!(answer.text().starts_with("{\"error\":{\"message\":"), "{}", answer.text());
        assert!(answer.text().contains("\"type\":\"server_error\""), "{}", answer.text());
    }
}

#[test]
fn a_provider_that_hangs_up_or_talks_nonsense_is_said_to_be_broken() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        for nonsense in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 999999\r\n\r\n"] {
            provider.plays(vec![Step::Send(nonsense.into()), Step::Hang]);
            let answer = gateway.ask(&post("/v1/messages", "", BODY));
            assert_eq!(
                (answer.status(), answer.header("x-epitome-error")),
                (502, vec!["broken"]),
                "{nonsense}"
            );
        }
    }
}

#[test]
fn a_provider_that_stays_silent_is_not_waited_for_forever() {
    for mode in RECORDING {
        let provider = Provider::new();
        let limits = "[limits]\nanswer = \"50ms\"\npause = \"50ms\"\n";
        let gateway = Gateway::with(&provider, &["--mode", mode], limits);
        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Watch(tell)]);
        let answer = gateway.ask(&post("/v1/messages", "", BODY));
        assert_eq!((answer.status(), answer.header("x-epitome-error")), (504, vec!["silent"]));
        gone.recv_timeout(PATIENCE).expect("the provider is told");

        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Send(begun()), Step::Watch(tell)]);
        assert_eq!(asked(&gateway).answer().end, End::Broken);
        gone.recv_timeout(PATIENCE).expect("the provider is told");
    }
}

#[test]
fn a_client_that_pauses_in_its_request_is_not_waited_for_forever() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--allow-override"], "[limits]\nclient = \"50ms\"\n");
    let mut slow = Wire::to(gateway.address);
    slow.send(addressed("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\n", gateway.address).as_bytes());
    assert!(slow.is_closed());
    for mode in ["off", "record", "compact"] {
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nx-epitome-mode: {mode}\r\nContent-Length: 9\r\n\r\n{{"
        );
        let answer = gateway.ask(&head);
        assert_eq!((answer.status(), answer.header("x-epitome-error")), (408, vec!["too_slow"]), "{mode}");
    }
}

#[test]
fn a_redirect_is_the_clients_business() {
    for mode in RECORDING {
        let (provider, elsewhere) = (Provider::new(), Provider::new());
        let gateway = Gateway::before(&provider, mode);
        provider.answers(format!(
            "HTTP/1.1 302 Found\r\nLocation: {}/v1/messages\r\nContent-Length: 0\r\n\r\n",
            elsewhere.url()
        ));
        let answer = gateway.ask(&post("/v1/messages", "x-api-key: sk\r\n", BODY));
        assert_eq!(answer.status(), 302);
        assert!(elsewhere.saw_nothing());
    }
}

#[test]
fn how_requests_ended_is_counted() {
    for mode in RECORDING {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, mode);
        provider.answers(ok("", "{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}"));
        assert_eq!(gateway.ask(&post("/v1/messages", "", BODY)).status(), 200);
        provider.answers("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(gateway.ask(&post("/v1/messages", "", BODY)).status(), 400);
        provider.plays(vec![Step::Send(begun()), Step::Hang]);
        assert_eq!(asked(&gateway).answer().end, End::Broken);
        let line = |status: &str, ending: &str| {
            format!(
                "epitome_requests_total{{format=\"anthropic\",mode=\"{mode}\",status=\"{status}\",ending=\"{ending}\"}} 1\n"
            )
        };
        // A count follows its answer, and may do so by a little.
        let expected = [line("2xx", "complete"), line("4xx", "refused"), line("2xx", "cut")];
        eventually("all of it is counted", || {
            let metrics = gateway.metrics();
            expected.iter().all(|line| metrics.contains(line))
        });
    }
}
