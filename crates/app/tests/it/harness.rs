//! Runs the binary on a database of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a database that does not exist yet.
pub(crate) struct Bench {
    folder: TempDir,
}

/// What a run of the binary gave.
pub(crate) struct Run {
    pub(crate) success: bool,
    /// Its exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a writable folder");
        path
    }

    /// The binary with its database, before it is run.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
        command.env("EPITOME_DB", self.path("log.db")).env("TZ", "UTC").env_remove("NO_COLOR");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::from(self.command().args(args).output().expect("the binary runs"))
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert!(run.success, "epitome {} failed:\n{}{}", args.join(" "), run.stdout, run.stderr);
        run.stdout
    }

    /// Runs a command that must succeed, with `--json`: its lines.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let out = self.ok(&[args, &["--json"]].concat());
        out.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }

    /// Runs a command that must fail: what it said.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert!(!run.success, "epitome {} should have failed:\n{}", args.join(" "), run.stdout);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        format!("{}{}", run.stdout, run.stderr)
    }

    /// Imports messages of OpenAI's Chat format as a session; its id.
    pub(crate) fn session(&self, name: &str, messages: &str) -> String {
        let file = self.write(name, messages);
        let lines = self.json(&["import", text(&file)]);
        lines[0]["session"].as_str().expect("a session id").to_owned()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            success: output.status.success(),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// The folder of the whole workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
