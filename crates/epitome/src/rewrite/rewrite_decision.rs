//! Decision on a request at its place: whether a policy is in charge of it, and how it goes on.

use std::sync::Arc;

use epitome_core::{
    Event, Tokens, budget::Budget, context::EventNaming, event::Compaction, projection::project,
};
use epitome_store::{StoreError, ThreadStart};
use epitome_wire::{
    caller::RequestPurpose,
    incoming::{PriorHistory, RequestFrame},
    summary_prompt::SummaryAnswerForm,
};

use super::{
    RewriteStatus,
    client_examples::{self, ExampleBudget},
    early_release, fork_places,
    own_summary::{self, SummarySource},
    request_rewrite::RequestRewrite,
};
use crate::{
    compact,
    holdout::HoldoutGroup,
    recorder::{PlacementKind, ReceivedRequest, placement::RequestPlace},
    session::{
        SessionError,
        setup::{ObservedLimits, RequestLimit, SessionSetup},
    },
};

/// Decision on a request at its place.
pub struct RewriteDecision<'b> {
    pub(super) place: RequestPlace,
    pub(super) plan: DispositionPlan<'b>,
    may_leave: bool,
}

/// Way in which a request goes on.
pub(super) enum DispositionPlan<'b> {
    /// As it came, for this reason.
    Relay(RewriteStatus),
    /// Not at all: its session is compacted, with this focus.
    Compact(CallTarget, String),
    /// Not at all: its client asked for a summary that its provider's window does not hold, and gets this one.
    Summarise(Box<Compaction>, SummaryAnswerForm),
    /// Composed, in a fork that is made first.
    Fork(CallTarget, RequestFrame<'b>),
    /// Composed.
    Compose(CallTarget, RequestFrame<'b>),
}

/// Settings of a request's call, and its own limit.
#[derive(Clone)]
pub(super) struct CallTarget {
    pub(super) setup: Arc<SessionSetup>,
    pub(super) limit: RequestLimit,
    /// The most that hooks may add.
    pub(super) injection: Tokens,
}

impl CallTarget {
    /// The setup for the request, and its own limit. A client's own summary has its provider's window: a smaller one
    /// that a user set is for the conversation.
    pub(super) fn of(rewrite: &RequestRewrite<'_, '_>) -> Option<Self> {
        let mut target = Self::of_turn(rewrite)?;
        let ReceivedRequest { seen, caller, .. } = &rewrite.request;
        if target.setup.profile.is_some() && caller.purpose == RequestPurpose::Compaction {
            target.limit = target.setup.limit_of(None, seen.answer_limit().map(Tokens));
        }
        Some(target)
    }

    /// The same for a turn of the conversation.
    fn of_turn(rewrite: &RequestRewrite<'_, '_>) -> Option<Self> {
        let seen = &rewrite.request.seen;
        let model = seen.model()?;
        let store = &**rewrite.recorder.store();
        let setup = rewrite.recorder.threads.setup(store, seen.format(), &model.0, rewrite.composing);
        let window = rewrite.wishes.window.or(rewrite.composing.window);
        let limit = setup.limit_of(window, seen.answer_limit().map(Tokens));
        let injection = rewrite.composing.functions.hooks.reserve();
        Some(Self { setup, limit, injection })
    }

    /// Room of a request of which nothing is known yet.
    fn budget(&self) -> Budget {
        self.setup.budget_within(self.limit, ObservedLimits::default(), self.injection)
    }
}

impl<'b> RewriteDecision<'b> {
    /// Decides on a request at a place.
    pub(super) fn at(rewrite: &RequestRewrite<'_, 'b>, place: RequestPlace) -> Result<Self, StoreError> {
        let RequestRewrite { recorder, request, is_cramped, .. } = rewrite;
        let relayed =
            |place, status| Ok(Self { place, plan: DispositionPlan::Relay(status), may_leave: false });
        let frame = match (status_at(rewrite, &place), request.seen.frame()) {
            (RewriteStatus::Composed, Some(frame)) => frame,
            (RewriteStatus::Composed, None) => return relayed(place, RewriteStatus::Unfit),
            (status, _) => return relayed(place, status),
        };
        let Some(target) = CallTarget::of(rewrite) else { return relayed(place, RewriteStatus::Unfit) };
        let mut place = fork_places::beside_its_answer(&**recorder.store(), place)?;
        let command = rewrite.command();
        let is_first = place.placed == PlacementKind::Began;
        let mut may_leave =
            is_first && !is_cramped && command.is_none() && fits_unchanged(rewrite, &frame, &target);
        // From here on the work grows with the new events, and all of a first request is new.
        if !may_leave && *is_cramped {
            place = fork_places::without_examples(&**recorder.store(), place, &request.seen)?;
        } else if !may_leave && is_first {
            protect_examples(&mut place.new, &target);
        }
        if let Some((summary, form)) = own_summary_at(rewrite, &place)? {
            return Ok(Self { place, plan: DispositionPlan::Summarise(summary, form), may_leave: false });
        }
        let is_fork =
            matches!(&place.opens, Some(opens) if matches!(opens.thread.start, ThreadStart::Fork { .. }));
        let plan = match command {
            Some(focus) => DispositionPlan::Compact(target, focus),
            None if is_fork => DispositionPlan::Fork(target, frame),
            None => {
                let is_other_first = place.opens.is_some() && !is_first;
                may_leave |= is_other_first && fits_unchanged(rewrite, &frame, &target);
                DispositionPlan::Compose(target, frame)
            }
        };
        Ok(Self { place, plan, may_leave: may_leave && !rewrite.has_left })
    }

    /// Returns true if the request is certain to go on as it came, though it is neither counted nor recorded yet. A sender
    /// that cannot wait may send it now, and [says so](RequestRewrite::note_left).
    pub fn may_leave(&self) -> bool {
        self.may_leave
    }
}

/// Reports whether a policy is to be in charge of the request, or the reason it is not.
fn status_at(rewrite: &RequestRewrite<'_, '_>, place: &RequestPlace) -> RewriteStatus {
    let ReceivedRequest { seen, caller, .. } = &rewrite.request;
    if caller.purpose == RequestPurpose::Title {
        RewriteStatus::Aside
    } else if seen.follows() != PriorHistory::Nothing {
        RewriteStatus::Remote
    } else if seen.manages_context() {
        RewriteStatus::Managed
    } else if HoldoutGroup::of(place.session, rewrite.composing.holdout) == HoldoutGroup::HeldOut {
        RewriteStatus::HeldOut
    } else if rewrite.is_unfit {
        RewriteStatus::Unfit
    } else if caller.purpose == RequestPurpose::Compaction
        && !is_answered_here(rewrite)
        && fits_its_provider(rewrite)
    {
        RewriteStatus::OwnSummary
    } else if seen.first_violation().is_some() {
        RewriteStatus::Illegal
    } else {
        RewriteStatus::Composed
    }
}

/// Our summary, for a client's own request for one that its provider's window does not hold.
fn own_summary_at(
    rewrite: &RequestRewrite<'_, '_>,
    place: &RequestPlace,
) -> Result<Option<(Box<Compaction>, SummaryAnswerForm)>, StoreError> {
    let ReceivedRequest { seen, caller, arrival, .. } = &rewrite.request;
    let form = own_summary::answer_form(arrival, seen);
    let (RequestPurpose::Compaction, Some(target)) = (caller.purpose, CallTarget::of_turn(rewrite)) else {
        return Ok(None);
    };
    let (setup, budget) = (&*target.setup, target.budget());
    let source = SummarySource { store: &**rewrite.recorder.store(), seen, setup, budget };
    match source.draft_at(place) {
        Ok(summary) => Ok(summary.map(|summary| (Box::new(summary), form))),
        Err(SessionError::Store(error)) => Err(error),
        Err(error) => {
            tracing::warn!(target: "epitome::compose", %error, "a client's own summary is left to its provider");
            Ok(None)
        }
    }
}

/// Returns true if the request asks for a compaction item, and the settings say that its provider has none.
fn is_answered_here(rewrite: &RequestRewrite<'_, '_>) -> bool {
    let ReceivedRequest { seen, arrival, .. } = &rewrite.request;
    rewrite.composing.own_items && own_summary::answer_form(arrival, seen) == SummaryAnswerForm::Sealed
}

/// Returns true if the first request of a thread is certain to go on as it came.
fn fits_unchanged(rewrite: &RequestRewrite<'_, '_>, frame: &RequestFrame<'_>, target: &CallTarget) -> bool {
    early_release::fits_unchanged(
        &rewrite.request.seen,
        frame,
        rewrite.composing,
        &target.setup,
        target.limit,
    )
}

/// Returns true if the provider's window holds the request as the client sent it.
fn fits_its_provider(rewrite: &RequestRewrite<'_, '_>) -> bool {
    let Some(target) = CallTarget::of(rewrite) else { return true };
    let (seen, ceiling) = (&rewrite.request.seen, target.budget().ceiling());
    // No token is shorter than a byte.
    if seen.body().len() as u64 <= ceiling.0 {
        return true;
    }
    let line = compact::line(seen.opening().into_iter().chain(seen.events(0)));
    project(&line, Arc::clone(&target.setup.meter), EventNaming::Messages).tokens() <= ceiling
}

/// Turns the examples at the beginning of a first request into instructions, if they need protection: the request is more than
/// there is room for.
fn protect_examples(new: &mut [Event], target: &CallTarget) {
    let room = fork_places::example_room(&target.setup, &target.budget());
    if room.is_exceeded(new) {
        let asked = client_examples::question_tokens(new, &target.setup.meter);
        client_examples::convert_to_instructions(new, ExampleBudget { asked, ..room });
    }
}
