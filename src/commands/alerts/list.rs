//! Transitions → the list of what fires and what was resolved.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use retrytoll_core::alert::State;
use retrytoll_core::money::{SCALE, parse_rounded};
use retrytoll_jobs::Format;
use retrytoll_jobs::render::RowWriter;
use serde_json::{Map, Value};

use crate::alerts::Row;
use crate::cli::World;
use crate::notify::standing;
use crate::report::open::stop;
use crate::report::output::{deliver, style};

/// Digits of a sum of dollars.
const DIGITS_MAX: u8 = 38;

/// What fires, the newest first, then what was resolved at this time, ms, or later, likewise: an
/// alert that was resolved twice stands there twice.
pub fn ordered(rows: Vec<Row>, since_ms: i64) -> Vec<Row> {
    let newest = standing(rows.clone(), since_ms);
    let fires = newest
        .into_iter()
        .filter(|row| row.transition.state == State::Firing);
    let resolved = rows
        .into_iter()
        .filter(|row| row.transition.state == State::Resolved && row.transition.at_ms >= since_ms);
    fires.rev().chain(resolved.rev()).collect()
}

/// Writes the list to a file, or to stdout.
pub fn write(
    rows: &[Row],
    format: Format,
    file: Option<&Path>,
    world: &mut World,
) -> anyhow::Result<()> {
    let batch = batch(rows)?;
    let style = style(file, world);
    deliver(file, world.out.as_mut(), |out| {
        let mut writer = RowWriter::new(out, batch.schema(), format, style).map_err(stop)?;
        writer.write(&batch).map_err(stop)?;
        writer.finish().map(drop).map_err(stop)
    })
}

fn batch(rows: &[Row]) -> anyhow::Result<RecordBatch> {
    let data = rows.iter().map(|row| serde_json::from_str(&row.data));
    let data = data.collect::<Result<Vec<Map<String, Value>>, _>>()?;
    let of_data = |name: &str| -> ArrayRef {
        let texts = data.iter().map(|data| data.get(name)?.as_str());
        Arc::new(texts.collect::<StringArray>())
    };
    let texts = |of: &dyn Fn(&Row) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let times = |of: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
        let us = rows.iter().map(|row| Some(of(row)?.saturating_mul(1_000)));
        Arc::new(TimestampMicrosecondArray::from_iter(us).with_timezone("UTC"))
    };
    let usd = data.iter().map(|data| {
        let usd = data.get("usd_per_hour")?.get("expected")?.as_str()?;
        parse_rounded(usd, SCALE).ok()
    });
    let usd = Decimal128Array::from_iter(usd).with_precision_and_scale(DIGITS_MAX, SCALE as i8)?;
    let ended = |row: &Row| row.transition.state == State::Resolved;
    Ok(RecordBatch::try_from_iter_with_nullable([
        (
            "state",
            texts(&|it| Some(it.transition.state.word().into())),
            true,
        ),
        (
            "severity",
            texts(&|it| Some(it.transition.severity.word().into())),
            true,
        ),
        ("rule", texts(&|it| Some(it.transition.rule.clone())), true),
        (
            "entity",
            texts(&|it| Some(it.transition.entity.clone())),
            true,
        ),
        ("since", times(&|it| Some(it.transition.starts_at_ms)), true),
        (
            "ended",
            times(&|it| ended(it).then_some(it.transition.at_ms)),
            true,
        ),
        (
            "why",
            texts(&|it| match it.transition.ends_reason {
                Some(reason) => Some(reason.word().into()),
                None => it.inhibited_by().map(|by| format!("kept back for {by}")),
            }),
            true,
        ),
        ("usd_per_hour", Arc::new(usd) as ArrayRef, true),
        ("summary", of_data("summary"), true),
        ("action", of_data("action"), true),
    ])?)
}

#[cfg(test)]
mod tests {
    use retrytoll_core::alert::{EndsReason, Severity, Transition};
    use retrytoll_jobs::Style;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn row(entity: &str, number: i64, hour: i64, data: &str) -> Row {
        let fires = number % 2 == 1;
        let transition = Transition {
            dedup_key: format!("retry_share/{entity}"),
            number,
            rule: "retry_share".into(),
            entity: entity.into(),
            state: if fires {
                State::Firing
            } else {
                State::Resolved
            },
            severity: Severity::Warning,
            ends_reason: (!fires).then_some(EndsReason::NoData),
            starts_at_ms: if fires { hour } else { hour - 1 } * HOUR_MS,
            at_ms: hour * HOUR_MS,
        };
        Row {
            transition,
            revision: 1,
            data: data.into(),
        }
    }

    #[test]
    fn what_fires_stands_before_what_was_resolved() {
        let fired = r#"{"summary":"10 %","usd_per_hour":{"expected":"6.505"},"action":"Cap it."}"#;
        let rows = vec![
            row("a", 1, 1, "{}"),
            row(
                "b",
                1,
                1,
                r#"{"summary":"old","usd_per_hour":{"expected":null}}"#,
            ),
            row("a", 2, 2, "{}"),
            row("a", 3, 3, "{}"),
            row("a", 4, 4, r#"{"summary":"resolved"}"#),
            row("c", 1, 5, fired),
        ];
        let batch = batch(&ordered(rows, 3 * HOUR_MS)).expect("rows");
        let mut out = Vec::new();
        let style = Style::default();
        let mut writer =
            RowWriter::new(&mut out, batch.schema(), Format::Csv, style).expect("a writer");
        writer.write(&batch).expect("written");
        writer.finish().expect("written");
        let expected = "\
state,severity,rule,entity,since,ended,why,usd_per_hour,summary,action
firing,warning,retry_share,c,1970-01-01T05:00:00Z,,,6.505,10 %,Cap it.
firing,warning,retry_share,b,1970-01-01T01:00:00Z,,,,old,
resolved,warning,retry_share,a,1970-01-01T03:00:00Z,1970-01-01T04:00:00Z,no_data,,resolved,
";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
