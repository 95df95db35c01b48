//! A lake → the first and the last instant of event time in it, and when there were events.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use chrono::{DateTime, Utc};
use retrytoll_jobs::{Limits, Session, Window, Zone};
use retrytoll_lake::{Position, SourcePartition};

use super::beside::ask;
use crate::lake;

/// A minute, ms.
pub const MINUTE_MS: i64 = 60_000;

/// Both inclusive, ms; `None` where no event has a time.
pub async fn of(root: &Path, limits: &Limits) -> anyhow::Result<Option<(i64, i64)>> {
    let session = Session::open(&lake::url_of(root)?, None, limits.clone()).await?;
    // The whole lake is asked about.
    let window = Window {
        since: DateTime::UNIX_EPOCH,
        until: DateTime::UNIX_EPOCH,
        zone: Zone::utc(),
    };
    let sql = "SELECT min(ts) AS first, max(ts) AS last FROM attempts_raw";
    let batches = ask(&session, sql, &window).await?;
    let ms = |name: &str| {
        let batch = batches.iter().find(|it| it.num_rows() > 0)?;
        let times = batch.column_by_name(name)?;
        let us = times.as_primitive_opt::<TimestampMicrosecondType>()?;
        us.is_valid(0).then(|| us.value(0).div_euclid(1_000))
    };
    Ok(ms("first").zip(ms("last")))
}

/// The last event, ms, where every source was read to its end. `None` where no event has a time.
pub async fn last_ms(
    root: &Path,
    limits: &Limits,
    positions: &BTreeMap<SourcePartition, Position>,
) -> anyhow::Result<Option<i64>> {
    // A clock follows no time that lies in the future.
    let clock_ms = positions.values().map(|it| it.clock_ms).max();
    let clock_ms = clock_ms.filter(|&ms| ms != i64::MIN);
    let found = of(root, limits).await?;
    Ok(found
        .zip(clock_ms)
        .map(|((_, last), clock)| last.min(clock)))
}

/// Minutes since 1970 in which there is an event, of those from `since` to `until`, each with how
/// many attempts may be retries: those that are not complete in themselves.
pub async fn minutes(
    session: &Session,
    since: DateTime<Utc>,
    until: DateTime<Utc>,
) -> anyhow::Result<BTreeMap<i64, i64>> {
    let window = Window {
        since,
        until,
        zone: Zone::utc(),
    };
    let sql = "SELECT date_trunc('minute', ts) AS minute, \
               count(*) FILTER (WHERE lone IS NOT TRUE) AS attempts \
               FROM attempts_raw WHERE ts >= $since AND ts < $until GROUP BY 1";
    let mut minutes = BTreeMap::new();
    for batch in ask(session, sql, &window).await? {
        let times = batch.column_by_name("minute");
        let times = times.and_then(|it| it.as_primitive_opt::<TimestampMicrosecondType>());
        let counts = batch.column_by_name("attempts");
        let counts = counts.and_then(|it| it.as_primitive_opt::<Int64Type>());
        let (Some(times), Some(counts)) = (times, counts) else {
            continue;
        };
        let us = times.values().iter();
        let whole = us.map(|us| us.div_euclid(MINUTE_MS * 1_000));
        minutes.extend(whole.zip(counts.values().iter().copied()));
    }
    Ok(minutes)
}
