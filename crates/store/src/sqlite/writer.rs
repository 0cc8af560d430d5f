//! The one thread that writes, with group commit: all writes that wait when a commit ends go into the next
//! one.
//!
//! One commit, and so one sync of the disk, answers them all. A job that is refused before it has written
//! anything leaves its neighbours alone, and nearly all refused jobs are of this kind. If a whole group
//! fails, its jobs are tried again one by one, so that a job too large for the disk fails alone: a savepoint
//! around each would cost every job for the sake of very few.

use std::{
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvError, RecvTimeoutError, SendError, Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    deferred_derivation::DerivationBacklog,
    schema::{self, TempStorage},
    sqlite_error::SqliteError,
};
use crate::{error::StoreError, location::StoreLocation};

/// The most jobs in one commit: a bound on how long the first of them waits for the last.
const MAX_GROUPED_WRITES: usize = 256;

/// Environment of a job.
pub(super) struct WriteTx<'c> {
    /// The connection, in a transaction.
    pub(super) connection: &'c Connection,
    /// Events that are still to be derived.
    pub(super) backlog: &'c mut DerivationBacklog,
}

/// A handle to the writing thread. Dropping it finishes queued jobs and ends the thread.
pub(super) struct WriterThread {
    /// `None` if the store is read-only, or while it is dropped.
    queue: Option<Sender<QueuedWrite>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    patience: Duration,
}

enum QueuedWrite {
    /// Something that shares a transaction with others.
    Grouped(Box<dyn WriteJob>),
    /// Something that manages its own transactions.
    Alone(Box<ExclusiveWrite>),
}

type ExclusiveWrite = dyn FnOnce(&mut Connection, &mut DerivationBacklog) + Send;

trait WriteJob: Send {
    /// Does the work. It may be called again if the transaction was lost.
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), SqliteError>;
    /// Reports the outcome to the caller.
    fn answer(self: Box<Self>, outcome: Result<(), SqliteError>);
}

struct GroupedWrite<T, F, R> {
    work: F,
    value: Option<T>,
    reply: R,
}

impl<T, F, R> WriteJob for GroupedWrite<T, F, R>
where
    T: Send,
    F: FnMut(&mut WriteTx<'_>) -> Result<T, SqliteError> + Send,
    R: FnOnce(Result<T, SqliteError>) + Send,
{
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), SqliteError> {
        self.value = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), SqliteError>) {
        let lost = || SqliteError::Damaged("a job ended without a value".to_owned());
        let Self { value, reply, .. } = *self;
        reply(outcome.and_then(|()| value.ok_or_else(lost)));
    }
}

impl WriterThread {
    /// Starts the thread.
    pub(super) fn start(
        connection: Connection,
        path: PathBuf,
        patience: Duration,
        gather: Duration,
        backlog: DerivationBacklog,
    ) -> Result<Self, StoreError> {
        let (queue, jobs) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("epitome-writer".to_owned())
            .spawn(move || serve(connection, &jobs, gather, backlog))
            .map_err(|source| StoreError::Io {
                doing: "starting the writer of",
                path: path.clone(),
                source,
            })?;
        Ok(Self { queue: Some(queue), thread: Some(thread), path, patience })
    }

    /// The writer of a store that cannot be written: it refuses everything.
    pub(super) fn read_only(path: PathBuf) -> Self {
        Self { queue: None, thread: None, path, patience: Duration::ZERO }
    }

    /// Does `work` in a transaction and waits until it is on the disk. `work` may run more than once, but only its
    /// last run counts.
    pub(super) fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (send, answer) = mpsc::sync_channel(1);
        // A caller that panicked while it waited no longer listens, and does not need the answer.
        let reply = move |outcome| drop(send.send(outcome));
        self.submit(doing, QueuedWrite::Grouped(Box::new(GroupedWrite { work, value: None, reply })))?;
        self.wait(doing, &answer)
    }

    /// The same without waiting: `then` receives the outcome, at once or on the writing thread.
    pub(super) fn write_then<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, SqliteError> + Send + 'static,
        then: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        let Some(queue) = &self.queue else {
            return then(Err(StoreError::ReadOnly { doing, location: StoreLocation::file(&self.path) }));
        };
        let (path, patience) = (self.path.clone(), self.patience);
        let reply = move |outcome: Result<T, SqliteError>| {
            then(outcome.map_err(|fault| fault.into_store_error(doing, &path, patience)));
        };
        let job = QueuedWrite::Grouped(Box::new(GroupedWrite { work, value: None, reply }));
        if let Err(SendError(QueuedWrite::Grouped(job))) = queue.send(job) {
            job.answer(Err(StoreError::WriterGone { location: StoreLocation::file(&self.path) }.into()));
        }
    }

    /// Does `work`, which manages its own transactions, between two commits.
    pub(super) fn write_exclusive<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection, &mut DerivationBacklog) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.submit(
            doing,
            QueuedWrite::Alone(Box::new(move |connection, backlog| {
                let _ = reply.send(work(connection, backlog));
            })),
        )?;
        self.wait(doing, &answer)
    }

    fn submit(&self, doing: &'static str, work: QueuedWrite) -> Result<(), StoreError> {
        match &self.queue {
            Some(queue) => queue
                .send(work)
                .map_err(|_| StoreError::WriterGone { location: StoreLocation::file(&self.path) }),
            None => Err(StoreError::ReadOnly { doing, location: StoreLocation::file(&self.path) }),
        }
    }

    fn wait<T>(
        &self,
        doing: &'static str,
        answer: &Receiver<Result<T, SqliteError>>,
    ) -> Result<T, StoreError> {
        match answer.recv() {
            Ok(outcome) => outcome.map_err(|fault| fault.into_store_error(doing, &self.path, self.patience)),
            Err(_) => Err(StoreError::WriterGone { location: StoreLocation::file(&self.path) }),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue = None;
        // The writing thread itself may be the last to drop the store; it cannot wait for itself.
        if let Some(thread) =
            self.thread.take_if(|thread| thread.thread().id() != std::thread::current().id())
        {
            // A writer that panicked has already answered its callers with an error.
            let _ = thread.join();
        }
    }
}

fn serve(
    mut connection: Connection,
    jobs: &Receiver<QueuedWrite>,
    gather: Duration,
    mut backlog: DerivationBacklog,
) {
    let mut busy_until = Instant::now();
    loop {
        let next = match backlog.remaining_lag() {
            None => jobs.recv().map_err(|RecvError| RecvTimeoutError::Disconnected),
            Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            Some(left) => jobs.recv_timeout(left),
        };
        let first = match next {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                catch_up(&connection, &mut backlog);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut group = Vec::new();
        let mut alone = None;
        // A single write is served at once. If several come at a time, a short wait makes one commit of many:
        // asleep, so that none of them has to wake the writer.
        if Instant::now() < busy_until {
            std::thread::sleep(gather);
        }
        let next = || jobs.try_recv().ok();
        for work in std::iter::once(first).chain(std::iter::from_fn(next)).take(MAX_GROUPED_WRITES) {
            match work {
                QueuedWrite::Grouped(job) => group.push(job),
                QueuedWrite::Alone(work) => {
                    alone = Some(work);
                    break;
                }
            }
        }
        let is_busy = group.len() > 1;
        commit(&connection, &mut backlog, group);
        if is_busy {
            busy_until = Instant::now() + gather;
        }
        if let Some(work) = alone {
            // It may rewrite the file, of which memory has no room for a copy. Whether that can be said does not matter:
            // then it is as it was.
            let _ = schema::set_temp_storage(&connection, TempStorage::InFiles);
            work(&mut connection, &mut backlog);
            let _ = schema::set_temp_storage(&connection, TempStorage::InMemory);
        }
    }
    catch_up(&connection, &mut backlog);
}

/// Derives for the deferred events. If that is impossible now, it is done when the data is needed.
fn catch_up(connection: &Connection, backlog: &mut DerivationBacklog) {
    if backlog.remaining_lag().is_none() {
        return;
    }
    let done = run(connection, "BEGIN IMMEDIATE")
        .map_err(SqliteError::from)
        .and_then(|()| backlog.catch_up(connection))
        .and_then(|()| Ok(run(connection, "COMMIT")?));
    if done.is_err() {
        backlog.forget();
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
}

/// Runs a group in one transaction and answers every job of it.
fn commit(connection: &Connection, backlog: &mut DerivationBacklog, mut group: Vec<Box<dyn WriteJob>>) {
    if group.is_empty() {
        return;
    }
    if let Err(error) = run(connection, "BEGIN IMMEDIATE") {
        for job in group {
            job.answer(Err(SqliteError::Sql(same(&error))));
        }
        return;
    }
    match attempt(connection, backlog, &mut group) {
        Ok(outcomes) => {
            for (job, outcome) in group.into_iter().zip(outcomes) {
                job.answer(outcome);
            }
        }
        Err(fault) => {
            backlog.forget();
            if !connection.is_autocommit() {
                // It fails only if SQLite has rolled back by itself, which is the intended effect.
                let _ = connection.execute_batch("ROLLBACK");
            }
            match <[Box<dyn WriteJob>; 1]>::try_from(group) {
                Ok([job]) => job.answer(Err(fault)),
                Err(group) => {
                    for job in group {
                        commit(connection, backlog, vec![job]);
                    }
                }
            }
        }
    }
}

/// Runs all jobs and commits. The outer error means that none of them happened.
fn attempt(
    connection: &Connection,
    backlog: &mut DerivationBacklog,
    group: &mut [Box<dyn WriteJob>],
) -> Result<Vec<Result<(), SqliteError>>, SqliteError> {
    let mut outcomes = Vec::with_capacity(group.len());
    for job in group.iter_mut() {
        let changes = connection.total_changes();
        let outcome = job.run(&mut WriteTx { connection, backlog });
        // Most jobs are refused before they write anything. One that has written takes all with it; then each is tried
        // alone. So does SQLite itself when it runs out of disk or memory.
        if outcome.is_err() && (connection.is_autocommit() || connection.total_changes() != changes) {
            return outcome.map(|()| Vec::new());
        }
        outcomes.push(outcome);
    }
    backlog.end(connection)?;
    run(connection, "COMMIT")?;
    backlog.note_committed();
    Ok(outcomes)
}

/// Runs a statement that is needed again and again.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// A copy of an error: each job in a group gets one.
fn same(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            rusqlite::Error::SqliteFailure(*code, message.clone())
        }
        other => rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR),
            Some(other.to_string()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn writer() -> WriterThread {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (number INTEGER UNIQUE)").unwrap();
        WriterThread::start(
            connection,
            PathBuf::from("memory"),
            Duration::ZERO,
            Duration::ZERO,
            DerivationBacklog::default(),
        )
        .unwrap()
    }

    fn insert(writer: &WriterThread, number: i64) -> Result<(), StoreError> {
        writer.write("inserting", move |tx| {
            tx.connection.execute("INSERT INTO numbers VALUES (-?1)", [number])?;
            tx.connection.execute("INSERT INTO numbers VALUES (?1)", [number])?;
            Ok(())
        })
    }

    fn numbers(writer: &WriterThread) -> i64 {
        writer
            .write("counting", |tx| {
                Ok(tx.connection.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0))?)
            })
            .unwrap()
    }

    #[test]
    fn a_refused_job_takes_no_neighbour_along() {
        let writer = Arc::new(writer());
        let jobs: Vec<_> = (0..64)
            .map(|job| {
                let writer = Arc::clone(&writer);
                std::thread::spawn(move || insert(&writer, job % 32 + 1))
            })
            .collect();
        let done = jobs.into_iter().filter_map(|job| job.join().unwrap().ok()).count();
        assert_eq!((done, numbers(&writer)), (32, 64));
    }

    #[test]
    fn a_group_whose_transaction_is_lost_is_tried_one_by_one() {
        let writer = writer();
        writer
            .write_exclusive("grouping", |connection, backlog| {
                let mut answers = Vec::new();
                let mut group: Vec<Box<dyn WriteJob>> = Vec::new();
                for job in 0..3 {
                    let (send, answer) = mpsc::sync_channel(1);
                    let reply = move |outcome| drop(send.send(outcome));
                    let work = move |tx: &mut WriteTx<'_>| {
                        tx.connection.execute("INSERT INTO numbers VALUES (?1)", [job])?;
                        if job == 1 {
                            // SQLite's own behaviour when the disk is full.
                            tx.connection.execute_batch("ROLLBACK")?;
                            return Err(SqliteError::Damaged("lost".to_owned()));
                        }
                        Ok(job)
                    };
                    group.push(Box::new(GroupedWrite { work, value: None, reply }));
                    answers.push(answer);
                }
                commit(connection, backlog, group);
                let outcomes: Vec<bool> =
                    answers.iter().map(|answer| answer.recv().unwrap().is_ok()).collect();
                assert_eq!(outcomes, [true, false, true]);
                Ok(())
            })
            .unwrap();
        assert_eq!(numbers(&writer), 2);
    }

    #[test]
    fn a_dead_writer_is_an_error_and_not_a_hang() {
        let writer = writer();
        let died = writer.write::<()>("dying", |_| panic!("on purpose"));
        let after = insert(&writer, 1);
        for error in [died.unwrap_err(), after.unwrap_err()] {
            assert!(matches!(error, StoreError::WriterGone { .. }), "{error}");
        }
    }
}
