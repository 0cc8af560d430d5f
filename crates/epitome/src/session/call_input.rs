//! The input of a call, and the point at which the call is written.

use epitome_core::{AnnotatedEvent, Fact, Seq, projection::EventLine};
use epitome_store::{
    ThreadStart,
    records::{CommitRecord, ThreadCommit, ThreadOpening},
};

/// Input of a call that is written together with it.
#[derive(Debug, Default)]
pub(crate) struct CallInput {
    /// New events.
    pub(crate) events: Vec<AnnotatedEvent>,
    /// Records beside them.
    pub(crate) records: Vec<CommitRecord>,
    /// The thread, if it is made by this.
    pub(crate) opens: Option<ThreadOpening>,
    /// Handling of limits that refusals have shown, if nothing fits within them.
    pub(crate) taught: LimitTrust,
    /// Point at which the call is written.
    pub(crate) writing: WriteTiming,
    /// Choice to add the recall tool, by which the model gets back parts that were left out.
    pub(crate) recall: RecallOffer,
    /// The first event that the model has not answered yet, if known.
    pub(crate) unanswered: Option<Seq>,
}

/// Choice to add the recall tool to a request, by which the model gets back parts that were left out. A tool that the
/// client itself gives the model needs no offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecallOffer {
    /// None is added.
    #[default]
    None,
    /// One is added if the model has not answered yet: caches and bound thoughts hold the tools.
    IfNew,
    /// One is added, as it was before.
    Standing,
}

impl RecallOffer {
    /// Returns true if the tool is added to the next request of a line.
    pub(crate) fn holds(self, line: &EventLine) -> bool {
        match self {
            Self::None => false,
            Self::IfNew => !line.events().any(|event| matches!(event.event.fact, Fact::AssistantSaid { .. })),
            Self::Standing => true,
        }
    }
}

/// Point at which a call is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteTiming {
    /// Before it is used.
    #[default]
    Now,
    /// Later, by the caller and before the next call, if the request only grows and no decision was made for it, or if
    /// it is the first of its thread, for which the same would be decided again.
    MayWait,
}

/// Handling of a window that refusals have shown, if nothing fits within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LimitTrust {
    /// It is kept: the same request would be refused again.
    #[default]
    Holds,
    /// It is doubted: the client will send its request anyway, and other knowledge of the window is the better guess.
    Doubted,
}

/// Returns true if a call follows from its request alone: after a loss, the next call comes out the same.
pub(super) fn is_reproducible(commit: &ThreadCommit) -> bool {
    let is_new = commit.opens.is_some() || !commit.events.is_empty();
    // Nothing else is known of a thread that begins, neither its cache nor its limits, so that the built-in summary of
    // its first request is the same whenever it is made. A summary by a model would be adopted, which is a record.
    let begins =
        commit.opens.as_ref().is_some_and(|opens| !matches!(opens.thread.start, ThreadStart::Fork { .. }));
    let has = |is: fn(&Fact) -> bool| commit.events.iter().any(|event| is(&event.fact));
    // A hook may add something else when it is asked again.
    let said = !has(|fact| matches!(fact, Fact::Injected { .. }))
        && (begins || !has(|fact| matches!(fact, Fact::Compacted(_))));
    let noted = commit.records.iter().all(|record| match record {
        CommitRecord::Content(_)
        | CommitRecord::Piece(_)
        | CommitRecord::CallsSoFar(_)
        | CommitRecord::Call(_)
        | CommitRecord::Exchange(_)
        | CommitRecord::Summary(_)
        | CommitRecord::Head => true,
        CommitRecord::Outcome(_)
        | CommitRecord::Job(_)
        | CommitRecord::Adopted { .. }
        | CommitRecord::CancelJob { .. } => false,
    });
    is_new && said && noted
}
