//! The calls of a thread as its transcript records them: the size of each by our count, and its reported
//! usage.
//!
//! The client's own compactions are in force, since this concerns what was really sent. The recorded usage of
//! an answer shows the size of its hidden reasoning, which the next request carries.

use std::{collections::HashMap, sync::Arc};

use epitome_core::{
    Fact, Part, Seq, Tokens,
    context::{Body, Context, Names, Segment, Tier},
    event::{Instruction, Time, Usage},
    id::{AnswerId, ModelName},
    meter::Meter,
    profile::{Profile, Wire, Written},
    project::{Line, Projection},
};

/// A call as it was made.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Time of the call: that of the last event before the answer.
    pub(crate) at: Option<Time>,
    pub(crate) model: Option<ModelName>,
    /// Reported usage, if any.
    pub(crate) usage: Option<Usage>,
    /// Size by our count, without the known part.
    pub(crate) counted: Tokens,
    /// Size of reasoning that the provider reported.
    pub(crate) known: Tokens,
    /// Compaction that the call builds on.
    pub(crate) standing: Option<Seq>,
    /// True if it shows both system prompt and tools.
    pub(crate) shows_prefix: bool,
    /// Additions since the call before that our count does not show.
    pub(crate) since: Since,
}

/// Additions since a call that are not in the count of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// True if an image or another medium was added.
    pub(crate) media: bool,
    /// True if the client was restarted and wrote its instructions anew.
    pub(crate) resumed: bool,
    /// True if tools were found that are not in the request yet.
    pub(crate) tools: bool,
}

/// Text that Claude Code writes in the model's place when a session is resumed. No call was made for it.
const RESUMED: &str = "No response requested.";

impl Since {
    fn see(&mut self, fact: &Fact) {
        for part in fact.parts().iter().chain(fact.results().iter().flat_map(|result| &result.parts)) {
            self.media |= matches!(part, Part::Media(_));
            self.tools |= matches!(part, Part::Opaque { name, .. } if name == "tool_reference");
        }
    }
}

/// Returns true for the client's own answer after a restart.
fn is_resumption(model: Option<&ModelName>, parts: &[Part]) -> bool {
    model.is_none() && matches!(parts, [Part::Text { text }] if text == RESUMED)
}

/// A piece of a request that a cache compares as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) seq: Seq,
    pub(crate) part: usize,
    pub(crate) size: Size,
    pub(crate) kind: Kind,
}

/// Size of a piece, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// By our count.
    Counted(Tokens),
    /// By the provider's report of the answer.
    Known {
        /// Size that the provider reported.
        told: Tokens,
        /// Size by our count.
        counted: Tokens,
    },
}

/// Identity of a piece for a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prefix,
    Asked,
    Answered,
    Tool,
}

/// Reasoning that a provider includes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thoughts {
    /// All of it.
    All,
    /// Reasoning of the current loop. Reasoning before the user's newest message is left out, so the cache
    /// holds nothing from the first omitted piece on.
    OfOpenLoop,
}

impl Thoughts {
    /// Rule of a model's provider, as recorded usage shows it: OpenAI's models with an automatic cache send
    /// less when the user speaks again, and those with breakpoints do not.
    pub(crate) fn of(profile: Option<&Profile>) -> Self {
        match profile.map(|profile| (profile.wire, profile.cache.written)) {
            Some((Wire::OpenaiResponses, Some(Written::Automatic))) => Self::OfOpenLoop,
            Some((Wire::Anthropic | Wire::OpenaiResponses | Wire::OpenaiChat | Wire::Gemini, _)) | None => {
                Self::All
            }
        }
    }
}

/// Every call of a thread, with everything that the transcript shows counted.
pub(crate) fn counted(line: &Line, meter: &Arc<Meter>) -> Vec<Sent> {
    let told = Told::of(line, meter);
    let mut calls = Vec::new();
    each_call(line, meter, &told, |call, _| calls.push(call));
    undo_totals(&mut calls);
    calls
}

/// Reader of a thread's requests.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    line: &'a Line,
    meter: &'a Arc<Meter>,
    thoughts: Thoughts,
    told: Told,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(line: &'a Line, meter: &'a Arc<Meter>, thoughts: Thoughts) -> Self {
        Self { line, meter, thoughts, told: Told::of(line, meter) }
    }

    /// Every call of the thread, with the reasoning that was really sent.
    pub(crate) fn calls(&self) -> Vec<Sent> {
        let mut calls = Vec::new();
        self.each(|mut call, pieces| {
            call.counted = self.meter.overhead().request;
            for piece in pieces {
                match piece.size {
                    Size::Counted(tokens) => call.counted += tokens,
                    Size::Known { told, .. } => call.known += told,
                }
            }
            calls.push(call);
        });
        undo_totals(&mut calls);
        calls
    }

    /// Calls `see` for each call with its pieces.
    pub(crate) fn each(&self, mut see: impl FnMut(Sent, &[Piece])) {
        let mut pieces = Vec::new();
        each_call(self.line, self.meter, &self.told, |call, context| {
            let open = match self.thoughts {
                Thoughts::All => 0,
                Thoughts::OfOpenLoop => context.essential().loop_start(),
            };
            let is_sent =
                |(index, segment): &(usize, &Segment)| segment.tier() != Tier::Reasoning || *index >= open;
            pieces.clear();
            let segments = context.segments().iter().enumerate();
            pieces.extend(segments.filter(is_sent).map(|(_, segment)| piece(segment, &self.told)));
            see(call, &pieces);
        });
    }
}

/// Calls `see` for each call of a thread, in order. Fragments of one answer belong to one call, and an answer
/// that opens a session to none.
fn each_call(line: &Line, meter: &Arc<Meter>, told: &Told, mut see: impl FnMut(Sent, &Context)) {
    let mut projection = Projection::new(Arc::clone(meter), Names::Messages);
    let (mut answering, mut now, mut since) = (None::<&AnswerId>, None, Since::default());
    for (event, pieces) in line.counted() {
        let fact = &event.event.fact;
        if let Fact::AssistantSaid { answer, model, parts } = fact {
            let context = projection.context();
            let goes_on = answer.is_some() && answer.as_ref() == answering;
            if is_resumption(model.as_ref(), parts) {
                since.resumed = true;
            } else if !goes_on && context.segments().len() > context.prefix_len() {
                let call = Sent {
                    at: now,
                    model: model.clone(),
                    usage: told.usage.get(&event.id.seq).copied(),
                    counted: context.tokens(),
                    known: Tokens(0),
                    standing: context.standing(),
                    shows_prefix: shows_prefix(context),
                    since: std::mem::take(&mut since),
                };
                see(call, context);
            }
            answering = answer.as_ref();
        } else {
            since.see(fact);
        }
        now = event.event.time.or(now);
        let pieces = pieces.map_or_else(|| meter.pieces(&event.event), <[Tokens]>::to_vec);
        projection.push(Arc::clone(event), pieces);
    }
}

/// Returns true if a context has both a system prompt and tools.
fn shows_prefix(context: &Context) -> bool {
    let prefix = context.segments().get(..context.prefix_len()).unwrap_or_default();
    let instructed = |segment: &Segment| match segment.body() {
        Body::Prefix(event) => match &event.event.fact {
            Fact::Instructed { what, .. } => Some(*what),
            _ => None,
        },
        _ => None,
    };
    let has =
        |wanted: &[Instruction]| prefix.iter().filter_map(instructed).any(|what| wanted.contains(&what));
    has(&[Instruction::System, Instruction::Message]) && has(&[Instruction::Tools])
}

fn piece(segment: &Segment, told: &Told) -> Piece {
    let hidden = match segment.body() {
        Body::Answer { event, part } => told.hidden.get(&(event.id.seq, *part)),
        _ => None,
    };
    let kind = match segment.body() {
        Body::Prefix(_) => Kind::Prefix,
        Body::Exchange { .. } => Kind::Tool,
        Body::Answer { .. } => Kind::Answered,
        Body::Instruction(_) | Body::User { .. } | Body::Carried(_) | Body::Summary(_) | Body::Note(_) => {
            Kind::Asked
        }
    };
    Piece {
        seq: segment.key().seq,
        part: segment.key().part,
        size: hidden.map_or(Size::Counted(segment.tokens()), |told| Size::Known {
            told: *told,
            counted: segment.tokens(),
        }),
        kind,
    }
}

/// Reported usage of a thread's calls.
#[derive(Debug, Default)]
struct Told {
    /// Usage by the first event of the answer. The last report about an answer counts.
    usage: HashMap<Seq, Usage>,
    /// The size of reasoning, by event and part.
    hidden: HashMap<(Seq, usize), Tokens>,
}

/// An answer, as far as it has been read.
#[derive(Debug, Default)]
struct Answer {
    first: Seq,
    /// Size of its readable text, without reasoning.
    visible: Tokens,
    /// Its reasoning, with our counts.
    reasoning: Vec<(Seq, usize)>,
    counted: Tokens,
}

impl Told {
    fn of(line: &Line, meter: &Meter) -> Self {
        let mut told = Self::default();
        let mut answers: Vec<Answer> = Vec::new();
        let mut by_id: HashMap<&AnswerId, usize> = HashMap::new();
        let mut answering: Option<&AnswerId> = None;
        for (event, pieces) in line.counted() {
            match &event.event.fact {
                Fact::AssistantSaid { answer, parts, .. } => {
                    if answer.is_none() || answer.as_ref() != answering {
                        if let Some(id) = answer {
                            by_id.insert(id, answers.len());
                        }
                        answers.push(Answer { first: event.id.seq, ..Answer::default() });
                    }
                    answering = answer.as_ref();
                    let costs = meter.costs(&event.event, pieces);
                    let Some(answer) = answers.last_mut() else { continue };
                    for (at, (part, cost)) in parts.iter().zip(costs.parts).enumerate() {
                        if matches!(part, Part::Reasoning { .. }) {
                            answer.reasoning.push((event.id.seq, at));
                            answer.counted += cost;
                        } else {
                            answer.visible += cost;
                        }
                    }
                }
                // A call that was broken off may report nothing.
                Fact::UsageReported { answer, usage, .. } if usage.input() > Tokens(0) => {
                    let about = match answer {
                        Some(id) => by_id.get(id).copied(),
                        None => answers.len().checked_sub(1),
                    };
                    if let Some(answer) = about.and_then(|at| answers.get(at)) {
                        told.usage.insert(answer.first, *usage);
                    }
                }
                _ => {}
            }
        }
        for answer in &answers {
            told.look_behind(answer);
        }
        told
    }

    /// Derives the size of hidden reasoning: the reported output minus the readable text. A report smaller
    /// than the readable text was made before the answer was complete, and says nothing.
    fn look_behind(&mut self, answer: &Answer) {
        let Some(usage) = self.usage.get(&answer.first) else { return };
        if usage.output < answer.visible + answer.counted {
            return;
        }
        let mut left = usage.output.less(answer.visible);
        for place in &answer.reasoning {
            self.hidden.insert(*place, std::mem::take(&mut left));
        }
    }
}

/// Number of reports that must look like running totals before they are treated as such.
const TOTALS: usize = 4;

/// Converts running totals to reports of single calls. Running totals grow by a whole request each time,
/// reports of single calls only by the new part.
fn undo_totals(calls: &mut [Sent]) {
    let told: Vec<(Tokens, Usage)> =
        calls.iter().filter_map(|call| Some((call.counted, call.usage?))).collect();
    let adds_up = told.windows(2).all(|pair| {
        let ((_, before), (counted, now)) = (pair[0], pair[1]);
        now.output >= before.output
            && now.cache_read >= before.cache_read
            && now.input() >= before.input() + counted
    });
    if told.len() < TOTALS || !adds_up {
        return;
    }
    let mut before = Usage::default();
    for usage in calls.iter_mut().filter_map(|call| call.usage.as_mut()) {
        let total = *usage;
        *usage = Usage {
            uncached: total.uncached.less(before.uncached),
            cache_read: total.cache_read.less(before.cache_read),
            cache_write: total.cache_write.less(before.cache_write),
            cache_write_hour: total.cache_write_hour.less(before.cache_write_hour),
            output: total.output.less(before.output),
        };
        before = total;
    }
}
