//! The machine's clocks → numbers. The only place that reads them; all else is handed `now`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, UTC. It may jump when the machine's clock is set.
#[must_use]
pub fn now_ms() -> i64 {
    now_us() / 1_000
}

/// Microseconds since 1970, UTC. It may jump when the machine's clock is set.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the shell's clock")]
pub fn now_us() -> i64 {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

/// Measures how long something takes; never jumps.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the shell's clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_agree() {
        let (before, ms, after) = (now_us(), now_ms(), now_us());
        assert!(before / 1_000 <= ms && ms <= after / 1_000);
        // 2020 in ms: seconds or ns would be far off.
        assert!(ms > 1_577_836_800_000 && ms < 10 * 1_577_836_800_000);
    }
}
