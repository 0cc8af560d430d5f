//! Provider wire formats and agents' transcript files, to events and back.
//!
//! The only crate that knows provider JSON. Pure: bytes in, events out, and the other way round.

pub mod transcripts;
