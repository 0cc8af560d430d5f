//! Results of a replay, as a table, as JSON or as comma-separated values.

use std::{path::Path, process::ExitCode};

use anyhow::bail;
use epitome_measure::replay::{
    ReplayAssumption, ReplayCandidate, ReplayTotals, RequestRoom,
    recorded_usage::ComparisonTotals,
    retention::{FactRetention, RetentionForm},
    summary_sentences,
};
use serde_json::{Value, json};

use super::{
    super::{
        output::{BOLD, CliOutput, DIM, NOTE},
        text_format,
    },
    ReplaySetting,
    picture::ReplayPicture,
    recorded_usage,
    result_rows::{self, COMPACTION_COUNT_NAMES, cache_name, flatten_row, row},
    thread_replay::{RecordedUsageCheck, ThreadReplayOutcome},
};

/// Results of all threads.
pub(super) struct ReplayReport<'a> {
    contenders: &'a [ReplayCandidate],
    settings: &'a [ReplaySetting<'a>],
    totals: Vec<Vec<ReplayTotals>>,
    outcomes: Vec<ThreadReplayOutcome>,
    /// Number of their sessions.
    sessions: u64,
    /// Number of threads without calls.
    idle: u64,
    comparison: ComparisonTotals,
    /// Session with the most calls.
    picture: Option<ReplayPicture>,
    unread: Vec<String>,
}

/// Choice of what is reported.
pub(super) struct ReplayReportOptions<'a> {
    pub(super) csv: bool,
    pub(super) plot: bool,
    pub(super) svg: Option<&'a Path>,
    pub(super) drift: bool,
}

/// Contender that the others are measured against.
const FULL_HISTORY_POLICY: &str = "none";

const COLUMNS: [&str; 18] = [
    "policy", "calls", "peak", "mean", "sent", "cached", "resets", "sums", "cost", "share", "over",
    "illegal", "kept", "words", "names", "handle", "lost", "said",
];

/// Widest table before its columns move together.
const WIDTH: usize = 120;

impl<'a> ReplayReport<'a> {
    pub(super) fn new(
        contenders: &'a [ReplayCandidate],
        settings: &'a [ReplaySetting<'a>],
        unread: Vec<String>,
    ) -> Self {
        Self {
            contenders,
            settings,
            totals: vec![vec![ReplayTotals::default(); contenders.len()]; settings.len()],
            outcomes: Vec::new(),
            sessions: 0,
            idle: 0,
            comparison: ComparisonTotals::default(),
            picture: None,
            unread,
        }
    }

    /// Adds the threads of a place.
    pub(super) fn add(&mut self, outcomes: Vec<ThreadReplayOutcome>) {
        for mut outcome in outcomes {
            if !outcome.has_calls() {
                self.idle += 1;
                continue;
            }
            self.sessions += u64::from(outcome.is_main);
            for (all, one) in self.totals.iter_mut().zip(&outcome.totals) {
                all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
            }
            match std::mem::replace(&mut outcome.recorded, RecordedUsageCheck::NotAsked) {
                RecordedUsageCheck::NotAsked => {}
                RecordedUsageCheck::Silent => self.comparison.add(None),
                RecordedUsageCheck::Told(compared) => self.comparison.add(Some(*compared)),
            }
            // Only one session is drawn, so the calls of the others are dropped to save memory.
            let drawn = self.picture.as_ref().map_or(0, ReplayPicture::length);
            let picture = outcome.picture.take();
            self.picture = picture.filter(|picture| picture.length() > drawn).or(self.picture.take());
            self.outcomes.push(outcome);
        }
    }

    pub(super) fn unread(&mut self, error: String) {
        self.unread.push(error);
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        if self.unread.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Reports everything. It is an error if there is nothing to report.
    pub(super) fn print(&self, wanted: &ReplayReportOptions<'_>, out: &mut CliOutput) -> anyhow::Result<()> {
        if self.outcomes.is_empty() || !out.is_json() {
            self.unread.iter().for_each(|error| anstream::eprintln!("{NOTE}not read:{NOTE:#} {error}"));
        }
        if self.outcomes.is_empty() {
            bail!("{}", self.nothing());
        }
        if let Some((picture, path)) = self.picture.as_ref().zip(wanted.svg) {
            picture.write(self.contenders, path)?;
        }
        if out.is_json() {
            return out.object(&self.json(wanted));
        }
        if wanted.csv {
            self.csv(out)?;
        } else {
            self.words(wanted, out)?;
        }
        if let Some((picture, path)) = self.picture.as_ref().zip(wanted.svg) {
            let of = if self.sessions > 1 { ", the session with the most calls" } else { "" };
            anstream::eprintln!("{DIM}{} shows {}{of}{DIM:#}", path.display(), picture.title.session);
        }
        Ok(())
    }

    /// Explains why there is nothing to report, and what to do.
    fn nothing(&self) -> String {
        let found = match (self.idle, self.unread.len()) {
            (0, 0) => "no transcript of a known agent was found",
            (0, _) => "nothing of it could be read",
            _ => "no model was called there: a session needs at least one answer",
        };
        format!(
            "there is nothing to replay: {found}. Name transcripts, folders of them (~/.claude/projects, ~/.codex/sessions) \
             or sessions of the log (epitome sessions)"
        )
    }

    fn words(&self, wanted: &ReplayReportOptions<'_>, out: &mut CliOutput) -> anyhow::Result<()> {
        for (setting, totals) in self.settings.iter().zip(&self.totals) {
            out.line(format_args!("{BOLD}{}{BOLD:#}", self.title(setting)))?;
            let full = self.full(totals);
            let both = self.contenders.iter().zip(totals);
            let rows = both.map(|(contender, total)| cells(contender, total, full)).collect();
            out.line(table(&COLUMNS, 1, rows))?;
            out.line("")?;
            if wanted.drift {
                self.drift(totals, out)?;
            }
        }
        recorded_usage::print_comparison(&self.comparison, out)?;
        self.notes(out)?;
        if let Some(picture) = self.picture.as_ref().filter(|_| wanted.plot || self.sessions == 1) {
            out.line("")?;
            if self.sessions > 1 {
                let of = text_format::count(self.sessions, "session");
                out.line(format_args!("{DIM}of {of} the one with the most calls:{DIM:#}"))?;
            }
            out.bytes(picture.plot(self.contenders, text_format::width()).as_bytes())?;
        }
        Ok(())
    }

    fn drift(&self, totals: &[ReplayTotals], out: &mut CliOutput) -> anyhow::Result<()> {
        out.line("kept, and of how many needed facts, by how many compactions a request stood on")?;
        let mut header = vec!["policy"];
        header.extend(COMPACTION_COUNT_NAMES.iter().flat_map(|step| [*step, "of"]));
        let row = |(contender, total): (&ReplayCandidate, &ReplayTotals)| {
            let steps = total.drift.steps().iter();
            let kept = steps.flat_map(|step| [percent(step.in_request()), text_format::short(step.total())]);
            std::iter::once(contender.name().to_owned()).chain(kept).collect()
        };
        let rows = self.contenders.iter().zip(totals).map(row).collect();
        out.line(table(&header, 1, rows))?;
        out.line("")
    }

    /// Writes the assumptions.
    fn notes(&self, out: &mut CliOutput) -> anyhow::Result<()> {
        let mut notes = summary_sentences(self.outcomes.iter().flat_map(|outcome| &outcome.notes));
        if self.idle > 0 {
            notes.push((
                usize::try_from(self.idle).unwrap_or(usize::MAX),
                "no call of its own, left out".to_owned(),
            ));
        }
        for (threads, note) in notes {
            let note = format!("{}: {note}", text_format::count(threads as u64, "thread"));
            for (index, line) in text_format::wrapped(&note, WIDTH - 2).iter().enumerate() {
                let indent = if index == 0 { "" } else { "  " };
                out.line(format_args!("{DIM}{indent}{line}{DIM:#}"))?;
            }
        }
        Ok(())
    }

    fn title(&self, setting: &ReplaySetting<'_>) -> String {
        let model = setting.model.map_or("each session's own model", |profile| profile.name.as_str());
        let window = match setting.limit {
            None => "its own window".to_owned(),
            Some(RequestRoom::Request(most)) => format!("a window of {} tokens", text_format::tokens(most)),
            Some(RequestRoom::Window(window)) => {
                format!("live in a window of {} tokens", text_format::tokens(window))
            }
        };
        format!(
            "{} in {}, {model}, {window}, {} cache",
            text_format::count(self.outcomes.len() as u64, "thread"),
            text_format::count(self.sessions, "session"),
            cache_name(setting.cache)
        )
    }

    fn full<'t>(&self, totals: &'t [ReplayTotals]) -> Option<&'t ReplayTotals> {
        let full = self.contenders.iter().position(|contender| contender.name() == FULL_HISTORY_POLICY)?;
        totals.get(full)
    }

    fn json(&self, wanted: &ReplayReportOptions<'_>) -> Value {
        let rows = |totals: &[Vec<ReplayTotals>]| -> Vec<Value> {
            let settings = self.settings.iter().zip(totals);
            let rows = settings.flat_map(|(setting, totals)| {
                let full = self.full(totals);
                let contenders = self.contenders.iter().zip(totals);
                contenders.map(move |(contender, total)| {
                    let mut row = row(setting, contender, total, full);
                    row["drift"] = result_rows::drift(total);
                    row
                })
            });
            rows.collect()
        };
        let session = |outcome: &ThreadReplayOutcome| {
            json!({
                "session": outcome.name,
                "main": outcome.is_main,
                "model": outcome.model,
                "unseen": outcome.unseen,
                "notes": outcome.notes.iter().map(ReplayAssumption::words).collect::<Vec<_>>(),
                "policies": rows(&outcome.totals),
            })
        };
        let drawn = self.picture.as_ref().zip(wanted.svg);
        json!({
            "policies": rows(&self.totals),
            "recorded": recorded_usage::json(&self.comparison),
            "sessions": self.outcomes.iter().map(session).collect::<Vec<_>>(),
            "threads_without_calls": self.idle,
            "svg": drawn.map(|(picture, path)| json!({ "file": path, "session": picture.title.session })),
            "not_read": self.unread,
        })
    }

    fn csv(&self, out: &mut CliOutput) -> anyhow::Result<()> {
        let mut header = None;
        let sessions = self.outcomes.iter().map(|outcome| (outcome.name.as_str(), &outcome.totals));
        for (name, totals) in std::iter::once(("all", &self.totals)).chain(sessions) {
            for (setting, totals) in self.settings.iter().zip(totals) {
                for (contender, total) in self.contenders.iter().zip(totals) {
                    let row = flatten_row(&row(setting, contender, total, self.full(totals)));
                    if header.is_none() {
                        let names = row.iter().map(|(name, _)| name.as_str());
                        out.line(header.insert(result_rows::line(std::iter::once("session").chain(names))))?;
                    }
                    let cells = row.iter().map(|(_, cell)| cell.as_str());
                    out.line(result_rows::line(std::iter::once(name).chain(cells)))?;
                }
            }
        }
        Ok(())
    }
}

/// A table whose columns after the first `words` are numbers; the columns move together if it would be too
/// wide.
pub(super) fn table(header: &[&str], words: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = text_format::table(header, &(words..header.len()).collect::<Vec<_>>());
    table.add_rows(rows);
    let drawn = |gap: u16, table: &mut comfy_table::Table| {
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, gap));
        });
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines
    };
    let wide = drawn(2, &mut table);
    let fits = wide.iter().all(|line| line.chars().count() <= WIDTH);
    (if fits { wide } else { drawn(1, &mut table) }).join("\n")
}

/// A share in percent. It is rounded to neither 100 % nor 0 % unless it is exact.
pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        None => "–".to_owned(),
        Some(share) if share > 0.0 && share < 0.0005 => "<0.1%".to_owned(),
        Some(share) if share > 0.9995 && share < 1.0 => "99.9%".to_owned(),
        Some(share) => format!("{:.1}%", share * 100.0),
    }
}

fn cells(contender: &ReplayCandidate, total: &ReplayTotals, full: Option<&ReplayTotals>) -> Vec<String> {
    let FactRetention { user_messages, .. } = total.retention;
    let held = |held: RetentionForm| percent(share(total.retention.of(held), total.retention.total()));
    vec![
        contender.name().to_owned(),
        total.calls.to_string(),
        text_format::tokens(total.peak),
        text_format::tokens(total.mean()),
        text_format::tokens(total.usage.input() + total.summariser.input()),
        percent(total.hits()),
        total.resets.to_string(),
        total.summaries.to_string(),
        total.money.to_string(),
        full.and_then(|full| total.against(full)).map_or_else(|| "–".to_owned(), |part| format!("{part:.3}")),
        (total.overflows + total.refused).to_string(),
        total.illegal.to_string(),
        percent(total.retention.in_request()),
        held(RetentionForm::Summary),
        held(RetentionForm::NameOnly),
        held(RetentionForm::Handle),
        held(RetentionForm::Lost),
        percent(share(user_messages.kept, user_messages.all)),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "what a person reads needs no more digits")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_share_is_all_or_nothing_only_if_it_is() {
        let check = |share, expect: &str| assert_eq!(percent(share), expect);
        check(None, "–");
        check(Some(0.0), "0.0%");
        check(Some(0.000_01), "<0.1%");
        check(Some(0.5), "50.0%");
        check(Some(0.999_96), "99.9%");
        check(Some(1.0), "100.0%");
    }
}
