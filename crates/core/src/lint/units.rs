//! events of a service → whether its times are in ms, or look like seconds or microseconds.

use super::Tally;
use super::finding::{Counted, Finding, Severity};
use super::row::Row;
use crate::class::ErrorClass;
use crate::field::{Int, Time};

/// Under this many votes nothing is said.
const VOTES_MIN: u64 = 5;
/// A span shorter than this does not tell seconds from ms, ms.
const SPAN_MS_MIN: i64 = 1_000;
/// Answers of a model are not so quick, ms, nor so slow.
const ANSWER_MS: (i64, i64) = (50, 600_000);
/// Nobody waits so shortly after a 429, ms, nor so long.
const WAIT_MS: (i64, i64) = (100, 3_600_000);
/// Providers' Retry-After is seconds: less than this many ms is none of them.
const RETRY_AFTER_MS: (i64, i64) = (100, 86_400_000);
/// No whole or read time-out is shorter, ms, nor longer.
const TIMEOUT_MS: (i64, i64) = (1_000, 4 * 3_600_000);

/// A time whose unit is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// `elapsed_ms` beside `ts` less `started_at`.
    Span,
    /// `elapsed_ms` of answers, where no start is logged.
    Answer,
    Wait,
    RetryAfter,
    Timeout,
}

impl Check {
    const ALL: [Self; 5] = [
        Self::Span,
        Self::Answer,
        Self::Wait,
        Self::RetryAfter,
        Self::Timeout,
    ];

    const fn field(self) -> &'static str {
        match self {
            Self::Span | Self::Answer => "elapsed_ms",
            Self::Wait => "next_retry_ms",
            Self::RetryAfter => "retry_after_ms",
            Self::Timeout => "timeout_ms",
        }
    }

    const fn why(self) -> &'static str {
        match self {
            Self::Span => "it is not what lies between started_at and ts",
            Self::Answer => "most answers take less than 50 ms, or more than 10 minutes",
            Self::Wait => "most waits after a 429 are under 100 ms, or over an hour",
            Self::RetryAfter => "most are under 100 ms, or over a day",
            Self::Timeout => "most are under a second, or over 4 hours",
        }
    }

    /// What an event says of this unit; `None` where it says nothing.
    fn vote(self, row: &Row<'_>) -> Option<Vote> {
        match self {
            Self::Span => {
                let began_us = row.time(Time::StartedAt)?;
                let span_ms = row.time(Time::Ts)?.checked_sub(began_us)? / 1_000;
                let elapsed_ms = row.int(Int::ElapsedMs)?;
                (span_ms >= SPAN_MS_MIN).then(|| by_span(elapsed_ms, span_ms))
            }
            Self::Answer => {
                let is_answer = row.class() == ErrorClass::None && !row.is_cached();
                within(row.int(Int::ElapsedMs).filter(|_| is_answer), ANSWER_MS)
            }
            Self::Wait => {
                let wait = row.int(Int::NextRetryMs).filter(|wait| *wait > 0);
                within(
                    wait.filter(|_| row.class() == ErrorClass::RateLimit),
                    WAIT_MS,
                )
            }
            Self::RetryAfter => {
                let wait = row.int(Int::RetryAfterMs).filter(|wait| *wait > 0);
                within(wait, RETRY_AFTER_MS)
            }
            Self::Timeout => {
                let given = row.int(Int::TimeoutMs).or(row.int(Int::ReadTimeoutMs));
                within(given.filter(|timeout| *timeout > 0), TIMEOUT_MS)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vote {
    Fits,
    Seconds,
    Micros,
}

fn within(value: Option<i64>, (least, most): (i64, i64)) -> Option<Vote> {
    Some(match value? {
        value if value < least => Vote::Seconds,
        value if value > most => Vote::Micros,
        _ => Vote::Fits,
    })
}

/// Seconds are whole here, so half of one is nothing; a fifth is what a caller does besides.
fn by_span(elapsed: i64, span_ms: i64) -> Vote {
    let near = |ms: i64, slack: i64| ms.abs_diff(span_ms) <= (span_ms / 5 + slack).unsigned_abs();
    if near(elapsed.saturating_mul(1_000), 500) {
        Vote::Seconds
    } else if near(elapsed / 1_000, 0) {
        Vote::Micros
    } else {
        Vote::Fits
    }
}

#[derive(Debug, Default)]
struct Votes {
    all: u64,
    seconds: Tally,
    micros: Tally,
}

/// The votes of one service, by place in [`Check::ALL`].
#[derive(Debug, Default)]
pub(super) struct Units([Votes; Check::ALL.len()]);

impl Units {
    pub fn see(&mut self, row: &Row<'_>) {
        for (check, votes) in Check::ALL.into_iter().zip(&mut self.0) {
            let Some(vote) = check.vote(row) else {
                continue;
            };
            votes.all += 1;
            match vote {
                Vote::Fits => {}
                Vote::Seconds => votes.seconds.add(|| row.example()),
                Vote::Micros => votes.micros.add(|| row.example()),
            }
        }
    }

    pub fn findings(&self, service: &str) -> impl Iterator<Item = Finding> {
        let spans = self.0[Check::Span as usize].all;
        let each = Check::ALL.into_iter().zip(&self.0);
        each.filter_map(move |(check, votes)| {
            let is_second_best = check == Check::Answer && spans >= VOTES_MIN;
            if votes.all < VOTES_MIN || is_second_best {
                return None;
            }
            let is_most = |tally: &Tally| tally.count * 2 > votes.all;
            let looks = [("seconds", &votes.seconds), ("microseconds", &votes.micros)];
            let (unit, tally) = looks.into_iter().find(|(_, tally)| is_most(tally))?;
            let field = check.field();
            let what = format!("{field} looks like {unit}: {}", check.why());
            let mend = format!("log {field} in milliseconds");
            let found = Finding::of(service, Severity::Warning, "time_unit", what, mend);
            Some(found.counted(tally, votes.all, Counted::Attempts))
        })
    }
}
