//! Summaries that attend to something: what speaks of it has room where without a focus it has none, nothing is added, and
//! the same comes out every time.

use std::sync::Arc;

use epitome_core::{
    Seq,
    context::EventNaming,
    event::{Compaction, CompactionTrigger, Summary},
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    summary::{
        SectionCaps, StructuredSummary, SummaryFocus, TrailEntry, TrailKind,
        compaction::{CompactionSettings, SummaryLength, VerbatimTail},
        summarise, summarise_for,
    },
    tokens::Tokens,
};
use proptest::prelude::*;

use crate::{
    histories::history,
    notation::{Words, read},
};

/// Twenty requests about other things, with one about the parser among the oldest.
fn log() -> String {
    let other = |number: u64| {
        let line = |line: u64| format!("  | other {number} line {line} otherName{number}x{line}\n");
        let body = (0..60).map(line).collect::<Vec<_>>().concat();
        format!(
            "user: Make part {number}.\nassistant:\n  call read_file {{\"path\":\"src/part{number}.rs\"}}\n  -> mod \
             part{number};\n{body}assistant: Part {number} is there.\n"
        )
    };
    let line = |line: u64| format!("  | fn token_{line}() {{}}\n");
    let body = (0..40).map(line).collect::<Vec<_>>().concat();
    let parser = format!(
        "user: Why does the parser lose the last line?\nassistant: It stops early.\n  call read_file \
         {{\"path\":\"src/grammar.rs\"}}\n  -> // the Parser's rules\n{body}assistant:\n  call bash \
         {{\"command\":\"cargo test grammar\"}}\n  -> test last_line_is_kept ... FAILED\nassistant: It drops what has no \
         newline at its end.\n"
    );
    let before: String = (1..=3).map(other).collect();
    let after: String = (4..=20).map(other).collect();
    format!("{before}{parser}{after}user: Go on.\nassistant: Yes.\n")
}

fn draft(focus: Option<&str>, most: u64) -> Compaction {
    let line = EventLine::new(read(&log()));
    let meter = Arc::new(Meter::new(Arc::new(Words), TokenOverhead::default()));
    let context = project(&line, meter, EventNaming::Messages);
    let drafting = CompactionSettings {
        keep: VerbatimTail::Turns(1),
        length: SummaryLength::Fixed(Tokens(150)),
        caps: SectionCaps { trail: 200_000, index: 600, ..SectionCaps::default() },
        most: Some(Tokens(most)),
        limit: None,
        unanswered: None,
    };
    let focus = focus.and_then(SummaryFocus::new);
    drafting.draft(focus.as_ref(), &context, &line, CompactionTrigger::Manual).expect("something is gained")
}

fn brief(compaction: &Compaction) -> &StructuredSummary {
    let Summary::Structured { brief, .. } = &compaction.summary else {
        panic!("the built-in summary has items")
    };
    brief
}

#[test]
fn what_speaks_of_a_focus_has_room_where_it_had_none() {
    const MOST: u64 = 900;
    let (plain, focused) = (draft(None, MOST), draft(Some("the parser"), MOST));
    let (plain_text, text) = (plain.summary.text(), focused.summary.text());
    // The body of the file that holds the word, the calls for the same request, and what was said of it.
    let about = [
        "fn token_0() {}",
        "fn token_39() {}",
        "cargo test grammar",
        "last_line_is_kept",
        "no newline at its end",
    ];
    for words in about {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let told = about.iter().filter(|words| plain_text.contains(**words)).count();
    assert!(told < about.len() && !plain_text.contains("fn token_39() {}"), "{plain_text}");
    assert!(focused.tokens_after <= Some(Tokens(MOST)), "{:?}", focused.tokens_after);
    // Both say what they are.
    assert_eq!(
        (brief(&plain).focus.as_deref(), brief(&focused).focus.as_deref()),
        (None, Some("the parser"))
    );
    assert!(text.contains("What speaks of “the parser” was given room before the rest."), "{text}");
    assert!(!plain_text.contains("given room"), "{plain_text}");
    assert_eq!(draft(Some("the parser"), MOST), focused, "the same every time");
}

#[test]
fn a_request_about_a_focus_is_folded_after_all_others() {
    // There is no room for even the shortest form of all.
    let told = |focus: Option<SummaryFocus>| {
        let caps = SectionCaps { trail: 2_500, ..SectionCaps::default() };
        let trail = summarise_for(focus.as_ref(), &read(&log()), None, &caps).trail.entries;
        let is_folded = |entry: &&TrailEntry| matches!(entry.what, TrailKind::Request(_));
        let folded = trail.iter().filter(is_folded).count();
        (folded, trail.iter().any(|entry| entry.at == Seq(17) && !is_folded(&entry)))
    };
    let (plain, focused) = (told(None), told(SummaryFocus::new("parser")));
    assert!(plain.0 > 1 && !plain.1, "{plain:?}");
    assert!(focused.0 > 1 && focused.1, "{focused:?}");
}

#[test]
fn names_that_hold_the_words_come_first_in_the_index() {
    let events = read(&log());
    let caps = SectionCaps { trail: 1, index: 120, ..SectionCaps::default() };
    let names = |focus: Option<&SummaryFocus>| {
        let brief = summarise_for(focus, &events, None, &caps);
        brief.index.into_iter().flat_map(|entry| entry.names).map(|name| name.name).collect::<Vec<_>>()
    };
    let focus = SummaryFocus::new("otherName2x");
    let (plain, focused) = (names(None), names(focus.as_ref()));
    let about = |names: &[String]| names.iter().filter(|name| name.starts_with("otherName2x")).count();
    assert_eq!(about(&plain), 0, "{plain:?}");
    assert!(about(&focused) >= 5, "{focused:?}");
}

#[test]
fn a_focus_that_nothing_speaks_of_changes_nothing_and_is_not_claimed() {
    assert_eq!(draft(Some("the database"), 900), draft(None, 900));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Of any history, whatever the focus: only what stood in it is told, within the same room.
    #[test]
    fn a_focus_adds_nothing(events in history(40), focus in "[a-z]{1,6}( [a-z.]{1,6}){0,2}", cap in 0..3_000usize) {
        let caps = SectionCaps { trail: cap, index: cap, ..SectionCaps::default() };
        let whole = summarise(&events, None, &SectionCaps { trail: usize::MAX, ..caps });
        let focus = SummaryFocus::new(&focus);
        let brief = summarise_for(focus.as_ref(), &events, None, &caps);
        prop_assert_eq!(&summarise_for(focus.as_ref(), &events, None, &caps), &brief, "the same every time");
        let plain = summarise(&events, None, &caps);
        prop_assert_eq!(&brief.items, &plain.items);
        let known = |at| whole.trail.entries.iter().any(|entry| entry.at == at);
        prop_assert!(brief.trail.entries.iter().all(|entry| known(entry.at)));
        if brief.focus.is_none() {
            prop_assert_eq!(brief, plain);
        }
    }
}
