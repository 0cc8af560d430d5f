//! `why`, asked of sessions that were played to the end: whatever it says is held against the bytes that were sent.

use epitome::{
    core::{Seq, Tokens, draft_gate::DraftFinish, policy::Policy},
    lineage::ForkMode,
    session::{Session, SessionBuilder},
    summarise::{ModelDraft, Summarize, SummaryFuture, SummaryRequest},
};
use epitome_measure::text_fate::{MatchKind, TextFate, TextFateBasis, TextPresence, why};
use serde_json::json;

use crate::played_sessions::{self, PlayedResult, PlayedTurn, compactions_only, imported};

/// A summariser that says the same every time.
#[derive(Debug)]
struct Repeats;

impl Summarize for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        let text = "## Session Intent\n- Count.\n\n## Current Task\n- Counting goes on.\n\n## Next Steps\n- Count on.\n";
        Box::pin(async move {
            Ok(ModelDraft { text: text.to_owned(), finish: DraftFinish::Complete, usage: None, model: None })
        })
    }
}

fn builder() -> SessionBuilder {
    let (builder, _) = played_sessions::builder(Tokens(8_000));
    builder.system("Count.")
}

/// Only compactions, which keep two turns.
fn compacting() -> SessionBuilder {
    builder().policy(&compactions_only()).summariser(Repeats)
}

/// Plays turns of a tool loop. Each output has a word of its own in its middle.
async fn play(session: &Session, turns: std::ops::Range<usize>, lines: usize) {
    let counted = |turn| {
        let line = format!("line of file {turn}\n").repeat(lines / 2);
        PlayedTurn {
            said: format!("Counting part-{turn}."),
            tool: "shell",
            arguments: json!({"path": format!("part-{turn}.txt")}),
            usage: json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}),
            result: PlayedResult::Output(format!(
                "{line}the secret of file {turn} is umbrella-{turn}.\n{line}"
            )),
        }
    };
    played_sessions::play(session, turns, counted).await;
}

fn ask(session: &Session, text: &str) -> TextFate {
    why(&**session.store(), session.thread(), text).unwrap()
}

/// The answer, with the thread's name replaced by one that is always the same.
fn told(session: &Session, text: &str) -> String {
    ask(session, text).to_string().replace(&session.thread().short(), "thread")
}

/// Holds an answer against the bytes of every call.
async fn check(session: &Session, text: &str) {
    let answer = ask(session, text);
    assert!(answer.others.is_empty(), "{answer}");
    for call in session.calls().await.unwrap() {
        let body = session.replay(call.number).await.unwrap().rendered.body;
        let seen = answer.events.iter().flat_map(|trace| &trace.seen);
        let said = seen
            .filter(|stretch| (stretch.first..=stretch.last).contains(&call.number))
            .any(|stretch| stretch.sight.words == TextPresence::There);
        assert_eq!(said, body.contains(text), "{text} in call {}\n{answer}\n{body}", call.number);
    }
    for trace in &answer.events {
        let recalled = session.recall(&trace.handle).await.unwrap();
        assert!(recalled[0].event.event.fact.text().contains(text), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_followed_through_two_compactions_and_their_undoing() {
    let session = compacting().begin().await.unwrap();
    session.user("Count the files. Never write any file. The bucket is called zanzibar.").await.unwrap();
    play(&session, 0..4, 60).await;
    insta::assert_snapshot!(told(&session, "umbrella-1"), @r"
    Not compacted out: call 3, the last, had it word for word.
    Found in 1 event. Of 4 calls, 2 rendered again, every one to the bytes that were sent.

    event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
      calls 2-3  word for word
      now        word for word
      get it     recall thread:8
    ");
    let first = session.compact(None).await.unwrap();
    play(&session, 4..8, 60).await;
    insta::assert_snapshot!(told(&session, "umbrella-1"), @r"
    Compacted out: call 3 was the last to have it word for word; since call 4 it is summarised by compaction 16 (summary: repeats), which does not say it.
    Found in 1 event. Of 8 calls, 3 rendered again, every one to the bytes that were sent.

    event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
      calls 2-3  word for word
      calls 4-7  summarised by compaction 16 (summary: repeats), which does not say it; because: somebody asked for a compaction
      now        summarised by compaction 16 (summary: repeats), which does not say it
      get it     recall thread:8
    ");
    let second = session.compact(None).await.unwrap();
    assert!(first < second);
    play(&session, 8..10, 10).await;
    session.undo().await.unwrap();
    play(&session, 10..11, 10).await;
    insta::assert_snapshot!(told(&session, "umbrella-1"), @r"
    Compacted out: call 3 was the last to have it word for word; since call 4 it is summarised by compaction 16 (summary: repeats), which does not say it.
    Found in 2 events. Of 11 calls, 4 rendered again, every one to the bytes that were sent.

    event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
      calls 2-3  word for word
      calls 4-7  summarised by compaction 16 (summary: repeats), which does not say it; because: somebody asked for a compaction
      calls 8-9  summarised by compaction 30 (summary: repeats), which does not say it; because: somebody asked for a compaction
      call 10    summarised by compaction 16 (summary: repeats), which does not say it; because: a compaction was undone or restored
      now        summarised by compaction 16 (summary: repeats), which does not say it
      get it     recall thread:8

    event 40 (tool returned): …ile 10 line of file 10 the secret of file 10 is «umbrella-1»0. line of file 10 line of file 10 line of file …
      calls      no call has seen it yet
      now        word for word
      get it     recall thread:40
    ");
    // A rule of the user's is said by every summary.
    insta::assert_snapshot!(told(&session, "Never write any file"), @r"
    Not lost: call 10, the last, had the words, though no longer the whole event (summarised by compaction 16 (summary: repeats), which still says it).
    Found in 1 event. Of 11 calls, 4 rendered again, every one to the bytes that were sent.

    event 2 (user said): Count the files. «Never write any file». The bucket is called zanzibar.
      calls 0-3  word for word
      calls 4-7  summarised by compaction 16 (summary: repeats), which still says it; because: somebody asked for a compaction
      calls 8-9  summarised by compaction 30 (summary: repeats), which still says it; because: somebody asked for a compaction
      call 10    summarised by compaction 16 (summary: repeats), which still says it; because: a compaction was undone or restored
      now        summarised by compaction 16 (summary: repeats), which still says it
      get it     recall thread:2
    ");
    for text in [
        "umbrella-0",
        "umbrella-1",
        "umbrella-5",
        "umbrella-9",
        "Never write any file",
        "zanzibar",
        "part-2.txt",
    ] {
        check(&session, text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cut_or_stubbed_is_told_with_the_rule_and_the_call() {
    let policy = Policy::read(
        r#"
        name = "test"
        about = "Cuts at once, and lets results expire."
        [limits]
        target = 0.6
        trigger = 0.9
        [[reduce]]
        reducer = "cut_outputs"
        when = "on_arrival"
        tokens = { over = 400, head = 100, tail = 100 }
        spare_turns = 0
        [[reduce]]
        reducer = "expire_tool_results"
        when = "every_call"
        default = { turns = 2 }
        "#,
    )
    .unwrap();
    let session = builder().policy(&policy).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..1, 20).await;
    play(&session, 1..2, 200).await;
    play(&session, 2..6, 20).await;
    insta::assert_snapshot!(told(&session, "umbrella-0"), @r"
    Compacted out: call 3 was the last to have it word for word; since call 4 it is a stub, by expire_tool_results, which does not say it.
    Found in 1 event. Of 6 calls, 3 rendered again, every one to the bytes that were sent.

    event 5 (tool returned): …f file 0 line of file 0 the secret of file 0 is «umbrella-0». line of file 0 line of file 0 line of file 0 l…
      calls 1-3  word for word
      calls 4-5  a stub, by expire_tool_results, which does not say it; because: expire_tool_results on every call
      now        a stub, by expire_tool_results, which does not say it
      get it     recall thread:5
    ");
    insta::assert_snapshot!(told(&session, "umbrella-1"), @r"
    Compacted out: no call had it word for word; it is a stub, by expire_tool_results, which does not say it.
    Found in 1 event. Of 6 calls, 2 rendered again, every one to the bytes that were sent.

    event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
      calls 2-4  cut by cut_outputs, which does not say it; from the first call on
      call 5     a stub, by expire_tool_results, which does not say it; because: expire_tool_results on every call
      now        a stub, by expire_tool_results, which does not say it
      get it     recall thread:8
    ");
    for turn in 0..6 {
        check(&session, &format!("umbrella-{turn}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_session_is_answered_for_every_text_as_its_bytes_say() {
    let session = builder().summariser(Repeats).begin().await.unwrap();
    session.user("Count the files. The bucket is called zanzibar.").await.unwrap();
    play(&session, 0..40, 60).await;
    for text in ["zanzibar", "umbrella-0.", "umbrella-7", "umbrella-21", "umbrella-39", "Counting part-12"] {
        check(&session, text).await;
        let TextFateBasis::Calls { recorded, replayed, same, skipped } = ask(&session, text).basis else {
            panic!()
        };
        assert_eq!((recorded, skipped), (40, 0));
        assert!(replayed < 30 && same == replayed, "{replayed} calls made again for {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_answers_from_the_calls_it_shares_and_its_own() {
    let session = compacting().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..4, 60).await;
    let at = session.compact(None).await.unwrap();
    play(&session, 4..6, 20).await;
    for mode in [ForkMode::InFull, ForkMode::WithSummary] {
        let fork = session.fork(at, mode, "a fork").await.unwrap();
        fork.user("Go on.").await.unwrap();
        play(&fork, 20..21, 20).await;
        for text in ["umbrella-1", "umbrella-20"] {
            check(&fork, text).await;
        }
        assert_eq!(ask(&fork, "umbrella-5").matched, MatchKind::Nowhere);
        let parent = session.thread().short();
        let answer = told(&fork, "umbrella-1").replace(&parent, "parent");
        if mode == ForkMode::InFull {
            insta::assert_snapshot!(answer, @r"
            Not compacted out: call 5, the last, had it word for word.
            Found in 1 event. Of 6 calls, 3 rendered again, every one to the bytes that were sent.

            event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
              calls 2-3  word for word
              call 4     summarised by compaction 16 (summary: repeats), which does not say it; because: somebody asked for a compaction
              call 5     word for word; because: a compaction was undone or restored
              now        word for word
              get it     recall thread:8
            ");
        } else {
            insta::assert_snapshot!(answer, @r"
            Compacted out: call 3 was the last to have it word for word; since call 4 it is summarised by compaction 16 (summary: repeats), which does not say it.
            Found in 1 event. Of 6 calls, 3 rendered again, every one to the bytes that were sent.

            event 8 (tool returned): …f file 1 line of file 1 the secret of file 1 is «umbrella-1». line of file 1 line of file 1 line of file 1 l…
              calls 2-3  word for word
              calls 4-5  summarised by compaction 16 (summary: repeats), which does not say it; because: somebody asked for a compaction
              now        summarised by compaction 16 (summary: repeats), which does not say it
              get it     recall thread:8
            ");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_and_what_came_after_the_last_call_are_told_too() {
    let session = builder().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..1, 20).await;
    session.pin(epitome::core::event::Pin::Text("the lighthouse stays".to_owned())).await.unwrap();
    session.user("The harbour is closed.").await.unwrap();
    insta::assert_snapshot!(told(&session, "lighthouse"), @r"
    No call has seen it yet: it came after the last of them.
    Found in 1 event; 1 call recorded.

    event 6 (pinned): the «lighthouse» stays
      calls      no call has seen it yet
      now        not sent by itself
      get it     recall thread:6
    ");
    insta::assert_snapshot!(told(&session, "HARBOUR"), @r"
    No call has seen it yet: it came after the last of them.
    Found in 1 event, with other capitals; 1 call recorded.

    event 7 (user said): The «harbour» is closed.
      calls      no call has seen it yet
      now        word for word
      get it     recall thread:7
    ");
    insta::assert_snapshot!(told(&session, "never said"), @r"
    It never happened: no event of the session holds it.
    Found in 0 events; 1 call recorded.
    ");
    insta::assert_snapshot!(told(&session, " "), @r"
    Nothing was asked for: give some words of what you look for.
    Found in 0 events; 1 call recorded.
    ");
}

#[test]
fn a_session_without_recorded_calls_is_answered_from_its_log() {
    let log = r#"{"type":"user","uuid":"1","parentUuid":null,"sessionId":"s","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"The bucket is called zanzibar."}}
{"type":"assistant","uuid":"2","parentUuid":"1","sessionId":"s","timestamp":"2026-01-01T00:00:01Z","message":{"id":"m1","role":"assistant","model":"claude","content":[{"type":"text","text":"Noted."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":1}}}
{"type":"system","subtype":"compact_boundary","uuid":"3","parentUuid":null,"logicalParentUuid":"2","sessionId":"s","timestamp":"2026-01-01T00:00:02Z","content":"Conversation compacted","compactMetadata":{"trigger":"auto","preTokens":100}}
{"type":"user","uuid":"4","parentUuid":"3","sessionId":"s","timestamp":"2026-01-01T00:00:03Z","isCompactSummary":true,"message":{"role":"user","content":"A bucket was named."}}
{"type":"user","uuid":"5","parentUuid":"4","sessionId":"s","timestamp":"2026-01-01T00:00:04Z","message":{"role":"user","content":"Go on."}}
"#;
    let (store, thread) = imported("s.jsonl", log);
    let answer =
        |text: &str| why(&*store, thread, text).unwrap().to_string().replace(&thread.short(), "thread");
    insta::assert_snapshot!(answer("zanzibar"), @r"
    No calls are recorded for this session, so that nobody knows what its models were sent. By the log alone: it is summarised by compaction 5 (summary: the agent's own), which does not say it.
    Found in 1 event.

    event 1 (user said): The bucket is called «zanzibar».
      events 1-4  word for word
      events 5-6  summarised by compaction 5 (summary: the agent's own), which does not say it
      now         summarised by compaction 5 (summary: the agent's own), which does not say it
      get it      recall thread:1
    ");
    insta::assert_snapshot!(answer("Go on"), @r"
    No calls are recorded for this session, so that nobody knows what its models were sent. By the log alone: it is in the context, word for word.
    Found in 1 event.

    event 6 (user said): «Go on».
      event 6    word for word
      now        word for word
      get it     recall thread:6
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_everywhere_is_told_of_at_its_first_and_newest_places() {
    let session = builder().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..20, 10).await;
    let answer = ask(&session, "the secret");
    assert_eq!((answer.events.len(), answer.others.count()), (12, 8));
    let told: Vec<Seq> = answer.events.iter().map(|trace| trace.event.seq).collect();
    assert!(told.is_sorted() && answer.others.first() > told.get(3).copied());
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["basis"]["from"], "calls");
    assert_eq!(json["events"][0]["now"]["how"], "verbatim");
}
