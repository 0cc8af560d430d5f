//! Reading a draft: from what a model wrote to sentences under a title.
//!
//! Small models keep to a form loosely: bold titles for headings, numbers for bullets, a fence around everything, a
//! sentence of their own before it. All of that is read as it was meant. What stands under no title that a model may write
//! under is counted and left. Nothing more is needed: a line that is no sentence of the agent's is turned away later.

use super::{
    item_filter::MODEL_WRITTEN_SECTIONS,
    numbered_sentences::{SentenceNumber, leading_numbers},
};
use crate::summary::{SummarySection, list_entry, one_line, split_sentences};

/// How many characters of a line are read; no item is shown longer than a part of this.
const LINE: usize = 2_000;

/// What a draft says.
#[derive(Debug, Default)]
pub(super) struct ParsedDraft {
    /// Its items, in the sections that are a model's.
    pub(super) items: Vec<DraftItem>,
    /// How many titles were recognised.
    pub(super) titles: usize,
    /// How many items stand under no title that is a model's.
    pub(super) unread: u64,
}

/// An item of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DraftItem {
    pub(super) section: SummarySection,
    pub(super) text: String,
    /// The sentence it chooses: its own words count only if there is no such sentence.
    pub(super) chosen: Option<SentenceNumber>,
}

/// Reads a draft, from which the reasoning was taken.
pub(super) fn read(text: &str) -> ParsedDraft {
    let mut draft = ParsedDraft::default();
    let mut place = LinePosition::Before;
    let mut item = String::new();
    // A last blank line ends the last item.
    for line in text.lines().chain([""]) {
        let text = line.trim();
        let entry = entry(text);
        let (body, is_listed) = (entry.unwrap_or(text), entry.is_some());
        let title = heading(text, body);
        // A line that goes on with the one before ends nothing.
        if is_mark(text) || is_listed || title.is_some() {
            draft.take(place, &std::mem::take(&mut item));
        }
        if let Some(title) = title {
            draft.titles += usize::from(title != LinePosition::Elsewhere);
            place = match title {
                // A deeper heading parts a section.
                LinePosition::Elsewhere if text.starts_with("###") => place,
                title => title,
            };
        } else if !is_mark(text) && item.len() < LINE {
            // A model that forgot the titles wrote what it was asked for first.
            place = if place == LinePosition::Before && is_listed {
                LinePosition::Under(MODEL_WRITTEN_SECTIONS[0])
            } else {
                place
            };
            item.push(' ');
            item.push_str(body);
        }
    }
    draft
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// Before the first title.
    Before,
    Under(SummarySection),
    /// Under a title that nobody asked for.
    Elsewhere,
}

impl ParsedDraft {
    /// Takes an item. Each of its sentences is held against the session by itself: of a paragraph that is true in part,
    /// that part is true.
    fn take(&mut self, place: LinePosition, item: &str) {
        let text = one_line(&item.replace("**", ""), LINE);
        let letters: String = text.chars().filter(|letter| letter.is_alphanumeric()).collect();
        // What only introduces others says nothing itself.
        if letters.is_empty()
            || letters.eq_ignore_ascii_case("none")
            || text.ends_with(':') && entry(&text).is_none()
        {
            return;
        }
        let section = match place {
            LinePosition::Under(section) if MODEL_WRITTEN_SECTIONS.contains(&section) => section,
            _ => {
                self.unread += 1;
                return;
            }
        };
        let (words, mut behind) = without_brackets(&text);
        let mut parts: Vec<_> = split_sentences(words).into_iter().map(leading_numbers).collect();
        match parts.last_mut() {
            Some((numbers, _)) => numbers.append(&mut behind),
            None => parts.push((behind, "")),
        }
        let item = |text: &str, chosen| DraftItem { section, text: text.to_owned(), chosen };
        for (mut numbers, words) in parts {
            let last = numbers.pop();
            self.items.extend(numbers.into_iter().map(|number| item("", Some(number))));
            self.items.push(item(words, last));
        }
    }
}

/// Where the lines behind a title stand, if a line is one: marked with `#` whatever it says, or a known one that stands alone
/// in its line.
fn heading(text: &str, body: &str) -> Option<LinePosition> {
    const LONGEST: usize = 60;
    let words = body.trim_start_matches('#').split('(').next().unwrap_or_default();
    let words = words.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty());
    let title = words.collect::<Vec<_>>().join(" ").to_lowercase();
    // A model that shortens a title still means the section that has it.
    let means = |section: &SummarySection| {
        let own = section.title().to_lowercase();
        own == title || own.split(' ').any(|word| word == title && word.len() > 4)
    };
    let known = SummarySection::ALL.into_iter().find(means).filter(|_| body.len() <= LONGEST);
    let is_alone = !text.starts_with(['-', '*', '•', '+']) || body.starts_with("**");
    let is_title = text.starts_with('#') || known.is_some() && is_alone;
    is_title.then(|| known.map_or(LinePosition::Elsewhere, LinePosition::Under))
}

/// A line as an entry of a list: marked as one, or beginning with the number of a sentence.
fn entry(text: &str) -> Option<&str> {
    list_entry(text).or_else(|| (!leading_numbers(text).0.is_empty()).then_some(text))
}

/// A line without what stands in brackets behind it, if that is numbers of events or of sentences, and the latter.
fn without_brackets(text: &str) -> (&str, Vec<SentenceNumber>) {
    let behind = text.trim_end_matches('.').strip_suffix(']').and_then(|text| text.rsplit_once('['));
    let is_number = |letter: char| letter.is_ascii_digit() || ".,- –…".contains(letter);
    match behind.filter(|(_, inside)| inside.chars().all(is_number)) {
        Some((words, inside)) => (words.trim_end(), leading_numbers(inside).0),
        None => (text, Vec::new()),
    }
}

/// A line that says nothing: a rule, a fence, or a tag alone in its line.
fn is_mark(text: &str) -> bool {
    let is_tag = text.starts_with('<') && text.ends_with('>') && !text.contains(' ');
    is_tag || text.starts_with("```") || text.starts_with("~~~") || !text.contains(char::is_alphanumeric)
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
        check("1. **Key Decisions**:\n   - ship it", expect);
        check("KEY DECISIONS\n• ship it", expect);
        check("Decisions:\nship it", expect);
        check("# 9. Key Decisions (1)\n+ [ ] **ship** it", expect);
        check("Here you are:\n\n```markdown\n## Key Decisions\n- ship it\n```\n", expect);
        check("- **Key Decisions**\n  - ship it", expect);
        check("## Key Decisions\n- ship it [3, 5-9]", expect);
    }

    #[test]
    fn the_events_that_stand_behind_an_item_are_no_words_of_it() {
        let check = |text: &str, expect: &str| {
            assert_eq!(show(&format!("## Key Decisions\n- {text}")), format!("Key Decisions: {expect}"));
        };
        check("ship it [3, 12]", "ship it");
        check("ship it. [7].", "ship it.");
        check("see a[0] and [x]", "see a[0] and [x]");
    }

    #[test]
    fn what_code_tells_is_counted_and_left() {
        let draft = read(
            "## Constraints\n- obey\n## Next Steps\n- ship it\n- None\n## Notes\n- hello\n## Key Decisions\n- a",
        );
        assert_eq!((draft.items.len(), draft.unread), (1, 3));
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
    fn a_fence_swallows_nothing() {
        let expect = "Key Decisions: One | Key Decisions: fn a() {} | Key Decisions: Two";
        assert_eq!(show("## Key Decisions\n- One\n```rust\nfn a() {}\n```\n- Two"), expect);
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
