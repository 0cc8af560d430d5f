//! Settings of a gateway from the command line, combined with those of its file. The command line takes
//! precedence.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use clap::Args;
use epitome::{core::policy::Policy, session::OverflowCheck, wire::Format};

use super::{
    AccessRights, CompactModeConfig, GatewayConfig, GatewayMode, LogFormat, StoreFailureAction,
    UpstreamConfig, address, compact,
    file::{ConfigFile, EnvironmentLookup, PolicyLookup},
    session_settings::read_profiles,
};
use crate::units;

/// Settings of a gateway on the command line.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GatewayArgs {
    /// Address to listen on; port 0 picks a free port. An address that other machines can reach requires
    /// tokens. [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDR", value_parser = address::listen)]
    listen: Option<std::net::SocketAddr>,

    /// Upstream for requests in OpenAI's formats. [default: api.openai.com]
    // Parsed later: clap would quote an invalid value in its error, and the URL may contain a password.
    #[arg(long, value_name = "URL")]
    openai_upstream: Option<String>,

    /// Upstream for requests in Anthropic's format. [default: api.anthropic.com]
    #[arg(long, value_name = "URL")]
    anthropic_upstream: Option<String>,

    /// Upstream for requests in Gemini's format. [default: generativelanguage.googleapis.com]
    #[arg(long, value_name = "URL")]
    gemini_upstream: Option<String>,

    /// Mode for requests; see below. [default: record]
    #[arg(long, value_enum)]
    mode: Option<GatewayMode>,

    /// Policy for the modes `observe` and `compact`: a name or a file. [default: epitome]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Refuse requests that cannot be recorded. By default they are forwarded anyway, and the log, /metrics
    /// and /readyz report it.
    #[arg(long)]
    fail_closed: bool,

    /// Let clients lower these settings with request headers, such as `x-epitome-mode: off`. By default such
    /// requests are refused.
    #[arg(long)]
    allow_override: bool,

    /// Log format on standard error; set the level with EPITOME_LOG or RUST_LOG. [default: text]
    #[arg(long, value_enum)]
    log: Option<LogFormat>,

    #[command(flatten)]
    compact: GatewayCompactArgs,
}

/// Settings of mode `compact` on the command line.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Mode compact")]
struct GatewayCompactArgs {
    /// Context window of the models in tokens, such as 128k. By default the known window of each model.
    #[arg(long, value_name = "TOKENS", value_parser = units::parse_tokens)]
    window: Option<u64>,

    /// Share of sessions to leave uncompacted, such as 0.1, so that savings can be measured and not only
    /// estimated. [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = compact::holdout_flag)]
    holdout: Option<u32>,

    /// Offer the model a tool to get back what was left out.
    #[arg(long)]
    recall: bool,

    /// Go by the sizes of requests alone. By default a session is also compacted as soon as an answer used more than its
    /// model's input takes.
    #[arg(long)]
    no_overflow_check: bool,

    /// Command with which users have their session compacted, such as /compact; the words after it become the
    /// focus of the summary. None by default: agents such as Claude Code handle /compact themselves, and it
    /// never reaches the gateway.
    #[arg(long, value_name = "WORD", value_parser = compact::command)]
    compact_command: Option<String>,

    /// Summariser: `built-in`, which asks no model, `session` for the session's own model and key, or the URL
    /// of another model (OpenAI's Chat Completions; other formats in a file). Without it the configuration file's
    /// summariser is used, else the built-in one. Under the default policy a model with known prices writes what is asked for
    /// (a command, a handoff, the `compact` tool), and automatic summaries only where code misses the target (`paid` in a
    /// policy's `[summary]`).
    // Parsed later, like the other addresses.
    #[arg(long, value_name = "URL")]
    summariser: Option<String>,

    /// Model to ask at that URL.
    #[arg(long, value_name = "NAME", requires = "summariser")]
    summariser_model: Option<String>,

    /// Environment variable that holds its key.
    #[arg(long, value_name = "NAME", requires = "summariser")]
    summariser_key_env: Option<String>,

    /// Time limit for a model's summary, such as 90s. [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    summariser_timeout: Option<Duration>,
}

impl GatewayCompactArgs {
    fn over(
        self,
        file: CompactModeConfig,
        environment: EnvironmentLookup<'_>,
    ) -> anyhow::Result<CompactModeConfig> {
        let summariser = match &self.summariser {
            Some(named) => {
                let (model, key) = (self.summariser_model.as_deref(), self.summariser_key_env.as_deref());
                compact::summariser(named, model, key, environment).map_err(|why| anyhow!(why))?
            }
            None => file.summariser,
        };
        Ok(CompactModeConfig {
            window: self.window.or(file.window),
            holdout: self.holdout.unwrap_or(file.holdout),
            command: self.compact_command.or(file.command),
            recall: self.recall || file.recall,
            own_items: file.own_items,
            tool_limits: file.tool_limits,
            summariser,
            summary_time: self.summariser_timeout.or(file.summary_time),
            careful: file.careful,
            instructions: file.instructions,
            idle: file.idle,
            memory_files: file.memory_files,
            hooks: file.hooks,
            overflow_check: if self.no_overflow_check { OverflowCheck::Off } else { file.overflow_check },
        })
    }
}

impl GatewayArgs {
    /// Combines and checks the whole configuration. `policy` finds a policy by its name or file.
    pub(crate) fn resolve(
        self,
        config: Option<&Path>,
        environment: EnvironmentLookup<'_>,
        policies: PolicyLookup<'_>,
    ) -> anyhow::Result<(GatewayConfig, LogFormat)> {
        let file = match config {
            Some(path) => ConfigFile::read(path, environment, policies)?,
            None => ConfigFile::default(),
        };
        self.over(file, environment, policies)
    }

    fn over(
        self,
        file: ConfigFile,
        environment: EnvironmentLookup<'_>,
        policies: PolicyLookup<'_>,
    ) -> anyhow::Result<(GatewayConfig, LogFormat)> {
        let listen = self.listen.or(file.listen).unwrap_or_else(|| ([127, 0, 0, 1], 8787).into());
        if !address::is_local(listen) && file.tokens.is_empty() {
            bail!(
                "{listen} can be reached by others, who would spend your keys and read your sessions: give everybody \
                 who may a token (in a file: [[token]] principal = \"anna\", env = \"ANNA_TOKEN\"; then --config FILE), \
                 or listen on 127.0.0.1"
            );
        }
        let named = self.policy.or(file.policy);
        let policy = policies(named.as_deref().unwrap_or(&Policy::builtin()[0].name))?;
        let unrecorded = match (self.fail_closed, file.unrecorded) {
            (true, _) => StoreFailureAction::Refuse,
            (false, said) => said.unwrap_or(StoreFailureAction::Forward),
        };
        let base = |flag: &str, said: Option<String>| {
            let base = said.map(|url| address::base(&url)).transpose();
            base.map_err(|why| anyhow!("{flag}: {why}"))
        };
        let named = [
            ("openai", base("--openai-upstream", self.openai_upstream)?),
            ("anthropic", base("--anthropic-upstream", self.anthropic_upstream)?),
            ("gemini", base("--gemini-upstream", self.gemini_upstream)?),
        ];
        let config = GatewayConfig {
            listen,
            mode: self.mode.or(file.mode).unwrap_or(GatewayMode::Record),
            routes: file.routes,
            policy,
            profiles: Arc::new(read_profiles(file.profiles.as_deref())?),
            compact: self.compact.over(file.compact, environment)?,
            upstreams: upstreams(&named, file.upstreams),
            tokens: file.tokens,
            access: AccessRights { allow_override: self.allow_override.then_some(true), allow: None }
                .or(&file.access),
            limits: file.limits,
            unrecorded,
        };
        Ok((config, self.log.or(file.log).unwrap_or(LogFormat::Text)))
    }
}

/// Upstreams with those of the command line first. A file that names any provider has to name all of them;
/// only without one do the well-known providers apply.
fn upstreams(named: &[(&str, Option<http::Uri>)], filed: Vec<UpstreamConfig>) -> Vec<UpstreamConfig> {
    let usual = filed.is_empty();
    let mut all: Vec<UpstreamConfig> = Vec::new();
    for format in Format::ALL {
        let endpoint = format.endpoint();
        let is_filed = filed.iter().any(|other| other.name == endpoint.upstream);
        let name =
            if is_filed { format!("{}-flag", endpoint.upstream) } else { endpoint.upstream.to_owned() };
        if let Some(known) = all.iter_mut().find(|other| other.name == name) {
            known.formats.push(format);
            continue;
        }
        let said = named.iter().find(|(name, _)| *name == endpoint.upstream);
        let said = said.and_then(|(_, base)| base.clone());
        let base = said.or_else(|| usual.then(|| http::Uri::from_static(endpoint.base)));
        all.extend(base.map(|base| UpstreamConfig {
            name,
            base,
            formats: vec![format],
            models: Vec::new(),
            key: None,
        }));
    }
    all.into_iter().chain(filed).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{super::ConfiguredSummariser, *};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: GatewayArgs,
    }

    fn resolve(args: &str, file: &str) -> anyhow::Result<(GatewayConfig, LogFormat)> {
        let line = Line::try_parse_from(["serve"].into_iter().chain(args.split_whitespace()))?;
        let environment = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        let policies = |name: &str| Ok(Policy::named(name)?.clone());
        let file = ConfigFile::parse("gateway.toml", file, &environment, &policies)?;
        line.flags.over(file, &environment, &policies)
    }

    fn bases(config: &GatewayConfig) -> Vec<(String, String)> {
        let upstreams = config.upstreams.iter();
        upstreams.map(|upstream| (upstream.name.clone(), upstream.base.to_string())).collect()
    }

    #[test]
    fn without_a_word_it_records_on_loopback_and_forwards_to_the_known_providers() {
        let (config, log) = resolve("", "").expect("the default");
        assert_eq!(config.listen.to_string(), "127.0.0.1:8787");
        assert_eq!(
            (config.mode, config.unrecorded, log),
            (GatewayMode::Record, StoreFailureAction::Forward, LogFormat::Text)
        );
        assert_eq!(config.policy.name, "epitome");
        let urls: Vec<String> = bases(&config).into_iter().map(|(_, url)| url).collect();
        let expect = [
            "https://api.openai.com/",
            "https://api.anthropic.com/",
            "https://generativelanguage.googleapis.com/",
        ];
        assert_eq!(urls, expect);
        assert!(config.records());
        assert!(!resolve("--mode off", "").expect("off").0.records());
        assert!(resolve("--mode off", "[routes]\n'/v1/messages'='record'").expect("off").0.records());
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = "listen = '127.0.0.1:1'\nmode = 'off'\npolicy = 'tiered'\nlog = 'json'\n\
                    [[upstream]]\nname = 'openai'\nurl = 'http://filed'";
        let (config, log) = resolve("", file).expect("the file");
        assert_eq!((config.listen.port(), config.mode, log), (1, GatewayMode::Off, LogFormat::Json));
        assert_eq!(config.policy.name, "tiered");
        assert_eq!(bases(&config), [("openai".to_owned(), "http://filed/".to_owned())]);
        let args = "--listen 127.0.0.1:2 --mode observe --policy pivot --log text --fail-closed \
                    --openai-upstream http://flag/v1";
        let (config, log) = resolve(args, file).expect("flags");
        assert_eq!((config.listen.port(), config.mode, log), (2, GatewayMode::Observe, LogFormat::Text));
        assert_eq!((config.policy.name.as_str(), config.unrecorded), ("pivot", StoreFailureAction::Refuse));
        let expect = [("openai-flag", "http://flag/"), ("openai", "http://filed/")];
        assert_eq!(bases(&config), expect.map(|(name, url)| (name.to_owned(), url.to_owned())));
    }

    #[test]
    fn mode_compact_leaves_nothing_out_unless_it_is_told_to() {
        let (config, _) = resolve("--mode compact", "").expect("the default");
        let CompactModeConfig { window, holdout, command, recall, summariser, summary_time, .. } =
            &config.compact;
        assert_eq!((*window, *holdout, command, *recall), (None, 0, &None, false));
        assert_eq!(*summary_time, None);
        assert!(matches!(summariser, ConfiguredSummariser::BuiltIn));
        assert!(config.records() && config.compacts());
        assert!(!resolve("", "").expect("record").0.compacts());
        assert!(resolve("", "[routes]\n'/v1/messages'='compact'").expect("a route").0.compacts());
        let token = "[[token]]\nprincipal = 'anna'\nenv = 'TOKEN'\nmode = 'compact'";
        assert!(resolve("", token).expect("a token").0.compacts());
    }

    #[test]
    fn flags_of_mode_compact_win_over_the_file_one_by_one() {
        let file = "[compact]\nwindow = 1000\nholdout = 0.1\ncommand = '/file'\nrecall = true\n\
                    [compact.summariser]\nuse = 'session'\ntimeout = '90s'";
        let (config, _) = resolve("--window 64k", file).expect("one flag");
        let CompactModeConfig { window, holdout, command, recall, summariser, summary_time, .. } =
            config.compact;
        assert_eq!(
            (window, holdout, command.as_deref(), recall),
            (Some(64_000), 100_000, Some("/file"), true)
        );
        assert!(matches!(summariser, ConfiguredSummariser::Session));
        assert_eq!(summary_time, Some(Duration::from_secs(90)));
        let (config, _) = resolve("--summariser-timeout 2m", file).expect("another flag");
        assert_eq!(config.compact.summary_time, Some(Duration::from_mins(2)));
        let args = "--holdout 0 --compact-command !c --summariser http://host/v1 --summariser-model small \
                    --summariser-key-env TOKEN";
        let (config, _) = resolve(args, file).expect("more flags");
        assert_eq!((config.compact.holdout, config.compact.command.as_deref()), (0, Some("!c")));
        let ConfiguredSummariser::Model { model, base, format, key } = config.compact.summariser else {
            panic!("a model")
        };
        assert_eq!((model.as_str(), base.to_string().as_str()), ("small", "http://host/"));
        assert_eq!((format, key.is_some()), (Format::OpenaiChat, true));
        let (config, _) = resolve("--summariser built-in", file).expect("no model");
        assert!(matches!(config.compact.summariser, ConfiguredSummariser::BuiltIn));
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        let said = resolve("--listen 0.0.0.0:8787", "").expect_err("no token").to_string();
        assert!(said.contains("can be reached by others") && said.contains("[[token]]"), "{said}");
        let token = "[[token]]\nprincipal = 'anna'\nenv = 'TOKEN'";
        let (config, _) = resolve("--listen 0.0.0.0:8787", token).expect("a token");
        assert_eq!(config.tokens[0].principal, "anna");
    }

    #[test]
    fn what_the_command_line_says_wrong_is_refused() {
        for args in [
            "--listen 8787",
            "--openai-upstream openai.com",
            "--mode loud",
            "--policy nobody",
            "--window 0",
            "--holdout 0.6",
            "--compact-command compact",
            "--summariser-model small",
            "--summariser-timeout 0s",
            "--summariser-timeout soon",
        ] {
            assert!(resolve(args, "").is_err(), "{args}");
        }
        for (args, expect) in [
            ("--summariser http://host", "give --summariser-model too"),
            ("--summariser nobody", "built-in or session"),
            ("--summariser session --summariser-model small", "needs neither"),
            ("--summariser host --summariser-model small", "--summariser: `host` is no address"),
            (
                "--summariser http://h --summariser-model m --summariser-key-env sk-canary",
                "--summariser-key-env: this is no name",
            ),
            ("--summariser http://me:canary@h --summariser-model m", "--summariser: the address"),
        ] {
            let said = resolve(args, "").expect_err(args).to_string();
            assert!(said.contains(expect) && !said.contains("canary"), "{said}");
        }
        let said =
            resolve("--openai-upstream https://me:canary@host", "").expect_err("a password").to_string();
        assert!(said.contains("no password") && !said.contains("canary"), "{said}");
    }
}
