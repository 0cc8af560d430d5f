//! Models that ask back, in mode `compact`, for what was left out: they are answered on the way, and the client sees one
//! answer and nothing of it.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use epitome::{
    core::ThreadId,
    wire::{
        Format,
        legality::{self, ProviderRules},
        recall_tool::RECALL_TOOL,
    },
};
use serde_json::{Value, json};

use super::{
    http::{End, Message, PATIENCE, Wire},
    model::{Client, Ends, Says, events},
    played::{Gateway, Provider, Step, addressed, eventually, ok},
    recorded::Recorded,
    stores::{Failing, Held},
};

const RECALLING: [&str; 3] = ["--mode", "compact", "--recall"];

/// All formats, in one piece and streamed.
fn ways() -> impl Iterator<Item = (Format, bool)> {
    crate::SCRIPTED.into_iter().flat_map(|format| [(format, false), (format, true)])
}

/// A session that has begun: a user has said where the port is, and was answered.
struct Begun {
    provider: Provider,
    gateway: Gateway,
    client: Client,
    thread: ThreadId,
    is_streamed: bool,
}

impl Begun {
    fn new(format: Format, is_streamed: bool) -> Self {
        Self::with(format, is_streamed, &[])
    }

    /// Before a gateway with these flags, too.
    fn with(format: Format, is_streamed: bool, flags: &[&str]) -> Self {
        let provider = Provider::new();
        let gateway = Gateway::with(&provider, &[&RECALLING, flags].concat(), "");
        let mut client = Client::new(format, is_streamed);
        client.says("The port is 8080: keep that in mind.");
        let hello = Says { id: "hello", text: "I will.", calls: &[], ends: Ends::Well };
        provider.answers(hello.sent(format, is_streamed));
        let answer = gateway.ask(&client.request());
        assert_eq!((answer.status(), answer.end), (200, End::Chunks), "{answer:?}");
        client.heard(&answer);
        client.says("Which port was it?");
        let seen = provider.saw();
        assert_eq!(seen.header("accept-encoding"), ["identity"]);
        assert!(seen.text().contains(RECALL_TOOL), "{seen:?}");
        let thread = Recorded::on(&gateway.bench).threads()[0].id;
        Self { provider, gateway, client, thread, is_streamed }
    }

    /// What the model asks back for: what the user said first.
    fn handle(&self) -> Value {
        json!({ "handle": format!("recall {}:1-3", self.thread.short()) })
    }

    fn answers(&self, says: &Says<'_>) {
        self.provider.answers(says.sent(self.client.format, self.is_streamed));
    }

    fn asks(&self) -> Message {
        self.gateway.ask(&self.client.request())
    }

    /// The next request that came, which a provider must take.
    #[track_caller]
    fn saw(&self) -> String {
        let (format, seen) = (self.client.format, self.provider.saw());
        let found = legality::check(format, &seen.text(), &ProviderRules::of(format));
        assert!(found.is_empty(), "{format}: {found:?}\n{seen:?}");
        assert_eq!(seen.header("content-length"), [seen.body.len().to_string()]);
        seen.text()
    }

    /// All is one session on one line, and every request can be made again.
    #[track_caller]
    fn check_recorded(&self, endings: &[&str]) {
        self.check_session(endings);
        assert_eq!(Recorded::on(&self.gateway.bench).threads().len(), 1, "{}", self.client.format);
    }

    /// All is one session, and every request can be made again.
    #[track_caller]
    fn check_session(&self, endings: &[&str]) {
        let recorded = Recorded::on(&self.gateway.bench);
        assert_eq!(recorded.endings(endings.len()), endings, "{}", self.client.format);
        recorded.session();
        recorded.check_calls();
    }

    #[track_caller]
    fn check_counted(&self, recalls: usize) {
        let line = format!("epitome_recalls_total {recalls}\n");
        // It is counted after the client has its answer.
        eventually("it is counted", || self.gateway.metrics().contains(&line));
    }
}

/// What a request says, message by message, without marks of what is to be cached.
fn history(body: &str) -> Vec<Value> {
    fn unmark(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("cache_control");
                members.values_mut().for_each(unmark);
            }
            Value::Array(elements) => elements.iter_mut().for_each(unmark),
            _ => {}
        }
        let only =
            value["content"].as_array().filter(|blocks| blocks.len() == 1).map(|blocks| blocks[0].clone());
        if let Some(block) = only.filter(|block| block["type"] == "text") {
            value["content"] = block["text"].clone();
        }
    }
    let mut body: Value = serde_json::from_str(body).expect("JSON");
    let key = if body["input"].is_array() { "input" } else { "messages" };
    let mut history = body[key].take();
    unmark(&mut history);
    history.as_array().expect("a history").clone()
}

#[test]
fn a_model_is_given_back_what_it_asks_for_and_the_client_sees_one_answer() {
    for (format, is_streamed) in ways() {
        let mut begun = Begun::new(format, is_streamed);
        let calls = [(RECALL_TOOL, begun.handle())];
        begun.answers(&Says { id: "one", text: "One moment. ", calls: &calls, ends: Ends::Well });
        begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
        let answer = begun.asks();
        assert_eq!((answer.status(), answer.end), (200, End::Chunks), "{answer:?}");
        let seen = answer.text();
        assert!(!seen.contains(RECALL_TOOL), "{format}: {seen}");
        assert!(seen.contains("One moment.") && seen.contains("It is 8080."), "{format}: {seen}");
        let (first, second) = (begun.saw(), begun.provider.saw());
        assert_eq!((second.header("accept-encoding"), second.end), (vec!["identity"], End::Length));
        assert!(second.header("idempotency-key").is_empty());
        let second = second.text();
        let found = legality::check(format, &second, &ProviderRules::of(format));
        assert!(found.is_empty(), "{format}: {found:?}\n{second}");
        let (before, after) = (history(&first), history(&second));
        assert!(after.starts_with(&before), "{format}: {second}");
        let given = json!(after[before.len()..]).to_string();
        assert!(given.contains(RECALL_TOOL) && given.contains("keep that in mind"), "{format}: {given}");
        begun.check_counted(1);

        begun.client.heard(&answer);
        begun.client.says("Thank you.");
        begun.answers(&Says { id: "three", text: "You are welcome.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("You are welcome."));
        let third = begun.saw();
        assert!(history(&third).starts_with(&after), "{format}: {second}\n{third}");
        assert!(third.contains("It is 8080."), "{format}: {third}");
        assert!(begun.provider.saw_nothing());
        begun.check_recorded(&["complete", "complete", "complete"]);
    }
}

#[test]
fn an_answer_that_asks_for_nothing_passes_to_the_byte_as_far_as_it_comes() {
    for (format, is_streamed) in ways() {
        let begun = Begun::new(format, is_streamed);
        let calls = [("bash", json!({ "command": "ls" }))];
        let sent =
            Says { id: "one", text: "It is", calls: &calls, ends: Ends::Well }.sent(format, is_streamed);
        let half = sent[..sent.len() - 200].to_vec();
        // The provider's own words come without a gateway.
        let direct = |steps: Vec<Step>| {
            begun.provider.plays(steps);
            let mut wire = Wire::to(begun.provider.address);
            wire.send(addressed(&begun.client.request(), begun.provider.address).as_bytes());
            begun.provider.saw();
            wire.answer()
        };
        let packed = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 6\r\n\r\npacked".to_vec();
        for (bytes, is_broken) in [(sent, false), (half, true), (packed, false)] {
            let steps = || {
                let hang = is_broken.then_some(Step::Hang);
                [Step::Send(bytes.clone())].into_iter().chain(hang).collect::<Vec<_>>()
            };
            let expect = direct(steps());
            begun.provider.plays(steps());
            let answer = begun.asks();
            begun.provider.saw();
            // Of a chunk that breaks off, a gateway passes on what has come.
            let (told, expect) = (answer.text(), expect.text());
            assert!(told.starts_with(&expect) && (is_broken || told == expect), "{format}: {told}\n{expect}");
            assert_eq!(answer.end == End::Broken, is_broken, "{format}: {answer:?}");
        }
        begun.check_counted(0);
        let endings = Recorded::on(&begun.gateway.bench).endings(4);
        assert_eq!(endings, ["complete", "complete", "cut", "cut"], "{format}");
    }
}

#[test]
fn a_model_may_ask_several_times_but_not_forever() {
    for (format, is_streamed) in ways() {
        let begun = Begun::new(format, is_streamed);
        let calls = [(RECALL_TOOL, begun.handle())];
        for id in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            begun.answers(&Says { id, text: "Hm.", calls: &calls, ends: Ends::Well });
        }
        let answer = begun.asks();
        check_failed(&answer, format, is_streamed, 502);
        for _ in 0..9 {
            begun.saw();
        }
        assert!(begun.provider.saw_nothing());
        begun.check_counted(8);
        begun.check_recorded(&["complete", "cut"]);
    }
}

#[test]
fn a_client_answers_its_own_calls_and_those_beside_them_are_answered_here() {
    for (format, is_streamed) in ways() {
        for is_first in [true, false] {
            let mut begun = Begun::new(format, is_streamed);
            let calls = [(RECALL_TOOL, begun.handle()), ("bash", json!({ "command": "ls" }))];
            if !is_first {
                begun.answers(&Says { id: "zero", text: "Hm. ", calls: &calls[..1], ends: Ends::Well });
            }
            begun.answers(&Says { id: "one", text: "Both.", calls: &calls, ends: Ends::Well });
            let answer = begun.asks();
            assert_eq!((answer.status(), answer.end), (200, End::Chunks), "{answer:?}");
            let seen = answer.text();
            assert!(!seen.contains(RECALL_TOOL) && seen.contains("one_bash"), "{format}: {seen}");
            let sent = if is_first { begun.saw() } else { [begun.saw(), begun.saw()][1].clone() };
            begun.client.heard(&answer);
            begun.client.returns("one_bash", "main.rs");
            begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
            assert!(begun.asks().text().contains("It is 8080."));
            let (before, after) = (history(&sent), history(&begun.saw()));
            assert!(after.starts_with(&before), "{format}: {before:?}\n{after:?}");
            let given = json!(after[before.len()..]).to_string();
            for told in ["one_epitome_recall", "keep that in mind", "one_bash", "main.rs"] {
                assert!(given.contains(told), "{format}: no {told} in {given}");
            }
            begun.check_counted(if is_first { 1 } else { 2 });
            begun.check_recorded(&["complete", "complete", "complete"]);
        }
    }
}

/// The client is told that its answer does not go on.
#[track_caller]
fn check_failed(answer: &Message, format: Format, is_streamed: bool, status: u16) {
    let told = answer.text();
    assert!(!told.contains(RECALL_TOOL) && told.contains("Epitome's gateway"), "{format}: {told}");
    assert_eq!(answer.end, End::Chunks, "{format}: {told}");
    if !is_streamed {
        assert_eq!(answer.status(), status, "{format}: {told}");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert!(told["error"]["message"].is_string(), "{format}: {told}");
        return;
    }
    assert_eq!(answer.status(), 200);
    let last = events(answer).pop().expect("an event");
    match format {
        Format::OpenaiChat => assert!(last["error"].is_object(), "{told}"),
        Format::OpenaiResponses => assert_eq!(last["type"], "response.failed", "{told}"),
        Format::Anthropic => assert_eq!(last["type"], "error", "{told}"),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

#[test]
fn a_client_is_told_when_its_answer_does_not_go_on_and_may_ask_again() {
    let refused = || vec![Step::Send(b"HTTP/1.1 429 Slow Down\r\nContent-Length: 2\r\n\r\n{}".to_vec())];
    let hangs = || vec![Step::Hang];
    for (format, is_streamed) in ways() {
        let breaks = || {
            let half =
                Says { id: "half", text: "It is", calls: &[], ends: Ends::Well }.sent(format, is_streamed);
            vec![Step::Send(half[..half.len() - 200].to_vec()), Step::Hang]
        };
        let fails: [(Vec<Step>, u16, &str); 3] =
            [(refused(), 429, "refused"), (hangs(), 502, "cut"), (breaks(), 502, "cut")];
        for (steps, status, ending) in fails {
            let begun = Begun::new(format, is_streamed);
            let calls = [(RECALL_TOOL, begun.handle())];
            begun.answers(&Says { id: "one", text: "One moment.", calls: &calls, ends: Ends::Well });
            begun.provider.plays(steps);
            check_failed(&begun.asks(), format, is_streamed, status);
            begun.saw();
            begun.saw();
            begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
            assert!(begun.asks().text().contains("It is 8080."));
            assert!(begun.saw().contains("Which port was it?"), "{format}");
            // In Responses what was said on the way is an item by itself, which whoever asks again does not send.
            begun.check_session(&["complete", ending, "complete"]);
        }
    }
}

#[test]
fn what_is_given_back_may_be_too_much_and_then_the_rest_is_made_smaller() {
    let words = json!({ "error": { "message": "prompt is too long: 20000 tokens > 9000 maximum",
        "code": "context_length_exceeded", "type": "invalid_request_error" } });
    let refused = ok("Content-Type: application/json\r\n", &words.to_string());
    let refused = refused.replace("200 OK", "400 Bad Request");
    for (format, is_streamed) in ways() {
        let mut begun = Begun::new(format, is_streamed);
        for turn in 0..12 {
            let text = format!("{turn}: {}", "some long words that were said. ".repeat(100));
            begun.answers(&Says { id: &format!("turn{turn}"), text: &text, calls: &[], ends: Ends::Well });
            let answer = begun.asks();
            begun.client.heard(&answer);
            begun.client.says(&format!("Go on {turn}."));
            begun.saw();
        }
        let calls = [(RECALL_TOOL, begun.handle())];
        begun.answers(&Says { id: "one", text: "One moment. ", calls: &calls, ends: Ends::Well });
        begun.provider.answers(refused.clone());
        begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
        let answer = begun.asks();
        assert_eq!((answer.status(), answer.end), (200, End::Chunks), "{format}: {answer:?}");
        assert!(answer.text().contains("It is 8080."), "{format}: {answer:?}");
        begun.saw();
        let (second, third) = (begun.saw(), begun.saw());
        assert!(third.len() < second.len(), "{format}: {} {}", second.len(), third.len());
        let last = |body: &str| history(body).last().cloned();
        assert!(last(&third).is_some_and(|last| last.to_string().contains("keep that in mind")), "{third}");
        assert_eq!(last(&second), last(&third), "{format}");
        begun.client.heard(&answer);
        begun.client.says("Thank you.");
        begun.answers(&Says { id: "three", text: "You are welcome.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("You are welcome."));
        assert!(history(&begun.saw()).starts_with(&history(&third)), "{format}");
        begun.check_recorded(&["complete"; 15]);
    }
}

#[test]
fn calls_that_an_answer_ends_in_the_middle_of_are_left_out_for_good() {
    for (format, is_streamed) in ways() {
        for is_first in [true, false] {
            let mut begun = Begun::new(format, is_streamed);
            let calls = [(RECALL_TOOL, begun.handle())];
            if !is_first {
                begun.answers(&Says { id: "zero", text: "One moment. ", calls: &calls, ends: Ends::Well });
            }
            begun.answers(&Says { id: "one", text: "It is", calls: &calls, ends: Ends::AtTheLimit });
            let answer = begun.asks();
            assert_eq!((answer.status(), answer.end), (200, End::Chunks), "{answer:?}");
            assert!(!answer.text().contains(RECALL_TOOL), "{format}: {answer:?}");
            let sent = if is_first { begun.saw() } else { [begun.saw(), begun.saw()][1].clone() };
            begun.client.heard(&answer);
            begun.client.says("Go on.");
            begun.answers(&Says { id: "two", text: "8080.", calls: &[], ends: Ends::Well });
            assert!(begun.asks().text().contains("8080."));
            let next = begun.saw();
            assert!(history(&next).starts_with(&history(&sent)), "{format}: {sent}\n{next}");
            assert!(next.contains("It is") && !next.contains("one_epitome_recall"), "{format}: {next}");
            begun.check_recorded(&["complete", "complete", "complete"]);
        }
    }
}

#[test]
fn what_is_said_before_a_model_asks_passes_at_once_and_a_client_that_leaves_ends_it() {
    for format in crate::SCRIPTED {
        let begun = Begun::new(format, true);
        let calls = [(RECALL_TOOL, begun.handle())];
        begun.answers(&Says { id: "one", text: "One moment.", calls: &calls, ends: Ends::Well });
        let (tell, gone) = mpsc::channel();
        begun.provider.plays(vec![Step::Watch(tell)]);
        let mut wire = Wire::to(begun.gateway.address);
        wire.send(addressed(&begun.client.request(), begun.gateway.address).as_bytes());
        begun.saw();
        begun.saw();
        // Nothing was answered to the second request.
        wire.until(b"One moment.").expect("it has passed");
        drop(wire);
        gone.recv_timeout(PATIENCE).expect("the provider is told");
        begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("It is 8080."));
        begun.saw();
        begun.check_session(&["complete", "cancelled", "complete"]);
    }
}

/// The model asks back, and the store fails before it has said all; gives what the model said, in two pieces.
fn asks_while_held(begun: &Begun) -> (Held, [Vec<u8>; 2], mpsc::Sender<()>, mpsc::Receiver<()>) {
    let calls = [(RECALL_TOOL, begun.handle())];
    let says = Says { id: "one", text: "One moment. ", calls: &calls, ends: Ends::Well };
    let mut sent = says.sent(begun.client.format, begun.is_streamed);
    let end = sent.split_off(sent.len() - 300);
    let (go, wait) = mpsc::channel();
    (Held { bench: Arc::clone(&begun.gateway.bench), by: None }, [sent, end], go, wait)
}

#[test]
fn where_all_must_be_recorded_a_model_that_asks_back_while_the_store_fails_gets_nothing() {
    for (format, is_streamed) in [(Format::Anthropic, true), (Format::OpenaiChat, false)] {
        let begun = Begun::with(format, is_streamed, &["--fail-closed"]);
        let (mut store, [first, rest], go, wait) = asks_while_held(&begun);
        begun.provider.plays(vec![Step::Send(first), Step::Wait(wait), Step::Send(rest)]);
        let mut wire = Wire::to(begun.gateway.address);
        wire.send(addressed(&begun.client.request(), begun.gateway.address).as_bytes());
        begun.saw();
        store.fails();
        go.send(()).expect("the provider waits");
        check_failed(&wire.answer(), format, is_streamed, 502);
        assert!(begun.provider.saw_nothing(), "{format}");
        let missed = |metrics: &str| metrics.contains("epitome_unrecorded_total{reason=\"store\"}");
        assert!(missed(&begun.gateway.metrics()), "{format}");
        store.mends();
        begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("It is 8080."), "{format}");
        assert!(begun.saw().contains("Which port was it?"), "{format}");
        Recorded::on(&begun.gateway.bench).session();
        Recorded::on(&begun.gateway.bench).check_written();
    }
}

#[test]
fn what_a_model_said_is_kept_once_though_its_client_left_before_that_was_known_to_be_recorded() {
    let format = Format::Anthropic;
    for is_recorded in [true, false] {
        let begun = Begun::new(format, true);
        let (mut store, [first, rest], go, wait) = asks_while_held(&begun);
        begun.provider.plays(vec![Step::Send(first), Step::Wait(wait), Step::Send(rest)]);
        let mut wire = Wire::to(begun.gateway.address);
        wire.send(addressed(&begun.client.request(), begun.gateway.address).as_bytes());
        begun.saw();
        wire.until(b"One moment.").expect("it has passed");
        store.fails();
        go.send(()).expect("the provider waits");
        // The gateway tries to write it down by now.
        std::thread::sleep(Duration::from_millis(500));
        drop(wire);
        if !is_recorded {
            let missed = "epitome_unrecorded_total{reason=\"store\"} 1\n";
            eventually("it could not be", || begun.gateway.metrics().contains(missed));
        }
        store.mends();
        let recorded = Recorded::on(&begun.gateway.bench);
        assert_eq!(recorded.endings(2), ["complete", "cancelled"]);
        assert_eq!(recorded.raw(begun.thread).matches("One moment.").count(), 1, "{is_recorded}");
        begun.answers(&Says { id: "two", text: "It is 8080.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("It is 8080."));
        begun.check_session(&["complete", "cancelled", "complete"]);
    }
}

#[test]
fn a_kill_while_a_model_is_given_what_it_asks_for_loses_nothing() {
    for (format, is_streamed) in ways() {
        let mut begun = Begun::new(format, is_streamed);
        let calls = [(RECALL_TOOL, begun.handle())];
        begun.answers(&Says { id: "one", text: "One moment. ", calls: &calls, ends: Ends::Well });
        let (tell, _gone) = mpsc::channel();
        begun.provider.plays(vec![Step::Watch(tell)]);
        let mut wire = Wire::to(begun.gateway.address);
        wire.send(addressed(&begun.client.request(), begun.gateway.address).as_bytes());
        begun.saw();
        begun.saw();
        begun.gateway.child.kill().expect("it runs");
        begun.gateway.child.wait().expect("it is dead");
        drop(wire);
        let bench = Arc::clone(&begun.gateway.bench);
        // What the model said was in the log before it was given what it asked for.
        assert!(Recorded::on(&bench).raw(begun.thread).contains("One moment."), "{format}");
        begun.gateway = Gateway::on(&bench, &begun.provider.url(), &RECALLING, "");
        // The client asks once more, and so may its model.
        for id in ["two", "three"] {
            begun.answers(&Says { id, text: "Hm. ", calls: &calls, ends: Ends::Well });
        }
        begun.answers(&Says { id: "four", text: "It is 8080.", calls: &[], ends: Ends::Well });
        let answer = begun.asks();
        assert!(answer.text().contains("It is 8080."), "{format}: {answer:?}");
        for _ in 0..3 {
            begun.saw();
        }
        begun.client.heard(&answer);
        begun.client.says("Thank you.");
        begun.answers(&Says { id: "five", text: "You are welcome.", calls: &[], ends: Ends::Well });
        assert!(begun.asks().text().contains("You are welcome."));
        let last = begun.saw();
        assert!(last.contains("It is 8080.") && last.contains("keep that in mind"), "{format}: {last}");
        let recorded = Recorded::on(&bench);
        assert_eq!(recorded.endings(3), ["complete"; 3], "{format}");
        recorded.session();
        recorded.check_written();
    }
}

#[test]
fn without_the_tool_nothing_is_offered_and_nothing_withheld() {
    for (format, is_streamed) in ways() {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, "compact");
        let mut client = Client::new(format, is_streamed);
        client.says("hi");
        let calls = [(RECALL_TOOL, json!({ "query": "port" }))];
        let says = Says { id: "one", text: "Hm.", calls: &calls, ends: Ends::Well };
        provider.answers(says.sent(format, is_streamed));
        let answer = gateway.ask(&client.request());
        let seen = provider.saw();
        assert!(!seen.text().contains(RECALL_TOOL));
        assert_eq!(seen.header("accept-encoding"), ["gzip, br"]);
        assert!(answer.text().contains("one_epitome_recall"), "{answer:?}");
        assert!(provider.saw_nothing());
        assert_eq!(Recorded::on(&gateway.bench).endings(1), ["complete"]);
    }
}
