//! What is known of an answer while it passes, and what becomes of each of its events.

use std::collections::BTreeSet;

use super::places::Places;
use crate::json::{self, Json};

/// What is known of the answer that passes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) places: Places,
    /// The provider's places of calls that are withheld.
    hidden: BTreeSet<u64>,
    /// Whether the client has calls to answer.
    pub(super) has_others: bool,
    pub(super) end: End,
    /// Whether other answers stand before it.
    pub(super) is_continued: bool,
    /// Whether calls are no longer withheld.
    is_exposed: bool,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    NotYet,
    /// To wait for the results of calls that are withheld: the client has not been told.
    Withheld,
    /// To wait for tools, or with all said.
    Well,
    /// In any other way.
    Otherwise,
}

/// Why an answer says that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It has said what it had to, calls included.
    Done,
    /// Something else.
    Other,
}

/// What becomes of an event.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) shown: Shown,
    /// What is withheld of it.
    pub(super) held: Option<String>,
}

/// What the client sees of an event.
#[derive(Debug)]
pub(super) enum Shown {
    AsItIs,
    As(String),
    Not,
}

impl Fate {
    pub(super) fn passed() -> Self {
        Self { shown: Shown::AsItIs, held: None }
    }

    pub(super) fn dropped() -> Self {
        Self { shown: Shown::Not, held: None }
    }

    pub(super) fn held(payload: &str) -> Self {
        Self { shown: Shown::Not, held: Some(payload.to_owned()) }
    }

    /// Passed, with some values replaced.
    pub(super) fn edited(event: &Json<'_>, edits: &[(&Json<'_>, String)]) -> Self {
        if edits.is_empty() {
            return Self::passed();
        }
        let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
        Self { shown: Shown::As(json::replaced(event, &edits)), held: None }
    }
}

impl Tally {
    /// Whether calls of the tool are to be withheld.
    pub(super) fn watches(&self) -> bool {
        !self.is_exposed
    }

    pub(super) fn hide(&mut self, place: u64) {
        self.hidden.insert(place);
        self.places.part();
    }

    pub(super) fn hides(&self, place: u64) -> bool {
        self.hidden.contains(&place)
    }

    /// Whether any call is withheld.
    pub(super) fn hides_any(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The answer says that it ends. Whether that is withheld.
    pub(super) fn ended(&mut self, reason: Reason) -> bool {
        self.end = match reason {
            Reason::Done if self.hides_any() && !self.has_others => End::Withheld,
            Reason::Done => End::Well,
            Reason::Other => End::Otherwise,
        };
        self.is_withheld()
    }

    /// Whether the answer has ended, and the client is not told.
    pub(super) fn is_withheld(&self) -> bool {
        self.end == End::Withheld
    }

    /// Whether the answer has not said how it ends.
    pub(super) fn is_open(&self) -> bool {
        self.end == End::NotYet
    }

    /// Withholds nothing more.
    pub(super) fn expose(&mut self) {
        self.hidden.clear();
        self.end = End::NotYet;
        self.is_exposed = true;
    }

    /// Another answer begins behind this one.
    pub(super) fn go_on(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.go_on();
        *self = Self { places, is_continued: true, ..Self::default() };
    }
}
