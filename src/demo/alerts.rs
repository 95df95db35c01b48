//! alerts as a receiver gets them, CloudEvents → a block of text for whoever is on call.

use std::collections::BTreeSet;

use retrytoll_core::money::{SCALE, parse_rounded};
use retrytoll_jobs::render::{dollars_text, wrap};
use serde_json::Value;

/// What stands before the text of a line.
const INDENT: usize = 16;

/// Each alert once, in the order in which it came, in lines of at most `width`; a repetition has the
/// same id. What is no alert is shown as it is.
pub fn text(messages: &[String], width: usize) -> String {
    let mut ids = BTreeSet::new();
    let mut out = String::new();
    for message in messages {
        let event: Value = serde_json::from_str(message).unwrap_or_default();
        let Some(id) = event["id"].as_str() else {
            out.push_str(&format!("  not an alert: {message}\n"));
            continue;
        };
        if ids.insert(id.to_owned()) {
            out.push_str(&alert(&event["data"], width));
        }
    }
    out
}

fn alert(data: &Value, width: usize) -> String {
    let word = |name: &str| data[name].as_str().unwrap_or("-").to_owned();
    let (at, zone) = (word("at").replace('T', " "), " UTC");
    let at = at
        .strip_suffix('Z')
        .map_or(at.clone(), |it| format!("{it}{zone}"));
    let mut out = format!(
        "  {:8}  {at}  {}  {}\n",
        word("state").to_uppercase(),
        word("severity"),
        word("entity")
    );
    let mut line = |name: &str, text: String| {
        let mut name = name;
        for part in wrap(&text, width - INDENT) {
            out.push_str(&format!("    {name:10}  {part}\n"));
            name = "";
        }
    };
    line("what", word("summary"));
    let fires = data["state"] == "firing";
    // What is only to be known costs nothing by itself.
    if fires && data["severity"] != "info" {
        let usd = &data["usd_per_hour"];
        line(
            "costs",
            format!(
                "{} an hour, {} of it confirmed, {} at most",
                dollars(&usd["expected"]),
                dollars(&usd["confirmed"]),
                dollars(&usd["ceiling"])
            ),
        );
        if let Some(part) = data["top"].get(0) {
            line("most of it", part_text(part));
        }
    }
    if fires {
        line("do", word("action"));
    }
    out.push('\n');
    out
}

fn part_text(part: &Value) -> String {
    let names = ["model", "tenant", "error_class"];
    let names = names.iter().filter_map(|name| part[*name].as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{names}: {} {}, {}; the costliest {}",
        part["retries"],
        if part["retries"] == 1 {
            "retry"
        } else {
            "retries"
        },
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
        let fires = json!({"id": "1", "data": {
            "state": "firing", "severity": "warning", "entity": "checkout",
            "at": "2026-11-20T03:20:00Z",
            "summary": "Retry-cost share, service checkout: 10 %, over 5 % (24h)",
            "usd_per_hour": {"confirmed": "6", "expected": "6.505", "ceiling": null},
            "top": [
                {"model": "gpt-4o", "tenant": null, "error_class": "read", "retries": 20,
                 "retry_expected_usd": "20", "request_id": "r0", "server_request_id": null,
                 "client_request_id": "r0-1"},
                {"model": "gpt-4o", "tenant": "acme", "error_class": "none", "retries": 2,
                 "retry_expected_usd": "0.5", "request_id": "r1", "server_request_id": "srv_1",
                 "client_request_id": "r1-1"},
            ],
            "action": "Cap the retries of this service, and then look for what fails.",
        }})
        .to_string();
        let ends = json!({"id": "2", "data": {
            "state": "resolved", "severity": "warning", "entity": "checkout",
            "at": "2026-11-20T04:00:00Z",
            "summary": "Retry-cost share, service checkout: resolved, recovered",
            "usd_per_hour": {"confirmed": "0", "expected": "0", "ceiling": "0"},
            "top": [], "action": "Cap the retries of this service.",
        }})
        .to_string();
        let expected = "  FIRING    2026-11-20 03:20:00 UTC  warning  checkout
    what        Retry-cost share, service checkout: 10 %, over 5 %
                (24h)
    costs       $6.50 an hour, $6.00 of it confirmed, an unknown
                sum at most
    most of it  gpt-4o, read: 20 retries, $20.00; the costliest
                r0, sent as r0-1
    do          Cap the retries of this service, and then look for
                what fails.

  RESOLVED  2026-11-20 04:00:00 UTC  warning  checkout
    what        Retry-cost share, service checkout: resolved,
                recovered

  not an alert: {}
";
        let messages = [fires.clone(), fires, ends, "{}".into()];
        assert_eq!(text(&messages, 66), expected);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let part = json!({"model": "gpt-4o", "error_class": "none", "retries": 1,
            "retry_expected_usd": null, "request_id": "r1", "server_request_id": "srv_1"});
        let expected =
            "gpt-4o, none: 1 retry, an unknown sum; the costliest r1, the provider's srv_1";
        assert_eq!(part_text(&part), expected);
    }
}
