//! One invented session, as each agent would have recorded it.

use serde_json::{Value, json};

/// Turns of the session: a request, a call with a long result, an answer.
const TURNS: usize = 12;

/// The last thing that the user asks for.
pub(crate) const TASK: &str = "Please mend part 11 of the parser.";
/// The last thing that the model says.
pub(crate) const ANSWER: &str = "Part 11 is mended and its test passes.";

/// A turn of the session.
struct Turn {
    number: usize,
    request: String,
    call: String,
    command: String,
    result: String,
    answer: String,
}

fn turns() -> impl Iterator<Item = Turn> {
    (0..TURNS).map(|number| Turn {
        number,
        request: format!("Please mend part {number} of the parser."),
        call: format!("call_{number}"),
        command: format!("cat src/part_{number}.rs"),
        result: result(number),
        answer: format!("Part {number} is mended and its test passes."),
    })
}

fn result(number: usize) -> String {
    let line = |line: usize| format!("fn part_{number}_{line}(input: &str) -> usize {{ input.len() }}");
    (0..60).map(line).collect::<Vec<_>>().join("\n")
}

fn lines(values: impl IntoIterator<Item = Value>) -> String {
    let lines: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    lines.join("\n") + "\n"
}

fn time(number: usize) -> String {
    format!("2026-03-01T10:{number:02}:00.000Z")
}

/// Every format that is read, with the session in it.
pub(crate) fn every() -> Vec<(&'static str, String)> {
    vec![
        ("claude-code", claude_code("/nowhere")),
        ("codex", codex("/nowhere")),
        ("opencode", opencode()),
        ("pi", pi()),
        ("gemini", gemini()),
        ("swe-agent", json!({"history": chat(), "trajectory": []}).to_string()),
        ("openhands", openhands()),
        ("tau-bench", json!([{"task_id": 0, "trial": 0, "traj": chat()}]).to_string()),
        ("tau2", tau2()),
        ("openai-chat", json!(chat()).to_string()),
        ("openai-responses", json!({"model": "gpt-5.1", "input": responses()}).to_string()),
        (
            "anthropic",
            json!({"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages()}).to_string(),
        ),
        ("gemini-request", json!({"contents": contents()}).to_string()),
    ]
}

/// Claude Code's file of a session in a folder.
pub(crate) fn claude_code(directory: &str) -> String {
    let mut parent = Value::Null;
    let mut all = Vec::new();
    for (index, message) in messages().into_iter().enumerate() {
        let uuid = format!("00000000-0000-4000-8000-{index:012}");
        let kind = message["role"].clone();
        all.push(json!({
            "parentUuid": parent, "isSidechain": false, "userType": "external", "cwd": directory,
            "sessionId": "11111111-2222-4333-8444-555555555555", "version": "2.1.0", "type": kind,
            "message": message, "uuid": uuid, "timestamp": time(index % 60),
        }));
        parent = Value::from(uuid);
    }
    lines(all)
}

fn messages() -> Vec<Value> {
    let turn = |turn: Turn| {
        let answered = |content: Value| {
            json!({"id": format!("msg_{}_{}", turn.number, content[0]["type"]), "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "content": content,
                "usage": {"input_tokens": 170_000, "output_tokens": 9}})
        };
        [
            json!({"role": "user", "content": turn.request}),
            answered(
                json!([{"type": "tool_use", "id": turn.call, "name": "Bash", "input": {"command": turn.command}}]),
            ),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": turn.call, "content": turn.result}]}),
            answered(json!([{"type": "text", "text": turn.answer}])),
        ]
    };
    turns().flat_map(turn).collect()
}

/// Codex's file of a session in a folder.
pub(crate) fn codex(directory: &str) -> String {
    let meta = json!({"id": "019e7db7-d89c-7070-b812-4435399bcd61", "cwd": directory, "originator": "codex"});
    let line = |kind: &str, payload: Value| json!({"timestamp": time(1), "type": kind, "payload": payload});
    let context = json!({"turn_id": "t", "model": "gpt-5.1"});
    let head = [line("session_meta", meta), line("turn_context", context)];
    lines(head.into_iter().chain(responses().into_iter().map(|item| line("response_item", item))))
}

fn responses() -> Vec<Value> {
    let message = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    let turn = |turn: Turn| {
        let arguments = json!({"cmd": turn.command}).to_string();
        [
            message("user", "input_text", &turn.request),
            json!({"type": "function_call", "id": format!("fc_{}", turn.number), "name": "exec_command",
                "arguments": arguments, "call_id": turn.call}),
            json!({"type": "function_call_output", "call_id": turn.call, "output": turn.result}),
            message("assistant", "output_text", &turn.answer),
        ]
    };
    turns().flat_map(turn).collect()
}

fn chat() -> Vec<Value> {
    let turn = |turn: Turn| {
        let arguments = json!({"command": turn.command}).to_string();
        let call = json!({"id": turn.call, "type": "function", "function": {"name": "bash", "arguments": arguments}});
        [
            json!({"role": "user", "content": turn.request}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": turn.call, "tool_call_ids": [turn.call], "content": turn.result}),
            json!({"role": "assistant", "content": turn.answer}),
        ]
    };
    turns().flat_map(turn).collect()
}

fn contents() -> Vec<Value> {
    let turn = |turn: Turn| {
        let call = json!({"name": "bash", "args": {"command": turn.command}});
        let response = json!({"name": "bash", "response": {"output": turn.result}});
        [
            json!({"role": "user", "parts": [{"text": turn.request}]}),
            json!({"role": "model", "parts": [{"functionCall": call}]}),
            json!({"role": "user", "parts": [{"functionResponse": response}]}),
            json!({"role": "model", "parts": [{"text": turn.answer}]}),
        ]
    };
    turns().flat_map(turn).collect()
}

fn opencode() -> String {
    let part = |part: Value| part;
    let turn = |turn: Turn| {
        let (user, first, last) = (
            format!("msg_{}a", turn.number),
            format!("msg_{}b", turn.number),
            format!("msg_{}c", turn.number),
        );
        let answer = |id: &str, parts: Value| {
            json!({"info": {"id": id, "role": "assistant", "parentID": user, "modelID": "small", "providerID": "p",
                "tokens": {"input": 170_000, "output": 9, "reasoning": 0, "cache": {"read": 0, "write": 0}},
                "time": {"created": 1, "completed": 2}}, "parts": parts})
        };
        let state = json!({"status": "completed", "input": {"command": turn.command}, "output": turn.result,
            "title": "cat", "metadata": {}, "time": {"start": 1, "end": 2}});
        [
            json!({"info": {"id": user, "role": "user", "time": {"created": 1},
                "model": {"providerID": "p", "modelID": "small"}},
                "parts": [{"type": "text", "text": turn.request}]}),
            answer(
                &first,
                json!([part(json!({"type": "tool", "tool": "bash", "callID": turn.call, "state": state}))]),
            ),
            answer(&last, json!([{"type": "text", "text": turn.answer}])),
        ]
    };
    let messages: Vec<Value> = turns().flat_map(turn).collect();
    let info = json!({"id": "ses_1", "projectID": "global", "directory": "/nowhere", "title": "Parser"});
    json!({"info": info, "messages": messages}).to_string()
}

fn pi() -> String {
    let mut all = vec![json!({"type": "session", "version": 3, "id": "019f7526-e56b-7b5f-a63c-68bff34eb1f1",
        "timestamp": time(0), "cwd": "/nowhere"})];
    let mut parent = Value::Null;
    for turn in turns() {
        let answer = |content: Value| {
            json!({"role": "assistant", "content": content, "api": "anthropic-messages", "provider": "p", "model": "big",
                "usage": {"input": 170_000, "output": 7, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 170_007},
                "stopReason": "stop", "timestamp": 5})
        };
        let messages = [
            json!({"role": "user", "content": [{"type": "text", "text": turn.request}], "timestamp": 5}),
            answer(
                json!([{"type": "toolCall", "id": turn.call, "name": "bash", "arguments": {"command": turn.command}}]),
            ),
            json!({"role": "toolResult", "toolCallId": turn.call, "toolName": "bash", "isError": false, "timestamp": 5,
                "content": [{"type": "text", "text": turn.result}]}),
            answer(json!([{"type": "text", "text": turn.answer}])),
        ];
        for (place, message) in messages.into_iter().enumerate() {
            let id = format!("e{:04}{place}", turn.number);
            all.push(json!({"type": "message", "id": id, "parentId": parent, "timestamp": time(turn.number), "message": message}));
            parent = Value::from(id);
        }
    }
    lines(all)
}

fn gemini() -> String {
    let head = json!({"sessionId": "s-1", "projectHash": "7e", "startTime": time(0), "kind": "main"});
    let turn = |turn: Turn| {
        let response = json!([{"functionResponse": {"id": turn.call, "name": "bash", "response": {"output": turn.result}}}]);
        let call = json!([{"id": turn.call, "name": "bash", "args": {"command": turn.command}, "status": "success",
            "result": response}]);
        [
            json!({"id": format!("u{}", turn.number), "timestamp": time(turn.number), "type": "user", "content": turn.request}),
            json!({"id": format!("g{}", turn.number), "timestamp": time(turn.number), "type": "gemini", "content": "",
                "model": "pro", "toolCalls": call}),
            json!({"id": format!("h{}", turn.number), "timestamp": time(turn.number), "type": "gemini",
                "content": turn.answer, "model": "pro"}),
        ]
    };
    lines([head].into_iter().chain(turns().flat_map(turn)))
}

fn openhands() -> String {
    let turn = |turn: Turn| {
        let id = turn.number * 4;
        let arguments = json!({"command": turn.command}).to_string();
        let call = json!({"id": turn.call, "function": {"name": "execute_bash", "arguments": arguments}});
        let response = json!({"id": format!("gen-{id}"), "model": "m", "choices": [{"message": {"content": "", "tool_calls": [call]}}]});
        [
            json!({"id": id, "source": "user", "action": "message", "args": {"content": turn.request}}),
            json!({"id": id + 1, "source": "agent", "action": "run", "args": {"command": turn.command},
                "tool_call_metadata": {"function_name": "execute_bash", "tool_call_id": turn.call, "model_response": response}}),
            json!({"id": id + 2, "source": "agent", "observation": "run", "content": turn.result, "cause": id + 1}),
            json!({"id": id + 3, "source": "agent", "action": "message", "args": {"content": turn.answer}}),
        ]
    };
    let history: Vec<Value> = turns().flat_map(turn).collect();
    lines([
        json!({"instance_id": "parser-1", "instruction": "x", "metadata": {"llm_config": {"model": "m"}}, "history": history}),
    ])
}

fn tau2() -> String {
    let turn = |turn: Turn| {
        let call = json!({"id": turn.call, "name": "bash", "arguments": {"command": turn.command}, "requestor": "assistant"});
        [
            json!({"role": "user", "content": turn.request}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"id": turn.call, "role": "tool", "content": turn.result, "requestor": "assistant"}),
            json!({"role": "assistant", "content": turn.answer, "tool_calls": null}),
        ]
    };
    let mut messages: Vec<Value> = turns().flat_map(turn).collect();
    for (index, message) in messages.iter_mut().enumerate() {
        message["turn_idx"] = Value::from(index);
    }
    let simulation =
        json!({"id": "2ac97331-26db-4a7f-9ea6-412cb4382709", "task_id": "t", "messages": messages});
    let info = json!({"agent_info": {"implementation": "a", "llm": "gpt"}, "environment_info": {"policy": "Be nice"}});
    json!({"info": info, "tasks": [{"id": "t"}], "simulations": [simulation]}).to_string()
}
