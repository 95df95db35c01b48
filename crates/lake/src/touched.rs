//! Entries of the log → the event times of the rows that they added or took away.
//!
//! What was derived from an older version stays true outside of these times. Compaction moves
//! rows and changes none.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate};
use deltalake::logstore::LogStore;
use serde_json::Value;

use crate::error::LakeError;
use crate::log::{Entry, read_entry};

const DAY_US: i64 = 86_400_000_000;

/// A span of event time, both ends inclusive, microseconds since 1970.
pub type Times = (i64, i64);

/// The event times of the rows that the entries after version `after`, up to `through`, added or
/// took away, in the order of the entries; `None` where an entry is gone.
///
/// # Errors
/// The store's, and [`LakeError::BadEntry`].
pub async fn touched(
    log: &dyn LogStore,
    after: u64,
    through: u64,
) -> Result<Option<Vec<Times>>, LakeError> {
    let mut times = Vec::new();
    for version in after + 1..=through {
        match read_entry(log, version).await? {
            Some(entry) => times.extend(of_entry(&entry)),
            None => return Ok(None),
        }
    }
    Ok(Some(times))
}

fn of_entry(entry: &Entry) -> Vec<Times> {
    let adds = entry.adds.iter().filter(|it| it.data_change).map(|add| {
        let of_rows = add.stats.as_deref().and_then(of_stats);
        of_rows.or_else(|| of_date(Some(&add.partition_values)))
    });
    let removes = entry.removes.iter().filter(|it| it.data_change);
    let removes = removes.map(|remove| of_date(remove.partition_values.as_ref()));
    adds.chain(removes).flatten().collect()
}

/// The least and the greatest `ts` of a file; `None` where its statistics do not tell.
pub(crate) fn of_stats(stats: &str) -> Option<Times> {
    let stats: Value = serde_json::from_str(stats).ok()?;
    let us = |ends: &str| {
        let text = stats[ends]["ts"].as_str()?;
        Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros())
    };
    // Other programs cut the greatest off after the milliseconds.
    Some((us("minValues")?, us("maxValues")? + 999))
}

/// All of a file's date; `None` for rows without a time, which are in no span.
fn of_date(partition: Option<&HashMap<String, Option<String>>>) -> Option<Times> {
    let Some(date) = partition.and_then(|it| it.get("date")) else {
        return Some((i64::MIN, i64::MAX));
    };
    let date: NaiveDate = date.as_deref()?.parse().ok()?;
    let first = date.and_time(Default::default()).and_utc();
    let first_us = first.timestamp_micros();
    Some((first_us, first_us + DAY_US - 1))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn of(actions: &str) -> Vec<Times> {
        let bytes = Bytes::from(actions.to_owned());
        of_entry(&Entry::parse(7, &bytes).expect("an entry"))
    }

    #[test]
    fn rows_that_come_or_go_touch_their_times() {
        let add = |date: &str, change: bool, stats: &str| {
            format!(
                r#"{{"add":{{"path":"a","partitionValues":{{"date":{date}}},"size":1,"modificationTime":1,"dataChange":{change},"stats":{stats}}}}}"#
            )
        };
        // 2026-11-20 is day 20777 since 1970.
        let day_us = 20_777 * DAY_US;
        let times = r#""{\"numRecords\":1,\"minValues\":{\"ts\":\"2026-11-20T00:00:01.000Z\"},\"maxValues\":{\"ts\":\"2026-11-20T00:00:02.500Z\"}}""#;
        let expected = (day_us + 1_000_000, day_us + 2_500_999);
        assert_eq!(of(&add("\"2026-11-20\"", true, times)), [expected]);
        assert_eq!(of(&add("\"2026-11-20\"", false, times)), [], "moved only");
        let day = (day_us, day_us + DAY_US - 1);
        let none = r#""{\"numRecords\":1}""#;
        assert_eq!(of(&add("\"2026-11-20\"", true, none)), [day]);
        assert_eq!(of(&add("null", true, none)), [], "rows without a time");
        let remove = r#"{"remove":{"path":"a","dataChange":true,"extendedFileMetadata":true,"partitionValues":{"date":"2026-11-20"}}}"#;
        assert_eq!(of(remove), [day]);
        let unknown = r#"{"remove":{"path":"a","dataChange":true}}"#;
        assert_eq!(of(unknown), [(i64::MIN, i64::MAX)]);
    }
}
