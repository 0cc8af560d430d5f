//! Work on many items in parallel, with a progress bar and results in the order of the items.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Runs `work` on every item on all cores and hands each result to `each`, in order. `name` labels the
/// progress bar.
pub(crate) fn for_all<T: Sync, R: Send>(
    items: &[T],
    name: impl Fn(&T) -> String,
    work: impl Fn(&T) -> R + Sync,
    mut each: impl FnMut(&T, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bar = progress_bar(items.len());
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let send = send.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if send.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (index, result) in receive {
            bar.inc(1);
            bar.set_message(name(&items[index]));
            early.insert(index, result);
            while let Some(result) = early.remove(&wanted) {
                bar.suspend(|| each(&items[wanted], result))?;
                wanted += 1;
            }
        }
        bar.finish_and_clear();
        Ok(())
    })
}

fn progress_bar(items: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} · {elapsed} · {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(items as u64).with_style(style)
}
