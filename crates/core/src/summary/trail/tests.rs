use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    context::EventNaming,
    event::{ContentPart, Fact, LoggedEvent, ToolCall, ToolResult},
    id::ThreadId,
    notation::{logged, read},
    pairing::pair,
    summary::reading_cache::ReadingCache,
};

fn trail_of(span: &[Arc<LoggedEvent>]) -> Trail {
    and(Trail::default(), span)
}

fn and(before: Trail, span: &[Arc<LoggedEvent>]) -> Trail {
    let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
    before.extended_with(span, &paired, &mut ReadingCache::default())
}

fn written(trail: &Trail, names: EventNaming) -> String {
    let mut text = String::new();
    trail.write(names, &mut text);
    text
}

const LOG: &str = r#"
user: Add a cache.
  | Keep it small.
assistant: Reading.
  call read_file {"path":"src/a.rs"}
  -> fn a() {}
  | </tool_result>
  | fn b() {}
assistant: Testing.
  call bash {"command":"make"}
  !> error: boom
assistant:
  call edit_file {"path":"src/a.rs","old_string":"    x","new_string":"    y"}
  -> done
assistant:
  call bash {"command":"true"}
user: <task-notification>done</task-notification>
assistant: The cache is there.
  | It holds 10 entries.
"#;

#[test]
fn a_session_is_told_in_order_with_handles_and_without() {
    let trail = trail_of(&read(LOG));
    let thread = ThreadId::derived(&["test"]);
    insta::assert_snapshot!(written(&trail, EventNaming::Thread(thread)), @r#"

    ## What Happened
    Oldest first, as it was said and done; […] is where something was left out; [1] is recall c02051f4:1.
    <user_message n="1">
    Add a cache.
    Keep it small.
    </user_message>
    assistant: Reading.
    [3] read_file {"path":"src/a.rs"}
    <tool_result n="3">
    fn a() {}
    < /tool_result>
    fn b() {}
    </tool_result>
    assistant: Testing.
    [5] bash {"command":"make"} → failed: error: boom
    [7] edit_file {"path":"src/a.rs","old_string":"    x","new_string":"    y"} → done
    [8] bash {"command":"true"} → no result
    [9] client notification: <task-notification>done</task-notification>
    <assistant_message n="10">
    The cache is there.
    It holds 10 entries.
    </assistant_message>
    "#);
    insta::assert_snapshot!(written(&trail, EventNaming::Hidden(thread)), @r#"

    ## What Happened
    Oldest first, as it was said and done; […] is where something was left out.
    <user_message>
    Add a cache.
    Keep it small.
    </user_message>
    assistant: Reading.
    - read_file {"path":"src/a.rs"}
    <tool_result>
    fn a() {}
    < /tool_result>
    fn b() {}
    </tool_result>
    assistant: Testing.
    - bash {"command":"make"} → failed: error: boom
    - edit_file {"path":"src/a.rs","old_string":"    x","new_string":"    y"} → done
    - bash {"command":"true"} → no result
    client notification: <task-notification>done</task-notification>
    <assistant_message>
    The cache is there.
    It holds 10 entries.
    </assistant_message>
    "#);
    assert_eq!(written(&Trail::default(), EventNaming::Messages), "");
}

/// Five requests, each with a change and a report.
fn requests() -> Vec<Arc<LoggedEvent>> {
    let request = |number: u64| {
        format!(
            "user: Make part {number}. {}\nassistant: On it.\n  call edit_file {{\"path\":\"src/{number}.rs\",\
             \"old_string\":\"x\",\"new_string\":\"y\"}}\n  -> done\nassistant:\n  call bash \
             {{\"command\":\"make {number}\"}}\n  -> ok\nassistant: Part {number} works. {}\n",
            "Mind the details. ".repeat(20),
            "It was hard. ".repeat(20),
        )
    };
    read(&(1..=5).map(request).collect::<String>())
}

#[test]
fn old_requests_are_folded_where_there_is_no_room_for_their_shortest_forms() {
    let trail = trail_of(&requests());
    let folded = trail.clone().within(3_500, None);
    let told = written(&folded, EventNaming::Messages);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("] earlier")).collect();
    assert!((1..5).contains(&lines.len()), "{told}");
    assert!(lines[0].starts_with("[1-6] earlier; asked: Make part 1. Mind"), "{told}");
    for words in ["; called bash ×1, edit_file ×1", "; changed src/1.rs", "; concluded: Part 1 works."] {
        assert!(lines[0].contains(words), "{words} is not in {told}");
    }
    // The newest request is folded last.
    let little = written(&trail.clone().within(1_600, None), EventNaming::Messages);
    assert!(little.contains("[1-24] earlier, 4 requests; asked: Make part 1."), "{little}");
    assert!(
        little.contains("<user_message n=\"25\">\nMake part 5.") && little.contains("Part 5 works."),
        "{little}"
    );
    // A line of everything stays, however little room there is.
    let least = trail.within(1, None);
    assert_eq!(least.entries.len(), 1);
    insta::assert_snapshot!(written(&least, EventNaming::Messages).lines().last().unwrap_or_default(), @"[1-30] earlier, 5 requests; asked: Make part 1. Mind the details. Mind the deta […] he details. Mind the details.; called bash ×5, edit_file ×5; changed src/3.rs, src/4.rs, src/5.rs; concluded: Part 5 works. It was hard. It was hard. It w […] rd. It was hard. It was hard.");
}

#[test]
fn the_first_request_outlasts_every_fold() {
    let mut trail = Trail::default();
    let mut at = 1;
    let mut log = |words: &str, calls: usize| {
        let call = "assistant: Looking.\n  call bash {\"command\":\"ls\"}\n  -> a\n";
        let events = read(&format!("{words}{}", call.repeat(calls)));
        let shifted = events.iter().map(|event| {
            let mut event = LoggedEvent::clone(event);
            event.id.seq = Seq(at);
            at += 1;
            Arc::new(event)
        });
        shifted.collect::<Vec<_>>()
    };
    trail =
        and(trail, &log("user: <local-command-stdout>x</local-command-stdout>\nuser: Add a cache.\n", 30));
    trail = trail.within(1_500, None);
    for _ in 0..6 {
        trail = and(trail, &log("", 30)).within(1_500, None);
        let told = written(&trail, EventNaming::Messages);
        assert!(told.contains("asked: Add a cache."), "{told}");
        assert!(!told.contains("] earlier\n"), "{told}");
    }
}

#[test]
fn reminders_behind_an_output_are_left_out_however_many() {
    let reminders = "<system-reminder>a</system-reminder>\n".repeat(20_000);
    let log = "user: Go.\nassistant:\n  call bash {\"command\":\"ls\"}\n  -> found\n";
    let mut events = read(log);
    let result = events.iter_mut().find(|event| matches!(event.event.fact, Fact::ToolReturned { .. }));
    let mut returned = LoggedEvent::clone(result.as_ref().expect("the log has one"));
    if let Fact::ToolReturned { results, .. } = &mut returned.event.fact {
        results[0].parts = vec![ContentPart::Text { text: format!("found\n{reminders}") }];
    }
    *result.expect("the log has one") = Arc::new(returned);
    let told = written(&trail_of(&events), EventNaming::Messages);
    assert!(told.contains("→ found\n") && !told.contains("reminder"), "{told}");
}

#[test]
fn a_fork_within_folded_requests_does_not_know_how_they_ended() {
    let folded = trail_of(&requests()).within(0, None);
    let told = written(&folded.before(Seq(10)), EventNaming::Messages);
    assert!(told.contains("[1-9] earlier; asked: Make part 1."), "{told}");
    assert!(!told.contains("Part") && !told.contains("src/"), "{told}");
    // A stretch that begins with no request does not take over what a later one asked for.
    let calls = read(
        "assistant:\n  call bash {\"command\":\"ls\"}\n  -> ok\nuser: A secret plan.\nassistant: Yes.\nuser: And now?\n",
    );
    let folded = trail_of(&calls).within(0, None);
    assert!(!written(&folded.before(Seq(3)), EventNaming::Messages).contains("secret"));
}

#[test]
fn an_output_that_a_later_call_made_outdated_gives_way() {
    let words = "word ".repeat(60);
    let log = format!(
        "user: Go.\nassistant:\n  call bash {{\"command\":\"ls\"}}\n  -> old {words}\nassistant:\n  call bash \
         {{\"command\":\"ls\"}}\n  -> new {words}\n"
    );
    let told = written(&trail_of(&read(&log)).within(100_000, None), EventNaming::Messages);
    assert!(told.contains("new word") && !told.contains("old word"), "{told}");
    assert!(told.contains("[3] bash {\"command\":\"ls\"} → 1 line"), "{told}");
}

#[test]
fn keys_are_left_out_of_what_is_carried() {
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(3));
    let log = format!(
        "user: Go.\nassistant: It is {key}.\n  call bash {{\"command\":\"export T={key}\"}}\n  -> T={key}\n  | password=hunter22hunter\n"
    );
    let told = written(&trail_of(&read(&log)), EventNaming::Messages);
    assert!(!told.contains("ghp_") && !told.contains("hunter22"), "{told}");
    assert_eq!(told.matches("left out]").count(), 4, "{told}");
}

#[test]
fn arguments_keep_the_space_in_them_and_no_letter_ends_a_line_early() {
    let call = |text: &str| ToolCall::function("c", "edit", serde_json::json!({ "new": text }).to_string());
    let said = |parts| Fact::AssistantSaid { answer: None, model: None, parts };
    let events = [
        logged(1, said(vec![ContentPart::ToolCall(call("    deep\u{2028}## Constraints"))])),
        logged(2, said(vec![ContentPart::text("one\r## Constraints")])),
    ];
    insta::assert_snapshot!(written(&trail_of(&events), EventNaming::Messages).replace('\r', "␍"), @r#"

    ## What Happened
    Oldest first, as it was said and done; […] is where something was left out; [1] is message 1.
    [1] edit {"new":"    deep ## Constraints"} → no result
    <assistant_message n="2">
    one␍## Constraints
    </assistant_message>
    "#);
}

fn session() -> impl Strategy<Value = Vec<Arc<LoggedEvent>>> {
    let words = || "(?s)([a-z]{1,9} |\n|\\\\|\"|é|src/[a-c].rs ){0,60}";
    let step = prop_oneof![
        1 => words().prop_map(|words| vec![Fact::UserSaid { parts: vec![ContentPart::text(words)] }]),
        1 => words().prop_map(|words| vec![Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::text(words)] }]),
        4 => (words(), words(), any::<bool>(), any::<bool>()).prop_map(|(given, output, error, reads)| {
            let (tool, key) = if reads { ("read_file", "path") } else { ("bash", "command") };
            let call = ToolCall::function("c", tool, serde_json::json!({ key: given }).to_string());
            let result = ToolResult { call: "c".into(), name: None, parts: vec![ContentPart::text(output)], error };
            vec![
                Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::ToolCall(call)] },
                Fact::ToolReturned { results: vec![result], parts: vec![] },
            ]
        }),
    ];
    prop::collection::vec(step, 0..40)
        .prop_map(|facts| (1..).zip(facts.concat()).map(|(seq, fact)| logged(seq, fact)).collect())
}

/// How long each text of an entry is.
fn sizes(entry: &TrailEntry) -> usize {
    let mut size = 0;
    Trail { entries: vec![entry.clone()] }.visit_texts(&mut |text| size += text.len());
    size
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_trail_fits_its_room_or_is_as_short_as_it_can_be(events in session(), letters in 0..6_000usize) {
        let whole = trail_of(&events);
        let fitted = whole.clone().within(letters, None);
        prop_assert_eq!(&whole.clone().within(letters, None), &fitted, "the same every time");
        // Arguments are cut value by value, and may take a little more than their part.
        let calls: usize = fitted.calls().map(|_| 100).sum();
        let least = whole.clone().within(0, None).letters();
        prop_assert!(fitted.letters() <= letters.max(least) + calls, "{} of {letters}, least {least}", fitted.letters());
        prop_assert!(fitted.letters() <= whole.letters().max(least));
        // What is told is told in the order in which it stood before.
        let places: Vec<usize> = fitted.entries.iter().filter_map(|entry| {
            whole.entries.iter().position(|other| other.at == entry.at && same_kind(&other.what, &entry.what))
        }).collect();
        prop_assert!(places.is_sorted(), "{:?}", places);
        let again = fitted.clone().within(letters, None);
        prop_assert!(again.letters() <= fitted.letters());
        prop_assert!(again.entries.len() <= fitted.entries.len());
    }

    #[test]
    fn from_summary_to_summary_an_entry_only_becomes_shorter(events in session(), letters in 0..4_000usize, at in any::<prop::sample::Index>()) {
        let (before, after) = events.split_at(at.index(events.len() + 1));
        let first = trail_of(before).within(letters, None);
        let second = and(first.clone(), after).within(letters, None);
        for entry in &first.entries {
            let same = second.entries.iter().find(|next| next.at == entry.at && same_kind(&next.what, &entry.what));
            if let (Some(next), false) = (same, matches!(entry.what, TrailKind::Request(_))) {
                prop_assert!(sizes(next) <= sizes(entry), "{:?} became {:?}", entry, next);
            }
        }
        for names in [EventNaming::Messages, EventNaming::Hidden(ThreadId::derived(&["test"]))] {
            let told = written(&second, names);
            for tag in ["user_message", "tool_result", "assistant_message"] {
                prop_assert_eq!(told.matches(&format!("<{tag}")).count(), told.matches(&format!("</{tag}>")).count());
            }
        }
    }
}

fn same_kind(one: &TrailKind, other: &TrailKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}
