//! A model at an address: asked over HTTP in its provider's format.
//!
//! A server may be slow, rude or broken, and none of that may affect the session. Every wait is limited, an
//! answer is read up to a size, redirects are not followed with a key in hand, and the environment's proxies
//! are not used. Every answer is searched for the key before it is passed on: some servers echo what they
//! were sent.

use std::{
    error::Error,
    fmt,
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use epitome_core::Tokens;
use epitome_wire::{
    Format,
    endpoint::KeyHeader,
    plain_request::{OutputLimitName, PlainRequest},
};
use reqwest::{
    Client, Response, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::{
    ModelDraft, Summarize, SummarizeError, SummaryFuture, SummaryRequest, TimeoutStep,
    api_key::ApiKey,
    retry::{RetryJitter, RetryLimits, ask_with_retries},
};

mod address;
mod answer;

pub use self::{address::limit_name, answer::ServerAnswerReader};

/// A model at an address.
pub struct RemoteSummariser {
    client: Client,
    format: Format,
    url: Url,
    host: String,
    name: String,
    model: String,
    key: Option<ApiKey>,
    window: Tokens,
    limit_name: OutputLimitName,
    timeouts: ServerTimeouts,
    largest: usize,
    retries: RetryLimits,
    /// Seed of the next question's jitter.
    seed: AtomicU64,
}

/// Time limits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// Limit for connecting.
    pub connect: Duration,
    /// Limit for the first byte of the answer. A server that does not stream begins when it has written
    /// everything.
    pub first_byte: Duration,
    /// Limit for the whole request, which also ends a slow trickle of bytes.
    pub whole: Duration,
}

impl ServerTimeouts {
    /// Limits with `whole` for the whole answer and for its first byte. Connecting has a shorter one, because
    /// a missing server shows sooner.
    pub fn of(whole: Duration) -> Self {
        Self { connect: Self::default().connect.min(whole), first_byte: whole, whole }
    }
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(4),
            whole: Duration::from_mins(5),
        }
    }
}

/// Largest answer that is read: far more than any summary.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Most bytes of an error that are read.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// Reason why a summariser cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SummariserBuildError {
    /// The address is invalid.
    #[error("setting up a summariser: its address cannot be read; give one such as https://host/v1")]
    Address {
        /// Error of the parser.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The address is not an HTTP one, or contains a user name.
    #[error(
        "setting up a summariser at {host}: {what}; give an address such as https://host/v1, and the key by itself"
    )]
    Unfit {
        /// Host of the address.
        host: String,
        /// Description of the problem.
        what: &'static str,
    },
    /// The HTTP client cannot be created.
    #[error("setting up a summariser at {host}: there is no HTTP client; check the system's certificates")]
    Client {
        /// Host of the address.
        host: String,
        /// Error of the client.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Settings for a [`RemoteSummariser`].
#[derive(Debug)]
#[must_use = "it asks nobody before it is built"]
pub struct RemoteSummariserBuilder {
    format: Format,
    address: String,
    model: String,
    window: Tokens,
    key: Option<ApiKey>,
    limit_name: Option<OutputLimitName>,
    timeouts: ServerTimeouts,
    largest: usize,
    retries: RetryLimits,
    seed: Option<u64>,
}

impl RemoteSummariserBuilder {
    /// Sets the key. Without one, none is sent.
    pub fn key(mut self, key: impl Into<Option<ApiKey>>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the time limits.
    pub fn timeouts(mut self, timeouts: ServerTimeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the retries.
    pub fn retries(mut self, retries: RetryLimits) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the most bytes of an answer that are read.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// Sets the name of the answer's limit for a Chat server. By default OpenAI's own hosts get the name that
    /// all their models accept, and all others the name that all servers understand.
    pub fn limit_name(mut self, name: OutputLimitName) -> Self {
        self.limit_name = Some(name);
        self
    }

    /// Sets the seed of the random waits, so that a test is repeatable.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the summariser.
    pub fn build(self) -> Result<RemoteSummariser, SummariserBuildError> {
        let (url, host) = address::endpoint(self.format, &self.model, &self.address)?;
        provide_tls();
        let client = Client::builder()
            .connect_timeout(self.timeouts.connect)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .user_agent(concat!("epitome/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SummariserBuildError::Client {
                host: host.clone(),
                source: error.without_url().into(),
            })?;
        let limit_name = self.limit_name.unwrap_or_else(|| limit_name(url.host_str().unwrap_or_default()));
        // Any number does, as long as two processes do not start with the same.
        let seed = self.seed.unwrap_or_else(|| uuid::Uuid::now_v7().as_u64_pair().1);
        Ok(RemoteSummariser {
            client,
            format: self.format,
            name: format!("{} at {host}", self.model),
            url,
            host,
            model: self.model,
            key: self.key,
            window: self.window,
            limit_name,
            timeouts: self.timeouts,
            largest: self.largest,
            retries: self.retries,
            seed: AtomicU64::new(seed),
        })
    }
}

/// Chooses the cryptography of rustls for this process, unless the application has chosen one.
fn provide_tls() {
    static PROVIDED: Once = Once::new();
    PROVIDED.call_once(|| {
        let _theirs = rustls::crypto::ring::default_provider().install_default();
    });
}

impl RemoteSummariser {
    /// A model at an address: `https://host/v1`, or the whole URL of the endpoint. `window` is its context
    /// window, including the answer.
    ///
    /// ```
    /// use epitome::{ApiKey, Format, RemoteSummariser, Summarize, Tokens};
    ///
    /// let summariser = RemoteSummariser::builder(Format::OpenaiChat, "http://127.0.0.1:8080/v1", "small", Tokens(8_192))
    ///     .key(ApiKey::new("not-needed-here")?)
    ///     .build()?;
    /// assert_eq!(summariser.name(), "small at 127.0.0.1:8080");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(
        format: Format,
        address: impl Into<String>,
        model: impl Into<String>,
        window: Tokens,
    ) -> RemoteSummariserBuilder {
        RemoteSummariserBuilder {
            format,
            address: address.into(),
            model: model.into(),
            window,
            key: None,
            limit_name: None,
            timeouts: ServerTimeouts::default(),
            largest: MAX_ANSWER_BYTES,
            retries: RetryLimits::default(),
            seed: None,
        }
    }

    fn body(&self, request: &SummaryRequest) -> String {
        match &request.warm {
            Some(body) => body.clone(),
            None => self.format.write_plain_request(&PlainRequest {
                model: &self.model,
                system: &request.system,
                user: &request.user,
                limit: request.limit,
                limit_name: self.limit_name,
            }),
        }
    }

    /// Asks once. The timeout covers the whole answer.
    async fn once(&self, body: &str) -> Result<ModelDraft, SummarizeError> {
        let key = self.key.as_ref().map(ApiKey::reveal).transpose();
        let key = key.map_err(|source| SummarizeError::Key { host: self.host.clone(), source })?;
        let asked = timeout(self.timeouts.whole, self.exchange(body, key.as_ref()));
        asked.await.unwrap_or_else(|_| Err(self.late(TimeoutStep::Whole, self.timeouts.whole)))
    }

    async fn exchange(&self, body: &str, key: Option<&SecretString>) -> Result<ModelDraft, SummarizeError> {
        let post = self
            .client
            .post(self.url.clone())
            .headers(headers(self.format, key))
            .body(self.format.without_target(body).into_owned());
        let sent = timeout(self.timeouts.first_byte, post.send()).await;
        let response = sent
            .map_err(|_| self.late(TimeoutStep::FirstByte, self.timeouts.first_byte))?
            .map_err(|error| self.broken("sending the question", error))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let secrets = key.map(std::slice::from_ref).unwrap_or_default();
        let reading = ServerAnswerReader { format: self.format, host: &self.host, secrets };
        if (300..400).contains(&status) {
            let to = headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| self.url.join(to).ok());
            return Err(reading.redirected(to.as_ref().map(address::host).as_deref()));
        }
        if (200..300).contains(&status) {
            let body = self.read(response, self.largest).await?;
            return reading.answered(&body);
        }
        // As much of an error's body is quoted as could be read; a second error would only hide the first.
        let body = self.read_some(response, MAX_ERROR_BYTES).await;
        Err(reading.refused(status, &headers, &body))
    }

    /// Reads a whole answer.
    async fn read(&self, mut response: Response, limit: usize) -> Result<String, SummarizeError> {
        let mut bytes = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.broken("reading the answer", error))?
        {
            if bytes.len() + chunk.len() > limit {
                return Err(SummarizeError::TooLarge { host: self.host.clone(), limit });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
    }

    /// Reads the beginning of an answer.
    async fn read_some(&self, mut response: Response, limit: usize) -> String {
        let mut bytes = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() >= limit {
                bytes.truncate(limit);
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn late(&self, waited: TimeoutStep, after: Duration) -> SummarizeError {
        SummarizeError::Timeout { host: self.host.clone(), waited, after }
    }

    /// Makes an error of a failed connection. Its URL may hold a key and is removed.
    fn broken(&self, doing: &'static str, error: reqwest::Error) -> SummarizeError {
        if error.is_connect() && error.is_timeout() {
            return self.late(TimeoutStep::Connection, self.timeouts.connect);
        }
        SummarizeError::Io { host: self.host.clone(), doing, source: error.without_url().into() }
    }
}

impl Summarize for RemoteSummariser {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> Tokens {
        self.window
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(async move {
            let body = self.body(request);
            let jitter = RetryJitter::new(self.seed.fetch_add(1, Ordering::Relaxed));
            ask_with_retries(&self.retries, jitter, || self.once(&body)).await
        })
    }
}

impl fmt::Debug for RemoteSummariser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a key in its query.
        f.debug_struct("Remote")
            .field("name", &self.name)
            .field("format", &self.format)
            .field("window", &self.window)
            .field("timeouts", &self.timeouts)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

/// Headers of every question.
fn headers(format: Format, key: Option<&SecretString>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let endpoint = format.endpoint();
    for (name, value) in endpoint.headers {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    let named = key.map(|key| match endpoint.key {
        KeyHeader::Named(name) => (HeaderName::from_static(name), key.expose_secret().to_owned()),
        KeyHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
    });
    if let Some((name, value)) = named {
        let mut value =
            HeaderValue::from_str(&value).expect("a key is checked to be plain ASCII on one line");
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}
