//! A configuration as people and programs may see it, without secrets.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use epitome::{store::StoreLocation, wire::Format};
use serde::Serialize;

use super::{
    AccessRights, CompactModeConfig, ConfiguredSummariser, GatewayConfig, GatewayLimits, GatewayMode,
    RequestRules, StoreFailureAction, UpstreamConfig, address::is_exposed, allowed_routes::RouteList,
};
use crate::units;

/// A configuration without its secrets.
#[derive(Debug, Serialize)]
pub(crate) struct ShownConfig<'a> {
    listen: String,
    mode: GatewayMode,
    routes: BTreeMap<&'a str, ShownRules<'a>>,
    policy: &'a str,
    compact: ShownCompact<'a>,
    database: Option<String>,
    on_store_failure: StoreFailureAction,
    upstreams: Vec<ShownUpstream<'a>>,
    tokens: Vec<ShownToken<'a>>,
    #[serde(flatten)]
    access: ShownAccess<'a>,
    limits: ShownLimits,
}

#[derive(Debug, Serialize)]
struct ShownCompact<'a> {
    window: Option<u64>,
    holdout: f64,
    command: Option<&'a str>,
    recall: bool,
    compaction_items: &'static str,
    tool_output: &'a BTreeMap<String, u64>,
    summariser: ShownSummariser<'a>,
    /// Time limit of a model's summary.
    summariser_timeout: String,
    #[serde(skip)]
    told: Vec<String>,
}

/// Upstream, as a file has it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ShownSummariser<'a> {
    Known {
        #[serde(rename = "use")]
        known: &'static str,
    },
    Model {
        model: &'a str,
        url: String,
        format: Format,
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<ShownKeyOwner>,
        exposed: bool,
    },
}

#[derive(Debug, Serialize)]
struct ShownUpstream<'a> {
    name: &'a str,
    url: String,
    formats: &'a [Format],
    models: &'a [String],
    key: ShownKeyOwner,
    exposed: bool,
}

/// Owner of the key that a provider is shown.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ShownKeyOwner {
    Clients,
    Configured,
}

#[derive(Debug, Serialize)]
struct ShownToken<'a> {
    principal: &'a str,
    #[serde(flatten)]
    rules: ShownRules<'a>,
    #[serde(flatten)]
    access: ShownAccess<'a>,
}

#[derive(Debug, Serialize)]
struct ShownRules<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<GatewayMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
}

impl<'a> From<&'a RequestRules> for ShownRules<'a> {
    fn from(rules: &'a RequestRules) -> Self {
        let policy = rules.policy.as_ref().map(|policy| policy.name.as_str());
        Self { mode: rules.mode, window: rules.window, policy }
    }
}

#[derive(Debug, Serialize)]
struct ShownAccess<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    allow: Option<&'a RouteList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_override: Option<bool>,
}

impl<'a> From<&'a AccessRights> for ShownAccess<'a> {
    fn from(access: &'a AccessRights) -> Self {
        Self { allow: access.allow.as_ref(), allow_override: access.allow_override }
    }
}

/// Sizes and times in the notation of a file, so that they can be copied there.
#[derive(Debug, Serialize)]
struct ShownLimits {
    body: String,
    head: String,
    requests: usize,
    client: String,
    upload: String,
    connect: String,
    answer: String,
    pause: String,
    notice: String,
    shutdown: String,
}

impl<'a> ShownConfig<'a> {
    /// Describes a configuration and the location of its database.
    pub(crate) fn of(config: &'a GatewayConfig, database: &StoreLocation) -> Self {
        let tokens = config.tokens.iter();
        Self {
            listen: config.listen.to_string(),
            mode: config.mode,
            routes: config.routes.iter().map(|(route, rules)| (route.as_str(), rules.into())).collect(),
            policy: &config.policy.name,
            compact: ShownCompact::of(&config.compact),
            database: config.records().then(|| database.to_string()),
            on_store_failure: config.unrecorded,
            upstreams: config.upstreams.iter().map(ShownUpstream::of).collect(),
            tokens: tokens
                .map(|token| ShownToken {
                    principal: &token.principal,
                    rules: (&token.rules).into(),
                    access: (&token.access).into(),
                })
                .collect(),
            access: (&config.access).into(),
            limits: ShownLimits::of(&config.limits, config.listen),
        }
    }
}

impl<'a> ShownCompact<'a> {
    fn of(compact: &'a CompactModeConfig) -> Self {
        let summariser = match &compact.summariser {
            ConfiguredSummariser::BuiltIn => ShownSummariser::Known { known: "built-in" },
            ConfiguredSummariser::Session => ShownSummariser::Known { known: "session" },
            ConfiguredSummariser::Model { model, base, format, key } => ShownSummariser::Model {
                model,
                url: bare(base),
                format: *format,
                key: key.as_ref().map(|_| ShownKeyOwner::Configured),
                exposed: is_exposed(base),
            },
        };
        Self {
            window: compact.window,
            holdout: f64::from(compact.holdout) / 1e6,
            command: compact.command.as_deref(),
            recall: compact.recall,
            compaction_items: if compact.own_items { "gateway" } else { "provider" },
            tool_output: &compact.tool_limits,
            summariser,
            summariser_timeout: units::format_time(compact.summary_time()),
            told: describe_compact_mode(compact),
        }
    }
}

impl<'a> ShownUpstream<'a> {
    fn of(upstream: &'a UpstreamConfig) -> Self {
        Self {
            name: &upstream.name,
            url: url(upstream),
            formats: &upstream.formats,
            models: &upstream.models,
            key: if upstream.key.is_some() { ShownKeyOwner::Configured } else { ShownKeyOwner::Clients },
            exposed: is_exposed(&upstream.base),
        }
    }
}

impl ShownLimits {
    fn of(limits: &GatewayLimits, listen: SocketAddr) -> Self {
        Self {
            body: units::format_size(limits.body),
            head: units::format_size(limits.head),
            requests: limits.requests,
            client: units::format_time(limits.client),
            upload: units::format_time(limits.upload),
            connect: units::format_time(limits.connect),
            answer: units::format_time(limits.answer),
            pause: units::format_time(limits.pause),
            notice: units::format_time(limits.notice_at(listen)),
            shutdown: units::format_time(limits.shutdown),
        }
    }
}

/// Address of a provider, without a slash for an empty path.
pub(crate) fn url(upstream: &UpstreamConfig) -> String {
    bare(&upstream.base)
}

fn bare(base: &http::Uri) -> String {
    base.to_string().trim_end_matches('/').to_owned()
}

/// Lines about mode `compact`, for people who check a configuration or start a gateway with it.
pub(crate) fn describe_compact_mode(compact: &CompactModeConfig) -> Vec<String> {
    let window = match compact.window {
        Some(tokens) => format!("a window of {tokens} tokens"),
        None => "the window that is known of each model".to_owned(),
    };
    let holdout = match compact.holdout {
        0 => "no session is left as it is, so savings are estimates".to_owned(),
        millionths => {
            format!("{} of sessions are left as they are, to measure savings", units::percent(millionths))
        }
    };
    let time = units::format_time(compact.summary_time());
    let summaries = match &compact.summariser {
        ConfiguredSummariser::BuiltIn => "summaries by the built-in summariser".to_owned(),
        ConfiguredSummariser::Session => format!("summaries by each session's own model, {time} for each"),
        ConfiguredSummariser::Model { model, base, format, key } => {
            let key = if key.is_some() { "a key of its own" } else { "no key" };
            let exposed =
                if is_exposed(base) { ", which anybody on the way can read: use https" } else { "" };
            let (model, at) = (units::printable(model), bare(base));
            format!("summaries by {model} at {at} ({format}, {key}{exposed}), {time} for each")
        }
    };
    let command = match &compact.command {
        Some(command) => format!("`{}` compacts", units::printable(command)),
        None => "no command compacts".to_owned(),
    };
    let recall = if compact.recall { "the model may recall" } else { "no recall" };
    vec![window, holdout, summaries, format!("{command}, {recall}")]
}

/// Requests for which a provider is used, in a few words.
pub(crate) fn describe_requests(formats: &[Format], models: &[String]) -> String {
    let formats = match formats {
        formats if formats.len() == Format::ALL.len() => "everything".to_owned(),
        formats => formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    match models {
        [] => formats,
        models => format!("{formats}, {}", models.join(" ")),
    }
}

impl fmt::Display for ShownRules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.mode.map(|mode| format!("mode {}", mode.name())),
            self.window.map(|tokens| format!("a window of {tokens} tokens")),
            self.policy.map(|policy| format!("policy {policy}")),
        ];
        f.write_str(&said.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

fn overriding(is_allowed: bool) -> &'static str {
    if is_allowed {
        "headers may lower the mode and the window"
    } else {
        "headers may not lower the mode or the window"
    }
}

impl fmt::Display for ShownConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line =
            |f: &mut fmt::Formatter<'_>, name: &str, said: &dyn fmt::Display| writeln!(f, "{name:<16}{said}");
        line(f, "listen", &self.listen)?;
        line(f, "mode", &self.mode.name())?;
        for (route, rules) in &self.routes {
            line(f, "", &format_args!("{route}: {rules}"))?;
        }
        line(f, "policy", &self.policy)?;
        for (index, told) in self.compact.told.iter().enumerate() {
            line(f, if index == 0 { "compact" } else { "" }, told)?;
        }
        line(f, "database", &self.database.as_deref().unwrap_or("none: nothing is recorded"))?;
        let failing = match self.on_store_failure {
            StoreFailureAction::Forward => "forward what cannot be recorded (fail_open)",
            StoreFailureAction::Refuse => "refuse what cannot be recorded (fail_closed)",
        };
        line(f, "if it fails", &failing)?;
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let name = if index == 0 { "upstreams" } else { "" };
            let key = match upstream.key {
                ShownKeyOwner::Clients => "the client's key",
                ShownKeyOwner::Configured => "a key of its own",
            };
            let exposed =
                if upstream.exposed { ", which anybody on the way can read: use https" } else { "" };
            let asked = describe_requests(upstream.formats, upstream.models);
            let (of, url) = (upstream.name, &upstream.url);
            line(f, name, &format_args!("{of} at {url}: {asked}; {key}{exposed}"))?;
        }
        if self.tokens.is_empty() {
            line(f, "tokens", &"none: every program on this machine is let in")?;
        }
        for (index, token) in self.tokens.iter().enumerate() {
            let name = if index == 0 { "tokens" } else { "" };
            let rules = token.rules.to_string();
            let rules = if rules.is_empty() { rules } else { format!(": {rules}") };
            line(f, name, &format_args!("{}{rules}", token.principal))?;
            if let Some(allow) = token.access.allow {
                line(f, "", &format_args!("  routes: {allow}"))?;
            }
            if let Some(allowed) = token.access.allow_override {
                line(f, "", &format_args!("  {}", overriding(allowed)))?;
            }
        }
        if let Some(allow) = self.access.allow {
            line(f, "routes", allow)?;
        } else {
            line(f, "routes", &format_args!("{} with a key of the gateway's", RouteList::default()))?;
            line(f, "", &"all with a key of the client's")?;
        }
        line(f, "overrides", &overriding(self.access.allow_override.unwrap_or(false)))?;
        let limits = &self.limits;
        line(
            f,
            "limits",
            &format_args!(
                "body {}, head {}, {} requests at a time",
                limits.body, limits.head, limits.requests
            ),
        )?;
        line(
            f,
            "",
            &format_args!(
                "client {}, upload {}, connect {}, answer {}, pause {}, notice {}, shutdown {}",
                limits.client,
                limits.upload,
                limits.connect,
                limits.answer,
                limits.pause,
                limits.notice,
                limits.shutdown
            ),
        )
    }
}
