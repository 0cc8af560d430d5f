//! An answer in one piece of JSON: kept to its end, then shown without calls of the tool, after the answers before
//! it.

use super::{
    splice::{MAX_ANSWER_BYTES, RecallCalls, SpliceVerdict},
    splice_state::EndReason,
    stream::error,
};
use crate::{
    format::Format,
    json::{self, Json},
};

/// An answer in one piece on its way.
#[derive(Debug)]
pub(crate) struct UnstreamedSplice {
    format: Format,
    body: Vec<u8>,
    /// The client's version of the answers before, as one.
    before: Option<String>,
    limit: usize,
    /// True if it has become too large, so that it is passed as it comes.
    is_exposed: bool,
}

/// Calls of an answer, and the reason it ended.
pub(crate) struct AnswerCalls {
    pub(crate) ours: bool,
    pub(crate) others: bool,
    pub(crate) reason: EndReason,
}

impl UnstreamedSplice {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, body: Vec::new(), before: None, limit: MAX_ANSWER_BYTES, is_exposed: false }
    }

    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(crate) fn push(&mut self, bytes: &[u8], seen: &mut Vec<u8>) {
        self.body.extend_from_slice(bytes);
        self.is_exposed |= self.body.len() > self.limit;
        if self.is_exposed {
            seen.append(&mut self.body);
        }
    }

    pub(crate) fn end(&mut self, seen: &mut Vec<u8>) -> SpliceVerdict {
        let mut body = std::mem::take(&mut self.body);
        if self.is_exposed {
            return SpliceVerdict::Exposed;
        }
        let provider = self.format.provider();
        let text = str::from_utf8(&body).ok();
        let read = text.and_then(|text| Json::parse(text, "an answer").ok());
        let Some(answer) = read.filter(|answer| provider.is_whole_answer(answer)) else {
            seen.append(&mut body);
            return if self.before.is_some() {
                SpliceVerdict::Continued { answer: None }
            } else {
                SpliceVerdict::Passed
            };
        };
        let called = provider.answer_calls(&answer);
        if !called.ours && self.before.is_none() {
            seen.append(&mut body);
            return SpliceVerdict::Passed;
        }
        let shown = provider.without_recalls(&answer);
        let joined = match self.before.take() {
            Some(before) => joined(self.format, &before, &shown),
            None => shown,
        };
        if !called.ours {
            seen.extend(joined.into_bytes());
            return SpliceVerdict::Continued { answer: Some(answer.raw.to_owned()) };
        }
        let recalls = RecallCalls::of(self.format, answer.raw.to_owned());
        match (called.reason, called.others) {
            // The calls cannot be read, so nobody can answer them.
            (EndReason::Done, false) if recalls.calls.is_empty() => {
                seen.append(&mut body);
                SpliceVerdict::Exposed
            }
            (EndReason::Done, false) => {
                self.before = Some(joined);
                SpliceVerdict::Recall(recalls)
            }
            (reason, _) => {
                seen.extend(joined.into_bytes());
                if reason == EndReason::Done {
                    SpliceVerdict::Mixed(recalls)
                } else {
                    SpliceVerdict::LeftOut(recalls)
                }
            }
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.body.clear();
        self.is_exposed = false;
    }

    pub(crate) fn fail(&mut self, message: &str) -> Vec<u8> {
        self.body.clear();
        error(self.format, message).into_bytes()
    }
}

/// Joins two answers: the second, with the first one's content before its own, under the id that the client knows.
fn joined(format: Format, before: &str, answer: &str) -> String {
    let read = |text| Json::parse(text, "an answer").ok();
    let (Some(first), Some(last)) = (read(before), read(answer)) else { return answer.to_owned() };
    let edits = format.provider().joined_answers(&first, &last);
    let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
    json::replace_members(&last, &edits)
}

/// The edit that gives a member of an answer the value it has in the one before.
pub(crate) fn taken<'j>(key: &str, first: &Json<'_>, last: &'j Json<'j>) -> Option<(&'j Json<'j>, String)> {
    last.get(key).zip(first.get(key)).map(|(old, new)| (old, new.raw.to_owned()))
}

/// An answer in which a list lacks the elements that are ours.
pub(crate) fn without_elements(answer: &Json<'_>, key: &str, is_ours: fn(&Json<'_>) -> bool) -> String {
    let list = answer.get(key).map(|list| (list, kept_elements(list, is_ours)));
    list.map_or_else(|| answer.raw.to_owned(), |(old, new)| json::replace_members(answer, &[(old, &new)]))
}

/// A list without the elements that are ours.
pub(crate) fn kept_elements(list: &Json<'_>, is_ours: fn(&Json<'_>) -> bool) -> String {
    let shown = list.as_array().unwrap_or_default().iter().filter(|element| !is_ours(element));
    json::list(shown.map(|element| element.raw.to_owned()))
}

/// Writes a list of the elements of two lists.
pub(crate) fn both(first: &Json<'_>, last: &Json<'_>) -> String {
    let elements = [first, last].into_iter().flat_map(|list| list.as_array().unwrap_or_default());
    json::list(elements.map(|element| element.raw.to_owned()))
}
