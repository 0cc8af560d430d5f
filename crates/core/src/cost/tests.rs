use std::{collections::BTreeMap, sync::LazyLock};

use proptest::prelude::*;

use super::*;
use crate::{
    event::{Timestamp, Usage},
    profile::{CacheRules, CacheWriteMode, Profile, Profiles, RequestAspect, TokenPrices},
};

const MODEL: &str = "claude-sonnet-5";

fn profile(name: &str) -> Profile {
    Profiles::builtin().find(name).unwrap().clone()
}

/// Anthropic's rules with a minimum of 100, so that prompts can be small.
fn anthropic() -> Profile {
    static SMALL: LazyLock<Profile> = LazyLock::new(|| {
        let mut profiles = Profiles::builtin();
        let name = "[[model]]\nname = \"small\"\nfamily = \"anthropic\"\n";
        let price = "price.input = 2\nprice.output = 10\ncache.minimum_prefix = 100";
        profiles.with_overrides(&format!("{name}{price}")).unwrap();
        profiles.find("small").unwrap().clone()
    });
    SMALL.clone()
}

fn cache(profile: &Profile, mode: CacheAssumption) -> SimulatedCache {
    SimulatedCache::new(&profile.cache, &profile.prices, mode).unwrap()
}

/// A block for each word: its text and its tokens, `T:` or `S:` before it for the layer, `!` after it for a breakpoint
/// (`!!` for an hour), `~` for a tool block.
fn prompt(words: &str) -> Prompt {
    let block = |word: &str| {
        let (layer, word) = match word.split_at_checked(2) {
            Some(("T:", rest)) => (CacheLayer::Tools, rest),
            Some(("S:", rest)) => (CacheLayer::System, rest),
            _ => (CacheLayer::Messages, word),
        };
        let breakpoint = match word.chars().filter(|letter| *letter == '!').count() {
            0 => None,
            1 => Some(300),
            _ => Some(3_600),
        };
        let text: String = word.chars().filter(|letter| !"!~".contains(*letter)).collect();
        let tokens = text.chars().filter(char::is_ascii_digit).collect::<String>();
        PromptBlock {
            layer,
            digest: Digest::of(text.as_bytes()),
            tokens: Tokens(tokens.parse().unwrap()),
            tool: word.contains('~'),
            breakpoint,
        }
    };
    Prompt { blocks: words.split_whitespace().map(block).collect() }
}

fn serve(cache: &mut SimulatedCache, seconds: i64, words: &str) -> CallCharge {
    at(cache, seconds * 1_000, &prompt(words))
}

fn at(cache: &mut SimulatedCache, milliseconds: i64, prompt: &Prompt) -> CallCharge {
    let settings = SettingDigests::default();
    let at = Timestamp(milliseconds);
    cache.serve(&SimulatedCall { at, model: MODEL, prompt, settings: &settings, output: Tokens(0) })
}

/// Tokens read, written and neither; then the reason for the miss.
type Seen = (u64, u64, u64, Option<&'static str>);

fn seen(charge: &CallCharge) -> Seen {
    let Usage { uncached, cache_read, cache_write, .. } = charge.usage;
    (cache_read.0, cache_write.0, uncached.0, charge.missed.map(CacheMiss::name))
}

/// Serves requests at given seconds in the provider's mode and compares the tokens read, written and neither.
fn check(profile: &Profile, calls: &[(i64, &str, Seen)]) {
    let mut cache = cache(profile, CacheAssumption::Breakpoints);
    for (number, (seconds, words, expected)) in calls.iter().enumerate() {
        assert_eq!(seen(&serve(&mut cache, *seconds, words)), *expected, "call {number}: {words}");
    }
}

#[test]
fn a_request_that_grows_reads_all_it_sent_and_writes_the_rest() {
    check(
        &anthropic(),
        &[
            (0, "T:t50 S:s50! a100!", (0, 200, 0, Some("cold"))),
            (1, "T:t50 S:s50! a100 b10!", (200, 10, 0, None)),
            (2, "T:t50 S:s50! a100 b10!", (210, 0, 0, None)),
            // Content behind the last breakpoint is neither read nor written, and so missing in the next
            // call.
            (3, "T:t50 S:s50! a100 b10! c30", (210, 0, 30, None)),
            (4, "T:t50 S:s50! a100 b10 c30 d5!", (210, 35, 0, Some("no entry"))),
        ],
    );
}

#[test]
fn one_changed_block_misses_from_there_on() {
    check(
        &anthropic(),
        &[
            (0, "S:s100! a100! b100! c100!", (0, 400, 0, Some("cold"))),
            (1, "S:s100! a100! x100! c100!", (200, 200, 0, Some("changed"))),
            (2, "S:s101! a100! b100! c100!", (0, 401, 0, Some("changed"))),
            // The first line still lives.
            (3, "S:s100! a100! b100! c100!", (400, 0, 0, None)),
        ],
    );
    let mut cache = cache(&anthropic(), CacheAssumption::Ideal);
    serve(&mut cache, 0, "T:t100 S:s100 a100 b100");
    let missed = serve(&mut cache, 0, "T:t100 S:s100 a100 x100").missed;
    assert_eq!(missed, Some(CacheMiss::Changed { block: 3, layer: CacheLayer::Messages }));
    let missed = serve(&mut cache, 0, "T:t100 S:y100 a100 x100").missed;
    assert_eq!(missed, Some(CacheMiss::Changed { block: 1, layer: CacheLayer::System }));
}

#[test]
fn an_entry_lives_from_the_start_of_the_request_to_the_last_second_and_anew_when_read() {
    let words = "s200!";
    for mode in [CacheAssumption::Ideal, CacheAssumption::Breakpoints] {
        let mut cache = cache(&anthropic(), mode);
        let mut read = |milliseconds| {
            let charge = at(&mut cache, milliseconds, &prompt(words));
            (charge.usage.cache_read.0, charge.missed)
        };
        assert_eq!(read(0), (0, Some(CacheMiss::Cold)));
        assert_eq!(read(300_000), (200, None));
        assert_eq!(read(600_000), (200, None));
        assert_eq!(read(900_001), (0, Some(CacheMiss::Expired)));
        // A call that claims to be earlier than the latest does not read dead entries.
        assert_eq!(read(600_000), (200, None));
        assert_eq!(read(1_200_001), (200, None));
    }
}

#[test]
fn an_hour_is_priced_apart_and_outlives_five_minutes() {
    let mut cache = cache(&anthropic(), CacheAssumption::Breakpoints);
    let first = serve(&mut cache, 0, "T:t100 S:s100!! a100!");
    assert_eq!((first.usage.cache_write, first.usage.cache_write_hour), (Tokens(300), Tokens(200)));
    // $2 a million: 200 at 2x, 100 at 1.25x.
    assert_eq!(first.money.unwrap().0, 200 * 4_000 + 100 * 2_500);
    let later = serve(&mut cache, 301, "T:t100 S:s100!! a100!");
    assert_eq!(seen(&later), (200, 100, 0, Some("expired")));
    assert_eq!(later.usage.cache_write_hour, Tokens(0));
    assert_eq!(
        seen(&serve(&mut cache, 301 + 3_600, "T:t100 S:s100!! a100!")),
        (200, 100, 0, Some("expired"))
    );
    // An entry written for five minutes does not live for an hour because a later request asks for that.
    assert_eq!(seen(&serve(&mut cache, 4_000, "T:t100 S:s100!! a100!!")), (300, 0, 0, None));
    assert_eq!(seen(&serve(&mut cache, 4_301, "T:t100 S:s100!! a100!!")), (200, 100, 0, Some("expired")));
}

#[test]
fn a_prefix_below_the_minimum_is_not_kept() {
    check(
        &anthropic(),
        &[
            (0, "S:s99!", (0, 0, 99, Some("below minimum"))),
            (1, "S:s99!", (0, 0, 99, Some("below minimum"))),
            (2, "S:s99! a1!", (0, 100, 0, Some("below minimum"))),
            (3, "S:s99! a1!", (100, 0, 0, None)),
            (4, "S:s99! b1!", (0, 100, 0, Some("below minimum"))),
        ],
    );
    assert_eq!(
        seen(&serve(&mut cache(&anthropic(), CacheAssumption::Ideal), 0, "S:s99")),
        (0, 0, 99, Some("below minimum"))
    );
}

/// `count` blocks of ten tokens with a mark behind the last, tool blocks if so said.
fn run(from: usize, count: usize, sign: &str) -> String {
    let blocks: Vec<String> =
        (from..from + count).map(|number| format!("{}10{sign} ", letters(number))).collect();
    blocks.concat()
}

fn letters(number: usize) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

#[test]
fn a_breakpoint_looks_back_over_twenty_positions_itself_counted() {
    let grown = |sign, count| format!("s100 {}z10!", run(0, count, sign));
    let check_reads = |second: &str, read: u64| {
        let mut cache = cache(&anthropic(), CacheAssumption::Breakpoints);
        serve(&mut cache, 0, "s100!");
        let charge = serve(&mut cache, 1, second);
        assert_eq!(charge.usage.cache_read, Tokens(read), "{second}");
        assert_eq!(charge.missed.map(CacheMiss::name), (read == 0).then_some("no entry"), "{second}");
    };
    check_reads(&grown("", 18), 100);
    check_reads(&grown("", 19), 0);
    // A run of tool blocks is one position, wherever it is.
    check_reads(&grown("~", 300), 100);
    check_reads(&format!("s100 {}{}z10!", run(0, 40, "~"), run(40, 17, "")), 100);
    check_reads(&format!("s100 {}{}z10!", run(0, 40, "~"), run(40, 18, "")), 0);
    // A second breakpoint on the way looks back for itself.
    check_reads(&format!("s100 {}y10! {}z10!", run(0, 18, ""), run(20, 30, "")), 100);
}

#[test]
fn of_too_many_breakpoints_the_last_ones_count() {
    let mut cache = cache(&anthropic(), CacheAssumption::Breakpoints);
    let first = serve(&mut cache, 0, "a100! b100! c100! d100! e100! f100!");
    assert_eq!((seen(&first), first.ignored_breakpoints), ((0, 600, 0, Some("cold")), 2));
    // Behind the second block no entry was written.
    assert_eq!(serve(&mut cache, 1, "a100 b100! x100!").usage.cache_read, Tokens(0));
    assert_eq!(serve(&mut cache, 1, "a100 b100 c100! y100!").usage.cache_read, Tokens(300));
    assert_eq!(serve(&mut cache, 1, "a100").ignored_breakpoints, 0);
}

#[test]
fn a_change_invalidates_what_the_provider_says() {
    let settings = |change: RequestAspect, value: &str| {
        SettingDigests(BTreeMap::from([(change, Digest::of(value.as_bytes()))]))
    };
    let words = prompt("T:t200! S:s100! a50!");
    let check = |name: &str,
                 before: (&str, SettingDigests),
                 after: (&str, SettingDigests),
                 read: u64,
                 missed: Option<CacheMiss>| {
        let profile = profile(name);
        for mode in [CacheAssumption::Ideal, CacheAssumption::Breakpoints] {
            let mut rules = profile.cache.clone();
            rules.minimum_prefix = Some(Tokens(100));
            let mut cache = SimulatedCache::new(&rules, &profile.prices, mode).unwrap();
            let mut serve = |(model, settings): &(&str, SettingDigests)| {
                cache.serve(&SimulatedCall {
                    at: Timestamp(0),
                    model,
                    prompt: &words,
                    settings,
                    output: Tokens(0),
                })
            };
            serve(&before);
            let charge = serve(&after);
            assert_eq!((charge.usage.cache_read, charge.missed), (Tokens(read), missed), "{name} {mode:?}");
            assert_eq!(
                serve(&before).usage.cache_read,
                if name == "gpt-5" && mode == CacheAssumption::Breakpoints {
                    Tokens(256)
                } else {
                    Tokens(350)
                }
            );
        }
    };
    let none = SettingDigests::default;
    let opus = "claude-opus-5";
    check(opus, ("a", none()), ("b", none()), 0, Some(CacheMiss::Model));
    for change in
        [RequestAspect::ToolChoice, RequestAspect::Images, RequestAspect::Thinking, RequestAspect::Effort]
    {
        let (auto, any) = (settings(change, "auto"), settings(change, "any"));
        check(opus, ("a", auto.clone()), ("a", any), 300, Some(CacheMiss::Setting(change)));
        check(opus, ("a", none()), ("a", auto), 300, Some(CacheMiss::Setting(change)));
    }
    let format = RequestAspect::Format;
    check(opus, ("a", settings(format, "x")), ("a", settings(format, "y")), 350, None);
    check(
        "gpt-5",
        ("a", settings(format, "x")),
        ("a", settings(format, "y")),
        0,
        Some(CacheMiss::Setting(format)),
    );
}

#[test]
fn tools_invalidate_all_and_the_system_prompt_itself_and_the_messages() {
    check(
        &anthropic(),
        &[
            (0, "T:t200! S:s100! a50!", (0, 350, 0, Some("cold"))),
            (0, "T:t200! S:x100! a50!", (200, 150, 0, Some("changed"))),
            (0, "T:y200! S:s100! a50!", (0, 350, 0, Some("changed"))),
            // More is read than the last two have in common: no part of the last one is missed.
            (0, "T:t200! S:s100! z50!", (300, 50, 0, None)),
        ],
    );
}

#[test]
fn an_automatic_cache_reads_the_longest_prefix_in_whole_units_and_asks_nothing_for_writing() {
    let gpt = profile("gpt-5");
    check(
        &gpt,
        &[
            (0, "s1000 a23", (0, 0, 1_023, Some("below minimum"))),
            (1, "s1000 a24", (0, 0, 1_024, Some("below minimum"))),
            (2, "s1000 a24 b500", (1_024, 0, 500, None)),
            (3, "s1000 a24 b500", (1_408, 0, 116, None)),
            (303, "s1000 a24 b500", (1_408, 0, 116, None)),
            (604, "s1000 a24 b500", (0, 0, 1_524, Some("expired"))),
            // Kept for a day where that is asked for; the breakpoint stands for the whole request.
            (605, "s2000 a24 b500!!", (0, 0, 2_524, Some("changed"))),
        ],
    );
    let mut cache = cache(&gpt, CacheAssumption::Breakpoints);
    let mut day = prompt("s2000 a24");
    day.blocks[0].breakpoint = Some(86_400);
    assert_eq!(at(&mut cache, 0, &day).usage.uncached, Tokens(2_024));
    assert_eq!(at(&mut cache, 86_400_000, &day).usage.cache_read, Tokens(1_920));
}

#[test]
fn an_implicit_breakpoint_is_at_the_end_and_explicit_ones_add_to_it() {
    let sol = profile("gpt-5.6");
    check(
        &sol,
        &[
            (0, "S:s1000 a100 b100", (0, 1_200, 0, Some("cold"))),
            (1, "S:s1000 a100 b100 c100", (1_200, 100, 0, None)),
            // No entry was written behind `a`.
            (2, "S:s1000 a100 x100", (0, 1_200, 0, Some("no entry"))),
            (3, "S:s1000 a100! y100", (0, 1_200, 0, Some("no entry"))),
            (4, "S:s1000 a100 z100", (1_100, 100, 0, Some("changed"))),
            (5 + 1_800, "S:s1000 a100 z100", (0, 1_200, 0, Some("expired"))),
            // Four of one's own leave none for the end.
            (5_000, "S:s1000! a100! b100! c100! d100", (0, 1_300, 100, Some("no entry"))),
            (5_001, "S:s1000 a100 b100 c100 d100", (1_300, 100, 0, Some("no entry"))),
        ],
    );
}

#[test]
fn what_a_profile_does_not_know_is_said() {
    let check = |name: &str, field: &str| {
        let profile = profile(name);
        let unknown =
            SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Breakpoints).unwrap_err();
        assert_eq!(unknown.field, field, "{name}");
        let mut cache = cache(&profile, CacheAssumption::Ideal);
        serve(&mut cache, 0, "s5000 a100");
        assert_eq!(
            serve(&mut cache, 100_000_000, "s5000 a100 b100").usage.cache_read,
            Tokens(5_100),
            "{name}"
        );
    };
    check("gemini-3.1-pro", "lifetimes");
    check("deepseek-v3.2", "minimum_prefix");
    insta::assert_snapshot!(
        SimulatedCache::new(&CacheRules::default(), &TokenPrices::default(), CacheAssumption::Breakpoints).unwrap_err(),
        @"following the model's prompt cache: its profile does not say `cache.written`; give it in a profile of your own, or ask for the ideal cache"
    );
    let mut cache =
        SimulatedCache::new(&CacheRules::default(), &TokenPrices::default(), CacheAssumption::Ideal).unwrap();
    let charge = serve(&mut cache, 0, "s500");
    assert_eq!((charge.usage.cache_write, charge.money.clone().unwrap_err().field), (Tokens(500), "input"));
    assert_eq!([&charge].into_iter().collect::<Bill>().money().unwrap_err().field, "input");
}

#[test]
fn what_another_session_sent_is_read_and_is_no_call_of_this_one() {
    let settings = SettingDigests::default();
    let shared = prompt("S:s200!");
    let mut cache = cache(&anthropic(), CacheAssumption::Breakpoints);
    let warm = |at: i64, cache: &mut SimulatedCache| {
        let call = SimulatedCall {
            at: Timestamp(at * 1_000),
            model: MODEL,
            prompt: &shared,
            settings: &settings,
            output: Tokens(0),
        };
        cache.serve_other_session(&call);
    };
    warm(0, &mut cache);
    assert_eq!(seen(&serve(&mut cache, 1, "S:s200! a50!")), (200, 50, 0, Some("cold")));
    // It is kept alive by the other sessions alone; this session's own entry dies.
    for at in [300, 600] {
        warm(at, &mut cache);
    }
    assert_eq!(seen(&serve(&mut cache, 610, "S:s200! a50! b50!")), (200, 100, 0, Some("expired")));
}

#[test]
fn the_dead_are_swept_out() {
    let mut cache = cache(&anthropic(), CacheAssumption::Ideal);
    for call in 0..2_000 {
        serve(&mut cache, call * 400, &format!("{}100 b100 c100", letters(usize::try_from(call).unwrap())));
    }
    assert!(cache.len() <= 1_100, "{}", cache.len());
}

#[derive(Clone, Debug)]
struct Sent {
    pause: i64,
    prompt: Prompt,
    settings: SettingDigests,
    model: &'static str,
    output: u64,
}

/// A block out of few, so that requests have something in common.
fn any_block() -> impl Strategy<Value = PromptBlock> {
    let layer = prop_oneof![1 => Just(CacheLayer::Tools), 1 => Just(CacheLayer::System), 4 => Just(CacheLayer::Messages)];
    let breakpoint = prop_oneof![4 => Just(None), 4 => prop::sample::select(vec![Some(300), Some(3_600), Some(0), Some(u64::MAX)])];
    (layer, 0..3_u8, any::<bool>(), breakpoint).prop_map(|(layer, text, tool, breakpoint)| PromptBlock {
        layer,
        digest: Digest::of(&[text]),
        tokens: Tokens([40, 90, 700][usize::from(text)]),
        tool,
        breakpoint,
    })
}

fn any_sent() -> impl Strategy<Value = Vec<Sent>> {
    let pause =
        prop_oneof![Just(1_000), Just(299_999), Just(300_001), Just(3_000_000), Just(-5), Just(i64::MAX)];
    let setting = prop::option::of((
        prop_oneof![
            Just(RequestAspect::ToolChoice),
            Just(RequestAspect::Tools),
            Just(RequestAspect::System),
            Just(RequestAspect::Format)
        ],
        0..2_u8,
    ));
    let sent = (
        pause,
        prop::collection::vec(any_block(), 0..30),
        // Keep so much of the request before.
        any::<prop::sample::Index>(),
        setting,
        prop_oneof![8 => Just("a"), 1 => Just("b")],
        0..50_u64,
    );
    prop::collection::vec(sent, 1..12).prop_map(|sent| {
        let mut before: Vec<PromptBlock> = Vec::new();
        sent.into_iter()
            .map(|(pause, mut blocks, kept, setting, model, output)| {
                let mut all = before[..kept.index(before.len() + 1)].to_vec();
                all.append(&mut blocks);
                before.clone_from(&all);
                let settings =
                    setting.map(|(change, value)| (change, Digest::of(&[value]))).into_iter().collect();
                Sent {
                    pause,
                    prompt: Prompt { blocks: all },
                    settings: SettingDigests(settings),
                    model,
                    output,
                }
            })
            .collect()
    })
}

fn replay(profile: &Profile, mode: CacheAssumption, sent: &[Sent]) -> Vec<CallCharge> {
    let mut cache = cache(profile, mode);
    let mut now = 0_i64;
    sent.iter()
        .map(|Sent { pause, prompt, settings, model, output }| {
            now = now.saturating_add(*pause);
            cache.serve(&SimulatedCall {
                at: Timestamp(now),
                model,
                prompt,
                settings,
                output: Tokens(*output),
            })
        })
        .collect()
}

fn missed(charge: &CallCharge) -> Tokens {
    charge.usage.uncached + charge.usage.cache_write
}

fn any_profile() -> impl Strategy<Value = Profile> {
    prop_oneof![Just(anthropic()), Just(profile("gpt-5")), Just(profile("gpt-5.6")), Just(profile(MODEL))]
}

proptest! {
    #[test]
    fn identical_requests_hit_fully(blocks in prop::collection::vec(any_block(), 1..40), pause in 0..=300_000_i64) {
        let mut prompt = Prompt { blocks };
        prompt.blocks.last_mut().unwrap().breakpoint = Some(300);
        let total: Tokens = prompt.blocks.iter().map(|block| block.tokens).sum();
        for mode in [CacheAssumption::Ideal, CacheAssumption::Breakpoints] {
            let mut cache = cache(&anthropic(), mode);
            at(&mut cache, 0, &prompt);
            let again = at(&mut cache, pause, &prompt);
            let (read, why) = if total < Tokens(100) { (Tokens(0), Some(CacheMiss::BelowMinimum)) } else { (total, None) };
            prop_assert_eq!((again.usage.cache_read, again.missed), (read, why), "{:?}", mode);
        }
    }

    #[test]
    fn one_changed_byte_misses_from_that_block_on(
        blocks in prop::collection::vec(any_block(), 1..40), at_block in any::<prop::sample::Index>(),
    ) {
        let changed = at_block.index(blocks.len());
        let mut prompt = Prompt { blocks };
        let mut cache = cache(&anthropic(), CacheAssumption::Ideal);
        at(&mut cache, 0, &prompt);
        prompt.blocks[changed].digest = Digest::of(b"changed");
        let charge = at(&mut cache, 0, &prompt);
        let before: Tokens = prompt.blocks[..changed].iter().map(|block| block.tokens).sum();
        let read = if before < Tokens(100) { Tokens(0) } else { before };
        prop_assert_eq!(charge.usage.cache_read, read);
        let layer = prompt.blocks[changed].layer;
        let why = [Some(CacheMiss::Changed { block: changed, layer }), Some(CacheMiss::BelowMinimum)];
        prop_assert!(why.contains(&charge.missed), "{:?}", charge.missed);
    }

    #[test]
    fn totals_are_the_sums_of_the_calls_and_every_token_is_charged_once(
        profile in any_profile(), sent in any_sent(), ideal: bool,
    ) {
        let charges = replay(&profile, if ideal { CacheAssumption::Ideal } else { CacheAssumption::Breakpoints }, &sent);
        for (charge, sent) in charges.iter().zip(&sent) {
            let total: Tokens = sent.prompt.blocks.iter().map(|block| block.tokens).sum();
            prop_assert_eq!((charge.usage.input(), charge.usage.output), (total, Tokens(sent.output)));
            prop_assert!(charge.usage.cache_write_hour <= charge.usage.cache_write);
            prop_assert_eq!(charge.money.clone(), profile.prices.cost(&charge.usage));
        }
        let bill: Bill = charges.iter().collect();
        let sum = |field: fn(&Usage) -> Tokens| charges.iter().map(|charge| field(&charge.usage)).sum::<Tokens>();
        prop_assert_eq!(bill.calls, charges.len() as u64);
        prop_assert_eq!(bill.usage.uncached, sum(|usage| usage.uncached));
        prop_assert_eq!(bill.usage.cache_read, sum(|usage| usage.cache_read));
        prop_assert_eq!(bill.usage.cache_write, sum(|usage| usage.cache_write));
        prop_assert_eq!(bill.usage.cache_write_hour, sum(|usage| usage.cache_write_hour));
        prop_assert_eq!(bill.usage.output, sum(|usage| usage.output));
        prop_assert_eq!(bill.money(), Ok(charges.iter().map(|charge| charge.money.clone().unwrap()).sum()));
    }

    #[test]
    fn the_ideal_cache_never_misses_more_than_the_real_one(profile in any_profile(), sent in any_sent()) {
        let ideal = replay(&profile, CacheAssumption::Ideal, &sent);
        let real = replay(&profile, CacheAssumption::Breakpoints, &sent);
        for (call, (ideal, real)) in ideal.iter().zip(&real).enumerate() {
            prop_assert!(missed(ideal) <= missed(real), "call {}: {:?} {:?}", call, ideal, real);
        }
    }

    #[test]
    fn absurd_input_is_served(
        tokens in prop::collection::vec(any::<u64>(), 0..9), times in prop::collection::vec(any::<i64>(), 1..6),
        lifetimes in prop::collection::vec(any::<u64>(), 0..3), numbers in prop::collection::vec(any::<u32>(), 4),
    ) {
        let blocks = tokens.iter().map(|tokens| PromptBlock {
            layer: [CacheLayer::Messages, CacheLayer::Tools, CacheLayer::System][usize::try_from(tokens % 3).unwrap()],
            digest: Digest::of(&tokens.to_le_bytes()),
            tokens: Tokens(*tokens),
            tool: tokens % 2 == 0,
            breakpoint: (tokens % 5 > 1).then_some(*tokens),
        });
        let prompt = Prompt { blocks: blocks.collect() };
        let mut rules = anthropic().cache;
        rules.lifetimes = Some(lifetimes);
        rules.minimum_prefix = Some(Tokens(numbers[0].into()));
        (rules.breakpoints, rules.look_back) = (Some(numbers[1]), Some(numbers[2]));
        rules.granularity = Some(Tokens(u64::from(numbers[3] % 3)));
        for written in [CacheWriteMode::Automatic, CacheWriteMode::Breakpoints, CacheWriteMode::ImplicitAndExplicit] {
            rules.written = Some(written);
            for mode in [CacheAssumption::Ideal, CacheAssumption::Breakpoints] {
                let Ok(mut cache) = SimulatedCache::new(&rules, &anthropic().prices, mode) else { continue };
                for time in &times {
                    at(&mut cache, *time, &prompt);
                }
            }
        }
    }
}
