//! records → step → [`Fact`]: one process's reading stage and its source.
//!
//! Stands for `src/pipeline/read.rs` (`Reader::record`, `reached_end`, `close`) and
//! `src/kafka/source.rs` (`run`, `obey`, `take_rebalances`, `begin`, `restart`, `end`) of the
//! program, around the real `PartitionState`, `step` and `Silence`. An event's payload is its
//! identity, so nothing is decoded. Left out: memory shares, the recreated topic, one slot of
//! overflow (a full channel stops polling instead).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use retrytoll_core::batch::{EventBatch, NO_RECORD_MS, SourceId};
use retrytoll_core::silence::Silence;
use retrytoll_core::step::{Effects, PartitionState, Progress, StateLimits, step};

use super::group::Told;
use super::log::Content;
use super::mutant::Mutant;
use super::plan::Plan;
use super::world::{Row, World};

/// A partition is caught up when it was read to its end so lately, ms.
const CAUGHT_UP_MS: i64 = 5_000;
/// A silent partition tells its waiting clock so often, ms.
const CLOCK_STEP_MS: i64 = 1_000;
/// Batches that may wait for the writing stage.
const BATCHES_MAX: usize = 3;

#[derive(Clone, Debug)]
pub struct Term {
    pub number: u64,
    pub partitions: Vec<i32>,
}

#[derive(Debug)]
pub enum Fact {
    Assigned(Term),
    Revoked(Vec<i32>),
    Restarted(Term),
    Rows {
        partition: i32,
        rows: Vec<Row>,
        progress: Progress,
        caught_up: bool,
    },
    Moved {
        partition: i32,
        progress: Progress,
        at_end: bool,
    },
    Bad {
        partition: i32,
        offset: i64,
    },
    End,
}

#[derive(Debug)]
pub enum Order {
    Read {
        term: u64,
        positions: Vec<(i32, Progress)>,
    },
    Restart,
}

/// What goes between the two stages.
#[derive(Default)]
pub struct Between {
    pub facts: VecDeque<Fact>,
    pub orders: VecDeque<Order>,
}

impl Between {
    fn is_full(&self) -> bool {
        let batches = self
            .facts
            .iter()
            .filter(|it| matches!(it, Fact::Rows { .. }));
        batches.count() >= BATCHES_MAX
    }
}

struct Reading {
    state: PartitionState,
    batch: EventBatch,
    reached: i64,
    reported: Progress,
    at_end: bool,
    at_end_ms: i64,
    told_behind: bool,
    /// The next offset to fetch.
    fetch: i64,
    /// The end that was told last.
    ended: i64,
}

pub struct Reader {
    limits: StateLimits,
    batch_max: usize,
    mutant: Option<Mutant>,
    between: Rc<RefCell<Between>>,
    partitions: BTreeMap<i32, Reading>,
    assigned: BTreeMap<i32, u64>,
    term: u64,
    silence: Silence,
    silent_ms: i64,
    is_paused: bool,
    has_ended: bool,
}

impl Reader {
    pub fn new(
        plan: &Plan,
        between: Rc<RefCell<Between>>,
        mutant: Option<Mutant>,
        now_ms: i64,
    ) -> Self {
        Self {
            limits: plan.limits,
            batch_max: plan.batch_max,
            mutant,
            between,
            partitions: BTreeMap::new(),
            assigned: BTreeMap::new(),
            term: 0,
            silence: Silence::begin(now_ms),
            silent_ms: i64::MIN,
            is_paused: false,
            has_ended: false,
        }
    }

    fn tell(&self, fact: Fact) {
        self.between.borrow_mut().facts.push_back(fact);
    }

    /// The partitions that it believes to have.
    pub fn assigned(&self) -> Vec<i32> {
        self.assigned.keys().copied().collect()
    }

    /// What was not yet read, or not handed on.
    pub fn unrest(&self, world: &World) -> Option<String> {
        if self.partitions.len() != self.assigned.len() {
            return Some(format!(
                "it waits for positions of some of {:?}",
                self.assigned
            ));
        }
        self.partitions.iter().find_map(|(number, it)| {
            let (fetch, end) = (it.fetch, world.logs.end(*number));
            let is_read = it.batch.is_empty() && fetch == end && it.at_end;
            (!is_read).then(|| format!("it is at {fetch} of {end} in partition {number}"))
        })
    }

    /// One round of the poll loop.
    pub fn round(&mut self, told: Vec<Told>, stops: bool, now_ms: i64, world: &mut World) {
        if self.has_ended {
            return;
        }
        self.obey(world);
        self.take_rebalances(told);
        self.silence.look(now_ms, self.is_paused);
        if stops {
            self.close_all(now_ms);
            self.tell(Fact::End);
            self.has_ended = true;
            return;
        }
        if world.chance(60) {
            self.close_all(now_ms);
        }
        self.is_paused = self.between.borrow().is_full();
        if !self.is_paused {
            self.poll(now_ms, world);
        }
    }

    fn obey(&mut self, world: &mut World) {
        loop {
            let order = self.between.borrow_mut().orders.pop_front();
            match order {
                Some(Order::Read { term, positions }) => self.begin(term, &positions, world),
                Some(Order::Restart) => self.restart(),
                None => return,
            }
        }
    }

    fn begin(&mut self, term: u64, positions: &[(i32, Progress)], world: &mut World) {
        for &(partition, mut from) in positions {
            match self.assigned.get(&partition) {
                Some(current) if *current == term => {}
                Some(_) => {
                    world.saw("an answer to an earlier term");
                    if self.mutant != Some(Mutant::ObeysOldTerms) {
                        continue;
                    }
                }
                None => continue,
            }
            if self.mutant == Some(Mutant::ReadsFromNext) {
                from.low = from.next;
            }
            if self.mutant == Some(Mutant::ForgetsLowClock) {
                from.low_clock_ms = i64::MIN;
            }
            let reading = Reading {
                state: PartitionState::recover(from, self.limits),
                batch: self.batch(partition),
                reached: from.low,
                reported: from,
                at_end: false,
                at_end_ms: i64::MIN,
                told_behind: false,
                fetch: from.low,
                ended: -1,
            };
            self.partitions.insert(partition, reading);
        }
    }

    fn batch(&self, partition: i32) -> EventBatch {
        EventBatch::new(SourceId(super::SOURCE.into()), partition)
    }

    fn begin_term(&mut self, partitions: Vec<i32>) -> Term {
        self.term += 1;
        let number = self.term;
        self.assigned
            .extend(partitions.iter().map(|it| (*it, number)));
        Term { number, partitions }
    }

    fn restart(&mut self) {
        self.partitions.clear();
        let partitions = self.assigned();
        let term = self.begin_term(partitions);
        self.tell(Fact::Restarted(term));
    }

    fn take_rebalances(&mut self, told: Vec<Told>) {
        for told in told {
            match told {
                Told::Assigned(partitions) => {
                    let term = self.begin_term(partitions);
                    self.tell(Fact::Assigned(term));
                }
                Told::Revoked(partitions) => {
                    for partition in &partitions {
                        self.partitions.remove(partition);
                        self.assigned.remove(partition);
                    }
                    self.tell(Fact::Revoked(partitions));
                }
            }
        }
    }

    /// Some records of one partition, or its end, or nothing at all.
    fn poll(&mut self, now_ms: i64, world: &mut World) {
        let some: Vec<i32> = self.partitions.keys().copied().collect();
        if some.is_empty() {
            return;
        }
        let number = some[world.luck.usize(0..some.len())];
        for _ in 0..world.luck.u32(1..8) {
            let Some(reading) = self.partitions.get_mut(&number) else {
                return;
            };
            if reading.fetch >= world.logs.end(number) {
                if reading.ended != reading.fetch {
                    // The end is told once; it may lie behind control records.
                    reading.ended = reading.fetch;
                    reading.reached = reading.reached.max(reading.fetch);
                    reading.at_end = true;
                    reading.at_end_ms = now_ms;
                }
                self.silence.drained(now_ms);
                self.silent_ms = self.silence.known_ms();
                return;
            }
            let offset = reading.fetch;
            reading.fetch += 1;
            let record = world.logs.record(number, offset);
            if !matches!(record.content, Content::Control) {
                let record = (record.ms, record.content.clone());
                self.record(number, offset, &record, now_ms);
            }
        }
    }

    fn record(&mut self, number: i32, offset: i64, record: &(Option<i64>, Content), now_ms: i64) {
        let Some(reading) = self.partitions.get_mut(&number) else {
            return;
        };
        reading.reached = offset + 1;
        reading.at_end = false;
        match &record.1 {
            Content::Events(events) => {
                for (index, (identity, _)) in (0..).zip(events) {
                    reading.batch.offsets.push(offset);
                    reading.batch.indexes.push(index);
                    reading
                        .batch
                        .record_ms
                        .push(record.0.unwrap_or(NO_RECORD_MS));
                    reading.batch.identities.push(*identity);
                }
            }
            Content::Bad if !reading.state.is_written(offset) => {
                self.tell(Fact::Bad {
                    partition: number,
                    offset,
                });
            }
            Content::Bad | Content::Null | Content::Control => {}
        }
        if self.partitions[&number].batch.len() >= self.batch_max {
            self.close(number, now_ms);
        }
    }

    fn close_all(&mut self, now_ms: i64) {
        let some: Vec<i32> = self.partitions.keys().copied().collect();
        for number in some {
            if self.between.borrow().is_full() {
                return;
            }
            self.close(number, now_ms);
        }
    }

    fn close(&mut self, number: i32, now_ms: i64) {
        let rest = self.batch(number);
        let Some(reading) = self.partitions.get_mut(&number) else {
            return;
        };
        let mut effects = Effects::default();
        step(&mut reading.state, &reading.batch, now_ms, &mut effects);
        reading.state.advance(reading.reached);
        if reading.at_end && reading.batch.is_empty() {
            reading.state.idle(self.silent_ms);
        }
        let progress = reading.state.progress();
        let batch = std::mem::replace(&mut reading.batch, rest);
        if effects.keep.is_empty() {
            let moved = reading.reported.next != progress.next;
            let clock_moved = progress.clock_ms.saturating_sub(reading.reported.clock_ms);
            let catches_up = reading.at_end && reading.told_behind;
            if moved || catches_up || clock_moved >= CLOCK_STEP_MS {
                reading.reported = progress;
                reading.told_behind &= !reading.at_end;
                let at_end = reading.at_end;
                self.tell(Fact::Moved {
                    partition: number,
                    progress,
                    at_end,
                });
            }
            return;
        }
        reading.reported = progress;
        let caught_up = now_ms.saturating_sub(reading.at_end_ms) < CAUGHT_UP_MS;
        reading.told_behind = !caught_up;
        let place = |row: &u32| (batch.offsets[*row as usize], batch.indexes[*row as usize]);
        let kept = effects.keep.iter().map(place);
        let rows = kept
            .map(|(offset, index)| (number, offset, index))
            .collect();
        self.tell(Fact::Rows {
            partition: number,
            rows,
            progress,
            caught_up,
        });
    }
}
