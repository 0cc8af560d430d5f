//! Anthropic's events: a call is a content block, known by its name when it starts.

use crate::recall_tool::{
    is_recall,
    splice_state::{AnswerSplice, EndReason, EventHandling, SpliceState},
    sse_frames,
    stream::error,
    unstreamed::{AnswerCalls, both, taken, without_elements},
};
use crate::{
    format::Format,
    json::{self, Json},
};

/// State of an Anthropic stream.
#[derive(Debug, Default)]
pub(crate) struct AnthropicSplice {
    /// Usage reported by a `message_start` that was dropped.
    usage: Option<String>,
}

/// Returns true if a block is a call of the recall tool.
pub(crate) fn is_recall_block(block: &Json<'_>) -> bool {
    is_call(block) && block.text_at("name").is_some_and(|name| is_recall(name, None))
}

/// Returns true if a block is a call that the client answers.
pub(crate) fn is_call(block: &Json<'_>) -> bool {
    block.text_at("type") == Some("tool_use")
}

/// Meaning of a stop reason.
pub(crate) fn reason(stop_reason: &str) -> EndReason {
    match stop_reason {
        "tool_use" | "end_turn" | "stop_sequence" => EndReason::Done,
        _ => EndReason::Other,
    }
}

impl AnswerSplice for AnthropicSplice {
    fn handle_event(&mut self, event: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        match event.text_at("type") {
            Some("message_start") if tally.is_continued => {
                let usage = event.get("message").and_then(|message| message.get("usage"));
                self.usage = usage.map(|usage| usage.raw.to_owned());
                EventHandling::dropped()
            }
            Some("content_block_start") => {
                if let Some(block) = event.get("content_block").filter(|block| is_call(block)) {
                    if tally.withholds_calls() && is_recall_block(block) {
                        tally.hide(event.count_at("index"));
                    } else {
                        tally.has_others = true;
                    }
                }
                placed(event, tally)
            }
            Some("content_block_delta" | "content_block_stop") => placed(event, tally),
            Some("message_delta") => self.ending(event, tally),
            Some("message_stop") if tally.is_withheld() => EventHandling::held(event.raw),
            _ => EventHandling::passed(),
        }
    }

    fn fail(&mut self, message: &str) -> Vec<u8> {
        sse_frames::event(Some("error"), &error(Format::Anthropic, message))
    }
}

impl AnthropicSplice {
    fn ending(&self, event: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
        let stop_reason = event.get("delta").and_then(|delta| delta.text_at("stop_reason"));
        let is_withheld = match stop_reason {
            Some(stop_reason) => tally.end_answer(reason(stop_reason)),
            None => tally.is_withheld(),
        };
        if is_withheld {
            return EventHandling::held(event.raw);
        }
        let begun = self.usage.as_deref().filter(|_| tally.is_continued);
        let begun = begun.and_then(|usage| Json::parse(usage, "a usage report").ok());
        let edit = event.get("usage").zip(begun).map(|(usage, begun)| (usage, completed(usage, &begun)));
        EventHandling::edited(event, edit.as_slice())
    }
}

/// Moves an event of a block to the index that the client has for it.
fn placed(event: &Json<'_>, tally: &mut SpliceState) -> EventHandling {
    let Some((index, place)) = event.get("index").and_then(|index| Some((index, index.as_count()?))) else {
        return EventHandling::passed();
    };
    if tally.hides(place) {
        return EventHandling::held(event.raw);
    }
    let given = tally.places.client_index(place);
    let edit = (given != place).then(|| (index, given.to_string()));
    EventHandling::edited(event, edit.as_slice())
}

/// Usage of an answer with the numbers that only its own beginning reported: the client has an earlier answer's
/// beginning.
fn completed(usage: &Json<'_>, begun: &Json<'_>) -> String {
    if !usage.is_object() {
        return usage.raw.to_owned();
    }
    let missing = begun.members().iter().filter(|(key, _)| usage.get(key).is_none());
    let all = missing.chain(usage.members());
    json::object(all.map(|(key, value)| (&**key, value.raw.to_owned())))
}

/// The calls of a whole answer.
pub(crate) fn calls(answer: &Json<'_>) -> AnswerCalls {
    let blocks = answer.array_at("content");
    AnswerCalls {
        ours: blocks.iter().any(is_recall_block),
        others: blocks.iter().any(|block| is_call(block) && !is_recall_block(block)),
        reason: answer.text_at("stop_reason").map_or(EndReason::Other, reason),
    }
}

/// A whole answer without calls of the tool.
pub(crate) fn without_recalls(answer: &Json<'_>) -> String {
    without_elements(answer, "content", is_recall_block)
}

/// Edits that put the content of one answer before that of the next.
pub(crate) fn joined_answers<'j>(first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)> {
    let content = last.get("content").zip(first.get("content"));
    taken("id", first, last).into_iter().chain(content.map(|(old, new)| (old, both(new, old)))).collect()
}
