//! Chart of the costs so far of all policies, each line named at its end.

use super::{
    super::series::{ChartColumn, PolicySeries, full_history, ratio},
    BESIDE, LEFT, RIGHT, axis,
    canvas::{SvgCanvas, SvgPath, WIDTH, to_f64},
    pauses::PausePositions,
    scale::{AmountScale, CallScale},
};
use crate::text_format;

/// Smallest distance between the names of two lines.
const APART: f64 = 16.0;

/// Draws the chart; returns its lower edge.
pub(super) fn chart(
    canvas: &mut SvgCanvas,
    across: &CallScale,
    series: &[PolicySeries<'_>],
    pauses: &PausePositions,
    y: f64,
) -> f64 {
    let unit = CostUnit::of(series);
    canvas.text(LEFT, y + 14.0, "heading", unit.heading());
    let y = pauses.lengths(canvas, y + 22.0);
    let lines: Vec<_> =
        series.iter().map(|series| unit.line(&series.columns(across.calls, across.columns))).collect();
    let most = lines.iter().filter_map(|line| line.last().copied()).fold(0.0, f64::max);
    let height = (to_f64(series.len() as u64) * APART).max(230.0);
    let up = AmountScale { zero: y + height, height, most: most * 1.03 };
    canvas.rect("plot", LEFT, up.zero - height, RIGHT - LEFT, height);
    let (ticks, step) = up.ticks(5);
    for amount in ticks {
        canvas.line("grid", LEFT, up.y(amount), RIGHT, up.y(amount));
        canvas.text(LEFT - 8.0, up.y(amount) + 4.0, "axis end", &unit.label(amount, step));
    }
    canvas.line("zero", LEFT, up.zero, RIGHT, up.zero);
    pauses.bands(canvas, up.zero - height, up.zero);
    // The first line matters most, so it is drawn last, on top.
    for (index, (series, line)) in series.iter().zip(&lines).enumerate().rev() {
        draw(canvas, across, &up, &stroke(series, index), line);
    }
    name(canvas, across, &up, series, &lines, unit);
    axis(canvas, across, up.zero)
}

/// Style of a policy's line, here and beside its row.
pub(super) fn stroke(series: &PolicySeries<'_>, index: usize) -> String {
    let dash = ["", " dash", " dots"][(index / 8) % 3];
    if series.is_full_history() { "full dash".to_owned() } else { format!("s{}{dash}", index % 8) }
}

/// Quantity that is added up: money, or tokens if no price is known.
#[derive(Clone, Copy)]
enum CostUnit {
    Dollars,
    Tokens,
}

impl CostUnit {
    fn of(series: &[PolicySeries<'_>]) -> Self {
        let priced = series.iter().any(|series| series.totals().money.is_some());
        if priced { Self::Dollars } else { Self::Tokens }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Dollars => "What it has cost so far, in dollars",
            Self::Tokens => "What has been sent so far, in tokens (the model's prices are not known)",
        }
    }

    /// Running total after each column.
    fn line(self, columns: &[ChartColumn]) -> Vec<f64> {
        let amounts = columns.iter().map(|column| match self {
            Self::Dollars => column.money.unwrap_or_default().dollars(),
            Self::Tokens => to_f64(column.sent.0),
        });
        let sums = amounts.scan(0.0, |sum, amount| {
            *sum += amount;
            Some(*sum)
        });
        sums.collect()
    }

    fn label(self, amount: f64, step: f64) -> String {
        match self {
            Self::Dollars if step >= 1.0 => format!("${amount:.0}"),
            Self::Dollars if step >= 0.01 => format!("${amount:.2}"),
            Self::Dollars => format!("${amount:.5}"),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of tokens")]
            Self::Tokens => text_format::short(amount as u64),
        }
    }
}

fn draw(canvas: &mut SvgCanvas, across: &CallScale, up: &AmountScale, stroke: &str, line: &[f64]) {
    let mut path = SvgPath::from(across.column(0), up.zero);
    for (index, amount) in line.iter().enumerate() {
        path.to(across.column(index + 1), up.y(*amount));
    }
    canvas.path(&format!("line {stroke}"), &path);
}

/// Draws the names at the ends of the lines, moved apart where they would overlap.
fn name(
    canvas: &mut SvgCanvas,
    across: &CallScale,
    up: &AmountScale,
    series: &[PolicySeries<'_>],
    lines: &[Vec<f64>],
    unit: CostUnit,
) {
    let full = full_history(series);
    let mut ends: Vec<_> = (0..series.len())
        .filter_map(|index| lines[index].last().map(|amount| (up.y(*amount), index)))
        .collect();
    ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let places =
        apart(&ends.iter().map(|end| end.0).collect::<Vec<_>>(), up.zero - up.height + 6.0, up.zero - 4.0);
    for ((end, index), place) in ends.into_iter().zip(places) {
        let series = &series[index];
        let x = across.column(lines[index].len());
        let mut lead = SvgPath::from(x, end);
        lead.to((x + 6.0).max(RIGHT + 2.0), end).to(BESIDE - 3.0, place);
        canvas.path(&format!("lead {}", stroke(series, index)), &lead);
        canvas.text(BESIDE, place + 4.0, "strong", &text_format::one_line(series.policy, 18));
        let totals = series.totals();
        let amount = match unit {
            CostUnit::Dollars => {
                totals.money.map_or_else(|| "no price".to_owned(), |money| money.to_string())
            }
            CostUnit::Tokens => text_format::tokens(totals.sent),
        };
        canvas.text(WIDTH - 68.0, place + 4.0, "end", &amount);
        if let (Some(money), Some(full)) = (totals.money, full) {
            canvas.text(WIDTH - 16.0, place + 4.0, "end", &ratio(money, full));
        }
    }
    let top = up.zero - up.height - 10.0;
    canvas.text(WIDTH - 68.0, top, "axis end", "in all");
    if full.is_some() {
        canvas.text(WIDTH - 16.0, top, "axis end", "vs none");
    }
}

/// Moves ascending positions as little as possible until they are [`APART`], from `top` to `bottom`.
fn apart(places: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut moved = places.to_vec();
    let mut least = top;
    for place in &mut moved {
        *place = place.max(least);
        least = *place + APART;
    }
    let mut most = bottom;
    for place in moved.iter_mut().rev() {
        *place = place.min(most);
        most = *place - APART;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_cover_each_other_and_stay_beside_the_chart() {
        let check = |places: &[f64]| {
            let moved = apart(places, 0.0, 230.0);
            assert!(moved.windows(2).all(|pair| pair[1] - pair[0] >= APART - 1e-9), "{moved:?}");
            assert!(moved.iter().all(|place| (0.0..=230.0).contains(place)), "{moved:?}");
        };
        check(&[]);
        check(&[100.0, 200.0]);
        check(&[230.0; 13]);
        check(&[0.0; 13]);
        check(&[10.0, 100.0, 101.0, 102.0, 229.0, 230.0]);
    }
}
