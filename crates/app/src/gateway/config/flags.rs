//! What the command line says of a gateway, put together with what its file says. Where both speak, the command line
//! counts.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use epitome::{core::policy::Policy, wire::Format};

use super::{
    Compact, Config, Log, Mode, Unrecorded, Upstream, address,
    file::{Environment, File},
};

/// What the command line says of a gateway.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Flags {
    /// Where to listen; port 0 takes any free one. Addresses that others can reach need a token. [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDR", value_parser = address::listen)]
    listen: Option<std::net::SocketAddr>,

    /// Where OpenAI's formats go to. [default: api.openai.com]
    // Read later: what is wrong with a value clap would repeat, and a password may stand in it.
    #[arg(long, value_name = "URL")]
    openai_upstream: Option<String>,

    /// Where Anthropic's format goes to. [default: api.anthropic.com]
    #[arg(long, value_name = "URL")]
    anthropic_upstream: Option<String>,

    /// What is done with requests beside forwarding them. [default: record]
    #[arg(long, value_enum)]
    mode: Option<Mode>,

    /// The policy that `observe` computes with: a name, or a file. [default: epitome]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// A file that says all of this and more: upstreams by model, keys, tokens, limits.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Refuse what cannot be recorded. By default it is forwarded all the same, and the log, /metrics and /readyz say so.
    #[arg(long)]
    fail_closed: bool,

    /// How to log, to standard error; EPITOME_LOG or RUST_LOG say how much. [default: text]
    #[arg(long, value_enum)]
    log: Option<Log>,
}

impl Flags {
    /// The whole configuration, known to be right. `policy` finds a policy by its name or file.
    pub(crate) fn resolve(
        self,
        environment: Environment<'_>,
        policy: impl FnOnce(&str) -> anyhow::Result<Policy>,
    ) -> anyhow::Result<(Config, Log)> {
        let file = match &self.config {
            Some(path) => File::read(path, environment)?,
            None => File::default(),
        };
        self.over(file, policy)
    }

    fn over(
        self,
        file: File,
        policy: impl FnOnce(&str) -> anyhow::Result<Policy>,
    ) -> anyhow::Result<(Config, Log)> {
        let listen = self.listen.or(file.listen).unwrap_or_else(|| ([127, 0, 0, 1], 8787).into());
        if !address::is_local(listen) && file.tokens.is_empty() {
            bail!(
                "{listen} can be reached by others, who would spend your keys and read your sessions: give everybody \
                 who may a token (in a file: [[token]] principal = \"anna\", env = \"ANNA_TOKEN\"; then --config FILE), \
                 or listen on 127.0.0.1"
            );
        }
        let named = self.policy.or(file.policy);
        let policy = policy(named.as_deref().unwrap_or(&Policy::builtin()[0].name))?;
        let unrecorded = match (self.fail_closed, file.unrecorded) {
            (true, _) => Unrecorded::Refuse,
            (false, said) => said.unwrap_or(Unrecorded::Forward),
        };
        let base = |flag: &str, said: Option<String>| {
            let base = said.map(|url| address::base(&url)).transpose();
            base.map_err(|why| anyhow!("{flag}: {why}"))
        };
        let openai = base("--openai-upstream", self.openai_upstream)?;
        let anthropic = base("--anthropic-upstream", self.anthropic_upstream)?;
        let config = Config {
            listen,
            mode: self.mode.or(file.mode).unwrap_or(Mode::Record),
            routes: file.routes,
            policy,
            compact: Compact::default(),
            upstreams: upstreams(openai, anthropic, file.upstreams),
            tokens: file.tokens,
            limits: file.limits,
            unrecorded,
        };
        Ok((config, self.log.or(file.log).unwrap_or(Log::Text)))
    }
}

/// What the command line names comes first. A file that names any provider names all of them; only without one do
/// requests go to the providers everybody knows.
fn upstreams(openai: Option<http::Uri>, anthropic: Option<http::Uri>, filed: Vec<Upstream>) -> Vec<Upstream> {
    let usual = filed.is_empty();
    let upstream = |said: Option<http::Uri>, name: &str, known: &'static str, formats: &[Format]| {
        let base = said.or_else(|| usual.then(|| http::Uri::from_static(known)))?;
        let name = if filed.iter().any(|other| other.name == name) {
            format!("{name}-flag")
        } else {
            name.to_owned()
        };
        Some(Upstream { name, base, formats: formats.to_vec(), models: Vec::new(), key: None })
    };
    let openai =
        upstream(openai, "openai", "https://api.openai.com", &[Format::OpenaiChat, Format::OpenaiResponses]);
    let anthropic = upstream(anthropic, "anthropic", "https://api.anthropic.com", &[Format::Anthropic]);
    openai.into_iter().chain(anthropic).chain(filed).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn resolve(args: &str, file: &str) -> anyhow::Result<(Config, Log)> {
        let line = Line::try_parse_from(["serve"].into_iter().chain(args.split_whitespace()))?;
        let environment = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        let file = File::parse("gateway.toml", file, &environment)?;
        line.flags.over(file, |name| Ok(Policy::named(name)?.clone()))
    }

    fn bases(config: &Config) -> Vec<(String, String)> {
        let upstreams = config.upstreams.iter();
        upstreams.map(|upstream| (upstream.name.clone(), upstream.base.to_string())).collect()
    }

    #[test]
    fn without_a_word_it_records_on_loopback_and_forwards_to_the_known_providers() {
        let (config, log) = resolve("", "").expect("the default");
        assert_eq!(config.listen.to_string(), "127.0.0.1:8787");
        assert_eq!((config.mode, config.unrecorded, log), (Mode::Record, Unrecorded::Forward, Log::Text));
        assert_eq!(config.policy.name, "epitome");
        let urls: Vec<String> = bases(&config).into_iter().map(|(_, url)| url).collect();
        assert_eq!(urls, ["https://api.openai.com/", "https://api.anthropic.com/"]);
        assert!(config.records());
        assert!(!resolve("--mode off", "").expect("off").0.records());
        assert!(resolve("--mode off", "[routes]\n'/v1/messages'='record'").expect("off").0.records());
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = "listen = '127.0.0.1:1'\nmode = 'off'\npolicy = 'tiered'\nlog = 'json'\n\
                    [[upstream]]\nname = 'openai'\nurl = 'http://filed'";
        let (config, log) = resolve("", file).expect("the file");
        assert_eq!((config.listen.port(), config.mode, log), (1, Mode::Off, Log::Json));
        assert_eq!(config.policy.name, "tiered");
        assert_eq!(bases(&config), [("openai".to_owned(), "http://filed/".to_owned())]);
        let args = "--listen 127.0.0.1:2 --mode observe --policy pivot --log text --fail-closed \
                    --openai-upstream http://flag/v1";
        let (config, log) = resolve(args, file).expect("flags");
        assert_eq!((config.listen.port(), config.mode, log), (2, Mode::Observe, Log::Text));
        assert_eq!((config.policy.name.as_str(), config.unrecorded), ("pivot", Unrecorded::Refuse));
        let expect = [("openai-flag", "http://flag/"), ("openai", "http://filed/")];
        assert_eq!(bases(&config), expect.map(|(name, url)| (name.to_owned(), url.to_owned())));
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
        for args in ["--listen 8787", "--openai-upstream openai.com", "--mode loud", "--policy nobody"] {
            assert!(resolve(args, "").is_err(), "{args}");
        }
        let said =
            resolve("--openai-upstream https://me:canary@host", "").expect_err("a password").to_string();
        assert!(said.contains("no password") && !said.contains("canary"), "{said}");
    }
}
