//! Hand-written sessions, a rule each.

use insta::assert_snapshot;

use super::*;
use crate::transcripts::testing::{grows, reading, shown};

/// Lines of one session: the common members are added to each, with `uuid` and `parentUuid` from its first two words.
fn session(lines: &[&str]) -> String {
    let line = |(index, line): (usize, &&str)| {
        let (uuid, rest) = line.split_once(' ').expect("a name");
        let (parent, members) = rest.split_once(' ').expect("a parent");
        let parent = if parent == "-" { "null".to_owned() } else { format!("\"{parent}\"") };
        let time = format!("2026-02-07T00:00:{:02}Z", index % 60);
        format!(
            "{{\"parentUuid\":{parent},\"isSidechain\":false,\"sessionId\":\"{SESSION}\",\"uuid\":\"{uuid}\",\
             \"timestamp\":\"{time}\",{members}}}\n"
        )
    };
    lines.iter().enumerate().map(line).collect()
}

const SESSION: &str = "030e1e67-6bf0-492d-8bd3-cc3383ec93ab";

fn user(text: &str) -> String {
    format!(r#""type":"user","message":{{"role":"user","content":"{text}"}}"#)
}

/// An operation on the queue of text typed during an answer.
fn operation(operation: &str, content: &str) -> String {
    format!(
        "{{\"type\":\"queue-operation\",\"operation\":\"{operation}\",\"sessionId\":\"{SESSION}\",\
         \"timestamp\":\"2026-02-07T00:00:30Z\"{content}}}\n"
    )
}

/// Lines of every kind.
pub(crate) fn lines() -> String {
    let queue = [operation("enqueue", ",\"content\":\"write tests\""), operation("remove", "")].concat();
    [attached(), compacted(), forked(), spawned(), queue].concat()
}

/// The reading of a text, which must stay the same while the text grows.
#[track_caller]
fn grown(text: &str) -> String {
    grows(read, text);
    shown(&reading(read, text))
}

#[test]
fn lines_of_one_answer_are_fragments_and_usage_is_told_when_it_changes() {
    let text = session(&[
        &format!("u1 - {}", user("look")),
        r#"a1 u1 "type":"assistant","message":{"model":"opus","id":"msg_1","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"}],"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":20,"output_tokens":1}}"#,
        r#"a2 a1 "type":"assistant","message":{"model":"opus","id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}],"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":20,"output_tokens":1}}"#,
        r#"r1 a2 "type":"user","toolUseResult":{"file":"a"},"message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"A"}]}"#,
        r#"a3 a2 "type":"assistant","message":{"model":"opus","id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"t2","name":"Read","input":{"path":"b"}}],"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":20,"output_tokens":40}}"#,
        r#"r2 a3 "type":"user","toolUseResult":"Error: no","message":{"role":"user","content":[{"tool_use_id":"t2","type":"tool_result","content":"no","is_error":true}]}"#,
        r#"a4 r2 "type":"assistant","message":{"model":"opus","id":"msg_2","type":"message","role":"assistant","content":[{"type":"text","text":"B is gone."}]}"#,
        r#"a4 r2 "type":"assistant","message":{"model":"opus","id":"msg_2","type":"message","role":"assistant","content":[{"type":"text","text":"B is gone."}]}"#,
    ]);
    assert_snapshot!(grown(&text), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "look"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus <hm signed sig>
      3 [a1 @1000 anthropic] usage_reported msg_1/opus 3+10+20>1
      4 [a2 @2000 anthropic] assistant_said msg_1/opus Read(t1 {"path":"a"})
      5 [r1 @3000 anthropic] tool_returned t1 "A"
      6 [a3 @4000 anthropic] assistant_said msg_1/opus Read(t2 {"path":"b"})
      7 [a3 @4000 anthropic] usage_reported msg_1/opus 3+10+20>40
      8 [r2 @5000 anthropic] tool_returned t2 failed: "no"
      9 [a4 @6000 anthropic] assistant_said msg_2/opus "B is gone."
    skipped {"repeated line": 1}
    "#);
}

#[test]
fn a_message_keeps_its_bytes() {
    let line = r#"{"type":"user","sessionId":"s","uuid":"u","message":{ "role" : "user",  "content":"\u0041 1.0" }}"#;
    let reading = reading(read, line);
    let event = &reading.sessions[0].threads[0].events[0];
    assert_eq!(&*event.raw.json, r#"{ "role" : "user",  "content":"\u0041 1.0" }"#);
    assert_eq!(event.raw.dialect, epitome_core::event::RawDialect::Anthropic);
    assert!(event.normal.is_some());
}

/// The lines of [`what_the_model_saw_is_kept_and_the_rest_is_counted`].
fn attached() -> String {
    session(&[
        r#"p1 - "type":"progress","data":{"type":"hook_progress","hookEvent":"SessionStart"}"#,
        r#"h1 p1 "type":"attachment","attachment":{"type":"hook_success","hookName":"SessionStart:startup","content":"","stdout":"x"}"#,
        r#"h2 h1 "type":"attachment","attachment":{"type":"hook_additional_context","hookName":"SessionStart:startup","content":["You have skills.","Use them."]}"#,
        &format!("u1 h2 {}", user("hello")),
        r#"l1 u1 "type":"attachment","attachment":{"type":"skill_listing","content":"- a: does a","skillCount":1}"#,
        r#"l2 l1 "type":"attachment","attachment":{"type":"deferred_tools_delta","addedNames":[],"addedLines":[],"removedNames":[]}"#,
        r#"l3 l2 "type":"attachment","attachment":{"type":"deferred_tools_delta","addedNames":["Cron"],"addedLines":["Cron"]}"#,
        r#"l4 l3 "type":"attachment","attachment":{"type":"task_reminder","content":[{"id":"1","subject":"go"}],"itemCount":1}"#,
        r#"l5 l4 "type":"attachment","attachment":{"type":"edited_text_file","filename":"/a.rs","snippet":"1\tfn a"}"#,
        r#"l6 l5 "type":"attachment","attachment":{"type":"hook_system_message","content":"for you"}"#,
        r#"a1 l6 "type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"text","text":"Hi."}]}"#,
        r#"q1 a1 "type":"attachment","attachment":{"type":"queued_command","prompt":"and b?","commandMode":"prompt"}"#,
        r#"q2 q1 "type":"attachment","attachment":{"type":"queued_command","prompt":"<task-notification>done</task-notification>","commandMode":"task-notification"}"#,
        r#"m1 q2 "type":"user","isMeta":true,"sourceToolUseID":"t9","message":{"role":"user","content":[{"type":"text","text":"Base directory for this skill: /s"}]}"#,
        r#"c1 m1 "type":"system","subtype":"local_command","content":"<local-command-stdout>ok</local-command-stdout>""#,
    ])
}

#[test]
fn what_the_model_saw_is_kept_and_the_rest_is_counted() {
    let text = attached();
    let notes = concat!(
        r#"{"type":"queue-operation","operation":"enqueue","sessionId":"030e1e67-6bf0-492d-8bd3-cc3383ec93ab","content":"x"}"#,
        "\n",
        r#"{"type":"file-history-snapshot","messageId":"m","snapshot":{}}"#,
        "\n"
    );
    let more = session(&[
        r#"e1 c1 "type":"assistant","isApiErrorMessage":true,"message":{"model":"<synthetic>","id":"x","role":"assistant","content":[{"type":"text","text":"API Error: 529"}]}"#,
        r#"e2 e1 "type":"assistant","message":{"model":"<synthetic>","id":"y","role":"assistant","content":[{"type":"text","text":"No response requested."}],"usage":{"input_tokens":0}}"#,
        r#"s1 e2 "type":"system","subtype":"stop_hook_summary","hookAdditionalContext":[]"#,
        r#"s2 s1 "type":"system","subtype":"microcompact_boundary","microcompactMetadata":{"trigger":"auto"}"#,
        &format!("u2 s2 {}", user("<command-name>/exit</command-name>")),
    ]);
    assert_snapshot!(grown(&format!("{notes}{text}{more}")), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [h2 @2000 claude-code] injected SessionStart:startup "You have skills.\nUse them."
      2 [u1 @3000 anthropic] user_said "hello"
      3 [l1 @4000 claude-code] injected skill_listing beside 2 "- a: does a"
      4 [l3 @6000 claude-code] injected deferred_tools_delta beside 2 "Cron"
      5 [l4 @7000 claude-code] injected task_reminder beside 2 task_reminder{"type":"task_reminder","content":[{"id":"1","subject":"go"}],"itemCount":1}
      6 [l5 @8000 claude-code] injected edited_text_file beside 2 "/a.rs" "1\tfn a"
      7 [a1 @10000 anthropic] assistant_said msg_1/opus "Hi."
      8 [q1 @11000 claude-code] user_said "and b?"
      9 [q2 @12000 claude-code] injected queued_command beside 8 "<task-notification>done</task-notification>"
      10 [m1 @13000 anthropic] injected meta beside 8 "Base directory for this skill: /s"
      11 [c1 @14000 claude-code] injected local_command beside 8 "<local-command-stdout>ok</local-command-stdout>"
      12 [e2 @1000 anthropic] assistant_said y/- "No response requested."
      13 [u2 @4000 anthropic] user_said "<command-name>/exit</command-name>"
    skipped {"attachment/deferred_tools_delta": 1, "attachment/hook_success": 1, "attachment/hook_system_message": 1, "file-history-snapshot": 1, "message about an API error": 1, "progress/hook_progress": 1, "queue-operation": 1, "system/microcompact_boundary": 1, "system/stop_hook_summary": 1}
    "#);
}

#[test]
fn what_was_typed_meanwhile_is_heard_where_the_queue_is_its_only_trace() {
    let queue = [
        operation("enqueue", ",\"content\":\"write tests\""),
        operation("enqueue", ",\"content\":\"/help\""),
        operation("enqueue", ",\"content\":\"<task-notification>done</task-notification>\""),
        operation("remove", ""),
        operation("remove", ""),
        operation("remove", ""),
        operation("remove", ""),
        operation("enqueue", ",\"content\":\"not yet\""),
        operation("popAll", ",\"content\":\"not yet\""),
        operation("enqueue", ",\"content\":\"hello\""),
        operation("dequeue", ""),
    ]
    .concat();
    let old = format!(
        "{}{queue}{}",
        session(&[&format!("u1 - {}", user("go"))]),
        session(&[&format!("u2 u1 {}", user("hello"))])
    );
    assert_snapshot!(grown(&old), @r#"
        session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
         main
          1 [u1 @0 anthropic] user_said "go"
          2 [- @30000 claude-code] user_said "write tests"
          3 [- @30000 claude-code] injected queued_command beside 2 "<task-notification>done</task-notification>"
          4 [u2 @0 anthropic] user_said "hello"
        skipped {"queue-operation": 11}
        "#);
    let new = session(&[
        &format!("u1 - {}", user("go")),
        r#"l1 u1 "type":"attachment","attachment":{"type":"command_permissions"}"#,
    ]);
    let new = reading(read, &format!("{new}{queue}"));
    assert_eq!(new.sessions[0].threads[0].events.len(), 1, "newer versions attach it");
}

#[test]
fn what_was_typed_during_a_call_is_heard_after_its_result() {
    let call = r#"a1 u1 "type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"A","input":{}}]}"#;
    let result = r#"r1 a1 "type":"user","toolUseResult":{},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"A"}]}"#;
    let called = session(&[&format!("u1 - {}", user("go")), call]);
    let amid = |after: &str| {
        format!(
            "{called}{}{}{}",
            operation("enqueue", ",\"content\":\"write tests\""),
            operation("remove", ""),
            session(&[after])
        )
    };
    assert_snapshot!(grown(&amid(result)), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "go"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus A(t1 {})
      3 [r1 @0 anthropic] tool_returned t1 "A"
      4 [- @30000 claude-code] user_said "write tests"
    skipped {"queue-operation": 2}
    "#);
    let parallel = call.replace("a1 u1", "a2 a1").replace("t1", "t2");
    assert_snapshot!(grown(&amid(&parallel)), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "go"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus A(t1 {})
      3 [a2 @0 anthropic] assistant_said msg_1/opus A(t2 {})
    skipped {"queue-operation": 2}
    "#);
    assert_snapshot!(grown(&amid(&format!("u2 a1 {}", user("never mind")))), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "go"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus A(t1 {})
      3 [- @30000 claude-code] user_said "write tests"
      4 [u2 @0 anthropic] user_said "never mind"
    skipped {"queue-operation": 2}
    "#);
}

/// The lines of [`a_compaction_is_a_marker_and_a_summary`].
fn compacted() -> String {
    session(&[
        &format!("u1 - {}", user("one")),
        r#"a1 u1 "type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"text","text":"1"}]}"#,
        &format!("u2 a1 {}", user("two")),
        r#"b1 - "type":"system","subtype":"compact_boundary","logicalParentUuid":"u2","compactMetadata":{"trigger":"auto","preTokens":168483}"#,
        r#"c1 b1 "type":"user","isVisibleInTranscriptOnly":true,"isCompactSummary":true,"message":{"role":"user","content":"This session is being continued."}"#,
        r#"a2 c1 "type":"assistant","message":{"model":"opus","id":"msg_2","role":"assistant","content":[{"type":"text","text":"2"}]}"#,
        &format!("u3 a2 {}", user("three")),
        r#"b2 - "type":"system","subtype":"compact_boundary","logicalParentUuid":"u3","compactMetadata":{"trigger":"manual","preTokens":900,"postTokens":80,"preservedSegment":{"headUuid":"a2","anchorUuid":"c2","tailUuid":"u3"}}"#,
        r#"x1 b2 "type":"attachment","attachment":{"type":"skill_listing","content":"- a"}"#,
        r#"c2 x1 "type":"user","isCompactSummary":true,"message":{"role":"user","content":[{"type":"text","text":"In short."}]}"#,
        r#"c3 c2 "type":"user","isCompactSummary":true,"message":{"role":"user","content":"No marker."}"#,
    ])
}

#[test]
fn a_compaction_is_a_marker_and_a_summary() {
    let text = compacted();
    assert_snapshot!(grown(&text), @r#"
        session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
         main
          1 [u1 @0 anthropic] user_said "one"
          2 [a1 @1000 anthropic] assistant_said msg_1/opus "1"
          3 [u2 @2000 anthropic] user_said "two"
          4 [b1 @3000 claude-code] compaction_requested Threshold
          5 [c1 @4000 anthropic] compacted through 4 kept none before 168483 Threshold "This session is being continued."
          6 [a2 @5000 anthropic] assistant_said msg_2/opus "2"
          7 [u3 @6000 anthropic] user_said "three"
          8 [b2 @7000 claude-code] compaction_requested Manual
          9 [x1 @8000 claude-code] injected skill_listing beside 7 "- a"
          10 [c2 @9000 anthropic] compacted through 5 kept 6 before 900 Manual "In short."
          11 [c3 @10000 anthropic] compacted through 10 kept none before ? Unknown "No marker."
        "#);
    let reading = reading(read, &text);
    let events = &reading.sessions[0].threads[0].events;
    assert_eq!(&*events[4].raw.json, r#"{"role":"user","content":"This session is being continued."}"#);
}

/// The lines of [`saying_something_else_in_the_same_place_forks`].
fn forked() -> String {
    session(&[
        &format!("u1 - {}", user("one")),
        r#"a1 u1 "type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"text","text":"1"}]}"#,
        r#"s1 a1 "type":"system","subtype":"turn_duration","durationMs":5"#,
        &format!("u2 s1 {}", user("two")),
        r#"a2 u2 "type":"assistant","message":{"model":"opus","id":"msg_2","role":"assistant","content":[{"type":"text","text":"2"}]}"#,
        &format!("u3 s1 {}", user("zwei")),
        r#"a3 u3 "type":"assistant","message":{"model":"opus","id":"msg_3","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"A","input":{}}]}"#,
        r#"a4 a3 "type":"assistant","message":{"model":"opus","id":"msg_3","role":"assistant","content":[{"type":"tool_use","id":"t2","name":"B","input":{}}]}"#,
        r#"r1 a3 "type":"user","toolUseResult":{},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"A"}]}"#,
        r#"r2 a4 "type":"user","toolUseResult":{},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t2","content":"B"}]}"#,
        &format!("n1 r2 {}", user("<task-notification>x</task-notification>")),
        &format!("n2 r2 {}", user("<task-notification>y</task-notification>")),
        &format!("i1 n2 {}", user("[Request interrupted by user]")),
        &format!("u4 n2 {}", user("go on")),
    ])
}

#[test]
fn saying_something_else_in_the_same_place_forks() {
    let text = forked();
    assert_snapshot!(grown(&text), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at before u3
     main
      1 [u1 @0 anthropic] user_said "one"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus "1"
      3 [u2 @3000 anthropic] user_said "two"
      4 [a2 @4000 anthropic] assistant_said msg_2/opus "2"
     before u3, forked from main at 2
      3 [u3 @5000 anthropic] user_said "zwei"
      4 [a3 @6000 anthropic] assistant_said msg_3/opus A(t1 {})
      5 [a4 @7000 anthropic] assistant_said msg_3/opus B(t2 {})
      6 [r1 @8000 anthropic] tool_returned t1 "A"
      7 [r2 @9000 anthropic] tool_returned t2 "B"
      8 [n1 @10000 anthropic] user_said "<task-notification>x</task-notification>"
      9 [n2 @11000 anthropic] user_said "<task-notification>y</task-notification>"
      10 [i1 @12000 anthropic] user_said "[Request interrupted by user]"
      11 [u4 @13000 anthropic] user_said "go on"
    skipped {"system/turn_duration": 1}
    "#);
}

/// The lines of [`agents_have_threads_of_their_own`].
fn spawned() -> String {
    session(&[
        &format!("u1 - {}", user("go")),
        r#"a1 u1 "type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Task","input":{"description":"d","prompt":"Find a"}},{"type":"tool_use","id":"t2","name":"Agent","input":{"prompt":"Find b"}},{"type":"tool_use","id":"t3","name":"Agent","input":{"prompt":"Find c"}}]}"#,
        r#"p1 a1 "type":"progress","parentToolUseID":"t1","data":{"type":"agent_progress","agentId":"ag1","prompt":"Find a","message":{"type":"user","uuid":"i1","timestamp":"2026-02-07T00:01:00Z","message":{"role":"user","content":[{"type":"text","text":"Find a"}]}}}"#,
        r#"p2 p1 "type":"progress","parentToolUseID":"t1","data":{"type":"agent_progress","agentId":"ag1","message":{"type":"assistant","uuid":"i2","timestamp":"2026-02-07T00:01:01Z","message":{"model":"haiku","id":"msg_h","role":"assistant","content":[{"type":"text","text":"here"}],"usage":{"input_tokens":5,"output_tokens":2}}}}"#,
        r#"p3 p2 "type":"progress","data":{"type":"agent_progress","agentId":"ag1"}"#,
        r#"r1 p3 "type":"user","toolUseResult":{"agentId":"ag1","status":"completed"},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a is here"}]}"#,
        r#"c1 - "isSidechain":true,"type":"user","message":{"role":"user","content":"Find b"}"#,
        r#"c2 c1 "isSidechain":true,"type":"assistant","message":{"model":"haiku","id":"msg_i","role":"assistant","content":[{"type":"text","text":"b"}]}"#,
        r#"d1 - "isSidechain":true,"agentId":"ag3","type":"user","message":{"role":"user","content":"Warmup"}"#,
        r#"r3 r1 "type":"user","toolUseResult":{"agentId":"ag3","status":"async_launched"},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t3","content":"launched"}]}"#,
        r#"d2 d1 "isSidechain":true,"agentId":"ag3","type":"assistant","message":{"model":"haiku","id":"msg_j","role":"assistant","content":[{"type":"text","text":"c"}]}"#,
    ])
}

#[test]
fn agents_have_threads_of_their_own() {
    let text = spawned();
    assert_snapshot!(grown(&text), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "go"
      2 [a1 @1000 anthropic] assistant_said msg_1/opus Task(t1 {"description":"d","prompt":"Find a"}) Agent(t2 {"prompt":"Find b"}) Agent(t3 {"prompt":"Find c"})
      3 [r1 @5000 anthropic] tool_returned t1 "a is here"
      4 [r3 @9000 anthropic] tool_returned t3 "launched"
     reports of agent ag1, spawned by main with t1
      1 [i1 @60000 anthropic] user_said "Find a"
      2 [i2 @61000 anthropic] assistant_said msg_h/haiku "here"
      3 [i2 @61000 anthropic] usage_reported msg_h/haiku 5+0+0>2
     agent c1, spawned by main with t2
      1 [c1 @6000 anthropic] user_said "Find b"
      2 [c2 @7000 anthropic] assistant_said msg_i/haiku "b"
     agent ag3, spawned by main with t3
      1 [d1 @8000 anthropic] user_said "Warmup"
      2 [d2 @10000 anthropic] assistant_said msg_j/haiku "c"
    skipped {"progress/agent_progress": 1}
    "#);
}

#[test]
fn an_agents_own_file_belongs_to_the_session_that_started_it() {
    let text = session(&[
        r#"c1 - "isSidechain":true,"agentId":"ag1","type":"user","message":{"role":"user","content":"Find a"}"#,
        r#"c2 c1 "isSidechain":true,"agentId":"ag1","type":"assistant","message":{"model":"haiku","id":"msg_i","role":"assistant","content":[{"type":"text","text":"a"}]}"#,
    ]);
    assert_snapshot!(grown(&text), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
     agent ag1, spawned by main with ?
      1 [c1 @0 anthropic] user_said "Find a"
      2 [c2 @1000 anthropic] assistant_said msg_i/haiku "a"
    "#);
}

#[test]
fn titles_come_from_the_user_then_the_agent_then_a_summary_of_this_session() {
    let check = |titles: &str, expect: Option<&str>| {
        let text = format!("{titles}{}", session(&[&format!("u1 - {}", user("one"))]));
        assert_eq!(reading(read, &text).sessions[0].title.as_deref(), expect, "{titles}");
    };
    let elsewhere = "{\"type\":\"summary\",\"summary\":\"Other\",\"leafUuid\":\"zz\"}\n";
    let own = "{\"type\":\"summary\",\"summary\":\"Own\",\"leafUuid\":\"u1\"}\n";
    let made = "{\"type\":\"ai-title\",\"aiTitle\":\"Made\",\"sessionId\":\"s\"}\n";
    let custom = "{\"type\":\"custom-title\",\"customTitle\":\"Mine\",\"sessionId\":\"s\"}\n";
    check(elsewhere, None);
    check(&format!("{own}{elsewhere}"), Some("Own"));
    check(&format!("{made}{own}"), Some("Made"));
    check(&format!("{custom}{made}{own}"), Some("Mine"));
}

#[test]
fn odd_lines_are_told_and_the_rest_is_kept() {
    let text = session(&[
        &format!("u1 gone {}", user("one")),
        &format!("u2 lost {}", user("two")),
        r#"u3 u2 "type":"user""#,
        r#"u4 u3 "type":"user","forkedFrom":{"sessionId":"f","messageUuid":"m"},"message":{"role":"robot"}"#,
    ]);
    let text = format!(
        "{text}{{\n{}",
        r#"{"type":"user","sessionId":"other","uuid":"u5","message":{"role":"user","content":"x"}}"#
    );
    assert_snapshot!(grown(&text), @r#"
    session 030e1e67-6bf0-492d-8bd3-cc3383ec93ab: untitled, at main
     main
      1 [u1 @0 anthropic] user_said "one"
      2 [u2 @1000 anthropic] user_said "two"
      3 [u4 @3000 anthropic] carried robot
      4 [u5 anthropic] user_said "x"
    ! line 1: its parent gone is not in the file, which may continue another one
    ! line 4: the session was forked from f; what it shares with that is repeated here
    ! line 5: the line is not JSON (EOF while parsing an object at line 1 column 1); it was left out
    ! line 6: lines of session other stand here too; they were read as part of 030e1e67-6bf0-492d-8bd3-cc3383ec93ab
    skipped {"line without a message": 1}
    "#);
}

#[test]
fn a_file_without_a_conversation_has_no_session() {
    let reading = reading(read, "{\"type\":\"summary\",\"summary\":\"Other\",\"leafUuid\":\"zz\"}\n");
    assert!(reading.sessions.is_empty());
    assert_eq!(reading.warnings.len(), 1);
    assert!(matches!(read("file", b"\n", &TranscriptLimits::default()), Err(TranscriptError::Empty)));
    assert!(matches!(
        read("file", b"{]\n", &TranscriptLimits::default()),
        Err(TranscriptError::Malformed { .. })
    ));
}

#[test]
fn claude_code_is_told_by_its_lines() {
    let check = |json: &str, expect: bool| {
        assert_eq!(recognises(&serde_json::from_str(json).unwrap()), expect, "{json}");
    };
    check(r#"{"type":"summary","summary":"s","leafUuid":"u"}"#, true);
    check(r#"{"type":"file-history-snapshot","messageId":"m","snapshot":{}}"#, true);
    check(r#"{"type":"last-prompt","leafUuid":"u","sessionId":"s"}"#, true);
    check(r#"{"parentUuid":null,"sessionId":"s","type":"user","uuid":"u","message":{}}"#, true);
    check(r#"{"sessionId":"s","projectHash":"p"}"#, false);
    check(r#"{"type":"session","id":"s"}"#, false);
    check(r#"{"role":"user","content":"hi"}"#, false);
}
