//! What the user wants: requests, constraints, and constraints taken back.
//!
//! Only what users wrote themselves is asked; what tools returned, hooks added or a project's files say never comes here.
//! A constraint that is missed is worse than a sentence too many, so that a rule needs only its cue, unless it is part of
//! a story; words which also describe (`only`, `always`) must not stand in a description.

use super::{
    Detail, Force, Item, Section,
    cues::{
        BOUNDS, FRIENDLY, LEFT, LIMITS, MANNER, MANNER_IF_BOUND, MEASURES, PREFERENCES, REQUESTS,
        RULE_TITLES, RULES, WITHDRAWALS, commands,
    },
    ledger::{FIRST_REQUEST, Ledger},
    prose::{Form, Sentence, one_line},
    stories::{describes, is_thought, is_told},
    topic::{is_shared, topic},
};
use crate::{id::Seq, seq_set::SeqSet};

/// How long an item is at most, in characters.
pub(super) const ITEM: usize = 300;

/// How long the first request may be.
const FIRST: usize = 600;

/// How many items back a withdrawal or a new decision looks for what it takes back.
pub(super) const LOOK_BACK: usize = 48;

/// The key of the newest request among the current task.
pub(super) const REQUEST: &str = "request";

/// Takes what a user wrote: every constraint in it, every one it takes back, and the request itself.
pub(super) fn hear(ledger: &mut Ledger, at: Seq, sentences: &[Sentence]) {
    let report = is_report(sentences);
    let mut under_rules = false;
    for (index, sentence) in sentences.iter().enumerate() {
        under_rules = match sentence.form {
            Form::Title => RULE_TITLES.are_in(sentence),
            Form::Listed => under_rules,
            Form::Plain => false,
        };
        if report && !under_rules && !is_addressed(sentence) {
            continue;
        }
        if WITHDRAWALS.are_in(sentence) && withdraw(ledger, at, sentence) {
            continue;
        }
        let listed = (under_rules && sentence.form == Form::Listed).then_some(Force::Rule);
        if let Some(force) = listed.or_else(|| force(sentence, index)) {
            let text = with_what_it_means(sentences, index, ITEM);
            let force = match ledger.get(Section::Constraints, &text) {
                Some(Item { detail: Some(Detail::Wish(before)), .. }) => force.max(*before),
                _ => force,
            };
            ledger.put(item(Section::Constraints, text, at, Some(Detail::Wish(force))));
        }
    }
}

/// Whether a message is so long that most of it is a report or a document, not what its sender wants.
pub(super) fn is_report(sentences: &[Sentence]) -> bool {
    const LONG: usize = 40;
    sentences.len() > LONG
}

/// Whether a sentence speaks to the reader: it orders something, or says `you`.
fn is_addressed(sentence: &Sentence) -> bool {
    const ORDERS: [&str; 12] =
        ["never", "always", "dont", "do", "only", "avoid", "keep", "use", "please", "make", "ensure", "must"];
    let plain = !sentence.text.starts_with(['*', '`', '|']);
    plain && (ORDERS.contains(&sentence.word(0)) || sentence.has("you") || sentence.has("must"))
}

/// The words for a current task that is the session's first request.
pub(super) const THE_FIRST_REQUEST: &str = "The first request.";

/// Notes what was asked for. Nothing is noted of a greeting or a nod; a later message that only says how to work, or
/// answers, is the current task but not what the session is about.
pub(super) fn request(ledger: &mut Ledger, at: Seq, sentences: &[Sentence], whole: &str) -> Asked {
    let said: Vec<(usize, &Sentence)> =
        sentences.iter().enumerate().filter(|(_, sentence)| !is_courtesy(sentence)).collect();
    let mut text = said.iter().map(|(_, sentence)| sentence.text.as_str()).collect::<Vec<_>>().join(" ");
    if sentences.is_empty() {
        whole.clone_into(&mut text);
    }
    let first = ledger.get(Section::SessionIntent, FIRST_REQUEST).is_none();
    text = one_line(&text, if first { FIRST } else { ITEM });
    if text.is_empty() || is_order_to_client(&text) {
        return Asked::Nothing;
    }
    let wanted = |(index, sentence): &(usize, &Sentence)| {
        (sentence.asks() || wants(sentence)) && force(sentence, *index).is_none() && !announced(sentence)
    };
    if first || sentences.is_empty() || said.iter().any(wanted) {
        let key = first.then(|| FIRST_REQUEST.to_owned());
        ledger.put(Item { key, ..item(Section::SessionIntent, text.clone(), at, None) });
    }
    ledger.strike(Section::CurrentTask, REQUEST);
    // The first request stands under the session's intent already.
    if first {
        THE_FIRST_REQUEST.clone_into(&mut text);
    }
    ledger.put(Item { key: Some(REQUEST.to_owned()), ..item(Section::CurrentTask, text, at, None) });
    Asked::Something
}

/// Whether a message is a bare command to the client, such as `/mode`: the model is not asked for anything.
pub(super) fn is_order_to_client(text: &str) -> bool {
    let name = text.trim().strip_prefix('/');
    name.is_some_and(|name| {
        !name.is_empty()
            && name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':'))
    })
}

/// Whether a sentence wants something done.
fn wants(sentence: &Sentence) -> bool {
    REQUESTS.all(sentence).any(|range| commands(sentence, range.start) || range.len() > 1)
}

/// Whether a message asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It did.
    Something,
    /// It did not.
    Nothing,
}

pub(super) fn item(section: Section, text: String, at: Seq, detail: Option<Detail>) -> Item {
    Item { section, text, key: None, sources: SeqSet::one(at), detail }
}

/// A sentence, with the one before it where it only says `it` or `that`.
pub(super) fn with_what_it_means(sentences: &[Sentence], index: usize, most: usize) -> String {
    let sentence = &sentences[index];
    match index.checked_sub(1).map(|before| &sentences[before]) {
        Some(before) if points(sentence) && !is_courtesy(before) => {
            one_line(&format!("{} {}", before.text, sentence.text), most)
        }
        _ => one_line(&sentence.text, most),
    }
}

/// Whether a sentence speaks of something it does not name.
fn points(sentence: &Sentence) -> bool {
    const POINTING: [&str; 12] =
        ["it", "its", "that", "this", "these", "those", "them", "they", "there", "either", "same", "such"];
    sentence.words.len() <= 12 && POINTING.iter().any(|word| sentence.has(word))
}

/// How much a sentence is meant as a constraint, if at all.
fn force(sentence: &Sentence, index: usize) -> Option<Force> {
    if sentence.form == Form::Title && sentence.words.len() <= 4 {
        return None;
    }
    let polite = ["can you", "could you", "would you", "will you", "can we", "could we"];
    let text = sentence.text.to_lowercase();
    if sentence.asks() && !polite.iter().any(|words| text.contains(words)) {
        return None;
    }
    if RULES.all(sentence).any(|range| !is_told(sentence, &range))
        || MEASURES.are_in(sentence)
        || dont(sentence)
        || no(sentence)
    {
        return Some(Force::Rule);
    }
    let manner = imperative(sentence, index) && !is_thought(sentence);
    let limited = || LIMITS.all(sentence).any(|range| !is_told(sentence, &range));
    if (limited() || has_deadline(sentence)) && (manner || !describes(sentence)) {
        return Some(Force::Rule);
    }
    let preferred = || PREFERENCES.all(sentence).any(|range| !is_told(sentence, &range));
    (manner || preferred()).then_some(Force::Preference)
}

/// `don't` as an order: not `the tests don't pass`, not `I don't know`.
fn dont(sentence: &Sentence) -> bool {
    const ORDERED_AFTER: [&str; 24] = [
        "please",
        "pls",
        "plz",
        "but",
        "and",
        "also",
        "just",
        "so",
        "you",
        "we",
        "i",
        "then",
        "or",
        "really",
        "simply",
        "absolutely",
        "to",
        "ok",
        "okay",
        "still",
        "again",
        "folks",
        "guys",
        "definitely",
    ];
    // Of themselves people mostly tell: `I don't see it`. These words demand.
    const DEMANDS: [&str; 12] = [
        "want", "wish", "accept", "allow", "need", "use", "do", "tolerate", "write", "ship", "merge", "touch",
    ];
    const THOUGHTS: [&str; 22] = [
        "know",
        "think",
        "understand",
        "see",
        "remember",
        "mind",
        "care",
        "get",
        "have",
        "believe",
        "recall",
        "worry",
        "feel",
        "expect",
        "like",
        "trust",
        "really",
        "even",
        "seem",
        "suppose",
        "quite",
        "blame",
    ];
    let words = &sentence.words;
    (0..words.len()).any(|at| {
        let (word, next) = match sentence.word(at) {
            "dont" | "donot" | "dnt" => (true, sentence.word(at + 1)),
            "do" if sentence.word(at + 1) == "not" => (true, sentence.word(at + 2)),
            _ => (false, ""),
        };
        let before = at.checked_sub(1).map_or("", |before| sentence.word(before));
        let ordered = words[at].opens || ORDERED_AFTER.contains(&before);
        let exempt = match before {
            "i" => !DEMANDS.contains(&next),
            "we" | "you" => THOUGHTS.contains(&next),
            _ => matches!(next, "worry" | "mind" | "know"),
        };
        word && ordered && !exempt && !next.is_empty()
    })
}

/// `no new files` as an order: not `no, that is wrong`, not `no problem`.
fn no(sentence: &Sentence) -> bool {
    const SAYINGS: [&str; 30] = [
        "problem",
        "problems",
        "worries",
        "idea",
        "luck",
        "longer",
        "thanks",
        "one",
        "way",
        "it",
        "i",
        "this",
        "that",
        "the",
        "wait",
        "not",
        "but",
        "you",
        "we",
        "hurry",
        "rush",
        "stress",
        "clue",
        "change",
        "difference",
        "doubt",
        "wonder",
        "errors",
        "error",
        "offense",
    ];
    // `no files included`, `no errors found`
    const FOUND: [&str; 9] =
        ["included", "found", "available", "exist", "exists", "provided", "given", "attached", "reported"];
    const DOUBTED: [&str; 20] = [
        "everything",
        "all",
        "every",
        "always",
        "much",
        "many",
        "sure",
        "that",
        "really",
        "yet",
        "bad",
        "so",
        "just",
        "even",
        "at",
        "because",
        "only",
        "necessarily",
        "bad",
        "too",
    ];
    (0..sentence.words.len()).any(|at| {
        let word = sentence.word(at);
        let joined = at.checked_sub(1).is_some_and(|before| {
            matches!(
                sentence.word(before),
                "and" | "but" | "so" | "please" | "with" | "pls" | "also" | "absolutely"
            )
        });
        let next = sentence.words.get(at + 1);
        // `a bar chart, not a pie`
        let not = word == "not" && at > 0 && sentence.words[at].opens;
        let found = || (at + 2..at + 5).any(|later| FOUND.contains(&sentence.word(later)));
        let no = matches!(word, "no" | "zero") && (sentence.words[at].opens || joined) && !found();
        (no && next.is_some_and(|next| !next.opens && !SAYINGS.contains(&next.text.as_str())))
            || (not && next.is_some_and(|next| !next.opens && !DOUBTED.contains(&next.text.as_str())))
    })
}

/// Whether a sentence says until when: `before 6am`, `by Friday`.
fn has_deadline(sentence: &Sentence) -> bool {
    const DAYS: [&str; 14] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "tonight",
        "noon",
        "midnight",
        "eod",
        "tomorrow",
        "today",
        "lunch",
    ];
    (0..sentence.words.len()).any(|at| {
        let next = sentence.word(at + 1);
        matches!(sentence.word(at), "before" | "by" | "until" | "till")
            && (DAYS.contains(&next) || next.starts_with(|first: char| first.is_ascii_digit()))
    })
}

/// Whether a sentence orders how to work.
fn imperative(sentence: &Sentence, index: usize) -> bool {
    (0..sentence.words.len()).filter(|at| commands(sentence, *at)).any(|at| {
        let verb = sentence.word(at);
        let bound = || sentence.words[at + 1..].iter().any(|word| BOUNDS.contains(&word.text.as_str()));
        let told = matches!(sentence.word(at + 1), "of" | "cases" | "case" | "up" | "to" | "like");
        // `Stop, that is wrong` orders nothing that holds on, `to expand and minimize it` nothing at all.
        let object = sentence.words.get(at + 1).is_some_and(|next| !next.opens);
        let infinitive = at >= 3 && sentence.word(at - 1) == "and" && sentence.word(at - 3) == "to";
        (MANNER.contains(&verb) && !told && object && !infinitive)
            || (MANNER_IF_BOUND.contains(&verb) && index > 0 && bound())
    })
}

/// Whether a sentence is only polite, or only agrees.
pub(super) fn is_courtesy(sentence: &Sentence) -> bool {
    const NODS: &[&str] = &[
        "a",
        "again",
        "ahead",
        "all",
        "alright",
        "and",
        "awesome",
        "bye",
        "cheers",
        "continue",
        "cool",
        "dear",
        "evening",
        "excellent",
        "fine",
        "go",
        "good",
        "great",
        "hello",
        "hey",
        "hi",
        "hiya",
        "hmm",
        "in",
        "is",
        "it",
        "job",
        "later",
        "lgtm",
        "looks",
        "lot",
        "me",
        "morning",
        "much",
        "nice",
        "now",
        "ok",
        "okay",
        "on",
        "oh",
        "perfect",
        "please",
        "pls",
        "proceed",
        "right",
        "so",
        "super",
        "sure",
        "thank",
        "thanks",
        "that",
        "thats",
        "the",
        "there",
        "this",
        "thx",
        "to",
        "very",
        "wait",
        "well",
        "work",
        "works",
        "yeah",
        "yep",
        "yes",
        "you",
    ];
    let nods = || sentence.words.iter().all(|word| NODS.contains(&word.text.as_str()));
    // Whoever names a file, a number or a piece of code is not only polite.
    let names_something =
        || sentence.text.contains(|letter: char| letter.is_ascii_digit() || "`/_\"#".contains(letter));
    let friendly = || {
        FRIENDLY.are_in(sentence)
            && force(sentence, 0).is_none()
            && !sentence.asks()
            && !wants(sentence)
            && !names_something()
    };
    (sentence.words.len() <= 6 && nods()) || (sentence.words.len() <= 10 && friendly())
}

/// Marks the newest constraint about the same as taken back, in the user's words.
fn withdraw(ledger: &mut Ledger, at: Seq, sentence: &Sentence) -> bool {
    let about = topic(sentence);
    let withdrawn = ledger
        .newest(Section::Constraints)
        .take(LOOK_BACK)
        .filter(|item| item.detail != Some(Detail::Wish(Force::Withdrawn)))
        .find(|item| super::prose::sentences(&item.text).iter().any(|known| is_shared(&topic(known), &about)))
        .cloned();
    let Some(withdrawn) = withdrawn else { return false };
    let key = withdrawn.identity().to_owned();
    let was = one_line(&withdrawn.text, ITEM / 2);
    let reason = one_line(&sentence.text, ITEM / 2 - 30);
    let text = format!("No longer holds: {was} (the user: {reason})");
    ledger.put(Item {
        key: Some(key),
        ..item(Section::Constraints, text, at, Some(Detail::Wish(Force::Withdrawn)))
    });
    true
}

/// Notes what a user says is still to come.
pub(super) fn announced(sentence: &Sentence) -> bool {
    LEFT.all(sentence).any(|range| match sentence.word(range.start) {
        "todo" | "todos" | "to" | "pending" => sentence.words[range.start].opens,
        _ => true,
    }) && !sentence.asks()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::prose::sentences;

    #[test]
    fn a_greeting_or_a_nod_is_courtesy_and_a_wish_is_not() {
        let nod = |text: &str| is_courtesy(&sentences(text)[0]);
        assert!(nod("Thanks, looks good!") && nod("Hi there") && nod("yes please") && !nod("yes but slower"));
        assert!(nod("I hope you are having a pleasant day.") && nod("Hellooo!") && nod("you rock!"));
        assert!(!nod("Thanks, but never do that again.") && !nod("Thanks for fixing a_b, now c"));
    }

    fn found(text: &str) -> Vec<(Force, String)> {
        let mut ledger = Ledger::default();
        hear(&mut ledger, Seq(1), &sentences(text));
        let mut found: Vec<(Force, String)> = ledger
            .newest(Section::Constraints)
            .map(|item| match item.detail {
                Some(Detail::Wish(force)) => (force, item.text.clone()),
                _ => panic!("a constraint without force"),
            })
            .collect();
        found.reverse();
        found
    }

    #[test]
    fn what_is_forbidden_or_demanded_is_a_rule() {
        for text in [
            "Never push to main.",
            "dont touch the billing folder pls",
            "Do NOT edit generated files",
            "You must keep Python 3.8 support.",
            "No new dependencies.",
            "Fix the parser, but no unsafe please.",
            "Only change src/auth, nothing else.",
            "The public API has to stay as it is.",
            "make sure that the tests stay green",
            "leave the migrations alone",
            "Please finish it without touching the lock file.",
            "It is not allowed to call the network in tests.",
            "Could you make sure the output is sorted?",
            "at most 3 retries",
            "Ask me before you delete anything.",
            "we dont use mocks here",
            "The build fails, but never push a fix to main.",
            "I don't want new files.",
            "I think you should only change the parser.",
            "We need to keep Python 3.8 working.",
            "There should be no new files.",
        ] {
            assert!(matches!(found(text)[..], [(Force::Rule, _)]), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn a_plain_imperative_of_manner_is_a_preference() {
        for text in [
            "Use tabs.",
            "Add a flag and use clap for it.",
            "I prefer small commits.",
            "Follow the style of the neighbouring files.",
            "we use pnpm in this repo",
            "Fix it. Write the comments in English.",
            "Whenever you add a file, add a test.",
            "Stop writing comments.",
        ] {
            assert!(matches!(found(text)[..], [(Force::Preference, _)]), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn a_story_a_question_or_a_task_is_no_constraint() {
        for text in [
            "The tests don't pass on my machine.",
            "I don't know why it fails.",
            "It only happens on Linux.",
            "It always crashes at startup.",
            "Why do we never flush the cache?",
            "no problem, thanks",
            "No, that is the old file.",
            "Add a --json flag to the export command.",
            "The login fails without the header.",
            "Please fix the typo in the README.",
            "I literally just setup this website and it's already popped... Files included: No files included here.",
            "test_finalize fails on CI about once in ten jobs and never on my machine.",
            "It works here but never on CI.",
            "alright, i think there's only one file left to fix up, tui.ts, read it in full",
            "ok, i manually removed almost all uses, except for the border.",
            "Stop, that is the wrong track.",
            "we still need to port over the selector",
            "ok, now we need to adjust the light theme accordingly.",
            "i don't tink the invalidate works correctly.",
            "if i change the theme, not everything updates correctly, like the list",
            "i suppose the workflow would be write .json, use /theme to preview",
            "let me try the theme real quick, then we should be good to go for a release",
            "The server runs on port 8000 and you can reach it from within the container.",
            "the box grows sometimes, which leads to expand and minimize the preview",
            "Add a counter, increased whenever the reaper leaves an upload alone.",
            "What does each reason mean, and when should they worry.",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn of_a_pasted_report_only_what_addresses_the_reader_is_a_constraint() {
        let report = "- **No tests** for this.\n- It never closes the file.\n".repeat(25);
        assert_eq!(found(&report), []);
        assert_eq!(found(&format!("{report}\nNever push.")), [(Force::Rule, "Never push.".to_owned())]);
    }

    #[test]
    fn a_constraint_that_only_points_brings_along_what_it_points_to() {
        assert_eq!(
            found("There is a folder called legacy. Don't touch it."),
            [(Force::Rule, "There is a folder called legacy. Don't touch it.".to_owned())]
        );
    }

    #[test]
    fn a_user_takes_a_constraint_back_with_a_reason() {
        let mut ledger = Ledger::default();
        hear(&mut ledger, Seq(1), &sentences("Never touch the migrations. No new dependencies."));
        hear(&mut ledger, Seq(5), &sentences("You can now change the migrations, the freeze is over."));
        let texts: Vec<String> = ledger.newest(Section::Constraints).map(|item| item.text.clone()).collect();
        assert_eq!(
            texts,
            [
                "No new dependencies.",
                "No longer holds: Never touch the migrations. (the user: You can now change the migrations, the freeze \
                 is over.)",
            ]
        );
    }

    #[test]
    fn a_nod_is_no_request_and_a_later_request_does_not_replace_the_first() {
        let mut ledger = Ledger::default();
        for (seq, text) in [
            (0, "/mode"),
            (1, "Hi! Add a cache."),
            (2, "/them"),
            (3, "ok thanks"),
            (5, "Now write the docs. Use British spelling."),
        ] {
            request(&mut ledger, Seq(seq), &sentences(text), text);
        }
        let texts: Vec<&str> = ledger.newest(Section::SessionIntent).map(|item| item.text.as_str()).collect();
        assert_eq!(texts, ["Now write the docs. Use British spelling.", "Add a cache."]);
        let task = ledger.get(Section::CurrentTask, REQUEST).unwrap();
        assert_eq!((task.text.as_str(), task.sources.to_string().as_str()), (texts[0], "5"));
    }
}
