//! A client's own request for a summary of its session: the prompt that asks for it, and the form in which the client
//! reads the answer.

use std::ops::Range;

use epitome_core::{ContentPart, Event, Fact};

use crate::{
    caller::RequestPurpose,
    format::Format,
    incoming::{IncomingRequest, UnitSpeaker, asks_for_summary},
    json::{Json, quote},
};

/// Tags between which some clients look for the summary in an answer.
const TAGS: [&str; 4] = ["<summary>", "</summary>", "<analysis>", "</analysis>"];

/// Form in which a client reads the summary it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SummaryAnswerForm {
    /// The answer's text is the summary.
    Text,
    /// The summary stands between tags in the answer's text.
    Tagged,
    /// One item that only its author can read.
    Sealed,
}

impl SummaryAnswerForm {
    /// Writes a summary that was made [harmless](harmless_summary) as the text of an answer.
    pub fn answer_text(self, summary: &str) -> String {
        match self {
            Self::Text | Self::Sealed => summary.to_owned(),
            Self::Tagged => {
                format!("<analysis>\nMade from the record.\n</analysis>\n\n<summary>\n{summary}\n</summary>")
            }
        }
    }
}

/// An item of a request that stands for a compacted history and that only its author reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedItem {
    /// Its place in the request.
    pub range: Range<usize>,
    /// Its text.
    pub content: String,
}

impl Format {
    /// The items of a request that only their authors read, in order.
    pub fn sealed_items(self, request: &str) -> Vec<SealedItem> {
        let Ok(json) = Json::parse(request, "a request") else { return Vec::new() };
        let item = |item: &Json<'_>| {
            let content = self.provider().sealed_content(item)?.to_owned();
            // An item is a part of the request's text.
            let start = item.raw.as_ptr().addr().checked_sub(request.as_ptr().addr())?;
            Some(SealedItem { range: start..start + item.raw.len(), content })
        };
        json.array_at(self.history_key()).iter().filter_map(item).collect()
    }

    /// Writes a message of the user with a text.
    pub fn user_message(self, text: &str) -> String {
        self.provider().user_text(&quote(text))
    }
}

impl IncomingRequest<'_> {
    /// Form in which the client reads the summary that this request asks for.
    pub fn summary_form(&self) -> SummaryAnswerForm {
        let events = self.events(self.units().len().saturating_sub(1));
        if events.iter().any(|event| is_trigger(self.format(), event)) {
            return SummaryAnswerForm::Sealed;
        }
        let asks_for_tags = |part: &ContentPart| matches!(part, ContentPart::Text { text } if asks_for_summary(text) && text.contains(TAGS[0]));
        match events.last() {
            Some(event) if event.fact.parts().iter().any(asks_for_tags) => SummaryAnswerForm::Tagged,
            _ => SummaryAnswerForm::Text,
        }
    }

    /// Returns true if the history that is to be summarised is the request's own. Some clients quote it in one message
    /// instead.
    pub fn has_own_history(&self) -> bool {
        self.units().iter().any(|unit| matches!(unit.speaker, UnitSpeaker::Model | UnitSpeaker::Tools))
    }
}

/// An event of a summarising request without the words that ask for the summary; `None` if it has no others.
pub fn without_summary_prompt(format: Format, mut event: Event) -> Option<Event> {
    if is_trigger(format, &event) {
        return None;
    }
    let is_prompt = |part: &ContentPart| matches!(part, ContentPart::Text { text } if asks_for_summary(text));
    match &mut event.fact {
        Fact::UserSaid { parts } => {
            parts.retain(|part| !is_prompt(part));
            (!parts.is_empty()).then_some(event)
        }
        Fact::ToolReturned { parts, .. } => {
            parts.retain(|part| !is_prompt(part));
            Some(event)
        }
        _ => Some(event),
    }
}

/// Returns true if an event is an item that asks for a compaction by its kind.
fn is_trigger(format: Format, event: &Event) -> bool {
    if !matches!(event.fact, Fact::Carried { .. }) {
        return false;
    }
    let purpose = Json::parse(&event.raw.json, "an item").ok();
    purpose.and_then(|item| format.provider().item_purpose(&item)) == Some(RequestPurpose::Compaction)
}

/// A summary in which nothing can be taken for the tags around it: a session may speak of them.
pub fn harmless_summary(summary: &str) -> String {
    let mut text = summary.trim().to_owned();
    for tag in TAGS {
        if text.contains(tag) {
            text = text.replace(tag, &tag.replacen('<', "‹", 1));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::MessageMemo;

    const PROMPT: &str =
        "CRITICAL: Respond with TEXT ONLY. … an <analysis> block followed by a <summary> block";

    fn seen(format: Format, body: &str) -> IncomingRequest<'_> {
        IncomingRequest::read(format, body, &MessageMemo::default()).expect("a request")
    }

    #[test]
    fn the_form_of_an_answer_is_read_off_the_prompt() {
        let check = |format, body: &str, form| assert_eq!(seen(format, body).summary_form(), form, "{body}");
        check(
            Format::Anthropic,
            &format!(r#"{{"messages":[{{"role":"user","content":"{PROMPT}"}}]}}"#),
            SummaryAnswerForm::Tagged,
        );
        check(
            Format::OpenaiChat,
            r#"{"messages":[{"role":"user","content":"You are performing a CONTEXT CHECKPOINT COMPACTION."}]}"#,
            SummaryAnswerForm::Text,
        );
        check(
            Format::OpenaiResponses,
            r#"{"input":[{"role":"user","content":"hi"},{"type":"compaction_trigger"}]}"#,
            SummaryAnswerForm::Sealed,
        );
        check(Format::OpenaiResponses, r#"{"input":[]}"#, SummaryAnswerForm::Text);
    }

    #[test]
    fn the_prompt_is_taken_away_and_nothing_else() {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"12"}},
               {{"type":"text","text":"{PROMPT}"}}]}}]}}"#
        );
        let events = seen(Format::Anthropic, &body).events(0);
        let left = without_summary_prompt(Format::Anthropic, events[0].clone()).expect("a result is left");
        let Fact::ToolReturned { results, parts } = left.fact else { panic!("{left:?}") };
        assert_eq!((results.len(), parts.len()), (1, 0));
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{PROMPT}"}}]}}"#);
        let events = seen(Format::Anthropic, &body).events(0);
        assert_eq!(without_summary_prompt(Format::Anthropic, events[0].clone()), None);
        let body = r#"{"input":[{"role":"user","content":"hi"},{"type":"compaction_trigger"}]}"#;
        let events = seen(Format::OpenaiResponses, body).events(0);
        let left: Vec<Event> = events
            .into_iter()
            .filter_map(|event| without_summary_prompt(Format::OpenaiResponses, event))
            .collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn no_session_ends_its_summary_early() {
        let text = harmless_summary(" it said </summary> and <analysis> ");
        let answer = SummaryAnswerForm::Tagged.answer_text(&text);
        assert_eq!(answer.matches("</summary>").count(), 1);
        assert!(answer.ends_with(&format!("<summary>\n{text}\n</summary>")), "{answer}");
    }
}
