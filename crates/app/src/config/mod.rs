//! One configuration for the gateway and the command line: addresses, upstreams, tokens, limits, and how sessions are
//! compacted.
//!
//! Every [`GatewayConfig`] is valid: [`flags`] combines the command line with a [`mod@file`] and rejects anything
//! else with a reason. Keys come from the environment, are read once, and are never shown.

mod address;
pub(crate) mod allowed_routes;
mod compact;
pub(crate) mod effective_config;
mod file;
pub(crate) mod flags;
pub(crate) mod hooks;
pub(crate) mod keys;
pub(crate) mod pattern;
pub(crate) mod session_settings;
pub(crate) mod shown_config;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use epitome::{
    core::{policy::Policy, profile::Profiles},
    session::OverflowCheck,
    summarise::{ServerTimeouts, SummaryInstructions},
    wire::Format,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use allowed_routes::RouteList;
use hooks::ConfiguredHook;

/// Settings of a gateway.
#[derive(Debug)]
pub(crate) struct GatewayConfig {
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    /// Mode of a request, unless its route, token or header sets another.
    pub(crate) mode: GatewayMode,
    /// Rules for single routes, by path (`/v1/messages`).
    pub(crate) routes: BTreeMap<String, RequestRules>,
    /// Policy of the modes `observe` and `compact`.
    pub(crate) policy: Policy,
    /// Settings of mode `compact`.
    pub(crate) compact: CompactModeConfig,
    /// Profiles of models.
    pub(crate) profiles: Arc<Profiles>,
    /// Upstreams: the first that fits a request is used.
    pub(crate) upstreams: Vec<UpstreamConfig>,
    /// Tokens of clients; without any, no token is needed.
    pub(crate) tokens: Vec<AccessToken>,
    /// Rights of all clients, unless their token sets others.
    pub(crate) access: AccessRights,
    /// Limits of sizes and times.
    pub(crate) limits: GatewayLimits,
    /// Treatment of a request that cannot be recorded.
    pub(crate) unrecorded: StoreFailureAction,
}

impl GatewayConfig {
    /// Returns true if any request may be recorded, so that a store is needed.
    pub(crate) fn records(&self) -> bool {
        self.modes().any(|mode| mode != GatewayMode::Off)
    }

    /// Returns true if any request is compacted without asking for it itself.
    pub(crate) fn compacts(&self) -> bool {
        self.modes().any(|mode| mode == GatewayMode::Compact)
    }

    fn modes(&self) -> impl Iterator<Item = GatewayMode> {
        let tokens = self.tokens.iter().filter_map(|token| token.rules.mode);
        self.routes.values().filter_map(|rules| rules.mode).chain(tokens).chain([self.mode])
    }
}

/// Treatment of a request: each mode does more than the one before.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GatewayMode {
    /// Forward without recording.
    Off,
    /// Forward and record.
    Record,
    /// Forward and record, and compute what the policy would have sent.
    Observe,
    /// Record, and forward what the policy makes of the request.
    Compact,
}

impl GatewayMode {
    /// Name of the mode.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Record => "record",
            Self::Observe => "observe",
            Self::Compact => "compact",
        }
    }
}

/// Settings of mode `compact`.
#[derive(Debug, Default)]
pub(crate) struct CompactModeConfig {
    /// Window of the models in tokens, overriding their profiles.
    pub(crate) window: Option<u64>,
    /// Number of sessions in a million that are left uncompacted, for comparison.
    pub(crate) holdout: u32,
    /// Command by which users have the session compacted; `None` if there is none.
    pub(crate) command: Option<String>,
    /// True if the model is offered the tool that gets back what was left out.
    pub(crate) recall: bool,
    /// True if requests for compaction items are answered with ours even if their provider may have such items.
    pub(crate) own_items: bool,
    /// Tokens to which the outputs of tools are cut before they are first sent.
    pub(crate) tool_limits: BTreeMap<String, u64>,
    /// Source of summaries.
    pub(crate) summariser: ConfiguredSummariser,
    /// Time limit of a model's summary; `None` for the default.
    pub(crate) summary_time: Option<Duration>,
    /// Source of the summaries that users ask for, if it is another.
    pub(crate) careful: Option<ConfiguredSummariser>,
    /// Focus of every summary, and lines for a model that summarises.
    pub(crate) instructions: SummaryInstructions,
    /// Pause after which a model summarises.
    pub(crate) idle: Option<Duration>,
    /// Folder with the memory files of the sessions.
    pub(crate) memory_files: Option<PathBuf>,
    /// Hooks that add content beside each message of the user.
    pub(crate) hooks: Vec<ConfiguredHook>,
    /// Compaction as soon as an answer used more than the model's input takes.
    pub(crate) overflow_check: OverflowCheck,
}

impl CompactModeConfig {
    /// Makes relative paths start at the folder of the file that has them.
    fn set_folder(&mut self, folder: &Path) {
        self.memory_files = self.memory_files.take().map(|path| folder.join(path));
        for hook in &mut self.hooks {
            hook.set_folder(folder);
        }
    }

    /// Time limit of a model's summary.
    pub(crate) fn summary_time(&self) -> Duration {
        self.summary_time.unwrap_or_else(|| ServerTimeouts::default().whole)
    }
}

/// Source of summaries.
#[derive(Debug, Default)]
pub(crate) enum ConfiguredSummariser {
    /// The built-in summariser: no model is asked.
    #[default]
    BuiltIn,
    /// The session's own model, at the address and with the key of its newest request.
    Session,
    /// Another model.
    Model {
        /// Name of the model.
        model: String,
        /// Address: scheme, host, port and the path before `/v1`.
        base: http::Uri,
        /// Format of its API.
        format: Format,
        /// Key for it.
        key: Option<SecretString>,
    },
}

/// Treatment of a request that cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoreFailureAction {
    /// Forward it anyway (`fail_open`).
    #[serde(rename = "fail_open")]
    Forward,
    /// Refuse it (`fail_closed`).
    #[serde(rename = "fail_closed")]
    Refuse,
}

/// A provider.
#[derive(Debug)]
pub(crate) struct UpstreamConfig {
    /// Name of the provider in logs and metrics.
    pub(crate) name: String,
    /// Scheme, host, port and the path before `/v1`, if any; without a trailing slash.
    pub(crate) base: http::Uri,
    /// Formats that it accepts.
    pub(crate) formats: Vec<Format>,
    /// Models that it serves, as patterns with `*`; empty for all.
    pub(crate) models: Vec<String>,
    /// Key that replaces the client's.
    pub(crate) key: Option<SecretString>,
}

/// A client that is let in.
#[derive(Debug)]
pub(crate) struct AccessToken {
    /// Principal whose sessions the client sees.
    pub(crate) principal: String,
    /// The BLAKE3 hash of the token: the token itself is not kept.
    pub(crate) hash: blake3::Hash,
    /// Rules for its requests.
    pub(crate) rules: RequestRules,
    /// Rights of the client.
    pub(crate) access: AccessRights,
}

/// Rules for the requests of a token or of a route, where these differ from the general settings. A token's
/// rules take precedence over a route's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestRules {
    /// Mode of the requests.
    pub(crate) mode: Option<GatewayMode>,
    /// Window of their models, in tokens.
    pub(crate) window: Option<u64>,
    /// Policy of the requests.
    pub(crate) policy: Option<Arc<Policy>>,
}

/// Rights of a client: the routes it may use, and the settings its headers may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessRights {
    /// Routes that it may use. Without a list, [models and inference](RouteList::default) with a key of the
    /// gateway's, and every route with a key of its own, because a client with its own key could also reach
    /// the provider directly.
    pub(crate) allow: Option<RouteList>,
    /// True if its headers may lower what the operator set: the mode, or the window.
    pub(crate) allow_override: Option<bool>,
}

impl AccessRights {
    /// These rights, with unset ones taken from `other`.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            allow: self.allow.or_else(|| other.allow.clone()),
            allow_override: self.allow_override.or(other.allow_override),
        }
    }
}

/// Limits of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayLimits {
    /// Most bytes of a request's body, as it comes and decompressed.
    pub(crate) body: usize,
    /// Most bytes of a request's head.
    pub(crate) head: usize,
    /// Most requests at a time.
    pub(crate) requests: usize,
    /// Longest time for a client's head, and longest pause in its body.
    pub(crate) client: Duration,
    /// Longest time for a client's whole body, however steadily it comes.
    pub(crate) upload: Duration,
    /// Longest time for connecting to a provider.
    pub(crate) connect: Duration,
    /// Longest time until a provider answers.
    pub(crate) answer: Duration,
    /// Longest pause of a provider within an answer, and of a client in accepting it.
    pub(crate) pause: Duration,
    /// Time for which `/readyz` reports that the gateway is stopping before its port closes. By default long
    /// enough for a load balancer to notice, or zero if only this machine can reach the gateway.
    pub(crate) notice: Option<Duration>,
    /// Longest time that streams may continue after the gateway was told to stop.
    pub(crate) shutdown: Duration,
}

impl Default for GatewayLimits {
    /// Limits above the needs of every client known to us. A model may think for minutes in silence.
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

/// Time that load balancers may need to notice that a gateway is stopping: most look every few seconds.
const NOTICE: Duration = Duration::from_secs(5);

impl GatewayLimits {
    /// Time for which a gateway at this address reports that it is stopping before its port closes.
    pub(crate) fn notice_at(&self, listen: SocketAddr) -> Duration {
        let usual = if address::is_local(listen) { Duration::ZERO } else { NOTICE };
        self.notice.unwrap_or(usual)
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Lines of text, for people.
    Text,
    /// One JSON object per line.
    Json,
}
