//! Thinking that is bound to the content before it.
//!
//! Some models sign their thinking over the whole request it answers: system prompt, tools, every earlier message.
//! Once any of that changes, the block and all after it are refused, and must be dropped; thinking made after the
//! change is valid again. A loop of tool calls that is still open must keep its thinking, so there it cannot just be
//! dropped: the loop is told again in words, and the model is asked to go on.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    ops::Range,
};

use epitome_core::{
    ContentPart, Fact, Seq,
    context::{
        Context, ContextMessage, Segment, SegmentBody, SegmentContent, SegmentEdit, UNANSWERED_TEXT,
        VisibleOutcome,
    },
    event::InstructionKind,
    media::Media,
    seq_set::SeqSet,
    tokens::Tokens,
};

use crate::{
    format::Format,
    json::Json,
    legality::{ProviderRule, ProviderRules},
    write::CONTINUE_MESSAGE,
};

/// A context whose thinking its provider accepts.
#[derive(Clone, Debug)]
pub struct SettledContext {
    /// The context.
    pub context: Context,
    /// Number of thinking blocks left out.
    pub stripped: u64,
    /// True if the open loop was told again in words.
    pub retold: bool,
}

/// The open loop does not fit when it is told again in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "keeping the thinking of the open tool loop: what came before {thinking} pieces of it had to change, and with the \
     loop told again in words the request takes {needed} tokens of {ceiling}; choose a larger budget, or wait until the \
     loop has ended"
)]
pub struct BoundThinkingError {
    /// Number of thinking blocks that are no longer valid.
    pub thinking: u64,
    /// Tokens that the context would cost.
    pub needed: Tokens,
    /// Tokens that it may cost.
    pub ceiling: Tokens,
}

/// Name in a context's lineage for the parts that [`settle_thinking`] leaves out or tells again.
pub const SETTLE_THINKING: &str = "settle_thinking";

/// Leaves out the thinking that `context` would make invalid. `sent` shows the same events as they were last sent, so
/// that its thinking is valid; all differences from it count as the change. Without [`ProviderRule::PreservedThinking`] the
/// context is returned as it is.
///
/// A loop that has to be told again may cost more than before, but the context must not then cost more than
/// `ceiling`.
///
/// Parts that are left out are listed in [`Context::elided`] under [`SETTLE_THINKING`]. Like any edit, this must be
/// made again for every later request, since thinking that was once invalid stays so.
///
/// ```
/// use epitome_core::{Tokens, context::Context};
/// use epitome_wire::{legality::ProviderRules, render::{BoundThinkingError, settle_thinking}};
///
/// /// What may be sent of a context that was reduced.
/// fn sendable(reduced: Context, sent: &Context, rules: &ProviderRules) -> Result<Context, BoundThinkingError> {
///     settle_thinking(reduced, sent, rules, Tokens(100_000)).map(|settled| settled.context)
/// }
/// ```
pub fn settle_thinking(
    context: Context,
    sent: &Context,
    rules: &ProviderRules,
    ceiling: Tokens,
) -> Result<SettledContext, BoundThinkingError> {
    let invalid =
        if rules.has(ProviderRule::PreservedThinking) { invalid(&context, sent) } else { HashSet::new() };
    if invalid.is_empty() {
        return Ok(SettledContext { context, stripped: 0, retold: false });
    }
    let stripped = invalid.len() as u64;
    let is_invalid = |segment: &Segment| reasoning(segment).is_some_and(|place| invalid.contains(&place));
    let open = if rules.has(ProviderRule::ThinkingStaysInOpenLoop) {
        open_loops(context.segments(), is_invalid)
    } else {
        Vec::new()
    };
    let retold = !open.is_empty();
    let context = retell(context, &open);
    let context = context.edit(SETTLE_THINKING, |_, segment| {
        if is_invalid(segment) { SegmentEdit::Drop } else { SegmentEdit::Keep }
    });
    if retold && context.tokens() > ceiling {
        return Err(BoundThinkingError { thinking: stripped, needed: context.tokens(), ceiling });
    }
    Ok(SettledContext { context, stripped, retold })
}

/// Position of a thinking block: its event and its index in the event's parts.
type ThinkingPosition = (Seq, usize);

fn reasoning(segment: &Segment) -> Option<ThinkingPosition> {
    let SegmentBody::Answer { event, part } = segment.body() else { return None };
    let is_reasoning = matches!(event.event.fact.parts().get(*part), Some(ContentPart::Reasoning { .. }));
    is_reasoning.then_some((event.id.seq, *part))
}

/// Finds the thinking of a context that follows a change since it was sent. Thinking itself may be dropped, but only
/// from the beginning and from the end: of the thinking that could stay, the newest unbroken run is kept.
fn invalid(context: &Context, sent: &Context) -> HashSet<ThinkingPosition> {
    let (now, before) = (ContentOrder::of(context), ContentOrder::of(sent));
    let same = now.marks.iter().zip(&before.marks).take_while(|(one, other)| one == other).count();
    let places =
        before.thinking.iter().enumerate().map(|(place, (thought, ahead))| (*thought, (place, *ahead)));
    let known: HashMap<ThinkingPosition, (usize, usize)> = places.collect();
    let pivot = pivot(context);
    let mut invalid = HashSet::new();
    let mut next = None;
    for (thought, ahead) in now.thinking.iter().rev() {
        let stood = known.get(thought).filter(|(_, before)| before == ahead).map(|(place, _)| *place);
        let together = stood.is_some_and(|stood| next.is_none_or(|next| stood + 1 == next));
        if together && *ahead <= same && pivot.is_none_or(|pivot| thought.0 > pivot) {
            next = stood;
        } else {
            invalid.insert(*thought);
        }
    }
    invalid
}

/// The compaction that a context stands on: events kept from before it were not made with its summary in view. A
/// summary that the provider signed leaves thinking valid.
fn pivot(context: &Context) -> Option<Seq> {
    context.segments().iter().find_map(|segment| match segment.body() {
        SegmentBody::Summary(event) => {
            let raw = &event.event.raw;
            let signed = Format::of_dialect(&raw.dialect).is_some_and(|format| {
                Json::parse(&raw.json, "a compaction")
                    .is_ok_and(|message| format.provider().is_signed_compaction(&message))
            });
            (!signed).then_some(event.id.seq)
        }
        _ => None,
    })
}

/// The content of a request in its order, and the amount of it before each thinking block.
#[derive(Default)]
struct ContentOrder<'a> {
    marks: Vec<ContentMark<'a>>,
    thinking: Vec<(ThinkingPosition, usize)>,
}

/// A part of a request that is not thinking.
#[derive(PartialEq)]
enum ContentMark<'a> {
    /// An event, with its parts as shown.
    Event(Seq, Option<&'a [ContentPart]>),
    /// A part of an answer.
    Part(Seq, usize),
    /// A call's result.
    Outcome(ThinkingPosition, &'a VisibleOutcome),
    /// Words of ours.
    Words(&'a str),
}

impl<'a> ContentOrder<'a> {
    fn of(context: &'a Context) -> Self {
        let mut order = Self::default();
        for message in context.messages() {
            order.take(message);
        }
        order
    }

    fn take(&mut self, message: ContextMessage<'a>) {
        match message {
            ContextMessage::Instruction { event, .. } => {
                // Settings may change: thinking is not bound to them.
                let settings = InstructionKind::Settings;
                if !matches!(&event.event.fact, Fact::Instructed { what, .. } if *what == settings) {
                    self.marks.push(ContentMark::Event(event.id.seq, None));
                }
            }
            ContextMessage::User { event, content, .. } => self.said(event.id.seq, content),
            ContextMessage::Carried { event, .. } | ContextMessage::Summary { event, .. } => {
                self.marks.push(ContentMark::Event(event.id.seq, None));
            }
            ContextMessage::Note { note, .. } => self.marks.push(ContentMark::Words(&note.text)),
            ContextMessage::Answer(answer) => {
                for (place, segment) in answer.fragments.iter().flat_map(|fragment| &fragment.parts) {
                    match (reasoning(segment), segment.body()) {
                        (Some(thought), _) => self.thinking.push((thought, self.marks.len())),
                        (None, SegmentBody::Answer { event, .. } | SegmentBody::Exchange { event, .. }) => {
                            self.marks.push(ContentMark::Part(event.id.seq, *place));
                        }
                        (None, _) => {}
                    }
                }
            }
            ContextMessage::Returned(returned) => {
                for outcome in &returned.outcomes {
                    self.marks
                        .push(ContentMark::Outcome((outcome.caller.id.seq, outcome.part), outcome.shown));
                }
                if let (Some(event), Some((_, content))) = (returned.event, returned.beside) {
                    self.said(event.id.seq, content);
                }
            }
        }
    }

    fn said(&mut self, seq: Seq, content: &'a SegmentContent) {
        let shown = match content {
            SegmentContent::AsSent => None,
            SegmentContent::Replaced(parts) => Some(parts.as_slice()),
        };
        self.marks.push(ContentMark::Event(seq, shown));
    }
}

/// Finds the loops that cannot stay as they are, in order: the open one, if thinking in it is invalid, and the one
/// before it, which would become the last, if it never came to an end.
fn open_loops(segments: &[Segment], is_invalid: impl Fn(&Segment) -> bool) -> Vec<Range<usize>> {
    let mut open = Vec::new();
    let mut end = segments.len();
    while let Some(run) = open_loop(&segments[..end])
        && segments[run.clone()].iter().any(&is_invalid)
    {
        end = run.start;
        open.push(run);
    }
    open.reverse();
    open
}

/// Finds the answers of the open loop: those since the user's last message, if the last of them made calls. Providers
/// count a loop as open even if the calls have results and the user has spoken since.
fn open_loop(segments: &[Segment]) -> Option<Range<usize>> {
    let last = segments.iter().rposition(speaks)?;
    let turn = segments[last].turn();
    let in_answer = |segment: &&Segment| segment.is_answer() && segment.turn() == turn;
    let before = segments[..=last].iter().rev().take_while(in_answer).count();
    let after = segments[last + 1..].iter().take_while(in_answer).count();
    let answer = last + 1 - before..last + 1 + after;
    segments[answer.clone()].iter().any(|segment| segment.call().is_some()).then_some(())?;
    let asked = segments[..answer.start].iter().rposition(asks).map_or(0, |asked| asked + 1);
    let first =
        segments[asked..].iter().position(Segment::is_answer).map_or(answer.start, |first| asked + first);
    Some(first..answer.end)
}

/// Returns true if a piece of an answer is sure to be sent, in words or as a call. Parts that only another provider
/// understands may not be.
fn speaks(segment: &Segment) -> bool {
    match segment.body() {
        SegmentBody::Exchange { .. } => true,
        SegmentBody::Answer { event, part } => match event.event.fact.parts().get(*part) {
            Some(ContentPart::Text { text } | ContentPart::Refusal { text }) => !text.trim().is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Returns true if a message of the user is sure to be sent.
fn asks(segment: &Segment) -> bool {
    segment.is_user()
        && segment.shown().unwrap_or_default().iter().any(|part| match part {
            ContentPart::Text { text } => !text.trim().is_empty(),
            part => matches!(part, ContentPart::Media(_)),
        })
}

/// Makes one note of each loop: its words and calls, without the thinking.
fn retell(context: Context, loops: &[Range<usize>]) -> Context {
    let mut told: HashMap<Option<Seq>, String> = HashMap::new();
    for run in loops {
        let segments = &context.segments()[run.clone()];
        let mut words = String::from("[What you have done so far, told again:]\n");
        for segment in segments {
            tell(&context, segment, &mut words);
        }
        words.push_str(CONTINUE_MESSAGE);
        told.insert(SeqSet::union(segments.iter().map(Segment::stands_for)).first(), words);
    }
    context.force_fold(SETTLE_THINKING, loops, |folded| {
        told.get(&folded.events.first()).cloned().unwrap_or_default()
    })
}

fn tell(context: &Context, segment: &Segment, words: &mut String) {
    match segment.body() {
        SegmentBody::Answer { event, part } => {
            said(context, segment, event.event.fact.parts().get(*part), words);
        }
        SegmentBody::Exchange { outcome, .. } => {
            if let Some(call) = segment.call() {
                let _ = writeln!(words, "[{} {}]", call.name, call.arguments);
            }
            match outcome {
                VisibleOutcome::Returned { .. } => {
                    said(context, segment, segment.shown().unwrap_or_default(), words);
                }
                VisibleOutcome::Unanswered => {
                    said(context, segment, [&ContentPart::text(UNANSWERED_TEXT)], words);
                }
            }
        }
        SegmentBody::User { .. } => said(context, segment, segment.shown().unwrap_or_default(), words),
        SegmentBody::Instruction(event)
        | SegmentBody::Prefix(event)
        | SegmentBody::Carried(event)
        | SegmentBody::Summary(event) => {
            said(context, segment, event.event.fact.parts(), words);
        }
        SegmentBody::Note(note) => {
            words.push_str(&note.text);
            words.push('\n');
        }
    }
}

fn said<'p>(
    context: &Context,
    segment: &Segment,
    parts: impl IntoIterator<Item = &'p ContentPart>,
    words: &mut String,
) {
    for part in parts {
        match part {
            ContentPart::Text { text } | ContentPart::Refusal { text } => words.push_str(text),
            ContentPart::Media(Media { mime, .. }) => {
                let behind = context.names().recall_suffix_all(segment.stands_for());
                let kind = if mime.is_empty() { "attachment" } else { mime };
                let _ = write!(words, "[{kind}{behind}]");
            }
            ContentPart::Opaque { name, .. } => {
                let _ = write!(words, "[{name}]");
            }
            ContentPart::Reasoning { .. } | ContentPart::ToolCall(_) => continue,
        }
        words.push('\n');
    }
}
