//! batch, dictionary, tables → what we think of each event: the derived columns of `attempts`.
//!
//! A function of the event, the versioned tables and the `[source]` settings, of nothing else:
//! what other events or a bill decide comes from the views.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::batch::{EventBatch, Flags, NO_RECORD_MS};
use crate::bill::{
    Bill, BillFacts, BillingState, CostBasis, Evidence, Policy, PolicyFacts, Prices, Tokens,
    UsageSource, bill,
};
use crate::class::{Classes, EndFacts, ErrorClass};
use crate::column::{HeapBytes as _, Sparse};
use crate::dictionary::Dictionary;
use crate::field::{Bool, Int, Money, Time, Word};
use crate::operation::Decision;
use crate::timestamp::{DAY_US, day_of};

/// A `ts` more than this before the record's time is odd, µs.
const BEFORE_RECORD_US_MAX: i64 = 400 * DAY_US;
/// A `ts` more than this after the record's time is odd, µs.
const AFTER_RECORD_US_MAX: i64 = DAY_US;

/// Where `ts` is from. The order is that of the column's numbers.
const TS_SOURCES: [&str; 3] = ["event", "record", "derived"];

/// What `[source]` says of the callers; part of `policy_version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// The number of a service's first attempt, where not said by service.
    pub attempt_base: i64,
    pub attempt_base_by_service: HashMap<String, i64>,
    /// Money is counted on this layer; `None` counts all.
    pub count_layer: Option<String>,
    /// Other words for decisions.
    pub decisions: HashMap<String, String>,
}

impl SourceSettings {
    /// Eight hex digits of the hash of all settings.
    #[must_use]
    pub fn version(&self) -> String {
        let mut lines = vec![format!("base {}", self.attempt_base)];
        lines.push(format!(
            "layer {}",
            self.count_layer.as_deref().unwrap_or_default()
        ));
        let bases = self.attempt_base_by_service.iter();
        lines.extend(bases.map(|(service, base)| format!("service {service:?} {base}")));
        let words = self.decisions.iter();
        lines.extend(words.map(|(word, decision)| format!("decision {word:?} {decision:?}")));
        lines[2..].sort_unstable();
        let hash = Sha256::digest(lines.join("\n").as_bytes());
        hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Everything but the event that a row depends on.
#[derive(Clone, Debug)]
pub struct Tables {
    pub classes: Classes,
    pub policy: Policy,
    pub prices: Prices,
    pub settings: SourceSettings,
}

impl Tables {
    /// The built-in tables, and attempt numbers from 0.
    ///
    /// # Panics
    /// Never: tests read the same files.
    #[must_use]
    pub fn built_in() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the file is part of the program, and tested"
        )]
        let policy = Policy::new(None).expect("the built-in policy is valid");
        Self {
            classes: Classes::built_in(),
            policy,
            prices: Prices::built_in(),
            settings: SourceSettings::default(),
        }
    }

    /// What `policy_version` says: the policy's version and that of the settings.
    #[must_use]
    pub fn policy_version(&self) -> String {
        format!("{}-{}", self.policy.version(), self.settings.version())
    }
}

/// Closed words: 0 is null, `n` the `n - 1`st of the names.
#[derive(Clone, Debug)]
pub struct Named {
    pub values: Vec<u8>,
    pub names: &'static [&'static str],
}

impl Named {
    fn new(names: &'static [&'static str], len: usize) -> Self {
        Self {
            values: Vec::with_capacity(len),
            names,
        }
    }

    fn push(&mut self, number: Option<u8>) {
        self.values.push(number.map_or(0, |number| number + 1));
    }

    /// The word of a row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&'static str> {
        let place = self.values[row].checked_sub(1)?;
        self.names.get(place as usize).copied()
    }
}

/// The derived columns of a batch, row by row beside it.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The partition date, days since 1970; `None` without a usable time.
    pub days: Vec<Option<i32>>,
    /// The end of the attempt, µs: the caller's, else the record's.
    pub ts_us: Sparse<i64>,
    pub ts_source: Named,
    pub is_retry: Sparse<bool>,
    pub lone: Sparse<bool>,
    pub counted: Vec<bool>,
    pub class: Named,
    pub billing: Named,
    /// In 1/10000.
    pub p_billed: Vec<u16>,
    pub evidence: Named,
    /// 10^-12 dollars.
    pub cost_confirmed: Sparse<i128>,
    /// 10^-12 dollars.
    pub cost_ceiling: Sparse<i128>,
    pub basis: Named,
    /// 10^-12 dollars for a million tokens of input.
    pub input_price: Sparse<i128>,
    /// 10^-12 dollars for a million tokens of output.
    pub output_price: Sparse<i128>,
    pub flags: Vec<Flags>,
}

impl Derived {
    fn new(len: usize) -> Self {
        Self {
            days: Vec::with_capacity(len),
            ts_us: Sparse::default(),
            ts_source: Named::new(&TS_SOURCES, len),
            is_retry: Sparse::default(),
            lone: Sparse::default(),
            counted: Vec::with_capacity(len),
            class: Named::new(&ErrorClass::NAMES, len),
            billing: Named::new(&BillingState::NAMES, len),
            p_billed: Vec::with_capacity(len),
            evidence: Named::new(&Evidence::NAMES, len),
            cost_confirmed: Sparse::default(),
            cost_ceiling: Sparse::default(),
            basis: Named::new(&CostBasis::NAMES, len),
            input_price: Sparse::default(),
            output_price: Sparse::default(),
            flags: Vec::with_capacity(len),
        }
    }

    /// Heap bytes that the columns hold.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.days.len() * (8 + 1 + 2 + 2 + 5)
            + self.ts_us.heap_bytes()
            + self.is_retry.heap_bytes()
            + self.lone.heap_bytes()
            + self.cost_confirmed.heap_bytes()
            + self.cost_ceiling.heap_bytes()
            + self.input_price.heap_bytes()
            + self.output_price.heap_bytes()
    }
}

/// Derives the columns of every row.
#[must_use]
pub fn derive(batch: &EventBatch, words: &Dictionary, tables: &Tables) -> Derived {
    let mut out = Derived::new(batch.len());
    let mut flags = batch.flags.clone();
    for (row, flags) in flags.iter_mut().enumerate() {
        time(batch, row, flags, &mut out);
    }
    judge(batch, words, tables, flags, &mut out);
    out
}

/// Derives the columns again of rows that are in the lake, by other tables; all but `ts`, its source
/// and the date, which need the record and depend on no table: they are empty. The flags of the
/// batch are those that the rows have.
#[must_use]
pub fn restate(batch: &EventBatch, words: &Dictionary, tables: &Tables) -> Derived {
    let mut out = Derived::new(batch.len());
    let of_event = batch.flags.iter().map(|it| it.and(Flags::OF_THE_EVENT));
    judge(batch, words, tables, of_event.collect(), &mut out);
    out
}

/// What the tables and the settings say of every row.
fn judge(
    batch: &EventBatch,
    words: &Dictionary,
    tables: &Tables,
    flags: Vec<Flags>,
    out: &mut Derived,
) {
    let len = batch.len();
    for (row, mut flags) in flags.into_iter().enumerate() {
        number(batch, words, &tables.settings, row, &mut flags, out);
        let class = classify(batch, words, tables, row);
        out.class.push(Some(class as u8));
        let bill = bill_row(batch, words, tables, row, class);
        money(&bill, row, &mut flags, out);
        out.flags.push(flags);
    }
    out.ts_us.pad(len);
    out.is_retry.pad(len);
    out.lone.pad(len);
    out.cost_confirmed.pad(len);
    out.cost_ceiling.pad(len);
    out.input_price.pad(len);
    out.output_price.pad(len);
}

/// `ts`, its source and the partition date.
fn time(batch: &EventBatch, row: usize, flags: &mut Flags, out: &mut Derived) {
    let ts = batch.time(Time::Ts, row);
    let record = batch.record_ms[row];
    let record = (record != NO_RECORD_MS && record >= 0).then(|| record.saturating_mul(1_000));
    let began = batch.time(Time::StartedAt, row);
    let elapsed = batch.int(Int::ElapsedMs, row);
    let ended = began
        .zip(elapsed)
        .map(|(began, elapsed)| began.saturating_add(elapsed * 1_000));
    let (instant, source) = match (ts, record, ended) {
        (Some(ts), _, _) => (Some(ts), Some(0)),
        (None, Some(record), _) => (Some(record), Some(1)),
        (None, None, Some(ended)) => (Some(ended), Some(2)),
        (None, None, None) => (None, None),
    };
    let odd = ts.zip(record).is_some_and(|(ts, record)| {
        ts < record.saturating_sub(BEFORE_RECORD_US_MAX)
            || ts > record.saturating_add(AFTER_RECORD_US_MAX)
    });
    if odd {
        flags.add(Flags::TS_ODD);
    }
    let dated = if odd { record } else { instant };
    out.days.push(dated.map(day_of));
    out.ts_source.push(source);
    if let Some(instant) = instant {
        out.ts_us.set(row, instant);
    }
}

/// `is_retry`, `lone`, `counted`: what the attempt's number, decision and layer say.
fn number(
    batch: &EventBatch,
    words: &Dictionary,
    settings: &SourceSettings,
    row: usize,
    flags: &mut Flags,
    out: &mut Derived,
) {
    let service = words.get(batch.word(Word::Service, row));
    let base = match settings.attempt_base_by_service.get(service) {
        Some(base) => *base,
        None => settings.attempt_base,
    };
    let decision = Decision::of_word(words.get(batch.word(Word::Decision, row)));
    if decision.is_none() {
        flags.add(Flags::DECISION_UNKNOWN);
    }
    let ends = decision.is_some_and(Decision::ends);
    if let Some(attempt) = batch.int(Int::Attempt, row) {
        out.is_retry.set(row, attempt > base);
        out.lone.set(row, attempt == base && ends);
    }
    let layer = words.get(batch.word(Word::Layer, row));
    out.counted.push(
        settings
            .count_layer
            .as_deref()
            .is_none_or(|counted| counted == layer),
    );
}

fn classify(batch: &EventBatch, words: &Dictionary, tables: &Tables, row: usize) -> ErrorClass {
    tables.classes.classify(&EndFacts {
        status: batch.int(Int::StatusCode, row),
        error_type: words.get(batch.word(Word::ErrorType, row)),
        phase: words.get(batch.word(Word::Phase, row)),
        finish_reason: words.get(batch.word(Word::FinishReason, row)),
        decision: words.get(batch.word(Word::Decision, row)),
        stream: batch.bool(Bool::Stream, row),
        stream_complete: batch.bool(Bool::StreamComplete, row),
    })
}

fn bill_row(
    batch: &EventBatch,
    words: &Dictionary,
    tables: &Tables,
    row: usize,
    class: ErrorClass,
) -> Bill {
    let word = |word| words.get(batch.word(word, row));
    let int = |int| batch.int(int, row);
    let stream = batch.bool(Bool::Stream, row);
    let (provider, model) = (word(Word::Provider), word(Word::Model));
    let usage = match word(Word::UsageSource) {
        "" | "provider" => UsageSource::Provider,
        _ => UsageSource::Other,
    };
    let verdict = tables.policy.decide(&PolicyFacts {
        provider,
        model,
        class,
        status: int(Int::StatusCode),
        finish_reason: word(Word::FinishReason),
        stream,
        empty: int(Int::OutputTokens) == Some(0) && usage == UsageSource::Provider,
    });
    bill(&BillFacts {
        class,
        verdict,
        price: tables.prices.get(provider, model),
        input_tokens: int(Int::InputTokens),
        output_tokens: int(Int::OutputTokens),
        received_output_tokens: int(Int::ReceivedOutputTokens),
        cache: Tokens {
            cached: int(Int::CachedInputTokens).unwrap_or(0),
            cache_write: int(Int::CacheWriteTokens).unwrap_or(0),
            cache_write_1h: int(Int::CacheWrite1hTokens).unwrap_or(0),
            ..Tokens::default()
        },
        usage,
        stream,
        max_tokens: int(Int::MaxTokens),
        n: int(Int::N).unwrap_or(1).max(1),
        caller_cost: batch.money(Money::Cost, row),
        cost_unit: word(Word::CostUnit),
        cache_hit: batch.bool(Bool::CacheHit, row) == Some(true),
        billing_mode: word(Word::BillingMode),
    })
}

fn money(bill: &Bill, row: usize, flags: &mut Flags, out: &mut Derived) {
    out.billing.push(Some(bill.state as u8));
    out.p_billed.push(bill.p_billed.0);
    out.evidence.push(Some(bill.evidence as u8));
    out.basis.push(bill.basis.map(|basis| basis as u8));
    if let Some(confirmed) = bill.confirmed {
        out.cost_confirmed.set(row, confirmed);
    }
    if let Some(ceiling) = bill.ceiling {
        out.cost_ceiling.set(row, ceiling);
    }
    if let Some((input, output)) = bill.per_million {
        out.input_price.set(row, input);
        out.output_price.set(row, output);
    }
    for (is_set, flag) in [
        (bill.unit_suspect, Flags::UNIT_SUSPECT),
        (bill.unit_unknown, Flags::COST_UNIT_UNKNOWN),
        (bill.overflow, Flags::COST_OVERFLOW),
        (bill.stops, Flags::STOPS_ON_DISCONNECT),
        (bill.zero_cost, Flags::ZERO_COST),
    ] {
        if is_set {
            flags.add(flag);
        }
    }
}

#[cfg(test)]
mod tests;
