//! payload → where each member's value stands. The only function that holds the JSON parser.
//!
//! Its contract: the payload is one JSON object in UTF-8, at most [`PAYLOAD_BYTES_MAX`] bytes and
//! [`DEPTH_MAX`] levels, with nothing but white space after it, and no known member twice
//! (a repeated member of another name is ignored like any other of its kind).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use sonic_rs::LazyValue;

use super::scratch::Scratch;
use super::{Bad, DEPTH_MAX, PAYLOAD_BYTES_MAX, Reason};
use crate::field::Field;

/// Fills the scratch row with the members of the payload, and gives the payload as text.
pub fn parse<'a>(payload: &'a [u8], scratch: &mut Scratch) -> Result<&'a str, Bad> {
    let bad = |reason, at| Bad {
        reason,
        field: None,
        at,
    };
    scratch.clear();
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(bad(Reason::TooLarge, None));
    }
    let text = std::str::from_utf8(payload)
        .map_err(|error| bad(Reason::InvalidUtf8, Some(error.valid_up_to())))?;
    let first = payload.iter().position(|byte| !byte.is_ascii_whitespace());
    match first.map(|at| payload[at]) {
        Some(b'{') => {}
        Some(b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => {
            return Err(bad(Reason::NotAnObject, first));
        }
        _ => return Err(bad(Reason::InvalidJson, first)),
    }
    if let Some(at) = too_deep(payload) {
        return Err(bad(Reason::TooDeep, Some(at)));
    }
    // Where it skips a string, the fast parser does not look at its escapes. Few payloads have any.
    if payload.contains(&b'\\')
        && let Err(error) = serde_json::from_str::<IgnoredAny>(text)
        && !error.to_string().starts_with("trailing characters")
    {
        return Err(bad(Reason::InvalidJson, None));
    }
    let mut parser = sonic_rs::Deserializer::from_str(text);
    let mut twice = None;
    let members = Members {
        payload,
        scratch,
        twice: &mut twice,
    };
    if let Err(error) = parser.deserialize_map(members) {
        return Err(match twice {
            Some(field) => Bad {
                reason: Reason::DuplicateKey,
                field: Some(field),
                at: None,
            },
            None => bad(Reason::InvalidJson, Some(error.offset())),
        });
    }
    parser
        .end()
        .map_err(|error| bad(Reason::TrailingData, Some(error.offset())))?;
    Ok(text)
}

/// The byte at which nesting passes [`DEPTH_MAX`]. The parser recurses over values that are
/// skipped, so this stands before it: most payloads have few brackets, and are only counted.
fn too_deep(payload: &[u8]) -> Option<usize> {
    let opening = payload
        .iter()
        .filter(|&&byte| byte == b'{' || byte == b'[')
        .count();
    if opening <= DEPTH_MAX {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in payload.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

struct Members<'s> {
    payload: &'s [u8],
    scratch: &'s mut Scratch,
    twice: &'s mut Option<Field>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Name)? {
            let value: LazyValue<'de> = map.next_value()?;
            let Some(field) = field else {
                self.scratch.unknown += 1;
                continue;
            };
            if !self.scratch.see(field) {
                *self.twice = Some(field);
                return Err(A::Error::custom("a member stands twice"));
            }
            let raw = value.as_raw_str();
            if raw != "null" {
                self.scratch.set(field, self.payload, raw);
            }
        }
        Ok(())
    }
}

/// Reads a member's name as the field it is, if any.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<Field>;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<Field>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Field::of(name.as_bytes()))
    }
}
