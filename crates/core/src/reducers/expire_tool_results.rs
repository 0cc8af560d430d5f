//! Expires tool results: by age in turns, by count per tool, as a rule per tool says or else the default.
//!
//! The pair stays: the model sees that it made the call, and does not make it again. Results a rule declares durable
//! never expire. Results of the newest turn are what the model was about to read, and stay whatever the rule.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    budget::Budget,
    context::{Context, Edit, Fidelity, Segment},
    pipeline::{Reduced, Reducer, State},
    reducers::stub::Scribe,
};

/// Expires tool results.
#[derive(Clone, Debug, Default)]
pub struct ExpireToolResults {
    /// What holds for tools without a rule of their own.
    pub default: Retention,
    /// Rules by tool.
    pub tools: BTreeMap<String, Retention>,
}

/// How long a result stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// For this many turns after the one it was returned in.
    Turns(u64),
    /// While it is among the last so many of its tool.
    Last(usize),
    /// For ever.
    NeverEvict,
}

impl Default for Retention {
    fn default() -> Self {
        Self::Turns(10)
    }
}

impl Reducer for ExpireToolResults {
    fn name(&self) -> &'static str {
        "expire_tool_results"
    }

    fn reduce(&self, context: Context, _: &Budget, state: State) -> Reduced {
        let now = context.last_turn();
        let recent = self.among_the_last(&context);
        let scribe = Scribe::of(&context);
        let context = context.edit(self.name(), |index, segment| {
            let Some(call) = segment.call() else { return Edit::Keep };
            if segment.turn() == now || segment.fidelity() > Fidelity::Cut || segment.shown().is_none() {
                return Edit::Keep;
            }
            let expired = match self.retention(&call.name.0) {
                Retention::Turns(turns) => now - segment.turn() > turns,
                Retention::Last(_) => !recent.contains(&index),
                Retention::NeverEvict => false,
            };
            if expired { scribe.result(segment, "expired") } else { Edit::Keep }
        });
        Reduced { context, state }
    }
}

impl ExpireToolResults {
    fn retention(&self, tool: &str) -> Retention {
        self.tools.get(tool).copied().unwrap_or(self.default)
    }

    /// The places of the results that are among the last of their tool.
    fn among_the_last(&self, context: &Context) -> HashSet<usize> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let newest_first = context.segments().iter().enumerate().rev();
        let recent = newest_first.filter(|(_, segment)| {
            let Some(tool) = returned_by(segment) else { return false };
            let count = seen.entry(tool).or_default();
            *count += 1;
            matches!(self.retention(tool), Retention::Last(last) if *count <= last)
        });
        recent.map(|(index, _)| index).collect()
    }
}

fn returned_by(segment: &Segment) -> Option<&str> {
    segment.shown()?;
    segment.call().map(|call| call.name.0.as_str())
}
