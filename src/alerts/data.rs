//! A transition and what was asked → the alert's data (`schemas/alert.v1.json`).
//!
//! An alert proves itself: it holds its figures and bounds, the SQL as run with the version of
//! the lake, and the rows.

use arrow::array::RecordBatch;
use retrytoll_core::alert::{Bound, Side, State, Transition};
use retrytoll_core::money::{SCALE, divide_half_even};
use retrytoll_jobs::render::{decimal_text, dollars_text};
use retrytoll_jobs::{JobResult, Session, Window};
use serde_json::{Map, Value, json};

use super::beside::Beside;
use super::cell::{self, time_text};
use super::name::Names;
use super::watch::{Answer, Watch};
use crate::config::usable::Alerts;

/// The rows of the answer that stand in an alert.
const ROWS_MAX: usize = 5;
/// Counts of a row that tell what its figures rest on.
const COUNTS: [&str; 16] = [
    "operations",
    "attempts",
    "retries",
    "retries_per_minute",
    "delivered",
    "services",
    "first_attempts",
    "confirmed_operations",
    "likely_operations",
    "answers",
    "answers_with_usage",
    "unnumbered",
    "unpriced",
    "tokens_unknown",
    "no_estimate",
    "cost_unknown",
];

/// What is told beside the answer itself.
pub struct Evidence {
    hour: Beside,
    top: Beside,
}

impl Evidence {
    /// Asks for it; only where something changed.
    pub async fn gather(watch: &Watch, session: &Session, window: &Window) -> anyhow::Result<Self> {
        Ok(Self {
            hour: Beside::hour(session, &watch.kind, window.until).await?,
            top: Beside::top(session, &watch.kind, window).await?,
        })
    }
}

/// The data of a transition, JSON. `kind` is what its entity is.
pub fn of(
    transition: &Transition,
    kind: &str,
    watch: &Watch,
    answer: &Answer,
    evidence: &Evidence,
    config: &Alerts,
    stale: bool,
) -> String {
    let row = answer.row(&transition.entity);
    let found = answer.entities.get(&transition.entity);
    let key = found.and_then(|it| it.key.as_deref());
    let mut data = head(transition, config, stale);
    let meta = &watch.job.meta;
    let top = found.map_or_else(Vec::new, |_| top(evidence, key));
    let provider = provider(watch, row, key, &top, config);
    let cause = top.first().map(|part| cause(part, config));
    data.extend(map(json!({
        "title": meta.title,
        "summary": summary(transition, kind, watch, row),
        "entity_kind": kind,
        "provider": provider,
        "counted": meta.counts,
        "window": { "since": shown(&answer.result.window.since), "until": shown(&answer.result.window.until) },
        "bounds": bounds(&watch.rule.bounds, row),
        "baseline": row.map(|(batch, row)| cell::value(batch, "median_per_minute", row)),
        "usd_per_hour": usd_per_hour(row, &evidence.hour, key),
        "counts": row.map(|(batch, row)| counts(batch, row)),
        "coverage_pct": row.map_or(Value::Null, |(batch, row)| cell::value(batch, "coverage_pct", row)),
        "likely_cause": cause,
        "top": top.into_iter().map(|part| without_hidden(part, config)).collect::<Vec<_>>(),
        "action": meta.action,
        "job": watch.job.name,
        "sql": answer.result.sql,
        "delta_version": answer.result.version,
        "rows": rows(watch, &answer.result, row, config),
    })));
    Value::Object(data).to_string()
}

/// The data of an alert whose rule is gone: there is nothing to ask. `kind` is what its entity is.
pub fn without_rule(transition: &Transition, kind: Option<String>, config: &Alerts) -> String {
    let mut data = head(transition, config, false);
    data.extend(kind.map(|it| ("entity_kind".to_owned(), it.into())));
    let summary = format!(
        "{} of {}: the rule is off",
        transition.rule, transition.entity
    );
    data.insert("summary".to_owned(), summary.into());
    Value::Object(data).to_string()
}

/// What every alert says.
pub fn head(transition: &Transition, config: &Alerts, stale: bool) -> Map<String, Value> {
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

/// The fields of an object.
pub fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn shown(time: &chrono::DateTime<chrono::Utc>) -> String {
    time_text(time.timestamp_millis())
}

/// One line for a pager, with one figure and its bound.
fn summary(
    transition: &Transition,
    kind: &str,
    watch: &Watch,
    row: Option<(&RecordBatch, usize)>,
) -> String {
    let subject = format!("{}, {kind} {}", watch.job.meta.title, transition.entity);
    if let Some(reason) = transition.ends_reason {
        return format!("{subject}: resolved, {}", reason.word().replace('_', " "));
    }
    let headline = watch.headline.as_deref();
    let mut bounds = watch.rule.bounds.iter();
    let told = match headline {
        Some(figure) => bounds.find(|bound| bound.figure == figure),
        None => bounds.next(),
    };
    let value = told
        .zip(row)
        .and_then(|(bound, (batch, row))| Some((bound, cell::figure(batch, &bound.figure, row)?)));
    let Some((bound, value)) = value else {
        return subject;
    };
    let shown = |value| shown_figure(&bound.figure, value);
    let (value, limit) = (shown(value), shown(bound.limit));
    let side = match bound.side {
        Side::Over => "over",
        Side::AtLeast => "at least",
        Side::Under => "under",
    };
    format!("{subject}: {value}, {side} {limit} ({})", watch.window)
}

/// A figure to two digits, with its unit.
fn shown_figure(name: &str, value: i128) -> String {
    if name.ends_with("_usd") {
        return dollars_text(value);
    }
    let rounded = divide_half_even(value, 10_i128.pow(SCALE - 2));
    let text = decimal_text(rounded, 2);
    match name {
        _ if name.ends_with("_pct") => format!("{text} %"),
        _ if name.ends_with("_per_minute") => format!("{text} a minute"),
        _ => text,
    }
}

/// Each figure that the rule looks at, and where it must lie.
fn bounds(bounds: &[Bound], row: Option<(&RecordBatch, usize)>) -> Vec<Value> {
    let of = |bound: &Bound| {
        let value = row.and_then(|(batch, row)| cell::figure(batch, &bound.figure, row));
        let text = |value| decimal_text(value, SCALE as i8);
        let side = match bound.side {
            Side::Over => "over",
            Side::AtLeast => "at_least",
            Side::Under => "under",
        };
        json!({
            "figure": bound.figure,
            "value": value.map(text),
            "side": side,
            "limit": text(bound.limit),
        })
    };
    bounds.iter().map(of).collect()
}

/// The burn of a storm; else the redundant cost of the last hour, 0 where there was nothing in it.
fn usd_per_hour(row: Option<(&RecordBatch, usize)>, hour: &Beside, key: Option<&str>) -> Value {
    if let Some((batch, row)) = row
        && batch.column_by_name("burn_per_hour_usd").is_some()
    {
        let of = |column| cell::value(batch, column, row);
        return json!({
            "confirmed": of("burn_confirmed_per_hour_usd"),
            "expected": of("burn_per_hour_usd"),
            "ceiling": of("burn_ceiling_per_hour_usd"),
        });
    }
    let text = |value| decimal_text(value, SCALE as i8);
    let of = |column| hour.figure(key, column).map(text);
    json!({
        "confirmed": of("confirmed"),
        "expected": of("expected"),
        "ceiling": of("ceiling"),
    })
}

fn counts(batch: &RecordBatch, row: usize) -> Map<String, Value> {
    let is_count = |name: &&&str| {
        let column = batch.column_by_name(name);
        column.is_some_and(|it| it.data_type().is_integer())
    };
    let named = COUNTS.iter().filter(is_count);
    named
        .map(|name| ((*name).to_owned(), cell::value(batch, name, row)))
        .collect()
}

/// Where the cost comes from, what costs most first.
fn top(evidence: &Evidence, key: Option<&str>) -> Vec<Map<String, Value>> {
    let parts = evidence.top.of(key);
    let parts = parts.map(|(batch, row)| cell::object(batch, row));
    let mut parts = parts.collect::<Vec<_>>();
    for part in &mut parts {
        part.remove("entity");
        part.remove("place");
    }
    parts
}

/// The provider that most of it comes from, as it may be named.
fn provider(
    watch: &Watch,
    row: Option<(&RecordBatch, usize)>,
    key: Option<&str>,
    top: &[Map<String, Value>],
    config: &Alerts,
) -> Option<String> {
    let of_row = |(batch, row)| cell::text(batch, "provider", row);
    let of_top = || Some(top.first()?.get("provider")?.as_str()?.to_owned());
    let provider = match watch.kind.as_str() {
        "provider" => key.map(ToOwned::to_owned),
        _ => row.and_then(of_row).or_else(of_top),
    }?;
    let names = Names::of("provider", &[], &config.hide);
    Some(names.shown(Some(&provider)))
}

/// What most of the cost comes from, in words.
fn cause(part: &Map<String, Value>, config: &Alerts) -> String {
    let named = |name: &str| {
        let hidden = config.hide.iter().any(|it| it == name);
        let value = part.get(name).and_then(Value::as_str);
        value.filter(|_| !hidden)
    };
    let mut text = match named("error_class") {
        Some(class) => format!("retries after {class}"),
        None => "retries".to_owned(),
    };
    for name in ["model", "provider", "service", "tenant"] {
        if let Some(value) = named(name) {
            text.push_str(&format!(", {name} {value}"));
        }
    }
    text
}

fn without_hidden(mut part: Map<String, Value>, config: &Alerts) -> Value {
    part.retain(|name, _| !config.hide.contains(name));
    Value::Object(part)
}

/// The entity's own row, then the first ones of the answer.
fn rows(
    watch: &Watch,
    result: &JobResult,
    own: Option<(&RecordBatch, usize)>,
    config: &Alerts,
) -> Vec<Value> {
    let all = result
        .batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |it| (batch, it)));
    let others = all.filter(|&(batch, row)| {
        own.is_none_or(|(own_batch, own_row)| !(std::ptr::eq(batch, own_batch) && row == own_row))
    });
    let object = |(batch, row)| {
        let mut object = cell::object(batch, row);
        let names_it = |name: &str| name == "key" || name == "entity" || name == watch.kind;
        object.retain(|name, _| {
            !(config.hide.contains(name) || watch.names.hidden() && names_it(name))
        });
        Value::Object(object)
    };
    own.into_iter()
        .chain(others)
        .take(ROWS_MAX)
        .map(object)
        .collect()
}
