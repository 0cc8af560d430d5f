//! A session by the sections of a structured summary: the model's current view as a checklist for a person or
//! another agent who continues it. It is made by code; text that a model wrote into the summary in force is
//! kept.

use epitome_core::{
    Tokens,
    context::{Body, Context, Segment},
    project::Line,
    seq_set::SeqSet,
    summary::{
        Brief, Caps,
        compaction::{Cutting, Drafting, standing},
        summarise,
    },
};

/// A session by sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructuredSession {
    /// The content, item by item.
    pub brief: Brief,
    /// Events that it covers.
    pub covered: SeqSet,
    /// The content as Markdown.
    pub text: String,
    /// Tokens of the Markdown.
    pub tokens: Tokens,
}

/// Arranges everything that `context` shows of a line by sections, within `limit` tokens if possible; `None`
/// if it shows nothing.
pub fn structured(context: &Context, line: &Line, limit: Tokens) -> Option<StructuredSession> {
    let caps = Caps::default();
    let brief = match Cutting::whole(context, line, &Drafting { caps, ..Drafting::default() }) {
        Some(cutting) => summarise(&cutting.events, cutting.previous.as_ref(), &caps),
        // The context shows a summary and nothing else.
        None => context.segments().iter().find_map(|segment| match segment.body() {
            Body::Summary(event) => standing(event).map(|(_, brief)| brief),
            _ => None,
        })?,
    };
    let shown = &context.segments()[context.prefix_len()..];
    let covered = SeqSet::union(shown.iter().map(Segment::stands_for));
    let text = brief.render_sections(&covered, limit, context.meter(), context.names());
    let tokens = context.meter().text(&text);
    Some(StructuredSession { brief, covered, text, tokens })
}
