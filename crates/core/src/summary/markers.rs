//! Marker words: by which a user says that something holds on, holds no more, holds only now, or is somebody's work.
//!
//! The table is short on purpose: it holds what leaves no doubt, in a few languages, and what it does not know is not
//! guessed at. A marker counts where an order has it, at the opening of a clause; inside of one the same word tells a
//! story: `never push`, but `it never worked`.
//!
//! Messages are long and markers rare, so one pass over a sentence finds which roles have a word in it at all, and the
//! others are not looked into.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// What a marker does to a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
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
const MARKERS: &[(Role, &[&str])] = &[
    (Role::Always, &["always", "immer", "toujours", "siempre", "دائما", "始终", "总是"]),
    (
        Role::Never,
        &["never", "nie", "niemals", "jamais", "nunca", "أبدا", "永远不要", "千万不要", "绝对不要"],
    ),
    (Role::Forbidding, &["do not", "dont", "no", "only", "nothing but", "must not", "may not"]),
    (
        Role::Forbidding,
        &["kein", "keine", "keinen", "nur", "ne", "لا", "ممنوع", "فقط", "不要", "禁止", "只能"],
    ),
    (Role::JapaneseEnd, &["ないで", "ください", "こと", "禁止", "禁止です"]),
    (Role::JapaneseStanding, &["絶対", "決して", "必ず", "常に", "いつも"]),
    (Role::FromNow, &["from now on", "going forward", "new rule", "ab jetzt", "künftig", "désormais"]),
    (Role::FromNow, &["a partir de ahora", "من الآن", "今後", "これからは", "从现在起", "以后"]),
    (
        Role::Changing,
        &["instead", "actually", "rather", "switch to", "stattdessen", "doch", "plutôt", "mejor"],
    ),
    (Role::Changing, &["بدلا", "代わりに", "やっぱり", "改用"]),
    (Role::InPlaceOf, &["not", "instead of", "rather than", "nicht", "statt", "au lieu de", "en vez de"]),
    (
        Role::Ending,
        &["no longer", "anymore", "any more", "can now", "may now", "allowed again", "now allowed"],
    ),
    (Role::Ending, &["fine now", "ok now", "after all", "no need to", "dont need to", "forget about"]),
    (Role::Ending, &["forget what", "drop the rule", "nicht mehr", "kannst jetzt", "wieder erlaubt"]),
    (Role::Ending, &["peux maintenant", "ne plus", "ya no", "ahora puedes", "لم يعد", "يمكنك الآن"]),
    (Role::Ending, &["もういい", "てもいい", "解除", "不再", "现在可以"]),
    (
        Role::TakingBack,
        &["scratch that", "never mind", "nevermind", "forget that", "forget it", "ignore that"],
    ),
    (
        Role::TakingBack,
        &["cancel that", "vergiss das", "doch nicht", "laisse tomber", "oublie ça", "olvídalo"],
    ),
    (Role::TakingBack, &["انس ذلك", "今のなし", "忘れて", "取り消し", "算了", "当我没说"]),
    (Role::NewPlan, &["new plan", "change of plans", "neuer plan", "nouveau plan", "nuevo plan"]),
    (Role::NewPlan, &["خطة جديدة", "新しい計画", "新计划"]),
    (Role::OnlyNow, &["this time", "for now", "for this", "in this", "yet", "today", "diesmal", "vorerst"]),
    (Role::OnlyNow, &["für diesen", "cette fois", "esta vez", "هذه المرة", "今回", "とりあえず", "这次"]),
    (Role::Taking, &["takes", "takes over", "owns", "is responsible for", "übernimmt", "s occupe de"]),
    (Role::Taking, &["se encarga de", "يتولى", "担当", "负责"]),
    (Role::Pointing, &["it", "this", "that", "these", "those", "them", "das", "es"]),
    (Role::Pointing, &["这个", "これ", "それ", "هذا", "ذلك"]),
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
pub(super) enum Order {
    /// To do something, whenever it comes up.
    Always,
    /// Never to do something.
    Never,
    /// Not to do something, which may be meant of one request only.
    Forbidden,
}

impl Role {
    /// By which a sentence knows that it may have a marker of it.
    fn bit(self) -> u32 {
        1 << self as u32
    }

    fn markers(self) -> impl Iterator<Item = &'static str> + Clone {
        MARKERS.iter().filter(move |(role, _)| *role == self).flat_map(|(_, markers)| markers.iter().copied())
    }
}

/// Finds the markers of all roles in one pass over words that are parted by single spaces.
struct MarkerSearch {
    search: AhoCorasick,
    /// The role of each pattern.
    bits: Vec<u32>,
}

static SEARCH: LazyLock<MarkerSearch> = LazyLock::new(|| {
    let pattern = |marker: &str| if is_unspaced(marker) { marker.to_owned() } else { format!(" {marker} ") };
    let markers =
        MARKERS.iter().flat_map(|(role, markers)| markers.iter().map(|marker| (role.bit(), *marker)));
    let (bits, patterns): (Vec<u32>, Vec<String>) =
        markers.map(|(bit, marker)| (bit, pattern(marker))).unzip();
    MarkerSearch { search: AhoCorasick::new(patterns).expect("the table is small"), bits }
});

impl MarkerSearch {
    /// The roles that have a marker in a sentence.
    fn roles_in(&self, clauses: &[Vec<String>]) -> u32 {
        let words: String = clauses.iter().flatten().flat_map(|word| [" ", word]).chain([" "]).collect();
        let found = self.search.find_overlapping_iter(&words);
        found.fold(0, |roles, marker| roles | self.bits[marker.pattern().as_usize()])
    }
}

/// A sentence in words, clause by clause.
#[derive(Debug)]
pub(super) struct Clauses {
    parts: Vec<Vec<String>>,
    asks: bool,
    /// The roles of which it may have a marker, as bits.
    roles: u32,
}

impl Clauses {
    pub(super) fn of(sentence: &str) -> Self {
        let mut clauses = vec![vec![String::new()]];
        for letter in sentence.chars() {
            let clause = clauses.last_mut().expect("one is always open");
            let word = clause.last_mut().expect("one is always open");
            match letter {
                '\'' | '’' | '`' | '*' | '\u{64b}'..='\u{652}' if letter != '\'' || !word.is_empty() => {}
                _ if letter.is_alphanumeric() || "_@/".contains(letter) => word.extend(letter.to_lowercase()),
                '.' | '-' if !word.is_empty() => word.push(letter),
                ',' | ';' | ':' | '(' | '—' | '–' | '!' | '?' | '、' | '，' | '：' | '؛' | '،' => {
                    clauses.push(vec![String::new()]);
                }
                _ => clause.push(String::new()),
            }
        }
        for clause in &mut clauses {
            for word in &mut *clause {
                word.truncate(word.trim_end_matches(['.', '-']).len());
            }
            clause.retain(|word| !word.is_empty());
        }
        clauses.retain(|clause| !clause.is_empty());
        let asks = sentence.trim_end_matches(['"', ')', '*', ' ']).ends_with(['?', '？', '؟']);
        let roles = SEARCH.roles_in(&clauses);
        Self { parts: clauses, asks, roles }
    }

    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    /// The order that the sentence opens with, or that a later clause does.
    pub(super) fn order(&self) -> Option<Order> {
        self.orders().next()
    }

    /// The order that the sentence itself opens with.
    pub(super) fn opening_order(&self) -> Option<Order> {
        self.parts.first().filter(|_| self.may_order()).and_then(|clause| order(clause)).or(self.japanese())
    }

    /// Whether all of it is an order that holds until it is taken back.
    pub(super) fn is_standing(&self) -> bool {
        let lasting = self.orders().any(|order| order != Order::Forbidden) || self.says(Role::FromNow);
        lasting && !self.is_only_now()
    }

    fn orders(&self) -> impl Iterator<Item = Order> {
        let clauses = if self.may_order() { &*self.parts } else { &[] };
        clauses.iter().filter_map(|clause| order(clause)).chain(self.japanese())
    }

    fn may_order(&self) -> bool {
        [Role::Always, Role::Never, Role::Forbidding].into_iter().any(|role| self.may_say(role))
    }

    fn japanese(&self) -> Option<Order> {
        let last = self.parts.last().filter(|_| self.may_say(Role::JapaneseEnd))?.last()?;
        let ordered = Role::JapaneseEnd.markers().any(|end| last.ends_with(end));
        let refused = last.contains("ないで") || last.contains("禁止");
        match (ordered, self.says(Role::JapaneseStanding)) {
            (false, _) => None,
            (true, true) => Some(if refused { Order::Never } else { Order::Always }),
            (true, false) => refused.then_some(Order::Forbidden),
        }
    }

    /// Whether it says of what it speaks, so that it can be understood alone.
    pub(super) fn stands_alone(&self) -> bool {
        !self.says(Role::Pointing) && !self.topic().is_empty()
    }

    /// Whether it holds for the present request only.
    pub(super) fn is_only_now(&self) -> bool {
        let lasts = |clause: &[String], end: usize| {
            clause.get(end).is_some_and(|next| LASTING.contains(&next.as_str()))
        };
        self.any_clause(Role::OnlyNow, |clause, end| !lasts(clause, end))
    }

    /// Whether it has any word by which something earlier may end.
    pub(super) fn may_end_something(&self) -> bool {
        let roles = [Role::Ending, Role::FromNow, Role::Changing, Role::InPlaceOf];
        roles.into_iter().any(|role| self.says(role)) || self.order().is_some() || self.assigned().is_some()
    }

    /// Whether the message before is taken back.
    pub(super) fn takes_back(&self) -> bool {
        let mut clauses =
            self.parts.iter().filter(|_| self.may_say(Role::TakingBack)).map(|clause| opening(clause));
        clauses.any(|clause| {
            Role::TakingBack.markers().any(|marker| starts_with(clause, marker))
                && places(clause, Role::TakingBack).any(|end| end == clause.len())
        })
    }

    /// Whether something else is wanted than before.
    pub(super) fn changes_something(&self) -> bool {
        self.says(Role::FromNow) || self.says(Role::Changing)
    }

    pub(super) fn titles_rules(&self) -> bool {
        let last = self.parts.last().and_then(|clause| clause.last());
        last.is_some_and(|last| RULES.contains(&last.as_str()))
    }

    /// What somebody takes over, if the sentence says who does.
    pub(super) fn assigned(&self) -> Option<Vec<String>> {
        if !self.may_say(Role::Taking) {
            return None;
        }
        let taken = |clause: &Vec<String>| {
            let end = (1..clause.len().min(3)).find_map(|start| {
                let markers = Role::Taking.markers().filter(|marker| starts_with(&clause[start..], marker));
                Some(start + markers.map(|marker| marker.split(' ').count()).max()?)
            })?;
            let is_named = |word: &String| {
                !EMPTY.contains(&word.as_str()) && !Role::Pointing.markers().any(|marker| marker == word)
            };
            let is_work = |word: &String| !DURATIONS.contains(&word.as_str()) && !word.starts_with(is_digit);
            let is_taken = is_named(&clause[0]) && clause.get(end).is_some_and(is_work);
            is_taken.then(|| topic_of(&clause[end..]))
        };
        // In a language that has the verb last, the whole clause says it.
        let is_last = |clause: &&Vec<String>| clause.iter().any(|word| word.contains("担当"));
        let last = || self.parts.iter().find(is_last).map(|clause| topic_of(clause));
        self.parts.iter().find_map(taken).or_else(last)
    }

    /// Whether something is named as what is wanted no more: `spaces, not tabs`.
    pub(super) fn refuses(&self, topic: &[String]) -> bool {
        let is_about = |word: &String| topic.iter().any(|about| is_same(about, word));
        self.any_clause(Role::InPlaceOf, |clause, end| clause[end..].iter().take(2).any(is_about))
    }

    /// What it is about: the words that say something.
    pub(super) fn topic(&self) -> Vec<String> {
        self.parts.iter().flat_map(|clause| topic_of(clause)).collect()
    }

    /// Its words but for those that every such order has.
    pub(super) fn frame(&self) -> Vec<&str> {
        const ROLES: [Role; 4] = [Role::Always, Role::Never, Role::FromNow, Role::Changing];
        let words = self.parts.iter().flatten().map(String::as_str);
        words
            .filter(|word| !is_part_of(word, &ROLES) && !SOFTENERS.contains(word) && *word != "now")
            .collect()
    }

    pub(super) fn says(&self, role: Role) -> bool {
        self.any_clause(role, |_, _| true)
    }

    /// Whether a clause has a marker of a role, with something about where it ends.
    fn any_clause(&self, role: Role, is_meant: impl Fn(&[String], usize) -> bool) -> bool {
        let mut clauses = self.parts.iter().filter(|_| self.may_say(role));
        clauses.any(|clause| places(clause, role).any(|end| is_meant(clause, end)))
    }

    /// Whether a role has a marker in the sentence, wherever that stands.
    fn may_say(&self, role: Role) -> bool {
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
fn order(clause: &[String]) -> Option<Order> {
    let clause = opening(clause);
    let at = |from: usize, role: Role| {
        role.markers().find(|marker| starts_with(clause.get(from..).unwrap_or_default(), marker))
    };
    // Where words are not parted, what follows is part of the same one.
    let goes_on = |marker: &str| {
        !marker.is_ascii() && clause[0].len() > marker.len()
            || clause.get(marker.split(' ').count()).is_some_and(|next| !is_story(next))
    };
    // In a language that has the verb first the marker comes second; in English that would be a story.
    for (role, order) in [(Role::Always, Order::Always), (Role::Never, Order::Never)] {
        if let Some(marker) = at(0, role) {
            return goes_on(marker).then_some(order);
        }
        if at(1, role).is_some_and(|marker| !matches!(marker, "always" | "never")) && clause.len() > 2 {
            return Some(order);
        }
    }
    let marker = at(0, Role::Forbidding)?;
    let holds_on = places(clause, Role::Never).next().is_some() || clause.iter().any(|word| word == "ever");
    goes_on(marker).then_some(if holds_on { Order::Never } else { Order::Forbidden })
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
fn places(clause: &[String], role: Role) -> impl Iterator<Item = usize> {
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

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

fn is_part_of(word: &str, roles: &[Role]) -> bool {
    roles.iter().flat_map(|role| role.markers()).any(|marker| marker.split(' ').any(|part| part == word))
}

/// The words of a clause that say what it is about; of one without spaces, pairs of letters that are not only grammar.
fn topic_of(clause: &[String]) -> Vec<String> {
    const ROLES: [Role; 9] = [
        Role::Always,
        Role::Never,
        Role::Forbidding,
        Role::FromNow,
        Role::Changing,
        Role::Ending,
        Role::JapaneseStanding,
        Role::NewPlan,
        Role::Taking,
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
            && ![SOFTENERS, EMPTY].concat().contains(&word.as_str())
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
        let check =
            |text: &str, expect: Option<Order>| assert_eq!(Clauses::of(text).order(), expect, "{text}");
        check("Never push to main.", Some(Order::Never));
        check("Fix it, and always use tabs", Some(Order::Always));
        check("Don't ever do that.", Some(Order::Never));
        check("No new dependencies.", Some(Order::Forbidden));
        check("Pushe nie auf main.", Some(Order::Never));
        check("Bitte immer Tabs verwenden", Some(Order::Always));
        check("استخدم دائماً المسافات", Some(Order::Always));
        check("永远不要推送到 main。", Some(Order::Never));
        check("mainには絶対にプッシュしないでください。", Some(Order::Never));
        check("Ne pousse jamais sur main.", Some(Order::Never));
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
            let found = Clauses::of(text).assigned();
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
            let [one, other] = [one, other].map(|text| Clauses::of(text).topic());
            assert_eq!(is_shared(&one, &other), expect, "{one:?} {other:?}");
        };
        check("Never touch the migrations folder.", "You can now change the migrations.", true);
        check("Never push to main.", "You can push to main now.", true);
        check("Never push to main.", "You can now push to staging.", false);
        check("mainには絶対にプッシュしないでください。", "mainにプッシュしてもいいです。", true);
    }
}
