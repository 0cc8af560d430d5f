//! Opening the file: private from its first byte, recognised before it is touched, and brought up to date.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read},
    path::Path,
};

use epitome_core::Fact;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig, functions::FunctionFlags,
};

use super::{codec::signed, sqlite_error::SqliteError};
use crate::{
    error::{OPENING_ACTION, StoreError},
    location::StoreLocation,
    options::{Durability, StoreOptions},
};

/// The script that leads to each schema version, from version 1 on. A script that was ever released is never edited.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_log.sql"),
    include_str!("migrations/0002_compaction.sql"),
    include_str!("migrations/0003_gateway.sql"),
    include_str!("migrations/0004_scripts.sql"),
    include_str!("migrations/0005_indexes.sql"),
    include_str!("migrations/0006_inserts.sql"),
    include_str!("migrations/0007_search.sql"),
    include_str!("migrations/0008_refusals.sql"),
    include_str!("migrations/0009_summaries.sql"),
];

/// "EPIT", the mark SQLite keeps in the header for the program a file belongs to.
const APPLICATION_ID: i32 = 0x4550_4954;

/// Size of a page, which SQLite chooses for a new file.
const PAGE_BYTES: u64 = 4096;

/// The newest schema version this build knows.
pub(super) fn newest_version() -> i64 {
    signed(MIGRATIONS.len() as u64)
}

/// Opens the one connection that writes, making and migrating the file as needed.
pub(super) fn open_writer(path: &Path, options: &StoreOptions) -> Result<Connection, StoreError> {
    let read_only = || StoreError::ReadOnly { doing: OPENING_ACTION, location: StoreLocation::file(path) };
    let explained = |fault: SqliteError| match fault {
        // The file itself is there: the files that cannot be opened are those SQLite makes beside it.
        SqliteError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => read_only(),
        fault => fault.into_store_error(OPENING_ACTION, path, options.busy_timeout),
    };
    let state = prepare_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags, options).map_err(explained)?;
    if connection.is_readonly("main").map_err(|error| explained(error.into()))? {
        return Err(read_only());
    }
    recognise(&connection, path).map_err(explained)?;
    set_up(&connection, options).map_err(explained)?;
    migrate(&mut connection).map_err(explained)?;
    if state == FileState::New {
        sync_directory(path)?;
    }
    Ok(connection)
}

/// Access that the place of a store allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreAccess {
    /// It does.
    Writable,
    /// It can only be looked at.
    ReadOnly,
}

/// Opens a connection that can only read.
pub(super) fn open_reader(
    path: &Path,
    options: &StoreOptions,
    access: StoreAccess,
) -> Result<Connection, SqliteError> {
    let connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX, options)?;
    if access == StoreAccess::Writable {
        return Ok(connection);
    }
    match version(&connection) {
        Ok(_) => Ok(connection),
        // Even to read, SQLite needs a file beside the database, unless it is opened as immutable. That is
        // right for a place where no process can write, but then it does not look into the write-ahead log
        // either.
        Err(SqliteError::Sql(_)) if log_is_empty(path) => connect(
            Path::new(&unchanging(path)),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI,
            options,
        ),
        Err(fault) => Err(fault),
    }
}

/// Looks whether a store that cannot be written can at least be read as it is.
pub(super) fn open_read_only(path: &Path, options: &StoreOptions) -> Result<Connection, SqliteError> {
    let connection = open_reader(path, options, StoreAccess::ReadOnly)?;
    recognise(&connection, path)?;
    let doing = match version(&connection)? {
        version if version >= newest_version() => return Ok(connection),
        0 => OPENING_ACTION,
        _ => "bringing the store up to date",
    };
    Err(StoreError::ReadOnly { doing, location: StoreLocation::file(path) }.into())
}

fn log_is_empty(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    match std::fs::metadata(name) {
        Ok(file) => file.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The URI that opens a database as immutable.
fn unchanging(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut address = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            letter if letter.is_ascii_alphanumeric() => address.push(char::from(*letter)),
            other => {
                // Writing to a string cannot fail.
                let _ = write!(address, "%{other:02X}");
            }
        }
    }
    address + "?immutable=1"
}

/// A table, index, trigger or view: its type, its name, and the statement that makes it.
pub(super) type SchemaItem = (String, String, String);

/// Difference from the schema that this build makes: the items that are missing, those made otherwise, and
/// those that do not belong there.
#[derive(Default)]
pub(super) struct SchemaDifference {
    pub(super) missing: Vec<SchemaItem>,
    pub(super) changed: Vec<SchemaItem>,
    pub(super) unknown: Vec<SchemaItem>,
}

/// Compares the schema of a file with a fresh one.
pub(super) fn difference(connection: &Connection) -> Result<SchemaDifference, SqliteError> {
    let mut fresh = Connection::open_in_memory()?;
    register(&fresh)?;
    migrate(&mut fresh)?;
    let mut found = items(connection)?;
    let mut difference = SchemaDifference::default();
    for (key, sql) in items(&fresh)? {
        match found.remove(&key) {
            Some(same) if same == sql => {}
            Some(_) => difference.changed.push((key.0, key.1, sql)),
            None => difference.missing.push((key.0, key.1, sql)),
        }
    }
    difference.unknown = found.into_iter().map(|((kind, name), sql)| (kind, name, sql)).collect();
    Ok(difference)
}

/// Makes missing indexes, triggers and views again. A missing table is another matter: it held something.
pub(super) fn restore(connection: &Connection) -> Result<(), SqliteError> {
    for (kind, _, sql) in difference(connection)?.missing {
        if kind != "table" {
            connection.execute_batch(&sql)?;
        }
    }
    Ok(())
}

/// Items of a schema, except those that SQLite makes by itself.
fn items(connection: &Connection) -> Result<BTreeMap<(String, String), String>, SqliteError> {
    let mut statement = connection.prepare(
        "SELECT type, name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'",
    )?;
    let items = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(items.collect::<Result<_, _>>()?)
}

/// The schema version of the file behind a connection.
pub(super) fn version(connection: &Connection) -> Result<i64, SqliteError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[derive(PartialEq, Eq)]
enum FileState {
    New,
    Known,
}

/// Makes the file, readable only by its owner, or checks that it can be a database at all.
fn prepare_file(path: &Path) -> Result<FileState, StoreError> {
    let failed = |doing: &'static str| {
        move |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { doing, location: StoreLocation::file(path) }
            }
            io::ErrorKind::StorageFull => StoreError::DiskFull { doing, location: StoreLocation::file(path) },
            _ => StoreError::Io { doing, path: path.to_owned(), source },
        }
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        directory().create(parent).map_err(failed("making the directory of"))?;
    }
    match owner_only_options().create_new(true).open(path) {
        Ok(_) => return Ok(FileState::New),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("making the store")(error)),
    }
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(failed(OPENING_ACTION))?;
    file.by_ref().take(100).read_to_end(&mut start).map_err(failed("reading"))?;
    let not = |detail: &str| StoreError::NotADatabase {
        location: StoreLocation::file(path),
        detail: detail.to_owned(),
    };
    match start.len() {
        0 => Ok(FileState::New),
        _ if !start.starts_with(b"SQLite format 3\0") => Err(not("its header is not that of SQLite")),
        100 => Ok(FileState::Known),
        _ => Err(not("it was cut off inside its header")),
    }
}

/// Refuses a file of another program or of a newer version, before anything is written to it.
fn recognise(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    // In one moment: between two looks another process may have made the tables.
    let moment = connection.unchecked_transaction()?;
    let tables: i64 = moment.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i32 = moment.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found = version(&moment)?;
    moment.finish()?;
    if application != APPLICATION_ID && (application, found, tables) != (0, 0, 0) {
        return Err(StoreError::ForeignDatabase { location: StoreLocation::file(path) }.into());
    }
    if found > newest_version() {
        return Err(StoreError::NewerSchema {
            location: StoreLocation::file(path),
            found,
            known: newest_version(),
        }
        .into());
    }
    Ok(())
}

fn connect(path: &Path, flags: OpenFlags, options: &StoreOptions) -> Result<Connection, SqliteError> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Without this, every statement with a bound LIMIT is compiled again whenever it is run: for the value of the limit.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
    )?;
    register(&connection)?;
    Ok(connection)
}

/// Registers `fact_text(fact)`: the text that is searched. A fact that cannot be read has no text; the doctor
/// reports it elsewhere.
fn register(connection: &Connection) -> Result<(), SqliteError> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("fact_text", 1, flags, |context| {
        let fact = context.get_raw(0).as_str().ok().and_then(|json| serde_json::from_str::<Fact>(json).ok());
        Ok(fact.map(|fact| fact.text()))
    })?;
    Ok(())
}

/// Sets up the writing connection: every commit is on the disk when it returns, and freed bytes are zeroed.
fn set_up(connection: &Connection, options: &StoreOptions) -> Result<(), SqliteError> {
    let mode: String =
        patiently(options, || Ok(connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(SqliteError::Damaged(format!("its journal is `{mode}` and cannot be a write-ahead log")));
    }
    let synchronous = match options.durability {
        Durability::PowerCut => "FULL",
        Durability::Kill => "NORMAL",
    };
    connection.execute_batch(&format!("PRAGMA synchronous = {synchronous}; PRAGMA secure_delete = ON;"))?;
    // A group of commits changes some hundreds of pages. They stay in memory until they are written, once, and most of
    // them are changed again by the next group before the log of pages is long enough to be copied into the file. More would
    // not pay: after most commits SQLite looks through all that it keeps for pages behind the end of the file.
    connection.execute_batch("PRAGMA cache_size = -8192; PRAGMA wal_autocheckpoint = 4000;")?;
    set_temp_storage(connection, TempStorage::InMemory)?;
    if let Some(bytes) = options.size_limit {
        let pages = bytes / PAGE_BYTES;
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    Ok(())
}

/// Location of the pages that undo a refused statement, and of SQLite's other temporary data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TempStorage {
    /// Right for the small jobs of a group.
    InMemory,
    /// Right for statements that may touch the whole file.
    InFiles,
}

/// Changes where that is, between two transactions.
pub(super) fn set_temp_storage(connection: &Connection, undo: TempStorage) -> Result<(), SqliteError> {
    let place = match undo {
        TempStorage::InMemory => "MEMORY",
        TempStorage::InFiles => "FILE",
    };
    Ok(connection.execute_batch(&format!("PRAGMA temp_store = {place}"))?)
}

/// SQLite does not wait when two processes change the journal mode of a new file at once; so this does.
fn patiently<T>(
    options: &StoreOptions,
    attempt: impl Fn() -> Result<T, SqliteError>,
) -> Result<T, SqliteError> {
    let step = std::time::Duration::from_millis(10);
    let mut waited = std::time::Duration::ZERO;
    loop {
        match attempt() {
            Err(SqliteError::Sql(error))
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && waited < options.busy_timeout =>
            {
                std::thread::sleep(step);
                waited += step;
            }
            other => return other,
        }
    }
}

/// Runs the scripts the file has not seen, each in a transaction. The version is read inside it: another process
/// may be doing the same.
fn migrate(connection: &mut Connection) -> Result<(), SqliteError> {
    while version(connection)? < newest_version() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version = version(&transaction)?;
        let script = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(version));
        if let Some(script) = script {
            transaction.execute_batch(script)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", version + 1)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

/// A new file survives a power failure only if its directory was synced too; this is possible on Unix only.
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !cfg!(unix) {
        return Ok(());
    }
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|source| StoreError::Io {
        doing: "syncing the directory",
        path: parent.to_owned(),
        source,
    })
}

/// Directories that only their owner may enter.
fn directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// A file that only its owner may read.
pub(super) fn owner_only_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
