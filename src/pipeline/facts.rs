//! What the stages have counted and hold at an instant: copies for whoever watches.

use std::collections::BTreeMap;

use retrytoll_core::decode::DecodeCounts;
use retrytoll_lake::{ConflictCounts, Mark};

use super::read::ReadCounts;

/// What the reading stage has counted and holds, at an instant.
#[derive(Clone, Debug)]
pub struct ReadFacts {
    pub counts: ReadCounts,
    /// Of all that was decoded, records read again after a restart included.
    pub decoded: DecodeCounts,
    pub partitions: BTreeMap<i32, PartitionFacts>,
    /// Bytes of batches that wait for the writing stage.
    pub batches_bytes: usize,
    /// Bytes that `seen` holds, over all partitions.
    pub seen_bytes: usize,
}

/// Where the reading stage is in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Exclusive: every record below it was read.
    pub next: i64,
    /// The waiting clock, ms; `None` before the first record.
    pub clock_ms: Option<i64>,
}

/// What was done, for the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSummary {
    pub rows: u64,
    /// Rows of tenants that were forgotten: they are not written.
    pub forgotten: u64,
    pub files: u64,
    pub bytes: u64,
    pub commits: u64,
    /// Of these, those that took partitions over, and those of positions without rows.
    pub claims: u64,
    pub position_commits: u64,
    /// How often reading began anew after a commit was refused.
    pub restarts: u64,
    pub dead_letters: u64,
    /// The last version of `attempts` that is ours.
    pub version: Option<u64>,
}

/// What the writing stage has done, and where the lake stands with it.
#[derive(Clone, Debug)]
pub struct WriteFacts {
    pub summary: WriteSummary,
    pub conflicts: ConflictCounts,
    /// Of each partition that is ours; exclusive: every record below it is dealt with in the lake.
    pub next: BTreeMap<i32, i64>,
    /// Up to when everything is in the lake, over all sources and instances.
    pub mark: Mark,
}
