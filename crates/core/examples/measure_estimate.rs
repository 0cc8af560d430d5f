//! Measures the estimate against the exact vocabulary: `cargo run --release --features bpe --example measure_estimate -- FOLDER…`
//!
//! Reads every string of 200 bytes or more in the JSON and JSON Lines files below the folders, counts it both ways, and
//! prints how the ratios are spread and how fast both are. Run it after a change to the charges of the estimate.

use std::{
    collections::{BTreeMap, HashSet},
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use epitome_core::tokens::{EstimateCounter, O200kCounter, TokenCounter};
use serde_json::Value;

fn main() {
    let mut texts = HashSet::new();
    for folder in env::args().skip(1) {
        gather(PathBuf::from(folder), &mut texts);
    }
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let (mut bytes, mut estimating, mut counting) = (0, Duration::ZERO, Duration::ZERO);
    for text in &texts {
        // The quickest of a few runs: other programs' work is not the estimate's.
        let runs = (0..5).map(|_| timed(|| EstimateCounter.count(text).0));
        let (estimate, took) = runs.min_by_key(|(_, took)| *took).unwrap_or_default();
        let (exact, exactly) = timed(|| O200kCounter.count(text).0);
        (estimating, counting) = (estimating + took, counting + exactly);
        bytes += text.len();
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
        let ratio = estimate as f64 / exact.max(1) as f64;
        for kind in [kind(text), "all"] {
            kinds.entry(kind).or_default().push(ratio);
        }
    }
    println!(
        "{:8} {:>7} {:>6} {:>6} {:>6} {:>6} {:>8}",
        "kind", "texts", "p1", "median", "p99", "max", "short"
    );
    for (kind, mut ratios) in kinds {
        ratios.sort_by(f64::total_cmp);
        let at = |percent: usize| ratios[(ratios.len() - 1) * percent / 100];
        let short = ratios.partition_point(|ratio| *ratio < 1.0);
        println!(
            "{kind:8} {:>7} {:>6.3} {:>6.3} {:>6.3} {:>6.2} {:>4} in {}",
            ratios.len(),
            at(1),
            at(50),
            at(99),
            at(100),
            short,
            ratios.len()
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "a speed for people to read")]
    let speed = |took: Duration| bytes as f64 / 1e6 / took.as_secs_f64();
    println!("{bytes} bytes: estimate {:.0} MB/s, o200k {:.0} MB/s", speed(estimating), speed(counting));
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = run();
    (result, started.elapsed())
}

fn gather(path: PathBuf, texts: &mut HashSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            gather(entry.path(), texts);
        }
        return;
    }
    let Ok(content) = fs::read_to_string(&path) else { return };
    match serde_json::from_str::<Value>(&content) {
        Ok(value) => strings(value, texts),
        Err(_) => content
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .for_each(|line| strings(line, texts)),
    }
}

fn strings(value: Value, texts: &mut HashSet<String>) {
    match value {
        Value::String(text) if text.len() >= 200 => {
            texts.insert(text);
        }
        Value::Array(values) => values.into_iter().for_each(|value| strings(value, texts)),
        Value::Object(fields) => fields.into_iter().for_each(|(_, value)| strings(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What a text mostly is. Rough, and enough to see which kind the estimate is wrong about.
fn kind(text: &str) -> &'static str {
    let in_run = |char: char| char.is_ascii_alphanumeric() || "+/=_-".contains(char);
    let longest = text.split(|char| !in_run(char)).map(str::len).max().unwrap_or(0);
    let share = |is: fn(u8) -> bool| text.bytes().filter(|byte| is(*byte)).count() * 100 / text.len().max(1);
    if longest * 100 > text.len() * 60 {
        "base64"
    } else if share(|byte| byte >= 0xE3) > 15 {
        "cjk"
    } else if text.starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok() {
        "json"
    } else if share(|byte| b"{}()[];=<>/\\_\"|".contains(&byte)) > 5 {
        "code"
    } else {
        "prose"
    }
}
