//! (`service`, `request_id`) → whether the request has more to it than one complete row.
//!
//! A day has millions of requests. They are remembered by two bits of a place by their hash, in
//! memory of a fixed size: whether the request was met, and whether it is to be placed. Two requests
//! of one place do no harm: then both are looked at, each by its own id.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, AsArray as _, BooleanArray, UInt64Array};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionImplementation, ScalarUDF, Volatility, create_udf,
};
use futures::StreamExt as _;

/// Which part of a session's memory the bits take.
const PART_OF_MEMORY: usize = 16;

/// The function `request_hash(service, request_id)`.
pub fn request_hash() -> ScalarUDF {
    let hash = |values: &[ColumnarValue]| {
        let hashes = UInt64Array::from(hashes(values)?);
        Ok(ColumnarValue::Array(Arc::new(hashes)))
    };
    of_request("request_hash", DataType::UInt64, Arc::new(hash))
}

fn of_request(name: &str, result: DataType, function: ScalarFunctionImplementation) -> ScalarUDF {
    let text = vec![DataType::Utf8, DataType::Utf8];
    create_udf(name, text, result, Volatility::Immutable, function)
}

fn hashes(values: &[ColumnarValue]) -> Result<Vec<u64>> {
    let columns: Vec<ArrayRef> = ColumnarValue::values_to_arrays(values)?;
    let mut hashes = vec![0; columns.first().map_or(0, |it| it.len())];
    create_hashes(&columns, &RandomState::with_seed(0), &mut hashes)?;
    Ok(hashes)
}

/// The requests that a question's views place, once they were asked for.
#[derive(Clone, Default)]
pub struct Requests(Arc<OnceLock<Bits>>);

impl Requests {
    /// The function `to_place(service, request_id)`; it may be asked once [`Requests::remember`]
    /// is done.
    pub fn to_place(&self) -> ScalarUDF {
        let bits = Arc::clone(&self.0);
        let ask = move |values: &[ColumnarValue]| {
            let Some(bits) = bits.get() else {
                let reason = "to_place is asked before it is known";
                return Err(DataFusionError::Internal(reason.into()));
            };
            let found = hashes(values)?.into_iter().map(|it| Some(bits.holds(it)));
            let found = found.collect::<BooleanArray>();
            Ok(ColumnarValue::Array(Arc::new(found)))
        };
        of_request("to_place", DataType::Boolean, Arc::new(ask))
    }

    /// Takes the rows of `found` in: the hash of a row's request, and whether the row is
    /// incomplete.
    ///
    /// # Errors
    /// The stream's, and where `pool` has no part of its `memory_bytes` left.
    pub async fn remember(
        &self,
        mut found: SendableRecordBatchStream,
        pool: &Arc<dyn MemoryPool>,
        memory_bytes: usize,
    ) -> Result<()> {
        let mut bits = Bits::new(pool, memory_bytes / PART_OF_MEMORY)?;
        while let Some(batch) = found.next().await {
            let rows = batch?;
            let hashes = rows.column(0).as_primitive::<UInt64Type>().values();
            let incomplete = rows.column(1).as_boolean();
            for (hash, incomplete) in hashes.iter().zip(incomplete.iter()) {
                bits.add(*hash, incomplete == Some(true));
            }
        }
        // Nobody else fills it: a question does so once, before it runs.
        let _ = self.0.set(bits);
        Ok(())
    }
}

struct Bits {
    /// In turn a word of requests that were met, and one of those to be placed.
    words: Vec<[u64; 2]>,
    _reserved: MemoryReservation,
}

impl Bits {
    fn new(pool: &Arc<dyn MemoryPool>, bytes: usize) -> Result<Self> {
        let words = (bytes / size_of::<[u64; 2]>()).max(1);
        let reserved = MemoryConsumer::new("requests to place").register(pool);
        reserved.try_grow(words * size_of::<[u64; 2]>())?;
        Ok(Self {
            words: vec![[0; 2]; words],
            _reserved: reserved,
        })
    }

    /// The word and the bit of a hash.
    fn of(&self, hash: u64) -> (usize, u64) {
        let word = hash / u64::from(u64::BITS) % self.words.len() as u64;
        (word as usize, 1 << (hash % u64::from(u64::BITS)))
    }

    fn add(&mut self, hash: u64, incomplete: bool) {
        let (word, bit) = self.of(hash);
        let [met, placed] = &mut self.words[word];
        if incomplete || *met & bit != 0 {
            *placed |= bit;
        }
        *met |= bit;
    }

    fn holds(&self, hash: u64) -> bool {
        let (word, bit) = self.of(hash);
        self.words[word][1] & bit != 0
    }
}
