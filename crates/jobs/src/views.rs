//! The stored rows near a window → the views that users query: `attempts`, `operations`, `rollup`.
//!
//! The files of `sql/views/` stand on one another in the order of [`VIEWS`]. What an attempt is
//! in its operation depends on others near it in time, so a question about a window looks a
//! little beyond it, and no further: `attempts_near`. Hours that the table `rollup` tells of need no
//! attempts at all.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use chrono::Duration;
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::ViewTable;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::cast;
use datafusion::prelude::{Expr, col, lit};
use retrytoll_lake::encode::attempts_schema;

use crate::ask;
use crate::error::{JobError, Place};
use crate::hours::{Hours, Span, any_holds, around};
use crate::meta::Meta;
use crate::place::placed;
use crate::rollup::{ROLLUP, Rollup};
use crate::window::{Window, duration};

/// Which requests `placed` looks at.
pub const TO_PLACE: &str = include_str!("../../../sql/views/to_place.sql");

/// Each view of attempts and its query, whatever it stands on first.
const VIEWS: [(&str, &str); 3] = [
    ("placed", include_str!("../../../sql/views/placed.sql")),
    ("attempts", include_str!("../../../sql/views/attempts.sql")),
    (
        "operations",
        include_str!("../../../sql/views/operations.sql"),
    ),
];
/// The open hours of `rollup`.
const HOURS: &str = include_str!("../../../sql/views/hours.sql");
/// Rows of `attempts` that the open hours are made of.
const OPEN: &str = "attempts_open";

/// An operation lasts two hours at most, and its last attempt may run on: MONEY.md, section 2,
/// with a chain of resends before it.
pub const NEAR: Duration = Duration::hours(4);

/// What a question is about.
#[derive(Clone, Debug)]
pub struct About {
    /// `None`: everything.
    window: Option<Window>,
    /// The window, and what its query looks at before it.
    reach: Span,
    /// Whether closed hours may come from the table `rollup`.
    reads_table: bool,
}

impl About {
    /// Everything there is.
    pub const EVERYTHING: Self = Self {
        window: None,
        reach: Span::ALL,
        reads_table: true,
    };

    /// A job about `window`.
    pub fn window(window: &Window, meta: &Meta) -> Self {
        let before = meta.lookback.as_deref().and_then(duration);
        let since = window.since.checked_sub_signed(before.unwrap_or_default());
        let Some(since) = since else {
            return Self::EVERYTHING;
        };
        Self {
            window: Some(window.clone()),
            reach: Span::of(since, window.until),
            reads_table: true,
        }
    }

    /// The same, asked of attempts alone.
    #[must_use]
    pub fn of_attempts(self) -> Self {
        Self {
            reads_table: false,
            ..self
        }
    }

    /// Which hours of it are read from the table `rollup`.
    pub fn hours(&self, rollup: Option<&Rollup>) -> Hours {
        let rollup = rollup.filter(|_| self.reads_table);
        Hours::of(self.reach, self.window.as_ref(), rollup)
    }

    /// The stored rows that a question about it may need which reads these views.
    pub fn near(&self, views: Views, hours: &Hours) -> Vec<Span> {
        match views.attempts {
            true => around(&[self.reach]),
            false => around(&hours.open),
        }
    }
}

/// Which views a question reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// Those of attempts, one by one.
    pub attempts: bool,
    /// The view `rollup`.
    pub rollup: bool,
}

impl Views {
    /// Of a question about the tables and views of these names.
    pub fn among<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        names.fold(Self::default(), |all, name| Self {
            attempts: all.attempts || VIEWS.iter().any(|(view, _)| *view == name),
            rollup: all.rollup || name == ROLLUP,
        })
    }
}

/// The tables that the views are of.
pub struct Tables<'a> {
    /// The table `attempts` as stored.
    pub attempts: Arc<dyn TableProvider>,
    pub rollup: Option<&'a Rollup>,
    /// The completeness mark, microseconds since 1970; `None` where all is complete.
    pub mark_us: Option<i64>,
}

/// Registers the views for a question that reads these. `near` are the stored rows that they are made
/// of, `hours` those of `rollup`.
///
/// # Errors
/// [`JobError::Query`] for a lake whose columns are not those of this release.
pub async fn register(
    context: &SessionContext,
    tables: &Tables<'_>,
    reads: Views,
    near: &[Span],
    hours: &Hours,
) -> Result<(), JobError> {
    let place = Place::file("sql/views/attempts.sql");
    let failed = |error: DataFusionError| JobError::query(&place, error);
    let raw = &tables.attempts;
    let columns = with_every_column(raw).map_err(failed)?;
    context
        .register_table("attempts_raw", Arc::clone(raw))
        .map_err(failed)?;
    let rows = context.table("attempts_raw").await.map_err(failed)?;
    let rows = match near {
        [Span::ALL] => Ok(rows),
        spans => rows.filter(any_holds(spans, &col("ts"))),
    };
    let rows = rows.and_then(|it| it.select(columns)).map_err(failed)?;
    add(context, "attempts_near", rows, None).map_err(failed)?;
    for (name, sql) in VIEWS {
        let place = Place::file(format!("sql/views/{name}.sql"));
        let failed = |error: DataFusionError| JobError::query(&place, error);
        let statement = ask::parse(&place, sql)?;
        let plan = context.state().statement_to_plan(statement).await;
        let plan = plan.and_then(|plan| match name {
            "placed" => placed(plan, tables.mark_us),
            _ => Ok(plan),
        });
        let rows = plan.map(|plan| DataFrame::new(context.state(), plan));
        rows.and_then(|rows| add(context, name, rows, Some(sql)))
            .map_err(failed)?;
    }
    match reads {
        // Planning it takes longer than many a question.
        Views {
            attempts: true,
            rollup: false,
        } => Ok(()),
        _ => register_rollup(context, tables.rollup, hours).await,
    }
}

fn add(
    context: &SessionContext,
    name: &str,
    rows: DataFrame,
    sql: Option<&str>,
) -> Result<(), DataFusionError> {
    let view = ViewTable::new(rows.into_parts().1, sql.map(str::to_owned));
    context.register_table(name, Arc::new(view)).map(drop)
}

/// The view `rollup`: closed hours as the table has them, open ones made of the attempts.
async fn register_rollup(
    context: &SessionContext,
    rollup: Option<&Rollup>,
    hours: &Hours,
) -> Result<(), JobError> {
    let place = Place::file("sql/views/hours.sql");
    let failed = |error: DataFusionError| JobError::query(&place, error);
    let here = any_holds(&hours.open, &col("ts"));
    let ends_here = any_holds(&hours.open, &col("op_ended_at")).and(col("op_place").eq(lit(0_i64)));
    let rows = context.table("attempts").await.map_err(failed)?;
    let rows = rows
        .filter(here.clone().or(ends_here.clone()))
        .and_then(|it| it.with_column("here", here))
        .and_then(|it| it.with_column("ends_here", ends_here))
        .map_err(failed)?;
    add(context, OPEN, rows, None).map_err(failed)?;
    let mut statement = ask::parse(&place, HOURS)?;
    ask::bind(
        &place,
        &mut statement,
        &ask::hour_values(hours.cut, hours.step_us),
    )?;
    let open = context.state().statement_to_plan(statement).await;
    let open = DataFrame::new(context.state(), open.map_err(failed)?);
    let names = open.schema().fields().iter().map(|it| it.name().clone());
    let names = names.collect::<Vec<_>>();
    let rows = match rollup {
        Some(rollup) if !hours.closed.is_empty() => {
            let stored = context.read_table(Arc::clone(&rollup.provider));
            let fields = rollup.provider.schema();
            let columns = names.iter().map(|name| {
                let field = fields.fields().iter().find(|it| it.name() == name);
                field.map_or_else(|| lit(ScalarValue::Null).alias(name), own)
            });
            let columns = columns.collect::<Vec<_>>();
            let closed = any_holds(&hours.closed, &col("hour"));
            let stored = stored
                .and_then(|it| it.filter(closed))
                .and_then(|it| it.select(columns));
            stored.and_then(|stored| open.union(stored))
        }
        _ => Ok(open),
    };
    rows.and_then(|rows| add(context, ROLLUP, rows, None))
        .map_err(failed)
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
