//! The built-in summariser: a summary from the events themselves, without a model.
//!
//! One pass over the span, in order. What users said goes to `constraints` and `requests`, what tools did to `work`, and
//! all of it in order to the trail; the ledger keeps the items, those of the summary before among them. The same span and the same summary
//! before give the same summary, always.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Brief, Item, PIN_LENGTH, Section, Trail,
    constraints::{Heard, hear},
    focus::{Focus, FocusRanking},
    index::{Index, IndexMaterial},
    ledger::{Caps, Ledger},
    markers::Clauses,
    prose::one_line,
    reading::Reading,
    requests::{self, ITEM, asks_nothing, request},
    work::Work,
};
use crate::{
    client_text::user_words_of,
    event::{Fact, Logged, Part, Pin},
    id::Seq,
    pairing::{Exchange, Outcome, pair},
    seq_set::SeqSet,
    turn::Turns,
};

/// The keys of what a model says of the current task.
pub(crate) const TOLD_TASKS: [&str; 2] = ["told task", "told task too"];

/// The keys of what a model says of the session's intent.
pub(crate) const TOLD_INTENTS: [&str; 2] = ["told intent", "told intent too"];

/// The key of what was done, among the current task of summaries of earlier versions.
const PROGRESS: &str = "progress";

/// The key of the assistant's last words, among the current task.
pub(super) const LAST_WORDS: &str = "last words";

/// Summarises a span of a thread, oldest event first, on top of the summary of what came before it.
///
/// Every item names events of the span, or those that the earlier summary named. Items of the earlier summary stay until
/// a later state of the same thing replaces them; what is over its cap is counted. Compactions inside the span are passed
/// over: whoever has one passes its summary as `previous`.
pub fn summarise(span: &[Arc<Logged>], previous: Option<&Brief>, caps: &Caps) -> Brief {
    summarise_for(None, span, previous, caps)
}

/// The same, where what a focus is about gets room before the rest.
pub fn summarise_for(
    focus: Option<&Focus>,
    span: &[Arc<Logged>],
    previous: Option<&Brief>,
    caps: &Caps,
) -> Brief {
    summarise_again(&mut Reading::default(), focus, span, previous, caps)
}

/// The same for a span of which much was read before, to be summarised with other caps or another end.
pub(super) fn summarise_again(
    reading: &mut Reading,
    focus: Option<&Focus>,
    span: &[Arc<Logged>],
    previous: Option<&Brief>,
    caps: &Caps,
) -> Brief {
    SummaryMaterial::read(reading, focus, span, previous, caps).brief(caps)
}

/// What a span and the summary before it say, read once: it can be summarised with many caps.
pub(super) struct SummaryMaterial<'f> {
    ledger: Ledger,
    /// All that happened, whole; none if no summary is to tell it.
    trail: Option<Trail>,
    /// What it should attend to.
    ranking: Option<FocusRanking<'f>>,
    index: Index,
}

impl<'f> SummaryMaterial<'f> {
    /// Reads a span. Whether its trail is wanted is told by `caps`.
    pub(super) fn read(
        reading: &mut Reading,
        focus: Option<&'f Focus>,
        span: &[Arc<Logged>],
        previous: Option<&Brief>,
        caps: &Caps,
    ) -> Self {
        let mut ledger = Ledger::carrying(previous);
        ledger.strike(Section::CurrentTask, PROGRESS);
        let mut extraction = Extraction { work: Work::carrying(&ledger), last_words: None, reading };
        let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
        let mut returned: HashMap<Seq, Vec<&Exchange<'_>>> = HashMap::new();
        for exchange in &paired.exchanges {
            let at = match exchange.outcome {
                Outcome::Returned { at, .. } => at,
                Outcome::Unanswered => exchange.at,
            };
            returned.entry(at).or_default().push(exchange);
        }
        for event in span {
            let at = event.id.seq;
            extraction.hear(&mut ledger, at, &event.event.fact);
            for exchange in returned.get(&at).into_iter().flatten() {
                extraction.work.take(&mut ledger, exchange);
            }
        }
        pins(&mut ledger, span);
        let last = span.last().map_or(Seq::START, |event| event.id.seq);
        let reading = extraction.finish(&mut ledger, last);
        let carried = ledger.trail();
        let is_told = caps.trail > 0 || focus.is_some();
        let trail = is_told.then(|| carried.clone().and(span, &paired, reading));
        let ranking = focus.zip(trail.as_ref()).and_then(|(focus, trail)| FocusRanking::of(focus, trail));
        let index = if caps.index > 0 {
            Index::of(&IndexMaterial { span, previous: ledger.index(), carried })
        } else {
            Index::default()
        };
        Self { ledger, trail, ranking, index }
    }

    /// The summary within caps.
    pub(super) fn brief(&self, caps: &Caps) -> Brief {
        let ranking = self.ranking.as_ref();
        let mut brief = self.ledger.clone().settle(caps);
        brief.trail = match &self.trail {
            Some(trail) if caps.trail > 0 => trail.clone().within(caps.trail, ranking),
            _ => Trail::default(),
        };
        brief.index = self.index.beside(&brief.trail, ranking, caps.index);
        brief.focus = ranking.map(|ranking| ranking.focus().text().to_owned());
        brief
    }
}

struct Extraction<'r> {
    work: Work,
    last_words: Option<(Seq, String)>,
    /// What was read of messages, now or before.
    reading: &'r mut Reading,
}

impl<'r> Extraction<'r> {
    fn hear(&mut self, ledger: &mut Ledger, at: Seq, fact: &Fact) {
        match fact {
            Fact::UserSaid { parts } => {
                let text = user_words_of(parts);
                if text.trim().is_empty() || asks_nothing(&text) {
                    return;
                }
                let said = self.reading.sentences(at, &text);
                // Who only says what holds asks for nothing else than before.
                let clauses = Clauses::of_all(&said);
                if hear(ledger, at, &said, &clauses) == Heard::Whole {
                    return;
                }
                request(ledger, at, &said, &clauses, &text);
                // What a model or the assistant said of an earlier request is past.
                self.last_words = None;
                for key in TOLD_TASKS.into_iter().chain([LAST_WORDS]) {
                    ledger.strike(Section::CurrentTask, key);
                }
            }
            // What stands beside results is the user's, who spoke while tools ran.
            Fact::ToolReturned { parts, .. } => {
                let said = self.reading.sentences(at, &user_words_of(parts));
                hear(ledger, at, &said, &Clauses::of_all(&said));
            }
            Fact::AssistantSaid { parts, .. } => {
                let text = text(parts);
                if !text.trim().is_empty() {
                    self.last_words = Some((at, text));
                }
            }
            Fact::Instructed { .. }
            | Fact::CompactionRequested { .. }
            | Fact::Compacted(_)
            | Fact::CompactionReverted { .. }
            | Fact::CompactionRestored { .. }
            | Fact::Pinned { .. }
            | Fact::Unpinned { .. }
            | Fact::Injected { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. }
            | Fact::Carried { .. } => {}
        }
    }

    /// Says how things stand by the last event, and gives back what was read.
    fn finish(self, ledger: &mut Ledger, last: Seq) -> &'r mut Reading {
        requests::settle(ledger);
        self.work.settle(ledger, last);
        if let Some((at, words)) = self.last_words {
            ledger.strike(Section::CurrentTask, LAST_WORDS);
            ledger.put(Item {
                section: Section::CurrentTask,
                text: format!("Last said: {}", one_line(&words, ITEM - 20)),
                key: Some(LAST_WORDS.to_owned()),
                sources: SeqSet::one(at),
                detail: None,
            });
        }
        self.reading
    }
}

/// The assistant's events that belong to an answer which calls nothing.
pub(super) fn closing(span: &[Arc<Logged>]) -> HashSet<Seq> {
    let turns = Turns::of(span.iter().map(|event| &**event));
    let closing = turns.iter().filter(|turn| turn.tool_calls == 0);
    closing.flat_map(|turn| &turn.answered).map(|id| id.seq).collect()
}

/// Puts in what was pinned, word for word, and takes out what no longer is. A pinned event that is not in the span is
/// named by its place.
fn pins(ledger: &mut Ledger, span: &[Arc<Logged>]) {
    for event in span {
        let pin = match &event.event.fact {
            Fact::Pinned { pin } => pin,
            Fact::Unpinned { pin } => {
                unpin(ledger, pin);
                continue;
            }
            _ => continue,
        };
        let mut sources = SeqSet::one(event.id.seq);
        let (text, identity) = match pin {
            Pin::Text(text) => (one_line(text, PIN_LENGTH), None),
            Pin::Event(seq) => {
                let identity = format!("event {seq}");
                let found = span.binary_search_by_key(seq, |event| event.id.seq).ok().map(|at| &span[at]);
                let text = found
                    .map(|event| one_line(&event.event.fact.text(), PIN_LENGTH))
                    .filter(|text| !text.is_empty());
                if found.is_some() {
                    sources.insert(*seq);
                }
                // A pin that was told before is not told worse.
                if text.is_none() && ledger.get(Section::Pins, &identity).is_some() {
                    continue;
                }
                (text.unwrap_or_else(|| format!("event {seq}")), Some(identity))
            }
        };
        if !text.is_empty() {
            ledger.put(Item { section: Section::Pins, text, key: identity, sources, detail: None });
        }
    }
}

fn unpin(ledger: &mut Ledger, pin: &Pin) {
    let identity = match pin {
        Pin::Text(text) => one_line(text, PIN_LENGTH),
        Pin::Event(seq) => format!("event {seq}"),
    };
    ledger.strike(Section::Pins, &identity);
}

pub(super) fn text(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        if let Part::Text { text: said } = part {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(said);
        }
    }
    text
}
