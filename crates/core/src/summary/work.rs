//! What was done: files, commands, errors, plans, and what became of what failed.
//!
//! A failure is open until the same thing works: the same command or one that runs as much, or another change of the same
//! file. What was changed in between is then taken for what made it work. What only resembles it is told as such.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
};

use super::{
    Detail, Ending, Item, Section, StepOrigin,
    calls::{SUBJECT, Scope, is_same_file, replacements, subject, takes_back},
    files::{changed, plain_path, read},
    ledger::Ledger,
    prose::{one_line, sentences},
    runs::{covers, kind, kinds},
    tools::{Change, Deed, Todo, TodoState, deeds, failure},
    voices::{answer, refusal},
    wishes::{ITEM, hear},
};
use crate::{
    chain::Digest,
    event::{ToolCall, ToolResult},
    id::Seq,
    pairing::{Exchange, Outcome},
    seq_set::SeqSet,
};

/// How many characters of an error are kept.
const ERROR: usize = 400;

/// How long the tale of an attempt may be, in characters.
const TALE: usize = 480;

/// How long a key may be, in characters; of what is longer the end is replaced by a digest.
const KEY: usize = 240;

/// How many changed files the current task names.
const CHANGED: usize = 12;

/// What is added to a step that is being worked on.
const ACTIVE: &str = " (in progress)";

/// How many failures of the same kind wait for the same success.
const WAITING: usize = 8;

/// What is remembered of the work, from call to call.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What failed and has not worked since, by kind.
    failed: BTreeMap<String, Vec<Failed>>,
    newest: Option<Failed>,
    /// Changes of files, in order.
    changes: Vec<(Seq, String)>,
    /// What was replaced by what, by file.
    replaced: HashMap<String, HashSet<(u64, u64)>>,
    /// The steps of the plan that holds.
    plan: Vec<String>,
    /// How many tools were called and what they changed, since the newest request.
    pub(super) since: Since,
}

/// What was done since the newest request.
#[derive(Clone, Debug, Default)]
pub(super) struct Since {
    pub(super) calls: u64,
    pub(super) changed: Vec<String>,
    pub(super) sources: SeqSet,
    /// The last command and how it ended.
    pub(super) ran: Option<String>,
}

/// Something that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// What was tried.
    pub(super) subject: String,
    /// How it failed, in its own words.
    pub(super) words: String,
    /// The call and its result.
    pub(super) sources: SeqSet,
}

impl Work {
    /// Goes on where the summary before stopped.
    pub(super) fn carrying(ledger: &Ledger) -> Self {
        let mut work = Self::default();
        for item in ledger.newest(Section::Errors) {
            if let Some(Detail::Error { of, words, resolved: None, .. }) = &item.detail {
                let failed =
                    Failed { subject: of.clone(), words: words.clone(), sources: item.sources.clone() };
                if work.newest.as_ref().is_none_or(|newest| newest.sources.last() < failed.sources.last()) {
                    work.newest = Some(failed.clone());
                }
                work.failed.entry(kind(of)).or_default().push(failed);
            }
        }
        let planned = |item: &&Item| item.detail == Some(Detail::Step(StepOrigin::Plan));
        work.plan = ledger
            .newest(Section::NextSteps)
            .filter(planned)
            .map(|item| item.identity().to_owned())
            .collect();
        work
    }

    /// A new request: what is done from here on is done for it.
    pub(super) fn asked(&mut self) {
        self.since = Since::default();
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
        self.since.calls += 1;
        self.since.sources.extend(&sources);
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
                    self.since.ran = Some(ran(ledger, command, exit, end, &sources));
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
            (Some(_), Some(failed)) => {
                self.fail(ledger, Failed { subject, words: one_line(&failed.words, ERROR), sources });
            }
            (Some(_), None) => self.work(ledger, &subject, &sources),
            (None, _) => {}
        }
    }

    /// Takes what the user said through a call, and says whether that was all of it.
    fn hear(ledger: &mut Ledger, call: &ToolCall, result: &ToolResult, sources: &SeqSet) -> bool {
        let at = sources.last().unwrap_or_default();
        if let Some(said) = refusal(result) {
            hear(ledger, at, &sentences(&said));
            return true;
        }
        let Some(said) = answer(call, result) else { return false };
        hear(ledger, at, &sentences(&said));
        let text = one_line(&format!("The user answered: {said}"), ITEM);
        let sources = sources.clone();
        ledger.put(Item { section: Section::KeyDecisions, text, key: None, sources, detail: None });
        true
    }

    /// Takes an error that the user reported.
    pub(super) fn report(ledger: &mut Ledger, at: Seq, words: String) {
        let failed = Failed { subject: "the user's report".to_owned(), words, sources: SeqSet::one(at) };
        note_error(ledger, &failed, Fate::Reported);
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
        let at = sources.last().unwrap_or_default();
        self.changes.push((at, path.clone()));
        self.since.changed.retain(|known| *known != path);
        self.since.changed.push(path.clone());
        if self.since.changed.len() > CHANGED {
            self.since.changed.remove(0);
        }
        let known = self.replaced.entry(path.clone()).or_default();
        let replaced = replacements(call);
        let back = replaced.iter().any(|(old, new)| known.contains(&(*new, *old)));
        known.extend(replaced);
        if back {
            let text = format!("The change of {} {TAKEN_BACK} by a later edit.", one_line(&path, SUBJECT));
            attempt(ledger, text, key(&format!("back {path}")), sources.clone(), Ending::Known);
        }
    }

    /// A command that takes changes back ends an approach.
    fn take_back(&mut self, ledger: &mut Ledger, command: &str, sources: &SeqSet) {
        let Some(scope) = takes_back(command) else { return };
        let paths: Vec<&str> = match &scope {
            Scope::Everything => last_distinct(self.changes.iter().map(|(_, path)| path.as_str()), 4),
            Scope::Named(named) => {
                let named: Vec<&str> = named.iter().map(String::as_str).collect();
                let touched = self.changes.iter().map(|(_, path)| path.as_str());
                last_distinct(touched.filter(|path| named.iter().any(|name| is_same_file(path, name))), 4)
            }
        };
        if paths.is_empty() {
            return;
        }
        let what = format!("{} {}", one_line(&paths.join(", "), SUBJECT), one_line(command, SUBJECT));
        let text = format!(
            "The change of {} {TAKEN_BACK} with `{}`.",
            one_line(&paths.join(", "), SUBJECT),
            one_line(command, SUBJECT)
        );
        attempt(ledger, text, key(&what), sources.clone(), Ending::Known);
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

    fn fail(&mut self, ledger: &mut Ledger, failed: Failed) {
        if failed.words.is_empty() {
            return;
        }
        let times = note_error(ledger, &failed, Fate::Came);
        let kind = kind(&failed.subject);
        if times > 1 {
            let text = format!(
                "{} failed {times} times in the same way: {}",
                failed.subject,
                one_line(&failed.words, ITEM)
            );
            attempt(ledger, text, tale_key(&kind, &failed.words), failed.sources.clone(), Ending::Open);
        }
        let waiting = self.failed.entry(kind).or_default();
        waiting.retain(|known| known.words != failed.words);
        if waiting.len() == WAITING {
            waiting.remove(0);
        }
        waiting.push(failed.clone());
        self.newest = Some(failed);
    }

    /// Something worked: what of its kind had failed is resolved, if it must have worked too.
    fn work(&mut self, ledger: &mut Ledger, subject: &str, sources: &SeqSet) {
        for kind in kinds(subject) {
            let waiting = self.failed.remove(&kind).unwrap_or_default();
            for failed in waiting {
                if covers(subject, &failed.subject) && !self.was_a_trial(ledger, &failed, sources) {
                    self.resolve(ledger, &kind, &failed, subject, sources);
                } else {
                    let passed = Failed { sources: sources.clone(), ..failed.clone() };
                    note_error(ledger, &passed, Fate::Passed(subject));
                    self.failed.entry(kind.clone()).or_default().push(failed);
                }
            }
        }
    }

    fn resolve(&mut self, ledger: &mut Ledger, kind: &str, failed: &Failed, subject: &str, sources: &SeqSet) {
        let how = self.how(failed, subject, sources);
        let resolved = Failed { sources: sources.clone(), ..failed.clone() };
        note_error(ledger, &resolved, Fate::Resolved(one_line(&how, SUBJECT)));
        let words = one_line(&failed.words, ITEM / 2);
        let text = format!("Tried {}: {words} → {how}", failed.subject);
        let all = SeqSet::union([&failed.sources, sources]);
        attempt(ledger, one_line(&text, TALE), tale_key(kind, &failed.words), all, Ending::Known);
        self.newest.take_if(|newest| newest.words == failed.words);
    }

    /// Whether all that was changed between a failure and a success is gone: a test that was only written to see it fail
    /// is not resolved by its end.
    fn was_a_trial(&self, ledger: &Ledger, failed: &Failed, sources: &SeqSet) -> bool {
        let gone = |path: &str| match ledger.get(Section::FilesModified, &key(path)).map(|item| &item.detail)
        {
            Some(Some(Detail::File { how, .. })) => how.last() == Some(&Change::Deleted),
            _ => false,
        };
        let between = self.changed_between(failed, sources);
        !between.is_empty() && between.iter().all(|(_, path)| gone(path))
    }

    fn changed_between(&self, failed: &Failed, sources: &SeqSet) -> &[(Seq, String)] {
        let since = failed.sources.last().unwrap_or_default();
        let end = sources.first().unwrap_or_default();
        let from = self.changes.partition_point(|(at, _)| *at <= since);
        let until = self.changes.partition_point(|(at, _)| *at <= end);
        self.changes.get(from..until).unwrap_or_default()
    }

    /// What made it work, as far as can be told.
    fn how(&self, failed: &Failed, subject: &str, sources: &SeqSet) -> String {
        let between = self.changed_between(failed, sources);
        let changed = last_distinct(between.iter().map(|(_, path)| path.as_str()), 4);
        let mut how =
            if subject == failed.subject { "worked".to_owned() } else { format!("{subject} worked") };
        if !changed.is_empty() {
            let _ = write!(how, " after changing {}", one_line(&changed.join(", "), SUBJECT));
        } else if subject == failed.subject {
            how.push_str(" later");
        }
        how
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
    let known =
        ledger.get(Section::NextSteps, &identity).map(|item| item.text.trim_end_matches(ACTIVE).to_owned());
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

fn ran(ledger: &mut Ledger, command: &str, exit: Option<i64>, end: End, sources: &SeqSet) -> String {
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
    let last = format!("`{}` → {ended}", one_line(command, ITEM - 80));
    let mut text = last.clone();
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
    last
}

/// What became of an error.
enum Fate<'f> {
    /// It came again, or for the first time.
    Came,
    /// Somebody tells of it: it may be the one that came.
    Reported,
    /// Something like it passed, which need not mean anything.
    Passed(&'f str),
    /// It is gone, and how.
    Resolved(String),
}

/// Notes an error, and says how often it came by now.
fn note_error(ledger: &mut Ledger, failed: &Failed, fate: Fate<'_>) -> u64 {
    let identity = key(&failed.words);
    let known = match ledger.get(Section::Errors, &identity).and_then(|item| item.detail.as_ref()) {
        Some(Detail::Error { times, .. }) => *times,
        _ => 0,
    };
    let times = if matches!(fate, Fate::Came) { known.saturating_add(1) } else { known.max(1) };
    let mut text = format!("{} — from {}", failed.words, failed.subject);
    if times > 1 {
        let _ = write!(text, ", {times} times");
    }
    let _ = match &fate {
        Fate::Came | Fate::Reported => write!(text, "; not resolved"),
        Fate::Passed(what) => write!(text, "; later passed: {what}"),
        Fate::Resolved(how) => write!(text, "; resolved: {how}"),
    };
    let resolved = match fate {
        Fate::Resolved(how) => Some(how),
        Fate::Came | Fate::Reported | Fate::Passed(_) => None,
    };
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

fn tale_key(kind: &str, words: &str) -> String {
    key(&format!("{kind}: {words}"))
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
    fn an_error_is_resolved_when_the_same_thing_works() {
        insta::assert_snapshot!(told(FIXED, &[Section::Errors, Section::FailedApproaches]), @r"
        FailedApproaches [2-3, 6-7] Tried `cargo build`: error[E0308]: mismatched types → `cargo build --release` worked after changing src/a.rs
        Errors [2-3, 6-7] error[E0308]: mismatched types — from `cargo build`; resolved: `cargo build --release` worked after changing src/a.rs
        ");
    }

    #[test]
    fn another_script_or_the_end_of_a_trial_resolves_nothing() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"npm run check"}
  !> error TS2353: unknown property
assistant:
  call bash {"command":"npm run dev"}
  -> ready
assistant:
  call write_file {"path":"probe_test.go","content":"x"}
  -> done
assistant:
  call bash {"command":"go test -run Probe ./a"}
  !> --- FAIL: TestProbe
assistant:
  call bash {"command":"go test ./b"}
  -> ok
assistant:
  call bash {"command":"rm probe_test.go"}
  -> done
assistant:
  call bash {"command":"go test"}
  -> ok
"#;
        insta::assert_snapshot!(told(log, &[Section::Errors, Section::FailedApproaches]), @r"
        Errors [2-3] error TS2353: unknown property — from `npm run check`; not resolved
        Errors [8-11, 14-15] --- FAIL: TestProbe — from `go test -run Probe ./a`; later passed: `go test`
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
            "error[E0308]: {} — from `cargo build`; resolved: `cargo build --release` worked",
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
    fn an_error_is_resolved_across_compactions() {
        let events = read(FIXED);
        let first = summarise(&events[..3], None, &Caps::default());
        assert!(show(&first, &[Section::Errors]).ends_with("not resolved"));
        let second = summarise(&events[3..], Some(&first), &Caps::default());
        insta::assert_snapshot!(show(&second, &[Section::Errors]), @"Errors [2-3, 6-7] error[E0308]: mismatched types — from `cargo build`; resolved: `cargo build --release` worked after changing src/a.rs");
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
        FailedApproaches [8-9] The change of a.js was taken back by a later edit.
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
