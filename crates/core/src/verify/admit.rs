//! Letting items in: what of a draft goes into the summary, where, and in whose words.
//!
//! Each section has its own rule, because each has another witness. Constraints and pins are the user's words: a draft can
//! point at them and not write them. Changed files and plans are what tools did. Errors are exact or nothing. What is said
//! of decisions, steps and the task is the model's to word, as long as the span bears out every name in it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use super::{
    Report,
    draft::{Draft, Said},
    evidence::{Claim, Evidence, quotations, words},
    names::{Name, names},
    text::defused,
};
use crate::{
    client_text::user_words,
    event::{Fact, Part},
    id::Seq,
    seq_set::SeqSet,
    summary::{
        Brief, CONSTRAINTS, Detail, Force, Item, Ledger, Section, StepOrigin, TOLD_INTENTS, TOLD_TASKS,
        is_same_file, one_line, sentences, work_key,
    },
    verify::Source,
};

/// How long an item of a model is at most, in characters.
const ITEM: usize = 300;

/// How long the tale of an attempt, and the words of an error, are at most.
const TALE: usize = 400;

/// How long a note on a file or a command is at most.
const NOTE: usize = 140;

/// Who decides on the items of a draft, one after the other.
pub(super) struct Gate<'s> {
    pub(super) ledger: Ledger,
    pub(super) report: Report,
    source: &'s Source<'s>,
    evidence: &'s Evidence,
    /// All events of the span.
    whole: SeqSet,
    known: BTreeMap<Section, Vec<Known>>,
    /// Items of code that the draft has too.
    said: HashSet<(Section, String)>,
    /// What users said, taken apart when it is first asked for.
    wishes: Option<Vec<(Seq, String, Bag)>>,
    tasks: usize,
    intents: usize,
}

/// An item in the ledger, by its words.
struct Known {
    identity: String,
    bag: Bag,
}

/// The words of a text, and how often it says no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bag {
    words: HashSet<String>,
    negations: usize,
}

impl Bag {
    pub(super) fn of(text: &str) -> Self {
        const NEGATIONS: [&str; 7] = ["not", "no", "never", "without", "cannot", "t", "nicht"];
        let words = words(text);
        let negations = words.iter().filter(|word| NEGATIONS.contains(&word.as_ref())).count();
        Self { words: words.into_iter().map(Cow::into_owned).collect(), negations }
    }

    /// Whether both say the same in nearly the same words.
    fn is_same(&self, other: &Self) -> bool {
        let longer = self.words.len().max(other.words.len());
        let shared = || self.words.intersection(&other.words).count();
        longer > 0 && self.negations == other.negations && shared() * 4 >= longer * 3
    }

    /// How many of its words stand in the other.
    fn shared(&self, other: &Self) -> usize {
        self.words.intersection(&other.words).count()
    }
}

impl<'s> Gate<'s> {
    pub(super) fn new(ground: &Brief, source: &'s Source<'s>, evidence: &'s Evidence, draft: &Draft) -> Self {
        let mut known: BTreeMap<Section, Vec<Known>> = BTreeMap::new();
        let spoken_of: HashSet<Section> = draft.items.iter().map(|said| said.section).collect();
        for item in ground.items.iter().filter(|item| spoken_of.contains(&item.section)) {
            let identity = item.identity().to_owned();
            known.entry(item.section).or_default().push(Known { identity, bag: Bag::of(&item.text) });
        }
        Self {
            ledger: Ledger::carrying(Some(ground)),
            report: Report::default(),
            source,
            evidence,
            whole: whole(source),
            known,
            said: HashSet::new(),
            wishes: None,
            tasks: 0,
            intents: 0,
        }
    }

    /// Decides on an item that names nothing invented.
    pub(super) fn decide(&mut self, said: &Said, claim: &Claim) {
        match said.section {
            Section::Pins => match self.same(said.section, &said.text) {
                Some(identity) => self.repeat(said.section, identity),
                None => self.report.drop(said.section, &said.text, None),
            },
            Section::Constraints => self.constraint(said),
            Section::FilesModified => match self.file(Section::FilesModified, &said.text) {
                Some(identity) => self.repeat(said.section, identity),
                None => self.report.drop(said.section, &said.text, None),
            },
            Section::FilesRead => self.file_read(said, claim),
            Section::Commands => self.command(said, claim),
            Section::Errors => self.error(said, claim),
            Section::FailedApproaches => match self.same(said.section, &said.text) {
                Some(identity) => self.repeat(said.section, identity),
                None => self.put(said, claim, None, TALE),
            },
            Section::KeyDecisions | Section::NextSteps => self.prose(said, claim),
            Section::CurrentTask => {
                let at = self.tasks;
                self.tasks += usize::from(self.of_its_own(said, claim, &TOLD_TASKS, at));
            }
            Section::SessionIntent => {
                let at = self.intents;
                self.intents += usize::from(self.of_its_own(said, claim, &TOLD_INTENTS, at));
            }
        }
    }

    /// What the model says of the task or the intent stands beside what code knows, and the next draft's in its place.
    fn of_its_own(&mut self, said: &Said, claim: &Claim, keys: &[&str], at: usize) -> bool {
        if let Some(identity) =
            self.same(said.section, &said.text).filter(|identity| !keys.contains(&identity.as_str()))
        {
            self.repeat(said.section, identity);
            return false;
        }
        let Some(key) = keys.get(at) else {
            self.report.unread += 1;
            return false;
        };
        if at == 0 {
            for key in keys {
                self.ledger.strike(said.section, key);
            }
        }
        self.put(said, claim, Some((*key).to_owned()), ITEM);
        true
    }

    /// A decision or a step: said before, it is said in the shorter words that are still the model's to choose.
    fn prose(&mut self, said: &Said, claim: &Claim) {
        let Some(identity) = self.same(said.section, &said.text) else {
            self.put(said, claim, None, ITEM);
            return;
        };
        let before = self.ledger.get(said.section, &identity).cloned();
        self.repeat_uncounted(said.section, &identity);
        let text = one_line(&defused(&said.text), ITEM);
        let may_reword = |item: &Item| {
            let own = matches!(item.detail, None | Some(Detail::Step(StepOrigin::Words)));
            own && !item.text.starts_with("The user answered:")
                && item.text != text
                && text.chars().count() <= 2 * item.text.chars().count()
        };
        match before.filter(may_reword) {
            Some(before) => {
                let sources = self.evidence.sources(claim, &self.whole);
                self.ledger.put(Item { text, key: Some(identity), sources, ..before });
                self.report.admit(said.section);
            }
            None => self.report.repeated += 1,
        }
    }

    /// A constraint that a model saw is told in the user's words, or not at all.
    fn constraint(&mut self, said: &Said) {
        if let Some(identity) = self.same(said.section, &said.text) {
            self.repeat(said.section, identity);
            return;
        }
        let bag = Bag::of(&said.text);
        let wishes = self.wishes.get_or_insert_with(|| wishes(self.source));
        let best = wishes
            .iter()
            .map(|(at, text, wish)| (bag.shared(wish), *at, text))
            .max_by_key(|(shared, at, _)| (*shared, *at));
        let enough = |shared: usize| shared >= 2 && shared * 5 >= bag.words.len() * 3;
        let found = best.filter(|(shared, ..)| enough(*shared)).map(|(_, at, text)| (at, text.clone()));
        let Some((at, text)) = found else {
            self.report.drop(said.section, &said.text, None);
            return;
        };
        let full = self.ledger.newest(Section::Constraints).count() >= CONSTRAINTS;
        if full || self.ledger.get(Section::Constraints, &text).is_some() {
            self.repeat(said.section, text);
            return;
        }
        self.learn(said.section, &text, &text);
        let detail = Some(Detail::Wish(Force::Preference));
        self.ledger.put(Item { section: said.section, text, key: None, sources: SeqSet::one(at), detail });
        self.report.admit(said.section);
    }

    fn file_read(&mut self, said: &Said, claim: &Claim) {
        if let Some(identity) = self.file(Section::FilesModified, &said.text) {
            self.repeat(Section::FilesModified, identity);
        } else if let Some(identity) = self.file(Section::FilesRead, &said.text) {
            let note = without_path(&said.text);
            self.note(said.section, &identity, &note);
        } else if let Some(path) = path_in(&said.text) {
            self.put(said, claim, Some(work_key(&path)), NOTE + 60);
        } else {
            self.report.drop(said.section, &said.text, None);
        }
    }

    fn command(&mut self, said: &Said, claim: &Claim) {
        let (command, note) = if let Some(quote) = quotations(&said.text).next() {
            (quote.trim().to_owned(), said.text.replacen(quote, "", 1))
        } else {
            let parted = said.text.split_once(" → ").or_else(|| said.text.split_once(": "));
            let (command, note) = parted.unwrap_or((&said.text, ""));
            (command.to_owned(), note.to_owned())
        };
        let identity = work_key(&one_line(&command, usize::MAX));
        if self.ledger.get(Section::Commands, &identity).is_some() {
            self.note(said.section, &identity, note.trim_matches(|letter: char| !letter.is_alphanumeric()));
        } else if let Some(identity) = self.same(said.section, &said.text) {
            self.repeat(said.section, identity);
        } else if self.evidence.is_in_its_words(claim) {
            self.put(said, claim, Some(identity), NOTE + 60);
        } else {
            self.report.drop(said.section, &said.text, None);
        }
    }

    /// Adds to what code says of a file or a command what the model says beyond it.
    fn note(&mut self, section: Section, identity: &str, note: &str) {
        const PART: &str = " — ";
        let says_more = words(note).len() >= 3;
        let before =
            self.ledger.get(section, identity).filter(|item| says_more && !item.text.contains(PART)).cloned();
        self.repeat_uncounted(section, identity);
        let Some(before) = before else {
            self.report.repeated += 1;
            return;
        };
        let text = format!("{}{PART}{}", before.text, one_line(&defused(note), NOTE));
        self.ledger.put(Item { text, ..before });
        self.report.admit(section);
    }

    fn error(&mut self, said: &Said, claim: &Claim) {
        let own = Bag::of(&said.text);
        let is_told = |item: &&Item| {
            let Some(Detail::Error { words, .. }) = &item.detail else { return false };
            let bag = Bag::of(words);
            // The draft says the error and more, or a part of a long one.
            let shorter = bag.words.len().min(own.words.len());
            shorter > 0 && own.shared(&bag) * 10 >= shorter * 9
        };
        let told = self.ledger.newest(Section::Errors).find(is_told).map(|item| item.identity().to_owned());
        match told.or_else(|| self.same(Section::Errors, &said.text)) {
            Some(identity) => self.repeat(said.section, identity),
            None if self.evidence.is_in_its_words(claim) => self.put(said, claim, None, TALE),
            None => self.report.drop(said.section, &said.text, None),
        }
    }

    fn put(&mut self, said: &Said, claim: &Claim, key: Option<String>, most: usize) {
        let text = one_line(&defused(&said.text), most);
        let sources = self.evidence.sources(claim, &self.whole);
        let identity = key.clone().unwrap_or_else(|| text.clone());
        self.learn(said.section, &identity, &text);
        self.ledger.put(Item { section: said.section, text, key, sources, detail: None });
        self.report.admit(said.section);
    }

    fn learn(&mut self, section: Section, identity: &str, text: &str) {
        let known = Known { identity: identity.to_owned(), bag: Bag::of(text) };
        self.known.entry(section).or_default().push(known);
    }

    fn repeat(&mut self, section: Section, identity: String) {
        self.report.repeated += 1;
        self.said.insert((section, identity));
    }

    fn repeat_uncounted(&mut self, section: Section, identity: &str) {
        self.said.insert((section, identity.to_owned()));
    }

    /// The item of a section that says the same.
    fn same(&self, section: Section, text: &str) -> Option<String> {
        let bag = Bag::of(text);
        let known = self.known.get(&section)?.iter().find(|known| known.bag.is_same(&bag))?;
        self.ledger.get(section, &known.identity).map(|item| item.identity().to_owned())
    }

    /// The file of a section that a text begins to speak of.
    fn file(&self, section: Section, text: &str) -> Option<String> {
        let path = path_in(text)?;
        let plain = |item: &&Item| is_same_file(&item.identity().replace('\\', "/"), &path);
        self.ledger.newest(section).find(plain).map(|item| item.identity().to_owned())
    }

    /// Counts what must be kept and was not in the draft.
    pub(super) fn restore(&mut self, ground: &Brief) {
        for item in &ground.items {
            let planned = matches!(item.detail, Some(Detail::Step(StepOrigin::Plan | StepOrigin::Tracked)));
            let kept = item.section.must_keep() || planned;
            // What the draft took back for a reason was spoken of.
            let stays = self.ledger.get(item.section, item.identity()).is_some();
            if kept && stays && !self.said.contains(&(item.section, item.identity().to_owned())) {
                *self.report.restored.entry(item.section).or_default() += 1;
            }
        }
    }
}

/// All events of a span.
fn whole(source: &Source<'_>) -> SeqSet {
    match (source.span.first(), source.span.last()) {
        (Some(first), Some(last)) => SeqSet::run(first.id.seq, last.id.seq),
        _ => SeqSet::default(),
    }
}

/// What users said in their own words, sentence by sentence.
fn wishes(source: &Source<'_>) -> Vec<(Seq, String, Bag)> {
    let mut wishes = Vec::new();
    for event in source.span {
        let (Fact::UserSaid { parts } | Fact::ToolReturned { parts, .. }) = &event.event.fact else {
            continue;
        };
        for part in parts {
            let Part::Text { text } = part else { continue };
            for sentence in sentences(&user_words(text)) {
                let text = one_line(&sentence.text, ITEM);
                let bag = Bag::of(&text);
                wishes.push((event.id.seq, text, bag));
            }
        }
    }
    wishes
}

/// The first path in a text.
fn path_in(text: &str) -> Option<String> {
    names(text).into_iter().find_map(|name| match name {
        Name::Path(components) => Some(components.join("/")),
        Name::Hex(_) | Name::Id(_) | Name::Number(_) => None,
    })
}

/// What a line says beside the path it begins with.
fn without_path(text: &str) -> String {
    let text = text.trim_start_matches(['`', '"', '\'']);
    let end = text.find(|letter: char| letter.is_whitespace() || letter == '`').unwrap_or(text.len());
    text[end..].trim_start_matches(|letter: char| !letter.is_alphanumeric()).to_owned()
}
