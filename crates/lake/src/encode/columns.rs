//! Columns of the core → arrays over the same memory.

use std::mem::take;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use retrytoll_core::batch::{EventBatch, Flags, HashKind, Hashes};
use retrytoll_core::column::{Bitmap, Sparse, Strings};
use retrytoll_core::derive::{Derived, Named};
use retrytoll_core::dictionary::Words;
use retrytoll_core::field::Int;

use super::schema;

/// The versions of the tables that made the rows of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    pub prices: String,
    pub policy: String,
}

/// A batch as Arrow, in the layout of a file, with the day of each row for its partition.
#[derive(Clone, Debug)]
pub struct Encoded {
    pub rows: RecordBatch,
    /// Days since 1970; `None` where the event has no usable time.
    pub days: Vec<Option<i32>>,
}

/// Wraps a batch as Arrow. `words` are those of the dictionary that the batch's ids are of.
///
/// # Errors
/// Columns of unequal length: a bug here, never a matter of the input.
pub fn encode(
    mut batch: EventBatch,
    mut derived: Derived,
    words: &Arc<Words>,
    versions: &Versions,
) -> Result<Encoded, ArrowError> {
    batch.pad();
    let len = batch.len();
    let layout = schema::layout();
    let source = batch.source.0.to_string();
    let mut out = Arrays {
        arrays: Vec::with_capacity(layout.fields().len()),
        layout,
        len,
    };

    out.constant(&source)?;
    out.push(Arc::new(Int32Array::from_value(batch.partition, len)));
    out.push(Arc::new(Int64Array::from(batch.offsets)));
    out.push(Arc::new(Int32Array::from(batch.indexes)));

    let [_, started_at] = batch.times;
    // `ts` is the derived one: the record's time where the caller gave none.
    out.instants(take(&mut derived.ts_us));
    out.instants(started_at);
    out.named(&derived.ts_source)?;
    for column in batch.texts {
        out.strings(column)?;
    }
    let dictionary = dictionary_values(words)?;
    for column in batch.words {
        out.words(column, &dictionary)?;
    }
    for column in batch.hashes {
        out.hashes(column)?;
    }
    for (int, column) in Int::ALL.iter().zip(batch.ints) {
        out.ints(column, int.is_narrow());
    }
    for column in batch.bools {
        out.bools(column);
    }
    for column in batch.money {
        out.money(column)?;
    }
    let days = take(&mut derived.days);
    out.derived(derived, versions)?;
    Ok(Encoded {
        rows: RecordBatch::try_new(out.layout, out.arrays)?,
        days,
    })
}

fn dictionary_values(words: &Words) -> Result<ArrayRef, ArrowError> {
    let (ends, bytes) = words.parts();
    let offsets: Vec<i32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(StringArray::try_new(
        offsets,
        Buffer::from(bytes),
        None,
    )?))
}

/// The derived columns alone, as [`encode`] has them.
pub(super) fn encode_derived(
    derived: Derived,
    len: usize,
    versions: &Versions,
) -> Result<RecordBatch, ArrowError> {
    let layout = schema::derived_layout();
    let mut out = Arrays {
        arrays: Vec::with_capacity(layout.fields().len()),
        layout,
        len,
    };
    out.derived(derived, versions)?;
    RecordBatch::try_new(out.layout, out.arrays)
}

/// Arrays in the order of the layout.
struct Arrays {
    layout: SchemaRef,
    arrays: Vec<ArrayRef>,
    len: usize,
}

impl Arrays {
    fn push(&mut self, array: ArrayRef) {
        self.arrays.push(array);
    }

    /// A column without a value: its type comes from the layout.
    fn null(&mut self) {
        let data_type = self.layout.field(self.arrays.len()).data_type();
        self.arrays.push(new_null_array(data_type, self.len));
    }

    fn derived(&mut self, derived: Derived, versions: &Versions) -> Result<(), ArrowError> {
        self.bools(derived.is_retry);
        self.bools(derived.lone);
        self.push(Arc::new(BooleanArray::from(derived.counted)));
        self.named(&derived.class)?;
        self.named(&derived.billing)?;
        let p_billed = derived.p_billed.iter().map(|&it| Some(i128::from(it)));
        let p_billed = Decimal128Array::from_iter(p_billed);
        self.push(Arc::new(p_billed.with_data_type(schema::PROBABILITY)));
        self.named(&derived.evidence)?;
        self.money(derived.cost_confirmed)?;
        self.money(derived.cost_ceiling)?;
        self.named(&derived.basis)?;
        self.money(derived.input_price)?;
        self.money(derived.output_price)?;
        self.constant(&versions.prices)?;
        self.constant(&versions.policy)?;
        self.flags(&derived.flags)
    }

    fn constant(&mut self, value: &str) -> Result<(), ArrowError> {
        let keys = UInt32Array::from_value(0, self.len);
        self.dictionary(keys, Arc::new(StringArray::from(vec![value])))
    }

    fn dictionary(&mut self, keys: UInt32Array, values: ArrayRef) -> Result<(), ArrowError> {
        self.push(Arc::new(DictionaryArray::<UInt32Type>::try_new(
            keys, values,
        )?));
        Ok(())
    }

    fn words(&mut self, ids: Vec<u32>, values: &ArrayRef) -> Result<(), ArrowError> {
        let valid: BooleanBuffer = ids.iter().map(|&id| id != 0).collect();
        if valid.count_set_bits() == 0 {
            self.null();
            return Ok(());
        }
        let keys = UInt32Array::new(ScalarBuffer::from(ids), Some(NullBuffer::new(valid)));
        self.dictionary(keys, Arc::clone(values))
    }

    /// Closed words: 0 is null, `n` is the `n - 1`st name.
    fn named(&mut self, column: &Named) -> Result<(), ArrowError> {
        let valid: BooleanBuffer = column.values.iter().map(|&it| it != 0).collect();
        let ids: Vec<u32> = column
            .values
            .iter()
            .map(|&it| u32::from(it.saturating_sub(1)))
            .collect();
        let keys = UInt32Array::new(ScalarBuffer::from(ids), Some(NullBuffer::new(valid)));
        self.dictionary(keys, Arc::new(StringArray::from(column.names.to_vec())))
    }

    fn flags(&mut self, flags: &[Flags]) -> Result<(), ArrowError> {
        if flags.iter().all(|it| *it == Flags::default()) {
            self.null();
            return Ok(());
        }
        let texts = flags
            .iter()
            .map(|it| (*it != Flags::default()).then(|| it.text()));
        let array: DictionaryArray<UInt32Type> = texts
            .collect::<Vec<_>>()
            .iter()
            .map(Option::as_deref)
            .collect();
        self.push(Arc::new(array));
        Ok(())
    }

    fn strings(&mut self, column: Strings) -> Result<(), ArrowError> {
        if column.is_null() {
            self.null();
            return Ok(());
        }
        let (ends, bytes) = column.into_parts();
        let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
        let valid: BooleanBuffer = offsets.windows(2).map(|pair| pair[1] > pair[0]).collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let array = StringArray::try_new(offsets, Buffer::from(bytes), nulls(valid))?;
        self.push(Arc::new(array));
        Ok(())
    }

    fn hashes(&mut self, column: Hashes) -> Result<(), ArrowError> {
        let valid: BooleanBuffer = column.kinds.iter().map(|&kind| kind != 0).collect();
        if valid.count_set_bits() == 0 {
            self.null();
            self.null();
            return Ok(());
        }
        let lengths = column
            .kinds
            .iter()
            .map(|&kind| if kind == 0 { 0 } else { 32 });
        let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
        let bytes = if valid.count_set_bits() == valid.len() {
            column.values.into_flattened()
        } else {
            let present = column
                .values
                .iter()
                .zip(&column.kinds)
                .filter(|(_, kind)| **kind != 0);
            present.flat_map(|(value, _)| *value).collect()
        };
        self.push(Arc::new(BinaryArray::try_new(
            offsets,
            Buffer::from(bytes),
            nulls(valid),
        )?));
        self.named(&Named {
            values: column.kinds,
            names: &HashKind::NAMES,
        })
    }

    fn ints(&mut self, column: Sparse<i64>, narrow: bool) {
        if column.is_null() {
            return self.null();
        }
        let (values, valid) = column.into_parts();
        let valid = validity(valid);
        self.push(if narrow {
            let values: Vec<i32> = values.into_iter().map(|value| value as i32).collect();
            Arc::new(Int32Array::new(values.into(), valid))
        } else {
            Arc::new(Int64Array::new(values.into(), valid))
        });
    }

    fn instants(&mut self, column: Sparse<i64>) {
        if column.is_null() {
            return self.null();
        }
        let (values, valid) = column.into_parts();
        let array = TimestampMicrosecondArray::new(values.into(), validity(valid));
        self.push(Arc::new(array.with_timezone("UTC")));
    }

    fn bools(&mut self, column: Sparse<bool>) {
        if column.is_null() {
            return self.null();
        }
        let (values, valid) = column.into_parts();
        self.push(Arc::new(BooleanArray::new(values.into(), validity(valid))));
    }

    fn money(&mut self, column: Sparse<i128>) -> Result<(), ArrowError> {
        if column.is_null() {
            self.null();
            return Ok(());
        }
        let (values, valid) = column.into_parts();
        let array = Decimal128Array::new(values.into(), validity(valid));
        self.push(Arc::new(array.with_precision_and_scale(18, 12)?));
        Ok(())
    }
}

fn nulls(valid: BooleanBuffer) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid)).filter(|it| it.null_count() > 0)
}

fn validity(valid: Bitmap) -> Option<NullBuffer> {
    let len = valid.len();
    nulls(BooleanBuffer::new(Buffer::from(valid.into_bytes()), 0, len))
}
