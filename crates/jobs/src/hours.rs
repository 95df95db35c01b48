//! A question's window and the table `rollup` → which of its hours are read from the table, and which
//! are put together from the attempts.
//!
//! *Closed* spans are whole hours that the table tells of; *open* is all else of the window. Times are
//! microseconds since 1970.

use chrono::{DateTime, Utc};
use datafusion::common::ScalarValue;
use datafusion::prelude::{Expr, lit};

use crate::rollup::Rollup;
use crate::views::NEAR;
use crate::window::Window;

pub const HOUR_US: i64 = 3_600_000_000;
/// [`NEAR`], microseconds.
pub const NEAR_US: i64 = NEAR.num_minutes() * 60_000_000;
/// Days and hours of any zone begin on one of these.
const QUARTER_US: i64 = HOUR_US / 4;

/// More closed spans than these are not told apart: the longest ones are read from the table.
const SPANS_MAX: usize = 8;

/// The beginning of the hour of an instant.
pub fn floor_hour(us: i64) -> i64 {
    us.div_euclid(HOUR_US).saturating_mul(HOUR_US)
}

/// A half-open span of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub from: i64,
    pub until: i64,
}

impl Span {
    /// All of time.
    pub const ALL: Self = Self {
        from: i64::MIN,
        until: i64::MAX,
    };

    pub fn of(from: DateTime<Utc>, until: DateTime<Utc>) -> Self {
        Self {
            from: from.timestamp_micros(),
            until: until.timestamp_micros(),
        }
    }

    fn is_empty(&self) -> bool {
        self.from >= self.until
    }

    /// What of it is not in `others`, which may overlap, in order.
    pub fn without(self, others: &[Self]) -> Vec<Self> {
        let mut others = others.to_vec();
        others.sort_unstable();
        let mut rest = Vec::new();
        let mut from = self.from;
        for other in others {
            let gap = Self {
                from,
                until: other.from.min(self.until),
            };
            if !gap.is_empty() {
                rest.push(gap);
            }
            from = from.max(other.until);
        }
        let last = Self { from, ..self };
        if !last.is_empty() {
            rest.push(last);
        }
        rest
    }

    /// The whole hours in it.
    fn whole_hours(self) -> Self {
        let ceil = |us: i64| match floor_hour(us) {
            floor if floor == us => us,
            floor => floor.saturating_add(HOUR_US),
        };
        Self {
            from: if self.from == i64::MIN {
                i64::MIN
            } else {
                ceil(self.from)
            },
            until: if self.until == i64::MAX {
                i64::MAX
            } else {
                floor_hour(self.until)
            },
        }
    }

    /// Whether `time` lies in it; a null lies in none.
    pub fn holds(&self, time: &Expr) -> Expr {
        let mut holds = time.clone().is_not_null();
        if self.from != i64::MIN {
            holds = holds.and(time.clone().gt_eq(instant(self.from)));
        }
        if self.until != i64::MAX {
            holds = holds.and(time.clone().lt(instant(self.until)));
        }
        holds
    }
}

/// Whether `time` lies in one of the spans.
pub fn any_holds(spans: &[Span], time: &Expr) -> Expr {
    let holds = spans.iter().map(|it| it.holds(time));
    holds.reduce(Expr::or).unwrap_or_else(|| lit(false))
}

fn instant(us: i64) -> Expr {
    lit(ScalarValue::TimestampMicrosecond(
        Some(us),
        Some("UTC".into()),
    ))
}

/// The hours of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    /// An hour that begins before and ends after this is told in two.
    pub cut: Option<DateTime<Utc>>,
    /// How long an hour is taken to be: less than one where the zone's days begin within one.
    pub step_us: i64,
    /// Read from the table, in order.
    pub closed: Vec<Span>,
    /// Put together from the attempts, in order.
    pub open: Vec<Span>,
}

impl Hours {
    /// Of a question about `window`, and what lies before it, from `reach`'s beginning; without one,
    /// of everything.
    pub fn of(reach: Span, window: Option<&Window>, rollup: Option<&Rollup>) -> Self {
        let cut = window.map(|it| it.since);
        let by_hour = window.is_none_or(|it| it.zone.begins_on_hours(reach));
        let mut closed = match rollup {
            Some(rollup) if by_hour => closed(reach, cut, rollup),
            _ => Vec::new(),
        };
        closed.sort_unstable_by_key(|it| it.from.saturating_sub(it.until));
        closed.truncate(SPANS_MAX);
        closed.sort_unstable();
        Self {
            cut,
            step_us: if by_hour { HOUR_US } else { QUARTER_US },
            open: reach.without(&closed),
            closed,
        }
    }
}

/// The stored rows that say all about those of these spans, which are in order: what an attempt is in
/// its operation depends on others near it.
pub fn around(spans: &[Span]) -> Vec<Span> {
    let mut near: Vec<Span> = Vec::new();
    for it in spans {
        let from = it.from.saturating_sub(NEAR_US);
        let until = it.until.saturating_add(NEAR_US);
        match near.last_mut() {
            Some(last) if last.until >= from => last.until = until,
            _ => near.push(Span { from, until }),
        }
    }
    near
}

/// The hours of `reach` that the table tells of; the one that is cut is not among them.
fn closed(reach: Span, cut: Option<DateTime<Utc>>, rollup: &Rollup) -> Vec<Span> {
    let in_table = Span {
        from: reach.from,
        until: reach.until.min(rollup.through_us),
    };
    let mut not = rollup.touched.clone();
    if let Some(cut_us) = cut.map(|it| it.timestamp_micros())
        && floor_hour(cut_us) != cut_us
    {
        let from = floor_hour(cut_us);
        let until = from + HOUR_US;
        not.push(Span { from, until });
    }
    let hours = in_table.without(&not).into_iter().map(Span::whole_hours);
    hours.filter(|it| !it.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::datasource::empty::EmptyTable;

    use super::*;
    use crate::Zone;

    const H: i64 = HOUR_US;

    fn rollup(through_us: i64, touched: &[(i64, i64)]) -> Rollup {
        let provider = Arc::new(EmptyTable::new(crate::rollup::schema()));
        let touched = touched.iter().map(|&(from, until)| Span { from, until });
        Rollup {
            provider,
            through_us,
            touched: touched.collect(),
        }
    }

    fn window(from: i64, until: i64, zone: &str) -> (Span, Window) {
        let at = |us| DateTime::from_timestamp_micros(us).unwrap();
        let window = Window {
            since: at(from),
            until: at(until),
            zone: Zone::parse(zone).unwrap(),
        };
        (Span { from, until }, window)
    }

    fn spans(of: &[Span]) -> Vec<(i64, i64)> {
        of.iter().map(|it| (it.from, it.until)).collect()
    }

    #[test]
    fn whole_hours_before_the_mark_are_closed() {
        let (reach, day) = window(H / 2, 24 * H, "UTC");
        let hours = Hours::of(reach, Some(&day), Some(&rollup(20 * H, &[])));
        assert_eq!(spans(&hours.closed), [(H, 20 * H)]);
        assert_eq!(spans(&hours.open), [(H / 2, H), (20 * H, 24 * H)]);
        assert_eq!(
            spans(&around(&hours.open)),
            [(H / 2 - 4 * H, 5 * H), (16 * H, 28 * H)]
        );
        assert_eq!((hours.cut, hours.step_us), (Some(day.since), H));
    }

    #[test]
    fn hours_that_were_touched_are_open() {
        let (reach, day) = window(0, 24 * H, "UTC");
        let touched = rollup(24 * H, &[(5 * H, 9 * H), (7 * H, 10 * H), (30 * H, 31 * H)]);
        let hours = Hours::of(reach, Some(&day), Some(&touched));
        assert_eq!(spans(&hours.closed), [(0, 5 * H), (10 * H, 24 * H)]);
        assert_eq!(spans(&hours.open), [(5 * H, 10 * H)]);
        let all = rollup(24 * H, &[(i64::MIN, i64::MAX)]);
        let hours = Hours::of(reach, Some(&day), Some(&all));
        assert_eq!(
            (spans(&hours.closed), spans(&hours.open)),
            (vec![], vec![(0, 24 * H)])
        );
    }

    #[test]
    fn of_everything_all_before_the_mark_is_closed() {
        let hours = Hours::of(Span::ALL, None, Some(&rollup(20 * H, &[])));
        assert_eq!(spans(&hours.closed), [(i64::MIN, 20 * H)]);
        assert_eq!(spans(&hours.open), [(20 * H, i64::MAX)]);
        assert_eq!(spans(&around(&hours.open)), [(16 * H, i64::MAX)]);
        let none = Hours::of(Span::ALL, None, None);
        assert_eq!(spans(&none.open), [(i64::MIN, i64::MAX)]);
    }

    #[test]
    fn days_that_begin_within_an_hour_are_put_together_from_attempts() {
        for (zone, step, closed) in [
            ("Europe/Berlin", H, 1),
            ("Asia/Kolkata", H / 4, 0),
            ("Asia/Kathmandu", H / 4, 0),
            // Half an hour off in one half of the year.
            ("Australia/Lord_Howe", H / 4, 0),
        ] {
            // 2024-10-01 and a year.
            let from = 19_997 * 24 * H;
            let (reach, year) = window(from, from + 365 * 24 * H, zone);
            let hours = Hours::of(reach, Some(&year), Some(&rollup(from + H, &[])));
            assert_eq!(
                (hours.step_us, hours.closed.len()),
                (step, closed),
                "{zone}"
            );
        }
    }

    #[test]
    fn many_spans_are_not_told_apart() {
        let (reach, day) = window(0, 100 * H, "UTC");
        let touched = (1..40)
            .map(|n| (2 * n * H, (2 * n + 1) * H))
            .collect::<Vec<_>>();
        let hours = Hours::of(reach, Some(&day), Some(&rollup(100 * H, &touched)));
        assert_eq!(hours.closed.len(), SPANS_MAX);
        // The longest are among them: the end, and the two hours at the beginning.
        assert_eq!(spans(&hours.closed)[0], (0, 2 * H));
        assert_eq!(spans(&hours.closed)[SPANS_MAX - 1], (79 * H, 100 * H));
        let parts = hours.open.len() + hours.closed.len();
        let mut all = [hours.open, hours.closed].concat();
        all.sort_unstable();
        assert!(parts > SPANS_MAX && all.windows(2).all(|it| it[0].until == it[1].from));
    }
}
