//! Cues: the words by which people and models say that they demand, decide, gave up or are not done.
//!
//! A cue is a few words in a row; `..` in it stands for any words of the same sentence. The tables are data: what they
//! do not know is not found, what they know is found wherever it is said, and the rules that use them decide whether it
//! was meant.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

use super::prose::{Sentence, Word};

/// How many words `..` stands for at most.
const GAP: usize = 24;

/// A table of cues.
pub(super) struct Cues {
    by_first: HashMap<&'static str, Vec<Vec<&'static str>>>,
    /// By its first byte, how long a word may be with which a cue begins: most words are not looked up.
    lengths: [u32; 256],
}

impl Cues {
    fn new(cues: &[&'static str]) -> Self {
        let mut by_first: HashMap<&'static str, Vec<Vec<&'static str>>> = HashMap::new();
        let mut lengths = [0; 256];
        for cue in cues {
            let mut words = cue.split(' ');
            let first = words.next().unwrap_or_default();
            by_first.entry(first).or_default().push(words.collect());
            lengths[usize::from(first_byte(first))] |= length(first);
        }
        Self { by_first, lengths }
    }

    /// The cues that may begin with a word, without it.
    fn beginning_with(&self, word: &str) -> Option<&Vec<Vec<&'static str>>> {
        if self.lengths[usize::from(first_byte(word))] & length(word) == 0 {
            return None;
        }
        self.by_first.get(word)
    }

    /// Where the first cue stands in a sentence.
    pub(super) fn find(&self, sentence: &Sentence) -> Option<Range<usize>> {
        self.all(sentence).next()
    }

    /// Whether any cue stands in a sentence.
    pub(super) fn are_in(&self, sentence: &Sentence) -> bool {
        self.find(sentence).is_some()
    }

    /// Where cues stand in a sentence, in order.
    pub(super) fn all<'s>(&'s self, sentence: &'s Sentence) -> impl Iterator<Item = Range<usize>> + 's {
        let words = &sentence.words;
        (0..words.len()).filter_map(move |at| {
            let cues = self.beginning_with(&words[at].text)?;
            cues.iter().find_map(|rest| after(rest, words, at + 1)).map(|end| at..end)
        })
    }
}

fn first_byte(word: &str) -> u8 {
    word.as_bytes().first().copied().unwrap_or_default()
}

/// A bit for each length, the last for all that are longer.
fn length(word: &str) -> u32 {
    1 << word.len().min(31)
}

/// Where the rest of a cue ends, if it stands from `at` on.
fn after(rest: &[&str], words: &[Word], mut at: usize) -> Option<usize> {
    let mut rest = rest;
    while let Some((first, more)) = rest.split_first() {
        if *first == ".." {
            return (at..words.len().min(at + GAP)).find_map(|later| after(more, words, later));
        }
        if words.get(at).is_none_or(|word| word.text != *first) {
            return None;
        }
        at += 1;
        rest = more;
    }
    Some(at)
}

macro_rules! cues {
    ($($(#[$doc:meta])* $name:ident = [$($cue:literal),* $(,)?];)*) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Cues> = LazyLock::new(|| Cues::new(&[$($cue),*]));)*
    };
}

cues! {
    /// A rule, however the sentence is built.
    RULES = [
        "never", "nver", "must", "mustnt", "shall", "should not", "shouldnt", "not allowed", "isnt allowed",
        "arent allowed", "not permitted", "forbidden", "prohibited", "off limits", "hands off", "keep hands off",
        "no go", "under no circumstances", "in no case", "at all costs", "no matter what", "whatever you do",
        "whatever happens", "non negotiable", "not negotiable", "make sure", "makes sure", "be sure", "make certain",
        "keep in mind", "bear in mind", "take care that", "take care to", "be careful to", "be careful not",
        "no more than", "not more than", "no less than", "no later than", "not exceed", "leave .. alone",
        "leave .. as is", "leave .. as it is", "leave .. as they are", "leave .. untouched", "leave .. unchanged",
        "leave .. in place", "keep .. unchanged", "keep .. untouched", "keep .. as is", "keep .. as it is",
        "keep .. as they are", "keep .. the same", "keep .. intact", "keep .. compatible", "keep .. green",
        "keep .. stable", "keep .. working", "keep .. passing", "keep .. under", "keep .. below", "keep .. out of",
        "stay .. unchanged", "stays as", "stay as", "stays the same", "stay the same", "stays green", "stay green",
        "stay compatible", "stays compatible", "remain unchanged", "remain compatible", "remains unchanged",
        "backwards compatible", "backward compatible", "dont touch", "not touch", "not to touch", "no touching",
        "dont you dare", "not to be", "ask me before", "ask before", "ask first", "ask me first", "check with me",
        "without asking", "wait for my", "until i say", "until i confirm", "unless i", "only after i", "before you",
        "nothing but", "nothing else", "and nothing more", "is sacred", "are sacred", "non optional", "not optional",
        "is mandatory", "are mandatory", "is required", "are required", "is a must", "a hard requirement",
        "hard requirement", "hard rule", "hard limit", "hard constraint", "strict rule", "the rule is", "rule number",
        "house rule", "golden rule", "one rule", "requirement is", "condition is", "constraint is", "in any case keep",
        "has to", "have to", "need to be", "needs to be", "needs to stay", "need to stay", "needs to remain",
        "need to remain", "needs to keep", "needs to work", "needs to run", "needs to support", "want .. to stay",
        "want .. to remain", "want .. to keep", "dont want", "do not want", "didnt want", "not want", "wont accept",
        "will not accept", "do not accept", "dont accept", "not acceptable", "no excuses", "no exceptions",
        "without exception", "stay away from", "stay out of", "keep away from", "keep out of", "steer clear",
        "refrain from", "important that", "is important", "very important", "imperative that", "it is essential",
        "is essential", "is not for you", "not your business", "please not", "plz not", "pls not", "please no",
        "pls no", "please dont", "we cannot", "we cant", "we can not", "you cannot", "you cant", "you can not",
        "you may not", "may not be", "may only", "can only", "must only", "cannot be", "cant be", "can not be",
        "cannot change", "cant change", "cannot break", "cant break", "not break", "dont break", "we dont", "we do not",
        "not get", "is frozen", "are frozen", "frozen until", "read only", "readonly",
        "nothing may", "nothing must", "nothing should", "nobody may", "nobody should", "no one may", "none may", "before i", "before we", "before anything", "before any", "not without",
    ];
    /// A rule only where nobody merely describes something.
    LIMITS = [
        "only", "olny", "always", "allways", "without", "within", "exactly", "strictly", "ensure", "ensures", "except", "unless",
        "as long as", "until", "zero", "should", "shoud", "needs to", "need to", "deadline", "deadlines", "latest", "asap",
    ];
    /// A rule by its measure, also where something is described.
    MEASURES = [
        "at most", "at least", "maximum", "max", "at maximum", "minimum", "not a single", "no new", "no more", "no other",
        "no extra", "no additional", "no external", "no third", "has to be", "is limited to", "limit is", "limit of",
        "budget is", "cap is", "no later",
    ];
    /// The title of a list of rules.
    RULE_TITLES = [
        "rules", "rule", "constraints", "constraint", "requirements", "requirement", "conditions", "guidelines", "conventions",
        "limits", "restrictions", "ground rules", "please note", "important", "dos", "donts", "musts", "wishes",
    ];
    /// What somebody would like better.
    PREFERENCES = [
        "prefer", "preferably", "preferred", "preference", "id rather", "would rather", "rather than", "instead of",
        "rather have", "like better", "if possible", "ideally", "stick to", "stick with", "please use", "pls use",
        "plz use", "kindly use", "we use", "we only use", "we are using", "were using", "we are on", "were on",
        "we run on", "we still support", "our convention", "our conventions", "convention is", "our style",
        "style guide", "our policy", "policy is", "standard is", "favour", "favor", "would be nice if you", "i want you to use",
        "i would like you to", "id like you to", "i like", "i hate", "hate it when", "i love", "im allergic", "cant stand",
        "not a fan", "be brief", "be concise", "keep it simple", "keep it short", "keep it small", "remember to",
        "remember that", "from now on", "going forward", "in the future", "in future", "every time", "each time",
        "whenever",
    ];
    /// The user takes something back.
    WITHDRAWALS = [
        "forget about", "forget the", "forget what", "forget my", "ignore what i said", "ignore my", "ignore the rule",
        "ignore the earlier", "ignore that rule", "never mind", "nevermind", "scratch that", "no longer", "you can now",
        "you may now", "can now", "may now", "allowed now", "now allowed", "is allowed again", "its ok to", "it is ok to",
        "its okay to", "it is okay to", "its fine to", "it is fine to", "is fine now", "are fine now", "is ok now", "are ok now",
        "is okay now", "i lift", "lifted", "lift the", "drop the rule", "drop the requirement", "drop the constraint",
        "drop the restriction", "drop that rule", "doesnt apply", "does not apply", "not apply", "doesnt matter anymore",
        "dont need to .. anymore", "take that back", "take it back", "take back", "changed my mind", "change my mind",
        "after all", "you have permission", "go ahead and touch", "off the table", "not needed anymore", "isnt needed anymore",
        "not needed any more", "is not needed", "are not needed", "dont need",
    ];
    /// What is left, whoever says it and wherever.
    LEFT = [
        "next step", "next steps", "todo", "todos", "to do", "remaining", "remains to", "left to do", "still to do",
        "still left", "still open", "still need", "still needs", "still have to", "still has to", "still missing",
        "still pending", "pending", "not done yet", "not yet done", "not yet", "follow up", "followup", "follow ups", "outstanding",
        "open items", "open points", "open tasks", "whats left", "what is left", "up next", "action items", "to be done",
        "left for later", "leave for later", "for tomorrow", "tomorrow", "later on", "next up", "next thing", "next task",
        "afterwards", "after that", "when you are done", "once that is", "once this is", "once thats", "unfinished",
        "left over", "leftover", "leftovers", "needs doing", "to finish",
        "next week", "next month", "next sprint", "next time", "next session", "next release", "another day", "some day", "someday", "tmrw", "tmr", "tomorow", "tomorro", "are left", "is left", "things left", "left are", "left is", "points left", "are open", "is open", "open points", "open point", "open questions", "only thing open", "what remains", "remains open", "still remains", "to be continued",
        "things remain", "remain on", "points remain", "remain to", "open until", "open for", "only open",
    ];
    /// Somebody is friendly.
    FRIENDLY = [
        "hope you", "pleasant", "nice day", "good day", "great day", "how are you", "excited", "nice to meet", "thank", "thanks", "thx",
        "cheers", "bye", "goodbye", "byee", "the best", "you rock", "lunch", "back at", "see you", "good night", "have a", "love it", "amazing",
        "wonderful", "splendid", "lovely", "yay", "well done", "great job", "good job", "nice work", "welcome", "awesome", "fantastic",
        "brilliant", "cool", "haha", "hihi", "lol", "sorry", "until tomorrow", "good afternoon", "good morning", "good evening", "grateful",
        "appreciate", "no worries", "no problem", "my pleasure", "finally", "much nicer", "sounds great", "sounds good", "makes sense",
    ];
    /// Somebody wants something done.
    REQUESTS = [
        "please", "pls", "plz", "can you", "could you", "would you", "can we", "could we", "i need", "we need", "need", "i want", "we want",
        "id like", "i would like", "lets", "should", "i wish", "help", "add", "fix", "write", "make", "create", "implement", "refactor", "change",
        "update", "remove", "delete", "find", "look", "check", "investigate", "migrate", "rename", "move", "run", "test", "build", "deploy",
        "document", "explain", "show", "tell", "give", "do", "try", "commit", "merge", "review", "split", "extract", "convert", "port", "clean",
        "get", "set", "put", "roll", "wire", "describe", "produce", "analyse", "analyze", "repair", "teach", "drop", "start", "continue with",
        "switch", "replace", "upgrade", "install", "configure", "generate", "compare", "measure", "debug", "restructure", "read", "search",
        "instead", "now", "next", "forget", "revert", "undo", "finish", "publish", "release", "list", "draft", "translate", "summarise",
        "summarize", "optimise", "optimize", "reduce", "increase", "enable", "disable", "cancel", "book", "refund", "send", "call",
    ];
}

/// Verbs that, as an imperative, say how to work and not what to do.
pub(super) const MANNER: &[&str] = &[
    "use", "keep", "leave", "stick", "stay", "follow", "respect", "preserve", "maintain", "prefer", "avoid",
    "limit", "target", "ensure", "remember", "ask", "wait", "treat", "pin", "assume", "stop", "skip",
    "ignore", "support", "match", "reuse", "honour", "honor", "restrict", "retain", "mind", "adhere",
    "comply", "cap", "quit", "spare", "mock", "confirm", "consult", "reserve", "guard", "protect", "favour",
    "favor", "minimize", "minimise",
];

/// Verbs that say how to work if the sentence says when, where or with what.
pub(super) const MANNER_IF_BOUND: &[&str] = &[
    "write", "name", "put", "call", "format", "answer", "reply", "respond", "speak", "run", "commit", "test",
    "store", "place", "return", "document", "log", "work", "do", "make", "push", "merge", "squash", "prefix",
    "quote", "round", "report", "talk", "comment", "indent", "tag", "sign", "verify", "check", "save",
];

/// What binds such a verb.
pub(super) const BOUNDS: &[&str] = &[
    "in",
    "before",
    "after",
    "every",
    "each",
    "all",
    "as",
    "under",
    "inside",
    "everything",
    "whenever",
    "any",
    "small",
    "into",
];

/// Whether a word stands where an imperative begins: first in a clause, or after a word that joins or softens.
pub(super) fn commands(sentence: &Sentence, at: usize) -> bool {
    const JOINING: [&str; 20] = [
        "please", "pls", "plz", "kindly", "and", "but", "also", "just", "then", "so", "ok", "okay", "now",
        "again", "always", "yes", "no", "instead", "btw", "simply",
    ];
    let Some(word) = sentence.words.get(at) else { return false };
    word.opens || at.checked_sub(1).is_some_and(|before| JOINING.contains(&sentence.word(before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::prose::sentences;

    #[test]
    fn a_cue_is_words_in_a_row_and_may_have_a_gap() {
        let check = |cues: &Cues, text: &str, expect: Option<Range<usize>>| {
            assert_eq!(cues.find(&sentences(text)[0]), expect, "{text}");
        };
        let cues = Cues::new(&["keep .. unchanged", "make sure"]);
        check(&cues, "Please keep the API unchanged.", Some(1..5));
        check(&cues, "Keep it. Unchanged.", None);
        check(&cues, "Make very sure", None);
        check(&cues, "I want to make sure", Some(3..5));
    }

    #[test]
    fn an_imperative_opens_a_clause() {
        let check = |text: &str, at: usize, expect: bool| {
            assert_eq!(commands(&sentences(text)[0], at), expect, "{text}");
        };
        check("Use tabs", 0, true);
        check("Fix it and use tabs", 3, true);
        check("They use tabs", 1, false);
    }
}
