//! A process that is killed at any moment loses nothing it was told is there.
//!
//! The test runs itself again as two writers of one file and kills both, again and again. What the dead have
//! printed was acknowledged.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use epitome_core::{Seq, event::Timestamp};
use epitome_store::{
    StoreError,
    records::{CommitRecord, ThreadCommit},
};
use tempfile::TempDir;

use crate::support::{call, counting, late, open_at, policy, root, thread, user};

const ROUNDS: u64 = 110;
const WRITERS: usize = 2;
const SHORT_LIFE: u64 = 1 << 16;

#[test]
fn whatever_was_acknowledged_before_a_kill_is_there_once_and_whole() {
    let mut store = TempDir::new().unwrap();
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut appends = 0;
    // How long a life may be, in microseconds. On a busy machine it takes longer to do anything before one dies.
    let mut longest = SHORT_LIFE;
    for round in 0..ROUNDS {
        // A new file now and then, so that some die while it is made.
        if round % 12 == 0 {
            verify(store.path(), &acknowledged);
            store = TempDir::new().unwrap();
            acknowledged.clear();
        }
        let mut children: Vec<Child> =
            (0..WRITERS).map(|writer| spawn(&store.path().join("epitome.db"), writer, round)).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((random >> 33) % longest));
        let before = appends;
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            let mut output = String::new();
            child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
            child.wait().unwrap();
            // A last line without its end was cut off by the kill; it was acknowledged all the same.
            for line in output.lines().filter_map(|line| line.strip_prefix("ack ")) {
                let (name, text) = line.split_once(' ').unwrap_or((line, ""));
                if let Ok(seq) = text.parse::<u64>() {
                    let last = acknowledged.entry(name.to_owned()).or_default();
                    *last = (*last).max(seq);
                    appends += 1;
                }
            }
        }
        longest = if appends == before { longest * 5 / 4 } else { (longest * 9 / 10).max(SHORT_LIFE) };
    }
    verify(store.path(), &acknowledged);
    assert!(appends > 100, "only {appends} appends were acknowledged: nothing was tried");
}

/// Every acknowledged append is there, none twice, none torn, and the store is sound.
fn verify(directory: &Path, acknowledged: &BTreeMap<String, u64>) {
    let store = open_at(&directory.join("epitome.db"), counting()).unwrap();
    for (name, last) in acknowledged {
        let events = store.read(thread(name), Seq(1), usize::MAX).unwrap();
        assert!(events.len() as u64 >= *last, "{name}: {} events, {last} acknowledged", events.len());
        let mut seen = std::collections::HashSet::new();
        let mut expected = None;
        for event in &events {
            let text = event.event.fact.text();
            let mut words = text.split(' ');
            let batch = words.next().unwrap().to_owned();
            let (index, size): (u64, u64) =
                (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
            match expected.take() {
                None => assert!(index == 0 && seen.insert(batch.clone()), "{name}: {text} begins twice"),
                Some(next) => assert_eq!((batch.clone(), index, size), next, "{name}: torn"),
            }
            expected = (index + 1 < size).then_some((batch, index + 1, size));
        }
        assert_eq!(expected, None, "{name}: the last append is torn");
        // Every batch came with a call: none is there without the other.
        let calls = store.calls(thread(name), 0, usize::MAX).unwrap();
        assert_eq!(calls.len(), seen.len(), "{name}: calls and events");
        assert!(store.content(policy().hash).unwrap().is_some());
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    assert_eq!(store.audit().unwrap(), []);
}

fn spawn(path: &Path, writer: usize, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::append_until_killed", "--ignored", "--nocapture"])
        .env("EPITOME_TEST_STORE", path)
        .env("EPITOME_TEST_LIFE", format!("{writer}/{round}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "only as another process of the test above"]
fn append_until_killed() {
    let (Some(path), Ok(life)) = (std::env::var_os("EPITOME_TEST_STORE"), std::env::var("EPITOME_TEST_LIFE"))
    else {
        return;
    };
    let writer = life.split('/').next().unwrap();
    // One of them puts off what is derived, and dies before it comes to that.
    let options = if writer == "0" { late() } else { counting() };
    let store = open_at(Path::new(&path), options).unwrap();
    // A thread of its own, and one that both append to.
    let names = [format!("own {writer}").replace(' ', "-"), "shared".to_owned()];
    for batch in 0_u64.. {
        let name = &names[usize::try_from(batch % 2).unwrap()];
        let id = root(&*store, name);
        let size = batch % 3 + 1;
        let events = |_: Seq| {
            (0..size)
                .map(|index| {
                    user(&format!("{life}/{batch} {index} {size} {}", "x".repeat(900))).at(Some(Timestamp(1)))
                })
                .collect::<Vec<_>>()
        };
        let mut after = store.head(id).unwrap().seq;
        let head = loop {
            let records = vec![CommitRecord::Content(policy()), CommitRecord::Call(call(after))];
            match store.commit(ThreadCommit::new(id, after, events(after), records)) {
                Ok(head) => break head,
                Err(StoreError::Conflict { head, .. }) => after = head.seq,
                Err(error) => panic!("{error}"),
            }
        };
        writeln!(std::io::stdout(), "ack {name} {}", head.seq).unwrap();
    }
}
