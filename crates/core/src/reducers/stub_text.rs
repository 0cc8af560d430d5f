//! The words that stand for hidden content. Every stub gives its kind, its size, and the way to get it back;
//! the same thing is always described in the same words.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use crate::{
    context::{Context, EventNaming, Fidelity, FoldedTotals, Segment, SegmentEdit},
    event::ContentPart,
    media::{Media, MediaLocation},
    meter::Meter,
    reducers::failed_result::FailedResult,
};

/// Writes stubs for one context.
#[derive(Clone, Debug)]
pub(crate) struct StubWriter {
    pub(crate) names: EventNaming,
    pub(crate) meter: Arc<Meter>,
}

impl StubWriter {
    pub(crate) fn of(context: &Context) -> Self {
        Self { names: context.names(), meter: Arc::clone(context.meter()) }
    }

    /// `[read_file result expired: 214 lines, 3120 tokens; recall 1b2c3d4e:57]`
    pub(crate) fn result(&self, segment: &Segment, what: &str) -> SegmentEdit {
        let line = format!(
            "[{} result {what}: {}{}]",
            tool(segment),
            size(segment),
            self.recall_instruction(segment)
        );
        SegmentEdit::line(line, Fidelity::Stub)
    }

    /// `[image/png, 800x600, 48213 bytes, no longer shown; recall 1b2c3d4e:57]`
    pub(crate) fn media(&self, segment: &Segment, media: &Media) -> ContentPart {
        let mut text = String::from("[");
        text.push_str(if media.mime.is_empty() { "attachment" } else { &media.mime });
        if let Some((width, height)) = media.dimensions {
            let _ = write!(text, ", {width}x{height}");
        }
        if let MediaLocation::Inline { size, .. } = &media.place {
            let _ = write!(text, ", {size} bytes");
        }
        let _ = write!(text, ", no longer shown{}]", self.recall_instruction(segment));
        ContentPart::Text { text }
    }

    /// `[12 turns are not shown: 31 messages, 4 from the user, calls: bash ×9, grep ×2; 45210 tokens; recall 1b2c3d4e:5-88]`,
    /// or `[a summary of 60 messages is not shown; 1210 tokens; recall 1b2c3d4e:5-64]`.
    pub(crate) fn note(&self, folded: &FoldedTotals) -> String {
        let mut text = String::from("[");
        if folded.turn_count() > 0 {
            let turns = count(folded.turn_count(), "turn is", "turns are");
            let _ = write!(text, "{turns} not shown: {}", count(folded.messages(), "message", "messages"));
            if folded.user_messages > 0 {
                let _ = write!(text, ", {} from the user", folded.user_messages);
            }
            if !folded.calls.is_empty() {
                let _ = write!(text, ", calls: {}", calls(&folded.calls));
            }
            if !folded.summaries.is_empty() {
                let _ = write!(text, ", and {}", summary(folded));
            }
        } else {
            let _ = write!(text, "{} is not shown", summary(folded));
        }
        // A compaction's own place is long after the events that it describes.
        let told = folded.events.without(&folded.summaries);
        let events = if told.is_empty() { &folded.events } else { &told };
        let _ = write!(text, "; {} tokens{}]", folded.tokens, self.names.recall_suffix_all(events));
        text
    }

    /// Instruction for getting the replaced content back: `; recall 1b2c3d4e:57`, or empty if the model
    /// cannot.
    pub(crate) fn recall_instruction(&self, segment: &Segment) -> String {
        match segment.source() {
            Some(seq) => self.names.recall_suffix(seq),
            None => self.names.recall_suffix_all(segment.stands_for()),
        }
    }
}

/// The tool's name, short enough for a stub: a name is the model's word, and may be anything.
pub(crate) fn tool(segment: &Segment) -> String {
    segment.call().map_or_else(|| "tool".to_owned(), |call| shorten_to(&call.name.0, 64))
}

/// Failure, lines, attachments and tokens of the original content of a segment: a line that takes the place
/// of another line still describes the original.
pub(crate) fn size(segment: &Segment) -> String {
    let mut lines = 0;
    let mut media = 0;
    for (part, _) in segment.original() {
        part.visit_text(&mut |text| lines += text.lines().count() as u64);
        media += u64::from(matches!(part, ContentPart::Media(_)));
    }
    let mut size = String::new();
    if let Some(failure) = FailedResult::of(segment) {
        size.push_str("failed");
        if let Some(code) = failure.exit {
            let _ = write!(size, " with exit code {code}");
        }
        size.push_str(", ");
    }
    if lines > 0 || media == 0 {
        let _ = write!(size, "{}, ", count(lines, "line", "lines"));
    }
    if media > 0 {
        let _ = write!(size, "{}, ", count(media, "attachment", "attachments"));
    }
    let _ = write!(size, "{} tokens", segment.original_tokens());
    size
}

/// The beginning of the first line of `text`, at most `most` characters, with an ellipsis if there is more.
pub(crate) fn shorten_to(text: &str, most: usize) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default().trim_end();
    let end = line.char_indices().nth(most).map_or(line.len(), |(at, _)| at);
    let cut = &line[..end];
    if cut.len() < text.len() { format!("{}…", cut.trim_end()) } else { cut.to_owned() }
}

pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Description of the span of a hidden summary.
fn summary(folded: &FoldedTotals) -> String {
    match folded.summarised {
        0 => "a summary".to_owned(),
        messages => format!("a summary of {}", count(messages, "message", "messages")),
    }
}

/// The tools called most, at most four of them.
pub(crate) fn calls(calls: &BTreeMap<String, u64>) -> String {
    let mut by_count: Vec<(&String, &u64)> = calls.iter().collect();
    by_count.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
    let mut shown: Vec<String> =
        by_count.iter().take(4).map(|(tool, calls)| format!("{} ×{calls}", shorten_to(tool, 32))).collect();
    if by_count.len() > 4 {
        shown.push(format!("{} more tools", by_count.len() - 4));
    }
    shown.join(", ")
}
