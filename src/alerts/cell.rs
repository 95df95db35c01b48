//! Cells of an answer → figures, text and JSON, exactly.

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};
use arrow::util::display::array_value_to_string;
use retrytoll_core::money::{DOLLAR, SCALE};
use retrytoll_core::timestamp;
use retrytoll_jobs::render::decimal_text;
use serde_json::{Map, Value};

/// An instant as RFC 3339, to the second; with milliseconds where it has some.
pub fn time_text(ms: i64) -> String {
    timestamp::text(ms.saturating_mul(1_000)).replace(".000Z", "Z")
}

/// The column `name`'s value as text; `None` for null and for a column that is not there.
pub fn text(batch: &RecordBatch, name: &str, row: usize) -> Option<String> {
    let column = batch.column_by_name(name).filter(|it| it.is_valid(row))?;
    array_value_to_string(column, row).ok()
}

/// The column `name`'s number times 10^12.
pub fn figure(batch: &RecordBatch, name: &str, row: usize) -> Option<i128> {
    let column = batch.column_by_name(name).filter(|it| it.is_valid(row))?;
    match column.data_type() {
        DataType::Decimal128(_, scale) => {
            let up = SCALE.checked_sub(u32::try_from(*scale).ok()?)?;
            column
                .as_primitive::<Decimal128Type>()
                .value(row)
                .checked_mul(10_i128.pow(up))
        }
        _ => integer(column, row).map(|it| i128::from(it) * DOLLAR),
    }
}

/// Every column of a row: decimals as text, whole numbers as numbers.
pub fn object(batch: &RecordBatch, row: usize) -> Map<String, Value> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name());
    names
        .map(|name| (name.clone(), value(batch, name, row)))
        .collect()
}

/// One cell as JSON.
pub fn value(batch: &RecordBatch, name: &str, row: usize) -> Value {
    let Some(column) = batch.column_by_name(name).filter(|it| it.is_valid(row)) else {
        return Value::Null;
    };
    match column.data_type() {
        DataType::Decimal128(_, scale) => {
            decimal_text(column.as_primitive::<Decimal128Type>().value(row), *scale).into()
        }
        DataType::Boolean => column.as_boolean().value(row).into(),
        _ => match integer(column, row) {
            Some(number) => number.into(),
            None => text(batch, name, row).into(),
        },
    }
}

fn integer(column: &ArrayRef, row: usize) -> Option<i64> {
    if !column.data_type().is_integer() {
        return None;
    }
    let numbers = cast(&column.slice(row, 1), &DataType::Int64).ok()?;
    numbers
        .is_valid(0)
        .then(|| numbers.as_primitive::<Int64Type>().value(0))
}
