//! What a commit costs in CPU when many wait at once, as behind a gateway: microseconds a commit, of the whole process and
//! of the writing thread.
//!
//! `cargo bench -p epitome-store --bench commits`. A directory may be given as the argument. The numbers come from Linux's
//! accounts of its threads; elsewhere they are zero.

use std::{
    fs,
    path::Path,
    path::PathBuf,
    sync::{Arc, Barrier},
    time::Duration,
};

use epitome_core::{
    ContentPart, Digest, Event, Fact, Seq, SessionId, ThreadId,
    event::{RawDialect, RawJson, Timestamp, Usage},
    tokens::EstimateCounter,
};
use epitome_store::{
    NewThread, Store, StoreError, StoreLocation, StoreOptions, ThreadStart, open_store,
    records::{CommitRecord, HeadPromotion, NewExchange, NewSession, ThreadCommit, ThreadOpening},
};
use uuid::Uuid;

const WRITERS: u64 = 64;
const ROUNDS: u64 = 60;

fn main() {
    let directory = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let directory = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    let place = tempfile::tempdir_in(directory).expect("a directory to measure in");
    let options = StoreOptions { counter: Some(Arc::new(EstimateCounter)), ..StoreOptions::default() };
    let store = open_at(&place.path().join("epitome.db"), options).expect("a store");
    waiting(&store, "opens a session with 3 events", |writer, round| opening(writer * ROUNDS + round));
    waiting(&store, "appends 2 events and an exchange", |writer, round| {
        answering(writer * ROUNDS + round, Seq(3))
    });
    waiting(&store, "the same to one thread again", |writer, round| {
        answering(writer * ROUNDS, Seq(5 + 2 * round))
    });
    let before = (cpu(""), cpu("epitome-writer"));
    for round in 0..ROUNDS {
        store.commit(answering(0, Seq(5 + 2 * (ROUNDS + round)))).expect("a commit");
    }
    report("the same, one at a time", 1, before);
}

/// So many threads, each of which waits for one commit after the other.
fn waiting(store: &Arc<dyn Store>, what: &str, make: fn(u64, u64) -> ThreadCommit) {
    let gates = Arc::new([(); 4].map(|()| Barrier::new(usize::try_from(WRITERS).expect("small") + 1)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, gates) = (Arc::clone(store), Arc::clone(&gates));
            std::thread::spawn(move || {
                let commits: Vec<ThreadCommit> = (0..ROUNDS).map(|round| make(writer, round)).collect();
                gates[0].wait();
                gates[1].wait();
                for commit in commits {
                    store.commit(commit).expect("committed");
                }
                gates[2].wait();
                gates[3].wait();
            })
        })
        .collect();
    gates[0].wait();
    let before = (cpu(""), cpu("epitome-writer"));
    gates[1].wait();
    gates[2].wait();
    report(what, WRITERS, before);
    gates[3].wait();
    for writer in writers {
        writer.join().expect("a writer");
    }
}

fn report(what: &str, writers: u64, before: (Duration, Duration)) {
    let commits = u32::try_from(writers * ROUNDS).expect("small");
    let since = |name: &str, before: Duration| cpu(name).saturating_sub(before) / commits;
    let (all, writing) = (since("", before.0), since("epitome-writer", before.1));
    println!("{what:<34} {all:>9.1?} a commit, {writing:>9.1?} of it by the writer");
}

/// What the threads of this process with this in their names have used so far.
fn cpu(name: &str) -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let used = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let named = fs::read_to_string(path.join("comm")).ok()?.contains(name);
        let used = fs::read_to_string(path.join("schedstat")).ok()?;
        let used = used.split(' ').next()?.parse().ok()?;
        named.then_some(Duration::from_nanos(used))
    });
    used.sum()
}

/// Ids in the order of time, as they are made.
fn ids(number: u64) -> (SessionId, ThreadId) {
    let stamp = u128::from(0x0199_0000_0000 + number) << 80;
    let noise = u128::from_le_bytes(Digest::of(&number.to_le_bytes()).0[..16].try_into().expect("sixteen"));
    let id = |kind: u128| Uuid::from_u128(stamp | ((noise ^ kind) & ((1 << 80) - 1)));
    (SessionId::new(id(1)), ThreadId::new(id(2)))
}

fn opening(number: u64) -> ThreadCommit {
    let (session, thread) = ids(number);
    let new = NewSession {
        source: "gateway".into(),
        ..NewSession::with_title(session, format!("Fix bug {number}"))
    };
    let made = NewThread {
        id: thread,
        session,
        name: "main".into(),
        key: Some(format!("019a0000-aaaa-7000-8000-{number:012}")),
        start: ThreadStart::Root,
    };
    let opens = ThreadOpening { session: Some(new), thread: made, head: HeadPromotion::Yes };
    let said = ["settings", "system", "user"].map(|who| event(number, who));
    ThreadCommit::opening(opens, said.into(), vec![])
}

fn answering(number: u64, after: Seq) -> ThreadCommit {
    let (_, thread) = ids(number);
    let answer = format!("msg_{number}_{after}");
    let mut said = event(number, "assistant");
    said.fact = Fact::AssistantSaid {
        answer: Some(answer.as_str().into()),
        model: Some("model".into()),
        parts: said.fact.parts().to_vec(),
    };
    let used = Fact::UsageReported { answer: Some(answer.into()), model: None, usage: Usage::default() };
    let exchange = NewExchange {
        head: after,
        time: Timestamp(1_790_000_000_000),
        client: "claude-code".into(),
        purpose: "turn".into(),
        format: "anthropic".into(),
        model: Some("model".into()),
        status: Some(200),
        ending: "complete".into(),
        bytes_in: 2000,
        bytes_out: 1000,
        first_byte: Some(Duration::from_millis(300)),
        took: Duration::from_secs(3),
        observed: None,
        error: None,
    };
    ThreadCommit::new(
        thread,
        after,
        vec![said, Event::from_fact(used, None)],
        vec![CommitRecord::Exchange(exchange), CommitRecord::Head],
    )
}

/// About 300 bytes, as fact and as raw JSON.
fn event(number: u64, who: &str) -> Event {
    let words: Vec<String> = (0..30).map(|word| format!("w{} ", (number * 31 + word * 7) % 9973)).collect();
    let text = words.concat();
    let json = format!("{{\"role\":\"{who}\",\"content\":\"{text}\"}}");
    let normal = Some(Digest::of(json.as_bytes()));
    let raw = RawJson { dialect: RawDialect::Anthropic, json: json.into() };
    Event {
        time: Some(Timestamp(1_790_000_000_000)),
        origin: None,
        fact: Fact::UserSaid { parts: vec![ContentPart::text(text)] },
        raw,
        normal,
    }
}

fn open_at(path: &Path, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    open_store(&StoreLocation::named(path)?, options)
}
