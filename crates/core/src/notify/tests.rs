//! Bodies against the services' published schemas, and what they say.

mod queue;

use serde_json::{Value, json};

use super::*;

/// 2026-11-30T05:00:00Z.
const AT_MS: i64 = 1_796_014_800_000;
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// An alert as the topic carries it; `more` goes into its data.
fn event(state: &str, more: Value) -> Value {
    let mut data = json!({
        "dedup_key": "retry_share/checkout", "id": "i1", "transition": 1,
        "rule": "retry_share", "entity": "checkout", "entity_kind": "service",
        "state": state, "severity": "warning",
        "starts_at": "2026-11-30T04:59:00Z", "ends_at": null, "ends_reason": null,
        "at": "2026-11-30T05:00:00Z", "stale": false,
        "title": "Retry-cost share",
        "summary": "Retry-cost share, service checkout: 9.09 %, over 5 % (24h)",
        "usd_per_hour": {"confirmed": "6", "expected": "6.505", "ceiling": null},
        "action": "Cap its retries.", "owner": "team-shop", "runbook_url": "https://example.com/r",
        "sql": "SELECT 1", "rows": [{"key": "checkout"}],
    });
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    json!({
        "specversion": "1.0", "id": "i1", "source": "/retrytoll/g", "type": EVENT_TYPE,
        "subject": "checkout", "time": "2026-11-30T05:00:00Z",
        "datacontenttype": "application/json", "data": data,
    })
}

fn notice(state: &str, more: Value) -> Notice {
    Notice::read(&event(state, more).to_string()).unwrap()
}

/// What `value` breaks of a schema, as far as those of tests/sinks use JSON Schema; end-to-end
/// tests check by a whole implementation.
fn breaks(schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        _ => "another",
    };
    if schema["type"].as_str().is_some_and(|it| it != kind) {
        out.push(format!("{at} is {kind}"));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|it| !it.contains(value))
    {
        out.push(format!("{at} is {value}"));
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        let within = |name: &str, or| schema[name].as_u64().unwrap_or(or);
        if !(within("minLength", 0)..=within("maxLength", u64::MAX)).contains(&length) {
            out.push(format!("{at} has {length} characters"));
        }
        if schema["format"] == "date-time" && crate::timestamp::parse(text).is_none() {
            out.push(format!("{at} is no time: {text}"));
        }
    }
    let names = schema["required"].as_array().into_iter().flatten();
    for name in names.filter_map(Value::as_str) {
        if value.get(name).is_none() {
            out.push(format!("{at} lacks {name}"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(known), _) => breaks(known, inner, &at, out),
            (None, Value::Bool(false)) => out.push(format!("{at} is unknown")),
            (None, any) => breaks(any, inner, &at, out),
        }
        let label = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if schema.get("propertyNames").is_some()
            && (!name.chars().all(label) || name.starts_with(|c: char| c.is_ascii_digit()))
        {
            out.push(format!("{at} is no label"));
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        breaks(&schema["items"], inner, &format!("{at}[]"), out);
    }
}

#[track_caller]
fn checked(schema: &str, body: &str) -> Value {
    let (schema, body) = (
        serde_json::from_str(schema).unwrap(),
        serde_json::from_str::<Value>(body).unwrap(),
    );
    let mut out = Vec::new();
    breaks(&schema, &body, "body", &mut out);
    assert_eq!(out, Vec::<String>::new(), "{body:#}");
    body
}

fn pagerduty(notice: &Notice) -> Value {
    let service = Service::PagerDuty {
        routing_key: KEY.to_owned(),
    };
    let request = service.request(notice, AT_MS);
    assert_eq!(request.content_type, "application/json");
    checked(
        include_str!("../../../../tests/sinks/pagerduty.v2.json"),
        &request.body,
    )
}

fn alertmanager(notice: &Notice, now_ms: i64) -> Value {
    let service = Service::Alertmanager { every_ms: 60_000 };
    let request = service.request(notice, now_ms);
    let body = checked(
        include_str!("../../../../tests/sinks/alertmanager.v2.json"),
        &request.body,
    );
    assert_eq!(body.as_array().unwrap().len(), 1);
    body[0].clone()
}

#[test]
fn the_checker_tells_what_is_wrong() {
    let schema = include_str!("../../../../tests/sinks/pagerduty.v2.json");
    let schema = serde_json::from_str(schema).unwrap();
    let body = json!({
        "routing_key": "short", "event_action": "ring", "extra": 1,
        "payload": {"summary": "", "source": 1, "severity": "warning", "timestamp": "today"},
    });
    let mut out = Vec::new();
    breaks(&schema, &body, "body", &mut out);
    out.sort();
    assert_eq!(
        out,
        [
            "body lacks dedup_key",
            "body.event_action is \"ring\"",
            "body.extra is unknown",
            "body.payload.source is another",
            "body.payload.summary has 0 characters",
            "body.payload.timestamp is no time: today",
            "body.routing_key has 5 characters",
        ]
    );
}

#[test]
fn a_firing_alert_triggers_and_a_resolved_one_resolves() {
    let body = pagerduty(&notice("firing", json!({"severity": "critical"})));
    assert_eq!(body["event_action"], "trigger");
    assert_eq!(body["routing_key"], KEY);
    assert_eq!(body["dedup_key"], "retry_share/checkout");
    assert_eq!(
        body["links"],
        json!([{"href": "https://example.com/r", "text": "Runbook"}])
    );
    let payload = &body["payload"];
    assert_eq!(
        (
            &payload["source"],
            &payload["severity"],
            &payload["timestamp"]
        ),
        (
            &json!("checkout"),
            &json!("critical"),
            &json!("2026-11-30T05:00:00Z")
        )
    );
    assert_eq!(
        payload["summary"],
        "Retry-cost share, service checkout: 9.09 %, over 5 % (24h)"
    );
    assert_eq!(
        payload["custom_details"]["usd_per_hour"]["expected"],
        "6.505"
    );
    assert_eq!(payload["custom_details"]["sql"], "SELECT 1");

    let body = pagerduty(&notice("resolved", json!({"ends_reason": "recovered"})));
    let expected = json!({
        "routing_key": KEY, "event_action": "resolve", "dedup_key": "retry_share/checkout",
    });
    assert_eq!(body, expected);
}

#[test]
fn what_pagerduty_would_refuse_is_cut_or_left_out() {
    // 1,025 characters of two bytes each.
    let long = notice(
        "firing",
        json!({"summary": "ä".repeat(1_025), "entity": ""}),
    );
    let payload = pagerduty(&long)["payload"].clone();
    let summary = payload["summary"].as_str().unwrap();
    assert_eq!(summary, format!("{}…", "ä".repeat(1_023)));
    assert_eq!(payload["source"], "retrytoll");
    let fits = notice("firing", json!({"summary": "ä".repeat(1_024)}));
    assert_eq!(pagerduty(&fits)["payload"]["summary"], "ä".repeat(1_024));

    let large = "x".repeat(300_000);
    let details = |more: Value| {
        let body = pagerduty(&notice("firing", more));
        assert!(body.to_string().len() <= 512_000);
        body["payload"]["custom_details"].clone()
    };
    // Both together are too large: the first row of the answer can be asked again.
    let left = details(json!({"rows": [large], "sql": large}));
    assert_eq!(left["left_out"], json!(["rows"]));
    assert_eq!(left["sql"], large);
    let left = details(json!({"rows": [large], "sql": large, "top": [large, large]}));
    assert_eq!(left["left_out"], json!(["rows", "sql", "top"]));
    assert_eq!(left["title"], "Retry-cost share");
    let left = details(json!({"title": large, "action": large}));
    assert_eq!(left, json!({"id": "i1", "left_out": ["all"]}));
}

#[test]
fn alertmanager_knows_an_alert_by_labels_without_figures() {
    let firing = alertmanager(&notice("firing", json!({})), AT_MS + 1_500);
    let labels = json!({
        "alertname": "RetryShare", "severity": "warning", "source": "/retrytoll/g",
        "service": "checkout",
    });
    assert_eq!(firing["labels"], labels);
    assert_eq!(
        firing["annotations"],
        json!({
            "summary": "Retry-cost share, service checkout: 9.09 %, over 5 % (24h)",
            "description": "Cap its retries.", "title": "Retry-cost share", "id": "i1",
            "usd_per_hour": "6.505", "owner": "team-shop", "runbook_url": "https://example.com/r",
        })
    );
    assert_eq!(firing["startsAt"], "2026-11-30T04:59:00.000Z");
    // Four minutes after now.
    assert_eq!(firing["endsAt"], "2026-11-30T05:04:01.500Z");

    // Other figures, the same labels.
    let more = json!({"summary": "9.5 %", "usd_per_hour": {"expected": null}, "owner": null});
    let again = alertmanager(&notice("firing", more), AT_MS);
    assert_eq!(again["labels"], labels);
    assert_eq!(again["annotations"].get("usd_per_hour"), None);

    let more = json!({"at": "2026-11-30T06:00:00Z", "ends_reason": "recovered"});
    let resolved = notice("resolved", more);
    let hour = 3_600_000;
    let ended = alertmanager(&resolved, AT_MS + 2 * hour);
    assert_eq!(ended["labels"], labels);
    assert_eq!(ended["annotations"]["ends_reason"], "recovered");
    assert_eq!(ended["endsAt"], "2026-11-30T06:00:00.000Z");
    // Our clock is behind that of the events: it ended now, and began no later.
    let ended = alertmanager(&resolved, AT_MS - hour);
    assert_eq!(
        (&ended["startsAt"], &ended["endsAt"]),
        (
            &json!("2026-11-30T04:00:00.000Z"),
            &json!("2026-11-30T04:00:00.000Z")
        )
    );
}

#[test]
fn a_kind_that_is_no_label_of_its_own_is_an_entity() {
    for kind in [json!(null), json!("severity"), json!("model, service")] {
        let told = notice("firing", json!({"entity_kind": kind}));
        let labels = alertmanager(&told, AT_MS)["labels"].clone();
        assert_eq!(
            (&labels["entity"], &labels["severity"]),
            (&json!("checkout"), &json!("warning")),
            "{kind}"
        );
    }
}

#[test]
fn a_webhook_gets_the_event_as_it_came() {
    let body = format!(" {:#}\n", event("firing", json!({})));
    let request = Service::Webhook.request(&Notice::read(&body).unwrap(), AT_MS);
    assert_eq!(request.content_type, "application/cloudevents+json");
    assert_eq!(request.body, body);
    checked(
        include_str!("../../../../tests/sinks/cloudevents.v1.json"),
        &body,
    );
}

#[test]
fn what_is_no_alert_says_why() {
    let without = |name: &str| {
        let mut event = event("firing", json!({}));
        event["data"].as_object_mut().unwrap().remove(name);
        event.to_string()
    };
    let mut other = event("firing", json!({}));
    other["type"] = HEARTBEAT_TYPE.into();
    assert_eq!(Notice::read(&other.to_string()), Err(NoAlert::Heartbeat));
    other["type"] = "dev.retrytoll.alert.v2".into();
    for (body, why) in [
        ("{".to_owned(), "it is no JSON object"),
        ("[]".to_owned(), "it is no JSON object"),
        ("{}".to_owned(), "its type is missing, or of another kind"),
        (
            other.to_string(),
            "its type is \"dev.retrytoll.alert.v2\", not \"dev.retrytoll.alert.v1\": read it with \
             a newer release",
        ),
        (without("at"), "its data.at is missing, or of another kind"),
        (
            event("asleep", json!({})).to_string(),
            "its data.state is missing, or of another kind",
        ),
    ] {
        assert_eq!(Notice::read(&body).unwrap_err().to_string(), why);
    }
}

#[test]
fn a_status_says_whether_to_ask_again() {
    let later = |hold_ms| Answer::Later { hold_ms };
    let pagerduty = Service::PagerDuty {
        routing_key: KEY.to_owned(),
    };
    let alertmanager = Service::Alertmanager { every_ms: 60_000 };
    for (service, status, hold_ms, answer) in [
        (&pagerduty, 202, None, Answer::Accepted),
        (&pagerduty, 200, None, Answer::Refused),
        (&pagerduty, 400, None, Answer::Refused),
        (&pagerduty, 429, Some(7_000), later(Some(7_000))),
        (&pagerduty, 429, Some(i64::MAX), later(Some(WAIT_MS_MAX))),
        (&pagerduty, 500, None, later(None)),
        (&alertmanager, 200, None, Answer::Accepted),
        (&alertmanager, 503, Some(1_000), later(Some(1_000))),
        (&Service::Webhook, 204, None, Answer::Accepted),
        (&Service::Webhook, 301, None, Answer::Refused),
        (&Service::Webhook, 404, Some(1_000), Answer::Refused),
    ] {
        assert_eq!(Answer::of(service, status, hold_ms), answer, "{status}");
    }
}
