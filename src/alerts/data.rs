//! A transition and what was asked → the alert's data (`schemas/alert.v1.json`).
//!
//! An alert proves itself: it holds its figures and bounds, the SQL as run with the version of
//! the lake, and the rows.

use arrow::array::RecordBatch;
use retrytoll_core::alert::{Side, State, Transition};
use retrytoll_core::money::SCALE;
use retrytoll_jobs::render::decimal_text;
use retrytoll_jobs::{JobResult, Session, Window};
use serde_json::{Map, Value, json};

use super::cell::{self, time_text};
use super::watch::{Answer, Watch, ask, span};
use crate::config::usable::Alerts;

/// The rows of the answer that stand in an alert.
const ROWS_MAX: usize = 5;
const RETRY_SHARE_TOP: &str = include_str!("../../sql/alerts/retry_share_top.sql");
/// Counts of a row that tell what its figures rest on.
const COUNTS: [&str; 7] = [
    "attempts",
    "retries",
    "first_attempts",
    "unnumbered",
    "unpriced",
    "tokens_unknown",
    "no_estimate",
];

/// What is told beside the answer itself.
pub struct Evidence {
    /// The same job over the last hour.
    hour: Answer,
    top: Vec<RecordBatch>,
}

impl Evidence {
    /// Asks for it; only where something changed.
    pub async fn gather(watch: &Watch, session: &Session, window: &Window) -> anyhow::Result<Self> {
        let hour = watch.ask(session, &span("1h", window.until)?).await?;
        let top = match watch.kind.as_str() {
            "service" => ask(session, RETRY_SHARE_TOP, window).await?,
            _ => Vec::new(),
        };
        Ok(Self { hour, top })
    }
}

/// The data of a transition, JSON.
pub fn of(
    transition: &Transition,
    watch: &Watch,
    answer: &Answer,
    evidence: &Evidence,
    config: &Alerts,
    stale: bool,
) -> String {
    let found = answer.entities.get(&transition.entity);
    let batch = found.map(|found| (&answer.result.batches[found.batch], found.row));
    let mut data = head(transition, config, stale);
    let meta = &watch.job.meta;
    data.extend(map(json!({
        "title": meta.title,
        "summary": summary(transition, watch, answer),
        "entity_kind": watch.kind,
        "counted": meta.counts,
        "window": { "since": shown(&answer.result.window.since), "until": shown(&answer.result.window.until) },
        "bounds": bounds(watch, batch),
        "usd_per_hour": usd_per_hour(&evidence.hour, &transition.entity),
        "counts": batch.map(|(batch, row)| counts(batch, row)),
        "coverage_pct": batch.map_or(Value::Null, |(batch, row)| cell::value(batch, "coverage_pct", row)),
        "top": top(evidence, found.and_then(|it| it.name.as_deref()), config),
        "action": meta.action,
        "job": watch.job.name,
        "sql": answer.result.sql,
        "delta_version": answer.result.version,
        "rows": rows(watch, &answer.result, batch),
    })));
    Value::Object(data).to_string()
}

/// The data of an alert whose rule is gone: there is nothing to ask.
pub fn without_rule(transition: &Transition, config: &Alerts) -> String {
    let mut data = head(transition, config, false);
    let summary = format!(
        "{} of {}: the rule is off",
        transition.rule, transition.entity
    );
    data.insert("summary".to_owned(), summary.into());
    Value::Object(data).to_string()
}

fn head(transition: &Transition, config: &Alerts, stale: bool) -> Map<String, Value> {
    let at = time_text(transition.at_ms);
    let ends_at = (transition.state == State::Resolved).then(|| at.clone());
    map(json!({
        "dedup_key": transition.dedup_key,
        "id": transition.id(),
        "transition": transition.number,
        "rule": transition.rule,
        "entity": transition.entity,
        "state": transition.state.word(),
        "severity": transition.severity.word(),
        "starts_at": time_text(transition.starts_at_ms),
        "ends_at": ends_at,
        "ends_reason": transition.ends_reason.map(|it| it.word()),
        "at": at,
        "stale": stale,
        "owner": config.owner,
        "runbook_url": config.runbook_url,
    }))
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn shown(time: &chrono::DateTime<chrono::Utc>) -> String {
    time_text(time.timestamp_millis())
}

/// One line for a pager: the first bound's figure, to two digits.
fn summary(transition: &Transition, watch: &Watch, answer: &Answer) -> String {
    let subject = format!(
        "{}, {} {}",
        watch.job.meta.title, watch.kind, transition.entity
    );
    if let Some(reason) = transition.ends_reason {
        return format!("{subject}: resolved, {}", reason.word().replace('_', " "));
    }
    let found = answer.entities.get(&transition.entity);
    let told = watch
        .rule
        .bounds
        .iter()
        .rev()
        .find(|bound| bound.side == Side::Over);
    let value = told.zip(found).and_then(|(bound, found)| {
        let batch = &answer.result.batches[found.batch];
        Some((bound, cell::figure(batch, &bound.figure, found.row)?))
    });
    let Some((bound, value)) = value else {
        return subject;
    };
    let unit = if bound.figure.ends_with("_pct") {
        " %"
    } else {
        ""
    };
    let value = retrytoll_core::money::divide_half_even(value, 10_i128.pow(SCALE - 2));
    let (value, limit) = (
        decimal_text(value, 2),
        decimal_text(bound.limit, SCALE as i8),
    );
    format!(
        "{subject}: {value}{unit}, over {limit}{unit} ({})",
        watch.window
    )
}

/// Each figure that the rule looks at, and where it must lie.
fn bounds(watch: &Watch, batch: Option<(&RecordBatch, usize)>) -> Vec<Value> {
    let of = |bound: &retrytoll_core::alert::Bound| {
        let value = batch.and_then(|(batch, row)| cell::figure(batch, &bound.figure, row));
        let text = |value| decimal_text(value, SCALE as i8);
        let side = match bound.side {
            Side::Over => "over",
            Side::AtLeast => "at_least",
        };
        json!({
            "figure": bound.figure,
            "value": value.map(text),
            "side": side,
            "limit": text(bound.limit),
        })
    };
    watch.rule.bounds.iter().map(of).collect()
}

/// The redundant cost of the last hour; 0 where there was nothing in it.
fn usd_per_hour(hour: &Answer, entity: &str) -> Value {
    let found = hour.entities.get(entity);
    let of = |column: &str| match found {
        Some(found) => cell::value(&hour.result.batches[found.batch], column, found.row),
        None => "0".into(),
    };
    json!({
        "confirmed": of("redundant_confirmed_usd"),
        "expected": of("redundant_expected_usd"),
        "ceiling": of("redundant_ceiling_usd"),
    })
}

fn counts(batch: &RecordBatch, row: usize) -> Map<String, Value> {
    let named = COUNTS
        .iter()
        .filter(|name| batch.column_by_name(name).is_some());
    named
        .map(|name| ((*name).to_owned(), cell::value(batch, name, row)))
        .collect()
}

/// Where the cost comes from; dimensions that must not be named are left out.
fn top(evidence: &Evidence, entity: Option<&str>, config: &Alerts) -> Vec<Value> {
    let mut top = Vec::new();
    for batch in &evidence.top {
        for row in 0..batch.num_rows() {
            if cell::text(batch, "service", row).as_deref() == entity {
                let mut part = cell::object(batch, row);
                part.retain(|name, _| !config.hide.contains(name));
                top.push(Value::Object(part));
            }
        }
    }
    top
}

/// The entity's own row, then the first ones of the answer.
fn rows(watch: &Watch, result: &JobResult, own: Option<(&RecordBatch, usize)>) -> Vec<Value> {
    let all = result
        .batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |it| (batch, it)));
    let others = all.filter(|&(batch, row)| {
        own.is_none_or(|(own_batch, own_row)| !(std::ptr::eq(batch, own_batch) && row == own_row))
    });
    let object = |(batch, row)| {
        let mut object = cell::object(batch, row);
        object.retain(|name, _| !(watch.hidden && (name == "key" || *name == watch.kind)));
        Value::Object(object)
    };
    own.into_iter()
        .chain(others)
        .take(ROWS_MAX)
        .map(object)
        .collect()
}
