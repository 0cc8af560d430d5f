//! `epitome setup`: every file is as it was after `--undo`, whatever was in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::harness::{Bench, Run, text};

/// A user's home with settings of every agent, and a database of its own.
struct Home {
    bench: Bench,
}

/// Settings as users have them: with comments, odd indentation, and values of their own.
const SETTINGS: [(&str, &str); 6] = [
    (
        ".claude/settings.json",
        "{\n    \"model\": \"opus\",\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}\n        ]\n    }\n}\n",
    ),
    (
        ".claude.json",
        "{\"numStartups\":7,\"projects\":{\"/src\":{\"mcpServers\":{}}},\"tipsHistory\":{\"é\":1}}",
    ),
    (
        ".codex/config.toml",
        "# mine\nmodel   = \"gpt-5\"   # aligned\n\n[mcp_servers.other]\ncommand = \"x\"\nargs = [ \"a\",\n  \"b\" ]\n\n[tui]\ntheme = 'dark'\n",
    ),
    (
        ".config/opencode/opencode.jsonc",
        "{\r\n\t// my models\r\n\t\"model\": \"a/b\",\r\n\t\"provider\": {\r\n\t\t\"a\": {\"npm\": \"x\"},\r\n\t},\r\n}\r\n",
    ),
    (
        ".config/goose/config.yaml",
        "GOOSE_MODE: auto\nextensions:\n    developer:\n        enabled: true\n        type: builtin\n# the end\n",
    ),
    (".pi/agent/settings.json", "{}"),
];

/// Agents with what `setup AGENT` without a flag writes, and their files.
const AGENTS: [&str; 5] = ["claude-code", "codex", "opencode", "pi", "goose"];

impl Home {
    fn new() -> Self {
        let home = Self { bench: Bench::new() };
        for (path, content) in SETTINGS {
            let path = home.path(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, content).expect("writable");
        }
        home
    }

    fn empty() -> Self {
        let home = Self { bench: Bench::new() };
        fs::create_dir_all(home.path("")).expect("writable");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path("home").join(name)
    }

    fn command(&self) -> Command {
        let mut command = self.bench.command();
        command
            .env("HOME", self.path(""))
            .env("PATH", "/nowhere")
            .env("EPITOME_DB", self.bench.path("data/log.db"));
        for variable in ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "PI_CODING_AGENT_DIR"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::from(self.command().arg("setup").args(args).output().expect("the binary runs"))
    }

    fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert!(run.success, "setup {}: {}{}", args.join(" "), run.stdout, run.stderr);
        run.stdout
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Every file and folder below the home, with its bytes.
    fn everything(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                let bytes = path.is_file().then(|| fs::read(&path).expect("readable"));
                if bytes.is_none() {
                    folders.push(path.clone());
                }
                found.push((path, bytes));
            }
        }
        found.sort();
        found
    }
}

#[test]
fn after_undo_every_file_is_as_it_was_byte_for_byte() {
    for home in [Home::new(), Home::empty()] {
        let before = home.everything();
        for agent in AGENTS {
            home.ok(&[agent]);
            if agent != "pi" {
                home.ok(&[agent, "--gateway"]);
            }
            assert_ne!(home.everything(), before, "{agent}");
            home.ok(&[agent, "--undo"]);
            assert_eq!(home.everything(), before, "{agent}");
        }
        for agent in AGENTS {
            home.ok(&[agent]);
            // Twice is once.
            let after = home.everything();
            home.ok(&[agent]);
            assert_eq!(home.everything(), after, "{agent}");
        }
        for agent in AGENTS {
            home.ok(&[agent, "--undo"]);
        }
        assert_eq!(home.everything(), before);
        assert!(home.ok(&["codex", "--undo"]).contains("was not set up"));
    }
}

#[test]
fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let home = Home::new();
    let before = home.everything();
    let shown = home.ok(&["claude-code", "--dry-run", "--gateway", "--hooks", "--mcp"]);
    assert_eq!(home.everything(), before);
    assert!(!home.bench.path("data/setup").exists());
    for words in [
        "settings.json",
        ".claude.json",
        "\"matcher\": \"compact|resume\"",
        "\"ANTHROPIC_BASE_URL\"",
        "dry run",
    ] {
        assert!(shown.contains(words), "{words} is not in\n{shown}");
    }
}

#[test]
fn what_is_written_is_what_agents_read_and_the_rest_of_the_file_stays() {
    let home = Home::new();
    home.ok(&["claude-code"]);
    let settings: Value = serde_json::from_str(&home.read(".claude/settings.json")).expect("JSON");
    assert_eq!(settings["model"], "opus");
    let before_tools = settings["hooks"]["PreToolUse"].as_array().expect("a list");
    assert_eq!(before_tools[0]["hooks"][0]["command"], "mine");
    let command = before_tools[1]["hooks"][0]["command"].as_str().expect("a command");
    assert!(command.ends_with("log.db hook claude-code PreToolUse"), "{command}");
    for event in ["PreCompact", "SessionStart", "UserPromptSubmit"] {
        assert_eq!(settings["hooks"][event].as_array().map(Vec::len), Some(1), "{event}");
    }
    let state: Value = serde_json::from_str(&home.read(".claude.json")).expect("JSON");
    assert_eq!(state["mcpServers"]["epitome"]["args"][2], "mcp", "{state}");
    assert_eq!(state["numStartups"], 7);

    home.ok(&["codex", "--mcp", "--gateway", "http://127.0.0.1:9/"]);
    let config = home.read(".codex/config.toml");
    assert!(
        config.contains("model   = \"gpt-5\"   # aligned") && config.contains("args = [ \"a\",\n  \"b\" ]"),
        "{config}"
    );
    let parsed: toml::Table = config.parse().expect("TOML");
    assert_eq!(parsed["mcp_servers"]["epitome"]["args"][2].as_str(), Some("mcp"));
    assert_eq!(parsed["openai_base_url"].as_str(), Some("http://127.0.0.1:9/v1"));

    home.ok(&["opencode"]);
    let config = home.read(".config/opencode/opencode.jsonc");
    assert!(config.starts_with("{\r\n\t// my models\r\n\t\"model\": \"a/b\",\r\n"), "{config}");
    assert!(config.contains("\t\"mcp\": {\r\n\t\t\"epitome\": {\r\n\t\t\t\"type\": \"local\""), "{config}");
    assert!(home.read(".config/opencode/plugin/epitome.js").contains("hook\", \"opencode\""));

    home.ok(&["goose"]);
    let config = home.read(".config/goose/config.yaml");
    assert!(config.contains("extensions:\n    epitome:\n      enabled: true\n"), "{config}");
    assert!(
        config.ends_with("    developer:\n        enabled: true\n        type: builtin\n# the end\n"),
        "{config}"
    );
}

#[test]
fn what_was_changed_since_stays_and_only_ours_is_taken_out() {
    let home = Home::new();
    home.ok(&["claude-code"]);
    let path = home.path(".claude/settings.json");
    let changed = home.read(".claude/settings.json").replace("\"opus\"", "\"sonnet\"");
    fs::write(&path, &changed).expect("writable");
    let said = home.ok(&["claude-code", "--undo"]);
    assert!(said.contains("was changed since"), "{said}");
    let (_, backups) = said.trim().rsplit_once("the files as they were before are in ").expect("a folder");
    let kept = fs::read_dir(backups)
        .expect("readable")
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    assert!(kept.into_iter().any(|text| text == SETTINGS[0].1), "{said}");
    assert_eq!(home.read(".claude/settings.json"), SETTINGS[0].1.replace("\"opus\"", "\"sonnet\""));
    assert_eq!(home.read(".claude.json"), SETTINGS[1].1);
}

#[test]
fn what_a_user_chose_is_not_replaced_and_what_cannot_be_read_is_an_error() {
    let home = Home::new();
    let refused = |args: &[&str]| {
        let run = home.run(args);
        assert!(!run.success, "{}", run.stdout);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run.stderr
    };
    fs::write(home.path(".claude/settings.json"), "{\"env\": {\"ANTHROPIC_BASE_URL\": \"https://mine\"}}")
        .expect("writable");
    let before = home.everything();
    assert!(refused(&["claude-code", "--gateway"]).contains("set to something else already"));
    fs::write(home.path(".codex/config.toml"), "this is = = no toml").expect("writable");
    assert!(refused(&["codex", "--mcp"]).contains("it is no TOML"));
    fs::write(home.path(".claude.json"), "{\"a\": ").expect("writable");
    assert!(refused(&["claude-code", "--mcp"]).contains("it is no JSON: line 1"));
    fs::write(home.path(".claude.json"), [0xff, 0xfe]).expect("writable");
    assert!(refused(&["claude-code", "--mcp"]).contains("is not UTF-8"));
    assert!(refused(&["goose", "--hooks"]).contains("goose has no place for --hooks"));
    assert!(refused(&["codex", "--gateway", "localhost"]).contains("is no address"));
    assert_eq!(home.everything().len(), before.len());
    assert!(!home.bench.path("data/setup").exists());
}

#[test]
fn a_second_setup_keeps_the_values_of_the_first() {
    let home = Home::new();
    home.ok(&["claude-code", "--gateway", "http://10.0.0.7:9000"]);
    home.ok(&["claude-code", "--mcp"]);
    assert!(home.read(".claude/settings.json").contains("http://10.0.0.7:9000"));
    assert!(home.read(".claude.json").contains("epitome"));
}

#[test]
fn alone_it_says_which_agents_are_here_and_what_each_has() {
    let home = Home::new();
    home.ok(&["codex", "--mcp"]);
    let listed = home.ok(&[]);
    assert!(listed.contains("Claude Code (claude-code, found)"), "{listed}");
    assert!(
        listed.lines().any(|line| line.trim_start().starts_with("--mcp") && line.contains("set up")),
        "{listed}"
    );
    let nobody = Home::empty();
    assert!(nobody.ok(&[]).contains("goose (goose, not found)"));
}

#[cfg(unix)]
#[test]
fn a_backup_is_its_owners_alone_and_permissions_and_links_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::new();
    let real = home.path("dotfiles.json");
    fs::rename(home.path(".claude.json"), &real).expect("movable");
    symlink(&real, home.path(".claude.json")).expect("a link");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("allowed");
    home.ok(&["claude-code", "--mcp"]);
    assert!(fs::symlink_metadata(home.path(".claude.json")).expect("there").is_symlink());
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&real), 0o600);
    assert_eq!(mode(&home.bench.path("data/setup/claude-code")), 0o700);
    home.ok(&["claude-code", "--undo"]);
    assert_eq!(fs::read_to_string(&real).expect("there"), SETTINGS[1].1);
    assert!(fs::symlink_metadata(home.path(".claude.json")).expect("there").is_symlink());
    assert_eq!(text(&real), text(&fs::canonicalize(home.path(".claude.json")).expect("there")));
}
