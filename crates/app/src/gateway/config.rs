//! What a gateway is told: where it listens, whom it forwards to, whom it lets in, and how much of anything it takes.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use epitome::wire::Format;
use secrecy::SecretString;

/// How a gateway is set up.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// What is done with a request, unless its route, token or header says otherwise.
    pub(crate) mode: Mode,
    /// The mode of single routes, by path (`/v1/messages`).
    pub(crate) routes: BTreeMap<String, Mode>,
    /// The policy that `observe` computes with.
    pub(crate) policy: String,
    /// Whom it forwards to: the first that fits counts.
    pub(crate) upstreams: Vec<Upstream>,
    /// Whom it lets in; nobody has to show a token if there are none.
    pub(crate) tokens: Vec<Token>,
    /// How much of anything it takes.
    pub(crate) limits: Limits,
    /// What is done with a request that cannot be recorded.
    pub(crate) unrecorded: Unrecorded,
}

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// It is forwarded, and not even recorded.
    Off,
    /// It is forwarded and recorded.
    Record,
    /// It is forwarded and recorded, and what the policy would have sent is computed beside it.
    Observe,
}

impl Mode {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Record => "record",
            Self::Observe => "observe",
        }
    }
}

/// What is done with a request that cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrecorded {
    /// It is forwarded all the same (`fail_open`).
    Forward,
    /// It is refused (`fail_closed`).
    Refuse,
}

/// A provider.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// What it is called in logs and metrics.
    pub(crate) name: String,
    /// Scheme, host, port and the path before `/v1`, if any; without a trailing slash.
    pub(crate) base: http::Uri,
    /// The formats it takes.
    pub(crate) formats: Vec<Format>,
    /// The models it has, as patterns with `*`; empty for all.
    pub(crate) models: Vec<String>,
    /// The key it is shown instead of the client's.
    pub(crate) key: Option<SecretString>,
}

/// Somebody who is let in.
#[derive(Debug)]
pub(crate) struct Token {
    /// Whose sessions they see.
    pub(crate) principal: String,
    /// The BLAKE3 hash of the token: the token itself is not kept.
    pub(crate) hash: blake3::Hash,
    /// The mode of their requests.
    pub(crate) mode: Option<Mode>,
}

/// How much of anything a gateway takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a request's body, as it comes and decompressed.
    pub(crate) body: usize,
    /// Bytes of a request's head.
    pub(crate) head: usize,
    /// Requests at a time.
    pub(crate) requests: usize,
    /// How long a client may take for its head, and pause in its body.
    pub(crate) client: Duration,
    /// How long connecting to a provider may take.
    pub(crate) connect: Duration,
    /// How long a provider may take until it answers.
    pub(crate) answer: Duration,
    /// How long a provider may pause within an answer, and a client in taking it.
    pub(crate) pause: Duration,
    /// How long streams may go on after the gateway was told to stop.
    pub(crate) shutdown: Duration,
}
