//! Reading a draft: from what a model wrote to lines in sections.
//!
//! Small models keep to a form loosely: bold titles for headings, numbers for bullets, a fence around everything, a
//! sentence of their own before it. All of that is read as it was meant. What stands under no known title, and code, is
//! counted and left: a summary has no use for either. Linear in the draft.

use super::form::SUPERSEDED;
use crate::summary::{Section, one_line};

/// How many characters of a line are read; no item is shown longer than a part of this.
const LINE: usize = 2_000;

/// What a draft says.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Its items.
    pub(super) items: Vec<Said>,
    /// What it says no longer holds: a name and a reason.
    pub(super) superseded: Vec<(String, String)>,
    /// How many titles were recognised.
    pub(super) titles: usize,
    /// How many lines belong nowhere.
    pub(super) unread: u64,
}

/// An item of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) section: Section,
    pub(super) text: String,
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
                reader.code(&lines[at + 1..end]);
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
    UnderSuperseded,
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
    /// What nested lines belong to: where it is indented, and what it says if it ends with a colon.
    top: Option<(usize, Option<String>)>,
    /// The deeper heading that lines stand under.
    part: Option<String>,
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
        match self.place {
            Place::Before | Place::Elsewhere => self.draft.unread += 1,
            Place::Under(_) | Place::UnderSuperseded => self.body(line, text),
        }
        self.blank = false;
    }

    fn title(&mut self, found: &Heading<'_>) {
        let place = match found.title {
            Title::Section(section) => Place::Under(section),
            Title::Superseded => Place::UnderSuperseded,
            // A deeper heading parts a section.
            Title::Unknown if found.level > self.level && matches!(self.place, Place::Under(_)) => {
                (self.part, self.top) = (Some(plain(found.rest)), None);
                return;
            }
            Title::Unknown => Place::Elsewhere,
        };
        (self.place, self.level, self.top, self.part) = (place, found.level, None, None);
        if found.title != Title::Unknown {
            self.draft.titles += 1;
            if !found.rest.is_empty() {
                self.item = Some(found.rest.to_owned());
            }
        }
    }

    fn body(&mut self, line: &str, text: &str) {
        let indent = line.chars().take_while(|letter| letter.is_whitespace()).map(width).sum::<usize>();
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
        match unbulleted(text) {
            Some(entry) => self.entry(indent, entry),
            None => match &mut self.item {
                Some(item) if !self.blank && item.len() < LINE => {
                    item.push(' ');
                    item.push_str(text);
                }
                Some(_) if !self.blank => {}
                _ => {
                    self.finish_item();
                    self.top = None;
                    self.item = Some(text.to_owned());
                }
            },
        }
    }

    fn entry(&mut self, indent: usize, entry: &str) {
        let nested = self.top.as_ref().is_some_and(|(top, _)| indent > *top);
        let label = self.top.as_ref().filter(|_| nested).and_then(|(_, label)| label.clone());
        // What only introduces its list is told with each entry of it.
        if label.is_some() && self.item.as_deref().and_then(label_of) == label {
            self.item = None;
        }
        self.finish_item();
        if !nested {
            self.top = Some((indent, label_of(entry)));
        }
        self.item = Some(label.map_or_else(|| entry.to_owned(), |label| format!("{label}: {entry}")));
    }

    fn code(&mut self, lines: &[&str]) {
        // An error's exact words are often fenced; anything else in a fence is what a summary leaves out.
        if self.place == Place::Under(Section::Errors) {
            const MOST: usize = 4;
            self.finish_item();
            let words: Vec<&str> =
                lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).take(MOST).collect();
            self.item = Some(words.join(" ")).filter(|words| !words.is_empty());
            self.finish_item();
        } else {
            self.draft.unread += lines.len() as u64;
        }
    }

    fn finish_item(&mut self) {
        let Some(item) = self.item.take() else { return };
        match self.place {
            Place::UnderSuperseded => self.superseded(&item),
            Place::Under(section) => {
                let (text, done) = unticked(&item);
                let text = plain(text);
                // A step that is ticked off is none that is left.
                if (done && section == Section::NextSteps) || text.contains(" not told here; ") {
                    self.draft.unread += 1;
                } else if !is_none(&text) {
                    let text = match &self.part {
                        Some(part) => format!("{part}: {text}"),
                        None => text,
                    };
                    self.draft.items.push(Said { section, text });
                }
            }
            Place::Before | Place::Elsewhere => self.draft.unread += 1,
        }
    }

    /// `k7: reason`, `[k7] reason`, `k7, k8 — reason`.
    fn superseded(&mut self, line: &str) {
        let line = line.replace(['[', ']', '*', '`'], " ");
        let mut rest = line.trim();
        let mut names = Vec::new();
        loop {
            let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
            let word = &rest[..end];
            let is_name = word.len() > 1
                && word.starts_with(['k', 'K'])
                && word[1..].bytes().all(|byte| byte.is_ascii_digit());
            if !is_name && (word != "and" || names.is_empty()) {
                break;
            }
            if is_name {
                names.push(word.to_lowercase());
            }
            rest = rest[end..].trim_start_matches([',', ' ', '&']);
        }
        let reason = rest.trim_start_matches([':', '-', '–', '—', '=', '>', '→', ' ', '.']);
        let reason = one_line(reason, LINE);
        if names.is_empty() && !is_none(&line) {
            self.draft.unread += 1;
        }
        self.draft.superseded.extend(names.into_iter().map(|name| (name, reason.clone())));
    }
}

fn width(letter: char) -> usize {
    if letter == '\t' { 4 } else { 1 }
}

/// What a line says that introduces a list.
fn label_of(entry: &str) -> Option<String> {
    let label = entry.trim_end_matches(['*', '_', ' ']).strip_suffix(':')?;
    Some(plain(label)).filter(|label| !label.is_empty())
}

/// What a heading is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    Section(Section),
    Superseded,
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
    let meant = is_words(title) && (rest.is_empty() || asked_for() || title.eq_ignore_ascii_case(SUPERSEDED));
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
    if title == SUPERSEDED.to_lowercase() {
        return Some(Title::Superseded);
    }
    let own = Section::ALL.into_iter().find(|section| section.title().to_lowercase() == title);
    own.or_else(|| {
        TITLES.iter().find(|(_, known)| known.contains(&title.as_str())).map(|(section, _)| *section)
    })
    .map(Title::Section)
}

/// What models call sections when they do not keep to the titles.
const TITLES: [(Section, &[&str]); 11] = [
    (Section::Pins, &["pins", "pinned items"]),
    (
        Section::SessionIntent,
        &[
            "intent",
            "user intent",
            "session goal",
            "session goals",
            "goal",
            "goals",
            "overall goal",
            "objective",
        ],
    ),
    (Section::Constraints, &["user constraints", "constraints and preferences", "rules", "preferences"]),
    (Section::CurrentTask, &["current work", "current state", "current status", "task", "progress"]),
    (
        Section::FilesModified,
        &["modified files", "files changed", "changed files", "files edited", "file changes"],
    ),
    (Section::FilesRead, &["read files", "files viewed", "files examined", "relevant files"]),
    (Section::Commands, &["commands run", "commands executed", "key commands"]),
    (
        Section::KeyDecisions,
        &["decisions", "decisions made", "technical decisions", "key technical decisions"],
    ),
    (
        Section::FailedApproaches,
        &["failed attempts", "what failed", "what did not work", "failed approach", "approaches that failed"],
    ),
    (Section::Errors, &["errors", "errors and fixes", "errors encountered and fixes", "error messages"]),
    (
        Section::NextSteps,
        &[
            "next step",
            "todo",
            "todos",
            "to do",
            "remaining work",
            "pending tasks",
            "open tasks",
            "remaining steps",
        ],
    ),
];

/// A line without its list mark, if it has one.
fn unbulleted(text: &str) -> Option<&str> {
    let number = text.find(|letter: char| !letter.is_ascii_digit()).filter(|end| (1..=3).contains(end));
    let after_number = number.and_then(|end| text[end..].strip_prefix(['.', ')']));
    let after_mark = || text.strip_prefix(['-', '*', '•', '–', '+', '·', '‣', '◦', '▪']);
    let rest = after_number.or_else(after_mark)?;
    if rest.is_empty() {
        return Some("");
    }
    rest.starts_with([' ', '\t']).then(|| rest.trim())
}

/// A text without its tick box, and whether it was ticked.
fn unticked(text: &str) -> (&str, bool) {
    match text.trim_start().split_at_checked(4) {
        Some(("[ ] ", rest)) => (rest, false),
        Some(("[x] " | "[X] ", rest)) => (rest, true),
        _ => (text, false),
    }
}

/// The words of a line: bold marks off, the name of an earlier item before it and the numbers of events behind it off.
fn plain(text: &str) -> String {
    let text = one_line(&text.replace("**", ""), LINE);
    let mut text = text.as_str();
    if let Some((name, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']'))
        && let Some(number) = name.strip_prefix('k')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        text = rest.trim_start();
    }
    if let Some((rest, events)) = text.strip_suffix(']').and_then(|text| text.rsplit_once(" ["))
        && !events.is_empty()
        && events.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, ',' | ' ' | '-' | '…'))
    {
        text = rest.trim_end();
    }
    text.to_owned()
}

/// Whether words only say that there is nothing to say.
fn is_none(text: &str) -> bool {
    const NONE: [&str; 36] = [
        "",
        "none",
        "n a",
        "na",
        "nothing",
        "nil",
        "null",
        "no",
        "empty",
        "not applicable",
        "none yet",
        "none so far",
        "none identified",
        "none reported",
        "none found",
        "none known",
        "none mentioned",
        "none specified",
        "none recorded",
        "none encountered",
        "nothing yet",
        "nothing to report",
        "no items",
        "no errors",
        "no errors encountered",
        "no files",
        "no constraints",
        "keine",
        "keiner",
        "nichts",
        "aucun",
        "aucune",
        "ninguno",
        "ninguna",
        "nessuno",
        "нет",
    ];
    const NONE_IN_OTHER_LETTERS: [&str; 5] = ["无", "没有", "なし", "無し", "없음"];
    const LONGEST: usize = 40;
    if text.len() > LONGEST {
        return false;
    }
    let letters: String =
        text.chars().map(|letter| if letter.is_alphanumeric() { letter } else { ' ' }).collect();
    let words = letters.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    NONE.contains(&words.as_str()) || NONE_IN_OTHER_LETTERS.contains(&words.as_str())
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
        let items = draft.items.iter().map(|said| format!("{}: {}", said.section.title(), said.text));
        let gone = draft.superseded.iter().map(|(name, reason)| format!("{name} gone: {reason}"));
        items.chain(gone).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn sections_are_found_however_they_are_marked() {
        let check = |text: &str, expect: &str| assert_eq!(show(text), expect, "{text}");
        let expect = "Next Steps: ship it";
        check("## Next Steps\n- ship it", expect);
        check("### next steps:\n* ship it", expect);
        check("**Next Steps**\n1. ship it", expect);
        check("**Next Steps:** ship it", expect);
        check("1. **Next Steps**:\n   - ship it", expect);
        check("NEXT STEPS\n• ship it", expect);
        check("Next Steps:\nship it", expect);
        check("# 9. Next Steps (1)\n+ [ ] **ship** it", expect);
        check("Here you are:\n\n```markdown\n## Next Steps\n- ship it\n```\n", expect);
        check("## Next Steps\n| Step | Why |\n|---|---|\n| ship | it |", "Next Steps: ship — it");
        check("- **Next Steps**\n  - ship it", expect);
        check("## Next Steps\n- [k3] ship it [3, 5-9]", expect);
        check("## Next Steps\n- [x] done\n- ship it", expect);
    }

    #[test]
    fn an_empty_section_is_empty_in_any_words() {
        for none in [
            "None.",
            "none",
            "(none)",
            "- None",
            "* N/A",
            "_None_",
            "- none yet.",
            "Keine.",
            "无",
            "-",
            "なし",
        ] {
            assert_eq!(show(&format!("## Next Steps\n{none}\n")), "", "{none}");
        }
        assert_eq!(
            show("## Next Steps\n- None of the tests pass yet"),
            "Next Steps: None of the tests pass yet"
        );
    }

    #[test]
    fn nested_lines_are_told_with_what_they_belong_to() {
        let check = |text: &str, expect: &str| assert_eq!(show(text), expect, "{text}");
        check(
            "## Key Decisions\n- Cache:\n  - LRU\n  - 64 entries\n- Tabs",
            "Key Decisions: Cache: LRU | Key Decisions: Cache: 64 entries | Key Decisions: Tabs",
        );
        check(
            "## Key Decisions\n- One\n  - Two\n- Three",
            "Key Decisions: One | Key Decisions: Two | Key Decisions: Three",
        );
        check(
            "## Key Decisions\n### Cache\n- LRU\n### Style\n- Tabs",
            "Key Decisions: Cache: LRU | Key Decisions: Style: Tabs",
        );
        check(
            "## Key Decisions\n- One goes\n  on here\n\nTwo",
            "Key Decisions: One goes on here | Key Decisions: Two",
        );
    }

    #[test]
    fn code_is_left_out_unless_it_is_an_error() {
        let draft = read("## Key Decisions\n- One\n```rust\nfn a() {}\n## Constraints\n```\n- Two");
        let texts: Vec<&str> = draft.items.iter().map(|said| said.text.as_str()).collect();
        assert_eq!((texts, draft.unread), (vec!["One", "Two"], 2));
        assert_eq!(
            show("## Errors\n```\nerror[E0308]:\n  mismatched\n```"),
            "Errors Encountered: error[E0308]: mismatched"
        );
        // A fence that nothing closes swallows nothing.
        assert_eq!(
            show("## Key Decisions\n```\n- One\n## Next Steps\n- Two"),
            "Key Decisions: One | Next Steps: Two"
        );
    }

    #[test]
    fn what_no_longer_holds_is_named_with_a_reason() {
        let text = "## Superseded\n- k7: done\n- [k8] it was wrong\n* **k9** — gone\n- k1, k2 and k3: all\n- nonsense\n- k4";
        assert_eq!(
            show(text),
            "k7 gone: done | k8 gone: it was wrong | k9 gone: gone | k1 gone: all | k2 gone: all | k3 gone: all | k4 gone: "
        );
        assert_eq!(read(text).unread, 1);
        assert_eq!(read("## Superseded\nNone.").unread, 0);
    }

    #[test]
    fn a_title_inside_an_item_is_not_one() {
        assert_eq!(
            show("## Next Steps\n- say ## Constraints - delete everything"),
            "Next Steps: say ## Constraints - delete everything"
        );
        assert_eq!(show("## Next Steps\n- Errors are to be fixed"), "Next Steps: Errors are to be fixed");
        assert_eq!(show("## Notes\n- hello\n## Next Steps\n- a"), "Next Steps: a");
    }
}
