//! Readings, minute by minute → what is wrong, in words.

use std::collections::VecDeque;

use crate::alerts::extent::MINUTE_MS;
use crate::pipeline::Reading;

/// Rows that wait longer for a commit than this wait too long: five times the longest flush.
const COMMIT_MS_MAX: i64 = 5 * MINUTE_MS;
/// What is behind by less is catching up.
const BEHIND_MS_MIN: i64 = 5 * MINUTE_MS;
/// Over which time lag must grow, and failed rules count.
const LAG_MINUTES: usize = 10;
/// Over which time dead letters are counted.
const KEPT_MINUTES: usize = 60;
/// Records under which a share of dead letters tells nothing.
const RECORDS_MIN: u64 = 100;

/// The readings of the last hour.
#[derive(Default)]
pub struct Minutes {
    kept: VecDeque<Reading>,
}

impl Minutes {
    /// What is wrong at `now`, the newest reading; nothing is. Silence counts from `silent_after_ms`
    /// on, 0: never.
    pub fn judge(&mut self, now: Reading, silent_after_ms: i64) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(since_ms) = now.waiting_since_ms
            && now.at_ms - since_ms >= COMMIT_MS_MAX
        {
            let minutes = (now.at_ms - since_ms) / MINUTE_MS;
            problems.push(format!("rows have waited {minutes} minutes for a commit"));
        }
        let silence_ms = now.taken_ms.map(|ms| now.at_ms - ms);
        if let Some(ms) = silence_ms
            && silent_after_ms > 0
            && ms >= silent_after_ms
        {
            problems.push(format!("no record came for {} minutes", ms / MINUTE_MS));
        }
        let before = self.ago(LAG_MINUTES);
        if let Some(before) = before {
            let failed = now.failed_rules - before.failed_rules;
            if failed > 0 {
                problems.push(format!(
                    "{failed} looks of alert rules failed in 10 minutes"
                ));
            }
            let always = self.kept.iter().rev().take(LAG_MINUTES);
            let grows = now.behind_ms > before.behind_ms;
            if grows && now.behind_ms >= BEHIND_MS_MIN && always.clone().all(|it| it.behind_ms > 0)
            {
                let minutes = |ms| ms / MINUTE_MS;
                problems.push(format!(
                    "lag grows: {} minutes behind, {} of them ten minutes ago",
                    minutes(now.behind_ms),
                    minutes(before.behind_ms)
                ));
            }
        }
        let since = self.kept.front().copied().unwrap_or_default();
        let bad = now.dead_letters - since.dead_letters;
        let records = bad + now.rows - since.rows;
        if records >= RECORDS_MIN && bad * 100 > records {
            problems.push(format!(
                "{bad} of {records} records of the last hour are dead letters"
            ));
        }
        self.kept.push_back(now);
        if self.kept.len() > KEPT_MINUTES {
            self.kept.pop_front();
        }
        problems
    }

    /// The reading so many minutes ago.
    fn ago(&self, minutes: usize) -> Option<Reading> {
        let at = self.kept.len().checked_sub(minutes)?;
        self.kept.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of each minute of `readings`, whose times are set here.
    fn told(silent_after_ms: i64, readings: impl Iterator<Item = Reading>) -> Vec<(usize, String)> {
        let mut minutes = Minutes::default();
        let mut out = Vec::new();
        for (minute, reading) in readings.enumerate() {
            let now = Reading {
                at_ms: (1_000 + minute as i64) * MINUTE_MS,
                ..reading
            };
            let problems = minutes.judge(now, silent_after_ms);
            out.extend(problems.into_iter().map(|it| (minute, it)));
        }
        out
    }

    #[test]
    fn a_quiet_night_is_no_problem_before_its_time() {
        let last = Reading {
            taken_ms: Some(1_000 * MINUTE_MS),
            ..Reading::default()
        };
        let silent = |after| told(after, std::iter::repeat_n(last, 32));
        assert_eq!(silent(0), []);
        assert_eq!(
            silent(30 * MINUTE_MS),
            [
                (30, "no record came for 30 minutes".to_owned()),
                (31, "no record came for 31 minutes".to_owned())
            ]
        );
        // Nothing came yet: the topic may be new.
        assert_eq!(
            told(MINUTE_MS, std::iter::repeat_n(Reading::default(), 32)),
            []
        );
    }

    #[test]
    fn lag_is_a_problem_while_it_grows() {
        let behind = |minutes: i64| Reading {
            behind_ms: minutes * MINUTE_MS,
            ..Reading::default()
        };
        // Caught up at first, then a minute more behind each minute.
        let grows = told(0, (0..=15).map(behind));
        // Ten minutes ago of minute 11 is minute 1, the first that was behind.
        assert_eq!(grows.first().map(|it| it.0), Some(11));
        assert_eq!(
            grows[0].1,
            "lag grows: 11 minutes behind, 1 of them ten minutes ago"
        );
        assert_eq!(told(0, (0..=30).rev().map(behind)), []);
        assert_eq!(told(0, std::iter::repeat_n(behind(4), 30)), []);
    }

    #[test]
    fn more_than_one_dead_letter_in_a_hundred_is_a_problem() {
        let taken = |rows, dead_letters| Reading {
            rows,
            dead_letters,
            ..Reading::default()
        };
        assert_eq!(told(0, [taken(0, 0), taken(99, 1)].into_iter()), []);
        assert_eq!(told(0, [taken(0, 0), taken(90, 9)].into_iter()), []);
        let found = told(0, [taken(0, 0), taken(98, 2)].into_iter());
        assert_eq!(
            found,
            [(
                1,
                "2 of 100 records of the last hour are dead letters".to_owned()
            )]
        );
        // An hour later they are forgotten.
        let hours = std::iter::once(taken(0, 0)).chain(std::iter::repeat_n(taken(98, 2), 70));
        assert_eq!(told(0, hours).last().map(|it| it.0), Some(60));
    }

    #[test]
    fn failing_rules_are_a_problem_for_ten_minutes() {
        let failed = |failed_rules| Reading {
            failed_rules,
            ..Reading::default()
        };
        let minutes = std::iter::repeat_n(failed(0), 10).chain(std::iter::repeat_n(failed(3), 20));
        let found = told(0, minutes);
        assert_eq!(found.len(), 10);
        assert_eq!(
            found[0],
            (10, "3 looks of alert rules failed in 10 minutes".to_owned())
        );
    }
}
