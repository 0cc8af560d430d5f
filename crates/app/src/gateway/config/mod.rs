//! What a gateway is told: where it listens, whom it forwards to, whom it lets in, and how much of anything it takes.
//!
//! All of it is known to be right when it is here: [`flags`] puts together what the command line and a [`mod@file`] say, and
//! refuses the rest with a reason. Keys come from the environment, are read once, and are shown to nobody.

mod address;
pub(crate) mod allow;
mod compact;
mod file;
pub(crate) mod flags;
pub(crate) mod pattern;
pub(crate) mod shown;
mod units;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use epitome::{core::policy::Policy, summarise::Timeouts, wire::Format};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use allow::RouteList;

/// How a gateway is set up.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// What is done with a request, unless its route, token or header says otherwise.
    pub(crate) mode: Mode,
    /// How the requests of single routes are treated, by path (`/v1/messages`).
    pub(crate) routes: BTreeMap<String, Rules>,
    /// The policy that `observe` and `compact` go by.
    pub(crate) policy: Policy,
    /// How requests are compacted where they are.
    pub(crate) compact: Compact,
    /// Whom it forwards to: the first that fits counts.
    pub(crate) upstreams: Vec<Upstream>,
    /// Whom it lets in; nobody has to show a token if there are none.
    pub(crate) tokens: Vec<Token>,
    /// What everybody may do, unless their token says otherwise.
    pub(crate) access: Access,
    /// How much of anything it takes.
    pub(crate) limits: Limits,
    /// What is done with a request that cannot be recorded.
    pub(crate) unrecorded: Unrecorded,
}

impl Config {
    /// Whether anything may be recorded, so that a store is needed.
    pub(crate) fn records(&self) -> bool {
        self.modes().any(|mode| mode != Mode::Off)
    }

    /// Whether anything is compacted without asking for it.
    pub(crate) fn compacts(&self) -> bool {
        self.modes().any(|mode| mode == Mode::Compact)
    }

    fn modes(&self) -> impl Iterator<Item = Mode> {
        let tokens = self.tokens.iter().filter_map(|token| token.rules.mode);
        self.routes.values().filter_map(|rules| rules.mode).chain(tokens).chain([self.mode])
    }
}

/// What is done with a request: each does more than the one before.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// It is forwarded, and not even recorded.
    Off,
    /// It is forwarded and recorded.
    Record,
    /// It is forwarded and recorded, and what the policy would have sent is computed beside it.
    Observe,
    /// It is recorded, and forwarded as the policy has it.
    Compact,
}

impl Mode {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Record => "record",
            Self::Observe => "observe",
            Self::Compact => "compact",
        }
    }
}

/// How requests are compacted.
#[derive(Debug, Default)]
pub(crate) struct Compact {
    /// How many tokens a model's window holds, whatever its profile says.
    pub(crate) window: Option<u64>,
    /// How many of a million sessions are left as they are, to compare with.
    pub(crate) holdout: u32,
    /// What a user says to have the session compacted; nothing if no words do that.
    pub(crate) command: Option<String>,
    /// Whether the model is offered a tool by which it gets back what was left out.
    pub(crate) recall: bool,
    /// Who writes summaries.
    pub(crate) summariser: Summariser,
    /// How long a model may take for a summary; nothing if nobody says.
    pub(crate) summary_time: Option<Duration>,
}

impl Compact {
    /// How long a model may take for a summary.
    pub(crate) fn summary_time(&self) -> Duration {
        self.summary_time.unwrap_or_else(|| Timeouts::default().whole)
    }
}

/// Who writes summaries.
#[derive(Debug, Default)]
pub(crate) enum Summariser {
    /// Nobody but the built-in one: no model is asked.
    #[default]
    BuiltIn,
    /// The session's own model, by the way and with the key of its newest request.
    Session,
    /// Another model.
    Model {
        /// Its name.
        model: String,
        /// Where it is asked: scheme, host, port and the path before `/v1`.
        base: http::Uri,
        /// How.
        format: Format,
        /// The key it is shown.
        key: Option<SecretString>,
    },
}

/// What is done with a request that cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unrecorded {
    /// It is forwarded all the same (`fail_open`).
    #[serde(rename = "fail_open")]
    Forward,
    /// It is refused (`fail_closed`).
    #[serde(rename = "fail_closed")]
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
    /// How their requests are treated.
    pub(crate) rules: Rules,
    /// What they may do.
    pub(crate) access: Access,
}

/// How the requests of a token or of a route are treated, where that differs from all others. A token's rules come before a
/// route's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Their mode.
    pub(crate) mode: Option<Mode>,
    /// How many tokens the window holds for them.
    pub(crate) window: Option<u64>,
    /// The policy they go by.
    pub(crate) policy: Option<Arc<Policy>>,
}

/// What requests may reach, and what their headers may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The routes they may use. Where nothing says so, [models and inference](RouteList::default) with a key of the
    /// gateway's, and everything with a key of their own: whoever has one needs no gateway to use it.
    pub(crate) allow: Option<RouteList>,
    /// Whether their headers may lower what the operator set: the mode, or the window.
    pub(crate) allow_override: Option<bool>,
}

impl Access {
    /// This, and where it says nothing, what `other` says.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            allow: self.allow.or_else(|| other.allow.clone()),
            allow_override: self.allow_override.or(other.allow_override),
        }
    }
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
    /// How long a client may take for its whole body, however steadily it comes.
    pub(crate) upload: Duration,
    /// How long connecting to a provider may take.
    pub(crate) connect: Duration,
    /// How long a provider may take until it answers.
    pub(crate) answer: Duration,
    /// How long a provider may pause within an answer, and a client in taking it.
    pub(crate) pause: Duration,
    /// How long `/readyz` says that the gateway stops before its port closes; by default long enough for a load balancer
    /// to see it, or not at all where only this machine reaches the gateway.
    pub(crate) notice: Option<Duration>,
    /// How long streams may go on after the gateway was told to stop.
    pub(crate) shutdown: Duration,
}

impl Default for Limits {
    /// More than any client that is known to us asks for. A model may think for minutes without a word.
    fn default() -> Self {
        Self {
            body: 64 << 20,
            head: 64 << 10,
            requests: 2_048,
            client: Duration::from_secs(30),
            upload: Duration::from_mins(10),
            connect: Duration::from_secs(10),
            answer: Duration::from_mins(10),
            pause: Duration::from_mins(10),
            notice: None,
            shutdown: Duration::from_secs(30),
        }
    }
}

/// How long load balancers may need to see that a gateway stops: most look every few seconds.
const NOTICE: Duration = Duration::from_secs(5);

impl Limits {
    /// How long a gateway that listens there says that it stops before its port closes.
    pub(crate) fn notice_at(&self, listen: SocketAddr) -> Duration {
        let usual = if address::is_local(listen) { Duration::ZERO } else { NOTICE };
        self.notice.unwrap_or(usual)
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Log {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}
