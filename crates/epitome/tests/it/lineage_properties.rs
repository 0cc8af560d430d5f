//! What holds of every fork, undo and redo, whatever happened: tried on generated histories in which every event says a
//! word of its own.

use std::{collections::BTreeSet, sync::Arc};

use epitome::{
    core::{
        ContentPart, Event, Fact, LoggedEvent, Seq, Tokens,
        context::{EventNaming, SegmentBody},
        event::{Compaction, CompactionTrigger, Pin, Summary},
        projection::{EventLine, project},
        seq_set::SeqSet,
        summary::{
            SummaryItem, SummarySection,
            compaction::{CompactionSettings, SummaryLength, VerbatimTail},
        },
    },
    lineage::{ForkDraftSettings, ForkMode, fork, line_until, redo, undo},
};
use proptest::{prelude::*, sample::Index};

use crate::{
    notation::{logged, meter, show},
    some_histories::history,
};

/// The word that only event `seq` says.
fn mark(seq: Seq) -> String {
    format!("mark{seq}x")
}

/// Lets an event say its own word, wherever it says anything.
fn marked(fact: &mut Fact, seq: Seq) {
    let mark = mark(seq);
    let say = |parts: &mut Vec<ContentPart>| {
        for part in parts.iter_mut() {
            match part {
                ContentPart::Text { text }
                | ContentPart::Refusal { text }
                | ContentPart::Reasoning { text, .. } => {
                    // Between sentences, so that whatever is told of it tells the word too.
                    *text = format!("{text} We decided to use {mark} because never mind. TODO: {mark}.");
                }
                ContentPart::ToolCall(call) => {
                    call.arguments = format!("{{\"path\":\"src/{mark}.rs\",\"command\":\"make {mark}\"}}");
                }
                ContentPart::Opaque { json, .. } => *json = format!("\"{mark}\""),
                ContentPart::Media(_) => {}
            }
        }
    };
    match fact {
        Fact::UserSaid { parts }
        | Fact::AssistantSaid { parts, .. }
        | Fact::Injected { parts, .. }
        | Fact::Instructed { parts, .. } => say(parts),
        Fact::ToolReturned { results, parts } => {
            say(parts);
            for result in results {
                say(&mut result.parts);
            }
        }
        Fact::Pinned { pin: Pin::Text(text) } => *text = mark,
        Fact::CompactionRequested { focus, .. } => *focus = Some(mark),
        _ => {}
    }
}

fn drafting(turns: u64) -> CompactionSettings {
    CompactionSettings {
        keep: VerbatimTail::Turns(turns),
        length: SummaryLength::Fixed(Tokens(150)),
        ..CompactionSettings::default()
    }
}

/// A thread in which every event says its own word, and where, at some places, what happened so far was compacted: by the
/// built-in summariser, and by somebody who adds what they know from everywhere.
fn thread(events: &[Arc<LoggedEvent>], places: &[(Index, u64)]) -> EventLine {
    let compacted: BTreeSet<usize> = places.iter().map(|(at, _)| at.index(events.len().max(1))).collect();
    let mut line = EventLine::default();
    let mut head = Seq::START;
    for (at, event) in events.iter().enumerate() {
        let mut fact = event.event.fact.clone();
        // Places in generated events are nonsense on purpose; here the summaries are to be good ones.
        if matches!(fact, Fact::Compacted(_)) {
            continue;
        }
        head = head.next();
        marked(&mut fact, head);
        line.push_uncounted(logged(head.0, fact));
        if compacted.contains(&at) {
            let context = project(&line, meter(), EventNaming::Messages);
            if let Ok(mut compaction) = drafting(1).draft(None, &context, &line, CompactionTrigger::Threshold)
            {
                give_away(&mut compaction, head);
                head = head.next();
                line.push_uncounted(logged(head.0, Fact::Compacted(compaction)));
            }
        }
    }
    line
}

/// Adds items that tell of every event and name the first one as their source.
fn give_away(compaction: &mut Compaction, head: Seq) {
    let Summary::Structured { brief, .. } = &mut compaction.summary else { return };
    for told in 1..=head.0 {
        brief.items.push(SummaryItem {
            section: SummarySection::KeyDecisions,
            text: format!("Chose {} in the end.", mark(Seq(told))),
            key: None,
            sources: SeqSet::one(Seq(1)),
            detail: None,
        });
    }
}

fn forked(line: &EventLine, at: Seq, mode: ForkMode, turns: u64) -> (EventLine, Vec<Event>) {
    let (meter, drafting) = (meter(), drafting(turns));
    let drafter = ForkDraftSettings { drafting: &drafting, meter: &meter, names: EventNaming::Messages };
    let events = fork(line, at, mode, &drafter);
    let mut shared = line_until(line, at);
    for (seq, event) in (at.0 + 1..).zip(&events) {
        shared.push_uncounted(logged(seq, event.fact.clone()));
    }
    (shared, events)
}

fn head(line: &EventLine) -> Seq {
    line.last().map_or(Seq::START, |last| last.id.seq)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_from_after_a_fork_is_known_in_it(
        events in history(40),
        places in prop::collection::vec((any::<Index>(), 1..4u64), 1..4),
        at in any::<Index>(),
        turns in 1..4u64,
    ) {
        let line = thread(&events, &places);
        let at = Seq(at.index(usize::try_from(head(&line).0).unwrap() + 1) as u64);
        for mode in [ForkMode::SummaryIfCompacted, ForkMode::WithSummary, ForkMode::InFull] {
            let (fork, appended) = forked(&line, at, mode, turns);
            let context = format!("{:?}", project(&fork, meter(), EventNaming::Messages).segments());
            let facts: String = appended.iter().map(Event::fact_json).collect();
            // What an event was to say and did not, having no words, nobody can know; nor is it a secret.
            let later = line.events().filter(|event| at < event.id.seq && event.event.fact.is_message());
            let marks = later.map(|event| (mark(event.id.seq), event.event.fact.text()));
            for (mark, _) in marks.filter(|(mark, text)| text.contains(mark)) {
                prop_assert!(!context.contains(&mark), "{} is shown after a fork at {}\n{}", mark, at, context);
                prop_assert!(!facts.contains(&mark), "{} is carried over a fork at {}\n{}", mark, at, facts);
            }
        }
    }

    #[test]
    fn a_fork_with_the_summary_is_smaller_and_accounts_for_everything(
        events in history(40),
        places in prop::collection::vec((any::<Index>(), 1..4u64), 1..4),
        at in any::<Index>(),
        turns in 1..4u64,
    ) {
        let line = thread(&events, &places);
        let at = Seq(at.index(usize::try_from(head(&line).0).unwrap() + 1) as u64);
        let shared = project(&line_until(&line, at), meter(), EventNaming::Messages);
        for mode in [ForkMode::SummaryIfCompacted, ForkMode::WithSummary] {
            let (fork, appended) = forked(&line, at, mode, turns);
            let context = project(&fork, meter(), EventNaming::Messages);
            prop_assert_eq!(context.find_inconsistency(), None);
            prop_assert!(appended.is_empty() || context.tokens() < shared.tokens());
            if let [Event { fact: Fact::Compacted(compaction), .. }] = &appended[..] {
                prop_assert_eq!(compaction.tokens_after, Some(context.tokens()));
                prop_assert!(compaction.through <= at);
            }
            let messages =
                fork.events().filter(|event| event.event.fact.is_message() && event.event.normal.is_some());
            for event in messages {
                prop_assert!(context.accounted().contains(event.id.seq), "{} is lost", event.id.seq);
            }
        }
    }

    #[test]
    fn a_fork_in_full_stands_on_no_summary(
        events in history(40),
        places in prop::collection::vec((any::<Index>(), 1..4u64), 1..4),
        at in any::<Index>(),
    ) {
        let line = thread(&events, &places);
        let at = Seq(at.index(usize::try_from(head(&line).0).unwrap() + 1) as u64);
        let (fork, _) = forked(&line, at, ForkMode::InFull, 1);
        let context = project(&fork, meter(), EventNaming::Messages);
        let summary = context.segments().iter().any(|segment| matches!(segment.body(), SegmentBody::Summary(_)));
        prop_assert!(!summary);
    }

    #[test]
    fn whatever_was_undone_one_by_one_comes_back_one_by_one(
        events in history(40),
        places in prop::collection::vec((any::<Index>(), 1..4u64), 1..5),
    ) {
        let mut line = thread(&events, &places);
        let shown = |line: &EventLine| show(&project(line, meter(), EventNaming::Messages));
        let append = |line: &mut EventLine, event: Event| line.push_uncounted(logged(head(line).next().0, event.fact));
        let mut states = Vec::new();
        // Whatever the history has undone itself stays so.
        while let Ok(event) = undo(&line) {
            states.push(shown(&line));
            append(&mut line, event);
        }
        while let Some(before) = states.pop() {
            let event = redo(&line).unwrap();
            append(&mut line, event);
            prop_assert_eq!(shown(&line), before);
        }
    }
}
