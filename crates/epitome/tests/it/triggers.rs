//! What makes a session compact, each from its first word on: a threshold inside a tool loop, an overflow, the agent, a
//! person, a pause, another model; and what follows a compaction.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use epitome::{
    core::{
        Fact, LoggedEvent, Tokens,
        draft_gate::DraftFinish,
        event::{Compaction, CompactionTrigger, Timestamp},
        profile::Profiles,
    },
    lineage::ForkMode,
    memory_files::FileWriteOutcome,
    session::{
        AutoContinue, CompactTool, LifecycleEvent, OverflowCheck, RefusalKind, Session, SessionBuilder,
        SessionError, SessionRequest, ToolOutput,
    },
    store::records::SummarySource,
    summarise::{ModelDraft, Summarize, SummaryFuture, SummaryRequest},
    wire::Format,
};
use serde_json::{Value, json};

const GOOD: &str = "## Session Intent\n- Count the files of the project.\n\n## Current Task\n- Counting goes on.\n\n\
                    ## Next Steps\n- Count the rest.\n";

/// A summariser that says the same every time, and remembers what it was asked.
#[derive(Clone, Debug, Default)]
struct Remembers(Arc<Mutex<Vec<String>>>);

impl Remembers {
    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Summarize for Remembers {
    fn name(&self) -> &'static str {
        "remembers"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        self.0.lock().unwrap().push(request.user.clone());
        let draft =
            ModelDraft { text: GOOD.to_owned(), finish: DraftFinish::Complete, usage: None, model: None };
        Box::pin(async move { Ok(draft) })
    }
}

fn builder(format: Format) -> SessionBuilder {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    Session::builder(format, "a model nobody knows")
        .system("Count.")
        .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
}

fn chat() -> SessionBuilder {
    builder(Format::OpenaiChat).window(Tokens(8_000))
}

/// An answer in a format: words, and calls of tools with their arguments.
fn answer(format: Format, turn: usize, text: &str, calls: &[(&str, Value)]) -> String {
    let ids: Vec<String> = (0..calls.len()).map(|call| format!("call_{turn}_{call}")).collect();
    let calls = ids.iter().zip(calls);
    match format {
        Format::OpenaiChat => {
            let calls: Vec<Value> = calls
                .map(|(id, (name, arguments))| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
                })
                .collect();
            let mut message = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            json!({"id": format!("a{turn}"), "model": "m", "choices": [{"index": 0, "message": message}]})
        }
        Format::OpenaiResponses => {
            let said = json!({"type": "message", "id": format!("msg_{turn}"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]});
            let calls = calls.map(|(id, (name, arguments))| {
                json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
                    "arguments": arguments.to_string(), "status": "completed"})
            });
            let output: Vec<Value> = std::iter::once(said).chain(calls).collect();
            json!({"id": format!("resp_{turn}"), "object": "response", "model": "m", "status": "completed", "output": output})
        }
        Format::Anthropic => {
            let calls =
                calls.map(|(id, (name, input))| json!({"type": "tool_use", "id": id, "name": name, "input": input}));
            let content: Vec<Value> = std::iter::once(json!({"type": "text", "text": text})).chain(calls).collect();
            json!({"id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": "m", "content": content,
                "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 10}})
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    .to_string()
}

fn output(turn: usize) -> String {
    format!("line {turn} of the file\n").repeat(60)
}

/// Plays turns of a tool loop; gives the requests.
async fn play(session: &Session, format: Format, turns: std::ops::Range<usize>) -> Vec<SessionRequest> {
    let mut requests = Vec::new();
    for turn in turns {
        requests.push(session.next_request().await.unwrap());
        let path = json!({"path": format!("part-{turn}.txt")});
        let said = answer(format, turn, &format!("Counting part {turn}."), &[("read_file", path)]);
        let answer = session.answered(&said).await.unwrap();
        session.tool_results(&[ToolOutput::of(&answer.calls[0], output(turn))]).await.unwrap();
    }
    requests
}

/// Everything that happened.
fn log(session: &Session) -> Vec<LoggedEvent> {
    session.store().read(session.thread(), epitome::core::Seq(1), usize::MAX >> 1).unwrap()
}

fn compactions(session: &Session) -> Vec<Compaction> {
    let compaction = |logged: LoggedEvent| match logged.event.fact {
        Fact::Compacted(compaction) => Some(compaction),
        _ => None,
    };
    log(session).into_iter().filter_map(compaction).collect()
}

fn triggers(session: &Session) -> Vec<CompactionTrigger> {
    compactions(session).iter().map(|compaction| compaction.trigger).collect()
}

async fn assert_replays(session: &Session) {
    for call in session.calls().await.unwrap() {
        session.replay(call.number).await.unwrap();
    }
}

/// Waits until something happened to a summary.
async fn wait(
    session: &Session,
    is: impl Fn(&LifecycleEvent) -> bool,
    events: &mut tokio::sync::broadcast::Receiver<LifecycleEvent>,
) {
    let waiting = async {
        loop {
            if is(&events.recv().await.unwrap()) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "{:?}", session.jobs().await);
}

fn is_ended(happened: &LifecycleEvent) -> bool {
    matches!(happened, LifecycleEvent::Ended { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_threshold_is_noticed_inside_a_tool_loop() {
    for format in crate::SCRIPTED {
        let session = builder(format).window(Tokens(8_000)).begin().await.unwrap();
        session.user("Count the files. Never write any file.").await.unwrap();
        let requests = play(&session, format, 0..40).await;
        assert!(requests.iter().all(|request| request.tokens <= Tokens(6_000)));
        let triggers = triggers(&session);
        assert!(triggers.len() >= 2, "{format:?}: {triggers:?}");
        assert!(requests.last().unwrap().body.contains("Never write any file."), "{format:?}");
        assert_replays(&session).await;
    }
}

/// The words of a provider that was asked too much, with and without numbers.
fn overflows(format: Format) -> Vec<(u16, Value)> {
    match format {
        Format::OpenaiChat => vec![
            (
                400,
                json!({"error": {"message": "This model's maximum context length is 4000 tokens. However, your messages \
                resulted in 6000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
            ),
            (
                400,
                json!({"error": {"message": "This model's maximum context length is 128000 tokens. However, your \
                messages resulted in 130000 tokens.", "code": "context_length_exceeded"}}),
            ),
        ],
        Format::OpenaiResponses => vec![(
            400,
            json!({"error": {"message": "Your input exceeds the context window of this \
            model. Please adjust your input and try again.", "code": "context_length_exceeded"}}),
        )],
        Format::Anthropic => vec![
            (
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum"}}),
            ),
            (
                413,
                json!({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum \
                size"}}),
            ),
        ],
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_of_any_provider_is_recovered_from_without_a_model() {
    for format in crate::SCRIPTED {
        for (status, body) in overflows(format) {
            let summariser = Remembers::default();
            let session = builder(format).summariser(summariser.clone()).begin().await.unwrap();
            session.user("Count the files. Never write any file.").await.unwrap();
            play(&session, format, 0..12).await;
            let mut last = session.next_request().await.unwrap();
            for _ in 0..2 {
                let refused = session.refused(status, body.to_string().as_bytes()).await.unwrap();
                assert_eq!(refused, RefusalKind::TooLong, "{format:?} {body}");
                let smaller = session.next_request().await.unwrap();
                assert!(
                    smaller.tokens < last.tokens,
                    "{format:?} {body}: {} {}",
                    last.tokens,
                    smaller.tokens
                );
                assert!(smaller.body.len() < last.body.len(), "{format:?} {body}");
                last = smaller;
            }
            assert!(last.body.contains("Never write any file."), "{}", last.body);
            assert_eq!(summariser.asked().len(), 0, "{format:?}: nobody was waited for, or asked");
            assert_replays(&session).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_smaller_is_refused_with_words_and_not_repeated_for_ever() {
    let session = chat().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    let refusals = async {
        loop {
            if let Err(error) = session.next_request().await {
                return error;
            }
            let body = overflows(Format::OpenaiChat)[1].1.to_string();
            session.refused(400, body.as_bytes()).await.unwrap();
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), refusals).await.unwrap();
    assert!(matches!(error, SessionError::Request(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_error_is_no_overflow() {
    let session = chat().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    let first = session.next_request().await.unwrap();
    assert_eq!(
        session.refused(500, br#"{"error":{"message":"oops"}}"#).await.unwrap(),
        RefusalKind::Otherwise
    );
    assert_eq!(session.next_request().await.unwrap().body, first.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_window_is_left_alone_until_the_provider_says_what_it_is() {
    let format = Format::OpenaiChat;
    let session = builder(format).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    let requests = play(&session, format, 0..30).await;
    assert!(
        requests.iter().all(|request| request.cause.is_none()),
        "nothing is done before anybody complains"
    );
    let full = session.next_request().await.unwrap();
    assert!(full.tokens > Tokens(10_000), "{}", full.tokens);
    let body = json!({"error": {"message": "This model's maximum context length is 8000 tokens. However, your messages \
        resulted in 12000 tokens.", "code": "context_length_exceeded"}});
    session.refused(400, body.to_string().as_bytes()).await.unwrap();
    let requests = play(&session, format, 30..70).await;
    assert!(requests.iter().all(|request| request.tokens <= Tokens(8_000)), "it is known from then on");
    let later = requests[1..].iter().filter(|request| request.cause.is_some()).count();
    assert!(later >= 1, "and acted upon before it is reached");
    assert_replays(&session).await;
    // What was learned is in the log: whoever opens the session again knows it too.
    let again = builder(format).store(Arc::clone(session.store())).resume(session.id()).await.unwrap();
    assert!(again.size().await.unwrap().1 <= Tokens(8_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_compacts_by_a_tool_with_a_focus() {
    for format in crate::SCRIPTED {
        let summariser = Remembers::default();
        let tools = json!([format.compact_tool()]);
        let session = builder(format)
            .window(Tokens(20_000))
            .tools(tools)
            .compact_tool(CompactTool::Offered)
            .summariser(summariser.clone())
            .begin()
            .await
            .unwrap();
        session.user("Count the files.").await.unwrap();
        play(&session, format, 0..12).await;
        let mut events = session.events();
        session.next_request().await.unwrap();
        let calls = [("compact", json!({"focus": "the parser"})), ("read_file", json!({"path": "a"}))];
        let answer = session.answered(&answer(format, 12, "Done with that.", &calls)).await.unwrap();
        assert_eq!(answer.calls.len(), 1, "{format:?}: the session answers its own tool");
        assert!(!answer.is_final());
        session.tool_results(&[ToolOutput::of(&answer.calls[0], "a")]).await.unwrap();
        wait(&session, is_ended, &mut events).await;
        assert!(summariser.asked()[0].contains("the parser"), "{format:?}");
        let request = session.next_request().await.unwrap();
        assert_eq!(triggers(&session), [CompactionTrigger::Agent], "{format:?}");
        assert!(request.body.contains("stands for an earlier part"), "{format:?}: {}", request.body);
        assert_replays(&session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_only_compacts_goes_on() {
    let format = Format::OpenaiChat;
    let session = chat()
        .tools(json!([format.compact_tool()]))
        .compact_tool(CompactTool::Offered)
        .begin()
        .await
        .unwrap();
    session.user("Count the files.").await.unwrap();
    session.next_request().await.unwrap();
    let answer = session.answered(&answer(format, 0, "", &[("compact", json!({}))])).await.unwrap();
    assert_eq!((answer.calls.len(), answer.own_calls, answer.is_final()), (0, 1, false));
    let request = session.next_request().await.unwrap();
    assert!(request.body.contains("There is nothing to compact yet"), "{}", request.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_compacts_with_a_focus_and_waits_or_does_not() {
    let format = Format::OpenaiChat;
    let summariser = Remembers::default();
    let session = chat().window(Tokens(20_000)).summariser(summariser.clone()).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, format, 0..10).await;
    let place = session.compact(Some("the lexer")).await.unwrap();
    assert!(summariser.asked()[0].contains("the lexer"));
    assert_eq!(
        (triggers(&session).as_slice(), place),
        ([CompactionTrigger::Manual].as_slice(), log(&session).last().unwrap().id.seq)
    );
    let request = session.next_request().await.unwrap();
    assert!(request.body.contains("stands for an earlier part"));
    session.answered(&answer(format, 10, "Yes.", &[])).await.unwrap();
    session.user("And the rest.").await.unwrap();
    play(&session, format, 11..21).await;
    let mut events = session.events();
    session.compact_in_background(Some("the linker")).await.unwrap();
    wait(&session, is_ended, &mut events).await;
    assert!(summariser.asked()[1].contains("the linker"));
    session.next_request().await.unwrap();
    assert_eq!(triggers(&session), [CompactionTrigger::Manual, CompactionTrigger::Manual]);
    assert_replays(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_used_for_a_summary() {
    let format = Format::OpenaiChat;
    let summariser = Remembers::default();
    let began = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&began);
    let session = chat()
        .policy(&crate::agent::roomy())
        .clock(move || Timestamp(clock.load(Ordering::Relaxed)))
        .idle(Duration::from_millis(200))
        .summariser(summariser.clone())
        .begin()
        .await
        .unwrap();
    session.user("Count the files.").await.unwrap();
    let mut events = session.events();
    // More than a third of the window, less than what a summary is made for by itself.
    play(&session, format, 0..6).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(session.jobs().await.unwrap().len(), 0, "no time has passed by the session's clock");
    began.fetch_add(60_000, Ordering::Relaxed);
    play(&session, format, 6..7).await;
    began.fetch_add(60_000, Ordering::Relaxed);
    wait(&session, is_ended, &mut events).await;
    let before = session.size().await.unwrap().0;
    let request = session.next_request().await.unwrap();
    assert_eq!(triggers(&session), [CompactionTrigger::Idle]);
    assert!(request.tokens < before, "{} {before}", request.tokens);
    assert_replays(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_buys_no_summary_that_code_makes_for_nothing() {
    let (format, clock) = (Format::OpenaiChat, Arc::new(AtomicI64::new(1_000_000)));
    let ticks = Arc::clone(&clock);
    let session = chat()
        .policy(&crate::agent::roomy())
        .clock(move || Timestamp(ticks.load(Ordering::Relaxed)))
        .idle(Duration::from_millis(200))
        .summariser(Remembers::default())
        .summariser_prices(Profiles::builtin().find("gpt-5.1").unwrap().prices)
        .begin()
        .await
        .unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, format, 0..7).await;
    clock.fetch_add(60_000, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(session.jobs().await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_model_takes_over_what_the_old_one_left_compacted() {
    let format = Format::OpenaiChat;
    let mut profiles = Profiles::builtin();
    profiles
        .with_overrides(
            "[[model]]\nname = \"gpt-5.1\"\nwindow = 24000\ninput_limit = 24000\noutput_limit = 4000",
        )
        .unwrap();
    let summariser = Remembers::default();
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let session = Session::builder(format, "gpt-4.1")
        .profiles(profiles)
        .summariser(summariser.clone())
        .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
        .begin()
        .await
        .unwrap();
    session.user("Count the files. Never write any file.").await.unwrap();
    let requests = play(&session, format, 0..60).await;
    assert!(requests.iter().all(|request| request.cause.is_none()), "the old model has room");
    let before = session.size().await.unwrap().0;
    session.switch_model(format, "gpt-5.1", None).await.unwrap();
    let facts: Vec<&'static str> =
        log(&session).iter().rev().take(2).map(|logged| logged.event.fact.kind()).collect();
    assert_eq!(facts, ["model_changed", "compacted"], "compacted first, and with the old one");
    assert_eq!(triggers(&session), [CompactionTrigger::ModelSwitch]);
    assert_eq!(summariser.asked().len(), 1);
    let request = session.next_request().await.unwrap();
    assert!(request.tokens < before && request.tokens < Tokens(20_000), "{} {before}", request.tokens);
    assert!(request.body.contains("\"gpt-5.1\"") && request.body.contains("Never write any file."));
    assert_replays(&session).await;
}

/// A session whose newest word is an answer when it is full.
async fn ends_with_an_answer(on: AutoContinue) -> (Session, SessionRequest) {
    let format = Format::OpenaiChat;
    let session = chat().auto_continue(on).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    // The last answer is what makes it too much.
    play(&session, format, 0..9).await;
    session.next_request().await.unwrap();
    let long = "I have counted so much. ".repeat(300);
    session.answered(&answer(format, 9, &long, &[])).await.unwrap();
    assert_eq!(triggers(&session).len(), 0);
    let request = session.next_request().await.unwrap();
    assert_eq!(triggers(&session), [CompactionTrigger::Threshold]);
    (session, request)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_automatic_compaction_the_agent_is_told_to_go_on() {
    let (session, request) = ends_with_an_answer(AutoContinue::On).await;
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["role"], "user");
    assert!(last["content"].to_string().contains("Go on with what is under way"), "{last}");
    assert_replays(&session).await;
    // Once, and not again when nothing came of the request.
    session.failed("no connection").await.unwrap();
    let again = session.next_request().await.unwrap();
    assert_eq!(again.body, request.body);
    let (session, request) = ends_with_an_answer(AutoContinue::Off).await;
    assert!(!request.body.contains("Go on with what is under way"));
    assert_replays(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_to_go_on_who_has_a_question_or_results_to_go_on_with() {
    let session = chat().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    let requests = play(&session, Format::OpenaiChat, 0..40).await;
    assert!(compactions(&session).len() >= 2);
    assert!(requests.iter().all(|request| !request.body.contains("Go on with what is under way")));
    let session = chat().begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play(&session, Format::OpenaiChat, 0..9).await;
    session.next_request().await.unwrap();
    session.answered(&answer(Format::OpenaiChat, 9, "Done.", &[])).await.unwrap();
    session.compact(None).await.unwrap();
    let request = session.next_request().await.unwrap();
    assert!(
        !request.body.contains("Go on with what is under way"),
        "a person asked, and will say what is next"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_files_are_kept_and_referred_to() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let session = chat().memory_files(&notes).begin().await.unwrap();
    assert_eq!(session.write_memory_files().await.unwrap(), None, "there is nothing to write yet");
    session.user("Count the files. Never write any file.").await.unwrap();
    let requests = play(&session, Format::OpenaiChat, 0..40).await;
    assert!(compactions(&session).len() >= 2);
    let line = "Notes of this session are kept in ";
    let first = requests.iter().position(|request| request.body.contains(line)).unwrap();
    assert!(requests[first].cause.is_some(), "it comes with the compaction");
    assert!(requests[first..].iter().all(|request| request.body.matches(line).count() == 1));
    let decisions = fs::read_to_string(notes.join("decisions.md")).unwrap();
    assert!(decisions.contains("Never write any file."), "{decisions}");
    assert!(fs::read_to_string(notes.join("status.md")).unwrap().contains("Count the files."));
    assert_eq!(session.write_memory_files().await.unwrap(), Some(FileWriteOutcome::Unchanged));
    assert_replays(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    fs::write(&notes, "a file where the folder should be").unwrap();
    let session = chat().memory_files(&notes).begin().await.unwrap();
    let mut events = session.events();
    session.user("Count the files.").await.unwrap();
    let requests = play(&session, Format::OpenaiChat, 0..30).await;
    assert!(!compactions(&session).is_empty(), "the session goes on");
    assert!(requests.iter().all(|request| !request.body.contains("Notes of this session")));
    let mut failed = 0;
    while let Ok(happened) = events.try_recv() {
        failed += usize::from(matches!(happened, LifecycleEvent::NotesFailed { .. }));
    }
    assert!(failed >= 1, "whoever listens is told");
    let error = session.write_memory_files().await.unwrap_err();
    assert!(matches!(error, SessionError::Memory(_)) && error.to_string().contains("notes"), "{error}");
    fs::remove_file(&notes).unwrap();
    let request = session.next_request().await.unwrap();
    assert!(
        request.body.contains("Notes of this session are kept in "),
        "as soon as it can be written, it is"
    );
    assert!(notes.join("status.md").exists());
    assert_replays(&session).await;
}

/// The answers of a tool loop that report this usage; gives the requests.
async fn play_with_usage(
    session: &Session,
    turns: std::ops::Range<usize>,
    (input, output_tokens): (u64, u64),
) -> Vec<SessionRequest> {
    let mut requests = Vec::new();
    for turn in turns {
        requests.push(session.next_request().await.unwrap());
        let path = json!({"path": format!("part-{turn}.txt")});
        let said = answer(Format::OpenaiChat, turn, "Counting.", &[("read_file", path)]);
        let mut said: Value = serde_json::from_str(&said).unwrap();
        said["usage"] = json!({"prompt_tokens": input, "completion_tokens": output_tokens,
            "prompt_tokens_details": {"cached_tokens": input / 2}});
        let answer = session.answered(&said.to_string()).await.unwrap();
        session.tool_results(&[ToolOutput::of(&answer.calls[0], output(turn))]).await.unwrap();
    }
    requests
}

/// Places of the markers that overflows left.
fn overflow_markers(session: &Session) -> usize {
    let is_marker = |logged: &LoggedEvent| {
        matches!(logged.event.fact, Fact::CompactionRequested { trigger: CompactionTrigger::Overflow, .. })
    };
    log(session).iter().filter(|logged| is_marker(logged)).count()
}

/// Of a window of 200 000 tokens 184 000 are usable: the rest is the answer's.
async fn in_a_window_of_200k(check: OverflowCheck) -> Session {
    let session = builder(Format::OpenaiChat).window(Tokens(200_000)).overflow_check(check).begin();
    let session = session.await.unwrap();
    session.user("Count the files. Never write any file.").await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_used_more_than_is_usable_leaves_a_marker_and_the_next_request_is_compacted() {
    let session = in_a_window_of_200k(OverflowCheck::On).await;
    let fits = play_with_usage(&session, 0..20, (180_000, 4_000)).await;
    assert_eq!((overflow_markers(&session), triggers(&session)), (0, vec![]));
    play_with_usage(&session, 20..21, (190_000, 6_010)).await;
    assert_eq!(overflow_markers(&session), 1);
    let next = session.next_request().await.unwrap();
    assert_eq!(triggers(&session), [CompactionTrigger::Overflow]);
    assert!(
        next.tokens < fits.last().unwrap().tokens,
        "{} after {}",
        next.tokens,
        fits.last().unwrap().tokens
    );
    assert!(next.cause.is_some() && next.body.contains("Never write any file."), "{:?}", next.cause);
    assert_replays(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_that_overflows_leaves_a_marker_and_none_where_the_check_is_off() {
    for (check, markers) in [(OverflowCheck::On, 4), (OverflowCheck::Off, 0)] {
        let session = in_a_window_of_200k(check).await;
        play_with_usage(&session, 0..4, (190_000, 6_010)).await;
        assert_eq!(overflow_markers(&session), markers, "{check:?}");
        if check == OverflowCheck::Off {
            assert_eq!(triggers(&session), []);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_is_known_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let session = builder(Format::OpenaiChat).window(Tokens(200_000)).file(&file).begin().await.unwrap();
    session.user("Count the files.").await.unwrap();
    play_with_usage(&session, 0..20, (100_000, 4_000)).await;
    play_with_usage(&session, 20..21, (190_000, 6_010)).await;
    let id = session.id();
    drop(session);
    let again = builder(Format::OpenaiChat).window(Tokens(200_000)).file(&file).resume(id).await.unwrap();
    again.next_request().await.unwrap();
    assert_eq!((overflow_markers(&again), triggers(&again)), (1, vec![CompactionTrigger::Overflow]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_after_an_overflow_is_not_followed_by_another() {
    for (by_another, restarts) in [(false, false), (true, false), (false, true)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.db");
        let open = || builder(Format::OpenaiChat).window(Tokens(200_000)).file(&file);
        let mut session = open().begin().await.unwrap();
        session.user("Count the files. Never write any file.").await.unwrap();
        play_with_usage(&session, 0..20, (100_000, 4_000)).await;
        play_with_usage(&session, 20..21, (190_000, 6_010)).await;
        if by_another {
            open().resume(session.id()).await.unwrap().compact(None).await.unwrap();
        } else {
            session.compact(None).await.unwrap();
        }
        if restarts {
            session = open().resume(session.id()).await.unwrap();
        }
        session.next_request().await.unwrap();
        assert_eq!(triggers(&session), [CompactionTrigger::Manual], "{by_another}, {restarts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_compaction_leaves_a_row_like_a_jobs() {
    let session = chat().begin().await.unwrap();
    session.user("Count the files. Never write any file.").await.unwrap();
    play(&session, Format::OpenaiChat, 0..12).await;
    session.compact(Some("part-3")).await.unwrap();
    let fork = session
        .fork(session.store().head(session.thread()).unwrap().seq, ForkMode::InFull, "x")
        .await
        .unwrap();
    let head = fork.store().head(fork.thread()).unwrap().seq;
    let fork = fork.fork(head, ForkMode::WithSummary, "y").await.unwrap();
    for session in [&session, &fork] {
        let thread = session.thread();
        let made: Vec<(epitome::core::Seq, Compaction)> = log(session)
            .into_iter()
            .filter(|logged| logged.id.thread == thread)
            .filter_map(|logged| match logged.event.fact {
                Fact::Compacted(compaction) => Some((logged.id.seq, compaction)),
                _ => None,
            })
            .collect();
        let rows = session.store().summaries(thread).unwrap();
        assert!(!made.is_empty());
        assert_eq!(rows.len(), made.len());
        for (row, (place, compaction)) in rows.iter().zip(&made) {
            assert_eq!(row.source, SummarySource::Compaction(*place));
            assert_eq!(
                (row.through, row.summary.text.as_str()),
                (compaction.through, compaction.summary.text())
            );
            assert!(row.first <= row.through && row.summary.brief.starts_with('{'), "{row:?}");
            assert_eq!(row.summary.author, "built-in");
        }
        assert!(session.store().doctor().unwrap().is_healthy());
    }
}
