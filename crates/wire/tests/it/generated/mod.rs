//! Each rule of legality held against requests that are generated: a legal one in which exactly that rule is broken, at a
//! place that is drawn, breaks exactly that rule there; and one in which none is broken is never called illegal.
//!
//! The cases are a table over [`RULES`]: a rule without a way to break it, in any of its formats, fails the test.

mod breaches;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use epitome_wire::{
    Format,
    legality::{LEGALITY_RULES, ProviderRule, ProviderRules, check_against, inspect},
};
use proptest::{prelude::*, sample::select};
use serde_json::Value;

use self::{
    breaches::{Broken, broken},
    requests::{Decision, Draw, legal, with_compaction, with_open_loop, with_reasoning, with_signatures},
};

/// What is found, each by rule and place.
fn found(format: Format, broken: &Broken) -> Vec<(&'static str, String)> {
    let found = match &broken.sent {
        Some(sent) => check_against(format, &sent.to_string(), &broken.body, &broken.rules),
        None => inspect(format, &broken.body, &broken.rules),
    };
    found.into_iter().map(|found| (found.breach.rule().id, found.place)).collect()
}

/// Every rule with each of its formats.
fn cases() -> Vec<(&'static str, Format)> {
    LEGALITY_RULES
        .iter()
        .flat_map(|rule| {
            rule.formats
                .iter()
                .filter(|format| crate::SCRIPTED.contains(format))
                .map(|format| (rule.id, *format))
        })
        .collect()
}

#[test]
fn every_rule_can_be_broken_in_each_of_its_formats() {
    for (rule, format) in cases() {
        let mut draw = Draw::of(&[]);
        let request = legal(format, &mut draw);
        assert!(broken(rule, format, request, &mut draw).is_some(), "nothing breaks {rule} in {format}");
    }
}

#[test]
fn every_way_in_which_a_rule_is_broken_is_met() {
    // Each rule alone, so that none is left to chance.
    let mut numbers = numbers();
    for (rule, format) in cases() {
        // The ways there are at each decision, and those that were met. How many messages or parts there are to choose from
        // differs from request to request; the ways to break one do not.
        let mut decided: BTreeMap<(u32, u32), (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
        for _ in 0..200 {
            let choices: Vec<u64> = numbers.by_ref().take(96).collect();
            for decision in check_broken(rule, format, &choices) {
                let place = (decision.place.line(), decision.place.column());
                let (ways, met) = decided.entry(place).or_default();
                ways.insert(decision.ways);
                met.insert(decision.way);
            }
        }
        for (place, (ways, met)) in decided.into_iter().filter(|(_, (ways, _))| ways.len() == 1) {
            let all: BTreeSet<usize> = ways.iter().flat_map(|ways| 0..*ways).collect();
            assert_eq!(met, all, "{rule} in {format}, decided at {place:?} of the breaches");
        }
    }
}

/// The same numbers every time, as if drawn (splitmix64).
fn numbers() -> impl Iterator<Item = u64> {
    let steps = std::iter::successors(Some(1_u64), |step| Some(step.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    steps.map(|step| {
        let mixed = (step ^ (step >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Breaks a rule in a request that is drawn, and gives what was decided in breaking it.
#[track_caller]
fn check_broken(rule: &'static str, format: Format, choices: &[u64]) -> Vec<Decision> {
    let mut draw = Draw::of(choices);
    let request = legal(format, &mut draw);
    draw.decisions.clear();
    let broken = broken(rule, format, request, &mut draw).expect("every rule can be broken");
    let expect = [(rule, broken.place.clone())];
    assert_eq!(found(format, &broken), expect, "{format}\n{}", broken.body);
    draw.decisions.retain(|decision| decision.place.file().ends_with("breaches.rs"));
    draw.decisions
}

#[track_caller]
fn check_legal(format: Format, request: &Value, rules: &ProviderRules) {
    let body = request.to_string();
    assert_eq!(inspect(format, &body, rules), [], "{format}\n{body}");
    assert_eq!(check_against(format, &body, &body, rules), [], "{format}\n{body}");
}

proptest! {
    #[test]
    fn a_legal_request_in_which_one_rule_is_broken_breaks_that_rule_there(
        (rule, format) in select(cases()),
        choices in prop::collection::vec(any::<u64>(), 96),
    ) {
        check_broken(rule, format, &choices);
    }

    #[test]
    fn a_legal_request_is_never_called_illegal(
        format in select(crate::SCRIPTED.to_vec()),
        choices in prop::collection::vec(any::<u64>(), 96),
    ) {
        let mut draw = Draw::of(&choices);
        let mut request = legal(format, &mut draw);
        if draw.chance() {
            with_compaction(format, &mut request, &mut draw);
        }
        // What only some models demand is kept by each of these as well.
        let mut rules = ProviderRules::of(format).with(ProviderRule::FirstIsUser).with(ProviderRule::PrefillRefused);
        check_legal(format, &request, &rules);
        with_open_loop(format, &mut request, &mut draw);
        if format == Format::OpenaiChat {
            with_reasoning(&mut request);
            with_signatures(&mut request);
            rules = rules.with(ProviderRule::ReasoningReturned).with(ProviderRule::CallsSigned);
        }
        check_legal(format, &request, &rules.with(ProviderRule::PreservedThinking));
    }

    #[test]
    fn what_only_goes_on_is_legal_against_what_was_sent(
        format in select(crate::SCRIPTED.to_vec()),
        choices in prop::collection::vec(any::<u64>(), 96),
    ) {
        let mut draw = Draw::of(&choices);
        let sent = legal(format, &mut draw);
        let mut now = sent.clone();
        with_open_loop(format, &mut now, &mut draw);
        let rules = ProviderRules::of(format).with(ProviderRule::PreservedThinking);
        let found = check_against(format, &sent.to_string(), &now.to_string(), &rules);
        prop_assert!(found.is_empty(), "{found:?}\n{now}");
    }
}
