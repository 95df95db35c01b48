//! A job's files → new sorted files, not yet committed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, new_null_array};
use arrow::compute::{cast, concat, interleave_record_batch, sort_to_indices};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use deltalake::kernel::Add;
use deltalake::kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake::logstore::parquet_reader::ParquetObjectReader;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{AsyncArrowWriter, ParquetRecordBatchStreamBuilder};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use uuid::Uuid;

use super::{CompactLimits, Job, LEVEL_TAG, Layout, Level};
use crate::error::{Cause, LakeError};
use crate::file::DataFile;
use crate::stats::RowStats;
use crate::writer::Writer;

/// Rows of a row group: a merge holds one of each file, compressed.
const GROUP_ROWS_MAX: usize = 32_768;
/// Rows decoded at a time.
const BATCH_ROWS: usize = 1_024;
/// Of the bloom filters: one look-up in so many reads a row group in vain.
const BLOOM_FALSE_SHARE: f64 = 0.01;

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
    let shape = Shape::of(writer, layout).map_err(failed)?;
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

/// What every file of the table is brought to.
struct Shape {
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    by_date: bool,
    layout: Layout,
    sort_at: usize,
}

impl Shape {
    /// The table's columns as its log states them: it may have more than this release knows.
    fn of(writer: &Writer, layout: &Layout) -> Result<Self, Cause> {
        let sort_by = layout.sort_by.as_str();
        let all: Schema = (&writer.state().metadata.parse_schema()?).try_into_arrow()?;
        let by_date = writer.table().spec().by_date;
        let fields = all
            .fields()
            .iter()
            .filter(|f| !by_date || f.name() != "date")
            .cloned();
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let sort_at = schema.index_of(sort_by)?;
        if schema.field(sort_at).data_type() != &DataType::Utf8 {
            return Err(format!("{sort_by} is no text column").into());
        }
        let store = writer.table().store();
        Ok(Self {
            store,
            schema,
            by_date,
            layout: layout.clone(),
            sort_at,
        })
    }

    /// Columns by name, in order; missing ones are null, other encodings are cast.
    fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, Cause> {
        let column = |field: &Arc<arrow::datatypes::Field>| match batch.column_by_name(field.name())
        {
            Some(column) => cast(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        };
        let columns = self
            .schema
            .fields()
            .iter()
            .map(column)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    async fn open(
        &self,
        add: &Add,
    ) -> Result<ParquetRecordBatchStream<ParquetObjectReader>, Cause> {
        let reader = ParquetObjectReader::new(self.store.clone(), Path::parse(&add.path)?)
            .with_file_size(super::bytes(add));
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
        Ok(builder.with_batch_size(BATCH_ROWS).build()?)
    }

    fn properties(&self) -> WriterProperties {
        let id = ColumnPath::from(self.layout.sort_by.as_str());
        let column_idx = i32::try_from(self.sort_at).unwrap_or(0);
        let sorted = SortingColumn {
            column_idx,
            descending: false,
            nulls_first: true,
        };
        let properties = self.layout.properties.clone().into_builder();
        properties
            .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
            .set_sorting_columns(Some(vec![sorted]))
            .set_column_statistics_enabled(id.clone(), EnabledStatistics::Page)
            .set_column_bloom_filter_enabled(id.clone(), true)
            .set_column_bloom_filter_fpp(id.clone(), BLOOM_FALSE_SHARE)
            .set_column_bloom_filter_max_ndv(id, GROUP_ROWS_MAX as u64)
            .build()
    }
}

/// A file under way.
struct Output {
    path: String,
    rows: RowStats,
    writer: AsyncArrowWriter<BufWriter>,
}

impl Output {
    fn begin(shape: &Shape, job: &Job) -> Result<Self, Cause> {
        let name = format!("sorted-{}.parquet", Uuid::new_v4());
        let path = match shape.by_date {
            true => format!("{}/{name}", DataFile::folder(job.date.as_deref())),
            false => name,
        };
        let sink = BufWriter::new(shape.store.clone(), Path::parse(&path)?);
        let properties = Some(shape.properties());
        let writer = AsyncArrowWriter::try_new(sink, shape.schema.clone(), properties)?;
        Ok(Self {
            path,
            rows: RowStats::new(&[&shape.layout.sort_by]),
            writer,
        })
    }

    async fn write(&mut self, batch: &RecordBatch) -> Result<(), Cause> {
        self.rows.add(batch);
        Ok(self.writer.write(batch).await?)
    }

    async fn end(mut self, job: &Job) -> Result<DataFile, Cause> {
        self.writer.finish().await?;
        let level = job
            .to
            .tag()
            .map(|tag| (LEVEL_TAG.to_owned(), tag.to_owned()));
        Ok(DataFile {
            path: self.path,
            size: self.writer.bytes_written() as u64,
            rows: self.rows.rows(),
            date: job.date.clone(),
            stats: Some(self.rows.to_json()),
            tags: level.into_iter().collect::<HashMap<_, _>>(),
        })
    }
}

/// Reads the files one after the other and writes a sorted file whenever enough rows are there.
async fn sort(
    shape: &Shape,
    job: &Job,
    limits: CompactLimits,
) -> Result<(u64, Vec<DataFile>), Cause> {
    let (mut read, mut done) = (0, Vec::new());
    let (mut held, mut held_rows) = (Vec::new(), 0);
    for add in &job.files {
        let mut batches = shape.open(add).await?;
        while let Some(batch) = batches.try_next().await? {
            read += batch.num_rows() as u64;
            held_rows += batch.num_rows();
            held.push(shape.fit(&batch)?);
            if held_rows >= limits.sort_rows_max {
                done.push(write_sorted(shape, job, &std::mem::take(&mut held)).await?);
                held_rows = 0;
            }
        }
    }
    if held_rows > 0 {
        done.push(write_sorted(shape, job, &held).await?);
    }
    Ok((read, done))
}

/// Only the keys are put together: the rows are picked from where they are, a few at a time.
async fn write_sorted(shape: &Shape, job: &Job, held: &[RecordBatch]) -> Result<DataFile, Cause> {
    let keys: Vec<_> = held
        .iter()
        .map(|b| b.column(shape.sort_at).as_ref())
        .collect();
    let order = sort_to_indices(&concat(&keys)?, None, None)?;
    let row_count = |at: usize| (0..held[at].num_rows()).map(move |row| (at, row));
    let places: Vec<(usize, usize)> = (0..held.len()).flat_map(row_count).collect();
    let batches: Vec<_> = held.iter().collect();
    let mut out = Output::begin(shape, job)?;
    for rows in order.values().chunks(BATCH_ROWS) {
        let picked: Vec<_> = rows.iter().map(|row| places[*row as usize]).collect();
        out.write(&interleave_record_batch(&batches, &picked)?)
            .await?;
    }
    out.end(job).await
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
    async fn advance(&mut self, shape: &Shape) -> Result<bool, Cause> {
        while let Some(batch) = self.batches.try_next().await? {
            if batch.num_rows() > 0 {
                self.batch = shape.fit(&batch)?;
                self.keys = keys_of(self.batch.column(shape.sort_at));
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
async fn merge(shape: &Shape, job: &Job) -> Result<(u64, Vec<DataFile>), Cause> {
    let mut runs = Vec::new();
    for add in &job.files {
        let batch = RecordBatch::new_empty(shape.schema.clone());
        let keys = keys_of(batch.column(shape.sort_at));
        let mut run = Run {
            batches: shape.open(add).await?,
            batch,
            keys,
            row: 0,
        };
        if run.advance(shape).await? {
            runs.push(run);
        }
    }
    let heads = runs
        .iter()
        .enumerate()
        .map(|(at, run)| Reverse((run.key(), at)));
    let mut heads: BinaryHeap<_> = heads.collect();
    let mut out = Output::begin(shape, job)?;
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
        if !ended || runs[at].advance(shape).await? {
            heads.push(Reverse((runs[at].key(), at)));
        }
    }
    Ok((read, vec![out.end(job).await?]))
}
