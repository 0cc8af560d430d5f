//! Threads that serve connections, each with a runtime of its own.
//!
//! A client's connection stays with one thread, and so do the provider's connections that its requests use
//! (see [`upstream`](super::upstream)). A runtime whose threads take tasks from each other wakes a second
//! thread with nearly every task, only to look whether there is more to do: a fifth of the cost of a short
//! request.

use std::{
    cell::Cell,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::Context;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

thread_local! {
    /// Number of this thread, if it serves connections.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The threads. Dropping this ends them, and cuts off connections that are still open.
#[derive(Debug)]
pub(super) struct ConnectionThreads {
    threads: Vec<ConnectionThread>,
}

#[derive(Debug)]
struct ConnectionThread {
    runtime: Handle,
    /// Number of open connections.
    open: Arc<AtomicUsize>,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ConnectionThreads {
    /// Starts the threads.
    pub(super) fn start() -> anyhow::Result<Self> {
        let threads = (0..count()).map(ConnectionThread::start).collect::<anyhow::Result<_>>()?;
        Ok(Self { threads })
    }

    /// Serves a connection on the thread that has the fewest.
    pub(super) fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let Some(thread) = self.threads.iter().min_by_key(|thread| thread.open.load(Ordering::Relaxed))
        else {
            return;
        };
        let open = OpenConnection::count(&thread.open);
        thread.runtime.spawn(async move {
            let _open = open;
            connection.await;
        });
    }
}

impl Drop for ConnectionThreads {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.stop = None;
        }
        for thread in &mut self.threads {
            if let Some(thread) = thread.thread.take() {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        }
    }
}

impl ConnectionThread {
    fn start(number: usize) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("epitome-connect".to_owned())
            .spawn(move || {
                NUMBER.set(Some(number));
                // An error means that the sender was dropped, which is how it is told to stop.
                let _ = runtime.block_on(stopped);
                // Names of hosts are looked up on threads that may take their time; nobody waits for them now.
                runtime.shutdown_background();
            })
            .context("cannot start a thread for connections")?;
        Ok(Self { runtime: handle, open: Arc::default(), stop: Some(stop), thread: Some(thread) })
    }
}

/// An open connection, counted until it is dropped.
struct OpenConnection {
    open: Arc<AtomicUsize>,
}

impl OpenConnection {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self { open: Arc::clone(open) }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Number of threads that serve connections.
pub(super) fn count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Number of the thread that this runs on, below [`count`], if it serves connections.
pub(super) fn current() -> Option<usize> {
    NUMBER.get()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::mpsc};

    use super::*;

    #[test]
    fn connections_are_dealt_to_all_threads_and_cut_off_at_the_end() {
        let threads = ConnectionThreads::start().expect("threads");
        let (tell, heard) = mpsc::channel();
        for _ in 0..2 * count() {
            let tell = tell.clone();
            threads.serve(async move {
                tell.send(current()).expect("a receiver");
                std::future::pending::<()>().await;
            });
        }
        drop(tell);
        let numbers: Vec<_> = (0..2 * count()).map(|_| heard.recv().expect("a number")).collect();
        let each: HashSet<_> = numbers.iter().copied().collect();
        assert_eq!(each, (0..count()).map(Some).collect());
        drop(threads);
        assert!(heard.recv().is_err(), "every connection is gone");
        assert_eq!(current(), None);
    }
}
