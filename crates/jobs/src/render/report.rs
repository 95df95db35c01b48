//! A job's answer → a report: its meaning, its rows, and what they must be read with.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::value::RawValue;

use super::rows::{RowWriter, json_rows};
use super::table::{self, Style};
use super::{Format, WriteError};
use crate::error::JobError;
use crate::facts::Facts;
use crate::session::{CompleteThrough, JobResult};

/// Writes a job's answer. As a table or JSON it holds its window, coverage and version; beside
/// CSV and Parquet the caller shows [`footer`].
///
/// # Errors
/// [`JobError::Write`]; [`JobError::Format`] for a column that the format cannot hold.
pub fn report(
    out: &mut dyn Write,
    result: &JobResult,
    format: Format,
    style: Style,
) -> Result<(), JobError> {
    match format {
        Format::Table => table(out, result, style).map_err(|error| error.of(format)),
        Format::Json => json(out, result).map_err(|error| error.of(format)),
        Format::Csv | Format::Parquet => {
            let mut writer = RowWriter::new(out, result.schema.clone(), format, style)?;
            for batch in &result.batches {
                writer.write(batch)?;
            }
            writer.finish().map(drop)
        }
    }
}

/// Draws some columns of a job's answer as its table does, without anything beside.
///
/// # Errors
/// As [`report`].
pub fn columns(
    out: &mut dyn Write,
    result: &JobResult,
    names: &[&str],
    style: Style,
) -> Result<(), JobError> {
    let names = names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let drawn = shown(result, &names).map_err(WriteError::from);
    let drawn = drawn
        .and_then(|(schema, batches)| table::draw(out, &schema, &batches, true, style).map(drop));
    drawn.map_err(|error| error.of(Format::Table))
}

/// What every report says beside its rows, a line each.
#[must_use]
pub fn footer(result: &JobResult) -> Vec<String> {
    let JobResult {
        job,
        window,
        version,
        complete_through,
        facts,
        ..
    } = result;
    let mut lines = vec![
        format!(
            "window     {window} (zone {}, end exclusive)",
            window.zone.name()
        ),
        format!("counts     {}{}", job.meta.counts, total(facts.as_ref())),
    ];
    if let Some(facts) = facts {
        lines.push(format!("coverage   {}", coverage(facts)));
    }
    lines.push(format!(
        "version    {version} of attempts; {}",
        complete(*complete_through, result)
    ));
    lines.extend(facts.iter().flat_map(beside));
    lines
}

fn total(facts: Option<&Facts>) -> String {
    facts.map_or(String::new(), |it| {
        format!(" ({} in the window)", it.attempts)
    })
}

fn coverage(facts: &Facts) -> String {
    let Facts {
        answers,
        answers_with_usage,
        ..
    } = facts;
    match facts.coverage_permille() {
        None => "no answer to cover".into(),
        Some(permille) => format!(
            "{}.{} % ({answers_with_usage} of {answers} answers have the provider's usage)",
            permille / 10,
            permille % 10
        ),
    }
}

fn complete(through: CompleteThrough, result: &JobResult) -> String {
    match through {
        CompleteThrough::Unknown => "complete through: not known".into(),
        CompleteThrough::Nothing => "nothing is complete yet".into(),
        CompleteThrough::Everything => "complete: every source was read to its end".into(),
        CompleteThrough::Before(time) => {
            format!("complete through {}", result.window.zone.show(time))
        }
    }
}

/// What is in no figure.
fn beside(facts: &Facts) -> Vec<String> {
    let context = facts.attempts - facts.counted;
    let parts = [
        (
            facts.unpriced,
            "without a price: their cost is in no figure (retrytoll report unpriced)",
        ),
        (
            facts.unnumbered,
            "without an attempt number: neither first attempts nor retries",
        ),
        (context, "of a layer that is not counted"),
        (
            facts.timeless,
            "in the lake without a usable time: in no window",
        ),
    ];
    let line = |(count, what): (i64, &str)| {
        let attempts = if count == 1 { "attempt" } else { "attempts" };
        (count > 0).then(|| format!("beside     {count} {attempts} {what}"))
    };
    parts.into_iter().filter_map(line).collect()
}

fn table(out: &mut dyn Write, result: &JobResult, style: Style) -> Result<(), WriteError> {
    let meta = &result.job.meta;
    let title = [&meta.title, &meta.meaning].map(String::as_str);
    let title = title
        .iter()
        .filter(|it| !it.is_empty())
        .copied()
        .collect::<Vec<_>>();
    writeln!(out, "{}\n", title.join(": "))?;
    let rows = result
        .batches
        .iter()
        .map(RecordBatch::num_rows)
        .sum::<usize>();
    let mut exact = true;
    if result.facts.is_some_and(|it| it.attempts == 0) {
        writeln!(
            out,
            "no attempts between {} and {}",
            since(result),
            until(result)
        )?;
    } else if rows == 0 {
        writeln!(out, "nothing: no row fits")?;
    } else {
        let (schema, batches) = shown(result, &meta.shown)?;
        exact = table::draw(out, &schema, &batches, true, style)?;
    }
    writeln!(out)?;
    for line in footer(result) {
        writeln!(out, "{line}")?;
    }
    if !exact {
        writeln!(
            out,
            "rounding   dollars are rounded here; --format json and csv are exact"
        )?;
    }
    if let (Some(action), true) = (&meta.action, rows > 0) {
        writeln!(out, "action     {action}")?;
    }
    Ok(())
}

fn since(result: &JobResult) -> String {
    result.window.zone.show(result.window.since)
}

fn until(result: &JobResult) -> String {
    result.window.zone.show(result.window.until)
}

/// The columns a table shows: those of `names`, or all, less texts of which there are none; `key`
/// under the name of what it is.
fn shown(
    result: &JobResult,
    names: &[String],
) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let all = || {
        result
            .schema
            .fields()
            .iter()
            .map(|it| it.name().clone())
            .collect()
    };
    let names = if names.is_empty() {
        all()
    } else {
        names.to_vec()
    };
    let mut picked = Vec::new();
    for name in &names {
        // A user's own query may lack a column that the meaning names.
        let Ok(at) = result.schema.index_of(name) else {
            continue;
        };
        let text = !result.schema.field(at).data_type().is_numeric();
        let some = result
            .batches
            .iter()
            .any(|it| it.column(at).null_count() < it.num_rows());
        if some || !text || name == "key" {
            picked.push(at);
        }
    }
    let by = result.parameters.get("by").map_or("key", String::as_str);
    let project = |batch: &RecordBatch| {
        let batch = batch.project(&picked)?;
        let schema = batch.schema();
        let columns = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| {
                if field.name() != "key" {
                    return Ok((field.clone(), array.clone()));
                }
                Ok((
                    Arc::new(Field::new(by, DataType::Utf8, false)),
                    named(array)?,
                ))
            });
        let (fields, columns): (Vec<_>, Vec<_>) = columns
            .collect::<Result<Vec<_>, ArrowError>>()?
            .into_iter()
            .unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    };
    let batches = result
        .batches
        .iter()
        .map(project)
        .collect::<Result<Vec<_>, _>>()?;
    let schema = batches
        .first()
        .map_or(result.schema.clone(), RecordBatch::schema);
    Ok((schema, batches))
}

/// A key for people: what has no name is told so.
fn named(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let texts = cast(array, &DataType::Utf8)?;
    let texts = texts
        .as_string::<i32>()
        .iter()
        .map(|it| Some(it.unwrap_or("(none)")));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    title: &'a str,
    meaning: &'a str,
    unit: &'a str,
    counts: &'a str,
    parameters: &'a BTreeMap<String, String>,
    window: Span,
    delta_version: u64,
    /// RFC 3339; `everything`, `nothing`, or null where it is not known.
    complete_through: Option<String>,
    coverage_pct: Option<String>,
    beside: Option<Facts>,
    sql: &'a str,
    rows: Vec<Box<RawValue>>,
}

#[derive(Serialize)]
struct Span {
    /// Inclusive.
    since: String,
    /// Exclusive.
    until: String,
    zone: String,
}

fn json(out: &mut dyn Write, result: &JobResult) -> Result<(), WriteError> {
    let mut rows = Vec::new();
    for batch in &result.batches {
        for row in json_rows(batch)? {
            let row = RawValue::from_string(row);
            rows.push(row.map_err(|error| ArrowError::JsonError(error.to_string()))?);
        }
    }
    let meta = &result.job.meta;
    let document = Document {
        job: &result.job.name,
        title: &meta.title,
        meaning: &meta.meaning,
        unit: &meta.unit,
        counts: &meta.counts,
        parameters: &result.parameters,
        window: Span {
            since: since(result),
            until: until(result),
            zone: result.window.zone.name().to_owned(),
        },
        delta_version: result.version,
        complete_through: match result.complete_through {
            CompleteThrough::Unknown => None,
            CompleteThrough::Nothing => Some("nothing".into()),
            CompleteThrough::Everything => Some("everything".into()),
            CompleteThrough::Before(time) => Some(time.to_rfc3339_opts(SecondsFormat::Secs, true)),
        },
        coverage_pct: result
            .facts
            .and_then(|it| it.coverage_permille())
            .map(|permille| super::decimal_text(i128::from(permille), 1)),
        beside: result.facts,
        sql: &result.sql,
        rows,
    };
    let text = serde_json::to_string_pretty(&document)
        .map_err(|error| ArrowError::JsonError(error.to_string()))?;
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}
