//! Upstreams that requests are forwarded to: the providers of the configuration, and no others.
//!
//! Connections are kept and used again, by the thread that made them. No redirect is followed: the client decides about these.

use std::{error::Error, sync::Arc, time::Duration};

use anyhow::Context;
use epitome::wire::Format;
use http::{
    Request, Response, StatusCode, Uri,
    header::HeaderValue,
    uri::{self, PathAndQuery, Scheme},
};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio::time::timeout;

use super::{
    connection_threads,
    errors::GatewayError,
    headers::UpstreamKey,
    request_body::{OutboundBody, RequestBodyError},
    request_scope::ProxyEnding,
    tls::TlsError,
};
use crate::config::{self, GatewayLimits, pattern::matches_pattern};

/// Time for which an idle connection is kept: shorter than servers keep theirs, so that no connection is used
/// that the server has closed.
const IDLE: Duration = Duration::from_secs(30);

/// The providers.
#[derive(Debug)]
pub(super) struct UpstreamPool {
    all: Vec<Arc<Upstream>>,
    /// Client of each thread that serves connections, and one for all other threads: an answer that arrives on a
    /// connection of another thread would have to wake two.
    clients: Vec<UpstreamClient>,
    answer: Duration,
}

type UpstreamClient = Client<HttpsConnector<HttpConnector>, OutboundBody>;

/// A provider.
#[derive(Debug)]
pub(super) struct Upstream {
    config: config::UpstreamConfig,
    scheme: Scheme,
    authority: uri::Authority,
    /// The path before `/v1`.
    folder: String,
    host: HeaderValue,
    key: Option<UpstreamKey>,
}

/// Dependence of the choice of a provider on the requested model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamChoice {
    /// All models have the same provider.
    Clear,
    /// The provider depends on the model.
    ByModel,
}

impl UpstreamPool {
    /// Prepares connections to the configured providers.
    pub(super) fn new(all: Vec<config::UpstreamConfig>, limits: &GatewayLimits) -> anyhow::Result<Self> {
        let all = all.into_iter().map(|one| Upstream::new(one).map(Arc::new));
        let all = all.collect::<anyhow::Result<Vec<_>>>()?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect));
        let is_secret = all.iter().any(|upstream| upstream.scheme == Scheme::HTTPS);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(is_secret)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = || {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_timer(TokioTimer::new())
                .http1_preserve_header_case(true)
                .set_host(false)
                .build(connector.clone())
        };
        let clients = (0..=connection_threads::count()).map(|_| client()).collect();
        Ok(Self { all, clients, answer: limits.answer })
    }

    /// Reports whether the choice among providers of `formats` depends on the model.
    pub(super) fn choice(&self, formats: &[Format]) -> UpstreamChoice {
        let first = self.all.iter().find(|upstream| upstream.takes(formats));
        match first {
            Some(first) if !first.config.models.is_empty() => UpstreamChoice::ByModel,
            _ => UpstreamChoice::Clear,
        }
    }

    /// The first upstream that takes one of `formats` and serves `model`. For requests that name no model:
    /// the one that serves every model, if configured.
    pub(super) fn choose(&self, formats: &[Format], model: Option<&str>) -> Option<&Arc<Upstream>> {
        let mut able = self.all.iter().filter(|upstream| upstream.takes(formats));
        if let Some(model) = model {
            return able.find(|upstream| upstream.has(model));
        }
        let first = able.clone().next();
        able.find(|upstream| upstream.config.models.is_empty()).or(first)
    }

    /// Longest wait for the head of an answer.
    pub(super) fn patience(&self) -> Duration {
        self.answer
    }

    /// Sends a request to its address, and waits for the head of the answer.
    pub(super) async fn send(&self, request: Request<OutboundBody>) -> Result<Response<Incoming>, SendError> {
        let number = connection_threads::current().map_or(0, |thread| thread + 1);
        let client = &self.clients[number % self.clients.len()];
        match timeout(self.answer, client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(SendError::of(&error)),
            Err(_) => Err(SendError::Silent),
        }
    }
}

impl Upstream {
    fn new(config: config::UpstreamConfig) -> anyhow::Result<Self> {
        let name = &config.name;
        let parts = config.base.clone().into_parts();
        let nowhere = || format!("the upstream `{name}` has no address: give one such as https://host");
        let scheme = parts.scheme.with_context(nowhere)?;
        let authority = parts.authority.with_context(nowhere)?;
        let host = HeaderValue::from_str(authority.as_str()).with_context(nowhere)?;
        let folder = parts.path_and_query.map(|path| path.path().trim_end_matches('/').to_owned());
        let key = match &config.key {
            None => None,
            Some(key) => {
                let unfit =
                    || format!("the key of the upstream `{name}` cannot be a header's value: check it");
                let value = |text: &str| {
                    HeaderValue::from_str(text).map(|mut value| {
                        value.set_sensitive(true);
                        value
                    })
                };
                let plain = value(key.expose_secret()).with_context(unfit)?;
                Some(UpstreamKey {
                    plain,
                    bearer: value(&format!("Bearer {}", key.expose_secret())).with_context(unfit)?,
                })
            }
        };
        Ok(Self { config, scheme, authority, folder: folder.unwrap_or_default(), host, key })
    }

    /// Name of the provider.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Configuration of the provider.
    pub(super) fn config(&self) -> &config::UpstreamConfig {
        &self.config
    }

    /// Host name for a request's `Host` header.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Key that replaces the client's, if configured.
    pub(super) fn key(&self) -> Option<&UpstreamKey> {
        self.key.as_ref()
    }

    /// The first of `formats` that it takes.
    pub(super) fn format(&self, formats: &[Format]) -> Option<Format> {
        self.config.formats.iter().copied().find(|format| formats.contains(format))
    }

    /// Address of `path` at this provider.
    pub(super) fn at(&self, path: PathAndQuery) -> Result<Uri, http::Error> {
        let path = match self.folder.as_str() {
            "" => path,
            folder => PathAndQuery::try_from(format!("{folder}{path}"))?,
        };
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(path).build()
    }

    fn takes(&self, formats: &[Format]) -> bool {
        self.format(formats).is_some()
    }

    fn has(&self, model: &str) -> bool {
        self.config.models.is_empty()
            || self.config.models.iter().any(|pattern| matches_pattern(pattern, model))
    }
}

/// Reason why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SendError {
    /// The body of the request did not come in.
    Intake(RequestBodyError),
    /// No connection could be made.
    Unreached(String),
    /// The server did not prove to be the provider.
    Untrusted(TlsError),
    /// The server closed the connection, or did not speak HTTP.
    Broken(String),
    /// No answer came in time.
    Silent,
}

impl SendError {
    fn of(error: &hyper_util::client::legacy::Error) -> Self {
        let mut cause: &(dyn Error + 'static) = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
            if let Some(intake) = cause.downcast_ref::<RequestBodyError>() {
                return Self::Intake(*intake);
            }
            if let Some(fault) = TlsError::of(cause) {
                return Self::Untrusted(fault);
            }
        }
        if error.is_connect() { Self::Unreached(cause.to_string()) } else { Self::Broken(cause.to_string()) }
    }

    /// Way in which the request ended with it.
    pub(super) fn how(&self) -> ProxyEnding {
        match self {
            Self::Intake(RequestBodyError::TooLarge | RequestBodyError::TooSlow) => ProxyEnding::Refused,
            Self::Intake(RequestBodyError::Broken) => ProxyEnding::Left,
            Self::Unreached(_) | Self::Untrusted(_) | Self::Silent => ProxyEnding::Unreached,
            Self::Broken(_) => ProxyEnding::Broke,
        }
    }

    /// Name of the error in logs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Intake(_) => "intake",
            Self::Unreached(_) => "unreached",
            Self::Untrusted(_) => "tls",
            Self::Broken(_) => "broken",
            Self::Silent => "silent",
        }
    }

    /// Description for readers of logs. It contains nothing that the client sent.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Intake(error) => error.to_string(),
            Self::Unreached(why) | Self::Broken(why) => why.clone(),
            Self::Untrusted(fault) => fault.to_string(),
            Self::Silent => "no answer came in time".to_owned(),
        }
    }

    /// The error that the client is told.
    pub(super) fn trouble(&self, upstream: &str) -> GatewayError {
        let (status, code, message) = match self {
            Self::Intake(RequestBodyError::TooLarge) => return GatewayError::too_large(),
            Self::Intake(RequestBodyError::TooSlow) => return GatewayError::too_slow(),
            Self::Intake(RequestBodyError::Broken) => {
                (StatusCode::BAD_REQUEST, "broken_request", "the request broke off: send it again".to_owned())
            }
            Self::Unreached(why) => (
                StatusCode::BAD_GATEWAY,
                "unreached",
                format!(
                    "Epitome's gateway could not reach the upstream {upstream} ({why}): check its address, and the network"
                ),
            ),
            Self::Untrusted(fault) => (
                StatusCode::BAD_GATEWAY,
                "tls",
                format!(
                    "Epitome's gateway could not speak to the upstream {upstream} safely: {fault}; {}",
                    fault.advice()
                ),
            ),
            Self::Broken(why) => (
                StatusCode::BAD_GATEWAY,
                "broken",
                format!(
                    "the upstream {upstream} gave Epitome's gateway no answer that is HTTP ({why}): try again"
                ),
            ),
            Self::Silent => (
                StatusCode::GATEWAY_TIMEOUT,
                "silent",
                format!("the upstream {upstream} did not answer in time: try again, or raise limits.answer"),
            ),
        };
        GatewayError::new(status, code, message)
    }
}

/// TLS settings by which providers are verified. If no provider uses TLS, no certificates need be installed
/// here.
fn tls(is_secret: bool) -> anyhow::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("setting up TLS")?;
    if !is_secret {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let builder = builder
        .with_platform_verifier()
        .context("looking for the system's certificates: install them (ca-certificates)")?;
    Ok(builder.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(name: &str, formats: &[Format], models: &[&str]) -> config::UpstreamConfig {
        config::UpstreamConfig {
            name: name.to_owned(),
            base: Uri::from_static("http://127.0.0.1:9/base/"),
            formats: formats.to_vec(),
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            key: None,
        }
    }

    fn limits() -> GatewayLimits {
        let long = Duration::from_secs(1);
        GatewayLimits {
            body: 1,
            head: 1,
            requests: 1,
            client: long,
            upload: long,
            connect: long,
            answer: long,
            pause: long,
            notice: None,
            shutdown: long,
        }
    }

    #[test]
    fn the_first_that_takes_the_format_and_has_the_model_is_chosen() {
        let (chat, responses) = (Format::OpenaiChat, Format::OpenaiResponses);
        let all = vec![
            upstream("local", &[chat], &["qwen*", "llama*"]),
            upstream("openai", &[chat, responses], &[]),
            upstream("never", &[chat], &[]),
        ];
        let upstreams = UpstreamPool::new(all, &limits()).expect("they are well formed");
        let check = |formats: &[Format], model: Option<&str>, expect: Option<&str>| {
            assert_eq!(
                upstreams.choose(formats, model).map(|upstream| upstream.name()),
                expect,
                "{formats:?} {model:?}"
            );
        };
        check(&[chat], Some("qwen3"), Some("local"));
        check(&[chat], Some("gpt-5"), Some("openai"));
        check(&[chat], None, Some("openai"));
        check(&[responses], Some("qwen3"), Some("openai"));
        check(&[Format::Anthropic], Some("claude"), None);
        assert_eq!(upstreams.choice(&[chat]), UpstreamChoice::ByModel);
        assert_eq!(upstreams.choice(&[responses]), UpstreamChoice::Clear);
    }

    #[test]
    fn an_upstreams_own_folder_comes_before_the_path() {
        let upstream = Upstream::new(upstream("x", &[], &[])).expect("it is well formed");
        let uri = upstream.at(PathAndQuery::from_static("/v1/models?limit=1")).expect("an address");
        assert_eq!(uri, "http://127.0.0.1:9/base/v1/models?limit=1");
    }
}
