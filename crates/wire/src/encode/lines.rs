//! From events to lines: as they were recorded, or changed to what a provider accepts.

use std::collections::HashMap;

use epitome_core::{
    Fact, Part, Seq,
    event::ToolResult,
    id::AnswerId,
    pairing::{self, Outcome as Paired},
};

use crate::{
    format::Format,
    write::{Entry, Fragment, Line, Outcome, Returned, Shown, Site, skeleton::Head},
};

/// Writes every event as a message of its own, except fragments and results of an answer that has a name.
pub(super) fn recorded<'e, 'a>(format: Format, entries: &'e [Entry<'a>]) -> Vec<Line<'e, 'a>> {
    if format == Format::OpenaiResponses {
        return entries.iter().map(|entry| Line::Whole(vec![entry])).collect();
    }
    let mut lines = Vec::new();
    for group in grouped(entries, Fragments::Named) {
        match group {
            Group::Answer { fragments, results } => {
                let named = fragments.first().is_some_and(|entry| answer_of(entry).is_some());
                lines.push(Line::Answer(fragments.into_iter().map(Fragment::whole).collect()));
                if named && !results.is_empty() {
                    lines.push(Line::Whole(results));
                } else {
                    lines.extend(results.into_iter().map(|entry| Line::Whole(vec![entry])));
                }
            }
            Group::Other(entry) => lines.push(Line::Whole(vec![entry])),
        }
    }
    lines
}

/// Writes every answer followed directly by the results of its calls, and leaves out results that answer no call.
pub(super) fn legal<'e, 'a>(
    format: Format,
    entries: &'e [Entry<'a>],
    head: &Head<'_, '_>,
) -> Vec<Line<'e, 'a>> {
    let mut outcomes = Outcomes::of(entries);
    // With history stored by the provider, a result's call may be there.
    let remote = head.has("previous_response_id") || head.has("conversation");
    let groups = match format {
        // In Responses an answer consists of as many items as follow each other.
        Format::OpenaiResponses => grouped(entries, Fragments::Neighbours),
        Format::OpenaiChat | Format::Anthropic => grouped(entries, Fragments::Named),
    };
    let mut lines = Vec::new();
    for group in groups {
        let said = match group {
            Group::Answer { fragments, results } => {
                let returned = outcomes.take(&fragments);
                lines.push(Line::Answer(fragments.into_iter().map(Fragment::whole).collect()));
                lines.extend((!returned.is_empty()).then_some(Line::Returned(returned)));
                results
            }
            Group::Other(entry) => vec![entry],
        };
        for entry in said {
            if remote {
                let strays = outcomes.strays(entry);
                lines.extend((!strays.is_empty()).then_some(Line::Returned(strays)));
            }
            if !matches!(entry.event.fact, Fact::ToolReturned { .. }) || !entry.event.fact.parts().is_empty()
            {
                lines.push(Line::Said(entry, Shown::AsSent));
            }
        }
    }
    lines
}

/// An answer with the results of its calls, or a message by itself.
enum Group<'e, 'a> {
    /// The fragments of one answer, and the messages with results that follow them.
    Answer { fragments: Vec<&'e Entry<'a>>, results: Vec<&'e Entry<'a>> },
    /// Any other event.
    Other(&'e Entry<'a>),
}

/// Criterion by which events are fragments of one answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragments {
    /// The provider's name for the answer, even if results stand between the fragments.
    Named,
    /// The provider's name for the answer, or adjacency.
    Neighbours,
}

/// Gathers the fragments of each answer.
fn grouped<'e, 'a>(entries: &'e [Entry<'a>], by: Fragments) -> Vec<Group<'e, 'a>> {
    let mut groups: Vec<Group<'e, 'a>> = Vec::new();
    for entry in entries {
        match (&entry.event.fact, groups.last_mut()) {
            (Fact::AssistantSaid { answer, .. }, Some(Group::Answer { fragments, results }))
                if (by == Fragments::Neighbours && results.is_empty())
                    || (answer.is_some()
                        && fragments.last().is_some_and(|last| answer_of(last) == answer.as_ref())) =>
            {
                fragments.push(entry);
            }
            (Fact::AssistantSaid { .. }, _) => {
                groups.push(Group::Answer { fragments: vec![entry], results: Vec::new() });
            }
            (Fact::ToolReturned { .. }, Some(Group::Answer { results, .. })) => results.push(entry),
            _ => groups.push(Group::Other(entry)),
        }
    }
    groups
}

/// Id that an answer's fragments share.
fn answer_of<'a>(entry: &Entry<'a>) -> Option<&'a AnswerId> {
    match &entry.event.fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}

/// Results of every call, by the event that makes the call, and results that answer no call.
struct Outcomes<'e, 'a> {
    of_calls: HashMap<usize, Vec<Outcome<'e, 'a>>>,
    strays: HashMap<usize, Vec<Outcome<'e, 'a>>>,
}

impl<'e, 'a> Outcomes<'e, 'a> {
    fn of(entries: &'e [Entry<'a>]) -> Self {
        let mut places: HashMap<*const ToolResult, (&'e Entry<'a>, usize)> = HashMap::new();
        let mut calls: HashMap<usize, (&'e Entry<'a>, Vec<usize>)> = HashMap::new();
        for entry in entries {
            for (ordinal, result) in entry.event.fact.results().iter().enumerate() {
                places.insert(std::ptr::from_ref(result), (entry, ordinal));
            }
            let parts = entry.event.fact.parts().iter().enumerate().rev();
            let made = parts.filter(|(_, part)| matches!(part, Part::ToolCall(_))).map(|(place, _)| place);
            calls.insert(entry.index, (entry, made.collect()));
        }
        let returned = |result: &ToolResult| {
            let (entry, ordinal) = *places.get(&std::ptr::from_ref(result))?;
            Some(Returned { entry, ordinal, shown: Shown::AsSent })
        };
        let facts = entries.iter().map(|entry| (Seq(entry.index as u64), &entry.event.fact));
        let paired = pairing::pair(facts);
        let mut outcomes = Self { of_calls: HashMap::new(), strays: HashMap::new() };
        for exchange in paired.exchanges {
            let index = usize::try_from(exchange.at.0).unwrap_or(usize::MAX);
            // Two calls of one event may share an id, so they are paired in their order.
            let Some((entry, made)) = calls.get_mut(&index) else { continue };
            let site = made.pop().map(|place| Site { entry, place, call: exchange.call });
            let result = match exchange.outcome {
                Paired::Returned { result, .. } => returned(result),
                Paired::Unanswered => None,
            };
            outcomes.of_calls.entry(index).or_default().push(Outcome { site, result });
        }
        for (_, result) in paired.strays {
            if let Some(returned) = returned(result) {
                let strays = outcomes.strays.entry(returned.entry.index).or_default();
                strays.push(Outcome { site: None, result: Some(returned) });
            }
        }
        outcomes
    }

    /// Takes the results of an answer's calls: those that came, in the order they were sent, then those that are
    /// missing.
    fn take(&mut self, fragments: &[&Entry<'_>]) -> Vec<Outcome<'e, 'a>> {
        let mine = fragments.iter().filter_map(|entry| self.of_calls.remove(&entry.index)).flatten();
        let mut mine: Vec<Outcome<'e, 'a>> = mine.collect();
        mine.sort_by_key(|outcome| match &outcome.result {
            Some(returned) => (false, returned.entry.index, returned.ordinal),
            None => (true, 0, 0),
        });
        mine
    }

    /// Takes the results of an event that answer no call.
    fn strays(&mut self, entry: &Entry<'_>) -> Vec<Outcome<'e, 'a>> {
        self.strays.remove(&entry.index).unwrap_or_default()
    }
}
