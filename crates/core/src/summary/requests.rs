//! Requests of the user, word for word: what the session began with, and what is asked for now.
//!
//! The newest message is the current task, whatever it says. Where it is short it goes on with the one before, which is then
//! told too.

use super::{
    Detail, Item, Section, StepOrigin,
    constraints::{newest_rule, withdraw_all},
    ledger::{FIRST_REQUEST, Ledger},
    markers::{Clauses, length},
    prose::{Sentence, one_line},
};
use crate::{id::Seq, seq_set::SeqSet};

/// How long an item is at most, in characters.
pub(super) const ITEM: usize = 300;

/// How long the first request may be.
const FIRST: usize = 600;

/// A message of fewer letters than this goes on with the one before: `yes, do that`.
const SHORT: usize = 20;

/// How many messages the current task is at most.
const TOLD: usize = 3;

/// The keys of messages among the current task, the newest first.
const TASKS: [&str; TOLD] = ["request", "request before", "request before that"];

/// The words for a current task that is the session's first request.
pub(super) const THE_FIRST_REQUEST: &str = "The first request.";

/// After so many requests a plan that nobody touched since is left out.
const PLANNED: usize = 3;

/// What is added to a step that was planned for an earlier request.
pub(super) const EARLIER: &str = " (planned before the newest request)";

/// Notes a message of the user, in sentences and their `clauses`.
pub(super) fn request(
    ledger: &mut Ledger,
    at: Seq,
    sentences: &[Sentence],
    clauses: &[Clauses],
    whole: &str,
) {
    if clauses.iter().any(Clauses::makes_a_new_plan) {
        let steps: Vec<String> =
            ledger.newest(Section::NextSteps).map(|item| item.identity().to_owned()).collect();
        for step in &steps {
            ledger.strike(Section::NextSteps, step);
        }
    }
    let said: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let said = if said.is_empty() { whole.to_owned() } else { said.join(" ") };
    let first = ledger.get(Section::SessionIntent, FIRST_REQUEST).is_none();
    let mut text = one_line(&said, if first { FIRST } else { ITEM });
    if clauses.iter().any(Clauses::takes_back) {
        let before = messages(ledger).into_iter().next();
        let (asked, ruled) = (before.as_ref().and_then(|before| before.sources.last()), newest_rule(ledger));
        if let Some(message) = asked.max(ruled) {
            withdraw_all(ledger, message, at, &text);
        }
        if let Some(before) = before.filter(|_| asked > ruled) {
            text = one_line(&format!("{text} (takes back: {})", one_line(&before.text, ITEM / 2)), ITEM);
            ledger.retire(Section::SessionIntent, before.identity());
        }
    }
    let key = first.then(|| FIRST_REQUEST.to_owned());
    ledger.put(Item { section: Section::SessionIntent, text, key, sources: SeqSet::one(at), detail: None });
}

/// Says what the current task is by now, and which steps of a plan still are.
pub(super) fn settle(ledger: &mut Ledger) {
    let messages = messages(ledger);
    if messages.is_empty() {
        return;
    }
    for key in &TASKS {
        ledger.strike(Section::CurrentTask, key);
    }
    let long = messages.iter().position(|message| length(&message.text) >= SHORT);
    let told = long.map_or(TOLD, |long| long + 1).min(TOLD).min(messages.len());
    for (message, key) in messages.iter().zip(TASKS).take(told).rev() {
        let is_first = message.key.as_deref() == Some(FIRST_REQUEST);
        let text = if is_first { THE_FIRST_REQUEST } else { &message.text };
        ledger.put(Item {
            section: Section::CurrentTask,
            text: text.to_owned(),
            key: Some(key.to_owned()),
            sources: SeqSet::one(message.sources.last().unwrap_or_default()),
            detail: None,
        });
    }
    let asked: Vec<Seq> = messages
        .iter()
        .filter(|message| length(&message.text) >= SHORT)
        .filter_map(|message| message.sources.last())
        .collect();
    steps(ledger, &asked);
}

/// The places of the newest requests, not counting what only goes on with one.
pub(super) fn places(ledger: &Ledger) -> Vec<Seq> {
    let long = messages(ledger).into_iter().filter(|message| length(&message.text) >= SHORT);
    long.filter_map(|message| message.sources.last()).collect()
}

/// Marks the steps that were planned for an earlier request, and takes those out that are older still.
fn steps(ledger: &mut Ledger, asked: &[Seq]) {
    let recorded =
        |item: &&Item| matches!(item.detail, Some(Detail::Step(StepOrigin::Plan | StepOrigin::Tracked)));
    let steps: Vec<Item> = ledger.newest(Section::NextSteps).filter(recorded).cloned().collect();
    for step in steps {
        let since = asked.iter().filter(|asked| Some(**asked) > step.sources.last()).count();
        match since {
            0 => {}
            1..PLANNED => {
                let text = format!("{}{EARLIER}", step.text.trim_end_matches(EARLIER));
                ledger.put(Item { text, ..step });
            }
            _ => drop(ledger.strike(Section::NextSteps, step.identity())),
        }
    }
}

/// The messages of the user that are known, the newest first.
fn messages(ledger: &Ledger) -> Vec<Item> {
    let own = |item: &&Item| item.key.as_deref().is_none_or(|key| key == FIRST_REQUEST);
    let mut messages: Vec<Item> = ledger.newest(Section::SessionIntent).filter(own).cloned().collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.sources.last()));
    messages
}

/// Whether a message asks for nothing of its own: a bare command to the client, such as `/mode`, or a single short word, by
/// which one greets, thanks or agrees.
pub(super) fn asks_nothing(text: &str) -> bool {
    const WORD: usize = 12;
    let text = text.trim();
    let name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':');
    let command = text.strip_prefix('/').is_some_and(|rest| rest.chars().all(name));
    command || text.len() <= WORD && !text.contains(char::is_whitespace)
}
