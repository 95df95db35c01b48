//! a fault that comes again and again → whether to tell of it now.
//!
//! It is told when it is new, and then at growing intervals while it goes on. What differs in its
//! numbers alone (tries, milliseconds, ports) is the same fault.

use std::collections::BTreeMap;

/// A fault that goes on is told again after this, ms; each time after twice as long.
const WAIT_MS_FIRST: i64 = 60_000;
/// The longest wait, ms: whoever looks at a log of an hour sees it.
const WAIT_MS_MAX: i64 = 3_600_000;
/// A fault that came no more for this long, ms, is new when it comes again: the longest wait, twice.
const FORGOTTEN_MS: i64 = 2 * WAIT_MS_MAX;
/// So many different faults are told apart; of more, all others are taken for one.
const KINDS_MAX: usize = 16;

/// What was told of the faults of one thing.
#[derive(Clone, Debug, Default)]
pub struct Said {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    began_ms: i64,
    came_ms: i64,
    told_ms: i64,
    wait_ms: i64,
    /// How often it came since it was told.
    untold: u64,
}

impl Said {
    /// A fault came. How often it came untold before, where it is to be told now; `None` where it
    /// was told not long ago.
    ///
    /// ```
    /// use retrytoll_core::said::Said;
    /// let mut said = Said::default();
    /// assert_eq!(said.again("no answer after 5 ms", 0), Some(0));
    /// assert_eq!(said.again("no answer after 7 ms", 1_000), None);
    /// assert_eq!(said.again("no answer after 6 ms", 60_000), Some(1));
    /// assert_eq!(said.over(61_000), Some(61_000));
    /// ```
    pub fn again(&mut self, fault: &str, now_ms: i64) -> Option<u64> {
        self.kinds
            .retain(|_, kind| (0..FORGOTTEN_MS).contains(&(now_ms - kind.came_ms)));
        let mut name: String = fault.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&name) {
            name = String::new();
        }
        let Some(kind) = self.kinds.get_mut(&name) else {
            let kind = Kind {
                began_ms: now_ms,
                came_ms: now_ms,
                told_ms: now_ms,
                wait_ms: WAIT_MS_FIRST,
                untold: 0,
            };
            self.kinds.insert(name, kind);
            return Some(0);
        };
        kind.came_ms = now_ms;
        if now_ms - kind.told_ms < kind.wait_ms {
            kind.untold += 1;
            return None;
        }
        kind.told_ms = now_ms;
        kind.wait_ms = (kind.wait_ms * 2).min(WAIT_MS_MAX);
        Some(std::mem::take(&mut kind.untold))
    }

    /// All went well. For how long it did not, ms, where a fault was told.
    pub fn over(&mut self, now_ms: i64) -> Option<i64> {
        let began_ms = self.kinds.values().map(|kind| kind.began_ms).min()?;
        self.kinds.clear();
        Some(now_ms - began_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000;

    #[test]
    fn a_fault_that_goes_on_is_told_at_growing_intervals() {
        let mut said = Said::default();
        let told: Vec<(i64, u64)> = (0..2 * 3_600)
            .filter_map(|s| Some((s, said.again("down", s * SECOND)?)))
            .collect();
        // After 1, 2, 4, 8, 16, 32 and then 60 minutes; all seconds between are untold.
        let after = [0, 60, 180, 420, 900, 1_860, 3_780];
        assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), after);
        assert_eq!(told[0].1, 0);
        for pair in told.windows(2) {
            assert_eq!(pair[1].1 as i64, pair[1].0 - pair[0].0 - 1);
        }
        assert_eq!(said.over(7_200 * SECOND), Some(7_200 * SECOND));
        assert_eq!(said.over(7_200 * SECOND), None);
        assert_eq!(said.again("down", 7_201 * SECOND), Some(0));
    }

    #[test]
    fn faults_are_told_apart_by_their_words_and_not_by_their_numbers() {
        let mut said = Said::default();
        assert_eq!(said.again("broker 1: refused", 0), Some(0));
        assert_eq!(said.again("broker 2: refused", 1), None);
        assert_eq!(said.again("all brokers are down", 2), Some(0));
        assert_eq!(said.again("broker 1: refused", 3), None);
    }

    #[test]
    fn many_faults_take_no_memory() {
        let mut said = Said::default();
        let told = (0..100_u8).filter(|n| {
            let fault = "x".repeat(usize::from(*n) + 1);
            said.again(&fault, 0).is_some()
        });
        assert_eq!(told.count(), KINDS_MAX + 1);
        assert!(said.kinds.len() <= KINDS_MAX + 1);
    }

    #[test]
    fn a_fault_of_long_ago_and_a_clock_set_back_are_told() {
        let mut said = Said::default();
        assert_eq!(said.again("down", 0), Some(0));
        assert_eq!(said.again("down", FORGOTTEN_MS), Some(0));
        assert_eq!(said.again("down", 5), Some(0));
    }
}
