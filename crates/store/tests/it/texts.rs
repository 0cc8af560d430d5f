//! The ledger of outside events, and search over both ledgers.

use epitome_core::Seq;
use epitome_store::records::{HitLocation, SearchQuery};
use proptest::prelude::*;

use crate::support::{Place, append, root, user};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_query_is_an_error(texts in prop::collection::vec("\\PC{0,40}", 1..20), words in prop::collection::vec("(\\PC|[\"*(){}:^+-]|\0){0,20}", 20)) {
        let place = Place::new();
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
    }
}
