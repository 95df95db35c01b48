//! values by row → plain `Vec`s in Arrow's memory layout.
//!
//! A column grows only when a row has a value: an absent field costs nothing, and a field that
//! no event of the batch has is an empty column. [`Sparse::pad`] brings it to the batch's length.

/// A validity bitmap, least significant bit first, as Arrow has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    bytes: Vec<u8>,
    len: usize,
}

impl Bitmap {
    /// Appends `false` up to `len`, then nothing; shorter than that already, it stays.
    pub fn pad(&mut self, len: usize) {
        if len > self.len {
            self.len = len;
            self.bytes.resize(len.div_ceil(8), 0);
        }
    }

    /// Appends one bit.
    pub fn push(&mut self, bit: bool) {
        let at = self.len;
        self.pad(at + 1);
        self.bytes[at / 8] |= u8::from(bit) << (at % 8);
    }

    /// The bit at `at`; false past the end.
    #[must_use]
    pub fn get(&self, at: usize) -> bool {
        at < self.len && self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    /// How many bits are set.
    #[must_use]
    pub fn ones(&self) -> usize {
        self.bytes
            .iter()
            .map(|byte| byte.count_ones() as usize)
            .sum()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, for Arrow to take over.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Plain values with validity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse<T> {
    values: Vec<T>,
    valid: Bitmap,
}

impl<T: Copy + Default> Sparse<T> {
    /// Sets row `row`, which is the first one not yet set; rows between are null.
    pub fn set(&mut self, row: usize, value: T) {
        debug_assert!(row >= self.values.len(), "row {row} is set already");
        self.values.resize(row, T::default());
        self.values.push(value);
        self.valid.pad(row);
        self.valid.push(true);
    }

    /// Brings the column to `len` rows with nulls.
    pub fn pad(&mut self, len: usize) {
        self.values.resize(len.max(self.values.len()), T::default());
        self.valid.pad(len);
    }

    #[must_use]
    pub fn get(&self, row: usize) -> Option<T> {
        self.valid.get(row).then(|| self.values[row])
    }

    /// No row has a value.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.valid.ones() == 0
    }

    /// The values and their validity, for Arrow to take over.
    #[must_use]
    pub fn into_parts(self) -> (Vec<T>, Bitmap) {
        (self.values, self.valid)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.valid.bytes.capacity()
    }
}

/// Text of any length; empty text is null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    /// The exclusive end of each row's text in `bytes`.
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Strings {
    /// Sets row `row`, which is the first one not yet set; rows between are null.
    pub fn set(&mut self, row: usize, text: &[u8]) {
        debug_assert!(row >= self.ends.len(), "row {row} is set already");
        self.pad(row);
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as i32);
    }

    /// Brings the column to `len` rows with nulls.
    pub fn pad(&mut self, len: usize) {
        let end = self.bytes.len() as i32;
        self.ends.resize(len.max(self.ends.len()), end);
    }

    /// The text of a row; empty where there is none.
    #[must_use]
    pub fn get(&self, row: usize) -> &[u8] {
        let Some(&end) = self.ends.get(row) else {
            return b"";
        };
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// No row has text.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The exclusive ends of the rows, and all bytes.
    #[must_use]
    pub fn into_parts(self) -> (Vec<i32>, Vec<u8>) {
        (self.ends, self.bytes)
    }

    fn bytes(&self) -> usize {
        self.ends.capacity() * 4 + self.bytes.capacity()
    }
}

/// Heap bytes that a column holds.
pub trait HeapBytes {
    fn heap_bytes(&self) -> usize;
}

impl<T: Copy + Default> HeapBytes for Sparse<T> {
    fn heap_bytes(&self) -> usize {
        self.bytes()
    }
}

impl HeapBytes for Strings {
    fn heap_bytes(&self) -> usize {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_skipped_are_null() {
        let mut column = Sparse::<i64>::default();
        column.set(2, 7);
        column.set(9, 8);
        column.pad(12);
        let rows: Vec<_> = (0..12).map(|row| column.get(row)).collect();
        let mut expected = vec![None; 12];
        expected[2] = Some(7);
        expected[9] = Some(8);
        assert_eq!(rows, expected);
        let (values, valid) = column.into_parts();
        assert_eq!((values.len(), valid.len(), valid.ones()), (12, 12, 2));
        assert_eq!(valid.into_bytes(), [0b0000_0100, 0b0000_0010]);
    }

    #[test]
    fn text_that_was_skipped_is_empty() {
        let mut column = Strings::default();
        column.set(1, b"ab");
        column.set(3, b"c");
        column.pad(5);
        let rows: Vec<_> = (0..6).map(|row| column.get(row)).collect();
        assert_eq!(rows, [&b""[..], b"ab", b"", b"c", b"", b""]);
        assert_eq!(column.into_parts(), (vec![0, 2, 2, 3, 3], b"abc".to_vec()));
    }
}
