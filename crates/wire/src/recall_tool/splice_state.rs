//! State of an answer while it passes, and the fate of each of its events.

use std::{collections::BTreeSet, fmt};

use super::client_indices::ClientIndices;
use crate::json::{self, Json};

/// Reader for the events of a format, which decides the fate of each.
pub(crate) trait AnswerSplice: fmt::Debug + Send + Sync {
    /// Handles an event.
    fn handle_event(&mut self, event: &Json<'_>, tally: &mut SpliceState) -> EventHandling;

    /// Returns true if `[DONE]` ends the stream; servers of other formats send it by mistake.
    fn ends_with_done(&self) -> bool {
        false
    }

    /// Keeps the client's part of an answer that is to be continued.
    fn remember(&mut self, _answer: &str) {}

    /// Prepares for the next answer.
    fn go_on(&mut self) {}

    /// Writes the event by which an answer fails.
    fn fail(&mut self, message: &str) -> Vec<u8>;
}

/// State of the answer that passes.
#[derive(Debug, Default)]
pub(crate) struct SpliceState {
    pub(crate) places: ClientIndices,
    /// The provider's indices of withheld calls.
    hidden: BTreeSet<u64>,
    /// True if the client has calls to answer.
    pub(crate) has_others: bool,
    pub(crate) end: AnswerEnd,
    /// True if other answers stand before it.
    pub(crate) is_continued: bool,
    /// True if calls are no longer withheld.
    is_exposed: bool,
}

/// End of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    #[default]
    NotYet,
    /// It waits for the results of withheld calls: the client has not been told.
    Withheld,
    /// It waits for tools, or is finished.
    Well,
    /// It ended in any other way.
    Otherwise,
}

/// Reason an answer gives for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The model finished, calls included.
    Done,
    /// Any other reason.
    Other,
}

/// Fate of an event.
#[derive(Debug)]
pub(crate) struct EventHandling {
    pub(crate) shown: VisiblePart,
    /// Part of it that is withheld.
    pub(crate) held: Option<String>,
}

/// Part of an event that the client sees.
#[derive(Debug)]
pub(crate) enum VisiblePart {
    AsItIs,
    As(String),
    Not,
}

impl EventHandling {
    pub(crate) fn passed() -> Self {
        Self { shown: VisiblePart::AsItIs, held: None }
    }

    pub(crate) fn dropped() -> Self {
        Self { shown: VisiblePart::Not, held: None }
    }

    pub(crate) fn held(payload: &str) -> Self {
        Self { shown: VisiblePart::Not, held: Some(payload.to_owned()) }
    }

    /// Passed, with some values replaced.
    pub(crate) fn edited(event: &Json<'_>, edits: &[(&Json<'_>, String)]) -> Self {
        if edits.is_empty() {
            return Self::passed();
        }
        let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
        Self { shown: VisiblePart::As(json::replace_members(event, &edits)), held: None }
    }
}

impl SpliceState {
    /// Returns true if calls of the tool are to be withheld.
    pub(crate) fn withholds_calls(&self) -> bool {
        !self.is_exposed
    }

    pub(crate) fn hide(&mut self, place: u64) {
        self.hidden.insert(place);
        self.places.start_renumbering();
    }

    pub(crate) fn hides(&self, place: u64) -> bool {
        self.hidden.contains(&place)
    }

    /// Returns true if any call is withheld.
    pub(crate) fn hides_any(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Notes that the answer ends. Returns true if the end is withheld.
    pub(crate) fn end_answer(&mut self, reason: EndReason) -> bool {
        self.end = match reason {
            EndReason::Done if self.hides_any() && !self.has_others => AnswerEnd::Withheld,
            EndReason::Done => AnswerEnd::Well,
            EndReason::Other => AnswerEnd::Otherwise,
        };
        self.is_withheld()
    }

    /// Returns true if the answer has ended and the client has not been told.
    pub(crate) fn is_withheld(&self) -> bool {
        self.end == AnswerEnd::Withheld
    }

    /// Returns true if the answer has not given its end yet.
    pub(crate) fn is_open(&self) -> bool {
        self.end == AnswerEnd::NotYet
    }

    /// Stops withholding.
    pub(crate) fn stop_withholding(&mut self) {
        self.hidden.clear();
        self.end = AnswerEnd::NotYet;
        self.is_exposed = true;
    }

    /// Prepares for another answer after this one.
    pub(crate) fn go_on(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.go_on();
        *self = Self { places, is_continued: true, ..Self::default() };
    }
}
