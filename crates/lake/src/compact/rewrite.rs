//! A job's files → new sorted files, not yet committed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{concat, interleave_record_batch, sort_to_indices};
use deltalake::logstore::parquet_reader::ParquetObjectReader;
use futures::TryStreamExt;
use parquet::arrow::async_reader::ParquetRecordBatchStream;

use super::{CompactLimits, Job, Layout, Level};
use crate::error::{Cause, LakeError};
use crate::file::DataFile;
use crate::shape::{BATCH_ROWS, Output, Shape};
use crate::writer::Writer;

/// Carries a job out, and checks that every row came through.
pub(super) async fn rewrite(
    writer: &Writer,
    job: &Job,
    layout: &Layout,
    limits: CompactLimits,
) -> Result<Vec<DataFile>, LakeError> {
    let failed = |e: Cause| {
        let date = job.date.as_deref().unwrap_or("none");
        LakeError::data(
            format!("compact {} files of date {date}", job.files.len()),
            e,
        )
    };
    let shape = Sorted::of(writer, layout).map_err(failed)?;
    let (rows, files) = match job.to {
        Level::Sorted | Level::Flushed => sort(&shape, job, limits).await,
        Level::Hour | Level::Day => merge(&shape, job).await,
    }
    .map_err(failed)?;
    let written: u64 = files.iter().map(|f| f.rows).sum();
    if written != rows {
        return Err(failed(
            format!("{rows} rows went in and {written} came out").into(),
        ));
    }
    Ok(files)
}

/// The table's shape, and its key.
struct Sorted {
    shape: Shape,
    key_at: usize,
}

impl Sorted {
    fn of(writer: &Writer, layout: &Layout) -> Result<Self, Cause> {
        let shape = Shape::of(writer, layout)?;
        let key_at = shape.key_at.ok_or("the table has no column to sort by")?;
        Ok(Self { shape, key_at })
    }

    fn begin(&self, job: &Job) -> Result<Output, Cause> {
        Output::begin(&self.shape, job.date.as_deref(), job.to)
    }
}

/// Reads the files one after the other and writes a sorted file whenever enough rows are there.
async fn sort(
    sorted: &Sorted,
    job: &Job,
    limits: CompactLimits,
) -> Result<(u64, Vec<DataFile>), Cause> {
    let (mut read, mut done) = (0, Vec::new());
    let (mut held, mut held_rows) = (Vec::new(), 0);
    for add in &job.files {
        let mut batches = sorted.shape.open(add).await?;
        while let Some(batch) = batches.try_next().await? {
            read += batch.num_rows() as u64;
            held_rows += batch.num_rows();
            held.push(sorted.shape.fit(&batch)?);
            if held_rows >= limits.sort_rows_max {
                done.push(write_sorted(sorted, job, &std::mem::take(&mut held)).await?);
                held_rows = 0;
            }
        }
    }
    if held_rows > 0 {
        done.push(write_sorted(sorted, job, &held).await?);
    }
    Ok((read, done))
}

/// Only the keys are put together: the rows are picked from where they are, a few at a time.
async fn write_sorted(sorted: &Sorted, job: &Job, held: &[RecordBatch]) -> Result<DataFile, Cause> {
    let keys: Vec<_> = held
        .iter()
        .map(|b| b.column(sorted.key_at).as_ref())
        .collect();
    let order = sort_to_indices(&concat(&keys)?, None, None)?;
    let row_count = |at: usize| (0..held[at].num_rows()).map(move |row| (at, row));
    let places: Vec<(usize, usize)> = (0..held.len()).flat_map(row_count).collect();
    let batches: Vec<_> = held.iter().collect();
    let mut out = sorted.begin(job)?;
    for rows in order.values().chunks(BATCH_ROWS) {
        let picked: Vec<_> = rows.iter().map(|row| places[*row as usize]).collect();
        out.write(&interleave_record_batch(&batches, &picked)?)
            .await?;
    }
    out.end().await
}

/// One sorted file being read.
struct Run {
    batches: ParquetRecordBatchStream<ParquetObjectReader>,
    batch: RecordBatch,
    keys: StringArray,
    row: usize,
}

impl Run {
    /// Goes to the next batch with rows; `false` at the end.
    async fn advance(&mut self, sorted: &Sorted) -> Result<bool, Cause> {
        while let Some(batch) = self.batches.try_next().await? {
            if batch.num_rows() > 0 {
                self.batch = sorted.shape.fit(&batch)?;
                self.keys = keys_of(self.batch.column(sorted.key_at));
                self.row = 0;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The key at hand; null is the least, as in the files.
    fn key(&self) -> Option<Box<str>> {
        self.keys
            .is_valid(self.row)
            .then(|| self.keys.value(self.row).into())
    }
}

fn keys_of(column: &ArrayRef) -> StringArray {
    column.as_string::<i32>().clone()
}

/// Merges sorted files into one, a batch of each in memory.
async fn merge(sorted: &Sorted, job: &Job) -> Result<(u64, Vec<DataFile>), Cause> {
    let mut runs = Vec::new();
    for add in &job.files {
        let batch = RecordBatch::new_empty(sorted.shape.schema.clone());
        let keys = keys_of(batch.column(sorted.key_at));
        let mut run = Run {
            batches: sorted.shape.open(add).await?,
            batch,
            keys,
            row: 0,
        };
        if run.advance(sorted).await? {
            runs.push(run);
        }
    }
    let heads = runs
        .iter()
        .enumerate()
        .map(|(at, run)| Reverse((run.key(), at)));
    let mut heads: BinaryHeap<_> = heads.collect();
    let mut out = sorted.begin(job)?;
    let (mut read, mut picked) = (0, Vec::with_capacity(BATCH_ROWS));
    while let Some(Reverse((_, at))) = heads.pop() {
        read += 1;
        picked.push((at, runs[at].row));
        runs[at].row += 1;
        let ended = runs[at].row == runs[at].batch.num_rows();
        // Rows are picked by their place in the batches at hand, so before one of those goes
        // they are written.
        if ended || picked.len() == BATCH_ROWS {
            let batches: Vec<_> = runs.iter().map(|run| &run.batch).collect();
            out.write(&interleave_record_batch(&batches, &picked)?)
                .await?;
            picked.clear();
        }
        if !ended || runs[at].advance(sorted).await? {
            heads.push(Reverse((runs[at].key(), at)));
        }
    }
    Ok((read, vec![out.end().await?]))
}
