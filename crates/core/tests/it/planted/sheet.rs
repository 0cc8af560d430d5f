//! A session with planted items: a log in the notation of the specs, and a sheet that says what a summary must find.
//!
//! The sheet speaks of words, not of whole items, so that it does not prescribe how a summary puts things: an item is
//! the planted one if it is of the right section, holds all the words, and names the right events.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use epitome_core::{
    event::{CallForm, ContentPart, Fact, LoggedEvent, Pin},
    id::Seq,
    summary::{SummaryItem, SummarySection},
    turn::TurnBuilder,
};
use serde::Deserialize;

use crate::notation::read_named;

/// How many compactions a session goes through.
pub(crate) const SPANS: usize = 5;

/// A session and what is planted in it.
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) events: Vec<Arc<LoggedEvent>>,
    /// Which events a name of the log stands for: any one of them will do as a source.
    pub(crate) names: BTreeMap<String, Vec<Seq>>,
    pub(crate) sheet: Sheet,
}

/// What a summary of the session must say, may say, and must not say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sheet {
    pub(crate) agent: Agent,
    /// What the session is about, and how its people write; for the reader only.
    pub(crate) about: String,
    pub(crate) planted: BTreeMap<SummarySection, Vec<Planted>>,
    /// What is right to extract without being asked for.
    #[serde(default)]
    pub(crate) allowed: BTreeMap<SummarySection, Vec<Words>>,
    /// What no item may say, ever: words that only look like it.
    #[serde(default)]
    pub(crate) absent: BTreeMap<SummarySection, Vec<Words>>,
    /// What no item may say any more at the end.
    #[serde(default)]
    pub(crate) gone: BTreeMap<SummarySection, Vec<Words>>,
}

/// Whose tools the session uses.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
    Opencode,
    Pi,
    Gemini,
    Generic,
}

impl Agent {
    pub(crate) const ALL: [Self; 6] =
        [Self::ClaudeCode, Self::Codex, Self::Opencode, Self::Pi, Self::Gemini, Self::Generic];
}

/// One thing that must be found.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Planted {
    /// What the item must say, all of it.
    pub(crate) says: Words,
    /// What it must name as sources.
    pub(crate) from: Words,
    /// The exit code of a command it must tell.
    pub(crate) exit: Option<i64>,
    /// Of a failed approach: what worked, in this item, another failed approach or a decision.
    #[serde(default)]
    pub(crate) worked: Words,
    /// From this event on it is no longer so, and need not be told.
    pub(crate) until: Option<String>,
}

/// Words or phrases that stand together in one item.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "OneOrMany")]
pub(crate) struct Words(pub(crate) Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Words {
    fn from(words: OneOrMany) -> Self {
        match words {
            OneOrMany::One(word) => Self(vec![word]),
            OneOrMany::Many(words) => Self(words),
        }
    }
}

impl Words {
    /// Whether a text holds all of them.
    pub(crate) fn are_in(&self, text: &Text) -> bool {
        self.0.iter().all(|word| text.plain.contains(&Text::new(text.section, word).plain))
    }
}

/// A text as it is compared: one space between words, one kind of dash. Errors are told in their exact words; elsewhere
/// case is free.
pub(crate) struct Text {
    section: SummarySection,
    plain: String,
}

impl Text {
    pub(crate) fn new(section: SummarySection, text: &str) -> Self {
        let plain = plain(text);
        Self { section, plain: if section == SummarySection::Errors { plain } else { plain.to_lowercase() } }
    }

    pub(crate) fn of(item: &SummaryItem) -> Self {
        Self::new(item.section, &item.text)
    }
}

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(['–', '‑'], "-")
}

impl Planted {
    /// Whether an item is this one of a section, by its words.
    pub(crate) fn is_said_by(&self, section: SummarySection, item: &SummaryItem) -> bool {
        item.section == section && self.says.are_in(&Text::of(item))
    }

    /// What an item with the right words lacks.
    pub(crate) fn lacks(&self, item: &SummaryItem, names: &BTreeMap<String, Vec<Seq>>) -> Vec<String> {
        let mut lacks = Vec::new();
        for name in &self.from.0 {
            if !names[name].iter().any(|seq| item.sources.contains(*seq)) {
                lacks.push(format!(
                    "the source @{name} ({:?}; it names {})",
                    numbers(names, name),
                    item.sources
                ));
            }
        }
        if let Some(exit) = self.exit {
            let said =
                self.says.0.iter().fold(plain(&item.text), |text, word| text.replace(&plain(word), " "));
            let words = ["ok", "succeeded", "passed", "success"];
            let well = exit == 0
                && said.split(|letter: char| !letter.is_alphabetic()).any(|word| words.contains(&word));
            if !well && !has_number(&said, &exit.to_string()) {
                lacks.push(format!("exit code {exit}"));
            }
        }
        lacks
    }
}

fn numbers(names: &BTreeMap<String, Vec<Seq>>, name: &str) -> Vec<u64> {
    names[name].iter().map(|seq| seq.0).collect()
}

/// Whether a number or a range stands in a text by itself, not as a piece of another number.
fn has_number(text: &str, number: &str) -> bool {
    text.match_indices(number).any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        !before.ends_with(|letter: char| letter.is_ascii_digit())
            && !after.starts_with(|letter: char| letter.is_ascii_digit())
    })
}

impl Session {
    /// All sessions, in the order of their files.
    pub(crate) fn all() -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/planted");
        let files = fs::read_dir(&folder).expect("there are planted sessions");
        let mut pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        pages.sort();
        pages
            .iter()
            .map(|path| {
                let name = path.file_stem().unwrap().to_string_lossy();
                Self::read(&name, &fs::read_to_string(path).unwrap())
            })
            .collect()
    }

    /// Reads a page: a block `log` and a block `toml`.
    pub(crate) fn read(name: &str, page: &str) -> Self {
        let (events, names) = read_named(block(name, page, "log"));
        let sheet = block(name, page, "toml");
        let sheet = toml::from_str(sheet).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), events, names, sheet }
    }

    /// The session in five spans, cut where a turn begins.
    pub(crate) fn spans(&self) -> Vec<&[Arc<LoggedEvent>]> {
        let turns = TurnBuilder::of(self.events.iter().map(Arc::as_ref));
        assert!(turns.len() >= SPANS, "{} has only {} turns", self.name, turns.len());
        let mut cuts = vec![0];
        for span in 1..SPANS {
            let first = turns[turns.len() * span / SPANS].first;
            cuts.push(self.events.partition_point(|event| event.id.seq < first));
        }
        cuts.push(self.events.len());
        cuts.windows(2).map(|cut| &self.events[cut[0]..cut[1]]).collect()
    }

    /// The span, counted from 0, after which everything a name stands for has happened.
    pub(crate) fn span_of(&self, name: &str) -> usize {
        let last = self.names[name].iter().max().expect("a name stands for something");
        let spans = self.spans();
        spans
            .iter()
            .position(|span| span.last().is_some_and(|event| event.id.seq >= *last))
            .unwrap_or(SPANS - 1)
    }

    /// What is wrong with the page: a name that is not in the log, words that are not where they should be, a call that
    /// no agent would make.
    pub(crate) fn faults(&self) -> Vec<String> {
        let planted = self.planted().filter_map(|(section, planted)| self.fault_of(section, planted));
        let sheet = &self.sheet;
        let others = [&sheet.absent, &sheet.gone, &sheet.allowed].into_iter().flatten();
        let nowhere = others.flat_map(|(section, all)| {
            all.iter()
                .filter(move |words| !self.is_said_somewhere(*section, words))
                .map(move |words| format!("{section:?} {:?} stands nowhere in the log", words.0))
        });
        let calls = self.events.iter().flat_map(|event| event.event.fact.parts()).filter_map(fault_of_call);
        planted.chain(nowhere).chain(calls).map(|fault| format!("{}: {fault}", self.name)).collect()
    }

    fn fault_of(&self, section: SummarySection, planted: &Planted) -> Option<String> {
        let Planted { says, from, until, .. } = planted;
        if says.0.is_empty() || from.0.is_empty() {
            return Some(format!("something in {section:?} has no words or no source"));
        }
        if let Some(name) = from.0.iter().chain(until).find(|name| !self.names.contains_key(*name)) {
            return Some(format!("nothing is named @{name}"));
        }
        let sources = from.0.iter().flat_map(|name| &self.names[name]);
        let text: String = sources.map(|seq| self.text(*seq) + "\n").collect();
        let missing = !says.are_in(&Text::new(section, &text));
        missing.then(|| format!("{section:?} {:?} is not said in {:?}", says.0, from.0))
    }

    fn is_said_somewhere(&self, section: SummarySection, words: &Words) -> bool {
        self.events.iter().any(|event| words.are_in(&Text::new(section, &self.text(event.id.seq))))
    }

    /// Everything planted, with its section.
    pub(crate) fn planted(&self) -> impl Iterator<Item = (SummarySection, &Planted)> {
        self.sheet.planted.iter().flat_map(|(section, all)| all.iter().map(|planted| (*section, planted)))
    }

    /// All that an event says: a call's arguments with their escapes undone, and what a pin holds.
    fn text(&self, seq: Seq) -> String {
        let Some(event) = self.events.iter().find(|event| event.id.seq == seq) else { return String::new() };
        match &event.event.fact {
            Fact::Pinned { pin: Pin::Text(text) } => text.clone(),
            Fact::Pinned { pin: Pin::Event(pinned) } => self.text(*pinned),
            fact => fact.text().replace("\\n", "\n").replace("\\\"", "\""),
        }
    }
}

fn fault_of_call(part: &ContentPart) -> Option<String> {
    match part {
        ContentPart::ToolCall(call) if call.form == CallForm::Function => {
            let wrong = serde_json::from_str::<serde_json::Value>(&call.arguments).err()?;
            Some(format!("{} {wrong}: {}", call.name.0, call.arguments))
        }
        _ => None,
    }
}

fn block<'p>(name: &str, page: &'p str, language: &str) -> &'p str {
    let fence = format!("\n```{language}\n");
    let start = page.find(&fence).unwrap_or_else(|| panic!("{name} has no block {language}")) + fence.len();
    let length = page[start..].find("\n```").unwrap_or_else(|| panic!("{name}: {language} is not closed"));
    &page[start..=start + length]
}
