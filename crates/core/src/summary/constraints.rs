//! Constraints of the user: what holds until it is taken back, word for word.
//!
//! Only what users wrote themselves is read; what tools returned, hooks added or a project's files say never comes here. An
//! order that belongs to a request goes with the request, whose words are the current task as long as they are the newest.
//! What is not certainly meant for longer is left out: the trail has the user's words in order.

use super::{
    ConstraintForce, ItemDetail, SummaryItem, SummarySection,
    item_set::ItemSet,
    marker_words::{ClauseOrder, MarkerRole, SentenceClauses, is_equal, is_shared},
    requests::MAX_ITEM_CHARS,
    sentences::{Sentence, SentenceForm, one_line},
};
use crate::{id::Seq, seq_set::SeqSet};

/// A message with more sentences than this is a document for the most part.
const DOCUMENT: usize = 40;

/// How many constraints back a sentence is looked at for what it ends.
const LOOK_BACK: usize = 48;

/// Takes what a user wrote, in sentences: what holds from here on, and what no longer does. Gives their clauses, and whether
/// all of it says that, so that nothing else is asked for.
pub(super) fn read_constraints(
    ledger: &mut ItemSet,
    at: Seq,
    sentences: &[Sentence],
) -> (Vec<SentenceClauses>, bool) {
    let clauses: Vec<SentenceClauses> =
        sentences.iter().map(|sentence| SentenceClauses::of(&sentence.text)).collect();
    let is_document = sentences.len() > DOCUMENT;
    let first = ledger.newest(SummarySection::SessionIntent).next().is_none();
    // Somebody who only gives orders asks for nothing that could be done with.
    let orders_only = clauses.iter().all(|clauses| clauses.opening_order().is_some());
    let mut under_rules = false;
    let mut is_all = !sentences.is_empty();
    for (sentence, clauses) in sentences.iter().zip(&clauses) {
        under_rules = match sentence.form {
            SentenceForm::Title => clauses.is_rules_title(),
            SentenceForm::Listed => under_rules,
            SentenceForm::Plain | SentenceForm::Pasted => false,
        };
        let orders_nothing = clauses.is_question() || sentence.form == SentenceForm::Pasted;
        if orders_nothing || sentence.form == SentenceForm::Title {
            is_all &= !orders_nothing;
            continue;
        }
        let listed = under_rules && sentence.form == SentenceForm::Listed;
        let forbidden = clauses.opening_order().is_some()
            && (first || orders_only)
            && !clauses.is_for_this_request()
            && clauses.stands_alone();
        let standing = match clauses.opening_order() {
            Some(order) if is_document => {
                order != ClauseOrder::Forbidden && clauses.is_standing() && !orders_a_beginning(clauses)
            }
            _ if is_document || orders_a_beginning(clauses) => false,
            _ => {
                clauses.is_standing() && !clauses.topic().is_empty()
                    || forbidden
                    || clauses.assigned().is_some()
            }
        };
        let ended = if is_document { ConstraintEnd::Nothing } else { end(ledger, at, sentence, clauses) };
        if listed || standing || ended == ConstraintEnd::Replaced {
            let text = one_line(&sentence.text, MAX_ITEM_CHARS);
            let detail = Some(ItemDetail::Wish(ConstraintForce::Rule));
            let rule = SummaryItem::new(SummarySection::Constraints, text, SeqSet::one(at));
            ledger.put(SummaryItem { detail, ..rule });
            // An order behind something that is asked for leaves that to be done.
            is_all &= clauses.opening_order().is_some() || clauses.order().is_none();
        } else {
            is_all &= ended != ConstraintEnd::Nothing;
        }
    }
    (clauses, is_all)
}

/// Whether a sentence says what comes first: that is over once it was done.
fn orders_a_beginning(clauses: &SentenceClauses) -> bool {
    matches!(clauses.frame().first(), Some(&("start" | "begin")))
}

/// What became of earlier constraints by a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConstraintEnd {
    Nothing,
    /// One or more hold no longer.
    Withdrawn,
    /// The sentence holds in their place.
    Replaced,
}

/// Marks the constraints as ended that a sentence takes back or replaces.
fn end(ledger: &mut ItemSet, at: Seq, sentence: &Sentence, new: &SentenceClauses) -> ConstraintEnd {
    if !new.may_end_constraint() {
        return ConstraintEnd::Nothing;
    }
    let text = one_line(&sentence.text, MAX_ITEM_CHARS);
    let ended: Vec<(SummaryItem, ConstraintEnd)> = ledger
        .newest(SummarySection::Constraints)
        .take(LOOK_BACK)
        .filter(|item| holds(item) && item.sources.last() < Some(at) && item.text != text)
        .filter_map(|item| Some((item.clone(), replaces(new, &SentenceClauses::of(&item.text))?)))
        .collect();
    for (item, _) in &ended {
        withdraw(ledger, at, item, &text);
    }
    ended.iter().map(|(_, ended)| *ended).max().unwrap_or(ConstraintEnd::Nothing)
}

/// What a sentence makes of an earlier one; `None` if nothing.
fn replaces(new: &SentenceClauses, old: &SentenceClauses) -> Option<ConstraintEnd> {
    let (topic, about) = (new.topic(), old.topic());
    if let (Some(new), Some(old)) = (new.assigned(), old.assigned()) {
        return is_shared(&new, &old).then_some(ConstraintEnd::Replaced);
    }
    let opposite = matches!(
        (new.order(), old.order()),
        (Some(ClauseOrder::Always), Some(ClauseOrder::Never | ClauseOrder::Forbidden))
            | (Some(ClauseOrder::Never | ClauseOrder::Forbidden), Some(ClauseOrder::Always))
    );
    if opposite && is_equal(&topic, &about) {
        return Some(ConstraintEnd::Replaced);
    }
    if new.has_marker(MarkerRole::Ending) && is_shared(&topic, &about) {
        return Some(ConstraintEnd::Withdrawn);
    }
    let positive = !matches!(old.order(), Some(ClauseOrder::Never | ClauseOrder::Forbidden));
    let changes =
        new.changes_constraint() && (is_shared(&topic, &about) || is_same_frame(&new.frame(), &old.frame()));
    (changes || positive && new.order() != Some(ClauseOrder::Never) && new.refuses(&about))
        .then_some(ConstraintEnd::Replaced)
}

/// Whether two orders are the same but for one word: `answer in German`, `answer in French`.
fn is_same_frame(one: &[&str], other: &[&str]) -> bool {
    one.len() == other.len()
        && one.len() > 1
        && one.iter().zip(other).filter(|(one, other)| one != other).count() == 1
}

/// Where the newest constraint that holds was said.
pub(super) fn newest_rule(ledger: &ItemSet) -> Option<Seq> {
    let holding = ledger.newest(SummarySection::Constraints).filter(|item| holds(item));
    holding.filter_map(|item| item.sources.last()).max()
}

/// Whether a constraint was not taken back.
fn holds(item: &SummaryItem) -> bool {
    item.detail != Some(ItemDetail::Wish(ConstraintForce::Withdrawn))
}

/// Marks everything that holds because of a message as taken back.
pub(super) fn withdraw_all(ledger: &mut ItemSet, message: Seq, at: Seq, words: &str) {
    let of_message = |item: &&SummaryItem| item.sources == SeqSet::one(message);
    let items: Vec<SummaryItem> =
        ledger.newest(SummarySection::Constraints).filter(of_message).cloned().collect();
    for item in &items {
        withdraw(ledger, at, item, words);
    }
}

fn withdraw(ledger: &mut ItemSet, at: Seq, item: &SummaryItem, words: &str) {
    let text = format!(
        "No longer holds: {} (the user: {})",
        one_line(&item.text, MAX_ITEM_CHARS / 2),
        one_line(words, MAX_ITEM_CHARS / 2 - 30)
    );
    let (key, detail) = (item.identity().to_owned(), ItemDetail::Wish(ConstraintForce::Withdrawn));
    let past = SummaryItem::new(SummarySection::Constraints, text, SeqSet::one(at));
    ledger.put(SummaryItem { key: Some(key), detail: Some(detail), ..past });
}
