//! Subjects of a replay: the threads of transcripts and of stored sessions, made ready for a model.

use std::{collections::HashMap, sync::Arc};

use epitome::{
    compact::line,
    core::{
        Event, Fact, Seq, ThreadId,
        context::EventNaming,
        event::{InstructionKind, RawDialect, RawJson},
        id::ModelName,
        meter::Meter,
        profile::{Profile, Profiles, UnknownModelError},
        projection::EventLine,
    },
    request_plan::native_format_of,
    simulate::MeteredThread,
    wire::{
        Format, WireError,
        transcripts::{TranscriptSession, TranscriptThread, TranscriptThreadStart},
    },
};
use serde_json::{Value, json};

use super::{
    AnswerTokens, ReplayAssumption, ReplayInput,
    hidden_overhead::HiddenOverhead,
    recorded_usage::{ThreadComparison, compare},
    retention::NeededFacts,
};

/// A thread with its events.
#[derive(Clone, Debug)]
pub struct ReplaySubject {
    /// Name of the file or the session.
    pub file: String,
    /// Name of the session if the file holds more than one.
    pub key: Option<String>,
    /// Name of the subject for people.
    pub name: String,
    /// Its id.
    pub thread: ThreadId,
    /// True if this is the session's current thread.
    pub is_main: bool,
    /// Its events, with those it shares.
    pub events: Vec<Event>,
    /// First event that belongs to this thread alone.
    pub own: Seq,
}

/// A thread made ready for replay, with the assumptions that this took.
#[derive(Debug)]
pub struct PreparedReplay<'a> {
    /// The thread as it is replayed.
    pub part: ReplayInput,
    /// Model that is charged.
    pub profile: &'a Profile,
    /// Format of the requests.
    pub format: Format,
    /// Assumptions that this took.
    pub notes: Vec<ReplayAssumption>,
    /// The thread as it was sent.
    pub recorded: ThreadAsSent<'a>,
}

/// A thread as it was sent, including the client's compactions.
#[derive(Debug)]
pub struct ThreadAsSent<'a> {
    line: EventLine,
    meter: Arc<Meter>,
    /// Model that answered, if it is known.
    profile: Option<&'a Profile>,
}

impl ThreadAsSent<'_> {
    /// Compares a simulation with the recorded usage, if there is any.
    pub fn compare(&self, name: &str) -> Option<ThreadComparison> {
        compare(name, &self.line, &self.meter, self.profile)
    }
}

impl ReplaySubject {
    /// The threads of a session of a file; `key` names the session if the file holds more than one.
    pub fn of_session(session: &TranscriptSession, file: &str, key: Option<&str>) -> Vec<Self> {
        let name = key.unwrap_or(file);
        let left_at = main_line(session);
        let subject = |thread: &TranscriptThread| {
            let is_main = thread.id == session.head;
            Self {
                file: file.to_owned(),
                key: key.map(str::to_owned),
                name: if is_main { name.to_owned() } else { format!("{name}, {}", thread.name) },
                thread: thread.id,
                is_main,
                events: session.thread_events(thread.id),
                own: if is_main { Seq(1) } else { own_from(thread, &left_at) },
            }
        };
        session.threads.iter().map(subject).collect()
    }

    /// The same with a system prompt and a tool in the place of those that the transcript lacks, as large as `ready` found them to
    /// be: a live session has all of its requests.
    pub fn with_instructions(&self, ready: &PreparedReplay<'_>) -> Result<Self, WireError> {
        const LINES_COUNTED: usize = 64;
        const LINE: &str = "A rule of the agent, or a line of the definition of one of its tools.\n";
        let (format, meter, unseen) = (ready.format, ready.part.script.meter(), ready.part.unseen);
        let tokens = unseen.scale.within(unseen.prefix);
        let lines = tokens.0 * LINES_COUNTED as u64 / meter.text(&LINE.repeat(LINES_COUNTED)).0.max(1);
        if lines == 0 {
            return Ok(self.clone());
        }
        let mut tool = format.compact_tool();
        describe(&mut tool, &LINE.repeat(usize::try_from(lines).unwrap_or(0)));
        let mut added = vec![format.say_tools(&json!([tool]).to_string())?];
        let is_system =
            |event: &Event| matches!(event.fact, Fact::Instructed { what: InstructionKind::System, .. });
        if !self.events.iter().any(is_system) {
            added.push(format.say_system("You work with tools."));
        }
        let own = if self.own > Seq(1) { Seq(self.own.0 + added.len() as u64) } else { self.own };
        added.extend(self.events.iter().cloned());
        Ok(Self { events: added, own, ..self.clone() })
    }

    /// Its events that would also have happened under another policy.
    pub fn played(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| is_played(event))
    }

    /// Name of the file that its requests are written to.
    pub fn dump_file_name(&self) -> String {
        match &self.key {
            None => self.file.clone(),
            Some(key) => format!("{}.{key}.jsonl", self.file),
        }
    }

    /// Prepares a thread for replay with a model: the requested one, or its own.
    pub fn prepare<'a>(
        &self,
        model: Option<&'a Profile>,
        profiles: &'a Profiles,
    ) -> Result<PreparedReplay<'a>, UnknownModelError> {
        let native = native_format_of(self.events.iter()).unwrap_or(Format::OpenaiChat);
        let own = self.own_model(native, profiles)?;
        let profile = model.unwrap_or_else(|| own.profile());
        let spoken = Format::ALL.into_iter().find(|format| format.dialect() == profile.wire.dialect());
        let format = spoken.unwrap_or(native);
        let meter = Arc::new(profile.meter());
        let recorded = line(self.events.iter().cloned()).count_missing(&meter);
        let (played, left_out): (Vec<&Event>, Vec<&Event>) =
            self.events.iter().partition(|event| is_played(event));
        let synthetic = left_out.iter().filter(|event| is_synthetic(event)).count();
        let shared = usize::try_from(self.own.0.saturating_sub(1)).unwrap_or(usize::MAX);
        let before = self.events.iter().take(shared).filter(|event| is_played(event)).count();
        let line = line(played.into_iter().cloned()).count_missing(&meter);
        let unseen = HiddenOverhead::of(&recorded, &meter);
        let mut notes = ReplayAssumption::of(&self.events, &unseen, synthetic as u64);
        if model.is_none() {
            notes.extend(own.note());
        }
        let recorded = ThreadAsSent { line: recorded, meter: Arc::clone(&meter), profile: own.known() };
        let part = ReplayInput {
            needs: NeededFacts::of(&line),
            outputs: AnswerTokens::of(&line),
            own: Seq(before as u64 + 1),
            unseen,
            script: MeteredThread::new(line, meter, EventNaming::Thread(self.thread)),
        };
        Ok(PreparedReplay { part, profile, format, notes, recorded })
    }

    /// The thread as it was sent to the model that answered.
    pub fn as_recorded<'a>(&self, profiles: &'a Profiles) -> Result<ThreadAsSent<'a>, UnknownModelError> {
        let native = native_format_of(self.events.iter()).unwrap_or(Format::OpenaiChat);
        let own = self.own_model(native, profiles)?;
        let meter = Arc::new(own.profile().meter());
        let line = line(self.events.iter().cloned()).count_missing(&meter);
        Ok(ThreadAsSent { line, meter, profile: own.known() })
    }

    /// The last known model among those that answered.
    fn own_model<'a>(
        &self,
        native: Format,
        profiles: &'a Profiles,
    ) -> Result<ThreadModel<'a>, UnknownModelError> {
        let mut names = self.events.iter().rev().filter_map(|event| match &event.fact {
            Fact::AssistantSaid { model: Some(model), .. } | Fact::ModelChanged { model } => Some(model),
            _ => None,
        });
        if let Some(profile) = names.clone().find_map(|model| profiles.find(&model.0).ok()) {
            return Ok(ThreadModel::Known(profile));
        }
        let profile = profiles.find(native.usual_model())?;
        Ok(ThreadModel::Unknown {
            name: names.next().map(|ModelName(name)| name.clone()),
            stands_in: profile,
        })
    }
}

/// Gives a tool another name, and this description.
fn describe(tool: &mut Value, text: &str) {
    match tool {
        Value::Object(members) if members.contains_key("name") => {
            members.insert("name".to_owned(), json!("work"));
            members.insert("description".to_owned(), json!(text));
        }
        Value::Object(members) => members.values_mut().for_each(|member| describe(member, text)),
        Value::Array(items) => items.iter_mut().for_each(|item| describe(item, text)),
        _ => {}
    }
}

/// Model that answered in a thread.
enum ThreadModel<'a> {
    Known(&'a Profile),
    Unknown { name: Option<String>, stands_in: &'a Profile },
}

impl<'a> ThreadModel<'a> {
    fn profile(&self) -> &'a Profile {
        match self {
            Self::Known(profile) | Self::Unknown { stands_in: profile, .. } => profile,
        }
    }

    fn known(&self) -> Option<&'a Profile> {
        match self {
            Self::Known(profile) => Some(profile),
            Self::Unknown { .. } => None,
        }
    }

    fn note(&self) -> Option<ReplayAssumption> {
        match self {
            Self::Known(_) => None,
            Self::Unknown { name, stands_in } => {
                Some(ReplayAssumption::unknown_model(name.clone(), &stands_in.name))
            }
        }
    }
}

/// Model name that Claude Code writes when it answers in the model's place.
const SYNTHETIC: &str = "<synthetic>";

/// Returns true if an event would also have happened under another policy. A client's own compaction would
/// not, and words that it put in the model's mouth are no answer.
fn is_played(event: &Event) -> bool {
    match &event.fact {
        Fact::Compacted(_)
        | Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. } => false,
        _ => !is_synthetic(event),
    }
}

/// Returns true if the client answered in the model's place. The reader drops this model name, but the raw
/// JSON still has it.
fn is_synthetic(event: &Event) -> bool {
    let Fact::AssistantSaid { model: None, .. } = &event.fact else { return false };
    let RawJson { dialect: RawDialect::Anthropic, json } = &event.raw else { return false };
    json.contains(SYNTHETIC)
        && serde_json::from_str::<Value>(json).is_ok_and(|message| message["model"] == SYNTHETIC)
}

/// The events at which the main thread's line leaves each of its ancestors.
fn main_line(session: &TranscriptSession) -> HashMap<ThreadId, Seq> {
    let mut left_at = HashMap::new();
    let mut at = session.head;
    while let Some(thread) = session.threads.iter().find(|thread| thread.id == at) {
        let TranscriptThreadStart::Fork { of, at: last } = &thread.start else { break };
        // A thread that descends from itself has no ancestors.
        if left_at.insert(*of, *last).is_some() {
            break;
        }
        at = *of;
    }
    left_at
}

/// First event of a thread that is in no other thread and not in the main line: shared events are replayed
/// once.
fn own_from(thread: &TranscriptThread, left_at: &HashMap<ThreadId, Seq>) -> Seq {
    let shared = match &thread.start {
        TranscriptThreadStart::Fork { at, .. } => *at,
        TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => Seq::START,
    };
    left_at.get(&thread.id).copied().unwrap_or_default().max(shared).next()
}
