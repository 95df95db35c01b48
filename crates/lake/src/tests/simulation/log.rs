//! The broker's logs: what producers append, and what must become of each event.
//!
//! The **oracle** is [`Log::is_new`]: it looks through the whole log before an event, and knows
//! nothing of states, positions, or who reads.

use super::plan::Plan;
use super::world::Row;

/// Record times from here on lie beyond the skew limit whenever they are read; all others are
/// within it for every clock. What lies between may be read on either side of the limit.
const FUTURE_MS: i64 = super::NOW_MS + 1_000 * super::DAY_MS;

#[derive(Clone, Debug)]
pub enum Content {
    /// Identities, and whether the oracle wants each written.
    Events(Vec<(u128, bool)>),
    Null,
    Bad,
    /// A transaction's marker: it takes an offset, and nobody is handed it.
    Control,
}

#[derive(Clone, Debug)]
pub struct Record {
    /// `None`: a record without a time.
    pub ms: Option<i64>,
    pub content: Content,
}

/// One partition; a record's offset is its place.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub records: Vec<Record>,
}

#[derive(Debug)]
pub struct Logs {
    pub partitions: Vec<Log>,
    horizon_ms: i64,
    replay_max: i64,
    /// Records that may still come.
    pub left: u32,
    fresh: u128,
}

impl Logs {
    pub fn new(plan: &Plan) -> Self {
        Self {
            partitions: vec![Log::default(); plan.partitions as usize],
            horizon_ms: plan.limits.dedupe_horizon_ms,
            replay_max: plan.limits.replay_max,
            left: plan.records,
            fresh: 0,
        }
    }

    pub fn end(&self, partition: i32) -> i64 {
        self.partitions[partition as usize].records.len() as i64
    }

    pub fn record(&self, partition: i32, offset: i64) -> &Record {
        &self.partitions[partition as usize].records[offset as usize]
    }

    /// The rows of a record that must be in the lake.
    pub fn wanted(&self, partition: i32, offset: i64) -> Vec<Row> {
        let Content::Events(events) = &self.record(partition, offset).content else {
            return Vec::new();
        };
        let wanted = events.iter().zip(0..).filter(|((_, is_new), _)| *is_new);
        wanted
            .map(|(_, index)| (partition, offset, index))
            .collect()
    }

    /// A producer appends a record. Times are late, ahead, far in the future, or missing at
    /// times; identities repeat, near and far.
    pub fn append(&mut self, luck: &mut fastrand::Rng, now_ms: i64) -> (i32, i64) {
        self.left -= 1;
        let partition = luck.usize(0..self.partitions.len());
        let ms = match luck.u32(0..100) {
            0..70 => Some(now_ms - luck.i64(0..2_000)),
            70..82 => Some(now_ms - luck.i64(0..3 * self.horizon_ms)),
            82..92 => Some(now_ms + luck.i64(0..100_000)),
            92..97 => Some(FUTURE_MS + luck.i64(0..1_000_000)),
            _ => None,
        };
        let identities = match luck.u32(0..100) {
            0..68 => 1,
            68..76 => 2,
            76..82 => return self.push(partition, ms, Content::Null),
            82..92 => return self.push(partition, ms, Content::Bad),
            _ => return self.push(partition, None, Content::Control),
        };
        let mut events = Vec::new();
        for _ in 0..identities {
            let identity = self.identity(luck, partition);
            let is_new = self.partitions[partition].is_new(self, ms, &events, identity);
            events.push((identity, is_new));
        }
        self.push(partition, ms, Content::Events(events))
    }

    fn push(&mut self, partition: usize, ms: Option<i64>, content: Content) -> (i32, i64) {
        let records = &mut self.partitions[partition].records;
        records.push(Record { ms, content });
        (partition as i32, records.len() as i64 - 1)
    }

    fn identity(&mut self, luck: &mut fastrand::Rng, partition: usize) -> u128 {
        let known: Vec<u128> = self.partitions[partition].identities().collect();
        let near = known.len().saturating_sub(6);
        match luck.u32(0..100) {
            0..35 if near < known.len() => known[luck.usize(near..known.len())],
            35..50 if !known.is_empty() => known[luck.usize(0..known.len())],
            _ => {
                self.fresh += 1;
                self.fresh
            }
        }
    }
}

impl Log {
    fn identities(&self) -> impl Iterator<Item = u128> + '_ {
        self.records
            .iter()
            .flat_map(|record| match &record.content {
                Content::Events(events) => events.iter().map(|(identity, _)| *identity).collect(),
                _ => Vec::new(),
            })
    }

    /// The greatest time of an event's record up to `offset`, inclusive, the future left out.
    /// What is no event has no say.
    fn clock_ms(&self, offset: usize) -> Option<i64> {
        let upto = &self.records[..=offset];
        let events = upto
            .iter()
            .filter(|it| matches!(it.content, Content::Events(_)));
        events
            .filter_map(|it| it.ms)
            .filter(|ms| *ms < FUTURE_MS)
            .max()
    }

    /// Whether an event that is appended now must be written: its identity did not come within
    /// the horizon before it, or came further back than the replay bound.
    fn is_new(
        &self,
        of: &Logs,
        ms: Option<i64>,
        same_record: &[(u128, bool)],
        identity: u128,
    ) -> bool {
        if same_record.iter().any(|(other, _)| *other == identity) {
            return false;
        }
        let has = |record: &Record| match &record.content {
            Content::Events(events) => events.iter().any(|(other, _)| *other == identity),
            _ => false,
        };
        let Some(last) = self.records.iter().rposition(has) else {
            return true;
        };
        let before = self.clock_ms(self.records.len() - 1);
        let now = ms.filter(|ms| *ms < FUTURE_MS).max(before);
        let is_past = match (self.clock_ms(last), now) {
            (Some(then), Some(now)) => now - then > of.horizon_ms,
            // Before the first time nothing passes; the first time is past everything.
            (None, now) => now.is_some(),
            (Some(_), None) => unreachable!("the clock never moves back"),
        };
        is_past || (self.records.len() - last) as i64 > of.replay_max
    }
}
