//! Measurement for Epitome: what a policy costs, and what it keeps.
//!
//! - [`replay`] makes every call of a session again under a policy, with its cache simulated, and looks for the facts that
//!   turned out to be needed.
//! - [`evaluation`] compacts a long session several times in a row and holds the last summary against what code finds in it.
//! - [`sweep`] makes requests of whole sessions, at many budgets or call by call, and checks each.
//! - [`charts`] draws a replay, as a picture or in letters.
//! - [`live_figures`] makes recorded sessions again as live ones and has their figures.
//! - [`metrics`] has the figures of one session of the log, and [`text_fate`] follows a text from call to call.
//!
//! Nothing here is written to a log, and no model is asked. The command line prints what this crate returns; its names may
//! change with any release.

pub mod charts;
pub mod evaluation;
pub mod live_figures;
pub mod metrics;
pub mod replay;
pub mod summary_retention;
pub mod sweep;
pub mod text_fate;
pub mod text_format;
pub mod transcript_sessions;
