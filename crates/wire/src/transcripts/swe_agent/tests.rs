use insta::assert_snapshot;

use super::super::testing::{any_reading, grows_by, shown};

fn check(json: &str) -> String {
    shown(&any_reading(json))
}

const SYSTEM: &str = r#"{"role": "system", "content": "You are a programmer", "agent": "main"}"#;
const DEMO: &str =
    r#"{"role": "user", "content": "Here is how", "is_demo": true, "message_type": "demonstration"}"#;
const TASK: &str =
    r#"{"role": "user", "content": [{"type": "text", "text": "Fix it"}], "message_type": "observation"}"#;
const CALLED: &str = r#"{"role": "assistant", "content": "Let me look", "thought": "Let me look", "action": "ls",
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}"#;
const RETURNED: &str = r#"{"role": "tool", "content": "a.py", "tool_call_ids": ["c1"]}"#;
const ACTED: &str = r#"{"role": "assistant", "content": "Let me look\n```\nls\n```", "thought": "Let me look", "action": "ls\n"}"#;
const OBSERVED: &str = r#"{"role": "user", "content": "a.py\nbash-$"}"#;

fn history(messages: &[&str]) -> String {
    format!(r#"{{"history": [{}], "trajectory": []}}"#, messages.join(","))
}

#[test]
fn calls_and_demonstrations_are_read_as_the_model_saw_them() {
    assert_snapshot!(check(&history(&[SYSTEM, DEMO, TASK, CALLED, RETURNED])), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] instructed System "You are a programmer"
      2 [#1 swe-agent] user_said "Here is how"
      3 [#2 swe-agent] user_said "Fix it"
      4 [#3 swe-agent] assistant_said -/- <hm signed s> "Let me look" bash(c1 {"command": "ls"})
      5 [#4 swe-agent] tool_returned c1 "a.py"
    "#);
}

#[test]
fn an_action_in_the_text_is_a_call_and_its_observation_a_result() {
    assert_snapshot!(check(&history(&[SYSTEM, TASK, ACTED, OBSERVED, ACTED, OBSERVED, OBSERVED])), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] instructed System "You are a programmer"
      2 [#1 swe-agent] user_said "Fix it"
      3 [#2 swe-agent] assistant_said -/- "Let me look" bash(action-2 {"command":"ls\n"})
      4 [#3 swe-agent] tool_returned action-2 "a.py\nbash-$"
      5 [#4 swe-agent] assistant_said -/- "Let me look" bash(action-4 {"command":"ls\n"})
      6 [#5 swe-agent] tool_returned action-4 "a.py\nbash-$"
      7 [#6 swe-agent] user_said "a.py\nbash-$"
    "#);
}

#[test]
fn a_run_that_has_ended_is_completed_from_its_trajectory() {
    let run = |info: &str| {
        format!(
            r#"{{"history": [{TASK}, {ACTED}], "info": {info}, "trajectory": [
                {{"action": "ls\n", "observation": "a.py", "response": "r", "thought": "t", "state": "{{}}"}},
                {{"action": "", "observation": "", "response": "Exit due to cost limit", "thought": "", "query": [1]}}]}}"#
        )
    };
    assert_snapshot!(check(&run(r#"{"exit_status": "submitted"}"#)), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] user_said "Fix it"
      2 [#1 swe-agent] assistant_said -/- "Let me look" bash(action-1 {"command":"ls\n"})
      3 [#2 swe-agent] tool_returned action-1 "a.py"
      4 [#3 swe-agent] assistant_said -/- "Exit due to cost limit"
    "#);
    assert_snapshot!(check(&run("{}")), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] user_said "Fix it"
      2 [#1 swe-agent] assistant_said -/- "Let me look" bash(action-1 {"command":"ls\n"})
    "#);
}

#[test]
fn without_a_history_the_trajectory_tells() {
    let steps = |steps: &[&str]| {
        format!(
            r#"{{"trajectory": [{}], "replay_config":
        "{{\"agent\": {{\"model\": {{\"name\": \"gpt-4\"}}}}}}"}}"#,
            steps.join(",")
        )
    };
    let first = format!(
        r#"{{"query": [{SYSTEM}, {TASK}], "action": "ls", "observation": "a.py", "response": "Look\nls", "thought": "Look"}}"#
    );
    let second =
        r#"{"action": "cat a.py", "observation": "", "response": "x", "thought": "Read", "messages": []}"#;
    assert_snapshot!(check(&steps(&[&first, second, "[3]"])), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] instructed System "You are a programmer"
      2 [#1 swe-agent] user_said "Fix it"
      3 [#2 swe-agent] assistant_said -/gpt-4 "Look" bash(action-2 {"command":"ls"})
      4 [#2 swe-agent] tool_returned action-2 "a.py"
      5 [#3 swe-agent] assistant_said -/gpt-4 "Read" bash(action-3 {"command":"cat a.py"})
      6 [#3 swe-agent] tool_returned action-3
      7 [#4 swe-agent] carried step
    ! step 4 was carried as it is: it has no action
    "#);
    let reading = any_reading(&steps(&[&first, second]));
    let answer = &reading.sessions[0].threads[0].events[2].raw.json;
    assert!(!answer.contains("query"), "a step does not repeat the history: {answer}");
    grows_by(&[&first, second, second], steps);
}

#[test]
fn more_messages_leave_the_first_events_as_they_were() {
    grows_by(&[SYSTEM, DEMO, TASK, CALLED, RETURNED, ACTED, OBSERVED, ACTED], history);
}

#[test]
fn odd_messages_are_carried() {
    assert_snapshot!(check(&history(&[
        TASK,
        r#"{"role": "oracle", "content": "x", "agent": "a"}"#,
        r#"{"content": "nobody", "agent": "b"}"#,
        r#"{"role": "tool", "content": "for nobody"}"#,
        r#"{"role": "assistant", "content": null, "tool_calls": [{"id": "c"}, {"id": "d", "function": {"name": "f"}}, {"function": {}}]}"#,
        r#"{"role": "tool", "content": "for both"}"#,
        r#"{"role": "system", "content": "late"}"#,
    ])), @r#"
    session file: untitled, at main
     main
      1 [#0 swe-agent] user_said "Fix it"
      2 [#1 swe-agent] carried message
      3 [#2 swe-agent] carried message
      4 [#3 swe-agent] tool_returned  "for nobody"
      5 [#4 swe-agent] assistant_said -/- (c ) f(d ) ( )
      6 [#5 swe-agent] tool_returned c "for both"; d ;
      7 [#6 swe-agent] instructed Message "late"
    ! message 1 was carried as it is: its role is `oracle`
    ! message 2 was carried as it is: its role is `none`
    ! file: the messages of 2 agents are read as one line
    "#);
}
