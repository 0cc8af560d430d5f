//! Leaves out additions of hooks to past messages.
//!
//! **Trigger:** the context is over the target, or the dialogue over its cap. Additions to the newest message
//! stay, and pinned ones; everything older goes at once and without a line: it was made for a question that
//! has been answered, and a hook can make it again.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Segment, SegmentBody, SegmentEdit, Tier},
    event::Fact,
    pipeline::{Reducer, ReducerOutput, ReducerState},
};

/// Leaves out additions of hooks to past messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropInjected {
    /// Names of the hooks; by default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
}

impl DropInjected {
    /// Returns true if one of these hooks added the segment, however much of it is still shown.
    fn drops(&self, segment: &Segment) -> bool {
        let is_named = |hook: &String| self.hooks.is_empty() || self.hooks.contains(hook);
        match segment.body() {
            SegmentBody::User { event, .. } => {
                matches!(&event.event.fact, Fact::Injected { hook, .. } if is_named(hook))
            }
            _ => false,
        }
    }
}

impl Reducer for DropInjected {
    fn name(&self) -> &'static str {
        "drop_injected"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::Dialogue
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        // Additions are users' messages too, and the newest message may have several.
        let is_message = |segment: &Segment| segment.is_user() && !is_injected(segment);
        let newest = context.segments().iter().rposition(is_message).unwrap_or(0);
        let past = context.segments().iter().take(newest);
        let goes: Vec<bool> =
            past.map(|segment| self.drops(segment) && !context.is_pinned(segment)).collect();
        let context = context.edit(self.name(), |index, _| match goes.get(index) {
            Some(true) => SegmentEdit::Drop,
            _ => SegmentEdit::Keep,
        });
        ReducerOutput { context, state }
    }
}

/// Returns true if a hook added the segment.
fn is_injected(segment: &Segment) -> bool {
    match segment.body() {
        SegmentBody::User { event, .. } => matches!(event.event.fact, Fact::Injected { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reducers::testing::shown;

    #[test]
    fn what_is_pinned_stays_and_without_a_message_everything_does() {
        let log =
            "user: One.\ninject memory: A fact.\ninject time: Noon.\nassistant: Yes.\npin 3\nuser: Two.\n";
        insta::assert_snapshot!(shown(&DropInjected::default(), 0, log), @r"
        user        1       verbatim      1  One.
        beside      3       injected      1  Noon.
        answer      4       verbatim      1  Yes.
        user        6       verbatim      1  Two.
        left out    2       by drop_injected, 2 tokens
        total 4
        ");
        insta::assert_snapshot!(shown(&DropInjected::default(), 0, "inject memory: A fact.\nassistant: Yes.\n"), @r"
        beside      1       injected      2  A fact.
        answer      2       verbatim      1  Yes.
        total 3
        ");
    }
}
