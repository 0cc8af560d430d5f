use epitome_core::{ContentPart, Fact, event::InstructionKind};
use insta::assert_snapshot;

use super::super::testing::{any_reading, grows_by, shown};
use crate::{EncodeMode, Format};

const GREETED: &str = r#"{"role": "assistant", "content": "Hi!", "tool_calls": null, "turn_idx": 0,
    "timestamp": "2025-08-10T02:44:06.547803", "usage": null, "raw_data": null}"#;
const ASKED: &str = r#"{"role": "user", "content": "No signal", "turn_idx": 1, "usage": {"prompt_tokens": 9, "completion_tokens": 1}}"#;
const CALLED: &str = r#"{"role": "assistant", "content": null, "turn_idx": 2, "usage": {"prompt_tokens": 90, "completion_tokens": 5},
    "tool_calls": [{"id": "c1", "name": "get", "arguments": {"n": 1.0, "a b": [1, 2]}, "requestor": "assistant"}]}"#;
const RETURNED: &str = r#"{"id": "c1", "role": "tool", "content": "none", "requestor": "assistant", "error": true, "turn_idx": 3}"#;
const THOUGHT: &str = r#"{"role": "assistant", "content": "Toggle it", "turn_idx": 4, "usage": {"prompt_tokens": 1},
    "raw_data": {"id": "msg_1", "model": "claude", "thinking_blocks": [{"thinking": "hm", "signature": "s"}],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 70, "output_tokens": 6}}}"#;
const TOGGLED: &str = r#"{"role": "user", "content": "Wait", "turn_idx": 5,
    "tool_calls": [{"id": "u1", "name": "toggle", "arguments": {}, "requestor": "user"}]}"#;
const DONE: &str =
    r#"{"id": "u1", "role": "tool", "content": "on", "requestor": "user", "error": false, "turn_idx": 6}"#;
const TOLD: &str = r#"{"role": "user", "content": "It is on", "turn_idx": 7}"#;

fn results(messages: &[&str]) -> String {
    format!(
        r#"{{"info": {{"agent_info": {{"implementation": "llm_agent", "llm": "gpt"}},
              "environment_info": {{"policy": "Be nice"}}}},
            "tasks": [{{"id": "t", "ticket": "unused"}}],
            "simulations": [{{"id": "2ac97331-26db-4a7f-9ea6-412cb4382709", "task_id": "t", "messages": [{}]}}]}}"#,
        messages.join(",")
    )
}

const ALL: [&str; 8] = [GREETED, ASKED, CALLED, RETURNED, THOUGHT, TOGGLED, DONE, TOLD];

#[test]
fn what_the_user_does_unseen_is_a_thread_of_its_own() {
    assert_snapshot!(shown(&any_reading(&results(&ALL))), @r#"
    session 2ac97331-26db-4a7f-9ea6-412cb4382709: t, at main
     main
      1 [- tau2] instructed System "Be nice"
      2 [0 @46547 tau2] assistant_said -/gpt "Hi!"
      3 [1 tau2] user_said "No signal"
      4 [2 tau2] assistant_said -/gpt get(c1 {"n":1.0,"a b":[1,2]})
      5 [2 tau2] usage_reported -/gpt 90+0+0>5
      6 [3 tau2] tool_returned c1 failed: "none"
      7 [4 tau2] assistant_said msg_1/claude <hm signed s> "Toggle it"
      8 [4 tau2] usage_reported msg_1/claude 10+70+0>6
      9 [7 tau2] user_said "It is on"
     user
      1 [5 tau2] assistant_said -/- "Wait" toggle(u1 {})
      2 [6 tau2] tool_returned u1 "on"
    "#);
}

#[test]
fn more_messages_leave_the_first_events_as_they_were() {
    grows_by(&ALL, results);
}

#[test]
fn an_agent_without_a_user_has_its_ticket_in_the_prompt() {
    let solo = results(&[CALLED]).replace("llm_agent", "llm_agent_solo");
    let reading = any_reading(&solo);
    let events = &reading.sessions[0].threads[0].events;
    let Fact::Instructed { what: InstructionKind::System, parts } = &events[0].fact else {
        panic!("{:?}", events[0].fact)
    };
    assert_eq!(parts, &[ContentPart::text("Be nice"), ContentPart::text("unused")]);
    assert_eq!(events[0].raw.json.as_ref(), r#"["Be nice","unused"]"#);
    assert_eq!(events[1].fact.kind(), "assistant_said");
    for format in [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic] {
        let body = format.encode(events, EncodeMode::AsRecorded).expect("it can be written").body;
        assert!(body.contains("Be nice") && body.contains("unused"), "{body}");
    }
}

#[test]
fn odd_messages_are_carried_and_odd_simulations_left_out() {
    let odd = r#"{"tasks": [], "simulations": [{"id": 7, "messages": [
            {"role": "oracle"}, 3, {"role": "system", "content": "late"},
            {"role": "tool", "tool_messages": [{"id": "a", "content": "1"}, {"id": "b", "content": "2"}]}]},
        {"id": 8}]}"#;
    assert_snapshot!(shown(&any_reading(odd)), @r#"
    session file#7: untitled, at main
     main
      1 [#0 tau2] carried oracle
      2 [#1 tau2] carried message
      3 [#2 tau2] instructed Message "late"
      4 [#3 tau2] tool_returned a "1"; b "2"
    ! file#7: message #0 has the unknown role `oracle`; it was carried as it is
    ! file#7: message 1 cannot be read as one; it was carried as it is
    ! simulation 1 has no list of messages; it was left out
    "#);
}

#[test]
fn a_policy_repeated_without_end_stops_at_the_allowance() {
    let policy = "p".repeat(10);
    let simulation = |id: u32| format!(r#"{{"id": {id}, "messages": []}}"#);
    let simulations: Vec<String> = (0..9).map(simulation).collect();
    let file = format!(
        r#"{{"info": {{"environment_info": {{"policy": "{policy}"}}}}, "simulations": [{}]}}"#,
        simulations.join(",")
    );
    let mut reading = super::TranscriptFile::new(super::TranscriptFormat::Tau2);
    super::read_within(90, "f", &file, &mut reading).unwrap();
    let counts: Vec<usize> = reading.sessions.iter().map(|session| session.threads[0].events.len()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(reading.warnings.len(), 2);
}
