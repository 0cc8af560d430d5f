//! Sessions that are left uncompacted, so that savings can be measured and not only estimated.
//!
//! Chance assigns each session once, independent of anything that a client sends or a session holds: groups
//! can be compared only if they differ in one thing.

use epitome_core::{Digest, SessionId};

/// Unit of shares: one part of so many.
const MILLION: u64 = 1_000_000;

/// Salt that keeps this assignment independent of every other use of a session's id.
const HOLDOUT_SALT: &[u8] = b"epitome holdout v1";

/// Group of a session in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldoutGroup {
    /// The session is compacted.
    Treated,
    /// The session is left as it is.
    HeldOut,
}

impl HoldoutGroup {
    /// Group of a session if `share` of a million sessions are held out. The same session is always in the
    /// same group, and stays held out when the share grows.
    ///
    /// ```
    /// use epitome::{core::SessionId, holdout::HoldoutGroup};
    ///
    /// let session = SessionId::derived(&["anna", "one"]);
    /// assert_eq!(HoldoutGroup::of(session, 0), HoldoutGroup::Treated);
    /// assert_eq!(HoldoutGroup::of(session, 1_000_000), HoldoutGroup::HeldOut);
    /// ```
    pub fn of(session: SessionId, share: u32) -> Self {
        let lot = Digest::of(&[HOLDOUT_SALT, session.uuid().as_bytes()].concat());
        let lot = lot.0.iter().take(8).fold(0_u64, |lot, byte| lot << 8 | u64::from(*byte));
        if lot % MILLION < u64::from(share) { Self::HeldOut } else { Self::Treated }
    }

    /// Name of the group.
    pub fn name(self) -> &'static str {
        match self {
            Self::Treated => "treated",
            Self::HeldOut => "held_out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_out(share: u32) -> Vec<usize> {
        let session = |number: usize| SessionId::derived(&[&number.to_string()]);
        (0..20_000)
            .filter(|number| HoldoutGroup::of(session(*number), share) == HoldoutGroup::HeldOut)
            .collect()
    }

    #[test]
    fn about_the_share_is_held_out() {
        assert_eq!(held_out(0), [0_usize; 0]);
        // Five standard deviations of a binomial are 212.
        let tenth = held_out(100_000).len();
        assert!(tenth.abs_diff(2_000) < 212, "{tenth}");
    }

    #[test]
    fn who_is_held_out_stays_so_when_the_share_grows() {
        let (few, more) = (held_out(50_000), held_out(100_000));
        assert!(few.len() < more.len() && few.iter().all(|session| more.contains(session)));
    }
}
