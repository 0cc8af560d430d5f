//! Media are stored once, by content. An event's base64 data is taken out of its raw JSON, and put back on
//! reading, byte for byte.
//!
//! JSON text never holds a NUL, so a marker between NULs cannot be mistaken for the sender's words. A raw text
//! that does hold one is not JSON and is left as it is, as is any base64 that would not come back the same.

use std::collections::{HashMap, HashSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use epitome_core::{Digest, Event, media::MediaLocation};
use rusqlite::{Connection, OptionalExtension, params};

use super::sqlite_error::SqliteError;

/// Shorter payloads are not worth a row of their own.
const MIN_MEDIA_BYTES: usize = 1024;

/// A raw text without its media.
#[derive(Debug)]
pub(super) struct PackedText {
    /// The text, a marker in place of each medium.
    pub(super) text: String,
    /// Number of markers.
    pub(super) markers: u32,
    /// Each medium once.
    pub(super) media: Vec<(Digest, Vec<u8>)>,
}

/// Takes the inline media out of an event's raw JSON; `None` if there are none.
pub(super) fn pack(event: &Event) -> Option<PackedText> {
    let raw = &*event.raw.json;
    let mut wanted: HashMap<u64, HashSet<Digest>> = HashMap::new();
    for media in event.fact.media() {
        if let MediaLocation::Inline { hash, size } = media.place {
            wanted.entry(size).or_default().insert(hash);
        }
    }
    if wanted.is_empty() || raw.len() < MIN_MEDIA_BYTES || raw.contains('\0') {
        return None;
    }
    let mut packed = PackedText { text: String::new(), markers: 0, media: Vec::new() };
    let mut taken = HashSet::new();
    let mut copied = 0;
    for (start, run) in runs(raw) {
        let Some((hash, bytes)) = decoded(run, &wanted) else { continue };
        packed.text.push_str(&raw[copied..start]);
        packed.text.push('\0');
        packed.text.push_str(&hash.to_string());
        packed.text.push('\0');
        copied = start + run.len();
        packed.markers += 1;
        if taken.insert(hash) {
            packed.media.push((hash, bytes));
        }
    }
    packed.text.push_str(&raw[copied..]);
    (packed.markers > 0).then_some(packed)
}

/// Puts the media back. The inner error says which one cannot be.
pub(super) fn unpack(connection: &Connection, packed: &str) -> Result<Result<String, String>, SqliteError> {
    let mut raw = String::new();
    let mut pieces = packed.split('\0');
    raw.push_str(pieces.next().unwrap_or_default());
    while let (Some(marker), Some(text)) = (pieces.next(), pieces.next()) {
        let Ok(hash) = marker.parse::<Digest>() else {
            return Ok(Err("a marker in its raw JSON is damaged".to_owned()));
        };
        let Some(bytes) = fetch(connection, hash)? else {
            return Ok(Err(format!("its medium {hash} is missing")));
        };
        STANDARD.encode_string(bytes, &mut raw);
        raw.push_str(text);
    }
    Ok(Ok(raw))
}

/// A medium's bytes.
pub(super) fn fetch(connection: &Connection, hash: Digest) -> Result<Option<Vec<u8>>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM media WHERE hash = ?1")?;
    Ok(statement.query_row([hash.0], |row| row.get(0)).optional()?)
}

/// Stores an event's media, and the reference of the event to them.
pub(super) fn keep(
    connection: &Connection,
    event: i64,
    media: &[(Digest, Vec<u8>)],
) -> Result<(), SqliteError> {
    for (hash, bytes) in media {
        let known: bool = connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM media WHERE hash = ?1)")?
            .query_row([hash.0], |row| row.get(0))?;
        if !known {
            connection
                .prepare_cached("INSERT INTO media (hash, bytes) VALUES (?1, ?2)")?
                .execute(params![hash.0, bytes])?;
        }
        connection
            .prepare_cached("INSERT INTO media_uses (event, hash) VALUES (?1, ?2)")?
            .execute(params![event, hash.0])?;
    }
    Ok(())
}

/// Every long run of base64 letters, with where it starts.
fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = text.as_bytes();
        while at < bytes.len() {
            let start = at + bytes[at..].iter().position(|byte| is_letter(*byte))?;
            let length = bytes[start..].iter().position(|byte| !is_letter(*byte));
            let end = length.map_or(bytes.len(), |length| start + length);
            at = end;
            if end - start >= MIN_MEDIA_BYTES {
                return Some((start, &text[start..end]));
            }
        }
        None
    })
}

/// The bytes of a run, if they are a medium of the event and encode to the same run again.
fn decoded(run: &str, wanted: &HashMap<u64, HashSet<Digest>>) -> Option<(Digest, Vec<u8>)> {
    let padding = run.bytes().rev().take_while(|byte| *byte == b'=').count();
    let size = (run.len() / 4 * 3).checked_sub(padding)?;
    let hashes = wanted.get(&(size as u64))?;
    let bytes = STANDARD.decode(run).ok()?;
    let hash = Digest::of(&bytes);
    (hashes.contains(&hash) && STANDARD.encode(&bytes) == run).then_some((hash, bytes))
}

#[cfg(test)]
mod tests {
    use epitome_core::{
        ContentPart, Fact,
        event::{RawDialect, RawJson},
        media::Media,
    };

    use super::*;

    fn event(media: &[&[u8]], raw: &str) -> Event {
        let parts = media.iter().map(|bytes| ContentPart::Media(Media::inline("image/png", bytes))).collect();
        Event {
            time: None,
            origin: None,
            fact: Fact::UserSaid { parts },
            raw: RawJson { dialect: RawDialect::OpenaiChat, json: raw.into() },
            normal: None,
        }
    }

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE media (hash BLOB UNIQUE, bytes BLOB);
                 CREATE TABLE media_uses (event INTEGER, hash BLOB);",
            )
            .unwrap();
        connection
    }

    #[test]
    fn a_medium_sent_twice_is_stored_once_and_the_text_comes_back() {
        let bytes: Vec<u8> = (0..=250).cycle().take(3000).collect();
        let code = STANDARD.encode(&bytes);
        let raw = format!(r#"[{{"url":"data:image/png;base64,{code}"}},{{"data":"{code}"}}]"#);
        let packed = pack(&event(&[&bytes], &raw)).unwrap();
        assert_eq!((packed.markers, packed.media.len()), (2, 1));
        assert!(packed.text.len() < 250);
        let database = database();
        keep(&database, 1, &packed.media).unwrap();
        assert_eq!(unpack(&database, &packed.text).unwrap().unwrap(), raw);
    }

    #[test]
    fn what_would_not_come_back_the_same_stays() {
        let bytes = vec![b'x'; 2000];
        let code = STANDARD.encode(&bytes);
        let check = |raw: &str| assert!(pack(&event(&[&bytes], raw)).is_none(), "{}", &raw[..20]);
        check(&format!(r#"{{"url":"{}"}}"#, code.trim_end_matches('=')));
        check(&format!("{{\"url\":\"{code}\"}}\0"));
        check(&format!(r#"{{"url":"{}"}}"#, STANDARD.encode(vec![b'y'; 2000])));
        check(&format!(r#"{{"url":"{}\n{}"}}"#, &code[..1300], &code[1300..]));
        check(&"=".repeat(5000));
        assert!(pack(&event(&[b"small"], &STANDARD.encode(b"small"))).is_none());
    }

    #[test]
    fn a_missing_medium_is_named() {
        let bytes = vec![1; 2000];
        let raw = format!("\"{}\"", STANDARD.encode(&bytes));
        let packed = pack(&event(&[&bytes], &raw)).unwrap();
        let error = unpack(&database(), &packed.text).unwrap().unwrap_err();
        assert!(error.contains(&Digest::of(&bytes).to_string()), "{error}");
    }
}
