//! Facts with known numbers → the page, line by line.

use std::collections::BTreeSet;
use std::time::Duration;

use retrytoll_core::decode::{DecodeCounts, Reason};
use retrytoll_lake::{ConflictCounts, Mark};

use super::*;
use crate::metrics::{FileFacts, Firing};
use crate::pipeline::{PartitionFacts, ReadCounts, WriteSummary};

const NOW_MS: i64 = 1_763_596_800_000;
const LIMITS: Limits = Limits {
    prefetch_bytes: 48_000_000,
    batches_bytes: 24_000_000,
    encode_bytes: 80_000_000,
    seen_bytes: 64_000_000,
    sql_bytes: 160_000_000,
    rest_bytes: 24_000_000,
    spill_bytes_max: 1,
    sql_time: Duration::ZERO,
};

fn read() -> ReadFacts {
    let mut counts = ReadCounts {
        records: 100,
        rows: 80,
        duplicates: 7,
        dead_letters: 3,
        nulls: 2,
        ..ReadCounts::default()
    };
    counts.dead_letters_by_reason[Reason::MissingField as usize] = 3;
    let place = |next, clock_ms| PartitionFacts { next, clock_ms };
    ReadFacts {
        counts,
        decoded: DecodeCounts {
            unknown_fields: 4,
            ..DecodeCounts::default()
        },
        partitions: [
            (0, place(60, Some(NOW_MS - 1_500))),
            // Nothing has come of it yet.
            (1, place(40, None)),
        ]
        .into(),
        batches_bytes: 11,
        seen_bytes: 22,
    }
}

fn written() -> WriteFacts {
    WriteFacts {
        summary: WriteSummary {
            rows: 80,
            files: 2,
            bytes: 5_000,
            commits: 10,
            claims: 1,
            position_commits: 4,
            version: Some(9),
            ..WriteSummary::default()
        },
        conflicts: ConflictCounts {
            moved_base: 6,
            ..ConflictCounts::default()
        },
        next: [(0, 50), (1, 40), (2, 5)].into(),
        mark: Mark::Before(NOW_MS - 2_000),
    }
}

fn page(metrics: &Arc<Metrics>) -> Vec<String> {
    let page = text(metrics, LIMITS, true, NOW_MS).unwrap();
    page.lines().map(str::to_owned).collect()
}

/// The value of a series.
fn value(page: &[String], series: &str) -> Option<f64> {
    let line = page
        .iter()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|it| it.parse().unwrap())
}

#[test]
fn each_fact_is_where_its_name_says() {
    let metrics = Arc::new(Metrics::default());
    metrics.reading.set(read());
    metrics.writing.set(written());
    metrics.brokers.set(BrokerFacts {
        connected: 3,
        ends: [(0, 60), (1, 38)].into(),
        prefetch_bytes: 33,
        ..BrokerFacts::default()
    });
    metrics.files.set(FileFacts {
        files: 12,
        bytes: 34,
    });
    metrics
        .tasks
        .ran("rollup", Duration::from_millis(200), true);
    metrics.tasks.met(&ConflictCounts {
        moved_base: 1,
        ..ConflictCounts::default()
    });
    metrics.tasks.decided("retry_storm", "firing");
    metrics
        .tasks
        .fires(Some(Firing::from([("retry_storm".to_owned(), 2)])));
    metrics.commit_seconds.observe(0.02);
    let page = page(&metrics);
    for (series, expected) in [
        ("retrytoll_records_total", 100.0),
        ("retrytoll_attempts_total", 80.0),
        (
            "retrytoll_dead_letters_total{reason=\"missing_field\"}",
            3.0,
        ),
        ("retrytoll_dead_letters_total{reason=\"too_deep\"}", 0.0),
        ("retrytoll_unknown_fields_total", 4.0),
        ("retrytoll_partitions", 3.0),
        ("retrytoll_brokers_connected", 3.0),
        ("retrytoll_lag_records{partition=\"0\"}", 10.0),
        // The end was told before the last records came.
        ("retrytoll_lag_records{partition=\"1\"}", 0.0),
        ("retrytoll_unread_records{partition=\"0\"}", 0.0),
        (
            "retrytoll_clock_timestamp_seconds{partition=\"0\"}",
            1_763_596_798.5,
        ),
        ("retrytoll_clock_delay_seconds{partition=\"0\"}", 1.5),
        ("retrytoll_complete_timestamp_seconds", 1_763_596_798.0),
        ("retrytoll_commits_total{kind=\"rows\"}", 5.0),
        ("retrytoll_commits_total{kind=\"positions\"}", 4.0),
        ("retrytoll_commits_total{kind=\"claim\"}", 1.0),
        ("retrytoll_commit_conflicts_total{kind=\"moved_base\"}", 7.0),
        ("retrytoll_commit_conflicts_total{kind=\"fenced\"}", 0.0),
        ("retrytoll_commit_seconds_bucket{le=\"0.01\"}", 0.0),
        ("retrytoll_commit_seconds_bucket{le=\"0.025\"}", 1.0),
        ("retrytoll_commit_seconds_bucket{le=\"+Inf\"}", 1.0),
        ("retrytoll_commit_seconds_count", 1.0),
        ("retrytoll_live_files", 12.0),
        ("retrytoll_table_version", 9.0),
        ("retrytoll_leader", 1.0),
        ("retrytoll_job_seconds_count{job=\"rollup\"}", 1.0),
        ("retrytoll_job_failures_total{job=\"rollup\"}", 1.0),
        (
            "retrytoll_alert_transitions_total{rule=\"retry_storm\",state=\"firing\"}",
            1.0,
        ),
        ("retrytoll_alerts_firing{rule=\"retry_storm\"}", 2.0),
        ("retrytoll_memory_bytes{part=\"prefetch\"}", 33.0),
        ("retrytoll_memory_bytes{part=\"seen\"}", 22.0),
        ("retrytoll_memory_limit_bytes{part=\"seen\"}", 64_000_000.0),
    ] {
        assert_eq!(value(&page, series), Some(expected), "{series}");
    }
}

#[test]
fn what_is_not_known_is_absent() {
    let metrics = Arc::new(Metrics::default());
    let before = page(&metrics);
    for family in [
        "retrytoll_records",
        "retrytoll_lag_records",
        "retrytoll_clock",
        "retrytoll_brokers",
        "retrytoll_complete",
        "retrytoll_table_version",
        "retrytoll_live",
        "retrytoll_alerts_firing",
        "retrytoll_memory_bytes{part=\"prefetch\"}",
    ] {
        assert!(!before.iter().any(|it| it.contains(family)), "{family}");
    }
    metrics.reading.set(read());
    metrics.brokers.set(BrokerFacts::default());
    metrics.writing.set(WriteFacts {
        mark: Mark::Nothing,
        ..written()
    });
    let page = page(&metrics);
    for series in [
        "retrytoll_clock_delay_seconds{partition=\"1\"}",
        "retrytoll_lag_records{partition=\"0\"}",
        "retrytoll_complete_timestamp_seconds",
    ] {
        assert_eq!(value(&page, series), None, "{series}");
    }
}

/// What `promtool check metrics` looks at.
#[test]
fn every_family_is_told_once_with_its_meaning_and_type() {
    let metrics = Arc::new(Metrics::default());
    metrics.reading.set(read());
    metrics.writing.set(written());
    metrics.tasks.ran("log", Duration::ZERO, false);
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    for line in page(&metrics) {
        if let Some(told) = line.strip_prefix("# HELP ") {
            let (name, help) = told.split_once(' ').unwrap();
            assert!(help.ends_with(['.', 's']), "{line}");
            assert!(families.insert(name.to_owned()), "{name} stands twice");
            name.clone_into(&mut family);
        } else if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(
                name.starts_with(&family) && value.parse::<f64>().is_ok(),
                "{line}"
            );
            assert!(series.insert(name.to_owned()), "{name} stands twice");
        }
    }
    assert!(families.len() > 30, "{families:?}");
}
