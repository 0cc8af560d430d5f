//! A span of every model call, with the names that OpenTelemetry defines for calls of generative models.
//!
//! A span is made when a call has finished, and only from the attributes named here: no other logged text can
//! get into one.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use epitome::{core::Tokens, recorder::ExchangeOutcome, wire::Format};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry::{
    KeyValue, global,
    trace::{Span as _, SpanKind, Status, Tracer},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::Handle;

use super::{RequestLogEntry, log_escape::escape_for_log};

/// Most bytes of a collector's answer that are read.
const ANSWER: usize = 1 << 20;
/// Time limit of a collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Exporter of spans, for as long as this value exists.
#[derive(Debug)]
pub(super) struct SpanExportGuard {
    provider: SdkTracerProvider,
}

impl SpanExportGuard {
    /// Starts to export if the environment names a collector.
    pub(super) fn start(runtime: &Handle) -> anyhow::Result<Option<Self>> {
        let says = |name: &str| std::env::var(name).is_ok_and(|value| !value.trim().is_empty());
        let is_off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        let named = says("OTEL_EXPORTER_OTLP_ENDPOINT") || says("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        if is_off || !named {
            return Ok(None);
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(SpanSender::new(runtime.clone())?)
            .build()
            .context("cannot export spans: look at the OTEL_* variables")?;
        let mut resource = Resource::builder();
        if !says("OTEL_SERVICE_NAME") {
            resource = resource.with_service_name("epitome");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Some(Self { provider }))
    }
}

impl Drop for SpanExportGuard {
    fn drop(&mut self) {
        if self.provider.shutdown().is_err() {
            tracing::warn!("the last spans were not exported");
        }
    }
}

/// Exports a finished model call; other requests have no spans.
pub(super) fn tell(told: &RequestLogEntry<'_>) {
    if told.finished.format.is_some() {
        tell_to(&global::tracer("epitome"), told);
    }
}

fn tell_to<T: Tracer>(tracer: &T, told: &RequestLogEntry<'_>) {
    let name = told
        .finished
        .model
        .map_or_else(|| "chat".to_owned(), |model| format!("chat {}", escape_for_log(model)));
    let mut span = tracer
        .span_builder(name)
        .with_kind(SpanKind::Client)
        .with_start_time(told.began)
        .with_attributes(attributes(told))
        .start(tracer);
    if let Some(error) = error(told) {
        span.set_status(Status::error(error));
    }
    span.end_with_timestamp(told.began + told.finished.took);
}

/// Attributes of a call.
fn attributes(told: &RequestLogEntry<'_>) -> Vec<KeyValue> {
    let finished = told.finished;
    let mut said = vec![
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.request.stream", told.streamed),
        KeyValue::new("epitome.mode", finished.mode.name()),
        KeyValue::new("epitome.ending", finished.ending.name()),
    ];
    let provider = finished.format.map(Format::vendor);
    said.extend(provider.map(|provider| KeyValue::new("gen_ai.provider.name", provider)));
    let text = |name: &'static str, text: Option<&str>| {
        text.map(|text| KeyValue::new(name, escape_for_log(text).into_owned()))
    };
    said.extend(text("enduser.id", Some(finished.principal).filter(|name| !name.is_empty())));
    said.extend(text("gen_ai.request.model", finished.model));
    said.extend(text("gen_ai.response.model", told.answered_by));
    said.extend(text("gen_ai.response.id", told.answer));
    if let Some(place) = told.place {
        said.push(KeyValue::new("gen_ai.conversation.id", place.session.to_string()));
        said.push(KeyValue::new("epitome.thread.id", place.thread.to_string()));
    }
    if let Some(usage) = finished.usage {
        let mut count = |name: &'static str, tokens: Tokens| {
            said.push(KeyValue::new(name, i64::try_from(tokens.0).unwrap_or(i64::MAX)));
        };
        count("gen_ai.usage.input_tokens", usage.input());
        count("gen_ai.usage.output_tokens", usage.output);
        count("gen_ai.usage.cache_read.input_tokens", usage.cache_read);
        count("gen_ai.usage.cache_write.input_tokens", usage.cache_write);
    }
    if let Some(first_byte) = finished.first_byte {
        said.push(KeyValue::new("gen_ai.response.time_to_first_chunk", first_byte.as_secs_f64()));
    }
    if let Some(status) = finished.status {
        said.push(KeyValue::new("http.response.status_code", i64::from(status)));
    }
    if let Some(base) = told.upstream.map(|upstream| &upstream.base) {
        said.push(KeyValue::new("server.address", base.host().unwrap_or_default().to_owned()));
        let usual = if base.scheme_str() == Some("http") { 80 } else { 443 };
        said.push(KeyValue::new("server.port", i64::from(base.port_u16().unwrap_or(usual))));
    }
    said.extend(error(told).map(|error| KeyValue::new("error.type", error)));
    said
}

/// The error in a word: a status, or the call's ending.
fn error(told: &RequestLogEntry<'_>) -> Option<String> {
    let refused = told.finished.status.filter(|status| *status >= 400).map(|status| status.to_string());
    match &told.finished.ending {
        ExchangeOutcome::Complete => refused,
        ending @ (ExchangeOutcome::Refused
        | ExchangeOutcome::Cut
        | ExchangeOutcome::Cancelled
        | ExchangeOutcome::Unreached) => refused.or_else(|| Some(ending.name().to_owned())),
    }
}

/// Sends spans on the gateway's own runtime, because the exporter's thread has none.
struct SpanSender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
}

impl SpanSender {
    fn new(runtime: Handle) -> anyhow::Result<Self> {
        use rustls_platform_verifier::BuilderVerifierExt;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(BuilderVerifierExt::with_platform_verifier)
            .context("cannot export spans: the system's certificates cannot be read")?
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), runtime })
    }
}

impl fmt::Debug for SpanSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl HttpClient for SpanSender {
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        let client = self.client.clone();
        let sending = async move {
            let response = client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        // Even a timer can only be created inside the runtime.
        let sent = self.runtime.spawn(async move { tokio::time::timeout(EXPORT_TIMEOUT, sending).await });
        Box::pin(async move { sent.await?? })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::{Arc, Mutex},
        time::SystemTime,
    };

    use epitome::core::{SessionId, ThreadId, event::Usage};
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_otlp::WithExportConfig as _;
    use opentelemetry_sdk::{error::OTelSdkResult, trace::SpanData};

    use super::*;
    use crate::config::{GatewayMode, UpstreamConfig};
    use crate::gateway::{metrics::FinishedRequest, telemetry::RecordLocation};

    /// Collects exported bytes.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl opentelemetry_sdk::trace::SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().expect("no panic").extend(batch);
            Ok(())
        }
    }

    fn exported(told: &RequestLogEntry<'_>) -> SpanData {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        tell_to(&provider.tracer("test"), told);
        let mut spans = kept.0.lock().expect("no panic");
        spans.pop().expect("a span")
    }

    fn said(span: &SpanData) -> BTreeMap<String, String> {
        span.attributes.iter().map(|said| (said.key.to_string(), said.value.to_string())).collect()
    }

    /// Runs a check with a successful call.
    fn with_call(see: impl FnOnce(&RequestLogEntry<'_>)) {
        let usage = Usage {
            uncached: Tokens(10),
            cache_read: Tokens(200),
            cache_write: Tokens(30),
            output: Tokens(7),
            ..Usage::default()
        };
        let finished = FinishedRequest {
            principal: "anna",
            format: Some(Format::Anthropic),
            mode: GatewayMode::Record,
            status: Some(200),
            ending: ExchangeOutcome::Complete,
            bytes_in: 1,
            bytes_out: 2,
            first_byte: Some(Duration::from_millis(500)),
            took: Duration::from_secs(3),
            model: Some("claude-opus-4-5"),
            usage: Some(&usage),
        };
        let upstream = UpstreamConfig {
            name: "anthropic".to_owned(),
            base: "https://api.anthropic.com".parse().expect("an address"),
            formats: vec![Format::Anthropic],
            models: Vec::new(),
            key: Some("sk-canary".to_owned().into()),
        };
        let place =
            RecordLocation { session: SessionId::derived(&["test"]), thread: ThreadId::derived(&["test"]) };
        let told = RequestLogEntry {
            finished: &finished,
            path: "/v1/messages?beta=canary",
            began: SystemTime::UNIX_EPOCH,
            upstream: Some(&upstream),
            streamed: true,
            place: Some(place),
            answer: Some("msg_1"),
            answered_by: Some("claude-opus-4-5-20251101"),
        };
        see(&told);
    }

    #[test]
    fn a_call_is_a_span_with_the_names_that_are_agreed_on() {
        with_call(|told| {
            let span = exported(told);
            let kind = span.span_kind.clone();
            assert_eq!((span.name.as_ref(), kind), ("chat claude-opus-4-5", SpanKind::Client));
            assert_eq!(span.end_time, SystemTime::UNIX_EPOCH + Duration::from_secs(3));
            let place = told.place.expect("it was recorded");
            let (session, thread) = (place.session.to_string(), place.thread.to_string());
            let expect = [
                ("enduser.id", "anna"),
                ("epitome.ending", "complete"),
                ("epitome.mode", "record"),
                ("epitome.thread.id", &thread),
                ("gen_ai.conversation.id", &session),
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", "anthropic"),
                ("gen_ai.request.model", "claude-opus-4-5"),
                ("gen_ai.request.stream", "true"),
                ("gen_ai.response.id", "msg_1"),
                ("gen_ai.response.model", "claude-opus-4-5-20251101"),
                ("gen_ai.response.time_to_first_chunk", "0.5"),
                ("gen_ai.usage.cache_read.input_tokens", "200"),
                ("gen_ai.usage.cache_write.input_tokens", "30"),
                ("gen_ai.usage.input_tokens", "240"),
                ("gen_ai.usage.output_tokens", "7"),
                ("http.response.status_code", "200"),
                ("server.address", "api.anthropic.com"),
                ("server.port", "443"),
            ];
            let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(said(&span), BTreeMap::from(expect));
        });
    }

    #[test]
    fn a_call_that_failed_says_how() {
        with_call(|told| {
            let cut = FinishedRequest { ending: ExchangeOutcome::Cut, ..told.finished.clone() };
            let refused = FinishedRequest {
                status: Some(429),
                ending: ExchangeOutcome::Refused,
                ..told.finished.clone()
            };
            for (finished, expect) in [(&cut, "cut"), (&refused, "429")] {
                let span = exported(&RequestLogEntry { finished, ..*told });
                assert_eq!(said(&span)["error.type"], expect);
                assert_eq!(span.status, Status::error(expect));
            }
        });
    }

    #[test]
    fn spans_reach_a_collector_over_http_and_bring_no_secret() {
        let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}/v1/traces", collector.local_addr().expect("an address"));
        let received = std::thread::spawn(move || {
            let (mut stream, _) = collector.accept().expect("a connection");
            let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
            // The last attribute shows that the request is complete.
            while !String::from_utf8_lossy(&received).contains("server.port") {
                let read = stream.read(&mut buffer).expect("bytes");
                assert!(read > 0, "{}", String::from_utf8_lossy(&received));
                received.extend_from_slice(&buffer[..read]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a reader");
            String::from_utf8_lossy(&received).into_owned()
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let sender = SpanSender::new(runtime.handle().clone()).expect("certificates");
        let exporter = SpanExporter::builder().with_http().with_http_client(sender).with_endpoint(endpoint);
        let exporter = exporter.build().expect("an exporter");
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        with_call(|told| tell_to(&provider.tracer("test"), told));
        provider.shutdown().expect("exported");
        let received = received.join().expect("a collector");
        assert!(received.starts_with("POST /v1/traces HTTP/1.1"), "{received}");
        assert!(received.contains("gen_ai.request.model"), "{received}");
        assert!(!received.contains("canary"), "{received}");
    }
}
