//! The memory of a session's questions, and who may have how much of it.
//!
//! A plan of views has dozens of sorts and groups, most of them small. Shared evenly, none would
//! get enough; given to whoever asks first, one would take it all while others cannot even begin.
//! So whoever can spill to disk does so at a part of the whole.

use std::fmt;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryLimit, MemoryPool, MemoryReservation,
};

/// Into how many parts the whole is cut for those who can spill.
const PARTS: usize = 8;

/// Memory up to a bound, of which one sort or group may hold a part.
#[derive(Debug)]
pub struct PartsPool {
    whole: GreedyMemoryPool,
    part_bytes: usize,
}

impl PartsPool {
    pub fn new(bytes: usize) -> Self {
        Self {
            whole: GreedyMemoryPool::new(bytes),
            part_bytes: bytes / PARTS,
        }
    }
}

impl fmt::Display for PartsPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, at most {} bytes for one that can spill",
            self.whole, self.part_bytes
        )
    }
}

impl MemoryPool for PartsPool {
    fn name(&self) -> &str {
        "parts"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.whole.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.whole.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let asked = reservation.size().saturating_add(additional);
        if reservation.consumer().can_spill() && asked > self.part_bytes {
            let name = reservation.consumer().name();
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} asks for {asked} bytes: {self}"
            )));
        }
        self.whole.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.whole.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.whole.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::MemoryConsumer;

    use super::*;

    #[test]
    fn who_can_spill_has_a_part_and_others_what_is_left() {
        let pool: Arc<dyn MemoryPool> = Arc::new(PartsPool::new(800));
        let sort = MemoryConsumer::new("sort")
            .with_can_spill(true)
            .register(&pool);
        let join = MemoryConsumer::new("join").register(&pool);
        assert!(sort.try_grow(100).is_ok());
        let refused = sort.try_grow(1).unwrap_err().to_string();
        assert!(refused.contains("sort asks for 101 bytes"), "{refused}");
        assert!(join.try_grow(700).is_ok());
        assert!(join.try_grow(1).is_err());
        sort.shrink(50);
        assert!(join.try_grow(50).is_ok());
        assert_eq!(pool.reserved(), 800);
    }
}
