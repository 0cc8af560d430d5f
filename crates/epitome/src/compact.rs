//! From a line of events to a request that fits: project, reduce, render, and say what was done.
//!
//! It needs no store and no session. A file of messages, or a whole request, is enough: that is the stateless path.

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

/// How to make a request.
#[derive(Debug)]
pub struct Compaction<'a> {
    /// How much it may hold, and what a reduction goes down to.
    pub budget: Budget,
    /// What `budget` already leaves free, and why.
    pub margin: Margin,
    /// What reduces it, in order.
    pub pipeline: &'a Pipeline,
    /// The format to render.
    pub format: Format,
    /// What the model demands of a request.
    pub options: RenderOptions,
}

/// A request that fits, and how it came to.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// The request.
    pub rendered: Rendered,
    /// The context it was rendered from.
    pub context: Context,
    /// What was done.
    pub report: Report,
}

/// What was done to make a request fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What everything costs, with nothing left out. How many messages and bytes that would be, [`size`] can tell.
    pub before: Tokens,
    /// The size of what is sent.
    pub after: Size,
    /// The most that may be sent, by the provider's count: the margin and what a context may hold.
    pub budget: Tokens,
    /// What of it is kept free, and why.
    pub margin: Margin,
    /// What a reduction goes down to.
    pub target: Tokens,
    /// Whose tokens these are.
    pub counter: &'static str,
    /// What each reducer did, in order.
    pub steps: Vec<Step>,
    /// What is not shown as it was.
    pub evictions: Vec<Eviction>,
    /// What the provider would refuse, and only the request's author can mend.
    pub illegal: Vec<Illegality>,
    /// What the provider would have refused, and was mended.
    pub mended: Vec<Illegality>,
}

/// Something that a provider would refuse about a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Illegality {
    /// The place in the request, as a JSON pointer.
    pub place: String,
    /// The name of the rule, as [`RULES`](epitome_wire::legality::RULES) has it.
    pub rule: &'static str,
    /// What is wrong.
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
    /// Says what the provider would refuse about the request that all this was made of.
    pub fn judge(&mut self, format: Format, request: &str, rules: &Rules) {
        let found = legality::inspect(format, request, rules);
        let (named, mended): (Vec<_>, Vec<_>) =
            found.iter().partition(|found| found.breach.rule().remedy == Remedy::Named);
        self.illegal = named.into_iter().map(Illegality::from).collect();
        self.mended = mended.into_iter().map(Illegality::from).collect();
    }
}

/// The breaches in a request that was made which nobody but the author of what it was made of can mend.
pub(crate) fn unmended(format: Format, body: &str, rules: &Rules) -> Vec<Illegality> {
    let found = legality::inspect(format, body, rules);
    let named = found.iter().filter(|found| found.breach.rule().remedy == Remedy::Named);
    named.map(Illegality::from).collect()
}

/// How large a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Tokens of input.
    pub tokens: Tokens,
    /// Messages or items of its history.
    pub messages: usize,
    /// Bytes of its JSON.
    pub bytes: usize,
}

/// Something that is not shown as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// The reducer.
    pub by: String,
    /// What is shown instead; `None` if nothing is.
    pub shown_as: Option<Fidelity>,
    /// The tool whose result it was, if it was one.
    pub tool: Option<String>,
    /// The events, from and to.
    pub first: Seq,
    /// The last of the events.
    pub last: Seq,
    /// How many events.
    pub events: u64,
    /// How to get all of them back.
    pub handle: String,
}

/// Why no request could be made.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// It cannot be made small enough.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The thinking of an open tool loop is bound to what would have to change.
    #[error(transparent)]
    Thinking(#[from] BoundThinking),
    /// It cannot be written in this format.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// What was written cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Compaction<'_> {
    /// Makes a request of everything in `context`, or of as much as fits. What is not above the budget's trigger is left
    /// as it is, unless a tier is over its cap.
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

    /// Makes a context fit, and leaves out the thinking that its model would no longer accept.
    fn reduce(&self, context: Context, budget: &Budget) -> Result<(Context, Vec<Step>), CompactError> {
        if !self.options.rules.has(Rule::PreservedThinking) {
            let fitted = fit(context, budget, self.pipeline, State::default())?;
            return Ok((fitted.context, fitted.steps));
        }
        let settled = self.settle(&context, budget);
        let Err(CompactError::Thinking(bound)) = settled else { return settled };
        // A loop that is told again can take more than it did. As much has to go elsewhere: what is over, much more
        // than that, and in the end all that can.
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

    /// Makes a context fit a budget, and what is bound in it fit to be sent within the budget of the whole.
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

/// How large a request of a context is. It costs a rendering.
pub fn size(context: &Context, format: Format, options: &RenderOptions) -> Result<Size, RenderError> {
    Ok(size_of(context, &format.render(context, options)?))
}

pub(crate) fn size_of(context: &Context, rendered: &Rendered) -> Size {
    Size { tokens: context.tokens(), messages: rendered.messages.len(), bytes: rendered.body.len() }
}

/// Puts events that no log holds in a line, numbered from 1.
pub fn line(events: impl IntoIterator<Item = Event>) -> Line {
    let thread = ThreadId::derived(&["no log"]);
    let mut link = Link::ROOT;
    Line::new(events.into_iter().zip(1..).map(|(event, seq)| {
        link = link.next(&event, &event.fact_json());
        Arc::new(Logged { id: EventId { thread, seq: Seq(seq) }, event, link })
    }))
}

/// How stubs name the messages of a line that no log holds: by number, from the first one in the request.
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

/// What a context does not show as it was, in order.
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

/// What each tier of a context costs.
pub fn tiers(context: &Context) -> BTreeMap<Tier, Tokens> {
    let mut tiers = BTreeMap::new();
    for segment in context.segments() {
        *tiers.entry(segment.tier()).or_default() += segment.tokens();
    }
    tiers
}

/// What a segment shows, in a few words.
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
