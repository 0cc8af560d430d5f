//! Who sent a request is read off what each client says of itself.

use epitome_wire::{
    Format,
    caller::{Caller, ClientProgram, RequestPurpose},
    incoming::{IncomingRequest, MessageMemo},
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn caller(format: Format, headers: &[(&str, &str)], body: &Value) -> Caller {
    let body = body.to_string();
    let seen = IncomingRequest::read(format, &body, &MessageMemo::default()).unwrap();
    let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    Caller::of(header, &seen)
}

/// Client, session, thread, parent.
type Ids<'a> = (ClientProgram, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn check(headers: &[(&str, &str)], body: &Value, expect: Ids<'_>) {
    let caller = caller(Format::OpenaiResponses, headers, body);
    let found =
        (caller.client, caller.session.as_deref(), caller.thread.as_deref(), caller.parent.as_deref());
    assert_eq!(found, expect, "{headers:?} {body}");
}

#[test]
fn every_client_names_its_sessions_in_its_own_way() {
    let none = json!({});
    check(&[("x-claude-code-session-id", "s")], &none, (ClientProgram::ClaudeCode, Some("s"), None, None));
    let agent = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a")];
    check(&agent, &none, (ClientProgram::ClaudeCode, Some("s"), Some("a"), Some("s")));
    let nested = [agent[0], agent[1], ("x-claude-code-parent-agent-id", "p")];
    check(&nested, &none, (ClientProgram::ClaudeCode, Some("s"), Some("a"), Some("p")));
    let user = |id: &str| json!({ "metadata": { "user_id": id } });
    check(
        &[],
        &user(r#"{"device_id":"d","session_id":"s"}"#),
        (ClientProgram::ClaudeCode, Some("s"), None, None),
    );
    check(&[], &user("user_1_account_2_session_3-4"), (ClientProgram::ClaudeCode, Some("3-4"), None, None));
    check(&[], &user("{broken"), (ClientProgram::Other, None, None, None));

    let codex = [("session-id", "s"), ("thread-id", "s")];
    let key = json!({ "prompt_cache_key": "k" });
    check(&codex, &key, (ClientProgram::Codex, Some("s"), Some("s"), None));
    let subagent = [
        ("session-id", "s"),
        ("thread-id", "t"),
        ("x-codex-parent-thread-id", "s"),
        ("x-openai-subagent", "collab_spawn"),
    ];
    check(&subagent, &key, (ClientProgram::Codex, Some("s"), Some("t"), Some("s")));
    let metadata = r#"{"session_id":"s","thread_id":"t","request_kind":"turn"}"#;
    check(&[("x-codex-turn-metadata", metadata)], &none, (ClientProgram::Codex, Some("s"), Some("t"), None));
    check(&[("originator", "codex_cli_rs")], &key, (ClientProgram::Codex, Some("k"), None, None));
    check(
        &[("originator", "codex_cli_rs"), ("session_id", "s")],
        &key,
        (ClientProgram::Codex, Some("s"), None, None),
    );

    check(&[("x-session-id", "ses_1")], &none, (ClientProgram::OpenCode, Some("ses_1"), Some("ses_1"), None));
    check(
        &[("x-session-affinity", "ses_2"), ("x-parent-session-id", "ses_1")],
        &none,
        (ClientProgram::OpenCode, Some("ses_1"), Some("ses_2"), Some("ses_1")),
    );
    check(
        &[("user-agent", "opencode/1.18"), ("x-session-id", "1")],
        &none,
        (ClientProgram::OpenCode, Some("1"), Some("1"), None),
    );

    check(
        &[("agent-session-id", "20261115_1")],
        &none,
        (ClientProgram::Goose, Some("20261115_1"), None, None),
    );
    check(&[("session_id", "s")], &key, (ClientProgram::Pi, Some("s"), None, None));

    check(&[("user-agent", "OpenAI/Python 3.49")], &none, (ClientProgram::Other, None, None, None));
    check(&[], &key, (ClientProgram::Other, None, None, None));
    let both = json!({ "prompt_cache_key": "k", "metadata": { "session_id": "m" } });
    check(&[], &both, (ClientProgram::Other, Some("m"), None, None));
    check(&[("x-session-id", "x")], &both, (ClientProgram::Other, Some("x"), None, None));
    check(
        &[("x-session-id", "x"), ("x-epitome-session", "e")],
        &both,
        (ClientProgram::Other, Some("e"), None, None),
    );
}

#[test]
fn titles_and_summaries_are_told_from_turns() {
    let check = |headers: &[(&str, &str)], format: Format, body: Value, expect: RequestPurpose| {
        assert_eq!(caller(format, headers, &body).purpose, expect, "{body}");
    };
    let claude: &[_] = &[("x-claude-code-session-id", "s")];
    let opencode: &[_] = &[("x-session-id", "ses_1")];
    let goose: &[_] = &[("agent-session-id", "1")];
    let hi = json!([{ "role": "user", "content": "hi" }]);
    let tools = json!([{ "name": "bash" }]);
    check(claude, Format::Anthropic, json!({ "messages": hi, "tools": tools }), RequestPurpose::Turn);

    let title = "Generate a concise, sentence-case title (3-7 words) that captures the main topic of this coding session.";
    check(
        claude,
        Format::Anthropic,
        json!({ "messages": hi, "system": [{ "type": "text", "text": "You are Claude Code." }, { "type": "text", "text": title }], "tools": [] }),
        RequestPurpose::Title,
    );
    check(
        claude,
        Format::Anthropic,
        json!({ "messages": hi, "system": title, "tools": tools }),
        RequestPurpose::Turn,
    );
    let titled = json!([{ "role": "system", "content": "You are a title generator. You output ONLY a thread title." }, { "role": "user", "content": "Generate a title for this conversation:\n" }, { "role": "user", "content": "hi" }]);
    check(opencode, Format::OpenaiChat, json!({ "messages": titled }), RequestPurpose::Title);
    check(&[], Format::OpenaiChat, json!({ "messages": titled }), RequestPurpose::Turn);
    let described = json!([{ "role": "user", "content": "Here are the first messages …\nProvide a concise description of this session in 4 words or less." }]);
    check(
        goose,
        Format::Anthropic,
        json!({ "messages": described, "system": "Reply with only a description." }),
        RequestPurpose::Title,
    );

    let text_only = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. … an <analysis> block followed by a <summary> block.";
    let appended = json!([{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "ok" }, { "type": "text", "text": text_only }] }]);
    check(
        claude,
        Format::Anthropic,
        json!({ "messages": appended, "tools": tools }),
        RequestPurpose::Compaction,
    );
    let mut answered = appended.as_array().unwrap().clone();
    answered.extend([
        json!({ "role": "assistant", "content": "…" }),
        json!({ "role": "user", "content": "go on" }),
    ]);
    check(claude, Format::Anthropic, json!({ "messages": answered, "tools": tools }), RequestPurpose::Turn);

    let checkpoint = json!([{ "role": "user", "content": "Fix it" }, { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create …" }] }]);
    check(&[], Format::OpenaiResponses, json!({ "input": checkpoint }), RequestPurpose::Compaction);
    let hinted: &[_] = &[("x-codex-turn-metadata", r#"{"request_kind":"compaction"}"#)];
    check(hinted, Format::OpenaiResponses, json!({ "input": "hi" }), RequestPurpose::Compaction);
    let inside = json!({ "input": "hi", "client_metadata": { "x-codex-turn-metadata": "{\"request_kind\":\"compaction\"}" } });
    check(&[], Format::OpenaiResponses, inside, RequestPurpose::Compaction);
    check(
        &[("x-openai-subagent", "compact")],
        Format::OpenaiResponses,
        json!({ "input": "hi" }),
        RequestPurpose::Compaction,
    );
    let triggered = json!([{ "role": "user", "content": "hi" }, { "type": "compaction_trigger" }]);
    check(
        &[],
        Format::OpenaiResponses,
        json!({ "input": triggered, "tools": tools }),
        RequestPurpose::Compaction,
    );

    for who in ["agent", "assistant"] {
        let system = format!("You are a context summarization {who}. Summarise the conversation.");
        let summarised = json!([{ "role": "system", "content": system }, { "role": "user", "content": "<conversation>…</conversation>" }]);
        check(opencode, Format::OpenaiChat, json!({ "messages": summarised }), RequestPurpose::Compaction);
        check(
            &[],
            Format::Anthropic,
            json!({ "system": system, "messages": hi }),
            RequestPurpose::Compaction,
        );
        check(
            &[],
            Format::OpenaiResponses,
            json!({ "instructions": system, "input": "hi" }),
            RequestPurpose::Compaction,
        );
        check(
            &[],
            Format::Anthropic,
            json!({ "system": system, "messages": hi, "tools": tools }),
            RequestPurpose::Turn,
        );
    }
    let flattened = json!([{ "role": "user", "content": "Please summarize the conversation history provided in the system prompt." }]);
    check(
        goose,
        Format::Anthropic,
        json!({ "system": "An llm context limit was reached …", "messages": flattened }),
        RequestPurpose::Compaction,
    );
}

#[test]
fn ids_that_could_do_harm_are_cut_or_dropped() {
    let session = |id: &str| caller(Format::OpenaiChat, &[("x-session-id", id)], &json!({})).session;
    assert_eq!(session("a\nb"), None);
    assert_eq!(session("\u{7f}"), None);
    assert_eq!(session("  "), None);
    assert_eq!(session(&"é".repeat(150)).unwrap(), "é".repeat(100));
    assert_eq!(session(&format!("x{}", "é".repeat(150))).unwrap().len(), 199);
    assert_eq!(session("'; DROP TABLE sessions; --").unwrap(), "'; DROP TABLE sessions; --");
}

proptest! {
    #[test]
    fn no_header_and_no_body_makes_it_panic(value in any::<String>(), text in any::<String>()) {
        let headers = [
            "x-claude-code-session-id", "x-codex-turn-metadata", "thread-id", "x-session-id", "user-agent", "originator",
        ];
        for format in Format::ALL {
            for name in headers {
                let body = json!({
                    "metadata": { "user_id": text }, "prompt_cache_key": value, "system": text, "instructions": text,
                    "client_metadata": { "x-codex-turn-metadata": value },
                    "messages": [{ "role": "user", "content": text }], "input": text,
                });
                let caller = caller(format, &[(name, &value)], &body);
                let ids = [caller.session, caller.thread, caller.parent];
                prop_assert!(ids.iter().flatten().all(|id| id.len() <= 200 && !id.chars().any(char::is_control)));
            }
        }
    }
}
