//! The table `profile` → `profile_of(figure, needed, date, provider, model, service, max_tokens)`:
//! how many tokens are usual for an attempt of that day.
//!
//! The newest profile not after the day tells, if it is not too old
//! ([`retrytoll_core::profile::AGE_DAYS_MAX`]): its level 1, else its level 2, else nobody. What a
//! question may need is loaded before it runs, into memory that is bounded.

mod function;
mod loaded;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::datatypes::Date32Type;
use chrono::{DateTime, NaiveDate};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::{col, lit};
use futures::StreamExt as _;
use retrytoll_core::profile::AGE_DAYS_MAX;

use self::function::ProfileOf;
pub use self::function::power_of_two_function;
use self::loaded::{Loaded, ROW_BYTES};
use crate::hours::Span;

/// The table's name.
pub const PROFILE: &str = "profile";
/// How many rows a question holds at most, whatever its memory.
const ROWS_MAX: usize = 200_000;
/// Which part of a session's memory they may take.
const PART_OF_MEMORY: usize = 4;

/// The profiles that a question's views may look at, once they were loaded.
#[derive(Clone, Default)]
pub struct Profiles(Arc<OnceLock<Arc<Loaded>>>);

impl Profiles {
    /// The function `profile_of`; it is asked, and a plan with it optimized, once
    /// [`Profiles::load`] is done.
    pub fn profile_of(&self) -> ScalarUDF {
        ScalarUDF::new_from_impl(ProfileOf::new(Arc::clone(&self.0)))
    }

    /// Loads what attempts of the times `near`, in order, may look at, if there is such a table; `kept` is what the
    /// session's former questions loaded.
    ///
    /// # Errors
    /// The table's, and where `pool` has not as much left.
    pub async fn load(
        &self,
        context: &SessionContext,
        near: &[Span],
        pool: &Arc<dyn MemoryPool>,
        memory_bytes: usize,
        kept: &Kept,
    ) -> Result<()> {
        if !context.table_exist(PROFILE)? {
            return Ok(());
        }
        let (Some(first), Some(last)) = (near.first(), near.last()) else {
            return Ok(());
        };
        let span = days_of(first.from, last.until);
        let loaded = match kept.of(span) {
            Some(loaded) => loaded,
            None => {
                let rows_max = (memory_bytes / PART_OF_MEMORY / ROW_BYTES).min(ROWS_MAX);
                let Some(loaded) = load_at_most(context, span, pool, rows_max, kept).await? else {
                    return Ok(());
                };
                loaded
            }
        };
        // Nobody else fills it: a question does so once, before it runs.
        let _ = self.0.set(loaded);
        Ok(())
    }
}

/// The first and the last day of profiles; `None` is all.
type Days = Option<(NaiveDate, NaiveDate)>;

/// The days whose profiles attempts in a span of time may look at; microseconds since 1970.
fn days_of(from_us: i64, until_us: i64) -> Days {
    let date = |us| DateTime::from_timestamp_micros(us).map(|it| it.date_naive());
    let age = chrono::Days::new(u64::from(AGE_DAYS_MAX.unsigned_abs()) - 1);
    let (first, last) = (date(from_us)?, date(until_us)?);
    Some((first.checked_sub_days(age)?, last))
}

/// What a session loaded last, all of a span: its next question mostly needs the same.
#[derive(Default)]
pub struct Kept(Mutex<Option<(Days, Arc<Loaded>)>>);

impl Kept {
    fn of(&self, span: Days) -> Option<Arc<Loaded>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, loaded) = kept.as_ref()?;
        let covers = match (known, span) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((first, last)), Some((from, to))) => *first <= from && to <= *last,
        };
        covers.then(|| Arc::clone(loaded))
    }

    fn keep(&self, span: Days, loaded: &Arc<Loaded>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((span, Arc::clone(loaded)));
    }
}

/// The rows of a span. Where they are more than `rows_max`, it is told, and the level 2 of all kinds
/// taken alone; where that is too much as well, none.
async fn load_at_most(
    context: &SessionContext,
    span: Days,
    pool: &Arc<dyn MemoryPool>,
    rows_max: usize,
    kept: &Kept,
) -> Result<Option<Arc<Loaded>>> {
    if let Some(loaded) = load(context, span, 0, pool, rows_max).await? {
        kept.keep(span, &loaded);
        return Ok(Some(loaded));
    }
    let whole = load(context, span, 2, pool, rows_max).await?;
    tracing::warn!(
        rows_max,
        left = if whole.is_some() {
            "those of provider and model"
        } else {
            "none"
        },
        "the profiles of this span are more than a question may hold, and estimates are coarser: \
         ask about a shorter span, or raise limits.sql"
    );
    Ok(whole)
}

/// The rows from `least_level` on; `None` where they are more than `rows_max`.
async fn load(
    context: &SessionContext,
    span: Days,
    least_level: i32,
    pool: &Arc<dyn MemoryPool>,
    rows_max: usize,
) -> Result<Option<Arc<Loaded>>> {
    let mut rows = context.table(PROFILE).await?;
    if let Some((first, last)) = span {
        let day = |date| lit(ScalarValue::Date32(Some(Date32Type::from_naive_date(date))));
        rows = rows
            .filter(col("date").gt_eq(day(first)))?
            .filter(col("date").lt_eq(day(last)))?;
    }
    // The row of level 0 says that its day was looked at.
    if least_level > 0 {
        let level = col("level");
        rows = rows.filter(level.clone().gt_eq(lit(least_level)).or(level.eq(lit(0))))?;
    }
    let mut loaded = Loaded::new(pool);
    let mut stream = rows.execute_stream().await?;
    let mut count = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        count += batch.num_rows();
        if count > rows_max {
            return Ok(None);
        }
        loaded.take(&batch)?;
    }
    loaded.sort();
    Ok(Some(Arc::new(loaded)))
}
