//! The library people use: sessions as immutable facts, out of any agent's format and back.
//!
//! [`compact_request`] makes a provider's request fit a budget, without a session. [`import`] reads transcript files into
//! a store, and [`request_plan`] makes requests of what it holds. The crates below are here under their own names: [`core`] for
//! events and what is derived from them, [`store`] for the log, [`wire`] for provider formats.
//!
//! ```
//! use epitome::{import::import_bytes, store::{SqliteOptions, SqliteStore}, wire::transcripts::TranscriptLimits};
//!
//! let folder = tempfile::tempdir()?;
//! let store = SqliteStore::open(&folder.path().join("log.db"), SqliteOptions::default())?;
//! let file = br#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;
//! let imported = import_bytes(&store, "greeting.json", file, &TranscriptLimits::default())?;
//! assert_eq!(imported.sessions[0].appended, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod compact;
pub mod evaluation;
pub mod holdout;
pub mod import;
pub mod lineage;
pub mod memory_files;
pub mod metrics;
pub mod observe;
pub mod recorder;
pub mod replay;
pub mod request_plan;
pub mod rewrite;
pub mod session;
pub mod simulate;
pub mod structured_session;
pub mod summarise;
pub mod summary_retention;
pub mod text_fate;
pub mod token_margin;

pub use self::request_plan::{RequestError, compact_request};
pub use epitome_core as core;
pub use epitome_store as store;
pub use epitome_wire as wire;
