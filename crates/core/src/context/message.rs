//! A context as the sequence of messages that a renderer walks.
//!
//! Segments are finer than messages: an answer is several, and a result stands with its call.
//! [`Context::messages`] puts them together again in an order that every provider takes: an answer, then all
//! results of its calls, then the next message. Untouched content is recognisable by [`AnswerFragment::is_whole`],
//! [`ToolResultsMessage::is_whole`] and [`SegmentContent::AsSent`], and can leave with the very bytes it came with.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    context::{Context, ContextNote, Segment, SegmentBody, SegmentContent, VisibleOutcome},
    event::{Compaction, ContentPart, Fact, LoggedEvent, ToolCall, ToolResult},
    id::AnswerId,
};

/// A message of a context.
#[derive(Clone, Debug)]
pub enum ContextMessage<'a> {
    /// An instruction, whole: of the prefix if the segment [says so](Segment::is_prefix), else where it stands.
    Instruction {
        /// The segment.
        segment: &'a Segment,
        /// The event.
        event: &'a Arc<LoggedEvent>,
    },
    /// A user's message, an injected text, or a text from beside tool results that are no longer next to it.
    User {
        /// The segment.
        segment: &'a Segment,
        /// The event.
        event: &'a Arc<LoggedEvent>,
        /// Content that is shown of it.
        content: &'a SegmentContent,
    },
    /// An answer of the model. If it makes calls, the [`ToolResultsMessage`] that follow it answer each of them once.
    Answer(AnswerMessage<'a>),
    /// Results of the calls of the answer before.
    Returned(ToolResultsMessage<'a>),
    /// Something unknown, whole.
    Carried {
        /// The segment.
        segment: &'a Segment,
        /// The event.
        event: &'a Arc<LoggedEvent>,
    },
    /// The summary of the compaction the context stands on. It goes out as a user message, as an answer to a question of
    /// the user's, or, if only its provider can read it, as the event's raw form.
    Summary {
        /// The segment.
        segment: &'a Segment,
        /// The event.
        event: &'a Arc<LoggedEvent>,
        /// Compaction with the text of the summary.
        compaction: &'a Compaction,
    },
    /// A line about events that are not shown. It goes out as a user message.
    Note {
        /// The segment.
        segment: &'a Segment,
        /// The note with its text.
        note: &'a ContextNote,
    },
}

/// One answer of the model, in the fragments it was logged in.
#[derive(Clone, Debug)]
pub struct AnswerMessage<'a> {
    /// At least one, in order, each of another event.
    pub fragments: Vec<AnswerFragment<'a>>,
}

/// Content that is shown of one event of an answer.
#[derive(Clone, Debug)]
pub struct AnswerFragment<'a> {
    /// The event.
    pub event: &'a Arc<LoggedEvent>,
    /// The shown parts, by their places in the event, in order.
    pub parts: Vec<(usize, &'a Segment)>,
}

/// Results of some calls, as one message that was sent, or without one.
#[derive(Clone, Debug)]
pub struct ToolResultsMessage<'a> {
    /// The message that carried the results; `None` for calls that were never answered.
    pub event: Option<&'a Arc<LoggedEvent>>,
    /// The outcomes in the order they were sent, or for unanswered calls in the order of the calls.
    pub outcomes: Vec<ShownCall<'a>>,
    /// Content of the same message beside them, if it is shown.
    pub beside: Option<(&'a Segment, &'a SegmentContent)>,
}

/// A call and the part of its outcome that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownCall<'a> {
    /// The segment of the exchange.
    pub segment: &'a Segment,
    /// The event that made the call.
    pub caller: &'a Arc<LoggedEvent>,
    /// Index of the call among the event's parts.
    pub part: usize,
    /// Outcome as it is shown.
    pub shown: &'a VisibleOutcome,
}

impl Context {
    /// The context as messages, in the order they are sent.
    ///
    /// ```
    /// use epitome_core::context::{Context, ContextMessage};
    ///
    /// /// What each message is, one word a message.
    /// fn outline(context: &Context) -> Vec<&'static str> {
    ///     let word = |message| match message {
    ///         ContextMessage::Instruction { .. } => "instruction",
    ///         ContextMessage::User { .. } => "user",
    ///         ContextMessage::Answer(answer) if answer.fragments.iter().all(|part| part.is_whole()) => "answer",
    ///         ContextMessage::Answer(_) => "part of an answer",
    ///         ContextMessage::Returned(returned) if returned.is_whole() => "results",
    ///         ContextMessage::Returned(_) => "results, changed or missing",
    ///         ContextMessage::Carried { .. } => "unknown",
    ///         ContextMessage::Summary { .. } | ContextMessage::Note { .. } => "about what is not shown",
    ///     };
    ///     context.messages().map(word).collect()
    /// }
    /// ```
    pub fn messages(&self) -> MessageIter<'_> {
        MessageIter { segments: self.segments(), ready: VecDeque::new() }
    }
}

/// Walks a context as messages.
#[derive(Clone, Debug)]
pub struct MessageIter<'a> {
    segments: &'a [Segment],
    ready: VecDeque<ContextMessage<'a>>,
}

impl<'a> Iterator for MessageIter<'a> {
    type Item = ContextMessage<'a>;

    fn next(&mut self) -> Option<ContextMessage<'a>> {
        if let Some(message) = self.ready.pop_front() {
            return Some(message);
        }
        let (segment, rest) = self.segments.split_first()?;
        let message = match &segment.body {
            SegmentBody::Answer { .. } | SegmentBody::Exchange { .. } => return Some(self.answer()),
            SegmentBody::Prefix(event) | SegmentBody::Instruction(event) => {
                ContextMessage::Instruction { segment, event }
            }
            SegmentBody::User { event, content } => ContextMessage::User { segment, event, content },
            SegmentBody::Carried(event) => ContextMessage::Carried { segment, event },
            SegmentBody::Summary(event) => match &event.event.fact {
                Fact::Compacted(compaction) => ContextMessage::Summary { segment, event, compaction },
                _ => ContextMessage::Carried { segment, event },
            },
            SegmentBody::Note(note) => ContextMessage::Note { segment, note },
        };
        self.segments = rest;
        Some(message)
    }
}

impl<'a> MessageIter<'a> {
    /// Takes the segments of one answer; the results of its calls are made ready to follow it.
    fn answer(&mut self) -> ContextMessage<'a> {
        let mut answer = AnswerMessage { fragments: Vec::new() };
        let mut outcomes = Vec::new();
        while let Some((segment, rest)) = self.segments.split_first() {
            let (SegmentBody::Answer { event, part } | SegmentBody::Exchange { event, part, .. }) =
                &segment.body
            else {
                break;
            };
            match answer.fragments.last_mut() {
                Some(last) if last.event.id == event.id => last.parts.push((*part, segment)),
                Some(last) if !is_same_answer(last.event, event) => break,
                _ => answer.fragments.push(AnswerFragment { event, parts: vec![(*part, segment)] }),
            }
            if let SegmentBody::Exchange { outcome, .. } = &segment.body {
                outcomes.push(ShownCall { segment, caller: event, part: *part, shown: outcome });
            }
            self.segments = rest;
        }
        let mut returned = returned(outcomes);
        self.beside(&mut returned);
        self.ready.extend(returned.into_iter().map(ContextMessage::Returned));
        ContextMessage::Answer(answer)
    }

    /// Sends content from beside the results along with the messages that carry them.
    fn beside(&mut self, returned: &mut [ToolResultsMessage<'a>]) {
        while let Some((segment, rest)) = self.segments.split_first() {
            let SegmentBody::User { event, content } = &segment.body else { break };
            let at =
                returned.partition_point(|one| one.event.is_some_and(|other| other.id.seq < event.id.seq));
            let Some(one) = returned.get_mut(at) else { break };
            if one.event.is_none_or(|other| other.id != event.id) {
                break;
            }
            one.beside = Some((segment, content));
            self.segments = rest;
        }
    }
}

/// Outcomes by the message they came in, in the order these were sent; those that never came are last.
fn returned(mut outcomes: Vec<ShownCall<'_>>) -> Vec<ToolResultsMessage<'_>> {
    // The sort is stable, so that unanswered calls keep their order.
    outcomes.sort_by_key(|outcome| match outcome.shown {
        VisibleOutcome::Returned { event, index, .. } => (false, event.id.seq, *index),
        VisibleOutcome::Unanswered => (true, outcome.caller.id.seq, outcome.part),
    });
    let mut returned: Vec<ToolResultsMessage<'_>> = Vec::new();
    for outcome in outcomes {
        let event = outcome.event();
        match returned.last_mut() {
            Some(last) if last.event.map(|event| event.id) == event.map(|event| event.id) => {
                last.outcomes.push(outcome);
            }
            _ => returned.push(ToolResultsMessage { event, outcomes: vec![outcome], beside: None }),
        }
    }
    returned
}

fn is_same_answer(one: &LoggedEvent, other: &LoggedEvent) -> bool {
    answer_id(&one.event.fact).is_some() && answer_id(&one.event.fact) == answer_id(&other.event.fact)
}

fn answer_id(fact: &Fact) -> Option<&AnswerId> {
    match fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}

impl<'a> AnswerMessage<'a> {
    /// Everything it shows, in order, fragment by fragment.
    pub fn parts(&self) -> impl Iterator<Item = &'a ContentPart> {
        self.fragments.iter().flat_map(AnswerFragment::shown)
    }

    /// The calls it makes, in order.
    pub fn calls(&self) -> impl Iterator<Item = &'a ToolCall> {
        self.parts().filter_map(|part| match part {
            ContentPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl<'a> AnswerFragment<'a> {
    /// Returns true if all of the event is shown, so that its raw form says the same.
    pub fn is_whole(&self) -> bool {
        // The places come in order and each once, so that as many as there are parts are all of them.
        self.parts.len() == self.event.event.fact.parts().len()
    }

    /// The parts it shows.
    pub fn shown(&self) -> impl Iterator<Item = &'a ContentPart> + use<'a> {
        let event = self.event;
        let places: Vec<usize> = self.parts.iter().map(|(place, _)| *place).collect();
        places.into_iter().filter_map(move |place| event.event.fact.parts().get(place))
    }
}

impl ToolResultsMessage<'_> {
    /// Returns true if the message is shown as it was sent: every result, in order, untouched, and the
    /// content beside them.
    pub fn is_whole(&self) -> bool {
        let Some(event) = self.event else { return false };
        let said = !event.event.fact.parts().is_empty();
        let beside = match self.beside {
            Some((_, content)) => *content == SegmentContent::AsSent,
            None => !said,
        };
        beside
            && self.outcomes.len() == event.event.fact.results().len()
            && self.outcomes.iter().all(ShownCall::is_as_sent)
    }
}

impl<'a> ShownCall<'a> {
    /// The call.
    pub fn call(&self) -> Option<&'a ToolCall> {
        self.segment.call()
    }

    /// The event that carries the result.
    pub fn event(&self) -> Option<&'a Arc<LoggedEvent>> {
        match self.shown {
            VisibleOutcome::Returned { event, .. } => Some(event),
            VisibleOutcome::Unanswered => None,
        }
    }

    /// The result as it was sent.
    pub fn result(&self) -> Option<&'a ToolResult> {
        match self.shown {
            VisibleOutcome::Returned { event, index, .. } => event.event.fact.results().get(*index),
            VisibleOutcome::Unanswered => None,
        }
    }

    /// Returns true if the result is shown as it was sent.
    pub fn is_as_sent(&self) -> bool {
        matches!(self.shown, VisibleOutcome::Returned { content: SegmentContent::AsSent, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::{Fidelity, SegmentEdit},
        notation::context,
    };

    /// A word a message: `5` is an event as it was, `5~` one of which something is missing or changed, `-` no event.
    fn outline(context: &Context) -> String {
        let mark = |whole: bool| if whole { "" } else { "~" };
        let word = |message: ContextMessage<'_>| match message {
            ContextMessage::Instruction { event, .. } => format!("instruction {}", event.id.seq),
            ContextMessage::User { event, content, .. } => {
                format!("user {}{}", event.id.seq, mark(*content == SegmentContent::AsSent))
            }
            ContextMessage::Answer(answer) => {
                let fragments = answer.fragments.iter();
                let events: Vec<String> =
                    fragments.map(|one| format!("{}{}", one.event.id.seq, mark(one.is_whole()))).collect();
                format!("answer {}", events.join("+"))
            }
            ContextMessage::Returned(returned) => {
                let event = returned.event.map_or("-".to_owned(), |event| event.id.seq.to_string());
                let calls: Vec<&str> = returned
                    .outcomes
                    .iter()
                    .filter_map(ShownCall::call)
                    .map(|call| call.id.0.as_str())
                    .collect();
                let beside = if returned.beside.is_some() { " beside" } else { "" };
                format!("returned {event}{} {}{beside}", mark(returned.is_whole()), calls.join(" "))
            }
            ContextMessage::Carried { event, .. } => format!("carried {}", event.id.seq),
            ContextMessage::Summary { event, .. } => format!("summary {}", event.id.seq),
            ContextMessage::Note { note, .. } => format!("note {}", note.folded.events),
        };
        context.messages().map(word).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_answer_in_fragments_is_one_message_and_its_results_follow() {
        let log = "
system: Rules.
user: Go.
assistant#m: Two things.
  call#a bash {}
  -> done a
assistant#m:
  call#b bash {}
  -> done b
  beside: By the way.
assistant#n: Done.
";
        insta::assert_snapshot!(outline(&context(log)), @r"
        instruction 1
        user 2
        answer 3+5
        returned 4 a
        returned 6 b beside
        answer 7
        ");
    }

    #[test]
    fn results_go_out_as_they_were_sent_and_those_that_never_came_are_last() {
        let log = "
user: Go.
assistant:
  call#a bash {}
  call#b bash {}
  call#c bash {}
result c: third first
user: Wait.
result a: then the first
";
        insta::assert_snapshot!(outline(&context(log)), @r"
        user 1
        answer 2
        returned 3 c
        returned 5 a
        returned -~ b
        user 4
        ");
    }

    #[test]
    fn what_was_touched_is_not_whole() {
        let log = "
user: Go on then.
assistant: Calling.
  thinking: Let me see.
  call#a bash {}
  -> 9 words of \"a\"
  call#b bash {}
  -> 9 words of \"b\"
user: More?
";
        let touched = context(log).edit("test", |index, segment| match (index, segment.call()) {
            (2, _) => SegmentEdit::Drop,
            (_, Some(call)) if call.id.0 == "b" => SegmentEdit::line("gone".into(), Fidelity::Stub),
            _ => SegmentEdit::Keep,
        });
        insta::assert_snapshot!(outline(&touched), @r"
        user 1
        answer 2~
        returned 3~ a b
        user 4
        ");
    }

    #[test]
    fn strays_are_not_sent_and_what_is_unknown_goes_along() {
        let log = "
user: Go.
assistant:
  call#a bash {}
result a: one
result a: two
compacted through 0 keep 1: Nothing yet.
carried: something
";
        insta::assert_snapshot!(outline(&context(log)), @r"
        summary 5
        user 1
        answer 2
        returned 3 a
        carried 6
        ");
    }
}
