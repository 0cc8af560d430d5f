//! The calls of a thread as its transcript records them: the size of each by our count, and its reported
//! usage.
//!
//! The client's own compactions are in force, since this concerns what was really sent. The recorded usage of
//! an answer shows the size of its hidden reasoning, which the next request carries.

use std::{collections::HashMap, sync::Arc};

use epitome_core::{
    ContentPart, Fact, Seq, Tokens,
    context::{Context, EventNaming, Segment, SegmentBody, Tier},
    event::{InstructionKind, Timestamp, Usage},
    id::{AnswerId, ModelName},
    meter::Meter,
    profile::{CacheWriteMode, Profile, WireProtocol},
    projection::{EventLine, Projection},
};

/// A call as it was made.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// Time of the call: that of the last event before the answer.
    pub at: Option<Timestamp>,
    pub model: Option<ModelName>,
    /// Reported usage, if any.
    pub usage: Option<Usage>,
    /// Size by our count, without the known part.
    pub counted: Tokens,
    /// Size of reasoning that the provider reported.
    pub known: Tokens,
    /// Size of the reasoning in its answer beyond our count, by the provider's report of the answer.
    pub concealed: Tokens,
    /// Compaction that the call builds on.
    pub standing: Option<Seq>,
    /// True if it shows both system prompt and tools.
    pub shows_prefix: bool,
    /// Additions since the call before that our count does not show.
    pub since: UncountedAdditions,
}

/// Additions since a call that are not in the count of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncountedAdditions {
    /// True if an image or another medium was added.
    pub media: bool,
    /// True if the client was restarted and wrote its instructions anew.
    pub resumed: bool,
    /// True if tools were found that are not in the request yet.
    pub tools: bool,
}

/// Text that Claude Code writes in the model's place when a session is resumed. No call was made for it.
const RESUMED_MARKER: &str = "No response requested.";

impl UncountedAdditions {
    fn see(&mut self, fact: &Fact) {
        for part in fact.parts().iter().chain(fact.results().iter().flat_map(|result| &result.parts)) {
            self.media |= matches!(part, ContentPart::Media(_));
            self.tools |= matches!(part, ContentPart::Opaque { name, .. } if name == "tool_reference");
        }
    }
}

/// Returns true for the client's own answer after a restart.
fn is_resumption(model: Option<&ModelName>, parts: &[ContentPart]) -> bool {
    model.is_none() && matches!(parts, [ContentPart::Text { text }] if text == RESUMED_MARKER)
}

/// A piece of a request that a cache compares as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPiece {
    pub seq: Seq,
    pub part: usize,
    pub size: RecordedPieceSize,
    pub kind: RecordedPieceKind,
}

/// Size of a piece, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedPieceSize {
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
pub enum RecordedPieceKind {
    Prefix,
    Asked,
    Answered,
    Tool,
}

/// Reasoning that a provider includes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentReasoning {
    /// All of it.
    All,
    /// Reasoning of the current loop. Reasoning before the user's newest message is left out, so the cache
    /// holds nothing from the first omitted piece on.
    OfOpenLoop,
}

impl SentReasoning {
    /// Rule of a model's provider, as recorded usage shows it: OpenAI's models with an automatic cache send
    /// less when the user speaks again, and those with breakpoints do not.
    pub fn of(profile: Option<&Profile>) -> Self {
        match profile.map(|profile| (profile.wire, profile.cache.written)) {
            Some((WireProtocol::OpenaiResponses, Some(CacheWriteMode::Automatic))) => Self::OfOpenLoop,
            Some((
                WireProtocol::Anthropic
                | WireProtocol::OpenaiResponses
                | WireProtocol::OpenaiChat
                | WireProtocol::Gemini,
                _,
            ))
            | None => Self::All,
        }
    }
}

/// Every call of a thread, with everything that the transcript shows counted.
pub fn counted(line: &EventLine, meter: &Arc<Meter>) -> Vec<RecordedCall> {
    let told = ReportedUsage::of(line, meter);
    let mut calls = Vec::new();
    each_call(line, meter, &told, |call, _| calls.push(call));
    undo_totals(&mut calls);
    calls
}

/// Reader of a thread's requests.
#[derive(Debug)]
pub struct RecordedCallReader<'a> {
    line: &'a EventLine,
    meter: &'a Arc<Meter>,
    thoughts: SentReasoning,
    told: ReportedUsage,
}

impl<'a> RecordedCallReader<'a> {
    pub fn new(line: &'a EventLine, meter: &'a Arc<Meter>, thoughts: SentReasoning) -> Self {
        Self { line, meter, thoughts, told: ReportedUsage::of(line, meter) }
    }

    /// Every call of the thread, with the reasoning that was really sent.
    pub fn calls(&self) -> Vec<RecordedCall> {
        let mut calls = Vec::new();
        self.each(|mut call, pieces| {
            call.counted = self.meter.overhead().request;
            for piece in pieces {
                match piece.size {
                    RecordedPieceSize::Counted(tokens) => call.counted += tokens,
                    RecordedPieceSize::Known { told, .. } => call.known += told,
                }
            }
            calls.push(call);
        });
        undo_totals(&mut calls);
        calls
    }

    /// Calls `see` for each call with its pieces.
    pub fn each(&self, mut see: impl FnMut(RecordedCall, &[RecordedPiece])) {
        let mut pieces = Vec::new();
        each_call(self.line, self.meter, &self.told, |call, context| {
            let open = match self.thoughts {
                SentReasoning::All => 0,
                SentReasoning::OfOpenLoop => context.essential().loop_start(),
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
fn each_call(
    line: &EventLine,
    meter: &Arc<Meter>,
    told: &ReportedUsage,
    mut see: impl FnMut(RecordedCall, &Context),
) {
    let mut projection = Projection::new(Arc::clone(meter), EventNaming::Messages);
    let (mut answering, mut now, mut since) = (None::<&AnswerId>, None, UncountedAdditions::default());
    for (event, pieces) in line.events_with_counts() {
        let fact = &event.event.fact;
        if let Fact::AssistantSaid { answer, model, parts } = fact {
            let context = projection.context();
            let goes_on = answer.is_some() && answer.as_ref() == answering;
            if is_resumption(model.as_ref(), parts) {
                since.resumed = true;
            } else if !goes_on && context.segments().len() > context.prefix_len() {
                let call = RecordedCall {
                    at: now,
                    model: model.clone(),
                    usage: told.usage.get(&event.id.seq).copied(),
                    counted: context.tokens(),
                    known: Tokens(0),
                    concealed: told.concealed.get(&event.id.seq).copied().unwrap_or_default(),
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
        SegmentBody::Prefix(event) => match &event.event.fact {
            Fact::Instructed { what, .. } => Some(*what),
            _ => None,
        },
        _ => None,
    };
    let has =
        |wanted: &[InstructionKind]| prefix.iter().filter_map(instructed).any(|what| wanted.contains(&what));
    has(&[InstructionKind::System, InstructionKind::Message]) && has(&[InstructionKind::Tools])
}

fn piece(segment: &Segment, told: &ReportedUsage) -> RecordedPiece {
    let hidden = match segment.body() {
        SegmentBody::Answer { event, part } => told.hidden.get(&(event.id.seq, *part)),
        _ => None,
    };
    let kind = match segment.body() {
        SegmentBody::Prefix(_) => RecordedPieceKind::Prefix,
        SegmentBody::Exchange { .. } => RecordedPieceKind::Tool,
        SegmentBody::Answer { .. } => RecordedPieceKind::Answered,
        SegmentBody::Instruction(_)
        | SegmentBody::User { .. }
        | SegmentBody::Carried(_)
        | SegmentBody::Summary(_)
        | SegmentBody::Note(_) => RecordedPieceKind::Asked,
    };
    RecordedPiece {
        seq: segment.key().seq,
        part: segment.key().part,
        size: hidden.map_or(RecordedPieceSize::Counted(segment.tokens()), |told| RecordedPieceSize::Known {
            told: *told,
            counted: segment.tokens(),
        }),
        kind,
    }
}

/// Reported usage of a thread's calls.
#[derive(Debug, Default)]
struct ReportedUsage {
    /// Usage by the first event of the answer. The last report about an answer counts.
    usage: HashMap<Seq, Usage>,
    /// The size of reasoning, by event and part.
    hidden: HashMap<(Seq, usize), Tokens>,
    /// The size of reasoning beyond our count, by the first event of the answer.
    concealed: HashMap<Seq, Tokens>,
}

/// An answer, as far as it has been read.
#[derive(Debug, Default)]
struct PartialAnswer {
    first: Seq,
    /// Size of its readable text, without reasoning.
    visible: Tokens,
    /// Its reasoning, with our counts.
    reasoning: Vec<(Seq, usize)>,
    counted: Tokens,
}

impl ReportedUsage {
    fn of(line: &EventLine, meter: &Meter) -> Self {
        let mut told = Self::default();
        let mut answers: Vec<PartialAnswer> = Vec::new();
        let mut by_id: HashMap<&AnswerId, usize> = HashMap::new();
        let mut answering: Option<&AnswerId> = None;
        for (event, pieces) in line.events_with_counts() {
            match &event.event.fact {
                Fact::AssistantSaid { answer, parts, .. } => {
                    if answer.is_none() || answer.as_ref() != answering {
                        if let Some(id) = answer {
                            by_id.insert(id, answers.len());
                        }
                        answers.push(PartialAnswer { first: event.id.seq, ..PartialAnswer::default() });
                    }
                    answering = answer.as_ref();
                    let costs = meter.costs(&event.event, pieces);
                    let Some(answer) = answers.last_mut() else { continue };
                    for (at, (part, cost)) in parts.iter().zip(costs.parts).enumerate() {
                        if matches!(part, ContentPart::Reasoning { .. }) {
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
    fn look_behind(&mut self, answer: &PartialAnswer) {
        let Some(usage) = self.usage.get(&answer.first) else { return };
        if usage.output < answer.visible + answer.counted {
            return;
        }
        let mut left = usage.output.less(answer.visible);
        if !answer.reasoning.is_empty() {
            self.concealed.insert(answer.first, left.less(answer.counted));
        }
        for place in &answer.reasoning {
            self.hidden.insert(*place, std::mem::take(&mut left));
        }
    }
}

/// Number of reports that must look like running totals before they are treated as such.
const TOTALS: usize = 4;

/// Converts running totals to reports of single calls. Running totals grow by a whole request each time,
/// reports of single calls only by the new part.
fn undo_totals(calls: &mut [RecordedCall]) {
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
