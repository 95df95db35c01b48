//! One event's raw values, reused for every event.

use super::value::Raw;
use crate::field::{FIELD_COUNT, Field};

/// Where each member's value stands in the payload. Nothing is cleared between events but the
/// set of members seen.
#[derive(Debug)]
pub struct Scratch {
    /// Members seen, by [`Field::index`]; a `null` is seen, too.
    seen: u128,
    /// Members that have a value.
    present: u128,
    /// Start (inclusive) and end (exclusive) of each raw value; past the payload's end, of
    /// `escaped`.
    spans: [(u32, u32); FIELD_COUNT],
    /// Values with escapes in them, of which the parser hands out copies.
    escaped: String,
    /// Members that no field has the name of.
    pub unknown: u32,
}

const _: () = assert!(
    FIELD_COUNT <= 128,
    "the sets above have a bit for each field"
);

impl Default for Scratch {
    fn default() -> Self {
        Self {
            seen: 0,
            present: 0,
            spans: [(0, 0); FIELD_COUNT],
            escaped: String::new(),
            unknown: 0,
        }
    }
}

impl Scratch {
    pub fn clear(&mut self) {
        self.seen = 0;
        self.present = 0;
        self.unknown = 0;
        self.escaped.clear();
    }

    /// Marks the field as seen; false where it was already.
    pub fn see(&mut self, field: Field) -> bool {
        let bit = 1 << field.index();
        let first = self.seen & bit == 0;
        self.seen |= bit;
        first
    }

    /// Keeps a value: where it stands in the payload, or else a copy.
    pub fn set(&mut self, field: Field, payload: &[u8], raw: &str) {
        self.present |= 1 << field.index();
        let start = (raw.as_ptr() as usize).wrapping_sub(payload.as_ptr() as usize);
        let start = if start.saturating_add(raw.len()) <= payload.len() {
            start
        } else {
            let start = payload.len() + self.escaped.len();
            self.escaped.push_str(raw);
            start
        };
        self.spans[field.index()] = (start as u32, (start + raw.len()) as u32);
    }

    pub fn has(&self, field: Field) -> bool {
        self.present >> field.index() & 1 == 1
    }

    /// The raw value of a field that [`Scratch::has`] one.
    pub fn raw<'a>(&'a self, field: Field, payload: &'a str) -> Raw<'a> {
        let (start, end) = self.spans[field.index()];
        let (start, end) = (start as usize, end as usize);
        match start.checked_sub(payload.len()) {
            Some(copy) => Raw::new(&self.escaped[copy..end - payload.len()], None),
            None => Raw::new(&payload[start..end], Some(start)),
        }
    }

    /// The fields that have a value, in the order of [`Field::ALL`].
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<> {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Field::ALL.get(at).copied()
        })
    }
}
