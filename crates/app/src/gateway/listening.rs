//! Hears what becomes of summaries, and counts it.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use epitome::session::{BUILT_IN, Fault, Lifecycle, NextStep};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{
    Gateway,
    metrics::{
        Metrics,
        composed::{Attempt, Breaker},
    },
};

/// How many summarisers that rest are remembered: clients name models as they like.
const RESTING: usize = 1_024;

/// Listens from now on, for as long as there is a gateway.
pub(super) fn begin(gateway: &Arc<Gateway>) {
    let heard = gateway.composing.heard.listen();
    gateway.runtime.spawn(listen(Arc::downgrade(gateway), heard));
}

async fn listen(gateway: Weak<Gateway>, mut heard: Receiver<Lifecycle>) {
    let mut resting = Resting::default();
    loop {
        let happened = match heard.recv().await {
            Ok(happened) => happened,
            // What was missed is in the records.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let Some(gateway) = gateway.upgrade() else { return };
        resting.hear(&happened, &gateway.metrics);
    }
}

/// The summarisers that are not asked.
#[derive(Debug, Default)]
struct Resting(HashSet<String>);

impl Resting {
    fn hear(&mut self, happened: &Lifecycle, metrics: &Metrics) {
        match happened {
            Lifecycle::Ended { by, .. } if by != BUILT_IN => {
                metrics.summarised(Attempt::Ready);
                self.0.remove(by);
            }
            Lifecycle::Failed { by, fault, next, .. } => {
                match fault {
                    Fault::NoDraft => metrics.summarised(Attempt::Failed),
                    Fault::Rejected => metrics.summarised(Attempt::Rejected),
                    Fault::Unasked => return,
                }
                if *next == NextStep::BuiltIn && self.0.len() < RESTING {
                    self.0.insert(by.clone());
                }
            }
            Lifecycle::Ended { .. }
            | Lifecycle::Started { .. }
            | Lifecycle::Adopted { .. }
            | Lifecycle::Reverted { .. }
            | Lifecycle::Restored { .. }
            | Lifecycle::NotesFailed { .. }
            | Lifecycle::Thrashing { .. } => return,
        }
        metrics.breaker(if self.0.is_empty() { Breaker::Closed } else { Breaker::Open });
    }
}

#[cfg(test)]
mod tests {
    use epitome::core::{ThreadId, Tokens, id::JobId, profile::Profiles};

    use super::*;

    fn ended(by: &str) -> Lifecycle {
        let (thread, none) = (ThreadId::derived(&["t"]), Tokens(0));
        Lifecycle::Ended { thread, job: None, by: by.to_owned(), tokens_before: none, tokens_after: none }
    }

    fn failed(by: &str, fault: Fault, next: NextStep) -> Lifecycle {
        let (thread, job) = (ThreadId::derived(&["t"]), JobId::derived(&["j"]));
        Lifecycle::Failed { thread, job, by: by.to_owned(), fault, error: String::new(), next }
    }

    #[test]
    fn models_are_counted_by_what_came_of_asking_and_rest_until_they_succeed() {
        let metrics = Metrics::new(Arc::new(Profiles::builtin()));
        let mut resting = Resting::default();
        let open = |metrics: &Metrics, open: u8| {
            let line = format!("epitome_summariser_breaker_open {open}\n");
            assert!(metrics.text().contains(&line), "{}", metrics.text());
        };
        for happened in [
            ended("m at h"),
            ended(BUILT_IN),
            failed("m at h", Fault::NoDraft, NextStep::Retry),
            failed("m at h", Fault::Unasked, NextStep::Nothing),
        ] {
            resting.hear(&happened, &metrics);
            open(&metrics, 0);
        }
        resting.hear(&failed("m at h", Fault::Rejected, NextStep::BuiltIn), &metrics);
        open(&metrics, 1);
        for by in ["n at h", BUILT_IN] {
            resting.hear(&ended(by), &metrics);
            open(&metrics, 1);
        }
        resting.hear(&ended("m at h"), &metrics);
        open(&metrics, 0);
        let text = metrics.text();
        for (outcome, count) in [("ready", 3), ("failed", 1), ("rejected", 1)] {
            let line = format!("epitome_summariser_attempts_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
