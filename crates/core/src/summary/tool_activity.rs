//! What was done: files, commands, plans, and what fails by now.
//!
//! Only what a tool marks as a failure is one here: words that it shows may be anybody's. A failure stands until something of
//! its kind works: the same program with the same subcommand, or the same tool or file. It is then told as past, with what was
//! changed in between. Whether that is the reason nobody can know, and it is not said.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use super::{
    AttemptEnding, ItemDetail, StepOrigin, SummaryItem, SummarySection,
    call_subjects::{
        MAX_SUBJECT_CHARS, ReplacementDigest, is_same_file, plain_path, replacements, restored_paths,
        short_digest, subject,
    },
    constraints::read_constraints,
    item_set::ItemSet,
    requests::{MAX_ITEM_CHARS, current_work_start, settle_question},
    sentences::{one_line, sentences},
    tools::{
        EditNote, FileChange, TodoItem, TodoState, ToolEffect, edit_notes, effects, failure, is_lookup,
        is_marked_failure, run_kinds,
    },
    user_quotes::{answer, refusal},
};
use crate::{
    draft_gate::holds_secret,
    event::{ToolCall, ToolResult},
    id::Seq,
    pairing::{CallOutcome, Exchange},
    seq_set::SeqSet,
};

/// How many characters of an error are kept.
const ERROR: usize = 400;

/// How long the tale of an attempt may be, in characters.
const TALE: usize = 480;

/// How long a key may be, in characters; of what is longer the end is replaced by a digest.
const KEY: usize = 240;

/// How many changes of a file are told.
const EDITS: usize = 2;

/// What is added to a step that is being worked on.
const ACTIVE: &str = " (in progress)";

/// A failure that so many events were recorded since is told as past: nobody tried again in some forty calls.
const RECENT: u64 = 80;

/// What is said of a change that no longer stands.
pub(crate) const TAKEN_BACK_NOTE: &str = "was taken back";

/// What is remembered of the work, from call to call.
#[derive(Debug, Default)]
pub(super) struct ToolActivity {
    /// Changes of files, in order, and where they were committed last.
    changes: Vec<(Seq, String)>,
    committed: usize,
    /// What was replaced by what, by file.
    replaced: HashMap<String, HashSet<(String, String)>>,
}

/// Something that failed.
#[derive(Clone, Debug)]
struct FailedCall {
    /// What was tried.
    subject: String,
    /// How it failed, in its own words.
    words: String,
    /// The call and its result.
    sources: SeqSet,
    /// Of the item that tells of it.
    identity: String,
}

impl ToolActivity {
    /// Takes a call with its outcome.
    pub(super) fn record(&mut self, ledger: &mut ItemSet, exchange: &Exchange<'_>) {
        let call = exchange.call;
        let mut sources = SeqSet::one(exchange.at);
        let result = match exchange.outcome {
            CallOutcome::Returned { at, result } => {
                sources.insert(at);
                Some(result)
            }
            CallOutcome::Unanswered => None,
        };
        if result.is_some_and(|result| Self::hear(ledger, call, result, &sources)) {
            return;
        }
        let done = effects(call, result);
        let failed = result.and_then(|result| failure(call, result));
        let subject = subject(call, &done);
        let is_lookup = is_lookup(call);
        for effect in &done {
            match effect {
                ToolEffect::Read { path, .. } => read(ledger, &plain_path(path), &sources),
                ToolEffect::Changed { path, how } => {
                    self.change(ledger, (call, result), path, *how, &sources);
                }
                ToolEffect::Ran { command, exit } => {
                    let exit = exit.or_else(|| failed.as_ref().and_then(|failed| failed.exit));
                    let has_failed = failed.is_some() || exit.is_some_and(|exit| exit != 0);
                    let ended = match (exit, result) {
                        (Some(exit), _) => format!("exit {exit}"),
                        (None, None) => "no result".to_owned(),
                        (None, Some(_)) => if has_failed { "failed" } else { "ok" }.to_owned(),
                    };
                    let text = format!("`{}` → {ended}", one_line(command, MAX_ITEM_CHARS - 80));
                    let key = key(&one_line(command, usize::MAX));
                    put(ledger, SummarySection::Commands, text, key, &sources, ItemDetail::Command { exit });
                    if result.is_some() && !has_failed {
                        self.take_back(ledger, command, &sources);
                    }
                }
                ToolEffect::Planned { steps } => plan(ledger, steps, &sources),
                ToolEffect::Stepped { id, text, state } => {
                    track(ledger, id.as_deref(), text.as_deref(), *state, &sources);
                }
                ToolEffect::Searched => {}
            }
        }
        match (result, failed) {
            (Some(result), Some(failed))
                if !is_lookup && !failed.words.is_empty() && is_marked_failure(result) =>
            {
                let words = one_line(&failed.words, ERROR);
                let identity = key(&format!("{}: {words}", kinds(&subject).join(" ")));
                fail(ledger, &FailedCall { subject, words, sources, identity });
            }
            // That a file can be read says nothing of an edit of it.
            (Some(_), None) if subject.starts_with('`') || !is_lookup => {
                self.work(ledger, &subject, &sources);
            }
            _ => {}
        }
    }

    /// Takes what the user said through a call, and says whether that was all of it.
    fn hear(ledger: &mut ItemSet, call: &ToolCall, result: &ToolResult, sources: &SeqSet) -> bool {
        let at = sources.last().unwrap_or_default();
        let (refused, answered) = (refusal(result), answer(call, result));
        let Some(said) = refused.as_ref().or(answered.as_ref()) else { return false };
        read_constraints(ledger, at, &sentences(said));
        if refused.is_none() {
            let text = one_line(&format!("The user answered: {said}"), MAX_ITEM_CHARS);
            settle_question(ledger, at, &text);
            ledger.put(SummaryItem::new(SummarySection::KeyDecisions, text, sources.clone()));
        }
        true
    }

    fn change(
        &mut self,
        ledger: &mut ItemSet,
        (call, result): (&ToolCall, Option<&ToolResult>),
        path: &str,
        how: FileChange,
        sources: &SeqSet,
    ) {
        let path = plain_path(path);
        let is_of_file = |note: &EditNote| note.path.as_ref().is_none_or(|named| is_same_file(&path, named));
        let notes = edit_notes(call, result).into_iter().filter(is_of_file);
        changed(ledger, &path, how, notes.filter_map(|note| note.words()).collect(), sources);
        self.changes.push((sources.last().unwrap_or_default(), path.clone()));
        let known = self.replaced.entry(path.clone()).or_default();
        for ReplacementDigest { old, new, removed } in replacements(call) {
            let tried = |old: &str, new: &str| key(&format!("back {old} {new} {path}"));
            let (change, opposite) = ((old.clone(), new.clone()), (new.clone(), old.clone()));
            if known.contains(&opposite) && !known.contains(&change) {
                let is_told = !removed.is_empty() && !holds_secret(&removed);
                let what = if is_told { format!(" to `{removed}`") } else { String::new() };
                let text = format!(
                    "The change of {}{what} {TAKEN_BACK_NOTE} by a later edit.",
                    one_line(&path, MAX_SUBJECT_CHARS)
                );
                attempt(ledger, text, tried(&new, &old), sources, AttemptEnding::Known);
            }
            // It was made again after all.
            ledger.retire(SummarySection::FailedApproaches, &tried(&old, &new));
            known.insert(change);
        }
    }

    /// A command that sets files back to what was committed ends an approach, if they were changed since.
    fn take_back(&mut self, ledger: &mut ItemSet, command: &str, sources: &SeqSet) {
        if command.contains("git commit") {
            self.committed = self.changes.len();
        }
        let named = restored_paths(command);
        let is_meant = |path: &&str| named.iter().any(|name| *name == "." || is_same_file(path, name));
        let touched = self.changes[self.committed..].iter().map(|(_, path)| path.as_str());
        let paths = last_distinct(touched.filter(is_meant));
        if !paths.is_empty() {
            let command = one_line(command, MAX_SUBJECT_CHARS);
            let text = format!("The change of {paths} {TAKEN_BACK_NOTE} with `{command}`.");
            attempt(ledger, text, key(&format!("{paths} {command}")), sources, AttemptEnding::Known);
        }
    }

    /// Something worked: what of its kind had failed is past.
    fn work(&self, ledger: &mut ItemSet, subject: &str, sources: &SeqSet) {
        for failed in open_failures(ledger).filter(|failed| failed.is_of_kind(subject)).collect::<Vec<_>>() {
            let how = self.how(&failed, subject, sources);
            let passed = FailedCall { sources: sources.clone(), ..failed };
            let times = note_error(ledger, &passed, Some(format!("later passed: {how}")));
            if passed.subject != subject {
                // Another command of its kind says nothing of what was tried.
                ledger.remove(SummarySection::FailedApproaches, &tale_key(&passed));
            } else if ledger.get(SummarySection::FailedApproaches, &tale_key(&passed)).is_some() {
                let text = tale(&passed, times, &format!(" → later passed: {how}"));
                attempt(ledger, text, tale_key(&passed), sources, AttemptEnding::Known);
            }
        }
    }

    /// What worked, and what was changed before it did.
    fn how(&self, failed: &FailedCall, subject: &str, sources: &SeqSet) -> String {
        let (since, end) = (failed.sources.last().unwrap_or_default(), sources.first().unwrap_or_default());
        let between = self.changes.iter().filter(|(at, _)| (since..=end).contains(at));
        let changed = last_distinct(between.map(|(_, path)| path.as_str()));
        let subject = one_line(subject, MAX_SUBJECT_CHARS);
        if changed.is_empty() { subject } else { format!("{subject} after changing {changed}") }
    }
}

impl FailedCall {
    /// Whether it is of the kind of something that was tried again.
    fn is_of_kind(&self, tried: &str) -> bool {
        let tried = kinds(tried);
        kinds(&self.subject).iter().any(|kind| tried.contains(kind))
    }
}

/// What failed and has not worked since.
fn open_failures(ledger: &ItemSet) -> impl Iterator<Item = FailedCall> {
    ledger.newest(SummarySection::Errors).filter_map(|item| {
        let Some(ItemDetail::Error { of, words, resolved: None, .. }) = &item.detail else { return None };
        let (subject, words, sources) = (of.clone(), words.clone(), item.sources.clone());
        Some(FailedCall { subject, words, sources, identity: item.identity().to_owned() })
    })
}

/// Something failed.
fn fail(ledger: &mut ItemSet, failed: &FailedCall) {
    // Of what fails otherwise now, only the newest words are how it fails.
    let is_other =
        |older: &FailedCall| older.identity != failed.identity && older.is_of_kind(&failed.subject);
    for older in open_failures(ledger).filter(is_other).collect::<Vec<_>>() {
        note_error(ledger, &older, Some("later failed otherwise".to_owned()));
    }
    let times = note_error(ledger, failed, None);
    // That a command fails again is something of the work; a tool that was used wrongly is not. Of long commands only the
    // beginnings may be the same.
    if times > 1 && failed.subject.starts_with('`') && !failed.subject.ends_with("…`") {
        let text = tale(failed, times, "");
        attempt(ledger, text, tale_key(failed), &failed.sources, AttemptEnding::Open);
    }
}

/// Tells failures as past that nobody saw for long: so many events, or since before the newest request.
pub(super) fn retire_stale_failures(ledger: &mut ItemSet, last: Seq) {
    let before = current_work_start(ledger);
    for failed in open_failures(ledger).collect::<Vec<_>>() {
        let at = failed.sources.last().unwrap_or_default();
        if at < before || last.0.saturating_sub(at.0) > RECENT {
            note_error(ledger, &failed, Some("not seen again".to_owned()));
        }
    }
}

/// The kinds of what was tried, by which a success says something of a failure: what a command runs, or a tool and what it
/// was used on.
fn kinds(subject: &str) -> Vec<String> {
    match subject.strip_prefix('`').and_then(|subject| subject.strip_suffix('`')) {
        Some(command) => run_kinds(command),
        None => subject.splitn(2, ' ').map(str::to_owned).collect(),
    }
}

fn put(
    ledger: &mut ItemSet,
    section: SummarySection,
    text: String,
    key: String,
    sources: &SeqSet,
    detail: ItemDetail,
) {
    ledger.put(SummaryItem { section, text, key: Some(key), sources: sources.clone(), detail: Some(detail) });
}

/// Notes that a file was read; one that was changed is told as that.
fn read(ledger: &mut ItemSet, path: &str, sources: &SeqSet) {
    if ledger.get(SummarySection::FilesModified, &key(path)).is_none() {
        let detail = ItemDetail::File { how: Vec::new(), edits: Vec::new() };
        put(
            ledger,
            SummarySection::FilesRead,
            one_line(path, MAX_ITEM_CHARS - 100),
            key(path),
            sources,
            detail,
        );
    }
}

/// Notes that a file was changed, each way once, and what the newest changes were.
fn changed(ledger: &mut ItemSet, path: &str, new: FileChange, notes: Vec<String>, sources: &SeqSet) {
    let key = key(path);
    let read = ledger.remove(SummarySection::FilesRead, &key).map(|read| read.sources).unwrap_or_default();
    let (mut how, mut edits) = match ledger.get(SummarySection::FilesModified, &key).map(|item| &item.detail)
    {
        Some(Some(ItemDetail::File { how, edits })) => (how.clone(), edits.clone()),
        _ => (Vec::new(), Vec::new()),
    };
    how.retain(|known| *known != new);
    how.push(new);
    if matches!(new, FileChange::Written | FileChange::Deleted) {
        edits.clear();
    }
    edits.retain(|known| !notes.contains(known));
    edits.extend(notes);
    edits.drain(..edits.len().saturating_sub(EDITS));
    let words = how.iter().map(|how| match how {
        FileChange::Written => "written",
        FileChange::Edited => "edited",
        FileChange::Deleted => "deleted",
        FileChange::Moved => "moved here",
    });
    let mut what = words.collect::<Vec<_>>().join(", ");
    if !edits.is_empty() {
        let _ = write!(what, ": {}", edits.join("; "));
    }
    let text = format!("{} ({})", one_line(path, MAX_ITEM_CHARS - 100), what);
    let sources = SeqSet::union([sources, &read]);
    put(ledger, SummarySection::FilesModified, text, key, &sources, ItemDetail::File { how, edits });
}

/// Puts a plan in the place of the one before.
fn plan(ledger: &mut ItemSet, steps: &[TodoItem], sources: &SeqSet) {
    let is_planned = |item: &&SummaryItem| item.detail == Some(ItemDetail::Step(StepOrigin::Plan));
    let before: Vec<SummaryItem> =
        ledger.newest(SummarySection::NextSteps).filter(is_planned).cloned().collect();
    for item in &before {
        ledger.remove(SummarySection::NextSteps, item.identity());
    }
    let is_left = |step: &&TodoItem| matches!(step.state, TodoState::Open | TodoState::Active);
    for step in steps.iter().filter(is_left) {
        let key = key(&one_line(&step.text, MAX_ITEM_CHARS));
        // A step that stays on the plan was planned when it first came there.
        let earlier = before.iter().find(|item| item.identity() == key).map(|item| &item.sources);
        let sources = SeqSet::union(earlier.into_iter().chain([sources]));
        let text = step_text(&step.text, step.state);
        put(ledger, SummarySection::NextSteps, text, key, &sources, ItemDetail::Step(StepOrigin::Plan));
    }
}

/// Notes how far a step is that a tool keeps by its name.
fn track(
    ledger: &mut ItemSet,
    id: Option<&str>,
    text: Option<&str>,
    state: Option<TodoState>,
    sources: &SeqSet,
) {
    let unnamed = text.map(|text| key(&one_line(text, MAX_ITEM_CHARS)));
    let Some(key) =
        id.map(|id| key(&one_line(&format!("step {id}"), MAX_ITEM_CHARS))).or_else(|| unnamed.clone())
    else {
        return;
    };
    // The same step may have been planned without a name.
    if let Some(unnamed) = unnamed.filter(|unnamed| *unnamed != key) {
        ledger.remove(SummarySection::NextSteps, &unnamed);
    }
    if matches!(state, Some(TodoState::Done | TodoState::Dropped)) {
        ledger.remove(SummarySection::NextSteps, &key);
        return;
    }
    let known = ledger.get(SummarySection::NextSteps, &key);
    let known = known.map(|item| item.text.trim_end_matches(ACTIVE));
    if let Some(text) = text.or(known) {
        let text = step_text(text, state.unwrap_or(TodoState::Open));
        put(ledger, SummarySection::NextSteps, text, key, sources, ItemDetail::Step(StepOrigin::Tracked));
    }
}

fn step_text(text: &str, state: TodoState) -> String {
    let active = if state == TodoState::Active { ACTIVE } else { "" };
    format!("{}{active}", one_line(text, MAX_ITEM_CHARS - 20))
}

/// Notes an error that came, or how it is past, and says how often it came by now.
fn note_error(ledger: &mut ItemSet, failed: &FailedCall, resolved: Option<String>) -> u64 {
    let known =
        match ledger.get(SummarySection::Errors, &failed.identity).and_then(|item| item.detail.as_ref()) {
            Some(ItemDetail::Error { times, .. }) => *times,
            _ => 0,
        };
    let times = if resolved.is_some() { known.max(1) } else { known.saturating_add(1) };
    let FailedCall { subject, words, sources, identity } = failed.clone();
    let mut text = format!("{words} — from {subject}");
    if times > 1 {
        let _ = write!(text, ", {times} times");
    }
    let _ = write!(text, "; {}", resolved.as_deref().unwrap_or("failed when last tried"));
    put(
        ledger,
        SummarySection::Errors,
        text,
        identity,
        &sources,
        ItemDetail::Error { of: subject, words, times, resolved },
    );
    times
}

fn attempt(ledger: &mut ItemSet, text: String, key: String, sources: &SeqSet, ending: AttemptEnding) {
    put(ledger, SummarySection::FailedApproaches, text, key, sources, ItemDetail::Attempt(ending));
}

fn tale(failed: &FailedCall, times: u64, end: &str) -> String {
    let words = one_line(&failed.words, MAX_ITEM_CHARS / 2);
    one_line(&format!("{} failed {times} times in the same way: {words}{end}", failed.subject), TALE)
}

fn tale_key(failed: &FailedCall) -> String {
    key(&format!("{}: {}", failed.subject, failed.words))
}

/// A text as a key: itself, or its beginning and a digest of all of it. It is no longer than [`KEY`] either way, so that
/// the key of a key is that key.
fn key(text: &str) -> String {
    const DIGEST: usize = 12;
    if text.char_indices().nth(KEY).is_none() {
        return text.to_owned();
    }
    let head = text.chars().take(KEY - DIGEST - 1);
    head.chain(['#']).chain(short_digest(text).chars().take(DIGEST)).collect()
}

/// The last few paths, each once, in order.
fn last_distinct<'p>(paths: impl DoubleEndedIterator<Item = &'p str>) -> String {
    const MOST: usize = 4;
    let mut last: Vec<&str> = Vec::new();
    for path in paths.rev() {
        if last.len() < MOST && !last.contains(&path) {
            last.insert(0, path);
        }
    }
    one_line(&last.join(", "), MAX_SUBJECT_CHARS)
}

#[cfg(test)]
mod tests {
    use super::{KEY, key};
    use crate::{
        notation::read,
        summary::{SectionCaps, StructuredSummary, SummarySection, summarise},
    };

    /// The items of some sections, a line each.
    fn show(brief: &StructuredSummary, sections: &[SummarySection]) -> String {
        let items = brief.items.iter().filter(|item| sections.contains(&item.section));
        let lines: Vec<String> =
            items.map(|item| format!("{:?} [{}] {}", item.section, item.sources, item.text)).collect();
        lines.join("\n")
    }

    fn told(log: &str, sections: &[SummarySection]) -> String {
        show(&summarise(&read(log), None, &SectionCaps::default()), sections)
    }

    #[test]
    fn of_what_fails_otherwise_now_the_newest_words_stand() {
        let log = r#"
user: Build it.
assistant:
  call bash {"command":"make"}
  !> error: no rule for a.o
assistant:
  call bash {"command":"make"}
  !> error: undefined symbol b
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::Errors]), @r"
        Errors [2-3] error: no rule for a.o — from `make`; later failed otherwise
        Errors [4-5] error: undefined symbol b — from `make`; failed when last tried
        ");
    }

    #[test]
    fn a_modified_file_is_told_with_lines_and_words_of_its_newest_changes() {
        let edit = |old: &str, new: &str, said: &str| {
            format!(
                "assistant:\n  call Edit {{\"file_path\":\"src/auth.rs\",\"old_string\":\"{old}\",\"new_string\":\"{new}\"}}\n  -> {said}\n"
            )
        };
        let log = [
            "user: Go.\n".to_owned(),
            edit("one thing", "the first change", "done"),
            edit("two things", "the second change", "@@ -50,1 +50,3 @@"),
            edit("three things", "the third change", "done"),
        ];
        insta::assert_snapshot!(
            told(&log.concat(), &[SummarySection::FilesModified]),
            @"FilesModified [2-7] src/auth.rs (edited: lines 50-52 `the second change`; `the third change`)"
        );
        let written =
            "assistant:\n  call Write {\"file_path\":\"src/auth.rs\",\"content\":\"a\\nb\\n\"}\n  -> done\n";
        insta::assert_snapshot!(
            told(&(log.concat() + written), &[SummarySection::FilesModified]),
            @"FilesModified [2-9] src/auth.rs (edited, written: 2 lines)"
        );
    }

    #[test]
    fn a_file_is_told_once() {
        let log = r#"
user: Go.
assistant:
  call read_file {"path":"a.rs","offset":1,"limit":10}
  -> 10 lines of "code"
assistant:
  call read_file {"path":"a.rs","offset":11,"limit":10}
  -> 10 lines of "code"
assistant:
  call read_file {"path":"b.rs"}
  -> code
assistant:
  call edit_file {"path":"b.rs","old_string":"x","new_string":"y"}
  -> done
assistant:
  call read_file {"path":"b.rs"}
  -> code
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::FilesRead, SummarySection::FilesModified]), @r"
        FilesModified [6-9] b.rs (edited)
        FilesRead [2-5] a.rs
        ");
    }

    #[test]
    fn a_path_with_a_line_break_is_told_with_an_escape() {
        let log = r#"
user: Go.
assistant:
  call edit_file {"path":"src/odd\nname.rs","old_string":"x","new_string":"y"}
  -> done
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::FilesModified]), @r"FilesModified [2-3] src/odd\nname.rs (edited)");
    }

    #[test]
    fn a_command_is_told_once_with_its_last_outcome() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"make test"}
  !> Exit code 2
assistant:
  call bash {"command":"make test"}
  -> fine
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::Commands]), @"Commands [2-5] `make test` → ok");
    }

    const FIXED: &str = r#"
user: Go.
assistant: Building.
  call bash {"command":"cargo build"}
  !> error[E0308]: mismatched types
assistant: The problem was the return type.
  call edit_file {"path":"src/a.rs","old_string":"x","new_string":"y"}
  -> done
assistant:
  call bash {"command":"cargo build --release"}
  -> Finished
"#;

    #[test]
    fn an_error_is_past_when_the_same_thing_works() {
        insta::assert_snapshot!(told(FIXED, &[SummarySection::Errors, SummarySection::FailedApproaches]), @r"
        Errors [2-3, 6-7] error[E0308]: mismatched types — from `cargo build`; later passed: `cargo build --release` after changing src/a.rs
        ");
    }

    #[test]
    fn only_what_is_of_its_kind_says_that_a_failure_is_past() {
        let log = r#"
user: Go on with the checks of the front end, please, one by one.
assistant:
  call bash {"command":"npm run check"}
  !> error TS2353: unknown property
assistant:
  call bash {"command":"npm run dev"}
  -> ready
assistant:
  call bash {"command":"go test -run Probe ./a"}
  !> --- FAIL: TestProbe
assistant:
  call bash {"command":"go test ./b"}
  -> ok
assistant:
  call bash {"command":"cat nowhere.txt"}
  !> cat: nowhere.txt: No such file or directory
assistant:
  call read_file {"path":"nowhere.txt"}
  !> File does not exist.
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::Errors, SummarySection::FailedApproaches]), @r"
        Errors [2-3] error TS2353: unknown property — from `npm run check`; failed when last tried
        Errors [6-9] --- FAIL: TestProbe — from `go test -run Probe ./a`; later passed: `go test ./b`
        ");
    }

    #[test]
    fn a_failure_that_nobody_saw_since_the_newest_request_is_past() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"make check"}
  !> Error: boom
user: Go on.
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::Errors]), @"Errors [2-3] Error: boom — from `make check`; failed when last tried");
        let later = format!("{log}user: Now write the manual page of the exporter.\n");
        insta::assert_snapshot!(told(&later, &[SummarySection::Errors]), @"Errors [2-3] Error: boom — from `make check`; not seen again");
    }

    #[test]
    fn the_same_words_of_another_command_are_another_error() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"make one"}
  !> Error: boom
assistant:
  call bash {"command":"make two"}
  !> Error: boom
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::Errors, SummarySection::FailedApproaches]), @r"
        Errors [2-3] Error: boom — from `make one`; failed when last tried
        Errors [4-5] Error: boom — from `make two`; failed when last tried
        ");
    }

    /// An error is longer than a key may be, and still the same error with the same words two compactions later.
    #[test]
    fn a_long_error_is_told_once_and_in_its_own_words_across_compactions() {
        let words: Vec<String> = (0..50).map(|number| format!("word{number}")).collect();
        let log = FIXED.replace("mismatched types", &words.join(" "));
        let events = read(&log);
        let first = summarise(&events[..3], None, &SectionCaps::default());
        let second = summarise(&events[3..5], Some(&first), &SectionCaps::default());
        let third = summarise(&events[5..], Some(&second), &SectionCaps::default());
        let errors: Vec<&str> =
            third.section(SummarySection::Errors).map(|item| item.text.as_str()).collect();
        let expect = format!(
            "error[E0308]: {} — from `cargo build`; later passed: `cargo build --release`",
            words.join(" ")
        );
        assert_eq!(errors, [expect]);
    }

    #[test]
    fn the_key_of_a_key_is_that_key() {
        for length in [0, 239, 240, 241, 300, 5_000] {
            let once = key(&"é".repeat(length));
            assert!(once.chars().count() <= KEY, "{once}");
            assert_eq!(key(&once), once);
        }
        assert_ne!(key(&"x".repeat(300)), key(&"x".repeat(301)));
    }

    /// Wherever a compaction falls between two turns, the tale is the same but for what was changed before it.
    #[test]
    fn an_error_is_past_across_compactions() {
        let events = read(FIXED);
        let first = summarise(&events[..3], None, &SectionCaps::default());
        assert!(show(&first, &[SummarySection::Errors]).ends_with("failed when last tried"));
        let second = summarise(&events[3..], Some(&first), &SectionCaps::default());
        insta::assert_snapshot!(show(&second, &[SummarySection::Errors]), @"Errors [2-3, 6-7] error[E0308]: mismatched types — from `cargo build`; later passed: `cargo build --release` after changing src/a.rs");
    }

    #[test]
    fn a_repeated_failure_and_a_change_taken_back_are_failed_approaches() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"npm test"}
  !> Error: boom
assistant:
  call bash {"command":"npm test"}
  !> Error: boom
assistant:
  call edit_file {"path":"a.js","old_string":"one","new_string":"two"}
  -> done
assistant:
  call edit_file {"path":"a.js","old_string":"two","new_string":"one"}
  -> done
assistant:
  call bash {"command":"git checkout -- a.js"}
  -> done
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::FailedApproaches]), @r"
        FailedApproaches [4-5] `npm test` failed 2 times in the same way: Error: boom
        FailedApproaches [8-9] The change of a.js to `two` was taken back by a later edit.
        FailedApproaches [10-11] The change of a.js was taken back with `git checkout -- a.js`.
        ");
    }

    #[test]
    fn the_newest_plan_replaces_the_one_before_and_done_steps_go() {
        let log = r#"
user: Go.
assistant:
  call TodoWrite {"todos":[{"content":"One","status":"in_progress"},{"content":"Two","status":"pending"}]}
  -> ok
assistant:
  call TodoWrite {"todos":[{"content":"One","status":"completed"},{"content":"Two","status":"in_progress"}]}
  -> ok
"#;
        insta::assert_snapshot!(told(log, &[SummarySection::NextSteps]), @"NextSteps [2-5] Two (in progress)");
    }
}
