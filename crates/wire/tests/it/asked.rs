//! Bare questions to a model, and its answers.

use epitome_core::{Tokens, event::Usage};
use epitome_wire::{
    Format, WireError,
    legality::{ProviderRules, check},
    plain_request::{DraftFinish, OutputLimitName, PlainRequest, ReplyContent},
};
use proptest::prelude::*;

const ASK: PlainRequest<'_> = PlainRequest {
    model: "m",
    system: "You are \"terse\".",
    user: "Line one\nline two",
    limit: Tokens(700),
    limit_name: OutputLimitName::MaxTokens,
};

#[test]
fn a_question_is_bare_legal_and_says_how_long_the_answer_may_be() {
    let asked = |format: Format, ask: &PlainRequest<'_>| {
        let body = format.write_plain_request(ask);
        assert_eq!(check(format, &body, &ProviderRules::default()), [], "{body}");
        assert!(!body.contains("tool"), "{body}");
        serde_json::from_str::<serde_json::Value>(&body).unwrap()
    };
    let chat = asked(Format::OpenaiChat, &ASK);
    assert_eq!(chat["max_tokens"], 700);
    assert_eq!(chat["stream"], false);
    assert_eq!(chat["messages"][0]["content"], ASK.system);
    assert_eq!(chat["messages"][1]["content"], ASK.user);
    let newer =
        asked(Format::OpenaiChat, &PlainRequest { limit_name: OutputLimitName::MaxCompletionTokens, ..ASK });
    assert_eq!(
        (&newer["max_completion_tokens"], &newer["max_tokens"]),
        (&700.into(), &serde_json::Value::Null)
    );

    let responses = asked(Format::OpenaiResponses, &ASK);
    assert_eq!(responses["max_output_tokens"], 700);
    assert_eq!(responses["store"], false);
    assert_eq!(responses["instructions"], ASK.system);
    assert_eq!(responses["input"][0]["content"], ASK.user);

    let anthropic = asked(Format::Anthropic, &ASK);
    assert_eq!(anthropic["max_tokens"], 700);
    assert_eq!(anthropic["system"], ASK.system);
    assert_eq!(anthropic["messages"][0]["role"], "user");
    assert_eq!(anthropic["messages"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_answer_is_its_words_and_how_it_ended() {
    use DraftFinish::{CalledTool, Complete, CutOff, Refused, Unknown};
    use ReplyContent::{Nothing, ReasoningOnly, Said};

    let check = |format: Format, body: &str, text: &str, finish: DraftFinish, content: ReplyContent| {
        let reply = format.read_plain_reply(body).unwrap();
        assert_eq!((reply.text.as_str(), reply.finish, reply.content), (text, finish, content), "{body}");
    };
    let chat = |message: &str, reason: &str| {
        format!(r#"{{"choices":[{{"message":{{"role":"assistant",{message}}},"finish_reason":{reason}}}]}}"#)
    };
    let said = |message: &str, reason: &str, text, finish, content| {
        check(Format::OpenaiChat, &chat(message, reason), text, finish, content);
    };
    said(r#""content":"Hi""#, r#""stop""#, "Hi", Complete, Said);
    said(r#""content":"Hi""#, r#""length""#, "Hi", CutOff, Said);
    said(r#""content":"Hi""#, "null", "Hi", Unknown, Said);
    said(r#""content":"Hi""#, r#""wat""#, "Hi", Unknown, Said);
    said(r#""content":"""#, r#""stop""#, "", Complete, Nothing);
    said(r#""content":null"#, r#""content_filter""#, "", Refused, Nothing);
    said(r#""content":"\n""#, r#""stop""#, "", Complete, Nothing);
    let reasoned = r#""content":"","reasoning_content":"Hm""#;
    said(reasoned, r#""length""#, "", CutOff, ReasoningOnly);
    said(r#""content":"So","reasoning":"Hm""#, r#""stop""#, "So", Complete, Said);
    said(r#""content":"<think>Hm""#, r#""length""#, "<think>Hm", CutOff, ReasoningOnly);
    let closed = "<think>Hm</think>\n";
    said(r#""content":"<think>Hm</think>\n""#, r#""stop""#, closed, Complete, ReasoningOnly);
    let after = "<think>Hm</think> So";
    said(r#""content":"<think>Hm</think> So""#, r#""stop""#, after, Complete, Said);
    said(r#""content":null,"refusal":"No.""#, r#""stop""#, "No.", Refused, Said);
    let called = r#""content":"On it","tool_calls":[{"id":"1","type":"function","function":{"name":"t","arguments":"{}"}}]"#;
    said(called, r#""stop""#, "On it", CalledTool, Said);
    said(r#""content":null,"tool_calls":[{}]"#, r#""stop""#, "", CalledTool, Nothing);
    said(r#""content":null,"function_call":{"name":"t"}"#, r#""length""#, "", CalledTool, Nothing);

    let responses = |rest: &str, text, finish, content| {
        check(Format::OpenaiResponses, &format!("{{{rest}}}"), text, finish, content);
    };
    let message = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}"#;
    let thought = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]}"#;
    let call = r#"{"type":"function_call","call_id":"c","name":"t","arguments":"{}"}"#;
    let completed = r#""status":"completed""#;
    let cut = r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#;
    responses(&format!(r#""output":[{thought},{message}],{completed}"#), "Hi", Complete, Said);
    responses(&format!(r#""output":[{message}],{cut}"#), "Hi", CutOff, Said);
    responses(&format!(r#""output":[{thought}],{cut}"#), "", CutOff, ReasoningOnly);
    responses(&format!(r#""output":[{call}],{completed}"#), "", CalledTool, Nothing);
    responses(&format!(r#""output":[],{completed}"#), "", Unknown, Nothing);
    let used = r#""usage":{"input_tokens":9,"output_tokens":0}"#;
    responses(&format!(r#""output":[],{completed},{used}"#), "", Complete, Nothing);

    let anthropic = |content: &str, reason: &str, text, finish, made| {
        let body = format!(r#"{{"role":"assistant","content":[{content}],"stop_reason":"{reason}"}}"#);
        check(Format::Anthropic, &body, text, finish, made);
    };
    let words = r#"{"type":"text","text":"Hi"}"#;
    let thought = r#"{"type":"thinking","thinking":"Hm","signature":"s"}"#;
    anthropic(words, "end_turn", "Hi", Complete, Said);
    anthropic(&format!("{thought},{words}"), "max_tokens", "Hi", CutOff, Said);
    anthropic(thought, "max_tokens", "", CutOff, ReasoningOnly);
    anthropic(words, "refusal", "Hi", Refused, Said);
    let call = r#"{"type":"tool_use","id":"1","name":"t","input":{}}"#;
    anthropic(call, "tool_use", "", CalledTool, Nothing);
    anthropic("", "end_turn", "", Complete, Nothing);
}

#[test]
fn usage_and_model_are_read_where_they_stand() {
    let body = r#"{"model":"served","choices":[{"message":{"role":"assistant","content":"Hi"}}],
        "usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let reply = Format::OpenaiChat.read_plain_reply(body).unwrap();
    let used = Usage { uncached: Tokens(6), cache_read: Tokens(4), output: Tokens(3), ..Usage::default() };
    assert_eq!((reply.model.as_deref(), reply.usage), (Some("served"), Some(used)));
}

#[test]
fn what_is_no_answer_is_an_error_that_says_so() {
    for format in Format::ALL {
        for body in ["", "<html>502</html>", "{\"choices\":", "[1]", "null", "\"text\""] {
            assert!(format.read_plain_reply(body).is_err(), "{format} {body}");
        }
        for body in ["{}", r#"{"hello":1}"#, r#"{"choices":[]}"#, r#"{"choices":[{"text":"x"}]}"#] {
            let error = format.read_plain_reply(body).unwrap_err();
            assert!(matches!(error, WireError::NothingSaid { .. }), "{format} {body}: {error}");
        }
        let error =
            format.read_plain_reply(r#"{"type":"error","error":{"message":"overloaded"}}"#).unwrap_err();
        assert!(matches!(&error, WireError::NoAnswer { said, .. } if said == "overloaded"), "{error}");
    }
    let failed = r#"{"status":"failed","error":{"code":"server_error","message":"broke"},"output":[
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hal"}]}]}"#;
    assert!(matches!(Format::OpenaiResponses.read_plain_reply(failed), Err(WireError::NoAnswer { .. })));
}

proptest! {
    #[test]
    fn no_words_break_a_question_and_no_body_breaks_the_reader(text in any::<String>(), body in r#"[\[\]{}":,a-z]{0,60}"#) {
        for format in Format::ALL {
            let asked = format.write_plain_request(&PlainRequest { model: &text, system: &text, user: &text, ..ASK });
            prop_assert!(format.decode_request(&asked).is_ok());
            let _ = format.read_plain_reply(&body);
            let _ = format.read_plain_reply(&text);
            let _ = format.read_plain_reply(&asked);
        }
    }
}
