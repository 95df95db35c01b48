//! events of one partition → columns.
//!
//! A batch is a struct of arrays, so that the lake can wrap it as Arrow without a copy. It holds
//! what the events said, cleaned; what we think of them is in [`crate::derive`].

use std::sync::Arc;

use crate::column::{HeapBytes as _, Sparse, Strings};
use crate::field::{Bool, Field, Hash, Int, Money, Text, Time, Word};

/// The most events in a batch.
pub const BATCH_EVENTS_MAX: usize = 8_192;
/// A batch of this many heap bytes is full, whatever its count of events.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// What an event itself shows to be odd, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident $bit:literal $word:literal),+ $(,)?) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)+
            /// Each flag, with the word it has in the column `flags`.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $word)),+];
        }
    };
}

flags!(
    /// `ts` lies more than 400 days before or a day after the record's time.
    TS_ODD 0 "ts_odd",
    /// A value looked like a credential and was replaced by its hash.
    SECRET 1 "secret",
    /// A prompt hash of another form was hashed to 32 bytes.
    HASH_OTHER 2 "hash_other",
    /// The decision is none of the known words; it is taken as going on.
    DECISION_UNKNOWN 3 "decision_unknown",
    /// An optional field had an impossible value, which is null now.
    FIELD_INVALID 4 "field_invalid",
    /// The caller's cost and the price table are apart by more than 20 times.
    UNIT_SUSPECT 5 "unit_suspect",
    /// The caller's cost is in a unit that is not dollars or cents.
    COST_UNIT_UNKNOWN 6 "cost_unit_unknown",
    /// A cost does not fit its column.
    COST_OVERFLOW 7 "cost_overflow",
    /// A stream was cut, and its provider then stops: what was received is what can be billed.
    STOPS_ON_DISCONNECT 8 "stops_on_disconnect",
    /// The caller's cost is zero, and nothing shows that the attempt was free.
    ZERO_COST 9 "zero_cost",
);

impl Flags {
    /// Those that the event's own text shows, and the record's time; the others come from the
    /// tables and the settings.
    pub const OF_THE_EVENT: Self =
        Self(Self::TS_ODD.0 | Self::SECRET.0 | Self::HASH_OTHER.0 | Self::FIELD_INVALID.0);

    /// From [`Flags::text`]; a word that is none of ours is left out.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let mut flags = Self::default();
        for word in text.split(',') {
            if let Some((flag, _)) = Self::ALL.iter().find(|(_, known)| *known == word) {
                flags.add(*flag);
            }
        }
        flags
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The words, joined by commas; empty when nothing is odd.
    #[must_use]
    pub fn text(self) -> String {
        let words = Self::ALL
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .map(|(_, word)| *word);
        words.collect::<Vec<_>>().join(",")
    }
}

/// What stands behind a hash column's 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HashKind {
    /// `sha256:` and 64 hex digits.
    Sha256 = 1,
    /// `hmac-sha256:` and 64 hex digits.
    HmacSha256 = 2,
    /// SHA-256 of any other text.
    Other = 3,
}

impl HashKind {
    /// The words of the kind column, by its byte less one.
    pub const NAMES: [&'static str; 3] = ["sha256", "hmac-sha256", "other"];
}

/// Hashes and their kinds; kind 0 is null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    pub kinds: Vec<u8>,
    pub values: Vec<[u8; 32]>,
}

impl Hashes {
    /// Sets row `row`, which is the first one not yet set; rows between are null.
    pub fn set(&mut self, row: usize, kind: HashKind, value: [u8; 32]) {
        self.pad(row);
        self.kinds.push(kind as u8);
        self.values.push(value);
    }

    /// Brings the column to `len` rows with nulls.
    pub fn pad(&mut self, len: usize) {
        self.kinds.resize(len.max(self.kinds.len()), 0);
        self.values.resize(len.max(self.values.len()), [0; 32]);
    }
}

/// A source: a topic of one cluster, or a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub Arc<str>);

/// Events of one partition, in the order of their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    pub source: SourceId,
    pub partition: i32,
    /// The offset of the record that an event came in.
    pub offsets: Vec<i64>,
    /// The place of an event within its record, 0 for the first.
    pub indexes: Vec<i32>,
    /// The record's timestamp in ms, [`NO_RECORD_MS`] where it has none.
    pub record_ms: Vec<i64>,
    /// Dictionary ids; 0 is null.
    pub words: [Vec<u32>; Word::COUNT],
    pub texts: [Strings; Text::COUNT],
    pub hashes: [Hashes; Hash::COUNT],
    pub ints: [Sparse<i64>; Int::COUNT],
    pub bools: [Sparse<bool>; Bool::COUNT],
    /// Dollars scaled by 10^12, as the caller states them, in the caller's unit.
    pub money: [Sparse<i128>; Money::COUNT],
    /// µs since 1970 in UTC.
    pub times: [Sparse<i64>; Time::COUNT],
    pub flags: Vec<Flags>,
    /// Rows and the fields of which the value was impossible, and is null now; by row.
    pub invalid: Vec<(u32, Field)>,
    /// What makes an event the same event: MONEY's identity, hashed.
    pub identities: Vec<u128>,
    /// (service, `request_id`), hashed: what operations are windowed by.
    pub requests: Vec<u128>,
}

/// A record without a timestamp.
pub const NO_RECORD_MS: i64 = i64::MIN;

impl EventBatch {
    #[must_use]
    pub fn new(source: SourceId, partition: i32) -> Self {
        Self {
            source,
            partition,
            offsets: Vec::new(),
            indexes: Vec::new(),
            record_ms: Vec::new(),
            words: Default::default(),
            texts: Default::default(),
            hashes: Default::default(),
            ints: Default::default(),
            bools: Default::default(),
            money: Default::default(),
            times: Default::default(),
            flags: Vec::new(),
            invalid: Vec::new(),
            identities: Vec::new(),
            requests: Vec::new(),
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Full: hand it on and begin another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        // Looking at the bytes of all columns for each event would cost more than the bound saves.
        self.len() >= BATCH_EVENTS_MAX
            || self.len() % 256 == 255 && self.heap_bytes() >= BATCH_BYTES_MAX
    }

    /// Heap bytes that the columns hold.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let fixed = self.len() * (8 + 4 + 8 + 2 + 16 + 16);
        fixed
            + self.invalid.capacity() * size_of::<(u32, Field)>()
            + self
                .words
                .iter()
                .map(|column| column.capacity() * 4)
                .sum::<usize>()
            + self
                .texts
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
            + self
                .hashes
                .iter()
                .map(|column| column.values.capacity() * 33)
                .sum::<usize>()
            + self
                .ints
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
            + self
                .bools
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
            + self
                .money
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
            + self
                .times
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
    }

    /// The dictionary id of a word; 0 where there is none.
    #[must_use]
    pub fn word(&self, word: Word, row: usize) -> u32 {
        self.words[word as usize].get(row).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn text(&self, text: Text, row: usize) -> &[u8] {
        self.texts[text as usize].get(row)
    }

    #[must_use]
    pub fn int(&self, int: Int, row: usize) -> Option<i64> {
        self.ints[int as usize].get(row)
    }

    #[must_use]
    pub fn bool(&self, bool: Bool, row: usize) -> Option<bool> {
        self.bools[bool as usize].get(row)
    }

    #[must_use]
    pub fn money(&self, money: Money, row: usize) -> Option<i128> {
        self.money[money as usize].get(row)
    }

    #[must_use]
    pub fn time(&self, time: Time, row: usize) -> Option<i64> {
        self.times[time as usize].get(row)
    }

    /// The record's time in ms; for a file, which has none, the event's own `ts`.
    #[must_use]
    pub fn log_ms(&self, row: usize) -> Option<i64> {
        match self.record_ms[row] {
            NO_RECORD_MS => self.time(Time::Ts, row).map(|us| us.div_euclid(1_000)),
            ms => Some(ms),
        }
    }

    /// Brings every column to the batch's length: do this once, before columns are taken over.
    pub fn pad(&mut self) {
        let len = self.len();
        for column in &mut self.words {
            column.resize(len, 0);
        }
        for column in &mut self.texts {
            column.pad(len);
        }
        for column in &mut self.hashes {
            column.pad(len);
        }
        for column in &mut self.ints {
            column.pad(len);
        }
        for column in &mut self.bools {
            column.pad(len);
        }
        for column in &mut self.money {
            column.pad(len);
        }
        for column in &mut self.times {
            column.pad(len);
        }
    }
}
