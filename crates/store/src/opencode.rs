//! OpenCode's own database, read as the JSON that `opencode export` writes.
//!
//! OpenCode keeps each message and each part as a JSON object in a column, without the ids that are columns of their
//! own. Columns come and go between its versions: only those this file names are needed, and each but the ids may
//! be missing.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use rusqlite::{Connection, OpenFlags, Row, types::ValueRef};
use serde_json::{Map, Value, json};

use crate::{error::StoreError, location::StoreLocation};

/// Returns true if the file is a database of OpenCode.
pub fn is_opencode(path: &Path) -> bool {
    let Ok(connection) = open(path) else { return false };
    let has = |table: &str, needed: &[&str]| {
        columns(&connection, table).is_ok_and(|known| needed.iter().all(|column| known.contains(*column)))
    };
    has("session", &["id"]) && has("message", MESSAGE_COLUMNS) && has("part", PART_COLUMNS)
}

/// Every session in the database as an export, oldest first. The database is only read.
pub fn opencode_exports(path: &Path) -> Result<Vec<String>, StoreError> {
    if !is_opencode(path) {
        // An error of the file itself is reported first.
        open(path).map_err(|source| failed(path, source))?;
        return Err(StoreError::NotADatabase {
            location: StoreLocation::file(path),
            detail: "it has no tables `session`, `message` and `part` as OpenCode makes them".to_owned(),
        });
    }
    let exports = open(path).and_then(|connection| {
        let mut messages = objects(&connection, "message", "session_id")?;
        let mut parts = objects(&connection, "part", "message_id")?;
        let sessions = sessions(&connection)?;
        Ok(sessions.iter().map(|info| export(info, &mut messages, &mut parts).to_string()).collect())
    });
    exports.map_err(|source| failed(path, source))
}

const MESSAGE_COLUMNS: &[&str] = &["id", "session_id", "data"];
const PART_COLUMNS: &[&str] = &["id", "message_id", "data"];

/// A session's columns, and where they are in an export.
const SESSION_COLUMNS: &[(&str, &[&str])] = &[
    ("id", &["id"]),
    ("slug", &["slug"]),
    ("project_id", &["projectID"]),
    ("directory", &["directory"]),
    ("parent_id", &["parentID"]),
    ("title", &["title"]),
    ("version", &["version"]),
    ("time_created", &["time", "created"]),
    ("time_updated", &["time", "updated"]),
    ("time_compacting", &["time", "compacting"]),
    ("time_archived", &["time", "archived"]),
];

/// Opens for reading only. A database that was closed on a read-only medium has no shared memory to join; it cannot
/// change either, so it is read as it lies there.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let readable = |connection: Connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        Ok(connection)
    };
    match Connection::open_with_flags(path, flags).and_then(readable) {
        Ok(connection) => Ok(connection),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen) => {
            let uri = format!("file:{}?immutable=1", escaped(path));
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
                .and_then(readable)
                .map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

/// A path as it stands in a URI.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

fn failed(path: &Path, source: rusqlite::Error) -> StoreError {
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::NotADatabase {
            location: StoreLocation::file(path),
            detail: "its header is not that of SQLite".to_owned(),
        },
        _ => StoreError::Database { doing: "reading OpenCode's database", source: Box::new(source) },
    }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

/// Information of an export about each session, oldest first.
fn sessions(connection: &Connection) -> rusqlite::Result<Vec<Map<String, Value>>> {
    let known = columns(connection, "session")?;
    let present: Vec<_> = SESSION_COLUMNS.iter().filter(|(column, _)| known.contains(*column)).collect();
    let names: Vec<&str> = present.iter().map(|(column, _)| *column).collect();
    let sql = format!("SELECT {} FROM session ORDER BY {}", names.join(", "), order(&known));
    let mut statement = connection.prepare(&sql)?;
    let info = |row: &Row<'_>| {
        let mut info = Map::new();
        for (index, (_, place)) in present.iter().enumerate() {
            let value = value(row.get_ref(index)?);
            if value.is_null() {
                continue;
            }
            match place {
                [outer, inner] => info.entry(*outer).or_insert_with(|| json!({}))[*inner] = value,
                place => {
                    info.insert(place.concat(), value);
                }
            }
        }
        Ok(info)
    };
    statement.query_map([], info)?.collect()
}

fn export(info: &Map<String, Value>, messages: &mut ObjectsByOwner, parts: &mut ObjectsByOwner) -> Value {
    let session = info.get("id").and_then(Value::as_str).unwrap_or_default();
    let messages = messages.remove(session).unwrap_or_default().into_iter().map(|(id, mut message)| {
        let parts = parts.remove(&id).unwrap_or_default().into_iter().map(|(part_id, mut part)| {
            part.insert("id".to_owned(), part_id.into());
            part.insert("sessionID".to_owned(), session.into());
            part.insert("messageID".to_owned(), id.as_str().into());
            Value::Object(part)
        });
        let parts: Vec<Value> = parts.collect();
        message.insert("id".to_owned(), id.into());
        message.insert("sessionID".to_owned(), session.into());
        json!({ "info": message, "parts": parts })
    });
    let messages: Vec<Value> = messages.collect();
    json!({ "info": info, "messages": messages })
}

/// Objects with their ids, by owner.
type ObjectsByOwner = HashMap<String, Vec<(String, Map<String, Value>)>>;

/// The JSON objects of a table, in the order they were made. One pass over the table: whether it has an index is
/// not known.
fn objects(connection: &Connection, table: &str, key: &str) -> rusqlite::Result<ObjectsByOwner> {
    let order = order(&columns(connection, table)?);
    let mut statement =
        connection.prepare(&format!("SELECT {key}, id, data FROM {table} ORDER BY {order}"))?;
    let mut rows = statement.query([])?;
    let mut owned = ObjectsByOwner::new();
    while let Some(row) = rows.next()? {
        let object = object(&value(row.get_ref(2)?));
        owned.entry(row.get(0)?).or_default().push((row.get(1)?, object));
    }
    Ok(owned)
}

/// A row's data. A value that is not a JSON object is carried as it is, under a name of its own.
fn object(data: &Value) -> Map<String, Value> {
    let text = data.as_str().unwrap_or_default();
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        _ => Map::from_iter([("unreadable".to_owned(), text.into())]),
    }
}

/// Ids of OpenCode sort by time; where the time is a column of its own it comes first.
fn order(known: &BTreeSet<String>) -> &'static str {
    if known.contains("time_created") { "time_created, id" } else { "id" }
}

fn value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}
