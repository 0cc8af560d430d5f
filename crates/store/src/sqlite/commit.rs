//! Events and records in one transaction: either all of them are there or none is.

use epitome_core::{Seq, ThreadId, TokenCounter};
use serde::de::IgnoredAny;

use super::{
    SqliteStore,
    append::{self, PreparedAppend},
    calls, exchanges, jobs, sessions,
    sqlite_error::SqliteError,
    summaries,
    writer::WriteTx,
};
use crate::{
    error::StoreError,
    pending_commit::CommitReporter,
    records::{
        CommitReceipt, CommitRecord, HeadPromotion, NewCall, NewExchange, NewSession, ThreadCommit,
        ThreadOpening,
    },
    thread_head::ThreadHead,
};

impl SqliteStore {
    /// Hands a commit to the thread that writes, which reports the outcome.
    pub(super) fn hand_over(&self, commit: ThreadCommit, reporter: CommitReporter) {
        match PreparedCommit::new(commit, self.options.counter.as_deref()) {
            Ok(mut prepared) => {
                let work = move |tx: &mut WriteTx<'_>| prepared.run(tx);
                self.writer.write_then("committing", work, |done| reporter.report(done));
            }
            Err(error) => reporter.report(Err(error)),
        }
    }
}

/// A commit of which all that needs no lock has been done.
struct PreparedCommit {
    thread: ThreadId,
    opens: Option<ThreadOpening>,
    append: PreparedAppend,
    records: Vec<CommitRecord>,
}

impl PreparedCommit {
    fn new(commit: ThreadCommit, counter: Option<&dyn TokenCounter>) -> Result<Self, StoreError> {
        let ThreadCommit { thread, after, events, mut records, opens } = commit;
        if let Some(opens) = &opens {
            check_opening(thread, after, opens)?;
        }
        for record in &records {
            check(thread, record)?;
        }
        // Calls name contents, so these come first. The sort keeps the order of the rest.
        records.sort_by_key(|record| !matches!(record, CommitRecord::Content(_) | CommitRecord::Piece(_)));
        Ok(Self { thread, opens, append: PreparedAppend::new(thread, after, events, counter), records })
    }

    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<CommitReceipt, SqliteError> {
        let made = match &self.opens {
            Some(opens) => open(tx, opens)?,
            None => None,
        };
        let head = match made {
            Some(start) => self.append.run_after(tx, start)?,
            None => self.append.run(tx)?,
        };
        let mut committed = CommitReceipt { head, calls: Vec::new() };
        for record in &self.records {
            match record {
                CommitRecord::Content(content) => calls::store_text(tx, content)?,
                CommitRecord::Piece(content) => calls::store_piece(tx, self.thread, content)?,
                CommitRecord::CallsSoFar(calls) => calls::expect_call_count(tx, self.thread, *calls)?,
                CommitRecord::Call(call) => {
                    committed.calls.push(calls::insert(tx, self.thread, head.seq, call)?);
                }
                CommitRecord::Outcome(outcome) => calls::insert_outcome(tx, self.thread, outcome)?,
                CommitRecord::Job(job) => jobs::insert(tx, head.seq, job)?,
                CommitRecord::Adopted { job, compaction } => {
                    jobs::adopt(tx, self.thread, *job, *compaction)?;
                }
                CommitRecord::Summary(made) => summaries::insert(tx, self.thread, made)?,
                CommitRecord::CancelJob { job, reason } => jobs::cancel(tx, *job, reason)?,
                CommitRecord::Exchange(exchange) => exchanges::insert(tx, self.thread, head.seq, exchange)?,
                CommitRecord::Head => sessions::set_head_of_session(tx, self.thread)?,
            }
        }
        Ok(committed)
    }
}

/// Makes the thread of a commit, and its session if that is new; gives where the thread ends, if it is new.
fn open(tx: &mut WriteTx<'_>, opens: &ThreadOpening) -> Result<Option<ThreadHead>, SqliteError> {
    let ThreadOpening { session, thread, head } = opens;
    match session {
        Some(session) => {
            if is_elsewhere(tx, session)? {
                let (thread, after) = (thread.id, opens.after());
                return Err(StoreError::Conflict { thread, after, head: ThreadHead::START }.into());
            }
            sessions::create(tx, session)?;
        }
        None => sessions::expect_session(tx.connection, thread.session)?,
    }
    let made = append::make(tx, thread, *head)?;
    if made.is_none() && *head == HeadPromotion::Yes {
        sessions::set_head_of_session(tx, thread.id)?;
    }
    Ok(made)
}

/// Returns true if a session with the same name exists in another place.
fn is_elsewhere(tx: &WriteTx<'_>, session: &NewSession) -> Result<bool, SqliteError> {
    let Some(key) = &session.key else { return Ok(false) };
    let known = sessions::session_named(tx.connection, &session.principal, key, session.id)?;
    Ok(known.is_some_and(|known| known != session.id))
}

/// Checks the session and thread that a commit makes, by themselves.
fn check_opening(thread: ThreadId, after: Seq, opens: &ThreadOpening) -> Result<(), StoreError> {
    let ThreadOpening { session, thread: made, .. } = opens;
    if made.id != thread {
        return Err(misplaced_record("opening", thread, format!("it makes the thread {}", made.id)));
    }
    if after != opens.after() {
        let why = format!("it starts after event {}, and the commit goes on after {after}", opens.after());
        return Err(misplaced_record("opening", thread, why));
    }
    match session {
        Some(session) if session.id != made.session => {
            let why = format!("it makes the session {}, and the thread is of {}", session.id, made.session);
            Err(misplaced_record("opening", thread, why))
        }
        _ => Ok(()),
    }
}

/// Checks a record by itself.
fn check(thread: ThreadId, record: &CommitRecord) -> Result<(), StoreError> {
    match record {
        CommitRecord::Content(content) | CommitRecord::Piece(content) => calls::check_hash(content),
        CommitRecord::Call(NewCall { pass, sent, steps, plan, script, .. }) => {
            check_json("pass of a call", pass.as_deref())?;
            check_json("sent part of a call", Some(sent))?;
            check_json("list of steps of a call", Some(steps))?;
            check_json("plan of a call", plan.as_deref())?;
            check_json("script of a call", script.as_deref())
        }
        CommitRecord::Job(job) if job.thread != thread => {
            Err(misplaced_record("job", thread, format!("it is for the thread {}", job.thread)))
        }
        CommitRecord::Job(job) => check_json("detail of a job", Some(&job.detail)),
        CommitRecord::Exchange(NewExchange { observed, .. }) => {
            check_json("observation of an exchange", observed.as_deref())
        }
        CommitRecord::Summary(made) => {
            check_json("brief of a summary", Some(&made.summary.brief))?;
            check_json("report on a summary", Some(&made.summary.report))
        }
        CommitRecord::CallsSoFar(_)
        | CommitRecord::Outcome(_)
        | CommitRecord::Adopted { .. }
        | CommitRecord::CancelJob { .. }
        | CommitRecord::Head => Ok(()),
    }
}

/// Refuses a text that is not one JSON value.
pub(super) fn check_json(what: &'static str, text: Option<&str>) -> Result<(), StoreError> {
    let Some(text) = text else { return Ok(()) };
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => Ok(()),
        Err(source) => Err(StoreError::NotJson { what, source }),
    }
}

/// A record that does not fit the thread.
pub(super) fn misplaced_record(what: &'static str, thread: ThreadId, why: String) -> StoreError {
    StoreError::Misplaced { what, thread, why }
}

/// Refuses a place outside `first..=last`.
pub(super) fn check_within(
    what: &'static str,
    thread: ThreadId,
    (name, place): (&str, Seq),
    (first, last): (Seq, Seq),
) -> Result<(), StoreError> {
    if first <= place && place <= last {
        return Ok(());
    }
    Err(misplaced_record(
        what,
        thread,
        format!("its {name} is event {place}, which is not one of {first} to {last}"),
    ))
}
