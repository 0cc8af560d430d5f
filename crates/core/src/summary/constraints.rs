//! Constraints of the user: what holds until it is taken back, word for word.
//!
//! Only what users wrote themselves is read; what tools returned, hooks added or a project's files say never comes here. An
//! order that belongs to a request goes with the request, whose words are the current task as long as they are the newest.
//! What is not certainly meant for longer is left out: the trail has the user's words in order.

use super::{
    Detail, Force, Item, Section,
    ledger::Ledger,
    markers::{Clauses, Order, Role, is_equal, is_shared},
    prose::{Form, Sentence, one_line},
    requests::ITEM,
};
use crate::{id::Seq, seq_set::SeqSet};

/// A message with more sentences than this is a document for the most part.
const DOCUMENT: usize = 40;

/// How many constraints back a sentence is looked at for what it ends.
const LOOK_BACK: usize = 48;

/// How much of a message says what holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// All of it: nothing else is asked for.
    Whole,
    /// A part, or nothing.
    Part,
}

/// Takes what a user wrote, in sentences and their `clauses`: what holds from here on, and what no longer does.
pub(super) fn hear(ledger: &mut Ledger, at: Seq, sentences: &[Sentence], clauses: &[Clauses]) -> Heard {
    let is_document = sentences.len() > DOCUMENT;
    let first = ledger.newest(Section::SessionIntent).next().is_none();
    // Somebody who only gives orders asks for nothing that could be done with.
    let orders_only = clauses.iter().all(|clauses| clauses.opening_order().is_some());
    let mut under_rules = false;
    let mut heard = if sentences.is_empty() { Heard::Part } else { Heard::Whole };
    for (sentence, clauses) in sentences.iter().zip(clauses) {
        under_rules = match sentence.form {
            Form::Title => clauses.titles_rules(),
            Form::Listed => under_rules,
            Form::Plain => false,
        };
        if clauses.asks() || sentence.form == Form::Title {
            heard = if clauses.asks() { Heard::Part } else { heard };
            continue;
        }
        let listed = under_rules && sentence.form == Form::Listed;
        let forbidden = clauses.opening_order().is_some()
            && (first || orders_only)
            && !clauses.is_only_now()
            && clauses.stands_alone();
        let standing = match clauses.opening_order() {
            Some(order) if is_document => {
                order != Order::Forbidden && clauses.is_standing() && !orders_a_beginning(clauses)
            }
            _ if is_document || orders_a_beginning(clauses) => false,
            _ => {
                clauses.is_standing() && !clauses.topic().is_empty()
                    || forbidden
                    || clauses.assigned().is_some()
            }
        };
        let ended = if is_document { Ended::Nothing } else { end(ledger, at, sentence, clauses) };
        if listed || standing || ended == Ended::Replaced {
            let text = one_line(&sentence.text, ITEM);
            let detail = Some(Detail::Wish(Force::Rule));
            let sources = SeqSet::one(at);
            ledger.put(Item { section: Section::Constraints, text, key: None, sources, detail });
            // An order behind something that is asked for leaves that to be done.
            if clauses.opening_order().is_none() && clauses.order().is_some() {
                heard = Heard::Part;
            }
        } else if ended == Ended::Nothing {
            heard = Heard::Part;
        }
    }
    heard
}

/// Whether a sentence says what comes first: that is over once it was done.
fn orders_a_beginning(clauses: &Clauses) -> bool {
    matches!(clauses.frame().first(), Some(&("start" | "begin")))
}

/// What became of earlier constraints by a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Nothing,
    /// One or more hold no longer.
    Withdrawn,
    /// The sentence holds in their place.
    Replaced,
}

/// Marks the constraints as ended that a sentence takes back or replaces.
fn end(ledger: &mut Ledger, at: Seq, sentence: &Sentence, new: &Clauses) -> Ended {
    if !new.may_end_something() {
        return Ended::Nothing;
    }
    let text = one_line(&sentence.text, ITEM);
    let ended: Vec<(Item, Ended)> = ledger
        .newest(Section::Constraints)
        .take(LOOK_BACK)
        .filter(|item| item.detail != Some(Detail::Wish(Force::Withdrawn)) && item.sources.last() < Some(at))
        .filter(|item| item.text != text)
        .filter_map(|item| Some((item.clone(), replaces(new, &Clauses::of(&item.text))?)))
        .collect();
    for (item, _) in &ended {
        withdraw(ledger, at, item, &text);
    }
    match ended.iter().find(|(_, ended)| *ended == Ended::Replaced).or(ended.first()) {
        Some((_, ended)) => *ended,
        None => Ended::Nothing,
    }
}

/// What a sentence makes of an earlier one; `None` if nothing.
fn replaces(new: &Clauses, old: &Clauses) -> Option<Ended> {
    let (topic, about) = (new.topic(), old.topic());
    if let (Some(new), Some(old)) = (new.assigned(), old.assigned()) {
        return is_shared(&new, &old).then_some(Ended::Replaced);
    }
    let opposite = matches!(
        (new.order(), old.order()),
        (Some(Order::Always), Some(Order::Never | Order::Forbidden))
            | (Some(Order::Never | Order::Forbidden), Some(Order::Always))
    );
    if opposite && is_equal(&topic, &about) {
        return Some(Ended::Replaced);
    }
    if new.says(Role::Ending) && is_shared(&topic, &about) {
        return Some(Ended::Withdrawn);
    }
    let positive = !matches!(old.order(), Some(Order::Never | Order::Forbidden));
    let changes =
        new.changes_something() && (is_shared(&topic, &about) || is_same_frame(&new.frame(), &old.frame()));
    (changes || positive && new.order() != Some(Order::Never) && new.refuses(&about))
        .then_some(Ended::Replaced)
}

/// Whether two orders are the same but for one word: `answer in German`, `answer in French`.
fn is_same_frame(one: &[&str], other: &[&str]) -> bool {
    one.len() == other.len()
        && one.len() > 1
        && one.iter().zip(other).filter(|(one, other)| one != other).count() == 1
}

/// Where the newest constraint that holds was said.
pub(super) fn newest_rule(ledger: &Ledger) -> Option<Seq> {
    let holds = |item: &&Item| item.detail != Some(Detail::Wish(Force::Withdrawn));
    ledger.newest(Section::Constraints).filter(holds).filter_map(|item| item.sources.last()).max()
}

/// Marks everything that holds because of a message as taken back.
pub(super) fn withdraw_all(ledger: &mut Ledger, message: Seq, at: Seq, words: &str) {
    let of_message = |item: &&Item| item.sources == SeqSet::one(message);
    let items: Vec<Item> = ledger.newest(Section::Constraints).filter(of_message).cloned().collect();
    for item in &items {
        withdraw(ledger, at, item, words);
    }
}

fn withdraw(ledger: &mut Ledger, at: Seq, item: &Item, words: &str) {
    let text = format!(
        "No longer holds: {} (the user: {})",
        one_line(&item.text, ITEM / 2),
        one_line(words, ITEM / 2 - 30)
    );
    ledger.put(Item {
        section: Section::Constraints,
        text,
        key: Some(item.identity().to_owned()),
        sources: SeqSet::one(at),
        detail: Some(Detail::Wish(Force::Withdrawn)),
    });
}
