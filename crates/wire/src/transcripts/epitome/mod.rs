//! Epitome's own export: an event per line, with its place, its fact, its raw JSON and its hashes.
//!
//! No content is interpreted here: an event is taken from its line to the byte, and the chained hash of the line
//! proves it. A line's place names the thread that owns the event. The first thread is a root, and a thread that
//! continues from an event of another is a fork of it, so that exports of several threads of a session, read one by
//! one or in one file, are joined again. Facts name other events by their number: lines after a missing line no
//! longer have a valid place and are left out; a whole file is read in full.

mod log;

use epitome_core::{
    ChainLink, Digest, Event, EventId, Fact,
    event::{RawDialect, RawJson},
};
use serde_json::Value;

use self::log::ExportLog;
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptWarning,
    json_lines::{TranscriptLimits, values},
    time::parse_time,
};
use crate::{format::Format, json::Json};

/// Returns true if a file that begins with this value is an export.
pub(super) fn recognises(line: &Value) -> bool {
    let is_place = |id: &str| id.parse::<EventId>().is_ok();
    line["id"].as_str().is_some_and(is_place)
        && line["fact"]["kind"].is_string()
        && line["dialect"].is_string()
        && line.get("raw").is_some()
}

/// Reads an export, or several in one file. Sessions are named after their first thread, whatever the file is called.
pub(super) fn read(
    _: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = TranscriptFile::new(TranscriptFormat::Epitome);
    let mut log = ExportLog::default();
    for (number, json) in values(bytes, limits) {
        let line = json.and_then(|json| {
            ExportLine::of(number, &json)
                .map_err(|what| TranscriptWarning::at(number, format!("{what}; the line was left out")))
        });
        match line {
            Ok(line) => log.take(line),
            Err(warning) => reading.warnings.push(warning),
        }
    }
    log.finish(&mut reading);
    if reading.sessions.is_empty() {
        return Err(TranscriptError::nothing(TranscriptFormat::Epitome.name(), &reading.warnings));
    }
    Ok(reading)
}

/// A line.
struct ExportLine {
    number: u64,
    id: EventId,
    event: Event,
    /// Both chains, as far as the line has them.
    link: Option<ChainLink>,
}

impl ExportLine {
    fn of(number: u64, json: &Json<'_>) -> Result<Self, String> {
        let id = json.text_at("id").unwrap_or_default();
        let id = id.parse().map_err(|error: epitome_core::id::ParseEventIdError| error.to_string())?;
        let fact = json.get("fact").ok_or("it has no fact")?;
        let fact: Fact = serde_json::from_str(fact.raw)
            .map_err(|error| format!("its fact cannot be read by this version ({error})"))?;
        let dialect = json.text_at("dialect").ok_or("it does not say whose JSON its raw form is")?;
        let raw = raw(json.get("raw").ok_or("it has no raw form")?);
        let time = match said(json, "time") {
            None => None,
            Some(at) => Some(at.as_text().and_then(parse_time).ok_or("its time cannot be read")?),
        };
        let raw = RawJson { dialect: RawDialect::from(dialect.to_owned()), json: raw.into() };
        let normal = match json.get("normal") {
            Some(_) => digest(json, "normal")?,
            None => recomputed(&fact, &raw),
        };
        let origin = json.text_at("origin").map(str::to_owned);
        let link = digest(json, "raw_hash")?.zip(digest(json, "normal_hash")?);
        let link = link.map(|(raw, normal)| ChainLink { raw, normal });
        Ok(Self { number, id, event: Event { time, origin, fact, raw, normal }, link })
    }
}

/// A member that is not `null`.
fn said<'j, 'a>(json: &'j Json<'a>, key: &str) -> Option<&'j Json<'a>> {
    json.get(key).filter(|value| !value.is_null())
}

/// A string that holds the raw JSON. The first exports had the JSON itself in its place.
fn raw<'j>(value: &'j Json<'_>) -> &'j str {
    let is_json = |text: &&str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    value.as_text().filter(is_json).unwrap_or(value.raw)
}

fn digest(json: &Json<'_>, key: &str) -> Result<Option<Digest>, String> {
    let parsed = said(json, key).map(|value| value.as_text().and_then(|text| text.parse().ok()));
    parsed.map(|digest| digest.ok_or_else(|| format!("its `{key}` is no hash"))).transpose()
}

/// The normalised digest of an event whose line does not have it: messages are read again for it.
fn recomputed(fact: &Fact, raw: &RawJson) -> Option<Digest> {
    if !fact.is_message() {
        return None;
    }
    if let Some(format) = Format::of_dialect(&raw.dialect) {
        let message = Json::parse(&raw.json, "a message").ok()?;
        return format.provider().read_item(&message).normal;
    }
    match raw.dialect {
        RawDialect::Native(_) => Event::native("", "null", fact.clone()).normal,
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests;
