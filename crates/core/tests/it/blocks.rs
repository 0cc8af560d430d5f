//! What holds of blocks, over generated histories: they are the same each time, put over a context twice they change
//! nothing, and as a session goes on what they say of old loops stays as it is.

use std::{fmt::Write as _, sync::Arc};

use epitome_core::{
    context::{Context, ContextNote, EventNaming, ExtendOutcome, Fidelity, Segment, SegmentBody},
    event::{LoggedEvent, Timestamp},
    loop_blocks::{
        BlockConfig, BlockMessage, CompactionScope, LoopChain, build_context, compact_loops, resolve_scope,
    },
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    tokens::{EstimateCounter, Tokens},
};
use proptest::prelude::*;

use crate::{
    histories::history,
    notation::{context, read, show},
};

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(EstimateCounter), TokenOverhead::default()))
}

fn whole(events: &[Arc<LoggedEvent>]) -> Context {
    project(&EventLine::new(events.iter().cloned()), meter(), EventNaming::Messages)
}

fn blocked(context: Context, config: &BlockConfig, max: Tokens) -> Context {
    let overlay = compact_loops(&context, config, max);
    build_context(context, &overlay)
}

fn assert_same(one: &Context, other: &Context) {
    assert_eq!(show(one), show(other));
    assert_eq!(one.segments(), other.segments());
    assert_eq!(one.elided(), other.elided());
    assert_eq!(one.changes(), other.changes());
}

fn config() -> impl Strategy<Value = BlockConfig> {
    let scope =
        prop_oneof![(0..4usize).prop_map(CompactionScope::FixedCount), Just(CompactionScope::TokenBudget),];
    (scope, 0..3usize, 0..4usize, 20..400u64, 0..8usize, any::<bool>()).prop_map(
        |(scope, first, recent, summary, lines, keep)| BlockConfig {
            compaction_scope: scope,
            keep_first_turns: first,
            keep_recent_turns: recent,
            max_summary_tokens: Tokens(summary),
            tool_output_max_lines: lines,
            keep_user_messages: keep,
            ..BlockConfig::default()
        },
    )
}

/// A session as agents have them: requests, each with some turns, each turn with words, and calls with results.
fn session(loops: usize) -> impl Strategy<Value = Vec<String>> {
    let turn = (1..60usize, prop::option::of((0..3usize, 1..40usize))).prop_map(|(words, call)| {
        let mut log = format!("assistant: {words} words of \"say\"\n");
        if let Some((tool, lines)) = call {
            let call =
                ["bash {\"command\":\"make\"}", "read_file {\"path\":\"a.rs\"}", "other {\"x\":1}"][tool];
            let _ = writeln!(log, "  call {call}\n  -> {lines} lines of \"out\"");
        }
        log
    });
    let one = (1..40usize, prop::collection::vec(turn, 1..12))
        .prop_map(|(asked, turns)| format!("user: {asked} words of \"ask\"\n{}", turns.concat()));
    prop::collection::vec(one, 1..loops)
}

fn notes(context: &Context) -> Vec<&ContextNote> {
    let notes = context.segments().iter().filter_map(|segment| match segment.body() {
        SegmentBody::Note(note) => Some(note),
        _ => None,
    });
    notes.collect()
}

/// The turns that a note tells, by the numbers of its lines.
fn told(note: &ContextNote) -> u64 {
    let turns = |line: &str| {
        let head = line.split(": ").next().unwrap_or_default();
        let joined = head.split_once(" (").and_then(|(_, turns)| turns.strip_suffix(" turns)"));
        joined.map_or(1, |turns| turns.parse().expect("a number of turns"))
    };
    note.text.lines().skip(1).map(turns).sum()
}

proptest! {
    #[test]
    fn the_same_context_gets_the_same_blocks(events in history(40), config in config(), max in 0..4_000u64) {
        let (one, other) = (whole(&events), whole(&events));
        let overlay = compact_loops(&one, &config, Tokens(max));
        prop_assert_eq!(&overlay, &compact_loops(&other, &config, Tokens(max)));
        let before = show(&one);
        assert_same(&build_context(one, &overlay), &build_context(other.clone(), &overlay));
        prop_assert_eq!(before, show(&other), "making blocks changes nothing");
    }

    #[test]
    fn blocks_over_blocks_change_nothing(events in history(60), config in config(), max in 0..4_000u64) {
        let once = blocked(whole(&events), &config, Tokens(max));
        assert_same(&blocked(once.clone(), &config, Tokens(max)), &once);
    }

    #[test]
    fn blocks_lose_no_event(events in history(60), config in config(), max in 0..4_000u64) {
        let context = whole(&events);
        let accounted = context.accounted();
        let made = blocked(context.clone(), &config, Tokens(max));
        prop_assert_eq!(made.accounted(), accounted);
        prop_assert_eq!(made.find_inconsistency(), None);
        prop_assert_eq!(made.elided(), context.elided(), "nothing is left out without a line");
        prop_assert!(made.tokens() <= context.tokens());
    }

    /// However a session goes on, the lines of a loop that is past stay as they are, byte for byte.
    #[test]
    fn what_is_told_of_past_loops_stays_byte_for_byte(loops in session(7), config in config()) {
        let config = BlockConfig { compaction_scope: CompactionScope::FixedCount(usize::MAX), ..config };
        let events = read(&loops.concat());
        let mut context = project(&EventLine::default(), meter(), EventNaming::Messages);
        let mut past: Vec<String> = Vec::new();
        for event in &events {
            prop_assert_eq!(context.extend(event, None), ExtendOutcome::Grown);
            context = blocked(context, &config, Tokens::MAX);
            let chain = LoopChain::of(&context);
            let records: Vec<_> = chain.records().collect();
            let Some((_, earlier)) = records.split_last() else { continue };
            let now: Vec<String> = earlier
                .iter()
                .map(|record| format!("{:?}", record.segments().iter().map(Segment::body).collect::<Vec<_>>()))
                .collect();
            prop_assert!(now.starts_with(&past), "\n{}\nwas\n{}", now.join("\n"), past.join("\n"));
            past = now;
            for note in notes(&context).into_iter().filter(|note| note.text.contains('\n')) {
                prop_assert_eq!(told(note), note.folded.turn_count(), "{}", &note.text);
            }
        }
        prop_assert_eq!(context.find_inconsistency(), None);
    }

    /// Every turn of a loop that is told is in one of its lines, within the limit.
    #[test]
    fn every_turn_of_a_told_loop_has_a_line(loops in session(4), limit in 60..600u64) {
        let config = BlockConfig {
            max_summary_tokens: Tokens(limit),
            keep_first_turns: 0,
            keep_recent_turns: 0,
            ..BlockConfig::default()
        };
        let whole = whole(&read(&format!("{}assistant: Done.\nuser: Now.\n", loops.concat())));
        let turns = whole.last_turn();
        let made = blocked(whole, &config, Tokens::MAX);
        let raw = made.segments().iter().filter(|segment| segment.is_answer()).map(Segment::turn);
        let mut raw: Vec<u64> = raw.collect();
        raw.dedup();
        let mut told_turns = 0;
        for note in notes(&made) {
            prop_assert!(meter().text(&note.text) <= Tokens(limit), "{}", note.text);
            let lines = if note.text.contains('\n') { told(note) } else { note.folded.turn_count() };
            prop_assert_eq!(lines, note.folded.turn_count(), "{}", &note.text);
            told_turns += lines;
        }
        prop_assert_eq!(told_turns + raw.len() as u64, turns);
    }

    /// The told loops fit where the scope says they do, though their originals may not.
    #[test]
    fn a_scope_by_tokens_holds_what_fits_once_it_is_told(loops in session(8), max in 200..3_000u64) {
        let config = BlockConfig {
            compaction_scope: CompactionScope::TokenBudget,
            keep_first_turns: 0,
            keep_recent_turns: 1,
            max_summary_tokens: Tokens(150),
            ..BlockConfig::default()
        };
        let whole = whole(&read(&loops.concat()));
        let chain = LoopChain::of(&whole);
        let scope = resolve_scope(&chain, &config, Tokens(max));
        let earlier = chain.records().count() - 1;
        prop_assert!(scope <= earlier);
        prop_assert_eq!(resolve_scope(&chain, &config, Tokens::MAX), earlier);
        prop_assert!(scope <= resolve_scope(&chain, &config, Tokens(max + 100)), "more room, no fewer loops");
        let made = blocked(whole.clone(), &config, Tokens(max));
        if scope > 0 {
            // Beside what fits there is only the line for the loops beyond.
            prop_assert!(made.tokens() <= Tokens(max + 60), "{}", show(&made));
        }
    }
}

const LOOPS: &str = r#"
user: One is the first request.
assistant: 40 words of "one"
user: Two is the second request.
assistant: 40 words of "two"
user: Three is the third request.
assistant: 40 words of "three"
user: Four is the fourth request.
assistant: 40 words of "four"
  call bash {"command":"x"}
  -> 60 lines of "x"
assistant: 40 words of "last"
"#;

fn small(scope: CompactionScope) -> BlockConfig {
    BlockConfig {
        compaction_scope: scope,
        keep_first_turns: 0,
        keep_recent_turns: 1,
        max_summary_tokens: Tokens(30),
        ..BlockConfig::default()
    }
}

#[test]
fn the_most_recent_loop_has_three_sections_and_earlier_ones_one() {
    let config = BlockConfig { keep_first_turns: 1, keep_recent_turns: 1, ..BlockConfig::default() };
    let log = "user: One.\nassistant: 60 words of \"old\"\nuser: Go.\nassistant: 60 words of \"a\"\nassistant: 60 words of \"b\"\nassistant: 60 words of \"c\"\n";
    let overlay = compact_loops(&context(log), &config, Tokens::MAX);
    let json = serde_json::to_string_pretty(&overlay.loops.iter().map(|one| &one.block).collect::<Vec<_>>())
        .unwrap();
    insta::assert_snapshot!(json, @r#"
    [
      {
        "keep_first": null,
        "keep_compacted": {
          "range": {
            "start_turn": 0,
            "end_turn": 0
          },
          "messages": [
            {
              "note": {
                "of": {
                  "start": 0,
                  "end": 2
                },
                "text": "[1 turn in short, 61 tokens in full; messages 1-2, or a line by its numbers]\n1-2: asked: One.; said: old old old old old old old o…"
              }
            }
          ]
        },
        "keep_recent": null,
        "created_at": null
      },
      {
        "keep_first": {
          "start_turn": 0,
          "end_turn": 0
        },
        "keep_compacted": {
          "range": {
            "start_turn": 1,
            "end_turn": 1
          },
          "messages": [
            {
              "note": {
                "of": {
                  "start": 2,
                  "end": 3
                },
                "text": "[1 turn in short, 60 tokens in full; message 5, or a line by its numbers]\n5: said: b b b b b b b b b…"
              }
            }
          ]
        },
        "keep_recent": {
          "range": {
            "start_turn": 2,
            "end_turn": 2
          },
          "messages": [
            {
              "original": 3
            }
          ]
        },
        "created_at": null
      }
    ]
    "#);
}

#[test]
fn first_turns_keep_their_outputs_and_recent_ones_are_cut() {
    let config = BlockConfig { keep_first_turns: 1, keep_recent_turns: 2, ..BlockConfig::default() };
    let turn = "assistant: Look.\n  call bash {\"command\":\"make\"}\n  -> 90 lines of \"x\"\n";
    // The last results are answered, so that the model has read them.
    let log = format!("user: Go.\n{turn}{turn}{turn}assistant: Read.\n");
    let made = blocked(context(&log), &config, Tokens::MAX);
    assert_eq!(made.segments()[2].fidelity(), Fidelity::Verbatim);
    let cut = &made.segments()[made.segments().len() - 2];
    assert_eq!((cut.fidelity(), cut.last_author()), (Fidelity::Cut, Some("blocks")));
    let text = format!("{:?}", cut.shown());
    assert!(text.contains(r"x 25\n[… 40 lines, 80 tokens left out; message 7 …]\nx 66\n"), "{text}");
}

#[test]
fn a_loop_without_a_block_gives_its_raw_messages() {
    let log = "user: One.\nassistant: Yes.\nuser: Two.\nassistant: Yes.\nuser: Three.\nassistant: Yes.\n";
    let config = BlockConfig { compaction_scope: CompactionScope::FixedCount(1), ..BlockConfig::default() };
    let overlay = compact_loops(&context(log), &config, Tokens::MAX);
    assert_eq!(overlay.loops[0].block.keep_compacted, None);
    assert_same(&build_context(context(log), &overlay), &context(log));
}

#[test]
fn a_block_is_as_old_as_the_newest_event_it_could_know_of() {
    let at = |time: Option<i64>, event: &Arc<LoggedEvent>| {
        let mut event = LoggedEvent::clone(event);
        event.event.time = time.map(Timestamp);
        Arc::new(event)
    };
    let events = read("user: One.\nassistant: Yes.\nuser: Two.\n");
    let events = [at(Some(3), &events[0]), at(Some(7), &events[1]), at(None, &events[2])];
    let overlay = compact_loops(&whole(&events), &BlockConfig::default(), Tokens::MAX);
    assert_eq!(overlay.loops[0].block.created_at, Some(Timestamp(7)));
}

#[test]
fn a_scope_is_a_number_of_earlier_loops_or_what_fits() {
    let context = context(LOOPS);
    let chain = LoopChain::of(&context);
    let check = |scope, max, expect| {
        assert_eq!(resolve_scope(&chain, &small(scope), Tokens(max)), expect, "{scope:?} of {max}");
    };
    check(CompactionScope::FixedCount(2), 0, 2);
    check(CompactionScope::FixedCount(9), 0, 3);
    // The most recent loop needs 30 for its middle, its request, which is held, and 40 for its last turn; each earlier one
    // 30, not its 45.
    let recent = chain.records().last().unwrap();
    let request = recent.segments()[0].tokens().0;
    check(CompactionScope::TokenBudget, 99 + request, 0);
    check(CompactionScope::TokenBudget, 100 + request, 1);
    check(CompactionScope::TokenBudget, 159 + request, 2);
    check(CompactionScope::TokenBudget, 160 + request, 3);
}

#[test]
fn loops_beyond_the_scope_are_one_line_that_grows() {
    let config = small(CompactionScope::FixedCount(1));
    let once = blocked(context(LOOPS), &config, Tokens::MAX);
    insta::assert_snapshot!(show(&once), @r"
    note        1-4     summary      15 by blocks  [2 turns are not shown: 4 messages, 2 from the user; 90 tokens; messages 1-4]
    note        5-6     summary      22 by blocks  [1 turn in short, 45 tokens in full; messages 5-6, or a line by its numbers] / 5-6: asked: Three is the thir…
    user        7       verbatim      5  Four is the fourth request.
    note        8-9     summary      29 by blocks  [1 turn in short, 162 tokens in full; messages 8-9, or a line by its numbers] / 8-9: bash x → 60 lines, x 60; said: four four four fo…
    answer      10      verbatim     40  last last last last last last last last last last last last last last last last last last last last  ……  last last last last last last last last
    total 111
    ");
    let events = read(&format!("{LOOPS}user: Five.\nassistant: 40 words of \"five\"\n"));
    let mut grown = once;
    for event in &events {
        let _ = grown.extend(event, None);
    }
    insta::assert_snapshot!(show(&blocked(grown, &config, Tokens::MAX)), @r"
    note        1-6     summary      15 by blocks  [3 turns are not shown: 6 messages, 3 from the user; 135 tokens; messages 1-6]
    note        7-10    summary      29 by blocks  [2 turns in short, 207 tokens in full; messages 7-10, or a line by its numbers] / 7-10 (2 turns): asked: Four is the fourt… | said: last last last…
    user        11      verbatim      1  Five.
    answer      12      verbatim     40  five five five five five five five five five five five five five five five five five five five five  ……  five five five five five five five five
    total 85
    ");
}

#[test]
fn what_is_pinned_or_open_stays_between_the_lines() {
    let log = r#"
user: One is the first request.
assistant: 40 words of "one"
assistant: 20 words of "pinned"
  call bash {"command":"pinned"}
  -> 20 words of "result"
instruct: Speak French.
assistant: 40 words of "more"
pin 4
user: Two.
assistant: 40 words of "two"
  call bash {"command":"open"}
  -> 60 lines of "x"
"#;
    let config = BlockConfig { keep_first_turns: 0, keep_recent_turns: 0, ..BlockConfig::default() };
    insta::assert_snapshot!(show(&blocked(context(log), &config, Tokens::MAX)), @r#"
    note        1-2     summary      22 by blocks  [1 turn in short, 45 tokens in full; messages 1-2, or a line by its numbers] / 1-2: asked: One is the first…
    answer      3       verbatim     20  pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned pinned
    exchange    3-4     verbatim     22  bash {"command":"pinned"} -> result result result result result result result result result result result result result result result result result result result result
    instruction 5       verbatim      2  Speak French.
    note        6       summary      11 by blocks  [1 turn is not shown: 1 message; 40 tokens; message 6]
    user        8       verbatim      1  Two.
    answer      9       verbatim     40  two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two two
    exchange    9-10    verbatim    122  bash {"command":"open"} -> x 1 / x 2 / x 3 / x 4 / x 5 / x 6 / x 7 / x 8 / x 9 / x 10 / x 11 / x 12 / x 13 / x 14 / x 15 / x 16 ……  x 55 / x 56 / x 57 / x 58 / x 59 / x 60
    total 240
    "#);
}

#[test]
fn a_block_message_says_what_stands_where() {
    let config = small(CompactionScope::FixedCount(3));
    let overlay = compact_loops(&context(LOOPS), &config, Tokens::MAX);
    let recent = overlay.loops.last().unwrap();
    let section = recent.block.keep_compacted.as_ref().unwrap();
    let [BlockMessage::Original(0), BlockMessage::Note { of, .. }] = section.messages.as_slice() else {
        panic!("the newest message stays and the rest is told, not {:?}", section.messages);
    };
    assert_eq!(*of, 1..3);
}
