//! A notice → alerts of Alertmanager's API v2.
//!
//! All labels together are an alert's identity there, so no figure is among them. A label that
//! another transition of the same alert lacks makes it another alert; the first one then ends by
//! its `endsAt`.

use serde_json::{Map, Value, json};

use super::Notice;
use crate::alert::State;
use crate::timestamp;

/// The path below the server's address.
pub const PATH: [&str; 3] = ["api", "v2", "alerts"];
/// So many sends may fail before a firing alert ends: Prometheus's number.
const SENDS_MISSED_MAX: i64 = 4;

/// The body of a request. What fires ends by itself four `every_ms` after `now_ms` unless it is
/// sent again; what is resolved ended in the past.
#[must_use]
pub fn body(notice: &Notice, now_ms: i64, every_ms: i64) -> String {
    let ends_at_ms = match notice.state {
        State::Firing => now_ms + every_ms * SENDS_MISSED_MAX,
        State::Resolved => notice.at_ms.min(now_ms),
    };
    // Clocks differ, and a start after the end is refused.
    let starts_at_ms = notice.starts_at_ms.min(ends_at_ms);
    let alert = json!({
        "labels": labels(notice),
        "annotations": annotations(notice),
        "startsAt": timestamp::text(starts_at_ms * 1_000),
        "endsAt": timestamp::text(ends_at_ms * 1_000),
    });
    json!([alert]).to_string()
}

fn labels(notice: &Notice) -> Map<String, Value> {
    let kind = notice.text("entity_kind").filter(|kind| is_label(kind));
    let labels = [
        ("alertname", camel_case(&notice.rule)),
        ("severity", notice.severity.word().to_owned()),
        ("source", notice.source.clone()),
        (kind.unwrap_or("entity"), notice.entity.clone()),
    ];
    let named = labels.into_iter().filter(|(_, value)| !value.is_empty());
    named
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// Whether it may stand beside our own labels.
fn is_label(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c == '_';
    name.chars().all(known) && !["alertname", "severity", "source"].contains(&name)
}

/// `retry_share` as Prometheus writes it: `RetryShare`.
fn camel_case(rule: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    rule.split('_').map(word).collect()
}

fn annotations(notice: &Notice) -> Map<String, Value> {
    let all = [
        ("summary", Some(notice.summary())),
        ("description", notice.text("action")),
        ("title", notice.text("title")),
        ("usd_per_hour", notice.usd_per_hour()),
        ("owner", notice.text("owner")),
        ("runbook_url", notice.text("runbook_url")),
        ("ends_reason", notice.text("ends_reason")),
        ("id", Some(notice.id.as_str())),
    ];
    let there = all
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)));
    there
        .map(|(name, text)| (name.to_owned(), text.into()))
        .collect()
}
