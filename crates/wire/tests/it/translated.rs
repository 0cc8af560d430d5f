//! Histories that leave in another format than they came in.

use epitome_core::{
    ContentPart, Event, Fact,
    event::{InstructionKind, ToolCall},
};
use epitome_wire::{EncodeMode, Format};

use crate::fixtures;

fn translated(from: Format, name: &str, to: Format) -> String {
    let events = from.decode_request(&fixtures::request(from, name)).unwrap();
    let body = to.encode(&events, EncodeMode::Legal).unwrap().body;
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    let mut lines = Vec::new();
    for (key, value) in value.as_object().unwrap() {
        match value.as_array() {
            Some(elements) => {
                lines.push(format!("{key}:"));
                lines.extend(elements.iter().map(|element| format!("  {element}")));
            }
            None => lines.push(format!("{key}: {value}")),
        }
    }
    // The picture's bytes are checked elsewhere.
    lines.join("\n").replace(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "PNG",
    )
}

#[test]
fn chat_becomes_anthropic() {
    insta::assert_snapshot!(translated(Format::OpenaiChat, "messages.json", Format::Anthropic), @r#"
    system:
      {"type":"text","text":"Be brief."}
      {"type":"text","text":"Be kind."}
    tools:
      {"name":"look","description":"Looks.","input_schema":{"type":"object","properties":{}}}
      {"name":"apply_patch","description":"Patches.","input_schema":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}}
    messages:
      {"role":"user","content":[{"type":"text","text":"What are these?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PNG"}},{"type":"image","source":{"type":"url","url":"https://example.org/cat.png"}},{"type":"text","text":"[image_url: left out, it cannot be shown here]"},{"type":"text","text":"[audio/wav: left out, it cannot be shown here]"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjQKJSVFT0YK"}},{"type":"text","text":"[attachment: left out, it cannot be shown here]"},{"type":"text","text":"[hologram: left out, it cannot be shown here]"}]}
      {"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"look","input":{"at":"cat","n":1.0}},{"type":"tool_use","id":"call_2","name":"look","input":{"arguments":"{\"at\": \"do"}},{"type":"tool_use","id":"call_3","name":"apply_patch","input":{"input":"*** Begin Patch"}}]}
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"call_2","content":"those arguments are no JSON"},{"type":"tool_result","tool_use_id":"call_1","content":"a cat"},{"type":"tool_result","tool_use_id":"call_3","content":"Done"}]}
      {"role":"assistant","content":[{"type":"text","text":"A cat."},{"type":"text","text":"No dog."}]}
      {"role":"user","content":[{"type":"text","text":"Say it."}]}
      {"role":"assistant","content":[{"type":"text","text":"[attachment: left out, it cannot be shown here]"}]}
      {"role":"user","content":[{"type":"text","text":"And how is it built?"}]}
      {"role":"assistant","content":[{"type":"text","text":"I will not say."}]}
    "#);
}

#[test]
fn anthropic_becomes_chat() {
    insta::assert_snapshot!(translated(Format::Anthropic, "blocks.json", Format::OpenaiChat), @r#"
    tools:
      {"type":"function","function":{"name":"read_file","description":"Reads a file.","parameters":{"type":"object","properties":{"path":{"type":"string"},"cache_control":{"type":"string"}}}}}
    messages:
      {"role":"system","content":[{"type":"text","text":"x-billing: first and unchanged"},{"type":"text","text":"You are a careful agent."}]}
      {"role":"user","content":[{"type":"text","text":"Look at these."},{"type":"image_url","image_url":{"url":"data:image/png;base64,PNG"}},{"type":"image_url","image_url":{"url":"https://example.org/cat.png"}},{"type":"text","text":"[image/*: left out, it cannot be shown here]"},{"type":"text","text":"[image: left out, it cannot be shown here]"},{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"}},{"type":"text","text":"[application/pdf at https://example.org/a.pdf]"},{"type":"text","text":"[document: left out, it cannot be shown here]"},{"type":"text","text":"[document: left out, it cannot be shown here]"},{"type":"text","text":"[search_result: left out, it cannot be shown here]"},{"type":"text","text":"[container_upload: left out, it cannot be shown here]"}]}
      {"role":"assistant","content":"I see a cat.","tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"read_file","arguments":"{\"path\": \"a.rs\", \"cache_control\": \"mine\", \"n\": 1.0}"}},{"id":"toolu_2","type":"function","function":{"name":"read_file","arguments":"{}"}}]}
      {"role":"tool","tool_call_id":"toolu_1","content":"fn main() {}"}
      {"role":"tool","tool_call_id":"toolu_2","content":[{"type":"text","text":"no such file"},{"type":"text","text":"[image/png: left out, it cannot be shown here]"}]}
      {"role":"user","content":"Go on, please."}
      {"role":"assistant","content":"[server_tool_use: left out, it cannot be shown here]\n[web_search_tool_result: left out, it cannot be shown here]\n[server_tool_use: left out, it cannot be shown here]\n[web_fetch_tool_result: left out, it cannot be shown here]\n[code_execution_tool_result: left out, it cannot be shown here]\n[bash_code_execution_tool_result: left out, it cannot be shown here]\n[text_editor_code_execution_tool_result: left out, it cannot be shown here]\n[tool_search_tool_result: left out, it cannot be shown here]\n[mcp_tool_use: left out, it cannot be shown here]\n[mcp_tool_result: left out, it cannot be shown here]\n[fallback: left out, it cannot be shown here]\nRust is a language."}
      {"role":"system","content":"The user switched to plan mode."}
      {"role":"system","content":[{"type":"text","text":"[tool_addition: left out, it cannot be shown here]"},{"type":"text","text":"[tool_removal: left out, it cannot be shown here]"}]}
      {"role":"user","content":[{"type":"text","text":"And now?"},{"type":"text","text":"[hologram: left out, it cannot be shown here]"}]}
    "#);
}

#[test]
fn anthropic_becomes_responses() {
    insta::assert_snapshot!(translated(Format::Anthropic, "blocks.json", Format::OpenaiResponses), @r#"
    instructions: "x-billing: first and unchanged\nYou are a careful agent."
    tools:
      {"type":"function","name":"read_file","description":"Reads a file.","parameters":{"type":"object","properties":{"path":{"type":"string"},"cache_control":{"type":"string"}}}}
    input:
      {"type":"message","role":"user","content":[{"type":"input_text","text":"Look at these."},{"type":"input_image","image_url":"data:image/png;base64,PNG"},{"type":"input_image","image_url":"https://example.org/cat.png"},{"type":"input_text","text":"[image/*: left out, it cannot be shown here]"},{"type":"input_text","text":"[image: left out, it cannot be shown here]"},{"type":"input_file","filename":"document.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"},{"type":"input_file","file_url":"https://example.org/a.pdf"},{"type":"input_text","text":"[document: left out, it cannot be shown here]"},{"type":"input_text","text":"[document: left out, it cannot be shown here]"},{"type":"input_text","text":"[search_result: left out, it cannot be shown here]"},{"type":"input_text","text":"[container_upload: left out, it cannot be shown here]"}]}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I see a cat."}]}
      {"type":"function_call","call_id":"toolu_1","name":"read_file","arguments":"{\"path\": \"a.rs\", \"cache_control\": \"mine\", \"n\": 1.0}"}
      {"type":"function_call","call_id":"toolu_2","name":"read_file","arguments":"{}"}
      {"type":"function_call_output","call_id":"toolu_1","output":"fn main() {}"}
      {"type":"function_call_output","call_id":"toolu_2","output":[{"type":"input_text","text":"no such file"},{"type":"input_image","image_url":"data:image/png;base64,PNG"}]}
      {"type":"message","role":"user","content":[{"type":"input_text","text":"Go on, please."}]}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"[server_tool_use: left out, it cannot be shown here]"},{"type":"output_text","text":"[web_search_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[server_tool_use: left out, it cannot be shown here]"},{"type":"output_text","text":"[web_fetch_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[code_execution_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[bash_code_execution_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[text_editor_code_execution_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[tool_search_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[mcp_tool_use: left out, it cannot be shown here]"},{"type":"output_text","text":"[mcp_tool_result: left out, it cannot be shown here]"},{"type":"output_text","text":"[fallback: left out, it cannot be shown here]"},{"type":"output_text","text":"Rust is a language."}]}
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"The user switched to plan mode."}]}
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"[tool_addition: left out, it cannot be shown here]"},{"type":"input_text","text":"[tool_removal: left out, it cannot be shown here]"}]}
      {"type":"message","role":"user","content":[{"type":"input_text","text":"And now?"},{"type":"input_text","text":"[hologram: left out, it cannot be shown here]"}]}
    "#);
}

#[test]
fn responses_becomes_anthropic() {
    insta::assert_snapshot!(translated(Format::OpenaiResponses, "codex.json", Format::Anthropic), @r##"
    system: "You are Codex."
    tools:
      {"name":"exec_command","input_schema":{"type":"object"}}
    messages:
      {"role":"user","content":[{"type":"text","text":"# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nTest first.\n</INSTRUCTIONS>"},{"type":"text","text":"<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"},{"type":"text","text":"Fix the build."}]}
      {"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"exec_command","input":{"cmd":"cargo build"}},{"type":"tool_use","id":"call_2","name":"exec_command","input":{"cmd":"ls"}}]}
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"error"},{"type":"tool_result","tool_use_id":"call_2","content":"src"}]}
      {"role":"assistant","content":[{"type":"text","text":"Fixed."}]}
      {"role":"user","content":[{"type":"text","text":"<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"}]}
    "##);
}

#[test]
fn responses_becomes_chat() {
    insta::assert_snapshot!(translated(Format::OpenaiResponses, "codex.json", Format::OpenaiChat), @r##"
    tools:
      {"type":"function","function":{"name":"exec_command","parameters":{"type":"object"}}}
    messages:
      {"role":"system","content":"You are Codex."}
      {"role":"user","content":[{"type":"text","text":"# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nTest first.\n</INSTRUCTIONS>"},{"type":"text","text":"<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"}]}
      {"role":"user","content":"Fix the build."}
      {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"exec_command","arguments":"{ \"cmd\" : \"cargo build\" }"}},{"id":"call_2","type":"function","function":{"name":"exec_command","arguments":"{\"cmd\":\"ls\"}"}}]}
      {"role":"tool","tool_call_id":"call_1","content":"error"}
      {"role":"tool","tool_call_id":"call_2","content":"src"}
      {"role":"assistant","content":"Fixed."}
      {"role":"user","content":"<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"}
    "##);
}

/// Every translated request reads back with the same text and calls in the same order.
#[test]
fn a_translated_history_still_says_the_same() {
    let said = |events: &[Event]| -> Vec<String> {
        let is_said = |event: &&Event| match &event.fact {
            Fact::Instructed { what, .. } => *what == InstructionKind::Project,
            _ => true,
        };
        events
            .iter()
            .filter(is_said)
            .flat_map(|event| {
                let results = event.fact.results().iter().flat_map(|result| &result.parts);
                results.chain(event.fact.parts()).filter_map(|part| match part {
                    ContentPart::Text { text } if !text.starts_with('[') => Some(text.clone()),
                    ContentPart::ToolCall(call) => Some(format!("{}({})", call.name, call.arguments)),
                    _ => None,
                })
            })
            .collect()
    };
    for from in crate::SCRIPTED {
        let name = if from == Format::OpenaiResponses { "codex.json" } else { "reasoning.json" };
        let name = if from == Format::Anthropic { "claude-code.json" } else { name };
        let events = from.decode_request(&fixtures::request(from, name)).unwrap();
        for to in crate::SCRIPTED {
            let body = to.encode(&events, EncodeMode::Legal).unwrap().body;
            let again = to.decode_request(&body).unwrap();
            let strip =
                |texts: Vec<String>| texts.into_iter().map(|text| text.replace(' ', "")).collect::<Vec<_>>();
            assert_eq!(strip(said(&again)), strip(said(&events)), "{from} to {to}");
        }
    }
}

#[test]
fn ids_and_arguments_fit_the_format_they_go_to() {
    let call = |id: &str, arguments: &str| {
        let parts = vec![ContentPart::ToolCall(ToolCall::function(id, "t", arguments))];
        Event::from_fact(Fact::AssistantSaid { answer: None, model: None, parts }, None)
    };
    let check = |arguments: &str, to: Format, expect: &str| {
        let body = to.encode([&call("call|1.2", arguments)], EncodeMode::AsRecorded).unwrap().body;
        assert!(body.contains(expect), "{body}");
    };
    check("{not json", Format::Anthropic, r#""id":"call_1_2","name":"t","input":{"arguments":"{not json"}"#);
    check("[1]", Format::Anthropic, r#""input":{"arguments":"[1]"}"#);
    check("", Format::Anthropic, r#""input":{}"#);
    check(r#"{ "a" : 1.0 }"#, Format::Anthropic, r#""input":{ "a" : 1.0 }"#);
    check("", Format::OpenaiChat, r#""arguments":"{}""#);
    check("{not json", Format::OpenaiResponses, r#""call_id":"call|1.2","name":"t","arguments":"{not json""#);
}
