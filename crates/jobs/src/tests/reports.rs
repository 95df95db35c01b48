//! The other jobs, and reports as they are read.

use super::fixture::{
    Lake, Row, rate_limited, rows, success, the_day, timeout, uncovered, unpriced, window,
};
use crate::render::{Format, Style, footer, report};
use crate::{CompleteThrough, JobResult, Share};

fn text(result: &JobResult, format: Format, width: Option<usize>) -> String {
    let mut out = Vec::new();
    report(
        &mut out,
        result,
        format,
        Style {
            width,
            color: false,
        },
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn retries_by_class_model_and_service() {
    let lake = Lake::of(&[&[
        rate_limited("a", "r1", false),
        success("a", "r1", true, "0.01"),
        timeout("a", "r2", false, "1"),
        timeout("a", "r2", true, "0.5"),
        timeout("b", "r2", true, "0.25"),
        Row {
            model: "m2",
            ..unpriced("b", "r3", true)
        },
        Row {
            p_billed: None,
            ceiling: None,
            ..timeout("b", "r4", true, "0")
        },
    ]])
    .await;
    let by = async |by| {
        let result = lake.job("retries", &the_day(), by).await;
        rows(
            &result,
            &[
                "key",
                "attempts",
                "retries",
                "retry_expected_usd",
                "retry_confirmed_usd",
                "retry_ceiling_usd",
                "retries_unpriced",
                "retries_cost_unknown",
            ],
        )
    };
    // read: 0.9 x (0.5 + 0.25) = 0.675.
    assert_eq!(
        by(None).await,
        [
            "read | 4 | 3 | 0.675 | 0 | 0.75 | 0 | 1",
            "none | 2 | 2 | 0.01 | 0.01 | 0.01 | 1 | 0",
            "rate_limit | 1 | 0 | 0 | 0 | 0 | 0 | 0",
        ]
    );
    assert_eq!(
        by(Some("service")).await,
        [
            "a | 4 | 2 | 0.46 | 0.01 | 0.51 | 0 | 0",
            "b | 3 | 3 | 0.225 | 0 | 0.25 | 1 | 1"
        ]
    );
    assert_eq!(
        by(Some("model")).await,
        [
            "m1 | 6 | 4 | 0.685 | 0.01 | 0.76 | 0 | 1",
            "m2 | 1 | 1 | - | - | - | 1 | 0"
        ]
    );
}

#[tokio::test]
async fn unpriced_models_and_coverage() {
    let lake = Lake::of(&[&[
        unpriced("a", "r1", false),
        unpriced("a", "r1", true),
        Row {
            model: "m-other",
            ..unpriced("a", "r2", false)
        },
        success("b", "r3", false, "0.01"),
        uncovered("b", "r4", false),
        timeout("c", "r5", false, "1"),
    ]])
    .await;
    let result = lake.job("unpriced", &the_day(), None).await;
    assert_eq!(
        rows(
            &result,
            &[
                "model",
                "providers",
                "attempts",
                "retries",
                "input_tokens",
                "output_tokens"
            ]
        ),
        [
            "m-new | openai | 2 | 1 | 200 | -",
            "m-other | openai | 1 | 0 | 100 | -"
        ]
    );
    let berlin = window("2026-11-20", "2026-11-21", "Europe/Berlin");
    let result = lake.job("unpriced", &berlin, None).await;
    assert_eq!(rows(&result, &["last_ts"])[0], "2026-11-20T09:00:00+01:00");
    let result = lake.job("usage_coverage", &the_day(), None).await;
    assert_eq!(
        rows(
            &result,
            &[
                "key",
                "coverage_pct",
                "answers",
                "answers_without_usage",
                "note"
            ]
        ),
        [
            "b | 50 | 2 | 1 | under 80 %: the retry-cost share is withheld",
            "a | 100 | 3 | 0 | -",
            "c | - | 0 | 0 | no success is logged",
        ]
    );
}

async fn small() -> JobResult {
    let lake = Lake::of(&[&[
        success("checkout", "r1", false, "0.95"),
        success("checkout", "r1", true, "0.0612345678"),
        unpriced("search", "r2", false),
    ]])
    .await;
    let mut result = lake.job("retry_cost_share", &the_day(), None).await;
    result.complete_through = CompleteThrough::Before(super::fixture::at("2026-11-20T22:00:00Z"));
    result
}

#[tokio::test]
async fn a_report_says_what_it_must_be_read_with() {
    let result = small().await;
    let text = text(&result, Format::Table, None);
    for line in [
        "Retry-cost share: Cost of retries as a share of all cost; expected, with its bounds.",
        "window     2026-11-20T00:00:00Z to 2026-11-21T00:00:00Z (zone UTC, end exclusive)",
        "counts     attempts (3 in the window)",
        "coverage   100.0 % (3 of 3 answers have the provider's usage)",
        "version    0 of attempts; complete through 2026-11-20T22:00:00Z",
        "beside     1 attempt without a price: their cost is in no figure (retrytoll report unpriced)",
        "rounding   dollars are rounded here; --format json and csv are exact",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "no line {line:?} in\n{text}"
        );
    }
    // 0.0612345678 / 1.0112345678 = 6.055 %.
    let row = text.lines().find(|it| it.starts_with("checkout")).unwrap();
    let words = row
        .split_whitespace()
        .take(11)
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(words, "checkout 6.1 % review 6.1 % 6.1 % $0.06123 $0.95 2");
    assert!(text.contains("\nservice "), "{text}");
    for width in [40, 60, 80, 120] {
        let narrow = self::text(&result, Format::Table, Some(width));
        let table = narrow
            .lines()
            .skip(2)
            .take_while(|it| !it.starts_with("window"))
            .collect::<Vec<_>>();
        assert!(
            table.iter().all(|it| it.chars().count() <= width),
            "{width}:\n{narrow}"
        );
        assert!(
            table.iter().any(|it| it.contains("$0.06123")),
            "{width}:\n{narrow}"
        );
    }
}

#[tokio::test]
async fn json_is_exact_and_whole() {
    let result = small().await;
    let document: serde_json::Value =
        serde_json::from_str(&text(&result, Format::Json, None)).unwrap();
    assert_eq!(document["job"], "retry_cost_share");
    assert_eq!(document["counts"], "attempts");
    assert_eq!(document["parameters"]["by"], "service");
    assert_eq!(document["window"]["until"], "2026-11-21T00:00:00Z");
    assert_eq!(document["delta_version"], 0);
    assert_eq!(document["complete_through"], "2026-11-20T22:00:00Z");
    assert_eq!(document["coverage_pct"], "100");
    assert_eq!(document["rows"][0]["key"], "checkout");
    assert_eq!(document["rows"][0]["retry_expected_usd"], "0.0612345678");
    assert_eq!(document["rows"][1]["retry_expected_usd"], "0");
    assert_eq!(
        document["rows"][1]["other_expected_usd"],
        serde_json::Value::Null
    );
    assert_eq!(document["beside"]["unpriced"], 1);
    assert!(
        document["sql"]
            .as_str()
            .unwrap()
            .contains("arrow_cast('2026-11-20T00:00:00")
    );
}

#[tokio::test]
async fn shares_for_gates() {
    let result = small().await;
    let shares = Share::of(&result.batches);
    assert_eq!(shares.len(), 2);
    assert_eq!(shares[0].key.as_deref(), Some("checkout"));
    assert_eq!(shares[0].band.unwrap().to_string(), "review");
    assert_eq!(shares[0].retry_usd, Some(61_234_567_800));
    assert_eq!((shares[1].share_pct, shares[1].other_usd), (None, None));
    assert_eq!(
        shares[1].note.as_deref(),
        Some("not computable: no first attempt has a known cost")
    );
}

#[tokio::test]
async fn an_empty_window_says_so() {
    let lake = Lake::of(&[&[success("a", "r1", false, "0.01")]]).await;
    let span = window("2026-11-01", "2026-11-02", "Europe/Berlin");
    let result = lake.job("retries", &span, None).await;
    let text = text(&result, Format::Table, Some(80));
    let line = "no attempts between 2026-11-01T00:00:00+01:00 and 2026-11-02T00:00:00+01:00";
    assert!(text.lines().any(|it| it == line), "{text}");
    assert!(footer(&result).contains(&"coverage   no answer to cover".to_owned()));
}
