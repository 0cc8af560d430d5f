//! Sessions that are made smaller and gone on with, in their own agent and in others. No agent runs here: scripts stand for
//! the two that import.

mod sessions;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use self::sessions::{ANSWER, TASK};
use super::harness::{Bench, Run, text};

const AGENTS: [&str; 5] = ["claude-code", "codex", "opencode", "pi", "goose"];

/// What stands for OpenCode and goose: they keep what they import in a folder.
const IMPORTER: &str = r#"#!/bin/sh
kept="$HOME/kept"; mkdir -p "$kept"; name=$(basename "$0")
[ "$1" = session ] && [ "$2" != delete ] && shift
case "$name-$1" in
  opencode-import) cp "$2" "$kept/$(basename "$2" .json)" && echo "Imported session: $(basename "$2" .json)" ;;
  opencode-export) [ ! -e "$HOME/no-export" ] && cat "$kept/$2" ;;
  opencode-session) rm "$kept/$3" ;;
  goose-import) cp "$2" "$kept/20260301_7" && printf 'Session imported:\n20260301_7 - a title\n' ;;
  goose-export) cat "$kept/$3" ;;
  goose-remove) rm "$kept/$3" ;;
  *) echo "unknown: $name $*" >&2; exit 1 ;;
esac
"#;

/// A user's home with agents in it.
struct Home {
    bench: Bench,
}

impl Home {
    fn new() -> Self {
        let home = Self { bench: Bench::new() };
        for name in ["home", "bin", "work"] {
            fs::create_dir(home.bench.path(name)).expect("a folder");
        }
        for name in ["opencode", "goose"] {
            let script = home.bench.write(&format!("bin/{name}"), IMPORTER);
            fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path("home").join(name)
    }

    fn command(&self) -> Command {
        let mut command = self.bench.command();
        let programs = format!("{}:/usr/bin:/bin", text(&self.bench.path("bin")));
        command
            .env("HOME", self.bench.path("home"))
            .env("PATH", programs)
            .current_dir(self.bench.path("work"));
        for variable in
            ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"]
        {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::from(self.command().args(args).output().expect("the binary runs"))
    }

    /// Runs a command that must succeed: the first line of its JSON.
    fn ok(&self, args: &[&str]) -> Value {
        let run = self.run(&[args, &["--json"]].concat());
        assert!(run.success, "epitome {} failed:\n{}{}", args.join(" "), run.stdout, run.stderr);
        serde_json::from_str(run.stdout.lines().next().expect("a line")).expect("JSON")
    }

    fn fails(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert!(!run.success, "epitome {} should have failed:\n{}", args.join(" "), run.stdout);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run.stderr
    }

    /// The session that was added, as it was written.
    fn written(&self, added: &Value) -> PathBuf {
        let id = added["session"].as_str().expect("an id");
        added["file"].as_str().map_or_else(|| self.path("kept").join(id), PathBuf::from)
    }

    /// Every file of the home with its bytes, but for the record of what was added.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.bench.path("home")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("resumed.jsonl") {
                    files.insert(path.clone(), fs::read(&path).expect("a file"));
                }
            }
        }
        files
    }
}

/// Room for a summary and the newest turns of the invented session.
const ROOM: u64 = 8_000;

/// The budget that leaves an agent's session this room.
fn budget(agent: &str) -> String {
    let own = match agent {
        "claude-code" => 30_000,
        "codex" => 11_000,
        "opencode" => 9_000,
        "pi" => 2_500,
        "goose" => 5_000,
        other => panic!("no agent {other}"),
    };
    (own + ROOM).to_string()
}

fn resumed(home: &Home, file: &Path, agent: &str) -> Value {
    home.ok(&["resume", text(file), "--in", agent, "--budget", &budget(agent), "--model", "p/small"])
}

/// What the events of a session say, each with its kind.
fn facts(bench: &Bench, file: &Path) -> (Value, Vec<(String, String)>) {
    let imported = bench.json(&["import", text(file)]).remove(0);
    let session = imported["session"].as_str().expect("a session").to_owned();
    let exported = bench.ok(&["export", &session, "--format", "jsonl"]);
    let facts = exported.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let fact = line.get("fact").or_else(|| line.get("event")?.get("fact"))?.clone();
        Some((fact["kind"].as_str()?.to_owned(), fact.to_string()))
    });
    (imported, facts.collect())
}

/// Checks what an agent was given: one compaction, then the newest turn, word for word.
fn check(written: &Path, from: &str, agent: &str) {
    let said = format!("{from} in {agent}");
    if agent == "goose" {
        return check_goose(written, &said);
    }
    let bench = Bench::new();
    let (imported, facts) = facts(&bench, written);
    assert_eq!(
        (&imported["format"], &imported["compactions"]),
        (&Value::from(agent), &Value::from(1)),
        "{said}"
    );
    assert_eq!(imported["warnings"], Value::Array(vec![]), "{said}");
    let of = |kind: &str| {
        facts.iter().filter(|(found, _)| found == kind).map(|(_, text)| text.as_str()).collect::<Vec<_>>()
    };
    assert!(
        of("compacted")[0].contains("mend part 3"),
        "{said}: the summary tells what was asked: {:?}",
        of("compacted")
    );
    let asked = of("user_said").into_iter().rfind(|text| !text.contains("told in words"));
    assert!(asked.is_some_and(|asked| asked.contains(TASK)), "{said}: {asked:?}");
    assert!(of("assistant_said").last().expect(&said).contains(ANSWER), "{said}");
    let calls = facts.iter().any(|(kind, text)| kind == "assistant_said" && text.contains("tool_call"));
    assert_eq!(
        calls,
        from == agent,
        "{said}: calls are made where the tools are the same, and told elsewhere"
    );
    let told =
        facts.iter().any(|(_, text)| text.contains("told in words") && text.contains("cat src/part_11.rs"));
    assert_eq!(told, from != agent, "{said}");
}

fn check_goose(written: &Path, said: &str) {
    let export: Value = serde_json::from_slice(&fs::read(written).expect("an export")).expect("JSON");
    let messages = export["conversation"].as_array().expect("messages");
    assert_eq!(
        messages[0]["metadata"],
        serde_json::json!({"userVisible": false, "agentVisible": true}),
        "{said}"
    );
    assert!(messages[0].to_string().contains("mend part 3"), "{said}");
    let whole = export.to_string();
    assert!(whole.contains(TASK) && whole.contains("told in words"), "{said}");
    assert!(messages.last().expect("messages").to_string().contains(ANSWER), "{said}");
    let times: Vec<i64> = messages.iter().filter_map(|message| message["created"].as_i64()).collect();
    assert!(
        times.is_sorted_by(|one, other| one < other) && times.len() == messages.len(),
        "{said}: {times:?}"
    );
}

#[test]
fn a_session_of_any_format_goes_on_in_any_agent() {
    std::thread::scope(|scope| {
        for (format, session) in sessions::every() {
            scope.spawn(move || goes_on_in_any_agent(format, &session));
        }
    });
}

fn goes_on_in_any_agent(format: &str, session: &str) {
    let home = Home::new();
    let file = home.bench.write("session.json", session);
    for agent in AGENTS {
        let added = resumed(&home, &file, agent);
        let (before, after) = (added["tokens_before"].as_u64(), added["tokens_after"].as_u64());
        assert!(before > Some(10_000) && after <= Some(ROOM), "{format} in {agent}: {added}");
        check(&home.written(&added), format, agent);
    }
    assert_eq!(
        fs::read_to_string(&file).expect("it is there"),
        session,
        "{format}: the session itself is unchanged"
    );
}

#[test]
fn what_our_own_export_wrote_goes_on_too() {
    let home = Home::new();
    let file = home.bench.write("session.json", sessions::every()[0].1.as_str());
    let session = home.ok(&["import", text(&file)])["session"].as_str().expect("an id").to_owned();
    let exported = home.run(&["export", &session, "--format", "jsonl"]).stdout;
    let export = home.bench.write("export.jsonl", exported);
    check(&home.written(&resumed(&home, &export, "pi")), "epitome", "pi");
    let shown = home.run(&["show", "@last"]);
    assert!(shown.success && shown.stdout.contains(TASK), "{}", shown.stderr);
    // A session of the store goes on in its own agent, with that agent's calls.
    let added = home.ok(&["resume", &session, "--budget", &budget("claude-code")]);
    check(&home.written(&added), "claude-code", "claude-code");
}

#[test]
fn a_kept_message_keeps_the_agents_own_bytes_but_for_its_size() {
    let home = Home::new();
    for (agent, session) in
        sessions::every().into_iter().filter(|(format, _)| ["claude-code", "codex", "pi"].contains(format))
    {
        let file = home.bench.write("session.json", &session);
        let written = fs::read_to_string(home.written(&resumed(&home, &file, agent))).expect("a session");
        let spoken = |text: &str| text.lines().rfind(|line| line.contains(TASK)).map(str::to_owned);
        let inner = |line: Option<String>| {
            let line: Value = serde_json::from_str(&line.expect("the task")).expect("JSON");
            line.get("message").or_else(|| line.get("payload")).expect("a message").to_string()
        };
        assert_eq!(inner(spoken(&written)), inner(spoken(&session)), "{agent}");
        assert!(
            !written.contains("170000"),
            "{agent} would take the old size for the new one, and compact at once"
        );
        assert!(!written.contains("\"fc_"), "a call that names itself is refused without its reasoning");
    }
}

#[test]
fn a_session_that_fits_is_copied_whole() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::codex("/nowhere"));
    let added = home.ok(&["resume", text(&file), "--budget", "200k"]);
    assert_eq!(added["summarised"], false, "{added}");
    let (imported, facts) = facts(&Bench::new(), &home.written(&added));
    assert_eq!(imported["compactions"], 0);
    assert_eq!(facts.iter().filter(|(kind, _)| kind == "user_said").count(), 12);
    assert_eq!(facts.iter().filter(|(kind, _)| kind == "tool_returned").count(), 12);
}

#[test]
fn nothing_of_the_agents_own_is_changed_and_undo_leaves_no_trace() {
    let home = Home::new();
    let work = text(&home.bench.path("work")).to_owned();
    let projects = home.path(".claude/projects/other");
    fs::create_dir_all(&projects).expect("a folder");
    fs::write(projects.join("mine.jsonl"), sessions::claude_code(&work)).expect("a session");
    let before = home.files();
    for agent in AGENTS {
        let added = home.ok(&["resume", "--in", agent, "--budget", &budget(agent), "--model", "p/small"]);
        let with = home.files();
        let new: Vec<_> = with.keys().filter(|path| !before.contains_key(*path)).collect();
        assert_eq!(new, [&home.written(&added)], "{agent}: one file is added");
        assert!(before.iter().all(|(path, bytes)| with[path] == *bytes), "{agent}: nothing else is touched");
        let mode = fs::metadata(new[0]).expect("a file").permissions().mode();
        assert!(
            !["claude-code", "codex", "pi"].contains(&agent) || mode.trailing_zeros() >= 6,
            "{agent}: only its owner reads it"
        );
        home.ok(&["resume", "--undo"]);
        assert_eq!(home.files(), before, "{agent}");
    }
    assert!(home.fails(&["resume", "--undo"]).contains("nothing to undo"));
}

#[test]
fn a_session_that_has_gone_on_is_not_removed() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::claude_code("/nowhere"));
    for agent in AGENTS {
        let added = resumed(&home, &file, agent);
        let written = home.written(&added);
        let grown = fs::read_to_string(&written).expect("a session").replacen("mended", "MENDED", 1);
        fs::write(&written, &grown).expect("it goes on");
        let said = home.fails(&["resume", "--undo", added["session"].as_str().expect("an id")]);
        assert!(said.contains("has gone on since"), "{agent}: {said}");
        assert_eq!(fs::read_to_string(&written).expect("it is there"), grown);
    }
}

#[test]
fn a_session_that_was_imported_but_not_exported_is_recorded_all_the_same() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::claude_code("/nowhere"));
    let earlier = resumed(&home, &file, "pi");
    fs::write(home.path("no-export"), "").expect("a file");
    let added = resumed(&home, &file, "opencode");
    assert!(added["notes"].to_string().contains("--undo will not remove it"), "{added}");
    let id = added["session"].as_str().expect("an id");
    let said = home.fails(&["resume", "--undo"]);
    assert!(said.contains(&format!("opencode session delete {id}")), "{said}");
    assert!(home.written(&added).exists() && home.written(&earlier).exists());
    home.ok(&["resume", "--undo", earlier["session"].as_str().expect("an id")]);
    assert!(home.written(&added).exists() && !home.written(&earlier).exists());
}

#[test]
fn an_id_that_is_the_start_of_another_is_removed_by_itself() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::claude_code("/nowhere"));
    let added = resumed(&home, &file, "goose");
    let written = home.written(&added);
    let id = added["session"].as_str().expect("an id");
    let record = home.path(".local/share/epitome/resumed.jsonl");
    let line = fs::read_to_string(&record).expect("a record");
    fs::write(&record, format!("{line}{}", line.replace(id, &format!("{id}0")))).expect("a record");
    fs::copy(&written, home.path(&format!("kept/{id}0"))).expect("another session");
    assert!(home.fails(&["resume", "--undo", &id[..4]]).contains("several added sessions"));
    home.ok(&["resume", "--undo", id]);
    assert!(!written.exists() && home.path(&format!("kept/{id}0")).exists());
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::claude_code("/nowhere"));
    for agent in AGENTS {
        let told = home.ok(&["resume", text(&file), "--in", agent, "--model", "p/small", "--dry-run"]);
        assert_eq!((&told["session"], &told["command"]), (&Value::Null, &Value::Null), "{told}");
        assert!(told["tokens_before"].as_u64() > Some(10_000));
    }
    assert_eq!(home.files(), BTreeMap::new());
}

#[test]
fn the_command_that_goes_on_is_printed_and_can_be_run() {
    let home = Home::new();
    let file = home.bench.write("session.jsonl", sessions::codex("/nowhere"));
    let script = home.bench.write("bin/codex", "#!/bin/sh\necho \"$PWD: $*\" > \"$HOME/started\"\nexit 3\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("a program");
    let added = home.ok(&["resume", text(&file), "--budget", "20k"]);
    let id = added["session"].as_str().expect("an id");
    assert_eq!(added["command"], format!("codex resume {id}"));
    let elsewhere = text(&home.bench.path("home")).to_owned();
    let run = home.run(&["resume", text(&file), "--budget", "20k", "--directory", &elsewhere, "--start"]);
    assert_eq!(run.code, Some(3), "the agent's own code: {}", run.stderr);
    assert!(run.stdout.contains(&format!("cd {elsewhere} && codex resume ")), "{}", run.stdout);
    let started = fs::read_to_string(home.path("started")).expect("it was started");
    assert!(started.starts_with(&format!("{elsewhere}: resume ")), "{started}");
}

#[test]
fn the_newest_session_is_found_by_its_folder_and_its_time() {
    let home = Home::new();
    assert!(home.fails(&["last"]).contains("no session"));
    let (work, other) = (home.bench.path("work"), home.bench.path("home"));
    let write = |path: PathBuf, session: String| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, session).expect("a file");
        path
    };
    let mine = write(home.path(".claude/projects/w/a.jsonl"), sessions::claude_code(text(&work)));
    let newer = write(home.path(".codex/sessions/2026/03/01/rollout-b.jsonl"), sessions::codex(text(&other)));
    write(home.path(".claude/projects/w/agent-c.jsonl"), sessions::claude_code(text(&work)));
    let old = fs::File::options().append(true).open(&mine).expect("a file");
    old.set_modified(std::time::SystemTime::now() - std::time::Duration::from_hours(3)).expect("a time");
    let found = |args: &[&str]| home.ok(&[&["last"], args].concat())["file"].clone();
    assert_eq!(found(&[]), text(&mine), "the session of the current folder, not the newest of all");
    assert_eq!(found(&["--project", text(&other)]), text(&newer));
    assert_eq!(found(&["--since", "1h"]), text(&newer), "the one of this folder is too old");
    assert!(home.fails(&["last", "--project", text(&work), "--since", "1h"]).contains("no session"));
    assert_eq!(home.ok(&["resume", "--dry-run"])["agent"], "claude-code");
    assert_eq!(home.ok(&["resume", "@last", "--project", text(&other), "--dry-run"])["agent"], "codex");
    let compacted = home.ok(&["compact", "@last", "--budget", "5k", "--out", "smaller.json"]);
    assert!(compacted["tokens_after"].as_u64() <= Some(5_000), "{compacted}");
}

#[test]
fn what_cannot_go_on_says_why_and_writes_nothing() {
    let home = Home::new();
    let good = home.bench.write("good.jsonl", sessions::claude_code("/nowhere"));
    let chat = home.bench.write("chat.json", sessions::every().swap_remove(9).1);
    let check = |args: &[&str], expect: &str| {
        let said = home.fails(&[&["resume"], args].concat());
        assert!(said.contains(expect), "{args:?}: {said}");
    };
    check(&["nowhere.jsonl"], "there is no file");
    check(&[text(&home.bench.write("empty.jsonl", ""))], "is empty");
    check(&[text(&home.bench.write("noise.jsonl", [0_u8, 255, 7]))], "not text");
    check(
        &[text(&home.bench.write("cut.json", "{\"info\": {\"id\": \"s\"}, \"messages\": [{\"info\":"))],
        "cut off",
    );
    check(&[text(&chat)], "name one (--in)");
    check(&[text(&good), "--in", "vim"], "possible values");
    check(&[text(&good), "--budget", "20k"], "leaves no room");
    check(&[text(&good), "--in", "opencode"], "--model PROVIDER/MODEL");
    check(&[text(&good), "--directory", "/nowhere/at/all"], "cannot find the folder");
    check(&[text(&good), "--project", "."], "not both");
    check(&["--undo", "nothing"], "nothing was removed");
    check(&[text(&good), "--start", "--dry-run"], "cannot be used with");
    fs::remove_file(home.bench.path("bin/goose")).expect("it was there");
    check(&[text(&good), "--in", "goose"], "install goose");
    assert_eq!(home.files(), BTreeMap::new());
}
