//! Keys of providers, which are never shown.
//!
//! The library reads no environment by itself. A key is a value, or a function that is called before every
//! request, so that a key may change while a session runs. [`ApiKey::from_env`] and [`ApiKey::from_file`] are for
//! the application to call. A key never appears in `Debug` output, an error or a log.

use std::{
    env::{self, VarError},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use secrecy::{ExposeSecret, SecretString};

/// A provider's key.
#[derive(Clone)]
pub struct ApiKey(ApiKeySource);

#[derive(Clone)]
enum ApiKeySource {
    Value(SecretString),
    Asked(Arc<dyn Fn() -> Result<SecretString, KeyError> + Send + Sync>),
}

/// Reason for a missing key. No error shows the text that was found.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The variable is not set.
    #[error("reading a key from the environment: `{name}` is not set; set it to the key")]
    Unset {
        /// Name of the variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("reading a key from {}: the file cannot be read; check its name and who may read it", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The text that was found cannot be a key.
    #[error(
        "reading a key from {place}: what stands there is {what}; put the key there, alone and on one line"
    )]
    Unusable {
        /// Place where it was found.
        place: String,
        /// Description of the problem.
        what: &'static str,
    },
    /// The function that was asked for the key has none.
    #[error("asking for a key: there is none ({said})")]
    Refused {
        /// Its reason.
        said: String,
    },
}

impl ApiKey {
    /// A key with this value.
    pub fn new(key: impl Into<String>) -> Result<Self, KeyError> {
        usable(&key.into(), "the value given").map(|key| Self(ApiKeySource::Value(key)))
    }

    /// A key that `ask` returns before each request.
    pub fn from_callback(ask: impl Fn() -> Result<SecretString, KeyError> + Send + Sync + 'static) -> Self {
        Self(ApiKeySource::Asked(Arc::new(ask)))
    }

    /// The value of the environment variable `name` at this moment.
    pub fn from_env(name: &str) -> Result<Self, KeyError> {
        match env::var(name) {
            Ok(key) => {
                usable(&key, &format!("the variable `{name}`")).map(|key| Self(ApiKeySource::Value(key)))
            }
            Err(VarError::NotPresent) => Err(KeyError::Unset { name: name.to_owned() }),
            Err(VarError::NotUnicode(_)) => {
                Err(KeyError::Unusable { place: format!("the variable `{name}`"), what: "not text" })
            }
        }
    }

    /// The content of the file at this moment, without white space around it.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let read = fs::read_to_string(path);
        let key = read.map_err(|source| KeyError::File { path: path.to_owned(), source })?;
        usable(&key, &format!("the file {}", path.display())).map(|key| Self(ApiKeySource::Value(key)))
    }

    /// Reveals the key while a request is made.
    pub(super) fn reveal(&self) -> Result<SecretString, KeyError> {
        match &self.0 {
            ApiKeySource::Value(key) => Ok(key.clone()),
            ApiKeySource::Asked(ask) => usable(ask()?.expose_secret(), "who was asked for it"),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Checks a key, which goes into an HTTP header: one line of visible ASCII.
fn usable(key: &str, place: &str) -> Result<SecretString, KeyError> {
    let key = key.trim();
    let what = if key.is_empty() {
        "empty"
    } else if key.contains(['\n', '\r']) {
        "more than one line"
    } else if !key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        "not plain ASCII"
    } else {
        return Ok(SecretString::from(key));
    };
    Err(KeyError::Unusable { place: place.to_owned(), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: Result<ApiKey, KeyError>) -> String {
        match key {
            Ok(key) => key.reveal().unwrap().expose_secret().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_key_is_one_line_and_nothing_shows_it() {
        assert_eq!(shown(ApiKey::new(" sk-1 \n")), "sk-1");
        for wrong in ["", " \n", "canary\nsecond", "canary\u{e9}", "canary\u{0}"] {
            let error = ApiKey::new(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        assert_eq!(format!("{:?}", ApiKey::new("canary").unwrap()), "Key(…)");
        assert_eq!(format!("{:?}", ApiKey::from_callback(|| Ok("canary".into()))), "Key(…)");
    }

    #[test]
    fn a_key_comes_from_a_file_or_the_environment_when_it_is_asked_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "  from-a-file\r\n").unwrap();
        assert_eq!(shown(ApiKey::from_file(file.path())), "from-a-file");
        let error = shown(ApiKey::from_file(&file.path().join("nowhere")));
        assert!(error.contains("the file cannot be read"), "{error}");
        // Cargo sets this one for every test.
        assert_eq!(shown(ApiKey::from_env("CARGO_PKG_NAME")), "epitome");
        let error = shown(ApiKey::from_env("EPITOME_NO_SUCH_KEY"));
        assert!(error.contains("`EPITOME_NO_SUCH_KEY` is not set"), "{error}");
    }

    #[test]
    fn a_function_is_asked_each_time_and_may_have_none() {
        let turn = std::sync::atomic::AtomicU64::new(0);
        let key =
            ApiKey::from_callback(move || match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                2.. => Err(KeyError::Refused { said: "the vault is shut".into() }),
                turn => Ok(format!("key-{turn}").into()),
            });
        let reveal = || key.reveal().map(|key| key.expose_secret().to_owned());
        assert_eq!((reveal().unwrap(), reveal().unwrap()), ("key-0".to_owned(), "key-1".to_owned()));
        assert!(reveal().unwrap_err().to_string().contains("the vault is shut"));
    }
}
