//! Whatever is left out of a context, the newest form of standing context stays in it, byte for byte.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Event, Fact,
    budget::Budget,
    context::{Context, EventNaming, SegmentBody, Tier},
    event::LoggedEvent,
    fit::fit,
    meter::{Meter, TokenOverhead},
    model_view::{ModelView, NextCall, SummaryStatus},
    pipeline::{Reducer, ReducerState},
    policy::Policy,
    projection::{EventLine, project},
    reducers::{AnyReducer, default_pipeline},
    standing_context::StandingContext,
    tokens::Tokens,
};
use proptest::prelude::*;

use crate::{histories::history, notation::Words};

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(Words), TokenOverhead::default()))
}

const KINDS: [&str; 3] = ["house_rules", "user_info", "environment_context"];

/// The same history, with standing context in what users say: `places` tells of which kind, if of any.
fn with_standing(events: &[Arc<LoggedEvent>], places: &[Option<usize>]) -> Vec<Arc<LoggedEvent>> {
    let mut places = places.iter().cycle();
    let mut number = 0;
    let changed = events.iter().map(|event| {
        let Fact::UserSaid { parts } = &event.event.fact else { return Arc::clone(event) };
        let Some(Some(kind)) = places.next() else { return Arc::clone(event) };
        number += 1;
        let kind = KINDS[*kind];
        let block = format!("<{kind}>\nform {number} of \"{kind}\"\n</{kind}>");
        let mut parts = parts.clone();
        match parts.first_mut() {
            Some(ContentPart::Text { text }) if number % 2 == 0 => *text = format!("{block}\n{text}"),
            _ => parts.insert(0, ContentPart::Text { text: block }),
        }
        let fact = Fact::UserSaid { parts };
        Arc::new(LoggedEvent { event: Event { fact, ..event.event.clone() }, ..LoggedEvent::clone(event) })
    });
    changed.collect()
}

/// Every text that a context shows of users, and in their place.
fn shown(context: &Context) -> String {
    let mut all = String::new();
    for segment in context.segments() {
        match segment.body() {
            SegmentBody::Note(note) => all.push_str(&note.text),
            SegmentBody::Summary(_) => {
                all.push_str(segment.compaction().map_or("", |made| made.summary.text()));
            }
            _ => {
                for part in segment.shown().unwrap_or_default() {
                    if let ContentPart::Text { text } = part {
                        all.push_str(text);
                    }
                }
            }
        }
        all.push('\n');
    }
    all
}

/// The newest block of each kind that a context shows.
fn newest(context: &Context) -> Vec<String> {
    let all = shown(context);
    let of = |kind: &&str| {
        let (_, rest) = all.rsplit_once(&format!("<{kind}>"))?;
        let (inside, _) = rest.split_once(&format!("</{kind}>"))?;
        Some(format!("<{kind}>{inside}</{kind}>"))
    };
    KINDS.iter().filter_map(of).collect()
}

fn check(given: &Context, reduced: &Context) {
    assert_eq!(reduced.find_inconsistency(), None);
    let all = shown(reduced);
    for block in newest(given) {
        assert!(all.contains(&block), "{block} is gone from\n{all}\n{}", crate::notation::show(reduced));
    }
}

/// The same, unless there is no room: what is essential and cannot be cut may take all of it, and standing context has a
/// cap of its own. Says whether there was.
fn check_within(given: &Context, reduced: &Context, ceiling: Tokens) -> bool {
    let newest = newest(given);
    let blocks: Tokens = newest.iter().map(|block| reduced.meter().text(block) + Tokens(10)).sum();
    // Instructions within the conversation are standing context too and share the cap: a third of what the prefix
    // leaves, at four letters a token.
    let letters = newest.iter().map(String::len).sum::<usize>() + instruction_letters(given);
    let room = ceiling.less(given.tier_tokens(Tier::Prefix));
    let has_room = reduced.tokens() + blocks <= ceiling && letters as u64 * 3 <= room.0 * 4;
    if has_room {
        check(given, reduced);
    }
    has_room
}

/// The letters of all instructions that stand within the conversation.
fn instruction_letters(context: &Context) -> usize {
    let texts = context.segments().iter().filter_map(|segment| match segment.body() {
        SegmentBody::Instruction(event) => Some(event.event.fact.parts()),
        _ => None,
    });
    let letters = texts.flatten().map(|part| match part {
        ContentPart::Text { text } => text.len(),
        _ => 0,
    });
    letters.sum()
}

fn places() -> impl Strategy<Value = Vec<Option<usize>>> {
    prop::collection::vec(prop::option::of(0..KINDS.len()), 1..9)
}

proptest! {
    #[test]
    fn no_reducer_takes_it(events in history(40), places in places(), target in 0..200u64) {
        let events = with_standing(&events, &places);
        let whole = project(&EventLine::new(events), meter(), EventNaming::Messages);
        let budget = Budget::new(Tokens(1_000)).with_target(Tokens(target)).with_cap(Tier::Summaries, Tokens(target));
        for reducer in AnyReducer::all() {
            let reduced = reducer.reduce(whole.clone(), &budget, ReducerState::default());
            check(&whole, &reduced.context);
        }
    }

    #[test]
    fn what_fits_still_has_it(events in history(40), places in places(), ceiling in 150..600u64, target in 0..200u64) {
        let events = with_standing(&events, &places);
        let whole = project(&EventLine::new(events), meter(), EventNaming::Messages);
        // Where instructions and tools leave no room, there is none.
        let ceiling = Tokens(ceiling) + whole.tier_tokens(Tier::Prefix);
        let budget = Budget::new(ceiling).with_target(Tokens(target));
        if let Ok(fitted) = fit(whole.clone(), &budget, &default_pipeline(), ReducerState::default()) {
            check_within(&whole, &fitted.context, ceiling);
        }
    }

    #[test]
    fn every_request_of_a_session_has_it_under_every_policy(
        events in history(60),
        places in places(),
        room in 150..600u64,
    ) {
        let mut events = with_standing(&events, &places);
        // A client that compacts by itself decides by itself what stays.
        events.retain(|event| !matches!(event.event.fact, Fact::Compacted(_) | Fact::CompactionReverted { .. }
            | Fact::CompactionRestored { .. }));
        for policy in Policy::builtin() {
            let mut view = ModelView::for_replay(meter(), EventNaming::Messages);
            for (at, event) in events.iter().enumerate() {
                view.push(Arc::clone(event), meter().pieces(&event.event));
                if !matches!(event.event.fact, Fact::UserSaid { .. } | Fact::ToolReturned { .. }) {
                    continue;
                }
                let whole = project(&EventLine::new(events[..=at].iter().cloned()), meter(), EventNaming::Messages);
                let ceiling = Tokens(room) + view.context().tier_tokens(Tier::Prefix);
                let budget = policy.budget(Budget::new(ceiling));
                let moment = NextCall { standby: SummaryStatus::BuiltIn, ..NextCall::default() };
                if view.prepare(policy, &budget, &moment).is_ok() {
                    if !check_within(&whole, view.context(), ceiling) {
                        // What was cut for want of room stays cut: it was decided, and may be in a cache.
                        break;
                    }
                    view.sent(None);
                }
            }
        }
    }
}

#[test]
fn a_record_of_it_reads_back_as_it_was_written() {
    let events = with_standing(
        &crate::notation::read("user: Go.\nassistant: 40 words of \"done\"\nuser: More.\n"),
        &[Some(0), None],
    );
    let context = project(&EventLine::new(events), meter(), EventNaming::Messages);
    let mut folded = context.clone();
    folded.start_recording();
    let mut folded = folded.fold("test", std::slice::from_ref(&(0..2)), |_| "[gone]".to_owned());
    let records = folded.recorded();
    let json = serde_json::to_string(&records).unwrap();
    assert!(json.contains("house_rules"), "{json}");
    assert_eq!(serde_json::from_str::<Vec<epitome_core::context::RecordedChange>>(&json).unwrap(), records);
    assert_eq!(shown(&context.redo(&records)), shown(&folded));
    assert_eq!(
        serde_json::from_str::<StandingContext>(r#"{"pieces":[]}"#).unwrap(),
        StandingContext::default()
    );
}
