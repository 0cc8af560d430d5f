//! Without a session: a request that is too long goes in, one that fits comes out.
//!
//! ```sh
//! cargo run -p epitome --example stateless -- 8000 < request.json > smaller.json
//! ```
//!
//! For proxies and for agents that keep their own history. Nothing is remembered, so every request is made to fit by
//! itself: what can be fetched again goes first, the newest words stay, and what is left out is named by its place.

use std::{
    env,
    error::Error,
    io::{self, Read as _},
};

use epitome::{Format, Tokens, compact_request};

fn main() -> Result<(), Box<dyn Error>> {
    let limit: u64 = env::args().nth(1).ok_or("usage: stateless TOKENS < request.json")?.parse()?;
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request)?;
    println!("{}", smaller(&request, Tokens(limit))?);
    Ok(())
}

/// The same request in at most so many tokens; with its own bytes if it fits already.
pub(crate) fn smaller(request: &[u8], limit: Tokens) -> Result<String, Box<dyn Error>> {
    let compacted = compact_request(Format::OpenaiChat, request, limit)?;
    let report = &compacted.report;
    eprintln!("{} tokens became {}", report.before, report.after.tokens);
    for gone in &report.evictions {
        eprintln!("  {}: {} events changed by {}", gone.handle, gone.events, gone.by);
    }
    Ok(compacted.rendered.body)
}
