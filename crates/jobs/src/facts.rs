//! The counts that stand beside every report.

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use serde::Serialize;

pub(crate) const SQL: &str = include_str!("../../../sql/facts.sql");

/// What a window holds, all counted in attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// All of them.
    pub attempts: i64,
    /// Of the layer whose money counts; the others are context.
    pub counted: i64,
    /// Counted, without a number: neither first attempts nor retries.
    pub unnumbered: i64,
    /// Counted, without a price: their cost is in no sum.
    pub unpriced: i64,
    /// Counted answers that were not cached.
    pub answers: i64,
    /// Of those, with the provider's usage.
    pub answers_with_usage: i64,
    /// In the whole lake, without any usable time: in no window.
    pub timeless: i64,
}

impl Facts {
    pub(crate) fn of(batches: &[RecordBatch]) -> Self {
        let count = |name: &str| {
            let column = batches
                .iter()
                .find(|it| it.num_rows() > 0)?
                .column_by_name(name)?;
            Some(column.as_primitive_opt::<Int64Type>()?.value(0))
        };
        let count = |name| count(name).unwrap_or(0);
        Self {
            attempts: count("attempts"),
            counted: count("counted"),
            unnumbered: count("unnumbered"),
            unpriced: count("unpriced"),
            answers: count("answers"),
            answers_with_usage: count("answers_with_usage"),
            timeless: count("timeless"),
        }
    }

    /// Tenths of a percent of answers with usage, rounded down; `None` without an answer.
    #[must_use]
    pub fn coverage_permille(&self) -> Option<i64> {
        (self.answers > 0).then(|| self.answers_with_usage * 1000 / self.answers)
    }
}
