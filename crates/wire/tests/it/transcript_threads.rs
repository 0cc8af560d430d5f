//! The events of a transcript's threads, with those that a fork shares.

use epitome_core::{ContentPart, Event, Fact, Seq, SessionId, ThreadId};
use epitome_wire::transcripts::{TranscriptSession, TranscriptThread, TranscriptThreadStart};

fn id(name: &str) -> ThreadId {
    ThreadId::derived(&[name])
}

/// A thread in which the user says these words, one after the other.
fn thread(name: &str, start: TranscriptThreadStart, words: &str) -> TranscriptThread {
    let said = |word: &str| {
        let parts = vec![ContentPart::text(word)];
        Event::from_fact(Fact::UserSaid { parts }, None)
    };
    TranscriptThread {
        id: id(name),
        name: name.to_owned(),
        start,
        events: words.split_whitespace().map(said).collect(),
    }
}

fn fork(of: &str, at: u64) -> TranscriptThreadStart {
    TranscriptThreadStart::Fork { of: id(of), at: Seq(at) }
}

#[test]
fn a_fork_sees_what_its_parents_held_where_it_left_them() {
    let spawned = TranscriptThreadStart::Spawned { by: Some(id("main")), call: None };
    let session = TranscriptSession {
        id: SessionId::derived(&["session"]),
        key: "session".to_owned(),
        title: None,
        folder: None,
        threads: vec![
            thread("main", TranscriptThreadStart::Root, "a b c d"),
            thread("fork", fork("main", 2), "e f g"),
            thread("fork of the fork", fork("fork", 3), "h"),
            thread("early fork of the fork", fork("fork", 1), "i"),
            thread("subagent", spawned, "j"),
        ],
        head: id("main"),
    };
    for (name, expect) in [
        ("main", "a b c d"),
        ("fork", "a b e f g"),
        ("fork of the fork", "a b e h"),
        ("early fork of the fork", "a i"),
        ("subagent", "j"),
        ("unknown", ""),
    ] {
        let events = session.thread_events(id(name));
        let words: Vec<String> = events.iter().map(|event| event.fact.text()).collect();
        assert_eq!(words.join(" "), expect, "{name}");
    }
}
