//! `retry_cost_share`.

use super::fixture::{
    Lake, Row, rate_limited, rows, success, the_day, timeout, uncovered, unpriced, window,
};

const SHARES: [&str; 6] = [
    "key",
    "share_pct",
    "band",
    "share_low_pct",
    "share_high_pct",
    "note",
];
const MONEY: [&str; 7] = [
    "key",
    "retry_expected_usd",
    "retry_confirmed_usd",
    "retry_ceiling_usd",
    "other_expected_usd",
    "other_confirmed_usd",
    "other_ceiling_usd",
];

/// Two services whose figures are worked out below.
fn two_services() -> Vec<Row> {
    let mut all = vec![
        // checkout: R = 0.012; O = 3 x 0.01 + 0.9 x 0.02 = 0.048, confirmed 0.03, at most 0.05.
        success("checkout", "c1", false, "0.01"),
        success("checkout", "c2", false, "0.01"),
        success("checkout", "c3", false, "0.01"),
        timeout("checkout", "c4", false, "0.02"),
        success("checkout", "c4", true, "0.012"),
        // search: R = 0.9 x 1, confirmed 0, at most 1; O = 9.
        rate_limited("search", "s0", false),
        timeout("search", "s0", true, "1"),
    ];
    for n in 1..=9 {
        all.push(success("search", &format!("s{n}"), false, "1"));
    }
    all
}

#[tokio::test]
async fn by_service_with_bounds() {
    let lake = Lake::of(&[&two_services()]).await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    // 0.9 / 9.9, 0 / 9, 1 / 10; 0.012 / 0.06, 0.012 / 0.062, 0.012 / 0.042.
    assert_eq!(
        rows(&result, &SHARES),
        [
            "search | 9.090909090909 | evaluate | 0 | 10 | too few: 10 first attempts, under 200",
            "checkout | 20 | incident | 19.354838709677 | 28.571428571429 | too few: 4 first attempts, under 200",
        ]
    );
    assert_eq!(
        rows(&result, &MONEY),
        [
            "search | 0.9 | 0 | 1 | 9 | 9 | 9",
            "checkout | 0.012 | 0.012 | 0.012 | 0.048 | 0.03 | 0.05"
        ]
    );
    assert_eq!(
        rows(
            &result,
            &[
                "key",
                "attempts",
                "retries",
                "first_attempts",
                "coverage_pct"
            ]
        ),
        ["search | 11 | 1 | 10 | 100", "checkout | 5 | 1 | 4 | 100"]
    );
}

#[tokio::test]
async fn the_whole_is_its_parts() {
    let lake = Lake::of(&[&two_services()]).await;
    let result = lake.job("retry_cost_share", &the_day(), Some("all")).await;
    // 0.912 / 9.96.
    assert_eq!(
        rows(
            &result,
            &[
                "key",
                "share_pct",
                "retry_expected_usd",
                "other_expected_usd",
                "attempts"
            ]
        ),
        ["all | 9.156626506024 | 0.912 | 9.048 | 16"]
    );
}

#[tokio::test]
async fn every_other_grouping() {
    let mut all = two_services();
    all[4].tenant = Some("acme");
    all[4].model = "m2";
    let lake = Lake::of(&[&all]).await;
    let by = async |by| {
        let result = lake.job("retry_cost_share", &the_day(), Some(by)).await;
        rows(
            &result,
            &[
                "key",
                "retry_expected_usd",
                "other_expected_usd",
                "attempts",
            ],
        )
    };
    assert_eq!(
        by("tenant").await,
        ["- | 0.9 | 9.048 | 15", "acme | 0.012 | 0 | 1"]
    );
    assert_eq!(
        by("model").await,
        ["m1 | 0.9 | 9.048 | 15", "m2 | 0.012 | 0 | 1"]
    );
    assert_eq!(by("day").await, ["2026-11-20 | 0.912 | 9.048 | 16"]);
    assert_eq!(
        by("hour").await,
        ["2026-11-20T08:00:00Z | 0.912 | 9.048 | 16"]
    );
}

#[tokio::test]
async fn without_coverage_the_share_is_withheld() {
    let answers = |service: &'static str, with_usage: usize| {
        let one = move |n: usize| {
            let request = format!("{service}{n}");
            if n < with_usage {
                success(service, &request, false, "0.01")
            } else {
                uncovered(service, &request, false)
            }
        };
        (0..10).map(one).collect::<Vec<_>>()
    };
    let mut all = [answers("at_80", 8), answers("under_80", 7)].concat();
    // Neither a cached answer nor one that nobody got can lack its usage.
    all.push(Row {
        cache_hit: Some(true),
        ..uncovered("at_80", "cached", false)
    });
    all.push(timeout("at_80", "at_800", true, "0.02"));
    let lake = Lake::of(&[&all]).await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    // at_80: R = 0.018, O = 0.08.
    assert_eq!(
        rows(
            &result,
            &[
                "key",
                "share_pct",
                "band",
                "coverage_pct",
                "tokens_unknown",
                "note"
            ]
        ),
        [
            "at_80 | 18.367346938776 | incident | 80 | 2 | too few: 11 first attempts, under 200",
            "under_80 | - | - | 70 | 3 | not computable: usage is logged for 7 of 10 answers, under 80 %",
        ]
    );
    // What is known of the money is told all the same.
    assert_eq!(
        rows(&result, &MONEY)[1],
        "under_80 | 0 | 0 | 0 | 0.07 | 0.07 | 0.07"
    );
}

#[tokio::test]
async fn who_logs_failures_only_has_no_share() {
    let mut all = vec![
        timeout("sad", "r1", false, "0.02"),
        timeout("sad", "r1", true, "0.02"),
    ];
    let lake = Lake::of(&[&all]).await;
    for by in ["service", "all", "hour", "model"] {
        let result = lake.job("retry_cost_share", &the_day(), Some(by)).await;
        assert_eq!(
            rows(&result, &["share_pct", "note", "retry_expected_usd"]),
            ["- | not computable: no success is logged | 0.018"],
            "{by}"
        );
    }
    // An hour of failures alone is no such case, where the service does log successes.
    let later = Some("2026-11-20T09:00:00Z");
    all.push(Row {
        ts: later,
        ..success("sad", "r2", false, "0.01")
    });
    let lake = Lake::of(&[&all]).await;
    let result = lake.job("retry_cost_share", &the_day(), Some("hour")).await;
    assert_eq!(
        rows(&result, &["key", "share_pct", "retry_expected_usd"]),
        [
            "2026-11-20T08:00:00Z | 50 | 0.018",
            "2026-11-20T09:00:00Z | 0 | 0"
        ]
    );
}

#[tokio::test]
async fn what_has_no_price_is_in_neither_side() {
    let lake = Lake::of(&[&[
        success("a", "r1", false, "0.03"),
        success("a", "r1", true, "0.01"),
        unpriced("a", "r2", false),
        unpriced("a", "r2", true),
        // No retry of b has a known cost: 0 % would be a lie.
        success("b", "r3", false, "0.03"),
        unpriced("b", "r3", true),
        // Of c nothing was spent at all.
        rate_limited("c", "r4", false),
        Row {
            cache_hit: Some(true),
            ..success("c", "r4", true, "0")
        },
    ]])
    .await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    assert_eq!(
        rows(
            &result,
            &["key", "share_pct", "unpriced", "retry_expected_usd", "note"]
        ),
        [
            "a | 25 | 2 | 0.01 | too few: 2 first attempts, under 200",
            "c | - | 0 | 0 | not computable: nothing was spent",
            "b | - | 1 | - | not computable: no retry has a known cost",
        ]
    );
}

#[tokio::test]
async fn who_counts_from_one_is_not_taken_for_a_storm() {
    let retries = (0..5).map(|n| success("tenacity", &format!("r{n}"), true, "0.01"));
    let lake = Lake::of(&[&retries.collect::<Vec<_>>()]).await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    assert_eq!(
        rows(&result, &["share_pct", "note"]),
        [
            "- | not computable: 0 first attempts of 5 operations are logged, under half; see attempt_base"
        ]
    );
}

#[tokio::test]
async fn an_attempt_without_a_number_is_numbered_and_another_layer_is_in_neither_side() {
    let lake = Lake::of(&[&[
        success("a", "r1", false, "0.09"),
        success("a", "r1", true, "0.01"),
        // The first of its request, so a first attempt.
        Row {
            is_retry: None,
            ..success("a", "r2", false, "0.9")
        },
        Row {
            counted: false,
            ..success("a", "r1", true, "7")
        },
    ]])
    .await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    // 0.01 / 1.
    assert_eq!(
        rows(
            &result,
            &["share_pct", "attempts", "unnumbered", "other_expected_usd"]
        ),
        ["1 | 3 | 0 | 0.99"]
    );
    let facts = result.facts.unwrap();
    assert_eq!((facts.attempts, facts.counted, facts.unnumbered), (4, 3, 0));
}

#[tokio::test]
async fn what_is_redundant_stands_beside_the_share() {
    let lake = Lake::of(&[&[
        // A 429 and a success: retry cost, and no toll. 0.06 / 1.
        rate_limited("polite", "r1", false),
        success("polite", "r1", true, "0.06"),
        success("polite", "r2", false, "0.94"),
        // A timeout and a success: the first is the toll, 0.9 of 1. 0.1 / 1.
        timeout("hasty", "r3", false, "1"),
        success("hasty", "r3", true, "0.1"),
    ]])
    .await;
    let result = lake.job("retry_cost_share", &the_day(), None).await;
    assert_eq!(
        rows(
            &result,
            &[
                "key",
                "share_pct",
                "band_meaning",
                "redundant_expected_usd",
                "redundant_confirmed_usd",
                "redundant_share_pct",
                "retry_rate_pct",
                "operations",
            ]
        ),
        [
            "hasty | 10 | if it lasts for 7 days, evaluate a fallback model or a second provider | 0.9 | 0 | 90 | 100 | 1",
            "polite | 6 | review the retry policy | 0 | 0 | 0 | 50 | 2",
        ]
    );
}

#[tokio::test]
async fn the_window_is_half_open() {
    let on = |ts, request| Row {
        ts,
        ..success("a", request, false, "0.01")
    };
    let lake = Lake::of(&[&[
        on(Some("2026-11-19T23:59:59.999999Z"), "before"),
        on(Some("2026-11-20T00:00:00Z"), "first"),
        on(Some("2026-11-20T23:59:59.999999Z"), "last"),
        on(Some("2026-11-21T00:00:00Z"), "after"),
        on(None, "timeless"),
        // A clock gone wrong: far outside what a count of nanoseconds can hold.
        on(Some("9999-12-31T23:59:59Z"), "odd"),
    ]])
    .await;
    let result = lake.job("retry_cost_share", &the_day(), Some("all")).await;
    assert_eq!(
        rows(&result, &["attempts", "other_expected_usd"]),
        ["2 | 0.02"]
    );
    assert_eq!(result.facts.unwrap().timeless, 1);
    // The days of any zone share out the same attempts.
    let span = window(
        "2026-11-19T00:00:00Z",
        "2026-11-22T00:00:00Z",
        "Asia/Singapore",
    );
    let result = lake.job("retry_cost_share", &span, Some("day")).await;
    assert_eq!(
        rows(&result, &["key", "attempts"]),
        ["2026-11-20 | 2", "2026-11-21 | 2"]
    );
}

#[tokio::test]
async fn hours_of_a_clock_change_are_two() {
    // In Berlin, 02:30 came twice on 25 October 2026: at 00:30 and at 01:30 UTC.
    let on = |ts, request| Row {
        ts: Some(ts),
        ..success("a", request, false, "0.01")
    };
    let lake = Lake::of(&[&[
        on("2026-10-25T00:30:00Z", "r1"),
        on("2026-10-25T01:30:00Z", "r2"),
        on("2026-10-25T02:30:00Z", "r3"),
    ]])
    .await;
    let span = window("2026-10-25", "2026-10-26", "Europe/Berlin");
    let result = lake.job("retry_cost_share", &span, Some("hour")).await;
    assert_eq!(
        rows(&result, &["key"]),
        [
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T03:00:00+01:00"
        ]
    );
}

#[tokio::test]
async fn a_thousand_tenths_of_a_millionth_are_exact() {
    let tiny = |n: usize| success("a", &format!("r{n}"), n.is_multiple_of(4), "0.0000001");
    let all = (0..1000).map(tiny).collect::<Vec<_>>();
    let mut backwards = all.clone();
    backwards.reverse();
    for order in [all, backwards] {
        let lake = Lake::of(&[&order]).await;
        let result = lake.job("retry_cost_share", &the_day(), None).await;
        assert_eq!(
            rows(
                &result,
                &[
                    "retry_expected_usd",
                    "other_expected_usd",
                    "share_pct",
                    "band",
                    "note"
                ]
            ),
            ["0.000025 | 0.000075 | 25 | incident | -"]
        );
    }
}

#[tokio::test]
async fn an_empty_window_has_no_row() {
    let lake = Lake::of(&[&two_services()]).await;
    let span = window("2026-11-01", "2026-11-02", "UTC");
    for by in ["all", "service", "hour"] {
        assert!(
            rows(
                &lake.job("retry_cost_share", &span, Some(by)).await,
                &["key"]
            )
            .is_empty()
        );
    }
}
