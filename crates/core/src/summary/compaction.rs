//! Drafting a compaction: where to cut, and what stands for what lies before.
//!
//! The cut falls between two turns, where no call is parted from its result. The summary is the built-in one; the
//! numbers are the meter's, and the draft is refused if it would not make the context smaller.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    FoldedRequest, SectionCaps, StructuredSummary, SummaryFocus, SummaryItem, SummarySection, Trail,
    TrailEntry, TrailKind, extraction::SummaryMaterial, reading_cache::ReadingCache, sentences::one_line,
    summarise,
};
use crate::{
    context::{Context, Segment, SegmentBody},
    draft_gate::without_keys,
    event::{Compaction, CompactionTrigger, Fact, LoggedEvent, Summary},
    id::Seq,
    projection::EventLine,
    reducers::failed_result::FailedResult,
    seq_set::SeqSet,
    tokens::Tokens,
};

/// How compactions are drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionSettings {
    /// What stays verbatim.
    pub keep: VerbatimTail,
    /// How long the summary may be.
    pub length: SummaryLength,
    /// How many items it shows.
    pub caps: SectionCaps,
    /// How large the context may be with it: what stays verbatim is made less until it fits, as far as tokens say how much
    /// that is.
    pub most: Option<Tokens>,
    /// Above which a context is too large with it: what the summary holds beside its sections is made less too.
    pub limit: Option<Tokens>,
    /// The first event of what the model has not answered yet: that stays verbatim, whatever its size, if anything lies before
    /// it.
    #[serde(skip)]
    pub unanswered: Option<Seq>,
}

/// What stays verbatim. The newest turn always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerbatimTail {
    /// The last turns, as many as this.
    Turns(u64),
    /// The last turns, as many as fit into this many tokens.
    Tokens(Tokens),
    /// As many as fit, but beginning with a turn that matters: one with a message of the user, or with an error. What stands before the first such turn is left to the summary.
    Important(Tokens),
    /// A window of recent turns beside the current one.
    Recent(RecentWindow),
}

/// The recent turns that stay beside a summary, before the current turn. Their long outputs are cut when the summary takes
/// effect, so that the window holds turns and not one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecentWindow {
    /// Most turns. By default 5.
    pub turns: u64,
    /// Most tokens, with long outputs cut. By default 8 000.
    pub tokens: Tokens,
    /// Most tokens of an output. By default 500.
    pub output: Tokens,
}

impl Default for RecentWindow {
    fn default() -> Self {
        Self { turns: 5, tokens: Tokens(8_000), output: Tokens(500) }
    }
}

/// Tokens of the line that stands between the head and the tail of a cut output, about.
const CUT_LINE: Tokens = Tokens(40);

impl RecentWindow {
    /// Tokens of a segment once its long outputs are cut.
    fn cost(&self, context: &Context, segment: &Segment) -> Tokens {
        if segment.call().is_none() || context.is_pinned(segment) {
            return segment.tokens();
        }
        let saved = |(_, tokens): (_, Tokens)| tokens.less(self.output + CUT_LINE);
        segment.tokens().less(segment.parts_with_tokens().map(saved).sum())
    }

    /// The cut that keeps the current turn and as many before it as there is room for.
    fn cut<'c>(&self, cuts: &'c [CutPoint], context: &Context) -> Option<&'c CutPoint> {
        let current = cuts.last()?;
        let recent = |cut: &CutPoint| {
            let recent = context.segments()[context.prefix_len()..].iter().filter(|segment| {
                !segment.is_before(cut.first_kept)
                    && segment.is_before(current.first_kept)
                    && !matches!(segment.body(), SegmentBody::Summary(_))
            });
            recent.map(|segment| self.cost(context, segment)).sum::<Tokens>()
        };
        let oldest =
            cuts.len().saturating_sub(usize::try_from(self.turns).unwrap_or(usize::MAX).saturating_add(1));
        cuts[oldest..].iter().find(|cut| cut.is_progress && recent(cut) <= self.tokens)
    }
}

/// How long a summary may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryLength {
    /// This many tokens.
    Fixed(Tokens),
    /// A share of what it stands for.
    Scaled {
        /// The share, in percent.
        percent: u64,
        /// But at least this.
        least: Tokens,
        /// And at most this.
        most: Tokens,
    },
}

impl CompactionSettings {
    /// How long the summary of a span of this size may be, with what has room of its own.
    pub fn expected(&self, span: Tokens) -> Tokens {
        // The trail takes all the room there is; of a small span there is little to tell.
        let beside = (self.caps.trail.saturating_add(self.caps.index) / LETTERS) as u64;
        self.length.of(span) + Tokens(beside).min(Tokens(span.0 / 2))
    }

    /// How much is kept verbatim at most, where that is counted in tokens.
    pub fn room(&self) -> Tokens {
        match self.keep {
            VerbatimTail::Recent(window) => window.tokens,
            keep => keep.tokens().unwrap_or_default(),
        }
    }
}

impl Default for VerbatimTail {
    fn default() -> Self {
        Self::Tokens(Tokens(30_000))
    }
}

impl VerbatimTail {
    /// How much it is at most, where that is counted in tokens.
    pub fn tokens(self) -> Option<Tokens> {
        match self {
            Self::Turns(_) | Self::Recent(_) => None,
            Self::Tokens(tokens) | Self::Important(tokens) => Some(tokens),
        }
    }

    /// The same, where there is room for no more than this. Turns are counted in turns and not bound by it.
    pub fn at_most(self, room: Tokens) -> Self {
        match self {
            Self::Turns(_) => self,
            Self::Tokens(tokens) => Self::Tokens(tokens.min(room)),
            Self::Important(tokens) => Self::Important(tokens.min(room)),
            Self::Recent(window) => Self::Recent(RecentWindow { tokens: window.tokens.min(room), ..window }),
        }
    }
}

impl Default for SummaryLength {
    fn default() -> Self {
        Self::Scaled { percent: 15, least: Tokens(1_500), most: Tokens(6_000) }
    }
}

impl SummaryLength {
    /// The same, where there is room for no more than this.
    pub fn at_most(self, room: Tokens) -> Self {
        match self {
            Self::Fixed(tokens) => Self::Fixed(tokens.min(room)),
            Self::Scaled { percent, least, most } => {
                Self::Scaled { percent, least: least.min(room), most: most.min(room) }
            }
        }
    }

    /// The most it may be, whatever the span.
    pub fn most(self) -> Tokens {
        match self {
            Self::Fixed(tokens) | Self::Scaled { most: tokens, .. } => tokens,
        }
    }

    /// The limit for a summary of a span of this size.
    pub fn of(self, span: Tokens) -> Tokens {
        match self {
            Self::Fixed(tokens) => tokens,
            Self::Scaled { percent, least, most } => {
                let share = u128::from(span.0) * u128::from(percent) / 100;
                Tokens(u64::try_from(share).unwrap_or(u64::MAX)).max(least).min(most)
            }
        }
    }
}

/// A trail that has all the room it wants takes one in so many of the tokens that it stands for.
const UNFORCED_PART: u64 = 5;

/// A trail gets so many letters wherever a summary may be larger than was asked for: the newest calls are worth them.
const LEAST_TRAIL: usize = 2_000;

/// The letters of a token, about: code and names have three, prose has four.
const LETTERS: usize = 3;

/// Why there is no compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CompactionError {
    /// Everything is kept verbatim.
    #[error(
        "nothing to compact: what is to be kept verbatim is all there is. Keep fewer turns, or fewer tokens"
    )]
    NothingOld,
    /// The summary would be no smaller than what it stands for.
    #[error(
        "nothing gained: the context has {before} tokens and would have {after} with the summary. Let the summary be \
         shorter, or wait until there is more to summarise"
    )]
    NotSmaller {
        /// The context's size as it is.
        before: Tokens,
        /// Its size with the compaction.
        after: Tokens,
    },
}

/// What is to be compacted: the span up to a cut, and what is known of it.
#[derive(Clone, Debug)]
pub struct CompactionSpan {
    /// Where what the summary stands for begins.
    pub first: Seq,
    /// The first event that stays verbatim.
    pub first_kept: Seq,
    /// What the span costs as it is shown now.
    pub covered: Tokens,
    /// What the rest of the history costs.
    pub kept: Tokens,
    /// The compaction that is shown now, on which this one builds.
    pub standing: Option<Seq>,
    /// What it says.
    pub previous: Option<StructuredSummary>,
    /// What happened since it, up to the cut, and everything that was ever pinned.
    pub events: Vec<Arc<LoggedEvent>>,
    /// How much its summary may show, so that something is gained by it.
    pub caps: SectionCaps,
    /// What its summary should attend to.
    pub focus: Option<SummaryFocus>,
}

impl CompactionSettings {
    /// Drafts the compaction of a line, of which `context` is what is shown now. It is not in force until it is logged. What a
    /// focus is about gets room before the rest.
    pub fn draft(
        &self,
        focus: Option<&SummaryFocus>,
        context: &Context,
        line: &EventLine,
        trigger: CompactionTrigger,
    ) -> Result<Compaction, CompactionError> {
        let (cutting, brief) = self.fitted(focus, context, line)?;
        let finished =
            FinishedSummary { first: cutting.first, first_kept: cutting.first_kept, brief, trigger };
        finished.into_compaction(context, self.length)
    }

    /// Where to cut, and what lies before.
    pub fn cut(
        &self,
        focus: Option<&SummaryFocus>,
        context: &Context,
        line: &EventLine,
    ) -> Result<CompactionSpan, CompactionError> {
        self.fitted(focus, context, line).map(|(cutting, _)| cutting)
    }

    /// Where to cut, and the built-in summary of what lies before: so much is cut that the context is not too large with it,
    /// and the trail then takes what room there is.
    fn fitted(
        &self,
        focus: Option<&SummaryFocus>,
        context: &Context,
        line: &EventLine,
    ) -> Result<(CompactionSpan, StructuredSummary), CompactionError> {
        const TRIES: usize = 4;
        let mut drafting = *self;
        let mut reading = ReadingCache::default();
        let mut cutting = drafting.cut_once(focus, context, line)?;
        let mut material = cutting.material(focus, &mut reading);
        let mut brief = cutting.filled(context, self, &material);
        for _ in 0..TRIES {
            let (Some(most), Some(keep)) = (self.most, drafting.keep.tokens()) else { break };
            let size = cutting.size_with(&brief, context, self.length);
            let excess = size.less(most);
            if excess == Tokens(0) {
                break;
            }
            drafting.keep = drafting.keep.at_most(cutting.kept.min(keep).less(excess));
            let next = drafting.cut_once(focus, context, line)?;
            if next.first_kept == cutting.first_kept {
                break;
            }
            cutting = next;
            material = cutting.material(focus, &mut reading);
            brief = cutting.filled(context, self, &material);
        }
        let brief = cutting.gainful(brief, context, self, &material);
        Ok((cutting, brief))
    }

    fn cut_once(
        &self,
        focus: Option<&SummaryFocus>,
        context: &Context,
        line: &EventLine,
    ) -> Result<CompactionSpan, CompactionError> {
        // Also where its summary is part of a note. A compaction that was made in a rehearsal has the number of the event
        // before it: that one is not meant.
        let is_it = |event: &&Arc<LoggedEvent>, at| {
            event.id.seq == at && matches!(event.event.fact, Fact::Compacted(_))
        };
        let standing = context.standing().and_then(|at| line.events().rfind(|event| is_it(event, at)));
        let cuts = before_unanswered(cuts(context), self.unanswered);
        let cut = match self.keep {
            VerbatimTail::Turns(turns) => within_turns(&cuts, context, turns),
            VerbatimTail::Tokens(tokens) => within_tokens(&cuts, tokens).iter().find(|cut| cut.is_progress),
            VerbatimTail::Important(tokens) => {
                let matters = turns_that_matter(context);
                let fitting = within_tokens(&cuts, tokens);
                fitting.iter().find(|cut| matters.contains(&cut.turn)).or(fitting.first())
            }
            VerbatimTail::Recent(window) => window.cut(&cuts, context),
        };
        // With the newest turn kept there is always a last cut, unless there is no turn at all.
        let cut = cut.or(cuts.last()).filter(|cut| cut.is_progress).ok_or(CompactionError::NothingOld)?;
        Ok(cutting(line, standing, cut, self.caps.of_span(cut.covered), focus))
    }
}

impl CompactionSpan {
    /// What its summary is made of.
    fn material<'f>(
        &self,
        focus: Option<&'f SummaryFocus>,
        reading: &mut ReadingCache,
    ) -> SummaryMaterial<'f> {
        SummaryMaterial::read(reading, focus, &self.events, self.previous.as_ref(), &self.caps)
    }

    /// What a summary of it costs as it would be shown.
    fn size_of(&self, brief: &StructuredSummary, context: &Context, length: SummaryLength) -> Tokens {
        let covered = SeqSet::run(self.first, self.first_kept.previous());
        let brief = StructuredSummary { standing: context.standing_before(self.first_kept), ..brief.clone() };
        let text = brief.render(&covered, length.of(self.covered), context.meter(), context.names());
        context.meter().overhead().around_summary() + context.meter().text(&text)
    }

    /// What a context costs with a summary of it.
    fn size_with(&self, brief: &StructuredSummary, context: &Context, length: SummaryLength) -> Tokens {
        context.tokens().less(self.covered) + self.size_of(brief, context, length)
    }

    /// The built-in summary, with a trail that fills the room there is: the longest that was found to fit. What a trail takes
    /// depends on what is folded in it, so lengths are tried between one that fits and one that does not.
    fn filled(
        &mut self,
        context: &Context,
        drafting: &CompactionSettings,
        material: &SummaryMaterial<'_>,
    ) -> StructuredSummary {
        const TRIES: usize = 6;
        let whole = self.caps.trail;
        let least = LEAST_TRAIL.min(whole);
        self.caps.trail = least;
        let mut brief = material.brief(&self.caps);
        let mut size = self.size_with(&brief, context, drafting.length);
        let shortest = size;
        let room = drafting.most.map_or(Tokens::MAX, |most| most.less(shortest));
        // Where all of it would fit, whoever compacts wants less of it.
        let room = if room < self.covered { room } else { Tokens(self.covered.0 / UNFORCED_PART) };
        let most = shortest + room;
        let (mut fits, mut too_long) = (least, whole.min(material.trail_letters()).saturating_add(1));
        for _ in 0..TRIES {
            // A fiftieth of the room is near enough.
            if too_long <= fits.saturating_add(1) || most.less(size).0 <= room.0 / 50 {
                break;
            }
            // How many letters a token has is known from what was written.
            let told = size.less(shortest).0;
            let told = usize::try_from(told).unwrap_or(usize::MAX);
            let per_token = (fits - least).checked_div(told).unwrap_or(LETTERS).max(1);
            let left = usize::try_from(most.less(size).0).unwrap_or(usize::MAX);
            let more = left.saturating_mul(per_token);
            let guess = fits.saturating_add(more);
            let tried = if guess < too_long { guess } else { fits.midpoint(too_long) };
            let longer = material.brief(&SectionCaps { trail: tried, ..self.caps });
            let longer_size = self.size_with(&longer, context, drafting.length);
            if longer_size > most {
                too_long = tried;
            } else {
                (fits, brief, size) = (tried, longer, longer_size);
            }
        }
        self.caps.trail = fits;
        brief
    }

    /// The built-in summary, with less of what it holds beside its sections until something is gained by it.
    fn gainful(
        &mut self,
        mut brief: StructuredSummary,
        context: &Context,
        drafting: &CompactionSettings,
        material: &SummaryMaterial<'_>,
    ) -> StructuredSummary {
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            let summary = self.size_of(&brief, context, drafting.length);
            let size = context.tokens().less(self.covered) + summary;
            let gained = Tokens(self.covered.0 - self.covered.0 / 10);
            let over = drafting.limit.map_or(Tokens(0), |limit| size.less(limit));
            let excess = over.max(summary.less(gained));
            if excess == Tokens(0) {
                break;
            }
            self.caps.trail = self.caps.trail.min(brief.trail.letters().max(1));
            let letters = usize::try_from(excess.0).unwrap_or(usize::MAX).saturating_mul(LETTERS);
            let Some(caps) = self.caps.shrunk_by(letters) else { break };
            self.caps = caps;
            brief = material.brief(&self.caps);
        }
        brief
    }

    /// Everything that is shown, the newest turn too: for whoever goes on elsewhere. `None` if nothing is shown that is
    /// not a summary already.
    pub fn of_everything(context: &Context, line: &EventLine, drafting: &CompactionSettings) -> Option<Self> {
        let segments = &context.segments()[context.prefix_len()..];
        let is_summary = |segment: &Segment| matches!(segment.body(), SegmentBody::Summary(_));
        segments.iter().find(|segment| !is_summary(segment))?;
        let cut = CutPoint {
            turn: context.last_turn().saturating_add(1),
            first_kept: line.last()?.id.seq.next(),
            covered: segments.iter().map(Segment::tokens).sum(),
            kept: Tokens(0),
            is_progress: true,
        };
        let standing = segments.iter().find_map(|segment| match segment.body() {
            SegmentBody::Summary(event) => Some(event),
            _ => None,
        });
        let mut whole = cutting(line, standing, &cut, drafting.caps.of_span(cut.covered), None);
        let material = whole.material(None, &mut ReadingCache::default());
        let brief = whole.filled(context, drafting, &material);
        whole.gainful(brief, context, drafting, &material);
        Some(whole)
    }
}

/// A summary that was made of a span, not yet in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSummary {
    /// Where what it stands for begins.
    pub first: Seq,
    /// The first event that stays verbatim.
    pub first_kept: Seq,
    /// What it says.
    pub brief: StructuredSummary,
    /// Why it was made.
    pub trigger: CompactionTrigger,
}

impl FinishedSummary {
    /// The compaction that puts it in force, where `context` is what is shown now.
    pub fn into_compaction(
        self,
        context: &Context,
        length: SummaryLength,
    ) -> Result<Compaction, CompactionError> {
        let Self { first, first_kept, brief, trigger } = self;
        let (meter, names) = (context.meter(), context.names());
        let shown = &context.segments()[context.prefix_len()..];
        let is_covered = |segment: &&Segment| segment.is_before(first_kept);
        // Standing context is never left to whoever wrote the summary, and may have changed since.
        let brief = StructuredSummary { standing: context.standing_before(first_kept), ..brief };
        let replaced: Tokens = shown.iter().filter(is_covered).map(Segment::tokens).sum();
        let covered = SeqSet::run(first, first_kept.previous());
        let current = brief.clone().without_outdated(context, first_kept);
        let text = current.render(&covered, length.of(replaced), meter, names);
        let before = context.tokens();
        let after = before.less(replaced) + meter.overhead().around_summary() + meter.text(&text);
        if after >= before {
            return Err(CompactionError::NotSmaller { before, after });
        }
        Ok(Compaction {
            summary: Summary::Structured { text, brief: Box::new(brief) },
            through: first_kept.previous(),
            first_kept: Some(first_kept),
            tokens_before: Some(before),
            tokens_after: Some(after),
            trigger,
        })
    }

    /// The same, with what was pinned or let go since it was made.
    pub fn with_pins(mut self, line: &EventLine, caps: &SectionCaps) -> Self {
        let pins: Vec<Arc<LoggedEvent>> = line.events().filter(|event| is_pin(event)).cloned().collect();
        if !pins.is_empty() {
            let StructuredSummary { items, folded, .. } = summarise(&pins, Some(&self.brief), caps);
            self.brief = StructuredSummary { items, folded, ..self.brief };
        }
        self
    }
}

fn is_pin(event: &LoggedEvent) -> bool {
    matches!(event.event.fact, Fact::Pinned { .. } | Fact::Unpinned { .. })
}

/// A place where the line may be cut.
#[derive(Clone, Copy, Debug)]
struct CutPoint {
    /// The turn that is then the first kept one.
    turn: u64,
    first_kept: Seq,
    /// What everything before it costs, the prefix aside.
    covered: Tokens,
    /// What it and everything after it costs.
    kept: Tokens,
    /// Whether anything lies before it that is not a summary already.
    is_progress: bool,
}

/// Every place between two turns where nothing is parted, oldest first.
fn cuts(context: &Context) -> Vec<CutPoint> {
    let segments = &context.segments()[context.prefix_len()..];
    let mut cuts = Vec::new();
    let all: Tokens = segments.iter().map(Segment::tokens).sum();
    let (mut covered, mut last, mut turn, mut is_progress) = (Tokens(0), Seq::START, None, false);
    for segment in segments {
        let summary = matches!(segment.body(), SegmentBody::Summary(_));
        let first = segment.stands_for().first().unwrap_or_default();
        if !summary && turn != Some(segment.turn()) {
            turn = Some(segment.turn());
            // A result that came after its turn was over holds the turns together.
            if last < first {
                let kept = all.less(covered);
                cuts.push(CutPoint { turn: segment.turn(), first_kept: first, covered, kept, is_progress });
            }
        }
        covered += segment.tokens();
        if !summary {
            // A compaction that is stood on comes after what it kept, and stands for nothing there.
            last = last.max(segment.stands_for().last().unwrap_or_default());
            is_progress = true;
        }
    }
    cuts
}

/// The cuts that part nothing from what the model has not answered yet; all of them if none of those is progress.
fn before_unanswered(cuts: Vec<CutPoint>, unanswered: Option<Seq>) -> Vec<CutPoint> {
    let Some(first) = unanswered else { return cuts };
    let before = cuts.partition_point(|cut| cut.first_kept <= first);
    if cuts[..before].iter().any(|cut| cut.is_progress) { cuts[..before].to_vec() } else { cuts }
}

fn within_turns<'c>(cuts: &'c [CutPoint], context: &Context, turns: u64) -> Option<&'c CutPoint> {
    let oldest = context.last_turn().saturating_sub(turns.max(1) - 1);
    cuts.iter().rev().find(|cut| cut.turn <= oldest)
}

/// The cuts that keep no more than this, oldest first.
fn within_tokens(cuts: &[CutPoint], tokens: Tokens) -> &[CutPoint] {
    &cuts[cuts.partition_point(|cut| cut.kept > tokens)..]
}

/// The turns with a message of the user or an error.
fn turns_that_matter(context: &Context) -> BTreeSet<u64> {
    let matters = |segment: &&Segment| segment.is_user() || FailedResult::of(segment).is_some();
    context.segments().iter().filter(matters).map(Segment::turn).collect()
}

/// What a compaction that is stood on means for the next one: the last event it stands for, and what it says.
pub fn carried_summary(event: &LoggedEvent) -> Option<(Seq, StructuredSummary)> {
    let Fact::Compacted(compaction) = &event.event.fact else { return None };
    // What a compaction says of places may be nonsense; what it kept cannot lie behind itself.
    let kept = compaction.first_kept.unwrap_or(event.id.seq);
    let through = compaction.through.max(kept.previous()).min(event.id.seq);
    let brief = match &compaction.summary {
        Summary::Structured { brief, .. } => (**brief).clone(),
        Summary::Text(_) | Summary::Encrypted(_) => unread(event, compaction, through),
    };
    Some((through, brief))
}

/// What lies before a cut, and the summary that stands.
fn cutting(
    line: &EventLine,
    summary: Option<&Arc<LoggedEvent>>,
    cut: &CutPoint,
    caps: SectionCaps,
    focus: Option<&SummaryFocus>,
) -> CompactionSpan {
    let (after, previous) = summary.and_then(|event| carried_summary(event)).unzip();
    let after = after.unwrap_or(Seq::START);
    // A pin is never rendered by itself: what was pinned later, or no longer is, must be told now too.
    let told = |event: &&Arc<LoggedEvent>| {
        let seq = event.id.seq;
        // What a summary says of the past it carries on by itself.
        let summary = matches!(event.event.fact, Fact::Compacted(_));
        (after < seq && seq < cut.first_kept && !summary) || is_pin(event)
    };
    CompactionSpan {
        first: line.conversation_start(),
        first_kept: cut.first_kept,
        covered: cut.covered,
        kept: cut.kept,
        standing: summary.map(|event| event.id.seq),
        previous,
        events: line.events().filter(told).cloned().collect(),
        caps,
        focus: focus.cloned(),
    }
}

/// A summary that holds no items, as one: its beginning, and where it is. It says what was, and nobody knows what of it is
/// still so: a trail tells it as what came of everything before.
fn unread(event: &LoggedEvent, compaction: &Compaction, through: Seq) -> StructuredSummary {
    const END: usize = 400;
    let at = event.id.seq;
    let (text, concluded) = match &compaction.summary {
        Summary::Encrypted(_) => {
            let text = "An earlier summary that only its provider can read.".to_owned();
            (text.clone(), text)
        }
        summary => {
            let words = one_line(summary.text(), usize::MAX);
            let ends = words.ceil_char_boundary(words.len().saturating_sub(END));
            let length = words.chars().count();
            let told = format!("a summary of {length} letters, which ends: {}", &words[ends..]);
            (format!("An earlier summary begins: {}", one_line(&words, 600)), without_keys(&told))
        }
    };
    let item = SummaryItem::new(SummarySection::SessionIntent, text, SeqSet::one(at));
    let item = SummaryItem { key: Some(format!("summary {at}")), ..item };
    let request = FoldedRequest { last: at, concluded, ..FoldedRequest::default() };
    let entry = TrailEntry { at: through, what: TrailKind::Request(request) };
    let trail = Trail { entries: vec![entry] };
    StructuredSummary { items: vec![item], trail, ..StructuredSummary::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::EventNaming,
        id::ThreadId,
        notation::{logged, meter, read},
        projection::project,
    };

    fn drafting(keep: VerbatimTail) -> CompactionSettings {
        CompactionSettings {
            keep,
            length: SummaryLength::Fixed(Tokens(200)),
            caps: SectionCaps::default(),
            most: None,
            limit: None,
            unanswered: None,
        }
    }

    const LOG: &str = "
system: Rules.
user: Add a cache. Never touch the lock file.
assistant: Reading.
  call#a read_file {\"path\":\"src/a.rs\"}
  -> 200 words of \"code\"
assistant: Testing.
  call#b bash {\"command\":\"make\"}
  !> boom
user: Go on.
assistant: Done.
  call#c bash {\"command\":\"ls\"}
  -> 90 words of \"file\"
assistant: All is well.
";

    fn draft(keep: VerbatimTail, line: &EventLine) -> Result<Compaction, CompactionError> {
        drafting(keep).draft(
            None,
            &project(line, meter(), EventNaming::Messages),
            line,
            CompactionTrigger::Manual,
        )
    }

    fn check(keep: VerbatimTail, expect: Result<(u64, u64), CompactionError>) {
        let draft = draft(keep, &EventLine::new(read(LOG)));
        let places = draft.map(|draft| (draft.through.0, draft.first_kept.unwrap().0));
        assert_eq!(places, expect, "{keep:?}");
    }

    #[test]
    fn the_cut_falls_between_turns() {
        check(VerbatimTail::Turns(1), Ok((9, 10)));
        check(VerbatimTail::Turns(2), Ok((6, 7)));
        check(VerbatimTail::Turns(3), Ok((4, 5)));
        check(VerbatimTail::Turns(9), Err(CompactionError::NothingOld));
        check(VerbatimTail::Tokens(Tokens(0)), Ok((9, 10)));
        check(VerbatimTail::Tokens(Tokens(100)), Ok((6, 7)));
        // However much may be kept, a compaction is to gain something.
        check(VerbatimTail::Tokens(Tokens::MAX), Ok((4, 5)));
    }

    #[test]
    fn what_is_kept_by_importance_begins_with_an_error_or_a_message() {
        check(VerbatimTail::Important(Tokens(120)), Ok((4, 5)));
        check(VerbatimTail::Important(Tokens(100)), Ok((6, 7)));
        check(VerbatimTail::Important(Tokens(3)), Ok((9, 10)));
    }

    #[test]
    fn a_result_that_came_late_is_not_parted_from_its_call() {
        let log = "
user: Go.
assistant:
  call#a bash {\"command\":\"sleep 9\"}
user: Meanwhile, 90 words.
assistant: Yes.
result a: done
user: And?
assistant: Fine.
";
        let line = EventLine::new(read(log));
        let cut: Vec<u64> = cuts(&project(&line, meter(), EventNaming::Messages))
            .iter()
            .map(|cut| cut.first_kept.0)
            .collect();
        assert_eq!(cut, [1, 6]);
    }

    #[test]
    fn the_numbers_are_those_of_the_context_it_makes() {
        let mut line = EventLine::new(read(LOG));
        let draft = draft(VerbatimTail::Turns(2), &line).unwrap();
        let before = project(&line, meter(), EventNaming::Messages).tokens();
        line.push_uncounted(logged(11, Fact::Compacted(draft.clone())));
        let after = project(&line, meter(), EventNaming::Messages).tokens();
        assert_eq!((draft.tokens_before, draft.tokens_after), (Some(before), Some(after)));
    }

    /// What the summary stands for in the context that it makes is what its first line leads to.
    #[test]
    fn everything_covered_is_reached_by_the_handle_in_the_text() {
        let thread = EventNaming::Thread(ThreadId::derived(&["test"]));
        for names in [EventNaming::Messages, EventNaming::MessagesAfter(1), thread] {
            let mut line = EventLine::new(read(LOG));
            let context = project(&line, meter(), names);
            let draft = drafting(VerbatimTail::Turns(2))
                .draft(None, &context, &line, CompactionTrigger::Manual)
                .unwrap();
            let first_line = draft.summary.text().lines().next().unwrap().to_owned();
            line.push_uncounted(logged(11, Fact::Compacted(draft)));
            let context = project(&line, meter(), names);
            let is_summary = |segment: &&Segment| matches!(segment.body(), SegmentBody::Summary(_));
            let covered = context.segments().iter().find(is_summary).unwrap().stands_for();
            let covered = covered.without(&SeqSet::one(Seq(11)));
            assert_eq!((covered.first(), covered.last()), (Some(Seq(2)), Some(Seq(6))));
            assert_eq!(names.handles_in(&first_line), covered, "{first_line}");
        }
    }

    #[test]
    fn a_second_draft_stands_on_the_first() {
        let mut line = EventLine::new(read(LOG));
        let first = draft(VerbatimTail::Turns(2), &line).unwrap();
        line.push_uncounted(logged(11, Fact::Compacted(first)));
        let again = draft(VerbatimTail::Turns(2), &line);
        assert_eq!(again, Err(CompactionError::NothingOld));
        let more =
            read("user: Now the docs.\nassistant: 300 words of \"word\"\nuser: Thanks.\nassistant: Bye.");
        for (seq, event) in (12..).zip(more) {
            line.push_uncounted(logged(seq, event.event.fact.clone()));
        }
        let draft = draft(VerbatimTail::Turns(1), &line).unwrap();
        assert_eq!((draft.through.0, draft.first_kept.unwrap().0), (13, 14));
        let Summary::Structured { text, .. } = draft.summary else {
            panic!("the built-in summary has items")
        };
        for words in ["Never touch the lock file", "Now the docs", "boom", "src/a.rs"] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
    }

    #[test]
    fn what_is_no_longer_pinned_is_no_longer_told_wherever_it_was_pinned() {
        let pinned = |tail: &str| {
            let mut line = EventLine::new(read(&format!("pin: Port 8080.\npin 2\n{LOG}")));
            // The events of the log are two further on than they count from.
            let first = draft(VerbatimTail::Turns(2), &line).unwrap();
            line.push_uncounted(logged(13, Fact::Compacted(first)));
            let more =
                "user: Now the docs.\nassistant: 300 words of \"word\"\nuser: Thanks.\nassistant: Bye.\n";
            for (seq, event) in (14..).zip(read(&format!("{more}{tail}"))) {
                line.push_uncounted(logged(seq, event.event.fact.clone()));
            }
            let Summary::Structured { brief, .. } = draft(VerbatimTail::Turns(1), &line).unwrap().summary
            else {
                panic!("the built-in summary has items")
            };
            brief.section(SummarySection::Pins).map(|item| item.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(pinned(""), ["Port 8080.", "event 2"]);
        assert_eq!(pinned("unpin: Port 8080.\n"), ["event 2"]);
        assert_eq!(pinned("unpin 2\n"), ["Port 8080."]);
        assert_eq!(pinned("unpin 2\nunpin: Port 8080.\nunpin: never\n"), [""; 0]);
        assert_eq!(pinned("unpin: Port 8080.\npin: Port 8080.\n"), ["event 2", "Port 8080."]);
    }

    #[test]
    fn pins_made_since_change_nothing_else() {
        let line = EventLine::new(read(&LOG.replace("200 words of \"code\"", "struct CacheEntry;")));
        let cutting = drafting(VerbatimTail::Turns(2))
            .cut(None, &project(&line, meter(), EventNaming::Messages), &line)
            .unwrap();
        // There is no room for what was read: its names are in the index.
        let caps = SectionCaps { trail: 1, index: 1_000, ..SectionCaps::default() };
        let brief = summarise(&cutting.events, None, &caps);
        assert!(!brief.trail.is_empty() && !brief.index.is_empty());
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, CompactionTrigger::Manual);
        let finished = FinishedSummary { first, first_kept, brief, trigger };
        let with = |pins: &str| finished.clone().with_pins(&EventLine::new(read(pins)), &caps);
        assert_eq!(with("pin: One.\nunpin: One.\n"), finished);
        let StructuredSummary { items: pinned, trail, index, .. } =
            with("pin: One.\npin: Two.\nunpin: One.\n").brief;
        assert_eq!((&trail, &index), (&finished.brief.trail, &finished.brief.index));
        assert_eq!((pinned[0].section, pinned[0].text.as_str()), (SummarySection::Pins, "Two."));
        assert_eq!(pinned[1..], finished.brief.items);
    }

    #[test]
    fn what_is_kept_gives_way_until_the_context_is_as_large_as_it_may_be() {
        let turn = |words: u64| format!("assistant:\n  call bash {{}}\n  -> {words} words of \"w\"\n");
        let log = format!("user: Go.\n{}", [500, 200, 200, 200, 20].map(turn).concat());
        let line = EventLine::new(read(&log));
        let context = project(&line, meter(), EventNaming::Messages);
        let check = |most: u64, first_kept: u64| {
            let keep = drafting(VerbatimTail::Tokens(Tokens(700)));
            let drafting = CompactionSettings {
                length: SummaryLength::Fixed(Tokens(0)),
                most: Some(Tokens(most)),
                ..keep
            };
            let draft = drafting.draft(None, &context, &line, CompactionTrigger::Manual).unwrap();
            assert_eq!(draft.first_kept, Some(Seq(first_kept)), "{most}: {:?}", draft.tokens_after);
            draft.tokens_after.unwrap()
        };
        for (most, first_kept) in [(1_000, 4), (600, 6), (400, 8), (200, 10)] {
            assert!(check(most, first_kept) <= Tokens(most));
        }
        // Less than the newest turn there cannot be.
        assert!(check(1, 10) > Tokens(1));
    }

    #[test]
    fn what_has_room_of_its_own_is_expected_to_take_it_of_a_large_span() {
        let caps = SectionCaps { trail: 4_000, index: 2_000, ..SectionCaps::default() };
        let drafting = CompactionSettings { caps, ..drafting(VerbatimTail::Turns(1)) };
        assert_eq!(drafting.expected(Tokens(100_000)), Tokens(200 + 2_000));
        assert_eq!(drafting.expected(Tokens(1_000)), Tokens(200 + 500));
        let absurd = SectionCaps { trail: usize::MAX, index: usize::MAX, ..caps };
        assert_eq!(
            CompactionSettings { caps: absurd, ..drafting }.expected(Tokens(1_000)),
            Tokens(200 + 500)
        );
    }

    #[test]
    fn a_draft_that_gains_nothing_is_refused_with_the_numbers() {
        let line = EventLine::new(read("user: One.\nassistant: Yes.\nuser: Two.\nassistant: Yes."));
        let refused = draft(VerbatimTail::Turns(1), &line).unwrap_err();
        assert!(matches!(refused, CompactionError::NotSmaller { before: Tokens(4), .. }), "{refused}");
    }

    #[test]
    fn the_length_is_fixed_or_follows_the_span() {
        let scaled = SummaryLength::Scaled { percent: 10, least: Tokens(50), most: Tokens(500) };
        for (span, expect) in [(100, 50), (2_000, 200), (90_000, 500), (u64::MAX, 500)] {
            assert_eq!(scaled.of(Tokens(span)), Tokens(expect));
        }
        assert_eq!(SummaryLength::Fixed(Tokens(7)).of(Tokens(1)), Tokens(7));
    }
}
