//! Sessions from their first word on, without a network: answers are written by hand, summaries by a summariser of our own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use epitome::{
    core::{Tokens, draft_gate::DraftFinish, event::Timestamp, policy::Policy, profile::Profiles},
    session::{LifecycleEvent, Session, SessionBuilder, ToolOutput, WarmRequestMode},
    store::{
        StoreLocation,
        records::{AttemptFilter, JobState},
    },
    summarise::{ModelDraft, Summarize, SummaryFuture, SummaryRequest},
    wire::Format,
};
use serde_json::json;

/// A summariser that says the same every time.
#[derive(Debug)]
struct Repeats(&'static str);

impl Summarize for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(async move {
            let text = self.0.to_owned();
            Ok(ModelDraft { text, finish: DraftFinish::Complete, usage: None, model: None })
        })
    }
}

const GOOD: &str = "## Session Intent\n- Count the files of the project.\n\n## Current Task\n- Counting goes on.\n\n\
                    ## Key Decisions\n- None.\n\n## Next Steps\n- Count the rest.\n";

fn builder() -> SessionBuilder {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    Session::builder(Format::OpenaiChat, "a model nobody knows")
        .window(Tokens(8_000))
        .system("Count.")
        .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
}

fn called(turn: usize) -> String {
    json!({"id": format!("answer-{turn}"), "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": format!("Counting part {turn}."), "tool_calls": [
            {"id": format!("call-{turn}"), "type": "function",
             "function": {"name": "read_file", "arguments": format!("{{\"path\":\"part-{turn}.txt\"}}")}}]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}})
    .to_string()
}

/// Plays so many turns of a tool loop; gives the bodies of the requests.
async fn play(session: &Session, turns: std::ops::Range<usize>) -> Vec<String> {
    let mut bodies = Vec::new();
    for turn in turns {
        let request = session.next_request().await.unwrap();
        assert!(request.tokens <= Tokens(6_000), "{request:?}");
        bodies.push(request.body);
        let answer = session.answered(&called(turn)).await.unwrap();
        let text = format!("line {turn} of the file\n").repeat(60);
        session.tool_results(&[ToolOutput::of(&answer.calls[0], text)]).await.unwrap();
        // Whoever summarises gets a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bodies
}

/// Waits until no summary is in the making, but not for ever.
async fn settled(session: &Session) {
    for _ in 0..1_000 {
        let jobs = session.store().jobs(Some(session.thread())).unwrap();
        if !jobs.iter().any(|job| matches!(job.state, JobState::Queued | JobState::Running { .. })) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_session_stays_inside_its_window_by_summaries_made_beside_it() {
    let session = builder().summariser(Repeats(GOOD)).begin().await.unwrap();
    let mut events = session.events();
    session.user("Count the files. Never write any file.").await.unwrap();
    for turn in 0..60 {
        play(&session, turn..turn + 1).await;
        settled(&session).await;
    }
    let mut adopted = 0;
    let mut told = Vec::new();
    while let Ok(happened) = events.try_recv() {
        adopted += usize::from(matches!(&happened, LifecycleEvent::Adopted { by, .. } if by == "repeats"));
        told.push(happened.to_string());
    }
    assert!(adopted >= 3, "{told:#?}");
    for call in session.calls().await.unwrap() {
        session.replay(call.number).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_what_earlier_ones_showed_of_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.db");
    let begin = || {
        let asked =
            Session::builder(Format::Anthropic, "claude-sonnet-4-5").window(Tokens(40_000)).file(&file);
        asked.system("Count.".repeat(2_000)).begin()
    };
    let ceiling = async |session: &Session| session.size().await.unwrap().1;
    let first = begin().await.unwrap();
    // By the profile, counts may be a quarter short.
    assert_eq!(ceiling(&first).await, Tokens(24_000));
    first.user("Count the files.").await.unwrap();
    for call in 0..2 {
        let request = first.next_request().await.unwrap();
        let counted = request.tokens.0 * 11 / 10;
        let answer = json!({"id": format!("m{call}"), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "One."}], "stop_reason": "end_turn",
            "usage": {"input_tokens": counted, "output_tokens": 3}});
        first.answered(&answer.to_string()).await.unwrap();
        first.user("And on.").await.unwrap();
    }
    let reopened = ceiling(&first).await;
    let second = begin().await.unwrap();
    let known = ceiling(&second).await;
    assert!(Tokens(21_500) < known && known < Tokens(24_000), "one session is little: {known}");
    for _ in 0..20 {
        let session = begin().await.unwrap();
        session.user("Count the files.").await.unwrap();
        let request = session.next_request().await.unwrap();
        let answer = json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "One."}], "stop_reason": "end_turn",
            "usage": {"input_tokens": request.tokens.0 * 11 / 10, "output_tokens": 3}});
        session.answered(&answer.to_string()).await.unwrap();
    }
    let known = ceiling(&begin().await.unwrap()).await;
    assert!(Tokens(26_000) < known && known <= Tokens(27_273), "a tenth and little more is kept: {known}");
    // A session goes on as it began, whatever others have shown since.
    let again = Session::builder(Format::Anthropic, "claude-sonnet-4-5").window(Tokens(40_000)).file(&file);
    let again = again.resume(first.id()).await.unwrap();
    assert_eq!(ceiling(&again).await, reopened);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_reopened_before_every_call_sends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [file, copy] = ["log.db", "copy.db"].map(|name| folder.path().join(name));
    let first = builder().file(&file).begin().await.unwrap();
    first.user("Count the files.").await.unwrap();
    let id = first.id();
    // The same session twice: its digits stand in handles, and are counted.
    first.store().backup(&StoreLocation::named(&copy).unwrap(), &mut |_| {}).unwrap();
    drop(first);
    let whole = builder().file(&copy).resume(id).await.unwrap();
    let expected = play(&whole, 0..30).await;
    for (turn, expected) in expected.iter().enumerate() {
        let session = builder().file(&file).resume(id).await.unwrap();
        let bodies = play(&session, turn..turn + 1).await;
        assert_eq!(&bodies[0], expected, "call {turn}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_bracket_every_compaction_and_cannot_break_a_session() {
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (before, after) = (Arc::clone(&heard), Arc::clone(&heard));
    let session = builder()
        .before_compaction(move |happened| {
            before.lock().unwrap().push("before");
            assert!(
                matches!(happened, LifecycleEvent::Started { tokens_before, .. } if *tokens_before > Tokens(0))
            );
        })
        .after_compaction(move |happened| {
            after.lock().unwrap().push("after");
            assert!(matches!(happened, LifecycleEvent::Failed { .. }), "a callback with a mistake");
        })
        .begin()
        .await
        .unwrap();
    let mut events = session.events();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..30).await;
    let mut adopted = 0;
    while let Ok(happened) = events.try_recv() {
        adopted += usize::from(matches!(happened, LifecycleEvent::Adopted { .. }));
    }
    let heard = heard.lock().unwrap();
    assert!(adopted > 1);
    assert_eq!(*heard, ["before", "after"].repeat(adopted));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_asks_for_is_written_by_the_careful_summariser() {
    let session =
        builder().summariser(Repeats(GOOD)).careful_summariser(Careful(Repeats(GOOD))).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..8).await;
    session.compact(Some("the largest files")).await.unwrap();
    play(&session, 8..40).await;
    let by = |name: &str| session.store().attempts(AttemptFilter::All, Some(name), 100).unwrap().len();
    assert_eq!(by("careful"), 1);
    assert!(by("repeats") >= 1);
}

/// Another model for what a person asks for.
#[derive(Debug)]
struct Careful(Repeats);

impl Summarize for Careful {
    fn name(&self) -> &'static str {
        "careful"
    }

    fn window(&self) -> Tokens {
        self.0.window()
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        self.0.summarize(request)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_refused_once_is_known_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.db");
    let session = builder().file(&file).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, 0..3).await;
    session.next_request().await.unwrap();
    let refusal = br#"{"error":{"message":"This model's maximum context length is 3000 tokens. However, your messages resulted in 3600 tokens.","code":"context_length_exceeded"}}"#;
    session.refused(400, refusal).await.unwrap();
    let (_, limit) = session.size().await.unwrap();
    assert!(limit < Tokens(6_000));
    play(&session, 3..80).await;
    let live = session.size().await.unwrap();
    assert!(live.1 <= limit);
    let id = session.id();
    drop(session);
    let again = builder().file(&file).resume(id).await.unwrap();
    assert_eq!(again.size().await.unwrap(), live);
}

/// Keeps the requests it is asked to continue.
#[derive(Clone, Debug, Default)]
struct Continues(Arc<std::sync::Mutex<Vec<Option<String>>>>);

impl Summarize for Continues {
    fn name(&self) -> &'static str {
        "continues"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        self.0.lock().unwrap().push(request.warm.clone());
        Box::pin(async {
            Ok(ModelDraft { text: GOOD.to_owned(), finish: DraftFinish::Complete, usage: None, model: None })
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_continues_the_sessions_own_request_where_that_is_cheaper() {
    // A model that costs the same reads all of it anew; one that costs next to nothing is asked apart.
    for (other, is_warm) in [("gpt-5.1", true), ("gpt-4o-mini", false)] {
        let prices = Profiles::builtin().find(other).unwrap().prices;
        let summariser = Continues::default();
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let session = Session::builder(Format::OpenaiChat, "gpt-5.1")
            .window(Tokens(8_000))
            .policy(Policy::named("tiered").unwrap())
            .system("Count.")
            .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
            .summariser(summariser.clone())
            .summariser_prices(prices)
            .warm(WarmRequestMode::IfCheaper)
            .begin()
            .await
            .unwrap();
        session.user("Count the files.").await.unwrap();
        let bodies = play(&session, 0..40).await;
        let asked = summariser.0.lock().unwrap().clone();
        assert!(!asked.is_empty(), "nothing was summarised");
        for warm in asked {
            assert_eq!(warm.is_some(), is_warm, "{other}");
            let Some(warm) = warm else { continue };
            // All that was sent last, and one more message.
            let messages = |body: &str| {
                let body: serde_json::Value = serde_json::from_str(body).unwrap();
                body["messages"].as_array().unwrap().clone()
            };
            let warm = messages(&warm);
            let sent = bodies.iter().map(|body| messages(body)).find(|sent| warm.starts_with(sent));
            assert!(sent.is_some_and(|sent| sent.len() < warm.len()), "it continues a request that was sent");
        }
    }
}
