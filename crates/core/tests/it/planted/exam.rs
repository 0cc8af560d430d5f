//! The exam: a session goes through five chained compactions, and the summaries are compared with its sheet.
//!
//! Recall counts what is planted; it is found if an item says it after the span in which it happened and after every
//! span from there to the last. What people said may also be found in the trail, where it was said: nobody without a model
//! can know which sentence was a decision, or an order that is meant for longer than its request. Precision counts the items
//! of the last summary; an item is right if the sheet plants or allows it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use epitome_core::{
    event::LoggedEvent,
    summary::{CallEnding, StructuredSummary, SummaryItem, SummarySection, TrailEntry, TrailKind},
};

use super::sheet::{Planted, SPANS, Session, Text, Words};

/// Makes a summary of a span and of the summary of what came before it.
pub(crate) type Summarise<'s> =
    dyn Fn(&[Arc<LoggedEvent>], Option<&StructuredSummary>) -> StructuredSummary + 's;

/// How an examinee did.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) sections: BTreeMap<SummarySection, Marks>,
    /// What was planted and not found or not kept, what must not be said and is, in words.
    pub(crate) failures: Vec<String>,
    /// The items that no sheet knows: the precision's other side, to be read by a person.
    pub(crate) unknown: Vec<String>,
}

/// What is counted in a section.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) planted: u64,
    pub(crate) found: u64,
    pub(crate) items: u64,
    pub(crate) right: u64,
}

/// Examines on all sessions.
pub(crate) fn examine_all(summarise: &Summarise) -> Report {
    let mut report = Report::default();
    for session in Session::all() {
        report.examine(&session, summarise);
    }
    report
}

impl Report {
    /// Examines on one session.
    pub(crate) fn examine(&mut self, session: &Session, summarise: &Summarise) {
        let mut briefs: Vec<StructuredSummary> = Vec::new();
        for span in session.spans() {
            let brief = summarise(span, briefs.last());
            if summarise(span, briefs.last()) != brief {
                self.failures
                    .push(format!("{}: the same span gives another summary the second time", session.name));
            }
            self.check_form(session, span, &brief);
            briefs.push(brief);
        }
        for (section, planted) in session.planted() {
            self.check_planted(session, section, planted, &briefs);
        }
        for (after, brief) in briefs.iter().enumerate() {
            self.check_absent(session, after, brief, &session.sheet.absent);
        }
        let last = briefs.last().expect("there are spans");
        self.check_absent(session, SPANS - 1, last, &session.sheet.gone);
        self.count_items(session, last);
    }

    /// Everything that must hold of any item: a line of text, and sources among what has happened.
    fn check_form(&mut self, session: &Session, span: &[Arc<LoggedEvent>], brief: &StructuredSummary) {
        let end = span.last().map(|event| event.id.seq);
        for item in &brief.items {
            let one_line = !item.text.trim().is_empty() && !item.text.contains(['\n', '\r']);
            let known = item.sources.first().is_some_and(|first| first.0 >= 1) && item.sources.last() <= end;
            if !one_line || !known {
                self.failures.push(format!(
                    "{}: not a line with known sources: {}",
                    session.name,
                    show(item)
                ));
            }
        }
    }

    fn check_planted(
        &mut self,
        session: &Session,
        section: SummarySection,
        planted: &Planted,
        briefs: &[StructuredSummary],
    ) {
        let due = planted.from.0.iter().map(|name| session.span_of(name)).max().unwrap_or(0);
        let until = planted.until.as_ref().map_or(SPANS, |name| session.span_of(name));
        if due >= until {
            // It came and went between two compactions: nobody can tell whether it was noticed.
            return;
        }
        let watched = briefs.iter().enumerate().take(until).skip(due);
        let wrong = watched.into_iter().find_map(|(after, brief)| {
            let why = find(session, section, planted, brief).err()?;
            let (name, says, from) = (&session.name, &planted.says.0, &planted.from.0);
            Some(format!(
                "{name}: {section:?} {says:?} of {from:?}, due after span {}, {why} after span {}",
                due + 1,
                after + 1
            ))
        });
        let marks = self.sections.entry(section).or_default();
        marks.planted += 1;
        marks.found += u64::from(wrong.is_none());
        self.failures.extend(wrong);
    }

    fn check_absent(
        &mut self,
        session: &Session,
        after: usize,
        brief: &StructuredSummary,
        absent: &BTreeMap<SummarySection, Vec<Words>>,
    ) {
        for item in &brief.items {
            let text = Text::of(item);
            for words in absent.get(&item.section).into_iter().flatten() {
                if words.are_in(&text) {
                    self.failures.push(format!(
                        "{}: {:?} must not be said after span {}: {}",
                        session.name,
                        words.0,
                        after + 1,
                        show(item)
                    ));
                }
            }
        }
    }

    fn count_items(&mut self, session: &Session, brief: &StructuredSummary) {
        for item in &brief.items {
            let text = Text::of(item);
            let planted = session.sheet.planted.get(&item.section).into_iter().flatten();
            let allowed = session.sheet.allowed.get(&item.section).into_iter().flatten();
            let known = planted.map(|planted| &planted.says).chain(allowed);
            let right = known.into_iter().any(|words| words.are_in(&text));
            let marks = self.sections.entry(item.section).or_default();
            marks.items += 1;
            marks.right += u64::from(right);
            if !right {
                self.unknown.push(format!("{}: {}", session.name, show(item)));
            }
        }
    }

    /// All sections together.
    pub(crate) fn total(&self) -> Marks {
        self.sections.values().fold(Marks::default(), |sum, marks| Marks {
            planted: sum.planted + marks.planted,
            found: sum.found + marks.found,
            items: sum.items + marks.items,
            right: sum.right + marks.right,
        })
    }
}

/// Whether a brief says what is planted, or what is missing.
fn find(
    session: &Session,
    section: SummarySection,
    planted: &Planted,
    brief: &StructuredSummary,
) -> Result<(), String> {
    if is_in_trail(session, section, planted, brief) {
        return Ok(());
    }
    let said: Vec<&SummaryItem> =
        brief.items.iter().filter(|item| planted.is_said_by(section, item)).collect();
    let Some(nearest) = said.iter().map(|item| planted.lacks(item, &session.names)).min_by_key(Vec::len)
    else {
        let there: Vec<String> =
            brief.items.iter().filter(|item| item.section == section).map(show).collect();
        return Err(format!("is not said (of the section there is: {})", there.join(" ¦ ")));
    };
    if !nearest.is_empty() {
        return Err(format!("is said without {}", nearest.join(" and ")));
    }
    let may_say_it = |item: &&SummaryItem| {
        matches!(item.section, SummarySection::FailedApproaches | SummarySection::KeyDecisions)
    };
    let worked = said.iter().copied().chain(brief.items.iter().filter(may_say_it));
    if planted.worked.0.is_empty() || worked.into_iter().any(|item| planted.worked.are_in(&Text::of(item))) {
        return Ok(());
    }
    Err(format!("is said without what worked, {:?},", planted.worked.0))
}

/// Whether the trail tells what is planted where it happened, if it is of a kind that somebody's words say.
fn is_in_trail(
    session: &Session,
    section: SummarySection,
    planted: &Planted,
    brief: &StructuredSummary,
) -> bool {
    let of_words = [
        SummarySection::Constraints,
        SummarySection::KeyDecisions,
        SummarySection::FailedApproaches,
        SummarySection::Errors,
        SummarySection::NextSteps,
    ];
    let sources = || planted.from.0.iter().flat_map(|name| &session.names[name]);
    let told = brief.trail.entries.iter().filter(|entry| sources().any(|source| *source == entry.at));
    let told: String = told.map(|entry| words_of(entry) + "\n").collect();
    let all: String = brief.trail.entries.iter().map(|entry| words_of(entry) + "\n").collect();
    of_words.contains(&section)
        && planted.says.are_in(&Text::new(section, &told))
        && planted.worked.are_in(&Text::new(section, &all))
}

fn words_of(entry: &TrailEntry) -> String {
    match &entry.what {
        TrailKind::User { text } | TrailKind::Client { text } | TrailKind::Assistant { text, .. } => {
            text.clone()
        }
        TrailKind::Call(call) => {
            let failed = if let CallEnding::Failed(words) = &call.ending { words } else { "" };
            let arguments = call.arguments.replace("\\n", "\n").replace("\\\"", "\"");
            [&call.tool, &arguments, failed, &call.output].join(" ")
        }
        TrailKind::Request(request) => [request.asked.as_str(), &request.concluded].join(" "),
    }
}

fn show(item: &SummaryItem) -> String {
    format!("[{:?} {}] {}", item.section, item.sources, item.text)
}

impl Marks {
    /// Hundredths of what was planted; all, if nothing was.
    pub(crate) fn recall(self) -> f64 {
        share(self.found, self.planted)
    }

    /// Hundredths of what was said; all, if nothing was.
    pub(crate) fn precision(self) -> f64 {
        share(self.right, self.items)
    }
}

#[expect(clippy::cast_precision_loss, reason = "items are counted in thousands at most")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// A table: recall and precision of each section and in total.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18} {:>7} {:>6} {:>7}   {:>5} {:>6} {:>9}",
            "section", "planted", "found", "recall", "items", "right", "precision"
        )?;
        let rows = self.sections.iter().map(|(section, marks)| (format!("{section:?}"), *marks));
        for (name, marks) in rows.chain([("total".to_owned(), self.total())]) {
            let Marks { planted, found, items, right } = marks;
            let (recall, precision) = (marks.recall(), marks.precision());
            writeln!(
                f,
                "{name:<18} {planted:>7} {found:>6} {recall:>6.1}%   {items:>5} {right:>6} {precision:>8.1}%"
            )?;
        }
        Ok(())
    }
}
