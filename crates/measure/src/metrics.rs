//! Measures how well compaction served a session: five figures with their targets.
//!
//! Everything is read from the log and from the records of calls. A figure without data is not guessed: its
//! row says what is missing.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use epitome::{
    core::{
        ContentPart, Fact, LoggedEvent, Seq, ThreadId, Tokens,
        client_text::user_words_of,
        context::EventNaming,
        event::{Compaction, Summary, Timestamp, Usage},
        id::AnswerId,
        lineage::CompactionStatus,
        projection::EventLine,
        summary::{SummarySection, compaction::carried_summary},
    },
    lineage::compactions,
    recorded_calls,
    session::{SessionError, call_replay::CallReplayer},
    store::{Store, records::CallRow},
};
use serde::Serialize;

use crate::summary_retention::{RetentionTally, SummaryRetention, is_filled, kept, sections};

/// Pause in milliseconds after which a cache is assumed to be cold: the shortest lifetime that providers
/// promise.
const LIFETIME: i64 = 5 * 60 * 1_000;

/// Fewest words of a repeated message that counts as a sign of forgetting; shorter ones are repeated anyway.
const REPEATABLE: usize = 4;

/// The figures of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionMetrics {
    /// Sizes of summaries compared with their spans.
    pub compression: CompressionMetric,
    /// Share of the input that came from the provider's cache.
    pub cache: CacheReadMetric,
    /// Calls after a compaction that the agent could simply go on with.
    pub continuation: ContinuationMetric,
    /// Retention of the summary in force; `None` without one.
    pub kept: Option<SummaryRetention>,
    /// Completeness of the summaries' sections.
    pub sections: SectionMetric,
}

/// Sizes of summaries compared with their spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompressionMetric {
    /// Each compaction, oldest first.
    pub compactions: Vec<CompressedSpan>,
    /// The compaction in force, with all that it covers since the session began.
    pub standing: Option<CompressedSpan>,
}

/// A span and its summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CompressedSpan {
    /// The compaction.
    pub compaction: Seq,
    /// Size of the span's events, with the summary before it if it builds on one.
    pub span: Tokens,
    /// Size of the summary.
    pub summary: Tokens,
}

impl CompressedSpan {
    /// Ratio of the span to the summary.
    pub fn ratio(&self) -> f64 {
        ratio(self.span.0, self.summary.0.max(1))
    }
}

impl CompressionMetric {
    /// Ratio of all spans to all summaries; `None` without any.
    pub fn overall(&self) -> Option<f64> {
        let sum = |of: fn(&CompressedSpan) -> u64| self.compactions.iter().map(of).sum::<u64>();
        let summaries = sum(|one| one.summary.0);
        (summaries > 0).then(|| ratio(sum(|one| one.span.0), summaries))
    }
}

/// Input that came from the provider's cache, as the provider reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheReadMetric {
    /// Calls with reported usage.
    pub calls: Vec<CallCacheUse>,
    /// Number of calls without.
    pub unreported: u64,
}

/// Cache usage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallCacheUse {
    /// Number of the call.
    pub call: u64,
    /// Input of the call.
    pub input: Tokens,
    /// Part of it that was read from the cache.
    pub read: Tokens,
    /// Part of it that was written to the cache.
    pub written: Tokens,
    /// State of the cache before the call.
    pub state: CacheState,
}

/// State of a cache before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Used shortly before.
    Warm,
    /// Empty: the first call, the first of another model, or one after a pause.
    Cold,
}

impl CacheReadMetric {
    /// Share of the input that was in the cache, for calls with this state or for all; `None` without
    /// reported usage.
    pub fn share(&self, of: Option<CacheState>) -> Option<f64> {
        let calls = || self.calls.iter().filter(|call| of.is_none_or(|state| call.state == state));
        let input: u64 = calls().map(|call| call.input.0).sum();
        (input > 0).then(|| ratio(calls().map(|call| call.read.0).sum(), input))
    }

    /// Returns true if the provider ever reported cache usage.
    fn is_reported(&self) -> bool {
        self.calls.iter().any(|call| call.read.0 + call.written.0 > 0)
    }
}

/// Calls that build on a summary: how many were answered without the user repeating what the summary should
/// have told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContinuationMetric {
    /// Number of calls that build on a summary and whose end is known.
    pub calls: u64,
    /// Calls that were refused as too long, failed, or ended in a refusal: by number, with the reason.
    pub failed: Vec<(u64, String)>,
    /// Calls before which the user repeated a message that the summary covers.
    pub repeated: Vec<u64>,
    /// Number of calls that build on a summary and whose end is unknown.
    pub unreported: u64,
}

impl ContinuationMetric {
    /// Share of calls that went on; `None` without any.
    pub fn share(&self) -> Option<f64> {
        let stopped: HashSet<u64> =
            self.failed.iter().map(|(call, _)| *call).chain(self.repeated.iter().copied()).collect();
        (self.calls > 0).then(|| ratio(self.calls.saturating_sub(stopped.len() as u64), self.calls))
    }
}

/// Content of the summaries' sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SectionMetric {
    /// Number of structured summaries.
    pub summaries: u64,
    /// Number of those without an empty section.
    pub complete: u64,
    /// Number of the newest summary's sections with content.
    pub filled: u64,
    /// Number of summaries in another agent's own form, which has no sections.
    pub foreign: u64,
}

/// A figure, as a row of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricRow {
    /// Name of the figure.
    pub name: &'static str,
    /// Measured value, or a note that there is none.
    pub value: String,
    /// Target value.
    pub target: &'static str,
    /// Result against the target.
    pub met: TargetResult,
    /// Components of the figure, or the reason why there is none.
    pub detail: String,
}

/// Result of a figure against its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetResult {
    /// The target is met.
    Yes,
    /// The target is not met.
    No,
    /// The figure cannot be measured on this session.
    Unknown,
}

impl fmt::Display for TargetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "not measured",
        })
    }
}

/// Measures a thread.
pub fn metrics(store: &dyn Store, thread: ThreadId) -> Result<SessionMetrics, SessionError> {
    let past = CallReplayer::read(store, thread, None)?;
    let calls = store.calls(thread, 0, usize::MAX)?;
    let line = past.line();
    let made = compactions(line);
    let pivot =
        made.iter().rfind(|stood| stood.standing == CompactionStatus::Holds).map(|stood| stood.compaction);
    let kept = pivot.and_then(|event| {
        let (through, _) = carried_summary(event)?;
        let Fact::Compacted(compaction) = &event.event.fact else { return None };
        Some(kept(&span_through(line, through), compaction, EventNaming::Thread(event.id.thread)))
    });
    Ok(SessionMetrics {
        compression: compression(&past, pivot),
        cache: if calls.is_empty() { transcript_cache(&past) } else { cache(&calls) },
        continuation: continuation(line, &calls),
        kept,
        sections: section_counts(line),
    })
}

/// Events through a given one, without summaries.
pub(crate) fn span_through(line: &EventLine, through: Seq) -> Vec<Arc<LoggedEvent>> {
    let told = |event: &&Arc<LoggedEvent>| !matches!(event.event.fact, Fact::Compacted(_));
    line.events().take_while(|event| event.id.seq <= through).filter(told).cloned().collect()
}

fn compression(past: &CallReplayer<'_>, pivot: Option<&Arc<LoggedEvent>>) -> CompressionMetric {
    let sizes: Vec<(&Arc<LoggedEvent>, u64)> = past
        .line()
        .events_with_counts()
        .map(|(event, pieces)| (event, pieces.unwrap_or_default().iter().map(|piece| piece.0).sum()))
        .collect();
    let place = |seq: Seq| sizes.partition_point(|(event, _)| event.id.seq <= seq);
    let between = |after: Seq, through: Seq| {
        let told =
            |event: &LoggedEvent| !matches!(event.event.fact, Fact::Compacted(_) | Fact::Instructed { .. });
        let span = sizes.get(place(after)..place(through)).unwrap_or_default();
        span.iter().filter(|(event, _)| told(event)).map(|(_, size)| size).sum::<u64>()
    };
    let mut standing_at: Vec<(Seq, CompactionStatus)> = Vec::new();
    let mut made = Vec::new();
    for event in past.line().events() {
        let seq = event.id.seq;
        match &event.event.fact {
            Fact::Compacted(compaction) => {
                let before = standing_at.iter().rfind(|(_, stands)| *stands == CompactionStatus::Holds);
                let base = before.and_then(|(base, _)| sizes.get(place(*base).checked_sub(1)?));
                let after = base
                    .and_then(|(base, _)| carried_summary(base))
                    .map_or(Seq::START, |(through, _)| through);
                let through = carried_summary(event).map_or(compaction.through, |(through, _)| through);
                let carried = base.map_or(0, |(_, size)| *size);
                let span = Tokens(between(after, through) + carried);
                made.push(CompressedSpan {
                    compaction: seq,
                    span,
                    summary: summary_tokens(past, compaction),
                });
                standing_at.push((seq, CompactionStatus::Holds));
            }
            Fact::CompactionReverted { compaction } => {
                stand(&mut standing_at, *compaction, CompactionStatus::Undone);
            }
            Fact::CompactionRestored { compaction } => {
                stand(&mut standing_at, *compaction, CompactionStatus::Holds);
            }
            _ => {}
        }
    }
    let standing = pivot.and_then(|event| {
        let (through, _) = carried_summary(event)?;
        let Fact::Compacted(compaction) = &event.event.fact else { return None };
        let span = Tokens(between(Seq::START, through));
        Some(CompressedSpan { compaction: event.id.seq, span, summary: summary_tokens(past, compaction) })
    });
    CompressionMetric { compactions: made, standing }
}

fn stand(all: &mut [(Seq, CompactionStatus)], compaction: Seq, standing: CompactionStatus) {
    if let Some(known) = all.iter_mut().find(|(seq, _)| *seq == compaction) {
        known.1 = standing;
    }
}

fn summary_tokens(past: &CallReplayer<'_>, compaction: &Compaction) -> Tokens {
    past.meter().text(compaction.summary.text())
}

/// A call, as far as its use of the cache goes.
struct CachedCall {
    number: u64,
    at: Option<Timestamp>,
    model: Option<String>,
    usage: Option<Usage>,
}

fn cache(calls: &[CallRow]) -> CacheReadMetric {
    cache_of(calls.iter().map(|row| CachedCall {
        number: row.number,
        at: row.call.time,
        model: row.call.model.clone(),
        usage: usage(row),
    }))
}

/// The same for a session that was imported: its transcript tells what its calls used.
fn transcript_cache(past: &CallReplayer<'_>) -> CacheReadMetric {
    let calls = recorded_calls::counted(past.line(), past.meter());
    cache_of(calls.into_iter().zip(0..).map(|(call, number)| CachedCall {
        number,
        at: call.at,
        model: call.model.map(|model| model.0),
        usage: call.usage,
    }))
}

fn cache_of(calls: impl Iterator<Item = CachedCall>) -> CacheReadMetric {
    let mut cache = CacheReadMetric::default();
    let mut before: Option<CachedCall> = None;
    for call in calls {
        let is_warm = before.is_some_and(|before| {
            let pause = before.at.zip(call.at).map(|(before, now)| now.0.saturating_sub(before.0));
            before.model == call.model && pause.is_none_or(|pause| pause <= LIFETIME)
        });
        let state = if is_warm { CacheState::Warm } else { CacheState::Cold };
        match call.usage {
            Some(usage) => {
                let (input, read, written) = (usage.input(), usage.cache_read, usage.cache_write);
                cache.calls.push(CallCacheUse { call: call.number, input, read, written, state });
            }
            None => cache.unreported += 1,
        }
        before = Some(call);
    }
    cache
}

/// Usage that was reported last for a call.
fn usage(row: &CallRow) -> Option<Usage> {
    row.outcomes.iter().rev().find_map(|outcome| outcome.usage)
}

fn continuation(line: &EventLine, calls: &[CallRow]) -> ContinuationMetric {
    let refused = refusals(line);
    let mut told = ContinuationMetric::default();
    for row in calls.iter().filter(|row| row.call.summary.is_some()) {
        if row.outcomes.is_empty() {
            told.unreported += 1;
            continue;
        }
        told.calls += 1;
        let errors = row.outcomes.iter().filter_map(|outcome| outcome.error.clone());
        let mut answers = row.outcomes.iter().filter_map(|outcome| outcome.answer.as_ref());
        let refusal = answers.any(|answer| refused.contains(answer)).then(|| "the model refused".to_owned());
        if let Some(reason) = errors.chain(refusal).next() {
            told.failed.push((row.number, reason));
        }
    }
    let said_again = repetitions(line);
    let mut seen = Seq::START;
    for row in calls {
        let is_new = |seq: &Seq| seen < *seq && *seq <= row.call.head;
        let is_told = row.call.summary.is_some() && !row.outcomes.is_empty();
        let first = &said_again[said_again.partition_point(|seq| *seq <= seen)..];
        if is_told && first.first().is_some_and(is_new) {
            told.repeated.push(row.number);
        }
        seen = row.call.head;
    }
    told
}

/// Answers in which a model refused.
fn refusals(line: &EventLine) -> HashSet<&AnswerId> {
    let refused = line.events().filter_map(|event| match &event.event.fact {
        Fact::AssistantSaid { answer: Some(answer), parts, .. } => {
            parts.iter().any(|part| matches!(part, ContentPart::Refusal { .. })).then_some(answer)
        }
        _ => None,
    });
    refused.collect()
}

/// Messages in which the user repeats, word for word, what only a summary showed by then.
fn repetitions(line: &EventLine) -> Vec<Seq> {
    let mut said: HashMap<String, Seq> = HashMap::new();
    let mut covered = Seq::START;
    let mut again = Vec::new();
    for event in line.events() {
        match &event.event.fact {
            Fact::Compacted(_) => {
                covered = carried_summary(event).map_or(covered, |(through, _)| through.max(covered));
            }
            Fact::UserSaid { parts } => {
                let text = user_words_of(parts).to_lowercase();
                let words: Vec<&str> = text
                    .split(|letter: char| !letter.is_alphanumeric())
                    .filter(|word| !word.is_empty())
                    .collect();
                if words.len() < REPEATABLE {
                    continue;
                }
                let before = said.insert(words.join(" "), event.id.seq);
                if before.is_some_and(|before| before <= covered) {
                    again.push(event.id.seq);
                }
            }
            _ => {}
        }
    }
    again
}

fn section_counts(line: &EventLine) -> SectionMetric {
    let mut counts = SectionMetric::default();
    for event in line.events() {
        let Fact::Compacted(compaction) = &event.event.fact else { continue };
        let Summary::Structured { text, .. } = &compaction.summary else {
            counts.foreign += 1;
            continue;
        };
        let found = sections(text);
        counts.summaries += 1;
        // Empty sections are not printed, so each printed section must have content.
        let complete = !found.is_empty() && found.values().all(|body| !body.is_empty());
        counts.complete += u64::from(complete);
        counts.filled = found.values().filter(|body| is_filled(body)).count() as u64;
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

impl SessionMetrics {
    /// The five figures, as rows of a table.
    pub fn rows(&self) -> Vec<MetricRow> {
        vec![
            self.compression_row(),
            self.cache_row(),
            self.continuation_row(),
            self.failed_approaches_row(),
            self.sections_row(),
        ]
    }

    fn compression_row(&self) -> MetricRow {
        let row = MetricRow::new("compression", "3-5x");
        let Some(overall) = self.compression.overall() else {
            return row.unknown("nothing was compacted in this session");
        };
        let each: Vec<String> =
            self.compression.compactions.iter().map(|one| format!("{:.1}x", one.ratio())).collect();
        let standing = self.compression.standing.map_or_else(
            || "none is in force".to_owned(),
            |one| {
                format!(
                    "the one in force stands for {} tokens in {} ({:.1}x)",
                    one.span.0,
                    one.summary.0,
                    one.ratio()
                )
            },
        );
        let beyond = if overall > 5.0 { "more than the range asks for: " } else { "" };
        let detail = format!("{beyond}per compaction {}; {standing}", each.join(", "));
        row.value(format!("{overall:.1}x"), overall >= 3.0, detail)
    }

    fn cache_row(&self) -> MetricRow {
        let row = MetricRow::new("cache hits", "> 80 %");
        let cold = self.cache.calls.iter().filter(|call| call.state == CacheState::Cold).count();
        match (self.cache.share(Some(CacheState::Warm)), self.cache.share(None)) {
            (_, None) => row.unknown("no usage was reported for any call"),
            _ if !self.cache.is_reported() => row.unknown("the provider reports nothing about its cache"),
            (None, Some(_)) => row.unknown("every call was cold: the first one, or after a pause"),
            (Some(warm), Some(all)) => {
                let calls = self.cache.calls.len();
                let detail = format!(
                    "of the input of {} warm calls; {} with the {cold} cold ones; {} without a report",
                    calls - cold,
                    percent(all),
                    self.cache.unreported
                );
                row.value(percent(warm), warm > 0.8, detail)
            }
        }
    }

    fn continuation_row(&self) -> MetricRow {
        let row = MetricRow::new("continuation", "> 99 %");
        let told = &self.continuation;
        let Some(share) = told.share() else {
            return row.unknown("no call that stood on a summary has been answered");
        };
        let mut detail = format!(
            "of {} calls on a summary {} failed, before {} the user repeated a message it stood for",
            told.calls,
            told.failed.len(),
            told.repeated.len()
        );
        if let Some((call, reason)) = told.failed.first() {
            detail = format!("{detail}; first, call {call}: {reason}");
        }
        row.value(percent(share), share > 0.99, detail)
    }

    fn failed_approaches_row(&self) -> MetricRow {
        let row = MetricRow::new("failed approaches", "100 %");
        let Some(kept) = &self.kept else { return row.unknown("no summary is in force") };
        let RetentionTally { items, shown, counted, covered, lost } = kept.total();
        let all = format!(
            "of {items} items that must be kept, {shown} told, {counted} counted with a handle, {} not spoken of",
            covered + lost
        );
        let Some(failed) =
            kept.sections.get(&SummarySection::FailedApproaches).filter(|tally| tally.items > 0)
        else {
            return row.unknown(&format!("code finds no failed approach in the span; {all}"));
        };
        // The handle of the whole span leads to everything, even from an empty summary, so it does not count
        // as keeping an approach.
        let share = ratio(failed.kept(), failed.items);
        let detail = format!(
            "of {}, {} told, {} counted with a handle; {all}",
            failed.items, failed.shown, failed.counted
        );
        row.value(percent(share), failed.kept() == failed.items, detail)
    }

    fn sections_row(&self) -> MetricRow {
        let row = MetricRow::new("sections complete", "all");
        let SectionMetric { summaries, complete, filled, foreign } = self.sections;
        match (summaries, foreign) {
            (0, 0) => row.unknown("nothing was compacted in this session"),
            (0, _) => row.unknown("its summaries are in the agent's own form, without sections"),
            _ => {
                let all = SummarySection::ALL.len();
                let detail = format!(
                    "{filled} of {all} sections of the newest say something, the others are not printed"
                );
                row.value(format!("{complete} of {summaries}"), complete == summaries, detail)
            }
        }
    }
}

fn percent(share: f64) -> String {
    // Rounded down, so that a value below 100 % is never shown as 100 %.
    format!("{:.1} %", (share * 1_000.0).floor() / 10.0)
}

impl MetricRow {
    fn new(name: &'static str, target: &'static str) -> Self {
        Self { name, value: "-".to_owned(), target, met: TargetResult::Unknown, detail: String::new() }
    }

    fn unknown(self, why: &str) -> Self {
        Self { detail: why.to_owned(), ..self }
    }

    fn value(self, value: String, is_met: bool, detail: String) -> Self {
        Self { value, met: if is_met { TargetResult::Yes } else { TargetResult::No }, detail, ..self }
    }
}
