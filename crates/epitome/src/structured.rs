//! A session by the sections of a structured summary: what the model sees of it now, as a checklist that a person or another
//! agent goes on from. It is made by code; what a model wrote into a summary that is in force stays in it.

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
    /// What it holds, item by item.
    pub brief: Brief,
    /// The events it stands for.
    pub covered: SeqSet,
    /// The same as Markdown.
    pub text: String,
    /// What that costs.
    pub tokens: Tokens,
}

/// Everything that `context` shows of a line, by sections, within `limit` tokens if that can be; `None` if it shows nothing.
pub fn structured(context: &Context, line: &Line, limit: Tokens) -> Option<StructuredSession> {
    let caps = Caps::default();
    let brief = match Cutting::whole(context, line, &Drafting { caps, ..Drafting::default() }) {
        Some(cutting) => summarise(&cutting.events, cutting.previous.as_ref(), &caps),
        // All that is shown is a summary.
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
