//! Stories: what people tell without wanting anything of the reader.
//!
//! A sentence may hold the words of a rule and only tell what happens, what somebody did or thinks, or what is to be done
//! next. These tests say so; whoever looks for constraints asks them.

use std::ops::Range;

use super::{cues::MANNER, prose::Sentence};

/// Words that say how something behaves.
const BEHAVIOUR: [&str; 35] = [
    "works",
    "fails",
    "crashes",
    "happens",
    "happened",
    "breaks",
    "throws",
    "returns",
    "hangs",
    "shows",
    "seems",
    "says",
    "got",
    "gets",
    "appears",
    "failed",
    "crashed",
    "saw",
    "noticed",
    "reported",
    "complains",
    "occurs",
    "takes",
    "took",
    "was",
    "were",
    "had",
    "did",
    "goes",
    "comes",
    "prints",
    "looks",
    "sees",
    "tried",
    "passes",
];

/// Whether the words of a rule, or of a limit, are only part of a story: `it must have been`, `I have to go`.
pub(super) fn is_told(sentence: &Sentence, range: &Range<usize>) -> bool {
    let before = range.start.checked_sub(1).map_or("", |before| sentence.word(before));
    let next = [sentence.word(range.end), sentence.word(range.end + 1)];
    match sentence.word(range.start) {
        "must" => match next {
            ["have", past] => {
                past.ends_with("ed") || matches!(past, "been" | "gone" | "had" | "done" | "come" | "got")
            }
            ["be", guess] => matches!(guess, "because" | "that" | "some" | "something" | "the"),
            _ => false,
        },
        "has" | "have" => matches!(before, "i" | "ive" | "they" | "will" | "might"),
        "never" => {
            matches!(next[0], "mind" | "seen" | "worked" | "had" | "heard" | "finished" | "happened")
                || goes_on_with(sentence, range.start)
        }
        "no" => next[0] == "what",
        "within" => before == "from",
        // `we need to fix it` is the next thing to do, `we need to keep it` a rule.
        "need" | "needs" => {
            matches!(before, "i" | "we" | "still" | "also" | "now" | "just")
                && range.len() == 2
                && sentence.word(range.start + 1) == "to"
                && next[0] != "be"
                && !MANNER.contains(&next[0])
        }
        "should" => {
            matches!(before, "when" | "what" | "how" | "why" | "where" | "who" | "which")
                || matches!(next, ["be", "good" | "fine" | "done" | "ready" | "ok" | "okay"])
        }
        // `raised whenever it is full` says what is to be built.
        "whenever" | "every" | "each" => {
            !sentence.words[range.start].opens && !matches!(next[0], "you" | "we" | "i")
        }
        _ => false,
    }
}

/// Whether a word goes on with what something does: `it fails here and never there`, not `it fails, but never push`.
fn goes_on_with(sentence: &Sentence, at: usize) -> bool {
    let joined = match at.checked_sub(1).map(|before| sentence.word(before)) {
        Some("and") => true,
        Some("but") => matches!(sentence.word(at + 1), "on" | "in" | "at" | "there" | "here" | "locally"),
        _ => false,
    };
    let behaves = || sentence.words[..at].iter().any(|word| BEHAVIOUR.contains(&word.text.as_str()));
    joined && !sentence.words[at].opens && behaves() && describes(sentence)
}

/// Whether a sentence tells how something behaves, what its speaker did, or what they think.
pub(super) fn describes(sentence: &Sentence) -> bool {
    const SUBJECTS: [&str; 8] = ["it", "this", "that", "they", "there", "he", "she", "which"];
    let starts_as_a_story =
        SUBJECTS.contains(&sentence.word(0)) && !sentence.has("should") && !sentence.has("must");
    let behaves = || BEHAVIOUR.iter().any(|word| sentence.has(word));
    !is_addressed(sentence) && (starts_as_a_story || behaves() || thinks(sentence) || recounts(sentence))
}

/// Whether a sentence only says what its speaker thinks: whatever it names is not ordered.
pub(super) fn is_thought(sentence: &Sentence) -> bool {
    thinks(sentence) && !is_addressed(sentence)
}

fn is_addressed(sentence: &Sentence) -> bool {
    ["you", "should", "shoud", "please", "we", "pls"].iter().any(|word| sentence.has(word))
}

/// `I think …`, `ok, I guess …`
fn thinks(sentence: &Sentence) -> bool {
    (0..4).any(|at| {
        sentence.word(at) == "i"
            && matches!(sentence.word(at + 1), "think" | "guess" | "suppose" | "believe" | "assume")
    })
}

/// `I removed …`, `I just setup …`
fn recounts(sentence: &Sentence) -> bool {
    (0..sentence.words.len()).filter(|at| matches!(sentence.word(*at), "i" | "ive")).any(|at| {
        let adverb =
            |word: &str| word.ends_with("ly") || matches!(word, "just" | "already" | "also" | "have");
        let verb = sentence.words[at + 1..].iter().map(|word| word.text.as_str()).find(|word| !adverb(word));
        verb.is_some_and(|verb| {
            (verb.ends_with("ed") && !matches!(verb, "need" | "feed" | "embed"))
                || matches!(verb, "setup" | "made" | "wrote" | "ran")
        })
    })
}
