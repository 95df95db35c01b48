//! The wall clock, handed in by the shell: the lake itself never asks the system for the time.

use std::fmt;
use std::sync::Arc;

/// Where `now` comes from, in milliseconds since 1970 UTC.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock that asks `now_ms` each time.
    pub fn new(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// The time now, ms since 1970 UTC.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        (self.0)()
    }

    /// How long ago `then_ms` was. A time that lies ahead is from before the clock was set back:
    /// nobody knows how long ago it was, and what waits for an age must not wait for that clock
    /// to come again, so it is as long ago as can be.
    #[must_use]
    pub fn since_ms(&self, then_ms: i64) -> i64 {
        match self.now_ms().saturating_sub(then_ms) {
            ago_ms if ago_ms < 0 => i64::MAX,
            ago_ms => ago_ms,
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_keeps_nothing_waiting() {
        let clock = Clock::new(|| 1_000);
        assert_eq!(clock.since_ms(400), 600);
        assert_eq!(clock.since_ms(1_000), 0);
        assert_eq!(clock.since_ms(1_001), i64::MAX);
        assert_eq!(clock.since_ms(i64::MIN), i64::MAX);
    }
}
