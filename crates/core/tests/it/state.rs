//! Short sessions, and what their summaries say is so at the end.
//!
//! `state/sessions.txt` holds them: invented, one for each way in which summaries of real sessions once said something that
//! was not so, or left out what was. What stands above trail and index is read as a model reads it, however often the session
//! is compacted on the way and whether there was room for a trail or not.

use std::{collections::BTreeMap, sync::Arc};

use epitome_core::{
    Fact, Seq,
    context::EventNaming,
    event::LoggedEvent,
    seq_set::SeqSet,
    summary::{SectionCaps, StructuredSummary, compaction::carried_summary, summarise},
    tokens::Tokens,
};

use crate::{
    conversations::done_by_assistant,
    notation::{meter, read},
};

const SESSIONS: &str = include_str!("state/sessions.txt");

/// A session and what is said of it.
#[derive(Debug, Default)]
struct Case {
    name: String,
    log: String,
    expected: BTreeMap<String, Vec<String>>,
}

impl Case {
    fn expects(&self, what: &str) -> impl Iterator<Item = &str> {
        self.expected.get(what).into_iter().flatten().map(String::as_str)
    }
}

/// `user: …` and other events stand as in every log, `|` before lines of the notation that begin otherwise; `>` is done by the
/// assistant as in a conversation; `+ words` is said on the way to a call. `stands`, `gone` and `told` name words that are
/// among the state, are not, or are anywhere in the summary.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in SESSIONS.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().expect("a session has a name");
        let expected = ["stands", "gone", "told"]
            .into_iter()
            .find_map(|what| Some((what, line.strip_prefix(what)?.strip_prefix(": ")?)));
        match (expected, line.split_once(' ')) {
            (Some((what, words)), _) => {
                let words = words.split(" | ").map(str::to_owned);
                case.expected.entry(what.to_owned()).or_default().extend(words);
            }
            (_, Some((">", done))) => case.log += &done_by_assistant(done),
            (_, Some(("+", words))) => {
                case.log.extend(["assistant: ", words, "\n  call bash {\"command\":\"ls\"}\n  -> a b c\n"]);
            }
            (_, Some(("|", line))) => case.log.extend([line, "\n"]),
            _ => case.log.extend([line, "\n"]),
        }
    }
    cases
}

/// The summary of a session cut into spans, each with so much room for a trail, on top of the one before; no call is parted
/// from its result.
fn chained(events: &[Arc<LoggedEvent>], rooms: &[usize]) -> StructuredSummary {
    let length = events.len().div_ceil(rooms.len()).max(1);
    let (mut brief, mut left) = (StructuredSummary::default(), events);
    for room in rooms {
        let is_result = |event: &Arc<LoggedEvent>| matches!(event.event.fact, Fact::ToolReturned { .. });
        let more = left.iter().skip(length).take_while(|event| is_result(event)).count();
        let (span, rest) = left.split_at((length + more).min(left.len()));
        let caps = SectionCaps { trail: *room, ..SectionCaps::default() };
        // A client's own summary is what stands, whatever came before it.
        let own = span.iter().rposition(|event| matches!(event.event.fact, Fact::Compacted(_)));
        let (previous, span) = match own {
            Some(at) => (carried_summary(&span[at]).map(|(_, brief)| brief), &span[at + 1..]),
            None => (Some(brief), span),
        };
        brief = summarise(span, previous.as_ref(), &caps);
        left = rest;
    }
    brief
}

/// Room for all of these sessions, and for hardly anything.
const WIDE: usize = 20_000;
const NARROW: usize = 1;

#[test]
fn what_stands_is_so_and_what_is_past_is_in_the_trail() {
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    let mut wrong: Vec<String> = Vec::new();
    for case in cases {
        let events = read(&case.log);
        let last = Seq(events.len() as u64);
        for rooms in [&[WIDE][..], &[NARROW], &[WIDE; 4], &[NARROW; 4], &[WIDE, NARROW, NARROW, WIDE]] {
            let brief = chained(&events, rooms);
            let text = brief.render(&SeqSet::run(Seq(1), last), Tokens::MAX, &meter(), EventNaming::Messages);
            let state = text.split("\n## What Happened").next().unwrap_or_default();
            let is_told = *rooms.last().expect("there is one") == WIDE;
            let as_of = format!("State as of [{last}]; messages below are newer.\n");
            let missing = case.expects("stands").filter(|words| !state.contains(words));
            let past = case.expects("gone").filter(|words| state.contains(words));
            let untold = case.expects("told").filter(|words| is_told && !text.contains(words));
            let mut found: Vec<String> = missing.map(|words| format!("{words:?} does not stand")).collect();
            found.extend(past.map(|words| format!("{words:?} stands")));
            found.extend(untold.map(|words| format!("{words:?} is told nowhere")));
            if brief.trail.is_empty() {
                found.push("there is no trail".to_owned());
            }
            if state.contains("\n- ") != state.contains(&as_of) {
                found.push(format!("{as_of:?} belongs above state"));
            }
            if !found.is_empty() {
                let found = found.join("; ");
                wrong.push(format!("“{}” with {rooms:?} letters for a trail: {found} in\n{text}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} summaries are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// However long a session and however little room, what is stored stays small and a line of what happened is told.
#[test]
fn a_trail_without_room_is_stored_in_little_and_told_in_a_line() {
    let request = |at: usize| {
        let words = "very long words of somebody who says much ".repeat(20);
        format!(
            "user: Request {at}: {words}\nassistant: On it.\n  call bash {{\"command\":\"make part-{at}\"}}\n  -> 40 lines of \"made\"\nassistant: Part {at} is made. {words}\n"
        )
    };
    let log: String = (0..200).map(request).collect();
    let events = read(&log);
    let brief = chained(&events, &[NARROW; 20]);
    let stored = |trail| serde_json::to_string(trail).unwrap().len();
    assert!(stored(&brief.carried_trail) < 12_000, "{}", stored(&brief.carried_trail));
    assert!(brief.carried_trail.entries.len() > 10, "{:?}", brief.carried_trail);
    assert_eq!(brief.trail.entries.len(), 1, "{:?}", brief.trail);
    assert!(stored(&brief.trail) < 1_000, "{}", stored(&brief.trail));
}
