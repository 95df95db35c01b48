//! one event → its signs: what is wrong with it whatever other events say.

mod told;

use super::finding::{Counted, Finding};
use super::row::Row;
use super::{Example, Tally};
use crate::batch::{Flags, HashKind, NO_RECORD_MS};
use crate::class::ErrorClass;
use crate::field::{Hash, Text, Time, Word};
use crate::step::SKEW_MS_MAX;
use told::told;

/// Words, models and fields that are told apart in one service; what comes after is put together.
const DETAILS_MAX: usize = 50;
/// In place of what is not told apart any more.
const OTHERS: &str = "(others)";
/// What a secret is replaced by begins so.
const SECRET: &str = "secret:sha256:";

/// What one event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    NoService,
    NoTime,
    TsOdd,
    TsAhead,
    HashForm,
    HashBare,
    InvalidField,
    UnknownDecision,
    Unpriced,
    CostSuspect,
    CostUnit,
    CostTooLarge,
    ZeroCost,
    Secret,
    TimeoutWithUsage,
}

/// The signs of one service, each with what it is about: a field, a word, a model.
#[derive(Debug, Default)]
pub(super) struct Signs(Vec<(Sign, String, Tally)>);

impl Signs {
    pub fn see(&mut self, row: &Row<'_>) {
        each(row, &mut |sign, detail| {
            self.add(sign, detail, || row.example());
        });
    }

    fn add(&mut self, sign: Sign, detail: &str, example: impl FnOnce() -> Example) {
        let place = |signs: &Self, detail: &str| {
            let is = |it: &(Sign, String, Tally)| it.0 == sign && it.1 == detail;
            signs.0.iter().position(is)
        };
        let is_full = self.0.len() >= DETAILS_MAX && !detail.is_empty();
        let found = place(self, detail).or_else(|| {
            let others = if is_full { OTHERS } else { detail };
            place(self, others).or_else(|| {
                self.0.push((sign, others.to_owned(), Tally::default()));
                Some(self.0.len() - 1)
            })
        });
        if let Some(place) = found {
            self.0[place].2.add(example);
        }
    }

    pub fn has_no_time(&self) -> bool {
        self.0.iter().any(|(sign, ..)| *sign == Sign::NoTime)
    }

    pub fn findings(&self, service: &str, attempts: u64) -> impl Iterator<Item = Finding> {
        self.0.iter().map(move |(sign, detail, tally)| {
            let (severity, rule, what, mend) = told(*sign, detail);
            Finding::of(service, severity, rule, what, mend).counted(
                tally,
                attempts,
                Counted::Attempts,
            )
        })
    }
}

fn each(row: &Row<'_>, found: &mut impl FnMut(Sign, &str)) {
    if row.service().is_empty() {
        found(Sign::NoService, "");
    }
    times(row, found);
    hashes(row, found);
    let flags = row.flags();
    if flags.has(Flags::FIELD_INVALID) {
        let number = row.number as u32;
        // In the order of the rows.
        let invalid = &row.batch.invalid;
        let from = invalid.partition_point(|(at, _)| *at < number);
        for (_, field) in invalid[from..].iter().take_while(|(at, _)| *at == number) {
            found(Sign::InvalidField, field.name());
        }
    }
    if flags.has(Flags::DECISION_UNKNOWN) {
        found(Sign::UnknownDecision, row.word(Word::Decision));
    }
    if row.is_unpriced() {
        found(Sign::Unpriced, row.word(Word::Model));
    }
    for (flag, sign, word) in [
        (Flags::UNIT_SUSPECT, Sign::CostSuspect, ""),
        (
            Flags::COST_UNIT_UNKNOWN,
            Sign::CostUnit,
            row.word(Word::CostUnit),
        ),
        (Flags::COST_OVERFLOW, Sign::CostTooLarge, ""),
        (Flags::ZERO_COST, Sign::ZeroCost, ""),
    ] {
        if flags.has(flag) {
            found(sign, word);
        }
    }
    if flags.has(Flags::SECRET) {
        secrets(row, found);
    }
    if row.class() == ErrorClass::Read && row.has_usage() {
        found(Sign::TimeoutWithUsage, "");
    }
}

fn times(row: &Row<'_>, found: &mut impl FnMut(Sign, &str)) {
    if row.derived.days[row.number].is_none() {
        found(Sign::NoTime, "");
    }
    let record_ms = row.batch.record_ms[row.number];
    let latest_us = record_ms.saturating_add(SKEW_MS_MAX).saturating_mul(1_000);
    let is_ahead = record_ms != NO_RECORD_MS
        && record_ms >= 0
        && row.time(Time::Ts).is_some_and(|ts| ts > latest_us);
    if row.flags().has(Flags::TS_ODD) {
        found(Sign::TsOdd, "");
    } else if is_ahead {
        found(Sign::TsAhead, "");
    }
}

fn hashes(row: &Row<'_>, found: &mut impl FnMut(Sign, &str)) {
    for hash in Hash::ALL {
        let kinds = &row.batch.hashes[*hash as usize].kinds;
        let kind = kinds.get(row.number).copied().unwrap_or(0);
        if kind == HashKind::Other as u8 {
            found(Sign::HashForm, hash.name());
        } else if kind == HashKind::Sha256 as u8 && *hash == Hash::Prompt {
            found(Sign::HashBare, hash.name());
        }
    }
}

/// Which fields held a secret: their values were replaced.
fn secrets(row: &Row<'_>, found: &mut impl FnMut(Sign, &str)) {
    for word in Word::ALL {
        if row.words.is_secret(row.batch.word(*word, row.number)) {
            found(Sign::Secret, word.name());
        }
    }
    for text in Text::ALL {
        let value = row.text(*text);
        let is_secret = match text {
            Text::Labels => value.contains(SECRET),
            _ => value.starts_with(SECRET),
        };
        if is_secret {
            found(Sign::Secret, text.name());
        }
    }
}
