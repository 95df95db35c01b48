mod rules;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use retrytoll_core::alert::{Severity, State, Transition};
use retrytoll_jobs::{Catalog, Limits};
use retrytoll_lake::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::event::letter;
use super::outbox::{FENCE_MS_MAX, Outbox};
use super::*;
use crate::commands::ingest::ingest_for_test;
use crate::config::usable::Alerts;

/// 2025-11-20T00:00:00Z.
const START_MS: i64 = 1_763_596_800_000;
const MINUTE_MS: i64 = 60_000;

/// The first is looked at alone where the others are off.
const RULES: [&str; 8] = [
    "retry_share",
    "retry_storm",
    "doomed_outage",
    "repeated_billing",
    "retry_budget",
    "token_budget",
    "usage_coverage",
    "unpriced",
];

struct Lake {
    folder: TempDir,
    now: Arc<AtomicI64>,
    runtime: Runtime,
}

impl Lake {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            now: Arc::new(AtomicI64::new(START_MS)),
            runtime: Runtime::new().unwrap(),
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("lake")
    }

    fn clock(&self) -> Clock {
        let now = Arc::clone(&self.now);
        Clock::new(move || now.load(Ordering::SeqCst))
    }

    fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
    }

    fn outbox(&self) -> Outbox {
        self.runtime
            .block_on(Outbox::open(&self.root(), "g", &self.clock()))
            .unwrap()
    }

    fn outlet(&self) -> AlertOutlet {
        AlertOutlet::file(&self.folder.path().join("alerts.jsonl")).unwrap()
    }

    /// As after a start of the process; no tick is due at the mark [`START_MS`].
    fn alerting(&self, hide: &[&str]) -> Alerting {
        self.alerting_with(&RULES[1..], hide)
    }

    fn alerting_with(&self, off: &[&str], hide: &[&str]) -> Alerting {
        let mut alerting = self.not_begun(off, hide, self.clock());
        alerting.start_after(START_MS);
        alerting
    }

    fn not_begun(&self, off: &[&str], hide: &[&str], clock: Clock) -> Alerting {
        let alerts = Alerts {
            off: off.iter().map(|it| (*it).to_owned()).collect(),
            owner: Some("team-platform".into()),
            hide: hide.iter().map(|it| (*it).to_owned()).collect(),
            reproduce_days: 7,
            ..Alerts::default()
        };
        let settings = AlertingSettings {
            root: self.root(),
            group: "g".into(),
            alerts,
            catalog: Catalog::embedded(),
            limits: Limits::default(),
            tick_ms: MINUTE_MS,
            rollup_rows: 20_000,
        };
        Alerting::new(settings, self.outlet(), clock).unwrap()
    }

    fn run_due(&self, alerting: &mut Alerting, minute: i64) -> Vec<Sent> {
        self.runtime
            .block_on(alerting.run_due(Some(START_MS + minute * MINUTE_MS)))
            .unwrap()
    }

    /// What the receiver has: ids in order.
    fn received(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("alerts.jsonl")).unwrap();
        let id = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["id"].as_str().unwrap().to_owned()
        };
        text.lines().map(id).collect()
    }

    /// Entries of the log of `alerts`.
    fn commits(&self) -> usize {
        let log = self.root().join(ALERTS).join("_delta_log");
        let entries = fs::read_dir(log).unwrap().map(|it| it.unwrap().path());
        entries
            .filter(|path| path.extension().is_some_and(|it| it == "json"))
            .count()
    }
}

fn firing(entity: &str) -> (Transition, String) {
    let transition = Transition {
        dedup_key: format!("retry_share/{entity}"),
        number: 1,
        rule: "retry_share".into(),
        entity: entity.into(),
        state: State::Firing,
        severity: Severity::Warning,
        ends_reason: None,
        starts_at_ms: START_MS,
        at_ms: START_MS,
    };
    (
        transition,
        json!({ "summary": format!("share of {entity}") }).to_string(),
    )
}

#[test]
fn a_crash_before_the_send_loses_no_alert() {
    let lake = Lake::new();
    let mut outbox = lake.outbox();
    let id = firing("checkout").0.id();
    lake.runtime
        .block_on(outbox.decide(vec![firing("checkout")]))
        .unwrap();
    drop(outbox);

    let sent = lake.run_due(&mut lake.alerting(&[]), 0);
    assert_eq!(
        sent.iter()
            .map(|it| (it.id.clone(), it.again))
            .collect::<Vec<_>>(),
        [(id.clone(), false)]
    );
    assert_eq!(lake.received(), [id]);
    let outbox = lake.outbox();
    assert!(outbox.unsent().is_empty());
    assert_eq!(
        outbox.alerts.firing().cloned().collect::<Vec<_>>(),
        [firing("checkout").0]
    );
}

#[test]
fn a_crash_before_the_mark_sends_again_under_the_same_id() {
    let lake = Lake::new();
    let mut outbox = lake.outbox();
    lake.runtime
        .block_on(outbox.decide(vec![firing("checkout")]))
        .unwrap();
    let letter = letter(outbox.unsent()[0], "/retrytoll/g", 0).unwrap();
    lake.outlet().send(&[letter]).unwrap();
    drop(outbox);

    let sent = lake.run_due(&mut lake.alerting(&[]), 0);
    assert!(
        !sent[0].again,
        "it was not marked, so nobody knows that it was sent"
    );
    let id = firing("checkout").0.id();
    assert_eq!(lake.received(), [id.clone(), id]);
    assert!(lake.outbox().unsent().is_empty());
}

#[test]
fn what_fires_is_sent_each_minute_under_the_same_id_after_a_fresh_commit() {
    let lake = Lake::new();
    let mut outbox = lake.outbox();
    lake.runtime
        .block_on(outbox.decide(vec![firing("checkout")]))
        .unwrap();
    drop(outbox);
    let mut alerting = lake.alerting(&[]);
    lake.run_due(&mut alerting, 0);
    let commits = lake.commits();
    lake.pass(MINUTE_MS - 1);
    assert_eq!(lake.run_due(&mut alerting, 0), []);
    assert_eq!(lake.commits(), commits, "a quiet look writes nothing");
    lake.pass(1);
    let sent = lake.run_due(&mut alerting, 0);
    assert_eq!((sent.len(), sent[0].again), (1, true));
    assert_eq!(lake.commits(), commits + 1);
    let id = firing("checkout").0.id();
    assert_eq!(lake.received(), [id.clone(), id]);
}

#[test]
fn a_clock_that_goes_on_or_back_neither_repeats_nor_keeps_back() {
    let lake = Lake::new();
    let mut outbox = lake.outbox();
    lake.runtime
        .block_on(outbox.decide(vec![firing("checkout")]))
        .unwrap();
    drop(outbox);
    let now = Arc::clone(&lake.now);
    let clock = Clock::new(move || now.fetch_add(7, Ordering::SeqCst));
    let mut alerting = lake.not_begun(&RULES[1..], &[], clock);
    alerting.start_after(START_MS);
    assert_eq!(lake.run_due(&mut alerting, 0).len(), 1);
    assert_eq!(lake.run_due(&mut alerting, 0), []);
    // Set back by an hour: what fires would otherwise be silent for an hour.
    lake.pass(-60 * MINUTE_MS);
    assert_eq!(lake.run_due(&mut alerting, 0).len(), 1);
    assert_eq!(lake.run_due(&mut alerting, 0), []);
}

#[test]
fn a_leader_that_was_replaced_neither_decides_nor_sends() {
    let lake = Lake::new();
    let mut old = lake.outbox();
    let mut new = lake.outbox();
    lake.pass(FENCE_MS_MAX);
    let refused = lake.runtime.block_on(old.fence()).unwrap_err().to_string();
    assert!(refused.contains("leader's place"), "{refused}");
    lake.runtime
        .block_on(new.decide(vec![firing("search")]))
        .unwrap();
    let mut old = new;
    let new = lake.outbox();
    assert_eq!(new.unsent().len(), 1);
    let refused = lake.runtime.block_on(old.decide(vec![firing("checkout")]));
    assert!(refused.is_err());
    assert_eq!(lake.outbox().unsent().len(), 1);
}

#[test]
fn at_most_twenty_go_at_once_and_the_last_says_how_many_wait() {
    let lake = Lake::new();
    let mut outbox = lake.outbox();
    let many = (0..23).map(|n| firing(&format!("s{n:02}"))).collect();
    lake.runtime.block_on(outbox.decide(many)).unwrap();
    drop(outbox);
    let mut alerting = lake.alerting(&[]);
    let sent = lake.run_due(&mut alerting, 0);
    let summary = |sent: &Sent| {
        let event: Value = serde_json::from_str(&sent.body).unwrap();
        event["data"]["summary"].as_str().unwrap().to_owned()
    };
    assert_eq!(sent.len(), 20);
    assert_eq!(summary(&sent[18]), "share of s18");
    assert_eq!(summary(&sent[19]), "share of s19; and 3 more");
    lake.pass(MINUTE_MS - 1);
    assert_eq!(lake.run_due(&mut alerting, 0), [], "no tick is due");
    lake.pass(1);
    let next = lake.run_due(&mut alerting, 0);
    assert_eq!(next.len(), 20, "what waits, and seventeen again");
    let first = next.iter().filter(|it| !it.again).map(summary);
    assert_eq!(
        first.collect::<Vec<_>>(),
        ["share of s20", "share of s21", "share of s22"]
    );
    assert!(lake.outbox().unsent().is_empty());
}

/// An attempt of `checkout` that ended at minute `n` and a half.
fn event(n: i64, attempt: i64, more: Value) -> String {
    let mut event = json!({
        "request_id": format!("r{n}"),
        "attempt": attempt,
        "model": "gpt-4o",
        "service": "checkout",
        "tenant": "acme",
        "ts": START_MS + n * MINUTE_MS + 30_000,
        "prompt_hash": null,
    });
    if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
        event.extend(more);
    }
    event.to_string()
}

/// An operation a minute for five hours; each answer costs a dollar (100,000 tokens at 10 dollars
/// a million). Every tenth has an answer of no use first, which costs as much.
fn five_hours(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for n in 0..300 {
        let answer = json!({
            "decision": "success", "input_tokens": 0, "output_tokens": 100_000,
            "finish_reason": "stop", "status_code": 200,
        });
        let unusable = json!({
            "decision": "retry", "error_type": "JSONDecodeError", "status_code": 200,
            "input_tokens": 0, "output_tokens": 100_000,
        });
        if n % 10 == 0 {
            writeln!(file, "{}", event(n, 0, unusable)).unwrap();
            writeln!(file, "{}", event(n, 1, answer)).unwrap();
        } else {
            writeln!(file, "{}", event(n, 0, answer)).unwrap();
        }
    }
}

fn filled() -> Lake {
    let lake = Lake::new();
    five_hours(&lake.folder.path().join("events.jsonl"));
    ingested(lake)
}

/// With the events of its file `events.jsonl`.
fn ingested(lake: Lake) -> Lake {
    let file = lake.folder.path().join("events.jsonl");
    ingest_for_test(&file, &lake.root());
    lake
}

/// What `value` breaks of a schema, as far as `schemas/alert.v1.json` uses JSON Schema.
fn breaks(schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => vec![kind],
    };
    if !allowed.contains(&kind) {
        out.push(format!("{at} is {kind}"));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|words| !words.contains(value))
    {
        out.push(format!("{at} is {value}"));
    }
    let required = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    for name in required.filter(|name| value.is_object() && value.get(name).is_none()) {
        out.push(format!("{at} lacks {name}"));
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        match (
            schema["properties"].get(name),
            schema.get("additionalProperties"),
        ) {
            (Some(known), _) => breaks(known, inner, &format!("{at}.{name}"), out),
            (None, Some(any)) => breaks(any, inner, &format!("{at}.{name}"), out),
            // The rows of a job have its columns.
            (None, None) if at.ends_with(".rows[]") => {}
            (None, None) => out.push(format!("{at} has {name}")),
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        breaks(&schema["items"], inner, &format!("{at}[]"), out);
    }
}

#[track_caller]
fn data(sent: &Sent) -> Value {
    let event: Value = serde_json::from_str(&sent.body).unwrap();
    for (name, expected) in [
        ("specversion", "1.0"),
        ("id", sent.id.as_str()),
        ("source", "/retrytoll/g"),
        ("type", "dev.retrytoll.alert.v1"),
        ("datacontenttype", "application/json"),
        ("dataschema", "https://retrytoll.dev/schemas/alert.v1.json"),
    ] {
        assert_eq!(event[name], expected, "{name}");
    }
    let schema: Value = serde_json::from_str(include_str!("../../schemas/alert.v1.json")).unwrap();
    let mut out = Vec::new();
    breaks(&schema, &event["data"], "data", &mut out);
    assert_eq!(out, Vec::<String>::new(), "{:#}", event["data"]);
    event["data"].clone()
}

#[test]
fn a_share_over_the_threshold_fires_and_resolves_with_its_proof() {
    let lake = filled();
    let mut alerting = lake.alerting(&[]);
    // The tick of minute 200 is decided five minutes late, which is not more than five.
    lake.pass(205 * MINUTE_MS);
    // 199 operations, of which 20 dollars are redundant: one operation is missing.
    assert_eq!(lake.run_due(&mut alerting, 199), []);
    let commits = lake.commits();
    let sent = lake.run_due(&mut alerting, 200);
    assert_eq!(lake.commits(), commits + 2, "decided, and marked");
    let [sent] = &sent[..] else {
        panic!("{sent:?}")
    };
    let fired = data(sent);
    let figures = |data: &Value| {
        let bounds = data["bounds"].as_array().unwrap();
        let told = |it: &Value| {
            format!(
                "{} {} {} {}",
                it["figure"], it["value"], it["side"], it["limit"]
            )
        };
        bounds
            .iter()
            .map(told)
            .map(|it| it.replace('"', ""))
            .collect::<Vec<_>>()
    };
    // Retries cost 20 of 220 dollars, all of it confirmed; so do the answers of no use.
    assert_eq!(
        figures(&fired),
        [
            "operations 200 at_least 200",
            "redundant_expected_usd 20 at_least 20",
            "share_low_pct 9.090909090909 over 4",
            "share_pct 9.090909090909 over 5",
        ]
    );
    assert_eq!(
        (
            fired["state"].as_str(),
            fired["starts_at"].as_str(),
            fired["severity"].as_str()
        ),
        (
            Some("firing"),
            Some("2025-11-20T03:20:00Z"),
            // Over 8 % in seven days.
            Some("error")
        )
    );
    assert_eq!(
        fired["summary"],
        "Retry-cost share, service checkout: 9.09 %, over 5 % (24h)"
    );
    assert_eq!(fired["window"]["since"], "2025-11-19T03:20:00Z");
    // From 02:20 to 03:20: minutes 140 to 199, of them six retries.
    assert_eq!(
        fired["usd_per_hour"],
        json!({ "confirmed": "6", "expected": "6", "ceiling": "6" })
    );
    assert_eq!(
        (&fired["counts"]["attempts"], &fired["counts"]["retries"]),
        (&json!(220), &json!(20))
    );
    assert_eq!(fired["top"][0]["retry_expected_usd"], "20");
    assert_eq!(fired["top"][0]["request_id"], "r0");
    assert_eq!(fired["rows"][0]["key"], "checkout");
    assert!(
        fired["sql"]
            .as_str()
            .unwrap()
            .contains("2025-11-20T03:20:00.000000Z")
    );
    assert_eq!(
        (&fired["owner"], &fired["stale"]),
        (&json!("team-platform"), &json!(false))
    );

    // Restarted: nothing is decided twice. 24 h later the first operations leave the window; of
    // minutes 121 on there are 179 first attempts, below 90 % of 200. Far behind, every 15
    // minutes is looked at: 1575 is the first such after 1561.
    lake.pass(1500 * MINUTE_MS);
    let mut alerting = lake.alerting(&[]);
    let sent = lake.run_due(&mut alerting, 1600);
    assert_eq!(
        sent.iter().map(|it| it.again).collect::<Vec<_>>(),
        [true, false]
    );
    let resolved = data(&sent[1]);
    assert_eq!(
        (
            resolved["state"].as_str(),
            resolved["ends_reason"].as_str(),
            resolved["at"].as_str()
        ),
        (
            Some("resolved"),
            Some("recovered"),
            Some("2025-11-21T02:15:00Z")
        )
    );
    assert_eq!(resolved["dedup_key"], fired["dedup_key"]);
    assert_eq!(resolved["stale"], json!(true));
    assert_eq!(
        (&fired["transition"], &resolved["transition"]),
        (&json!(1), &json!(2))
    );
}

/// A file's ticks go from its first event to its last, those of a day's window by the hour. Where the lake was
/// filled by a run that was killed before its ticks, the next one looks at how it ended.
#[test]
fn a_read_to_the_end_is_looked_at_and_after_a_kill_so_is_its_end() {
    for (begun, at) in [
        (false, "2025-11-20T04:00:00Z"),
        (true, "2025-11-20T05:00:00Z"),
    ] {
        let lake = filled();
        let mut alerting = lake.not_begun(&RULES[1..], &[], lake.clock());
        if begun {
            lake.runtime.block_on(alerting.begin()).unwrap();
        }
        let sent = lake.runtime.block_on(alerting.run_to_end()).unwrap();
        let [sent] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!(data(sent)["at"], at);
    }
}

#[test]
fn what_must_not_be_named_is_not() {
    let lake = filled();
    let mut alerting = lake.alerting(&["service", "tenant"]);
    let sent = lake.run_due(&mut alerting, 200);
    let [sent] = &sent[..] else {
        panic!("{sent:?}")
    };
    let fired = data(sent);
    assert!(fired["entity"].as_str().unwrap().starts_with("hidden-"));
    assert_eq!(fired["top"][0]["model"], "gpt-4o");
    assert!(
        !sent.body.contains("checkout") && !sent.body.contains("acme"),
        "{}",
        sent.body
    );
}

#[test]
fn an_alert_whose_rule_is_off_ends() {
    let lake = filled();
    lake.run_due(&mut lake.alerting(&[]), 200);
    let mut alerting = lake.alerting_with(&RULES, &[]);
    alerting.start_after(START_MS + 200 * MINUTE_MS);
    let sent = lake.run_due(&mut alerting, 201);
    let ended = data(sent.last().unwrap());
    assert_eq!(
        (&ended["state"], &ended["ends_reason"]),
        (&json!("resolved"), &json!("rule_removed"))
    );
    assert_eq!(ended["entity_kind"], "service");
}
