//! Every key of a configuration file: what it is for, what it may be, and what holds without it.
//!
//! `epitome config --keys` lists them and `--schema` is made of them; a test holds them to what the parser takes.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A key of the file.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ConfigKey {
    /// Its path: `[]` for each table of a list, `*` for a name of one's own.
    pub(crate) key: &'static str,
    /// Kind of its value.
    #[serde(skip)]
    pub(crate) kind: KeyKind,
    /// Value that holds without it; empty if there is none.
    pub(crate) default: &'static str,
    /// Programs that go by it.
    pub(crate) scope: KeyScope,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// Kind of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyKind {
    /// Any text.
    Text,
    /// A list of texts.
    Texts,
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Number,
    /// Whole numbers by names of one's own.
    Numbers,
    /// A number of tokens, or a text such as `128k`.
    Tokens,
    /// A share of one.
    Share,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// Programs that go by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyScope {
    /// The gateway alone.
    Gateway,
    /// The gateway, and the commands that act on sessions.
    All,
}

const MODES: &[&str] = &["off", "record", "observe", "compact"];
const FORMATS: &str = "openai-chat, openai-responses, anthropic, gemini";

const fn gateway(key: &'static str, kind: KeyKind, default: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { key, kind, default, scope: KeyScope::Gateway, about }
}

const fn all(key: &'static str, kind: KeyKind, default: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { key, kind, default, scope: KeyScope::All, about }
}

/// The keys, in the order in which a file has them.
pub(crate) const KEYS: &[ConfigKey] = &[
    gateway("listen", KeyKind::Text, "127.0.0.1:8787", "Address to listen on; port 0 picks a free port."),
    gateway("mode", KeyKind::Word(MODES), "record", "What happens to requests."),
    all(
        "policy",
        KeyKind::Text,
        "epitome",
        "Policy: a name, or a file beside this one. It says when and how to act, and how blocks are made.",
    ),
    all(
        "db",
        KeyKind::Text,
        "",
        "Database file. --db and EPITOME_DB take precedence; without any it is in the user's data directory.",
    ),
    all(
        "profiles",
        KeyKind::Text,
        "",
        "File of model profiles that add to the built-in ones or override them.",
    ),
    gateway(
        "on_store_failure",
        KeyKind::Word(&["fail_open", "fail_closed"]),
        "fail_open",
        "Treatment of requests that cannot be recorded.",
    ),
    gateway("log", KeyKind::Word(&["text", "json"]), "text", "Format of the log on standard error."),
    gateway(
        "allow",
        KeyKind::Texts,
        "",
        "Routes that clients may use; by default inference and models with a key of the gateway's, all with their own.",
    ),
    gateway(
        "allow_override",
        KeyKind::Switch,
        "false",
        "Lets request headers lower the mode and the window.",
    ),
    gateway(
        "upstream[].name",
        KeyKind::Text,
        "",
        "Name of a provider in logs and metrics. The first provider that fits a request is used.",
    ),
    gateway("upstream[].url", KeyKind::Text, "", "Its address, such as https://api.openai.com."),
    gateway("upstream[].formats", KeyKind::Texts, "", "Formats that it takes; all by default."),
    gateway(
        "upstream[].models",
        KeyKind::Texts,
        "",
        "Models that it serves, as patterns with *; all by default.",
    ),
    gateway(
        "upstream[].key_env",
        KeyKind::Text,
        "",
        "Variable that holds a key, which replaces the client's.",
    ),
    gateway("token[].principal", KeyKind::Text, "", "Whose sessions a client sees."),
    gateway("token[].env", KeyKind::Text, "", "Variable that holds the client's token."),
    gateway("token[].blake3", KeyKind::Text, "", "BLAKE3 hash of the token, in place of `env`."),
    gateway("token[].mode", KeyKind::Word(MODES), "", "Mode of the client's requests."),
    gateway("token[].window", KeyKind::Tokens, "", "Window of their models."),
    gateway("token[].policy", KeyKind::Text, "", "Policy of the client's requests."),
    gateway("token[].allow", KeyKind::Texts, "", "Routes that the client may use."),
    gateway(
        "token[].allow_override",
        KeyKind::Switch,
        "",
        "Lets the client's headers lower the mode and the window.",
    ),
    gateway(
        "routes.*.mode",
        KeyKind::Word(MODES),
        "",
        "Mode of a route's requests; a route may also be the mode itself.",
    ),
    gateway("routes.*.window", KeyKind::Tokens, "", "Window of their models."),
    gateway("routes.*.policy", KeyKind::Text, "", "Policy of a route's requests."),
    gateway(
        "compact.window",
        KeyKind::Tokens,
        "",
        "Window of the models in tokens; by default what is known of each.",
    ),
    gateway(
        "compact.holdout",
        KeyKind::Share,
        "0",
        "Share of sessions that are left as they are, to measure savings.",
    ),
    gateway(
        "compact.command",
        KeyKind::Text,
        "",
        "Command with which users have their session compacted, such as /compact.",
    ),
    gateway(
        "compact.recall",
        KeyKind::Switch,
        "false",
        "Offers the model a tool to get back what was left out.",
    ),
    gateway(
        "compact.auto",
        KeyKind::Switch,
        "true",
        "Compacts as soon as an answer used more than the model's input takes.",
    ),
    gateway(
        "compact.compaction_items",
        KeyKind::Word(&["provider", "gateway"]),
        "provider",
        "Who answers requests for compaction items; the gateway steps in where a provider has none.",
    ),
    gateway(
        "compact.tool_output",
        KeyKind::Numbers,
        "",
        "Tokens to which a tool's outputs are cut before they are first sent, by its name.",
    ),
    all("compact.focus", KeyKind::Text, "", "What every summary should attend to."),
    all("compact.notes", KeyKind::Texts, "", "Lines that a model is told when it summarises."),
    gateway("compact.idle", KeyKind::Text, "", "Pause after which a model summarises, such as 4m."),
    all("compact.memory_files", KeyKind::Text, "", "Folder with a folder of memory files for each session."),
    all(
        "compact.summariser.use",
        KeyKind::Word(&["built-in", "session"]),
        "built-in",
        "Who summarises, where no model is named.",
    ),
    all("compact.summariser.model", KeyKind::Text, "", "Model that summarises."),
    all("compact.summariser.url", KeyKind::Text, "", "Its address."),
    all("compact.summariser.format", KeyKind::Text, "openai-chat", FORMATS),
    all("compact.summariser.key_env", KeyKind::Text, "", "Variable that holds its key."),
    all("compact.summariser.timeout", KeyKind::Text, "5m", "Time limit for a summary."),
    all("compact.careful_summariser.model", KeyKind::Text, "", "Model for summaries that a person asks for."),
    all("compact.careful_summariser.url", KeyKind::Text, "", "Its address."),
    all("compact.careful_summariser.format", KeyKind::Text, "openai-chat", FORMATS),
    all("compact.careful_summariser.key_env", KeyKind::Text, "", "Variable that holds its key."),
    gateway(
        "compact.hook[].name",
        KeyKind::Text,
        "",
        "Name of a hook that adds beside each message of the user.",
    ),
    gateway("compact.hook[].reserve", KeyKind::Number, "", "Most tokens that it adds, kept free for it."),
    gateway("compact.hook[].text", KeyKind::Text, "", "What it adds."),
    gateway(
        "compact.hook[].file",
        KeyKind::Text,
        "",
        "File with what it adds, in place of `text`; it is read anew each time.",
    ),
    gateway(
        "compact.hook[].replace",
        KeyKind::Switch,
        "false",
        "What it added leaves the requests with the next message of the user.",
    ),
    gateway("limits.body", KeyKind::Text, "64MiB", "Most bytes of a request's body."),
    gateway("limits.head", KeyKind::Text, "64KiB", "Most bytes of a request's head."),
    gateway("limits.requests", KeyKind::Number, "2048", "Most requests at a time."),
    gateway(
        "limits.client",
        KeyKind::Text,
        "30s",
        "Longest time for a client's head, and for a pause in its body.",
    ),
    gateway("limits.upload", KeyKind::Text, "10m", "Longest time for a client's whole body."),
    gateway("limits.connect", KeyKind::Text, "10s", "Longest time until a provider is reached."),
    gateway("limits.answer", KeyKind::Text, "10m", "Longest time until a provider answers."),
    gateway("limits.pause", KeyKind::Text, "10m", "Longest pause in an answer, and in taking it."),
    gateway(
        "limits.notice",
        KeyKind::Text,
        "",
        "Time for which /readyz says that the gateway stops before its port closes; 5s, or 0s where only this machine reaches it.",
    ),
    gateway(
        "limits.shutdown",
        KeyKind::Text,
        "30s",
        "Longest time that streams go on after the gateway was told to stop.",
    ),
];

/// The file as a JSON schema.
pub(crate) fn schema() -> Value {
    let mut root = object();
    for key in KEYS {
        let mut place = &mut root;
        let mut names = key.key.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                property(place, name, key.schema());
                break;
            }
            place = table(place, name);
        }
    }
    // A route may be its mode alone.
    if let Some(rules) = root.pointer_mut("/properties/routes/additionalProperties") {
        let whole = rules.take();
        *rules = json!({ "anyOf": [{ "enum": MODES }, whole] });
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "Configuration of Epitome".into();
    root
}

fn object() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn property(place: &mut Value, name: &str, schema: Value) {
    if let Some(Value::Object(properties)) = place.get_mut("properties") {
        properties.insert(name.to_owned(), schema);
    }
}

/// The table of a name within another, made if it is not there.
fn table<'t>(place: &'t mut Value, name: &str) -> &'t mut Value {
    if name == "*" {
        if place["additionalProperties"] == Value::Bool(false) {
            place["additionalProperties"] = object();
        }
        return &mut place["additionalProperties"];
    }
    let (name, is_list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    let known =
        place["properties"].as_object().is_some_and(|known: &Map<String, Value>| known.contains_key(name));
    if !known {
        let made = if is_list { json!({ "type": "array", "items": object() }) } else { object() };
        property(place, name, made);
    }
    let table = &mut place["properties"][name];
    if is_list { &mut table["items"] } else { table }
}

impl ConfigKey {
    /// The kind of its value, for people.
    pub(crate) fn kind_name(&self) -> String {
        match self.kind {
            KeyKind::Text => "text".to_owned(),
            KeyKind::Texts => "list of texts".to_owned(),
            KeyKind::Switch => "true or false".to_owned(),
            KeyKind::Number => "number".to_owned(),
            KeyKind::Numbers => "table of numbers".to_owned(),
            KeyKind::Tokens => "tokens".to_owned(),
            KeyKind::Share => "0 to 0.5".to_owned(),
            KeyKind::Word(words) => words.join(", "),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            KeyKind::Text => json!({ "type": "string" }),
            KeyKind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            KeyKind::Switch => json!({ "type": "boolean" }),
            KeyKind::Number => json!({ "type": "integer", "minimum": 1 }),
            KeyKind::Numbers => {
                json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 1 } })
            }
            KeyKind::Tokens => json!({ "type": ["integer", "string"] }),
            KeyKind::Share => json!({ "type": "number", "minimum": 0, "maximum": 0.5 }),
            KeyKind::Word(words) => json!({ "enum": words }),
        };
        schema["description"] = self.about.into();
        schema
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::file::known_keys;

    /// The tables of a file, each as text that opens it.
    const TABLES: [(&str, &str); 9] = [
        ("", ""),
        ("upstream[]", "[[upstream]]"),
        ("token[]", "[[token]]"),
        ("routes.*", "[routes.'/v1/messages']"),
        ("compact", "[compact]"),
        ("compact.summariser", "[compact.summariser]"),
        ("compact.careful_summariser", "[compact.careful_summariser]"),
        ("compact.hook[]", "[[compact.hook]]"),
        ("limits", "[limits]"),
    ];

    #[test]
    fn the_keys_are_those_that_the_parser_takes() {
        let listed: BTreeSet<String> = KEYS.iter().map(|key| key.key.to_owned()).collect();
        let mut taken = BTreeSet::new();
        for (table, opening) in TABLES {
            for name in known_keys(opening) {
                let key = if table.is_empty() { name.clone() } else { format!("{table}.{name}") };
                let is_table = TABLES.iter().any(|(other, _)| {
                    [key.as_str(), &format!("{key}[]"), &format!("{key}.*")].contains(other)
                });
                if !is_table {
                    taken.insert(key);
                }
            }
        }
        assert_eq!(listed, taken);
        assert_eq!(listed.len(), KEYS.len(), "no key is listed twice");
    }

    #[test]
    fn every_key_says_what_it_is_for_and_is_in_the_schema() {
        let schema = schema();
        for key in KEYS {
            assert!(!key.about.is_empty(), "{}", key.key);
            let mut place = &schema;
            for name in key.key.split('.') {
                let name = name.strip_suffix("[]").unwrap_or(name);
                place = match name {
                    "*" => &place["additionalProperties"]["anyOf"][1],
                    name => &place["properties"][name],
                };
                place =
                    place.get("items").filter(|_| key.key.contains(&format!("{name}[]"))).unwrap_or(place);
            }
            assert_eq!(place["description"], key.about, "{}", key.key);
        }
    }
}
