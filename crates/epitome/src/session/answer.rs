//! The model's answer, appended to the log, and the session's own results for calls of its tools.

use epitome_core::{
    event::{CompactionTrigger, ToolCall, Usage},
    id::JobId,
};
use epitome_wire::{FinishReason, ModelAnswer, is_compact_call, message_builder::ToolResultStatus};

use super::{
    answer_reader::{AnswerReader, BrokenAnswer, ReadAnswer},
    builder::CompactTool,
    engine::SessionEngine,
    error::SessionError,
    manual_compaction,
};

/// The model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssistantAnswer {
    /// Its text.
    pub text: String,
    /// The tools it calls, in order. Calls that the session answers itself are not among them.
    pub calls: Vec<ToolCall>,
    /// Reason it ended, if the provider reports one.
    pub finish: Option<FinishReason>,
    /// Tokens used, if the provider reports them.
    pub usage: Option<Usage>,
    /// Number of calls the session has answered itself.
    pub own_calls: usize,
}

impl AssistantAnswer {
    /// Returns true if the model is finished. If not, it waits for the results of its calls: those that are listed,
    /// or those that the session has added already.
    pub fn is_final(&self) -> bool {
        self.calls.is_empty() && self.own_calls == 0
    }
}

/// Appends an answer, and results for calls of the session's own tools. One that broke off is kept beside the history.
pub(super) fn take(
    engine: &SessionEngine,
    reader: AnswerReader,
    tool: CompactTool,
) -> Result<(AssistantAnswer, Option<JobId>), SessionError> {
    let format = engine.state()?.setup.calls.format;
    let answered = match reader.read() {
        ReadAnswer::Complete(answered) => answered,
        ReadAnswer::Broken(BrokenAnswer { events, error }) => {
            engine.answer_broken(events, &error.to_string())?;
            return Err(error);
        }
    };
    engine.answered(&answered)?;
    let mut ordered = None;
    let ModelAnswer { calls, finish, usage, .. } = &answered;
    let (own, others): (Vec<&ToolCall>, Vec<&ToolCall>) =
        calls.iter().partition(|call| tool == CompactTool::Offered && is_compact_call(call).is_some());
    let own_calls = own.len();
    for call in own {
        let focus = is_compact_call(call).flatten();
        let said = match manual_compaction::order(engine, CompactionTrigger::Agent, focus.as_deref(), None) {
            Ok(job) => {
                ordered = Some(job);
                "A summary of what lies behind is being made; go on."
            }
            Err(SessionError::Nothing(_)) => "There is nothing to compact yet; go on.",
            // The answer is in the log: the caller must not append it again.
            Err(error) => {
                tracing::warn!(target: "epitome::compaction", %error, "the agent asked for a compaction");
                "That did not work; go on without."
            }
        };
        let result = format.say_result(call, said, ToolResultStatus::Well).at(Some(engine.now()));
        engine.append(&[result])?;
    }
    let answer = AssistantAnswer {
        text: answered.text(),
        calls: others.into_iter().cloned().collect(),
        finish: finish.clone(),
        usage: *usage,
        own_calls,
    };
    Ok((answer, ordered))
}
