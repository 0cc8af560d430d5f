//! Counting turns, event by event.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Fact, InstructionKind, LoggedEvent},
    id::AnswerId,
};

/// Number of turns so far, and the progress of the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnCount {
    /// The newest turn.
    pub(crate) newest: u64,
    /// Progress of the current turn.
    pub(crate) answer: TurnProgress,
    /// The turn of the newest answer, shown or not.
    pub(crate) answered: Option<u64>,
}

/// Progress of the current turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnProgress {
    /// The model has not answered yet.
    #[default]
    Asked,
    /// It has, in an answer of this id.
    Answered(Option<AnswerId>),
}

/// Effect of an event on the count of turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnStep {
    /// A user asks.
    Ask,
    /// The model answers, in an answer of this id.
    Answer(Option<AnswerId>),
}

impl TurnStep {
    /// Effect of an event in a conversation; `None` if it belongs to the turn in progress.
    pub(crate) fn of(event: &LoggedEvent) -> Option<Self> {
        match &event.event.fact {
            // A message without text asks for nothing: some clients put one between a call and its result.
            Fact::UserSaid { parts } if parts.is_empty() => None,
            Fact::UserSaid { .. }
            | Fact::Injected { .. }
            | Fact::Instructed { what: InstructionKind::Message | InstructionKind::Project, .. } => {
                Some(Self::Ask)
            }
            Fact::AssistantSaid { answer, .. } => Some(Self::Answer(answer.clone())),
            Fact::Instructed {
                what: InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools,
                ..
            }
            | Fact::ToolReturned { .. }
            | Fact::CompactionRequested { .. }
            | Fact::Compacted(_)
            | Fact::CompactionReverted { .. }
            | Fact::CompactionRestored { .. }
            | Fact::Pinned { .. }
            | Fact::Unpinned { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. }
            | Fact::Carried { .. } => None,
        }
    }
}

impl TurnCount {
    /// Applies the effect of the next event.
    pub(crate) fn advance(&mut self, with: &TurnStep) {
        match with {
            TurnStep::Ask => self.ask(),
            TurnStep::Answer(answer) => self.answer(answer.as_ref()),
        }
    }

    /// A new question belongs to the next turn.
    pub(crate) fn ask(&mut self) {
        if std::mem::take(&mut self.answer) != TurnProgress::Asked {
            self.newest = self.newest.saturating_add(1);
        }
    }

    /// An answer belongs to the turn of its question, or is a turn of its own; fragments of one share it.
    pub(crate) fn answer(&mut self, answer: Option<&AnswerId>) {
        let answering = TurnProgress::Answered(answer.cloned());
        let fragment = answer.is_some() && self.answer == answering;
        if self.answer != TurnProgress::Asked && !fragment {
            self.newest = self.newest.saturating_add(1);
        }
        self.answer = answering;
        self.answered = Some(self.newest);
    }
}
