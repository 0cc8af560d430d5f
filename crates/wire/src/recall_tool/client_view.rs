//! The client's copy of an answer, which it will send back.

use epitome_core::Event;

use crate::{error::WireError, format::Format, incoming, stream::StreamDecoder};

/// Reads the events of an answer from the bytes that the client received, streamed or in one piece, with the digests
/// by which [`IncomingRequest`](incoming::IncomingRequest) recognises them when the client sends them back.
///
/// A stream that broke off gives the part that came. A [`StreamDecoder`] that reads the output of a
/// [`RecallSplice`](super::RecallSplice) gives the same events.
pub fn client_events(format: Format, bytes: &[u8]) -> Result<Vec<Event>, WireError> {
    // No stream begins like an object.
    let is_whole = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let events = if is_whole {
        format.decode_response(&String::from_utf8_lossy(bytes))?
    } else {
        let mut stream = StreamDecoder::new(format);
        stream.push(bytes);
        stream.finish()?.events
    };
    Ok(incoming::with_unit_digests(format, events))
}
