//! Compactions that a person asks for: again after an undo, while another is under way, and by a worker elsewhere.

use epitome::{
    core::{Fact, Seq, Tokens, draft_gate::DraftFinish, event::Summary},
    session::{Session, SessionBuilder, SummaryWorkers, WorkOutcome},
    store::records::{CommitRecord, JobState, SummarySource, ThreadCommit},
    summarise::{ModelDraft, Summarize, SummaryFuture, SummaryRequest},
    wire::Format,
};

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
        let text = "## Session Intent\n- Count the files.\n\n## Next Steps\n- Count the rest.\n".to_owned();
        Box::pin(
            async move { Ok(ModelDraft { text, finish: DraftFinish::Complete, usage: None, model: None }) },
        )
    }
}

fn builder() -> SessionBuilder {
    Session::builder(Format::OpenaiChat, "a model nobody knows")
        .window(Tokens(8_000))
        .workers(SummaryWorkers::Elsewhere)
}

/// A session with more to tell than is kept.
async fn long(builder: SessionBuilder) -> Session {
    let session = builder.begin().await.unwrap();
    for turn in 0..30 {
        session.user(&format!("Question {turn}.")).await.unwrap();
        session.next_request().await.unwrap();
        let answer = format!(
            r#"{{"id":"a{turn}","choices":[{{"index":0,"finish_reason":"stop",
                "message":{{"role":"assistant","content":"Answer {turn}. {}"}}}}]}}"#,
            "Many words about it. ".repeat(40)
        );
        session.answered(&answer).await.unwrap();
    }
    session
}

fn fact(session: &Session, seq: Seq) -> Fact {
    session.store().read(session.thread(), seq, 1).unwrap().remove(0).event.fact
}

#[tokio::test]
async fn what_was_undone_or_cancelled_can_be_asked_for_again() {
    let session = long(builder().summariser(Repeats)).await;
    let first = session.compact(None).await.unwrap();
    assert_eq!(session.undo().await.unwrap(), first);
    let second = session.compact(None).await.unwrap();
    assert!(second > first);
    session.undo().await.unwrap();
    let job = session.compact_in_background(None).await.unwrap();
    let cancel = CommitRecord::CancelJob { job, reason: "not now".to_owned() };
    let after = session.store().head(session.thread()).unwrap().seq;
    let commit = ThreadCommit::new(session.thread(), after, Vec::new(), vec![cancel]);
    session.store().commit(commit).unwrap();
    assert!(session.compact(None).await.unwrap() > second);
}

#[tokio::test]
async fn a_summary_that_is_ready_or_queued_is_taken_when_a_person_compacts() {
    // The one who orders has no summariser; the one who works is opened beside it.
    let session = long(builder()).await;
    let job = session.compact_in_background(Some("the files")).await.unwrap();
    assert_eq!(session.compact_in_background(None).await.unwrap(), job, "it is under way");
    let worker = builder().store(session.store().clone()).summariser(Repeats);
    let worker = worker.resume_thread(session.thread()).await.unwrap();
    assert_eq!(worker.work().await.unwrap(), WorkOutcome::One);
    assert_eq!(worker.work().await.unwrap(), WorkOutcome::Nothing);
    assert_eq!(session.compact_in_background(None).await.unwrap(), job, "it is ready");
    let place = session.compact(None).await.unwrap();
    assert_eq!(session.store().job(job).unwrap().state, JobState::Adopted { compaction: place });
    let mut summaries = session.store().summaries(session.thread()).unwrap();
    summaries.retain(|row| row.source == SummarySource::Job(job));
    assert_eq!((summaries.len(), summaries[0].summary.author.as_str()), (1, "repeats"));
    assert!(matches!(fact(&session, place), Fact::Compacted(_)));
}

#[tokio::test]
async fn the_built_in_summariser_records_what_it_was_asked_to_dwell_on() {
    let session = long(builder()).await;
    let place = session.compact(Some("the files")).await.unwrap();
    let Fact::CompactionRequested { focus, .. } = fact(&session, place.previous()) else {
        panic!("a marker")
    };
    assert_eq!(focus.as_deref(), Some("the files"));
}

#[tokio::test]
async fn a_summary_with_a_focus_stays_as_it_is_until_the_next_one() {
    let session = long(builder()).await;
    let place = session.compact(Some("question 12")).await.unwrap();
    let Fact::Compacted(compaction) = fact(&session, place) else { panic!("a compaction") };
    let Summary::Structured { brief, text } = compaction.summary else { panic!("the built-in summary") };
    assert_eq!(brief.focus.as_deref(), Some("question 12"));
    let mut sent = Vec::new();
    for turn in 0..2 {
        session.user("Go on.").await.unwrap();
        let request = session.next_request().await.unwrap();
        let summary = serde_json::to_string(&text).unwrap();
        assert!(request.body.contains(summary.trim_matches('"')), "{}", request.body);
        sent.push(request.body);
        let answer = format!(
            r#"{{"id":"b{turn}","choices":[{{"index":0,"finish_reason":"stop",
                "message":{{"role":"assistant","content":"Yes."}}}}]}}"#
        );
        session.answered(&answer).await.unwrap();
    }
    let (first, second) = (&sent[0], &sent[1]);
    let common = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
    assert!(common + 4 > first.len(), "only {common} of {} bytes are the same", first.len());
}
