//! a bad record → the JSON that goes to the dead-letter topic or file.
//!
//! Redacted by default: the event's known fields without long strings, and lengths; around a
//! parse error at most [`AROUND_BYTES`]. The position finds the original. Configured as `full`,
//! the payload stands in it as it was.

use base64::Engine as _;
use retrytoll_core::batch::SourceId;
use retrytoll_core::decode::{Bad, Reason};
use retrytoll_core::field::Field;
use retrytoll_core::secret;
use serde_json::{Map, Value, json};

use crate::pipeline::SourceRecord;

/// Bytes shown around a parse error.
pub const AROUND_BYTES: usize = 256;
/// A longer string is shown as its length.
pub const STRING_BYTES_MAX: usize = 256;
/// A payload above this is not looked into for its known fields.
const LOOK_BYTES_MAX: usize = 64 << 10;

/// One dead letter, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub partition: i32,
    pub offset: i64,
    /// The record's position; the same after a restart, so that a repeat is seen as one.
    pub key: String,
    pub body: Value,
}

impl DeadLetter {
    /// `keep_payload` keeps the payload as it was; a record without one is no dead letter.
    pub fn new(source: &SourceId, record: &SourceRecord<'_>, bad: Bad, keep_payload: bool) -> Self {
        let payload = record.payload.unwrap_or_default();
        let mut body = json!({
            "reason": bad.reason.name(),
            "message": bad.to_string(),
            "source": &*source.0,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "payload_bytes": payload.len(),
        });
        if let Some(field) = bad.field {
            body["field"] = field.name().into();
        }
        if let Some(at) = bad.at {
            body["at_byte"] = at.into();
        }
        if keep_payload {
            match std::str::from_utf8(payload) {
                Ok(text) => body["payload"] = text.into(),
                Err(_) => {
                    let text = base64::engine::general_purpose::STANDARD.encode(payload);
                    body["payload_base64"] = text.into();
                }
            }
        } else if let Some(fields) = known_fields(bad, payload) {
            body["fields"] = Value::Object(fields);
        } else if let Some(at) = bad.at {
            body["around"] = around(payload, at).into();
        }
        let key = format!("{}/{}/{}", source.0, record.partition, record.offset);
        Self {
            partition: record.partition,
            offset: record.offset,
            key,
            body,
        }
    }

    /// The letter as it is sent.
    pub fn json(&self) -> String {
        self.body.to_string()
    }

    /// The letter without its content: for a topic that refuses it for its size.
    pub fn without_content(&self) -> String {
        let mut body = self.body.clone();
        if let Some(members) = body.as_object_mut() {
            members.retain(|name, _| {
                !["payload", "payload_base64", "fields", "around"].contains(&name.as_str())
            });
            members.insert("content_dropped".into(), true.into());
        }
        body.to_string()
    }
}

/// The event's own fields where the record is an object after all: what was wrong is one of them.
fn known_fields(bad: Bad, payload: &[u8]) -> Option<Map<String, Value>> {
    let readable = matches!(
        bad.reason,
        Reason::MissingField | Reason::InvalidField | Reason::DuplicateKey
    );
    if !readable || payload.len() > LOOK_BYTES_MAX {
        return None;
    }
    let members: Map<String, Value> = serde_json::from_slice(payload).ok()?;
    let known = members
        .into_iter()
        .filter(|(name, _)| Field::of(name.as_bytes()).is_some());
    Some(known.map(|(name, value)| (name, redacted(value))).collect())
}

fn redacted(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > STRING_BYTES_MAX => {
            format!("({} bytes)", text.len()).into()
        }
        Value::String(text) => secret::replaced(&text).unwrap_or(text).into(),
        Value::Array(_) => "(an array)".into(),
        Value::Object(_) => "(an object)".into(),
        plain => plain,
    }
}

/// At most [`AROUND_BYTES`] bytes about the place, as text, words that look like secrets replaced.
fn around(payload: &[u8], at: usize) -> String {
    let start = at.min(payload.len()).saturating_sub(AROUND_BYTES / 2);
    let end = (start + AROUND_BYTES).min(payload.len());
    let text = String::from_utf8_lossy(&payload[start..end]);
    let words = text.split_inclusive(|it: char| it.is_whitespace() || "\"',:;{}[]".contains(it));
    words
        .map(|word| {
            let bare = word.trim_end_matches(|it: char| !it.is_alphanumeric());
            match secret::replaced(bare) {
                Some(replaced) => word.replacen(bare, &replaced, 1),
                None => word.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(payload: &[u8], bad: Bad, keep_payload: bool) -> DeadLetter {
        let source = SourceId("cluster/topic".into());
        let record = SourceRecord {
            partition: 3,
            offset: 42,
            timestamp_ms: Some(1_788_300_000_000),
            payload: Some(payload),
        };
        DeadLetter::new(&source, &record, bad, keep_payload)
    }

    const MISSING: Bad = Bad {
        reason: Reason::MissingField,
        field: Some(Field::Word(retrytoll_core::field::Word::Model)),
        at: None,
    };

    #[test]
    fn a_letter_names_its_position_and_reason() {
        let it = letter(br#"{"request_id":"r"}"#, MISSING, false);
        assert_eq!(it.key, "cluster/topic/3/42");
        assert_eq!(it.body["reason"], "missing_field");
        assert_eq!(it.body["field"], "model");
        assert_eq!(
            (&it.body["partition"], &it.body["offset"]),
            (&json!(3), &json!(42))
        );
        assert_eq!(it.body["fields"], json!({"request_id": "r"}));
    }

    #[test]
    fn redacted_letters_hold_no_prompt_and_no_key() {
        let prompt = "write me a poem ".repeat(40);
        let payload = json!({
            "request_id": "r", "prompt": prompt, "reason": prompt,
            "api_key_id": "sk-proj-abcdefghijklmnopqrstuvwx", "labels": {"a": prompt},
        });
        let text = letter(payload.to_string().as_bytes(), MISSING, false).json();
        assert!(
            !text.contains("poem") && !text.contains("abcdefghij"),
            "{text}"
        );
        assert!(text.contains("(640 bytes)"), "{text}");
    }

    #[test]
    fn a_parse_error_shows_what_is_around_it() {
        let mut payload = vec![b'x'; 10_000];
        payload[5_000] = b'!';
        let bad = Bad {
            reason: Reason::InvalidJson,
            field: None,
            at: Some(5_000),
        };
        let around = letter(&payload, bad, false).body["around"].to_string();
        assert_eq!(around.len(), AROUND_BYTES + 2);
        assert!(around.contains('!'));
        let at_end = Bad {
            at: Some(20_000),
            ..bad
        };
        assert!(letter(&payload, at_end, false).body["around"].is_string());
    }

    #[test]
    fn full_letters_keep_every_byte() {
        let bad = Bad {
            reason: Reason::InvalidUtf8,
            field: None,
            at: Some(0),
        };
        let it = letter(b"\xff\x00", bad, true);
        assert_eq!(it.body["payload_base64"], "/wA=");
        assert_eq!(letter(b"plain", bad, true).body["payload"], "plain");
        assert!(!it.without_content().contains("/wA="));
    }
}
