//! `resume`: makes a session smaller and lets its agent, or another, go on with it.
//!
//! The default policy decides what stands in the continuation, as for `compact FILE`; the writers of the transcript formats
//! put it into the agent's own. A new session is added beside the others, and nothing of the agent's own is changed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, builder::PossibleValuesParser};
use epitome::{
    core::{Fact, SessionId, Tokens, context::EventNaming, policy::Policy},
    store::LAST_SESSION,
    wire::{
        Format,
        transcripts::{Continuation, ResumableAgent, SessionTarget, WrittenSession},
    },
};
use serde_json::json;

use super::{
    agent_folders::{self, SessionSearchArgs},
    agent_programs, compact,
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    request_source::{RequestSource, ViewArgs},
    resumed_sessions::{self, AddedSession, AddedSessions},
    store_lookup::DatabaseLocation,
    text_format,
};
use crate::units::{TokenAmount, parse_tokens};

#[derive(ClapArgs)]
#[command(after_help = "\
What is old becomes a summary that tells what happened in order; the newest turns stay word for word. It is written as the \
agent itself writes a compacted session, beside the agent's other sessions, and the command that goes on is printed:

  epitome resume                                   the newest session of this folder, smaller
  epitome resume session.jsonl --budget 60k        this one
  epitome resume SESSION --in codex --start        begin in one agent, go on in another
  epitome resume --dry-run                         only tell what would be written
  epitome resume --undo                            remove the session that was added last

The budget is for the agent's first request, with its own instructions and tools. Calls of tools that the other agent does \
not have are told in words. Nothing is changed but for the one session that is added; --undo removes it unless it has gone on \
since. OpenCode and goose keep sessions in a database: there the agent's own `import` adds it, so that it must be on the PATH.")]
pub(crate) struct ResumeArgs {
    /// File or session to go on with; @last is the newest one.
    #[arg(value_name = "FILE|SESSION", default_value = LAST_SESSION)]
    source: String,

    /// Agent to go on in; by default the one that made the session.
    #[arg(long = "in", value_name = "AGENT", value_parser = agent_names())]
    target: Option<String>,

    /// Largest size of the agent's first request in tokens: `60000`, `60k`.
    #[arg(long, value_name = "N", value_parser = parse_tokens, default_value = "60k")]
    budget: u64,

    /// Model to go on with, as OpenCode and pi name it; for Codex the provider in its configuration.
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,

    /// Folder that the agent goes on in; by default the one the session worked in, or else the current one.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    search: SessionSearchArgs,

    /// Start the agent.
    #[arg(long, conflicts_with_all = ["dry_run", "undo"])]
    start: bool,

    /// Tell what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Remove a session that was added, by default the last one, unless it has gone on since.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", conflicts_with = "dry_run")]
    undo: Option<String>,

    /// File of model profiles that add to the built-in ones or override them.
    #[arg(long, value_name = "FILE", env = "EPITOME_PROFILES", hide_env_values = true)]
    profiles: Option<PathBuf>,
}

fn agent_names() -> PossibleValuesParser {
    ResumableAgent::ALL.map(ResumableAgent::name).into()
}

pub(crate) fn run(args: &ResumeArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    if let Some(id) = &args.undo {
        return undo(Some(id.as_str()).filter(|id| !id.is_empty()), out);
    }
    let source = source(args, store)?;
    let agent = target(args, &source)?;
    let directory = directory(args, &source)?;
    let fitted = FittedContinuation::of(args, &source, agent)?;
    let session = SessionTarget {
        id: SessionId::new(uuid::Uuid::now_v7()),
        directory: directory.to_str().context("the folder's path is not UTF-8")?.to_owned(),
        now: text_format::now(),
        title: title(&source),
        model: args.model.clone().or_else(|| configured_model(agent)),
    };
    let written = agent.write(&fitted.continuation, &session)?;
    let mut plan = ResumePlan { agent, directory, fitted, written };
    if args.dry_run {
        return plan.print(None, args, &source, out);
    }
    let id = plan.add()?;
    let start = args.start.then(|| agent_programs::resume_command(agent, &id));
    let directory = plan.directory.clone();
    plan.print(Some(&id), args, &source, out)?;
    let Some(command) = start else { return Ok(ExitCode::SUCCESS) };
    let status = agent_programs::started(agent, &command[1..], &directory)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The session to go on with.
fn source(args: &ResumeArgs, store: &DatabaseLocation) -> anyhow::Result<RequestSource> {
    if args.search.project.is_none() && args.search.since.is_none() {
        return RequestSource::find(&args.source, None, store);
    }
    if args.source != LAST_SESSION {
        bail!("--project and --since find the newest session: name a session, or use them, but not both");
    }
    RequestSource::newest(&args.search)
}

/// The agent to go on in.
fn target(args: &ResumeArgs, source: &RequestSource) -> anyhow::Result<ResumableAgent> {
    let named = args.target.as_deref().and_then(ResumableAgent::named);
    named.or(source.agent).with_context(|| {
        let known = ResumableAgent::ALL.map(ResumableAgent::name).join(", ");
        format!(
            "no agent that sessions can be written for made {}: name one (--in), of {known}",
            source.title
        )
    })
}

/// The folder to go on in.
fn directory(args: &ResumeArgs, source: &RequestSource) -> anyhow::Result<PathBuf> {
    if let Some(directory) = &args.directory {
        return fs::canonicalize(directory)
            .with_context(|| format!("cannot find the folder {}", directory.display()));
    }
    match &source.directory {
        Some(directory) if directory.is_dir() => Ok(directory.clone()),
        _ => env::current_dir().context("cannot find the current folder"),
    }
}

/// Title of the session: its own, or the beginning of what the user said first.
fn title(source: &RequestSource) -> Option<String> {
    if source.is_titled {
        return Some(source.title.clone());
    }
    let said = source.line.events().find(|logged| matches!(logged.event.fact, Fact::UserSaid { .. }))?;
    let words = text_format::one_line(&said.event.fact.text(), 60);
    (!words.is_empty() && !words.starts_with('<')).then_some(words)
}

/// The provider or model that the agent's configuration names, where its sessions need one.
fn configured_model(agent: ResumableAgent) -> Option<String> {
    match agent {
        ResumableAgent::Codex => {
            let config = fs::read_to_string(agent_folders::root(agent).ok()?.join("config.toml")).ok()?;
            let config: toml::Table = config.parse().ok()?;
            Some(config.get("model_provider")?.as_str()?.to_owned())
        }
        ResumableAgent::Opencode => {
            let folder = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
            let folder = folder.or_else(|| Some(etcetera::home_dir().ok()?.join(".config")))?;
            let config = fs::read_to_string(folder.join("opencode/opencode.json")).ok()?;
            let config: serde_json::Value = serde_json::from_str(&config).ok()?;
            Some(config.get("model")?.as_str()?.to_owned())
        }
        ResumableAgent::ClaudeCode | ResumableAgent::Pi | ResumableAgent::Goose => None,
    }
}

/// A continuation that fits.
struct FittedContinuation {
    continuation: Continuation,
    /// Size of the session before.
    before: Tokens,
    /// Size of the continuation.
    after: Tokens,
    notes: Vec<String>,
}

impl FittedContinuation {
    /// Makes a continuation that leaves the agent room for its own instructions and tools.
    fn of(args: &ResumeArgs, source: &RequestSource, agent: ResumableAgent) -> anyhow::Result<Self> {
        /// Number of times that a continuation is made smaller because of calls that are told in words.
        const TIMES: usize = 4;
        let own = agent.own_tokens();
        let room = Tokens(args.budget).less(own);
        if room < Tokens(2_000) {
            bail!(
                "{} needs about {own} tokens for its own instructions and tools: a budget of {} leaves no room for the \
                 session; name a larger one (--budget {}k)",
                agent.title(),
                args.budget,
                own.0 / 1_000 + 10
            );
        }
        let mut asked = room;
        for _ in 0..TIMES {
            let fitted = Self::within(args, source, agent, asked)?;
            let over = fitted.after.less(room);
            if over == Tokens(0) {
                return Ok(fitted);
            }
            asked = asked.less(over + Tokens(room.0 / 50));
        }
        bail!(
            "the newest turns alone do not fit {room} tokens when they are told to another agent: name a larger --budget"
        )
    }

    fn within(
        args: &ResumeArgs,
        source: &RequestSource,
        agent: ResumableAgent,
        room: Tokens,
    ) -> anyhow::Result<Self> {
        let format = match agent {
            ResumableAgent::ClaudeCode => Some(Format::Anthropic),
            ResumableAgent::Codex => Some(Format::OpenaiResponses),
            ResumableAgent::Opencode | ResumableAgent::Pi | ResumableAgent::Goose => None,
        };
        let view = ViewArgs::of(TokenAmount::Tokens(room.0), format, args.profiles.clone());
        let mut chosen = view.with_default_policy(&Policy::builtin()[0].name).resolve(source.clone())?;
        // What was assumed about a request that is sent says nothing about a session.
        chosen.notes.clear();
        let compacted = compact::compact(&mut chosen)?;
        let mut continuation = Continuation::of(&compacted.context, source.agent, agent);
        continuation.tokens_before = compacted.report.before;
        if let Some(summary) = &mut continuation.summary {
            summary.push_str(&way_back(source));
        }
        let meter = compacted.context.meter();
        let after = continuation.tokens(|text| meter.text(text)) + compacted.report.margin.tokens;
        Ok(Self { continuation, before: compacted.report.before, after, notes: chosen.notes })
    }
}

/// Tells the model where what it no longer sees is to be found.
fn way_back(source: &RequestSource) -> String {
    match (&source.file, source.names) {
        (_, EventNaming::Thread(_)) => {
            "\n\nIn a shell, `epitome recall HANDLE` prints what a handle stands for.".to_owned()
        }
        (Some(file), _) => format!("\n\nThe whole earlier session is in {}", file.display()),
        (None, _) => String::new(),
    }
}

/// A session that is ready to be added.
struct ResumePlan {
    agent: ResumableAgent,
    directory: PathBuf,
    fitted: FittedContinuation,
    written: WrittenSession,
}

impl ResumePlan {
    /// The file that is written: the agent's own, or one for it to import.
    fn path(&self) -> anyhow::Result<PathBuf> {
        let folder = if agent_programs::imports(self.agent) {
            agent_folders::data_folder()?.1.join("imports")
        } else {
            agent_folders::root(self.agent)?
        };
        Ok(folder.join(&self.written.path))
    }

    /// Adds the session, and returns its id.
    fn add(&mut self) -> anyhow::Result<String> {
        // A record that cannot be read is reported before anything is added.
        drop(AddedSessions::read()?);
        let path = self.path()?;
        let contents = &self.written.contents;
        resumed_sessions::write_new(&path, contents)?;
        if agent_programs::imports(self.agent) {
            return self.import(&path);
        }
        let id = self.written.key.clone().unwrap_or_default();
        let hash = resumed_sessions::hash(contents.as_bytes());
        AddedSessions::add(self.added(id.clone(), Some(path), Some(hash)))?;
        Ok(id)
    }

    /// Has the agent import a file, and returns the session's id. The session is recorded before it is exported: were it not,
    /// an export that fails would leave it behind, and the next removal would be that of an earlier one.
    fn import(&mut self, file: &Path) -> anyhow::Result<String> {
        let key = self.written.key.as_deref();
        let imported = agent_programs::import(self.agent, file, key, &self.directory);
        let removed = fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()));
        let id = imported?;
        AddedSessions::add(self.added(id.clone(), None, None))?;
        removed?;
        match agent_programs::exported_messages(self.agent, &id, &self.directory) {
            Ok(messages) => {
                let hash = resumed_sessions::hash(&messages);
                AddedSessions::add(self.added(id.clone(), None, Some(hash)))?;
            }
            Err(error) => self.fitted.notes.push(format!(
                "{} imported the session but could not export it, so --undo will not remove it: {error:#}",
                self.agent.title()
            )),
        }
        Ok(id)
    }

    /// The session's entry in the record.
    fn added(&self, id: String, path: Option<PathBuf>, hash: Option<String>) -> AddedSession {
        let (agent, directory) = (self.agent.name().to_owned(), self.directory.clone());
        AddedSession { id, agent, path, directory, hash, added: text_format::now().0 }
    }

    /// Tells what was written, or would be.
    fn print(
        &self,
        id: Option<&str>,
        args: &ResumeArgs,
        source: &RequestSource,
        mut out: CliOutput,
    ) -> anyhow::Result<ExitCode> {
        let command = id.map(|id| self.command(id));
        let path = self.path()?;
        let (before, after) = (self.fitted.before, self.fitted.after);
        let messages = self.fitted.continuation.messages.len();
        if out.is_json() {
            out.object(&json!({
                "agent": self.agent.name(),
                "from": source.agent.map(ResumableAgent::name),
                "source": source.title,
                "session": id,
                "file": (!agent_programs::imports(self.agent)).then_some(&path),
                "directory": self.directory,
                "budget": args.budget,
                "own_tokens": self.agent.own_tokens(),
                "tokens_before": before,
                "tokens_after": after,
                "messages": messages,
                "summarised": self.fitted.continuation.summary.is_some(),
                "command": command,
                "notes": self.fitted.notes,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for note in &self.fitted.notes {
            anstream::eprintln!("{NOTE}note:{NOTE:#} {note}");
        }
        out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&source.title, 80)))?;
        let summary = if self.fitted.continuation.summary.is_some() { "a summary and " } else { "" };
        out.line(format_args!(
            "{} → {} tokens: {summary}{} word for word; {} beside its own {}",
            text_format::tokens(before),
            text_format::tokens(after),
            text_format::count(messages as u64, "message"),
            self.agent.title(),
            text_format::tokens(self.agent.own_tokens()),
        ))?;
        let does = if id.is_some() { "Written" } else { "Would be written" };
        if agent_programs::imports(self.agent) {
            out.line(format_args!("{does} by {}, which imports it.", self.agent.title()))?;
        } else {
            out.line(format_args!("{does} to {}", path.display()))?;
        }
        if let Some(command) = command {
            out.line(format_args!("\nGo on with:  {NAME}{command}{NAME:#}"))?;
            out.line(format_args!("{DIM}epitome resume --undo removes it again{DIM:#}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The one command that goes on.
    fn command(&self, id: &str) -> String {
        let command = agent_programs::resume_command(self.agent, id).join(" ");
        match env::current_dir() {
            Ok(current) if current == self.directory => command,
            _ => format!("cd {} && {command}", shell_word(&self.directory)),
        }
    }
}

/// A path as a word of a shell.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@,".contains(letter);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Removes a session that was added, unless it has gone on since.
fn undo(id: Option<&str>, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let session = AddedSessions::read()?.find(id)?.clone();
    let agent = ResumableAgent::named(&session.agent).context("the record names an unknown agent")?;
    remove(&session, agent)?;
    AddedSessions::remove(&session)?;
    if out.is_json() {
        out.object(&json!({"removed": session.id, "agent": session.agent}))?;
    } else {
        out.line(format_args!("Removed the {} session {NAME}{}{NAME:#}.", agent.title(), session.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes a session's file, or has its agent remove it.
fn remove(session: &AddedSession, agent: ResumableAgent) -> anyhow::Result<()> {
    let Some(hash) = &session.hash else {
        bail!(
            "{} did not export the session {} when it was added, so whether it has gone on since cannot be checked: it was not \
             removed; to remove it all the same, run: {}\nAn earlier session is removed by its id: epitome resume --undo ID",
            agent.title(),
            session.id,
            agent_programs::removal_command(agent, &session.id).join(" ")
        );
    };
    let export = || agent_programs::exported_messages(agent, &session.id, &session.directory);
    let bytes = match &session.path {
        Some(path) => fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => export()?,
    };
    if resumed_sessions::hash(&bytes) != *hash {
        bail!(
            "the session {} has gone on since it was added: it was not removed; if it is to go all the same, remove it in {}",
            session.id,
            agent.title()
        );
    }
    if let Some(path) = &session.path {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        remove_if_empty(path.parent());
        return Ok(());
    }
    agent_programs::remove(agent, &session.id, &session.directory)?;
    // goose asks, and the answer may have been no.
    if export().is_ok() {
        bail!("{} still has the session {}", agent.title(), session.id);
    }
    Ok(())
}

/// Removes the folder of a session if nothing else is in it: the agent makes it again when it needs it.
fn remove_if_empty(folder: Option<&Path>) {
    if let Some(folder) = folder {
        // A folder that is not empty stays, which is what is wanted.
        let _ = fs::remove_dir(folder);
    }
}
