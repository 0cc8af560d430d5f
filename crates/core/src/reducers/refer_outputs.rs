//! Refers to outputs: what an old call fetched becomes the path, command or pattern to fetch it again.
//!
//! **Trigger:** the context is over the target, or tool results over their cap; then outputs of calls that read, searched
//! or ran something become references, oldest first, until that is no longer so. The newest turns are spared, unless
//! tool results are still over their cap: then only the open exchange is.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Edit, Fidelity, Segment, Tier},
    pipeline::{Reduced, Reducer, State, excess},
    reducers::{
        fetched::{Fetched, Kind},
        stub::{Scribe, brief, size, tool},
    },
    tokens::Tokens,
};

/// Refers to outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReferOutputs {
    /// How many of the newest turns are spared. By default 4.
    pub spare_turns: u64,
}

impl Default for ReferOutputs {
    fn default() -> Self {
        Self { spare_turns: 4 }
    }
}

impl Reducer for ReferOutputs {
    fn name(&self) -> &'static str {
        "refer_outputs"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, budget: &Budget, state: State) -> Reduced {
        let end = (context.last_turn() + 1).saturating_sub(self.spare_turns);
        let left = excess(&context, budget, |tier| self.serves(tier));
        let context = self.refer(context, left, |segment| segment.turn() < end);
        let cap = budget.cap_of(Tier::ToolResults).unwrap_or(Tokens(u64::MAX));
        let over = Tokens(context.tier_tokens(Tier::ToolResults).0.saturating_sub(cap.0));
        Reduced { context: self.refer(context, over, |_| true), state }
    }
}

impl ReferOutputs {
    /// Makes references of the oldest outputs that `may` go, until `left` tokens are saved.
    fn refer(&self, context: Context, mut left: Tokens, may: impl Fn(&Segment) -> bool) -> Context {
        if left == Tokens(0) {
            return context;
        }
        let scribe = Scribe::of(&context);
        let open = context.essential().open;
        let pinned: Vec<bool> = context.segments().iter().map(|segment| context.is_pinned(segment)).collect();
        context.edit(self.name(), |index, segment| {
            if left == Tokens(0) || open.contains(&index) || pinned[index] || !may(segment) {
                return Edit::Keep;
            }
            let Some(line) = reference(&scribe, segment) else { return Edit::Keep };
            let saved = segment.content_tokens().0.saturating_sub(scribe.meter.text(&line).0);
            left = Tokens(left.0.saturating_sub(saved));
            Edit::line(line, Fidelity::Reference)
        })
    }
}

/// `[read_file src/main.rs: 214 lines, 3120 tokens; fetch it again, or recall 1b2c3d4e:57]`
fn reference(scribe: &Scribe, segment: &Segment) -> Option<String> {
    segment.shown()?;
    if segment.fidelity() >= Fidelity::Reference {
        return None;
    }
    let fetched = Fetched::of(segment.call()?)?;
    let again = match fetched.kind {
        Kind::Read => "read it again",
        Kind::Search => "search again",
        Kind::Command => "run it again",
        Kind::Page => "get it again",
        Kind::Change => return None,
    };
    let target = brief(&fetched.target, 120);
    let (tool, size, handle) = (tool(segment), size(segment), scribe.handle(segment));
    Some(format!("[{tool} `{target}`: {size}, no longer shown; {again} if it matters, or {handle}]"))
}
