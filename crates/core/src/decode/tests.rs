use super::*;
use crate::batch::SourceId;
use crate::field::{Bool, Money};

const SMALLEST: &str = r#"{"request_id":"r","attempt":0,"model":"m","decision":"success"}"#;

fn decode(payload: impl AsRef<[u8]>) -> (Result<(), Bad>, EventBatch, Decoder) {
    let mut decoder = Decoder::new(HashMap::from([("again".into(), "retry".into())]));
    let mut batch = EventBatch::new(SourceId("test".into()), 0);
    let payload = payload.as_ref();
    let record = Record {
        offset: 7,
        index: 0,
        timestamp_ms: Some(1_000),
        payload,
    };
    let result = decoder.decode(&record, &mut batch);
    (result, batch, decoder)
}

/// The smallest event with more members.
fn with(members: &str) -> String {
    format!("{},{members}}}", SMALLEST.trim_end_matches('}'))
}

#[track_caller]
fn accepted(payload: impl AsRef<[u8]>) -> (EventBatch, Decoder) {
    let (result, batch, decoder) = decode(payload);
    assert_eq!(result, Ok(()));
    (batch, decoder)
}

#[track_caller]
fn refused(payload: impl AsRef<[u8]>, reason: Reason, field: Option<&str>) -> Bad {
    let (result, batch, decoder) = decode(payload);
    let bad = result.expect_err("this is no event");
    assert_eq!((bad.reason, bad.field.map(Field::name)), (reason, field));
    assert!(batch.is_empty(), "a bad record leaves the batch untouched");
    assert_eq!(decoder.counts.bad.iter().sum::<u64>(), 1);
    bad
}

#[test]
fn the_smallest_event_has_nulls_elsewhere() {
    let (mut batch, decoder) = accepted(SMALLEST);
    batch.pad();
    assert_eq!(
        (batch.len(), batch.offsets[0], batch.record_ms[0]),
        (1, 7, 1_000)
    );
    assert_eq!(batch.text(Text::RequestId, 0), b"r");
    assert_eq!(decoder.dictionary.get(batch.word(Word::Model, 0)), "m");
    for int in Int::ALL {
        assert_eq!(
            batch.int(*int, 0),
            (*int == Int::Attempt).then_some(0),
            "{}",
            int.name()
        );
    }
    assert_eq!(batch.flags[0], Flags::default());
}

/// Every field of the event, with a value that only it could have come from.
#[test]
fn every_field_reaches_its_column() {
    for (place, field) in Field::ALL.into_iter().enumerate() {
        let name = field.name();
        if REQUIRED.contains(&field) {
            continue;
        }
        let number = 100 + place as i64;
        let value = match field {
            Field::Word(_) | Field::Text(_) => format!("\"w{place}\""),
            Field::Hash(_) => format!("\"sha256:{number:064}\""),
            Field::Int(_) => number.to_string(),
            Field::Bool(_) => "true".into(),
            Field::Money(_) => format!("0.{number}"),
            Field::Time(_) => format!("1788300{number}"),
            Field::Labels => r#"{"a":1}"#.into(),
        };
        let (batch, decoder) = accepted(with(&format!("\"{name}\":{value}")));
        let text = format!("w{place}");
        match field {
            Field::Word(it) => assert_eq!(decoder.dictionary.get(batch.word(it, 0)), text),
            Field::Text(it) => assert_eq!(batch.text(it, 0), text.as_bytes()),
            Field::Labels => assert_eq!(batch.text(Text::Labels, 0), br#"{"a":1}"#),
            Field::Hash(it) => {
                assert_eq!(batch.hashes[it as usize].kinds, [HashKind::Sha256 as u8]);
                assert_eq!(
                    batch.hashes[it as usize].values[0][31],
                    number as u8 % 10 + 16 * (number / 10 % 10) as u8
                );
            }
            Field::Int(it) => assert_eq!(batch.int(it, 0), Some(number), "{name}"),
            Field::Bool(it) => assert_eq!(batch.bool(it, 0), Some(true), "{name}"),
            Field::Money(it) => {
                assert_eq!(batch.money(it, 0), Some(i128::from(number) * 1_000_000_000));
            }
            Field::Time(it) => {
                assert_eq!(
                    batch.time(it, 0),
                    Some((1_788_300_000 + number) * 1_000_000)
                );
            }
        }
    }
}

#[test]
fn a_missing_required_field_is_a_dead_letter() {
    for name in ["request_id", "attempt", "model", "decision"] {
        let others = [
            ("request_id", "\"r\""),
            ("attempt", "0"),
            ("model", "\"m\""),
            ("decision", "\"retry\""),
        ];
        let members: Vec<_> = others
            .iter()
            .filter(|(other, _)| *other != name)
            .map(|(other, value)| format!("\"{other}\":{value}"))
            .collect();
        let without = format!("{{{}}}", members.join(","));
        refused(&without, Reason::MissingField, Some(name));
        refused(
            without.replacen('{', &format!("{{\"{name}\":null,"), 1),
            Reason::MissingField,
            Some(name),
        );
        let impossible = without.replacen('{', &format!("{{\"{name}\":[1],"), 1);
        refused(impossible, Reason::InvalidField, Some(name));
    }
    refused(
        SMALLEST.replace("\"r\"", "\"\""),
        Reason::MissingField,
        Some("request_id"),
    );
    for attempt in ["-1", "1.5", "\"one\"", "4294967296", "1e300"] {
        refused(
            SMALLEST.replace(":0", &format!(":{attempt}")),
            Reason::InvalidField,
            Some("attempt"),
        );
    }
}

#[test]
fn an_impossible_optional_value_is_null_and_counted() {
    for (name, value) in [
        ("max_tokens", "-1"),
        ("max_tokens", "1.5"),
        ("max_tokens", "\"many\""),
        ("max_tokens", "{}"),
        ("elapsed_ms", "1e99"),
        ("elapsed_ms", "true"),
        ("status_code", "99"),
        ("status_code", "700"),
        ("stream", "\"maybe\""),
        ("stream", "2"),
        ("cost", "-0.1"),
        ("cost", "\"free\""),
        ("cost", "0.0000000000001"),
        ("cost", "1e30"),
        ("ts", "\"yesterday\""),
        ("ts", "-5"),
        ("started_at", "[]"),
        ("tenant", "true"),
        ("tenant", "[\"a\"]"),
        ("labels", "[]"),
        ("labels", r#"{"a":{"b":1}}"#),
        ("labels", r#"{"a":"\ud83d"}"#),
        ("prompt_hash", "false"),
        ("service", r#""\ud800""#),
    ] {
        let (batch, decoder) = accepted(with(&format!("\"{name}\":{value}")));
        let at = Field::of(name.as_bytes()).map_or(0, Field::index);
        assert_eq!(decoder.counts.invalid[at], 1, "{name}: {value}");
        assert_eq!(decoder.counts.invalid.iter().sum::<u64>(), 1);
        assert!(batch.flags[0].has(Flags::FIELD_INVALID));
    }
}

#[test]
fn numbers_stand_as_strings_where_nothing_is_lost() {
    for value in ["512", "\"512\"", "512.0", "\" 512 \"", "5.12e2"] {
        let (batch, _) = accepted(with(&format!("\"max_tokens\":{value}")));
        assert_eq!(batch.int(Int::MaxTokens, 0), Some(512), "{value}");
    }
    let (batch, _) = accepted(with("\"elapsed_ms\":1234.5"));
    assert_eq!(batch.int(Int::ElapsedMs, 0), Some(1_235), "ms are rounded");
    for (value, expected) in [
        ("1e-7", 100_000),
        ("\"0.0000001\"", 100_000),
        ("12.5", 12_500_000_000_000),
    ] {
        let (batch, _) = accepted(with(&format!("\"cost\":{value}")));
        assert_eq!(batch.money(Money::Cost, 0), Some(expected), "{value}");
    }
    let (batch, _) = accepted(with("\"tenant\":42,\"stream\":\"True\""));
    assert_eq!(batch.bool(Bool::Stream, 0), Some(true));
    assert_ne!(batch.word(Word::Tenant, 0), 0);
}

#[test]
fn what_is_no_json_object_is_a_dead_letter_with_its_place() {
    assert_eq!(
        refused(b"{\"model\":\"\xff\"}", Reason::InvalidUtf8, None).at,
        Some(10)
    );
    refused(&SMALLEST[..30], Reason::InvalidJson, None);
    refused("", Reason::InvalidJson, None);
    refused("NaN", Reason::InvalidJson, None);
    refused(with("\"cost\":NaN"), Reason::InvalidJson, None);
    refused(with("\"x\":01"), Reason::InvalidJson, None);
    refused(with("\"x\":\"a\tb\""), Reason::InvalidJson, None);
    refused(format!("[{SMALLEST}]"), Reason::NotAnObject, None);
    refused("3", Reason::NotAnObject, None);
    refused(format!("{SMALLEST} {SMALLEST}"), Reason::TrailingData, None);
    refused(format!("{SMALLEST}}}"), Reason::TrailingData, None);
    refused(with("\"model\":\"n\""), Reason::DuplicateKey, Some("model"));
    refused(
        with("\"cost\":null,\"cost\":1"),
        Reason::DuplicateKey,
        Some("cost"),
    );
    let nested = format!("\"x\":{}{}", "[".repeat(10_000), "]".repeat(10_000));
    refused(with(&nested), Reason::TooDeep, None);
    refused("[".repeat(10_000), Reason::NotAnObject, None);
    refused("{\"a\":".repeat(10_000), Reason::TooDeep, None);
    refused(vec![b' '; 8 << 20], Reason::TooLarge, None);
    // Many brackets, none deep; brackets in strings.
    accepted(with(&format!("\"x\":[{}0]", "[],".repeat(100))));
    accepted(with(&format!("\"x\":\"\\\"{}\"", "[".repeat(100))));
}

#[test]
fn unknown_fields_are_counted_and_hurt_nobody() {
    let (_, decoder) = accepted(with(r#""x":1,"y":{"model":"z"},"":null"#));
    assert_eq!(
        (decoder.counts.unknown_fields, decoder.counts.events),
        (3, 1)
    );
}

#[test]
fn hashes_of_other_forms_are_hashed() {
    let hex = "AB".repeat(32);
    let (batch, _) = accepted(with(&format!("\"prompt_hash\":\"hmac-sha256:{hex}\"")));
    let column = &batch.hashes[Hash::Prompt as usize];
    assert_eq!(
        (column.kinds[0], column.values[0]),
        (HashKind::HmacSha256 as u8, [0xab; 32])
    );
    // SHA-256 of "abc" is FIPS 180-2's first example.
    let (batch, _) = accepted(with("\"prompt_hash\":\"abc\""));
    let column = &batch.hashes[Hash::Prompt as usize];
    assert_eq!(column.kinds[0], HashKind::Other as u8);
    assert_eq!(column.values[0][..4], [0xba, 0x78, 0x16, 0xbf]);
    assert!(batch.flags[0].has(Flags::HASH_OTHER));
}

#[test]
fn secrets_never_reach_a_column() {
    let key = "sk-proj-abcdefghijklmnopqrstuvwx";
    for name in ["api_key_id", "tenant", "conversation_id"] {
        let (batch, decoder) = accepted(with(&format!("\"{name}\":\"{key}\"")));
        assert!(batch.flags[0].has(Flags::SECRET), "{name}");
        assert_eq!(decoder.counts.secrets, 1);
    }
    let (batch, _) = accepted(with(&format!("\"labels\":{{\"k\":\"{key}\",\"n\":1}}")));
    let labels = String::from_utf8_lossy(batch.text(Text::Labels, 0)).into_owned();
    assert!(
        !labels.contains("abcdefgh") && labels.contains("\"n\":1"),
        "{labels}"
    );
    // An escape hides nothing: `\u006b` is `k`.
    let escaped = key.replacen('k', "\\u006b", 1);
    let (batch, _) = accepted(with(&format!("\"labels\":{{\"a\":\"{escaped}\"}}")));
    assert!(batch.flags[0].has(Flags::SECRET));
    let labels = batch.text(Text::Labels, 0);
    assert!(!labels.windows(8).any(|part| part == b"abcdefgh"));
}

#[test]
fn labels_hold_sixteen_pairs() {
    let pairs = |count: usize| {
        let pairs: Vec<_> = (0..count).map(|at| format!("\"k{at}\":\"v\"")).collect();
        with(&format!("\"labels\":{{{}}}", pairs.join(",")))
    };
    assert_eq!(accepted(pairs(16)).1.counts.invalid.iter().sum::<u64>(), 0);
    assert_eq!(accepted(pairs(17)).1.counts.invalid.iter().sum::<u64>(), 1);
}

#[test]
fn a_configured_word_is_the_known_decision() {
    let (batch, decoder) = accepted(SMALLEST.replace("success", "again"));
    assert_eq!(
        decoder.dictionary.get(batch.word(Word::Decision, 0)),
        "retry"
    );
}

/// The parts of identity: an event differs from another in any of them, and in nothing else.
#[test]
fn identity_is_what_money_says() {
    let identity = |payload: String| accepted(payload).0.identities[0];
    let plain = identity(SMALLEST.into());
    for member in [
        "\"service\":\"s\"",
        "\"layer\":\"sdk\"",
        "\"ts\":1788300000",
        "\"server_request_id\":\"x\"",
        "\"elapsed_ms\":5",
        "\"event_id\":\"e\"",
    ] {
        assert_ne!(identity(with(member)), plain, "{member}");
    }
    for member in [
        "\"tenant\":\"t\"",
        "\"status_code\":200",
        "\"output_tokens\":3",
        "\"event_id\":\"\"",
    ] {
        assert_eq!(identity(with(member)), plain, "{member}");
    }
    assert_ne!(identity(SMALLEST.replace(":0", ":1")), plain);
    let named = |more: &str| identity(with(&format!("\"event_id\":\"e\"{more}")));
    assert_eq!(
        named(""),
        named(",\"elapsed_ms\":5"),
        "an event id is enough"
    );
    let split = |service: &str, request: &str| {
        identity(
            with(&format!("\"service\":\"{service}\"")).replace("\"r\"", &format!("\"{request}\"")),
        )
    };
    assert_ne!(split("ab", "c"), split("a", "bc"));
}

#[test]
fn escaped_text_is_unescaped() {
    let (batch, _) = accepted(with(r#""trace_id":"a\u00e9\n\"b\"","te\u006eant":"t""#));
    assert_eq!(batch.text(Text::TraceId, 0), "a\u{e9}\n\"b\"".as_bytes());
    assert_ne!(
        batch.word(Word::Tenant, 0),
        0,
        "a member's name may be escaped, too"
    );
}
