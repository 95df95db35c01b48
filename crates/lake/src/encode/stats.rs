//! What a file's rows span: Delta's statistics, by which readers skip files.

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::compute::kernels::aggregate::{max, min};
use arrow::datatypes::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};

/// Least and greatest of the two columns that queries and rebuilds select by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub rows: u64,
    ts_us: Option<(i64, i64)>,
    ts_nulls: u64,
    offset: Option<(i64, i64)>,
}

impl Stats {
    pub fn add(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        if let Some(ts) = rows.column_by_name("ts") {
            self.ts_nulls += ts.null_count() as u64;
        }
        widen(
            &mut self.ts_us,
            span::<TimestampMicrosecondType>(rows, "ts"),
        );
        widen(&mut self.offset, span::<Int64Type>(rows, "source_offset"));
    }

    /// Delta's form. Timestamps have ms there: the greatest is rounded up, so that no row lies
    /// outside.
    pub fn json(&self) -> String {
        let mut least = serde_json::Map::new();
        let mut greatest = serde_json::Map::new();
        if let Some((low, high)) = self.ts_us {
            least.insert("ts".into(), instant_text(low.div_euclid(1_000)).into());
            greatest.insert(
                "ts".into(),
                instant_text((high + 999).div_euclid(1_000)).into(),
            );
        }
        if let Some((low, high)) = self.offset {
            least.insert("source_offset".into(), low.into());
            greatest.insert("source_offset".into(), high.into());
        }
        serde_json::json!({
            "numRecords": self.rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": { "ts": self.ts_nulls, "source_offset": 0 },
        })
        .to_string()
    }
}

fn span<T: ArrowPrimitiveType<Native = i64>>(rows: &RecordBatch, name: &str) -> Option<(i64, i64)> {
    let column = rows.column_by_name(name)?.as_primitive_opt::<T>()?;
    Some((min(column)?, max(column)?))
}

fn widen(span: &mut Option<(i64, i64)>, other: Option<(i64, i64)>) {
    *span = match (*span, other) {
        (Some((low, high)), Some((least, greatest))) => Some((low.min(least), high.max(greatest))),
        (known, new) => known.or(new),
    };
}

fn instant_text(ms: i64) -> String {
    let instant = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    instant.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
