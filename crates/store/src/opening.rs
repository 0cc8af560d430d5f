//! The doors by which a database is opened, and the one place where it is chosen: by its location.

use std::{path::Path, sync::Arc};

use crate::{
    error::StoreError, location::StoreLocation, options::StoreOptions, sqlite::SqliteStore, traits::Store,
};

impl StoreLocation {
    /// Reads a location as a person gives it: the path of a file.
    ///
    /// A text that looks like the URL of a database is refused, because this build speaks to no server: it would
    /// become a folder of that name, and the user would not find the recorded data there. A path that begins with
    /// `./` or `/` is always accepted.
    ///
    /// ```
    /// use epitome_store::StoreLocation;
    ///
    /// assert_eq!(StoreLocation::named("log.db")?.to_string(), "log.db");
    /// assert!(StoreLocation::named("postgres://me:secret@host/log").is_err());
    /// # Ok::<(), epitome_store::StoreError>(())
    /// ```
    pub fn named(text: impl AsRef<Path>) -> Result<Self, StoreError> {
        let file = text.as_ref();
        match url_scheme(&file.to_string_lossy()) {
            None => Ok(Self::file(file)),
            Some(scheme) => Err(StoreError::Url { scheme }),
        }
    }
}

/// Opens the store at `location`, and makes it if there is none. One that is there and cannot be written can still
/// be looked at: then every writing method fails with [`StoreError::ReadOnly`].
///
/// ```
/// use epitome_core::{Event, Fact, ContentPart, Seq, SessionId, ThreadId};
/// use epitome_store::{NewThread, StoreLocation, StoreOptions, ThreadStart, open_store, records::SearchQuery};
///
/// let directory = tempfile::tempdir()?;
/// let location = StoreLocation::named(directory.path().join("epitome.db"))?;
/// let store = open_store(&location, StoreOptions::default())?;
/// let (session, thread) = (SessionId::derived(&["demo"]), ThreadId::derived(&["demo"]));
/// store.open(&NewThread { id: thread, session, name: "main".into(), key: None, start: ThreadStart::Root })?;
/// let said = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("find me later")] }, None);
/// store.append(thread, Seq::START, vec![said])?;
/// assert_eq!(store.search(&SearchQuery::everything("later"))?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_store(location: &StoreLocation, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open(location.path(), options)?))
}

/// Opens the store at `location` if there is one; nothing is made.
pub fn open_existing_store(
    location: &StoreLocation,
    options: StoreOptions,
) -> Result<Option<Arc<dyn Store>>, StoreError> {
    if location.path().exists() { open_store(location, options).map(Some) } else { Ok(None) }
}

/// Makes a store that only this process sees, and that is gone when it is dropped.
pub fn temporary_store(options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::temporary(options)?))
}

/// Schemes by which databases are named, with or without slashes behind.
const DATABASE_URL_SCHEMES: [&str; 12] = [
    "file",
    "sqlite",
    "sqlite3",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mssql",
    "jdbc",
    "libsql",
    "mongodb",
    "redis",
];

/// The scheme of a text that looks like a URL. A single letter is none: some systems name their disks so.
fn url_scheme(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte);
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_letter);
    let scheme = scheme.to_ascii_lowercase();
    (is_scheme && (rest.starts_with("//") || DATABASE_URL_SCHEMES.contains(&scheme.as_str())))
        .then_some(scheme)
}
