//! Stored rows → attempts, and places → the columns that are put beside the rows.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, BooleanArray, Decimal128Array, Int32Array,
    Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use retrytoll_core::operation::{Attempt, Billed, Decision, Outcome, Place, Role, Usage};
use retrytoll_lake::encode::PROBABILITY;

/// The stored columns that place attempts, each with how it is read.
macro_rules! columns {
    ($($field:ident: $array:ty = $read:ident($name:literal)),+ $(,)?) => {
        /// Their names.
        pub const NEEDED: &[&str] = &[$($name),+];

        /// Their values.
        pub struct Columns {
            $($field: $array),+
        }

        impl Columns {
            pub fn of(rows: &RecordBatch) -> Result<Self> {
                Ok(Self { $($field: $read(rows, $name)?),+ })
            }
        }
    };
}

columns! {
    source: StringArray = text("source"),
    partition: Int32Array = int("source_partition"),
    offset: Int64Array = long("source_offset"),
    index: Int32Array = int("source_index"),
    service: StringArray = text("service"),
    request: StringArray = text("request_id"),
    started_us: Int64Array = time("started_at"),
    ended_us: Int64Array = time("ts"),
    elapsed_ms: Int64Array = long("elapsed_ms"),
    attempt: Int64Array = long("attempt"),
    is_retry: BooleanArray = truth("is_retry"),
    layer: StringArray = text("layer"),
    prompt: BinaryArray = bytes("prompt_hash"),
    last_line: BooleanArray = truth("final"),
    counted: BooleanArray = truth("counted"),
    decision: StringArray = text("decision"),
    next_retry_ms: Int64Array = long("next_retry_ms"),
    timeout_ms: Int64Array = long("timeout_ms"),
    class: StringArray = text("error_class"),
    cache_hit: BooleanArray = truth("cache_hit"),
    billing: StringArray = text("billing"),
    p_billed: Decimal128Array = probability("p_billed"),
    evidence: StringArray = text("evidence"),
    input: Int64Array = long("input_tokens"),
    cached: Int64Array = long("cached_input_tokens"),
    output: Int64Array = long("output_tokens"),
    server_id: StringArray = text("server_request_id"),
}

fn column(rows: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef> {
    let found = rows
        .column_by_name(name)
        .ok_or_else(|| DataFusionError::Internal(format!("placed.sql lacks {name}")))?;
    Ok(cast(found, data_type)?)
}

fn text(rows: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(column(rows, name, &DataType::Utf8)?.as_string().clone())
}

fn bytes(rows: &RecordBatch, name: &str) -> Result<BinaryArray> {
    Ok(column(rows, name, &DataType::Binary)?.as_binary().clone())
}

fn truth(rows: &RecordBatch, name: &str) -> Result<BooleanArray> {
    Ok(column(rows, name, &DataType::Boolean)?.as_boolean().clone())
}

fn int(rows: &RecordBatch, name: &str) -> Result<Int32Array> {
    Ok(column(rows, name, &DataType::Int32)?.as_primitive().clone())
}

fn long(rows: &RecordBatch, name: &str) -> Result<Int64Array> {
    Ok(column(rows, name, &DataType::Int64)?.as_primitive().clone())
}

fn probability(rows: &RecordBatch, name: &str) -> Result<Decimal128Array> {
    Ok(column(rows, name, &PROBABILITY)?.as_primitive().clone())
}

/// Microseconds since 1970.
fn time(rows: &RecordBatch, name: &str) -> Result<Int64Array> {
    let us = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let times = column(rows, name, &us)?;
    Ok(cast(&times, &DataType::Int64)?.as_primitive().clone())
}

/// A `p_billed` of a half: from there on an attempt of unknown billing was likely billed.
const EVEN_ODDS: i128 = 5_000;

/// A value, or nothing where it is null.
macro_rules! get {
    ($column:expr, $row:expr) => {
        $column.is_valid($row).then(|| $column.value($row))
    };
}

impl Columns {
    /// Where each request ends, exclusive.
    pub fn request_ends(&self) -> Vec<usize> {
        let same = |a: usize, b: usize| {
            self.request.value(a) == self.request.value(b)
                && get!(self.service, a) == get!(self.service, b)
        };
        let len = self.request.len();
        (1..=len)
            .filter(|&row| row == len || !same(row - 1, row))
            .collect()
    }

    pub fn attempt(&self, row: usize) -> Attempt<'_> {
        let us = |ms: Option<i64>| ms.map(|ms| ms.saturating_mul(1_000));
        let ended_us = get!(self.ended_us, row);
        let took_us = us(get!(self.elapsed_ms, row));
        let began_us = ended_us
            .zip(took_us)
            .map(|(end, took)| end.saturating_sub(took));
        let class = get!(self.class, row).unwrap_or_default();
        let output_tokens = get!(self.output, row);
        let with_usage = get!(self.evidence, row) == Some("usage");
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
            started_us: get!(self.started_us, row).or(began_us),
            ended_us,
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
            billed: match get!(self.billing, row) {
                Some("billed") => Billed::Yes,
                Some("unknown") if get!(self.p_billed, row) >= Some(EVEN_ODDS) => Billed::Likely,
                _ => Billed::No,
            },
            usage,
            output_tokens,
            server_id: get!(self.server_id, row),
        }
    }
}

/// The columns of places, that stand behind those of the rows.
pub fn place_fields() -> Vec<Field> {
    let columns = Places::default().columns();
    let field = |(name, array): (&str, ArrayRef)| Field::new(name, array.data_type().clone(), true);
    columns.into_iter().map(field).collect()
}

/// Rows with these columns → rows with their places.
pub fn with_places(rows: &SchemaRef) -> SchemaRef {
    let mut fields = rows.fields().to_vec();
    fields.extend(place_fields().into_iter().map(Arc::new));
    Arc::new(Schema::new(fields))
}

/// Places of rows, in their order.
#[derive(Default)]
pub struct Places {
    /// The operation of each: the lineage of its first attempt.
    operations: Vec<String>,
    places: Vec<Place>,
}

impl Places {
    /// Adds the places of one request's attempts.
    pub fn add(&mut self, attempts: &[Attempt<'_>], places: &[Place]) {
        self.operations.extend(places.iter().map(|it| {
            let (source, partition, offset, index) = attempts[it.first].lineage;
            format!("{source}/{partition}/{offset}/{index}")
        }));
        self.places.extend_from_slice(places);
    }

    /// `rows`, and their places beside them. What double logging decides is put in place of what
    /// was stored.
    pub fn beside(self, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (field, stored) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            columns.push(match field.name().as_str() {
                "counted" => self.truths(|it| it.counted),
                "is_retry" => self.truths(|it| it.is_retry),
                _ => Arc::clone(stored),
            });
        }
        columns.extend(self.columns().into_iter().map(|(_, array)| array));
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    fn columns(&self) -> Vec<(&'static str, ArrayRef)> {
        let ended = self.places.iter().map(|it| it.op_ended_us);
        let ended = ended.collect::<TimestampMicrosecondArray>();
        vec![
            (
                "operation_id",
                Arc::new(StringArray::from_iter_values(&self.operations)),
            ),
            ("superseded", self.truths(|it| it.superseded)),
            ("double_logged", self.truths(|it| it.double_logged)),
            ("overlong", self.truths(|it| it.overlong)),
            ("is_hedge", self.truths(|it| it.is_hedge)),
            ("op_seq", self.numbers(|it| Some(it.op_seq))),
            ("op_place", self.numbers(|it| Some(it.op_place))),
            ("op_attempts", self.numbers(|it| Some(it.op_attempts))),
            ("op_retries", self.numbers(|it| Some(it.op_retries))),
            ("op_billed", self.numbers(|it| Some(it.op_billed))),
            (
                "op_likely_billed",
                self.numbers(|it| Some(it.op_likely_billed)),
            ),
            ("op_ended_at", Arc::new(ended.with_timezone("UTC"))),
            ("op_last", self.truths(|it| it.is_last)),
            ("outcome", self.words(|it| it.outcome.map(Outcome::word))),
            ("role", self.words(|it| it.role.map(Role::word))),
            ("sibling_input", self.numbers(|it| it.sibling?.input)),
            ("sibling_output", self.numbers(|it| it.sibling?.output)),
        ]
    }

    fn truths(&self, of: impl Fn(&Place) -> bool) -> ArrayRef {
        let truths = self.places.iter().map(|it| Some(of(it)));
        Arc::new(truths.collect::<BooleanArray>())
    }

    fn numbers(&self, of: impl Fn(&Place) -> Option<i64>) -> ArrayRef {
        Arc::new(self.places.iter().map(of).collect::<Int64Array>())
    }

    fn words(&self, of: impl Fn(&Place) -> Option<&'static str>) -> ArrayRef {
        Arc::new(self.places.iter().map(of).collect::<StringArray>())
    }
}
