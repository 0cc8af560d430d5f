//! Requests: what is read, and that it leaves as it came.

use std::fmt::Write as _;

use epitome_core::{ContentPart, Event, Fact, event::InstructionKind, media::MediaLocation};
use epitome_wire::{EncodeMode, Format};
use serde_json::{Value, value::RawValue};

use crate::fixtures;

fn history_key(format: Format) -> &'static str {
    match format {
        Format::OpenaiChat | Format::Anthropic => "messages",
        Format::OpenaiResponses => "input",
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// The exact bytes of each message; a bare input is its own only one.
fn slices(format: Format, request: &str) -> Vec<String> {
    let members: std::collections::HashMap<String, &RawValue> = serde_json::from_str(request).unwrap();
    let history = members[history_key(format)];
    match serde_json::from_str::<Vec<&RawValue>>(history.get()) {
        Ok(messages) => messages.iter().map(|message| message.get().to_owned()).collect(),
        Err(_) => vec![history.get().to_owned()],
    }
}

/// Numbers by their digits, which `Value` would round, and strings with half a pair, which it would refuse.
fn comparable(json: &str) -> Value {
    fn walk(raw: &RawValue) -> Value {
        let text = raw.get();
        match text.as_bytes()[0] {
            b'{' => {
                let members: Members = serde_json::from_str(text).unwrap();
                Value::Object(members.0.into_iter().map(|(key, value)| (key, walk(&value))).collect())
            }
            b'[' => serde_json::from_str::<Vec<&RawValue>>(text).unwrap().into_iter().map(walk).collect(),
            b'"' => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            _ => format!("literally {text}").into(),
        }
    }
    struct Members(Vec<(String, Box<RawValue>)>);
    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let map = std::collections::BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
            Ok(Self(map.into_iter().collect()))
        }
    }
    walk(serde_json::from_str(json).unwrap())
}

#[test]
fn a_request_that_nobody_touched_leaves_as_it_came() {
    for fixture in fixtures::requests() {
        let events = fixture.format.decode_request(&fixture.text).unwrap();
        let encoded = fixture.format.encode(&events, EncodeMode::AsRecorded).unwrap();
        assert_eq!(comparable(&encoded.body), comparable(&fixture.text), "{}", fixture.name);
        assert_eq!(
            slices(fixture.format, &encoded.body),
            slices(fixture.format, &fixture.text),
            "{} {}",
            fixture.format,
            fixture.name
        );
        let placed: Vec<&str> =
            encoded.messages.iter().map(|placed| &encoded.body[placed.bytes.clone()]).collect();
        assert_eq!(placed, slices(fixture.format, &fixture.text), "{}", fixture.name);
    }
}

#[test]
fn every_message_is_an_event_that_keeps_its_bytes() {
    for fixture in fixtures::requests() {
        let events = fixture.format.decode_request(&fixture.text).unwrap();
        let is_head = |event: &&Event| match &event.fact {
            Fact::Instructed { what, .. } => {
                matches!(what, InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools)
            }
            _ => false,
        };
        let raws: Vec<&str> =
            events.iter().filter(|event| !is_head(event)).map(|event| &*event.raw.json).collect();
        assert_eq!(raws, slices(fixture.format, &fixture.text), "{}", fixture.name);
        assert!(events.iter().all(|event| event.raw.dialect == fixture.format.dialect()));
        assert!(events[1..].iter().all(|event| event.normal.is_some()), "{}", fixture.name);
        assert_eq!(events[0].normal, None);
    }
}

#[test]
fn settings_system_and_tools_leave_their_places_empty() {
    let events = Format::Anthropic
        .decode_request(r#"{"model":"m", "messages":[{"role":"user","content":"x"}],"system":"s","tools":[{"name":"t"}],"x":1.0}"#)
        .unwrap();
    assert_eq!(&*events[0].raw.json, r#"{"model":"m", "messages":null,"system":null,"tools":null,"x":1.0}"#);
    assert_eq!(&*events[1].raw.json, r#""s""#);
    assert_eq!(&*events[2].raw.json, r#"[{"name":"t"}]"#);
    assert_eq!(
        events[2].fact.parts(),
        [ContentPart::Opaque { name: "t".into(), json: r#"{"name":"t"}"#.into() }]
    );
}

/// One line an event: its kind, then its parts in short.
fn shown(events: &[Event]) -> String {
    let mut out = String::new();
    for event in events {
        let head = match &event.fact {
            Fact::Instructed { what, .. } => format!("{what:?}").to_lowercase(),
            Fact::UserSaid { .. } => "user".into(),
            Fact::AssistantSaid { answer, .. } => {
                let name = answer.as_ref().map_or("-", |answer| &answer.0);
                format!("assistant {}", name.get(..8).unwrap_or(name))
            }
            Fact::ToolReturned { .. } => "tool".into(),
            Fact::Carried { kind } => format!("carried {kind}"),
            other => other.kind().into(),
        };
        let results = event.fact.results().iter().map(|result| {
            let parts: Vec<String> = result.parts.iter().map(part).collect();
            format!("{}{}=({})", if result.error { "!" } else { "" }, result.call, parts.join(" "))
        });
        let parts: Vec<String> = results.chain(event.fact.parts().iter().map(part)).collect();
        writeln!(out, "{head}: {}", parts.join(" ")).unwrap();
    }
    out
}

fn part(part: &ContentPart) -> String {
    match part {
        ContentPart::Text { text } => format!("{text:?}"),
        ContentPart::Reasoning { text, seal } => format!("reasoning({text:?} {seal:?})"),
        ContentPart::ToolCall(call) => {
            let space = call.namespace.as_ref().map_or(String::new(), |space| format!("{space}/"));
            format!("{:?}({} {space}{} {})", call.form, call.id, call.name, call.arguments)
        }
        ContentPart::Refusal { text } => format!("refusal({text:?})"),
        ContentPart::Media(media) => match &media.place {
            MediaLocation::Inline { size, .. } => {
                format!("media({} {size} {:?})", media.mime, media.dimensions)
            }
            MediaLocation::Elsewhere(link) => format!("media({} {link})", media.mime),
        },
        ContentPart::Opaque { name, .. } => format!("opaque({name})"),
    }
}

fn read(format: Format, name: &str) -> String {
    shown(&format.decode_request(&fixtures::request(format, name)).unwrap())
}

#[test]
fn anthropic_blocks_become_parts() {
    insta::assert_snapshot!(read(Format::Anthropic, "blocks.json"), @r#"
    settings: 
    system: "x-billing: first and unchanged" "You are a careful agent."
    tools: opaque(read_file) opaque(web_search) opaque(some_hosted_thing)
    user: "Look at these." media(image/png 70 Some((1, 1))) media(image/* https://example.org/cat.png) media(image/* file_011) opaque(image) media(application/pdf 15 None) media(application/pdf https://example.org/a.pdf) opaque(document) opaque(document) opaque(search_result) opaque(container_upload)
    assistant -: reasoning("Let me see…" Some(Signature("EqQBCg=="))) reasoning("" Some(Encrypted("EmwKAhgB"))) "I see a cat." Function(toolu_1 read_file {"path": "a.rs", "cache_control": "mine", "n": 1.0}) Function(toolu_2 read_file {})
    tool: toolu_1=("fn main() {}") !toolu_2=("no such file" media(image/png 70 Some((1, 1)))) "Go on, please."
    assistant -: opaque(server_tool_use) opaque(web_search_tool_result) opaque(server_tool_use) opaque(web_fetch_tool_result) opaque(code_execution_tool_result) opaque(bash_code_execution_tool_result) opaque(text_editor_code_execution_tool_result) opaque(tool_search_tool_result) opaque(mcp_tool_use) opaque(mcp_tool_result) opaque(fallback) "Rust is a language."
    message: "The user switched to plan mode."
    message: opaque(tool_addition) opaque(tool_removal)
    user: "And now?" opaque(hologram)
    "#);
}

#[test]
fn anthropic_oddities_are_carried() {
    insta::assert_snapshot!(read(Format::Anthropic, "quirks.json"), @r#"
    settings: 
    system: "Be\tkind. "
    user: "café / 😀 �"
    assistant -: Function(call_1 t {"b":1.0,"a":1e5,"big":12345678901234567890})
    tool: call_1=()
    assistant -: Function(call_1 t { })
    tool: call_1=() opaque(tool_result)
    assistant -: 
    assistant -: 
    user: 
    user: opaque(content)
    user: opaque(text)
    user: opaque(block) opaque(block) opaque(block) opaque(block) opaque(text) opaque(image) opaque(document) opaque(tool_use)
    assistant -: opaque(tool_use) opaque(thinking) opaque(redacted_thinking) opaque(tool_result)
    carried message: 
    carried narrator: 
    carried message: 
    carried message:
    "#);
}

#[test]
fn what_claude_code_and_a_compaction_send_is_told_apart() {
    insta::assert_snapshot!(read(Format::Anthropic, "claude-code.json"), @r#"
    settings: 
    system: "x-anthropic-billing-header: cc_version=2.1.197.abc;" "You are Claude Code."
    tools: opaque(Bash)
    project: "<system-reminder>\nToday's date is 2026-11-15.\n</system-reminder>"
    user: "<system-reminder>\nUse the task tool.\n</system-reminder>" "List the files."
    message: "Plan mode is off."
    assistant -: "I will." Function(toolu_01 Bash {"command":"ls"})
    tool: toolu_01=("a\nb")
    "#);
    insta::assert_snapshot!(read(Format::Anthropic, "compaction.json"), @r#"
    settings: 
    assistant -: opaque(compaction)
    user: "Now the tests."
    assistant -: reasoning("" Some(Signature("Ev8="))) "On it."
    "#);
}

#[test]
fn chat_messages_become_parts_in_a_fixed_order() {
    insta::assert_snapshot!(read(Format::OpenaiChat, "messages.json"), @r#"
    settings: 
    tools: opaque(look) opaque(apply_patch)
    message: "Be brief."
    message: "Be kind."
    user: "What are these?" media(image/png 70 Some((1, 1))) media(image/* https://example.org/cat.png) opaque(image_url) media(audio/wav 44 None) media(application/pdf 15 None) media( file-abc) opaque(hologram)
    assistant -: Function(call_1 look {"at": "cat", "n": 1.0}) Function(call_2 look {"at": "do) Custom(call_3 apply_patch *** Begin Patch)
    tool: call_2=("those arguments are no JSON")
    tool: call_1=("a cat")
    tool: call_3=("Done")
    assistant -: "A cat." refusal("No dog.")
    user: "Say it."
    assistant -: media( audio_1)
    user: "And how is it built?"
    assistant -: refusal("I will not say.")
    "#);
    insta::assert_snapshot!(read(Format::OpenaiChat, "reasoning.json"), @r#"
    settings: 
    message: "Think."
    user: "2+2?"
    assistant -: reasoning("Two and two…" None) Function(call_00 add {})
    tool: call_00=("4")
    assistant -: reasoning("So it is" None) "4."
    user: "Sure?"
    "#);
    insta::assert_snapshot!(read(Format::OpenaiChat, "deprecated.json"), @r#"
    settings: 
    user: "What time is it?"
    assistant -: Function(now now {})
    tool: now=("12:00")
    assistant -: "Noon."
    "#);
}

#[test]
fn chat_oddities_are_carried() {
    insta::assert_snapshot!(read(Format::OpenaiChat, "quirks.json"), @r#"
    settings: 
    tools: opaque(function) opaque(tool)
    user: "Hi 😀 /"
    assistant -: 
    assistant -: opaque(content) opaque(tool_calls)
    assistant -: opaque(audio) opaque(tool_call) opaque(tool_call) opaque(function) Function(b no type {"an":"object"}) opaque(custom) opaque(teleport) opaque(function_call)
    carried tool: 
    tool: call_1=()
    tool: call_1=()
    assistant -: Function(call_1 t )
    tool: call_1=(opaque(content))
    assistant -: Function(call_1 t not json)
    tool: call_1=("second")
    user: opaque(part) opaque(part) opaque(image_url) media(image/* https://example.org/bare.png) opaque(input_audio) opaque(file)
    carried critic: 
    carried message: 
    carried message: 
    carried message:
    "#);
}

#[test]
fn responses_items_become_events() {
    insta::assert_snapshot!(read(Format::OpenaiResponses, "items.json"), @r#"
    settings: 
    system: "You are a careful agent."
    tools: opaque(look) opaque(apply_patch) opaque(multi_agent_v1) opaque(web_search)
    message: "Be brief."
    message: "Be kind."
    user: "What is this?" media(image/png 70 Some((1, 1))) media(image/* file-1) opaque(input_image) media(application/pdf 15 None) media( https://example.org/a.pdf) media(audio/wav 44 None) opaque(hologram)
    assistant rs_1: reasoning("**Looking**\nIt is a cat." Some(Encrypted("gAAAA")))
    assistant rs_1: "Let me look." refusal("Not that.")
    assistant rs_1: Function(call_1 look {"n": 1.0, "at": "café"})
    assistant rs_1: Function(call_2 multi_agent_v1/spawn_agent {"not json)
    tool: call_2=("bad arguments" media(image/* https://example.org/x.png))
    tool: call_1=("a cat")
    assistant ctc_1: Custom(call_3 apply_patch *** Begin Patch
    {)
    tool: call_3=("Done!")
    assistant lsh_1: Function(call_4 local_shell {"type": "exec", "command": ["ls"], "env": {}})
    tool: call_4=("a\nb")
    assistant sh_1: Function(call_5 shell {"commands": ["ls", "false"], "timeout_ms": 1000})
    tool: !call_5=("a\nexit code 0" "bad\nexit code 1" "timeout" opaque(shell_output))
    assistant apc_1: Function(call_6 apply_patch {"type": "delete_file", "path": "a"})
    tool: !call_6=("no such file")
    assistant cu_1: Function(call_7 computer {"type": "screenshot"})
    tool: call_7=(media(image/png 70 Some((1, 1))))
    assistant ts_1: Function(call_8 tool_search {"query": "mail"})
    tool: call_8=(opaque(send_mail))
    assistant ts_2: opaque(tool_search_call)
    assistant ts_2: opaque(tool_search_output)
    assistant ts_2: opaque(web_search_call)
    assistant ts_2: opaque(file_search_call)
    assistant ts_2: opaque(code_interpreter_call)
    assistant ts_2: media(image/png 70 Some((1, 1)))
    assistant ts_2: opaque(image_generation_call)
    assistant ts_2: opaque(mcp_list_tools)
    assistant ts_2: opaque(mcp_approval_request)
    carried mcp_approval_response: 
    assistant mcp_1: opaque(mcp_call)
    assistant mcp_1: opaque(program)
    assistant mcp_1: opaque(program_output)
    assistant mcp_1: opaque(compaction)
    carried item_reference: 
    carried additional_tools: 
    carried configuration_update: 
    carried thought_of_tomorrow: 
    user: "Go on."
    carried compaction_trigger:
    "#);
}

#[test]
fn a_run_of_output_items_is_one_answer_and_codex_preambles_are_instructions() {
    insta::assert_snapshot!(read(Format::OpenaiResponses, "codex.json"), @r##"
    settings: 
    tools: opaque(exec_command)
    message: "You are Codex."
    project: "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nTest first.\n</INSTRUCTIONS>" "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"
    user: "Fix the build."
    assistant rs_1: reasoning("" Some(Encrypted("gAAAAA")))
    assistant rs_1: Function(call_1 exec_command { "cmd" : "cargo build" })
    assistant rs_1: Function(call_2 exec_command {"cmd":"ls"})
    tool: call_1=("error")
    tool: call_2=("src")
    assistant a3f19368: "Fixed."
    user: "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"
    "##);
    insta::assert_snapshot!(read(Format::OpenaiResponses, "bare.json"), @r#"
    settings: 
    user: "Tell me a café story."
    "#);
}

#[test]
fn responses_oddities_are_carried() {
    insta::assert_snapshot!(read(Format::OpenaiResponses, "quirks.json"), @r#"
    settings: 
    system: opaque(block)
    tools: opaque(tools)
    user: "Hi / �"
    user: 
    carried message: 
    carried message: 
    assistant 0a3ece8c: opaque(function_call)
    assistant 0a3ece8c: opaque(function_call)
    assistant 0a3ece8c: Function(call_1 t {"an":"object","n":1.0})
    tool: call_1=()
    assistant 8b6b525b: Function(call_1 t {})
    tool: call_1=(opaque(content))
    carried function_call_output: 
    tool: call_9=("stray")
    assistant 2d4240c4: reasoning("" None)
    assistant 2d4240c4: Custom(c p )
    tool: d=()
    carried item: 
    carried item: 
    carried item: 
    carried item: 
    carried item:
    "#);
}
