//! alerts as a receiver gets them, CloudEvents → a block of text for whoever is on call.

use std::collections::BTreeSet;

use retrytoll_core::money::{SCALE, parse_rounded};
use retrytoll_jobs::render::{dollars_text, percent_text};
use serde_json::Value;

/// Each alert once, in the order in which it came; a repetition has the same id. What is no alert
/// is shown as it is.
pub fn text(messages: &[String]) -> String {
    let mut ids = BTreeSet::new();
    let mut out = String::new();
    for message in messages {
        let event: Value = serde_json::from_str(message).unwrap_or_default();
        let Some(id) = event["id"].as_str() else {
            out.push_str(&format!("  not an alert: {message}\n"));
            continue;
        };
        if ids.insert(id.to_owned()) {
            out.push_str(&alert(&event["data"]));
        }
    }
    out
}

fn alert(data: &Value) -> String {
    let word = |name: &str| data[name].as_str().unwrap_or("-").to_owned();
    let (at, zone) = (word("at").replace('T', " "), " UTC");
    let at = at
        .strip_suffix('Z')
        .map_or(at.clone(), |it| format!("{it}{zone}"));
    let mut out = format!(
        "  {}  {}  {}  {at}\n",
        word("state").to_uppercase(),
        word("severity"),
        word("entity")
    );
    let mut line = |name: &str, text: String| {
        if !text.is_empty() {
            out.push_str(&format!("    {name:10}  {text}\n"));
        }
    };
    line("what", word("summary"));
    let usd = &data["usd_per_hour"];
    line(
        "last hour",
        format!(
            "{} redundant, {} of it confirmed, {} at most",
            dollars(&usd["expected"]),
            dollars(&usd["confirmed"]),
            dollars(&usd["ceiling"])
        ),
    );
    line("rests on", rests_on(data));
    for part in data["top"].as_array().into_iter().flatten().take(2) {
        line("most of it", part_text(part));
    }
    line("do", data["action"].as_str().unwrap_or_default().to_owned());
    out.push('\n');
    out
}

fn rests_on(data: &Value) -> String {
    let count = |name: &str| {
        let found = data["counts"][name].as_i64();
        found.map_or("an unknown number of".to_owned(), |it| it.to_string())
    };
    let coverage = figure(&data["coverage_pct"]).map_or("unknown".to_owned(), percent_text);
    format!(
        "{} attempts, {} retries, usage coverage {coverage}; lake version {}",
        count("attempts"),
        count("retries"),
        data["delta_version"]
    )
}

fn part_text(part: &Value) -> String {
    let names = ["model", "tenant", "error_class"];
    let names = names.iter().filter_map(|name| part[*name].as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{names}: {} retries, {}; the costliest {}",
        part["retries"],
        dollars(&part["retry_expected_usd"]),
        part["request_id"].as_str().unwrap_or("-")
    );
    if let Some(server) = part["server_request_id"].as_str() {
        text.push_str(&format!(", the provider's {server}"));
    } else if let Some(client) = part["client_request_id"].as_str() {
        text.push_str(&format!(", sent as {client}"));
    }
    text
}

fn dollars(value: &Value) -> String {
    figure(value).map_or("an unknown sum".to_owned(), dollars_text)
}

fn figure(value: &Value) -> Option<i128> {
    parse_rounded(value.as_str()?, SCALE).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_alert_is_a_block_and_a_repetition_is_none() {
        let event = json!({"id": "1", "data": {
            "state": "firing", "severity": "warning", "entity": "checkout",
            "at": "2026-11-20T03:20:00Z",
            "summary": "Retry-cost share, service checkout: 10 %, over 5 % (24h)",
            "usd_per_hour": {"confirmed": "6", "expected": "6.505", "ceiling": null},
            "counts": {"attempts": 220, "retries": 20}, "coverage_pct": "99.951",
            "delta_version": 7,
            "top": [
                {"model": "gpt-4o", "tenant": null, "error_class": "read", "retries": 20,
                 "retry_expected_usd": "20", "request_id": "r0", "server_request_id": null,
                 "client_request_id": "r0-1"},
                {"model": "gpt-4o", "tenant": "acme", "error_class": "none", "retries": 2,
                 "retry_expected_usd": "0.5", "request_id": "r1", "server_request_id": "srv_1",
                 "client_request_id": "r1-1"},
            ],
            "action": "Cap them.",
        }})
        .to_string();
        let expected = "  FIRING  warning  checkout  2026-11-20 03:20:00 UTC
    what        Retry-cost share, service checkout: 10 %, over 5 % (24h)
    last hour   $6.50 redundant, $6.00 of it confirmed, an unknown sum at most
    rests on    220 attempts, 20 retries, usage coverage 100.0 %; lake version 7
    most of it  gpt-4o, read: 20 retries, $20.00; the costliest r0, sent as r0-1
    most of it  gpt-4o, acme, none: 2 retries, $0.50; the costliest r1, the provider's srv_1
    do          Cap them.

  not an alert: {}
";
        assert_eq!(text(&[event.clone(), event, "{}".into()]), expected);
    }
}
