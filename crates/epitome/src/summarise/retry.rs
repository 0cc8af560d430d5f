//! Retries of questions: their number, their waits, and when to give up.
//!
//! Only transient errors are retried. Waits are drawn at random from zero up to a ceiling that grows
//! exponentially, so that many sessions that failed together do not come back together. A server that states
//! a time to wait is not asked earlier; if that exceeds our patience, the error is returned at once.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

use super::SummarizeError;

/// Limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Number of attempts in all; at least one.
    pub attempts: u32,
    /// Ceiling of the first wait. It doubles with each further one.
    pub first: Duration,
    /// The highest ceiling.
    pub longest: Duration,
    /// Longest time that a server may ask to wait.
    pub patience: Duration,
    /// Time after which no further attempt is made.
    pub total: Duration,
}

impl RetryLimits {
    /// Limits that allow a single attempt.
    pub const NONE: Self = Self {
        attempts: 1,
        first: Duration::ZERO,
        longest: Duration::ZERO,
        patience: Duration::ZERO,
        total: Duration::ZERO,
    };

    /// Wait until the next attempt after `attempts` failed ones and `spent` time; `None` if there is to be
    /// none. `asked` is the wait that the server asks for.
    pub fn wait(
        &self,
        attempts: u32,
        asked: Option<Duration>,
        spent: Duration,
        jitter: &mut RetryJitter,
    ) -> Option<Duration> {
        if attempts >= self.attempts || asked.is_some_and(|asked| asked > self.patience) {
            return None;
        }
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let wait = match asked {
            // A little later than asked, because other rejected clients come back at that moment, too.
            Some(asked) => asked.saturating_add(jitter.up_to(self.first)),
            None => jitter.up_to(self.first.saturating_mul(doubled).min(self.longest)),
        };
        (spent.saturating_add(wait) <= self.total).then_some(wait)
    }
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            attempts: 4,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(20),
            patience: Duration::from_mins(1),
            total: Duration::from_mins(3),
        }
    }
}

/// Random numbers determined by a seed: SplitMix64.
#[derive(Clone, Debug)]
pub struct RetryJitter(u64);

impl RetryJitter {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A random time from zero up to `ceiling`, uniform to the microsecond.
    fn up_to(&mut self, ceiling: Duration) -> Duration {
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        let part = (u128::from(self.next()) * (u128::from(micros) + 1)) >> 64;
        Duration::from_micros(u64::try_from(part).unwrap_or(micros))
    }
}

/// Asks until there is an answer, a permanent error, or no patience left. Then the last error is returned.
///
/// ```
/// use epitome::summarise::{SummarizeError, retry::{RetryJitter, RetryLimits, ask_with_retries}};
///
/// async fn asked(question: &str) -> Result<String, SummarizeError> {
///     ask_with_retries(&RetryLimits::default(), RetryJitter::new(7), || async { Ok(question.to_uppercase()) }).await
/// }
/// ```
pub async fn ask_with_retries<T, F>(
    retries: &RetryLimits,
    mut jitter: RetryJitter,
    mut ask: impl FnMut() -> F,
) -> Result<T, SummarizeError>
where
    F: Future<Output = Result<T, SummarizeError>>,
{
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => error,
        };
        attempts += 1;
        let Some(wait) = retries.wait(attempts, error.retry_after(), started.elapsed(), &mut jitter) else {
            return Err(error);
        };
        tracing::debug!(attempts, ?wait, %error, "a summariser is asked again");
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::summarise::error::RetryProspect;

    const SECOND: Duration = Duration::from_secs(1);

    fn limited(after: Option<u64>) -> SummarizeError {
        let after = after.map(Duration::from_secs);
        SummarizeError::RateLimited { host: "h".into(), after, said: String::new() }
    }

    fn hopeless() -> SummarizeError {
        SummarizeError::Other { name: "n".into(), hope: RetryProspect::Never, source: "no".into() }
    }

    #[test]
    fn waits_are_drawn_below_a_ceiling_that_doubles_and_stops() {
        let retries = RetryLimits { attempts: 10, total: SECOND * 10_000, ..RetryLimits::default() };
        for (attempts, ceiling) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 20), (9, 20)] {
            let ceiling = SECOND * ceiling;
            let drawn: Vec<Duration> = (0..200)
                .map(|seed| {
                    retries.wait(attempts, None, Duration::ZERO, &mut RetryJitter::new(seed)).unwrap()
                })
                .collect();
            assert!(drawn.iter().all(|wait| *wait <= ceiling), "{attempts}");
            assert!(drawn.iter().any(|wait| *wait < ceiling / 10), "{attempts}: down to nothing");
            assert!(drawn.iter().any(|wait| *wait > ceiling / 10 * 9), "{attempts}: up to the ceiling");
        }
        let same = |seed| retries.wait(3, None, Duration::ZERO, &mut RetryJitter::new(seed));
        assert_eq!(same(5), same(5), "a seed decides");
        assert_ne!(same(5), same(6));
    }

    #[test]
    fn there_is_an_end_by_number_by_time_and_by_what_the_server_wants() {
        let retries = RetryLimits { attempts: 3, ..RetryLimits::default() };
        let wait = |attempts, asked: Option<u64>, spent: u64| {
            retries.wait(
                attempts,
                asked.map(Duration::from_secs),
                SECOND * u32::try_from(spent).unwrap(),
                &mut RetryJitter::new(1),
            )
        };
        assert!(wait(2, None, 0).is_some());
        assert_eq!(wait(3, None, 0), None, "three were made");
        assert!(
            (SECOND * 60..=SECOND * 61).contains(&wait(1, Some(60), 0).unwrap()),
            "never before it is asked to"
        );
        assert_eq!(wait(1, Some(61), 0), None, "more than there is patience for");
        assert_eq!(wait(1, Some(60), 121), None, "it would end too late");
        assert_eq!(wait(1, Some(u64::MAX), 0), None);
        assert_eq!(RetryLimits::NONE.wait(1, None, Duration::ZERO, &mut RetryJitter::new(1)), None);
        assert_eq!(RetryJitter::new(1).up_to(Duration::ZERO), Duration::ZERO);
        assert!(RetryJitter::new(1).up_to(Duration::MAX) <= Duration::MAX);
    }

    /// Plays a script of answers and returns the number of attempts, the result, and the time taken.
    async fn play(script: Vec<Result<u8, SummarizeError>>) -> (usize, Result<u8, SummarizeError>, Duration) {
        let script = RefCell::new(script.into_iter());
        let total = script.borrow().len();
        let started = Instant::now();
        let ended = ask_with_retries(&RetryLimits::default(), RetryJitter::new(3), || {
            let next = script.borrow_mut().next().expect("asked no more often than the script is long");
            async { next }
        })
        .await;
        (total - script.borrow().len(), ended, started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_asked_again_and_what_does_not_is_not() {
        let (asked, ended, took) = play(vec![Err(limited(None)), Err(limited(Some(30))), Ok(1)]).await;
        assert_eq!((asked, ended.unwrap()), (3, 1));
        assert!((SECOND * 30..SECOND * 34).contains(&took), "{took:?}");

        let (asked, ended, took) = play(vec![Err(hopeless()), Ok(1)]).await;
        assert_eq!((asked, took), (1, Duration::ZERO));
        assert!(matches!(ended, Err(SummarizeError::Other { .. })));

        let (asked, ended, took) = play(vec![Err(limited(Some(3600))), Ok(1)]).await;
        assert_eq!((asked, took), (1, Duration::ZERO), "an hour is too long to wait here");
        assert_eq!(ended.unwrap_err().retry_after(), Some(SECOND * 3600));

        let (asked, ended, took) = play((0..9).map(|_| Err(limited(None))).collect()).await;
        assert_eq!(asked, 4);
        assert!(ended.is_err() && took <= SECOND * 7, "{took:?}");
    }
}
