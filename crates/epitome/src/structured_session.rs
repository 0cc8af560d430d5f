//! A session by the sections of a structured summary: the model's current view as a checklist for a person or
//! another agent who continues it. It is made by code; text that a model wrote into the summary in force is
//! kept.

use epitome_core::{
    Tokens,
    context::{Context, Segment, SegmentBody},
    projection::EventLine,
    seq_set::SeqSet,
    summary::{
        SectionCaps, StructuredSummary,
        compaction::{CompactionSettings, CompactionSpan, carried_summary},
        summarise,
    },
};

/// A session by sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructuredSession {
    /// The content, item by item.
    pub brief: StructuredSummary,
    /// Events that it covers.
    pub covered: SeqSet,
    /// The content as Markdown.
    pub text: String,
    /// Tokens of the Markdown.
    pub tokens: Tokens,
}

/// Arranges everything that `context` shows of a line by sections, within `limit` tokens if possible; `None`
/// if it shows nothing.
pub fn structured(context: &Context, line: &EventLine, limit: Tokens) -> Option<StructuredSession> {
    let caps = SectionCaps::default();
    let brief = match CompactionSpan::of_everything(
        context,
        line,
        &CompactionSettings { caps, ..CompactionSettings::default() },
    ) {
        Some(cutting) => summarise(&cutting.events, cutting.previous.as_ref(), &caps),
        // The context shows a summary and nothing else.
        None => context.segments().iter().find_map(|segment| match segment.body() {
            SegmentBody::Summary(event) => carried_summary(event).map(|(_, brief)| brief),
            _ => None,
        })?,
    };
    let shown = &context.segments()[context.prefix_len()..];
    let covered = SeqSet::union(shown.iter().map(Segment::stands_for));
    let text = brief.render_sections(&covered, limit, context.meter(), context.names());
    let tokens = context.meter().text(&text);
    Some(StructuredSession { brief, covered, text, tokens })
}
