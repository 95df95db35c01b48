//! Rows of the table → what each tells of an attempt of a day, in a few bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Int32Type, Int64Type};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use retrytoll_core::profile::{AGE_DAYS_MAX, power_of_two};

use super::function::{FIGURES, TOKENS};

/// What a row takes at most, bytes: its figures, and a kind of its own.
pub const ROW_BYTES: usize = 128;

/// What rows are of: names by number, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    level: i32,
    provider: u32,
    model: u32,
    service: u32,
    max_tokens_pow2: Option<i64>,
}

/// A row's figures in tenths of a token: those of [`FIGURES`].
pub type Figures = [i64; 4];

/// The profiles of some days.
pub struct Loaded {
    /// Days that have a profile, also an empty one; ascending.
    days: Vec<i32>,
    names: HashMap<String, u32>,
    /// Of each kind by day, ascending.
    kinds: HashMap<Kind, Vec<(i32, Figures)>>,
    reserved: MemoryReservation,
}

impl Loaded {
    /// Of no day yet; its memory is `pool`'s.
    pub fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            days: Vec::new(),
            names: HashMap::new(),
            kinds: HashMap::new(),
            reserved: MemoryConsumer::new("profiles").register(pool),
        }
    }

    /// More rows, of any days.
    ///
    /// # Errors
    /// A column that is not there, or no memory left.
    pub fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let column = |name: &str, to: &DataType| -> Result<ArrayRef> {
            let found = batch.schema().index_of(name)?;
            Ok(cast(batch.column(found), to)?)
        };
        self.reserved.try_grow(batch.num_rows() * ROW_BYTES)?;
        let dates = column("date", &DataType::Date32)?;
        let levels = column("level", &DataType::Int32)?;
        let texts = ["provider", "model", "service"].map(|name| column(name, &DataType::Utf8));
        let [provider, model, service] = texts;
        let (provider, model, service) = (provider?, model?, service?);
        let powers = column("max_tokens_pow2", &DataType::Int64)?;
        let mut values = Vec::new();
        for name in FIGURES {
            values.push(column(name, &TOKENS)?);
        }
        for row in 0..batch.num_rows() {
            let day = dates.as_primitive::<Date32Type>().value(row);
            let level = levels.as_primitive::<Int32Type>().value(row);
            if self.days.last() != Some(&day) {
                self.days.push(day);
            }
            if level == 0 {
                continue;
            }
            let kind = Kind {
                level,
                provider: self.number(text(&provider, row)),
                model: self.number(text(&model, row)),
                service: self.number(text(&service, row)),
                max_tokens_pow2: integer(&powers, row),
            };
            let figure = |at: usize| values[at].as_primitive::<Decimal128Type>().value(row) as i64;
            let of_kind = self.kinds.entry(kind).or_default();
            of_kind.push((day, std::array::from_fn(figure)));
        }
        Ok(())
    }

    /// To be asked once all rows are there: files come in any order.
    pub fn sort(&mut self) {
        self.days.sort_unstable();
        self.days.dedup();
        for of_kind in self.kinds.values_mut() {
            of_kind.sort_unstable_by_key(|(day, _)| *day);
        }
    }

    /// Whether nothing is told of anything.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    fn number(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name else { return 0 };
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.names.len() as u32 + 1;
        self.names.insert(name.to_owned(), number);
        number
    }

    fn known(&self, name: Option<&str>) -> Option<u32> {
        name.map_or(Some(0), |name| self.names.get(name).copied())
    }

    /// What an attempt is told by the newest profile not after its day.
    pub fn of(
        &self,
        day: i32,
        provider: Option<&str>,
        model: Option<&str>,
        service: Option<&str>,
        max_tokens: Option<i64>,
    ) -> Option<&Figures> {
        let newest = self.days.partition_point(|it| *it <= day);
        let newest = *self.days.get(newest.checked_sub(1)?)?;
        if day - newest >= AGE_DAYS_MAX {
            return None;
        }
        let figures = |kind: &Kind| {
            let of_kind = self.kinds.get(kind)?;
            let at = of_kind.binary_search_by_key(&newest, |(day, _)| *day);
            at.ok().map(|at| &of_kind[at].1)
        };
        let whole = Kind {
            level: 2,
            provider: self.known(provider)?,
            model: self.known(model)?,
            service: 0,
            max_tokens_pow2: None,
        };
        let narrow = self.known(service).map(|service| Kind {
            level: 1,
            service,
            max_tokens_pow2: max_tokens.and_then(power_of_two),
            ..whole
        });
        narrow
            .and_then(|it| figures(&it))
            .or_else(|| figures(&whole))
    }
}

/// A text of an array of them; `None` is null.
pub fn text(texts: &ArrayRef, row: usize) -> Option<&str> {
    let texts = texts.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row))
}

/// A number of an array of them; `None` is null.
pub fn integer(integers: &ArrayRef, row: usize) -> Option<i64> {
    let integers = integers.as_primitive::<Int64Type>();
    integers.is_valid(row).then(|| integers.value(row))
}
