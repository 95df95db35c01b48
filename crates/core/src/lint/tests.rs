//! Each mistake by a few events, told as `severity rule service count/of what is counted`.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::decode::{Decoder, Record};
use crate::derive::{Tables, derive};

/// 2026-11-01T10:00:00Z.
const START_MS: i64 = 1_793_527_200_000;

/// Events of one source and their partitions, and how they are read.
struct Case {
    settings: SourceSettings,
    source: &'static str,
    /// Milliseconds that each record's own time lies after its `ts`; `None` is a file.
    record_after_ms: Option<i64>,
    records: Vec<(i32, String)>,
}

/// A faultless attempt that begins `start_s` after ten o'clock and takes five seconds.
/// `changes` replace members; null takes one away.
fn event(request: &str, attempt: i64, start_s: i64, changes: Value) -> String {
    let start_ms = START_MS + start_s * 1_000;
    let mut event = json!({
        "request_id": request, "attempt": attempt, "service": "shop", "model": "gpt-4o-mini",
        "provider": "openai", "prompt_hash": format!("hmac-sha256:{:064}", 7),
        "max_tokens": 100, "decision": "success", "input_tokens": 10, "output_tokens": 5,
        "started_at": start_ms, "ts": start_ms + 5_000, "elapsed_ms": 5_000,
        "timeout_ms": 60_000, "server_request_id": format!("s-{request}-{attempt}-{start_s}"),
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => event.as_object_mut().unwrap().remove(name),
            value => event
                .as_object_mut()
                .unwrap()
                .insert(name.clone(), value.clone()),
        };
    }
    event.to_string()
}

/// What a read time-out has besides, that is retried after a second.
fn timed_out() -> Value {
    json!({"decision": "retry", "error_type": "ReadTimeout", "phase": "read", "next_retry_ms": 1000,
           "input_tokens": null, "output_tokens": null, "server_request_id": null})
}

fn with(mut one: Value, other: Value) -> Value {
    let members = other.as_object().unwrap().clone();
    one.as_object_mut().unwrap().extend(members);
    one
}

/// Five answers, a minute apart, each with these changes.
fn five(changes: &Value) -> Vec<String> {
    let one = |number: i64| event(&format!("r{number}"), 0, 60 * number, changes.clone());
    (0..5).map(one).collect()
}

impl Case {
    fn of(records: impl IntoIterator<Item = String>) -> Self {
        Self::placed(records.into_iter().map(|it| (0, it)))
    }

    fn placed(records: impl IntoIterator<Item = (i32, String)>) -> Self {
        Self {
            settings: SourceSettings::default(),
            source: "calls",
            record_after_ms: Some(1_000),
            records: records.into_iter().collect(),
        }
    }

    fn report(&self) -> Report {
        let mut lint = Lint::new(self.settings.clone(), 10_000);
        let counts = self.feed(&mut lint);
        lint.finish(&counts)
    }

    fn feed(&self, lint: &mut Lint) -> DecodeCounts {
        let tables = Tables {
            settings: self.settings.clone(),
            ..Tables::built_in()
        };
        let mut decoder = Decoder::new(self.settings.decisions.clone());
        let source = SourceId(self.source.into());
        for (offset, (partition, payload)) in self.records.iter().enumerate() {
            let mut batch = EventBatch::new(source.clone(), *partition);
            let offset = offset as i64;
            let ts = serde_json::from_str::<Value>(payload)
                .ok()
                .and_then(|it| it["ts"].as_i64());
            let ts = ts.unwrap_or(START_MS);
            let record = Record {
                offset,
                index: 0,
                timestamp_ms: self.record_after_ms.map(|after| ts + after),
                payload: payload.as_bytes(),
            };
            match decoder.decode(&record, &mut batch) {
                Ok(()) => {
                    let derived = derive(&batch, &decoder.dictionary, &tables);
                    lint.batch(&batch, &decoder.dictionary, &derived);
                }
                Err(bad) => {
                    let example = Example::new("", source.clone(), *partition, offset);
                    lint.bad(bad, "shop", example);
                }
            }
        }
        decoder.counts
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) -> Report {
        let report = self.report();
        assert_eq!(told(&report), expected, "{:#?}", report.findings);
        report
    }
}

fn told(report: &Report) -> Vec<String> {
    let one = |it: &Finding| {
        let of = it.of.map_or(String::new(), |of| format!("/{of}"));
        format!(
            "{} {} {} {}{of} {}",
            it.severity.name(),
            it.rule,
            it.service.as_deref().unwrap_or("-"),
            it.count,
            it.counted.name()
        )
    };
    report.findings.iter().map(one).collect()
}

fn based(base: i64) -> SourceSettings {
    SourceSettings {
        attempt_base: base,
        ..SourceSettings::default()
    }
}

#[test]
fn faultless_events_show_nothing() {
    let report = Case::of([
        event("a", 0, 0, timed_out()),
        event("a", 1, 6, json!({})),
        event("b", 0, 60, json!({})),
    ])
    .check(&[]);
    assert_eq!(
        (report.events, report.requests, report.one_request_in),
        (3, 2, 1)
    );
    // Two answers; one attempt that is retried; all else is asked of all three.
    let fields = [
        (2, 2),
        (3, 3),
        (3, 3),
        (3, 3),
        (3, 3),
        (3, 3),
        (1, 1),
        (3, 3),
        (2, 2),
    ];
    let expected = Coverage {
        service: "shop".into(),
        attempts: 3,
        fields,
    };
    assert_eq!(report.coverage, [expected]);
    let none = Case::of([]).check(&[]);
    assert_eq!(
        (none.events, none.bad, none.requests, none.coverage.len()),
        (0, 0, 0, 0)
    );
}

/// M37: a caller that counts from 1.
#[test]
fn another_base_is_told_with_the_mend() {
    let one = |request: &str, start_s| {
        [
            event(request, 1, start_s, timed_out()),
            event(request, 2, start_s + 6, json!({})),
        ]
    };
    let mut case = Case::of(one("a", 0));
    let report = case.check(&["warning attempt_base shop 2/2 attempts"]);
    let found = &report.findings[0];
    assert!(found.what.contains("1, attempt_base is 0"), "{found:?}");
    assert!(
        found
            .mend
            .starts_with("set attempt_base = 1 under [source.services.shop]"),
        "{found:?}"
    );
    case.settings = based(1);
    case.check(&[]);
    // Ten operations of two are no accident.
    case = Case::of((0..10).flat_map(|number| one(&format!("r{number}"), 60 * number)));
    case.check(&["error attempt_base shop 20/20 attempts"]);
    case.settings
        .attempt_base_by_service
        .insert("shop".into(), 1);
    case.check(&[]);
    // The other way round.
    let mut case = Case::of([event("a", 0, 0, timed_out()), event("a", 1, 6, json!({}))]);
    case.settings = based(1);
    let report = case.check(&["warning attempt_base shop 2/2 attempts"]);
    assert!(
        report.findings[0].mend.starts_with("set attempt_base = 0"),
        "{report:?}"
    );
}

#[test]
fn a_name_that_is_no_bare_key_is_quoted() {
    let strange = json!({"service": "my \"shop\""});
    let report = Case::of([event("a", 1, 0, strange)]).report();
    let mend = &report.findings[0].mend;
    assert!(
        mend.contains(r#"[source.services."my \"shop\""]"#),
        "{mend}"
    );
}

#[test]
fn what_is_not_logged_is_missed() {
    let report = Case::of([
        event("a", 0, 0, timed_out()),
        event("a", 1, 6, with(timed_out(), json!({"decision": "give_up"}))),
    ])
    .check(&["warning no_success shop 2/2 attempts"]);
    assert_eq!(report.findings[0].examples[0].request_id, "a");
    // Of three operations one begins with the base; two of three are more than half.
    Case::of([
        event("a", 0, 0, json!({})),
        event("b", 1, 60, json!({})),
        event("c", 2, 120, json!({})),
    ])
    .check(&["warning no_first_attempt shop 2/3 operations"]);
    // Half is not fewer than half.
    Case::of([event("a", 0, 0, json!({})), event("b", 1, 60, json!({}))]).check(&[]);
    let numbers = [event("a", 2, 0, timed_out()), event("a", 3, 6, json!({}))];
    let report = Case::of(numbers).check(&["warning attempt_base shop 2/2 attempts"]);
    assert_eq!(
        report.findings[0].mend,
        "log every attempt, from the first on"
    );
}

#[test]
fn several_operations_of_a_request_are_worth_knowing() {
    let prompt = |number: u8| json!({"prompt_hash": format!("hmac-sha256:{}", format!("{number:02x}").repeat(32))});
    let calls = |request: &'static str| {
        (0..3).map(move |it| event(request, 0, 10 * i64::from(it), prompt(it)))
    };
    let report = Case::of(calls("agent").chain(calls("other")))
        .check(&["info several_operations shop 2/2 requests"]);
    let [first, second] = &report.findings[0].examples[..] else {
        panic!("{report:?}")
    };
    // The event with which the second operation begins.
    assert_eq!((first.request_id.as_str(), first.offset), ("agent", 1));
    assert_eq!((second.request_id.as_str(), second.offset), ("other", 4));
}

#[test]
fn a_torn_operation_is_told_with_both_places() {
    let torn = [
        (0, event("a", 0, 0, timed_out())),
        (2, event("a", 1, 6, json!({}))),
    ];
    let mut case = Case::placed(torn.into_iter().chain([(1, event("b", 0, 60, json!({})))]));
    let report = case.check(&["warning torn_operation shop 1/1 operations"]);
    let places: Vec<_> = report.findings[0]
        .examples
        .iter()
        .map(|it| (it.request_id.as_str(), it.partition, it.offset))
        .collect();
    assert_eq!(places, [("a", 0, 0), ("a", 2, 1)]);
    assert!(
        report.findings[0].mend.contains("prompt_hash"),
        "{report:?}"
    );
    // Two operations of one request, each whole on its partition, are not torn.
    case = Case::placed([
        (0, event("a", 0, 0, json!({}))),
        (1, event("a", 0, 60, json!({}))),
    ]);
    case.check(&["info several_operations shop 1/1 requests"]);
}

#[test]
fn an_operation_over_two_files_is_not_torn() {
    let mut lint = Lint::new(SourceSettings::default(), 10_000);
    let first = Case::of([event("a", 0, 0, timed_out())]);
    let mut second = Case::placed([(0, event("a", 1, 6, json!({})))]);
    second.source = "calls.1";
    first.feed(&mut lint);
    let counts = second.feed(&mut lint);
    assert_eq!(told(&lint.finish(&counts)), Vec::<String>::new());
}

#[test]
fn two_layers_without_a_choice_are_an_error() {
    let layer = |name: &str, server: &str| json!({"layer": name, "server_request_id": server});
    let of = |number: i64| {
        let request = format!("r{number}");
        let at = 60 * number;
        [
            event(&request, 0, at, layer("app", &format!("s{number}"))),
            event(&request, 0, at, layer("gateway", &format!("s{number}"))),
        ]
    };
    let mut case = Case::of((0..2).flat_map(of));
    let report = case.check(&["error two_layers shop 2/2 requests"]);
    assert!(
        report.findings[0].mend.contains("source.count_layer"),
        "{report:?}"
    );
    case.settings.count_layer = Some("gateway".into());
    case.check(&[]);
    case.settings.count_layer = Some("sdk".into());
    case.check(&["warning nothing_counted shop 4/4 attempts"]);
    let mut case = Case::of([event("a", 0, 0, json!({}))]);
    case.settings.count_layer = Some("sdk".into());
    case.check(&["error nothing_counted shop 1/1 attempts"]);
}

#[test]
fn what_is_logged_twice_in_one_layer_is_told_once() {
    let line = |event_id: &str| {
        let ids = json!({"event_id": event_id, "server_request_id": "s1"});
        event("a", 0, 0, with(ids, json!({"started_at": null})))
    };
    // A redelivered event is no second line.
    Case::of([line("e1"), line("e1")]).check(&[]);
    let later = event(
        "a",
        0,
        3,
        json!({"event_id": "e2", "server_request_id": "s1", "elapsed_ms": 8_000,
               "started_at": null}),
    );
    let grown = Case::of([line("e1"), later]).report();
    // One start, the same usage: the later line stands for both.
    assert_eq!(
        told(&grown),
        ["warning growing_lines shop 1/2 attempts"],
        "{grown:?}"
    );
    let apart = event(
        "a",
        0,
        1,
        json!({"event_id": "e2", "server_request_id": "s1"}),
    );
    Case::of([line("e1"), apart]).check(&["warning double_logged shop 1/2 attempts"]);
}

/// M18: lines of one answer with growing output.
#[test]
fn growing_lines_should_say_so() {
    let line = |output: i64, last: bool| {
        let end = START_MS + 5_000 + output;
        event(
            "a",
            0,
            0,
            json!({"output_tokens": output, "final": last, "server_request_id": "s",
                   "ts": end, "elapsed_ms": 5_000 + output}),
        )
    };
    Case::of([line(10, true), line(20, true), line(30, true)])
        .check(&["warning growing_lines shop 2/3 attempts"]);
    Case::of([line(10, false), line(20, false), line(30, true)]).check(&[]);
}

#[test]
fn units_of_time_are_judged_by_what_most_say() {
    let retried = |changes: Value| {
        let changes = with(timed_out(), changes);
        (0..5).flat_map(move |number| {
            let id = format!("r{number}");
            [
                event(&id, 0, 60 * number, changes.clone()),
                event(&id, 1, 60 * number + 7, json!({})),
            ]
        })
    };
    let refused = json!({"status_code": 429, "error_type": "rate_limit", "phase": null});
    let unit = |count: &str, what: &str, case: &Case| {
        let expected = format!("warning time_unit shop {count} attempts");
        let report = case.check(&[&expected]);
        assert!(
            report.findings[0].what.starts_with(what),
            "{:?}",
            report.findings
        );
    };
    // Five seconds lie between start and end.
    unit(
        "5/5",
        "elapsed_ms looks like seconds",
        &Case::of(five(&json!({"elapsed_ms": 5}))),
    );
    unit(
        "5/5",
        "elapsed_ms looks like microseconds",
        &Case::of(five(&json!({"elapsed_ms": 5_000_000}))),
    );
    // Without a start only what an answer can take tells.
    let unknown = json!({"started_at": null, "elapsed_ms": 5});
    unit(
        "5/5",
        "elapsed_ms looks like seconds",
        &Case::of(five(&unknown)),
    );
    unit(
        "5/5",
        "next_retry_ms looks like seconds",
        &Case::of(retried(with(refused.clone(), json!({"next_retry_ms": 2})))),
    );
    unit(
        "5/5",
        "retry_after_ms looks like seconds",
        &Case::of(retried(with(refused, json!({"retry_after_ms": 30})))),
    );
    unit(
        "5/5",
        "timeout_ms looks like seconds",
        &Case::of(five(&json!({"timeout_ms": 60}))),
    );
    unit(
        "5/5",
        "timeout_ms looks like microseconds",
        &Case::of(five(&json!({"timeout_ms": 60_000_000}))),
    );
    // Quick failures and no wait after a time-out are no mistakes of units.
    Case::of(retried(json!({"next_retry_ms": 0}))).check(&[]);
    // Four are too few to tell.
    let four = five(&json!({"timeout_ms": 60})).into_iter().take(4);
    Case::of(four).check(&[]);
    // Three of five are most, two of five are not.
    let mixed = |wrong: usize| {
        let (odd, good) = (five(&json!({"timeout_ms": 60})), five(&json!({})));
        Case::of(
            odd.into_iter()
                .take(wrong)
                .chain(good.into_iter().skip(wrong)),
        )
    };
    unit("3/5", "timeout_ms looks like seconds", &mixed(3));
    mixed(2).check(&[]);
}

#[test]
fn hashes_have_a_form_and_a_key() {
    let of = |hash: String| Case::of([event("a", 0, 0, json!({"prompt_hash": hash}))]);
    of(format!("sha256:{:064}", 1)).check(&["info hash_bare shop 1/1 attempts"]);
    of(format!("{:064}", 1)).check(&["warning hash_form shop 1/1 attempts"]);
    of("md5:0".into()).check(&["warning hash_form shop 1/1 attempts"]);
    Case::of([event("a", 0, 0, json!({"prompt_hash": null}))])
        .check(&["warning coverage shop 1/1 attempts"]);
}

#[test]
fn fields_that_figures_need_are_missed_by_service() {
    let lacks = |names: &[&str]| {
        let members = names.iter().map(|name| ((*name).to_owned(), Value::Null));
        Value::Object(members.collect())
    };
    // Four of five are 80 %: enough.
    let mut events = five(&json!({}));
    events[4] = event("r4", 0, 240, lacks(&["input_tokens", "output_tokens"]));
    Case::of(events.clone()).check(&[]);
    events[3] = event("r3", 0, 180, lacks(&["input_tokens", "output_tokens"]));
    let report = Case::of(events.clone()).check(&["warning coverage shop 2/5 attempts"]);
    let what = &report.findings[0].what;
    assert_eq!(
        what,
        "usage on 60 % of answers: under 80 % the retry-cost share is withheld"
    );
    assert_eq!(report.coverage[0].fields[Wanted::Usage as usize], (3, 5));
    assert_eq!(report.findings[0].examples[0].request_id, "r3");
    // Another service is judged by its own.
    events.push(event("z", 0, 0, json!({"service": "other"})));
    Case::of(events).check(&["warning coverage shop 2/5 attempts"]);
    let all = [
        "max_tokens",
        "prompt_hash",
        "ts",
        "elapsed_ms",
        "provider",
        "timeout_ms",
        "server_request_id",
    ];
    let report = Case::of([event("a", 0, 0, lacks(&all))]).report();
    let named: Vec<_> = report
        .findings
        .iter()
        .map(|it| it.what.split(' ').next().unwrap())
        .collect();
    let mut expected = all.to_vec();
    // Warnings first, each group by its text.
    expected.sort_by_key(|it| (!["max_tokens", "prompt_hash", "ts"].contains(it), *it));
    assert_eq!(named, expected);
    let wait = with(timed_out(), json!({"next_retry_ms": null}));
    Case::of([event("a", 0, 0, wait), event("a", 1, 6, json!({}))])
        .check(&["info coverage shop 1/1 attempts"]);
    // A router's model names its provider; that it has no price is another matter.
    let router = json!({"provider": null, "model": "router/no-such-model"});
    Case::of([event("a", 0, 0, router)]).check(&["warning unpriced shop 1/1 attempts"]);
}

#[test]
fn words_that_mean_nothing_here_are_named() {
    let word = json!({"decision": "ok"});
    let mut case = Case::of([
        event("a", 0, 0, word.clone()),
        event("b", 0, 60, word),
        event("c", 0, 120, json!({})),
    ]);
    let report = case.check(&["error unknown_decision shop 2/3 attempts"]);
    let mend = &report.findings[0].mend;
    assert!(
        mend.contains(r#"[source.decisions], as "ok" = "success""#),
        "{mend}"
    );
    case.settings.decisions = HashMap::from([("ok".into(), "success".into())]);
    case.check(&[]);
    let report = Case::of([event("a", 0, 0, json!({"model": "no-such-model"}))])
        .check(&["warning unpriced shop 1/1 attempts"]);
    assert!(
        report.findings[0].what.contains("no-such-model"),
        "{report:?}"
    );
    let costs = json!({"cost": 900});
    Case::of([event("a", 0, 0, costs)]).check(&["warning cost_suspect shop 1/1 attempts"]);
    let unit = json!({"cost": 9, "cost_unit": "EUR"});
    Case::of([event("a", 0, 0, unit)]).check(&["warning cost_unit shop 1/1 attempts"]);
    let zero =
        json!({"status_code": 500, "decision": "give_up", "usage_source": "estimated", "cost": 0});
    Case::of([event("a", 0, 0, zero), event("b", 0, 60, json!({}))])
        .check(&["info zero_cost shop 1/2 attempts"]);
}

#[test]
fn secrets_are_told_by_their_field_and_never_shown() {
    let key = "sk-proj-abcdefghijklmnopqrstuvwx";
    let case = Case::of([event(
        "a",
        0,
        0,
        json!({"api_key_id": key, "trace_id": format!("Bearer {key}"), "labels": {"k": key}}),
    )]);
    let line = "error secret shop 1/1 attempts";
    let report = case.check(&[line, line, line]);
    let fields: Vec<_> = report
        .findings
        .iter()
        .map(|it| it.what.split(' ').next().unwrap())
        .collect();
    assert_eq!(fields, ["api_key_id", "labels", "trace_id"]);
    assert!(!format!("{report:?}").contains(&key[8..]));
}

#[test]
fn a_timeout_with_usage_is_taken_as_billed() {
    let of = |source: Value| {
        let counted = json!({"input_tokens": 900, "usage_source": source});
        Case::of([
            event("a", 0, 0, with(timed_out(), counted)),
            event("a", 1, 6, json!({})),
        ])
    };
    let line = "warning timeout_with_usage shop 1/2 attempts";
    of(Value::Null).check(&[line]);
    of(json!("provider")).check(&[line]);
    of(json!("estimated")).check(&[]);
}

#[test]
fn times_that_lie_elsewhere_are_told() {
    let with_record = |after_ms: Option<i64>, changes: Value| {
        let mut case = Case::of([event("a", 0, 0, changes)]);
        case.record_after_ms = after_ms;
        case
    };
    let hour = 3_600_000;
    // Two minutes are what clocks may differ by.
    with_record(Some(-120_000), json!({})).check(&[]);
    with_record(Some(-120_001), json!({})).check(&["warning ts_ahead shop 1/1 attempts"]);
    with_record(Some(-25 * hour), json!({})).check(&["warning ts_odd shop 1/1 attempts"]);
    // A backfill is no mistake.
    with_record(Some(30 * 24 * hour), json!({})).check(&[]);
    let timeless = json!({"ts": null, "started_at": null});
    with_record(None, timeless.clone()).check(&["error no_time shop 1/1 attempts"]);
    with_record(Some(0), timeless).check(&["warning coverage shop 1/1 attempts"]);
    Case::of([event("a", 0, 0, json!({"service": null}))])
        .check(&["warning no_service - 1/1 attempts"]);
}

#[test]
fn impossible_values_and_records_are_told_by_field() {
    let odd = json!({"turn": -1, "n": "many"});
    let line = "warning invalid_field shop 1/2 attempts";
    let report = Case::of([event("a", 0, 0, json!({})), event("b", 0, 60, odd)]).check(&[line; 2]);
    let fields: Vec<_> = report.findings.iter().map(|it| &it.what[..2]).collect();
    assert_eq!(fields, ["n ", "tu"]);
    assert!(
        report
            .findings
            .iter()
            .all(|it| it.examples[0].request_id == "b")
    );

    let no_model = event("a", 0, 0, json!({"model": null}));
    let report = Case::of([event("b", 0, 60, json!({})), no_model.clone(), no_model])
        .check(&["error dead_letter shop 2 records"]);
    assert_eq!((report.events, report.bad), (1, 2));
    assert!(
        report.findings[0].what.starts_with("model is required"),
        "{report:?}"
    );
    assert_eq!(report.findings[0].examples[0].offset, 1);
    Case::of(["{".into(), event("b", 0, 0, json!({}))])
        .check(&["error dead_letter shop 1 records"]);
    Case::of([event("b", 0, 0, json!({"tokens_in": 7, "prompt": "x"}))])
        .check(&["info unknown_members - 2 members"]);
}

#[test]
fn the_gravest_comes_first() {
    let of = |request: &str, at, changes| event(request, 0, at, changes);
    let case = Case::of([
        of(
            "a",
            0,
            json!({"decision": "ok", "prompt_hash": format!("sha256:{:064}", 1)}),
        ),
        of("b", 60, json!({"model": "no-such-model"})),
        of("c", 120, json!({"model": "no-such-model", "timeout": 1})),
        of("d", 180, json!({"turn": -1})),
    ]);
    let report = case.check(&[
        "error unknown_decision shop 1/4 attempts",
        "warning unpriced shop 2/4 attempts",
        "warning invalid_field shop 1/4 attempts",
        "info hash_bare shop 1/4 attempts",
        "info unknown_members - 1 members",
    ]);
    assert_eq!(Severity::ALL.map(|it| report.count(it)), [1, 2, 2]);
    assert!(report.reaches(Severity::Error) && report.reaches(Severity::Warning));
    let clean = Case::of([of("a", 0, json!({}))]).report();
    assert!(!clean.reaches(Severity::Info));
}

/// Past the cap whole requests are let go, never parts of them.
#[test]
fn memory_is_bounded_and_what_stays_is_whole() {
    let records = (0..2_000).flat_map(|number| {
        let id = format!("r{number}");
        [
            event(&id, 0, 60 * number, timed_out()),
            event(&id, 1, 60 * number + 6, json!({})),
        ]
    });
    let case = Case::of(records);
    let mut lint = Lint::new(SourceSettings::default(), 1_000);
    let counts = case.feed(&mut lint);
    let report = lint.finish(&counts);
    assert_eq!((report.events, told(&report)), (4_000, vec![]));
    // 4,000 attempts halve until 1,000 are left, twice or, by chance, a third time.
    assert!([4, 8].contains(&report.one_request_in), "{report:?}");
    let whole = 2_000 / report.one_request_in;
    assert!(
        (whole / 2..=500).contains(&report.requests),
        "{} of {whole}",
        report.requests
    );
    // One request is kept to its bound.
    let lines = (0..1_500).map(|it| event("same", it, it * 2, timed_out()));
    let mut lint = Lint::new(SourceSettings::default(), 1);
    let counts = Case::of(lines).feed(&mut lint);
    let report = lint.finish(&counts);
    assert_eq!((report.events, report.requests), (1_500, 1));
}

#[test]
fn names_beyond_a_bound_are_put_together() {
    let services = (0..300).map(|it| {
        let named = json!({"service": format!("s{it}"), "model": "no-such-model"});
        event("a", 0, 0, named)
    });
    let report = Case::of(services).report();
    assert_eq!(report.coverage.len(), 201);
    let attempts: u64 = report.coverage.iter().map(|it| it.attempts).sum();
    assert_eq!(attempts, 300);
    let words = (0..300).map(|it| {
        let word = json!({"decision": format!("d{it}")});
        event(&format!("r{it}"), 0, 60 * it, word)
    });
    let report = Case::of(words).report();
    let unknown: Vec<_> = report
        .findings
        .iter()
        .filter(|it| it.rule == "unknown_decision")
        .collect();
    assert_eq!(unknown.iter().map(|it| it.count).sum::<u64>(), 300);
    assert!(unknown.len() <= 51, "{}", unknown.len());
    let long = event(&"x".repeat(5_000), 0, 0, json!({"model": "no-such-model"}));
    let report = Case::of([long]).report();
    let id = &report.findings[0].examples[0].request_id;
    assert_eq!(id.chars().count(), 257, "{id}");
}

/// A value that some field can't have, or is far away.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(|it| json!(it)),
        any::<f64>().prop_map(|it| json!(it)),
        (0..2_000_i64).prop_map(|it| json!(START_MS + it * 1_000)),
        "[a-z0-9-]{0,12}".prop_map(|it| json!(it)),
        any::<bool>().prop_map(|it| json!(it)),
        Just(json!("success")),
        Just(json!("retry")),
        Just(Value::Null),
    ]
}

proptest! {
    /// Whatever the fields hold, each finding counts no more than it looked at.
    #[test]
    fn any_events_are_looked_at(
        lines in prop::collection::vec(
            (0..3_i32, 0..4_u8, 0..3_i64,
             prop::collection::vec((0..FIELDS.len(), odd_value()), 0..6)),
            1..30,
        )
    ) {
        let records = lines.iter().map(|(partition, request, attempt, odd)| {
            let odd = odd.iter().map(|(field, value)| (FIELDS[*field].to_owned(), value.clone()));
            let changes = Value::Object(odd.collect());
            (*partition, event(&format!("r{request}"), *attempt, *attempt * 6, changes))
        });
        let report = Case::placed(records).report();
        prop_assert_eq!(report.events + report.bad, lines.len() as u64);
        for found in &report.findings {
            prop_assert!(found.count > 0 && found.of.is_none_or(|of| found.count <= of), "{:?}", found);
            prop_assert!(found.examples.len() <= EXAMPLES_MAX);
            prop_assert!(!found.what.is_empty() && !found.mend.is_empty());
        }
        let in_order = report.findings.is_sorted_by_key(|it| it.severity);
        prop_assert!(in_order);
    }
}

/// Fields that findings look at.
const FIELDS: [&str; 20] = [
    "ts",
    "started_at",
    "elapsed_ms",
    "timeout_ms",
    "next_retry_ms",
    "retry_after_ms",
    "decision",
    "model",
    "service",
    "layer",
    "final",
    "prompt_hash",
    "input_tokens",
    "output_tokens",
    "server_request_id",
    "event_id",
    "cache_hit",
    "status_code",
    "cost",
    "request_id",
];
