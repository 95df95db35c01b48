//! What was found → a text for people.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use retrytoll_core::lint::{Example, Finding, Severity, Wanted};
use retrytoll_jobs::render::{RowWriter, count_text, harmless, wrap};
use retrytoll_jobs::{Format, Style};

use super::Looked;

/// What the records are of: their positions are shown by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Files,
    Topic,
}

/// Where an example lies: `calls.jsonl:12`, by line from 1; in a topic by partition and offset.
#[must_use]
pub fn place(example: &Example, origin: Origin) -> String {
    let Example {
        source,
        partition,
        offset,
        ..
    } = example;
    match origin {
        Origin::Files => format!("{}:{}", source.0, offset + 1),
        Origin::Topic => format!("partition {partition}, offset {offset}"),
    }
}

/// Writes the text. `name` is what was looked at, as `calls.jsonl` or `8 partitions of llm-retries`.
///
/// # Errors
/// Those of writing.
pub fn text(
    out: &mut dyn Write,
    looked: &Looked,
    name: &str,
    origin: Origin,
    style: Style,
) -> anyhow::Result<()> {
    let report = &looked.report;
    writeln!(out, "{}", summary(looked, name))?;
    if report.findings.is_empty() && report.events > 0 {
        writeln!(out, "nothing is wrong with them")?;
    }
    if !report.findings.is_empty() {
        let counts = Severity::ALL.map(|it| {
            let plural = plural(it, report.count(it));
            format!("{} {plural}", report.count(it))
        });
        writeln!(out, "{}\n", counts.join(", "))?;
    }
    for found in &report.findings {
        finding(out, found, origin, style)?;
    }
    if report.events > 0 {
        writeln!(
            out,
            "\nfields that figures need, in % of the attempts that should have them"
        )?;
        coverage(out, looked, style)?;
    }
    Ok(())
}

fn plural(severity: Severity, count: usize) -> &'static str {
    match (severity, count) {
        (Severity::Error, 1) => "error",
        (Severity::Error, _) => "errors",
        (Severity::Warning, 1) => "warning",
        (Severity::Warning, _) => "warnings",
        (Severity::Info, _) => "info",
    }
}

fn some(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count_text(count))
}

/// `2 records are no events`, of the words for one and for many.
fn records_are(count: u64, what: [&str; 2]) -> String {
    let (verb, what) = match count {
        1 => ("is", what[0]),
        _ => ("are", what[1]),
    };
    format!("{} {verb} {what}", some(count, "record"))
}

const EMPTY: [&str; 2] = ["empty"; 2];

/// What was looked at.
fn summary(looked: &Looked, name: &str) -> String {
    let Looked { report, nulls } = looked;
    let name = harmless(name.to_owned());
    if report.events + report.bad == 0 {
        let beside = match nulls {
            0 => String::new(),
            nulls => format!(" ({})", records_are(*nulls, EMPTY)),
        };
        return format!("no events in {name}{beside}: there is nothing to look at");
    }
    let services = report.coverage.len() as u64;
    let mut text = format!(
        "looked at {} of {} in {name}",
        some(report.events, "event"),
        some(services, "service")
    );
    for (count, what) in [(report.bad, ["no event", "no events"]), (*nulls, EMPTY)] {
        if count > 0 {
            text.push_str(&format!("; {}", records_are(count, what)));
        }
    }
    if report.one_request_in > 1 {
        text.push_str(&format!(
            "\noperations were looked at in one of {} requests, {} in all: more do not fit in \
             memory",
            report.one_request_in,
            count_text(report.requests)
        ));
    }
    text
}

/// Where the text of a finding begins: behind its severity and its rule.
const INDENT: usize = 29;
/// A terminal's text is at least so wide, whatever the terminal.
const TEXT_WIDTH_MIN: usize = 40;

fn finding(
    out: &mut dyn Write,
    found: &Finding,
    origin: Origin,
    style: Style,
) -> std::io::Result<()> {
    let service = found.service.as_deref();
    let service = service.map_or(String::new(), |service| format!("{service}: "));
    let counted = found.counted.name();
    let mut seen = match found.of {
        Some(of) => format!(
            "{} of {} {counted}",
            count_text(found.count),
            count_text(of)
        ),
        None => some(found.count, counted.trim_end_matches('s')),
    };
    let examples: Vec<_> = found.examples.iter().map(|it| shown(it, origin)).collect();
    if !examples.is_empty() {
        seen.push_str(&format!(", as {}", examples.join("; ")));
    }
    let mut head = format!("{:<7}  {:<18}  ", found.severity.name(), found.rule);
    let width = style.width.map_or(usize::MAX, |width| {
        width.saturating_sub(INDENT).max(TEXT_WIDTH_MIN)
    });
    let what = format!("{service}{}", found.what);
    for text in [what, seen, format!("mend: {}", found.mend)] {
        for line in wrap(&harmless(text), width) {
            writeln!(out, "{head:INDENT$}{line}")?;
            head.clear();
        }
    }
    Ok(())
}

fn shown(example: &Example, origin: Origin) -> String {
    let place = place(example, origin);
    match example.request_id.as_str() {
        "" => place,
        id => format!("{id} ({place})"),
    }
}

fn coverage(out: &mut dyn Write, looked: &Looked, style: Style) -> anyhow::Result<()> {
    let rows = &looked.report.coverage;
    let services = rows.iter().map(|it| match it.service.as_str() {
        "" => "(none)",
        service => service,
    });
    let attempts = rows.iter().map(|it| i64::try_from(it.attempts).ok());
    let mut fields = vec![
        Field::new("service", DataType::Utf8, false),
        Field::new("attempts", DataType::Int64, true),
    ];
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(services)),
        Arc::new(attempts.collect::<Int64Array>()),
    ];
    for (place, wanted) in Wanted::ALL.into_iter().enumerate() {
        fields.push(Field::new(wanted.name(), DataType::Int64, true));
        let percent = |(has, of): (u64, u64)| {
            let whole = (has * 100).checked_div(of)?;
            i64::try_from(whole).ok()
        };
        let column = rows.iter().map(|it| percent(it.fields[place]));
        columns.push(Arc::new(column.collect::<Int64Array>()));
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    let mut writer = RowWriter::new(out, schema, Format::Table, style)?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(())
}
