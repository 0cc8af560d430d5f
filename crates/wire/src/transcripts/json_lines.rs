//! Files of lines, one JSON value per line.
//!
//! Agents append to these files while they are read, editors and tools rewrite them, disks fill up. So a line that
//! cannot be used is a [`TranscriptWarning`] with its number, and every other line is kept. All limits are in bytes and passed
//! in: the caller decides how much is too large.

use serde::de::IgnoredAny;

use super::TranscriptWarning;
use crate::json::Json;

impl TranscriptWarning {
    /// Makes a warning about a line.
    pub(crate) fn at(line: u64, what: impl Into<String>) -> Self {
        Self { line: Some(line), what: what.into() }
    }
}

/// Limits on the size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptLimits {
    /// The longest line of a JSONL file.
    pub line: usize,
    /// The size of a compressed file when it is unpacked.
    pub decompressed: usize,
}

impl Default for TranscriptLimits {
    fn default() -> Self {
        Self { line: 64 << 20, decompressed: 1 << 30 }
    }
}

/// The lines of a file that hold something, numbered from 1.
///
/// Lines end in LF or CRLF, a leading byte order mark and blank lines are passed over, and the last line needs no
/// line break. A line comes out as text only if it is one well-formed JSON value.
pub(crate) fn lines<'a>(bytes: &'a [u8], limits: &TranscriptLimits) -> JsonLines<'a> {
    let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    JsonLines { rest, number: 0, limit: limits.line }
}

/// See [`lines`].
#[derive(Clone, Debug)]
pub(crate) struct JsonLines<'a> {
    rest: &'a [u8],
    number: u64,
    limit: usize,
}

impl<'a> Iterator for JsonLines<'a> {
    type Item = (u64, Result<&'a str, TranscriptWarning>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            self.number += 1;
            let (line, ending) = match self.rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let line = &self.rest[..end];
                    self.rest = &self.rest[end + 1..];
                    (line, LineEnding::Break)
                }
                None => (std::mem::take(&mut self.rest), LineEnding::File),
            };
            let line = line.trim_ascii();
            if !line.is_empty() {
                let checked = check(line, ending, self.limit);
                return Some((self.number, checked.map_err(|what| TranscriptWarning::at(self.number, what))));
            }
        }
        None
    }
}

/// The lines of a file as JSON values, each with the bytes it came from.
pub(crate) fn values<'a>(
    bytes: &'a [u8],
    limits: &TranscriptLimits,
) -> impl Iterator<Item = (u64, Result<Json<'a>, TranscriptWarning>)> {
    lines(bytes, limits).map(|(number, line)| {
        let value = line.and_then(|line| {
            Json::parse(line, "a line")
                .map_err(|error| TranscriptWarning::at(number, format!("{error}; the line was left out")))
        });
        (number, value)
    })
}

/// End of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnding {
    Break,
    File,
}

fn check(line: &[u8], ending: LineEnding, limit: usize) -> Result<&str, String> {
    if line.len() > limit {
        return Err(format!(
            "the line has {} bytes, more than the limit of {limit}; it was left out: raise the limit to read it",
            line.len()
        ));
    }
    let text = std::str::from_utf8(line).map_err(|error| {
        format!("the line is not UTF-8 from its byte {} on; it was left out", error.valid_up_to())
    });
    let error = match (text, ending) {
        (Ok(text), _) => match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => return Ok(text),
            Err(error) => error,
        },
        (Err(_), LineEnding::File) => return Err(CUT_OFF.to_owned()),
        (Err(what), LineEnding::Break) => return Err(what),
    };
    Err(match ending {
        LineEnding::File if error.is_eof() => CUT_OFF.to_owned(),
        LineEnding::File | LineEnding::Break => format!("the line is not JSON ({error}); it was left out"),
    })
}

const CUT_OFF: &str = "the last line looks cut off; it will be read once it is complete";

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks each line as `number text` or `number ! warning`.
    fn check(bytes: &[u8], expect: &[&str]) {
        let limits = TranscriptLimits { line: 20, ..TranscriptLimits::default() };
        let shown: Vec<String> = lines(bytes, &limits)
            .map(|(number, line)| match line {
                Ok(text) => format!("{number} {text}"),
                Err(warning) => {
                    assert_eq!(warning.line, Some(number));
                    format!("{number} ! {}", warning.what)
                }
            })
            .collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn line_ends_marks_and_blank_lines_do_not_matter() {
        check(b"\xef\xbb\xbf{\"a\":1}\r\n\r\n  \n[2]\n3", &["1 {\"a\":1}", "4 [2]", "5 3"]);
        check(b"", &[]);
        check(b"\n\n", &[]);
    }

    #[test]
    fn a_line_that_cannot_be_used_leaves_the_others() {
        check(
            b"1\n{]\n\"\xff\"\n\"0123456789012345678901234567890\"\n{\"a\n2\n",
            &[
                "1 1",
                "2 ! the line is not JSON (key must be a string at line 1 column 2); it was left out",
                "3 ! the line is not UTF-8 from its byte 1 on; it was left out",
                "4 ! the line has 33 bytes, more than the limit of 20; it was left out: raise the limit to read it",
                "5 ! the line is not JSON (EOF while parsing a string at line 1 column 3); it was left out",
                "6 2",
            ],
        );
    }

    #[test]
    fn a_last_line_that_stops_in_the_middle_says_so() {
        let cut = &["1 1", "2 ! the last line looks cut off; it will be read once it is complete"];
        check(b"1\n{\"a\": [", cut);
        check("1\n\"é".as_bytes().split_last().expect("not empty").1, cut);
        check(
            b"1\nhello",
            &["1 1", "2 ! the line is not JSON (expected value at line 1 column 1); it was left out"],
        );
    }

    #[test]
    fn a_line_nested_too_deep_is_left_out() {
        let deep = format!("{}{}\n1", "[".repeat(200_000), "]".repeat(200_000));
        let read: Vec<_> =
            values(deep.as_bytes(), &TranscriptLimits::default()).map(|(_, value)| value.is_ok()).collect();
        assert_eq!(read, [false, true]);
    }
}
