//! What a summary holds beside its sections, over generated sessions and through chains of compactions: what happened, and
//! where names stood; and that a compaction leaves no more than was asked for.

use std::{collections::BTreeMap, sync::Arc};

use epitome_core::{
    ContentPart, Fact, Seq,
    budget::Budget,
    context::EventNaming,
    event::{Compaction, CompactionTrigger, LoggedEvent, Summary, ToolCall, ToolResult},
    meter::{Meter, TokenOverhead},
    model_view::NextCall,
    policy::Policy,
    projection::{EventLine, project},
    seq_set::SeqSet,
    summary::{
        SectionCaps, StructuredSummary, Trail, TrailEntry, TrailKind,
        compaction::{CompactionSettings, SummaryLength, VerbatimTail},
        summarise,
    },
    tokens::{EstimateCounter, Tokens},
};
use proptest::{prelude::*, sample::Index};

use crate::{
    histories::history,
    notation::{Words, logged},
    stage::Stage,
};

/// Requests, and tools that are called at once and answer in any order, with names among what they say.
fn session(most: usize) -> impl Strategy<Value = Vec<Arc<LoggedEvent>>> {
    let words = || "([a-z]{1,4}_[a-c]|src/[a-c].rs|v1.2.[0-9]|[a-z]{2}[A-C][a-z]|[ \\\\\"\n.é]|word){0,12}";
    let step = prop_oneof![
        words().prop_map(|words| vec![Fact::UserSaid { parts: vec![ContentPart::text(words)] }]),
        (words(), words(), words(), any::<bool>()).prop_map(|(command, one, other, swapped)| {
            let arguments = serde_json::json!({ "command": command }).to_string();
            let call = |id| ContentPart::ToolCall(ToolCall::function(id, "bash", arguments.clone()));
            let result = |id: &str, text: &str| Fact::ToolReturned {
                results: vec![ToolResult {
                    call: id.into(),
                    name: None,
                    parts: vec![ContentPart::text(text)],
                    error: false,
                }],
                parts: vec![],
            };
            let calls = Fact::AssistantSaid { answer: None, model: None, parts: vec![call("a"), call("b")] };
            let mut results = [result("a", &one), result("b", &other)];
            if swapped {
                results.reverse();
            }
            [vec![calls], results.to_vec()].concat()
        }),
    ];
    prop::collection::vec(step, 1..most)
        .prop_map(|facts| (1..).zip(facts.concat()).map(|(seq, fact)| logged(seq, fact)).collect())
}

/// The summary of a session cut into spans, each on top of the one before. As in every compaction, no call is parted from
/// its results.
fn chained(events: &[Arc<LoggedEvent>], spans: usize, caps: &SectionCaps) -> StructuredSummary {
    let length = events.len().div_ceil(spans).max(1);
    let mut brief = StructuredSummary::default();
    let mut left = events;
    while !left.is_empty() {
        let is_result = |event: &Arc<LoggedEvent>| matches!(event.event.fact, Fact::ToolReturned { .. });
        let more = left.iter().skip(length).take_while(|event| is_result(event)).count();
        let (span, rest) = left.split_at((length + more).min(left.len()));
        brief = summarise(span, Some(&brief), caps);
        left = rest;
    }
    brief
}

fn caps(trail: usize, index: usize) -> SectionCaps {
    SectionCaps { trail, index, ..SectionCaps::default() }
}

fn words() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(Words), TokenOverhead::default()))
}

/// All that stands in a result, and in the calls of its answer, which in these sessions are those before it.
fn stood(events: &[Arc<LoggedEvent>]) -> BTreeMap<Seq, String> {
    let mut asked = String::new();
    let mut stood = BTreeMap::new();
    for event in events {
        match &event.event.fact {
            Fact::AssistantSaid { .. } => {
                let arguments = event.event.fact.calls().map(|call| call.arguments.as_str());
                asked = arguments.fold(String::new(), |asked, arguments| asked + "\n" + arguments);
            }
            Fact::ToolReturned { results, .. } => {
                let texts = results.iter().flat_map(|result| &result.parts).filter_map(|part| match part {
                    ContentPart::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                stood.insert(event.id.seq, texts.collect::<String>() + &asked);
            }
            _ => {}
        }
    }
    stood
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_name_of_the_index_stood_where_it_says(events in session(20), spans in 1..6usize, cap in 0..2_000usize) {
        let brief = chained(&events, spans, &caps(0, cap));
        let stood = stood(&events);
        let mut letters = 0;
        for entry in &brief.index {
            prop_assert!(!entry.names.is_empty());
            letters += format!("- [{}] {}:\n", entry.at, entry.of).len();
            for name in &entry.names {
                letters += name.name.len() + 1;
                prop_assert!(stood.get(&entry.at).is_some_and(|text| text.contains(&name.name)), "{name:?} at {}", entry.at);
                // There is no newer place.
                let newest = stood.iter().rev().find(|(_, text)| names_of(text).any(|word| word == name.name));
                prop_assert!(spans > 1 || cap < 1_500 || newest.is_none_or(|(at, _)| *at <= entry.at), "{name:?} at {}", entry.at);
            }
        }
        prop_assert!(letters <= cap, "{letters} of {cap}");
        prop_assert!(brief.index.is_sorted_by(|one, next| one.at >= next.at), "the newest first");
        prop_assert_eq!(chained(&events, spans, &caps(0, cap)), brief, "the same every time");
    }

    #[test]
    fn a_fork_knows_no_later_words_and_no_later_names(
        events in session(20), spans in 1..4usize, at in any::<Index>(),
    ) {
        let brief = chained(&events, spans, &caps(600, 600));
        let fork = Seq(at.index(events.len() + 1) as u64 + 1);
        let before = brief.before(fork);
        prop_assert!(before.trail.entries.iter().all(|entry| last_of(entry) < fork));
        prop_assert!(before.index.iter().all(|entry| entry.at < fork));
        // How often a name was met is what was known by then.
        let whole = chained(&events[..usize::try_from(fork.0).unwrap() - 1], 1, &caps(0, usize::MAX));
        for name in before.index.iter().flat_map(|entry| &entry.names) {
            let then = whole.index.iter().flat_map(|entry| &entry.names).find(|other| other.name == name.name);
            prop_assert!(then.is_some_and(|then| name.met <= then.met), "{name:?} {then:?}");
        }
    }

    /// Any history at all; and caps that no file would say.
    #[test]
    fn any_history_has_a_trail_and_an_index_within_their_caps(
        events in history(60), spans in 1..5usize, cap in prop_oneof![0..3_000usize, Just(usize::MAX)],
    ) {
        let caps = caps(cap, cap);
        let brief = chained(&events, spans, &caps);
        let meter = Meter::new(Arc::new(EstimateCounter), TokenOverhead::default());
        let covered = SeqSet::run(Seq(1), Seq(events.len() as u64));
        let told = brief.render(&covered, Tokens(0), &meter, EventNaming::Messages);
        let without = StructuredSummary { trail: Trail::default(), index: vec![], ..brief.clone() };
        let sections = without.render(&covered, Tokens(0), &meter, EventNaming::Messages).len();
        // Two headings with a line under each, and whatever must be told of the newest requests however little room there is.
        let most = cap.saturating_mul(2).saturating_add(sections + 320 + NEWEST);
        prop_assert!(told.len() <= most, "{} of {most}, within {cap}: {told}", told.len());
        let drafting = CompactionSettings { caps, ..CompactionSettings::default() };
        prop_assert!(drafting.expected(Tokens::MAX) > Tokens(0));
        prop_assert_eq!(caps.within(Tokens(0)).index, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// What is kept verbatim is made less until all of it fits: unless no cut does.
    #[test]
    fn a_draft_is_no_larger_than_was_asked_if_any_could_be(
        events in history(30), most in 0..300u64, keep in 0..300u64, important in any::<bool>(),
    ) {
        let line = EventLine::new(events.iter().cloned());
        let context = project(&line, words(), EventNaming::Messages);
        let length = SummaryLength::Fixed(Tokens(60));
        let keep = if important { VerbatimTail::Important(Tokens(keep)) } else { VerbatimTail::Tokens(Tokens(keep)) };
        let drafting = CompactionSettings { keep, length, caps: caps(200, 100), most: Some(Tokens(most)), limit: None, unanswered: None };
        let after = |drafting: CompactionSettings| {
            drafting.draft(None, &context, &line, CompactionTrigger::Threshold).ok().and_then(|draft| draft.tokens_after)
        };
        let Some(reached) = after(drafting) else { return Ok(()) };
        // The cuts that keep no more than was asked for.
        let all = |tokens| CompactionSettings { keep: drafting.keep.at_most(Tokens(tokens)), most: None, ..drafting };
        let least = (0..300).step_by(15).filter_map(|tokens| after(all(tokens))).min();
        prop_assert!(
            reached <= Tokens(most) || least.is_none_or(|least| least > Tokens(most)),
            "{reached} of {most}, where {least:?} could be reached"
        );
    }
}

/// The letters that the newest piece of a trail takes at most in these histories, if it is told in its shortest form.
const NEWEST: usize = 12_000;

/// The last event that an entry tells of.
fn last_of(entry: &TrailEntry) -> Seq {
    match &entry.what {
        TrailKind::Request(request) => request.last,
        _ => entry.at,
    }
}

/// What the user said by a summary, in order.
fn said(brief: &StructuredSummary) -> Vec<&str> {
    let said = brief.trail.entries.iter().filter_map(|entry| match &entry.what {
        TrailKind::User { text } => Some(text.as_str()),
        _ => None,
    });
    said.collect()
}

/// Words as they stand, between what can be no part of one.
fn names_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || "_/.-@+".contains(letter)))
}

/// Plays a session of long outputs and short requests to the default policy, and gives the requests and every summary
/// that was made.
fn played(requests: usize, ceiling: u64) -> (Vec<String>, Vec<Compaction>) {
    let policy = Policy::named("epitome").unwrap();
    let budget = policy.budget(Budget::new(Tokens(ceiling)));
    let mut stage = Stage::new(words());
    let (mut asked, mut made) = (Vec::new(), Vec::new());
    let play = |stage: &mut Stage, fact| stage.play(&logged(1, fact));
    for number in 0..requests {
        let request =
            format!("Request {number}: mind\n## Constraints\n- the <tag> of {number}, \"as it is\".  \n");
        play(&mut stage, Fact::UserSaid { parts: vec![ContentPart::text(&*request)] });
        asked.push(request);
        for part in 0..3 {
            let prepared = stage.view.prepare(policy, &budget, &NextCall::default()).unwrap();
            if let Some(compaction) = &prepared.compaction {
                let Fact::Compacted(compaction) = &compaction.event.fact else {
                    panic!("it is a compaction")
                };
                made.push(compaction.clone());
            }
            stage.view.sent(None);
            let call = ToolCall::function("c", "bash", format!("{{\"command\":\"make {number}-{part}\"}}"));
            play(
                &mut stage,
                Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::ToolCall(call)] },
            );
            let parts = vec![ContentPart::text("made ".repeat(400))];
            let result = ToolResult { call: "c".into(), name: None, parts, error: false };
            play(&mut stage, Fact::ToolReturned { results: vec![result], parts: vec![] });
        }
    }
    (asked, made)
}

#[test]
fn the_default_keeps_every_message_of_the_user_word_for_word_through_a_chain_of_compactions() {
    let (asked, made) = played(60, 13_000);
    assert!(made.len() >= 10, "{}", made.len());
    for compaction in &made {
        let Summary::Structured { text, brief } = &compaction.summary else { panic!("code has made it") };
        let said = said(brief);
        assert_eq!(said, asked[..said.len()], "all that were asked by then, in order");
        let folded = brief.trail.entries.iter().filter(|entry| matches!(entry.what, TrailKind::Request(_)));
        assert_eq!(folded.count(), 0, "{text}");
        for request in said {
            assert!(text.contains(request), "{request} is not in\n{text}");
        }
    }
    let told = made.iter().map(|made| match &made.summary {
        Summary::Structured { brief, .. } => said(brief).len(),
        _ => 0,
    });
    assert!(told.max() >= Some(50));
}
