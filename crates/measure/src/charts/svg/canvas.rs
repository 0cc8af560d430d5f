//! SVG elements, written one after the other. Text from a session is escaped here and nowhere else.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

/// Width of a picture.
pub(super) const WIDTH: f64 = 1_200.0;

/// The elements drawn so far.
#[derive(Default)]
pub(super) struct SvgCanvas {
    body: String,
}

impl SvgCanvas {
    /// Draws words that begin, end or are centred at `x`, depending on their class.
    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, words: &str) {
        let (x, y, words) = (number(x), number(y), escaped(words));
        self.element(&format!("<text{} x=\"{x}\" y=\"{y}\">{words}</text>", classed(class)));
    }

    pub(super) fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(number);
        let class = classed(class);
        self.element(&format!("<line{class} x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let [x, y, width, height] = [x, y, width.max(0.0), height.max(0.0)].map(number);
        let class = classed(class);
        self.element(&format!("<rect{class} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"));
    }

    /// Draws a diamond around a point.
    pub(super) fn diamond(&mut self, class: &str, x: f64, y: f64, radius: f64) {
        let mut path = SvgPath::from(x, y - radius);
        path.to(x + radius, y).to(x, y + radius).to(x - radius, y).close();
        self.path(class, &path);
    }

    pub(super) fn path(&mut self, class: &str, path: &SvgPath) {
        self.element(&format!("<path{} d=\"{}\"/>", classed(class), path.data));
    }

    /// Draws elements that belong together, with an explanation that appears when pointed at.
    pub(super) fn explained(&mut self, words: &str, draw: impl FnOnce(&mut Self)) {
        self.element(&format!("<g><title>{}</title>", escaped(words)));
        draw(self);
        self.element("</g>");
    }

    pub(super) fn finish(self) -> String {
        self.body
    }

    fn element(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// Lines through points.
pub(super) struct SvgPath {
    data: String,
}

impl SvgPath {
    pub(super) fn from(x: f64, y: f64) -> Self {
        Self { data: format!("M{} {}", number(x), number(y)) }
    }

    pub(super) fn to(&mut self, x: f64, y: f64) -> &mut Self {
        let _ = write!(self.data, "L{} {}", number(x), number(y));
        self
    }

    /// Moves to another height, then straight to the right.
    pub(super) fn step(&mut self, x: f64, y: f64) -> &mut Self {
        let _ = write!(self.data, "V{}H{}", number(y), number(x));
        self
    }

    pub(super) fn close(&mut self) {
        self.data.push('Z');
    }
}

/// Writes a number to a tenth of a pixel, finer than the eye sees. NaN and infinity become 0.
pub(super) fn number(value: f64) -> String {
    let tenths = if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 };
    // Adding 0 removes the sign of a negative zero.
    format!("{}", tenths + 0.0)
}

/// Converts a count for calculations with positions.
#[expect(clippy::cast_precision_loss, reason = "places are drawn to a tenth of a pixel")]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Estimates the width of words at a letter size: no font is available to measure with, so a wide one is
/// assumed.
pub(super) fn text_width(words: &str, size: f64) -> f64 {
    to_f64(words.width() as u64) * size * 0.54
}

/// Escapes words for XML. Characters that XML forbids, or that would turn the direction of the rest, are left
/// out.
pub(super) fn escaped(words: &str) -> String {
    let mut safe = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if letter.is_control() => {}
            _ => safe.push(letter),
        }
    }
    safe
}

fn classed(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_always_numbers() {
        let check = |value: f64, expect: &str| assert_eq!(number(value), expect);
        check(1.0, "1");
        check(1.25, "1.3");
        check(-0.01, "0");
        check(f64::NAN, "0");
        check(f64::INFINITY, "0");
    }

    #[test]
    fn words_cannot_end_their_element() {
        assert_eq!(
            escaped("</text><script>\"'&\u{0}\u{202e}\u{ffff}\n"),
            "&lt;/text&gt;&lt;script&gt;&quot;&#39;&amp; "
        );
    }
}
