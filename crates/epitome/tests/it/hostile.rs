//! Requests that were mutated from real ones: values in places where nobody looks for them, of types nobody expects, in
//! members and blocks that nobody knows. Whatever is made of one fits its budget by a count that shares nothing with the
//! one that made it but the vocabulary.

use epitome::{
    compact, compact_request,
    core::{
        Tokens,
        policy::Policy,
        profile::{Profiles, Tokenizer},
    },
    request_plan::{RequestPlan, RequestSettings},
    wire::Format,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// What a request says, counted from its bytes: every string, name and number that stands in it, but for what the format
/// itself says to wrap messages, blocks and calls, and for its settings of how to answer.
fn measured(body: &str) -> u64 {
    let request: Value = serde_json::from_str(body).unwrap();
    let members = request.as_object().unwrap().iter();
    let said = members.filter(|(key, _)| !matches!(&***key, "model" | "max_tokens"));
    said.map(|(key, value)| match (&**key, value) {
        ("messages" | "input" | "tools" | "system" | "instructions", value) => elements(&MESSAGE, value),
        (key, value) => count(key) + everything(value),
    })
    .sum()
}

fn count(text: &str) -> u64 {
    Tokenizer::O200k.counter().count(text).0
}

/// A kind of object that a format knows: the members that wrap it, as long as they are words, and those that hold what it
/// says, each with the kind of what stands there.
struct Kind {
    wrapping: &'static [&'static str],
    sealed: &'static [&'static str],
    holders: &'static [(&'static str, Option<&'static Kind>)],
}

static MESSAGE: Kind = Kind {
    wrapping: &["role", "type", "id", "call_id", "tool_call_id", "status", "name", "phase"],
    sealed: &["encrypted_content"],
    holders: &[
        ("content", Some(&BLOCK)),
        ("output", Some(&BLOCK)),
        ("summary", Some(&BLOCK)),
        ("tool_calls", Some(&CALL)),
        ("text", None),
        ("refusal", None),
        ("reasoning_content", None),
        ("arguments", None),
        ("input", None),
    ],
};

static BLOCK: Kind = Kind {
    wrapping: &["type", "tool_use_id"],
    sealed: &["signature", "data"],
    holders: &[
        ("content", Some(&BLOCK)),
        ("text", None),
        ("thinking", None),
        ("name", None),
        ("input", None),
    ],
};

/// A call, whose id is its own.
static CALL: Kind =
    Kind { wrapping: &["type", "id"], sealed: &[], holders: &[("function", Some(&FUNCTION))] };

static FUNCTION: Kind = Kind { wrapping: &[], sealed: &[], holders: &[("name", None), ("arguments", None)] };

/// Whether a text is one that wraps something: a short word.
fn is_wrapping(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() <= 80 && !text.contains(char::is_whitespace))
}

fn elements(kind: &Kind, value: &Value) -> u64 {
    match value {
        Value::Array(elements) => elements.iter().map(|element| elements_of(kind, element)).sum(),
        other => elements_of(kind, other),
    }
}

fn elements_of(kind: &Kind, value: &Value) -> u64 {
    let Value::Object(members) = value else { return everything(value) };
    let is_call = members.get("type").is_some_and(|kind| kind == "tool_use");
    let member = |(key, value): (&String, &Value)| {
        let is_word = value.as_str().is_some_and(|text| !text.contains(char::is_whitespace));
        let is_free = is_wrapping(value) && kind.wrapping.contains(&&**key)
            // What a provider signs or hides is no text: it is measured by its size.
            || is_word && kind.sealed.contains(&&**key)
            || is_wrapping(value) && key == "id" && is_call
            || key == "cache_control" && value.to_string().len() <= 80;
        if is_free {
            return 0;
        }
        match kind.holders.iter().find(|(holder, _)| holder == key) {
            Some((_, Some(inner))) => elements(inner, value),
            Some((_, None)) => everything(value),
            None => count(key) + everything(value),
        }
    };
    members.iter().map(member).sum()
}

/// Whatever stands in a value.
fn everything(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 0,
        Value::Number(number) => count(&number.to_string()),
        Value::String(text) => count(text),
        Value::Array(elements) => elements.iter().map(everything).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| count(key) + everything(value)).sum(),
    }
}

/// So many words, no two texts alike.
fn words(topic: &str, count: usize) -> String {
    (0..count).map(|at| format!("{topic} line {at} says {}", at * 7 % 13)).collect::<Vec<_>>().join("\n")
}

/// A request as an agent sends it.
fn realistic(format: Format) -> Value {
    let text = words("result", 30);
    match format {
        Format::OpenaiChat => json!({ "model": "gpt-5.1", "messages": [
            { "role": "system", "content": [{ "type": "text", "text": words("rule", 4) }] },
            { "role": "user", "content": "Find the failing test." },
            { "role": "assistant", "content": "I look.", "refusal": null, "reasoning_content": words("thought", 3),
              "tool_calls": [
                { "id": "call_1", "type": "function", "function": { "name": "run", "arguments": "{\"cmd\":\"test\"}" } },
                { "id": "call_2", "type": "function", "function": { "name": "read", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "call_1", "content": text },
            { "role": "tool", "tool_call_id": "call_2", "content": [{ "type": "text", "text": words("file", 20) }] },
            { "role": "assistant", "content": [{ "type": "text", "text": "It is the second one." }] },
            { "role": "user", "content": [{ "type": "text", "text": "Mend it." }] }],
            "tools": [{ "type": "function", "function": { "name": "run", "description": words("tool", 2),
                "parameters": { "type": "object", "properties": { "cmd": { "type": "string" } } } } }] }),
        Format::OpenaiResponses => json!({ "model": "gpt-5.1", "instructions": words("rule", 4), "input": [
            { "role": "user", "content": "Find the failing test." },
            { "type": "reasoning", "id": "rs_1", "summary": [
                { "type": "summary_text", "text": words("thought", 3) },
                { "type": "summary_text", "text": "And then?" }] },
            { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "run", "arguments": "{\"cmd\":\"test\"}" },
            { "type": "function_call_output", "call_id": "call_1", "output": text },
            { "type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": words("patch", 5) },
            { "type": "custom_tool_call_output", "call_id": "call_2", "output": "Done." },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{ "type": "output_text", "text": "It is the second one.", "annotations": [] }] },
            { "role": "user", "content": [{ "type": "input_text", "text": "Mend it." }] }],
            "tools": [{ "type": "function", "name": "run", "description": words("tool", 2),
                "parameters": { "type": "object", "properties": {} } }] }),
        Format::Anthropic => json!({ "model": "claude-sonnet-4-5", "max_tokens": 1000,
            "system": [{ "type": "text", "text": words("rule", 4), "cache_control": { "type": "ephemeral" } }],
            "messages": [
            { "role": "user", "content": "Find the failing test." },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": words("thought", 3), "signature": "c2lnbmF0dXJl" },
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "toolu_1", "name": "run", "input": { "cmd": "test" } },
                { "type": "tool_use", "id": "toolu_2", "name": "read", "input": {} }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1", "content": text },
                { "type": "tool_result", "tool_use_id": "toolu_2", "content": [{ "type": "text", "text": words("file", 20) }] },
                { "type": "text", "text": "Go on." }] },
            { "role": "assistant", "content": "It is the second one." },
            { "role": "user", "content": [{ "type": "text", "text": "Mend it." }] }],
            "tools": [{ "name": "run", "description": words("tool", 2),
                "input_schema": { "type": "object", "properties": { "cmd": { "type": "string" } } } }] }),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// Names under which values turn up where nobody expects them.
const ODD: [&str; 14] = [
    "refusal",
    "thinking",
    "text",
    "content",
    "output",
    "arguments",
    "input",
    "summary",
    "note",
    "annotations",
    "signature",
    "id",
    "reasoning_content",
    "provider_specific_fields",
];

/// Values that say much, each in another way: in words, in lists, in names, in numbers and in words that look like ids.
fn sayings() -> [Value; 7] {
    let named = |name: &str| (0..40).map(|at| (format!("{name}_{at}"), Value::Null)).collect::<Map<_, _>>();
    [
        Value::String(words("odd", 40)),
        json!([words("odd", 20)]),
        json!({ "deep": [words("odd", 15)] }),
        Value::Object(named("a_name_that_says_something")),
        (0..60).map(|at| json!(at * 7_919 + 1_000_003)).collect(),
        (0..30).map(|at| json!({ "type": "x", "id": format!("id_{}_{at}", "ab3".repeat(20)) })).collect(),
        json!("w0rd".repeat(19)),
    ]
}

/// Changes one value somewhere in `root`, as `choice` says.
fn mutate(root: &mut Value, choice: u64) {
    let mut paths = Vec::new();
    pointers(root, "", &mut paths);
    let mut rest = choice;
    let mut draw = |below: usize| {
        let drawn = rest % below as u64;
        rest = rest / below as u64 + 1_000_003 * (drawn + 1);
        usize::try_from(drawn).unwrap()
    };
    let path = paths[draw(paths.len())].clone();
    let odd = ODD[draw(ODD.len())];
    let kind = draw(9);
    let saying = sayings()[draw(7)].clone();
    let elsewhere = root.pointer(&paths[draw(paths.len())]).cloned().unwrap_or_default();
    let Some(value) = root.pointer_mut(&path) else { return };
    match (kind, &mut *value) {
        (0, Value::Object(members)) => drop(members.insert(odd.to_owned(), saying)),
        (1, Value::Object(members)) => drop(members.insert(odd.to_owned(), elsewhere)),
        (2, Value::Array(elements)) => elements.push(json!({ "type": "unknown_block", odd: saying })),
        (3, Value::Array(elements)) => elements.push(elsewhere),
        (4, other) => *other = json!([other.clone()]),
        (5, other) => *other = json!({ odd: other.clone() }),
        (6, Value::Object(members)) => {
            let keys: Vec<String> = members.keys().cloned().collect();
            let at = draw(keys.len().max(1));
            keys.get(at).map(|key| members.remove(key));
        }
        (6, Value::Array(elements)) if !elements.is_empty() => {
            let at = draw(elements.len());
            elements.remove(at);
        }
        (7, other) => *other = [json!(7), json!(null), json!(true), json!("")][draw(4)].clone(),
        (_, other) => *other = saying,
    }
}

/// Where the values of a request are that a provider reads.
fn pointers(value: &Value, at: &str, into: &mut Vec<String>) {
    if !at.is_empty() {
        into.push(at.to_owned());
    }
    let step = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Array(elements) => {
            elements
                .iter()
                .enumerate()
                .for_each(|(index, value)| pointers(value, &step(&index.to_string()), into));
        }
        Value::Object(members) => {
            let read = |key: &str| {
                !at.is_empty() || matches!(key, "messages" | "input" | "system" | "instructions" | "tools")
            };
            let members: &Map<String, Value> = members;
            members
                .iter()
                .filter(|(key, _)| read(key))
                .for_each(|(key, value)| pointers(value, &step(key), into));
        }
        _ => {}
    }
}

/// What is made of a request without a policy, and with one, each with the budget it was made for.
fn made(format: Format, body: &str, limit: u64) -> Vec<(&'static str, String, Tokens)> {
    let mut made = Vec::new();
    if let Ok(compacted) = compact_request(format, body.as_bytes(), Tokens(limit)) {
        assert!(compacted.report.after.tokens <= Tokens(limit), "{body}");
        made.push(("alone", compacted.rendered.body, compacted.report.after.tokens));
    }
    let Ok(events) = format.decode_request(body) else { return made };
    let line = compact::line(events);
    let asked = RequestSettings { model: None, format: Some(format) };
    let plan = RequestPlan::new(line, None, &asked, &Profiles::builtin()).unwrap();
    let (budget, margin) = plan.trust.budget_within(Tokens(limit));
    let policy = Policy::named("epitome").unwrap();
    if let Ok(rehearsed) = plan.simulate(policy, compact::numbered(&plan.line), &budget, margin, None) {
        let compacted = rehearsed.compacted;
        assert!(compacted.report.after.tokens <= Tokens(limit), "{body}");
        made.push(("by a policy", compacted.rendered.body, compacted.report.after.tokens));
    }
    made
}

#[track_caller]
fn check(format: Format, body: &str, limit: u64) {
    for (how, made, told) in made(format, body, limit) {
        let measured = measured(&made);
        assert!(
            measured <= told.0 && told.0 <= limit,
            "{format} {how}: {measured} tokens where {limit} were allowed and {told} told\nin: {body}\nout: {made}"
        );
    }
}

#[test]
fn what_stands_in_an_odd_place_is_counted() {
    use Format::{Anthropic, OpenaiChat, OpenaiResponses};

    let odd = words("odd", 60);
    let with = |format: Format, at: &str, value: Value| {
        let mut request = realistic(format);
        let (parent, key) = at.rsplit_once('/').unwrap();
        request.pointer_mut(parent).unwrap()[key] = value;
        request.to_string()
    };
    for (format, at, value) in [
        (OpenaiChat, "/messages/2/refusal", json!([odd])),
        (OpenaiChat, "/messages/1/refusal", json!(odd)),
        (OpenaiChat, "/messages/1/vendor", json!({ "notes": [odd] })),
        (OpenaiChat, "/messages/2/tool_calls/0/note", json!(odd)),
        (OpenaiChat, "/messages/2/reasoning_details", json!([{ "type": "x", "words": odd }])),
        (OpenaiChat, "/messages/3/extra", json!([odd])),
        (OpenaiChat, "/messages/0/content", json!([{ "type": "text", "text": "Be brief.", "note": odd }])),
        (OpenaiResponses, "/input/1/vendor", json!(odd)),
        (OpenaiResponses, "/input/2/arguments", json!({ "said": odd })),
        (OpenaiResponses, "/input/3/output", json!({ "said": odd })),
        (OpenaiResponses, "/input/3/note", json!(odd)),
        (OpenaiResponses, "/input/6/note", json!([odd])),
        (OpenaiResponses, "/instructions", json!([{ "type": "input_text", "text": odd }])),
        (Anthropic, "/system/0/note", json!(odd)),
        (Anthropic, "/messages/1/content/0/signature", json!(odd)),
        (Anthropic, "/messages/1/content/2/note", json!(odd)),
        (Anthropic, "/messages/2/content/0/note", json!(odd)),
        (Anthropic, "/messages/4/content/0/citations", json!([{ "cited_text": odd }])),
        (Anthropic, "/messages/0/thinking", json!(odd)),
    ] {
        let body = with(format, at, value);
        for limit in [400, 900, 5_000] {
            check(format, &body, limit);
        }
        let [(_, _, told), ..] = &made(format, &body, 5_000)[..] else { panic!("{format} {at}: it fits") };
        assert!(told.0 > Tokenizer::O200k.counter().count(&odd).0 + 50, "{format} {at}: {told} are told");
    }
}

/// An answer of which a tight budget shows only some, and a user's message of results of which it shows some.
fn parted(format: Format) -> Value {
    let mut request = realistic(format);
    let more = match format {
        Format::OpenaiChat => json!([
            { "role": "user", "content": "And the others?" },
            { "role": "assistant", "content": words("plan", 12), "reasoning_content": words("deep", 12), "tool_calls": [
                { "id": "call_3", "type": "function", "function": { "name": "run", "arguments": "{}" } },
                { "id": "call_4", "type": "function", "function": { "name": "read", "arguments": words("given", 12) } }] },
            { "role": "tool", "tool_call_id": "call_3", "content": "Done." },
            { "role": "tool", "tool_call_id": "call_4", "content": words("page", 40) },
            { "role": "user", "content": "Well?" }]),
        Format::OpenaiResponses => json!([
            { "role": "user", "content": "And the others?" },
            { "type": "message", "role": "assistant", "content": [
                { "type": "output_text", "text": words("plan", 12) },
                { "type": "refusal", "refusal": words("no", 12) },
                { "type": "output_text", "text": "So." }] },
            { "type": "function_call", "call_id": "call_3", "name": "run", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "call_3", "output": words("page", 40) },
            { "role": "user", "content": "Well?" }]),
        Format::Anthropic => json!([
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": words("deep", 12), "signature": "c2lnbmF0dXJl" },
                { "type": "text", "text": words("plan", 12) },
                { "type": "tool_use", "id": "toolu_3", "name": "run", "input": {} },
                { "type": "tool_use", "id": "toolu_4", "name": "read", "input": { "path": words("given", 12) } }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_3" },
                { "type": "tool_result", "tool_use_id": "toolu_4", "content": words("page", 40) }] },
            { "role": "assistant", "content": "Done." },
            { "role": "user", "content": "Well?" }]),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let history = request[key].as_array_mut().unwrap();
    history.extend(more.as_array().unwrap().iter().cloned());
    request
}

#[test]
fn what_is_added_anywhere_is_counted_however_much_is_shown_around_it() {
    for format in crate::SCRIPTED {
        let request = parted(format);
        let mut places = vec![String::new()];
        pointers(&request, "", &mut places);
        places.retain(|place| request.pointer(place).is_some_and(Value::is_object));
        for place in places {
            for (at, saying) in sayings().into_iter().enumerate().filter(|(at, _)| *at > 1) {
                let mut request = request.clone();
                // A word stands where words are free, so long as there are not many of them.
                let names: &[&str] =
                    if at == 6 { &["id", "status", "namespace", "model", "phase"] } else { &["note"] };
                for name in names {
                    let added = request.pointer_mut(&place).unwrap();
                    if added.get(name).is_none() {
                        added[*name] = saying.clone();
                    }
                }
                let body = request.to_string();
                for limit in [300, 700] {
                    check(format, &body, limit);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_made_of_a_mutated_request_fits_by_an_independent_count(
        format in prop::sample::select(crate::SCRIPTED.to_vec()),
        choices in prop::collection::vec(any::<u64>(), 1..6),
        limit in prop::sample::select(vec![100_u64, 300, 700, 1_500, 6_000]),
    ) {
        let mut request = if choices.len() % 2 == 0 { parted(format) } else { realistic(format) };
        for choice in &choices {
            mutate(&mut request, *choice);
        }
        check(format, &request.to_string(), limit);
    }
}
