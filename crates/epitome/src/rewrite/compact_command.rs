//! Requests that ask for a compaction instead of an answer: by a header, or by the user's last words.

use epitome_core::{ContentPart, Fact};
use epitome_wire::{
    caller::{Caller, RequestPurpose},
    incoming::{IncomingRequest, MessageMemo},
};

use super::{RequestOverrides, RewriteSettings, RewriteStatus};
use crate::recorder::RequestArrival;

/// Size of the memo for a request that is read once.
const MEMO_MESSAGES: usize = 1;

impl RewriteSettings {
    /// Returns true if a request asks for a compaction, so that a gateway that cannot have it
    /// [composed](super::compose) does not send it to a model.
    pub fn asks_for_compaction(&self, arrival: &RequestArrival<'_>, wishes: &RequestOverrides) -> bool {
        if wishes.compact.is_some() && arrival.purpose.is_none() {
            return true;
        }
        // Most requests do not contain the command at all. Its first character may be escaped, so the rest is
        // searched for.
        let said = self
            .command
            .as_deref()
            .map(|command| command.trim_start_matches(|sign: char| !sign.is_alphanumeric()));
        if !said.is_some_and(|said| arrival.body.contains(said)) {
            return false;
        }
        let Ok(seen) = IncomingRequest::read(arrival.format, arrival.body, &MessageMemo::new(MEMO_MESSAGES))
        else {
            return false;
        };
        requested_focus(self, wishes, arrival, &Caller::of(arrival.header, &seen), &seen).is_some()
    }
}

/// Focus of a compaction that a request asks for; `None` if it asks for none.
pub(super) fn requested_focus(
    composing: &RewriteSettings,
    wishes: &RequestOverrides,
    arrival: &RequestArrival<'_>,
    caller: &Caller,
    seen: &IncomingRequest<'_>,
) -> Option<String> {
    // A client that has its provider compact by another path wants that result, and not an answer of a model.
    if arrival.purpose.is_some() {
        return None;
    }
    if let Some(focus) = &wishes.compact {
        return Some(focus.clone());
    }
    let command = composing.command.as_deref().filter(|_| caller.purpose == RequestPurpose::Turn)?;
    let newest = seen.units().len().checked_sub(1)?;
    let events = seen.events(newest);
    let Some(Fact::UserSaid { parts }) = events.last().map(|event| &event.fact) else { return None };
    let focus = |part: &ContentPart| {
        let ContentPart::Text { text } = part else { return None };
        let rest = text.trim().strip_prefix(command)?;
        (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim().to_owned())
    };
    parts.iter().find_map(focus)
}

/// Answer to a request for a compaction, if no policy is in charge.
pub(super) fn refusal_text(left: RewriteStatus) -> String {
    let why = match left {
        RewriteStatus::Illegal => {
            "a message of it is one that its provider would refuse, and nothing is changed around it"
        }
        RewriteStatus::Composed | RewriteStatus::Unfit | RewriteStatus::Ahead => {
            "no request can be made of this session that its provider would take"
        }
        RewriteStatus::HeldOut => "this session is one of those that are left as they are, to compare with",
        RewriteStatus::Managed => "this session has its provider manage the context",
        RewriteStatus::Remote => "only the provider has the history of this session",
        RewriteStatus::Aside | RewriteStatus::OwnSummary => "this request is no part of the conversation",
    };
    format!("Nothing was compacted: {why}.")
}
