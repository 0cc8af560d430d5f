//! Compactions by clients: they have a summary made, and go on with a history that begins with it. That history
//! continues the session, as a compaction turn.

use epitome_core::{
    ContentPart, Digest, Event, Fact, Seq,
    event::{Compaction, CompactionTrigger, RawJson, Summary},
};
use epitome_store::{Store, StoreError, records::ThreadRow};
use epitome_wire::incoming::IncomingRequest;

/// Number of a thread's last events that are searched for messages that the client kept.
const TAIL: u64 = 2_048;

/// The summary in an answer to a client that asked for one: the one that was written beside it if it was ours.
pub(super) fn summary_in(answer: &[Event]) -> Option<Summary> {
    let mut text = String::new();
    for event in answer {
        if let Fact::Compacted(compaction) = &event.fact {
            return Some(compaction.summary.clone());
        }
        let Fact::AssistantSaid { parts, .. } = &event.fact else { continue };
        for part in parts {
            match part {
                ContentPart::Opaque { name, json } if name == "compaction" => {
                    let item: serde_json::Value = serde_json::from_str(json).ok()?;
                    let sealed = item.get("encrypted_content")?.as_str()?;
                    return Some(Summary::Encrypted(sealed.to_owned()));
                }
                ContentPart::Text { text: said } => text.push_str(said),
                _ => {}
            }
        }
    }
    (!text.trim().is_empty()).then_some(Summary::Text(text))
}

/// The words, or the seal, by which a summary is recognised.
pub(super) fn mark(summary: &Summary) -> &str {
    match summary {
        Summary::Text(text) | Summary::Structured { text, .. } => text,
        Summary::Encrypted(sealed) => sealed,
    }
}

/// A history that begins with a summary, as the continuation of a thread.
pub(super) struct SummaryContinuation {
    /// The compaction turn.
    pub(super) event: Event,
    /// The first unit after those that the client kept.
    pub(super) from: usize,
}

/// The turn with which `thread` continues with the history in `seen`, whose unit `at` repeats `summary`. `links` are
/// the normalised chain after each unit.
pub(super) fn continuation(
    store: &dyn Store,
    thread: &ThreadRow,
    seen: &IncomingRequest<'_>,
    links: &[Digest],
    at: usize,
    summary: Summary,
) -> Result<SummaryContinuation, StoreError> {
    let first = Seq(thread.head.seq.0.saturating_sub(TAIL) + 1);
    let tail: Vec<(Seq, Digest)> = store
        .digests(thread.id, first, usize::try_from(TAIL).unwrap_or(usize::MAX))?
        .into_iter()
        .filter_map(|(seq, digest, _)| Some((seq, digest?)))
        .collect();
    let after: Vec<Digest> = seen.units()[at + 1..].iter().map(|unit| unit.digest).collect();
    let kept = kept(&tail, &after);
    let first_kept = tail.len().checked_sub(kept).and_then(|place| tail.get(place)).map(|(seq, _)| *seq);
    let from = at + 1 + kept;
    let through = first_kept.map_or(thread.head.seq, Seq::previous);
    let compaction = Compaction {
        summary,
        through,
        first_kept,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Unknown,
    };
    let raw = RawJson { dialect: seen.format().dialect(), json: seen.raw(from).into() };
    let event =
        Event { time: None, origin: None, fact: Fact::Compacted(compaction), raw, normal: Some(links[from]) };
    Ok(SummaryContinuation { event, from })
}

/// Number of the thread's last events that `after` begins with.
fn kept(tail: &[(Seq, Digest)], after: &[Digest]) -> usize {
    let most = tail.len().min(after.len());
    let is_kept = |count: &usize| {
        let kept = tail[tail.len() - count..].iter().map(|(_, digest)| digest);
        kept.eq(after[..*count].iter())
    };
    (1..=most).rev().find(is_kept).unwrap_or(0)
}
