//! Encoded batches → one Parquet file per date, open until the flush ends.
//!
//! Few files are open at a time: when events are of many dates, the one that has waited longest
//! is finished and its date begins another. Nothing here is seen by a reader until it is committed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::errors::ParquetError;

use super::columns::Encoded;
use super::schema::{layout, writer_properties};
use crate::stats::RowStats;

/// The columns that queries and rebuilds select by: a flushed file has statistics of these alone.
const SELECTED_BY: &[&str] = &["ts", "source_offset"];

/// Bounds of the files of one flush.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// How many files may be open at a time.
    pub open_max: usize,
    /// Bytes that all open files may hold in memory; the largest ends its row group at it.
    pub memory_bytes_max: usize,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            open_max: 16,
            memory_bytes_max: 64 << 20,
        }
    }
}

/// A file that is written, and in no commit yet. The writer syncs it before the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Relative to the table.
    pub path: String,
    pub bytes: u64,
    pub rows: u64,
    /// Days since 1970; `None` is the partition of events without a usable time.
    pub day: Option<i32>,
    /// Delta's per-file statistics, as JSON text.
    pub stats: String,
}

struct Open {
    path: String,
    writer: ArrowWriter<File>,
    stats: RowStats,
    /// The number of the batch that came last.
    touched: u64,
}

/// The files of one flush.
pub struct FlushFiles {
    root: PathBuf,
    limits: FileLimits,
    open: BTreeMap<Option<i32>, Open>,
    done: Vec<WrittenFile>,
    batches: u64,
}

impl FlushFiles {
    /// Files go below `root`, the table's folder.
    #[must_use]
    pub fn new(root: &Path, limits: FileLimits) -> Self {
        Self {
            root: root.to_owned(),
            limits,
            open: BTreeMap::new(),
            done: Vec::new(),
            batches: 0,
        }
    }

    /// Appends the rows of `keep` (ascending) to the files of their dates.
    ///
    /// # Errors
    /// The disk is full or not writable; the flush can't be finished and is to be dropped.
    pub fn append(&mut self, encoded: &Encoded, keep: &[u32]) -> Result<(), ParquetError> {
        self.batches += 1;
        let mut by_day: BTreeMap<Option<i32>, Vec<u32>> = BTreeMap::new();
        for &row in keep {
            by_day
                .entry(encoded.days[row as usize])
                .or_default()
                .push(row);
        }
        for (day, rows) in by_day {
            let rows = if rows.len() == encoded.rows.num_rows() {
                encoded.rows.clone()
            } else {
                take_record_batch(&encoded.rows, &UInt32Array::from(rows))?
            };
            self.write(day, &rows)?;
        }
        self.bound_memory()
    }

    /// Bytes of Parquet written so far, those still in memory included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let open = self
            .open
            .values()
            .map(|it| it.writer.bytes_written() as u64 + it.writer.in_progress_size() as u64);
        self.done.iter().map(|it| it.bytes).sum::<u64>() + open.sum::<u64>()
    }

    /// Finishes and names all files; call it at the end of a flush.
    ///
    /// # Errors
    /// As for [`FlushFiles::append`].
    pub fn finish(mut self) -> Result<Vec<WrittenFile>, ParquetError> {
        while let Some((day, open)) = self.open.pop_first() {
            self.close(day, open)?;
        }
        Ok(std::mem::take(&mut self.done))
    }

    fn write(&mut self, day: Option<i32>, rows: &RecordBatch) -> Result<(), ParquetError> {
        if !self.open.contains_key(&day) {
            if self.open.len() >= self.limits.open_max {
                self.close_oldest()?;
            }
            let open = self.create(day)?;
            self.open.insert(day, open);
        }
        if let Some(open) = self.open.get_mut(&day) {
            open.touched = self.batches;
            open.stats.add(rows);
            open.writer.write(rows)?;
        }
        Ok(())
    }

    fn create(&self, day: Option<i32>) -> Result<Open, ParquetError> {
        let folder = partition_folder(day);
        fs::create_dir_all(self.root.join(&folder))?;
        let path = format!("{folder}/part-{}.zstd.parquet", uuid::Uuid::new_v4());
        let file = File::create_new(self.root.join(&path))?;
        let options = ArrowWriterOptions::new()
            .with_properties(writer_properties())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, layout(), options)?;
        Ok(Open {
            path,
            writer,
            stats: RowStats::of(SELECTED_BY),
            touched: self.batches,
        })
    }

    fn close_oldest(&mut self) -> Result<(), ParquetError> {
        let oldest = self
            .open
            .iter()
            .min_by_key(|(_, open)| open.touched)
            .map(|(day, _)| *day);
        match oldest.and_then(|day| self.open.remove(&day).map(|open| (day, open))) {
            Some((day, open)) => self.close(day, open),
            None => Ok(()),
        }
    }

    fn close(&mut self, day: Option<i32>, open: Open) -> Result<(), ParquetError> {
        let Open {
            path,
            writer,
            stats,
            ..
        } = open;
        let file = writer.into_inner()?;
        let bytes = file.metadata()?.len();
        let written = WrittenFile {
            path,
            bytes,
            rows: stats.rows(),
            day,
            stats: stats.to_json(),
        };
        self.done.push(written);
        Ok(())
    }

    fn bound_memory(&mut self) -> Result<(), ParquetError> {
        let held = |open: &Open| open.writer.memory_size();
        while self.open.values().map(held).sum::<usize>() > self.limits.memory_bytes_max {
            let Some(largest) = self.open.values_mut().max_by_key(|open| held(open)) else {
                break;
            };
            if largest.writer.in_progress_size() == 0 {
                break;
            }
            largest.writer.flush()?;
        }
        Ok(())
    }
}

/// The Hive folder of a date.
#[must_use]
pub fn partition_folder(day: Option<i32>) -> String {
    match day {
        Some(day) => format!("date={}", date_text(day)),
        None => "date=__HIVE_DEFAULT_PARTITION__".to_owned(),
    }
}

/// A day since 1970 as `YYYY-MM-DD`.
#[must_use]
pub fn date_text(day: i32) -> String {
    let epoch = chrono::NaiveDate::default();
    (epoch + chrono::Duration::days(day.into()))
        .format("%Y-%m-%d")
        .to_string()
}
