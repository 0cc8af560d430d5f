//! Writes lines as Responses items.

mod item;

pub(crate) use item::stand_in;

use epitome_core::{ContentPart, Fact, event::InstructionKind};

use crate::write::{
    AlternatingRole, CallPosition, HistoryLayout, HistoryLine, ShownCallResult, ShownContent, ShownFragment,
    ShownOutcome, SourceEvent, WriteOptions, WrittenMessage,
    call_ids::{IdScope, WrittenCallIds, shortened},
    edited_content::{edited_blocks, own_blocks},
    is_short,
    portable::PortableEvent,
};
use crate::{
    json::{self, Json, quote},
    openai_responses::is_empty_reasoning,
    request::bare_item,
};

/// Writes the history.
pub(crate) fn write(
    lines: &[HistoryLine<'_, '_>],
    manner: WriteOptions<'_>,
) -> (Vec<WrittenMessage>, HistoryLayout) {
    if let Some((entry, text)) = bare(lines) {
        let (json, events) = (text.to_owned(), vec![entry.index]);
        return (vec![WrittenMessage { json, events, speaker: AlternatingRole::User }], HistoryLayout::Bare);
    }
    let unique = if manner.is_legal() { IdScope::InRequest } else { IdScope::Nowhere };
    let ids = WrittenCallIds::of(lines, unique, |id| shortened(id, 56).into_owned(), |_, _| false);
    let pen = ResponsesWriter { ids: &ids, manner };
    let mut items: Vec<WrittenItem> = lines.iter().flat_map(|line| pen.written(line)).collect();
    if manner.is_legal() {
        items = without_dangling(items);
    }
    (items.into_iter().map(|item| item.written).collect(), HistoryLayout::List)
}

/// A written item, and its relation to its neighbours.
struct WrittenItem {
    written: WrittenMessage,
    is_reasoning: bool,
    /// True if something directly before it is left out, and true if something directly after it is.
    parted: (bool, bool),
}

impl WrittenItem {
    fn new(json: String, entry: &SourceEvent<'_>, speaker: AlternatingRole) -> Self {
        let written = WrittenMessage { json, events: vec![entry.index], speaker };
        Self { written, is_reasoning: false, parted: (false, false) }
    }

    fn words(json: String, events: Vec<usize>) -> Self {
        let written = WrittenMessage { json, events, speaker: AlternatingRole::User };
        Self { written, is_reasoning: false, parted: (false, false) }
    }
}

/// Drops reasoning whose next item is not the one that followed it: alone it is refused.
fn without_dangling(items: Vec<WrittenItem>) -> Vec<WrittenItem> {
    let mut kept: Vec<WrittenItem> = Vec::with_capacity(items.len());
    for item in items.into_iter().rev() {
        let leads_on = kept.last().is_some_and(|next| {
            next.written.speaker == AlternatingRole::Assistant && !next.parted.0 && !item.parted.1
        });
        if !item.is_reasoning || leads_on {
            kept.push(item);
        }
    }
    kept.reverse();
    kept
}

/// A message in the user's name.
pub(crate) fn words(text: &str) -> String {
    item::message("user", &item::text(&quote(text)))
}

/// A message of the developer.
pub(crate) fn developer(texts: &[String]) -> String {
    let parts: Vec<String> = texts.iter().map(|text| item::text(&quote(text))).collect();
    item::message("developer", &parts.join(","))
}

/// The only message of a history, if it came as a string instead of a list.
fn bare<'l>(lines: &'l [HistoryLine<'_, '_>]) -> Option<(&'l SourceEvent<'l>, &'l str)> {
    let entry: &SourceEvent<'_> = match lines {
        [HistoryLine::Whole(entries)] => match entries.as_slice() {
            [only] => only,
            _ => return None,
        },
        [HistoryLine::Said(entry, ShownContent::AsSent)] => entry,
        _ => return None,
    };
    bare_text(entry).map(|text| (entry, text))
}

/// The literal of an input that was only a string. A string among the items of a list was carried, and does not
/// count.
fn bare_text<'e>(entry: &'e SourceEvent<'_>) -> Option<&'e str> {
    let own = entry.own.as_ref().filter(|own| own.as_text().is_some())?;
    (!entry.is_carried()).then_some(own.raw)
}

fn is_reasoning(entry: &SourceEvent<'_>) -> bool {
    entry.own.as_ref().is_some_and(|own| own.text_at("type") == Some("reasoning"))
}

/// Writes items.
#[derive(Clone, Copy)]
struct ResponsesWriter<'e, 'p> {
    ids: &'p WrittenCallIds,
    manner: WriteOptions<'e>,
}

impl<'e> ResponsesWriter<'e, '_> {
    fn written(self, line: &HistoryLine<'e, 'e>) -> Vec<WrittenItem> {
        match line {
            HistoryLine::Whole(entries) => entries.iter().flat_map(|entry| self.everything(entry)).collect(),
            HistoryLine::Said(entry, shown) => self.said(entry, *shown).into_iter().collect(),
            HistoryLine::Answer(fragments) => {
                fragments.iter().flat_map(|fragment| self.answer(fragment)).collect()
            }
            HistoryLine::Returned(outcomes) => {
                outcomes.iter().filter_map(|outcome| self.outcome(outcome)).collect()
            }
            HistoryLine::Words { by, text, origin } => {
                let json = if *by == AlternatingRole::Assistant { item::spoken(text) } else { words(text) };
                let mut item = WrittenItem::words(json, origin.iter().copied().collect());
                item.written.speaker = *by;
                vec![item]
            }
        }
    }

    /// Writes an event as all of its items.
    fn everything(self, entry: &'e SourceEvent<'e>) -> Vec<WrittenItem> {
        if matches!(entry.event.fact, Fact::AssistantSaid { .. }) {
            return self.answer(&ShownFragment::whole(entry));
        }
        let results = 0..entry.event.fact.results().len();
        let returned = results.filter_map(|ordinal| {
            self.result(&ShownCallResult { entry, ordinal, shown: ShownContent::AsSent }, None)
        });
        returned.chain(self.said(entry, ShownContent::AsSent)).collect()
    }

    /// Writes the content of an event without its results.
    fn said(self, entry: &'e SourceEvent<'e>, shown: ShownContent<'e>) -> Option<WrittenItem> {
        let portable = || PortableEvent::of(entry, self.manner.meter);
        let (json, speaker) = match (&entry.own, shown) {
            (Some(_), _) if !entry.event.fact.results().is_empty() => return None,
            // An output item that names no call is refused.
            (Some(own), _)
                if self.manner.is_legal()
                    && entry.is_carried()
                    && own.text_at("type").is_some_and(item::is_output) =>
            {
                return None;
            }
            (Some(own), ShownContent::AsSent) => {
                let json = bare_text(entry).map_or_else(|| own.raw.to_owned(), bare_item);
                (json, speaker(own))
            }
            (Some(own), ShownContent::Replaced(parts)) => {
                (self.own_replaced(entry, own, parts), speaker(own))
            }
            (None, shown) => {
                let portable = portable();
                let pieces = match shown {
                    ShownContent::AsSent => portable.pieces(),
                    ShownContent::Replaced(parts) => portable.pieces_of(parts),
                };
                let instructs =
                    matches!(entry.event.fact, Fact::Instructed { what: InstructionKind::Message, .. });
                let (role, speaker) = if instructs {
                    ("developer", AlternatingRole::Other)
                } else {
                    ("user", AlternatingRole::User)
                };
                let parts: Vec<String> = pieces.iter().filter_map(item::part).collect();
                if parts.is_empty() {
                    return None;
                }
                (item::message(role, &parts.join(",")), speaker)
            }
        };
        Some(WrittenItem::new(json, entry, speaker))
    }

    /// A message of which some parts were replaced.
    fn own_replaced(self, entry: &'e SourceEvent<'e>, own: &Json<'_>, shown: &[ContentPart]) -> String {
        let content = if own.as_text().is_some() { Some(own) } else { own.get("content") };
        let new = self.mended(entry, content, entry.parts(), shown);
        match own.get("content") {
            Some(content) => json::replace_members(own, &[(content, &new)]),
            None => format!(r#"{{"role":"user","content":{new}}}"#),
        }
    }

    /// Content of which some parts were replaced.
    fn mended(
        self,
        entry: &'e SourceEvent<'e>,
        content: Option<&Json<'_>>,
        original: &[ContentPart],
        shown: &[ContentPart],
    ) -> String {
        let portable = PortableEvent::of(entry, self.manner.meter);
        let fresh =
            |part: &ContentPart| portable.pieces_of(std::slice::from_ref(part)).first().and_then(item::part);
        json::list(edited_blocks(&own_blocks(content, item::text), original, shown, fresh).into_iter())
    }

    /// The items of one fragment of an answer.
    fn answer(self, fragment: &ShownFragment<'e, 'e>) -> Vec<WrittenItem> {
        let entry = fragment.entry;
        let items = if let Some(own) = &entry.own {
            self.own_answer(fragment, own).into_iter().collect()
        } else {
            let portable = PortableEvent::of(entry, self.manner.meter);
            item::answer(&portable.said_at(fragment.shown()), |call, place| {
                self.ids.changed(entry, place).unwrap_or(&call.id.0).to_owned()
            })
        };
        let item = |json| WrittenItem {
            is_reasoning: is_reasoning(entry),
            parted: (fragment.parted_before, fragment.parted_after),
            ..WrittenItem::new(json, entry, AlternatingRole::Assistant)
        };
        items.into_iter().map(item).collect()
    }

    fn own_answer(self, fragment: &ShownFragment<'e, 'e>, own: &Json<'_>) -> Option<String> {
        let entry = fragment.entry;
        if !self.manner.is_legal() {
            return Some(own.raw.to_owned());
        }
        let is_unreadable = || {
            let call = own.text_at("type").is_some_and(item::is_call);
            call && !entry.parts().iter().any(|part| matches!(part, ContentPart::ToolCall(_)))
        };
        if is_unreadable() || is_empty_reasoning(own) {
            return None;
        }
        let content = own.get("content").filter(|_| fragment.places.is_some());
        let shown = content.and_then(Json::as_array).map(|parts| {
            let shown = parts.iter().enumerate().filter(|(place, _)| fragment.shows(*place));
            json::list(shown.map(|(_, part)| part.raw.to_owned()))
        });
        let renamed = self.ids.changed(entry, 0).map(quote).zip(own.get("call_id"));
        let odd = own.get("arguments").filter(|given| given.is_object() || given.as_array().is_some());
        let odd = odd.filter(|_| own.text_at("type") == Some("function_call"));
        // Arguments that a model wrote as an object are sent as the text of that object.
        let text = odd.map(|given| (given, quote(given.raw)));
        let text = text.as_ref().map(|(given, text)| (*given, text.as_str()));
        let edits = content.zip(shown.as_deref()).into_iter().chain(text);
        let edits: Vec<_> = edits.chain(renamed.as_ref().map(|(id, member)| (*member, &**id))).collect();
        let mut json = json::replace_members(own, &edits);
        if fragment.places.is_some() {
            json = known_members(&json);
        }
        // The provider remembers an item by its id, and would miss the reasoning that led to it.
        if fragment.parted_before
            && own.get("id").is_some()
            && !is_reasoning(entry)
            && let Ok(item) = Json::parse(&json, "an item")
        {
            return Some(json::without_member(&item, "id"));
        }
        Some(json)
    }

    fn outcome(self, outcome: &ShownOutcome<'e, 'e>) -> Option<WrittenItem> {
        match (&outcome.result, &outcome.site) {
            (Some(returned), site) => self.result(returned, site.as_ref()),
            (None, Some(site)) => {
                let json = stand_in(item::kind(site.entry, site.call), self.ids.of_site(site));
                Some(WrittenItem::words(json, Vec::new()))
            }
            (None, None) => None,
        }
    }

    /// A result, under the id its call is written with.
    fn result(
        self,
        returned: &ShownCallResult<'e, 'e>,
        site: Option<&CallPosition<'e, 'e>>,
    ) -> Option<WrittenItem> {
        let entry = returned.entry;
        let result = entry.event.fact.results().get(returned.ordinal)?;
        let id = site.map_or(&*result.call.0, |site| self.ids.of_site(site));
        let called = site.map(|site| item::kind(site.entry, site.call));
        let json = match &entry.own {
            // The output must be of the kind of its call, which may have come from elsewhere.
            Some(own) if called.is_none_or(|called| item::answers(own, called)) => {
                self.own_result(entry, own, id, returned.shown)
            }
            _ => {
                let portable = PortableEvent::of(entry, self.manner.meter);
                let parts = match returned.shown {
                    ShownContent::AsSent => &result.parts,
                    ShownContent::Replaced(parts) => parts,
                };
                item::output(called.unwrap_or("function_call"), id, &portable.pieces_of(parts))
            }
        };
        Some(WrittenItem::new(json, entry, AlternatingRole::User))
    }

    fn own_result(
        self,
        entry: &'e SourceEvent<'e>,
        own: &Json<'_>,
        id: &str,
        shown: ShownContent<'e>,
    ) -> String {
        let original = entry.event.fact.results().first().map_or(&[][..], |result| &result.parts);
        let place = own.get(if own.get("tools").is_some() { "tools" } else { "output" });
        let new = place.and_then(|place| match shown {
            ShownContent::AsSent => None,
            ShownContent::Replaced(parts) => {
                let portable = PortableEvent::of(entry, self.manner.meter);
                let fixed = item::replacement(own, &portable.texts(parts));
                Some((place, fixed.unwrap_or_else(|| self.mended(entry, Some(place), original, parts))))
            }
        });
        let named = own.get("call_id").or_else(|| own.get("id"));
        let named = named.filter(|named| named.as_text() != Some(id));
        let id = quote(id);
        let new = new.as_ref().map(|(place, new)| (*place, new.as_str()));
        let edits: Vec<_> = new.into_iter().chain(named.map(|named| (named, &*id))).collect();
        if edits.is_empty() { own.raw.to_owned() } else { json::replace_members(own, &edits) }
    }
}

/// A message that is shown in part, without unknown members: the part that paid for them may be gone.
fn known_members(json: &str) -> String {
    const KNOWN: [&str; 6] = ["type", "id", "role", "status", "phase", "content"];
    let Ok(item) = Json::parse(json, "an item") else { return json.to_owned() };
    if item.text_at("type").is_some_and(|kind| kind != "message") {
        return json.to_owned();
    }
    let is_known =
        |key: &str, value: &Json<'_>| KNOWN.contains(&key) && (key == "content" || is_short(value));
    let known = item.members().iter().filter(|(key, value)| is_known(key, value));
    json::object(known.map(|(key, value)| (&**key, value.raw.to_owned())))
}

fn speaker(own: &Json<'_>) -> AlternatingRole {
    match own.text_at("role") {
        Some("user") => AlternatingRole::User,
        Some("assistant") => AlternatingRole::Assistant,
        _ => AlternatingRole::Other,
    }
}
