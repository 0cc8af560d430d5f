//! What importing costs beside counting the tokens of the same text, in one run on the same machine.
//!
//! Import reads, hashes, indexes for search, derives turns, writes durably, and counts tokens too: the ratio says what
//! all the rest costs. Run with `cargo bench -p epitome`; a folder of transcripts may be given in
//! `EPITOME_DATA`.

#![expect(clippy::cast_precision_loss, reason = "ratios are printed with two digits")]

use std::{
    env, fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use epitome::{
    core::{Fact, TokenCounter, tokens::O200kCounter},
    import::{find_files, import_bytes},
    store::{StoreLocation, StoreOptions, open_store},
    wire::transcripts::{self, TranscriptLimits},
};

fn main() {
    let files = files();
    let texts: Vec<String> = files.iter().flat_map(|(name, bytes)| texts(name, bytes)).collect();
    let text_bytes: usize = texts.iter().map(String::len).sum();
    O200kCounter.count("the vocabulary is loaded before anything is timed");

    let counting = best_of(3, || texts.iter().map(|text| O200kCounter.count(text).0).sum::<u64>());
    let reading = best_of(3, || {
        files
            .iter()
            .map(|(name, bytes)| transcripts::read(name, bytes, &TranscriptLimits::default()).is_ok())
            .filter(|ok| *ok)
            .count()
    });
    let importing = best_of(3, || import(&files, Some(Arc::new(O200kCounter))));
    let without = best_of(3, || import(&files, None));

    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    let file_bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    println!(
        "{} files, {:.1} MB, of which {:.1} MB text",
        files.len(),
        megabytes(file_bytes),
        megabytes(text_bytes)
    );
    println!("counting tokens alone              1.00   ({:.0} ms)", counting.as_secs_f64() * 1e3);
    for (what, time) in [
        ("reading the files alone", reading),
        ("import without counting", without),
        ("import, counting included", importing),
    ] {
        println!("{what:30} {:8.2}", time.as_secs_f64() / counting.as_secs_f64());
    }
}

fn best_of<T>(times: usize, mut work: impl FnMut() -> T) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..times {
        let start = Instant::now();
        std::hint::black_box(work());
        best = best.min(start.elapsed());
    }
    best
}

fn import(files: &[(String, Vec<u8>)], counter: Option<Arc<dyn TokenCounter>>) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = StoreOptions { counter, ..StoreOptions::default() };
    let store = open_store(&StoreLocation::named(folder.path().join("log.db")).expect("a path"), options)
        .expect("a new store");
    let mut events = 0;
    for (name, bytes) in files {
        let imported =
            import_bytes(&*store, name, bytes, &TranscriptLimits::default()).expect("a transcript");
        events += imported.sessions.iter().map(|session| session.appended).sum::<u64>();
    }
    events
}

/// Every text that an import counts.
fn texts(name: &str, bytes: &[u8]) -> Vec<String> {
    let reading = transcripts::read(name, bytes, &TranscriptLimits::default()).expect("a transcript");
    let facts =
        reading.sessions.into_iter().flat_map(|session| session.threads).flat_map(|thread| thread.events);
    let mut texts = Vec::new();
    for event in facts {
        let fact: Fact = event.fact;
        fact.visit_text(&mut |text| texts.push(text.to_owned()));
    }
    texts
}

/// The transcripts in `EPITOME_DATA`, or the session that ships with the project, fifty times.
fn files() -> Vec<(String, Vec<u8>)> {
    if let Some(folder) = env::var_os("EPITOME_DATA").map(PathBuf::from) {
        let (found, _) = find_files(&folder);
        let read =
            found.into_iter().map(|path| (path.display().to_string(), fs::read(path).expect("readable")));
        return read
            .filter(|(name, bytes)| transcripts::read(name, bytes, &TranscriptLimits::default()).is_ok())
            .collect();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sessions/flaky-upload.json");
    let bytes = fs::read(path).expect("the session that ships with the project");
    (0..50).map(|copy| (format!("copy {copy}"), bytes.clone())).collect()
}
