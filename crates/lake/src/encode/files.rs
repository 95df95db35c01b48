//! Encoded batches → one Parquet file per date, open until the flush ends.
//!
//! Few files are open at a time. When events are of more dates, the rows of those without a file are
//! held, until memory or the flush ends, and then written date by date: a file for each date, and not
//! for each date of each batch. Nothing here is seen by a reader until it is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::errors::ParquetError;

use super::columns::Encoded;
use super::schema::{layout, writer_properties};
use crate::point::Point;
use crate::stats::RowStats;

/// The columns that queries and rebuilds select by: a flushed file has statistics of these alone.
const SELECTED_BY: &[&str] = &["ts", "source_offset"];

/// An open file that so many batches had no row for makes room for another date.
const IDLE_BATCHES: u64 = 4;

/// Bounds of the files of one flush.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// How many files may be open at a time, and one more while held rows are written.
    pub open_max: usize,
    /// Bytes that open files and held rows may take in memory. At it the largest file ends its row
    /// group; held rows are written at half of it.
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

/// A batch of which some dates have no open file.
struct Held {
    rows: RecordBatch,
    /// The rows of those dates.
    waiting: BTreeMap<Option<i32>, Vec<u32>>,
}

/// The files of one flush.
pub struct FlushFiles {
    root: PathBuf,
    limits: FileLimits,
    open: BTreeMap<Option<i32>, Open>,
    held: Vec<Held>,
    held_bytes: usize,
    done: Vec<WrittenFile>,
    batches: u64,
    memory_bytes: usize,
}

impl FlushFiles {
    /// Files go below `root`, the table's folder.
    #[must_use]
    pub fn new(root: &Path, limits: FileLimits) -> Self {
        Self {
            root: root.to_owned(),
            limits,
            open: BTreeMap::new(),
            held: Vec::new(),
            held_bytes: 0,
            done: Vec::new(),
            batches: 0,
            memory_bytes: 0,
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
        let mut waiting = BTreeMap::new();
        for (day, rows) in by_day {
            if self.has_room(day)? {
                self.write(day, &taken(&encoded.rows, rows)?)?;
            } else {
                waiting.insert(day, rows);
            }
        }
        if !waiting.is_empty() {
            let rows = encoded.rows.clone();
            self.held_bytes += rows.get_array_memory_size();
            self.held.push(Held { rows, waiting });
        }
        if self.held_bytes > self.limits.memory_bytes_max / 2 {
            self.write_held()?;
        }
        self.bound_memory()
    }

    /// Bytes of Parquet written so far, those that open files have in memory included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let open = self
            .open
            .values()
            .map(|it| it.writer.bytes_written() as u64 + it.writer.in_progress_size() as u64);
        self.done.iter().map(|it| it.bytes).sum::<u64>() + open.sum::<u64>()
    }

    /// Bytes that the open files held in memory after the last batch.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Finishes and names all files; call it at the end of a flush.
    ///
    /// # Errors
    /// As for [`FlushFiles::append`].
    pub fn finish(mut self) -> Result<Vec<WrittenFile>, ParquetError> {
        self.write_held()?;
        while let Some((day, open)) = self.open.pop_first() {
            self.close(day, open)?;
        }
        Ok(std::mem::take(&mut self.done))
    }

    /// Whether rows of this date go into a file at once: one that is open, or may be opened.
    fn has_room(&mut self, day: Option<i32>) -> Result<bool, ParquetError> {
        if self.open.contains_key(&day) || self.open.len() < self.limits.open_max {
            return Ok(true);
        }
        let idle = self
            .open
            .iter()
            .find(|(_, open)| self.batches - open.touched >= IDLE_BATCHES)
            .map(|(day, _)| *day);
        match idle.and_then(|day| self.open.remove_entry(&day)) {
            Some((day, open)) => self.close(day, open).map(|()| true),
            None => Ok(false),
        }
    }

    fn write(&mut self, day: Option<i32>, rows: &RecordBatch) -> Result<(), ParquetError> {
        if !self.open.contains_key(&day) {
            let open = self.create(day)?;
            self.open.insert(day, open);
        }
        if let Some(open) = self.open.get_mut(&day) {
            open.touched = self.batches;
            open.stats.add(rows);
            open.writer.write(rows)?;
            Point::FileBegun.pass();
        }
        Ok(())
    }

    /// Writes the rows that wait, date by date, each into a file that is finished at once.
    fn write_held(&mut self) -> Result<(), ParquetError> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let days: BTreeSet<_> = held
            .iter()
            .flat_map(|it| it.waiting.keys().copied())
            .collect();
        for day in days {
            let was_open = self.open.contains_key(&day);
            for Held { rows, waiting } in &held {
                if let Some(of_day) = waiting.get(&day) {
                    self.write(day, &taken(rows, of_day.clone())?)?;
                }
            }
            if !was_open && let Some(open) = self.open.remove(&day) {
                self.close(day, open)?;
            }
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
        Point::FileFinished.pass();
        Ok(())
    }

    fn bound_memory(&mut self) -> Result<(), ParquetError> {
        let held = |open: &Open| open.writer.memory_size();
        loop {
            self.memory_bytes = self.held_bytes + self.open.values().map(held).sum::<usize>();
            if self.memory_bytes <= self.limits.memory_bytes_max {
                break;
            }
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

/// These rows of a batch, ascending.
fn taken(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch, ParquetError> {
    if rows.len() == batch.num_rows() {
        return Ok(batch.clone());
    }
    Ok(take_record_batch(batch, &UInt32Array::from(rows))?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Versions, encode};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use retrytoll_core::batch::{EventBatch, SourceId};
    use retrytoll_core::decode::{Decoder, Record};
    use retrytoll_core::derive::{Tables, derive};

    const DAY_MS: i64 = 86_400_000;

    /// A batch with an event of each of these days since 1970, in this order.
    fn batch(days: &[i64]) -> Encoded {
        let mut decoder = Decoder::new(Default::default());
        let mut batch = EventBatch::new(SourceId("test".into()), 0);
        for (offset, day) in (0..).zip(days) {
            let timestamp_ms = Some(day * DAY_MS);
            let payload = br#"{"request_id":"r","attempt":0,"model":"m","decision":"success"}"#;
            let record = Record {
                offset,
                index: 0,
                timestamp_ms,
                payload,
            };
            decoder.decode(&record, &mut batch).unwrap();
        }
        let derived = derive(&batch, &decoder.dictionary, &Tables::built_in());
        let versions = Versions {
            prices: "p".into(),
            policy: "q".into(),
        };
        encode(batch, derived, &decoder.dictionary.share(), &versions).unwrap()
    }

    /// Appends these batches; the finished files, and the rows of each day that are in them.
    fn flushed(limits: FileLimits, batches: &[Vec<i64>]) -> (Vec<WrittenFile>, BTreeMap<i64, u64>) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = FlushFiles::new(folder.path(), limits);
        for days in batches {
            let keep: Vec<_> = (0..days.len() as u32).collect();
            files.append(&batch(days), &keep).unwrap();
            assert!(
                files.open.len() <= limits.open_max,
                "{} are open",
                files.open.len()
            );
        }
        let done = files.finish().unwrap();
        let mut rows = BTreeMap::new();
        for file in &done {
            let path = folder.path().join(&file.path);
            assert_eq!(path.metadata().unwrap().len(), file.bytes);
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            assert_eq!(
                reader.metadata().file_metadata().num_rows() as u64,
                file.rows
            );
            *rows.entry(file.day.unwrap().into()).or_default() += file.rows;
        }
        (done, rows)
    }

    #[test]
    fn events_of_many_dates_make_a_file_for_each_date_and_not_for_each_batch() {
        let limits = FileLimits {
            open_max: 4,
            ..FileLimits::default()
        };
        // 50 days, in another order in each of 6 batches; 7 and 50 have no divisor in common.
        let batches: Vec<Vec<i64>> = (0..6)
            .map(|n| (0..50).map(|i| 20_000 + (7 * i + n) % 50).collect())
            .collect();
        let (done, rows) = flushed(limits, &batches);
        assert_eq!(rows, (20_000..20_050).map(|day| (day, 6)).collect());
        assert_eq!(done.len(), 50);
    }

    #[test]
    fn what_is_held_is_written_when_memory_ends() {
        let limits = FileLimits {
            open_max: 4,
            memory_bytes_max: 0,
        };
        let batches = vec![(20_000..20_010).collect::<Vec<_>>(); 3];
        let (done, rows) = flushed(limits, &batches);
        assert_eq!(rows, (20_000..20_010).map(|day| (day, 3)).collect());
        // Four stay open; of the six others each batch makes a file.
        assert_eq!(done.len(), 4 + 6 * 3);
    }

    #[test]
    fn dates_that_come_in_order_need_no_more_files_than_dates() {
        let limits = FileLimits {
            open_max: 2,
            ..FileLimits::default()
        };
        let batches: Vec<_> = (0..40).map(|n| vec![20_000 + n / 8; 10]).collect();
        let (done, rows) = flushed(limits, &batches);
        assert_eq!(rows, (20_000..20_005).map(|day| (day, 80)).collect());
        assert_eq!(done.len(), 5);
    }
}
