//! Rows of `attempts` → the events that they were → the same rows by other prices, policy and
//! settings.
//!
//! Every field of the event stands in its row, so that nothing is read again from its source. What
//! was decided when the event was read stays: its time and date, and what `[source]` calls other
//! words for decisions.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Datum, Decimal128Array, RecordBatch, StringArray,
};
use arrow::compute::kernels::cmp::{distinct, gt_eq, lt};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{and, cast, or, prep_null_mask_filter};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};
use deltalake::kernel::Add;
use retrytoll_core::batch::{EventBatch, Flags, SourceId};
use retrytoll_core::column::Sparse;
use retrytoll_core::derive::{Tables, restate};
use retrytoll_core::dictionary::Dictionary;
use retrytoll_core::field::{Bool, Int, Money, Word};

use super::columns::{Versions, encode_derived};
use crate::edit::{Change, EditRows};
use crate::error::Cause;
use crate::touched::of_stats;

/// Says anew what the tables decide of the rows of a span of time.
#[derive(Clone, Debug)]
pub struct Restate {
    /// What they are judged by from now on.
    pub tables: Arc<Tables>,
    /// Their names, on each row.
    pub versions: Versions,
    /// The first `ts`, µs since 1970.
    pub since_us: i64,
    /// The `ts` after the last, µs.
    pub until_us: i64,
}

impl EditRows for Restate {
    fn may_concern(&self, file: &Add) -> bool {
        let times = file.stats.as_deref().and_then(of_stats);
        times.is_none_or(|(first, last)| first < self.until_us && last >= self.since_us)
    }

    fn looks_at(&self) -> &[&'static str] {
        &["ts"]
    }

    fn concerns(&self, rows: &RecordBatch) -> Result<bool, Cause> {
        Ok(self.in_span(rows)?.true_count() > 0)
    }

    fn edit(&self, rows: &RecordBatch) -> Result<(RecordBatch, Change), Cause> {
        let in_span = self.in_span(rows)?;
        let (batch, dictionary) = events(rows)?;
        let derived = restate(&batch, &dictionary, &self.tables);
        let anew = encode_derived(derived, rows.num_rows(), &self.versions)?;
        let mut columns = rows.columns().to_vec();
        let mut changed = BooleanArray::from(vec![false; rows.num_rows()]);
        for (field, column) in anew.schema().fields().iter().zip(anew.columns()) {
            let at = rows.schema().index_of(field.name())?;
            let (old, new) = (&columns[at], cast(column, columns[at].data_type())?);
            let differs = and(&distinct(old as &dyn Datum, &new as &dyn Datum)?, &in_span)?;
            changed = or(&changed, &differs)?;
            columns[at] = zip(&in_span, &new, old)?;
        }
        let edited = RecordBatch::try_new(rows.schema(), columns)?;
        let sum =
            |name| Ok::<_, Cause>((sum(rows, name, &changed)?, sum(&edited, name, &changed)?));
        let ((confirmed_before, _), (confirmed_after, _)) = sum("cost_confirmed")?;
        let ((ceiling_before, unpriced_before), (ceiling_after, unpriced_after)) =
            sum("cost_ceiling")?;
        let change = Change {
            removed: 0,
            changed: changed.true_count() as u64,
            confirmed: (confirmed_before, confirmed_after),
            ceiling: (ceiling_before, ceiling_after),
            unpriced: (unpriced_before, unpriced_after),
        };
        Ok((edited, change))
    }
}

impl Restate {
    fn in_span(&self, rows: &RecordBatch) -> Result<BooleanArray, Cause> {
        let ts = column(rows, "ts")?;
        let end = |us| {
            let scalar = cast(&arrow::array::Int64Array::from(vec![us]), ts.data_type())?;
            Ok::<_, Cause>(arrow::array::Scalar::new(scalar))
        };
        let since = gt_eq(ts, &end(self.since_us)?)?;
        let span = and(&since, &lt(ts, &end(self.until_us)?)?)?;
        // A row without a time is in no span.
        Ok(match span.null_count() {
            0 => span,
            _ => prep_null_mask_filter(&span),
        })
    }
}

/// The money of a column's rows that were changed, and how many of them have none.
fn sum(rows: &RecordBatch, name: &str, changed: &BooleanArray) -> Result<(i128, u64), Cause> {
    let money = decimals(rows, name)?;
    let (mut sum, mut without) = (0, 0);
    for (value, changed) in money.iter().zip(changed) {
        match value {
            _ if changed != Some(true) => {}
            Some(value) => sum += value,
            None => without += 1,
        }
    }
    Ok((sum, without))
}

/// The events that rows were, as far as their judgement goes.
fn events(rows: &RecordBatch) -> Result<(EventBatch, Dictionary), Cause> {
    let mut batch = EventBatch::new(SourceId(Arc::from("")), 0);
    let mut dictionary = Dictionary::default();
    let len = rows.num_rows();
    batch.offsets = vec![0; len];
    for word in Word::ALL {
        let column: &StringArray = typed(rows, word.name(), AsArray::as_string_opt::<i32>)?;
        let ids = column.iter().map(|it| it.map_or(0, |it| dictionary.id(it)));
        batch.words[*word as usize] = ids.collect();
    }
    for int in Int::ALL {
        let wide = cast(column(rows, int.name())?, &DataType::Int64)?;
        let values = wide.as_primitive::<Int64Type>().iter();
        fill(&mut batch.ints[*int as usize], values);
    }
    for bool in Bool::ALL {
        let column: &BooleanArray = typed(rows, bool.name(), AsArray::as_boolean_opt)?;
        fill(&mut batch.bools[*bool as usize], column.iter());
    }
    for money in Money::ALL {
        let values = decimals(rows, money.name())?.iter();
        fill(&mut batch.money[*money as usize], values);
    }
    let flags: &StringArray = typed(rows, "flags", AsArray::as_string_opt::<i32>)?;
    let of_text = flags.iter().map(|it| it.map(Flags::of_text));
    batch.flags = of_text.map(Option::unwrap_or_default).collect();
    batch.pad();
    Ok((batch, dictionary))
}

fn fill<T: Copy + Default>(column: &mut Sparse<T>, values: impl Iterator<Item = Option<T>>) {
    for (row, value) in values.enumerate() {
        if let Some(value) = value {
            column.set(row, value);
        }
    }
}

fn decimals<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a Decimal128Array, Cause> {
    typed(rows, name, AsArray::as_primitive_opt::<Decimal128Type>)
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, Cause> {
    let column = rows.column_by_name(name);
    column.ok_or_else(|| format!("there is no column {name}").into())
}

fn typed<'a, T>(
    rows: &'a RecordBatch,
    name: &str,
    of: impl Fn(&'a ArrayRef) -> Option<&'a T>,
) -> Result<&'a T, Cause> {
    of(column(rows, name)?).ok_or_else(|| format!("{name} is of another type").into())
}
