//! Positions in a request at which its provider's cache is asked to keep the prefix.
//!
//! A cache entry is written at a mark and found again from one, so marks are set where the next request will look.
//! One stands at the newest block and one at the block that was newest one call ago: then the next request finds all
//! of this one, however many blocks a turn adds. One stands at the end of the stable prefix and one after the
//! summary: then a reset costs only the part that was reset. If marks are to be placed, these replace all others, so
//! that there are never more than the provider takes and no two lifetimes conflict.

use std::{collections::BTreeSet, ops::Range};

use epitome_core::{
    cost::CacheLayer,
    profile::{CacheRules, CacheWriteMode},
};
use serde::{Deserialize, Serialize};

use super::{RenderedMessage, RenderedRequest};
use crate::{
    cache_marks,
    format::Format,
    json::Json,
    prompt_blocks::pieces::{PromptAuthor, PromptPiece, pieces},
};

/// Positions of cache marks in a request.
///
/// ```
/// use epitome_core::profile::Profiles;
/// use epitome_wire::render::CacheBreakpoints;
///
/// let profiles = Profiles::builtin();
/// let cache = |model: &str| profiles.find(model).map(|profile| profile.cache.clone()).unwrap_or_default();
/// let placed = CacheBreakpoints::of(&cache("claude-opus-4-5"), Some(3_600));
/// assert_eq!(placed, CacheBreakpoints::Placed { most: 4, lifetime: 3_600 });
/// assert_eq!(CacheBreakpoints::of(&cache("gpt-4.1"), None), CacheBreakpoints::AsSent);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CacheBreakpoints {
    /// At the client's own marks; if there are more than the provider takes, at the newest.
    #[default]
    AsSent,
    /// At the positions that pay, instead of the client's marks.
    Placed {
        /// Largest number of marks to set.
        most: u32,
        /// Lifetime asked for, in seconds. If a provider has only one lifetime, it is that.
        lifetime: u64,
    },
}

impl CacheBreakpoints {
    /// Returns the breakpoints that a model's cache accepts: as sent, if it accepts none. Of the lifetimes it knows,
    /// the shortest that is at least `lifetime` is chosen, or else the longest; the default if none is given.
    pub fn of(cache: &CacheRules, lifetime: Option<u64>) -> Self {
        let most = match cache.written {
            Some(CacheWriteMode::Breakpoints) => cache.breakpoints.unwrap_or(MAX_BREAKPOINTS),
            // The provider sets one mark itself.
            Some(CacheWriteMode::ImplicitAndExplicit) => {
                cache.breakpoints.unwrap_or(MAX_BREAKPOINTS).saturating_sub(1)
            }
            Some(CacheWriteMode::Automatic) | None => 0,
        };
        let known = cache.lifetimes.as_deref().unwrap_or_default();
        let long_enough = |wanted: u64| known.iter().copied().filter(|known| *known >= wanted).min();
        let asked = match lifetime {
            Some(wanted) => long_enough(wanted).or_else(|| known.iter().copied().max()),
            None => known.first().copied(),
        };
        match asked {
            Some(lifetime) if most > 0 => Self::Placed { most, lifetime },
            _ => Self::AsSent,
        }
    }
}

/// Largest number of marks that any provider takes.
pub(crate) const MAX_BREAKPOINTS: u32 = 4;

/// Sets the marks of a request. `summary` is the text of the summary that it stands on.
pub(super) fn apply(
    format: Format,
    rendered: RenderedRequest,
    breakpoints: CacheBreakpoints,
    summary: Option<&str>,
) -> RenderedRequest {
    let edits = match breakpoints {
        CacheBreakpoints::AsSent => surplus(format, &rendered.body),
        CacheBreakpoints::Placed { most, lifetime } => {
            let places = MarkPlacer { format, summary, most: most.min(MAX_BREAKPOINTS), lifetime };
            Json::parse(&rendered.body, "a rendered request")
                .map_or_else(|_| Vec::new(), |json| places.edits(&json))
        }
    };
    if edits.is_empty() { rendered } else { edited(&rendered, edits) }
}

/// Counts the marks of a request.
pub(crate) fn count(format: Format, request: &Json<'_>) -> usize {
    all(format, request).iter().filter(|(mark, _)| mark.requests_caching()).count()
}

/// All marks that a format's provider reads, each with true if it is in the history.
fn all<'j>(format: Format, request: &'j Json<'j>) -> Vec<(cache_marks::CacheMark<'j>, bool)> {
    let provider = format.provider();
    let keys = provider.facts().keys;
    let mut found = Vec::new();
    // Marks of the tools, and of the request itself.
    cache_marks::each(request, &mut |mark| found.push((mark, false)));
    for block in keys.system.map(|key| request.array_at(key)).unwrap_or_default() {
        cache_marks::each(block, &mut |mark| found.push((mark, false)));
    }
    for message in request.array_at(keys.history) {
        cache_marks::each(message, &mut |mark| found.push((mark, true)));
    }
    found.retain(|(mark, _)| Some(mark.key) == provider.facts().cache.mark_key);
    found
}

/// A byte range and its replacement.
pub(crate) type MarkEdit = (Range<usize>, String);

/// Finds the marks to cut if a client set more than its provider takes. A log keeps each message as it first came,
/// with its mark as the newest message; so over time all messages have one.
fn surplus(format: Format, body: &str) -> Vec<MarkEdit> {
    let Some(key) = format.facts().cache.mark_key else { return Vec::new() };
    if body.matches(key).count() <= MAX_BREAKPOINTS as usize {
        return Vec::new();
    }
    let Ok(request) = Json::parse(body, "a rendered request") else { return Vec::new() };
    let (history, standing): (Vec<_>, Vec<_>) = all(format, &request)
        .into_iter()
        .filter(|(mark, _)| mark.requests_caching())
        .partition(|(_, is_said)| *is_said);
    if history.len() + standing.len() <= MAX_BREAKPOINTS as usize {
        return Vec::new();
    }
    let standing_kept = standing.len().min(2.max((MAX_BREAKPOINTS as usize).saturating_sub(history.len())));
    let history_kept = (MAX_BREAKPOINTS as usize - standing_kept).min(history.len());
    let gone = |marks: &[(cache_marks::CacheMark<'_>, bool)], kept: usize| {
        let gone = marks.len() - kept;
        marks[..gone].iter().map(|(mark, _)| (mark.cut.clone(), String::new())).collect::<Vec<_>>()
    };
    [gone(&standing, standing_kept), gone(&history, history_kept)].concat()
}

/// Positions for marks.
pub(crate) struct MarkPlacer<'s> {
    format: Format,
    summary: Option<&'s str>,
    most: u32,
    pub(crate) lifetime: u64,
}

impl MarkPlacer<'_> {
    fn edits(&self, request: &Json<'_>) -> Vec<MarkEdit> {
        let pieces = pieces(self.format, request);
        let cuts = all(self.format, request).into_iter().map(|(mark, _)| (mark.cut, String::new()));
        let marks = self.chosen(&pieces).into_iter().filter_map(|place| self.mark(&pieces[place]));
        cuts.filter(|(cut, _)| !cut.is_empty()).chain(marks).collect()
    }

    /// Chooses the pieces to mark, the most useful first, up to the largest number.
    fn chosen(&self, pieces: &[PromptPiece<'_>]) -> BTreeSet<usize> {
        let last_of = |layer: CacheLayer| pieces.iter().rposition(|piece| piece.layer == layer);
        let newest = last_of(CacheLayer::Messages);
        let mut before = pieces
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, piece)| piece.layer == CacheLayer::Messages)
            .peekable();
        while before.next_if(|(_, piece)| piece.by == PromptAuthor::Client).is_some() {}
        while before.next_if(|(_, piece)| piece.by == PromptAuthor::Model).is_some() {}
        let previous = before.next().map(|(place, _)| place);
        let summary = self.summary.and_then(|summary| {
            pieces
                .iter()
                .position(|piece| piece.layer == CacheLayer::Messages && text(piece) == Some(summary))
        });
        let (system, tools) = (last_of(CacheLayer::System), last_of(CacheLayer::Tools));
        // Other providers mark the newest block themselves.
        let newest = newest.filter(|_| self.format.facts().cache.only_at_marks);
        let wanted = [newest, previous, system.or(tools), summary, tools];
        let mut chosen = BTreeSet::new();
        for place in wanted.into_iter().flatten().filter_map(|place| self.nearest(pieces, place)) {
            if chosen.len() < self.most as usize {
                chosen.insert(place);
            }
        }
        chosen
    }

    /// The piece at an index, or the last one before it in its layer that can be marked.
    fn nearest(&self, pieces: &[PromptPiece<'_>], place: usize) -> Option<usize> {
        let same = pieces.get(..=place)?.iter().enumerate().rev();
        same.take_while(|(_, piece)| piece.layer == pieces[place].layer)
            .find(|(_, piece)| self.mark(piece).is_some())
            .map(|(place, _)| place)
    }

    /// The edit that marks a piece; `None` if its provider takes no mark there.
    fn mark(&self, piece: &PromptPiece<'_>) -> Option<MarkEdit> {
        self.format.provider().mark_piece(self, piece)
    }
}

/// Marks an object with a member.
pub(crate) fn added(object: &Json<'_>, member: &str) -> Option<MarkEdit> {
    let at = cache_marks::last_member_end(object)?;
    Some((at..at, format!(",{member}")))
}

/// Marks a string by turning it into the list of the one block that it stands for.
pub(crate) fn listed(kind: &str, string: &Json<'_>, member: &str) -> Option<MarkEdit> {
    says_something(string.as_text()?).then(|| {
        let list = format!(r#"[{{"type":"{kind}","text":{},{member}}}]"#, string.raw);
        (string.start..cache_marks::end(string), list)
    })
}

/// Text of a piece, if it has one.
fn text<'p>(piece: &'p PromptPiece<'_>) -> Option<&'p str> {
    piece.json.as_text().or_else(|| piece.json.text_at("text"))
}

/// Returns true if a text is more than white space.
pub(crate) fn says_something(text: &str) -> bool {
    !text.trim().is_empty()
}

/// Returns the request with its edits made, which do not overlap.
fn edited(rendered: &RenderedRequest, mut edits: Vec<MarkEdit>) -> RenderedRequest {
    // Positions are counted without the whitespace before the request.
    let lead = rendered.body.len() - rendered.body.trim_start_matches([' ', '\t', '\n', '\r']).len();
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut body = String::with_capacity(rendered.body.len() + 256);
    let mut from = 0;
    // End of each edit in the old body and in the new one.
    let mut ends: Vec<(usize, usize)> = Vec::with_capacity(edits.len());
    for (range, with) in edits {
        body.push_str(rendered.body.get(from..range.start + lead).unwrap_or_default());
        body.push_str(&with);
        from = range.end + lead;
        ends.push((from, body.len()));
    }
    body.push_str(rendered.body.get(from..).unwrap_or_default());
    let moved = |place: usize| {
        let before = ends.partition_point(|(old, _)| *old <= place);
        let (old, new) = before.checked_sub(1).map_or((0, 0), |last| ends[last]);
        place - old + new
    };
    let message = |message: &RenderedMessage| RenderedMessage {
        bytes: moved(message.bytes.start)..moved(message.bytes.end),
        events: message.events.clone(),
    };
    let messages = rendered.messages.iter().map(message).collect();
    RenderedRequest { body, messages }
}
