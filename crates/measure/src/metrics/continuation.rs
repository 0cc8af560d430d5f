//! Ends of the tasks that an agent worked on over a summary.
//!
//! A task is a request of the user with everything up to the next one. That no call of it failed says little: an agent that has
//! lost its thread still answers. What counts is how the task ended.

use std::{collections::HashMap, fmt};

use epitome::{
    core::{
        ContentPart, Fact, Seq,
        client_text::{ClientTextKind, is_user_speaking, spans, user_words_of},
        id::AnswerId,
        projection::EventLine,
    },
    store::records::CallRow,
};
use serde::Serialize;

use super::ratio;

/// Fewest words of a repeated message that counts as a sign of forgetting; shorter ones are repeated anyway.
const REPEATABLE: usize = 4;

/// Tasks that were worked on over a summary, by their end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContinuationMetric {
    /// Number of tasks that ended with an answer after which the agent waited for nothing and the user did not ask again.
    pub finished: u64,
    /// Tasks that ended otherwise.
    pub stopped: Vec<StoppedTask>,
    /// Number of tasks in whose middle the session ends.
    pub open: u64,
    /// Origin of the answers.
    pub answers: AnswerOrigin,
}

/// Origin of the answers of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOrigin {
    /// The model gave them to the session's own requests.
    #[default]
    Own,
    /// They were recorded when other requests were sent: they say nothing of what these would have led to.
    Recorded,
}

/// A task that did not end with an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoppedTask {
    /// The user's request.
    pub request: Seq,
    /// End of the task.
    pub stop: TaskStop,
}

/// End of a task without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStop {
    /// Its last call failed, with this error.
    Failed(String),
    /// The model refused.
    Refused,
    /// The user interrupted the agent, and asked for something else.
    Interrupted,
    /// The user said once more what the summary stands for.
    Repeated,
}

impl fmt::Display for TaskStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "its last call failed: {error}"),
            Self::Refused => f.write_str("the model refused"),
            Self::Interrupted => f.write_str("the user interrupted it"),
            Self::Repeated => f.write_str("the user repeated what the summary stands for"),
        }
    }
}

impl ContinuationMetric {
    /// The tasks of a thread, with the outcomes of its calls as far as they are recorded.
    pub(super) fn of(line: &EventLine, calls: &[CallRow]) -> Self {
        let mut reading = TaskReading::new(calls);
        for event in line.events() {
            reading.take(event.id.seq, &event.event.fact);
        }
        reading.end(None);
        reading.told
    }

    /// Number of tasks whose end is known.
    pub fn ended(&self) -> u64 {
        self.finished + self.stopped.len() as u64
    }

    /// Share of the tasks with a known end that were finished; `None` without any.
    pub fn share(&self) -> Option<f64> {
        (self.ended() > 0).then(|| ratio(self.finished, self.ended()))
    }

    pub(super) fn add(&mut self, other: Self) {
        let Self { finished, stopped, open, answers } = other;
        self.finished += finished;
        self.stopped.extend(stopped);
        self.open += open;
        if answers == AnswerOrigin::Recorded {
            self.answers = answers;
        }
    }
}

/// Tasks of a thread while it is read.
struct TaskReading<'c> {
    calls: &'c [CallRow],
    told: ContinuationMetric,
    task: Option<OpenTask>,
    /// Compactions in force.
    standing: Vec<Seq>,
    /// Last event that a summary stands for.
    covered: Seq,
    /// What the user said, with its place.
    said: HashMap<String, Seq>,
}

/// A task whose end is not reached.
struct OpenTask {
    request: Seq,
    /// True if any of its answers was given over a summary.
    on_summary: bool,
    state: TaskState,
    answer: Option<AnswerId>,
    is_interrupted: bool,
}

/// State of a task after its last event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskState {
    /// The agent has something to do.
    Working,
    /// It gave an answer, and waits for nothing.
    Answered,
    Refused,
}

impl<'c> TaskReading<'c> {
    fn new(calls: &'c [CallRow]) -> Self {
        let told = ContinuationMetric::default();
        Self { calls, told, task: None, standing: Vec::new(), covered: Seq::START, said: HashMap::new() }
    }

    fn take(&mut self, at: Seq, fact: &Fact) {
        match fact {
            Fact::UserSaid { parts } if is_user_speaking(fact) => self.user_said(at, parts),
            Fact::UserSaid { parts } if is_interruption(parts) => {
                self.task.iter_mut().for_each(|task| task.is_interrupted = true);
            }
            Fact::AssistantSaid { answer, parts, .. } => {
                let on_summary = !self.standing.is_empty();
                if let Some(task) = &mut self.task {
                    task.on_summary |= on_summary;
                    task.answered(answer.as_ref(), parts, fact.calls().next().is_some());
                }
            }
            Fact::Compacted(compaction) => {
                self.standing.push(at);
                let through = compaction.through.min(at);
                self.covered = self.covered.max(through);
            }
            Fact::CompactionReverted { compaction } => {
                self.standing.retain(|standing| standing != compaction);
            }
            Fact::CompactionRestored { compaction } => self.standing.push(*compaction),
            _ => {}
        }
    }

    fn user_said(&mut self, at: Seq, parts: &[ContentPart]) {
        if self.task.as_ref().is_some_and(|task| task.state == TaskState::Working && !task.is_interrupted)
            && self.failure(at).is_none()
        {
            // A word to an agent at work is part of its task.
            self.remember(at, parts);
            return;
        }
        let before = self.remember(at, parts);
        let is_repeated = before.is_some_and(|before| before <= self.covered) && !self.standing.is_empty();
        self.end(Some((at, is_repeated)));
        self.task = Some(OpenTask {
            request: at,
            on_summary: false,
            state: TaskState::Working,
            answer: None,
            is_interrupted: false,
        });
    }

    /// Remembers what the user said; returns the place where the same was said before.
    fn remember(&mut self, at: Seq, parts: &[ContentPart]) -> Option<Seq> {
        let text = user_words_of(parts).to_lowercase();
        let words: Vec<&str> =
            text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        (words.len() >= REPEATABLE).then(|| self.said.insert(words.join(" "), at)).flatten()
    }

    /// Notes the end of the task: the next message of the user, with its place and whether it repeats something, or the end of
    /// the session.
    fn end(&mut self, next: Option<(Seq, bool)>) {
        let failure = self.failure(next.map_or(Seq(u64::MAX), |(at, _)| at));
        let Some(task) = self.task.take() else { return };
        // A repetition concerns the task before it, even if that was worked on before the summary was made.
        let is_repeated = next.is_some_and(|(_, is_repeated)| is_repeated);
        // A call that failed left no answer behind.
        let on_summary = task.on_summary || (failure.is_some() && !self.standing.is_empty());
        if !on_summary && !is_repeated {
            return;
        }
        let stop = match (task.state, failure) {
            (_, Some(error)) => TaskStop::Failed(error),
            (TaskState::Refused, None) => TaskStop::Refused,
            (TaskState::Answered | TaskState::Working, None) if is_repeated => TaskStop::Repeated,
            (TaskState::Answered, None) => {
                self.told.finished += 1;
                return;
            }
            (TaskState::Working, None) if task.is_interrupted => TaskStop::Interrupted,
            (TaskState::Working, None) => {
                self.told.open += 1;
                return;
            }
        };
        self.told.stopped.push(StoppedTask { request: task.request, stop });
    }

    /// Error of the last call before an event, if it belongs to the task and came to nothing.
    fn failure(&self, before: Seq) -> Option<String> {
        let task = self.task.as_ref()?;
        let last = self.calls.iter().rfind(|row| task.request <= row.call.head && row.call.head < before)?;
        let last_outcome = last.outcomes.last()?;
        last_outcome.error.clone()
    }
}

impl OpenTask {
    fn answered(&mut self, answer: Option<&AnswerId>, parts: &[ContentPart], calls_tools: bool) {
        // Fragments of one answer: any of them may call a tool.
        let goes_on = answer.is_some() && self.answer.as_ref() == answer;
        if goes_on && self.state == TaskState::Working {
            return;
        }
        self.answer = answer.cloned();
        self.state = match parts.iter().any(|part| matches!(part, ContentPart::Refusal { .. })) {
            _ if calls_tools => TaskState::Working,
            true => TaskState::Refused,
            false => TaskState::Answered,
        };
    }
}

/// Returns true if a client notes here that the user interrupted the model.
fn is_interruption(parts: &[ContentPart]) -> bool {
    parts.iter().any(|part| match part {
        ContentPart::Text { text, .. } => {
            spans(text).iter().any(|span| span.kind == Some(ClientTextKind::Interruption))
        }
        _ => false,
    })
}
