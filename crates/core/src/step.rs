//! batch → [`step`] → which rows to write, and a partition's new position.
//!
//! Everything lives inside one partition: its clocks, what it has seen, its position. The state
//! is a function of the log from `low` on; what is below `next` only rebuilds it.
//! Offsets: `next` is exclusive (every offset below it is dealt with), `low` is inclusive.

use crate::batch::EventBatch;
use crate::seen::Seen;

/// How far a record's time may lie above our own clock and still move the log clock, ms.
pub const SKEW_MS_MAX: i64 = 120_000;

/// Bounds of a partition's state; the same for every partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// How long an event may be repeated, in ms of the log clock.
    pub dedupe_horizon_ms: i64,
    /// How many offsets behind the newest live state may refer to.
    pub replay_max: i64,
    /// How many entries `seen` may have.
    pub seen_max: usize,
}

/// Where a partition stands: what the lake keeps of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Exclusive: every offset below it is dealt with.
    pub next: i64,
    /// Inclusive: the least offset that live state refers to.
    pub low: i64,
    /// The log clock before `low`, ms; `i64::MIN` before the first record.
    pub low_clock_ms: i64,
    /// The waiting clock, ms; it never moves back.
    pub clock_ms: i64,
}

impl Progress {
    /// Nothing of the partition is known; reading begins at `start`.
    #[must_use]
    pub fn begin(start: i64) -> Self {
        Self {
            next: start,
            low: start,
            low_clock_ms: i64::MIN,
            clock_ms: i64::MIN,
        }
    }
}

/// The live state of one partition.
#[derive(Clone, Debug)]
pub struct PartitionState {
    /// Rows below this offset are in the lake already.
    written_below: i64,
    /// No record below it moved the log clock beyond this, ms.
    written_clock_ms: i64,
    next: i64,
    log_clock_ms: i64,
    waiting_clock_ms: i64,
    seen: Seen,
}

/// What a step orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Rows of the batch to write, ascending.
    pub keep: Vec<u32>,
    /// Events that were seen within the horizon, and are at or above what was written.
    pub duplicates: u64,
    /// Events below what was written: they rebuilt state.
    pub replayed: u64,
    /// Records whose time lies beyond the skew limit above our own clock.
    pub from_the_future: u64,
}

impl Effects {
    /// Makes the value ready for the next step, and keeps its memory.
    pub fn clear(&mut self) {
        self.keep.clear();
        (self.duplicates, self.replayed, self.from_the_future) = (0, 0, 0);
    }
}

impl PartitionState {
    /// The state from which a reader begins at `from.low`.
    #[must_use]
    pub fn recover(from: Progress, limits: StateLimits) -> Self {
        let StateLimits {
            dedupe_horizon_ms,
            replay_max,
            seen_max,
        } = limits;
        Self {
            written_below: from.next,
            written_clock_ms: from.clock_ms,
            next: from.low,
            log_clock_ms: from.low_clock_ms,
            waiting_clock_ms: from.clock_ms,
            seen: Seen::new(dedupe_horizon_ms, replay_max, seen_max),
        }
    }

    /// Every record below `next` (exclusive) was handed over: events by [`step`], and those that
    /// are none (null, bad, control) by this alone.
    pub fn advance(&mut self, next: i64) {
        self.next = self.next.max(next);
    }

    /// A record at this offset was dealt with in an earlier life; reading it only rebuilds state.
    #[must_use]
    pub fn is_written(&self, offset: i64) -> bool {
        offset < self.written_below
    }

    /// A record from the future moves no clock, nor when it is read again and its time has come:
    /// what was a repeat before a restart must be one after it.
    fn is_ahead(&self, offset: i64, ms: i64, now_ms: i64) -> bool {
        let was_ahead = self.is_written(offset) && ms > self.written_clock_ms;
        was_ahead || ms > now_ms.saturating_add(SKEW_MS_MAX)
    }

    /// The partition is caught up and silent: the waiting clock follows our own, up to where the
    /// silence is known ([`Silence::known_ms`](crate::silence::Silence::known_ms)).
    pub fn idle(&mut self, silent_ms: i64) {
        self.waiting_clock_ms = self.waiting_clock_ms.max(silent_ms);
    }

    /// Shares memory with other partitions: see [`Seen::set_cap`].
    pub fn set_seen_max(&mut self, seen_max: usize) {
        self.seen.set_cap(seen_max);
    }

    /// The position to commit with all rows so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        // While state is rebuilt, nothing new was dealt with, and the old `low` still holds.
        let next = self.next.max(self.written_below);
        let (low, low_clock_ms) = self.seen.low().unwrap_or((self.next, self.log_clock_ms));
        Progress {
            next,
            low,
            low_clock_ms,
            clock_ms: self.waiting_clock_ms,
        }
    }

    /// Entries that `seen` has.
    #[must_use]
    pub fn seen_len(&self) -> usize {
        self.seen.len()
    }

    /// Entries that left `seen` at its cap.
    #[must_use]
    pub fn seen_evicted(&self) -> u64 {
        self.seen.evicted
    }

    #[must_use]
    pub fn log_clock_ms(&self) -> i64 {
        self.log_clock_ms
    }
}

/// Takes a batch of one partition, in offset order, and says which rows to write.
/// `now_ms` is our own clock, read once for the batch.
pub fn step(state: &mut PartitionState, batch: &EventBatch, now_ms: i64, out: &mut Effects) {
    // The log clock before the record at hand: several events may share one record.
    let mut before = state.log_clock_ms;
    let mut record = None;
    for row in 0..batch.len() {
        let offset = batch.offsets[row];
        if record != Some(offset) {
            record = Some(offset);
            before = state.log_clock_ms;
        }
        match batch.log_ms(row) {
            Some(ms) if state.is_ahead(offset, ms, now_ms) => out.from_the_future += 1,
            Some(ms) => state.log_clock_ms = state.log_clock_ms.max(ms),
            None => {}
        }
        let clock = state.log_clock_ms;
        let duplicate = state.seen.see(batch.identities[row], offset, clock, before);
        if offset < state.written_below {
            out.replayed += 1;
        } else if duplicate {
            out.duplicates += 1;
        } else {
            out.keep.push(row as u32);
        }
        state.advance(offset + 1);
    }
    state.waiting_clock_ms = state.waiting_clock_ms.max(state.log_clock_ms);
}

#[cfg(test)]
mod tests;
