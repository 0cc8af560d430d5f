//! The text that is printed when a gateway starts: its address, its settings, and how to connect each agent.

use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use epitome::store::StoreLocation;
use tracing::info;

use crate::config::{
    GatewayConfig, GatewayMode,
    shown_config::{describe_compact_mode, describe_requests, url},
};

/// The start screen, except for the address, which is not known before the gateway listens.
#[derive(Debug)]
pub(crate) struct StartupBanner {
    facts: String,
    mode: &'static str,
    compacts: bool,
    database: String,
    upstreams: String,
}

impl StartupBanner {
    /// Screen of a gateway with this configuration.
    pub(crate) fn of(config: &GatewayConfig, database: &StoreLocation) -> Self {
        let mut facts = String::new();
        say(&mut facts, config, database).expect("writing to a string does not fail");
        let named = config.upstreams.iter().map(|upstream| format!("{} {}", upstream.name, url(upstream)));
        Self {
            facts,
            mode: config.mode.name(),
            compacts: config.compacts(),
            database: if config.records() { database.to_string() } else { String::new() },
            upstreams: named.collect::<Vec<_>>().join(", "),
        }
    }

    /// The whole text, for a gateway that listens on `address`.
    pub(crate) fn at(&self, address: SocketAddr) -> String {
        let mut screen =
            format!("epitome listens on http://{address}\n\n{}\nPoint an agent at it:\n\n", self.facts);
        for (agent, line) in agents(&local(address)) {
            let _ = writeln!(screen, "  {agent:<16}{line}");
        }
        screen.push_str("\nThen look:  epitome sessions\n");
        if self.compacts {
            let _ = writeln!(screen, "What it saves:  curl {}/epitome/savings", local(address));
        }
        screen
    }

    /// Writes the same facts as one log line.
    pub(crate) fn log(&self, address: SocketAddr) {
        let url = format!("http://{address}");
        let Self { mode, database, upstreams, .. } = self;
        info!(url, mode, database, upstreams, version = env!("CARGO_PKG_VERSION"), "listening");
    }
}

/// Address under which agents on this machine reach the gateway.
fn local(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    format!("http://{address}")
}

fn say(f: &mut String, config: &GatewayConfig, database: &StoreLocation) -> fmt::Result {
    let does = match config.mode {
        GatewayMode::Off => "off: requests are forwarded, nothing is recorded",
        GatewayMode::Record => "record: requests are forwarded as they are, and recorded",
        GatewayMode::Observe => {
            "observe: forwarded as they are, recorded, and compared with what the policy would send"
        }
        GatewayMode::Compact => {
            "compact: recorded, and forwarded within the model's window: a summary stands for what is old"
        }
    };
    writeln!(f, "  {:<11}{does}", "mode")?;
    for (route, rules) in &config.routes {
        if let Some(mode) = rules.mode {
            writeln!(f, "  {:<11}{} for {route}", "", mode.name())?;
        }
    }
    if config.compacts() {
        writeln!(f, "  {:<11}{}", "policy", config.policy.name)?;
        for (index, told) in describe_compact_mode(&config.compact).iter().enumerate() {
            writeln!(f, "  {:<11}{told}", if index == 0 { "compact" } else { "" })?;
        }
    }
    if config.records() {
        writeln!(f, "  {:<11}{}", "database", database)?;
    }
    let name = config.upstreams.iter().map(|upstream| upstream.name.len()).max().unwrap_or(0);
    let at = config.upstreams.iter().map(|upstream| url(upstream).len()).max().unwrap_or(0);
    for (index, upstream) in config.upstreams.iter().enumerate() {
        let head = if index == 0 { "upstreams" } else { "" };
        let asked = describe_requests(&upstream.formats, &upstream.models);
        writeln!(f, "  {head:<11}{:<name$}  {:<at$}  {asked}", upstream.name, url(upstream))?;
    }
    if !config.tokens.is_empty() {
        let count = config.tokens.len();
        writeln!(f, "  {:<11}{count}; send one as x-epitome-token, or in place of the API key", "tokens")?;
    }
    Ok(())
}

/// Settings by which each agent is pointed to the gateway.
fn agents(url: &str) -> [(&'static str, String); 8] {
    [
        ("Claude Code", format!("ANTHROPIC_BASE_URL={url} claude")),
        ("Codex", format!("~/.codex/config.toml: openai_base_url = \"{url}/v1\"")),
        (
            "OpenCode",
            format!(
                "opencode.json: \"provider\":{{\"anthropic\":{{\"options\":{{\"baseURL\":\"{url}/v1\"}}}}}}"
            ),
        ),
        ("goose", format!("OPENAI_HOST={url} goose session   (or ANTHROPIC_HOST)")),
        (
            "pi",
            format!("~/.pi/agent/models.json: \"baseUrl\":\"{url}/v1\"   (anthropic-messages: without /v1)"),
        ),
        ("Gemini CLI", format!("GOOGLE_GEMINI_BASE_URL={url} gemini   (and Gemini's SDKs)")),
        ("OpenAI SDKs", format!("OPENAI_BASE_URL={url}/v1")),
        ("Anthropic SDKs", format!("ANTHROPIC_BASE_URL={url}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CompactModeConfig, ConfiguredSummariser, flags::GatewayArgs};

    fn screen_with(change: impl FnOnce(&mut GatewayConfig), address: &str) -> String {
        let policy = |name: &str| Ok(epitome::core::policy::Policy::named(name)?.clone());
        let (mut config, _) = GatewayArgs::default().resolve(None, &|_| None, &policy).expect("the default");
        change(&mut config);
        StartupBanner::of(&config, &StoreLocation::named("/home/anna/epitome.db").expect("a path"))
            .at(address.parse().expect("an address"))
    }

    fn screen(address: &str) -> String {
        screen_with(|_| {}, address)
    }

    #[test]
    fn the_first_screen_says_where_what_and_how() {
        insta::assert_snapshot!(screen("127.0.0.1:8787"), @r#"
        epitome listens on http://127.0.0.1:8787

          mode       record: requests are forwarded as they are, and recorded
          database   /home/anna/epitome.db
          upstreams  openai     https://api.openai.com                     openai-chat, openai-responses
                     anthropic  https://api.anthropic.com                  anthropic
                     gemini     https://generativelanguage.googleapis.com  gemini

        Point an agent at it:

          Claude Code     ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
          Codex           ~/.codex/config.toml: openai_base_url = "http://127.0.0.1:8787/v1"
          OpenCode        opencode.json: "provider":{"anthropic":{"options":{"baseURL":"http://127.0.0.1:8787/v1"}}}
          goose           OPENAI_HOST=http://127.0.0.1:8787 goose session   (or ANTHROPIC_HOST)
          pi              ~/.pi/agent/models.json: "baseUrl":"http://127.0.0.1:8787/v1"   (anthropic-messages: without /v1)
          Gemini CLI      GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8787 gemini   (and Gemini's SDKs)
          OpenAI SDKs     OPENAI_BASE_URL=http://127.0.0.1:8787/v1
          Anthropic SDKs  ANTHROPIC_BASE_URL=http://127.0.0.1:8787

        Then look:  epitome sessions
        "#);
    }

    #[test]
    fn the_first_screen_says_what_compact_does() {
        let told = |compact: CompactModeConfig| {
            let screen = screen_with(
                |config| (config.mode, config.compact) = (GatewayMode::Compact, compact),
                "127.0.0.1:1",
            );
            let lines = screen.lines().skip(2).take_while(|line| !line.contains("database"));
            lines.chain(screen.lines().last()).collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(told(CompactModeConfig::default()), @r"
          mode       compact: recorded, and forwarded within the model's window: a summary stands for what is old
          policy     epitome
          compact    the window that is known of each model
                     no session is left as it is, so savings are estimates
                     summaries by the built-in summariser
                     no command compacts, no recall
        What it saves:  curl http://127.0.0.1:1/epitome/savings
        ");
        let compact = CompactModeConfig {
            window: Some(128_000),
            holdout: 25_000,
            command: Some("/compact".to_owned()),
            recall: true,
            summariser: ConfiguredSummariser::Model {
                model: "small".to_owned(),
                base: "http://10.0.0.3:8080".parse().expect("an address"),
                format: epitome::wire::Format::OpenaiChat,
                key: Some("sk-canary".into()),
            },
            ..CompactModeConfig::default()
        };
        insta::assert_snapshot!(told(compact), @r"
          mode       compact: recorded, and forwarded within the model's window: a summary stands for what is old
          policy     epitome
          compact    a window of 128000 tokens
                     2.5 % of sessions are left as they are, to measure savings
                     summaries by small at http://10.0.0.3:8080 (openai-chat, a key of its own, which anybody on the way can read: use https), 5m for each
                     `/compact` compacts, the model may recall
        What it saves:  curl http://127.0.0.1:1/epitome/savings
        ");
    }

    #[test]
    fn an_agent_on_this_machine_is_sent_to_this_machine() {
        let screen = screen("0.0.0.0:9000");
        assert!(screen.contains("listens on http://0.0.0.0:9000"), "{screen}");
        assert!(screen.contains("ANTHROPIC_BASE_URL=http://127.0.0.1:9000 claude"), "{screen}");
    }
}
