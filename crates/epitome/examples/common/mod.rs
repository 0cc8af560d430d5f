//! What the example agents share: their tools, and a client.

use std::{fs, io, process::Command, sync::LazyLock};

use epitome::{Format, ToolCall};
use serde_json::{Value, json};

/// Speaks HTTP. This workspace builds `reqwest` without a choice of cryptography, so it is made here.
pub(crate) static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
    // Whoever chose before keeps their choice.
    let _theirs = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
});

/// Name, description, and the only argument.
const TOOLS: [(&str, &str, &str); 3] = [
    ("read_file", "The text of a file.", "path"),
    ("list_files", "The names of what is in a folder.", "path"),
    ("run", "Runs a shell command and gives what it prints.", "command"),
];

/// The definitions of the tools, as the list that a provider takes.
pub(crate) fn tools(format: Format) -> Value {
    let tool = |(name, description, argument): (&str, &str, &str)| {
        let schema =
            json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]});
        match format {
            Format::Anthropic => json!({"name": name, "description": description, "input_schema": schema}),
            Format::OpenaiResponses => {
                json!({"type": "function", "name": name, "description": description, "parameters": schema})
            }
            Format::OpenaiChat => json!({"type": "function", "function":
                {"name": name, "description": description, "parameters": schema}}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    };
    Value::Array(TOOLS.map(tool).to_vec())
}

/// Does what a model asks for, with all the rights of whoever started the agent: a real one would ask first.
pub(crate) fn run_tool(call: &ToolCall) -> io::Result<String> {
    let arguments: Value = serde_json::from_str(&call.arguments)?;
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default();
    match call.name.0.as_str() {
        "read_file" => fs::read_to_string(argument("path")),
        "list_files" => {
            let names =
                fs::read_dir(argument("path"))?.map(|entry| Ok(entry?.file_name().display().to_string()));
            let mut names = names.collect::<io::Result<Vec<String>>>()?;
            names.sort();
            Ok(names.join("\n"))
        }
        "run" => {
            let done = Command::new("sh").args(["-c", argument("command")]).output()?;
            Ok(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
        }
        other => Err(io::Error::other(format!("there is no tool called {other}"))),
    }
}
