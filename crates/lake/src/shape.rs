//! A table's files → rows in its present columns → new files, not yet committed.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use deltalake::kernel::Add;
use deltalake::kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake::logstore::parquet_reader::ParquetObjectReader;
use futures::{Stream, StreamExt};
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{AsyncArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use uuid::Uuid;

use crate::compact::{LEVEL_TAG, Layout, Level, bytes};
use crate::error::Cause;
use crate::file::DataFile;
use crate::stats::RowStats;
use crate::writer::Writer;

/// Rows of a row group: a merge holds one of each file, compressed.
const GROUP_ROWS_MAX: usize = 32_768;
/// Rows decoded at a time.
pub(crate) const BATCH_ROWS: usize = 1_024;
/// Of the bloom filters: one look-up in so many reads a row group in vain.
const BLOOM_FALSE_SHARE: f64 = 0.01;

/// What every file of the table is brought to.
pub(crate) struct Shape {
    store: Arc<dyn ObjectStore>,
    pub(crate) schema: SchemaRef,
    by_date: bool,
    layout: Layout,
    /// Where the column is by which files are sorted, if they are.
    pub(crate) key_at: Option<usize>,
}

impl Shape {
    /// The table's columns as its log states them: it may have more than this release knows.
    pub(crate) fn of(writer: &Writer, layout: &Layout) -> Result<Self, Cause> {
        let all: Schema = (&writer.state().metadata.parse_schema()?).try_into_arrow()?;
        let by_date = writer.table().spec().by_date;
        let fields = all
            .fields()
            .iter()
            .filter(|f| !by_date || f.name() != "date")
            .cloned();
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let key_at = match layout.sort_by.as_deref() {
            Some(key) => Some(schema.index_of(key)?),
            None => None,
        };
        if let Some(at) = key_at
            && schema.field(at).data_type() != &DataType::Utf8
        {
            return Err(format!("{} is no text column", schema.field(at).name()).into());
        }
        let store = writer.table().store();
        Ok(Self {
            store,
            schema,
            by_date,
            layout: layout.clone(),
            key_at,
        })
    }

    /// Columns by name, in order; missing ones are null, other encodings are cast.
    pub(crate) fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, Cause> {
        fit(&self.schema, batch)
    }

    pub(crate) async fn open(
        &self,
        add: &Add,
    ) -> Result<ParquetRecordBatchStream<ParquetObjectReader>, Cause> {
        let builder = self.reader(&add.path, Some(bytes(add))).await?;
        Ok(builder.with_batch_size(BATCH_ROWS).build()?)
    }

    /// Reads only these columns of a file, whose size need not be known; what the file lacks is
    /// null.
    pub(crate) async fn open_columns(
        &self,
        path: &str,
        names: &[&str],
    ) -> Result<impl Stream<Item = Result<RecordBatch, Cause>> + use<>, Cause> {
        let builder = self.reader(path, None).await?;
        let found = builder.parquet_schema();
        let mask = ProjectionMask::columns(found, names.iter().copied());
        let rows = builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()?;
        let places = names.iter().map(|name| self.schema.index_of(name));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let part = Arc::new(self.schema.project(&places)?);
        Ok(rows.map(move |rows| fit(&part, &rows?)))
    }

    async fn reader(
        &self,
        path: &str,
        size: Option<u64>,
    ) -> Result<ParquetRecordBatchStreamBuilder<ParquetObjectReader>, Cause> {
        let mut reader = ParquetObjectReader::new(self.store.clone(), Path::parse(path)?);
        if let Some(size) = size {
            reader = reader.with_file_size(size);
        }
        Ok(ParquetRecordBatchStreamBuilder::new(reader).await?)
    }

    fn properties(&self, level: Level) -> WriterProperties {
        let properties = self.layout.properties.clone().into_builder();
        let properties = properties.set_max_row_group_row_count(Some(GROUP_ROWS_MAX));
        let (Some(key), Some(at)) = (&self.layout.sort_by, self.key_at) else {
            return properties.build();
        };
        let id = ColumnPath::from(key.as_str());
        let sorted = SortingColumn {
            column_idx: i32::try_from(at).unwrap_or(0),
            descending: false,
            nulls_first: true,
        };
        // A flush has its rows as they came.
        let sorted = (level != Level::Flushed).then(|| vec![sorted]);
        properties
            .set_sorting_columns(sorted)
            .set_column_statistics_enabled(id.clone(), EnabledStatistics::Page)
            .set_column_bloom_filter_enabled(id.clone(), true)
            .set_column_bloom_filter_fpp(id.clone(), BLOOM_FALSE_SHARE)
            .set_column_bloom_filter_max_ndv(id, GROUP_ROWS_MAX as u64)
            .build()
    }
}

fn fit(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, Cause> {
    let column = |field: &FieldRef| match batch.column_by_name(field.name()) {
        Some(column) => cast(column, field.data_type()),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    };
    let columns = schema.fields().iter().map(column);
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// A file under way.
pub(crate) struct Output {
    path: String,
    date: Option<String>,
    level: Level,
    rows: RowStats,
    writer: AsyncArrowWriter<BufWriter>,
}

impl Output {
    pub(crate) fn begin(shape: &Shape, date: Option<&str>, level: Level) -> Result<Self, Cause> {
        let name = format!("sorted-{}.parquet", Uuid::new_v4());
        let path = match shape.by_date {
            true => format!("{}/{name}", DataFile::folder(date)),
            false => name,
        };
        let sink = BufWriter::new(shape.store.clone(), Path::parse(&path)?);
        let properties = Some(shape.properties(level));
        let writer = AsyncArrowWriter::try_new(sink, shape.schema.clone(), properties)?;
        let rows = match &shape.layout.sort_by {
            Some(key) => RowStats::new(&[key]),
            None => RowStats::of(&[]),
        };
        Ok(Self {
            path,
            date: date.map(str::to_owned),
            level,
            rows,
            writer,
        })
    }

    pub(crate) async fn write(&mut self, batch: &RecordBatch) -> Result<(), Cause> {
        self.rows.add(batch);
        Ok(self.writer.write(batch).await?)
    }

    pub(crate) async fn end(mut self) -> Result<DataFile, Cause> {
        self.writer.finish().await?;
        let tag = self.level.tag();
        let level = tag.map(|tag| (LEVEL_TAG.to_owned(), tag.to_owned()));
        Ok(DataFile {
            path: self.path,
            size: self.writer.bytes_written() as u64,
            rows: self.rows.rows(),
            date: self.date,
            stats: Some(self.rows.to_json()),
            tags: level.into_iter().collect::<HashMap<_, _>>(),
        })
    }
}
