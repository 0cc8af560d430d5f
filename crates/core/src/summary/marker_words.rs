//! Marker words: by which a user says that something holds on, holds no more, holds only now, or is somebody's work.
//!
//! The table is short on purpose: it holds what leaves no doubt, in a few languages, and what it does not know is not
//! guessed at. A marker counts where an order has it, at the opening of a clause; inside of one the same word tells a
//! story: `never push`, but `it never worked`.
//!
//! Messages are long and markers rare, so one pass over a sentence finds which roles have a word in it at all, and the
//! others are not looked into.

use std::{cell::OnceCell, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What a marker does to a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerRole {
    /// It opens what holds until it is taken back.
    Always,
    Never,
    /// It opens an order not to do something, or to do nothing else.
    Forbidding,
    /// It ends an order, in a language that says so there, and makes one hold on.
    JapaneseEnd,
    JapaneseStanding,
    /// Whatever follows holds from here on, and replaces what was said of it before.
    FromNow,
    /// Something else than before is wanted.
    Changing,
    /// It stands before that which is wanted no more.
    InPlaceOf,
    /// Something holds no more; it is named with it.
    Ending,
    /// The message before is taken back, where a clause says nothing else.
    TakingBack,
    /// The plan that was made before is another now.
    NewPlan,
    /// It holds for what is being done now, and not longer.
    OnlyNow,
    /// Somebody has a piece of work, between who and what.
    Taking,
    /// It points at something which the sentence does not name.
    Pointing,
}

/// The markers, a row a role and group of languages.
const MARKERS: &[(MarkerRole, &[&str])] = &[
    (MarkerRole::Always, &["always", "immer", "toujours", "siempre", "دائما", "始终", "总是"]),
    (
        MarkerRole::Never,
        &["never", "nie", "niemals", "jamais", "nunca", "أبدا", "永远不要", "千万不要", "绝对不要"],
    ),
    (MarkerRole::Forbidding, &["do not", "dont", "no", "only", "nothing but", "must not", "may not"]),
    (
        MarkerRole::Forbidding,
        &["kein", "keine", "keinen", "nur", "ne", "لا", "ممنوع", "فقط", "不要", "禁止", "只能"],
    ),
    (MarkerRole::JapaneseEnd, &["ないで", "ください", "こと", "禁止", "禁止です"]),
    (MarkerRole::JapaneseStanding, &["絶対", "決して", "必ず", "常に", "いつも"]),
    (MarkerRole::FromNow, &["from now on", "going forward", "new rule", "ab jetzt", "künftig", "désormais"]),
    (MarkerRole::FromNow, &["a partir de ahora", "من الآن", "今後", "これからは", "从现在起", "以后"]),
    (
        MarkerRole::Changing,
        &["instead", "actually", "rather", "switch to", "stattdessen", "doch", "plutôt", "mejor"],
    ),
    (MarkerRole::Changing, &["بدلا", "代わりに", "やっぱり", "改用"]),
    (
        MarkerRole::InPlaceOf,
        &["not", "instead of", "rather than", "nicht", "statt", "au lieu de", "en vez de"],
    ),
    (
        MarkerRole::Ending,
        &["no longer", "anymore", "any more", "can now", "may now", "allowed again", "now allowed"],
    ),
    (MarkerRole::Ending, &["fine now", "ok now", "after all", "no need to", "dont need to", "forget about"]),
    (MarkerRole::Ending, &["forget what", "drop the rule", "nicht mehr", "kannst jetzt", "wieder erlaubt"]),
    (MarkerRole::Ending, &["peux maintenant", "ne plus", "ya no", "ahora puedes", "لم يعد", "يمكنك الآن"]),
    (MarkerRole::Ending, &["もういい", "てもいい", "解除", "不再", "现在可以"]),
    (
        MarkerRole::TakingBack,
        &["scratch that", "never mind", "nevermind", "forget that", "forget it", "ignore that"],
    ),
    (
        MarkerRole::TakingBack,
        &["cancel that", "vergiss das", "doch nicht", "laisse tomber", "oublie ça", "olvídalo"],
    ),
    (MarkerRole::TakingBack, &["انس ذلك", "今のなし", "忘れて", "取り消し", "算了", "当我没说"]),
    (MarkerRole::NewPlan, &["new plan", "change of plans", "neuer plan", "nouveau plan", "nuevo plan"]),
    (MarkerRole::NewPlan, &["خطة جديدة", "新しい計画", "新计划"]),
    (
        MarkerRole::OnlyNow,
        &["this time", "for now", "for this", "in this", "yet", "today", "diesmal", "vorerst"],
    ),
    (
        MarkerRole::OnlyNow,
        &["für diesen", "cette fois", "esta vez", "هذه المرة", "今回", "とりあえず", "这次"],
    ),
    (MarkerRole::Taking, &["takes", "takes over", "owns", "is responsible for", "übernimmt", "s occupe de"]),
    (MarkerRole::Taking, &["se encarga de", "يتولى", "担当", "负责"]),
    (MarkerRole::Pointing, &["it", "this", "that", "these", "those", "them", "das", "es"]),
    (MarkerRole::Pointing, &["这个", "これ", "それ", "هذا", "ذلك"]),
];

/// What is as long as the session is: `in this repo`.
const LASTING: &[&str] = &["repo", "repository", "project", "codebase", "session"];

/// What is no work that somebody takes: `it takes forever`.
const DURATIONS: &[&str] = &["forever", "long", "longer", "too", "a", "about", "up", "time", "place"];

/// Words before an order that change nothing of it.
const SOFTENERS: &[&str] = &[
    "please", "and", "but", "also", "so", "ok", "just", "then", "you", "should", "bitte", "und", "aber", "du",
];

/// What titles a list of rules.
const RULES: &[&str] = &["rules", "constraints", "regeln", "règles", "reglas", "قواعد", "ルール", "规则"];

/// After the word of an order, what makes it a saying or the beginning of a story.
const NO_ORDER: &[&str] = &[
    "mind", "problem", "worries", "worry", "idea", "need", "know", "think", "longer", "seen", "saw", "had",
    "been", "was", "one", "more", "the", "it", "i", "this", "that", "we", "you",
];

/// Words that say nothing of what a sentence is about.
const EMPTY: &[&str] = &[
    "the", "and", "for", "you", "can", "may", "are", "its", "not", "now", "all", "any", "use", "add", "with",
    "from", "into", "that", "this", "them", "then", "when", "will", "have", "has", "must", "should", "again",
    "fine", "ever", "just", "only", "please", "touch", "change", "make", "allowed", "our", "your", "der",
    "die", "das", "den", "auf", "und", "mit", "für", "les", "des", "una", "los", "las",
];

/// How a clause is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClauseOrder {
    /// To do something, whenever it comes up.
    Always,
    /// Never to do something.
    Never,
    /// Not to do something, which may be meant of one request only.
    Forbidden,
}

impl MarkerRole {
    /// By which a sentence knows that it may have a marker of it.
    fn bit(self) -> u32 {
        1 << self as u32
    }

    fn markers(self) -> impl Iterator<Item = &'static str> + Clone {
        MARKERS.iter().filter(move |(role, _)| *role == self).flat_map(|(_, markers)| markers.iter().copied())
    }
}

/// Finds the markers of all roles in one pass over words that are parted by single spaces, and the role of each.
static SEARCH: LazyLock<(AhoCorasick, Vec<u32>)> = LazyLock::new(|| {
    let pattern = |marker: &str| if is_unspaced(marker) { marker.to_owned() } else { format!(" {marker} ") };
    let markers = MARKERS.iter().flat_map(|(role, markers)| markers.iter().map(|marker| (*role, *marker)));
    let (bits, patterns): (Vec<u32>, Vec<String>) =
        markers.map(|(role, marker)| (role.bit(), pattern(marker))).unzip();
    // A table for every letter: there are few markers, and all that users say is searched.
    let search = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(patterns);
    (search.expect("the table is small"), bits)
});

/// A sentence in words, clause by clause.
#[derive(Debug)]
pub(super) struct SentenceClauses {
    /// All of its words in small letters, each between spaces, a line a clause.
    words: String,
    /// The words of each clause, once they are asked for: most sentences have no marker and are not looked into.
    split: OnceCell<Vec<Vec<String>>>,
    asks: bool,
    /// The roles of which it may have a marker, as bits.
    roles: u32,
}

impl SentenceClauses {
    pub(super) fn of(sentence: &str) -> Self {
        let mut words = String::with_capacity(sentence.len() + 4);
        words.push(' ');
        let end_word = |words: &mut String| {
            words.truncate(words.trim_end_matches(['.', '-']).len());
            if !words.ends_with(' ') {
                words.push(' ');
            }
        };
        for letter in sentence.chars() {
            let is_within_a_word = !words.ends_with(' ');
            match letter {
                '\'' if is_within_a_word => {}
                '’' | '`' | '*' | '\u{64b}'..='\u{652}' => {}
                '.' | '-' if is_within_a_word => words.push(letter),
                _ if letter.is_alphanumeric() || matches!(letter, '_' | '@' | '/') => {
                    words.extend(letter.to_lowercase());
                }
                ',' | ';' | ':' | '(' | '—' | '–' | '!' | '?' | '、' | '，' | '：' | '؛' | '،' => {
                    end_word(&mut words);
                    words.push_str("\n ");
                }
                _ => end_word(&mut words),
            }
        }
        end_word(&mut words);
        let asks = sentence.trim_end_matches(['"', ')', '*', ' ']).ends_with(['?', '？', '؟']);
        let found = SEARCH.0.find_overlapping_iter(&words);
        let roles = found.fold(0, |roles, marker| roles | SEARCH.1[marker.pattern().as_usize()]);
        Self { words, split: OnceCell::new(), asks, roles }
    }

    fn clauses(&self) -> &[Vec<String>] {
        self.split.get_or_init(|| {
            let clauses = self.words.lines().filter(|clause| !clause.trim().is_empty());
            clauses.map(|clause| clause.split_whitespace().map(str::to_owned).collect()).collect()
        })
    }

    pub(super) fn is_question(&self) -> bool {
        self.asks
    }

    /// The order that the sentence opens with, or that a later clause does.
    pub(super) fn order(&self) -> Option<ClauseOrder> {
        self.orders().next()
    }

    /// The order that the sentence itself opens with.
    pub(super) fn opening_order(&self) -> Option<ClauseOrder> {
        let opening = if self.may_order() { self.clauses().first() } else { None };
        opening.and_then(|clause| order(clause)).or_else(|| self.japanese())
    }

    /// Whether all of it is an order that holds until it is taken back.
    pub(super) fn is_standing(&self) -> bool {
        let lasting = self.orders().any(|order| order != ClauseOrder::Forbidden)
            || self.has_marker(MarkerRole::FromNow);
        lasting && !self.is_for_this_request()
    }

    fn orders(&self) -> impl Iterator<Item = ClauseOrder> {
        let clauses = if self.may_order() { self.clauses() } else { &[] };
        clauses.iter().filter_map(|clause| order(clause)).chain(self.japanese())
    }

    fn may_order(&self) -> bool {
        let orders = [MarkerRole::Always, MarkerRole::Never, MarkerRole::Forbidding];
        orders.into_iter().any(|role| self.may_say(role))
    }

    fn japanese(&self) -> Option<ClauseOrder> {
        if !self.may_say(MarkerRole::JapaneseEnd) {
            return None;
        }
        let last = self.clauses().last()?.last()?;
        let ordered = MarkerRole::JapaneseEnd.markers().any(|end| last.ends_with(end));
        let refused = last.contains("ないで") || last.contains("禁止");
        match (ordered, self.has_marker(MarkerRole::JapaneseStanding)) {
            (false, _) => None,
            (true, true) => Some(if refused { ClauseOrder::Never } else { ClauseOrder::Always }),
            (true, false) => refused.then_some(ClauseOrder::Forbidden),
        }
    }

    /// Whether it says of what it speaks, so that it can be understood alone.
    pub(super) fn stands_alone(&self) -> bool {
        !self.has_marker(MarkerRole::Pointing) && !self.topic().is_empty()
    }

    /// Whether it holds for the present request only.
    pub(super) fn is_for_this_request(&self) -> bool {
        let lasts = |clause: &[String], end: usize| {
            clause.get(end).is_some_and(|next| LASTING.contains(&next.as_str()))
        };
        self.any_clause(MarkerRole::OnlyNow, |clause, end| !lasts(clause, end))
    }

    /// Whether it has any word by which something earlier may end.
    pub(super) fn may_end_constraint(&self) -> bool {
        let roles = [MarkerRole::Ending, MarkerRole::FromNow, MarkerRole::Changing, MarkerRole::InPlaceOf];
        roles.into_iter().any(|role| self.has_marker(role))
            || self.order().is_some()
            || self.assigned().is_some()
    }

    /// Whether the message before is taken back.
    pub(super) fn withdraws_constraint(&self) -> bool {
        if !self.may_say(MarkerRole::TakingBack) {
            return false;
        }
        self.clauses().iter().map(|clause| opening(clause)).any(|clause| {
            MarkerRole::TakingBack.markers().any(|marker| starts_with(clause, marker))
                && places(clause, MarkerRole::TakingBack).any(|end| end == clause.len())
        })
    }

    /// Whether something else is wanted than before.
    pub(super) fn changes_constraint(&self) -> bool {
        self.has_marker(MarkerRole::FromNow) || self.has_marker(MarkerRole::Changing)
    }

    pub(super) fn is_rules_title(&self) -> bool {
        let last = self.clauses().last().and_then(|clause| clause.last());
        last.is_some_and(|last| RULES.contains(&last.as_str()))
    }

    /// What somebody takes over, if the sentence says who does.
    pub(super) fn assigned(&self) -> Option<Vec<String>> {
        if !self.may_say(MarkerRole::Taking) {
            return None;
        }
        let taken = |clause: &Vec<String>| {
            let end = (1..clause.len().min(3)).find_map(|start| {
                let markers =
                    MarkerRole::Taking.markers().filter(|marker| starts_with(&clause[start..], marker));
                Some(start + markers.map(|marker| marker.split(' ').count()).max()?)
            })?;
            let is_named = |word: &String| {
                !EMPTY.contains(&word.as_str())
                    && !MarkerRole::Pointing.markers().any(|marker| marker == word)
            };
            let is_work = |word: &String| {
                !DURATIONS.contains(&word.as_str())
                    && !word.starts_with(|letter: char| letter.is_ascii_digit())
            };
            let is_taken = is_named(&clause[0]) && clause.get(end).is_some_and(is_work);
            is_taken.then(|| topic_of(&clause[end..]))
        };
        // In a language that has the verb last, the whole clause says it.
        let is_last = |clause: &&Vec<String>| clause.iter().any(|word| word.contains("担当"));
        let last = || self.clauses().iter().find(is_last).map(|clause| topic_of(clause));
        self.clauses().iter().find_map(taken).or_else(last)
    }

    /// Whether something is named as what is wanted no more: `spaces, not tabs`.
    pub(super) fn refuses(&self, topic: &[String]) -> bool {
        let is_about = |word: &String| topic.iter().any(|about| is_same(about, word));
        self.any_clause(MarkerRole::InPlaceOf, |clause, end| clause[end..].iter().take(2).any(is_about))
    }

    /// What it is about: the words that say something.
    pub(super) fn topic(&self) -> Vec<String> {
        self.clauses().iter().flat_map(|clause| topic_of(clause)).collect()
    }

    /// Its words but for those that every such order has.
    pub(super) fn frame(&self) -> Vec<&str> {
        const ROLES: [MarkerRole; 4] =
            [MarkerRole::Always, MarkerRole::Never, MarkerRole::FromNow, MarkerRole::Changing];
        let words = self.clauses().iter().flatten().map(String::as_str);
        words
            .filter(|word| !is_part_of(word, &ROLES) && !SOFTENERS.contains(word) && *word != "now")
            .collect()
    }

    pub(super) fn has_marker(&self, role: MarkerRole) -> bool {
        self.any_clause(role, |_, _| true)
    }

    /// Whether a clause has a marker of a role, with something about where it ends.
    fn any_clause(&self, role: MarkerRole, is_meant: impl Fn(&[String], usize) -> bool) -> bool {
        self.may_say(role)
            && self.clauses().iter().any(|clause| places(clause, role).any(|end| is_meant(clause, end)))
    }

    /// Whether a role has a marker in the sentence, wherever that stands.
    fn may_say(&self, role: MarkerRole) -> bool {
        self.roles & role.bit() != 0
    }
}

/// Whether two sentences are about the same: all that one is about is in the other, or more than half of both.
pub(super) fn is_shared(one: &[String], other: &[String]) -> bool {
    let shared = one.iter().filter(|word| other.iter().any(|about| is_same(about, word))).count();
    let (fewer, more) = (one.len().min(other.len()), one.len().max(other.len()));
    shared > 0 && (shared >= fewer || shared * 2 > more)
}

/// Whether two sentences are about exactly the same.
pub(super) fn is_equal(one: &[String], other: &[String]) -> bool {
    let within = |one: &[String], other: &[String]| {
        one.iter().all(|word| other.iter().any(|about| is_same(about, word)))
    };
    !one.is_empty() && within(one, other) && within(other, one)
}

/// How a clause opens.
fn order(clause: &[String]) -> Option<ClauseOrder> {
    let clause = opening(clause);
    let at = |from: usize, role: MarkerRole| {
        role.markers().find(|marker| starts_with(clause.get(from..).unwrap_or_default(), marker))
    };
    // Where words are not parted, what follows is part of the same one.
    let goes_on = |marker: &str| {
        !marker.is_ascii() && clause[0].len() > marker.len()
            || clause.get(marker.split(' ').count()).is_some_and(|next| !is_story(next))
    };
    // In a language that has the verb first the marker comes second; in English that would be a story.
    for (role, order) in [(MarkerRole::Always, ClauseOrder::Always), (MarkerRole::Never, ClauseOrder::Never)]
    {
        if let Some(marker) = at(0, role) {
            return goes_on(marker).then_some(order);
        }
        if at(1, role).is_some_and(|marker| !matches!(marker, "always" | "never")) && clause.len() > 2 {
            return Some(order);
        }
    }
    let marker = at(0, MarkerRole::Forbidding)?;
    let holds_on =
        places(clause, MarkerRole::Never).next().is_some() || clause.iter().any(|word| word == "ever");
    goes_on(marker).then_some(if holds_on { ClauseOrder::Never } else { ClauseOrder::Forbidden })
}

/// Whether the word after a marker makes it part of a story: `never worked`, `only happens`.
fn is_story(next: &str) -> bool {
    let told = next.is_ascii() && (next.ends_with("ed") || next.ends_with('s') && !next.ends_with("ss"));
    NO_ORDER.contains(&next) || told && next.len() > 4
}

/// A clause without what only softens it.
fn opening(clause: &[String]) -> &[String] {
    let soft = clause.iter().take_while(|word| SOFTENERS.contains(&word.as_str())).count();
    &clause[soft..]
}

/// Where markers end in a clause.
fn places(clause: &[String], role: MarkerRole) -> impl Iterator<Item = usize> {
    (0..clause.len()).filter_map(move |at| {
        let is_within = |marker: &str| is_unspaced(marker) && clause[at].contains(marker);
        let marker = role.markers().find(|marker| starts_with(&clause[at..], marker) || is_within(marker))?;
        Some(at + marker.split(' ').count())
    })
}

/// Whether words begin with a marker. Where words are not parted, its letters are enough.
fn starts_with(words: &[String], marker: &str) -> bool {
    let length = marker.split(' ').count();
    let whole = words.len() >= length && marker.split(' ').zip(words).all(|(part, word)| word == part);
    whole || is_unspaced(marker) && words.first().is_some_and(|first| first.starts_with(marker))
}

/// Whether a text is in a script that does not part its words.
fn is_unspaced(text: &str) -> bool {
    text.chars().any(is_ideographic)
}

fn is_ideographic(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}')
}

fn is_part_of(word: &str, roles: &[MarkerRole]) -> bool {
    roles.iter().flat_map(|role| role.markers()).any(|marker| marker.split(' ').any(|part| part == word))
}

/// The words of a clause that say what it is about; of one without spaces, pairs of letters that are not only grammar.
fn topic_of(clause: &[String]) -> Vec<String> {
    const ROLES: [MarkerRole; 9] = [
        MarkerRole::Always,
        MarkerRole::Never,
        MarkerRole::Forbidding,
        MarkerRole::FromNow,
        MarkerRole::Changing,
        MarkerRole::Ending,
        MarkerRole::JapaneseStanding,
        MarkerRole::NewPlan,
        MarkerRole::Taking,
    ];
    let mut topic = Vec::new();
    for word in clause {
        if is_unspaced(word) {
            let unspaced = ROLES.iter().flat_map(|role| role.markers()).filter(|marker| is_unspaced(marker));
            let bare = unspaced.fold(word.clone(), |word, marker| word.replace(marker, " "));
            let letters: Vec<char> = bare.chars().collect();
            let says = |letter: &char| letter.is_alphanumeric() && !matches!(letter, '\u{3040}'..='\u{309f}');
            let pairs = letters.windows(2).filter(|pair| pair.iter().all(says));
            topic.extend(pairs.map(|pair| pair.iter().collect::<String>()));
        } else if word.chars().count() >= 3
            && !is_part_of(word, &ROLES)
            && !SOFTENERS.contains(&word.as_str())
            && !EMPTY.contains(&word.as_str())
        {
            let bare = ["وال", "بال", "ال"].iter().find_map(|article| word.strip_prefix(article));
            topic.push(bare.unwrap_or(word).to_owned());
        }
    }
    topic
}

/// Whether two words are the same but for their endings.
fn is_same(one: &str, other: &str) -> bool {
    let shared = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let (one, other) = (one.chars().count() - shared, other.chars().count() - shared);
    let (less, more) = (one.min(other), one.max(other));
    more == 0 || shared >= 3 && less == 0 && more <= 2 || shared >= 4 && (less == 0 && more <= 3 || more <= 2)
}

/// About how many letters of an alphabet a text is worth: a script that does not part its words needs fewer.
pub(super) fn length(text: &str) -> usize {
    text.chars().count() + text.chars().filter(|letter| is_ideographic(*letter)).count() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_opens_a_clause_and_a_story_does_not() {
        let check = |text: &str, expect: Option<ClauseOrder>| {
            assert_eq!(SentenceClauses::of(text).order(), expect, "{text}");
        };
        check("Never push to main.", Some(ClauseOrder::Never));
        check("Fix it, and always use tabs", Some(ClauseOrder::Always));
        check("Don't ever do that.", Some(ClauseOrder::Never));
        check("No new dependencies.", Some(ClauseOrder::Forbidden));
        check("Pushe nie auf main.", Some(ClauseOrder::Never));
        check("Bitte immer Tabs verwenden", Some(ClauseOrder::Always));
        check("استخدم دائماً المسافات", Some(ClauseOrder::Always));
        check("永远不要推送到 main。", Some(ClauseOrder::Never));
        check("mainには絶対にプッシュしないでください。", Some(ClauseOrder::Never));
        check("Ne pousse jamais sur main.", Some(ClauseOrder::Never));
        check("It never worked.", None);
        check("Never worked here.", None);
        check("Always fails on CI.", None);
        check("Only happens on Linux", None);
        check("No, that is wrong.", None);
        check("no problem", None);
        check("Der Test schlägt immer fehl.", None);
        check("テストは常に失敗します。", None);
        check("它总是失败", None);
    }

    #[test]
    fn who_takes_what_is_told_and_how_long_it_takes_is_not() {
        let check = |text: &str, expect: Option<&[&str]>| {
            let found = SentenceClauses::of(text).assigned();
            assert_eq!(
                found,
                expect.map(|words| words.iter().map(|word| (*word).to_owned()).collect()),
                "{text}"
            );
        };
        check("Alice takes the parser.", Some(&["parser"]));
        check("Bob takes over the docs", Some(&["docs"]));
        check("Maria übernimmt die Tests.", Some(&["tests"]));
        check("It takes the file as input.", None);
        check("Compilation takes forever.", None);
        check("The build takes 5 minutes.", None);
    }

    #[test]
    fn sentences_about_the_same_share_what_one_of_them_is_about() {
        let check = |one: &str, other: &str, expect: bool| {
            let [one, other] = [one, other].map(|text| SentenceClauses::of(text).topic());
            assert_eq!(is_shared(&one, &other), expect, "{one:?} {other:?}");
        };
        check("Never touch the migrations folder.", "You can now change the migrations.", true);
        check("Never push to main.", "You can push to main now.", true);
        check("Never push to main.", "You can now push to staging.", false);
        check("mainには絶対にプッシュしないでください。", "mainにプッシュしてもいいです。", true);
    }
}
