//! Events of which something was found out before they are stored: that saves work and changes nothing.

use epitome_core::{AnnotatedEvent, ChainLink, Seq, TokenCounter, Tokens};

use super::{
    ConformanceCheck, DatabaseFactory, TestDatabase, checks,
    samples::{Quarters, append, events, root, user},
};
use crate::{Store, records::ThreadCommit};

checks! {
    what_was_found_out_in_the_same_way_is_stored_as_it_would_be_without,
    a_link_that_was_found_after_another_one_is_not_stored,
    counts_by_another_tokenizer_are_not_stored,
}

/// A counter of bytes. Its counts differ from those of the store.
struct Bytes;

impl TokenCounter for Bytes {
    fn name(&self) -> &'static str {
        "bytes"
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens(text.len() as u64)
    }
}

/// Stores some events after another one as they are, and once more after somebody made notes of them; compares.
fn check(databases: &DatabaseFactory<'_>, note: impl Fn(&AnnotatedEvent, ChainLink)) {
    for open in [TestDatabase::open, TestDatabase::open_late] {
        let (one, other) = (databases(), databases());
        let (plain, noted) = (open(&one), open(&other));
        let said = events(Seq(2), "iuafgrrgck");
        let thread = root(&*plain, "t");
        append(&*plain, thread, vec![user("first")]);
        append(&*plain, thread, said.clone());
        let head = append(&*noted, root(&*noted, "t"), vec![user("first")]);
        let mut commit = ThreadCommit::new(thread, head.seq, said, Vec::new());
        let mut link = head.link;
        for event in &commit.events {
            note(event, link);
            link = link.next(event, event.fact_json());
        }
        // Whoever tries again commits the same notes.
        let elsewhere = ThreadCommit { after: Seq(0), ..commit.clone() };
        noted.commit(elsewhere).unwrap_err();
        assert_eq!(noted.commit(commit.clone()).unwrap().link, link);
        let all = |store: &dyn Store| {
            (store.read(thread, Seq(1), 100).unwrap(), store.text_counts(thread, Seq(1), 100).unwrap())
        };
        assert_eq!(all(&*noted), all(&*plain));
        // A second place for the same notes.
        commit.after = noted.head(thread).unwrap().seq;
        noted.commit(commit).unwrap();
        assert!(noted.doctor().unwrap().is_healthy());
    }
}

fn what_was_found_out_in_the_same_way_is_stored_as_it_would_be_without(databases: &DatabaseFactory<'_>) {
    check(databases, |event, link| {
        let _ = (event.link_after(link), event.pieces(&Quarters));
    });
}

fn a_link_that_was_found_after_another_one_is_not_stored(databases: &DatabaseFactory<'_>) {
    check(databases, |event, link| {
        let _ = event.link_after(ChainLink { raw: link.normal, ..link });
    });
    check(databases, |event, link| {
        let _ = event.link_after(ChainLink { normal: link.raw, ..link });
    });
}

fn counts_by_another_tokenizer_are_not_stored(databases: &DatabaseFactory<'_>) {
    check(databases, |event, _| {
        let _ = event.pieces(&Bytes);
    });
}
