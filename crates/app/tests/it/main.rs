//! The binary, used as people use it.

mod bad_input;
mod commands;
mod compaction;
mod config;
mod eval;
mod gateway;
mod growth;
mod harness;
mod hooks;
mod mcp;
mod real_data;
mod replay;
mod resume;
mod round_trip;
mod serve;
mod setup;
mod tidy;
mod transcript_usage;
mod view;

/// The formats in which the tests write out what clients and providers say. Gemini is tried in tests of its own.
const SCRIPTED: [epitome::wire::Format; 3] = [
    epitome::wire::Format::OpenaiChat,
    epitome::wire::Format::OpenaiResponses,
    epitome::wire::Format::Anthropic,
];
