//! Sessions with planted items, by which the summariser is examined.
//!
//! Each page in `planted/` is a session as some agent would have recorded it, with its files, errors, decisions and
//! rules, and with distractors that look like them, followed by the sheet of what must be found. The pages were written
//! without looking at the extractor. Here stand the tests of the exam itself: an exam that everybody passes, or that
//! nobody can pass, proves nothing.

mod exam;
mod sheet;

use std::{ops::RangeInclusive, sync::Arc};

use epitome_core::{
    event::LoggedEvent,
    id::Seq,
    seq_set::SeqSet,
    summary::{SectionCaps, StructuredSummary, SummaryItem, SummarySection, summarise},
};

pub(crate) use self::exam::{Report, examine_all};
use self::sheet::{Agent, Session};

/// The built-in summariser finds everything that is planted, and keeps it through five compactions.
#[test]
fn everything_planted_is_found_and_kept() {
    let caps = SectionCaps { trail: 400_000, ..SectionCaps::default() };
    pass(&examine_all(&|span: &[Arc<LoggedEvent>], previous: Option<&StructuredSummary>| {
        summarise(span, previous, &caps)
    }));
}

#[test]
fn the_sessions_are_many_long_and_of_every_agent() {
    let sessions = Session::all();
    assert!(sessions.len() >= 24, "only {} sessions", sessions.len());
    for agent in Agent::ALL {
        let count = sessions.iter().filter(|session| session.sheet.agent == agent).count();
        assert!(count >= 3, "only {count} sessions of {agent:?}");
    }
    for Session { name, events, sheet, .. } in &sessions {
        assert!((25..=80).contains(&events.len()), "{name} has {} events", events.len());
        assert!(!sheet.about.is_empty(), "{name} does not say what it is about");
    }
    for section in SECTIONS {
        let planted = sessions.iter().flat_map(Session::planted).filter(|(of, _)| *of == section).count();
        assert!(planted >= 5, "only {planted} items are planted in {section:?}");
    }
}

#[test]
fn every_sheet_speaks_of_what_is_in_its_log() {
    let faults: Vec<String> = Session::all().iter().flat_map(Session::faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whoever knows the sheets passes with full marks: no sheet contradicts itself.
#[test]
fn who_says_exactly_what_is_planted_passes() {
    let mut report = Report::default();
    for session in Session::all() {
        report.examine(&session, &|span, _| known(&session, span));
    }
    pass(&report);
    assert!(report.unknown.is_empty(), "{}", report.unknown.join("\n"));
    let total = report.total();
    assert!((total.planted, total.right) == (total.found, total.items) && total.planted > 300, "{report}");
}

/// Every single item is missed when it is not there, and no other.
#[test]
fn who_forgets_one_item_is_told_which() {
    for session in Session::all() {
        for (section, forgotten) in session.planted() {
            let mut report = Report::default();
            report.examine(&session, &|span, _| {
                let mut brief = known(&session, span);
                brief.items.retain(|item| !forgotten.is_said_by(section, item));
                brief
            });
            let checked = forgotten.until.is_none();
            let told =
                report.failures.iter().any(|failure| failure.contains(&format!("{:?}", forgotten.says.0)));
            assert!(told || !checked, "{}: {:?} may be forgotten", session.name, forgotten.says.0);
        }
    }
}

#[test]
fn who_does_not_carry_fails_in_every_session() {
    for session in Session::all() {
        let mut report = Report::default();
        report
            .examine(&session, &|span, _| planted_in(&session, span[0].id.seq..=span[span.len() - 1].id.seq));
        assert!(!report.failures.is_empty(), "{} needs no carrying", session.name);
    }
}

/// Whoever copies every line into every section trips over every distractor.
#[test]
fn who_copies_everything_trips_over_every_distractor() {
    let report = examine_all(&copy);
    for session in Session::all() {
        let sheet = &session.sheet;
        for words in sheet.absent.values().chain(sheet.gone.values()).flatten() {
            let told = format!("{}: {:?} must not be said", session.name, words.0);
            let tripped = report.failures.iter().any(|failure| failure.starts_with(&told));
            assert!(tripped, "{}: {:?} is no line of the log", session.name, words.0);
        }
    }
    assert!(report.total().precision() < 20.0, "a copy passes for a summary:\n{report}");
}

#[test]
fn a_report_says_recall_and_precision_of_every_section() {
    let session = Session::read("tiny", TINY);
    let mut report = Report::default();
    report.examine(&session, &|span, _| {
        let mut brief = known(&session, span);
        brief.items.retain(|item| item.section != SummarySection::FilesRead);
        brief.items.push(item(SummarySection::Constraints, "be nice".into(), SeqSet::one(span[0].id.seq)));
        brief
    });
    insta::assert_snapshot!(report, @r"
    section            planted  found  recall   items  right precision
    SessionIntent            1      1  100.0%       1      1    100.0%
    Constraints              1      1  100.0%       2      1     50.0%
    FilesModified            1      1  100.0%       1      1    100.0%
    FilesRead                1      0    0.0%       0      0    100.0%
    Commands                 1      1  100.0%       1      1    100.0%
    total                    5      4   80.0%       5      4     80.0%
    ");
    insta::assert_snapshot!(report.failures.join("\n"), @r#"tiny: FilesRead ["src/flags.rs"] of ["look"], due after span 1, is not said (of the section there is: ) after span 1"#);
    insta::assert_snapshot!(report.unknown.join("\n"), @"tiny: [Constraints 9] be nice");
}

const SECTIONS: [SummarySection; 10] = [
    SummarySection::Pins,
    SummarySection::SessionIntent,
    SummarySection::Constraints,
    SummarySection::FilesModified,
    SummarySection::FilesRead,
    SummarySection::Commands,
    SummarySection::KeyDecisions,
    SummarySection::FailedApproaches,
    SummarySection::Errors,
    SummarySection::NextSteps,
];

const TINY: &str = r#"
```log
user@ask: Please rename the flag. Never touch the lock file.
assistant: Looking.
  call@look Read {"file_path":"src/flags.rs"}
  -> 1→struct Flags;
assistant: Renaming.
  call@fix Edit {"file_path":"src/main.rs","old_string":"a","new_string":"b"}
  -> The file src/main.rs has been updated.
assistant: Building.
  call@build Bash {"command":"cargo build"}
  !> Exit code 101
assistant: Again.
assistant: Done.
```
```toml
agent = "claude-code"
about = "a tiny one"
[planted]
session_intent = [{ says = ["rename", "flag"], from = "ask" }]
constraints = [{ says = "lock file", from = "ask" }]
files_read = [{ says = "src/flags.rs", from = "look" }]
files_modified = [{ says = "src/main.rs", from = "fix" }]
commands = [{ says = "cargo build", exit = 101, from = "build" }]
```
"#;

/// The summary by somebody who knows the sheet and never forgets.
fn known(session: &Session, span: &[Arc<LoggedEvent>]) -> StructuredSummary {
    planted_in(session, session.events[0].id.seq..=span[span.len() - 1].id.seq)
}

/// What is planted in some events and still holds at their end.
fn planted_in(session: &Session, events: RangeInclusive<Seq>) -> StructuredSummary {
    let mut brief = StructuredSummary::default();
    let end = |name: &String| session.names[name].iter().copied().max();
    for (section, planted) in session.planted() {
        let due = planted.from.0.iter().filter_map(end).max().expect("it has a source");
        let over = planted.until.as_ref().and_then(end).is_some_and(|until| until <= *events.end());
        if !events.contains(&due) || over {
            continue;
        }
        let mut text = planted.says.0.join(" … ");
        for more in &planted.worked.0 {
            text = format!("{text} … {more}");
        }
        if let Some(exit) = planted.exit {
            text = format!("{text} … exit {exit}");
        }
        let sources: Vec<SeqSet> =
            planted.from.0.iter().map(|name| SeqSet::one(session.names[name][0])).collect();
        brief.items.push(item(section, text, SeqSet::union(&sources)));
    }
    brief
}

/// Every line of everything, in every section.
fn copy(span: &[Arc<LoggedEvent>], previous: Option<&StructuredSummary>) -> StructuredSummary {
    let mut brief = previous.cloned().unwrap_or_default();
    for event in span {
        let text = event.event.fact.text().replace("\\n", "\n").replace("\\\"", "\"");
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            for section in SECTIONS {
                brief.items.push(item(section, line.replace('\r', ""), SeqSet::one(event.id.seq)));
            }
        }
    }
    brief
}

fn item(section: SummarySection, text: String, sources: SeqSet) -> SummaryItem {
    SummaryItem { section, text, key: None, sources, detail: None }
}

/// Prints how well a summariser does, and fails unless everything planted was found and kept and nothing was said that
/// must not be. What [`examine_all`] reports goes here:
///
/// ```ignore
/// pass(&examine_all(&|span, previous| summarise(span, previous)));
/// ```
pub(crate) fn pass(report: &Report) {
    println!("{report}");
    for unknown in &report.unknown {
        println!("neither planted nor allowed: {unknown}");
    }
    assert!(
        report.failures.is_empty(),
        "{} failures:\n{}",
        report.failures.len(),
        report.failures.join("\n")
    );
}
