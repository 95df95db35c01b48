//! record → decode → derive → step → [`Fact`]: the reading stage without its source.
//!
//! Kafka and files feed it records; it owns the live state of every partition, and hands batches
//! on when they are full or the source asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use retrytoll_core::batch::{EventBatch, SourceId};
use retrytoll_core::decode::{Decoder, Reason, Record};
use retrytoll_core::derive::{Tables, derive};
use retrytoll_core::seen::ENTRY_BYTES;
use retrytoll_core::step::{Effects, PartitionState, Progress, StateLimits, step};
use retrytoll_lake::Point;

use super::channel::{Closed, Outlet};
use super::facts::{PartitionFacts, ReadFacts};
use super::message::{Fact, FileMark, Rows};
use crate::dead_letter::DeadLetter;
use crate::lint::FirstLook;

/// A partition is caught up when it was read to its end so lately, ms.
const CAUGHT_UP_MS: i64 = 5_000;
/// A silent partition tells its waiting clock so often, ms.
const CLOCK_STEP_MS: i64 = 1_000;

/// What one record of a source is.
#[derive(Clone, Copy, Debug)]
pub struct SourceRecord<'a> {
    pub partition: i32,
    pub offset: i64,
    /// The record's own timestamp; a file has none.
    pub timestamp_ms: Option<i64>,
    /// `None` is a null record: counted, and passed.
    pub payload: Option<&'a [u8]>,
}

/// Counts since the start, for the log, the end of a run, and whoever watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    pub records: u64,
    pub rows: u64,
    pub duplicates: u64,
    pub replayed: u64,
    pub dead_letters: u64,
    /// The same by place in [`Reason::ALL`].
    pub dead_letters_by_reason: [u64; Reason::ALL.len()],
    pub nulls: u64,
    pub from_the_future: u64,
    /// Entries that left `seen` at its cap.
    pub seen_evicted: u64,
}

/// Bounds of the reading stage.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    pub state: StateLimits,
    /// Bytes that `seen` may take, over all partitions.
    pub seen_bytes_max: usize,
    /// The dead letters carry the payload as it is.
    pub keep_payloads: bool,
}

struct Partition {
    state: PartitionState,
    batch: EventBatch,
    /// Exclusive: records below it that are no events were handed over.
    reached: i64,
    reported: Option<Progress>,
    /// Nothing has come since the partition was read to its end.
    at_end: bool,
    /// When it was last read to its end, ms.
    at_end_ms: i64,
    /// Rows were handed on as not caught up, and nothing after them said that they are.
    told_behind: bool,
}

/// The reading stage.
pub struct Reader {
    source: SourceId,
    decoder: Decoder,
    tables: Arc<Tables>,
    limits: ReadLimits,
    partitions: BTreeMap<i32, Partition>,
    effects: Effects,
    pub counts: ReadCounts,
    pub outlet: Outlet,
    /// How a file stands with the record about to be taken in; its source sets it.
    pub file: Option<FileMark>,
    /// Until when partitions at their end are known to be silent, ms; the source sets it.
    pub silent_ms: i64,
    /// Looks at the first events, until it has told what is wrong with them.
    pub first_look: Option<FirstLook>,
}

impl Reader {
    pub fn new(source: SourceId, tables: Arc<Tables>, limits: ReadLimits, outlet: Outlet) -> Self {
        let decoder = Decoder::new(tables.settings.decisions.clone());
        Self {
            source,
            decoder,
            tables,
            limits,
            partitions: BTreeMap::new(),
            effects: Effects::default(),
            counts: ReadCounts::default(),
            outlet,
            file: None,
            silent_ms: i64::MIN,
            first_look: None,
        }
    }

    /// Begins to read a partition at `from.low`.
    pub fn begin(&mut self, partition: i32, from: Progress) {
        let state = PartitionState::recover(from, self.limits.state);
        let batch = EventBatch::new(self.source.clone(), partition);
        let reached = from.low;
        let begun = Partition {
            state,
            batch,
            reached,
            reported: Some(from),
            at_end: false,
            at_end_ms: i64::MIN,
            told_behind: false,
        };
        self.partitions.insert(partition, begun);
        self.share_memory();
    }

    /// Drops all state of a partition; what it had handed on goes its way.
    pub fn end(&mut self, partition: i32) {
        self.partitions.remove(&partition);
        self.share_memory();
    }

    pub fn owns(&self, partition: i32) -> bool {
        self.partitions.contains_key(&partition)
    }

    /// Copies what has been counted, for whoever watches.
    pub fn facts(&self) -> ReadFacts {
        let of = |it: &Partition| {
            let clock_ms = it.state.progress().clock_ms;
            PartitionFacts {
                next: it.reached,
                clock_ms: (clock_ms != i64::MIN).then_some(clock_ms),
            }
        };
        let partitions = self.partitions.iter();
        let seen: usize = self.partitions.values().map(|it| it.state.seen_len()).sum();
        ReadFacts {
            counts: self.counts,
            decoded: self.decoder.counts.clone(),
            partitions: partitions.map(|(number, it)| (*number, of(it))).collect(),
            batches_bytes: self.outlet.bytes(),
            seen_bytes: seen * ENTRY_BYTES,
        }
    }

    pub fn partitions(&self) -> Vec<i32> {
        self.partitions.keys().copied().collect()
    }

    /// Memory for `seen` is shared evenly.
    fn share_memory(&mut self) {
        let each = self.limits.seen_bytes_max / ENTRY_BYTES / self.partitions.len().max(1);
        for partition in self.partitions.values_mut() {
            let evicted = partition.state.seen_evicted();
            partition
                .state
                .set_seen_max(each.min(self.limits.state.seen_max));
            self.counts.seen_evicted += partition.state.seen_evicted() - evicted;
        }
    }

    /// Takes one record in; it may fill the outlet's overflow slot, which must be free.
    /// Records of partitions that are not begun are left alone.
    pub fn record(&mut self, record: &SourceRecord<'_>, now_ms: i64) -> Result<(), Closed> {
        let Some(partition) = self.partitions.get_mut(&record.partition) else {
            return Ok(());
        };
        if record.offset < partition.reached {
            // The source went back; what lies below was taken in already.
            return Ok(());
        }
        partition.reached = record.offset + 1;
        partition.at_end = false;
        let written = partition.state.is_written(record.offset);
        self.counts.records += 1;
        let Some(payload) = record.payload else {
            self.counts.nulls += u64::from(!written);
            return Ok(());
        };
        let event = Record {
            offset: record.offset,
            index: 0,
            timestamp_ms: record.timestamp_ms,
            payload,
        };
        if let Err(bad) = self.decoder.decode(&event, &mut partition.batch) {
            if !written {
                self.counts.dead_letters += 1;
                self.counts.dead_letters_by_reason[bad.reason as usize] += 1;
                let letter = DeadLetter::new(&self.source, record, bad, self.limits.keep_payloads);
                if let Some(look) = &mut self.first_look {
                    look.bad(bad, &self.source, &letter);
                }
                self.outlet.send(Fact::Bad(Box::new(letter)))?;
            }
            return Ok(());
        }
        if partition.batch.is_full() {
            self.close(record.partition, now_ms)?;
        }
        Ok(())
    }

    /// The partition was read up to `next` (exclusive), its end: control records are passed, too.
    pub fn reached_end(&mut self, partition: i32, next: i64, now_ms: i64) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.reached = partition.reached.max(next);
            partition.at_end = true;
            partition.at_end_ms = now_ms;
        }
    }

    /// Every partition is at its end, and all of it was handed on.
    pub fn is_at_end(&self) -> bool {
        let is_done = |it: &Partition| it.at_end && it.batch.is_empty();
        self.partitions.values().all(is_done)
    }

    /// Hands on what there is of every partition, rows or not.
    pub fn close_all(&mut self, now_ms: i64) -> Result<(), Closed> {
        for partition in self.partitions() {
            if self.outlet.is_full() {
                break;
            }
            self.close(partition, now_ms)?;
        }
        let is_unused = self
            .partitions
            .values()
            .all(|partition| partition.batch.is_empty());
        if is_unused {
            self.decoder.forget_words();
        }
        if self.first_look.as_ref().is_some_and(|it| it.is_due(now_ms)) {
            self.tell_first_look();
        }
        Ok(())
    }

    /// Tells what is wrong with the first events, if that was not told yet.
    pub fn tell_first_look(&mut self) {
        if let Some(look) = self.first_look.take() {
            look.tell(&self.decoder.counts);
        }
    }

    fn close(&mut self, number: i32, now_ms: i64) -> Result<(), Closed> {
        let Some(partition) = self.partitions.get_mut(&number) else {
            return Ok(());
        };
        self.effects.clear();
        let evicted = partition.state.seen_evicted();
        step(
            &mut partition.state,
            &partition.batch,
            now_ms,
            &mut self.effects,
        );
        partition.state.advance(partition.reached);
        if partition.at_end && partition.batch.is_empty() {
            partition.state.idle(self.silent_ms);
        }
        self.counts.rows += self.effects.keep.len() as u64;
        self.counts.duplicates += self.effects.duplicates;
        self.counts.replayed += self.effects.replayed;
        self.counts.from_the_future += self.effects.from_the_future;
        self.counts.seen_evicted += partition.state.seen_evicted() - evicted;
        let progress = partition.state.progress();
        let rest = EventBatch::new(self.source.clone(), number);
        let batch = std::mem::replace(&mut partition.batch, rest);
        if self.effects.keep.is_empty() {
            let moved = partition.reported.is_none_or(|it| it.next != progress.next);
            let before_ms = partition.reported.map_or(i64::MIN, |it| it.clock_ms);
            let catches_up = partition.at_end && partition.told_behind;
            let clock_moved = progress.clock_ms.saturating_sub(before_ms) >= CLOCK_STEP_MS;
            if moved || catches_up || clock_moved {
                partition.reported = Some(progress);
                partition.told_behind &= !partition.at_end;
                let file = self.file;
                self.outlet.send(Fact::Moved {
                    partition: number,
                    progress,
                    file,
                    at_end: partition.at_end,
                })?;
            }
            return Ok(());
        }
        partition.reported = Some(progress);
        let derived = derive(&batch, &self.decoder.dictionary, &self.tables);
        if let Some(look) = &mut self.first_look {
            look.batch(&batch, &self.decoder.dictionary, &derived);
        }
        Point::Decoded.pass();
        let caught_up = now_ms.saturating_sub(partition.at_end_ms) < CAUGHT_UP_MS;
        partition.told_behind = !caught_up;
        let rows = Rows {
            partition: number,
            bytes: batch.heap_bytes() + derived.heap_bytes(),
            derived,
            keep: std::mem::take(&mut self.effects.keep),
            words: self.decoder.dictionary.share(),
            batch,
            progress,
            file: self.file,
            caught_up,
        };
        self.outlet.send(Fact::Rows(Box::new(rows)))?;
        Ok(())
    }
}
