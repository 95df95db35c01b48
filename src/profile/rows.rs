//! What the provider counted, by `sql/profile.sql` → the rows of a day → its file.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Decimal128Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::StreamExt as _;
use retrytoll_core::profile::{Counts, Usual};
use retrytoll_jobs::{Place, Session, Window};
use retrytoll_lake::encode::date_text;
use retrytoll_lake::{DataFile, TableSpec};

use crate::part::Part;

const SQL: &str = include_str!("../../sql/profile.sql");
/// Of medians: between two rows there is a half.
const MEDIAN: DataType = DataType::Decimal128(16, 1);

/// What rows are of; a level 2 has neither service nor power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kind {
    level: i32,
    provider: Option<String>,
    model: Option<String>,
    service: Option<String>,
    max_tokens_pow2: Option<i64>,
}

/// What is usual for a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    kind: Kind,
    input: Usual,
    output: Usual,
    /// Of how many attempts.
    rows: u64,
}

/// The newest schema major of `profile` that this release knows, and creates.
const SCHEMA_MAJOR: u32 = 1;

/// What the table `profile` must look like.
pub fn spec() -> TableSpec {
    TableSpec {
        columns: schema(),
        by_date: true,
        schema_major: SCHEMA_MAJOR,
    }
}

/// The columns of `profile`; its last, `date`, is the day it is for, and the partition's.
///
/// `level` is 1 or 2; a day of which nothing is told has one row of level 0, of no attempt.
fn schema() -> SchemaRef {
    let field = |name: &str, data_type| {
        let nullable = !["level", "rows"].contains(&name);
        Field::new(name, data_type, nullable)
    };
    Arc::new(Schema::new(vec![
        field("level", DataType::Int32),
        field("provider", DataType::Utf8),
        field("model", DataType::Utf8),
        field("service", DataType::Utf8),
        field("max_tokens_pow2", DataType::Int64),
        field("input_median", MEDIAN),
        field("input_p99", DataType::Int64),
        field("output_median", MEDIAN),
        field("output_p99", DataType::Int64),
        field("rows", DataType::Int64),
        field("date", DataType::Date32),
    ]))
}

/// What is usual in the window, of each kind that has rows enough.
pub async fn of(session: &Session, window: &Window) -> anyhow::Result<Vec<Row>> {
    let mut stream = session.query(SQL, window).await?;
    let mut fold = Fold::default();
    while let Some(batch) = stream.next().await {
        let failed = |error| session.failed(&Place::file("sql/profile.sql"), error);
        fold.take(&batch.map_err(failed)?)?;
    }
    Ok(fold.end())
}

/// Takes attempts in, those of a kind together; holds the counts of one kind and of its model.
#[derive(Default)]
struct Fold {
    kind: Kind,
    of_kind: Sides,
    of_model: Sides,
    rows: Vec<Row>,
}

/// Input and output.
type Sides = [Counts; 2];

impl Fold {
    fn take(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let column = |name: &str, to: &DataType| -> anyhow::Result<ArrayRef> {
            let found = batch.column_by_name(name);
            let found = found.with_context(|| format!("sql/profile.sql has no column {name}"))?;
            Ok(cast(found, to)?)
        };
        let texts = |name: &str| column(name, &DataType::Utf8);
        let (provider, model, service) = (texts("provider")?, texts("model")?, texts("service")?);
        let powers = column("max_tokens_pow2", &DataType::Int64)?;
        let input = column("input_tokens", &DataType::Int64)?;
        let output = column("output_tokens", &DataType::Int64)?;
        for row in 0..batch.num_rows() {
            let (provider, model) = (text(&provider, row), text(&model, row));
            let (service, power) = (text(&service, row), integer(&powers, row));
            let known = &self.kind;
            let same_model =
                known.provider.as_deref() == provider && known.model.as_deref() == model;
            if !same_model || known.service.as_deref() != service || known.max_tokens_pow2 != power
            {
                self.end_kind();
                if !same_model {
                    self.end_model();
                }
                self.kind = Kind {
                    level: 1,
                    provider: provider.map(str::to_owned),
                    model: model.map(str::to_owned),
                    service: service.map(str::to_owned),
                    max_tokens_pow2: power,
                };
            }
            let tokens = [integer(&input, row), integer(&output, row)];
            for (counts, tokens) in self.of_kind.iter_mut().zip(tokens) {
                counts.add(tokens.context("sql/profile.sql has a row without tokens")?);
            }
        }
        Ok(())
    }

    fn end_kind(&mut self) {
        let counts = std::mem::take(&mut self.of_kind);
        for (of_model, of_kind) in self.of_model.iter_mut().zip(&counts) {
            of_model.merge(of_kind);
        }
        self.tell(self.kind.clone(), &counts);
    }

    fn end_model(&mut self) {
        let counts = std::mem::take(&mut self.of_model);
        let kind = Kind {
            level: 2,
            service: None,
            max_tokens_pow2: None,
            ..self.kind.clone()
        };
        self.tell(kind, &counts);
    }

    fn tell(&mut self, kind: Kind, [input, output]: &Sides) {
        let row = input.usual().zip(output.usual()).map(|usual| Row {
            kind,
            input: usual.0,
            output: usual.1,
            rows: input.rows(),
        });
        self.rows.extend(row);
    }

    fn end(mut self) -> Vec<Row> {
        self.end_kind();
        self.end_model();
        self.rows
    }
}

fn text(texts: &ArrayRef, row: usize) -> Option<&str> {
    let texts = texts.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row))
}

fn integer(integers: &ArrayRef, row: usize) -> Option<i64> {
    let integers = integers.as_primitive::<Int64Type>();
    integers.is_valid(row).then(|| integers.value(row))
}

/// Rows as Arrow, without the partition's column; for none the one that says so.
fn to_batch(rows: &[Row]) -> Result<RecordBatch, arrow::error::ArrowError> {
    // What nothing is told of: a row of nulls.
    let told: Vec<Option<&Row>> = match rows {
        [] => vec![None],
        rows => rows.iter().map(Some).collect(),
    };
    let texts = |of: &dyn Fn(&Kind) -> Option<&String>| -> ArrayRef {
        let texts = told.iter().map(|it| of(&it.as_ref()?.kind).cloned());
        Arc::new(texts.collect::<StringArray>())
    };
    let integers = |of: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
        let integers = told.iter().map(|it| of(it.as_ref()?));
        Arc::new(integers.collect::<Int64Array>())
    };
    let medians = |of: &dyn Fn(&Row) -> Usual| -> ArrayRef {
        let tenths = told
            .iter()
            .map(|it| it.map(|row| i128::from(of(row).median_tenths)));
        Arc::new(tenths.collect::<Decimal128Array>().with_data_type(MEDIAN))
    };
    let levels = told.iter().map(|it| it.map_or(0, |row| row.kind.level));
    let rows = told.iter().map(|it| it.map_or(0, |row| row.rows));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(levels)),
        texts(&|kind| kind.provider.as_ref()),
        texts(&|kind| kind.model.as_ref()),
        texts(&|kind| kind.service.as_ref()),
        integers(&|row| row.kind.max_tokens_pow2),
        medians(&|row| row.input),
        integers(&|row| Some(row.input.p99)),
        medians(&|row| row.output),
        integers(&|row| Some(row.output.p99)),
        Arc::new(Int64Array::from_iter_values(rows.map(|it| it as i64))),
    ];
    RecordBatch::try_new(spec().file_columns(), columns)
}

/// Writes a day's file, which is not yet part of the table; its name is nobody else's.
pub fn write_file(folder: &Path, day: i32, rows: &[Row]) -> anyhow::Result<DataFile> {
    let date = date_text(day);
    let batch = to_batch(rows)?;
    let mut part = Part::create(folder, Some(&date), batch.schema())?;
    part.write(&batch)?;
    part.close()?.context("there is no row to write")
}
