//! Media are stored once and come back byte for byte.

use base64::{Engine, engine::general_purpose::STANDARD};
use epitome_core::{Digest, Seq};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, picture, root},
};

checks! {
    pictures_come_back_byte_for_byte,
    a_hostile_raw_text_comes_back_too,
}

fn a_hostile_raw_text_comes_back_too(databases: &DatabaseFactory<'_>) {
    let place = databases();
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

fn pictures_come_back_byte_for_byte(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let id = root(&*store, "t");
    let sent: Vec<_> = (0..10).map(|_| picture(&bytes)).collect();
    append(&*store, id, sent.clone());
    let read: Vec<_> = store.read(id, Seq(1), 100).unwrap().into_iter().map(|logged| logged.event).collect();
    assert_eq!(read, sent);
    assert_eq!(store.media(Digest::of(&bytes)).unwrap().as_deref(), Some(bytes.as_slice()));
    assert_eq!(store.media(Digest::of(b"other")).unwrap(), None);
}
