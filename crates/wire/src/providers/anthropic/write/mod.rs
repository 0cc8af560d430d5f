//! Writes lines as Anthropic messages.
//!
//! A message is drafted as a list of blocks, each of which knows its source. A draft that is still exactly the blocks
//! of one event leaves with that event's bytes; so legality costs only the messages it touches.

mod block;
mod draft;

use crate::write::{
    AlternatingRole, HistoryLine, ShownContent, ShownFragment, ShownOutcome, SourceEvent, WriteOptions,
    WrittenMessage,
    call_ids::{IdScope, WrittenCallIds},
};
use crate::{
    json::{Json, quote},
    legality::ProviderRule,
};
use block::{AnthropicBlock, AnthropicBlockKind, AnthropicWriter};
use draft::AnthropicDraft;

/// Writes the history.
pub(crate) fn write(lines: &[HistoryLine<'_, '_>], manner: WriteOptions<'_>) -> Vec<WrittenMessage> {
    let unique = if manner.is_legal() { IdScope::InRequest } else { IdScope::Nowhere };
    let ids = WrittenCallIds::of(lines, unique, block::call_id, |_, _| false);
    let pen = AnthropicWriter { ids: &ids, manner };
    let mut drafts: Vec<AnthropicDraft<'_>> = lines.iter().filter_map(|line| drafted(line, pen)).collect();
    if manner.is_legal() {
        drafts = legal(drafts, manner);
    }
    drafts.into_iter().map(AnthropicDraft::written).collect()
}

/// A message in the user's name.
pub(crate) fn words(text: &str) -> String {
    draft::message("user", &format!("[{}]", block::text(text).json))
}

/// Returns true if a message is an answer that ends with a text that ends in white space.
pub(crate) fn is_answer_ended(message: &str) -> bool {
    let Ok(message) = Json::parse(message, "a message") else { return false };
    if message.text_at("role") != Some("assistant") {
        return false;
    }
    let content = message.get("content");
    let last = content.and_then(Json::as_array).and_then(<[Json<'_>]>::last);
    let text = match last {
        Some(block) => block.text_at("text"),
        None => content.and_then(Json::as_text),
    };
    text.is_some_and(|text| text.ends_with(char::is_whitespace))
}

/// Writes the system prompt of texts that came in another format.
pub(crate) fn system(texts: &[String]) -> String {
    match texts {
        [only] => quote(only),
        several => {
            let blocks: Vec<_> = several.iter().map(|text| block::text(text).json).collect();
            format!("[{}]", blocks.join(","))
        }
    }
}

pub(crate) use block::without_blanks;

/// Drafts a line's messages: at most one, except for events that are recorded each by itself.
fn drafted<'e>(line: &HistoryLine<'e, 'e>, pen: AnthropicWriter<'e, '_>) -> Option<AnthropicDraft<'e>> {
    match line {
        HistoryLine::Whole(entries) => joined(entries.iter().map(|entry| whole(entry, pen))),
        HistoryLine::Said(entry, shown) => said(entry, *shown, pen),
        HistoryLine::Answer(fragments) => joined(fragments.iter().map(|fragment| answer(fragment, pen))),
        HistoryLine::Returned(outcomes) => {
            let mut draft = AnthropicDraft::new("user");
            for outcome in outcomes {
                let entry = outcome.result.map(|result| result.entry);
                draft.absorb(AnthropicDraft::with("user", result(outcome, pen), entry));
            }
            Some(draft)
        }
        HistoryLine::Words { by, text, origin } => {
            let role = if *by == AlternatingRole::Assistant { "assistant" } else { "user" };
            let mut draft = AnthropicDraft::with(role, Some(block::text(text)), None);
            draft.events.extend(origin);
            Some(draft)
        }
    }
}

/// Joins several drafts into one.
fn joined<'e>(drafts: impl Iterator<Item = Option<AnthropicDraft<'e>>>) -> Option<AnthropicDraft<'e>> {
    drafts.flatten().reduce(|mut first, next| {
        first.absorb(next);
        first
    })
}

/// The message an event is, or `None` if it has no content that can be written here.
fn whole<'e>(entry: &'e SourceEvent<'e>, pen: AnthropicWriter<'e, '_>) -> Option<AnthropicDraft<'e>> {
    if let Some(own) = &entry.own {
        let role = own.text_at("role").unwrap_or_default();
        return Some(AnthropicDraft::with(role, pen.own_blocks(entry, own), Some(entry)));
    }
    let blocks = pen.foreign(entry);
    (!blocks.is_empty()).then(|| AnthropicDraft::with(block::role(&entry.event.fact), blocks, Some(entry)))
}

/// Content of an event without its results.
fn said<'e>(
    entry: &'e SourceEvent<'e>,
    shown: ShownContent<'e>,
    pen: AnthropicWriter<'e, '_>,
) -> Option<AnthropicDraft<'e>> {
    let mut draft = whole(entry, pen)?;
    let has_results = !entry.event.fact.results().is_empty();
    draft.blocks.retain(|block| block.kind != AnthropicBlockKind::Result || !has_results);
    if let ShownContent::Replaced(parts) = shown {
        draft.blocks = pen.replaced(entry, &draft.blocks, parts);
    }
    (!has_results || !draft.blocks.is_empty()).then_some(draft)
}

fn answer<'e>(fragment: &ShownFragment<'e, 'e>, pen: AnthropicWriter<'e, '_>) -> Option<AnthropicDraft<'e>> {
    let entry = fragment.entry;
    let Some(own) = &entry.own else {
        let blocks = pen.foreign_parts(fragment);
        return (!blocks.is_empty()).then(|| AnthropicDraft::with("assistant", blocks, Some(entry)));
    };
    let mut blocks = pen.own_blocks(entry, own);
    if fragment.places.is_some() {
        // Part and block have the same index, or else it is unknown which block shows which part.
        if blocks.len() == entry.parts().len() {
            let mut places = 0..;
            blocks.retain(|_| places.next().is_some_and(|place| fragment.shows(place)));
        } else {
            blocks = pen.foreign_parts(fragment);
        }
    }
    let mut draft = AnthropicDraft::with(own.text_at("role").unwrap_or_default(), blocks, Some(entry));
    draft.is_parted = fragment.places.is_some();
    Some(draft)
}

fn result<'e>(outcome: &ShownOutcome<'e, 'e>, pen: AnthropicWriter<'e, '_>) -> Option<AnthropicBlock<'e>> {
    match (&outcome.result, &outcome.site) {
        (Some(returned), site) => pen.result(returned, site.as_ref()),
        (None, Some(site)) => Some(pen.stand_in(site)),
        (None, None) => None,
    }
}

/// Makes drafts acceptable to the provider: no empty text, no unreadable block, no answer that ends with thinking,
/// alternating roles, and results first.
fn legal<'e>(mut drafts: Vec<AnthropicDraft<'e>>, manner: WriteOptions<'_>) -> Vec<AnthropicDraft<'e>> {
    let mut begun = false;
    for draft in &mut drafts {
        draft.blocks.retain(|block| {
            // A signed compaction stands for the messages before it: if they are still there, it is left out.
            let keep = match block.kind {
                AnthropicBlockKind::BlankText | AnthropicBlockKind::Broken => false,
                AnthropicBlockKind::Compaction => !begun,
                AnthropicBlockKind::Result | AnthropicBlockKind::Thinking | AnthropicBlockKind::Other => true,
            };
            begun |= keep;
            keep
        });
        // Thinking at the end of an answer is dropped before answers are joined: it did not lead to the next one.
        if draft.speaker() == AlternatingRole::Assistant {
            let said = draft.blocks.iter().rposition(|block| block.kind != AnthropicBlockKind::Thinking);
            draft.blocks.truncate(said.map_or(0, |last| last + 1));
        }
    }
    let mut merged = merged(drafts, manner);
    for draft in &mut merged {
        // Stable: results keep their order, and so does the rest.
        draft.blocks.sort_by_key(|block| block.kind != AnthropicBlockKind::Result);
    }
    merged
}

/// Drafts without the empty ones, neighbours of one role joined.
fn merged<'e>(drafts: Vec<AnthropicDraft<'e>>, manner: WriteOptions<'_>) -> Vec<AnthropicDraft<'e>> {
    let mut merged: Vec<AnthropicDraft<'e>> = Vec::new();
    for draft in drafts.into_iter().filter(|draft| !draft.blocks.is_empty() || draft.role.is_empty()) {
        match merged.last_mut() {
            Some(last)
                if last.role == draft.role
                    && last.speaker() != AlternatingRole::Other
                    && (manner.demands(ProviderRule::RolesAlternate) || last.continues(&draft)) =>
            {
                last.absorb(draft);
            }
            _ => merged.push(draft),
        }
    }
    merged
}
