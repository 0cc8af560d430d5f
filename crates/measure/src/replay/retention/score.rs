//! Score of a request: the needed facts that it holds.
//!
//! A request is read as the places that it shows in full, and as texts that replace others. A text is
//! searched once and then remembered until it changes, so a call costs a look at each of its segments and at
//! each fact it needs.

use std::{borrow::Cow, collections::HashMap};

use epitome::core::{
    context::{Context, EventNaming, Fidelity, SegmentBody, SegmentKey},
    event::Summary,
    seq_set::SeqSet,
};

use super::{
    FactRetention, RetentionForm,
    needed_facts::{FactMatcher, NeededFacts, bare},
    text_places::{TextAuthor, TextPlaceView, sights},
};

/// Scorer for the requests of a thread, call after call.
#[derive(Clone, Debug)]
pub struct RetentionScorer<'n> {
    needs: &'n NeededFacts,
    /// Results for the replacing texts, by their segments.
    texts: HashMap<SegmentKey, ReplacingText>,
    seen: ScoredContent,
    /// Text of the summary that the last request builds on.
    summary: Option<String>,
    compactions: u64,
}

/// A text that replaces others, with its content.
#[derive(Clone, Debug, Default)]
struct ReplacingText {
    shown: String,
    of: ReplacingTextKind,
    /// Patterns that are left word for word from the original.
    left: Vec<u32>,
    /// All other patterns.
    words: Vec<u32>,
    /// Patterns that appear only in its lists of names.
    names: Vec<u32>,
    /// Texts that it tells.
    told: Vec<u32>,
    /// Events that its handles lead to.
    handles: SeqSet,
}

/// Content of a request.
#[derive(Clone, Debug, Default)]
struct ScoredContent {
    places: BitSet,
    left: BitSet,
    words: BitSet,
    names: BitSet,
    told: BitSet,
    /// Events that handles lead to, by text and together.
    led: Vec<SeqSet>,
    handles: SeqSet,
}

impl<'n> RetentionScorer<'n> {
    pub(super) fn new(needs: &'n NeededFacts) -> Self {
        Self { needs, texts: HashMap::new(), seen: ScoredContent::default(), summary: None, compactions: 0 }
    }

    /// Needed facts that a call's request holds.
    pub fn score(&mut self, call: u64, context: &Context) -> FactRetention {
        self.look(context);
        let mut retention = FactRetention::default();
        for number in self.needs.needed_at(call) {
            let fact = &self.needs.facts[*number as usize];
            retention.note(fact.kind, self.held(&fact.what));
        }
        for said in self.needs.said.iter().filter(|said| said.from <= call) {
            let kept = self.seen.places.has(said.place) || self.seen.told.has(said.told);
            retention.user_messages.kept += u64::from(kept);
            retention.user_messages.all += 1;
        }
        retention
    }

    /// Retention of a call that could not be made: no needed fact is held.
    pub fn lost(&self, call: u64) -> FactRetention {
        let mut retention = FactRetention::default();
        for number in self.needs.needed_at(call) {
            retention.note(self.needs.facts[*number as usize].kind, RetentionForm::Lost);
        }
        let said = self.needs.said.iter().filter(|said| said.from <= call);
        retention.user_messages.all = said.count() as u64;
        retention
    }

    /// Number of different summaries that the requests so far build on: how often the remaining content was
    /// summarised again.
    pub fn compactions(&self) -> u64 {
        self.compactions
    }

    fn held(&self, what: &FactMatcher) -> RetentionForm {
        let ScoredContent { places, left, words, names, told, handles, .. } = &self.seen;
        let stands = |word: &u32| self.needs.stands[*word as usize].iter().copied();
        let leads = |place: u32| handles.contains(self.needs.places.get(place).seq);
        let (verbatim, summary, name, handle) = match what {
            FactMatcher::Words(of) => (
                of.iter().any(|word| left.has(*word) || stands(word).any(|place| places.has(place))),
                of.iter().any(|word| words.has(*word)),
                of.iter().any(|word| names.has(*word)),
                of.iter().flat_map(stands).any(leads),
            ),
            FactMatcher::Demand { places: said, sentences } => (
                said.iter().any(|place| places.has(*place)),
                !sentences.is_empty() && sentences.iter().all(|sentence| told.has(*sentence)),
                false,
                said.iter().any(|place| leads(*place)),
            ),
            FactMatcher::Results { results, calls, words: named, told: command } => (
                results.iter().any(|place| places.has(*place)),
                calls.iter().any(|place| places.has(*place))
                    || named.iter().any(|word| words.has(*word))
                    || command.is_some_and(|command| told.has(command)),
                named.iter().any(|word| names.has(*word)),
                results.iter().any(|place| leads(*place)),
            ),
        };
        match (verbatim, summary, name, handle) {
            (true, ..) => RetentionForm::Verbatim,
            (_, true, ..) => RetentionForm::Summary,
            (_, _, true, _) => RetentionForm::NameOnly,
            (.., true) => RetentionForm::Handle,
            (false, false, false, false) => RetentionForm::Lost,
        }
    }

    /// Notes everything that a request shows.
    fn look(&mut self, context: &Context) {
        let Self { needs, texts, seen, .. } = self;
        seen.clear(needs);
        for segment in context.segments() {
            let mut replaced = None;
            sights(segment, &mut |spot, voice, sight| match (needs.places.number(spot), sight) {
                (Some(place), TextPlaceView::AsSent(_) | TextPlaceView::Raw(_)) => seen.places.set(place),
                (Some(place), sight @ TextPlaceView::Replaced(_)) => replaced = Some((place, voice, sight)),
                (None, _) => {}
            });
            let stands_for = match segment.body() {
                SegmentBody::Note(note) => {
                    Some((ReplacingTextKind::Others, Cow::Borrowed(note.text.as_str())))
                }
                SegmentBody::Summary(_) => {
                    segment.compaction().map(|made| (ReplacingTextKind::Others, made.summary.text().into()))
                }
                _ => replaced.map(|(place, voice, sight)| {
                    let mut shown = String::new();
                    sight.visit(&mut |text| {
                        shown.push_str(text);
                        shown.push('\n');
                    });
                    let of = match (segment.fidelity(), voice) {
                        (Fidelity::Cut, TextAuthor::User) => ReplacingTextKind::CutMessage(place),
                        (Fidelity::Cut, _) => ReplacingTextKind::CutResult(place),
                        (_, TextAuthor::User) => ReplacingTextKind::Others,
                        _ => ReplacingTextKind::Result,
                    };
                    (of, Cow::Owned(shown))
                }),
            };
            if let Some((of, shown)) = stands_for {
                let known = texts.entry(segment.key()).or_default();
                if known.shown != shown || known.of != of {
                    *known = ReplacingText::read(&shown, of, needs, context.names());
                    if let Some(made) = segment.compaction() {
                        known.set_apart(&name_lists(&made.summary, context.names()), needs);
                    }
                }
                seen.take(known);
            }
        }
        seen.gather();
        let summary = context.segments().iter().find_map(|segment| segment.compaction());
        if let Some(words) = summary.map(|compaction| compaction.summary.text())
            && self.summary.as_deref() != Some(words)
        {
            self.compactions += 1;
            self.summary = Some(words.to_owned());
        }
    }
}

/// Kind of a replacing text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReplacingTextKind {
    /// Any other text.
    #[default]
    Others,
    /// A stub of a result.
    Result,
    /// Beginning and end of the result at this place.
    CutResult(u32),
    /// Beginning and end of the message at this place.
    CutMessage(u32),
}

impl ReplacingText {
    fn read(text: &str, of: ReplacingTextKind, needs: &NeededFacts, names: EventNaming) -> Self {
        let mut found = Vec::new();
        needs.patterns.find(text, &mut found);
        found.sort_unstable();
        found.dedup();
        let (left, words) = match of {
            ReplacingTextKind::CutResult(place) | ReplacingTextKind::CutMessage(place) => found
                .into_iter()
                .partition(|pattern| needs.stands[*pattern as usize].binary_search(&place).is_ok()),
            ReplacingTextKind::Others | ReplacingTextKind::Result => (Vec::new(), found),
        };
        let told = match of {
            ReplacingTextKind::Others | ReplacingTextKind::CutMessage(_) => {
                let bare = bare(text);
                let told = (0..).zip(&needs.told).filter(|(_, told)| bare.contains(told.as_str()));
                told.map(|(number, _)| number).collect()
            }
            ReplacingTextKind::Result | ReplacingTextKind::CutResult(_) => Vec::new(),
        };
        let (shown, handles) = (text.to_owned(), names.handles_in(text));
        Self { shown, of, left, words, names: Vec::new(), told, handles }
    }

    /// Separates words that the text contains only in these passages.
    fn set_apart(&mut self, lists: &[String], needs: &NeededFacts) {
        if lists.is_empty() {
            return;
        }
        let mut rest = self.shown.clone();
        for list in lists {
            if let Some(at) = rest.find(list.as_str()) {
                // The break keeps the words around the passage from joining.
                rest.replace_range(at..at + list.len(), "\n");
            }
        }
        let mut found = Vec::new();
        needs.patterns.find(&rest, &mut found);
        found.sort_unstable();
        let words = std::mem::take(&mut self.words);
        (self.words, self.names) = words.into_iter().partition(|word| found.binary_search(word).is_ok());
    }
}

/// Passages of a summary that list names.
fn name_lists(summary: &Summary, names: EventNaming) -> Vec<String> {
    match summary {
        Summary::Structured { brief, .. } => brief.name_lists(names),
        Summary::Text(_) | Summary::Encrypted(_) => Vec::new(),
    }
}

impl ScoredContent {
    fn clear(&mut self, needs: &NeededFacts) {
        self.places.clear(needs.places.len());
        self.left.clear(needs.patterns.len());
        self.words.clear(needs.patterns.len());
        self.names.clear(needs.patterns.len());
        self.told.clear(needs.told.len());
        self.led.clear();
    }

    fn take(&mut self, text: &ReplacingText) {
        text.left.iter().for_each(|pattern| self.left.set(*pattern));
        text.words.iter().for_each(|pattern| self.words.set(*pattern));
        text.names.iter().for_each(|pattern| self.names.set(*pattern));
        text.told.iter().for_each(|told| self.told.set(*told));
        if !text.handles.is_empty() {
            self.led.push(text.handles.clone());
        }
    }

    fn gather(&mut self) {
        self.handles = SeqSet::union(&self.led);
    }
}

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
struct BitSet(Vec<u64>);

impl BitSet {
    /// Empties the set and makes room for `count` numbers.
    fn clear(&mut self, count: usize) {
        self.0.clear();
        self.0.resize(count.div_ceil(64), 0);
    }

    fn set(&mut self, number: u32) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }

    fn has(&self, number: u32) -> bool {
        self.0[number as usize / 64] >> (number % 64) & 1 == 1
    }
}
