//! Pauses of a session: how long the cache had been unused when it was found cold.
//!
//! They are the same for all policies. Their lengths are written once above a chart, as far as there is room.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{
    super::series::HumanDuration,
    LEFT, RIGHT,
    canvas::{SvgCanvas, text_width, to_f64},
    policy_row::PolicyRow,
};

/// Positions of the pauses, with the longest pause at each.
pub(super) struct PausePositions(Vec<(f64, Option<Duration>)>);

impl PausePositions {
    /// Collects the pauses of all policies.
    pub(super) fn new(rows: &[PolicyRow<'_>]) -> Self {
        let mut places: BTreeMap<usize, (f64, Option<Duration>)> = BTreeMap::new();
        for mark in rows.iter().flat_map(PolicyRow::marks).filter(|mark| mark.marks.pauses > 0) {
            let place = places.entry(mark.cell).or_insert((mark.x, None));
            place.1 = place.1.max(mark.marks.longest);
        }
        Self(places.into_values().collect())
    }

    /// Writes their lengths, the longest first; returns their lower edge.
    pub(super) fn lengths(&self, canvas: &mut SvgCanvas, y: f64) -> f64 {
        let mut lengths: Vec<_> =
            self.0.iter().filter_map(|(x, pause)| pause.map(|pause| (pause, *x))).collect();
        lengths.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.total_cmp(&other.1)));
        if lengths.is_empty() {
            return y;
        }
        canvas.text(LEFT - 8.0, y + 14.0, "axis end", "pauses");
        let mut taken: Vec<Range<f64>> = Vec::new();
        for (pause, x) in lengths {
            let words = HumanDuration(pause).to_string();
            let half = text_width(&words, 11.0) / 2.0 + 5.0;
            // Words at an edge move inwards; the mark beneath them stays.
            let middle = x.max(LEFT - 6.0 + half).min(RIGHT + 30.0 - half);
            let place = middle - half..middle + half;
            if taken.iter().all(|other| place.end <= other.start || other.end <= place.start) {
                canvas.text(middle, y + 14.0, "axis middle", &words);
                canvas.line("tick", x, y + 18.0, x, y + 22.0);
                taken.push(place);
            }
        }
        y + 22.0
    }

    /// Draws their bands behind a chart.
    pub(super) fn bands(&self, canvas: &mut SvgCanvas, top: f64, bottom: f64) {
        for (x, _) in &self.0 {
            canvas.rect("pause", x - self.wide() / 2.0, top, self.wide(), bottom - top);
        }
    }

    /// Width of a band: many bands together leave most of a chart free.
    pub(super) fn wide(&self) -> f64 {
        (0.15 * (RIGHT - LEFT) / to_f64(self.0.len() as u64).max(1.0)).clamp(0.5, 4.0)
    }
}
