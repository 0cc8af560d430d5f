//! The figures of a session, measured on sessions in which everything that is counted was put there.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use epitome::{core::Tokens, session::Session};
use epitome_measure::metrics::{CacheState, SessionMetrics, TargetResult, metrics};
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
    continuation: - (> 99 %) not measured - no call that stood on a summary has been answered
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
    let told = measured(&session);
    insta::assert_snapshot!(table(&told), @r"
    compression: (3-5x) yes
    cache hits: 93.0 % (> 80 %) yes - of the input of 10 warm calls; 85.4 % with the 2 cold ones; 0 without a report
    continuation: 100.0 % (> 99 %) yes - of 7 calls on a summary 0 failed, before 0 the user repeated a message it stood for
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
async fn an_error_and_a_user_who_repeats_themselves_are_no_continuation() {
    let (session, _) = begin().await;
    play(&session, 0..5, 950).await;
    session.compact(None).await.unwrap();
    play(&session, 5..6, 950).await;
    session.next_request().await.unwrap();
    session.failed("no connection").await.unwrap();
    session.user("Build all the parts of the project. Never touch the lock file!").await.unwrap();
    play(&session, 6..7, 950).await;
    // Short words are said again without anything having been forgotten.
    session.user("Go on.").await.unwrap();
    session.user("Go on.").await.unwrap();
    play(&session, 7..8, 950).await;
    session.next_request().await.unwrap();
    let told = measured(&session).continuation;
    assert_eq!((told.calls, told.unreported), (4, 1));
    assert_eq!(told.failed, [(6, "no connection".to_owned())]);
    assert_eq!(told.repeated, [7]);
    assert_eq!(told.share(), Some(0.5));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undone_compaction_is_not_in_force_and_the_next_builds_on_the_one_before() {
    let (session, _) = begin().await;
    play(&session, 0..5, 950).await;
    let first = session.compact(None).await.unwrap();
    play(&session, 5..9, 950).await;
    let second = session.compact(None).await.unwrap();
    assert_eq!(measured(&session).compression.standing.unwrap().compaction, second);
    session.undo().await.unwrap();
    assert_eq!(measured(&session).compression.standing.unwrap().compaction, first);
    play(&session, 9..12, 950).await;
    let third = session.compact(None).await.unwrap();
    let told = measured(&session).compression;
    assert_eq!(told.standing.unwrap().compaction, third);
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
    continuation: - (> 99 %) not measured - no call that stood on a summary has been answered
    failed approaches: - (100 %) not measured - no summary is in force
    sections complete: - (all) not measured - nothing was compacted in this session
    ");
    assert!(told.rows().iter().all(|row| row.met == TargetResult::Unknown));
}
