//! Reducers, one a file. Each documents its trigger, the content it leaves behind, and the tier it serves.
//!
//! [`AnyReducer`] is a reducer as data, so that a policy can be written down; [`default_pipeline`] is the list that
//! a request without a session goes through.

mod blocks;
pub(crate) mod cut_outputs;
mod cut_text;
mod drop_injected;
mod drop_middle;
mod drop_reasoning;
mod drop_superseded_reads;
mod evict_media;
mod expire_tool_results;
pub(crate) mod failed_result;
pub(crate) mod fetch_subject;
pub(crate) mod fold_oldest;
mod prune;
mod read_only_commands;
mod refer_outputs;
mod shorten_summaries;
mod slide_dialogue;
mod split_turn;
pub(crate) mod stub_text;
mod summarise_turns;

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

pub use self::{
    blocks::Blocks,
    cut_outputs::{CutOutputs, TokenLimit},
    drop_injected::DropInjected,
    drop_middle::DropMiddle,
    drop_reasoning::{DropReasoning, ReasoningScope},
    drop_superseded_reads::DropSupersededReads,
    evict_media::EvictMedia,
    expire_tool_results::{ExpireToolResults, ResultRetention},
    prune::Prune,
    refer_outputs::ReferOutputs,
    shorten_summaries::ShortenSummaries,
    slide_dialogue::SlideDialogue,
    split_turn::SplitTurn,
    summarise_turns::SummariseTurns,
};
use crate::{
    budget::Budget,
    context::{Context, Tier},
    pipeline::{Pipeline, Reducer, ReducerOutput, ReducerState},
    profile::ProviderRule,
};

/// The reducers that make a request fit without a session, the most faithful first. Each runs only if the ones before it did not reach the
/// target, or a tier it serves is over its cap.
pub fn default_reducers() -> Vec<AnyReducer> {
    vec![
        // No information is lost: the left-out content is repeated later.
        AnyReducer::DropSupersededReads(DropSupersededReads::default()),
        // Providers ignore most of it, and no later message refers to it.
        AnyReducer::DropReasoning(DropReasoning::default()),
        // Old pictures are rarely looked at twice, and each is dear.
        AnyReducer::EvictMedia(EvictMedia::default()),
        // The beginning and the end of a long output say most of it.
        AnyReducer::CutOutputs(CutOutputs::default()),
        // Content that can be fetched again needs only its name.
        AnyReducer::ReferOutputs(ReferOutputs::default()),
        // Content that cannot be fetched again, in one large step and not in many small ones.
        AnyReducer::Prune(Prune::default()),
        // The rest of old results, by age.
        AnyReducer::ExpireToolResults(ExpireToolResults::default()),
        // Only where someone has set a cap on dialogue.
        AnyReducer::SlideDialogue(SlideDialogue::default()),
        // What was done long ago, a line a turn.
        AnyReducer::SummariseTurns(SummariseTurns::default()),
        // A newest turn that is too large by itself.
        AnyReducer::SplitTurn(SplitTurn::default()),
        // By all means, down to the essential set.
        AnyReducer::DropMiddle(DropMiddle::default()),
        // Only where someone has set a cap on summaries, and last, since those before it leave lines.
        AnyReducer::ShortenSummaries(ShortenSummaries::default()),
    ]
}

/// The pipeline of these reducers.
pub fn default_pipeline() -> Pipeline {
    pipeline(default_reducers())
}

/// A pipeline of reducers that were written down, made for a model that has these rules.
pub fn pipeline_for(reducers: Vec<AnyReducer>, rules: &BTreeSet<ProviderRule>) -> Pipeline {
    pipeline(reducers.into_iter().map(|reducer| reducer.for_rules(rules)).collect())
}

/// A pipeline of reducers that were written down.
pub fn pipeline(reducers: Vec<AnyReducer>) -> Pipeline {
    Pipeline::new(reducers.into_iter().map(|reducer| Box::new(reducer) as Box<dyn Reducer>).collect())
}

macro_rules! any_reducer {
    ($($reducer:ident),* $(,)?) => {
        /// A reducer with its numbers, as it is written in a policy: its name under `reducer`, its fields beside it.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "reducer", rename_all = "snake_case")]
        pub enum AnyReducer {
            $(#[doc = concat!("[`", stringify!($reducer), "`].")] $reducer($reducer),)*
            /// A reducer that a program brings itself, which cannot be read from a file.
            #[serde(skip_deserializing)]
            Custom(CustomReducer),
        }

        impl AnyReducer {
            /// One of each, with its defaults.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$reducer($reducer::default())),*]
            }

            fn inner(&self) -> &dyn Reducer {
                match self {
                    $(Self::$reducer(reducer) => reducer,)*
                    Self::Custom(CustomReducer(reducer)) => reducer.as_ref(),
                }
            }
        }
    };
}

any_reducer!(
    Blocks,
    CutOutputs,
    DropInjected,
    DropMiddle,
    DropReasoning,
    DropSupersededReads,
    EvictMedia,
    ExpireToolResults,
    Prune,
    ReferOutputs,
    ShortenSummaries,
    SlideDialogue,
    SplitTurn,
    SummariseTurns,
);

/// A reducer that a program brings itself. As data it is only its name.
#[derive(Clone, Debug)]
pub struct CustomReducer(Arc<dyn Reducer>);

impl PartialEq for CustomReducer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomReducer {}

impl Serialize for CustomReducer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Custom", 1)?;
        fields.serialize_field("name", self.0.name())?;
        fields.end()
    }
}

impl AnyReducer {
    /// Wraps a reducer that a program brings itself.
    pub fn custom(reducer: impl Reducer + 'static) -> Self {
        Self::Custom(CustomReducer(Arc::new(reducer)))
    }

    /// The same, as far as the rules of the model that is asked allow: reasoning that must come back stays.
    pub fn for_rules(self, rules: &BTreeSet<ProviderRule>) -> Self {
        match self {
            Self::DropReasoning(DropReasoning { scope }) => {
                Self::DropReasoning(DropReasoning { scope: scope.narrowed_by(rules) })
            }
            other => other,
        }
    }
}

impl Reducer for AnyReducer {
    fn name(&self) -> &'static str {
        self.inner().name()
    }

    fn serves(&self, tier: Tier) -> bool {
        self.inner().serves(tier)
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        self.inner().reduce(context, budget, state)
    }
}

#[cfg(test)]
mod testing {
    use super::*;
    use crate::{
        notation::{context, show},
        tokens::Tokens,
    };

    /// Outcome of a reducer on a log, with this target and a ceiling that is never reached.
    pub(super) fn reduced(reducer: &dyn Reducer, target: u64, log: &str) -> Context {
        let budget = Budget::new(Tokens(u64::MAX)).with_target(Tokens(target));
        reducer.reduce(context(log), &budget, ReducerState::default()).context
    }

    /// The same, printed.
    pub(super) fn shown(reducer: &dyn Reducer, target: u64, log: &str) -> String {
        show(&reduced(reducer, target, log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{notation::context, tokens::Tokens};

    #[test]
    fn a_policy_reads_back_as_it_was_written() {
        for reducer in AnyReducer::all() {
            let json = serde_json::to_string(&reducer).unwrap();
            assert!(json.starts_with(&format!(r#"{{"reducer":"{}""#, reducer.name())), "{json}");
            assert_eq!(serde_json::from_str::<AnyReducer>(&json).unwrap(), reducer);
            let bare = format!(r#"{{"reducer":"{}"}}"#, reducer.name());
            assert_eq!(
                serde_json::from_str::<AnyReducer>(&bare).unwrap(),
                reducer,
                "defaults need not be written"
            );
            let misspelt = format!(r#"{{"reducer":"{}","protcet":1}}"#, reducer.name());
            assert!(serde_json::from_str::<AnyReducer>(&misspelt).is_err(), "{misspelt}");
        }
    }

    /// All but these, which only a policy that names them runs.
    const BY_CHOICE: [&str; 2] = ["blocks", "drop_injected"];

    #[test]
    fn a_models_rules_reach_the_reducers_of_a_pipeline() {
        let log = "user: Go.\nassistant:\n  thinking: 9 words of \"hm\"\n  call a {}\n  -> done\nassistant: Done.\nuser: So?\n";
        let dropped = |rules: &[ProviderRule]| {
            let pipeline = pipeline_for(
                vec![AnyReducer::DropReasoning(DropReasoning::default())],
                &rules.iter().copied().collect(),
            );
            pipeline
                .run(context(log), &Budget::new(Tokens(0)), ReducerState::default())
                .0
                .context
                .changes()
                .removed
        };
        assert_eq!((dropped(&[]), dropped(&[ProviderRule::ReasoningReturned])), (1, 0));
    }

    #[test]
    fn the_default_pipeline_runs_every_reducer_once() {
        let mut names: Vec<&str> = default_reducers().iter().map(Reducer::name).chain(BY_CHOICE).collect();
        names.sort_unstable();
        let all: Vec<&str> = AnyReducer::all().iter().map(Reducer::name).collect();
        assert_eq!(names, all);
    }
}
