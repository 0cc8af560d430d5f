use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    budget::{Budget, WindowReserves},
    cost::{
        Bill, CacheAssumption, CacheLayer, CacheTerms, Prompt, PromptBlock, SettingDigests, SimulatedCache,
        SimulatedCall,
    },
    event::Timestamp,
    hash_chain::Digest,
    profile::{Profile, Profiles},
};

fn profile(name: &str) -> Profile {
    Profiles::builtin().find(name).unwrap().clone()
}

/// Target 45 000, trigger 55 000, force 85 000, ceiling 100 000.
fn budget() -> Budget {
    let mut profiles = Profiles::builtin();
    profiles.with_overrides("[[model]]\nname = \"small\"\nwire = \"anthropic\"\nwindow = 100_000").unwrap();
    let reserves = WindowReserves { output: Tokens(0), ..Default::default() };
    Budget::for_profile(profiles.find("small").unwrap(), reserves)
}

/// A warm call, a minute after the last one, without new content.
struct Given {
    model: &'static str,
    since: LastCallAge,
    calls: usize,
    size: u64,
    trial: (u64, u64),
    summary: SummaryOption<'static>,
    demand: ReductionDemand,
}

const WARM: LastCallAge = LastCallAge::Elapsed(Duration::from_mins(1));
const MODEL: &str = "claude-opus-5";

impl Default for Given {
    fn default() -> Self {
        Self {
            model: MODEL,
            since: WARM,
            calls: 30,
            size: 40_000,
            trial: (40_000, 40_000),
            summary: SummaryOption::Never,
            demand: ReductionDemand::AtTrigger,
        }
    }
}

impl Given {
    fn plan(self) -> CallPlan {
        let profile = profile(self.model);
        plan(&PlanInputs {
            terms: &CacheTerms::new(&profile.cache, &profile.prices),
            lifetime: None,
            since: self.since,
            forecast: &Forecast::steady(self.calls, Tokens(100)),
            size: Tokens(self.size),
            sent: Tokens(self.size),
            prefix: Tokens(10_000),
            budget: &budget(),
            demand: self.demand,
            least: Tokens(1_000),
            trial: ReductionTrial { after: Tokens(self.trial.0), first_changed_at: Tokens(self.trial.1) },
            summary: self.summary,
        })
    }
}

fn offer(by: SummariserKind<'static>) -> SummaryOffer<'static> {
    SummaryOffer { covers: Tokens(30_000), expected: Tokens(2_000), calls: 2, by }
}

fn check(given: Given, action: PlanAction, reason: PlanReason) -> String {
    let plan = given.plan();
    assert_eq!((plan.action, plan.reason), (action, reason), "{plan}");
    plan.to_string()
}

#[test]
fn the_factors_of_the_break_even_are_those_of_the_prices() {
    let check = |toml: &str, suffix: u64, removed: u64, expected: u64| {
        let mut profiles = Profiles::builtin();
        let name = "[[model]]\nname = \"test\"\nfamily = \"anthropic\"\n";
        profiles.with_overrides(&format!("{name}price.input = 4\n{toml}")).unwrap();
        let profile = profiles.find("test").unwrap();
        let size = Tokens(50_000 + suffix + removed);
        let plan = plan(&PlanInputs {
            terms: &CacheTerms::new(&profile.cache, &profile.prices),
            lifetime: None,
            since: WARM,
            forecast: &Forecast::steady(usize::try_from(expected).unwrap() / 100, Tokens(0)),
            size,
            sent: size,
            prefix: Tokens(0),
            budget: &Budget::new(Tokens::MAX),
            demand: ReductionDemand::AtTrigger,
            least: Tokens(1),
            trial: ReductionTrial { after: Tokens(50_000 + suffix), first_changed_at: Tokens(50_000) },
            summary: SummaryOption::Never,
        });
        let numbers = &plan.numbers;
        assert_eq!((numbers.suffix, numbers.removed), (Tokens(suffix), Tokens(removed)), "{toml}");
        assert_eq!(numbers.break_even, Some(CallCount(expected)), "{toml}");
    };
    let million = 1_000_000;
    check("", million, million, 1_150);
    check("price.cache_read = 0.05", million, million, 2_400);
    check("price.cache_read = 0.025", million, million, 4_900);
    check("price.cache_write = 1.0", million, million, 900);
    check("cache.written = \"automatic\"\nprice.cache_write = 1.0", million, million, 900);
    // Twice the suffix, or half the removal, takes twice the calls.
    check("", 2 * million, million, 2_300);
    check("", million, million / 2, 2_300);
}

#[test]
fn a_cold_cache_is_the_moment_for_the_summary_that_code_makes() {
    let cold = LastCallAge::Elapsed(Duration::from_mins(90));
    let by = |by| SummaryOption::Possible(offer(by));
    // Below the trigger, and above the target, of which the free reducers take little.
    let given = |since, trial, summary| Given { since, size: 50_000, trial, summary, ..Given::default() };
    let (little, enough) = ((49_000, 40_000), (44_000, 40_000));
    check(given(cold, little, by(SummariserKind::BuiltIn)), PlanAction::SummariseNow, PlanReason::Cold);
    // While it is warm, the trigger is waited for.
    check(given(WARM, little, by(SummariserKind::BuiltIn)), PlanAction::Keep, PlanReason::DoesNotPay);
    // Where the reducers suffice, no summary is needed; and a model's summary is not ready in time.
    check(given(cold, enough, by(SummariserKind::BuiltIn)), PlanAction::Edit, PlanReason::Cold);
    check(given(cold, little, by(SummariserKind::Session)), PlanAction::Edit, PlanReason::Cold);
    check(given(cold, little, SummaryOption::Never), PlanAction::Edit, PlanReason::Cold);
    // Its cost need not be known: all is written again in any case.
    let unpriced =
        |summary| Given { model: "llama-4-maverick", ..given(LastCallAge::First, little, summary) };
    assert_eq!(unpriced(by(SummariserKind::BuiltIn)).plan().action, PlanAction::SummariseNow);
    assert_eq!(unpriced(SummaryOption::Never).plan().action, PlanAction::Edit);
}

#[test]
fn a_warm_cache_is_changed_when_it_pays_whatever_comes_and_not_before() {
    // 20 000 again for 10 000 less: after more than 23 calls.
    let given = |calls| Given { calls, trial: (30_000, 10_000), ..Given::default() };
    insta::assert_snapshot!(
        check(given(22), PlanAction::Keep, PlanReason::DoesNotPay),
        @"keep: removing 10000 of 40000 tokens writes 20000 again and pays after 23 calls; 23 are expected ($0.485 kept, $0.485 edited)"
    );
    // Just paying is not enough: half of the calls may not come, and the new content may have to be written
    // again.
    let said = check(given(23), PlanAction::Keep, PlanReason::Uncertain);
    assert!(said.contains("pays only if all 24 expected calls come"), "{said}");
    check(given(80), PlanAction::Keep, PlanReason::Uncertain);
    check(given(100), PlanAction::Edit, PlanReason::Pays);
    // One call pays if nothing needs to be written again: the removed part was never sent, or it is the end.
    check(
        Given { calls: 0, trial: (30_000, 30_000), ..Given::default() },
        PlanAction::Edit,
        PlanReason::Pays,
    );
}

#[test]
fn a_cold_cache_makes_it_free() {
    let given = |since| Given { since, calls: 0, trial: (38_000, 10_000), ..Given::default() };
    let too_late = LastCallAge::Elapsed(Duration::from_millis(300_001));
    insta::assert_snapshot!(
        check(given(too_late), PlanAction::Edit, PlanReason::Cold),
        @"edit: the cache is cold, so 2000 of 40000 tokens go for nothing ($0.250 kept, $0.237 edited)"
    );
    check(given(LastCallAge::First), PlanAction::Edit, PlanReason::Cold);
    check(given(LastCallAge::OtherModel), PlanAction::Edit, PlanReason::Cold);
    check(given(LastCallAge::Elapsed(Duration::from_mins(5))), PlanAction::Keep, PlanReason::DoesNotPay);
    // Not for a trifle.
    let trifle = Given { trial: (39_001, 10_000), ..given(too_late) };
    insta::assert_snapshot!(
        check(trifle, PlanAction::Keep, PlanReason::NothingToRemove),
        @"keep: of 40000 tokens too few can go (999) to change what was sent ($0.250 kept, $0.244 edited)"
    );
    // Nor if it takes the request below the least size that the provider keeps.
    let short =
        Given { model: "claude-opus-4-5", size: 5_000, trial: (1_000, 500), calls: 30, ..given(too_late) };
    check(short, PlanAction::Keep, PlanReason::DoesNotPay);
}

#[test]
fn thresholds_demand_what_does_not_pay() {
    let given = |size, after| Given { calls: 0, size, trial: (after, 10_000), ..Given::default() };
    check(given(55_000, 45_000), PlanAction::Keep, PlanReason::DoesNotPay);
    let trigger = PlanReason::Demanded(BudgetThreshold::Trigger);
    insta::assert_snapshot!(
        check(given(55_001, 45_000), PlanAction::Edit, trigger),
        @"edit: 55001 tokens are over the trigger; 10001 go, 35000 are written again ($0.028 kept, $0.224 edited)"
    );
    // Without a summary to wait for, the possible reduction is made; but not for a trifle on every call.
    check(given(55_001, 50_000), PlanAction::Edit, trigger);
    check(given(55_001, 54_500), PlanAction::Keep, PlanReason::NothingToRemove);
    let force = PlanReason::Demanded(BudgetThreshold::Force);
    insta::assert_snapshot!(
        check(given(85_001, 84_900), PlanAction::Edit, force),
        @"edit: 85001 tokens are over the limit that forces a reduction; 101 go, 74900 are written again ($0.043 kept, $0.473 edited)"
    );
    check(given(85_001, 85_001), PlanAction::Keep, PlanReason::NothingToRemove);
    let late = |size, after| Given { demand: ReductionDemand::AtForce, ..given(size, after) };
    check(late(85_000, 40_000), PlanAction::Keep, PlanReason::DoesNotPay);
    check(late(85_001, 40_000), PlanAction::Edit, force);
}

#[test]
fn a_summary_begins_before_the_trigger_if_the_free_reducers_miss_the_target() {
    let session = || SummaryOption::Possible(offer(SummariserKind::Session));
    let given = |size, after| Given {
        calls: 5,
        size,
        trial: (after, 12_000),
        summary: session(),
        ..Given::default()
    };
    // Two more calls bring 200 tokens.
    check(given(54_800, 50_000), PlanAction::Keep, PlanReason::DoesNotPay);
    insta::assert_snapshot!(
        check(given(54_801, 50_000), PlanAction::Summarise, PlanReason::TargetMissed),
        @"begin a summary: 54801 tokens are near the trigger, and the free reducers, with 4801, miss the target ($0.168 kept, $0.372 edited, $0.181 with a summary, $0.070 to make it)"
    );
    check(given(56_000, 50_000), PlanAction::Summarise, PlanReason::TargetMissed);
    check(given(54_999, 45_000), PlanAction::Keep, PlanReason::DoesNotPay);
    check(given(56_000, 45_000), PlanAction::Edit, PlanReason::Demanded(BudgetThreshold::Trigger));
    // A cold prefix is dear to read once more; the next call finds it warm.
    let cold = Given { since: LastCallAge::First, trial: (55_900, 12_000), ..given(56_000, 0) };
    check(cold, PlanAction::Keep, PlanReason::NothingToRemove);
    let running =
        Given { summary: SummaryOption::Running(offer(SummariserKind::Session)), ..given(56_000, 50_000) };
    check(running, PlanAction::Keep, PlanReason::AwaitsSummary);
    // Where none is possible, the reducers will be asked to do it soon; that they do it a little more cheaply now is no reason.
    let never = Given { summary: SummaryOption::Never, ..given(54_900, 50_000) };
    check(never, PlanAction::Keep, PlanReason::Uncertain);
}

#[test]
fn a_ready_summary_is_swapped_in_when_cold_when_it_pays_and_when_demanded() {
    let ready =
        SummaryOption::Ready(ReductionTrial { after: Tokens(20_000), first_changed_at: Tokens(10_000) });
    let given = |since, calls, size| Given {
        since,
        calls,
        size,
        trial: (size, size),
        summary: ready,
        ..Given::default()
    };
    insta::assert_snapshot!(
        check(given(LastCallAge::First, 0, 54_000), PlanAction::Adopt, PlanReason::Cold),
        @"adopt the summary: the cache is cold, so 34000 of 54000 tokens go for nothing ($0.338 kept, $0.125 with a summary)"
    );
    insta::assert_snapshot!(
        check(given(WARM, 2, 54_000), PlanAction::Keep, PlanReason::DoesNotPay),
        @"keep: removing 34000 of 54000 tokens writes 10000 again and pays after 3.38 calls; 3 are expected ($0.082 kept, $0.089 with a summary)"
    );
    check(given(WARM, 3, 54_000), PlanAction::Keep, PlanReason::Uncertain);
    check(given(WARM, 20, 54_000), PlanAction::Adopt, PlanReason::Pays);
    check(given(WARM, 0, 55_001), PlanAction::Adopt, PlanReason::Demanded(BudgetThreshold::Trigger));
    check(given(WARM, 0, 90_000), PlanAction::Adopt, PlanReason::Demanded(BudgetThreshold::Force));
    // The free reducers do, if they reach the target.
    let edit = Given { trial: (45_000, 40_000), ..given(WARM, 0, 55_001) };
    check(edit, PlanAction::Edit, PlanReason::Demanded(BudgetThreshold::Trigger));
}

#[test]
fn no_call_waits_for_a_model() {
    let given =
        |summary, size| Given { calls: 0, size, trial: (size - 2_000, 10_000), summary, ..Given::default() };
    let force = PlanReason::Demanded(BudgetThreshold::Force);
    for by in [SummariserKind::Session, SummariserKind::BuiltIn] {
        check(given(SummaryOption::Possible(offer(by)), 85_001), PlanAction::SummariseNow, force);
        check(given(SummaryOption::Running(offer(by)), 85_001), PlanAction::SummariseNow, force);
    }
    // The built-in summariser is free and at once: above the trigger it does the work.
    let built_in = SummaryOption::Possible(offer(SummariserKind::BuiltIn));
    check(given(built_in, 60_000), PlanAction::SummariseNow, PlanReason::Demanded(BudgetThreshold::Trigger));
    check(given(built_in, 54_900), PlanAction::Keep, PlanReason::DoesNotPay);
    let cold =
        Given { since: LastCallAge::First, demand: ReductionDemand::AtForce, ..given(built_in, 60_000) };
    check(cold, PlanAction::SummariseNow, PlanReason::Cold);
}

#[test]
fn what_is_not_known_is_said_and_the_thresholds_decide() {
    let given =
        |model, since, size| Given { model, since, size, trial: (30_000, 10_000), ..Given::default() };
    insta::assert_snapshot!(
        check(given("gemini-3.1-pro", WARM, 50_000), PlanAction::Keep, PlanReason::BelowThresholds),
        @"keep: 50000 tokens are over no threshold (decided without money: nobody promises how long the cache holds; give `cache.lifetimes` for the model in a profile of your own)"
    );
    check(
        given("gemini-3.1-pro", WARM, 55_001),
        PlanAction::Edit,
        PlanReason::Demanded(BudgetThreshold::Trigger),
    );
    check(given("gemini-3.1-pro", LastCallAge::First, 50_000), PlanAction::Edit, PlanReason::Cold);
    let unpriced = given("llama-4-maverick", LastCallAge::First, 50_000).plan();
    assert_eq!((unpriced.action, unpriced.reason), (PlanAction::Edit, PlanReason::Cold));
    assert!(matches!(unpriced.numbers.unknown, Some(UnknownCostError::Price(_))));
}

#[test]
fn a_pause_that_is_coming_is_waited_for() {
    let profile = profile(MODEL);
    let mut forecast = Forecast::steady(120, Tokens(0));
    let mut made = || {
        let situation = PlanInputs {
            terms: &CacheTerms::new(&profile.cache, &profile.prices),
            lifetime: None,
            since: WARM,
            forecast: &forecast,
            size: Tokens(40_000),
            sent: Tokens(40_000),
            prefix: Tokens(0),
            budget: &budget(),
            demand: ReductionDemand::AtTrigger,
            least: Tokens(1_000),
            trial: ReductionTrial { after: Tokens(30_000), first_changed_at: Tokens(10_000) },
            summary: SummaryOption::Never,
        };
        let plan = plan(&situation);
        forecast.calls[10].cache = CacheWarmth::Cold;
        plan
    };
    assert_eq!(made().reason, PlanReason::Pays);
    let waits = made();
    assert_eq!((waits.action, waits.reason), (PlanAction::Keep, PlanReason::CheaperLater), "{waits}");
}

/// A session's future: the growth of each call, and the part of it that may later be cut to a given size.
#[derive(Clone, Debug)]
struct Trace {
    model: &'static str,
    lifetime: Option<u64>,
    prefix: u64,
    calls: Vec<Step>,
    /// Number of calls after which added content becomes ripe.
    lag: usize,
    target: u64,
    trigger: u64,
    force: u64,
    least: u64,
    demand: ReductionDemand,
}

#[derive(Clone, Debug)]
struct Step {
    cache: CacheWarmth,
    /// Tokens, and how many of them can go.
    items: Vec<(u64, u64)>,
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let item =
        (1..20_000_u64, 0..100_u64).prop_map(|(size, share)| (size, (size * share / 100).min(size - 1)));
    let item = prop_oneof![item, (1..20_000_u64).prop_map(|size| (size, 0))];
    let cache = prop_oneof![5 => Just(CacheWarmth::Warm), 1 => Just(CacheWarmth::Cold)];
    let step = (cache, prop::collection::vec(item, 0..3)).prop_map(|(cache, items)| Step { cache, items });
    let models = vec![
        "claude-opus-5",
        "claude-fable-5-1",
        "claude-haiku-4-5",
        "claude-sonnet-4-5[1m]",
        "gpt-5",
        "gpt-5.6",
        "gpt-4.1",
    ];
    let demand = prop_oneof![Just(ReductionDemand::AtTrigger), Just(ReductionDemand::AtForce)];
    let thresholds = (10_000..200_000_u64, 0..100_000_u64, 0..100_000_u64);
    (
        (prop::sample::select(models), prop_oneof![Just(None), Just(Some(3_600))], 1..30_000_u64),
        prop::collection::vec(step, 1..60),
        (0..6_usize, thresholds, 1..20_000_u64, demand),
    )
        .prop_map(|((model, lifetime, prefix), calls, (lag, (target, gap, more), least, demand))| {
            Trace {
                model,
                lifetime,
                prefix,
                calls,
                lag,
                target,
                trigger: target + gap,
                force: target + gap + more,
                least,
                demand,
            }
        })
}

/// A session being played: the content of its context.
struct World<'a> {
    trace: &'a Trace,
    /// In order: the call that added it, its tokens, how many can go, whether they went.
    items: Vec<(usize, u64, u64, bool)>,
    sent: usize,
    cache: SimulatedCache,
    now: i64,
    bill: Bill,
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace) -> Self {
        let profile = profile(trace.model);
        let cache = SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Ideal).unwrap();
        Self { trace, items: Vec::new(), sent: 0, cache, now: 0, bill: Bill::default() }
    }

    fn begin(&mut self, call: usize) {
        let step = &self.trace.calls[call];
        self.sent = self.items.len();
        self.items.extend(step.items.iter().map(|(size, removable)| (call, *size, *removable, false)));
        self.now += if step.cache == CacheWarmth::Cold { 100_000_000 } else { 1_000 };
    }

    fn tokens(&self, items: usize) -> u64 {
        let stands = |item: &(usize, u64, u64, bool)| if item.3 { item.1 - item.2 } else { item.1 };
        self.trace.prefix + self.items[..items].iter().map(stands).sum::<u64>()
    }

    fn size(&self) -> u64 {
        self.tokens(self.items.len())
    }

    fn ripe(&self, call: usize) -> impl Iterator<Item = usize> {
        let is_ripe =
            move |item: &(usize, u64, u64, bool)| item.0 + self.trace.lag <= call && item.2 > 0 && !item.3;
        self.items.iter().enumerate().filter(move |(_, item)| is_ripe(item)).map(|(place, _)| place)
    }

    fn removable(&self, call: usize) -> u64 {
        self.ripe(call).map(|place| self.items[place].2).sum()
    }

    fn trial(&self, call: usize) -> ReductionTrial {
        let after = self.size() - self.removable(call);
        let first = self.ripe(call).next().map_or_else(|| self.size(), |first| self.tokens(first));
        ReductionTrial { after: Tokens(after), first_changed_at: Tokens(first.min(after)) }
    }

    fn edit(&mut self, call: usize) {
        let ripe: Vec<usize> = self.ripe(call).collect();
        for place in ripe {
            self.items[place].3 = true;
        }
    }

    fn send(&mut self) {
        let block = |name: String, tokens: u64| PromptBlock {
            layer: CacheLayer::Messages,
            digest: Digest::of(name.as_bytes()),
            tokens: Tokens(tokens),
            tool: false,
            breakpoint: None,
        };
        let items = self.items.iter().enumerate().map(|(place, (_, size, removable, gone))| {
            block(format!("{place} {gone}"), if *gone { size - removable } else { *size })
        });
        let mut prompt = Prompt {
            blocks: std::iter::once(block("prefix".into(), self.trace.prefix)).chain(items).collect(),
        };
        prompt.blocks.last_mut().unwrap().breakpoint = self.trace.lifetime;
        let call = SimulatedCall {
            at: Timestamp(self.now),
            model: self.trace.model,
            prompt: &prompt,
            settings: &SettingDigests::default(),
            output: Tokens(0),
        };
        let charge = self.cache.serve(&call);
        self.bill.add(&charge);
    }

    fn money(&self) -> Money {
        self.bill.money().unwrap()
    }
}

impl Trace {
    /// Keeps until a threshold demands otherwise.
    fn play_keeping(&self) -> Money {
        let mut world = World::new(self);
        for call in 0..self.calls.len() {
            world.begin(call);
            let (size, removable) = (world.size(), world.removable(call));
            let is_over_trigger =
                self.demand == ReductionDemand::AtTrigger && size > self.trigger && removable >= self.least;
            if size > self.force && removable > 0 || is_over_trigger {
                world.edit(call);
            }
            world.send();
        }
        world.money()
    }

    /// Follows the planner. Also returns the session's cost by the first plan; `None` if a change was put off
    /// for its risk, which no plan includes.
    fn play_planned(&self) -> (Money, Option<Money>) {
        let profile = profile(self.model);
        let terms = CacheTerms::new(&profile.cache, &profile.prices);
        let budget = self.budget();
        let mut world = World::new(self);
        let (mut said, mut was_put_off) = (None, false);
        for (call, step) in self.calls.iter().enumerate() {
            world.begin(call);
            let since = match step.cache {
                _ if call == 0 => LastCallAge::First,
                CacheWarmth::Cold => LastCallAge::Elapsed(Duration::from_secs(100_000)),
                CacheWarmth::Warm | CacheWarmth::Unknown => LastCallAge::Elapsed(Duration::from_secs(1)),
            };
            let plan = plan(&PlanInputs {
                terms: &terms,
                lifetime: self.lifetime,
                since,
                forecast: &self.forecast(call),
                size: Tokens(world.size()),
                sent: Tokens(if call == 0 { 0 } else { world.tokens(world.sent) }),
                prefix: Tokens(self.prefix),
                budget: &budget,
                demand: self.demand,
                least: Tokens(self.least),
                trial: world.trial(call),
                summary: SummaryOption::Never,
            });
            let numbers = &plan.numbers;
            said.get_or_insert_with(|| match plan.action {
                PlanAction::Edit => numbers.edit.unwrap(),
                _ => numbers.keep.unwrap(),
            });
            was_put_off |= plan.reason == PlanReason::Uncertain;
            if plan.action == PlanAction::Edit {
                world.edit(call);
            }
            world.send();
        }
        (world.money(), said.filter(|_| !was_put_off))
    }

    fn budget(&self) -> Budget {
        let (target, trigger, force) = (Tokens(self.target), Tokens(self.trigger), Tokens(self.force));
        Budget::new(Tokens::MAX).with_thresholds(target, trigger, force)
    }

    /// The real calls after a call.
    fn forecast(&self, call: usize) -> Forecast {
        let expected = |coming: usize| {
            let step = &self.calls[coming];
            let added = |call: usize| self.calls[call].items.iter();
            let growth = Tokens(added(coming).map(|item| item.0).sum());
            let ripe = coming.checked_sub(self.lag).and_then(|from| {
                let untouched: Vec<(u64, u64)> =
                    added(from).copied().skip_while(|item| item.1 == 0).collect();
                let removes: u64 = untouched.iter().map(|item| item.1).sum();
                let newer: u64 = (from + 1..=coming).flat_map(added).map(|item| item.0).sum();
                let behind = untouched.iter().map(|item| item.0 - item.1).sum::<u64>() + newer;
                (removes > 0).then_some(RemovableContent { removes: Tokens(removes), behind: Tokens(behind) })
            });
            ExpectedCall { growth, cache: step.cache, ripe }
        };
        Forecast { calls: (call + 1..self.calls.len()).map(expected).collect() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn with_a_right_forecast_the_planner_never_costs_more_than_keeping_until_forced(trace in any_trace()) {
        let kept = trace.play_keeping();
        let (planned, said) = trace.play_planned();
        prop_assert!(planned <= kept, "planned {:?}, kept {:?}", planned, kept);
        prop_assert!(said.is_none_or(|said| planned <= said), "planned {:?}, said {:?}", planned, said);
    }

    #[test]
    fn a_plan_is_made_of_anything(
        numbers in prop::collection::vec(any::<u64>(), 12), growth in prop::collection::vec(any::<u64>(), 0..4),
        kind in 0..4, elapsed in any::<u64>(),
    ) {
        let n = |place: usize| Tokens(numbers[place]);
        let expected = |growth: &u64| ExpectedCall {
            growth: Tokens(*growth),
            cache: CacheWarmth::Warm,
            ripe: Some(RemovableContent { removes: n(0), behind: n(1) }),
        };
        let offer = SummaryOffer { covers: n(2), expected: n(3), calls: usize::MAX, by: SummariserKind::Session };
        let profile = profile(MODEL);
        let situation = PlanInputs {
            terms: &CacheTerms::new(&profile.cache, &profile.prices),
            lifetime: Some(numbers[4]),
            since: LastCallAge::Elapsed(Duration::from_millis(elapsed)),
            forecast: &Forecast { calls: growth.iter().map(expected).collect() },
            size: n(5),
            sent: n(6),
            prefix: n(7),
            budget: &budget(),
            demand: ReductionDemand::AtTrigger,
            least: n(8),
            trial: ReductionTrial { after: n(9), first_changed_at: n(10) },
            summary: match kind {
                0 => SummaryOption::Never,
                1 => SummaryOption::Possible(offer),
                2 => SummaryOption::Running(offer),
                _ => SummaryOption::Ready(ReductionTrial { after: n(11), first_changed_at: n(0) }),
            },
        };
        let made = plan(&situation);
        prop_assert_eq!(&made, &plan(&situation));
        prop_assert!(!made.to_string().is_empty());
        prop_assert!(made.numbers.removed <= n(5));
    }
}

/// Cost of some calls beside the full history's, the reset of a warm cache to a size first: each adds the
/// same.
fn beside_everything(depth: &ReductionDepth, terms: &CacheTerms, size: u64, calls: u64) -> (u64, u64) {
    let cost = |held: u64, total: u64| {
        terms.prices().cost(&terms.ideal(Tokens(held), Tokens(total), None)).unwrap().0
    };
    let later = |begins: u64| {
        (1..calls).map(move |call| (begins + (call - 1) * depth.growth.0, begins + call * depth.growth.0))
    };
    let reset = cost(depth.prefix.0.min(size), size);
    let everything = cost(depth.whole.0, depth.whole.0);
    let sum =
        |first: u64, begins: u64| first + later(begins).map(|(held, total)| cost(held, total)).sum::<u64>();
    (sum(reset, size), sum(everything, depth.whole.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The largest size that pays has made up for its rewriting, against sending everything, when
    /// half of the calls have come that it leaves room for; if no size does, it is the least. A context keeps more only where
    /// its calls then cost less, failed actions counted in, and nothing more of what is complete.
    #[test]
    fn a_warm_cache_is_reset_to_what_pays_in_money_and_information(
        model in prop::sample::select(vec!["claude-opus-5", "gpt-5.5", "gpt-5"]),
        force in 8_000..150_000_u64,
        parts in (2..60_u64, 20..60_u64, 0..40_u64, 1..20_u64),
        beyond in 0..400_u64,
        beside in 0..40_000_u64,
    ) {
        let profile = profile(model);
        let terms = CacheTerms::new(&profile.cache, &profile.prices);
        let part = |percent: u64| Tokens(force * percent / 100);
        let (prefix, least, more, growth) = parts;
        let depth = ReductionDepth {
            whole: Tokens(force) + part(beyond),
            prefix: part(prefix.min(least)),
            growth: part(growth).max(Tokens(100)),
            force: Tokens(force),
            beside: Tokens(beside),
            least: part(least),
            most: part(least + more),
        };
        let target = depth.largest_that_pays(&terms, None).unwrap();
        prop_assert!(depth.least <= target && target <= depth.most, "{target} of {depth:?}");
        // Half of the calls that have room, the one that resets it counted.
        let half = |size: u64| (force - size).div_ceil(2 * depth.growth.0).max(1);
        if target > depth.least {
            let (paid, everything) = beside_everything(&depth, &terms, target.0, half(target.0));
            prop_assert!(paid <= everything, "{paid} and not {everything}: {target} of {depth:?}");
        }
        for size in (target.0 + 1..=depth.most.0).step_by(500) {
            let calls = (force - size) / (2 * depth.growth.0);
            let (paid, everything) = beside_everything(&depth, &terms, size, calls);
            prop_assert!(calls == 0 || paid > everything, "{size} pays too: {target} of {depth:?}");
        }
        let longer = ReductionDepth { whole: depth.whole + Tokens(20_000), ..depth };
        prop_assert!(longer.largest_that_pays(&terms, None).unwrap() >= target, "a longer session leaves no less: {depth:?}");
        let kept = depth.target(&terms, None).unwrap();
        prop_assert!(target <= kept && kept <= depth.most, "{kept} of {depth:?}");
        let cost = |size: Tokens| depth.cost_of_call(size, &terms, None).unwrap();
        prop_assert!(cost(kept) <= cost(target), "{kept} and not {target} of {depth:?}");
        let is_spaced = kept.0 + 4 * depth.growth.0 <= depth.force.0;
        prop_assert!(kept == target || target + depth.beside < Tokens(24_000) && is_spaced, "{kept} and not {target} of {depth:?}");
    }
}

#[test]
fn a_small_window_is_filled_beyond_what_pays_and_a_large_one_is_not() {
    let profile = profile("claude-opus-5");
    let terms = CacheTerms::new(&profile.cache, &profile.prices);
    let kept = |window: u64, beside: u64| {
        let depth = ReductionDepth {
            whole: Tokens(window * 3 / 2),
            prefix: Tokens(1_000),
            growth: Tokens(500),
            force: Tokens(window),
            beside: Tokens(beside),
            least: Tokens(window * 44 / 100),
            most: Tokens(window * 85 / 100),
        };
        let (pays, kept) =
            (depth.largest_that_pays(&terms, None).unwrap(), depth.target(&terms, None).unwrap());
        (pays.0 * 100 / window, kept.0 * 100 / window)
    };
    insta::assert_snapshot!(
        [8_000, 12_000, 24_000, 40_000, 60_000, 200_000]
            .map(|window| format!("{window}: {:?}", kept(window, 0)))
            .join("\n"),
        @r"
    8000: (48, 48)
    12000: (54, 68)
    24000: (65, 75)
    40000: (73, 73)
    60000: (79, 79)
    200000: (85, 85)
    "
    );
    // Tools that a transcript does not show are in the request all the same.
    assert_eq!(kept(24_000, 30_000), (65, 65));
}
