//! A session that is played live, and replayed: both come to the same sizes.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use epitome::{
    core::{
        Event, Seq, ThreadId, Tokens, cost::CacheAssumption, event::Timestamp, policy::Policy,
        profile::Profiles,
    },
    session::{Session, ToolOutput},
    wire::Format,
};
use epitome_measure::{
    live_figures::{LiveConditions, LiveFigures},
    replay::{ReplayCandidate, ReplayConditions, ReplaySubject, RequestRoom},
};
use serde_json::json;

/// Calls of the session, each of which adds some 700 tokens.
const CALLS: u64 = 160;

/// What the provider counts for a thousand tokens of ours.
const COUNTED: u64 = 1_140;

/// Plays a session under a policy: its events, and the largest request by the provider's count.
async fn live(model: &str, window: Tokens, policy: &Policy) -> (Vec<Event>, Tokens) {
    let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
    let time = Arc::clone(&clock);
    let session = Session::builder(Format::Anthropic, model)
        .window(window)
        .policy(policy)
        .clock(move || Timestamp(time.load(Ordering::Relaxed)))
        .system("You mend services. ".repeat(400))
        .begin()
        .await
        .unwrap();
    session.user("Find out why the importer loses rows. Never touch the lock file.").await.unwrap();
    let mut peak = Tokens(0);
    for number in 0..CALLS {
        clock.fetch_add(20_000, Ordering::Relaxed);
        let request = session.next_request().await.unwrap();
        let counted = Tokens(request.tokens.0 * COUNTED / 1_000);
        peak = peak.max(counted);
        let answer = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": format!("I read part {number} of the importer.")},
                {"type": "tool_use", "id": format!("toolu_{number}"), "name": "read_file",
                    "input": {"path": format!("src/part_{number}.rs")}}],
            "stop_reason": "tool_use", "usage": {"input_tokens": counted.0, "output_tokens": 60}});
        let answer = session.answered(&answer.to_string()).await.unwrap();
        let body =
            format!("fn rows_{number}(input: &Table) -> usize {{ input.len() - {number} }}\n").repeat(35);
        session.tool_results(&[ToolOutput::of(&answer.calls[0], body)]).await.unwrap();
    }
    let store = session.store();
    let events = store.read(session.thread(), Seq(1), usize::MAX).unwrap();
    (events.into_iter().map(|logged| logged.event).collect(), peak)
}

fn subject(session: Vec<Event>) -> ReplaySubject {
    let thread = ThreadId::derived(&["session"]);
    ReplaySubject {
        file: "session".to_owned(),
        key: None,
        name: "session".to_owned(),
        thread,
        is_main: true,
        events: session,
        own: Seq(1),
    }
}

/// The largest request of a replay within a limit.
fn replayed(subject: &ReplaySubject, model: &str, limit: RequestRoom, policy: &Policy) -> Tokens {
    let profiles = Profiles::builtin();
    let ready = subject.prepare(Some(profiles.find(model).unwrap()), &profiles).unwrap();
    let conditions = ReplayConditions {
        profile: ready.profile,
        format: ready.format,
        limit,
        profiles: &profiles,
        modes: &[CacheAssumption::Breakpoints],
    };
    let calls = ready.part.play(&conditions, &ReplayCandidate::of(policy.clone()), |_| {}).unwrap();
    calls[0].iter().map(|call| call.tokens).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_as_large_live_as_it_is_replayed() {
    let (model, window) = ("claude-opus-4-5", Tokens(60_000));
    for name in ["epitome", "tiered", "pivot"] {
        let policy = Policy::named(name).unwrap();
        let (events, live) = live(model, window, policy).await;
        let subject = subject(events);
        let replayed = replayed(&subject, model, RequestRoom::Window(window), policy);
        assert!(live.0.abs_diff(replayed.0) * 20 <= live.0, "{name}: {live} live, {replayed} replayed");
        let profiles = Profiles::builtin();
        let ready = subject.prepare(Some(profiles.find(model).unwrap()), &profiles).unwrap();
        let conditions = LiveConditions { policy, window, profiles: &profiles };
        let again = LiveFigures::of(&subject, &ready, conditions).unwrap();
        assert_eq!((again.calls, again.refused), (CALLS, 0));
        assert!(live.0.abs_diff(again.peak.0) * 20 <= live.0, "{name}: {live} live, {} again", again.peak);
    }
}
