//! The newest records of a topic, once: no group is joined, and nothing is committed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::broker::connect;
use super::consumer_config;
use super::reason::{Reasons, not_made};
use super::source::{is_fatal, record_of};
use crate::clock::Stopwatch;
use crate::config::Config;
use crate::config::kafka::Kafka;
use crate::exit::Stop;
use crate::pipeline::SourceRecord;

/// How long one poll may wait for a record.
const POLL: Duration = Duration::from_millis(100);
/// How long the broker may be silent before a partition's end.
const SILENCE: Duration = Duration::from_secs(30);

/// Where the newest records of a topic lie.
pub struct Newest {
    pub source: String,
    pub partitions: usize,
    consumer: BaseConsumer<Reasons>,
    /// The exclusive end of each partition that is still to be read.
    ends: BTreeMap<i32, i64>,
}

/// Finds the newest records of every partition, at most `records_max` of them.
///
/// # Errors
/// The broker does not answer, or has no such topic.
pub fn read_newest(kafka: &Kafka, config: &Config, records_max: u64) -> anyhow::Result<Newest> {
    let (starts, source, partitions) = connect(kafka)?;
    // A group is joined by subscribing, never by assigning partitions to oneself.
    let consumer: BaseConsumer<Reasons> = consumer_config(kafka, config)
        .create_with_context(Reasons::default())
        .map_err(|error| not_made(&error))?;
    let numbers = 0..i32::try_from(partitions).unwrap_or(i32::MAX);
    let bounds = numbers.map(|it| Ok((it, starts.ends(it)?)));
    let bounds = bounds.collect::<anyhow::Result<BTreeMap<i32, (i64, i64)>>>()?;
    let mut list = TopicPartitionList::new();
    let mut ends = BTreeMap::new();
    for (partition, from) in newest_from(&bounds, records_max) {
        let (_, end) = bounds[&partition];
        if from < end {
            list.add_partition_offset(&kafka.topic, partition, Offset::Offset(from))?;
            ends.insert(partition, end);
        }
    }
    consumer.assign(&list).context("cannot begin to read")?;
    Ok(Newest {
        source,
        partitions,
        consumer,
        ends,
    })
}

impl Newest {
    /// Hands each record over, those of a partition in the order of their offsets. What comes
    /// after the end that was found at the start is left alone.
    ///
    /// # Errors
    /// The broker falls silent, or records are removed meanwhile.
    pub fn each(&mut self, mut take: impl FnMut(&SourceRecord<'_>)) -> anyhow::Result<()> {
        let mut since = Stopwatch::start();
        while !self.ends.is_empty() {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    since = Stopwatch::start();
                    let partition = message.partition();
                    let Some(end) = self.ends.get(&partition) else {
                        continue;
                    };
                    if message.offset() < *end {
                        take(&record_of(&message));
                    }
                    if message.offset() + 1 >= *end {
                        self.ends.remove(&partition);
                    }
                }
                // Control records, and what compaction took, have no message.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.ends.remove(&partition);
                }
                Some(Err(KafkaError::MessageConsumption(code))) if is_fatal(code) => {
                    bail!("records were removed while they were read ({code}); run it again")
                }
                Some(Err(error)) => tracing::debug!(%error, "poll"),
                None => {}
            }
            if since.elapsed() > SILENCE {
                let partitions: Vec<_> = self.ends.keys().collect();
                bail!(Stop::failed(
                    format!("no record came for {SILENCE:?}; partitions to read: {partitions:?}"),
                    "is every partition's leader up? `retrytoll check` looks at the broker",
                ));
            }
        }
        Ok(())
    }
}

/// Where each partition is to be read from (inclusive). `bounds` are its least offset (inclusive)
/// and its end (exclusive). What short partitions leave goes to the longer ones.
fn newest_from(bounds: &BTreeMap<i32, (i64, i64)>, records_max: u64) -> Vec<(i32, i64)> {
    let mut by_length: Vec<_> = bounds
        .iter()
        .map(|(partition, (low, end))| (end.saturating_sub(*low).max(0), *partition, *end))
        .collect();
    by_length.sort_unstable();
    let mut left = i64::try_from(records_max).unwrap_or(i64::MAX);
    let count = by_length.len();
    let shared = by_length.into_iter().enumerate();
    shared
        .map(|(at, (length, partition, end))| {
            let rest = i64::try_from(count - at).unwrap_or(i64::MAX);
            let share = length.min(left / rest);
            left -= share;
            (partition, end - share)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bounds: &[(i64, i64)], records_max: u64, expected: &[i64]) {
        let bounds = (0..).zip(bounds.iter().copied()).collect();
        let mut found = newest_from(&bounds, records_max);
        found.sort_unstable();
        let from: Vec<_> = found.iter().map(|(_, from)| *from).collect();
        assert_eq!(from, expected, "{records_max}");
    }

    #[test]
    fn the_newest_are_shared_evenly() {
        check(&[(0, 100), (0, 100)], 20, &[90, 90]);
        // 3 of the first, so 8 or 9 are left for each of the others.
        check(&[(0, 3), (50, 100), (0, 100)], 20, &[0, 92, 91]);
        check(&[(0, 3), (50, 100)], 1_000, &[0, 50]);
        check(&[(7, 7), (0, 0)], 10, &[7, 0]);
        check(&[(0, 10), (0, 10), (0, 10)], 2, &[10, 9, 9]);
        check(&[], 10, &[]);
    }
}
