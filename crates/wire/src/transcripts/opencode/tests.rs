use insta::assert_snapshot;

use super::super::{
    TranscriptError, TranscriptLimits,
    testing::{any_reading, grows_by, shown},
};

/// An export with these messages.
fn export(messages: &[&str]) -> String {
    format!(
        r#"{{"info": {{"id": "ses_1", "title": "A title", "directory": "/d"}}, "messages": [{}]}}"#,
        messages.join(",\n")
    )
}

fn check(messages: &[&str]) -> String {
    shown(&any_reading(&export(messages)))
}

const ASKED: &str = r#"{"info": {"id": "msg_1", "role": "user", "time": {"created": 1000}}, "parts": [
    {"type": "text", "text": "look"},
    {"type": "text", "text": "Called the Read tool", "synthetic": true},
    {"type": "text", "text": "for your eyes only", "ignored": true},
    {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///d/a.txt"},
    {"type": "file", "mime": "image/png", "filename": "b.png", "url": "data:image/png;base64,aGk="},
    {"type": "file", "mime": "image/png", "filename": "c.png", "url": "https://example.org/c.png"},
    {"type": "agent", "name": "explore"}, {"type": "subtask", "prompt": "find it"}]}"#;

const ANSWERED: &str = r#"{"info": {"id": "msg_2", "role": "assistant", "modelID": "m", "providerID": "p",
     "time": {"created": 2000, "completed": 2900}}, "parts": [
    {"type": "step-start", "id": "prt_0", "snapshot": "s"},
    {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "sig"}}},
    {"type": "text", "text": "I look."},
    {"type": "tool", "id": "prt_1", "callID": "c1", "tool": "read", "state": {"status": "completed",
        "input": { "path" : "a b",
          "n": 1.0 }, "output": "content", "time": {"start": 2100, "end": 2200},
        "attachments": [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk="}]}},
    {"type": "tool", "id": "prt_2", "callID": "c2", "tool": "bash", "state": {"status": "error",
        "input": {}, "error": "no such file", "time": {"start": 2200, "end": 2300}}},
    {"type": "tool", "id": "prt_3", "callID": "c3", "tool": "task", "state": {"status": "running", "input": {}}},
    {"type": "step-finish", "id": "prt_4", "tokens": {"total": 178, "input": 100, "output": 20, "reasoning": 3,
        "cache": {"read": 50, "write": 5}}},
    {"type": "patch", "hash": "h", "files": []}]}"#;

#[test]
fn what_the_model_saw_and_said_is_what_is_read() {
    assert_snapshot!(check(&[ASKED, ANSWERED]), @r#"
    session ses_1: A title, at main
     main
      1 [msg_1 @1000 opencode] user_said "look" media image/png media image/png "find it"
      2 [msg_1/synthetic @1000 opencode] injected synthetic beside 1 "Called the Read tool"
      3 [msg_2 @2000 opencode] assistant_said msg_2/m <hm signed sig> "I look." read(c1 {"path":"a b","n":1.0}) bash(c2 {}) task(c3 {})
      4 [prt_1 @2300 opencode] tool_returned c1 "content" media image/png; c2 failed: "no such file"
      5 [prt_4 @2900 opencode] usage_reported msg_2/m 100+50+5>23
    skipped {"ignored text": 1}
    "#);
}

#[test]
fn every_step_of_a_message_is_a_call_of_its_own() {
    let message = r#"{"info": {"id": "m", "role": "assistant", "time": {"completed": 9}}, "parts": [
        {"type": "step-start"}, {"type": "text", "text": "one"},
        {"type": "tool", "id": "p1", "callID": "c", "tool": "t", "state": {"status": "completed", "input": {}, "output": "1"}},
        {"type": "step-finish", "id": "f1", "tokens": {"input": 1, "output": 1}},
        {"type": "step-start"}, {"type": "text", "text": "two"},
        {"type": "step-finish", "id": "f2", "tokens": {"input": 2, "output": 2}}]}"#;
    assert_snapshot!(check(&[message]), @r#"
    session ses_1: A title, at main
     main
      1 [m opencode] assistant_said m/- "one" t(c {})
      2 [p1 opencode] tool_returned c "1"
      3 [f1 @9 opencode] usage_reported m/- 1+0+0>1
      4 [m/2 opencode] assistant_said m/2/- "two"
      5 [f2 @9 opencode] usage_reported m/2/- 2+0+0>2
    "#);
    let reading = any_reading(&export(&[message]));
    let raw = &reading.sessions[0].threads[0].events[3].raw.json;
    assert!(raw.contains("two") && !raw.contains("one"), "a step's raw JSON is its own: {raw}");
}

const REQUEST: &str = r#"{"info": {"id": "msg_3", "role": "user"}, "parts": [
    {"type": "compaction", "auto": true, "tail_start_id": "msg_2"}]}"#;

const SUMMARY: &str = r#"{"info": {"id": "msg_4", "role": "assistant", "summary": true, "mode": "compaction",
     "finish": "stop", "time": {"created": 3000, "completed": 3500}}, "parts": [
    {"type": "step-start"}, {"type": "text", "text": "what happened"},
    {"type": "step-finish", "id": "f", "tokens": {"input": 500, "output": 10}}]}"#;

const CONTINUED: &str = r#"{"info": {"id": "msg_5", "role": "user"}, "parts": [
    {"type": "text", "text": "Continue", "synthetic": true}]}"#;

#[test]
fn a_compaction_keeps_from_its_tail_on() {
    assert_snapshot!(check(&[CONTINUED, ANSWERED, REQUEST, SUMMARY]), @r#"
    session ses_1: A title, at main
     main
      1 [msg_5 opencode] injected synthetic "Continue"
      2 [msg_2 @2000 opencode] assistant_said msg_2/m <hm signed sig> "I look." read(c1 {"path":"a b","n":1.0}) bash(c2 {}) task(c3 {})
      3 [prt_1 @2300 opencode] tool_returned c1 "content" media image/png; c2 failed: "no such file"
      4 [prt_4 @2900 opencode] usage_reported msg_2/m 100+50+5>23
      5 [msg_3 opencode] compaction_requested Threshold
      6 [msg_4 @3500 opencode] compacted through 1 kept 2 before ? Threshold "what happened"
      7 [f @3500 opencode] usage_reported msg_4/- 500+0+0>10
    "#);
}

#[test]
fn a_compaction_without_a_tail_covers_everything_before_it() {
    let request = |part: &str| format!(r#"{{"info": {{"id": "r", "role": "user"}}, "parts": [{part}]}}"#);
    let overflow = request(r#"{"type": "compaction", "auto": true, "overflow": true}"#);
    let lost = request(r#"{"type": "compaction", "auto": false, "tail_start_id": "gone"}"#);
    assert_snapshot!(check(&[CONTINUED, &overflow, SUMMARY, &lost, SUMMARY, SUMMARY]), @r#"
    session ses_1: A title, at main
     main
      1 [msg_5 opencode] injected synthetic "Continue"
      2 [r opencode] compaction_requested Overflow
      3 [msg_4 @3500 opencode] compacted through 1 kept none before ? Overflow "what happened"
      4 [f @3500 opencode] usage_reported msg_4/- 500+0+0>10
      5 [r opencode] compaction_requested Manual
      6 [msg_4 @3500 opencode] compacted through 4 kept none before ? Manual "what happened"
      7 [f @3500 opencode] usage_reported msg_4/- 500+0+0>10
      8 [msg_4 @3500 opencode] compacted through 7 kept none before ? Unknown "what happened"
      9 [f @3500 opencode] usage_reported msg_4/- 500+0+0>10
    ! compaction msg_4 keeps messages from gone on, which is not there before it
    "#);
}

#[test]
fn a_compaction_that_failed_compacted_nothing() {
    let failed = r#"{"info": {"id": "f", "role": "assistant", "summary": true, "error": {"name": "APIError"}}, "parts": []}"#;
    assert_snapshot!(check(&[CONTINUED, REQUEST, failed, CONTINUED]), @r#"
    session ses_1: A title, at main
     main
      1 [msg_5 opencode] injected synthetic "Continue"
      2 [msg_3 opencode] compaction_requested Threshold
      3 [msg_5 opencode] injected synthetic "Continue"
    skipped {"failed compaction": 1}
    "#);
}

#[test]
fn what_opencode_adds_later_changes_no_event() {
    let summarised = ASKED.replace(
        r#""time": {"created": 1000}"#,
        r#""time": {"created": 1000}, "summary": {"diffs": [{"file": "a"}]}"#,
    );
    let pruned = ANSWERED.replace(r#""end": 2200}"#, r#""end": 2200, "compacted": 99999}"#);
    assert!(summarised != ASKED && pruned != ANSWERED);
    let events =
        |messages: &[&str]| any_reading(&export(messages)).sessions.remove(0).threads.remove(0).events;
    assert_eq!(events(&[ASKED, ANSWERED]), events(&[&summarised, &pruned]));
}

#[test]
fn what_may_still_change_is_left_for_the_next_reading() {
    let running = r#"{"info": {"id": "a", "role": "assistant", "time": {"created": 1}}, "parts": [
        {"type": "text", "text": "so f"}]}"#;
    let check = |messages: &[&str], events: usize| {
        let reading = any_reading(&export(messages));
        assert_eq!(reading.sessions[0].threads[0].events.len(), events);
        assert_eq!(reading.warnings.len(), usize::from(messages.len() > events));
    };
    check(&[CONTINUED, running], 1);
    check(&[CONTINUED, REQUEST], 1);
    check(&[CONTINUED, REQUEST, running], 1);
    // An answer that was given up is no longer the last.
    check(&[CONTINUED, running, CONTINUED], 3);
}

#[test]
fn more_messages_leave_the_first_events_as_they_were() {
    grows_by(&[ASKED, ANSWERED, CONTINUED, REQUEST, SUMMARY, CONTINUED, ANSWERED], export);
}

#[test]
fn a_subagents_session_knows_its_parent() {
    let child = r#"{"info": {"id": "ses_2", "parentID": "ses_1"}, "messages": [
        {"info": {"id": "m", "role": "user"}, "parts": [{"type": "text", "text": "find"}]}]}"#;
    let parent = any_reading(&export(&[CONTINUED])).sessions.remove(0);
    let child = any_reading(child).sessions.remove(0);
    let by = Some(parent.threads[0].id);
    assert_eq!(child.threads[0].start, super::TranscriptThreadStart::Spawned { by, call: None });
}

#[test]
fn answers_without_content_are_counted_and_odd_records_carried() {
    assert_snapshot!(check(&[
        CONTINUED,
        r#"{"info": {"id": "e", "role": "assistant", "error": {"name": "APIError"}}, "parts": []}"#,
        r#"{"info": {"id": "n", "role": "assistant", "time": {"completed": 1}}, "parts": [{"type": "retry"}]}"#,
        r#"{"role": "user"}"#,
        "7",
        r#"{"info": {"id": "o", "role": "oracle"}, "parts": []}"#,
        r#"{"info": {"id": "u", "role": "user"}, "parts": [{"type": "hologram", "x": 1}]}"#,
        r#"{"info": {"id": "b", "role": "user"}, "parts": [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,%"}]}"#,
        r#"{"info": {"id": "t", "role": "assistant", "tokens": {"input": 3, "output": 4}, "time": {"completed": 1}},
            "parts": [{"type": "text", "text": "no steps"}]}"#,
    ]), @r#"
    session ses_1: A title, at main
     main
      1 [msg_5 opencode] injected synthetic "Continue"
      2 [#3 opencode] carried message
      3 [#4 opencode] carried message
      4 [o opencode] carried oracle
      5 [u opencode] user_said hologram{"type": "hologram", "x": 1}
      6 [b opencode] user_said media image/png
      7 [t opencode] assistant_said t/- "no steps"
      8 [t @1 opencode] usage_reported t/- 3+0+0>4
    ! message 3 is not shaped like one; it was carried as it is
    ! message 4 is not shaped like one; it was carried as it is
    ! message o has the unknown role `oracle`; it was carried as it is
    ! the data of a file is not base64; it stays in the raw JSON only
    skipped {"empty answer": 1, "empty answer: APIError": 1, "retry": 1}
    "#);
}

#[test]
fn an_export_without_messages_says_so() {
    let broken = r#"{"info": {"id": "ses_1", "directory": "/d"}, "messages": 7}"#;
    let mut reading = super::TranscriptFile::new(super::TranscriptFormat::Opencode);
    let error = super::read("f", broken, &mut reading).unwrap_err();
    assert!(matches!(error, TranscriptError::Malformed { .. }), "{error}");
    let empty = r#"{"info": {"id": "ses_1", "directory": "/d"}, "messages": []}"#;
    let reading = super::super::read("f", empty.as_bytes(), &TranscriptLimits::default()).unwrap();
    assert_eq!(reading.sessions[0].key, "ses_1");
}
