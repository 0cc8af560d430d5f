//! State of a session in memory: a view of the log and of the records beside it, made again from both at any time.

use std::sync::Arc;

use epitome_core::{
    Digest, Event, EventId, Fact, Logged, Noted, Seq, ThreadId, Tokens,
    budget::Budget,
    context::{Names, Tier},
    cost::{Extension, Prompt, extends},
    event::{Time, Usage},
    pipeline::Step,
    plan::{CacheChance, CacheUse},
    profile::{Money, Rule},
    summary::compaction::Drafting,
    view::{Cause, Moment, Pass, Prepared, Sent, View},
};
use epitome_store::{
    EventLog, Head, Sqlite,
    records::{CallRow, Content, NewCall, NewOutcome, Record},
};
use epitome_wire::{Answered, PromptMemo, overflow::Overflow, render::settle_thinking};
use serde::{Deserialize, Serialize};

use super::{
    arriving::RecallOffer,
    audit,
    error::SessionError,
    reading::{PAGE, parse, read_page, read_these, read_window},
    setup::{Learned, Limit, Setup},
    thrash::Thrash,
};
use crate::{
    compact::CompactError,
    compose::{Inheritance, Script},
};

/// Data recorded with a call: the reducers' work and the limits known then, so that the session reopened later knows
/// the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Made {
    /// Effects of each reducer.
    #[serde(skip_deserializing)]
    reducers: Vec<Step>,
    /// The hooks that added something.
    injected: Vec<String>,
    learned: Learned,
    thrash: Thrash,
    /// True if a size demanded the compaction that was made for it, if one was.
    forced: bool,
    cache: CacheUse,
    /// Part of the call before that the cache could hold.
    chance: Option<CacheChance>,
    /// The configured window, in place of the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Tokens>,
}

/// The window that a call was made for, if one was given: by a setting of its gateway, a header, an option of its
/// session.
pub(crate) fn window_of(call: &NewCall) -> Option<Tokens> {
    // Data of another version is ignored.
    serde_json::from_str::<Made>(&call.steps).unwrap_or_default().window
}

/// Number of events up to which an answer is counted here; no answer has more.
const FEW: usize = 16;

/// State of a session in memory.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) setup: Arc<Setup>,
    /// The newest request's own limit.
    pub(crate) limit: Option<Limit>,
    pub(crate) view: View,
    pub(super) head: Head,
    memo: PromptMemo,
    /// The last request, as a cache sees it.
    pub(super) sent: Option<Prompt>,
    /// The last call: its number and its estimate.
    pub(super) last: Option<(u64, Tokens)>,
    pub(super) learned: Learned,
    pub(super) thrash: Thrash,
    /// Behaviour of the provider's cache, as the calls have shown it.
    pub(crate) cache: CacheUse,
    /// Part of the call before that the last call could read from the cache.
    chance: Option<CacheChance>,
    /// The contents that the last call named.
    pub(super) named: Option<Named>,
    /// The compaction whose summary is in the memory files, as far as known.
    pub(super) noted: Option<Seq>,
    /// True if summaries may have been ordered: every order is in the log.
    pub(super) may_have_jobs: bool,
    /// True if the last request had the recall tool added, by which the model gets back parts that were left out.
    offers_recall: bool,
    /// The first event that the model has not answered yet, if known.
    pub(super) unanswered: Option<Seq>,
}

/// A request as it was written, rendered or rewritten.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) hash: Digest,
    pub(crate) bytes: u64,
    /// Data to write it again.
    pub(crate) rendering: Content,
    /// Record of the client's request, if it was rewritten from one.
    pub(crate) script: Option<String>,
    /// Contents that the record names.
    pub(crate) pieces: Vec<Content>,
    /// The request as a cache sees it, if it was read.
    pub(crate) prompt: Option<Prompt>,
}

/// Contents that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    policy: Digest,
    profile: Option<Digest>,
    rendering: Digest,
}

impl Named {
    pub(super) fn by(call: &NewCall) -> Self {
        Self { policy: call.policy, profile: call.profile, rendering: call.rendering }
    }
}

impl State {
    /// Reads the state from the log and the records beside it.
    pub(crate) fn restore(store: &Sqlite, thread: ThreadId, setup: Arc<Setup>) -> Result<Self, SessionError> {
        Self::restore_with(store, thread, setup, None)
    }

    /// Reads the state of a fork in which no call was made yet, with the state it takes from its parent.
    pub(super) fn inherits(
        &mut self,
        store: &Sqlite,
        thread: ThreadId,
        inherited: &Inheritance,
    ) -> Result<(), SessionError> {
        let mut restored = Self::restore_with(store, thread, Arc::clone(&self.setup), Some(inherited))?;
        restored.learn_limits(&inherited.call);
        *self = Self { limit: self.limit, ..restored };
        Ok(())
    }

    fn restore_with(
        store: &Sqlite,
        thread: ThreadId,
        setup: Arc<Setup>,
        inherited: Option<&Inheritance>,
    ) -> Result<Self, SessionError> {
        let newest = store.last_call(thread)?;
        let last = match &newest {
            Some(row) if row.call.is_relayed() => store.last_made_call(thread)?,
            _ => newest.clone(),
        };
        let mut passes = Vec::new();
        for (call, _, pass) in store.passes(thread)? {
            passes.push(parse::<Pass>("pass", call, &pass)?);
        }
        let sent = last.as_ref().map(|row| parse::<Sent>("sent", row.number, &row.call.sent)).transpose()?;
        let names = Names::Thread(thread);
        let head = store.head(thread)?;
        let pivot = store.pivot(thread)?;
        let line = read_window(store, thread, &passes, (head.seq, pivot.as_ref()), &setup.meter)?;
        // Another writer may have appended in between; missing events are read later.
        let end = line.last().map_or(Head::START, |last| Head { seq: last.id.seq, link: last.link });
        let last_prompt =
            audit::prompt_of(store, thread, last.as_ref(), &passes, pivot.as_ref(), &setup.meter);
        let meter = Arc::clone(&setup.meter);
        let view = match inherited {
            Some(inherited) => View::restore_fork(&line, passes, inherited.origin.clone(), meter, names),
            None => View::restore(&line, passes, sent, meter, names),
        };
        let mut state = Self {
            view,
            memo: PromptMemo::new(Arc::clone(&setup.meter)),
            limit: None,
            setup,
            head: end,
            sent: last_prompt,
            last: newest.map(|row| (row.number, row.call.estimated)),
            learned: Learned::default(),
            thrash: Thrash::default(),
            cache: CacheUse::default(),
            chance: None,
            named: None,
            noted: None,
            may_have_jobs: true,
            offers_recall: last
                .as_ref()
                .and_then(|last| last.call.script.as_deref())
                .is_some_and(Script::offers_recall),
            unanswered: None,
        };
        state.show_names();
        if let Some(last) = &last {
            state.learn(last);
        }
        state.fill(store, thread)?;
        Ok(state)
    }

    /// Reads the state again: the current one may be wrong.
    pub(crate) fn again(&mut self, store: &Sqlite, thread: ThreadId) -> Result<(), SessionError> {
        let restored = Self::restore(store, thread, Arc::clone(&self.setup))?;
        *self = Self { limit: self.limit, ..restored };
        Ok(())
    }

    /// State of a thread without events.
    pub(crate) fn fresh(thread: ThreadId, setup: Arc<Setup>) -> Self {
        Self {
            view: View::new(Arc::clone(&setup.meter), Names::Thread(thread)),
            memo: PromptMemo::new(Arc::clone(&setup.meter)),
            limit: None,
            setup,
            head: Head::START,
            sent: None,
            last: None,
            learned: Learned::default(),
            thrash: Thrash::default(),
            cache: CacheUse::default(),
            chance: None,
            named: None,
            noted: None,
            may_have_jobs: false,
            offers_recall: false,
            unanswered: None,
        }
    }

    /// Decides if the next request has the recall tool added. Only then does the request name the parts it leaves
    /// out.
    pub(super) fn offer_recall(&mut self, offer: RecallOffer) {
        self.offers_recall = offer.holds(self.view.line());
        self.show_names();
    }

    /// Returns true if the next request has that tool added.
    pub(crate) fn offers_recall(&self) -> bool {
        self.offers_recall
    }

    fn show_names(&mut self) {
        let can_ask = self.offers_recall || self.view.context().has_recall_tool();
        self.view.show_names_if(can_ask);
    }

    /// Takes over the limits known at the session's last call, and those that the call has shown since.
    fn learn(&mut self, last: &CallRow) {
        // Data of another version is ignored.
        let knew: Made = serde_json::from_str(&last.call.steps).unwrap_or_default();
        self.thrash = knew.thrash;
        let _ = self.stands_on(last.number, last.call.summary.map(|summary| summary.seq), knew.forced);
        self.learn_limits(last);
    }

    /// Learns from a call the limits of its provider.
    fn learn_limits(&mut self, last: &CallRow) {
        let knew: Made = serde_json::from_str(&last.call.steps).unwrap_or_default();
        // Another model's counts and limits do not apply to this one.
        if last.call.model.as_ref() != Some(&self.setup.model.0) {
            return;
        }
        self.learned = knew.learned;
        self.cache = knew.cache;
        self.chance = knew.chance;
        for outcome in &last.outcomes {
            if let Some(usage) = &outcome.usage {
                self.is_counted(last.call.estimated, usage);
            }
            if let Some(refused) = outcome.error.as_deref().and_then(Overflowed::read) {
                self.learned.refused(last.call.estimated, refused.0);
            }
        }
    }

    /// Notes that a call stands on a compaction, which a size demanded if `is_forced`. Returns the distance between
    /// such compactions, if they are too close.
    pub(super) fn stands_on(&mut self, call: u64, compaction: Option<Seq>, is_forced: bool) -> Option<u64> {
        self.thrash.stands_on(call, compaction?, is_forced)
    }

    /// Notes the provider's count for the last call.
    pub(super) fn is_counted(&mut self, estimated: Tokens, usage: &Usage) {
        self.learned.counted(estimated, usage.input());
        self.cache.counted(usage, self.chance.take());
    }

    /// Takes in events that others have appended since.
    pub(crate) fn catch_up(&mut self, store: &Sqlite, thread: ThreadId) -> Result<(), SessionError> {
        loop {
            let page = read_page(store, thread, self.head.seq.next(), &self.setup.meter)?;
            let full = page.len() == PAGE;
            for (logged, pieces) in page {
                self.take(logged, pieces);
            }
            if !full {
                return self.fill(store, thread);
            }
        }
    }

    /// The same for the few events of an answer, which are counted here: the store may derive its data later.
    pub(super) fn follow(&mut self, store: &Sqlite, thread: ThreadId) -> Result<(), SessionError> {
        let events = store.read(thread, self.head.seq.next(), FEW)?;
        if events.len() == FEW {
            return self.catch_up(store, thread);
        }
        for logged in events {
            let pieces = self.setup.meter.pieces(&logged.event);
            self.take(Arc::new(logged), pieces);
        }
        self.fill(store, thread)
    }

    fn take(&mut self, logged: Arc<Logged>, pieces: Vec<Tokens>) {
        self.head = Head { seq: logged.id.seq, link: logged.link };
        self.may_have_jobs |= matches!(logged.event.fact, Fact::CompactionRequested { .. });
        self.view.push(logged, pieces);
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
    pub(super) fn fill(&mut self, store: &Sqlite, thread: ThreadId) -> Result<(), SessionError> {
        while let Some(needed) = self.view.needs_more() {
            self.view.give_back(read_these(store, thread, &needed, &self.setup.meter)?);
        }
        Ok(())
    }

    /// Reads all events that only notes stand for: a summary needs them.
    pub(super) fn fill_all(&mut self, store: &Sqlite, thread: ThreadId) -> Result<(), SessionError> {
        if let Some(needed) = self.view.needs_all() {
            self.view.give_back(read_these(store, thread, &needed, &self.setup.meter)?);
        }
        Ok(())
    }

    /// Takes in an event that is about to be appended, or already was.
    pub(super) fn push(&mut self, thread: ThreadId, event: &Noted) {
        let link = event.link_after(self.head.link);
        let pieces = self.setup.meter.pieces_noted(event);
        let id = EventId { thread, seq: self.head.seq.next() };
        self.take(Arc::new(Logged { id, event: Event::clone(event), link }), pieces);
    }

    /// Decides the content of the next request.
    pub(super) fn prepare(
        &mut self,
        (store, thread): (&Sqlite, ThreadId),
        setup: &Setup,
        budget: &Budget,
        moment: &Moment<'_>,
    ) -> Result<Prepared, SessionError> {
        let refused = CompactError::from;
        let mut prepared = self.view.prepare(&setup.policy, budget, moment).map_err(refused)?;
        if self.view.needs_more().is_some() {
            self.fill(store, thread)?;
            prepared = self.view.prepare(&setup.policy, budget, moment).map_err(refused)?;
        }
        if setup.options.rules.has(Rule::PreservedThinking) {
            self.view.settle(|context, sent| {
                settle_thinking(context, sent, &setup.options.rules, budget.ceiling())
                    .map(|settled| settled.context)
                    .map_err(CompactError::from)
            })?;
        }
        Ok(prepared)
    }

    /// Writes the prepared request.
    pub(super) fn write(
        &mut self,
        setup: &Setup,
        prepared: &mut Prepared,
    ) -> Result<(Written, String), CompactError> {
        let rendered = setup.format.render(self.view.context(), &setup.options)?;
        let prompt = setup.format.prompt(&rendered.body, &mut self.memo)?;
        let is_grown = self.sent.as_ref().is_none_or(|sent| extends(sent, &prompt) == Extension::Extends);
        if !is_grown && prepared.cause.is_none() {
            self.view.reset(Cause::Format);
            prepared.cause = Some(Cause::Format);
        }
        let written = Written {
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
    pub(super) fn contents(&self, setup: &Setup, written: &Written) -> Vec<Record> {
        let recorded = &setup.recorded;
        let named = self.named.as_ref();
        let mut records = Vec::new();
        if named.is_none_or(|named| named.policy != recorded.policy.hash) {
            records.push(Record::Content(recorded.policy.clone()));
        }
        if let Some(profile) = &recorded.profile
            && named.is_none_or(|named| named.profile != Some(profile.hash))
        {
            records.push(Record::Content(profile.clone()));
        }
        if named.is_none_or(|named| named.rendering != written.rendering.hash) {
            records.push(Record::Content(written.rendering.clone()));
        }
        records.extend(written.pieces.iter().cloned().map(Record::Piece));
        records
    }

    /// The record of the call. From here on the view counts it as sent.
    pub(super) fn record(
        &mut self,
        setup: &Setup,
        prepared: &Prepared,
        written: Written,
        injected: &[String],
        now: Time,
    ) -> NewCall {
        let estimated = self.view.context().tokens();
        self.chance = self.chance_of(prepared, estimated, now);
        let made = Made {
            reducers: prepared.steps.clone(),
            injected: injected.to_vec(),
            learned: self.learned,
            thrash: self.thrash,
            forced: is_forced(prepared),
            cache: self.cache,
            chance: self.chance,
            window: self.limit.map_or(setup.window, |limit| limit.window),
        };
        let pass = self.view.sent(Some(now)).map(json);
        let sent = self.view.last().map(json).unwrap_or_default();
        let context = self.view.context();
        let recorded = &setup.recorded;
        NewCall {
            head: self.head.seq,
            time: Some(now),
            model: Some(setup.model.0.clone()),
            format: setup.format.dialect().name().to_owned(),
            policy: recorded.policy.hash,
            profile: recorded.profile.as_ref().map(|profile| profile.hash),
            rendering: written.rendering.hash,
            summary: context.summary().map(|event| event.id),
            epoch: self.view.epoch().number,
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
    fn chance_of(&self, prepared: &Prepared, size: Tokens, now: Time) -> Option<CacheChance> {
        if !matches!(prepared.cause, None | Some(Cause::Client | Cause::Format)) {
            return None;
        }
        let last = self.view.last()?;
        let pause = u64::try_from(now.0.saturating_sub(last.at?.0) / 1_000).unwrap_or(0);
        let lifetime = self.setup.terms.as_ref().and_then(|terms| terms.lifetime(None));
        Some(CacheChance { sent: last.tokens, size, pause, lifetime })
    }

    /// First event shown of the history.
    pub(super) fn first_shown(&self) -> Seq {
        let context = self.view.context();
        let shown = &context.segments()[context.prefix_len()..];
        shown.iter().filter_map(|segment| segment.stands_for().first()).min().unwrap_or_default()
    }

    /// Settings for drafting compactions under a budget.
    pub(crate) fn drafting(&self, budget: &Budget) -> Drafting {
        let context = self.view.context();
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let rules = self.setup.policy.summary.unwrap_or_default();
        rules.drafting(budget, prefix)
    }

    /// Returns true if the provider may still hold the last request.
    pub(crate) fn is_warm(&self, now: Time) -> bool {
        let last = self.view.last().and_then(|last| last.at);
        let lifetime = self.cache_lifetime();
        last.is_some_and(|last| {
            let seconds = u64::try_from(now.0.saturating_sub(last.0) / 1_000).unwrap_or(0);
            lifetime.is_none_or(|lifetime| seconds <= lifetime)
        })
    }

    /// Time for which the provider holds a request, in seconds; `None` if unknown.
    pub(crate) fn cache_lifetime(&self) -> Option<u64> {
        let usual = self.setup.terms.as_ref().and_then(|terms| terms.lifetime(None))?;
        Some(self.cache.lifetime(usual))
    }

    /// Known end of the thread.
    pub(crate) fn head(&self) -> Seq {
        self.head.seq
    }

    pub(crate) fn budget(&self) -> Budget {
        match self.limit {
            Some(limit) => self.setup.budget_within(limit, self.learned),
            None => self.setup.budget(self.learned),
        }
    }

    pub(super) fn outcome(&self, call: u64, now: Time, answered: &Answered) -> NewOutcome {
        let answer = answered.events.iter().find_map(|event| match &event.fact {
            Fact::AssistantSaid { answer, .. } => answer.clone(),
            _ => None,
        });
        let cost = answered.usage.as_ref().and_then(|usage| self.cost(usage));
        NewOutcome { call, time: Some(now), answer, usage: answered.usage, cost, error: None }
    }

    fn cost(&self, usage: &Usage) -> Option<Money> {
        self.setup.profile.as_ref().and_then(|profile| profile.prices.cost(usage).ok())
    }
}

/// Returns true if a compaction was made because a size demanded it.
pub(super) fn is_forced(prepared: &Prepared) -> bool {
    prepared.compaction.is_some() && prepared.acted.as_ref().is_some_and(Cause::is_forced)
}

/// A refusal as too long, as it is recorded with the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflowed(pub(crate) Overflow);

impl std::fmt::Display for Overflowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too long for the provider")?;
        if let Some(limit) = self.0.limit {
            write!(f, ", which takes {}", limit.0)?;
        }
        if let Some(asked) = self.0.asked {
            write!(f, ", and counts {}", asked.0)?;
        }
        Ok(())
    }
}

impl Overflowed {
    /// Reads the record of a call's end; `None` if it is another kind.
    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("too long for the provider")?;
        let number = |name: &str| {
            let (_, number) = rest.split_once(name)?;
            let end = number.find(',').unwrap_or(number.len());
            number[..end].parse().ok().map(Tokens)
        };
        Some(Self(Overflow { limit: number(", which takes "), asked: number(", and counts ") }))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records hold only strings, numbers and lists")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_refusal_said_is_read_from_its_record() {
        for limit in [None, Some(Tokens(4_096))] {
            for asked in [None, Some(Tokens(5_000))] {
                let overflowed = Overflowed(Overflow { limit, asked });
                assert_eq!(Overflowed::read(&overflowed.to_string()), Some(overflowed));
            }
        }
        assert_eq!(Overflowed::read("the provider answered 500"), None);
    }
}
