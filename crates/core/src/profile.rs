//! The tokens of attempts of a kind → how many are usual: the median and the 99th percentile.
//!
//! A *profile* is for a UTC day, and is made of the provider's usage in the [`DAYS`] days before it
//! once the last of them is closed (MONEY.md, section 4). Its *level* 1 tells of a provider's model
//! in a service, by the power of two of `max_tokens`; level 2 of the provider's model in all.

use std::collections::{BTreeMap, BTreeSet};

use crate::operation::WINDOW_US_MAX;

/// How many closed days a profile is made of.
pub const DAYS: i32 = 7;
/// How old the newest profile may be, days, to tell of an attempt; older days are not made either.
pub const AGE_DAYS_MAX: i32 = 35;
/// Under so many rows nothing is usual.
pub const ROWS_MIN: u64 = 30;

const DAY_MS: i64 = 86_400_000;
/// An operation may stay open this long after the completeness mark: a day is closed then, ms.
const WINDOW_MAX_MS: i64 = WINDOW_US_MAX / 1_000;

/// The greatest power of two that is at most `max_tokens`: what asks for about as much is of one
/// kind. `None` where nothing is asked for.
///
/// ```
/// use retrytoll_core::profile::power_of_two;
/// assert_eq!([1, 1023, 1024].map(power_of_two), [Some(1), Some(512), Some(1024)]);
/// assert_eq!(power_of_two(0), None);
/// ```
#[must_use]
pub fn power_of_two(max_tokens: i64) -> Option<i64> {
    (max_tokens > 0).then(|| 1 << max_tokens.ilog2())
}

/// What is usual, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    /// Ten times the median: between two in the middle it has a half.
    pub median_tenths: i64,
    /// The least that 99 % of the rows do not exceed.
    pub p99: i64,
}

/// How many rows had so many tokens; rows may come in any order.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    rows: u64,
    by_tokens: BTreeMap<i64, u64>,
}

impl Counts {
    /// One more row had so many tokens.
    pub fn add(&mut self, tokens: i64) {
        self.rows += 1;
        *self.by_tokens.entry(tokens).or_default() += 1;
    }

    /// The rows of another kind, too.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        for (tokens, rows) in &other.by_tokens {
            *self.by_tokens.entry(*tokens).or_default() += rows;
        }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What is usual; `None` under [`ROWS_MIN`] rows.
    #[must_use]
    pub fn usual(&self) -> Option<Usual> {
        if self.rows < ROWS_MIN {
            return None;
        }
        // Of an odd number both are the one in the middle.
        let (low, high) = (self.rows.div_ceil(2), self.rows / 2 + 1);
        let p99_rank = (u128::from(self.rows) * 99).div_ceil(100) as u64;
        Some(Usual {
            median_tenths: (self.ranked(low)? + self.ranked(high)?) * 5,
            p99: self.ranked(p99_rank)?,
        })
    }

    /// The tokens of the row of this rank, from 1.
    fn ranked(&self, rank: u64) -> Option<i64> {
        let mut up_to = 0;
        let mut tokens = self.by_tokens.iter();
        tokens.find_map(|(tokens, rows)| {
            up_to += rows;
            (up_to >= rank).then_some(*tokens)
        })
    }
}

/// The newest day for which a profile can be made: all days before it are closed. Days count from
/// 1970; `mark_ms` is the completeness mark.
#[must_use]
pub fn newest_due(mark_ms: i64) -> i32 {
    let day = mark_ms.saturating_sub(WINDOW_MAX_MS).div_euclid(DAY_MS);
    // A mark is a timestamp of this era; one that is not makes no profile due.
    i32::try_from(day).unwrap_or(i32::MIN)
}

/// The days up to `newest` that have no profile and should, oldest first: from the day after the
/// first event on, and no further back than one would be looked at. Once there is one, none before it is
/// made for events that came later: what was estimated without it stays so.
pub fn missing(newest: i32, first_event: i32, done: &BTreeSet<i32>) -> Vec<i32> {
    let oldest = newest.saturating_sub(AGE_DAYS_MAX - 1);
    let begun = done.first().copied().unwrap_or(i32::MIN);
    let first = first_event.saturating_add(1).max(oldest).max(begun);
    (first..=newest).filter(|day| !done.contains(day)).collect()
}

#[cfg(test)]
mod tests;
