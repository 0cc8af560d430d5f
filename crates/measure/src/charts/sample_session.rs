//! A made-up session in the form of a replay's result, for the tests of the pictures.

use std::time::Duration;

use crate::replay::{RegionSizes, ReplayFate, ReplayRow, ReplayedSummary, retention::FactRetention};
use epitome::core::{
    Tokens,
    cost::{CacheLayer, CacheMiss},
    event::{Timestamp, Usage},
    model_view::EpochCause,
    profile::Money,
};

use super::series::{PictureTitle, PolicySeries};

/// Largest size of a request.
pub(super) const WINDOW: Tokens = Tokens(100_000);

/// A session under several policies.
pub(super) struct SampleSession {
    pub(super) policies: Vec<SamplePolicy>,
}

/// Calls of the session under one policy.
pub(super) struct SamplePolicy {
    name: &'static str,
    pub(super) calls: Vec<ReplayRow>,
}

impl SamplePolicy {
    /// The series that a picture takes.
    pub(super) fn series(&self) -> PolicySeries<'_> {
        PolicySeries { policy: self.name, calls: &self.calls }
    }
}

impl SampleSession {
    /// The series that a picture takes.
    pub(super) fn series(&self) -> Vec<PolicySeries<'_>> {
        self.policies.iter().map(SamplePolicy::series).collect()
    }
}

/// Headings of the picture.
pub(super) fn title() -> PictureTitle {
    PictureTitle {
        session: "Make the parser keep comments".to_owned(),
        model: "claude-opus-5".to_owned(),
        window: Some(WINDOW),
        source: "epitome replay session.jsonl --policy none,sliding,epitome --budget 100000".to_owned(),
        notes: vec![
            "System prompt and tools are not in the transcript: 24k tokens, from its first usage.".to_owned(),
        ],
    }
}

/// A session of `calls` calls under three policies: nothing done, the oldest dropped, and long texts
/// shortened and summarised.
pub(super) fn session(calls: usize) -> SampleSession {
    let play = |name, reduce: SampleReduction| SamplePolicy { name, calls: played(calls, reduce) };
    SampleSession { policies: vec![play("none", nothing), play("sliding", slide), play("epitome", shorten)] }
}

/// A session of `calls` calls under `policies` policies.
pub(super) fn crowd(calls: usize, policies: usize) -> SampleSession {
    const NAMES: [&str; 13] = [
        "none",
        "epitome",
        "sliding",
        "drop-oldest",
        "summarise-all",
        "clear-tools",
        "balanced",
        "frugal",
        "verbatim",
        "claude-code",
        "codex",
        "opencode",
        "langchain",
    ];
    let reduce: [SampleReduction; 4] = [nothing, shorten, slide, clear];
    let play = |index: usize| {
        let name = NAMES[index % NAMES.len()];
        let chosen = if index == 0 { nothing } else { reduce[1 + index % 3] };
        SamplePolicy { name, calls: played(calls, chosen) }
    };
    SampleSession { policies: (0..policies).map(play).collect() }
}

/// Change that a policy makes to a request before a call, and its cause.
type SampleReduction = fn(&mut RegionSizes, &ReplayRow) -> Option<EpochCause>;

fn nothing(_: &mut RegionSizes, _: &ReplayRow) -> Option<EpochCause> {
    None
}

fn slide(regions: &mut RegionSizes, call: &ReplayRow) -> Option<EpochCause> {
    (call.tokens.0 * 10 > WINDOW.0 * 9).then(|| {
        for region in [&mut regions.user, &mut regions.answers, &mut regions.reasoning, &mut regions.results]
        {
            region.0 = region.0 * 35 / 100;
        }
        EpochCause::Trigger
    })
}

fn clear(regions: &mut RegionSizes, _: &ReplayRow) -> Option<EpochCause> {
    (regions.results.0 > 9_000).then(|| {
        regions.shortened.0 += (regions.results.0 - 9_000) / 30;
        regions.results.0 = 9_000;
        EpochCause::BreakEven
    })
}

fn shorten(regions: &mut RegionSizes, call: &ReplayRow) -> Option<EpochCause> {
    let cold = call.missed == Some(CacheMiss::Expired) && call.tokens.0 > 40_000;
    (cold || call.tokens.0 * 10 > WINDOW.0 * 8).then(|| {
        regions.shortened.0 += regions.results.0 / 12;
        regions.results.0 = regions.results.0 * 3 / 10;
        regions.summary.0 += (regions.answers.0 + regions.reasoning.0) / 8;
        regions.answers.0 = regions.answers.0 * 4 / 10;
        regions.reasoning.0 /= 10;
        if cold { EpochCause::Cold } else { EpochCause::Trigger }
    })
}

fn total(regions: &RegionSizes) -> Tokens {
    let RegionSizes { unseen, prefix, summary, user, client, answers, reasoning, results, shortened } =
        *regions;
    [unseen, prefix, summary, user, client, answers, reasoning, results, shortened].into_iter().sum()
}

fn played(calls: usize, reduce: SampleReduction) -> Vec<ReplayRow> {
    let mut regions = RegionSizes {
        unseen: Tokens(21_500),
        prefix: Tokens(2_400),
        client: Tokens(100),
        ..RegionSizes::default()
    };
    let (mut state, mut at, mut before) = (7_u64, 1_767_607_920_000_i64, Tokens(0));
    let mut random = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut line = Vec::new();
    for call in 0..calls as u64 {
        let seconds = match call {
            0 => 0,
            _ if call % 61 == 0 => 2_400 + random(20_000),
            _ if call % 23 == 0 => 310 + random(900),
            _ => 5 + random(90),
        };
        at += i64::try_from(seconds).unwrap() * 1_000;
        regions.user.0 += if call % 12 == 0 { 80 + random(700) } else { 0 };
        regions.answers.0 += 60 + random(300);
        regions.reasoning.0 += random(200);
        regions.results.0 += if random(9) == 0 { random(6_000) } else { random(900) };
        let missed = match seconds {
            _ if call == 0 => Some(CacheMiss::Cold),
            300.. => Some(CacheMiss::Expired),
            _ => None,
        };
        let mut row = ReplayRow {
            call,
            at: Some(Timestamp(at)),
            pause: (call > 0).then(|| Duration::from_secs(seconds)),
            fate: ReplayFate::Sent,
            tokens: total(&regions),
            regions,
            usage: Usage::default(),
            money: None,
            missed,
            cause: (call == 0).then_some(EpochCause::First),
            evicted: Tokens(0),
            summarised: None,
            illegal: 0,
            retention: FactRetention::default(),
            compactions: 0,
        };
        if let Some(cause) = reduce(&mut regions, &row) {
            let model = regions.summary.0 == 0 && cause == EpochCause::Trigger;
            row.evicted = row.tokens.less(total(&regions));
            row.tokens = total(&regions);
            row.regions = regions;
            row.summarised = (regions.summary.0 > 0 || model).then(|| summary(row.tokens, &cause));
            row.missed = row.missed.or(Some(CacheMiss::Changed { block: 4, layer: CacheLayer::Messages }));
            row.cause = Some(cause);
        }
        row.fate = if row.tokens > WINDOW { ReplayFate::Overflowed } else { ReplayFate::Sent };
        charge(&mut row, before);
        before = row.tokens;
        line.push(row);
    }
    line
}

/// A summary by a model if it was made at the trigger, and a free one if it was made because the cache was
/// cold.
fn summary(tokens: Tokens, cause: &EpochCause) -> ReplayedSummary {
    let usage = match cause {
        EpochCause::Trigger => Usage { cache_read: tokens, output: Tokens(900), ..Usage::default() },
        _ => Usage::default(),
    };
    ReplayedSummary { usage, money: Some(price(&usage)) }
}

fn charge(row: &mut ReplayRow, before: Tokens) {
    let cache_read = match row.missed {
        None => before.min(row.tokens),
        Some(CacheMiss::Changed { .. }) => Tokens(24_000),
        Some(_) => Tokens(0),
    };
    let output = Tokens(200);
    row.usage = Usage { cache_read, cache_write: row.tokens.less(cache_read), output, ..Usage::default() };
    row.money = Some(price(&row.usage));
}

/// Price of the usage at 5 dollars a million, a tenth for reading the cache and five quarters for writing it.
fn price(usage: &Usage) -> Money {
    Money(usage.cache_read.0 * 500 + usage.cache_write.0 * 6_250 + usage.output.0 * 25_000)
}
