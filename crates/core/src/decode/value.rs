//! One member's raw JSON → a value of its column's type, or nothing where it is impossible.
//!
//! Numbers may stand as strings, and strings as numbers, where nothing is lost by it. Decimals
//! are read from their text, never through a float.

use std::borrow::Cow;

use crate::field::{COUNT_MAX, IntKind, MILLIS_MAX};
use crate::money::Usd;
use crate::timestamp;

/// A value as it stands in the payload: valid JSON, not null.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    json: &'a str,
    /// The byte of the payload at which it starts; unknown where it holds escapes.
    pub at: Option<usize>,
}

impl<'a> Raw<'a> {
    pub fn new(json: &'a str, at: Option<usize>) -> Self {
        Self { json, at }
    }

    pub fn json(self) -> &'a str {
        self.json
    }

    /// A string, or a number's own text, of at most `max` bytes.
    pub fn text(self, max: usize) -> Option<Cow<'a, str>> {
        let text = match self.json.as_bytes()[0] {
            b'"' => self.unquoted()?,
            b'-' | b'0'..=b'9' => Cow::Borrowed(self.json),
            _ => return None,
        };
        (text.len() <= max).then_some(text)
    }

    fn unquoted(self) -> Option<Cow<'a, str>> {
        let inner = &self.json[1..self.json.len() - 1];
        if inner.as_bytes().contains(&b'\\') {
            // A lone surrogate is JSON by its grammar, but no text.
            return sonic_rs::from_str::<String>(self.json).ok().map(Cow::Owned);
        }
        Some(Cow::Borrowed(inner))
    }

    /// A number's text, bare or in a string.
    fn number(self) -> Option<&'a str> {
        let text = match self.json.as_bytes()[0] {
            b'"' => self.json[1..self.json.len() - 1].trim(),
            _ => self.json,
        };
        text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
            .then_some(text)
    }

    pub fn int(self, kind: IntKind) -> Option<i64> {
        let text = self.number()?;
        let value = match text.parse::<i64>() {
            Ok(value) => value,
            Err(_) => integer_of_decimal(text, kind == IntKind::Millis)?,
        };
        let possible = match kind {
            IntKind::Attempt => 0..=i64::from(i32::MAX),
            IntKind::Count => 0..=COUNT_MAX,
            IntKind::Millis => 0..=MILLIS_MAX,
            IntKind::Status => 100..=599,
        };
        possible.contains(&value).then_some(value)
    }

    pub fn bool(self) -> Option<bool> {
        match self.json.trim_matches('"') {
            "1" => Some(true),
            "0" => Some(false),
            text if text.eq_ignore_ascii_case("true") => Some(true),
            text if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }

    /// An amount in the caller's unit, 10^-12 of it; a negative one is impossible.
    pub fn money(self) -> Option<i128> {
        let amount = self.number()?.parse::<Usd>().ok()?.0;
        (amount >= 0).then_some(amount)
    }

    /// µs since 1970 in UTC.
    pub fn instant(self) -> Option<i64> {
        timestamp::parse(match self.json.as_bytes()[0] {
            b'"' => self.json[1..self.json.len() - 1].trim(),
            _ => self.json,
        })
    }
}

/// `512.0` and `1e3` are integers; `12.5` is one only where it may be rounded. These are counts
/// and times, so a float of 53 bits holds every possible value.
fn integer_of_decimal(text: &str, may_round: bool) -> Option<i64> {
    let value = text.parse::<f64>().ok()?;
    let rounded = value.round();
    let exact = rounded == value || may_round;
    (exact && rounded.abs() < 9e15).then_some(rounded as i64)
}
