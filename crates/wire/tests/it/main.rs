//! The wire formats, tried on whole requests, responses and streams.

mod fixtures;
mod legal;
mod normal;
mod odd;
mod requests;
mod responses;
mod streams;
mod translated;
