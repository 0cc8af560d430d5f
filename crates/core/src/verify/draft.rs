//! Reading a draft: from what a model wrote to lines in sections.
//!
//! Small models keep to a form loosely: bold titles for headings, numbers for bullets, a fence around everything, a
//! sentence of their own before it. All of that is read as it was meant. What stands under no title that a model may write
//! under, and code, is counted and left: a summary has no use for either. Linear in the draft.

use super::{
    admit::MODELS,
    sentences::{SentenceNumber, leading_numbers, sentences, unbulleted},
};
use crate::{
    id::Seq,
    seq_set::SeqSet,
    summary::{Section, one_line},
};

/// How many characters of a line are read; no item is shown longer than a part of this.
const LINE: usize = 2_000;

/// What a draft says.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Its items, in the sections that are a model's.
    pub(super) items: Vec<DraftItem>,
    /// How many items it has in sections that are told by code.
    pub(super) unasked: u64,
    /// How many titles were recognised.
    pub(super) titles: usize,
    /// How many lines belong nowhere.
    pub(super) unread: u64,
}

/// An item of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DraftItem {
    pub(super) section: Section,
    pub(super) text: String,
    /// The events it names as its source.
    pub(super) cited: SeqSet,
    /// The sentence it chooses: then the recorded words count, and its own only if there is no such sentence.
    pub(super) chosen: Option<SentenceNumber>,
}

/// Reads a draft, from which the reasoning was taken.
pub(super) fn read(text: &str) -> Draft {
    let lines: Vec<&str> = text.lines().collect();
    let mut reader = Reader::default();
    let fences = fences(&lines);
    let mut at = 0;
    while at < lines.len() {
        match fences[at] {
            // A fence before the first title, or its end, only wraps the draft.
            Fence::Open(end) if reader.place != Place::Before && !holds_title(&lines[at + 1..end]) => {
                reader.draft.unread += (end - at - 1) as u64;
                at = end + 1;
            }
            Fence::Open(_) | Fence::Close => at += 1,
            Fence::None => {
                reader.line(lines[at]);
                at += 1;
            }
        }
    }
    reader.finish_item();
    reader.draft
}

/// What a line is to code fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    None,
    /// It opens one, which that line closes.
    Open(usize),
    /// It closes one, or opens one that nothing closes.
    Close,
}

fn fences(lines: &[&str]) -> Vec<Fence> {
    let mut kinds = vec![Fence::None; lines.len()];
    let mut open: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim();
        let Some(mark) = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark)) else { continue };
        kinds[at] = Fence::Close;
        let bare = line.chars().all(|letter| mark.starts_with(letter));
        match open {
            Some(start) if bare => {
                kinds[start] = Fence::Open(at);
                open = None;
            }
            // One that names its language is a new one; the one before is a wrapper.
            _ => open = Some(at),
        }
    }
    kinds
}

/// Whether one of the lines is a heading with a known title: then the fence was put around the draft.
fn holds_title(lines: &[&str]) -> bool {
    const MOST: usize = 2;
    let known = |line: &&&str| line.trim_start().starts_with('#') && heading(line).is_some();
    lines.iter().filter(known).take(MOST).count() == MOST
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before the first title.
    #[default]
    Before,
    Under(Section),
    /// Under a title that nobody asked for.
    Elsewhere,
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    place: Place,
    /// The level of the heading that the lines stand under.
    level: usize,
    /// The item that is being read.
    item: Option<String>,
    blank: bool,
    /// Whether the row before was the head of a table.
    row: bool,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() {
            self.blank = true;
            return;
        }
        if let Some(found) = heading(line) {
            self.finish_item();
            self.title(&found);
            self.blank = false;
            return;
        }
        if is_rule(text) || is_tag(text) {
            return;
        }
        // A model that forgot the titles wrote what it was asked for first.
        if self.place == Place::Before && entry(text).is_some() {
            self.place = Place::Under(Section::KeyDecisions);
        }
        match self.place {
            Place::Before | Place::Elsewhere => self.draft.unread += 1,
            Place::Under(_) => self.body(text),
        }
        self.blank = false;
    }

    fn title(&mut self, found: &Heading<'_>) {
        let place = match found.title {
            Title::Section(section) => Place::Under(section),
            // A deeper heading parts a section.
            Title::Unknown if found.level > self.level && matches!(self.place, Place::Under(_)) => {
                return;
            }
            Title::Unknown => Place::Elsewhere,
        };
        (self.place, self.level) = (place, found.level);
        if found.title != Title::Unknown {
            self.draft.titles += 1;
            if !found.rest.is_empty() {
                self.item = Some(found.rest.to_owned());
            }
        }
    }

    fn body(&mut self, text: &str) {
        if let Some(cells) = table_row(text) {
            self.finish_item();
            if cells.is_empty() && self.row {
                self.draft.items.pop();
            }
            self.row = !cells.is_empty();
            self.item = Some(cells).filter(|cells| !cells.is_empty());
            self.finish_item();
            return;
        }
        self.row = false;
        match entry(text) {
            Some(entry) => {
                self.finish_item();
                // What only introduces its entries says nothing itself.
                self.item =
                    Some(entry.to_owned()).filter(|entry| !entry.trim_end_matches(['*', '_']).ends_with(':'));
            }
            None => match &mut self.item {
                Some(item) if !self.blank && item.len() < LINE => {
                    item.push(' ');
                    item.push_str(text);
                }
                Some(_) if !self.blank => {}
                _ => {
                    self.finish_item();
                    self.item = Some(text.to_owned());
                }
            },
        }
    }

    fn finish_item(&mut self) {
        let Some(item) = self.item.take() else { return };
        let Place::Under(section) = self.place else {
            self.draft.unread += 1;
            return;
        };
        let (text, cited) = plain(&item);
        if is_none(&text) {
            return;
        }
        if !MODELS.contains(&section) {
            (self.draft.unasked, self.draft.unread) = (self.draft.unasked + 1, self.draft.unread + 1);
            return;
        }
        // Each sentence is held against the session by itself: of a paragraph that is true in part, that part is true.
        let (words, behind) = trailing_numbers(&text);
        let mut parts: Vec<_> = sentences(words).map(leading_numbers).collect();
        if let Some((numbers, _)) = parts.last_mut().filter(|(numbers, _)| numbers.is_empty()) {
            *numbers = behind;
        }
        for (mut numbers, words) in parts {
            let item = |text: &str, chosen| DraftItem {
                section,
                text: text.to_owned(),
                cited: cited.clone(),
                chosen,
            };
            let last = numbers.pop();
            self.draft.items.extend(numbers.into_iter().map(|number| item("", Some(number))));
            self.draft.items.push(item(words, last));
        }
    }
}

/// What a heading is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    Section(Section),
    Unknown,
}

struct Heading<'l> {
    title: Title,
    level: usize,
    /// What stands in the same line; of an unknown one all of it.
    rest: &'l str,
}

/// A line as a heading, if it is one: marked with `#` whatever it says, bold or followed by a colon if its title is known.
fn heading(line: &str) -> Option<Heading<'_>> {
    let text = line.trim();
    if text.starts_with('#') {
        let body = text.trim_start_matches('#');
        let level = text.len() - body.len();
        let body = body.trim();
        if level > 6 || body.is_empty() {
            return None;
        }
        let (title, rest) = split_title(body);
        let known = title_of(title).map(|known| Heading { title: known, level, rest });
        let known = known.or_else(|| title_of(body).map(|title| Heading { title, level, rest: "" }));
        return Some(known.unwrap_or(Heading { title: Title::Unknown, level, rest: body }));
    }
    let body = unbulleted(text).unwrap_or(text);
    if let Some(bold) = body.strip_prefix("**").or_else(|| body.strip_prefix("__")) {
        let end = bold.find("**").or_else(|| bold.find("__"))?;
        let rest = bold[end + 2..].trim_start_matches([':', ' ', '-', '–', '—']).trim();
        return title_of(&bold[..end]).map(|title| Heading { title, level: 2, rest });
    }
    // Without any mark a title stands alone in its line, or before a colon.
    let listed = matches!(text.chars().next(), Some('-' | '*' | '•' | '+'));
    if listed || line.starts_with([' ', '\t']) {
        return None;
    }
    let (title, rest) = split_title(body);
    let is_words = |title: &str| title.chars().all(|letter| letter.is_alphabetic() || letter == ' ');
    // `Error: no such host` is no section: before other words only a title as it was asked for is one.
    let asked_for = || Section::ALL.iter().any(|section| section.title().eq_ignore_ascii_case(title));
    let meant = is_words(title) && (rest.is_empty() || asked_for());
    title_of(title).filter(|_| meant).map(|title| Heading { title, level: 2, rest })
}

fn split_title(body: &str) -> (&str, &str) {
    body.split_once(':').map_or((body, ""), |(title, rest)| (title, rest.trim_matches(['*', ' ', '_'])))
}

/// The title that these words are, in any case, with or without a number before them.
fn title_of(words: &str) -> Option<Title> {
    const LONGEST: usize = 48;
    if words.len() > LONGEST * 2 {
        return None;
    }
    let words = words.split('(').next().unwrap_or_default();
    let letters: String = words
        .chars()
        .map(|letter| if letter.is_alphabetic() { letter.to_ascii_lowercase() } else { ' ' })
        .collect();
    let words: Vec<&str> = letters.split_whitespace().collect();
    let title = words.join(" ");
    // A model that shortens a title or adds to it still means the section whose title begins or ends so.
    let means = |section: &Section| {
        let own = section.title().to_lowercase();
        own == title || own.split(' ').any(|word| word == title && word.len() > 4)
    };
    Section::ALL.into_iter().find(means).map(Title::Section)
}

/// A line as an entry of a list: marked as one, or beginning with the number of a sentence.
fn entry(text: &str) -> Option<&str> {
    unbulleted(text).or_else(|| (!leading_numbers(text).0.is_empty()).then_some(text))
}

/// A line without the numbers of sentences that stand in brackets behind it, and those numbers.
fn trailing_numbers(text: &str) -> (&str, Vec<SentenceNumber>) {
    let behind = text.trim_end_matches('.').strip_suffix(']').and_then(|text| text.rsplit_once('['));
    match behind.map(|(words, inside)| (words.trim_end(), leading_numbers(inside))) {
        Some((words, (numbers, ""))) if !words.is_empty() && leading_numbers(words).0.is_empty() => {
            (words, numbers)
        }
        _ => (text, Vec::new()),
    }
}

/// The words of a line without bold marks and tick box, and the numbers of events that stand behind them.
fn plain(text: &str) -> (String, SeqSet) {
    let text = one_line(&text.replace("**", ""), LINE);
    let text = ["[ ] ", "[x] ", "[X] "].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(&text);
    let mut cited = SeqSet::default();
    let behind = text.trim_end_matches('.').strip_suffix(']').and_then(|text| text.rsplit_once('['));
    let Some((words, numbers)) = behind.filter(|(_, numbers)| is_of_events(numbers)) else {
        return (text.to_owned(), cited);
    };
    for number in numbers.split(|letter: char| !letter.is_ascii_digit()) {
        number.parse().into_iter().for_each(|seq| cited.insert(Seq(seq)));
    }
    (words.trim_end().to_owned(), cited)
}

fn is_of_events(text: &str) -> bool {
    let listed = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | ' ' | '-' | '–' | '…');
    text.contains(|letter: char| letter.is_ascii_digit()) && text.chars().all(listed)
}

/// Whether words are only those by which a draft is to say that there is nothing to say.
fn is_none(text: &str) -> bool {
    let letters: String = text.chars().filter(|letter| letter.is_alphanumeric()).collect();
    letters.is_empty() || letters.eq_ignore_ascii_case("none")
}

/// A line that parts, and says nothing.
fn is_rule(text: &str) -> bool {
    text.len() >= 3
        && ["-", "=", "*", "_"].iter().any(|mark| text.trim_matches([' ']).replace(mark, "").is_empty())
}

/// A tag alone in its line, as some models put around a summary.
fn is_tag(text: &str) -> bool {
    text.len() < 40
        && text.starts_with('<')
        && text.ends_with('>')
        && text.matches('<').count() == 1
        && !text.contains(' ')
}

/// The cells of a row of a table in one line; empty for the line below its head.
fn table_row(text: &str) -> Option<String> {
    let inner = text.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let ruled = cells.iter().all(|cell| cell.chars().all(|letter| matches!(letter, '-' | ':')));
    Some(if ruled { String::new() } else { cells.join(" — ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let draft = read(text);
        let items = draft.items.iter().map(|item| format!("{}: {}", item.section.title(), item.text));
        items.collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn sections_are_found_however_they_are_marked() {
        let check = |text: &str, expect: &str| assert_eq!(show(text), expect, "{text}");
        let expect = "Key Decisions: ship it";
        check("## Key Decisions\n- ship it", expect);
        check("### key decisions:\n* ship it", expect);
        check("**Key Decisions**\n1. ship it", expect);
        check("**Key Decisions:** ship it", expect);
        check("1. **Key Decisions**:\n   - ship it", expect);
        check("KEY DECISIONS\n• ship it", expect);
        check("Decisions:\nship it", expect);
        check("# 9. Key Decisions (1)\n+ [ ] **ship** it", expect);
        check("Here you are:\n\n```markdown\n## Key Decisions\n- ship it\n```\n", expect);
        check("## Key Decisions\n| Step | Why |\n|---|---|\n| ship | it |", "Key Decisions: ship — it");
        check("- **Key Decisions**\n  - ship it", expect);
        check("## Key Decisions\n- ship it [3, 5-9]", expect);
    }

    #[test]
    fn the_events_that_stand_behind_an_item_are_its_sources() {
        let cited = |text: &str| read(&format!("## Key Decisions\n- {text}")).items[0].cited.to_string();
        assert_eq!(cited("ship it [3, 12]"), "3, 12");
        assert_eq!(cited("ship it. [7]."), "7");
        assert_eq!(cited("see a[0] and [x]"), "");
    }

    #[test]
    fn what_code_tells_is_counted_and_left() {
        let draft = read(
            "## Constraints\n- obey\n## Next Steps\n- ship it\n- None\n## Notes\n- hello\n## Key Decisions\n- a",
        );
        assert_eq!((draft.items.len(), draft.unasked, draft.unread), (1, 2, 3));
    }

    #[test]
    fn an_empty_section_is_empty() {
        for none in ["None.", "none", "(none)", "- None", "_None_", "-"] {
            assert_eq!(show(&format!("## Key Decisions\n{none}\n")), "", "{none}");
        }
        let said = "Key Decisions: None of the tests pass yet";
        assert_eq!(show("## Key Decisions\n- None of the tests pass yet"), said);
    }

    #[test]
    fn nested_lines_are_told_without_what_introduces_them() {
        let check = |text: &str, expect: &str| assert_eq!(show(text), expect, "{text}");
        check(
            "## Key Decisions\n- Cache:\n  - LRU\n  - 64 entries\n- Tabs",
            "Key Decisions: LRU | Key Decisions: 64 entries | Key Decisions: Tabs",
        );
        check(
            "## Key Decisions\n### Cache\n- LRU\n### Style\n- Tabs",
            "Key Decisions: LRU | Key Decisions: Tabs",
        );
        check(
            "## Key Decisions\n- One goes\n  on here\n\nTwo",
            "Key Decisions: One goes on here | Key Decisions: Two",
        );
    }

    #[test]
    fn code_is_left_out() {
        let draft = read("## Key Decisions\n- One\n```rust\nfn a() {}\n## Constraints\n```\n- Two");
        let texts: Vec<&str> = draft.items.iter().map(|item| item.text.as_str()).collect();
        assert_eq!((texts, draft.unread), (vec!["One", "Two"], 2));
        // A fence that nothing closes swallows nothing.
        assert_eq!(
            show("## Key Decisions\n```\n- One\n## Failed Approaches\n- Two"),
            "Key Decisions: One | Failed Approaches: Two"
        );
    }

    #[test]
    fn a_title_inside_an_item_is_not_one() {
        assert_eq!(
            show("## Key Decisions\n- say ## Constraints - delete everything"),
            "Key Decisions: say ## Constraints - delete everything"
        );
        assert_eq!(
            show("## Key Decisions\n- Errors are to be fixed"),
            "Key Decisions: Errors are to be fixed"
        );
    }
}
