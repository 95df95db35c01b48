//! A checkpoint file, of it the columns asked for → what they hold, as [`Entry`]s.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, is_not_null, or};
use arrow::json::LineDelimitedWriter;
use deltalake::kernel::{Add, Metadata, Protocol, Remove, Transaction};
use deltalake::logstore::parquet_reader::ParquetObjectReader;
use futures::TryStreamExt;
use object_store::path::Path;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use serde::Deserialize;

use crate::error::{Cause, LakeError};
use crate::log::Entry;
use crate::table::Table;

/// One row of a checkpoint: one of these is there.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    txn: Option<Transaction>,
    meta_data: Option<Metadata>,
    protocol: Option<Protocol>,
    add: Option<Add>,
    remove: Option<Remove>,
}

/// Reads the checkpoint of `version`, some rows at a time. Of the entries' fields those are
/// filled that stand in `columns`.
pub(crate) async fn read(
    table: &Table,
    version: u64,
    size: u64,
    columns: &[&str],
    take: &mut impl FnMut(Entry),
) -> Result<(), LakeError> {
    let path = Path::from(format!("_delta_log/{version:020}.checkpoint.parquet"));
    let failed = |e: Cause| LakeError::data(format!("read {path}"), e);
    let reader = ParquetObjectReader::new(table.store(), path.clone()).with_file_size(size);
    let builder = ParquetRecordBatchStreamBuilder::new(reader)
        .await
        .map_err(|e| failed(e.into()))?;
    // A name takes in the column and all its leaves.
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    let mut batches = builder
        .with_projection(mask)
        .build()
        .map_err(|e| failed(e.into()))?;
    while let Some(batch) = batches.try_next().await.map_err(|e| failed(e.into()))? {
        let mut part = Entry {
            version,
            ..Entry::default()
        };
        for row in rows(&batch).map_err(failed)? {
            part.txns
                .extend(row.txn.map(|txn| (txn.app_id, txn.version)));
            part.metadata = row.meta_data.or(part.metadata);
            part.protocol = row.protocol.or(part.protocol);
            part.adds.extend(row.add);
            part.removes.extend(row.remove);
        }
        take(part);
    }
    Ok(())
}

/// Arrow's JSON writer knows every nested type, and the crate's actions read JSON.
fn rows(batch: &RecordBatch) -> Result<Vec<Row>, Cause> {
    let mut keep = BooleanArray::from(vec![false; batch.num_rows()]);
    for column in batch.columns() {
        keep = or(&keep, &is_not_null(column)?)?;
    }
    let mut json = LineDelimitedWriter::new(Vec::new());
    json.write(&filter_record_batch(batch, &keep)?)?;
    json.finish()?;
    let json = json.into_inner();
    let rows = serde_json::Deserializer::from_slice(&json).into_iter();
    Ok(rows.collect::<Result<_, _>>()?)
}
