//! State of a session in memory: a view of the log and of the records beside it, made again from both at any time.

use std::sync::Arc;

use epitome_core::{
    AnnotatedEvent, Digest, Event, EventId, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    budget::{Budget, overflow},
    context::{EventNaming, Tier},
    cost::Prompt,
    cost_planner::{CacheObservations, CacheableCall},
    event::{Timestamp, Usage},
    model_view::{EditRecord, EpochCause, ModelView, NextCall, PreparationReport, SentRecord},
    pipeline::ReductionStep,
    profile::Money,
    summary::compaction::CompactionSettings,
};
use epitome_store::{
    Store, ThreadHead,
    records::{CallRow, CommitRecord, HashedText, NewCall, NewCallOutcome, OutcomeRow, SizeRefusal},
};
use epitome_wire::overflow::ContextOverflow;
use serde::{Deserialize, Serialize};

use super::{
    call_input::RecallOffer,
    call_replay,
    error::SessionError,
    setup::{ObservedLimits, OverflowCheck, RequestLimit, SessionSetup},
    thrash_detector::ThrashDetector,
    thread_reading::{EVENTS_PER_PAGE, parse, read_page, read_these, read_window},
};
use crate::{
    call_preparer::{CallPreparer, PreparedRequest},
    compact::CompactError,
    rewrite::{ForkInheritance, RewriteRecord},
};

/// Data recorded with a call: the reducers' work and the limits known then, so that the session reopened later knows
/// the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CallDetail {
    /// Effects of each reducer.
    #[serde(skip_deserializing)]
    reducers: Vec<ReductionStep>,
    /// The hooks that added something.
    injected: Vec<String>,
    learned: ObservedLimits,
    thrash: ThrashDetector,
    /// True if a size demanded the compaction that was made for it, if one was.
    forced: bool,
    cache: CacheObservations,
    /// Part of the call before that the cache could hold.
    chance: Option<CacheableCall>,
    /// The configured window, in place of the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Tokens>,
}

/// The window that a call was made for, if one was given: by a setting of its gateway, a header, an option of its
/// session.
pub(crate) fn window_of(call: &NewCall) -> Option<Tokens> {
    // Data of another version is ignored.
    serde_json::from_str::<CallDetail>(&call.steps).unwrap_or_default().window
}

/// Number of events up to which an answer is counted here; no answer has more.
const MAX_ANSWER_EVENTS: usize = 16;

/// State of a session in memory.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) setup: Arc<SessionSetup>,
    /// The newest request's own limit.
    pub(crate) limit: Option<RequestLimit>,
    /// The view, with the last request.
    pub(crate) calls: CallPreparer,
    pub(super) head: ThreadHead,
    /// The last call: its number and its estimate.
    pub(super) last: Option<(u64, Tokens)>,
    pub(super) learned: ObservedLimits,
    pub(super) thrash: ThrashDetector,
    /// Behaviour of the provider's cache, as the calls have shown it.
    pub(crate) cache: CacheObservations,
    /// Part of the call before that the last call could read from the cache.
    chance: Option<CacheableCall>,
    /// The contents that the last call named.
    pub(super) named: Option<SettingsDigests>,
    /// The compaction whose summary is in the memory files, as far as known.
    pub(super) noted: Option<Seq>,
    /// True if summaries may have been ordered: every order is in the log.
    pub(super) may_have_jobs: bool,
    /// True if the last request had the recall tool added, by which the model gets back parts that were left out.
    offers_recall: bool,
    /// The first event that the model has not answered yet, if known.
    pub(super) unanswered: Option<Seq>,
    /// Tokens that hooks may still add to the next request.
    pub(super) injection: Tokens,
    /// Usage of the last call, by its provider's count, until there is another call.
    pub(super) answer: Option<Usage>,
    /// The compaction that the last call stood on.
    stood_on: Option<Seq>,
}

/// A request as it was written, rendered or rewritten.
#[derive(Debug)]
pub(crate) struct WrittenCall {
    pub(crate) hash: Digest,
    pub(crate) bytes: u64,
    /// Data to write it again.
    pub(crate) rendering: HashedText,
    /// Record of the client's request, if it was rewritten from one.
    pub(crate) script: Option<String>,
    /// Contents that the record names.
    pub(crate) pieces: Vec<HashedText>,
    /// The request as a cache sees it, if it was read.
    pub(crate) prompt: Option<Prompt>,
}

/// Contents that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SettingsDigests {
    policy: Digest,
    profile: Option<Digest>,
    rendering: Digest,
}

impl SettingsDigests {
    pub(super) fn by(call: &NewCall) -> Self {
        Self { policy: call.policy, profile: call.profile, rendering: call.rendering }
    }
}

impl SessionState {
    /// Reads the state from the log and the records beside it.
    pub(crate) fn restore(
        store: &dyn Store,
        thread: ThreadId,
        setup: Arc<SessionSetup>,
    ) -> Result<Self, SessionError> {
        Self::restore_with(store, thread, setup, None)
    }

    /// Reads the state of a fork in which no call was made yet, with the state it takes from its parent.
    pub(super) fn inherits(
        &mut self,
        store: &dyn Store,
        thread: ThreadId,
        inherited: &ForkInheritance,
    ) -> Result<(), SessionError> {
        let mut restored = Self::restore_with(store, thread, Arc::clone(&self.setup), Some(inherited))?;
        restored.learn_limits(&inherited.call);
        *self = Self { limit: self.limit, ..restored };
        Ok(())
    }

    fn restore_with(
        store: &dyn Store,
        thread: ThreadId,
        setup: Arc<SessionSetup>,
        inherited: Option<&ForkInheritance>,
    ) -> Result<Self, SessionError> {
        let newest = store.last_call(thread)?;
        let last = match &newest {
            Some(row) if row.call.is_relayed() => store.last_composed_call(thread)?,
            _ => newest.clone(),
        };
        let mut passes = Vec::new();
        for (call, _, pass) in store.edit_records(thread)? {
            passes.push(parse::<EditRecord>("pass", call, &pass)?);
        }
        let sent =
            last.as_ref().map(|row| parse::<SentRecord>("sent", row.number, &row.call.sent)).transpose()?;
        let names = EventNaming::Thread(thread);
        let head = store.head(thread)?;
        let pivot = store.compaction_in_force(thread)?;
        let line = read_window(store, thread, &passes, (head.seq, pivot.as_ref()), &setup.meter)?;
        // Another writer may have appended in between; missing events are read later.
        let end =
            line.last().map_or(ThreadHead::START, |last| ThreadHead { seq: last.id.seq, link: last.link });
        let last_prompt =
            call_replay::prompt_of(store, thread, last.as_ref(), &passes, pivot.as_ref(), &setup.meter);
        let meter = Arc::clone(&setup.meter);
        let view = match inherited {
            Some(inherited) => ModelView::restore_fork(&line, passes, inherited.origin.clone(), meter, names),
            None => ModelView::restore(&line, passes, sent, meter, names),
        };
        let mut state = Self {
            calls: CallPreparer::new(view, last_prompt),
            head: end,
            last: newest.map(|row| (row.number, row.call.estimated)),
            may_have_jobs: true,
            offers_recall: last
                .as_ref()
                .and_then(|last| last.call.script.as_deref())
                .is_some_and(RewriteRecord::offers_recall),
            ..Self::fresh(thread, setup)
        };
        state.show_names();
        if let Some(last) = &last {
            state.learn(last);
        }
        state.fill(store, thread)?;
        Ok(state)
    }

    /// Reads the state again: the current one may be wrong.
    pub(crate) fn reload(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        let restored = Self::restore(store, thread, Arc::clone(&self.setup))?;
        *self = Self { limit: self.limit, ..restored };
        Ok(())
    }

    /// State of a thread without events.
    pub(crate) fn fresh(thread: ThreadId, setup: Arc<SessionSetup>) -> Self {
        let view = ModelView::new(Arc::clone(&setup.meter), EventNaming::Thread(thread));
        Self {
            calls: CallPreparer::new(view, None),
            limit: None,
            head: ThreadHead::START,
            last: None,
            learned: ObservedLimits::before_calls(&setup),
            setup,
            thrash: ThrashDetector::default(),
            cache: CacheObservations::default(),
            chance: None,
            named: None,
            noted: None,
            may_have_jobs: false,
            offers_recall: false,
            unanswered: None,
            injection: Tokens(0),
            answer: None,
            stood_on: None,
        }
    }

    /// Decides if the next request has the recall tool added. Only then does the request name the parts it leaves
    /// out.
    pub(super) fn offer_recall(&mut self, offer: RecallOffer) {
        self.offers_recall = offer.holds(self.view().line());
        self.show_names();
    }

    /// Returns true if the next request has that tool added.
    pub(crate) fn offers_recall(&self) -> bool {
        self.offers_recall
    }

    fn show_names(&mut self) {
        let can_ask = self.offers_recall || self.view().context().has_recall_tool();
        self.calls.view_mut().show_names_if(can_ask);
    }

    /// Takes over the limits known at the session's last call, and those that the call has shown since.
    fn learn(&mut self, last: &CallRow) {
        // Data of another version is ignored.
        let knew: CallDetail = serde_json::from_str(&last.call.steps).unwrap_or_default();
        self.thrash = knew.thrash;
        let _ =
            self.note_compacted_call(last.number, last.call.summary.map(|summary| summary.seq), knew.forced);
        self.learn_limits(last);
    }

    /// Learns from a call the limits of its provider.
    fn learn_limits(&mut self, last: &CallRow) {
        let knew: CallDetail = serde_json::from_str(&last.call.steps).unwrap_or_default();
        // Another model's counts and limits do not apply to this one.
        if last.call.model.as_ref() != Some(&self.setup.model.0) {
            return;
        }
        self.learned = knew.learned;
        self.cache = knew.cache;
        self.chance = knew.chance;
        self.stood_on = last.call.summary.map(|summary| summary.seq);
        for outcome in &last.outcomes {
            if let Some(usage) = &outcome.usage {
                self.is_counted(last.call.estimated, usage);
            }
            if let Some(refused) = recorded_refusal(outcome) {
                self.learned.refused(last.call.estimated, refused);
            }
        }
    }

    /// Notes that a call stands on a compaction, which a size demanded if `is_forced`. Returns the distance between
    /// such compactions, if they are too close.
    pub(super) fn note_compacted_call(
        &mut self,
        call: u64,
        compaction: Option<Seq>,
        is_forced: bool,
    ) -> Option<u64> {
        self.thrash.note_compacted_call(call, compaction?, is_forced)
    }

    /// Notes the provider's count for the last call.
    pub(super) fn is_counted(&mut self, estimated: Tokens, usage: &Usage) {
        self.learned.counted(estimated, usage.input());
        self.cache.observe(usage, self.chance.take());
        self.answer = Some(*usage);
    }

    /// Returns true if the last call used more than the model's input takes, and nothing has made the context smaller
    /// since. The limit is that of the newest request: it is not known yet when the state is read again.
    pub(super) fn overflowed(&self) -> bool {
        let usable = self.limit.map_or(self.setup.limit, |limit| limit.most);
        let is_over = |usage: &Usage| usable.and_then(|usable| overflow(usable, usage)).is_some();
        let standing = self.view().context().summary().map(|summary| summary.id.seq);
        self.setup.overflow_check == OverflowCheck::On
            && standing <= self.stood_on
            && self.answer.as_ref().is_some_and(is_over)
    }

    /// Takes in events that others have appended since.
    pub(crate) fn catch_up(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        loop {
            let page = read_page(store, thread, self.head.seq.next(), &self.setup.meter)?;
            let full = page.len() == EVENTS_PER_PAGE;
            for (logged, pieces) in page {
                self.take(logged, pieces);
            }
            if !full {
                return self.fill(store, thread);
            }
        }
    }

    /// The same for the few events of an answer, which are counted here: the store may derive its data later.
    pub(super) fn follow(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        let events = store.read(thread, self.head.seq.next(), MAX_ANSWER_EVENTS)?;
        if events.len() == MAX_ANSWER_EVENTS {
            return self.catch_up(store, thread);
        }
        for logged in events {
            let pieces = self.setup.meter.pieces(&logged.event);
            self.take(Arc::new(logged), pieces);
        }
        self.fill(store, thread)
    }

    fn take(&mut self, logged: Arc<LoggedEvent>, pieces: Vec<Tokens>) {
        self.head = ThreadHead { seq: logged.id.seq, link: logged.link };
        self.may_have_jobs |= matches!(logged.event.fact, Fact::CompactionRequested { .. });
        self.calls.view_mut().push(logged, pieces);
    }

    /// Notes the provider's count for an answered call.
    pub(super) fn counted(&mut self, call: u64, usage: &Usage) {
        if let Some((last, estimated)) = self.last
            && last == call
        {
            self.is_counted(estimated, usage);
        }
    }

    /// Reads events that are needed again though notes or a summary stood for them.
    pub(super) fn fill(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        while let Some(needed) = self.view().needs_more() {
            self.calls.view_mut().supply_events(read_these(store, thread, &needed, &self.setup.meter)?);
        }
        Ok(())
    }

    /// Reads all events that only notes stand for: a summary needs them.
    pub(super) fn fill_all(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        if let Some(needed) = self.calls.view_mut().needs_all() {
            self.calls.view_mut().supply_events(read_these(store, thread, &needed, &self.setup.meter)?);
        }
        Ok(())
    }

    /// Takes in an event that is about to be appended, or already was.
    pub(super) fn push(&mut self, thread: ThreadId, event: &AnnotatedEvent) {
        let link = event.link_after(self.head.link);
        let pieces = self.setup.meter.pieces_noted(event);
        let id = EventId { thread, seq: self.head.seq.next() };
        self.take(Arc::new(LoggedEvent { id, event: Event::clone(event), link }), pieces);
    }

    /// Decides the content of the next request.
    pub(super) fn prepare(
        &mut self,
        (store, thread): (&dyn Store, ThreadId),
        setup: &SessionSetup,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Result<PreparationReport, SessionError> {
        let mut prepared = self.calls.decide(&setup.calls, budget, moment)?;
        if self.view().needs_more().is_some() {
            self.fill(store, thread)?;
            prepared = self.calls.decide(&setup.calls, budget, moment)?;
        }
        self.calls.settle(&setup.calls, budget)?;
        Ok(prepared)
    }

    /// Writes the prepared request.
    pub(super) fn write(
        &mut self,
        setup: &SessionSetup,
        prepared: &mut PreparationReport,
    ) -> Result<(WrittenCall, String), CompactError> {
        let PreparedRequest { rendered, prompt } = self.calls.render(&setup.calls, prepared)?;
        let written = WrittenCall {
            hash: Digest::of(rendered.body.as_bytes()),
            bytes: rendered.body.len() as u64,
            rendering: setup.recorded.rendering.clone(),
            script: None,
            pieces: Vec::new(),
            prompt: Some(prompt),
        };
        Ok((written, rendered.body))
    }

    /// The contents that a call names and the one before it did not.
    pub(super) fn contents(&self, setup: &SessionSetup, written: &WrittenCall) -> Vec<CommitRecord> {
        let recorded = &setup.recorded;
        let named = self.named.as_ref();
        let mut records = Vec::new();
        if named.is_none_or(|named| named.policy != recorded.policy.hash) {
            records.push(CommitRecord::Content(recorded.policy.clone()));
        }
        if let Some(profile) = &recorded.profile
            && named.is_none_or(|named| named.profile != Some(profile.hash))
        {
            records.push(CommitRecord::Content(profile.clone()));
        }
        if named.is_none_or(|named| named.rendering != written.rendering.hash) {
            records.push(CommitRecord::Content(written.rendering.clone()));
        }
        records.extend(written.pieces.iter().cloned().map(CommitRecord::Piece));
        records
    }

    /// The record of the call. From here on the view counts it as sent.
    pub(super) fn record(
        &mut self,
        setup: &SessionSetup,
        prepared: &PreparationReport,
        written: WrittenCall,
        injected: &[String],
        now: Timestamp,
    ) -> NewCall {
        let estimated = self.view().context().tokens();
        self.chance = self.chance_of(prepared, estimated, now);
        let made = CallDetail {
            reducers: prepared.steps.clone(),
            injected: injected.to_vec(),
            learned: self.learned,
            thrash: self.thrash,
            forced: is_forced(prepared),
            cache: self.cache,
            chance: self.chance,
            window: self.limit.map_or(setup.window, |limit| limit.window),
        };
        let pass = self.calls.sent(Some(now), written.prompt).map(json);
        let sent = self.view().last().map(json).unwrap_or_default();
        self.stood_on = self.view().context().summary().map(|summary| summary.id.seq);
        let context = self.view().context();
        let recorded = &setup.recorded;
        NewCall {
            head: self.head.seq,
            time: Some(now),
            model: Some(setup.model.0.clone()),
            format: setup.calls.format.dialect().name().to_owned(),
            policy: recorded.policy.hash,
            profile: recorded.profile.as_ref().map(|profile| profile.hash),
            rendering: written.rendering.hash,
            summary: context.summary().map(|event| event.id),
            epoch: self.view().epoch().number,
            cause: prepared.cause.as_ref().map(ToString::to_string),
            pass,
            sent,
            steps: json(&made),
            plan: prepared.plan.as_ref().map(json),
            script: written.script,
            estimated,
            hash: written.hash,
            bytes: written.bytes,
        }
    }

    /// Part of the call before that this one can read from the cache, unless a decision prevents it.
    fn chance_of(&self, prepared: &PreparationReport, size: Tokens, now: Timestamp) -> Option<CacheableCall> {
        if !matches!(prepared.cause, None | Some(EpochCause::Client | EpochCause::Format)) {
            return None;
        }
        let last = self.view().last()?;
        let pause = u64::try_from(now.0.saturating_sub(last.at?.0) / 1_000).unwrap_or(0);
        let lifetime = self.setup.calls.terms.as_ref().and_then(|terms| terms.lifetime(None));
        Some(CacheableCall { sent: last.tokens, size, pause, lifetime })
    }

    /// First event shown of the history.
    pub(super) fn first_shown(&self) -> Seq {
        let context = self.view().context();
        let shown = &context.segments()[context.prefix_len()..];
        shown.iter().filter_map(|segment| segment.stands_for().first()).min().unwrap_or_default()
    }

    /// Settings for drafting compactions under a budget.
    pub(crate) fn drafting(&self, budget: &Budget) -> CompactionSettings {
        let context = self.view().context();
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let rules = self.setup.calls.policy.summary.unwrap_or_default();
        rules.compaction_settings(budget, prefix)
    }

    /// Returns true if the provider may still hold the last request.
    pub(crate) fn is_warm(&self, now: Timestamp) -> bool {
        let last = self.view().last().and_then(|last| last.at);
        let lifetime = self.cache_lifetime();
        last.is_some_and(|last| {
            let seconds = u64::try_from(now.0.saturating_sub(last.0) / 1_000).unwrap_or(0);
            lifetime.is_none_or(|lifetime| seconds <= lifetime)
        })
    }

    /// Time for which the provider holds a request, in seconds; `None` if unknown.
    pub(crate) fn cache_lifetime(&self) -> Option<u64> {
        let usual = self.setup.calls.terms.as_ref().and_then(|terms| terms.lifetime(None))?;
        Some(self.cache.lifetime(usual))
    }

    /// Number of the last call.
    pub(crate) fn last_call(&self) -> Option<u64> {
        self.last.map(|(call, _)| call)
    }

    /// The view of the thread.
    pub(crate) fn view(&self) -> &ModelView {
        self.calls.view()
    }

    /// Known end of the thread.
    pub(crate) fn head(&self) -> Seq {
        self.head.seq
    }

    /// What the provider will count for what is shown now, as far as calls have shown it.
    pub(crate) fn expected_tokens(&self) -> Tokens {
        self.learned.expected(self.view().context().tokens())
    }

    pub(crate) fn budget(&self) -> Budget {
        match self.limit {
            Some(limit) => self.setup.budget_within(limit, self.learned, self.injection),
            None => self.setup.budget(self.learned, self.injection),
        }
    }

    /// Outcome of a call that was answered with these events.
    pub(super) fn outcome(&self, call: u64, now: Timestamp, answered: &[Event]) -> NewCallOutcome {
        let answer = answered.iter().find_map(|event| match &event.fact {
            Fact::AssistantSaid { answer, .. } => answer.clone(),
            _ => None,
        });
        let usage = answered.iter().rev().find_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(*usage),
            _ => None,
        });
        let cost = usage.as_ref().and_then(|usage| self.cost(usage));
        NewCallOutcome { call, time: Some(now), answer, usage, cost, error: None, refusal: None }
    }

    fn cost(&self, usage: &Usage) -> Option<Money> {
        self.setup.profile.as_ref().and_then(|profile| profile.prices.cost(usage).ok())
    }
}

/// Returns true if a compaction was made because a size demanded it.
pub(super) fn is_forced(prepared: &PreparationReport) -> bool {
    prepared.compaction.is_some() && prepared.acted.as_ref().is_some_and(EpochCause::is_forced)
}

/// Beginning of the error of a call that was refused as too long.
const TOO_LONG: &str = "too long for the provider";

/// A refusal as too long, in words: the error that is recorded with the call, for people.
pub(super) fn refusal_text(refused: ContextOverflow) -> String {
    let limit = refused.limit.map(|limit| format!(", which takes {}", limit.0));
    let asked = refused.asked.map(|asked| format!(", and counts {}", asked.0));
    format!("{TOO_LONG}{}{}", limit.unwrap_or_default(), asked.unwrap_or_default())
}

/// The refusal of a call as too long, if its outcome is one.
fn recorded_refusal(outcome: &OutcomeRow) -> Option<ContextOverflow> {
    match outcome.refusal {
        Some(SizeRefusal { limit, asked }) => Some(ContextOverflow { limit, asked }),
        None => outcome.error.as_deref().and_then(parse_refusal_text),
    }
}

/// Reads a refusal from its words, which are all that versions before schema 8 recorded.
fn parse_refusal_text(text: &str) -> Option<ContextOverflow> {
    let rest = text.strip_prefix(TOO_LONG)?;
    let number = |name: &str| {
        let (_, number) = rest.split_once(name)?;
        let end = number.find(',').unwrap_or(number.len());
        number[..end].parse().ok().map(Tokens)
    };
    Some(ContextOverflow { limit: number(", which takes "), asked: number(", and counts ") })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records hold only strings, numbers and lists")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(error: &str, refusal: Option<SizeRefusal>) -> OutcomeRow {
        OutcomeRow {
            time: None,
            answer: None,
            usage: None,
            cost: None,
            error: Some(error.to_owned()),
            refusal,
        }
    }

    #[test]
    fn a_refusal_is_read_from_its_numbers_and_never_from_the_words_beside_them() {
        let (limit, asked) = (Some(Tokens(4_096)), None);
        let written = row("too long for the provider, which takes 1", Some(SizeRefusal { limit, asked }));
        assert_eq!(recorded_refusal(&written), Some(ContextOverflow { limit, asked }));
        assert_eq!(recorded_refusal(&row("the provider answered 500", None)), None);
    }

    #[test]
    fn a_refusal_that_an_older_version_wrote_is_read_from_its_words() {
        for (words, limit, asked) in [
            ("too long for the provider", None, None),
            ("too long for the provider, which takes 4096", Some(4_096), None),
            ("too long for the provider, and counts 5000", None, Some(5_000)),
            ("too long for the provider, which takes 4096, and counts 5000", Some(4_096), Some(5_000)),
        ] {
            let expect = ContextOverflow { limit: limit.map(Tokens), asked: asked.map(Tokens) };
            assert_eq!(recorded_refusal(&row(words, None)), Some(expect), "{words}");
            assert_eq!(refusal_text(expect), words);
        }
    }
}
