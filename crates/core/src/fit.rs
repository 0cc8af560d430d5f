//! Making a context fit: within the ceiling, or a refusal that says by how much it is not.
//!
//! The strategy goes first. If its outcome is still over the ceiling, the last resorts follow regardless of
//! it: the newest turn is split, summaries are cut, then everything that is not essential goes, in
//! the end even the lines that name it. So a refusal always means that the essential set, cut as far as it
//! can be, is larger than the ceiling.

use serde::Serialize;

use crate::{
    budget::Budget,
    compaction_strategy::CompactionStrategy,
    context::{Context, SegmentBody, SegmentEdit, Tier},
    pipeline::{Pipeline, Reducer, ReducerOutput, ReducerState, ReductionStep},
    reducers::{DropMiddle, ShortenSummaries, SplitTurn},
    standing_context::MAX_STANDING_CHARS,
    tokens::Tokens,
};

/// A context that fits, and how it came to.
#[derive(Clone, Debug)]
pub struct FittedContext {
    /// The context, not over the budget's ceiling.
    pub context: Context,
    /// Memory of the reducers.
    pub state: ReducerState,
    /// Work of each reducer, in order; empty if the context was within its limits.
    pub steps: Vec<ReductionStep>,
}

/// Even the least form of the essential set is over the ceiling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "making the context fit {budget} tokens: it needs at least {needed} ({prefix} of instructions and tools, {newest} \
     for the newest message, {open} for the open tool calls, {around} around them); shorten the instructions, send less \
     at once, or choose a model with a larger window"
)]
pub struct FitError {
    /// The least it needs.
    pub needed: Tokens,
    /// The ceiling.
    pub budget: Tokens,
    /// Of the need: system prompt, tools and leading instructions.
    pub prefix: Tokens,
    /// Of the need: the newest message of the user.
    pub newest: Tokens,
    /// Of the need: the last answer with the results of its calls.
    pub open: Tokens,
    /// Of the need: the overhead around any request, regardless of its content.
    pub around: Tokens,
}

/// Reduces a context until it is at the budget's target and under its caps as far as `strategy` can, and under the
/// ceiling in any case. A context that is within all of them comes back as it is.
pub fn fit(
    mut context: Context,
    budget: &Budget,
    strategy: &dyn CompactionStrategy,
    state: ReducerState,
) -> Result<FittedContext, FitError> {
    let room = budget.ceiling().less(context.tier_tokens(Tier::Prefix));
    context.limit_standing(MAX_STANDING_CHARS, room);
    let (reduced, mut steps) = strategy.compact(context, budget, state);
    let (ReducerOutput { context, state }, more) = last_resorts(reduced, budget)?;
    steps.extend(more);
    Ok(FittedContext { context, state, steps })
}

/// Brings a context under the ceiling by all means, or refuses. One that is under it comes back as it is. If
/// there is no room for all of it, standing context goes too, the largest block first.
pub fn last_resorts(
    mut reduced: ReducerOutput,
    budget: &Budget,
) -> Result<(ReducerOutput, Vec<ReductionStep>), FitError> {
    if reduced.context.tokens() <= budget.ceiling() {
        return Ok((reduced, Vec::new()));
    }
    loop {
        let refusal = match last_resorts_but_standing(reduced.clone(), budget) {
            Err(refusal) => refusal,
            fitted => return fitted,
        };
        if !reduced.context.release_standing() {
            return Err(refusal);
        }
    }
}

/// The same, but all standing context that holds stays.
pub(crate) fn last_resorts_but_standing(
    mut reduced: ReducerOutput,
    budget: &Budget,
) -> Result<(ReducerOutput, Vec<ReductionStep>), FitError> {
    let mut steps = Vec::new();
    if reduced.context.tokens() > budget.ceiling() {
        let ceiling = Budget::new(budget.ceiling());
        let split = Pipeline::new(vec![Box::new(SplitTurn::default())]);
        (reduced, steps) = split.run(reduced.context, &ceiling, reduced.state);
        if let Some(cap) = summary_cap(&reduced.context, budget.ceiling()) {
            let shorten = Pipeline::new(vec![Box::new(ShortenSummaries::default())]);
            let capped = ceiling.clone().with_cap(Tier::Summaries, cap);
            let (cut, more) = shorten.run(reduced.context, &capped, reduced.state);
            reduced = cut;
            steps.extend(more);
        }
        let drop = Pipeline::new(vec![Box::new(DropMiddle::default()), Box::new(DropNotes)]);
        let (dropped, more) = drop.run(reduced.context, &ceiling, reduced.state);
        reduced = dropped;
        steps.extend(more);
    }
    let context = &reduced.context;
    if context.tokens() > budget.ceiling() {
        let [prefix, newest, open] = context.essential().tokens(context);
        let (needed, budget) = (context.tokens(), budget.ceiling());
        let around = needed.less(prefix + newest + open);
        return Err(FitError { needed, budget, prefix, newest, open, around });
    }
    Ok((reduced, steps))
}

/// Most tokens for summaries so that the rest fits, provided a quarter of them is enough to name the rules in
/// force. A line in place of a summary names none of them.
fn summary_cap(context: &Context, ceiling: Tokens) -> Option<Tokens> {
    let over = context.tokens().less(ceiling);
    let summaries = context.tier_tokens(Tier::Summaries);
    let cap = summaries.less(over);
    (over > Tokens(0) && cap.0 >= summaries.0 / 4 && cap > Tokens(0)).then_some(cap)
}

/// Leaves out the lines about hidden events: there is no room even for those. The events stay accounted for.
#[derive(Debug)]
struct DropNotes;

impl Reducer for DropNotes {
    fn name(&self) -> &'static str {
        "drop_notes"
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let context = context.edit(self.name(), |_, segment| match segment.body() {
            SegmentBody::Note(_) => SegmentEdit::Drop,
            _ => SegmentEdit::Keep,
        });
        ReducerOutput { context, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::{context, show},
        reducers::{AnyReducer, DropReasoning, default_pipeline, pipeline},
    };

    const LOG: &str =
        "system: Two words.\nuser: 20 words of \"old\"\nassistant: 20 words of \"said\"\nuser: Now.\n";

    #[test]
    fn the_ceiling_is_kept_even_by_a_pipeline_that_does_not_reach_it() {
        let weak = pipeline(vec![AnyReducer::DropReasoning(DropReasoning::default())]);
        let fitted = fit(context(LOG), &Budget::new(Tokens(30)), &weak, ReducerState::default()).unwrap();
        insta::assert_snapshot!(show(&fitted.context), @r"
        prefix      1       verbatim      2  Two words.
        user        2       stub          9 by split_turn  [message too long: 1 line, 20 tokens; message 2]
        note        3       summary      11 by drop_middle  [1 turn is not shown: 1 message; 20 tokens; message 3]
        user        4       verbatim      1  Now.
        total 23
        ");
        let ran: Vec<&str> = fitted.steps.iter().map(|step| step.reducer).collect();
        assert_eq!(ran, ["drop_reasoning", "split_turn", "drop_middle"]);
    }

    #[test]
    fn a_refusal_says_what_is_too_large() {
        let refusal =
            fit(context(LOG), &Budget::new(Tokens(2)), &default_pipeline(), ReducerState::default())
                .unwrap_err();
        let expect = FitError {
            needed: Tokens(3),
            budget: Tokens(2),
            prefix: Tokens(2),
            newest: Tokens(1),
            open: Tokens(0),
            around: Tokens(0),
        };
        assert_eq!(refusal, expect);
        insta::assert_snapshot!(refusal, @r"making the context fit 2 tokens: it needs at least 3 (2 of instructions and tools, 1 for the newest message, 0 for the open tool calls, 0 around them); shorten the instructions, send less at once, or choose a model with a larger window");
    }
}
