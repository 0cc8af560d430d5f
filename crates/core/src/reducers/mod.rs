//! Reducers, one a file. Each says what triggers it and what it leaves behind.

pub mod expire_tool_results;
mod stub;

pub use expire_tool_results::ExpireToolResults;
