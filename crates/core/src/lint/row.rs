//! One event, with what was derived of it.

use super::Example;
use crate::batch::{EventBatch, Flags};
use crate::bill::{CostBasis, Evidence};
use crate::class::ErrorClass;
use crate::derive::Derived;
use crate::dictionary::Dictionary;
use crate::field::{Bool, Int, Text, Time, Word};

/// A row of a batch.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub batch: &'a EventBatch,
    pub words: &'a Dictionary,
    pub derived: &'a Derived,
    pub number: usize,
}

impl<'a> Row<'a> {
    pub fn word(&self, word: Word) -> &'a str {
        self.words.get(self.batch.word(word, self.number))
    }

    pub fn service(&self) -> &'a str {
        self.word(Word::Service)
    }

    pub fn text(&self, text: Text) -> &'a str {
        std::str::from_utf8(self.batch.text(text, self.number)).unwrap_or_default()
    }

    pub fn int(&self, int: Int) -> Option<i64> {
        self.batch.int(int, self.number)
    }

    pub fn time(&self, time: Time) -> Option<i64> {
        self.batch.time(time, self.number)
    }

    pub fn flags(&self) -> Flags {
        self.derived.flags[self.number]
    }

    pub fn class(&self) -> ErrorClass {
        let number = self.derived.class.values[self.number];
        let place = usize::from(number).wrapping_sub(1);
        *ErrorClass::ALL.get(place).unwrap_or(&ErrorClass::Unknown)
    }

    /// An answer of the provider's, not of a cache: only these can have usage and its id.
    pub fn is_answer(&self) -> bool {
        self.class().is_answer() && !self.is_cached()
    }

    pub fn is_cached(&self) -> bool {
        self.batch.bool(Bool::CacheHit, self.number) == Some(true)
    }

    /// The provider's usage shows that it was billed.
    pub fn has_usage(&self) -> bool {
        let usage = Evidence::NAMES[Evidence::Usage as usize];
        self.derived.evidence.get(self.number) == Some(usage)
    }

    pub fn is_unpriced(&self) -> bool {
        let unpriced = CostBasis::NAMES[CostBasis::Unpriced as usize];
        self.derived.basis.get(self.number) == Some(unpriced)
    }

    /// When it began, µs: as told, else its end less what it took.
    pub fn started_us(&self) -> Option<i64> {
        self.time(Time::StartedAt).or_else(|| {
            let elapsed_us = self.int(Int::ElapsedMs)?.saturating_mul(1_000);
            Some(self.ended_us()?.saturating_sub(elapsed_us))
        })
    }

    pub fn ended_us(&self) -> Option<i64> {
        self.derived.ts_us.get(self.number)
    }

    pub fn example(&self) -> Example {
        let source = self.batch.source.clone();
        let offset = self.batch.offsets[self.number];
        Example::new(
            self.text(Text::RequestId),
            source,
            self.batch.partition,
            offset,
        )
    }
}
