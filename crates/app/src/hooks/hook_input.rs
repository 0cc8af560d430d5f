//! What an agent tells a hook, and the session it is about.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use epitome::{
    core::{Seq, ThreadId},
    import::{ImportedFile, import_bytes, import_file},
    queries::head_thread,
    store::{Store, records::SessionRow},
    wire::transcripts::TranscriptLimits,
};
use serde_json::{Map, Value};

use crate::setup::SetupAgent;

/// Largest input that is read: an agent's whole session may be in it.
pub(crate) const MAX_INPUT_BYTES: usize = 256 << 20;

/// Largest transcript that a hook reads by itself, in bytes. A larger one is what the watching process has of it.
const MAX_TRANSCRIPT_BYTES: u64 = 32 << 20;

/// What the agent tells.
pub(super) struct HookInput(Map<String, Value>);

impl HookInput {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        if text.len() > MAX_INPUT_BYTES {
            bail!("the input of the hook is too large: {} bytes", text.len());
        }
        match serde_json::from_str(text).context("the input of the hook is no JSON")? {
            Value::Object(members) => Ok(Self(members)),
            _ => bail!("the input of the hook is no object"),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    pub(super) fn tool_input(&self) -> Option<&Map<String, Value>> {
        self.0.get("tool_input").and_then(Value::as_object)
    }
}

/// A session, as it is recorded.
pub(super) struct HookSession {
    pub(super) row: SessionRow,
    pub(super) thread: ThreadId,
}

impl HookSession {
    /// The session with everything that its transcript holds by now, if it can be read.
    pub(super) fn current(
        input: &HookInput,
        agent: SetupAgent,
        store: &Arc<dyn Store>,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(transcript) = input.0.get("transcript") {
            let text = transcript.to_string();
            let name = input.text("session_id").unwrap_or(agent.name());
            return Self::imported(
                import_bytes(&**store, name, text.as_bytes(), &TranscriptLimits::default())?,
                store,
            );
        }
        if let Some(path) = input.text("transcript_path").map(Path::new)
            && std::fs::metadata(path).is_ok_and(|found| found.len() <= MAX_TRANSCRIPT_BYTES)
        {
            return Self::imported(import_file(&**store, path, &TranscriptLimits::default())?, store);
        }
        Self::recorded(input, &**store)
    }

    fn imported(file: ImportedFile, store: &Arc<dyn Store>) -> anyhow::Result<Option<Self>> {
        match file.sessions.into_iter().next() {
            Some(session) => Self::of(session.row, &**store).map(Some),
            None => Ok(None),
        }
    }

    /// The session as it was recorded last.
    pub(super) fn recorded(input: &HookInput, store: &dyn Store) -> anyhow::Result<Option<Self>> {
        let Some(key) = input.text("session_id") else { return Ok(None) };
        match store.session_by_key("", key)? {
            Some(session) => Self::of(store.session(session)?, store).map(Some),
            None => Ok(None),
        }
    }

    fn of(row: SessionRow, store: &dyn Store) -> anyhow::Result<Self> {
        let thread = head_thread(store, &row)?.id;
        Ok(Self { row, thread })
    }

    /// Returns true if the agent compacted the session at some time.
    pub(super) fn has_compaction(&self, store: &dyn Store) -> anyhow::Result<bool> {
        Ok(!store.events_of_kinds(self.thread, &["compacted"])?.is_empty())
    }

    /// The first event of an entry of the transcript, by the agent's name for it.
    pub(super) fn event_of(&self, store: &dyn Store, entry: &str) -> anyhow::Result<Option<Seq>> {
        let events = epitome::queries::events(store, self.thread, None)?;
        let found = events.iter().find(|logged| logged.event.origin.as_deref() == Some(entry));
        Ok(found.map(|logged| logged.id.seq))
    }
}
