//! Calls of clients, one after the other: each history begins with the one before it and its answer, whatever the client
//! did to it in between.

use epitome_core::Digest;
use epitome_wire::{
    Format,
    incoming::{HistoryUnit, IncomingRequest, MessageMemo, UnitSpeaker, with_unit_digests},
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What happens in one call: what the user says before it, if anything, and what the model answers.
#[derive(Clone, Debug)]
struct Call {
    prompt: String,
    text: String,
    /// A command, and what came of it; without one the user speaks next.
    tool: Option<(String, String)>,
}

/// How a client writes a history.
#[derive(Clone, Copy, Debug)]
struct Habits {
    format: Format,
    /// How many of the newest messages carry a mark, for which strings become blocks.
    marks: usize,
    /// Whether reasoning is sent back.
    reasoning: bool,
    /// Whether ids of items are, and arguments as they were written.
    verbatim: bool,
    /// Whether a note is put before the newest answer.
    notes: bool,
}

const PLAIN: Habits =
    Habits { format: Format::OpenaiChat, marks: 0, reasoning: false, verbatim: false, notes: false };

fn clients() -> Vec<(&'static str, Habits)> {
    let anthropic = Habits { format: Format::Anthropic, ..PLAIN };
    let responses = Habits { format: Format::OpenaiResponses, ..PLAIN };
    vec![
        ("codex", Habits { verbatim: true, reasoning: true, ..responses }),
        ("claude code", Habits { marks: 1, reasoning: true, ..anthropic }),
        ("opencode messages", Habits { marks: 2, reasoning: true, ..anthropic }),
        ("opencode chat", Habits { reasoning: true, ..PLAIN }),
        ("opencode responses", Habits { reasoning: true, ..responses }),
        ("mini messages", Habits { marks: 1, ..anthropic }),
        ("mini chat", Habits { verbatim: true, ..PLAIN }),
        ("goose chat", Habits { notes: true, ..PLAIN }),
        ("goose messages", Habits { notes: true, ..anthropic }),
        ("goose responses", Habits { notes: true, ..responses }),
    ]
}

/// A piece of a history before a client writes it.
#[derive(Clone, Debug)]
enum Said {
    User(Vec<String>),
    Model { number: usize, text: Option<String>, command: Option<String> },
    Tool { number: usize, output: String },
}

fn history(calls: &[Call], newest: usize, habits: Habits) -> Vec<Said> {
    let mut said = Vec::new();
    let mut speaks = true;
    for (number, call) in calls.iter().enumerate().take(newest + 1) {
        if speaks {
            said.push(Said::User(vec![call.prompt.clone()]));
        }
        if number == newest {
            break;
        }
        let command = call.tool.as_ref().map(|(command, _)| command.clone());
        let text = Some(call.text.clone());
        match (&command, habits.notes) {
            // It is kept in two messages, which become one unless something stands between them.
            (Some(_), true) => {
                said.push(Said::Model { number, text, command: None });
                said.push(Said::Model { number, text: None, command });
            }
            _ => said.push(Said::Model { number, text, command }),
        }
        said.extend(call.tool.iter().map(|(_, output)| Said::Tool { number, output: output.clone() }));
        speaks = call.tool.is_none();
    }
    if habits.notes {
        let place = said.iter().rposition(|said| matches!(said, Said::Model { .. })).unwrap_or(0);
        let note = format!("<info-msg>\nIt is 10:{newest:02}\nContext: {newest}k used\n</info-msg>");
        said.insert(place, Said::User(vec![note]));
    }
    joined(said)
}

/// Neighbours that say the same kind of thing are one message.
fn joined(said: Vec<Said>) -> Vec<Said> {
    let mut out: Vec<Said> = Vec::new();
    for next in said {
        match (out.last_mut(), next) {
            (Some(Said::User(texts)), Said::User(more)) => texts.extend(more),
            (
                Some(Said::Model { command: command @ None, .. }),
                Said::Model { text: None, command: more, .. },
            ) => {
                *command = more;
            }
            (_, next) => out.push(next),
        }
    }
    out
}

fn arguments(command: &str, verbatim: bool) -> String {
    let quoted = Value::from(command).to_string();
    if verbatim { format!("{{ \"cmd\" :  {quoted} }}") } else { format!("{{\"cmd\":{quoted}}}") }
}

fn body(calls: &[Call], newest: usize, habits: Habits) -> String {
    let said = history(calls, newest, habits);
    let first_marked = said.len().saturating_sub(habits.marks);
    let items: Vec<Value> = said
        .iter()
        .enumerate()
        .flat_map(|(at, said)| match habits.format {
            Format::OpenaiChat => vec![chat(said, habits)],
            Format::OpenaiResponses => responses(said, habits),
            Format::Anthropic => vec![anthropic(said, habits, at >= first_marked)],
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        })
        .collect();
    match habits.format {
        Format::OpenaiResponses => json!({ "input": items }).to_string(),
        Format::OpenaiChat | Format::Anthropic => json!({ "messages": items }).to_string(),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

fn chat(said: &Said, habits: Habits) -> Value {
    match said {
        Said::User(texts) => json!({ "role": "user", "content": texts.join("\n") }),
        Said::Tool { number, output } => {
            json!({ "role": "tool", "tool_call_id": format!("call_{number}"), "content": output })
        }
        Said::Model { number, text, command } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if let Some(command) = command {
                message["tool_calls"] = json!([{ "id": format!("call_{number}"), "type": "function", "function": { "name": "sh", "arguments": arguments(command, habits.verbatim) } }]);
            }
            if habits.reasoning {
                message["reasoning_content"] = "hm".into();
            }
            message
        }
    }
}

fn responses(said: &Said, habits: Habits) -> Vec<Value> {
    match said {
        Said::User(texts) => {
            let content: Vec<Value> =
                texts.iter().map(|text| json!({ "type": "input_text", "text": text })).collect();
            vec![json!({ "role": "user", "content": content })]
        }
        Said::Tool { number, output } => {
            vec![
                json!({ "type": "function_call_output", "call_id": format!("call_{number}"), "output": output }),
            ]
        }
        Said::Model { number, text, command } => {
            let mut items = Vec::new();
            if habits.reasoning {
                items.push(json!({ "type": "reasoning", "summary": [], "encrypted_content": "x" }));
            }
            items.extend(text.iter().map(
                |text| json!({ "role": "assistant", "content": [{ "type": "output_text", "text": text }] }),
            ));
            items.extend(command.iter().map(|command| json!({ "type": "function_call", "call_id": format!("call_{number}"), "name": "sh", "arguments": arguments(command, habits.verbatim) })));
            if habits.verbatim {
                for (at, item) in items.iter_mut().enumerate() {
                    item["id"] = format!("item_{number}_{at}").into();
                }
            }
            items
        }
    }
}

fn anthropic(said: &Said, habits: Habits, marked: bool) -> Value {
    let text = |text: &String| json!({ "type": "text", "text": text });
    let (role, mut blocks) = match said {
        Said::User(texts) => ("user", texts.iter().map(text).collect()),
        Said::Tool { number, output } => {
            let content = if marked { json!([{ "type": "text", "text": output }]) } else { json!(output) };
            (
                "user",
                vec![
                    json!({ "type": "tool_result", "tool_use_id": format!("call_{number}"), "content": content }),
                ],
            )
        }
        Said::Model { number, text: said, command } => {
            let mut blocks: Vec<Value> = Vec::new();
            if habits.reasoning {
                blocks.push(json!({ "type": "thinking", "thinking": "hm", "signature": "s" }));
            }
            blocks.extend(said.iter().map(text));
            blocks.extend(command.iter().map(|command| json!({ "type": "tool_use", "id": format!("call_{number}"), "name": "sh", "input": { "cmd": command } })));
            ("assistant", blocks)
        }
    };
    if marked && let Some(last) = blocks.last_mut() {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    let content = match blocks.as_slice() {
        [only] if !marked && only["type"] == "text" => only["text"].clone(),
        _ => blocks.into(),
    };
    json!({ "role": role, "content": content })
}

/// What the provider answers.
fn answer(call: &Call, number: usize, format: Format) -> String {
    let command = call.tool.as_ref().map(|(command, _)| command.clone());
    let said = Said::Model { number, text: Some(call.text.clone()), command };
    let habits = Habits { format, verbatim: true, reasoning: true, ..PLAIN };
    match format {
        Format::OpenaiChat => json!({ "id": "r", "choices": [{ "message": chat(&said, habits) }] }),
        Format::OpenaiResponses => json!({ "id": "r", "output": responses(&said, habits) }),
        Format::Anthropic => {
            let mut message = anthropic(&said, habits, false);
            message["id"] = "msg_1".into();
            message["type"] = "message".into();
            message
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    .to_string()
}

fn chain(body: &str, format: Format, memo: &MessageMemo) -> Vec<Digest> {
    IncomingRequest::read(format, body, memo).unwrap().units().iter().map(|unit| unit.digest).collect()
}

fn check(name: &str, habits: Habits, calls: &[Call]) {
    let memo = MessageMemo::new(8);
    let mut known: Vec<Digest> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let body = body(calls, number, habits);
        let units = chain(&body, habits.format, &memo);
        assert!(units.starts_with(&known), "{name}, call {number}: {body}");
        assert!(units.len() > known.len(), "{name}, call {number}: {body}");
        let events = habits.format.decode_response(&answer(call, number, habits.format)).unwrap();
        let answered = with_unit_digests(habits.format, events);
        known = units.into_iter().chain(answered.iter().filter_map(|event| event.normal)).collect();
    }
}

fn words() -> impl Strategy<Value = String> {
    "[a-zé\"\\\\ \n]{0,12}[a-z]"
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let tool = prop::option::of((words(), words()));
    let call = (words(), words(), tool).prop_map(|(prompt, text, tool)| Call { prompt, text, tool });
    prop::collection::vec(call, 1..6)
}

proptest! {
    #[test]
    fn each_call_of_every_client_begins_with_the_one_before_it(calls in calls()) {
        for (name, habits) in clients() {
            check(name, habits, &calls);
        }
    }

    #[test]
    fn a_changed_word_changes_everything_from_there_on(calls in calls(), which in any::<prop::sample::Index>()) {
        let mut changed = calls.clone();
        let victim = which.index(calls.len());
        let call = &mut changed[victim];
        call.prompt.push('X');
        call.text.push('X');
        if let Some((command, output)) = &mut call.tool {
            command.push('X');
            output.push('X');
        }
        let newest = calls.len() - 1;
        for (name, habits) in clients() {
            let memo = MessageMemo::default();
            let one = chain(&body(&calls, newest, habits), habits.format, &memo);
            let other = chain(&body(&changed, newest, habits), habits.format, &memo);
            prop_assert_eq!(one.len(), other.len());
            // In the last call only a prompt can have changed, and there is none after a tool's result.
            let speaks = newest == 0 || calls[newest - 1].tool.is_none();
            prop_assert_eq!(one == other, victim == newest && !speaks, "{}", name);
        }
    }
}

/// goose's note.
fn note(minute: u8) -> String {
    format!("<info-msg>\nIt is currently 10:{minute}\nWorking directory: /src\n</info-msg>")
}

/// Each history begins with the one before it, and the last is of so many units.
fn check_notes(format: Format, calls: &[Value], expect: &[UnitSpeaker]) {
    let memo = MessageMemo::default();
    let mut known: Vec<HistoryUnit> = Vec::new();
    for items in calls {
        let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
        let body = json!({ key: items }).to_string();
        let seen = IncomingRequest::read(format, &body, &memo).unwrap();
        assert!(seen.units().starts_with(&known), "{format} {body}");
        assert!(seen.events(0).len() >= seen.units().len());
        known = seen.units().to_vec();
    }
    let speakers: Vec<UnitSpeaker> = known.iter().map(|unit| unit.speaker).collect();
    assert_eq!(speakers, expect);
}

const SPEAKERS: [UnitSpeaker; 5] =
    [UnitSpeaker::User, UnitSpeaker::Model, UnitSpeaker::Tools, UnitSpeaker::Model, UnitSpeaker::User];

fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

fn model(content: impl Into<Value>) -> Value {
    json!({ "role": "assistant", "content": content.into() })
}

#[test]
fn gooses_note_may_stand_anywhere_in_messages() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let call = json!({ "type": "tool_use", "id": "t", "name": "sh", "input": { "cmd": "ls" } });
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "a.rs" });
    let list = user("List");
    let answer = model(vec![text("Sure."), call.clone()]);
    let returned = user(vec![result.clone()]);
    let (done, thanks) = (model("One file."), user("Thanks"));
    let calls = [
        json!([user(vec![text(&note(1)), text("List")])]),
        // The answer is torn apart.
        json!([
            user(vec![text("List")]),
            model(vec![text("Sure.")]),
            user(vec![text(&note(2))]),
            model(vec![call]),
            returned
        ]),
        json!([list, answer, returned, user(note(3)), done, thanks]),
        json!([list, answer, user(vec![result, text(&note(4))]), done, thanks]),
    ];
    check_notes(Format::Anthropic, &calls, &SPEAKERS);
}

#[test]
fn gooses_note_may_stand_anywhere_in_chat() {
    let called = json!([{ "id": "t", "type": "function", "function": { "name": "sh", "arguments": "{\"cmd\":\"ls\"}" } }]);
    let calling = |content: Value| json!({ "role": "assistant", "content": content, "tool_calls": called });
    let tool = json!({ "role": "tool", "tool_call_id": "t", "content": "a.rs" });
    let (list, answer) = (user("List"), calling("Sure.".into()));
    let (done, thanks) = (model("One file."), user("Thanks"));
    let calls = [
        json!([user(format!("{}\nList", note(1)))]),
        json!([user(format!("List\n{}", note(2))), answer, tool]),
        json!([list, model("Sure."), user(note(3)), calling(Value::Null), tool, done, thanks]),
        json!([list, answer, tool, user(note(4)), done, thanks]),
    ];
    check_notes(Format::OpenaiChat, &calls, &SPEAKERS);
}

#[test]
fn gooses_note_may_stand_anywhere_in_responses() {
    let said = |role: &str, kind: &str, texts: &[&str]| {
        let content: Vec<Value> = texts.iter().map(|text| json!({ "type": kind, "text": text })).collect();
        json!({ "role": role, "content": content })
    };
    let asked = |texts: &[&str]| said("user", "input_text", texts);
    let answered = |text: &str| said("assistant", "output_text", &[text]);
    let call =
        json!({ "type": "function_call", "call_id": "t", "name": "sh", "arguments": "{\"cmd\":\"ls\"}" });
    let output = json!({ "type": "function_call_output", "call_id": "t", "output": "a.rs" });
    let (list, answer) = (asked(&["List"]), answered("Sure."));
    let (done, thanks) = (answered("One file."), asked(&["Thanks"]));
    let calls = [
        json!([asked(&[&note(1), "List"])]),
        json!([asked(&["List", &note(2)]), answer, call, output]),
        json!([list, answer, asked(&[&note(3)]), call, output, done, thanks]),
        json!([list, answer, call, output, asked(&[&note(4)]), done, thanks]),
    ];
    // An answer of two items is two units.
    let speakers: Vec<UnitSpeaker> = [&SPEAKERS[..2], &SPEAKERS[1..]].concat();
    check_notes(Format::OpenaiResponses, &calls, &speakers);
}

#[test]
fn neighbours_stay_apart_where_no_note_moves() {
    let body = |second: &str| {
        json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "user", "content": second }] })
            .to_string()
    };
    let check = |second: &str, expect: usize| {
        let count = chain(&body(second), Format::OpenaiChat, &MessageMemo::default()).len();
        assert_eq!(count, expect, "{second}");
    };
    check("b", 2);
    check("b <info-msg>10:31</info-msg>", 1);
    // A quotation.
    check("what does <info-msg>10:31</info-msg> mean?", 2);
}

#[test]
fn what_a_client_says_of_its_surroundings_before_users_speak_parts_no_history() {
    let setup = |files: &str| {
        format!("This is the Qwen Code. We are setting up the context for our chat.\nFiles:\n{files}")
    };
    let tagged = |day: &str| format!("<environment_context>\n{day}\n</environment_context>");
    let body = |first: &str, prompt: &str| {
        let said = [("user", first), ("assistant", "Got it."), ("user", prompt)];
        let said = said.map(|(role, content)| json!({ "role": role, "content": content }));
        json!({ "messages": said }).to_string()
    };
    let of = |first: &str, prompt: &str| {
        [Format::OpenaiChat, Format::Anthropic]
            .map(|format| chain(&body(first, prompt), format, &MessageMemo::default()))
    };
    assert_eq!(of(&setup("a.rs"), "Go"), of(&setup("a.rs\nb.rs"), "Go"));
    assert_eq!(of(&tagged("Monday"), "Go"), of(&tagged("Tuesday"), "Go"));
    assert_ne!(of(&setup("a.rs"), "Go"), of(&setup("a.rs"), "Stop"));
    assert_ne!(of(&setup("a.rs"), "Go"), of("This is the file.", "Go"));
    // What stands there once users have spoken is a word of theirs, or is about a moment.
    assert_ne!(of("Hello", &tagged("Monday")), of("Hello", &tagged("Tuesday")));
}
