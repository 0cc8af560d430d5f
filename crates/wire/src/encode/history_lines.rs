//! From events to lines: as they were recorded, or changed to what a provider accepts.

use std::collections::HashMap;

use epitome_core::{
    ContentPart, Fact, Seq,
    event::ToolResult,
    id::AnswerId,
    pairing::{self, CallOutcome as Paired},
};

use crate::{
    format::Format,
    write::{
        CallPosition, HistoryLine, ShownCallResult, ShownContent, ShownFragment, ShownOutcome, SourceEvent,
        request_envelope::RequestHead,
    },
};

/// Writes every event as a message of its own, except fragments and results of an answer that has a name.
pub(super) fn recorded_lines<'e, 'a>(
    format: Format,
    entries: &'e [SourceEvent<'a>],
) -> Vec<HistoryLine<'e, 'a>> {
    if format.facts().answer.is_items {
        return entries.iter().map(|entry| HistoryLine::Whole(vec![entry])).collect();
    }
    let mut lines = Vec::new();
    for group in grouped(entries, FragmentGrouping::Named) {
        match group {
            EventGroup::Answer { fragments, results } => {
                let named = fragments.first().is_some_and(|entry| answer_of(entry).is_some());
                lines.push(HistoryLine::Answer(fragments.into_iter().map(ShownFragment::whole).collect()));
                if named && !results.is_empty() {
                    lines.push(HistoryLine::Whole(results));
                } else {
                    lines.extend(results.into_iter().map(|entry| HistoryLine::Whole(vec![entry])));
                }
            }
            EventGroup::Other(entry) => lines.push(HistoryLine::Whole(vec![entry])),
        }
    }
    lines
}

/// Writes every answer followed directly by the results of its calls, and leaves out results that answer no call.
pub(super) fn legal_lines<'e, 'a>(
    format: Format,
    entries: &'e [SourceEvent<'a>],
    head: &RequestHead<'_, '_>,
) -> Vec<HistoryLine<'e, 'a>> {
    let mut outcomes = ResultsByCall::of(entries);
    // With history stored by the provider, a result's call may be there.
    let remote = head.has("previous_response_id") || head.has("conversation");
    // Where answers are items, one consists of as many as follow each other.
    let groups = if format.facts().answer.is_items {
        grouped(entries, FragmentGrouping::Neighbours)
    } else {
        grouped(entries, FragmentGrouping::Named)
    };
    let mut lines = Vec::new();
    for group in groups {
        let said = match group {
            EventGroup::Answer { fragments, results } => {
                let returned = outcomes.take(&fragments);
                lines.push(HistoryLine::Answer(fragments.into_iter().map(ShownFragment::whole).collect()));
                lines.extend((!returned.is_empty()).then_some(HistoryLine::Returned(returned)));
                results
            }
            EventGroup::Other(entry) => vec![entry],
        };
        for entry in said {
            if remote {
                let strays = outcomes.strays(entry);
                lines.extend((!strays.is_empty()).then_some(HistoryLine::Returned(strays)));
            }
            if !matches!(entry.event.fact, Fact::ToolReturned { .. }) || !entry.event.fact.parts().is_empty()
            {
                lines.push(HistoryLine::Said(entry, ShownContent::AsSent));
            }
        }
    }
    lines
}

/// An answer with the results of its calls, or a message by itself.
enum EventGroup<'e, 'a> {
    /// The fragments of one answer, and the messages with results that follow them.
    Answer { fragments: Vec<&'e SourceEvent<'a>>, results: Vec<&'e SourceEvent<'a>> },
    /// Any other event.
    Other(&'e SourceEvent<'a>),
}

/// Criterion by which events are fragments of one answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FragmentGrouping {
    /// The provider's name for the answer, even if results stand between the fragments.
    Named,
    /// The provider's name for the answer, or adjacency.
    Neighbours,
}

/// Gathers the fragments of each answer.
fn grouped<'e, 'a>(entries: &'e [SourceEvent<'a>], by: FragmentGrouping) -> Vec<EventGroup<'e, 'a>> {
    let mut groups: Vec<EventGroup<'e, 'a>> = Vec::new();
    for entry in entries {
        match (&entry.event.fact, groups.last_mut()) {
            (Fact::AssistantSaid { answer, .. }, Some(EventGroup::Answer { fragments, results }))
                if (by == FragmentGrouping::Neighbours && results.is_empty())
                    || (answer.is_some()
                        && fragments.last().is_some_and(|last| answer_of(last) == answer.as_ref())) =>
            {
                fragments.push(entry);
            }
            (Fact::AssistantSaid { .. }, _) => {
                groups.push(EventGroup::Answer { fragments: vec![entry], results: Vec::new() });
            }
            (Fact::ToolReturned { .. }, Some(EventGroup::Answer { results, .. })) => results.push(entry),
            _ => groups.push(EventGroup::Other(entry)),
        }
    }
    groups
}

/// Id that an answer's fragments share.
fn answer_of<'a>(entry: &SourceEvent<'a>) -> Option<&'a AnswerId> {
    match &entry.event.fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}

/// Results of every call, by the event that makes the call, and results that answer no call.
struct ResultsByCall<'e, 'a> {
    of_calls: HashMap<usize, Vec<ShownOutcome<'e, 'a>>>,
    strays: HashMap<usize, Vec<ShownOutcome<'e, 'a>>>,
}

impl<'e, 'a> ResultsByCall<'e, 'a> {
    fn of(entries: &'e [SourceEvent<'a>]) -> Self {
        let mut places: HashMap<*const ToolResult, (&'e SourceEvent<'a>, usize)> = HashMap::new();
        let mut calls: HashMap<usize, (&'e SourceEvent<'a>, Vec<usize>)> = HashMap::new();
        for entry in entries {
            for (ordinal, result) in entry.event.fact.results().iter().enumerate() {
                places.insert(std::ptr::from_ref(result), (entry, ordinal));
            }
            let parts = entry.event.fact.parts().iter().enumerate().rev();
            let made =
                parts.filter(|(_, part)| matches!(part, ContentPart::ToolCall(_))).map(|(place, _)| place);
            calls.insert(entry.index, (entry, made.collect()));
        }
        let returned = |result: &ToolResult| {
            let (entry, ordinal) = *places.get(&std::ptr::from_ref(result))?;
            Some(ShownCallResult { entry, ordinal, shown: ShownContent::AsSent })
        };
        let facts = entries.iter().map(|entry| (Seq(entry.index as u64), &entry.event.fact));
        let paired = pairing::pair(facts);
        let mut outcomes = Self { of_calls: HashMap::new(), strays: HashMap::new() };
        for exchange in paired.exchanges {
            let index = usize::try_from(exchange.at.0).unwrap_or(usize::MAX);
            // Two calls of one event may share an id, so they are paired in their order.
            let Some((entry, made)) = calls.get_mut(&index) else { continue };
            let site = made.pop().map(|place| CallPosition { entry, place, call: exchange.call });
            let result = match exchange.outcome {
                Paired::Returned { result, .. } => returned(result),
                Paired::Unanswered => None,
            };
            outcomes.of_calls.entry(index).or_default().push(ShownOutcome { site, result });
        }
        for (_, result) in paired.strays {
            if let Some(returned) = returned(result) {
                let strays = outcomes.strays.entry(returned.entry.index).or_default();
                strays.push(ShownOutcome { site: None, result: Some(returned) });
            }
        }
        outcomes
    }

    /// Takes the results of an answer's calls: those that came, in the order they were sent, then those that are
    /// missing.
    fn take(&mut self, fragments: &[&SourceEvent<'_>]) -> Vec<ShownOutcome<'e, 'a>> {
        let mine = fragments.iter().filter_map(|entry| self.of_calls.remove(&entry.index)).flatten();
        let mut mine: Vec<ShownOutcome<'e, 'a>> = mine.collect();
        mine.sort_by_key(|outcome| match &outcome.result {
            Some(returned) => (false, returned.entry.index, returned.ordinal),
            None => (true, 0, 0),
        });
        mine
    }

    /// Takes the results of an event that answer no call.
    fn strays(&mut self, entry: &SourceEvent<'_>) -> Vec<ShownOutcome<'e, 'a>> {
        self.strays.remove(&entry.index).unwrap_or_default()
    }
}
