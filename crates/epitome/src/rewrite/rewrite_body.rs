//! The next request of a thread, written from the client's request and the decisions made.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    ops::Range,
};

use bytes::Bytes;
use epitome_core::{
    Digest, Fact, Seq, ThreadId, Tokens,
    context::{ChangeCounts, Context},
    model_view::EpochCause,
    projection::EventLine,
};
use epitome_store::{Store, records::HashedText};
use epitome_wire::{
    Format,
    history_rewrite::{self, HistoryUnits, RewritePiece, RewritePlan},
    incoming::{IncomingRequest, RequestFrame},
    legality,
    recall_tool::{self, BodyEdit},
    render::CacheBreakpoints,
};

use super::{
    BodySlice, ClientCache,
    client_cache::PrefixLookup,
    fork_inheritance::ForkInheritance,
    incremental_hash::{IncrementalHash, hash_body},
    rewrite_record::{EnvelopeChunk, MergedRewriteRecord, RewriteRecord, UnitEncoding},
    unit_events::{UnitEventMap, is_item},
};
use crate::{
    compact::CompactError,
    session::{
        SessionError,
        call_input::RecallOffer,
        next_call::CallDraft,
        setup::{RecordedRendering, SessionSetup},
        state::{SessionState, WrittenCall},
        thread_reading::parse,
    },
};

/// Cached state of a thread's requests: all of it can be read from the store again.
#[derive(Debug, Default)]
pub(super) struct RewriteState {
    pub(super) units: UnitEventMap,
    plan: RewritePlan,
    /// The plan as it is recorded.
    rendering: Option<HashedText>,
    /// Input that the plan was made from.
    planned: Option<RewritePlanInput>,
    /// Recorded state, if no request was seen since.
    taken: MergedRewriteRecord,
    last: Option<LastRequestBody>,
    /// Hash of the last request's beginning, by the same plan.
    grown: Option<IncrementalHash>,
    /// The contents that were stored for this thread.
    stored: HashSet<Digest>,
    /// Tokens left out so far.
    saved: Tokens,
    /// The last event included in that number.
    saved_through: Seq,
    /// Number of events that the client does not have.
    hidden: usize,
    /// Number of events the client sends that are left out of composed requests.
    unsendable: usize,
    /// True if the client has asked its provider's cache for something.
    marked: bool,
    /// True if another plan than the last request's is in force: it may keep units that the last one left out, and
    /// whose form is not recorded.
    replanned: bool,
    /// True if the last request asks for no cache although its provider requires that.
    unasked: bool,
    /// Amount of the last request that a cache would have held.
    pub(super) client: ClientCache,
}

/// A client's request that is to be rewritten.
#[derive(Debug)]
pub(super) struct RewriteInput<'s, 'b> {
    pub(super) seen: &'s IncomingRequest<'b>,
    /// Its body, if it may be kept instead of a copy.
    pub(super) shared: Option<&'s Bytes>,
    pub(super) frame: RequestFrame<'b>,
    /// The first event that is to be sent though the client has not sent it: calls that the gateway answered, and
    /// their results.
    pub(super) unsent: Option<Seq>,
    /// True if the model is offered a tool by which it gets back parts that were left out.
    pub(super) recall: bool,
    /// True if a tool may be added to it.
    pub(super) takes_tools: bool,
    /// Size that it must be below, if its predecessor was refused.
    pub(super) below: Option<Tokens>,
    /// Lookup for earlier requests of the client; `None` if it was done already.
    pub(super) client: Option<PrefixLookup<'s>>,
}

impl<'s, 'b> RewriteInput<'s, 'b> {
    /// A request that is rewritten as it stands, with no tool offered.
    pub(super) fn new(
        seen: &'s IncomingRequest<'b>,
        frame: RequestFrame<'b>,
        shared: Option<&'s Bytes>,
    ) -> Self {
        let (recall, takes_tools) = (false, false);
        Self { seen, shared, frame, unsent: None, recall, takes_tools, below: None, client: None }
    }
}

/// Input of a plan: as long as it is the same, no further decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RewritePlanInput {
    changes: ChangeCounts,
    standing: Option<Seq>,
    /// Number of events that the client does not have.
    hidden: usize,
    /// Number of events the client sends that are left out of composed requests.
    unsendable: usize,
    /// The first event that is to be sent though the client has not sent it.
    unsent: Option<Seq>,
}

/// The last request, by its bytes.
#[derive(Debug)]
struct LastRequestBody {
    body: Bytes,
    units: Vec<Range<usize>>,
    start: usize,
    end: usize,
    between: Box<str>,
}

/// A rewritten request.
#[derive(Debug)]
pub(super) struct RewrittenBody {
    pub(super) cuts: Vec<BodySlice>,
    /// Its record.
    pub(super) script: RewriteRecord,
    /// Tokens that the client's request would cost.
    pub(super) full: Tokens,
    /// Hash state from which the next one may continue.
    pub(super) grown: Option<IncrementalHash>,
}

impl RewriteState {
    /// Reads the recorded state of a thread.
    pub(super) fn restore(store: &dyn Store, thread: ThreadId) -> Result<Self, SessionError> {
        let (taken, rendering) = MergedRewriteRecord::read(store, thread)?;
        let mut rewrite_state =
            Self { units: UnitEventMap::read(store, thread, Seq(u64::MAX >> 1))?, ..Self::default() };
        if let Some((number, hash)) = rendering {
            let text = store.content(hash)?.unwrap_or_default();
            rewrite_state.plan =
                parse::<RecordedRendering>("rendering", number, &text)?.weave.unwrap_or_default();
            let call = store.call(thread, number)?.call;
            rewrite_state.saved = taken.last.full.less(call.estimated);
            rewrite_state.saved_through = call.head;
        }
        rewrite_state.taken = taken;
        Ok(rewrite_state)
    }

    /// Starts from the form of the parent's last request, so that the same form does not count as a change.
    pub(super) fn inherits(&mut self, inherited: &ForkInheritance) {
        if let Some(plan) = &inherited.plan {
            self.plan = plan.clone();
        }
    }

    /// Drops the plan: the next requests are relayed as they come.
    pub(super) fn drop_plan(&mut self) {
        self.plan = RewritePlan::default();
        (self.rendering, self.planned, self.grown) = (None, None, None);
        self.replanned = true;
    }

    /// Records a request that is relayed as it came.
    pub(super) fn relay<'l, F: FnOnce() -> LoggedItems<'l>>(
        &mut self,
        store: &dyn Store,
        request: RewriteInput<'_, '_>,
        logged: &mut LoggedUnitForms<'l, F>,
    ) -> Result<RelayedBody, SessionError> {
        let RewriteInput { seen, frame, .. } = &request;
        let mut pieces = Vec::new();
        let (script, _) = self.script(store, logged, (seen, frame), Tokens(0), &mut pieces)?;
        let script = RewriteRecord { blanked: !frame.is_plain(), ..script };
        let grown = self.grown.clone().filter(|grown| grown.is_prefix_of(&script));
        let (before, after) = around_history(frame);
        let before: Vec<&str> = before.iter().map(|piece| &**piece).collect();
        let after: Vec<&str> = after.iter().map(|piece| &**piece).collect();
        let (hash, grown) = hash_body(grown, &self.plan, frame, seen.body(), (&before, &after));
        let bytes = seen.body().len() as u64;
        pieces.retain(|piece: &HashedText| self.stored.insert(piece.hash));
        let told = serde_json::to_string(&script).expect("scripts hold only strings, numbers and lists");
        self.note_sent(request, script, Some(grown));
        Ok(RelayedBody { hash, bytes, script: told, pieces })
    }

    /// Size of the cached state, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.body.len())
    }

    /// Number of units and tokens of the client's last request; `None` if there was none, or if it was relayed and
    /// not counted.
    pub(super) fn last_sent(&self) -> Option<(usize, Tokens)> {
        let last = (self.taken.last.units, self.taken.last.full);
        Some(last).filter(|(units, full)| *units > 0 && *full > Tokens(0))
    }

    /// Writes the prepared request. `None` if the client's history is not the log's.
    pub(super) fn write_body(
        &mut self,
        store: &dyn Store,
        state: &mut SessionState,
        draft: &mut CallDraft,
        request: &RewriteInput<'_, '_>,
        after: Seq,
    ) -> Result<Option<(WrittenCall, RewrittenBody)>, SessionError> {
        let CallDraft { setup, prepared, whole, .. } = draft;
        let RewriteInput { seen, frame, .. } = request;
        self.follow(state.view().line());
        let count = frame.units.len();
        if self.units.ends(seen.units().iter().map(|unit| unit.digest)).len() < count {
            return Ok(None);
        }
        let context = state.view().context();
        self.saved = (self.saved + self.ordered(state.view().line(), after) + *whole).less(context.tokens());
        self.saved_through = state.view().line().last().map_or(after, |last| last.id.seq);
        if self.lead_changed() {
            self.saved = Tokens(0);
        }
        let goes_on = self.replan(setup, context, request)?;
        let Some(middle) = middle(&self.plan, frame) else { return Ok(None) };
        let full = context.tokens() + self.saved;
        let mut pieces = Vec::new();
        let mut logged = LoggedUnitForms::new(&self.units, frame.between, || items_of(state.view().line()));
        let (script, changed) = self.script(store, &mut logged, (seen, frame), full, &mut pieces)?;
        if (changed || !goes_on) && state.view().last().is_some() {
            // The policy did not change what was sent: the client did.
            let cause = if changed { EpochCause::Client } else { EpochCause::Format };
            state.calls.note_reset(prepared, cause);
        }
        let marks = self.marks(setup, seen.body());
        self.unasked = marks.is_some();
        let script = RewriteRecord { marks, recall: request.recall, blanked: !frame.is_plain(), ..script };
        let summary = summary_of(state.view().context());
        let grown = self.grown.clone().filter(|grown| grown.is_prefix_of(&script));
        let FinishedBody { cuts, hash, bytes, grown } =
            finish(setup, request, (&self.plan, middle), (marks, summary.as_deref()), grown);
        pieces.retain(|piece: &HashedText| self.stored.insert(piece.hash));
        let rendering = self.rendering.get_or_insert_with(|| setup.weaving(self.plan.clone())).clone();
        let told = serde_json::to_string(&script).expect("scripts hold only strings, numbers and lists");
        let written = WrittenCall { hash, bytes, rendering, script: Some(told), pieces, prompt: None };
        Ok(Some((written, RewrittenBody { cuts, script, full, grown })))
    }

    /// Reports whether the model is offered a tool by which it gets back parts that were left out: the last request's
    /// choice, and for the first request the configured one, unless the model has answered before.
    pub(super) fn recall_offer(&self, request: &RewriteInput<'_, '_>) -> RecallOffer {
        match (request.takes_tools, self.taken.last.units > 0) {
            (true, true) if self.taken.last.recall => RecallOffer::Standing,
            (true, false) if request.recall => RecallOffer::IfNew,
            _ => RecallOffer::None,
        }
    }

    /// Returns true if the client asks for a cache, or its provider does not require it.
    pub(super) fn asks_for_cache(&self) -> bool {
        !self.unasked
    }

    /// Positions of cache marks to place: only if the client has none, and its provider requires them.
    fn marks(&mut self, setup: &SessionSetup, body: &str) -> Option<CacheBreakpoints> {
        let placed = matches!(setup.calls.options.breakpoints, CacheBreakpoints::Placed { .. });
        if !placed || !setup.calls.format.caches_at_marks_only() {
            return None;
        }
        // A client that has asked once goes on asking, so as long as the word is there nothing need be parsed.
        self.marked = setup.calls.format.mark_key().is_some_and(|key| body.contains(key))
            && (self.marked || history_rewrite::has_cache_marks(setup.calls.format, body));
        (!self.marked).then_some(setup.calls.options.breakpoints)
    }

    /// Tokens left out by compactions that were requested since the last request, before this one came.
    fn ordered(&self, line: &EventLine, after: Seq) -> Tokens {
        let since = line.events().rev().take_while(|event| event.id.seq > self.saved_through);
        let ours = since.filter(|event| event.id.seq <= after && event.event.normal.is_none());
        let saved = ours.filter_map(|event| match &event.event.fact {
            Fact::Compacted(made) => Some(made.tokens_before?.less(made.tokens_after?)),
            _ => None,
        });
        saved.fold(Tokens(0), |all, saved| all + saved)
    }

    fn lead_changed(&self) -> bool {
        self.taken.last.units > 0 && self.taken.last.lead != self.units.lead()
    }

    /// Notes that the request was recorded and is now the last one.
    pub(super) fn note_sent(
        &mut self,
        request: RewriteInput<'_, '_>,
        script: RewriteRecord,
        grown: Option<IncrementalHash>,
    ) {
        let RewriteInput { seen, shared, frame, .. } = request;
        let (start, end) = (frame.start(), frame.end());
        let between = frame.between.into();
        let body = seen.body().as_bytes();
        let shared = shared.filter(|shared| shared.as_ptr_range() == body.as_ptr_range());
        let body = shared.cloned().unwrap_or_else(|| Bytes::copy_from_slice(body));
        self.last = Some(LastRequestBody { body, units: frame.units, start, end, between });
        self.taken.take(script);
        self.grown = grown;
        self.replanned = false;
    }

    /// Takes the events since.
    fn follow(&mut self, line: &EventLine) {
        let through = self.units.through();
        let news: Vec<_> = line.events().rev().take_while(|event| event.id.seq > through).collect();
        for event in news.into_iter().rev() {
            let is_ours = history_rewrite::is_hidden(&event.event) || history_rewrite::is_added(&event.event);
            // Either makes another plan.
            self.hidden += usize::from(is_ours);
            self.unsendable += usize::from(history_rewrite::is_unsendable(&event.event));
            self.units.push(event);
        }
    }

    /// Makes another plan if any further decision was made, and returns true if the parts already sent stay as they
    /// were.
    fn replan(
        &mut self,
        setup: &SessionSetup,
        context: &Context,
        request: &RewriteInput<'_, '_>,
    ) -> Result<bool, SessionError> {
        let RewriteInput { frame, unsent, .. } = request;
        let (changes, standing) = (context.changes(), context.standing());
        let now = RewritePlanInput {
            changes,
            standing,
            hidden: self.hidden,
            unsendable: self.unsendable,
            unsent: *unsent,
        };
        if self.planned == Some(now) {
            return Ok(true);
        }
        let plan = self.new_plan(setup, context, request)?;
        self.planned = Some(now);
        if plan == self.plan {
            return Ok(true);
        }
        let goes_on = plan.extends(frame.units.len(), &self.plan, self.taken.last.units);
        self.plan = plan;
        self.rendering = None;
        self.grown = None;
        self.replanned = true;
        Ok(goes_on)
    }

    /// The plan that shows what the context shows. It keeps every unit that it can, unless the provider would refuse that.
    fn new_plan(
        &mut self,
        setup: &SessionSetup,
        context: &Context,
        request: &RewriteInput<'_, '_>,
    ) -> Result<RewritePlan, SessionError> {
        let RewriteInput { seen, frame, unsent, .. } = request;
        let is_untouched = context.standing().is_none()
            && context.changes() == ChangeCounts::default()
            && self.hidden == 0
            && unsent.is_none();
        if is_untouched {
            return Ok(RewritePlan::default());
        }
        let ends = self.units.ends(seen.units().iter().map(|unit| unit.digest));
        let count = frame.units.len().min(ends.len());
        let history = HistoryUnits { ends: unsent.map_or(ends, |_| &ends[..count]), unsent: *unsent };
        let (format, options) = (setup.calls.format, &setup.calls.options);
        let plan =
            history_rewrite::plan_rewrite(format, context, options, history).map_err(CompactError::from)?;
        if plan.is_plain() || is_legal(setup, seen.body(), &plan, frame) {
            return Ok(plan);
        }
        let plan = history_rewrite::plan_full_rewrite(format, context, options, history)
            .map_err(CompactError::from)?;
        if is_legal(setup, seen.body(), &plan, frame) { Ok(plan) } else { Err(SessionError::Illegal) }
    }

    /// The record of a request, and true if it changes a part that was sent before.
    fn script<'l, F: FnOnce() -> LoggedItems<'l>>(
        &self,
        store: &dyn Store,
        logged: &mut LoggedUnitForms<'l, F>,
        (seen, frame): (&IncomingRequest<'_>, &RequestFrame<'_>),
        full: Tokens,
        pieces: &mut Vec<HashedText>,
    ) -> Result<(RewriteRecord, bool), SessionError> {
        let (taken, body) = (&self.taken, seen.body());
        let mut script = RewriteRecord { full, ..self.envelope(frame, pieces) };
        let last = self.last.as_ref();
        let is_same_history = !self.lead_changed();
        let is_same_frame = last.is_some_and(|last| *last.between == *frame.between);
        let mut changed = false;
        for unit in self.plan.kept_units(frame.units.len()) {
            let sent = &body[frame.units[unit].clone()];
            let was_sent = is_same_history && unit < taken.last.units;
            let before =
                last.filter(|_| was_sent).and_then(|last| Some(&last.body[last.units.get(unit)?.clone()]));
            if !self.replanned && is_same_frame && before == Some(sent.as_bytes()) {
                continue;
            }
            let form = taken.forms.get(&unit).filter(|_| is_same_history);
            let said = logged.of(unit);
            let known = match form {
                Some(form) => form.sent(store, said.as_deref())?.map(Cow::into_owned),
                None => said.clone(),
            };
            if known.as_deref() == Some(sent) {
                continue;
            }
            let before = before.and_then(|before| str::from_utf8(before).ok());
            if let Some(before) = before.or(known.as_deref().filter(|_| was_sent)) {
                changed |= !history_rewrite::is_same_content(seen.format(), before, sent);
            }
            let (form, content) = UnitEncoding::of(sent, said.as_deref());
            pieces.extend(content);
            script.forms.insert(unit, form);
        }
        Ok((script, changed))
    }

    /// The record of what stands around the history, as far as it differs from the last one.
    fn envelope(&self, frame: &RequestFrame<'_>, pieces: &mut Vec<HashedText>) -> RewriteRecord {
        let (taken, last) = (&self.taken, self.last.as_ref());
        let mut script =
            RewriteRecord { units: frame.units.len(), lead: self.units.lead(), ..RewriteRecord::default() };
        let mut chunks = |texts: Vec<Cow<'_, str>>| -> Vec<EnvelopeChunk> {
            let chunk = |text: Cow<'_, str>| {
                let (chunk, content) = EnvelopeChunk::of(&text);
                pieces.extend(content);
                chunk
            };
            texts.into_iter().map(chunk).collect()
        };
        // The record begins anew with the history: then no earlier one need be read.
        let is_same_history = !self.lead_changed();
        if !is_same_history || last.is_none_or(|last| last.body[..last.start] != *frame.head().as_bytes()) {
            let before = chunks(frame.before());
            script.before = Some(before).filter(|before| !is_same_history || *before != taken.before);
        }
        if !is_same_history || last.is_none_or(|last| last.body[last.end..] != *frame.tail().as_bytes()) {
            let after = chunks(frame.after());
            script.after = Some(after).filter(|after| !is_same_history || *after != taken.after);
        }
        if !is_same_history || taken.between != frame.between {
            script.between = Some(frame.between.to_owned());
        }
        script
    }
}

/// Items of a thread, by their numbers.
pub(super) type LoggedItems<'l> = BTreeMap<Seq, &'l str>;

/// A request that is relayed as it came, with everything needed to write it again.
#[derive(Debug)]
pub(super) struct RelayedBody {
    pub(super) hash: Digest,
    pub(super) bytes: u64,
    pub(super) script: String,
    /// Contents that the script names.
    pub(super) pieces: Vec<HashedText>,
}

/// The parts before and after a history, as they are recorded.
fn around_history<'b>(frame: &RequestFrame<'b>) -> (Vec<Cow<'b, str>>, Vec<Cow<'b, str>>) {
    if frame.is_plain() {
        (vec![frame.head().into()], vec![frame.tail().into()])
    } else {
        (frame.before(), frame.after())
    }
}

/// The items of a line by their numbers.
pub(super) fn items_of(line: &EventLine) -> LoggedItems<'_> {
    let items = line.events().filter(|event| is_item(&event.event));
    items.map(|event| (event.id.seq, &*event.event.raw.json)).collect()
}

/// The log's forms of units, as a client would send them.
pub(super) struct LoggedUnitForms<'l, F> {
    units: &'l UnitEventMap,
    between: &'l str,
    /// Lookup of the items, made at the first use.
    find: Option<F>,
    items: LoggedItems<'l>,
}

impl<'l, F: FnOnce() -> LoggedItems<'l>> LoggedUnitForms<'l, F> {
    pub(super) fn new(units: &'l UnitEventMap, between: &'l str, find: F) -> Self {
        Self { units, between, find: Some(find), items: BTreeMap::new() }
    }

    /// The log's form of a unit.
    pub(super) fn of(&mut self, unit: usize) -> Option<String> {
        let (after, end) = self.units.of(unit)?;
        if let Some(find) = self.find.take() {
            self.items = find();
        }
        let raws: Vec<&str> = self.items.range(after.next()..=end).map(|(_, raw)| *raw).collect();
        (!raws.is_empty()).then(|| raws.join(self.between))
    }
}

/// The history as it is sent; `None` if that ends before the decisions do.
fn middle(plan: &RewritePlan, frame: &RequestFrame<'_>) -> Option<Vec<BodySlice>> {
    let count = frame.units.len();
    let mut cuts = Vec::new();
    let separate = |cuts: &mut Vec<BodySlice>| {
        if !cuts.is_empty() {
            cuts.push(BodySlice::Own(frame.between.to_owned()));
        }
    };
    let units = |from: usize, to: usize, cuts: &mut Vec<BodySlice>| {
        if from >= to {
            return;
        }
        if frame.is_even {
            separate(cuts);
            cuts.push(BodySlice::Client(frame.units[from].start..frame.units[to - 1].end));
            return;
        }
        for unit in &frame.units[from..to] {
            separate(cuts);
            cuts.push(BodySlice::Client(unit.clone()));
        }
    };
    for piece in plan.parts_for(count)? {
        match piece {
            RewritePiece::Units { from, to } => units(*from, *to, &mut cuts),
            RewritePiece::Own(text) => {
                separate(&mut cuts);
                cuts.push(BodySlice::Own(text.clone()));
            }
        }
    }
    units(plan.onward, count, &mut cuts);
    Some(cuts)
}

/// Returns true if a plan's result is acceptable to the provider, or no worse than the client's request.
fn is_legal(setup: &SessionSetup, body: &str, plan: &RewritePlan, frame: &RequestFrame<'_>) -> bool {
    let Some(middle) = middle(plan, frame) else { return false };
    let woven = frame.head().to_owned() + &text_of(&middle, body) + frame.tail();
    let found = legality::check(setup.calls.format, &woven, &setup.calls.options.rules);
    if found.is_empty()
        || found.len() <= legality::check(setup.calls.format, body, &setup.calls.options.rules).len()
    {
        return true;
    }
    // Only the place is logged, not the texts of users.
    let place = found.first().and_then(|found| found.message);
    tracing::info!(target: "epitome::compose", ?place, breaches = found.len(), "a history is written afresh");
    false
}

fn text_of(cuts: &[BodySlice], body: &str) -> String {
    cuts.iter().map(|cut| cut.text(body)).collect()
}

pub(super) fn summary_of(context: &Context) -> Option<String> {
    context.summary().and_then(|event| match &event.event.fact {
        Fact::Compacted(compaction) => Some(compaction.summary.text().to_owned()),
        _ => None,
    })
}

/// A finished body.
struct FinishedBody {
    cuts: Vec<BodySlice>,
    /// Hash of its recorded form.
    hash: Digest,
    bytes: u64,
    /// Hash state from which the next one may continue.
    grown: Option<IncrementalHash>,
}

/// Finishes the body. `grown` is the hash of its beginning, if the one before began like that.
fn finish(
    setup: &SessionSetup,
    request: &RewriteInput<'_, '_>,
    (plan, middle): (&RewritePlan, Vec<BodySlice>),
    (marks, summary): (Option<CacheBreakpoints>, Option<&str>),
    grown: Option<IncrementalHash>,
) -> FinishedBody {
    let RewriteInput { seen, frame, recall, .. } = request;
    let (body, is_plain) = (seen.body(), frame.is_plain());
    if *recall || marks.is_some() {
        let said = text_of(&middle, body);
        let written = |head: &str, tail: &str| {
            wrap_history(setup.calls.format, head, &said, tail, *recall, marks, summary)
        };
        let sent = written(frame.head(), frame.tail());
        let hash = if is_plain {
            Digest::of(sent.as_bytes())
        } else {
            Digest::of(written(&frame.before().concat(), &frame.after().concat()).as_bytes())
        };
        let bytes = sent.len() as u64;
        return FinishedBody { cuts: vec![BodySlice::Own(sent)], hash, bytes, grown: None };
    }
    let (before, after) = around_history(frame);
    let said = middle.iter().map(|cut| cut.text(body).len());
    let bytes = (said.sum::<usize>() + frame.head().len() + frame.tail().len()) as u64;
    let before: Vec<&str> = before.iter().map(|piece| &**piece).collect();
    let after: Vec<&str> = after.iter().map(|piece| &**piece).collect();
    let (hash, grown) = hash_body(grown, plan, frame, body, (&before, &after));
    let mut cuts = vec![BodySlice::Client(0..frame.start())];
    cuts.extend(middle);
    cuts.push(BodySlice::Client(frame.end()..body.len()));
    FinishedBody { cuts: joined(cuts), hash, bytes, grown: Some(grown) }
}

/// Puts a history together with the parts around it, the offered tool and the cache marks.
pub(super) fn wrap_history(
    format: Format,
    head: &str,
    history: &str,
    tail: &str,
    recall: bool,
    marks: Option<CacheBreakpoints>,
    summary: Option<&str>,
) -> String {
    // The tool's position depends only on the parts around the history, so any value may stand in for it.
    let bare = [head, "null", tail].concat();
    let offer = if recall { recall_tool::offer(format, &bare) } else { None };
    let body = match offer {
        Some(edit) if edit.at.end <= head.len() => [&*edit.apply(head), history, tail].concat(),
        Some(edit) => {
            let moved = head.len() + "null".len();
            let at = edit.at.start.saturating_sub(moved)..edit.at.end.saturating_sub(moved);
            [head, history, &*BodyEdit { at, ..edit }.apply(tail)].concat()
        }
        None => [head, history, tail].concat(),
    };
    match marks {
        Some(marks) => history_rewrite::place_cache_marks(format, body, marks, summary),
        None => body,
    }
}

/// Joins cuts that are adjacent.
fn joined(cuts: Vec<BodySlice>) -> Vec<BodySlice> {
    let mut joined: Vec<BodySlice> = Vec::with_capacity(cuts.len());
    for cut in cuts {
        match (joined.last_mut(), cut) {
            (Some(BodySlice::Client(last)), BodySlice::Client(next)) if last.end == next.start => {
                last.end = next.end;
            }
            (_, BodySlice::Client(range)) if range.is_empty() => {}
            (_, cut) => joined.push(cut),
        }
    }
    joined
}
