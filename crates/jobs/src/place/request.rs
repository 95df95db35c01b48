//! (service, `request_id`) → `request_hash`, by which requests are looked up.
//!
//! A day has millions of requests, and eight bytes are a tenth of an id. Two requests of one hash
//! do no harm: then both are looked at, each by its own id.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// The function `request_hash(service, request_id)`.
pub fn request_hash() -> ScalarUDF {
    let text = vec![DataType::Utf8, DataType::Utf8];
    create_udf(
        "request_hash",
        text,
        DataType::UInt64,
        Volatility::Immutable,
        Arc::new(hash),
    )
}

fn hash(values: &[ColumnarValue]) -> Result<ColumnarValue> {
    let columns: Vec<ArrayRef> = ColumnarValue::values_to_arrays(values)?;
    let mut hashes = vec![0; columns.first().map_or(0, |it| it.len())];
    create_hashes(&columns, &RandomState::with_seed(0), &mut hashes)?;
    Ok(ColumnarValue::Array(Arc::new(UInt64Array::from(hashes))))
}
