//! Answers on their way to the client, without the calls of a tool that the client does not know.

use epitome_core::event::ToolCall;

use super::{is_recall_call, stream::StreamSplice, unstreamed::UnstreamedSplice};
use crate::format::Format;

/// Largest amount of an answer that may be withheld.
pub(crate) const MAX_WITHHELD_BYTES: usize = 1 << 20;

/// Largest answer that is kept in order to be continued, and largest single event of one: pictures come in one piece.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Takes a provider's answer and gives the client's version of it.
///
/// An answer without a call of the tool passes byte for byte; of a stream, every event at once. From the beginning of
/// a call on, the pieces of the call are withheld. If the answer ends and called no other tool, its end is withheld
/// as well, and the next answer, to a request with the results, [continues](Self::continue_with) it: indices and
/// numbers go on, and the client sees one answer with one beginning and one end. Its id is the first answer's (in
/// Responses the last one's, which later requests may refer to); **usage is the last answer's report**, not a sum. A
/// text that continues a Chat text is set apart from it by an empty line, as nothing else does there.
///
/// ```
/// use epitome_wire::{Format, recall_tool::{RecallSplice, SpliceVerdict}};
///
/// let recalls = concat!(
///     r#"{"id":"a","role":"assistant","content":[{"type":"text","text":"One moment."},"#,
///     r#"{"type":"tool_use","id":"t","name":"epitome_recall","input":{"handle":"recall 1a2b3c4d:7"}}],"#,
///     r#""stop_reason":"tool_use"}"#,
/// );
/// let says = r#"{"id":"b","role":"assistant","content":[{"type":"text","text":"8080."}],"stop_reason":"end_turn"}"#;
/// let mut splice = RecallSplice::whole(Format::Anthropic);
/// let mut seen = Vec::new();
/// splice.push(recalls.as_bytes(), &mut seen);
/// let SpliceVerdict::Recall(recalls) = splice.end(&mut seen) else { panic!("it calls nothing else") };
/// assert_eq!(recalls.calls[0].id, "t".into());
/// assert!(seen.is_empty());
///
/// splice.continue_with();
/// splice.push(says.as_bytes(), &mut seen);
/// assert!(matches!(splice.end(&mut seen), SpliceVerdict::Continued { .. }));
/// assert_eq!(
///     String::from_utf8_lossy(&seen),
///     r#"{"id":"a","role":"assistant","content":[{"type":"text","text":"One moment."},{"type":"text","text":"8080."}],"#
///         .to_owned() + r#""stop_reason":"end_turn"}"#,
/// );
/// ```
#[derive(Debug)]
pub struct RecallSplice(SpliceMode);

#[derive(Debug)]
enum SpliceMode {
    Stream(Box<StreamSplice>),
    Whole(UnstreamedSplice),
}

/// Outcome for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpliceVerdict {
    /// The whole answer was passed: it did not call the tool.
    Passed,
    /// The answer did not call the tool, and was passed as the end of the answers before it.
    Continued {
        /// The last answer by itself, as if it had not been streamed; `None` if nothing came.
        answer: Option<String>,
    },
    /// It called the tool and nothing else. Its end was withheld: it is to be continued.
    Recall(RecallCalls),
    /// It called the tool and others: calls of the tool were left out, and all else was passed. The client will
    /// answer its own calls; the next request has to contain these calls and their results again.
    Mixed(RecallCalls),
    /// It called the tool, but did not end to wait for its tools: it broke off, failed or reached a limit. Those
    /// calls, which may be cut off, were left out for good, and all else was passed.
    LeftOut(RecallCalls),
    /// It was too large to be watched to its end: everything was passed, calls of the tool too if there were any.
    Exposed,
}

/// The calls of the tool in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallCalls {
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
    /// The whole answer as the provider gave it, as if it had not been streamed.
    pub answer: String,
}

impl RecallCalls {
    /// Finds the calls of the tool in a whole answer.
    pub(crate) fn of(format: Format, answer: String) -> Self {
        let events = format.decode_response(&answer).unwrap_or_default();
        let calls = events.iter().flat_map(|event| event.fact.calls());
        let calls = calls.filter(|call| is_recall_call(call).is_some()).cloned().collect();
        Self { calls, answer }
    }
}

impl RecallSplice {
    /// Waits for a streamed answer.
    pub fn stream(format: Format) -> Self {
        Self(SpliceMode::Stream(Box::new(StreamSplice::new(format))))
    }

    /// Waits for an answer in one piece of JSON. Nothing of it is passed before its end.
    pub fn whole(format: Format) -> Self {
        Self(SpliceMode::Whole(UnstreamedSplice::new(format)))
    }

    /// The same, with other limits than a mebibyte withheld and sixteen kept.
    pub fn with_limits(mut self, withheld: usize, kept: usize) -> Self {
        match &mut self.0 {
            SpliceMode::Stream(stream) => stream.limit(withheld, kept),
            SpliceMode::Whole(whole) => whole.limit(kept),
        }
        self
    }

    /// Takes the next bytes, which may be cut anywhere, and adds the bytes that the client may have now.
    pub fn push(&mut self, bytes: &[u8], seen: &mut Vec<u8>) {
        match &mut self.0 {
            SpliceMode::Stream(stream) => stream.push(bytes, seen),
            SpliceMode::Whole(whole) => whole.push(bytes, seen),
        }
    }

    /// Returns true if the answer has sent its last event, though more bytes may follow. Always false for an answer
    /// in one piece.
    pub fn is_over(&self) -> bool {
        matches!(&self.0, SpliceMode::Stream(stream) if stream.is_over())
    }

    /// Ends the answer, however it ended, and adds the rest that the client is to have.
    pub fn end(&mut self, seen: &mut Vec<u8>) -> SpliceVerdict {
        match &mut self.0 {
            SpliceMode::Stream(stream) => stream.end(seen),
            SpliceMode::Whole(whole) => whole.end(seen),
        }
    }

    /// After a [`SpliceVerdict::Recall`]: the bytes from now on are the answer that continues.
    pub fn continue_with(&mut self) {
        match &mut self.0 {
            SpliceMode::Stream(stream) => stream.go_on(),
            SpliceMode::Whole(whole) => whole.go_on(),
        }
    }

    /// Gives up after a [`SpliceVerdict::Recall`], or in the middle of the answer that continues. Returns an error for the
    /// client in its provider's form; an answer in one piece is replaced by it.
    pub fn fail(&mut self, message: &str) -> Vec<u8> {
        match &mut self.0 {
            SpliceMode::Stream(stream) => stream.fail(message),
            SpliceMode::Whole(whole) => whole.fail(message),
        }
    }
}
