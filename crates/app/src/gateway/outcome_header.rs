//! The header `x-epitome`, which tells the client how a request in mode `compact` was treated: a dictionary
//! of RFC 9651.
//!
//! `x-epitome: epoch=3, before=182034, after=61022, left=composed, call="<thread>:<number>",
//! cause="threshold"`. If nothing was composed, `left` alone says why. It is `composed` without numbers if a
//! long new request was sent as it came and is still being counted.

use std::fmt::Write;

use epitome::{
    core::Tokens,
    rewrite::{RewriteReport, RewriteStatus},
};
use http::{HeaderName, HeaderValue};

/// Name of the header.
pub(super) const OUTCOME_HEADER: HeaderName = HeaderName::from_static("x-epitome");

/// Treatment of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CompactOutcome {
    /// A policy was applied, with this result.
    Composed(RewriteReport),
    /// Sent as it came, because it is new and fits; its count is not known yet.
    Whole,
    /// Sent as it came, because it could not be recorded, or not in time.
    Unrecorded,
    /// Answered by the gateway itself.
    Answered,
    /// A client's own request for a summary, answered with ours.
    Summarised,
    /// Not sent.
    Refused,
}

impl CompactOutcome {
    /// Result of composing, if the request was sent and is recorded.
    pub(super) fn done(&self) -> Option<&RewriteReport> {
        match self {
            Self::Composed(done) => Some(done),
            Self::Whole | Self::Unrecorded | Self::Answered | Self::Summarised | Self::Refused => None,
        }
    }

    /// Writes the value of the header.
    pub(super) fn header(&self) -> HeaderValue {
        let text = match self {
            Self::Composed(done) => composed(done),
            Self::Whole => format!("left={}", RewriteStatus::Composed.name()),
            Self::Unrecorded => "left=unrecorded".to_owned(),
            Self::Answered => "left=answered".to_owned(),
            Self::Summarised => "left=summarised".to_owned(),
            Self::Refused => "left=refused".to_owned(),
        };
        // The text is printable ASCII only.
        HeaderValue::from_maybe_shared(bytes::Bytes::from(text))
            .unwrap_or_else(|_| HeaderValue::from_static("left=composed"))
    }
}

fn composed(done: &RewriteReport) -> String {
    let RewriteReport { call, epoch, cause, before, after, left, .. } = done;
    let number = |Tokens(tokens): Tokens| integer(tokens);
    let mut text = format!(
        "epoch={}, before={}, after={}, left={}",
        integer(*epoch),
        number(*before),
        number(*after),
        left.name()
    );
    if let Some((thread, number)) = call {
        // Writing to a string cannot fail.
        let _ = write!(text, ", call={}", string(&format!("{thread}:{number}")));
    }
    if let Some(cause) = cause {
        let _ = write!(text, ", cause={}", string(cause));
    }
    text
}

/// Limits a number to the largest integer that the format allows.
fn integer(number: u64) -> u64 {
    number.min(999_999_999_999_999)
}

/// Writes a string, which may hold printable ASCII only.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ => quoted.push('?'),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use epitome::{core::ThreadId, rewrite::ClientCache};

    use super::*;

    #[track_caller]
    fn check(fate: &CompactOutcome, expect: &str) {
        assert_eq!(fate.header().to_str().expect("ASCII"), expect);
    }

    #[test]
    fn a_header_says_what_was_done_in_words_that_fit_into_one() {
        let thread = ThreadId::derived(&["test"]);
        let done = RewriteReport {
            call: Some((thread, 7)),
            epoch: 3,
            cause: Some("threshold".to_owned()),
            before: Tokens(182_034),
            after: Tokens(61_022),
            cache: ClientCache::AsUsed,
            compaction: None,
            left: RewriteStatus::Composed,
        };
        let start = "epoch=3, before=182034, after=61022, left=composed";
        check(
            &CompactOutcome::Composed(done.clone()),
            &format!("{start}, call=\"{thread}:7\", cause=\"threshold\""),
        );
        let odd = RewriteReport { cause: Some("a\"b\\c\r\né".to_owned()), call: None, ..done.clone() };
        check(&CompactOutcome::Composed(odd), &format!("{start}, cause=\"a\\\"b\\\\c???\""));
        let bare = RewriteReport {
            cause: None,
            call: None,
            before: Tokens(u64::MAX),
            left: RewriteStatus::HeldOut,
            ..done
        };
        check(&CompactOutcome::Composed(bare), "epoch=3, before=999999999999999, after=61022, left=held-out");
        check(&CompactOutcome::Unrecorded, "left=unrecorded");
        check(&CompactOutcome::Whole, "left=composed");
    }
}
