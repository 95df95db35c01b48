//! `labels`: an object of at most 16 pairs → its JSON text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use sonic_rs::LazyValue;

use super::TEXT_BYTES_MAX;
use super::value::Raw;
use crate::field::LABELS_MAX;
use crate::secret;

/// The labels as they are kept.
pub struct Labels<'a> {
    pub text: Cow<'a, str>,
    /// A value looked like a credential and was replaced.
    pub had_secret: bool,
}

/// Reads the object; `None` where it is none, has too many pairs, or a value that is an object
/// or an array.
pub fn read(raw: Raw<'_>) -> Option<Labels<'_>> {
    let json = raw.json();
    if !json.starts_with('{') || json.len() > TEXT_BYTES_MAX {
        return None;
    }
    let had_secret = sonic_rs::Deserializer::from_str(json)
        .deserialize_map(Pairs)
        .ok()?;
    let text = if had_secret {
        Cow::Owned(without_secrets(json)?)
    } else {
        Cow::Borrowed(json)
    };
    Some(Labels { text, had_secret })
}

/// Looks over the pairs without keeping them; says whether one holds a credential.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of at most 16 pairs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut count, mut had_secret) = (0, false);
        while map.next_key::<IgnoredAny>()?.is_some() {
            let value: LazyValue<'de> = map.next_value()?;
            let value = value.as_raw_str();
            count += 1;
            if count > LABELS_MAX || value.starts_with(['{', '[']) {
                return Err(A::Error::custom(
                    "labels are at most 16 pairs of plain values",
                ));
            }
            if value.starts_with('"') {
                // What escapes spell is what a reader of the column sees.
                let text = Raw::new(value, None).text(TEXT_BYTES_MAX);
                let text = text.ok_or_else(|| A::Error::custom("half a surrogate pair"))?;
                had_secret |= secret::replaced(&text).is_some();
            }
        }
        Ok(had_secret)
    }
}

fn without_secrets(json: &str) -> Option<String> {
    let mut pairs: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    for value in pairs.values_mut() {
        if let Some(replaced) = value.as_str().and_then(secret::replaced) {
            *value = replaced.into();
        }
    }
    serde_json::to_string(&pairs).ok()
}
