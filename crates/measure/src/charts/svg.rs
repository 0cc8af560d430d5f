//! A replay as a picture: one self-contained SVG file, without scripts, fonts or need of explanation.
//!
//! At the top is a chart of the costs so far of all policies. Below it each policy has a row, all on the same
//! scales: tokens sent by region, and beneath the zero line tokens evicted. All charts share the axis of
//! calls, so that a step of a cost line can be traced to the events below it. The style sheet supports light
//! and dark pages. Pointing at a mark shows details; nothing essential is shown only there.

mod canvas;
mod cost_chart;
mod pauses;
mod policy_row;
mod scale;

use std::time::Duration;

use epitome::core::{Tokens, event::Timestamp};
use jiff::tz::TimeZone;

use self::{
    canvas::{SvgCanvas, WIDTH, escaped},
    pauses::PausePositions,
    policy_row::PolicyRow,
    scale::{AmountScale, CallScale},
};
use super::series::{HumanDuration, PictureTitle, PolicySeries, ceiling, length, span};
use crate::{replay::RegionSizes, text_format};

/// Left edge of the charts.
const LEFT: f64 = 84.0;
/// Right edge of the charts.
const RIGHT: f64 = 948.0;
/// Left edge of the words beside the charts.
const BESIDE: f64 = 966.0;
/// Most columns that a session is drawn in. More would be finer than a screen and only enlarge the file.
const COLUMNS: usize = 1_000;

/// Reads the size of a region.
type RegionSizeFn = fn(&RegionSizes) -> Tokens;

/// The regions of a request from the bottom up: stable ones below, changing ones on top.
const REGIONS: [(&str, &str, RegionSizeFn); 9] = [
    ("unseen", "system and tools, unseen", |regions| regions.unseen),
    ("prefix", "system and tools", |regions| regions.prefix),
    ("summary", "summaries, notes", |regions| regions.summary),
    ("user", "user", |regions| regions.user),
    ("client", "client notes", |regions| regions.client),
    ("answers", "answers and calls", |regions| regions.answers),
    ("reasoning", "reasoning", |regions| regions.reasoning),
    ("shortened", "shortened results", |regions| regions.shortened),
    ("results", "tool results", |regions| regions.results),
];

/// Draws the picture.
pub fn svg(title: &PictureTitle, series: &[PolicySeries<'_>]) -> String {
    let mut canvas = SvgCanvas::default();
    let calls = length(series);
    let mut y = header(&mut canvas, title, series);
    if calls == 0 {
        canvas.text(LEFT, y + 24.0, "note", "There are no calls to draw.");
        y += 48.0;
    } else {
        let across = CallScale::new(series, COLUMNS);
        let rows: Vec<_> = series.iter().map(|series| PolicyRow::new(&across, title, series)).collect();
        let pauses = PausePositions::new(&rows);
        y = cost_chart::chart(&mut canvas, &across, series, &pauses, y);
        y = legend(&mut canvas, title, series, y + 18.0);
        y = policy_row::all(&mut canvas, &across, &rows, &pauses, y + 6.0);
    }
    y = footer(&mut canvas, title, series, y);
    let name = escaped(&format!("{}: context and cost of each call under each policy", title.session));
    let body = canvas.finish();
    let height = y.ceil();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{name}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" x=\"0\" y=\"0\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n"
    )
}

fn header(canvas: &mut SvgCanvas, title: &PictureTitle, series: &[PolicySeries<'_>]) -> f64 {
    canvas.text(LEFT, 40.0, "title", &text_format::one_line(&title.session, 84));
    let mut facts = vec![text_format::one_line(&title.model, 40)];
    facts.extend(title.window.map(|window| format!("window of {} tokens", text_format::tokens(window))));
    facts.push(text_format::count(length(series) as u64, "model call"));
    facts.push(match series.len() {
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    });
    if let Some((first, last)) = span(series) {
        let lasting = u64::try_from(last.0.saturating_sub(first.0)).unwrap_or(0);
        facts.push(format!("{} UTC", utc(first, "%Y-%m-%d %H:%M")));
        if lasting > 0 {
            facts.push(format!("over {}", HumanDuration(Duration::from_millis(lasting))));
        }
    }
    canvas.text(LEFT, 61.0, "note", &facts.join("  ·  "));
    82.0
}

/// Draws the meaning of the colours and marks that occur.
fn legend(canvas: &mut SvgCanvas, title: &PictureTitle, series: &[PolicySeries<'_>], y: f64) -> f64 {
    canvas.text(LEFT, y + 14.0, "heading", "What was sent with each call, and what was taken out");
    let mut flow = LegendCursor { x: LEFT, y: y + 36.0 };
    let calls = || series.iter().flat_map(|series| series.calls);
    for (class, words, size) in REGIONS.iter().rev() {
        if calls().any(|call| size(&call.regions).0 > 0) {
            let (x, y) = flow.place(words);
            canvas.rect(class, x, y - 9.0, 11.0, 11.0);
            canvas.text(x + 17.0, y, "", words);
        }
    }
    flow.next_line();
    policy_row::legend(canvas, title, series, &mut flow);
    flow.y + 10.0
}

/// Position of the next item of a legend.
struct LegendCursor {
    x: f64,
    y: f64,
}

impl LegendCursor {
    fn place(&mut self, words: &str) -> (f64, f64) {
        let width = 17.0 + canvas::text_width(words, 12.0) + 22.0;
        if self.x + width > WIDTH - 16.0 {
            self.next_line();
        }
        let place = (self.x, self.y);
        self.x += width;
        place
    }

    fn next_line(&mut self) {
        if self.x > LEFT {
            (self.x, self.y) = (LEFT, self.y + 20.0);
        }
    }
}

fn footer(canvas: &mut SvgCanvas, title: &PictureTitle, series: &[PolicySeries<'_>], y: f64) -> f64 {
    let mut sentences = vec![
        "Every model call of the session, made again under each policy: sizes are counted, the cache is simulated with \
         the real pauses, and summaries are charged."
            .to_owned(),
    ];
    let calls = length(series);
    if calls > COLUMNS {
        let each = calls.div_ceil(COLUMNS);
        sentences.push(format!(
            "Of up to {each} calls beside each other the largest is drawn; marks are added up."
        ));
    }
    if let Some(window) = title.window
        && ceiling(title, series) < window
        && calls > 0
    {
        sentences.push(format!("The window of {} tokens is above the scale.", text_format::tokens(window)));
    }
    sentences.extend(title.notes.iter().cloned());
    if !title.source.is_empty() {
        sentences.push(format!("Made by: {}", title.source));
    }
    let mut y = y + 18.0;
    for sentence in &sentences {
        // A note may be long; the picture's room for it is limited.
        for line in text_format::wrapped(&text_format::one_line(sentence, 600), 170) {
            canvas.text(LEFT, y, "small", &text_format::one_line(&line, 170));
            y += 15.0;
        }
    }
    y + 10.0
}

/// Draws the numbers of the calls, and the time if it is known.
fn axis(canvas: &mut SvgCanvas, across: &CallScale, y: f64) -> f64 {
    let (mut day, mut free) = (None, 0.0);
    for (index, tick) in across.ticks().iter().enumerate() {
        canvas.line("tick", tick.x, y, tick.x, y + 4.0);
        let number = if index == 0 { format!("call {}", tick.call) } else { tick.call.to_string() };
        let class = if index == 0 { "axis" } else { "axis middle" };
        canvas.text(tick.x, y + 16.0, class, &number);
        if let Some(at) = tick.at {
            let (this, clock) = (utc(at, "%-d %b"), utc(at, "%H:%M"));
            let words = if day.as_ref() == Some(&this) { clock } else { format!("{this} {clock}") };
            let wide = canvas::text_width(&words, 11.0) + 8.0;
            let start = if index == 0 { tick.x } else { tick.x - wide / 2.0 };
            if start >= free {
                canvas.text(tick.x, y + 30.0, &format!("{class} faint"), &words);
                (day, free) = (Some(this), start + wide);
            }
        }
    }
    y + 36.0
}

/// Time in UTC, because a picture may be viewed in another time zone.
fn utc(time: Timestamp, format: &str) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(timestamp) => timestamp.to_zoned(TimeZone::UTC).strftime(format).to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// Style sheet, with a dark variant for dark pages. Both palettes keep neighbouring regions apart in
/// lightness too.
const STYLE: &str = include_str!("svg/style.css");

#[cfg(test)]
mod tests;
