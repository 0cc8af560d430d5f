//! Charts of the context size, call after call, drawn with letters: one small chart a policy, all on the same
//! scales.
//!
//! Everything is shown by shape, so that it can be read without colours. Resets and pauses have lanes of
//! their own beneath each chart: over the bars they would cover what they explain.

use std::fmt::Write as _;

use anstyle::Style;
use epitome::core::{Tokens, profile::Money};
use unicode_width::UnicodeWidthStr;

use super::series::{
    ChartColumn, ChartMarks, PictureTitle, PolicySeries, ceiling, full_history, length, ratio, step,
};
use crate::text_format;

/// Style of headings.
const BOLD: Style = Style::new().bold();
/// Style of labels.
const DIM: Style = Style::new().dimmed();

/// Width left of the charts, for labels of the scale and of the lanes.
const GUTTER: usize = 8;
/// Most columns for a call, if there is room.
const STRETCH: usize = 4;
/// Letters for eighths of a cell, filled from the bottom.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the charts in lines of at most `width` columns.
pub fn plot(title: &PictureTitle, series: &[PolicySeries<'_>], width: usize) -> String {
    let width = width.max(40);
    let calls = length(series);
    let mut lines = vec![
        format!("{BOLD}{}{BOLD:#}", text_format::one_line(&title.session, width)),
        text_format::one_line(&headline(title, calls), width),
    ];
    if calls == 0 {
        lines.push(format!("{DIM}no calls to draw{DIM:#}"));
        return joined(&lines);
    }
    let frame = ChartFrame::new(title, series, width);
    let full = full_history(series).filter(|_| series.len() > 1);
    for series in series {
        lines.push(String::new());
        lines.push(caption(series, full, width));
        lines.extend(frame.chart(&series.columns(calls, frame.columns)));
    }
    lines.extend(frame.axis(series));
    lines.push(String::new());
    lines.extend(frame.legend(title, series).into_iter().map(|line| format!("{DIM}{line}{DIM:#}")));
    joined(&lines)
}

fn joined(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut all, line| {
        all.push_str(line.trim_end());
        all.push('\n');
        all
    })
}

fn headline(title: &PictureTitle, calls: usize) -> String {
    let window = title.window.map(|window| format!(" · window of {} tokens", text_format::tokens(window)));
    let calls = text_format::count(calls as u64, "call");
    format!("{calls}{} · {}", window.unwrap_or_default(), title.model)
}

/// The policy and the totals of its calls: the important ones first, and more as far as there is room.
fn caption(series: &PolicySeries<'_>, full: Option<Money>, width: usize) -> String {
    let totals = series.totals();
    let marks = &totals.marks;
    let mut facts = vec![format!("peak {}", text_format::tokens(totals.peak))];
    if let Some(money) = totals.money {
        let against = full.filter(|_| !series.is_full_history());
        let against = against.map(|full| format!(" ({} none)", ratio(money, full)));
        facts.push(format!("{money}{}", against.unwrap_or_default()));
    }
    facts.extend(totals.failures());
    facts.push(text_format::count(marks.reset(), "reset"));
    facts.push(format!("mean {}", text_format::tokens(totals.mean())));
    let name = text_format::one_line(series.policy, width / 3);
    let mut line = format!("{BOLD}{name}{BOLD:#} ");
    let mut room = width.saturating_sub(name.width() + 1);
    for (index, fact) in facts.iter().enumerate() {
        let joint = if index == 0 { " " } else { " · " };
        let Some(left) = room.checked_sub(joint.width() + fact.width()) else { break };
        room = left;
        line.push_str(joint);
        line.push_str(fact);
    }
    line
}

/// Dimensions that all charts share.
struct ChartFrame {
    calls: usize,
    /// Number of columns with calls.
    columns: usize,
    /// Width of each of them in columns of the terminal.
    stretch: usize,
    rows: usize,
    ceiling: Tokens,
    window: Option<Tokens>,
    width: usize,
}

impl ChartFrame {
    fn new(title: &PictureTitle, series: &[PolicySeries<'_>], width: usize) -> Self {
        let calls = length(series);
        let room = width - GUTTER;
        let columns = calls.min(room);
        let rows = match series.len() {
            0..=3 => 6,
            4..=6 => 5,
            _ => 4,
        };
        let ceiling = ceiling(title, series).max(Tokens(1));
        let stretch = (room / columns).clamp(1, STRETCH);
        Self { calls, columns, stretch, rows, ceiling, window: title.window, width }
    }

    /// A size in eighths of a cell; any size above zero is visible.
    fn eighths(&self, tokens: Tokens) -> usize {
        let most = self.rows as u128 * 8;
        let scaled = (u128::from(tokens.0) * most).div_ceil(u128::from(self.ceiling.0)).min(most);
        usize::try_from(scaled).unwrap_or(usize::MAX)
    }

    /// Row, from the bottom, in which the window ends.
    fn window_row(&self) -> Option<usize> {
        let window = self.window.filter(|window| window.0 > 0 && *window <= self.ceiling)?;
        Some(self.eighths(window).div_ceil(8) - 1)
    }

    fn chart(&self, columns: &[ChartColumn]) -> Vec<String> {
        let mut lines: Vec<_> = (0..self.rows).rev().map(|row| self.row(columns, row)).collect();
        let mut lane = |name: &str, letter: &dyn Fn(&ChartColumn) -> char| {
            let letters: Vec<_> = columns.iter().map(letter).collect();
            if letters.iter().any(|letter| *letter != ' ') {
                let drawn: String = letters.into_iter().map(|letter| self.spread(letter, ' ')).collect();
                lines.push(format!("{}{drawn}", margin(name)));
            }
        };
        lane("reset", &|column| mark('▾', column.marks.reset()));
        lane("cold", &|column| mark('○', column.marks.pauses));
        lane("summary", &|column| mark('◆', column.marks.summaries()));
        lane("refused", &|column| mark('×', column.marks.refused));
        lines
    }

    /// Label of a row's upper edge, where one is useful.
    fn label(&self, row: usize) -> String {
        let window = self.window_row();
        let edge = || {
            let edge = u128::from(self.ceiling.0) * (row as u128 + 1) / self.rows as u128;
            text_format::short(u64::try_from(edge).unwrap_or(u64::MAX))
        };
        match row {
            _ if window == Some(row) => self.window.map(text_format::tokens).unwrap_or_default(),
            0 => "0".to_owned(),
            _ if row + 1 == self.rows => edge(),
            _ if self.ceiling.0 > 100
                && row + 1 == self.rows / 2
                && window.is_none_or(|window| window.abs_diff(row) > 1) =>
            {
                edge()
            }
            _ => String::new(),
        }
    }

    fn row(&self, columns: &[ChartColumn], row: usize) -> String {
        let window = self.window_row();
        let empty = if window == Some(row) { '┄' } else { ' ' };
        let mut line = margin(&self.label(row));
        for column in columns {
            let height = self.eighths(column.peak);
            let bar = BARS[height.saturating_sub(row * 8).min(8)];
            let over = self.window.is_some_and(|limit| column.peak > limit);
            let letter = match bar {
                ' ' => empty,
                // This also marks a request that is only a little larger, in the row in which the window
                // ends.
                _ if over
                    && window
                        .is_some_and(|window| row > window || (row == window && height <= (row + 1) * 8)) =>
                {
                    '▒'
                }
                _ => bar,
            };
            line.extend(std::iter::repeat_n(letter, self.stretch));
        }
        let missing = (self.columns - columns.len()) * self.stretch;
        line.extend(std::iter::repeat_n(empty, missing));
        line
    }

    fn spread(&self, letter: char, filler: char) -> String {
        let mut letters = String::from(letter);
        letters.extend(std::iter::repeat_n(filler, self.stretch - 1));
        letters
    }

    /// Numbers of the calls, beneath the last chart.
    fn axis(&self, series: &[PolicySeries<'_>]) -> [String; 2] {
        let longest = series.iter().max_by_key(|series| series.calls.len());
        let number = |index: usize| longest.and_then(|series| series.calls.get(index)).map(|call| call.call);
        let last = self.calls - 1;
        let drawn = self.columns * self.stretch;
        let (mut ticks, mut numbers) = (vec!['─'; drawn], vec![' '; drawn]);
        let every = step(self.calls / 5);
        // The last number goes first, because it has only one possible position.
        let places = std::iter::once(last).chain((0..last).step_by(every));
        for index in places {
            let column = ((index + 1) * self.columns - 1) / self.calls;
            let Some(words) = number(index).map(|number| number.to_string()) else { continue };
            let place = column * self.stretch;
            let start = place.min(drawn.saturating_sub(words.len()));
            let room = numbers.iter().skip(start).take(words.len() + 2);
            if room.clone().all(|letter| *letter == ' ') {
                ticks[place] = '┴';
                numbers.iter_mut().skip(start).zip(words.chars()).for_each(|(cell, letter)| *cell = letter);
            }
        }
        let [ticks, numbers] = [ticks, numbers].map(|letters| letters.into_iter().collect::<String>());
        let numbers = numbers.trim_end();
        [format!("{}{ticks}", margin("")), format!("{}{DIM}{numbers}{DIM:#}", margin("call"))]
    }

    fn legend(&self, title: &PictureTitle, series: &[PolicySeries<'_>]) -> Vec<String> {
        let mut all = ChartMarks::default();
        for series in series {
            all.join(&series.totals().marks);
        }
        let mut words = vec!["█ tokens sent".to_owned()];
        match title.window {
            Some(window) if self.window_row().is_some() => {
                words.push(format!("┄ window {}", text_format::tokens(window)));
            }
            Some(window) => {
                words.push(format!("the window of {} is above the charts", text_format::tokens(window)));
            }
            None => {}
        }
        if series.iter().any(|series| self.window.is_some_and(|window| series.totals().peak > window)) {
            words.push("▒ larger than the window".to_owned());
        }
        if all.reset() > 0 {
            words.push("▾ reset: what was sent before was changed".to_owned());
        }
        if all.pauses > 0 {
            words.push("○ a pause: the cache went cold".to_owned());
        }
        if all.summaries() > 0 {
            words.push("◆ summary".to_owned());
        }
        if all.refused > 0 {
            words.push("× refused: does not fit".to_owned());
        }
        let each = self.calls.div_ceil(self.columns);
        if each > 1 {
            words.push(format!("a column is up to {each} calls: their largest"));
            words.push("a digit: so many marks, + more than 9".to_owned());
        }
        flowed(&words, self.width)
    }
}

/// Text in the gutter.
fn margin(words: &str) -> String {
    let width = GUTTER - 1;
    if words.is_empty() { " ".repeat(GUTTER) } else { format!("{DIM}{words:>width$}{DIM:#} ") }
}

/// A mark, or the number of marks.
fn mark(letter: char, count: u64) -> char {
    match count {
        0 => ' ',
        1 => letter,
        2..=9 => u32::try_from(count).ok().and_then(|count| char::from_digit(count, 10)).unwrap_or('+'),
        _ => '+',
    }
}

/// Arranges items side by side in lines.
fn flowed(items: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + item.chars().count() <= width => {
                let _ = write!(line, "   {item}");
            }
            _ => lines.extend(text_format::wrapped(item, width)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{super::sample_session, *};

    fn plain(title: &PictureTitle, series: &[PolicySeries<'_>], width: usize) -> String {
        let drawn = anstream::adapter::strip_str(&plot(title, series, width)).to_string();
        for line in drawn.lines() {
            assert!(line.width() <= width, "{} columns of {width}: {line}", line.width());
        }
        drawn
    }

    #[test]
    fn a_session_of_200_calls_at_60_columns() {
        let session = sample_session::session(200);
        insta::assert_snapshot!(plain(&sample_session::title(), &session.series(), 60), @r"
        Make the parser keep comments
        200 calls · window of 100k tokens · claude-opus-5

        none  peak 235k · $24.30 · 138 too large · 0 resets
           150k                       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
                                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
           100k ┄┄┄┄┄┄┄┄┄┄┄┄▁▄▅█████████████████████████████████████
                       ▁▂▄▅▆████████████████████████████████████████
                ▁▂▃▄▅▆██████████████████████████████████████████████
              0 ████████████████████████████████████████████████████
           cold       ○     ○   ○ ○     ○     ○○    ○     ○    ○○

        sliding  peak 89k · $13.63 (0.56× none) · 4 resets
           150k

           100k ┄┄┄┄┄┄┄┄┄┄┄┄▁▄▅┄┄┄┄┄┄┄▃▄▅┄┄┄┄┄┄┄┄▁▂▃▅▅┄┄┄┄┄┄┄▁▂▃▅┄┄┄
                       ▁▂▄▅▆███▂▃▄▅▆▇████ ▁▂▃▄▅▇██████▁▃▄▅▆▇█████▂▃▄
                ▁▂▃▄▅▆██████████████████████████████████████████████
              0 ████████████████████████████████████████████████████
          reset                ▾         ▾           ▾          ▾
           cold       ○     ○   ○ ○     ○     ○○    ○     ○    ○○
        summary                ◆         ◆           ◆          ◆

        epitome  peak 80k · $10.97 (0.45× none) · 11 resets
           150k

           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁┄┄┄┄┄▁┄┄▁▂
                          ▂▃ ▃▄▇ ▁   ▂▅▆▁▂▃▄▅▆▂▄▂▂▃▄▃▄▅▇██▅▅▆███▆███
                ▁▂▃▄▅▆▄▅▇█████████▇▇████████████████████████████████
              0 ████████████████████████████████████████████████████
          reset       ▾     ▾   ▾ ▾     ▾     ▾▾    ▾     ▾    ▾▾
           cold       ○     ○   ○ ○     ○     ○○    ○     ○    ○○
        summary       ◆     ◆   ◆ ◆     ◆     ◆◆    ◆     ◆    ◆◆
                ┴────────────┴────────────┴────────────┴───────────┴
           call 0            50           100          150       199

        █ tokens sent   ┄ window 100k   ▒ larger than the window
        ▾ reset: what was sent before was changed
        ○ a pause: the cache went cold   ◆ summary
        a column is up to 4 calls: their largest
        a digit: so many marks, + more than 9
        ");
    }

    #[test]
    fn a_session_of_40_calls_at_100_columns() {
        let session = sample_session::session(40);
        insta::assert_snapshot!(plain(&sample_session::title(), &session.series()[2..], 100), @r"
        Make the parser keep comments
        40 calls · window of 100k tokens · claude-opus-5

        epitome  peak 50k · $1.48 · 1 reset · mean 37k
           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄

                                                                                              ▁▁
            50k                         ▁▁▁▁▂▂▂▂▃▃▃▃▃▃▄▄▄▄▄▄▅▅  ▂▂▂▂▃▃▃▃▃▃▄▄▄▄▅▅▅▅▆▆▇▇▇▇████████
                ▄▄▅▅▅▅▅▅▆▆▆▆▇▇▇▇▇▇██████████████████████████████████████████████████████████████
              0 ████████████████████████████████████████████████████████████████████████████████
          reset                                               ▾
           cold                                               ○
        summary                                               ◆
                ┴───────────────────┴───────────────────┴───────────────────┴─────────────────┴─
           call 0                   10                  20                  30                39

        █ tokens sent   ┄ window 100k   ▾ reset: what was sent before was changed
        ○ a pause: the cache went cold   ◆ summary
        ");
    }

    #[test]
    fn many_policies_share_one_scale() {
        let session = sample_session::crowd(300, 7);
        insta::assert_snapshot!(plain(&sample_session::title(), &session.series(), 80), @r"
        Make the parser keep comments
        300 calls · window of 100k tokens · claude-opus-5

        none  peak 338k · $49.57 · 238 too large · 0 resets · mean 183k
           150k                    ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
           100k ┄┄┄┄┄┄┄┄┄┄┄▁▃▄▆▒▒▒▒█████████████████████████████████████████████████████
                    ▁▂▃▄▅▆▇█████████████████████████████████████████████████████████████
              0 ▆▇██████████████████████████████████████████████████████████████████████
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○

        epitome  peak 89k · $20.84 (0.42× none) · 6 resets · mean 64k
           150k
           100k ┄┄┄┄┄┄┄┄┄┄┄▁▃▃┄┄┄┄┄┄▂▃▃▄┄┄┄┄┄┄▁▁▂▂▄┄┄┄┄┄┄▁▁▂▃┄┄┄┄┄┄▁▁▂▃▃┄┄┄┄┄▁▂▃▄┄┄┄┄┄┄▁
                    ▁▂▃▄▅▆▇███▄▅▆▇▇█████▄▄▅▆▇██████▃▅▆▆▇█████▄▅▅▆███████▃▄▅▇█████▄▅▅▆▇██
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset              ▾         ▾          ▾          ▾         ▾        ▾
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○
        summary              ◆         ◆          ◆          ◆         ◆        ◆

        sliding  peak 145k · $127.75 (2.58× none) · 119 too large · 281 resets
           150k                                                     ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁▁▂▂▂▂▃▃▃▄▄▄▅▅▅▆▒▒▒▒▒▒▒▒▒████████████████████
                    ▁▁▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇█████████████████████████████████████████████████
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset     ▾5444445444445444445444445444445444445444445444445444445444445444445
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○

        drop-oldest  peak 80k · $22.32 (0.45× none) · 29 resets · mean 62k
           150k
           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁┄┄┄┄▁┄┄▁▁┄┄┄┄┄▁▁┄┄▁▂▁▁┄▁▁▁▁▁▁▂▁▁▁
                    ▁▁▁▂▃▃▄▅▅▆▇▃▃▂▃▄▆▇▇▄▅▆▆▇▅▅▄▅▅▅▅▆███▆▇███▆███▇█▇████▇████████████████
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset      ▾     ▾  ▾ ▾     ▾    ▾ ▾   ▾    ▾     2   ▾▾    ▾▾  ▾▾▾  ▾▾▾▾▾ 2▾3
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○
        summary      ◆     ◆  ◆ ◆     ◆    ◆ ◆   ◆    ◆     2   ◆◆    ◆◆  ◆◆◆  ◆◆◆◆◆ 2◆3

        summarise-all  peak 89k · $20.84 (0.42× none) · 6 resets · mean 64k
           150k
           100k ┄┄┄┄┄┄┄┄┄┄┄▁▃▃┄┄┄┄┄┄▂▃▃▄┄┄┄┄┄┄▁▁▂▂▄┄┄┄┄┄┄▁▁▂▃┄┄┄┄┄┄▁▁▂▃▃┄┄┄┄┄▁▂▃▄┄┄┄┄┄┄▁
                    ▁▂▃▄▅▆▇███▄▅▆▇▇█████▄▄▅▆▇██████▃▅▆▆▇█████▄▅▅▆███████▃▄▅▇█████▄▅▅▆▇██
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset              ▾         ▾          ▾          ▾         ▾        ▾
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○
        summary              ◆         ◆          ◆          ◆         ◆        ◆

        clear-tools  peak 145k · $127.75 (2.58× none) · 119 too large · 281 resets
           150k                                                     ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁▁▂▂▂▂▃▃▃▄▄▄▅▅▅▆▒▒▒▒▒▒▒▒▒████████████████████
                    ▁▁▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇█████████████████████████████████████████████████
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset     ▾5444445444445444445444445444445444445444445444445444445444445444445
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○

        balanced  peak 80k · $22.32 (0.45× none) · 29 resets · mean 62k
           150k
           100k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁┄┄┄┄▁┄┄▁▁┄┄┄┄┄▁▁┄┄▁▂▁▁┄▁▁▁▁▁▁▂▁▁▁
                    ▁▁▁▂▃▃▄▅▅▆▇▃▃▂▃▄▆▇▇▄▅▆▆▇▅▅▄▅▅▅▅▆███▆▇███▆███▇█▇████▇████████████████
              0 ▆▇██████████████████████████████████████████████████████████████████████
          reset      ▾     ▾  ▾ ▾     ▾    ▾ ▾   ▾    ▾     2   ▾▾    ▾▾  ▾▾▾  ▾▾▾▾▾ 2▾3
           cold      ○     ○  ○ ○     ○    ○ ○   ○    ○     2    ○     ○  ○ ○     ○    ○
        summary      ◆     ◆  ◆ ◆     ◆    ◆ ◆   ◆    ◆     2   ◆◆    ◆◆  ◆◆◆  ◆◆◆◆◆ 2◆3
                ┴───────────────────────┴───────────────────────┴──────────────────────┴
           call 0                       100                     200                  299

        █ tokens sent   ┄ window 100k   ▒ larger than the window
        ▾ reset: what was sent before was changed   ○ a pause: the cache went cold
        ◆ summary   a column is up to 5 calls: their largest
        a digit: so many marks, + more than 9
        ");
    }

    #[test]
    fn no_calls_one_call_and_calls_of_nothing_are_drawn() {
        let title = PictureTitle { window: None, ..sample_session::title() };
        let none: Vec<PolicySeries<'_>> = Vec::new();
        insta::assert_snapshot!(plain(&title, &none, 60), @r"
        Make the parser keep comments
        0 calls · claude-opus-5
        no calls to draw
        ");
        let session = sample_session::session(1);
        insta::assert_snapshot!(plain(&title, &session.series()[..1], 60), @r"
        Make the parser keep comments
        1 call · claude-opus-5

        none  peak 25k · $0.160 · 0 resets · mean 25k
            25k ████
                ████
                ████
            12k ████
                ████
              0 ████
                ┴───
           call 0

        █ tokens sent
        ");
        let mut session = sample_session::session(3);
        let calls = &mut session.policies[0].calls;
        for call in calls.iter_mut() {
            (call.tokens, call.money, call.at) = (Tokens(0), None, None);
        }
        let series =
            [PolicySeries { policy: "nothing", calls }, PolicySeries { policy: "empty", calls: &[] }];
        insta::assert_snapshot!(plain(&title, &series, 60), @r"
        Make the parser keep comments
        3 calls · claude-opus-5

        nothing  peak 0 · 0 resets · mean 0
              1




              0

        empty  peak 0 · 0 resets · mean 0
              1




              0
                ┴───┴───┴───
           call 0   1   2

        █ tokens sent
        ");
    }

    #[test]
    fn hostile_names_and_sizes_break_no_line() {
        let mut session = sample_session::session(30);
        session.policies[0].calls[3].tokens = Tokens(u64::MAX);
        let title = PictureTitle {
            session: "\u{1b}[2Jevil\nname 日本語".repeat(40),
            window: Some(Tokens(u64::MAX)),
            ..sample_session::title()
        };
        let series = [PolicySeries {
            policy: "a\nb\u{7}<&>日本語日本語日本語日本語日本語",
            ..session.series()[0]
        }];
        for width in [0, 60, 61, 99, 160] {
            let drawn = plain(&title, &series, width.max(40));
            assert!(drawn.chars().all(|letter| letter == '\n' || !letter.is_control()), "{drawn}");
        }
    }

    #[test]
    fn marks_of_long_sessions_are_counted_and_never_lost() {
        let session = sample_session::session(10_000);
        let series = session.series();
        for series in &series {
            let totals = series.totals();
            let drawn = plain(&sample_session::title(), &[*series], 100);
            let lane = |name: &str| {
                let line = drawn.lines().find(|line| line.trim_start().starts_with(name));
                let letters = line.unwrap_or("").trim_start().trim_start_matches(name).to_owned();
                let count = |letter: char| match letter {
                    ' ' => (0, 0),
                    '+' => (10, u64::MAX / 1_000),
                    digit => digit.to_digit(10).map_or((1, 1), |digit| (u64::from(digit), u64::from(digit))),
                };
                let counts: Vec<_> = letters.chars().map(count).collect();
                counts.iter().map(|count| count.0).sum()..=counts.iter().map(|count| count.1).sum::<u64>()
            };
            assert!(lane("reset ").contains(&totals.marks.reset()), "{drawn}");
            assert!(lane("cold ").contains(&totals.marks.pauses), "{drawn}");
        }
    }
}
