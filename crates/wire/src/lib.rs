//! Provider wire formats and agents' transcript files, to events and back.
//!
//! The only crate that knows provider JSON. Pure: bytes in, events out, and the other way round. [`Format`] reads and
//! writes whole requests and responses, [`StreamDecoder`] reads streamed ones, and [`anthropic`], [`openai_chat`],
//! [`openai_responses`] and [`gemini`] read single messages and items. [`render`] writes the request that a model receives, and
//! [`legality`] checks it. [`recall_tool`] is a tool that a gateway answers itself. JSON that this version does not
//! understand is carried with its bytes, never refused.

pub mod caller;
pub mod endpoint;
pub mod history_rewrite;
pub mod incoming;
pub mod legality;
pub mod message_builder;
pub mod overflow;
pub mod plain_request;
pub mod recall_tool;
pub mod render;
pub mod summary_prompt;
pub mod synthetic_response;
pub mod transcripts;

mod append_instruction;
mod cache_marks;
mod compact_tool;
mod decode_parts;
mod encode;
mod error;
mod format;
mod json;
mod media;
mod model_answer;
mod normal_digest;
mod preamble;
mod prompt_blocks;
mod providers;
mod request;
mod response;
mod sse;
mod stream;
mod tools;
mod write;

pub use compact_tool::{COMPACT_TOOL, is_compact_call};
pub use encode::{EncodeError, EncodeMode, EncodedMessage, EncodedRequest};
pub use error::WireError;
pub use format::{Format, UnknownFormatError};
pub use model_answer::{FinishReason, ModelAnswer};
pub use preamble::is_project_preamble;
pub use prompt_blocks::PromptMemo;
pub use providers::{anthropic, gemini, openai_chat, openai_responses};
pub use request::requested_model;
pub use stream::{StreamDecoder, StreamEnding, StreamedAnswer};
