//! From a line of events to a request that fits: project, reduce, render, and report.
//!
//! This needs no store and no session. A file of messages, or a whole request, is enough: this is the
//! stateless path.

use std::{collections::BTreeMap, fmt, sync::Arc};

use epitome_core::{
    Event, EventId, Fact, Link, Logged, Part, Seq, ThreadId, Tokens,
    budget::Budget,
    context::{Body, Context, Fidelity, Names, Segment, Shown, Tier},
    event::Instruction,
    fit::{Fitted, Refusal, fit},
    meter::Meter,
    pipeline::{Cause, Pipeline, State, Step},
    profile::Rule,
    project::{Line, project},
};
use epitome_wire::{
    Format, WireError,
    legality::{self, Remedy, Rules, Violation},
    render::{
        BoundThinking, RenderError, RenderOptions, Rendered, SETTLE_THINKING, Settled, settle_thinking,
    },
};
use serde::Serialize;

use crate::margin::Margin;

/// Settings for making a request.
#[derive(Debug)]
pub struct Compaction<'a> {
    /// Largest size of the request, and the size that a reduction goes down to.
    pub budget: Budget,
    /// Tokens that `budget` already keeps free, and why.
    pub margin: Margin,
    /// Reducers, in order.
    pub pipeline: &'a Pipeline,
    /// The format to render.
    pub format: Format,
    /// Rendering options that the model requires.
    pub options: RenderOptions,
}

/// A request that fits, with its report.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// The request.
    pub rendered: Rendered,
    /// The context it was rendered from.
    pub context: Context,
    /// Report of how it was made.
    pub report: Report,
}

/// Report of making a request fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Size of everything in tokens, with nothing left out. [`size`] also tells how many messages and bytes
    /// that is.
    pub before: Tokens,
    /// Size of the request.
    pub after: Size,
    /// Largest allowed request, by the provider's count: the margin and the room for the context.
    pub budget: Tokens,
    /// Part of it that is kept free, and why.
    pub margin: Margin,
    /// Size that a reduction goes down to.
    pub target: Tokens,
    /// Name of the token counter.
    pub counter: &'static str,
    /// Effect of each reducer, in order.
    pub steps: Vec<Step>,
    /// Content that is not shown in full.
    pub evictions: Vec<Eviction>,
    /// Rules that the provider would enforce against the request, and that only its author can satisfy.
    pub illegal: Vec<Illegality>,
    /// Rules that the original broke, and that were satisfied without guessing.
    pub mended: Vec<Illegality>,
}

/// A rule of a provider that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Illegality {
    /// Place in the request, as a JSON pointer.
    pub place: String,
    /// Name of the rule, as in [`RULES`](epitome_wire::legality::RULES).
    pub rule: &'static str,
    /// Description of the problem.
    pub reason: String,
}

impl From<&Violation> for Illegality {
    fn from(found: &Violation) -> Self {
        Self { place: found.place.clone(), rule: found.breach.rule().id, reason: found.breach.to_string() }
    }
}

impl fmt::Display for Illegality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "the request" } else { &self.place };
        write!(f, "{place}: {} ({})", self.reason, self.rule)
    }
}

impl Report {
    /// Adds to the report what the provider would refuse about the original request.
    pub fn judge(&mut self, format: Format, request: &str, rules: &Rules) {
        let found = legality::inspect(format, request, rules);
        let (named, mended): (Vec<_>, Vec<_>) =
            found.iter().partition(|found| found.breach.rule().remedy == Remedy::Named);
        self.illegal = named.into_iter().map(Illegality::from).collect();
        self.mended = mended.into_iter().map(Illegality::from).collect();
    }
}

/// Rules that a rendered request breaks because of its content, which only its author can correct.
pub(crate) fn unmended(format: Format, body: &str, rules: &Rules) -> Vec<Illegality> {
    let found = legality::inspect(format, body, rules);
    let named = found.iter().filter(|found| found.breach.rule().remedy == Remedy::Named);
    named.map(Illegality::from).collect()
}

/// Size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Input tokens.
    pub tokens: Tokens,
    /// Messages or items of the history.
    pub messages: usize,
    /// Bytes of the JSON.
    pub bytes: usize,
}

/// Content that is not shown in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// Name of the reducer.
    pub by: String,
    /// Form in which it is shown; `None` if it is left out.
    pub shown_as: Option<Fidelity>,
    /// Tool of the result, if it is one.
    pub tool: Option<String>,
    /// First of the events.
    pub first: Seq,
    /// The last of the events.
    pub last: Seq,
    /// Number of events.
    pub events: u64,
    /// Handle that brings all of them back.
    pub handle: String,
}

/// Reason why no request could be made.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The content cannot be made small enough.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The thinking of an open tool loop is bound to content that would have to change.
    #[error(transparent)]
    Thinking(#[from] BoundThinking),
    /// The content cannot be written in this format.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The written request cannot be read back.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Compaction<'_> {
    /// Makes a request of everything in `context`, or of as much as fits. A context below the budget's
    /// trigger is left as it is, unless a tier is over its cap.
    pub fn run(&self, context: Context) -> Result<Compacted, CompactError> {
        let before = context.tokens();
        let due = before > self.budget.trigger();
        let budget = self.budget.clone();
        let budget = if due { budget } else { budget.aim(self.budget.ceiling()) };
        let (context, steps) = self.reduce(context, &budget)?;
        let rendered = self.format.render(&context, &self.options)?;
        let report = Report {
            before,
            after: size_of(&context, &rendered),
            budget: self.budget.ceiling() + self.margin.tokens,
            margin: self.margin,
            target: self.budget.target(),
            counter: context.meter().name(),
            evictions: evictions(&context),
            steps,
            illegal: unmended(self.format, &rendered.body, &self.options.rules),
            mended: Vec::new(),
        };
        Ok(Compacted { rendered, context, report })
    }

    /// Makes a context fit, and removes thinking that its model would no longer accept.
    fn reduce(&self, context: Context, budget: &Budget) -> Result<(Context, Vec<Step>), CompactError> {
        if !self.options.rules.has(Rule::PreservedThinking) {
            let fitted = fit(context, budget, self.pipeline, State::default())?;
            return Ok((fitted.context, fitted.steps));
        }
        let settled = self.settle(&context, budget);
        let Err(CompactError::Thinking(bound)) = settled else { return settled };
        // A loop that is retold in words can take more room than before. As much has to go elsewhere: first
        // the excess, then much more than that, and in the end everything possible.
        let over = bound.needed.less(bound.ceiling);
        let essential = match fit(context.clone(), &Budget::new(Tokens(0)), self.pipeline, State::default()) {
            Err(refusal) => refusal.needed,
            Ok(fitted) => fitted.context.tokens(),
        };
        let most = bound.ceiling.less(essential);
        let mut last = bound;
        for kept_free in [over.min(most), (over + over + over + over).min(most), most] {
            match self.settle(&context, &budget.clone().reserve(kept_free)) {
                Err(CompactError::Thinking(bound)) => last = bound,
                settled => return settled,
            }
        }
        Err(last.into())
    }

    /// Makes a context fit a budget, and adapts bound thinking within the budget of the whole.
    fn settle(&self, sent: &Context, budget: &Budget) -> Result<(Context, Vec<Step>), CompactError> {
        let Fitted { context, mut steps, .. } = fit(sent.clone(), budget, self.pipeline, State::default())?;
        let (before, changes) = (context.tokens(), context.changes());
        let Settled { context, stripped, .. } =
            settle_thinking(context, sent, &self.options.rules, self.budget.ceiling())?;
        if stripped > 0 {
            let now = context.changes();
            steps.push(Step {
                reducer: SETTLE_THINKING,
                cause: Cause::Unsendable(stripped),
                before,
                after: context.tokens(),
                replaced: now.replaced - changes.replaced,
                removed: now.removed - changes.removed,
            });
        }
        Ok((context, steps))
    }
}

/// Size of a context's request. This renders it.
pub fn size(context: &Context, format: Format, options: &RenderOptions) -> Result<Size, RenderError> {
    Ok(size_of(context, &format.render(context, options)?))
}

pub(crate) fn size_of(context: &Context, rendered: &Rendered) -> Size {
    Size { tokens: context.tokens(), messages: rendered.messages.len(), bytes: rendered.body.len() }
}

/// Puts events outside a log into a line, numbered from 1.
pub fn line(events: impl IntoIterator<Item = Event>) -> Line {
    let thread = ThreadId::derived(&["no log"]);
    let mut link = Link::ROOT;
    Line::new(events.into_iter().zip(1..).map(|(event, seq)| {
        link = link.next(&event, &event.fact_json());
        Arc::new(Logged { id: EventId { thread, seq: Seq(seq) }, event, link })
    }))
}

/// Names in stubs for the messages of a line outside a log: by number, from the first one in the request.
pub fn numbered(line: &Line) -> Names {
    let stands_apart = |event: &&Arc<Logged>| {
        matches!(
            event.event.fact,
            Fact::Instructed { what: Instruction::Settings | Instruction::System | Instruction::Tools, .. }
        )
    };
    Names::MessagesAfter(line.events().take_while(stands_apart).count() as u64)
}

/// The context of a line, with nothing left out.
pub fn context(line: &Line, meter: Meter, names: Names) -> Context {
    project(line, Arc::new(meter), names)
}

/// Content of a context that is not shown in full, in order.
pub fn evictions(context: &Context) -> Vec<Eviction> {
    let changed = context.segments().iter().filter(|segment| segment.fidelity() != Fidelity::Verbatim);
    let mut evictions: Vec<Eviction> = changed.filter_map(|segment| eviction(context, segment)).collect();
    for elision in context.elided() {
        let (Some(first), Some(last)) = (elision.events.first(), elision.events.last()) else { continue };
        evictions.push(Eviction {
            by: elision.by.to_string(),
            shown_as: None,
            tool: None,
            first,
            last,
            events: elision.events.count(),
            handle: context.names().handles(&elision.events),
        });
    }
    evictions.sort_by_key(|eviction| (eviction.first, eviction.last));
    evictions
}

fn eviction(context: &Context, segment: &Segment) -> Option<Eviction> {
    let (first, last) = (segment.stands_for().first()?, segment.stands_for().last()?);
    Some(Eviction {
        by: segment.touched()?.to_owned(),
        shown_as: Some(segment.fidelity()),
        tool: segment.call().map(|call| call.name.0.clone()),
        first,
        last,
        events: segment.stands_for().count(),
        handle: context.names().handles(segment.stands_for()),
    })
}

/// Tokens of each tier of a context.
pub fn tiers(context: &Context) -> BTreeMap<Tier, Tokens> {
    let mut tiers = BTreeMap::new();
    for segment in context.segments() {
        *tiers.entry(segment.tier()).or_default() += segment.tokens();
    }
    tiers
}

/// Describes a segment in a few words.
pub fn headline(segment: &Segment) -> String {
    match segment.body() {
        Body::Exchange { outcome, .. } => {
            let call =
                segment.call().map_or_else(String::new, |call| format!("{} {}", call.name, call.arguments));
            match outcome {
                Shown::Unanswered => format!("{call} → no result"),
                Shown::Returned { .. } => call,
            }
        }
        Body::Answer { event, part } => text(event.event.fact.parts().get(*part)),
        Body::User { .. } => text(segment.shown().unwrap_or_default()),
        Body::Prefix(event) | Body::Instruction(event) | Body::Summary(event) => event.event.fact.text(),
        Body::Carried(event) => event.event.raw.json.to_string(),
        Body::Note(note) => note.text.clone(),
    }
}

fn text<'a>(parts: impl IntoIterator<Item = &'a Part>) -> String {
    let mut text = String::new();
    for part in parts {
        part.visit_text(&mut |piece| text.push_str(piece));
    }
    text
}
