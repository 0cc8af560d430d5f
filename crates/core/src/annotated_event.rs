//! An event with its derived values: its fact as JSON, the tokens of its texts, the link after it.
//!
//! Display and storage of an event need the same derived values. Each of these is computed on first use, and
//! kept for all users of the event. It cannot be wrong: the event behind it never changes, only this module
//! computes the values, and a value that depends on more than the event is kept with its other inputs, and
//! computed anew for other ones.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::{
    event::Event,
    hash_chain::ChainLink,
    tokens::{TokenCounter, Tokens},
};

/// An event and its derived values. Clones share both.
///
/// ```
/// use epitome_core::{Event, Fact, ChainLink, AnnotatedEvent, ContentPart};
///
/// let said = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("Hello.")] }, None);
/// let noted = AnnotatedEvent::from(said.clone());
/// assert_eq!(noted.fact_json(), said.fact_json());
/// assert_eq!(noted.link_after(ChainLink::ROOT), ChainLink::ROOT.next(&said, &said.fact_json()));
/// ```
#[derive(Clone)]
pub struct AnnotatedEvent(Arc<EventAnnotations>);

struct EventAnnotations {
    event: Event,
    fact: OnceLock<String>,
    /// The counts by the first counter that was used, under its name.
    pieces: OnceLock<(&'static str, Vec<Tokens>)>,
    /// The link before it that was asked about first, and the link after it.
    link: OnceLock<(ChainLink, ChainLink)>,
}

impl AnnotatedEvent {
    /// The fact as it is stored.
    pub fn fact_json(&self) -> &str {
        self.0.fact.get_or_init(|| self.0.event.fact_json())
    }

    /// The tokens of each of its texts, in the order [`Event::visit_counted`] shows them.
    pub fn pieces(&self, counter: &dyn TokenCounter) -> Vec<Tokens> {
        self.pieces_by(counter.name(), |text| counter.count(text))
    }

    /// The same, where `count` counts as all counters of that name do.
    pub(crate) fn pieces_by(&self, name: &'static str, mut count: impl FnMut(&str) -> Tokens) -> Vec<Tokens> {
        let (by, pieces) = self.0.pieces.get_or_init(|| (name, self.0.event.count_by(&mut count)));
        if *by == name { pieces.clone() } else { self.0.event.count_by(&mut count) }
    }

    /// The link after it, in a line that stands at `before`.
    pub fn link_after(&self, before: ChainLink) -> ChainLink {
        let next = || before.next(&self.0.event, self.fact_json());
        let (from, link) = self.0.link.get_or_init(|| (before, next()));
        if *from == before { *link } else { next() }
    }
}

impl From<Event> for AnnotatedEvent {
    fn from(event: Event) -> Self {
        let (fact, pieces, link) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self(Arc::new(EventAnnotations { event, fact, pieces, link }))
    }
}

impl Deref for AnnotatedEvent {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.0.event
    }
}

/// Two are the same if their events are.
impl PartialEq for AnnotatedEvent {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AnnotatedEvent {}

impl fmt::Debug for AnnotatedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.event.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{
        event::{ContentPart, Fact},
        hash_chain::Digest,
        meter::{Meter, TokenOverhead},
    };

    /// Letters or words, and how often it was asked.
    struct Asked {
        name: &'static str,
        times: AtomicU64,
    }

    impl Asked {
        fn new(name: &'static str) -> Arc<Self> {
            Arc::new(Self { name, times: AtomicU64::new(0) })
        }

        fn times(&self) -> u64 {
            self.times.load(Ordering::Relaxed)
        }
    }

    impl TokenCounter for Asked {
        fn name(&self) -> &'static str {
            self.name
        }

        fn count(&self, text: &str) -> Tokens {
            self.times.fetch_add(1, Ordering::Relaxed);
            let tokens = if self.name == "words" { text.split_whitespace().count() } else { text.len() };
            Tokens(tokens as u64)
        }
    }

    fn noted() -> AnnotatedEvent {
        let parts = vec![ContentPart::text("one two"), ContentPart::text("three")];
        AnnotatedEvent::from(Event::from_fact(Fact::UserSaid { parts }, None))
    }

    #[test]
    fn whoever_shows_an_event_and_whoever_stores_it_count_it_once() {
        let (words, noted) = (Asked::new("words"), noted());
        let meter = Meter::new(Arc::clone(&words) as _, TokenOverhead::default());
        let expect = [Tokens(2), Tokens(1)];
        assert_eq!(
            (meter.pieces_noted(&noted), noted.clone().pieces(&*words)),
            (expect.into(), expect.into())
        );
        assert_eq!(words.times(), 2);
    }

    #[test]
    fn counts_of_another_tokenizer_are_not_used() {
        let (words, letters, noted) = (Asked::new("words"), Asked::new("letters"), noted());
        for _ in 0..2 {
            assert_eq!(noted.pieces(&*words), [Tokens(2), Tokens(1)]);
            assert_eq!(noted.pieces(&*letters), [Tokens(7), Tokens(5)]);
        }
        // Only the counts of the first counter are kept.
        assert_eq!((words.times(), letters.times()), (2, 4));
    }

    #[test]
    fn a_link_after_another_one_is_not_used() {
        let noted = noted();
        let (raw, normal) = (Digest::of(b"raw"), Digest::of(b"normal"));
        let befores = [
            ChainLink::ROOT,
            ChainLink { raw, ..ChainLink::ROOT },
            ChainLink { normal, ..ChainLink::ROOT },
            ChainLink { raw, normal },
        ];
        for first in befores {
            let again = AnnotatedEvent::from(Event::clone(&noted));
            let _ = again.link_after(first);
            for before in befores {
                assert_eq!(again.link_after(before), before.next(&noted, &Event::fact_json(&noted)));
            }
        }
    }
}
