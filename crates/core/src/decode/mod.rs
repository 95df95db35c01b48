//! record → scratch row → a row of [`EventBatch`], or a [`Bad`] record.
//!
//! A *record* is what the log holds; an *event* is what it says. A record whose event lacks a
//! required field, or that is no JSON object, is *bad*: a dead letter. An optional field with an
//! impossible value is null and counted, and the event lives.

#[cfg(any(test, feature = "contract"))]
pub(crate) mod contract;
mod json;
mod labels;
mod scratch;
mod value;

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::batch::{EventBatch, Flags, HashKind, NO_RECORD_MS};
use crate::dictionary::Dictionary;
use crate::field::{FIELD_COUNT, Field, Hash, Int, Text, Time, Word};
use crate::secret;
use scratch::Scratch;
use value::Raw;

/// A payload above this many bytes is not parsed: an event is about 500 bytes, and holds no prompt.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// A word above this many bytes is impossible.
pub const WORD_BYTES_MAX: usize = 1 << 10;
/// Text above this many bytes is impossible.
pub const TEXT_BYTES_MAX: usize = 8 << 10;
/// JSON nested deeper than this is bad.
pub const DEPTH_MAX: usize = 64;

/// One record of a partition's log, or of a file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: i64,
    /// The place within the record, 0 for the first event.
    pub index: i32,
    /// The record's own timestamp, ms since 1970.
    pub timestamp_ms: Option<i64>,
    pub payload: &'a [u8],
}

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    TooLarge,
    InvalidUtf8,
    InvalidJson,
    NotAnObject,
    TrailingData,
    DuplicateKey,
    TooDeep,
    MissingField,
    InvalidField,
}

impl Reason {
    /// Every one, in the order of its number.
    pub const ALL: [Self; 9] = [
        Self::TooLarge,
        Self::InvalidUtf8,
        Self::InvalidJson,
        Self::NotAnObject,
        Self::TrailingData,
        Self::DuplicateKey,
        Self::TooDeep,
        Self::MissingField,
        Self::InvalidField,
    ];

    /// The word that dead letters and counters show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::InvalidJson => "invalid_json",
            Self::NotAnObject => "not_an_object",
            Self::TrailingData => "trailing_data",
            Self::DuplicateKey => "duplicate_key",
            Self::TooDeep => "too_deep",
            Self::MissingField => "missing_field",
            Self::InvalidField => "invalid_field",
        }
    }
}

/// A record that can't be an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub reason: Reason,
    /// The field at fault, where one is.
    pub field: Option<Field>,
    /// The byte of the payload at fault, where one is known.
    pub at: Option<usize>,
}

impl std::fmt::Display for Bad {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.reason.name())?;
        if let Some(field) = self.field {
            write!(out, " `{}`", field.name())?;
        }
        self.at.map_or(Ok(()), |at| write!(out, " at byte {at}"))
    }
}

/// What was seen while decoding, since the counts were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeCounts {
    pub events: u64,
    /// Members that the event has no field for.
    pub unknown_fields: u64,
    /// Values replaced because they looked like credentials.
    pub secrets: u64,
    /// Impossible values of optional fields, by [`Field::index`].
    pub invalid: [u64; FIELD_COUNT],
    /// Bad records, by place in [`Reason::ALL`].
    pub bad: [u64; Reason::ALL.len()],
}

impl Default for DecodeCounts {
    fn default() -> Self {
        Self {
            events: 0,
            unknown_fields: 0,
            secrets: 0,
            invalid: [0; FIELD_COUNT],
            bad: [0; 9],
        }
    }
}

/// Words above this many bytes together are free text.
const DICTIONARY_BYTES_MAX: usize = 4 << 20;

/// Decodes records of one source into batches; one per decoding thread.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The words of the flush at hand.
    pub dictionary: Dictionary,
    pub counts: DecodeCounts,
    /// Other words for decisions, as configured.
    decisions: HashMap<String, String>,
    scratch: Scratch,
    identity: Vec<u8>,
}

impl Decoder {
    /// `decisions` maps a caller's own word to one of MONEY's.
    #[must_use]
    pub fn new(decisions: HashMap<String, String>) -> Self {
        Self {
            decisions,
            ..Self::default()
        }
    }

    /// Begins another dictionary where the words are free text by now. Ids are of one dictionary:
    /// only while no batch holds any.
    pub fn forget_words(&mut self) {
        if self.dictionary.heap_bytes() > DICTIONARY_BYTES_MAX {
            self.dictionary = Dictionary::default();
        }
    }

    /// Appends the record's event to the batch; a bad record leaves the batch untouched.
    ///
    /// # Errors
    /// The record is no event: see [`Reason`]. It is counted.
    pub fn decode(&mut self, record: &Record<'_>, batch: &mut EventBatch) -> Result<(), Bad> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let parsed = json::parse(record.payload, &mut scratch);
        let result = parsed.and_then(|text| self.append(record, text, &scratch, batch));
        self.counts.unknown_fields += u64::from(scratch.unknown);
        self.scratch = scratch;
        match &result {
            Ok(()) => self.counts.events += 1,
            Err(bad) => self.counts.bad[bad.reason as usize] += 1,
        }
        result
    }

    fn append(
        &mut self,
        record: &Record<'_>,
        payload: &str,
        scratch: &Scratch,
        batch: &mut EventBatch,
    ) -> Result<(), Bad> {
        let row = batch.len();
        check_required(payload, scratch)?;
        let mut flags = Flags::default();
        for field in scratch.fields() {
            let raw = scratch.raw(field, payload);
            if self.put(field, raw, batch, row, &mut flags).is_none() {
                self.counts.invalid[field.index()] += 1;
                flags.add(Flags::FIELD_INVALID);
                batch.invalid.push((row as u32, field));
            }
        }
        batch.offsets.push(record.offset);
        batch.indexes.push(record.index);
        batch
            .record_ms
            .push(record.timestamp_ms.unwrap_or(NO_RECORD_MS));
        self.counts.secrets += u64::from(flags.has(Flags::SECRET));
        batch.flags.push(flags);
        let (identity, request) = self.identify(batch, row);
        batch.identities.push(identity);
        batch.requests.push(request);
        Ok(())
    }

    /// Puts one field into its column; `None` where its value is impossible.
    fn put(
        &mut self,
        field: Field,
        raw: Raw<'_>,
        batch: &mut EventBatch,
        row: usize,
        flags: &mut Flags,
    ) -> Option<()> {
        match field {
            Field::Word(word) => {
                let text = raw.text(WORD_BYTES_MAX)?;
                let mut text: &str = &text;
                if word == Word::Decision {
                    text = self.decisions.get(text).map_or(text, String::as_str);
                }
                let id = self.dictionary.id(text);
                if self.dictionary.is_secret(id) {
                    flags.add(Flags::SECRET);
                }
                let column = &mut batch.words[word as usize];
                column.resize(row, 0);
                column.push(id);
            }
            Field::Text(text) => {
                let value = raw.text(TEXT_BYTES_MAX)?;
                let replaced = secret::replaced(&value);
                if replaced.is_some() {
                    flags.add(Flags::SECRET);
                }
                let value = replaced.as_deref().unwrap_or(&value);
                batch.texts[text as usize].set(row, value.as_bytes());
            }
            Field::Labels => {
                let labels = labels::read(raw)?;
                if labels.had_secret {
                    flags.add(Flags::SECRET);
                }
                batch.texts[Text::Labels as usize].set(row, labels.text.as_bytes());
            }
            Field::Hash(hash) => put_hash(hash, raw, batch, row, flags)?,
            Field::Int(int) => batch.ints[int as usize].set(row, raw.int(int.kind())?),
            Field::Bool(bool) => batch.bools[bool as usize].set(row, raw.bool()?),
            Field::Money(money) => batch.money[money as usize].set(row, raw.money()?),
            Field::Time(time) => batch.times[time as usize].set(row, raw.instant()?),
        }
        Some(())
    }

    /// The hashes of the event's identity and of its request (MONEY §2, "One event or two").
    ///
    /// Each part is preceded by its length, so that ("ab", "c") and ("a", "bc") differ. The
    /// record's timestamp is no part of it: a redelivery has another.
    fn identify(&mut self, batch: &EventBatch, row: usize) -> (u128, u128) {
        let Self {
            identity: bytes,
            dictionary,
            ..
        } = self;
        let part = |bytes: &mut Vec<u8>, text: &[u8]| {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text);
        };
        bytes.clear();
        let service = batch.word(Word::Service, row);
        part(bytes, dictionary.get(service).as_bytes());
        part(bytes, batch.text(Text::RequestId, row));
        let request = xxhash_rust::xxh3::xxh3_128(bytes);
        let event_id = batch.text(Text::EventId, row);
        if event_id.is_empty() {
            part(
                bytes,
                dictionary.get(batch.word(Word::Layer, row)).as_bytes(),
            );
            part(bytes, batch.text(Text::ServerRequestId, row));
            let number = |int| batch.int(int, row).unwrap_or(-1);
            for value in [
                number(Int::Attempt),
                number(Int::ElapsedMs),
                batch.time(Time::Ts, row).unwrap_or(-1),
            ] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        } else {
            bytes.clear();
            bytes.extend_from_slice(b"event_id");
            part(bytes, event_id);
        }
        (xxhash_rust::xxh3::xxh3_128(bytes), request)
    }
}

const REQUIRED: [Field; 4] = [
    Field::Text(Text::RequestId),
    Field::Int(Int::Attempt),
    Field::Word(Word::Model),
    Field::Word(Word::Decision),
];

fn check_required(payload: &str, scratch: &Scratch) -> Result<(), Bad> {
    for field in REQUIRED {
        let missing = Bad {
            reason: Reason::MissingField,
            field: Some(field),
            at: None,
        };
        if !scratch.has(field) {
            return Err(missing);
        }
        let raw = scratch.raw(field, payload);
        let invalid = Bad {
            reason: Reason::InvalidField,
            field: Some(field),
            at: raw.at,
        };
        let empty = match field {
            Field::Int(int) => raw.int(int.kind()).map(|_| false),
            Field::Word(_) => raw.text(WORD_BYTES_MAX).map(|text| text.is_empty()),
            _ => raw.text(TEXT_BYTES_MAX).map(|text| text.is_empty()),
        };
        match empty {
            None => return Err(invalid),
            Some(true) => return Err(missing),
            Some(false) => {}
        }
    }
    Ok(())
}

fn put_hash(
    hash: Hash,
    raw: Raw<'_>,
    batch: &mut EventBatch,
    row: usize,
    flags: &mut Flags,
) -> Option<()> {
    let text = raw.text(TEXT_BYTES_MAX)?;
    if text.is_empty() {
        return Some(());
    }
    let named = [
        (HashKind::HmacSha256, "hmac-sha256:"),
        (HashKind::Sha256, "sha256:"),
    ];
    let known = named.into_iter().find_map(|(kind, prefix)| {
        let hex = text.strip_prefix(prefix)?;
        Some((kind, unhex(hex.as_bytes())?))
    });
    let (kind, value) = known.unwrap_or_else(|| {
        flags.add(Flags::HASH_OTHER);
        (HashKind::Other, Sha256::digest(text.as_bytes()).into())
    });
    batch.hashes[hash as usize].set(row, kind, value);
    Some(())
}

/// 64 hex digits of either case as 32 bytes.
fn unhex(hex: &[u8]) -> Option<[u8; 32]> {
    if hex.len() != 64 {
        return None;
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
