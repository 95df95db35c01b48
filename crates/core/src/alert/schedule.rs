//! The completeness mark → the instants at which rules are looked at.
//!
//! Ticks are whole multiples of the tick's length since 1970, in event time, so that a replay
//! looks at the same instants. Who is far behind takes coarser steps, and skips what lies beyond
//! [`BEHIND_MS_MAX`].

/// A step while catching up, ms, and how far behind that begins.
pub const COARSE_MS: i64 = 15 * 60_000;
/// Older instants are not looked at any more, ms: nobody acts on an alert of last month.
pub const BEHIND_MS_MAX: i64 = 7 * 24 * 3_600_000;

/// A step of rules that look at a day or more while more than that behind, ms: quarters of an hour
/// change little in a day.
pub const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Whether a rule that is looked at `every` so often, over a window of `window_ms`, is looked at
/// in the tick at `at_ms`. `last_ms` is the tick before it; the mark tells how far behind it is.
#[must_use]
pub fn is_due(every_ms: i64, window_ms: i64, last_ms: i64, at_ms: i64, mark_ms: i64) -> bool {
    let behind_ms = mark_ms - at_ms;
    let is_past = behind_ms > DAY_MS || behind_ms > HOUR_MS && window_ms >= DAY_MS;
    let step = if is_past {
        every_ms.max(HOUR_MS)
    } else {
        every_ms
    };
    floor(at_ms, step) > floor(last_ms, step)
}

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
