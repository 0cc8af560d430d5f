//! Requests that pass, made to fit: the client's own bytes, with what is old taken out and a summary in its place.
//!
//! A client that never heard of compaction sends its whole history with every call. Here each call is placed in the log,
//! and what goes on to the provider is the client's request with the decisions of a policy made in it. Whatever nobody
//! touched leaves with the bytes the client sent.

use std::{ops::Range, sync::Arc};

use epitome_core::{ThreadId, Tokens, policy::Policy, profile::Profiles};
use epitome_wire::overflow::Overflow;

use crate::recorder::{Arrival, RecordError, Recorder, Ticket};

/// How requests are composed.
#[derive(Debug)]
pub struct Composing {
    /// When and how they are made smaller.
    pub policy: Policy,
    /// What is known of models.
    pub profiles: Arc<Profiles>,
    /// How many tokens a model's window holds, whatever its profile says.
    pub window: Option<Tokens>,
    /// How many of a million sessions are left as they are, to compare with.
    pub holdout: u32,
    /// What a user says to have the session compacted, such as `/compact`; nothing if no words do that.
    pub command: Option<String>,
}

/// What whoever sent a request wants of it beyond what its body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// How many tokens the window holds, for this request.
    pub window: Option<Tokens>,
    /// Compact now, attending to this (which may be nothing), and send nothing to the provider.
    pub compact: Option<String>,
}

/// A request that was recorded, and what becomes of it.
#[derive(Debug)]
pub struct Composed {
    /// Its record, to be [finished](Recorder::finish).
    pub ticket: Ticket,
    /// What becomes of it.
    pub way: Way,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Way {
    /// It goes on to the provider, like this.
    Forward(Outgoing),
    /// It does not: the client is told this, as if the model had said it.
    Answer(String),
}

/// A request as it goes on.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its body, in order.
    pub cuts: Vec<Cut>,
    /// What was done.
    pub done: Done,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// These bytes of the client's body.
    Client(Range<usize>),
    /// Words of ours.
    Own(String),
}

/// What was done to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The audit row: its thread and its number there; none if there is none.
    pub call: Option<(ThreadId, u64)>,
    /// As long as it is the same, each request of a thread extends the one before.
    pub epoch: u64,
    /// Why a new epoch began with it; `None` if the request only grew.
    pub cause: Option<String>,
    /// What the client sent, by our count.
    pub before: Tokens,
    /// What goes on.
    pub after: Tokens,
    /// Why it goes on.
    pub left: Left,
}

/// Whether a policy was in charge of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// It was.
    Composed,
    /// It was not: the session is one of those that are left as they are, to compare with.
    HeldOut,
    /// It was not: the client has its provider manage the context.
    Managed,
    /// It was not: only the provider has the history.
    Remote,
    /// It was not: no request could be made that the provider would take.
    Unfit,
}

impl Left {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composed => "composed",
            Self::HeldOut => "held-out",
            Self::Managed => "managed",
            Self::Remote => "remote",
            Self::Unfit => "unfit",
        }
    }
}

impl Recorder {
    /// Records a request as [`arrive`](Self::arrive) does, and says what becomes of it. No model is waited for.
    pub fn compose(
        &self,
        arrival: &Arrival<'_>,
        _composing: &Composing,
        _wishes: &Wishes,
    ) -> Result<Composed, RecordError> {
        let ticket = self.arrive(arrival)?;
        let done = Done {
            call: None,
            epoch: 0,
            cause: None,
            before: Tokens(0),
            after: Tokens(0),
            left: Left::Composed,
        };
        let cuts = vec![Cut::Client(0..arrival.body.len())];
        Ok(Composed { ticket, way: Way::Forward(Outgoing { cuts, done }) })
    }

    /// The provider refused a composed request as too long: the same request, smaller. `None` if it cannot be made smaller.
    pub fn compose_smaller(
        &self,
        _ticket: &mut Ticket,
        _arrival: &Arrival<'_>,
        _composing: &Composing,
        _refused: Overflow,
    ) -> Result<Option<Outgoing>, RecordError> {
        Ok(None)
    }
}
