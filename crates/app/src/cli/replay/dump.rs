//! `--dump`: every request, so that others can check the numbers.
//!
//! A line holds what was not in the line before: most requests only grow. Marks for the cache are left out, since they
//! move with every call.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use epitome::{
    core::{Digest, Fact, event::Usage},
    wire::{
        Format,
        render::{CacheBreakpoints, RenderOptions, RenderedRequest},
    },
};
use epitome_measure::replay::{ReplaySubject, ReplayedRequest};
use serde::Serialize;
use serde_json::Value;

use super::{super::text_format, replay_location::ReplayLocation};

/// Folder for requests.
pub(super) struct RequestDump {
    folder: PathBuf,
    /// Files that are replayed and must not be overwritten.
    read: Vec<PathBuf>,
}

/// The requests of a session under a policy.
pub(super) struct DumpFile {
    path: PathBuf,
    file: BufWriter<File>,
    format: Format,
    /// Digests of the messages in the line before.
    sent: Vec<Digest>,
}

#[derive(Serialize)]
struct DumpLine<'a> {
    call: u64,
    answer: Option<&'a str>,
    time: Option<String>,
    prefix_messages: usize,
    request: Value,
    summarizer: Option<DumpedSummarizerCall>,
}

#[derive(Serialize)]
struct DumpedSummarizerCall {
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    request: Value,
}

impl RequestDump {
    /// Creates the folder, unless two of the places would be written to one file.
    pub(super) fn new(folder: &Path, places: &[ReplayLocation]) -> anyhow::Result<Self> {
        let mut names = BTreeSet::new();
        if let Some(twice) = places.iter().map(ReplayLocation::name).find(|name| !names.insert(name.clone()))
        {
            bail!(
                "--dump names files as the sessions' files, and there are two {twice}: replay them one by one"
            );
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), read: places.iter().filter_map(ReplayLocation::path).collect() })
    }

    /// Begins the file of a session, overwriting an older one.
    pub(super) fn file(
        &self,
        policy: &str,
        subject: &ReplaySubject,
        format: Format,
    ) -> anyhow::Result<DumpFile> {
        let folder = self.folder.join(as_name(policy));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join(as_name(&subject.dump_file_name()));
        if path.canonicalize().is_ok_and(|path| self.read.contains(&path)) {
            bail!("--dump would write over {}, which is being replayed: name another folder", path.display());
        }
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(DumpFile { path, file: BufWriter::new(file), format, sent: Vec::new() })
    }
}

/// Makes a file name that cannot lead out of the folder.
fn as_name(name: &str) -> String {
    let safe = name.replace(['/', '\\', '\0'], "_");
    if Path::new(&safe).file_name().is_some() { safe } else { format!("_{safe}") }
}

impl DumpFile {
    /// Writes a call.
    pub(super) fn write(&mut self, shown: &ReplayedRequest<'_>) -> anyhow::Result<()> {
        let unmarked = RenderOptions { breakpoints: CacheBreakpoints::AsSent, ..shown.options.clone() };
        let rendered = self.format.render(shown.context, &unmarked)?;
        let digests: Vec<Digest> =
            messages(&rendered).map(|message| Digest::of(message.as_bytes())).collect();
        let same = self.sent.iter().zip(&digests).take_while(|(sent, now)| sent == now).count();
        let answer = match &shown.answer.event.fact {
            Fact::AssistantSaid { answer, .. } => answer.as_ref().map(|answer| answer.0.as_str()),
            _ => None,
        };
        let summarised = shown.summariser.zip(shown.played.summarised.as_ref());
        let line = DumpLine {
            call: shown.played.call,
            answer: answer.or(shown.answer.event.origin.as_deref()),
            time: shown.played.at.and_then(text_format::rfc3339),
            prefix_messages: same,
            request: serde_json::from_str(&after(&rendered, same))?,
            summarizer: match summarised {
                Some((request, summarised)) => Some(DumpedSummarizerCall::of(request, &summarised.usage)?),
                None => None,
            },
        };
        self.sent = digests;
        serde_json::to_writer(&mut self.file, &line)?;
        self.file.write_all(b"\n").with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Writes buffered lines.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl DumpedSummarizerCall {
    fn of(request: &str, usage: &Usage) -> anyhow::Result<Self> {
        Ok(Self {
            input_tokens: usage.input().0,
            cached_tokens: usage.cache_read.0,
            output_tokens: usage.output.0,
            request: serde_json::from_str(request)?,
        })
    }
}

fn messages(rendered: &RenderedRequest) -> impl Iterator<Item = &str> {
    rendered.messages.iter().filter_map(|message| rendered.body.get(message.bytes.clone()))
}

/// A request without its first `messages` messages.
fn after(rendered: &RenderedRequest, messages: usize) -> String {
    let body = &rendered.body;
    let Some(first) = rendered.messages.first() else { return body.clone() };
    let from = match rendered.messages.get(messages) {
        Some(next) => next.bytes.start,
        None => rendered.messages.last().map_or(first.bytes.start, |last| last.bytes.end),
    };
    format!("{}{}", &body[..first.bytes.start], &body[from..])
}
