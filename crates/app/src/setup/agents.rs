//! The agents: where their settings are, and what is written there.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{json_edit, planned_files::PlannedFiles, yaml_edit};

/// An agent that can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum SetupAgent {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// OpenCode.
    Opencode,
    /// pi.
    Pi,
    /// goose.
    Goose,
}

/// Part of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetupPart {
    /// Requests go through a gateway.
    Gateway,
    /// Hooks, or a plugin that does what hooks do.
    Hooks,
    /// The server of `epitome mcp`.
    Mcp,
}

/// Values that are written into settings.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SetupValues {
    /// This program.
    pub(crate) program: String,
    /// Database, if one was named.
    pub(crate) database: Option<String>,
    /// Address of the gateway.
    pub(crate) gateway: String,
}

/// Name under which everything of ours stands in settings.
const NAME: &str = "epitome";

/// Mark of files that are ours.
const PLUGIN_MARK: &str = "epitome setup wrote this file";

/// Plugin of OpenCode.
const OPENCODE_PLUGIN: &str = include_str!("plugins/opencode.js");

/// Extension of pi.
const PI_EXTENSION: &str = include_str!("plugins/pi.js");

/// Events of Claude Code's hooks, each with what it is matched by.
const CLAUDE_EVENTS: [(&str, Option<&str>); 4] = [
    ("PreCompact", None),
    ("SessionStart", Some("compact|resume")),
    ("UserPromptSubmit", None),
    ("PreToolUse", Some("Edit|MultiEdit|Write|NotebookEdit|Task|Agent")),
];

/// The same for Codex.
const CODEX_EVENTS: [(&str, Option<&str>); 3] =
    [("PreCompact", None), ("PostCompact", None), ("SessionStart", Some("compact|resume"))];

/// Seconds after which an agent gives a hook up. Ours is done long before.
const HOOK_TIMEOUT_S: u64 = 10;

impl SetupAgent {
    /// Name on the command line and in hooks.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
            Self::Goose => "goose",
        }
    }

    /// Name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Opencode => "OpenCode",
            Self::Pi => "pi",
            Self::Goose => "goose",
        }
    }

    /// Program that people start.
    fn program(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
            Self::Goose => "goose",
        }
    }

    /// Parts that this agent can have, each with what it gains by it.
    pub(crate) fn parts(self) -> &'static [(SetupPart, &'static str)] {
        const MCP: &str = "the tools search, recall, why, failed, pin, compact and context";
        const GATEWAY: &str =
            "requests are recorded, and kept inside the window with `epitome serve --mode compact`";
        match self {
            Self::ClaudeCode => &[
                (
                    SetupPart::Hooks,
                    "after its own compaction it goes on with the facts; earlier failures are told before an edit",
                ),
                (SetupPart::Mcp, MCP),
                (SetupPart::Gateway, GATEWAY),
            ],
            Self::Codex => &[
                (
                    SetupPart::Hooks,
                    "after its own compaction it goes on with the facts; approve the hooks once with /hooks",
                ),
                (SetupPart::Mcp, MCP),
                (SetupPart::Gateway, GATEWAY),
            ],
            Self::Opencode => &[
                (
                    SetupPart::Hooks,
                    "a plugin: its compaction is told the facts, and the requests behind it have them word for word",
                ),
                (SetupPart::Mcp, MCP),
                (SetupPart::Gateway, GATEWAY),
            ],
            Self::Pi => &[(
                SetupPart::Hooks,
                "an extension: its compactions are made here, at once and without a model",
            )],
            Self::Goose => &[(SetupPart::Mcp, MCP), (SetupPart::Gateway, GATEWAY)],
        }
    }

    /// Returns true if the agent is on this machine: its program, or its settings.
    pub(crate) fn is_found(self, home: &AgentHome) -> bool {
        let paths = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&paths).any(|folder| folder.join(self.program()).is_file())
            || home.folder(self).is_dir()
    }

    /// Writes a part into the planned files.
    pub(super) fn add(
        self,
        part: SetupPart,
        to: &SetupValues,
        home: &AgentHome,
        files: &mut PlannedFiles,
    ) -> anyhow::Result<()> {
        let folder = home.folder(self);
        match (self, part) {
            (Self::ClaudeCode, SetupPart::Hooks) => {
                files.edit(&folder.join("settings.json"), |text| add_hooks(text, self, &CLAUDE_EVENTS, to))
            }
            (Self::ClaudeCode, SetupPart::Mcp) => files.edit(&home.claude_state(), |text| {
                let server = json!({"type": "stdio", "command": to.program, "args": to.mcp_arguments()});
                json_edit::set_member(or_empty(text), &["mcpServers", NAME], &server)
            }),
            (Self::ClaudeCode, SetupPart::Gateway) => files.edit(&folder.join("settings.json"), |text| {
                set_new(text, &["env", "ANTHROPIC_BASE_URL"], &to.gateway)
            }),
            (Self::Codex, SetupPart::Hooks) => {
                files.edit(&folder.join("hooks.json"), |text| add_hooks(text, self, &CODEX_EVENTS, to))
            }
            (Self::Codex, SetupPart::Mcp) => {
                files.edit(&folder.join("config.toml"), |text| add_codex_server(text, to))
            }
            (Self::Codex, SetupPart::Gateway) => files.edit(&folder.join("config.toml"), |text| {
                set_new_toml(text, "openai_base_url", &format!("{}/v1", to.gateway))
            }),
            (Self::Opencode, SetupPart::Hooks) => {
                files.replace(&folder.join("plugin").join("epitome.js"), plugin(OPENCODE_PLUGIN, to))
            }
            (Self::Opencode, SetupPart::Mcp) => files.edit(&opencode_settings(&folder), |text| {
                let command: Vec<String> =
                    std::iter::once(to.program.clone()).chain(to.mcp_arguments()).collect();
                let server = json!({"type": "local", "command": command, "enabled": true});
                json_edit::set_member(or_empty(text), &["mcp", NAME], &server)
            }),
            (Self::Opencode, SetupPart::Gateway) => files.edit(&opencode_settings(&folder), |text| {
                let address = format!("{}/v1", to.gateway);
                let text = set_new(text, &["provider", "anthropic", "options", "baseURL"], &address)?;
                set_new(&text, &["provider", "openai", "options", "baseURL"], &address)
            }),
            (Self::Pi, SetupPart::Hooks) => {
                files.replace(&folder.join("extensions").join("epitome.js"), plugin(PI_EXTENSION, to))
            }
            (Self::Goose, SetupPart::Mcp) => files.edit(&folder.join("config.yaml"), |text| {
                yaml_edit::add_block(text, "extensions", NAME, &goose_block(to))
            }),
            (Self::Goose, SetupPart::Gateway) => files.edit(&folder.join("config.yaml"), |text| {
                let text = yaml_edit::add_scalar(text, "ANTHROPIC_HOST", &to.gateway)?;
                yaml_edit::add_scalar(&text, "OPENAI_HOST", &to.gateway)
            }),
            (Self::Pi, SetupPart::Mcp | SetupPart::Gateway) | (Self::Goose, SetupPart::Hooks) => {
                bail!(
                    "{} has no place for this part: `epitome setup` lists what each agent can have",
                    self.title()
                )
            }
        }
    }

    /// Takes everything of ours out of the planned files, for a setup whose files were changed since.
    pub(super) fn remove(
        self,
        to: &SetupValues,
        home: &AgentHome,
        files: &mut PlannedFiles,
    ) -> anyhow::Result<()> {
        let folder = home.folder(self);
        match self {
            Self::ClaudeCode => {
                files.edit_if_exists(&folder.join("settings.json"), |text| {
                    let text = remove_hooks(text, self, &CLAUDE_EVENTS)?;
                    remove_if(&text, &["env", "ANTHROPIC_BASE_URL"], &to.gateway)
                })?;
                files.edit_if_exists(&home.claude_state(), |text| {
                    json_edit::remove_member(text, &["mcpServers", NAME])
                })
            }
            Self::Codex => {
                files.edit_if_exists(&folder.join("hooks.json"), |text| {
                    remove_hooks(text, self, &CODEX_EVENTS)
                })?;
                files.edit_if_exists(&folder.join("config.toml"), |text| remove_codex(text, to))
            }
            Self::Opencode => {
                files.edit_if_exists(&opencode_settings(&folder), |text| {
                    let text = json_edit::remove_member(text, &["mcp", NAME])?;
                    let address = format!("{}/v1", to.gateway);
                    let text = remove_if(&text, &["provider", "anthropic", "options", "baseURL"], &address)?;
                    remove_if(&text, &["provider", "openai", "options", "baseURL"], &address)
                })?;
                files.remove_if(&folder.join("plugin").join("epitome.js"), |text| text.contains(PLUGIN_MARK))
            }
            Self::Pi => files
                .remove_if(&folder.join("extensions").join("epitome.js"), |text| text.contains(PLUGIN_MARK)),
            Self::Goose => files.edit_if_exists(&folder.join("config.yaml"), |text| {
                let text = yaml_edit::remove_block(text, "extensions", NAME);
                let text = yaml_edit::remove_scalar(&text, "ANTHROPIC_HOST", &to.gateway);
                Ok(yaml_edit::remove_scalar(&text, "OPENAI_HOST", &to.gateway))
            }),
        }
    }
}

impl SetupValues {
    /// Arguments of this program that name the database.
    fn database_arguments(&self) -> Vec<String> {
        self.database.iter().flat_map(|path| ["--db".to_owned(), path.clone()]).collect()
    }

    fn mcp_arguments(&self) -> Vec<String> {
        let mut arguments = self.database_arguments();
        arguments.push("mcp".to_owned());
        arguments
    }

    /// A line for a shell that runs a hook.
    fn hook_command(&self, agent: SetupAgent, event: &str) -> String {
        let mut words = vec![self.program.clone()];
        words.extend(self.database_arguments());
        let mut line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        line.extend(["hook".to_owned(), agent.name().to_owned(), event.to_owned()]);
        line.join(" ")
    }
}

/// Folders of a user.
#[derive(Clone, Debug)]
pub(crate) struct AgentHome {
    home: PathBuf,
}

impl AgentHome {
    /// The folders of the user who runs this program.
    pub(crate) fn of_user() -> anyhow::Result<Self> {
        Ok(Self { home: etcetera::home_dir().context("cannot find your home directory")? })
    }

    /// Folder of an agent's settings, wherever its own variables put it.
    pub(crate) fn folder(&self, agent: SetupAgent) -> PathBuf {
        let named =
            |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = || named("XDG_CONFIG_HOME").unwrap_or_else(|| self.home.join(".config"));
        match agent {
            SetupAgent::ClaudeCode => named("CLAUDE_CONFIG_DIR").unwrap_or_else(|| self.home.join(".claude")),
            SetupAgent::Codex => named("CODEX_HOME").unwrap_or_else(|| self.home.join(".codex")),
            SetupAgent::Opencode => config().join("opencode"),
            SetupAgent::Pi => {
                named("PI_CODING_AGENT_DIR").unwrap_or_else(|| self.home.join(".pi").join("agent"))
            }
            SetupAgent::Goose => config().join("goose"),
        }
    }

    /// File in which Claude Code keeps the servers of a user.
    fn claude_state(&self) -> PathBuf {
        match env::var_os("CLAUDE_CONFIG_DIR").filter(|value| !value.is_empty()) {
            Some(folder) => PathBuf::from(folder).join(".claude.json"),
            None => self.home.join(".claude.json"),
        }
    }
}

/// The file of OpenCode's settings: the one that is there, and else the one without comments.
fn opencode_settings(folder: &Path) -> PathBuf {
    let commented = folder.join("opencode.jsonc");
    if commented.is_file() { commented } else { folder.join("opencode.json") }
}

fn or_empty(text: &str) -> &str {
    if text.trim().is_empty() { "{}\n" } else { text }
}

fn add_hooks(
    text: &str,
    agent: SetupAgent,
    events: &[(&str, Option<&str>)],
    to: &SetupValues,
) -> anyhow::Result<String> {
    let mut text = or_empty(text).to_owned();
    for (event, matcher) in events {
        let hook =
            json!({"type": "command", "command": to.hook_command(agent, event), "timeout": HOOK_TIMEOUT_S});
        let mut group = serde_json::Map::new();
        if let Some(matcher) = matcher {
            group.insert("matcher".to_owned(), (*matcher).into());
        }
        group.insert("hooks".to_owned(), json!([hook]));
        text = json_edit::push_element(&text, &["hooks", event], &Value::Object(group))?;
    }
    Ok(text)
}

fn remove_hooks(text: &str, agent: SetupAgent, events: &[(&str, Option<&str>)]) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for (event, _) in events {
        let command = format!("hook {} {event}\"", agent.name());
        text = json_edit::remove_elements(&text, &["hooks", event], |group| group.contains(&command))?;
    }
    Ok(text)
}

/// Sets a text that is not set yet. What a user chose is not replaced.
fn set_new(text: &str, path: &[&str], value: &str) -> anyhow::Result<String> {
    let text = or_empty(text);
    match json_edit::member(text, path)? {
        None => Ok(json_edit::set_member(text, path, &value.into())?),
        Some(known) if serde_json::from_str::<String>(known).is_ok_and(|known| known == value) => {
            Ok(text.to_owned())
        }
        Some(_) => bail!(
            "`{}` is set to something else already: change it yourself, or remove it first",
            path.join(".")
        ),
    }
}

fn remove_if(text: &str, path: &[&str], value: &str) -> anyhow::Result<String> {
    let known = json_edit::member(text, path)?.and_then(|known| serde_json::from_str::<String>(known).ok());
    if known.as_deref() == Some(value) {
        Ok(json_edit::remove_member(text, path)?)
    } else {
        Ok(text.to_owned())
    }
}

fn document(text: &str) -> anyhow::Result<DocumentMut> {
    text.parse::<DocumentMut>().context("it is no TOML")
}

fn add_codex_server(text: &str, to: &SetupValues) -> anyhow::Result<String> {
    let mut document = document(text)?;
    let servers = document.entry("mcp_servers").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let Some(servers) = servers.as_table_like_mut() else { bail!("`mcp_servers` is no table") };
    let mut server = Table::new();
    server.insert("command", value(to.program.as_str()));
    server.insert("args", value(to.mcp_arguments().into_iter().collect::<Array>()));
    servers.insert(NAME, Item::Table(server));
    Ok(document.to_string())
}

fn set_new_toml(text: &str, name: &str, address: &str) -> anyhow::Result<String> {
    let mut document = document(text)?;
    match document.get(name) {
        None => {
            document.insert(name, value(address));
            Ok(document.to_string())
        }
        Some(known) if known.as_str() == Some(address) => Ok(text.to_owned()),
        Some(_) => bail!("`{name}` is set to something else already: change it yourself, or remove it first"),
    }
}

fn remove_codex(text: &str, to: &SetupValues) -> anyhow::Result<String> {
    let mut document = document(text)?;
    if let Some(servers) = document.get_mut("mcp_servers").and_then(Item::as_table_like_mut) {
        servers.remove(NAME);
    }
    let ours = format!("{}/v1", to.gateway);
    if document.get("openai_base_url").and_then(Item::as_str) == Some(ours.as_str()) {
        document.remove("openai_base_url");
    }
    Ok(document.to_string())
}

fn goose_block(to: &SetupValues) -> Vec<String> {
    let arguments: Vec<String> =
        to.mcp_arguments().iter().map(|word| Value::from(word.as_str()).to_string()).collect();
    vec![
        format!("{NAME}:"),
        "  enabled: true".to_owned(),
        format!("  name: {NAME}"),
        "  type: stdio".to_owned(),
        format!("  cmd: {}", Value::from(to.program.as_str())),
        format!("  args: [{}]", arguments.join(", ")),
        "  envs: {}".to_owned(),
        "  timeout: 60".to_owned(),
    ]
}

/// A plugin with the command that it runs.
fn plugin(source: &str, to: &SetupValues) -> String {
    let command: Vec<String> = std::iter::once(to.program.clone()).chain(to.database_arguments()).collect();
    source.replace("__EPITOME_COMMAND__", &json!(command).to_string())
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:\\".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
