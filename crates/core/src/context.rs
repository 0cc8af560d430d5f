//! The context: the ordered segments that will be sent.
//!
//! A segment knows the events it stands for, what it costs, how faithful it is and who last touched it. Only
//! [`Context::edit`] and [`Context::fold`] change a context, and both keep the lineage: whatever is no longer shown is
//! in [`Context::elided`]. A call and its outcome are one segment, so no edit can part them.

use std::{ops::Range, sync::Arc};

use serde::Serialize;

use crate::{
    event::{Fact, Logged, Part, ToolCall},
    id::{Seq, ThreadId},
    meter::Meter,
    tokens::Tokens,
};

/// What will be sent, in order.
#[derive(Clone, Debug)]
pub struct Context {
    segments: Vec<Segment>,
    elided: Vec<Elision>,
    total: Tokens,
    pub(crate) meter: Arc<Meter>,
    names: Names,
}

/// A piece of a context.
#[derive(Clone, Debug)]
pub struct Segment {
    pub(crate) stands_for: Vec<Seq>,
    pub(crate) turn: u64,
    pub(crate) body: Body,
    /// What its wrapping, and whatever no edit replaces, costs.
    pub(crate) fixed: Tokens,
    /// What the parts cost that an edit may replace.
    pub(crate) content: Tokens,
    pub(crate) fidelity: Fidelity,
    pub(crate) touched: Option<&'static str>,
}

/// What a segment shows.
#[derive(Clone, Debug)]
pub enum Body {
    /// System prompt, tools, project instructions at the head of the context: never modified.
    Prefix(Arc<Logged>),
    /// A system message inside the conversation.
    Instruction(Arc<Logged>),
    /// What a user said, or what stood beside tool results.
    User {
        /// The event.
        event: Arc<Logged>,
        /// What is shown of it.
        content: Content,
    },
    /// One part of an answer that is not a call: text, reasoning, refusal, something opaque.
    Answer {
        /// The event.
        event: Arc<Logged>,
        /// Which of its parts.
        part: usize,
    },
    /// A call with its outcome.
    Exchange {
        /// The event that made the call.
        event: Arc<Logged>,
        /// Which of its parts the call is.
        part: usize,
        /// What is shown of the outcome.
        outcome: Shown,
    },
    /// Something unknown that goes along.
    Carried(Arc<Logged>),
    /// A summary, or a line about what is not shown. It goes out as a user message.
    Note(String),
}

/// What is shown of something that was sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it, as it came.
    AsSent,
    /// This instead.
    Replaced(Vec<Part>),
}

/// What is shown of a call's outcome.
#[derive(Clone, Debug)]
pub enum Shown {
    /// The tool returned.
    Returned {
        /// The event that carries the result.
        event: Arc<Logged>,
        /// Which of its results.
        index: usize,
        /// What is shown of it.
        content: Content,
    },
    /// Nothing came back; a fixed line says so.
    Unanswered,
}

/// The line that stands for a result that never came.
pub const UNANSWERED: &str = "[no result: the call was interrupted]";

/// How faithful a segment is to what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// Everything, as it was.
    Verbatim,
    /// Its beginning and its end.
    Cut,
    /// A path or a command to get it again.
    Reference,
    /// A line that says what was there.
    Stub,
    /// What a summary or a note says of it.
    Summary,
    /// Added by a hook.
    Injected,
}

/// What a segment counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Instructions at the head of the context, which no reducer touches.
    Prefix,
    /// Summaries and notes.
    Summaries,
    /// What users and the model said.
    Dialogue,
    /// The model's reasoning.
    Reasoning,
    /// Calls with their results.
    ToolResults,
    /// Messages that carry media.
    Media,
}

/// Something no longer shown by any segment of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elision {
    /// The events.
    pub events: Vec<Seq>,
    /// Who left it out.
    pub by: &'static str,
    /// What it had cost.
    pub tokens: Tokens,
}

/// What to do with a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Leave it.
    Keep,
    /// Show this instead of what a user said or a tool returned. Other segments cannot be replaced and stay.
    Replace {
        /// What to show.
        parts: Vec<Part>,
        /// How faithful that is.
        fidelity: Fidelity,
    },
    /// Leave it out. The prefix cannot be left out and stays.
    Drop,
}

/// How stubs name what they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// By a handle into a log.
    Thread(ThreadId),
    /// By the number of the message: there is no log.
    Messages,
}

impl Names {
    /// How to get an event back.
    pub fn handle(self, seq: Seq) -> String {
        match self {
            Self::Thread(thread) => format!("recall {}:{seq}", &thread.to_string()[..8]),
            Self::Messages => format!("message {seq}"),
        }
    }
}

impl Context {
    pub(crate) fn new(meter: Arc<Meter>, names: Names) -> Self {
        let total = meter.overhead().request;
        Self { segments: Vec::new(), elided: Vec::new(), total, meter, names }
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.total += segment.tokens();
        self.segments.push(segment);
    }

    pub(crate) fn elide(&mut self, events: Vec<Seq>, by: &'static str, tokens: Tokens) {
        self.elided.push(Elision { events, by, tokens });
    }

    /// The segments, in the order they will be sent.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// What is not shown by any segment of its own, in the order it was left out.
    pub fn elided(&self) -> &[Elision] {
        &self.elided
    }

    /// What the whole request will cost.
    pub fn tokens(&self) -> Tokens {
        self.total
    }

    /// What one tier costs.
    pub fn tier_tokens(&self, tier: Tier) -> Tokens {
        self.segments.iter().filter(|segment| segment.tier() == tier).map(Segment::tokens).sum()
    }

    /// The counter and the wrapping this context is measured with.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The last turn there is.
    pub fn last_turn(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.turn)
    }

    /// How stubs name what they stand for.
    pub fn names(&self) -> Names {
        self.names
    }

    /// Decides about each segment. A decision that changes nothing leaves no trace.
    pub fn edit(mut self, by: &'static str, mut decide: impl FnMut(&Segment) -> Edit) -> Self {
        let segments = std::mem::take(&mut self.segments);
        self.segments.reserve(segments.len());
        for mut segment in segments {
            match decide(&segment) {
                Edit::Keep => self.segments.push(segment),
                Edit::Drop if segment.is_prefix() => self.segments.push(segment),
                Edit::Drop => {
                    let tokens = segment.tokens();
                    self.total = Tokens(self.total.0 - tokens.0);
                    self.elide(segment.stands_for, by, tokens);
                }
                Edit::Replace { parts, fidelity } => {
                    let before = segment.tokens();
                    if segment.replace(parts, fidelity, &self.meter) {
                        segment.touched = Some(by);
                        self.total = Tokens(self.total.0 - before.0) + segment.tokens();
                    }
                    self.segments.push(segment);
                }
            }
        }
        self
    }

    /// Makes one note of a run of segments; the note stands for all their events. Prefix segments inside stay.
    pub fn fold(mut self, by: &'static str, run: Range<usize>, note: String) -> Self {
        let run = run.start.min(self.segments.len())..run.end.min(self.segments.len());
        if run.is_empty() {
            return self;
        }
        let turn = self.segments[run.start].turn;
        let tail = self.segments.split_off(run.end);
        let folded = self.segments.split_off(run.start);
        let mut events = Vec::new();
        let mut kept = Vec::new();
        for segment in folded {
            if segment.is_prefix() {
                kept.push(segment);
                continue;
            }
            self.total = Tokens(self.total.0 - segment.tokens().0);
            events.extend_from_slice(&segment.stands_for);
        }
        self.segments.extend(kept);
        if !events.is_empty() {
            events.sort_unstable();
            events.dedup();
            let (fixed, content) = (self.meter.overhead().message, self.meter.text(&note));
            self.push(Segment {
                stands_for: events,
                turn,
                body: Body::Note(note),
                fixed,
                content,
                fidelity: Fidelity::Summary,
                touched: Some(by),
            });
        }
        self.segments.extend(tail);
        self
    }

    /// Whether the books balance: the total is the sum, and nothing stands for no event.
    pub fn is_consistent(&self) -> bool {
        let sum: Tokens = self.segments.iter().map(Segment::tokens).sum();
        sum + self.meter.overhead().request == self.total
            && self.segments.iter().all(|segment| !segment.stands_for.is_empty())
    }

    /// Every event that some segment or elision stands for, sorted.
    pub fn accounted(&self) -> Vec<Seq> {
        let shown = self.segments.iter().flat_map(|segment| &segment.stands_for);
        let mut all: Vec<Seq> =
            shown.chain(self.elided.iter().flat_map(|elision| &elision.events)).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Segment {
    /// The events it stands for, sorted.
    pub fn stands_for(&self) -> &[Seq] {
        &self.stands_for
    }

    /// The turn it belongs to, counted from 0 where the context's thread begins.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// What it shows.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// What it costs, its wrapping included.
    pub fn tokens(&self) -> Tokens {
        self.fixed + self.content
    }

    /// What the parts cost that an edit may replace.
    pub fn content_tokens(&self) -> Tokens {
        self.content
    }

    /// How faithful it is.
    pub fn fidelity(&self) -> Fidelity {
        self.fidelity
    }

    /// Who last touched it.
    pub fn touched(&self) -> Option<&'static str> {
        self.touched
    }

    /// Whether it belongs to the prefix that is never modified.
    pub fn is_prefix(&self) -> bool {
        matches!(self.body, Body::Prefix(_))
    }

    /// Whether it is what a user said.
    pub fn is_user(&self) -> bool {
        match &self.body {
            Body::User { event, .. } => matches!(event.event.fact, Fact::UserSaid { .. }),
            _ => false,
        }
    }

    /// What it counts against.
    pub fn tier(&self) -> Tier {
        match &self.body {
            Body::Prefix(_) => Tier::Prefix,
            Body::Note(_) => Tier::Summaries,
            Body::Exchange { .. } => Tier::ToolResults,
            Body::Answer { event, part } => match event.event.fact.parts().get(*part) {
                Some(Part::Reasoning { .. }) => Tier::Reasoning,
                _ => Tier::Dialogue,
            },
            Body::User { .. } if self.has_media() => Tier::Media,
            Body::User { .. } | Body::Instruction(_) | Body::Carried(_) => Tier::Dialogue,
        }
    }

    /// The call, if it is an exchange.
    pub fn call(&self) -> Option<&ToolCall> {
        let Body::Exchange { event, part, .. } = &self.body else { return None };
        match event.event.fact.parts().get(*part) {
            Some(Part::ToolCall(call)) => Some(call),
            _ => None,
        }
    }

    /// The parts it shows that an edit may replace: a user's, or those of a returned result.
    pub fn shown(&self) -> Option<&[Part]> {
        match &self.body {
            Body::User { content: Content::Replaced(parts), .. }
            | Body::Exchange { outcome: Shown::Returned { content: Content::Replaced(parts), .. }, .. } => Some(parts),
            Body::User { event, content: Content::AsSent } => Some(event.event.fact.parts()),
            Body::Exchange { outcome: Shown::Returned { event, index, content: Content::AsSent }, .. } => {
                event.event.fact.results().get(*index).map(|result| result.parts.as_slice())
            }
            Body::Exchange { outcome: Shown::Unanswered, .. }
            | Body::Prefix(_)
            | Body::Instruction(_)
            | Body::Answer { .. }
            | Body::Carried(_)
            | Body::Note(_) => None,
        }
    }

    /// Whether the parts an edit may replace hold media.
    pub fn has_media(&self) -> bool {
        self.shown().is_some_and(|parts| parts.iter().any(|part| matches!(part, Part::Media(_))))
    }

    /// Puts other parts in place of what is shown; `false` if that is not possible or changes nothing.
    fn replace(&mut self, parts: Vec<Part>, fidelity: Fidelity, meter: &Meter) -> bool {
        let Some(shown) = self.shown() else { return false };
        if shown == parts {
            return false;
        }
        self.content = meter.parts(&parts);
        self.fidelity = fidelity;
        match &mut self.body {
            Body::User { content, .. } | Body::Exchange { outcome: Shown::Returned { content, .. }, .. } => {
                *content = Content::Replaced(parts);
            }
            Body::Exchange { outcome: Shown::Unanswered, .. }
            | Body::Prefix(_)
            | Body::Instruction(_)
            | Body::Answer { .. }
            | Body::Carried(_)
            | Body::Note(_) => {}
        }
        true
    }
}
