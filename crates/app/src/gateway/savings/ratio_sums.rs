//! A quotient of sums over sessions, with its variance.
//!
//! Sums are whole numbers, so that an added value can be removed again exactly, for as long as a gateway
//! runs.

/// Sums over pairs of numbers, one pair a session, as the quotient and its variance need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RatioSums {
    /// Number of sessions.
    pub(super) sessions: u64,
    above: u128,
    /// Sum of the divisors.
    pub(super) below: u128,
    above_squared: u128,
    product: u128,
    below_squared: u128,
}

/// A quotient of sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RatioEstimate {
    /// The quotient.
    pub(super) value: f64,
    /// Its variance, by the delta method.
    pub(super) variance: f64,
    /// Number of sessions behind it.
    pub(super) sessions: u64,
    /// Number of equally large sessions that would carry the same information (Kish's effective number).
    pub(super) weight: f64,
}

impl RatioSums {
    /// Adds a session.
    pub(super) fn add(&mut self, above: u64, below: u64) {
        let (above, below) = (u128::from(above), u128::from(below));
        self.sessions += 1;
        self.above += above;
        self.below += below;
        self.above_squared += above * above;
        self.product += above * below;
        self.below_squared += below * below;
    }

    /// Removes a session that was added before.
    pub(super) fn remove(&mut self, above: u64, below: u64) {
        let (above, below) = (u128::from(above), u128::from(below));
        self.sessions -= 1;
        self.above -= above;
        self.below -= below;
        self.above_squared -= above * above;
        self.product -= above * below;
        self.below_squared -= below * below;
    }

    /// The quotient; `None` if the divisor is zero.
    pub(super) fn ratio(&self) -> Option<RatioEstimate> {
        if self.below == 0 {
            return None;
        }
        let value = wide(self.above) / wide(self.below);
        let residual = wide(self.above_squared) - 2.0 * value * wide(self.product)
            + value.powi(2) * wide(self.below_squared);
        let sessions = float(self.sessions);
        // One session says nothing about the variance.
        let variance = match self.sessions {
            0 | 1 => f64::INFINITY,
            _ => sessions / (sessions - 1.0) * residual.max(0.0) / wide(self.below).powi(2),
        };
        let weight = wide(self.below).powi(2) / wide(self.below_squared);
        Some(RatioEstimate { value, variance, sessions: self.sessions, weight })
    }
}

/// Half-width of a 95 % interval in standard errors, for so many degrees of freedom: Cornish and Fisher's
/// series, accurate to three digits from 10 on.
pub(super) fn student(freedom: f64) -> f64 {
    /// The same for a normal distribution, which the series corrects.
    const NORMAL: f64 = 1.959_964;
    let power = |exponent: i32| NORMAL.powi(exponent);
    NORMAL
        + (power(3) + NORMAL) / (4.0 * freedom)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * NORMAL) / (96.0 * freedom.powi(2))
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * NORMAL) / (384.0 * freedom.powi(3))
}

/// Converts a sum to a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "an interval needs no more digits")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "an interval needs no more digits")]
fn wide(number: u128) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_reaches_as_far_as_tables_say() {
        for (freedom, expect) in [(10.0, 2.228), (19.0, 2.093), (60.0, 2.000), (1e6, 1.960)] {
            assert!((student(freedom) - expect).abs() < 1e-3, "{freedom}");
        }
    }

    #[test]
    fn what_was_put_in_can_be_taken_out() {
        let mut sums = RatioSums::default();
        sums.add(3, 4);
        let before = sums;
        sums.add(u64::MAX, 1);
        sums.remove(u64::MAX, 1);
        assert_eq!(sums, before);
        assert_eq!(RatioSums::default().ratio(), None);
    }

    #[test]
    fn sessions_of_equal_size_count_in_full() {
        let mut sums = RatioSums::default();
        for above in [1, 2, 3, 4] {
            sums.add(above, 10);
        }
        let RatioEstimate { value, variance, sessions, weight } = sums.ratio().expect("a quotient");
        assert_eq!((value, sessions, weight), (0.25, 4, 4.0));
        // The variance of a mean: of 0.1 to 0.4 it is (5/300) / 4.
        assert!((variance - 5.0 / 1_200.0).abs() < 1e-12, "{variance}");
    }
}
