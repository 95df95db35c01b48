//! Rows sorted by request → the same rows, each with its place, one request after the other.
//!
//! What is held beside a batch is the request that its end cut through.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt as _, stream};
use retrytoll_core::operation::place;

use super::columns::{Columns, Places};

/// Every row with its place, batch by batch.
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
        let columns = Columns::of(&rows)?;
        let mut ends = columns.request_ends();
        ends.pop();
        let whole = ends.last().copied().unwrap_or(0);
        let out = self.place(&rows.slice(0, whole), &columns, &ends)?;
        self.cut = Some(rows.slice(whole, rows.num_rows() - whole));
        Ok(out)
    }

    fn end(&mut self) -> Result<RecordBatch> {
        let Some(rows) = self.cut.take() else {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        };
        let columns = Columns::of(&rows)?;
        self.place(&rows, &columns, &[rows.num_rows()])
    }

    /// `rows`, whose requests end before `ends` (exclusive), one after the other.
    fn place(&self, rows: &RecordBatch, columns: &Columns, ends: &[usize]) -> Result<RecordBatch> {
        let mut out = Places::default();
        let mut start = 0;
        for &end in ends {
            let attempts = (start..end)
                .map(|row| columns.attempt(row))
                .collect::<Vec<_>>();
            out.add(&attempts, &place(&attempts, self.mark_us));
            start = end;
        }
        out.beside(rows, &self.schema)
    }
}
