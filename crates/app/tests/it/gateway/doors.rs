//! Who is let in, with whose key, and what the gateway says itself.

use std::sync::mpsc;

use super::{
    http::{Message, Wire},
    played::{Gateway, Provider, RECORDING, Step, addressed, get, ok, post},
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[]}";

fn call(headers: &str) -> String {
    post("/v1/messages", headers, BODY)
}

#[track_caller]
fn check_refused(answer: &Message, status: u16, code: &str, says: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    assert_eq!(answer.header("x-epitome-error"), [code]);
    assert!(answer.text().contains(says), "{}", answer.text());
}

#[test]
fn the_gateways_own_pages_answer_without_a_provider() {
    let gateway = Gateway::before(&Provider::new(), "record");
    assert_eq!(gateway.ask("HEAD / HTTP/1.1\r\nHost: HOST\r\n\r\n").status(), 200);
    assert_eq!(gateway.ask(&get("/", "")).text(), "Epitome's gateway is here.\n");
    assert_eq!(gateway.ask(&get("/healthz", "")).text(), "ok\n");
    assert_eq!(gateway.ask(&get("/readyz", "")).text(), "ready\n");
    let metrics = gateway.ask(&get("/metrics", ""));
    assert!(metrics.text().contains("epitome_requests_in_flight 0\n"), "{}", metrics.text());
    let savings: serde_json::Value =
        serde_json::from_str(&gateway.ask(&get("/epitome/savings", "")).text()).expect("JSON");
    assert_eq!(savings["sessions"], serde_json::json!([]));
    assert_eq!(savings["measured"]["point"], serde_json::Value::Null);
    check_refused(&gateway.ask(&get("/v2/models", "")), 404, "unknown_path", "POST /v1/messages");
    check_refused(&gateway.ask(&get("/v1/../x", "")), 404, "unknown_path", "everything else under /v1");
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nopenai-beta: responses_websockets\r\n";
    check_refused(&gateway.ask(&get("/v1/responses", socket)), 426, "no_sockets", "HTTP POST");
    let asked =
        "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nx-epitome-mode: loud\r\nContent-Length: 0\r\n\r\n";
    check_refused(&gateway.ask(asked), 400, "unknown_mode", "off, record, observe and compact");
}

#[test]
fn without_tokens_no_page_and_no_foreign_host_gets_in() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    check_refused(&gateway.ask(&call("Origin: https://evil.example\r\n")), 403, "page", "permission_error");
    let foreign = call("").replace("HOST", "evil.example");
    check_refused(&gateway.ask(&foreign), 403, "host", "permission_error");
    for page in ["/metrics", "/epitome/savings"] {
        check_refused(&gateway.ask(&get(page, "Origin: null\r\n")), 403, "page", "\"code\":\"page\"");
    }
    assert!(provider.saw_nothing());
}

#[test]
fn a_token_of_the_gateways_is_never_forwarded() {
    let provider = Provider::new();
    let tokens = "[[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n";
    let gateway = Gateway::with(&provider, &[], tokens);
    check_refused(&gateway.ask(&call("")), 401, "no_token", "authentication_error");
    check_refused(&gateway.ask(&call("x-api-key: sk-wrong\r\n")), 401, "no_token", "authentication_error");
    check_refused(&gateway.ask(&call("x-epitome-token: t-ann\r\n")), 401, "no_token", "authentication_error");
    for page in ["/metrics", "/epitome/savings"] {
        check_refused(&gateway.ask(&get(page, "")), 401, "no_token", "token");
    }
    let savings = gateway.ask(&get("/epitome/savings", "x-epitome-token: t-anna\r\n"));
    assert_eq!((savings.status(), savings.header("content-type")), (200, vec!["application/json"]));
    // There is no key to show the provider instead.
    check_refused(&gateway.ask(&call("Authorization: Bearer t-anna\r\n")), 401, "no_key", "key_env");
    assert!(provider.saw_nothing());

    provider.answers(ok("", "{}"));
    let own = "x-epitome-token: t-anna\r\nX-Api-Key: sk-client\r\n";
    assert_eq!(gateway.ask(&call(own)).status(), 200);
    let seen = provider.saw();
    assert_eq!(seen.header("x-api-key"), ["sk-client"]);
    assert!(!format!("{seen:?}").contains("t-anna"));
    assert!(!gateway.log().contains("t-anna"), "{}", gateway.log());
}

#[test]
fn a_configured_key_is_shown_instead_of_the_clients() {
    let provider = Provider::new();
    let file = format!(
        "[[upstream]]\nname = \"one\"\nurl = \"{}\"\nkey_env = \"PROVIDER_KEY\"\n\
         [[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n",
        provider.url()
    );
    let gateway = Gateway::alone(&[], &file);
    for (request, header, expect) in [
        (call("Authorization: Bearer t-anna\r\n"), "x-api-key", "sk-configured"),
        (call("x-api-key: t-anna\r\n"), "x-api-key", "sk-configured"),
        (get("/v1/models", "authorization: bearer t-anna\r\n"), "authorization", "Bearer sk-configured"),
    ] {
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&request).status(), 200);
        let seen = provider.saw();
        assert_eq!(seen.header(header), [expect]);
        assert!(!format!("{seen:?}").contains("t-anna"));
    }
    assert!(!gateway.log().contains("sk-configured"));
}

#[test]
fn the_model_decides_between_providers_where_the_configuration_says_so() {
    let (local, other) = (Provider::new(), Provider::new());
    let file = format!(
        "mode = \"off\"\n[[upstream]]\nname = \"local\"\nurl = \"{}\"\nformats = [\"openai-chat\"]\nmodels = [\"qwen*\"]\n\
         [[upstream]]\nname = \"other\"\nurl = \"{}/base\"\nmodels = [\"gpt*\"]\n",
        local.url(),
        other.url()
    );
    let gateway = Gateway::alone(&[], &file);
    let ask = |model: &str| post("/v1/chat/completions", "", &format!("{{\"model\":\"{model}\"}}"));
    local.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&ask("qwen3")).status(), 200);
    assert_eq!(local.saw().line, "POST /v1/chat/completions HTTP/1.1");
    other.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&ask("gpt-5")).status(), 200);
    assert_eq!(other.saw().line, "POST /base/v1/chat/completions HTTP/1.1");
    check_refused(&gateway.ask(&ask("claude")), 404, "no_upstream", "add one to its configuration");
}

#[test]
fn what_is_too_large_or_too_much_at_a_time_is_refused() {
    let provider = Provider::new();
    let limits = "[limits]\nbody = \"1KiB\"\nrequests = 1\n";
    let gateway = Gateway::with(&provider, &["--allow-override"], limits);
    for mode in ["off", "record", "compact"] {
        let large = post("/v1/messages", &format!("x-epitome-mode: {mode}\r\n"), &"x".repeat(1025));
        check_refused(&gateway.ask(&large), 413, "too_large", "request_too_large");
        let endless = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nx-epitome-mode: {mode}\r\nTransfer-Encoding: chunked\r\n\r\n\
             400\r\n{}\r\n1\r\nx\r\n",
            "x".repeat(1024)
        );
        check_refused(&gateway.ask(&endless), 413, "too_large", "request_too_large");
    }
    let wordy = get("/v1/models", &format!("X-Long: {}\r\n", "x".repeat(200 << 10)));
    assert_eq!(gateway.ask(&wordy).status(), 431);
    let (go, wait) = mpsc::channel();
    provider.plays(vec![Step::Wait(wait), Step::Send(ok("", "{}").into())]);
    let mut first = Wire::to(gateway.address);
    first.send(addressed(&call(""), gateway.address).as_bytes());
    provider.saw();
    let busy = gateway.ask(&call(""));
    check_refused(&busy, 503, "busy", "overloaded_error");
    assert_eq!(busy.header("retry-after"), ["1"]);
    go.send(()).expect("the provider waits");
    assert_eq!(first.answer().status(), 200);
}

#[test]
fn what_cannot_be_recorded_is_forwarded_or_refused_as_configured() {
    for mode in RECORDING {
        let provider = Provider::new();
        let asked = call(&format!("x-epitome-mode: {mode}\r\n"));
        // Where nothing is recorded by itself there is no store.
        let open = Gateway::before(&provider, "off");
        provider.answers(ok("", "{}"));
        assert_eq!(open.ask(&asked).status(), 200);
        assert_eq!(provider.saw().text(), BODY);
        let metrics = open.ask(&get("/metrics", "")).text();
        assert!(metrics.contains("epitome_unrecorded_total{reason=\"store\"} 1\n"), "{metrics}");

        let shut = Gateway::with(&provider, &["--mode", "off", "--fail-closed"], "");
        check_refused(&shut.ask(&asked), 503, "unrecorded", "overloaded_error");
        assert!(provider.saw_nothing());
    }
}
