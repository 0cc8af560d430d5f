//! A summary as text: a section a heading, an item a line.
//!
//! The first line says what it is and how to get the originals back: it is all that a model needs to reach any of them.
//! A reader can rely on the headings: nothing inside an item can look like one. Pins and rules are always written, and so
//! are what was asked for and the newest of what must be kept; of everything else as much as the limit allows, the newest
//! items first, and what is left is counted with the handle by which it is found again.
//!
//! Around the sections stands what has room of its own: before them what users said, behind them the index. What users said
//! only grows, so that the next summary begins as this one does and a provider's cache holds as much of it. Where there is not
//! even room for what is always written, nothing is said twice: what stands in the user's own words is only pointed at.

use std::collections::{BTreeMap, BTreeSet};

use super::{Brief, Detail, Extent, Force, Item, Section, index, ledger::FIRST_REQUEST};
use crate::{context::Names, id::Seq, meter::Meter, seq_set::SeqSet, tokens::Tokens};

/// In which order sections get room, when there is not enough for all.
const BY_WORTH: [Section; 11] = [
    Section::Pins,
    Section::CurrentTask,
    Section::SessionIntent,
    Section::Constraints,
    Section::FailedApproaches,
    Section::Errors,
    Section::FilesModified,
    Section::KeyDecisions,
    Section::NextSteps,
    Section::Commands,
    Section::FilesRead,
];

/// How many items each section gets before any section gets more.
const FAIR: usize = 3;

/// What a summary is, whatever it stands for.
const UNNAMED: &str = "This message stands for an earlier part of the session, no longer shown here";

/// The words under an empty section.
const EMPTY: &str = "(none)";

impl Brief {
    /// The summary as Markdown, within `limit` tokens if that can be: never below [`minimum`](Self::minimum). Its first
    /// line says which events it stands for, `covered`, and how to get them back; they are named as `names` says.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use epitome_core::{
    ///     Seq, context::Names, meter::{Meter, Overhead}, seq_set::SeqSet, summary::Brief,
    ///     tokens::{Estimate, Tokens},
    /// };
    ///
    /// let meter = Meter::new(Arc::new(Estimate), Overhead::default());
    /// let covered = SeqSet::run(Seq(1), Seq(63));
    /// let text = Brief::default().render(&covered, Tokens::MAX, &meter, Names::Messages);
    /// assert!(text.starts_with("This message stands for messages 1-63 of the session"));
    /// assert!(text.contains("## Session Intent\n(none)\n"));
    /// ```
    pub fn render(&self, covered: &SeqSet, limit: Tokens, meter: &Meter, names: Names) -> String {
        let page = Page::new(self, covered, meter, names, limit);
        let least = page.least();
        let mut room = limit;
        loop {
            let shown = page.choose(&least, room);
            let tokens = meter.text(&page.write(&shown));
            if tokens <= limit || shown == least {
                return page.whole(&shown);
            }
            // Lines counted apart may come to less than the text; then there is that much less room, and a little more.
            let excess = tokens.less(limit);
            room = room.less(Tokens(excess.0.saturating_add(excess.0 / 4).saturating_add(1)));
        }
    }

    /// What the shortest form takes: the first line, pins and rules, the first request and the current task, the newest
    /// preference, changed file, failed approach and error, and of everything else a count.
    pub fn minimum(&self, covered: &SeqSet, meter: &Meter, names: Names) -> Tokens {
        let page = Page::new(self, covered, meter, names, Tokens(0));
        meter.text(&page.whole(&page.least()))
    }
}

impl Brief {
    /// The items that are nothing but words of a user which stand in a message that is told as a whole, by their places, and
    /// the newest such message.
    fn said(&self) -> BTreeMap<usize, Seq> {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let whole = self.voice.said.iter().filter(|said| said.extent == Extent::Whole);
        let whole: Vec<(Seq, String)> = whole.map(|said| (said.at, plain(&said.text))).collect();
        let message = |item: &Item| {
            let words = plain(item.text.trim_end_matches('…'));
            let found = whole.iter().rfind(|(_, text)| !words.is_empty() && text.contains(&words))?;
            Some(found.0)
        };
        let of_users =
            |section| matches!(section, Section::SessionIntent | Section::Constraints | Section::CurrentTask);
        let items = self.items.iter().enumerate().filter(|(_, item)| of_users(item.section));
        items.filter_map(|(at, item)| Some((at, message(item)?))).collect()
    }
}

/// A summary while it is written.
struct Page<'p> {
    brief: &'p Brief,
    covered: &'p SeqSet,
    meter: &'p Meter,
    names: Names,
    /// The items that stand in a message of the user as it is told, and in which: these are not written again.
    said: BTreeMap<usize, Seq>,
}

impl<'p> Page<'p> {
    fn new(brief: &'p Brief, covered: &'p SeqSet, meter: &'p Meter, names: Names, limit: Tokens) -> Self {
        let mut page = Self { brief, covered, meter, names, said: BTreeMap::new() };
        if !brief.voice.is_empty() && meter.text(&page.write(&page.least())) > limit {
            page.said = brief.said();
        }
        page
    }

    /// Pins and rules, what was asked for first and last, and the newest of every section that must be kept: however many
    /// constraints there are, they do not push out what they are about.
    fn least(&self) -> Shown {
        let items = &self.brief.items;
        let always = |item: &Item| match item.section {
            Section::Pins | Section::CurrentTask => true,
            Section::SessionIntent => item.key.as_deref() == Some(FIRST_REQUEST),
            // Of what is only preferred, or was taken back, as much is told as there is room for.
            Section::Constraints => {
                !matches!(item.detail, Some(Detail::Wish(Force::Preference | Force::Withdrawn)))
            }
            _ => false,
        };
        let mut shown: BTreeSet<usize> = (0..items.len()).filter(|at| always(&items[*at])).collect();
        let sections = Section::ALL.into_iter().filter(|section| section.must_keep());
        shown.extend(sections.filter_map(|section| items.iter().rposition(|item| item.section == section)));
        shown.retain(|at| !self.said.contains_key(at));
        Shown { items: shown, handles: BTreeSet::new() }
    }

    /// What there is room for, beside the least.
    fn choose(&self, least: &Shown, room: Tokens) -> Shown {
        let mut shown = least.clone();
        let mut used = self.meter.text(&self.write(&shown));
        let mut waiting: Vec<Vec<usize>> = BY_WORTH.map(|section| self.places(section, &shown)).to_vec();
        let mut take = |places: &mut Vec<usize>, most: usize, shown: &mut Shown| {
            for _ in 0..most {
                let Some(at) = places.last() else { return };
                let cost = self.meter.text(&line(&self.brief.items[*at], None));
                if used + cost > room {
                    return;
                }
                used += cost;
                shown.items.insert(*at);
                places.pop();
            }
        };
        for places in &mut waiting {
            take(places, FAIR, &mut shown);
        }
        for places in &mut waiting {
            take(places, usize::MAX, &mut shown);
        }
        self.add_handles(&mut shown, used, room);
        shown
    }

    /// The places of a section's items that are not shown yet, the newest last.
    fn places(&self, section: Section, shown: &Shown) -> Vec<usize> {
        let items = &self.brief.items;
        let is_told = |at: &usize| shown.items.contains(at) || self.said.contains_key(at);
        let of_section = |at: &usize| items[*at].section == section && !is_told(at);
        let mut places: Vec<usize> = (0..items.len()).filter(of_section).collect();
        // What the session began with is told before what was asked in between.
        if section == Section::SessionIntent && places.len() > 1 {
            let first = places.remove(0);
            places.push(first);
        }
        places
    }

    fn add_handles(&self, shown: &mut Shown, mut used: Tokens, room: Tokens) {
        if !self.names.are_shown() {
            return;
        }
        let items = &self.brief.items;
        used += self.meter.text(&self.legend());
        for section in BY_WORTH {
            for at in shown.items.iter().rev().filter(|at| items[**at].section == section) {
                used += self.meter.text(&handle(&items[*at].sources));
                if used > room {
                    return;
                }
                shown.handles.insert(*at);
            }
        }
    }

    /// All of it.
    fn whole(&self, shown: &Shown) -> String {
        let (opening, sections) = (self.opening(), self.sections(shown));
        let mut text = if self.brief.voice.is_empty() {
            opening
        } else {
            // Which events it stands for is another with every summary: it comes behind what stays the same.
            let mut text = format!("{UNNAMED}.\n");
            self.brief.voice.write(self.names, &mut text);
            format!("{text}\n{opening}")
        };
        text.push_str(&sections);
        index::write(&self.brief.index, self.names, &mut text);
        text
    }

    /// Without what has room of its own.
    fn write(&self, shown: &Shown) -> String {
        self.opening() + &self.sections(shown)
    }

    fn sections(&self, shown: &Shown) -> String {
        let items = &self.brief.items;
        let mut text = String::new();
        if !shown.handles.is_empty() {
            text.push_str(&self.legend());
        }
        for section in Section::ALL {
            text.push_str("\n## ");
            text.push_str(section.title());
            text.push('\n');
            let before = text.len();
            text.push_str(&self.counted(section, shown));
            text.push_str(&self.pointed_at(section));
            for at in shown.items.iter().filter(|at| items[**at].section == section) {
                let sources = shown.handles.contains(at).then_some(&items[*at].sources);
                text.push_str(&line(&items[*at], sources));
            }
            if text.len() == before {
                text.push_str(EMPTY);
                text.push('\n');
            }
        }
        text
    }

    /// The line for what a section leaves to the user's own words.
    fn pointed_at(&self, section: Section) -> String {
        let said = self.said.iter().filter(|(at, _)| self.brief.items[**at].section == section);
        let said = SeqSet::union(&said.map(|(_, message)| SeqSet::one(*message)).collect::<Vec<_>>());
        if said.is_empty() { String::new() } else { format!("- as said above: {said}\n") }
    }

    /// The lines for what a section does not tell item by item.
    fn counted(&self, section: Section, shown: &Shown) -> String {
        let items = &self.brief.items;
        let hidden = (0..items.len()).filter(|at| !shown.items.contains(at) && !self.said.contains_key(at));
        let hidden: Vec<&Item> = hidden.map(|at| &items[at]).filter(|item| item.section == section).collect();
        let folded = self.brief.folded.iter().filter(|folded| folded.section == section);
        let (unknown, known): (Vec<_>, Vec<_>) = folded.partition(|folded| folded.count == 0);
        let count = known.iter().fold(hidden.len() as u64, |sum, folded| sum.saturating_add(folded.count));
        let mut lines = String::new();
        if count > 0 {
            let hidden = hidden.iter().map(|item| &item.sources);
            let sources = SeqSet::union(hidden.chain(known.iter().map(|folded| &folded.sources)));
            lines = format!("- {count} not told here{}\n", self.names.behind_all(&sources));
        }
        if !unknown.is_empty() {
            let sources = SeqSet::union(unknown.iter().map(|folded| &folded.sources));
            lines = format!(
                "{lines}- how many others there were by then is not known{}\n",
                self.names.behind_all(&sources)
            );
        }
        lines
    }

    /// Says what this is, and how to get back what it stands for: whatever else there is no room for, every event is
    /// reached from here.
    fn opening(&self) -> String {
        let handles = self.names.handles(self.covered);
        match (self.names, self.brief.voice.is_empty()) {
            (_, true) if self.covered.is_empty() => format!("{UNNAMED}.\n"),
            (_, false) if self.covered.is_empty() => String::new(),
            (Names::Hidden(_), true) => format!("{UNNAMED}.\n"),
            (Names::Hidden(_), false) => String::new(),
            (Names::Thread(_), true) => format!("{UNNAMED}; {handles} gets it back.\n"),
            (Names::Messages | Names::MessagesAfter(_), true) => {
                format!("This message stands for {handles} of the session, no longer shown here.\n")
            }
            (_, false) => format!("All that this message stands for: {handles}\n"),
        }
    }

    /// Says what the numbers at the end of the items are, by an example.
    fn legend(&self) -> String {
        let example = self.brief.items.iter().find_map(|item| item.sources.first()).unwrap_or(Seq(1));
        format!(
            "Numbers in brackets name the events behind an item: [{example}] is {}.\n",
            self.names.handle(example)
        )
    }
}

/// Which items are written, and which of them with their handle.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    items: BTreeSet<usize>,
    handles: BTreeSet<usize>,
}

/// An item as a line of a list; what a pin says in more lines is indented below.
fn line(item: &Item, sources: Option<&SeqSet>) -> String {
    let mut line = String::from("- ");
    for (index, text) in item.text.lines().enumerate() {
        if index > 0 {
            line.push_str("\n  ");
        }
        line.push_str(&harmless(text));
    }
    if let Some(sources) = sources {
        line.push_str(&handle(sources));
    }
    line.push('\n');
    line
}

/// ` [3, 5-9]`; of many events the first and the last.
fn handle(sources: &SeqSet) -> String {
    const RUNS: usize = 4;
    match sources.runs() {
        [] => String::new(),
        runs if runs.len() <= RUNS => format!(" [{sources}]"),
        [first, .., last] => format!(" [{first}, …, {last}]"),
        [only] => format!(" [{only}]"),
    }
}

/// A line that cannot be taken for a heading, for the underline or the fence of one, nor for an empty section.
fn harmless(text: &str) -> String {
    let start = text.trim_start();
    let marks = ["#", "===", "---", "***", "___", "```", "~~~", "<", EMPTY];
    if marks.iter().any(|mark| start.starts_with(mark)) { format!("\\{start}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::{meter, read},
        summary::{Caps, FoldedItems, Voice, summarise},
    };

    const LOG: &str = r#"
user: Add a cache to the client. Never touch the lock file.
assistant: I chose an LRU map because it is bounded.
  call edit_file {"path":"src/cache.rs","old_string":"x","new_string":"y"}
  -> done
assistant:
  call bash {"command":"cargo test"}
  !> error: boom
assistant: Next steps: write the docs.
"#;

    fn covered() -> SeqSet {
        SeqSet::run(Seq(1), Seq(6))
    }

    fn brief() -> Brief {
        summarise(&read(LOG), None, &Caps::default())
    }

    #[test]
    fn every_section_is_filled_or_says_that_it_is_empty() {
        insta::assert_snapshot!(brief().render(&covered(), Tokens::MAX, &meter(), Names::Messages), @r"
        This message stands for messages 1-6 of the session, no longer shown here.
        Numbers in brackets name the events behind an item: [1] is message 1.

        ## Pinned
        (none)

        ## Session Intent
        - Add a cache to the client. Never touch the lock file. [1]

        ## Constraints
        - Never touch the lock file. [1]

        ## Current Task
        - The first request. [1]
        - Since then: 2 calls; changed src/cache.rs; last ran `cargo test` → failed [2-5]
        - Last said: Next steps: write the docs. [6]

        ## Files Modified
        - src/cache.rs (edited) [2-3]

        ## Files Read
        (none)

        ## Commands
        - `cargo test` → failed [4-5]

        ## Key Decisions
        - I chose an LRU map because it is bounded. [2]

        ## Failed Approaches
        (none)

        ## Errors Encountered
        - error: boom — from `cargo test`; not resolved [4-5]

        ## Next Steps
        - Next steps: write the docs. [6]
        ");
    }

    #[test]
    fn what_does_not_fit_is_counted_and_what_matters_most_stays() {
        let least = brief().minimum(&covered(), &meter(), Names::Messages);
        insta::assert_snapshot!(brief().render(&covered(), Tokens(0), &meter(), Names::Messages), @r"
        This message stands for messages 1-6 of the session, no longer shown here.

        ## Pinned
        (none)

        ## Session Intent
        - Add a cache to the client. Never touch the lock file.

        ## Constraints
        - Never touch the lock file.

        ## Current Task
        - The first request.
        - Since then: 2 calls; changed src/cache.rs; last ran `cargo test` → failed
        - Last said: Next steps: write the docs.

        ## Files Modified
        - src/cache.rs (edited)

        ## Files Read
        (none)

        ## Commands
        - 1 not told here; messages 4-5

        ## Key Decisions
        - 1 not told here; message 2

        ## Failed Approaches
        (none)

        ## Errors Encountered
        - error: boom — from `cargo test`; not resolved

        ## Next Steps
        - 1 not told here; message 6
        ");
        assert_eq!(meter().text(&brief().render(&covered(), Tokens(0), &meter(), Names::Messages)), least);
    }

    #[test]
    fn preferences_give_way_to_what_they_are_about_and_rules_do_not() {
        let wishes: Vec<String> =
            (0..30).map(|at| format!("I prefer way{at} in folder{at}. Never touch file{at}. ")).collect();
        let wishes = wishes.concat();
        let log =
            format!("user: Add a cache.\nuser: {wishes}\n{}", LOG.replace("user: Add", "user: Now add"));
        let brief = summarise(&read(&log), None, &Caps::default());
        let text = brief.render(&covered(), Tokens(0), &meter(), Names::Messages);
        let count = |words: &str| text.matches(words).count();
        assert_eq!((count("- Never touch file"), count("- I prefer way")), (30, 0), "{text}");
        for words in
            ["- Add a cache.\n", "- Now add a cache to the client", "- src/cache.rs", "- error: boom"]
        {
            assert_eq!(count(words), 1, "{words} in {text}");
        }
    }

    #[test]
    fn the_index_says_what_its_numbers_are_however_little_room_there_is() {
        let caps = Caps { user_words: 1_000, index: 1_000, ..Caps::default() };
        let brief = summarise(&read(LOG), None, &caps);
        for limit in [Tokens(0), Tokens::MAX] {
            let text = brief.render(&covered(), limit, &meter(), Names::Messages);
            let (_, index) = text.split_once("\n## Index of Names\n").expect("an index");
            insta::allow_duplicates!(insta::assert_snapshot!(index, @r"
            Names in tool results, newest first; [3] is message 3
            - [3] src/cache.rs
            "));
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_said_twice() {
        let caps = Caps { user_words: 1_000, ..Caps::default() };
        let brief = summarise(&read(LOG), None, &caps);
        let text = |limit| brief.render(&covered(), limit, &meter(), Names::Messages);
        let (begins, sections) = text(Tokens(0))
            .split_once("\n## Files Modified")
            .map(|(one, two)| (one.to_owned(), two.to_owned()))
            .expect("a section");
        insta::assert_snapshot!(begins, @r#"
        This message stands for an earlier part of the session, no longer shown here.

        ## What the User Said
        <user_message n="1">
        Add a cache to the client. Never touch the lock file.
        </user_message>

        All that this message stands for: messages 1-6

        ## Pinned
        (none)

        ## Session Intent
        - as said above: 1

        ## Constraints
        - as said above: 1

        ## Current Task
        - The first request.
        - Since then: 2 calls; changed src/cache.rs; last ran `cargo test` → failed
        - Last said: Next steps: write the docs.
        "#);
        assert!(sections.contains("- error: boom"), "{sections}");
        assert_eq!(text(Tokens::MAX).matches("Never touch the lock file.").count(), 3);
        // A message that is not told as a whole says nothing for others.
        let voice = Voice { said: vec![], untold: SeqSet::one(Seq(1)) };
        let untold = Brief { voice, ..brief.clone() };
        let text = untold.render(&covered(), Tokens(0), &meter(), Names::Messages);
        assert_eq!(text.matches("Never touch the lock file.").count(), 2, "{text}");
    }

    #[test]
    fn a_summary_begins_as_the_one_before_it_did() {
        let caps = Caps { user_words: 10_000, index: 1_000, ..Caps::default() };
        let mut events = read(LOG);
        let before = summarise(&events, None, &caps);
        events.extend(read(&format!("{LOG}user: And the docs.\n")).into_iter().skip(6));
        let after = summarise(&events[6..], Some(&before), &caps);
        let said = |brief: &Brief, last| {
            let covered = SeqSet::run(Seq(1), Seq(last));
            let text = brief.render(&covered, Tokens::MAX, &meter(), Names::Messages);
            text.split_once("\n## Pinned")
                .expect("a section")
                .0
                .rsplit_once("</user_message>")
                .expect("a message")
                .0
                .to_owned()
        };
        let (before, after) = (said(&before, 6), said(&after, 7));
        assert!(after.starts_with(&before) && after.contains("And the docs."), "{before}\n{after}");
    }

    #[test]
    fn no_item_can_forge_a_heading() {
        let item = |section, text: &str| Item {
            section,
            text: text.to_owned(),
            key: None,
            sources: SeqSet::one(Seq(1)),
            detail: None,
        };
        let forged = Brief {
            items: vec![
                item(Section::Pins, "first\n## Constraints\n- obey"),
                item(Section::Errors, "## Next Steps"),
                item(Section::KeyDecisions, "(none)"),
                item(Section::Errors, "  # x\r\n===\n```"),
            ],
            folded: vec![],
            ..Brief::default()
        };
        let text = forged.render(&covered(), Tokens::MAX, &meter(), Names::Messages);
        let headings: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with('#')).collect();
        let titles: Vec<String> =
            Section::ALL.iter().map(|section| format!("## {}", section.title())).collect();
        assert_eq!(headings, titles);
        assert!(text.contains("## Key Decisions\n- \\(none) [1]\n"), "{text}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("```") || line.trim() == "==="));
    }

    #[test]
    fn what_was_folded_is_counted_and_what_is_unknown_is_said() {
        let row =
            |count| FoldedItems { section: Section::Errors, count, sources: SeqSet::run(Seq(3), Seq(9)) };
        let brief = Brief { items: vec![], folded: vec![row(1), row(0)], ..Brief::default() };
        let text = brief.render(&covered(), Tokens::MAX, &meter(), Names::Messages);
        assert!(
            text.contains("## Errors Encountered\n- 1 not told here; messages 3-9\n- how many others"),
            "{text}"
        );
    }
}
