//! The context: the ordered segments that will be sent.
//!
//! [`Context::extend`] appends events, [`Context::edit`] and [`Context::fold`] leave things out; no other
//! method changes a context. Both of the latter keep the lineage, so that everything that is no longer shown
//! stands in a note or in [`Context::elided`], and neither ever makes a context larger: a stub that is no
//! smaller than the content it would replace is not used, and leaves no trace. Only [`Context::force_fold`], for
//! content that the provider would refuse, ignores the cost. Their changes can be recorded, and made again by
//! [`Context::redo`].

mod edit_log;
mod essential;
mod grow;
mod message;
mod open_calls;
mod segment;
mod standing_index;
mod turn_count;
mod unread_gap;

use std::{ops::Range, sync::Arc};

use serde::Serialize;

pub use self::{
    edit_log::{ContextChange, EditAuthor, RecordedChange, SentContentGuard},
    essential::EssentialSegments,
    grow::ExtendOutcome,
    message::{AnswerFragment, AnswerMessage, ContextMessage, MessageIter, ShownCall, ToolResultsMessage},
    segment::{
        ContextNote, Fidelity, FoldedTotals, Segment, SegmentBody, SegmentContent, SegmentKey, Tier,
        UNANSWERED_TEXT, VisibleOutcome,
    },
    unread_gap::UnreadGap,
};
use self::{grow::GrowthState, standing_index::RemovalRemainder};
pub(crate) use self::{grow::is_rendered, open_calls::OpenCalls};
use crate::{
    event::{ContentPart, LoggedEvent},
    id::{Seq, ThreadId},
    meter::Meter,
    seq_set::SeqSet,
    tokens::Tokens,
};

/// Content that will be sent, in order.
#[derive(Clone, Debug)]
pub struct Context {
    segments: Vec<Segment>,
    elided: Vec<ElidedEvents>,
    total: Tokens,
    changes: ChangeCounts,
    growth: GrowthState,
    meter: Arc<Meter>,
    names: EventNaming,
    /// The compaction it stands on.
    standing: Option<Seq>,
    /// The newest event when it was last sent.
    sent: Seq,
    /// True if later events have changed something that was sent.
    disturbed: bool,
    /// True while content that was sent may not be changed.
    guarded: bool,
    /// Changes since recording was requested; `None` while it is off.
    journal: Option<Vec<RecordedChange>>,
}

/// Events that no segment shows or stands for any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElidedEvents {
    /// The events. Of some of them another segment may still show a part.
    pub events: SeqSet,
    /// Author that left it out.
    pub by: EditAuthor,
    /// Tokens of its original form as it was sent, regardless of later replacements.
    pub tokens: Tokens,
}

/// Number of changes of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// Segments that show something else than before.
    pub replaced: u64,
    /// Segments that are no longer shown by themselves.
    pub removed: u64,
}

/// Decision about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentEdit {
    /// Leave it.
    Keep,
    /// Show this instead of a user's message or a tool's result. Other segments cannot be replaced and stay.
    Replace {
        /// Parts to show.
        parts: Vec<ContentPart>,
        /// Fidelity of these parts.
        fidelity: Fidelity,
    },
    /// Leave it out. The prefix cannot be left out and stays.
    Drop,
}

impl SegmentEdit {
    /// Shows one line instead.
    pub fn line(text: String, fidelity: Fidelity) -> Self {
        Self::Replace { parts: vec![ContentPart::Text { text }], fidelity }
    }
}

/// Style in which stubs name the events they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventNaming {
    /// By a handle into a log.
    Thread(ThreadId),
    /// Not at all: there is a log, but the model has no tool for reading it. People still name events by
    /// their handles.
    Hidden(ThreadId),
    /// By the number of the message: there is no log.
    Messages,
    /// The same, where so many events stand before the first message and are none.
    MessagesAfter(u64),
}

impl EventNaming {
    /// Instruction for getting an event back.
    pub fn handle(self, seq: Seq) -> String {
        match self {
            Self::Thread(_) | Self::Hidden(_) => format!("recall {}", self.place(seq)),
            Self::Messages | Self::MessagesAfter(_) => self.place(seq),
        }
    }

    /// Location of an event.
    pub fn place(self, seq: Seq) -> String {
        match self {
            Self::Thread(thread) | Self::Hidden(thread) => format!("{}:{seq}", thread.short()),
            Self::Messages => format!("message {seq}"),
            Self::MessagesAfter(before) => format!("message {}", seq.0.saturating_sub(before)),
        }
    }

    /// The events that handles in a text lead to.
    pub fn handles_in(self, text: &str) -> SeqSet {
        let mark = match self {
            Self::Thread(thread) | Self::Hidden(thread) => format!("{}:", thread.short()),
            Self::Messages | Self::MessagesAfter(_) => "message".to_owned(),
        };
        let before = match self {
            Self::MessagesAfter(leading) => leading,
            Self::Thread(_) | Self::Hidden(_) | Self::Messages => 0,
        };
        let mut found = SeqSet::default();
        for (at, _) in text.match_indices(&mark) {
            let rest = text[at + mark.len()..].trim_start_matches("s ").trim_start();
            let (first, rest) = number(rest);
            let last = rest.strip_prefix('-').and_then(|rest| number(rest).0);
            if let Some(first) = first {
                let seq = |number: u64| Seq(number.saturating_add(before));
                found.extend(&SeqSet::run(seq(first), seq(last.unwrap_or(first))));
            }
        }
        found
    }

    /// Instruction for getting several events back: from the first to the last of them.
    pub fn handles(self, events: &SeqSet) -> String {
        match (events.first(), events.last()) {
            (Some(first), Some(last)) if first < last => match self {
                Self::Thread(thread) | Self::Hidden(thread) => {
                    format!("recall {}:{first}-{last}", thread.short())
                }
                Self::Messages => format!("messages {first}-{last}"),
                Self::MessagesAfter(before) => {
                    let [first, last] = [first, last].map(|seq| seq.0.saturating_sub(before));
                    format!("messages {first}-{last}")
                }
            },
            (Some(only), _) => self.handle(only),
            (None, _) => String::new(),
        }
    }

    /// Returns true if a request names the events it leaves out: a model that cannot ask for them has no use
    /// for their names.
    pub fn are_shown(self) -> bool {
        !matches!(self, Self::Hidden(_))
    }

    /// The end of a line in a request about an event: `; recall 1b2c3d4e:57`, or an empty text where names
    /// are not shown.
    pub fn recall_suffix(self, seq: Seq) -> String {
        if self.are_shown() { format!("; {}", self.handle(seq)) } else { String::new() }
    }

    /// The same for several events.
    pub fn recall_suffix_all(self, events: &SeqSet) -> String {
        if self.are_shown() { format!("; {}", self.handles(events)) } else { String::new() }
    }

    /// The same log, with its events named in requests or not.
    pub fn shown_if(self, can_ask: bool) -> Self {
        match self {
            Self::Thread(thread) | Self::Hidden(thread) if can_ask => Self::Thread(thread),
            Self::Thread(thread) | Self::Hidden(thread) => Self::Hidden(thread),
            Self::Messages | Self::MessagesAfter(_) => self,
        }
    }
}

/// The number a text begins with, and the rest of the text.
fn number(text: &str) -> (Option<u64>, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

impl Context {
    /// An empty context.
    pub fn new(meter: Arc<Meter>, names: EventNaming) -> Self {
        Self {
            segments: Vec::new(),
            elided: Vec::new(),
            total: meter.overhead().request,
            changes: ChangeCounts::default(),
            growth: GrowthState::default(),
            meter,
            names,
            standing: None,
            sent: Seq::START,
            disturbed: false,
            guarded: false,
            journal: None,
        }
    }

    /// The segments, in the order they will be sent: first the prefix, then the conversation.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Events without a segment of their own, in the order they were left out.
    pub fn elided(&self) -> &[ElidedEvents] {
        &self.elided
    }

    /// Tokens of the whole request.
    pub fn tokens(&self) -> Tokens {
        self.total
    }

    /// Tokens of one tier.
    pub fn tier_tokens(&self, tier: Tier) -> Tokens {
        self.segments.iter().filter(|segment| segment.tier() == tier).map(Segment::tokens).sum()
    }

    /// The newest event it has seen.
    pub fn head(&self) -> Seq {
        self.growth.head
    }

    /// Tokens that count against the cap of a tier: those of the tier itself or, for media, those of every
    /// medium wherever it stands, in a message or in a tool result.
    pub fn counted_against(&self, tier: Tier) -> Tokens {
        match tier {
            Tier::Media => self.segments.iter().map(Segment::media_tokens).sum(),
            Tier::Prefix | Tier::Summaries | Tier::Dialogue | Tier::Reasoning | Tier::ToolResults => {
                self.tier_tokens(tier)
            }
        }
    }

    /// The compaction that its summary is of, if it stands on one, shown or not.
    pub fn standing(&self) -> Option<Seq> {
        self.standing
    }

    /// The compaction whose summary it shows.
    pub fn summary(&self) -> Option<&Arc<LoggedEvent>> {
        self.segments.iter().find_map(|segment| match &segment.body {
            SegmentBody::Summary(event) => Some(event),
            _ => None,
        })
    }

    /// Number of segments in the prefix.
    pub fn prefix_len(&self) -> usize {
        self.growth.prefix
    }

    /// The newest turn.
    pub fn last_turn(&self) -> u64 {
        self.growth.turns.newest
    }

    /// Returns true if an event that a segment of this context stands for is pinned.
    pub fn is_pinned(&self, segment: &Segment) -> bool {
        let pins = &self.growth.pins;
        !pins.is_empty()
            && segment.stands_for().runs().iter().any(|run| pins.range(run.first..=run.last).next().is_some())
    }

    /// Number of changes since it was made.
    pub fn changes(&self) -> ChangeCounts {
        self.changes
    }

    /// The counter and the wrapping this context is measured with.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Style in which stubs name the events they stand for.
    pub fn names(&self) -> EventNaming {
        self.names
    }

    /// Changes the style in which later stubs name events.
    pub(crate) fn set_names(&mut self, names: EventNaming) {
        self.names = names;
    }

    /// Returns true if its tools let the model ask for events that are left out.
    pub fn has_recall_tool(&self) -> bool {
        let prefix = &self.segments[..self.growth.prefix];
        prefix.iter().any(|segment| match &segment.body {
            SegmentBody::Prefix(event) => event.event.fact.has_recall_tool(),
            _ => false,
        })
    }

    /// Decides about each segment, given with its place. A decision without an effect leaves no trace, and a
    /// replacement that is not smaller has no effect.
    pub fn edit(
        mut self,
        by: impl Into<EditAuthor>,
        mut decide: impl FnMut(usize, &Segment) -> SegmentEdit,
    ) -> Self {
        let by = by.into();
        let mut segments = std::mem::take(&mut self.segments);
        let mut index = 0;
        segments.retain_mut(|segment| {
            let decided = decide(index, segment);
            index += 1;
            let stays = segment.is_prefix() || self.is_guarded(segment);
            match decided {
                SegmentEdit::Drop if !stays => {
                    if self.leave_standing(&by, segment) == RemovalRemainder::Nothing {
                        self.record(&by, || ContextChange::Drop { at: segment.key });
                        self.drop_one(&by, segment);
                        return false;
                    }
                }
                SegmentEdit::Replace { parts, fidelity } if !stays => {
                    let parts = self.with_standing(segment, parts);
                    self.replace_one(&by, segment, parts, fidelity);
                }
                SegmentEdit::Keep | SegmentEdit::Drop | SegmentEdit::Replace { .. } => {}
            }
            true
        });
        self.segments = segments;
        self
    }

    fn drop_one(&mut self, by: &EditAuthor, segment: &Segment) {
        self.total = less(self.total, segment.tokens());
        self.changes.removed += 1;
        self.elide(segment.stands_for(), by.clone(), segment.represented_tokens());
    }

    fn replaced_one(&mut self, by: &EditAuthor, segment: &mut Segment, before: Tokens) {
        segment.touched = Some(by.clone());
        self.changes.replaced += 1;
        self.total = less(self.total, before) + segment.tokens();
    }

    /// Makes one note of each run of segments; the note stands for all their events. `runs` are in order and
    /// apart. `words` gives the text of a note. A run that is no larger than its note stays, and so does the
    /// prefix.
    pub fn fold(
        self,
        by: impl Into<EditAuthor>,
        runs: &[Range<usize>],
        words: impl Fn(&FoldedTotals) -> String,
    ) -> Self {
        self.fold_if(by, runs, words, |run, note| note < run)
    }

    /// The same regardless of the notes' cost, for segments that cannot stay as they are. Only this method
    /// may make a context larger.
    pub fn force_fold(
        self,
        by: impl Into<EditAuthor>,
        runs: &[Range<usize>],
        words: impl Fn(&FoldedTotals) -> String,
    ) -> Self {
        self.fold_if(by, runs, words, |_, _| true)
    }

    /// Makes one note of each run for which the costs of the run and of its note justify it.
    fn fold_if(
        mut self,
        by: impl Into<EditAuthor>,
        runs: &[Range<usize>],
        words: impl Fn(&FoldedTotals) -> String,
        is_worth_it: impl Fn(Tokens, Tokens) -> bool,
    ) -> Self {
        let by = by.into();
        let mut segments = std::mem::take(&mut self.segments).into_iter().enumerate().peekable();
        let mut runs = runs.iter().peekable();
        let prefix = self.growth.prefix;
        while let Some((index, segment)) = segments.next() {
            while runs.next_if(|run| run.end <= index).is_some() {}
            let inside = |index: usize, run: &Range<usize>| index >= prefix && run.contains(&index);
            let found = runs.peek().filter(|run| inside(index, run) && !self.is_guarded(&segment));
            let Some(run) = found else {
                self.segments.push(segment);
                continue;
            };
            let mut members = vec![segment];
            while let Some((_, segment)) = segments.next_if(|(index, _)| inside(*index, run)) {
                members.push(segment);
            }
            self.fold_one(&by, members, &words, &is_worth_it);
        }
        self
    }

    fn fold_one(
        &mut self,
        by: &EditAuthor,
        members: Vec<Segment>,
        words: impl Fn(&FoldedTotals) -> String,
        is_worth_it: impl Fn(Tokens, Tokens) -> bool,
    ) {
        let mut folded = FoldedTotals::default();
        for member in &members {
            folded.add(member);
        }
        let folded = self.with_standing_in_force(folded);
        let note = ContextNote { text: self.note_text(&words(&folded), &folded), folded };
        let (fixed, content) = self.note_cost(&note.text);
        if !is_worth_it(members.iter().map(Segment::tokens).sum(), fixed + content) {
            self.segments.extend(members);
            return;
        }
        if let (Some(first), Some(last)) = (members.first(), members.last()) {
            let (first, last) = (first.key, last.key);
            self.record(by, || ContextChange::Fold { first, last, note: note.clone() });
            self.put_note(by, first, &members, note, SeqSet::default());
        }
    }

    /// Puts a note in place of segments that have been taken out; `late` came after it was written.
    fn put_note(
        &mut self,
        by: &EditAuthor,
        key: SegmentKey,
        members: &[Segment],
        note: ContextNote,
        late: SeqSet,
    ) {
        let note = self.note_of(by, key, members, note, late);
        self.segments.push(note);
    }

    /// The note in place of segments that have been taken out.
    fn note_of(
        &mut self,
        by: &EditAuthor,
        key: SegmentKey,
        members: &[Segment],
        note: ContextNote,
        late: SeqSet,
    ) -> Segment {
        self.hold_carried(&note.folded.standing);
        let (fixed, content) = self.note_cost(&note.text);
        let before: Tokens = members.iter().map(Segment::tokens).sum();
        self.total = less(self.total, before) + fixed + content;
        self.changes.removed += members.len() as u64;
        Segment {
            key,
            events: late,
            turn: members.first().map_or(note.folded.turns.start, |first| first.turn),
            body: SegmentBody::Note(note),
            fixed,
            counts: vec![content],
            content,
            sent: Vec::new(),
            standing: None,
            fidelity: Fidelity::Summary,
            touched: Some(by.clone()),
        }
    }

    /// Cost of a note: its wrapping, and its words.
    pub(crate) fn note_cost(&self, text: &str) -> (Tokens, Tokens) {
        (self.meter.overhead().message, self.meter.text(text))
    }

    fn elide(&mut self, events: &SeqSet, by: impl Into<EditAuthor>, tokens: Tokens) {
        let by = by.into();
        match self.elided.last_mut() {
            Some(last) if last.by == by => {
                last.events.extend(events);
                last.tokens += tokens;
            }
            _ => self.elided.push(ElidedEvents { events: events.clone(), by, tokens }),
        }
    }

    /// Every event that some segment or elision stands for.
    pub fn accounted(&self) -> SeqSet {
        let shown = self.segments.iter().map(Segment::stands_for);
        SeqSet::union(shown.chain(self.elided.iter().map(|elision| &elision.events)))
    }

    /// First violated invariant, if any: the total is the sum, the prefix is first, segments are in order,
    /// and each stands for something. Always `None`; the driver asks in debug builds.
    pub fn find_inconsistency(&self) -> Option<String> {
        let sum: Tokens = self.segments.iter().map(Segment::tokens).sum();
        if sum + self.meter.overhead().request != self.total {
            return Some(format!("the segments cost {sum}, the context says {}", self.total));
        }
        let prefix = self.segments.iter().take_while(|segment| segment.is_prefix()).count();
        if prefix != self.growth.prefix || self.segments[prefix..].iter().any(Segment::is_prefix) {
            return Some("the prefix is not at the head".to_owned());
        }
        if !self.segments[prefix..].is_sorted_by(|one, next| one.key < next.key) {
            return Some("the segments are out of order".to_owned());
        }
        let empty = self.segments.iter().position(|segment| segment.stands_for().is_empty());
        if let Some(index) = empty {
            return Some(format!("segment {index} stands for nothing"));
        }
        let miscounted =
            |segment: &Segment| segment.counts.iter().copied().sum::<Tokens>() != segment.content;
        self.segments.iter().position(miscounted).map(|index| format!("segment {index} is miscounted"))
    }
}

fn less(tokens: Tokens, by: Tokens) -> Tokens {
    Tokens(tokens.0.saturating_sub(by.0))
}
