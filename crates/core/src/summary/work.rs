//! What was done: files, commands, plans, and what fails by now.
//!
//! A failure stands until something of its kind works: the same program with the same subcommand, or the same tool or file.
//! It is then told as past, with what was changed in between. Whether that is the reason nobody can know, and it is not said.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

use super::{
    Detail, Ending, Item, Section, StepOrigin,
    calls::{Replacement, SUBJECT, is_same_file, replacements, restored, subject},
    constraints::hear,
    files::{changed, plain_path, read},
    ledger::Ledger,
    markers::Clauses,
    prose::{one_line, sentences},
    requests::{EARLIER, ITEM, places},
    tools::{Change, Deed, Todo, TodoState, deeds, failure, looks_up, run_kinds},
    voices::{answer, refusal},
};
use crate::{
    chain::Digest,
    event::{ToolCall, ToolResult},
    id::Seq,
    pairing::{Exchange, Outcome},
    seq_set::SeqSet,
    verify::holds_secret,
};

/// How many characters of an error are kept.
const ERROR: usize = 400;

/// How long the tale of an attempt may be, in characters.
const TALE: usize = 480;

/// How long a key may be, in characters; of what is longer the end is replaced by a digest.
const KEY: usize = 240;

/// What is added to a step that is being worked on.
const ACTIVE: &str = " (in progress)";

/// A failure that so many events were recorded since is told as past: nobody tried again in some forty calls.
const RECENT: u64 = 80;

/// What is remembered of the work, from call to call.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What failed and has not worked since, oldest first.
    failed: Vec<Failed>,
    /// Changes of files, in order, and where they were committed last.
    changes: Vec<(Seq, String)>,
    committed: usize,
    /// What was replaced by what, by file.
    replaced: HashMap<String, HashSet<(u64, u64)>>,
    /// The steps of the plan that holds.
    plan: Vec<String>,
}

/// Something that failed.
#[derive(Clone, Debug)]
struct Failed {
    /// What was tried.
    subject: String,
    /// How it failed, in its own words.
    words: String,
    /// The call and its result.
    sources: SeqSet,
    /// Of the item that tells of it.
    identity: String,
}

impl Work {
    /// Goes on where the summary before stopped.
    pub(super) fn carrying(ledger: &Ledger) -> Self {
        let mut work = Self::default();
        for item in ledger.newest(Section::Errors) {
            if let Some(Detail::Error { of, words, resolved: None, .. }) = &item.detail {
                let (subject, words, sources) = (of.clone(), words.clone(), item.sources.clone());
                let identity = item.identity().to_owned();
                work.failed.push(Failed { subject, words, sources, identity });
            }
        }
        work.failed.reverse();
        let planned = |item: &&Item| item.detail == Some(Detail::Step(StepOrigin::Plan));
        let steps = ledger.newest(Section::NextSteps).filter(planned);
        work.plan = steps.map(|item| item.identity().to_owned()).collect();
        work
    }

    /// Takes a call with its outcome.
    pub(super) fn take(&mut self, ledger: &mut Ledger, exchange: &Exchange<'_>) {
        let call = exchange.call;
        let mut sources = SeqSet::one(exchange.at);
        let result = match exchange.outcome {
            Outcome::Returned { at, result } => {
                sources.insert(at);
                Some(result)
            }
            Outcome::Unanswered => None,
        };
        if let Some(result) = result
            && Self::hear(ledger, call, result, &sources)
        {
            return;
        }
        let done = deeds(call, result);
        let failed = result.and_then(|result| failure(call, result));
        let subject = subject(call, &done);
        for deed in &done {
            match deed {
                Deed::Read { path, lines } => read(ledger, path, *lines, &sources),
                Deed::Changed { path, how, lines } => self.change(ledger, call, path, *how, lines, &sources),
                Deed::Ran { command, exit } => {
                    let exit = exit.or_else(|| failed.as_ref().and_then(|failed| failed.exit));
                    let end = match (result, &failed) {
                        (None, _) => End::Unknown,
                        (Some(_), Some(_)) => End::Failed,
                        (Some(_), None) if exit.is_some_and(|exit| exit != 0) => End::Failed,
                        (Some(_), None) => End::Worked,
                    };
                    ran(ledger, command, exit, end, &sources);
                    if end == End::Worked {
                        self.take_back(ledger, command, &sources);
                    }
                }
                Deed::Planned { steps } => self.plan(ledger, steps, &sources),
                Deed::Stepped { id, text, state } => {
                    track(ledger, id.as_deref(), text.as_deref(), *state, &sources);
                }
                Deed::Searched { .. } => {}
            }
        }
        match (result, failed) {
            (Some(_), Some(failed)) if !looks_up(call) && !failed.words.is_empty() => {
                let words = one_line(&failed.words, ERROR);
                let identity = key(&format!("{}: {words}", kinds(&subject).join(" ")));
                self.fail(ledger, Failed { subject, words, sources, identity });
            }
            // That a file can be read says nothing of an edit of it.
            (Some(_), None) if subject.starts_with('`') || !looks_up(call) => {
                self.work(ledger, &subject, &sources);
            }
            _ => {}
        }
    }

    /// Takes what the user said through a call, and says whether that was all of it.
    fn hear(ledger: &mut Ledger, call: &ToolCall, result: &ToolResult, sources: &SeqSet) -> bool {
        let at = sources.last().unwrap_or_default();
        if let Some(said) = refusal(result) {
            let read = sentences(&said);
            hear(ledger, at, &read, &Clauses::of_all(&read));
            return true;
        }
        let Some(said) = answer(call, result) else { return false };
        let read = sentences(&said);
        hear(ledger, at, &read, &Clauses::of_all(&read));
        let text = one_line(&format!("The user answered: {said}"), ITEM);
        let sources = sources.clone();
        ledger.put(Item { section: Section::KeyDecisions, text, key: None, sources, detail: None });
        true
    }

    fn change(
        &mut self,
        ledger: &mut Ledger,
        call: &ToolCall,
        path: &str,
        how: Change,
        lines: &[(u64, u64)],
        sources: &SeqSet,
    ) {
        let path = plain_path(path);
        changed(ledger, &path, how, lines, sources);
        self.changes.push((sources.last().unwrap_or_default(), path.clone()));
        let known = self.replaced.entry(path.clone()).or_default();
        for Replacement { old, new, replaced } in replacements(call) {
            let tried = |old: u64, new: u64| key(&format!("back {old:x} {new:x} {path}"));
            if known.contains(&(new, old)) && !known.contains(&(old, new)) {
                let what = if holds_secret(&replaced) { String::new() } else { format!(" to `{replaced}`") };
                let text =
                    format!("The change of {}{what} {TAKEN_BACK} by a later edit.", one_line(&path, SUBJECT));
                attempt(ledger, text, tried(new, old), sources.clone(), Ending::Known);
            }
            // It was made again after all.
            ledger.retire(Section::FailedApproaches, &tried(old, new));
            known.insert((old, new));
        }
    }

    /// A command that sets files back to what was committed ends an approach, if they were changed since.
    fn take_back(&mut self, ledger: &mut Ledger, command: &str, sources: &SeqSet) {
        if command.contains("git commit") {
            self.committed = self.changes.len();
        }
        let named = restored(command);
        let is_meant = |path: &&str| named.iter().any(|name| name == "." || is_same_file(path, name));
        let touched = self.changes[self.committed..].iter().map(|(_, path)| path.as_str());
        let paths = last_distinct(touched.filter(is_meant), 4);
        if paths.is_empty() {
            return;
        }
        let (paths, command) = (one_line(&paths.join(", "), SUBJECT), one_line(command, SUBJECT));
        let text = format!("The change of {paths} {TAKEN_BACK} with `{command}`.");
        attempt(ledger, text, key(&format!("{paths} {command}")), sources.clone(), Ending::Known);
    }

    fn plan(&mut self, ledger: &mut Ledger, steps: &[Todo], sources: &SeqSet) {
        let mut before: HashMap<String, SeqSet> = HashMap::new();
        for step in std::mem::take(&mut self.plan) {
            let planned = |item: &Item| item.detail == Some(Detail::Step(StepOrigin::Plan));
            if ledger.get(Section::NextSteps, &step).is_some_and(planned)
                && let Some(item) = ledger.strike(Section::NextSteps, &step)
            {
                before.insert(step, item.sources);
            }
        }
        for step in steps {
            let text = match step.state {
                TodoState::Open => one_line(&step.text, ITEM),
                TodoState::Active => format!("{}{ACTIVE}", one_line(&step.text, ITEM - 20)),
                TodoState::Done | TodoState::Dropped => continue,
            };
            if step.text.trim().is_empty() {
                continue;
            }
            let identity = key(&one_line(&step.text, ITEM));
            // A step that stays on the plan was planned when it first came there.
            let earlier = before.remove(&identity).unwrap_or_default();
            self.plan.push(identity.clone());
            ledger.put(Item {
                section: Section::NextSteps,
                text,
                key: Some(identity),
                sources: SeqSet::union([&earlier, sources]),
                detail: Some(Detail::Step(StepOrigin::Plan)),
            });
        }
    }

    fn fail(&mut self, ledger: &mut Ledger, mut failed: Failed) {
        let is_same = |known: &mut Failed| known.words == failed.words && known.subject == failed.subject;
        if let Some(known) = self.failed.extract_if(.., is_same).last() {
            failed.identity = known.identity;
        }
        let times = note_error(ledger, &failed, Fate::Came);
        // That a command fails again is something of the work; a tool that was used wrongly is not.
        if times > 1 && failed.subject.starts_with('`') {
            attempt(
                ledger,
                tale(&failed, times, ""),
                tale_key(&failed),
                failed.sources.clone(),
                Ending::Open,
            );
        }
        self.failed.push(failed);
    }

    /// Something worked: what of its kind had failed is past.
    fn work(&mut self, ledger: &mut Ledger, subject: &str, sources: &SeqSet) {
        let worked = kinds(subject);
        let is_meant = |failed: &mut Failed| kinds(&failed.subject).iter().any(|kind| worked.contains(kind));
        for failed in self.failed.extract_if(.., is_meant).collect::<Vec<_>>() {
            let how = self.how(&failed, subject, sources);
            let passed = Failed { sources: sources.clone(), ..failed };
            let times = note_error(ledger, &passed, Fate::Past(format!("later passed: {how}")));
            if ledger.get(Section::FailedApproaches, &tale_key(&passed)).is_some() {
                let text = tale(&passed, times, &format!(" → later passed: {how}"));
                attempt(ledger, text, tale_key(&passed), sources.clone(), Ending::Known);
            }
        }
    }

    /// What worked, and what was changed before it did.
    fn how(&self, failed: &Failed, subject: &str, sources: &SeqSet) -> String {
        let (since, end) = (failed.sources.last().unwrap_or_default(), sources.first().unwrap_or_default());
        let between = self.changes.iter().filter(|(at, _)| (since..=end).contains(at));
        let changed = last_distinct(between.map(|(_, path)| path.as_str()), 4);
        if changed.is_empty() {
            return one_line(subject, SUBJECT);
        }
        format!("{} after changing {}", one_line(subject, SUBJECT), one_line(&changed.join(", "), SUBJECT))
    }

    /// Tells failures as past that nobody saw for long: so many events, or since before the
    /// newest request.
    pub(super) fn settle(&self, ledger: &mut Ledger, last: Seq) {
        let before = places(ledger).first().copied().unwrap_or_default();
        for failed in &self.failed {
            let at = failed.sources.last().unwrap_or_default();
            if at < before || last.0.saturating_sub(at.0) > RECENT {
                note_error(ledger, failed, Fate::Past("not seen again".to_owned()));
            }
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

/// Notes how far a step is that a tool keeps by its name.
fn track(
    ledger: &mut Ledger,
    id: Option<&str>,
    text: Option<&str>,
    state: Option<TodoState>,
    sources: &SeqSet,
) {
    let text = text.map(|text| one_line(text, ITEM - 20)).filter(|text| !text.is_empty());
    let identity = match (id, &text) {
        (Some(id), _) => key(&format!("step {id}")),
        (None, Some(text)) => key(text),
        (None, None) => return,
    };
    if matches!(state, Some(TodoState::Done | TodoState::Dropped)) {
        ledger.strike(Section::NextSteps, &identity);
        return;
    }
    let known = ledger
        .get(Section::NextSteps, &identity)
        .map(|item| item.text.trim_end_matches(EARLIER).trim_end_matches(ACTIVE).to_owned());
    let Some(mut text) = text.or(known) else { return };
    if state == Some(TodoState::Active) {
        text.push_str(ACTIVE);
    }
    let detail = Some(Detail::Step(StepOrigin::Tracked));
    ledger.put(Item {
        section: Section::NextSteps,
        text,
        key: Some(identity),
        sources: sources.clone(),
        detail,
    });
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Worked,
    Failed,
    Unknown,
}

fn ran(ledger: &mut Ledger, command: &str, exit: Option<i64>, end: End, sources: &SeqSet) {
    let identity = key(&one_line(command, usize::MAX));
    let (runs, failed) = match ledger.get(Section::Commands, &identity).map(|item| &item.detail) {
        Some(Some(Detail::Command { runs, failed, .. })) => (*runs, *failed),
        _ => (0, 0),
    };
    let runs = runs.saturating_add(1);
    let failed = failed.saturating_add(u64::from(end == End::Failed));
    let ended = match (exit, end) {
        (Some(exit), _) => format!("exit {exit}"),
        (None, End::Worked) => "ok".to_owned(),
        (None, End::Failed) => "failed".to_owned(),
        (None, End::Unknown) => "no result".to_owned(),
    };
    let mut text = format!("`{}` → {ended}", one_line(command, ITEM - 80));
    if runs > 1 {
        let _ = write!(text, " (ran {runs} times, {failed} failed)");
    }
    let detail = Some(Detail::Command { runs, failed, exit });
    ledger.put(Item {
        section: Section::Commands,
        text,
        key: Some(identity),
        sources: sources.clone(),
        detail,
    });
}

/// What became of an error.
enum Fate {
    /// It came again, or for the first time.
    Came,
    /// It is past, in these words.
    Past(String),
}

/// Notes an error, and says how often it came by now.
fn note_error(ledger: &mut Ledger, failed: &Failed, fate: Fate) -> u64 {
    let identity = failed.identity.clone();
    let known = match ledger.get(Section::Errors, &identity).and_then(|item| item.detail.as_ref()) {
        Some(Detail::Error { times, .. }) => *times,
        _ => 0,
    };
    let (times, ending, resolved) = match fate {
        Fate::Came => (known.saturating_add(1), "failed when last tried".to_owned(), None),
        Fate::Past(how) => (known.max(1), how.clone(), Some(how)),
    };
    let mut text = format!("{} — from {}", failed.words, failed.subject);
    if times > 1 {
        let _ = write!(text, ", {times} times");
    }
    let _ = write!(text, "; {ending}");
    let detail =
        Some(Detail::Error { of: failed.subject.clone(), words: failed.words.clone(), times, resolved });
    let sources = failed.sources.clone();
    ledger.put(Item { section: Section::Errors, text, key: Some(identity), sources, detail });
    times
}

/// What is said of a change that no longer stands.
pub(crate) const TAKEN_BACK: &str = "was taken back";

fn attempt(ledger: &mut Ledger, text: String, key: String, sources: SeqSet, ending: Ending) {
    let detail = Some(Detail::Attempt(ending));
    ledger.put(Item { section: Section::FailedApproaches, text, key: Some(key), sources, detail });
}

fn tale(failed: &Failed, times: u64, end: &str) -> String {
    let words = one_line(&failed.words, ITEM / 2);
    one_line(&format!("{} failed {times} times in the same way: {words}{end}", failed.subject), TALE)
}

fn tale_key(failed: &Failed) -> String {
    key(&format!("{}: {}", failed.subject, failed.words))
}

/// A text as a key: itself, or its beginning and a digest of all of it. It is no longer than [`KEY`] either way, so that
/// the key of a key is that key.
pub(crate) fn key(text: &str) -> String {
    const DIGEST: usize = 12;
    if text.char_indices().nth(KEY).is_none() {
        return text.to_owned();
    }
    let head = text.chars().take(KEY - DIGEST - 1);
    let digest = Digest::of(text.as_bytes()).to_string();
    head.chain(['#']).chain(digest.chars().take(DIGEST)).collect()
}

/// The last few, each once, in order.
fn last_distinct<'p>(paths: impl DoubleEndedIterator<Item = &'p str>, most: usize) -> Vec<&'p str> {
    let mut last: Vec<&str> = Vec::new();
    for path in paths.rev() {
        if last.len() == most {
            break;
        }
        if !last.contains(&path) {
            last.push(path);
        }
    }
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    use super::{KEY, key};
    use crate::{
        notation::read,
        summary::{Brief, Caps, Section, summarise},
    };

    /// The items of some sections, a line each.
    fn show(brief: &Brief, sections: &[Section]) -> String {
        let items = brief.items.iter().filter(|item| sections.contains(&item.section));
        let lines: Vec<String> =
            items.map(|item| format!("{:?} [{}] {}", item.section, item.sources, item.text)).collect();
        lines.join("\n")
    }

    fn told(log: &str, sections: &[Section]) -> String {
        show(&summarise(&read(log), None, &Caps::default()), sections)
    }

    #[test]
    fn a_file_is_told_once_with_the_lines_that_were_touched() {
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
        insta::assert_snapshot!(told(log, &[Section::FilesRead, Section::FilesModified]), @r"
        FilesModified [6-9] b.rs (edited)
        FilesRead [2-5] a.rs: lines 1-20
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
        insta::assert_snapshot!(told(log, &[Section::FilesModified]), @r"FilesModified [2-3] src/odd\nname.rs (edited)");
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
        insta::assert_snapshot!(told(log, &[Section::Commands]), @"Commands [2-5] `make test` → ok (ran 2 times, 1 failed)");
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
        insta::assert_snapshot!(told(FIXED, &[Section::Errors, Section::FailedApproaches]), @r"
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
        insta::assert_snapshot!(told(log, &[Section::Errors, Section::FailedApproaches]), @r"
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
        insta::assert_snapshot!(told(log, &[Section::Errors]), @"Errors [2-3] Error: boom — from `make check`; failed when last tried");
        let later = format!("{log}user: Now write the manual page of the exporter.\n");
        insta::assert_snapshot!(told(&later, &[Section::Errors]), @"Errors [2-3] Error: boom — from `make check`; not seen again");
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
        insta::assert_snapshot!(told(log, &[Section::Errors, Section::FailedApproaches]), @r"
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
        let first = summarise(&events[..3], None, &Caps::default());
        let second = summarise(&events[3..5], Some(&first), &Caps::default());
        let third = summarise(&events[5..], Some(&second), &Caps::default());
        let errors: Vec<&str> = third.section(Section::Errors).map(|item| item.text.as_str()).collect();
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
        let first = summarise(&events[..3], None, &Caps::default());
        assert!(show(&first, &[Section::Errors]).ends_with("failed when last tried"));
        let second = summarise(&events[3..], Some(&first), &Caps::default());
        insta::assert_snapshot!(show(&second, &[Section::Errors]), @"Errors [2-3, 6-7] error[E0308]: mismatched types — from `cargo build`; later passed: `cargo build --release` after changing src/a.rs");
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
        insta::assert_snapshot!(told(log, &[Section::FailedApproaches]), @r"
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
        insta::assert_snapshot!(told(log, &[Section::NextSteps]), @"NextSteps [2-5] Two (in progress)");
    }
}
