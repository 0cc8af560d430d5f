//! Contenders of a comparison: policies, and the baselines that people use without one.

use std::collections::BTreeMap;

use epitome::core::{
    Tokens,
    budget::Budget,
    context::{Context, Fidelity, SegmentEdit},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    policy::{LimitSize, Policy, PolicyLimits, PolicyStep, StepTiming, SummaryRules},
    profile::Share,
    reducers::AnyReducer,
    summary::compaction::{SummaryLength, VerbatimTail},
};

/// A policy in a comparison.
#[derive(Clone, Debug)]
pub struct ReplayCandidate {
    /// The policy.
    pub policy: Policy,
    /// Limit of the requests.
    pub reach: CandidateLimit,
    /// Author of the summaries.
    pub writer: CandidateSummariser,
}

/// Limit of a contender's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateLimit {
    /// The window: a larger request is not sent.
    Window,
    /// No limit: everything is sent.
    Everything,
}

/// Author of a contender's summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateSummariser {
    /// The built-in summariser, which asks no model.
    BuiltIn,
    /// The session's own model, which is asked to continue its last request while the call waits. Its answer is unknown, so the
    /// text is the built-in summariser's.
    Session,
    /// The same in the background, as a live session asks it: the planner knows that it costs something, and no call waits.
    Background,
}

impl ReplayCandidate {
    /// Makes a contender of a policy.
    pub fn of(policy: Policy) -> Self {
        Self { policy, reach: CandidateLimit::Window, writer: CandidateSummariser::BuiltIn }
    }

    /// Name of the contender.
    pub fn name(&self) -> &str {
        &self.policy.name
    }

    /// All contenders: the built-in policies, the default first, then the baselines.
    pub fn all() -> Vec<Self> {
        Policy::builtin().iter().cloned().map(Self::of).chain(Self::baselines()).collect()
    }

    /// Approaches without a policy. The first is the full history, against which the others are measured.
    pub fn baselines() -> Vec<Self> {
        vec![
            Self::none(),
            Self::of(baseline(
                "sliding_window",
                "At 90 % of the window the oldest turns go without a word, down to 50 %.",
                (50, 90),
                vec![step(StepTiming::AtEpoch, DropOldest)],
                None,
            )),
            Self::of(baseline(
                "drop_oldest",
                "When the window is full, as many of the oldest turns go as must, before every call.",
                (99, 100),
                vec![step(StepTiming::AtEpoch, DropOldest)],
                None,
            )),
            Self {
                writer: CandidateSummariser::Session,
                ..Self::of(baseline(
                    "summarise",
                    "At 85 % of the window a model summarises everything but the newest turn.",
                    (50, 85),
                    Vec::new(),
                    Some(SummaryRules {
                        keep: VerbatimTail::Turns(1),
                        length: SummaryLength::Fixed(Tokens(2_000)),
                        ..SummaryRules::default()
                    }),
                ))
            },
            Self::of(baseline(
                "clear_tools",
                "Before every call all tool results but the newest three are cleared.",
                (60, 100),
                vec![step(StepTiming::EveryCall, ClearResults)],
                None,
            )),
        ]
    }

    /// The full history, without a limit.
    pub fn none() -> Self {
        let about = "Sends the full history, even where it is over the window.";
        Self {
            reach: CandidateLimit::Everything,
            ..Self::of(baseline("none", about, (100, 100), Vec::new(), None))
        }
    }
}

fn baseline(
    name: &str,
    about: &str,
    (target, trigger): (u32, u32),
    reduce: Vec<PolicyStep>,
    summary: Option<SummaryRules>,
) -> Policy {
    let level = |percent| Some(LimitSize::Share(Share::percent(percent)));
    let limits = PolicyLimits {
        trigger: level(trigger),
        target: level(target),
        force: level(trigger),
        ..PolicyLimits::default()
    };
    Policy { name: name.into(), about: about.into(), limits, caps: BTreeMap::new(), reduce, summary }
}

fn step(when: StepTiming, reducer: impl Reducer + 'static) -> PolicyStep {
    PolicyStep { when, reducer: AnyReducer::custom(reducer) }
}

/// Drops the oldest turns silently, whoever their author is. None of our policies does this, but many agents
/// do.
#[derive(Debug)]
struct DropOldest;

impl Reducer for DropOldest {
    fn name(&self) -> &'static str {
        "drop_oldest"
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let essential = context.essential();
        let newest = context.last_turn();
        let mut over = context.tokens().less(budget.target());
        let mut dropping = None;
        let context = context.edit(self.name(), |index, segment| {
            if essential.contains(index) || segment.turn() == newest {
                return SegmentEdit::Keep;
            }
            // Only whole turns are dropped.
            if over == Tokens(0) && dropping != Some(segment.turn()) {
                return SegmentEdit::Keep;
            }
            dropping = Some(segment.turn());
            over = over.less(segment.tokens());
            SegmentEdit::Drop
        });
        ReducerOutput { context, state }
    }
}

/// Clears every tool result but the newest few, without handles.
#[derive(Debug)]
struct ClearResults;

impl ClearResults {
    /// Number of the newest results that are kept.
    const KEPT: usize = 3;
}

impl Reducer for ClearResults {
    fn name(&self) -> &'static str {
        "clear_results"
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let results = context
            .segments()
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, segment)| segment.call().is_some() && segment.shown().is_some());
        let kept_from = results.take(Self::KEPT).last().map_or(0, |(index, _)| index);
        let context = context.edit(self.name(), |index, segment| {
            if index < kept_from && segment.call().is_some() && segment.fidelity() <= Fidelity::Cut {
                SegmentEdit::line("[cleared]".to_owned(), Fidelity::Stub)
            } else {
                SegmentEdit::Keep
            }
        });
        ReducerOutput { context, state }
    }
}
