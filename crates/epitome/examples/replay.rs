//! What was sent, proved: every request of the sessions in a file is made again from the log and the records beside it, and
//! compared with the hash of the bytes that were sent.
//!
//! ```sh
//! cargo run -p epitome --example replay -- agent.db
//! ```
//!
//! It also tells how large requests were by the provider's count, which of them were refused, and who wrote the summaries.

use std::{env, error::Error, fmt::Write as _};

use epitome::{
    Store, StoreLocation, StoreOptions, ThreadId, open_store,
    session::verify_call,
    store::records::{AttemptFilter, JobState},
};

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("usage: replay FILE")?;
    let store = open_store(&StoreLocation::named(&file)?, StoreOptions::default())?;
    for session in store.sessions()? {
        println!("{}", prove(&*store, session.head.ok_or("the session has no thread")?)?);
    }
    Ok(())
}

/// Makes every call of a thread again, and says what they were like.
pub(crate) fn prove(store: &dyn Store, thread: ThreadId) -> Result<String, Box<dyn Error>> {
    let calls = store.calls(thread, 0, usize::MAX)?;
    for call in &calls {
        verify_call(store, thread, call.number)?;
    }
    let outcomes = || calls.iter().flat_map(|call| &call.outcomes);
    let largest = outcomes().filter_map(|outcome| outcome.usage).map(|usage| usage.input()).max();
    let failed = outcomes().filter(|outcome| outcome.error.is_some()).count();
    let mut said = format!(
        "{} calls, each made again with the hash of what was sent; the largest had {} tokens by the provider's count; {failed} \
         refused or failed",
        calls.len(),
        largest.unwrap_or_default(),
    );
    for row in store.jobs(Some(thread))? {
        let state = match row.state {
            JobState::Adopted { compaction } => format!("adopted as {compaction}"),
            other => format!("{other:?}"),
        };
        let _ = write!(said, "\n  events {}-{}: {state}", row.job.first, row.job.through);
        for tried in store.attempts(AttemptFilter::Job(row.job.id), None, usize::MAX)?.into_iter().rev() {
            let seconds = (tried.attempt.ended.0 - tried.attempt.started.0) / 1_000;
            let end = tried.attempt.error.unwrap_or("well".to_owned());
            let _ = write!(said, "; {} for {seconds} s: {end}", tried.attempt.summariser);
        }
    }
    Ok(said)
}
