//! Provider wire formats and agents' transcript files, to events and back.
//!
//! The only crate that knows provider JSON. Pure: bytes in, events out, and the other way round. [`anthropic`],
//! [`openai_chat`] and [`openai_responses`] read single messages and items. What this version does not understand
//! is carried with its bytes, never refused.

pub mod anthropic;
pub mod openai_chat;
pub mod openai_responses;
pub mod transcripts;

mod decoded;
mod error;
mod json;
mod media;
mod normal;
mod preamble;

pub use error::WireError;
pub use preamble::is_project_preamble;
