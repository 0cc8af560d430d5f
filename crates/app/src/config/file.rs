//! The configuration file of the gateway and of the command line, in TOML. It can express every setting.
//!
//! Errors name the line but never quote its content: people put keys in the wrong places.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use epitome::{core::policy::Policy, wire::Format};
use http::Uri;
use secrecy::SecretString;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value},
};
use toml::Spanned;

use super::{
    AccessRights, AccessToken, CompactModeConfig, GatewayLimits, GatewayMode, LogFormat, RequestRules,
    StoreFailureAction, UpstreamConfig, address,
    allowed_routes::{RouteList, RouteListEntry},
    compact::{RawCompact, RawWindow},
    session_settings::SessionSettings,
};
use crate::units;

/// Routes whose requests are recorded.
fn recorded_routes() -> [&'static str; Format::ALL.len()] {
    Format::ALL.map(|format| format.endpoint().route)
}

/// Contents of a file.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) listen: Option<SocketAddr>,
    pub(super) mode: Option<GatewayMode>,
    /// Name or file of the policy.
    pub(super) policy: Option<String>,
    /// File of the database.
    pub(super) database: Option<PathBuf>,
    /// File of profiles.
    pub(super) profiles: Option<PathBuf>,
    pub(super) unrecorded: Option<StoreFailureAction>,
    pub(super) log: Option<LogFormat>,
    pub(super) upstreams: Vec<UpstreamConfig>,
    pub(super) tokens: Vec<AccessToken>,
    pub(super) access: AccessRights,
    pub(super) routes: BTreeMap<String, RequestRules>,
    pub(super) compact: CompactModeConfig,
    pub(super) limits: GatewayLimits,
}

/// Looks up a variable of the environment.
pub(super) type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Finds a policy by its name or file.
pub(super) type PolicyLookup<'a> = &'a dyn Fn(&str) -> anyhow::Result<Policy>;

impl ConfigFile {
    /// Reads a file, and the keys and tokens it names in the environment.
    pub(super) fn read(
        path: &Path,
        environment: EnvironmentLookup<'_>,
        policies: PolicyLookup<'_>,
    ) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let find = |policy: &str| policies(&beside(path, policy));
        let mut file = Self::parse(&path.display().to_string(), &text, environment, &find)?;
        file.policy = file.policy.map(|policy| beside(path, &policy));
        if let Some(folder) = path.parent() {
            file.compact.set_folder(folder);
            file.database = file.database.map(|database| folder.join(database));
            file.profiles = file.profiles.map(|profiles| folder.join(profiles));
        }
        Ok(file)
    }

    /// Parses the text of the file `name`.
    pub(super) fn parse(
        name: &str,
        text: &str,
        environment: EnvironmentLookup<'_>,
        policies: PolicyLookup<'_>,
    ) -> anyhow::Result<Self> {
        let page = ConfigText { name, text };
        let raw: RawConfig = toml::from_str(text).map_err(|error| page.refused(&error))?;
        Ok(Self {
            listen: raw.listen.map(|listen| page.read(&listen, |text| address::listen(text))).transpose()?,
            mode: raw.mode,
            policy: raw.policy,
            database: raw.db.map(|said| page.read(&said, |path| is_path("db", path))).transpose()?,
            profiles: raw
                .profiles
                .map(|said| page.read(&said, |path| is_path("profiles", path)))
                .transpose()?,
            unrecorded: raw.on_store_failure,
            log: raw.log,
            upstreams: upstreams(&page, raw.upstream, environment)?,
            tokens: tokens(&page, raw.token, environment, policies)?,
            access: access(&page, raw.allow, raw.allow_override)?,
            routes: routes(&page, raw.routes, policies)?,
            compact: raw.compact.read(&page, environment)?,
            limits: limits(&page, &raw.limits)?,
        })
    }
}

/// A policy's file where it stands beside a configuration, or its name. Relative paths in a file start at the file's own
/// folder.
fn beside(path: &Path, policy: &str) -> String {
    match path.parent().map(|folder| folder.join(policy)) {
        Some(beside) if beside.is_file() => beside.display().to_string(),
        _ => policy.to_owned(),
    }
}

/// The database that the text of a file names.
pub(super) fn database_of(path: &Path, text: &str) -> anyhow::Result<Option<PathBuf>> {
    let name = path.display().to_string();
    let page = ConfigText { name: &name, text };
    let raw: RawConfig = toml::from_str(text).map_err(|error| page.refused(&error))?;
    let database = raw.db.map(|said| page.read(&said, |path| is_path("db", path))).transpose()?;
    Ok(database.map(|database| path.parent().map_or(database.clone(), |folder| folder.join(database))))
}

/// What the text of a file says of sessions. Keys and tokens of a gateway are not looked up.
pub(super) fn session_settings(
    path: &Path,
    text: &str,
    environment: EnvironmentLookup<'_>,
) -> anyhow::Result<SessionSettings> {
    let name = path.display().to_string();
    let page = ConfigText { name: &name, text };
    let raw: RawConfig = toml::from_str(text).map_err(|error| page.refused(&error))?;
    let mut compact = raw.compact.read(&page, environment)?;
    let profiles = raw.profiles.map(|said| page.read(&said, |path| is_path("profiles", path))).transpose()?;
    let folder = path.parent().unwrap_or(Path::new(""));
    compact.set_folder(folder);
    Ok(SessionSettings {
        policy: raw.policy.map(|policy| beside(path, &policy)),
        profiles: profiles.map(|profiles| folder.join(profiles)),
        compact,
    })
}

/// The names that the parser takes in a table, which is opened by this text.
#[cfg(test)]
pub(super) fn known_keys(opening: &str) -> Vec<String> {
    let text = format!("{opening}\nzzz = 1\n");
    let said = toml::from_str::<RawConfig>(&text).expect_err("an unknown key").message().to_owned();
    let known = said.split_once("expected").map_or("", |(_, known)| known);
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    listen: Option<Spanned<String>>,
    mode: Option<GatewayMode>,
    policy: Option<String>,
    db: Option<Spanned<PathBuf>>,
    profiles: Option<Spanned<PathBuf>>,
    on_store_failure: Option<StoreFailureAction>,
    log: Option<LogFormat>,
    allow: Option<Vec<Spanned<String>>>,
    allow_override: Option<bool>,
    #[serde(default)]
    upstream: Vec<RawUpstream>,
    #[serde(default)]
    token: Vec<RawToken>,
    #[serde(default)]
    routes: BTreeMap<Spanned<String>, RawRules>,
    #[serde(default)]
    compact: RawCompact,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUpstream {
    name: Spanned<String>,
    url: Spanned<String>,
    #[serde(default)]
    formats: Vec<Spanned<String>>,
    #[serde(default)]
    models: Vec<Spanned<String>>,
    key_env: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    principal: Spanned<String>,
    env: Option<Spanned<String>>,
    blake3: Option<Spanned<String>>,
    mode: Option<GatewayMode>,
    window: Option<Spanned<RawWindow>>,
    policy: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
    allow_override: Option<bool>,
}

/// Treatment of a route's requests: a mode, or a table.
#[derive(Debug, Default)]
struct RawRules {
    mode: Option<GatewayMode>,
    window: Option<Spanned<RawWindow>>,
    policy: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for RawRules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RulesTable {
            mode: Option<GatewayMode>,
            window: Option<Spanned<RawWindow>>,
            policy: Option<Spanned<String>>,
        }
        struct ModeOrTableVisitor;
        impl<'de> Visitor<'de> for ModeOrTableVisitor {
            type Value = RawRules;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mode, or a table with mode, window and policy")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawRules, E> {
                let mode = GatewayMode::deserialize(value::StrDeserializer::new(text))?;
                Ok(RawRules { mode: Some(mode), ..RawRules::default() })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawRules, A::Error> {
                let RulesTable { mode, window, policy } =
                    RulesTable::deserialize(value::MapAccessDeserializer::new(map))?;
                Ok(RawRules { mode, window, policy })
            }
        }
        deserializer.deserialize_any(ModeOrTableVisitor)
    }
}

impl RawRules {
    fn read(self, page: &ConfigText<'_>, policies: PolicyLookup<'_>) -> anyhow::Result<RequestRules> {
        let window = self.window.map(|said| page.read(&said, RawWindow::read)).transpose()?;
        let find = |said: Spanned<String>| {
            page.read(&said, |name| policies(name).map(Arc::new).map_err(|error| format!("{error:#}")))
        };
        Ok(RequestRules { mode: self.mode, window, policy: self.policy.map(find).transpose()? })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    body: Option<Spanned<String>>,
    head: Option<Spanned<String>>,
    requests: Option<Spanned<usize>>,
    client: Option<Spanned<String>>,
    upload: Option<Spanned<String>>,
    connect: Option<Spanned<String>>,
    answer: Option<Spanned<String>>,
    pause: Option<Spanned<String>>,
    notice: Option<Spanned<String>>,
    shutdown: Option<Spanned<String>>,
}

/// Text of a file, for errors that name the line.
pub(super) struct ConfigText<'a> {
    name: &'a str,
    text: &'a str,
}

impl ConfigText<'_> {
    /// Makes an error about a position in the file.
    pub(super) fn wrong(&self, at: usize, why: impl fmt::Display) -> anyhow::Error {
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        anyhow!("{}, line {line}: {why}", self.name)
    }

    /// Makes an error about a value.
    pub(super) fn value<T>(&self, value: &Spanned<T>, why: impl fmt::Display) -> anyhow::Error {
        self.wrong(value.span().start, why)
    }

    /// Reads a value; an error names its position.
    pub(super) fn read<T, U>(
        &self,
        value: &Spanned<T>,
        read: impl FnOnce(&T) -> Result<U, String>,
    ) -> anyhow::Result<U> {
        read(value.get_ref()).map_err(|why| self.value(value, why))
    }

    /// Makes an error for a file that is not TOML, or has unknown or missing keys.
    fn refused(&self, error: &toml::de::Error) -> anyhow::Error {
        let said = without_values(error.message());
        let secret = ["key", "api_key", "apikey", "token", "secret", "password"];
        let is_secret = secret.iter().any(|name| said.starts_with(&format!("unknown field `{name}`")));
        let hint = if is_secret {
            ". Keys and tokens do not stand in this file: name the variable that holds a key (key_env = \"NAME\"), \
             or a token (env = \"NAME\")"
        } else {
            ""
        };
        self.wrong(error.span().map_or(0, |span| span.start), format_args!("{said}{hint}"))
    }
}

/// Strips the strings quoted from the file from the parser's message.
fn without_values(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    match message.split_once("string \"") {
        Some((before, after)) => {
            let after = after.rsplit_once('"').map_or("", |(_, after)| after);
            format!("{before}string{after}")
        }
        None => message.to_owned(),
    }
}

fn upstreams(
    page: &ConfigText<'_>,
    raw: Vec<RawUpstream>,
    environment: EnvironmentLookup<'_>,
) -> anyhow::Result<Vec<UpstreamConfig>> {
    let mut upstreams: Vec<UpstreamConfig> = Vec::new();
    for upstream in raw {
        let name = page.read(&upstream.name, |name| word(name))?;
        if upstreams.iter().any(|other| other.name == name) {
            return Err(page.value(&upstream.name, format_args!("there is another upstream `{name}` above")));
        }
        let base: Uri = page.read(&upstream.url, |url| address::base(url))?;
        let mut formats: Vec<Format> = Vec::new();
        for format in &upstream.formats {
            formats.push(page.read(format, |name| name.parse().map_err(|error| format!("{error}")))?);
        }
        if formats.is_empty() {
            formats.extend(Format::ALL);
        }
        for model in &upstream.models {
            page.read(model, |model| match model.trim() {
                "" => Err("a pattern of models is empty: write names such as gpt-5*, or leave `models` out"
                    .to_owned()),
                _ => Ok(()),
            })?;
        }
        let models = upstream.models.into_iter().map(Spanned::into_inner).collect();
        let key =
            upstream.key_env.map(|name| page.read(&name, |name| secret(name, environment))).transpose()?;
        upstreams.push(UpstreamConfig { name, base, formats, models, key });
    }
    Ok(upstreams)
}

fn tokens(
    page: &ConfigText<'_>,
    raw: Vec<RawToken>,
    environment: EnvironmentLookup<'_>,
    policies: PolicyLookup<'_>,
) -> anyhow::Result<Vec<AccessToken>> {
    let mut tokens: Vec<AccessToken> = Vec::new();
    for token in raw {
        let principal = page.read(&token.principal, |principal| word(principal))?;
        let hash = match (&token.env, &token.blake3) {
            (Some(name), None) => page.read(name, |name| {
                use secrecy::ExposeSecret as _;
                secret(name, environment).map(|token| blake3::hash(token.expose_secret().as_bytes()))
            })?,
            (None, Some(hash)) => page.read(hash, |hash| {
                blake3::Hash::from_hex(hash.as_bytes()).map_err(|_| {
                    "`blake3` is no BLAKE3 hash in 64 hex digits: make one with  printf %s \"$TOKEN\" | b3sum"
                        .to_owned()
                })
            })?,
            (Some(_), Some(_)) | (None, None) => {
                let why =
                    "a token has either `env`, the name of the variable that holds it, or `blake3`, its hash";
                return Err(page.value(&token.principal, why));
            }
        };
        if tokens.iter().any(|other| other.hash == hash) {
            let why = "this token is already given to somebody above: everybody needs their own";
            return Err(page.value(&token.principal, why));
        }
        let access = access(page, token.allow, token.allow_override)?;
        let RawToken { mode, window, policy, .. } = token;
        let rules = RawRules { mode, window, policy }.read(page, policies)?;
        tokens.push(AccessToken { principal, hash, rules, access });
    }
    Ok(tokens)
}

fn access(
    page: &ConfigText<'_>,
    allow: Option<Vec<Spanned<String>>>,
    allow_override: Option<bool>,
) -> anyhow::Result<AccessRights> {
    let list = |allow: Vec<Spanned<String>>| {
        let rules = allow.iter().map(|rule| page.read(rule, |text| RouteListEntry::read(text)));
        rules.collect::<anyhow::Result<Vec<_>>>().map(RouteList::new)
    };
    Ok(AccessRights { allow: allow.map(list).transpose()?, allow_override })
}

fn routes(
    page: &ConfigText<'_>,
    raw: BTreeMap<Spanned<String>, RawRules>,
    policies: PolicyLookup<'_>,
) -> anyhow::Result<BTreeMap<String, RequestRules>> {
    let known = |route: &Spanned<String>| {
        page.read(route, |route| {
            if recorded_routes().contains(&route.as_str()) {
                return Ok(route.clone());
            }
            let (route, routes) = (units::printable(route), recorded_routes().join(", "));
            Err(format!("`{route}` is no route with a mode of its own: expected {routes}"))
        })
    };
    raw.into_iter().map(|(route, rules)| Ok((known(&route)?, rules.read(page, policies)?))).collect()
}

fn limits(page: &ConfigText<'_>, raw: &RawLimits) -> anyhow::Result<GatewayLimits> {
    let usual = GatewayLimits::default();
    let size = |said: &Option<Spanned<String>>, usual| {
        said.as_ref().map_or(Ok(usual), |said| page.read(said, |text| units::size(text)))
    };
    let time = |said: &Option<Spanned<String>>, usual| {
        said.as_ref().map_or(Ok(usual), |said| page.read(said, |text| units::time(text)))
    };
    let requests = raw.requests.as_ref().map_or(Ok(usual.requests), |requests| {
        page.read(requests, |requests| match requests {
            0 => Err("`requests` is 0, so that none would be taken: give at least 1".to_owned()),
            requests => Ok(*requests),
        })
    })?;
    Ok(GatewayLimits {
        body: size(&raw.body, usual.body)?,
        head: size(&raw.head, usual.head)?,
        requests,
        client: time(&raw.client, usual.client)?,
        upload: time(&raw.upload, usual.upload)?,
        connect: time(&raw.connect, usual.connect)?,
        answer: time(&raw.answer, usual.answer)?,
        pause: time(&raw.pause, usual.pause)?,
        notice: raw
            .notice
            .as_ref()
            .map(|said| page.read(said, |text| units::time_or_none(text)))
            .transpose()?,
        shutdown: time(&raw.shutdown, usual.shutdown)?,
    })
}

fn is_path(key: &str, path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Err(format!("`{key}` is empty: name a file, or leave it out"));
    }
    Ok(path.to_owned())
}

/// Checks a name that appears in logs and metrics.
pub(super) fn word(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        Ok(name.to_owned())
    } else {
        Err(format!("`{}` is no name: use up to 64 letters, digits, and . _ - @", units::printable(name)))
    }
}

/// Reads a key or a token from the environment variable that holds it.
pub(super) fn secret(name: &str, environment: EnvironmentLookup<'_>) -> Result<SecretString, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        // A key that was given in place of a variable's name must not reach a log.
        return Err(
            "this is no name of an environment variable: give the name of one, and the key in it".to_owned()
        );
    }
    let Some(value) = environment(name).filter(|value| !value.trim().is_empty()) else {
        // A key may look like a name, so only a text that certainly is a name is repeated.
        let is_plain = name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
        let name = if is_plain { format!("`{name}`") } else { "of this name".to_owned() };
        return Err(format!(
            "the environment variable {name} is not set: set it to the key, or take this line out"
        ));
    };
    let value = value.trim();
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(SecretString::from(value.to_owned()))
    } else {
        Err("the environment variable named here holds something that cannot be sent as a key: it has a space, \
             a line break or a letter that is not ASCII"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::ExposeSecret;

    use super::{super::ConfiguredSummariser, *};

    fn parse(text: &str) -> anyhow::Result<ConfigFile> {
        let environment = |name: &str| match name {
            "LOCAL_KEY" => Some("sk-canary\n".to_owned()),
            "ANNA_TOKEN" => Some("anna-canary".to_owned()),
            "BROKEN" => Some("two words".to_owned()),
            _ => None,
        };
        ConfigFile::parse("gateway.toml", text, &environment, &|name| Ok(Policy::named(name)?.clone()))
    }

    #[track_caller]
    fn refused(text: &str, expect: &str) {
        let said = format!("{:#}", parse(text).expect_err(text));
        assert!(said.starts_with("gateway.toml, line "), "{said}");
        assert!(said.contains(expect), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }

    #[test]
    fn everything_can_be_said_in_a_file() {
        let file = parse(
            r#"
            listen = "0.0.0.0:9000"
            mode = "observe"
            policy = "tiered"
            db = "sessions.db"
            profiles = "models.toml"
            on_store_failure = "fail_closed"
            log = "json"
            allow = ["inference"]

            [[upstream]]
            name = "local"
            url = "http://127.0.0.1:8080/v1"
            formats = ["openai-chat"]
            models = ["llama*", "qwen*"]
            key_env = "LOCAL_KEY"

            [[upstream]]
            name = "rest"
            url = "https://example.com/"

            [[token]]
            principal = "anna"
            env = "ANNA_TOKEN"
            mode = "off"
            allow = ["inference", "GET /v1/files/*"]
            allow_override = true
            window = 64_000
            policy = "pivot"

            [[token]]
            principal = "ben"
            blake3 = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"

            [routes]
            "/v1/messages" = "record"
            "/v1/responses" = { mode = "compact", window = 32_000, policy = "tiered" }
            "/v1/chat/completions" = { window = "16k" }

            [compact]
            window = 128_000
            holdout = 0.1
            command = "/compact"
            recall = true
            focus = "the parser"
            notes = ["The branch is main."]
            idle = "4m"
            memory_files = "notes"

            [compact.careful_summariser]
            model = "large"
            url = "http://127.0.0.1:8080/v1"

            [[compact.hook]]
            name = "manners"
            reserve = 100
            text = "Be kind."

            [[compact.hook]]
            name = "state"
            reserve = 2_000
            file = "state.md"

            [compact.summariser]
            model = "small"
            url = "http://127.0.0.1:8080/v1"
            format = "anthropic"
            key_env = "LOCAL_KEY"
            timeout = "90s"

            [limits]
            body = "32MiB"
            requests = 100
            answer = "5m"
            notice = "0s"
            "#,
        )
        .expect("a right file");
        assert_eq!(file.listen, Some("0.0.0.0:9000".parse().expect("an address")));
        assert_eq!((file.mode, file.log), (Some(GatewayMode::Observe), Some(LogFormat::Json)));
        assert_eq!(file.unrecorded, Some(StoreFailureAction::Refuse));
        let local = &file.upstreams[0];
        assert_eq!(local.base.to_string(), "http://127.0.0.1:8080/");
        assert_eq!((local.formats.as_slice(), local.models.len()), ([Format::OpenaiChat].as_slice(), 2));
        assert_eq!(
            local.key.as_ref().map(|key| key.expose_secret().to_owned()),
            Some("sk-canary".to_owned())
        );
        assert_eq!(file.upstreams[1].formats, Format::ALL);
        assert_eq!(file.tokens[0].hash, blake3::hash(b"anna-canary"));
        let rules = [&file.tokens[0].rules, &file.tokens[1].rules];
        assert_eq!(rules.map(|rules| rules.mode), [Some(GatewayMode::Off), None]);
        let named = |rules: &RequestRules| rules.policy.as_ref().map(|policy| policy.name.clone());
        assert_eq!((rules[0].window, named(rules[0]).as_deref()), (Some(64_000), Some("pivot")));
        let allowed = |access: &AccessRights| access.allow.as_ref().map(ToString::to_string);
        let access = [&file.tokens[0].access, &file.tokens[1].access];
        assert_eq!(allowed(&file.access).as_deref(), Some("inference"));
        assert_eq!(allowed(access[0]).as_deref(), Some("inference, GET /v1/files/*"));
        assert_eq!(access.map(|access| access.allow_override), [Some(true), None]);
        assert_eq!(
            file.routes["/v1/messages"],
            RequestRules { mode: Some(GatewayMode::Record), ..RequestRules::default() }
        );
        let responses = &file.routes["/v1/responses"];
        assert_eq!((responses.mode, responses.window), (Some(GatewayMode::Compact), Some(32_000)));
        assert_eq!(named(responses).as_deref(), Some("tiered"));
        assert_eq!(file.routes["/v1/chat/completions"].window, Some(16_000));
        let CompactModeConfig { window, holdout, command, recall, summariser, summary_time, .. } =
            &file.compact;
        let CompactModeConfig { careful, instructions, idle, memory_files, hooks, .. } = &file.compact;
        assert_eq!(instructions.focus.as_deref(), Some("the parser"));
        assert_eq!(instructions.extra, ["The branch is main."]);
        assert_eq!(
            (*idle, memory_files.as_deref()),
            (Some(Duration::from_mins(4)), Some(Path::new("notes")))
        );
        assert!(
            matches!(careful, Some(ConfiguredSummariser::Model { model, .. }) if model == "large"),
            "{careful:?}"
        );
        let hooks: Vec<String> = hooks.iter().map(|hook| format!("{hook:?}")).collect();
        assert!(
            hooks[0].contains("Text(\"Be kind.\")") && hooks[1].contains("File(\"state.md\")"),
            "{hooks:?}"
        );
        assert_eq!(file.database.as_deref(), Some(Path::new("sessions.db")));
        assert_eq!(file.profiles.as_deref(), Some(Path::new("models.toml")));
        assert_eq!(*summary_time, Some(Duration::from_secs(90)));
        assert_eq!((*window, *holdout, *recall), (Some(128_000), 100_000, true));
        assert_eq!(command.as_deref(), Some("/compact"));
        let ConfiguredSummariser::Model { model, base, format, key } = summariser else {
            panic!("{summariser:?}")
        };
        assert_eq!((model.as_str(), base.to_string().as_str()), ("small", "http://127.0.0.1:8080/"));
        assert_eq!(
            (*format, key.as_ref().map(ExposeSecret::expose_secret)),
            (Format::Anthropic, Some("sk-canary"))
        );
        assert_eq!((file.limits.body, file.limits.requests), (32 << 20, 100));
        assert_eq!(file.limits.answer, Duration::from_mins(5));
        assert_eq!(file.limits.pause, GatewayLimits::default().pause);
        assert_eq!(file.limits.notice, Some(Duration::ZERO));
        assert!(!format!("{file:?}").contains("canary"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        refused("listen = 'here'", "line 1: `here` is no address");
        refused("\n\nlissen = 'x'", "line 3: unknown field `lissen`");
        refused("mode = 'loud'", "line 1: unknown variant `loud`");
        refused("[limits]\nbody = '1 parsec'", "line 2: `1 parsec` is no size");
        refused("[limits]\npause = 'x'", "line 2: `x` is no time");
        refused("[limits]\nrequests = 0", "line 2: `requests` is 0");
        refused("[routes]\n'/v1/models' = 'off'", "line 2: `/v1/models` is no route");
        refused("[routes]\n'/v1/messages' = 'loud'", "line 2: unknown variant `loud`");
        refused("[routes]\n'/v1/messages' = { windo = 1 }", "line 2: unknown field `windo`");
        refused("[routes]\n'/v1/messages' = { window = 0 }", "line 2: `window` is 0");
        refused("[routes]\n'/v1/messages' = { policy = 'nobody' }", "line 2: ");
        refused("[routes]\n'/v1/messages' = 1", "line 2: invalid type: integer");
        refused("[limits]\nnotice = '25h'", "line 2: `25h` is no time");
        refused("[[upstream]]\nname = 'a'", "missing field `url`");
        refused("[[upstream]]\nname = 'a b'\nurl = 'http://x'", "line 2: `a b` is no name");
        refused("[[upstream]]\nname = 'a'\nurl = 'http://u:canary@x'", "line 3: the address");
        refused(
            "[[upstream]]\nname = 'a'\nurl = 'http://x'\nformats = ['soap']",
            "line 4: `soap` is no wire format",
        );
        refused(
            "[[upstream]]\nname = 'a'\nurl = 'http://x'\n[[upstream]]\nname = 'a'\nurl = 'http://y'",
            "line 5: there is another upstream `a`",
        );
        refused("\nallow = ['inference', 'files']", "line 2: `files` is no route");
        refused("allow = 'all'", "line 1: invalid type: string");
        refused("[[token]]\nprincipal = 'a'", "either `env`");
        refused(
            "[[token]]\nprincipal='a'\nenv='ANNA_TOKEN'\nallow=['get /v1/x']",
            "line 4: `get /v1/x` is no route",
        );
        refused("[[token]]\nprincipal = ''\nenv = 'ANNA_TOKEN'", "line 2: `` is no name");
        refused("[[token]]\nprincipal = 'a'\nblake3 = 'canary'", "line 3: `blake3` is no BLAKE3 hash");
        refused(
            "[[token]]\nprincipal='a'\nenv='ANNA_TOKEN'\n[[token]]\nprincipal='b'\nenv='ANNA_TOKEN'",
            "line 5: this token is already given",
        );
    }

    #[test]
    fn what_is_wrong_with_mode_compact_is_told_with_its_line() {
        refused("[compact]\nwindow = 0", "line 2: `window` is 0");
        refused("[compact]\nwindow = '128kB'", "line 2: `128kB` is not an amount of tokens");
        refused("[compact]\nwindow = 1.5", "line 2: invalid type: floating point");
        refused("[compact]\nwindow = -1", "line 2: invalid value: integer");
        refused("[compact]\nholdout = 0.6", "line 2: `holdout` is the share");
        refused("[compact]\nholdout = nan", "line 2: `holdout` is the share");
        refused("[compact]\ncommand = 'compact this'", "line 2: `compact this` is no command");
        refused("[compact]\nrecal = true", "line 2: unknown field `recal`");
        let summariser = |text: &str, expect: &str| refused(&format!("[compact.summariser]\n{text}"), expect);
        refused("[compact]\nfocus = ' '", "line 2: `focus` is empty");
        refused("[compact]\nidle = 'soon'", "line 2: `soon` is no time");
        refused("[compact]\nmemory_files = ''", "line 2: `memory_files` is empty");
        refused(
            "[compact.careful_summariser]\nmodel = 'a'\nurl = 'http://x'",
            "a careful summariser writes what",
        );
        let session = "[compact.summariser]\nuse = 'session'\n";
        refused(
            &format!("{session}[compact.careful_summariser]\nformat = 'anthropic'"),
            "has a `model` and a `url`",
        );
        for key in ["use = 'session'", "timeout = '1m'"] {
            refused(&format!("{session}[compact.careful_summariser]\n{key}"), "line 4: unknown field");
        }
        let hook =
            |text: &str, expect: &str| refused(&format!("[[compact.hook]]\nname = 'a'\n{text}"), expect);
        hook("reserve = 0\ntext = 'x'", "line 3: `reserve` is 0");
        hook("reserve = 9", "line 2: a hook has either `text`");
        hook("reserve = 9\ntext = 'x'\nfile = 'x'", "line 2: a hook has either `text`");
        hook("reserve = 9\ntext = ' '", "line 4: `text` is empty");
        hook(
            "reserve = 9\ntext = 'x'\n[[compact.hook]]\nname = 'a'\nreserve = 9\ntext = 'y'",
            "line 6: there is another hook",
        );
        summariser("use = 'nobody'", "line 2: `nobody` is no summariser: write built-in or session");
        summariser("use = 'session'\nmodel = 'small'", "line 2: `use` needs nothing beside it");
        summariser("model = 'small'", "line 2: a summariser of your own has a `model` and a `url`");
        summariser("key_env = 'LOCAL_KEY'", "line 2: a summariser of your own");
        summariser("model = ' '\nurl = 'http://x'", "line 2: this is no name of a model");
        summariser("model = 'a'\nurl = 'x'", "line 3: `x` is no address");
        summariser("model = 'a'\nurl = 'http://x'\nformat = 'soap'", "line 4: `soap` is no wire format");
        summariser("model = 'a'\nurl = 'http://x'\nkey = 'sk-canary'", "name the variable");
        summariser("model = 'a'\nurl = 'http://x'\nkey_env = 'sk-canary'", "line 4: this is no name");
        summariser("url = 'http://u:canary@x'\nmodel = 'a'", "line 2: the address");
    }

    #[test]
    fn who_summarises_is_the_built_in_one_unless_a_file_says_otherwise() {
        for (text, expect) in [
            ("", "BuiltIn"),
            ("[compact]", "BuiltIn"),
            ("[compact.summariser]", "BuiltIn"),
            ("[compact.summariser]\nuse = 'built-in'", "BuiltIn"),
            ("[compact.summariser]\nuse = 'session'", "Session"),
        ] {
            assert_eq!(format!("{:?}", parse(text).expect(text).compact.summariser), expect, "{text}");
        }
    }

    #[test]
    fn a_key_that_stands_where_it_does_not_belong_is_not_repeated() {
        let upstream = "[[upstream]]\nname = 'a'\nurl = 'http://x'\n";
        refused(&format!("{upstream}key = 'sk-canary'"), "line 4: unknown field `key`");
        refused(&format!("{upstream}key = 'sk-canary'"), "name the variable");
        refused(&format!("{upstream}key_env = 'sk-canary'"), "line 4: this is no name");
        refused(&format!("{upstream}key_env = 'skcanary'"), "line 4: the environment variable of this name");
        refused(&format!("{upstream}key_env = 'MISSING'"), "variable `MISSING` is not set");
        refused(&format!("{upstream}key_env = 'BROKEN'"), "line 4: the environment variable named here");
        refused(&format!("{upstream}formats = 'sk-canary'"), "line 4: invalid type: string");
        refused(&format!("{upstream}key_env = 'sk-canary"), "line 4: ");
    }
}
