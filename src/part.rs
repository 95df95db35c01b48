//! Rows → a Parquet file of a table, not yet part of it: what a commit adds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use retrytoll_lake::DataFile;

/// Rows that are held in memory until they are encoded.
const GROUP_ROWS_MAX: usize = 65_536;

/// A file under way; its name is nobody else's. Dropped before it is whole, it is removed.
pub struct Part {
    folder: PathBuf,
    path: String,
    date: Option<String>,
    /// `None` once it is whole.
    writer: Option<ArrowWriter<File>>,
    rows: u64,
}

impl Part {
    /// In the table's folder; with a date, in that of the date.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(folder: &Path, date: Option<&str>, columns: SchemaRef) -> anyhow::Result<Self> {
        let name = format!("part-{:032x}.zstd.parquet", fastrand::u128(..));
        let path = match date {
            Some(_) => format!("{}/{name}", DataFile::folder(date)),
            None => name,
        };
        let whole = folder.join(&path);
        if let Some(parent) = whole.parent() {
            fs::create_dir_all(parent)?;
        }
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
            .build();
        let file = File::create_new(whole)?;
        Ok(Self {
            folder: folder.to_owned(),
            path,
            date: date.map(str::to_owned),
            writer: Some(ArrowWriter::try_new(file, columns, Some(properties))?),
            rows: 0,
        })
    }

    /// Adds rows of its columns.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&mut self, rows: &RecordBatch) -> anyhow::Result<()> {
        self.rows += rows.num_rows() as u64;
        let writer = self.writer.as_mut().context("the file is whole")?;
        Ok(writer.write(rows)?)
    }

    /// The whole file; `None` where it has no rows.
    ///
    /// # Errors
    /// The file system's.
    pub fn close(mut self) -> anyhow::Result<Option<DataFile>> {
        if self.rows == 0 {
            return Ok(None);
        }
        let writer = self.writer.take().context("the file is whole")?;
        let size = writer.into_inner()?.metadata()?.len();
        Ok(Some(DataFile {
            path: std::mem::take(&mut self.path),
            size,
            rows: self.rows,
            date: self.date.take(),
            ..DataFile::default()
        }))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            let _ = fs::remove_file(self.folder.join(&self.path));
        }
    }
}
