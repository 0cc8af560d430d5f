//! Sources of the summaries of sessions: the built-in summariser, one model for all, or each session's own
//! model.
//!
//! A session's own model is asked at the provider that its newest request went to, with the headers of that
//! request, because only the client has the key. These headers are held for as long as the session is
//! remembered, and only that provider ever sees them.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use epitome::{
    core::{
        Tokens,
        profile::{ModelWindow, Profiles},
    },
    rewrite,
    session::WarmRequestMode,
    summarise::{
        ApiKey, MAX_ANSWER_BYTES, MAX_ERROR_BYTES, ModelDraft, RemoteSummariser, RetryLimits,
        ServerAnswerReader, ServerTimeouts, SummariserScope, Summarize, SummarizeError, SummaryFuture,
        SummaryRequest, TimeoutStep, limit_name,
        retry::{RetryJitter, ask_with_retries},
    },
    wire::{Format, plain_request::PlainRequest},
};
use http::{HeaderMap, Request, Uri, header, request::Parts, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    decompress::{ContentCoding, expand},
    headers,
    request_body::{BodyFraming, OutboundBody},
    upstream::{SendError, UpstreamPool},
};
use crate::config;

/// Window of a model whose size is unknown.
const DEFAULT_MODEL_WINDOW: Tokens = Tokens(128_000);

/// Most letters of a model's name that logs quote.
const LETTERS: usize = 128;

/// Shortest value that counts as a secret; a shorter one may be a word of the conversation.
const MIN_SECRET_LETTERS: usize = 6;

/// Source of summaries.
#[derive(Debug)]
pub(super) enum SessionSummarisers {
    /// The built-in summariser.
    BuiltIn,
    /// One model for all sessions.
    Model(rewrite::SessionSummariser),
    /// The model of each session.
    Session {
        /// Profiles of known models.
        profiles: Arc<Profiles>,
        /// Window of these models according to the configuration.
        window: Option<Tokens>,
        /// Time limits of a request for a summary.
        timeouts: ServerTimeouts,
    },
}

impl SessionSummarisers {
    /// Follows the configuration; `time` is how long a summary may take, `window` the configured window of
    /// the sessions' models.
    pub(super) fn new(
        config: config::ConfiguredSummariser,
        time: Duration,
        window: Option<Tokens>,
        profiles: &Arc<Profiles>,
    ) -> anyhow::Result<Self> {
        match config {
            config::ConfiguredSummariser::BuiltIn => Ok(Self::BuiltIn),
            config::ConfiguredSummariser::Session => {
                let timeouts = ServerTimeouts::of(time);
                Ok(Self::Session { profiles: Arc::clone(profiles), window, timeouts })
            }
            config::ConfiguredSummariser::Model { ref model, .. } => {
                let (model, warm) = (model.clone(), WarmRequestMode::Never);
                let summarise = remote(config, time, window, profiles)?.context("a model is remote")?;
                Ok(Self::Model(rewrite::SessionSummariser { summarise, model, warm }))
            }
        }
    }

    /// Access to the session's model that a request with this head provides.
    pub(super) fn model_access(&self, head: &Parts, format: Format) -> Option<Arc<ModelAccess>> {
        match self {
            Self::BuiltIn | Self::Model(_) => None,
            Self::Session { .. } => Some(Arc::new(ModelAccess::of(head, format))),
        }
    }

    /// Summariser for the session of a request, by the model that it asks for.
    pub(super) fn of(
        &self,
        upstreams: &Arc<UpstreamPool>,
        (format, model): (Format, &str),
        means: Option<&Arc<ModelAccess>>,
    ) -> Option<rewrite::SessionSummariser> {
        match self {
            Self::BuiltIn => None,
            Self::Model(summariser) => Some(summariser.clone()),
            Self::Session { profiles, window, timeouts } => {
                let (means, model) = (Arc::clone(means?), model.to_owned());
                // The smaller window holds, because the larger one is more than one side accepts.
                let window = [known(profiles, &model), *window]
                    .into_iter()
                    .flatten()
                    .min()
                    .unwrap_or(DEFAULT_MODEL_WINDOW);
                let upstreams = Arc::clone(upstreams);
                let name = format!("{} at {}", shown(&model), means.host());
                let timeouts = *timeouts;
                let own =
                    SessionModel { upstreams, means, format, name, model: model.clone(), window, timeouts };
                Some(rewrite::SessionSummariser {
                    summarise: Arc::new(own),
                    model,
                    warm: WarmRequestMode::IfCheaper,
                })
            }
        }
    }
}

/// The model of a configuration with an address of its own; `None` if it has none.
pub(crate) fn remote(
    config: config::ConfiguredSummariser,
    time: Duration,
    window: Option<Tokens>,
    profiles: &Profiles,
) -> anyhow::Result<Option<Arc<dyn Summarize>>> {
    let config::ConfiguredSummariser::Model { model, base, format, key } = config else { return Ok(None) };
    let address = format!("{}/v1", base.to_string().trim_end_matches('/'));
    let key = key.map(|key| ApiKey::new(key.expose_secret())).transpose();
    let window = known(profiles, &model).or(window).unwrap_or(DEFAULT_MODEL_WINDOW);
    let remote = RemoteSummariser::builder(format, address, model.as_str(), window)
        .key(key.context("reading the key of the summariser")?)
        .timeouts(ServerTimeouts::of(time))
        .build()?;
    Ok(Some(Arc::new(remote)))
}

/// Window of a model according to the profiles.
fn known(profiles: &Profiles, model: &str) -> Option<Tokens> {
    match profiles.find(model).ok()?.window {
        ModelWindow::Of(window) => Some(window),
        ModelWindow::Unknown | ModelWindow::Unlimited => None,
    }
}

/// Cleans a model's name for the logs, because clients may use any text as a name.
fn shown(model: &str) -> String {
    let letter = |letter: char| if letter.is_control() { '_' } else { letter };
    model.chars().take(LETTERS).map(letter).collect()
}

/// Access to a session's model: the address of a request and its headers, with which another request of the
/// session can be sent.
pub(super) struct ModelAccess {
    uri: Uri,
    headers: HeaderMap,
    /// Values that must never be shown.
    secrets: Vec<SecretString>,
}

impl fmt::Debug for ModelAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Means(…)")
    }
}

impl ModelAccess {
    fn of(head: &Parts, format: Format) -> Self {
        let secrets = secrets(&head.headers, head.uri.query().unwrap_or_default());
        Self { uri: place(&head.uri, format), headers: headers::for_summary_request(&head.headers), secrets }
    }

    fn host(&self) -> &str {
        self.uri.authority().map_or("nowhere", |authority| authority.as_str())
    }
}

/// Address for a request of our own: it continues a history, and its answer comes in one piece.
fn place(uri: &Uri, format: Format) -> Uri {
    let shorter = || {
        let path = format.whole_call(uri.path_and_query()?.as_str())?;
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
        Uri::from_parts(parts).ok()
    };
    shorter().unwrap_or_else(|| uri.clone())
}

/// Collects everything in a request's headers and query that may be a key.
fn secrets(headers: &HeaderMap, query: &str) -> Vec<SecretString> {
    let mut found: Vec<&str> = Vec::new();
    for (_, value) in headers.iter().filter(|(name, _)| is_secret(name.as_str())) {
        let Ok(value) = value.to_str() else { continue };
        let pairs = value.split(';').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
        found.extend(pairs.chain(value.split_whitespace().last()).chain([value]).map(str::trim));
    }
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    found.extend(pairs.filter(|(name, _)| is_secret(name)).map(|(_, value)| value));
    found.retain(|value| value.len() >= MIN_SECRET_LETTERS);
    // Longer values are removed first, because they may contain shorter ones.
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    found.dedup();
    found.into_iter().map(SecretString::from).collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["auth", "key", "token", "secret", "cookie", "password", "credential", "signature"];
    words.iter().any(|word| name.contains(word))
}

/// A session's own model, asked with the access of one request.
struct SessionModel {
    upstreams: Arc<UpstreamPool>,
    means: Arc<ModelAccess>,
    format: Format,
    name: String,
    model: String,
    window: Tokens,
    timeouts: ServerTimeouts,
}

impl fmt::Debug for SessionModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, format, window, .. } = self;
        f.debug_struct("Own")
            .field("name", name)
            .field("format", format)
            .field("window", window)
            .finish_non_exhaustive()
    }
}

impl Summarize for SessionModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> Tokens {
        self.window
    }

    fn scope(&self) -> SummariserScope {
        SummariserScope::Session
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(async move {
            let body = self.body(request);
            let jitter = RetryJitter::new(Uuid::now_v7().as_u64_pair().1);
            ask_with_retries(&RetryLimits::default(), jitter, || self.once(body.clone())).await
        })
    }
}

impl SessionModel {
    fn body(&self, request: &SummaryRequest) -> Bytes {
        // The session's own request asks for an answer in one piece from the model that continued it.
        let body = request.warm.clone().unwrap_or_else(|| {
            self.format.write_plain_request(&PlainRequest {
                model: &self.model,
                system: &request.system,
                user: &request.user,
                limit: request.limit,
                limit_name: limit_name(self.means.uri.host().unwrap_or_default()),
            })
        });
        Bytes::from(self.format.without_target(&body).into_owned())
    }

    /// Asks once. The timeout covers the whole answer.
    async fn once(&self, body: Bytes) -> Result<ModelDraft, SummarizeError> {
        let asked = timeout(self.timeouts.whole, self.exchange(body)).await;
        asked.unwrap_or_else(|_| Err(self.late(TimeoutStep::Whole)))
    }

    async fn exchange(&self, body: Bytes) -> Result<ModelDraft, SummarizeError> {
        let mut request = Request::post(self.means.uri.clone())
            .body(OutboundBody::whole(body, BodyFraming::Length))
            .map_err(|error| self.broken("making the question", error))?;
        *request.headers_mut() = self.means.headers.clone();
        let sent = timeout(self.timeouts.first_byte, self.upstreams.send(request)).await;
        let sent = sent.map_err(|_| self.late(TimeoutStep::FirstByte))?;
        let (head, body) = sent.map_err(|error| self.unsent(error))?.into_parts();
        let status = head.status.as_u16();
        let reading =
            ServerAnswerReader { format: self.format, host: self.means.host(), secrets: &self.means.secrets };
        if head.status.is_redirection() {
            let to = head.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| to.parse::<Uri>().ok()).and_then(|to| to.host().map(str::to_owned));
            return Err(reading.redirected(to.as_deref()));
        }
        let coding = ContentCoding::of(&head.headers);
        if head.status.is_success() {
            let body = self.read(body).await?;
            let body = expand(coding, &body, MAX_ANSWER_BYTES).map_err(|_| self.too_large())?;
            return reading.answered(&String::from_utf8_lossy(&body));
        }
        let body = expand(coding, &read_some(body).await, MAX_ERROR_BYTES).unwrap_or_default();
        Err(reading.refused(status, &head.headers, &String::from_utf8_lossy(&body)))
    }

    /// Reads a whole answer.
    async fn read(&self, mut body: Incoming) -> Result<Vec<u8>, SummarizeError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken("reading the answer", error))?;
            let data = frame.into_data().unwrap_or_default();
            if bytes.len() + data.len() > MAX_ANSWER_BYTES {
                return Err(self.too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    fn unsent(&self, error: SendError) -> SummarizeError {
        match error {
            SendError::Silent => self.late(TimeoutStep::FirstByte),
            SendError::Unreached(why) | SendError::Broken(why) => self.broken("sending the question", why),
            SendError::Untrusted(fault) => self.broken("sending the question", fault.to_string()),
            SendError::Intake(error) => self.broken("sending the question", error),
        }
    }

    fn late(&self, waited: TimeoutStep) -> SummarizeError {
        let ServerTimeouts { connect, first_byte, whole } = self.timeouts;
        let after = match waited {
            TimeoutStep::Connection => connect,
            TimeoutStep::FirstByte => first_byte.min(self.upstreams.patience()),
            TimeoutStep::Whole => whole,
        };
        SummarizeError::Timeout { host: self.means.host().to_owned(), waited, after }
    }

    fn too_large(&self) -> SummarizeError {
        SummarizeError::TooLarge { host: self.means.host().to_owned(), limit: MAX_ANSWER_BYTES }
    }

    fn broken(&self, doing: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> SummarizeError {
        SummarizeError::Io { host: self.means.host().to_owned(), doing, source: source.into() }
    }
}

/// Reads the beginning of an error's body, as much as can be read.
async fn read_some(mut body: Incoming) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
        if bytes.len() >= MAX_ERROR_BYTES {
            bytes.truncate(MAX_ERROR_BYTES);
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn whatever_may_be_a_key_is_known_as_one_and_shown_by_nothing() {
        let head = head(
            "https://h/v1/messages?beta=true&api_key=canary-query",
            &[
                ("authorization", "Bearer canary-bearer"),
                ("x-api-key", "canary-plain"),
                ("cookie", "a=1; session=canary-cookie"),
                ("anthropic-version", "2023-06-01"),
            ],
        );
        let means = Arc::new(ModelAccess::of(&head, Format::Anthropic));
        let secrets: Vec<&str> = means.secrets.iter().map(ExposeSecret::expose_secret).collect();
        for secret in ["canary-query", "canary-bearer", "canary-plain", "canary-cookie"] {
            assert!(secrets.contains(&secret), "{secret} of {secrets:?}");
        }
        assert!(!secrets.iter().any(|secret| ["true", "1", "2023-06-01"].contains(secret)), "{secrets:?}");
        assert_eq!(format!("{means:?}"), "Means(…)");
        let (profiles, timeouts) = (Arc::new(Profiles::builtin()), ServerTimeouts::default());
        let summarisers = SessionSummarisers::Session { profiles, window: None, timeouts };
        let upstreams = Arc::new(
            UpstreamPool::new(Vec::new(), &config::GatewayLimits::default()).expect("nobody is somebody"),
        );
        let own = summarisers.of(&upstreams, (Format::Anthropic, "m\n"), Some(&means)).expect("a model");
        let shown = format!("{own:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!((own.summarise.name(), own.summarise.window()), ("m_ at h", DEFAULT_MODEL_WINDOW));
        assert_eq!((own.model.as_str(), own.warm), ("m\n", WarmRequestMode::IfCheaper));
    }

    #[test]
    fn a_window_is_what_its_profile_says_and_no_more_than_somebody_says() {
        let profiles = Arc::new(Profiles::builtin());
        let upstreams = Arc::new(
            UpstreamPool::new(Vec::new(), &config::GatewayLimits::default()).expect("nobody is somebody"),
        );
        let means = Arc::new(ModelAccess::of(&head("https://h/v1/messages", &[]), Format::Anthropic));
        for (model, window, expect) in [
            ("m", None, DEFAULT_MODEL_WINDOW.0),
            ("m", Some(9_000), 9_000),
            ("claude-opus-4-5", None, 200_000),
            ("claude-opus-4-5", Some(90_000), 90_000),
            ("claude-opus-4-5", Some(900_000), 200_000),
        ] {
            let (window_said, timeouts) = (window.map(Tokens), ServerTimeouts::default());
            let profiles = Arc::clone(&profiles);
            let summarisers = SessionSummarisers::Session { profiles, window: window_said, timeouts };
            let own = summarisers.of(&upstreams, (Format::Anthropic, model), Some(&means));
            assert_eq!(own.expect("a model").summarise.window(), Tokens(expect), "{model} {window:?}");
        }
    }

    #[test]
    fn a_question_is_asked_where_a_history_is_gone_on_with() {
        for (uri, expect) in [
            ("https://h/v1/messages?beta=true", "https://h/v1/messages?beta=true"),
            ("http://h:1/x/v1/responses/compact?a=b", "http://h:1/x/v1/responses?a=b"),
            ("https://h/v1/responses", "https://h/v1/responses"),
        ] {
            assert_eq!(place(&uri.parse().expect("an address"), Format::OpenaiResponses), expect);
        }
    }
}
