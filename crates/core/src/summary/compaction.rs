//! Drafting a compaction: where to cut, and what stands for what lies before.
//!
//! The cut falls between two turns, where no call is parted from its result. The summary is the built-in one; the
//! numbers are the meter's, and the draft is refused if it would not make the context smaller.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Brief, Caps, Focus, FoldedRequest, Item, Section, Trail, TrailEntry, TrailKind, extract::SummaryMaterial,
    prose::one_line, reading::Reading, summarise,
};
use crate::{
    context::{Body, Context, Segment},
    event::{Compaction, Fact, Logged, Summary, Trigger},
    id::Seq,
    project::Line,
    reducers::failure::Failure,
    seq_set::SeqSet,
    tokens::Tokens,
    verify::without_keys,
};

/// How compactions are drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drafting {
    /// What stays verbatim.
    pub keep: Keep,
    /// How long the summary may be.
    pub length: Length,
    /// How many items it shows.
    pub caps: Caps,
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
pub enum Keep {
    /// The last turns, as many as this.
    Turns(u64),
    /// The last turns, as many as fit into this many tokens.
    Tokens(Tokens),
    /// As many as fit, but beginning with a turn that matters: one with a message of the user, or with an error. What stands before the first such turn is left to the summary.
    Important(Tokens),
}

/// How long a summary may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
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

impl Drafting {
    /// How long the summary of a span of this size may be, with what has room of its own.
    pub fn expected(&self, span: Tokens) -> Tokens {
        // The trail takes all the room there is; of a small span there is little to tell.
        let beside = (self.caps.trail.saturating_add(self.caps.index) / LETTERS) as u64;
        self.length.of(span) + Tokens(beside).min(Tokens(span.0 / 2))
    }

    /// How much is kept verbatim at most, where that is counted in tokens.
    pub fn room(&self) -> Tokens {
        self.keep.tokens().unwrap_or_default()
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self::Tokens(Tokens(30_000))
    }
}

impl Keep {
    /// How much it is at most, where that is counted in tokens.
    pub fn tokens(self) -> Option<Tokens> {
        match self {
            Self::Turns(_) => None,
            Self::Tokens(tokens) | Self::Important(tokens) => Some(tokens),
        }
    }

    /// The same, where there is room for no more than this. Turns are counted in turns and not bound by it.
    pub fn at_most(self, room: Tokens) -> Self {
        match self {
            Self::Turns(_) => self,
            Self::Tokens(tokens) => Self::Tokens(tokens.min(room)),
            Self::Important(tokens) => Self::Important(tokens.min(room)),
        }
    }
}

impl Default for Length {
    fn default() -> Self {
        Self::Scaled { percent: 15, least: Tokens(1_500), most: Tokens(6_000) }
    }
}

impl Length {
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

/// The letters for so many tokens, about.
fn letters(tokens: Tokens) -> usize {
    usize::try_from(tokens.0).unwrap_or(usize::MAX).saturating_mul(LETTERS)
}

/// Why there is no compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NothingGained {
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
pub struct Cutting {
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
    pub previous: Option<Brief>,
    /// What happened since it, up to the cut, and everything that was ever pinned.
    pub events: Vec<Arc<Logged>>,
    /// How much its summary may show, so that something is gained by it.
    pub caps: Caps,
    /// What its summary should attend to.
    pub focus: Option<Focus>,
}

impl Drafting {
    /// Drafts the compaction of a line, of which `context` is what is shown now. It is not in force until it is logged. What a
    /// focus is about gets room before the rest.
    pub fn draft(
        &self,
        focus: Option<&Focus>,
        context: &Context,
        line: &Line,
        trigger: Trigger,
    ) -> Result<Compaction, NothingGained> {
        let (cutting, brief) = self.fitted(focus, context, line)?;
        let finished = Finished { first: cutting.first, first_kept: cutting.first_kept, brief, trigger };
        finished.compaction(context, self.length)
    }

    /// Where to cut, and what lies before.
    pub fn cut(
        &self,
        focus: Option<&Focus>,
        context: &Context,
        line: &Line,
    ) -> Result<Cutting, NothingGained> {
        self.fitted(focus, context, line).map(|(cutting, _)| cutting)
    }

    /// Where to cut, and the built-in summary of what lies before: so much is cut that the context is not too large with it,
    /// and the trail then takes what room there is.
    fn fitted(
        &self,
        focus: Option<&Focus>,
        context: &Context,
        line: &Line,
    ) -> Result<(Cutting, Brief), NothingGained> {
        const TRIES: usize = 4;
        let mut drafting = *self;
        let mut reading = Reading::default();
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
        focus: Option<&Focus>,
        context: &Context,
        line: &Line,
    ) -> Result<Cutting, NothingGained> {
        // Also where its summary is part of a note. A compaction that was made in a rehearsal has the number of the event
        // before it: that one is not meant.
        let is_it =
            |event: &&Arc<Logged>, at| event.id.seq == at && matches!(event.event.fact, Fact::Compacted(_));
        let standing = context.standing().and_then(|at| line.events().rfind(|event| is_it(event, at)));
        let cuts = before_unanswered(cuts(context), self.unanswered);
        let cut = match self.keep {
            Keep::Turns(turns) => within_turns(&cuts, context, turns),
            Keep::Tokens(tokens) => within_tokens(&cuts, tokens).iter().find(|cut| cut.is_progress),
            Keep::Important(tokens) => {
                let matters = turns_that_matter(context);
                let fitting = within_tokens(&cuts, tokens);
                fitting.iter().find(|cut| matters.contains(&cut.turn)).or(fitting.first())
            }
        };
        // With the newest turn kept there is always a last cut, unless there is no turn at all.
        let cut = cut.or(cuts.last()).filter(|cut| cut.is_progress).ok_or(NothingGained::NothingOld)?;
        let cutting = cutting(line, standing, cut, self.caps.of_span(cut.covered));
        Ok(Cutting { focus: focus.cloned(), ..cutting })
    }
}

impl Cutting {
    /// What its summary is made of.
    fn material<'f>(&self, focus: Option<&'f Focus>, reading: &mut Reading) -> SummaryMaterial<'f> {
        SummaryMaterial::read(reading, focus, &self.events, self.previous.as_ref(), &self.caps)
    }

    /// What a summary of it costs as it would be shown.
    fn size_of(&self, brief: &Brief, context: &Context, length: Length) -> Tokens {
        let covered = SeqSet::run(self.first, self.first_kept.previous());
        let brief = Brief { standing: context.standing_before(self.first_kept), ..brief.clone() };
        let text = brief.render(&covered, length.of(self.covered), context.meter(), context.names());
        context.meter().overhead().around_summary() + context.meter().text(&text)
    }

    /// What a context costs with a summary of it.
    fn size_with(&self, brief: &Brief, context: &Context, length: Length) -> Tokens {
        context.tokens().less(self.covered) + self.size_of(brief, context, length)
    }

    /// The built-in summary, with a trail that fills the room there is: the longest that was found to fit. What a trail takes
    /// depends on what is folded in it, so lengths are tried between one that fits and one that does not.
    fn filled(&mut self, context: &Context, drafting: &Drafting, material: &SummaryMaterial<'_>) -> Brief {
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
            let per_token = if told == 0 {
                LETTERS
            } else {
                (fits - least) / usize::try_from(told).unwrap_or(usize::MAX)
            };
            let more =
                usize::try_from(most.less(size).0).unwrap_or(usize::MAX).saturating_mul(per_token.max(1));
            let guess = fits.saturating_add(more);
            let tried = if guess < too_long { guess } else { fits.midpoint(too_long) };
            let longer = material.brief(&Caps { trail: tried, ..self.caps });
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
        mut brief: Brief,
        context: &Context,
        drafting: &Drafting,
        material: &SummaryMaterial<'_>,
    ) -> Brief {
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
            let Some(caps) = self.caps.less(letters(excess)) else { break };
            self.caps = caps;
            brief = material.brief(&self.caps);
        }
        brief
    }

    /// Everything that is shown, the newest turn too: for whoever goes on elsewhere. `None` if nothing is shown that is
    /// not a summary already.
    pub fn whole(context: &Context, line: &Line, drafting: &Drafting) -> Option<Self> {
        let segments = &context.segments()[context.prefix_len()..];
        let is_summary = |segment: &&Segment| matches!(segment.body(), Body::Summary(_));
        segments.iter().find(|segment| !is_summary(segment))?;
        let cut = Cut {
            turn: context.last_turn().saturating_add(1),
            first_kept: line.last()?.id.seq.next(),
            covered: segments.iter().map(Segment::tokens).sum(),
            kept: Tokens(0),
            is_progress: true,
        };
        let standing = segments.iter().find(is_summary).and_then(|segment| match segment.body() {
            Body::Summary(event) => Some(event),
            _ => None,
        });
        let mut whole = cutting(line, standing, &cut, drafting.caps.of_span(cut.covered));
        let material = whole.material(None, &mut Reading::default());
        let brief = whole.filled(context, drafting, &material);
        whole.gainful(brief, context, drafting, &material);
        Some(whole)
    }
}

/// A summary that was made of a span, not yet in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Where what it stands for begins.
    pub first: Seq,
    /// The first event that stays verbatim.
    pub first_kept: Seq,
    /// What it says.
    pub brief: Brief,
    /// Why it was made.
    pub trigger: Trigger,
}

impl Finished {
    /// The compaction that puts it in force, where `context` is what is shown now.
    pub fn compaction(self, context: &Context, length: Length) -> Result<Compaction, NothingGained> {
        let Self { first, first_kept, brief, trigger } = self;
        let (meter, names) = (context.meter(), context.names());
        let shown = &context.segments()[context.prefix_len()..];
        let is_covered = |segment: &&Segment| segment.is_before(first_kept);
        // Standing context is never left to whoever wrote the summary, and may have changed since.
        let brief = Brief { standing: context.standing_before(first_kept), ..brief };
        let replaced: Tokens = shown.iter().filter(is_covered).map(Segment::tokens).sum();
        let covered = SeqSet::run(first, first_kept.previous());
        let current = brief.clone().without_outdated(context, first_kept);
        let text = current.render(&covered, length.of(replaced), meter, names);
        let before = context.tokens();
        let after = before.less(replaced) + meter.overhead().around_summary() + meter.text(&text);
        if after >= before {
            return Err(NothingGained::NotSmaller { before, after });
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
    pub fn with_pins(mut self, line: &Line, caps: &Caps) -> Self {
        let pins: Vec<Arc<Logged>> = line.events().filter(|event| is_pin(event)).cloned().collect();
        if !pins.is_empty() {
            let Brief { items, folded, .. } = summarise(&pins, Some(&self.brief), caps);
            self.brief = Brief { items, folded, ..self.brief };
        }
        self
    }
}

fn is_pin(event: &Logged) -> bool {
    matches!(event.event.fact, Fact::Pinned { .. } | Fact::Unpinned { .. })
}

/// A place where the line may be cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
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
fn cuts(context: &Context) -> Vec<Cut> {
    let segments = &context.segments()[context.prefix_len()..];
    let mut cuts = Vec::new();
    let all: Tokens = segments.iter().map(Segment::tokens).sum();
    let (mut covered, mut last, mut turn, mut is_progress) = (Tokens(0), Seq::START, None, false);
    for segment in segments {
        let summary = matches!(segment.body(), Body::Summary(_));
        let first = segment.stands_for().first().unwrap_or_default();
        if !summary && turn != Some(segment.turn()) {
            turn = Some(segment.turn());
            // A result that came after its turn was over holds the turns together.
            if last < first {
                let kept = all.less(covered);
                cuts.push(Cut { turn: segment.turn(), first_kept: first, covered, kept, is_progress });
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
fn before_unanswered(cuts: Vec<Cut>, unanswered: Option<Seq>) -> Vec<Cut> {
    let Some(first) = unanswered else { return cuts };
    let before = cuts.partition_point(|cut| cut.first_kept <= first);
    if cuts[..before].iter().any(|cut| cut.is_progress) { cuts[..before].to_vec() } else { cuts }
}

fn within_turns<'c>(cuts: &'c [Cut], context: &Context, turns: u64) -> Option<&'c Cut> {
    let oldest = context.last_turn().saturating_sub(turns.max(1) - 1);
    cuts.iter().rev().find(|cut| cut.turn <= oldest)
}

/// The cuts that keep no more than this, oldest first.
fn within_tokens(cuts: &[Cut], tokens: Tokens) -> &[Cut] {
    &cuts[cuts.partition_point(|cut| cut.kept > tokens)..]
}

/// The turns with a message of the user or an error.
fn turns_that_matter(context: &Context) -> BTreeSet<u64> {
    let matters = |segment: &&Segment| segment.is_user() || Failure::of(segment).is_some();
    context.segments().iter().filter(matters).map(Segment::turn).collect()
}

/// What a compaction that is stood on means for the next one: the last event it stands for, and what it says.
pub fn standing(event: &Logged) -> Option<(Seq, Brief)> {
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
fn cutting(line: &Line, summary: Option<&Arc<Logged>>, cut: &Cut, caps: Caps) -> Cutting {
    let (after, previous) = summary.and_then(|event| standing(event)).unzip();
    let after = after.unwrap_or(Seq::START);
    // A pin is never rendered by itself: what was pinned later, or no longer is, must be told now too.
    let told = |event: &&Arc<Logged>| {
        let seq = event.id.seq;
        // What a summary says of the past it carries on by itself.
        let summary = matches!(event.event.fact, Fact::Compacted(_));
        (after < seq && seq < cut.first_kept && !summary) || is_pin(event)
    };
    Cutting {
        first: line.after_leading(),
        first_kept: cut.first_kept,
        covered: cut.covered,
        kept: cut.kept,
        standing: summary.map(|event| event.id.seq),
        previous,
        events: line.events().filter(told).cloned().collect(),
        caps,
        focus: None,
    }
}

/// A summary that holds no items, as one: its beginning, and where it is. It says what was, and nobody knows what of it is
/// still so: a trail tells it as what came of everything before.
fn unread(event: &Logged, compaction: &Compaction, through: Seq) -> Brief {
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
    let key = Some(format!("summary {at}"));
    let item = Item { section: Section::SessionIntent, text, key, sources: SeqSet::one(at), detail: None };
    let request = FoldedRequest { last: at, concluded, ..FoldedRequest::default() };
    let entry = TrailEntry { at: through, what: TrailKind::Request(request) };
    let trail = Trail { entries: vec![entry] };
    Brief { items: vec![item], trail, ..Brief::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::Names,
        id::ThreadId,
        notation::{logged, meter, read},
        project::project,
    };

    fn drafting(keep: Keep) -> Drafting {
        Drafting {
            keep,
            length: Length::Fixed(Tokens(200)),
            caps: Caps::default(),
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

    fn draft(keep: Keep, line: &Line) -> Result<Compaction, NothingGained> {
        drafting(keep).draft(None, &project(line, meter(), Names::Messages), line, Trigger::Manual)
    }

    fn check(keep: Keep, expect: Result<(u64, u64), NothingGained>) {
        let draft = draft(keep, &Line::new(read(LOG)));
        let places = draft.map(|draft| (draft.through.0, draft.first_kept.unwrap().0));
        assert_eq!(places, expect, "{keep:?}");
    }

    #[test]
    fn the_cut_falls_between_turns() {
        check(Keep::Turns(1), Ok((9, 10)));
        check(Keep::Turns(2), Ok((6, 7)));
        check(Keep::Turns(3), Ok((4, 5)));
        check(Keep::Turns(9), Err(NothingGained::NothingOld));
        check(Keep::Tokens(Tokens(0)), Ok((9, 10)));
        check(Keep::Tokens(Tokens(100)), Ok((6, 7)));
        // However much may be kept, a compaction is to gain something.
        check(Keep::Tokens(Tokens::MAX), Ok((4, 5)));
    }

    #[test]
    fn what_is_kept_by_importance_begins_with_an_error_or_a_message() {
        check(Keep::Important(Tokens(120)), Ok((4, 5)));
        check(Keep::Important(Tokens(100)), Ok((6, 7)));
        check(Keep::Important(Tokens(3)), Ok((9, 10)));
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
        let line = Line::new(read(log));
        let cut: Vec<u64> =
            cuts(&project(&line, meter(), Names::Messages)).iter().map(|cut| cut.first_kept.0).collect();
        assert_eq!(cut, [1, 6]);
    }

    #[test]
    fn the_numbers_are_those_of_the_context_it_makes() {
        let mut line = Line::new(read(LOG));
        let draft = draft(Keep::Turns(2), &line).unwrap();
        let before = project(&line, meter(), Names::Messages).tokens();
        line.push_uncounted(logged(11, Fact::Compacted(draft.clone())));
        let after = project(&line, meter(), Names::Messages).tokens();
        assert_eq!((draft.tokens_before, draft.tokens_after), (Some(before), Some(after)));
    }

    /// What the summary stands for in the context that it makes is what its first line leads to.
    #[test]
    fn everything_covered_is_reached_by_the_handle_in_the_text() {
        let thread = Names::Thread(ThreadId::derived(&["test"]));
        for names in [Names::Messages, Names::MessagesAfter(1), thread] {
            let mut line = Line::new(read(LOG));
            let context = project(&line, meter(), names);
            let draft = drafting(Keep::Turns(2)).draft(None, &context, &line, Trigger::Manual).unwrap();
            let first_line = draft.summary.text().lines().next().unwrap().to_owned();
            line.push_uncounted(logged(11, Fact::Compacted(draft)));
            let context = project(&line, meter(), names);
            let is_summary = |segment: &&Segment| matches!(segment.body(), Body::Summary(_));
            let covered = context.segments().iter().find(is_summary).unwrap().stands_for();
            let covered = covered.without(&SeqSet::one(Seq(11)));
            assert_eq!((covered.first(), covered.last()), (Some(Seq(2)), Some(Seq(6))));
            assert_eq!(names.handles_in(&first_line), covered, "{first_line}");
        }
    }

    #[test]
    fn a_second_draft_stands_on_the_first() {
        let mut line = Line::new(read(LOG));
        let first = draft(Keep::Turns(2), &line).unwrap();
        line.push_uncounted(logged(11, Fact::Compacted(first)));
        let again = draft(Keep::Turns(2), &line);
        assert_eq!(again, Err(NothingGained::NothingOld));
        let more =
            read("user: Now the docs.\nassistant: 300 words of \"word\"\nuser: Thanks.\nassistant: Bye.");
        for (seq, event) in (12..).zip(more) {
            line.push_uncounted(logged(seq, event.event.fact.clone()));
        }
        let draft = draft(Keep::Turns(1), &line).unwrap();
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
            let mut line = Line::new(read(&format!("pin: Port 8080.\npin 2\n{LOG}")));
            // The events of the log are two further on than they count from.
            let first = draft(Keep::Turns(2), &line).unwrap();
            line.push_uncounted(logged(13, Fact::Compacted(first)));
            let more =
                "user: Now the docs.\nassistant: 300 words of \"word\"\nuser: Thanks.\nassistant: Bye.\n";
            for (seq, event) in (14..).zip(read(&format!("{more}{tail}"))) {
                line.push_uncounted(logged(seq, event.event.fact.clone()));
            }
            let Summary::Structured { brief, .. } = draft(Keep::Turns(1), &line).unwrap().summary else {
                panic!("the built-in summary has items")
            };
            brief.section(Section::Pins).map(|item| item.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(pinned(""), ["Port 8080.", "event 2"]);
        assert_eq!(pinned("unpin: Port 8080.\n"), ["event 2"]);
        assert_eq!(pinned("unpin 2\n"), ["Port 8080."]);
        assert_eq!(pinned("unpin 2\nunpin: Port 8080.\nunpin: never\n"), [""; 0]);
        assert_eq!(pinned("unpin: Port 8080.\npin: Port 8080.\n"), ["event 2", "Port 8080."]);
    }

    #[test]
    fn pins_made_since_change_nothing_else() {
        let line = Line::new(read(&LOG.replace("200 words of \"code\"", "struct CacheEntry;")));
        let cutting =
            drafting(Keep::Turns(2)).cut(None, &project(&line, meter(), Names::Messages), &line).unwrap();
        // There is no room for what was read: its names are in the index.
        let caps = Caps { trail: 1, index: 1_000, ..Caps::default() };
        let brief = summarise(&cutting.events, None, &caps);
        assert!(!brief.trail.is_empty() && !brief.index.is_empty());
        let (first, first_kept, trigger) = (cutting.first, cutting.first_kept, Trigger::Manual);
        let finished = Finished { first, first_kept, brief, trigger };
        let with = |pins: &str| finished.clone().with_pins(&Line::new(read(pins)), &caps);
        assert_eq!(with("pin: One.\nunpin: One.\n"), finished);
        let Brief { items: pinned, trail, index, .. } = with("pin: One.\npin: Two.\nunpin: One.\n").brief;
        assert_eq!((&trail, &index), (&finished.brief.trail, &finished.brief.index));
        assert_eq!((pinned[0].section, pinned[0].text.as_str()), (Section::Pins, "Two."));
        assert_eq!(pinned[1..], finished.brief.items);
    }

    #[test]
    fn what_is_kept_gives_way_until_the_context_is_as_large_as_it_may_be() {
        let turn = |words: u64| format!("assistant:\n  call bash {{}}\n  -> {words} words of \"w\"\n");
        let log = format!("user: Go.\n{}", [500, 200, 200, 200, 20].map(turn).concat());
        let line = Line::new(read(&log));
        let context = project(&line, meter(), Names::Messages);
        let check = |most: u64, first_kept: u64| {
            let keep = drafting(Keep::Tokens(Tokens(700)));
            let drafting = Drafting { length: Length::Fixed(Tokens(0)), most: Some(Tokens(most)), ..keep };
            let draft = drafting.draft(None, &context, &line, Trigger::Manual).unwrap();
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
        let caps = Caps { trail: 4_000, index: 2_000, ..Caps::default() };
        let drafting = Drafting { caps, ..drafting(Keep::Turns(1)) };
        assert_eq!(drafting.expected(Tokens(100_000)), Tokens(200 + 2_000));
        assert_eq!(drafting.expected(Tokens(1_000)), Tokens(200 + 500));
        let absurd = Caps { trail: usize::MAX, index: usize::MAX, ..caps };
        assert_eq!(Drafting { caps: absurd, ..drafting }.expected(Tokens(1_000)), Tokens(200 + 500));
    }

    #[test]
    fn a_draft_that_gains_nothing_is_refused_with_the_numbers() {
        let line = Line::new(read("user: One.\nassistant: Yes.\nuser: Two.\nassistant: Yes."));
        let refused = draft(Keep::Turns(1), &line).unwrap_err();
        assert!(matches!(refused, NothingGained::NotSmaller { before: Tokens(4), .. }), "{refused}");
    }

    #[test]
    fn the_length_is_fixed_or_follows_the_span() {
        let scaled = Length::Scaled { percent: 10, least: Tokens(50), most: Tokens(500) };
        for (span, expect) in [(100, 50), (2_000, 200), (90_000, 500), (u64::MAX, 500)] {
            assert_eq!(scaled.of(Tokens(span)), Tokens(expect));
        }
        assert_eq!(Length::Fixed(Tokens(7)).of(Tokens(1)), Tokens(7));
    }
}
