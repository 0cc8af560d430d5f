//! Two hash chains over a thread.
//!
//! The raw chain covers every stored byte of every event: change one and every later link is wrong. The
//! normalised chain covers only the parts that a client sends back and that keep their meaning: it recognises
//! a history that was re-serialised on its way. Events that no client ever echoes (usage, pins, compactions)
//! leave the normalised chain where it was.
//!
//! One event sets it: a client that compacted its own history sends another one from then on. Its compaction
//! carries the normalised link at which that other history ends, so that the events that follow are
//! recognised by it.

use std::{fmt, str::FromStr, sync::LazyLock};

use serde::{Deserialize, Serialize};

use crate::event::{Event, Fact};

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

/// A hash of bytes that come one after the other, and may go on in several ways.
#[derive(Clone, Debug, Default)]
pub struct DigestHasher(Box<blake3::Hasher>);

impl DigestHasher {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all so far, as if they were one.
    pub fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        blake3::Hash::from_bytes(self.0).to_hex().fmt(f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", &self.to_string()[..12])
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl FromStr for Digest {
    type Err = blake3::HexError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes()))
    }
}

impl TryFrom<String> for Digest {
    type Error = blake3::HexError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// State of both chains after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLink {
    /// Covers every byte so far.
    pub raw: Digest,
    /// Covers the parts by which a client's history is recognised as the same.
    pub normal: Digest,
}

impl ChainLink {
    /// Before the first event of a session.
    pub const ROOT: Self = Self { raw: Digest([0; 32]), normal: Digest([0; 32]) };

    /// The link after `event`. `fact` is the event's fact as it is stored, so that it is serialised only once.
    pub fn next(&self, event: &Event, fact: &str) -> Self {
        static KEYED: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("epitome raw chain v1"));
        let mut raw = KEYED.clone();
        raw.update(&self.raw.0);
        let mut field = |bytes: Option<&[u8]>| {
            raw.update(&[u8::from(bytes.is_some())]);
            let bytes = bytes.unwrap_or_default();
            raw.update(&(bytes.len() as u64).to_le_bytes());
            raw.update(bytes);
        };
        field(event.time.map(|time| time.0.to_le_bytes()).as_ref().map(<[u8; 8]>::as_slice));
        field(event.origin.as_deref().map(str::as_bytes));
        field(Some(event.raw.dialect.name().as_bytes()));
        field(event.normal.as_ref().map(|digest| digest.0.as_slice()));
        field(Some(fact.as_bytes()));
        field(Some(event.raw.json.as_bytes()));
        Self { raw: Digest(*raw.finalize().as_bytes()), normal: self.next_normal(event) }
    }

    /// The normalised chain after `event`: one link on if a client echoes it, where it was if none does. The digest of a
    /// compaction is itself the link, because the history that a client sends after it is not the one before it.
    fn next_normal(&self, event: &Event) -> Digest {
        let Some(digest) = event.normal else { return self.normal };
        if matches!(event.fact, Fact::Compacted(_)) {
            return digest;
        }
        Self::advance_normal(self.normal, digest)
    }

    /// The normalised chain one link on from `before`, after something with this digest.
    pub fn advance_normal(before: Digest, digest: Digest) -> Digest {
        // A long history is hundreds of links: the key is derived once.
        static KEYED: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("epitome normalised chain v1"));
        let mut normal = KEYED.clone();
        normal.update(&before.0).update(&digest.0);
        Digest(*normal.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        event::{
            Compaction, CompactionTrigger, ContentPart, Event, Fact, RawDialect, RawJson, Summary, Timestamp,
        },
        id::Seq,
    };

    fn event(time: Option<i64>, origin: Option<String>, text: String) -> Event {
        let raw = RawJson { dialect: RawDialect::OpenaiChat, json: text.clone().into() };
        let fact = Fact::UserSaid { parts: vec![ContentPart::Text { text }] };
        Event { time: time.map(Timestamp), origin, normal: Some(Digest::of(raw.json.as_bytes())), fact, raw }
    }

    fn compacted(normal: Option<Digest>) -> Event {
        let fact = Fact::Compacted(Compaction {
            summary: Summary::Text("so far".into()),
            through: Seq(1),
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        });
        Event { normal, ..Event::from_fact(fact, None) }
    }

    fn links(events: &[Event]) -> Vec<ChainLink> {
        let mut link = ChainLink::ROOT;
        events
            .iter()
            .map(|event| {
                link = link.next(event, &event.fact_json());
                link
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_raw_chain_detects_any_changed_byte(
            texts in prop::collection::vec("[a-z]{1,20}", 1..6),
            at in any::<prop::sample::Index>(),
            byte in any::<prop::sample::Index>(),
            field in 0..4u8,
        ) {
            let events: Vec<Event> =
                texts.into_iter().map(|text| event(Some(5), Some("o".into()), text)).collect();
            let before = links(&events);
            let mut changed = events.clone();
            let at = at.index(events.len());
            let victim = &mut changed[at];
            match field {
                0 => victim.time = Some(Timestamp(6)),
                1 => victim.origin = None,
                2 => victim.normal = None,
                _ => {
                    let mut json = victim.raw.json.to_string().into_bytes();
                    let byte = byte.index(json.len());
                    json[byte] ^= 1;
                    victim.raw.json = String::from_utf8(json).expect("ascii stays ascii").into();
                }
            }
            let after = links(&changed);
            prop_assert_eq!(&before[..at], &after[..at]);
            for (one, other) in before[at..].iter().zip(&after[at..]) {
                prop_assert_ne!(one.raw, other.raw);
            }
        }

        #[test]
        fn after_a_clients_own_compaction_the_normalised_chain_is_that_of_what_it_sends_then(
            before in prop::collection::vec("[a-z]{1,9}", 0..4),
            instead in prop::collection::vec("[a-z]{1,9}", 0..4),
            after in prop::collection::vec("[a-z]{1,9}", 0..4),
        ) {
            let said = |texts: Vec<String>| texts.into_iter().map(|text| event(None, None, text)).collect::<Vec<_>>();
            let (before, instead, after) = (said(before), said(instead), said(after));
            let end = links(&instead).last().map_or(ChainLink::ROOT.normal, |link| link.normal);
            let recorded = links(&[before.clone(), vec![compacted(Some(end))], after.clone()].concat());
            let sent = links(&[instead, after.clone()].concat());
            prop_assert_eq!(recorded[before.len()].normal, end);
            for (one, other) in recorded.iter().rev().zip(sent.iter().rev()).take(after.len()) {
                prop_assert_eq!(one.normal, other.normal);
            }
            // One that no client made leaves the chain where it was, and the raw chain covers which of the two it is.
            let ours = links(&[before.clone(), vec![compacted(None)]].concat());
            let unmoved = links(&before).last().map_or(ChainLink::ROOT.normal, |link| link.normal);
            prop_assert_eq!(ours[before.len()].normal, unmoved);
            prop_assert_ne!(ours[before.len()].raw, recorded[before.len()].raw);
        }
    }

    #[test]
    fn events_no_client_echoes_leave_the_normalised_chain() {
        let mut silent = event(None, None, "x".into());
        silent.normal = None;
        let first = ChainLink::ROOT.next(&event(None, None, "a".into()), "{}");
        assert_eq!(first.next(&silent, "{}").normal, first.normal);
        assert_ne!(first.next(&silent, "{}").raw, first.raw);
    }
}
