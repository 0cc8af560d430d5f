//! The hash of a request that grows: it continues from the hash of the request before, so that a call costs only its
//! new part.

use epitome_core::{Digest, DigestHasher};
use epitome_wire::{
    history_rewrite::{RewritePiece, RewritePlan},
    incoming::RequestFrame,
};

use super::rewrite_record::RewriteRecord;

/// Number of messages at the end that clients send changed with every call, since cache marks move with them.
const CHANGING_TAIL_MESSAGES: usize = 6;

/// Hash of a request up to one of its messages.
#[derive(Clone, Debug)]
pub(super) struct IncrementalHash {
    hashing: DigestHasher,
    /// Number of units of the client's history up to there.
    units: usize,
    /// True if it contains any unit.
    says: bool,
}

impl IncrementalHash {
    /// Returns true if a request with this script and the same plan begins like that.
    pub(super) fn is_prefix_of(&self, script: &RewriteRecord) -> bool {
        let first = script.forms.keys().next();
        script.units >= self.units
            && script.before.is_none()
            && script.between.is_none()
            && first.is_none_or(|first| *first >= self.units)
    }

    /// Hashes the head of the request and the parts of its plan.
    fn planned(before: &[&str], plan: &RewritePlan, frame: &RequestFrame<'_>, body: &str) -> Self {
        let mut grown = Self { hashing: DigestHasher::default(), units: plan.onward, says: false };
        for piece in before {
            grown.hashing.update(piece.as_bytes());
        }
        for piece in &plan.pieces {
            match piece {
                RewritePiece::Units { from, to } => grown.say(*from, *to, frame, body),
                RewritePiece::Own(text) => grown.say_text(text, frame),
            }
        }
        grown
    }

    /// Hashes the units up to `to` as well.
    fn grow(&mut self, to: usize, frame: &RequestFrame<'_>, body: &str) {
        self.say(self.units, to, frame, body);
        self.units = self.units.max(to);
    }

    fn say(&mut self, from: usize, to: usize, frame: &RequestFrame<'_>, body: &str) {
        let Some(units) = frame.units.get(from..to) else { return };
        match units {
            [first, .., last] if frame.is_even => self.say_text(&body[first.start..last.end], frame),
            units => units.iter().for_each(|unit| self.say_text(&body[unit.clone()], frame)),
        }
    }

    fn say_text(&mut self, text: &str, frame: &RequestFrame<'_>) {
        if self.says {
            self.hashing.update(frame.between.as_bytes());
        }
        self.hashing.update(text.as_bytes());
        self.says = true;
    }
}

/// The hash of a request whose history stands between two texts, and the state from which the next one may continue.
/// `from` is the state left by the one before, if this one begins like that.
pub(super) fn hash_body(
    from: Option<IncrementalHash>,
    plan: &RewritePlan,
    frame: &RequestFrame<'_>,
    body: &str,
    (before, after): (&[&str], &[&str]),
) -> (Digest, IncrementalHash) {
    let count = frame.units.len();
    let mut settled = from.unwrap_or_else(|| IncrementalHash::planned(before, plan, frame, body));
    settled.grow(count.saturating_sub(CHANGING_TAIL_MESSAGES), frame, body);
    let mut whole = settled.clone();
    whole.grow(count, frame, body);
    for piece in after {
        whole.hashing.update(piece.as_bytes());
    }
    (whole.hashing.digest(), settled)
}
