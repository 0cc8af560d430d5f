//! What the store costs, as ratios within one run: machines differ, ratios less so.
//!
//! `cargo bench -p epitome-store`. A directory may be given as the argument; the file system there is measured.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use epitome_core::{ContentPart, Event, Fact, Seq, SessionId, ThreadId, tokens::EstimateCounter};
use epitome_store::{
    NewThread, Store, StoreError, StoreLocation, StoreOptions, ThreadStart, open_store, records::SearchQuery,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The size of a usual event's JSON.
const EVENT: usize = 2600;

fn main() {
    let directory = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let directory = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    let place = tempfile::tempdir_in(directory).expect("a directory to measure in");
    appends(place.path());
    long_turns(place.path());
    writers(place.path());
    reads(place.path());
}

/// One writer, one event at a time, against a bare write and fdatasync of the same bytes.
fn appends(directory: &Path) {
    const ROUNDS: usize = 400;
    let store = open(&directory.join("appends.db"));
    let thread = root(&*store, "appends");
    let bytes = vec![b'x'; EVENT];
    let mut file = File::create(directory.join("bare")).expect("a file");
    let (mut bare, mut appended) = (Vec::new(), Vec::new());
    // In turns, so that both see the same noise.
    for round in 0..ROUNDS {
        bare.push(timed(|| {
            file.write_all(&bytes).expect("written");
            file.sync_data().expect("synced");
        }));
        let event = vec![event(round)];
        appended.push(timed(|| store.append(thread, Seq(round as u64), event).expect("appended")));
    }
    let (bare, appended) = (median(&mut bare), median(&mut appended));
    println!(
        "append of one event, p50:        {appended:>10.1?}   {:.2} × a bare fdatasync ({bare:.1?})",
        ratio(appended, bare)
    );
}

/// An append to a turn that holds thousands of results already, against one to a turn that holds none.
fn long_turns(directory: &Path) {
    const ROUNDS: usize = 100;
    let store = open(&directory.join("turns.db"));
    let answer = || {
        Event::from_fact(Fact::AssistantSaid { answer: Some("m".into()), model: None, parts: vec![] }, None)
    };
    let result = || {
        Event::from_fact(Fact::ToolReturned { results: vec![], parts: vec![ContentPart::text("done")] }, None)
    };
    let (short, long) = (root(&*store, "short"), root(&*store, "long"));
    store
        .append(long, Seq::START, std::iter::once(answer()).chain((0..20_000).map(|_| result())).collect())
        .expect("appended");
    store.append(short, Seq::START, vec![answer()]).expect("appended");
    let (mut to_short, mut to_long) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (thread, times) in [(short, &mut to_short), (long, &mut to_long)] {
            let head = store.head(thread).expect("known").seq;
            times.push(timed(|| store.append(thread, head, vec![result()]).expect("appended")));
        }
    }
    let (short, long) = (median(&mut to_short), median(&mut to_long));
    println!("append to a turn of 20K results: {long:>10.1?}   {:.2} × to an empty one", ratio(long, short));
}

/// Many writers, each on a thread of its own, against one.
fn writers(directory: &Path) {
    const EACH: usize = 64;
    let rate = |writers: usize| {
        let store = open(&directory.join(format!("writers-{writers}.db")));
        let start = Arc::new(Barrier::new(writers + 1));
        let handles: Vec<_> = (0..writers)
            .map(|writer| {
                let (store, start) = (Arc::clone(&store), Arc::clone(&start));
                let thread = root(&*store, &format!("writer {writer}"));
                std::thread::spawn(move || {
                    let events: Vec<Event> = (0..EACH).map(event).collect();
                    start.wait();
                    for (round, event) in events.into_iter().enumerate() {
                        store.append(thread, Seq(round as u64), vec![event]).expect("appended");
                    }
                })
            })
            .collect();
        start.wait();
        let elapsed = timed(|| handles.into_iter().for_each(|handle| handle.join().expect("a writer")));
        float(writers * EACH) / elapsed.as_secs_f64()
    };
    let (one, many) = (rate(1), rate(64));
    println!("appends a second, 64 writers:    {many:>10.0}   {:.1} × one writer ({one:.0})", many / one);
}

/// The last 200 events of sessions of growing length: time and memory.
fn reads(directory: &Path) {
    const LAST: u64 = 200;
    let store = open(&directory.join("reads.db"));
    let mut first: Option<(Duration, usize)> = None;
    for length in [1_000_u64, 10_000, 100_000] {
        let thread = root(&*store, &format!("read {length}"));
        let mut head = Seq::START;
        while head.0 < length {
            let batch = (0..1000).map(event).collect();
            head = store.append(thread, head, batch).expect("appended").seq;
        }
        let read = || store.read(thread, Seq(length - LAST + 1), 1000).expect("read");
        assert_eq!(read().len() as u64, LAST);
        let mut times: Vec<Duration> = (0..50).map(|_| timed(|| drop(read()))).collect();
        let time = median(&mut times);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        drop(read());
        let memory = MEMORY.peak_usage() - before;
        let (base_time, base_memory) = *first.get_or_insert((time, memory));
        println!(
            "last {LAST} of {length:>6} events, p50:  {time:>10.1?}   {:.2} × the shortest; {} KiB, {:.2} ×",
            ratio(time, base_time),
            memory / 1024,
            float(memory) / float(base_memory)
        );
    }
    let mut heads: Vec<Duration> = (0..50).map(|_| timed(|| store.sessions().expect("listed"))).collect();
    println!("list of 3 sessions, 111K events: {:>10.1?}", median(&mut heads));
    let mut searches: Vec<Duration> = (0..20)
        .map(|_| timed(|| store.search(&SearchQuery::everything("w77 w78")).expect("found")))
        .collect();
    println!("search over 111K events:         {:>10.1?}", median(&mut searches));
}

fn open(path: &Path) -> Arc<dyn Store> {
    let options = StoreOptions { counter: Some(Arc::new(EstimateCounter)), ..StoreOptions::default() };
    open_at(path, options).expect("a store")
}

fn root(store: &dyn Store, name: &str) -> ThreadId {
    let id = ThreadId::derived(&[name]);
    let new = NewThread {
        id,
        session: SessionId::derived(&[name]),
        name: name.to_owned(),
        key: None,
        start: ThreadStart::Root,
    };
    store.open(&new).expect("a thread");
    id
}

/// About [`EVENT`] bytes in all, as fact and as raw JSON.
fn event(number: usize) -> Event {
    let words: Vec<String> =
        (0..EVENT / 2 / 6).map(|word| format!("w{} ", (number * 31 + word * 7) % 9973)).collect();
    let text = words.concat();
    let raw = format!("{{\"role\":\"user\",\"content\":\"{text}\"}}");
    Event::native("bench", raw, Fact::UserSaid { parts: vec![ContentPart::text(text)] })
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("a small number"))
}

fn open_at(path: &Path, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    open_store(&StoreLocation::named(path)?, options)
}
