//! Rows sorted by request → the places of one request after the other.
//!
//! What is held beside a batch is the request that its end cut through.

use arrow::array::{Array as _, AsArray as _, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt as _, stream};
use retrytoll_core::operation::place;

use super::columns::{Columns, Places};

/// The places of every row, batch by batch.
pub fn placed(
    rows: SendableRecordBatchStream,
    mark_us: Option<i64>,
    schema: SchemaRef,
) -> impl Stream<Item = Result<RecordBatch>> {
    let requests = Requests {
        mark_us,
        schema,
        cut: None,
    };
    stream::unfold((rows, Some(requests)), async |(mut rows, requests)| {
        let mut requests = requests?;
        loop {
            let (out, left) = match rows.next().await {
                Some(Ok(batch)) => (requests.take(&batch), Some(requests)),
                Some(Err(error)) => (Err(error), None),
                None => (requests.end(), None),
            };
            match (out, left) {
                // A request longer than the batch: nothing is whole yet.
                (Ok(batch), Some(left)) if batch.num_rows() == 0 => requests = left,
                (out, left) => return Some((out, (rows, left))),
            }
        }
    })
}

struct Requests {
    mark_us: Option<i64>,
    schema: SchemaRef,
    /// Rows of the request that the last batch ended in.
    cut: Option<RecordBatch>,
}

impl Requests {
    fn take(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = match self.cut.take() {
            Some(cut) => concat_batches(&batch.schema(), [&cut, batch])?,
            None => batch.clone(),
        };
        let ends = ends(&rows);
        let whole = ends.iter().rev().nth(1).copied().unwrap_or(0);
        let ends = &ends[..ends.len().saturating_sub(1)];
        let out = self.places(&rows, ends)?;
        self.cut = Some(rows.slice(whole, rows.num_rows() - whole));
        Ok(out)
    }

    fn end(&mut self) -> Result<RecordBatch> {
        match self.cut.take() {
            Some(rows) => self.places(&rows, &[rows.num_rows()]),
            None => Places::default().finish(&self.schema),
        }
    }

    /// The places of requests that end before `ends` (exclusive), one after the other.
    fn places(&self, rows: &RecordBatch, ends: &[usize]) -> Result<RecordBatch> {
        let columns = Columns::of(rows)?;
        let mut out = Places::default();
        let mut start = 0;
        for &end in ends {
            let attempts = (start..end)
                .map(|row| columns.attempt(row))
                .collect::<Vec<_>>();
            out.add(&attempts, &place(&attempts, self.mark_us));
            start = end;
        }
        out.finish(&self.schema)
    }
}

/// Where each request ends, exclusive.
fn ends(rows: &RecordBatch) -> Vec<usize> {
    let of = |name: &str| {
        rows.column_by_name(name)
            .and_then(|it| it.as_string_opt::<i32>())
    };
    let (Some(services), Some(requests)) = (of("service"), of("request_id")) else {
        return vec![rows.num_rows()];
    };
    fn value(column: &StringArray, row: usize) -> Option<&str> {
        column.is_valid(row).then(|| column.value(row))
    }
    let same = |a: usize, b: usize| {
        requests.value(a) == requests.value(b) && value(services, a) == value(services, b)
    };
    let len = rows.num_rows();
    (1..=len)
        .filter(|&row| row == len || !same(row - 1, row))
        .collect()
}
