//! The completeness mark → the instants at which rules are looked at.
//!
//! Ticks are whole multiples of the tick's length since 1970, in event time, so that a replay
//! looks at the same instants. Who is far behind takes coarser steps, and skips what lies beyond
//! [`BEHIND_MS_MAX`].

/// A step while catching up, ms, and how far behind that begins.
pub const COARSE_MS: i64 = 15 * 60_000;
/// Older instants are not looked at any more, ms: nobody acts on an alert of last month.
pub const BEHIND_MS_MAX: i64 = 7 * 24 * 3_600_000;

/// The first tick after `last_ms` that is at most `mark_ms`; `None` where none is due.
#[must_use]
pub fn next_tick(last_ms: i64, mark_ms: i64, tick_ms: i64) -> Option<i64> {
    let newest = floor(mark_ms, tick_ms);
    if newest <= last_ms {
        return None;
    }
    let last_ms = last_ms.max(newest.saturating_sub(BEHIND_MS_MAX));
    let coarse = (COARSE_MS / tick_ms).max(1) * tick_ms;
    let step = if newest - last_ms > coarse {
        coarse
    } else {
        tick_ms
    };
    Some(floor(last_ms, step) + step)
}

fn floor(ms: i64, step: i64) -> i64 {
    ms.div_euclid(step) * step
}
