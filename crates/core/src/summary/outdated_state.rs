//! State that what follows a summary says otherwise.
//!
//! A summary stands before messages that stay verbatim. These may hold a newer request, the next state of the plan, the run
//! in which a test passed at last: what the summary's own span says of that is then no longer so, and is not written. It
//! stays among the summary's items, since what follows becomes part of the next summary.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ConstraintForce, ItemDetail, SectionCaps, StructuredSummary, SummaryItem, SummarySection, summarise,
};
use crate::{
    context::{Context, Segment, SegmentBody, VisibleOutcome},
    event::LoggedEvent,
    id::Seq,
};

impl StructuredSummary {
    /// The same without the state that is another by the end of a context, of which everything from `first_kept` on stays.
    pub(super) fn without_outdated(self, context: &Context, first_kept: Seq) -> Self {
        let kept = context.segments().iter().filter(|segment| !segment.is_before(first_kept));
        let events = kept.flat_map(events).filter(|event| event.id.seq >= first_kept);
        let events: BTreeMap<Seq, Arc<LoggedEvent>> = events.map(|event| (event.id.seq, event)).collect();
        let events: Vec<Arc<LoggedEvent>> = events.into_values().collect();
        if events.is_empty() {
            return self;
        }
        let before = Self { items: self.items.clone(), ..Self::default() };
        let all = usize::MAX;
        let caps =
            SectionCaps { errors: all, next_steps: all, session_intent: all, ..SectionCaps::default() };
        let now = summarise(&events, Some(&before), &caps);
        let items = self.items.into_iter().filter_map(|item| current(item, &now)).collect();
        Self { items, ..self }
    }
}

/// An item as it is by now; nothing if something newer says what it said.
fn current(item: SummaryItem, now: &StructuredSummary) -> Option<SummaryItem> {
    let same = || now.section(item.section).find(|newer| newer.identity() == item.identity());
    let unchanged = || same().is_some_and(|newer| newer.text == item.text);
    match (item.section, &item.detail) {
        // A message of the user may be told under another key by now.
        (section @ SummarySection::CurrentTask, _) => {
            now.section(section).any(|newer| newer.text == item.text).then_some(item)
        }
        (SummarySection::NextSteps, Some(ItemDetail::Step(_))) => {
            same().filter(|newer| newer.sources == item.sources && !now.is_overtaken(newer)).cloned()
        }
        (SummarySection::Errors, Some(ItemDetail::Error { resolved: None, .. })) => {
            unchanged().then_some(item)
        }
        (SummarySection::Constraints, Some(detail)) => {
            let withdrawn = ItemDetail::Wish(ConstraintForce::Withdrawn);
            let holds = same().is_none_or(|newer| newer.detail.as_ref() != Some(&withdrawn));
            (*detail == withdrawn || holds).then_some(item)
        }
        _ => Some(item),
    }
}

/// The events that a segment shows.
fn events(segment: &Segment) -> Vec<Arc<LoggedEvent>> {
    match segment.body() {
        SegmentBody::User { event, .. } | SegmentBody::Answer { event, .. } => vec![Arc::clone(event)],
        SegmentBody::Exchange { event, outcome, .. } => match outcome {
            VisibleOutcome::Returned { event: result, .. } => vec![Arc::clone(event), Arc::clone(result)],
            VisibleOutcome::Unanswered => vec![Arc::clone(event)],
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        context::EventNaming,
        event::CompactionTrigger,
        event::Summary,
        notation::{meter, read},
        projection::{EventLine, project},
        summary::{
            SectionCaps, SummarySection,
            compaction::{CompactionSettings, VerbatimTail},
        },
    };

    /// The text of a summary of all but the last turns of a session; whatever it says, the state is carried on.
    fn drafted(log: &str, turns: u64) -> String {
        let line = EventLine::new(read(log));
        let context = project(&line, meter(), EventNaming::Messages);
        let drafting = CompactionSettings {
            keep: VerbatimTail::Turns(turns),
            caps: SectionCaps::default(),
            ..CompactionSettings::default()
        };
        let compaction = drafting.draft(None, &context, &line, CompactionTrigger::Threshold).unwrap();
        let Summary::Structured { text, brief } = compaction.summary else { panic!("code has made it") };
        for section in [SummarySection::CurrentTask, SummarySection::Errors, SummarySection::NextSteps] {
            assert!(brief.section(section).next().is_some(), "{section:?} is carried on");
        }
        text
    }

    const SPAN: &str = r#"
user: Add a cache to the client, please, and test it well. Never touch the lock file.
assistant: I will.
  call bash {"command":"make test"}
  !> Error: boom
assistant:
  call TodoWrite {"todos":[{"content":"Write the cache","status":"in_progress"},{"content":"Write the docs","status":"pending"}]}
  -> ok
assistant:
  call read_file {"path":"src/client.rs"}
  -> 400 lines of "code"
"#;

    #[test]
    fn what_follows_a_summary_and_is_newer_is_not_contradicted_by_it() {
        let quiet = drafted(&format!("{SPAN}assistant: So it fails.\n"), 1);
        for stands in ["The first request.", "boom", "Write the cache", "Write the docs", "Never touch"] {
            assert!(quiet.contains(stands), "{stands} is not in\n{quiet}");
        }
        let later = r#"
assistant: It fails, and I know why.
user: You can now touch the lock file. Write the release notes in the meantime.
assistant:
  call bash {"command":"make test"}
  -> fine
assistant:
  call TodoWrite {"todos":[{"content":"Write the docs","status":"in_progress"}]}
  -> ok
"#;
        let text = drafted(&format!("{SPAN}{later}"), 2);
        for gone in ["The first request.", "boom", "Write the cache", "Write the docs", "## Constraints"] {
            assert!(!text.contains(gone), "{gone} is in\n{text}");
        }
    }
}
