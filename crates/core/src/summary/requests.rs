//! Requests of the user, word for word: what the session began with, and what is asked for now.
//!
//! The newest message is the current task, whatever it says, and so is the one that began its loop: as long as the assistant
//! has not reported, what was asked before is still being worked on. A request that was reported on is history, which the
//! trail tells. Where the newest message answers a question of the report before it, the question is told with it, and
//! where that is too long to be told whole, neither is: half of it says something else. A question that the user answers
//! themselves is settled by the answer.

use super::{
    ItemDetail, StepOrigin, StructuredSummary, SummaryItem, SummarySection,
    constraints::{newest_rule, withdraw_all},
    extraction::REPORT_KEY,
    item_set::{FIRST_REQUEST_KEY, ItemSet},
    marker_words::{MarkerRole, SentenceClauses, length},
    sentences::{Sentence, one_line},
    tools::shows_content,
    trail::CUT_MARK,
};
use crate::{client_text::user_words_of, event::ContentPart, id::Seq, seq_set::SeqSet};

/// How long an item is at most, in characters.
pub(super) const MAX_ITEM_CHARS: usize = 300;

/// How long the first request may be.
const FIRST: usize = 600;

/// A message of fewer letters than this goes on with the one before: `yes, do that`.
const SHORT: usize = 20;

/// A message of fewer letters than this may be an answer that says nothing without its question.
const ANSWER: usize = 80;

/// The keys of messages among the current task: the newest, the one that its loop began with, and one that only summaries of
/// earlier versions have.
const NEWEST: &str = "request";
const BEGINNING: &str = "request before";
const TASKS: [&str; 3] = [NEWEST, BEGINNING, "request before that"];

/// The words for a message that has none.
const WORDLESS: &str = "[no words: an image or a file]";

/// The words for a message that cannot be told so that it is understood. It is the current task and is not shown.
const UNTOLD: &str = "";

/// The words for a current task that is the session's first request.
pub(super) const FIRST_REQUEST_TEXT: &str = "The first request.";

/// Notes a message of the user, in sentences and their `clauses`.
pub(super) fn read_request(
    ledger: &mut ItemSet,
    at: Seq,
    sentences: &[Sentence],
    clauses: &[SentenceClauses],
    whole: &str,
) {
    if clauses.iter().any(|clauses| clauses.has_marker(MarkerRole::NewPlan)) {
        ledger.clear(SummarySection::NextSteps);
    }
    let said: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let said = if said.is_empty() { whole.to_owned() } else { said.join(" ") };
    let first = ledger.get(SummarySection::SessionIntent, FIRST_REQUEST_KEY).is_none();
    let mut text = one_line(&said, if first { FIRST } else { MAX_ITEM_CHARS });
    if clauses.iter().any(SentenceClauses::withdraws_constraint) {
        let before = messages(ledger).into_iter().next();
        let (asked, ruled) = (before.as_ref().and_then(|before| before.sources.last()), newest_rule(ledger));
        if let Some(message) = asked.max(ruled) {
            withdraw_all(ledger, message, at, &text);
        }
        if let Some(before) = before.filter(|_| asked > ruled) {
            text = one_line(
                &format!("{text} (takes back: {})", one_line(&before.text, MAX_ITEM_CHARS / 2)),
                MAX_ITEM_CHARS,
            );
            ledger.retire(SummarySection::SessionIntent, before.identity());
            for key in TASKS {
                let task = ledger.get(SummarySection::CurrentTask, key);
                if task.is_some_and(|task| task.sources == before.sources) {
                    ledger.remove(SummarySection::CurrentTask, key);
                }
            }
        }
    }
    become_task(ledger, at, if first { FIRST_REQUEST_TEXT } else { &text });
    let key = first.then(|| FIRST_REQUEST_KEY.to_owned());
    let request = SummaryItem::new(SummarySection::SessionIntent, text, SeqSet::one(at));
    ledger.put(SummaryItem { key, ..request });
}

/// Makes a message the current task.
fn become_task(ledger: &mut ItemSet, at: Seq, text: &str) {
    let question =
        ledger.get(SummarySection::CurrentTask, REPORT_KEY).map(|report| question(&report.text).to_owned());
    let [newest, beginning] =
        [NEWEST, BEGINNING].map(|key| ledger.get(SummarySection::CurrentTask, key).cloned());
    // Whatever else was said of an earlier request is past.
    ledger.clear(SummarySection::CurrentTask);
    // What was not reported on is still worked on, and before it was asked nobody asked for anything else.
    if let Some(open) = beginning.or(newest).filter(|_| question.is_none()) {
        ledger.put(SummaryItem { key: Some(BEGINNING.to_owned()), ..open });
    }
    let question = question.filter(|question| !question.is_empty() && length(text) < ANSWER);
    let text = match question {
        Some(question) if question.contains(CUT_MARK) => UNTOLD.to_owned(),
        Some(question) => format!("{text} (answers: “{question}”)"),
        None => text.to_owned(),
    };
    put_task(ledger, text, SeqSet::one(at));
}

fn put_task(ledger: &mut ItemSet, text: String, sources: SeqSet) {
    let task = SummaryItem::new(SummarySection::CurrentTask, text, sources);
    ledger.put(SummaryItem { key: Some(NEWEST.to_owned()), ..task });
}

/// The question that a text ends with; empty if it ends otherwise.
fn question(text: &str) -> &str {
    const ASKS: [char; 3] = ['?', '？', '؟'];
    let text = text.trim_end_matches(|letter: char| letter.is_whitespace() || "*\"”)_".contains(letter));
    let Some(words) = text.strip_suffix(ASKS) else { return "" };
    let ends = |(at, letter): (usize, char)| {
        let at = at + letter.len_utf8();
        let is_end = ".!:".contains(letter) && words[at..].starts_with(' ');
        (is_end || ASKS.contains(&letter) || "。！".contains(letter)).then_some(at)
    };
    text[words.char_indices().filter_map(ends).next_back().unwrap_or_default()..].trim()
}

/// Puts what the user answered to a tool in the place of a request that was a question: they have settled it themselves.
pub(super) fn settle_question(ledger: &mut ItemSet, at: Seq, text: &str) {
    let asked = |message: &SummaryItem| !question(&message.text).is_empty();
    let Some(newest) = messages(ledger).into_iter().next().filter(asked) else { return };
    let task = ledger.get(SummarySection::CurrentTask, NEWEST);
    if task.is_some_and(|task| task.sources == newest.sources) {
        ledger.remove(SummarySection::CurrentTask, NEWEST);
        put_task(ledger, text.to_owned(), SeqSet::one(at));
    }
}

/// Whether the newest request was reported on, and nothing was asked in the report.
pub(super) fn is_reported(ledger: &ItemSet) -> bool {
    let report = ledger.get(SummarySection::CurrentTask, REPORT_KEY);
    report.is_some_and(|report| question(&report.text).is_empty())
}

/// Says what the current task is by now.
pub(super) fn update_current_task(ledger: &mut ItemSet) {
    for key in TASKS {
        if ledger.get(SummarySection::CurrentTask, key).is_some_and(|task| task.text == UNTOLD) {
            ledger.remove(SummarySection::CurrentTask, key);
        }
    }
    let messages = messages(ledger);
    if messages.is_empty() {
        return;
    }
    if let Some(owner) = taken_up_again(ledger, &messages) {
        for key in TASKS {
            ledger.remove(SummarySection::CurrentTask, key);
        }
        let is_first = owner.key.as_deref() == Some(FIRST_REQUEST_KEY);
        let text = if is_first { FIRST_REQUEST_TEXT.to_owned() } else { owner.text.clone() };
        put_task(ledger, text, owner.sources.clone());
    }
}

/// Where the open loop began, or where the newest request was made that says something by itself: what failed before and was
/// not tried again since is past.
pub(super) fn current_work_start(ledger: &ItemSet) -> Seq {
    let open = TASKS.iter().filter_map(|key| ledger.get(SummarySection::CurrentTask, key));
    let open = open.min_by_key(|task| task.sources.first()).filter(|task| task.text != FIRST_REQUEST_TEXT);
    let newest = long_places(&messages(ledger)).first().copied();
    open.and_then(|task| task.sources.first()).max(newest).unwrap_or_default()
}

/// The places of messages that say something by themselves.
fn long_places(messages: &[SummaryItem]) -> Vec<Seq> {
    let long = messages.iter().filter(|message| length(&message.text) >= SHORT);
    long.filter_map(|message| message.sources.last()).collect()
}

/// The earlier request that is worked on again: the newest one was reported on, and after that steps went on which were
/// planned before it.
fn taken_up_again<'m>(ledger: &ItemSet, messages: &'m [SummaryItem]) -> Option<&'m SummaryItem> {
    let reported = ledger.get(SummarySection::CurrentTask, REPORT_KEY)?.sources.last();
    let step = recorded_steps(ledger).into_iter().max_by_key(|step| step.sources.last())?;
    let planned = step.sources.first();
    let newest = messages
        .first()
        .filter(|newest| step.sources.last() > reported && planned < newest.sources.last())?;
    let owner = messages.iter().find(|message| message.sources.last() < planned)?;
    // What is only counted by now may have been asked in between.
    let is_known = owner.key.is_none() || !ledger.has_folded(SummarySection::SessionIntent);
    (is_known && owner != newest).then_some(owner)
}

/// The steps that agents wrote down by their tools.
fn recorded_steps(ledger: &ItemSet) -> Vec<SummaryItem> {
    ledger.newest(SummarySection::NextSteps).filter(|item| is_recorded(item)).cloned().collect()
}

/// Whether a step was written down by a tool of the agent.
fn is_recorded(step: &SummaryItem) -> bool {
    matches!(step.detail, Some(ItemDetail::Step(StepOrigin::Plan | StepOrigin::Tracked)))
}

impl StructuredSummary {
    /// Whether a step was recorded before something was asked or done. Agents write down late what they have done, and a newer
    /// request may want something else: whether that step is still to do, nobody can know.
    pub fn is_overtaken(&self, step: &SummaryItem) -> bool {
        let overtakes = |item: &SummaryItem| match item.section {
            SummarySection::SessionIntent => length(&item.text) >= SHORT,
            SummarySection::FilesModified => true,
            SummarySection::Commands => !shows_content(item.identity()),
            _ => false,
        };
        is_recorded(step)
            && self.items.iter().any(|item| item.sources.last() > step.sources.last() && overtakes(item))
    }
}

/// The messages of the user that are known, the newest first.
fn messages(ledger: &ItemSet) -> Vec<SummaryItem> {
    let own = |item: &&SummaryItem| item.key.as_deref().is_none_or(|key| key == FIRST_REQUEST_KEY);
    let mut messages: Vec<SummaryItem> =
        ledger.newest(SummarySection::SessionIntent).filter(own).cloned().collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.sources.last()));
    messages
}

/// What a message of the user asks, in its own words: a picture alone is a request without any.
pub(super) fn request_text(parts: &[ContentPart]) -> String {
    let words = user_words_of(parts);
    let has_media = parts.iter().any(|part| matches!(part, ContentPart::Media(_)));
    let is_blank = ContentPart::texts(parts).all(|text| text.trim().is_empty());
    if has_media && is_blank { WORDLESS.to_owned() } else { words }
}

/// Whether a message asks for nothing of its own: a bare command to the client, such as `/mode`, or a single short word, by
/// which one greets, thanks or agrees.
pub(super) fn has_no_request(text: &str) -> bool {
    const WORD: usize = 12;
    let text = text.trim();
    let name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':');
    let command = text.strip_prefix('/').is_some_and(|rest| rest.chars().all(name));
    command || text.len() <= WORD && !text.contains(char::is_whitespace)
}
