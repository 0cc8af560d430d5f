//! Facts that each call of a session turned out to need from the past.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use epitome::core::{
    Fact as Happened, LoggedEvent, Seq,
    client_text::user_words_of,
    projection::EventLine,
    summary::{ConstraintForce, ItemDetail, SectionCaps, SummaryItem, SummarySection, summarise},
};

use super::{
    NeededFactKind, RetentionScorer,
    attempts::{ActionName, SessionAttempts},
    distinctive_words::{WordForm, distinctive},
    search_patterns::{MatchEdge, SearchPatterns},
    session_paths::SessionPaths,
    text_places::{TextAuthor, TextPlaces, whole},
};

/// Number of answers that a call is judged by: its own and those that follow. A fact used later than that may
/// as well be fetched again.
pub const HORIZON_ANSWERS: u64 = 30;

/// Facts that the calls of a thread needed from its past.
#[derive(Clone, Debug)]
pub struct NeededFacts {
    pub(super) places: TextPlaces,
    pub(super) patterns: SearchPatterns,
    /// Places of each pattern, in order.
    pub(super) stands: Vec<Vec<u32>>,
    /// Texts that a summary may tell with other line breaks and marks: letters and digits only.
    pub(super) told: Vec<String>,
    pub(super) facts: Vec<NeededFact>,
    /// Facts that each call needs.
    at: Vec<Vec<u32>>,
    pub(super) said: Vec<UserMessageRef>,
}

/// A fact that was needed.
#[derive(Clone, Debug)]
pub(super) struct NeededFact {
    pub(super) kind: NeededFactKind,
    pub(super) what: FactMatcher,
    /// Name of the fact.
    name: String,
}

/// Means by which a fact is recognised.
#[derive(Clone, Debug)]
pub(super) enum FactMatcher {
    /// Any of these patterns.
    Words(Vec<u32>),
    /// A message, or all these sentences together.
    Demand { places: Vec<u32>, sentences: Vec<u32> },
    /// The results; or the calls that asked for them, or their names, without the results' content.
    Results { results: Vec<u32>, calls: Vec<u32>, words: Vec<u32>, told: Option<u32> },
}

/// A user's message.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserMessageRef {
    pub(super) place: u32,
    /// First call that could see it.
    pub(super) from: u64,
    /// Number of its text.
    pub(super) told: u32,
}

impl NeededFacts {
    /// Reads a session. Compactions in it are ignored, because the events that they covered are there as
    /// well.
    pub fn of(line: &EventLine) -> Self {
        let (line, context) = whole(line);
        let mut places = TextPlaces::of(&line, &context);
        let attempts = SessionAttempts::of(&context, &places);
        let paths = SessionPaths::of(attempts.touched.iter().map(|(path, _)| path.as_str()));
        let mut strings = SearchStrings::default();
        let files: Vec<Vec<u32>> = (0..paths.len())
            .map(|file| {
                paths.words(file).into_iter().map(|(word, edge)| strings.number(word, edge)).collect()
            })
            .collect();
        let errors = strings.errors(&attempts, &places);
        let values = strings.values(&places, &paths);
        let patterns = SearchPatterns::new(&strings.list);
        let stands = stands(&patterns, &places);
        let mut finder = FactFinder {
            facts: Vec::new(),
            at: vec![Vec::new(); usize::try_from(places.calls()).unwrap_or_default()],
            told: Vec::new(),
            places: &places,
            stands: &stands,
            strings: &strings.list,
        };
        finder.files(&attempts, &paths, &files);
        let errors = finder.errors(&attempts, &errors);
        finder.values(values.difference(&errors).copied());
        finder.repeats(&attempts, &paths, &files);
        finder.constraints(&line);
        let said = finder.said(&line);
        let FactFinder { facts, at, told, .. } = finder;
        places.forget_texts();
        Self { places, patterns, stands, told, facts, at, said }
    }

    /// Number of facts that a call needs.
    pub fn at(&self, call: u64) -> usize {
        self.needed_at(call).len()
    }

    /// Facts that a call needs, by kind and name.
    pub fn names(&self, call: u64) -> impl Iterator<Item = (NeededFactKind, &str)> {
        self.needed_at(call).iter().map(|number| {
            let fact = &self.facts[*number as usize];
            (fact.kind, fact.name.as_str())
        })
    }

    /// Scorer for the requests of one run of calls.
    pub fn scorer(&self) -> RetentionScorer<'_> {
        RetentionScorer::new(self)
    }

    /// Facts that a call needs.
    pub(super) fn needed_at(&self, call: u64) -> &[u32] {
        usize::try_from(call).ok().and_then(|call| self.at.get(call)).map_or(&[], Vec::as_slice)
    }
}

/// Places of each pattern.
fn stands(patterns: &SearchPatterns, places: &TextPlaces) -> Vec<Vec<u32>> {
    let mut stands: Vec<Vec<u32>> = vec![Vec::new(); patterns.len()];
    let mut found = Vec::new();
    for (number, place) in places.iter() {
        found.clear();
        place.texts.iter().for_each(|text| patterns.find(text, &mut found));
        found.sort_unstable();
        found.dedup();
        for pattern in &found {
            stands[*pattern as usize].push(number);
        }
    }
    stands
}

/// Strings that are searched for.
#[derive(Default)]
struct SearchStrings {
    list: Vec<(String, MatchEdge)>,
    numbers: HashMap<(String, MatchEdge), u32>,
}

impl SearchStrings {
    fn number(&mut self, string: String, edge: MatchEdge) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        *self.numbers.entry((string, edge)).or_insert_with_key(|key| {
            self.list.push(key.clone());
            next
        })
    }

    /// Adds patterns for the texts of failures.
    fn errors(&mut self, attempts: &SessionAttempts, places: &TextPlaces) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for (place, words) in &attempts.failures {
            // No call follows the newest answer, so its failures are not needed.
            if places.get(*place).from >= places.calls() {
                continue;
            }
            distinctive(words, &mut |word, form| {
                if form != WordForm::Path {
                    found.insert(self.number(word.to_owned(), form.edge()));
                }
            });
            for phrase in phrases(words) {
                found.insert(self.number(phrase.to_owned(), MatchEdge::Word));
            }
        }
        found
    }

    /// Adds patterns for words that the model wrote and may have read.
    fn values(&mut self, places: &TextPlaces, paths: &SessionPaths) -> BTreeSet<u32> {
        let mut heard: HashSet<&str> = HashSet::new();
        let mut hashes: BTreeSet<&str> = BTreeSet::new();
        for (_, place) in
            places.iter().filter(|(_, place)| matches!(place.voice, TextAuthor::User | TextAuthor::Result))
        {
            for text in &place.texts {
                distinctive(text, &mut |word, form| {
                    heard.insert(word);
                    if form == WordForm::Hash {
                        hashes.insert(word);
                    }
                });
            }
        }
        let mut found = BTreeSet::new();
        for (_, place) in places.iter().filter(|(_, place)| matches!(place.voice, TextAuthor::Model { .. })) {
            for text in &place.texts {
                distinctive(text, &mut |word, form| {
                    let begins = || hashes.range(word..).next().is_some_and(|hash| hash.starts_with(word));
                    let known = heard.contains(word) || form == WordForm::Hash && begins();
                    if known && !(form == WordForm::Path && paths.is_among(word)) {
                        found.insert(self.number(word.to_owned(), form.edge()));
                    }
                });
                for quote in quotes(text) {
                    found.insert(self.number(quote.to_owned(), MatchEdge::Any));
                }
            }
        }
        found
    }
}

/// Phrases of an error: the text between punctuation marks, if it is long enough to be recognised.
fn phrases(words: &str) -> impl Iterator<Item = &str> {
    let parts = words.lines().flat_map(|line| line.split([':', '"', '\'', '`', '(', ')', '[', ']', ';']));
    parts.map(str::trim).filter(|phrase| {
        (12..=100).contains(&phrase.len())
            && phrase.split_whitespace().count() >= 3
            && phrase.starts_with(|letter: char| letter.is_alphabetic())
            && !phrase.starts_with("exit ")
            && !phrase.starts_with("Exit ")
    })
}

/// Quoted text on one line of several words, so that it is no name.
fn quotes(text: &str) -> Vec<&str> {
    const MARKS: [char; 2] = ['"', '`'];
    let mut found = Vec::new();
    for line in text.lines() {
        let mut open: Option<(usize, char)> = None;
        for (at, mark) in line.match_indices(MARKS).map(|(at, mark)| (at, mark.chars().next().unwrap_or('"')))
        {
            match open {
                Some((start, opened)) if opened == mark => {
                    let quote = &line[start + 1..at];
                    if is_telling(quote) {
                        found.push(quote);
                    }
                    open = None;
                }
                Some(_) => {}
                None => open = Some((at, mark)),
            }
        }
    }
    found
}

fn is_telling(quote: &str) -> bool {
    (16..=100).contains(&quote.len())
        && quote.split_whitespace().count() >= 3
        && quote.trim() == quote
        && quote.starts_with(|letter: char| letter.is_alphanumeric())
        && quote.bytes().filter(u8::is_ascii_alphabetic).count() * 3 >= quote.len() * 2
}

/// Finds facts.
struct FactFinder<'p> {
    facts: Vec<NeededFact>,
    at: Vec<Vec<u32>>,
    told: Vec<String>,
    places: &'p TextPlaces,
    stands: &'p [Vec<u32>],
    strings: &'p [(String, MatchEdge)],
}

impl<'p> FactFinder<'p> {
    /// Adds a fact that could be seen from a call on and was used by the calls in `uses`.
    fn note(
        &mut self,
        named: (NeededFactKind, &str),
        what: FactMatcher,
        from: u64,
        uses: impl IntoIterator<Item = u64>,
    ) {
        let Ok(number) = u32::try_from(self.facts.len()) else { return };
        let uses: BTreeSet<u64> = uses.into_iter().filter(|used| *used >= from).collect();
        let mut next = from;
        for used in &uses {
            for call in next.max(used.saturating_sub(HORIZON_ANSWERS - 1))..=*used {
                if let Some(needs) = usize::try_from(call).ok().and_then(|call| self.at.get_mut(call)) {
                    needs.push(number);
                }
            }
            next = used + 1;
        }
        if !uses.is_empty() {
            self.facts.push(NeededFact { kind: named.0, what, name: named.1.to_owned() });
        }
    }

    /// First call that could see one of the patterns.
    fn seen_from(&self, words: &[u32]) -> Option<u64> {
        let places = words.iter().flat_map(|word| &self.stands[*word as usize]);
        places.map(|place| self.places.get(*place).from).min()
    }

    fn files(&mut self, attempts: &SessionAttempts, paths: &SessionPaths, files: &[Vec<u32>]) {
        let mut touched: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (path, call) in &attempts.touched {
            if let Some(file) = paths.find(path) {
                touched.entry(file).or_default().push(*call);
            }
        }
        for (file, uses) in touched {
            if let Some(from) = self.seen_from(&files[file]) {
                let named = (NeededFactKind::File, paths.path(file));
                self.note(named, FactMatcher::Words(files[file].clone()), from, uses);
            }
        }
    }

    /// Finds errors that came with a result and are mentioned later. Returns the patterns of errors.
    fn errors(&mut self, attempts: &SessionAttempts, candidates: &BTreeSet<u32>) -> BTreeSet<u32> {
        let failures: HashSet<u32> = attempts.failures.iter().map(|(place, _)| *place).collect();
        let mut errors = BTreeSet::new();
        for pattern in candidates {
            let stands = &self.stands[*pattern as usize];
            let Some(from) = self.seen_from(&[*pattern]) else { continue };
            let first = |place: &&u32| self.places.get(**place).from == from;
            if stands.iter().filter(first).all(|place| failures.contains(place)) {
                errors.insert(*pattern);
                let uses: Vec<u64> = self.written(*pattern).collect();
                self.note(
                    (NeededFactKind::Error, self.string(*pattern)),
                    FactMatcher::Words(vec![*pattern]),
                    from,
                    uses,
                );
            }
        }
        errors
    }

    /// Finds values that the model used for the first time after it read them in a result or a user's
    /// message.
    fn values(&mut self, candidates: impl Iterator<Item = u32>) {
        for pattern in candidates {
            let Some(used) = self.written(pattern).min() else { continue };
            let before = self.stands[pattern as usize].iter().map(|place| self.places.get(*place));
            let before: Vec<_> = before.filter(|place| place.from <= used).collect();
            let heard = |voice| matches!(voice, TextAuthor::User | TextAuthor::Result);
            let Some(from) = before.iter().map(|place| place.from).min() else { continue };
            if before.iter().all(|place| heard(place.voice)) {
                self.note(
                    (NeededFactKind::Value, self.string(pattern)),
                    FactMatcher::Words(vec![pattern]),
                    from,
                    [used],
                );
            }
        }
    }

    fn string(&self, pattern: u32) -> &'p str {
        &self.strings[pattern as usize].0
    }

    /// Calls whose answers hold a pattern.
    fn written(&self, pattern: u32) -> impl Iterator<Item = u64> {
        self.stands[pattern as usize].iter().filter_map(|place| match self.places.get(*place).voice {
            TextAuthor::Model { call } => Some(call),
            TextAuthor::User | TextAuthor::Result | TextAuthor::Other => None,
        })
    }

    fn repeats(&mut self, attempts: &SessionAttempts, paths: &SessionPaths, files: &[Vec<u32>]) {
        for repeat in &attempts.repeats {
            let (words, told) = match &repeat.name {
                ActionName::File(path) => {
                    (paths.find(path).map(|file| files[file].clone()).unwrap_or_default(), None)
                }
                ActionName::Words(words) => {
                    const TOLD: usize = 80;
                    (Vec::new(), self.tell(&words[..words.floor_char_boundary(TOLD)]))
                }
            };
            let (results, calls) = (repeat.results.clone(), repeat.calls.clone());
            let Some(from) = results.iter().map(|place| self.places.get(*place).from).min() else { continue };
            let (ActionName::File(name) | ActionName::Words(name)) = &repeat.name;
            let what = FactMatcher::Results { results, calls, words, told };
            self.note((repeat.kind, name), what, from, [repeat.again]);
        }
    }

    /// Finds the user's demands that the built-in summariser recognises. Every later call needs them.
    fn constraints(&mut self, line: &EventLine) {
        let events: Vec<Arc<LoggedEvent>> = line.events().cloned().collect();
        let mut heard = HashSet::new();
        for item in demands(&events) {
            if matches!(item.detail, Some(ItemDetail::Wish(ConstraintForce::Withdrawn)))
                || !heard.insert(item.text.clone())
            {
                continue;
            }
            let places = item.sources.runs().iter().flat_map(|run| run.first.0..=run.last.0);
            let places: Vec<u32> = places.filter_map(|seq| self.places.number((Seq(seq), 0))).collect();
            let Some(from) = places.iter().map(|place| self.places.get(*place).from).min() else { continue };
            let sentences = item.text.split_inclusive(". ").filter_map(|text| self.tell(text)).collect();
            let what = FactMatcher::Demand { places, sentences };
            self.note((NeededFactKind::Constraint, &item.text), what, from, from..self.places.calls());
        }
    }

    fn said(&mut self, line: &EventLine) -> Vec<UserMessageRef> {
        let mut said = Vec::new();
        for event in line.events() {
            if let Happened::UserSaid { parts } = &event.event.fact
                && let Some(place) = self.places.number((event.id.seq, 0))
                && let Some(from) = self.places.from(event.id.seq)
                && let Some(told) = self.tell(&user_words_of(parts))
            {
                said.push(UserMessageRef { place, from, told });
            }
        }
        said
    }

    /// Number of a text.
    fn tell(&mut self, text: &str) -> Option<u32> {
        let text = bare(text);
        if text.is_empty() {
            return None;
        }
        self.told.push(text);
        u32::try_from(self.told.len() - 1).ok()
    }
}

/// All demands of users. A summary holds a limited number of them; if there are more, each half of the span
/// is read separately, so a demand that is withdrawn much later still counts.
fn demands(events: &[Arc<LoggedEvent>]) -> Vec<SummaryItem> {
    let brief = summarise(events, None, &SectionCaps::default());
    let too_many = brief.folded.iter().any(|folded| folded.section == SummarySection::Constraints);
    if too_many && events.len() > 1 {
        let (first, second) = events.split_at(events.len() / 2);
        return [demands(first), demands(second)].concat();
    }
    brief.items.into_iter().filter(|item| item.section == SummarySection::Constraints).collect()
}

/// A text without marks and line breaks.
pub(super) fn bare(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).collect()
}
