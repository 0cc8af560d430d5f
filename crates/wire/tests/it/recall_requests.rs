//! Requests with the recall tool: offered without a byte of the client's changed.

use std::collections::BTreeMap;

use epitome_wire::{
    Format,
    legality::{ProviderRules, check},
    recall_tool::{BodyEdit, RECALL_TOOL, offer},
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::fixtures;

type Members = BTreeMap<String, Box<RawValue>>;

fn members(body: &str) -> Members {
    serde_json::from_str(body).unwrap()
}

/// The tool stands first, and everything else has the bytes it had.
fn is_offered(body: &str, edit: &BodyEdit) {
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
    let undone = BodyEdit {
        at: edit.at.start..edit.at.start + edit.text.len(),
        text: body[edit.at.clone()].to_owned(),
    };
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
                let rules = ProviderRules::of(fixture.format);
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
        for format in crate::SCRIPTED {
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
    for format in crate::SCRIPTED {
        let edit = offer(format, "{}").unwrap();
        let body = edit.apply("{}");
        let tools = members(&body)["tools"].get().to_owned();
        let event = format.say_tools(&tools).unwrap();
        assert!(
            matches!(&event.fact.parts()[0], epitome_core::ContentPart::Opaque { name, .. } if name == RECALL_TOOL)
        );
        assert!(tools.contains("\"handle\"") && tools.contains("\"query\""));
    }
}

proptest! {
    #[test]
    fn the_tool_goes_in_without_another_byte_changed(
        format in prop::sample::select(crate::SCRIPTED.as_slice()),
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
}
