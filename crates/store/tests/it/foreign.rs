//! OpenCode's own database.

use epitome_store::{
    StoreError,
    opencode::{is_opencode, opencode_exports},
};
use rusqlite::Connection;

use crate::support::Place;

#[test]
fn sessions_come_out_as_opencode_exports_them() {
    let place = Place::new();
    let path = place.directory.path().join("opencode.db");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            r#"
            CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, title TEXT, directory TEXT,
                version TEXT, time_created INTEGER, time_updated INTEGER, time_compacting INTEGER, invented TEXT);
            CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
            CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
            INSERT INTO session VALUES ('ses_2', 'p', 'ses_1', 'child', '/w', '1', 20, 21, NULL, 'x'),
                ('ses_1', 'p', NULL, 'parent "quoted"', '/w', '1', 10, 11, 12, NULL);
            INSERT INTO message VALUES ('msg_2', 'ses_1', 12, '{"role":"assistant","time":{"created":12}}'),
                ('msg_1', 'ses_1', 11, '{"role":"user"}'), ('msg_3', 'ses_2', 22, 'broken {');
            INSERT INTO part VALUES ('prt_2', 'msg_2', 'ses_1', '{"type":"tool","callID":"c"}'),
                ('prt_1', 'msg_2', 'ses_1', '{"type":"text","text":"hi"}');
            "#,
        )
        .unwrap();
    assert!(is_opencode(&path));
    insta::assert_snapshot!(opencode_exports(&path).unwrap().join("\n"), @r#"
    {"info":{"id":"ses_1","projectID":"p","directory":"/w","title":"parent \"quoted\"","version":"1","time":{"created":10,"updated":11,"compacting":12}},"messages":[{"info":{"role":"user","id":"msg_1","sessionID":"ses_1"},"parts":[]},{"info":{"role":"assistant","time":{"created":12},"id":"msg_2","sessionID":"ses_1"},"parts":[{"type":"text","text":"hi","id":"prt_1","sessionID":"ses_1","messageID":"msg_2"},{"type":"tool","callID":"c","id":"prt_2","sessionID":"ses_1","messageID":"msg_2"}]}]}
    {"info":{"id":"ses_2","projectID":"p","directory":"/w","parentID":"ses_1","title":"child","version":"1","time":{"created":20,"updated":21}},"messages":[{"info":{"unreadable":"broken {","id":"msg_3","sessionID":"ses_2"},"parts":[]}]}
    "#);
}

#[test]
fn few_columns_are_enough() {
    let place = Place::new();
    let path = place.directory.path().join("with space?#%41.db");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE session (id TEXT); CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);
             CREATE TABLE part (id TEXT, message_id TEXT, data TEXT); INSERT INTO session VALUES ('s');",
        )
        .unwrap();
    drop(database);
    assert_eq!(opencode_exports(&path).unwrap(), [r#"{"info":{"id":"s"},"messages":[]}"#]);
}

#[test]
fn another_file_is_refused_in_words() {
    let place = Place::new();
    place.open();
    assert!(!is_opencode(&place.path()));
    let error = opencode_exports(&place.path()).unwrap_err();
    assert!(
        matches!(&error, StoreError::NotADatabase { detail, .. } if detail.contains("OpenCode")),
        "{error}"
    );
    let text = place.directory.path().join("text");
    std::fs::write(&text, "not a database, and long enough to have a header ".repeat(4)).unwrap();
    assert!(!is_opencode(&text));
    assert!(matches!(opencode_exports(&text), Err(StoreError::NotADatabase { .. })));
    assert!(opencode_exports(&place.directory.path().join("missing")).is_err());
    assert!(!place.directory.path().join("missing").exists());
}
