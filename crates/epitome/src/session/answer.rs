//! What the model answered, taken into the log; what it asked of the session itself is answered.

use epitome_core::{
    event::{ToolCall, Trigger, Usage},
    id::JobId,
};
use epitome_wire::{Answered, Finish, is_compact_call, say::Ended};

use super::{builder::CompactTool, desk::Desk, error::SessionError, orders};

/// What the model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its words.
    pub text: String,
    /// The tools it calls, in order. Calls that the session answers itself are not among them.
    pub calls: Vec<ToolCall>,
    /// Why it ended, if the provider says.
    pub finish: Option<Finish>,
    /// What was used, if the provider says.
    pub usage: Option<Usage>,
    /// How many calls the session has answered itself.
    pub own_calls: usize,
}

impl Answer {
    /// Whether the model has said all it wants to say. If not, it waits for the results of its calls: those that are
    /// listed, or those that the session has given already.
    pub fn is_final(&self) -> bool {
        self.calls.is_empty() && self.own_calls == 0
    }
}

/// Takes an answer. What the agent asked of the session itself is answered, and given.
pub(super) fn take(
    desk: &Desk,
    body: &str,
    tool: CompactTool,
) -> Result<(Answer, Option<JobId>), SessionError> {
    let format = desk.state()?.setup.format;
    let answered = if body.trim_start().starts_with('{') {
        format.answer(body)?
    } else {
        format.answer_stream(body.as_bytes())?
    };
    desk.answered(&answered)?;
    let mut ordered = None;
    let Answered { calls, finish, usage, .. } = &answered;
    let (own, others): (Vec<&ToolCall>, Vec<&ToolCall>) =
        calls.iter().partition(|call| tool == CompactTool::Offered && is_compact_call(call).is_some());
    let own_calls = own.len();
    for call in own {
        let focus = is_compact_call(call).flatten();
        let said = match orders::order(desk, Trigger::Agent, focus.as_deref(), None) {
            Ok(job) => {
                ordered = Some(job);
                "A summary of what lies behind is being made; go on."
            }
            Err(SessionError::Nothing(_)) => "There is nothing to compact yet; go on.",
            // The answer is in the log: whoever gave it must not give it again.
            Err(error) => {
                tracing::warn!(target: "epitome::compaction", %error, "the agent asked for a compaction");
                "That did not work; go on without."
            }
        };
        let result = format.say_result(call, said, Ended::Well).at(Some(desk.now()));
        desk.append(&[result])?;
    }
    let answer = Answer {
        text: answered.text(),
        calls: others.into_iter().cloned().collect(),
        finish: finish.clone(),
        usage: *usage,
        own_calls,
    };
    Ok((answer, ordered))
}
