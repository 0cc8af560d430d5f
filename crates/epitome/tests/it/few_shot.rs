//! Examples that a client brings along with its first request: they outlast compactions as a system prompt does, and go only
//! where nothing else makes a request fit.

use epitome::{
    core::Tokens,
    rewrite::RewriteStatus,
    wire::{Format, legality},
};
use serde_json::{Value, json};

use super::compose::{Gateway, sent};

/// What each message of an example says.
fn example(number: usize) -> [String; 2] {
    let ticket = format!(
        "Ticket {number}: the printer on floor {number} is out of paper again, and tray {number} jams. "
    );
    [ticket.repeat(3), format!("hardware, floor {number}, tray {number}")]
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// A conversation that begins with examples.
struct Talk {
    format: Format,
    examples: usize,
    said: Vec<Value>,
}

impl Talk {
    fn new(format: Format, examples: usize) -> Self {
        let pairs = (0..examples).flat_map(|number| {
            let [asked, answered] = example(number);
            [message("user", &asked), message("assistant", &answered)]
        });
        Self { format, examples, said: pairs.collect() }
    }

    fn body(&self) -> String {
        let said = &self.said;
        match self.format {
            Format::Anthropic => {
                json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "Sort tickets.", "messages": said})
            }
            Format::OpenaiChat => {
                let system = [message("system", "Sort tickets.")];
                let all: Vec<&Value> = system.iter().chain(said).collect();
                json!({"model": "gpt-4.1", "max_tokens": 100, "messages": all})
            }
            Format::OpenaiResponses => json!({"model": "gpt-4.1", "max_output_tokens": 100,
                "instructions": "Sort tickets.", "input": said, "store": false}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
        .to_string()
    }

    fn answer(&mut self, text: &str) -> Value {
        self.said.push(message("assistant", text));
        let number = self.said.len();
        match self.format {
            Format::Anthropic => json!({"id": format!("m{number}"), "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "content": [{"type": "text", "text": text}],
                "usage": {"input_tokens": 5, "output_tokens": 2}}),
            Format::OpenaiChat => {
                json!({"id": format!("c{number}"), "object": "chat.completion", "created": 1,
                "model": "gpt-4.1",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]})
            }
            Format::OpenaiResponses => {
                json!({"id": format!("r{number}"), "object": "response", "created_at": 1,
                "model": "gpt-4.1", "status": "completed", "output": [{"type": "message", "id": format!("msg{number}"),
                "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}]})
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    /// Which examples a request holds as their client wrote them.
    fn shown(&self, sent: &str) -> usize {
        let body: Value = serde_json::from_str(sent).unwrap();
        let list = if self.format == Format::OpenaiResponses { "input" } else { "messages" };
        // Whoever places a mark writes a text as a block.
        let plain = |message: &Value| {
            let content = &message["content"];
            let text = content.as_str().or_else(|| content[0]["text"].as_str());
            (message["role"].clone(), text.map(str::to_owned))
        };
        let list: Vec<_> = body[list].as_array().unwrap().iter().map(plain).collect();
        let held = |message: &Value| list.contains(&plain(message));
        (0..self.examples).filter(|number| self.said[2 * number..2 * number + 2].iter().all(held)).count()
    }
}

const WINDOW: u64 = 12_000;
const EXAMPLES: usize = 50;

fn gateway() -> Gateway {
    let mut gateway = Gateway::new();
    gateway.composing.window = Some(Tokens(WINDOW));
    gateway
}

fn long(number: usize) -> String {
    let words: Vec<String> = (0..450).map(|word| format!("part{number}x{word}")).collect();
    format!("Ticket {number} says: {}", words.join(" "))
}

#[test]
fn examples_a_system_prompt_and_the_newest_words_outlast_every_compaction() {
    for format in crate::SCRIPTED {
        let mut gateway = gateway();
        let mut talk = Talk::new(format, EXAMPLES);
        let mut compactions = 0;
        for turn in 0..16 {
            if turn == 8 {
                gateway = gateway.restarted();
            }
            let asked = long(1_000 + turn);
            talk.said.push(message("user", &asked));
            let body = talk.body();
            let (ticket, outgoing) = gateway.forward(format, &body);
            let woven = sent(&outgoing, &body);
            assert_eq!(talk.shown(&woven), EXAMPLES, "{format}, turn {turn}: {:?}", outgoing.done);
            assert!(woven.contains("Sort tickets.") && woven.contains(&asked), "{format}, turn {turn}");
            assert_eq!(
                legality::check(format, &woven, &legality::ProviderRules::of(format)),
                [],
                "{format}, turn {turn}"
            );
            compactions += usize::from(outgoing.done.compaction.is_some());
            let answer = talk.answer(&format!("hardware, because of part {turn}"));
            gateway.answer(ticket, format, &answer);
        }
        assert!(compactions >= 2, "{format}: {compactions}");
    }
}

#[test]
fn examples_go_where_nothing_else_makes_a_request_fit() {
    for format in crate::SCRIPTED {
        let mut gateway = gateway();
        let mut talk = Talk::new(format, EXAMPLES);
        talk.said.push(message("user", "Ticket 51: the lift is stuck."));
        let body = talk.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        assert_eq!(talk.shown(&sent(&outgoing, &body)), EXAMPLES, "{format}");
        let session = ticket.session;
        let answer = talk.answer("lift");
        gateway.answer(ticket, format, &answer);
        // Alone it fits, and beside the examples it does not.
        let words = if format == Format::Anthropic { 2_600 } else { 2_900 };
        let asked = (0..words).map(|word| format!("part{word}")).collect::<Vec<_>>().join(" ");
        talk.said.push(message("user", &asked));
        let body = talk.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        let woven = sent(&outgoing, &body);
        assert_eq!((outgoing.done.left, ticket.session), (RewriteStatus::Composed, session), "{format}");
        assert!(outgoing.done.after < outgoing.done.before, "{format}: {:?}", outgoing.done);
        assert!(woven.contains(&asked), "{format}");
        assert!(talk.shown(&woven) < EXAMPLES, "{format}");
        let answer = talk.answer("software");
        gateway.answer(ticket, format, &answer);
        talk.said.push(message("user", "And ticket 52?"));
        let (ticket, outgoing) = gateway.forward(format, &talk.body());
        assert_eq!((outgoing.done.left, ticket.session), (RewriteStatus::Composed, session), "{format}");
    }
}

#[test]
fn examples_that_leave_no_room_for_work_are_a_past_like_any_other() {
    for format in crate::SCRIPTED {
        let mut gateway = gateway();
        let mut talk = Talk::new(format, 4 * EXAMPLES);
        talk.said.push(message("user", "Ticket 51: the lift is stuck."));
        let body = talk.body();
        let (_, outgoing) = gateway.forward(format, &body);
        assert_eq!(outgoing.done.left, RewriteStatus::Composed, "{format}");
        assert!(outgoing.done.after < outgoing.done.before, "{format}: {:?}", outgoing.done);
    }
}
