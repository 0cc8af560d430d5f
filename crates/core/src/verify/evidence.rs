//! Evidence: where in the span the things stand that a draft speaks of.
//!
//! The draft is small and the span may be huge, so the draft is what is indexed: its names, quotations and words. The span
//! is then read once, each text as it stands and with its JSON escapes undone, and every place noted where one of them
//! occurs. Memory follows the draft, time follows both.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher},
};

use super::names::{Name, identifiers, is_hex, is_ideograph, names, numbers, pieces};
use crate::{id::Seq, seq_set::SeqSet};

/// How many components of a path are compared at a time; a longer one is compared in overlapping stretches.
const STRETCH: usize = 16;

/// How many words in a row are compared at a time.
const WINDOW: usize = 4;

/// How many places are noted for one needle, the first ones.
const PLACES: usize = 256;

/// How many events are weighed for one needle.
const WEIGHED: usize = 512;

/// Words shorter than this say little about where something came from.
const WORD: usize = 4;

/// What the items of a draft speak of, and where it was found.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    needles: HashMap<Needle, usize, BuildHasherDefault<Mix>>,
    /// Whether ids are looked for, and numbers.
    kinds: Kinds,
    found: Vec<Found>,
    /// The events of each text that was read.
    places: Vec<SeqSet>,
    /// The lengths of the stretches and windows that are looked for.
    stretches: Vec<usize>,
    windows: Vec<usize>,
    hashes: Vec<usize>,
}

/// Something to be looked for, by its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Needle {
    /// Components in a row: how many, and their digest.
    Stretch(usize, u64),
    /// Words in a row.
    Window(usize, u64),
    Hex(u64),
    Id(u64),
    Number(u64),
    Word(u64),
}

/// Of which kinds there are needles at all.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    ids: usize,
    numbers: usize,
}

#[derive(Debug, Default)]
struct Found {
    /// The places, each once.
    at: Vec<usize>,
}

/// What one item speaks of.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// Each name, and the ways in which it is borne out: all of one way must be found.
    names: Vec<(Name, Vec<Vec<usize>>)>,
    /// Quotations: all windows of one must be found.
    quotes: Vec<Vec<usize>>,
    /// Every few words in a row.
    windows: Vec<usize>,
    words: Vec<usize>,
}

impl Evidence {
    /// Looks for what a text speaks of from now on.
    pub(super) fn look_for(&mut self, text: &str) -> Claim {
        let mut claim = Claim::default();
        for name in names(text) {
            let ways = match &name {
                Name::Path(components) => {
                    let hashes: Vec<u64> = components.iter().map(|component| digest(component)).collect();
                    vec![self.in_a_row(&hashes, STRETCH, Needle::Stretch)]
                }
                Name::Hex(digits) => {
                    if !self.hashes.contains(&digits.len()) {
                        self.hashes.push(digits.len());
                    }
                    vec![vec![self.needle(Needle::Hex(digest(digits)))]]
                }
                Name::Id(id) => vec![vec![self.needle(Needle::Id(digest(id)))]],
                Name::Number(ways) => {
                    let long = |digits: &&String| digits.len() >= 3;
                    let way = |way: &Vec<String>| {
                        way.iter().filter(long).map(|digits| Needle::Number(digest(digits))).collect()
                    };
                    let ways: Vec<Vec<Needle>> =
                        ways.iter().map(way).filter(|way: &Vec<_>| !way.is_empty()).collect();
                    ways.into_iter()
                        .map(|way| way.into_iter().map(|needle| self.needle(needle)).collect())
                        .collect()
                }
            };
            claim.names.push((name, ways));
        }
        for quote in quotations(text) {
            let words: Vec<u64> = words(quote).iter().map(|word| digest(word)).collect();
            if !words.is_empty() {
                claim.quotes.push(self.in_a_row(&words, WINDOW, Needle::Window));
            }
        }
        let words = words(text);
        let hashes: Vec<u64> = words.iter().map(|word| digest(word)).collect();
        claim.windows = self.in_a_row(&hashes, WINDOW, Needle::Window);
        let telling: HashSet<&str> = words
            .iter()
            .map(AsRef::as_ref)
            .filter(|word: &&str| word.chars().count() >= WORD || !word.is_ascii())
            .collect();
        claim.words = telling.into_iter().map(|word| self.needle(Needle::Word(digest(word)))).collect();
        claim.words.sort_unstable();
        claim
    }

    fn needle(&mut self, needle: Needle) -> usize {
        *self.needles.entry(needle).or_insert_with(|| {
            let (lengths, length) = match needle {
                Needle::Stretch(length, _) => (&mut self.stretches, length),
                Needle::Window(length, _) => (&mut self.windows, length),
                Needle::Id(_) => {
                    self.kinds.ids += 1;
                    (&mut Vec::new(), 0)
                }
                Needle::Number(_) => {
                    self.kinds.numbers += 1;
                    (&mut Vec::new(), 0)
                }
                Needle::Hex(_) | Needle::Word(_) => (&mut Vec::new(), 0),
            };
            if !lengths.contains(&length) {
                lengths.push(length);
            }
            self.found.push(Found::default());
            self.found.len() - 1
        })
    }

    /// The needles for hashes in a row, in stretches of at most `most`.
    fn in_a_row(&mut self, hashes: &[u64], most: usize, needle: fn(usize, u64) -> Needle) -> Vec<usize> {
        let length = hashes.len().min(most);
        if length == 0 {
            return Vec::new();
        }
        hashes.windows(length).map(|row| self.needle(needle(length, Row::of(row)))).collect()
    }

    /// Reads a text that belongs to these events.
    pub(super) fn read(&mut self, text: &str, events: &SeqSet) {
        if self.places.last() != Some(events) {
            self.places.push(events.clone());
        }
        let at = self.places.len() - 1;
        self.read_as_it_is(text, at);
        // Arguments are JSON in a string, and results often JSON in that.
        if let Some(once) = unescaped(text) {
            self.read_as_it_is(&once, at);
            if let Some(twice) = unescaped(&once) {
                self.read_as_it_is(&twice, at);
            }
        }
    }

    fn read_as_it_is(&mut self, text: &str, at: usize) {
        let mut row = Row::default();
        pieces(text, &mut |piece| {
            if !piece.joined {
                row.clear();
            }
            row.push(digest(piece.text));
            for index in 0..self.stretches.len() {
                let length = self.stretches[index];
                if let Some(hash) = row.last(length) {
                    self.hit(Needle::Stretch(length, hash), at);
                }
            }
            self.read_ids(piece.text, at);
        });
        if self.kinds.numbers > 0 {
            numbers(text, &mut |_, ways| {
                for digits in ways.iter().flatten().filter(|digits| digits.len() >= 3) {
                    self.hit(Needle::Number(digest(digits)), at);
                }
            });
        }
        let mut row = Row::default();
        each_word(text, &mut |word| {
            let hash = digest(word);
            self.hit(Needle::Word(hash), at);
            row.push(hash);
            for index in 0..self.windows.len() {
                let length = self.windows[index];
                if let Some(hash) = row.last(length) {
                    self.hit(Needle::Window(length, hash), at);
                }
            }
        });
    }

    fn read_ids(&mut self, piece: &str, at: usize) {
        // An id has a digit, and most words have none.
        if self.kinds.ids + self.hashes.len() == 0 || !piece.bytes().any(|byte| byte.is_ascii_digit()) {
            return;
        }
        let lower = piece.to_lowercase();
        self.hit(Needle::Id(digest(&lower)), at);
        for part in lower.split(['.', '_']) {
            self.hit(Needle::Id(digest(part)), at);
        }
        if lower.contains('-') {
            let parts: Vec<&str> = lower.split(['-', '.', '_']).collect();
            // A ticket has two parts, a UUID five.
            for length in [2, 5] {
                parts.windows(length).for_each(|parts| self.hit(Needle::Id(digest(&parts.join("-"))), at));
            }
        }
        identifiers(&lower, &mut |_, word| {
            self.hit(Needle::Id(digest(word)), at);
            for part in word.split('_') {
                let digits = part.strip_prefix("0x").unwrap_or(part);
                if is_hex(part) || (digits.len() >= 7 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                {
                    for index in 0..self.hashes.len() {
                        if let Some(prefix) = digits.get(..self.hashes[index]) {
                            self.hit(Needle::Hex(digest(prefix)), at);
                        }
                    }
                }
            }
        });
    }

    fn hit(&mut self, needle: Needle, at: usize) {
        if let Some(index) = self.needles.get(&needle) {
            let places = &mut self.found[*index].at;
            if places.len() < PLACES && places.last() != Some(&at) {
                places.push(at);
            }
        }
    }

    fn is_seen(&self, needle: usize) -> bool {
        !self.found[needle].at.is_empty()
    }

    /// What an item names that was found nowhere.
    pub(super) fn missing<'c>(&self, claim: &'c Claim) -> Option<&'c Name> {
        let missing = claim.names.iter().find(|(_, ways)| !ways.iter().any(|way| self.all_seen(way)));
        missing.map(|(name, _)| name)
    }

    /// Whether some words in a row of an item stand in the span as they are.
    pub(super) fn is_in_its_words(&self, claim: &Claim) -> bool {
        claim.quotes.iter().any(|quote| self.all_seen(quote))
            || claim.windows.iter().any(|window| self.is_seen(*window))
    }

    fn all_seen(&self, needles: &[usize]) -> bool {
        needles.iter().all(|needle| self.is_seen(*needle))
    }

    /// The events that an item came from: those with most of what it names or quotes, else those with most of its words,
    /// else all of the span.
    pub(super) fn sources(&self, claim: &Claim, span: &SeqSet) -> SeqSet {
        let names = claim
            .names
            .iter()
            .flat_map(|(_, ways)| ways)
            .filter(|way| self.all_seen(way))
            .filter_map(|way| way.last());
        let quotes =
            claim.quotes.iter().filter(|quote| self.all_seen(quote)).filter_map(|quote| quote.last());
        let (best, _) = self.most(names.chain(quotes));
        if !best.is_empty() {
            return best;
        }
        let (best, most) = self.most(claim.words.iter());
        let enough = (claim.words.len() / 3).max(2);
        if most >= enough { best } else { span.clone() }
    }

    /// The events that hold most of some needles, and how many.
    fn most<'n>(&self, needles: impl Iterator<Item = &'n usize>) -> (SeqSet, usize) {
        let mut held: HashMap<Seq, usize> = HashMap::new();
        for needle in needles {
            let runs = self.found[*needle].at.iter().flat_map(|place| self.places[*place].runs());
            let mut events: Vec<u64> = runs.flat_map(|run| run.first.0..=run.last.0).take(WEIGHED).collect();
            // What a summary says and what happened may name the same event.
            events.sort_unstable();
            events.dedup();
            for seq in events {
                *held.entry(Seq(seq)).or_default() += 1;
            }
        }
        let most = held.values().copied().max().unwrap_or(0);
        let mut best: Vec<Seq> =
            held.into_iter().filter(|(_, count)| *count == most).map(|(seq, _)| seq).collect();
        best.sort_unstable();
        let mut set = SeqSet::default();
        for seq in best {
            set.insert(seq);
        }
        (set, most)
    }
}

/// Hashes what is a digest already.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = self.0.rotate_left(23).wrapping_mul(Row::BASE) ^ value;
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.unsigned_abs() as u64);
    }
}

/// Digests of things in a row, of which the last few can be told as one at once.
#[derive(Default)]
struct Row {
    sums: Vec<u64>,
}

impl Row {
    const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

    /// The powers of the base.
    const POWERS: [u64; STRETCH + 1] = {
        let mut powers = [1u64; STRETCH + 1];
        let mut at = 1;
        while at <= STRETCH {
            powers[at] = powers[at - 1].wrapping_mul(Self::BASE);
            at += 1;
        }
        powers
    };

    fn of(hashes: &[u64]) -> u64 {
        hashes.iter().fold(0, |sum, hash| sum.wrapping_mul(Self::BASE).wrapping_add(*hash))
    }

    fn clear(&mut self) {
        self.sums.clear();
    }

    fn push(&mut self, hash: u64) {
        let last = self.sums.last().copied().unwrap_or(0);
        self.sums.push(last.wrapping_mul(Self::BASE).wrapping_add(hash));
    }

    fn last(&self, length: usize) -> Option<u64> {
        let end = *self.sums.last()?;
        let before = self.sums.len().checked_sub(length)?;
        let start = before.checked_sub(1).map_or(0, |at| self.sums[at]);
        Some(end.wrapping_sub(start.wrapping_mul(Self::POWERS[length])))
    }
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The words of a text in lower case; a letter of a script without spaces is a word.
pub(super) fn words(text: &str) -> Vec<Cow<'_, str>> {
    let mut all = Vec::new();
    each_word(text, &mut |word| all.push(Cow::Owned(word.to_owned())));
    all
}

fn each_word(text: &str, see: &mut impl FnMut(&str)) {
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_alphanumeric() && !is_ideograph(letter) {
            word.extend(letter.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            see(&word);
            word.clear();
        }
        if is_ideograph(letter) {
            see(letter.encode_utf8(&mut [0; 4]));
        }
    }
}

/// What stands in backticks or double quotes.
pub(super) fn quotations(text: &str) -> impl Iterator<Item = &str> {
    let ticked = text.split('`').skip(1).step_by(2);
    let quoted = text.split(['"', '“', '”']).skip(1).step_by(2);
    ticked.chain(quoted).filter(|quote| quote.trim().len() >= WORD)
}

/// A text with the escapes of JSON undone; nothing if it has none.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(letter) = rest.chars().next() else {
            plain.push('\\');
            break;
        };
        let known = match letter {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'b' | 'f' => Some(' '),
            '"' | '/' | '\\' => Some(letter),
            'u' => {
                let (decoded, length) = unicode(rest);
                plain.push(decoded);
                rest = &rest[length..];
                continue;
            }
            _ => None,
        };
        match known {
            Some(known) => {
                plain.push(known);
                rest = &rest[letter.len_utf8()..];
            }
            None => plain.push('\\'),
        }
    }
    plain.push_str(rest);
    Some(plain)
}

/// What `u00e9` stands for, or a pair of such, and how long that is; what is none stands for the backslash before it.
fn unicode(text: &str) -> (char, usize) {
    let unit = |text: &str| text.get(1..5).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    let Some(first) = unit(text) else { return ('\\', 0) };
    let second = text
        .get(5..)
        .and_then(|rest| rest.strip_prefix('\\'))
        .filter(|rest| rest.starts_with('u'))
        .and_then(unit);
    let units = [first, second.unwrap_or(0)];
    match char::decode_utf16(units).next() {
        Some(Ok(letter)) if letter.len_utf16() == 2 => (letter, 11),
        Some(Ok(letter)) => (letter, 5),
        _ => (char::REPLACEMENT_CHARACTER, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of `claimed` is not in `span`.
    fn missing(claimed: &str, span: &str) -> Option<String> {
        let mut evidence = Evidence::default();
        let claim = evidence.look_for(claimed);
        evidence.read(span, &SeqSet::one(Seq(1)));
        evidence.missing(&claim).map(Name::shown)
    }

    fn check(claimed: &str, span: &str, expect: Option<&str>) {
        assert_eq!(missing(claimed, span).as_deref(), expect, "{claimed} in {span}");
    }

    #[test]
    fn a_path_is_found_by_its_tail_and_not_inside_a_component() {
        check("src/a.rs", "read /repo/src/a.rs now", None);
        check("./src/a.rs", "+++ b/src/a.rs", None);
        check("a.rs", "/repo/src/ba.rs", Some("a.rs"));
        check("src/a.rs", "/repo/xsrc/a.rs", Some("src/a.rs"));
        check("src/a.rs", "src and a.rs", Some("src/a.rs"));
        check("the folder src/verify/", "src/verify/mod.rs", None);
        check("/etc/src/a.rs", "src/a.rs", Some("etc/src/a.rs"));
        check("src/a.rs", "src/a.rs.bak", Some("src/a.rs"));
        check("see `app/[id]/page.tsx`", "app/[id]/page.tsx:12", None);
    }

    #[test]
    fn escapes_of_json_are_undone() {
        check("src/a.rs", r#"{"path":"src\/a.rs"}"#, None);
        check("repo/src/a.rs", r#"{"path":"C:\\repo\\src\\a.rs"}"#, None);
        check("b.rs", r#"{"text":"see\nb.rs"}"#, None);
        check("src/é.rs", r#"{"path":"src/\u00e9.rs"}"#, None);
        check("src/b.rs", r#"{"a":"{\"path\":\"x\\nsrc/b.rs\"}"}"#, None);
        check("src/c.rs", r"{\", Some("src/c.rs"));
        check("src/c.rs", r"\u12", Some("src/c.rs"));
    }

    #[test]
    fn numbers_and_ids_are_found_in_any_writing() {
        check("1,234 files", "1234 files", None);
        check("1234 files", "1_234 files", None);
        check("234 files", "1234 files", Some("234"));
        check("lines 12,345", "lines 12 and 345", None);
        check("commit 3f2a9c1", "3f2a9c1d8e7b6a5f4e3d2c1b0a99887766554433", None);
        check("commit 3f2a9c2", "3f2a9c1d8e7b6a5f4e3d2c1b0a99887766554433", Some("3f2a9c2"));
        check("ABC-123", "branch feature-abc-123-x", None);
        check("ABC-124", "branch feature-abc-123-x", Some("abc-124"));
        check("test_two_2", "fn test_two_2()", None);
        check("test_two_3", "fn test_two_2()", Some("test_two_3"));
        check("E0308", "error[E0308]", None);
        check("E0309", "error[E0308]", Some("0309"));
        check("550e8400-e29b-41d4-a716-446655440000", "x_550E8400-e29b-41d4-a716-446655440000.json", None);
    }

    #[test]
    fn sources_are_where_the_names_are_else_the_words_else_everything() {
        let mut evidence = Evidence::default();
        let all = SeqSet::run(Seq(1), Seq(4));
        let claims = [
            "src/a.rs holds the `bounded cache`",
            "the window was measured twice",
            "something else entirely",
        ];
        let claims = claims.map(|text| evidence.look_for(text));
        let texts =
            ["see src/a.rs", "src/a.rs: the bounded cache", "we measured the window twice today", "nothing"];
        for (seq, text) in (1..).zip(texts) {
            evidence.read(text, &SeqSet::one(Seq(seq)));
        }
        let sources = claims.map(|claim| evidence.sources(&claim, &all).to_string());
        assert_eq!(sources, ["2", "3", "1-4"]);
    }

    /// Quadratic, this would take hours.
    #[test]
    fn hostile_texts_are_read_in_one_go() {
        for hostile in ["/a", "a/", "\\", "1,", "-a", "_a1", "0a", "\\\\u00e9", "`", "a ", "字"] {
            let span = hostile.repeat(60_000 / hostile.len());
            let claimed =
                format!("src/x.rs {} {}b.rs", &span[..span.floor_char_boundary(2_000)], "a/".repeat(40));
            assert!(missing(&claimed, &span).is_some(), "{hostile}");
        }
    }
}
