//! JSON text → canonical JSON, after RFC 8785, with numbers kept to their last digit.
//!
//! Values stay raw text until they are written: a number's digits never pass through a float.
//! The text is read once per level it is nested in, which [`DEPTH_MAX`] bounds.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::PromptError;

/// The most levels of a request body. Tools' schemas have about ten.
pub const DEPTH_MAX: usize = 128;
/// The greatest power of ten of a number; a double ends at 308.
pub const EXPONENT_MAX: i64 = 999_999;

/// A constant as raw JSON; it must be valid.
pub(super) fn raw(text: &'static str) -> &'static RawValue {
    #[expect(
        clippy::expect_used,
        reason = "constants of this program; tests read each of them"
    )]
    serde_json::from_str(text).expect("a constant is valid JSON")
}

/// The items of a list; `None` for a value of another kind.
pub(super) fn items(value: &RawValue) -> Result<Option<Vec<&RawValue>>, PromptError> {
    match value.get().starts_with('[') {
        true => Ok(Some(serde_json::from_str(value.get())?)),
        false => Ok(None),
    }
}

/// The members of an object, sorted by name in UTF-16, no name twice.
#[derive(Clone, Default)]
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// `None` for a value that is not an object.
    pub(super) fn read(value: &'a RawValue) -> Result<Option<Self>, PromptError> {
        if !value.get().starts_with('{') {
            return Ok(None);
        }
        let mut parser = serde_json::Deserializer::from_str(value.get());
        let mut members = parser.deserialize_map(Pairs)?;
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(PromptError::Duplicate {
                name: pair[0].0.clone(),
            }),
            None => Ok(Some(Self(members))),
        }
    }

    /// Members that are sorted already.
    pub(super) fn of(members: Vec<(&str, &'a RawValue)>) -> Self {
        Self(
            members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    pub(super) fn without_nulls(mut self) -> Self {
        self.0.retain(|(_, value)| value.get() != "null");
        self
    }

    /// The same members, one of them with another value.
    pub(super) fn with<'b>(&self, name: &str, value: &'b RawValue) -> Members<'b>
    where
        'a: 'b,
    {
        let put = |(key, old): &(String, &'a RawValue)| {
            (key.clone(), if key == name { value } else { *old })
        };
        Members(self.0.iter().map(put).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// The value of the first of these names that is there.
    pub(super) fn first_of(&self, names: &[&str]) -> Option<&'a RawValue> {
        names.iter().find_map(|name| self.get(name))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), PromptError> {
        write_members(self, 1, out)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// Appends the canonical form of a value.
pub(super) fn write(value: &RawValue, out: &mut Vec<u8>) -> Result<(), PromptError> {
    write_at(value, 1, out)
}

fn write_at(value: &RawValue, depth: usize, out: &mut Vec<u8>) -> Result<(), PromptError> {
    if depth > DEPTH_MAX {
        return Err(PromptError::TooDeep);
    }
    let text = value.get();
    match text.as_bytes()[0] {
        b'{' => {
            // It begins like an object, so it is one.
            let members = Members::read(value)?.unwrap_or_default();
            write_members(&members, depth, out)
        }
        b'[' => {
            out.push(b'[');
            for (at, item) in items(value)?.into_iter().flatten().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_at(item, depth + 1, out)?;
            }
            out.push(b']');
            Ok(())
        }
        b'"' => Ok(write_string(&serde_json::from_str::<String>(text)?, out)?),
        b'-' | b'0'..=b'9' => write_number(text, out),
        _ => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
}

fn write_members(
    members: &Members<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), PromptError> {
    out.push(b'{');
    for (at, (name, value)) in members.0.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(name, out)?;
        out.push(b':');
        write_at(value, depth + 1, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// The parser's own writer escapes as RFC 8785 asks: the seven short escapes, `\u00xx` in lower
/// case for other control characters, nothing else.
fn write_string(text: &str, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    serde_json::to_writer(out, text)
}

/// Lays a number out as ECMAScript does, from its digits as typed.
fn write_number(text: &str, out: &mut Vec<u8>) -> Result<(), PromptError> {
    let too_far = || PromptError::Exponent {
        text: text.chars().take(40).collect(),
    };
    let (negative, rest) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| too_far())?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    // The value is 0.digits times ten to the power of `point`.
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX)
        - i64::try_from(all.len() - digits.len()).unwrap_or(i64::MAX);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    let point = exponent
        .checked_add(point)
        .filter(|point| point.abs() <= EXPONENT_MAX)
        .ok_or_else(too_far)?;
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(lay_out(digits, point).as_bytes());
    Ok(())
}

fn lay_out(digits: &str, point: i64) -> String {
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    match point {
        1..=21 if count <= point => format!("{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{fraction}")
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{:+}", point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, PromptError> {
        let mut out = Vec::new();
        write(serde_json::from_str(text)?, &mut out)?;
        Ok(String::from_utf8(out).expect("canonical JSON is UTF-8"))
    }

    #[test]
    fn numbers_keep_their_value_and_lose_their_spelling() {
        for (typed, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("0e99999999999999", "0"),
            ("1.0", "1"),
            ("10e-1", "1"),
            ("-1.50", "-1.5"),
            ("0.7", "0.7"),
            ("1e2", "100"),
            ("1E+2", "100"),
            ("100000000000000000000", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1234e20", "1.234e+23"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("12.5e-8", "1.25e-7"),
            (
                "0.1000000000000000055511151231257827",
                "0.1000000000000000055511151231257827",
            ),
        ] {
            assert_eq!(canonical(typed).expect(typed), expected, "{typed}");
        }
    }

    #[test]
    fn objects_are_sorted_by_utf_16_and_strings_escaped_as_little_as_possible() {
        // U+FB33 sorts after U+1F600 in UTF-16 (D83D < FB33), before it by code point.
        let typed =
            r#" { "\ufb33" : 1, "\ud83d\ude00" : 2, "a" : "\u0041\/\u001f\u00e9\n" , "" : [ ] } "#;
        let expected = "{\"\":[],\"a\":\"A/\\u001f\u{e9}\\n\",\"\u{1f600}\":2,\"\u{fb33}\":1}";
        assert_eq!(canonical(typed.trim()).expect("valid"), expected);
    }

    #[test]
    fn what_has_no_canonical_form_is_refused() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(canonical(&nested(DEPTH_MAX)).is_ok());
        assert!(matches!(
            canonical(&nested(DEPTH_MAX + 1)),
            Err(PromptError::TooDeep)
        ));
        assert!(matches!(
            canonical(&nested(100_000)),
            Err(PromptError::TooDeep)
        ));
        assert!(
            matches!(canonical(r#"{"a":1,"\u0061":2}"#), Err(PromptError::Duplicate { name })
            if name == "a")
        );
        assert!(matches!(
            canonical(r#""\ud800""#),
            Err(PromptError::Json(_))
        ));
        assert!(matches!(
            canonical("1e1000000"),
            Err(PromptError::Exponent { .. })
        ));
        assert!(matches!(
            canonical("1e99999999999999999999"),
            Err(PromptError::Exponent { .. })
        ));
    }
}
