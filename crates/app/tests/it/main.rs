//! The binary, used as people use it.

mod bad_input;
mod commands;
mod compaction;
mod eval;
mod gateway;
mod growth;
mod harness;
mod real_data;
mod replay;
mod round_trip;
mod serve;
mod tidy;
mod view;
