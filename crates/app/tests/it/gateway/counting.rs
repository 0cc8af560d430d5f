//! What mode `compact` does and saves, counted: held against what the provider saw and would have charged.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::harness::Bench,
    agent::{Agent, Fate, Used, WINDOW, Watchful},
    played::{Gateway, eventually, get, post},
};

/// Millionths of a dollar for a token of claude-opus-4-5: read from the cache, past it, written to it, and answered.
const READ: f64 = 0.5;
const UNCACHED: f64 = 5.0;
const WRITTEN: f64 = 6.25;
const ANSWERED: f64 = 25.0;

/// How many tokens each answer has.
const ANSWER: f64 = 20.0;

fn gateway(provider: &Watchful, flags: &[&str]) -> Gateway {
    let window = WINDOW.to_string();
    let flags = [&["--mode", "compact", "--window", &window], flags].concat();
    Gateway::on(&Arc::new(Bench::new()), &provider.url(), &flags, "")
}

/// The number of a line of the metrics; 0 if there is none.
fn count(metrics: &str, line: &str) -> f64 {
    let said = metrics.lines().find_map(|said| said.strip_prefix(line)?.strip_prefix(' '));
    said.map_or(0.0, |said| said.parse().expect("a number"))
}

fn savings(gateway: &Gateway) -> Value {
    let answer = gateway.ask(&get("/epitome/savings", ""));
    serde_json::from_str(&answer.text()).expect("JSON")
}

/// Waits until so many calls are counted; what is counted then.
#[track_caller]
fn counted(gateway: &Gateway, calls: u32) -> String {
    let total = |metrics: &str| {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix("epitome_composed_calls_total{"));
        lines.filter_map(|line| line.split_once("} ")?.1.parse::<u32>().ok()).sum::<u32>()
    };
    eventually("all calls are counted", || total(&gateway.metrics()) == calls);
    gateway.metrics()
}

#[track_caller]
fn check_near(what: &str, found: f64, expect: f64) {
    assert!((found - expect).abs() <= expect.abs() * 0.001 + 1e-6, "{what}: {found} is not {expect}");
}

/// What a request costs, in millionths of a dollar.
fn cost(read: impl Into<f64>, written: impl Into<f64>) -> f64 {
    read.into() * READ + written.into() * WRITTEN + ANSWER * ANSWERED
}

/// What the client's own requests would have cost: in the provider's count, and without a cache, for which it does not ask.
fn full(fates: &[Fate], bill: &[Used]) -> f64 {
    let costs = fates.iter().zip(bill).map(|(fate, used)| {
        let share = f64::from(used.read + used.written) / f64::from(fate.after);
        f64::from(fate.before) * share * UNCACHED + ANSWER * ANSWERED
    });
    costs.sum()
}

/// What the provider billed.
fn billed(provider: &Watchful) -> Vec<Used> {
    provider.saw(|seen| {
        let last = std::iter::once(None).chain(seen.requests.iter().map(Some));
        seen.requests.iter().zip(last).map(|(request, last)| Used::by(request, last)).collect()
    })
}

#[test]
fn a_session_that_is_compacted_is_counted_as_its_provider_bills_it() {
    let provider = Watchful::new(|_| Vec::new());
    let gateway = gateway(&provider, &[]);
    let mut agent = Agent::anthropic("x-session-id: one\r\n");
    let fates: Vec<Fate> = (0..90).map(|_| agent.goes_on(&gateway)).collect();
    let metrics = counted(&gateway, 90);
    let check = |line: &str, expect: f64| check_near(line, count(&metrics, line), expect);
    let sum = |of: fn(&Fate) -> u32| f64::from(fates.iter().map(of).sum::<u32>());
    check("epitome_composed_calls_total{left=\"composed\"}", 90.0);
    check("epitome_composed_tokens_total{sent=\"full\"}", sum(|fate| fate.before));
    check("epitome_composed_tokens_total{sent=\"policy\"}", sum(|fate| fate.after));
    let because =
        |words: &str| fates.iter().map(|fate| f64::from(fate.cause.as_deref() == Some(words))).sum::<f64>();
    let causes = [("force", "over the limit"), ("trigger", "over the trigger"), ("break_even", "it pays")];
    for (name, words) in causes {
        check(&format!("epitome_composed_epochs_total{{cause=\"{name}\"}}"), because(words));
    }
    let resets: f64 = causes.iter().map(|(_, words)| because(words)).sum();
    assert!(resets >= 2.0, "{fates:?}");
    check("epitome_composed_resets_total", resets);
    check("epitome_compactions_adopted_total{by=\"built_in\",trigger=\"threshold\"}", resets);
    assert!(!metrics.contains("by=\"model\"") && !metrics.contains("outcome=\"failed\""));
    // Money: what the provider billed, and what it would have.
    let bill = billed(&provider);
    let full = full(&fates, &bill);
    let read = bill.iter().map(|used| f64::from(used.read)).sum();
    let cost: f64 = bill.iter().map(|used| cost(used.read, used.written)).sum();
    let money = |sent: &str| {
        format!("epitome_composed_cost_microdollars_total{{model=\"claude-opus-4-5\",sent=\"{sent}\"}}")
    };
    check(&money("policy"), cost);
    check(&money("full"), full);
    check("epitome_composed_input_tokens_total{arm=\"treated\",kind=\"read\"}", read);
    let page = savings(&gateway);
    let treated = &page["treated"];
    assert_eq!(
        (&treated["sessions"], &treated["calls"], &page["held_out"]["calls"]),
        (&1.into(), &90.into(), &0.into())
    );
    check_near("cost", treated["cost_dollars"].as_f64().expect("a number"), cost / 1e6);
    check_near("full", treated["cost_full_dollars"].as_f64().expect("a number"), full / 1e6);
    let saved = page["estimated"]["point"].as_f64().expect("a share");
    check_near("saved", saved, 1.0 - cost / full);
    assert!(saved > 0.2, "{saved}");
}

#[test]
fn a_session_that_needs_no_compaction_saves_what_the_marks_do_that_its_client_does_not_place() {
    let provider = Watchful::new(|_| Vec::new());
    let gateway = gateway(&provider, &[]);
    let mut agent = Agent::anthropic("x-session-id: one\r\n");
    let fates: Vec<Fate> = (0..5).map(|_| agent.goes_on(&gateway)).collect();
    assert!(fates.iter().all(|fate| fate.before == fate.after), "{fates:?}");
    counted(&gateway, 5);
    let saved = savings(&gateway)["estimated"]["point"].as_f64().expect("a share");
    let bill = billed(&provider);
    let paid: f64 = bill.iter().map(|used| cost(used.read, used.written)).sum();
    check_near("saved", saved, 1.0 - paid / full(&fates, &bill));
}

#[test]
fn sessions_that_are_held_out_go_on_as_they_came_and_are_counted_apart() {
    let provider = Watchful::new(|_| Vec::new());
    let gateway = gateway(&provider, &["--holdout", "0.5"]);
    let (mut held_out, mut composed) = (0_u32, 0_u32);
    for number in 0..64 {
        let mut agent = Agent::anthropic(&format!("x-session-id: s-{number}\r\n"));
        for _ in 0..2 {
            let sent = agent.body();
            match agent.goes_on(&gateway).left.as_str() {
                "held-out" => {
                    held_out += 1;
                    provider.saw(|seen| assert_eq!(seen.requests.last().expect("one").text(), sent));
                }
                "composed" => composed += 1,
                left => panic!("{left}"),
            }
        }
        if held_out > 0 && composed > 0 {
            break;
        }
    }
    let metrics = counted(&gateway, held_out + composed);
    let check = |line: &str, expect: u32| check_near(line, count(&metrics, line), f64::from(expect));
    check("epitome_composed_calls_total{left=\"held-out\"}", held_out);
    check("epitome_composed_calls_total{left=\"composed\"}", composed);
    check("epitome_composed_sessions{arm=\"held_out\"}", held_out / 2);
    check("epitome_composed_sessions{arm=\"treated\"}", composed / 2);
    assert!(count(&metrics, "epitome_composed_input_tokens_total{arm=\"held_out\",kind=\"written\"}") > 0.0);
    let page = savings(&gateway);
    assert_eq!((&page["held_out"]["calls"], &page["treated"]["calls"]), (&held_out.into(), &composed.into()));
    assert!(page["held_out"]["cost_dollars"].as_f64().is_some_and(|cost| cost > 0.0), "{page}");
}

#[test]
fn a_title_is_counted_and_is_no_session_of_its_own() {
    let provider = Watchful::new(|_| Vec::new());
    let gateway = gateway(&provider, &[]);
    let body = r#"{"model":"m","messages":[{"role":"system","content":"You are a title generator."},{"role":"user","content":"x"}]}"#;
    assert_eq!(gateway.ask(&post("/v1/chat/completions", "x-session-id: ses_1\r\n", body)).status(), 200);
    let metrics = counted(&gateway, 1);
    assert!(metrics.contains("epitome_composed_calls_total{left=\"aside\"} 1\n"), "{metrics}");
    assert!(metrics.contains("epitome_composed_sessions{arm=\"treated\"} 0\n"), "{metrics}");
}
