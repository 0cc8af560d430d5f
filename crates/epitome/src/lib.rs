//! The library people use: sessions as immutable facts, out of any agent's format and back.
//!
//! [`compact_request`] makes a provider's request fit a budget, without a session. [`import`] reads transcript files into
//! a store, and [`plan`] makes requests of what it holds. The crates below are here under their own names: [`core`] for
//! events and what is derived from them, [`store`] for the log, [`wire`] for provider formats.
//!
//! ```
//! use epitome::{import::import_bytes, store::{Options, Sqlite}, wire::transcripts::Limits};
//!
//! let folder = tempfile::tempdir()?;
//! let store = Sqlite::open(&folder.path().join("log.db"), Options::default())?;
//! let file = br#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;
//! let imported = import_bytes(&store, "greeting.json", file, &Limits::default())?;
//! assert_eq!(imported.sessions[0].appended, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod compact;
pub mod compose;
pub mod eval;
pub mod holdout;
pub mod import;
pub mod kept;
pub mod lineage;
pub mod margin;
pub mod memory_files;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod recorder;
pub mod rehearse;
pub mod replay;
pub mod session;
pub mod structured;
pub mod summarise;
pub mod why;

pub use self::plan::{RequestError, compact_request};
pub use epitome_core as core;
pub use epitome_store as store;
pub use epitome_wire as wire;
