use epitome_core::Event;
use insta::assert_snapshot;

use super::super::{
    TranscriptFile, TranscriptFormat, raw_json,
    testing::{any_reading, grows, grows_by, shown},
};
use crate::{EncodeMode, EncodedRequest};

fn check(json: &str) -> String {
    let reading = any_reading(json);
    format!("{}\n{}", reading.format, shown(&reading))
}

const SYSTEM: &str = r#"{"role":"system","content":"Be brief"}"#;
const ASKED: &str = r#"{"role":"user","content":"hi"}"#;
const CHAT: [&str; 2] = [
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#,
];
const ANTHROPIC: [&str; 2] = [
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"ok"}]}"#,
];
const RESPONSES: [&str; 4] = [
    r#"{"type":"reasoning","summary":[]}"#,
    r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#,
    r#"{"type":"function_call_output","call_id":"c","output":"ok"}"#,
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}"#,
];

fn list(messages: &[&str]) -> String {
    format!("[{}]", messages.join(", "))
}

#[test]
fn a_list_is_read_as_what_its_messages_show() {
    assert_snapshot!(check(&list(&[SYSTEM, ASKED, CHAT[0], CHAT[1], ASKED])), @r#"
    openai-chat
    session file: untitled, at main
     main
      1 [#0 openai-chat] instructed Message "Be brief"
      2 [#1 openai-chat] user_said "hi"
      3 [#2 openai-chat] assistant_said -/- f(c {})
      4 [#3 openai-chat] tool_returned c "ok"
      5 [#4 openai-chat] user_said "hi"
    "#);
    assert_snapshot!(check(&list(&[ASKED, ANTHROPIC[0], ANTHROPIC[1], ASKED])), @r#"
    anthropic
    session file: untitled, at main
     main
      1 [#0 anthropic] user_said "hi"
      2 [#1 anthropic] assistant_said -/- f(c {})
      3 [#2 anthropic] tool_returned c "ok"
      4 [#3 anthropic] user_said "hi"
    "#);
    assert_snapshot!(check(&list(&[ASKED, RESPONSES[0], RESPONSES[1], RESPONSES[2], RESPONSES[3]])), @r#"
    openai-responses
    session file: untitled, at main
     main
      1 [#0 openai-responses] user_said "hi"
      2 [#1 openai-responses] assistant_said run-1/- <>
      3 [#2 openai-responses] assistant_said run-1/- f(c {})
      4 [#3 openai-responses] tool_returned c "ok"
      5 [#4 openai-responses] assistant_said run-4/- "done"
    "#);
}

#[test]
fn a_list_that_grows_keeps_its_first_events() {
    let all: Vec<&str> = [SYSTEM, ASKED].into_iter().chain(CHAT).chain(ANTHROPIC).chain(RESPONSES).collect();
    grows_by(&all, list);
    grows_by(&all, |messages| format!("{{\n\"messages\": {}}}", list(messages)));
    grows(super::super::read, &all.join("\n"));
    let conversation = format!("{{\"messages\": {}}}", list(&all));
    grows(super::super::read, &format!("{conversation}\n{conversation}\n"));
}

/// Bare lists, one a format. Each begins with messages that any provider would understand.
const LISTS: [(crate::Format, &str); 3] = [
    (crate::Format::OpenaiChat, include_str!("../../../tests/fixtures/lists/openai-chat.json")),
    (crate::Format::OpenaiResponses, include_str!("../../../tests/fixtures/lists/openai-responses.json")),
    (crate::Format::Anthropic, include_str!("../../../tests/fixtures/lists/anthropic.json")),
];

fn encoded(format: crate::Format, reading: &TranscriptFile) -> EncodedRequest {
    assert_eq!(reading.format.name(), format.to_string());
    format.encode(&reading.sessions[0].threads[0].events, EncodeMode::AsRecorded).expect("it can be written")
}

#[test]
fn a_document_leaves_with_the_bytes_of_every_message() {
    for (format, list) in LISTS {
        let messages = raw_json::elements(list).expect("it is a list");
        let check = |document: &str| {
            let encoded = encoded(format, &any_reading(document));
            let written: Vec<&str> =
                encoded.messages.iter().map(|message| &encoded.body[message.bytes.clone()]).collect();
            assert_eq!(written, messages, "{document}");
        };
        check(list);
        check(&format!("{{\"messages\": {list}}}"));
        check(&format!("{{\"id\": 7, \"messages\": {list}, \"metadata\": {{}}}}"));
    }
}

#[test]
fn a_message_a_line_is_read_as_another_format_only_before_the_first_that_shows_something() {
    for (format, list) in LISTS {
        let messages: Vec<String> =
            raw_json::elements(list).expect("it is a list").into_iter().map(raw_json::compact).collect();
        let file = messages.join("\n");
        grows(super::super::read, &file);
        let reading = any_reading(&file);
        assert_eq!(reading.format.name(), format.to_string());
        let foreign = |event: &&Event| event.raw.dialect != format.dialect();
        let events = &reading.sessions[0].threads[0].events;
        assert_eq!(events.iter().filter(foreign).count(), 2, "{format}");
        assert!(!events[3..].iter().any(|event| foreign(&event)), "{format}");
    }
}

#[test]
fn what_stands_beside_the_messages_is_kept() {
    let document = format!(
        "{{ \"id\": \"c\",\n\"messages\": [{ASKED},{}], \"metadata\" : {{\"score\": 1.0}} }}",
        ANTHROPIC[0]
    );
    assert_eq!(encoded(crate::Format::Anthropic, &any_reading(&document)).body, document);
    let reading = any_reading(&document);
    assert_eq!(
        reading.sessions[0].threads[0].events[0].raw.json.as_ref(),
        "{ \"id\": \"c\",\n\"messages\": null, \"metadata\" : {\"score\": 1.0} }"
    );
    assert!(reading.skipped.is_empty() && reading.warnings.is_empty());
}

#[test]
fn messages_that_are_there_twice_are_warned_of_and_kept() {
    let document = format!("{{\"messages\":[{SYSTEM}],\"messages\":[{ASKED}]}}");
    let reading = any_reading(&document);
    assert_snapshot!(shown(&reading), @r#"
    session file#1: untitled, at main
     main
      1 [- openai-chat] instructed Settings
      2 [#0 openai-chat] user_said "hi"
    ! `messages` is there 2 times; the last was read
    "#);
    assert_eq!(encoded(crate::Format::OpenaiChat, &reading).body, document);
    let request = format!("{{\"model\":\"m\",\"messages\":[{SYSTEM}],\"messages\":[{ASKED}]}}");
    assert_eq!(any_reading(&request).warnings, reading.warnings);
}

#[test]
fn a_developers_message_is_an_instruction_in_any_list() {
    let developer = r#"{"role":"developer","content":"Be brief"}"#;
    for messages in [&ANTHROPIC[..], &CHAT, &RESPONSES] {
        let reading = any_reading(&list(&[&[developer], messages].concat()));
        assert_eq!(reading.sessions[0].threads[0].events[0].fact.kind(), "instructed");
    }
}

#[test]
fn a_message_a_line_is_one_conversation_and_a_conversation_a_line_is_many() {
    let messages = format!("{ASKED}\n{}\nbroken\n{}\n", CHAT[0], CHAT[1]);
    assert_snapshot!(check(&messages), @r#"
    openai-chat
    session file: untitled, at main
     main
      1 [#0 openai-chat] user_said "hi"
      2 [#1 openai-chat] assistant_said -/- f(c {})
      3 [#2 openai-chat] tool_returned c "ok"
    ! line 3: the line is not JSON (expected value at line 1 column 1); it was left out
    "#);
    let conversations = format!(
        "{{\"messages\": [{ASKED}], \"title\": \"First\", \"score\": 1}}\n{{\"messages\": [{ASKED}, {}]}}\n[{ASKED}]\n",
        ANTHROPIC[0]
    );
    assert_snapshot!(check(&conversations), @r#"
    anthropic
    session file#1: First, at main
     main
      1 [- openai-chat] instructed Settings
      2 [#0 openai-chat] user_said "hi"
    session file#2: untitled, at main
     main
      1 [#0 anthropic] user_said "hi"
      2 [#1 anthropic] assistant_said -/- f(c {})
    session file#3: untitled, at main
     main
      1 [#0 openai-chat] user_said "hi"
    "#);
}

#[test]
fn a_whole_request_is_read_in_its_own_format() {
    let kinds = |json: &str, format: TranscriptFormat| {
        let reading = any_reading(json);
        assert_eq!(reading.format, format, "{json}");
        let events = &reading.sessions[0].threads[0].events;
        events.iter().map(|event| event.fact.kind()).collect::<Vec<_>>().join(" ")
    };
    let with = |settings: &str| format!("{{{settings}, \"messages\": [{ASKED}]}}");
    assert_eq!(
        kinds(
            &with(r#""model": "m", "tools": [{"name": "f", "input_schema": {}}], "system": "s""#),
            TranscriptFormat::Anthropic
        ),
        "instructed instructed instructed user_said"
    );
    assert_eq!(
        kinds(&with(r#""model": "claude-x", "max_tokens": 9"#), TranscriptFormat::Anthropic),
        "instructed user_said"
    );
    assert_eq!(
        kinds(&with(r#""model": "m", "max_completion_tokens": 9"#), TranscriptFormat::OpenaiChat),
        "instructed user_said"
    );
    assert_eq!(kinds(&with(r#""model": "m""#), TranscriptFormat::OpenaiChat), "instructed user_said");
    assert_eq!(
        kinds(
            &format!(r#"{{"model": "m", "messages": [{ASKED}, {}]}}"#, ANTHROPIC[0]),
            TranscriptFormat::Anthropic
        ),
        "instructed user_said assistant_said"
    );
    assert_eq!(
        kinds(r#"{"model": "m", "input": "hi"}"#, TranscriptFormat::OpenaiResponses),
        "instructed user_said"
    );
    assert_eq!(
        kinds(
            &format!(r#"{{"input": [{ASKED}, {}], "instructions": "s"}}"#, RESPONSES[3]),
            TranscriptFormat::OpenaiResponses
        ),
        "instructed instructed user_said assistant_said"
    );
}

#[test]
fn a_record_of_some_log_is_no_message() {
    let check = |json: &str, expect: bool| {
        assert_eq!(super::is_message(&serde_json::from_str(json).unwrap()), expect, "{json}");
    };
    check(ASKED, true);
    check(RESPONSES[0], true);
    check(RESPONSES[3], true);
    check(r#"{"role":"user","name":"Ann"}"#, false);
    check(r#"{"role":"admin","content":"x"}"#, false);
    check(r#"{"type":"tool_call","tool":"ls"}"#, false);
    check("[]", false);
}

#[test]
fn what_cannot_be_read_as_a_message_is_carried() {
    let deep = format!(r#"{{"role":"user","content":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let reading = any_reading(&list(&[ASKED, &deep, "7"]));
    let events = &reading.sessions[0].threads[0].events;
    assert_eq!(
        events.iter().map(|event| event.fact.kind()).collect::<Vec<_>>(),
        ["user_said", "carried", "carried"]
    );
    assert_eq!(events[1].raw.json.as_ref(), deep);
    assert_eq!(reading.warnings.len(), 1);
}
