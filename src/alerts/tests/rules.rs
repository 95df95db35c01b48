//! What the rules together make of a lake: one alert for a failing provider, none for a quiet night.

use std::collections::BTreeMap;

use super::*;

/// An attempt that ended so many seconds after the start; 10,000 tokens cost a tenth of a dollar.
fn attempt(service: &str, request: &str, number: i64, second: i64, more: Value) -> String {
    let mut event = json!({
        "request_id": request,
        "attempt": number,
        "model": "gpt-4o",
        "provider": "openai",
        "service": service,
        "ts": START_MS + second * 1_000,
        "decision": "success",
        "status_code": 200,
        "input_tokens": 0,
        "output_tokens": 10_000,
    });
    if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
        event.extend(more);
    }
    event.to_string()
}

/// An answer of no use that was paid for, a dollar.
fn unusable(decision: &str) -> Value {
    json!({ "decision": decision, "error_type": "JSONDecodeError", "output_tokens": 100_000 })
}

fn lake_of(lines: &[String]) -> Lake {
    let lake = Lake::new();
    fs::write(
        lake.folder.path().join("events.jsonl"),
        lines.join("\n") + "\n",
    )
    .unwrap();
    ingested(lake)
}

/// How many alerts of each rule and state were told, each once.
fn told(sent: &[Sent]) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for it in sent {
        let data = data(it);
        let words = [&data["rule"], &data["state"]].map(|it| it.as_str().unwrap().to_owned());
        ids.insert(it.id.clone(), words.join(" "));
    }
    let mut counts = BTreeMap::new();
    for word in ids.into_values() {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected
        .iter()
        .map(|(word, n)| ((*word).to_owned(), *n))
        .collect()
}

/// Thirty services, each 200 operations for 20 dollars, and in minute 240 twelve operations of
/// three answers of no use: 24 retries for 24 dollars, of 56 in all. 720 retries in a minute and
/// none of them delivered.
#[test]
fn a_failing_provider_of_thirty_services_is_one_alert() {
    let mut lines = Vec::new();
    for service in 0..30 {
        let name = format!("service-{service:02}");
        for n in 0..200 {
            lines.push(attempt(
                &name,
                &format!("r{service}-{n}"),
                0,
                n * 60,
                json!({}),
            ));
        }
        for n in 0..12 {
            let request = format!("f{service}-{n}");
            for (number, decision) in [(0, "retry"), (1, "retry"), (2, "give_up")] {
                let second = 240 * 60 + n + number * 12;
                lines.push(attempt(&name, &request, number, second, unusable(decision)));
            }
        }
    }
    let lake = lake_of(&lines);
    lake.pass(241 * MINUTE_MS);
    let mut alerting = lake.alerting_with(&[], &[]);
    alerting.start_after(START_MS + 240 * MINUTE_MS);
    let first = lake.run_due(&mut alerting, 241);
    assert_eq!(told(&first), counts(&[("retry_storm firing", 1)]));
    let storm = data(&first[0]);
    assert_eq!(
        (&storm["entity"], &storm["severity"], &storm["provider"]),
        (&json!("openai"), &json!("critical"), &json!("openai"))
    );
    // 720 dollars in the minute.
    assert_eq!(
        storm["usd_per_hour"],
        json!({ "confirmed": "43200", "expected": "43200", "ceiling": "43200" })
    );
    assert_eq!(
        storm["summary"],
        "Retry storm, provider openai: 720 a minute, at least 100 a minute (1m)"
    );
    let all = lake.outbox();
    assert_eq!((all.all_firing().count(), all.unsent().len()), (32, 0));
    let kept_back = all
        .all_firing()
        .filter(|row| row.data.contains("inhibited_by"));
    assert_eq!(kept_back.count(), 31);

    // No retry any more: the storm ends when nothing was heard of the provider for three minutes,
    // and what it kept back is told. The outage of the model goes on, and keeps back the services.
    let mut alerting = lake.alerting_with(&[], &[]);
    lake.pass(3 * MINUTE_MS);
    let next = lake.run_due(&mut alerting, 244);
    let expected = [
        ("doomed_outage firing", 1),
        ("retry_storm firing", 1),
        ("retry_storm resolved", 1),
    ];
    assert_eq!(told(&next), counts(&expected));
    // It ends after three windows of five minutes without a word.
    lake.pass(12 * MINUTE_MS);
    let last = lake.run_due(&mut alerting, 256);
    let expected = [
        ("doomed_outage firing", 1),
        ("doomed_outage resolved", 1),
        ("retry_share firing", 19),
    ];
    assert_eq!(told(&last), counts(&expected), "twenty at a tick");
    lake.pass(MINUTE_MS);
    let rest = lake.run_due(&mut alerting, 256);
    assert_eq!(told(&rest), counts(&[("retry_share firing", 20)]));
}

/// A hundred and twenty retries in a minute that help nobody, of the provider's one service; after
/// it every call is answered at once. Nothing is retried any more, and that is how both end.
#[test]
fn an_outage_ends_when_nobody_retries() {
    let mut lines = vec![attempt("checkout", "first", 0, 0, json!({}))];
    for n in 0..60 {
        let request = format!("f{n}");
        for (number, decision) in [(0, "retry"), (1, "retry"), (2, "give_up")] {
            let second = 10 * 60 + n / 2 + number * 10;
            lines.push(attempt(
                "checkout",
                &request,
                number,
                second,
                unusable(decision),
            ));
        }
    }
    for n in 0..10 {
        lines.push(attempt(
            "checkout",
            &format!("g{n}"),
            0,
            (11 + n) * 60,
            json!({}),
        ));
    }
    let lake = lake_of(&lines);
    lake.pass(30 * MINUTE_MS);
    let mut alerting = lake.alerting_with(&["retry_share", "repeated_billing"], &[]);
    alerting.start_after(START_MS + 10 * MINUTE_MS);
    let both = [("doomed_outage firing", 1), ("retry_storm firing", 1)];
    let fired = lake.run_due(&mut alerting, 11);
    assert_eq!(told(&fired), counts(&both));
    let storm = fired
        .iter()
        .map(data)
        .find(|it| it["rule"] == "retry_storm");
    let is_service = |storm: &Value| {
        (&storm["entity"], &storm["entity_kind"]) == (&json!("checkout"), &json!("service"))
    };
    assert!(storm.is_some_and(|it| is_service(&it)));
    // The retries of minute 10 leave the last minute with tick 12, the last five with tick 16.
    for (minute, expected) in [
        (12, Some("retry_storm resolved")),
        (15, None),
        (16, Some("doomed_outage resolved")),
    ] {
        let sent = lake.run_due(&mut alerting, minute);
        let expected = expected.map(|it| (it, 1));
        assert_eq!(told(&sent), counts(expected.as_slice()), "{minute}");
        assert!(sent.iter().all(|it| data(it)["ends_reason"] == "recovered"));
        let mut storms = sent
            .iter()
            .map(data)
            .filter(|it| it["rule"] == "retry_storm");
        assert!(storms.all(|it| is_service(&it)));
    }
}

/// Four operations in a night, three of them retried and dear, and a health check a minute.
#[test]
fn a_quiet_night_and_health_checks_fire_nothing() {
    let mut lines = Vec::new();
    for n in 0..4 {
        let request = format!("night-{n}");
        let second = n * 7_200;
        if n > 0 {
            lines.push(attempt("night", &request, 0, second, unusable("retry")));
        }
        lines.push(attempt(
            "night",
            &request,
            i64::from(n > 0),
            second + 9,
            json!({}),
        ));
    }
    for n in 0..1_440 {
        let more = json!({ "scenario": "probe", "output_tokens": 1,
            "prompt_hash": format!("sha256:{:064x}", 7) });
        lines.push(attempt("probe", &format!("p{n}"), 0, n * 60, more));
    }
    let lake = lake_of(&lines);
    lake.pass(24 * 60 * MINUTE_MS);
    let mut alerting = lake.not_begun(&[], &[], lake.clock());
    let sent = lake.runtime.block_on(alerting.run_to_end()).unwrap();
    assert_eq!(told(&sent), counts(&[]));
}

/// 20 attempts of a model without a price; 200 answers of a service, 150 with usage.
#[test]
fn what_is_not_known_is_told_of() {
    let mut lines = Vec::new();
    for n in 0..20 {
        let more = json!({ "model": "nobody-knows-1" });
        lines.push(attempt("search", &format!("u{n}"), 0, n, more));
    }
    for n in 0..200 {
        let more = match n % 4 {
            0 => json!({ "output_tokens": null, "input_tokens": null }),
            _ => json!({}),
        };
        lines.push(attempt("voice", &format!("v{n}"), 0, n, more));
    }
    let lake = lake_of(&lines);
    lake.pass(15 * MINUTE_MS);
    let sent = lake.run_due(&mut lake.alerting_with(&[], &[]), 15);
    let expected = [("unpriced firing", 1), ("usage_coverage firing", 1)];
    assert_eq!(told(&sent), counts(&expected));
    let summaries = sent.iter().map(|it| data(it)["summary"].clone());
    let mut summaries = summaries
        .map(|it| it.as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    summaries.sort();
    assert_eq!(
        summaries,
        [
            "Unpriced attempts, model nobody-knows-1: 20, at least 20 (24h)",
            "Usage coverage, service voice: 75 %, under 80 % (24h)",
        ]
    );
}
