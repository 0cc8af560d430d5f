//! The words that stand for what is not shown. Every stub says what was there, its size, and how to get it back.

use crate::{
    context::{Edit, Fidelity, Names, Segment},
    event::Part,
    meter::Meter,
};

/// Replaces a result with a line: `[read_file result expired: 214 lines, 3120 tokens; recall 1b2c3d4e:57]`.
/// A result that is smaller than the line stays.
pub(super) fn result(names: Names, meter: &Meter, segment: &Segment, what: &str) -> Edit {
    let tool = segment.call().map_or("tool", |call| call.name.0.as_str());
    let line = format!("[{tool} result {what}: {}; {}]", size(segment), handle(names, segment));
    smaller(meter, segment, line, Fidelity::Stub)
}

/// Shows `line` instead, if that is smaller.
pub(super) fn smaller(meter: &Meter, segment: &Segment, line: String, fidelity: Fidelity) -> Edit {
    if meter.text(&line) >= segment.content_tokens() {
        return Edit::Keep;
    }
    Edit::Replace { parts: vec![Part::Text { text: line }], fidelity }
}

/// How to get back what a segment stands for; for an exchange, its result.
pub(super) fn handle(names: Names, segment: &Segment) -> String {
    segment.stands_for().last().map_or_else(String::new, |seq| names.handle(*seq))
}

/// Lines, attachments and tokens of what a segment shows now.
pub(super) fn size(segment: &Segment) -> String {
    let mut lines = 0;
    let mut media = 0;
    for part in segment.shown().unwrap_or_default() {
        part.visit_text(&mut |text| lines += text.lines().count());
        media += usize::from(matches!(part, Part::Media(_)));
    }
    let media = match media {
        0 => String::new(),
        1 => ", 1 attachment".to_owned(),
        many => format!(", {many} attachments"),
    };
    format!("{lines} lines{media}, {} tokens", segment.content_tokens())
}
