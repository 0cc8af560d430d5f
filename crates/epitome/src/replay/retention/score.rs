//! What a request holds of what was needed.
//!
//! A request is looked at as the places it shows as they were, and as texts that stand for others. A text is searched
//! once and known again by its words until something else stands in its place, so that a call costs a look at each of
//! its segments and at each fact it needs.

use std::{borrow::Cow, collections::HashMap};

use epitome_core::{
    context::{Body, Context, Fidelity, Key, Names},
    event::Summary,
    seq_set::SeqSet,
};

use super::{
    Held, Retention,
    needs::{Needs, What, bare},
    places::{Sight, Voice, sights},
};

/// Looks at the requests of a thread, one call after the other.
#[derive(Clone, Debug)]
pub struct Scorer<'n> {
    needs: &'n Needs,
    /// What is known of the texts that stand for others, by their segments.
    texts: HashMap<Key, Text>,
    seen: Seen,
    /// The words of the summary that was last stood on.
    summary: Option<String>,
    compactions: u64,
}

/// A text that stands for something else, and what it says.
#[derive(Clone, Debug, Default)]
struct Text {
    shown: String,
    of: Of,
    /// The patterns that are word for word what stood there before it was cut.
    left: Vec<u32>,
    /// All other patterns.
    words: Vec<u32>,
    /// The patterns that stand only in its lists of names.
    names: Vec<u32>,
    /// What it tells.
    told: Vec<u32>,
    /// The events that its handles lead to.
    handles: SeqSet,
}

/// What is seen in a request.
#[derive(Clone, Debug, Default)]
struct Seen {
    places: Marks,
    left: Marks,
    words: Marks,
    names: Marks,
    told: Marks,
    /// The events that handles lead to, by text and together.
    led: Vec<SeqSet>,
    handles: SeqSet,
}

impl<'n> Scorer<'n> {
    pub(super) fn new(needs: &'n Needs) -> Self {
        Self { needs, texts: HashMap::new(), seen: Seen::default(), summary: None, compactions: 0 }
    }

    /// What a call's request holds of what the call needs.
    pub fn score(&mut self, call: u64, context: &Context) -> Retention {
        self.look(context);
        let mut retention = Retention::default();
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

    /// What a call held that was not made: nothing of what it needs.
    pub fn lost(&self, call: u64) -> Retention {
        let mut retention = Retention::default();
        for number in self.needs.needed_at(call) {
            retention.note(self.needs.facts[*number as usize].kind, Held::Lost);
        }
        let said = self.needs.said.iter().filter(|said| said.from <= call);
        retention.user_messages.all = said.count() as u64;
        retention
    }

    /// How many different summaries the requests so far stood on: how often what is left has been summed up again.
    pub fn compactions(&self) -> u64 {
        self.compactions
    }

    fn held(&self, what: &What) -> Held {
        let Seen { places, left, words, names, told, handles, .. } = &self.seen;
        let stands = |word: &u32| self.needs.stands[*word as usize].iter().copied();
        let leads = |place: u32| handles.contains(self.needs.places.get(place).seq);
        let (verbatim, summary, name, handle) = match what {
            What::Words(of) => (
                of.iter().any(|word| left.has(*word) || stands(word).any(|place| places.has(place))),
                of.iter().any(|word| words.has(*word)),
                of.iter().any(|word| names.has(*word)),
                of.iter().flat_map(stands).any(leads),
            ),
            What::Demand { places: said, sentences } => (
                said.iter().any(|place| places.has(*place)),
                !sentences.is_empty() && sentences.iter().all(|sentence| told.has(*sentence)),
                false,
                said.iter().any(|place| leads(*place)),
            ),
            What::Results { results, calls, words: named, told: command } => (
                results.iter().any(|place| places.has(*place)),
                calls.iter().any(|place| places.has(*place))
                    || named.iter().any(|word| words.has(*word))
                    || command.is_some_and(|command| told.has(command)),
                named.iter().any(|word| names.has(*word)),
                results.iter().any(|place| leads(*place)),
            ),
        };
        match (verbatim, summary, name, handle) {
            (true, ..) => Held::Verbatim,
            (_, true, ..) => Held::Summary,
            (_, _, true, _) => Held::NameOnly,
            (.., true) => Held::Handle,
            (false, false, false, false) => Held::Lost,
        }
    }

    /// Notes everything that a request shows.
    fn look(&mut self, context: &Context) {
        let Self { needs, texts, seen, .. } = self;
        seen.clear(needs);
        for segment in context.segments() {
            let mut replaced = None;
            sights(segment, &mut |spot, voice, sight| match (needs.places.number(spot), sight) {
                (Some(place), Sight::AsSent(_) | Sight::Raw(_)) => seen.places.set(place),
                (Some(place), sight @ Sight::Replaced(_)) => replaced = Some((place, voice, sight)),
                (None, _) => {}
            });
            let stands_for = match segment.body() {
                Body::Note(note) => Some((Of::Others, Cow::Borrowed(note.text.as_str()))),
                Body::Summary(_) => segment.compaction().map(|made| (Of::Others, made.summary.text().into())),
                _ => replaced.map(|(place, voice, sight)| {
                    let mut shown = String::new();
                    sight.visit(&mut |text| {
                        shown.push_str(text);
                        shown.push('\n');
                    });
                    let of = match (segment.fidelity(), voice) {
                        (Fidelity::Cut, Voice::User) => Of::CutMessage(place),
                        (Fidelity::Cut, _) => Of::CutResult(place),
                        (_, Voice::User) => Of::Others,
                        _ => Of::Result,
                    };
                    (of, Cow::Owned(shown))
                }),
            };
            if let Some((of, shown)) = stands_for {
                let known = texts.entry(segment.key()).or_default();
                if known.shown != shown || known.of != of {
                    *known = Text::read(&shown, of, needs, context.names());
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

/// What a text stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Of {
    /// Whatever it tells of.
    #[default]
    Others,
    /// A result, of which it says that it was there.
    Result,
    /// The result at this place, of which it is the beginning and the end.
    CutResult(u32),
    /// The message at this place, of which it is the beginning and the end.
    CutMessage(u32),
}

impl Text {
    fn read(text: &str, of: Of, needs: &Needs, names: Names) -> Self {
        let mut found = Vec::new();
        needs.patterns.find(text, &mut found);
        found.sort_unstable();
        found.dedup();
        let (left, words) = match of {
            Of::CutResult(place) | Of::CutMessage(place) => found
                .into_iter()
                .partition(|pattern| needs.stands[*pattern as usize].binary_search(&place).is_ok()),
            Of::Others | Of::Result => (Vec::new(), found),
        };
        let told = match of {
            Of::Others | Of::CutMessage(_) => {
                let bare = bare(text);
                let told = (0..).zip(&needs.told).filter(|(_, told)| bare.contains(told.as_str()));
                told.map(|(number, _)| number).collect()
            }
            Of::Result | Of::CutResult(_) => Vec::new(),
        };
        let (shown, handles) = (text.to_owned(), names.handles_in(text));
        Self { shown, of, left, words, names: Vec::new(), told, handles }
    }

    /// Sets the words apart that stand nowhere in the text but in these passages of it.
    fn set_apart(&mut self, lists: &[String], needs: &Needs) {
        if lists.is_empty() {
            return;
        }
        let mut rest = self.shown.clone();
        for list in lists {
            if let Some(at) = rest.find(list.as_str()) {
                // A break, so that what stood around the passage makes no new word.
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

/// The passages of a summary that list names.
fn name_lists(summary: &Summary, names: Names) -> Vec<String> {
    match summary {
        Summary::Structured { brief, .. } => brief.name_lists(names),
        Summary::Text(_) | Summary::Encrypted(_) => Vec::new(),
    }
}

impl Seen {
    fn clear(&mut self, needs: &Needs) {
        self.places.clear(needs.places.len());
        self.left.clear(needs.patterns.len());
        self.words.clear(needs.patterns.len());
        self.names.clear(needs.patterns.len());
        self.told.clear(needs.told.len());
        self.led.clear();
    }

    fn take(&mut self, text: &Text) {
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
struct Marks(Vec<u64>);

impl Marks {
    /// Makes room for so many numbers, and holds none.
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
