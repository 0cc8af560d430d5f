//! Events, read into a trail.

use std::{collections::HashMap, sync::Arc};

use super::{AnswerPart, CallEffect, CallEnding, Trail, TrailCall, TrailEntry, TrailKind};
use crate::{
    client_text::{ClientTextKind, spans},
    draft_gate::{holds_secret, without_keys},
    event::{ContentPart, Fact, LoggedEvent, ToolCall, ToolResult},
    id::Seq,
    pairing::{CallOutcome, Exchange, PairedCalls},
    summary::{
        call_subjects::{plain_path, short_digest},
        extraction::{closing_answer_events, text},
        reading_cache::ReadingCache,
        requests::request_text,
        sentences::one_line,
        tools::{ToolEffect, effects, failure, output_of},
    },
};

/// How much is kept of what a client wrote in the user's name: it says that something happened, and seldom more.
const CLIENT_TEXT: usize = 200;

/// How much is kept of the words of a failure.
const FAILURE: usize = 200;

/// How long a tool's name may be.
const TOOL: usize = 60;

impl Trail {
    /// What happened before, and in this span. Of the span everything is whole; [`within`](Self::within) makes it fit.
    pub(in crate::summary) fn extended_with(
        mut self,
        span: &[Arc<LoggedEvent>],
        paired: &PairedCalls<'_>,
        reading: &mut ReadingCache,
    ) -> Self {
        let mut calls: HashMap<Seq, Vec<&Exchange<'_>>> = HashMap::new();
        for exchange in &paired.exchanges {
            calls.entry(exchange.at).or_default().push(exchange);
        }
        let closing = closing_answer_events(span);
        for event in span {
            let at = event.id.seq;
            if let Fact::UserSaid { parts } | Fact::ToolReturned { parts, .. } = &event.event.fact {
                self.entries.extend(client_notes(at, parts));
                self.entries.extend(user_words(at, parts));
            } else if let Fact::AssistantSaid { parts, .. } = &event.event.fact {
                let part = if closing.contains(&at) { AnswerPart::Report } else { AnswerPart::Remark };
                self.entries.extend(assistant_words(at, parts, part));
                let made = calls.remove(&at).unwrap_or_default();
                let read = reading.calls(at, || made.into_iter().map(call_entry).collect());
                self.entries.extend_from_slice(&read);
            }
        }
        self
    }
}

fn user_words(at: Seq, parts: &[ContentPart]) -> Option<TrailEntry> {
    let text = without_keys(&request_text(parts));
    (!text.trim().is_empty()).then_some(TrailEntry { at, what: TrailKind::User { text } })
}

/// What a client tells in the user's name of what happened. What it says of surroundings and rules stands elsewhere.
fn client_notes(at: Seq, parts: &[ContentPart]) -> Vec<TrailEntry> {
    let notes =
        ContentPart::texts(parts).flat_map(|text| spans(text).into_iter().map(move |span| (text, span)));
    let notes = notes.filter_map(|(text, span)| {
        let kind = span.kind.filter(|kind| reports_an_event(*kind))?;
        let text = format!("{}: {}", kind.name(), one_line(text.get(span.range)?, CLIENT_TEXT));
        Some(TrailEntry { at, what: TrailKind::Client { text: without_keys(&text) } })
    });
    notes.collect()
}

/// Whether a client's text says that something happened.
fn reports_an_event(kind: ClientTextKind) -> bool {
    matches!(
        kind,
        ClientTextKind::Notification
            | ClientTextKind::CommandEcho
            | ClientTextKind::CommandOutput
            | ClientTextKind::HookOutput
            | ClientTextKind::Interruption
            | ClientTextKind::Attachment
            | ClientTextKind::ToolOutput
    )
}

fn assistant_words(at: Seq, parts: &[ContentPart], part: AnswerPart) -> Option<TrailEntry> {
    let text = without_keys(text(parts).trim());
    if text.is_empty() { None } else { Some(TrailEntry { at, what: TrailKind::Assistant { text, part } }) }
}

fn call_entry(exchange: &Exchange<'_>) -> TrailEntry {
    let call = exchange.call;
    let (at, result) = match exchange.outcome {
        CallOutcome::Returned { at, result } => (at, Some(result)),
        CallOutcome::Unanswered => (exchange.at, None),
    };
    let (effect, subject) = effect(call, result);
    let output = result.map(|result| output(effect, result)).unwrap_or_default();
    let lines = output.lines().count() as u64;
    let arguments = without_keys(&arguments(call));
    let tool = one_line(&call.name.0, TOOL);
    let ending = ending(call, result);
    let call = TrailCall { tool, arguments, effect, subject, ending, output, lines };
    TrailEntry { at, what: TrailKind::Call(call) }
}

/// What a call was given, in one line: JSON as it came, and free text as a JSON string.
fn arguments(call: &ToolCall) -> String {
    let given = call.arguments.trim();
    if given.contains('\n') || !given.starts_with(['{', '[', '"']) {
        // A pretty-printed object is one line of JSON; whatever is not JSON becomes a string of it.
        let value = serde_json::from_str::<serde_json::Value>(given);
        return value.unwrap_or_else(|_| given.into()).to_string();
    }
    given.to_owned()
}

fn ending(call: &ToolCall, result: Option<&ToolResult>) -> CallEnding {
    let Some(result) = result else { return CallEnding::Unanswered };
    match failure(call, result) {
        None => CallEnding::Returned,
        Some(failed) => {
            let exit = failed.exit.map(|exit| format!("exit {exit}"));
            let words = [exit.as_deref().unwrap_or_default(), &failed.words].join(" ");
            CallEnding::Failed(one_line(&without_secrets(words), FAILURE))
        }
    }
}

/// What a call did, and what it was about.
fn effect(call: &ToolCall, result: Option<&ToolResult>) -> (CallEffect, String) {
    let done = effects(call, result);
    let changed = done.iter().find(|effect| matches!(effect, ToolEffect::Changed { .. }));
    let read = || done.iter().find(|effect| matches!(effect, ToolEffect::Read { .. }));
    match changed.or_else(read) {
        Some(ToolEffect::Changed { path, .. }) => (CallEffect::Changed, plain_path(path)),
        // Another part of the same file makes nothing outdated.
        Some(ToolEffect::Read { path, part }) if !part.is_empty() => {
            (CallEffect::Read, format!("{}:{part}", plain_path(path)))
        }
        Some(ToolEffect::Read { path, .. }) => (CallEffect::Read, plain_path(path)),
        // The same call is known again by what it was given.
        _ => (CallEffect::Other, short_digest(&format!("{}\n{}", call.name.0, call.arguments))),
    }
}

/// What a call returned, without what is secret in it. In a file that was read a password is most often only a name.
fn output(effect: CallEffect, result: &ToolResult) -> String {
    let text = output_of(result);
    let text = without_keys(without_reminders(&text).trim_end());
    match effect {
        CallEffect::Read => text,
        CallEffect::Changed | CallEffect::Other => without_secrets(text),
    }
}

/// An output without the reminders that a client puts behind it.
fn without_reminders(text: &str) -> &str {
    let mut text = text.trim_end();
    if !text.ends_with('>') {
        return text;
    }
    for span in spans(text).iter().rev() {
        if span.kind != Some(ClientTextKind::Reminder) || span.range.end != text.len() {
            break;
        }
        text = text[..span.range.start].trim_end();
    }
    text
}

/// A text without the lines that hold secrets: these are not carried on.
fn without_secrets(text: String) -> String {
    if !holds_secret(&text) {
        return text;
    }
    let lines = text.lines().map(|line| if holds_secret(line) { "[a secret, left out]" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}
