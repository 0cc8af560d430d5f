//! The library, tried as people use it: a line of events in, a request out.

#![expect(clippy::unwrap_used, reason = "a test whose input cannot be read has failed")]
#![expect(clippy::duplicate_mod, reason = "examples share an agent, and each is a program of its own")]

mod adversarial;
mod agent;
mod answer_streams;
mod client_cache;
mod compaction;
mod compose;
mod composing;
mod composing_ahead;
mod composing_as_before;
mod composing_at_random;
mod composing_rewritten;
mod composing_with_answers;
mod count_accuracy;
mod design_numbers;
mod examples;
mod few_shot;
mod handles;
mod hooks;
mod hostile;
mod lifecycle_crash;
mod lineage;
mod lineage_properties;
mod manual;
mod memory_files;
mod misbehaving;
mod model_drafts;
mod opening;
mod recorder;
mod rehearsal;
mod scripted;
mod session;
mod standing;
mod state_items;
mod summarisers;
mod together;
mod triggers;

/// Logs and contexts as people write them.
#[path = "../../../core/tests/it/notation.rs"]
#[expect(dead_code, reason = "what only the core is tried with")]
mod notation;

/// Histories as the wire formats are tried on.
#[path = "../../../wire/tests/it/histories.rs"]
#[expect(dead_code, reason = "what contexts are cut with elsewhere")]
mod histories;

/// Histories as the core is tried on.
#[path = "../../../core/tests/it/histories.rs"]
#[expect(dead_code, reason = "what only the core is tried with")]
mod some_histories;

/// The formats in which the tests write out what clients and providers say. Gemini is tried in tests of its own.
const SCRIPTED: [epitome::Format; 3] =
    [epitome::Format::OpenaiChat, epitome::Format::OpenaiResponses, epitome::Format::Anthropic];
