//! What providers say when a request is too long, and what only sounds like it.

use epitome_core::Tokens;
use epitome_wire::{
    Format,
    overflow::{ContextOverflow, detect_overflow},
};
use proptest::prelude::*;
use serde_json::json;

/// The window and what was asked, if the body says that a request was too long.
fn read(format: Format, status: u16, body: &str) -> Option<(Option<u64>, Option<u64>)> {
    let number = |tokens: Option<Tokens>| tokens.map(|tokens| tokens.0);
    detect_overflow(format, status, body.as_bytes()).map(|found| (number(found.limit), number(found.asked)))
}

fn check(
    format: Format,
    status: u16,
    body: &str,
    limit: impl Into<Option<u64>>,
    asked: impl Into<Option<u64>>,
) {
    assert_eq!(read(format, status, body), Some((limit.into(), asked.into())), "{status} {body}");
}

/// An error as OpenAI writes it.
fn openai(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}})
        .to_string()
}

fn anthropic(kind: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).to_string()
}

#[test]
fn anthropic_says_it_in_words_and_in_bytes() {
    let check = |status, kind, message, limit: Option<u64>, asked: Option<u64>| {
        check(Format::Anthropic, status, &anthropic(kind, message), limit, asked);
    };
    let wrong = "invalid_request_error";
    check(400, wrong, "prompt is too long: 213462 tokens > 200000 maximum", Some(200_000), Some(213_462));
    check(
        400,
        wrong,
        "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease input length or \
         `max_tokens` and try again",
        Some(204_648),
        Some(209_136),
    );
    check(413, "request_too_large", "Request exceeds the maximum size", None, None);
    check(400, wrong, "capability_rejected: prompt_too_long", None, None);
}

#[test]
fn openai_and_azure_say_it_in_a_code_and_in_words() {
    let check = |format, message, limit: Option<u64>, asked: Option<u64>| {
        check(format, 400, &openai(message, "context_length_exceeded"), limit, asked);
    };
    check(
        Format::OpenaiChat,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens \
         (202767 in the messages, 101 in the functions). Please reduce the length of the messages or functions.",
        Some(128_000),
        Some(202_868),
    );
    check(
        Format::OpenaiChat,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300007 tokens. Please \
         reduce the length of the messages.",
        Some(272_000),
        Some(300_007),
    );
    let window =
        "Your input exceeds the context window of this model. Please adjust your input and try again.";
    check(Format::OpenaiResponses, window, None, None);
    check(Format::OpenaiResponses, "in words nobody knows", None, None);
    let long = "Invalid 'input[0].content': string too long. Expected a string with maximum length 10485760, but got a \
                string with length 62114761 instead.";
    self::check(Format::OpenaiResponses, 400, &openai(long, "string_above_max_length"), None, None);
}

#[test]
fn every_other_server_is_understood() {
    let said = |message: &str, limit: Option<u64>, asked: Option<u64>| {
        // The words count, however the error is written down.
        for body in [
            openai(message, "invalid_request_error"),
            json!({"object": "error", "message": message, "type": "BadRequestError", "code": 400})
                .to_string(),
            json!({"error": message}).to_string(),
            json!({"message": message}).to_string(),
            json!({"detail": message}).to_string(),
            json!([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]).to_string(),
            json!({"error": {"message": "Provider returned error", "code": 400,
                "metadata": {"raw": openai(message, ""), "provider_name": "Venice"}}})
            .to_string(),
            format!("Bad Request: {message}\n"),
        ] {
            check(Format::OpenaiChat, 400, &body, limit, asked);
        }
    };
    said(
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the \
         messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        Some(131_072),
        Some(131_134),
    );
    said(
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 32768 \
         tokens and your request has 29000 input tokens (4096 > 32768 - 29000).",
        Some(32_768),
        Some(33_096),
    );
    said(
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your \
         prompt contains at least 134145 input tokens, for a total of at least 262145 tokens.",
        Some(262_144),
        Some(262_145),
    );
    said(
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of \
         text input). Please reduce the length of either one, or use the \"middle-out\" transform.",
        Some(32_768),
        Some(42_832),
    );
    said(
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        Some(1_048_576),
        Some(1_200_293),
    );
    said(
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
        Some(131_072),
        Some(136_973),
    );
    said("Please reduce the length of the messages or completion.", None, None);
    said(
        "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        Some(131_072),
        Some(300_000),
    );
    said(
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        Some(40_960),
        Some(61_709),
    );
    said(
        "The prompt is too long: 221782, model maximum context length: 202752",
        Some(202_752),
        Some(221_782),
    );
    said(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6204 `inputs` tokens and \
         2047 `max_new_tokens`",
        Some(8_192),
        Some(8_251),
    );
    said("Input is too long for requested model.", None, None);
    said(
        "request (66202 tokens) exceeds the available context size (65536 tokens), try increasing it",
        Some(65_536),
        Some(66_202),
    );
    said("Requested tokens (2285) exceed context window of 2048", Some(2_048), Some(2_285));
    said(
        "Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context \
         length of only 4096 tokens, which is not enough.",
        Some(4_096),
        Some(15_857),
    );
    said("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", Some(7_424), Some(15_028));
    said("prompt too long; exceeded max context length by 4096 tokens", None, None);
}

#[test]
fn llama_cpp_gives_its_numbers_in_fields_and_under_any_status() {
    let body = r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the
        context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#
        .replace('\n', " ");
    for status in [200, 400, 500] {
        check(Format::OpenaiChat, status, &body, 8_192, 14_429);
    }
}

#[test]
fn a_stream_that_fails_says_it_too() {
    check(
        Format::Anthropic,
        200,
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too \
         long: 9 tokens > 8 maximum\"}}\n\n",
        8,
        9,
    );
    let failed = json!({"type": "response.failed", "response": {"id": "r", "status": "failed",
        "error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}}});
    let begun = json!({"type": "response.created", "response": {"id": "r", "error": null}});
    let stream = format!("event: x\ndata: {begun}\n\nevent: response.failed\ndata: {failed}\n\n");
    check(Format::OpenaiResponses, 200, &stream, None, None);
    let flat =
        json!({"type": "error", "code": "context_length_exceeded", "message": "too much", "param": "input"});
    check(Format::OpenaiResponses, 200, &format!("data: {flat}\n\n"), None, None);
    let chat = openai("maximum context length is 4096 tokens", "");
    check(Format::OpenaiChat, 200, &format!(": ping\n\ndata: {chat}"), 4_096, None);
    let whole =
        json!({"id": "r", "status": "failed", "output": [], "error": {"code": "context_length_exceeded"}});
    check(Format::OpenaiResponses, 200, &whole.to_string(), None, None);
}

#[test]
fn what_only_sounds_like_it_is_something_else() {
    let none = |status: u16, body: &str| {
        for format in Format::ALL {
            assert_eq!(read(format, status, body), None, "{status} {body}");
        }
    };
    // Limits of time and money.
    let groq = "Request too large for model `llama-3.3-70b-versatile` in organization `org` service tier `on_demand` on \
                tokens per minute (TPM): Limit 12000, Requested 14137, please reduce your message size and try again.";
    none(
        413,
        &json!({"error": {"message": groq, "type": "tokens", "code": "rate_limit_exceeded"}}).to_string(),
    );
    none(
        429,
        &openai(
            "Rate limit reached on tokens per min (TPM): Limit 30000, Requested 40000.",
            "rate_limit_exceeded",
        ),
    );
    none(429, &anthropic("rate_limit_error", "prompt is too long: 9 tokens > 8 maximum"));
    none(
        400,
        &json!({"message": "Throttling error: Too many tokens, please wait before trying again."})
            .to_string(),
    );
    none(400, &openai("You exceeded your current quota, please check your plan", "insufficient_quota"));
    none(529, &anthropic("overloaded_error", "Overloaded"));
    none(401, &anthropic("authentication_error", "invalid x-api-key"));
    // An output limit that no shorter history would help.
    none(
        400,
        &openai(
            "max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided 200000.",
            "invalid_value",
        ),
    );
    none(
        400,
        &anthropic(
            "invalid_request_error",
            "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens for claude",
        ),
    );
    none(
        400,
        &openai(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input, 131072 in the output).",
            "",
        ),
    );
    none(
        400,
        &openai(
            "'max_completion_tokens' is too large: 36839. This model's maximum context length is 32768 tokens and your request has 729 input tokens (36839 > 32768 - 729).",
            "",
        ),
    );
    none(400, &json!({"message": "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is lower than 2048."}).to_string());
    // Other mistakes.
    none(
        400,
        &openai(
            "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64, but got a string with length 116 instead.",
            "string_above_max_length",
        ),
    );
    none(
        400,
        &openai(
            "Invalid schema for function 'f': None is not of type 'object'.",
            "invalid_function_parameters",
        ),
    );
    none(
        400,
        &anthropic(
            "invalid_request_error",
            "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after",
        ),
    );
    none(500, "internal error");
    none(400, "");
    none(200, "");
    // An answer that talks about it.
    let talk = "prompt is too long: 213462 tokens > 200000 maximum (context_length_exceeded)";
    none(200, &json!({"choices": [{"message": {"role": "assistant", "content": talk}}]}).to_string());
    none(
        200,
        &json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": talk}]})
            .to_string(),
    );
    none(
        200,
        &format!("data: {}\n\n", json!({"choices": [{"delta": {"content": format!("error: {talk}")}}]})),
    );
    none(200, talk);
}

#[test]
fn a_body_too_large_for_any_server_is_refused_for_its_size() {
    for format in Format::ALL {
        let html = "<html><head><title>413 Request Entity Too Large</title></head></html>";
        assert_eq!(detect_overflow(format, 413, html.as_bytes()), Some(ContextOverflow::default()));
        assert_eq!(detect_overflow(format, 413, b""), Some(ContextOverflow::default()));
    }
}

#[test]
fn hostile_bodies_cost_little() {
    let huge = "prompt is too long: ".repeat(1 << 20);
    assert_eq!(detect_overflow(Format::OpenaiChat, 400, huge.as_bytes()), Some(ContextOverflow::default()));
    let numbers = format!(
        r#"{{"error":{{"message":"prompt is too long: {} tokens > 1 maximum"}}}}"#,
        "9".repeat(100_000)
    );
    assert_eq!(detect_overflow(Format::Anthropic, 400, numbers.as_bytes()), Some(ContextOverflow::default()));
    let nested = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    assert_eq!(detect_overflow(Format::Anthropic, 400, nested.as_bytes()), None);
    let events = "data: {\"error\":{\"message\":\"maximum context length is \"}}\n\n".repeat(50_000);
    assert_eq!(detect_overflow(Format::OpenaiChat, 200, events.as_bytes()), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(status in 200_u16..600, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in Format::ALL {
            let _ = detect_overflow(format, status, &body);
        }
    }

    #[test]
    fn no_words_make_it_panic(status in 200_u16..600, text in r"(maximum context length is |prompt is too long: |[0-9,]{1,30}| tokens|data: |\n|[{}:é]){0,12}") {
        for format in Format::ALL {
            let _ = detect_overflow(format, status, text.as_bytes());
            let _ = detect_overflow(format, status, openai(&text, &text).as_bytes());
        }
    }
}
