//! The index: which names stood in which results, as at the end of a book.
//!
//! A summary says what happened; what a result held it cannot tell. The index tells where a name was met that may be
//! wanted again, by what was read or run, with the event that brings it back. There are more names than there is room
//! for. In real sessions, those come up again that were met often and lately, that somebody chose, and that were not one
//! of a thousand in a listing; so these are kept, the shorter first among equals.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
};

use serde::{Deserialize, Serialize};

use super::{
    Trail,
    call_subjects::subject,
    focus::{FocusRanking, FocusRelevance},
    result_values::{is_value, name_of, values_in},
    sentences::one_line,
    tools::effects,
    trail::{visit_texts, whole_words, without_tags},
};
use crate::{
    context::EventNaming,
    draft_gate::holds_secret,
    event::{ContentPart, ToolCall, ToolResult},
    id::Seq,
    pairing::{CallOutcome, Exchange},
};

/// Which names stood in a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// What was read or run.
    pub of: String,
    /// The event that brought it.
    pub at: Seq,
    /// The names for which it is the newest, in order.
    pub names: Vec<IndexedName>,
}

/// A name that stood in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexedName {
    /// The name.
    pub name: String,
    /// How often it was met, a result that has it many times counted a little more.
    pub met: u32,
}

/// How many letters a name may have.
const LENGTH: std::ops::RangeInclusive<usize> = 4..=120;

/// How much of what was read or run is told.
const OF: usize = 56;

/// What stands around an entry beside its number, in letters.
const AROUND: usize = "- [] : ".len();

/// A name in a result of more names than this is worth less in proportion.
const CROWD: usize = 100;

/// A name that was met so many events ago is worth half.
const FADING: u64 = 30;

/// A name that was met more often than this is worth no more.
const OFTEN: u32 = 20;

/// What a value is worth, where a path is worth 6: it is short, and nothing else tells it.
const VALUE: u64 = 9;

/// An index of fewer letters than this does not say what was read or run: that would be most of it, and the number leads there.
const SMALL: usize = 4_000;

/// All names of a span and of what came before it.
#[derive(Default)]
pub(super) struct NameIndex {
    /// What was read or run, the newest last.
    sources: Vec<(Seq, String)>,
    known: HashMap<String, KnownName>,
    /// The newest event.
    newest: Seq,
}

/// What is known of a name.
struct KnownName {
    /// The newest source.
    source: usize,
    met: u32,
    /// How many names stood there beside it.
    crowd: usize,
}

impl NameIndex {
    /// Reads the calls up to the newest event, on top of the index of what came before them and of the trail: names that stood
    /// in it may stand there no longer.
    pub(super) fn of(calls: &[Exchange<'_>], newest: Seq, previous: &[IndexEntry], carried: &Trail) -> Self {
        let newest = previous.first().map_or(newest, |entry| newest.max(entry.at));
        let mut index = Self { newest, ..Self::default() };
        index.carry(previous, carried);
        let returned = calls.iter().filter_map(|exchange| match exchange.outcome {
            CallOutcome::Returned { at, result } => Some((at, exchange.call, result)),
            CallOutcome::Unanswered => None,
        });
        let mut returned: Vec<_> = returned.collect();
        // Results may come in another order than they were asked for.
        returned.sort_by_key(|(at, ..)| *at);
        for (at, call, result) in returned {
            index.read(at, call, result);
        }
        index
    }

    /// The index beside a trail, the newest result first: the names that are worth most for their length, within `cap` letters.
    /// What stands in the trail is not told again, and names that hold words of a focus come first.
    pub(super) fn entries_beside(
        &self,
        trail: &Trail,
        ranking: Option<&FocusRanking<'_>>,
        cap: usize,
    ) -> Vec<IndexEntry> {
        if cap == 0 || self.known.is_empty() {
            return Vec::new();
        }
        let told = self.told_in(trail);
        let of = |source: usize| if cap < SMALL { "" } else { self.sources[source].1.as_str() };
        let untold = self.known.iter().filter(|(name, _)| !told.contains(name.as_str()));
        let mut ranked: Vec<((bool, u64), &str, &KnownName)> = untold
            .map(|(name, known)| {
                let (at, _) = self.sources[known.source];
                // Results hold many names that have nothing to do with a focus: these still compete.
                let factor = ranking.map_or(FocusRelevance::Unrelated, |ranking| ranking.event(at)) as u64;
                let worth = worth(name, known, self.newest.0.saturating_sub(at.0)).saturating_mul(factor);
                ((ranking.is_some_and(|ranking| ranking.is_in(name)), worth), name.as_str(), known)
            })
            .collect();
        ranked.sort_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        let mut entries: BTreeMap<usize, Vec<IndexedName>> = BTreeMap::new();
        let mut told_with_value = HashSet::new();
        let mut left = cap;
        for (_, name, known) in ranked {
            if told_with_value.contains(name) {
                continue;
            }
            let (at, of) = (self.sources[known.source].0, of(known.source));
            let is_open = entries.contains_key(&known.source);
            let opening = if is_open { 0 } else { AROUND + at.to_string().len() + of.len() };
            // What was read or run is told already.
            let length = if of.contains(name) { 0 } else { name.len() + 1 };
            let Some(rest) = left.checked_sub(length + opening) else { continue };
            left = rest;
            told_with_value.extend(name_of(name));
            let name = IndexedName { name: name.to_owned(), met: known.met };
            entries.entry(known.source).or_default().push(name);
        }
        let entry = |(source, mut names): (usize, Vec<IndexedName>)| {
            names.retain(|name| !told_with_value.contains(name.name.as_str()));
            names.sort_by(|one, other| one.name.cmp(&other.name));
            IndexEntry { of: of(source).to_owned(), at: self.sources[source].0, names }
        };
        entries.into_iter().rev().map(entry).collect()
    }

    /// Takes over what index and trail of what came before say, by the places that they name: a name is where it stood last.
    fn carry(&mut self, previous: &[IndexEntry], trail: &Trail) {
        let indexed = previous.iter().rev().map(|entry| {
            let names = entry.names.iter().map(|name| (name.name.clone(), name.met)).collect();
            (entry.at, entry.of.clone(), names)
        });
        let told = trail.calls().map(|(at, call)| {
            let mut names: BTreeMap<String, u32> = BTreeMap::new();
            let arguments = arguments(&call.arguments);
            let texts = arguments.iter().map(AsRef::as_ref).chain([call.output.as_str()]);
            for piece in texts.flat_map(whole_words) {
                names_in(piece, &mut |name| names.extend([(name.to_owned(), 1)]));
            }
            (at, one_line(&format!("{} {}", call.tool, call.arguments), OF), names)
        });
        let mut carried: Vec<(Seq, String, BTreeMap<String, u32>)> = indexed.chain(told).collect();
        carried.sort_by_key(|(at, ..)| *at);
        for (at, of, names) in carried {
            self.sources.push((at, of));
            for (name, met) in &names {
                self.meet(name, *met, CROWD);
            }
        }
    }

    /// The names that a trail shows.
    fn told_in(&self, trail: &Trail) -> HashSet<&str> {
        let mut told = HashSet::new();
        let mut tell = |text: &str| {
            names_in(text, &mut |name| {
                told.extend(self.known.get_key_value(name).map(|(name, _)| name.as_str()));
            });
        };
        trail.visit_texts(&mut tell);
        // They are written as JSON, and were read as what it says.
        trail.calls().flat_map(|(_, call)| arguments(&call.arguments)).for_each(|text| tell(&text));
        told
    }

    fn read(&mut self, at: Seq, call: &ToolCall, result: &ToolResult) {
        let texts: Vec<Cow<'_, str>> =
            ContentPart::texts(&result.parts).map(Cow::Borrowed).chain(arguments(&call.arguments)).collect();
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        for text in &texts {
            names_in(text, &mut |name| *names.entry(name).or_default() += 1);
        }
        self.sources.push((at, one_line(&subject(call, &effects(call, Some(result))), OF)));
        let crowd = names.len();
        for (name, times) in names {
            self.meet(name, 1 + times.min(8) / 2, crowd);
        }
    }

    /// A name stands in the newest source.
    fn meet(&mut self, name: &str, times: u32, crowd: usize) {
        let source = self.sources.len().saturating_sub(1);
        let known = self.known.entry(name.to_owned()).or_insert(KnownName { source, met: 0, crowd });
        known.source = source;
        known.met = known.met.saturating_add(times);
        known.crowd = known.crowd.min(crowd);
    }
}

/// What a call was given, without what each of its arguments is called.
fn arguments(json: &str) -> Vec<Cow<'_, str>> {
    let mut texts = Vec::new();
    match serde_json::from_str(json) {
        Ok(mut value) => visit_texts(&mut value, &mut |text| texts.push(Cow::Owned(std::mem::take(text)))),
        Err(_) => texts.push(Cow::Borrowed(json)),
    }
    texts
}

/// What a name is worth for a letter. How the forms compare is how often names of each came up again in real sessions.
fn worth(name: &str, known: &KnownName, age: u64) -> u64 {
    let form = if is_value(name) {
        VALUE
    } else if name.contains('/') {
        6
    } else if name.contains('_') {
        4
    } else if name.bytes().all(|letter| letter.is_ascii_hexdigit()) {
        3
    } else {
        9
    };
    let worth = form * u64::from(known.met.min(OFTEN)) * 1_000_000 * FADING / FADING.saturating_add(age);
    let crowd = (known.crowd / CROWD).max(1) as u64;
    worth / crowd / (name.len() as u64 + 8)
}

/// The names in a text, in order: what is no plain word and looks as if somebody had chosen it.
pub(super) fn names_in<'t>(text: &'t str, see: &mut impl FnMut(&'t str)) {
    // Escapes within a text, as in JSON, part words too; and no key is carried on.
    for line in text.lines().filter(|line| !holds_secret(line)) {
        for (place, piece) in line.split('\\').enumerate() {
            let piece = if place > 0 { behind_escape(piece) } else { piece };
            values_in(piece, see);
            names_in_piece(piece, see);
        }
    }
}

/// The text behind a backslash, without the rest of the escape: `n`, or `u003c`.
fn behind_escape(piece: &str) -> &str {
    let code = piece.strip_prefix('u').and_then(|code| code.split_at_checked(4));
    match code {
        Some((digits, rest)) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => rest,
        _ => piece.strip_prefix(['n', 't', 'r']).unwrap_or(piece),
    }
}

fn names_in_piece<'t>(text: &'t str, see: &mut impl FnMut(&'t str)) {
    let mut rest = text;
    while let Some(start) = rest.find(is_of_path) {
        let is_tag = rest[..start].ends_with('<') && rest[start..].starts_with('/');
        let word = &rest[start..];
        let end = end_of_address(word)
            .or_else(|| end_of_time(word))
            .or_else(|| word.find(|letter| !is_of_path(letter)))
            .unwrap_or(word.len());
        let (word, behind) = word.split_at(end);
        rest = behind;
        if !is_tag {
            names_in_word(word, behind, see);
        }
    }
}

/// Where an address on the web ends that a text begins with.
fn end_of_address(text: &str) -> Option<usize> {
    let scheme = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '+'))?;
    let path = text[scheme..].strip_prefix("://").filter(|_| scheme > 1)?;
    let ends = |letter: char| letter.is_whitespace() || "\"'`<>()[]{}|,".contains(letter);
    let path = &path[..path.find(ends).unwrap_or(path.len())];
    let path = path.trim_end_matches(['.', ':', ';', '!', '?', '*']);
    (!path.is_empty()).then_some(scheme + "://".len() + path.len())
}

/// Where a date with a time ends that a text begins with: `2026-11-18T09:30:00Z`.
fn end_of_time(text: &str) -> Option<usize> {
    const FORM: &str = "0000-00-00T00:00";
    let has_form =
        |(form, letter): (u8, u8)| if form == b'0' { letter.is_ascii_digit() } else { letter == form };
    let start = text.get(..FORM.len()).filter(|start| FORM.bytes().zip(start.bytes()).all(has_form))?;
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, ':' | '.' | '+' | '-' | 'Z');
    let end = text[start.len()..].find(|letter| !is_part(letter)).map_or(text.len(), |end| start.len() + end);
    Some(text[..end].trim_end_matches([':', '.', '-', '+']).len())
}

/// The names in what stands between two gaps, and before `behind`.
fn names_in_word<'t>(word: &'t str, behind: &str, see: &mut impl FnMut(&'t str)) {
    let is_whole = word.contains("://") || end_of_time(word).is_some();
    if is_whole {
        if LENGTH.contains(&word.len()) {
            see(word);
        }
        return;
    }
    // Tools shorten what they print: only a piece of the name stands before an ellipsis.
    if word.ends_with("...") || behind.starts_with('…') {
        return;
    }
    if is_option(word) {
        see(word);
        return;
    }
    let word =
        word.trim_start_matches(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '/');
    let word = word.trim_end_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
    if word.contains('/') || is_file_name(word) {
        if LENGTH.contains(&word.len()) && word.bytes().any(|letter| letter.is_ascii_alphanumeric()) {
            see(word);
        }
    } else if is_id(word) {
        see(word);
    } else {
        let names = word.split(['.', '-', '@', '+']);
        names.filter(|name| LENGTH.contains(&name.len()) && is_name(name)).for_each(see);
    }
}

/// `3f2504e0-4f89-11d3-9a0c-0305e82c3301`, `2026-11-18T09.30`, `INV-2024-0071`, `gpt-5.1-mini`: whatever is joined by dashes
/// and has digits means something only as a whole.
fn is_id(word: &str) -> bool {
    const LEAST: usize = 6;
    (word.len() >= LEAST || word.matches('.').count() > 1)
        && LENGTH.contains(&word.len())
        && (word.contains('-') || word.matches('.').count() > 1)
        && word.bytes().any(|letter| letter.is_ascii_digit())
        && word.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-_.+@".contains(&letter))
}

fn is_of_path(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '@' | '+')
}

/// A word with a short ending behind a dot, as files have.
fn is_file_name(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(name, ending)| {
        name.len() > 1
            && !name.contains('.')
            && (1..=5).contains(&ending.len())
            && ending.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

/// `--dry-run`, and not `--all`, which says little by itself.
fn is_option(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| {
        name.contains('-')
            && LENGTH.contains(&word.len())
            && name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
    })
}

/// Whether a word is an identifier or a hash, and no plain word.
fn is_name(word: &str) -> bool {
    let inner = word.trim_matches('_');
    let humped = || {
        inner.chars().zip(inner.chars().skip(1)).any(|(one, next)| !one.is_uppercase() && next.is_uppercase())
    };
    let letters = inner.bytes().any(|letter| letter.is_ascii_alphabetic());
    let digits = inner.bytes().any(|letter| letter.is_ascii_digit());
    letters && (inner.contains('_') || humped() || (digits && word.len() >= 7))
}

/// As a section of a summary, which says how to use it; nothing, if it is empty.
pub(super) fn write(index: &[IndexEntry], names: EventNaming, text: &mut String) {
    let Some(newest) = index.first() else { return };
    text.push_str("\n## Index of Names\n");
    text.push_str("Names in tool results, newest first");
    if names.are_shown() {
        let _ = write!(text, "; [{}] is {}", newest.at, names.handle(newest.at));
    }
    text.push('\n');
    let are_shown = names.are_shown();
    for IndexEntry { of, at, names } in index {
        let place = if are_shown { format!("[{at}] ") } else { String::new() };
        let names = names.iter().map(|name| name.name.as_str()).filter(|name| !of.contains(name));
        let names = names.collect::<Vec<_>>().join(" ");
        let between = if of.is_empty() || names.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "- {place}{}{between}{names}", without_tags(of));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        event::{Fact, LoggedEvent},
        id::ThreadId,
        notation::{logged, read},
        pairing::pair,
        summary::reading_cache::ReadingCache,
    };

    fn of(span: &[Arc<LoggedEvent>], previous: &[IndexEntry], carried: &Trail) -> NameIndex {
        let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
        let newest = span.last().map_or(Seq::START, |event| event.id.seq);
        NameIndex::of(&paired.exchanges, newest, previous, carried)
    }

    /// A command and what it said, as events `at` and the one after it.
    fn ran(at: u64, command: &str, output: &str) -> [Arc<LoggedEvent>; 2] {
        let arguments = serde_json::json!({ "command": command }).to_string();
        let call = ToolCall::function("c", "bash", arguments);
        let result =
            ToolResult { call: "c".into(), name: None, parts: vec![ContentPart::text(output)], error: false };
        [
            logged(
                at,
                Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::ToolCall(call)] },
            ),
            logged(at + 1, Fact::ToolReturned { results: vec![result], parts: vec![] }),
        ]
    }

    fn index(span: &[Arc<LoggedEvent>], previous: &[IndexEntry], cap: usize) -> Vec<IndexEntry> {
        let none = Trail::default();
        of(span, previous, &none).entries_beside(&none, None, cap)
    }

    fn rendered(index: &[IndexEntry], names: EventNaming) -> String {
        let mut text = String::new();
        write(index, names, &mut text);
        text
    }

    fn names(index: &[IndexEntry]) -> Vec<&str> {
        index.iter().flat_map(|entry| &entry.names).map(|name| name.name.as_str()).collect()
    }

    const LOG: &str = r#"
user: Look.
assistant: Reading.
  call#a read_file {"path":"src/cache.rs"}
  -> fn load_index(path: &Path) calls parse_header and CacheEntry.
assistant: And?
  call#b bash {"command":"git log --no-merges"}
  -> commit 3f9a1b2 by them, v1.2.3, see docs/cache.md
assistant: Searching.
  call#c bash {"command":"rg parse_header"}
  -> src/header.rs: parse_header
"#;

    #[test]
    fn names_stand_by_the_newest_result_and_it_is_said_how_to_get_that_back() {
        let index = index(&read(LOG), &[], 10_000);
        insta::assert_snapshot!(rendered(&index, EventNaming::Thread(ThreadId::derived(&["test"]))), @r"

        ## Index of Names
        Names in tool results, newest first; [7] is recall c02051f4:7
        - [7] `rg parse_header`: src/header.rs
        - [5] `git log --no-merges`: 3f9a1b2 docs/cache.md v1.2.3
        - [3] read_file src/cache.rs: CacheEntry load_index
        ");
        let first = rendered(&index[..1], EventNaming::MessagesAfter(2));
        insta::assert_snapshot!(first, @r"

        ## Index of Names
        Names in tool results, newest first; [7] is message 5
        - [7] `rg parse_header`: src/header.rs
        ");
        assert_eq!(rendered(&[], EventNaming::Messages), "");
    }

    #[test]
    fn a_small_index_tells_values_before_names_and_leaves_out_what_was_read_or_run() {
        let log = r#"
assistant: Reading.
  call#a read_file {"path":"src/cache.rs"}
  -> See QX-57651 in load_index; max_entries = 4096, and 1543 passed.
"#;
        let check = |cap, expect: &str| {
            let text = rendered(&index(&read(log), &[], cap), EventNaming::Messages);
            let entries: Vec<&str> = text.lines().skip(3).collect();
            assert_eq!(entries.join("\n"), expect, "{cap}");
        };
        check(10_000, "- [2] read_file src/cache.rs: 1543 passed QX-57651 load_index max_entries = 4096");
        check(50, "- [2] 1543 passed QX-57651 max_entries = 4096");
    }

    #[test]
    fn what_somebody_chose_is_a_name_and_plain_words_are_none() {
        let check = |text: &str, expect: &[&str]| {
            let mut found = Vec::new();
            names_in(text, &mut |name| found.push(name));
            assert_eq!(found, expect, "{text}");
        };
        check("the quick brown fox, 1234567 and a.b", &[]);
        check(
            "load_index(CacheEntry) __init_all__ __init__ a_b",
            &["load_index", "CacheEntry", "__init_all__"],
        );
        check(
            "at src/a.rs:12, ./x/y, main.rs and `Cargo.toml`.",
            &["src/a.rs", "/x/y", "main.rs", "Cargo.toml"],
        );
        check("--dry-run --all --x- ---a-b", &["--dry-run"]);
        check("v1.2.3 0.12.1-beta 1.2 3f9a1b2c abc123", &["v1.2.3", "0.12.1-beta", "3f9a1b2c"]);
        check("obj.fieldName user@hostName", &["fieldName", "hostName"]);
        let ids = ["3f2504e0-4f89-11d3-9a0c-0305e82c3301", "INV-2024-0071", "2026-11-18", "gpt-5.1-mini"];
        check(&format!("`{}`: ({}) [{}], {}.", ids[0], ids[1], ids[2], ids[3]), &ids);
        check("größeÄnderung 名前_は", &["größeÄnderung"]);
        check(
            "(https://example.org/a?b=c#d). <a href='git+ssh://host/x.git'>x</a> 2026-02-07T00:12:20.5Z, https:// 10:20:30",
            &["https://example.org/a?b=c#d", "git+ssh://host/x.git", "2026-02-07T00:12:20.5Z"],
        );
        check(r"\u003cimg src=load_index\u003e\n</details>\u00e9l", &["load_index"]);
        check("- AssertionErr... at src/par…, load_index", &["load_index"]);
        check("/ // --- ... ___ @@ ++ é/é", &[]);
        check(&format!("{} {}_", "a/".repeat(61), "b".repeat(121)), &[]);
    }

    #[test]
    fn what_was_met_often_lately_and_in_small_company_is_kept() {
        let listing: Vec<String> = (0..900).map(|at| format!("listedName{at:03}")).collect();
        let events = [
            ran(1, "old", "oldestName oldestName"),
            ran(50, "often", "oftenName"),
            ran(52, "often", "oftenName"),
            ran(54, "list", &listing.join("\n")),
            ran(56, "new", "newestName"),
        ]
        .concat();
        let kept = |cap| index(&events, &[], cap);
        assert_eq!(names(&kept(30)), ["oftenName"]);
        assert_eq!(names(&kept(55)), ["newestName", "oftenName"]);
        assert_eq!(names(&kept(80)), ["newestName", "oftenName", "oldestName"]);
        assert_eq!(names(&kept(20_000)).len(), 903);
        assert_eq!(kept(0), []);
    }

    #[test]
    fn a_name_that_is_met_again_moves_and_is_worth_more() {
        let first = index(&ran(1, "one", "someName otherName"), &[], 1_000);
        let second = index(&ran(3, "two", "someName"), &first, 1_000);
        let shown: Vec<String> = second
            .iter()
            .flat_map(|entry| {
                entry.names.iter().map(|name| format!("{} {} {}", entry.at, name.name, name.met))
            })
            .collect();
        assert_eq!(shown, ["4 someName 2", "2 otherName 1"]);
        // Nothing new changes nothing.
        assert_eq!(index(&[], &second, 1_000), second);
    }

    #[test]
    fn what_the_trail_shows_is_not_told_and_what_it_no_longer_shows_is() {
        let log = read(LOG);
        let paired = pair(log.iter().map(|event| (event.id.seq, &event.event.fact)));
        let whole = Trail::default().extended_with(&log, &paired, &mut ReadingCache::default());
        let short = whole.clone().within(300, None);
        let none = Trail::default();
        let told = |span, carried, beside| {
            let found = of(span, &[], carried).entries_beside(beside, None, 10_000);
            let mut found: Vec<String> = names(&found).into_iter().map(str::to_owned).collect();
            found.sort();
            found
        };
        assert_eq!(told(&log, &none, &whole), Vec::<String>::new());
        let left = told(&[], &whole, &short);
        assert!(left.contains(&"CacheEntry".to_owned()), "{left:?}");
        assert!(!left.contains(&"src/cache.rs".to_owned()), "{left:?}");
    }

    #[test]
    fn results_that_come_in_another_order_stand_the_newest_first() {
        let log = "
assistant:
  call#a bash {\"command\":\"slow\"}
  call#b bash {\"command\":\"fast\"}
result b: bothNames fastName
result a: bothNames slowName
";
        let index = index(&read(log), &[], 1_000);
        assert_eq!(names(&index), ["bothNames", "slowName", "fastName"]);
        assert!(index.is_sorted_by(|one, next| one.at >= next.at), "{index:?}");
    }

    /// Were any of it quadratic, this would not end.
    #[test]
    fn huge_words_many_names_and_absurd_numbers_are_borne() {
        let word = "a_".repeat(1 << 19);
        let path = "a/".repeat(1 << 19);
        let dots = "a.".repeat(1 << 19);
        let many: Vec<String> = (0..100_000).map(|at| format!("someName{at}")).collect();
        let events = [
            ran(1, &path, &word),
            ran(3, "x", &dots),
            ran(5, "x", &"-".repeat(1 << 20)),
            ran(7, "list", &many.join(" ")),
        ]
        .concat();
        let found = index(&events, &[], 64_000);
        let length =
            rendered(&found, EventNaming::Messages).lines().skip(3).map(|line| line.len() + 1).sum::<usize>();
        assert!((63_900..=64_000).contains(&length), "{length}");
        assert_eq!(names(&index(&events, &[], usize::MAX)).len(), 100_000);
        let name = |name: &str, met| IndexedName { name: name.to_owned(), met };
        let absurd = IndexEntry {
            of: "x".repeat(1 << 20),
            at: Seq(u64::MAX),
            names: vec![name("someName1", u32::MAX), name("", 0), name("é\n## Pinned", 1)],
        };
        let found = index(&events, &[absurd], usize::MAX);
        let again = found.iter().flat_map(|entry| &entry.names).find(|name| name.name == "someName1");
        assert_eq!(again.map(|name| name.met), Some(u32::MAX));
    }

    #[test]
    fn no_key_is_carried_on_and_escapes_part_words() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(3));
        let said =
            format!("export GITHUB_TOKEN={key}\nDB_PASSWORD=hunter2secret\nran \\tcheckThing(\\nfooBar)");
        let index = index(&ran(1, "env", &said), &[], 1_000);
        assert_eq!(names(&index), ["checkThing", "fooBar"]);
    }
}
