use super::*;
use crate::batch::SourceId;
use crate::decode::{Decoder, Record};

const RECORD_MS: i64 = 1_788_300_000_000;

fn derived(members: &str, record_ms: Option<i64>, settings: SourceSettings) -> Derived {
    let payload = format!(r#"{{"request_id":"r","model":"gpt-4o-mini",{members}}}"#);
    let mut decoder = Decoder::new(settings.decisions.clone());
    let mut batch = EventBatch::new(SourceId("test".into()), 0);
    let record = Record {
        offset: 0,
        index: 0,
        timestamp_ms: record_ms,
        payload: payload.as_bytes(),
    };
    decoder.decode(&record, &mut batch).unwrap();
    let tables = Tables {
        settings,
        ..Tables::built_in()
    };
    derive(&batch, &decoder.dictionary, &tables)
}

fn plain(members: &str) -> Derived {
    derived(members, Some(RECORD_MS), SourceSettings::default())
}

const SUCCESS: &str = r#""attempt":0,"decision":"success""#;

/// (member, the record's time, ts, its source, the partition date, odd).
#[test]
fn time_is_the_callers_and_odd_dates_are_the_records() {
    let day = 86_400_000;
    let record = Some(RECORD_MS);
    let us = |ms: i64| Some(ms * 1_000);
    let date = |ms: i64| Some((ms / day) as i32);
    let at = |ms: i64| format!("\"ts\":{ms}");
    for (member, record_ms, ts, source, expected_day, odd) in [
        (
            at(RECORD_MS - 5),
            record,
            us(RECORD_MS - 5),
            Some("event"),
            date(RECORD_MS),
            false,
        ),
        (
            at(RECORD_MS - 400 * day),
            record,
            us(RECORD_MS - 400 * day),
            Some("event"),
            date(RECORD_MS - 400 * day),
            false,
        ),
        (
            at(RECORD_MS - 401 * day),
            record,
            us(RECORD_MS - 401 * day),
            Some("event"),
            date(RECORD_MS),
            true,
        ),
        (
            at(RECORD_MS + day),
            record,
            us(RECORD_MS + day),
            Some("event"),
            date(RECORD_MS + day),
            false,
        ),
        (
            at(RECORD_MS + 2 * day),
            record,
            us(RECORD_MS + 2 * day),
            Some("event"),
            date(RECORD_MS),
            true,
        ),
        (
            "\"x\":0".into(),
            record,
            us(RECORD_MS),
            Some("record"),
            date(RECORD_MS),
            false,
        ),
        (
            at(RECORD_MS),
            None,
            us(RECORD_MS),
            Some("event"),
            date(RECORD_MS),
            false,
        ),
        (
            format!("\"started_at\":{RECORD_MS},\"elapsed_ms\":250"),
            None,
            us(RECORD_MS + 250),
            Some("derived"),
            date(RECORD_MS),
            false,
        ),
        ("\"x\":0".into(), None, None, None, None, false),
    ] {
        let out = derived(
            &format!("{SUCCESS},{member}"),
            record_ms,
            SourceSettings::default(),
        );
        let line = (out.ts_us.get(0), out.ts_source.get(0), out.days[0]);
        assert_eq!(line, (ts, source, expected_day), "{member} {record_ms:?}");
        assert_eq!(out.flags[0].has(Flags::TS_ODD), odd, "{member}");
    }
}

/// (attempt, decision, base, is a retry, is lone).
#[test]
fn a_retry_is_not_the_first_of_its_operation() {
    for (attempt, decision, base, is_retry, lone) in [
        (0, "success", 0, false, true),
        (0, "retry", 0, false, false),
        (0, "give_up", 0, false, true),
        (1, "success", 0, true, false),
        (1, "success", 1, false, true),
        (2, "success", 1, true, false),
        (0, "success", 1, false, false),
        (0, "whatever", 0, false, false),
    ] {
        let settings = SourceSettings {
            attempt_base: base,
            ..SourceSettings::default()
        };
        let members = format!(r#""attempt":{attempt},"decision":"{decision}""#);
        let out = derived(&members, None, settings);
        let line = (out.is_retry.get(0), out.lone.get(0));
        assert_eq!(line, (Some(is_retry), Some(lone)), "{members} {base}");
        assert_eq!(
            out.flags[0].has(Flags::DECISION_UNKNOWN),
            decision == "whatever"
        );
    }
}

#[test]
fn a_service_may_number_from_one() {
    let settings = SourceSettings {
        attempt_base_by_service: HashMap::from([("tenacity".into(), 1)]),
        ..SourceSettings::default()
    };
    let members = |service| format!(r#""attempt":1,"decision":"success","service":"{service}""#);
    let is_retry = |service| {
        derived(&members(service), None, settings.clone())
            .is_retry
            .get(0)
    };
    assert_eq!(
        (is_retry("tenacity"), is_retry("other")),
        (Some(false), Some(true))
    );
}

#[test]
fn money_is_counted_on_one_layer() {
    let settings = SourceSettings {
        count_layer: Some("gateway".into()),
        ..SourceSettings::default()
    };
    for (layer, set, counted) in [
        ("gateway", true, true),
        ("app", true, false),
        ("", true, false),
        ("app", false, true),
    ] {
        let settings = if set {
            settings.clone()
        } else {
            SourceSettings::default()
        };
        let out = derived(&format!(r#"{SUCCESS},"layer":"{layer}""#), None, settings);
        assert_eq!(out.counted, [counted], "{layer}");
    }
}

#[test]
fn the_flagship_case_is_never_zero_alone() {
    // M34: a read timeout without usage at gpt-4o-mini's $0.15 and $0.60 for a million tokens:
    // 1,000 input, at most 512 output: $0.0004572.
    let out = plain(
        r#""attempt":0,"decision":"retry","error_type":"ReadTimeout","phase":"read",
           "max_tokens":512,"input_tokens":1000,"usage_source":"estimated","provider":"openai""#,
    );
    assert_eq!(
        (out.class.get(0), out.billing.get(0)),
        (Some("read"), Some("unknown"))
    );
    assert_eq!(
        (out.p_billed[0], out.evidence.get(0)),
        (9_000, Some("policy"))
    );
    assert_eq!(out.cost_confirmed.get(0), Some(0));
    assert_eq!(out.cost_ceiling.get(0), Some(457_200_000));
    assert_eq!(out.basis.get(0), Some("formula"));
}

#[test]
fn settings_are_part_of_the_version() {
    let tables = |settings| {
        Tables {
            settings,
            ..Tables::built_in()
        }
        .policy_version()
    };
    let plain = tables(SourceSettings::default());
    let base = tables(SourceSettings {
        attempt_base: 1,
        ..SourceSettings::default()
    });
    let layer = tables(SourceSettings {
        count_layer: Some("app".into()),
        ..SourceSettings::default()
    });
    assert_ne!(plain, base);
    assert_ne!(plain, layer);
    assert_eq!(plain, tables(SourceSettings::default()));
}

#[test]
fn flags_come_back_from_their_text() {
    for (flag, word) in Flags::ALL {
        assert_eq!(Flags::of_text(word), *flag);
    }
    let all = Flags((1 << Flags::ALL.len()) - 1);
    assert_eq!(Flags::of_text(&all.text()), all);
    assert_eq!(Flags::of_text(""), Flags::default());
    assert_eq!(
        Flags::of_text("of_a_later_release,secret"),
        Flags::SECRET,
        "what is not known is left out"
    );
}

/// What the tables say is said anew, and what the event showed stays.
#[test]
fn rows_are_restated_by_other_tables() {
    let mut decoder = Decoder::new(Default::default());
    let mut batch = EventBatch::new(SourceId("test".into()), 0);
    let payload = br#"{"request_id":"r","model":"gpt-4o-mini","attempt":1,"decision":"success",
        "input_tokens":1000000,"output_tokens":0,"provider":"openai"}"#;
    let record = Record {
        offset: 0,
        index: 0,
        timestamp_ms: Some(RECORD_MS),
        payload,
    };
    decoder.decode(&record, &mut batch).unwrap();
    let settings = |attempt_base| Tables {
        settings: SourceSettings {
            attempt_base,
            ..SourceSettings::default()
        },
        ..Tables::built_in()
    };
    batch.flags[0] = Flags(Flags::SECRET.0 | Flags::UNIT_SUSPECT.0);
    let from_one = restate(&batch, &decoder.dictionary, &settings(1));
    assert_eq!(from_one.is_retry.get(0), Some(false));
    assert_eq!(from_one.flags, [Flags::SECRET], "the price is judged anew");
    let from_zero = restate(&batch, &decoder.dictionary, &settings(0));
    assert_eq!(from_zero.is_retry.get(0), Some(true));
    // gpt-4o-mini: 0.15 dollars for a million tokens of input.
    assert_eq!(from_zero.cost_confirmed.get(0), Some(150_000_000_000));
    assert!(from_zero.ts_us.is_null() && from_zero.days.is_empty());
}
