//! Telemetry of a gateway: a log line for each request, and with the feature `otel` a span.
//!
//! It contains names, sizes, times and ids: never a body, a header, a key or a query. Text from clients is
//! quoted and kept on one line.

mod log_escape;
#[cfg(feature = "otel")]
mod otel;

use std::{
    io,
    time::{Duration, SystemTime},
};

use anyhow::anyhow;
use epitome::{
    core::{SessionId, ThreadId, Tokens, event::Usage},
    observe::ObserveError,
    recorder::{ExchangeOutcome, RecordError},
};
use tokio::runtime::Handle;
use tracing::{Level, level_filters::LevelFilter, warn};
use tracing_subscriber::EnvFilter;

use super::{
    metrics::{FinishedRequest, UncomposedReason, UnrecordedReason},
    upstream::SendError,
};
use crate::config::{LogFormat, UpstreamConfig};
use log_escape::escape_for_log;

/// Keeps the exporter of spans alive. Dropping it flushes the remaining spans, which blocks for some seconds
/// at most. It must not be dropped in async code, nor after the runtime.
#[derive(Debug)]
pub(crate) struct TelemetryGuard {
    #[cfg(feature = "otel")]
    _spans: Option<otel::SpanExportGuard>,
}

/// A finished request, as logs and traces show it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "some of it is told in traces only"))]
pub(crate) struct RequestLogEntry<'a> {
    /// Counted numbers of the request.
    pub(crate) finished: &'a FinishedRequest<'a>,
    /// Path of the request, without its query.
    pub(crate) path: &'a str,
    /// Time of arrival.
    pub(crate) began: SystemTime,
    /// Provider that it was forwarded to.
    pub(crate) upstream: Option<&'a UpstreamConfig>,
    /// True if the answer was streamed.
    pub(crate) streamed: bool,
    /// Session and thread of its record.
    pub(crate) place: Option<RecordLocation>,
    /// The provider's id of the answer.
    pub(crate) answer: Option<&'a str>,
    /// The provider's name of the model that answered.
    pub(crate) answered_by: Option<&'a str>,
}

/// Session and thread in which a request was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    /// Session of the record.
    pub(crate) session: SessionId,
    /// Thread of the record.
    pub(crate) thread: ThreadId,
}

impl TelemetryGuard {
    /// Starts logging to standard error, at the level that `EPITOME_LOG` or `RUST_LOG` set. With the feature
    /// `otel`, spans are exported on `runtime` to the collector that the `OTEL_*` variables name.
    pub(crate) fn start(log: LogFormat, runtime: &Handle) -> anyhow::Result<Self> {
        let subscriber =
            tracing_subscriber::fmt().with_env_filter(filter()?).with_writer(io::stderr).with_target(false);
        let begun = match log {
            LogFormat::Text => subscriber.try_init(),
            LogFormat::Json => subscriber.json().flatten_event(true).with_current_span(true).try_init(),
        };
        begun.map_err(|error| anyhow!("cannot begin to log: {error}"))?;
        #[cfg(not(feature = "otel"))]
        let _ = runtime;
        Ok(Self {
            #[cfg(feature = "otel")]
            _spans: otel::SpanExportGuard::start(runtime)?,
        })
    }
}

/// Log filter from `EPITOME_LOG`, or else `RUST_LOG`, or else one that shows every line about requests.
fn filter() -> anyhow::Result<EnvFilter> {
    let said = ["EPITOME_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok().filter(|value| !value.trim().is_empty())?)));
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    match said {
        Some((name, value)) => builder.parse(value).map_err(|error| {
            anyhow!("{name} is no filter ({error}): set it to error, warn, info, debug or trace, or leave it unset")
        }),
        None => Ok(builder.parse_lossy("")),
    }
}

/// Logs a finished request.
pub(crate) fn log_request(told: &RequestLogEntry<'_>) {
    let FinishedRequest {
        principal,
        format,
        mode,
        status,
        ending,
        bytes_in,
        bytes_out,
        first_byte,
        took,
        model,
        usage,
    } = told.finished;
    let level = match ending {
        ExchangeOutcome::Complete | ExchangeOutcome::Refused | ExchangeOutcome::Cancelled => Level::INFO,
        ExchangeOutcome::Cut | ExchangeOutcome::Unreached => Level::WARN,
    };
    let used = |of: fn(&Usage) -> Tokens| usage.map(|usage| of(usage).0);
    // The level of an event has to be known at compile time.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                principal = named(principal),
                path = &*escape_for_log(told.path.split('?').next().unwrap_or_default()),
                format = format.map(|format| tracing::field::display(format)),
                mode = mode.name(),
                upstream = told.upstream.map(|upstream| upstream.name.as_str()),
                model = model.map(escape_for_log).as_deref(),
                status,
                ending = ending.name(),
                session = told.place.map(|place| tracing::field::display(place.session)),
                thread = told.place.map(|place| tracing::field::display(place.thread)),
                first_byte_ms = first_byte.map(milliseconds),
                took_ms = milliseconds(*took),
                bytes_in,
                bytes_out,
                input = used(|usage| usage.uncached),
                cached = used(|usage| usage.cache_read),
                written = used(|usage| usage.cache_write),
                output = used(|usage| usage.output),
                "done"
            )
        };
    }
    if level == Level::WARN {
        line!(Level::WARN);
    } else {
        line!(Level::INFO);
    }
    #[cfg(feature = "otel")]
    otel::tell(told);
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Logs that something was not recorded though it should have been. Only errors of the store are quoted:
/// errors about an unreadable request may contain parts of it.
pub(crate) fn unrecorded(reason: UnrecordedReason, error: Option<&RecordError>) {
    if let Some(RecordError::Store(error)) = error {
        warn!(reason = reason.name(), error = &*escape_for_log(&error.to_string()), "not recorded");
    } else {
        warn!(reason = reason.name(), "not recorded");
    }
}

/// Logs that a request got no answer.
pub(super) fn unanswered(principal: &str, upstream: &str, error: &SendError) {
    warn!(
        principal = named(principal),
        upstream,
        error = error.code(),
        reason = &*escape_for_log(&error.reason()),
        "a request got no answer"
    );
}

/// Name of a principal, unless it is empty.
fn named(principal: &str) -> Option<&str> {
    Some(principal).filter(|name| !name.is_empty())
}

/// Logs that a request was sent as it came though it was to be composed.
pub(crate) fn uncomposed(reason: UncomposedReason) {
    warn!(reason = reason.name(), "not composed");
}

/// Logs that a call could not be observed.
pub(crate) fn unobserved(error: &ObserveError) {
    warn!(error = &*escape_for_log(&error.to_string()), "not observed");
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use epitome::wire::Format;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::config::GatewayMode;

    /// Collects log output.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;
        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// Runs `work` and returns its log output, as text and as JSON.
    fn logged(work: impl Fn()) -> [String; 2] {
        [LogFormat::Text, LogFormat::Json].map(|log| {
            let kept = Kept::default();
            let to = tracing_subscriber::fmt().with_writer(kept.clone()).with_target(false).without_time();
            match log {
                LogFormat::Text => tracing::subscriber::with_default(to.finish(), &work),
                LogFormat::Json => {
                    tracing::subscriber::with_default(to.json().flatten_event(true).finish(), &work);
                }
            }
            let bytes = kept.0.lock().expect("no panic").clone();
            String::from_utf8(bytes).expect("UTF-8")
        })
    }

    fn tell_of(model: &str, path: &str) {
        let usage = Usage { uncached: Tokens(10), output: Tokens(5), ..Usage::default() };
        let finished = FinishedRequest {
            principal: "anna",
            format: Some(Format::OpenaiChat),
            mode: GatewayMode::Observe,
            status: Some(200),
            ending: ExchangeOutcome::Complete,
            bytes_in: 100,
            bytes_out: 200,
            first_byte: Some(Duration::from_millis(12)),
            took: Duration::from_millis(340),
            model: Some(model),
            usage: Some(&usage),
        };
        let place =
            RecordLocation { session: SessionId::derived(&["test"]), thread: ThreadId::derived(&["test"]) };
        let told = RequestLogEntry {
            finished: &finished,
            path,
            began: SystemTime::UNIX_EPOCH,
            upstream: None,
            streamed: false,
            place: Some(place),
            answer: None,
            answered_by: None,
        };
        log_request(&told);
    }

    #[test]
    fn a_request_is_one_line_with_its_ids_sizes_and_times() {
        let [text, json] = logged(|| tell_of("gpt-5", "/v1/chat/completions?key=canary"));
        for part in [
            "INFO done",
            "done principal=\"anna\" path=\"/v1/chat/completions\" format=openai-chat mode=\"observe\" model=\"gpt-5\" status=200",
            "first_byte_ms=12 took_ms=340 bytes_in=100 bytes_out=200 input=10",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let line: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(line["session"], SessionId::derived(&["test"]).to_string());
        assert_eq!((line["took_ms"].as_u64(), line["output"].as_u64()), (Some(340), Some(5)));
        assert!(!text.contains("canary") && !json.contains("canary"));
    }

    #[test]
    fn what_a_client_sends_never_makes_a_line_of_its_own() {
        let model = "x\" ending=\"complete\"\r\n2026 INFO forged\u{1b}[2J\u{2028}\u{9b}";
        for log in logged(|| tell_of(model, "/v1/\n\u{1b}")) {
            assert_eq!(log.lines().count(), 1, "{log}");
            assert!(!log.trim_end().contains(|letter: char| letter.is_control()), "{log}");
            assert!(!log.contains("x\" ending"), "{log}");
        }
    }

    #[test]
    fn of_a_request_that_cannot_be_read_nothing_is_quoted() {
        let error = Format::OpenaiChat
            .decode_request(r#"["canary"]"#)
            .map_err(RecordError::from)
            .expect_err("no request");
        for log in logged(|| unrecorded(UnrecordedReason::UnreadableRequest, Some(&error))) {
            assert!(log.contains("unreadable_request") && !log.contains("canary"), "{log}");
        }
    }
}
