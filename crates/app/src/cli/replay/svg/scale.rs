//! Where calls and amounts stand in a picture.

use epitome::core::event::Time;

use super::{
    super::series::{self, Series, length},
    LEFT, RIGHT,
    canvas::real,
};

/// Calls from left to right, a band each, or a band for some.
pub(super) struct Across {
    /// How many calls there are.
    pub(super) calls: usize,
    /// In how many columns they are drawn.
    pub(super) columns: usize,
    ticks: Vec<Tick>,
}

/// A call whose number is written.
pub(super) struct Tick {
    pub(super) x: f64,
    pub(super) call: u64,
    pub(super) at: Option<Time>,
}

impl Across {
    /// The calls of the longest of `series`, of which there is one at least.
    pub(super) fn new(series: &[Series<'_>], most: usize) -> Self {
        let calls = length(series);
        let mut across = Self { calls, columns: calls.min(most), ticks: Vec::new() };
        let longest = series.iter().max_by_key(|series| series.calls.len());
        let last = calls.saturating_sub(1);
        let mut places: Vec<_> = (0..last).step_by(series::step(calls / 8)).collect();
        // The last call is named too; one that is close to it has no room for its words.
        while places.len() > 1
            && places.last().is_some_and(|place| across.call(last) - across.call(*place) < 70.0)
        {
            places.pop();
        }
        places.push(last);
        for place in places {
            if let Some(call) = longest.and_then(|series| series.calls.get(place)) {
                across.ticks.push(Tick { x: across.call(place), call: call.call, at: call.at });
            }
        }
        across
    }

    /// Where the band of a call begins.
    pub(super) fn call(&self, index: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * real(index as u64) / real(self.calls.max(1) as u64)
    }

    /// Where the band of a column begins.
    pub(super) fn column(&self, index: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * real(index as u64) / real(self.columns.max(1) as u64)
    }

    /// Which of the cells of a width a column begins in.
    pub(super) fn cell(&self, index: usize, width: f64) -> usize {
        let place = (self.column(index) - LEFT) / width;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the chart")]
        return place as usize;
    }

    /// The calls whose numbers are written.
    pub(super) fn ticks(&self) -> &[Tick] {
        &self.ticks
    }
}

/// Amounts from the bottom up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Up {
    /// Where 0 is.
    pub(super) zero: f64,
    /// How high a chart is.
    pub(super) height: f64,
    /// What its upper edge stands for.
    pub(super) most: f64,
}

impl Up {
    /// How high an amount is, and never higher than the chart.
    pub(super) fn tall(&self, amount: f64) -> f64 {
        if self.most > 0.0 { (amount / self.most * self.height).clamp(0.0, self.height) } else { 0.0 }
    }

    /// Where it ends.
    pub(super) fn y(&self, amount: f64) -> f64 {
        self.zero - self.tall(amount)
    }

    /// Amounts worth a line, 0 among them: about `count`, and how far they are apart.
    pub(super) fn ticks(&self, count: u64) -> (Vec<f64>, f64) {
        if self.most <= 0.0 {
            return (vec![0.0], 1.0);
        }
        let step = step(self.most / real(count));
        let all = (0..=count * 3).map(|index| step * real(index));
        (all.take_while(|amount| *amount <= self.most * 1.000_001).collect(), step)
    }
}

/// The next of 1, 2, 5, 10, 20, … that is no less.
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
        let up = Up { zero: 100.0, height: 80.0, most: 10.0 };
        assert_eq!(
            [0.0, 5.0, 10.0, 99.0, -1.0].map(|amount| number(up.y(amount))),
            ["100", "60", "20", "20", "100"]
        );
        assert_eq!(number(Up { most: 0.0, ..up }.y(7.0)), "100");
    }
}
