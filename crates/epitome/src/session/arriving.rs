//! What comes with a call, and when that is written down.

use epitome_core::{Fact, Noted, Seq, project::Line};
use epitome_store::records::{Commit, Opens, Record};

/// What comes with a call and is written together with it.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    /// What happened.
    pub(crate) events: Vec<Noted>,
    /// What is recorded beside it.
    pub(crate) records: Vec<Record>,
    /// The thread, if it is made by this.
    pub(crate) opens: Option<Opens>,
    /// What to do if nothing fits into what refusals have taught.
    pub(crate) taught: Taught,
    /// When the call is written down.
    pub(crate) writing: Writing,
    /// A tool that is added to the request, by which the model gets back what was left out.
    pub(crate) recall: RecallOffer,
    /// The first event of what the model has not answered yet, if anybody knows.
    pub(crate) unanswered: Option<Seq>,
}

/// A tool that is added to a request, by which the model gets back what was left out. A tool that the client itself
/// gives the model needs no offer.
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
    /// Whether the tool is added to the next request of a line.
    pub(crate) fn holds(self, line: &Line) -> bool {
        match self {
            Self::None => false,
            Self::IfNew => !line.events().any(|event| matches!(event.event.fact, Fact::AssistantSaid { .. })),
            Self::Standing => true,
        }
    }
}

/// When a call is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Before it counts.
    #[default]
    Now,
    /// By whoever made it, before anybody asks for the next one, if nothing was decided for it but to grow.
    MayWait,
}

/// Whether what refusals have taught of a window is kept to when nothing fits into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taught {
    /// It is: whoever asks again would be refused again.
    #[default]
    Holds,
    /// It is not: the client will send its request anyway, and what is known of the window otherwise is the better guess.
    Doubted,
}

/// Whether a call only follows what happened: whoever makes the next one after it was lost makes the same.
pub(super) fn decides_nothing(commit: &Commit) -> bool {
    let is_new = commit.opens.is_some() || !commit.events.is_empty();
    let said = commit.events.iter().all(|event| !matches!(event.fact, Fact::Compacted(_)));
    let noted = commit.records.iter().all(|record| match record {
        Record::Content(_)
        | Record::Piece(_)
        | Record::CallsSoFar(_)
        | Record::Call(_)
        | Record::Exchange(_)
        | Record::Head => true,
        Record::Outcome(_) | Record::Job(_) | Record::Adopted { .. } | Record::CancelJob { .. } => false,
    });
    is_new && said && noted
}
