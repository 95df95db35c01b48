//! Writers on real folders, with a store that fails, loses answers or is raced on demand.
//!
//! The clock stands still unless a test moves it. Rows are looked at through the Delta crate's
//! own reader, so that the log must mean to others what it means to us.

mod edit;
mod faults;
mod fence;
mod maintenance;
mod outcomes;
mod schema;
mod simulation;
mod store;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, TimeUnit};
use deltalake::DeltaTable;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;
use url::Url;
use uuid::Uuid;

use self::store::Faults;
use crate::{
    Clock, DataFile, Flush, Member, Position, RetryLimits, SourcePartition, Table, TableSpec,
    Writer, WriterLimits,
};

/// 2026-09-02T10:30:00Z.
const NOW_MS: i64 = 1_788_345_000_000;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY: &str = "2026-09-01";
/// No waits; the deadline is a minute of the test's clock.
const RETRY: RetryLimits = RetryLimits {
    wait_ms_first: 0,
    wait_ms_max: 0,
    deadline_ms: 60_000,
};

/// Partition and offset.
type Row = (i32, i64);

struct World {
    dir: TempDir,
    now: Arc<AtomicI64>,
}

fn p(partition: i32) -> SourcePartition {
    SourcePartition::new("c1/calls", partition)
}

fn starts(partitions: &[i32]) -> BTreeMap<SourcePartition, Position> {
    partitions
        .iter()
        .map(|&n| (p(n), Position::start(0)))
        .collect()
}

/// Rows `from..to` of a partition.
fn run(partition: i32, from: i64, to: i64) -> Vec<Row> {
    (from..to).map(|offset| (partition, offset)).collect()
}

fn spec() -> TableSpec {
    let columns = Schema::new(vec![
        Field::new("source", DataType::Utf8, false),
        Field::new("source_partition", DataType::Int32, false),
        Field::new("source_offset", DataType::Int64, false),
        Field::new("request_id", DataType::Utf8, false),
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            true,
        ),
        Field::new("cost", DataType::Decimal128(18, 12), true),
        Field::new("date", DataType::Date32, true),
    ]);
    TableSpec {
        columns: Arc::new(columns),
        by_date: true,
        schema_major: 1,
    }
}

impl World {
    fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            now: Arc::new(AtomicI64::new(NOW_MS)),
        }
    }

    fn url(&self) -> Url {
        Url::from_directory_path(self.dir.path()).unwrap()
    }

    fn clock(&self) -> Clock {
        let now = self.now.clone();
        Clock::new(move || now.load(Ordering::SeqCst))
    }

    fn now_ms(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
    }

    async fn table(&self) -> Table {
        Table::open(&self.url(), spec(), &self.clock(), RETRY)
            .await
            .unwrap()
    }

    async fn writer(&self, name: &str) -> Writer {
        self.writer_on(self.table().await, name).await
    }

    /// A writer whose puts of entries meet what the test hands to [`Faults`].
    async fn faulty_writer(&self, name: &str) -> (Writer, Faults) {
        let faults = Faults::default();
        let table = Table::open_on(faults.store(), &self.url(), spec(), &self.clock(), RETRY).await;
        (self.writer_on(table.unwrap(), name).await, faults)
    }

    async fn writer_on(&self, table: Table, name: &str) -> Writer {
        let member = Member {
            group: "g".into(),
            name: name.into(),
        };
        let limits = WriterLimits {
            retry: RETRY,
            ..WriterLimits::default()
        };
        Writer::open(table, member, self.clock(), limits)
            .await
            .unwrap()
    }

    /// A writer that owns these partitions.
    async fn owner(&self, name: &str, partitions: &[i32]) -> Writer {
        let mut writer = self.writer(name).await;
        writer.claim(&starts(partitions)).await.unwrap();
        writer
    }

    async fn faulty_owner(&self, name: &str, partitions: &[i32]) -> (Writer, Faults) {
        let (mut writer, faults) = self.faulty_writer(name).await;
        writer.claim(&starts(partitions)).await.unwrap();
        (writer, faults)
    }

    /// Writes a Parquet file of these rows, request ids falling.
    fn file(&self, date: Option<&str>, rows: &[Row]) -> DataFile {
        let path = format!("{}/{}.parquet", DataFile::folder(date), Uuid::new_v4());
        let full = self.dir.path().join(&path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        let columns: [(&str, ArrayRef); 4] = [
            (
                "source",
                Arc::new(StringArray::from(vec!["c1/calls"; rows.len()])),
            ),
            (
                "source_partition",
                Arc::new(rows.iter().map(|r| r.0).collect::<Int32Array>()),
            ),
            (
                "source_offset",
                Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
            ),
            (
                "request_id",
                Arc::new(
                    rows.iter()
                        .map(|r| Some(request_id(*r)))
                        .collect::<StringArray>(),
                ),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out =
            ArrowWriter::try_new(File::create(&full).unwrap(), batch.schema(), None).unwrap();
        out.write(&batch).unwrap();
        out.close().unwrap();
        DataFile {
            path,
            size: fs::metadata(full).unwrap().len(),
            rows: rows.len() as u64,
            date: date.map(str::to_owned),
            ..DataFile::default()
        }
    }

    /// A flush of one file with these rows, each partition's `next` behind its last one.
    fn flush(&self, rows: &[Row]) -> Flush {
        let mut positions = BTreeMap::new();
        for (partition, offset) in rows {
            let at = Position {
                low: *offset,
                clock_ms: 10 * offset,
                ..Position::start(offset + 1)
            };
            positions.insert(p(*partition), at);
        }
        Flush {
            began_ms: self.now_ms(),
            files: vec![self.file(Some(DAY), rows)],
            positions,
        }
    }

    /// Every row of the table, sorted, as another Delta reader sees it.
    async fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for batch in self.batches().await {
            let partitions = batch.column_by_name("source_partition").unwrap();
            let offsets = batch.column_by_name("source_offset").unwrap();
            let ids = batch.column_by_name("request_id").unwrap();
            for at in 0..batch.num_rows() {
                let row = (
                    partitions.as_primitive::<Int32Type>().value(at),
                    offsets.as_primitive::<Int64Type>().value(at),
                );
                assert_eq!(ids.as_string::<i32>().value(at), request_id(row));
                rows.push(row);
            }
        }
        rows.sort_unstable();
        rows
    }

    async fn batches(&self) -> Vec<RecordBatch> {
        let mut table = DeltaTable::new(self.table().await.log_store());
        table.load().await.unwrap();
        let files = table.get_file_uris_by_partitions(&[]).await.unwrap();
        let open = |path: &String| {
            ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap())
                .unwrap()
                .build()
                .unwrap()
        };
        files.iter().flat_map(open).map(Result::unwrap).collect()
    }

    /// `next` of every partition, as read anew.
    async fn next(&self) -> BTreeMap<i32, i64> {
        let state = self.table().await.check().await.unwrap();
        state
            .positions()
            .into_iter()
            .map(|(p, at)| (p.partition, at.next))
            .collect()
    }

    async fn head(&self) -> u64 {
        self.table().await.check().await.unwrap().version
    }

    fn log_path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("_delta_log").join(name)
    }
}

fn request_id((partition, offset): Row) -> String {
    format!("r{partition}-{:06}", 999_999 - offset)
}

fn sorted(parts: &[Vec<Row>]) -> Vec<Row> {
    let mut rows = parts.concat();
    rows.sort_unstable();
    rows
}
