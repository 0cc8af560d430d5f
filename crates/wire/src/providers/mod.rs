//! The providers: a directory for each, with everything that knows its JSON and its rules.

pub mod anthropic;
pub mod openai_chat;
pub mod openai_responses;
