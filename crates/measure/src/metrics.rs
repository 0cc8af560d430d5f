//! Measures how well compaction served a session: five figures with their targets.
//!
//! Everything is read from the log and from the records of calls. A figure without data is not guessed: its
//! row says what is missing.

mod continuation;

use std::{fmt, sync::Arc};

use epitome::{
    core::{
        Fact, LoggedEvent, Seq, ThreadId, Tokens,
        context::EventNaming,
        event::{Compaction, Summary, Timestamp, Usage},
        id::ModelName,
        lineage::CompactionStatus,
        projection::EventLine,
        summary::{SummarySection, compaction::carried_summary},
        turn::TurnBuilder,
    },
    lineage::compactions,
    session::{SessionError, call_replay::CallReplayer},
    store::{Store, records::CallRow},
};
use serde::Serialize;

pub use self::continuation::{AnswerOrigin, ContinuationMetric, StoppedTask, TaskStop};
use crate::summary_retention::{RetentionTally, SummaryRetention, is_filled, kept, sections};

/// Pause in milliseconds after which a cache is assumed to be cold: the shortest lifetime that providers
/// promise.
const LIFETIME: i64 = 5 * 60 * 1_000;

/// Compactions of which each ratio is listed; of more the range is given.
const LISTED: usize = 8;

/// The figures of a session, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionMetrics {
    /// Sizes of summaries compared with their spans.
    pub compression: CompressionMetric,
    /// Share of the input that came from the provider's cache.
    pub cache: CacheReadMetric,
    /// Ends of the tasks that were worked on over a summary.
    pub continuation: ContinuationMetric,
    /// Retention of the summary in force, or of all that are; `None` without one.
    pub kept: Option<SummaryRetention>,
    /// Completeness of the summaries' sections.
    pub sections: SectionMetric,
}

/// Sizes of summaries compared with their spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompressionMetric {
    /// Each compaction, oldest first.
    pub compactions: Vec<CompressedSpan>,
    /// The compaction in force, with all that it covers since the session began; of several sessions one each.
    pub standing: Vec<CompressedSpan>,
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

fn sum(spans: &[CompressedSpan], of: fn(&CompressedSpan) -> Tokens) -> u64 {
    spans.iter().map(of).sum::<Tokens>().0
}

impl CompressionMetric {
    /// Ratio of all spans to all summaries; `None` without any.
    pub fn overall(&self) -> Option<f64> {
        let summaries = sum(&self.compactions, |one| one.summary);
        (summaries > 0).then(|| ratio(sum(&self.compactions, |one| one.span), summaries))
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

impl SectionMetric {
    fn add(&mut self, other: &Self) {
        let Self { summaries, complete, filled, foreign } = *other;
        self.summaries += summaries;
        self.complete += complete;
        self.foreign += foreign;
        if summaries > 0 {
            self.filled = filled;
        }
    }
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
    let used: Vec<CallUsage> =
        if calls.is_empty() { reported_usage(line) } else { calls.iter().map(CallUsage::of).collect() };
    Ok(SessionMetrics {
        compression: compression(&past, pivot),
        cache: cache(&used),
        continuation: ContinuationMetric::of(line, &calls),
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
    CompressionMetric { compactions: made, standing: standing.into_iter().collect() }
}

fn stand(all: &mut [(Seq, CompactionStatus)], compaction: Seq, standing: CompactionStatus) {
    if let Some(known) = all.iter_mut().find(|(seq, _)| *seq == compaction) {
        known.1 = standing;
    }
}

fn summary_tokens(past: &CallReplayer<'_>, compaction: &Compaction) -> Tokens {
    past.meter().text(compaction.summary.text())
}

/// Usage of a call, with what its cache depends on.
struct CallUsage {
    number: u64,
    time: Option<Timestamp>,
    model: Option<ModelName>,
    usage: Option<Usage>,
}

impl CallUsage {
    fn of(row: &CallRow) -> Self {
        let usage = row.outcomes.iter().rev().find_map(|outcome| outcome.usage);
        Self { number: row.number, time: row.call.time, model: row.call.model.clone().map(ModelName), usage }
    }
}

/// Usage of the calls of an imported session, of which only the answers are known.
fn reported_usage(line: &EventLine) -> Vec<CallUsage> {
    let turns = TurnBuilder::of(line.events().map(|event| &**event));
    let calls = turns.into_iter().filter(|turn| turn.usage.is_some_and(|usage| usage.input() > Tokens(0)));
    let call = |(number, turn): (usize, epitome::core::turn::Turn)| CallUsage {
        number: number as u64,
        time: turn.time,
        model: turn.model,
        usage: turn.usage,
    };
    calls.enumerate().map(call).collect()
}

fn cache(calls: &[CallUsage]) -> CacheReadMetric {
    let mut cache = CacheReadMetric::default();
    let mut before: Option<&CallUsage> = None;
    for call in calls {
        let is_warm = before.is_some_and(|before| {
            let pause = before.time.zip(call.time).map(|(before, now)| now.0.saturating_sub(before.0));
            before.model == call.model && pause.is_none_or(|pause| pause <= LIFETIME)
        });
        before = Some(call);
        let Some(usage) = call.usage else {
            cache.unreported += 1;
            continue;
        };
        let state = if is_warm { CacheState::Warm } else { CacheState::Cold };
        let (input, read, written) = (usage.input(), usage.cache_read, usage.cache_write);
        cache.calls.push(CallCacheUse { call: call.number, input, read, written, state });
    }
    cache
}

fn section_counts(line: &EventLine) -> SectionMetric {
    let mut counts = SectionMetric::default();
    for event in line.events() {
        let Fact::Compacted(compaction) = &event.event.fact else { continue };
        let Summary::Structured { text, brief } = &compaction.summary else {
            counts.foreign += 1;
            continue;
        };
        let found = sections(text);
        counts.summaries += 1;
        // Empty sections are not printed, so each printed section must have content. What happened may be told in order instead.
        let is_told = !found.is_empty() || !brief.trail.is_empty();
        let complete = is_told && found.values().all(|body| !body.is_empty());
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
    /// Adds the figures of another session.
    pub fn add(&mut self, other: Self) {
        let Self { compression, cache, continuation, kept, sections } = other;
        self.compression.compactions.extend(compression.compactions);
        self.compression.standing.extend(compression.standing);
        self.cache.calls.extend(cache.calls);
        self.cache.unreported += cache.unreported;
        self.continuation.add(continuation);
        for (section, tally) in kept.iter().flat_map(|kept| &kept.sections) {
            *self.kept.get_or_insert_default().sections.entry(*section).or_default() += *tally;
        }
        if let Some(kept) = kept {
            self.kept.get_or_insert_default().unspoken.extend(kept.unspoken);
        }
        self.sections.add(&sections);
    }

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
        let mut each: Vec<f64> = self.compression.compactions.iter().map(CompressedSpan::ratio).collect();
        let each = if each.len() <= LISTED {
            each.iter().map(|ratio| format!("{ratio:.1}x")).collect::<Vec<_>>().join(", ")
        } else {
            each.sort_by(f64::total_cmp);
            let at = |part: usize| each[(each.len() - 1) * part / 10];
            format!("{:.1}x in the median of {}, {:.1}x to {:.1}x in most", at(5), each.len(), at(1), at(9))
        };
        let standing = match &self.compression.standing[..] {
            [] => "none is in force".to_owned(),
            [one] => {
                let CompressedSpan { span, summary, .. } = one;
                format!(
                    "the one in force stands for {} tokens in {} ({:.1}x)",
                    span.0,
                    summary.0,
                    one.ratio()
                )
            }
            all => {
                let (span, summary) = (sum(all, |one| one.span), sum(all, |one| one.summary));
                let ratio = ratio(span, summary.max(1));
                format!("the {} in force stand for {span} tokens in {summary} ({ratio:.1}x)", all.len())
            }
        };
        let beyond = if overall > 5.0 { "more than the range asks for: " } else { "" };
        let detail = format!("{beyond}per compaction {each}; {standing}");
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
        if told.answers == AnswerOrigin::Recorded {
            return row
                .unknown("the answers are those of the recording, which were given over another context");
        }
        let Some(share) = told.share() else {
            return row.unknown("no task that was worked on over a summary has come to an end");
        };
        let mut detail = format!(
            "{} of {} tasks on a summary ended with an answer that the user did not ask for again",
            told.finished,
            told.ended()
        );
        if told.open > 0 {
            detail = format!("{detail}; {} without an end", told.open);
        }
        if let Some(StoppedTask { request, stop }) = told.stopped.first() {
            detail = format!("{detail}; first, request {request}: {stop}");
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
        // An approach that a line only counts can be tried again by an agent that does not look it up.
        let share = ratio(failed.shown, failed.items);
        let detail = format!(
            "of {}, {} told, {} counted with a handle; {all}",
            failed.items, failed.shown, failed.counted
        );
        row.value(percent(share), failed.shown == failed.items, detail)
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
