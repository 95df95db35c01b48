//! The table `rollup` at its newest version → which hours it tells the truth about.
//!
//! A row is an hour and its dimensions, with what the attempts and operations of that hour add up
//! to (`sql/views/hours.sql`), made anew ([`due`]) when it is known and when it was touched. The table is a reader of `attempts`: its position there, committed as
//! those of a topic are, says up to which version it was made of it (`next`, exclusive) and which hours
//! are in it (`clock`: all before). Hours that later commits touched are read from the attempts
//! until they are made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use chrono::{Duration, NaiveDate, NaiveTime};
use datafusion::catalog::TableProvider;
use deltalake::DeltaTable;
use retrytoll_lake::position::{Mark, Position, SourcePartition};
use retrytoll_lake::touched::touched;
use url::Url;

use crate::error::JobError;
use crate::hours::{HOUR_US, NEAR_US, Span, floor_hour};
use crate::open;

/// The table's name and folder.
pub const ROLLUP: &str = "rollup";
/// An hour is put in the table when nothing near it can come any more, and so long after: attempts are
/// told a little after they ended, and each that came later would touch the hour again.
pub const SETTLED_FOR: Duration = Duration::minutes(10);
/// The query that makes an hour's rows.
pub(crate) const FOLD: &str = include_str!("../../../sql/rollup.sql");

/// More commits than these are not looked through for a question: it is asked of the attempts.
const VERSIONS_BEHIND_MAX: u64 = 20_000;

/// What the table's position is of.
#[must_use]
pub fn reads() -> SourcePartition {
    SourcePartition::new("attempts", 0)
}

/// The hours whose figures rows of these times can change; the ends as whole hours.
fn hours_of((low_us, high_us): (i64, i64)) -> Span {
    let from = floor_hour(low_us.saturating_sub(NEAR_US));
    let until = floor_hour(high_us.saturating_add(NEAR_US));
    Span {
        from,
        until: until.saturating_add(HOUR_US),
    }
}

/// The table, as far as it is true of a version of `attempts`.
pub struct Rollup {
    pub(crate) provider: Arc<dyn TableProvider>,
    /// The hours before this are in it, microseconds since 1970.
    pub through_us: i64,
    /// The hours in it that were touched since.
    pub(crate) touched: Vec<Span>,
}

/// Up to when hours are closed at a completeness mark, microseconds since 1970: a whole hour. Where
/// every source was read to its end, up to the hour of `now_ms`.
#[must_use]
pub fn closed_through(mark: Mark, now_ms: i64) -> Option<i64> {
    let settled_us = match mark {
        Mark::Nothing => return None,
        Mark::Everything => now_ms.saturating_mul(1_000),
        Mark::Before(ms) => ms
            .saturating_mul(1_000)
            .saturating_sub(NEAR_US)
            .saturating_sub(SETTLED_FOR.num_microseconds().unwrap_or(0)),
    };
    Some(floor_hour(settled_us))
}

/// The hours of a day of UTC that are to be made, where the table as it is (`None`: nothing of it
/// counts) is to tell of all before `through_us`.
#[must_use]
pub fn due(table: Option<&Rollup>, date: NaiveDate, through_us: i64) -> Vec<Span> {
    let from = date.and_time(NaiveTime::MIN).and_utc().timestamp_micros();
    let day = Span {
        from,
        until: (from + 24 * HOUR_US).min(through_us),
    };
    let Some(table) = table else {
        return day.without(&[]);
    };
    let known = Span {
        from: i64::MIN,
        until: table.through_us,
    };
    day.without(&known.without(&table.touched))
}

impl Rollup {
    /// The table below `lake`; `None` where there is none, or it is not made of `attempts` as it is
    /// at its version, or too long ago. One that can't be read is told of, and not read: all that it
    /// says the attempts say too.
    pub async fn open(lake: &Url, attempts: &DeltaTable) -> Option<Self> {
        Self::try_open(lake, attempts)
            .await
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "the rollup is not read, questions take longer");
                None
            })
    }

    async fn try_open(lake: &Url, attempts: &DeltaTable) -> Result<Option<Self>, JobError> {
        let Some(table) = open::optional(lake, ROLLUP).await? else {
            return Ok(None);
        };
        let Some(position) = position(&table).await? else {
            return Ok(None);
        };
        let version = attempts.version().unwrap_or_default();
        let Some(made_of) = u64::try_from(position.next - 1).ok() else {
            return Ok(None);
        };
        if made_of > version || version - made_of > VERSIONS_BEHIND_MAX {
            return Ok(None);
        }
        let log = attempts.log_store();
        let times = match touched(log.as_ref(), made_of, version).await {
            Ok(Some(times)) => times,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::warn!(%error, "the rollup is not read: it is not known what it lacks");
                return Ok(None);
            }
        };
        Ok(Some(Self {
            provider: open::provider(&table).await?,
            through_us: position.clock_ms.saturating_mul(1_000),
            touched: times.into_iter().map(hours_of).collect(),
        }))
    }
}

async fn position(table: &DeltaTable) -> Result<Option<Position>, JobError> {
    let failed = |source| JobError::Delta {
        what: "read the rollup's position".into(),
        source: Box::new(source),
    };
    let log = table.log_store();
    let state = table.snapshot().map_err(failed)?;
    let mut txns = BTreeMap::new();
    for field in ["next", "clock"] {
        let app_id = reads().app_id(field);
        let value = state.transaction_version(log.as_ref(), &app_id).await;
        if let Some(value) = value.map_err(failed)? {
            txns.insert(app_id, value);
        }
    }
    let position = Position::of(&txns, &reads());
    Ok(position.filter(|it| it.clock_ms != i64::MIN))
}

/// The table's columns, the partition column `date` last.
#[must_use]
pub fn schema() -> SchemaRef {
    let field = |name: &str, data_type: &DataType| Field::new(name, data_type.clone(), true);
    let hour = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![field("hour", &hour)];
    for name in [
        "provider",
        "model",
        "service",
        "tenant",
        "team",
        "scenario",
        "error_class",
    ] {
        fields.push(field(name, &DataType::Utf8));
    }
    fields.push(field("retry", &DataType::Int64));
    fields.push(field("is_hedge", &DataType::Boolean));
    fields.push(field("role", &DataType::Utf8));
    fields.push(field("redundant", &DataType::Boolean));
    fields.push(field("billing", &DataType::Utf8));
    fields.push(field("stream", &DataType::Boolean));
    fields.push(field("counted", &DataType::Boolean));
    for name in [
        "attempts",
        "cache_hits",
        "opening",
        "successes",
        "coverable",
        "covered",
        "unpriced",
        "tokens_unknown",
        "cost_unknown",
        "priced_unknown",
        "no_estimate",
        "input_tokens",
        "cached_input_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "received_output_tokens",
    ] {
        fields.push(field(name, &DataType::Int64));
    }
    for name in ["cost_confirmed", "cost_expected", "cost_ceiling"] {
        fields.push(field(name, &DataType::Decimal128(38, 12)));
    }
    for name in [
        "operations",
        "operations_retried",
        "operations_open",
        "repeated_confirmed",
        "repeated_likely",
        "folded",
        "attempts_version",
    ] {
        fields.push(field(name, &DataType::Int64));
    }
    fields.push(field("date", &DataType::Date32));
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use datafusion::datasource::empty::EmptyTable;

    use super::*;

    const H: i64 = HOUR_US;

    fn table(through_us: i64, touched: Vec<Span>) -> Rollup {
        Rollup {
            provider: Arc::new(EmptyTable::new(schema())),
            through_us,
            touched,
        }
    }

    fn due_on(day: i64, table: Option<&Rollup>, through_us: i64) -> Vec<(i64, i64)> {
        let date = NaiveDate::from_ymd_opt(1970, 1, 1 + u32::try_from(day).unwrap()).unwrap();
        let due = due(table, date, through_us);
        due.iter().map(|it| (it.from / H, it.until / H)).collect()
    }

    #[test]
    fn hours_close_when_their_money_is_final_and_told() {
        let minute_ms = 60_000;
        let through = |mark| closed_through(mark, 1_000 * 60 * minute_ms).map(|us| us / H);
        // What is near ends within four hours, and is told ten minutes late at most.
        assert_eq!(through(Mark::Before(310 * minute_ms)), Some(1));
        assert_eq!(through(Mark::Before(310 * minute_ms - 1)), Some(0));
        assert_eq!(through(Mark::Nothing), None);
        assert_eq!(through(Mark::Everything), Some(1_000));
    }

    #[test]
    fn hours_are_made_when_they_close_and_when_they_were_touched() {
        assert_eq!(due_on(0, None, 30 * H), [(0, 24)]);
        assert_eq!(due_on(1, None, 30 * H), [(24, 30)]);
        assert_eq!(due_on(2, None, 30 * H), []);
        let upto_26 = table(26 * H, vec![]);
        assert_eq!(due_on(0, Some(&upto_26), 30 * H), []);
        assert_eq!(due_on(1, Some(&upto_26), 30 * H), [(26, 30)]);
        // A row that ended at 09:30 reaches four hours back and four ahead.
        let late = hours_of((19 * H / 2, 19 * H / 2));
        assert_eq!((late.from / H, late.until / H), (5, 14));
        let touched = table(26 * H, vec![late]);
        assert_eq!(due_on(0, Some(&touched), 30 * H), [(5, 14)]);
        // What was touched and is not closed is no more than due.
        let beyond = hours_of((31 * H, 31 * H + 1));
        let touched = table(26 * H, vec![beyond]);
        assert_eq!(due_on(1, Some(&touched), 30 * H), [(26, 30)]);
        assert_eq!(
            due_on(0, Some(&table(26 * H, vec![Span::ALL])), 30 * H),
            [(0, 24)]
        );
    }
}
