//! From a context to a continuation.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use epitome_core::{
    ContentPart, Fact,
    context::{
        AnswerMessage, Context, ContextMessage, SegmentContent, ShownCall, ToolResultsMessage,
        UNANSWERED_TEXT, VisibleOutcome,
    },
    event::{LoggedEvent, RawDialect, ReasoningSeal, ToolResult},
    id::CallId,
};

use super::{
    Continuation, ContinuedContent, ContinuedMessage, OwnRecord, ResumableAgent, part_text, text_of,
};
use crate::is_project_preamble;

/// The line before calls that are told in words. [`client_text`](epitome_core) knows its beginning.
const TOLD_CALLS: &str = "[Tool calls of the earlier session, told in words:]";

/// The answer after results that no answer follows. A provider takes a loop of calls that ends in results for open, and
/// then asks for the thinking that began it.
pub(in crate::transcripts) const STOPPED: &str = "[The earlier session stopped here.]";

impl Continuation {
    /// The continuation of a session of `source` in `target`. Instructions are left out: the agent has its own.
    pub fn of(context: &Context, source: Option<ResumableAgent>, target: ResumableAgent) -> Self {
        let kinship = if source == Some(target) { AgentKinship::Same } else { AgentKinship::Other };
        let mut draft = ContinuationDraft {
            target,
            kinship,
            continuation: Self::default(),
            calls: HashSet::new(),
            renamed: HashMap::new(),
        };
        for message in context.messages() {
            draft.take(message);
        }
        draft.close();
        draft.continuation
    }
}

/// Relation of the agent that made a session to the one that goes on with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentKinship {
    /// They are the same, and so are their tools.
    Same,
    /// Their tools differ.
    Other,
}

struct ContinuationDraft {
    target: ResumableAgent,
    kinship: AgentKinship,
    continuation: Continuation,
    /// Ids of the calls so far: providers refuse one that comes twice.
    calls: HashSet<CallId>,
    /// New ids of the newest answer's calls.
    renamed: HashMap<CallId, CallId>,
}

impl ContinuationDraft {
    fn take(&mut self, message: ContextMessage<'_>) {
        match message {
            ContextMessage::Instruction { .. } => {}
            ContextMessage::User { event, content, .. } => self.user(event, content),
            ContextMessage::Answer(answer) => self.answer(&answer),
            ContextMessage::Returned(returned) => self.returned(&returned),
            ContextMessage::Carried { event, .. } => {
                if self.kinship == AgentKinship::Same && self.target == ResumableAgent::Codex {
                    self.push(event, ContinuedContent::Carried, Some((&event.event.raw).into()));
                }
            }
            ContextMessage::Summary { event, compaction, .. } => {
                self.stands_for_the_past(event, compaction.summary.text());
            }
            ContextMessage::Note { note, .. } => {
                if self.continuation.messages.is_empty() {
                    self.extend_summary(&note.text);
                } else {
                    let content = ContinuedContent::Added(note.text.clone());
                    self.continuation.messages.push(ContinuedMessage { time: None, content, own: None });
                }
            }
        }
    }

    fn stands_for_the_past(&mut self, event: &LoggedEvent, text: &str) {
        if self.continuation.messages.is_empty() {
            self.extend_summary(text);
        } else {
            self.push(event, ContinuedContent::Added(text.to_owned()), None);
        }
    }

    fn extend_summary(&mut self, text: &str) {
        match &mut self.continuation.summary {
            Some(summary) => {
                summary.push_str("\n\n");
                summary.push_str(text);
            }
            None => self.continuation.summary = Some(text.to_owned()),
        }
    }

    fn user(&mut self, event: &LoggedEvent, content: &SegmentContent) {
        let (parts, is_whole) = match content {
            SegmentContent::AsSent => (event.event.fact.parts(), true),
            SegmentContent::Replaced(parts) => (parts.as_slice(), false),
        };
        let own = is_whole.then(|| self.own(event)).flatten();
        if matches!(event.event.fact, Fact::Injected { .. }) {
            let text = text_of(parts);
            if !text.is_empty() && (self.kinship == AgentKinship::Same || !is_of_the_agent(&text)) {
                self.push(event, ContinuedContent::Added(text), own);
            }
        } else if !text_of(parts).is_empty() {
            self.push(event, ContinuedContent::User(parts.to_vec()), own);
        }
    }

    fn answer(&mut self, answer: &AnswerMessage<'_>) {
        self.renamed.clear();
        for fragment in &answer.fragments {
            let mut parts: Vec<ContentPart> =
                fragment.shown().filter(|part| self.keeps(part)).cloned().collect();
            if parts.is_empty() {
                continue;
            }
            self.rename_repeated_calls(&mut parts);
            let is_same = fragment.is_whole() && parts == fragment.event.event.fact.parts();
            let own = is_same.then(|| self.own(fragment.event)).flatten();
            let (answer, model) = match &fragment.event.event.fact {
                Fact::AssistantSaid { answer, model, .. } => (answer.clone(), model.clone()),
                _ => (None, None),
            };
            self.push(fragment.event, ContinuedContent::Answer { answer, model, parts }, own);
        }
    }

    /// Returns true if a part of an answer goes along. Reasoning is bound to what came before it, which has changed; only
    /// pi and OpenCode keep what no one but its provider reads, since calls may refer to it.
    fn keeps(&self, part: &ContentPart) -> bool {
        let is_same = self.kinship == AgentKinship::Same;
        match part {
            ContentPart::Reasoning { seal, .. } => {
                let keeps_sealed = matches!(self.target, ResumableAgent::Pi | ResumableAgent::Opencode);
                is_same && keeps_sealed && matches!(seal, Some(ReasoningSeal::Encrypted(_)))
            }
            ContentPart::ToolCall(_) => is_same,
            part => part_text(part).is_some(),
        }
    }

    /// Gives a new id to each call whose id was met before.
    fn rename_repeated_calls(&mut self, parts: &mut [ContentPart]) {
        for part in parts {
            let ContentPart::ToolCall(call) = part else { continue };
            if !self.calls.insert(call.id.clone()) {
                let new = CallId(format!("{}_{}", call.id.0, self.calls.len()));
                self.calls.insert(new.clone());
                self.renamed.insert(std::mem::replace(&mut call.id, new.clone()), new);
            }
        }
    }

    fn returned(&mut self, returned: &ToolResultsMessage<'_>) {
        let event = returned.event.or_else(|| returned.outcomes.first().map(|outcome| outcome.caller));
        let Some(event) = event else { return };
        let is_own = returned.is_whole() && returned.event.is_some() && self.renamed.is_empty();
        match self.kinship {
            AgentKinship::Same => {
                let own = is_own.then(|| self.own(event)).flatten();
                let holds_beside = own.is_some();
                let results = returned.outcomes.iter().filter_map(|outcome| self.result(outcome)).collect();
                self.push(event, ContinuedContent::Results(results), own);
                if holds_beside {
                    return;
                }
            }
            AgentKinship::Other => {
                let mut words = String::from(TOLD_CALLS);
                returned.outcomes.iter().for_each(|outcome| tell(outcome, &mut words));
                self.push(event, ContinuedContent::Added(words), None);
            }
        }
        if let (Some(event), Some((_, content))) = (returned.event, returned.beside) {
            let parts = match content {
                SegmentContent::AsSent => event.event.fact.parts(),
                SegmentContent::Replaced(parts) => parts.as_slice(),
            };
            if !text_of(parts).is_empty() {
                self.push(event, ContinuedContent::User(parts.to_vec()), None);
            }
        }
    }

    /// A call's result as it is shown.
    fn result(&self, outcome: &ShownCall<'_>) -> Option<ToolResult> {
        let call = outcome.call()?;
        Some(ToolResult {
            call: self.renamed.get(&call.id).unwrap_or(&call.id).clone(),
            name: Some(call.name.clone()),
            parts: shown_parts(outcome),
            error: outcome.result().is_some_and(|sent| sent.error),
        })
    }

    /// The agent's own record of an event that is as it was.
    fn own(&self, event: &LoggedEvent) -> Option<OwnRecord> {
        let is_agents = match (&event.event.raw.dialect, self.target) {
            (RawDialect::Anthropic, ResumableAgent::ClaudeCode)
            | (RawDialect::OpenaiResponses, ResumableAgent::Codex) => true,
            (RawDialect::Native(name), target) => name == target.name(),
            _ => false,
        };
        (self.kinship == AgentKinship::Same && is_agents).then(|| (&event.event.raw).into())
    }

    fn push(&mut self, event: &LoggedEvent, content: ContinuedContent, own: Option<OwnRecord>) {
        self.continuation.messages.push(ContinuedMessage { time: event.event.time, content, own });
    }

    /// Ends the last loop of calls, if no answer did.
    fn close(&mut self) {
        let messages = &mut self.continuation.messages;
        let Some(last) = messages.last() else { return };
        if matches!(last.content, ContinuedContent::Results(_)) {
            let parts = vec![ContentPart::text(STOPPED)];
            let content = ContinuedContent::Answer { answer: None, model: None, parts };
            messages.push(ContinuedMessage { time: last.time, content, own: None });
        }
    }
}

/// Returns true for a text that tells another agent's model about that agent.
fn is_of_the_agent(text: &str) -> bool {
    text.trim_start().starts_with("<system-reminder") || is_project_preamble(text)
}

fn shown_parts(outcome: &ShownCall<'_>) -> Vec<ContentPart> {
    match outcome.shown {
        VisibleOutcome::Unanswered => vec![ContentPart::text(UNANSWERED_TEXT)],
        VisibleOutcome::Returned { content: SegmentContent::Replaced(parts), .. } => parts.clone(),
        VisibleOutcome::Returned { content: SegmentContent::AsSent, .. } => {
            outcome.result().map(|result| result.parts.clone()).unwrap_or_default()
        }
    }
}

/// Tells a call and its outcome.
fn tell(outcome: &ShownCall<'_>, words: &mut String) {
    let Some(call) = outcome.call() else { return };
    let failed = if outcome.result().is_some_and(|result| result.error) { ", which failed" } else { "" };
    let text = text_of(&shown_parts(outcome));
    let text = if text.is_empty() { "(nothing)" } else { &text };
    let _ = write!(words, "\n\nCall of {}{failed}: {}\nIt returned:\n{text}", call.name, call.arguments);
}
