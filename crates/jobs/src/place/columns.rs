//! Columns of `sql/views/placed.sql` ↔ attempts, and places → the columns of `placed`.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, BooleanArray, Int32Array, Int64Array,
    RecordBatch, StringArray,
};
use arrow::datatypes::{Field, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use retrytoll_core::operation::{Attempt, Decision, Outcome, Place, Role, Usage};

/// The columns that place attempts.
pub struct Columns<'a> {
    source: &'a StringArray,
    partition: &'a Int32Array,
    offset: &'a Int64Array,
    index: &'a Int32Array,
    started_us: &'a Int64Array,
    ended_us: &'a Int64Array,
    attempt: &'a Int64Array,
    is_retry: &'a BooleanArray,
    layer: &'a StringArray,
    prompt: &'a BinaryArray,
    last_line: &'a BooleanArray,
    counted: &'a BooleanArray,
    decision: &'a StringArray,
    next_retry_ms: &'a Int64Array,
    timeout_ms: &'a Int64Array,
    class: &'a StringArray,
    cache_hit: &'a BooleanArray,
    with_usage: &'a BooleanArray,
    input: &'a Int64Array,
    cached: &'a Int64Array,
    output: &'a Int64Array,
    server_id: &'a StringArray,
}

/// A value, or nothing where it is null.
macro_rules! get {
    ($column:expr, $row:expr) => {
        $column.is_valid($row).then(|| $column.value($row))
    };
}

impl<'a> Columns<'a> {
    pub fn of(rows: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| {
            rows.column_by_name(name)
                .ok_or_else(|| DataFusionError::Internal(format!("placed.sql lacks {name}")))
        };
        let wrong = |name: &str| DataFusionError::Internal(format!("the type of {name}"));
        let text = |name| {
            column(name)?
                .as_string_opt::<i32>()
                .ok_or_else(|| wrong(name))
        };
        let long = |name| {
            let found = column(name)?.as_primitive_opt::<Int64Type>();
            found.ok_or_else(|| wrong(name))
        };
        let int = |name| {
            let found = column(name)?.as_primitive_opt::<Int32Type>();
            found.ok_or_else(|| wrong(name))
        };
        let truth = |name| column(name)?.as_boolean_opt().ok_or_else(|| wrong(name));
        let bytes = |name| {
            column(name)?
                .as_binary_opt::<i32>()
                .ok_or_else(|| wrong(name))
        };
        Ok(Self {
            source: text("source")?,
            partition: int("source_partition")?,
            offset: long("source_offset")?,
            index: int("source_index")?,
            started_us: long("started_us")?,
            ended_us: long("ended_us")?,
            attempt: long("attempt")?,
            is_retry: truth("is_retry")?,
            layer: text("layer")?,
            prompt: bytes("prompt_hash")?,
            last_line: truth("final")?,
            counted: truth("counted")?,
            decision: text("decision")?,
            next_retry_ms: long("next_retry_ms")?,
            timeout_ms: long("timeout_ms")?,
            class: text("error_class")?,
            cache_hit: truth("cache_hit")?,
            with_usage: truth("with_usage")?,
            input: long("input_tokens")?,
            cached: long("cached_input_tokens")?,
            output: long("output_tokens")?,
            server_id: text("server_request_id")?,
        })
    }

    pub fn attempt(&self, row: usize) -> Attempt<'a> {
        let us = |ms: Option<i64>| ms.map(|ms| ms.saturating_mul(1_000));
        let class = get!(self.class, row).unwrap_or_default();
        let output_tokens = get!(self.output, row);
        let with_usage = get!(self.with_usage, row) == Some(true);
        let usage = with_usage.then(|| Usage {
            input: get!(self.input, row),
            cached: get!(self.cached, row),
            output: output_tokens,
        });
        Attempt {
            lineage: (
                self.source.value(row),
                self.partition.value(row),
                self.offset.value(row),
                self.index.value(row),
            ),
            started_us: get!(self.started_us, row),
            ended_us: get!(self.ended_us, row),
            number: get!(self.attempt, row),
            above_base: get!(self.is_retry, row),
            layer: get!(self.layer, row).unwrap_or_default().as_bytes(),
            prompt: get!(self.prompt, row),
            last_line: get!(self.last_line, row) != Some(false),
            counted: get!(self.counted, row) != Some(false),
            decision: get!(self.decision, row)
                .and_then(Decision::of_word)
                .unwrap_or(Decision::GoesOn),
            next_retry_us: us(get!(self.next_retry_ms, row)).unwrap_or(0),
            timeout_us: us(get!(self.timeout_ms, row)),
            may_have_answer: matches!(class, "read" | "stream"),
            was_cancelled: class == "cancelled",
            cache_hit: get!(self.cache_hit, row) == Some(true),
            usage,
            output_tokens,
            server_id: get!(self.server_id, row),
        }
    }
}

/// The columns of `placed`.
pub fn schema() -> SchemaRef {
    let columns = Places::default().columns();
    let field = |(name, array): (&str, ArrayRef)| Field::new(name, array.data_type().clone(), true);
    Arc::new(Schema::new(
        columns.into_iter().map(field).collect::<Vec<_>>(),
    ))
}

/// Places, and the lineages of the attempts they are of.
#[derive(Default)]
pub struct Places {
    lineages: Vec<(String, i32, i64, i32)>,
    /// The lineage of the operation's first attempt, by its place in `lineages`.
    firsts: Vec<usize>,
    places: Vec<Place>,
}

impl Places {
    /// Adds the places of one request's attempts.
    pub fn add(&mut self, attempts: &[Attempt<'_>], places: &[Place]) {
        let base = self.lineages.len();
        self.lineages.extend(attempts.iter().map(|it| {
            let (source, partition, offset, index) = it.lineage;
            (source.to_owned(), partition, offset, index)
        }));
        self.firsts.extend(places.iter().map(|it| base + it.first));
        self.places.extend_from_slice(places);
    }

    pub fn finish(self, schema: &SchemaRef) -> Result<RecordBatch> {
        let arrays = self.columns().into_iter().map(|(_, array)| array).collect();
        Ok(RecordBatch::try_new(Arc::clone(schema), arrays)?)
    }

    fn columns(&self) -> Vec<(&'static str, ArrayRef)> {
        let [source, partition, offset, index] = self.lineage(|row| row);
        let [first_source, first_partition, first_offset, first_index] =
            self.lineage(|row| self.firsts[row]);
        vec![
            ("source", source),
            ("source_partition", partition),
            ("source_offset", offset),
            ("source_index", index),
            ("first_source", first_source),
            ("first_partition", first_partition),
            ("first_offset", first_offset),
            ("first_index", first_index),
            ("superseded", self.truths(|it| it.superseded)),
            ("counted", self.truths(|it| it.counted)),
            ("double_logged", self.truths(|it| it.double_logged)),
            ("overlong", self.truths(|it| it.overlong)),
            ("is_retry", self.truths(|it| it.is_retry)),
            ("is_hedge", self.truths(|it| it.is_hedge)),
            ("op_seq", self.numbers(|it| Some(it.op_seq))),
            ("op_place", self.numbers(|it| Some(it.op_place))),
            ("op_attempts", self.numbers(|it| Some(it.op_attempts))),
            ("outcome", self.words(|it| it.outcome.map(Outcome::word))),
            ("role", self.words(|it| it.role.map(Role::word))),
            ("sibling_input", self.numbers(|it| it.sibling?.input)),
            ("sibling_output", self.numbers(|it| it.sibling?.output)),
        ]
    }

    fn lineage(&self, of: impl Fn(usize) -> usize) -> [ArrayRef; 4] {
        let rows = || (0..self.places.len()).map(|row| &self.lineages[of(row)]);
        [
            Arc::new(StringArray::from_iter_values(rows().map(|it| &it.0))),
            Arc::new(Int32Array::from_iter_values(rows().map(|it| it.1))),
            Arc::new(Int64Array::from_iter_values(rows().map(|it| it.2))),
            Arc::new(Int32Array::from_iter_values(rows().map(|it| it.3))),
        ]
    }

    fn truths(&self, of: impl Fn(&Place) -> bool) -> ArrayRef {
        Arc::new(
            self.places
                .iter()
                .map(|it| Some(of(it)))
                .collect::<BooleanArray>(),
        )
    }

    fn numbers(&self, of: impl Fn(&Place) -> Option<i64>) -> ArrayRef {
        Arc::new(self.places.iter().map(of).collect::<Int64Array>())
    }

    fn words(&self, of: impl Fn(&Place) -> Option<&'static str>) -> ArrayRef {
        Arc::new(self.places.iter().map(of).collect::<StringArray>())
    }
}
