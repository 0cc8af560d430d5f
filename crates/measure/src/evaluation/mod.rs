//! Evaluation of summaries on real sessions: each is compacted one or several times on the way, and the last
//! summary is compared with the events of its span.
//!
//! A session is cut by tokens into as many equal parts as there are compactions. At the end of each part,
//! everything shown by then is compacted on top of the summary before, as a policy would; nothing else is
//! left out, so that only the summaries are measured. Compactions that the agent itself recorded are ignored.

mod evaluated_file;

use std::sync::Arc;

use epitome::core::{
    Digest, Event, EventId, Fact, LoggedEvent, ThreadId, Tokens,
    context::EventNaming,
    event::{Compaction, CompactionTrigger},
    meter::Meter,
    policy::SummaryRules,
    projection::{EventLine, project},
    summary::{
        StructuredSummary, SummarySection,
        compaction::{CompactionSettings, CompactionSpan, FinishedSummary},
        summarise,
    },
};
use serde::Serialize;

use crate::{
    metrics::{ratio, span_through},
    summary_retention::{SummaryRetention, is_filled, kept, sections},
};

pub use self::evaluated_file::{EvalTotals, EvaluatedSession, SeenContents, SessionNovelty, evaluate_file};

/// A session to be compacted.
#[derive(Clone, Debug)]
pub struct EvaluationSession {
    line: EventLine,
    meter: Arc<Meter>,
    tokens: Tokens,
}

/// Result of a chain of compactions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryEvaluation {
    /// Number of compactions asked for.
    pub chain: u64,
    /// Number of compactions made: a part too short for a smaller summary is left to the next one.
    pub made: u64,
    /// For each compaction, the size of what was shown before, including the previous summary, and of its
    /// summary.
    pub steps: Vec<(Tokens, Tokens)>,
    /// Size of the last one's span in the log.
    pub span: Tokens,
    /// Size of its summary.
    pub summary: Tokens,
    /// Number of its sections with content.
    pub filled: u64,
    /// Number of its sections, with content or without.
    pub sections: u64,
    /// Retention of what must be kept.
    pub kept: SummaryRetention,
    /// Reasons for rejecting a summariser's drafts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
}

impl SummaryEvaluation {
    /// Ratio of the span to its last summary.
    pub fn ratio(&self) -> f64 {
        ratio(self.span.0, self.summary.0.max(1))
    }
}

/// A span to be summarised by an author.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationSpan<'o> {
    /// The span, and the summary of what came before.
    pub cutting: &'o CompactionSpan,
    /// Largest size of the summary.
    pub limit: Tokens,
    /// Meter of the session.
    pub meter: &'o Meter,
}

impl EvaluationSession {
    /// Makes a session of events, oldest first.
    pub fn new(events: impl IntoIterator<Item = Event>, meter: Arc<Meter>) -> Self {
        let recorded = |event: &Event| {
            matches!(
                event.fact,
                Fact::Compacted(_) | Fact::CompactionReverted { .. } | Fact::CompactionRestored { .. }
            )
        };
        let events = events.into_iter().filter(|event| !recorded(event));
        let line = epitome::compact::line(events).count_missing(&meter);
        let tokens = line.events_with_counts().map(|(event, pieces)| size(event, pieces)).sum();
        Self { line, meter, tokens }
    }

    /// Size of everything that was said, without instructions.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Digests and sizes of everything that was said, event by event, to find how much two sessions share.
    pub fn contents(&self) -> impl Iterator<Item = (Digest, Tokens)> {
        self.line
            .events_with_counts()
            .map(|(event, pieces)| (Digest::of(event.event.fact.text().as_bytes()), size(event, pieces)))
    }

    /// Compacts it `chain` times on the way; `author` writes the summaries. `None` if no compaction made it
    /// smaller.
    pub fn compact_chain(
        &self,
        chain: u64,
        rules: &SummaryRules,
        mut author: impl FnMut(&EvaluationSpan<'_>) -> Result<StructuredSummary, String>,
    ) -> Option<SummaryEvaluation> {
        let names = EventNaming::Thread(ThreadId::derived(&["evaluation"]));
        let part = Tokens(self.tokens.0 / chain.max(1));
        // The verbatim tail must leave something to summarise in every part.
        let drafting = CompactionSettings {
            keep: rules.keep.at_most(Tokens(part.0 / 4)),
            length: rules.length,
            caps: rules.caps,
            most: None,
            limit: None,
            unanswered: None,
        };
        let mut line = EventLine::default();
        let (mut seen, mut part_end, mut done) = (Tokens(0), part, 0);
        let (mut steps, mut rejected, mut last) = (Vec::new(), Vec::new(), None);
        for (event, pieces) in self.line.events_with_counts() {
            line.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
            seen += size(event, pieces);
            let is_last = self.line.last().is_some_and(|newest| newest.id == event.id);
            if done == chain || (seen < part_end && !is_last) {
                continue;
            }
            done += 1;
            part_end += part;
            let context = project(&line, Arc::clone(&self.meter), names);
            let Ok(cutting) = drafting.cut(None, &context, &line) else { continue };
            let limit = drafting.length.of(cutting.covered);
            let order = EvaluationSpan { cutting: &cutting, limit, meter: &self.meter };
            let brief = author(&order).unwrap_or_else(|why| {
                rejected.push(why);
                summarise_built_in(&order)
            });
            let finished = FinishedSummary {
                first: cutting.first,
                first_kept: cutting.first_kept,
                brief,
                trigger: CompactionTrigger::Threshold,
            };
            let Ok(compaction) = finished.into_compaction(&context, drafting.length) else { continue };
            steps.push((cutting.covered, self.meter.text(compaction.summary.text())));
            last = Some(compaction.clone());
            stand_on(&mut line, compaction, &self.meter);
        }
        let made = steps.len() as u64;
        let compaction = last?;
        let through = compaction.through;
        let span = self.line.events_with_counts().take_while(|(event, _)| event.id.seq <= through);
        let found = sections(compaction.summary.text());
        Some(SummaryEvaluation {
            chain,
            made,
            span: span.map(|(event, pieces)| size(event, pieces)).sum(),
            summary: self.meter.text(compaction.summary.text()),
            filled: found.values().filter(|body| is_filled(body)).count() as u64,
            sections: found.values().filter(|body| !body.is_empty()).count() as u64,
            kept: kept(&span_through(&self.line, through), &compaction, names),
            steps,
            rejected,
        })
    }
}

/// Number of a summary's sections.
pub const SECTION_COUNT: usize = SummarySection::ALL.len();

/// Makes a summary without a model.
pub fn summarise_built_in(order: &EvaluationSpan<'_>) -> StructuredSummary {
    summarise(&order.cutting.events, order.cutting.previous.as_ref(), &order.cutting.caps)
}

/// Size of an event, if it is part of the conversation.
fn size(event: &LoggedEvent, pieces: Option<&[Tokens]>) -> Tokens {
    match event.event.fact {
        Fact::Instructed { .. } => Tokens(0),
        _ => pieces.unwrap_or_default().iter().copied().sum(),
    }
}

/// Puts a compaction in force. It takes the number of the event before it, so that all others keep theirs.
fn stand_on(session: &mut EventLine, compaction: Compaction, meter: &Meter) {
    let Some(last) = session.last() else { return };
    let event = Event::from_fact(Fact::Compacted(compaction), None);
    let id = EventId { thread: ThreadId::derived(&["evaluation"]), seq: last.id.seq };
    let link = last.link.next(&event, &event.fact_json());
    let pieces = meter.pieces(&event);
    session.push(Arc::new(LoggedEvent { id, event, link }), pieces);
}

#[cfg(test)]
mod tests {
    use epitome::core::{
        ContentPart, event::ToolCall, event::ToolResult, meter::TokenOverhead, profile::Tokenizer,
    };

    use super::*;

    fn session(turns: u64) -> EvaluationSession {
        let mut events = vec![Event::native(
            "test",
            "{}",
            Fact::UserSaid { parts: vec![ContentPart::text("Build it. Never touch the lock file.")] },
        )];
        for turn in 0..turns {
            let call =
                ToolCall::function(format!("c{turn}"), "bash", format!("{{\"command\":\"make p{turn}\"}}"));
            let said = vec![ContentPart::text(format!("Trying plan {turn}.")), ContentPart::ToolCall(call)];
            events.push(Event::native(
                "test",
                "{}",
                Fact::AssistantSaid { answer: None, model: None, parts: said },
            ));
            let output = format!("error: p{turn} has no rule\n{}", format!("entering p{turn}\n").repeat(120));
            let parts = vec![ContentPart::text(output)];
            let result = ToolResult { call: format!("c{turn}").into(), name: None, parts, error: true };
            let returned = Fact::ToolReturned { results: vec![result], parts: Vec::new() };
            events.push(Event::native("test", "{}", returned));
        }
        EvaluationSession::new(
            events,
            Arc::new(Meter::new(Tokenizer::O200k.counter(), TokenOverhead::default())),
        )
    }

    #[test]
    fn a_chain_of_compactions_covers_the_same_and_loses_nothing() {
        let subject = session(40);
        for chain in [1, 2, 5] {
            let told = subject
                .compact_chain(chain, &SummaryRules::default(), |order| Ok(summarise_built_in(order)))
                .unwrap();
            assert_eq!((told.chain, told.made), (chain, chain));
            assert!(told.span > Tokens(subject.tokens().0 / 2) && told.ratio() > 3.0, "{told:?}");
            assert!(told.sections == told.filled && told.sections > 3, "{told:?}");
            let total = told.kept.total();
            assert!(total.items > 20, "{told:?}");
            assert_eq!(total.kept(), total.items, "{told:?}");
        }
    }

    #[test]
    fn every_compaction_of_a_chain_builds_on_the_one_before_it() {
        let mut builds_on = Vec::new();
        session(40).compact_chain(5, &SummaryRules::default(), |order| {
            let events = order.cutting.events.len();
            builds_on.push((order.cutting.standing.is_some(), order.cutting.previous.is_some(), events));
            Ok(summarise_built_in(order))
        });
        let chained: Vec<(bool, bool)> =
            builds_on.iter().map(|(stands, knows, _)| (*stands, *knows)).collect();
        assert_eq!(chained[0], (false, false));
        assert_eq!(chained[1..], [(true, true); 4], "{builds_on:?}");
        // Each one reads only the events since the one before.
        assert!(builds_on[1..].iter().all(|(_, _, events)| *events < 30), "{builds_on:?}");
    }

    #[test]
    fn a_summary_that_says_nothing_has_kept_nothing_but_the_way_back() {
        let told = session(20)
            .compact_chain(1, &SummaryRules::default(), |_| Ok(StructuredSummary::default()))
            .unwrap();
        let total = told.kept.total();
        assert_eq!((total.shown, total.counted, total.lost), (0, 0, 0));
        assert_eq!((total.covered, told.filled), (total.items, 0));
        assert_eq!(total.kept(), 0);
    }

    #[test]
    fn a_draft_that_is_not_taken_is_told_and_the_built_in_summary_stands_in() {
        let told = session(20).compact_chain(2, &SummaryRules::default(), |_| Err("no".to_owned())).unwrap();
        assert_eq!((told.made, told.rejected.len()), (2, 2));
        assert!(told.kept.total().shown > 0);
    }

    #[test]
    fn a_session_with_nothing_to_compact_has_no_evaluation() {
        assert_eq!(
            session(0).compact_chain(5, &SummaryRules::default(), |order| Ok(summarise_built_in(order))),
            None
        );
    }
}
