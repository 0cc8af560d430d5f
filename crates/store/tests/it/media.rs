//! Media are stored once and come back byte for byte.

use base64::{Engine, engine::general_purpose::STANDARD};
use epitome_core::{
    ContentPart, Digest, Event, Fact, Seq,
    event::{RawDialect, RawJson},
    media::Media,
};

use crate::support::{Place, append, root};

/// A message with a picture, as a provider's JSON has it.
pub(crate) fn picture(bytes: &[u8]) -> Event {
    let json = format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}]}}"#,
        STANDARD.encode(bytes)
    );
    Event {
        time: None,
        origin: None,
        fact: Fact::UserSaid { parts: vec![ContentPart::Media(Media::inline("image/png", bytes))] },
        normal: Some(Digest::of(json.as_bytes())),
        raw: RawJson { dialect: RawDialect::OpenaiChat, json: json.into() },
    }
}

#[test]
fn a_picture_in_many_messages_is_stored_once() {
    let place = Place::new();
    let store = place.open();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let id = root(&*store, "t");
    let sent: Vec<Event> = (0..10).map(|_| picture(&bytes)).collect();
    append(&*store, id, sent.clone());
    let read: Vec<Event> =
        store.read(id, Seq(1), 100).unwrap().into_iter().map(|logged| logged.event).collect();
    assert_eq!(read, sent);
    assert_eq!(store.media(Digest::of(&bytes)).unwrap().as_deref(), Some(bytes.as_slice()));
    assert_eq!(store.media(Digest::of(b"other")).unwrap(), None);
    let raw = place.raw();
    let stored: (i64, i64, i64) = raw
        .query_row(
            "SELECT (SELECT count(*) FROM media), (SELECT count(*) FROM media_uses), (SELECT max(length(raw)) FROM events)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!((stored.0, stored.1), (1, 10));
    assert!(stored.2 < 300, "{stored:?}");
    assert!(store.doctor().unwrap().is_healthy());
}

#[test]
fn a_changed_or_missing_medium_is_named() {
    let check = |sql: &str| {
        let place = Place::new();
        let store = place.open();
        let id = root(&*store, "t");
        let bytes = vec![9; 5000];
        append(&*store, id, vec![picture(&bytes)]);
        drop(store);
        let raw = place.raw();
        raw.execute_batch("DROP TRIGGER media_are_never_changed; DROP TRIGGER media_are_never_deleted;")
            .unwrap();
        raw.pragma_update(None, "foreign_keys", false).unwrap();
        raw.execute_batch(sql).unwrap();
        let report = place.open().doctor().unwrap();
        let hash = Digest::of(&bytes).to_string();
        assert!(report.problems().any(|problem| problem.contains(&hash)), "{report:#?}");
        assert!(report.problems().any(|problem| problem.contains(&format!("{id}:1"))), "{report:#?}");
    };
    check("UPDATE media SET bytes = zeroblob(length(bytes))");
    check("DELETE FROM media");
}

#[test]
fn a_hostile_raw_text_comes_back_too() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    let bytes = vec![3; 4000];
    let code = STANDARD.encode(&bytes);
    let hash = Digest::of(&bytes);
    let texts = [
        format!("\"{code}\0{hash}\0{code}\""),
        format!("{code}{code}"),
        format!("\"{}\"", code.replace('D', "\\u0044")),
        code.clone(),
        format!("\0{hash}\0"),
    ];
    for text in texts {
        let mut event = picture(&bytes);
        event.raw.json = text.as_str().into();
        let head = append(&*store, id, vec![event]);
        assert_eq!(&*store.read(id, head.seq, 1).unwrap()[0].event.raw.json, text);
    }
    assert!(store.doctor().unwrap().is_healthy());
}
