//! an instant of the made-up day → what stands in a call's way.
//!
//! In the nineteenth and twentieth hour Anthropic answers late. In the midst of the first it is
//! *down* for a quarter of an hour, just when a *batch* of short letters goes out: no retry helps,
//! and there are many.

use super::traffic::{Plan, Service};

/// What stands in the way of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The provider answers late.
    Late,
    /// The answer takes longer than the caller waits.
    TooLong,
    /// The provider refuses everything.
    Down,
}

/// Of minutes of a day: from, inclusive; to, exclusive.
const LATE: (i64, i64) = (18 * 60, 20 * 60);
const DOWN: (i64, i64) = (18 * 60 + 35, 18 * 60 + 50);
const BATCH: (i64, i64) = (18 * 60 + 37, 18 * 60 + 49);
const DAY: i64 = 24 * 60;

/// What stands in the way of this service's attempts that start at `ts_ms`.
pub fn trouble(plan: Plan, service: &Service, ts_ms: i64) -> Trouble {
    if service.provider != "anthropic" {
        return Trouble::None;
    }
    let minute = (ts_ms - plan.start_ms) * DAY / plan.span_ms.max(1);
    let within = |(from, to)| (from..to).contains(&minute);
    match (within(DOWN), within(LATE)) {
        (true, _) => Trouble::Down,
        (false, true) => Trouble::Late,
        (false, false) => Trouble::None,
    }
}

/// An instant within the batch, ms.
pub fn in_batch(plan: Plan, random: &mut fastrand::Rng) -> i64 {
    let (from, to) = BATCH;
    let length_ms = (to - from) * plan.span_ms / DAY;
    plan.start_ms + from * plan.span_ms / DAY + random.i64(0..length_ms.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::traffic::SERVICES;

    #[test]
    fn only_one_provider_has_its_incident() {
        let minute_ms = 60_000;
        let plan = Plan {
            seed: 1,
            operations: 100,
            start_ms: 1_000_000,
            span_ms: DAY * minute_ms,
        };
        let at = |service: &Service, minute: i64| {
            trouble(plan, service, plan.start_ms + minute * minute_ms)
        };
        let review = &SERVICES[1];
        for (minute, expected) in [
            (0, Trouble::None),
            (1_079, Trouble::None),
            (1_080, Trouble::Late),
            (1_114, Trouble::Late),
            (1_115, Trouble::Down),
            (1_129, Trouble::Down),
            (1_130, Trouble::Late),
            (1_200, Trouble::None),
        ] {
            assert_eq!(at(review, minute), expected, "{minute}");
        }
        assert_eq!(at(&SERVICES[0], 1_115), Trouble::None);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let starts_ms = in_batch(plan, &mut random);
            assert_eq!(trouble(plan, review, starts_ms), Trouble::Down);
        }
    }
}
