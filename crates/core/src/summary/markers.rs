//! Marker words: by which a user says that something holds on, holds no more, holds only now, or is somebody's work.
//!
//! The tables are short on purpose: they hold what leaves no doubt, in a few languages, and what they do not know is not
//! guessed at. A marker counts where an order has it, at the opening of a clause; inside of one the same word tells a
//! story: `never push`, but `it never worked`.
//!
//! Messages are long and markers rare, so one pass over a sentence finds which tables have a word in it at all, and the others
//! are not looked into.

use std::{cell::OnceCell, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::prose::Sentence;

/// What holds until it is taken back, as the opening of a clause.
const ALWAYS: Table = Table {
    bit: 1 << 0,
    markers: &["always", "immer", "stets", "toujours", "siempre", "دائما", "始终", "总是", "务必", "一律"],
};
const NEVER: Table = Table {
    bit: 1 << 1,
    markers: &[
        "never",
        "nie",
        "niemals",
        "jamais",
        "nunca",
        "أبدا",
        "永远不要",
        "绝不要",
        "千万不要",
        "绝对不要",
    ],
};

/// An order not to do something, or to do nothing else, as the opening of a clause.
const FORBIDDING: Table = Table {
    bit: 1 << 2,
    markers: &[
        "do not",
        "dont",
        "no",
        "only",
        "nothing but",
        "you may not",
        "you must not",
        "you must",
        "kein",
        "keine",
        "keinen",
        "nur",
        "ne",
        "لا",
        "ممنوع",
        "فقط",
        "不要",
        "禁止",
        "只能",
    ],
};

/// The same in a language that says so at the end of a sentence, and the words that make it hold on.
const JAPANESE_ENDS: Table = Table {
    bit: 1 << 3,
    markers: &["ないでください", "ないで", "ください", "こと", "禁止", "禁止です"],
};
const JAPANESE_STANDING: Table = Table {
    bit: 1 << 4,
    markers: &["絶対", "決して", "必ず", "常に", "いつも", "今後", "これからは"],
};

/// Whatever follows holds from here on, and replaces what was said of it before.
const FROM_NOW: Table = Table {
    bit: 1 << 5,
    markers: &[
        "from now on",
        "going forward",
        "from here on",
        "new rule",
        "ab jetzt",
        "ab sofort",
        "künftig",
        "désormais",
        "à partir de maintenant",
        "a partir de ahora",
        "من الآن",
        "今後",
        "これからは",
        "从现在起",
        "以后",
    ],
};

/// Something else than before is wanted.
const CHANGES: Table = Table {
    bit: 1 << 6,
    markers: &[
        "instead",
        "actually",
        "rather",
        "switch to",
        "on second thought",
        "changed my mind",
        "correction",
        "stattdessen",
        "doch",
        "lieber",
        "plutôt",
        "mejor",
        "en su lugar",
        "بدلا",
        "代わりに",
        "やっぱり",
        "改用",
        "改成",
    ],
};

/// What stands before that which is wanted no more.
const IN_PLACE_OF: Table = Table {
    bit: 1 << 7,
    markers: &["not", "instead of", "rather than", "no more", "nicht", "statt", "au lieu de", "en vez de"],
};

/// Something holds no more; it is named with it.
const ENDS: Table = Table {
    bit: 1 << 8,
    markers: &[
        "no longer",
        "anymore",
        "any more",
        "can now",
        "may now",
        "allowed now",
        "now allowed",
        "allowed again",
        "fine now",
        "ok now",
        "okay now",
        "fine after all",
        "ok after all",
        "okay after all",
        "its fine to",
        "its ok to",
        "no need to",
        "dont need to",
        "forget about",
        "forget the",
        "forget what",
        "ignore what",
        "ignore the rule",
        "drop the rule",
        "nicht mehr",
        "kannst jetzt",
        "darfst jetzt",
        "wieder erlaubt",
        "jetzt erlaubt",
        "peux maintenant",
        "ne plus",
        "plus besoin",
        "ya no",
        "ahora puedes",
        "لم يعد",
        "يمكنك الآن",
        "لا حاجة",
        "もう不要",
        "もういい",
        "てもいい",
        "解除",
        "不再",
        "现在可以",
        "不用再",
    ],
};

/// The message before is taken back, where a clause says nothing else.
const TAKES_BACK: Table = Table {
    bit: 1 << 9,
    markers: &[
        "scratch that",
        "never mind",
        "nevermind",
        "forget that",
        "forget it",
        "ignore that",
        "disregard that",
        "cancel that",
        "i take that back",
        "vergiss das",
        "vergiss es",
        "doch nicht",
        "laisse tomber",
        "oublie ça",
        "olvídalo",
        "olvida eso",
        "انس ذلك",
        "تجاهل ذلك",
        "انس الأمر",
        "今のなし",
        "今のはなし",
        "忘れて",
        "忘れてください",
        "取り消し",
        "撤回します",
        "算了",
        "当我没说",
    ],
};

/// The plan that was made before is another now.
const NEW_PLAN: Table = Table {
    bit: 1 << 10,
    markers: &[
        "new plan",
        "change of plan",
        "change of plans",
        "neuer plan",
        "planänderung",
        "nouveau plan",
        "nuevo plan",
        "خطة جديدة",
        "新しい計画",
        "計画変更",
        "新计划",
    ],
};

/// It holds for what is being done now, and not longer.
const ONLY_NOW: Table = Table {
    bit: 1 << 11,
    markers: &[
        "this time",
        "for now",
        "for this",
        "in this",
        "yet",
        "right now",
        "today",
        "at the moment",
        "diesmal",
        "vorerst",
        "noch nicht",
        "heute",
        "für diesen",
        "für diese",
        "cette fois",
        "pour l instant",
        "esta vez",
        "por ahora",
        "هذه المرة",
        "حاليا",
        "今回",
        "今日",
        "とりあえず",
        "这次",
        "暂时",
    ],
};

/// What is as long as the session is: `in this repo`.
const LASTING: &[&str] = &["repo", "repository", "project", "codebase", "workspace", "session"];

/// Somebody has a piece of work, between who and what.
const TAKES: Table = Table {
    bit: 1 << 12,
    markers: &[
        "takes",
        "takes over",
        "will take",
        "owns",
        "handles",
        "will handle",
        "is responsible for",
        "übernimmt",
        "kümmert sich um",
        "s occupe de",
        "se encarga de",
        "يتولى",
        "担当",
        "负责",
    ],
};

/// What no person is, and what no work is: `it takes forever`.
const NOBODY: &[&str] = &["it", "this", "that", "which", "what", "das", "es"];
const DURATIONS: &[&str] =
    &["forever", "long", "longer", "ages", "too", "a", "about", "up", "so", "time", "place"];

/// Words before an order that change nothing of it.
const SOFTENERS: &[&str] = &[
    "please",
    "pls",
    "and",
    "but",
    "also",
    "so",
    "ok",
    "okay",
    "just",
    "then",
    "you",
    "should",
    "bitte",
    "und",
    "aber",
    "du",
    "s il te plaît",
    "por favor",
    "من فضلك",
    "请",
    "也",
    "但",
];

/// What titles a list of rules.
const RULES: &[&str] = &["rules", "constraints", "regeln", "règles", "reglas", "قواعد", "ルール", "规则"];

/// After the word of an order, what makes it a saying or the beginning of a story.
const NO_ORDER: &[&str] = &[
    "mind", "problem", "worries", "worry", "idea", "need", "know", "think", "thanks", "luck", "doubt",
    "longer", "seen", "saw", "had", "heard", "been", "got", "knew", "was", "one", "more", "the", "it", "i",
    "this", "that", "we", "you",
];

/// Words that say nothing of what a sentence is about.
const EMPTY: &[&str] = &[
    "the", "and", "for", "you", "can", "may", "are", "its", "not", "now", "all", "any", "use", "add", "with",
    "without", "from", "into", "that", "this", "them", "then", "when", "will", "have", "has", "must",
    "should", "again", "fine", "okay", "ever", "just", "only", "please", "touch", "change", "make",
    "allowed", "over", "too", "our", "your", "der", "die", "das", "den", "dem", "auf", "und", "mit", "für",
    "ist", "les", "des", "una", "los", "las", "que", "pour",
];

/// Words that point at something which the sentence does not name.
const POINTING: Table = Table {
    bit: 1 << 13,
    markers: &[
        "it", "this", "that", "these", "those", "them", "das", "es", "这个", "これ", "それ", "هذا", "ذلك",
    ],
};

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

/// Markers of one meaning.
#[derive(Clone, Copy)]
struct Table {
    /// By which a sentence knows that it may have one of them.
    bit: u32,
    markers: &'static [&'static str],
}

/// Every table whose markers are searched for.
const TABLES: [Table; 14] = [
    ALWAYS,
    NEVER,
    FORBIDDING,
    JAPANESE_ENDS,
    JAPANESE_STANDING,
    FROM_NOW,
    CHANGES,
    IN_PLACE_OF,
    ENDS,
    TAKES_BACK,
    NEW_PLAN,
    ONLY_NOW,
    TAKES,
    POINTING,
];

/// Finds the markers of all tables in one pass over words that are parted by single spaces.
struct MarkerSearch {
    search: AhoCorasick,
    /// The table of each pattern.
    bits: Vec<u32>,
}

static MARKERS: LazyLock<MarkerSearch> = LazyLock::new(|| {
    let markers = TABLES.iter().flat_map(|table| table.markers.iter().map(|marker| (table.bit, *marker)));
    let pattern = |marker: &str| if is_unspaced(marker) { marker.to_owned() } else { format!(" {marker} ") };
    let (bits, patterns): (Vec<u32>, Vec<String>) =
        markers.map(|(bit, marker)| (bit, pattern(marker))).unzip();
    // A table for every letter: there are few markers, and all that users say is searched.
    let search = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(patterns);
    MarkerSearch { search: search.expect("the tables are small"), bits }
});

impl MarkerSearch {
    /// The tables that have a marker among words, each of which stands between spaces.
    fn tables_in(&self, words: &str) -> u32 {
        let found = self.search.find_overlapping_iter(words);
        found.fold(0, |tables, marker| tables | self.bits[marker.pattern().as_usize()])
    }
}

/// A sentence in words, clause by clause.
#[derive(Debug)]
pub(super) struct Clauses {
    /// All of its words, each between spaces.
    words: String,
    /// Where the clauses end in that.
    ends: Vec<usize>,
    /// The words of each clause, once they are asked for: most sentences have no marker and are not looked into.
    split: OnceCell<Vec<Vec<String>>>,
    asks: bool,
    /// The tables of which it may have a marker, as bits.
    tables: u32,
}

impl Clauses {
    /// Those of each sentence.
    pub(super) fn of_all(sentences: &[Sentence]) -> Vec<Self> {
        sentences.iter().map(|sentence| Self::of(&sentence.text)).collect()
    }

    pub(super) fn of(sentence: &str) -> Self {
        let mut words = WordList::with_room_for(sentence);
        for letter in sentence.chars() {
            match letter {
                '\'' | '’' | '`' | '*' | '\u{64b}'..='\u{652}'
                    if letter != '\'' || words.is_within_a_word() => {}
                _ if letter.is_alphanumeric() || matches!(letter, '_' | '@' | '/') => words.push(letter),
                '.' | '-' if words.is_within_a_word() => words.push(letter),
                ',' | ';' | ':' | '(' | '—' | '–' | '!' | '?' | '、' | '，' | '：' | '؛' | '،' => {
                    words.end_clause();
                }
                _ => words.end_word(),
            }
        }
        words.end_clause();
        let WordList { words, ends, .. } = words;
        let asks = sentence.trim_end_matches(['"', ')', '*', ' ']).ends_with(['?', '？', '؟']);
        let tables = MARKERS.tables_in(&words);
        Self { words, ends, split: OnceCell::new(), asks, tables }
    }

    fn clauses(&self) -> &[Vec<String>] {
        self.split.get_or_init(|| {
            let starts = std::iter::once(0).chain(self.ends.iter().copied());
            let clauses = starts.zip(&self.ends).map(|(start, end)| &self.words[start..*end]);
            clauses.map(|clause| clause.split_whitespace().map(str::to_owned).collect()).collect()
        })
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
        let opening = if self.may_say(&[ALWAYS, NEVER, FORBIDDING]) { self.clauses().first() } else { None };
        opening.and_then(|clause| order(clause)).or_else(|| self.japanese())
    }

    /// Whether all of it is an order that holds until it is taken back.
    pub(super) fn is_standing(&self) -> bool {
        let lasting = self.orders().any(|order| order != Order::Forbidden) || self.says(FROM_NOW);
        lasting && !self.is_only_now()
    }

    fn orders(&self) -> impl Iterator<Item = Order> {
        let clauses = if self.may_say(&[ALWAYS, NEVER, FORBIDDING]) { self.clauses() } else { &[] };
        clauses.iter().filter_map(|clause| order(clause)).chain(self.japanese())
    }

    fn japanese(&self) -> Option<Order> {
        if !self.may_say(&[JAPANESE_ENDS]) {
            return None;
        }
        let last = self.clauses().last()?.last()?;
        let ordered = JAPANESE_ENDS.markers.iter().any(|end| last.ends_with(end));
        let refused = last.contains("ないで") || last.contains("禁止");
        match (ordered, self.says(JAPANESE_STANDING)) {
            (false, _) => None,
            (true, true) => Some(if refused { Order::Never } else { Order::Always }),
            (true, false) => refused.then_some(Order::Forbidden),
        }
    }

    /// Whether it says of what it speaks, so that it can be understood alone.
    pub(super) fn stands_alone(&self) -> bool {
        !self.says(POINTING) && !self.topic().is_empty()
    }

    /// Whether it holds for the present request only.
    pub(super) fn is_only_now(&self) -> bool {
        self.may_say(&[ONLY_NOW])
            && self.clauses().iter().any(|clause| {
                places(clause, ONLY_NOW).any(|end| !clause.get(end).is_some_and(|next| is_in(next, LASTING)))
            })
    }

    /// Whether it has any word by which something earlier may end.
    pub(super) fn may_end_something(&self) -> bool {
        let tables = [ENDS, FROM_NOW, CHANGES, IN_PLACE_OF];
        tables.into_iter().any(|table| self.says(table))
            || self.order().is_some()
            || self.assigned().is_some()
    }

    /// Whether something holds no more that is named with it.
    pub(super) fn ends_something(&self) -> bool {
        self.says(ENDS)
    }

    /// Whether the message before is taken back.
    pub(super) fn takes_back(&self) -> bool {
        self.may_say(&[TAKES_BACK])
            && self.clauses().iter().any(|clause| {
                let clause = opening(clause);
                places(clause, TAKES_BACK).any(|end| end == clause.len())
                    && TAKES_BACK.markers.iter().any(|marker| starts_with(clause, marker))
            })
    }

    pub(super) fn makes_a_new_plan(&self) -> bool {
        self.says(NEW_PLAN)
    }

    /// Whether something else is wanted than before.
    pub(super) fn changes_something(&self) -> bool {
        self.says(FROM_NOW) || self.says(CHANGES)
    }

    pub(super) fn titles_rules(&self) -> bool {
        let last = self.clauses().last().and_then(|clause| clause.last());
        last.is_some_and(|last| is_in(last, RULES))
    }

    /// What somebody takes over, if the sentence says who does.
    pub(super) fn assigned(&self) -> Option<Vec<String>> {
        if !self.may_say(&[TAKES]) {
            return None;
        }
        self.clauses()
            .iter()
            .find_map(|clause| {
                let (start, end) = (1..clause.len().min(4)).find_map(|start| {
                    let mut markers =
                        TAKES.markers.iter().filter(|marker| starts_with(&clause[start..], marker));
                    let longest = markers.by_ref().map(|marker| marker.split(' ').count()).max()?;
                    Some((start, start + longest))
                })?;
                let what = &clause[end..];
                let nobody = start > 2 || is_in(&clause[0], NOBODY) || is_in(&clause[0], EMPTY);
                let lasts = what.first().is_none_or(|first| {
                    is_in(first, DURATIONS) || first.starts_with(|digit: char| digit.is_ascii_digit())
                });
                (!nobody && !lasts).then(|| topic_of(what))
            })
            .or_else(|| {
                let clause =
                    self.clauses().iter().find(|clause| clause.iter().any(|word| word.contains("担当")))?;
                Some(topic_of(clause))
            })
    }

    /// Whether something is named as what is wanted no more: `spaces, not tabs`.
    pub(super) fn refuses(&self, topic: &[String]) -> bool {
        self.may_say(&[IN_PLACE_OF])
            && self.clauses().iter().any(|clause| {
                places(clause, IN_PLACE_OF).any(|end| {
                    clause[end..].iter().take(2).any(|word| topic.iter().any(|about| is_same(about, word)))
                })
            })
    }

    /// What it is about: the words that say something.
    pub(super) fn topic(&self) -> Vec<String> {
        self.clauses().iter().flat_map(|clause| topic_of(clause)).collect()
    }

    /// Its words but for those that every such order has.
    pub(super) fn frame(&self) -> Vec<&str> {
        let words = self.clauses().iter().flatten().map(String::as_str);
        let tables = [ALWAYS, NEVER, FROM_NOW, CHANGES].map(|table| table.markers);
        let tables = tables.into_iter().chain([SOFTENERS, &["now"]]);
        words.filter(|word| !tables.clone().any(|table| is_part_of_any(word, table))).collect()
    }

    fn says(&self, table: Table) -> bool {
        self.may_say(&[table]) && self.clauses().iter().any(|clause| places(clause, table).next().is_some())
    }

    /// Whether any of these tables has a marker in the sentence, wherever that stands.
    fn may_say(&self, tables: &[Table]) -> bool {
        tables.iter().any(|table| self.tables & table.bit != 0)
    }
}

/// Words as they are read, in small letters.
struct WordList {
    words: String,
    /// Where the open word begins.
    open: usize,
    ends: Vec<usize>,
}

impl WordList {
    fn with_room_for(sentence: &str) -> Self {
        let mut words = String::with_capacity(sentence.len() + 2);
        words.push(' ');
        Self { open: words.len(), words, ends: Vec::new() }
    }

    fn is_within_a_word(&self) -> bool {
        self.words.len() > self.open
    }

    fn push(&mut self, letter: char) {
        if letter.is_ascii() {
            self.words.push(letter.to_ascii_lowercase());
        } else {
            self.words.extend(letter.to_lowercase());
        }
    }

    fn end_word(&mut self) {
        let word = &self.words[self.open..];
        let length = word.trim_end_matches(['.', '-']).len();
        self.words.truncate(self.open + length);
        if length > 0 {
            self.words.push(' ');
            self.open = self.words.len();
        }
    }

    fn end_clause(&mut self) {
        self.end_word();
        let before = self.ends.last().copied().unwrap_or(1);
        if self.open > before {
            self.ends.push(self.open);
        }
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
    let at = |from: usize, table: Table| {
        table.markers.iter().find(|marker| starts_with(clause.get(from..).unwrap_or_default(), marker))
    };
    let follows = |length: usize| clause.get(length).is_some_and(|next| !is_story(next));
    // In a language that has the verb first the marker comes second; in English that would be a story.
    for (table, order) in [(ALWAYS, Order::Always), (NEVER, Order::Never)] {
        if let Some(marker) = at(0, table) {
            let alone = !marker.is_ascii() && clause[0].len() > marker.len();
            return (alone || follows(1)).then_some(order);
        }
        if at(1, table).is_some_and(|marker| !matches!(*marker, "always" | "never")) && clause.len() > 2 {
            return Some(order);
        }
    }
    let marker = at(0, FORBIDDING)?;
    let length = marker.split(' ').count();
    let goes_on = follows(length) || (!marker.is_ascii() && clause[0].len() > marker.len());
    let holds_on = places(clause, NEVER).next().is_some() || clause.iter().any(|word| word == "ever");
    goes_on.then_some(if holds_on { Order::Never } else { Order::Forbidden })
}

/// Whether the word after a marker makes it part of a story: `never worked`, `only happens`.
fn is_story(next: &str) -> bool {
    let told = next.is_ascii() && (next.ends_with("ed") || next.ends_with('s') && !next.ends_with("ss"));
    is_in(next, NO_ORDER) || told && next.len() > 4
}

/// A clause without what only softens it.
fn opening(clause: &[String]) -> &[String] {
    let soft = clause.iter().take_while(|word| is_in(word, SOFTENERS)).count();
    &clause[soft..]
}

/// Where markers end in a clause.
fn places(clause: &[String], table: Table) -> impl Iterator<Item = usize> {
    (0..clause.len()).filter_map(move |at| {
        let marker = table
            .markers
            .iter()
            .find(|marker| starts_with(&clause[at..], marker) || is_within(&clause[at], marker))?;
        Some(at + marker.split(' ').count())
    })
}

/// Whether words begin with a marker. Where words are not parted, its letters are enough.
fn starts_with(words: &[String], marker: &str) -> bool {
    let mut parts = marker.split(' ');
    let same = parts.by_ref().zip(words).all(|(part, word)| word == part);
    let whole = same && marker.split(' ').count() <= words.len();
    whole || words.first().is_some_and(|first| is_unspaced(marker) && first.starts_with(marker))
}

fn is_within(word: &str, marker: &str) -> bool {
    is_unspaced(marker) && word.contains(marker)
}

/// Whether a text is in a script that does not part its words.
fn is_unspaced(text: &str) -> bool {
    text.chars().any(is_ideographic)
}

fn is_ideographic(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}')
}

fn is_in(word: &str, table: &[&str]) -> bool {
    table.contains(&word)
}

fn is_part_of_any(word: &str, table: &[&str]) -> bool {
    table.iter().any(|marker| marker.split(' ').any(|part| part == word))
}

fn topic_of(clause: &[String]) -> Vec<String> {
    let tables =
        [ALWAYS, NEVER, FORBIDDING, FROM_NOW, CHANGES, ENDS, TAKES, NEW_PLAN].map(|table| table.markers);
    let mut topic = Vec::new();
    for word in clause {
        if is_unspaced(word) {
            topic.extend(pairs(word));
        } else if word.chars().count() >= 3
            && !tables.iter().chain(&[SOFTENERS, EMPTY]).any(|table| is_part_of_any(word, table))
        {
            let bare = ["وال", "بال", "ال"].iter().find_map(|article| word.strip_prefix(article));
            topic.push(bare.unwrap_or(word).to_owned());
        }
    }
    topic
}

/// The pairs of letters that carry the meaning of a word without spaces: those that are not only grammar.
fn pairs(word: &str) -> Vec<String> {
    let tables = [ALWAYS, NEVER, FORBIDDING, FROM_NOW, CHANGES, ENDS, JAPANESE_STANDING, TAKES];
    let mut word = word.to_owned();
    for marker in tables.iter().flat_map(|table| table.markers).filter(|marker| is_unspaced(marker)) {
        word = word.replace(marker, " ");
    }
    let letters: Vec<char> = word.chars().collect();
    let says = |letter: &char| letter.is_alphanumeric() && !matches!(letter, '\u{3040}'..='\u{309f}');
    letters.windows(2).filter(|pair| pair.iter().all(says)).map(|pair| pair.iter().collect()).collect()
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
