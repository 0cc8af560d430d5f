//! The hash of a request that grows: it goes on from that of the request before, so that a call costs what is new.

use epitome_core::{Digest, Hashing};
use epitome_wire::{
    seen::Frame,
    weave::{Piece, Plan},
};

use super::script::Script;

/// How many messages at its end clients send otherwise with every call: marks move with them.
const MOVING: usize = 6;

/// What was sent up to one of its messages, hashed.
#[derive(Clone, Debug)]
pub(super) struct Grown {
    hashing: Hashing,
    /// How many units of the client's history that is.
    units: usize,
    /// Whether it holds anything of a history.
    says: bool,
}

impl Grown {
    /// Whether a request with this script, by the same plan, begins like that.
    pub(super) fn begins(&self, script: &Script) -> bool {
        let first = script.forms.keys().next();
        script.units >= self.units
            && script.before.is_none()
            && script.between.is_none()
            && first.is_none_or(|first| *first >= self.units)
    }

    /// What stands before the history, and what was decided for it.
    fn planned(before: &[&str], plan: &Plan, frame: &Frame<'_>, body: &str) -> Self {
        let mut grown = Self { hashing: Hashing::default(), units: plan.onward, says: false };
        for piece in before {
            grown.hashing.update(piece.as_bytes());
        }
        for piece in &plan.pieces {
            match piece {
                Piece::Units { from, to } => grown.say(*from, *to, frame, body),
                Piece::Own(text) => grown.say_text(text, frame),
            }
        }
        grown
    }

    /// The same with units up to `to`.
    fn grow(&mut self, to: usize, frame: &Frame<'_>, body: &str) {
        self.say(self.units, to, frame, body);
        self.units = self.units.max(to);
    }

    fn say(&mut self, from: usize, to: usize, frame: &Frame<'_>, body: &str) {
        let Some(units) = frame.units.get(from..to) else { return };
        match units {
            [first, .., last] if frame.is_even => self.say_text(&body[first.start..last.end], frame),
            units => units.iter().for_each(|unit| self.say_text(&body[unit.clone()], frame)),
        }
    }

    fn say_text(&mut self, text: &str, frame: &Frame<'_>) {
        if self.says {
            self.hashing.update(frame.between.as_bytes());
        }
        self.hashing.update(text.as_bytes());
        self.says = true;
    }
}

/// The hash of a request whose history stands between two texts, and what the next one may go on from. `from` is what the
/// one before left, if this one begins like that.
pub(super) fn hashed(
    from: Option<Grown>,
    plan: &Plan,
    frame: &Frame<'_>,
    body: &str,
    (before, after): (&[&str], &[&str]),
) -> (Digest, Grown) {
    let count = frame.units.len();
    let mut settled = from.unwrap_or_else(|| Grown::planned(before, plan, frame, body));
    settled.grow(count.saturating_sub(MOVING), frame, body);
    let mut whole = settled.clone();
    whole.grow(count, frame, body);
    for piece in after {
        whole.hashing.update(piece.as_bytes());
    }
    (whole.hashing.digest(), settled)
}
