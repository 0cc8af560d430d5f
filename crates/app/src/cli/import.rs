//! `import`: reads agents' transcripts into the log, several files at a time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args as ClapArgs;
use epitome::{
    import::{ImportError, ImportedFile, find_files, import_file},
    wire::transcripts::{TranscriptError, TranscriptLimits},
};
use serde::Serialize;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    parallel::for_all,
    store_lookup::DatabaseLocation,
    text_format,
};
use crate::{
    hooks::watch::{WatchLock, transcript_folders, watch as watch_transcripts},
    setup::AgentHome,
};

/// Number of sessions above which they are summed up instead of listed.
const LISTED: usize = 20;

#[derive(ClapArgs)]
#[command(after_help = "\
Reads Claude Code, Codex (also .zst), OpenCode (export or opencode.db), pi, Gemini CLI, SWE-agent, OpenHands,
tau-bench, tau2, plain OpenAI or Anthropic messages, and what `export --format jsonl` wrote. The format is found from
the content. Importing a file again appends only what is new.")]
pub(crate) struct ImportArgs {
    /// Transcripts, or folders of them.
    #[arg(required_unless_present = "watch", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Go on reading transcripts as they grow: the named ones, or else those of Claude Code, Codex and pi. It ends when nothing
    /// has grown for half an hour, and at once if another process watches already.
    #[arg(long)]
    watch: bool,

    /// Longest line in bytes; longer ones are reported and left out.
    #[arg(long, value_name = "BYTES", default_value_t = TranscriptLimits::default().line)]
    max_line: usize,

    /// Largest size of a compressed file when unpacked, in bytes; larger ones are refused.
    #[arg(long, value_name = "BYTES", default_value_t = TranscriptLimits::default().decompressed)]
    max_unpacked: usize,

    /// List every session and every warning.
    #[arg(long, short)]
    verbose: bool,
}

/// A file to import, and how it was found.
struct ImportSource {
    path: PathBuf,
    named: FileOrigin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileOrigin {
    /// Named on the command line: it is an error if it is no transcript.
    Yes,
    /// Found in a folder, where other files are to be expected.
    InFolder,
}

#[derive(Serialize)]
struct ImportedSessionJson<'a> {
    file: &'a str,
    format: &'static str,
    session: String,
    title: &'a str,
    threads: u64,
    messages: u64,
    turns: u64,
    loops: u64,
    tool_calls: u64,
    tokens: u64,
    compactions: u64,
    appended: u64,
    warnings: Vec<String>,
    skipped: BTreeMap<String, u64>,
}

/// A file without sessions, and the reason: one of three words.
#[derive(Serialize)]
struct SkippedFileJson<'a> {
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_transcript: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(crate) fn run(
    args: &ImportArgs,
    location: &DatabaseLocation,
    out: CliOutput,
) -> anyhow::Result<ExitCode> {
    if args.watch {
        return watch(args, location, out);
    }
    let store = location.open()?;
    let limits = TranscriptLimits { line: args.max_line, decompressed: args.max_unpacked };
    let mut report = ImportReport::new(out, args.verbose);
    let mut sources = Vec::new();
    for path in &args.paths {
        let (files, unread) = find_files(path);
        for error in unread {
            report.failed(&path.display().to_string(), &error.to_string())?;
        }
        let named = if path.is_dir() { FileOrigin::InFolder } else { FileOrigin::Yes };
        sources.extend(files.into_iter().map(|path| ImportSource { path, named }));
    }
    for_all(
        &sources,
        |source| file_name(&source.path),
        |source| import_file(&*store, &source.path, &limits),
        |source, result| report.file(source, result),
    )?;
    report.finish()
}

/// Reads transcripts as they grow.
fn watch(args: &ImportArgs, location: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let Some(_lock) = WatchLock::take(&location.data_folder()?)? else {
        anstream::eprintln!("{NOTE}note:{NOTE:#} another process watches already");
        return Ok(ExitCode::SUCCESS);
    };
    let store = location.open()?;
    let folders =
        if args.paths.is_empty() { transcript_folders(&AgentHome::of_user()?) } else { args.paths.clone() };
    watch_transcripts(&*store, &folders, |path, read| {
        let file = path.display().to_string();
        if out.is_json() {
            return match read {
                Ok(appended) => out.object(&json!({"file": file, "appended": appended})),
                Err(error) => out.object(&json!({"file": file, "error": error})),
            };
        }
        match read {
            Ok(0) => Ok(()),
            Ok(appended) => out.line(format_args!("{file}: {}", text_format::count(appended, "new event"))),
            // Folders hold other files too, and a transcript may be read between two of its lines.
            Err(error) => out.line(format_args!("{DIM}{file}: {error}{DIM:#}")),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Collects the results of the files and reports them.
struct ImportReport {
    out: CliOutput,
    verbose: bool,
    rows: Vec<[String; 9]>,
    per_format: BTreeMap<&'static str, (u64, u64)>,
    warnings: Vec<String>,
    passed_over: BTreeMap<String, u64>,
    not_transcripts: Vec<String>,
    failures: Vec<String>,
    files: u64,
    appended: u64,
}

impl ImportReport {
    fn new(out: CliOutput, verbose: bool) -> Self {
        Self {
            out,
            verbose,
            rows: Vec::new(),
            per_format: BTreeMap::new(),
            warnings: Vec::new(),
            passed_over: BTreeMap::new(),
            not_transcripts: Vec::new(),
            failures: Vec::new(),
            files: 0,
            appended: 0,
        }
    }

    fn file(
        &mut self,
        source: &ImportSource,
        result: Result<ImportedFile, ImportError>,
    ) -> anyhow::Result<()> {
        let file = source.path.display().to_string();
        match result {
            Ok(imported) => self.imported(&file, imported),
            Err(ImportError::Read(error @ TranscriptError::UnknownAgent { .. }))
                if source.named == FileOrigin::InFolder =>
            {
                let error = error.to_string();
                if self.out.is_json() {
                    let line = SkippedFileJson {
                        file: &file,
                        error: None,
                        no_transcript: Some(&error),
                        warnings: Vec::new(),
                    };
                    self.out.object(&line)?;
                }
                self.not_transcripts.push(format!("{file}: {error}"));
                Ok(())
            }
            Err(error) => {
                let hint = match error {
                    ImportError::Read(TranscriptError::TooLarge { .. }) => " (--max-unpacked)",
                    _ => "",
                };
                self.failed(&file, &format!("{:#}{hint}", anyhow::Error::new(error)))
            }
        }
    }

    fn failed(&mut self, file: &str, error: &str) -> anyhow::Result<()> {
        if self.out.is_json() {
            self.out.object(&SkippedFileJson {
                file,
                error: Some(error),
                no_transcript: None,
                warnings: Vec::new(),
            })?;
        }
        self.failures.push(if error.contains(file) { error.to_owned() } else { format!("{file}: {error}") });
        Ok(())
    }

    fn imported(&mut self, file: &str, imported: ImportedFile) -> anyhow::Result<()> {
        let ImportedFile { format, sessions, warnings, skipped } = imported;
        self.files += 1;
        let mut file_warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        self.warnings.extend(file_warnings.iter().map(|warning| format!("{file}: {warning}")));
        let mut file_skipped = skipped;
        for (kind, count) in &file_skipped {
            *self.passed_over.entry(kind.clone()).or_default() += count;
        }
        if sessions.is_empty() && self.out.is_json() {
            let warnings = std::mem::take(&mut file_warnings);
            self.out.object(&SkippedFileJson { file, error: None, no_transcript: None, warnings })?;
        }
        for session in &sessions {
            let row = &session.row;
            let (known, appended) = self.per_format.entry(format.name()).or_default();
            *known += 1;
            *appended += session.appended;
            self.appended += session.appended;
            if self.out.is_json() {
                self.out.object(&ImportedSessionJson {
                    file,
                    format: format.name(),
                    session: row.id.to_string(),
                    title: &row.title,
                    threads: row.threads,
                    messages: row.messages,
                    turns: row.turns,
                    loops: row.loops,
                    tool_calls: row.tool_calls,
                    tokens: row.tokens.unwrap_or_default().0,
                    compactions: row.compactions,
                    appended: session.appended,
                    // Warnings about a file are reported once, with its first session.
                    warnings: std::mem::take(&mut file_warnings),
                    skipped: std::mem::take(&mut file_skipped),
                })?;
            }
            self.rows.push([
                row.id.short(),
                format.name().to_owned(),
                session.appended.to_string(),
                row.turns.to_string(),
                row.tool_calls.to_string(),
                row.tokens.map(text_format::tokens).unwrap_or_default(),
                row.threads.to_string(),
                row.compactions.to_string(),
                text_format::one_line(&row.title, 40),
            ]);
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<ExitCode> {
        let code = if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        if self.out.is_json() {
            return Ok(code);
        }
        self.sessions()?;
        let passed_over: Vec<_> = self
            .passed_over
            .iter()
            .map(|(kind, count)| format!("{kind} {}", text_format::short(*count)))
            .collect();
        if !passed_over.is_empty() {
            self.out.line(format_args!(
                "{DIM}records that are no part of a conversation: {}{DIM:#}",
                passed_over.join(", ")
            ))?;
        }
        let (warnings, others, failures) = (
            std::mem::take(&mut self.warnings),
            std::mem::take(&mut self.not_transcripts),
            std::mem::take(&mut self.failures),
        );
        self.list("warning", "warnings", &warnings)?;
        if warnings.iter().any(|warning| warning.contains("limit")) {
            self.out.line(format_args!("  {DIM}--max-line raises the limit of a line{DIM:#}"))?;
        }
        self.list("file is no transcript", "files are no transcripts", &others)?;
        self.list("file was not imported", "files were not imported", &failures)?;
        if self.files > 0 {
            self.out.line(format_args!(
                "{BOLD}{} in {}, {}{BOLD:#}",
                text_format::count(self.rows.len() as u64, "session"),
                text_format::count(self.files, "file"),
                if self.appended == 0 {
                    "nothing new".to_owned()
                } else {
                    text_format::count(self.appended, "new event")
                },
            ))?;
            self.out.line(format_args!("{DIM}look at them: epitome sessions{DIM:#}"))?;
        } else if failures.is_empty() {
            self.out.line("No transcripts there.")?;
        }
        Ok(code)
    }

    fn sessions(&mut self) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if self.verbose || self.rows.len() <= LISTED {
            let mut table = text_format::table(
                &["session", "format", "new", "turns", "calls", "tokens", "threads", "compactions", "title"],
                &[2, 3, 4, 5, 6, 7],
            );
            for row in &self.rows {
                table.add_row(row);
            }
            return self.out.line(table);
        }
        for (format, (sessions, appended)) in &self.per_format {
            self.out.line(format_args!(
                "{NAME}{format:17}{NAME:#} {:>14} {:>20}",
                text_format::count(*sessions, "session"),
                text_format::count(*appended, "new event"),
            ))?;
        }
        Ok(())
    }

    fn list(&mut self, one: &str, many: &str, lines: &[String]) -> anyhow::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let what = if lines.len() == 1 { one } else { many };
        self.out.line(format_args!("{NOTE}{} {what}{NOTE:#}", lines.len()))?;
        let shown = if self.verbose { lines.len() } else { LISTED };
        for line in lines.iter().take(shown) {
            self.out.line(format_args!("  {line}"))?;
        }
        if lines.len() > shown {
            self.out.line(format_args!("  … and {} more (--verbose)", lines.len() - shown))?;
        }
        Ok(())
    }
}
