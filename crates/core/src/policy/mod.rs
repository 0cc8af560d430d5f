//! Policies: a named pipeline with its numbers, as data that fits on a screen.
//!
//! A policy defines when to act, which reducers run and when each of them does, and how a summary is
//! composed. The built-in ones are the files beside this one; a user's file has the same form, stands alone
//! or over one of them, and each error in it is reported with its line.

mod file;
mod limits;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::limits::{LimitSize, PolicyLimits};
use crate::{
    budget::Budget,
    context::Tier,
    pipeline::{Pipeline, Reducer},
    profile::{DegradationSizes, ProviderRule, Share},
    reducers::{self, AnyReducer, Blocks, CutOutputs, cut_outputs::NEARLY_FULL},
    summary::{
        SectionCaps,
        compaction::{CompactionSettings, SummaryLength, VerbatimTail},
    },
    tokens::Tokens,
};

/// A named pipeline with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Name of the policy.
    pub name: String,
    /// Its purpose and intended use, in a few sentences.
    pub about: String,
    /// Sizes at which it acts and to which it reduces.
    pub limits: PolicyLimits,
    /// Largest part of a request for each tier.
    pub caps: BTreeMap<Tier, Share>,
    /// Its reducers, in order.
    pub reduce: Vec<PolicyStep>,
    /// Rules for summarising a context that its reducers leave too large; `None` if it never summarises.
    pub summary: Option<SummaryRules>,
}

/// Sizes up to which a policy leaves a request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntouchedSizes {
    /// Of all that it holds.
    pub whole: Tokens,
    /// Of each message or item.
    pub item: Tokens,
}

/// Rules by which a policy summarises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SummaryRules {
    /// Part of the history that stays verbatim.
    pub keep: VerbatimTail,
    /// Limit for the length of a summary.
    pub length: SummaryLength,
    /// Most items that it shows of each section.
    pub caps: SectionCaps,
    /// Form in which it is shown.
    pub shape: SummaryShape,
    /// Use of a model whose summaries cost money.
    pub paid: PaidSummaryUse,
}

/// Use of a model whose summaries cost money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaidSummaryUse {
    /// The model is asked wherever a summary is needed.
    #[default]
    Preferred,
    /// The built-in summariser is asked first, which costs nothing: a model is asked only where its summary would miss the target
    /// too.
    IfNeeded,
}

/// Form in which the summary of a compaction is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryShape {
    /// As a message of the user.
    #[default]
    Message,
    /// As the model's answer to a short question of the user.
    QuestionAndAnswer,
}

impl SummaryRules {
    /// Settings for drafting a compaction that leaves a context at the target of `budget`, of which `prefix`
    /// cannot go: the kept part and the summary's length are as the policy sets them, or as much as there is
    /// room for.
    pub fn compaction_settings(&self, budget: &Budget, prefix: Tokens) -> CompactionSettings {
        let target = budget.target();
        let room = target.less(prefix);
        let length = self.length.at_most(Tokens(room.0 / if self.caps.trail > 0 { 6 } else { 3 }));
        let beside = if self.caps.trail > 0 { room.less(length.most()).0 / 2 } else { 0 };
        let keep = self.keep.at_most(room.less(length.most()).less(Tokens(beside)));
        let caps = self.caps.within(room);
        CompactionSettings {
            keep,
            length,
            caps,
            most: Some(rounded_down(target)),
            limit: Some(budget.trigger()),
            unanswered: None,
        }
    }
}

/// A size, rounded down by at most a sixteenth. A trail fills its room; if it did so to the token, each
/// correction of a model's counts between two calls would make another summary of the same past.
fn rounded_down(tokens: Tokens) -> Tokens {
    let step = (tokens.0 / 32).next_power_of_two();
    Tokens(tokens.0 / step * step)
}

/// A reducer of a policy, and when it is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyStep {
    /// Time at which it is run.
    pub when: StepTiming,
    /// The reducer.
    #[serde(flatten)]
    pub reducer: AnyReducer,
}

impl PolicyStep {
    /// The name of its reducer.
    pub fn name(&self) -> &'static str {
        self.reducer.name()
    }
}

/// Time at which a reducer is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepTiming {
    /// Each time the policy acts, as long as the target is not met. Content that was sent is changed at no other
    /// time.
    #[default]
    AtEpoch,
    /// Each time the policy acts and a summary was not enough, or none is available.
    AfterSummary,
    /// Before something is sent for the first time, so that no cache is lost by it.
    OnArrival,
    /// Before every call. Each change of sent content makes the cache useless from there on.
    EveryCall,
}

/// Error in a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// The file is not TOML, or a field is unknown or has a wrong value.
    #[error("line {line}: {reason}")]
    File {
        /// Line of the error.
        line: usize,
        /// The error, and the expected value.
        reason: String,
    },
    /// There is no such policy.
    #[error("there is no policy `{name}`; there are {}, or give a file", .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

/// The files of the built-in policies, the default first.
const FILES: [&str; 6] = [
    include_str!("epitome.toml"),
    include_str!("retention.toml"),
    include_str!("blocks.toml"),
    include_str!("lineage.toml"),
    include_str!("pivot.toml"),
    include_str!("tiered.toml"),
];

impl Policy {
    /// The policies that come with the program, the default first.
    pub fn builtin() -> &'static [Self] {
        static BUILTIN: LazyLock<Vec<Policy>> = LazyLock::new(|| {
            FILES.iter().map(|text| Policy::read(text).expect("a test reads the built-in files")).collect()
        });
        &BUILTIN
    }

    /// The built-in policy of this name.
    pub fn named(name: &str) -> Result<&'static Self, PolicyError> {
        Self::builtin().iter().find(|policy| policy.name == name).ok_or_else(|| Self::unknown(name))
    }

    /// The file of the built-in policy of this name.
    pub fn file(name: &str) -> Result<&'static str, PolicyError> {
        let at = Self::builtin().iter().position(|policy| policy.name == name);
        at.map(|at| FILES[at]).ok_or_else(|| Self::unknown(name))
    }

    fn unknown(name: &str) -> PolicyError {
        PolicyError::Unknown {
            name: name.to_owned(),
            known: Self::builtin().iter().map(|policy| policy.name.clone()).collect(),
        }
    }

    /// Reads a policy from TOML.
    ///
    /// ```
    /// use epitome_core::policy::{Policy, StepTiming};
    ///
    /// let policy = Policy::read(
    ///     r#"
    ///     name = "careful"
    ///     about = "As the default, but outputs are never cut before they are sent."
    ///     base = "epitome"
    ///     limits = { force = 0.95 }
    ///
    ///     [[reduce]]
    ///     reducer = "prune"
    ///     protect = 20_000
    ///     "#,
    /// )?;
    /// assert!(policy.reduce.iter().all(|step| step.when == StepTiming::AtEpoch));
    /// # Ok::<(), epitome_core::policy::PolicyError>(())
    /// ```
    pub fn read(toml: &str) -> Result<Self, PolicyError> {
        file::read(toml)
    }

    /// The budget of a model, or of a person, with this policy's limits and caps.
    ///
    /// A share and a number of tokens may meet on a small window, and so may a limit of the policy and one of the
    /// profile. The trigger then goes before the profile's force, and the target stays a fifth below the trigger: without
    /// that room every call would reset the cache.
    pub fn budget(&self, base: Budget) -> Budget {
        let ceiling = base.ceiling();
        let limits = self.limits;
        let level = |level: Option<LimitSize>| level.map(|level| level.within(&base));
        let own = level(limits.trigger).or_else(|| self.block_trigger(ceiling));
        let own_force = level(limits.force).unwrap_or(base.force().max(own.unwrap_or_default()));
        let (mut trigger, mut force) = (own.unwrap_or(base.trigger()), own_force);
        if let Some(degradation) = self.heeded_degradation(&base) {
            trigger = trigger.min(degradation.onset);
            force = force.min(degradation.most);
        }
        let trigger = trigger.min(force);
        let target = level(limits.target).unwrap_or(base.target());
        let target = if target < trigger { target } else { Share::percent(80).of(trigger) };
        let budget = base.with_thresholds(target, trigger, force);
        let budget = if force < own_force { budget.with_first_force(own_force) } else { budget };
        self.caps.iter().fold(budget, |budget, (tier, share)| budget.with_cap(*tier, share.of(ceiling)))
    }

    /// The size over which it acts when the cache is cold, under a budget; `None` if the cache is none of its business.
    pub fn cold_level(&self, budget: &Budget) -> Option<Tokens> {
        let level = self.limits.cold?.within(budget);
        // Work that begins at the trigger is only considered above this.
        Some(self.heeded_degradation(budget).map_or(level, |_| level.min(budget.trigger())))
    }

    /// Lowest size to reduce to under a budget if `enough` would cost too much: the target, unless the target
    /// is `enough` itself.
    pub fn lowest_target(&self, budget: &Budget) -> Tokens {
        let lean = self.limits.target.map(|level| level.without_enough().within(budget));
        lean.unwrap_or(budget.target()).min(budget.target())
    }

    /// Sizes at which the model gets worse, if this policy heeds them.
    fn heeded_degradation(&self, budget: &Budget) -> Option<DegradationSizes> {
        budget.degradation().filter(|_| self.limits.heeds_degradation)
    }

    /// The size over which its blocks are made, where a request may hold so much; `None` if it has none.
    fn block_trigger(&self, ceiling: Tokens) -> Option<Tokens> {
        self.reduce.iter().find_map(|step| match &step.reducer {
            AnyReducer::Blocks(Blocks(config)) => Some(config.trigger(ceiling)),
            _ => None,
        })
    }

    /// Sizes up to which the first request of a session is left as it came, under a budget. `None` where that depends on more
    /// than sizes.
    pub fn untouched_sizes(&self, budget: &Budget) -> Option<UntouchedSizes> {
        if self.runs_at(StepTiming::EveryCall) || budget.caps().next().is_some() {
            return None;
        }
        let mut item = Tokens::MAX;
        for step in self.reduce.iter().filter(|step| step.when == StepTiming::OnArrival) {
            let AnyReducer::CutOutputs(CutOutputs { tokens, lines: None, .. }) = &step.reducer else {
                return None;
            };
            item = tokens.map_or(item, |limit| item.min(limit.over));
        }
        // A policy that minds the cache acts on content that was never answered only where it must.
        let whole = if self.limits.cold.is_some() { budget.first_force() } else { budget.trigger() };
        let has_share = |step: &PolicyStep| {
            matches!(&step.reducer, AnyReducer::CutOutputs(CutOutputs { share: Some(_), .. }))
        };
        // Outputs that have a share are cut in a request that is nearly full, regardless of the cause for the
        // rest.
        let nearly_full = self.reduce.iter().any(has_share).then(|| NEARLY_FULL.of(budget.ceiling()));
        let whole = nearly_full.map_or(whole, |limit| whole.min(limit));
        Some(UntouchedSizes { whole, item })
    }

    /// The same policy, under which outputs of these tools are cut to a size before they are first sent.
    pub fn with_tool_limits<'t>(mut self, limits: impl IntoIterator<Item = (&'t str, Tokens)>) -> Self {
        let step = |(tool, limit)| PolicyStep {
            when: StepTiming::OnArrival,
            reducer: AnyReducer::CutOutputs(CutOutputs::of_tool(tool, limit)),
        };
        self.reduce.splice(0..0, limits.into_iter().map(step).collect::<Vec<_>>());
        self
    }

    /// The same policy for a model with these rules: no reducer takes content that the model wants back.
    pub fn for_rules(mut self, rules: &BTreeSet<ProviderRule>) -> Self {
        for step in &mut self.reduce {
            step.reducer = step.reducer.clone().for_rules(rules);
        }
        self
    }

    /// The reducers that are run at some time.
    pub fn pipeline(&self, when: StepTiming) -> Pipeline {
        let steps = self.reduce.iter().filter(|step| step.when == when);
        reducers::pipeline(steps.map(|step| step.reducer.clone()).collect())
    }

    /// Returns true if any reducer is run at some time.
    pub fn runs_at(&self, when: StepTiming) -> bool {
        self.reduce.iter().any(|step| step.when == when)
    }

    /// The names of its reducers.
    pub fn reducers(&self) -> impl Iterator<Item = &'static str> {
        self.reduce.iter().map(|step| step.reducer.name())
    }
}
