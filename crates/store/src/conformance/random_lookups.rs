//! Lookups and searches with random names, words and principals.

use epitome_core::{Event, Seq, ThreadId};
use proptest::prelude::*;

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, ending, item, opens, root, thread, user},
};
use crate::{
    ThreadStart,
    records::{HitLocation, SearchQuery, ThreadCommit},
};

checks! {
    no_lookup_gives_another_principals_rows,
    no_query_is_an_error,
}

const PRINCIPALS: [&str; 3] = ["", "ann", "bob"];

/// Every principal who says the same under the same names finds their own, and everything that a lookup gives is theirs.
fn no_lookup_gives_another_principals_rows(databases: &DatabaseFactory<'_>) {
    proptest!(ProptestConfig::with_cases(48), |(sessions in prop::collection::vec((0..3_usize, 0..3_usize, prop::collection::vec(0..2_u8, 1..4), any::<bool>()), 1..12))| {
        let place = databases();
        let store = place.open();
        let mut made: Vec<(usize, usize, Vec<Event>)> = Vec::new();
        for (number, (principal, key, words, fork)) in sessions.iter().enumerate() {
            let name = number.to_string();
            // Some go on from a session of their own, so that views share events.
            let parent = made.iter().rposition(|(owner, ..)| owner == principal).filter(|_| *fork);
            let start = parent.map_or(ThreadStart::Root, |parent| ThreadStart::Fork {
                of: thread(&parent.to_string()),
                at: Seq(made[parent].2.len() as u64),
            });
            let mut opens = opens(PRINCIPALS[*principal], &name, start);
            opens.thread.key = Some(format!("key {key}"));
            if let Some(session) = &mut opens.session {
                session.key.clone_from(&opens.thread.key);
            }
            let said: Vec<Event> = words.iter().map(|word| item(&format!("resp_{word}"), &format!("msg_{word}"))).collect();
            store.commit(ThreadCommit::opening(opens, said.clone(), vec![])).unwrap();
            let before = parent.map_or(vec![], |parent| made[parent].2.clone());
            made.push((*principal, *key, [before, said].concat()));
        }
        let theirs = |id: ThreadId| store.session(store.thread(id).unwrap().session).unwrap().principal;
        for (principal, key, view) in &made {
            for asking in PRINCIPALS {
                let found = store.histories_of_principal(asking, ending(view)).unwrap();
                let called = store.threads_by_key(asking, &format!("key {key}")).unwrap();
                let session = store.session_by_key(asking, &format!("key {key}")).unwrap();
                if let Some(session) = session {
                    prop_assert_eq!(store.session(session).unwrap().principal, asking);
                }
                let named = view.last().and_then(|event| event.origin.clone()).unwrap();
                let item = store.item_of(asking, &named).unwrap();
                let answer = store.answer_of(asking, &named.replace("msg", "resp").into()).unwrap();
                let threads = found.iter().map(|id| id.thread).chain(called.iter().map(|row| row.id));
                for id in threads.chain(item.map(|id| id.thread)).chain(answer.map(|id| id.thread)) {
                    prop_assert_eq!(theirs(id), asking);
                }
                if asking == PRINCIPALS[*principal] {
                    prop_assert!(!found.is_empty() && !called.is_empty() && item.is_some() && answer.is_some());
                    prop_assert!(session.is_some());
                }
            }
        }
        let report = store.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    });
}

fn no_query_is_an_error(databases: &DatabaseFactory<'_>) {
    proptest!(ProptestConfig::with_cases(24), |(texts in prop::collection::vec("\\PC{0,40}", 1..20), words in prop::collection::vec("(\\PC|[\"*(){}:^+-]|\0){0,20}", 20))| {
        let place = databases();
        let store = place.open();
        let thread = root(&*store, "s");
        append(&*store, thread, texts.iter().map(|text| user(text)).collect());
        for words in words.iter().chain(&texts) {
            prop_assert!(store.search(&SearchQuery::everything(words)).is_ok(), "{:?}", words);
        }
        // Every text that has a word is found by itself.
        for (place, text) in (1..).zip(&texts).filter(|(_, text)| text.chars().any(|letter| letter.is_ascii_alphanumeric())) {
            let hits = store.search(&SearchQuery { limit: 100, ..SearchQuery::everything(text.replace(['"', '*'], " ")) }).unwrap();
            let here = hits.iter().any(|hit| matches!(&hit.found, HitLocation::Event { id, .. } if id.seq == Seq(place)));
            prop_assert!(here, "{:?} does not find itself", text);
        }
        prop_assert_eq!(store.head(thread).unwrap().seq.0, texts.len() as u64);
    });
}
