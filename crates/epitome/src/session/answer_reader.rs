//! A provider's answer as it arrives: whole as JSON, or as a stream of events, recognised by its first byte.

use epitome_core::{Event, Fact};
use epitome_wire::{Format, ModelAnswer, StreamDecoder, StreamEnding, WireError};

use super::error::SessionError;

/// An answer as far as it has come.
#[derive(Debug)]
pub(super) struct AnswerReader {
    format: Format,
    received: ReceivedBytes,
}

/// The bytes of an answer so far.
#[derive(Debug)]
enum ReceivedBytes {
    /// None yet, but for white space.
    Nothing,
    /// JSON, which is read at the end.
    Json(Vec<u8>),
    /// Events, which are read as they come.
    Events(Box<StreamDecoder>),
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(super) enum ReadAnswer {
    /// It is complete.
    Complete(ModelAnswer),
    /// It broke off, failed, or is no answer.
    Broken(BrokenAnswer),
}

/// An answer that broke off, failed, or is none.
#[derive(Debug)]
pub(super) struct BrokenAnswer {
    /// What came of it.
    pub(super) events: Vec<Event>,
    /// The error that tells the program.
    pub(super) error: SessionError,
}

impl AnswerReader {
    /// Waits for an answer.
    pub(super) fn new(format: Format) -> Self {
        Self { format, received: ReceivedBytes::Nothing }
    }

    /// Takes the next bytes, which may be cut anywhere.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let ReceivedBytes::Nothing = self.received {
            // No line of a stream begins with a bracket. A list is Gemini's way to stream without events.
            self.received = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[') => ReceivedBytes::Json(Vec::new()),
                Some(_) => ReceivedBytes::Events(Box::new(StreamDecoder::new(self.format))),
            };
        }
        match &mut self.received {
            ReceivedBytes::Nothing => {}
            // One byte beyond the limit is enough to be refused at the end.
            ReceivedBytes::Json(kept) => {
                let room = (StreamDecoder::DEFAULT_LIMIT + 1).saturating_sub(kept.len());
                kept.extend(bytes.iter().take(room));
            }
            ReceivedBytes::Events(decoder) => decoder.push(bytes),
        }
    }

    /// Returns true if nothing has come yet.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.received, ReceivedBytes::Nothing)
    }

    /// Returns true if the provider has said that a stream is complete, or failed.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.received, ReceivedBytes::Events(decoder) if decoder.is_over())
    }

    /// Reads the answer.
    pub(super) fn read(self) -> ReadAnswer {
        let broken = |events, error| ReadAnswer::Broken(BrokenAnswer { events, error });
        let decoder = match self.received {
            ReceivedBytes::Nothing => Box::new(StreamDecoder::new(self.format)),
            ReceivedBytes::Json(kept) => {
                return match read_json(self.format, kept) {
                    Ok(answered) => ReadAnswer::Complete(answered),
                    Err(error) => broken(Vec::new(), error.into()),
                };
            }
            ReceivedBytes::Events(decoder) => decoder,
        };
        let streamed = match decoder.finish() {
            Ok(streamed) => streamed,
            Err(error) => return broken(Vec::new(), error.into()),
        };
        match ModelAnswer::of(self.format, streamed.events.clone(), streamed.ending) {
            Ok(answered) if answered.ending == StreamEnding::Complete => ReadAnswer::Complete(answered),
            Ok(cut) => broken(streamed.events, SessionError::AnswerCut { text: cut.text() }),
            Err(error) => broken(streamed.events, error.into()),
        }
    }
}

fn read_json(format: Format, kept: Vec<u8>) -> Result<ModelAnswer, WireError> {
    if kept.len() > StreamDecoder::DEFAULT_LIMIT {
        return Err(WireError::TooLarge { limit: StreamDecoder::DEFAULT_LIMIT });
    }
    // Bytes that are no text are no JSON either: the reader finds the place and says so.
    let text = String::from_utf8(kept)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    format.read_answer(&text)
}

/// An event of an answer that broke off, as it is kept beside the history: the model may be asked again, and a client
/// may send it back, or not.
pub(crate) fn beside_history(event: Event) -> Event {
    match event.fact {
        Fact::UsageReported { .. } | Fact::Carried { .. } => Event { normal: None, ..event },
        _ => Event { fact: Fact::Carried { kind: "answer_cut".to_owned() }, normal: None, ..event },
    }
}
