//! An answer in one piece of JSON: kept to its end, then shown without calls of the tool, after the answers before
//! it.

use super::{
    body_edit::rewrite_members,
    splice::{MAX_ANSWER_BYTES, RecallCalls, SpliceVerdict},
    splice_state::EndReason,
    stream::error,
};
use crate::{
    anthropic::recall as anthropic,
    format::Format,
    json::{self, Json, JsonValue, quote},
    openai_chat::recall as openai_chat,
    openai_responses::recall as openai_responses,
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
struct AnswerCalls {
    ours: bool,
    others: bool,
    reason: EndReason,
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
        let text = str::from_utf8(&body).ok();
        let read = text.and_then(|text| Json::parse(text, "an answer").ok());
        let Some(answer) = read.filter(|answer| is_answer(self.format, answer)) else {
            seen.append(&mut body);
            return if self.before.is_some() {
                SpliceVerdict::Continued { answer: None }
            } else {
                SpliceVerdict::Passed
            };
        };
        let called = called(self.format, &answer);
        if !called.ours && self.before.is_none() {
            seen.append(&mut body);
            return SpliceVerdict::Passed;
        }
        let shown = shown(self.format, &answer);
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

/// The first choice of a Chat answer.
fn first_choice<'j>(answer: &'j Json<'_>) -> Option<&'j Json<'j>> {
    answer.array_at("choices").iter().find(|choice| choice.count_at("index") == 0)
}

fn is_answer(format: Format, answer: &Json<'_>) -> bool {
    match format {
        Format::OpenaiChat => first_choice(answer).is_some_and(|choice| choice.get("message").is_some()),
        Format::OpenaiResponses => answer.get("output").is_some_and(|output| output.as_array().is_some()),
        Format::Anthropic => answer.get("content").is_some_and(|content| content.as_array().is_some()),
    }
}

fn called(format: Format, answer: &Json<'_>) -> AnswerCalls {
    match format {
        Format::OpenaiChat => {
            let choice = first_choice(answer);
            let message = choice.and_then(|choice| choice.get("message"));
            let calls = message.map(|message| message.array_at("tool_calls")).unwrap_or_default();
            let called = message.and_then(|message| message.get("function_call"));
            let finish = choice.and_then(|choice| choice.text_at("finish_reason"));
            AnswerCalls {
                ours: calls.iter().any(openai_chat::is_recall_delta),
                others: called.is_some_and(|called| !called.is_null())
                    || calls.iter().any(|call| !openai_chat::is_recall_delta(call)),
                reason: finish.map_or(EndReason::Done, openai_chat::reason),
            }
        }
        Format::OpenaiResponses => {
            let items = answer.array_at("output");
            AnswerCalls {
                ours: items.iter().any(openai_responses::is_recall_item),
                others: items
                    .iter()
                    .any(|item| openai_responses::is_call(item) && !openai_responses::is_recall_item(item)),
                reason: openai_responses::reason(Some(answer)),
            }
        }
        Format::Anthropic => {
            let blocks = answer.array_at("content");
            AnswerCalls {
                ours: blocks.iter().any(anthropic::is_recall_block),
                others: blocks
                    .iter()
                    .any(|block| anthropic::is_call(block) && !anthropic::is_recall_block(block)),
                reason: answer.text_at("stop_reason").map_or(EndReason::Other, anthropic::reason),
            }
        }
    }
}

/// An answer without calls of the tool.
fn shown(format: Format, answer: &Json<'_>) -> String {
    let without = |list: &Json<'_>, is_ours: fn(&Json<'_>) -> bool| {
        let shown = list.as_array().unwrap_or_default().iter().filter(|element| !is_ours(element));
        json::list(shown.map(|element| element.raw.to_owned()))
    };
    let list = match format {
        Format::OpenaiChat => {
            let Some(message) = first_choice(answer).and_then(|choice| choice.get("message")) else {
                return answer.raw.to_owned();
            };
            let kept = rewrite_members(message, |key, value| match key {
                "tool_calls" => {
                    Some(without(value, openai_chat::is_recall_delta)).filter(|calls| calls != "[]")
                }
                _ => Some(value.raw.to_owned()),
            });
            return json::replace_members(answer, &[(message, &kept)]);
        }
        Format::OpenaiResponses => {
            answer.get("output").map(|list| (list, without(list, openai_responses::is_recall_item)))
        }
        Format::Anthropic => {
            answer.get("content").map(|list| (list, without(list, anthropic::is_recall_block)))
        }
    };
    list.map_or_else(|| answer.raw.to_owned(), |(old, new)| json::replace_members(answer, &[(old, &new)]))
}

/// Joins two answers: the second, with the first one's content before its own, under the id that the client knows.
fn joined(format: Format, before: &str, answer: &str) -> String {
    let read = |text| Json::parse(text, "an answer").ok();
    let (Some(first), Some(last)) = (read(before), read(answer)) else { return answer.to_owned() };
    let mut edits: Vec<(&Json<'_>, String)> = Vec::new();
    let mut take = |key: &str| {
        edits.extend(last.get(key).zip(first.get(key)).map(|(old, new)| (old, new.raw.to_owned())));
    };
    let merged = match format {
        Format::OpenaiChat => {
            take("id");
            take("created");
            let old = first_choice(&last).and_then(|choice| choice.get("message"));
            let before = first_choice(&first).and_then(|choice| choice.get("message"));
            old.zip(before).map(|(old, before)| (old, merged(before, old)))
        }
        Format::OpenaiResponses => {
            last.get("output").zip(first.get("output")).map(|(old, new)| (old, both(new, old)))
        }
        Format::Anthropic => {
            take("id");
            last.get("content").zip(first.get("content")).map(|(old, new)| (old, both(new, old)))
        }
    };
    edits.extend(merged);
    let edits: Vec<_> = edits.iter().map(|(value, text)| (*value, text.as_str())).collect();
    json::replace_members(&last, &edits)
}

/// Writes a list of the elements of two lists.
fn both(first: &Json<'_>, last: &Json<'_>) -> String {
    let elements = [first, last].into_iter().flat_map(|list| list.as_array().unwrap_or_default());
    json::list(elements.map(|element| element.raw.to_owned()))
}

/// Joins two Chat messages as a client would add up a stream: texts and lists are concatenated, and of other members
/// the last value counts.
fn merged(first: &Json<'_>, last: &Json<'_>) -> String {
    let said = |value: &&Json<'_>| !value.is_null();
    let older = first.members().iter().map(|(key, value)| {
        let value = match last.get(key).filter(said) {
            Some(newer) => follow(key, value, newer),
            None => value.raw.to_owned(),
        };
        (&**key, value)
    });
    let newer = last.members().iter().filter(|(key, _)| first.get(key).is_none());
    json::object(older.chain(newer.map(|(key, value)| (&**key, value.raw.to_owned()))))
}

fn follow(key: &str, first: &Json<'_>, last: &Json<'_>) -> String {
    match (&first.value, &last.value) {
        (JsonValue::String(one), JsonValue::String(other)) => match key {
            "content" | "reasoning_content" | "reasoning" | "refusal" => {
                let is_apart = one.is_empty()
                    || one.ends_with(char::is_whitespace)
                    || other.starts_with(char::is_whitespace);
                let is_text = key == "content" && !other.is_empty();
                let gap = if is_text && !is_apart { openai_chat::TEXT_SEPARATOR } else { "" };
                let one = first.raw.get(..first.raw.len() - 1).unwrap_or("\"");
                format!("{one}{gap}{}", last.raw.get(1..).unwrap_or("\""))
            }
            "role" => first.raw.to_owned(),
            _ => last.raw.to_owned(),
        },
        (JsonValue::Array(_), JsonValue::Array(_)) => both(first, last),
        (JsonValue::Array(_), JsonValue::String(_)) | (JsonValue::String(_), JsonValue::Array(_))
            if key == "content" =>
        {
            let parts = [first, last].into_iter().flat_map(parts);
            json::list(parts)
        }
        _ => last.raw.to_owned(),
    }
}

/// A Chat content as its parts.
fn parts(content: &Json<'_>) -> Vec<String> {
    match (content.as_text(), content.as_array()) {
        (Some(text), _) if !text.is_empty() => {
            vec![format!(r#"{{"type":"text","text":{}}}"#, quote(text))]
        }
        (_, Some(parts)) => parts.iter().map(|part| part.raw.to_owned()).collect(),
        _ => Vec::new(),
    }
}
