//! Data that the pictures of a replay are drawn from.
//!
//! A long session has more calls than a picture has columns. A column shows the largest request of its calls
//! and the sum of everything that happened in them, so that no mark is lost.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use epitome::core::{
    Tokens,
    cost::CacheMiss,
    event::{Timestamp, Usage},
    model_view::EpochCause,
    profile::Money,
};

use crate::{
    replay::{RegionSizes, ReplayFate, ReplayRow},
    text_format,
};

/// Policy that the others are measured against.
const FULL_HISTORY: &str = "none";

/// Headings of a picture that concern all policies.
#[derive(Clone, Debug, Default)]
pub struct PictureTitle {
    /// Name of the session, or of its file.
    pub session: String,
    /// Model whose prices and cache are charged.
    pub model: String,
    /// Largest size of a request.
    pub window: Option<Tokens>,
    /// Command that draws the picture again.
    pub source: String,
    /// Assumptions, one sentence each.
    pub notes: Vec<String>,
}

/// A session under a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicySeries<'a> {
    /// The policy.
    pub policy: &'a str,
    /// Its calls, in their order.
    pub calls: &'a [ReplayRow],
}

impl PolicySeries<'_> {
    /// Returns true for the policy that the others are measured against.
    pub(crate) fn is_full_history(&self) -> bool {
        self.policy == FULL_HISTORY
    }

    /// Totals of its calls.
    pub(crate) fn totals(&self) -> SeriesTotals {
        let mut totals = SeriesTotals { calls: self.calls.len(), ..SeriesTotals::default() };
        for call in self.calls {
            totals.peak = totals.peak.max(call.tokens);
            totals.sent += call.tokens;
            totals.input += call.usage.input();
            totals.cached += call.usage.cache_read;
            totals.money = added(totals.money, spent(call));
            totals.marks.add(call);
        }
        totals
    }

    /// The calls in `count` columns of a session of `calls` calls.
    pub(crate) fn columns(&self, calls: usize, count: usize) -> Vec<ChartColumn> {
        let ranges = (0..count).map(|index| index * calls / count..(index + 1) * calls / count);
        ranges.map_while(|range| self.column(range)).collect()
    }

    fn column(&self, range: Range<usize>) -> Option<ChartColumn> {
        let calls = self.calls.get(range.start..range.end.min(self.calls.len()))?;
        let largest = calls.iter().rev().max_by_key(|call| call.tokens)?;
        let mut marks = ChartMarks::default();
        for call in calls {
            marks.add(call);
        }
        let money = calls.iter().fold(None, |sum, call| added(sum, spent(call)));
        let sent = calls.iter().map(|call| call.tokens).sum();
        Some(ChartColumn { range, peak: largest.tokens, regions: largest.regions, sent, money, marks })
    }
}

/// Number of calls of the longest series.
pub(crate) fn length(series: &[PolicySeries<'_>]) -> usize {
    series.iter().map(|series| series.calls.len()).max().unwrap_or(0)
}

/// Cost of the full history, if it is among the series and its price is known.
pub(crate) fn full_history(series: &[PolicySeries<'_>]) -> Option<Money> {
    let full = series.iter().find(|series| series.is_full_history())?;
    full.totals().money.filter(|money| money.0 > 0)
}

/// Cost of a policy relative to that of the full history: `0.45×`.
pub(crate) fn ratio(money: Money, full: Money) -> String {
    format!("{:.2}×", money.dollars() / full.dollars())
}

/// Largest size that a picture shows.
///
/// Requests that cannot be sent are not worth the room: a full history of many times the window would flatten
/// all others.
pub(crate) fn ceiling(title: &PictureTitle, series: &[PolicySeries<'_>]) -> Tokens {
    let peak = series.iter().map(|series| series.totals().peak).max().unwrap_or_default();
    match title.window {
        Some(window) if window.0 > 0 => {
            let roof = Tokens(window.0.saturating_mul(3) / 2);
            // A window far above every request would flatten the picture too.
            if peak.0.saturating_mul(2) < window.0 { peak } else { peak.max(window).min(roof) }
        }
        _ => peak,
    }
}

/// Totals of a policy's calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesTotals {
    pub(crate) calls: usize,
    pub(crate) peak: Tokens,
    pub(crate) sent: Tokens,
    pub(crate) money: Option<Money>,
    pub(crate) marks: ChartMarks,
    input: Tokens,
    cached: Tokens,
}

impl SeriesTotals {
    /// Mean size of the requests.
    pub(crate) fn mean(&self) -> Tokens {
        let made = (self.calls as u64).saturating_sub(self.marks.refused);
        Tokens(self.sent.0.checked_div(made).unwrap_or(0))
    }

    /// Failures, if there were any.
    pub(crate) fn failures(&self) -> Option<String> {
        let ChartMarks { overflowed, refused, illegal, .. } = self.marks;
        let all = [(overflowed, "too large"), (refused, "refused"), (illegal, "illegal")];
        let there = all.iter().filter(|(count, _)| *count > 0);
        let words: Vec<_> =
            there.map(|(count, what)| format!("{} {what}", text_format::short(*count))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Share of the input that came from the cache, in percent; `None` without input.
    pub(crate) fn cached(&self) -> Option<u64> {
        let share = u128::from(self.cached.0) * 100 / u128::from(self.input.0.max(1));
        (self.input.0 > 0).then(|| u64::try_from(share).unwrap_or(100))
    }
}

/// Neighbouring calls that are drawn as one.
#[derive(Clone, Debug)]
pub(crate) struct ChartColumn {
    /// Positions of the calls in the session.
    pub(crate) range: Range<usize>,
    /// Size of the largest request.
    pub(crate) peak: Tokens,
    /// Regions of that request.
    pub(crate) regions: RegionSizes,
    /// Sum of the requests' sizes.
    pub(crate) sent: Tokens,
    /// Cost, summaries included, if prices are known.
    pub(crate) money: Option<Money>,
    /// Events to be marked.
    pub(crate) marks: ChartMarks,
}

/// Events in some calls that a picture marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChartMarks {
    /// Number of resets, by cause. A reset changes what was sent before.
    pub(crate) resets: BTreeMap<String, u64>,
    /// Number of calls that found a cold cache.
    pub(crate) pauses: u64,
    /// Longest pause before one of them.
    pub(crate) longest: Option<Duration>,
    /// Number of summaries that a model wrote.
    pub(crate) asked: u64,
    /// Number of summaries made without a model.
    pub(crate) unasked: u64,
    /// Tokens that were evicted.
    pub(crate) evicted: Tokens,
    /// Number of requests larger than the window.
    pub(crate) overflowed: u64,
    /// Number of requests that could not be made.
    pub(crate) refused: u64,
    /// Number of requests that break a rule of their provider.
    pub(crate) illegal: u64,
}

impl ChartMarks {
    /// Number of resets.
    pub(crate) fn reset(&self) -> u64 {
        self.resets.values().sum()
    }

    /// Number of summaries.
    pub(crate) fn summaries(&self) -> u64 {
        self.asked + self.unasked
    }

    /// Adds the events of other calls.
    pub(crate) fn join(&mut self, other: &Self) {
        for (cause, count) in &other.resets {
            *self.resets.entry(cause.clone()).or_default() += count;
        }
        self.pauses += other.pauses;
        self.longest = self.longest.max(other.longest);
        self.asked += other.asked;
        self.unasked += other.unasked;
        self.evicted += other.evicted;
        self.overflowed += other.overflowed;
        self.refused += other.refused;
        self.illegal += other.illegal;
    }

    fn add(&mut self, call: &ReplayRow) {
        if let Some(cause) = reset(call) {
            *self.resets.entry(cause).or_default() += 1;
        }
        if is_cold(call) {
            self.pauses += 1;
            self.longest = self.longest.max(call.pause);
        }
        if let Some(summary) = &call.summarised {
            let made = if summary.usage == Usage::default() { &mut self.unasked } else { &mut self.asked };
            *made += 1;
        }
        self.evicted += call.evicted;
        self.illegal += u64::from(call.illegal > 0);
        match call.fate {
            ReplayFate::Sent => {}
            ReplayFate::Overflowed => self.overflowed += 1,
            ReplayFate::Refused => self.refused += 1,
        }
    }
}

/// Cause of a reset in a call, if there was one.
fn reset(call: &ReplayRow) -> Option<String> {
    call.cause.as_ref().filter(|cause| **cause != EpochCause::First).map(ToString::to_string)
}

/// Returns true if the cache was cold before a call. A request that is changed for this reason is charged as
/// changed, so the simulation need not also report it as late.
fn is_cold(call: &ReplayRow) -> bool {
    call.missed == Some(CacheMiss::Expired) || call.cause == Some(EpochCause::Cold)
}

fn spent(call: &ReplayRow) -> Option<Money> {
    added(call.money, call.summarised.as_ref().and_then(|summary| summary.money))
}

fn added(one: Option<Money>, other: Option<Money>) -> Option<Money> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

/// The smallest of 1, 2, 5, 10, 20, … that is no less than `least`: the step of an axis.
pub(crate) fn step(least: usize) -> usize {
    let powers = std::iter::successors(Some(1_usize), |power| power.checked_mul(10));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit)));
    steps.find(|step| *step >= least).unwrap_or(usize::MAX)
}

/// Times of the first and the last call that has one.
pub(crate) fn span(series: &[PolicySeries<'_>]) -> Option<(Timestamp, Timestamp)> {
    let longest = series.iter().max_by_key(|series| series.calls.len())?;
    let mut times = longest.calls.iter().filter_map(|call| call.at);
    let first = times.next()?;
    Some((first, times.next_back().unwrap_or(first)))
}

/// A duration as people say it: `45 s`, `14 min`, `2 h 5 min`, `3 d`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
        let two = |large: u64, unit: &str, small: u64, part: &str| match small {
            0 => format!("{large} {unit}"),
            _ => format!("{large} {unit} {small} {part}"),
        };
        f.write_str(&match (days, hours, minutes) {
            (0, 0, 0) => format!("{seconds} s"),
            (0, 0, _) => format!("{minutes} min"),
            (0, _, _) => two(hours, "h", minutes % 60, "min"),
            _ => two(days, "d", hours % 24, "h"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample_session, *};

    #[test]
    fn columns_lose_no_call_and_no_mark() {
        let session = sample_session::session(203);
        for played in &session.policies {
            let series = played.series();
            let totals = series.totals();
            for count in [1, 7, 60, 203] {
                let columns = series.columns(203, count);
                assert_eq!(columns.len(), count);
                assert_eq!(columns.iter().map(|column| column.range.len()).sum::<usize>(), 203);
                assert_eq!(columns.iter().map(|column| column.peak).max(), Some(totals.peak));
                assert_eq!(columns.iter().map(|column| column.sent).sum::<Tokens>(), totals.sent);
                let money = columns.iter().filter_map(|column| column.money).sum::<Money>();
                assert_eq!(Some(money), totals.money);
                let mut marks = ChartMarks::default();
                for column in &columns {
                    marks.join(&column.marks);
                }
                assert_eq!(marks, totals.marks);
            }
        }
    }

    #[test]
    fn a_policy_that_stopped_early_has_fewer_columns() {
        let session = sample_session::session(50);
        let series = session.policies[0].series();
        let short = PolicySeries { calls: &series.calls[..20], ..series };
        assert_eq!(short.columns(50, 50).len(), 20);
        assert_eq!(short.columns(50, 10).len(), 4);
        assert_eq!(PolicySeries { policy: "empty", calls: &[] }.columns(50, 10).len(), 0);
        assert_eq!(PolicySeries { policy: "empty", calls: &[] }.columns(0, 0).len(), 0);
    }

    #[test]
    fn the_scale_minds_the_window_only_as_far_as_it_helps() {
        let session = sample_session::session(200);
        let series = session.series();
        let peak = series.iter().map(|series| series.totals().peak).max().unwrap();
        let check = |window: Option<u64>, expect: u64| {
            let title = PictureTitle { window: window.map(Tokens), ..PictureTitle::default() };
            assert_eq!(ceiling(&title, &series), Tokens(expect), "{window:?} with a peak of {peak}");
        };
        check(None, peak.0);
        check(Some(0), peak.0);
        check(Some(peak.0 + 1), peak.0 + 1);
        check(Some(peak.0 * 9), peak.0);
        check(Some(peak.0 / 4), peak.0 / 4 * 3 / 2);
        check(Some(u64::MAX), peak.0);
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0, 1, 3, 6, 11, 50, 51, 4_321].map(step), [1, 1, 5, 10, 20, 50, 100, 5_000]);
        assert_eq!(step(usize::MAX), usize::MAX);
    }

    #[test]
    fn lengths_of_time_are_said_in_two_units() {
        let check = |seconds, expect: &str| {
            assert_eq!(HumanDuration(Duration::from_secs(seconds)).to_string(), expect);
        };
        check(0, "0 s");
        check(59, "59 s");
        check(840, "14 min");
        check(7_200, "2 h");
        check(7_500, "2 h 5 min");
        check(259_200, "3 d");
        check(277_200, "3 d 5 h");
    }
}
