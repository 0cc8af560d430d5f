//! Positions of calls and amounts in a picture.

use epitome::core::event::Timestamp;

use super::{
    super::series::{self, PolicySeries, length},
    LEFT, RIGHT,
    canvas::to_f64,
};

/// Horizontal scale: calls from left to right, one band for each call or for several.
pub(super) struct CallScale {
    /// Number of calls.
    pub(super) calls: usize,
    /// Number of columns that they are drawn in.
    pub(super) columns: usize,
    ticks: Vec<AxisTick>,
}

/// A call whose number is written on the axis.
pub(super) struct AxisTick {
    pub(super) x: f64,
    pub(super) call: u64,
    pub(super) at: Option<Timestamp>,
}

impl CallScale {
    /// Scale for the calls of the longest of `series`, which must not be empty.
    pub(super) fn new(series: &[PolicySeries<'_>], most: usize) -> Self {
        let calls = length(series);
        let mut across = Self { calls, columns: calls.min(most), ticks: Vec::new() };
        let longest = series.iter().max_by_key(|series| series.calls.len());
        let last = calls.saturating_sub(1);
        let mut places: Vec<_> = (0..last).step_by(series::step(calls / 8)).collect();
        // The last call is labelled too; a label too close to it would overlap.
        while places.len() > 1
            && places.last().is_some_and(|place| across.call(last) - across.call(*place) < 70.0)
        {
            places.pop();
        }
        places.push(last);
        for place in places {
            if let Some(call) = longest.and_then(|series| series.calls.get(place)) {
                across.ticks.push(AxisTick { x: across.call(place), call: call.call, at: call.at });
            }
        }
        across
    }

    /// Left edge of a call's band.
    pub(super) fn call(&self, index: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * to_f64(index as u64) / to_f64(self.calls.max(1) as u64)
    }

    /// Left edge of a column's band.
    pub(super) fn column(&self, index: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * to_f64(index as u64) / to_f64(self.columns.max(1) as u64)
    }

    /// Index of the cell in which a column begins, for cells of this width.
    pub(super) fn cell(&self, index: usize, width: f64) -> usize {
        let place = (self.column(index) - LEFT) / width;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the chart")]
        return place as usize;
    }

    /// Calls whose numbers are written on the axis.
    pub(super) fn ticks(&self) -> &[AxisTick] {
        &self.ticks
    }
}

/// Vertical scale: amounts from the bottom up.
#[derive(Clone, Copy, Debug)]
pub(super) struct AmountScale {
    /// Position of 0.
    pub(super) zero: f64,
    /// Height of the chart.
    pub(super) height: f64,
    /// Amount at its upper edge.
    pub(super) most: f64,
}

impl AmountScale {
    /// Height of an amount, limited to the chart.
    pub(super) fn tall(&self, amount: f64) -> f64 {
        if self.most > 0.0 { (amount / self.most * self.height).clamp(0.0, self.height) } else { 0.0 }
    }

    /// Position of an amount's upper end.
    pub(super) fn y(&self, amount: f64) -> f64 {
        self.zero - self.tall(amount)
    }

    /// About `count` round amounts for grid lines, 0 among them, and their distance.
    pub(super) fn ticks(&self, count: u64) -> (Vec<f64>, f64) {
        if self.most <= 0.0 {
            return (vec![0.0], 1.0);
        }
        let step = step(self.most / to_f64(count));
        let all = (0..=count * 3).map(|index| step * to_f64(index));
        (all.take_while(|amount| *amount <= self.most * 1.000_001).collect(), step)
    }
}

/// The smallest of 1, 2, 5, 10, 20, … that is no less than `least`.
fn step(least: f64) -> f64 {
    if least.is_nan() || least <= 0.0 || least.is_infinite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= least * 0.999_999);
    digits.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::{super::canvas::number, *};

    #[test]
    fn steps_are_round() {
        let check = |least: f64, expect: f64| {
            assert!((step(least) - expect).abs() < expect * 1e-9, "{least}: {}", step(least));
        };
        check(1.0, 1.0);
        check(1.1, 2.0);
        check(24.0, 50.0);
        check(51_000.0, 100_000.0);
        check(0.03, 0.05);
        check(0.0, 1.0);
        check(f64::NAN, 1.0);
        check(f64::INFINITY, 1.0);
    }

    #[test]
    fn nothing_stands_outside_its_chart() {
        let up = AmountScale { zero: 100.0, height: 80.0, most: 10.0 };
        assert_eq!(
            [0.0, 5.0, 10.0, 99.0, -1.0].map(|amount| number(up.y(amount))),
            ["100", "60", "20", "20", "100"]
        );
        assert_eq!(number(AmountScale { most: 0.0, ..up }.y(7.0)), "100");
    }
}
