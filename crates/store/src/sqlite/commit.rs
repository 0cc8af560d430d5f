//! Events and records in one transaction: either all of them are there or none is.

use epitome_core::{Seq, ThreadId, TokenCounter};
use serde::de::IgnoredAny;

use super::{
    Sqlite,
    append::{self, Append},
    calls, exchanges,
    fault::Fault,
    jobs, sessions,
    writer::Desk,
};
use crate::{
    error::StoreError,
    log::Head,
    records::{BecomesHead, Commit, Committed, NewCall, NewExchange, NewSession, Opens, Record},
};

impl Sqlite {
    /// Writes events and records together, and makes their thread and session if requested, if the thread
    /// ends where the caller expects; otherwise [`StoreError::Conflict`], as for an append. A refused commit
    /// writes nothing at all.
    pub fn commit(&self, commit: Commit) -> Result<Head, StoreError> {
        self.commit_numbered(commit).map(|committed| committed.head)
    }

    /// The same without waiting for it. `then` receives the outcome, at once or on the thread that writes,
    /// and must not wait for the store itself. It is dropped without being called if that thread dies.
    pub fn commit_then(&self, commit: Commit, then: impl FnOnce(Result<Head, StoreError>) + Send + 'static) {
        match Prepared::new(commit, self.options.counter.as_deref()) {
            Ok(mut prepared) => {
                let work = move |desk: &mut Desk<'_>| prepared.run(desk);
                self.writer.write_then("committing", work, |done| then(done.map(|done| done.head)));
            }
            Err(error) => then(Err(error)),
        }
    }

    /// As [`commit`](Self::commit), and says which numbers its calls were given.
    pub fn commit_numbered(&self, commit: Commit) -> Result<Committed, StoreError> {
        let mut prepared = Prepared::new(commit, self.options.counter.as_deref())?;
        self.writer.write("committing", move |desk| prepared.run(desk))
    }
}

/// A commit of which all that needs no lock has been done.
struct Prepared {
    thread: ThreadId,
    opens: Option<Opens>,
    append: Append,
    records: Vec<Record>,
}

impl Prepared {
    fn new(commit: Commit, counter: Option<&dyn TokenCounter>) -> Result<Self, StoreError> {
        let Commit { thread, after, events, mut records, opens } = commit;
        if let Some(opens) = &opens {
            check_opening(thread, after, opens)?;
        }
        for record in &records {
            check(thread, record)?;
        }
        // Calls name contents, so these come first. The sort keeps the order of the rest.
        records.sort_by_key(|record| !matches!(record, Record::Content(_) | Record::Piece(_)));
        Ok(Self { thread, opens, append: Append::new(thread, after, events, counter), records })
    }

    fn run(&mut self, desk: &mut Desk<'_>) -> Result<Committed, Fault> {
        let made = match &self.opens {
            Some(opens) => open(desk, opens)?,
            None => None,
        };
        let head = match made {
            Some(start) => self.append.run_after(desk, start)?,
            None => self.append.run(desk)?,
        };
        let mut committed = Committed { head, calls: Vec::new() };
        for record in &self.records {
            match record {
                Record::Content(content) => calls::keep(desk, content)?,
                Record::Piece(content) => calls::keep_piece(desk, self.thread, content)?,
                Record::CallsSoFar(calls) => calls::expect(desk, self.thread, *calls)?,
                Record::Call(call) => {
                    committed.calls.push(calls::insert(desk, self.thread, head.seq, call)?);
                }
                Record::Outcome(outcome) => calls::end(desk, self.thread, outcome)?,
                Record::Job(job) => jobs::insert(desk, head.seq, job)?,
                Record::Adopted { job, compaction } => jobs::adopt(desk, self.thread, *job, *compaction)?,
                Record::CancelJob { job, reason } => jobs::cancel(desk, *job, reason)?,
                Record::Exchange(exchange) => exchanges::insert(desk, self.thread, head.seq, exchange)?,
                Record::Head => sessions::go_on_with(desk, self.thread)?,
            }
        }
        Ok(committed)
    }
}

/// Makes the thread of a commit, and its session if that is new; gives where the thread ends, if it is new.
fn open(desk: &mut Desk<'_>, opens: &Opens) -> Result<Option<Head>, Fault> {
    let Opens { session, thread, head } = opens;
    match session {
        Some(session) => {
            if is_elsewhere(desk, session)? {
                let (thread, after) = (thread.id, opens.after());
                return Err(StoreError::Conflict { thread, after, head: Head::START }.into());
            }
            sessions::create(desk, session)?;
        }
        None => sessions::expect(desk.connection, thread.session)?,
    }
    let made = append::make(desk, thread, *head)?;
    if made.is_none() && *head == BecomesHead::Yes {
        sessions::go_on_with(desk, thread.id)?;
    }
    Ok(made)
}

/// Returns true if a session with the same name exists in another place.
fn is_elsewhere(desk: &Desk<'_>, session: &NewSession) -> Result<bool, Fault> {
    let Some(key) = &session.key else { return Ok(false) };
    let known = sessions::named(desk.connection, &session.principal, key, session.id)?;
    Ok(known.is_some_and(|known| known != session.id))
}

/// Checks the session and thread that a commit makes, by themselves.
fn check_opening(thread: ThreadId, after: Seq, opens: &Opens) -> Result<(), StoreError> {
    let Opens { session, thread: made, .. } = opens;
    if made.id != thread {
        return Err(misplaced("opening", thread, format!("it makes the thread {}", made.id)));
    }
    if after != opens.after() {
        let why = format!("it starts after event {}, and the commit goes on after {after}", opens.after());
        return Err(misplaced("opening", thread, why));
    }
    match session {
        Some(session) if session.id != made.session => {
            let why = format!("it makes the session {}, and the thread is of {}", session.id, made.session);
            Err(misplaced("opening", thread, why))
        }
        _ => Ok(()),
    }
}

/// Checks a record by itself.
fn check(thread: ThreadId, record: &Record) -> Result<(), StoreError> {
    match record {
        Record::Content(content) | Record::Piece(content) => calls::check(content),
        Record::Call(NewCall { pass, sent, steps, plan, script, .. }) => {
            json("pass of a call", pass.as_deref())?;
            json("sent part of a call", Some(sent))?;
            json("list of steps of a call", Some(steps))?;
            json("plan of a call", plan.as_deref())?;
            json("script of a call", script.as_deref())
        }
        Record::Job(job) if job.thread != thread => {
            Err(misplaced("job", thread, format!("it is for the thread {}", job.thread)))
        }
        Record::Job(job) => json("detail of a job", Some(&job.detail)),
        Record::Exchange(NewExchange { observed, .. }) => {
            json("observation of an exchange", observed.as_deref())
        }
        Record::CallsSoFar(_)
        | Record::Outcome(_)
        | Record::Adopted { .. }
        | Record::CancelJob { .. }
        | Record::Head => Ok(()),
    }
}

/// Refuses a text that is not one JSON value.
pub(super) fn json(what: &'static str, text: Option<&str>) -> Result<(), StoreError> {
    let Some(text) = text else { return Ok(()) };
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => Ok(()),
        Err(source) => Err(StoreError::NotJson { what, source }),
    }
}

/// A record that does not fit the thread.
pub(super) fn misplaced(what: &'static str, thread: ThreadId, why: String) -> StoreError {
    StoreError::Misplaced { what, thread, why }
}

/// Refuses a place outside `first..=last`.
pub(super) fn within(
    what: &'static str,
    thread: ThreadId,
    (name, place): (&str, Seq),
    (first, last): (Seq, Seq),
) -> Result<(), StoreError> {
    if first <= place && place <= last {
        return Ok(());
    }
    Err(misplaced(
        what,
        thread,
        format!("its {name} is event {place}, which is not one of {first} to {last}"),
    ))
}
