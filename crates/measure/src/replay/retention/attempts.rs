//! Attempts of a session: the files it touched, its failures and their texts, and actions that were repeated.
//!
//! An action counts as repeated only if nothing has changed in between: a test that runs again after an edit,
//! or a file that is read again after it was written, returns something new.

use std::collections::HashMap;

use epitome::core::{
    context::{Context, Segment, SegmentBody, VisibleOutcome},
    event::{ToolCall, ToolResult},
    summary::tools::{ToolEffect, ToolFailure, effects, failure},
};

use super::{
    NeededFactKind,
    text_places::{TextAuthor, TextPlaces},
};

/// Attempts of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionAttempts {
    /// Files that each call touched.
    pub(super) touched: Vec<(String, u64)>,
    /// Results that report a failure, by their places, with the text of the failure.
    pub(super) failures: Vec<(u32, String)>,
    /// Repeated actions.
    pub(super) repeats: Vec<RepeatedAction>,
}

/// An action that was repeated.
#[derive(Clone, Debug)]
pub(super) struct RepeatedAction {
    /// Kind of the fact: a failed approach, or a result that is read again.
    pub(super) kind: NeededFactKind,
    /// Name of the action.
    pub(super) name: ActionName,
    /// Its earlier results.
    pub(super) results: Vec<u32>,
    /// Calls that asked for them.
    pub(super) calls: Vec<u32>,
    /// Call that repeated it.
    pub(super) again: u64,
}

/// Name of an action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ActionName {
    /// Reading a file.
    File(String),
    /// Running a command, or calling a tool with these arguments.
    Words(String),
}

/// Occurrences of an action since the last change.
#[derive(Clone, Debug, Default)]
struct ActionHistory {
    times: Vec<ActionOccurrence>,
    part: String,
    /// Number of changes to files before it.
    changes: u64,
    /// True if it failed the last time.
    failed: bool,
}

/// One occurrence of an action.
#[derive(Clone, Copy, Debug)]
struct ActionOccurrence {
    /// Places of its result and of its call.
    result: u32,
    call: u32,
    /// First call that could see its result.
    from: u64,
}

/// Commands that ask for the current state, so repeating them is no sign of forgetting.
const POLLS: [&str; 8] = ["git status", "ls", "pwd", "date", "sleep", "gh pr checks", "gh run", "ps"];

impl SessionAttempts {
    /// Attempts in a request that shows everything.
    pub(super) fn of(context: &Context, places: &TextPlaces) -> Self {
        let mut attempts = Self::default();
        let mut course = SessionActions::default();
        for segment in context.segments() {
            if let Some(one) = CallWithResult::of(segment, places) {
                attempts.take(&mut course, &one);
            }
        }
        attempts
    }

    fn take(&mut self, course: &mut SessionActions, one: &CallWithResult<'_>) {
        let asked = effects(one.call, None);
        let touched = asked.iter().filter_map(ToolEffect::path).filter(|path| is_file(path));
        self.touched.extend(touched.map(|path| (path.to_owned(), one.number)));
        if let (Some(failure), Some(at)) = (&one.failure, one.returned)
            && !failure.words.is_empty()
        {
            self.failures.push((at, failure.words.clone()));
        }
        for (name, part) in names(one.call, &asked) {
            self.repeats.extend(course.again(&name, part, one));
        }
        for effect in effects(one.call, one.result) {
            if let ToolEffect::Changed { path, .. } = effect {
                course.changed(&path);
            }
        }
    }
}

/// A call with its result.
struct CallWithResult<'c> {
    call: &'c ToolCall,
    result: Option<&'c ToolResult>,
    failure: Option<ToolFailure>,
    /// Place of the call.
    at: u32,
    /// Place of its result.
    returned: Option<u32>,
    /// Model call that made it.
    number: u64,
    /// First call that could see its result.
    from: u64,
}

impl<'c> CallWithResult<'c> {
    fn of(segment: &'c Segment, places: &TextPlaces) -> Option<Self> {
        let SegmentBody::Exchange { event, part, outcome } = segment.body() else { return None };
        let at = places.number((event.id.seq, part + 1))?;
        let TextAuthor::Model { call: number } = places.get(at).voice else { return None };
        let (result, returned) = match outcome {
            VisibleOutcome::Returned { event, index, .. } => {
                (event.event.fact.results().get(*index), places.number((event.id.seq, index + 1)))
            }
            VisibleOutcome::Unanswered => (None, None),
        };
        let from = returned.map_or(u64::MAX, |place| places.get(place).from);
        let call = segment.call()?;
        let failure = result.and_then(|result| failure(call, result));
        Some(Self { call, result, failure, at, returned, number, from })
    }
}

/// State of a session at an action.
#[derive(Default)]
struct SessionActions {
    done: HashMap<ActionName, Vec<ActionHistory>>,
    changes: u64,
}

impl SessionActions {
    /// Notes an action; returns a value if it was done before.
    fn again(&mut self, name: &ActionName, part: String, one: &CallWithResult<'_>) -> Option<RepeatedAction> {
        let failed = one.failure.is_some();
        let known = self.done.entry(name.clone()).or_default();
        if matches!(name, ActionName::Words(_)) {
            known.retain(|done| done.changes == self.changes);
        }
        // A read of the whole file includes every part of it.
        let holds = |done: &&mut ActionHistory| done.part.is_empty() || done.part == part;
        let before = known.iter_mut().rev().find(holds);
        // Two calls of one answer do not repeat each other.
        let seen: Vec<ActionOccurrence> = before.as_ref().map_or_else(Vec::new, |done| {
            done.times.iter().filter(|once| once.from <= one.number).copied().collect()
        });
        let repeat = before.as_ref().filter(|_| !seen.is_empty()).map(|done| RepeatedAction {
            kind: if done.failed { NeededFactKind::FailedApproach } else { NeededFactKind::ReadAgain },
            name: name.clone(),
            results: seen.iter().map(|once| once.result).collect(),
            calls: seen.iter().map(|once| once.call).collect(),
            again: one.number,
        });
        if let Some(result) = one.returned {
            let this = ActionOccurrence { result, call: one.at, from: one.from };
            match before {
                Some(done) => {
                    done.times.push(this);
                    done.failed = failed;
                }
                None => known.push(ActionHistory { times: vec![this], part, changes: self.changes, failed }),
            }
        }
        repeat
    }

    /// Notes a change to a file: earlier reads of it are outdated, and so is the output of commands.
    fn changed(&mut self, path: &str) {
        self.changes += 1;
        self.done.remove(&ActionName::File(file(path)));
    }
}

/// Names under which the action of a call can be repeated.
fn names(call: &ToolCall, asked: &[ToolEffect]) -> Vec<(ActionName, String)> {
    if asked.iter().any(|effect| matches!(effect, ToolEffect::Changed { .. })) {
        return vec![(ActionName::Words(call.arguments.trim().to_owned()), String::new())];
    }
    let reads = asked.iter().filter_map(|effect| match effect {
        ToolEffect::Read { path, part } => Some((ActionName::File(file(path)), part.clone())),
        _ => None,
    });
    let reads: Vec<_> = reads.collect();
    if !reads.is_empty() {
        return reads;
    }
    let words = asked.iter().find_map(|effect| match effect {
        ToolEffect::Ran { command, .. } => {
            let polls = POLLS.iter().any(|poll| command.trim_start().starts_with(poll));
            (!polls).then(|| command.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        ToolEffect::Searched => Some(call.arguments.trim().to_owned()),
        _ => None,
    });
    let words = words.filter(|words| words.len() >= 4);
    words.map(|words| (ActionName::Words(words), String::new())).into_iter().collect()
}

/// Returns true if a path cannot be confused with a word: `entire` may be a program or an English word,
/// `LICENSE` is neither.
fn is_file(path: &str) -> bool {
    path.contains(['/', '.']) || path.starts_with(|letter: char| letter.is_ascii_uppercase())
}

fn file(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}
