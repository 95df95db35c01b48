//! A transition with its data ↔ a row of the table `alerts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use retrytoll_core::alert::{EndsReason, Severity, State, Transition};
use serde_json::Value;

/// Decided, and still to be sent.
pub const DECIDED: i32 = 0;
/// Sent, and acknowledged; or kept back for another alert.
pub const SENT: i32 = 1;
/// The field of the data that names the alert for which it was kept back.
pub const INHIBITED_BY: &str = "inhibited_by";

/// A row of the outbox. Readers take the greatest revision of each key and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub transition: Transition,
    pub revision: i32,
    /// The alert's data, JSON.
    pub data: String,
}

/// By what a transition is known: its alert, and its number.
pub type Key = (String, i64);

impl Row {
    /// By what its transition is known.
    pub fn key(&self) -> Key {
        (self.transition.dedup_key.clone(), self.transition.number)
    }

    /// The `dedup_key` of the alert for which it was kept back.
    pub fn inhibited_by(&self) -> Option<String> {
        let data: Value = serde_json::from_str(&self.data).ok()?;
        Some(data[INHIBITED_BY].as_str()?.to_owned())
    }
}

/// Of each transition the row of the greatest revision is kept.
pub fn keep_newest(newest: &mut BTreeMap<Key, Row>, row: Row) {
    let key = row.key();
    let known = newest.get(&key).map(|it| it.revision);
    if known < Some(row.revision) {
        newest.insert(key, row);
    }
}

/// The columns of `alerts`.
pub fn schema() -> SchemaRef {
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let field = |name: &str, data_type| Field::new(name, data_type, name == "ends_reason");
    Arc::new(Schema::new(vec![
        field("dedup_key", DataType::Utf8),
        field("transition", DataType::Int64),
        field("revision", DataType::Int32),
        field("id", DataType::Utf8),
        field("rule", DataType::Utf8),
        field("entity", DataType::Utf8),
        field("state", DataType::Utf8),
        field("severity", DataType::Utf8),
        field("ends_reason", DataType::Utf8),
        field("at", time()),
        field("starts_at", time()),
        field("data", DataType::Utf8),
    ]))
}

/// Rows as Arrow.
pub fn to_batch(rows: &[Row]) -> Result<RecordBatch, arrow::error::ArrowError> {
    let texts = |of: &dyn Fn(&Row) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let times = |of: &dyn Fn(&Transition) -> i64| -> ArrayRef {
        let us = rows
            .iter()
            .map(|row| of(&row.transition).saturating_mul(1_000));
        Arc::new(TimestampMicrosecondArray::from_iter_values(us).with_timezone("UTC"))
    };
    let numbers = rows.iter().map(|row| row.transition.number);
    let columns: Vec<ArrayRef> = vec![
        texts(&|row| Some(row.transition.dedup_key.clone())),
        Arc::new(Int64Array::from_iter_values(numbers)),
        Arc::new(Int32Array::from_iter_values(
            rows.iter().map(|row| row.revision),
        )),
        texts(&|row| Some(row.transition.id())),
        texts(&|row| Some(row.transition.rule.clone())),
        texts(&|row| Some(row.transition.entity.clone())),
        texts(&|row| Some(row.transition.state.word().to_owned())),
        texts(&|row| Some(row.transition.severity.word().to_owned())),
        texts(&|row| row.transition.ends_reason.map(|it| it.word().to_owned())),
        times(&|it| it.at_ms),
        times(&|it| it.starts_at_ms),
        texts(&|row| Some(row.data.clone())),
    ];
    RecordBatch::try_new(schema(), columns)
}

/// Rows of a file of the table.
pub fn from_batch(batch: &RecordBatch) -> anyhow::Result<Vec<Row>> {
    let column = |name: &str| {
        batch
            .column_by_name(name)
            .with_context(|| format!("the table alerts lacks column {name}"))
    };
    let texts = |name: &str| Ok::<_, anyhow::Error>(cast(column(name)?, &DataType::Utf8)?);
    let time = schema().field_with_name("at")?.data_type().clone();
    let (at, starts_at) = (
        cast(column("at")?, &time)?,
        cast(column("starts_at")?, &time)?,
    );
    let (numbers, revisions) = (column("transition")?, column("revision")?);
    let ms = |times: &ArrayRef, row| {
        times
            .as_primitive::<TimestampMicrosecondType>()
            .value(row)
            .div_euclid(1_000)
    };
    let (keys, rules, entities) = (texts("dedup_key")?, texts("rule")?, texts("entity")?);
    let (states, severities) = (texts("state")?, texts("severity")?);
    let (reasons, data) = (texts("ends_reason")?, texts("data")?);
    let text = |texts: &ArrayRef, row| texts.as_string::<i32>().value(row).to_owned();
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let (state, severity) = (text(&states, row), text(&severities, row));
        let reason = reasons.is_valid(row).then(|| text(&reasons, row));
        let ends_reason = reason.as_deref().and_then(EndsReason::of_word);
        let (Some(state), Some(severity)) = (State::of_word(&state), Severity::of_word(&severity))
        else {
            bail!(
                "the table alerts has state {state} and severity {severity}: use a newer release"
            );
        };
        let transition = Transition {
            dedup_key: text(&keys, row),
            number: numbers.as_primitive::<Int64Type>().value(row),
            rule: text(&rules, row),
            entity: text(&entities, row),
            state,
            severity,
            ends_reason,
            starts_at_ms: ms(&starts_at, row),
            at_ms: ms(&at, row),
        };
        let revision = revisions.as_primitive::<Int32Type>().value(row);
        rows.push(Row {
            transition,
            revision,
            data: text(&data, row),
        });
    }
    Ok(rows)
}
