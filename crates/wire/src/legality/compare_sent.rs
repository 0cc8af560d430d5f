//! A request compared with one that was sent before, for the rules that bind thinking and reasoning to their place.

use std::borrow::Cow;

use super::{ProviderRules, RequestViolation, ViolationKind, ViolationList, read, unreadable};
use crate::{cache_marks, format::Format, json::Json};

/// Finds everything that a provider would refuse about `now` because of `sent`, a request of the same session that it
/// accepted: thinking that is altered or, with [`PreservedThinking`](super::ProviderRule::PreservedThinking), before
/// which something has changed; thinking of an open tool loop that is gone; reasoning that is followed by another item;
/// a compaction of the provider's own that is altered; with
/// [`ReasoningReturned`](super::ProviderRule::ReasoningReturned), reasoning that led to calls and is altered.
///
/// `now` may go on where `sent` ends, and it may lack parts of `sent`. `cache_control` may move.
pub fn check_against(format: Format, sent: &str, now: &str, rules: &ProviderRules) -> Vec<RequestViolation> {
    let (sent, now) = match (read(sent), read(now)) {
        (Ok(sent), Ok(now)) => (sent, now),
        (Err(error), _) | (_, Err(error)) => return vec![unreadable(&error)],
    };
    let mut found = ViolationList::of(format);
    format.provider().check_against(&sent, &now, rules, &mut found);
    found.found
}

/// A compaction that only its provider can read.
pub(crate) struct SealedCompaction<'j> {
    message: usize,
    block: Option<usize>,
    seal: &'j str,
    /// Its bytes without cache marks.
    bytes: Cow<'j, str>,
}

impl<'j> SealedCompaction<'j> {
    /// Reads an item or block; `None` if it is no such compaction.
    pub(crate) fn read(message: usize, block: Option<usize>, json: &'j Json<'j>) -> Option<Self> {
        let is_compaction = matches!(json.text_at("type"), Some("compaction" | "compaction_summary"));
        let seal = json.text_at("encrypted_content").or_else(|| json.text_at("signature"))?;
        is_compaction.then(|| Self { message, block, seal, bytes: cache_marks::without(json) })
    }
}

/// Finds compactions in `now` that have the seal of one in `sent` but differ from it.
pub(crate) fn compare_compactions(
    sent: &[SealedCompaction<'_>],
    now: &[SealedCompaction<'_>],
    found: &mut ViolationList,
) {
    for SealedCompaction { message, block, seal, bytes } in now {
        let mut known = sent.iter().filter(|known| known.seal == *seal).peekable();
        if known.peek().is_some() && known.all(|known| known.bytes != *bytes) {
            found.add(*message, *block, ViolationKind::CompactionAltered);
        }
    }
}
