//! Events of an incoming request: only the parts that are needed are read.

use std::collections::HashMap;

use epitome_core::{Digest, Event, Fact, event::InstructionKind, id::AnswerId};

use super::{
    HistoryItem, IncomingRequest, api_keys, memo::PieceKind, piece_properties::PreamblePosition, read_item,
};
use crate::{
    format::Format,
    json::Json,
    request::{self, RequestKeys},
};

/// Events beside and before the history.
pub(super) fn opening(seen: &IncomingRequest<'_>) -> Vec<Event> {
    let names = RequestKeys::of(seen.format);
    let said = |key: &str| seen.setting(key).filter(|value| !value.is_null());
    let system = names.system.and_then(said);
    let tools = said(names.tools).filter(|tools| tools.as_array().is_none_or(|tools| !tools.is_empty()));
    let taken = [
        names.system.filter(|_| system.is_some()),
        tools.as_ref().map(|_| names.tools),
        Some(names.history).filter(|_| !seen.items.is_empty()),
    ];
    let skeleton = skeleton(seen, taken.into_iter().flatten());
    let blanked =
        Json::parse(&skeleton, "settings").ok().and_then(|settings| api_keys::blanked_settings(&settings));
    let mut events = vec![request::settings(seen.format, blanked.as_deref().unwrap_or(&skeleton))];
    events.extend(system.map(|system| request::system_event(seen.format, &system)));
    events.extend(tools.map(|tools| {
        let blanked = api_keys::blanked_tools(&tools);
        let blanked = blanked.as_deref().and_then(|tools| Json::parse(tools, "tools").ok());
        request::tools_event(seen.format, blanked.as_ref().unwrap_or(&tools))
    }));
    events.extend((0..seen.opening).filter_map(|at| event(seen, at)));
    for event in &mut events {
        event.normal = None;
    }
    events
}

/// A list of no tools, as an event.
pub(super) fn dropped_tools(format: Format) -> Event {
    let none = Json::parse("[]", "tools").expect("an empty list is JSON");
    Event { normal: None, ..request::tools_event(format, &none) }
}

/// Events of the units from `from` on.
pub(super) fn events(seen: &IncomingRequest<'_>, from: usize) -> Vec<Event> {
    let begin = match from.checked_sub(1) {
        None => seen.opening,
        Some(before) => seen.spans.get(before).or(seen.spans.last()).map_or(seen.opening, |span| span.end),
    };
    let digests: HashMap<usize, Digest> = seen
        .spans
        .iter()
        .zip(&seen.units)
        .skip(from)
        .map(|(span, unit)| (span.end - 1, unit.digest))
        .collect();
    let answers = answers(seen, begin);
    let leads = seen.items.iter().take_while(|item| item.known.lead != PreamblePosition::Ends).count();
    let made = |at: usize| {
        let mut event = event(seen, at)?;
        event.normal = digests.get(&at).copied();
        match &mut event.fact {
            Fact::AssistantSaid { answer, .. } if answers.contains_key(&at) => {
                *answer = answers.get(&at).cloned();
            }
            Fact::UserSaid { parts }
                if at < leads && seen.items.get(at)?.known.lead == PreamblePosition::Preamble =>
            {
                let parts = std::mem::take(parts);
                event.fact = Fact::Instructed { what: InstructionKind::Project, parts };
            }
            _ => {}
        }
        Some(event)
    };
    (begin..seen.items.len()).filter_map(made).collect()
}

/// Reads the item at `at` as if it stood alone. It always exists: every item was read once.
pub(super) fn event(seen: &IncomingRequest<'_>, at: usize) -> Option<Event> {
    let item = seen.items.get(at)?;
    item.event
        .as_deref()
        .cloned()
        .or_else(|| read_item(seen.format, place(seen, item), item.slice.raw).ok().map(|(event, _)| event))
}

fn place(seen: &IncomingRequest<'_>, item: &HistoryItem<'_>) -> PieceKind {
    let history = seen.member(RequestKeys::of(seen.format).history);
    let is_bare = history.is_some_and(|history| history.value.start == item.slice.start);
    if is_bare { PieceKind::Bare } else { PieceKind::Item }
}

/// The answers that the items from `begin` on belong to, named as in [a request](request).
fn answers(seen: &IncomingRequest<'_>, begin: usize) -> HashMap<usize, AnswerId> {
    let mut given: HashMap<String, u64> = HashMap::new();
    let mut answers = HashMap::new();
    let mut current: Option<AnswerId> = None;
    if !seen.format.facts().answer.is_items {
        return answers;
    }
    for (at, item) in seen.items.iter().enumerate() {
        let Some(name) = &item.known.answer else {
            current = None;
            continue;
        };
        let answer = current.get_or_insert_with(|| {
            let times = given.entry(name.text()).or_default();
            *times += 1;
            name.id(*times)
        });
        if at >= begin {
            answers.insert(at, answer.clone());
        }
    }
    answers
}

/// The request with `null` in place of the values of some of its members.
fn skeleton<'k>(seen: &IncomingRequest<'_>, taken: impl Iterator<Item = &'k str>) -> String {
    let mut slices: Vec<_> = taken.filter_map(|key| seen.member(key)).map(|member| member.value).collect();
    slices.sort_by_key(|slice| slice.start);
    let mut out = String::new();
    let mut from = 0;
    for slice in slices {
        out.push_str(seen.body.get(from..slice.start).unwrap_or_default());
        out.push_str("null");
        from = slice.start + slice.raw.len();
    }
    out.push_str(seen.body.get(from..).unwrap_or_default());
    out.trim_matches([' ', '\t', '\n', '\r']).to_owned()
}
