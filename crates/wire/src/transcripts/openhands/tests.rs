use insta::assert_snapshot;

use super::super::testing::{any_reading, grows_by, shown};

fn line(events: &[&str]) -> String {
    format!(
        r#"{{"instance_id": "repo-1", "instruction": "x", "metadata": {{"llm_config": {{"model": "m"}}}}, "history": [{}]}}"#,
        events.join(",").replace('\n', " ")
    )
}

fn check(events: &[&str]) -> String {
    shown(&any_reading(&line(events)))
}

const SYSTEM: &str = r#"{"id": 0, "timestamp": "2025-04-30T16:32:54.707474", "source": "agent", "action": "system",
    "args": {"content": "You are OpenHands", "tools": [{"type": "function", "function": {"name": "execute_bash"}}]}}"#;
const TASK: &str = r#"{"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it", "image_urls": ["https://x/i.png"]}}"#;
const RECALL: &str = r#"{"id": 2, "source": "user", "action": "recall", "args": {"query": "Fix it"}}"#;
const RECALLED: &str = r#"{"id": 3, "source": "environment", "observation": "recall", "content": "Added", "cause": 2,
    "extras": {"repo_instructions": "Be kind", "microagent_knowledge": [{"name": "git", "content": "About git"}]}}"#;

/// An action of the model's answer `answer`, with the call `call`.
fn action(id: u64, answer: &str, call: &str) -> String {
    format!(
        r#"{{"id": {id}, "source": "agent", "action": "run", "args": {{"command": "ls", "thought": "t"}},
            "tool_call_metadata": {{"function_name": "execute_bash", "tool_call_id": "{call}", "model_response": {{
              "id": "{answer}", "model": "model-1", "usage": {{"prompt_tokens": 100, "completion_tokens": 7,
              "prompt_tokens_details": {{"cached_tokens": 60}}}}, "choices": [{{"message": {{
                "content": "I look", "reasoning_content": "hm", "tool_calls": [
                  {{"id": "{call}", "function": {{"name": "execute_bash", "arguments": "{{\"command\": \"ls\"}}"}}}}]}}}}]}}}},
            "llm_metrics": {{"accumulated_token_usage": {{"prompt_tokens": 100, "completion_tokens": 7}}}}}}"#
    )
}

fn observation(id: u64, cause: u64) -> String {
    format!(
        r#"{{"id": {id}, "source": "agent", "observation": "run", "content": "a.py", "cause": {cause}, "success": true,
            "extras": {{"metadata": {{"prefix": "<", "suffix": ">"}}}}}}"#
    )
}

#[test]
fn a_session_is_read_as_the_model_saw_it() {
    let (first, second) = (action(4, "gen-1", "c1"), action(6, "gen-1", "c2"));
    let (one, two) = (observation(5, 4), observation(7, 6));
    let failed =
        r#"{"id": 8, "source": "agent", "observation": "error", "content": "no such command", "extras": {}}"#;
    let said = r#"{"id": 9, "source": "agent", "action": "message", "args": {"content": "Done?"},
        "llm_metrics": {"accumulated_token_usage": {"prompt_tokens": 150, "completion_tokens": 9, "cache_read_tokens": 20}}}"#;
    let state = r#"{"id": 10, "source": "environment", "observation": "agent_state_changed", "content": ""}"#;
    assert_snapshot!(
        check(&[SYSTEM, TASK, RECALL, RECALLED, &first, &one, &second, &two, failed, said, state]),
        @r#"
    session file#1: repo-1, at main
     main
      1 [0 @74707 openhands] instructed System "You are OpenHands"
      2 [0 @74707 openhands] instructed Tools execute_bash{"type": "function", "function": {"name": "execute_bash"}}
      3 [1 openhands] user_said "Fix it" media image/*
      4 [3 openhands] injected recall beside 3 "Be kind" "About git"
      5 [4 openhands] assistant_said gen-1/model-1 <hm> "I look" execute_bash(c1 {"command": "ls"})
      6 [4 openhands] usage_reported gen-1/model-1 40+60+0>7
      7 [5 openhands] tool_returned c1 "<a.py>"
      8 [6 openhands] assistant_said gen-1/model-1 execute_bash(c2 {"command": "ls"})
      9 [7 openhands] tool_returned c2 "<a.py>"
      10 [8 openhands] injected error "no such command"
      11 [9 openhands] assistant_said -/m "Done?"
      12 [9 openhands] usage_reported -/m 30+20+0>2
    skipped {"action recall": 1, "observation agent_state_changed": 1}
    "#
    );
}

#[test]
fn older_records_are_flat_and_pair_in_order() {
    let events = [
        r#"{"action": "message", "content": "Add a licence", "wait_for_response": false}"#,
        r#"{"action": "run", "command": "touch LICENSE", "thought": "Certainly", "keep_prompt": true, "is_confirmed": "confirmed"}"#,
        r#"{"observation": "run", "content": "$", "command_id": -1, "exit_code": 1}"#,
        r#"{"action": "message", "content": "Shall I?", "wait_for_response": true}"#,
        r#"{"action": "message", "content": "Go on", "wait_for_response": false}"#,
        r#"{"action": "run_ipython", "code": "1", "thought": ""}"#,
        r#"{"observation": "run_ipython", "content": "1"}"#,
        r#"{"action": "finish", "outputs": {}, "thought": "All done"}"#,
        r#"{"action": "finish", "outputs": {}, "thought": ""}"#,
    ];
    let flat = check(&events);
    assert_snapshot!(flat, @r#"
    session file#1: repo-1, at main
     main
      1 [#0 openhands] user_said "Add a licence"
      2 [#1 openhands] assistant_said -/m "Certainly" run(oh-1 {"command":"touch LICENSE"})
      3 [#2 openhands] tool_returned oh-1 failed: "$"
      4 [#3 openhands] assistant_said -/m "Shall I?"
      5 [#4 openhands] user_said "Go on"
      6 [#5 openhands] assistant_said -/m run_ipython(oh-5 {"code":"1"})
      7 [#6 openhands] tool_returned oh-5 "1"
      8 [#7 openhands] assistant_said -/m "All done"
    skipped {"action finish without words": 1}
    "#);
    let pairs = format!(
        r#"{{"history": [[{}, {}], [{}, {}]]}}"#,
        events[0], r#"{"observation": "null", "content": ""}"#, events[1], events[2]
    );
    assert_snapshot!(shown(&any_reading(&pairs)), @r#"
    session file#1: untitled, at main
     main
      1 [#0 openhands] user_said "Add a licence"
      2 [#2 openhands] assistant_said -/- "Certainly" run(oh-2 {"command":"touch LICENSE"})
      3 [#3 openhands] tool_returned oh-2 failed: "$"
    skipped {"observation null": 1}
    "#);
}

#[test]
fn a_condensation_covers_what_was_forgotten() {
    let (first, one) = (action(4, "gen-1", "c1"), observation(5, 4));
    let (second, two) = (action(6, "gen-2", "c2"), observation(7, 6));
    let listed = r#"{"id": 8, "source": "agent", "action": "condensation", "args": {"forgotten_event_ids": [1, 4, 5], "summary": "so far"}}"#;
    let request = r#"{"id": 9, "source": "agent", "action": "condensation_request", "args": {}}"#;
    let range = r#"{"id": 10, "source": "agent", "action": "condensation", "args": {"forgotten_events_start_id": 1, "forgotten_events_end_id": 9}}"#;
    assert_snapshot!(check(&[TASK, &first, &one, &second, &two, listed, request, range]), @r#"
    session file#1: repo-1, at main
     main
      1 [1 openhands] user_said "Fix it" media image/*
      2 [4 openhands] assistant_said gen-1/model-1 <hm> "I look" execute_bash(c1 {"command": "ls"})
      3 [4 openhands] usage_reported gen-1/model-1 40+60+0>7
      4 [5 openhands] tool_returned c1 "<a.py>"
      5 [6 openhands] assistant_said gen-2/model-1 <hm> "I look" execute_bash(c2 {"command": "ls"})
      6 [6 openhands] usage_reported gen-2/model-1 40+60+0>7
      7 [7 openhands] tool_returned c2 "<a.py>"
      8 [8 openhands] compacted through 4 kept 5 before ? Unknown "so far"
      9 [9 openhands] compaction_requested Agent
      10 [10 openhands] compacted through 9 kept none before ? Agent ""
    "#);
}

#[test]
fn more_events_leave_the_first_as_they_were() {
    let (first, one) = (action(4, "gen-1", "c1"), observation(5, 4));
    let condensed =
        r#"{"id": 8, "source": "agent", "action": "condensation", "args": {"forgotten_event_ids": [1]}}"#;
    let all = [SYSTEM, TASK, RECALL, RECALLED, &first, &one, condensed, &first, &one];
    grows_by(&all, line);
    // More lines, too: a file of one line is a file of lines already.
    grows_by(&[&line(&all), &line(&all[..3]), &line(&[])], |lines| lines.join("\n") + "\n");
}

#[test]
fn a_history_on_its_own_is_a_session() {
    let reading = any_reading(&format!("[{SYSTEM}, {TASK}]"));
    assert_eq!(
        (reading.format, reading.sessions[0].key.as_str()),
        (super::TranscriptFormat::Openhands, "file")
    );
    assert_eq!(reading.sessions[0].threads[0].events.len(), 3);
}

#[test]
fn odd_events_are_carried() {
    assert_snapshot!(check(&[
        TASK,
        "3",
        r#"{"id": 5}"#,
        r#"{"id": 6, "source": "user", "action": "run", "message": "Running command: ls", "args": {"command": "ls"}}"#,
        r#"{"id": 7, "source": "agent", "observation": "run", "content": "a.py", "cause": 6}"#,
        r#"{"id": 8, "source": "agent", "action": "think", "args": {"thought": "deep"}}"#,
        r#"{"id": 9, "source": "agent", "action": "edit", "tool_call_metadata": {"tool_call_id": "c"}, "args": {"path": "a"}}"#,
    ]), @r#"
    session file#1: repo-1, at main
     main
      1 [1 openhands] user_said "Fix it" media image/*
      2 [#1 openhands] carried event
      3 [5 openhands] carried event
      4 [6 openhands] user_said "Running command: ls"
      5 [7 openhands] injected run "a.py"
      6 [8 openhands] assistant_said -/m think(oh-8 {"thought":"deep"})
      7 [9 openhands] assistant_said -/m (c {"path":"a"})
    ! event 1 cannot be read as one; it was carried as it is
    ! event 5 is neither action nor observation; it was carried
    ! 1 call has no result
    "#);
}
