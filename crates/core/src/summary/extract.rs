//! The built-in summariser: a summary from the events themselves, without a model.
//!
//! One pass over the span, in order. What users said goes to `wishes`, what the assistant said to `said`, what tools did
//! to `work`; the ledger keeps the items, those of the summary before among them. The same span and the same summary
//! before give the same summary, always.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Brief, Detail, Item, PIN_LENGTH, Section,
    index::index,
    ledger::{Caps, FIRST_REQUEST, Ledger},
    prose::one_line,
    reading::Reading,
    said::{Answer, LAST_WORDS, Speaker, Speech},
    voices::reported,
    wishes::{Asked, ITEM, hear, is_order_to_client, request},
    work::{Since, Work},
};
use crate::{
    event::{Fact, Logged, Part, Pin},
    id::Seq,
    pairing::{Exchange, Outcome, pair},
    seq_set::SeqSet,
    standing::{Position, rest_of},
    turn::Turns,
};

/// The keys of what a model says of the current task.
pub(crate) const TOLD_TASKS: [&str; 2] = ["told task", "told task too"];

/// The keys of what a model says of the session's intent.
pub(crate) const TOLD_INTENTS: [&str; 2] = ["told intent", "told intent too"];

/// The key of what was done, among the current task.
const PROGRESS: &str = "progress";

/// Summarises a span of a thread, oldest event first, on top of the summary of what came before it.
///
/// Every item names events of the span, or those that the earlier summary named. Items of the earlier summary stay until
/// a later state of the same thing replaces them; what is over its cap is counted. Compactions inside the span are passed
/// over: whoever has one passes its summary as `previous`.
pub fn summarise(span: &[Arc<Logged>], previous: Option<&Brief>, caps: &Caps) -> Brief {
    summarise_again(&mut Reading::default(), span, previous, caps)
}

/// The same for a span of which much was read before, to be summarised with other caps or another end.
pub(super) fn summarise_again(
    reading: &mut Reading,
    span: &[Arc<Logged>],
    previous: Option<&Brief>,
    caps: &Caps,
) -> Brief {
    let mut ledger = Ledger::carrying(previous);
    let mut extraction = Extraction {
        work: Work::carrying(&ledger),
        speech: Speech::carrying(&ledger),
        last_words: None,
        request: None,
        reading,
        position: if previous.is_some() { Position::Later } else { Position::Opening },
    };
    extraction.work.since = done_before(&ledger);
    let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
    let mut returned: HashMap<Seq, Vec<&Exchange<'_>>> = HashMap::new();
    for exchange in &paired.exchanges {
        let at = match exchange.outcome {
            Outcome::Returned { at, .. } => at,
            Outcome::Unanswered => exchange.at,
        };
        returned.entry(at).or_default().push(exchange);
    }
    let closing = closing(span);
    for event in span {
        let at = event.id.seq;
        extraction.hear(&mut ledger, at, &event.event.fact, &closing);
        for exchange in returned.get(&at).into_iter().flatten() {
            extraction.work.take(&mut ledger, exchange);
        }
    }
    pins(&mut ledger, span);
    extraction.finish(&mut ledger);
    let mut brief = ledger.settle(caps);
    brief.voice = brief.voice.and(span, caps.user_words);
    brief.index = index(span, &brief.index, caps.index);
    brief
}

struct Extraction<'r> {
    work: Work,
    speech: Speech,
    last_words: Option<(Seq, String)>,
    /// Where the newest request of this span is.
    request: Option<Seq>,
    /// What was read of messages, now or before.
    reading: &'r mut Reading,
    /// Whether the model has answered.
    position: Position,
}

impl Extraction<'_> {
    fn hear(&mut self, ledger: &mut Ledger, at: Seq, fact: &Fact, closing: &HashSet<Seq>) {
        match fact {
            Fact::UserSaid { parts } => {
                let text = rest_of(&text(parts), self.position);
                let said = self.reading.sentences(at, &text);
                if text.trim().is_empty() || is_note_of_client(&text) || is_order_to_client(&text) {
                    return;
                }
                hear(ledger, at, &said);
                let first = ledger.get(Section::SessionIntent, FIRST_REQUEST).is_none();
                let speaker = if first { Speaker::Newcomer } else { Speaker::User };
                self.speech.reply(ledger, at, &said, speaker);
                for words in reported(&text) {
                    Work::report(ledger, at, words);
                }
                if request(ledger, at, &said, &text) == Asked::Something {
                    self.work.asked();
                    self.request = Some(at);
                    self.last_words = None;
                }
            }
            // What stands beside results is the user's, who spoke while tools ran.
            Fact::ToolReturned { parts, .. } => {
                hear(ledger, at, &self.reading.sentences(at, &rest_of(&text(parts), self.position)));
            }
            Fact::AssistantSaid { parts, .. } => {
                self.position = Position::Later;
                let text = text(parts);
                if text.trim().is_empty() {
                    return;
                }
                let answer = if closing.contains(&at) { Answer::Closing } else { Answer::Working };
                self.speech.take(ledger, &mut self.work, at, &self.reading.sentences(at, &text), answer);
                self.last_words = Some((at, text));
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

    /// Says how far the current task is.
    fn finish(self, ledger: &mut Ledger) {
        if self.request.is_some() {
            // What was done for an earlier request is past.
            ledger.strike(Section::CurrentTask, PROGRESS);
            ledger.strike(Section::CurrentTask, LAST_WORDS);
            for key in TOLD_TASKS {
                ledger.strike(Section::CurrentTask, key);
            }
        }
        let Since { calls, changed, sources, ran } = self.work.since;
        // What the summary before says of it, it says in full.
        let is_known = ran.is_none()
            && ledger.get(Section::CurrentTask, PROGRESS).is_some_and(|item| item.sources == sources);
        if !sources.is_empty() && !is_known {
            let mut text = format!("Since then: {calls} {}", if calls == 1 { "call" } else { "calls" });
            if !changed.is_empty() {
                let names: Vec<&str> = changed.iter().map(String::as_str).collect();
                text = format!("{text}; changed {}", one_line(&names.join(", "), ITEM / 2));
            }
            if let Some(ran) = ran {
                text = format!("{text}; last ran {}", one_line(&ran, ITEM / 3));
            }
            let detail = Some(Detail::Progress { calls, changed });
            let key = Some(PROGRESS.to_owned());
            ledger.put(Item { section: Section::CurrentTask, text, key, sources, detail });
        }
        if let Some((at, words)) = self.last_words {
            ledger.strike(Section::CurrentTask, LAST_WORDS);
            let said = self.reading.sentences(at, &words);
            let said: Vec<&str> = said.iter().map(|sentence| sentence.text.as_str()).collect();
            let said = if said.is_empty() { words } else { said.join(" ") };
            ledger.put(Item {
                section: Section::CurrentTask,
                text: format!("Last said: {}", one_line(&said, ITEM - 20)),
                key: Some(LAST_WORDS.to_owned()),
                sources: SeqSet::one(at),
                detail: None,
            });
        }
    }
}

/// What the summary before says was done for the newest request.
fn done_before(ledger: &Ledger) -> Since {
    match ledger.get(Section::CurrentTask, PROGRESS) {
        Some(Item { detail: Some(Detail::Progress { calls, changed }), sources, .. }) => {
            Since { calls: *calls, changed: changed.clone(), sources: sources.clone(), ran: None }
        }
        _ => Since::default(),
    }
}

/// The assistant's events that belong to an answer which calls nothing.
fn closing(span: &[Arc<Logged>]) -> HashSet<Seq> {
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

/// Whether a message is one that a client wrote in the user's name: it is one bracket, or one tag, once or again and again.
pub fn is_note_of_client(text: &str) -> bool {
    let text = text.trim();
    let is_bracket = text.starts_with('[') && text.ends_with(']') && !text[1..].contains('[');
    is_bracket || is_tag(text)
}

/// Whether a text is `<a-name …>…</a-name>` and nothing beside it: between two such notes a user may have spoken.
fn is_tag(text: &str) -> bool {
    let name =
        text.strip_prefix('<').and_then(|rest| rest.split(|c: char| c == '>' || c.is_whitespace()).next());
    let Some(name) = name.filter(|name| is_tag_of_client(name)) else { return false };
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = text;
    while let Some(inside) = rest.strip_prefix(&open) {
        let Some((_, after)) = inside.split_once(&close) else { return false };
        rest = after.trim_start();
    }
    rest.is_empty()
}

/// The tags in which clients write to the model; any other may be a user's own.
fn is_tag_of_client(name: &str) -> bool {
    const TAGS: [&str; 8] = [
        "task-notification",
        "system-reminder",
        "system_reminder",
        "environment_context",
        "environment_details",
        "user_instructions",
        "user-prompt-submit-hook",
        "session_context",
    ];
    TAGS.contains(&name) || ["command-", "local-command-", "ide_"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_client_is_one_bracket_or_one_tag_and_nothing_beside() {
        let check = |text: &str, expect: bool| assert_eq!(is_note_of_client(text), expect, "{text}");
        for note in [
            "[Request interrupted by user]",
            " <system-reminder>\nMind the list.\n</system-reminder>\n",
            "<environment_context cwd=\"/\">a > b</environment_context>",
            "<system-reminder>One.</system-reminder>\n<system-reminder>Two.</system-reminder>",
        ] {
            check(note, true);
        }
        for said in [
            "",
            "<",
            "Fix <b>this</b>.",
            "[1] and [2]",
            "<div>mine</div>",
            "<my-tag>",
            "<my-tag>open",
            "<my-tag>a</my-tags>",
            "<my-tag>a</my-tag> and this",
            // The user spoke between two notes of the client.
            "<system-reminder>One.</system-reminder>\nNever push.\n<system-reminder>Two.</system-reminder>",
        ] {
            check(said, false);
        }
        check("<user_query>Never push.</user_query>", false);
        check(&"<ide_x></ide_x>".repeat(100_000), true);
        check(&"<a-b>".repeat(100_000), false);
    }
}
