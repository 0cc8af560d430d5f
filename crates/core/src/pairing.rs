//! Calls joined with their outcomes.
//!
//! An [`Exchange`] is one value, so a call without an outcome or a result without a call cannot be written
//! down. Providers reuse call ids ("call_1" in every turn): a result belongs to the nearest open call of its id.

use std::collections::{HashMap, VecDeque};

use crate::{
    event::{Fact, ToolCall, ToolResult},
    id::{CallId, Seq},
};

/// A tool call together with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange<'a> {
    /// The event that made the call.
    pub at: Seq,
    /// The call.
    pub call: &'a ToolCall,
    /// Outcome of the call.
    pub outcome: CallOutcome<'a>,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome<'a> {
    /// The tool returned.
    Returned {
        /// The event that carries the result.
        at: Seq,
        /// The result.
        result: &'a ToolResult,
    },
    /// Without a result: interrupted, still running, or lost in the recording.
    Unanswered,
}

/// A line of events, paired.
#[derive(Clone, Debug, Default)]
pub struct PairedCalls<'a> {
    /// Every call, in order, with its outcome.
    pub exchanges: Vec<Exchange<'a>>,
    /// Results that no open call asked for. They are history, and are never rendered.
    pub strays: Vec<(Seq, &'a ToolResult)>,
}

/// Pairs every call in `events` with its result.
pub fn pair<'a>(events: impl IntoIterator<Item = (Seq, &'a Fact)>) -> PairedCalls<'a> {
    let mut paired = PairedCalls::default();
    let mut open: HashMap<&'a CallId, WaitingCalls> = HashMap::new();
    for (at, fact) in events {
        for call in fact.calls() {
            open.entry(&call.id).or_default().push(at, paired.exchanges.len());
            paired.exchanges.push(Exchange { at, call, outcome: CallOutcome::Unanswered });
        }
        for result in fact.results() {
            match open.get_mut(&result.call).and_then(WaitingCalls::nearest) {
                Some(index) => paired.exchanges[index].outcome = CallOutcome::Returned { at, result },
                None => paired.strays.push((at, result)),
            }
        }
    }
    paired
}

/// The open calls of one id, by the message that made them.
#[derive(Default)]
struct WaitingCalls(Vec<(Seq, VecDeque<usize>)>);

impl WaitingCalls {
    fn push(&mut self, at: Seq, index: usize) {
        match self.0.last_mut() {
            Some((last, calls)) if *last == at => calls.push_back(index),
            _ => self.0.push((at, VecDeque::from([index]))),
        }
    }

    /// Of the last message with open calls, the first of them: within one message a repeated id is answered in order,
    /// across messages the newest is meant.
    fn nearest(&mut self) -> Option<usize> {
        let (_, calls) = self.0.last_mut()?;
        let nearest = calls.pop_front();
        if calls.is_empty() {
            self.0.pop();
        }
        nearest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::ContentPart;

    fn calls(ids: &[&str]) -> Fact {
        let parts = ids.iter().map(|id| ContentPart::ToolCall(ToolCall::function(*id, "t", "{}"))).collect();
        Fact::AssistantSaid { answer: None, model: None, parts }
    }

    fn results(ids: &[&str]) -> Fact {
        let result = |id: &&str| ToolResult { call: (*id).into(), name: None, parts: vec![], error: false };
        Fact::ToolReturned { results: ids.iter().map(result).collect(), parts: vec![] }
    }

    /// `a@1→2` reads: the call `a` of event 1 was answered by event 2.
    fn check(facts: &[Fact], expect: &[&str], strays: usize) {
        let paired = pair((1..).map(Seq).zip(facts));
        let shown: Vec<String> = paired
            .exchanges
            .iter()
            .map(|exchange| match exchange.outcome {
                CallOutcome::Returned { at, .. } => format!("{}@{}→{at}", exchange.call.id, exchange.at),
                CallOutcome::Unanswered => format!("{}@{}→", exchange.call.id, exchange.at),
            })
            .collect();
        assert_eq!(shown, expect);
        assert_eq!(paired.strays.len(), strays);
    }

    #[test]
    fn a_call_id_used_twice_still_pairs_in_order() {
        check(&[calls(&["a"]), results(&["a"]), calls(&["a"]), results(&["a"])], &["a@1→2", "a@3→4"], 0);
        check(&[calls(&["a", "a"]), results(&["a"]), results(&["a"])], &["a@1→2", "a@1→3"], 0);
    }

    #[test]
    fn an_abandoned_call_does_not_take_a_later_result() {
        check(&[calls(&["a"]), calls(&["a"]), results(&["a"])], &["a@1→", "a@2→3"], 0);
    }

    #[test]
    fn parallel_results_may_come_in_any_order() {
        check(&[calls(&["a", "b"]), results(&["b", "a"])], &["a@1→2", "b@1→2"], 0);
    }

    #[test]
    fn a_result_nobody_asked_for_is_a_stray() {
        check(&[results(&["a"]), calls(&["a"]), results(&["a", "a"])], &["a@2→3"], 2);
    }

    proptest! {
        /// In any order: each call once, each result once, and only ids that match.
        #[test]
        fn pairing_holds_with_reused_ids_missing_results_and_results_out_of_order(
            script in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..4)), 0..20),
        ) {
            let facts: Vec<Fact> =
                script.iter().map(|(call, ids)| if *call { calls(ids) } else { results(ids) }).collect();
            let paired = pair((1..).map(Seq).zip(&facts));
            let made: usize = facts.iter().map(|fact| fact.calls().count()).sum();
            let returned: usize = facts.iter().map(|fact| fact.results().len()).sum();
            prop_assert_eq!(paired.exchanges.len(), made);
            let mut used = paired.strays.len();
            for exchange in &paired.exchanges {
                if let CallOutcome::Returned { at, result } = exchange.outcome {
                    used += 1;
                    prop_assert_eq!(&result.call, &exchange.call.id);
                    prop_assert!(at > exchange.at);
                }
            }
            prop_assert_eq!(used, returned);
            // A stray is only ever a result for which no call of its id was open.
            for (at, stray) in &paired.strays {
                let open_before = paired.exchanges.iter().any(|exchange| {
                    exchange.call.id == stray.call && exchange.at < *at && exchange.outcome == CallOutcome::Unanswered
                });
                prop_assert!(!open_before);
            }
        }
    }
}
