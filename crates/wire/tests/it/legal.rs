//! What a provider would refuse is completed, and nothing else is touched.

use epitome_core::{
    Event, Fact,
    event::{Compaction, CompactionTrigger, Pin, Summary, Usage},
    id::Seq,
};
use epitome_wire::{EncodeMode, Format, anthropic, openai_chat, openai_responses};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures;

fn history(format: Format, events: &[Event], completion: EncodeMode) -> Vec<Value> {
    let body: Value = serde_json::from_str(&format.encode(events, completion).unwrap().body).unwrap();
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    body[key].as_array().cloned().unwrap_or_default()
}

fn events(format: Format, messages: &[&str]) -> Vec<Event> {
    let read = |message: &&str| match format {
        Format::OpenaiChat => openai_chat::message(message),
        Format::OpenaiResponses => openai_responses::item(message),
        Format::Anthropic => anthropic::message(message),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    messages.iter().map(|message| read(message).unwrap()).collect()
}

/// The history in short: one line a message.
fn check(format: Format, messages: &[&str], expect: &[&str]) {
    let events = events(format, messages);
    let written = format.encode(&events, EncodeMode::Legal).unwrap();
    let lines: Vec<&str> =
        written.messages.iter().map(|placed| &written.body[placed.bytes.clone()]).collect();
    assert_eq!(lines, expect);
}

const SAID: &str = "[no result: the call was interrupted]";

#[test]
fn anthropic_calls_are_answered_in_the_next_message() {
    let stand_in =
        format!(r#"{{"type":"tool_result","tool_use_id":"b","content":"{SAID}","is_error":true}}"#);
    check(
        Format::Anthropic,
        &[
            r#"{"role":"user","content":"go"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}},{"type":"tool_use","id":"b","name":"t","input":{}}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"wait"},{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"tool_result","tool_use_id":"zzz","content":"stray"}]}"#,
            r#"{"role":"user","content":"more"}"#,
        ],
        &[
            r#"{"role":"user","content":"go"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}},{"type":"tool_use","id":"b","name":"t","input":{}}]}"#,
            &format!(
                r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"1"}},{stand_in},{{"type":"text","text":"wait"}},{{"type":"text","text":"more"}}]}}"#
            ),
        ],
    );
}

#[test]
fn anthropic_results_that_come_late_move_up_to_their_call() {
    check(
        Format::Anthropic,
        &[
            r#"{"role":"user","content":"go"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}}]}"#,
            r#"{"role":"assistant","content":"hm"}"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}"#,
        ],
        &[
            r#"{"role":"user","content":"go"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}}]}"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}"#,
            r#"{"role":"assistant","content":"hm"}"#,
        ],
    );
}

#[test]
fn anthropic_begins_with_the_user_has_no_empty_text_and_alternates() {
    check(
        Format::Anthropic,
        &[
            r#"{"role":"assistant","content":[{"type":"text","text":"  "},{"type":"text","text":"hi"}],"x":1}"#,
            r#"{"role":"user","content":""}"#,
            r#"{"role":"assistant","content":"again"}"#,
            r#"{"role":"system","content":"mid"}"#,
            r#"{"role":"assistant","content":[]}"#,
            r#"{"role":"user","content":"one"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"two"}]}"#,
        ],
        &[
            r#"{"role":"user","content":[{"type":"text","text":"(continued)"}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"hi"},{"type":"text","text":"again"}]}"#,
            r#"{"role":"system","content":"mid"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}"#,
        ],
    );
    // Only the content of an edited message changes, and a signed compaction may open the history.
    check(
        Format::Anthropic,
        &[
            r#"{"role":"assistant","content":[{"type":"compaction","content":"s","signature":"x"}]}"#,
            r#"{"x":1.0, "role":"user","content":[{"type":"text","text":""},{"type":"text","text":"hi"}]}"#,
        ],
        &[
            r#"{"role":"assistant","content":[{"type":"compaction","content":"s","signature":"x"}]}"#,
            r#"{"x":1.0, "role":"user","content":[{"type":"text","text":"hi"}]}"#,
        ],
    );
}

#[test]
fn chat_calls_are_answered_directly_after_them() {
    let call = |id: &str| {
        format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}]}}"#
        )
    };
    let result =
        |id: &str, text: &str| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#);
    let user = r#"{"role":"user","content":"hi"}"#;
    check(
        Format::OpenaiChat,
        &[
            &result("a", "stray"),
            &call("a"),
            user,
            &result("a", "late"),
            &call("a"),
            r#"{"role":"assistant","content":null,"reasoning_content":"hm"}"#,
            r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#,
        ],
        &[
            &call("a"),
            &result("a", "late"),
            user,
            &call("a"),
            &result("a", SAID),
            r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#,
            &format!(r#"{{"role":"function","name":"f","content":"{SAID}"}}"#),
        ],
    );
}

#[test]
fn responses_calls_and_outputs_are_paired_by_id() {
    let reasoning = r#"{"type":"reasoning","id":"rs","summary":[]}"#;
    let call = |kind: &str, id: &str| {
        format!(
            r#"{{"type":"{kind}","call_id":"{id}","name":"t","arguments":"{{}}","input":"","action":{{}}}}"#
        )
    };
    let items = [
        r#"{"type":"function_call_output","call_id":"zzz","output":"stray"}"#.to_owned(),
        reasoning.to_owned(),
        call("function_call", "a"),
        call("custom_tool_call", "b"),
        r#"{"type":"function_call_output","call_id":"a","output":"1"}"#.to_owned(),
        call("shell_call", "c"),
        call("local_shell_call", "d"),
        call("apply_patch_call", "e"),
        call("tool_search_call", "f"),
        reasoning.to_owned(),
    ];
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    check(
        Format::OpenaiResponses,
        &items,
        &[
            items[1],
            items[2],
            items[3],
            items[4],
            &format!(r#"{{"type":"custom_tool_call_output","call_id":"b","output":"{SAID}"}}"#),
            items[5],
            items[6],
            items[7],
            items[8],
            &format!(
                r#"{{"type":"shell_call_output","call_id":"c","output":[{{"stdout":"","stderr":"{SAID}","outcome":{{"type":"exit","exit_code":1}}}}]}}"#
            ),
            &format!(r#"{{"type":"local_shell_call_output","id":"d","output":"{SAID}"}}"#),
            &format!(
                r#"{{"type":"apply_patch_call_output","call_id":"e","status":"failed","output":"{SAID}"}}"#
            ),
            r#"{"type":"tool_search_output","call_id":"f","execution":"client","tools":[]}"#,
        ],
    );
}

#[test]
fn a_computer_call_is_answered_with_a_picture_that_is_one() {
    let call = r#"{"type":"computer_call","call_id":"a","action":{"type":"screenshot"}}"#;
    let written =
        history(Format::OpenaiResponses, &events(Format::OpenaiResponses, &[call]), EncodeMode::Legal);
    let answer = openai_responses::item(&written[1].to_string()).unwrap();
    assert_eq!(answer.fact.media().next().unwrap().dimensions, Some((1, 1)));
}

#[test]
fn with_history_on_the_providers_side_no_result_is_a_stray() {
    let request = r#"{"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"a","output":"1"}]}"#;
    let events = Format::OpenaiResponses.decode_request(request).unwrap();
    assert_eq!(Format::OpenaiResponses.encode(&events, EncodeMode::Legal).unwrap().body, request);
}

#[test]
fn fragments_of_an_answer_are_one_message_also_around_results() {
    let fragment = |block: &str| {
        format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{block}],"usage":{{}}}}"#
        )
    };
    let use_of =
        |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"t","input":{{ "n" : 1.0 }}}}"#);
    let thinking = r#"{"type":"thinking","thinking":"h\u006d","signature":"s"}"#;
    let result_of = |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}"#);
    let messages = [
        r#"{"role":"user","content":"go"}"#.to_owned(),
        fragment(thinking),
        fragment(&use_of("a")),
        format!(r#"{{"role":"user","content":[{}]}}"#, result_of("a")),
        fragment(&use_of("b")),
        format!(r#"{{"role":"user","content":[{}]}}"#, result_of("b")),
    ];
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let events = events(Format::Anthropic, &messages);
    for completion in [EncodeMode::AsRecorded, EncodeMode::Legal] {
        let written = Format::Anthropic.encode(&events, completion).unwrap();
        let lines: Vec<&str> =
            written.messages.iter().map(|placed| &written.body[placed.bytes.clone()]).collect();
        let answer =
            format!(r#"{{"role":"assistant","content":[{thinking},{},{}]}}"#, use_of("a"), use_of("b"));
        let results = format!(r#"{{"role":"user","content":[{},{}]}}"#, result_of("a"), result_of("b"));
        assert_eq!(lines, [messages[0], &answer, &results]);
        assert_eq!(written.messages[1].events, [1, 2, 4]);
        assert_eq!(written.messages[2].events, [3, 5]);
    }
}

#[test]
fn fragments_of_a_chat_answer_are_one_message() {
    let named = |json: &str| {
        let mut event = openai_chat::message(json).unwrap();
        if let Fact::AssistantSaid { answer, .. } = &mut event.fact {
            *answer = Some("a".into());
        }
        event
    };
    let call = |id: &str| {
        format!(r#"[ {{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{ }}"}}}} ]"#)
    };
    let events = [
        named(r#"{"role":"assistant","content":"One\u002e","reasoning_content":"a"}"#),
        named(&format!(r#"{{"role":"assistant","content":null,"tool_calls":{}}}"#, call("a"))),
        openai_chat::message(r#"{"role":"tool","tool_call_id":"a","content":"r"}"#).unwrap(),
        named(&format!(
            r#"{{"role":"assistant","content":"Two.","reasoning_content":"b","tool_calls":{}}}"#,
            call("b")
        )),
    ];
    insta::assert_json_snapshot!(history(Format::OpenaiChat, &events, EncodeMode::Legal), @r#"
    [
      {
        "role": "assistant",
        "content": [
          {
            "type": "text",
            "text": "One."
          },
          {
            "type": "text",
            "text": "Two."
          }
        ],
        "reasoning_content": "ab",
        "tool_calls": [
          {
            "id": "a",
            "type": "function",
            "function": {
              "name": "t",
              "arguments": "{ }"
            }
          },
          {
            "id": "b",
            "type": "function",
            "function": {
              "name": "t",
              "arguments": "{ }"
            }
          }
        ]
      },
      {
        "role": "tool",
        "tool_call_id": "a",
        "content": "r"
      },
      {
        "role": "tool",
        "tool_call_id": "b",
        "content": "[no result: the call was interrupted]"
      }
    ]
    "#);
}

#[test]
fn a_compaction_is_its_own_message_or_the_users() {
    let compacted = |summary: Summary| {
        Fact::Compacted(Compaction {
            summary,
            through: Seq(1),
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        })
    };
    let plain = Event::from_fact(compacted(Summary::Text("We built it.".into())), None);
    let mut native =
        anthropic::message(r#"{"role":"user","content":"This session is being continued."}"#).unwrap();
    native.fact = compacted(Summary::Text("This session is being continued.".into()));
    let mut item = openai_responses::item(r#"{"type":"compaction","encrypted_content":"g"}"#).unwrap();
    item.fact = compacted(Summary::Encrypted("g".into()));
    let check = |format: Format, event: &Event, expect: Value| {
        for completion in [EncodeMode::AsRecorded, EncodeMode::Legal] {
            assert_eq!(
                history(format, std::slice::from_ref(event), completion),
                std::slice::from_ref(&expect)
            );
        }
    };
    check(Format::OpenaiChat, &plain, json!({"role": "user", "content": "We built it."}));
    check(
        Format::OpenaiResponses,
        &plain,
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "We built it."}]}),
    );
    check(
        Format::Anthropic,
        &plain,
        json!({"role": "user", "content": [{"type": "text", "text": "We built it."}]}),
    );
    check(Format::Anthropic, &native, json!({"role": "user", "content": "This session is being continued."}));
    check(Format::OpenaiResponses, &item, json!({"type": "compaction", "encrypted_content": "g"}));
    check(
        Format::OpenaiChat,
        &item,
        json!({"role": "user", "content": "[summary: left out, it cannot be shown here]"}),
    );
}

#[test]
fn facts_no_provider_sees_become_nothing() {
    let facts = [
        Fact::CompactionRequested { trigger: CompactionTrigger::Manual, focus: Some("x".into()) },
        Fact::CompactionReverted { compaction: Seq(1) },
        Fact::CompactionRestored { compaction: Seq(1) },
        Fact::Pinned { pin: Pin::Text("x".into()) },
        Fact::Unpinned { pin: Pin::Text("x".into()) },
        Fact::UsageReported { answer: None, model: None, usage: Usage::default() },
        Fact::ModelChanged { model: "m".into() },
        Fact::Carried { kind: "x".into() },
    ];
    let events: Vec<Event> = facts.into_iter().map(|fact| Event::from_fact(fact, None)).collect();
    for format in crate::SCRIPTED {
        assert_eq!(format.encode(&events, EncodeMode::Legal).unwrap().body, "{}");
    }
}

#[test]
fn a_legal_request_is_left_alone() {
    for (format, name) in [
        (Format::Anthropic, "claude-code.json"),
        (Format::OpenaiChat, "deprecated.json"),
        (Format::OpenaiResponses, "codex.json"),
        (Format::OpenaiResponses, "items.json"),
        (Format::OpenaiResponses, "bare.json"),
    ] {
        let request = fixtures::request(format, name);
        let events = format.decode_request(&request).unwrap();
        let recorded = format.encode(&events, EncodeMode::AsRecorded).unwrap();
        let legal = format.encode(&events, EncodeMode::Legal).unwrap();
        if name == "claude-code.json" {
            // Two user messages in a row become one; the rest keeps its bytes.
            assert_eq!(legal.messages.len() + 1, recorded.messages.len());
            let last = |encoded: &epitome_wire::EncodedRequest| {
                encoded.body[encoded.messages.last().unwrap().bytes.clone()].to_owned()
            };
            assert_eq!(last(&legal), last(&recorded));
        } else {
            assert_eq!(legal, recorded, "{name}");
        }
    }
}

/// A letter a message: `u`ser, `a`nswer, `c`all of x, `d` calls of x and y, `x`/`y` results, `e`mpty.
fn scripted(format: Format, script: &str) -> Vec<Event> {
    let message = |letter: char| match format {
        Format::Anthropic => anthropic_message(letter),
        Format::OpenaiChat => chat_message(letter),
        Format::OpenaiResponses => responses_item(letter),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    let messages: Vec<String> = script.chars().map(|letter| message(letter).to_string()).collect();
    events(format, &messages.iter().map(String::as_str).collect::<Vec<_>>())
}

fn anthropic_message(letter: char) -> Value {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    match letter {
        'u' => json!({"role": "user", "content": "u"}),
        'a' => json!({"role": "assistant", "content": "a"}),
        'e' => json!({"role": "user", "content": [{"type": "text", "text": ""}]}),
        'c' => json!({"role": "assistant", "content": [call("x")]}),
        'd' => json!({"role": "assistant", "content": [call("x"), call("y")]}),
        id => {
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "r"}]})
        }
    }
}

fn chat_message(letter: char) -> Value {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
    match letter {
        'u' | 'e' => json!({"role": "user", "content": "u"}),
        'a' => json!({"role": "assistant", "content": "a"}),
        'c' => json!({"role": "assistant", "content": null, "tool_calls": [call("x")]}),
        'd' => json!({"role": "assistant", "content": null, "tool_calls": [call("x"), call("y")]}),
        id => json!({"role": "tool", "tool_call_id": id, "content": "r"}),
    }
}

/// Here an answer is reasoning, and `d` is a call of y alone.
fn responses_item(letter: char) -> Value {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{}"});
    match letter {
        'u' | 'e' => json!({"role": "user", "content": "u"}),
        'a' => json!({"type": "reasoning", "summary": []}),
        'c' => call("x"),
        'd' => call("y"),
        id => json!({"type": "function_call_output", "call_id": id, "output": "r"}),
    }
}

fn ids(message: &Value, kind: &str, key: &str) -> Vec<String> {
    let blocks = message["content"].as_array().cloned().unwrap_or_default();
    let wanted = blocks.iter().filter(|block| block["type"] == kind);
    let mut ids: Vec<String> = wanted.map(|block| block[key].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

proptest! {
    #[test]
    fn every_anthropic_request_is_legal(script in "[uacdexy]{0,24}") {
        let messages = history(Format::Anthropic, &scripted(Format::Anthropic, &script), EncodeMode::Legal);
        for (index, message) in messages.iter().enumerate() {
            let role = if index % 2 == 0 { "user" } else { "assistant" };
            prop_assert_eq!(&message["role"], role);
            let calls = ids(message, "tool_use", "id");
            let answers = messages.get(index + 1).map(|next| ids(next, "tool_result", "tool_use_id"));
            prop_assert_eq!(answers.unwrap_or_default(), calls);
            if let Some(blocks) = message["content"].as_array() {
                let kinds: Vec<bool> = blocks.iter().map(|block| block["type"] == "tool_result").collect();
                prop_assert!(kinds.is_sorted_by(|one, other| one >= other), "results come first");
                prop_assert!(blocks.iter().all(|block| block["text"] != ""));
                prop_assert!(!blocks.is_empty());
            }
        }
    }

    #[test]
    fn every_chat_request_is_legal(script in "[uacdxy]{0,24}") {
        let messages = history(Format::OpenaiChat, &scripted(Format::OpenaiChat, &script), EncodeMode::Legal);
        let mut open: Vec<Value> = Vec::new();
        for message in messages {
            if message["role"] == "tool" {
                let place = open.iter().position(|id| *id == message["tool_call_id"]);
                prop_assert!(place.is_some(), "{message} answers nothing");
                open.remove(place.unwrap());
            } else {
                prop_assert!(open.is_empty(), "{open:?} not answered");
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                open = calls.iter().map(|call| call["id"].clone()).collect();
            }
        }
        prop_assert!(open.is_empty());
    }

    #[test]
    fn every_responses_request_is_legal(script in "[uacdxy]{0,24}") {
        let items = history(Format::OpenaiResponses, &scripted(Format::OpenaiResponses, &script), EncodeMode::Legal);
        let count = |kind: &str, id: &str| items.iter().filter(|item| item["type"] == kind && item["call_id"] == id).count();
        for id in ["x", "y"] {
            prop_assert_eq!(count("function_call", id), count("function_call_output", id));
        }
        for pair in items.windows(2).filter(|pair| pair[0]["type"] == "reasoning") {
            prop_assert!(pair[1]["type"] == "reasoning" || pair[1]["type"] == "function_call");
        }
        prop_assert!(items.last().is_none_or(|last| last["type"] != "reasoning"));
    }

    #[test]
    fn a_legal_history_stays_as_it_is_when_it_is_read_again(script in "[uacdexy]{0,24}") {
        for format in crate::SCRIPTED {
            let first = format.encode(&scripted(format, &script), EncodeMode::Legal).unwrap().body;
            let again = format.encode(&format.decode_request(&first).unwrap(), EncodeMode::Legal).unwrap().body;
            prop_assert_eq!(first, again);
        }
    }
}
