//! Provider wire formats and agents' transcript files, to events and back.
//!
//! The only crate that knows provider JSON. Pure: bytes in, events out, and the other way round. [`Format`] reads and
//! writes whole requests and responses, [`StreamDecoder`] reads streamed ones, and [`anthropic`], [`openai_chat`] and
//! [`openai_responses`] read single messages and items. [`render`] writes the request that a model receives, and
//! [`legality`] checks it. [`recall`] is a tool that a gateway answers itself. JSON that this version does not
//! understand is carried with its bytes, never refused.

pub mod anthropic;
pub mod ask;
pub mod caller;
pub mod legality;
pub mod openai_chat;
pub mod openai_responses;
pub mod overflow;
pub mod recall;
pub mod render;
pub mod reply;
pub mod say;
pub mod seen;
pub mod transcripts;
pub mod weave;

mod answered;
mod compact_tool;
mod decoded;
mod encode;
mod error;
mod format;
mod json;
mod marks;
mod media;
mod normal;
mod preamble;
mod prompt;
mod request;
mod response;
mod sse;
mod stream;
mod tools;
mod warm;
mod write;

pub use answered::{Answered, Finish};
pub use compact_tool::{COMPACT_TOOL, is_compact_call};
pub use encode::{Completion, EncodeError, Encoded, Placed};
pub use error::WireError;
pub use format::{Format, UnknownFormat};
pub use preamble::is_project_preamble;
pub use prompt::PromptMemo;
pub use request::requested_model;
pub use stream::{Ending, StreamDecoder, Streamed};
