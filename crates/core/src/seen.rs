//! identity → seen within the horizon? One per partition.
//!
//! An event is a duplicate when one of the same identity came within the horizon before it,
//! written or not. So the state depends on the last stretch of the log alone: one that is rebuilt
//! from [`Seen::low`] knows the same as one that never stopped. (Were the horizon counted from
//! the first sighting, a rebuild that begins between two sightings would take the second for a
//! first.) Time is the partition's log clock. Entries leave in the order of their last sighting:
//! past the horizon, past the replay bound, or, counted, at the cap.

use std::collections::VecDeque;

use crate::dictionary::HashedMap;

/// Heap bytes of one entry at the worst: two places in the queue, and the map's at half load.
pub const ENTRY_BYTES: usize = 2 * size_of::<Entry>() + 2 * (size_of::<(u128, i64)>() + 1);

#[derive(Clone, Copy, Debug)]
struct Entry {
    identity: u128,
    offset: i64,
    /// The log clock with this event, ms.
    clock_ms: i64,
    /// The log clock before this event's record, ms.
    clock_before_ms: i64,
}

/// What was seen, by last sighting.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Sightings, oldest first; one that a later sighting followed is stale.
    entries: VecDeque<Entry>,
    /// The offset of each identity's last sighting.
    last: HashedMap<i64>,
    horizon_ms: i64,
    replay_max: i64,
    cap: usize,
    /// Entries that left at the cap while the horizon still wanted them.
    pub evicted: u64,
}

impl Seen {
    /// `horizon_ms` is how long an event may be repeated, `replay_max` how many offsets behind
    /// the newest an entry may lie, `cap` how many entries there may be.
    #[must_use]
    pub fn new(horizon_ms: i64, replay_max: i64, cap: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            last: HashedMap::default(),
            horizon_ms,
            replay_max,
            cap: cap.max(1),
            evicted: 0,
        }
    }

    /// Sets another cap: memory is shared by however many partitions are owned.
    pub fn set_cap(&mut self, cap: usize) {
        self.cap = cap.max(1);
        self.evict_to_cap();
        self.drop_stale();
        self.entries.shrink_to_fit();
        self.last.shrink_to_fit();
    }

    /// Takes note of an event at this offset; true where it was seen within the horizon.
    pub fn see(
        &mut self,
        identity: u128,
        offset: i64,
        clock_ms: i64,
        clock_before_ms: i64,
    ) -> bool {
        self.expire(offset, clock_ms);
        let duplicate = self.last.insert(identity, offset).is_some();
        self.entries.push_back(Entry {
            identity,
            offset,
            clock_ms,
            clock_before_ms,
        });
        self.evict_to_cap();
        if self.entries.len() > 2 * self.last.len() + 64 {
            self.drop_stale();
        }
        duplicate
    }

    /// Lets go of what the horizon or the replay bound no longer reaches.
    fn expire(&mut self, offset: i64, clock_ms: i64) {
        while let Some(oldest) = self.entries.front() {
            let past = clock_ms.saturating_sub(oldest.clock_ms) > self.horizon_ms
                || offset.saturating_sub(oldest.offset) > self.replay_max;
            if !past && !self.is_stale(oldest) {
                return;
            }
            self.pop();
        }
    }

    /// The least offset that an entry refers to, and the log clock before it.
    #[must_use]
    pub fn low(&self) -> Option<(i64, i64)> {
        let oldest = self.entries.iter().find(|entry| !self.is_stale(entry))?;
        Some((oldest.offset, oldest.clock_before_ms))
    }

    /// How many identities are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// A later sighting of the same identity follows. Two in one record are one sighting.
    fn is_stale(&self, entry: &Entry) -> bool {
        self.last.get(&entry.identity) != Some(&entry.offset)
    }

    fn evict_to_cap(&mut self) {
        while self.last.len() > self.cap {
            self.evicted += u64::from(self.pop());
        }
    }

    /// Takes the oldest sighting away; true where it was its identity's last.
    fn pop(&mut self) -> bool {
        let Some(oldest) = self.entries.pop_front() else {
            return false;
        };
        !self.is_stale(&oldest) && self.last.remove(&oldest.identity).is_some()
    }

    fn drop_stale(&mut self) {
        let last = &self.last;
        self.entries
            .retain(|entry| last.get(&entry.identity) == Some(&entry.offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_duplicate_within_the_horizon_only() {
        let mut seen = Seen::new(100, 1_000, 10);
        assert!(!seen.see(1, 0, 1_000, 0));
        assert!(seen.see(1, 1, 1_100, 1_000));
        assert!(
            !seen.see(1, 2, 1_201, 1_100),
            "past the horizon it is another event"
        );
        assert_eq!(seen.low(), Some((2, 1_100)));
    }

    #[test]
    fn the_horizon_counts_from_the_last_sighting() {
        let mut seen = Seen::new(100, 1_000, 10);
        assert!(!seen.see(1, 0, 0, -5));
        assert!(seen.see(1, 1, 90, 0));
        assert!(seen.see(1, 2, 180, 90));
        assert_eq!((seen.len(), seen.low()), (1, Some((2, 90))));
    }

    #[test]
    fn a_prompt_that_never_stops_takes_no_memory() {
        let mut seen = Seen::new(i64::MAX, i64::MAX, 10);
        for offset in 0..10_000 {
            assert_eq!(seen.see(1, offset, 0, 0), offset > 0);
        }
        assert!(
            seen.entries.len() <= 67,
            "{} sightings kept",
            seen.entries.len()
        );
    }

    #[test]
    fn the_replay_bound_lets_go_without_time() {
        let mut seen = Seen::new(i64::MAX, 10, 100);
        seen.see(1, 0, 0, 0);
        assert!(!seen.see(1, 11, 0, 0));
        assert!(seen.see(1, 21, 0, 0));
        assert_eq!((seen.len(), seen.evicted), (1, 0));
    }

    #[test]
    fn at_the_cap_the_oldest_leaves_and_is_counted() {
        let mut seen = Seen::new(i64::MAX, i64::MAX, 2);
        for identity in 1..=3 {
            seen.see(identity, identity as i64, 0, 0);
        }
        assert_eq!((seen.len(), seen.evicted, seen.low()), (2, 1, Some((2, 0))));
        seen.set_cap(1);
        assert_eq!((seen.len(), seen.evicted, seen.low()), (1, 2, Some((3, 0))));
        assert!(
            !seen.see(1, 9, 0, 0),
            "an evicted event is not known any more"
        );
    }
}
