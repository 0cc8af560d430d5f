//! Requests with the recall tool: offered without a byte of the client's changed, and followed up legally.

use std::collections::BTreeMap;

use epitome_core::{
    cost::{Extension, extends},
    event::ToolCall,
};
use epitome_wire::{
    Format,
    legality::{Rules, check},
    recall::{Edit, FollowUp, RECALL_TOOL, Splice, Verdict, follow_up, offer},
    say::{Ended, SaidResult},
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::{
    fixtures,
    prompts::memo,
    recall_answers::{Answer, Made, answer, any_answer, recall, text},
};

type Members = BTreeMap<String, Box<RawValue>>;

fn members(body: &str) -> Members {
    serde_json::from_str(body).unwrap()
}

/// The tool stands first, and everything else has the bytes it had.
fn is_offered(body: &str, edit: &Edit) {
    let offered = edit.apply(body);
    let (before, mut after) = (members(body), members(&offered));
    let list = |members: &Members| -> Vec<Box<RawValue>> {
        let tools = members.get("tools").map_or("null", |tools| tools.get());
        serde_json::from_str::<Option<_>>(tools).unwrap().unwrap_or_default()
    };
    let (old, mut new) = (list(&before), list(&after));
    assert!(new.remove(0).get().contains(RECALL_TOOL));
    let text = |tools: &[Box<RawValue>]| tools.iter().map(|tool| tool.get().to_owned()).collect::<Vec<_>>();
    assert_eq!(text(&old), text(&new));
    match before.get("tools") {
        Some(tools) => after.insert("tools".into(), tools.clone()),
        None => after.remove("tools"),
    };
    let text = |members: &Members| -> Vec<(String, String)> {
        members.iter().map(|(key, value)| (key.clone(), value.get().to_owned())).collect()
    };
    assert_eq!(text(&before), text(&after));
    let undone =
        Edit { at: edit.at.start..edit.at.start + edit.text.len(), text: body[edit.at.clone()].to_owned() };
    assert_eq!(undone.apply(&offered), body);
}

#[test]
fn the_tool_is_offered_in_every_request_that_can_have_it() {
    let mut refused = Vec::new();
    for fixture in fixtures::requests() {
        match offer(fixture.format, &fixture.text) {
            Some(edit) => {
                is_offered(&fixture.text, &edit);
                let offered = edit.apply(&fixture.text);
                assert_eq!(offer(fixture.format, &fixture.text), Some(edit));
                assert_eq!(offer(fixture.format, &offered), None);
                let rules = Rules::of(fixture.format);
                assert_eq!(
                    check(fixture.format, &offered, &rules),
                    check(fixture.format, &fixture.text, &rules)
                );
            }
            None => refused.push(format!("{} {}", fixture.format, fixture.name)),
        }
    }
    // Functions of the old kind, and tools that are no list.
    assert_eq!(refused, ["openai-chat deprecated.json", "openai-responses quirks.json"]);
}

#[test]
fn where_the_tool_goes_follows_from_the_request() {
    let check = |format: Format, body: &str, expect: Option<&str>| {
        let edit = offer(format, body);
        let tool = edit.as_ref().map(|edit| {
            let from = edit.text.find('{').unwrap();
            edit.text[from..=edit.text.rfind('}').unwrap()].to_owned()
        });
        let found = edit.map(|edit| edit.apply(body).replace(&tool.unwrap(), "TOOL"));
        assert_eq!(found.as_deref(), expect, "{format} {body}");
    };
    let every = |body: &str, expect: Option<&str>| {
        for format in Format::ALL {
            check(format, body, expect);
        }
    };
    every("{}", Some(r#"{"tools":[TOOL]}"#));
    every(" \n{ \"model\":\"m\" }", Some(" \n{ \"model\":\"m\",\"tools\":[TOOL] }"));
    every(r#"{"tools": null ,"a":1}"#, Some(r#"{"tools": [TOOL] ,"a":1}"#));
    every(r#"{"tools":[ ],"tool_choice":"auto"}"#, Some(r#"{"tools":[TOOL ],"tool_choice":"auto"}"#));
    every(r#"{"tools":[ {"name":"x"}]}"#, Some(r#"{"tools":[ TOOL,{"name":"x"}]}"#));
    // What is wanted of the tools there are changes nothing, what is wanted of none does.
    every(
        r#"{"tools":[{"name":"x"}],"tool_choice":{"type":"none"}}"#,
        Some(r#"{"tools":[TOOL,{"name":"x"}],"tool_choice":{"type":"none"}}"#),
    );
    every(
        r#"{"tools":[{"name":"x"}],"tool_choice":{"type":"tool","name":"x"}}"#,
        Some(r#"{"tools":[TOOL,{"name":"x"}],"tool_choice":{"type":"tool","name":"x"}}"#),
    );
    for choice in [r#""none""#, r#"{"type":"none"}"#, r#""required""#, r#"{"type":"any"}"#] {
        every(&format!(r#"{{"tool_choice":{choice}}}"#), None);
        every(&format!(r#"{{"tools":[],"tool_choice":{choice}}}"#), None);
        every(&format!(r#"{{"tools":null,"tool_choice":{choice}}}"#), None);
    }
    every(r#"{"tools":[{"name":"x"},{"name":"epitome_recall"}]}"#, None);
    every(r#"{"tools":[{"type":"function","function":{"name":"epitome_recall"}}]}"#, None);
    every(r#"{"tools":[{"type":"namespace","tools":[{"name":"epitome_recall"}]}]}"#, None);
    every(r#"{"tools":"x"}"#, None);
    every("[]", None);
    every("{", None);
    let marked = r#"{"tools":[{"name":"x","cache_control":{"type":"ephemeral"}}]}"#;
    check(
        Format::Anthropic,
        marked,
        Some(r#"{"tools":[TOOL,{"name":"x","cache_control":{"type":"ephemeral"}}]}"#),
    );
    check(Format::OpenaiChat, r#"{"n":2}"#, None);
    check(Format::OpenaiChat, r#"{"n":1}"#, Some(r#"{"n":1,"tools":[TOOL]}"#));
    check(Format::OpenaiChat, r#"{"functions":[]}"#, None);
    check(Format::OpenaiResponses, r#"{"background":true}"#, None);
    check(Format::OpenaiResponses, r#"{"conversation":"c"}"#, None);
}

#[test]
fn the_definition_is_one_that_a_provider_takes() {
    for format in Format::ALL {
        let edit = offer(format, "{}").unwrap();
        let body = edit.apply("{}");
        let tools = members(&body)["tools"].get().to_owned();
        let event = format.say_tools(&tools).unwrap();
        assert!(
            matches!(&event.fact.parts()[0], epitome_core::Part::Opaque { name, .. } if name == RECALL_TOOL)
        );
        assert!(tools.contains("\"handle\"") && tools.contains("\"query\""));
    }
}

/// What follows an answer, once a stream of it was spliced.
fn followed(format: Format, sent: &str, answer: &Answer) -> (FollowUp, String) {
    let (mut splice, mut seen) = (Splice::stream(format), Vec::new());
    splice.push(answer.stream(format).as_bytes(), &mut seen);
    let Verdict::Recall(recalls) = splice.end(&mut seen) else { panic!("{answer:?}") };
    let results: Vec<SaidResult<'_>> = recalls
        .calls
        .iter()
        .map(|call| SaidResult { call, text: "port = 8080", ended: Ended::Well })
        .collect();
    let next = follow_up(format, sent, &recalls.answer, &results).unwrap();
    let body = next.edit.apply(sent);
    (next, body)
}

fn sent(format: Format) -> String {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    format!(r#" {{"model":"m", "{key}":[ {{"role":"user","content":"Which port?"}} ] ,"tools":[]}}"#)
}

proptest! {
    #[test]
    fn the_tool_goes_in_without_another_byte_changed(
        format in prop::sample::select(Format::ALL.as_slice()),
        space in "[ \n\t]{0,2}",
        keys in prop::collection::vec("(model|messages|input|tools|tool_choice|x)", 0..5),
        tools in "(null|\\[ ?\\]|\\[ ?\\{\"name\":\"[a-z]{1,3}\"\\}( ,\\{\"type\":\"x\"\\})?\\])",
    ) {
        let mut keys = keys;
        keys.sort();
        keys.dedup();
        let value = |key: &String| if key == "tools" { tools.clone() } else { "\"auto\"".to_owned() };
        let written: Vec<String> = keys.iter().map(|key| format!("{space}\"{key}\" :{space}{}", value(key))).collect();
        let body = format!("{space}{{{}{space}}}{space}", written.join(","));
        let edit = offer(format, &body).expect("nothing forbids it");
        is_offered(&body, &edit);
    }

    #[test]
    fn what_follows_is_legal_and_extends_what_was_sent(
        format in prop::sample::select(Format::ALL.as_slice()),
        answer in any_answer("a", prop::collection::vec(Just(true), 1..3)),
    ) {
        let sent = sent(format);
        let (next, body) = followed(format, &sent, &answer);
        prop_assert_eq!(check(format, &body, &Rules::of(format)), []);
        let mut memo = memo();
        let (old, new) = (format.prompt(&sent, &mut memo).unwrap(), format.prompt(&body, &mut memo).unwrap());
        prop_assert_eq!(extends(&old, &new), Extension::Extends);
        let start = next.edit.at.start;
        prop_assert_eq!(&body[..start], &sent[..start]);
        prop_assert_eq!(&body[start + next.edit.text.len()..], &sent[next.edit.at.end..]);
        for piece in next.said.iter().chain(&next.returned) {
            prop_assert!(body.contains(piece));
        }
        let results: usize = next.returned.iter().map(|piece| piece.matches("port = 8080").count()).sum();
        prop_assert_eq!(results, answer.recalls().len());
        let thought = answer.made.iter().filter_map(|made| match made {
            Made::Thinking(text) => Some(text),
            _ => None,
        });
        let events = format.decode_request(&body).unwrap();
        let said: String = events.iter().map(|event| event.fact.text()).collect();
        for thought in thought {
            prop_assert!(said.contains(thought.as_str()), "{} in {}", thought, body);
        }
    }
}

fn one_call() -> (ToolCall, &'static str) {
    (ToolCall::function("r", RECALL_TOOL, "{}"), "port = 8080")
}

#[track_caller]
fn check_follow_up(format: Format, sent: &str, answer: &str, expect: &str) {
    let (call, text) = one_call();
    let result = SaidResult { call: &call, text, ended: Ended::Well };
    let next = follow_up(format, sent, answer, &[result]).unwrap();
    assert_eq!(next.edit.apply(sent), expect);
}

#[test]
fn a_message_that_the_client_began_is_gone_on_with() {
    let answer = answer("a", [text("et me see."), recall("r")]).whole(Format::Anthropic);
    let said = r#"{"type":"text","text":"et me see."},{"type":"tool_use","id":"r","name":"epitome_recall","input":{"handle":"recall 1a2b3c4d:12-14"}}"#;
    let result =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"r","content":"port = 8080"}]}"#;
    check_follow_up(
        Format::Anthropic,
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"L"}]}"#,
        &answer,
        &format!(
            r#"{{"messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{{"type":"text","text":"L"}},{said}]}},{result}]}}"#
        ),
    );
}

#[test]
fn an_input_that_is_only_a_string_becomes_a_list() {
    let answer =
        r#"{"output":[{"type":"function_call","call_id":"r","name":"epitome_recall","arguments":"{}"}]}"#;
    check_follow_up(
        Format::OpenaiResponses,
        r#"{"input":"x"}"#,
        answer,
        r#"{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"r","name":"epitome_recall","arguments":"{}"},{"type":"function_call_output","call_id":"r","output":"port = 8080"}]}"#,
    );
    let (call, text) = one_call();
    let result = SaidResult { call: &call, text, ended: Ended::Well };
    assert!(follow_up(Format::OpenaiResponses, r#"{"model":"m"}"#, answer, &[result]).is_err());
    assert!(follow_up(Format::Anthropic, r#"{"messages":[]}"#, "{}", &[result]).is_err());
    assert!(follow_up(Format::OpenaiChat, r#"{"messages":[]}"#, "{}", &[result]).is_err());
}

#[test]
fn what_would_be_refused_is_not_sent_back() {
    let call = r#"{"type":"function_call","call_id":"r","name":"epitome_recall","arguments":"{}"}"#;
    let open = r#"{"type":"reasoning","id":"rs_1","summary":[]}"#;
    let sealed = r#"{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"x"}"#;
    let result = r#"{"type":"function_call_output","call_id":"r","output":"port = 8080"}"#;
    let check = |settings: &str, said: &str| {
        check_follow_up(
            Format::OpenaiResponses,
            &format!(r#"{{"input":[],{settings}}}"#),
            &format!(r#"{{"output":[{open},{sealed},{call}]}}"#),
            &format!(r#"{{"input":[{said},{result}],{settings}}}"#),
        );
    };
    check(r#""store":true"#, &format!("{open},{sealed},{call}"));
    check(r#""store":false"#, &format!("{sealed},{call}"));
    // An empty text, and an input that is no object.
    check_follow_up(
        Format::Anthropic,
        r#"{"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"content":[{"type":"text","text":"\n"},{"type":"tool_use","id":"r","name":"epitome_recall","input":"{\"ha"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"r","name":"epitome_recall","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"r","content":"port = 8080"}]}]}"#,
    );
    // Members of a response that no request has.
    check_follow_up(
        Format::OpenaiChat,
        r#"{"messages":[]}"#,
        r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"annotations":[],"reasoning_content":"hm","audio":null,"tool_calls":[{"id":"r","type":"function","function":{"name":"epitome_recall","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]}}]}"#,
        r#"{"messages":[{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"r","type":"function","function":{"name":"epitome_recall","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]},{"role":"tool","tool_call_id":"r","content":"port = 8080"}]}"#,
    );
}
