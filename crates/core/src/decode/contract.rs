//! Any records are rows within their bounds, or are bad and leave no trace.

use serde::de::IgnoredAny;

use super::*;
use crate::batch::SourceId;
use crate::column::{Sparse, Strings};
use crate::field::{Bool, COUNT_MAX, IntKind, LABELS_MAX, MILLIS_MAX, Money};
use crate::money::ROW_MAX;
use crate::timestamp;

/// What stands between two records (ASCII's record separator): no JSON holds it bare.
pub const SEPARATOR: u8 = 0x1e;

/// More records of one input show nothing new, and take long to compare.
const RECORDS_MAX: usize = 8;

/// Longer replacements of short secrets may make labels longer than they came.
const LABELS_BYTES_MAX: usize = TEXT_BYTES_MAX + LABELS_MAX * 64;

/// Checks the first records of a partition; says how many of them are events.
///
/// # Panics
/// A promise of [`Decoder`] is broken.
pub fn check(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::default();
    let mut batch = empty();
    let mut before = empty();
    let mut events = Vec::new();
    let payloads = bytes.split(|byte| *byte == SEPARATOR).take(RECORDS_MAX);
    for (place, payload) in payloads.enumerate() {
        let record = record(place, payload);
        let counts = decoder.counts.clone();
        match decoder.decode(&record, &mut batch) {
            Ok(()) => {
                assert_eq!(batch.len(), before.len() + 1);
                assert_eq!(decoder.counts.events, counts.events + 1);
                assert_eq!(decoder.counts.bad, counts.bad);
                is_json(payload);
                events.push(record);
                before = batch.clone();
            }
            Err(bad) => {
                assert_eq!(batch, before, "{bad}");
                assert_eq!(decoder.counts.events, counts.events);
                assert_eq!(decoder.counts.invalid, counts.invalid);
                let reason = bad.reason as usize;
                assert_eq!(decoder.counts.bad[reason], counts.bad[reason] + 1);
                is_bad(bad, payload);
            }
        }
    }
    batch.pad();
    for (row, record) in events.iter().enumerate() {
        is_bounded(&batch, row, record, &decoder.dictionary);
        if record.offset > 0 {
            is_of_its_record_alone(&mut decoder, &batch, row, record);
        }
    }
    is_whole(batch, events.len());
    events.len()
}

fn empty() -> EventBatch {
    EventBatch::new(SourceId("fuzz".into()), 0)
}

fn record(place: usize, payload: &[u8]) -> Record<'_> {
    Record {
        offset: place as i64,
        index: 0,
        timestamp_ms: place.is_multiple_of(2).then_some(place as i64),
        payload,
    }
}

/// What is taken is JSON to another parser.
fn is_json(payload: &[u8]) {
    let other = serde_json::from_slice::<IgnoredAny>(payload);
    assert!(
        other.is_ok(),
        "taken, but no JSON: {}",
        String::from_utf8_lossy(payload)
    );
}

/// The reason is right where another parser can tell, and its place lies in the payload.
fn is_bad(bad: Bad, payload: &[u8]) {
    let shown = String::from_utf8_lossy(payload);
    assert!(
        bad.at.is_none_or(|at| at <= payload.len() + 1),
        "{bad}: {shown}"
    );
    let of_field = matches!(
        bad.reason,
        Reason::MissingField | Reason::InvalidField | Reason::DuplicateKey
    );
    assert_eq!(bad.field.is_some(), of_field, "{bad}");
    let is_utf8 = std::str::from_utf8(payload).is_ok();
    assert_eq!(
        bad.reason == Reason::InvalidUtf8,
        !is_utf8,
        "{bad}: {shown}"
    );
    // Half a surrogate pair is JSON by its grammar, and no text: either is right.
    let has_half = || {
        payload
            .windows(3)
            .any(|it| it.eq_ignore_ascii_case(b"\\ud"))
    };
    let says_no_json = matches!(bad.reason, Reason::InvalidJson | Reason::TrailingData);
    if says_no_json && !has_half() {
        let other = serde_json::from_slice::<IgnoredAny>(payload);
        assert!(other.is_err(), "{bad}: {shown}");
    }
    if of_field && bad.reason != Reason::DuplicateKey {
        is_json(payload);
    }
}

/// Each value of the row is one that its column may hold.
fn is_bounded(batch: &EventBatch, row: usize, record: &Record<'_>, dictionary: &Dictionary) {
    assert_eq!(
        (batch.offsets[row], batch.indexes[row]),
        (record.offset, record.index)
    );
    assert_eq!(
        batch.record_ms[row],
        record.timestamp_ms.unwrap_or(NO_RECORD_MS)
    );
    for word in Word::ALL {
        let text = dictionary.get(batch.word(*word, row));
        is_text(word.name(), text.as_bytes(), WORD_BYTES_MAX);
    }
    for text in Text::ALL {
        let is_labels = *text == Text::Labels;
        let most = if is_labels {
            LABELS_BYTES_MAX
        } else {
            TEXT_BYTES_MAX
        };
        let value = batch.text(*text, row);
        assert!(
            value.len() <= most,
            "{}: {} bytes",
            text.name(),
            value.len()
        );
        if !is_labels {
            is_text(text.name(), value, TEXT_BYTES_MAX);
        } else if !value.is_empty() {
            are_labels(value);
        }
    }
    for int in Int::ALL {
        let possible = match int.kind() {
            IntKind::Attempt => 0..=i64::from(i32::MAX),
            IntKind::Count => 0..=COUNT_MAX,
            IntKind::Millis => 0..=MILLIS_MAX,
            IntKind::Status => 100..=599,
        };
        let value = batch.int(*int, row);
        assert!(
            value.is_none_or(|it| possible.contains(&it)),
            "{int:?}: {value:?}"
        );
    }
    for money in Money::ALL {
        let value = batch.money(*money, row);
        assert!(
            value.is_none_or(|it| (0..=ROW_MAX).contains(&it)),
            "{money:?}: {value:?}"
        );
    }
    for time in Time::ALL {
        let shown = batch.time(*time, row).map(timestamp::text);
        assert!(
            shown
                .as_deref()
                .is_none_or(|it| ("1970".."A").contains(&it)),
            "{shown:?}"
        );
        assert!(shown.is_none_or(|it| it.len() == 24));
    }
    assert!(!batch.text(Text::RequestId, row).is_empty() && batch.int(Int::Attempt, row).is_some());
    assert!(batch.word(Word::Model, row) > 0 && batch.word(Word::Decision, row) > 0);
    is_flagged(batch, row);
}

/// Text, and none that opens a door.
fn is_text(name: &str, value: &[u8], most: usize) {
    let Ok(text) = std::str::from_utf8(value) else {
        panic!("{name} is no text: {value:?}");
    };
    assert!(text.len() <= most, "{name}: {} bytes", text.len());
    assert_eq!(secret::replaced(text), None, "{name}: {text}");
}

/// An object of few plain values, none of which opens a door.
fn are_labels(value: &[u8]) {
    let pairs = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(value);
    // A number beyond floats and half a surrogate pair are good by the grammar alone.
    let Ok(pairs) = pairs else {
        return is_json(value);
    };
    assert!(pairs.len() <= LABELS_MAX, "{pairs:?}");
    for value in pairs.values() {
        assert!(!value.is_object() && !value.is_array(), "{value}");
        let replaced = value.as_str().and_then(secret::replaced);
        assert_eq!(replaced, None, "labels: {value}");
    }
}

/// The flags say what is odd, and an impossible value is null.
fn is_flagged(batch: &EventBatch, row: usize) {
    let flags = batch.flags[row];
    let invalid: Vec<_> = batch
        .invalid
        .iter()
        .filter(|it| it.0 as usize == row)
        .collect();
    assert_eq!(flags.has(Flags::FIELD_INVALID), !invalid.is_empty());
    for (_, field) in invalid {
        let is_null = match *field {
            Field::Word(it) => batch.word(it, row) == 0,
            Field::Text(it) => batch.text(it, row).is_empty(),
            Field::Labels => batch.text(Text::Labels, row).is_empty(),
            Field::Hash(it) => batch.hashes[it as usize].kinds[row] == 0,
            Field::Int(it) => batch.int(it, row).is_none(),
            Field::Bool(it) => batch.bool(it, row).is_none(),
            Field::Money(it) => batch.money(it, row).is_none(),
            Field::Time(it) => batch.time(it, row).is_none(),
        };
        assert!(is_null, "{} is impossible and there", field.name());
    }
    let kinds = batch.hashes.iter().map(|column| column.kinds[row]);
    let other = kinds.filter(|kind| *kind == HashKind::Other as u8).count();
    assert_eq!(flags.has(Flags::HASH_OTHER), other > 0);
    for column in &batch.hashes {
        assert!(column.kinds[row] <= HashKind::Other as u8);
        assert!(column.kinds[row] > 0 || column.values[row] == [0; 32]);
    }
}

/// The records before it change nothing of a row.
fn is_of_its_record_alone(
    decoder: &mut Decoder,
    batch: &EventBatch,
    row: usize,
    record: &Record<'_>,
) {
    let mut alone = empty();
    let again = decoder.decode(record, &mut alone);
    assert_eq!(again, Ok(()));
    alone.pad();
    assert_eq!(alone.identities[0], batch.identities[row]);
    assert_eq!(alone.requests[0], batch.requests[row]);
    assert_eq!(alone.flags[0], batch.flags[row]);
    for word in Word::ALL {
        assert_eq!(alone.word(*word, 0), batch.word(*word, row), "{word:?}");
    }
    for text in Text::ALL {
        assert_eq!(alone.text(*text, 0), batch.text(*text, row), "{text:?}");
    }
    for (one, other) in alone.hashes.iter().zip(&batch.hashes) {
        assert_eq!(
            (one.kinds[0], one.values[0]),
            (other.kinds[row], other.values[row])
        );
    }
    for int in Int::ALL {
        assert_eq!(alone.int(*int, 0), batch.int(*int, row), "{int:?}");
    }
    for bool in Bool::ALL {
        assert_eq!(alone.bool(*bool, 0), batch.bool(*bool, row), "{bool:?}");
    }
    for money in Money::ALL {
        assert_eq!(
            alone.money(*money, 0),
            batch.money(*money, row),
            "{money:?}"
        );
    }
    for time in Time::ALL {
        assert_eq!(alone.time(*time, 0), batch.time(*time, row), "{time:?}");
    }
}

/// Every column has as many rows as the batch.
fn is_whole(batch: EventBatch, rows: usize) {
    fn of<T: Copy + Default>(column: Sparse<T>) -> [usize; 2] {
        let (values, valid) = column.into_parts();
        [values.len(), valid.len()]
    }
    let strings = |column: Strings| {
        let (ends, bytes) = column.into_parts();
        assert!(ends.is_sorted() && ends.last().is_none_or(|end| *end as usize == bytes.len()));
        ends.len()
    };
    let fixed = [
        batch.offsets.len(),
        batch.indexes.len(),
        batch.record_ms.len(),
        batch.flags.len(),
        batch.identities.len(),
        batch.requests.len(),
    ];
    let hashes = batch
        .hashes
        .iter()
        .flat_map(|it| [it.kinds.len(), it.values.len()]);
    let lengths = fixed
        .into_iter()
        .chain(batch.words.iter().map(Vec::len))
        .chain(hashes)
        .chain(batch.texts.into_iter().map(strings))
        .chain(batch.ints.into_iter().flat_map(of))
        .chain(batch.bools.into_iter().flat_map(of))
        .chain(batch.money.into_iter().flat_map(of))
        .chain(batch.times.into_iter().flat_map(of));
    for length in lengths {
        assert_eq!(length, rows);
    }
    assert!(batch.invalid.is_sorted_by_key(|(row, _)| *row));
}
