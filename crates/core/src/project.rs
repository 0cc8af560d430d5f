//! From a line of events to a context: everything that will be sent, before anything is left out.
//!
//! [`project`] joins calls with their results, stands on the newest compaction, and puts the instructions that hold
//! now at the head. What comes out pairs by construction; what a provider demands beyond that is checked when it is rendered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    context::{Body, Content, Context, Fidelity, Names, Segment, Shown, UNANSWERED},
    event::{Compaction, Fact, Instruction, Logged, Part},
    id::Seq,
    meter::Meter,
    pairing::{Outcome, pair},
    tokens::Tokens,
};

/// A line of events with the counts the log keeps of them.
#[derive(Clone, Debug, Default)]
pub struct Line {
    events: Vec<Arc<Logged>>,
    pieces: HashMap<Seq, Vec<Tokens>>,
}

impl Line {
    /// Events, oldest first, not yet counted.
    pub fn new(events: impl IntoIterator<Item = Arc<Logged>>) -> Self {
        Self { events: events.into_iter().collect(), pieces: HashMap::new() }
    }

    /// Adds an event with the counts of its texts.
    pub fn push(&mut self, event: Arc<Logged>, pieces: Vec<Tokens>) {
        self.pieces.insert(event.id.seq, pieces);
        self.events.push(event);
    }

    /// The events.
    pub fn events(&self) -> &[Arc<Logged>] {
        &self.events
    }
}

/// Makes the context that shows everything.
pub fn project(line: &Line, meter: Arc<Meter>, names: Names) -> Context {
    Projection::new(line, meter, names).run()
}

struct Projection<'a> {
    line: &'a Line,
    meter: Arc<Meter>,
    context: Context,
    turn: u64,
    /// Whether the current turn has its answer.
    answered: bool,
    /// Whether a user or the model has spoken: the prefix ends there.
    begun: bool,
}

impl<'a> Projection<'a> {
    fn new(line: &'a Line, meter: Arc<Meter>, names: Names) -> Self {
        let context = Context::new(Arc::clone(&meter), names);
        Self { line, meter, context, turn: 0, answered: false, begun: false }
    }

    fn run(mut self) -> Context {
        let pivot = newest_compaction(&self.line.events);
        self.standing_instructions();
        let shown: Vec<&Arc<Logged>> = match pivot {
            None => self.line.events.iter().collect(),
            Some((at, compaction)) => self.summary(at, compaction),
        };
        let outcomes = outcomes(&shown);
        for event in shown {
            self.event(event, &outcomes);
        }
        self.context
    }

    /// Settings, system prompt and tools: the newest of each holds, the older ones are part of its lineage.
    fn standing_instructions(&mut self) {
        let mut newest: BTreeMap<u8, (Vec<Seq>, &Arc<Logged>)> = BTreeMap::new();
        for event in &self.line.events {
            let Fact::Instructed { what, .. } = &event.event.fact else { continue };
            let rank = match what {
                Instruction::Settings => 0,
                Instruction::Tools => 1,
                Instruction::System => 2,
                Instruction::Message | Instruction::Project => continue,
            };
            let (events, holds) = newest.entry(rank).or_insert_with(|| (Vec::new(), event));
            events.push(event.id.seq);
            *holds = event;
        }
        for (stands_for, event) in newest.into_values() {
            let tools = match &event.event.fact {
                Fact::Instructed { what: Instruction::Tools, parts } => parts.len() as u64,
                _ => 0,
            };
            let wrapping = self.meter.overhead().message.0 + self.meter.overhead().tool.0 * tools;
            let fixed = self.counted(event) + Tokens(wrapping);
            self.push(stands_for, Body::Prefix(Arc::clone(event)), fixed, Tokens(0));
        }
    }

    /// Stands on the newest compaction: leading instructions, its summary, and the events it kept.
    fn summary(&mut self, at: &'a Arc<Logged>, compaction: &Compaction) -> Vec<&'a Arc<Logged>> {
        let events = &self.line.events;
        let leading = events.iter().take_while(|event| is_quiet_or_instruction(&event.event.fact));
        let leading: Vec<_> = leading.collect();
        let mut shown: Vec<_> = leading.iter().copied().filter(|event| event.id.seq <= compaction.through).collect();
        for event in &shown {
            self.event(event, &HashMap::new());
        }
        let last_leading = shown.last().map_or(Seq::START, |event| event.id.seq);
        shown.clear();
        let kept = |event: &&Arc<Logged>| {
            let kept_before = compaction.first_kept.is_some_and(|first| event.id.seq >= first);
            event.id.seq > last_leading && (kept_before || event.id.seq > at.id.seq) && event.id.seq != at.id.seq
        };
        let covered: Vec<Seq> = events
            .iter()
            .filter(|event| event.id.seq > last_leading && event.id.seq <= at.id.seq && !kept(event))
            .filter(|event| is_rendered(&event.event.fact) || event.id.seq == at.id.seq)
            .map(|event| event.id.seq)
            .collect();
        let content = self.counted(at);
        let fixed = self.meter.overhead().message;
        self.begun = true;
        self.context.push(Segment {
            stands_for: covered,
            turn: 0,
            body: Body::Note(compaction.summary.text().to_owned()),
            fixed,
            content,
            fidelity: Fidelity::Summary,
            touched: None,
        });
        self.turn = 1;
        events.iter().filter(kept).collect()
    }

    fn event(&mut self, event: &Arc<Logged>, outcomes: &Outcomes) {
        let seq = event.id.seq;
        let message = self.meter.overhead().message;
        match &event.event.fact {
            Fact::Instructed { what: Instruction::Message | Instruction::Project, .. } => {
                let fixed = self.counted(event) + message;
                if self.begun {
                    self.asked();
                    self.push(vec![seq], Body::Instruction(Arc::clone(event)), fixed, Tokens(0));
                } else {
                    self.push(vec![seq], Body::Prefix(Arc::clone(event)), fixed, Tokens(0));
                }
            }
            Fact::UserSaid { .. } | Fact::Injected { .. } => {
                self.begun = true;
                self.asked();
                self.user(event, self.counted(event));
            }
            Fact::AssistantSaid { parts, .. } => {
                self.begun = true;
                self.answer(event, parts, outcomes);
            }
            Fact::ToolReturned { results, parts } => {
                if !parts.is_empty() {
                    let of_results: usize =
                        results.iter().flat_map(|result| &result.parts).map(pieces_of).sum();
                    let content = self.counts(event, parts, of_results).into_iter().sum();
                    self.user(event, content);
                }
                self.strays(event, outcomes);
            }
            Fact::Carried { .. } => {
                let fixed = self.meter.text(&event.event.raw.json) + message;
                self.push(vec![seq], Body::Carried(Arc::clone(event)), fixed, Tokens(0));
            }
            // Earlier compactions are part of what the newest one stands for, or were reverted.
            Fact::Compacted(_) => self.context.elide(vec![seq], "pivot", Tokens(0)),
            Fact::Instructed { .. }
            | Fact::CompactionRequested { .. }
            | Fact::CompactionReverted { .. }
            | Fact::Pinned { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. } => {}
        }
    }

    /// A new question belongs to the next turn.
    fn asked(&mut self) {
        if std::mem::take(&mut self.answered) {
            self.turn += 1;
        }
    }

    fn user(&mut self, event: &Arc<Logged>, content: Tokens) {
        let body = Body::User { event: Arc::clone(event), content: Content::AsSent };
        self.push(vec![event.id.seq], body, self.meter.overhead().message, content);
    }

    fn answer(&mut self, event: &Arc<Logged>, parts: &[Part], outcomes: &Outcomes) {
        let seq = event.id.seq;
        let fragment = self.context.segments().last().is_some_and(|last| same_answer(last, event));
        if self.answered && !fragment {
            self.turn += 1;
        }
        self.answered = true;
        let overhead = *self.meter.overhead();
        let counts = self.counts(event, parts, 0);
        for (part, (shown, tokens)) in parts.iter().zip(counts).enumerate() {
            let Part::ToolCall(_) = shown else {
                let body = Body::Answer { event: Arc::clone(event), part };
                self.push(vec![seq], body, tokens + overhead.message, Tokens(0));
                continue;
            };
            let fixed = Tokens(tokens.0 + overhead.call.0 * 2 + overhead.message.0 * 2);
            match outcomes.get(&(seq, part)) {
                Some((result, index)) => {
                    let results = result.event.fact.results();
                    let before: usize =
                        results[..*index].iter().flat_map(|result| &result.parts).map(pieces_of).sum();
                    let content = self.counts(result, &results[*index].parts, before).into_iter().sum();
                    let outcome =
                        Shown::Returned { event: Arc::clone(result), index: *index, content: Content::AsSent };
                    let body = Body::Exchange { event: Arc::clone(event), part, outcome };
                    self.push(vec![seq, result.id.seq], body, fixed, content);
                }
                None => {
                    let fixed = fixed + self.meter.text(UNANSWERED);
                    let body = Body::Exchange { event: Arc::clone(event), part, outcome: Shown::Unanswered };
                    self.push(vec![seq], body, fixed, Tokens(0));
                }
            }
        }
        if parts.is_empty() {
            self.context.elide(vec![seq], "empty", Tokens(0));
        }
    }

    /// Results that no call asked for are history and never rendered.
    fn strays(&mut self, event: &Arc<Logged>, outcomes: &Outcomes) {
        let paired = outcomes.values().filter(|(result, _)| result.id.seq == event.id.seq).count();
        if paired < event.event.fact.results().len() || event.event.fact.results().is_empty() {
            self.context.elide(vec![event.id.seq], "stray", Tokens(0));
        }
    }

    fn push(&mut self, stands_for: Vec<Seq>, body: Body, fixed: Tokens, content: Tokens) {
        let (turn, fidelity) = (self.turn, Fidelity::Verbatim);
        self.context.push(Segment { stands_for, turn, body, fixed, content, fidelity, touched: None });
    }

    /// What all texts and media of an event cost, from the log's counts where there are any.
    fn counted(&self, event: &Logged) -> Tokens {
        let fact = &event.event.fact;
        let texts: Tokens = match self.line.pieces.get(&event.id.seq) {
            Some(pieces) => pieces.iter().copied().sum(),
            None => self.meter.pieces(fact).into_iter().sum(),
        };
        texts + fact.media().map(|media| self.meter.media(media)).sum()
    }

    /// What each of `parts` costs, whose texts are the event's pieces from `from` on.
    fn counts(&self, event: &Logged, parts: &[Part], from: usize) -> Vec<Tokens> {
        let Some(pieces) = self.line.pieces.get(&event.id.seq) else {
            return parts.iter().map(|part| self.meter.part(part)).collect();
        };
        let mut pieces = pieces.iter().copied().skip(from);
        let cost = |part: &Part| {
            let texts: Tokens = pieces.by_ref().take(pieces_of(part)).sum();
            match part {
                Part::Media(media) => texts + self.meter.media(media),
                _ => texts,
            }
        };
        parts.iter().map(cost).collect()
    }
}

type Outcomes = HashMap<(Seq, usize), (Arc<Logged>, usize)>;

/// Where each call's result is: by the calling event and its part, the returning event and its result.
fn outcomes(events: &[&Arc<Logged>]) -> Outcomes {
    let by_seq: HashMap<Seq, &Arc<Logged>> = events.iter().map(|event| (event.id.seq, *event)).collect();
    let paired = pair(events.iter().map(|event| (event.id.seq, &event.event.fact)));
    let mut found = Outcomes::new();
    for exchange in &paired.exchanges {
        let Outcome::Returned { at, result } = exchange.outcome else { continue };
        let (Some(caller), Some(returned)) = (by_seq.get(&exchange.at), by_seq.get(&at)) else { continue };
        let is_call = |part: &Part| matches!(part, Part::ToolCall(call) if std::ptr::eq(call, exchange.call));
        let part = caller.event.fact.parts().iter().position(is_call);
        let index = returned.event.fact.results().iter().position(|other| std::ptr::eq(other, result));
        if let (Some(part), Some(index)) = (part, index) {
            found.insert((exchange.at, part), (Arc::clone(returned), index));
        }
    }
    found
}

/// The newest compaction that was not reverted.
fn newest_compaction(events: &[Arc<Logged>]) -> Option<(&Arc<Logged>, &Compaction)> {
    let mut reverted = Vec::new();
    for event in events.iter().rev() {
        match &event.event.fact {
            Fact::CompactionReverted { compaction } => reverted.push(*compaction),
            Fact::Compacted(compaction) if !reverted.contains(&event.id.seq) => return Some((event, compaction)),
            _ => {}
        }
    }
    None
}

/// Whether two assistant events are fragments of one answer.
fn same_answer(last: &Segment, event: &Logged) -> bool {
    let answer = |fact: &'_ Fact| match fact {
        Fact::AssistantSaid { answer, .. } => answer.clone(),
        _ => None,
    };
    let (Body::Answer { event: before, .. } | Body::Exchange { event: before, .. }) = &last.body else {
        return false;
    };
    let before = answer(&before.event.fact);
    before.is_some() && before == answer(&event.event.fact)
}

fn is_quiet_or_instruction(fact: &Fact) -> bool {
    match fact {
        Fact::Instructed { .. }
        | Fact::ModelChanged { .. }
        | Fact::UsageReported { .. }
        | Fact::Pinned { .. }
        | Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. } => true,
        Fact::UserSaid { .. }
        | Fact::AssistantSaid { .. }
        | Fact::ToolReturned { .. }
        | Fact::Compacted(_)
        | Fact::Injected { .. }
        | Fact::Carried { .. } => false,
    }
}

/// Whether a provider would ever see it.
pub fn is_rendered(fact: &Fact) -> bool {
    match fact {
        Fact::Instructed { .. }
        | Fact::UserSaid { .. }
        | Fact::AssistantSaid { .. }
        | Fact::ToolReturned { .. }
        | Fact::Compacted(_)
        | Fact::Injected { .. }
        | Fact::Carried { .. } => true,
        Fact::CompactionRequested { .. }
        | Fact::CompactionReverted { .. }
        | Fact::Pinned { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. } => false,
    }
}

fn pieces_of(part: &Part) -> usize {
    let mut pieces = 0;
    part.visit_text(&mut |_| pieces += 1);
    pieces
}
