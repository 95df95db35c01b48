//! A failed put → wait, and try again, until a deadline.

use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Cause, LakeError};

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
}

impl Retry {
    pub(crate) fn begin(limits: RetryLimits, clock: Clock) -> Self {
        let began_ms = clock.now_ms();
        Self {
            limits,
            clock,
            began_ms,
            tries: 0,
            wait_ms: limits.wait_ms_first,
        }
    }

    /// Waits before the next try of `version`; `why` is the answer to the last one.
    ///
    /// # Errors
    /// [`LakeError::Unavailable`] once the deadline has passed.
    pub(crate) async fn wait(&mut self, version: u64, why: Cause) -> Result<(), LakeError> {
        self.tries += 1;
        let waited_ms = self.clock.now_ms() - self.began_ms;
        if waited_ms >= self.limits.deadline_ms {
            let tries = self.tries;
            return Err(LakeError::Unavailable {
                version,
                tries,
                waited_ms,
                source: why,
            });
        }
        tracing::warn!(version, tries = self.tries, waited_ms, error = %why, "commit not taken, trying again");
        if self.wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.wait_ms)).await;
        }
        self.wait_ms = (self.wait_ms * 2).min(self.limits.wait_ms_max);
        Ok(())
    }
}
