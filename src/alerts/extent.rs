//! A lake → the first and the last instant of event time in it.

use std::path::Path;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::TimestampMicrosecondType;
use chrono::DateTime;
use retrytoll_jobs::{Limits, Session, Window, Zone};

use super::watch::ask;
use crate::lake;

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
