//! Rows that go into a file → Delta's statistics of it, as JSON.
//!
//! Integers, times and chosen texts get least and greatest values; money and ids do not.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute;
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use chrono::DateTime;
use serde_json::{Value, json};

/// A text longer than this has no statistics: readers would have to know that it was cut.
const TEXT_BYTES_MAX: usize = 128;

#[derive(Debug, Default)]
struct Column {
    nulls: u64,
    /// Least and greatest so far.
    ends: Option<(End, End)>,
    /// A value without statistics was seen.
    unknown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Int(i64),
    Time(i64),
    Text(String),
}

impl End {
    fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::Int(value) => json!(value),
            Self::Time(us) => {
                json!(
                    DateTime::from_timestamp_micros(*us)?
                        .format("%Y-%m-%dT%H:%M:%S%.6fZ")
                        .to_string()
                )
            }
            Self::Text(text) => json!(text),
        })
    }
}

/// Statistics of one file under way.
#[derive(Debug)]
pub struct RowStats {
    /// Text columns that have ends too.
    texts: Vec<String>,
    /// The only columns with statistics; `None` is all that can have them.
    only: Option<&'static [&'static str]>,
    rows: u64,
    columns: BTreeMap<String, Column>,
}

impl RowStats {
    /// Of a file without rows yet; of text columns only `texts` get ends.
    #[must_use]
    pub fn new(texts: &[&str]) -> Self {
        let texts = texts.iter().map(|&t| t.to_owned()).collect();
        Self {
            texts,
            only: None,
            rows: 0,
            columns: BTreeMap::new(),
        }
    }

    /// Of a file without rows yet; only these columns, integers or times, get statistics.
    #[must_use]
    pub fn of(columns: &'static [&'static str]) -> Self {
        Self {
            only: Some(columns),
            ..Self::new(&[])
        }
    }

    /// Takes rows in.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let with_ends = match field.data_type() {
                DataType::Int32 | DataType::Int64 => true,
                DataType::Timestamp(TimeUnit::Microsecond, _) => true,
                DataType::Utf8 => self.texts.contains(field.name()),
                _ => false,
            };
            let is_asked = self
                .only
                .is_none_or(|it| it.contains(&field.name().as_str()));
            if !with_ends || !is_asked {
                continue;
            }
            let column = self.columns.entry(field.name().clone()).or_default();
            column.nulls += array.null_count() as u64;
            if array.null_count() < array.len() {
                match ends(array) {
                    Some((least, greatest)) => column.widen(least, greatest),
                    None => column.unknown = true,
                }
            }
        }
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// As the `stats` of an `add` action.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (mut least, mut greatest) = (BTreeMap::new(), BTreeMap::new());
        let mut nulls = BTreeMap::new();
        for (name, column) in &self.columns {
            nulls.insert(name, column.nulls);
            if let Some((a, b)) = column.ends.as_ref().filter(|_| !column.unknown)
                && let (Some(a), Some(b)) = (a.to_json(), b.to_json())
            {
                least.insert(name, a);
                greatest.insert(name, b);
            }
        }
        json!({
            "numRecords": self.rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        })
        .to_string()
    }
}

impl Column {
    fn widen(&mut self, least: End, greatest: End) {
        self.ends = Some(match self.ends.take() {
            Some((a, b)) => (a.min(least), b.max(greatest)),
            None => (least, greatest),
        });
    }
}

fn ends(array: &dyn Array) -> Option<(End, End)> {
    match array.data_type() {
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>();
            let (a, b) = (compute::min(values)?, compute::max(values)?);
            Some((End::Int(a.into()), End::Int(b.into())))
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>();
            Some((
                End::Int(compute::min(values)?),
                End::Int(compute::max(values)?),
            ))
        }
        DataType::Timestamp(..) => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            Some((
                End::Time(compute::min(values)?),
                End::Time(compute::max(values)?),
            ))
        }
        _ => {
            let values = array.as_string::<i32>();
            let (a, b) = (compute::min_string(values)?, compute::max_string(values)?);
            let fits = a.len() <= TEXT_BYTES_MAX && b.len() <= TEXT_BYTES_MAX;
            fits.then(|| (End::Text(a.to_owned()), End::Text(b.to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};

    fn batch(ids: &[&str], ts: &[Option<i64>], n: &[i64]) -> RecordBatch {
        let ts = TimestampMicrosecondArray::from(ts.to_vec()).with_timezone("UTC");
        RecordBatch::try_from_iter([
            ("id", Arc::new(StringArray::from(ids.to_vec())) as ArrayRef),
            ("other", Arc::new(StringArray::from(ids.to_vec()))),
            ("ts", Arc::new(ts)),
            ("n", Arc::new(Int64Array::from(n.to_vec()))),
        ])
        .unwrap()
    }

    #[test]
    fn ends_and_nulls_over_several_batches() {
        let mut stats = RowStats::new(&["id"]);
        stats.add(&batch(&["b", "a"], &[Some(1_500_000), None], &[7, 9]));
        stats.add(&batch(&["c"], &[Some(-1)], &[8]));
        let expected = json!({
            "numRecords": 3,
            "minValues": { "id": "a", "n": 7, "ts": "1969-12-31T23:59:59.999999Z" },
            "maxValues": { "id": "c", "n": 9, "ts": "1970-01-01T00:00:01.500000Z" },
            "nullCount": { "id": 0, "n": 0, "ts": 1 },
        });
        assert_eq!(
            serde_json::from_str::<Value>(&stats.to_json()).unwrap(),
            expected
        );
    }

    #[test]
    fn a_long_text_takes_the_ends_away_for_good() {
        let mut stats = RowStats::new(&["id"]);
        stats.add(&batch(&["a"], &[None], &[1]));
        stats.add(&batch(&[&"x".repeat(129)], &[None], &[1]));
        let json: Value = serde_json::from_str(&stats.to_json()).unwrap();
        assert_eq!(json["minValues"], json!({ "n": 1 }));
        assert_eq!(json["nullCount"]["ts"], json!(2));
    }
}
