//! Writes lines as Chat messages.

mod answer;

use epitome_core::{
    ContentPart, Fact,
    event::{CallForm, InstructionKind, ToolCall},
};

use crate::write::{
    AlternatingRole, CallPosition, HistoryLine, STAND_IN_RESULT, ShownCallResult, ShownContent,
    ShownFragment, ShownOutcome, SourceEvent, WriteOptions, WrittenMessage,
    call_ids::{IdScope, WrittenCallIds, shortened},
    edited_content::{edited_blocks, own_blocks},
    portable::{MediumSource, PortableEvent, PortablePiece},
};
use crate::{
    json::{self, Json, quote},
    legality::ProviderRule,
    openai_chat::REASONING_MEMBERS,
};

/// Writes the history.
pub(crate) fn write(lines: &[HistoryLine<'_, '_>], manner: WriteOptions<'_>) -> Vec<WrittenMessage> {
    // Servers that reuse ids from turn to turn must get them back as they gave them.
    let unique = if manner.is_legal() { IdScope::InAnswer } else { IdScope::Nowhere };
    let ids =
        WrittenCallIds::of(lines, unique, |id| shortened(id, 32).into_owned(), answer::is_called_by_name);
    let pen = ChatWriter { ids: &ids, manner, reasoning: ReasoningMember::of(lines, manner) };
    lines.iter().flat_map(|line| pen.written(line)).collect()
}

/// A message in the user's name.
pub(crate) fn words(text: &str) -> String {
    message("user", &quote(text))
}

/// A message of texts in some role.
pub(crate) fn texts(role: &str, texts: &[String]) -> String {
    let content = match texts {
        [only] => quote(only),
        several => json::list(several.iter().map(|text| text_part(&quote(text)))),
    };
    message(role, &content)
}

/// Writes messages.
#[derive(Clone, Copy)]
struct ChatWriter<'e, 'p> {
    ids: &'p WrittenCallIds,
    manner: WriteOptions<'e>,
    reasoning: ReasoningMember,
}

/// Reports whether answers that called tools must have a member for their reasoning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReasoningMember {
    AsShown,
    WithCalls,
}

impl ReasoningMember {
    /// Decides it. A model that requires its reasoning refuses an answer without it once it thinks: this shows in the
    /// history, or must be assumed if another model made an answer.
    fn of(lines: &[HistoryLine<'_, '_>], manner: WriteOptions<'_>) -> Self {
        let thinks = |fragment: &ShownFragment<'_, '_>| {
            let has_place =
                |own: &Json<'_>| REASONING_MEMBERS.into_iter().any(|key| own.text_at(key).is_some());
            fragment.entry.own.as_ref().is_none_or(has_place)
        };
        let any_thinks = || {
            lines
                .iter()
                .any(|line| matches!(line, HistoryLine::Answer(fragments) if fragments.iter().any(thinks)))
        };
        if manner.demands(ProviderRule::ReasoningReturned) && any_thinks() {
            Self::WithCalls
        } else {
            Self::AsShown
        }
    }
}

impl<'e> ChatWriter<'e, '_> {
    fn written(self, line: &HistoryLine<'e, 'e>) -> Vec<WrittenMessage> {
        match line {
            HistoryLine::Whole(entries) => entries.iter().flat_map(|entry| self.everything(entry)).collect(),
            HistoryLine::Said(entry, shown) => self.said(entry, *shown).into_iter().collect(),
            HistoryLine::Answer(fragments) => answer::write(fragments, self).into_iter().collect(),
            HistoryLine::Returned(outcomes) => {
                outcomes.iter().filter_map(|outcome| self.outcome(outcome)).collect()
            }
            HistoryLine::Words { by, text, origin } => {
                let role = if *by == AlternatingRole::Assistant { "assistant" } else { "user" };
                let json = message(role, &quote(text));
                vec![WrittenMessage { json, events: origin.iter().copied().collect(), speaker: *by }]
            }
        }
    }

    /// Writes an event as all of its messages.
    fn everything(self, entry: &'e SourceEvent<'e>) -> Vec<WrittenMessage> {
        let results = 0..entry.event.fact.results().len();
        let returned = results.filter_map(|ordinal| {
            self.result(&ShownCallResult { entry, ordinal, shown: ShownContent::AsSent }, None)
        });
        returned.chain(self.said(entry, ShownContent::AsSent)).collect()
    }

    /// Writes the content of an event without its results.
    fn said(self, entry: &'e SourceEvent<'e>, shown: ShownContent<'e>) -> Option<WrittenMessage> {
        let role = role(entry);
        if let Some(own) = &entry.own {
            let answers = matches!(own.text_at("role"), Some("tool" | "function"));
            // Results are written with their calls, and a tool message that names no call is refused.
            if !entry.event.fact.results().is_empty()
                || (self.manner.is_legal() && entry.is_carried() && answers)
            {
                return None;
            }
            let json = match (shown, own.get("content")) {
                (ShownContent::Replaced(parts), Some(content)) => {
                    let new = self.mended(entry, content, entry.parts(), parts, role);
                    json::replace_members(own, &[(content, &new)])
                }
                _ if self.manner.is_legal() => spoken(own),
                _ => own.raw.to_owned(),
            };
            let speaker = match own.text_at("role") {
                Some("user") => AlternatingRole::User,
                Some("assistant") => AlternatingRole::Assistant,
                _ => AlternatingRole::Other,
            };
            return Some(WrittenMessage { json, events: vec![entry.index], speaker });
        }
        let portable = PortableEvent::of(entry, self.manner.meter);
        let pieces = match shown {
            ShownContent::AsSent => portable.pieces(),
            ShownContent::Replaced(parts) => portable.pieces_of(parts),
        };
        let json = message(role, &question(role, &pieces)?);
        let speaker = if role == "user" { AlternatingRole::User } else { AlternatingRole::Other };
        Some(WrittenMessage { json, events: vec![entry.index], speaker })
    }

    /// The content of a message of which some parts were replaced.
    fn mended(
        self,
        entry: &'e SourceEvent<'e>,
        content: &Json<'_>,
        original: &[ContentPart],
        shown: &[ContentPart],
        role: &str,
    ) -> String {
        let portable = PortableEvent::of(entry, self.manner.meter);
        if let [ContentPart::Text { text }] = shown {
            return quote(text);
        }
        let fresh = |part: &ContentPart| {
            portable.pieces_of(std::slice::from_ref(part)).first().and_then(|piece| part_in(role, piece))
        };
        match edited_blocks(&own_blocks(Some(content), text_part), original, shown, fresh) {
            blocks if blocks.is_empty() => quote(""),
            blocks => json::list(blocks.into_iter()),
        }
    }

    fn outcome(self, outcome: &ShownOutcome<'e, 'e>) -> Option<WrittenMessage> {
        match (&outcome.result, &outcome.site) {
            (Some(returned), site) => self.result(returned, site.as_ref()),
            (None, Some(site)) => Some(self.stand_in(site)),
            (None, None) => None,
        }
    }

    /// A result, under the id its call is written with.
    fn result(
        self,
        returned: &ShownCallResult<'e, 'e>,
        site: Option<&CallPosition<'e, 'e>>,
    ) -> Option<WrittenMessage> {
        let entry = returned.entry;
        let result = entry.event.fact.results().get(returned.ordinal)?;
        let id = site.map_or(&*result.call.0, |site| self.ids.of_site(site));
        // A call that has an id is answered by id, one that has only a name by name, whatever form the result came
        // in.
        let fits = |own: &&Json<'_>| {
            let by_name = own.text_at("role") == Some("function");
            site.is_none_or(|site| answer::is_called_by_name(site.entry, site.place) == by_name)
        };
        let json = if let Some(own) = entry.own.as_ref().filter(fits) {
            self.own_result(entry, own, id, returned.shown)
        } else {
            let parts = match returned.shown {
                ShownContent::AsSent => &result.parts,
                ShownContent::Replaced(parts) => parts,
            };
            let content = match PortableEvent::of(entry, self.manner.meter).texts(parts).as_slice() {
                [] => quote(""),
                [only] => quote(only),
                several => json::list(several.iter().map(|text| text_part(&quote(text)))),
            };
            answering(site, id, &content)
        };
        Some(WrittenMessage { json, events: vec![entry.index], speaker: AlternatingRole::User })
    }

    fn own_result(
        self,
        entry: &'e SourceEvent<'e>,
        own: &Json<'_>,
        id: &str,
        shown: ShownContent<'e>,
    ) -> String {
        let results = entry.event.fact.results();
        let original = results.first().map_or(&[][..], |result| &result.parts);
        let content = own.get("content").and_then(|content| match shown {
            ShownContent::AsSent => {
                let says_nothing = is_empty_list(content) || content.is_null();
                (self.manner.is_legal() && says_nothing).then(|| (content, quote("")))
            }
            ShownContent::Replaced(parts) => {
                Some((content, self.mended(entry, content, original, parts, "tool")))
            }
        });
        let named = own.get("tool_call_id").filter(|named| named.as_text() != Some(id));
        let id = quote(id);
        let content = content.as_ref().map(|(place, new)| (*place, new.as_str()));
        let edits: Vec<_> = content.into_iter().chain(named.map(|named| (named, &*id))).collect();
        if edits.is_empty() { own.raw.to_owned() } else { json::replace_members(own, &edits) }
    }

    /// Writes the stand-in for a call that has no result.
    fn stand_in(self, site: &CallPosition<'e, 'e>) -> WrittenMessage {
        let json = answering(Some(site), self.ids.of_site(site), &quote(STAND_IN_RESULT));
        WrittenMessage { json, events: Vec::new(), speaker: AlternatingRole::User }
    }
}

/// A message as it came, with `empty` for a content that is an empty list, which is refused.
fn filled(own: &Json<'_>, empty: &str) -> String {
    match own.get("content").filter(|content| is_empty_list(content)) {
        Some(content) => json::replace_members(own, &[(content, empty)]),
        None => own.raw.to_owned(),
    }
}

/// The same for a message that is not an answer: it must have content, though that may be an empty text.
fn spoken(own: &Json<'_>) -> String {
    let is_message = matches!(own.text_at("role"), Some("user" | "system" | "developer" | "tool"));
    match own.get("content") {
        Some(content) if is_message && content.is_null() => json::replace_members(own, &[(content, "\"\"")]),
        None if is_message => {
            let members = own.members().iter().map(|(key, value)| (&**key, value.raw.to_owned()));
            json::object(members.chain([("content", quote(""))]))
        }
        Some(_) | None => filled(own, "\"\""),
    }
}

fn is_empty_list(content: &Json<'_>) -> bool {
    content.as_array().is_some_and(<[_]>::is_empty)
}

/// Writes the message that answers a call. A deprecated call has no id: it is answered by name.
fn answering(site: Option<&CallPosition<'_, '_>>, id: &str, content: &str) -> String {
    let id = quote(id);
    if site.is_some_and(|site| answer::is_called_by_name(site.entry, site.place)) {
        format!(r#"{{"role":"function","name":{id},"content":{content}}}"#)
    } else {
        format!(r#"{{"role":"tool","tool_call_id":{id},"content":{content}}}"#)
    }
}

fn role(entry: &SourceEvent<'_>) -> &'static str {
    match &entry.event.fact {
        Fact::Instructed { what: InstructionKind::Message, .. } => "system",
        _ => "user",
    }
}

fn message(role: &str, content: &str) -> String {
    format!(r#"{{"role":"{role}","content":{content}}}"#)
}

/// Writes the content of a message that is not an answer; `None` if it is empty.
fn question(role: &str, pieces: &[PortablePiece<'_>]) -> Option<String> {
    if let [PortablePiece::Text(text)] = pieces {
        return Some(quote(text));
    }
    let parts: Vec<String> = pieces.iter().filter_map(|piece| part_in(role, piece)).collect();
    (!parts.is_empty()).then(|| json::list(parts.into_iter()))
}

/// A piece as a content part: only users may send media.
fn part_in(role: &str, piece: &PortablePiece<'_>) -> Option<String> {
    if let PortablePiece::Medium { mime, source, .. } = piece
        && role == "user"
        && let Some(json) = medium(mime, source)
    {
        return Some(json);
    }
    piece.note().map(|note| text_part(&quote(note)))
}

fn text_part(literal: &str) -> String {
    format!(r#"{{"type":"text","text":{literal}}}"#)
}

fn medium(mime: &str, source: &MediumSource<'_>) -> Option<String> {
    let data_url = |data: &str| quote(&format!("data:{mime};base64,{data}"));
    Some(match source {
        MediumSource::Url(url) if mime.starts_with("image/") => {
            format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, quote(url))
        }
        MediumSource::Base64(data) if mime.starts_with("image/") => {
            format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, data_url(data))
        }
        MediumSource::Base64(data) if matches!(mime, "audio/wav" | "audio/mp3") => {
            let form = mime.trim_start_matches("audio/");
            format!(r#"{{"type":"input_audio","input_audio":{{"data":{},"format":"{form}"}}}}"#, quote(data))
        }
        MediumSource::Base64(data) if mime == "application/pdf" => {
            let data = data_url(data);
            format!(r#"{{"type":"file","file":{{"filename":"document.pdf","file_data":{data}}}}}"#)
        }
        MediumSource::Url(_) | MediumSource::Base64(_) => return None,
    })
}

fn call_json(call: &ToolCall, id: &str) -> String {
    let (id, name) = (quote(id), quote(&call.name.0));
    match call.form {
        CallForm::Function => {
            let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
            let arguments = quote(arguments);
            format!(r#"{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#)
        }
        CallForm::Custom => {
            let input = quote(&call.arguments);
            format!(r#"{{"id":{id},"type":"custom","custom":{{"name":{name},"input":{input}}}}}"#)
        }
    }
}
