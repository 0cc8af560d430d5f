//! Text that the user typed while the agent was at work.
//!
//! It waits in a queue. `dequeue` makes a line of its own of it, `popAll` gives it back to the user, and `remove`
//! hands it to the model between tool calls. Newer versions attach it then; older ones leave no trace of it but the
//! queue, so there it is taken from the queue.

use std::collections::{HashSet, VecDeque};

use epitome_core::{Fact, event::Timestamp, id::CallId};

use crate::{json::Json, transcripts::time::parse_time};

/// Entries that wait to be handed over, oldest first.
#[derive(Default)]
pub(super) struct ClaudeQueue {
    waiting: VecDeque<ClaudeQueueEntry>,
    /// Entries handed over while calls were open: the model sees them after the results.
    handed: Vec<ClaudeQueueEntry>,
    open: HashSet<CallId>,
}

/// An entry of the queue.
pub(super) struct ClaudeQueueEntry {
    /// Text that was typed, or that the agent put in its place.
    pub(super) text: String,
    /// The line that put it there.
    pub(super) raw: String,
    /// Time at which it was handed over.
    pub(super) time: Option<Timestamp>,
}

impl ClaudeQueue {
    /// Takes an operation.
    pub(super) fn take(&mut self, operation: &Json<'_>) {
        match operation.text_at("operation").unwrap_or_default() {
            "enqueue" => {
                let text = operation.text_at("content").unwrap_or_default().to_owned();
                self.waiting.push_back(ClaudeQueueEntry { text, raw: operation.raw.to_owned(), time: None });
            }
            "dequeue" => _ = self.waiting.pop_front(),
            "remove" => {
                let time = operation.text_at("timestamp").and_then(parse_time);
                // Commands run in the agent; the model does not see them.
                let heard =
                    self.waiting.pop_front().filter(|queued| !queued.text.trim_start().starts_with('/'));
                self.handed.extend(heard.map(|queued| ClaudeQueueEntry { time, ..queued }));
            }
            "popAll" => self.waiting.clear(),
            _ => {}
        }
    }

    /// Looks for calls and results in a message.
    pub(super) fn note_calls(&mut self, fact: &Fact) {
        self.open.extend(fact.calls().map(|call| call.id.clone()));
        for result in fact.results() {
            self.open.remove(&result.call);
        }
    }

    /// Takes the entries that the model sees now, if all calls are answered.
    pub(super) fn take_visible(&mut self) -> Vec<ClaudeQueueEntry> {
        if self.open.is_empty() { std::mem::take(&mut self.handed) } else { Vec::new() }
    }

    /// Takes the entries that the model sees before the next message: calls that are still open stay unanswered.
    pub(super) fn take_all(&mut self) -> Vec<ClaudeQueueEntry> {
        self.open.clear();
        std::mem::take(&mut self.handed)
    }
}
