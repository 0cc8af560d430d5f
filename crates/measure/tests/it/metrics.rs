//! The figures of a session, measured on sessions in which everything that is counted was put there.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use epitome::{
    core::{Tokens, summary::SummarySection},
    session::Session,
};
use epitome_measure::{
    metrics::{CacheState, SessionMetrics, StoppedTask, TargetResult, TaskStop, metrics},
    summary_retention::{RetentionTally, SummaryRetention},
};
use serde_json::json;

use crate::played_sessions::{self, PlayedResult, PlayedTurn, compactions_only, imported};

async fn begin() -> (Session, Arc<AtomicI64>) {
    let (builder, clock) = played_sessions::builder(Tokens(16_000));
    let session = builder.policy(&compactions_only()).system("Build.").begin().await.unwrap();
    session.user("Build all the parts of the project. Never touch the lock file.").await.unwrap();
    (session, clock)
}

/// Plays turns that were read from the cache as far as `cached` says, and all fail.
async fn play(session: &Session, turns: std::ops::Range<usize>, cached: u64) {
    let failed = |turn| {
        let noise = format!("make: entering part {turn}\n").repeat(60);
        PlayedTurn {
            said: format!("I tried plan {turn}, but it did not work."),
            tool: "bash",
            arguments: json!({"command": format!("make part-{turn}")}),
            usage: json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020,
                "prompt_tokens_details": {"cached_tokens": cached}}),
            result: PlayedResult::Failure(format!("error: part {turn} has no rule\n{noise}")),
        }
    };
    played_sessions::play(session, turns, failed).await;
}

/// The agent answers, and waits for nothing.
async fn finish(session: &Session, said: &str) {
    session.next_request().await.unwrap();
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020,
        "prompt_tokens_details": {"cached_tokens": 950}});
    let answer = json!({"id": said, "model": "m", "usage": usage, "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": said}}]});
    session.answered(&answer.to_string()).await.unwrap();
}

fn measured(session: &Session) -> SessionMetrics {
    metrics(&**session.store(), session.thread()).unwrap()
}

/// The figures, without the sizes of summaries: a handle is as many tokens as the digits of its thread happen to be.
fn table(metrics: &SessionMetrics) -> String {
    let rows = metrics.rows().into_iter().map(|row| {
        if row.name == "compression" && row.met != TargetResult::Unknown {
            return format!("{}: ({}) {}", row.name, row.target, row.met);
        }
        format!("{}: {} ({}) {} - {}", row.name, row.value, row.target, row.met, row.detail)
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_five_figures_are_measured_on_a_session() {
    let (session, clock) = begin().await;
    insta::assert_snapshot!(table(&measured(&session)), @r"
    compression: - (3-5x) not measured - nothing was compacted in this session
    cache hits: - (> 80 %) not measured - no usage was reported for any call
    continuation: - (> 99 %) not measured - no task that was worked on over a summary has come to an end
    failed approaches: - (100 %) not measured - no summary is in force
    sections complete: - (all) not measured - nothing was compacted in this session
    ");
    play(&session, 0..5, 950).await;
    session.compact(None).await.unwrap();
    play(&session, 5..9, 900).await;
    // The cache goes cold.
    clock.fetch_add(3_600_000, Ordering::Relaxed);
    play(&session, 9..10, 0).await;
    session.compact(None).await.unwrap();
    play(&session, 10..12, 950).await;
    finish(&session, "All parts are built.").await;
    let told = measured(&session);
    insta::assert_snapshot!(table(&told), @r"
    compression: (3-5x) yes
    cache hits: 93.1 % (> 80 %) yes - of the input of 11 warm calls; 86.1 % with the 2 cold ones; 0 without a report
    continuation: 100.0 % (> 99 %) yes - 1 of 1 tasks on a summary ended with an answer that the user did not ask for again
    failed approaches: - (100 %) not measured - code finds no failed approach in the span; of 9 items that must be kept, 9 told, 0 counted with a handle, 0 not spoken of
    sections complete: 2 of 2 (all) yes - 5 of 11 sections of the newest say something, the others are not printed
    ");
    assert_eq!(told.compression.compactions.len(), 2);
    let cold = told.cache.calls.iter().filter(|call| call.state == CacheState::Cold);
    assert_eq!(cold.map(|call| call.call).collect::<Vec<_>>(), [0, 9]);
    // Failed approaches are what structure proves or a model tells: here there are none.
    assert!(told.rows().iter().all(|row| row.met != TargetResult::No), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_counts_by_how_it_ended_and_not_by_the_errors_on_its_way() {
    let (session, _) = begin().await;
    play(&session, 0..5, 950).await;
    session.compact(None).await.unwrap();
    play(&session, 5..6, 950).await;
    session.next_request().await.unwrap();
    session.failed("no connection").await.unwrap();
    // It is tried again, and the user's word to an agent at work is part of the task.
    play(&session, 6..7, 950).await;
    session.user("Mind the warnings too, please.").await.unwrap();
    play(&session, 7..8, 950).await;
    finish(&session, "All parts are built.").await;
    let told = measured(&session).continuation;
    assert_eq!((told.finished, told.stopped.len(), told.open), (1, 0, 0));
    session.user("Now write down what was changed.").await.unwrap();
    session.next_request().await.unwrap();
    session.failed("no connection").await.unwrap();
    let failed = measured(&session).continuation;
    assert_eq!((failed.finished, failed.open), (1, 0));
    assert!(
        matches!(&failed.stopped[..], [StoppedTask { stop: TaskStop::Failed(why), .. }] if why == "no connection")
    );
    // Each of its calls is answered and none failed, but the user has to say it all again.
    session.user("Build all the parts of the project. Never touch the lock file!").await.unwrap();
    finish(&session, "Which parts?").await;
    session.user("Go on with the rest of them now.").await.unwrap();
    play(&session, 8..9, 950).await;
    let told = measured(&session).continuation;
    assert_eq!((told.finished, told.open), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_user_has_to_repeat_was_not_continued() {
    let (session, _) = begin().await;
    play(&session, 0..5, 950).await;
    session.compact(None).await.unwrap();
    play(&session, 5..6, 950).await;
    finish(&session, "What shall I build?").await;
    session.user("Build all the parts of the project. Never touch the lock file!").await.unwrap();
    play(&session, 6..7, 950).await;
    session.user("[Request interrupted by user]").await.unwrap();
    session.user("Leave it, and write the notes first.").await.unwrap();
    play(&session, 7..8, 950).await;
    let told = measured(&session);
    let stops: Vec<&TaskStop> = told.continuation.stopped.iter().map(|task| &task.stop).collect();
    assert_eq!(stops, [&TaskStop::Repeated, &TaskStop::Interrupted]);
    assert_eq!((told.continuation.finished, told.continuation.open), (0, 1));
    assert_eq!(told.rows()[2].met, TargetResult::No);
}

#[test]
fn an_approach_that_is_only_counted_is_not_told() {
    let tally = RetentionTally { items: 14, shown: 6, counted: 8, ..RetentionTally::default() };
    let sections = [(SummarySection::FailedApproaches, tally)].into_iter().collect();
    let kept = Some(SummaryRetention { sections, ..SummaryRetention::default() });
    let row = &SessionMetrics { kept, ..SessionMetrics::default() }.rows()[3];
    assert_eq!((row.value.as_str(), row.met), ("42.8 %", TargetResult::No), "{}", row.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undone_compaction_is_not_in_force_and_the_next_builds_on_the_one_before() {
    let (session, _) = begin().await;
    play(&session, 0..5, 950).await;
    let first = session.compact(None).await.unwrap();
    play(&session, 5..9, 950).await;
    let second = session.compact(None).await.unwrap();
    assert_eq!(measured(&session).compression.standing[0].compaction, second);
    session.undo().await.unwrap();
    assert_eq!(measured(&session).compression.standing[0].compaction, first);
    play(&session, 9..12, 950).await;
    let third = session.compact(None).await.unwrap();
    let told = measured(&session).compression;
    assert_eq!(told.standing[0].compaction, third);
    let span = |at: usize| told.compactions[at].span;
    assert!(span(2) > span(1), "the third covers what the second did, and more: {told:?}");
}

#[test]
fn what_an_imported_session_does_not_say_is_not_guessed() {
    let log = r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;
    let (store, thread) = imported("s.json", log);
    let told = metrics(&*store, thread).unwrap();
    insta::assert_snapshot!(table(&told), @r"
    compression: - (3-5x) not measured - nothing was compacted in this session
    cache hits: - (> 80 %) not measured - no usage was reported for any call
    continuation: - (> 99 %) not measured - no task that was worked on over a summary has come to an end
    failed approaches: - (100 %) not measured - no summary is in force
    sections complete: - (all) not measured - nothing was compacted in this session
    ");
    assert!(told.rows().iter().all(|row| row.met == TargetResult::Unknown));
}
