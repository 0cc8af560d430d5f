//! What the assistant said: decisions, approaches that failed and what worked instead, what is left to do.
//!
//! A sentence is taken whole, with its neighbour where it only points to it (`That didn't work.`) or gives its reason
//! (`It needs no server.`), so that an item can be read alone.

use std::collections::BTreeSet;

use super::{
    Detail, Ending, Item, Section, StepOrigin,
    cues::{
        ANEW, ATTEMPTS, CONTRASTS, Cues, DECISIONS, DOUBTS, FAILURES, FOUND, GIVEN_UP, GROUNDS, INTENTIONS,
        LEFT, NEXT, PLANS, REASONS, SUCCESSES, VAIN,
    },
    ledger::Ledger,
    prose::{Form, Sentence, one_line, sentences},
    topic::{is_shared, topic},
    wishes::{ITEM, LOOK_BACK, announced, is_courtesy, is_report, is_vague, item},
    work::{Failed, Work, key},
};
use crate::{id::Seq, seq_set::SeqSet};

/// How long the tale of an attempt may be, in characters.
pub(super) const TALE: usize = 480;

/// How many events later a success still belongs to an attempt.
const FAR: u64 = 80;

/// How many entries of one list of next steps are taken one by one.
const STEPS: usize = 30;

/// The key of the assistant's last words, among the current task.
pub(super) const LAST_WORDS: &str = "last words";

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// The user, asking for the first time: what they tell is how things are.
    Newcomer,
    /// The user.
    User,
    /// The assistant.
    Assistant,
}

/// Where an answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Tools are called with it.
    Working,
    /// Nothing is called: it hands over to the user.
    Closing,
}

/// What is remembered of what the assistant said, from answer to answer.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// What it was last about to try.
    plan: Option<(Seq, String)>,
    /// Attempts whose ending is not known, oldest first.
    open: Vec<(Seq, String)>,
    /// When the assistant last spoke.
    spoke: Seq,
    /// Whether the user's last message asked something that nobody has answered yet.
    asked: bool,
    /// Whether the assistant's last words offered a choice.
    offered: bool,
}

impl Speech {
    /// Goes on where the summary before stopped.
    pub(super) fn carrying(ledger: &Ledger) -> Self {
        let open = ledger
            .newest(Section::FailedApproaches)
            .filter(|item| item.detail == Some(Detail::Attempt(Ending::Open)));
        let mut open: Vec<(Seq, String)> = open
            .take(3)
            .filter_map(|item| Some((item.sources.last()?, item.identity().to_owned())))
            .collect();
        open.reverse();
        let last_words = ledger.get(Section::CurrentTask, LAST_WORDS);
        let offered = last_words.is_some_and(|item| sentences(&item.text).last().is_some_and(offers));
        Self { open, offered, ..Self::default() }
    }

    /// Takes what a user says: what they decide, also by answering, and what is still to come.
    pub(super) fn reply(&mut self, ledger: &mut Ledger, at: Seq, sentences: &[Sentence], speaker: Speaker) {
        let said: Vec<&Sentence> = sentences.iter().filter(|sentence| !is_courtesy(sentence)).collect();
        let mut decided = false;
        // Whoever hands over a report tells what others decided.
        if !is_report(sentences) {
            for index in 0..sentences.len() {
                decided |= decide(ledger, at, sentences, index, speaker);
            }
        }
        if self.offered
            && !decided
            && let Some(first) = said.first().filter(|first| !first.asks())
        {
            let reason = said.get(1).map_or("", |next| next.text.as_str());
            put_decision(ledger, at, first, &format!("{} {reason}", first.text));
        }
        let mut index = 0;
        while index < sentences.len() {
            let sentence = &sentences[index];
            index += 1;
            if !announced(sentence) || is_courtesy(sentence) {
                continue;
            }
            let mut text = sentence.text.clone();
            // `And maybe fuzz it!` goes on with what was announced.
            while let Some(next) =
                sentences.get(index).filter(|next| matches!(next.word(0), "and" | "also" | "then"))
            {
                text = format!("{text} {}", next.text);
                index += 1;
            }
            step(ledger, at, &text);
        }
        self.asked = said.iter().any(|sentence| sentence.asks());
        self.offered = false;
    }

    /// Takes what an answer says.
    pub(super) fn take(
        &mut self,
        ledger: &mut Ledger,
        work: &mut Work,
        at: Seq,
        sentences: &[Sentence],
        answer: Answer,
    ) {
        let mut told = 0;
        let mut decided = decide_list(ledger, at, sentences);
        for index in 0..sentences.len() {
            let sentence = &sentences[index];
            decided |= decide(ledger, at, sentences, index, Speaker::Assistant);
            if index < told {
                continue;
            }
            if is_failure(sentence) || self.is_overtaken(work, at, sentences, index) {
                told = self.fail(ledger, work, at, sentences, index);
            } else if is_success(sentence) {
                self.succeed(ledger, at, sentence);
            }
            if FAILURES.are_in(sentence) || REASONS.are_in(sentence) {
                work.explain(at, &sentence.text);
            }
        }
        if std::mem::take(&mut self.asked) && !decided {
            explain(ledger, at, sentences);
        }
        steps(ledger, at, sentences, answer);
        self.offered = sentences.last().is_some_and(offers);
        self.spoke = at;
        let plan = sentences.iter().rev().find(|sentence| PLANS.are_in(sentence));
        if let Some(plan) = plan.or_else(|| sentences.last()) {
            self.plan = Some((at, plan.text.clone()));
        }
    }

    /// Whether what a sentence says was in vain, though it does not say so: the next one says what works, or it is the
    /// first thing said after something failed and the next one says what to do about it.
    fn is_overtaken(&self, work: &Work, at: Seq, sentences: &[Sentence], index: usize) -> bool {
        let sentence = &sentences[index];
        let Some(next) = sentences.get(index + 1) else { return false };
        if sentence.form == Form::Title
            || sentence.asks()
            || next.asks()
            || is_courtesy(sentence)
            || SUCCESSES.are_in(sentence)
        {
            return false;
        }
        let after_failure =
            || index == 0 && work.newest_failure(at).is_some_and(|failed| self.speaks_of(failed, sentence));
        next.word(0) == "instead" || FOUND.are_in(next) || after_failure()
    }

    /// Whether a sentence is the first since something failed, and about that.
    fn speaks_of(&self, failed: &Failed, sentence: &Sentence) -> bool {
        let told = format!("{} {}", failed.subject.replace(['_', '/', '`'], " "), failed.words);
        let about: BTreeSet<String> = sentences(&told).iter().flat_map(topic).collect();
        failed.sources.last().is_some_and(|last| self.spoke < last)
            && sentence.words.len() > 3
            && !topic(sentence).is_disjoint(&about)
    }

    /// Tells of a failed approach; gives back the place of the first sentence that is not part of the tale.
    fn fail(
        &mut self,
        ledger: &mut Ledger,
        work: &Work,
        at: Seq,
        sentences: &[Sentence],
        index: usize,
    ) -> usize {
        let mut sources = SeqSet::one(at);
        let mut tale = String::new();
        if is_vague(&sentences[index]) {
            if let Some(before) = index.checked_sub(1) {
                tale = format!("{} ", sentences[before].text);
            } else if let Some((plan_at, plan)) = self.plan.take_if(|(plan_at, _)| at.0 - plan_at.0 <= FAR) {
                sources.insert(plan_at);
                tale = format!("{} ", one_line(&plan, ITEM / 2));
            }
        }
        if let Some(failed) = work.newest_failure(at) {
            sources.extend(&failed.sources);
            if tale.is_empty() && is_vague(&sentences[index]) {
                tale = format!("{}: {} — ", failed.subject, one_line(&failed.words, ITEM / 2));
            }
        }
        let mut end = index;
        let mut goes_on = true;
        while goes_on && end < sentences.len() && sentences[end].form != Form::Title {
            let sentence = &sentences[end];
            if end > index && tale.chars().count() + sentence.text.chars().count() >= TALE {
                break;
            }
            tale.push_str(&sentence.text);
            tale.push(' ');
            end += 1;
            // The sentence after the last one about the failure says what is done instead.
            goes_on = is_failure(sentence) || ANEW.are_in(sentence) || end == index + 1;
        }
        let text = one_line(&tale, TALE);
        let identity = key(&text);
        let known = sentences[index..end].iter().any(|one| SUCCESSES.are_in(one) && !DOUBTS.are_in(one));
        let ending = if known { Ending::Known } else { Ending::Open };
        let new = Item {
            section: Section::FailedApproaches,
            text,
            key: Some(identity.clone()),
            sources,
            detail: Some(Detail::Attempt(ending)),
        };
        ledger.put(new);
        if ending == Ending::Open {
            self.open.push((at, identity));
            if self.open.len() > 3 {
                self.open.remove(0);
            }
        }
        end.max(index + 1)
    }

    /// Ends the attempts that are open: this is what worked.
    fn succeed(&mut self, ledger: &mut Ledger, at: Seq, sentence: &Sentence) {
        for (failed_at, identity) in std::mem::take(&mut self.open) {
            let Some(attempt) = ledger.get(Section::FailedApproaches, &identity) else { continue };
            if at.0 - failed_at.0 > FAR {
                continue;
            }
            let room = TALE.saturating_sub(attempt.text.chars().count() + 3).max(120);
            let text = format!("{} → {}", attempt.text, one_line(&sentence.text, room));
            let detail = Some(Detail::Attempt(Ending::Known));
            let key = Some(identity);
            ledger.put(Item { key, ..item(Section::FailedApproaches, text, at, detail) });
        }
    }
}

/// Notes a decision with its reason, and says whether it was one. One that gives up an earlier one takes its place.
fn decide(ledger: &mut Ledger, at: Seq, sentences: &[Sentence], index: usize, speaker: Speaker) -> bool {
    let sentence = &sentences[index];
    if sentence.asks() || sentence.form == Form::Title || !is_decision(sentences, index, speaker) {
        return false;
    }
    let before = index.checked_sub(1).map(|before| &sentences[before]).filter(|one| one.form != Form::Title);
    let after = sentences.get(index + 1).filter(|next| next.form == sentence.form);
    let draws =
        matches!(sentence.word(0), "so" | "therefore" | "hence" | "thus" | "thats" | "that" | "this" | "it");
    let mut text = sentence.text.clone();
    if let Some(before) = before.filter(|before| (draws || is_vague(sentence)) && !is_courtesy(before)) {
        text = format!("{} {text}", before.text);
    } else if let Some(after) = after.filter(|_| !REASONS.are_in(sentence)) {
        text = format!("{text} {}", after.text);
    }
    put_decision(ledger, at, sentence, &text);
    true
}

fn put_decision(ledger: &mut Ledger, at: Seq, sentence: &Sentence, text: &str) {
    let mut new = item(Section::KeyDecisions, one_line(text, ITEM), at, None);
    if GIVEN_UP.are_in(sentence)
        && let Some(old) = superseded(ledger, at, sentence)
        && let Some(old) = ledger.strike(Section::KeyDecisions, &old)
    {
        new.sources.extend(&old.sources);
    }
    ledger.put(new);
}

/// Notes each entry of a list under a title that speaks of decisions.
fn decide_list(ledger: &mut Ledger, at: Seq, sentences: &[Sentence]) -> bool {
    let mut under = false;
    let mut decided = false;
    for sentence in sentences {
        match sentence.form {
            Form::Title => under = DECISIONS.are_in(sentence),
            Form::Listed if under => {
                put_decision(ledger, at, sentence, &sentence.text);
                decided = true;
            }
            Form::Listed => {}
            Form::Plain => under = false,
        }
    }
    decided
}

/// A reasoned answer to a question tells why something was chosen.
fn explain(ledger: &mut Ledger, at: Seq, sentences: &[Sentence]) {
    let opening: Vec<&Sentence> =
        sentences.iter().filter(|sentence| !is_courtesy(sentence)).take(2).collect();
    let Some(first) = opening.first() else { return };
    let weighs = first.text.contains(": ") && (first.has("i") || first.has("id") || first.has("ill"));
    let grounded = weighs || opening.iter().any(|sentence| GROUNDS.are_in(sentence));
    if grounded && !opening.iter().any(|sentence| is_failure(sentence)) {
        let text = opening.iter().map(|sentence| sentence.text.as_str()).collect::<Vec<_>>().join(" ");
        put_decision(ledger, at, first, &text);
    }
}

/// Whether a question leaves a choice: not `How may I help?`.
fn offers(sentence: &Sentence) -> bool {
    const CHOICES: [&str; 10] =
        ["should", "shall", "or", "which", "prefer", "want", "ok", "okay", "whether", "either"];
    sentence.asks()
        && !matches!(sentence.word(0), "how" | "what" | "where" | "why")
        && CHOICES.iter().any(|word| sentence.has(word))
}

fn is_decision(sentences: &[Sentence], index: usize, speaker: Speaker) -> bool {
    const UNDECIDED: [&str; 14] = [
        "havent", "hasnt", "not", "if", "whether", "could", "might", "either", "until", "before", "once",
        "when", "can", "need",
    ];
    const SPEAKERS: [&str; 16] = [
        "i", "ill", "ive", "im", "we", "well", "weve", "were", "lets", "use", "using", "keep", "keeping",
        "id", "my", "our",
    ];
    const PAST: [&str; 7] = ["the", "last", "yesterday", "this", "version", "then", "v"];
    let sentence = &sentences[index];
    let open = |range: std::ops::Range<usize>| {
        let before = &sentence.words[range.start.saturating_sub(3)..range.start];
        !before.iter().any(|word| UNDECIDED.contains(&word.text.as_str()))
    };
    let speaks = SPEAKERS.iter().any(|word| sentence.has(word));
    let reasoned = || {
        REASONS.are_in(sentence)
            || sentences
                .get(index + 1)
                .is_some_and(|next| REASONS.find(next).is_some_and(|range| range.start == 0))
    };
    // `since the upgrade` is a time.
    let grounded = GROUNDS.all(sentence).any(|range| {
        // `; otherwise say so` is a condition.
        if sentence.word(range.start) == "otherwise" && sentence.words[range.start].opens {
            return false;
        }
        sentence.word(range.start) != "since"
            || sentence.words[range.start].opens
            || !PAST.contains(&sentence.word(range.end))
    });
    let argued = match speaker {
        Speaker::Newcomer => false,
        Speaker::User => grounded || (sentence.has("should") && speaks && REASONS.are_in(sentence)),
        Speaker::Assistant => grounded && speaks && !is_failure(sentence),
    };
    let listed = any(&DECISIONS, sentence, |range| {
        // Of what the assistant finds to be out, more is told as a failed approach.
        open(range.clone())
            && (speaker != Speaker::Assistant || sentence.word(range.end.saturating_sub(1)) != "out")
    });
    argued
        || listed
        || (CONTRASTS.are_in(sentence) && speaks && !is_failure(sentence))
        || (any(&INTENTIONS, sentence, open) && reasoned())
}

fn any(cues: &Cues, sentence: &Sentence, is_meant: impl Fn(std::ops::Range<usize>) -> bool) -> bool {
    cues.all(sentence).any(is_meant)
}

/// The newest decision about the same, made elsewhere.
fn superseded(ledger: &Ledger, at: Seq, sentence: &Sentence) -> Option<String> {
    let about = topic(sentence);
    let shares = |item: &&Item| {
        let known = sentences(&item.text);
        let known = known.iter().flat_map(topic).collect();
        about.intersection(&known).count() >= 2 && is_shared(&known, &about)
    };
    let earlier = |item: &&Item| item.sources.last().is_some_and(|last| last < at);
    ledger
        .newest(Section::KeyDecisions)
        .take(LOOK_BACK)
        .filter(earlier)
        .find(shares)
        .map(|item| item.identity().to_owned())
}

fn is_failure(sentence: &Sentence) -> bool {
    if sentence.asks() || sentence.form == Form::Title {
        return false;
    }
    let meant = |range: std::ops::Range<usize>| {
        let before = range.start.checked_sub(1).map_or("", |before| sentence.word(before));
        let number = before.starts_with(|first: char| first.is_ascii_digit());
        !number && !matches!(before, "no" | "zero" | "none" | "if" | "without" | "nothing")
    };
    // `failed` by itself may describe something; at the end of a clause it is told of something.
    let failed = (0..sentence.words.len()).any(|at| {
        let next = sentence.words.get(at + 1);
        let ends = next.is_none_or(|next| {
            next.opens
                || matches!(
                    next.text.as_str(),
                    "as" | "because" | "since" | "when" | "at" | "on" | "with" | "due" | "again" | "and"
                )
        });
        sentence.word(at) == "failed" && ends && meant(at..at + 1)
    });
    failed
        || any(&FAILURES, sentence, meant)
        || (ATTEMPTS.all(sentence).any(|range| {
            let rest = Sentence {
                text: String::new(),
                words: sentence.words[range.end..].to_vec(),
                form: sentence.form,
            };
            meant(range) && VAIN.are_in(&rest)
        }))
}

fn is_success(sentence: &Sentence) -> bool {
    SUCCESSES.are_in(sentence) && !DOUBTS.are_in(sentence) && !sentence.asks() && sentence.form != Form::Title
}

/// Notes what is said to be left to do.
fn steps(ledger: &mut Ledger, at: Seq, sentences: &[Sentence], answer: Answer) {
    let mut index = 0;
    while index < sentences.len() {
        let sentence = &sentences[index];
        index += 1;
        if !is_left(sentence, answer) {
            continue;
        }
        let ends_open = sentence.form == Form::Title || sentence.text.ends_with(':');
        if !ends_open {
            step(ledger, at, &sentence.text);
            continue;
        }
        let first = index;
        while index < sentences.len() && index - first < STEPS {
            let next = &sentences[index];
            let listed = next.form == Form::Listed;
            if !listed && (index > first || next.form == Form::Title) {
                break;
            }
            step(ledger, at, &next.text);
            index += 1;
            if !listed {
                break;
            }
        }
    }
}

fn step(ledger: &mut Ledger, at: Seq, text: &str) {
    let text = one_line(text, ITEM);
    if !text.is_empty() {
        ledger.put(item(Section::NextSteps, text, at, Some(Detail::Step(StepOrigin::Words))));
    }
}

fn is_left(sentence: &Sentence, answer: Answer) -> bool {
    let meant = |range: std::ops::Range<usize>| {
        let before = &sentence.words[range.start.saturating_sub(2)..range.start];
        let none = before
            .iter()
            .any(|word| matches!(word.text.as_str(), "no" | "nothing" | "zero" | "without" | "none"));
        let word = sentence.word(range.start);
        let loose =
            matches!(word, "todo" | "todos" | "to" | "pending" | "not" | "tomorrow" | "afterwards" | "after");
        let opens = sentence.words[range.start].opens;
        // `the remaining files` are only files.
        let next = sentence.words.get(range.end);
        let counted =
            ["is", "are", "work", "steps", "tasks", "items", "todo", "todos", "points", "issues", "now"];
        let loose = loose
            || (word == "remaining"
                && next.is_some_and(|next| !next.opens && !counted.contains(&next.text.as_str())));
        !none && (!loose || opens || (answer == Answer::Closing && !matches!(word, "to" | "not")))
    };
    if sentence.asks() {
        return false;
    }
    // `After the demo: put it back.`
    let early = sentence.text.split_once(": ").is_some_and(|(when, _)| when.split_whitespace().count() <= 5);
    let put_off =
        early && matches!(sentence.word(0), "after" | "once" | "when" | "before" | "open" | "later");
    put_off || any(&LEFT, sentence, meant) || (answer == Answer::Closing && any(&NEXT, sentence, meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items that a row of answers gives, by section.
    fn check(answers: &[(&str, Answer)], section: Section, expect: &[&str]) {
        let mut ledger = Ledger::default();
        let (mut speech, mut work) = (Speech::default(), Work::default());
        for (seq, (text, answer)) in (1..).zip(answers) {
            speech.take(&mut ledger, &mut work, Seq(seq), &sentences(text), *answer);
        }
        let mut found: Vec<&str> = ledger.newest(section).map(|item| item.text.as_str()).collect();
        found.reverse();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_decision_comes_with_its_reason() {
        let check =
            |text: &str, expect: &[&str]| check(&[(text, Answer::Working)], Section::KeyDecisions, expect);
        check(
            "I decided to use SQLite because it needs no server.",
            &["I decided to use SQLite because it needs no server."],
        );
        check(
            "Going with Redis here. It is already deployed.",
            &["Going with Redis here. It is already deployed."],
        );
        check(
            "Celery needs a broker. So I'll go with cron.",
            &["Celery needs a broker. So I'll go with cron."],
        );
        check("I'll use a map instead of a list.", &["I'll use a map instead of a list."]);
        check("I'll use grep to find it.", &[]);
        check("We have not decided that yet.", &[]);
        check("Should we go with Redis?", &[]);
        check("It returns a list instead of a map.", &[]);
    }

    #[test]
    fn a_decision_that_gives_up_another_takes_its_place() {
        check(
            &[
                ("I chose Redis for the session store because it is fast.", Answer::Working),
                (
                    "Switching from Redis to Postgres for the session store since ops refuse it.",
                    Answer::Working,
                ),
            ],
            Section::KeyDecisions,
            &["Switching from Redis to Postgres for the session store since ops refuse it."],
        );
    }

    #[test]
    fn a_failed_approach_is_told_with_its_plan_and_what_worked() {
        check(
            &[
                ("Let me raise the pool size to 50.", Answer::Working),
                ("That didn't help. Still the same deadlock.", Answer::Working),
                ("A semaphore around the fetch works.", Answer::Closing),
            ],
            Section::FailedApproaches,
            &[
                "Let me raise the pool size to 50. That didn't help. Still the same deadlock. → A semaphore around the fetch \
               works.",
            ],
        );
        check(&[("All 12 tests pass, 0 failed.", Answer::Closing)], Section::FailedApproaches, &[]);
        check(&[("This approach is cleaner.", Answer::Closing)], Section::FailedApproaches, &[]);
    }

    #[test]
    fn what_is_left_is_listed_or_said_at_the_end() {
        check(
            &[("Done.\n\nNext steps:\n1. Add tests\n2. Update the docs\n\nBye.", Answer::Closing)],
            Section::NextSteps,
            &["Add tests", "Update the docs"],
        );
        check(
            &[("Remaining: wire up the flag.", Answer::Working)],
            Section::NextSteps,
            &["Remaining: wire up the flag."],
        );
        check(&[("Next I'll look at b.rs.", Answer::Working)], Section::NextSteps, &[]);
        check(&[("Nothing left to do.", Answer::Closing)], Section::NextSteps, &[]);
    }
}
