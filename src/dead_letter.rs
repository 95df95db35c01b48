//! a bad record → the JSON that goes to the dead-letter topic or file.
//!
//! Redacted by default: the event's known fields without long strings, and lengths; around a
//! parse error the shape of at most [`AROUND_BYTES`]. The position finds the original. Configured as `full`,
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
    let known = members.into_iter().filter_map(|(name, value)| {
        let field = Field::of(name.as_bytes())?;
        Some((name, redacted(field, value)))
    });
    Some(known.collect())
}

/// Whether a string is what the field is for; what stands in its place may well be a prompt.
fn fits(field: Field, text: &str) -> bool {
    match field {
        Field::Word(_) | Field::Text(_) => true,
        Field::Hash(_) => {
            let digits = text.strip_prefix("sha256:").unwrap_or(text);
            digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        Field::Bool(_) => matches!(text, "true" | "false"),
        Field::Int(_) | Field::Money(_) | Field::Time(_) | Field::Labels => text
            .bytes()
            .all(|byte| b"0123456789.:+-TZeE ".contains(&byte)),
    }
}

fn redacted(field: Field, value: Value) -> Value {
    match value {
        Value::String(text) if !fits(field, &text) => format!("({} bytes)", text.len()).into(),
        Value::String(text) if text.len() > STRING_BYTES_MAX => {
            format!("({} bytes)", text.len()).into()
        }
        Value::String(text) => secret::replaced(&text).unwrap_or(text).into(),
        Value::Array(_) => "(an array)".into(),
        Value::Object(_) => "(an object)".into(),
        plain => plain,
    }
}

/// The shape of what is within [`AROUND_BYTES`] bytes about the place: punctuation, numbers and the
/// names of known fields as they are, of all else the length. What is broken may well be a prompt.
fn around(payload: &[u8], at: usize) -> String {
    let start = at.min(payload.len()).saturating_sub(AROUND_BYTES / 2);
    let end = (start + AROUND_BYTES).min(payload.len());
    let mut shape = String::new();
    let mut from = 0;
    while from < end {
        let token = &payload[from..from + token_bytes(&payload[from..])];
        if from + token.len() > start {
            shape.push_str(&shape_of(token));
        }
        from += token.len();
    }
    shape
}

/// How long the first token is: a string with its quotes as far as they are there, a word, or a
/// character that stands alone in JSON.
fn token_bytes(bytes: &[u8]) -> usize {
    let alone = |byte: u8| b"{}[]:,\" \t\r\n".contains(&byte);
    match bytes[0] {
        b'"' => {
            let mut at = 1;
            while at < bytes.len() && bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            (at + 1).min(bytes.len())
        }
        byte if alone(byte) => 1,
        _ => {
            let end = bytes.iter().position(|byte| alone(*byte));
            end.unwrap_or(bytes.len())
        }
    }
}

fn shape_of(token: &[u8]) -> String {
    let content = token.strip_prefix(b"\"").unwrap_or(token);
    let content = content.strip_suffix(b"\"").unwrap_or(content);
    let is_string = token[0] == b'"';
    let is_plain = match token {
        [_] => !token[0].is_ascii_alphabetic() && token[0].is_ascii(),
        b"true" | b"false" | b"null" => true,
        _ if is_string => Field::of(content).is_some(),
        _ => token.iter().all(|byte| b"0123456789.eE+-".contains(byte)),
    };
    match (is_plain, is_string) {
        (true, _) => String::from_utf8_lossy(token).into_owned(),
        (false, true) => format!("\"({} bytes)\"", content.len()),
        (false, false) => format!("({} bytes)", content.len()),
    }
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
    fn what_stands_where_it_does_not_belong_is_shown_as_its_length() {
        let payload = json!({
            "request_id": "r", "attempt": "a poem", "cost": "0.25", "ts": "2026-11-30T12:00:00Z",
            "stream": "perhaps", "prompt_hash": "write me a poem", "labels": "all of it",
        });
        let it = letter(payload.to_string().as_bytes(), MISSING, false);
        let shown = json!({
            "request_id": "r", "attempt": "(6 bytes)", "cost": "0.25", "ts": "2026-11-30T12:00:00Z",
            "stream": "(7 bytes)", "prompt_hash": "(15 bytes)", "labels": "(9 bytes)",
        });
        assert_eq!(it.body["fields"], shown);
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
        let bad = |at| Bad {
            reason: Reason::InvalidJson,
            field: None,
            at: Some(at),
        };
        let around = |payload: &[u8], at| {
            let body = letter(payload, bad(at), false).body;
            body["around"].as_str().map(str::to_owned)
        };
        let cut = br#"{"request_id":"r-1","attempt":0,"final":true,"prompt":"my \"own\" poem"#;
        let shape = "{\"request_id\":\"(3 bytes)\",\"attempt\":0,\"final\":true,\"(6 bytes)\":\"(15 bytes)\"";
        assert_eq!(around(cut, cut.len()).as_deref(), Some(shape));
        let words = b"{'model': poem, \"a\":-1.5e3}\xff";
        assert_eq!(
            around(words, 3).as_deref(),
            Some("{(7 bytes): (4 bytes), \"(1 bytes)\":-1.5e3}(1 bytes)")
        );
        // Of ten thousand numbers, those that lie within.
        let mut payload = b"1,".repeat(5_000);
        payload[5_000] = b'!';
        let shown = around(&payload, 5_000).expect("a shape");
        assert_eq!((shown.len(), shown.matches('!').count()), (AROUND_BYTES, 1));
        assert!(around(&payload, 20_000).is_some());
        assert_eq!(around(b"", 0).as_deref(), Some(""));
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
