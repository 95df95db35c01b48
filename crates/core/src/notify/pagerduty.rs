//! A notice → an event of PagerDuty's Events API v2.

use serde_json::{Map, Value, json};

use super::Notice;
use crate::alert::State;

/// Where events go, unless another region's address is given.
pub const URL: &str = "https://events.pagerduty.com/v2/enqueue";
/// The most characters of a summary.
const SUMMARY_CHARS_MAX: usize = 1_024;
/// The most bytes of an event, 512 KB: larger ones are refused.
const BODY_BYTES_MAX: usize = 512_000;
/// What an event that is too large goes without, in this order: what can be asked again first.
const LEFT_OUT: [&str; 3] = ["rows", "sql", "top"];

/// The event of a notice. `routing_key` is that of the service's integration, 32 characters; it
/// must be the same when the alert ends.
#[must_use]
pub fn body(notice: &Notice, routing_key: &str) -> String {
    let head = json!({
        "routing_key": routing_key,
        "dedup_key": notice.dedup_key,
    });
    if notice.state == State::Resolved {
        return with(&head, json!({ "event_action": "resolve" })).to_string();
    }
    let mut details = notice.data.clone();
    let mut left_out: Vec<&str> = Vec::new();
    for name in LEFT_OUT {
        let body = trigger(&head, notice, &details);
        if body.len() <= BODY_BYTES_MAX {
            return body;
        }
        details.remove(name);
        left_out.push(name);
        details.insert("left_out".to_owned(), left_out.clone().into());
    }
    let body = trigger(&head, notice, &details);
    if body.len() <= BODY_BYTES_MAX {
        return body;
    }
    let mut least = Map::new();
    least.insert("id".to_owned(), notice.id.clone().into());
    least.insert("left_out".to_owned(), json!(["all"]));
    trigger(&head, notice, &least)
}

fn trigger(head: &Value, notice: &Notice, details: &Map<String, Value>) -> String {
    let links = notice
        .text("runbook_url")
        .map(|url| json!([{ "href": url, "text": "Runbook" }]));
    let more = json!({
        "event_action": "trigger",
        "client": "retrytoll",
        "payload": {
            "summary": cut(notice.summary(), SUMMARY_CHARS_MAX),
            "source": cut(of_entity(notice), SUMMARY_CHARS_MAX),
            // Our words for severities are PagerDuty's.
            "severity": notice.severity.word(),
            "timestamp": notice.text("at"),
            "class": notice.rule,
            "custom_details": details,
        },
        "links": links.unwrap_or_else(|| json!([])),
    });
    with(head, more).to_string()
}

/// The affected system must have a name.
fn of_entity(notice: &Notice) -> &str {
    if notice.entity.is_empty() {
        "retrytoll"
    } else {
        &notice.entity
    }
}

fn with(head: &Value, more: Value) -> Value {
    let mut all = head.clone();
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

/// At most so many characters; a text that was cut ends in an ellipsis.
fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept = text.chars().take(chars_max - 1);
    kept.chain(['…']).collect()
}
