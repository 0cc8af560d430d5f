//! Repeats every call of every session under a policy as if live, and checks the requests.
//!
//! Besides the checks of any request, these are: a request extends the one before it unless an epoch was
//! opened, a view restored from its records renders the same bytes, and handles lead back to everything that
//! is not shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
    path::Path,
    sync::Arc,
};

use epitome::{
    call_settings::TargetModel,
    compact::{CompactError, headline, line},
    core::{
        ContentPart, Digest, Seq, Tokens,
        budget::Budget,
        context::{Context, EventNaming, Fidelity, Segment, SegmentBody, Tier},
        cost::{Prompt, RequestExtension, extends},
        event::Summary,
        meter::{Meter, TokenOverhead},
        model_view::{EpochCause, ModelView},
        policy::Policy,
        profile::{Profile, Profiles},
        projection::EventLine,
        seq_set::SeqSet,
        tokens::O200kCounter,
    },
    request_plan::last_model_of,
    simulate::{MeteredThread, SimulationCall, SimulationSettings},
    wire::{Format, legality::check, transcripts},
};
use serde::Serialize;

use crate::{
    text_format,
    transcript_sessions::{TranscriptFileError, transcript_sessions},
};

/// Number of a thread's newest changes that are rendered again.
const RESTORED: usize = 4;

/// Findings of a sweep of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallSweepTally {
    /// Threads that were tried.
    pub threads: u64,
    /// Requests that were rendered and checked.
    pub calls: u64,
    /// Calls for which what must be sent does not fit.
    pub refusals: u64,
    /// Epochs by their cause.
    pub epochs: BTreeMap<String, u64>,
    /// Requests that did not extend the one before them.
    pub resets: u64,
    /// Most resets in one epoch.
    pub resets_in_an_epoch: u64,
    /// Resets without an epoch.
    pub silent_resets: u64,
    /// Requests that break a rule of their provider.
    pub illegal: u64,
    /// Requests over the ceiling by a full recount.
    pub over_ceiling: u64,
    /// Requests that had other bytes the second time.
    pub not_deterministic: u64,
    /// Requests that had other bytes when restored from the records.
    pub restored_otherwise: u64,
    /// Contexts that leave events unaccounted for.
    pub events_unaccounted: u64,
    /// Parts of the context that the request does not show.
    pub not_shown: u64,
    /// Segments that show less than there was, without a handle to it.
    pub unreachable: u64,
    /// Requests that could not be rendered.
    pub failed: u64,
    /// The first few violations, in words.
    pub examples: Vec<String>,
}

impl CallSweepTally {
    /// Violations by kind, in words.
    pub fn violations(&self) -> [(&'static str, u64); 9] {
        [
            ("illegal for their provider", self.illegal),
            ("over the ceiling by a full recount", self.over_ceiling),
            ("reset the cache though no one decided to", self.silent_resets),
            ("other bytes the second time", self.not_deterministic),
            ("other bytes when restored from the records", self.restored_otherwise),
            ("leave events unaccounted for", self.events_unaccounted),
            ("lack something that their context shows", self.not_shown),
            ("show less than was there and no handle to it", self.unreachable),
            ("not rendered", self.failed),
        ]
    }

    /// Number of violations of all kinds.
    pub fn total(&self) -> u64 {
        self.violations().iter().map(|(_, count)| count).sum()
    }

    fn example(&mut self, words: impl FnOnce() -> String) {
        if self.examples.len() < 10 {
            self.examples.push(words());
        }
    }
}

impl AddAssign for CallSweepTally {
    fn add_assign(&mut self, other: Self) {
        self.threads += other.threads;
        self.calls += other.calls;
        self.refusals += other.refusals;
        for (cause, count) in other.epochs {
            *self.epochs.entry(cause).or_default() += count;
        }
        self.resets += other.resets;
        self.resets_in_an_epoch = self.resets_in_an_epoch.max(other.resets_in_an_epoch);
        self.silent_resets += other.silent_resets;
        self.illegal += other.illegal;
        self.over_ceiling += other.over_ceiling;
        self.not_deterministic += other.not_deterministic;
        self.restored_otherwise += other.restored_otherwise;
        self.events_unaccounted += other.events_unaccounted;
        self.not_shown += other.not_shown;
        self.unreachable += other.unreachable;
        self.failed += other.failed;
        let left = 10_usize.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(left));
    }
}

/// Findings by policy and budget.
pub type CallSweepTallies = BTreeMap<(usize, u64), CallSweepTally>;

/// Repeats every call of a file's threads under each policy at each budget.
pub fn sweep_calls(
    path: &Path,
    policies: &[Policy],
    budgets: &[u64],
) -> Result<CallSweepTallies, TranscriptFileError> {
    let mut tallies = CallSweepTallies::new();
    let profiles = Profiles::builtin();
    for session in transcript_sessions(path)? {
        for thread in &session.threads {
            let events = session.thread_events(thread.id);
            let model = last_model_of(events.iter());
            let profile = model.and_then(|model| profiles.find(&model).ok());
            let format = format_of(&session, profile);
            let meter = Arc::new(Meter::new(Arc::new(O200kCounter), TokenOverhead::default()));
            let script = MeteredThread::new(line(events), meter, EventNaming::Thread(thread.id));
            let name = format!("{}, {}", session.key, thread.name);
            for (index, policy) in policies.iter().enumerate() {
                for budget in budgets {
                    let tally = tallies.entry((index, *budget)).or_default();
                    tally.threads += 1;
                    let stage =
                        CallSweep { name: &name, script: &script, policy, budget: *budget, format, profile };
                    stage.sweep(tally);
                }
            }
        }
    }
    Ok(tallies)
}

/// Format of the model that answered, or of the messages.
fn format_of(session: &transcripts::TranscriptSession, profile: Option<&Profile>) -> Format {
    let dialects = session.threads.iter().flat_map(|thread| &thread.events).map(|event| &event.raw.dialect);
    let known = Format::ALL.into_iter();
    let spoken = known.clone().find(|format| profile.is_some_and(|p| p.wire.dialect() == format.dialect()));
    let native = known.clone().find(|format| dialects.clone().any(|dialect| *dialect == format.dialect()));
    spoken.or(native).unwrap_or(Format::OpenaiChat)
}

/// One thread under one policy at one budget.
struct CallSweep<'a> {
    name: &'a str,
    script: &'a MeteredThread,
    policy: &'a Policy,
    budget: u64,
    format: Format,
    profile: Option<&'a Profile>,
}

impl CallSweep<'_> {
    fn rehearsal(&self) -> SimulationSettings {
        let target = TargetModel::new(self.format, self.profile);
        let limit = Budget::new(Tokens(self.budget));
        SimulationSettings::for_model(target, self.policy, target.options(), limit)
    }

    fn sweep(&self, tally: &mut CallSweepTally) {
        let rehearsal = self.rehearsal();
        let mut before: Option<Prompt> = None;
        let mut resets = 0;
        let mut bodies = Vec::new();
        let view = rehearsal.run(self.script, |call| match call {
            Ok(call) => {
                tally.calls += 1;
                if let Some(cause) = &call.prepared.cause {
                    *tally.epochs.entry(cause.to_string()).or_default() += 1;
                    resets = 0;
                }
                self.compare(&call, before.as_ref(), &mut resets, tally);
                self.check(&rehearsal, &call, tally);
                bodies.push((call.view.context().head(), Digest::of(call.rendered.body.as_bytes())));
                before = Some(call.prompt.clone());
            }
            Err(failed) => match failed.error {
                CompactError::Refused(_) | CompactError::Thinking(_) => tally.refusals += 1,
                error => {
                    tally.failed += 1;
                    tally.example(|| format!("{}: {error}", self.place()));
                }
            },
        });
        let mut again = bodies.iter();
        rehearsal.run(self.script, |call| {
            if let Ok(call) = call
                && again.next().map(|(_, body)| *body) != Some(Digest::of(call.rendered.body.as_bytes()))
            {
                tally.not_deterministic += 1;
                tally.example(|| format!("{}: call {} is another", self.place(), call.number));
            }
        });
        self.restore(&rehearsal, &view, &bodies, tally);
    }

    /// Checks that past calls can be rendered again from the log and the records: those that changed
    /// something, and the last one.
    fn restore(
        &self,
        rehearsal: &SimulationSettings,
        view: &ModelView,
        bodies: &[(Seq, Digest)],
        tally: &mut CallSweepTally,
    ) {
        let changed: BTreeSet<Seq> =
            view.passes().iter().rev().take(RESTORED).map(|pass| pass.head).collect();
        let last = bodies.len().saturating_sub(1);
        let again = bodies.iter().enumerate().filter(|(at, (head, _))| *at == last || changed.contains(head));
        for (at, (head, body)) in again {
            let mut line = EventLine::default();
            for (event, pieces) in
                view.line().events_with_counts().take_while(|(event, _)| event.id.seq <= *head)
            {
                line.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
            }
            let passes = view.passes().iter().take_while(|pass| pass.head <= *head).cloned().collect();
            let names = view.context().names();
            let restored = ModelView::restore(&line, passes, None, Arc::clone(self.script.meter()), names);
            let rendered = self.format.render(restored.context(), rehearsal.options());
            if !rendered.is_ok_and(|rendered| Digest::of(rendered.body.as_bytes()) == *body) {
                tally.restored_otherwise += 1;
                tally.example(|| format!("{}, call {at}: restored otherwise", self.place()));
            }
        }
    }

    fn place(&self) -> String {
        format!("{} under {} at {}", self.name, self.policy.name, self.budget)
    }

    /// Checks that a request extends the one before it within an epoch.
    fn compare(
        &self,
        call: &SimulationCall<'_>,
        before: Option<&Prompt>,
        resets: &mut u64,
        tally: &mut CallSweepTally,
    ) {
        let Some(before) = before else { return };
        let RequestExtension::Differs { at, layer } = extends(before, call.prompt) else { return };
        tally.resets += 1;
        *resets += 1;
        tally.resets_in_an_epoch = tally.resets_in_an_epoch.max(*resets);
        if matches!(call.prepared.cause, None | Some(EpochCause::Format)) {
            tally.silent_resets += 1;
            let number = call.number;
            tally.example(|| format!("{}: call {number} differs at block {at} ({layer:?})", self.place()));
        }
    }

    fn check(&self, rehearsal: &SimulationSettings, call: &SimulationCall<'_>, tally: &mut CallSweepTally) {
        let place = || format!("{}, call {}", self.place(), call.number);
        for violation in check(self.format, &call.rendered.body, &rehearsal.options().rules) {
            tally.illegal += 1;
            tally.example(|| format!("{}: {violation}", place()));
        }
        let tokens: Tokens = call.prompt.blocks.iter().map(|block| block.tokens).sum();
        if tokens > Tokens(self.budget) {
            tally.over_ceiling += 1;
            tally.example(|| format!("{}: {tokens} tokens by recount", place()));
        }
        let context = call.view.context();
        let accounted = context.accounted();
        let lost = call.view.line().events().find(|event| {
            let sees = event.event.fact.is_message() && event.event.normal.is_some();
            sees && !accounted.contains(event.id.seq)
        });
        if let Some(lost) = lost {
            tally.events_unaccounted += 1;
            tally.example(|| format!("{}: event {} is unaccounted for", place(), lost.id.seq));
        }
        let sent = SeqSet::union(call.rendered.messages.iter().map(|message| &message.events));
        let mut shown = context.segments().iter().filter(|segment| is_for_any_provider(segment));
        if let Some(segment) = shown.find(|segment| !segment.stands_for().without(&sent).is_empty()) {
            tally.not_shown += 1;
            let missing = segment.stands_for().without(&sent);
            tally.example(|| {
                format!(
                    "{}: the request lacks {missing} of {:?}",
                    place(),
                    text_format::one_line(&headline(segment), 200)
                )
            });
        }
        // A context that has not changed needs no second check.
        let changed = !call.prepared.steps.is_empty() || call.prepared.compaction.is_some();
        if (call.number == 0 || changed)
            && let Some(segment) = unreachable(context)
        {
            tally.unreachable += 1;
            tally.example(|| format!("{}: no handle in {segment:?}", place()));
        }
    }
}

/// Returns true if a request must show the text of a segment. Exceptions are external events, which are no
/// messages, reasoning that led to nothing, which is not sent, and data that only the program that wrote it
/// understands.
fn is_for_any_provider(segment: &Segment) -> bool {
    let opaque = |parts: &[ContentPart]| {
        !parts.is_empty() && parts.iter().all(|part| matches!(part, ContentPart::Opaque { .. }))
    };
    !matches!(segment.tier(), Tier::Prefix | Tier::Reasoning)
        && !matches!(segment.body(), SegmentBody::Carried(_) | SegmentBody::Instruction(_))
        && !segment.shown().is_some_and(opaque)
}

/// Finds a segment that shows less than the original without a handle to it.
fn unreachable(context: &Context) -> Option<String> {
    let EventNaming::Thread(_) = context.names() else { return None };
    let found = context.segments().iter().find(|segment| match segment.fidelity() {
        Fidelity::Verbatim | Fidelity::Injected => false,
        // A summary made by the agent itself has no handles.
        Fidelity::Summary if segment.compaction().is_some_and(|made| !is_ours(&made.summary)) => false,
        Fidelity::Cut | Fidelity::Reference | Fidelity::Stub | Fidelity::Summary => {
            !reaches(context, segment)
        }
    });
    found.map(headline)
}

fn is_ours(summary: &Summary) -> bool {
    matches!(summary, Summary::Structured { .. })
}

/// Returns true if some handle in a segment's text leads to what the segment stands for.
fn reaches(context: &Context, segment: &Segment) -> bool {
    let words = match segment.body() {
        SegmentBody::Note(note) => note.text.clone(),
        SegmentBody::Summary(event) => event.event.fact.text(),
        _ => shown(segment),
    };
    let handles = context.names().handles_in(&words);
    match (segment.source(), segment.body()) {
        (Some(source), _) => handles.contains(source),
        // A summary among the covered events is reached through the events that it covered.
        (None, SegmentBody::Note(note)) => {
            note.folded.events.without(&note.folded.summaries).without(&handles).is_empty()
        }
        (None, SegmentBody::Summary(event)) => {
            segment.stands_for().without(&SeqSet::one(event.id.seq)).without(&handles).is_empty()
        }
        (None, _) => segment.stands_for().without(&handles).is_empty(),
    }
}

fn shown(segment: &Segment) -> String {
    let mut words = String::new();
    for part in segment.shown().unwrap_or_default() {
        part.visit_text(&mut |text| words.push_str(text));
    }
    words
}
