//! Gemini: what its clients send and it answers, byte for byte, and each of its rules broken.

use std::collections::BTreeSet;

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    context::SegmentEdit,
    event::{InstructionKind, ToolCall},
};
use epitome_wire::{
    EncodeMode, FinishReason, Format, StreamDecoder, StreamEnding,
    endpoint::{AnswerForm, ErrorDetails},
    gemini,
    history_rewrite::is_same_content,
    incoming::{IncomingRequest, MessageMemo, PriorHistory, with_unit_digests},
    legality::{LEGALITY_RULES, ProviderRule, ProviderRules, check, check_against, inspect},
    message_builder::{ToolResultInput, ToolResultStatus, UserContent},
    overflow::detect_overflow,
    plain_request::{OutputLimitName, PlainRequest},
    recall_tool::{RecallSplice, SpliceVerdict, offer},
    render::{RenderOptions, recount},
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::histories::{context, logged};

const FORMAT: Format = Format::Gemini;

/// A session of Gemini CLI with a model that signs its thoughts: parallel calls, results, media, settings of all kinds.
const REQUEST: &str = r#"{
  "contents": [
    {"role":"user","parts":[{"text":"<session_context>\nToday is Monday.\n</session_context>"}]},
    {"role":"user","parts":[{"text":"Read both."},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},
    {"role":"model","parts":[
      {"text":"I will look.","thought":true},
      {"text":"Reading."},
      {"functionCall":{"name":"read_file","args":{ "path": "a.rs", "n": 1.0 }},"thoughtSignature":"c2lnbmVkIG9uZQ=="},
      {"functionCall":{"id":"c2","name":"read_file","args":{"path":"b.rs"}}}]},
    {"role":"user","parts":[
      {"functionResponse":{"name":"read_file","response":{"output":"fn a() {}"}}},
      {"functionResponse":{"id":"c2","name":"read_file","response":{"error":"no such file","code":2}}}]},
    {"role":"model","parts":[{"text":"There is no b.rs."},{"text":"","thoughtSignature":"ZW5k"}]},
    {"parts":[{"text":"Go on."}]}
  ],
  "systemInstruction": {"role":"user","parts":[{"text":"Be brief."},{"text":"And kind."}]},
  "tools": [{"functionDeclarations":[{"name":"read_file","description":"Reads.","parameters":{"type":"OBJECT"}},
    {"name":"run","parametersJsonSchema":{"type":"object"}}]},{"googleSearch":{}}],
  "toolConfig": {"functionCallingConfig":{"mode":"AUTO"}},
  "generationConfig": {"temperature":1.0,"maxOutputTokens":4096,"thinkingConfig":{"includeThoughts":true}},
  "safetySettings": []
}"#;

fn decoded() -> Vec<Event> {
    FORMAT.decode_request(REQUEST).unwrap()
}

#[test]
fn a_request_is_read_into_events_and_written_with_its_bytes() {
    let events = decoded();
    let encoded = FORMAT.encode(&events, EncodeMode::AsRecorded).unwrap();
    let compact = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    assert_eq!(compact(&encoded.body), compact(REQUEST));
    for (message, event) in encoded.messages.iter().zip(&events[3..]) {
        assert_eq!(&encoded.body[message.bytes.clone()], &*event.raw.json);
    }
    let names: Vec<&str> = events[2]
        .fact
        .parts()
        .iter()
        .map(|part| match part {
            ContentPart::Opaque { name, .. } => name.as_str(),
            other => panic!("no tool: {other:?}"),
        })
        .collect();
    assert_eq!(names, ["read_file", "run", "googleSearch"]);
    assert_eq!(events[1].fact.text(), "Be brief.\nAnd kind.");
    assert!(matches!(events[3].fact, Fact::Instructed { what: InstructionKind::Project, .. }));
    let calls: Vec<&ToolCall> = events[5].fact.calls().collect();
    assert_eq!(calls[0].arguments, r#"{ "path": "a.rs", "n": 1.0 }"#);
    assert_eq!(calls.iter().map(|call| &*call.id.0).collect::<Vec<_>>(), ["read_file", "c2"]);
    let results = events[6].fact.results();
    assert_eq!(
        results.iter().map(|result| (&*result.call.0, result.error)).collect::<Vec<_>>(),
        [("read_file", false), ("c2", true)]
    );
    assert_eq!(FORMAT.encode(&events, EncodeMode::Legal).unwrap().messages.len(), 6);
    let rules = ProviderRules::of(FORMAT).with(ProviderRule::CallsSigned);
    assert_eq!(check(FORMAT, &encoded.body, &rules), []);
}

#[test]
fn an_edited_result_keeps_its_call_and_everything_else_its_bytes() {
    let events = logged(decoded());
    let whole = context(&events);
    let cut = whole.edit("test", |_, segment| match segment.call() {
        Some(call) if call.id.0 == "c2" => {
            SegmentEdit::line("[gone]".into(), epitome_core::context::Fidelity::Stub)
        }
        _ => SegmentEdit::Keep,
    });
    let options = RenderOptions::of(FORMAT);
    let rendered = FORMAT.render(&cut, &options).unwrap();
    let request: Value = serde_json::from_str(&rendered.body).unwrap();
    let results = &request["contents"][3]["parts"];
    assert_eq!(
        results[0],
        json!({"functionResponse": {"name": "read_file", "response": {"output": "fn a() {}"}}})
    );
    assert_eq!(results[1]["functionResponse"]["id"], "c2");
    assert!(results[1]["functionResponse"]["response"]["error"].as_str().unwrap().contains("[gone]"));
    assert!(
        rendered
            .body
            .contains(r#""args":{ "path": "a.rs", "n": 1.0 }},"thoughtSignature":"c2lnbmVkIG9uZQ==""#)
    );
    assert_eq!(check(FORMAT, &rendered.body, &options.rules), []);
    assert!(recount(FORMAT, &rendered.body, cut.meter()).unwrap() <= cut.tokens());
}

#[test]
fn a_history_of_another_provider_is_legal_here_and_signed_where_the_model_demands_it() {
    let request = json!({"system": "Be brief.", "tools": [{"name": "t", "input_schema": {"type": "object"}}],
        "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"a": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "t", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]}]});
    let events = Format::Anthropic.decode_request(&request.to_string()).unwrap();
    let body = FORMAT.encode(&events, EncodeMode::Legal).unwrap().body;
    insta::assert_snapshot!(body, @r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"tools":[{"functionDeclarations":[{"name":"t","parametersJsonSchema":{"type":"object"}}]}],"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"text":"Yes."},{"functionCall":{"id":"toolu_1","name":"t","args":{"a":1}}},{"functionCall":{"id":"toolu_2","name":"t","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"toolu_1","name":"t","response":{"output":"r"}}},{"functionResponse":{"id":"toolu_2","name":"t","response":{"error":"[no result: the call was interrupted]"}}}]}]}"#);
    let rules = ProviderRules::of(FORMAT).with(ProviderRule::CallsSigned);
    assert_eq!(check(FORMAT, &body, &rules).len(), 1, "it is not signed yet");
    let whole = context(&logged(events));
    let options = RenderOptions { rules: rules.clone(), ..RenderOptions::of(FORMAT) };
    let signed = FORMAT.render(&whole, &options).unwrap().body;
    assert_eq!(check(FORMAT, &signed, &rules), [], "{signed}");
    assert_eq!(signed.matches("skip_thought_signature_validator").count(), 1);
}

/// The chunks of a stream, as Gemini sends them.
fn chunks() -> Vec<Value> {
    let chunk = |parts: Value, more: Value| {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        candidate.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 60,
            "candidatesTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 112},
            "modelVersion": "gemini-2.5-pro", "responseId": "r1"})
    };
    vec![
        chunk(json!([{"text": "Let me ", "thought": true}]), json!({})),
        chunk(json!([{"text": "see.", "thought": true}]), json!({})),
        chunk(json!([{"text": "Rea"}]), json!({})),
        chunk(json!([{"text": "ding."}]), json!({})),
        chunk(
            json!([{"functionCall": {"name": "read", "args": {"p": 1.5}}, "thoughtSignature": "c2ln"}]),
            json!({}),
        ),
        chunk(json!([{"text": ""}]), json!({"finishReason": "STOP", "finishMessage": "done"})),
    ]
}

fn stream(chunks: &[Value]) -> String {
    chunks.iter().flat_map(|chunk| ["data: ".to_owned(), chunk.to_string(), "\r\n\r\n".to_owned()]).collect()
}

proptest! {
    #[test]
    fn a_stream_is_the_answer_in_one_piece_wherever_it_is_cut(cuts in prop::collection::vec(any::<Index>(), 0..8)) {
        let bytes = stream(&chunks()).into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut decoder = StreamDecoder::new(FORMAT);
        for pair in cuts.windows(2) {
            decoder.push(&bytes[pair[0]..pair[1]]);
        }
        prop_assert!(decoder.is_over());
        let streamed = decoder.finish().unwrap();
        prop_assert_eq!(&streamed.ending, &StreamEnding::Complete);
        let list = Value::from(chunks()).to_string();
        prop_assert_eq!(&FORMAT.decode_response(&list).unwrap(), &streamed.events);
        let answer = FORMAT.read_answer(&list).unwrap();
        prop_assert_eq!(answer.text(), "Reading.");
        prop_assert_eq!(&answer.finish, &Some(FinishReason::Calls));
        let usage = answer.usage.unwrap();
        prop_assert_eq!((usage.uncached, usage.cache_read, usage.output), (Tokens(40), Tokens(60), Tokens(12)));
        prop_assert_eq!(answer.model.unwrap().0, "gemini-2.5-pro");
    }

    #[test]
    fn an_answer_is_recognised_however_its_client_keeps_it(joins in prop::collection::vec(any::<bool>(), 5)) {
        let memo = MessageMemo::new(8);
        let events = with_unit_digests(FORMAT, FORMAT.decode_response(&Value::from(chunks()).to_string()).unwrap());
        let expect = events.iter().find_map(|event| event.normal).unwrap();
        let mut kept: Vec<Vec<Value>> = vec![Vec::new()];
        for (index, chunk) in chunks().iter().enumerate() {
            let parts = chunk["candidates"][0]["content"]["parts"].as_array().unwrap().clone();
            if index > 0 && joins[index - 1] {
                kept.push(Vec::new());
            }
            // An SDK drops what is empty, and may add what is unset.
            let parts = parts.into_iter().map(|mut part| {
                part["thoughtSignature"] = Value::Null;
                part
            });
            kept.last_mut().unwrap().extend(parts);
        }
        let mut contents = vec![json!({"role": "user", "parts": [{"text": "go"}]})];
        contents.extend(kept.into_iter().map(|parts| json!({"role": "model", "parts": parts})));
        contents.push(json!({"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "x"}}}]}));
        let body = json!({"model": "g", "contents": contents}).to_string();
        let request = IncomingRequest::read(FORMAT, &body, &memo).unwrap();
        prop_assert_eq!(request.units().len(), 3);
        prop_assert_eq!(request.units()[1].digest, expect);
        prop_assert_eq!(request.events(2).len(), 1, "what belongs to the answer is not new");
    }

    #[test]
    fn no_bytes_make_a_reader_panic(text in r#"[\[\]{}":,a-zA-Z0-9 ]{0,60}"#, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = gemini::content(&text);
        let _ = gemini::usage(&text);
        let _ = FORMAT.decode_request(&text);
        let _ = FORMAT.decode_response(&text);
        let mut decoder = StreamDecoder::new(FORMAT);
        decoder.push(&bytes);
        let _ = decoder.finish();
        let _ = inspect(FORMAT, &text, &ProviderRules::of(FORMAT));
        let _ = FORMAT.without_target(&text);
    }
}

#[test]
fn every_reason_for_an_end_is_read() {
    let finish = |body: Value| FORMAT.read_answer(&body.to_string()).unwrap().finish;
    let ended = |reason: &str| {
        finish(
            json!({"candidates": [{"content": {"parts": [{"text": "x"}], "role": "model"}, "finishReason": reason}],
            "usageMetadata": {"promptTokenCount": 1}}),
        )
    };
    assert_eq!(ended("STOP"), Some(FinishReason::Stop));
    assert_eq!(ended("MAX_TOKENS"), Some(FinishReason::Length));
    for refused in ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST"] {
        assert_eq!(ended(refused), Some(FinishReason::Refused), "{refused}");
    }
    assert_eq!(ended("MALFORMED_FUNCTION_CALL"), Some(FinishReason::Other("MALFORMED_FUNCTION_CALL".into())));
    let blocked =
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}});
    assert_eq!(finish(blocked.clone()), Some(FinishReason::Refused));
    let streamed = FORMAT.read_answer_stream(format!("data: {blocked}\n\n").as_bytes()).unwrap();
    assert_eq!((streamed.ending, streamed.finish), (StreamEnding::Complete, Some(FinishReason::Refused)));
    let unnamed = json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]});
    assert_eq!(FORMAT.read_answer(&unnamed.to_string()).unwrap().text(), "x");
}

#[test]
fn errors_are_read_and_written_in_its_form() {
    let said = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    let error = json!({"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}});
    for body in [error.to_string(), json!([error]).to_string(), format!("data: {error}\n\n")] {
        let found = detect_overflow(FORMAT, 400, body.as_bytes()).unwrap();
        assert_eq!((found.asked, found.limit), (Some(Tokens(1_200_000)), Some(Tokens(1_048_576))), "{body}");
    }
    let quota = json!({"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}});
    assert_eq!(detect_overflow(FORMAT, 429, quota.to_string().as_bytes()), None);
    let written = FORMAT.error_body(&ErrorDetails { status: 404, code: Some("x"), message: "no \"route\"" });
    assert_eq!(written, r#"{"error":{"code":404,"message":"no \"route\"","status":"NOT_FOUND"}}"#);
}

#[test]
fn what_a_program_says_is_what_a_client_would_send() {
    let sent = |event: &Event| {
        let request = format!(r#"{{"contents":[{}]}}"#, event.raw.json);
        FORMAT.decode_request(&request).unwrap().pop().unwrap()
    };
    let said = FORMAT.say_user("hi");
    assert_eq!(sent(&said), said);
    assert_eq!(&*said.raw.json, r#"{"role":"user","parts":[{"text":"hi"}]}"#);
    let pieces = [UserContent::Text("look"), UserContent::Image { mime: "image/png", bytes: b"hi" }];
    assert_eq!(FORMAT.say_parts(&pieces).fact.media().count(), 1);
    let (one, other) = (ToolCall::function("c1", "read", "{}"), ToolCall::function("run", "run", "{}"));
    let results = [
        ToolResultInput { call: &one, text: "found", ended: ToolResultStatus::Well },
        ToolResultInput { call: &other, text: "no", ended: ToolResultStatus::Badly },
    ];
    let [message] = &FORMAT.say_results(&results)[..] else { panic!("the results stand together") };
    assert_eq!(
        &*message.raw.json,
        r#"{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"read","response":{"output":"found"}}},{"functionResponse":{"name":"run","response":{"error":"no"}}}]}"#
    );
    assert_eq!(message.fact.results().iter().map(|result| result.error).collect::<Vec<_>>(), [false, true]);
    let ask = PlainRequest {
        model: "gemini-2.5-flash",
        system: "s",
        user: "u",
        limit: Tokens(9),
        limit_name: OutputLimitName::default(),
    };
    let plain = FORMAT.write_plain_request(&ask);
    assert_eq!(
        plain,
        r#"{"model":"gemini-2.5-flash","systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"u"}]}],"generationConfig":{"maxOutputTokens":9}}"#
    );
    assert_eq!(
        FORMAT.call_path("gemini-2.5-flash", AnswerForm::Whole),
        "models/gemini-2.5-flash:generateContent"
    );
    assert!(FORMAT.without_target(&plain).starts_with(r#"{"systemInstruction""#));
}

#[test]
fn a_question_is_appended_after_the_open_calls() {
    let request = json!({"model": "g", "stream": true, "contents": [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "t", "args": {}}}]}],
        "generationConfig": {"temperature": 0, "maxOutputTokens": 7, "thinkingConfig": {"thinkingBudget": 100}}});
    let body = FORMAT.append_instruction(&request.to_string(), "Sum up.", Tokens(500)).unwrap();
    let asked: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(asked["contents"].as_array().unwrap().len(), 4);
    assert_eq!(asked["contents"][2]["parts"][0]["functionResponse"]["name"], "t");
    assert_eq!(asked["contents"][3]["parts"][0]["text"], "Sum up.");
    assert_eq!(asked["generationConfig"]["maxOutputTokens"], 600);
    assert_eq!(asked["generationConfig"]["temperature"], 0);
    assert_eq!(check(FORMAT, &body, &ProviderRules::of(FORMAT)), []);
    let cached = json!({"cachedContent": "cachedContents/x", "contents": []}).to_string();
    assert!(FORMAT.append_instruction(&cached, "Sum up.", Tokens(5)).is_err());
    let memo = MessageMemo::new(8);
    let read = IncomingRequest::read(FORMAT, &cached, &memo).unwrap();
    assert_eq!(read.follows(), PriorHistory::Conversation("cachedContents/x".into()));
}

#[test]
fn a_recall_is_withheld_and_continued_streamed_and_whole() {
    let call = json!({"functionCall": {"name": "epitome_recall", "args": {"handle": "recall 1a2b3c4d:7"}}, "thoughtSignature": "c2ln"});
    let answer = |id: &str, parts: Value, finish: Option<&str>| {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}});
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3}, "responseId": id})
    };
    let first = [
        answer("a", json!([{"text": "One moment. "}]), None),
        answer("a", json!([call.clone()]), Some("STOP")),
    ];
    let next = [answer("b", json!([{"text": "8080."}]), Some("STOP"))];
    let mut splice = RecallSplice::stream(FORMAT);
    let mut seen = Vec::new();
    splice.push(stream(&first).as_bytes(), &mut seen);
    let SpliceVerdict::Recall(recalls) = splice.end(&mut seen) else { panic!("it calls nothing else") };
    assert_eq!(recalls.calls.len(), 1);
    splice.continue_with();
    splice.push(stream(&next).as_bytes(), &mut seen);
    assert!(matches!(splice.end(&mut seen), SpliceVerdict::Continued { .. }));
    let shown = String::from_utf8(seen.clone()).unwrap();
    assert!(!shown.contains("epitome_recall") && !shown.contains("\"b\""), "{shown}");
    assert_eq!(shown.matches("finishReason").count(), 1);
    assert_eq!(FORMAT.read_answer_stream(&seen).unwrap().text(), "One moment. 8080.");

    let mut splice = RecallSplice::whole(FORMAT);
    let mut seen = Vec::new();
    let whole = answer("a", json!([{"text": "One moment. "}, call]), Some("STOP"));
    splice.push(whole.to_string().as_bytes(), &mut seen);
    assert!(matches!(splice.end(&mut seen), SpliceVerdict::Recall(_)) && seen.is_empty());
    splice.continue_with();
    splice.push(next[0].to_string().as_bytes(), &mut seen);
    assert!(matches!(splice.end(&mut seen), SpliceVerdict::Continued { .. }));
    let joined: Value = serde_json::from_slice(&seen).unwrap();
    assert_eq!(joined["responseId"], "a");
    assert_eq!(
        joined["candidates"][0]["content"]["parts"],
        json!([{"text": "One moment. "}, {"text": "8080."}])
    );

    // Calls of others pass, and only ours is left out.
    let mixed = [answer(
        "a",
        json!([{"functionCall": {"name": "epitome_recall", "args": {}}}, {"functionCall": {"name": "t", "args": {}}}]),
        Some("STOP"),
    )];
    let mut splice = RecallSplice::stream(FORMAT);
    let mut seen = Vec::new();
    splice.push(stream(&mixed).as_bytes(), &mut seen);
    assert!(matches!(splice.end(&mut seen), SpliceVerdict::Mixed(_)));
    let read = FORMAT.read_answer_stream(&seen).unwrap();
    assert_eq!(read.calls.iter().map(|call| &*call.name.0).collect::<Vec<_>>(), ["t"]);
}

#[test]
fn the_recall_tool_joins_the_functions_that_are_there() {
    let request = r#"{"contents":[],"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"t"}]}]}"#;
    let offered = offer(FORMAT, request).unwrap().apply(request);
    let read: Value = serde_json::from_str(&offered).unwrap();
    let names = read["tools"][1]["functionDeclarations"].as_array().unwrap().iter().map(|tool| &tool["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["epitome_recall", "t"]);
    assert!(offer(FORMAT, r#"{"contents":[]}"#).is_some());
    for not in [
        r#"{"contents":[],"cachedContent":"cachedContents/x"}"#,
        r#"{"contents":[],"stream":"list"}"#,
        r#"{"contents":[],"tools":[{"googleSearch":{}}]}"#,
        r#"{"contents":[],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#,
    ] {
        assert_eq!(offer(FORMAT, not), None, "{not}");
    }
}

#[test]
fn notation_is_no_difference_and_content_is() {
    let one = r#"{"role":"user","parts":[{"text":"a","thought":false}]}"#;
    assert!(is_same_content(FORMAT, one, r#"{ "parts": [ {"text": "\u0061"} ], "role": "user" }"#));
    assert!(!is_same_content(FORMAT, one, r#"{"role":"user","parts":[{"text":"b"}]}"#));
}

/// A legal request with an answer that makes `calls` calls, and everything that rules are about.
fn legal(calls: usize, turns: usize) -> Value {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "go"}]})];
    for turn in 0..turns {
        let made = (0..calls).map(|call| {
            json!({"functionCall": {"id": format!("c{turn}-{call}"), "name": "t", "args": {}}, "thoughtSignature": format!("s{turn}{call}")})
        });
        let given = (0..calls).map(|call| {
            json!({"functionResponse": {"id": format!("c{turn}-{call}"), "name": "t", "response": {"output": "r"}}})
        });
        contents.push(json!({"role": "model", "parts": made.collect::<Vec<_>>()}));
        contents.push(json!({"role": "user", "parts": given.collect::<Vec<_>>()}));
    }
    json!({"contents": contents})
}

/// Every way to break a rule: the request, the place, the model's rules and the request before.
fn broken(
    rule: &str,
    calls: usize,
    turns: usize,
    at: usize,
) -> Vec<(String, String, ProviderRules, Option<String>)> {
    let rules = ProviderRules::of(FORMAT);
    let whole = legal(calls, turns);
    let (turn, call) = (at % turns, at % calls);
    let (answer, result) = (1 + 2 * turn, 2 + 2 * turn);
    let changed =
        |change: &dyn Fn(&mut Value), place: String, rules: &ProviderRules, sent: Option<&Value>| {
            let mut request = whole.clone();
            change(&mut request);
            (request.to_string(), place, rules.clone(), sent.map(Value::to_string))
        };
    let contents = |request: &mut Value, index: usize, content: Value| {
        request["contents"].as_array_mut().unwrap().insert(index, content);
    };
    let model = json!({"role": "model", "parts": [{"text": "x"}]});
    let signed = rules.clone().with(ProviderRule::CallsSigned);
    let plain =
        |change: &dyn Fn(&mut Value), place: &str| vec![changed(change, place.to_owned(), &rules, None)];
    let call_at = format!("/contents/{answer}/parts/{call}");
    match rule {
        "readable" => vec![("[1]".to_owned(), String::new(), rules, None)],
        "has-messages" => plain(&|request| request["contents"] = json!([]), ""),
        "history-is-list" => plain(&|request| request["contents"] = json!("go"), "/contents"),
        "first-is-user" => plain(&|request| contents(request, 0, model.clone()), "/contents/0"),
        "last-is-user" => {
            let last = whole["contents"].as_array().unwrap().len();
            let rules = rules.with(ProviderRule::PrefillRefused);
            let change = |request: &mut Value| contents(request, last, model.clone());
            vec![changed(&change, format!("/contents/{last}"), &rules, None)]
        }
        "roles-alternate" => {
            plain(&|request| contents(request, answer, model.clone()), &format!("/contents/{}", answer + 1))
        }
        "message-says-something" => [json!([]), json!([{"text": " \n"}])]
            .into_iter()
            .flat_map(|parts| {
                plain(&|request| request["contents"][0]["parts"] = parts.clone(), "/contents/0")
            })
            .collect(),
        "message-is-object" => [
            plain(&|request| contents(request, 1, json!("x")), "/contents/1"),
            plain(
                &|request| request["contents"][0]["parts"] = json!([{"text": "a"}, 7]),
                "/contents/0/parts/1",
            ),
        ]
        .concat(),
        "role-known" => {
            plain(&|request| request["contents"][0]["role"] = json!("system"), "/contents/0/role")
        }
        "content-type" => {
            plain(&|request| request["contents"][0]["parts"] = json!("go"), "/contents/0/parts")
        }
        "part-has-type" => plain(
            &|request| request["contents"][0]["parts"] = json!([{"text": "a"}, {}]),
            "/contents/0/parts/1",
        ),
        "text-is-string" => plain(
            &|request| request["contents"][0]["parts"] = json!([{"text": 7}]),
            "/contents/0/parts/0/text",
        ),
        "call-has-name" => plain(
            &|request| request["contents"][answer]["parts"][call]["functionCall"]["name"] = json!(""),
            &call_at,
        ),
        "input-is-object" => plain(
            &|request| request["contents"][answer]["parts"][call]["functionCall"]["args"] = json!("{}"),
            &format!("{call_at}/functionCall/args"),
        ),
        "call-answered" => plain(
            &|request| {
                let parts = request["contents"][result]["parts"].as_array_mut().unwrap();
                parts.remove(call);
                if parts.is_empty() {
                    parts.push(json!({"text": "x"}));
                }
            },
            &format!("/contents/{answer}"),
        ),
        "result-answers-call" => plain(
            &|request| {
                let stray = json!({"functionResponse": {"name": "elsewhere", "response": {}}});
                request["contents"][result]["parts"].as_array_mut().unwrap().push(stray);
            },
            &format!("/contents/{result}/parts/{calls}"),
        ),
        "call-signed" => {
            let change = |request: &mut Value| {
                let call = request["contents"][answer]["parts"][0].as_object_mut().unwrap();
                call.remove("thoughtSignature");
            };
            vec![changed(&change, format!("/contents/{answer}/parts/0"), &signed, None)]
        }
        "thinking-unchanged" => {
            let change = |request: &mut Value| {
                request["contents"][answer]["parts"][call]["thoughtSignature"] = json!("another");
            };
            vec![changed(&change, call_at, &signed, Some(&whole))]
        }
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn each_rule_broken_at_a_place_is_found_there_and_nothing_else(calls in 1_usize..4, turns in 1_usize..4, at in 0_usize..12) {
        let whole = legal(calls, turns).to_string();
        let rules = ProviderRules::of(FORMAT).with(ProviderRule::CallsSigned);
        prop_assert_eq!(inspect(FORMAT, &whole, &rules), []);
        prop_assert_eq!(check_against(FORMAT, &whole, &whole, &rules), []);
        let mut tried = BTreeSet::new();
        for rule in LEGALITY_RULES.iter().filter(|rule| rule.formats.contains(&FORMAT)) {
            for (body, place, rules, sent) in broken(rule.id, calls, turns, at) {
                let found = match sent {
                    Some(sent) => check_against(FORMAT, &sent, &body, &rules),
                    None => inspect(FORMAT, &body, &rules),
                };
                let found: Vec<_> = found.iter().map(|found| (found.breach.rule().id, found.place.clone())).collect();
                prop_assert_eq!(found, [(rule.id, place)], "{}", body);
                tried.insert(rule.id);
            }
        }
        let all: BTreeSet<_> = LEGALITY_RULES.iter().filter(|rule| rule.formats.contains(&FORMAT)).map(|rule| rule.id).collect();
        prop_assert_eq!(tried, all);
    }
}
