//! A failed put → wait, and try again, until a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Cause, LakeError};

/// A wait looks so often whether it is time to stop, ms.
const STOP_SEEN_MS: u64 = 200;

/// How long a commit that gets no answer is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// The first wait; each next one is twice as long.
    pub wait_ms_first: u64,
    /// The longest wait.
    pub wait_ms_max: u64,
    /// After this long the writer gives up, loudly.
    pub deadline_ms: i64,
}

impl Default for RetryLimits {
    /// 100 ms to 5 s, for two minutes: longer than a store's usual hiccup, shorter than anyone
    /// would wait for a page.
    fn default() -> Self {
        Self {
            wait_ms_first: 100,
            wait_ms_max: 5_000,
            deadline_ms: 120_000,
        }
    }
}

/// One commit's tries.
#[derive(Debug)]
pub(crate) struct Retry {
    limits: RetryLimits,
    clock: Clock,
    began_ms: i64,
    tries: u32,
    wait_ms: u64,
    stop: Arc<AtomicBool>,
}

impl Retry {
    /// No try follows once `stop` is set.
    pub(crate) fn begin(limits: RetryLimits, clock: Clock, stop: Arc<AtomicBool>) -> Self {
        let began_ms = clock.now_ms();
        Self {
            limits,
            clock,
            began_ms,
            tries: 0,
            wait_ms: limits.wait_ms_first,
            stop,
        }
    }

    /// The commit of `version` is in the log.
    pub(crate) fn over(&self, version: u64) {
        if self.tries > 0 {
            let waited_ms = self.clock.now_ms() - self.began_ms;
            tracing::info!(
                version,
                tries = self.tries,
                waited_ms,
                "commit taken at last"
            );
        }
    }

    /// Waits before the next try of `version`; `why` is the answer to the last one.
    ///
    /// # Errors
    /// [`LakeError::Unavailable`] once the deadline has passed, or it is time to stop.
    pub(crate) async fn wait(&mut self, version: u64, why: Cause) -> Result<(), LakeError> {
        self.tries += 1;
        let now_ms = self.clock.now_ms();
        // Of a clock that was set back nobody knows how long it was: the time counts anew.
        self.began_ms = self.began_ms.min(now_ms);
        let waited_ms = now_ms - self.began_ms;
        if waited_ms >= self.limits.deadline_ms || self.stop.load(Ordering::Acquire) {
            let tries = self.tries;
            return Err(LakeError::Unavailable {
                version,
                tries,
                waited_ms,
                source: why,
            });
        }
        // Tries are told at growing intervals: 1, 2, 4, 8 …
        if self.tries.is_power_of_two() {
            tracing::warn!(version, tries = self.tries, waited_ms, error = %why, "commit not taken, trying again");
        }
        let mut left_ms = self.wait_ms;
        while left_ms > 0 && !self.stop.load(Ordering::Acquire) {
            let slice_ms = left_ms.min(STOP_SEEN_MS);
            tokio::time::sleep(Duration::from_millis(slice_ms)).await;
            left_ms -= slice_ms;
        }
        self.wait_ms = (self.wait_ms * 2).min(self.limits.wait_ms_max);
        Ok(())
    }
}
