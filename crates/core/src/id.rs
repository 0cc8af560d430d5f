//! Names of things: a newtype for every id, so that none is mistaken for another.
//!
//! An event is addressed by the thread that owns it and its place in that thread. A fork shares its parent's
//! events, so an [`EventId`] means the same in every fork, and there is no order between ids of two threads:
//! [`EventId`] is deliberately not `Ord`.
//!
//! The first 48 bits of an id are its place: its position among others, and no other meaning. Ids that are
//! made one after another, or belong together, have near places, so that their rows do too. The rest is its
//! name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::Timestamp;

/// Number of digits of a short form: enough to tell the threads of a session apart, and cheap in tokens.
const SHORT: usize = 8;

/// Least number of digits at its start that identify an id.
const SHORTEST: usize = 4;

/// Number of bytes that are an id's place: as many as hold the time in a UUID that begins with it.
const PLACE: usize = 6;

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident, $space:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID made elsewhere.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// Derives an id from names. The same names always give the same id: importing a file twice finds
            /// the rows of the first time.
            pub fn derived(names: &[&str]) -> Self {
                let mut hasher = blake3::Hasher::new_derive_key($space);
                for name in names {
                    hasher.update(&(name.len() as u64).to_le_bytes());
                    hasher.update(name.as_bytes());
                }
                let mut bytes = [0; 16];
                hasher.finalize_xof().fill(&mut bytes);
                Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
            }

            /// The underlying UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The same name in the place of a moment: after all that were placed so before it.
            pub fn with_time(self, time: Timestamp) -> Self {
                let [_, _, place @ ..] = time.0.max(0).to_be_bytes();
                self.placed(place)
            }

            /// The same name beside another id.
            pub fn beside(self, other: Uuid) -> Self {
                let [a, b, c, d, e, f, ..] = other.into_bytes();
                self.placed([a, b, c, d, e, f])
            }

            /// The name alone: it stays the same wherever the id is placed.
            pub fn name(self) -> Self {
                self.placed([0; PLACE])
            }

            fn placed(self, place: [u8; PLACE]) -> Self {
                let mut bytes = self.0.into_bytes();
                bytes[..PLACE].copy_from_slice(&place);
                Self(Uuid::from_bytes(bytes))
            }

            /// The last eight digits, for people and for handles. They are random in every id there is; the first ones
            /// of an id that was made from a clock are the same for a minute.
            pub fn short(self) -> String {
                let id = self.0.simple().to_string();
                id[id.len() - SHORT..].to_owned()
            }

            /// Returns true if `text` may refer to this id: it is the id, four digits of its start or more,
            /// or its short form.
            pub fn matches_abbreviation(self, text: &str) -> bool {
                let text = text.to_ascii_lowercase();
                (text.len() >= SHORTEST && self.to_string().starts_with(&text)) || text == self.short()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = uuid::Error;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    };
}

uuid_newtype! {
    /// A named family of threads with a head.
    SessionId, "epitome session id v1"
}
uuid_newtype! {
    /// A line of events. A fork is a thread that starts at an event of another.
    ThreadId, "epitome thread id v1"
}
uuid_newtype! {
    /// Work that is done beside a session, such as writing a summary.
    JobId, "epitome job id v1"
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<T: Into<String>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }
    };
}

text_newtype! {
    /// A provider's id of a tool call. Providers reuse them: unique only while the call is open.
    CallId
}
text_newtype! {
    /// The name a tool is called by.
    ToolName
}
text_newtype! {
    /// The id of one answer of a model. Events that share it are fragments of one call.
    AnswerId
}
text_newtype! {
    /// A model, as its provider calls it.
    ModelName
}

/// A place in a thread's line of events, counted from 1. A fork continues its parent's numbering, so within
/// one thread's view a `Seq` alone names an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event: the head of an empty thread.
    pub const START: Self = Self(0);

    /// The place after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before this one; the start has none before it and stays.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Location of an event: the thread that owns it, and its place there. Written `thread:seq`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EventId {
    /// The thread the event was appended to.
    pub thread: ThreadId,
    /// Its place in that thread.
    pub seq: Seq,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.thread, self.seq)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({self})")
    }
}

/// Text that is not `thread:seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseEventIdError(pub String);

impl fmt::Display for ParseEventIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an event id: expected THREAD:NUMBER", self.0)
    }
}

impl std::error::Error for ParseEventIdError {}

impl FromStr for EventId {
    type Err = ParseEventIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once(':')
            .and_then(|(thread, seq)| {
                Some(Self { thread: thread.parse().ok()?, seq: Seq(seq.parse().ok()?) })
            })
            .ok_or_else(|| ParseEventIdError(text.to_owned()))
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for EventId {
    type Error = ParseEventIdError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_keep_name_boundaries_apart() {
        assert_eq!(SessionId::derived(&["a", "b"]), SessionId::derived(&["a", "b"]));
        assert_ne!(SessionId::derived(&["a", "b"]), SessionId::derived(&["ab"]));
        assert_ne!(SessionId::derived(&["a"]).uuid(), ThreadId::derived(&["a"]).uuid());
    }

    #[test]
    fn ids_of_one_moment_have_short_forms_of_their_own() {
        let made =
            |random: u128| ThreadId::new(Uuid::from_u128(0x0199_a1b2_c3d4_7000_8000_0000_0000_0000 | random));
        let (one, other) = (made(0x1111_2222_3333), made(0x1111_4444_5555));
        assert_eq!((one.short(), other.short()), ("22223333".into(), "44445555".into()));
        for (text, meant) in [
            ("22223333", true),
            ("44445555", false),
            ("0199", true),
            ("0199A1B2-C3D4", true),
            ("019", false),
            ("2223333", false),
            ("", false),
        ] {
            assert_eq!(one.matches_abbreviation(text), meant, "{text}");
        }
        assert!(one.matches_abbreviation(&one.to_string()));
    }

    #[test]
    fn a_place_orders_ids_and_leaves_their_names() {
        let session = |name: &str, time: i64| SessionId::derived(&[name]).with_time(Timestamp(time));
        assert!(session("b", 1_000) < session("a", 1_001) && session("a", 1_001) < session("b", i64::MAX));
        assert_eq!(session("a", 1).name(), session("a", 2).name());
        assert_ne!(session("a", 1).name(), session("b", 1).name());
        assert_eq!(session("a", 1).short(), SessionId::derived(&["a"]).short());
        // The first digits are those of an id from a clock.
        assert!(session("a", 0x0199_a1b2_c3d4).to_string().starts_with("0199a1b2-c3d4-8"));
        let thread = ThreadId::derived(&["t"]).beside(session("a", 7).uuid());
        assert_eq!(thread.uuid().as_bytes()[..6], [0, 0, 0, 0, 0, 7]);
        assert_eq!(thread.name(), ThreadId::derived(&["t"]).name());
    }

    #[test]
    fn an_event_id_reads_back() {
        let id = EventId { thread: ThreadId::derived(&["t"]), seq: Seq(7) };
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("7".parse::<EventId>().is_err());
    }
}
