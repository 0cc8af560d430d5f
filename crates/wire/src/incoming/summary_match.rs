//! Recognition of a history that begins anew from a summary: the client's own compaction, made of a text that a model
//! wrote.
//!
//! Clients wrap the summary in words of their own and change its whitespace, so it is searched for inside the
//! messages. It may come after others: Codex repeats the users' messages before it.

use epitome_core::{ContentPart, Event};

use super::{IncomingRequest, UnitSpeaker, decode, piece_properties::is_kind};
use crate::json::Json;

/// Shortest text that counts as a summary, in letters.
const MIN_SUMMARY_LETTERS: usize = 20;

/// The first unit that repeats `summary`.
pub(super) fn find_summary(seen: &IncomingRequest<'_>, summary: &str) -> Option<usize> {
    let wanted = collapsed(inner(summary));
    let is_summary =
        wanted.chars().filter(|letter| letter.is_alphanumeric()).take(MIN_SUMMARY_LETTERS).count()
            == MIN_SUMMARY_LETTERS;
    let spans = seen.spans.iter().zip(&seen.units);
    let holds = |at: usize| {
        let Some(item) = seen.items.get(at) else { return false };
        if item.slice.raw.len() < wanted.len() {
            return false;
        }
        let encrypted = || {
            let item = Json::parse(item.slice.raw, "an item").ok()?;
            let hidden = is_kind(&item, "compaction").then(|| item.text_at("encrypted_content")).flatten();
            hidden.map(|hidden| !hidden.is_empty() && hidden == summary)
        };
        let said = || decode::event(seen, at).is_some_and(|event| texts(&event).contains(&wanted));
        encrypted().unwrap_or_else(|| is_summary && said())
    };
    let mut found = spans.enumerate().filter(|(_, (span, unit))| {
        matches!(unit.speaker, UnitSpeaker::User | UnitSpeaker::Model) && (*span).clone().any(holds)
    });
    found.next().map(|(index, _)| index)
}

/// The text inside `<summary>…</summary>`, or all of it.
fn inner(summary: &str) -> &str {
    let Some((_, after)) = summary.split_once("<summary>") else { return summary };
    after.rsplit_once("</summary>").map_or(after, |(inner, _)| inner)
}

/// A message's texts, in one line.
fn texts(event: &Event) -> String {
    let texts = event.fact.parts().iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(collapsed(text)),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
