//! A lake of a few rows, written through the Delta crate.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray,
};
use chrono::{DateTime, Utc};
use deltalake::DeltaTable;
use tempfile::TempDir;

use crate::render::decimal_text;
use crate::{Catalog, JobError, JobResult, Limits, Session, Window, Zone, lake_url};

/// A row of `attempts`, as far as the jobs look at it. Money is text, as it is written.
#[derive(Clone, Debug)]
pub struct Row {
    pub ts: Option<&'static str>,
    pub service: Option<&'static str>,
    pub model: &'static str,
    pub tenant: Option<&'static str>,
    pub request: String,
    pub is_retry: Option<bool>,
    pub counted: bool,
    pub decision: &'static str,
    pub class: &'static str,
    pub billing: &'static str,
    pub p_billed: Option<&'static str>,
    pub evidence: Option<&'static str>,
    pub confirmed: Option<&'static str>,
    pub ceiling: Option<&'static str>,
    pub basis: Option<&'static str>,
    pub cache_hit: Option<bool>,
}

/// A usable answer with usage and a price.
pub fn success(service: &'static str, request: &str, is_retry: bool, cost: &'static str) -> Row {
    Row {
        ts: Some("2026-11-20T08:00:00Z"),
        service: Some(service),
        model: "m1",
        tenant: None,
        request: request.into(),
        is_retry: Some(is_retry),
        counted: true,
        decision: "success",
        class: "none",
        billing: "billed",
        p_billed: Some("1"),
        evidence: Some("usage"),
        confirmed: Some(cost),
        ceiling: Some(cost),
        basis: Some("usage"),
        cache_hit: None,
    }
}

/// A read timeout that may have cost up to `ceiling`.
pub fn timeout(service: &'static str, request: &str, is_retry: bool, ceiling: &'static str) -> Row {
    Row {
        decision: "retry",
        class: "read",
        billing: "unknown",
        p_billed: Some("0.9"),
        evidence: Some("policy"),
        confirmed: Some("0"),
        ceiling: Some(ceiling),
        basis: Some("formula"),
        ..success(service, request, is_retry, "0")
    }
}

/// A 429: it cost nothing.
pub fn rate_limited(service: &'static str, request: &str, is_retry: bool) -> Row {
    Row {
        decision: "retry",
        class: "rate_limit",
        billing: "unbilled",
        p_billed: Some("0"),
        evidence: Some("policy"),
        basis: None,
        ..success(service, request, is_retry, "0")
    }
}

/// An answer of a model without a price.
pub fn unpriced(service: &'static str, request: &str, is_retry: bool) -> Row {
    Row {
        model: "m-new",
        confirmed: None,
        ceiling: None,
        basis: Some("unpriced"),
        ..success(service, request, is_retry, "0")
    }
}

/// An answer of which nobody logged the usage.
pub fn uncovered(service: &'static str, request: &str, is_retry: bool) -> Row {
    Row {
        evidence: Some("policy"),
        confirmed: None,
        ceiling: None,
        basis: None,
        ..success(service, request, is_retry, "0")
    }
}

pub fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text)
        .unwrap()
        .with_timezone(&Utc)
}

/// `text` as a whole number of units of `scale` digits after the point.
fn units(text: &str, scale: usize) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    assert!(fraction.len() <= scale, "{text}");
    format!("{whole}{fraction:0<scale$}").parse().unwrap()
}

fn decimals(values: Vec<Option<&str>>, precision: u8, scale: i8) -> ArrayRef {
    let values = values
        .into_iter()
        .map(|it| it.map(|it| units(it, scale as usize)));
    let values = values.collect::<Decimal128Array>();
    Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
}

/// Rows at the offsets from `first` on.
fn batch(rows: &[Row], first: i64) -> RecordBatch {
    fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
        Arc::new(values.collect::<StringArray>())
    }
    fn bools(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
        Arc::new(values.collect::<BooleanArray>())
    }
    let times = rows
        .iter()
        .map(|it| it.ts.map(|ts| at(ts).timestamp_micros()))
        .collect::<Vec<_>>();
    let days = times
        .iter()
        .map(|it| it.map(|us| us.div_euclid(86_400_000_000) as i32));
    let dates = days.collect::<Date32Array>();
    let offsets = (first..first + rows.len() as i64).collect::<Vec<_>>();
    let zeros: ArrayRef = Arc::new(Int32Array::from(vec![0; rows.len()]));
    let hashes = vec![Some(&[0xab_u8; 32][..]); rows.len()];
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("source", texts(rows.iter().map(|_| Some("c/calls")))),
        ("source_partition", Arc::clone(&zeros)),
        ("source_offset", Arc::new(Int64Array::from(offsets))),
        ("source_index", zeros),
        (
            "ts",
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        ),
        (
            "request_id",
            texts(rows.iter().map(|it| Some(it.request.as_str()))),
        ),
        (
            "attempt",
            Arc::new(
                rows.iter()
                    .map(|it| it.is_retry.map(i32::from))
                    .collect::<Int32Array>(),
            ),
        ),
        ("model", texts(rows.iter().map(|it| Some(it.model)))),
        ("decision", texts(rows.iter().map(|it| Some(it.decision)))),
        ("service", texts(rows.iter().map(|it| it.service))),
        ("provider", texts(rows.iter().map(|_| Some("openai")))),
        ("tenant", texts(rows.iter().map(|it| it.tenant))),
        (
            "input_tokens",
            Arc::new(Int64Array::from(vec![100; rows.len()])),
        ),
        (
            "output_tokens",
            Arc::new(Int64Array::from(vec![None::<i64>; rows.len()])),
        ),
        ("cache_hit", bools(rows.iter().map(|it| it.cache_hit))),
        ("is_retry", bools(rows.iter().map(|it| it.is_retry))),
        ("counted", bools(rows.iter().map(|it| Some(it.counted)))),
        ("error_class", texts(rows.iter().map(|it| Some(it.class)))),
        ("billing", texts(rows.iter().map(|it| Some(it.billing)))),
        (
            "p_billed",
            decimals(rows.iter().map(|it| it.p_billed).collect(), 5, 4),
        ),
        ("evidence", texts(rows.iter().map(|it| it.evidence))),
        (
            "cost_confirmed",
            decimals(rows.iter().map(|it| it.confirmed).collect(), 18, 12),
        ),
        (
            "cost_ceiling",
            decimals(rows.iter().map(|it| it.ceiling).collect(), 18, 12),
        ),
        ("cost_basis", texts(rows.iter().map(|it| it.basis))),
        ("date", Arc::new(dates)),
    ];
    for name in ["prompt_hash", "wire_prompt_hash", "system_hash"] {
        columns.push((name, Arc::new(BinaryArray::from_opt_vec(hashes.clone()))));
    }
    let kinds: ArrayRef = texts(rows.iter().map(|_| Some("sha256")));
    for name in [
        "prompt_hash_kind",
        "wire_prompt_hash_kind",
        "system_hash_kind",
    ] {
        columns.push((name, kinds.clone()));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, it)| (n, it, true)))
        .unwrap()
}

/// A lake in a folder of its own.
pub struct Lake {
    pub folder: TempDir,
}

impl Lake {
    /// A lake whose versions hold `commits`, one after the other.
    pub async fn of(commits: &[&[Row]]) -> Self {
        let lake = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(lake.folder.path().join("attempts")).unwrap();
        let url =
            deltalake::ensure_table_uri(lake.folder.path().join("attempts").to_string_lossy())
                .unwrap();
        let mut first = 0;
        for rows in commits {
            let table = match DeltaTable::try_from_url(url.clone()).await {
                Ok(table) => table,
                Err(error) => panic!("{error}"),
            };
            table
                .write([batch(rows, first)])
                .with_partition_columns(["date"])
                .await
                .unwrap();
            first += rows.len() as i64;
        }
        lake
    }

    pub async fn open(&self, at_version: Option<u64>) -> Result<Session, JobError> {
        let url = lake_url(&self.folder.path().to_string_lossy())?;
        Session::open(&url, at_version, Limits::default()).await
    }

    /// Job `name`'s answer about `window`, with its facts.
    pub async fn job(&self, name: &str, window: &Window, by: Option<&str>) -> JobResult {
        let session = self.open(None).await.unwrap();
        let job = Catalog::embedded().get(name).unwrap();
        let given = by
            .map(|it| ("by".to_owned(), it.to_owned()))
            .into_iter()
            .collect();
        let mut result = session.run_job(&job, window, &given).await.unwrap();
        result.facts = Some(session.facts(window).await.unwrap());
        result
    }
}

/// All of 20 November 2026.
pub fn the_day() -> Window {
    window("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "UTC")
}

pub fn window(since: &str, until: &str, zone: &str) -> Window {
    let zone = Zone::parse(zone).unwrap();
    Window::parse(Some(since), Some(until), zone, at("2026-12-01T00:00:00Z")).unwrap()
}

/// The named columns of every row, exact, `-` for null, joined by ` | `.
pub fn rows(result: &JobResult, names: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let cells = names
                .iter()
                .map(|name| cell(batch, name, row))
                .collect::<Vec<_>>();
            out.push(cells.join(" | "));
        }
    }
    out
}

fn cell(batch: &RecordBatch, name: &str, row: usize) -> String {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{DataType, Decimal128Type};
    let column = batch
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no column {name}"));
    if column.is_null(row) {
        return "-".into();
    }
    if let DataType::Decimal128(_, scale) = column.data_type() {
        return decimal_text(column.as_primitive::<Decimal128Type>().value(row), *scale);
    }
    arrow::util::display::array_value_to_string(column, row).unwrap()
}
