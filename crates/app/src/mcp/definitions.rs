//! Definitions of the tools: names, arguments, and what a client may rely on.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// One tool.
struct ToolDefinition {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Whether it only reads.
    effect: ToolAccess,
    required: &'static [&'static str],
    arguments: fn() -> Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolAccess {
    Reads,
    /// It adds to the log, and calling it again adds nothing.
    AddsOnce,
    /// It adds to the log each time.
    Adds,
}

const TOOLS: [ToolDefinition; 7] = [
    ToolDefinition {
        name: "search",
        title: "Search earlier sessions",
        about: "Finds words in everything recorded in this project's sessions, whatever was compacted since. Each hit has a handle \
                for `recall`.",
        effect: ToolAccess::Reads,
        required: &["query"],
        arguments: || {
            json!({
                "query": {"type": "string", "description": "Words; all must occur. \"Words in quotes\" stand together, prefix* finds its continuations."},
                "scope": {"type": "string", "enum": ["session", "project", "all"], "description": "How far to search; `project` by default."},
                "since": {"type": "string", "description": "Only at or after this time: 2026-01-05, or RFC 3339."},
                "kind": {"type": "string", "enum": ["user", "assistant", "tool"], "description": "Only what a user or the assistant said, or a tool returned."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Most hits; 10 by default."},
                "skip": {"type": "integer", "minimum": 0, "description": "Leave out so many of the best: what `next` says."},
            })
        },
    },
    ToolDefinition {
        name: "recall",
        title: "Recall by handle",
        about: "Brings back, word for word, what stands behind a handle such as `recall 1a2b3c4d:12-14`, as notes, summaries and the \
                other tools write it. Long texts come in parts: call again with the arguments in `next`.",
        effect: ToolAccess::Reads,
        required: &["handle"],
        arguments: || {
            json!({
                "handle": {"type": "string", "description": "The handle as it is written."},
                "range": {"type": "string", "description": "Part of the text in bytes, such as `3000-6000`, or `3000-`: what `next` says."},
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "Most tokens of text in the answer."},
            })
        },
    },
    ToolDefinition {
        name: "why",
        title: "Why a text is not in view",
        about: "Tells for a text of a session which requests showed it, from which on it was cut, stubbed, folded or summarised, by \
                which rule, and the handle that brings it back.",
        effect: ToolAccess::Reads,
        required: &["text"],
        arguments: || {
            json!({
                "text": {"type": "string", "description": "Text as it stands in the session."},
                "session": {"type": "string", "description": SESSION},
                "skip": {"type": "integer", "minimum": 0, "description": "Leave out so many events: what `next` says."},
            })
        },
    },
    ToolDefinition {
        name: "failed",
        title: "Earlier failures and how they ended",
        about: "Tells what failed before with this error or on this file, how often, and what worked in the end. Ask before editing a \
                file or repeating a command. Give `error` or `path`.",
        effect: ToolAccess::Reads,
        required: &[],
        arguments: || {
            json!({
                "error": {"type": "string", "description": "The error, or its telling words."},
                "path": {"type": "string", "description": "A file."},
                "scope": {"type": "string", "enum": ["session", "project", "all"], "description": "How far to look; `project` by default."},
                "skip": {"type": "integer", "minimum": 0, "description": "Leave out so many: what `next` says."},
            })
        },
    },
    ToolDefinition {
        name: "context",
        title: "What fills the context",
        about: "Tells what fills the context of a session, by region, and its pins.",
        effect: ToolAccess::Reads,
        required: &[],
        arguments: || json!({"session": {"type": "string", "description": SESSION}}),
    },
    ToolDefinition {
        name: "pin",
        title: "Pin words",
        about: "Pins words, so that no summary of the session loses them: at most 20 pins of 500 characters. For what must never be \
                forgotten, in the words in which it was said.",
        effect: ToolAccess::AddsOnce,
        required: &["text"],
        arguments: || {
            json!({
                "text": {"type": "string", "description": "The words."},
                "session": {"type": "string", "description": SESSION},
            })
        },
    },
    ToolDefinition {
        name: "compact",
        title: "Compact the session",
        about: "Makes a summary stand for the older part of the session, from its next request through a gateway on, and tells the \
                summary. `epitome undo` takes it back.",
        effect: ToolAccess::Adds,
        required: &[],
        arguments: || {
            json!({
                "focus": {"type": "string", "description": "What the summary should give room to."},
                "session": {"type": "string", "description": SESSION},
            })
        },
    },
];

const SESSION: &str =
    "Id, key or title of a session; by default the one that was active last in this project.";

/// All tools, as a client lists them.
pub(super) fn tools() -> Vec<Tool> {
    TOOLS.iter().map(tool).collect()
}

/// Names of the arguments of a tool.
pub(super) fn argument_names(tool: &str) -> Vec<String> {
    let known = TOOLS.iter().find(|known| known.name == tool).map(|known| (known.arguments)());
    known.as_ref().and_then(Value::as_object).map(|known| known.keys().cloned().collect()).unwrap_or_default()
}

fn tool(definition: &ToolDefinition) -> Tool {
    let input = json!({
        "type": "object",
        "properties": (definition.arguments)(),
        "required": definition.required,
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "notice": {"type": "string"},
            "items": {"type": "array", "items": {"type": "object"}},
            "text": {"type": "string"},
            "next": {"type": "object", "description": "Arguments of the call that goes on; absent at the end."},
        },
        "required": ["notice"],
    });
    let hints = ToolAnnotations::with_title(definition.title)
        .read_only(definition.effect == ToolAccess::Reads)
        .destructive(false)
        .idempotent(definition.effect != ToolAccess::Adds)
        .open_world(false);
    Tool::new(definition.name, definition.about, object(input))
        .with_title(definition.title)
        .with_raw_output_schema(object(output))
        .with_annotations(hints)
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}
