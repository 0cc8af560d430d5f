//! Sessions, events, calls and jobs to try a store with. Events are written as letters.

use std::{sync::Arc, time::Duration};

use crate::{
    NewThread, Store, StoreError, StoreOptions, ThreadHead, ThreadStart,
    records::{
        CallRow, CommitRecord, HashedText, HeadPromotion, JobAttempt, JobId, JobState, NewCall, NewExchange,
        NewJob, NewSession, NewSummary, ThreadCommit, ThreadOpening,
    },
};
use base64::{Engine, engine::general_purpose::STANDARD};
use epitome_core::{
    ChainLink, ContentPart, Digest, Event, EventId, Fact, LoggedEvent, Seq, SessionId, ThreadId,
    TokenCounter, Tokens,
    event::{
        Compaction, CompactionTrigger, InstructionKind, Pin, RawDialect, RawJson, Summary, Timestamp,
        ToolCall, ToolResult, Usage,
    },
    media::Media,
    seq_set::SeqSet,
};

/// A counter whose numbers one can check in one's head: four bytes a token.
pub struct Quarters;

impl TokenCounter for Quarters {
    fn name(&self) -> &'static str {
        "quarters"
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens((text.len() as u64).div_ceil(4))
    }
}

/// Options with the counter [`Quarters`].
pub fn counting() -> StoreOptions {
    StoreOptions { counter: Some(Arc::new(Quarters)), ..StoreOptions::default() }
}

/// The same, but what is derived is put off for as long as nobody asks for it.
pub fn late() -> StoreOptions {
    StoreOptions { lag: Duration::from_hours(1), ..counting() }
}

/// Id of a session by a name.
pub fn session(name: &str) -> SessionId {
    SessionId::derived(&[name])
}

/// Id of a thread by a name.
pub fn thread(name: &str) -> ThreadId {
    ThreadId::derived(&[name])
}

/// Opens the thread `name` of the session `name`.
pub fn root(store: &dyn Store, name: &str) -> ThreadId {
    in_session(store, name, name, ThreadStart::Root)
}

/// Opens a thread of a session, both by name.
pub fn in_session(store: &dyn Store, session_name: &str, name: &str, start: ThreadStart) -> ThreadId {
    let new = NewThread {
        id: thread(name),
        session: session(session_name),
        name: name.to_owned(),
        key: None,
        start,
    };
    store.open(&new).expect("the thread can be made");
    new.id
}

/// Appends at the end of a thread.
pub fn append(store: &dyn Store, thread: ThreadId, events: Vec<Event>) -> ThreadHead {
    let head = store.head(thread).expect("the thread exists");
    store.append(thread, head.seq, events).expect("nobody else appends")
}

/// A message of the user.
pub fn user(text: &str) -> Event {
    Event::native(
        "test",
        format!("{{\"user\":{text:?}}}"),
        Fact::UserSaid { parts: vec![ContentPart::text(text)] },
    )
}

/// A letter an event: `u`ser, `i`nstruction, `a`nswer without id, `f` and `F` fragments of two answers, `r`esult,
/// usa`g`e, `c`ompaction of everything so far, `k` compaction that keeps the last event, `m`odel changed, `p`in,
/// `x` carried, in`j`ected, compaction re`q`uested, u`n`pinned. `v` reverts and `w` restores a compaction one and two
/// events before, `V` and `W` one three and four events before; `L` reverts what only comes next. The first stands at
/// `first`.
pub fn events(first: Seq, script: &str) -> Vec<Event> {
    (first.0..).zip(script.chars()).map(|(place, letter)| event(Seq(place), letter)).collect()
}

fn event(seq: Seq, letter: char) -> Event {
    let call = || ContentPart::ToolCall(ToolCall::function("c", "tool", format!("{{\"at\":{seq}}}")));
    let said = |answer: Option<&str>, parts| Fact::AssistantSaid {
        answer: answer.map(Into::into),
        model: None,
        parts,
    };
    let compacted = |through: Seq, first_kept: Option<Seq>| {
        Fact::Compacted(Compaction {
            summary: Summary::Text(format!("summary at {seq}")),
            through,
            first_kept,
            tokens_before: Some(Tokens(seq.0 * 10)),
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        })
    };
    let fact = match letter {
        'u' => Fact::UserSaid { parts: vec![ContentPart::text(format!("question {seq}"))] },
        'i' => Fact::Instructed { what: InstructionKind::System, parts: vec![ContentPart::text("be brief")] },
        'a' => Fact::AssistantSaid {
            answer: None,
            model: Some("named".into()),
            parts: vec![ContentPart::text("yes")],
        },
        'f' => said(Some("m"), vec![call()]),
        'F' => said(Some("n"), vec![call(), call()]),
        'r' => Fact::ToolReturned {
            results: vec![ToolResult {
                call: "c".into(),
                name: None,
                parts: vec![ContentPart::text("done")],
                error: false,
            }],
            parts: vec![],
        },
        'g' => Fact::UsageReported {
            answer: Some("m".into()),
            model: None,
            usage: Usage { output: Tokens(seq.0), ..Usage::default() },
        },
        'c' => compacted(seq.previous(), None),
        'k' => compacted(Seq(seq.0.saturating_sub(2)), Some(seq.previous())),
        'm' => Fact::ModelChanged { model: format!("model {seq}").into() },
        'p' => Fact::Pinned { pin: Pin::Text("remember".into()) },
        'x' => Fact::Carried { kind: "note".into() },
        'v' => Fact::CompactionReverted { compaction: seq.previous() },
        'V' => Fact::CompactionReverted { compaction: Seq(seq.0.saturating_sub(3)) },
        'w' => Fact::CompactionRestored { compaction: Seq(seq.0.saturating_sub(2)) },
        'W' => Fact::CompactionRestored { compaction: Seq(seq.0.saturating_sub(4)) },
        'L' => Fact::CompactionReverted { compaction: seq.next() },
        'n' => Fact::Unpinned { pin: Pin::Text("remember".into()) },
        'j' => Fact::Injected { hook: "clock".into(), beside: None, parts: vec![ContentPart::text("noon")] },
        'q' => Fact::CompactionRequested { trigger: CompactionTrigger::Agent, focus: Some("tests".into()) },
        other => panic!("no event is written {other}"),
    };
    let time = Some(Timestamp(i64::try_from(seq.0).expect("small") * 1000));
    if fact.is_message() {
        Event::native("test", format!("{{\"{letter}\":{seq}}}"), fact).at(time)
    } else {
        Event::from_fact(fact, time)
    }
}

/// The events of these runs, each from its first to its last.
pub fn set(runs: &[(u64, u64)]) -> SeqSet {
    let runs: Vec<SeqSet> = runs.iter().map(|(first, last)| SeqSet::run(Seq(*first), Seq(*last))).collect();
    SeqSet::union(&runs)
}

/// Places of events that were read, as runs. They must be in order.
pub fn places(read: &[LoggedEvent]) -> String {
    let one: Vec<SeqSet> = read.iter().map(|event| SeqSet::one(event.id.seq)).collect();
    assert!(read.is_sorted_by(|one, next| one.id.seq < next.id.seq), "oldest first, each once");
    SeqSet::union(&one).to_string()
}

/// A message with a picture, as a provider's JSON has it.
pub fn picture(bytes: &[u8]) -> Event {
    let json = format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}]}}"#,
        STANDARD.encode(bytes)
    );
    Event {
        time: None,
        origin: None,
        fact: Fact::UserSaid { parts: vec![ContentPart::Media(Media::inline("image/png", bytes))] },
        normal: Some(Digest::of(json.as_bytes())),
        raw: RawJson { dialect: RawDialect::OpenaiChat, json: json.into() },
    }
}

/// A call that saw everything up to `head`, and the contents it names.
pub fn call(head: Seq) -> NewCall {
    NewCall {
        head,
        time: None,
        model: None,
        format: "anthropic".into(),
        policy: policy().hash,
        profile: None,
        rendering: policy().hash,
        summary: None,
        epoch: 0,
        cause: None,
        pass: None,
        sent: "[]".into(),
        steps: "[]".into(),
        plan: None,
        script: None,
        estimated: Tokens(0),
        hash: Digest::of(b"a request"),
        bytes: 9,
    }
}

/// A text that calls name as their policy.
pub fn policy() -> HashedText {
    HashedText::new("name = \"epitome\"")
}

/// Commits records to a thread nobody else writes to.
pub fn commit(store: &dyn Store, thread: ThreadId, records: Vec<CommitRecord>) -> Vec<u64> {
    try_commit(store, thread, records).expect("it can be committed")
}

/// Makes a call that sees all there is.
pub fn make_call(store: &dyn Store, thread: ThreadId) -> u64 {
    let head = store.head(thread).unwrap().seq;
    commit(store, thread, vec![CommitRecord::Content(policy()), CommitRecord::Call(call(head))])[0]
}

/// Commits records to the end of a thread; gives the numbers of the calls.
pub fn try_commit(
    store: &dyn Store,
    thread: ThreadId,
    records: Vec<CommitRecord>,
) -> Result<Vec<u64>, StoreError> {
    let after = store.head(thread).expect("the thread exists").seq;
    let commit = ThreadCommit::new(thread, after, vec![], records);
    store.commit_numbered(commit).map(|committed| committed.calls)
}

/// A job for everything up to `through`.
pub fn job(store: &dyn Store, thread: ThreadId, key: &str, through: Seq) -> NewJob {
    let covered = store.read(thread, through, 1).unwrap();
    NewJob {
        id: JobId::derived(&[&thread.to_string(), key]),
        thread,
        key: key.to_owned(),
        marker: through,
        first: Seq(1),
        through,
        first_kept: None,
        base: None,
        link: covered[0].link.raw,
        trigger: CompactionTrigger::Threshold,
        focus: None,
        detail: "{}".into(),
        created: Timestamp(0),
    }
}

/// Queues a job.
pub fn queue(store: &dyn Store, thread: ThreadId, key: &str, through: Seq) -> JobId {
    let new = job(store, thread, key, through);
    commit(store, thread, vec![CommitRecord::Job(new.clone())]);
    new.id
}

/// Queues a job and does it.
pub fn ready(store: &dyn Store, thread: ThreadId, key: &str, through: Seq) -> JobId {
    let id = queue(store, thread, key, through);
    let claimed = store.claim_job("worker", Timestamp(0), Timestamp(10), Some(thread)).unwrap().unwrap();
    assert_eq!(claimed.job.id, id);
    assert!(store.finish_job(id, "worker", summary("worker"), attempt(None)).unwrap());
    id
}

/// A summary by `author`.
pub fn summary(author: &str) -> NewSummary {
    NewSummary {
        author: author.to_owned(),
        prompt_version: "1".into(),
        text: "in short".into(),
        brief: "{\"items\":[]}".into(),
        report: "{}".into(),
        created: Timestamp(3),
    }
}

/// An attempt that ended with this error, or without any.
pub fn attempt(error: Option<&str>) -> JobAttempt {
    JobAttempt {
        summariser: "model".into(),
        started: Timestamp(1),
        ended: Timestamp(2),
        error: error.map(Into::into),
        detail: error.is_none().then(|| "{\"usage\":1}".into()),
    }
}

/// Progress of a job.
pub fn state(store: &dyn Store, id: JobId) -> JobState {
    store.job(id).unwrap().state
}

/// An exchange whose request ended with `head`.
pub fn exchange(head: Seq) -> NewExchange {
    NewExchange {
        head,
        time: Timestamp(5),
        client: "codex".into(),
        purpose: "turn".into(),
        format: "openai-responses".into(),
        model: Some("model".into()),
        status: Some(200),
        ending: "complete".into(),
        bytes_in: 400_000,
        bytes_out: 1200,
        first_byte: Some(Duration::from_millis(350)),
        took: Duration::from_millis(4200),
        observed: Some("{\"sent\":7}".into()),
        error: None,
    }
}

/// The session and the thread `name`, which its client calls by its name too.
pub fn opens(principal: &str, name: &str, start: ThreadStart) -> ThreadOpening {
    let new = NewSession { principal: principal.to_owned(), ..NewSession::with_title(session(name), name) };
    let made = NewThread {
        id: thread(name),
        session: session(name),
        name: "main".into(),
        key: Some(name.to_owned()),
        start,
    };
    ThreadOpening { session: Some(new), thread: made, head: HeadPromotion::Yes }
}

/// Makes a session with a thread and its first events.
pub fn open(store: &dyn Store, principal: &str, name: &str, events: Vec<Event>) -> ThreadId {
    store.commit(ThreadCommit::opening(opens(principal, name, ThreadStart::Root), events, vec![])).unwrap();
    thread(name)
}

/// An answer's item in the Responses format.
pub fn item(answer: &str, id: &str) -> Event {
    let fact =
        Fact::AssistantSaid { answer: Some(answer.into()), model: None, parts: vec![ContentPart::text(id)] };
    let raw = RawJson { dialect: RawDialect::OpenaiResponses, json: format!("{{\"id\":{id:?}}}").into() };
    let normal = Some(Digest::of(id.as_bytes()));
    Event { time: None, origin: Some(id.to_owned()), fact, raw, normal }
}

/// Id of an event.
pub fn at(thread: ThreadId, seq: u64) -> EventId {
    EventId { thread, seq: Seq(seq) }
}

/// The normalised link at the end of `events`.
pub fn ending(events: &[Event]) -> Digest {
    events.iter().fold(ChainLink::ROOT, |link, event| link.next(event, &event.fact_json())).normal
}

/// All events of a view.
pub fn all(log: &dyn Store, id: ThreadId) -> Vec<LoggedEvent> {
    log.read(id, Seq(1), usize::MAX).unwrap()
}

/// The calls of a view without the owners of calls and events, which an erasure may change.
pub fn calls_seen(store: &dyn Store, id: ThreadId) -> Vec<CallRow> {
    let nobody = ThreadId::derived(&["nobody"]);
    let mut calls = store.calls(id, 0, usize::MAX).unwrap();
    for call in &mut calls {
        call.thread = nobody;
        if let Some(summary) = &mut call.call.summary {
            summary.thread = nobody;
        }
    }
    calls
}

/// A view without the owners of its events, which an erasure may change.
pub fn seen(log: &dyn Store, id: ThreadId) -> Vec<(Seq, Event, ChainLink)> {
    all(log, id).into_iter().map(|logged| (logged.id.seq, logged.event, logged.link)).collect()
}

/// Checks everything that a store can check of itself.
pub fn assert_healthy(store: &dyn Store) {
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

/// One event of every shape that storage could get wrong.
pub fn odd_events() -> Vec<Event> {
    let raw = |json: &str| RawJson { dialect: RawDialect::Anthropic, json: json.into() };
    let with = |fact: Fact, json: &str| Event {
        time: Some(Timestamp(-5)),
        origin: Some("its \"name\" elsewhere \0 ☃".to_owned()),
        fact,
        raw: raw(json),
        normal: Some(Digest::of(json.as_bytes())),
    };
    let call = ContentPart::ToolCall(ToolCall::function("call_1", "read", "{\"path\": \"not json"));
    let result = ToolResult {
        call: "call_1".into(),
        name: None,
        parts: vec![
            ContentPart::text("long ".repeat(4000)),
            ContentPart::Media(Media::inline("image/png", b"tiny")),
        ],
        error: true,
    };
    vec![
        Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("")] }, None),
        Event::from_fact(Fact::Carried { kind: "other".to_owned() }, Some(Timestamp(i64::MAX))),
        with(
            Fact::UserSaid {
                parts: vec![ContentPart::text("a\0b\u{7}\u{2028}𝄞 'quoted' -- ; DROP TABLE events")],
            },
            "{ \"spaced\" : 1 }",
        ),
        with(Fact::AssistantSaid { answer: Some("m".into()), model: None, parts: vec![call] }, "[1,\n2]"),
        with(Fact::ToolReturned { results: vec![result], parts: vec![] }, "\"nul \0 inside\""),
        Event::native("some agent's own", "not JSON at all", Fact::Carried { kind: String::new() }),
    ]
}
