//! What the flush at hand holds, from its first row to its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use parquet::errors::ParquetError;
use retrytoll_core::step::Progress;
use retrytoll_lake::encode::{Encoded, FileLimits, FlushFiles};
use retrytoll_lake::{DataFile, Flush, Position, SourcePartition};

use super::message::FileMark;
use crate::dead_letter::DeadLetter;

/// Rows on their way into files, and where their partitions stand with them.
pub struct Pending {
    files: FlushFiles,
    /// When the first row or dead letter came, ms; `None` while there is none.
    began_ms: Option<i64>,
    positions: BTreeMap<SourcePartition, (Progress, Option<FileMark>)>,
    /// The partitions that have rows in the files.
    with_rows: Vec<SourcePartition>,
    pub dead_letters: Vec<DeadLetter>,
    pub rows: u64,
    /// Partitions with rows here that were not read to their end, then or since.
    behind: BTreeSet<SourcePartition>,
}

impl Pending {
    pub fn new(table: &Path, limits: FileLimits) -> Self {
        Self {
            files: FlushFiles::new(table, limits),
            began_ms: None,
            positions: BTreeMap::new(),
            with_rows: Vec::new(),
            dead_letters: Vec::new(),
            rows: 0,
            behind: BTreeSet::new(),
        }
    }

    /// Appends the rows of `keep`, with where their partition then stands.
    pub fn add_rows(
        &mut self,
        partition: &SourcePartition,
        encoded: &Encoded,
        keep: &[u32],
        stands: (Progress, Option<FileMark>),
        now_ms: i64,
    ) -> Result<(), ParquetError> {
        self.began_ms.get_or_insert(now_ms);
        self.files.append(encoded, keep)?;
        self.rows += keep.len() as u64;
        if !self.with_rows.contains(partition) {
            self.with_rows.push(partition.clone());
        }
        self.positions.insert(partition.clone(), stands);
        Ok(())
    }

    pub fn add_dead_letter(&mut self, letter: DeadLetter, now_ms: i64) {
        self.began_ms.get_or_insert(now_ms);
        self.dead_letters.push(letter);
    }

    /// Whether the partition is read to its end.
    pub fn stands_at_end(&mut self, partition: &SourcePartition, at_end: bool) {
        if at_end {
            self.behind.remove(partition);
        } else {
            self.behind.insert(partition.clone());
        }
    }

    /// Every partition with rows here was read to its end.
    pub fn is_caught_up(&self) -> bool {
        self.behind.is_empty()
    }

    /// The partition moved on without rows.
    pub fn moved(&mut self, partition: SourcePartition, stands: (Progress, Option<FileMark>)) {
        self.positions.insert(partition, stands);
    }

    /// Forgets the position of a partition that has no rows here: it is not ours to state.
    pub fn forget(&mut self, partition: &SourcePartition) {
        self.behind.remove(partition);
        if !self.with_rows.contains(partition) {
            self.positions.remove(partition);
        }
    }

    pub fn with_rows(&self) -> &[SourcePartition] {
        &self.with_rows
    }

    pub fn began_ms(&self) -> Option<i64> {
        self.began_ms
    }

    /// Nothing but positions, if any.
    pub fn is_bare(&self) -> bool {
        self.began_ms.is_none()
    }

    pub fn has_positions(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Bytes of Parquet so far.
    pub fn bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Bytes that open files hold in memory.
    pub fn memory_bytes(&self) -> usize {
        self.files.memory_bytes()
    }

    /// Closes the files; what comes back is ready to be committed.
    pub fn finish(self, now_ms: i64) -> Result<Flush, ParquetError> {
        let files = self.files.finish()?.into_iter().map(|file| DataFile {
            date: file.day.map(retrytoll_lake::encode::date_text),
            path: file.path,
            size: file.bytes,
            rows: file.rows,
            stats: Some(file.stats),
            tags: Default::default(),
        });
        let positions = self.positions.into_iter().map(|(partition, (at, file))| {
            let position = Position {
                next: at.next,
                low: at.low,
                low_clock_ms: at.low_clock_ms,
                clock_ms: at.clock_ms,
                digest: file.map(|file| file.digest),
                done: file.is_some_and(|file| file.done),
            };
            (partition, position)
        });
        Ok(Flush {
            began_ms: self.began_ms.unwrap_or(now_ms),
            files: files.collect(),
            positions: positions.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few rows may come before the end of their partition is seen, and nothing after them.
    #[test]
    fn rows_are_caught_up_when_their_partitions_are_later() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut pending = Pending::new(folder.path(), FileLimits::default());
        let partition = |number| SourcePartition::new("topic", number);
        assert!(pending.is_caught_up());
        pending.stands_at_end(&partition(0), false);
        pending.stands_at_end(&partition(1), false);
        pending.stands_at_end(&partition(0), true);
        assert!(!pending.is_caught_up());
        pending.stands_at_end(&partition(1), true);
        assert!(pending.is_caught_up());
        // One that is not ours any more keeps nothing waiting.
        pending.stands_at_end(&partition(2), false);
        pending.forget(&partition(2));
        assert!(pending.is_caught_up());
    }
}
