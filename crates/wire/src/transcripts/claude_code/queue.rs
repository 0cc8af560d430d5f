//! What the user typed while the agent was at work.
//!
//! It waits in a queue. `dequeue` makes a line of its own of it, `popAll` gives it back to the user, and `remove`
//! hands it to the model in the middle of things. Newer versions attach it then; older ones leave no other trace of
//! it than the queue, so there it is taken from the queue.

use std::collections::VecDeque;

use crate::json::Json;

/// What waits to be handed over, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Queued>,
}

/// Something in the queue.
pub(super) struct Queued {
    /// What was typed, or what the agent put there in its place.
    pub(super) text: String,
    /// The line that put it there.
    pub(super) raw: String,
}

impl Queue {
    /// Takes an operation; gives what it hands to the model in the middle of things.
    pub(super) fn take(&mut self, operation: &Json<'_>) -> Option<Queued> {
        match operation.text_at("operation")? {
            "enqueue" => {
                let text = operation.text_at("content").unwrap_or_default().to_owned();
                self.waiting.push_back(Queued { text, raw: operation.raw.to_owned() });
                None
            }
            "dequeue" => {
                self.waiting.pop_front();
                None
            }
            // Commands run in the agent; the model does not hear of them.
            "remove" => self.waiting.pop_front().filter(|queued| !queued.text.trim_start().starts_with('/')),
            "popAll" => {
                self.waiting.clear();
                None
            }
            _ => None,
        }
    }
}
