//! An answer that a program hands over as it arrives.

use epitome_wire::Format;

use super::{
    Session,
    answer::AssistantAnswer,
    answer_reader::{AnswerReader, BrokenAnswer, ReadAnswer},
    error::SessionError,
};

/// The model's answer to the last request, piece by piece: [`Session::answer_stream`] begins one.
///
/// Pieces are the bytes of the provider's response, cut anywhere. At the end [`finish`](Self::finish) gives what
/// [`Session::answered`] gives for the whole of them, and appends the same events.
///
/// ```
/// use epitome::{Format, Session, SessionError, Tokens};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), SessionError> {
/// let session = Session::builder(Format::OpenaiChat, "gpt-5.1").settings(json!({"stream": true})).begin().await?;
/// session.user("Why is the build slow?").await?;
/// let mut response = post(session.next_request().await?.body);
/// let mut stream = session.answer_stream().await?;
/// while let Some(piece) = response.next() {
///     stream.push(piece);
/// }
/// let answer = stream.finish().await?;
/// assert_eq!(answer.text, "The linker is slow.");
/// # Ok(())
/// # }
///
/// /// Posts a request to the provider. Your HTTP client stands here: pieces come as the network has them.
/// fn post(body: String) -> impl Iterator<Item = &'static [u8]> {
///     assert!(body.contains(r#""stream":true"#));
///     let pieces: [&[u8]; 4] = [
///         br#"data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"The linker"#,
///         b"\"}}]}\n\ndata: ",
///         br#"{"id":"1","choices":[{"index":0,"delta":{"content":" is slow."},"finish_reason":"stop"}]}"#,
///         b"\n\ndata: [DONE]\n\n",
///     ];
///     pieces.into_iter()
/// }
/// ```
///
/// A stream that breaks off is an error, and nothing of it is lost: the part that came is in the log, beside the
/// history, and [`Session::next_request`] gives the same request once more. So it is if this value is dropped before
/// `finish`, because the program gave up; that writes to the store, and waits for it.
#[derive(Debug)]
pub struct AnswerStream {
    session: Session,
    format: Format,
    reader: AnswerReader,
}

impl AnswerStream {
    pub(super) fn new(session: Session, format: Format) -> Self {
        Self { session, format, reader: AnswerReader::new(format) }
    }

    /// Takes the next bytes of the response.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.push(bytes.as_ref());
    }

    /// Returns true if the provider has said that the answer is complete, or failed: nothing that follows changes it.
    /// A response in one piece, and some streams, end without saying so.
    pub fn is_over(&self) -> bool {
        self.reader.is_over()
    }

    /// Appends the answer.
    pub async fn finish(mut self) -> Result<AssistantAnswer, SessionError> {
        let reader = self.take_reader();
        self.session.take_answer(reader).await
    }

    fn take_reader(&mut self) -> AnswerReader {
        std::mem::replace(&mut self.reader, AnswerReader::new(self.format))
    }
}

impl Drop for AnswerStream {
    /// Keeps what came of an answer that nobody waited for.
    fn drop(&mut self) {
        let reader = self.take_reader();
        if reader.is_empty() {
            return;
        }
        let came = match reader.read() {
            ReadAnswer::Complete(answered) => answered.events,
            ReadAnswer::Broken(BrokenAnswer { events, .. }) => events,
        };
        if let Err(error) = self.session.engine.answer_broken(came, "cancelled") {
            tracing::warn!(target: "epitome::session", %error, "an answer that was given up is not recorded");
        }
    }
}
