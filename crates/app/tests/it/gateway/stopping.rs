//! How the gateway stops: what is on its way is finished first.

use std::{net::TcpStream, sync::mpsc};

use super::{
    http::{End, Wire, chunked},
    played::{Gateway, Provider, RECORDING, Step, addressed, eventually, get, ok, post},
};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn asked(gateway: &Gateway) -> Wire {
    let mut client = Wire::to(gateway.address);
    let request = post("/v1/messages", "", "{\"model\":\"claude\",\"messages\":[]}");
    client.send(addressed(&request, gateway.address).as_bytes());
    client
}

/// Waits until nobody listens any more.
fn wait_until_deaf(gateway: &Gateway) {
    while TcpStream::connect(gateway.address).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_stream_that_is_on_its_way_is_finished_before_the_gateway_stops() {
    for mode in RECORDING {
        let provider = Provider::new();
        let mut gateway = Gateway::before(&provider, mode);
        let (go, wait) = mpsc::channel();
        let event = "data: {\"type\":\"message_stop\"}\n\n";
        provider.plays(vec![
            Step::Send(HEAD.into()),
            Step::Wait(wait),
            Step::Send(chunked(event.as_bytes(), 1 << 10)),
        ]);
        let idle = Wire::to(gateway.address);
        let mut client = asked(&gateway);
        provider.saw();
        gateway.terminate();
        wait_until_deaf(&gateway);
        go.send(()).expect("the provider waits");
        let answer = client.answer();
        assert_eq!((answer.text().as_str(), answer.end), (event, End::Chunks));
        assert!(gateway.child.wait().expect("it ends").success(), "{}", gateway.log());
        drop(idle);
    }
}

#[test]
fn a_stream_that_takes_too_long_is_cut_off() {
    for mode in RECORDING {
        let provider = Provider::new();
        let mut gateway = Gateway::with(&provider, &["--mode", mode], "[limits]\nshutdown = \"50ms\"\n");
        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Send(HEAD.into()), Step::Watch(tell)]);
        let mut client = asked(&gateway);
        provider.saw();
        client.until(b"\r\n\r\n").expect("a head");
        gateway.terminate();
        assert!(client.is_closed());
        assert!(gateway.child.wait().expect("it ends").success(), "{}", gateway.log());
        gone.recv().expect("the provider is told");
    }
}

#[test]
fn who_tells_it_twice_does_not_wait() {
    for mode in RECORDING {
        let provider = Provider::new();
        let mut gateway = Gateway::before(&provider, mode);
        let (tell, _gone) = mpsc::channel();
        provider.plays(vec![Step::Send(HEAD.into()), Step::Watch(tell)]);
        let _client = asked(&gateway);
        provider.saw();
        gateway.terminate();
        wait_until_deaf(&gateway);
        gateway.terminate();
        assert!(!gateway.child.wait().expect("it ends").success());
    }
}

#[test]
fn whoever_looks_after_it_sees_that_it_stops_before_the_port_closes() {
    let provider = Provider::new();
    let mut gateway = Gateway::with(&provider, &[], "[limits]\nnotice = \"1s\"\n");
    assert_eq!(gateway.ask(&get("/readyz", "")).status(), 200);
    gateway.terminate();
    eventually("it says that it stops", || gateway.ask(&get("/readyz", "")).status() == 503);
    let told = gateway.ask(&get("/readyz", ""));
    assert!(told.text().contains("stopping"), "{told:?}");
    // Whoever has not heard of it yet is served.
    provider.answers(ok("", "{}"));
    assert_eq!(asked(&gateway).answer().status(), 200);
    wait_until_deaf(&gateway);
    assert!(gateway.child.wait().expect("it ends").success(), "{}", gateway.log());
}

#[test]
fn who_tells_it_twice_does_not_wait_for_the_notice_either() {
    let mut gateway = Gateway::with(&Provider::new(), &[], "[limits]\nnotice = \"10m\"\n");
    gateway.terminate();
    eventually("it says that it stops", || gateway.ask(&get("/readyz", "")).status() == 503);
    gateway.terminate();
    assert!(!gateway.child.wait().expect("it ends").success());
}
