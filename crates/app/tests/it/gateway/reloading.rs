//! A configuration that is read again while the gateway serves, and rules for one token or one route.

use std::sync::mpsc;

use serde_json::Value;

use super::{
    http::Wire,
    played::{Gateway, Provider, Step, addressed, eventually, get, ok, post},
    recorded::Recorded,
    talk::{Talk, parrot, said},
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
const ANNA: &str = "x-epitome-token: t-anna\r\n";
const BOB: &str = "x-epitome-token: t-bob\r\n";

fn token(principal: &str, rules: &str) -> String {
    format!(
        "[[token]]\nprincipal = \"{principal}\"\nenv = \"{}_TOKEN\"\n{rules}\n",
        principal.to_ascii_uppercase()
    )
}

fn logged(gateway: &Gateway, words: &str) -> usize {
    gateway.log().lines().filter(|line| line.contains(words)).count()
}

#[test]
fn a_configuration_is_read_again_without_losing_a_connection() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], &token("anna", ""));
    let asked = |who: &str| post("/v1/messages", who, BODY);
    assert_eq!(gateway.ask(&asked(BOB)).status(), 401);
    // One that is on its way, over a connection that stays.
    let (go, wait) = mpsc::channel();
    provider.plays(vec![Step::Wait(wait), Step::Send(ok("", "{}").into())]);
    let mut open = Wire::to(gateway.address);
    open.send(addressed(&asked(ANNA), gateway.address).as_bytes());
    provider.saw();
    gateway.reload(&(token("bob", "") + "[limits]\nrequests = 7\n"));
    eventually("it is reloaded", || logged(&gateway, "the configuration was reloaded") == 1);
    go.send(()).expect("the provider waits");
    assert_eq!(open.answer().status(), 200);
    open.send(addressed(&asked(ANNA), gateway.address).as_bytes());
    assert_eq!(open.answer().status(), 401, "the new configuration counts for the next request");
    provider.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&asked(BOB)).status(), 200);
    provider.saw();
    let log = gateway.log();
    let line =
        log.lines().find(|line| line.contains("after a restart")).expect("what is not reloaded is told");
    assert!(line.contains("limits.requests"), "{line}");
    // What was counted before is counted still.
    let metrics = gateway.ask(&get("/metrics", BOB)).text();
    for principal in ["anna", "bob"] {
        let line =
            format!("epitome_principal_requests_total{{principal=\"{principal}\",status=\"2xx\"}} 1\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
}

#[test]
fn a_configuration_that_is_wrong_leaves_the_old_one() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], &token("anna", ""));
    let wrong = ["mode = \"loud\"\n", "[[token]]\nprincipal = \"bob\"\nenv = \"sk-canary\"\n", "mode = ["];
    for (count, file) in wrong.into_iter().enumerate() {
        gateway.reload(file);
        eventually("it says so", || logged(&gateway, "the old one stays") == count + 1);
        assert_eq!(gateway.ask(&post("/v1/messages", BOB, BODY)).status(), 401);
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&post("/v1/messages", ANNA, BODY)).status(), 200);
        provider.saw();
    }
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
    // There is no store to record into.
    let off = Gateway::with(&provider, &[], "mode = \"off\"\n");
    off.reload("mode = \"record\"\n");
    eventually("it says so", || logged(&off, "restart it") == 1);
}

#[test]
fn who_asked_is_in_the_log_the_metrics_and_the_sessions() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], &(token("anna", "") + &token("bob", "")));
    for (who, words) in [(ANNA, "one"), (ANNA, "two"), (BOB, "three")] {
        provider.answers(said("yes"));
        Talk::nameless().with(who).goes_on(&gateway, words);
    }
    eventually("all is told", || logged(&gateway, "\"principal\":\"anna\"") == 2);
    eventually("all is told", || logged(&gateway, "\"principal\":\"bob\"") == 1);
    let sessions = gateway.bench.json(&["sessions"]);
    let of = |name: &str| sessions.iter().filter(|row| row["principal"] == name).count();
    assert_eq!((of("anna"), of("bob"), sessions.len()), (2, 1, 3));
    let listed = gateway.bench.ok(&["sessions", "--principal", "bob"]);
    assert!(listed.contains("bob") && !listed.contains("anna") && listed.contains("1 session"), "{listed}");
}

fn words(turn: usize) -> String {
    let line = |number: usize| format!("{turn} {number} the quick brown fox jumps over lazy dogs; ");
    (0..60).map(line).collect()
}

/// The calls of a principal's sessions.
fn calls(gateway: &Gateway, principal: &str) -> Vec<Value> {
    let sessions = gateway.bench.json(&["sessions", "--principal", principal]);
    let ids = sessions.iter().map(|row| row["id"].as_str().expect("an id").to_owned());
    ids.flat_map(|id| gateway.bench.json(&["calls", &id])).collect()
}

#[test]
fn a_token_and_a_route_have_a_window_and_a_policy_of_their_own() {
    let provider = parrot();
    let bench = std::sync::Arc::new(super::super::harness::Bench::new());
    let file = "[compact]\nwindow = 200_000\n[routes]\n\"/v1/chat/completions\" = { mode = \"compact\", policy = \"tiered\" }\n"
        .to_owned()
        + &token("anna", "window = 6000\npolicy = \"pivot\"")
        + &token("bob", "");
    let gateway = Gateway::on(&bench, &provider.url(), &[], &file);
    for (name, who) in [("a", ANNA), ("b", BOB)] {
        let mut talk = Talk::called(name).with(who);
        for turn in 0..12 {
            talk.goes_on(&gateway, &words(turn));
        }
    }
    let recorded = Recorded::on(&bench);
    eventually("all is recorded", || recorded.endings(24).len() == 24);
    let (annas, bobs) = (calls(&gateway, "anna"), calls(&gateway, "bob"));
    assert_eq!((annas.len(), bobs.len()), (12, 12));
    // Policies are recorded by what they say.
    let recorded_by = |name: &str| {
        let policy = epitome::core::policy::Policy::named(name).expect("a policy");
        let text = serde_json::to_string(policy).expect("JSON");
        epitome::store::records::HashedText::new(text).hash.to_string()
    };
    for (calls, name) in [(&annas, "pivot"), (&bobs, "tiered")] {
        let expect = recorded_by(name);
        assert!(calls.iter().all(|call| call["policy"] == expect.as_str()), "{name}: {calls:#?}");
    }
    let largest = |calls: &[Value]| calls.iter().filter_map(|call| call["estimated"].as_u64()).max();
    assert!(largest(&annas) <= Some(6_000), "{:?}", largest(&annas));
    assert!(largest(&bobs) > Some(6_000), "{:?}", largest(&bobs));
    // More than the token's own window is refused by a header.
    let more = format!("{ANNA}x-epitome-window: 7000\r\n");
    let answer = gateway.ask(&post("/v1/chat/completions", &more, BODY));
    assert_eq!((answer.status(), answer.header("x-epitome-error")), (403, vec!["override"]));
}
