//! Answers to agents' hooks: the facts of a session before and after the agent's own compaction, and earlier failures before
//! they are repeated.
//!
//! A hook reads what the agent says on standard input and answers in the agent's shape. It never stands in an agent's way:
//! whatever goes wrong, it says nothing and ends well, and a line in a log tells why. Recording is done here only as far as the
//! answer needs the newest turns; a process in the background (`watch`) reads transcripts as they grow.

mod facts;
mod hook_input;
mod past_failures;
mod pushed_handles;
pub(crate) mod watch;

use std::{path::Path, sync::Arc};

use epitome::store::Store;
use serde_json::{Value, json};

pub(crate) use self::hook_input::MAX_INPUT_BYTES;
use self::hook_input::{HookInput, HookSession};
use crate::setup::SetupAgent;

/// Largest additional context that Claude Code takes, in letters.
const MAX_CONTEXT_CHARS: usize = 10_000;

/// Largest instructions for an agent's own summariser, in letters.
const MAX_INSTRUCTION_CHARS: usize = 4_000;

/// Largest text that is put before a call, in letters: it is paid with every call after it.
const MAX_PUSHED_CHARS: usize = 1_500;

/// Everything that an answer is made from.
pub(crate) struct HookCall<'h> {
    pub(crate) agent: SetupAgent,
    pub(crate) event: &'h str,
    pub(crate) input: &'h str,
    /// Folder for what is kept beside the database.
    pub(crate) data: &'h Path,
}

/// The answer to a hook, for standard output; empty if there is nothing to say.
pub(crate) fn answer(call: &HookCall<'_>, store: &Arc<dyn Store>) -> anyhow::Result<String> {
    let input = HookInput::parse(call.input)?;
    let said = match (call.agent, call.event) {
        (SetupAgent::ClaudeCode, "PreCompact") => return claude_instructions(&input, store),
        (SetupAgent::ClaudeCode | SetupAgent::Codex, "SessionStart") => session_start(call, &input, store)?,
        (SetupAgent::ClaudeCode, "UserPromptSubmit") => {
            let session = HookSession::recorded(&input, &**store)?;
            session
                .and_then(|session| past_failures::of_prompt(call, &input, &session, &**store).transpose())
                .transpose()?
        }
        (SetupAgent::ClaudeCode, "PreToolUse") => return before_tool(call, &input, store),
        (SetupAgent::Codex, "PreCompact" | "PostCompact") => {
            HookSession::current(&input, call.agent, store)?;
            None
        }
        (SetupAgent::Opencode, "compacting" | "messages") => return opencode(call, &input, store),
        (SetupAgent::Pi, "session_before_compact") => return pi(&input, store),
        (agent, event) => anyhow::bail!("{} has no hook `{event}`", agent.title()),
    };
    Ok(said.map(|text| context_answer(call.event, &text)).unwrap_or_default())
}

/// Claude Code takes what a hook writes before a compaction for instructions to its summariser.
fn claude_instructions(input: &HookInput, store: &Arc<dyn Store>) -> anyhow::Result<String> {
    let Some(session) = HookSession::current(input, SetupAgent::ClaudeCode, store)? else {
        return Ok(String::new());
    };
    let told = facts::of_session(&**store, &session, None, MAX_INSTRUCTION_CHARS)?;
    Ok(told.map(|told| facts::as_instructions(&told)).unwrap_or_default())
}

/// After a compaction, and when a session is resumed, the agent goes on with the facts of all of it.
fn session_start(
    call: &HookCall<'_>,
    input: &HookInput,
    store: &Arc<dyn Store>,
) -> anyhow::Result<Option<String>> {
    if !matches!(input.text("source"), Some("compact" | "resume")) {
        return Ok(None);
    }
    let Some(session) = HookSession::current(input, call.agent, store)? else { return Ok(None) };
    // A resumed session that was never compacted still has all of it.
    if input.text("source") == Some("resume") && !session.has_compaction(&**store)? {
        return Ok(None);
    }
    let told = facts::of_session(&**store, &session, None, MAX_CONTEXT_CHARS)?;
    Ok(told.map(|told| facts::as_context(&told, MAX_CONTEXT_CHARS)))
}

/// Before an edit the agent is told what failed on the file before; a subagent gets the facts with its task.
fn before_tool(call: &HookCall<'_>, input: &HookInput, store: &Arc<dyn Store>) -> anyhow::Result<String> {
    let Some(session) = HookSession::recorded(input, &**store)? else { return Ok(String::new()) };
    if matches!(input.text("tool_name"), Some("Task" | "Agent")) {
        let Some(mut arguments) = input.tool_input().cloned() else { return Ok(String::new()) };
        let Some(Value::String(prompt)) = arguments.get("prompt") else { return Ok(String::new()) };
        let Some(rules) = facts::rules(&**store, &session, MAX_PUSHED_CHARS)? else {
            return Ok(String::new());
        };
        let prompt = format!("{prompt}\n\n{rules}");
        arguments.insert("prompt".to_owned(), Value::String(prompt));
        let answer =
            json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": arguments}});
        return Ok(answer.to_string());
    }
    let told = past_failures::of_edit(call, input, &session, &**store)?;
    Ok(told.map(|text| context_answer("PreToolUse", &text)).unwrap_or_default())
}

fn opencode(call: &HookCall<'_>, input: &HookInput, store: &Arc<dyn Store>) -> anyhow::Result<String> {
    let Some(session) = HookSession::current(input, call.agent, store)? else { return Ok(String::new()) };
    let most = if call.event == "compacting" { MAX_INSTRUCTION_CHARS } else { MAX_CONTEXT_CHARS };
    let Some(told) = facts::of_session(&**store, &session, None, most)? else { return Ok(String::new()) };
    let context = if call.event == "compacting" {
        facts::as_instructions(&told)
    } else {
        facts::as_context(&told, most)
    };
    Ok(json!({"context": context}).to_string())
}

/// pi takes the summary itself, of everything before the first entry that it keeps.
fn pi(input: &HookInput, store: &Arc<dyn Store>) -> anyhow::Result<String> {
    let Some(session) = HookSession::current(input, SetupAgent::Pi, store)? else { return Ok(String::new()) };
    let until =
        input.text("first_kept").map(|entry| session.event_of(&**store, entry)).transpose()?.flatten();
    let told = facts::of_session(&**store, &session, until, MAX_CONTEXT_CHARS)?;
    Ok(told.map(|told| json!({"summary": told}).to_string()).unwrap_or_default())
}

/// Context as Claude Code and Codex take it.
fn context_answer(event: &str, text: &str) -> String {
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}).to_string()
}
