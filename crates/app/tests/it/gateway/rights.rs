//! What a token reaches with the operator's key, and what headers may change of what the operator set.

use super::{
    http::Message,
    played::{Gateway, Provider, get, ok, post},
    recorded::Recorded,
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
const ANNA: &str = "Authorization: Bearer t-anna\r\n";
const BOB: &str = "Authorization: Bearer t-bob\r\n";

/// A gateway with a key of its own, which Anna and Bob use by their tokens.
fn keyed(provider: &Provider, all: &str, bob: &str) -> Gateway {
    let url = provider.url();
    Gateway::alone(
        &[],
        &format!(
            "{all}\n[[upstream]]\nname = \"one\"\nurl = \"{url}\"\nkey_env = \"PROVIDER_KEY\"\n\
             [[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n\
             [[token]]\nprincipal = \"bob\"\nenv = \"BOB_TOKEN\"\n{bob}\n"
        ),
    )
}

fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: HOST\r\n{headers}Content-Length: {}\r\n\r\n{BODY}", BODY.len())
}

#[track_caller]
fn check_refused(answer: &Message, code: &str, says: &[&str]) {
    assert_eq!((answer.status(), answer.header("x-epitome-error")), (403, vec![code]), "{answer:?}");
    for part in says {
        assert!(answer.text().contains(part), "no {part} in {}", answer.text());
    }
}

#[test]
fn with_the_operators_key_a_token_reaches_models_and_inference_only() {
    let provider = Provider::new();
    let gateway = keyed(&provider, "", "");
    for line in [
        "DELETE /v1/files/file-1",
        "GET /v1/files",
        "POST /v1/fine_tuning/jobs",
        "POST /v1/batches",
        "POST /v1/messages/batches",
        "GET /v1/responses/resp_1",
        "DELETE /v1/models/ft:gpt-5:x",
        "PATCH /v1/chat/completions",
        "GET /v1/organization/admin_api_keys",
        // Spelt so that a server may read something else.
        "DELETE /v1//files/file-1",
        "DELETE /v1/%66iles/file-1",
        "DELETE /v1/models;x/../files",
        "GET /v1/Models",
        "GET /v1//models",
    ] {
        let answer = gateway.ask(&request(line, ANNA));
        if line.contains("..") {
            assert_eq!((answer.status(), answer.header("x-epitome-error")), (404, vec!["unknown_path"]));
        } else {
            check_refused(&answer, "route", &["only inference, models", "`allow`"]);
        }
    }
    for line in [
        "GET /v1/models/%2e%2e%2ffiles",
        "GET /v1/models/%252e%252e/files",
        "GET /v1/models/..;/files",
        "GET /v1/models/a%5c..%5c..%5cfiles",
    ] {
        assert_eq!(gateway.ask(&request(line, ANNA)).status(), 404, "{line}");
    }
    // In the words of whom the client means to speak to.
    let anthropic = "x-api-key: t-anna\r\nanthropic-version: 2023-06-01\r\n";
    check_refused(&gateway.ask(&request("DELETE /v1/files/f", anthropic)), "route", &["permission_error"]);
    for header in ["X-HTTP-Method-Override: DELETE\r\n", "X-Original-URL: /v1/files/f\r\n"] {
        check_refused(&gateway.ask(&get("/v1/models/m", &format!("{ANNA}{header}"))), "route", &["header"]);
    }
    assert!(provider.saw_nothing());
    for line in [
        "POST /v1/chat/completions",
        "POST /v1/responses",
        "POST /v1/responses/compact",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
        "POST /v1/embeddings",
        "GET /v1/models",
        "GET /v1/models/meta-llama%2Fllama",
    ] {
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&request(line, ANNA)).status(), 200, "{line}");
        assert_eq!(provider.saw().line, format!("{line} HTTP/1.1"));
    }
    assert_eq!(gateway.ask("HEAD / HTTP/1.1\r\nHost: HOST\r\n\r\n").status(), 200);
    let socket = format!("{ANNA}Connection: Upgrade\r\nUpgrade: websocket\r\n");
    assert_eq!(gateway.ask(&get("/v1/responses", &socket)).status(), 426);
}

#[test]
fn an_operator_says_which_routes_are_open_for_all_and_for_one() {
    let provider = Provider::new();
    let gateway = keyed(&provider, "allow = [\"inference\"]", "allow = [\"inference\", \"GET /v1/files/*\"]");
    check_refused(&gateway.ask(&get("/v1/models", ANNA)), "route", &["only inference:"]);
    check_refused(&gateway.ask(&get("/v1/files/f", ANNA)), "route", &["GET /v1/files/f"]);
    check_refused(&gateway.ask(&request("DELETE /v1/files/f", BOB)), "route", &["GET /v1/files/*"]);
    check_refused(&gateway.ask(&get("/v1/models", BOB)), "route", &[]);
    assert!(provider.saw_nothing());
    for asked in [get("/v1/files/f", BOB), post("/v1/messages", BOB, BODY), post("/v1/messages", ANNA, BODY)]
    {
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&asked).status(), 200, "{asked}");
        provider.saw();
    }
    let open = keyed(&provider, "allow = [\"all\"]", "allow = []");
    provider.answers(ok("", "{}"));
    assert_eq!(open.ask(&request("DELETE /v1/files/f", ANNA)).status(), 200);
    provider.saw();
    check_refused(&open.ask(&post("/v1/messages", BOB, BODY)), "route", &["only nothing"]);
    assert!(provider.saw_nothing());
}

#[test]
fn whoever_brings_a_key_of_their_own_reaches_what_it_reaches_unless_the_operator_says_otherwise() {
    let provider = Provider::new();
    let own = request("DELETE /v1/files/f", "Authorization: Bearer sk-own\r\n");
    let gateway = Gateway::before(&provider, "record");
    provider.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&own).status(), 200);
    provider.saw();
    let listed = Gateway::with(&provider, &[], "allow = [\"inference\", \"models\"]\n");
    check_refused(&listed.ask(&own), "route", &["`allow`"]);
    assert!(provider.saw_nothing());
}

#[test]
fn a_call_is_recorded_however_its_path_is_spelt() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let recorded = Recorded::on(&gateway.bench);
    for (number, path) in
        ["/v1//chat/completions", "/v1/%63hat/completions", "/v1/chat/completions/"].into_iter().enumerate()
    {
        provider.answers(ok("", "{}"));
        let body = BODY.replace("hi", &format!("hi {number}"));
        assert_eq!(gateway.ask(&post(path, "", &body)).status(), 200);
        assert_eq!(provider.saw().line, format!("POST {path} HTTP/1.1"), "it goes on as it came");
        super::played::eventually("it is recorded", || recorded.sessions().len() == number + 1);
    }
}

#[test]
fn no_header_lowers_what_the_operator_set() {
    let provider = Provider::new();
    let asked = |who: &str, header: &str| post("/v1/messages", &format!("{who}{header}\r\n"), BODY);
    let gateway = keyed(&provider, "mode = \"compact\"\n[compact]\nwindow = 8000", "mode = \"record\"");
    for mode in ["off", "record", "observe"] {
        let answer = gateway.ask(&asked(ANNA, &format!("x-epitome-mode: {mode}")));
        check_refused(
            &answer,
            "override",
            &["set to compact", &format!("asks for {mode}"), "allow_override"],
        );
    }
    check_refused(&gateway.ask(&asked(BOB, "x-epitome-mode: off")), "override", &["set to record"]);
    check_refused(&gateway.ask(&asked(ANNA, "x-epitome-window: 8001")), "override", &["8000 tokens"]);
    assert!(provider.saw_nothing());
    for (who, header) in [
        (ANNA, "x-epitome-mode: compact"),
        (ANNA, "x-epitome-window: 7000"),
        (BOB, "x-epitome-mode: record"),
        (BOB, "x-epitome-mode: compact"),
    ] {
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&asked(who, header)).status(), 200, "{header}");
        provider.saw();
    }
}

#[test]
fn headers_lower_what_the_operator_set_where_that_is_allowed() {
    let provider = Provider::new();
    let asked = |who: &str, header: &str| post("/v1/messages", &format!("{who}{header}\r\n"), BODY);
    let gateway = keyed(&provider, "", "allow_override = true");
    check_refused(&gateway.ask(&asked(ANNA, "x-epitome-mode: off")), "override", &[]);
    provider.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&asked(BOB, "x-epitome-mode: off")).status(), 200);
    provider.saw();
    assert!(Recorded::on(&gateway.bench).sessions().is_empty());

    let alone = Gateway::with(&provider, &["--mode", "compact", "--window", "8000", "--allow-override"], "");
    for header in ["x-epitome-mode: off", "x-epitome-window: 9000"] {
        provider.answers(ok("", "{}"));
        assert_eq!(alone.ask(&asked("", header)).status(), 200, "{header}");
        provider.saw();
    }
    // One person on one machine is asked as anybody else.
    let plain = Gateway::before(&provider, "record");
    check_refused(&plain.ask(&asked("", "x-epitome-mode: off")), "override", &["--allow-override"]);
    assert!(provider.saw_nothing());
}
