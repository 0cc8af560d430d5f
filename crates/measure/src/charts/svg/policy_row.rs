//! A policy's row: tokens sent with each call above the zero line and tokens evicted below it, both on one
//! scale.
//!
//! Between them is a lane for events: a reset is seen where the area above it falls and the bar below it
//! hangs.

use std::ops::Range;

use epitome::core::{Tokens, profile::Money};

use super::{
    super::series::{
        ChartColumn, ChartMarks, HumanDuration, PictureTitle, PolicySeries, ceiling, full_history, ratio,
    },
    AmountScale, BESIDE, LEFT, LegendCursor, REGIONS, RIGHT, axis,
    canvas::{SvgCanvas, SvgPath, to_f64},
    cost_chart::stroke,
    pauses::PausePositions,
    scale::CallScale,
};
use crate::text_format;

/// Height of the policy's name above its chart.
const HEAD: f64 = 22.0;
/// Height of the lane for events.
const LANE: f64 = 10.0;
/// Distance between two rows.
const GAP: f64 = 18.0;
/// Ratio of a chart's height to its highest value.
const HEADROOM: f64 = 1.06;
/// Smallest distance between two marks; closer ones become one mark.
const NEAR: f64 = 3.0;

/// Draws all rows; returns their lower edge.
pub(super) fn all(
    canvas: &mut SvgCanvas,
    across: &CallScale,
    rows: &[PolicyRow<'_>],
    pauses: &PausePositions,
    y: f64,
) -> f64 {
    let series: Vec<_> = rows.iter().map(|row| row.series).collect();
    let height = match rows.len() {
        0..=4 => 124.0,
        5..=8 => 100.0,
        _ => 84.0,
    };
    let most = rows.first().map_or(0.0, |row| to_f64(ceiling(row.title, &series).0));
    let full = full_history(&series);
    let mut y = pauses.lengths(canvas, y);
    for (index, row) in rows.iter().enumerate() {
        canvas.line(&format!("line {}", stroke(&row.series, index)), LEFT, y + 11.0, LEFT + 22.0, y + 11.0);
        let name = text_format::one_line(row.series.policy, 60);
        let name = if row.series.is_full_history() { format!("{name} (full history)") } else { name };
        canvas.text(LEFT + 30.0, y + 15.0, "name", &name);
        let up = AmountScale { zero: y + HEAD + height, height, most: most * HEADROOM };
        row.totals(canvas, full, y + HEAD);
        y = row.draw(canvas, &up, pauses) + GAP;
    }
    axis(canvas, across, y - GAP + 3.0)
}

/// Draws the meaning of the marks that occur.
pub(super) fn legend(
    canvas: &mut SvgCanvas,
    title: &PictureTitle,
    series: &[PolicySeries<'_>],
    flow: &mut LegendCursor,
) {
    let mut all = ChartMarks::default();
    for series in series {
        all.join(&series.totals().marks);
    }
    let mut item = |there: bool, words: &str, draw: &dyn Fn(&mut SvgCanvas, f64, f64)| {
        if there {
            let (x, y) = flow.place(words);
            draw(canvas, x, y - 4.0);
            canvas.text(x + 17.0, y, "", words);
        }
    };
    let window = title.window.is_some_and(|window| window <= ceiling(title, series));
    item(window, "window", &|canvas, x, y| canvas.line("window", x - 1.0, y, x + 13.0, y));
    let over = title.window.is_some_and(|window| series.iter().any(|series| series.totals().peak > window));
    item(over, "too large", &|canvas, x, y| canvas.rect("over", x, y - 5.0, 11.0, 11.0));
    item(all.reset() > 0, "reset: changes what was sent before", &|canvas, x, y| {
        canvas.rect("reset", x + 5.0, y - 5.0, 2.0, LANE);
    });
    item(all.evicted.0 > 0, "tokens taken out", &|canvas, x, y| {
        canvas.rect("evicted", x + 4.0, y - 5.0, 4.0, 11.0);
    });
    item(all.pauses > 0, "pause, cache cold", &|canvas, x, y| {
        canvas.rect("pause", x + 4.0, y - 7.0, 4.0, 14.0);
    });
    item(all.asked > 0, "summary by a model", &|canvas, x, y| canvas.diamond("asked", x + 6.0, y + 0.5, 5.0));
    item(all.unasked > 0, "summary without a model", &|canvas, x, y| {
        canvas.diamond("unasked", x + 6.0, y, 4.5);
    });
    item(all.refused > 0, "could not be made to fit", &|canvas, x, y| {
        canvas.rect("refused", x + 3.0, y - 3.0, 6.0, 6.0);
    });
}

/// Events of neighbouring calls that are too close to be drawn apart.
pub(super) struct MarkGroup {
    /// Left edge of the first call.
    pub(super) x: f64,
    /// Index of its cell; a cell is just wide enough for a mark.
    pub(super) cell: usize,
    /// The calls.
    pub(super) calls: Range<usize>,
    /// The events.
    pub(super) marks: ChartMarks,
}

/// A policy, ready to be drawn.
pub(super) struct PolicyRow<'a> {
    across: &'a CallScale,
    title: &'a PictureTitle,
    series: PolicySeries<'a>,
    columns: Vec<ChartColumn>,
    marks: Vec<MarkGroup>,
}

/// Returns true if any event is drawn as a mark. A request that is too large is visible without one.
fn is_drawn(marks: &ChartMarks) -> bool {
    *marks != ChartMarks { overflowed: marks.overflowed, illegal: marks.illegal, ..ChartMarks::default() }
}

impl<'a> PolicyRow<'a> {
    pub(super) fn new(across: &'a CallScale, title: &'a PictureTitle, series: &PolicySeries<'a>) -> Self {
        let columns = series.columns(across.calls, across.columns);
        let mut marks: Vec<MarkGroup> = Vec::new();
        for (index, column) in columns.iter().enumerate().filter(|(_, column)| is_drawn(&column.marks)) {
            let (x, cell) = (across.column(index), across.cell(index, NEAR));
            match marks.last_mut() {
                Some(mark) if mark.cell == cell => {
                    mark.calls.end = column.range.end;
                    mark.marks.join(&column.marks);
                }
                _ => marks.push(MarkGroup {
                    x,
                    cell,
                    calls: column.range.clone(),
                    marks: column.marks.clone(),
                }),
            }
        }
        Self { across, title, series: *series, columns, marks }
    }

    /// Marks from left to right.
    pub(super) fn marks(&self) -> &[MarkGroup] {
        &self.marks
    }

    fn draw(&self, canvas: &mut SvgCanvas, up: &AmountScale, pauses: &PausePositions) -> f64 {
        let top = up.zero - up.height;
        let below = up.zero + LANE;
        let deepest = self.marks.iter().map(|mark| mark.marks.evicted).max().unwrap_or_default();
        let deep = if deepest.0 > 0 { up.tall(to_f64(deepest.0)).max(8.0) + 6.0 } else { 0.0 };
        canvas.rect("plot", LEFT, top, RIGHT - LEFT, up.height + LANE + deep);
        self.grid(canvas, up, below + deep);
        self.areas(canvas, up);
        self.window(canvas, up);
        canvas.line("zero", LEFT, up.zero, RIGHT, up.zero);
        if deep > 0.0 {
            canvas.text(LEFT - 8.0, below + 10.0, "axis end", "taken out");
        }
        // Bands are drawn next: they lie over the areas and under everything else.
        for mark in self.marks.iter().filter(|mark| mark.marks.pauses > 0) {
            let wide = pauses.wide();
            canvas.rect("pause", mark.x - wide / 2.0, top, wide, up.height + LANE + deep);
        }
        let summaries = self.marks.iter().filter(|mark| mark.marks.summaries() > 0).count();
        let diamond = (0.4 * (RIGHT - LEFT) / to_f64(summaries as u64).max(1.0)).clamp(2.0, 5.0);
        for mark in &self.marks {
            self.mark(canvas, up, mark, diamond, below + deep);
        }
        self.beyond(canvas, up);
        below + deep
    }

    fn grid(&self, canvas: &mut SvgCanvas, up: &AmountScale, bottom: f64) {
        for tick in self.across.ticks() {
            canvas.line("grid", tick.x, up.zero - up.height, tick.x, bottom);
        }
        for amount in up.ticks(4).0 {
            canvas.line("grid", LEFT, up.y(amount), RIGHT, up.y(amount));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of tokens"
            )]
            canvas.text(LEFT - 8.0, up.y(amount) + 4.0, "axis end", &text_format::short(amount as u64));
        }
    }

    /// Draws each region down to the zero line, the uppermost first, so that lower ones cover the rest.
    fn areas(&self, canvas: &mut SvgCanvas, up: &AmountScale) {
        for (index, (class, _, size)) in REGIONS.iter().enumerate().rev() {
            if self.columns.iter().any(|column| size(&column.regions).0 > 0) {
                let below = |column: &ChartColumn| -> Tokens {
                    REGIONS[..=index].iter().map(|(_, _, size)| size(&column.regions)).sum()
                };
                self.area(canvas, class, up, up.zero, below);
            }
        }
        if let Some(window) = self.title.window
            && self.columns.iter().any(|column| column.peak > window)
        {
            let floor = up.y(to_f64(window.0));
            self.area(canvas, "over", up, floor, |column| column.peak.max(window));
        }
    }

    fn area(
        &self,
        canvas: &mut SvgCanvas,
        class: &str,
        up: &AmountScale,
        floor: f64,
        size: impl Fn(&ChartColumn) -> Tokens,
    ) {
        let heights: Vec<_> = self.columns.iter().map(|column| up.y(to_f64(size(column).0))).collect();
        let mut path = SvgPath::from(LEFT, floor);
        for (index, height) in heights.iter().enumerate() {
            // Neighbours of the same height are drawn as one step.
            if heights.get(index + 1).is_none_or(|next| (next - height).abs() >= 0.05) {
                path.step(self.across.column(index + 1), *height);
            }
        }
        path.to(self.across.column(heights.len()), floor).close();
        canvas.path(class, &path);
    }

    fn window(&self, canvas: &mut SvgCanvas, up: &AmountScale) {
        if let Some(window) = self.title.window.filter(|window| window.0 > 0 && to_f64(window.0) <= up.most) {
            let y = up.y(to_f64(window.0));
            canvas.line("window", LEFT, y, RIGHT, y);
            let words = format!("window {}", text_format::tokens(window));
            // Sessions begin small, so the line is free here.
            canvas.text(LEFT + 4.0, y - 4.0, "axis halo", &words);
        }
    }

    /// Writes the size of a request that exceeds the chart.
    fn beyond(&self, canvas: &mut SvgCanvas, up: &AmountScale) {
        let Some((index, column)) =
            self.columns.iter().enumerate().rev().max_by_key(|(_, column)| column.peak)
        else {
            return;
        };
        if to_f64(column.peak.0) > up.most {
            let words = format!("up to {} ▲", text_format::tokens(column.peak));
            let x = self.across.column(index).max(LEFT + 220.0);
            canvas.text(x, up.zero - up.height - 5.0, "small end", &words);
        }
    }

    fn mark(&self, canvas: &mut SvgCanvas, up: &AmountScale, mark: &MarkGroup, diamond: f64, bottom: f64) {
        let band = (self.across.column(1) - self.across.column(0)).clamp(NEAR * 0.7, 5.0);
        let (x, what) = (mark.x, &mark.marks);
        canvas.explained(&self.explanation(mark), |canvas| {
            if what.pauses > 0 {
                // Wider than the visible mark, so that it is easy to point at.
                canvas.rect("touch", x - NEAR / 2.0, up.zero - up.height, NEAR, bottom - up.zero + up.height);
            }
            if what.evicted.0 > 0 {
                canvas.rect("evicted", x, up.zero + LANE, band, up.tall(to_f64(what.evicted.0)).max(1.0));
            }
            if what.reset() > 0 {
                canvas.rect("reset", x - 0.2, up.zero + 1.0, band.min(2.0), LANE - 1.0);
            }
            // At the end of the bar, where it covers nothing.
            let end = up.zero + LANE + up.tall(to_f64(what.evicted.0)).max(2.0);
            if what.asked > 0 {
                canvas.diamond("asked", x + band / 2.0, end, diamond);
            } else if what.unasked > 0 {
                canvas.diamond("unasked", x + band / 2.0, end, diamond * 0.8);
            }
            if what.refused > 0 {
                canvas.rect("refused", x - 2.0, up.zero + LANE / 2.0 - 3.0, 6.0, 6.0);
            }
        });
    }

    fn explanation(&self, mark: &MarkGroup) -> String {
        let number = |index: usize| self.series.calls.get(index).map_or(index as u64, |call| call.call);
        let (first, last) = (number(mark.calls.start), number(mark.calls.end.saturating_sub(1)));
        let mut words =
            vec![if first == last { format!("call {first}") } else { format!("calls {first} to {last}") }];
        let marks = &mark.marks;
        if marks.pauses > 0 {
            let lasting = marks.longest.map(|pause| format!(" of {}", HumanDuration(pause)));
            words.push(format!("after a pause{}, the cache was cold", lasting.unwrap_or_default()));
        }
        for (cause, count) in &marks.resets {
            let often = if *count == 1 { String::new() } else { format!(" ({count} times)") };
            words.push(format!("reset: {}{often}", text_format::one_line(cause, 80)));
        }
        if marks.evicted.0 > 0 {
            words.push(format!("{} tokens taken out", text_format::tokens(marks.evicted)));
        }
        for (count, what) in [(marks.asked, "by a model"), (marks.unasked, "without a model")] {
            match count {
                0 => {}
                1 => words.push(format!("summary {what}")),
                _ => words.push(format!("{count} summaries {what}")),
            }
        }
        if marks.overflowed > 0 {
            words.push(format!(
                "{} too large for the window",
                text_format::count(marks.overflowed, "request")
            ));
        }
        if marks.illegal > 0 {
            words.push(format!("{} illegal for the provider", text_format::count(marks.illegal, "request")));
        }
        if marks.refused > 0 {
            words.push(format!("{} could not be made to fit", text_format::count(marks.refused, "request")));
        }
        words.join("; ")
    }

    /// Writes the totals of the row beside it.
    fn totals(&self, canvas: &mut SvgCanvas, full: Option<Money>, top: f64) {
        let totals = self.series.totals();
        let marks = &totals.marks;
        let mut y = top + 10.0;
        let mut line = |class: &str, words: &str| {
            canvas.text(BESIDE, y, class, words);
            y += 16.0;
        };
        if let Some(money) = totals.money {
            line("strong", &money.to_string());
            if let Some(full) = full.filter(|_| !self.series.is_full_history()) {
                line("", &format!("{} the full history", ratio(money, full)));
            }
        }
        line(
            "",
            &format!(
                "peak {}, mean {}",
                text_format::tokens(totals.peak),
                text_format::tokens(totals.mean())
            ),
        );
        if let Some(cached) = totals.cached() {
            line("", &format!("{cached} % of input from the cache"));
        }
        let summaries = match marks.summaries() {
            0 => "no summary".to_owned(),
            1 => "1 summary".to_owned(),
            count => format!("{} summaries", text_format::short(count)),
        };
        line("", &format!("{}, {summaries}", text_format::count(marks.reset(), "reset")));
        if let Some(failures) = totals.failures() {
            line("warn", &failures);
        }
    }
}
