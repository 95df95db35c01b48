//! The stored rows near a window → the views that users query: `attempts`, `operations`.
//!
//! The files of `sql/views/` stand on one another in the order of [`VIEWS`]. What an attempt is
//! in its operation depends on others near it in time, so a question about a window looks a
//! little beyond it, and no further: `attempts_near`.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use chrono::{DateTime, Duration, Utc};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::ViewTable;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::cast;
use datafusion::prelude::{Expr, col, lit};
use retrytoll_lake::encode::attempts_schema;

use crate::ask;
use crate::error::{JobError, Place};
use crate::meta::Meta;
use crate::place::placed;
use crate::window::{Window, duration};

/// Which requests `placed` looks at.
pub const TO_PLACE: &str = include_str!("../../../sql/views/to_place.sql");

/// Each view and its query, whatever it stands on first.
const VIEWS: [(&str, &str); 3] = [
    ("placed", include_str!("../../../sql/views/placed.sql")),
    ("attempts", include_str!("../../../sql/views/attempts.sql")),
    (
        "operations",
        include_str!("../../../sql/views/operations.sql"),
    ),
];

/// An operation lasts two hours at most, and its last attempt may run on: MONEY.md, section 2,
/// with a chain of resends before it.
const NEAR: Duration = Duration::hours(4);

/// Whether a view has this name.
#[must_use]
pub fn is_view(name: &str) -> bool {
    VIEWS.iter().any(|(view, _)| *view == name)
}

/// Which stored rows a question may need; half-open, none is all.
pub type Near = Option<(DateTime<Utc>, DateTime<Utc>)>;

/// What a job about `window` may need.
pub fn near(window: &Window, meta: &Meta) -> Near {
    let before = meta.lookback.as_deref().and_then(duration).unwrap_or(NEAR);
    let since = window.since.checked_sub_signed(before.max(NEAR))?;
    Some((since, window.until.checked_add_signed(NEAR)?))
}

/// Registers the views over `raw`, the table `attempts` as stored. `mark_us` is the completeness
/// mark, in microseconds since 1970; `None` where all is complete.
///
/// # Errors
/// [`JobError::Query`] for a lake whose columns are not those of this release.
pub async fn register(
    context: &SessionContext,
    raw: Arc<dyn TableProvider>,
    near: Near,
    mark_us: Option<i64>,
) -> Result<(), JobError> {
    let place = Place::file("sql/views/attempts.sql");
    let failed = |error: DataFusionError| JobError::query(&place, error);
    let columns = with_every_column(&raw).map_err(failed)?;
    context
        .register_table("attempts_raw", Arc::clone(&raw))
        .map_err(failed)?;
    let rows = context.table("attempts_raw").await.map_err(failed)?;
    let rows = match near {
        Some((since, until)) => rows
            .filter(col("ts").gt_eq(lit(instant(since))))
            .and_then(|it| it.filter(col("ts").lt(lit(instant(until))))),
        None => Ok(rows),
    };
    let rows = rows.and_then(|it| it.select(columns)).map_err(failed)?;
    let rows = ViewTable::new(rows.into_parts().1, None);
    context
        .register_table("attempts_near", Arc::new(rows))
        .map_err(failed)?;
    for (name, sql) in VIEWS {
        let place = Place::file(format!("sql/views/{name}.sql"));
        let failed = |error: DataFusionError| JobError::query(&place, error);
        let statement = ask::parse(&place, sql)?;
        let plan = context.state().statement_to_plan(statement).await;
        let plan = plan.and_then(|plan| match name {
            "placed" => placed(plan, mark_us),
            _ => Ok(plan),
        });
        let view = plan.map(|plan| ViewTable::new(plan, Some(sql.to_owned())));
        view.and_then(|view| context.register_table(name, Arc::new(view)))
            .map_err(failed)?;
    }
    Ok(())
}

/// The table's columns, and those of this release that it does not have yet: columns are only
/// ever added, and what an older writer did not know is null.
fn with_every_column(raw: &Arc<dyn TableProvider>) -> Result<Vec<Expr>, DataFusionError> {
    let stored = raw.schema();
    let mut columns = stored.fields().iter().map(own).collect::<Vec<_>>();
    for field in attempts_schema().fields() {
        if stored.field_with_name(field.name()).is_err() {
            let null = ScalarValue::try_from(field.data_type())?;
            columns.push(lit(null).alias(field.name()));
        }
    }
    Ok(columns)
}

/// Text and bytes in arrays of their own: a view keeps all of the buffer alive that it looks into,
/// and a sort would count, and hold, the whole column for the few rows it is given.
fn own(field: &FieldRef) -> Expr {
    let column = col(format!("\"{}\"", field.name()));
    match field.data_type() {
        DataType::Utf8View => cast(column, DataType::Utf8).alias(field.name()),
        DataType::BinaryView => cast(column, DataType::Binary).alias(field.name()),
        _ => column,
    }
}

fn instant(time: DateTime<Utc>) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(time.timestamp_micros()), Some("UTC".into()))
}
