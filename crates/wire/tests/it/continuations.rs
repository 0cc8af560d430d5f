//! Continuations, written for each agent and read again.

use std::sync::Arc;

use epitome_core::{
    ChainLink, ContentPart, EventId, Fact, LoggedEvent, Seq, SessionId, ThreadId, Tokens,
    event::{Compaction, CompactionTrigger, Event, Summary, Timestamp},
};
use epitome_wire::transcripts::{
    Continuation, ContinuedContent, ResumableAgent, SessionTarget, TranscriptLimits, WriteSessionError, read,
};

use super::histories::context;

/// A session of Claude Code's that ends in the middle of a loop, with a call id that comes twice and thinking.
const OPEN_LOOP: &str = r#"{"parentUuid":null,"cwd":"/src","sessionId":"11111111-2222-4333-8444-555555555555","type":"user","message":{"role":"user","content":"Mend it."},"uuid":"a","timestamp":"2026-03-01T10:00:00Z"}
{"parentUuid":"a","sessionId":"11111111-2222-4333-8444-555555555555","type":"assistant","message":{"id":"m1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"hm","signature":"s"}],"usage":{"input_tokens":170000,"output_tokens":1}},"uuid":"b","timestamp":"2026-03-01T10:00:01Z"}
{"parentUuid":"b","sessionId":"11111111-2222-4333-8444-555555555555","type":"assistant","message":{"id":"m1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"tool_use","id":"c","name":"Bash","input":{ "command":"ls" }}],"usage":{"input_tokens":170000,"output_tokens":1}},"uuid":"d","timestamp":"2026-03-01T10:00:02Z"}
{"parentUuid":"d","sessionId":"11111111-2222-4333-8444-555555555555","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"one"}]},"uuid":"e","timestamp":"2026-03-01T10:00:03Z"}
{"parentUuid":"e","sessionId":"11111111-2222-4333-8444-555555555555","type":"assistant","message":{"id":"m2","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"tool_use","id":"c","name":"Bash","input":{"command":"pwd"}}],"usage":{"input_tokens":170000,"output_tokens":1}},"uuid":"f","timestamp":"2026-03-01T10:00:04Z"}
{"parentUuid":"f","sessionId":"11111111-2222-4333-8444-555555555555","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"two"}]},"uuid":"g","timestamp":"2026-03-01T10:00:05Z"}
"#;

/// The end of the loop.
const DONE: &str = r#"{"parentUuid":"g","sessionId":"11111111-2222-4333-8444-555555555555","type":"assistant","message":{"id":"m3","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Done."}]},"uuid":"h","timestamp":"2026-03-01T10:00:06Z"}
"#;

/// The events of a file, perhaps with a compaction of everything before one of them.
fn logged(file: &str, first_kept: Option<u64>) -> Vec<Arc<LoggedEvent>> {
    let mut reading = read("file", file.as_bytes(), &TranscriptLimits::default()).unwrap();
    let mut events = reading.sessions.remove(0).threads.remove(0).events;
    if let Some(kept) = first_kept {
        let compaction = Compaction {
            summary: Summary::Text("What was done before.".to_owned()),
            through: Seq(kept - 1),
            first_kept: Some(Seq(kept)),
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        };
        events.push(Event::from_fact(Fact::Compacted(compaction), None));
    }
    let (thread, mut link) = (ThreadId::derived(&["continuations"]), ChainLink::ROOT);
    let log = |(event, seq): (Event, u64)| {
        link = link.next(&event, &event.fact_json());
        Arc::new(LoggedEvent { id: EventId { thread, seq: Seq(seq) }, event, link })
    };
    events.into_iter().zip(1..).map(log).collect()
}

fn target(model: Option<&str>) -> SessionTarget {
    SessionTarget {
        id: SessionId::derived(&["continued"]),
        directory: "/src/a b".to_owned(),
        now: Timestamp(1_772_359_200_123),
        title: None,
        model: model.map(str::to_owned),
    }
}

fn calls(continuation: &Continuation) -> Vec<&str> {
    let parts = continuation.messages.iter().flat_map(|message| match &message.content {
        ContinuedContent::Answer { parts, .. } => parts.as_slice(),
        _ => &[],
    });
    let call = |part: &'_ ContentPart| matches!(part, ContentPart::ToolCall(_));
    parts
        .filter(|part| call(part))
        .map(|part| if let ContentPart::ToolCall(call) = part { call.id.0.as_str() } else { "" })
        .collect()
}

#[test]
fn calls_have_ids_of_their_own_and_an_open_loop_is_closed() {
    let events = logged(OPEN_LOOP, None);
    let agent = ResumableAgent::ClaudeCode;
    let continuation = Continuation::of(&context(&events), Some(agent), agent);
    assert_eq!(calls(&continuation).len(), 2);
    assert_ne!(calls(&continuation)[0], calls(&continuation)[1]);
    let written = agent.write(&continuation, &target(None)).unwrap();
    assert_eq!(written.path, format!("projects/-src-a-b/{}.jsonl", target(None).id));
    assert!(
        written.contents.contains(r#""input":{ "command":"ls" }"#),
        "a message nobody changed keeps its bytes"
    );
    assert!(
        !written.contents.contains("thinking") && !written.contents.contains("170000"),
        "{}",
        written.contents
    );
    let read = logged(&written.contents, None);
    let last = &read
        .iter()
        .rev()
        .find(|event| matches!(event.event.fact, Fact::AssistantSaid { .. }))
        .unwrap()
        .event;
    assert_eq!(last.fact.text(), "[The earlier session stopped here.]");
    let answered: Vec<&str> =
        read.iter().flat_map(|event| event.event.fact.results()).map(|result| &*result.call.0).collect();
    assert_eq!(answered, calls(&continuation), "each result answers its own call");
}

#[test]
fn a_summary_stands_before_what_is_kept_in_every_agent() {
    // The first answer and its result are summarised; the second is kept.
    let events = logged(&[OPEN_LOOP, DONE].concat(), Some(6));
    for agent in ResumableAgent::ALL {
        let continuation = Continuation::of(&context(&events), Some(ResumableAgent::ClaudeCode), agent);
        assert_eq!(continuation.summary.as_deref(), Some("What was done before."), "{agent:?}");
        let written = agent.write(&continuation, &target(Some("p/m"))).unwrap();
        if agent == ResumableAgent::Goose {
            assert!(written.key.is_none() && written.contents.contains("What was done before."));
            continue;
        }
        let read = logged(&written.contents, None);
        let found = read.iter().find_map(|event| match &event.event.fact {
            Fact::Compacted(compaction) => Some(compaction.summary.text().to_owned()),
            _ => None,
        });
        assert!(
            found.is_some_and(|text| text.ends_with("What was done before.")),
            "{agent:?}: {}",
            written.contents
        );
        let again = Continuation::of(&context(&read), Some(agent), agent);
        assert!(again.summary.is_some_and(|summary| summary.ends_with("What was done before.")), "{agent:?}");
        assert_eq!(again.messages.len(), continuation.messages.len(), "{agent:?}: {}", written.contents);
    }
}

#[test]
fn an_export_for_opencode_needs_a_model() {
    let continuation = Continuation::of(&context(&logged(OPEN_LOOP, None)), None, ResumableAgent::Opencode);
    let written = ResumableAgent::Opencode.write(&continuation, &target(None));
    assert_eq!(written, Err(WriteSessionError::NoModel));
    assert!(ResumableAgent::Opencode.write(&continuation, &target(Some("p/m"))).is_ok());
}

#[test]
fn a_continuation_counts_every_text_in_it() {
    let continuation = Continuation {
        summary: Some("four".to_owned()),
        ..Continuation::of(&context(&logged(OPEN_LOOP, None)), None, ResumableAgent::Pi)
    };
    let letters = |text: &str| Tokens(text.len() as u64);
    let without = Continuation { summary: None, ..continuation.clone() };
    assert_eq!(continuation.tokens(letters), without.tokens(letters) + Tokens(4));
    assert!(without.tokens(letters) > Tokens("Mend it.onetwo".len() as u64));
}
