//! The wire formats, tried on whole requests, responses and streams.

#![expect(clippy::unwrap_used, reason = "a test whose input cannot be read has failed")]

mod asked;
mod breakpoints;
mod callers;
mod continuations;
mod fixtures;
mod gemini;
mod generated;
mod histories;
mod legal;
mod legality;
mod normal;
mod odd;
mod options;
mod overflows;
mod prompts;
mod real;
mod real_speakers;
mod recall_answers;
mod recall_requests;
mod recalls;
mod rendered;
mod requests;
mod responses;
mod said;
mod seen;
mod seen_clients;
mod seen_runs;
mod streams;
mod summaries;
mod transcript_threads;
mod translated;
mod warm;
mod weaving;

/// The formats in which the tests write out what clients and providers say. Gemini is tried in tests of its own.
const SCRIPTED: [epitome_wire::Format; 3] = [
    epitome_wire::Format::OpenaiChat,
    epitome_wire::Format::OpenaiResponses,
    epitome_wire::Format::Anthropic,
];
