//! Batches of any query → a stream of text or a Parquet file, batch by batch.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::json::writer::{LineDelimited, WriterBuilder};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::cell::decimals_as_text;
use super::table::{self, Style};
use super::{Format, WriteError};
use crate::error::JobError;

/// Rows of one table on a terminal; more go into further tables, so that memory stays bounded.
const TABLE_ROWS_MAX: usize = 10_000;
/// Rows of one row group of Parquet.
const ROW_GROUP_ROWS: usize = 100_000;

/// Writes the batches of one answer in one format. [`RowWriter::finish`] must be called.
pub struct RowWriter<W: Write> {
    out: W,
    schema: SchemaRef,
    format: Format,
    kind: Kind,
    rows: u64,
}

enum Kind {
    Table {
        style: Style,
        held: Vec<RecordBatch>,
    },
    Json,
    Csv,
    /// What the writer put into its memory goes on to `out` after each batch.
    Parquet(Box<ArrowWriter<Vec<u8>>>),
}

impl<W: Write> RowWriter<W> {
    /// A writer to `out`; nothing is written yet.
    ///
    /// # Errors
    /// [`JobError::Write`], [`JobError::Format`].
    pub fn new(out: W, schema: SchemaRef, format: Format, style: Style) -> Result<Self, JobError> {
        let kind = match format {
            Format::Table => Kind::Table {
                style,
                held: Vec::new(),
            },
            Format::Json => Kind::Json,
            Format::Csv => Kind::Csv,
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(Default::default()))
                    // A row group is held in memory until it is whole.
                    .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                    .build();
                let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties))
                    .map_err(|error| parquet_error(error).of(format))?;
                Kind::Parquet(Box::new(writer))
            }
        };
        Ok(Self {
            out,
            schema,
            format,
            kind,
            rows: 0,
        })
    }

    /// Writes a batch, or keeps it for its table.
    ///
    /// # Errors
    /// [`JobError::Write`], [`JobError::Format`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), JobError> {
        self.try_write(batch).map_err(|error| error.of(self.format))
    }

    fn try_write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let first = self.rows == 0;
        self.rows += batch.num_rows() as u64;
        let out = &mut self.out;
        match &mut self.kind {
            Kind::Table { style, held } => {
                held.push(batch.clone());
                if held.iter().map(RecordBatch::num_rows).sum::<usize>() >= TABLE_ROWS_MAX {
                    table::draw(out, &self.schema, &std::mem::take(held), false, *style)?;
                    writeln!(out)?;
                }
            }
            Kind::Json => {
                for (at, row) in json_rows(batch)?.iter().enumerate() {
                    let before = if first && at == 0 { "[\n" } else { ",\n" };
                    out.write_all(before.as_bytes())?;
                    out.write_all(row.as_bytes())?;
                }
            }
            // Through memory, since the CSV writer makes text of the errors of its place.
            Kind::Csv => out.write_all(&csv_rows(batch, first)?)?,
            Kind::Parquet(writer) => {
                writer.write(batch).map_err(parquet_error)?;
                // Only whole row groups leave the writer.
                out.write_all(&std::mem::take(writer.inner_mut()))?;
            }
        }
        Ok(())
    }

    /// Ends the answer, and tells how many rows it has.
    ///
    /// # Errors
    /// [`JobError::Write`], [`JobError::Format`].
    pub fn finish(mut self) -> Result<u64, JobError> {
        let format = self.format;
        self.try_finish().map_err(|error| error.of(format))?;
        Ok(self.rows)
    }

    fn try_finish(&mut self) -> Result<(), WriteError> {
        let none = self.rows == 0;
        let out = &mut self.out;
        match &mut self.kind {
            Kind::Table { style, held } => {
                if none || !held.is_empty() {
                    table::draw(out, &self.schema, held, false, *style)?;
                }
            }
            Kind::Json => out.write_all(if none { b"[]\n" } else { b"\n]\n" })?,
            Kind::Csv => {
                if none {
                    out.write_all(&csv_rows(
                        &RecordBatch::new_empty(self.schema.clone()),
                        true,
                    )?)?;
                }
            }
            Kind::Parquet(writer) => {
                writer.finish().map_err(parquet_error)?;
                out.write_all(writer.inner())?;
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// Each row as one JSON object, its keys in the columns' order; null stands as null.
pub(super) fn json_rows(batch: &RecordBatch) -> Result<Vec<String>, WriteError> {
    let batch = decimals_as_text(batch)?;
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, LineDelimited>(Vec::new());
    writer.write(&batch)?;
    writer.finish()?;
    let text = String::from_utf8_lossy(&writer.into_inner()).into_owned();
    Ok(text.lines().map(str::to_owned).collect())
}

fn csv_rows(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, WriteError> {
    let mut text = Vec::new();
    let mut writer = csv::WriterBuilder::new()
        .with_header(header)
        .build(&mut text);
    writer.write(&decimals_as_text(batch)?)?;
    drop(writer);
    Ok(text)
}

/// It writes to memory: all that can fail is what is written.
fn parquet_error(error: ParquetError) -> WriteError {
    WriteError::Arrow(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Decimal128Array, StringArray, TimestampMicrosecondArray};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let cost = Decimal128Array::from(vec![Some(100_000_i128), None]);
        let columns: [(&str, ArrayRef); 3] = [
            (
                "cost",
                Arc::new(cost.with_precision_and_scale(18, 12).unwrap()),
            ),
            ("model", Arc::new(StringArray::from(vec!["a, \"b\"", "c"]))),
            (
                "ts",
                Arc::new(
                    TimestampMicrosecondArray::from(vec![Some(1_500_000), None])
                        .with_timezone("UTC"),
                ),
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, it)| (name, it, true)))
            .unwrap()
    }

    fn written(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer =
            RowWriter::new(&mut out, batch().schema(), format, Style::default()).unwrap();
        for batch in batches {
            writer.write(batch).unwrap();
        }
        let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(writer.finish().unwrap(), rows as u64);
        out
    }

    fn text(format: Format, batches: &[RecordBatch]) -> String {
        String::from_utf8(written(format, batches)).unwrap()
    }

    #[test]
    fn money_is_text_in_json_and_unknown_is_null() {
        let rows = "{\"cost\":\"0.0000001\",\"model\":\"a, \\\"b\\\"\",\"ts\":\"1970-01-01T00:00:01.500Z\"},\n\
                    {\"cost\":null,\"model\":\"c\",\"ts\":null}";
        assert_eq!(text(Format::Json, &[batch()]), format!("[\n{rows}\n]\n"));
        assert_eq!(
            text(Format::Json, &[batch(), batch()]),
            format!("[\n{rows},\n{rows}\n]\n")
        );
        assert_eq!(text(Format::Json, &[]), "[]\n");
    }

    #[test]
    fn csv_has_one_header() {
        let rows = "0.0000001,\"a, \"\"b\"\"\",1970-01-01T00:00:01.500Z\n,c,\n";
        assert_eq!(
            text(Format::Csv, &[batch(), batch()]),
            format!("cost,model,ts\n{rows}{rows}")
        );
        assert_eq!(text(Format::Csv, &[]), "cost,model,ts\n");
    }

    #[test]
    fn parquet_keeps_types() {
        for batches in [vec![batch(), batch()], vec![]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&written(Format::Parquet, &batches)).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            assert_eq!(reader.schema().fields(), batch().schema().fields());
            let rows = reader
                .build()
                .unwrap()
                .map(|it| it.unwrap().num_rows())
                .sum::<usize>();
            assert_eq!(rows, batches.len() * 2);
        }
    }

    #[test]
    fn a_table_shows_every_decimal_to_its_last_digit() {
        assert_eq!(
            text(Format::Table, &[batch()]),
            "\
             \x20    cost  model   ts\n\
             ---------  ------  ------------------------\n\
             0.0000001  a, \"b\"  1970-01-01T00:00:01.500Z\n\
             \x20       -  c       -\n"
        );
    }
}
