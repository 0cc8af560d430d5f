//! Sessions that were compacted on the road: what goes on is the same after a kill, fits whatever the client or its provider
//! does, and is on record call by call.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use epitome::wire::{
    Format,
    legality::{self, ProviderRules},
};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    composing::{PATHS, fate},
    http::Message,
    played::{Gateway, Parrot, Provider, Step, eventually, ok, post},
    recorded::Recorded,
    stores::{Failing, Held},
    talk::{STREAM, Talk, last, one, parrot, piece, said, told},
};

/// A window that a few turns fill.
const WINDOW: &str = "x-epitome-window: 12000\r\n";

/// What no request may cost, with the room that is left for an answer.
const MOST: u64 = 12_000;

const COMPACT: [&str; 2] = ["--mode", "compact"];

fn words(turn: usize) -> String {
    format!("question {turn}: {}", "some long words that were said. ".repeat(90))
}

/// A number that an answer's header tells of its request.
#[track_caller]
fn tells(answer: &Message, key: &str) -> u64 {
    let fate = fate(answer);
    let value = fate.split(", ").find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {fate}"))
}

#[track_caller]
fn check_legal(format: Format, body: &[u8]) {
    let body = str::from_utf8(body).expect("UTF-8");
    let found = legality::check(format, body, &ProviderRules::of(format));
    assert!(found.is_empty(), "{found:?}\n{body}");
}

/// Asks, is answered, and keeps the answer; gives what the provider saw and what the client got.
#[track_caller]
fn goes_on(gateway: &Gateway, provider: &Provider, talk: &mut Talk, turn: usize) -> (Vec<u8>, Message) {
    provider.answers(said(&format!("answer {turn}")));
    talk.says(&words(turn));
    let answer = talk.asks(gateway).answer();
    assert_eq!(answer.status(), 200, "{answer:?}");
    talk.heard(&format!("answer {turn}"));
    let seen = provider.saw().body;
    check_legal(Format::OpenaiChat, &seen);
    assert!(tells(&answer, "after") <= MOST, "{answer:?}");
    (seen, answer)
}

/// What a provider sees of a session, whose gateway may be killed whenever a compaction has just been adopted.
fn sent(is_killed: bool) -> Vec<Vec<u8>> {
    const TURNS: usize = 36;
    let (provider, bench) = (Provider::new(), Arc::new(Bench::new()));
    let start = || Gateway::on(&bench, &provider.url(), &COMPACT, "");
    let mut gateway = start();
    let mut talk = Talk::called("s-1").with(WINDOW);
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let mut kills = 0;
    for turn in 0..TURNS {
        let (go, wait) = mpsc::channel();
        provider.plays(vec![Step::Wait(wait), Step::Send(said(&format!("answer {turn}")).into())]);
        talk.says(&words(turn));
        let mut wire = talk.asks(&gateway);
        let mut seen = provider.saw().body;
        let is_compacted = bodies.last().is_some_and(|last| seen.len() < last.len());
        if is_killed && is_compacted {
            kills += 1;
            gateway.child.kill().expect("it runs");
            gateway.child.wait().expect("it is dead");
            drop(go);
            gateway = start();
            provider.answers(said(&format!("answer {turn}")));
            let answer = talk.asks(&gateway).answer();
            assert_eq!(answer.status(), 200, "{answer:?}");
            // It is the same request, which extends what was sent before.
            assert!(!fate(&answer).contains("cause="), "{answer:?}");
            let again = provider.saw().body;
            assert!(again == seen, "turn {turn}");
            seen = again;
        } else {
            go.send(()).expect("the provider waits");
            assert_eq!(wire.answer().status(), 200);
        }
        talk.heard(&format!("answer {turn}"));
        check_legal(Format::OpenaiChat, &seen);
        bodies.push(seen);
    }
    assert!(!is_killed || kills > 1, "{kills}");
    let recorded = Recorded::on(&bench);
    assert_eq!((recorded.session().threads, recorded.calls().len()), (1, TURNS + kills));
    // Whoever is killed cannot say how it ended.
    let ended = recorded.calls().iter().filter(|row| !row.outcomes.is_empty()).count();
    assert_eq!(ended, TURNS);
    recorded.check_written();
    bodies
}

#[test]
fn a_kill_after_a_compaction_was_adopted_changes_no_byte_of_what_follows() {
    let (steady, killed) = (sent(false), sent(true));
    for (turn, (one, other)) in steady.iter().zip(&killed).enumerate() {
        assert!(one == other, "turn {turn}");
    }
}

#[test]
fn in_mode_record_every_request_can_be_shown_again() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let mut talk = Talk::called("s-1");
    let mut bodies = Vec::new();
    for turn in 0..4 {
        provider.answers(said(&format!("answer {turn}")));
        talk.says(&words(turn));
        assert_eq!(talk.asks(&gateway).answer().status(), 200);
        talk.heard(&format!("answer {turn}"));
        bodies.push(String::from_utf8(provider.saw().body).expect("UTF-8"));
    }
    let recorded = Recorded::on(&gateway.bench);
    recorded.check_calls();
    let session = recorded.session().id.to_string();
    let rows = gateway.bench.json(&["calls", &session]);
    assert_eq!(rows.len(), bodies.len());
    assert!(rows.iter().all(|row| row["relayed"] == true), "{rows:?}");
    assert!(gateway.bench.ok(&["calls", &session]).contains("relayed"));
    for (number, body) in bodies.iter().enumerate() {
        let again = gateway.bench.ok(&["replay-call", &session, &number.to_string(), "--body"]);
        assert_eq!(again.trim_end(), body);
    }
    gateway.bench.ok(&["replay-call", &session, "--all"]);
}

#[test]
fn a_long_first_request_goes_on_as_it_came_and_is_on_record_with_its_answer() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1");
    let mut bodies = Vec::new();
    for turn in 0..2 {
        provider.answers(said(&format!("answer {turn}")));
        talk.says(&format!("{turn}: {}", "some long words that were said. ".repeat(2_000)));
        let answer = talk.asks(&gateway).answer();
        assert_eq!(answer.status(), 200);
        // Whether the first was counted by then, nobody knows.
        assert!(fate(&answer).contains("left=composed"), "{answer:?}");
        talk.heard(&format!("answer {turn}"));
        bodies.push(String::from_utf8(provider.saw().body).expect("UTF-8"));
    }
    let recorded = Recorded::on(&gateway.bench);
    recorded.check_calls();
    assert_eq!(recorded.endings(2), ["complete", "complete"]);
    let session = recorded.session().id.to_string();
    for (number, body) in bodies.iter().enumerate() {
        let again = gateway.bench.ok(&["replay-call", &session, &number.to_string(), "--body"]);
        assert_eq!(again.trim_end(), body);
    }
    let counted = "epitome_composed_calls_total{left=\"composed\"} 2";
    eventually("both are counted", || gateway.metrics().contains(counted));
}

#[test]
fn what_is_shown_of_a_session_goes_by_the_window_of_its_gateway() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1").with(WINDOW);
    for turn in 0..3 {
        goes_on(&gateway, &provider, &mut talk, turn);
    }
    let session = Recorded::on(&gateway.bench).session().id.to_string();
    for command in ["context", "explain"] {
        let told = gateway.bench.json(&[command, &session]).remove(0);
        assert!(told["budget"].as_u64().is_some_and(|budget| budget < MOST), "{command}: {told}");
        let said = gateway.bench.ok(&[command, &session]);
        assert!(said.contains("12000 tokens that its calls were made for"), "{command}: {said}");
    }
}

#[test]
fn a_client_that_goes_back_asks_again_and_changes_its_mind_is_forked_and_fits() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1").with(WINDOW);
    for turn in 0..14 {
        goes_on(&gateway, &provider, &mut talk, turn);
    }
    // The last answer again; other words for the last; far back; and on from there.
    for (number, messages) in [27, 26, 25, 10, 5].into_iter().enumerate() {
        talk.goes_back_to(messages);
        if messages % 2 == 1 {
            provider.answers(said(&format!("another answer {number}")));
            let answer = talk.asks(&gateway).answer();
            assert_eq!(answer.status(), 200, "{answer:?}");
            assert!(fate(&answer).contains("left=composed"), "{answer:?}");
            check_legal(Format::OpenaiChat, &provider.saw().body);
            talk.heard(&format!("another answer {number}"));
        }
        for turn in 0..4 {
            goes_on(&gateway, &provider, &mut talk, 100 * (number + 1) + turn);
        }
    }
    let recorded = Recorded::on(&gateway.bench);
    assert_eq!(recorded.session().threads, 6, "{:#?}", recorded.threads());
    recorded.check_calls();
}

#[test]
fn two_clients_of_one_session_at_once_are_both_answered_and_both_on_record() {
    const ROUNDS: usize = 16;
    // Of one gateway, or of two on one database.
    for (is_same, is_one) in [(true, true), (false, true), (true, false), (false, false)] {
        let (provider, bench) = (parrot(), Arc::new(Bench::new()));
        let gateways = [0; 2].map(|_| Gateway::on(&bench, &provider.url(), &COMPACT, ""));
        let first = words(1_000);
        let mut begins = Talk::called("s-1").with(WINDOW);
        let answer = begins.goes_on(&gateways[0], &first);
        let mut history = vec![first, answer];
        let talk = |history: &[String]| {
            let mut talk = Talk::called("s-1").with(WINDOW);
            for (number, words) in history.iter().enumerate() {
                if number % 2 == 0 { talk.says(words) } else { talk.heard(words) }
            }
            talk
        };
        for round in 0..ROUNDS {
            let barrier = Barrier::new(2);
            let answers = thread::scope(|scope| {
                let clients = [0, 1].map(|number| {
                    let gateway = if is_one { &gateways[0] } else { &gateways[number] };
                    let (mut talk, barrier) = (talk(&history), &barrier);
                    let turn = if is_same { round } else { 2 * round + number };
                    scope.spawn(move || {
                        talk.says(&words(turn));
                        barrier.wait();
                        let answer = talk.asks(gateway).answer();
                        assert_eq!(answer.status(), 200, "{answer:?}");
                        assert!(tells(&answer, "after") <= MOST, "{answer:?}");
                        (words(turn), told(&answer).expect("a whole answer"))
                    })
                });
                clients.map(|client| client.join().expect("no panic"))
            });
            // They go on with what one of them was told.
            let [(words, answer), _] = answers;
            history.extend([words, answer]);
        }
        let recorded = Recorded::on(&bench);
        assert_eq!(recorded.endings(1 + 2 * ROUNDS), vec!["complete"; 1 + 2 * ROUNDS]);
        recorded.session();
        recorded.check_calls();
        let stories: Vec<_> = recorded.threads().iter().map(|thread| recorded.story(thread.id)).collect();
        assert!(stories.contains(&history), "{} threads", stories.len());
    }
}

#[test]
fn sessions_that_go_from_gateway_to_gateway_are_compacted_as_one() {
    let (provider, bench) = (Provider::new(), Arc::new(Bench::new()));
    let gateways = [0; 2].map(|_| Gateway::on(&bench, &provider.url(), &COMPACT, ""));
    let mut talk = Talk::called("s-1").with(WINDOW);
    let mut before: Vec<u8> = Vec::new();
    for turn in 0..24 {
        let (seen, answer) = goes_on(&gateways[turn / 2 % 2], &provider, &mut talk, turn);
        if !fate(&answer).contains("cause=") {
            let history = |body: &[u8]| -> Vec<Value> {
                let body: Value = serde_json::from_slice(body).expect("JSON");
                body["messages"].as_array().expect("messages").clone()
            };
            assert!(before.is_empty() || history(&seen).starts_with(&history(&before)), "turn {turn}");
        }
        before = seen;
    }
    let recorded = Recorded::on(&bench);
    assert_eq!((recorded.session().threads, recorded.calls().len()), (1, 24));
    recorded.check_calls();
}

#[test]
fn killed_under_load_the_gateway_goes_on_with_every_session_that_it_compacted() {
    const CLIENTS: usize = 4;
    let (provider, bench) = (parrot(), Arc::new(Bench::new()));
    let flags = ["--mode", "compact", "--fail-closed"];
    let mut gateway = Gateway::on(&bench, &provider.url(), &flags, "");
    let mut talks: Vec<Talk> =
        (0..CLIENTS).map(|number| Talk::called(&format!("s-{number}")).with(WINDOW)).collect();
    for round in 0..3 {
        let whole = AtomicUsize::new(0);
        thread::scope(|scope| {
            for talk in &mut talks {
                let (address, whole) = (gateway.address, &whole);
                scope.spawn(move || {
                    for turn in 0.. {
                        talk.says_next(&words(100 * round + turn));
                        let Some(answer) = talk.asks_if_there(address).as_ref().and_then(told) else { break };
                        talk.heard(&answer);
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("many answers have come", || whole.load(Ordering::Relaxed) >= 8 * CLIENTS);
            gateway.child.kill().expect("it runs");
        });
        gateway.child.wait().expect("it is dead");
        gateway = Gateway::on(&bench, &provider.url(), &flags, "");
    }
    for talk in &talks {
        let answer = talk.asks(&gateway).answer();
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert!(tells(&answer, "after") <= MOST && fate(&answer).contains("left=composed"), "{answer:?}");
    }
    let recorded = Recorded::on(&bench);
    assert_eq!(recorded.sessions().len(), CLIENTS);
    assert!(recorded.sessions().iter().all(|session| session.compactions > 0));
    recorded.check_written();
    let healthy = bench.json(&["doctor"]).remove(0);
    assert_eq!(healthy["healthy"], true, "{healthy:#}");
}

/// A provider that takes less than anybody says: so much, at four bytes to a token. What it says that it takes is another
/// matter.
fn narrow(most: usize, says: usize, refused: &Arc<AtomicUsize>) -> Parrot {
    let refused = Arc::clone(refused);
    Parrot::new(move |request| {
        check_legal(Format::OpenaiChat, &request.body);
        let asked = request.body.len() / 4;
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let is_streamed = body["stream"] == true;
        if asked <= most {
            return if is_streamed {
                vec![STREAM.as_bytes().to_vec(), piece("fine"), last()]
            } else {
                vec![said("fine").into_bytes()]
            };
        }
        refused.fetch_add(1, Ordering::Relaxed);
        let why = format!(
            "This model's maximum context length is {says} tokens. However, your messages resulted in {asked} tokens."
        );
        let error = json!({ "error": { "message": why, "code": "context_length_exceeded" } }).to_string();
        if is_streamed {
            return vec![
                STREAM.as_bytes().to_vec(),
                one(&format!("data: {error}\n\n")),
                b"0\r\n\r\n".to_vec(),
            ];
        }
        let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", error.len());
        vec![format!("{head}{error}").into_bytes()]
    })
}

#[test]
fn a_provider_that_takes_less_than_its_window_is_asked_for_less_from_then_on() {
    for is_streamed in [false, true] {
        let refused = Arc::default();
        let provider = narrow(9_000, 9_000, &refused);
        let bench = Arc::new(Bench::new());
        let mut gateway = Gateway::on(&bench, &provider.url(), &COMPACT, "");
        let mut talk = Talk::called("s-1").with("x-epitome-window: 100000\r\n");
        if is_streamed {
            talk = talk.streamed();
        }
        for turn in 0..30 {
            if turn == 20 {
                // What was learned is not forgotten.
                gateway = Gateway::on(&bench, &provider.url(), &COMPACT, "");
            }
            assert_eq!(talk.goes_on(&gateway, &words(turn)), "fine", "turn {turn}");
        }
        let times = refused.load(Ordering::Relaxed);
        assert!(times == 1 || times == 2, "{times}: it is learned by being told");
        let recorded = Recorded::on(&bench);
        assert_eq!(recorded.endings(30), vec!["complete"; 30]);
        assert_eq!(recorded.calls().len(), 30 + times);
        recorded.check_calls();
    }
}

#[test]
fn a_request_that_is_too_long_even_when_it_is_smaller_is_refused_and_its_session_goes_on() {
    for is_streamed in [false, true] {
        let refused = Arc::default();
        let provider = narrow(0, 3_000, &refused);
        let bench = Arc::new(Bench::new());
        let gateway = Gateway::on(&bench, &provider.url(), &COMPACT, "");
        let mut talk = Talk::called("s-1").with(WINDOW);
        if is_streamed {
            talk = talk.streamed();
        }
        for turn in 0..8 {
            talk.says(&words(turn));
            talk.heard("fine");
        }
        talk.says("and now?");
        let answer = talk.asks(&gateway).answer();
        assert_eq!(answer.status(), if is_streamed { 200 } else { 400 }, "{answer:?}");
        assert!(answer.text().contains("maximum context length is 3000 tokens"), "{answer:?}");
        assert_eq!(refused.load(Ordering::Relaxed), 2);
        let recorded = Recorded::on(&bench);
        let endings = recorded.endings(1);
        assert_eq!((endings.len(), recorded.calls().len()), (1, 2), "{endings:?}");
        recorded.check_calls();
    }
}

#[test]
fn what_was_composed_too_late_is_said_to_have_never_left() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1").with(WINDOW);
    for turn in 0..14 {
        goes_on(&gateway, &provider, &mut talk, turn);
    }
    let recorded = Recorded::on(&gateway.bench);
    let calls = recorded.calls().len();
    let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
    store.fails();
    let (go, wait) = mpsc::channel();
    provider.plays(vec![Step::Wait(wait), Step::Send(said("late").into())]);
    // So much that something is decided for it.
    talk.says(&"And what of all this now? ".repeat(1_000));
    let mut wire = talk.asks(&gateway);
    let whole = provider.saw();
    assert!(talk.request().ends_with(&whole.text()));
    store.mends();
    eventually("it is composed", || recorded.calls().len() > calls);
    go.send(()).expect("the provider waits");
    let answer = wire.answer();
    assert_eq!((answer.status(), fate(&answer).as_str()), (200, "left=unrecorded"));
    talk.heard("late");
    recorded.check_calls();
    let late = recorded.calls().pop().expect("a call");
    assert_eq!(late.outcomes.len(), 1, "{late:#?}");
    assert!(late.outcomes[0].error.as_deref().is_some_and(|error| error.starts_with("never left")));
    // And the session goes on, composed.
    let (seen, _) = goes_on(&gateway, &provider, &mut talk, 15);
    assert!(seen.len() < whole.body.len());
    assert_eq!(recorded.session().threads, 1);
    recorded.check_calls();
}

fn request(format: Format, path: &str, history: &[Value], is_streamed: bool, headers: &str) -> String {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let headers = format!("x-session-id: s-1\r\n{headers}");
    let body = json!({ "model": "m", "max_tokens": 100, "stream": is_streamed, key: history });
    post(path, &headers, &body.to_string())
}

/// A long conversation, in any format.
fn history(turns: usize) -> Vec<Value> {
    let say = |role: &str, text: String| json!({ "role": role, "content": text });
    let turn = |turn| [say("user", words(turn)), say("assistant", format!("answer {turn}"))];
    (0..turns).flat_map(turn).collect()
}

/// An answer in each format.
fn answered(format: Format, words: &str) -> String {
    let body = match format {
        Format::OpenaiChat => return said(words),
        Format::OpenaiResponses => {
            json!({ "id": "r", "object": "response", "status": "completed", "output": [
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": words }] },
        ] })
        }
        Format::Anthropic => json!({ "id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": words }], "stop_reason": "end_turn" }),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    ok("Content-Type: application/json\r\n", &body.to_string())
}

#[test]
fn whoever_asks_for_a_compaction_is_answered_here_and_goes_on_with_it() {
    for (format, path) in PATHS {
        for is_streamed in [false, true] {
            for (words, headers) in
                [("/compact the parser", ""), ("is it so?", "x-epitome-compact: the%20parser\r\n")]
            {
                let provider = Provider::new();
                let gateway = Gateway::with(&provider, &COMPACT, "[compact]\ncommand = \"/compact\"\n");
                let mut history = history(9);
                let say = |role: &str, text: &str| json!({ "role": role, "content": text });
                history.push(say("user", words));
                let answer =
                    gateway.ask(&request(format, path, &history, is_streamed, &format!("{WINDOW}{headers}")));
                assert_eq!((answer.status(), fate(&answer).as_str()), (200, "left=answered"), "{answer:?}");
                let read = if is_streamed {
                    format.read_answer_stream(&answer.body)
                } else {
                    format.read_answer(&answer.text())
                };
                let told = read.expect("an answer").text();
                assert!(told.starts_with("Compacted: "), "{told}");
                assert!(provider.saw_nothing());
                let adopted = "epitome_compactions_adopted_total{by=\"built_in\",trigger=\"manual\"} 1";
                assert!(gateway.metrics().contains(adopted), "{}", gateway.metrics());

                history.extend([say("assistant", &told), say("user", "go on")]);
                provider.answers(answered(format, "gladly"));
                let whole = request(format, path, &history, false, WINDOW);
                let answer = gateway.ask(&whole);
                assert_eq!(answer.status(), 200, "{answer:?}");
                assert!(tells(&answer, "after") < tells(&answer, "before"), "{answer:?}");
                let seen = provider.saw();
                check_legal(format, &seen.body);
                assert!(seen.body.len() < whole.len() && seen.text().contains("go on"));
                let recorded = Recorded::on(&gateway.bench);
                assert_eq!(recorded.session().threads, 1);
                assert_eq!(recorded.endings(2), ["complete", "complete"]);
                recorded.check_calls();
            }
        }
    }
}

#[test]
fn a_compaction_that_could_not_be_written_is_asked_for_again_in_its_session() {
    let (format, path) = PATHS[0];
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &COMPACT, "[compact]\ncommand = \"/compact\"\n");
    let mut history = history(9);
    history.push(json!({ "role": "user", "content": "/compact" }));
    let asks = || {
        let answer = gateway.ask(&request(format, path, &history, false, WINDOW));
        assert_eq!(answer.status(), 200, "{answer:?}");
        format.read_answer(&answer.text()).expect("an answer").text()
    };
    let database = Connection::open(gateway.bench.path("log.db")).expect("a database");
    let refuse = "CREATE TRIGGER test BEFORE INSERT ON events WHEN NEW.kind = 'compacted'
        BEGIN SELECT raise(ABORT, 'not now'); END;";
    database.execute_batch(refuse).expect("a trigger");
    let told = asks();
    assert!(told.contains("perhaps nothing was compacted"), "{told}");
    database.execute_batch("DROP TRIGGER test").expect("it is there");
    let told = asks();
    assert!(told.starts_with("Compacted: "), "{told}");
    assert!(provider.saw_nothing());
    Recorded::on(&gateway.bench).session();
}

#[test]
fn what_a_provider_is_to_compact_itself_goes_on_as_it_came_and_its_session_goes_on() {
    let (format, path) = (Format::OpenaiResponses, "/v1/responses");
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut history = history(14);
    history.push(json!({ "role": "user", "content": "and now?" }));
    provider.answers(answered(format, "this"));
    assert_eq!(gateway.ask(&request(format, path, &history, false, WINDOW)).status(), 200);
    provider.saw();
    history.extend([
        json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "this" }] }),
        json!({ "role": "user", "content": "and then?" }),
    ]);
    let sealed = json!({ "type": "compaction", "encrypted_content": "sealed-and-long-enough-to-be-known" });
    let answer = json!({ "id": "cmp", "object": "response.compaction", "output": [sealed] });
    provider.answers(ok("Content-Type: application/json\r\n", &answer.to_string()));
    let whole = request(format, "/v1/responses/compact", &history, false, WINDOW);
    let answer = gateway.ask(&whole);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(fate(&answer).contains("left=own-summary"), "{answer:?}");
    let seen = provider.saw();
    assert_eq!(seen.line, "POST /v1/responses/compact HTTP/1.1");
    check_legal(format, &seen.body);
    assert!(whole.ends_with(&seen.text()), "it is sent as it came");

    let after = [sealed, json!({ "role": "user", "content": "go on" })];
    provider.answers(answered(format, "gladly"));
    let short = request(format, path, &after, false, WINDOW);
    assert_eq!(gateway.ask(&short).status(), 200);
    assert!(short.ends_with(&provider.saw().text()));
    let recorded = Recorded::on(&gateway.bench);
    assert_eq!(recorded.endings(3).len(), 3);
    recorded.session();
    recorded.check_calls();
}

#[test]
fn whoever_manages_the_context_itself_is_left_alone_with_its_providers_errors() {
    let managed = json!({ "edits": [{ "type": "clear_tool_uses_20250919" }] });
    let history = [&history(14)[..], &[json!({ "role": "user", "content": "and now?" })]].concat();
    let anthropic =
        json!({ "model": "m", "max_tokens": 9, "messages": history, "context_management": managed });
    let remote = json!({ "model": "m", "input": history, "previous_response_id": "resp_1" });
    let error = json!({ "type": "error", "error": { "type": "invalid_request_error",
        "code": "context_length_exceeded", "message": "prompt is too long: 20000 tokens > 10000 maximum" } });
    let error = error.to_string();
    for (path, body, left) in
        [("/v1/messages", anthropic, "left=managed"), ("/v1/responses", remote, "left=remote")]
    {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, "compact");
        let body = body.to_string();
        let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", error.len());
        provider.answers(format!("{head}{error}"));
        let answer = gateway.ask(&post(path, WINDOW, &body));
        assert_eq!((answer.status(), answer.text()), (400, error.clone()));
        assert!(fate(&answer).contains(left), "{answer:?}");
        assert_eq!(provider.saw().text(), body);
        assert!(provider.saw_nothing());
        assert_eq!(Recorded::on(&gateway.bench).endings(1), ["refused"]);
    }
}
