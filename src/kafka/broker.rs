//! What only the broker knows: its cluster's id, and which offsets a partition has.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::metadata::Metadata;
use rdkafka::{Offset, TopicPartitionList};
use retrytoll_core::step::Progress;

use super::group_config;
use super::reason::{Reason, Reasons, ask, asker, not_made};
use crate::config::kafka::{Kafka, Start};
use crate::exit::Stop;
use crate::pipeline::Starts;

/// How long the broker may take to answer a question.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the ends of a partition are asked for, and how long to wait in between.
const ASKED_MAX: u32 = 50;
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Why a topic can't be read.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("{0}")]
    NoConnection(#[source] Stop),
    #[error("the topic `{topic}` is not there; create it, or correct kafka.topic")]
    NoTopic { topic: String },
    #[error("the cluster at {bootstrap} tells no id, so its records can't be told from others'")]
    NoClusterId { bootstrap: String },
}

/// A connection, and what the broker tells of a topic.
///
/// # Errors
/// Why there is none, and which key to look at.
pub fn reach(client: ClientConfig, topic: &str) -> Result<(BaseConsumer<Reasons>, Metadata), Stop> {
    let bootstrap = client
        .get("bootstrap.servers")
        .unwrap_or_default()
        .to_owned();
    let asker = asker(client).map_err(|error| not_made(&error))?;
    let metadata = ask(&asker, ANSWER_TIMEOUT, |wait| {
        asker.fetch_metadata(Some(topic), wait)
    });
    match metadata {
        Ok(metadata) => Ok((asker, metadata)),
        Err(Reason { text, hint, .. }) => {
            let text = format!("no connection to {bootstrap}: {text}");
            Err(Stop::failed(text, hint))
        }
    }
}

/// Asks for the cluster's id and the number of partitions; the source is `<cluster id>/<topic>`.
pub fn connect(kafka: &Kafka) -> Result<(TopicStarts, String, usize), BrokerError> {
    let client = group_config(kafka);
    let (asker, metadata) =
        reach(client.clone(), &kafka.topic).map_err(BrokerError::NoConnection)?;
    let partitions = metadata
        .topics()
        .iter()
        .find(|topic| topic.name() == kafka.topic && topic.error().is_none())
        .map_or(0, |topic| topic.partitions().len());
    if partitions == 0 {
        return Err(BrokerError::NoTopic {
            topic: kafka.topic.clone(),
        });
    }
    let cluster = asker
        .client()
        .fetch_cluster_id(ANSWER_TIMEOUT)
        .ok_or_else(|| BrokerError::NoClusterId {
            bootstrap: kafka.bootstrap.clone(),
        })?;
    let mut source = format!("{cluster}/{}", kafka.topic);
    if kafka.generation > 1 {
        source.push_str(&format!("#{}", kafka.generation));
    }
    let starts = TopicStarts {
        asker: RefCell::new(asker),
        client,
        topic: kafka.topic.clone(),
        start: kafka.start,
        skip_lost: kafka.skip_lost_records,
        generation: kafka.generation,
    };
    Ok((starts, source, partitions))
}

/// Where partitions of a topic start.
pub struct TopicStarts {
    asker: RefCell<BaseConsumer<Reasons>>,
    client: ClientConfig,
    topic: String,
    start: Start,
    skip_lost: bool,
    generation: u64,
}

impl TopicStarts {
    /// The least offset (inclusive) and the end (exclusive).
    pub fn ends(&self, partition: i32) -> anyhow::Result<(i64, i64)> {
        self.asked(|asker| asker.fetch_watermarks(&self.topic, partition, ANSWER_TIMEOUT))
            .with_context(|| {
                let topic = &self.topic;
                format!("the broker did not tell the ends of {topic}[{partition}]")
            })
    }

    /// The first offset whose record is newer than the time given.
    fn offset_after(&self, partition: i32, ms: i64) -> anyhow::Result<Option<i64>> {
        let answer = self
            .asked(|asker| {
                let mut question = TopicPartitionList::new();
                question.add_partition_offset(&self.topic, partition, Offset::Offset(ms + 1))?;
                asker.offsets_for_times(question, ANSWER_TIMEOUT)
            })
            .with_context(|| {
                let topic = &self.topic;
                format!("the broker did not tell what of {topic}[{partition}] is newer than {ms}")
            })?;
        let found = answer
            .find_partition(&self.topic, partition)
            .map(|it| it.offset());
        Ok(match found {
            Some(Offset::Offset(offset)) => Some(offset),
            _ => None,
        })
    }

    /// The answer to a question about a partition. The asker may not know of a partition that was
    /// added, nor the broker of its leader; or it knows a leader of before the broker died, and goes
    /// by it for ever. So each time a new one asks, for a while.
    fn asked<T>(
        &self,
        question: impl Fn(&BaseConsumer<Reasons>) -> KafkaResult<T>,
    ) -> KafkaResult<T> {
        let mut asked = 1;
        loop {
            let answer = question(&self.asker.borrow());
            if answer.is_ok() || asked == ASKED_MAX {
                return answer;
            }
            asked += 1;
            std::thread::park_timeout(ASK_AGAIN);
            if let Ok(fresh) = asker(self.client.clone()) {
                // What is asked for is what it leaves in the client's cache.
                let _ = fresh.fetch_metadata(Some(&self.topic), ANSWER_TIMEOUT);
                self.asker.replace(fresh);
            }
        }
    }
}

impl Starts for TopicStarts {
    fn first(&self, partition: i32, source_is_known: bool) -> anyhow::Result<i64> {
        let (low, high) = self.ends(partition)?;
        // A partition that appears later is read from its beginning, whatever was asked for.
        let at_end = self.start == Start::Latest && !source_is_known;
        Ok(if at_end { high } else { low })
    }

    fn checked(&self, partition: i32, position: Progress) -> anyhow::Result<Progress> {
        let (low, high) = self.ends(partition)?;
        let Progress { next, clock_ms, .. } = position;
        let topic = &self.topic;
        let made_anew = || -> anyhow::Result<bool> {
            let could_be = next > 0 && low == 0 && high > 0 && clock_ms > 0;
            Ok(could_be && self.offset_after(partition, clock_ms)? == Some(0))
        };
        if next > high || made_anew()? {
            let generation = self.generation + 1;
            bail!(Stop::failed(
                format!(
                    "{topic}[{partition}] holds offsets {low} to {high}, none of them what the \
                     lake has read up to offset {next}: the topic was made anew"
                ),
                format!(
                    "set kafka.generation={generation} to read it from its beginning as a source \
                     of its own (rows of the old one stay), or point kafka.topic at the right topic"
                ),
            ));
        }
        if next < low && !self.skip_lost {
            bail!(Stop::failed(
                format!(
                    "{topic}[{partition}] begins at offset {low}, but the lake has read up to \
                     {next} only: {} records were removed before they were read",
                    low - next
                ),
                "set kafka.on_lost_records=skip to go on without them, or restore them and start \
                 again; a longer retention of the topic keeps it from happening",
            ));
        }
        if next < low {
            tracing::error!(
                partition,
                lost = low - next,
                "records were removed before they were read"
            );
            return Ok(Progress {
                next: low,
                low,
                ..position
            });
        }
        if position.low < low {
            tracing::warn!(
                partition,
                low = position.low,
                log_start = low,
                "older records are gone; duplicates of them can't be told any more"
            );
            return Ok(Progress { low, ..position });
        }
        Ok(position)
    }
}
