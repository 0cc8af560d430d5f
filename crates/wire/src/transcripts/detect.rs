//! Recognition of the agent that wrote a file, from its content.
//!
//! A file is one JSON document or a JSON value per line. Every reader decides whether a value is its own from a
//! sketch of it alone; the first value that one of them knows decides.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, value::RawValue};

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, claude_code, codex, epitome, gemini, gemini_requests,
    json_lines::{TranscriptLimits, lines},
    opencode, openhands, pi, provider_messages,
    shape_probe::{sketch, too_deep},
    swe_agent, tau_bench, tau2,
};

/// Reads a file that is not compressed.
pub(super) fn read(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    match document(bytes) {
        Ok(text) => read_document(name, text, bytes, limits),
        Err(error @ TranscriptError::Empty) => Err(error),
        Err(error) => read_lines(name, bytes, limits, error),
    }
}

/// A reader of a whole file.
type FileReader = fn(&str, &[u8], &TranscriptLimits) -> Result<TranscriptFile, TranscriptError>;

/// Predicate for the first value of a file, or the whole of it: true if it is of a format.
type FormatPredicate = fn(&Value) -> bool;

/// The formats whose readers take the file as it is.
const FILES: [(FormatPredicate, FileReader); 5] = [
    (epitome::recognises, epitome::read),
    (claude_code::recognises, claude_code::read),
    (codex::recognises, codex::read),
    (pi::recognises, pi::read),
    (gemini::recognises, gemini::read),
];

/// A reader of one value.
#[derive(Clone, Copy)]
struct ValueReader {
    format: TranscriptFormat,
    recognises: FormatPredicate,
    /// Reads a value, given the key of its session and the reading to add to.
    read: fn(&str, &str, &mut TranscriptFile) -> Result<(), TranscriptError>,
}

/// Formats in which one value is a whole file's content. More special formats stand first.
const VALUES: [ValueReader; 7] = [
    ValueReader {
        format: TranscriptFormat::Opencode,
        recognises: opencode::recognises,
        read: opencode::read,
    },
    ValueReader { format: TranscriptFormat::Tau2, recognises: tau2::recognises, read: tau2::read },
    ValueReader {
        format: TranscriptFormat::TauBench,
        recognises: tau_bench::recognises,
        read: tau_bench::read,
    },
    ValueReader {
        format: TranscriptFormat::SweAgent,
        recognises: swe_agent::recognises,
        read: swe_agent::read,
    },
    ValueReader {
        format: TranscriptFormat::Openhands,
        recognises: openhands::recognises,
        read: openhands::read,
    },
    ValueReader {
        format: TranscriptFormat::GeminiRequest,
        recognises: gemini_requests::recognises,
        read: gemini_requests::read,
    },
    ValueReader {
        format: TranscriptFormat::OpenaiChat,
        recognises: provider_messages::recognises,
        read: provider_messages::read,
    },
];

/// Reader of a file.
#[derive(Clone, Copy)]
enum TranscriptReader {
    /// A reader of the whole file.
    File(FileReader),
    /// A reader of one value: the document, or each line.
    Value(ValueReader),
    /// The lines are the messages of one conversation.
    Messages,
}

impl TranscriptReader {
    /// Selects the reader of a file that begins with such a value.
    fn of(sketch: &Value) -> Option<Self> {
        let file = FILES.iter().find(|(recognises, _)| recognises(sketch));
        let value = || VALUES.iter().find(|reader| (reader.recognises)(sketch));
        file.map(|(_, read)| Self::File(*read))
            .or_else(|| value().map(|reader| Self::Value(*reader)))
            .or_else(|| provider_messages::is_message(sketch).then_some(Self::Messages))
    }

    fn read_lines(
        self,
        name: &str,
        bytes: &[u8],
        limits: &TranscriptLimits,
    ) -> Result<TranscriptFile, TranscriptError> {
        match self {
            Self::File(read) => read(name, bytes, limits),
            Self::Value(reader) => Ok(reader.read_each(name, bytes, limits)),
            Self::Messages => Ok(read_messages(name, bytes, limits)),
        }
    }
}

/// The text without surrounding whitespace, if it is one JSON value.
fn document(bytes: &[u8]) -> Result<&str, TranscriptError> {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(TranscriptError::NotText { at });
    }
    let text = str::from_utf8(bytes).map_err(|error| TranscriptError::NotText { at: error.valid_up_to() })?;
    let text = text.trim_start_matches('\u{feff}').trim_ascii();
    if text.is_empty() {
        return Err(TranscriptError::Empty);
    }
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Ok(text),
        Err(error) => Err(too_deep(text).unwrap_or_else(|| TranscriptError::json(error))),
    }
}

fn read_document(
    name: &str,
    text: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let sketch = sketch(text);
    match TranscriptReader::of(&sketch) {
        Some(TranscriptReader::Value(reader)) => {
            let mut reading = TranscriptFile::new(reader.format);
            (reader.read)(&document_key(reader.format, name, text), text, &mut reading)?;
            Ok(reading)
        }
        Some(reader) => reader.read_lines(name, bytes, limits),
        None => Err(too_deep(text).unwrap_or_else(|| unknown(&sketch))),
    }
}

/// Key of a document. An object on one line may be the first of a file that grows by lines, so it gets the key that
/// it will have then.
fn document_key(format: TranscriptFormat, name: &str, text: &str) -> String {
    let is_line = text.starts_with('{') && !text.contains('\n');
    if is_line { line_key(format, name, 1) } else { name.to_owned() }
}

/// Key of a line: the line number, in formats that are files of lines by nature.
fn line_key(format: TranscriptFormat, name: &str, line: u64) -> String {
    match (format, line) {
        (
            TranscriptFormat::Opencode
            | TranscriptFormat::SweAgent
            | TranscriptFormat::TauBench
            | TranscriptFormat::Tau2,
            1,
        ) => name.to_owned(),
        _ => format!("{name}#{line}"),
    }
}

/// Number of lines, or values on lines, that are examined before giving up.
const MAX_SAMPLED_LINES: usize = 100;

/// Reads a file of lines. A line that is too long or not JSON still counts as a line, and becomes a warning: a single
/// line that a reader knows is enough to read the file. `error` is the reason the file is not one document; it is
/// returned if the file was meant to be one, or if its lines hold nothing.
fn read_lines(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
    error: TranscriptError,
) -> Result<TranscriptFile, TranscriptError> {
    if is_broken_document(bytes, limits, &error) {
        return Err(error);
    }
    let mut first = None;
    for text in
        lines(bytes, limits).filter_map(|(_, line)| line.ok()).filter(is_structure).take(MAX_SAMPLED_LINES)
    {
        let sketch = sketch(text);
        if let Some(reader) = TranscriptReader::of(&sketch) {
            return reader.read_lines(name, bytes, limits);
        }
        first.get_or_insert(sketch);
    }
    let is_long = |line: &[u8]| line.trim_ascii().len() > limits.line;
    Err(match first {
        Some(sketch) => unknown(&sketch),
        None if bytes.split(|byte| *byte == b'\n').any(is_long) => {
            TranscriptError::TooLarge { what: "a line of the file", limit: limits.line }
        }
        None => error,
    })
}

/// Returns true if the file is a document over several lines that was cut off or damaged: its first line begins a
/// value that it does not close, and hardly any line is a value by itself. Those few stand inside the document.
fn is_broken_document(bytes: &[u8], limits: &TranscriptLimits, error: &TranscriptError) -> bool {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let first = text.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    // A line that was cut inside a string closes nothing either. But no string goes on over a line break, which is
    // part of the text parsed here: there the parser stops for another reason than the end.
    let opens = serde_json::from_slice::<IgnoredAny>(first).is_err_and(|error| error.is_eof());
    if !opens {
        return false;
    }
    let sample = || lines(bytes, limits).take(MAX_SAMPLED_LINES);
    let values = sample().filter_map(|(_, line)| line.ok()).filter(is_structure).count();
    let most = values > 0 && values * 2 >= sample().count();
    !most || (values == 1 && matches!(error, TranscriptError::CutOff { .. }))
}

fn is_structure(text: &&str) -> bool {
    text.starts_with(['{', '['])
}

/// Reads every line as a message of one conversation.
fn read_messages(name: &str, bytes: &[u8], limits: &TranscriptLimits) -> TranscriptFile {
    let mut reading = TranscriptFile::new(TranscriptFormat::OpenaiChat);
    let mut messages = Vec::new();
    for (_, line) in lines(bytes, limits) {
        match line {
            Ok(text) => messages.push(text),
            Err(warning) => reading.warnings.push(warning),
        }
    }
    provider_messages::read_lines(name, &messages, &mut reading);
    reading
}

impl ValueReader {
    /// Reads every line on its own; one that cannot be read does not affect the others.
    fn read_each(self, name: &str, bytes: &[u8], limits: &TranscriptLimits) -> TranscriptFile {
        let mut reading = TranscriptFile::new(self.format);
        for (number, line) in lines(bytes, limits) {
            let before = reading.warnings.len();
            match line {
                Ok(text) => self.read_line(&line_key(self.format, name, number), text, &mut reading),
                Err(warning) => reading.warnings.push(warning),
            }
            for warning in &mut reading.warnings[before..] {
                warning.line.get_or_insert(number);
            }
        }
        reading
    }

    fn read_line(self, key: &str, text: &str, reading: &mut TranscriptFile) {
        if !(self.recognises)(&sketch(text)) {
            reading.warn(format!("this is not {} as other lines are; it was left out", self.format));
        } else if let Err(error) = (self.read)(key, text, reading) {
            reading.warn(format!("{error}; it was left out"));
        }
    }
}

/// The error for a file that no reader accepts: the value's shape, and the formats that can be read.
fn unknown(sketch: &Value) -> TranscriptError {
    const SHOWN: usize = 12;
    let keys = |object: &Map<String, Value>| {
        let mut shown: Vec<String> =
            object.keys().take(SHOWN).map(|key| key.chars().take(40).collect::<String>()).collect();
        if object.len() > SHOWN {
            shown.push("…".to_owned());
        }
        shown.join(", ")
    };
    let seen = match sketch {
        Value::Object(object) if object.is_empty() => "an empty object".to_owned(),
        Value::Object(object) => format!("an object with {}", keys(object)),
        Value::Array(list) => match list.first() {
            None => "an empty list".to_owned(),
            Some(Value::Object(object)) => format!("a list of objects with {}", keys(object)),
            Some(_) => "a list of values that are no objects".to_owned(),
        },
        _ => "a value that is neither object nor list".to_owned(),
    };
    let known = TranscriptFormat::ALL.map(TranscriptFormat::name).join(", ");
    TranscriptError::UnknownAgent { seen, known }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::transcripts::read;

    fn error(bytes: &[u8]) -> TranscriptError {
        read("f", bytes, &TranscriptLimits::default()).expect_err("it cannot be read")
    }

    #[test]
    fn every_file_that_cannot_be_read_says_why_and_what_to_do() {
        let shown = [
            &b""[..],
            b" \n\t ",
            b"\xef\xbb\xbf",
            b"\x00\x01\x02",
            b"{\"a\": \"\xff\xfe\"}",
            b"hello there",
            b"{\"info\": {\"id\": \"s\"}, \"messages\": [{\"info\":",
            b"{\n \"info\": {\n  \"id\": 1\n },\n \"messages\": [\n  {}\n",
            b"{\"weather\": \"fine\", \"wind\": 3}",
            b"{\"weather\": \"fine\"}\n{\"weather\": \"bad\"}\n",
            b"[]",
            b"{}",
            b"[{\"x\": 1}]",
            b"[1, 2]",
            b"17",
            b"17\n18\n",
            b"\x28\xb5\x2f\xfdgarbage",
        ]
        .map(|bytes| error(bytes).to_string())
        .join("\n");
        assert_snapshot!(shown, @r#"
        the file is empty: read it again once its agent has written to it
        the file is empty: read it again once its agent has written to it
        the file is empty: read it again once its agent has written to it
        the file is not text (byte 0 cannot be part of UTF-8 JSON): give the agent's transcript itself, unpacked if it came in an archive
        the file is not text (byte 7 cannot be part of UTF-8 JSON): give the agent's transcript itself, unpacked if it came in an archive
        the file is not JSON or JSONL: check that it is the agent's transcript and not a rendering of it
        the JSON document is cut off: read it again once it is written completely, or get a whole copy
        the JSON document is cut off: read it again once it is written completely, or get a whole copy
        no agent known here writes such a file (seen: an object with weather, wind): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: an object with weather): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: an empty list): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: an empty object): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: a list of objects with x): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: a list of values that are no objects): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        no agent known here writes such a file (seen: a value that is neither object nor list): the formats that can be read are claude-code, codex, opencode, pi, gemini, swe-agent, openhands, tau-bench, tau2, openai-chat, openai-responses, anthropic, gemini-request, epitome
        the file is not JSON or JSONL: check that it is the agent's transcript and not a rendering of it
        the zstd compression is damaged or cut off: get a whole copy of the file
        "#);
    }

    #[test]
    fn nesting_of_any_depth_is_an_error_and_no_crash() {
        let depth = 100_000;
        let open = "[".repeat(depth);
        let closed = format!("{open}{}", "]".repeat(depth));
        for text in [
            open,
            closed.clone(),
            format!("{closed}\n{closed}\n"),
            "{\"a\":".repeat(depth),
            format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        ] {
            let error = error(text.as_bytes());
            assert!(
                matches!(error, TranscriptError::TooDeep { .. } | TranscriptError::UnknownAgent { .. }),
                "{error}"
            );
        }
        // A deep message among others is kept, and not read any deeper.
        let messages = format!("{{\"messages\": [{{\"role\": \"user\", \"content\": {closed}}}]}}");
        let reading = read("f", messages.as_bytes(), &TranscriptLimits::default()).unwrap();
        assert_eq!((reading.sessions[0].threads[0].events.len(), reading.warnings.len()), (1, 1));
    }

    #[test]
    fn a_file_that_has_a_bad_line_is_still_a_file_of_lines() {
        let text = "{\"role\": \"user\", \"con\n{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"user\",\"content\":\"b\"}";
        let reading = read("f", text.as_bytes(), &TranscriptLimits::default()).unwrap();
        assert_eq!((reading.sessions[0].threads[0].events.len(), reading.warnings.len()), (2, 1));
        assert_eq!(reading.warnings[0].line, Some(1));
        // A disk that was full leaves zeros.
        let zeros = [text.as_bytes(), b"\n\0\0\0\0"].concat();
        let reading = read("f", &zeros, &TranscriptLimits::default()).unwrap();
        assert_eq!(reading.sessions[0].threads[0].events.len(), 2);
    }

    #[test]
    fn one_line_that_a_reader_knows_is_enough() {
        let limits = TranscriptLimits { line: 60, ..TranscriptLimits::default() };
        let good = r#"{"role":"user","content":"a"}"#;
        let long = format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(60));
        let check = |lines: &[&str], expect: &[u64]| {
            let text = lines.join("\n");
            let reading = read("f", text.as_bytes(), &limits).expect(&text);
            let warned: Vec<u64> = reading.warnings.iter().filter_map(|warning| warning.line).collect();
            assert_eq!(warned, expect, "{text}");
            assert_eq!(reading.sessions[0].threads[0].events.len(), lines.len() - expect.len(), "{text}");
        };
        check(&[&long, good], &[1]);
        check(&["garbage", good], &[1]);
        check(&["17", good], &[]);
        check(&[r#"{"role":"user","content":"a"#, good], &[1]);
        check(&[r#"{"role":"user","#, good], &[1]);
        check(&[&long, "]", &long, good, &long], &[1, 2, 3, 5]);
        check(&[&["?"; 200][..], &[good]].concat(), &(1..=200).collect::<Vec<_>>());
        let meta = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}"#;
        let said = r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"hi"}}"#;
        let pi = [meta, said].join("\n");
        let whole = read("f", pi.as_bytes(), &TranscriptLimits::default()).unwrap();
        let garbled = read("f", format!("garbage\n{pi}").as_bytes(), &TranscriptLimits::default()).unwrap();
        assert_eq!((garbled.format, garbled.warnings.len()), (whole.format, 1));
        assert_eq!(garbled.sessions[0].threads[0].events, whole.sessions[0].threads[0].events);
        let error = read("f", format!("{long}\n{long}").as_bytes(), &limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a line of the file exceeds the limit of 60 bytes: raise the limit if the file is trusted"
        );
    }

    #[test]
    fn a_list_cut_off_in_the_middle_is_not_a_file_of_lines() {
        let text = "[\n{\"role\":\"user\",\"content\":\"a\"},\n{\"role\":\"user\",\"content\":\"b\"},\n{\"role\":\"us";
        assert!(matches!(error(text.as_bytes()), TranscriptError::CutOff { .. }));
        // Nor if its last message is whole, or if it is damaged.
        let text = "[\n{\"role\":\"user\",\"content\":\"a\"},\n{\"role\":\"user\",\"content\":\"b\"}\n";
        assert!(matches!(error(text.as_bytes()), TranscriptError::CutOff { .. }));
        assert!(matches!(error(text.replacen(',', "!", 1).as_bytes()), TranscriptError::NotJson { .. }));
        let text = "[\n{\"role\":\"user\",\"content\":\"a\"}\n";
        assert!(matches!(error(text.as_bytes()), TranscriptError::CutOff { .. }));
    }

    #[test]
    fn a_line_of_another_kind_leaves_the_others() {
        let line = "{\"messages\": [{\"role\":\"user\",\"content\":\"a\"}]}";
        let text = format!("{line}\n{{\"weather\": 1}}\n{line}\n");
        let reading = read("f", text.as_bytes(), &TranscriptLimits::default()).unwrap();
        let keys: Vec<&str> = reading.sessions.iter().map(|session| session.key.as_str()).collect();
        assert_eq!(keys, ["f#1", "f#3"]);
        assert_eq!(reading.warnings.iter().map(|warning| warning.line).collect::<Vec<_>>(), [Some(2)]);
    }

    #[test]
    fn a_compressed_file_is_unpacked_first() {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let plain = br#"[{"role":"user","content":"hi"}]"#;
        let packed = compress_to_vec(&plain[..], CompressionLevel::Fastest);
        let events =
            |bytes: &[u8]| read("f", bytes, &TranscriptLimits::default()).unwrap().sessions.remove(0).threads;
        assert_eq!(events(&packed)[0].events, events(plain)[0].events);
    }

    #[test]
    fn half_a_surrogate_pair_hides_nothing() {
        let text = r#"[{"role":"user","content":"cut \ud83d"}]"#;
        assert_eq!(
            read("f", text.as_bytes(), &TranscriptLimits::default()).unwrap().sessions[0].threads[0]
                .events
                .len(),
            1
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read("f", &bytes, &TranscriptLimits::default());
        }

        /// Values made of any mix of the formats' members.
        #[test]
        fn no_document_makes_it_panic(value in document(5)) {
            let _ = read("f", value.to_string().as_bytes(), &TranscriptLimits::default());
            let _ = read("f", format!("{value}\n{value}\n").as_bytes(), &TranscriptLimits::default());
        }
    }

    fn document(depth: u32) -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        const KEYS: [&str; 36] = [
            "info",
            "messages",
            "parts",
            "role",
            "content",
            "type",
            "id",
            "tool_calls",
            "history",
            "trajectory",
            "action",
            "observation",
            "source",
            "args",
            "simulations",
            "tasks",
            "traj",
            "task_id",
            "input",
            "model",
            "tools",
            "state",
            "status",
            "time",
            "tokens",
            "cause",
            "text",
            "summary",
            "url",
            "mime",
            "function",
            "tool_call_metadata",
            "model_response",
            "choices",
            "message",
            "usage",
        ];
        const WORDS: [&str; 16] = [
            "user",
            "assistant",
            "tool",
            "system",
            "text",
            "compaction",
            "message",
            "condensation",
            "run",
            "recall",
            "completed",
            "error",
            "step-start",
            "data:image/png;base64,aGk=",
            "reasoning",
            "",
        ];
        let leaf = prop_oneof![
            prop::sample::select(&WORDS[..]).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(depth, 64, 6, |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                3 => prop::collection::vec((prop::sample::select(&KEYS[..]), inner), 0..6)
                    .prop_map(|members| members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ]
        })
    }
}
