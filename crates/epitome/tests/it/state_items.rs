//! The state that continuations of real sessions tell, item by item, beside how two readers labelled each of them.
//!
//! The sessions are not part of the project, and no text of theirs is: an item is known by its digest. Items that nobody has
//! labelled yet are written to the folder that `EPITOME_ITEMS` names, with the sessions they were taken from, to be read and
//! labelled; `labels.json` has what came of it, with a reason in words of the reader's own where an item is not true.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use epitome::{
    compact::numbered,
    core::{
        EventId, LoggedEvent, Seq, ThreadId, Tokens,
        context::SegmentBody,
        hash_chain::{ChainLink, Digest},
        policy::Policy,
        profile::Profiles,
        projection::EventLine,
        summary::SummarySection,
    },
    request_plan::{RequestPlan, RequestSettings},
    wire::transcripts::{TranscriptLimits, read},
};
use serde::{Deserialize, Serialize};

use crate::model_drafts::data;

/// Sessions of each format; of a file with many sessions, so many.
const SESSIONS: [(&str, usize, usize); 9] = [
    ("claude-code", 9, 1),
    ("codex", 8, 1),
    ("gemini", 1, 1),
    ("opencode", 8, 1),
    ("openhands", 2, 2),
    ("pi", 4, 1),
    ("swe-agent", 4, 1),
    ("tau-bench", 1, 3),
    ("tau2", 5, 1),
];

/// The share of items that must be true.
const PRECISION: f64 = 0.95;

/// The share of items that must be labelled: a change of the summariser may say some of them in other words.
const LABELLED: f64 = 0.9;

/// Sections that say how things stand.
const STATE: [SummarySection; 7] = [
    SummarySection::Pins,
    SummarySection::Constraints,
    SummarySection::CurrentTask,
    SummarySection::KeyDecisions,
    SummarySection::FailedApproaches,
    SummarySection::Errors,
    SummarySection::NextSteps,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Label {
    True,
    /// It was so and no longer is.
    Stale,
    False,
}

/// Labels of one item by two readers who did not know of each other.
#[derive(Debug, Deserialize)]
struct ItemLabels {
    labels: [Label; 2],
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever reads the file")]
    why: Option<String>,
}

/// A session that was cut off after some of its events, as its first compaction would continue it.
struct Continuation {
    /// The folder, the beginning of the file's digest, the session's place in the file, and the number of events.
    name: String,
    events: Vec<Arc<LoggedEvent>>,
}

/// One line of state.
#[derive(Serialize)]
struct StateItem {
    digest: String,
    section: &'static str,
    text: String,
}

/// What is written for readers.
#[derive(Serialize)]
struct Sheet<'s> {
    name: &'s str,
    items: Vec<StateItem>,
    request: &'s str,
}

fn digest(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()[..12].to_owned()
}

/// Each session whole, and cut off somewhere between a third and four fifths.
fn continuations(data: &Path) -> Vec<Continuation> {
    let mut continuations = Vec::new();
    for (folder, files, sessions) in SESSIONS {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(data.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        // In an order that says nothing of what is in them.
        paths.sort_by_key(|path| digest(&path.file_name().unwrap().to_string_lossy()));
        let taken = paths.iter().filter_map(|path| {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            let reading = read(&file, &fs::read(path).unwrap(), &TranscriptLimits::default()).ok()?;
            let threads =
                reading.sessions.into_iter().filter_map(|session| session.threads.into_iter().next());
            let long: Vec<_> = threads.filter(|thread| thread.events.len() >= 12).take(sessions).collect();
            (!long.is_empty()).then_some((file, long))
        });
        for (file, threads) in taken.take(files) {
            for (place, thread) in threads.into_iter().enumerate() {
                let file = digest(&file);
                let id = |seq| EventId { thread: ThreadId::derived(&[folder, &file]), seq: Seq(seq) };
                let events = (1..).zip(thread.events);
                let events: Vec<Arc<LoggedEvent>> = events
                    .map(|(seq, event)| Arc::new(LoggedEvent { id: id(seq), event, link: ChainLink::ROOT }))
                    .collect();
                let spread = usize::from_str_radix(&file[..4], 16).unwrap() % 46;
                for length in [events.len() * (35 + spread) / 100, events.len()] {
                    let name = format!("{folder}/{file}/{place}/{length}");
                    continuations.push(Continuation { name, events: events[..length].to_vec() });
                }
            }
        }
    }
    continuations
}

/// The summary that stands at the head of a continuation with less than half the room that the session takes; none if all of it
/// fits, or if hardly more than its instructions does.
fn summary(continuation: &Continuation) -> Option<(String, String)> {
    let line = EventLine::new(continuation.events.iter().cloned());
    let asked = RequestSettings { model: None, format: None };
    let plan = RequestPlan::new(line, None, &asked, &Profiles::builtin()).unwrap();
    let names = numbered(&plan.line);
    let whole = plan.context(names).tokens();
    let policy = Policy::named("epitome").unwrap();
    // Where instructions take most of it, the next larger room is tried.
    [45, 60, 75, 90].into_iter().find_map(|share| {
        let room = Tokens((whole.0 * share / 100).clamp(2_500, 60_000));
        let (budget, margin) = plan.trust.budget_within(room);
        let made = plan.simulate(policy, names, &budget, margin, None).ok()?;
        let segments = made.compacted.context.segments();
        let text = segments.iter().find_map(|segment| match segment.body() {
            SegmentBody::Summary(_) => segment.compaction().map(|made| made.summary.text().to_owned()),
            _ => None,
        });
        Some((text?, made.compacted.rendered.body))
    })
}

/// The lines of state in a summary's text.
fn items(summary: &str) -> Vec<StateItem> {
    let mut section = None;
    let mut items = Vec::new();
    for line in summary.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = STATE.into_iter().find(|section| section.title() == title);
        } else if let (Some(section), Some(text)) = (section, line.strip_prefix("- ")) {
            // Handles say where it was found, and a change of the session's numbering changes no item.
            let said = text.rsplit_once(" [").map_or(text, |(said, _)| said);
            let digest = digest(&format!("{}: {said}", section.title()));
            items.push(StateItem { digest, section: section.title(), text: text.to_owned() });
        }
    }
    items
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn what_continuations_of_real_sessions_say_of_their_state_is_true() {
    let Some(data) = data() else { return };
    let labels: BTreeMap<String, ItemLabels> =
        serde_json::from_str(include_str!("state_items/labels.json")).unwrap();
    let sheets = env::var_os("EPITOME_ITEMS").map(PathBuf::from);
    let (mut told, mut labelled, mut sound, mut agreed) = (0_u32, 0_u32, 0_u32, 0_u32);
    let mut wrong = String::new();
    for continuation in continuations(&data) {
        let Some((text, request)) = summary(&continuation) else { continue };
        let items = items(&text);
        for item in &items {
            told += 1;
            let Some(labels) = labels.get(&item.digest) else { continue };
            labelled += 1;
            agreed += u32::from(labels.labels[0] == labels.labels[1]);
            if labels.labels == [Label::True; 2] {
                sound += 1;
            } else {
                writeln!(
                    wrong,
                    "{} {}: {} {:?}",
                    continuation.name, item.digest, item.section, labels.labels
                )
                .unwrap();
            }
        }
        if let Some(folder) = &sheets {
            let (name, request) = (continuation.name.as_str(), request.as_str());
            let sheet = serde_json::to_string_pretty(&Sheet { name, items, request }).unwrap();
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(format!("{}.json", name.replace('/', "-"))), sheet).unwrap();
        }
    }
    println!(
        "{told} items of state, {labelled} labelled, {agreed} alike by both readers, {sound} true\n{wrong}"
    );
    if sheets.is_none() {
        let share = |part: u32, of: u32| f64::from(part) / f64::from(of);
        assert!(
            share(labelled, told) >= LABELLED,
            "{labelled} of {told} items are labelled: see this file's head"
        );
        assert!(share(sound, labelled) >= PRECISION, "{sound} of {labelled} are true:\n{wrong}");
    }
}
