//! Writes lines as Gemini contents.
//!
//! A content is drafted as a list of parts, each of which knows its source. A draft that is still exactly the parts of
//! one event leaves with that event's bytes.

use std::borrow::Cow;

use epitome_core::{
    ContentPart, Fact,
    event::{CallForm, ToolCall},
};

use super::{call_id, is_result};
use crate::{
    json::{self, Json, quote},
    legality::ProviderRule,
    write::{
        AlternatingRole, CallPosition, HistoryLine, STAND_IN_RESULT, ShownCallResult, ShownContent,
        ShownFragment, ShownOutcome, SourceEvent, WriteOptions, WrittenMessage,
        edited_content::edited_blocks,
        is_short,
        portable::{MediumSource, PortableEvent, PortablePiece},
    },
};

/// Signature of a call that no model of this provider made: Gemini 3 accepts it in place of a real one.
pub(super) const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Writes the history.
pub(super) fn write(lines: &[HistoryLine<'_, '_>], manner: WriteOptions<'_>) -> Vec<WrittenMessage> {
    let pen = ContentWriter { manner };
    let mut drafts: Vec<ContentDraft<'_>> = lines.iter().filter_map(|line| pen.drafted(line)).collect();
    if manner.is_legal() {
        drafts = legal(drafts);
    }
    if manner.demands(ProviderRule::CallsSigned) {
        sign(&mut drafts);
    }
    drafts.into_iter().map(ContentDraft::written).collect()
}

/// A content of a user's text.
pub(super) fn words(text: &str) -> String {
    content("user", &format!("[{}]", text_part(&quote(text))))
}

/// A content around a list of parts.
pub(super) fn content(role: &str, parts: &str) -> String {
    format!(r#"{{"role":{},"parts":{parts}}}"#, quote(role))
}

/// A part with a text, which is given as a literal.
pub(super) fn text_part(literal: &str) -> String {
    format!(r#"{{"text":{literal}}}"#)
}

/// A part with the result of a call. Without an id of its own, a call is known by its function's name.
pub(super) fn result_part(id: &str, name: &str, member: &str, text: &str) -> String {
    let said = if id == name { String::new() } else { format!(r#""id":{},"#, quote(id)) };
    let (name, text) = (quote(name), quote(text));
    format!(r#"{{"functionResponse":{{{said}"name":{name},"response":{{"{member}":{text}}}}}}}"#)
}

/// A content while it is written.
struct ContentDraft<'e> {
    role: Cow<'e, str>,
    parts: Vec<DraftPart<'e>>,
    /// Indices of its events, in order.
    events: Vec<usize>,
    /// The event whose bytes it may keep: the only one it is made of.
    source: Option<&'e SourceEvent<'e>>,
    /// True if the event is an answer that is shown in part.
    is_parted: bool,
}

/// A part of a content.
#[derive(Clone)]
struct DraftPart<'e> {
    json: Cow<'e, str>,
    kind: PartKind,
    /// Its event, and its index among that event's parts, if these are still its bytes.
    source: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Result,
    Call,
    /// A part that the provider would refuse in any place, or that says nothing: a text of white space that no
    /// signature seals, a call or a result without a name.
    Blank,
    Other,
}

impl<'e> ContentDraft<'e> {
    fn with(
        role: impl Into<Cow<'e, str>>,
        parts: Vec<DraftPart<'e>>,
        source: Option<&'e SourceEvent<'e>>,
    ) -> Self {
        let events = source.map(|entry| entry.index).into_iter().collect();
        Self { role: role.into(), parts, events, source, is_parted: false }
    }

    /// Appends the parts of another draft.
    fn absorb(&mut self, other: Self) {
        if self.events.is_empty() && self.parts.is_empty() {
            self.source = other.source;
        }
        self.is_parted |= other.is_parted;
        self.parts.extend(other.parts);
        for event in other.events {
            if self.events.last() != Some(&event) {
                self.events.push(event);
            }
        }
    }

    /// Returns true if `next` was sent in the same content.
    fn continues(&self, next: &Self) -> bool {
        self.events.last().is_some() && self.events.last() == next.events.first()
    }

    fn has(&self, kind: PartKind) -> bool {
        self.parts.iter().any(|part| part.kind == kind)
    }

    fn speaker(&self) -> AlternatingRole {
        match &*self.role {
            "user" | "function" | "tool" | "" => AlternatingRole::User,
            "model" => AlternatingRole::Assistant,
            _ => AlternatingRole::Other,
        }
    }

    fn written(mut self) -> WrittenMessage {
        let speaker = self.speaker();
        let own = self.source.filter(|source| self.events == [source.index]);
        let json = if let Some((source, own)) = own.and_then(|source| Some((source, source.own.as_ref()?))) {
            self.own_json(source, own)
        } else {
            let role = if self.role.is_empty() { "user" } else { &self.role };
            content(role, &list(&self.parts))
        };
        WrittenMessage { json, events: self.events, speaker }
    }

    /// The content of a single event: its own bytes as far as they are still valid.
    fn own_json(&mut self, source: &SourceEvent<'_>, own: &Json<'_>) -> String {
        let Some(parts) = own.get("parts") else { return own.raw.to_owned() };
        let count = parts.as_array().map_or(1, <[_]>::len);
        if self.parts.iter().all(|part| part.source.is_some()) {
            // Results may have been written before the words that stood before them.
            self.parts.sort_by_key(|part| part.source);
        }
        let places = self.parts.iter().map(|part| part.source);
        if places.eq((0..count).map(|place| Some((source.index, place)))) {
            return own.raw.to_owned();
        }
        let has_results = !source.event.fact.results().is_empty();
        if self.is_parted || (has_results && self.parts.len() < count) {
            // Unknown members are dropped: the part that paid for them may be gone.
            let role = own.get("role").filter(|role| is_short(role)).map_or(r#""user""#, |role| role.raw);
            return format!(r#"{{"role":{role},"parts":{}}}"#, list(&self.parts));
        }
        json::replace_members(own, &[(parts, &list(&self.parts))])
    }
}

fn list(parts: &[DraftPart<'_>]) -> String {
    json::list(parts.iter().map(|part| part.json.clone().into_owned()))
}

/// Writes contents.
#[derive(Clone, Copy)]
struct ContentWriter<'m> {
    manner: WriteOptions<'m>,
}

impl<'e> ContentWriter<'e> {
    /// Drafts a line's content.
    fn drafted(self, line: &HistoryLine<'e, 'e>) -> Option<ContentDraft<'e>> {
        match line {
            HistoryLine::Whole(entries) => joined(entries.iter().map(|entry| self.whole(entry))),
            HistoryLine::Said(entry, shown) => self.said(entry, *shown),
            HistoryLine::Answer(fragments) => joined(fragments.iter().map(|fragment| self.answer(fragment))),
            HistoryLine::Returned(outcomes) => {
                let drafts = outcomes.iter().map(|outcome| {
                    let entry = outcome.result.map(|result| result.entry);
                    let part = self.outcome(outcome)?;
                    Some(ContentDraft::with("user", vec![part], entry))
                });
                joined(drafts)
            }
            HistoryLine::Words { by, text, origin } => {
                let role = if *by == AlternatingRole::Assistant { "model" } else { "user" };
                let mut draft = ContentDraft::with(role, vec![fresh_text(text)], None);
                draft.events.extend(origin);
                Some(draft)
            }
        }
    }

    /// The content an event is, or `None` if it has none that can be written here.
    fn whole(self, entry: &'e SourceEvent<'e>) -> Option<ContentDraft<'e>> {
        if let Some(own) = &entry.own {
            let role = own.text_at("role").unwrap_or_default();
            return Some(ContentDraft::with(role, own_parts(entry, own), Some(entry)));
        }
        let role = if matches!(entry.event.fact, Fact::AssistantSaid { .. }) { "model" } else { "user" };
        let portable = PortableEvent::of(entry, self.manner.meter);
        let results = entry.event.fact.results().iter().map(|result| {
            let name = result.name.as_ref().map_or(&*result.call.0, |name| &*name.0);
            let texts = portable.texts(&result.parts).join("\n");
            fresh_result(&result.call.0, name, result.error, &texts)
        });
        let pieces = portable.pieces();
        let parts: Vec<_> = results.chain(pieces.iter().filter_map(fresh)).collect();
        (!parts.is_empty()).then(|| ContentDraft::with(role, parts, Some(entry)))
    }

    /// The content of an event without its results.
    fn said(self, entry: &'e SourceEvent<'e>, shown: ShownContent<'e>) -> Option<ContentDraft<'e>> {
        let mut draft = self.whole(entry)?;
        let has_results = !entry.event.fact.results().is_empty();
        draft.parts.retain(|part| part.kind != PartKind::Result || !has_results);
        if let ShownContent::Replaced(parts) = shown {
            draft.parts = self.replaced(entry, &draft.parts, parts);
        }
        (!has_results || !draft.parts.is_empty()).then_some(draft)
    }

    /// Writes parts in place of an event's content other than results. `own` are its parts.
    fn replaced(
        self,
        entry: &'e SourceEvent<'e>,
        own: &[DraftPart<'e>],
        shown: &[ContentPart],
    ) -> Vec<DraftPart<'e>> {
        let portable = PortableEvent::of(entry, self.manner.meter);
        let raw: Vec<Cow<'_, str>> = own.iter().map(|part| part.json.clone()).collect();
        let fresh = |part: &ContentPart| {
            let pieces = portable.pieces_of(std::slice::from_ref(part));
            pieces.first().and_then(fresh).map(|part| part.json.into_owned())
        };
        let parts = edited_blocks(if entry.own.is_some() { &raw } else { &[] }, entry.parts(), shown, fresh);
        parts
            .into_iter()
            .map(|json| DraftPart { kind: kind_of(&json), json: json.into(), source: None })
            .collect()
    }

    fn answer(self, fragment: &ShownFragment<'e, 'e>) -> Option<ContentDraft<'e>> {
        let entry = fragment.entry;
        let foreign = || {
            let portable = PortableEvent::of(entry, self.manner.meter);
            let pieces = portable.said_at(fragment.shown());
            pieces.iter().filter_map(fresh).collect::<Vec<_>>()
        };
        let Some(own) = &entry.own else {
            let parts = foreign();
            return (!parts.is_empty()).then(|| ContentDraft::with("model", parts, Some(entry)));
        };
        let mut parts = own_parts(entry, own);
        if fragment.places.is_some() {
            // Part and block have the same index, or else it is unknown which block shows which part.
            if parts.len() == entry.parts().len() {
                let mut places = 0..;
                parts.retain(|_| places.next().is_some_and(|place| fragment.shows(place)));
            } else {
                parts = foreign();
            }
        }
        let mut draft = ContentDraft::with(own.text_at("role").unwrap_or("model"), parts, Some(entry));
        draft.is_parted = fragment.places.is_some();
        Some(draft)
    }

    fn outcome(self, outcome: &ShownOutcome<'e, 'e>) -> Option<DraftPart<'e>> {
        match (&outcome.result, &outcome.site) {
            (Some(returned), site) => self.result(returned, site.as_ref()),
            (None, Some(site)) => {
                Some(fresh_result(&site.call.id.0, &site.call.name.0, true, STAND_IN_RESULT))
            }
            (None, None) => None,
        }
    }

    /// A result, under the id and the name of its call.
    fn result(
        self,
        returned: &ShownCallResult<'e, 'e>,
        site: Option<&CallPosition<'e, 'e>>,
    ) -> Option<DraftPart<'e>> {
        let entry = returned.entry;
        let result = entry.event.fact.results().get(returned.ordinal)?;
        let portable = PortableEvent::of(entry, self.manner.meter);
        let own = entry.own.as_ref().and_then(|own| {
            let results = own.array_at("parts").iter().enumerate().filter(|(_, part)| is_result(part));
            results.into_iter().nth(returned.ordinal)
        });
        let parts = match returned.shown {
            ShownContent::AsSent => &result.parts,
            ShownContent::Replaced(parts) => parts,
        };
        let Some((place, part)) = own else {
            let id = site.map_or(&*result.call.0, |site| &site.call.id.0);
            let known = result.name.as_ref().map(|name| &*name.0);
            let name = site.map(|site| &*site.call.name.0).or(known).unwrap_or(id);
            return Some(fresh_result(id, name, result.error, &portable.texts(parts).join("\n")));
        };
        if let ShownContent::AsSent = returned.shown {
            let source = Some((entry.index, place));
            return Some(DraftPart { json: part.raw.into(), kind: PartKind::Result, source });
        }
        let called = part.get("functionResponse")?;
        let name = called.text_at("name").unwrap_or_default();
        let id = call_id(called).unwrap_or_default();
        Some(fresh_result(id, name, result.error, &portable.texts(parts).join("\n")))
    }
}

/// Joins several drafts into one.
fn joined<'e>(drafts: impl Iterator<Item = Option<ContentDraft<'e>>>) -> Option<ContentDraft<'e>> {
    drafts.flatten().reduce(|mut first, next| {
        first.absorb(next);
        first
    })
}

/// The parts of a content in this format.
fn own_parts<'e>(entry: &'e SourceEvent<'e>, own: &'e Json<'e>) -> Vec<DraftPart<'e>> {
    let Some(parts) = own.get("parts").filter(|parts| !parts.is_null()) else { return Vec::new() };
    let parts = parts.as_array().unwrap_or(std::slice::from_ref(parts));
    let part = |(place, part): (usize, &'e Json<'e>)| DraftPart {
        json: part.raw.into(),
        kind: kind(part),
        source: Some((entry.index, place)),
    };
    parts.iter().enumerate().map(part).collect()
}

fn kind(part: &Json<'_>) -> PartKind {
    if is_result(part) {
        PartKind::Result
    } else if part.get("functionResponse").is_some() {
        PartKind::Blank
    } else if let Some(call) = part.get("functionCall") {
        if call.text_at("name").is_some_and(|name| !name.is_empty()) {
            PartKind::Call
        } else {
            PartKind::Blank
        }
    } else if part.text_at("text").is_some_and(|text| text.trim().is_empty())
        && part.get("thoughtSignature").is_none()
    {
        PartKind::Blank
    } else {
        PartKind::Other
    }
}

fn kind_of(json: &str) -> PartKind {
    Json::parse(json, "a part").map_or(PartKind::Other, |part| kind(&part))
}

/// Makes drafts acceptable to the provider: contents that say something, the results of an answer in one content, and a
/// call never after another content of the model.
fn legal(mut drafts: Vec<ContentDraft<'_>>) -> Vec<ContentDraft<'_>> {
    let mut merged: Vec<ContentDraft<'_>> = Vec::new();
    for draft in &mut drafts {
        draft.parts.retain(|part| part.kind != PartKind::Blank);
    }
    for draft in drafts.into_iter().filter(|draft| !draft.parts.is_empty()) {
        match merged.last_mut() {
            Some(last) if last.speaker() == draft.speaker() && is_joined(last, &draft) => last.absorb(draft),
            _ => merged.push(draft),
        }
    }
    merged
}

/// Returns true if the provider wants two contents of one role as one.
fn is_joined(last: &ContentDraft<'_>, next: &ContentDraft<'_>) -> bool {
    match last.speaker() {
        AlternatingRole::Assistant => true,
        AlternatingRole::User => {
            last.continues(next) || (last.has(PartKind::Result) && next.has(PartKind::Result))
        }
        AlternatingRole::Other => false,
    }
}

/// Gives the first call of every answer since the user last spoke a signature, if it has none.
fn sign(drafts: &mut [ContentDraft<'_>]) {
    let asks = |draft: &ContentDraft<'_>| {
        draft.speaker() == AlternatingRole::User
            && draft.parts.iter().any(|part| part.kind != PartKind::Result)
    };
    let begin = drafts.iter().rposition(asks).map_or(0, |asked| asked + 1);
    for draft in drafts.iter_mut().skip(begin).filter(|draft| draft.speaker() == AlternatingRole::Assistant) {
        if let Some(call) = draft.parts.iter_mut().find(|part| part.kind == PartKind::Call)
            && let Some(signed) = signed(&call.json)
        {
            call.json = signed.into();
            call.source = None;
        }
    }
}

/// A call with a signature; `None` if it has one.
fn signed(call: &str) -> Option<String> {
    let part = Json::parse(call, "a call").ok()?;
    if part.text_at("thoughtSignature").is_some_and(|signature| !signature.is_empty()) {
        return None;
    }
    let members = part.members().iter().filter(|(key, _)| key != "thoughtSignature");
    let members = members.map(|(key, value)| (&**key, value.raw.to_owned()));
    Some(json::object(members.chain([("thoughtSignature", quote(FOREIGN_SIGNATURE))])))
}

fn fresh_text(text: &str) -> DraftPart<'static> {
    let kind = if text.trim().is_empty() { PartKind::Blank } else { PartKind::Other };
    DraftPart { json: text_part(&quote(text)).into(), kind, source: None }
}

fn fresh_result(id: &str, name: &str, error: bool, text: &str) -> DraftPart<'static> {
    let member = if error { "error" } else { "output" };
    let json = result_part(id, name, member, text);
    DraftPart { json: json.into(), kind: PartKind::Result, source: None }
}

/// Writes a piece that came in another format.
fn fresh(piece: &PortablePiece<'_>) -> Option<DraftPart<'static>> {
    let part = match piece {
        PortablePiece::Call(call, _) => {
            return Some(DraftPart { json: call_part(call).into(), kind: PartKind::Call, source: None });
        }
        PortablePiece::Medium { mime, source, .. } => medium(mime, source),
        PortablePiece::Text(_) | PortablePiece::Refusal(_) => None,
    };
    match part {
        Some(json) => Some(DraftPart { json: json.into(), kind: PartKind::Other, source: None }),
        None => piece.note().map(fresh_text),
    }
}

fn call_part(call: &ToolCall) -> String {
    let ToolCall { id, name, .. } = call;
    let said = if id.0 == *name.0 { String::new() } else { format!(r#""id":{},"#, quote(&id.0)) };
    format!(r#"{{"functionCall":{{{said}"name":{},"args":{}}}}}"#, quote(&name.0), arguments(call))
}

/// Writes arguments as an object. Other text becomes the only member of one.
fn arguments(call: &ToolCall) -> String {
    let parsed = Json::parse(&call.arguments, "a call's arguments");
    match (call.form, parsed) {
        (CallForm::Function, Ok(json)) if json.is_object() => json.raw.to_owned(),
        (CallForm::Function, _) if call.arguments.trim().is_empty() => "{}".to_owned(),
        (CallForm::Function, _) => format!(r#"{{"arguments":{}}}"#, quote(&call.arguments)),
        (CallForm::Custom, _) => format!(r#"{{"input":{}}}"#, quote(&call.arguments)),
    }
}

/// Writes a medium; `None` if the provider takes none of this kind.
fn medium(mime: &str, source: &MediumSource<'_>) -> Option<String> {
    let is_known =
        ["image/", "audio/", "video/"].iter().any(|kind| mime.starts_with(kind) && mime.len() > kind.len())
            || matches!(mime, "application/pdf" | "text/plain");
    let is_exact = is_known && !mime.contains('*');
    match source {
        MediumSource::Base64(data) if is_exact => {
            Some(format!(r#"{{"inlineData":{{"mimeType":{},"data":{}}}}}"#, quote(mime), quote(data)))
        }
        MediumSource::Url(url) if is_exact => {
            Some(format!(r#"{{"fileData":{{"mimeType":{},"fileUri":{}}}}}"#, quote(mime), quote(url)))
        }
        MediumSource::Base64(_) | MediumSource::Url(_) => None,
    }
}
