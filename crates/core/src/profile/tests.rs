use proptest::prelude::*;

use super::*;

/// Of rows with so many tokens each: ten times the median and the 99th percentile.
fn usual(counts: &[(i64, u64)]) -> Option<(i64, i64)> {
    let mut sum = Counts::default();
    for (tokens, rows) in counts {
        (0..*rows).for_each(|_| sum.add(*tokens));
    }
    sum.usual().map(|it| (it.median_tenths, it.p99))
}

#[test]
fn a_median_of_an_even_number_lies_between_the_two_in_the_middle() {
    // 30 rows: the 15th has 100, the 16th 201; ceil(29.7) is the 30th.
    assert_eq!(usual(&[(100, 15), (201, 15)]), Some((1505, 201)));
    // 31 rows: the 16th.
    assert_eq!(usual(&[(100, 15), (201, 16)]), Some((2010, 201)));
    assert_eq!(usual(&[(7, 30)]), Some((70, 7)));
}

#[test]
fn under_thirty_rows_nothing_is_usual() {
    assert_eq!(usual(&[(100, 29)]), None);
    assert_eq!(usual(&[]), None);
}

#[test]
fn the_99th_percentile_is_a_row_by_its_rank() {
    // Of 100 rows the 99th, of 101 the 100th (ceil 99.99), of 200 the 198th.
    assert_eq!(usual(&[(1, 98), (5, 1), (9, 1)]), Some((10, 5)));
    assert_eq!(usual(&[(1, 99), (5, 1), (9, 1)]), Some((10, 5)));
    assert_eq!(usual(&[(1, 197), (5, 1), (9, 2)]), Some((10, 5)));
    assert_eq!(usual(&[(1, 98), (9, 2)]), Some((10, 9)));
}

#[test]
fn a_kind_reaches_from_one_power_of_two_to_the_next() {
    let cases = [
        (-1, None),
        (0, None),
        (1, Some(1)),
        (2, Some(2)),
        (3, Some(2)),
        (1023, Some(512)),
        (1024, Some(1024)),
        (1025, Some(1024)),
        (i64::MAX, Some(1 << 62)),
    ];
    for (max_tokens, expected) in cases {
        assert_eq!(power_of_two(max_tokens), expected, "{max_tokens}");
    }
}

#[test]
fn a_day_is_closed_two_hours_after_its_end() {
    let mark = |day: i64, hour: i64, ms: i64| day * DAY_MS + hour * 3_600_000 + ms;
    // Until 02:00 of day 10, day 9 may be open: the newest profile is that for day 9.
    assert_eq!(newest_due(mark(10, 1, 3_599_999)), 9);
    assert_eq!(newest_due(mark(10, 2, 0)), 10);
    assert_eq!(newest_due(mark(10, 23, 0)), 10);
    assert!(missing(newest_due(i64::MIN), 5, &BTreeSet::new()).is_empty());
}

#[test]
fn missing_days_begin_after_the_first_event_and_are_not_too_old() {
    let none = BTreeSet::new();
    assert_eq!(missing(10, 7, &none), [8, 9, 10]);
    assert_eq!(missing(10, 7, &BTreeSet::from([8])), [9, 10]);
    // Events of day 7 came when there was a profile already.
    assert_eq!(missing(10, 7, &BTreeSet::from([9])), [10]);
    assert!(missing(10, 10, &none).is_empty());
    let long = missing(100, 0, &none);
    assert_eq!((long.first(), long.len()), (Some(&66), 35));
}

proptest! {
    /// Against the rows one by one, sorted; in any order, and of any two kinds put together.
    #[test]
    fn counts_tell_what_the_rows_tell(
        rows in prop::collection::vec(0_i64..50, 30..200),
        first in 0_usize..30,
    ) {
        let [mut counts, mut others] = [Counts::default(), Counts::default()];
        rows[..first].iter().for_each(|tokens| counts.add(*tokens));
        rows[first..].iter().for_each(|tokens| others.add(*tokens));
        counts.merge(&others);
        let mut sorted = rows;
        sorted.sort_unstable();
        let n = sorted.len();
        let twice = match n % 2 {
            0 => sorted[n / 2 - 1] + sorted[n / 2],
            _ => 2 * sorted[n / 2],
        };
        // The least value that at least 99 of 100 rows do not exceed.
        let p99 = sorted.iter().find(|value| {
            100 * sorted.iter().filter(|it| it <= value).count() >= 99 * n
        });
        let usual = counts.usual().expect("30 rows");
        prop_assert_eq!(usual.median_tenths, twice * 5);
        prop_assert_eq!(Some(&usual.p99), p99);
    }
}
