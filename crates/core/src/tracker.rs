//! The tracker: the present size of a context, from the provider's last report and estimates of the events
//! since.
//!
//! A report counts everything, wrapping and hidden prefix included, so it beats any estimate; but it is about
//! one call of one model. After a compaction, or for another model, it is void, and the estimates stand
//! alone. Events are pushed in the order of the log with their estimates; the tracker keeps a number for
//! each, so that a compaction that keeps some of them, or is taken back, is a sum and not a guess.

use crate::{
    calibration::{Calibration, PrefixAvailability, TokenObservation},
    event::{Compaction, Fact, InstructionKind, LoggedEvent, Usage},
    id::{AnswerId, ModelName, Seq},
    lineage::CompactionStatus,
    profile::bare,
    tokens::Tokens,
};

/// Follows the size of one thread's context.
#[derive(Clone, Debug, Default)]
pub struct ContextTracker {
    entries: Vec<TrackedEvent>,
    /// The compactions, the newest last; those that were undone may be brought back.
    compactions: Vec<TrackedCompaction>,
    /// The estimate of everything in the context.
    estimated: Tokens,
    /// The last report about the context as it is.
    measured: Option<MeasuredSize>,
    /// The model of the newest answer, or the one that took over since.
    model: Option<String>,
    answer: Option<TrackedAnswer>,
    /// Index of the newest instruction of each kind among the entries.
    settings: Option<usize>,
    system: Option<usize>,
    tools: Option<usize>,
}

/// Size of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSize {
    /// Usage of the last call, its answer included; `None`, if no report is about this context and model.
    pub measured: Option<Tokens>,
    /// Estimate of the events since then, or of all events.
    pub estimated: Tokens,
}

impl ContextSize {
    /// Both together, uncorrected.
    pub fn total(&self) -> Tokens {
        self.measured.unwrap_or_default() + self.estimated
    }

    /// Sum of both; the estimated part is corrected.
    pub fn expected(&self, calibration: &Calibration) -> Tokens {
        self.measured.unwrap_or_default() + calibration.expected(self.estimated)
    }

    /// Upper bound of the size: the measured part is certain, only the estimate needs a margin.
    pub fn upper_bound(&self, calibration: &Calibration) -> Tokens {
        self.measured.unwrap_or_default() + calibration.bound(self.estimated)
    }
}

#[derive(Clone, Copy, Debug)]
struct TrackedEvent {
    seq: Seq,
    tokens: Tokens,
    kind: RebuildTreatment,
}

/// Treatment of an event when the context is made anew.
#[derive(Clone, Copy, Debug)]
enum RebuildTreatment {
    /// Kept by every compaction.
    Standing,
    /// A compaction may cover it.
    History,
}

#[derive(Clone, Copy, Debug)]
struct TrackedCompaction {
    at: Seq,
    summary: Tokens,
    first_kept: Option<Seq>,
    standing: CompactionStatus,
}

#[derive(Clone, Debug)]
struct MeasuredSize {
    /// The model, if anyone said.
    model: Option<String>,
    /// Usage of the call.
    total: Tokens,
    /// Part of the estimate that the report covers.
    covers: Tokens,
}

/// The newest answer.
#[derive(Clone, Debug)]
struct TrackedAnswer {
    id: Option<AnswerId>,
    /// The estimate of the request that it answered.
    asked: Tokens,
    /// The estimate of the answer itself, so far.
    said: Tokens,
    prefix: PrefixAvailability,
}

impl ContextTracker {
    /// Takes the next event and its estimate. If it reports the usage of a call, returns an observation about
    /// the estimates.
    pub fn push(&mut self, logged: &LoggedEvent, estimate: Tokens) -> Option<TokenObservation> {
        let seq = logged.id.seq;
        match &logged.event.fact {
            Fact::AssistantSaid { answer, model, .. } => {
                self.said(seq, answer.as_ref(), model.as_ref(), estimate);
            }
            Fact::UsageReported { answer, model, usage } => {
                return self.reported(answer.as_ref(), model.as_ref(), usage);
            }
            Fact::ModelChanged { model } => {
                self.model = Some(bare(&model.0));
                // A report that named no model was about the one before.
                self.measured = self.measured.take().filter(|measured| measured.model.is_some());
            }
            Fact::Compacted(compaction) => self.compacted(seq, compaction, estimate),
            Fact::CompactionReverted { compaction } => {
                self.apply_compaction_status(*compaction, CompactionStatus::Undone);
            }
            Fact::CompactionRestored { compaction } => {
                self.apply_compaction_status(*compaction, CompactionStatus::Holds);
            }
            Fact::Instructed { what, .. } => self.instructed(seq, *what, estimate),
            Fact::UserSaid { .. }
            | Fact::ToolReturned { .. }
            | Fact::Injected { .. }
            | Fact::Carried { .. } => {
                self.add(TrackedEvent { seq, tokens: estimate, kind: RebuildTreatment::History });
            }
            Fact::CompactionRequested { .. } | Fact::Pinned { .. } | Fact::Unpinned { .. } => {}
        }
        None
    }

    /// Takes the new estimate of a context that was made anew, by edits or otherwise. Earlier reports are
    /// about its earlier form.
    pub fn rebase(&mut self, estimate: Tokens) {
        self.estimated = estimate;
        self.forget();
    }

    /// Size of the context for a call to `model`.
    pub fn size(&self, model: &ModelName) -> ContextSize {
        let same =
            |measured: &&MeasuredSize| measured.model.as_ref().is_none_or(|known| *known == bare(&model.0));
        match self.measured.as_ref().filter(same) {
            Some(measured) => ContextSize {
                measured: Some(measured.total),
                estimated: self.estimated.less(measured.covers),
            },
            None => ContextSize { measured: None, estimated: self.estimated },
        }
    }

    fn add(&mut self, entry: TrackedEvent) {
        self.estimated += entry.tokens;
        self.entries.push(entry);
    }

    /// Of settings, system prompt and tools the newest holds: the one before it is no longer sent, and every report so
    /// far is about another prefix.
    fn instructed(&mut self, seq: Seq, what: InstructionKind, tokens: Tokens) {
        let newest = match what {
            InstructionKind::Settings => &mut self.settings,
            InstructionKind::System => &mut self.system,
            InstructionKind::Tools => &mut self.tools,
            InstructionKind::Message | InstructionKind::Project => {
                return self.add(TrackedEvent { seq, tokens, kind: RebuildTreatment::History });
            }
        };
        if let Some(older) = newest.replace(self.entries.len()) {
            let older = std::mem::take(&mut self.entries[older].tokens);
            self.estimated = self.estimated.less(older);
            self.forget();
        }
        self.add(TrackedEvent { seq, tokens, kind: RebuildTreatment::Standing });
    }

    /// Earlier reports are no longer about the context.
    fn forget(&mut self) {
        self.measured = None;
        self.answer = None;
    }

    fn said(&mut self, seq: Seq, id: Option<&AnswerId>, model: Option<&ModelName>, estimate: Tokens) {
        if let Some(model) = model {
            self.model = Some(bare(&model.0));
        }
        let is_fragment = id.is_some() && self.answer.as_ref().is_some_and(|answer| answer.id.as_ref() == id);
        if !is_fragment {
            let asked = self.estimated;
            self.answer =
                Some(TrackedAnswer { id: id.cloned(), asked, said: Tokens(0), prefix: self.prefix() });
        }
        if let Some(answer) = &mut self.answer {
            answer.said += estimate;
        }
        self.add(TrackedEvent { seq, tokens: estimate, kind: RebuildTreatment::History });
    }

    /// A report covers the request and the answer; results that came before the report are not in it.
    fn reported(
        &mut self,
        id: Option<&AnswerId>,
        model: Option<&ModelName>,
        usage: &Usage,
    ) -> Option<TokenObservation> {
        let answer = self.answer.as_ref()?;
        let about_it = id.is_none() || id == answer.id.as_ref();
        let model = model.map(|model| bare(&model.0));
        let by_another = model.is_some() && self.model.is_some() && model != self.model;
        // A call that was broken off may report no usage at all.
        if !about_it || by_another || usage.input() == Tokens(0) {
            return None;
        }
        let model = model.or_else(|| self.model.clone());
        self.measured =
            Some(MeasuredSize { model, total: usage.total(), covers: answer.asked + answer.said });
        Some(TokenObservation { estimated: answer.asked, actual: usage.input(), prefix: answer.prefix })
    }

    fn compacted(&mut self, at: Seq, compaction: &Compaction, summary: Tokens) {
        let (first_kept, standing) = (compaction.first_kept, CompactionStatus::Holds);
        self.compactions.push(TrackedCompaction { at, summary, first_kept, standing });
        self.remake();
    }

    fn apply_compaction_status(&mut self, compaction: Seq, standing: CompactionStatus) {
        for pivot in self.compactions.iter_mut().filter(|pivot| pivot.at == compaction) {
            pivot.standing = standing;
        }
        self.remake();
    }

    /// Adds up the entries that the newest compaction in force leaves.
    fn remake(&mut self) {
        let pivot = self.compactions.iter().rfind(|pivot| pivot.standing == CompactionStatus::Holds).copied();
        let kept = |entry: &&TrackedEvent| match (entry.kind, pivot) {
            (RebuildTreatment::Standing, _) | (RebuildTreatment::History, None) => true,
            (RebuildTreatment::History, Some(pivot)) => {
                entry.seq > pivot.at || pivot.first_kept.is_some_and(|first| entry.seq >= first)
            }
        };
        let history: Tokens = self.entries.iter().filter(kept).map(|entry| entry.tokens).sum();
        self.rebase(history + pivot.map_or(Tokens(0), |pivot| pivot.summary));
    }

    fn prefix(&self) -> PrefixAvailability {
        match (self.system, self.tools) {
            (None, None) => PrefixAvailability::Unknown,
            _ => PrefixAvailability::Known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{CompactionTrigger, ContentPart, Event, Summary, ToolResult},
        hash_chain::ChainLink,
        id::{EventId, ThreadId},
        profile::Share,
    };

    fn user() -> Fact {
        Fact::UserSaid { parts: vec![ContentPart::text("u")] }
    }

    fn system() -> Fact {
        Fact::Instructed { what: InstructionKind::System, parts: vec![] }
    }

    fn said(answer: &str, model: &str) -> Fact {
        Fact::AssistantSaid { answer: Some(answer.into()), model: Some(model.into()), parts: vec![] }
    }

    fn returned() -> Fact {
        let result = ToolResult { call: "c".into(), name: None, parts: vec![], error: false };
        Fact::ToolReturned { results: vec![result], parts: vec![] }
    }

    fn usage(answer: Option<&str>, model: Option<&str>, read: u64, output: u64) -> Fact {
        let usage = Usage { cache_read: Tokens(read), output: Tokens(output), ..Usage::default() };
        Fact::UsageReported { answer: answer.map(Into::into), model: model.map(Into::into), usage }
    }

    fn compacted(through: u64, first_kept: Option<u64>) -> Fact {
        Fact::Compacted(Compaction {
            summary: Summary::Text("s".into()),
            through: Seq(through),
            first_kept: first_kept.map(Seq),
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        })
    }

    fn run(events: &[(Fact, u64)]) -> (ContextTracker, Vec<TokenObservation>) {
        let thread = ThreadId::derived(&["test"]);
        let mut tracker = ContextTracker::default();
        let mut observations = Vec::new();
        for (at, (fact, estimate)) in events.iter().enumerate() {
            let id = EventId { thread, seq: Seq(at as u64 + 1) };
            let logged =
                LoggedEvent { id, event: Event::from_fact(fact.clone(), None), link: ChainLink::ROOT };
            observations.extend(tracker.push(&logged, Tokens(*estimate)));
        }
        (tracker, observations)
    }

    /// Checks the measured and the estimated size for a call to `opus` after these events.
    fn check(events: &[(Fact, u64)], measured: Option<u64>, estimated: u64) {
        let size = run(events).0.size(&"opus".into());
        assert_eq!(size, ContextSize { measured: measured.map(Tokens), estimated: Tokens(estimated) });
    }

    #[test]
    fn before_any_report_everything_is_estimated() {
        check(&[(system(), 100), (user(), 10)], None, 110);
        check(&[], None, 0);
    }

    #[test]
    fn the_last_report_and_what_came_since() {
        let mut events =
            vec![(user(), 10), (said("a", "opus"), 5), (usage(Some("a"), Some("opus"), 1_000, 7), 0)];
        check(&events, Some(1_007), 0);
        events.extend([(returned(), 40), (user(), 2)]);
        check(&events, Some(1_007), 42);
        events.extend([(said("b", "opus"), 3), (usage(None, None, 1_100, 4), 0)]);
        check(&events, Some(1_104), 0);
    }

    #[test]
    fn results_between_the_fragments_of_an_answer_are_not_in_its_report() {
        let report = || (usage(Some("a"), Some("opus"), 1_000, 7), 0);
        let fragment = || (said("a", "opus"), 5);
        check(&[(user(), 10), fragment(), report(), (returned(), 40), fragment(), report()], Some(1_007), 40);
    }

    #[test]
    fn a_report_from_before_the_last_compaction_is_ignored() {
        let mut events = vec![
            (system(), 100),
            (user(), 10),
            (said("a", "opus"), 5),
            (usage(Some("a"), Some("opus"), 1_000, 7), 0),
            (user(), 20),
            (compacted(4, Some(5)), 3),
        ];
        check(&events, None, 100 + 20 + 3);
        // A late report about a call from before is about the old context too.
        events.push((usage(Some("a"), Some("opus"), 1_000, 7), 0));
        check(&events, None, 123);
        events.extend([(said("b", "opus"), 1), (usage(Some("b"), Some("opus"), 150, 2), 0), (returned(), 9)]);
        check(&events, Some(152), 9);
    }

    #[test]
    fn a_compaction_taken_back_leaves_what_was_before() {
        let events = |tail: Vec<(Fact, u64)>| [vec![(user(), 10), (said("a", "opus"), 5)], tail].concat();
        check(&events(vec![(compacted(2, None), 3)]), None, 3);
        let reverted = || (Fact::CompactionReverted { compaction: Seq(3) }, 0);
        check(&events(vec![(compacted(2, None), 3), reverted()]), None, 15);
        check(
            &events(vec![(compacted(2, None), 3), (user(), 7), (compacted(4, Some(4)), 2), reverted()]),
            None,
            9,
        );
        let restored = || (Fact::CompactionRestored { compaction: Seq(3) }, 0);
        check(&events(vec![(compacted(2, None), 3), reverted(), restored()]), None, 3);
        check(&events(vec![(compacted(2, None), 3), (user(), 7), reverted(), restored()]), None, 10);
        check(&events(vec![(compacted(2, None), 3), reverted(), restored(), reverted()]), None, 15);
        check(&events(vec![reverted(), (compacted(2, None), 3)]), None, 3);
    }

    #[test]
    fn a_report_of_another_model_is_ignored() {
        let title = usage(None, Some("haiku"), 50, 1);
        let (_, observations) = run(&[(user(), 10), (said("a", "opus"), 5), (title.clone(), 0)]);
        assert_eq!(observations, []);
        check(&[(user(), 10), (said("a", "opus"), 5), (title, 0)], None, 15);
        let switched = [(user(), 10), (said("a", "haiku"), 5), (usage(None, None, 900, 1), 0)];
        check(&switched, None, 15);
        let (tracker, _) = run(&switched);
        assert_eq!(tracker.size(&"haiku-20251001".into()).measured, Some(Tokens(901)));
    }

    #[test]
    fn a_report_that_names_no_model_holds_until_the_model_changes() {
        let said = Fact::AssistantSaid { answer: None, model: None, parts: vec![] };
        let mut events = vec![(user(), 10), (said, 5), (usage(None, None, 900, 1), 0)];
        check(&events, Some(901), 0);
        events.push((Fact::ModelChanged { model: "opus".into() }, 0));
        check(&events, None, 15);
    }

    #[test]
    fn a_report_of_nothing_or_about_no_answer_is_ignored() {
        check(&[(user(), 10), (usage(None, None, 900, 1), 0)], None, 10);
        check(&[(user(), 10), (said("a", "opus"), 5), (usage(Some("a"), None, 0, 0), 0)], None, 15);
        check(&[(user(), 10), (said("a", "opus"), 5), (usage(Some("x"), None, 900, 0), 0)], None, 15);
    }

    #[test]
    fn of_standing_instructions_the_newest_counts() {
        let report = (usage(Some("a"), Some("opus"), 1_000, 7), 0);
        check(&[(system(), 100), (user(), 10), (said("a", "opus"), 5), report, (system(), 70)], None, 85);
    }

    #[test]
    fn a_context_made_anew_is_what_it_is_said_to_be() {
        let (mut tracker, _) = run(&[(user(), 10), (said("a", "opus"), 5), (usage(None, None, 900, 1), 0)]);
        tracker.rebase(Tokens(8));
        assert_eq!(tracker.size(&"opus".into()), ContextSize { measured: None, estimated: Tokens(8) });
    }

    #[test]
    fn a_report_tells_what_the_estimate_was_worth_if_the_prefix_was_counted() {
        let call = [(user(), 10), (said("a", "opus"), 5), (usage(Some("a"), None, 1_000, 7), 0)];
        let (_, observations) = run(&call);
        let blind = TokenObservation {
            estimated: Tokens(10),
            actual: Tokens(1_000),
            prefix: PrefixAvailability::Unknown,
        };
        assert_eq!(observations, [blind]);
        let (_, observations) = run(&[vec![(system(), 700)], call.to_vec()].concat());
        assert_eq!(
            observations,
            [TokenObservation { estimated: Tokens(710), prefix: PrefixAvailability::Known, ..blind }]
        );
    }

    #[test]
    fn only_what_was_estimated_is_corrected() {
        let calibration = Calibration::new(Share::percent(50));
        let size = ContextSize { measured: Some(Tokens(1_000)), estimated: Tokens(100) };
        assert_eq!((size.total(), size.expected(&calibration)), (Tokens(1_100), Tokens(1_100)));
        assert_eq!(size.upper_bound(&calibration), Tokens(1_150));
    }
}
