//! Helpers of the readers' tests: a reading in words, and the checks for files that grow.

use std::fmt::Write as _;

use epitome_core::{
    ContentPart, Event, Fact, Seq,
    event::{Pin, ReasoningSeal, Summary},
};

use super::{
    TranscriptError, TranscriptFile, TranscriptLimits, TranscriptSession, TranscriptThread,
    TranscriptThreadStart,
};

/// A reader.
pub(crate) type TestReader = fn(&str, &[u8], &TranscriptLimits) -> Result<TranscriptFile, TranscriptError>;

/// Reads a text that must be readable.
pub(crate) fn reading(read: TestReader, text: &str) -> TranscriptFile {
    read("file", text.as_bytes(), &TranscriptLimits::default()).expect("the fixture can be read")
}

/// A reading in words: a line per event, warnings and skipped records below.
pub(crate) fn shown(reading: &TranscriptFile) -> String {
    let mut out = String::new();
    for session in &reading.sessions {
        show_session(&mut out, session);
    }
    for warning in &reading.warnings {
        writeln!(out, "! {warning}").expect("strings can be written to");
    }
    if !reading.skipped.is_empty() {
        writeln!(out, "skipped {:?}", reading.skipped).expect("strings can be written to");
    }
    out
}

/// Asserts that reading any first lines of a text gives the first events of reading it all, thread by thread.
pub(crate) fn grows(read: TestReader, text: &str) {
    let whole = reading(read, text);
    let ends = text.match_indices('\n').map(|(at, _)| at + 1).chain([text.len()]);
    for end in ends {
        let Ok(early) = read("file", &text.as_bytes()[..end], &TranscriptLimits::default()) else { continue };
        is_prefix(&early, &whole, end);
    }
    // A line that is not complete yet must not add anything either.
    for end in (1..text.len()).filter(|end| text.is_char_boundary(*end)).step_by(7) {
        if let Ok(early) = read("file", &text.as_bytes()[..end], &TranscriptLimits::default()) {
            is_prefix(&early, &whole, end);
        }
    }
}

/// Asserts that every thread of `early` is in `whole`, and begins it.
pub(crate) fn is_prefix(early: &TranscriptFile, whole: &TranscriptFile, end: usize) {
    for (early, whole) in early.sessions.iter().zip(&whole.sessions) {
        assert_eq!((early.id, &early.key), (whole.id, &whole.key));
        for (index, thread) in early.threads.iter().enumerate() {
            let later = &whole.threads[index];
            assert_eq!((thread.id, &thread.name), (later.id, &later.name));
            let same_start = thread.start == later.start
                || matches!(
                    (&thread.start, &later.start),
                    (
                        TranscriptThreadStart::Spawned { call: None, .. },
                        TranscriptThreadStart::Spawned { .. }
                    )
                );
            assert!(same_start, "{} starts elsewhere after {end} bytes", thread.name);
            assert!(later.events.starts_with(&thread.events), "{} differs after {end} bytes", thread.name);
        }
    }
}

/// Reads any file that must be readable.
pub(crate) fn any_reading(text: &str) -> TranscriptFile {
    reading(super::read, text)
}

/// Asserts that a file of the first records, however many, gives the first events of the file of all of them.
pub(crate) fn grows_by(records: &[&str], file: impl Fn(&[&str]) -> String) {
    let whole = any_reading(&file(records));
    for count in 0..records.len() {
        if let Ok(early) =
            super::read("file", file(&records[..count]).as_bytes(), &TranscriptLimits::default())
        {
            assert!(early.sessions.len() <= whole.sessions.len());
            is_prefix(&early, &whole, count);
        }
    }
}

/// Every event of every thread of a session.
pub(crate) fn events(session: &TranscriptSession) -> impl Iterator<Item = &Event> {
    session.threads.iter().flat_map(|thread| &thread.events)
}

fn show_session(out: &mut String, session: &TranscriptSession) {
    let head = session.threads.iter().find(|thread| thread.id == session.head).expect("the head is a thread");
    let title = session.title.as_deref().unwrap_or("untitled");
    writeln!(out, "session {}: {title}, at {}", session.key, head.name).expect("strings can be written to");
    for thread in &session.threads {
        show_thread(out, session, thread);
    }
}

fn show_thread(out: &mut String, session: &TranscriptSession, thread: &TranscriptThread) {
    let name =
        |id| session.threads.iter().find(|thread| thread.id == id).map_or("elsewhere", |thread| &thread.name);
    let (start, mut seq) = match &thread.start {
        TranscriptThreadStart::Root => (String::new(), Seq::START),
        TranscriptThreadStart::Fork { of, at } => (format!(", forked from {} at {at}", name(*of)), *at),
        TranscriptThreadStart::Spawned { by, call } => {
            let by = by.map_or("unknown", name);
            (format!(", spawned by {by} with {}", call.as_ref().map_or("?", |call| &call.0)), Seq::START)
        }
    };
    writeln!(out, " {}{start}", thread.name).expect("strings can be written to");
    for event in &thread.events {
        seq = seq.next();
        let origin = event.origin.as_deref().unwrap_or("-");
        let time = event.time.map_or(String::new(), |time| format!(" @{}", time.0 % 100_000));
        let dialect = &event.raw.dialect;
        writeln!(out, "  {seq} [{origin}{time} {dialect}] {}", show_fact(&event.fact))
            .expect("strings can be written to");
    }
}

fn show_fact(fact: &Fact) -> String {
    let parts = |parts: &[ContentPart]| parts.iter().map(show_part).collect::<Vec<_>>().join(" ");
    let of = |answer: &Option<epitome_core::id::AnswerId>, model: &Option<epitome_core::id::ModelName>| {
        let answer = answer.as_ref().map_or("-", |answer| &answer.0);
        format!("{answer}/{}", model.as_ref().map_or("-", |model| &model.0))
    };
    let kind = fact.kind();
    match fact {
        Fact::Instructed { what, parts: said } => {
            format!("{kind} {what:?} {}", parts(said)).trim_end().to_owned()
        }
        Fact::AssistantSaid { answer, model, parts: said } => {
            format!("{kind} {} {}", of(answer, model), parts(said))
        }
        Fact::ToolReturned { results, parts: beside } => {
            let result = |result: &epitome_core::event::ToolResult| {
                let error = if result.error { " failed:" } else { "" };
                format!("{}{error} {}", result.call, parts(&result.parts))
            };
            let results: Vec<_> = results.iter().map(result).collect();
            format!("{kind} {} {}", results.join("; "), parts(beside)).trim_end().to_owned()
        }
        Fact::Compacted(compaction) => {
            let summary = match &compaction.summary {
                Summary::Text(text) | Summary::Structured { text, .. } => format!("{text:?}"),
                Summary::Encrypted(hidden) => format!("encrypted {hidden:?}"),
            };
            let kept = compaction.first_kept.map_or("none".to_owned(), |seq| seq.to_string());
            let before = compaction.tokens_before.map_or("?".to_owned(), |tokens| tokens.to_string());
            format!(
                "{kind} through {} kept {kept} before {before} {:?} {summary}",
                compaction.through, compaction.trigger
            )
        }
        Fact::Injected { hook, beside, parts: said } => {
            let beside = beside.map_or(String::new(), |seq| format!(" beside {seq}"));
            format!("{kind} {hook}{beside} {}", parts(said))
        }
        Fact::UsageReported { answer, model, usage } => format!(
            "{kind} {} {}+{}+{}>{}",
            of(answer, model),
            usage.uncached,
            usage.cache_read,
            usage.cache_write,
            usage.output
        ),
        Fact::ModelChanged { model } => format!("{kind} {model}"),
        Fact::Carried { kind: what } => format!("{kind} {what}"),
        Fact::CompactionRequested { trigger, .. } => format!("{kind} {trigger:?}"),
        Fact::Pinned { pin: Pin::Text(text) } | Fact::Unpinned { pin: Pin::Text(text) } => {
            format!("{kind} {text}")
        }
        Fact::UserSaid { .. }
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. }
        | Fact::Pinned { .. }
        | Fact::Unpinned { .. } => {
            format!("{kind} {}", parts(fact.parts()))
        }
    }
}

fn show_part(part: &ContentPart) -> String {
    match part {
        ContentPart::Text { text } => format!("{text:?}"),
        ContentPart::Reasoning { text, seal } => {
            let seal = match seal {
                None => String::new(),
                Some(ReasoningSeal::Signature(signature)) => format!(" signed {signature}"),
                Some(ReasoningSeal::Encrypted(hidden)) => format!(" hidden {hidden}"),
            };
            format!("<{text}{seal}>")
        }
        ContentPart::ToolCall(call) => format!("{}({} {})", call.name, call.id, call.arguments),
        ContentPart::Refusal { text } => format!("refused {text:?}"),
        ContentPart::Media(media) => format!("media {}", media.mime),
        ContentPart::Opaque { name, json } => format!("{name}{json}"),
    }
}
