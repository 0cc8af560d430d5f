//! From a line of events to a request that fits: project, reduce, render, and report.
//!
//! This needs no store and no session. A file of messages, or a whole request, is enough: this is the
//! stateless path.

use std::{collections::BTreeMap, fmt, sync::Arc};

use epitome_core::{
    ChainLink, ContentPart, Event, EventId, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    budget::Budget,
    compaction_strategy::CompactionStrategy,
    context::{Context, EventNaming, Fidelity, Segment, SegmentBody, Tier, VisibleOutcome},
    event::InstructionKind,
    fit::{FitError, FittedContext, fit},
    meter::Meter,
    pipeline::{ReducerState, ReductionCause, ReductionStep},
    profile::ProviderRule,
    projection::{EventLine, project},
};
use epitome_wire::{
    Format, WireError,
    legality::{self, ProviderRules, RequestViolation, RuleRemedy},
    render::{
        BoundThinkingError, RenderError, RenderOptions, RenderedRequest, SETTLE_THINKING, SettledContext,
        settle_thinking,
    },
};
use serde::Serialize;

use crate::token_margin::TokenMargin;

/// Settings for making a request.
#[derive(Debug)]
pub struct RequestCompaction<'a> {
    /// Largest size of the request, and the size that a reduction goes down to.
    pub budget: Budget,
    /// Tokens that `budget` already keeps free, and why.
    pub margin: TokenMargin,
    /// Strategy that makes the messages smaller.
    pub strategy: &'a dyn CompactionStrategy,
    /// The format to render.
    pub format: Format,
    /// Rendering options that the model requires.
    pub options: RenderOptions,
}

/// A request that fits, with its report.
#[derive(Clone, Debug)]
pub struct CompactedRequest {
    /// The request.
    pub rendered: RenderedRequest,
    /// The context it was rendered from.
    pub context: Context,
    /// Report of how it was made.
    pub report: CompactionReport,
}

/// Report of making a request fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompactionReport {
    /// Size of everything in tokens, with nothing left out. [`size`] also tells how many messages and bytes
    /// that is.
    pub before: Tokens,
    /// Size of the request.
    pub after: RequestSize,
    /// Largest allowed request, by the provider's count: the margin and the room for the context.
    pub budget: Tokens,
    /// Part of it that is kept free, and why.
    pub margin: TokenMargin,
    /// Size that a reduction goes down to.
    pub target: Tokens,
    /// Name of the token counter.
    pub counter: &'static str,
    /// Effect of each reducer, in order.
    pub steps: Vec<ReductionStep>,
    /// Content that is not shown in full.
    pub evictions: Vec<EvictedContent>,
    /// Rules that the provider would enforce against the request, and that only its author can satisfy.
    pub illegal: Vec<ReportedViolation>,
    /// Rules that the original broke, and that were satisfied without guessing.
    pub mended: Vec<ReportedViolation>,
}

/// A rule of a provider that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedViolation {
    /// Place in the request, as a JSON pointer.
    pub place: String,
    /// Name of the rule, as in [`LEGALITY_RULES`](epitome_wire::legality::LEGALITY_RULES).
    pub rule: &'static str,
    /// Description of the problem.
    pub reason: String,
}

impl From<&RequestViolation> for ReportedViolation {
    fn from(found: &RequestViolation) -> Self {
        Self { place: found.place.clone(), rule: found.breach.rule().id, reason: found.breach.to_string() }
    }
}

impl fmt::Display for ReportedViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "the request" } else { &self.place };
        write!(f, "{place}: {} ({})", self.reason, self.rule)
    }
}

impl CompactionReport {
    /// Report of a request that was rendered from a context, without the size of the original and the steps.
    pub(crate) fn of(
        context: &Context,
        rendered: &RenderedRequest,
        (budget, margin): (&Budget, TokenMargin),
        format: Format,
        options: &RenderOptions,
    ) -> Self {
        Self {
            before: Tokens(0),
            after: size_of(context, rendered),
            budget: budget.ceiling() + margin.tokens,
            margin,
            target: budget.target(),
            counter: context.meter().name(),
            steps: Vec::new(),
            evictions: evictions(context),
            illegal: unfixable_violations(format, &rendered.body, &options.rules),
            mended: Vec::new(),
        }
    }

    /// Adds to the report what the provider would refuse about the original request.
    pub fn record_violations(&mut self, format: Format, request: &str, rules: &ProviderRules) {
        let found = legality::inspect(format, request, rules);
        let (named, mended): (Vec<_>, Vec<_>) =
            found.iter().partition(|found| found.breach.rule().remedy == RuleRemedy::Named);
        self.illegal = named.into_iter().map(ReportedViolation::from).collect();
        self.mended = mended.into_iter().map(ReportedViolation::from).collect();
    }
}

/// Rules that a rendered request breaks because of its content, which only its author can correct.
fn unfixable_violations(format: Format, body: &str, rules: &ProviderRules) -> Vec<ReportedViolation> {
    let found = legality::inspect(format, body, rules);
    let named = found.iter().filter(|found| found.breach.rule().remedy == RuleRemedy::Named);
    named.map(ReportedViolation::from).collect()
}

/// Size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestSize {
    /// Input tokens.
    pub tokens: Tokens,
    /// Messages or items of the history.
    pub messages: usize,
    /// Bytes of the JSON.
    pub bytes: usize,
}

/// Content that is not shown in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvictedContent {
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
    Refused(#[from] FitError),
    /// The thinking of an open tool loop is bound to content that would have to change.
    #[error(transparent)]
    Thinking(#[from] BoundThinkingError),
    /// The content cannot be written in this format.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The written request cannot be read back.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl RequestCompaction<'_> {
    /// Makes a request of everything in `context`, or of as much as fits. A context below the budget's
    /// trigger is left as it is, unless a tier is over its cap.
    pub fn run(&self, context: Context) -> Result<CompactedRequest, CompactError> {
        let before = context.tokens();
        let due = before > self.budget.trigger();
        let budget = self.budget.clone();
        let budget = if due { budget } else { budget.with_target(self.budget.ceiling()) };
        let (context, steps) = self.reduce(context, &budget)?;
        let rendered = self.format.render(&context, &self.options)?;
        let report = CompactionReport {
            before,
            steps,
            ..CompactionReport::of(
                &context,
                &rendered,
                (&self.budget, self.margin),
                self.format,
                &self.options,
            )
        };
        Ok(CompactedRequest { rendered, context, report })
    }

    /// Makes a context fit, and removes thinking that its model would no longer accept.
    fn reduce(
        &self,
        context: Context,
        budget: &Budget,
    ) -> Result<(Context, Vec<ReductionStep>), CompactError> {
        if !self.options.rules.has(ProviderRule::PreservedThinking) {
            let fitted = fit(context, budget, self.strategy, ReducerState::default())?;
            return Ok((fitted.context, fitted.steps));
        }
        let settled = self.settle(&context, budget);
        let Err(CompactError::Thinking(bound)) = settled else { return settled };
        // A loop that is retold in words can take more room than before. As much has to go elsewhere: first
        // the excess, then much more than that, and in the end everything possible.
        let over = bound.needed.less(bound.ceiling);
        let essential =
            match fit(context.clone(), &Budget::new(Tokens(0)), self.strategy, ReducerState::default()) {
                Err(refusal) => refusal.needed,
                Ok(fitted) => fitted.context.tokens(),
            };
        let most = bound.ceiling.less(essential);
        let mut last = bound;
        for kept_free in [over.min(most), (over + over + over + over).min(most), most] {
            match self.settle(&context, &budget.clone().with_reserve(kept_free)) {
                Err(CompactError::Thinking(bound)) => last = bound,
                settled => return settled,
            }
        }
        Err(last.into())
    }

    /// Makes a context fit a budget, and adapts bound thinking within the budget of the whole.
    fn settle(&self, sent: &Context, budget: &Budget) -> Result<(Context, Vec<ReductionStep>), CompactError> {
        let FittedContext { context, mut steps, .. } =
            fit(sent.clone(), budget, self.strategy, ReducerState::default())?;
        let (before, changes) = (context.tokens(), context.changes());
        let SettledContext { context, stripped, .. } =
            settle_thinking(context, sent, &self.options.rules, self.budget.ceiling())?;
        if stripped > 0 {
            let now = context.changes();
            steps.push(ReductionStep {
                reducer: SETTLE_THINKING,
                cause: ReductionCause::Unsendable(stripped),
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
pub fn size(context: &Context, format: Format, options: &RenderOptions) -> Result<RequestSize, RenderError> {
    Ok(size_of(context, &format.render(context, options)?))
}

fn size_of(context: &Context, rendered: &RenderedRequest) -> RequestSize {
    RequestSize { tokens: context.tokens(), messages: rendered.messages.len(), bytes: rendered.body.len() }
}

/// Puts events outside a log into a line, numbered from 1.
pub fn line(events: impl IntoIterator<Item = Event>) -> EventLine {
    let thread = ThreadId::derived(&["no log"]);
    let mut link = ChainLink::ROOT;
    EventLine::new(events.into_iter().zip(1..).map(|(event, seq)| {
        link = link.next(&event, &event.fact_json());
        Arc::new(LoggedEvent { id: EventId { thread, seq: Seq(seq) }, event, link })
    }))
}

/// Names in stubs for the messages of a line outside a log: by number, from the first one in the request.
pub fn numbered(line: &EventLine) -> EventNaming {
    let stands_apart = |event: &&Arc<LoggedEvent>| {
        matches!(
            event.event.fact,
            Fact::Instructed {
                what: InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools,
                ..
            }
        )
    };
    EventNaming::MessagesAfter(line.events().take_while(stands_apart).count() as u64)
}

/// The context of a line, with nothing left out.
pub fn context(line: &EventLine, meter: Meter, names: EventNaming) -> Context {
    project(line, Arc::new(meter), names)
}

/// Content of a context that is not shown in full, in order.
pub fn evictions(context: &Context) -> Vec<EvictedContent> {
    let changed = context.segments().iter().filter(|segment| segment.fidelity() != Fidelity::Verbatim);
    let mut evictions: Vec<EvictedContent> =
        changed.filter_map(|segment| eviction(context, segment)).collect();
    for elision in context.elided() {
        let (Some(first), Some(last)) = (elision.events.first(), elision.events.last()) else { continue };
        evictions.push(EvictedContent {
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

fn eviction(context: &Context, segment: &Segment) -> Option<EvictedContent> {
    let (first, last) = (segment.stands_for().first()?, segment.stands_for().last()?);
    Some(EvictedContent {
        by: segment.last_author()?.to_owned(),
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
        SegmentBody::Exchange { outcome, .. } => {
            let call =
                segment.call().map_or_else(String::new, |call| format!("{} {}", call.name, call.arguments));
            match outcome {
                VisibleOutcome::Unanswered => format!("{call} → no result"),
                VisibleOutcome::Returned { .. } => call,
            }
        }
        SegmentBody::Answer { event, part } => text(event.event.fact.parts().get(*part)),
        SegmentBody::User { .. } => text(segment.shown().unwrap_or_default()),
        SegmentBody::Prefix(event) | SegmentBody::Instruction(event) | SegmentBody::Summary(event) => {
            event.event.fact.text()
        }
        SegmentBody::Carried(event) => event.event.raw.json.to_string(),
        SegmentBody::Note(note) => note.text.clone(),
    }
}

fn text<'a>(parts: impl IntoIterator<Item = &'a ContentPart>) -> String {
    let mut text = String::new();
    for part in parts {
        part.visit_text(&mut |piece| text.push_str(piece));
    }
    text
}
