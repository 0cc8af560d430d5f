//! The built-in summariser: a summary from the events themselves, without a model.
//!
//! One pass over the span, in order. What users said goes to `constraints` and `requests`, what tools did to
//! `tool_activity`, and all of it in order to the trail; the ledger keeps the items, those of the summary before among them. The same span and the same summary
//! before give the same summary, always.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    MAX_PIN_CHARS, StructuredSummary, SummaryItem, SummarySection, Trail,
    constraints::read_constraints,
    focus::{FocusRanking, SummaryFocus},
    item_set::{ItemSet, SectionCaps},
    name_index::NameIndex,
    reading_cache::ReadingCache,
    requests::{self, MAX_ITEM_CHARS, has_no_request, read_request, request_text},
    sentences::one_line,
    tool_activity::{ToolActivity, retire_stale_failures},
    trail::without_middle,
};
use crate::{
    client_text::user_words_of,
    event::{ContentPart, Fact, LoggedEvent, Pin},
    id::Seq,
    pairing::{CallOutcome, Exchange, pair},
    seq_set::SeqSet,
    turn::TurnBuilder,
};

/// How many letters of a trail are carried on at least, whether there is room to tell them or not.
const CARRIED: usize = 6_000;

/// The key of the assistant's last words, among the current task.
pub(super) const LAST_WORDS_KEY: &str = "last words";

/// The key of the report that ended the newest request so far, among the current task.
pub(super) const REPORT_KEY: &str = "report";

/// Summarises a span of a thread, oldest event first, on top of the summary of what came before it.
///
/// Every item names events of the span, or those that the earlier summary named. Items of the earlier summary stay until
/// a later state of the same thing replaces them; what is over its cap is counted. Compactions inside the span are passed
/// over: whoever has one passes its summary as `previous`.
pub fn summarise(
    span: &[Arc<LoggedEvent>],
    previous: Option<&StructuredSummary>,
    caps: &SectionCaps,
) -> StructuredSummary {
    summarise_for(None, span, previous, caps)
}

/// The same, where what a focus is about gets room before the rest.
pub fn summarise_for(
    focus: Option<&SummaryFocus>,
    span: &[Arc<LoggedEvent>],
    previous: Option<&StructuredSummary>,
    caps: &SectionCaps,
) -> StructuredSummary {
    SummaryMaterial::read(&mut ReadingCache::default(), focus, span, previous, caps).brief(caps)
}

/// What a span and the summary before it say, read once: it can be summarised with many caps.
pub(super) struct SummaryMaterial<'f> {
    ledger: ItemSet,
    /// All that happened, whole; none if no summary is to tell it.
    trail: Option<Trail>,
    /// What it should attend to.
    ranking: Option<FocusRanking<'f>>,
    index: NameIndex,
}

impl<'f> SummaryMaterial<'f> {
    /// Reads a span. Whether its trail is wanted is told by `caps`.
    pub(super) fn read(
        reading: &mut ReadingCache,
        focus: Option<&'f SummaryFocus>,
        span: &[Arc<LoggedEvent>],
        previous: Option<&StructuredSummary>,
        caps: &SectionCaps,
    ) -> Self {
        let mut ledger = ItemSet::from_previous(previous);
        let closing = closing_answer_events(span);
        let mut extraction = SummaryExtraction {
            activity: ToolActivity::default(),
            last_words: None,
            closing,
            is_acknowledged: false,
            reading,
        };
        let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
        let mut returned: HashMap<Seq, Vec<&Exchange<'_>>> = HashMap::new();
        for exchange in &paired.exchanges {
            let at = match exchange.outcome {
                CallOutcome::Returned { at, .. } => at,
                CallOutcome::Unanswered => exchange.at,
            };
            returned.entry(at).or_default().push(exchange);
        }
        for event in span {
            let at = event.id.seq;
            extraction.hear(&mut ledger, at, &event.event.fact);
            for exchange in returned.get(&at).into_iter().flatten() {
                extraction.activity.record(&mut ledger, exchange);
            }
        }
        pins(&mut ledger, span);
        let last = span.last().map_or(Seq::START, |event| event.id.seq);
        let reading = extraction.finish(&mut ledger, last);
        let carried = ledger.trail();
        let is_told = caps.trail > 0 || focus.is_some();
        let trail = is_told.then(|| carried.clone().extended_with(span, &paired, reading));
        let ranking = focus.zip(trail.as_ref()).and_then(|(focus, trail)| FocusRanking::of(focus, trail));
        let index = if caps.index > 0 {
            NameIndex::of(&paired.exchanges, last, ledger.index(), ledger.told_trail())
        } else {
            NameIndex::default()
        };
        Self { ledger, trail, ranking, index }
    }

    /// How many letters its trail has if all of it is told.
    pub(super) fn trail_letters(&self) -> usize {
        self.trail.as_ref().map_or(0, Trail::letters)
    }

    /// The summary within caps.
    pub(super) fn brief(&self, caps: &SectionCaps) -> StructuredSummary {
        let ranking = self.ranking.as_ref();
        let mut brief = self.ledger.clone().into_summary(caps);
        let (told, carried) = self.trails(caps);
        (brief.trail, brief.carried_trail) = (told, carried);
        brief.index = self.index.entries_beside(&brief.trail, ranking, caps.index);
        brief.focus = ranking.map(|ranking| ranking.focus.text().to_owned());
        brief
    }

    /// The trail as it is told, and as it is carried on where that is more: a lack of room may pass, and what was folded cannot
    /// be told again.
    fn trails(&self, caps: &SectionCaps) -> (Trail, Trail) {
        let Some(trail) = self.trail.as_ref().filter(|_| caps.trail > 0) else { return Default::default() };
        let ranking = self.ranking.as_ref();
        if caps.trail >= CARRIED {
            return (trail.clone().within(caps.trail, ranking), Trail::default());
        }
        let carried = trail.clone().within(CARRIED, ranking);
        // Nothing is told that the next summary would tell otherwise.
        let told = match ranking {
            Some(_) => trail.clone().within(caps.trail, ranking),
            None => carried.clone().within(caps.trail, None),
        };
        if told == carried { (told, Trail::default()) } else { (told, carried) }
    }
}

struct SummaryExtraction<'r> {
    activity: ToolActivity,
    last_words: Option<(Seq, String)>,
    /// The answers that hand over to the user.
    closing: HashSet<Seq>,
    /// Whether the user took note of a report, and nothing was done since.
    is_acknowledged: bool,
    /// What was read of messages, now or before.
    reading: &'r mut ReadingCache,
}

impl<'r> SummaryExtraction<'r> {
    fn hear(&mut self, ledger: &mut ItemSet, at: Seq, fact: &Fact) {
        if let Fact::UserSaid { parts } = fact {
            let text = request_text(parts);
            if text.trim().is_empty() || has_no_request(&text) {
                self.is_acknowledged |= !text.trim().is_empty() && requests::is_reported(ledger);
                return;
            }
            self.is_acknowledged = false;
            let said = self.reading.sentences(at, &text);
            // Who only says what holds asks for nothing else than before.
            let (clauses, is_all) = read_constraints(ledger, at, &said);
            if !is_all {
                read_request(ledger, at, &said, &clauses, &text);
                // What was said of an earlier request is past.
                self.last_words = None;
            }
        } else if let Fact::ToolReturned { parts, .. } = fact {
            // What stands beside results is the user's, who spoke while tools ran.
            let said = self.reading.sentences(at, &user_words_of(parts));
            read_constraints(ledger, at, &said);
        } else if let Fact::AssistantSaid { parts, .. } = fact {
            self.is_acknowledged &= self.closing.contains(&at);
            let text = text(parts);
            if text.trim().is_empty() {
                return;
            }
            if self.closing.contains(&at) {
                self.last_words = None;
                ledger.remove(SummarySection::CurrentTask, LAST_WORDS_KEY);
                said_last(ledger, REPORT_KEY, at, &text);
            } else {
                self.last_words = Some((at, text));
            }
        }
    }

    /// Says how things stand by the last event, and gives back what was read.
    fn finish(self, ledger: &mut ItemSet, last: Seq) -> &'r mut ReadingCache {
        requests::update_current_task(ledger);
        retire_stale_failures(ledger, last);
        if self.is_acknowledged {
            ledger.clear(SummarySection::CurrentTask);
        }
        if let Some((at, words)) = self.last_words {
            said_last(ledger, LAST_WORDS_KEY, at, &words);
        }
        self.reading
    }
}

/// Notes what the assistant said last; of long words also the end, which may ask something.
fn said_last(ledger: &mut ItemSet, key: &str, at: Seq, words: &str) {
    ledger.remove(SummarySection::CurrentTask, key);
    let text = format!("Last said: {}", without_middle(&one_line(words, usize::MAX), MAX_ITEM_CHARS - 20));
    let said = SummaryItem::new(SummarySection::CurrentTask, text, SeqSet::one(at));
    ledger.put(SummaryItem { key: Some(key.to_owned()), ..said });
}

/// The assistant's events that belong to an answer which calls nothing.
pub(super) fn closing_answer_events(span: &[Arc<LoggedEvent>]) -> HashSet<Seq> {
    let turns = TurnBuilder::of(span.iter().map(|event| &**event));
    let closing = turns.iter().filter(|turn| turn.tool_calls == 0);
    closing.flat_map(|turn| &turn.answered).map(|id| id.seq).collect()
}

/// Puts in what was pinned, word for word, and takes out what no longer is. A pinned event that is not in the span is
/// named by its place.
fn pins(ledger: &mut ItemSet, span: &[Arc<LoggedEvent>]) {
    for event in span {
        let (Fact::Pinned { pin } | Fact::Unpinned { pin }) = &event.event.fact else { continue };
        let identity = match pin {
            Pin::Text(text) => one_line(text, MAX_PIN_CHARS),
            Pin::Event(seq) => format!("event {seq}"),
        };
        if matches!(event.event.fact, Fact::Unpinned { .. }) {
            ledger.remove(SummarySection::Pins, &identity);
            continue;
        }
        let mut sources = SeqSet::one(event.id.seq);
        let (text, key) = match pin {
            Pin::Text(_) => (identity, None),
            Pin::Event(seq) => {
                let found = span.binary_search_by_key(seq, |event| event.id.seq).ok().map(|at| &span[at]);
                sources.extend(&found.map(|_| SeqSet::one(*seq)).unwrap_or_default());
                let text = found.map(|event| one_line(&event.event.fact.text(), MAX_PIN_CHARS));
                let text = text.filter(|text| !text.is_empty());
                // A pin that was told before is not told worse.
                if text.is_none() && ledger.get(SummarySection::Pins, &identity).is_some() {
                    continue;
                }
                (text.unwrap_or_else(|| identity.clone()), Some(identity))
            }
        };
        if !text.is_empty() {
            ledger.put(SummaryItem { section: SummarySection::Pins, text, key, sources, detail: None });
        }
    }
}

/// The plain texts of a message, apart.
pub(crate) fn text(parts: &[ContentPart]) -> String {
    ContentPart::texts(parts).collect::<Vec<_>>().join("\n\n")
}
